//! The `script` provider: answers from a file, for examples, tests and machines without a key.
//!
//! Everything but the LLM is real. Its place in the script is a function of the journal: each answer's event names the
//! turn that it was, and the next call goes on behind it.

use super::{
    LlmError, Provider, Reply, Request, Tell, ToolCall, reply_of_response, text_of_message,
};
use crate::diag::Report;
use crate::signal::Cancel;
use crate::text;
use crate::yaml::shape::{Default, Key, Shape};
use crate::yaml::{Document, Mapping, Node};
use regex::Regex;
use serde_json::{Value as Json, json};
use std::rc::Rc;
use std::time::Duration;

/// A script file.
pub static SCRIPT: Mapping = Mapping {
    what: "a script",
    about: "Answers that stand in for an LLM.",
    keys: &[Key::required(
        "turns",
        Shape::List(&Shape::Mapping(&TURN)),
        "The answers, in their order.",
    )],
    one_of: &[],
    open: false,
};

/// A turn of a script.
pub static TURN: Mapping = Mapping {
    what: "a turn",
    about: "One answer. `${task}`, `${message}`, `${last}` and the groups of `when` are filled in.",
    keys: &[
        Key::optional("say", Shape::Text, "The text of the answer."),
        Key::optional(
            "call",
            Shape::List(&Shape::Mapping(&CALL)),
            "The tools that it calls, in their order.",
        ),
        Key::optional(
            "when",
            Shape::Text,
            "A regular expression; the turn is passed over unless the last message matches.",
        ),
        Key::optional("error", Shape::Text, "The LLM call fails with these words instead."),
        Key::with_default(
            "delay_ms",
            Shape::Integer(0..1 << 32),
            Default::Integer(0),
            "Milliseconds before it answers.",
        ),
    ],
    one_of: &[],
    open: false,
};

static CALL: Mapping = Mapping {
    what: "a call",
    about: "A tool and its arguments.",
    keys: &[
        Key::required("tool", Shape::Text, "The tool."),
        Key::optional("args", Shape::Any, "Its arguments; none by default."),
    ],
    one_of: &[],
    open: false,
};

/// A script: what is answered, turn by turn.
#[derive(Debug)]
pub struct ScriptFile {
    name: String,
    turns: Vec<Turn>,
}

#[derive(Debug)]
struct Turn {
    /// Passed over unless the last message matches.
    when: Option<Regex>,
    say: Option<String>,
    calls: Vec<(String, Json)>,
    /// The call fails with these words instead.
    error: Option<String>,
    delay_ms: u64,
}

impl ScriptFile {
    /// Reads a script; `name` is how messages call it.
    pub fn parse(name: &str, text: &str) -> Result<Self, Report> {
        let mut report = Report::default();
        let doc = match Document::parse(name, text) {
            Ok(doc) => doc,
            Err(diagnostic) => {
                report.push(diagnostic);
                return Err(report);
            }
        };
        let file = doc
            .fields(&doc.root, &SCRIPT)
            .and_then(|fields| Self::of_turns(&doc, fields.require("turns", "[{say: \"...\"}]")?));
        doc.finish(&mut report);
        match file {
            Some(file) if report.is_empty() => Ok(file),
            _ => Err(report),
        }
    }

    /// The script whose turns are the list `node`; what is wrong with them goes into the document's report.
    pub fn of_turns(doc: &Document, node: &Node) -> Option<Self> {
        let items = doc.list(node, "`turns`")?;
        let turns = items.iter().filter_map(|item| Turn::read(doc, item)).collect();
        Some(Self { name: doc.name.clone(), turns })
    }

    /// The places of the turns that answer whatever was said last: all that are not passed over.
    pub fn unconditional(&self) -> impl Iterator<Item = usize> {
        let turns = self.turns.iter().enumerate();
        turns.filter(|(_, turn)| turn.when.is_none()).map(|(place, _)| place)
    }
}

impl Turn {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &TURN)?;
        let text = |key: &str| fields.text(key).map(str::to_owned);
        let when = fields.given("when").and_then(|node| {
            let pattern = doc.text(node, "`when`")?;
            let read = Regex::new(pattern);
            if let Err(error) = &read {
                doc.fault(node, text::not_a_pattern(error), None);
            }
            read.ok()
        });
        let calls = fields.list("call").iter().filter_map(|call| read_call(doc, call));
        let turn = Self {
            when,
            say: text("say"),
            calls: calls.collect(),
            error: text("error"),
            delay_ms: fields.integer("delay_ms")?,
        };
        if turn.error.is_some() && (turn.say.is_some() || !turn.calls.is_empty()) {
            doc.fault(node, "a turn with `error` says and calls nothing", None);
        }
        Some(turn)
    }
}

fn read_call(doc: &Document, node: &Node) -> Option<(String, Json)> {
    let fields = doc.fields(node, &CALL)?;
    fields.require("tool", "list_files")?;
    let tool = fields.text("tool")?;
    let args = match fields.given("args") {
        None => json!({}),
        Some(node) => doc.json(node)?,
    };
    Some((tool.to_owned(), args))
}

/// Answers from a [`ScriptFile`].
pub(super) struct Script {
    file: Rc<ScriptFile>,
    model: String,
}

impl Script {
    pub(super) fn new(file: Rc<ScriptFile>, model: String) -> Self {
        Self { file, model }
    }

    /// The turn that is next behind `last`: the first one not used yet whose `when` fits.
    fn next_turn(&self, place: usize, last: &str) -> Option<(usize, &Turn)> {
        let fits = |turn: &Turn| turn.when.as_ref().is_none_or(|when| when.is_match(last));
        self.file.turns.iter().enumerate().skip(place).find(|(_, turn)| fits(turn))
    }
}

impl Provider for Script {
    fn complete(
        &mut self,
        request: &Request<'_>,
        cancel: &Cancel,
        _: Tell<'_>,
    ) -> Result<Reply, LlmError> {
        let last = serde_json::from_str(request.last).unwrap_or_default();
        let last = text_of_message(&last);
        let Some((index, turn)) = self.next_turn(request.script_place, &last) else {
            let name = &self.file.name;
            return Err(LlmError::failed(format!(
                "the script {name} has no more turns that fit ({} of {} are used)",
                request.script_place,
                self.file.turns.len()
            )));
        };
        if turn.delay_ms > 0 && cancel.wait(Duration::from_millis(turn.delay_ms)) {
            return Err(LlmError::Cancelled);
        }
        let filler = Filler { request, last: &last, turn };
        if let Some(error) = &turn.error {
            let message = filler.fill(error);
            return Err(LlmError::Failed {
                message,
                status: None,
                hint: None,
                response: None,
                script_turn: Some(index),
            });
        }
        let calls: Vec<ToolCall> = turn
            .calls
            .iter()
            .enumerate()
            .map(|(at, (tool, args))| {
                ToolCall::new(
                    format!("call_{}_{}", index + 1, at + 1),
                    tool.as_str(),
                    filler.fill_json(args).to_string(),
                )
            })
            .collect();
        let mut message = json!({"role": "assistant", "content": turn.say.as_deref().map(|say| filler.fill(say))});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let finish_reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason});
        let response =
            json!({"object": "chat.completion", "model": self.model, "choices": [choice]});
        let reply = reply_of_response(&response, &self.model).map_err(LlmError::failed)?;
        Ok(Reply { script_turn: Some(index), ..reply })
    }
}

/// Puts what was said into a turn's texts: `${task}`, `${message}`, `${last}`, and `${1}`... of `when`.
struct Filler<'a> {
    request: &'a Request<'a>,
    /// The text of the last message.
    last: &'a str,
    turn: &'a Turn,
}

impl Filler<'_> {
    fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let escaped = rest[..at].ends_with('\\');
            let close = rest[at..].find('}').map(|offset| at + offset);
            let value = close.and_then(|close| self.value(&rest[at + 2..close]));
            match (close, value) {
                (Some(close), Some(value)) => {
                    out.push_str(&rest[..at - usize::from(escaped)]);
                    out.push_str(if escaped { &rest[at..=close] } else { &value });
                    rest = &rest[close + 1..];
                }
                _ => {
                    out.push_str(&rest[..at + 2]);
                    rest = &rest[at + 2..];
                }
            }
        }
        out.push_str(rest);
        out
    }

    fn value(&self, name: &str) -> Option<String> {
        match name {
            "task" => Some(self.request.task.to_owned()),
            "message" => Some(self.request.message.to_owned()),
            "last" => Some(self.last.trim_end().to_owned()),
            number => {
                let captures = self.turn.when.as_ref()?.captures(self.last)?;
                let group = captures.get(number.parse().ok()?);
                Some(group.map_or(String::new(), |group| group.as_str().to_owned()))
            }
        }
    }

    fn fill_json(&self, value: &Json) -> Json {
        match value {
            Json::String(text) => Json::from(self.fill(text)),
            Json::Array(items) => items.iter().map(|item| self.fill_json(item)).collect(),
            Json::Object(entries) => Json::Object(
                entries.iter().map(|(key, value)| (key.clone(), self.fill_json(value))).collect(),
            ),
            other => other.clone(),
        }
    }
}
