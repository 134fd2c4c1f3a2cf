//! Cassettes: files with the responses of an LLM, for tests without a key and without a network.
//!
//! Each line is JSON: the first line is the header, every other line a response. The provider ignores the hashes of the
//! requests; the program that replays the cassette compares them.

use delta_base::{error_text, terminal_text};
use delta_words::{RecordedCall, Reply, parse_reply};
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The version of the format.
const VERSION: u32 = 1;
/// The help of every diagnostic about a cassette.
const RECORD_HELP: &str = "record it again: `delta test --record`";

/// The responses of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Cassette {
    /// The first line.
    pub header: CassetteHeader,
    /// The responses, in order.
    pub answers: Vec<CassetteAnswer>,
}

/// The first line of a cassette.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CassetteHeader {
    /// The version of the format.
    cassette: u32,
    /// The name of the agent that sent the requests.
    pub agent: String,
    /// The provider of the responses: `openai`, `script` or `command`.
    pub provider: String,
    /// The model of the requests.
    pub model: String,
}

impl CassetteHeader {
    /// The first line of a new cassette.
    pub fn new(agent: &str, provider: &str, model: &str) -> Self {
        Self {
            cassette: VERSION,
            agent: agent.to_owned(),
            provider: provider.to_owned(),
            model: model.to_owned(),
        }
    }
}

/// A response on a cassette.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CassetteAnswer {
    /// Its number in the run, from 1.
    pub iteration: u32,
    /// The SHA-256 of the request, in hexadecimal digits.
    pub request_sha256: String,
    /// The response body as received.
    pub response: Json,
    /// The indices of the tool calls that were not run, because their arguments contained a key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted_calls: Vec<usize>,
}

impl Cassette {
    /// Parses a cassette; diagnostics call it `name`.
    ///
    /// # Errors
    /// A diagnostic for each malformed line.
    pub fn parse(name: &str, text: &str) -> Result<Self, DiagnosticReport> {
        let mut report = DiagnosticReport::default();
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let header = match parse_header(first) {
            Ok(header) => Some(header),
            Err(message) => {
                report.push(line_diagnostic(name, 1, first, message));
                None
            }
        };
        let mut answers = Vec::new();
        for (number, line) in (2..).zip(lines) {
            match parse_answer(line) {
                Ok(answer) => answers.push(answer),
                Err(message) => report.push(line_diagnostic(name, number, line, message)),
            }
        }
        match header {
            Some(header) if report.is_empty() => Ok(Self { header, answers }),
            _ => Err(report),
        }
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string(&self.header).unwrap_or_default();
        text.push('\n');
        for answer in &self.answers {
            text.push_str(&serde_json::to_string(answer).unwrap_or_default());
            text.push('\n');
        }
        text
    }

    /// The calls that the `recorded` provider replays.
    pub(super) fn recorded_calls(&self) -> Vec<RecordedCall> {
        let calls = self.answers.iter().map(|answer| RecordedCall {
            request_sha256: answer.request_sha256.clone(),
            result: parse_reply(&answer.response, &self.header.model)
                .map(|reply| Reply { redacted_calls: answer.redacted_calls.clone(), ..reply }),
        });
        calls.collect()
    }
}

fn parse_header(line: &str) -> Result<CassetteHeader, String> {
    let header: CassetteHeader = serde_json::from_str(line).map_err(|error| {
        let error = error_text::describe_json_error(&error);
        format!("expected the header of a cassette: {error}")
    })?;
    if header.cassette == VERSION {
        Ok(header)
    } else {
        Err(format!("expected a cassette of version {VERSION}, found version {}", header.cassette))
    }
}

fn parse_answer(line: &str) -> Result<CassetteAnswer, String> {
    let answer = serde_json::from_str::<CassetteAnswer>(line)
        .map_err(|error| error_text::describe_json_error(&error))
        .and_then(|answer| parse_reply(&answer.response, "").map(|_| answer));
    answer.map_err(|error| format!("expected a response: {error}"))
}

fn line_diagnostic(name: &str, line: usize, text: &str, message: String) -> Diagnostic {
    let source = terminal_text::truncate_to_line(&terminal_text::strip_terminal_controls(text), 80);
    Diagnostic {
        file: name.to_owned(),
        line,
        column: 1,
        width: source.chars().count().max(1),
        source,
        message,
        help: Some(RECORD_HELP.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_17_5_a_cassette_reads_back_as_it_was_written() {
        let response = json!({"choices": [{"message": {"content": "hello\n"}}], "z": 1, "a": 2});
        let answer = CassetteAnswer {
            iteration: 1,
            request_sha256: "00ff".to_owned(),
            response,
            redacted_calls: Vec::new(),
        };
        let cassette =
            Cassette { header: CassetteHeader::new("a", "openai", "m"), answers: vec![answer] };
        let text = cassette.to_text();
        assert_eq!(
            text,
            "{\"cassette\":1,\"agent\":\"a\",\"provider\":\"openai\",\"model\":\"m\"}\n\
             {\"iteration\":1,\"request_sha256\":\"00ff\",\"response\":{\"choices\":[{\"message\":{\"content\":\"hello\\n\"}}],\"z\":1,\"a\":2}}\n"
        );
        assert_eq!(Cassette::parse("x", &text).unwrap(), cassette);
    }

    #[test]
    fn c_17_5_every_malformed_line_is_reported() {
        let text = "{\"cassette\":2,\"agent\":\"\",\"provider\":\"\",\"model\":\"\"}\n{}\n\n";
        let report = Cassette::parse("x.jsonl", text).unwrap_err();
        let messages: Vec<_> =
            report.diagnostics.iter().map(|it| (it.line, &*it.message)).collect();
        assert_eq!(
            messages,
            [
                (1, "expected a cassette of version 1, found version 2"),
                (2, "expected a response: there is no `iteration`"),
                (3, "expected a response: incomplete JSON"),
            ]
        );
        assert!(Cassette::parse("x.jsonl", "").is_err());
    }
}
