//! `condition:` of a source: when it is there at all.

use super::resolve;
use crate::text;
use crate::vars::Vars;
use crate::yaml::shape::{Key, Shape};
use crate::yaml::{Document, Mapping, Node};
use regex::Regex;

/// The kinds of conditions, by their `when`.
pub(super) static KINDS: [(&str, &Mapping); 3] = [
    ("task_contains", &TASK_CONTAINS),
    ("file_exists", &FILE_EXISTS),
    ("iteration_at_least", &ITERATION_AT_LEAST),
];

const WHEN: Key = Key::required("when", Shape::Text, "What is asked.");

static TASK_CONTAINS: Mapping = Mapping {
    what: "a condition `task_contains`",
    about: "The task, the first message of a person, has a match of a regular expression.",
    keys: &[WHEN, Key::required("pattern", Shape::Text, "The regular expression.")],
    one_of: &[],
    open: false,
};

static FILE_EXISTS: Mapping = Mapping {
    what: "a condition `file_exists`",
    about: "There is a file or a directory.",
    keys: &[
        WHEN,
        Key::required(
            "path",
            Shape::Text,
            "Where; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are filled in.",
        ),
    ],
    one_of: &[],
    open: false,
};

static ITERATION_AT_LEAST: Mapping = Mapping {
    what: "a condition `iteration_at_least`",
    about: "The request is for an iteration of this number or a later one.",
    keys: &[
        WHEN,
        Key::required("iteration", Shape::Integer(1..1 << 32), "The number; 1 is the first."),
    ],
    one_of: &[],
    open: false,
};

/// When a source is there.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    TaskContains(Regex),
    FileExists(String),
    IterationAtLeast(u64),
}

impl Condition {
    pub(super) fn read(doc: &Document, node: &Node) -> Option<Self> {
        let (when, mapping) = doc.kind(node, "a condition", "when", &KINDS)?;
        let fields = doc.fields(node, mapping)?;
        match when {
            "task_contains" => {
                let at = fields.require("pattern", "\"API|endpoint\"")?;
                match Regex::new(fields.text("pattern")?) {
                    Ok(pattern) => Some(Self::TaskContains(pattern)),
                    Err(error) => {
                        doc.fault(at, text::not_a_pattern(&error), None);
                        None
                    }
                }
            }
            "file_exists" => {
                super::path(doc, fields, "path", "'${CWD}/DELTA.md'").map(Self::FileExists)
            }
            _ => {
                fields.require("iteration", "5")?;
                fields.integer("iteration").map(Self::IterationAtLeast)
            }
        }
    }

    /// Why the source is not there; `None` when it is.
    pub(super) fn unmet(&self, task: &str, iteration: u32, vars: &Vars) -> Option<String> {
        match self {
            Self::TaskContains(pattern) => (!pattern.is_match(task))
                .then(|| format!("the task does not match `{}`", pattern.as_str())),
            Self::FileExists(path) => {
                let path = resolve(path, vars);
                (!path.exists()).then(|| format!("there is no {}", path.display()))
            }
            Self::IterationAtLeast(least) => (u64::from(iteration) < *least)
                .then(|| format!("iteration {iteration} comes before {least}")),
        }
    }
}
