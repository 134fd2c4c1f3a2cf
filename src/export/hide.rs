//! Sensitive answers of people, taken out of what leaves the run: they stand in its journal and in no export.

use crate::event::{Event, Payload};
use crate::text::hide_answers;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// What stands in the place of a whole answer.
const HIDDEN: &str = "[hidden]";

/// The sensitive answers of a run.
#[derive(Debug, Default)]
pub struct Hidden {
    /// Their calls.
    calls: BTreeSet<String>,
    /// The answers, also as they stand in the text of a JSON.
    answers: Vec<String>,
}

impl Hidden {
    /// Those that `events` tell of.
    pub fn of(events: &[Event]) -> Self {
        let mut hidden = Self::default();
        for event in events {
            match &event.payload {
                Payload::HumanInputRequest(question) if question.sensitive => {
                    hidden.calls.insert(question.call_id.clone());
                }
                Payload::HumanInputReceived { call_id, response, .. }
                    if hidden.calls.contains(call_id) =>
                {
                    hidden.add(response.trim());
                }
                _ => {}
            }
        }
        hidden
    }

    fn add(&mut self, answer: &str) {
        let quoted = Json::from(answer).to_string();
        let escaped = quoted.trim_matches('"').to_owned();
        if escaped != answer {
            self.answers.push(escaped);
        }
        self.answers.push(answer.to_owned());
    }

    /// `event` without them.
    pub fn event(&self, mut event: Event) -> Event {
        if self.calls.is_empty() {
            return event;
        }
        match &mut event.payload {
            Payload::UserMessage { content } => self.text(content),
            Payload::Thought(thought) => {
                self.text(&mut thought.content);
                thought.reasoning.iter_mut().for_each(|reasoning| self.text(reasoning));
                let calls = thought.tool_calls.iter_mut();
                calls.for_each(|call| self.text(&mut call.function.arguments));
            }
            Payload::ActionRequest(request) => {
                self.json(&mut request.tool_args);
                request.argv.iter_mut().flatten().for_each(|word| self.text(word));
            }
            Payload::ActionResult(result) => {
                match self.calls.contains(&result.call_id) {
                    true => HIDDEN.clone_into(&mut result.observation_content),
                    false => self.text(&mut result.observation_content),
                }
                result.result.iter_mut().for_each(|result| self.json(result));
            }
            Payload::HumanInputRequest(question) => self.text(&mut question.prompt),
            Payload::HumanInputReceived { call_id, response, .. } => {
                match self.calls.contains(call_id) {
                    true => HIDDEN.clone_into(response),
                    false => self.text(response),
                }
            }
            Payload::Error { error_message, .. } => self.text(error_message),
            Payload::EngineStart(_)
            | Payload::HookExecution { .. }
            | Payload::Snapshot(_)
            | Payload::Rollback { .. }
            | Payload::Fork(_)
            | Payload::EngineEnd { .. } => {}
        }
        event
    }

    /// `request`, in the form of Chat Completions, without them.
    pub fn request(&self, mut request: Json) -> Json {
        if self.calls.is_empty() {
            return request;
        }
        let messages = request.get_mut("messages").and_then(Json::as_array_mut);
        for message in messages.into_iter().flatten() {
            let id = message.get("tool_call_id").and_then(Json::as_str);
            if id.is_some_and(|id| self.calls.contains(id)) {
                message["content"] = HIDDEN.into();
            }
            for name in ["content", "reasoning_content"] {
                message.get_mut(name).into_iter().for_each(|text| self.json(text));
            }
            let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
            for call in calls.into_iter().flatten() {
                call.pointer_mut("/function/arguments")
                    .into_iter()
                    .for_each(|text| self.json(text));
            }
        }
        request
    }

    /// Takes them out of a record's own words.
    pub fn record(&self, record: &mut Json) {
        record.get_mut("reasoning").into_iter().for_each(|text| self.json(text));
        let attempts = record.get_mut("attempts").and_then(Json::as_array_mut);
        let errors = attempts.into_iter().flatten().filter_map(|attempt| attempt.get_mut("error"));
        errors.for_each(|text| self.json(text));
    }

    /// Every text in `value`, keys apart.
    fn json(&self, value: &mut Json) {
        match value {
            Json::String(text) => self.text(text),
            Json::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Json::Object(fields) => fields.values_mut().for_each(|field| self.json(field)),
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    fn text(&self, text: &mut String) {
        *text = hide_answers(&self.answers, std::mem::take(text));
    }
}
