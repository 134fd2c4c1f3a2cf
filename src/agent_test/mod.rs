//! Tests that an author writes for an agent: `tests/*.yaml` in its directory, one file for each test.
//!
//! Here is what a test says, in [`expectation`] what it expects of a run, in [`running`] how it is carried out, and in
//! [`report`] how the outcome is shown. A test is a run of the program itself, in a workspace of its own; nothing here
//! knows how an agent works.

use crate::diag::{Diagnostic, Report};
use crate::durable::read_regular_text as read_text;
use crate::llm::cassette::Cassette;
use crate::llm::script::{ScriptFile, TURN};
use crate::text;
use crate::yaml::shape::{Default, Key, Shape};
use crate::yaml::{self, Document, Fields, Mapping, Node};
use expectation::{EXPECT, Expectation};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

mod assignment;
pub mod expectation;
pub mod matcher;
pub mod report;
pub mod running;
mod tape;

/// The directory of the tests in an agent directory.
pub const DIRECTORY: &str = "tests";

/// A test.
pub static TEST: Mapping = Mapping {
    what: "a test",
    about: "A test of an agent: a task in a workspace of its own, and what has to come of it.",
    keys: &[
        Key::optional("description", Shape::Text, "What it shows; for people."),
        Key::required("task", Shape::Text, "The task that the agent is given."),
        Key::optional(
            "from",
            Shape::Text,
            "A directory whose files are copied into the workspace, relative to this file.",
        ),
        Key::optional(
            "files",
            Shape::Names,
            "Files of the workspace at the beginning, each with its text.",
        ),
        Key::optional("env", Shape::Names, "Environment variables of the run."),
        Key::optional(
            "answers",
            Shape::List(&Shape::Text),
            "What a person answers to the agent's questions, in order.",
        ),
        Key::optional(
            "llm",
            Shape::Mapping(&STAND_IN),
            "What stands in for the LLM; the cassette `cassettes/NAME.jsonl` by default.",
        ),
        Key::optional(
            "max_iterations",
            Shape::Integer(1..1 << 31),
            "How many LLM answers a process may ask for; the agent says it by default.",
        ),
        Key::with_default(
            "timeout_ms",
            Shape::Integer(1..1 << 32),
            Default::Integer(60_000),
            "Milliseconds for the whole test.",
        ),
        Key::required("expect", Shape::Mapping(&EXPECT), "What has to come of it."),
    ],
    one_of: &[],
    open: false,
};

static STAND_IN: Mapping = Mapping {
    what: "`llm` of a test",
    about: "What stands in for the LLM.",
    keys: &[
        Key::optional("turns", Shape::List(&Shape::Mapping(&TURN)), "The turns of a script."),
        Key::optional("script", Shape::Text, "A script file, relative to this file."),
        Key::optional(
            "cassette",
            Shape::Text,
            "A cassette, relative to this file; `delta test --record` makes it.",
        ),
        Key::with_default(
            "strict",
            Shape::Boolean,
            Default::Boolean(false),
            "Whether a request that is not the one that was recorded is a failure; beside `cassette`.",
        ),
    ],
    one_of: &[],
    open: false,
};

/// A test as it stands in its file.
#[derive(Debug)]
pub struct Test {
    /// Its name: the file's without `.yaml`.
    pub name: String,
    /// Its file, as the user knows it.
    pub file: PathBuf,
    task: String,
    from: Option<PathBuf>,
    files: Vec<(String, String)>,
    env: Vec<(String, String)>,
    answers: Vec<String>,
    llm: StandIn,
    max_iterations: Option<u64>,
    timeout: Duration,
    expect: Expectation,
}

/// What stands in for the LLM.
#[derive(Debug)]
enum StandIn {
    /// A script file, which others may use too.
    Script(PathBuf),
    /// A script of the test's own, and its text.
    Turns(ScriptFile, String),
    /// Recorded answers; none before they are.
    Cassette { path: PathBuf, strict: bool, tape: Option<Cassette> },
}

/// Something that is not as the test expects it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The line of the test's file that expects it; none for what no line says.
    pub line: Option<usize>,
    /// Of what it is.
    pub what: String,
    /// How it differs, in words that go on after `what`.
    pub message: String,
}

impl Failure {
    fn at(line: usize, what: &str, message: impl Into<String>) -> Self {
        Self { line: Some(line), what: what.to_owned(), message: message.into() }
    }

    fn of(what: &str, message: impl Into<String>) -> Self {
        Self { line: None, what: what.to_owned(), message: message.into() }
    }
}

/// The tests of the agent in `home`, in the order of their names; none when it has no directory for them.
///
/// # Errors
/// Everything that is wrong in any of their files, cassettes included.
pub fn load(home: &Path) -> Result<Vec<Test>, Report> {
    let (mut tests, mut report) = read_all(home);
    tests.iter_mut().for_each(|test| test.read_cassette(&mut report));
    if report.is_empty() { Ok(tests) } else { Err(report) }
}

/// The same without what was recorded, for those who record it anew.
///
/// # Errors
/// Everything that is wrong in any of their own files.
pub fn load_to_record(home: &Path) -> Result<Vec<Test>, Report> {
    let (tests, report) = read_all(home);
    if report.is_empty() { Ok(tests) } else { Err(report) }
}

fn read_all(home: &Path) -> (Vec<Test>, Report) {
    let mut report = Report::default();
    let mut tests = Vec::new();
    for file in files(home, &mut report) {
        match read_text(&file) {
            Ok(text) => tests.extend(Test::read(&file, text, &mut report)),
            Err(error) => report.push(Diagnostic::of_file(
                file.display().to_string(),
                format!("the test cannot be read: {error}"),
                None,
            )),
        }
    }
    (tests, report)
}

/// The files of the tests, sorted.
fn files(home: &Path, report: &mut Report) -> Vec<PathBuf> {
    let dir = home.join(DIRECTORY);
    let mut complain = |path: &Path, message: String, help: Option<&str>| {
        let (path, help) = (path.display().to_string(), help.map(str::to_owned));
        report.push(Diagnostic::of_file(path, message, help));
    };
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            complain(&dir, format!("the directory cannot be read: {error}"), None);
            Vec::new()
        }
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if name.starts_with('.') => {}
            Some("yaml") if path.to_str().is_none() => {
                complain(&path, "its name is not UTF-8".to_owned(), Some("give it another name"));
            }
            Some("yaml") => found.push(path),
            Some("yml") => complain(
                &path,
                "this would not be taken for a test".to_owned(),
                Some("let its name end with `.yaml`"),
            ),
            _ => {}
        }
    }
    found.sort();
    found
}

impl Test {
    /// Reads the test in `file`; what is wrong goes into `report`.
    fn read(file: &Path, text: String, report: &mut Report) -> Option<Self> {
        let doc = match Document::parse(file.display().to_string(), text) {
            Ok(doc) => doc,
            Err(diagnostic) => {
                report.push(diagnostic);
                return None;
            }
        };
        let test = Self::of_document(&doc, file);
        doc.finish(report);
        test
    }

    /// Reads the test that `doc` holds, whose file is `file`.
    pub fn of_document(doc: &Document, file: &Path) -> Option<Self> {
        let fields = doc.fields(&doc.root, &TEST)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let task = fields.require("task", "Say hello").and_then(|node| filled(doc, node, "task"));
        let expect = fields.require("expect", "{status: COMPLETED}");
        let expect = expect.and_then(|node| Expectation::read(doc, node));
        let answers = fields.list("answers").iter();
        let dir = file.parent().unwrap_or(Path::new("."));
        let llm = match fields.given("llm") {
            Some(node) => StandIn::read(doc, node, dir),
            None => {
                let path = dir.join("cassettes").join(format!("{name}.jsonl"));
                Some(StandIn::Cassette { path, strict: false, tape: None })
            }
        };
        let files = read_names(doc, fields, "files");
        Some(Self {
            from: fields.given("from").and_then(|node| read_from(doc, node, dir)),
            files: files
                .filter_map(|(key, text)| Some((plain_path(doc, key)?, text.to_owned())))
                .collect(),
            env: read_env(doc, fields),
            answers: answers.filter_map(|node| filled(doc, node, "an answer")).collect(),
            max_iterations: fields.integer("max_iterations"),
            timeout: Duration::from_millis(fields.integer("timeout_ms")?),
            file: file.to_owned(),
            name,
            task: task?,
            llm: llm?,
            expect: expect?,
        })
    }

    /// Takes up what is on its cassette, if it has one that is recorded already.
    fn read_cassette(&mut self, report: &mut Report) {
        let StandIn::Cassette { path, tape, .. } = &mut self.llm else { return };
        let file = path.display().to_string();
        let read = match read_text(path) {
            Ok(text) => Cassette::parse(&file, &text).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let message = format!("the cassette cannot be read: {error}");
                Err(Report { diagnostics: vec![Diagnostic::of_file(file, message, None)] })
            }
        };
        match read {
            Ok(found) => *tape = found,
            Err(mut found) => report.diagnostics.append(&mut found.diagnostics),
        }
    }

    /// Whether its answers are recorded ones, or are to be recorded.
    pub fn has_cassette(&self) -> bool {
        matches!(self.llm, StandIn::Cassette { .. })
    }
}

/// A text that is not blank.
fn filled(doc: &Document, node: &Node, what: &str) -> Option<String> {
    let text = doc.text(node, &format!("`{what}`"))?;
    if text.trim().is_empty() {
        doc.fault(node, format!("`{what}` is empty"), None);
        return None;
    }
    Some(text.to_owned())
}

/// The entries of a mapping of texts.
fn read_names<'a>(
    doc: &'a Document,
    fields: Fields<'a>,
    key: &'a str,
) -> impl Iterator<Item = (&'a Node, &'a str)> {
    let entries = fields.given(key).and_then(|node| doc.mapping(node, &format!("`{key}`")));
    entries.unwrap_or_default().iter().filter_map(move |(name, value)| {
        let what = format!("`{}`", name.scalar().unwrap_or_default());
        Some((name, doc.text(value, &what)?))
    })
}

fn read_env(doc: &Document, fields: Fields<'_>) -> Vec<(String, String)> {
    let read = |(key, value): (&Node, &str)| {
        let name = key.scalar()?;
        if name.is_empty() || name.contains('=') {
            doc.fault(key, format!("`{name}` is no name of a variable"), None);
        }
        Some((name.to_owned(), value.to_owned()))
    };
    read_names(doc, fields, "env").filter_map(read).collect()
}

/// A path inside the workspace, as a key of a mapping.
fn plain_path(doc: &Document, key: &Node) -> Option<String> {
    let path = key.scalar()?;
    let mut parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
    let is_plain = parts.clone().all(|part| matches!(part, Component::Normal(_)));
    if parts.next().is_none() || !is_plain {
        let help = "write a path inside the workspace, without `..` and `/` at its beginning";
        doc.fault(key, format!("`{path}` is not in the workspace"), Some(help.to_owned()));
        return None;
    }
    Some(path.to_owned())
}

fn read_from(doc: &Document, node: &Node, dir: &Path) -> Option<PathBuf> {
    let from = dir.join(filled(doc, node, "from")?);
    if !from.is_dir() {
        let message = format!("{} is no directory", from.display());
        doc.fault(node, message, Some("write its path relative to this file".to_owned()));
        return None;
    }
    Some(from)
}

impl StandIn {
    fn read(doc: &Document, node: &Node, dir: &Path) -> Option<Self> {
        let fields = doc.fields(node, &STAND_IN)?;
        let kinds = ["turns", "script", "cassette"];
        let given: Vec<&str> =
            kinds.into_iter().filter(|kind| fields.given(kind).is_some()).collect();
        let [kind] = given[..] else {
            let help = "write one of `turns: [{say: ...}]`, `script: FILE` and `cassette: FILE`";
            let message = match given.len() {
                0 => "`llm` does not say what stands in for the LLM",
                _ => "`llm` names more than one that stands in for the LLM",
            };
            doc.fault(node, message, Some(help.to_owned()));
            return None;
        };
        if let Some(strict) = fields.given("strict").filter(|_| kind != "cassette") {
            doc.fault(strict, "`strict` is for a cassette", Some("take it out".to_owned()));
        }
        let value = fields.given(kind)?;
        match kind {
            "turns" => {
                let text = format!("turns: {}\n", yaml::flow(value));
                Some(Self::Turns(ScriptFile::of_turns(doc, value)?, text))
            }
            "script" => Self::script(doc, value, dir.join(filled(doc, value, "script")?)),
            _ => {
                let path = cassette_path(doc, value)?;
                let path = dir.join(path);
                Some(Self::Cassette { path, strict: fields.boolean("strict"), tape: None })
            }
        }
    }

    fn script(doc: &Document, node: &Node, path: PathBuf) -> Option<Self> {
        match read_text(&path) {
            Ok(text) => {
                if let Err(mut report) = ScriptFile::parse(&path.display().to_string(), &text) {
                    doc.adopt(&mut report);
                }
                Some(Self::Script(path))
            }
            Err(error) => {
                let message = format!("the script {} cannot be read: {error}", path.display());
                doc.fault(node, message, Some("write its path relative to this file".to_owned()));
                None
            }
        }
    }
}

/// The path of a cassette: recording writes over what is there, so it is in the agent directory and is called one.
fn cassette_path(doc: &Document, node: &Node) -> Option<String> {
    let path = filled(doc, node, "cassette")?;
    // The directory of the tests is one below that of the agent.
    let depth = Path::new(&path).components().try_fold(1_usize, |depth, part| match part {
        Component::Normal(_) => Some(depth + 1),
        Component::CurDir => Some(depth),
        Component::ParentDir => depth.checked_sub(1),
        Component::RootDir | Component::Prefix(_) => None,
    });
    let help = "write a path such as `cassettes/NAME.jsonl`, relative to this file";
    let message = match (depth, path.ends_with(".jsonl")) {
        (Some(_), true) => return Some(path),
        (None, _) => format!("`{path}` is not in the agent directory"),
        (Some(_), false) => format!("`{path}` does not end with `.jsonl`"),
    };
    doc.fault(node, message, Some(help.to_owned()));
    None
}

/// Those of `tests` whose names are among `names`, which may be patterns with `*`; all when there are no names.
///
/// # Errors
/// What is wrong with the first name that no test has.
pub fn select(tests: Vec<Test>, names: &[String]) -> Result<Vec<Test>, String> {
    let mut patterns = Vec::new();
    for name in names {
        let pattern = glob::Pattern::new(name).map_err(|error| format!("`{name}`: {error}"))?;
        if !tests.iter().any(|test| pattern.matches(&test.name) || test.name == *name) {
            let help = text::did_you_mean(name, tests.iter().map(|test| test.name.as_str()));
            return Err(format!("there is no test `{name}`; {help}"));
        }
        patterns.push((pattern, name));
    }
    let wanted = |test: &Test| {
        patterns.is_empty()
            || patterns
                .iter()
                .any(|(pattern, name)| pattern.matches(&test.name) || test.name == **name)
    };
    Ok(tests.into_iter().filter(wanted).collect())
}
