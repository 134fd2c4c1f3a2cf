//! OpenAI's Responses, without state at the endpoint: every request holds the whole conversation as a list of items, and
//! reasoning goes back encrypted.

mod answer;
mod failure;
mod request;
mod stream;

use super::super::answer_error::AnswerError;
use super::neutral_response::NeutralUsage;
use super::{
    CodecSettings, DecodeContext, EncodedRequest, EventStream, NeutralAnswer, NeutralBody,
    NeutralRequest, RejectedRequest, RejectionAdvice, StreamAssembler, WireCodec,
};
use answer::{AnswerItems, append_paragraph};
use delta_http::{ResponseHead, append_path, host_of};
use delta_words::{EncodeOptions, NativeParts, Reply, SERVICE_TIER_KEY, ServiceTier, WireForm};
use serde_json::{Value, json};
use std::sync::Arc;
use stream::ResponseAssembler;

/// The codec of Responses.
#[derive(Debug, Clone)]
pub struct ResponsesCodec {
    settings: CodecSettings,
    /// The host of the endpoint: what it encrypted, no other can read.
    host: Option<String>,
}

impl ResponsesCodec {
    /// A codec with these settings.
    pub fn new(settings: CodecSettings) -> Self {
        let host = host_of(&settings.base_url).map(str::to_ascii_lowercase);
        Self { settings, host }
    }

    /// Whether the endpoint that is asked now made the opaque parts.
    fn accepts(&self, native: &NativeParts) -> bool {
        native.is_from(WireForm::Responses, &self.settings.model) && native.endpoint == self.host
    }
}

impl WireCodec for ResponsesCodec {
    fn form(&self) -> WireForm {
        WireForm::Responses
    }

    fn url(&self) -> String {
        append_path(&self.settings.base_url, "/responses")
    }

    fn encode(
        &self,
        body: &NeutralBody<'_>,
        options: &EncodeOptions,
    ) -> Result<EncodedRequest, String> {
        let merged = if options.merges_system { merged_text(body.text) } else { None };
        let merged = merged.map(Arc::new);
        let body = &NeutralBody { text: merged.as_ref().unwrap_or(body.text), ..*body };
        let neutral = NeutralRequest::read(body)?;
        let run_id = body.run_id;
        let request::EncodedBody { text, cache_blocks } =
            request::encode(&neutral, run_id, options, |native| self.accepts(native))?;
        Ok(EncodedRequest { body: Arc::new(text), is_changed: true, basis: None, cache_blocks })
    }

    fn new_assembler(&self) -> Box<dyn StreamAssembler> {
        Box::new(EventStream::new(ResponseAssembler::default(), self.clone()))
    }

    fn decode(&self, response: Value, context: &DecodeContext<'_>) -> Result<Reply, AnswerError> {
        let status = response.get("status").and_then(Value::as_str).unwrap_or("completed");
        if let Some(error) = super::find_error(&response).filter(|_| status != "incomplete") {
            return Err(AnswerError::Reported(json!({"error": error})));
        }
        if response.get("output").is_none()
            && let Some(error) = super::reported_error(&response)
        {
            return Err(AnswerError::Reported(error));
        }
        let is_complete = match status {
            "completed" => true,
            "incomplete" => false,
            _ => {
                let message = format!("the response ended with the status `{status}`");
                return Err(AnswerError::InvalidResponse(message));
            }
        };
        let Some(items) = response.get("output").and_then(Value::as_array) else {
            return Err(AnswerError::NoAnswer("the response has no `output`".to_owned(), response));
        };
        let mut read = AnswerItems::read(items);
        // Some servers send the text only where the vendor's SDKs have it.
        let sdk_text = response.get("output_text").and_then(Value::as_str);
        if read.text.is_none() && read.calls.is_empty() {
            append_paragraph(&mut read.text, sdk_text.unwrap_or_default());
        }
        let model = response.get("model").and_then(Value::as_str).unwrap_or(context.model);
        let finish_reason = match (is_complete, read.calls.is_empty()) {
            (true, true) => "stop",
            (true, false) => "tool_calls",
            (false, _) => incomplete_reason(&response),
        };
        let native = answer::opaque_parts(items).map(|parts| NativeParts {
            form: WireForm::Responses.name().to_owned(),
            model: context.model.to_owned(),
            endpoint: self.host.clone(),
            basis: None,
            parts,
        });
        let answer = NeutralAnswer {
            id: response.get("id").and_then(Value::as_str).map(str::to_owned),
            model: model.to_owned(),
            content: read.text,
            reasoning: read.reasoning,
            refusal: read.refusal,
            tool_calls: read.calls,
            finish_reason: Some(finish_reason.to_owned()),
            ending: None,
            usage: response.get("usage").and_then(answer::reported_usage).map(|usage| {
                let tier = response.get(SERVICE_TIER_KEY).and_then(Value::as_str);
                NeutralUsage { tier: tier.map(ServiceTier::from_name), ..usage }
            }),
            native,
        };
        Ok(answer.into_reply(response))
    }

    fn recovery(&self, rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
        failure::options_without_cause(rejected)
    }

    fn advise(&self, head: &ResponseHead, body: &str) -> RejectionAdvice {
        failure::rejection_advice(head, body)
    }

    fn advise_reported(&self, error: &Value) -> RejectionAdvice {
        failure::error_advice(error)
    }
}

/// The request with one system message; `None` if it is the same.
fn merged_text(text: &str) -> Option<String> {
    let mut request: Value = serde_json::from_str(text).ok()?;
    let messages = request.get_mut("messages")?.as_array_mut()?;
    super::merge_system_messages(messages).then(|| request.to_string())
}

/// Why the response is incomplete, in the words of Chat Completions.
fn incomplete_reason(response: &Value) -> &'static str {
    match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
        None | Some("max_output_tokens") => "length",
        Some("content_filter") => "content_filter",
        Some(_) => "incomplete",
    }
}

#[cfg(test)]
mod tests;
