//! Tests that an author writes for an agent: `tests/*.yaml` in its directory, one file for each test.
//!
//! This module reads the tests; [`expectation`] checks a run, [`test_runner`] runs the tests, and [`test_report`] renders
//! the results. A test is a run of the program `delta` in a temporary workspace, so nothing here knows how an agent works.

use delta_base::durable::read_regular_text as read_text;
use delta_base::suggest;
use delta_llm::llm::cassette::Cassette;
use delta_llm::llm::script::{ScriptFile, TURN_MAPPING};
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{self, MappingFields, MappingSchema, YamlDocument, YamlNode};
use expectation::{EXPECT_MAPPING, Expectation};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

mod bipartite_matching;
pub mod expectation;
pub mod matcher;
mod test_cassette;
pub mod test_report;
pub mod test_runner;

/// The name of the directory with the tests in an agent directory.
pub const TESTS_DIR_NAME: &str = "tests";

/// The keys of a test file.
pub static TEST_MAPPING: MappingSchema = MappingSchema::new(
    "a test",
    "A test of an agent: a task in a temporary workspace, and the expected outcome.",
    &[
        KeySchema::optional("description", ValueShape::Text, "What the test shows; for humans."),
        KeySchema::required("task", ValueShape::Text, "The message to the agent."),
        KeySchema::optional(
            "from",
            ValueShape::Text,
            "A directory whose files are copied into the workspace, relative to this file.",
        ),
        KeySchema::optional(
            "files",
            ValueShape::TextMap,
            "Files of the workspace, each with its text; they replace copied ones.",
        ),
        KeySchema::optional(
            "setup",
            ValueShape::Text,
            "A script for `sh -e` that prepares the workspace before the run.",
        ),
        KeySchema::optional("env", ValueShape::TextMap, "Environment variables of the run."),
        KeySchema::optional(
            "answers",
            ValueShape::List(&ValueShape::Text),
            "The user's answers to the agent's questions, in order.",
        ),
        KeySchema::optional(
            "llm",
            ValueShape::Mapping(&TEST_LLM_MAPPING),
            "What plays the LLM; the cassette `cassettes/NAME.jsonl` by default.",
        ),
        KeySchema::optional(
            "max_iterations",
            ValueShape::Integer(1..1 << 31),
            "Maximum LLM calls per process; the agent's own limit by default.",
        ),
        KeySchema::with_default(
            "timeout_ms",
            ValueShape::Milliseconds(1..1 << 32),
            DefaultValue::Integer(60_000),
            "The timeout of the whole test in milliseconds.",
        ),
        KeySchema::required(
            "expect",
            ValueShape::Mapping(&EXPECT_MAPPING),
            "The expected outcome.",
        ),
    ],
);

static TEST_LLM_MAPPING: MappingSchema = MappingSchema::new(
    "`llm` of a test",
    "What plays the LLM.",
    &[
        KeySchema::optional(
            "turns",
            ValueShape::List(&ValueShape::Mapping(&TURN_MAPPING)),
            "The turns of a script for this test alone.",
        ),
        KeySchema::optional("script", ValueShape::Text, "A script file, relative to this file."),
        KeySchema::optional(
            "cassette",
            ValueShape::Text,
            "A cassette, relative to this file; `delta test --record` writes it.",
        ),
        KeySchema::with_default(
            "strict",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "With `cassette`: a request that differs from the recorded one fails the test.",
        ),
    ],
);

/// A test of an agent, read from its file.
#[derive(Debug)]
pub struct AgentTest {
    /// The file name without `.yaml`.
    pub name: String,
    /// The path of the file, based on the path of the agent directory that the user gave.
    pub file: PathBuf,
    task: String,
    source_dir: Option<PathBuf>,
    files: Vec<(String, String)>,
    setup_script: Option<String>,
    env: Vec<(String, String)>,
    answers: Vec<String>,
    llm: TestLlm,
    max_iterations: Option<u64>,
    timeout: Duration,
    expectation: Expectation,
}

/// What plays the LLM.
#[derive(Debug)]
enum TestLlm {
    /// A script file, which other tests may use too.
    Script(PathBuf),
    /// The turns of the test itself, and the text of a script file with them.
    Turns(ScriptFile, String),
    /// Recorded answers; `tape` is `None` until they are recorded and loaded.
    Cassette { path: PathBuf, strict: bool, tape: Option<Cassette> },
}

/// A mismatch between a run and its test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestFailure {
    /// The line of the test file with the expectation; `None` if no line applies.
    pub line: Option<usize>,
    /// What does not match, such as `exit code`.
    pub subject: String,
    /// The predicate of a sentence about `subject`, such as `is 1, not 0`.
    pub message: String,
}

impl TestFailure {
    fn at_line(line: usize, subject: &str, message: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::new(subject, message) }
    }

    fn new(subject: &str, message: impl Into<String>) -> Self {
        Self { line: None, subject: subject.to_owned(), message: message.into() }
    }
}

/// Loads the tests of the agent in `home` and their cassettes, sorted by name; none without a test directory.
///
/// # Errors
/// All errors in the files of the tests, cassettes included.
pub fn load_tests(home: &Path) -> Result<Vec<AgentTest>, DiagnosticReport> {
    let (mut tests, mut report) = read_tests(home);
    tests.iter_mut().for_each(|test| test.read_cassette(&mut report));
    if report.is_empty() { Ok(tests) } else { Err(report) }
}

/// Loads the tests like [`load_tests`], but without their cassettes, which will be replaced.
///
/// # Errors
/// All errors in the files of the tests, except cassettes.
pub fn load_tests_to_record(home: &Path) -> Result<Vec<AgentTest>, DiagnosticReport> {
    let (tests, report) = read_tests(home);
    if report.is_empty() { Ok(tests) } else { Err(report) }
}

fn read_tests(home: &Path) -> (Vec<AgentTest>, DiagnosticReport) {
    let mut report = DiagnosticReport::default();
    let mut tests = Vec::new();
    for file in find_test_files(&home.join(TESTS_DIR_NAME), &mut report) {
        match read_text(&file) {
            Ok(text) => tests.extend(AgentTest::parse(&file, text, &mut report)),
            Err(error) => {
                report_file(&mut report, &file, format!("could not read the test: {error}"), None);
            }
        }
    }
    (tests, report)
}

/// The test files in `dir`, sorted; reports misnamed ones.
fn find_test_files(dir: &Path, report: &mut DiagnosticReport) -> Vec<PathBuf> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            report_file(report, dir, format!("could not read the directory: {error}"), None);
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if name.starts_with('.') => {}
            Some("yaml") if path.to_str().is_none() => {
                report_file(report, &path, "the file name is not UTF-8", Some("rename the file"));
            }
            Some("yaml") => files.push(path),
            Some("yml") => report_file(
                report,
                &path,
                "the name of a test must end with `.yaml`",
                Some("rename the file"),
            ),
            _ => {}
        }
    }
    files.sort();
    files
}

fn report_file(
    report: &mut DiagnosticReport,
    path: &Path,
    message: impl Into<String>,
    help: Option<&str>,
) {
    let help = help.map(str::to_owned);
    report.push(Diagnostic::for_file(path.display().to_string(), message, help));
}

impl AgentTest {
    /// Parses the text of the test `file`, and adds its errors to `report`.
    fn parse(file: &Path, text: String, report: &mut DiagnosticReport) -> Option<Self> {
        let doc = YamlDocument::parse(file.display().to_string(), text);
        let doc = doc.map_err(|diagnostic| report.push(diagnostic)).ok()?;
        let test = Self::from_document(&doc, file);
        doc.drain_diagnostics(report);
        test
    }

    /// Reads the test in the document `doc` of `file`; reports its errors to the document.
    pub fn from_document(doc: &YamlDocument, file: &Path) -> Option<Self> {
        let fields = doc.fields(&doc.root, &TEST_MAPPING)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let task =
            fields.require("task", "Say hello").and_then(|node| non_blank_text(doc, node, "task"));
        let expectation = fields
            .require("expect", "{status: COMPLETED}")
            .and_then(|node| Expectation::read(doc, node));
        let dir = file.parent().unwrap_or(Path::new("."));
        let llm = match fields.non_null("llm") {
            Some(node) => TestLlm::read(doc, node, dir),
            None => {
                let path = dir.join("cassettes").join(format!("{name}.jsonl"));
                Some(TestLlm::Cassette { path, strict: false, tape: None })
            }
        };
        let answers = fields.list("answers").iter();
        Some(Self {
            source_dir: fields.non_null("from").and_then(|node| read_source_dir(doc, node, dir)),
            files: read_text_entries(doc, fields, "files")
                .filter_map(|(key, text)| Some((read_workspace_path(doc, key)?, text.to_owned())))
                .collect(),
            setup_script: fields
                .non_null("setup")
                .and_then(|node| non_blank_text(doc, node, "setup")),
            env: read_test_env(doc, fields),
            answers: answers.filter_map(|node| non_blank_text(doc, node, "an answer")).collect(),
            max_iterations: fields.integer("max_iterations"),
            timeout: Duration::from_millis(fields.integer("timeout_ms")?),
            file: file.to_owned(),
            name,
            task: task?,
            llm: llm?,
            expectation: expectation?,
        })
    }

    /// Loads the cassette, if the test has one that exists.
    fn read_cassette(&mut self, report: &mut DiagnosticReport) {
        let TestLlm::Cassette { path, tape, .. } = &mut self.llm else { return };
        match read_text(path) {
            Ok(text) => match Cassette::parse(&path.display().to_string(), &text) {
                Ok(cassette) => *tape = Some(cassette),
                Err(mut errors) => report.diagnostics.append(&mut errors.diagnostics),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => *tape = None,
            Err(error) => {
                report_file(report, path, format!("could not read the cassette: {error}"), None);
            }
        }
    }

    /// Whether the LLM is played by recorded answers, or will be once they are recorded.
    pub fn has_cassette(&self) -> bool {
        matches!(self.llm, TestLlm::Cassette { .. })
    }
}

/// Checks that each of `tests`, whose answers are to be recorded, has a cassette of its own: the test that is recorded last
/// would replace the answers of the others.
///
/// # Errors
/// Each test whose cassette an earlier test has.
pub fn check_own_cassettes(tests: &[AgentTest]) -> Result<(), DiagnosticReport> {
    let mut report = DiagnosticReport::default();
    let mut owners: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for test in tests {
        let TestLlm::Cassette { path, .. } = &test.llm else { continue };
        // Two names may lead to one file.
        let identity = path.canonicalize().unwrap_or_else(|_| without_dot_components(path));
        match owners.entry(identity) {
            Entry::Vacant(entry) => {
                entry.insert(&test.name);
            }
            Entry::Occupied(entry) => {
                let message = format!(
                    "test `{}` and test `{}` have the same cassette, {}",
                    entry.get(),
                    test.name,
                    path.display()
                );
                let help =
                    "give each its own with `llm: {cassette: FILE}`, or name one of them to record";
                report_file(&mut report, &test.file, message, Some(help));
            }
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report) }
}

/// `path` without `.` and `..`, for a file that does not exist.
fn without_dot_components(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// The text of `key` or of an entry, which must not be blank.
fn non_blank_text(doc: &YamlDocument, node: &YamlNode, key: &str) -> Option<String> {
    let text = doc.expect_text(node, &format!("`{key}`"))?;
    if text.trim().is_empty() {
        doc.report(node, format!("`{key}` is empty"), None);
        return None;
    }
    Some(text.to_owned())
}

/// The keys and values of a mapping of texts.
fn read_text_entries<'a>(
    doc: &'a YamlDocument,
    fields: MappingFields<'a>,
    key: &str,
) -> impl Iterator<Item = (&'a YamlNode, &'a str)> + use<'a> {
    let entries =
        fields.non_null(key).and_then(|node| doc.expect_mapping(node, &format!("`{key}`")));
    entries.unwrap_or_default().iter().filter_map(move |(name, value)| {
        let label = format!("`{}`", name.scalar().unwrap_or_default());
        Some((name, doc.expect_text(value, &label)?))
    })
}

fn read_test_env(doc: &YamlDocument, fields: MappingFields<'_>) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for (key, value) in read_text_entries(doc, fields, "env") {
        let Some(name) = key.scalar() else { continue };
        if name.is_empty() || name.contains('=') {
            let message = format!("`{name}` is not the name of an environment variable");
            doc.report(key, message, "a name is not empty and contains no `=`");
        }
        env.push((name.to_owned(), value.to_owned()));
    }
    env
}

/// The path of a file in the workspace.
fn read_workspace_path(doc: &YamlDocument, key: &YamlNode) -> Option<String> {
    let path = key.scalar()?;
    let mut components =
        Path::new(path).components().filter(|component| *component != Component::CurDir);
    let is_inside = components.clone().all(|component| matches!(component, Component::Normal(_)));
    if components.next().is_none() || !is_inside {
        let help = "write a path relative to the workspace, without `..`";
        doc.report(key, format!("`{path}` is not in the workspace"), help);
        return None;
    }
    Some(path.to_owned())
}

fn read_source_dir(doc: &YamlDocument, node: &YamlNode, dir: &Path) -> Option<PathBuf> {
    let source = dir.join(non_blank_text(doc, node, "from")?);
    if !source.is_dir() {
        let message = format!("{} is not a directory", source.display());
        doc.report(node, message, "write its path relative to this file");
        return None;
    }
    Some(source)
}

impl TestLlm {
    fn read(doc: &YamlDocument, node: &YamlNode, dir: &Path) -> Option<Self> {
        let fields = doc.fields(node, &TEST_LLM_MAPPING)?;
        let kinds: Vec<(&str, &YamlNode)> = ["turns", "script", "cassette"]
            .into_iter()
            .filter_map(|kind| Some((kind, fields.non_null(kind)?)))
            .collect();
        let [(kind, value)] = kinds[..] else {
            let count = if kinds.is_empty() { "none" } else { "more than one" };
            let message = format!("`llm` has {count} of `turns`, `script` and `cassette`");
            let help = "write one of `turns: [{say: ...}]`, `script: FILE` and `cassette: FILE`";
            doc.report(node, message, help);
            return None;
        };
        if let Some(strict) = fields.non_null("strict").filter(|_| kind != "cassette") {
            doc.report(strict, "`strict` applies only to `cassette`", "remove it");
        }
        match kind {
            "turns" => {
                let text = format!("turns: {}\n", yaml::to_flow_yaml(value));
                Some(Self::Turns(ScriptFile::from_turns(doc, value)?, text))
            }
            "script" => {
                Self::read_script(doc, value, dir.join(non_blank_text(doc, value, "script")?))
            }
            _ => {
                let path = dir.join(read_cassette_path(doc, value)?);
                Some(Self::Cassette { path, strict: fields.boolean("strict"), tape: None })
            }
        }
    }

    /// Checks the script file at `path`, which `node` names.
    fn read_script(doc: &YamlDocument, node: &YamlNode, path: PathBuf) -> Option<Self> {
        match read_text(&path) {
            Ok(text) => {
                if let Err(mut report) = ScriptFile::parse(&path.display().to_string(), &text) {
                    doc.append_report(&mut report);
                }
                Some(Self::Script(path))
            }
            Err(error) => {
                let message = format!("could not read the script {}: {error}", path.display());
                doc.report(node, message, "write its path relative to this file");
                None
            }
        }
    }
}

/// The path of a cassette. Recording replaces the file, so the path must be in the agent directory and end with `.jsonl`.
fn read_cassette_path(doc: &YamlDocument, node: &YamlNode) -> Option<String> {
    let path = non_blank_text(doc, node, "cassette")?;
    // The directory of the tests has depth 1 in the agent directory.
    let depth = Path::new(&path).components().try_fold(1_usize, |depth, part| match part {
        Component::Normal(_) => Some(depth + 1),
        Component::CurDir => Some(depth),
        Component::ParentDir => depth.checked_sub(1),
        Component::RootDir | Component::Prefix(_) => None,
    });
    let message = if depth.is_none() {
        format!("`{path}` is not in the agent directory")
    } else if !path.ends_with(".jsonl") {
        format!("`{path}` does not end with `.jsonl`")
    } else {
        return Some(path);
    };
    doc.report(node, message, "write a path such as `cassettes/NAME.jsonl`, relative to this file");
    None
}

/// The tests whose names match one of `names`, which may contain `*`; all tests if `names` is empty.
///
/// # Errors
/// The message about the first name that matches no test.
pub fn select_tests(tests: Vec<AgentTest>, names: &[String]) -> Result<Vec<AgentTest>, String> {
    let mut patterns = Vec::new();
    for name in names {
        let pattern = glob::Pattern::new(name).map_err(|error| format!("`{name}`: {error}"))?;
        if !tests.iter().any(|test| pattern.matches(&test.name) || test.name == *name) {
            let help = suggest::did_you_mean(name, tests.iter().map(|test| test.name.as_str()));
            return Err(format!("there is no test `{name}`; {help}"));
        }
        patterns.push((pattern, name));
    }
    if patterns.is_empty() {
        return Ok(tests);
    }
    let selected = tests.into_iter().filter(|test| {
        patterns.iter().any(|(pattern, name)| pattern.matches(&test.name) || test.name == **name)
    });
    Ok(selected.collect())
}
