//! The inputs of a sweep: a line of JSON for each, with an id of its own.
//!
//! Inputs stay text until a run needs one: a million of them fit into memory as lines, and not as trees.

use crate::formats::recorded_input::{RECORDED_KEY, RecordedInput};
use delta_base::error_text::describe_json_error;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Component, Path};

/// The key of a line in the directory of a sweep that names the copy of the directory under `from`.
pub const TREE_KEY: &str = "tree";
/// The most errors of one file that are reported.
const MAX_ERRORS: usize = 20;
/// What some editors write at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// An input.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepInput {
    /// Its id.
    pub id: String,
    /// The inputs with the same group are not independent of each other.
    pub group: Option<String>,
    /// A directory whose files a workspace begins with, as the author wrote it.
    pub from: Option<String>,
    /// The copy of that directory.
    pub tree: Option<String>,
    /// The recorded run with whose first iterations a run begins.
    pub recorded: Option<RecordedInput>,
    /// More files of the workspace, with their texts; they replace copied ones.
    pub files: BTreeMap<String, String>,
    /// All members, for `${input.NAME}`.
    pub members: Map<String, Json>,
}

impl SweepInput {
    /// Reads an input from its members.
    ///
    /// # Errors
    /// The message, with the help.
    pub fn from_members(members: Map<String, Json>) -> Result<Self, (String, String)> {
        let text = |key: &str| match members.get(key) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
            Some(Json::Number(number)) if key != "from" => Ok(Some(number.to_string())),
            Some(Json::String(_)) => {
                Err((format!("`{key}` is empty"), format!("write `\"{key}\": \"...\"`")))
            }
            Some(_) => {
                Err((format!("`{key}` must be a string"), format!("write `\"{key}\": \"...\"`")))
            }
        };
        let id = text("id")?.ok_or_else(|| {
            (
                "an input has no `id`".to_owned(),
                "write `\"id\": \"...\"`, a name of its own for each input".to_owned(),
            )
        })?;
        Ok(Self {
            id,
            group: text("group")?,
            from: text("from")?,
            tree: text(TREE_KEY)?,
            recorded: read_recorded(&members),
            files: read_files(members.get("files"))?,
            members,
        })
    }

    /// The line of an input in the directory of a sweep: its members, and the copy of its directory or recorded run.
    pub fn to_line(&self) -> String {
        let mut members = self.members.clone();
        if let Some(tree) = &self.tree {
            members.insert(TREE_KEY.to_owned(), tree.as_str().into());
        }
        if let Some(recorded) = &self.recorded {
            members.insert(RECORDED_KEY.to_owned(), json!(recorded));
        }
        delta_base::json::to_json(&members)
    }
}

/// The recorded run of an input that `plan` wrote; another value is a member for placeholders.
fn read_recorded(members: &Map<String, Json>) -> Option<RecordedInput> {
    serde_json::from_value(members.get(RECORDED_KEY)?.clone()).ok()
}

fn read_files(value: Option<&Json>) -> Result<BTreeMap<String, String>, (String, String)> {
    let expected = || {
        let help = "write `\"files\": {\"PATH\": \"TEXT\"}`".to_owned();
        ("`files` must be an object of texts".to_owned(), help)
    };
    let members = match value {
        None | Some(Json::Null) => return Ok(BTreeMap::new()),
        Some(Json::Object(members)) => members,
        Some(_) => return Err(expected()),
    };
    let mut files = BTreeMap::new();
    for (path, text) in members {
        check_workspace_path(path)?;
        files.insert(path.clone(), text.as_str().ok_or_else(expected)?.to_owned());
    }
    Ok(files)
}

/// Checks that a path names a file in a workspace.
///
/// # Errors
/// The message, with the help.
pub fn check_workspace_path(path: &str) -> Result<(), (String, String)> {
    let mut parts = Path::new(path).components();
    let is_control =
        matches!(parts.clone().next(), Some(Component::Normal(first)) if first == ".delta");
    let is_below = !path.is_empty()
        && !path.ends_with('/')
        && !path.contains('\0')
        && parts.all(|part| matches!(part, Component::Normal(_)));
    if is_below && !is_control {
        return Ok(());
    }
    let help = "write a path relative to the workspace, without `..` and outside of `.delta`";
    Err((format!("`{path}` is not a file in the workspace"), help.to_owned()))
}

/// The inputs of a plan, as lines of JSON.
#[derive(Debug, Clone, Default)]
pub struct InputSet {
    text: String,
    lines: Vec<Range<usize>>,
}

impl InputSet {
    /// Reads a file of inputs that an author wrote; `name` is its name in diagnostics. Blank lines are skipped.
    ///
    /// # Errors
    /// Every line that is not an input, and every id that occurs twice.
    pub fn parse(name: &str, text: String) -> Result<Self, DiagnosticReport> {
        let text = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        let mut report = DiagnosticReport::default();
        let lines = find_lines(&text);
        let mut numbers: HashMap<String, usize> = HashMap::with_capacity(lines.len());
        let mut number = 0;
        let mut counted_until = 0;
        for range in &lines {
            number += text[counted_until..range.start].matches('\n').count();
            counted_until = range.start;
            let line = &text[range.clone()];
            let mut add = |message: String, help: String, column: usize| {
                if report.diagnostics.len() < MAX_ERRORS {
                    report.push(input_diagnostic(name, number + 1, column, line, message, help));
                }
            };
            match parse_input_line(line) {
                Err(LineError { message, help, column }) => add(message, help, column),
                Ok(input) => {
                    if let Some(first) = numbers.insert(input.id.clone(), number + 1) {
                        let message =
                            format!("the id `{}` is also the one of line {first}", input.id);
                        add(message, "give each input an id of its own".to_owned(), 1);
                    }
                }
            }
        }
        if lines.is_empty() {
            let help =
                "write a line `{\"id\": \"...\", \"task\": \"...\"}` for each input".to_owned();
            report.push(Diagnostic::for_file(name, "there are no inputs", Some(help)));
        }
        if report.is_empty() { Ok(Self { text, lines }) } else { Err(report) }
    }

    /// Takes the lines of a directory of a sweep, which delta wrote and which are trusted to be inputs.
    pub fn from_lines(text: String) -> Self {
        Self { lines: find_lines(&text), text }
    }

    /// The set of these inputs.
    pub fn from_inputs<'a>(inputs: impl IntoIterator<Item = &'a SweepInput>) -> Self {
        let mut text = String::new();
        for input in inputs {
            text.push_str(&input.to_line());
            text.push('\n');
        }
        Self::from_lines(text)
    }

    /// The lines, each with a newline.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of inputs.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The input at `index`.
    ///
    /// # Errors
    /// The line is not an input: the file was changed.
    pub fn get(&self, index: usize) -> Result<SweepInput, String> {
        let line = self.lines.get(index).map_or("", |range| &self.text[range.clone()]);
        parse_input_line(line).map_err(|error| format!("input {}: {}", index + 1, error.message))
    }

    /// The inputs in their order.
    pub fn iter(&self) -> impl Iterator<Item = Result<SweepInput, String>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The index of each id.
    ///
    /// # Errors
    /// As [`InputSet::get`].
    pub fn index_by_id(&self) -> Result<HashMap<String, usize>, String> {
        self.iter().enumerate().map(|(index, input)| Ok((input?.id, index))).collect()
    }
}

/// The lines that are not blank.
fn find_lines(text: &str) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        if !line.trim().is_empty() {
            lines.push(start..start + line.trim_end().len());
        }
        start = end;
    }
    lines
}

struct LineError {
    message: String,
    help: String,
    column: usize,
}

fn parse_input_line(line: &str) -> Result<SweepInput, LineError> {
    let members: Map<String, Json> = serde_json::from_str(line).map_err(|error| LineError {
        message: format!("expected a JSON object: {}", describe_json_error(&error)),
        help: "write one input a line: `{\"id\": \"...\", \"task\": \"...\"}`".to_owned(),
        column: error.column().max(1),
    })?;
    SweepInput::from_members(members).map_err(|(message, help)| LineError {
        message,
        help,
        column: 1,
    })
}

fn input_diagnostic(
    name: &str,
    line: usize,
    column: usize,
    source: &str,
    message: String,
    help: String,
) -> Diagnostic {
    /// A longer line shows its beginning.
    const MAX_SOURCE: usize = 160;
    let chars = source.chars().count();
    let prefix = source.get(..column - 1).map_or(0, |text| text.chars().count());
    let (source, column) = if chars > MAX_SOURCE {
        (source.chars().take(MAX_SOURCE).collect(), 1)
    } else {
        (source.to_owned(), prefix + 1)
    };
    Diagnostic { file: name.to_owned(), line, column, source, width: 1, message, help: Some(help) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<(usize, String)> {
        let report = InputSet::parse("inputs.jsonl", text.to_owned()).unwrap_err();
        report
            .diagnostics
            .into_iter()
            .map(|diagnostic| (diagnostic.line, diagnostic.message))
            .collect()
    }

    #[test]
    fn each_line_is_an_input_with_an_id_of_its_own() {
        let text =
            "{\"id\":\"a\",\"task\":\"x\"}\n\n{\"id\":7,\"group\":\"g\",\"files\":{\"d/f\":\"t\"}}";
        let set = InputSet::parse("inputs.jsonl", text.to_owned()).unwrap();
        let inputs: Vec<_> = set.iter().map(Result::unwrap).collect();
        assert_eq!(inputs.len(), 2);
        assert_eq!((inputs[1].id.as_str(), inputs[1].group.as_deref()), ("7", Some("g")));
        assert_eq!(inputs[1].files["d/f"], "t");
    }

    #[test]
    fn every_wrong_line_is_reported_with_its_number() {
        let text = "{\"id\":\"a\"}\n\nno json\n{\"task\":\"x\"}\n{\"id\":\"a\"}\n{\"id\":\"b\",\"files\":{\"../x\":\"\"}}\n[1]\n";
        let expected = [
            (3, "expected a JSON object: not JSON"),
            (4, "an input has no `id`"),
            (5, "the id `a` is also the one of line 1"),
            (6, "`../x` is not a file in the workspace"),
        ];
        let found = errors(text);
        for (index, (line, message)) in expected.into_iter().enumerate() {
            assert_eq!(found[index], (line, message.to_owned()));
        }
        assert_eq!(found[4].0, 7);
        assert_eq!(errors("\n")[0].1, "there are no inputs");
    }

    #[test]
    fn files_are_below_the_workspace_and_outside_of_its_records() {
        for path in ["a", "a/b", ".env", "a/.delta"] {
            assert!(check_workspace_path(path).is_ok(), "{path}");
        }
        for path in ["", "/a", "..", "a/../b", "./a", "a/", ".delta", ".delta/x", "a\0"] {
            assert!(check_workspace_path(path).is_err(), "{path}");
        }
    }
}
