//! Chat Completions: the form that delta uses itself, so a request passes through as it is.

mod call_ids;
mod image_parts;
mod message_fields;

use super::super::answer_error::{AnswerError, UnusableAnswer};
use super::super::reply_assembler::ReplyAssembler;
use super::answer_end::unusable_ending;
use super::role_order::{alternate_roles, alternating_options};
use super::{
    CodecSettings, DecodeContext, EncodedRequest, NeutralBody, RejectedRequest, StreamAssembler,
    WireCodec, find_error,
};
use delta_base::json::to_json;
use delta_http::{append_path, host_of};
use delta_words::{EncodeOptions, Reply, WireForm, parse_reply};
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub use call_ids::CALL_ID_LENGTHS;
pub use message_fields::{
    AnswerOrigin, BLOCK_FIELDS, EXTRA_FIELD, REASONING_FIELDS, add_block_piece, fields_of_calls,
    has_thinking, merge_extra,
};

/// The codec of Chat Completions.
#[derive(Debug)]
pub struct ChatCodec {
    settings: CodecSettings,
}

impl ChatCodec {
    /// A codec with these settings.
    pub fn new(settings: CodecSettings) -> Self {
        Self { settings }
    }

    fn origin(&self) -> AnswerOrigin {
        let endpoint = host_of(&self.settings.base_url).unwrap_or_default().to_owned();
        AnswerOrigin { model: self.settings.model.clone(), endpoint }
    }
}

impl WireCodec for ChatCodec {
    fn form(&self) -> WireForm {
        WireForm::OpenAi
    }

    fn url(&self) -> String {
        append_path(&self.settings.base_url, "/chat/completions")
    }

    fn initial_options(&self) -> EncodeOptions {
        EncodeOptions { endpoint: Some(self.origin().endpoint), ..EncodeOptions::default() }
    }

    fn encode(
        &self,
        body: &NeutralBody<'_>,
        options: &EncodeOptions,
    ) -> Result<EncodedRequest, String> {
        let is_translated = body.has_native
            || options.call_ids.is_some()
            || options.merges_system
            || options.alternates_roles
            || options.uses_system_role
            || options.uses_max_completion_tokens
            || body.images.is_some();
        let translated = if is_translated { self.translate(body, options)? } else { None };
        let is_changed = translated.is_some();
        let body = translated.map_or_else(|| Arc::clone(body.text), Arc::new);
        Ok(EncodedRequest { body, is_changed, basis: None, cache_blocks: Vec::new() })
    }

    fn new_assembler(&self) -> Box<dyn StreamAssembler> {
        Box::new(ReplyAssembler::for_answers_of(self.origin()))
    }

    fn decode(
        &self,
        mut response: Value,
        context: &DecodeContext<'_>,
    ) -> Result<Reply, AnswerError> {
        // The answer is the choice with the index 0, as in a stream; all readers take the first one.
        if let Some(choices) = response.get_mut("choices").and_then(Value::as_array_mut) {
            choices.sort_by_key(|choice| choice["index"].as_u64());
        }
        let choices = response.get("choices").and_then(Value::as_array);
        if choices.is_none_or(Vec::is_empty)
            && let Some(error) = super::reported_error(&response)
        {
            return Err(AnswerError::Reported(error));
        }
        if let Some(error) = response
            .pointer("/choices/0")
            .and_then(|choice| choice_error(choice, response.get("usage")))
        {
            return Err(AnswerError::Reported(error));
        }
        let message = response.pointer_mut("/choices/0/message").and_then(Value::as_object_mut);
        if let Some(message) = message {
            message.shift_remove("native");
            add_function_call(message);
            let fields = message_fields::select_fields(message);
            if let Some(native) = self.origin().into_native(fields) {
                message.insert("native".to_owned(), native.to_json());
            }
        }
        let reply = parse_reply(&response, context.model)
            .map_err(|message| AnswerError::NoAnswer(message, response))?;
        check_ending(reply)
    }

    /// An endpoint that wants another order of the roles, takes the longest answer under its newer name, or knows none of the
    /// fields that went back to it.
    fn recovery(&self, rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
        if let Some(options) = alternating_options(rejected) {
            return Some(options);
        }
        let RejectedRequest { status, response, sent, options } = *rejected;
        let is_old_name = matches!(status, 200 | 400 | 422)
            && response.contains(NEW_MAX_TOKENS_KEY)
            && sent.contains(&format!("\"{MAX_TOKENS_KEY}\":"));
        if is_old_name && !options.uses_max_completion_tokens {
            return Some(EncodeOptions { uses_max_completion_tokens: true, ..options.clone() });
        }
        let mut names = BLOCK_FIELDS.into_iter().chain([EXTRA_FIELD]).chain(REASONING_FIELDS);
        let names_field =
            names.any(|name| response.contains(name) && sent.contains(&format!("\"{name}\":")));
        let lower_response = response.to_lowercase();
        let is_unknown = UNKNOWN_FIELD_PHRASES.iter().any(|phrase| lower_response.contains(phrase));
        let is_rejected = matches!(status, 200 | 400 | 422) && names_field && is_unknown;
        (is_rejected && !options.drops_unbound_native)
            .then(|| EncodeOptions { drops_unbound_native: true, ..options.clone() })
    }
}

/// The longest answer, and its newer name, which the reasoning models of OpenAI take only.
const MAX_TOKENS_KEY: &str = "max_tokens";
const NEW_MAX_TOKENS_KEY: &str = "max_completion_tokens";

/// Adds the call of the older member `function_call` to a message that has no other.
pub fn add_function_call(message: &mut Map<String, Value>) {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    let function = message
        .get("function_call")
        .filter(|function| function.is_object() && calls.is_none_or(Vec::is_empty));
    if let Some(function) = function {
        let calls = json!([{"type": "function", "function": function}]);
        message.insert("tool_calls".to_owned(), calls);
    }
}

/// The error of a choice, if it has one, with the tokens that its response reports.
pub fn choice_error(choice: &Value, usage: Option<&Value>) -> Option<Value> {
    let error = find_error(choice)?;
    let mut body = json!({"error": error});
    if let Some(usage) = usage {
        body["usage"] = usage.clone();
    }
    Some(body)
}

/// The reply, unless no run can continue with an answer that ended so.
pub fn check_ending(reply: Reply) -> Result<Reply, AnswerError> {
    let reason = reply.finish_reason.as_deref().unwrap_or_default();
    match unusable_ending("finish_reason", reason, !reply.tool_calls.is_empty()) {
        Some(unusable) => Err(AnswerError::Unusable(Box::new(UnusableAnswer {
            usage: reply.usage,
            response: reply.response.to_value(),
            ..unusable
        }))),
        None => Ok(reply),
    }
}

/// Parts of the messages with which endpoints reject a field that they do not know.
const UNKNOWN_FIELD_PHRASES: [&str; 9] = [
    "unknown",
    "unrecognized",
    "unexpected",
    "unsupported",
    "not supported",
    "not permitted",
    "not allowed",
    "additional propert",
    "extra_forbidden",
];

impl ChatCodec {
    /// The body with the fields that the endpoint expects back, with call ids that it accepts and with its images; `None` if
    /// it is the same.
    ///
    /// # Errors
    /// The body is not a request, or an image cannot be read.
    fn translate(
        &self,
        body: &NeutralBody<'_>,
        options: &EncodeOptions,
    ) -> Result<Option<String>, String> {
        let mut request: Map<String, Value> =
            serde_json::from_str(body.text).map_err(|error| format!("the request: {error}"))?;
        let Some(messages) = request.get_mut("messages").and_then(Value::as_array_mut) else {
            return Ok(None);
        };
        let origin = AnswerOrigin {
            model: self.settings.model.clone(),
            endpoint: options.endpoint.clone().unwrap_or_default(),
        };
        let mut is_changed = message_fields::restore_fields(messages, &origin, options);
        if options.uses_system_role {
            is_changed |= super::use_system_role(messages);
        }
        if options.merges_system {
            is_changed |= super::merge_system_messages(messages);
        }
        if let Some(length) = options.call_ids {
            is_changed |= call_ids::fit_call_ids(messages, usize::from(length));
        }
        if let Some(reader) = body.images {
            is_changed |= image_parts::send_images(messages, reader)?;
        }
        // After all that adds messages of the user.
        if options.alternates_roles {
            is_changed |= alternate_roles(messages);
        }
        if options.uses_max_completion_tokens && request.contains_key(MAX_TOKENS_KEY) {
            let members = request.into_iter().map(|(name, value)| {
                let is_renamed = name == MAX_TOKENS_KEY;
                (if is_renamed { NEW_MAX_TOKENS_KEY.to_owned() } else { name }, value)
            });
            request = members.collect();
            is_changed = true;
        }
        Ok(is_changed.then(|| to_json(&request)))
    }
}
