//! Cassettes: the answers that an LLM gave in a run, as a file, for tests without a key and without a network.
//!
//! A file of JSON lines: the first says whose answers they are, each other one is an answer. The hashes of the requests
//! are compared by those who replay it; to the provider they mean nothing.

use super::recorded::Recording;
use super::reply_of_response;
use crate::diag::{Diagnostic, Report};
use crate::text;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The version of the format.
const VERSION: u32 = 1;
/// What to do about a file that is none.
const HELP: &str = "record it again: `delta test --record`";

/// The answers of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Cassette {
    /// Whose answers they are.
    pub head: Head,
    /// They, in their order.
    pub answers: Vec<Answer>,
}

/// The first line of a cassette.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The version of the format.
    cassette: u32,
    /// The name of the agent that asked.
    pub agent: String,
    /// How the LLM was reached: `openai`, `script` or `command`.
    pub provider: String,
    /// The model that was asked.
    pub model: String,
}

impl Head {
    /// The first line of a new cassette.
    pub fn new(agent: &str, provider: &str, model: &str) -> Self {
        let [agent, provider, model] = [agent, provider, model].map(str::to_owned);
        Self { cassette: VERSION, agent, provider, model }
    }
}

/// An answer on a cassette.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its number in the run.
    pub iteration: u32,
    /// The hash of the request, in hexadecimal digits.
    pub request_sha256: String,
    /// The body of the answer, as it came.
    pub response: Json,
}

impl Cassette {
    /// Reads a cassette; `name` is how messages call it.
    ///
    /// # Errors
    /// Every line that is not what was written.
    pub fn parse(name: &str, text: &str) -> Result<Self, Report> {
        let mut report = Report::default();
        let mut fault = |line: usize, source: &str, message: String| {
            let source = text::one_line(&text::printable(source), 80);
            let width = source.chars().count().max(1);
            let (file, help) = (name.to_owned(), Some(HELP.to_owned()));
            report.push(Diagnostic { file, line, column: 1, source, width, message, help });
        };
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let first = lines.next().map_or("", |(_, line)| line);
        let head = match serde_json::from_str::<Head>(first) {
            Ok(head) if head.cassette == VERSION => Some(head),
            Ok(head) => {
                let version = head.cassette;
                fault(1, first, format!("the cassette has the version {version}, not {VERSION}"));
                None
            }
            Err(error) => {
                let error = text::of_json(&error);
                fault(1, first, format!("this is not the first line of a cassette: {error}"));
                None
            }
        };
        let mut answers = Vec::new();
        for (number, line) in lines {
            let read = serde_json::from_str::<Answer>(line).map_err(|error| text::of_json(&error));
            let whole =
                read.and_then(|answer| reply_of_response(&answer.response, "").map(|_| answer));
            match whole {
                Ok(answer) => answers.push(answer),
                Err(error) => fault(number, line, format!("this is not an answer: {error}")),
            }
        }
        match head {
            Some(head) if report.is_empty() => Ok(Self { head, answers }),
            _ => Err(report),
        }
    }

    /// The file.
    pub fn to_text(&self) -> String {
        let mut out = serde_json::to_string(&self.head).unwrap_or_default();
        out.push('\n');
        for answer in &self.answers {
            out.push_str(&serde_json::to_string(answer).unwrap_or_default());
            out.push('\n');
        }
        out
    }

    /// The answers as the provider takes them.
    pub(super) fn recordings(&self) -> Vec<Recording> {
        let recording = |answer: &Answer| Recording {
            request_sha256: answer.request_sha256.clone(),
            answer: reply_of_response(&answer.response, &self.head.model),
        };
        self.answers.iter().map(recording).collect()
    }
}

/// Whether the LLM was asked for streams that ENGINE_START describes so. A request to a recording is the recorded one.
pub fn was_streamed(llm: &Json) -> bool {
    llm.get("recorded").unwrap_or(&llm["provider"]) == "openai"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_17_5_a_cassette_reads_back_as_it_was_written() {
        let response = json!({"choices": [{"message": {"content": "hello\n"}}], "z": 1, "a": 2});
        let answer = Answer { iteration: 1, request_sha256: "00ff".to_owned(), response };
        let cassette = Cassette { head: Head::new("a", "openai", "m"), answers: vec![answer] };
        let text = cassette.to_text();
        assert_eq!(
            text,
            "{\"cassette\":1,\"agent\":\"a\",\"provider\":\"openai\",\"model\":\"m\"}\n\
             {\"iteration\":1,\"request_sha256\":\"00ff\",\"response\":{\"choices\":[{\"message\":{\"content\":\"hello\\n\"}}],\"z\":1,\"a\":2}}\n"
        );
        assert_eq!(Cassette::parse("x", &text).unwrap(), cassette);
    }

    #[test]
    fn c_17_5_every_line_that_is_none_is_told() {
        let text = "{\"cassette\":2,\"agent\":\"\",\"provider\":\"\",\"model\":\"\"}\n{}\n\n";
        let report = Cassette::parse("x.jsonl", text).unwrap_err();
        let told: Vec<_> = report.diagnostics.iter().map(|it| (it.line, &*it.message)).collect();
        assert_eq!(
            told,
            [
                (1, "the cassette has the version 2, not 1"),
                (2, "this is not an answer: there is no `iteration`"),
                (3, "this is not an answer: EOF while parsing a value"),
            ]
        );
        assert!(Cassette::parse("x.jsonl", "").is_err());
    }
}
