//! What a test expects of a run, and the comparison with what the run did.

use super::bipartite_matching::maximum_matching;
use super::matcher::{FILE_MATCH_SHAPE, MATCH_SHAPE, Matcher, inclusion_difference, quote_block};
use super::{TestFailure, read_workspace_path};
use delta_base::durable::read_regular;
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_run::conversation::history::{CallHistory, RunHistory};
use delta_run::event::image_file::text_with_images;
use delta_run::event::{Event, Payload};
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingFields, MappingSchema, YamlDocument, YamlNode};
use serde_json::{Value as Json, json};
use std::path::Path;

/// The keys of the section `expect:` of a test.
pub static EXPECT_MAPPING: MappingSchema = MappingSchema::new(
    "`expect`",
    "The expected outcome of the run.",
    &[
        KeySchema::optional(
            "status",
            ValueShape::Choice(&RUN_STATUSES),
            "The status of the run at the end; by default FAILED with `error`, WAITING_FOR_INPUT with `question`, otherwise COMPLETED.",
        ),
        KeySchema::optional(
            "exit_code",
            ValueShape::Integer(0..256),
            "The exit code of the last process.",
        ),
        KeySchema::optional("result", MATCH_SHAPE, "The result of the run."),
        KeySchema::optional("error", ValueShape::Mapping(&ERROR_MAPPING), "The error of the run."),
        KeySchema::optional("question", MATCH_SHAPE, "The question that the run ends with."),
        KeySchema::optional(
            "files",
            ValueShape::MapOf(&FILE_MATCH_SHAPE),
            "Paths in the workspace, each with the expected content.",
        ),
        KeySchema::optional(
            "calls",
            ValueShape::List(&ValueShape::Mapping(&CALL_MAPPING)),
            "All calls of the LLM, in their order.",
        ),
        KeySchema::optional(
            "called",
            ValueShape::List(&ValueShape::Mapping(&CALL_MAPPING)),
            "Calls that must be among the calls of the LLM.",
        ),
        KeySchema::optional(
            "not_called",
            ValueShape::List(&ValueShape::Text),
            "Tools that the LLM must not call.",
        ),
        KeySchema::optional(
            "journal",
            ValueShape::List(&ValueShape::Mapping(&EVENT_MAPPING)),
            "Events of the journal.",
        ),
        KeySchema::optional(
            "stderr",
            MATCH_SHAPE,
            "What all processes of the run print to stderr.",
        ),
    ],
);

/// The statuses of a run on which no process works.
const RUN_STATUSES: [&str; 4] = ["COMPLETED", "FAILED", "WAITING_FOR_INPUT", "INTERRUPTED"];

const EVENT_TYPES: [&str; 12] = [
    "ENGINE_START",
    "USER_MESSAGE",
    "THOUGHT",
    "ACTION_REQUEST",
    "ACTION_RESULT",
    "HUMAN_INPUT_REQUEST",
    "HUMAN_INPUT_RECEIVED",
    "APPROVAL_REQUEST",
    "APPROVAL_DECISION",
    "ERROR",
    "HOOK_EXECUTION",
    "ENGINE_END",
];

static ERROR_MAPPING: MappingSchema = MappingSchema::new(
    "an expected error",
    "The error of a run.",
    &[
        KeySchema::optional("type", ValueShape::Text, "The type of the error, such as `llm`."),
        KeySchema::optional("message", MATCH_SHAPE, "The message of the error."),
    ],
);

static CALL_MAPPING: MappingSchema = MappingSchema::new(
    "an expected call",
    "A call of a tool.",
    &[
        KeySchema::required("tool", ValueShape::Text, "The name of the tool."),
        KeySchema::optional(
            "args",
            ValueShape::MapOf(&ValueShape::Any),
            "Arguments of the call, which may have more.",
        ),
        KeySchema::optional("observation", MATCH_SHAPE, "What the LLM sees as the result."),
        KeySchema::optional(
            "exit_code",
            ValueShape::Integer(0..256),
            "The exit code of the tool's program.",
        ),
    ],
);

static EVENT_MAPPING: MappingSchema = MappingSchema::new(
    "an expected event",
    "An event of the journal.",
    &[
        KeySchema::required("type", ValueShape::Choice(&EVENT_TYPES), "The type of the event."),
        KeySchema::optional(
            "fields",
            ValueShape::MapOf(&ValueShape::Any),
            "Fields of the event, which may have more.",
        ),
        KeySchema::optional(
            "count",
            ValueShape::Integer(0..1 << 32),
            "How many such events the journal has; one or more by default.",
        ),
    ],
);

/// What a test expects of a run.
#[derive(Debug)]
pub struct Expectation {
    status: WithLine<String>,
    exit_code: Option<WithLine<i64>>,
    result_parts: Vec<WithLine<(ResultPart, Matcher)>>,
    /// Paths in the workspace.
    files: Vec<WithLine<(String, Matcher)>>,
    stderr: Option<WithLine<Matcher>>,
    calls: Option<WithLine<Vec<ExpectedCall>>>,
    called: Vec<ExpectedCall>,
    not_called: Vec<WithLine<String>>,
    journal: Vec<ExpectedEvent>,
}

/// A value and the line of the test that has it.
#[derive(Debug)]
struct WithLine<T> {
    line: usize,
    value: T,
}

/// A part of the RunResult.
#[derive(Debug, Clone, Copy)]
struct ResultPart {
    /// The JSON pointer to the part.
    pointer: &'static str,
    /// The name of the part in failures.
    name: &'static str,
}

const RESULT_PART: ResultPart = ResultPart { pointer: "/result", name: "result" };
const ERROR_TYPE_PART: ResultPart = ResultPart { pointer: "/error/type", name: "error type" };
const ERROR_MESSAGE_PART: ResultPart =
    ResultPart { pointer: "/error/message", name: "error message" };
const QUESTION_PART: ResultPart = ResultPart { pointer: "/interaction/prompt", name: "question" };

#[derive(Debug)]
struct ExpectedCall {
    line: usize,
    tool: String,
    args: Option<Json>,
    observation: Option<Matcher>,
    exit_code: Option<i64>,
}

#[derive(Debug)]
struct ExpectedEvent {
    line: usize,
    kind: String,
    fields: Json,
    count: Option<u64>,
}

/// What the run of a test did.
#[derive(Debug)]
pub struct TestOutcome<'a> {
    /// The exit code of the last process.
    pub exit_code: i64,
    /// The RunResult of the last process; null if it printed none.
    pub result: &'a Json,
    /// The journal; empty if no run was created.
    pub events: &'a [Event],
    /// What all processes printed to stderr.
    pub stderr: &'a str,
    /// The directory in which the run worked.
    pub workspace: &'a Path,
}

impl Expectation {
    /// Reads the section `expect:`; reports its errors to `doc`.
    pub fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let fields = doc.fields(node, &EXPECT_MAPPING)?;
        if node.entries().is_empty() {
            let help = "write the expected outcome, at least `expect: {status: COMPLETED}`";
            doc.report(node, "`expect` is empty", help);
            return None;
        }
        let status = read_status(node, fields)?;
        let exit_code = fields.non_null("exit_code").and_then(|node| {
            let value = to_exit_code(fields.integer("exit_code")?);
            Some(WithLine { line: node.line, value })
        });
        let stderr = fields.get("stderr").and_then(|node| {
            Some(WithLine { line: node.line, value: Matcher::read(doc, node, "`stderr`")? })
        });
        let calls = fields
            .non_null("calls")
            .map(|node| WithLine { line: node.line, value: read_calls(doc, fields, "calls") });
        let not_called = fields.list("not_called").iter().filter_map(|node| {
            Some(WithLine { line: node.line, value: node.scalar()?.to_owned() })
        });
        let journal = fields.list("journal").iter();
        Some(Self {
            status,
            exit_code,
            result_parts: read_result_parts(doc, fields),
            files: read_expected_files(doc, fields.non_null("files")),
            stderr,
            calls,
            called: read_calls(doc, fields, "called"),
            not_called: not_called.collect(),
            journal: journal.filter_map(|node| ExpectedEvent::read(doc, node)).collect(),
        })
    }

    /// Every mismatch between `outcome` and the expectation.
    pub fn check(&self, outcome: &TestOutcome<'_>) -> Vec<TestFailure> {
        let mut failures = Vec::new();
        let status = outcome.result.get("status").unwrap_or(&Json::Null);
        let has_status = *status == self.status.value;
        if !has_status {
            let message = status_difference(&self.status.value, outcome);
            failures.push(TestFailure::at_line(self.status.line, "status", message));
            if outcome.events.is_empty() {
                // Without a run, nothing else can match.
                return failures;
            }
        }
        let mut add = |line: usize, subject: &str, differences: Vec<String>| {
            failures.extend(
                differences.into_iter().map(|message| TestFailure::at_line(line, subject, message)),
            );
        };
        if let Some(expected) = &self.exit_code
            && expected.value != outcome.exit_code
        {
            let message = format!("is {}, not {}", outcome.exit_code, expected.value);
            add(expected.line, "exit code", vec![message]);
        }
        for WithLine { line, value: (part, matcher) } in &self.result_parts {
            match outcome.result.pointer(part.pointer) {
                Some(value) => add(*line, part.name, matcher.differences(value)),
                // The failure about the status explains it.
                None if !has_status => {}
                None => add(*line, part.name, vec!["is missing".to_owned()]),
            }
        }
        for WithLine { line, value: (path, matcher) } in &self.files {
            let subject = format!("file {}", strip_terminal_controls(path));
            add(*line, &subject, compare_file(matcher, outcome.workspace, path));
        }
        if let Some(WithLine { line, value: matcher }) = &self.stderr {
            add(*line, "stderr", matcher.differences(&Json::from(outcome.stderr)));
        }
        failures.extend(self.check_calls(&ActualCall::from_events(outcome.events)));
        failures.extend(self.check_unknown_tools(outcome.events));
        failures.extend(self.journal.iter().filter_map(|event| event.check(outcome.events)));
        failures
    }

    /// Reports the tools of `not_called` that the agent does not have, so that no run could call them.
    fn check_unknown_tools(&self, events: &[Event]) -> Vec<TestFailure> {
        let start = events.iter().find_map(|event| match &event.payload {
            Payload::EngineStart(start) => Some(&start.config),
            _ => None,
        });
        let Some(config) = start else { return Vec::new() };
        self.not_called
            .iter()
            .filter(|tool| !config.has_tool(&tool.value) && !config.has_builtin(&tool.value))
            .map(|tool| {
                let subject = format!("tool {}", tool.value);
                TestFailure::at_line(tool.line, &subject, "is not a tool of the agent")
            })
            .collect()
    }

    fn check_calls(&self, actual: &[ActualCall]) -> Vec<TestFailure> {
        let mut failures = Vec::new();
        if let Some(expected) = &self.calls {
            failures.extend(compare_call_sequence(expected, actual));
        }
        // Two expected calls need two different actual calls.
        let has_partner = maximum_matching(self.called.len(), actual.len(), |index, other| {
            self.called[index].differences(&actual[other]).is_empty()
        });
        let unmatched = self.called.iter().zip(has_partner).filter(|(_, has_partner)| !has_partner);
        failures.extend(unmatched.map(|(call, _)| call.missing_failure(actual)));
        for tool in &self.not_called {
            if actual.iter().any(|call| call.tool == tool.value) {
                let subject = format!("call of {}", tool.value);
                failures.push(TestFailure::at_line(tool.line, &subject, "was made"));
            }
        }
        failures.sort_by_key(|failure| failure.line);
        // One list of the calls is enough for all failures.
        if let Some(last) = failures.last_mut() {
            // A quoted text ends the message so far: its last line must stay as it is.
            let separator = if last.message.contains('\n') { "\n" } else { "; " };
            last.message.push_str(&format!("{separator}{}", list_calls(actual)));
        }
        failures
    }
}

fn to_exit_code(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The expected status, or the default that follows from the other expectations.
fn read_status(node: &YamlNode, fields: MappingFields<'_>) -> Option<WithLine<String>> {
    if let Some(status) = fields.non_null("status") {
        return Some(WithLine { line: status.line, value: status.scalar()?.to_owned() });
    }
    let (line, status) = if let Some(error) = fields.get("error") {
        (error.line, "FAILED")
    } else if let Some(question) = fields.get("question") {
        (question.line, "WAITING_FOR_INPUT")
    } else {
        (node.line, "COMPLETED")
    };
    Some(WithLine { line, value: status.to_owned() })
}

/// The message about another status, with the error or the question of the run.
fn status_difference(expected: &str, outcome: &TestOutcome<'_>) -> String {
    let status = outcome.result.get("status").and_then(Json::as_str).unwrap_or("unknown");
    let part = |part: ResultPart| outcome.result.pointer(part.pointer).and_then(Json::as_str);
    let reason = if let Some(message) = part(ERROR_MESSAGE_PART) {
        let kind = part(ERROR_TYPE_PART).unwrap_or_default();
        format!(" ({kind}):{}", quote_block(message))
    } else if let Some(question) = part(QUESTION_PART) {
        format!("; it asks:{}", quote_block(question))
    } else {
        String::new()
    };
    format!("is {status}, not {expected}{reason}")
}

fn read_result_parts(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
) -> Vec<WithLine<(ResultPart, Matcher)>> {
    let error = fields.get("error").and_then(|error| doc.fields(error, &ERROR_MAPPING));
    let parts = [
        (RESULT_PART, fields.get("result"), "`result`"),
        (QUESTION_PART, fields.get("question"), "`question`"),
        (ERROR_TYPE_PART, error.and_then(|error| error.get("type")), "`type`"),
        (ERROR_MESSAGE_PART, error.and_then(|error| error.get("message")), "`message`"),
    ];
    let parts = parts.into_iter().filter_map(|(part, node, label)| {
        let node = node?;
        let value = (part, Matcher::read(doc, node, label)?);
        Some(WithLine { line: node.line, value })
    });
    parts.collect()
}

fn read_expected_files(
    doc: &YamlDocument,
    node: Option<&YamlNode>,
) -> Vec<WithLine<(String, Matcher)>> {
    let entries = node.and_then(|node| doc.expect_mapping(node, "`files`")).unwrap_or_default();
    let files = entries.iter().filter_map(|(key, value)| {
        let path = read_workspace_path(doc, key)?;
        let matcher = Matcher::read_for_file(doc, value, &format!("`{path}`"))?;
        Some(WithLine { line: key.line, value: (path, matcher) })
    });
    files.collect()
}

fn compare_file(matcher: &Matcher, workspace: &Path, path: &str) -> Vec<String> {
    let Ok(file) = workspace.join(path).canonicalize() else {
        return matcher.file_differences(None, false);
    };
    if !workspace.canonicalize().is_ok_and(|root| file.starts_with(root)) {
        return vec!["is outside the workspace, through a symlink".to_owned()];
    }
    if file.is_dir() {
        return matcher.file_differences(None, true);
    }
    match read_regular(&file) {
        Ok(bytes) => matcher.file_differences(Some(&bytes), false),
        Err(error) => vec![format!("could not be read: {error}")],
    }
}

/// A call that the LLM made.
struct ActualCall {
    tool: String,
    args: Json,
    observation: Option<String>,
    exit_code: Option<i64>,
}

impl ActualCall {
    fn from_events(events: &[Event]) -> Vec<Self> {
        let history = RunHistory::from_events(events);
        let calls = history.iterations.iter().flat_map(|iteration| &iteration.calls);
        calls.map(Self::from_history).collect()
    }

    fn from_history(call: &CallHistory<'_>) -> Self {
        let function = &call.tool_call.function;
        Self {
            tool: function.name.clone(),
            args: function.arguments.to_value(),
            observation: call.result.map(|result| {
                let result = &result.value;
                text_with_images(&result.observation_content, &result.images).into_owned()
            }),
            exit_code: call.result.and_then(|result| result.value.exit_code).map(i64::from),
        }
    }

    fn to_line(&self) -> String {
        truncate_to_line(&format!("{} {}", self.tool, self.args), 120)
    }
}

/// The end of a message, which lists the calls of the run.
fn list_calls(actual: &[ActualCall]) -> String {
    if actual.is_empty() {
        return "the LLM made no call".to_owned();
    }
    let lines: Vec<String> = actual.iter().map(ActualCall::to_line).collect();
    format!("the calls were:{}", quote_block(&lines.join("\n")))
}

/// Compares all calls in their order; returns the first mismatch.
fn compare_call_sequence(
    expected: &WithLine<Vec<ExpectedCall>>,
    actual: &[ActualCall],
) -> Option<TestFailure> {
    for (index, (call, actual_call)) in expected.value.iter().zip(actual).enumerate() {
        let differences = call.differences(actual_call);
        if !differences.is_empty() {
            let subject = format!("call {}", index + 1);
            return Some(TestFailure::at_line(call.line, &subject, differences.join("\n")));
        }
    }
    let expected_count = expected.value.len();
    (expected_count != actual.len()).then(|| {
        let message = format!("is {}, not {expected_count}", actual.len());
        TestFailure::at_line(expected.line, "number of calls", message)
    })
}

fn read_calls(doc: &YamlDocument, fields: MappingFields<'_>, key: &str) -> Vec<ExpectedCall> {
    fields.list(key).iter().filter_map(|node| ExpectedCall::read(doc, node)).collect()
}

impl ExpectedCall {
    fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let fields = doc.fields(node, &CALL_MAPPING)?;
        fields.require("tool", "list_files")?;
        let observation =
            fields.get("observation").and_then(|node| Matcher::read(doc, node, "`observation`"));
        let args = fields.non_null("args");
        if let Some(node) = args {
            doc.expect_mapping(node, "`args`")?;
        }
        Some(Self {
            line: node.line,
            tool: fields.text("tool")?.to_owned(),
            args: args.and_then(|node| doc.to_json(node)),
            observation,
            exit_code: fields.integer("exit_code").map(to_exit_code),
        })
    }

    /// The predicates of sentences that say how `actual` differs from this call.
    fn differences(&self, actual: &ActualCall) -> Vec<String> {
        if self.tool != actual.tool {
            return vec![format!("is of the tool {}, not {}", actual.tool, self.tool)];
        }
        let mut differences = Vec::new();
        if let Some(args) = &self.args {
            let difference = inclusion_difference(args, &actual.args, "");
            differences.extend(difference.map(|text| format!("has other arguments: {text}")));
        }
        if let Some(matcher) = &self.observation {
            match &actual.observation {
                Some(text) => {
                    let texts = matcher.differences(&Json::from(text.as_str()));
                    let texts = texts.iter().map(|text| format!("has an observation that {text}"));
                    differences.extend(texts);
                }
                None => differences.push("has no observation".to_owned()),
            }
        }
        if let Some(expected) = self.exit_code
            && actual.exit_code != Some(expected)
        {
            let mut difference = match actual.exit_code {
                Some(code) => format!("has the exit code {code}, not {expected}"),
                None => format!("has no exit code, but {expected} is expected"),
            };
            // The observation says why, unless it is in the list already.
            if let Some(observation) =
                actual.observation.as_ref().filter(|_| differences.is_empty())
            {
                difference.push_str(&format!("; its observation is:{}", quote_block(observation)));
            }
            differences.push(difference);
        }
        differences
    }

    /// The failure for a call of `called` that has no partner among the actual calls.
    fn missing_failure(&self, actual: &[ActualCall]) -> TestFailure {
        let same_tool: Vec<&ActualCall> =
            actual.iter().filter(|call| call.tool == self.tool).collect();
        let message = match same_tool.as_slice() {
            calls if calls.iter().any(|call| self.differences(call).is_empty()) => {
                "was made fewer times than expected".to_owned()
            }
            [] => "was not made".to_owned(),
            [only] => self.differences(only).join("\n"),
            calls => format!("was made {} times, but never like this", calls.len()),
        };
        TestFailure::at_line(self.line, &format!("call of {}", self.tool), message)
    }
}

impl ExpectedEvent {
    fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let fields = doc.fields(node, &EVENT_MAPPING)?;
        fields.require("type", "ACTION_RESULT")?;
        let event_fields = fields.non_null("fields");
        if let Some(node) = event_fields {
            doc.expect_mapping(node, "`fields`")?;
        }
        Some(Self {
            line: node.line,
            kind: fields.text("type")?.to_owned(),
            fields: event_fields.map_or(Some(json!({})), |node| doc.to_json(node))?,
            count: fields.integer("count"),
        })
    }

    fn check(&self, events: &[Event]) -> Option<TestFailure> {
        let same_type: Vec<Json> = events
            .iter()
            .filter_map(|event| serde_json::from_str::<Json>(&event.to_line()).ok())
            .filter(|event| event["type"] == self.kind)
            .collect();
        let matching = same_type
            .iter()
            .filter(|event| inclusion_difference(&self.fields, event, "").is_none());
        let count = matching.count();
        let is_expected = match self.count {
            None => count > 0,
            Some(expected) => u64::try_from(count) == Ok(expected),
        };
        if is_expected {
            return None;
        }
        let expected = self.count.map_or("at least 1".to_owned(), |count| count.to_string());
        let kind = &self.kind;
        let mut message = format!("has {count} matching {kind} events, not {expected}");
        let scores: Vec<usize> =
            same_type.iter().map(|event| self.matching_fields(event)).collect();
        let best_score = scores.iter().max();
        let closest: Vec<String> = same_type
            .iter()
            .zip(&scores)
            .filter(|(_, score)| Some(*score) == best_score)
            .map(|(event, _)| event.to_string())
            .collect();
        let subject = match (closest.len(), same_type.len()) {
            (0, _) => String::new(),
            (printed, all) if printed == all => "; the events of this type are:".to_owned(),
            (_, all) => format!("; of the {all} events of this type, the closest are:"),
        };
        message.push_str(&subject);
        message.push_str(&quote_block(&closest.join("\n")));
        Some(TestFailure::at_line(self.line, "journal", message))
    }

    /// How many of the expected fields an event has.
    fn matching_fields(&self, event: &Json) -> usize {
        let fields = self.fields.as_object().into_iter().flatten();
        fields
            .filter(|(name, value)| {
                inclusion_difference(&json!({name.as_str(): value}), event, "").is_none()
            })
            .count()
    }
}
