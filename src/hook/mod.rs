//! Hooks: programs of the author that the engine runs at eight moments of a run.
//!
//! Here is which hooks an agent has, and in [`answer`] what each of them says by how it ends and what it prints. Starting
//! them, and putting into effect what they said, is the engine's part.

use crate::state::{ON_ITERATION_END, ON_ITERATION_START};
use crate::text;
use crate::vars;
use crate::yaml::shape::{Default as Otherwise, Key, Shape};
use crate::yaml::{self, Document, Fields, Mapping, Node};
use std::path::Path;

pub mod answer;

/// The file that names them.
pub const FILE_NAME: &str = "hooks.yaml";
/// The key under which they may stand, in that file and, by an old habit, in agent.yaml.
pub const SECTION: &str = "lifecycle_hooks";

/// hooks.yaml.
pub static HOOKS: Mapping = Mapping {
    what: "hooks.yaml",
    about: "Programs that the engine runs at eight moments of a run.",
    keys: &[
        Key::optional(
            "pre_llm_request",
            HOOK_SHAPE,
            "A gate before each LLM call; it may put another request in its place.",
        ),
        Key::optional(
            "post_llm_response",
            HOOK_SHAPE,
            "After each answer of the LLM; it may put another one in its place.",
        ),
        Key::optional(
            "pre_tool_execution",
            HOOK_SHAPE,
            "A gate before each tool; it may deny the call or change its arguments.",
        ),
        Key::optional(
            "post_tool_execution",
            HOOK_SHAPE,
            "After each tool; it may put another observation in its place.",
        ),
        Key::optional("on_error", HOOK_SHAPE, "When something failed."),
        Key::optional("on_run_end", HOOK_SHAPE, "When the process leaves the run, however."),
        Key::optional("on_iteration_start", HOOK_SHAPE, "Before an iteration."),
        Key::optional("on_iteration_end", HOOK_SHAPE, "After the last result of an iteration."),
        Key::optional("pre_llm_req", HOOK_SHAPE, "Deprecated: write `pre_llm_request`."),
        Key::optional("post_llm_resp", HOOK_SHAPE, "Deprecated: write `post_llm_response`."),
        Key::optional("pre_tool_exec", HOOK_SHAPE, "Deprecated: write `pre_tool_execution`."),
        Key::optional("post_tool_exec", HOOK_SHAPE, "Deprecated: write `post_tool_execution`."),
        Key::optional(SECTION, Shape::Mapping(&HOOKS), "The hooks, when they are not at the root."),
    ],
    one_of: &[],
    open: false,
};

const HOOK_SHAPE: Shape = Shape::Mapping(&HOOK);

static HOOK: Mapping = Mapping {
    what: "a hook",
    about: "A program that the engine runs at one moment.",
    keys: &[
        Key::required(
            "command",
            // Its reader has a better word for a text.
            Shape::Either(&[Shape::List(&Shape::Text)]),
            "The program and its arguments; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are filled in.",
        ),
        Key::with_default(
            "timeout_ms",
            Shape::Integer(1..1 << 32),
            Otherwise::Integer(30_000),
            "Milliseconds before it is ended.",
        ),
        Key::optional(
            "on_failure",
            Shape::Choice(&["fail", "ignore"]),
            "What its failure means; `fail` for a gate, which stays shut then, `ignore` for the others by default.",
        ),
        Key::optional(
            "pass_env",
            Shape::List(&Shape::Text),
            "Variables that hold a key and that it is given all the same, by name.",
        ),
    ],
    one_of: &[],
    open: false,
};

/// A moment at which a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// A request is ready to be sent.
    PreLlmRequest,
    /// An answer has come.
    PostLlmResponse,
    /// The program of a call is about to be started.
    PreToolExecution,
    /// It has ended.
    PostToolExecution,
    /// Something failed.
    OnError,
    /// The process leaves the run.
    OnRunEnd,
    /// An iteration begins.
    OnIterationStart,
    /// The last result of an iteration is there.
    OnIterationEnd,
}

impl Hook {
    /// All eight, in the order in which they are documented.
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

    /// Its name, in files and in the journal.
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

    /// The name that it had, where it had another.
    fn old_name(self) -> Option<&'static str> {
        match self {
            Self::PreLlmRequest => Some("pre_llm_req"),
            Self::PostLlmResponse => Some("post_llm_resp"),
            Self::PreToolExecution => Some("pre_tool_exec"),
            Self::PostToolExecution => Some("post_tool_exec"),
            Self::OnError | Self::OnRunEnd | Self::OnIterationStart | Self::OnIterationEnd => None,
        }
    }

    /// Whether nothing goes on without its consent.
    pub fn is_gate(self) -> bool {
        matches!(self, Self::PreLlmRequest | Self::PreToolExecution)
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.name() == name || hook.old_name() == Some(name))
    }
}

/// What the failure of a hook means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// A gate stays shut; with any other hook the run fails.
    Fail,
    /// A warning, and everything goes on.
    Ignore,
}

/// A hook as the author configured it.
#[derive(Debug, Clone, PartialEq)]
pub struct Configured {
    /// The program and its arguments; engine variables are still to be filled in.
    pub command: Vec<String>,
    /// Milliseconds before it is ended.
    pub timeout_ms: u64,
    /// What its failure means.
    pub on_failure: OnFailure,
    /// Key variables that it is given all the same.
    pub pass_env: Vec<String>,
}

/// The hooks of an agent.
#[derive(Debug, Default)]
pub struct Hooks(Vec<(Hook, Configured)>);

impl Hooks {
    /// What runs at that moment.
    pub fn get(&self, hook: Hook) -> Option<&Configured> {
        self.0.iter().find(|(known, _)| *known == hook).map(|(_, configured)| configured)
    }

    /// Their names, in the order in which they are documented.
    pub fn names(&self) -> Vec<&'static str> {
        let given = Hook::ALL.into_iter().filter(|hook| self.get(*hook).is_some());
        given.map(Hook::name).collect()
    }

    /// Reads hooks.yaml; what is wrong goes into the document's report, what is only old into `warnings`.
    pub fn read_file(doc: &Document, warnings: &mut Vec<String>) -> Self {
        let Some((_, section)) = doc.root.entry(SECTION) else {
            return Self::read(doc, &doc.root, FILE_NAME, warnings);
        };
        for (key, _) in doc.root.entries() {
            let name = key.scalar().unwrap_or_default();
            if name != SECTION && !name.starts_with("x-") {
                doc.fault(
                    key,
                    format!("`{name}` stands beside `{SECTION}`"),
                    Some(format!("write all hooks under `{SECTION}`, or all of them at the root")),
                );
            }
        }
        Self::read(doc, section, &format!("`{SECTION}`"), warnings)
    }

    /// Reads the mapping `node` of hooks, which `what` names. Nothing there is no hook.
    pub fn read(doc: &Document, node: &Node, what: &str, warnings: &mut Vec<String>) -> Self {
        let mut hooks = Self::default();
        if node.is_null() || doc.mapping(node, what).is_none() {
            return hooks;
        }
        for (key, value) in node.entries() {
            let name = key.scalar().unwrap_or_default();
            if name.starts_with("x-") {
                continue;
            }
            let Some(hook) = Hook::named(name) else {
                let help = text::did_you_mean(name, Hook::ALL.map(Hook::name));
                doc.fault(key, format!("`{name}` is not a hook"), Some(help));
                continue;
            };
            let (old, new) = (hook.old_name() == Some(name), hook.name());
            if old {
                warnings.push(format!(
                    "[DEPRECATION WARNING] the hook `{name}` is called `{new}` now; rename it in {}",
                    doc.name
                ));
            }
            if old && node.get(new).is_some() {
                let message = format!("`{name}` is the old name of `{new}`, which stands here too");
                doc.fault(key, message, Some(format!("keep `{new}`")));
            }
            let configured = Configured::read(doc, value, hook);
            hooks.0.extend(configured.map(|configured| (hook, configured)));
        }
        hooks
    }
}

impl Configured {
    fn read(doc: &Document, node: &Node, hook: Hook) -> Option<Self> {
        let what = format!("the hook `{}`", hook.name());
        if node.scalar().is_some() || node.is_null() || !node.items().is_empty() {
            let help = format!("write `{}: {{command: [PROGRAM, ARG]}}`", hook.name());
            doc.fault(node, format!("{what} must be a mapping, not {}", node.kind()), Some(help));
            return None;
        }
        let fields = doc.fields_of(&what, node, &HOOK)?;
        let command = fields.require("command", "[PROGRAM, ARG]");
        let command = command.and_then(|node| read_command(doc, node));
        Some(Self {
            command: command?,
            timeout_ms: fields.integer("timeout_ms")?,
            on_failure: read_on_failure(doc, fields, hook)?,
            pass_env: fields.texts("pass_env"),
        })
    }
}

fn read_on_failure(doc: &Document, fields: Fields<'_>, hook: Hook) -> Option<OnFailure> {
    match (fields.get("on_failure"), fields.text("on_failure")) {
        (None, _) if hook.is_gate() => Some(OnFailure::Fail),
        (None, _) => Some(OnFailure::Ignore),
        (Some(_), Some("fail")) => Some(OnFailure::Fail),
        (Some(_), Some("ignore")) => Some(OnFailure::Ignore),
        // A key with nothing behind it is half a thought, and a gate is no place for those.
        (Some(node), _) => {
            doc.fault(node, "`on_failure` must be `fail` or `ignore`", None);
            None
        }
    }
}

fn read_command(doc: &Document, node: &Node) -> Option<Vec<String>> {
    if let Some(text) = node.scalar() {
        let help = format!("write `command: {}`", as_list(text));
        doc.fault(node, "`command` must be a list of words, not one text", Some(help));
        return None;
    }
    let command = doc.texts(node, "`command`")?;
    if command.first().is_none_or(String::is_empty) {
        let help = "write `[PROGRAM, ARG, ...]`".to_owned();
        doc.fault(node, "`command` names no program", Some(help));
        return None;
    }
    for (at, name) in vars::unknown_in_command(&command) {
        let known = vars::instead_of(name, "a hook's command");
        let help =
            format!("{known}; everything else is in its environment and on its standard input");
        doc.fault(
            &node.items()[at],
            format!("`${{{name}}}` is no variable of the engine"),
            Some(help),
        );
    }
    Some(command)
}

/// The list to write for a command that was written as one text.
fn as_list(text: &str) -> String {
    let needs_shell = text.contains(|c: char| "|&;<>()$`\"'*?\\\n".contains(c));
    let words: Vec<String> = match needs_shell {
        true => ["sh", "-c", text].map(yaml::quoted).to_vec(),
        false => text.split_whitespace().map(yaml::quoted).collect(),
    };
    format!("[{}]", words.join(", "))
}

/// Whether there is a hooks.yaml in `home`. A link to nothing counts, and so does what cannot be looked at: a gate must
/// not be open because its configuration cannot be read.
pub fn has_file(home: &Path) -> bool {
    !matches!(home.join(FILE_NAME).symlink_metadata(), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}
