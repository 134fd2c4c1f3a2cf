//! A streamed response whose events are JSON objects: the part of the assembling that all forms share.

use super::super::endpoint_provider::AttemptError;
use super::super::exact_arguments::quote_inexact_arguments;
use super::super::reply_assembler::StreamError;
use super::super::{CallObserver, CallProgress};
use super::{DecodeContext, StreamAssembler, WireCodec};
use delta_base::json_repair::replace_lone_surrogates;
use delta_http::sse_parser::SseParser;
use delta_words::{Reply, Usage};
use serde_json::Value;

/// The most characters shown of an event that is not JSON.
const MAX_EXCERPT_CHARS: usize = 500;

/// Assembles the events of one form into the response that the endpoint would have sent whole.
pub trait EventAssembler {
    /// Adds an event, a JSON object. An event of an unknown type is ignored.
    ///
    /// # Errors
    /// The event is an error of the endpoint.
    fn add_event(&mut self, event: Value) -> Result<(), StreamError>;

    /// Whether the answer is complete.
    fn is_complete(&self) -> bool;

    /// Whether nothing more is expected after that.
    fn is_ended(&self) -> bool {
        self.is_complete()
    }

    /// The text so far.
    fn text(&self) -> &str;

    /// The reasoning so far.
    fn reasoning(&self) -> &str;

    /// The arguments of the calls so far, one after the other.
    fn arguments(&self) -> &str {
        ""
    }

    /// What the endpoint has reported of the tokens so far.
    fn usage(&self) -> Option<&Usage> {
        None
    }

    /// The response in the form of an unstreamed one.
    fn into_response(self) -> Value;
}

/// A streamed response, read by an [`EventAssembler`].
pub struct EventStream<A, C> {
    parser: SseParser,
    assembler: A,
    codec: C,
    is_done: bool,
    /// The bytes of the text and of the reasoning that an observer has.
    observed_text: usize,
    observed_reasoning: usize,
    observed_arguments: usize,
    observed_usage: Option<Usage>,
}

impl<A: EventAssembler, C: WireCodec> EventStream<A, C> {
    /// A stream without an event. `codec` decodes the assembled response.
    pub fn new(assembler: A, codec: C) -> Self {
        Self {
            parser: SseParser::default(),
            assembler,
            codec,
            is_done: false,
            observed_text: 0,
            observed_reasoning: 0,
            observed_arguments: 0,
            observed_usage: None,
        }
    }

    fn add_data(&mut self, data: &str) -> Result<(), StreamError> {
        if self.is_done || data.trim().is_empty() {
            return Ok(());
        }
        if data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let data = &replace_lone_surrogates(data);
        let member = self.codec.form().arguments_member();
        match serde_json::from_str(&quote_inexact_arguments(data, member)) {
            Ok(event @ Value::Object(_)) => self.assembler.add_event(event),
            _ => Err(StreamError::NotJson(data.chars().take(MAX_EXCERPT_CHARS).collect())),
        }
    }
}

impl<A: EventAssembler, C: WireCodec> StreamAssembler for EventStream<A, C> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.parser.push(bytes).iter().try_for_each(|data| self.add_data(data))
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        match self.parser.finish().map(|data| self.add_data(&data)) {
            Some(Err(StreamError::Reported(error))) => Err(StreamError::Reported(error)),
            _ => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.is_done || self.assembler.is_ended()
    }

    fn is_complete(&self) -> bool {
        self.assembler.is_complete()
    }

    fn pass_new_text(&mut self, observe: CallObserver<'_>) {
        let reasoning = self.assembler.reasoning();
        if reasoning.len() > self.observed_reasoning {
            observe(CallProgress::Reasoning(&reasoning[self.observed_reasoning..]));
            self.observed_reasoning = reasoning.len();
        }
        let text = self.assembler.text();
        if text.len() > self.observed_text {
            observe(CallProgress::Text(&text[self.observed_text..]));
            self.observed_text = text.len();
        }
        let arguments = self.assembler.arguments();
        if arguments.len() > self.observed_arguments {
            observe(CallProgress::Arguments(&arguments[self.observed_arguments..]));
            self.observed_arguments = arguments.len();
        }
        let usage =
            self.assembler.usage().filter(|usage| self.observed_usage.as_ref() != Some(*usage));
        if let Some(usage) = usage {
            observe(CallProgress::Usage(usage));
            self.observed_usage = Some(usage.clone());
        }
    }

    fn into_reply(self: Box<Self>, context: &DecodeContext<'_>) -> Result<Reply, AttemptError> {
        self.codec.decode(self.assembler.into_response(), context)
    }
}
