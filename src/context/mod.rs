//! context.yaml, and the messages that it makes of files, generators and the conversation (the specification's
//! ContextBuilder).
//!
//! What the LLM sees is a function of the journal, the configuration and the files that context.yaml names.

use crate::vars::{self, Vars};
use crate::yaml::shape::{Default, Key, Shape};
use crate::yaml::{Document, Fields, Mapping, Node, Value};
use cache::Cache;
use condition::Condition;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod budget;
mod build;
mod cache;
mod condition;
mod generator;
mod rebuild;

pub use budget::Counter;
pub use build::{Context, Surroundings};
pub use rebuild::{Given, Prompt, Rebuilt};

/// The content that the message for a missing context.yaml shows.
pub const DEFAULT_MANIFEST: &str = "\
sources:
  - type: file
    id: system_prompt
    path: '${AGENT_HOME}/system_prompt.md'
  - type: file
    id: workspace_guide
    path: '${CWD}/DELTA.md'
    on_missing: skip
  - type: journal
    id: conversation_history
";

/// The file that says what the agent is.
pub const SYSTEM_PROMPT: &str = "system_prompt.md";

/// The environment variable by which what a generator leaves behind is found when its time is up.
pub const MARK: (&str, &str) = ("DELTA_GENERATOR", "1");

/// The clock that stamps files may lag behind by this much.
const FILE_CLOCK: Duration = Duration::from_millis(20);

/// context.yaml.
pub static CONTEXT: Mapping = Mapping {
    what: "context.yaml",
    about: "What the LLM sees, in order.",
    keys: &[
        Key::required(
            "sources",
            Shape::List(&Shape::Kinds { by: "type", kinds: &KINDS }),
            "Where it comes from.",
        ),
        Key::optional(
            "total_max_tokens",
            TOKENS,
            "Tokens of all messages together, at most; the journal takes what the others leave.",
        ),
        Key::optional(
            "tokenizer",
            Shape::Mapping(&GENERATOR),
            "A command that counts tokens: a text on stdin, a number on stdout. An estimate by default.",
        ),
    ],
    one_of: &[],
    open: false,
};

static KINDS: [(&str, &Mapping); 4] = [
    ("file", &FILE),
    ("computed_file", &COMPUTED_FILE),
    ("pipeline", &PIPELINE),
    ("journal", &JOURNAL),
];

const TOKENS: Shape = Shape::Integer(1..1 << 40);
const MILLIS: Shape = Shape::Integer(1..1 << 32);
const TYPE: Key = Key::required("type", Shape::Text, "What kind of source it is.");
const ID: Key = Key::optional("id", Shape::Text, "Its name, in the heading that the LLM sees.");
const SKIP: &str = "skip";
const ON_MISSING: Key = Key::with_default(
    "on_missing",
    Shape::Choice(&[SKIP, "error"]),
    Default::Text("error"),
    "What happens when the file is not there.",
);
const MAX_TOKENS: Key = Key::optional(
    "max_tokens",
    TOKENS,
    "Tokens of this source, at most; what is beyond is left out, and the LLM is told.",
);
const CONDITION: Key = Key::optional(
    "condition",
    Shape::Kinds { by: "when", kinds: &condition::KINDS },
    "When the source is there at all.",
);
const CACHE: Key = Key::optional(
    "cache",
    Shape::Kinds { by: "strategy", kinds: &cache::KINDS },
    "How long what was made before will do.",
);

static FILE: Mapping = Mapping {
    what: "a `file` source",
    about: "A file, as one system message.",
    keys: &[
        TYPE,
        ID,
        Key::required(
            "path",
            Shape::Text,
            "The file; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are filled in.",
        ),
        ON_MISSING,
        MAX_TOKENS,
        CONDITION,
    ],
    one_of: &[],
    open: false,
};

static COMPUTED_FILE: Mapping = Mapping {
    what: "a `computed_file` source",
    about: "A file that a command writes before each request, as one system message.",
    keys: &[
        TYPE,
        ID,
        Key::required("generator", Shape::Mapping(&GENERATOR), "The command that writes it."),
        Key::required(
            "output_path",
            Shape::Text,
            "The file, best under `${RUN_DIR}`, where no other run writes.",
        ),
        ON_MISSING,
        MAX_TOKENS,
        CONDITION,
        CACHE,
    ],
    one_of: &[],
    open: false,
};

static PIPELINE: Mapping = Mapping {
    what: "a `pipeline` source",
    about: "Commands that run one after the other; the file that the last one writes, as one system message.",
    keys: &[
        TYPE,
        ID,
        Key::required("stages", Shape::List(&Shape::Mapping(&STAGE)), "The commands, in order."),
        ON_MISSING,
        MAX_TOKENS,
        CONDITION,
        CACHE,
    ],
    one_of: &[],
    open: false,
};

static STAGE: Mapping = Mapping {
    what: "a stage",
    about: "A command of a pipeline, and the file that it writes.",
    keys: &[
        Key::optional("id", Shape::Text, "Its name, for messages."),
        Key::required("generator", Shape::List(&Shape::Text), "The program and its arguments."),
        Key::required("output", Shape::Text, "The file, best under `${RUN_DIR}`."),
        TIMEOUT,
        PASS_ENV,
    ],
    one_of: &[],
    open: false,
};

static JOURNAL: Mapping = Mapping {
    what: "a `journal` source",
    about: "The conversation, in the LLM's own form.",
    keys: &[
        TYPE,
        ID,
        Key::optional(
            "max_iterations",
            Shape::Integer(1..1 << 32),
            "Only the last so many iterations, and always the task.",
        ),
        MAX_TOKENS,
        CONDITION,
    ],
    one_of: &[],
    open: false,
};

const TIMEOUT: Key = Key::with_default(
    "timeout_ms",
    MILLIS,
    Default::Integer(30_000),
    "Milliseconds before it is ended.",
);
const PASS_ENV: Key = Key::optional(
    "pass_env",
    Shape::List(&Shape::Text),
    "Variables that hold a key and that it is given all the same, by name.",
);

static GENERATOR: Mapping = Mapping {
    what: "a generator",
    about: "A command that writes a file for the context, or counts tokens.",
    keys: &[
        Key::required("command", Shape::List(&Shape::Text), "The program and its arguments."),
        TIMEOUT,
        PASS_ENV,
    ],
    one_of: &[],
    open: false,
};

/// A loaded context.yaml.
#[derive(Debug, Clone)]
pub struct Manifest {
    sources: Vec<Source>,
    /// Tokens of all messages together.
    total_max_tokens: Option<u64>,
    tokenizer: Option<Generator>,
}

#[derive(Debug, Clone)]
struct Source {
    id: Option<String>,
    kind: Kind,
    max_tokens: Option<u64>,
    condition: Option<Condition>,
}

#[derive(Debug, Clone)]
enum Kind {
    File {
        path: String,
        skip_missing: bool,
    },
    /// What the last stage writes.
    Computed {
        stages: Vec<Stage>,
        is_pipeline: bool,
        skip_missing: bool,
        cache: Option<Cache>,
    },
    Journal {
        max_iterations: Option<usize>,
    },
}

/// A command, and the file that it writes.
#[derive(Debug, Clone)]
struct Stage {
    /// For messages.
    id: Option<String>,
    generator: Generator,
    output: String,
}

/// A command that writes a file for the context, or counts tokens.
#[derive(Debug, Clone)]
pub struct Generator {
    /// The program and its arguments; engine variables are still to be filled in.
    pub command: Vec<String>,
    /// Milliseconds before it is ended.
    pub timeout_ms: u64,
    /// Key variables that it is given all the same.
    pub pass_env: Vec<String>,
}

/// Why there is no context.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The stop was asked for while a command ran.
    #[error("interrupted")]
    Cancelled,
    /// A source gives nothing.
    #[error("context source `{source_id}`: {reason}")]
    Source {
        /// Its id, or the name of its file.
        source_id: String,
        /// Why.
        reason: String,
    },
    /// What must be sent does not fit, or cannot be counted.
    #[error("context: {0}")]
    Budget(String),
}

impl Manifest {
    /// Whether making the messages may start programs.
    pub fn starts_programs(&self) -> bool {
        let computed = |source: &Source| matches!(source.kind, Kind::Computed { .. });
        self.tokenizer.is_some() || self.sources.iter().any(computed)
    }

    /// Reads context.yaml; what is wrong goes into the document's report.
    pub fn read(doc: &Document) -> Option<Self> {
        let fields = doc.fields(&doc.root, &CONTEXT)?;
        let node = fields.require("sources", "[{type: journal}]")?;
        let items = doc.list(node, "`sources`")?;
        if items.is_empty() {
            doc.fault(node, "`sources` is empty, so the LLM would see nothing", None);
        }
        let tokenizer = fields.given("tokenizer").and_then(|node| Generator::read(doc, node));
        let total_max_tokens = fields.integer("total_max_tokens");
        let sources = items.iter().filter_map(|item| Source::read(doc, item)).collect();
        Some(Self { sources, total_max_tokens, tokenizer })
    }
}

impl Source {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let (name, mapping) = doc.kind(node, "a source", "type", &KINDS)?;
        let fields = doc.fields(node, mapping)?;
        let condition = match name {
            _ if fields.node.get("condition").is_none_or(Node::is_null) => None,
            _ => Some(Condition::read(doc, fields.given("condition")?)),
        };
        let kind = match name {
            "file" => Kind::File {
                path: path(doc, fields, "path", "'${CWD}/DELTA.md'")?,
                skip_missing: skips(fields),
            },
            "computed_file" => {
                let output = path(doc, fields, "output_path", "'${RUN_DIR}/summary.md'");
                let generator = fields.require("generator", "{command: [PROGRAM]}");
                let generator = generator.and_then(|node| Generator::read(doc, node));
                let (cache, stage) = (read_cache(doc, fields), (generator?, output?));
                let stages = vec![Stage { id: None, generator: stage.0, output: stage.1 }];
                let skip_missing = skips(fields);
                Kind::Computed { stages, is_pipeline: false, skip_missing, cache: cache? }
            }
            "pipeline" => {
                let example = "[{generator: [PROGRAM], output: '${RUN_DIR}/result.md'}]";
                let node = fields.require("stages", example)?;
                let items = doc.list(node, "`stages`")?;
                let stages = items.iter().filter_map(|item| Stage::read(doc, item)).collect();
                if items.is_empty() {
                    let help = format!("write `stages: {example}`");
                    doc.fault(node, "`stages` is empty", Some(help));
                }
                let (cache, skip_missing) = (read_cache(doc, fields)?, skips(fields));
                Kind::Computed { stages, is_pipeline: true, skip_missing, cache }
            }
            _ => {
                let limit = fields.integer("max_iterations");
                let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
                Kind::Journal { max_iterations: limit }
            }
        };
        Some(Self {
            id: fields.text("id").map(str::to_owned),
            kind,
            max_tokens: fields.integer("max_tokens"),
            condition: match condition {
                None => None,
                Some(condition) => Some(condition?),
            },
        })
    }

    /// What kind it is, as context.yaml has it.
    fn type_name(&self) -> &'static str {
        match &self.kind {
            Kind::File { .. } => "file",
            Kind::Computed { is_pipeline: false, .. } => "computed_file",
            Kind::Computed { is_pipeline: true, .. } => "pipeline",
            Kind::Journal { .. } => "journal",
        }
    }

    /// How messages and headings call it: its id, or the name of its file.
    /// The file that it is, or that its last command writes.
    fn place(&self, vars: &Vars) -> Option<PathBuf> {
        match &self.kind {
            Kind::Journal { .. } => None,
            Kind::File { path, .. } => Some(resolve(path, vars)),
            Kind::Computed { stages, .. } => {
                Some(resolve(stages.last().map_or("", |stage| &stage.output), vars))
            }
        }
    }

    fn name(&self, vars: &Vars) -> String {
        self.name_at(self.place(vars).as_deref())
    }

    /// What it is called whose place is known.
    fn name_at(&self, place: Option<&Path>) -> String {
        match (&self.id, place) {
            (Some(id), _) => id.clone(),
            (None, None) => "journal".to_owned(),
            (None, Some(path)) => {
                path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
            }
        }
    }
}

/// A path that must be there; engine variables are still to be filled in.
fn path(doc: &Document, fields: Fields<'_>, key: &str, example: &str) -> Option<String> {
    let node = fields.require(key, example)?;
    let text = fields.text(key)?;
    check_variables(doc, node, text);
    Some(text.to_owned())
}

/// A name in a path that is nearly the engine's would make a path that is not there, or worse, one that is.
fn check_variables(doc: &Document, node: &Node, text: &str) {
    if let Some(name) = vars::unknown(text) {
        unknown_variable(doc, node, name);
    }
}

fn unknown_variable(doc: &Document, node: &Node, name: &str) {
    let help = vars::instead_of(name, "paths and commands of context.yaml");
    doc.fault(node, format!("`${{{name}}}` is no variable of the engine"), Some(help));
}

fn skips(fields: Fields<'_>) -> bool {
    fields.text("on_missing") == Some(SKIP)
}

/// The outer `None` when it is wrong, the inner when there is none.
fn read_cache(doc: &Document, fields: Fields<'_>) -> Option<Option<Cache>> {
    match fields.given("cache") {
        None => Some(None),
        Some(node) => Cache::read(doc, node).map(Some),
    }
}

impl Stage {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &STAGE)?;
        let output = path(doc, fields, "output", "'${RUN_DIR}/result.md'");
        let command_node = fields.require("generator", "[PROGRAM, ARG]")?;
        let generator = Generator::of(doc, fields, command_node, "generator")?;
        Some(Self { id: fields.text("id").map(str::to_owned), generator, output: output? })
    }
}

impl Generator {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &GENERATOR)?;
        let command_node = fields.require("command", "[PROGRAM, ARG]")?;
        Self::of(doc, fields, command_node, "command")
    }

    fn of(doc: &Document, fields: Fields<'_>, node: &Node, key: &str) -> Option<Self> {
        let command = fields.texts(key);
        if command.first().is_none_or(String::is_empty) {
            // What is no list of texts, the shape has refused.
            let is_list = matches!(node.value, Value::Sequence(_));
            if is_list && node.items().first().is_none_or(|first| first.scalar() == Some("")) {
                let help = "write `[PROGRAM, ARG, ...]`".to_owned();
                doc.fault(node, format!("`{key}` names no program"), Some(help));
            }
            return None;
        }
        for (at, name) in vars::unknown_in_command(&command) {
            unknown_variable(doc, &node.items()[at], name);
        }
        let timeout_ms = fields.integer("timeout_ms")?;
        Some(Self { command, timeout_ms, pass_env: fields.texts("pass_env") })
    }
}

/// A path of context.yaml: variables filled in, relative to the agent directory.
fn resolve(path: &str, vars: &Vars) -> PathBuf {
    let path = vars.agent_home.join(vars.fill(path));
    let prompt = path.parent() == Some(&vars.agent_home) && path.ends_with(SYSTEM_PROMPT);
    if prompt { or_text_form(path) } else { path }
}

/// system_prompt.txt where system_prompt.md is absent.
pub fn or_text_form(path: PathBuf) -> PathBuf {
    if !path.ends_with(SYSTEM_PROMPT) || path.exists() {
        return path;
    }
    let text_form = path.with_extension("txt");
    if text_form.exists() { text_form } else { path }
}
