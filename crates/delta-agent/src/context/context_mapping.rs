//! The keys of context.yaml, and what to write in place of what authors write by mistake.

use super::{JOURNAL_TYPE, agents_md, generator_cache, source_condition};
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlNode};

/// The keys of context.yaml.
pub static CONTEXT_MAPPING: MappingSchema = MappingSchema::new(
    "context.yaml",
    "The sources of what the LLM sees, in order.",
    &[
        KeySchema::required(
            "sources",
            ValueShape::List(&ValueShape::Tagged { by: "type", kinds: &SOURCE_KINDS }),
            "The sources of the messages, in order.",
        )
        .with_help(sources_help),
        KeySchema::optional(
            "total_max_tokens",
            TOKEN_COUNT,
            "The maximum number of tokens of all messages; the journal gets what the other sources leave.",
        ),
        KeySchema::optional(
            "tokenizer",
            ValueShape::Mapping(&GENERATOR_MAPPING),
            "A command that counts tokens: a text on stdin, a number on stdout. Default: an estimate.",
        ),
    ],
);

pub(super) static SOURCE_KINDS: [(&str, &MappingSchema); 5] = [
    ("file", &FILE_MAPPING),
    (agents_md::AGENTS_MD_TYPE, &agents_md::AGENTS_MD_MAPPING),
    ("computed_file", &COMPUTED_FILE_MAPPING),
    ("pipeline", &PIPELINE_MAPPING),
    (JOURNAL_TYPE, &JOURNAL_MAPPING),
];

const TOKEN_COUNT: ValueShape = ValueShape::TokenCount(1..1 << 40);
const MILLISECONDS: ValueShape = ValueShape::Milliseconds(1..1 << 32);
pub(super) const TYPE_KEY: KeySchema =
    KeySchema::required("type", ValueShape::Text, "The kind of source.");
pub(super) const ID_KEY: KeySchema =
    KeySchema::optional("id", ValueShape::Text, "The name in the heading that the LLM sees.");
pub(super) const HEADING_KEY: KeySchema = KeySchema::with_default(
    "heading",
    ValueShape::OneOf(&[ValueShape::Boolean, ValueShape::Text]),
    DefaultValue::Boolean(true),
    "The first line of the message: `true` for `# Context Block: ID`, `false` for none, or its text.",
);
pub(super) const SKIP: &str = "skip";
const ON_MISSING_KEY: KeySchema = KeySchema::with_default(
    "on_missing",
    ValueShape::Choice(&[SKIP, "error"]),
    DefaultValue::Text("error"),
    "What happens when the file does not exist.",
)
.with_help(missing_help);
pub(super) const MAX_TOKENS_KEY: KeySchema = KeySchema::optional(
    "max_tokens",
    TOKEN_COUNT,
    "The maximum number of tokens of this source; the rest is left out, with a note for the LLM.",
);
pub(super) const CONDITION_KEY: KeySchema = KeySchema::optional(
    "condition",
    ValueShape::Tagged { by: "when", kinds: &source_condition::CONDITION_KINDS },
    "When the source is part of the context.",
);
const CACHE_KEY: KeySchema = KeySchema::optional(
    "cache",
    ValueShape::Tagged { by: "strategy", kinds: &generator_cache::CACHE_KINDS },
    "When the previous output is reused.",
);

/// Another word for what happens without a file.
fn missing_help(node: &YamlNode) -> Option<String> {
    let word = match node.scalar()? {
        "ignore" | "continue" | "warn" | "none" | "ok" | "false" => SKIP,
        "fail" | "stop" | "abort" | "true" => "error",
        _ => return None,
    };
    Some(format!("write `{word}`"))
}

/// No window in place of its size.
fn window_help(node: &YamlNode) -> Option<String> {
    let word = node.scalar()?.to_ascii_lowercase();
    let is_none = matches!(word.as_str(), "all" | "none" | "unlimited" | "0" | "-1" | "false");
    is_none.then(|| "leave it out for the whole conversation".to_owned())
}

/// A file, or sources by their names, in place of a list.
fn sources_help(node: &YamlNode) -> Option<String> {
    if let Some(path) = node.scalar() {
        return Some(format!("write `sources: [{{type: file, path: {path}}}, {{type: journal}}]`"));
    }
    let (key, _) = node.entries().first()?;
    let id = key.scalar().unwrap_or("system_prompt");
    Some(format!(
        "write each source as an entry of a list: `- {{id: {id}, type: file, path: FILE}}`"
    ))
}

static FILE_MAPPING: MappingSchema = MappingSchema::new(
    "a `file` source",
    "A file, as one system message.",
    &[
        TYPE_KEY,
        ID_KEY,
        HEADING_KEY,
        KeySchema::required(
            "path",
            ValueShape::Text,
            "The file; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are replaced.",
        ),
        ON_MISSING_KEY,
        MAX_TOKENS_KEY,
        CONDITION_KEY,
    ],
);

static COMPUTED_FILE_MAPPING: MappingSchema = MappingSchema::new(
    "a `computed_file` source",
    "A file that a command writes before each request, as one system message.",
    &[
        TYPE_KEY,
        ID_KEY,
        HEADING_KEY,
        KeySchema::required(
            "generator",
            ValueShape::Mapping(&GENERATOR_MAPPING),
            "The command that writes the file.",
        ),
        KeySchema::required(
            "output_path",
            ValueShape::Text,
            "The file, preferably in `${RUN_DIR}`, where no other run writes.",
        ),
        ON_MISSING_KEY,
        MAX_TOKENS_KEY,
        CONDITION_KEY,
        CACHE_KEY,
        KeySchema::misplaced("command", "write `generator: {command: [PROGRAM, ARG]}`"),
        KeySchema::misplaced("path", "the key is `output_path`"),
    ],
);

static PIPELINE_MAPPING: MappingSchema = MappingSchema::new(
    "a `pipeline` source",
    "Commands that run in order; the file that the last one writes, as one system message.",
    &[
        TYPE_KEY,
        ID_KEY,
        HEADING_KEY,
        KeySchema::required(
            "stages",
            ValueShape::List(&ValueShape::Mapping(&STAGE_MAPPING)),
            "The commands, in order.",
        ),
        ON_MISSING_KEY,
        MAX_TOKENS_KEY,
        CONDITION_KEY,
        CACHE_KEY,
    ],
);

pub(super) static STAGE_MAPPING: MappingSchema = MappingSchema::new(
    "a stage",
    "A command of a pipeline, and the file that it writes.",
    &[
        KeySchema::optional("id", ValueShape::Text, "The name in messages."),
        KeySchema::required(
            "generator",
            ValueShape::List(&ValueShape::Text),
            "The program and its arguments.",
        ),
        KeySchema::required("output", ValueShape::Text, "The file, preferably in `${RUN_DIR}`."),
        TIMEOUT_KEY,
        PASS_ENV_KEY,
    ],
);

static JOURNAL_MAPPING: MappingSchema = MappingSchema::new(
    "a `journal` source",
    "The conversation as chat messages.",
    &[
        TYPE_KEY,
        ID_KEY,
        KeySchema::optional(
            "max_iterations",
            ValueShape::Integer(1..1 << 32),
            "Only the last N iterations, the messages that they work on, and the first message.",
        )
        .with_help(window_help),
        KeySchema::optional(
            "template",
            ValueShape::Text,
            "What the LLM sees in place of the first message; `${message}` is the message.",
        ),
        MAX_TOKENS_KEY,
        CONDITION_KEY,
    ],
);

const TIMEOUT_KEY: KeySchema = KeySchema::with_default(
    "timeout_ms",
    MILLISECONDS,
    DefaultValue::Integer(30_000),
    "The timeout in milliseconds.",
);
const PASS_ENV_KEY: KeySchema = KeySchema::optional(
    "pass_env",
    ValueShape::List(&ValueShape::Text),
    "The names of key variables that it receives nevertheless.",
);

pub(super) static GENERATOR_MAPPING: MappingSchema = MappingSchema::new(
    "a generator",
    "A command that writes a file for the context, or counts tokens.",
    &[
        KeySchema::required(
            "command",
            ValueShape::List(&ValueShape::Text),
            "The program and its arguments.",
        ),
        TIMEOUT_KEY,
        PASS_ENV_KEY,
    ],
);
