//! Redacts sensitive answers: the journal holds them, no export does.

use delta_base::redact::{HIDDEN, HiddenAnswers};
use delta_run::event::{Event, Payload};
use delta_run::state::sensitive_questions::SensitiveQuestions;
use delta_words::CallArguments;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// The sensitive answers that the texts of a run can contain.
#[derive(Debug, Default)]
pub struct AnswerRedaction {
    /// The calls of the run that asked for some: all of their results are hidden, however short.
    call_ids: BTreeSet<String>,
    answers: HiddenAnswers,
}

impl AnswerRedaction {
    /// Redacts the answers in `events`, and `more` answers of other runs.
    pub fn new(events: &[Event], more: &[String]) -> Self {
        let mut questions = SensitiveQuestions::default();
        events.iter().for_each(|event| questions.apply(event));
        let answers = HiddenAnswers::new(questions.answers.iter().chain(more));
        Self { call_ids: questions.call_ids, answers }
    }

    fn is_empty(&self) -> bool {
        self.call_ids.is_empty() && self.answers.is_empty()
    }

    pub fn redact_event(&self, mut event: Event) -> Event {
        if self.is_empty() {
            return event;
        }
        match &mut event.payload {
            Payload::UserMessage { content, .. } => self.redact_text(content),
            Payload::Thought(thought) => {
                self.redact_text(&mut thought.content);
                thought.reasoning.iter_mut().for_each(|reasoning| self.redact_text(reasoning));
                thought.text_call.iter_mut().for_each(|tool| self.redact_text(tool));
                for call in &mut thought.tool_calls {
                    self.redact_text(&mut call.id);
                    self.redact_text(&mut call.function.name);
                    let arguments = &mut call.function.arguments;
                    let text = self.answers.redact_json_text(arguments.as_str()).into_owned();
                    *arguments = CallArguments::new(text);
                }
            }
            Payload::ActionRequest(request) => {
                self.redact_text(&mut request.call_id);
                self.redact_text(&mut request.tool_name);
                self.answers.redact_json(&mut request.tool_args);
                request.argv.iter_mut().flatten().for_each(|word| self.redact_text(word));
            }
            Payload::ActionResult(result) => {
                self.redact_observation(&result.call_id, &mut result.observation_content);
                self.redact_text(&mut result.call_id);
                self.redact_text(&mut result.tool_name);
                if let Some(result) = &mut result.result {
                    let mut redacted = (**result).clone();
                    self.answers.redact_json(&mut redacted);
                    // What has no answer keeps its digits.
                    if redacted != **result {
                        *result = redacted.into();
                    }
                }
            }
            Payload::HumanInputRequest(question) => {
                self.redact_text(&mut question.call_id);
                self.redact_text(&mut question.prompt);
            }
            Payload::HumanInputReceived { call_id, response, .. } => {
                self.redact_observation(call_id, response);
                self.redact_text(call_id);
            }
            Payload::ApprovalRequest(request) => {
                self.redact_text(&mut request.call_id);
                self.redact_text(&mut request.tool_name);
                self.answers.redact_json(&mut request.tool_args);
                request.argv.iter_mut().for_each(|word| self.redact_text(word));
                if let Some(stage) = &mut request.stage {
                    self.redact_text(&mut stage.diff);
                    stage.changes.iter_mut().for_each(|line| self.redact_text(line));
                    self.redact_text(&mut stage.result.observation_content);
                }
            }
            Payload::ApprovalDecision(decision) => {
                self.redact_text(&mut decision.call_id);
                decision.reason.iter_mut().for_each(|reason| self.redact_text(reason));
            }
            Payload::Error { error_message, error_details } => {
                self.redact_text(error_message);
                error_details.hint.iter_mut().for_each(|hint| self.redact_text(hint));
            }
            Payload::HookExecution { end: Some(end), .. } => {
                self.answers.redact_json(&mut end.result);
            }
            Payload::EngineStart(_)
            | Payload::HookExecution { end: None, .. }
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
        if self.is_empty() {
            return request;
        }
        let messages = request.get_mut("messages").and_then(Json::as_array_mut);
        for message in messages.into_iter().flatten() {
            let id = message.get("tool_call_id").and_then(Json::as_str);
            if id.is_some_and(|id| self.call_ids.contains(id)) {
                message["content"] = HIDDEN.into();
            }
            for name in ["content", "reasoning_content", "tool_call_id"] {
                message.get_mut(name).into_iter().for_each(|text| self.redact_member(text));
            }
            let parts = message.get_mut("content").and_then(Json::as_array_mut);
            let texts = parts.into_iter().flatten().filter_map(|part| part.get_mut("text"));
            texts.for_each(|text| self.redact_member(text));
            let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
            for call in calls.into_iter().flatten() {
                for path in ["/id", "/function/name"] {
                    call.pointer_mut(path).into_iter().for_each(|text| self.redact_member(text));
                }
                if let Some(Json::String(arguments)) = call.pointer_mut("/function/arguments") {
                    *arguments = self.answers.redact_json_text(arguments).into_owned();
                }
            }
        }
        request
    }

    pub fn redact_record(&self, record: &mut Json) {
        for name in ["reasoning", "response"] {
            record.get_mut(name).into_iter().for_each(|part| self.answers.redact_json(part));
        }
        let attempts = record.get_mut("attempts").and_then(Json::as_array_mut);
        let errors = attempts.into_iter().flatten().filter_map(|attempt| attempt.get_mut("error"));
        errors.for_each(|text| self.answers.redact_json(text));
    }

    /// Redacts the id of a call, the path of a file or another short text.
    pub fn redact_name(&self, name: String) -> String {
        self.answers.redact_string(name)
    }

    /// Redacts what the LLM or the journal has as the answer to a call.
    fn redact_observation(&self, call_id: &str, text: &mut String) {
        if self.call_ids.contains(call_id) {
            HIDDEN.clone_into(text);
        } else {
            self.redact_text(text);
        }
    }

    /// Redacts a member if it is a text.
    fn redact_member(&self, member: &mut Json) {
        if let Json::String(text) = member {
            self.redact_text(text);
        }
    }

    fn redact_text(&self, text: &mut String) {
        *text = self.answers.redact_string(std::mem::take(text));
    }
}
