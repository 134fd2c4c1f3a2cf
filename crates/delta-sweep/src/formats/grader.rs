//! Graders: the entries of `grade` in sweep.yaml, and what a plan keeps of them.

use crate::formats::canonical_json::{content_hash, to_canonical_json};
use crate::formats::placeholder::{
    PlaceholderError, check_input_placeholders, check_text_placeholders,
};
use crate::formats::sweep_file::read_time;
use delta_lint::sweep_schema::GRADER_MAPPING;
use delta_yaml::yaml::{YamlDocument, YamlNode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::path::Path;

/// How long a command may take by default, in milliseconds: 10 minutes.
const DEFAULT_TIMEOUT_MS: u64 = 600_000;

/// A grader as the author wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct GraderEntry {
    /// Its name.
    pub name: String,
    /// What grades, with paths as in the file.
    pub kind: GraderKind,
}

/// What grades.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GraderKind {
    /// A command.
    Command {
        /// The program and its arguments, with placeholders.
        argv: Vec<String>,
        /// How long it may take.
        timeout_ms: u64,
        /// In a plan, the hash of the copy of the program; absent for one that is found in PATH.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// In a plan, the hashes of the files that arguments name by an absolute path. They are not copied.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        argument_files: BTreeMap<String, String>,
    },
    /// What the run must have done, with placeholders.
    Expect(Json),
    /// An agent that judges.
    Agent {
        /// In a plan the tree of its copy, else its directory.
        agent: String,
        /// Its model, if not its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
}

/// A grader in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedGrader {
    /// Its name.
    pub name: String,
    /// What grades, with the hashes of what was copied.
    #[serde(flatten)]
    pub kind: GraderKind,
}

impl PlannedGrader {
    /// What the grader is: a grader that was changed has another hash, and grades again.
    pub fn hash(&self) -> String {
        let kind = serde_json::to_value(&self.kind).unwrap_or_default();
        let mut hash = content_hash(to_canonical_json(&kind).as_bytes());
        hash.truncate(delta_run::sweep::sweep_dir::HASH_DIGITS);
        hash
    }

    /// The hash of the copy of the program, if it was copied.
    pub fn program_hash(&self) -> Option<&str> {
        match &self.kind {
            GraderKind::Command { file, .. } => file.as_deref(),
            _ => None,
        }
    }

    /// The tree of the agent that judges, if one does.
    pub fn judge_tree(&self) -> Option<&str> {
        match &self.kind {
            GraderKind::Agent { agent, .. } => Some(agent),
            _ => None,
        }
    }
}

impl GraderEntry {
    /// Checks that an input has a value for each placeholder `${input.NAME}`: without one, no run of the input could be graded.
    ///
    /// # Errors
    /// A placeholder without a value.
    pub fn check_input(&self, input: &Map<String, Json>) -> Result<(), PlaceholderError> {
        let mut checked = Ok(());
        let mut check = |text: &str| {
            if checked.is_ok() {
                checked = check_input_placeholders(text, input);
            }
        };
        match &self.kind {
            GraderKind::Expect(expect) => for_each_text(expect, &mut check),
            GraderKind::Command { argv, .. } => argv.iter().skip(1).for_each(|text| check(text)),
            GraderKind::Agent { .. } => {}
        }
        checked
    }

    /// The absolute paths among the arguments of a command. Relative ones are relative to the workspace of the run.
    pub fn absolute_arguments(&self) -> impl Iterator<Item = &str> {
        let arguments = match &self.kind {
            GraderKind::Command { argv, .. } => argv.get(1..).unwrap_or_default(),
            _ => &[],
        };
        arguments.iter().map(String::as_str).filter(|argument| argument.starts_with('/'))
    }

    /// The file that a plan copies: the program of a command, if it is a path.
    pub fn program_path(&self) -> Option<&Path> {
        let GraderKind::Command { argv, .. } = &self.kind else { return None };
        argv.first().filter(|program| program.contains('/')).map(Path::new)
    }
}

/// Reads `grade` of sweep.yaml; reports its mistakes to `doc`.
pub fn read_graders<'a>(
    doc: &YamlDocument,
    nodes: &[YamlNode],
    params: impl Iterator<Item = &'a str> + Clone,
) -> Vec<GraderEntry> {
    let mut graders: Vec<GraderEntry> = Vec::new();
    for node in nodes {
        let Some(grader) = read_grader(doc, node, params.clone()) else { continue };
        if graders.iter().any(|other| other.name == grader.name) {
            let message = format!("two graders have the name `{}`", grader.name);
            doc.report(node, message, "give one of them another name");
            continue;
        }
        graders.push(grader);
    }
    graders
}

fn read_grader<'a>(
    doc: &YamlDocument,
    node: &YamlNode,
    params: impl Iterator<Item = &'a str> + Clone,
) -> Option<GraderEntry> {
    let fields = doc.fields(node, &GRADER_MAPPING)?;
    let name = fields.require("name", "passed")?.scalar()?.to_owned();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        let help = "the runs of an agent that judges have it in their ids";
        doc.report(node, "`name` must have letters, digits, `-` and `_` only", help);
        return None;
    }
    let kinds = GRADER_MAPPING.exactly_one_of.iter();
    let present_kinds: Vec<&str> =
        kinds.copied().filter(|key| fields.non_null(key).is_some()).collect();
    if present_kinds.len() != 1 {
        let message = "a grader needs exactly one of `command`, `expect` and `agent`";
        let help = if present_kinds.is_empty() {
            "write `command: [./grade.sh]`".to_owned()
        } else {
            format!("keep one of `{}`", present_kinds.join("`, `"))
        };
        doc.report(node, message, help);
        return None;
    }
    let mut is_right = true;
    let mut check = |text: &str| {
        for error in check_text_placeholders(text, params.clone()) {
            doc.report_in(node, &error.placeholder, error.message, Some(error.help));
            is_right = false;
        }
    };
    let kind = if let Some(expect) = fields.non_null("expect") {
        let expect = doc.to_json(expect)?;
        for_each_text(&expect, &mut check);
        GraderKind::Expect(expect)
    } else if let Some(agent) = fields.text("agent") {
        let model = fields.text("model").map(str::to_owned);
        GraderKind::Agent { agent: agent.to_owned(), model }
    } else {
        let argv = fields.texts("command");
        argv.iter().skip(1).for_each(|text| check(text));
        if argv.is_empty() {
            if fields.non_null("command").is_some_and(YamlNode::is_empty_list) {
                let help = "write `command: [./grade.sh]`";
                doc.report(node, "`command` is empty", help);
            }
            return None;
        }
        let timeout_ms = match fields.non_null("timeout") {
            Some(node) => read_time(doc, node, "timeout")?,
            None => DEFAULT_TIMEOUT_MS,
        };
        GraderKind::Command { argv, timeout_ms, file: None, argument_files: BTreeMap::new() }
    };
    is_right.then_some(GraderEntry { name, kind })
}

fn for_each_text(value: &Json, handle: &mut impl FnMut(&str)) {
    match value {
        Json::String(text) => handle(text),
        Json::Array(items) => items.iter().for_each(|item| for_each_text(item, handle)),
        Json::Object(members) => members.values().for_each(|item| for_each_text(item, handle)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_grader_is_another_one_and_its_name_does_not_count() {
        let grader = |name: &str, kind| PlannedGrader { name: name.to_owned(), kind }.hash();
        let command = |file: &str, argument: &str| GraderKind::Command {
            argv: vec!["./g".to_owned(), argument.to_owned()],
            timeout_ms: 1,
            file: Some(file.to_owned()),
            argument_files: BTreeMap::new(),
        };
        let hash = grader("a", command("1", "x"));
        assert_eq!(hash, grader("b", command("1", "x")));
        assert_ne!(hash, grader("a", command("2", "x")), "its file has changed");
        assert_ne!(hash, grader("a", command("1", "y")));
        let planned = PlannedGrader { name: "a".to_owned(), kind: command("1", "x") };
        let text = serde_json::to_string(&planned).unwrap();
        assert_eq!(serde_json::from_str::<PlannedGrader>(&text).unwrap(), planned, "{text}");
    }
}
