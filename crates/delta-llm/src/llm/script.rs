//! The `script` provider: replies from a file, for examples, tests and machines without a key.
//!
//! The journal determines the next turn: each event of a reply has the index of its turn, and the next call starts with
//! the turn after it.

use super::{CallObserver, LlmError, LlmRequest, Provider};
use delta_base::error_text;
use delta_base::signal::CancelToken;
use delta_words::{Reply, ToolCall, message_text, parse_reply};
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use regex::Regex;
use serde_json::{Value as Json, json};
use std::rc::Rc;
use std::time::Duration;

/// A script file.
pub static SCRIPT_MAPPING: MappingSchema = MappingSchema::new(
    "a script",
    "Replies to use instead of an LLM.",
    &[KeySchema::required(
        "turns",
        ValueShape::List(&ValueShape::Mapping(&TURN_MAPPING)),
        "The replies, in order.",
    )],
);

/// A turn of a script.
pub static TURN_MAPPING: MappingSchema = MappingSchema::new(
    "a turn",
    "One reply. delta fills in `${task}`, `${message}`, `${last}` and the groups of `when`.",
    &[
        KeySchema::optional("say", ValueShape::Text, "The text of the reply."),
        KeySchema::optional(
            "call",
            ValueShape::List(&ValueShape::Mapping(&SCRIPT_CALL_MAPPING)),
            "The tool calls of the reply, in order.",
        ),
        KeySchema::optional(
            "when",
            ValueShape::Text,
            "A regular expression; the turn is skipped unless the last message matches.",
        ),
        KeySchema::optional(
            "error",
            ValueShape::Text,
            "The LLM call fails with this message instead.",
        ),
        KeySchema::with_default(
            "delay_ms",
            ValueShape::Milliseconds(0..1 << 32),
            DefaultValue::Integer(0),
            "The delay before the reply, in milliseconds.",
        ),
        KeySchema::optional(
            "usage",
            ValueShape::Mapping(&SCRIPT_USAGE_MAPPING),
            "The tokens that the reply reports.",
        ),
    ],
);

static SCRIPT_CALL_MAPPING: MappingSchema = MappingSchema::new(
    "a call",
    "A tool and its arguments.",
    &[
        KeySchema::required("tool", ValueShape::Text, "The name of the tool."),
        KeySchema::optional("args", ValueShape::Any, "Its arguments; none by default."),
    ],
);

static SCRIPT_USAGE_MAPPING: MappingSchema = MappingSchema::new(
    "the usage of a turn",
    "The tokens that a reply reports, as an endpoint does.",
    &[
        KeySchema::with_default(
            "input_tokens",
            ValueShape::TokenCount(0..1 << 32),
            DefaultValue::Integer(0),
            "The tokens of the request.",
        ),
        KeySchema::with_default(
            "cached_input_tokens",
            ValueShape::TokenCount(0..1 << 32),
            DefaultValue::Integer(0),
            "How many of them came from the cache.",
        ),
        KeySchema::with_default(
            "output_tokens",
            ValueShape::TokenCount(0..1 << 32),
            DefaultValue::Integer(0),
            "The tokens of the reply.",
        ),
    ],
);

/// A script, as loaded from its file or from the `turns` of a test.
#[derive(Debug)]
pub struct ScriptFile {
    name: String,
    turns: Vec<ScriptTurn>,
}

#[derive(Debug)]
struct ScriptTurn {
    /// The turn is skipped unless the last message matches.
    when: Option<Regex>,
    say: Option<String>,
    calls: Vec<ScriptCall>,
    /// The call of the LLM fails with this message.
    error: Option<String>,
    delay_ms: u64,
    /// The `usage` of the response; `None` for a response without one.
    usage: Option<Json>,
}

#[derive(Debug)]
struct ScriptCall {
    tool: String,
    args: Json,
}

impl ScriptFile {
    /// Parses a script; diagnostics and errors call it `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, DiagnosticReport> {
        let mut report = DiagnosticReport::default();
        let doc = match YamlDocument::parse(name, text) {
            Ok(doc) => doc,
            Err(diagnostic) => {
                report.push(diagnostic);
                return Err(report);
            }
        };
        let script = doc.fields(&doc.root, &SCRIPT_MAPPING).and_then(|fields| {
            Self::from_turns(&doc, fields.require("turns", "[{say: \"...\"}]")?)
        });
        doc.drain_diagnostics(&mut report);
        match script {
            Some(script) if report.is_empty() => Ok(script),
            _ => Err(report),
        }
    }

    /// Reads the list `node` as the turns of a script; the document's report gets the diagnostics.
    pub fn from_turns(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let items = doc.expect_list(node, "`turns`")?;
        let turns = items.iter().filter_map(|item| ScriptTurn::read(doc, item)).collect();
        Some(Self { name: doc.name.clone(), turns })
    }

    /// The indices of the turns without `when`.
    pub fn unconditional_turns(&self) -> impl Iterator<Item = usize> {
        let turns = self.turns.iter().enumerate();
        turns.filter(|(_, turn)| turn.when.is_none()).map(|(index, _)| index)
    }
}

impl ScriptTurn {
    fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let fields = doc.fields(node, &TURN_MAPPING)?;
        let text = |key: &str| fields.text(key).map(str::to_owned);
        let when = fields.non_null("when").and_then(|node| {
            let pattern = doc.expect_text(node, "`when`")?;
            let regex = Regex::new(pattern);
            if let Err(error) = &regex {
                doc.report(node, error_text::describe_regex_error(error), None);
            }
            regex.ok()
        });
        let calls = fields.list("call").iter().filter_map(|call| ScriptCall::read(doc, call));
        let turn = Self {
            when,
            say: text("say"),
            calls: calls.collect(),
            error: text("error"),
            delay_ms: fields.integer("delay_ms")?,
            usage: match fields.non_null("usage") {
                Some(node) => Some(read_usage(doc, node)?),
                None => None,
            },
        };
        let has_reply = turn.say.is_some() || !turn.calls.is_empty() || turn.usage.is_some();
        if turn.error.is_some() && has_reply {
            doc.report(node, "a turn with `error` must not have `say`, `call` or `usage`", None);
        }
        Some(turn)
    }

    fn matches(&self, last_message: &str) -> bool {
        self.when.as_ref().is_none_or(|when| when.is_match(last_message))
    }
}

/// Reads the usage of a turn, in the form of Chat Completions.
fn read_usage(doc: &YamlDocument, node: &YamlNode) -> Option<Json> {
    let fields = doc.fields(node, &SCRIPT_USAGE_MAPPING)?;
    Some(json!({
        "prompt_tokens": fields.integer("input_tokens")?,
        "completion_tokens": fields.integer("output_tokens")?,
        "prompt_tokens_details": {"cached_tokens": fields.integer("cached_input_tokens")?},
    }))
}

impl ScriptCall {
    fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let fields = doc.fields(node, &SCRIPT_CALL_MAPPING)?;
        fields.require("tool", "list_files")?;
        let tool = fields.text("tool")?.to_owned();
        let args = match fields.non_null("args") {
            None => json!({}),
            Some(node) => doc.to_json(node)?,
        };
        Some(Self { tool, args })
    }
}

/// Replies with the turns of a [`ScriptFile`].
pub(super) struct ScriptProvider {
    file: Rc<ScriptFile>,
    model: String,
}

impl ScriptProvider {
    pub(super) fn new(file: Rc<ScriptFile>, model: String) -> Self {
        Self { file, model }
    }

    /// The first turn from `start` on that matches the last message, with its index.
    fn next_turn(&self, start: usize, last_message: &str) -> Option<(usize, &ScriptTurn)> {
        let mut turns = self.file.turns.iter().enumerate().skip(start);
        turns.find(|(_, turn)| turn.matches(last_message))
    }

    /// Builds the reply of a turn by way of the response that an endpoint would send.
    fn reply(&self, index: usize, filler: &TurnFiller<'_>) -> Result<Reply, LlmError> {
        let turn = filler.turn;
        let calls: Vec<ToolCall> = turn
            .calls
            .iter()
            .enumerate()
            .map(|(call_index, call)| {
                ToolCall::new(
                    format!("call_{}_{}", index + 1, call_index + 1),
                    call.tool.as_str(),
                    filler.fill_json(&call.args).to_string(),
                )
            })
            .collect();
        let content = turn.say.as_deref().map(|say| filler.fill_text(say));
        let mut message = json!({"role": "assistant", "content": content});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let finish_reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason});
        let mut response =
            json!({"object": "chat.completion", "model": self.model, "choices": [choice]});
        if let Some(usage) = &turn.usage {
            response["usage"] = usage.clone();
        }
        let reply = parse_reply(&response, &self.model).map_err(LlmError::from_message)?;
        Ok(Reply { script_turn: Some(index), ..reply })
    }
}

impl Provider for ScriptProvider {
    fn complete(
        &mut self,
        request: &LlmRequest<'_>,
        cancel: &CancelToken,
        _: CallObserver<'_>,
    ) -> Result<Reply, LlmError> {
        let last_message = serde_json::from_str(request.last_message).unwrap_or_default();
        let last_message = message_text(&last_message);
        let Some((index, turn)) = self.next_turn(request.script_turn, &last_message) else {
            return Err(LlmError::from_message(format!(
                "the script {} has no more turns that match ({} of {} used)",
                self.file.name,
                request.script_turn,
                self.file.turns.len()
            )));
        };
        if turn.delay_ms > 0 && cancel.wait(Duration::from_millis(turn.delay_ms)) {
            return Err(LlmError::Cancelled);
        }
        let filler = TurnFiller { request, last_message: &last_message, turn };
        match &turn.error {
            Some(error) => Err(LlmError::Failed {
                message: filler.fill_text(error),
                status: None,
                hint: None,
                response: None,
                unavailable: None,
                script_turn: Some(index),
            }),
            None => self.reply(index, &filler),
        }
    }
}

/// Fills in the placeholders of a turn: `${task}`, `${message}`, `${last}`, and `${1}`... of `when`.
struct TurnFiller<'a> {
    request: &'a LlmRequest<'a>,
    /// The text of the last message.
    last_message: &'a str,
    turn: &'a ScriptTurn,
}

impl TurnFiller<'_> {
    /// Replaces the placeholders in a text. `\${...}` becomes `${...}`; an unknown placeholder does not change.
    fn fill_text(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let is_escaped = rest[..start].ends_with('\\');
            let end = rest[start..].find('}').map(|offset| start + offset);
            let value = end.and_then(|end| self.placeholder_value(&rest[start + 2..end]));
            match (end, value) {
                (Some(end), Some(value)) => {
                    filled.push_str(&rest[..start - usize::from(is_escaped)]);
                    filled.push_str(if is_escaped { &rest[start..=end] } else { &value });
                    rest = &rest[end + 1..];
                }
                _ => {
                    filled.push_str(&rest[..start + 2]);
                    rest = &rest[start + 2..];
                }
            }
        }
        filled.push_str(rest);
        filled
    }

    fn placeholder_value(&self, name: &str) -> Option<String> {
        match name {
            "task" => Some(self.request.task.to_owned()),
            "message" => Some(self.request.last_user_message.to_owned()),
            "last" => Some(self.last_message.trim_end().to_owned()),
            number => {
                let captures = self.turn.when.as_ref()?.captures(self.last_message)?;
                let group = captures.get(number.parse().ok()?);
                Some(group.map_or(String::new(), |group| group.as_str().to_owned()))
            }
        }
    }

    fn fill_json(&self, value: &Json) -> Json {
        match value {
            Json::String(text) => Json::from(self.fill_text(text)),
            Json::Array(items) => items.iter().map(|item| self.fill_json(item)).collect(),
            Json::Object(entries) => Json::Object(
                entries.iter().map(|(key, value)| (key.clone(), self.fill_json(value))).collect(),
            ),
            other => other.clone(),
        }
    }
}
