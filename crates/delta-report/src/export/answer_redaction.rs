//! Redacts sensitive answers: the journal holds them, no export does.

use delta_base::redact::redact_answers;
use delta_run::event::{Event, Payload};
use delta_words::CallArguments;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Replaces a sensitive answer.
const HIDDEN_ANSWER: &str = "[hidden]";

/// The sensitive answers of a run.
#[derive(Debug, Default)]
pub struct SensitiveAnswers {
    /// The calls that asked for them.
    call_ids: BTreeSet<String>,
    /// The answers, plain and as escaped in JSON.
    answers: Vec<String>,
}

impl SensitiveAnswers {
    pub fn from_events(events: &[Event]) -> Self {
        let mut sensitive = Self::default();
        for event in events {
            match &event.payload {
                Payload::HumanInputRequest(question) if question.sensitive => {
                    sensitive.call_ids.insert(question.call_id.clone());
                }
                Payload::HumanInputReceived { call_id, response, .. }
                    if sensitive.call_ids.contains(call_id) =>
                {
                    sensitive.add(response.trim());
                }
                _ => {}
            }
        }
        sensitive
    }

    fn add(&mut self, answer: &str) {
        let quoted = Json::from(answer).to_string();
        let escaped = quoted.trim_matches('"').to_owned();
        if escaped != answer {
            self.answers.push(escaped);
        }
        self.answers.push(answer.to_owned());
    }

    pub fn redact_event(&self, mut event: Event) -> Event {
        if self.call_ids.is_empty() {
            return event;
        }
        match &mut event.payload {
            Payload::UserMessage { content, .. } => self.redact_text(content),
            Payload::Thought(thought) => {
                self.redact_text(&mut thought.content);
                thought.reasoning.iter_mut().for_each(|reasoning| self.redact_text(reasoning));
                let calls = thought.tool_calls.iter_mut();
                calls.for_each(|call| {
                    let arguments = &mut call.function.arguments;
                    let mut text = arguments.as_str().to_owned();
                    self.redact_text(&mut text);
                    *arguments = CallArguments::new(text);
                });
            }
            Payload::ActionRequest(request) => {
                self.redact_json(&mut request.tool_args);
                request.argv.iter_mut().flatten().for_each(|word| self.redact_text(word));
            }
            Payload::ActionResult(result) => {
                self.redact_observation(&result.call_id, &mut result.observation_content);
                result.result.iter_mut().for_each(|result| self.redact_json(result));
            }
            Payload::HumanInputRequest(question) => self.redact_text(&mut question.prompt),
            Payload::HumanInputReceived { call_id, response, .. } => {
                self.redact_observation(call_id, response);
            }
            Payload::ApprovalRequest(request) => {
                self.redact_json(&mut request.tool_args);
                request.argv.iter_mut().for_each(|word| self.redact_text(word));
                if let Some(stage) = &mut request.stage {
                    self.redact_text(&mut stage.diff);
                    stage.changes.iter_mut().for_each(|line| self.redact_text(line));
                    self.redact_text(&mut stage.result.observation_content);
                }
            }
            Payload::ApprovalDecision(decision) => {
                decision.reason.iter_mut().for_each(|reason| self.redact_text(reason));
            }
            Payload::Error { error_message, .. } => self.redact_text(error_message),
            Payload::EngineStart(_)
            | Payload::HookExecution { .. }
            | Payload::Snapshot(_)
            | Payload::Rollback { .. }
            | Payload::Apply(_)
            | Payload::ApplyEnd { .. }
            | Payload::Discard { .. }
            | Payload::Fork(_)
            | Payload::EngineEnd { .. }
            | Payload::LimitsChanged(_)
            | Payload::Turn { .. }
            | Payload::Sent(_)
            | Payload::RunTrusted { .. } => {}
        }
        event
    }

    /// Redacts a request in the form of Chat Completions.
    pub fn redact_request(&self, mut request: Json) -> Json {
        if self.call_ids.is_empty() {
            return request;
        }
        let messages = request.get_mut("messages").and_then(Json::as_array_mut);
        for message in messages.into_iter().flatten() {
            let id = message.get("tool_call_id").and_then(Json::as_str);
            if id.is_some_and(|id| self.call_ids.contains(id)) {
                message["content"] = HIDDEN_ANSWER.into();
            }
            for name in ["content", "reasoning_content"] {
                message.get_mut(name).into_iter().for_each(|text| self.redact_json(text));
            }
            let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
            for call in calls.into_iter().flatten() {
                let arguments = call.pointer_mut("/function/arguments");
                arguments.into_iter().for_each(|text| self.redact_json(text));
            }
        }
        request
    }

    pub fn redact_record(&self, record: &mut Json) {
        record.get_mut("reasoning").into_iter().for_each(|text| self.redact_json(text));
        let attempts = record.get_mut("attempts").and_then(Json::as_array_mut);
        let errors = attempts.into_iter().flatten().filter_map(|attempt| attempt.get_mut("error"));
        errors.for_each(|text| self.redact_json(text));
    }

    /// Redacts what the LLM or the journal has as the answer to a call.
    fn redact_observation(&self, call_id: &str, text: &mut String) {
        if self.call_ids.contains(call_id) {
            HIDDEN_ANSWER.clone_into(text);
        } else {
            self.redact_text(text);
        }
    }

    /// Redacts every string in `value` but its keys.
    fn redact_json(&self, value: &mut Json) {
        match value {
            Json::String(text) => self.redact_text(text),
            Json::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Json::Object(fields) => fields.values_mut().for_each(|field| self.redact_json(field)),
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    fn redact_text(&self, text: &mut String) {
        *text = redact_answers(&self.answers, std::mem::take(text));
    }
}
