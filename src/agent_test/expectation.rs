//! What a test expects of a run: reading it, and the verdict on what came. Pure, but for the files that are looked at.

use super::assignment::assign;
use super::matcher::{FILE_MATCH, MATCH, Matcher, block, missing};
use super::{Failure, plain_path};
use crate::durable::read_regular;
use crate::event::{Event, Payload};
use crate::history::History;
use crate::yaml::shape::{Key, Shape};
use crate::yaml::{Document, Fields, Mapping, Node};
use serde_json::{Value as Json, json};
use std::path::Path;

/// The section `expect:` of a test.
pub static EXPECT: Mapping = Mapping {
    what: "`expect`",
    about: "What has to come of the run.",
    keys: &[
        Key::optional(
            "status",
            Shape::Choice(&STATUSES),
            "How the run stands at the end; COMPLETED by default, FAILED beside `error`, WAITING_FOR_INPUT beside `question`.",
        ),
        Key::optional("exit_code", Shape::Integer(0..256), "The exit code of the last process."),
        Key::optional("result", MATCH, "The result."),
        Key::optional("error", Shape::Mapping(&ERROR), "Why the run failed."),
        Key::optional("question", MATCH, "What a person is asked at the end."),
        Key::optional(
            "files",
            Shape::Each(&FILE_MATCH),
            "Files of the workspace, each with what is in it.",
        ),
        Key::optional(
            "calls",
            Shape::List(&Shape::Mapping(&CALL)),
            "The calls that the LLM made, all of them, in their order.",
        ),
        Key::optional(
            "called",
            Shape::List(&Shape::Mapping(&CALL)),
            "Calls that the LLM made, among others.",
        ),
        Key::optional("not_called", Shape::List(&Shape::Text), "Tools that it did not call."),
        Key::optional(
            "journal",
            Shape::List(&Shape::Mapping(&EVENT)),
            "Events that stand in the journal.",
        ),
        Key::optional("stderr", MATCH, "What was printed to stderr."),
    ],
    one_of: &[],
    open: false,
};

/// The statuses at which a run can stand when no process works on it.
const STATUSES: [&str; 4] = ["COMPLETED", "FAILED", "WAITING_FOR_INPUT", "INTERRUPTED"];

/// The types of events.
const EVENTS: [&str; 10] = [
    "ENGINE_START",
    "USER_MESSAGE",
    "THOUGHT",
    "ACTION_REQUEST",
    "ACTION_RESULT",
    "HUMAN_INPUT_REQUEST",
    "HUMAN_INPUT_RECEIVED",
    "ERROR",
    "HOOK_EXECUTION",
    "ENGINE_END",
];

static ERROR: Mapping = Mapping {
    what: "an expected error",
    about: "Why a run failed.",
    keys: &[
        Key::optional("type", Shape::Text, "The type of the error, such as `llm`."),
        Key::optional("message", MATCH, "Its words."),
    ],
    one_of: &[],
    open: false,
};

static CALL: Mapping = Mapping {
    what: "an expected call",
    about: "A call of a tool.",
    keys: &[
        Key::required("tool", Shape::Text, "The tool."),
        Key::optional(
            "args",
            Shape::Any,
            "Its arguments; there may be more than are written here.",
        ),
        Key::optional("observation", MATCH, "What the LLM was told of it."),
        Key::optional("exit_code", Shape::Integer(0..256), "The exit code of its program."),
    ],
    one_of: &[],
    open: false,
};

static EVENT: Mapping = Mapping {
    what: "an expected event",
    about: "An event of the journal.",
    keys: &[
        Key::required("type", Shape::Choice(&EVENTS), "Its type."),
        Key::optional("fields", Shape::Any, "Its fields; there may be more than are written here."),
        Key::optional(
            "count",
            Shape::Integer(0..1 << 32),
            "How many such events there are; one or more by default.",
        ),
    ],
    one_of: &[],
    open: false,
};

/// What a test expects of a run.
#[derive(Debug)]
pub struct Expectation {
    status: (usize, String),
    exit_code: Option<(usize, i64)>,
    /// Of parts of the RunResult: where they stand in it, and their names.
    parts: Vec<(usize, Part, Matcher)>,
    files: Vec<(usize, String, Matcher)>,
    stderr: Option<(usize, Matcher)>,
    calls: Option<(usize, Vec<Call>)>,
    called: Vec<Call>,
    not_called: Vec<(usize, String)>,
    journal: Vec<JournalEvent>,
}

/// A part of the RunResult.
#[derive(Debug, Clone, Copy)]
struct Part {
    pointer: &'static str,
    what: &'static str,
}

const RESULT: Part = Part { pointer: "/result", what: "result" };
const ERROR_TYPE: Part = Part { pointer: "/error/type", what: "error type" };
const ERROR_MESSAGE: Part = Part { pointer: "/error/message", what: "error message" };
const QUESTION: Part = Part { pointer: "/interaction/prompt", what: "question" };

#[derive(Debug)]
struct Call {
    line: usize,
    tool: String,
    args: Option<Json>,
    observation: Option<Matcher>,
    exit_code: Option<i64>,
}

#[derive(Debug)]
struct JournalEvent {
    line: usize,
    kind: String,
    fields: Json,
    count: Option<u64>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The exit code of the last process.
    pub exit_code: i64,
    /// The RunResult.
    pub result: &'a Json,
    /// The journal; empty when the run did not begin.
    pub events: &'a [Event],
    /// What all processes printed to stderr.
    pub stderr: &'a str,
    /// The workspace.
    pub workspace: &'a Path,
}

impl Expectation {
    /// Reads the section `expect:`.
    pub fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &EXPECT)?;
        if node.entries().is_empty() {
            let help = "write what has to come of it, at least `expect: {status: COMPLETED}`";
            doc.fault(node, "the test expects nothing", Some(help.to_owned()));
            return None;
        }
        let status = match (fields.given("status"), fields.get("error"), fields.get("question")) {
            (Some(given), ..) => (given.line, given.scalar()?.to_owned()),
            (None, Some(error), _) => (error.line, "FAILED".to_owned()),
            (None, None, Some(question)) => (question.line, "WAITING_FOR_INPUT".to_owned()),
            (None, None, None) => (node.line, "COMPLETED".to_owned()),
        };
        let calls = |key: &str| {
            let list = fields.list(key).iter();
            list.filter_map(|node| Call::read(doc, node)).collect::<Vec<_>>()
        };
        let stderr = fields
            .get("stderr")
            .and_then(|node| Some((node.line, Matcher::read(doc, node, "`stderr`")?)));
        let names = fields.list("not_called").iter();
        Some(Self {
            status,
            exit_code: fields
                .given("exit_code")
                .and_then(|node| Some((node.line, code(fields.integer("exit_code")?)))),
            parts: read_parts(doc, fields),
            files: read_files(doc, fields.given("files")),
            stderr,
            calls: fields.given("calls").map(|node| (node.line, calls("calls"))),
            called: calls("called"),
            not_called: names
                .filter_map(|node| Some((node.line, node.scalar()?.to_owned())))
                .collect(),
            journal: fields
                .list("journal")
                .iter()
                .filter_map(|node| JournalEvent::read(doc, node))
                .collect(),
        })
    }

    /// Everything in which `outcome` is not what is expected.
    pub fn failures(&self, outcome: &Outcome<'_>) -> Vec<Failure> {
        let mut found = Vec::new();
        let mut add = |line: usize, what: &str, differences: Vec<String>| {
            found.extend(differences.into_iter().map(|it| Failure::at(line, what, it)));
        };
        let status = outcome.result.get("status").unwrap_or(&Json::Null);
        if *status != self.status.1 {
            add(self.status.0, "status", vec![status_difference(&self.status.1, outcome)]);
            if outcome.events.is_empty() {
                // Where no run began, nothing else is as expected.
                return found;
            }
        }
        if let Some((line, code)) = self.exit_code.filter(|(_, code)| *code != outcome.exit_code) {
            add(line, "exit code", vec![format!("is {}, not {code}", outcome.exit_code)]);
        }
        for (line, part, matcher) in &self.parts {
            match outcome.result.pointer(part.pointer) {
                Some(value) => add(*line, part.what, matcher.differences(value)),
                // Said by the status already.
                None if *status != self.status.1 => {}
                None => add(*line, part.what, vec!["is not there".to_owned()]),
            }
        }
        for (line, path, matcher) in &self.files {
            let what = format!("file {}", crate::text::printable(path));
            add(*line, &what, file_differences(matcher, outcome.workspace, path));
        }
        if let Some((line, matcher)) = &self.stderr {
            add(*line, "stderr", matcher.differences(&Json::from(outcome.stderr)));
        }
        let made = Made::of(outcome.events);
        found.extend(self.of_calls(&made));
        found.extend(self.of_unknown_tools(outcome.events));
        found.extend(self.journal.iter().filter_map(|event| event.failure(outcome.events)));
        found
    }

    /// A tool that is not to be called, and that the agent does not have: it could not be.
    fn of_unknown_tools(&self, events: &[Event]) -> Vec<Failure> {
        let start = events.iter().find_map(|event| match &event.payload {
            Payload::EngineStart(start) => Some(&start.config),
            _ => None,
        });
        let Some(config) = start else { return Vec::new() };
        let has = |list: &str, name: &str| {
            config[list].as_array().is_some_and(|names| names.iter().any(|it| it == name))
        };
        let unknown = self
            .not_called
            .iter()
            .filter(|(_, name)| !has("tools", name) && !has("builtins", name));
        let failure = |(line, name): &(usize, String)| {
            Failure::at(*line, &format!("tool {name}"), "is none of the agent's")
        };
        unknown.map(failure).collect()
    }

    fn of_calls(&self, made: &[Made]) -> Vec<Failure> {
        let mut found = Vec::new();
        if let Some((line, calls)) = &self.calls {
            found.extend(in_order(*line, calls, made));
        }
        // Two that are expected are not the same one.
        let fits = |one: usize, it: usize| self.called[one].differences(&made[it]).is_empty();
        let there = assign(self.called.len(), made.len(), fits);
        for (call, _) in self.called.iter().zip(there).filter(|(_, is_there)| !is_there) {
            let of_tool: Vec<&Made> = made.iter().filter(|it| it.tool == call.tool).collect();
            let why = match of_tool.as_slice() {
                several if several.iter().any(|it| call.differences(it).is_empty()) => {
                    "was not made as often".to_owned()
                }
                [] => "was not made".to_owned(),
                [one] => call.differences(one).join("\n"),
                several => format!("was made {} times, and never like this", several.len()),
            };
            found.push(Failure::at(call.line, &format!("call of {}", call.tool), why));
        }
        let was_made = |name: &str| made.iter().any(|it| it.tool == name);
        for (line, name) in self.not_called.iter().filter(|(_, name)| was_made(name)) {
            found.push(Failure::at(*line, &format!("call of {name}"), "was made"));
        }
        // Once is enough.
        found.sort_by_key(|failure| failure.line);
        if let Some(last) = found.last_mut() {
            last.message.push_str(&listed(made));
        }
        found
    }
}

fn code(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// With the error, which says more than the status does.
fn status_difference(expected: &str, outcome: &Outcome<'_>) -> String {
    let status = outcome.result.get("status").and_then(Json::as_str).unwrap_or("not known");
    let part = |pointer: &str| outcome.result.pointer(pointer).and_then(Json::as_str);
    let why = match (part("/error/message"), part("/interaction/prompt")) {
        (Some(message), _) => {
            format!(" ({}):{}", part("/error/type").unwrap_or_default(), block(message))
        }
        (None, Some(prompt)) => format!("; it asks:{}", block(prompt)),
        (None, None) => String::new(),
    };
    format!("is {status}, not {expected}{why}")
}

/// What is expected of the parts of the RunResult.
fn read_parts(doc: &Document, fields: Fields<'_>) -> Vec<(usize, Part, Matcher)> {
    let mut parts = Vec::new();
    let mut part = |part: Part, node: Option<&Node>, what: &str| {
        let read = node.and_then(|node| Some((node.line, Matcher::read(doc, node, what)?)));
        parts.extend(read.map(|(line, matcher)| (line, part, matcher)));
    };
    part(RESULT, fields.get("result"), "`result`");
    part(QUESTION, fields.get("question"), "`question`");
    if let Some(error) = fields.get("error").and_then(|error| doc.fields(error, &ERROR)) {
        part(ERROR_TYPE, error.get("type"), "`type`");
        part(ERROR_MESSAGE, error.get("message"), "`message`");
    }
    parts
}

fn read_files(doc: &Document, node: Option<&Node>) -> Vec<(usize, String, Matcher)> {
    let Some(entries) = node.and_then(|node| doc.mapping(node, "`files`")) else {
        return Vec::new();
    };
    let read = |(key, value): &(Node, Node)| {
        let path = plain_path(doc, key)?;
        let matcher = Matcher::read_of_file(doc, value, &format!("`{path}`"))?;
        Some((key.line, path, matcher))
    };
    entries.iter().filter_map(read).collect()
}

fn file_differences(matcher: &Matcher, workspace: &Path, path: &str) -> Vec<String> {
    let file = workspace.join(path);
    let inside = |real: &Path| workspace.canonicalize().is_ok_and(|root| real.starts_with(root));
    match file.canonicalize() {
        Err(_) => matcher.differences_of_file(None, false),
        Ok(real) if !inside(&real) => vec!["leads out of the workspace".to_owned()],
        Ok(real) if real.is_dir() => matcher.differences_of_file(None, true),
        Ok(real) => match read_regular(&real) {
            Ok(bytes) => matcher.differences_of_file(Some(&bytes), false),
            Err(error) => vec![format!("cannot be read: {error}")],
        },
    }
}

/// A call that the LLM made.
struct Made {
    tool: String,
    args: Json,
    observation: Option<String>,
    exit_code: Option<i64>,
}

impl Made {
    fn of(events: &[Event]) -> Vec<Self> {
        let history = History::of(events);
        let calls = history.iterations.iter().flat_map(|iteration| &iteration.calls);
        let made = |call: &crate::history::Call<'_>| {
            let function = &call.asked.function;
            let text = crate::text::mend_surrogates(&function.arguments);
            Self {
                tool: function.name.clone(),
                args: serde_json::from_str(&text).unwrap_or_else(|_| json!(function.arguments)),
                observation: call.result.map(|it| it.what.observation_content.clone()),
                exit_code: call.result.and_then(|it| it.what.exit_code).map(i64::from),
            }
        };
        calls.map(made).collect()
    }

    /// It on one line.
    fn shown(&self) -> String {
        crate::text::one_line(&format!("{} {}", self.tool, self.args), 120)
    }
}

/// The calls that were made, behind what is wrong with them.
fn listed(made: &[Made]) -> String {
    if made.is_empty() {
        return "; there was no call".to_owned();
    }
    let lines: Vec<String> = made.iter().map(Made::shown).collect();
    format!("; the calls were:{}", block(&lines.join("\n")))
}

fn in_order(line: usize, calls: &[Call], made: &[Made]) -> Option<Failure> {
    let pairs = calls.iter().zip(made).enumerate();
    for (index, (call, made_call)) in pairs {
        let differences = call.differences(made_call);
        if !differences.is_empty() {
            let what = format!("call {}", index + 1);
            return Some(Failure::at(call.line, &what, differences.join("\n")));
        }
    }
    let (wanted, found) = (calls.len(), made.len());
    (wanted != found).then(|| Failure::at(line, "calls", format!("are {found}, not {wanted}")))
}

impl Call {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &CALL)?;
        fields.require("tool", "list_files")?;
        let observation =
            fields.get("observation").map(|node| Matcher::read(doc, node, "`observation`"));
        let args = fields.given("args");
        if let Some(node) = args {
            doc.mapping(node, "`args`")?;
        }
        Some(Self {
            line: node.line,
            tool: fields.text("tool")?.to_owned(),
            args: args.and_then(|node| doc.json(node)),
            observation: observation.flatten(),
            exit_code: fields.integer("exit_code").map(code),
        })
    }

    fn differences(&self, made: &Made) -> Vec<String> {
        if self.tool != made.tool {
            return vec![format!("is of {}, not of {}", made.tool, self.tool)];
        }
        let mut found = Vec::new();
        if let Some(args) = &self.args {
            let differs = missing(args, &made.args, "");
            found.extend(differs.map(|it| format!("has other arguments: {it}")));
        }
        if let Some(matcher) = &self.observation {
            let differences = match &made.observation {
                Some(text) => matcher.differences(&Json::from(text.as_str())),
                None => vec!["is not there".to_owned()],
            };
            found.extend(differences.into_iter().map(|it| format!("has an observation that {it}")));
        }
        if self.exit_code.is_some() && self.exit_code != made.exit_code {
            let shown = |code: Option<i64>| code.map_or("none".to_owned(), |code| code.to_string());
            let (is, not) = (shown(made.exit_code), shown(self.exit_code));
            found.push(format!("has the exit code {is}, not {not}"));
        }
        found
    }
}

impl JournalEvent {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &EVENT)?;
        fields.require("type", "ACTION_RESULT")?;
        let wanted = fields.given("fields");
        if let Some(node) = wanted {
            doc.mapping(node, "`fields`")?;
        }
        Some(Self {
            line: node.line,
            kind: fields.text("type")?.to_owned(),
            fields: wanted.map_or(Some(json!({})), |node| doc.json(node))?,
            count: fields.integer("count"),
        })
    }

    fn failure(&self, events: &[Event]) -> Option<Failure> {
        let json = |event: &Event| serde_json::from_str::<Json>(&event.to_line()).ok();
        let of_type: Vec<Json> =
            events.iter().filter_map(json).filter(|event| event["type"] == self.kind).collect();
        let fits = |event: &&Json| missing(&self.fields, event, "").is_none();
        let count = of_type.iter().filter(fits).count();
        let fine = match self.count {
            None => count > 0,
            Some(wanted) => u64::try_from(count) == Ok(wanted),
        };
        if fine {
            return None;
        }
        let wanted = self.count.map_or("at least 1".to_owned(), |count| count.to_string());
        let kind = &self.kind;
        let mut why = format!("has {count} events {kind} like this, not {wanted}");
        if !of_type.is_empty() {
            let lines: Vec<String> = of_type.iter().map(Json::to_string).collect();
            why.push_str(&format!("; of this type are:{}", block(&lines.join("\n"))));
        }
        Some(Failure::at(self.line, "journal", why))
    }
}
