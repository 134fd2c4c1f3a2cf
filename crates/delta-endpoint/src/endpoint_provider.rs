//! The provider of an endpoint: posts the request in the endpoint's form, reads the response whole or streamed, and retries
//! where that makes sense.
//!
//! It returns complete replies only, reports each failed attempt at once, and stops every wait at cancellation.

mod attempt_failure;
mod key_refresh;
mod refusal_words;
mod upstream_error;

use crate::answer_store::AnswerStore;
use attempt_failure::{AttemptError, AttemptFailure, AttemptTarget, late_error_text};
use delta_base::hex::sha256_hex;
use delta_base::json_repair::replace_lone_surrogates;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_http::ResponseHead;
use delta_http::retry::RetryDecision;
use delta_http_client::{HttpClient, HttpClientConfig, HttpError, HttpExchange};
use delta_llm::llm::endpoint::ApiKey;
use delta_llm::llm::wire::{
    self, CacheBlock, CacheHistory, CachePolicy, CodecSettings, DecodeContext, EncodedRequest,
    NeutralBody, RejectedRequest, StreamAssembler, WireCodec, WriteHistory, without_stream_options,
};
use delta_llm::llm::{
    AnswerError, CallObserver, CallProgress, Endpoint, LlmError, LlmRequest, Provider, StoreReply,
    StreamError, has_answer_piece, quote_inexact_arguments,
};
use delta_words::{
    Attempt, CacheMarkers, EncodeOptions, Reply, ServiceTier, TryNumber, Usage, WireExchange,
    WireForm, is_throttling_status,
};
use http::{HeaderMap, HeaderValue, header};
pub use key_refresh::KeyRefresh;
use serde_json::Value;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
const MAX_ERROR_RESPONSE_BYTES: usize = 1024 * 1024;
/// How long a stream may take to end after its last event, so that its connection can be reused.
const STREAM_END_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a stream may be silent after the end of its answer, before its usage.
const LATE_EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause for which an endpoint may ask while another model is left: the longest of delta's own.
const MAX_FALLBACK_DELAY: Duration = Duration::from_secs(30);
/// What begins a stream of events.
const STREAM_FIELDS: [&str; 6] = ["data:", "event:", "error:", "id:", "retry:", ":"];

/// The provider of an endpoint.
pub struct EndpointProvider {
    endpoint: Endpoint,
    model: String,
    codec: Box<dyn WireCodec>,
    client: HttpClient,
    /// The endpoint rejected `stream_options`.
    omits_stream_options: bool,
    /// What an earlier process found out about the endpoint has been looked up.
    has_recalled: bool,
    /// The endpoint has answered: a refused connection means that it restarts, and not that nothing listens.
    has_answered: bool,
    key_refresh: Option<KeyRefresh>,
    /// What the endpoint's rejections have changed, for the rest of the process.
    options: EncodeOptions,
    /// What is known of the endpoint's cache; `None` if requests leave it to the endpoint.
    cache: Option<CachePlanner>,
    /// By its prices, the endpoint charges for writes to its cache.
    charges_writes: bool,
    /// The least tokens of a prefix that the endpoint keeps, if they are known.
    min_cached_prefix: Option<u64>,
    tier: RequestedTier,
    answers: Option<Rc<AnswerStore>>,
}

/// The service tier that requests ask for.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestedTier {
    /// The tier.
    pub tier: ServiceTier,
    /// Whether a request that the endpoint refuses in this tier is asked directly.
    pub asks_directly_when_refused: bool,
}

/// What is known of an attempt before it ends.
#[derive(Debug, Clone, Copy, Default)]
struct AttemptState {
    /// The HTTP status.
    status: Option<u16>,
    /// Whether an answer has started: a success has arrived, and it is not a refusal alone.
    has_answer: bool,
}

/// A request as it is sent, and what it differs in from the one that was asked for.
struct SentRequest {
    encoded: EncodedRequest,
    /// The request without `stream_options`, if the endpoint rejects them.
    shorter_body: Option<Arc<String>>,
    options: EncodeOptions,
}

/// How the endpoint learns what to cache.
#[derive(Debug)]
enum CachePlanner {
    /// Requests mark prefixes.
    Marked(CacheHistory),
    /// It caches by itself; requests can only avoid it.
    Implicit(WriteHistory),
}

impl EndpointProvider {
    /// Configures the provider. Does not connect yet. `model` is for messages, and for a usage that does not name one.
    ///
    /// # Errors
    /// The address, the proxy or the key is invalid.
    pub fn new(endpoint: Endpoint, model: impl Into<String>) -> Result<Self, LlmError> {
        let model = model.into();
        let codec = new_codec(&endpoint, &model);
        let client_config = HttpClientConfig {
            url: &codec.url(),
            headers: request_headers(&endpoint, &*codec).map_err(LlmError::from_message)?,
            total_timeout: Duration::from_millis(endpoint.timeout_ms),
            // A whole answer comes after all of it was generated.
            idle_timeout: Duration::from_millis(if endpoint.stream {
                endpoint.idle_timeout_ms
            } else {
                endpoint.timeout_ms
            }),
            proxy: endpoint.proxy.as_deref(),
        };
        let client = HttpClient::new(client_config).map_err(LlmError::from_message)?;
        let options = initial_options(&endpoint, &*codec);
        let cache = new_cache_planner(&endpoint);
        Ok(Self {
            endpoint,
            model,
            codec,
            client,
            omits_stream_options: false,
            has_recalled: false,
            has_answered: false,
            key_refresh: None,
            options,
            cache,
            charges_writes: false,
            min_cached_prefix: None,
            tier: RequestedTier::default(),
            answers: None,
        })
    }

    /// Asks in a service tier.
    #[must_use]
    pub fn with_tier(self, tier: RequestedTier) -> Self {
        Self { tier, ..self }
    }

    /// Shares answers with other runs.
    #[must_use]
    pub fn with_answers(self, answers: Option<Rc<AnswerStore>>) -> Self {
        Self { answers, ..self }
    }

    /// A provider of the same endpoint with no connection.
    pub fn clone_unconnected(&self) -> Self {
        let codec = new_codec(&self.endpoint, &self.model);
        Self {
            options: initial_options(&self.endpoint, &*codec),
            codec,
            endpoint: self.endpoint.clone(),
            model: self.model.clone(),
            client: self.client.clone_unconnected(),
            omits_stream_options: false,
            has_recalled: false,
            has_answered: false,
            key_refresh: self.key_refresh.clone(),
            cache: new_cache_planner(&self.endpoint),
            charges_writes: false,
            min_cached_prefix: None,
            tier: self.tier,
            answers: self.answers.clone(),
        }
        .with_cache_job(self.options.cache_job)
        .with_cache_rules(self.charges_writes, self.min_cached_prefix)
    }

    /// Takes note of what is known of the endpoint's cache: whether writes cost more than other input, and the least tokens of a
    /// prefix that it keeps.
    #[must_use]
    pub fn with_cache_rules(mut self, charges_writes: bool, min_prefix: Option<u64>) -> Self {
        match &mut self.cache {
            Some(CachePlanner::Implicit(history)) if charges_writes => history.expect_charges(),
            Some(CachePlanner::Marked(history)) => {
                min_prefix.into_iter().for_each(|tokens| history.expect_prefixes_of(tokens));
            }
            _ => {}
        }
        Self { charges_writes, min_cached_prefix: min_prefix, ..self }
    }

    /// Runs in the job `job` of a sweep, where requests have a key for what the endpoint caches.
    #[must_use]
    pub fn with_cache_job(mut self, job: Option<u32>) -> Self {
        self.options.cache_job = job.filter(|_| self.codec.form() == WireForm::Responses);
        self
    }

    /// The body of a request in the endpoint's form, as this process would send it first.
    ///
    /// # Errors
    /// The form cannot express the request.
    pub fn request_body(&mut self, request: &LlmRequest<'_>) -> Result<Arc<String>, LlmError> {
        Ok(self.encode(request, self.tier.tier)?.encoded.body)
    }

    /// Whether requests have this key.
    pub fn has_key(&self, value: &str) -> bool {
        self.endpoint.api_key == Some(ApiKey::new(value.to_owned()))
    }

    /// Asks for the key again where it is too old or rejected.
    #[must_use]
    pub fn with_key_refresh(self, key_refresh: KeyRefresh) -> Self {
        Self { key_refresh: Some(key_refresh), ..self }
    }

    /// Replaces the key by the one that its source gives now. Returns whether it is another one.
    fn refresh_key(&mut self, cancel: &CancelToken) -> Result<bool, LlmError> {
        let Some(refresh) = &mut self.key_refresh else { return Ok(false) };
        let key = Some(refresh.read_key(cancel)?);
        if key == self.endpoint.api_key {
            return Ok(false);
        }
        self.endpoint.api_key = key;
        let headers = request_headers(&self.endpoint, &*self.codec);
        self.client.set_headers(headers.map_err(LlmError::from_message)?);
        Ok(true)
    }

    /// Takes over what an earlier process of the run has found out about the endpoint.
    fn recall_options(&mut self, request: &LlmRequest<'_>) {
        if std::mem::replace(&mut self.has_recalled, true) {
            return;
        }
        let Some(exchange) = request.previous_exchange.and_then(|read| read()) else { return };
        let base_url = without_user_and_query(&self.endpoint.base_url);
        if exchange.form == self.codec.form().name() && exchange.base_url == Some(base_url) {
            let merges = self.endpoint.merges_system.unwrap_or(exchange.options.merges_system);
            self.options.merges_system = merges;
            let EncodeOptions { uses_system_role, uses_max_completion_tokens, omitted, .. } =
                exchange.options;
            self.options.adds_thinking |= exchange.options.adds_thinking;
            self.options.alternates_roles |= exchange.options.alternates_roles;
            self.options.uses_system_role |= uses_system_role;
            self.options.uses_max_completion_tokens |= uses_max_completion_tokens;
            self.options.omitted = omitted;
            self.options.forced_call = exchange.options.forced_call;
        }
    }

    /// Translates the request as the endpoint accepts it, as far as is known by now.
    fn encode(
        &mut self,
        request: &LlmRequest<'_>,
        tier: ServiceTier,
    ) -> Result<SentRequest, LlmError> {
        self.translate(request, tier).map_err(|error| {
            let form = self.codec.form().name();
            LlmError::from_message(format!("the request cannot be sent to {form}: {error}"))
        })
    }

    fn translate(
        &mut self,
        request: &LlmRequest<'_>,
        tier: ServiceTier,
    ) -> Result<SentRequest, String> {
        let shorter_body = if self.omits_stream_options {
            without_stream_options(request.body).map(Arc::new)
        } else {
            None
        };
        let body = shorter_body.as_ref().unwrap_or(request.body);
        let body = NeutralBody {
            text: body,
            has_native: request.has_native,
            run_id: request.run_id,
            images: request.images,
        };
        // What agent.yaml asks for goes out as it is.
        let forced_call = self.options.forced_call.filter(|_| request.forces_call);
        // The other forms mark nothing.
        let marks_prefix = matches!(self.codec.form(), WireForm::Anthropic | WireForm::Responses);
        let constant_messages = if marks_prefix { request.constant_messages } else { 0 };
        let options =
            EncodeOptions { forced_call, constant_messages, tier, ..self.options.clone() };
        let encoded = wire::encode_request(&*self.codec, &body, &options)?;
        let options = EncodeOptions {
            cache: self.plan_markers(request, &encoded.cache_blocks),
            avoids_cache_write: self.avoids_cache_write(&encoded.cache_blocks),
            marks_constant: self.marks_constant(&encoded.cache_blocks),
            ..options
        };
        let is_final =
            options.cache.is_none() && !options.avoids_cache_write && !options.marks_constant;
        let encoded =
            if is_final { encoded } else { wire::encode_request(&*self.codec, &body, &options)? };
        Ok(SentRequest { encoded, shorter_body, options })
    }

    /// The markers of a request with these blocks; `None` if it gets none.
    fn plan_markers(
        &mut self,
        request: &LlmRequest<'_>,
        blocks: &[CacheBlock],
    ) -> Option<CacheMarkers> {
        let Some(CachePlanner::Marked(history)) = &mut self.cache else { return None };
        if history.is_empty()
            && let Some(earlier) = request.previous_body.and_then(|read| read())
        {
            let earlier = NeutralBody {
                text: &Arc::new(earlier),
                has_native: true,
                run_id: request.run_id,
                images: request.images,
            };
            if let Ok(encoded) = self.codec.encode(&earlier, &self.options) {
                history.assume_sent(&encoded.cache_blocks);
            }
        }
        let markers = history.plan(blocks, Instant::now());
        (!markers.blocks.is_empty()).then_some(markers)
    }

    /// Whether a request with these blocks asks the endpoint not to write it to its cache.
    fn avoids_cache_write(&self, blocks: &[CacheBlock]) -> bool {
        match &self.cache {
            Some(CachePlanner::Implicit(history)) if !self.options.omits_cache_options => {
                history.is_write_wasted(blocks)
            }
            _ => false,
        }
    }

    /// Whether a request with these blocks marks the end of the constant prefix.
    fn marks_constant(&self, blocks: &[CacheBlock]) -> bool {
        match &self.cache {
            Some(CachePlanner::Implicit(history)) if !self.options.omits_cache_options => {
                history.marks_constant(blocks)
            }
            _ => false,
        }
    }

    /// Sends the body once, and reads the response. `state` gets what is known as soon as it is, `live` the text as it arrives.
    fn send_once(
        &mut self,
        request: &EncodedRequest,
        cancel: &CancelToken,
        state: &mut AttemptState,
        live: Option<CallObserver<'_>>,
    ) -> Result<Reply, AttemptError> {
        let mut exchange = self.client.post(Arc::<String>::clone(&request.body), cancel);
        let head = exchange.send()?;
        state.status = Some(head.status.as_u16());
        state.has_answer = head.status.is_success();
        self.has_answered = true;
        if !head.status.is_success() {
            let body = exchange.read_text(MAX_ERROR_RESPONSE_BYTES)?;
            return Err(AttemptError::Rejected { head, body });
        }
        if let Some(encoding) = head.content_encoding() {
            return Err(AttemptError::UnsupportedEncoding(encoding.to_owned()));
        }
        let cost = cost_header(&head);
        let content_type = head.header_text("content-type");
        let is_streamed = content_type.is_some_and(|kind| kind.contains("event-stream"));
        let mut reader = ReplyReader {
            codec: &*self.codec,
            context: DecodeContext { model: &self.model, basis: request.basis.as_deref() },
            has_answer: true,
        };
        let mut result = if is_streamed {
            reader.read_stream(&mut exchange, live)
        } else {
            reader.read_unstreamed(&mut exchange, Vec::new())
        };
        state.has_answer = reader.has_answer;
        let usage = match &mut result {
            Ok(reply) => reply.usage.as_mut(),
            Err(AttemptError::Answer(AnswerError::Unusable(answer))) => answer.usage.as_mut(),
            Err(_) => None,
        };
        if let Some(usage) = usage {
            // The header of a stream is sent before the cost is known, so a 0 there has no meaning.
            let cost = cost.filter(|cost| *cost > 0.0 || !is_streamed);
            usage.cost_usd = usage.cost_usd.or(cost);
        }
        Ok(Reply { status: state.status, ..result? })
    }

    /// Changes what later requests contain, if that is why the endpoint rejected this one.
    fn adapt_to_rejection(&mut self, error: &AttemptError, body: &str, forces_call: bool) -> bool {
        let (status, message) = match error {
            AttemptError::Rejected { head, body } => (head.status.as_u16(), Cow::Borrowed(body)),
            AttemptError::Answer(AnswerError::Reported(error)) => {
                (200, Cow::Owned(error.to_string()))
            }
            _ => return false,
        };
        let options = &self.options;
        let rejected = RejectedRequest { status, response: &message, sent: body, options };
        let may_merge = self.endpoint.merges_system.is_none();
        let merged = may_merge.then(|| wire::merged_system_options(&rejected)).flatten();
        let refused_choice = forces_call.then(|| wire::refused_choice_options(&rejected)).flatten();
        let adapted = merged
            .or(refused_choice)
            .or_else(|| wire::system_role_options(&rejected))
            .or_else(|| self.codec.recovery(&rejected));
        if let Some(options) = adapted {
            self.options = options;
            return true;
        }
        let is_rejected = matches!(status, 400 | 422)
            && self.codec.form() == WireForm::OpenAi
            && (message.contains("stream_options") || message.contains("include_usage"))
            && without_stream_options(body).is_some();
        self.omits_stream_options |= is_rejected;
        is_rejected
    }

    /// What names the answer to a request in the store.
    fn answer_key(&self, answers: &AnswerStore, sent: &SentRequest) -> String {
        answers.key(&self.codec.url(), &self.model, &sent.encoded.body)
    }

    /// Adds to a reply what was sent for it.
    fn complete_reply(&mut self, reply: Reply, sent: SentRequest) -> Reply {
        let SentRequest { encoded, shorter_body, options } = sent;
        let usage = reply.usage.as_ref();
        match &mut self.cache {
            Some(CachePlanner::Marked(history)) => {
                let markers = options.cache.as_ref().map_or(&[][..], |markers| &markers.blocks);
                history.record_answer(&encoded.cache_blocks, markers, usage, Instant::now());
            }
            Some(CachePlanner::Implicit(history)) => {
                history.record_answer(&encoded.cache_blocks, usage);
            }
            None => {}
        }
        let wire = encoded.is_changed.then(|| {
            Box::new(WireExchange {
                form: self.codec.form().name().to_owned(),
                version: wire::TRANSLATION_VERSION,
                request_sha256: sha256_hex(encoded.body.as_str()),
                options,
                base_url: Some(without_user_and_query(&self.endpoint.base_url)),
                api_version: self.endpoint.api_version.clone(),
                response: reply.wire.map(|wire| wire.response).unwrap_or_default(),
            })
        });
        Reply { sent_body: shorter_body, wire, ..reply }
    }
}

impl Provider for EndpointProvider {
    fn complete(
        &mut self,
        request: &LlmRequest<'_>,
        cancel: &CancelToken,
        observe: CallObserver<'_>,
    ) -> Result<Reply, LlmError> {
        let mut tries = CallTries::default();
        let mut has_refreshed_key = false;
        let mut tier = self.tier.tier;
        if self.key_refresh.as_ref().is_some_and(KeyRefresh::is_due) {
            self.refresh_key(cancel)?;
        }
        self.recall_options(request);
        loop {
            if cancel.is_requested() {
                return Err(LlmError::Cancelled);
            }
            let sent = self.encode(request, tier)?;
            if let Some(answers) = &self.answers
                && let Some(reply) = answers.read(self.answer_key(answers, &sent), request.run_id)
            {
                return Ok(self.complete_reply(reply, sent));
            }
            let started_at = time::current_time();
            let timer = Instant::now();
            let mut state = AttemptState::default();
            let live: Option<CallObserver<'_>> =
                if request.is_live { Some(&mut *observe) } else { None };
            let error = match self.send_once(&sent.encoded, cancel, &mut state, live) {
                Ok(mut reply) => {
                    reply.usage.iter_mut().for_each(|usage| note_tier(usage, tier));
                    if let Some(answers) = &self.answers {
                        answers.keep(self.answer_key(answers, &sent), &reply);
                    }
                    return Ok(self.complete_reply(reply, sent));
                }
                Err(AttemptError::Http(HttpError::Cancelled)) => return Err(LlmError::Cancelled),
                Err(error) => error,
            };
            let AttemptState { status, has_answer } = state;
            let is_refused = self.tier.asks_directly_when_refused
                && !tier.is_direct()
                && attempt_failure::refuses_tier(&error);
            if is_refused {
                tier = ServiceTier::Direct;
            }
            let is_adapted = is_refused
                || self.adapt_to_rejection(&error, &sent.encoded.body, request.forces_call);
            let target = AttemptTarget {
                client: &self.client,
                endpoint: &self.endpoint,
                codec: &*self.codec,
                model: &self.model,
                images: request.images,
                has_documents: request.images.is_some()
                    && request.body.contains("\"file_data\":\"delta:"),
                sent: &sent.encoded.body,
                key_refresh: self.key_refresh.as_ref(),
            };
            let mut failure = AttemptFailure::new(error, &target);
            failure.usage.iter_mut().for_each(|usage| note_tier(usage, sent.options.tier));
            // Only now: the message may repeat the old key, which the failure has redacted.
            let is_expired = status == Some(401) && !has_refreshed_key;
            has_refreshed_key |= is_expired;
            let refreshed = if is_expired { self.refresh_key(cancel) } else { Ok(false) };
            let is_adapted = is_adapted || matches!(refreshed, Ok(true));
            let retry = if is_adapted { RetryDecision::Immediately } else { failure.retry };
            let max_retries = if failure.is_local_refusal && !self.has_answered {
                self.endpoint.max_refused_retries
            } else {
                self.endpoint.max_retries
            };
            // Another model answers sooner than this one accepts requests again.
            let is_throttled = failure.is_throttled || status.is_some_and(is_throttling_status);
            let is_patient = is_throttled && cancel.has_deadline() && !request.has_fallback;
            let mut delay = tries.next_delay(retry, max_retries, is_patient);
            if request.has_fallback {
                delay = delay.filter(|delay| *delay <= MAX_FALLBACK_DELAY);
            }
            let attempt = Attempt {
                started_at,
                duration_ms: to_millis(timer.elapsed()),
                status,
                error: failure.message.clone(),
                retry_in_ms: delay.map(to_millis),
                usage: failure.usage.clone(),
                arrived: None,
            };
            let next = tries.next_number(max_retries);
            observe(CallProgress::AttemptFailed { attempt: &attempt, has_answer, next });
            refreshed?;
            let Some(delay) = delay else { return Err(failure.into_error(status)) };
            if cancel.wait(delay) {
                return Err(LlmError::Cancelled);
            }
            let mut is_refused = false;
            observe(CallProgress::SendingAgain { is_refused: &mut is_refused });
            // A request to stop may have ended a wait of the observer.
            if is_refused && !cancel.is_requested() {
                return Err(failure.into_error(status));
            }
        }
    }

    fn stored_reply(&mut self, request: &LlmRequest<'_>) -> Option<Reply> {
        let answers = self.answers.clone()?;
        self.recall_options(request);
        // What cannot be encoded is an error of the call.
        let sent = self.encode(request, self.tier.tier).ok()?;
        let reply = answers.read(self.answer_key(&answers, &sent), request.run_id)?;
        Some(self.complete_reply(reply, sent))
    }

    fn take_unstored(&mut self) -> Option<StoreReply> {
        let answers = self.answers.clone()?;
        let (key, reply) = answers.take_kept()?;
        Some(Box::new(move |from, cost_usd| answers.publish(key, from, cost_usd, reply)))
    }
}

/// Notes that an answer to a request for a tier names none: an endpoint that does not know the tiers may have charged the
/// ordinary price.
fn note_tier(usage: &mut Usage, requested: ServiceTier) {
    if !requested.is_direct() {
        usage.tier = usage.tier.or(Some(ServiceTier::Unknown));
    }
}

/// The tries of a call so far.
#[derive(Debug, Default)]
struct CallTries {
    failures: u32,
    /// The tries that the endpoint throttled and that do not count as failures.
    throttled: u32,
    /// Whether the last one is of `throttled`.
    is_throttled: bool,
}

impl CallTries {
    /// The delay before the next try, or `None` if there is none. A patient caller has a time limit, and how often an
    /// endpoint throttles does not tell whether the request can succeed.
    fn next_delay(
        &mut self,
        retry: RetryDecision,
        max_retries: u32,
        is_patient: bool,
    ) -> Option<Duration> {
        self.is_throttled = is_patient;
        if is_patient {
            retry.next_throttled_delay(&mut self.throttled)
        } else {
            retry.next_delay(&mut self.failures, max_retries)
        }
    }

    fn next_number(&self, max_retries: u32) -> TryNumber {
        let most = max_retries.saturating_add(self.throttled).saturating_add(1);
        TryNumber {
            number: self.failures + self.throttled + 1,
            of: Some(most).filter(|_| !self.is_throttled),
        }
    }
}

/// An address for a record: a user and a query may hold a key.
fn without_user_and_query(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    }
}

fn new_cache_planner(endpoint: &Endpoint) -> Option<CachePlanner> {
    match (endpoint.cache, endpoint.form) {
        (CachePolicy::Auto(lifetime), WireForm::Anthropic) => {
            Some(CachePlanner::Marked(CacheHistory::new(lifetime)))
        }
        (CachePolicy::Auto(_) | CachePolicy::Constant(_), WireForm::Responses) => {
            Some(CachePlanner::Implicit(WriteHistory::default()))
        }
        (CachePolicy::Constant(lifetime), WireForm::Anthropic) => {
            Some(CachePlanner::Marked(CacheHistory::for_single_request(lifetime)))
        }
        (CachePolicy::Auto(_) | CachePolicy::Constant(_) | CachePolicy::Off, _) => None,
    }
}

fn new_codec(endpoint: &Endpoint, model: &str) -> Box<dyn WireCodec> {
    let settings = CodecSettings {
        model: model.to_owned(),
        base_url: endpoint.base_url.clone(),
        stream: endpoint.stream,
        api_version: endpoint.api_version.clone(),
    };
    wire::codec_for(endpoint.form, settings)
}

fn initial_options(endpoint: &Endpoint, codec: &dyn WireCodec) -> EncodeOptions {
    EncodeOptions {
        call_ids: endpoint.call_ids,
        omits_reasoning: endpoint.omits_reasoning,
        merges_system: endpoint.merges_system == Some(true),
        ..codec.initial_options()
    }
}

fn request_headers(endpoint: &Endpoint, codec: &dyn WireCodec) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let accept = if endpoint.stream { "text/event-stream" } else { "application/json" };
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    crate::add_headers(&mut headers, codec.headers(), endpoint)?;
    Ok(headers)
}

/// The cost of the call in USD, from the header of a LiteLLM proxy.
fn cost_header(head: &ResponseHead) -> Option<f64> {
    let cost: f64 = head.header_text("x-litellm-response-cost")?.trim().parse().ok()?;
    (cost.is_finite() && cost >= 0.0).then_some(cost)
}

fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads the response of one exchange.
struct ReplyReader<'a> {
    codec: &'a dyn WireCodec,
    context: DecodeContext<'a>,
    /// Whether what has arrived is not a refusal alone.
    has_answer: bool,
}

impl ReplyReader<'_> {
    /// Reads a body that is not streamed, of which `body` has arrived.
    fn read_unstreamed(
        &mut self,
        exchange: &mut HttpExchange<'_>,
        mut body: Vec<u8>,
    ) -> Result<Reply, AttemptError> {
        while let Some(chunk) = exchange.read_chunk(None)? {
            body.extend(chunk);
            if body.len() > MAX_RESPONSE_BYTES {
                return Err(AttemptError::TooLarge);
            }
        }
        let text = String::from_utf8_lossy(&body);
        let text = text.trim_start_matches('\u{feff}');
        // Some servers stream under another content type, or without the frames of events.
        let is_stream = STREAM_FIELDS.iter().any(|field| text.starts_with(field));
        if is_stream || is_json_lines(text) {
            let mut assembler = self.codec.new_assembler();
            let pushed = assembler.push(text.as_bytes());
            let outcome = pushed.and_then(|()| assembler.finish());
            return self.finish_reply(assembler, outcome);
        }
        let repaired = replace_lone_surrogates(text);
        let exact = quote_inexact_arguments(&repaired, self.codec.form().arguments_member());
        let Ok(response) = serde_json::from_str::<Value>(&exact) else {
            // A page, a line of text or nothing; otherwise JSON that was cut off.
            self.has_answer = text.trim_start().starts_with(['{', '[']);
            return Err(AnswerError::not_json(text).into());
        };
        self.has_answer = has_answer_piece(&response);
        Ok(self.codec.decode(response, &self.context)?)
    }

    fn read_stream(
        &mut self,
        exchange: &mut HttpExchange<'_>,
        mut live: Option<CallObserver<'_>>,
    ) -> Result<Reply, AttemptError> {
        let mut assembler = self.codec.new_assembler();
        let mut size = 0;
        loop {
            let max_wait = match (assembler.is_done(), assembler.is_complete()) {
                _ if assembler.may_continue() => None,
                (true, _) => Some(STREAM_END_TIMEOUT),
                (false, true) => Some(LATE_EVENT_TIMEOUT),
                (false, false) => None,
            };
            match exchange.read_chunk(max_wait) {
                Ok(Some(chunk)) if size == 0 && is_no_stream(chunk) => {
                    let body = chunk.to_vec();
                    return self.read_unstreamed(exchange, body);
                }
                Ok(Some(chunk)) => {
                    size += chunk.len();
                    if size > MAX_RESPONSE_BYTES {
                        return Err(AttemptError::TooLarge);
                    }
                    let pushed = assembler.push(chunk);
                    if let Some(observe) = &mut live {
                        assembler.pass_new_text(observe);
                    }
                    if pushed.is_err() {
                        return self.finish_reply(assembler, pushed);
                    }
                }
                Ok(None) => {
                    let outcome = assembler.finish();
                    if let Some(observe) = &mut live {
                        assembler.pass_new_text(observe);
                    }
                    return self.finish_reply(assembler, outcome);
                }
                Err(HttpError::Cancelled) => return Err(HttpError::Cancelled.into()),
                // Only the proper end of the connection is missing.
                Err(_) if assembler.is_complete() => return self.finish_reply(assembler, Ok(())),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The reply of a stream that has ended with `outcome`. An error after a complete answer does not undo it.
    fn finish_reply(
        &mut self,
        assembler: Box<dyn StreamAssembler>,
        outcome: Result<(), StreamError>,
    ) -> Result<Reply, AttemptError> {
        if assembler.is_complete() {
            let late_error = outcome.err().as_ref().and_then(late_error_text);
            let reply = assembler.into_reply(&self.context)?;
            return Ok(Reply { late_error, ..reply });
        }
        self.has_answer = assembler.has_begun()
            || matches!(&outcome, Err(StreamError::Reported(event)) if has_answer_piece(event));
        outcome?;
        Err(AttemptError::IncompleteStream)
    }
}

/// Whether the first bytes of a body are not events, though it was announced as a stream: JSON or a page.
fn is_no_stream(chunk: &[u8]) -> bool {
    let text = chunk.strip_prefix("\u{feff}".as_bytes()).unwrap_or(chunk);
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'[' | b'<'))
}

/// Whether a text is several lines that begin with an object, and not one JSON value.
fn is_json_lines(text: &str) -> bool {
    text.starts_with('{')
        && text.trim_end().contains('\n')
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_err()
}
