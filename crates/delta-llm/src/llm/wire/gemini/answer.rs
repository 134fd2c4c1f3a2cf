//! A `GenerateContentResponse`, whole or in pieces, as an answer.

use super::super::super::answer_error::{AnswerError, UnusableAnswer};
use super::super::super::reply_assembler::StreamError;
use super::super::neutral_response::NeutralUsage;
use super::super::{
    AnswerEnd, EventAssembler, NeutralAnswer, add_member_piece, find_error, reported_error,
};
use super::neutral_tool_name;
use delta_http::retry::RetryDecision;
use delta_words::{
    IMAGE_ANSWER, NativeParts, Reply, ServiceTier, ToolCall, Usage, WireForm, are_no_arguments,
    are_token_counts, merge_counts, parse_token_count, sent_arguments, settled_arguments,
};
use serde_json::{Map, Value};

/// Reads a response of `model` at `endpoint`.
pub fn decode_response(
    response: Value,
    model: &str,
    endpoint: Option<&str>,
) -> Result<Reply, AnswerError> {
    let mut response = match response {
        Value::Array(chunks) => join_chunks(chunks)?,
        response => response,
    };
    let is_answer = !is_error(&response) && response.get("candidates").is_some();
    if !is_answer && let Some(error) = reported_error(&response) {
        return Err(AnswerError::Reported(error));
    }
    let is_cut_off = response.pointer("/candidates/0/finishReason") == Some(&"MAX_TOKENS".into());
    let calls = read_function_calls(&mut response, is_cut_off);
    let candidate = response.pointer("/candidates/0");
    let mut answer = NeutralAnswer {
        id: text_member(&response, "responseId").map(str::to_owned),
        model: text_member(&response, "modelVersion").unwrap_or(model).to_owned(),
        tool_calls: calls,
        usage: response.get("usageMetadata").and_then(read_usage_metadata),
        ..NeutralAnswer::default()
    };
    let Some(candidate) = candidate else {
        let feedback = response.get("promptFeedback").unwrap_or(&Value::Null);
        let Some(reason) = text_member(feedback, "blockReason") else {
            let message = "the response has no `candidates`".to_owned();
            return Err(AnswerError::NoAnswer(message, response));
        };
        answer.finish_reason = Some("content_filter".to_owned());
        answer.ending = Some(describe_ending(reason, feedback, "blockReasonMessage"));
        return Ok(answer.into_reply(response));
    };
    let no_parts = Vec::new();
    let parts = candidate.pointer("/content/parts").and_then(Value::as_array).unwrap_or(&no_parts);
    read_parts(parts, &mut answer);
    let reason = neutral_finish_reason(candidate, &answer)?;
    let own_reason = text_member(candidate, "finishReason").unwrap_or_default();
    let ending = describe_ending(own_reason, candidate, "finishMessage");
    match &*reason {
        "refusal" => answer.refusal = Some(ending),
        "content_filter" => answer.ending = Some(ending),
        _ => {}
    }
    answer.finish_reason = Some(reason);
    answer.native = (!parts.iter().all(is_plain)).then(|| NativeParts {
        form: WireForm::Gemini.name().to_owned(),
        model: model.to_owned(),
        endpoint: endpoint.map(str::to_owned),
        basis: None,
        parts: Value::from(parts.as_slice()),
    });
    Ok(answer.into_reply(response))
}

/// The response in the chunks of a stream that a proxy has collected in a list.
fn join_chunks(chunks: Vec<Value>) -> Result<Value, AnswerError> {
    let mut assembler = GeminiAssembler::default();
    for chunk in chunks {
        assembler.add_event(chunk)?;
    }
    Ok(assembler.into_response())
}

fn text_member<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

fn is_error(response: &Value) -> bool {
    find_error(response).is_some()
}

/// Why an answer is withheld, with the categories of its ratings that are the reason, and with the words in a member.
fn describe_ending(reason: &str, rated: &Value, words_member: &str) -> String {
    let ratings = rated.get("safetyRatings").and_then(Value::as_array);
    let ratings = ratings.into_iter().flatten();
    let blocked = ratings.filter(|rating| rating.get("blocked") == Some(&Value::Bool(true)));
    let categories: Vec<&str> =
        blocked.filter_map(|rating| text_member(rating, "category")).collect();
    let categories = match categories.as_slice() {
        [] => String::new(),
        categories => format!(" ({})", categories.join(", ")),
    };
    let words = text_member(rated, words_member).filter(|words| !words.is_empty());
    let words = words.map_or_else(String::new, |words| format!(", {words}"));
    format!("`{reason}`{categories}{words}")
}

/// The calls of the answer. Arguments that are there as text become an object again. If the answer was cut off, none of the
/// arguments of a call at its end may have arrived.
fn read_function_calls(response: &mut Value, is_cut_off: bool) -> Vec<ToolCall> {
    let parts = response.pointer_mut("/candidates/0/content/parts").and_then(Value::as_array_mut);
    let parts = parts.map(Vec::as_mut_slice).unwrap_or_default();
    let cut_part = if is_cut_off { parts.len().checked_sub(1) } else { None };
    let calls = parts.iter_mut().enumerate().filter_map(|(at, part)| {
        let call = part.get_mut("functionCall")?;
        let sent = sent_arguments(&[call], "args");
        let arguments = match settled_arguments(&sent) {
            // Pieces, which delta does not ask for: a list, which the check of the call refuses.
            none if are_no_arguments(none) => {
                let missing = if Some(at) == cut_part { "" } else { "{}" };
                call.get("partialArgs").map_or_else(|| missing.to_owned(), Value::to_string)
            }
            sent => sent.to_owned(),
        };
        if let (Some(args @ Value::String(_)), Ok(object @ Value::Object(_))) =
            (call.get_mut("args"), serde_json::from_str(&arguments))
        {
            *args = object;
        }
        let name = neutral_tool_name(text_member(call, "name").unwrap_or_default());
        Some(ToolCall::new(text_member(call, "id").unwrap_or_default(), name, arguments))
    });
    calls.collect()
}

fn read_parts(parts: &[Value], answer: &mut NeutralAnswer) {
    for part in parts {
        if let Some(text) = text_member(part, "text") {
            let is_thought = part.get("thought") == Some(&Value::Bool(true));
            let target = if is_thought { &mut answer.reasoning } else { &mut answer.content };
            target.get_or_insert_default().push_str(text);
        }
    }
    for text in [&mut answer.content, &mut answer.reasoning] {
        if text.as_ref().is_some_and(String::is_empty) {
            *text = None;
        }
    }
    let has_image = parts.iter().any(|part| part.get("inlineData").is_some());
    if has_image && answer.content.is_none() && answer.tool_calls.is_empty() {
        answer.content = Some(IMAGE_ANSWER.to_owned());
    }
}

/// Whether a text and a call say all that the part holds.
fn is_plain(part: &Value) -> bool {
    let Some(part) = part.as_object() else { return false };
    part.iter().all(|(name, value)| match name.as_str() {
        "text" | "thought" => true,
        "functionCall" => value.as_object().is_some_and(|call| {
            call.keys().all(|name| {
                matches!(name.as_str(), "name" | "args" | "partialArgs" | "willContinue")
            })
        }),
        _ => false,
    })
}

/// Why the model stopped, in the words of Chat Completions.
fn neutral_finish_reason(candidate: &Value, answer: &NeutralAnswer) -> Result<String, AnswerError> {
    let has_calls = !answer.tool_calls.is_empty();
    let unusable = |message: String, retry: RetryDecision| {
        Err(AnswerError::Unusable(Box::new(UnusableAnswer {
            message,
            hint: None,
            usage: answer.usage.and_then(|usage| usage.into_usage(&answer.model)),
            retry,
            response: candidate.clone(),
        })))
    };
    let reason = text_member(candidate, "finishReason").unwrap_or_default();
    let words = text_member(candidate, "finishMessage").map(|text| format!(": {text}"));
    let words = words.unwrap_or_default();
    let neutral = match reason {
        "STOP" if has_calls => "tool_calls",
        "STOP" => "stop",
        "MAX_TOKENS" => "length",
        "LANGUAGE" => "refusal",
        reason if AnswerEnd::parse(Some(reason)) == AnswerEnd::Filtered => "content_filter",
        "" | "FINISH_REASON_UNSPECIFIED" => {
            let message = "the response has no `finishReason`";
            return Err(AnswerError::InvalidResponse(message.to_owned()));
        }
        "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL" | "OTHER" => {
            let message = format!("the model's answer broke off with `{reason}`{words}");
            return unusable(message, RetryDecision::Backoff);
        }
        "CONTINUATION" | "TOO_MANY_TOOL_CALLS" | "MISSING_THOUGHT_SIGNATURE" => {
            let message = format!("the model stopped with `{reason}`{words}");
            return unusable(message, RetryDecision::Never);
        }
        // A reason that was added later.
        reason => return Ok(reason.to_ascii_lowercase()),
    };
    Ok(neutral.to_owned())
}

/// The tokens of a response. A count of zero may be absent.
fn read_usage_metadata(usage: &Value) -> Option<NeutralUsage> {
    let usage = usage.as_object()?;
    let count = |name: &str| usage.get(name).and_then(parse_token_count);
    let totals = ["promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"];
    if !are_token_counts(totals.iter().filter_map(|name| usage.get(*name))) {
        return None;
    }
    let reasoning = count("thoughtsTokenCount");
    let sum = |one: Option<u64>, other: Option<u64>| {
        one.unwrap_or_default().saturating_add(other.unwrap_or_default())
    };
    Some(NeutralUsage {
        input: sum(count("promptTokenCount"), count("toolUsePromptTokenCount")),
        cached: count("cachedContentTokenCount").unwrap_or_default(),
        cache_write: None,
        output: sum(count("candidatesTokenCount"), reasoning),
        reasoning,
        cost: None,
        tier: usage.get("serviceTier").and_then(Value::as_str).map(ServiceTier::from_name),
    })
}

/// Assembles a stream, each event of which is a response with the next parts.
#[derive(Debug, Default)]
pub struct GeminiAssembler {
    /// The last values of the members other than `candidates`.
    response: Map<String, Value>,
    /// The last values of the candidate's members other than its parts.
    candidate: Map<String, Value>,
    parts: Vec<Value>,
    /// The number of the parts before the last event.
    event_start: usize,
    has_candidate: bool,
    /// Whether an event with content had no reason to stop: the reason is then a sign of the end.
    has_open_event: bool,
    /// The number of the events with content and a reason.
    closed_events: usize,
    /// The body has ended as it should.
    has_ended: bool,
    text: String,
    reasoning: String,
    /// The parts with calls, which arrive whole.
    calls: String,
    reported: Option<Usage>,
}

impl GeminiAssembler {
    fn add_candidate(&mut self, candidate: Map<String, Value>) {
        self.has_candidate = true;
        if candidate.contains_key("content") {
            let reason = candidate.get("finishReason").and_then(Value::as_str);
            let is_open = reason.is_none_or(str::is_empty);
            self.has_open_event |= is_open;
            self.closed_events += usize::from(!is_open);
        }
        for (name, mut value) in candidate {
            if name == "content" {
                let parts = value.get_mut("parts").and_then(Value::as_array_mut);
                for part in parts.map(std::mem::take).unwrap_or_default() {
                    self.add_part(part);
                }
            } else if name == "logprobsResult" {
                add_member_piece(self.candidate.entry(name).or_insert(Value::Null), value);
            } else if !value.is_null() {
                self.candidate.insert(name, value);
            }
        }
    }

    /// Adds a part. Pieces of a text are joined, except where a signature belongs to one of them.
    fn add_part(&mut self, mut part: Value) {
        let is_thought = part.get("thought") == Some(&Value::Bool(true));
        let Some(text) = text_member(&part, "text") else { return self.add_other_part(part) };
        let live = if is_thought { &mut self.reasoning } else { &mut self.text };
        live.push_str(text);
        if !is_plain(&part) {
            return self.parts.push(part);
        }
        let last = self.parts.last_mut().filter(|last| {
            let is_same = (last.get("thought") == Some(&Value::Bool(true))) == is_thought;
            is_same && is_plain(last)
        });
        if let Some(Value::String(joined)) = last.and_then(|last| last.get_mut("text")) {
            joined.push_str(text);
        } else if !text.is_empty() {
            self.parts.push(part.take());
        }
    }

    /// Adds a part without text. A call that a later event repeats, whole or with the arguments that it lacked, is one
    /// call.
    fn add_other_part(&mut self, part: Value) {
        let earlier = self.parts.get_mut(..self.event_start).unwrap_or_default();
        let repeated = earlier.iter_mut().rfind(|earlier| repeats_call(earlier, &part));
        match (repeated, part) {
            (Some(Value::Object(earlier)), Value::Object(part)) => {
                for (name, value) in part {
                    let is_lacking = name != "functionCall" || has_no_arguments(earlier.get(&name));
                    if is_lacking {
                        earlier.insert(name, value);
                    }
                }
            }
            (_, part) => {
                self.calls.push_str(&part.to_string());
                self.parts.push(part);
            }
        }
    }
}

fn has_no_arguments(call: Option<&Value>) -> bool {
    call.and_then(|call| call.get("args")).is_none_or(|args| match args {
        Value::Object(args) => args.is_empty(),
        Value::String(args) => args.trim().is_empty(),
        args => args.is_null(),
    })
}

/// Whether a part is the call of an earlier one: with its id, or without ids the same or with the arguments that it lacked.
fn repeats_call(earlier: &Value, part: &Value) -> bool {
    let Some((one, other)) = earlier.get("functionCall").zip(part.get("functionCall")) else {
        return false;
    };
    let is_same_id = text_member(one, "id") == text_member(other, "id");
    let is_repetition = [one, other].iter().any(|call| has_no_arguments(Some(call)))
        || one.get("args") == other.get("args");
    is_same_id && text_member(one, "name") == text_member(other, "name") && is_repetition
}

impl EventAssembler for GeminiAssembler {
    fn add_event(&mut self, event: Value) -> Result<(), StreamError> {
        let is_answer = ["candidates", "promptFeedback", "usageMetadata"]
            .iter()
            .any(|name| event.get(*name).is_some());
        if is_error(&event) || !is_answer {
            let error = reported_error(&event);
            return error.map_or(Ok(()), |error| Err(StreamError::Reported(error)));
        }
        self.event_start = self.parts.len();
        let Value::Object(event) = event else { return Ok(()) };
        for (name, value) in event {
            match (name.as_str(), value) {
                ("candidates", Value::Array(candidates)) => {
                    for candidate in candidates {
                        let index = candidate.get("index").and_then(Value::as_u64).unwrap_or(0);
                        if let (0, Value::Object(candidate)) = (index, candidate) {
                            self.add_candidate(candidate);
                        }
                    }
                }
                ("usageMetadata", usage) => {
                    merge_counts(self.response.entry(name).or_insert(Value::Null), usage);
                }
                (_, Value::Null) => {}
                (_, value) => {
                    self.response.insert(name, value);
                }
            }
        }
        let usage = self.response.get("usageMetadata").and_then(read_usage_metadata);
        self.reported = usage.and_then(|usage| usage.into_usage(""));
        Ok(())
    }

    fn is_complete(&self) -> bool {
        let is_blocked = self
            .response
            .get("promptFeedback")
            .is_some_and(|feedback| feedback.get("blockReason").is_some_and(Value::is_string));
        let reason = self.candidate.get("finishReason").and_then(Value::as_str);
        // A reason that comes with each event is not a sign of the end.
        let is_sign = self.has_ended || self.has_open_event || self.closed_events < 2;
        is_blocked || is_sign && reason.is_some_and(|reason| !reason.is_empty())
    }

    /// Some servers send a reason with each event.
    fn may_continue(&self) -> bool {
        self.has_candidate && !self.has_open_event
    }

    fn end(&mut self) {
        self.has_ended = true;
    }

    /// The counts may come after the reason.
    fn is_ended(&self) -> bool {
        self.is_complete() && self.response.contains_key("usageMetadata")
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn reasoning(&self) -> &str {
        &self.reasoning
    }

    fn arguments(&self) -> &str {
        &self.calls
    }

    fn usage(&self) -> Option<&Usage> {
        self.reported.as_ref()
    }

    fn into_response(self) -> Value {
        let Self { mut response, mut candidate, parts, has_candidate, .. } = self;
        if has_candidate {
            let mut content = Map::new();
            content.insert("role".to_owned(), "model".into());
            content.insert("parts".to_owned(), parts.into());
            candidate.insert("content".to_owned(), content.into());
            response.insert("candidates".to_owned(), Value::Array(vec![candidate.into()]));
        }
        response.into()
    }
}
