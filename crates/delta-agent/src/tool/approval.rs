//! `approve:` and `preview:` of a tool: which of its calls a person has to approve, and what the person is shown.
//!
//! Pure. The engine asks, and decides with this policy, the options of the operator and the journal.

use super::invocation::{CheckedArguments, ToolInvocation};
use super::{ParameterType, Tool, ToolParameter, names_parameter};
use delta_base::engine_variables::EngineVars;
use delta_base::hex::sha256_hex;
use delta_base::json::ExactJson;
use delta_shell::{CommandPattern, CommandPatternError, read_plain_command};
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode, quote_yaml};
use regex::Regex;
use serde_json::{Value as Json, json};

/// The values of `approve:` that are not rules.
const APPROVE_WORDS: &[&str] = &["never", "ask"];

/// The shape of `approve:`.
pub const APPROVE_SHAPE: ValueShape = ValueShape::OneOf(&[
    ValueShape::Choice(APPROVE_WORDS),
    ValueShape::List(&ValueShape::Mapping(&RULE_MAPPING)),
    ValueShape::Mapping(&COMMANDS_MAPPING),
]);

/// The parameter with the command line of a tool with several, where `commands` names none.
pub(crate) const COMMAND_PARAMETER: &str = "command";

static COMMANDS_MAPPING: MappingSchema = MappingSchema::new(
    "`approve`",
    "The commands that start without a question; a person is asked about every other call.",
    &[
        KeySchema::required(
            "commands",
            ValueShape::List(&ValueShape::Text),
            "Command lines for a shell. A word is itself, `*` any word, `**` at the end any number of words, `[-x]` an option that may be left out.",
        ),
        KeySchema::optional(
            "parameter",
            ValueShape::Text,
            "The parameter with the command line. Without it, `command`, or the only parameter.",
        ),
    ],
);

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
    /// None of the calls whose command line one of the patterns matches, and every other call.
    Commands {
        /// The parameter with the command line; `None` for `command`, or the only parameter.
        parameter: Option<String>,
        /// The commands that start without a question.
        patterns: Vec<CommandPattern>,
    },
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
    /// The number of the rule or the command that decides, from 1; `None` if none does.
    pub rule: Option<u32>,
}

impl ApprovalPolicy {
    /// Reads `approve:`. `check_parameter` returns the help of a diagnostic for a parameter that does not exist; its argument
    /// is `None` for the one with the command line that nothing names.
    pub fn read(
        doc: &YamlDocument,
        node: &YamlNode,
        check_parameter: &mut dyn FnMut(Option<&str>) -> Result<(), String>,
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
                doc.report(node, message, help);
                return None;
            }
            None => {}
        }
        if !node.entries().is_empty() && node.get("do").is_none() {
            return Self::read_commands(doc, node, check_parameter);
        }
        let items = doc.expect_list(node, "`approve`")?;
        if items.is_empty() {
            let help = "write `ask` to ask about every call, or `never`";
            doc.report(node, "`approve` has no rule", help);
        }
        let rules = items.iter().map(|item| ApprovalRule::read(doc, item, check_parameter));
        // All rules are read, so that all errors are reported.
        let rules: Vec<Option<ApprovalRule>> = rules.collect();
        rules.into_iter().collect::<Option<_>>().map(Self::Rules)
    }

    fn read_commands(
        doc: &YamlDocument,
        node: &YamlNode,
        check_parameter: &mut dyn FnMut(Option<&str>) -> Result<(), String>,
    ) -> Option<Self> {
        let fields = doc.fields(node, &COMMANDS_MAPPING)?;
        let list = fields.require("commands", "[git status]")?;
        let parameter = fields.text("parameter");
        if let Err(help) = check_parameter(parameter) {
            let at = fields.non_null("parameter").unwrap_or(node);
            let name = parameter.unwrap_or(COMMAND_PARAMETER);
            let help = if parameter.is_some() {
                help
            } else {
                "write `parameter: NAME`: the one with the command line".to_owned()
            };
            doc.report(at, format!("unknown parameter `{name}` in `approve`"), help);
        }
        let items = list.items();
        if items.is_empty() && list.scalar().is_none() && list.entries().is_empty() {
            let help = "write `approve: ask` to ask about every call";
            doc.report(list, "`commands` has no command", help);
        }
        // All commands are read, so that all errors are reported.
        let patterns: Vec<_> = items.iter().map(|item| read_command_pattern(doc, item)).collect();
        let patterns = patterns.into_iter().collect::<Option<_>>()?;
        Some(Self::Commands { parameter: parameter.map(str::to_owned), patterns })
    }

    /// The parameters whose values it looks at.
    pub fn matched_parameters(&self) -> impl Iterator<Item = &str> {
        let (rules, command) = match self {
            Self::Rules(rules) => (&rules[..], None),
            Self::Commands { parameter, .. } => (&[][..], parameter.as_deref()),
            Self::Never | Self::Ask => (&[][..], None),
        };
        let matched = rules.iter().flat_map(|rule| &rule.patterns);
        matched.map(|(name, _)| name.as_str()).chain(command)
    }

    /// The words of the command line that `commands` looks at; none if it is more than words, or there is no `commands`.
    pub fn command_words(
        &self,
        parameters: &[ToolParameter],
        arguments: &CheckedArguments,
    ) -> Vec<String> {
        let Self::Commands { parameter, .. } = self else { return Vec::new() };
        let name = match (parameter, parameters) {
            (Some(name), _) => name,
            (None, [only]) => &only.name,
            (None, _) => COMMAND_PARAMETER,
        };
        let line = arguments.text(parameters, name);
        line.and_then(|line| read_plain_command(&line)).unwrap_or_default()
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
            Self::Commands { patterns, .. } => {
                let words = self.command_words(parameters, arguments);
                let listed = patterns.iter().zip(1..).find(|(pattern, _)| pattern.matches(&words));
                return match listed {
                    Some((_, number)) => {
                        ApprovalVerdict { action: &ApprovalAction::Allow, rule: Some(number) }
                    }
                    None => ApprovalVerdict { action: &ApprovalAction::Ask, rule: None },
                };
            }
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
        check_parameter: &mut dyn FnMut(Option<&str>) -> Result<(), String>,
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
                doc.report(node, "`match` names no parameter", help);
            }
            for (key, value) in entries {
                let name = key.scalar().unwrap_or_default();
                if let Err(help) = check_parameter(Some(name)) {
                    doc.report(key, format!("unknown parameter `{name}` in `match`"), help);
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
                        doc.report(value, message, help);
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
                    doc.report(node, message, help);
                }
                if word == "allow" { ApprovalAction::Allow } else { ApprovalAction::Ask }
            }
        };
        Some(Self { patterns, action })
    }

    /// Whether every pattern matches the value of its parameter; a value that is absent matches none.
    fn matches(&self, parameters: &[ToolParameter], arguments: &CheckedArguments) -> bool {
        self.patterns.iter().all(|(name, pattern)| {
            arguments.text(parameters, name).is_some_and(|text| pattern.is_match(&text))
        })
    }
}

/// Reads a pattern for command lines; `None` if it was reported.
pub fn read_command_pattern(doc: &YamlDocument, node: &YamlNode) -> Option<CommandPattern> {
    // A value of another kind is reported with its list.
    let text = node.scalar()?;
    let (reason, help) = match CommandPattern::parse(text) {
        Ok(pattern) => return Some(pattern),
        Err(CommandPatternError::NoCommand) => (
            "it does not begin with the name of a command".to_owned(),
            "begin with a program, such as `git status`",
        ),
        Err(CommandPatternError::NotPlain(c @ (';' | '&' | '|' | '\n'))) => (
            format!("a call with {c:?} is more than one command"),
            "list each command by itself; a call with several always asks",
        ),
        Err(CommandPatternError::NotPlain(c)) => (
            format!("{c:?} is more than text to a shell"),
            "write plain words, `*` for any word, or `**` at the end for all that follow; a call with anything else asks",
        ),
        Err(CommandPatternError::WordsAfterAnyWords) => {
            ("words follow `**`".to_owned(), "move `**` to the end, or write `*` for each word")
        }
        Err(CommandPatternError::NotAnOption(option)) => (
            format!("`[{option}]` is not an option"),
            "write an option in brackets, such as `[--stat]`, or `[-n#]` with `#` for a number",
        ),
    };
    doc.report(node, format!("`{text}` matches no call: {reason}"), help);
    None
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
                doc.report(node, message, help);
                return None;
            }
            let mut named = parameters.iter().filter(|parameter| parameter.name == name);
            if !named.any(|parameter| parameter.kind == ParameterType::String) {
                let help = "a path and the text of a file are strings";
                doc.report(node, format!("`{name}` is not a string"), help);
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

    /// What a later call has to repeat to be the call that `p` allows: all arguments, or the ones that `remember` names.
    pub fn remembered_arguments(&self, arguments: &Json) -> Json {
        let Some(names) = &self.remember else { return arguments.clone() };
        let mut remembered = serde_json::Map::new();
        for name in names {
            let sent = arguments.get(name).filter(|value| !value.is_null());
            let parameter = self.parameters.iter().find(|parameter| parameter.name == *name);
            let default = parameter.and_then(|parameter| parameter.default.as_ref());
            remembered.insert(name.clone(), sent.or(default).cloned().unwrap_or_default());
        }
        remembered.into()
    }

    /// The parameters whose values may differ in the calls that `p` allows.
    pub fn open_parameters(&self) -> Vec<String> {
        let Some(remembered) = &self.remember else { return Vec::new() };
        let names = self.parameters.iter().map(|parameter| &parameter.name);
        names.filter(|name| !remembered.contains(name)).cloned().collect()
    }

    /// The SHA-256 of what determines what a call starts with these [`Tool::remembered_arguments`], whatever the others are.
    pub fn remembered_sha256(&self, remembered: &Json, vars: &EngineVars) -> String {
        let fill = |fills_optional: bool| {
            let mut values = Vec::with_capacity(self.parameters.len());
            for ToolParameter { name, required, .. } in &self.parameters {
                let value = match remembered.get(name) {
                    Some(value) => Some(value.clone()).filter(|value| !value.is_null()),
                    None if fills_optional || *required => Some(format!("${{{name}}}").into()),
                    None => None,
                };
                values.push(value.map(ExactJson::from));
            }
            self.command_sha256(&self.fill_command(&values, &remembered.to_string(), vars), vars)
        };
        let commands = [fill(true), fill(false)];
        sha256_hex(json!([commands, remembered, self.open_parameters()]).to_string())
    }
}
