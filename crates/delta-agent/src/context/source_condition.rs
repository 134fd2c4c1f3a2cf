//! `condition:` of a source: when it is part of the context.

use super::resolve_context_path;
use delta_base::engine_variables::EngineVars;
use delta_base::error_text;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use regex::Regex;

/// The kinds of conditions, by their `when`.
pub(super) static CONDITION_KINDS: [(&str, &MappingSchema); 3] = [
    ("task_contains", &TASK_CONTAINS_MAPPING),
    ("file_exists", &FILE_EXISTS_MAPPING),
    ("iteration_at_least", &ITERATION_AT_LEAST_MAPPING),
];

const WHEN_KEY: KeySchema = KeySchema::required("when", ValueShape::Text, "The kind of condition.");

static TASK_CONTAINS_MAPPING: MappingSchema = MappingSchema::new(
    "a condition `task_contains`",
    "The task, which is the first user message, matches a regular expression.",
    &[WHEN_KEY, KeySchema::required("pattern", ValueShape::Text, "The regular expression.")],
);

static FILE_EXISTS_MAPPING: MappingSchema = MappingSchema::new(
    "a condition `file_exists`",
    "A file or directory exists.",
    &[
        WHEN_KEY,
        KeySchema::required(
            "path",
            ValueShape::Text,
            "The path; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are replaced.",
        ),
    ],
);

static ITERATION_AT_LEAST_MAPPING: MappingSchema = MappingSchema::new(
    "a condition `iteration_at_least`",
    "The request is for this iteration or a later one.",
    &[
        WHEN_KEY,
        KeySchema::required(
            "iteration",
            ValueShape::Integer(1..1 << 32),
            "The number of the iteration; the first is 1.",
        ),
    ],
);

/// When a source is part of the context.
#[derive(Debug, Clone)]
pub(super) enum SourceCondition {
    TaskContains(Regex),
    FileExists(String),
    IterationAtLeast(u64),
}

impl SourceCondition {
    pub(super) fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let (when, mapping) = doc.tagged_mapping(node, "a condition", "when", &CONDITION_KINDS)?;
        let fields = doc.fields(node, mapping)?;
        match when {
            "task_contains" => {
                let at = fields.require("pattern", "\"API|endpoint\"")?;
                match Regex::new(fields.text("pattern")?) {
                    Ok(pattern) => Some(Self::TaskContains(pattern)),
                    Err(error) => {
                        doc.report(at, error_text::describe_regex_error(&error), None);
                        None
                    }
                }
            }
            "file_exists" => super::read_path_field(doc, fields, "path", "'${CWD}/DELTA.md'")
                .map(Self::FileExists),
            _ => {
                fields.require("iteration", "5")?;
                fields.integer("iteration").map(Self::IterationAtLeast)
            }
        }
    }

    /// Why the condition does not hold; `None` when it does.
    pub(super) fn unmet_reason(
        &self,
        task: &str,
        iteration: u32,
        vars: &EngineVars,
    ) -> Option<String> {
        match self {
            Self::TaskContains(pattern) => (!pattern.is_match(task))
                .then(|| format!("the task does not match `{}`", pattern.as_str())),
            Self::FileExists(path) => {
                let path = resolve_context_path(path, vars);
                (!path.exists()).then(|| format!("there is no {}", path.display()))
            }
            Self::IterationAtLeast(least) => (u64::from(iteration) < *least)
                .then(|| format!("iteration {iteration} comes before {least}")),
        }
    }
}
