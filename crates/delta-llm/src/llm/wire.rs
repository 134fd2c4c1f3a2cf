//! The translation between Chat Completions, the form of everything above the provider, and the form of an endpoint.
//!
//! Pure: a [`WireCodec`] turns a request body into wire bytes and a response into a [`Reply`]; it opens no connection and
//! keeps nothing between calls. What it decided apart from the request itself is in [`EncodeOptions`], which the record of the
//! call holds, so that the wire bytes can be made again.

mod answer_end;
mod anthropic;
mod cache_plan;
pub(super) mod chat;
mod event_stream;
mod gemini;
mod image_reader;
mod neutral_request;
mod neutral_response;
mod patched_object;
mod responses;
mod role_order;
mod system_messages;
mod tool_choice;
mod write_history;

use super::CallObserver;
use super::answer_error::AnswerError;
use super::reply_assembler::StreamError;
use delta_base::hex::sha256_hex;
use delta_base::json::to_json;
use delta_base::text::byte_escape::encode_percent;
use delta_http::ResponseHead;
use delta_http::retry::RetryDecision;
use delta_words::{EncodeOptions, Reply, SERVICE_TIER_KEY, ServiceTier, WireExchange, WireForm};
use serde_json::{Map, Value};
use std::sync::Arc;

pub use answer_end::AnswerEnd;
pub use cache_plan::{CacheBlock, CacheHistory, CachePolicy};
pub use event_stream::{
    EventAssembler, EventReader, EventStream, add_member_piece, excerpt, find_error, reported_error,
};
pub use image_reader::ImageReader;
pub use neutral_request::{
    NeutralCall, NeutralContent, NeutralMessage, NeutralPart, NeutralRequest, NeutralTool,
    turn_start,
};
pub use neutral_response::NeutralAnswer;
pub use patched_object::PatchedObject;
pub use system_messages::{
    merge_system_messages, merged_system_options, system_role_options, use_system_role,
};
pub use tool_choice::{
    TOOL_CHOICE_KEY, ToolChoice, force_call, refused_choice_options, set_tool_choice,
};
pub use write_history::WriteHistory;

/// The version of the translation in records; it changes when the same request would become other wire bytes.
pub const TRANSLATION_VERSION: u32 = 2;

/// What a codec needs to know apart from the request.
#[derive(Debug, Clone)]
pub struct CodecSettings {
    /// The model of the requests.
    pub model: String,
    /// The address up to, not including, the path of the form.
    pub base_url: String,
    /// Whether responses are streamed.
    pub stream: bool,
    /// The version of the form.
    pub api_version: Option<String>,
}

/// The name of a model as a part of an address.
fn encode_model_name(name: &str) -> String {
    encode_percent(name, b"-._~/@:")
}

/// A request body before its translation.
#[derive(Debug, Clone, Copy)]
pub struct NeutralBody<'a> {
    /// The body, in the form of Chat Completions.
    pub text: &'a Arc<String>,
    /// Whether a message may have the member `native`.
    pub has_native: bool,
    /// The run of the request.
    pub run_id: &'a str,
    /// Resolves the references to images; `None` if there are none.
    pub images: Option<ImageReader<'a>>,
}

/// A request as it is sent.
#[derive(Debug)]
pub struct EncodedRequest {
    /// The body.
    pub body: Arc<String>,
    /// Whether the body is not, byte for byte, the one that was translated.
    pub is_changed: bool,
    /// The SHA-256 of what the answer's opaque parts will be bound to: tools, system prompt and messages. `None` if the form
    /// binds nothing.
    pub basis: Option<String>,
    /// The blocks that [`EncodeOptions::cache`] counts, or whose prefixes the endpoint caches by itself; empty if the form
    /// does not tell it what to cache.
    pub cache_blocks: Vec<CacheBlock>,
}

/// What a codec needs to read a response.
#[derive(Debug, Clone, Copy)]
pub struct DecodeContext<'a> {
    /// The model, if the response does not name one.
    pub model: &'a str,
    /// The basis of the request: see [`EncodedRequest::basis`].
    pub basis: Option<&'a str>,
}

/// Translates the recorded `body` of a request for `model` again, and checks that the bytes are the ones that `exchange`
/// sent.
///
/// # Errors
/// The bytes differ, or another version of delta wrote the record; the text says why.
pub fn encode_again(
    exchange: &WireExchange,
    model: &str,
    body: &NeutralBody<'_>,
) -> Result<String, String> {
    let form = WireForm::parse(&exchange.form)
        .ok_or_else(|| format!("delta does not know the form `{}`", exchange.form))?;
    let settings = CodecSettings {
        model: model.to_owned(),
        base_url: exchange.base_url.clone().unwrap_or_default(),
        stream: NeutralRequest::parse(body.text)?.stream,
        api_version: exchange.api_version.clone(),
    };
    let encoded = encode_request(&*codec_for(form, settings), body, &exchange.options)?;
    if sha256_hex(encoded.body.as_str()) == exchange.request_sha256 {
        return Ok(Arc::unwrap_or_clone(encoded.body));
    }
    let reason = if exchange.version == TRANSLATION_VERSION {
        "its hash is not the recorded one"
    } else {
        "another version of delta sent it"
    };
    Err(format!("the body that was sent cannot be made again: {reason}"))
}

/// Translates a request body, without what `options` leave out of its demand for a call, and with the service tier of `options`.
///
/// # Errors
/// As for [`WireCodec::encode`].
pub fn encode_request(
    codec: &dyn WireCodec,
    body: &NeutralBody<'_>,
    options: &EncodeOptions,
) -> Result<EncodedRequest, String> {
    let weakened = options
        .forced_call
        .and_then(|rest| tool_choice::weaken_forced_call(codec.form(), body.text, rest));
    let tiered = with_tier(codec.form(), weakened.as_ref().unwrap_or(body.text), options.tier);
    let text = tiered.or(weakened);
    let Some(text) = text.map(Arc::new) else { return codec.encode(body, options) };
    let encoded = codec.encode(&NeutralBody { text: &text, ..*body }, options)?;
    Ok(EncodedRequest { is_changed: true, ..encoded })
}

/// The body with the member that asks for the service tier `tier`, in the word of `form`; `None` if it is the ordinary one.
fn with_tier(form: WireForm, body: &str, tier: ServiceTier) -> Option<String> {
    if tier.is_direct() {
        return None;
    }
    let key = if form == WireForm::Gemini { "serviceTier" } else { SERVICE_TIER_KEY };
    // The other members stay byte for byte; only one that agent.yaml has written is taken out.
    let own_member = format!("\"{SERVICE_TIER_KEY}\":");
    let without = body.contains(&own_member).then(|| {
        let mut members: Map<String, Value> = serde_json::from_str(body).ok()?;
        members.shift_remove(SERVICE_TIER_KEY)?;
        Some(to_json(&members))
    });
    let without = without.flatten();
    let members = without.as_deref().unwrap_or(body).strip_suffix('}')?;
    Some(format!("{members},\"{key}\":\"{}\"}}", tier.name()))
}

/// The body for an endpoint that rejects `stream_options`; `None` if `body` has none.
pub fn without_stream_options(body: &str) -> Option<String> {
    let mut body: Value = serde_json::from_str(body).ok()?;
    body.as_object_mut()?.shift_remove("stream_options")?;
    Some(body.to_string())
}

/// A request that the endpoint rejected.
#[derive(Debug, Clone, Copy)]
pub struct RejectedRequest<'a> {
    /// The HTTP status; a success if the error is the response itself.
    pub status: u16,
    /// The body of the response.
    pub response: &'a str,
    /// The body that was sent.
    pub sent: &'a str,
    /// The options that it was sent with.
    pub options: &'a EncodeOptions,
}

/// What a codec knows about a rejection that the status alone does not say.
#[derive(Debug, Default)]
pub struct RejectionAdvice {
    /// Whether another attempt makes sense, if the status does not decide it.
    pub retry: Option<RetryDecision>,
    /// What the user can do about it.
    pub hint: Option<String>,
}

/// The translation of one wire form.
pub trait WireCodec {
    /// The form.
    fn form(&self) -> WireForm;

    /// The URL of the requests.
    fn url(&self) -> String;

    /// The headers that only this form needs.
    fn headers(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The options of the first request.
    fn initial_options(&self) -> EncodeOptions {
        EncodeOptions::default()
    }

    /// Translates a request body.
    ///
    /// # Errors
    /// A hook has made the body something that the form cannot express; the text names it.
    fn encode(
        &self,
        body: &NeutralBody<'_>,
        options: &EncodeOptions,
    ) -> Result<EncodedRequest, String>;

    /// An assembler of one streamed response.
    fn new_assembler(&self) -> Box<dyn StreamAssembler>;

    /// Translates a whole response.
    ///
    /// # Errors
    /// It is an error of the endpoint, or no response of this form.
    fn decode(&self, response: Value, context: &DecodeContext<'_>) -> Result<Reply, AnswerError>;

    /// The options with which a rejected request is sent again at once; `None` if that would change nothing.
    fn recovery(&self, rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
        let _ = rejected;
        None
    }

    /// What to do about a rejection.
    fn advise(&self, head: &ResponseHead, body: &str) -> RejectionAdvice {
        let _ = (head, body);
        RejectionAdvice::default()
    }

    /// What to do about an error that the endpoint reports in a response with the status of a success.
    fn advise_reported(&self, error: &Value) -> RejectionAdvice {
        let _ = error;
        RejectionAdvice::default()
    }
}

/// Assembles a streamed response.
pub trait StreamAssembler {
    /// Adds the next bytes of the body.
    fn push(&mut self, bytes: &[u8]) -> Result<(), StreamError>;

    /// Ends the body. An event that is cut off is not an error by itself: `is_complete` decides.
    fn finish(&mut self) -> Result<(), StreamError>;

    /// Whether nothing more is expected.
    fn is_done(&self) -> bool;

    /// Whether the answer is complete. A stream without a sign of its end never is.
    fn is_complete(&self) -> bool;

    /// Whether an event has arrived that is neither an error nor a sign of life.
    fn has_begun(&self) -> bool;

    /// Whether more may follow at any later time although the answer is complete: only the end of the body tells.
    fn may_continue(&self) -> bool {
        false
    }

    /// Passes on the text and the reasoning that have arrived since the last time.
    fn pass_new_text(&mut self, observe: CallObserver<'_>);

    /// The complete reply.
    fn into_reply(self: Box<Self>, context: &DecodeContext<'_>) -> Result<Reply, AnswerError>;
}

/// The codec of a form.
pub fn codec_for(form: WireForm, settings: CodecSettings) -> Box<dyn WireCodec> {
    match form {
        WireForm::OpenAi => Box::new(chat::ChatCodec::new(settings)),
        WireForm::Responses => Box::new(responses::ResponsesCodec::new(settings)),
        WireForm::Anthropic => Box::new(anthropic::AnthropicCodec::new(settings)),
        WireForm::Gemini => Box::new(gemini::GeminiCodec::new(settings)),
    }
}

/// A head of a response with one header, for the tests of all forms.
#[cfg(test)]
pub(super) fn test_head(status: u16, name: &'static str, value: &'static str) -> ResponseHead {
    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
    let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
    ResponseHead {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::from_iter([header]),
    }
}
