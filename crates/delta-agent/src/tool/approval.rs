//! `approve:` and `preview:` of a tool: which of its calls a person has to approve, and what the person is shown.
//!
//! Pure. The engine asks, and decides with this policy, the options of the operator and the journal.

use super::invocation::{CheckedArguments, ToolInvocation};
use super::{ParameterType, Tool, ToolParameter, names_parameter};
use delta_base::engine_variables::EngineVars;
use delta_base::hex::sha256_hex;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode, quote_yaml};
use regex::Regex;
use serde_json::json;

/// The values of `approve:` that are not rules.
const APPROVE_WORDS: &[&str] = &["never", "ask"];

/// The shape of `approve:`.
pub const APPROVE_SHAPE: ValueShape = ValueShape::OneOf(&[
    ValueShape::Choice(APPROVE_WORDS),
    ValueShape::List(&ValueShape::Mapping(&RULE_MAPPING)),
]);

static RULE_MAPPING: MappingSchema = MappingSchema::new(
    "a rule of `approve`",
    "What to do with the calls that match; the first rule that matches counts.",
    &[
        KeySchema::optional(
            "match",
            ValueShape::TextMap,
            "Parameters, each with a regular expression that matches somewhere in its value. Without it, every call matches.",
        )
        .with_help(match_help),
        KeySchema::required(
            "do",
            ValueShape::Choice(&["allow", "ask", "deny"]),
            "`allow` starts the call, `ask` asks a person, `deny` never starts it.",
        )
        .with_help(action_help),
        KeySchema::optional("reason", ValueShape::Text, "With `deny`: the reason, for the LLM."),
    ],
);

/// A pattern without the parameter that it is for.
fn match_help(node: &YamlNode) -> Option<String> {
    let pattern = node.scalar().or_else(|| node.items().first()?.scalar())?;
    Some(format!(
        "name the parameter whose value must match: `match: {{PARAMETER: {}}}`",
        quote_yaml(pattern)
    ))
}

/// Another word for what happens to a call.
fn action_help(node: &YamlNode) -> Option<String> {
    let word = match node.scalar()? {
        "yes" | "true" | "approve" | "never" | "accept" => "allow",
        "no" | "false" | "reject" | "block" | "refuse" => "deny",
        "prompt" | "confirm" | "always" => "ask",
        _ => return None,
    };
    Some(format!("write `{word}`"))
}

/// The keys of `preview:`.
pub(super) static PREVIEW_MAPPING: MappingSchema = MappingSchema::new(
    "`preview`",
    "The parameters that say what a call does to a file.",
    &[
        KeySchema::required(
            "path",
            ValueShape::Text,
            "The parameter with the path of the file in the workspace.",
        ),
        KeySchema::required(
            "content",
            ValueShape::Text,
            "The parameter with the new text of the file, or of the part in `replaces`.",
        ),
        KeySchema::optional(
            "replaces",
            ValueShape::Text,
            "The parameter with the text that `content` replaces, where the file has it exactly once.",
        ),
    ],
);

/// Which calls of a tool a person has to approve.
#[derive(Debug, Clone)]
pub enum ApprovalPolicy {
    /// None.
    Never,
    /// Every call.
    Ask,
    /// What the first rule says that matches; every call that none matches.
    Rules(Vec<ApprovalRule>),
}

/// A rule of a policy.
#[derive(Debug, Clone)]
pub struct ApprovalRule {
    /// Parameters with the regular expressions for their values; without any, every call matches.
    pub patterns: Vec<(String, Regex)>,
    /// What happens to a call that matches.
    pub action: ApprovalAction,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAction {
    /// It starts.
    Allow,
    /// A person is asked.
    Ask,
    /// It never starts; the reason is for the LLM.
    Deny(Option<String>),
}

/// What a policy says about a call.
#[derive(Debug, PartialEq, Eq)]
pub struct ApprovalVerdict<'a> {
    /// What happens to the call.
    pub action: &'a ApprovalAction,
    /// The number of the rule that decides, from 1; `None` if none does.
    pub rule: Option<u32>,
}

impl ApprovalPolicy {
    /// Reads `approve:`. `check_parameter` returns the help of a diagnostic for a parameter that does not exist.
    pub fn read(
        doc: &YamlDocument,
        node: &YamlNode,
        check_parameter: &mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Option<Self> {
        match node.scalar() {
            Some("never") => return Some(Self::Never),
            Some("ask") => return Some(Self::Ask),
            Some(other) => {
                let help = match other.to_ascii_lowercase().as_str() {
                    "allow" | "false" | "no" | "off" | "none" | "auto" => "write `never`",
                    "true" | "yes" | "on" | "always" | "required" => "write `ask`",
                    "deny" => "write the rule `[{do: deny}]`",
                    _ => "write `never`, `ask`, or a list of rules such as `[{do: ask}]`",
                };
                let message =
                    format!("`approve` must be `never`, `ask` or a list of rules, not `{other}`");
                doc.report(node, message, Some(help.to_owned()));
                return None;
            }
            None => {}
        }
        let items = doc.expect_list(node, "`approve`")?;
        if items.is_empty() {
            let help = "write `ask` to ask about every call, or `never`";
            doc.report(node, "`approve` has no rule", Some(help.to_owned()));
        }
        let rules = items.iter().map(|item| ApprovalRule::read(doc, item, check_parameter));
        // All rules are read, so that all errors are reported.
        let rules: Vec<Option<ApprovalRule>> = rules.collect();
        rules.into_iter().collect::<Option<_>>().map(Self::Rules)
    }

    /// The parameters whose values its rules look at.
    pub fn matched_parameters(&self) -> impl Iterator<Item = &str> {
        let rules = match self {
            Self::Rules(rules) => &rules[..],
            Self::Never | Self::Ask => &[],
        };
        rules.iter().flat_map(|rule| &rule.patterns).map(|(name, _)| name.as_str())
    }

    /// What the policy says about a call of a tool with these parameters.
    pub fn verdict(
        &self,
        parameters: &[ToolParameter],
        arguments: &CheckedArguments,
    ) -> ApprovalVerdict<'_> {
        let rules = match self {
            Self::Never => {
                return ApprovalVerdict { action: &ApprovalAction::Allow, rule: None };
            }
            Self::Ask => &[][..],
            Self::Rules(rules) => rules,
        };
        for (rule, number) in rules.iter().zip(1..) {
            if rule.matches(parameters, arguments) {
                return ApprovalVerdict { action: &rule.action, rule: Some(number) };
            }
        }
        ApprovalVerdict { action: &ApprovalAction::Ask, rule: None }
    }
}

impl ApprovalRule {
    fn read(
        doc: &YamlDocument,
        node: &YamlNode,
        check_parameter: &mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Option<Self> {
        doc.expect_mapping_or(node, "a rule of `approve`", || match node.scalar() {
            Some("ask" | "never") => {
                format!("write `approve: {}`", node.scalar().unwrap_or_default())
            }
            Some(action @ ("allow" | "deny")) => format!("write the rule `{{do: {action}}}`"),
            _ => "write a rule such as `{match: {PARAMETER: PATTERN}, do: ask}`".to_owned(),
        })?;
        let fields = doc.fields(node, &RULE_MAPPING)?;
        let mut patterns = Vec::new();
        if let Some(node) = fields.non_null("match") {
            let entries = doc.expect_mapping(node, "`match`")?;
            if entries.is_empty() {
                let help = "omit `match` if the rule is for every call";
                doc.report(node, "`match` names no parameter", Some(help.to_owned()));
            }
            for (key, value) in entries {
                let name = key.scalar().unwrap_or_default();
                if let Err(help) = check_parameter(name) {
                    doc.report(key, format!("unknown parameter `{name}` in `match`"), Some(help));
                }
                let text = doc.expect_text(value, &format!("`{name}`")).unwrap_or_default();
                match Regex::new(text) {
                    Ok(pattern) => patterns.push((name.to_owned(), pattern)),
                    Err(error) => {
                        let reason = error.to_string();
                        let reason = reason.lines().last().unwrap_or_default();
                        let reason = reason.strip_prefix("error: ").unwrap_or(reason);
                        let message = format!("`{text}` is not a regular expression: {reason}");
                        let help = "put a backslash before a character that stands for itself, and single quotes around the text";
                        doc.report(value, message, Some(help.to_owned()));
                    }
                }
            }
        }
        let action_node = fields.require("do", "ask")?;
        let reason = fields.non_null("reason");
        let action = match action_node.scalar()? {
            "deny" => ApprovalAction::Deny(fields.text("reason").map(str::to_owned)),
            word => {
                if let Some(node) = reason {
                    let message = format!("`reason` has no effect with `do: {word}`");
                    let help = "remove it; only `deny` gives the LLM a reason";
                    doc.report(node, message, Some(help.to_owned()));
                }
                if word == "allow" { ApprovalAction::Allow } else { ApprovalAction::Ask }
            }
        };
        Some(Self { patterns, action })
    }

    /// Whether every pattern matches the value of its parameter; a value that is absent matches none.
    fn matches(&self, parameters: &[ToolParameter], arguments: &CheckedArguments) -> bool {
        self.patterns.iter().all(|(name, pattern)| {
            let mut values = parameters.iter().zip(arguments.values());
            let value = values.find(|(parameter, _)| parameter.name == *name);
            value
                .and_then(|(_, value)| value.as_ref())
                .is_some_and(|value| pattern.is_match(&value.text()))
        })
    }
}

/// The parameters of a tool that say what a call does to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPreview {
    /// The parameter with the path.
    pub path: String,
    /// The parameter with the new text.
    pub content: String,
    /// The parameter with the text that is replaced.
    pub replaces: Option<String>,
}

impl ToolPreview {
    pub(super) fn read(
        doc: &YamlDocument,
        node: &YamlNode,
        parameters: &[ToolParameter],
    ) -> Option<Self> {
        let fields = doc.fields(node, &PREVIEW_MAPPING)?;
        let read_name = |node: &YamlNode| {
            let name = node.scalar()?;
            if let Err(help) = names_parameter(parameters, name) {
                let message = format!("unknown parameter `{name}` in `preview`");
                doc.report(node, message, Some(help));
                return None;
            }
            let mut named = parameters.iter().filter(|parameter| parameter.name == name);
            if !named.any(|parameter| parameter.kind == ParameterType::String) {
                let help = "a path and the text of a file are strings";
                doc.report(node, format!("`{name}` is not a string"), Some(help.to_owned()));
                return None;
            }
            Some(name.to_owned())
        };
        let path = fields.require("path", "path").and_then(read_name);
        let content = fields.require("content", "content").and_then(read_name);
        let replaces = match fields.non_null("replaces") {
            Some(node) => Some(read_name(node)?),
            None => None,
        };
        Some(Self { path: path?, content: content?, replaces })
    }
}

impl Tool {
    /// The policy of the tool. Loading an agent gives every tool one.
    pub fn approval_policy(&self) -> &ApprovalPolicy {
        self.approve.as_ref().unwrap_or(&ApprovalPolicy::Never)
    }

    /// The SHA-256 of everything that determines what a call starts.
    pub fn command_sha256(&self, invocation: &ToolInvocation, vars: &EngineVars) -> String {
        let env: Vec<(&str, String)> =
            self.env.iter().map(|(name, value)| (name.as_str(), vars.expand_text(value))).collect();
        let mut command = json!({
            "argv": invocation.argv,
            "stdin": invocation.stdin,
            "cwd": vars.cwd.to_string_lossy(),
            "env": env,
            "pass_env": self.pass_env,
        });
        if let Some(mcp) = &self.mcp {
            command["mcp"] = json!([mcp.server_sha256, mcp.settings]);
        }
        if let Some(profile) = &self.profile {
            command["sandbox"] = profile.to_yaml().into();
        }
        sha256_hex(command.to_string())
    }
}
