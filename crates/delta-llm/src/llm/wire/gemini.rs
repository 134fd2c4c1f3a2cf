//! Gemini's `generateContent`, of AI Studio and of Vertex.
//!
//! What is not obvious about the form: an answer with calls stops with `STOP`, a call may have no id, the key of a stream is
//! in its URL (`alt=sse`), and the signature of a thought belongs to the part on which it arrived.

mod answer;
mod rejection;
mod request;

use super::super::answer_error::AnswerError;
use super::{
    CodecSettings, DecodeContext, EncodedRequest, EventStream, NeutralBody, RejectedRequest,
    RejectionAdvice, StreamAssembler, WireCodec,
};
use answer::GeminiAssembler;
use delta_http::{ResponseHead, host_of};
use delta_words::{EncodeOptions, NativeParts, Reply, WireForm};
use serde_json::Value;
use std::sync::Arc;

/// The codec of `generateContent`.
#[derive(Debug, Clone)]
pub struct GeminiCodec {
    settings: CodecSettings,
}

impl GeminiCodec {
    /// A codec with these settings.
    pub fn new(settings: CodecSettings) -> Self {
        Self { settings }
    }

    /// The host of the endpoint: AI Studio and Vertex do not know each other's ids and signatures.
    fn host(&self) -> Option<&str> {
        host_of(&self.settings.base_url)
    }

    /// Whether the endpoint itself made the parts.
    fn has_made(&self, native: &NativeParts) -> bool {
        native.is_from(WireForm::Gemini, &self.settings.model)
            && native.endpoint.as_deref() == self.host()
    }
}

impl WireCodec for GeminiCodec {
    fn form(&self) -> WireForm {
        WireForm::Gemini
    }

    fn url(&self) -> String {
        request_url(&self.settings)
    }

    fn encode(
        &self,
        body: &NeutralBody<'_>,
        options: &EncodeOptions,
    ) -> Result<EncodedRequest, String> {
        let body = request::translate_body(body, options, |native| self.has_made(native))?;
        let cache_blocks = Vec::new();
        Ok(EncodedRequest { body: Arc::new(body), is_changed: true, basis: None, cache_blocks })
    }

    fn new_assembler(&self) -> Box<dyn StreamAssembler> {
        Box::new(EventStream::new(GeminiAssembler::default(), self.clone()))
    }

    fn decode(&self, response: Value, context: &DecodeContext<'_>) -> Result<Reply, AnswerError> {
        answer::decode_response(response, context.model, self.host())
    }

    fn recovery(&self, rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
        rejection::adapted_options(rejected)
    }

    fn advise(&self, head: &ResponseHead, body: &str) -> RejectionAdvice {
        rejection::advise_on_rejection(head.status.as_u16(), body, &self.settings)
    }
}

/// The URL of the requests. An address with `{model}` belongs to Vertex, whose path has more parts.
fn request_url(settings: &CodecSettings) -> String {
    let CodecSettings { base_url, model, stream, api_version } = settings;
    let method = if *stream { "streamGenerateContent" } else { "generateContent" };
    let base = base_url.split_once('#').map_or(base_url.as_str(), |(before, _)| before);
    let (path, query) = match base.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (base, None),
    };
    let path = path.trim_end_matches('/');
    let model = super::encode_model_name(model);
    let path = if path.contains("{model}") {
        let path = path.replace("{model}", &model);
        if path.contains("{method}") {
            path.replace("{method}", method)
        } else {
            format!("{path}:{method}")
        }
    } else {
        let last = path.rsplit('/').next().unwrap_or_default();
        let version = match api_version {
            Some(version) if !is_version(last) => format!("/{version}"),
            _ => String::new(),
        };
        // A name with a slash is the whole name of a resource, such as `tunedModels/mine`.
        let kind = if model.contains('/') { "" } else { "models/" };
        format!("{path}{version}/{kind}{model}:{method}")
    };
    let queries = query.into_iter().chain(stream.then_some("alt=sse"));
    let query = queries.filter(|query| !query.is_empty()).collect::<Vec<_>>().join("&");
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

/// Whether a segment of a path is a version of the API, such as `v1beta`.
fn is_version(segment: &str) -> bool {
    let number = segment.strip_prefix('v').unwrap_or_default();
    number.starts_with(|c: char| c.is_ascii_digit())
}

/// The name of a tool on the wire. Names there begin with a letter or `_`, so others get a `_` in front; and so do names
/// that would look like such a one.
pub(super) fn wire_tool_name(name: &str) -> String {
    if needs_underscore(name) { format!("_{name}") } else { name.to_owned() }
}

/// The name of the tool that is called `name` on the wire.
fn neutral_tool_name(name: &str) -> &str {
    name.strip_prefix('_').filter(|name| needs_underscore(name)).unwrap_or(name)
}

fn needs_underscore(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|c: char| !c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests;
