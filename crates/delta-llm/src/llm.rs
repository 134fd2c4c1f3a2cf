//! The LLM: the request, the reply, and the trait of the providers that turn one into the other.
//!
//! Knows nothing of runs or journals. A [`Provider`] gets a finished [`LlmRequest`] and returns a complete [`Reply`] or
//! an [`LlmError`]; it drops a response that breaks off.

use delta_base::durable::FileError;
use delta_base::engine_variables::EngineVars;
use delta_base::signal::CancelToken;
use delta_words::{Attempt, Reply, TryNumber, Unavailability, Usage, WireExchange};
use serde_json::Value;
use std::sync::Arc;

mod answer_error;
mod answer_policy;
mod argument_text;
mod call_markers;
pub mod cassette;
mod command_provider;
pub mod config;
pub mod endpoint;
mod exact_arguments;
mod fallback;
mod html_page;
mod llm_setting;
mod model_choice;
mod offered_model;
pub mod price_file;
mod pricing;
pub mod recorded_provider;
mod reply_assembler;
pub mod script;
pub mod wire;

pub use answer_error::{
    ANSWER_LENGTH_HINT, AnswerError, CONTEXT_LENGTH_HINT, SHARED_CONTEXT_HINT, UnusableAnswer,
    body_excerpt, has_answer_piece,
};
pub use answer_policy::{AnswerPolicy, OnEmpty, OnLength, TextCalls};
pub use call_markers::{call_marker_positions, find_call_marker, find_earlier_call_marker};
pub use config::{LlmConfig, ProviderKind};
pub use endpoint::{Endpoint, EndpointError};
pub use exact_arguments::quote_inexact_arguments;
pub use llm_setting::LlmSetting;
pub use model_choice::{ModelChoice, ModelSelection};
pub use offered_model::OfferedModel;
pub use pricing::pricing_from_agent_yaml;
pub use reply_assembler::StreamError;
pub use wire::{AnswerEnd, ImageReader};

/// The environment variable that marks the processes of the `command` provider. By it delta finds and kills the processes
/// that left the process group of a command that was killed.
pub const COMMAND_MARK: (&str, &str) = ("DELTA_LLM", "1");

/// A request to the LLM: the body that is sent, and what a provider needs to know about it.
pub struct LlmRequest<'a> {
    /// The exact request body: compact JSON. Shared, so that a provider can send it without a copy.
    pub body: &'a Arc<String>,
    /// The text of the first user message; `${task}` in a script.
    pub task: &'a str,
    /// The text of the last user message; `${message}` in a script.
    pub last_user_message: &'a str,
    /// The last message, as JSON; a script matches `when` against its text, and `${last}` is its text.
    pub last_message: &'a str,
    /// How often the run has changed to the next model of `llm.fallback`, according to the journal.
    pub model_changes: usize,
    /// Whether another model is asked if this one does not answer.
    pub has_fallback: bool,
    /// The index of the next turn of a script or call of a recording, according to the journal.
    pub script_turn: usize,
    /// Whether the observer of the call gets the text as it arrives.
    pub is_live: bool,
    /// Reads the body of the last request of the run, if an earlier process sent one.
    pub previous_body: Option<&'a dyn Fn() -> Option<String>>,
    /// Reads how that request was sent, where its record has that.
    pub previous_exchange: Option<&'a dyn Fn() -> Option<WireExchange>>,
    /// Whether a message may have the member `native`.
    pub has_native: bool,
    /// Whether delta demands a call, which a provider leaves out if the endpoint refuses that.
    pub forces_call: bool,
    /// The run: an endpoint may keep the caches of its requests together.
    pub run_id: &'a str,
    /// The number of messages with which every run of the agent begins: an endpoint may keep them for all.
    pub constant_messages: usize,
    /// Resolves the references to images in the body; `None` if it has none.
    pub images: Option<ImageReader<'a>>,
}

impl<'a> LlmRequest<'a> {
    /// A request with this body that belongs to no run: without texts for a script, live text, and images.
    pub fn new(body: &'a Arc<String>) -> Self {
        Self {
            body,
            task: "",
            last_user_message: "",
            last_message: "",
            model_changes: 0,
            has_fallback: false,
            script_turn: 0,
            is_live: false,
            previous_body: None,
            previous_exchange: None,
            has_native: false,
            forces_call: false,
            run_id: "",
            constant_messages: 0,
            images: None,
        }
    }
}

/// Why an LLM call failed.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// Cancellation was requested; a partial response is dropped.
    #[error("interrupted")]
    Cancelled,
    /// Every attempt failed, or one failed in a way that a retry would not change.
    #[error("{message}")]
    Failed {
        /// The message for the user, with the provider's own message.
        message: String,
        /// The last HTTP status.
        status: Option<u16>,
        /// What the user can do about it.
        hint: Option<String>,
        /// The body of the last error response.
        response: Option<Value>,
        /// Why another model may answer where this one does not; `None` if the request would fail there too.
        unavailable: Option<Unavailability>,
        /// The index of the script turn or of the recorded call that failed.
        script_turn: Option<usize>,
    },
}

impl LlmError {
    /// Whether the conversation does not fit into the model's context: a result of the agent, and no failure of the endpoint.
    pub fn is_context_length(&self) -> bool {
        let Self::Failed { hint, .. } = self else { return false };
        hint.as_deref()
            .is_some_and(|hint| [CONTEXT_LENGTH_HINT, SHARED_CONTEXT_HINT].contains(&hint))
    }

    /// A failure with nothing but a message.
    pub fn from_message(message: impl Into<String>) -> Self {
        Self::Failed {
            message: message.into(),
            status: None,
            hint: None,
            response: None,
            unavailable: None,
            script_turn: None,
        }
    }
}

/// Providers of the models of `llm.fallback`, and of the first one.
struct ModelProviders(Vec<Box<dyn Provider>>);

impl Provider for ModelProviders {
    fn complete(
        &mut self,
        request: &LlmRequest<'_>,
        cancel: &CancelToken,
        observe: CallObserver<'_>,
    ) -> Result<Reply, LlmError> {
        match self.0.get_mut(request.model_changes) {
            Some(provider) => provider.complete(request, cancel, observe),
            None => Err(LlmError::from_message("no endpoint")),
        }
    }

    fn stored_reply(&mut self, request: &LlmRequest<'_>) -> Option<Reply> {
        self.0.get_mut(request.model_changes)?.stored_reply(request)
    }

    fn take_unstored(&mut self) -> Option<StoreReply> {
        self.0.iter_mut().find_map(|provider| provider.take_unstored())
    }
}

/// What happens while a provider waits for a reply.
#[derive(Debug)]
pub enum CallProgress<'a> {
    /// An attempt has failed.
    AttemptFailed {
        /// The attempt.
        attempt: &'a Attempt,
        /// Whether an answer had started: without one it used no tokens.
        has_answer: bool,
        /// The number of the next one, if there is one.
        next: TryNumber,
    },
    /// The next piece of the reply's text, as it arrives.
    Text(&'a str),
    /// The next piece of the reply's reasoning.
    Reasoning(&'a str),
    /// The next piece of the arguments of its calls.
    Arguments(&'a str),
    /// What the endpoint has reported of the tokens so far.
    Usage(&'a Usage),
    /// The request is about to go out again, after a failed attempt.
    SendingAgain {
        /// Whether it must not: the failed attempt is then the last one.
        is_refused: &'a mut bool,
    },
}

impl CallProgress<'_> {
    /// Whether it is a part of the answer.
    pub fn is_of_answer(&self) -> bool {
        !matches!(self, Self::AttemptFailed { .. } | Self::SendingAgain { .. })
    }
}

/// Gets the progress of a call.
pub type CallObserver<'a> = &'a mut dyn FnMut(CallProgress<'_>);

/// A source of replies.
pub trait Provider {
    /// Waits for one complete reply, at most until `cancel` is set. A provider that cannot stream passes no text to
    /// `observe`.
    fn complete(
        &mut self,
        request: &LlmRequest<'_>,
        cancel: &CancelToken,
        observe: CallObserver<'_>,
    ) -> Result<Reply, LlmError>;

    /// The reply to the request that another run got, for a provider whose replies are stored: the request is not sent.
    fn stored_reply(&mut self, _request: &LlmRequest<'_>) -> Option<Reply> {
        None
    }

    /// What stores the reply that was got last for other runs, if it shall be stored. The event that has the reply must be
    /// durable before that.
    fn take_unstored(&mut self) -> Option<StoreReply> {
        None
    }
}

/// Stores a reply, with the name of the event that has it, `RUN#SEQ`, and its cost in USD, if it is known.
pub type StoreReply = Box<dyn FnOnce(String, Option<f64>) -> Result<(), FileError>>;

/// Creates the provider that `config` selects: for an endpoint `endpoints`, one for each of its models. Does not
/// connect before the first call. Only the `command` provider calls `launch`.
pub fn create_provider(
    config: &LlmConfig,
    endpoints: Vec<Box<dyn Provider>>,
    launch: impl FnOnce() -> delta_process::LaunchContext,
    vars: &EngineVars,
) -> Result<Box<dyn Provider>, LlmError> {
    match &config.provider {
        ProviderKind::Endpoint(_) => Ok(Box::new(ModelProviders(endpoints))),
        ProviderKind::Script(script) => {
            Ok(Box::new(script::ScriptProvider::new(script.clone(), config.model.clone())))
        }
        ProviderKind::Recorded(cassette) => {
            let accept_all = Box::new(|_: &recorded_provider::RequestComparison<'_>| Ok(()));
            let calls = cassette.recorded_calls();
            Ok(Box::new(recorded_provider::RecordedProvider::new(calls, accept_all)))
        }
        ProviderKind::Command(argv) => Ok(Box::new(command_provider::CommandProvider::new(
            argv.iter().map(|word| vars.expand_text(word)).collect(),
            launch(),
            config.model.clone(),
            config.timeout_ms,
        ))),
    }
}
