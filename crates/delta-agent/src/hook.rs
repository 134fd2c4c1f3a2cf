//! Hooks: programs of the agent's author that the engine runs at eight points of a run.
//!
//! Which hooks an agent has is read here; [`answer`] interprets how a hook ends and what it prints.
//! The engine starts hooks and applies their answers.

use delta_base::engine_variables::{find_unknown_variables, unknown_variable_help};
use delta_base::suggest;
use delta_run::state::{ON_ITERATION_END, ON_ITERATION_START};
use delta_sandbox::{DeclaredProfile, SANDBOX_SHAPE, SandboxSetting};
use delta_yaml::diagnostic::Diagnostic;
use delta_yaml::yaml::mapping_schema::{DefaultValue as Otherwise, KeySchema, ValueShape};
use delta_yaml::yaml::{self, MappingFields, MappingSchema, YamlDocument, YamlNode};
use std::path::Path;

pub mod answer;

/// The file that configures the hooks.
pub const HOOKS_FILE: &str = "hooks.yaml";
/// The optional key around the hooks in hooks.yaml; deprecated in agent.yaml.
pub const HOOKS_SECTION: &str = "lifecycle_hooks";

/// The keys of hooks.yaml.
pub static HOOKS_MAPPING: MappingSchema = MappingSchema::new(
    "hooks.yaml",
    "Programs that the engine runs at eight points of a run.",
    &FILE_KEYS,
);

const FILE_KEYS: [KeySchema; 13] = {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = HOOK_KEYS;
    let section = KeySchema::optional(
        HOOKS_SECTION,
        ValueShape::Mapping(&HOOKS_SECTION_MAPPING),
        "The hooks, if they are not at the root.",
    );
    [a, b, c, d, e, f, g, h, i, j, k, l, section]
};

/// The keys of the section with the hooks.
pub static HOOKS_SECTION_MAPPING: MappingSchema = MappingSchema::new(
    "`lifecycle_hooks`",
    "Programs that the engine runs at eight points of a run.",
    &HOOK_KEYS,
);

const HOOK_KEYS: [KeySchema; 12] = [
    KeySchema::optional(
        "pre_llm_request",
        HOOK_SHAPE,
        "A gate before each LLM call; it may replace the request.",
    ),
    KeySchema::optional(
        "post_llm_response",
        HOOK_SHAPE,
        "After each LLM response; it may replace the response.",
    ),
    KeySchema::optional(
        "pre_tool_execution",
        HOOK_SHAPE,
        "A gate before each tool call; it may deny the call or change its arguments.",
    ),
    KeySchema::optional(
        "post_tool_execution",
        HOOK_SHAPE,
        "After each tool call; it may replace the observation.",
    ),
    KeySchema::optional("on_error", HOOK_SHAPE, "After an error."),
    KeySchema::optional("on_run_end", HOOK_SHAPE, "When the process exits, for any reason."),
    KeySchema::optional("on_iteration_start", HOOK_SHAPE, "Before an iteration."),
    KeySchema::optional("on_iteration_end", HOOK_SHAPE, "After the last result of an iteration."),
    KeySchema::optional("pre_llm_req", HOOK_SHAPE, "Deprecated: write `pre_llm_request`."),
    KeySchema::optional("post_llm_resp", HOOK_SHAPE, "Deprecated: write `post_llm_response`."),
    KeySchema::optional("pre_tool_exec", HOOK_SHAPE, "Deprecated: write `pre_tool_execution`."),
    KeySchema::optional("post_tool_exec", HOOK_SHAPE, "Deprecated: write `post_tool_execution`."),
];

const HOOK_SHAPE: ValueShape = ValueShape::Mapping(&HOOK_MAPPING);

static HOOK_MAPPING: MappingSchema = MappingSchema::new(
    "a hook",
    "A program that the engine runs at one point of a run.",
    &[
        KeySchema::required(
            "command",
            // A single text gets a better message from `read_hook_command`.
            ValueShape::OneOf(&[ValueShape::List(&ValueShape::Text)]),
            "The program and its arguments; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are replaced.",
        ),
        KeySchema::with_default(
            "timeout_ms",
            ValueShape::Milliseconds(1..1 << 32),
            Otherwise::Integer(30_000),
            "The timeout in milliseconds.",
        ),
        KeySchema::optional(
            "on_failure",
            ValueShape::Choice(&["fail", "ignore"]),
            "What happens when it fails. Default: `fail` for a gate, which then denies, and `ignore` for other hooks.",
        )
        .with_help(failure_help),
        KeySchema::optional(
            "pass_env",
            ValueShape::List(&ValueShape::Text),
            "The names of key variables that it receives nevertheless.",
        ),
        KeySchema::optional(
            "sandbox",
            SANDBOX_SHAPE,
            "What its processes may do, as in a tool. Default: everything.",
        ),
        KeySchema::misplaced("exec", HOOK_COMMAND),
        KeySchema::misplaced("shell", "write `command: [sh, -c, SCRIPT]`"),
        KeySchema::misplaced("match", EVERY_CALL),
        KeySchema::misplaced("matcher", EVERY_CALL),
        KeySchema::misplaced("tool", EVERY_CALL),
        KeySchema::misplaced("tools", EVERY_CALL),
        KeySchema::misplaced(
            "do",
            "the command decides: it prints `{\"decision\": \"deny\", \"reason\": \"...\"}`, or nothing",
        ),
    ],
);

const HOOK_COMMAND: &str = "write `command: [PROGRAM, ARG]`";
const EVERY_CALL: &str =
    "a hook runs for every call; its command finds the name of the tool in TOOL_NAME";

/// What a gate does with a call, in place of what its failure means.
fn failure_help(node: &YamlNode) -> Option<String> {
    let word = match node.scalar()? {
        "deny" | "block" | "stop" | "abort" | "error" => "fail",
        "warn" | "continue" | "skip" | "allow" => "ignore",
        _ => return None,
    };
    Some(format!("write `{word}`"))
}

/// The names of hooks in other programs.
const HOOK_ALIASES: [(&str, HookPoint); 8] = [
    ("PreToolUse", HookPoint::PreToolExecution),
    ("PostToolUse", HookPoint::PostToolExecution),
    ("pre_tool_use", HookPoint::PreToolExecution),
    ("post_tool_use", HookPoint::PostToolExecution),
    ("Stop", HookPoint::OnRunEnd),
    ("SessionEnd", HookPoint::OnRunEnd),
    ("on_end", HookPoint::OnRunEnd),
    ("on_finish", HookPoint::OnRunEnd),
];

/// What to write in place of a key that is not a hook.
fn unknown_hook_help(name: &str) -> String {
    if let Some((_, hook)) = HOOK_ALIASES.iter().find(|(alias, _)| *alias == name) {
        return format!("the hook is `{}`", hook.name());
    }
    if name == "hooks" {
        return format!("write the hooks at the root of the file, or under `{HOOKS_SECTION}`");
    }
    suggest::did_you_mean(name, HookPoint::ALL.map(HookPoint::name))
}

/// A point of a run at which a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    /// A request is about to be sent.
    PreLlmRequest,
    /// A response has arrived.
    PostLlmResponse,
    /// The program of a call is about to start.
    PreToolExecution,
    /// The program of a call has ended.
    PostToolExecution,
    /// An error occurred.
    OnError,
    /// The process exits.
    OnRunEnd,
    /// An iteration begins.
    OnIterationStart,
    /// The last result of an iteration is recorded.
    OnIterationEnd,
}

impl HookPoint {
    /// All eight, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::PreLlmRequest,
        Self::PostLlmResponse,
        Self::PreToolExecution,
        Self::PostToolExecution,
        Self::OnError,
        Self::OnRunEnd,
        Self::OnIterationStart,
        Self::OnIterationEnd,
    ];

    /// The name in hooks.yaml and in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreLlmRequest => "pre_llm_request",
            Self::PostLlmResponse => "post_llm_response",
            Self::PreToolExecution => "pre_tool_execution",
            Self::PostToolExecution => "post_tool_execution",
            Self::OnError => "on_error",
            Self::OnRunEnd => "on_run_end",
            Self::OnIterationStart => ON_ITERATION_START,
            Self::OnIterationEnd => ON_ITERATION_END,
        }
    }

    /// The deprecated name, if it has one.
    fn old_name(self) -> Option<&'static str> {
        match self {
            Self::PreLlmRequest => Some("pre_llm_req"),
            Self::PostLlmResponse => Some("post_llm_resp"),
            Self::PreToolExecution => Some("pre_tool_exec"),
            Self::PostToolExecution => Some("post_tool_exec"),
            Self::OnError | Self::OnRunEnd | Self::OnIterationStart | Self::OnIterationEnd => None,
        }
    }

    /// Whether the run continues only with the hook's consent.
    pub fn is_gate(self) -> bool {
        matches!(self, Self::PreLlmRequest | Self::PreToolExecution)
    }

    /// The hook with this deprecated name.
    pub fn from_old_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.old_name() == Some(name))
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.name() == name || hook.old_name() == Some(name))
    }
}

/// What happens when a hook fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookFailurePolicy {
    /// A gate denies; with any other hook the run fails.
    Fail,
    /// The engine prints a warning, and the run continues.
    Ignore,
}

/// A hook as configured in hooks.yaml.
#[derive(Debug, Clone, PartialEq)]
pub struct HookConfig {
    /// The program and its arguments; engine variables are not yet replaced.
    pub command: Vec<String>,
    /// The timeout in milliseconds.
    pub timeout_ms: u64,
    /// What happens when it fails.
    pub on_failure: HookFailurePolicy,
    /// The key variables that it receives nevertheless.
    pub pass_env: Vec<String>,
    /// `sandbox`, as written.
    pub sandbox: Option<SandboxSetting>,
    /// What its processes may do; `None` for everything. Loading an agent sets it.
    pub profile: Option<DeclaredProfile>,
}

/// The hooks of an agent.
#[derive(Debug, Default)]
pub struct AgentHooks(Vec<(HookPoint, HookConfig)>);

impl AgentHooks {
    /// The hook that runs at `hook`.
    pub fn get(&self, hook: HookPoint) -> Option<&HookConfig> {
        self.0.iter().find(|(point, _)| *point == hook).map(|(_, config)| config)
    }

    /// All configured hooks.
    pub(crate) fn configs_mut(&mut self) -> impl Iterator<Item = &mut HookConfig> {
        self.0.iter_mut().map(|(_, config)| config)
    }

    /// All configured hooks, in the order of the file.
    pub fn all(&self) -> impl Iterator<Item = (HookPoint, &HookConfig)> {
        self.0.iter().map(|(point, config)| (*point, config))
    }

    /// The names of the configured hooks, in the order of the documentation.
    pub fn names(&self) -> Vec<&'static str> {
        let configured = HookPoint::ALL.into_iter().filter(|hook| self.get(*hook).is_some());
        configured.map(HookPoint::name).collect()
    }

    /// Reads hooks.yaml. Problems are added to the report of `doc`, old names to `outdated`.
    pub fn read_file(doc: &YamlDocument, outdated: &mut Vec<Diagnostic>) -> Self {
        let section = doc.root.entry(HOOKS_SECTION).map(|(_, section)| section);
        if [Some(&doc.root), section].into_iter().flatten().any(is_empty_mapping) {
            let help = "write the hooks, such as `pre_tool_execution: {command: [PROGRAM]}`, or remove the file";
            doc.report(
                section.unwrap_or(&doc.root),
                format!("{HOOKS_FILE} has no hooks: the run would have no gates"),
                help,
            );
            return Self::default();
        }
        let Some(section) = section else {
            return Self::read(doc, &doc.root, HOOKS_FILE, outdated);
        };
        for (key, _) in doc.root.entries() {
            let name = key.scalar().unwrap_or_default();
            if name != HOOKS_SECTION && !name.starts_with("x-") {
                doc.report(
                    key,
                    format!("`{name}` is outside `{HOOKS_SECTION}`"),
                    format!("write all hooks under `{HOOKS_SECTION}`, or all of them at the root"),
                );
            }
        }
        Self::read(doc, section, &format!("`{HOOKS_SECTION}`"), outdated)
    }

    /// Reads the mapping of hooks in `node`, which messages call `label`. A null node means no
    /// hooks.
    pub fn read(
        doc: &YamlDocument,
        node: &YamlNode,
        label: &str,
        outdated: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut hooks = Self::default();
        if node.is_null() || doc.expect_mapping(node, label).is_none() {
            return hooks;
        }
        for (key, value) in node.entries() {
            let name = key.scalar().unwrap_or_default();
            if name.starts_with("x-") {
                continue;
            }
            let Some(hook) = HookPoint::from_name(name) else {
                doc.report(key, format!("`{name}` is not a hook"), unknown_hook_help(name));
                continue;
            };
            if hook.old_name() == Some(name) {
                let new = hook.name();
                let message = format!(
                    "[DEPRECATION WARNING] the hook `{name}` is now called `{new}`; rename it in {}",
                    doc.name
                );
                outdated.push(doc.diagnostic_at(key, message, None));
                if node.get(new).is_some() {
                    let message =
                        format!("`{name}` is the old name of `{new}`, which is configured as well");
                    doc.report(key, message, format!("keep `{new}`"));
                }
            }
            hooks.0.extend(HookConfig::read(doc, value, hook).map(|config| (hook, config)));
        }
        hooks
    }
}

/// Whether the node has no hooks: nothing, or only notes.
fn is_empty_mapping(node: &YamlNode) -> bool {
    let mut names = node.entries().iter().map(|(key, _)| key.scalar().unwrap_or_default());
    node.is_null()
        || node.scalar().is_none()
            && node.items().is_empty()
            && names.all(|name| name.starts_with("x-"))
}

impl HookConfig {
    fn read(doc: &YamlDocument, node: &YamlNode, hook: HookPoint) -> Option<Self> {
        let label = format!("the hook `{}`", hook.name());
        if node.scalar().is_some() || node.is_null() || !node.items().is_empty() {
            let help = format!("write `{}: {{command: [PROGRAM, ARG]}}`", hook.name());
            doc.report(node, format!("{label} must be a mapping, not {}", node.kind()), help);
            return None;
        }
        let fields = doc.fields_labelled(&label, node, &HOOK_MAPPING)?;
        // The schema reports `exec` and `shell`, with what to write.
        let names_other_key = node.get("exec").or(node.get("shell")).is_some();
        let command = match fields.non_null("command") {
            None if names_other_key => None,
            _ => fields.require("command", "[PROGRAM, ARG]"),
        };
        let command = command.and_then(|node| read_hook_command(doc, node));
        Some(Self {
            command: command?,
            timeout_ms: fields.integer("timeout_ms")?,
            on_failure: read_on_failure(doc, fields, hook)?,
            pass_env: fields.texts("pass_env"),
            sandbox: fields.non_null("sandbox").and_then(|node| SandboxSetting::read(doc, node)),
            profile: None,
        })
    }
}

fn read_on_failure(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    hook: HookPoint,
) -> Option<HookFailurePolicy> {
    match (fields.get("on_failure"), fields.text("on_failure")) {
        (None, _) if hook.is_gate() => Some(HookFailurePolicy::Fail),
        (None, _) => Some(HookFailurePolicy::Ignore),
        (Some(_), Some("fail")) => Some(HookFailurePolicy::Fail),
        (Some(_), Some("ignore")) => Some(HookFailurePolicy::Ignore),
        // A key without a value is an unfinished edit, and a gate must not guess.
        (Some(node), _) => {
            doc.report(node, "`on_failure` must be `fail` or `ignore`", failure_help(node));
            None
        }
    }
}

fn read_hook_command(doc: &YamlDocument, node: &YamlNode) -> Option<Vec<String>> {
    if let Some(text) = node.scalar() {
        let help = format!("write `command: {}`", suggest_command_list(text));
        doc.report(node, "`command` must be a list, not a string", help);
        return None;
    }
    let command = doc.expect_texts(node, "`command`")?;
    if command.first().is_none_or(String::is_empty) {
        doc.report(node, "`command` names no program", "write `[PROGRAM, ARG, ...]`");
        return None;
    }
    for (at, name) in find_unknown_variables(&command) {
        let known = unknown_variable_help(name, "a hook's command");
        let help =
            format!("{known}; everything else is in its environment and on its standard input");
        doc.report(&node.items()[at], format!("`${{{name}}}` is not an engine variable"), help);
    }
    Some(command)
}

/// The list to write instead of a command that is a single text.
fn suggest_command_list(text: &str) -> String {
    let needs_shell = text.contains(|c: char| "|&;<>()$`\"'*?\\\n".contains(c));
    let words: Vec<String> = if needs_shell {
        ["sh", "-c", text].map(yaml::quote_yaml).to_vec()
    } else {
        text.split_whitespace().map(yaml::quote_yaml).collect()
    };
    format!("[{}]", words.join(", "))
}

/// Whether `home` contains hooks.yaml. A dangling symlink counts, and so does a file that cannot be
/// examined: a gate must not be open because its configuration cannot be read.
pub fn has_hooks_file(home: &Path) -> bool {
    !matches!(home.join(HOOKS_FILE).symlink_metadata(), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}
