//! Anthropic's Messages, which DeepSeek, OpenRouter, Bedrock, Vertex AI and Foundry serve too.

mod answer;
mod rejection;
mod request;

use super::super::answer_error::AnswerError;
use super::{
    CodecSettings, DecodeContext, EncodedRequest, EventStream, NeutralBody, RejectedRequest,
    RejectionAdvice, StreamAssembler, WireCodec,
};
use answer::MessageAssembler;
use delta_http::{ResponseHead, append_path};
use delta_words::{EncodeOptions, Reply, WireForm};
use request::RequestEncoder;
use serde_json::Value;

/// The header of the version of the form.
const VERSION_HEADER: &str = "anthropic-version";

/// The codec of Messages.
#[derive(Debug, Clone)]
pub struct AnthropicCodec {
    settings: CodecSettings,
}

impl AnthropicCodec {
    /// A codec with these settings.
    pub fn new(settings: CodecSettings) -> Self {
        Self { settings }
    }

    /// Whether the address names the model: then the body must not, and has the version of the form instead.
    fn has_model_in_url(&self) -> bool {
        self.settings.base_url.contains("{model}")
    }
}

impl WireCodec for AnthropicCodec {
    fn form(&self) -> WireForm {
        WireForm::Anthropic
    }

    fn url(&self) -> String {
        let base = &self.settings.base_url;
        if self.has_model_in_url() {
            let method = if self.settings.stream { "streamRawPredict" } else { "rawPredict" };
            let model = super::encode_model_name(&self.settings.model);
            return base.replace("{model}", &model).replace("{method}", method);
        }
        let path = base.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let rest = if path.ends_with("/v1") { "/messages" } else { "/v1/messages" };
        append_path(base, rest)
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        let version = self.settings.api_version.iter();
        version.map(|version| (VERSION_HEADER, version.clone())).collect()
    }

    fn encode(
        &self,
        body: &NeutralBody<'_>,
        options: &EncodeOptions,
    ) -> Result<EncodedRequest, String> {
        RequestEncoder { settings: &self.settings, names_model: !self.has_model_in_url(), options }
            .encode(body)
    }

    fn new_assembler(&self) -> Box<dyn StreamAssembler> {
        Box::new(EventStream::new(MessageAssembler::default(), self.clone()))
    }

    fn decode(&self, response: Value, context: &DecodeContext<'_>) -> Result<Reply, AnswerError> {
        answer::decode(response, context)
    }

    fn recovery(&self, rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
        rejection::recovered_options(rejected)
    }

    fn advise(&self, head: &ResponseHead, body: &str) -> RejectionAdvice {
        rejection::advice_on_rejection(head, body)
    }

    fn advise_reported(&self, error: &Value) -> RejectionAdvice {
        rejection::advice_on_stream_error(error)
    }
}

#[cfg(test)]
mod tests;
