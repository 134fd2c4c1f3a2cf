//! Thinking: one answer of the LLM, from the context to the THOUGHT event.

use super::budget::{estimate_usage, reserve_attempt, settle_attempt, usage_amount};
use super::hooks::{HookEffect, HookInput};
use super::{Engine, EngineError, duration_millis};
use delta_agent::agent::Agent;
use delta_agent::context::JOURNAL_TYPE;
use delta_agent::context::{ContextInputs, ContextProgram};
use delta_agent::hook::HookPoint;
use delta_agent::hook::answer::{self, HookAnswer, HookFailure, RequestReplacement};
use delta_base::id::RunId;
use delta_base::redact::{Secrets, StreamRedactor};
use delta_llm::llm::{
    self, CallProgress, ImageReader, LlmConfig, LlmError, LlmRequest, OnEmpty, ProviderKind,
};
use delta_plan::answer_verdict::{
    AnswerVerdict, EMPTY_RESPONSE, judge_answer, unknown_end_warning,
};
use delta_plan::dropped_tools::dropped_tools_warning;
use delta_plan::request_body::{RequestBasis, next_request_body, replace_request, request_frame};
use delta_run::event::image_file;
use delta_run::event::{ErrorDetails, FALLBACK_ERROR, ModelChange, Payload, Thought};
use delta_run::limits::{CallUpperBound, token_estimate};
use delta_run::record::open_call::{CallPart, UnansweredCall, UnansweredState};
use delta_run::record::{self, ContextBlock, LlmCallRecord, RequestBody, WrittenRecord};
use delta_run::run::{Run, RunNotice};
use delta_run::run_result::ContinueCommand;
use delta_words::{
    Attempt, NativeParts, Reply, ResponseBody, Usage, WireExchange, WireForm, parse_reply,
};
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A request ready to be sent, and what a script needs to know about it.
pub(super) struct PreparedRequest {
    iteration: u32,
    pub(super) body: RequestBody,
    /// The sources of its messages.
    blocks: Vec<ContextBlock>,
    /// The number of oldest iterations omitted because of the budget.
    left_out: usize,
    /// Whether it demands a call.
    forces_call: bool,
    /// The number of messages with which every run of the agent begins.
    pub(super) constant_messages: usize,
    task: String,
    last_user_message: String,
}

/// A usable reply, and what is recorded with it.
struct RecordedReply {
    reply: Reply,
    /// The record of the call.
    invocation: WrittenRecord,
    estimated_tokens: u64,
    left_out: usize,
}

/// How a call of the LLM went.
pub(super) struct LlmExchange {
    duration: Duration,
    pub(super) attempts: Vec<Attempt>,
    pub(super) result: Result<Reply, LlmError>,
    /// Why the budgets did not allow another attempt, if that ended the call.
    refusal: Option<EngineError>,
}

impl LlmExchange {
    /// How long the endpoint refused the call because there were too many.
    fn throttled_time(&self) -> Duration {
        let throttled = self.attempts.iter().filter(|attempt| attempt.is_throttled());
        let lost = Duration::from_millis(throttled.map(Attempt::lost_ms).sum());
        // A request to stop ends the last delay early.
        lost.min(self.duration)
    }

    /// The call, if an attempt of it has failed.
    fn failing_call(&self) -> Option<FailingCall> {
        let last = self.attempts.last()?;
        Some(FailingCall {
            tries: self.attempts.len(),
            message: last.error.clone(),
            status: last.status,
            is_throttled: last.is_throttled(),
        })
    }
}

/// A call whose attempts failed until it was given up.
#[derive(Debug, Clone)]
pub(super) struct FailingCall {
    tries: usize,
    /// The error of the last attempt.
    message: String,
    pub(super) status: Option<u16>,
    /// Whether the call waited for its next attempt because the endpoint throttled it.
    pub(super) is_throttled: bool,
}

/// A warning if the text of an answer is a call: of the tool `text_call`, or one that its server did not parse.
fn text_call_warning(is_chat: bool, reply: &Reply, text_call: Option<&str>) -> Option<String> {
    let text = reply.content.as_deref().filter(|_| is_chat && reply.tool_calls.is_empty())?;
    let description = match (llm::find_call_marker(text), text_call) {
        (Some(marker), _) => format!("contains `{marker}`, a tool call as text"),
        (None, Some(tool)) => format!("is a call of the tool `{tool}` as text"),
        (None, None) => return None,
    };
    Some(format!(
        "the answer {description}, which delta does not run; let the server parse it: \
         vLLM with `--enable-auto-tool-choice --tool-call-parser NAME`, llama.cpp with `--jinja`, \
         Ollama and LM Studio with a model that supports tools"
    ))
}

impl fmt::Display for FailingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.tries == 1 { "y" } else { "ies" };
        write!(f, "{} ({} tr{plural})", self.message, self.tries)
    }
}

impl<'a> Engine<'a> {
    /// The LLM that is asked now.
    pub(super) fn llm(&self, run: &Run) -> &'a LlmConfig {
        self.agent.llm.after_changes(run.state().model_changes)
    }
}

impl Engine<'_> {
    /// Asks the LLM for its next answer, and records it.
    pub(super) fn think(&mut self, run: &mut Run, iteration: u32) -> Result<(), EngineError> {
        let last = run.state().iteration_started;
        self.run_iteration_hook(run, HookPoint::OnIterationStart, iteration, last)?;
        let mut recorded = self.ask_models(run, iteration)?;
        let mut verdict = judge_answer(self.agent, run.state(), (&recorded.reply).into());
        if matches!(verdict.failure, Some((EMPTY_RESPONSE, _)))
            && self.agent.llm.answers.on_empty == OnEmpty::Retry
        {
            run.notify(RunNotice::Warning("the LLM's answer was empty; retrying once"));
            recorded = self.ask_models(run, iteration)?;
            verdict = judge_answer(self.agent, run.state(), (&recorded.reply).into());
        }
        let RecordedReply { reply, invocation, estimated_tokens, left_out } = recorded;
        let AnswerVerdict { cut_off, text_call, reminder, failure, is_withheld } = verdict;
        let failure = match failure {
            Some((kind, message)) if is_withheld => {
                let invocation = Some(Box::new(invocation));
                return Err(EngineError::Answer { kind, message, invocation });
            }
            failure => failure,
        };
        let is_chat = self.llm(run).wire_form() == Some(WireForm::OpenAi);
        let text_call_warning = text_call_warning(is_chat, &reply, text_call.as_deref());
        let dropped_tools = (is_chat && iteration == 1)
            .then(|| dropped_tools_warning(self.last_body.text(), &reply));
        for warning in [dropped_tools.flatten(), text_call_warning, unknown_end_warning(&reply)] {
            warning.iter().for_each(|warning| run.notify(RunNotice::Warning(warning)));
        }
        let is_asked = reply.from.is_none();
        let cost_usd = reply.usage.as_ref().and_then(|usage| usage.cost_usd);
        // The THOUGHT records this answer itself; the ones before it were discarded.
        self.unrecorded_usage.get_mut().pop();
        run.record(Payload::Thought(Box::new(Thought {
            iteration,
            content: reply.content.unwrap_or_default(),
            tool_calls: reply.tool_calls,
            redacted_calls: reply.redacted_calls,
            reminder,
            reasoning: reply.reasoning.filter(|_| self.llm(run).echo_reasoning),
            native: reply.native.filter(|native| !contains_secret(run, native)),
            finish_reason: reply.finish_reason,
            cut_off,
            text_call,
            usage: reply.usage,
            estimated_tokens: Some(estimated_tokens),
            left_out,
            invocation: Some(invocation.name),
            record_sha256: Some(invocation.sha256),
            script_turn: reply.script_turn,
            discarded_usage: self.unrecorded_usage.take(),
            throttled_ms: duration_millis(self.unrecorded_throttling.take()),
            from: reply.from,
            saved_usd: reply.saved_usd,
        })));
        if is_asked {
            self.store_answer(run, cost_usd)?;
        }
        match failure {
            // The THOUGHT names the record.
            Some((kind, message)) => Err(EngineError::Answer { kind, message, invocation: None }),
            None => Ok(()),
        }
    }

    /// Stores the answer of the last event for other runs, if answers are stored.
    fn store_answer(&mut self, run: &mut Run, cost_usd: Option<f64>) -> Result<(), EngineError> {
        let Some(store) = self.provider.take_unstored() else { return Ok(()) };
        // Others name the event, so it must not be lost.
        run.commit()?;
        let seq = run.journal_head().map_or(0, |head| head.seq);
        if let Err(error) = store(format!("{}#{seq}", run.id), cost_usd) {
            run.notify(RunNotice::Warning(&format!("the answer was not stored: {error}")));
        }
        Ok(())
    }

    /// Asks the LLM, and the next one of `llm.fallback` where it does not answer. The change is recorded before the next
    /// request, which commits it.
    fn ask_models(&mut self, run: &mut Run, iteration: u32) -> Result<RecordedReply, EngineError> {
        loop {
            let error = match self.ask_llm(run, iteration) {
                Err(error @ EngineError::Llm { .. }) => error,
                result => return result,
            };
            let Some(change) = self.next_model(run, &error) else { return Err(error) };
            let ModelChange { from, model, .. } = &change;
            let message = format!("{from}: {error}; {model} is asked in its place");
            let details = ErrorDetails {
                kind: FALLBACK_ERROR.to_owned(),
                hint: None,
                fallback: Some(Box::new(change)),
                ..error.details()
            };
            self.record_error(run, message, details, false);
        }
    }

    /// The change to the next model, if there is one and it may answer where this one does not.
    fn next_model(&self, run: &Run, error: &EngineError) -> Option<ModelChange> {
        let EngineError::Llm { error: LlmError::Failed { unavailable: Some(reason), .. }, .. } =
            error
        else {
            return None;
        };
        let number = run.state().model_changes + 1;
        let next = self.agent.llm.fallback.get(number - 1)?;
        Some(ModelChange {
            number,
            from: self.llm(run).model.clone(),
            model: next.model.clone(),
            provider: next.provider.name().to_owned(),
            reason: *reason,
        })
    }

    /// Calls the LLM, and records the call in io/.
    fn ask_llm(&mut self, run: &mut Run, iteration: u32) -> Result<RecordedReply, EngineError> {
        if self.agent.context.starts_programs() {
            run.commit_act()?;
        }
        let prepared = self.build_request(run, iteration)?;
        run.commit()?;
        self.warn_of_cuts(run, &prepared.blocks);
        let mut prepared = self.pass_request_gate(run, prepared)?;
        run.commit()?;
        if self.unrecorded_usage.get_mut().is_empty() {
            self.open_calls.clear();
        }
        self.begin_work(run);
        let exchanged = self.exchange(run, &mut prepared);
        self.end_work();
        let (exchange, mut call) = exchanged?;
        let throttled = self.unrecorded_throttling.get() + exchange.throttled_time();
        self.unrecorded_throttling.set(throttled);
        self.note_use(run, &prepared, &exchange, &mut call);
        let settled = self.charge_budget(run, &prepared, &exchange, &call.answer);
        let invocation = self.record_llm_call(run, &mut prepared, &exchange, &call);
        let answer = call.answer.clone();
        self.open_calls.push(call);
        let invocation = invocation?;
        if matches!(exchange.result, Err(LlmError::Cancelled)) {
            self.failing_call = exchange.failing_call();
            if !answer.usages().is_empty() {
                self.record_interrupted_call(run, &answer, invocation);
            }
            return Err(EngineError::Cancelled);
        }
        let discarded = exchange.attempts.iter().filter(|attempt| attempt.usage.is_some());
        let usages = discarded.map(|attempt| attempt.usage.clone());
        let answer = exchange.result.as_ref().ok().map(|reply| reply.usage.clone());
        self.unrecorded_usage.get_mut().extend(usages.chain(answer));
        settled?;
        if let Some(refusal) = exchange.refusal {
            return Err(refusal);
        }
        let body = prepared.body.text();
        let image_tokens = run.state().conversation.image_tokens(body);
        let estimated_tokens = token_estimate::estimate_request_tokens(body, image_tokens);
        self.last_body = prepared.body;
        match exchange.result {
            Err(error) => Err(EngineError::Llm { error, invocation: Box::new(invocation) }),
            Ok(reply) => {
                if let Some(words) = &reply.late_error {
                    let words = run.secrets().redact(words).into_owned();
                    let warning =
                        format!("the endpoint reported an error after its answer: {words}");
                    run.notify(RunNotice::Warning(&warning));
                }
                let reply = self.filter_reply(run, iteration, reply)?;
                let strips = self.llm(run).strip_think;
                let reply = if strips { reply.with_stripped_think() } else { reply };
                if let Some(reasoning) = &reply.reasoning {
                    let reasoning = run.secrets().redact(reasoning).into_owned();
                    run.notify(RunNotice::Reasoning(&reasoning));
                }
                Ok(RecordedReply {
                    reply,
                    invocation,
                    estimated_tokens,
                    left_out: prepared.left_out,
                })
            }
        }
    }

    /// Builds the request from the conversation and the sources of context.yaml.
    fn build_request(&mut self, run: &Run, iteration: u32) -> Result<PreparedRequest, EngineError> {
        let environment = &self.environment;
        let launch = |generator: &ContextProgram| {
            environment.launch_generator(iteration, &generator.pass_env)
        };
        let mut inputs = ContextInputs {
            iteration,
            ratio: run.state().ratio,
            vars: environment.vars(),
            cancel: &self.cancel,
            launch: &launch,
            clock: self.clock,
            counter: &mut self.token_counter,
            run_generators: true,
        };
        let state = run.state();
        let context = self.agent.context.build(state, &mut inputs)?;
        let last = std::mem::take(&mut self.last_body);
        let messages = context.messages();
        let basis = RequestBasis::next(self.agent, state);
        let changes = basis.model_changes;
        let known = self.request_frame.take();
        if known.as_ref().is_some_and(|known| known.1 != changes) {
            // Another model counts other tokens.
            self.last_measured = None;
        }
        // Most requests of a run demand the same, so the tools are written once.
        let known = known.filter(|known| known.0 == basis.demand && known.1 == changes);
        let framed = match known {
            Some(known) => known,
            None => (basis.demand.clone(), changes, request_frame(self.agent, &basis)),
        };
        let (demand, _, frame) = &*self.request_frame.insert(framed);
        Ok(PreparedRequest {
            iteration,
            body: next_request_body(last, frame, &messages, run.secrets()),
            forces_call: demand.is_forced(),
            constant_messages: context.constant_messages,
            blocks: context.blocks,
            left_out: context.left_out,
            task: state.conversation.task().to_owned(),
            last_user_message: state.conversation.last_user_message().to_owned(),
        })
    }

    /// Warns of what the request omits, once for each cut.
    fn warn_of_cuts(&mut self, run: &mut Run, blocks: &[ContextBlock]) {
        let cuts = blocks.iter().filter_map(|ContextBlock { source, kind, cut, .. }| {
            let cut = cut.as_ref()?;
            // What is cut of a file says by itself why.
            let reason = if kind == JOURNAL_TYPE { " to fit the budget" } else { "" };
            Some(format!("context source `{source}`: {cut} left out{reason}"))
        });
        let cuts: Vec<String> = cuts.collect();
        for cut in cuts.iter().filter(|cut| !self.reported_cuts.contains(cut)) {
            run.notify(RunNotice::Warning(cut));
        }
        self.reported_cuts = cuts;
    }

    /// Passes the request through pre_llm_request.
    fn pass_request_gate(
        &self,
        run: &mut Run,
        prepared: PreparedRequest,
    ) -> Result<PreparedRequest, EngineError> {
        let hook_run = self.run_hook(
            run,
            HookPoint::PreLlmRequest,
            prepared.iteration,
            || HookInput::default().with_json_entry("request", prepared.body.text()),
            &self.cancel,
        )?;
        let Some(hook_run) = hook_run else { return Ok(prepared) };
        let answer = answer::parse_request_replacement(&hook_run.finished, hook_run.config);
        let changed = match &answer {
            Ok(HookAnswer { replacement: Some(RequestReplacement::Request(_)), .. }) => {
                Some("request")
            }
            Ok(HookAnswer { replacement: Some(RequestReplacement::Messages(_)), .. }) => {
                Some("messages")
            }
            Ok(_) | Err(_) => None,
        };
        let failure = answer.as_ref().err();
        let end = answer.as_ref().ok().and_then(|answer| answer.end.clone());
        self.record_hook_run(
            run,
            &hook_run,
            &HookEffect { changed, decision: None, failure, end },
        )?;
        if hook_run.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        match answer {
            Ok(HookAnswer { end: Some(_), .. }) => Err(EngineError::EndedByHook),
            Ok(HookAnswer { replacement: None, .. }) => Ok(prepared),
            Ok(HookAnswer { replacement: Some(replacement), .. }) => {
                let Some((.., frame)) = &self.request_frame else { return Ok(prepared) };
                let PreparedRequest { body, constant_messages, .. } = prepared;
                let texts = |body: &RequestBody| -> Vec<String> {
                    let ranges = body.messages().iter().take(constant_messages);
                    ranges.map(|range| body.text()[range.clone()].to_owned()).collect()
                };
                let before = texts(&body);
                let body = replace_request(body, frame, replacement, run.secrets());
                let pairs = before.into_iter().zip(texts(&body));
                let constant_messages = pairs.take_while(|(one, other)| one == other).count();
                Ok(PreparedRequest { body, constant_messages, ..prepared })
            }
            Err(failure) if failure.is_ignored(hook_run.config.on_failure) => {
                self.warn_of_open_gate(run, &hook_run, &failure);
                Ok(prepared)
            }
            Err(failure) => Err(hook_run.to_error(&failure)),
        }
    }

    /// Passes the reply through post_llm_response. Its cost and its position in a script do not
    /// change.
    fn filter_reply(
        &self,
        run: &mut Run,
        iteration: u32,
        reply: Reply,
    ) -> Result<Reply, EngineError> {
        let hook_run = self.run_hook(
            run,
            HookPoint::PostLlmResponse,
            iteration,
            || HookInput::default().with_entry("response", &reply.response),
            &self.cancel,
        )?;
        let Some(hook_run) = hook_run else { return Ok(reply) };
        let answer = answer::parse_response_replacement(&hook_run.finished, hook_run.config);
        let answer = answer.and_then(|HookAnswer { replacement, end }| {
            let Some(response) = replacement else { return Ok((None, end)) };
            let reply = parse_reply(&response, &self.llm(run).model);
            reply.map(|reply| (Some(reply), end)).map_err(|error| {
                HookFailure::invalid_answer(format!("gave a response that cannot be used: {error}"))
            })
        });
        let changed = matches!(answer, Ok((Some(_), _))).then_some("response");
        let failure = answer.as_ref().err();
        let end = answer.as_ref().ok().and_then(|(_, end)| end.clone());
        self.record_hook_run(
            run,
            &hook_run,
            &HookEffect { changed, decision: None, failure, end },
        )?;
        self.apply_failure_policy(run, &hook_run, failure)?;
        Ok(match answer {
            Ok((Some(changed), _)) => reply.replaced_by(changed),
            Ok((None, _)) | Err(_) => reply,
        })
    }

    /// Records that the call is about to be made, with what its tokens are estimated by.
    fn open_call(
        &self,
        run: &mut Run,
        prepared: &mut PreparedRequest,
    ) -> Result<UnansweredCall, EngineError> {
        let run_id = run.id.clone();
        let record = LlmCallRecord {
            run_id: run_id.as_str().into(),
            iteration: prepared.iteration,
            provider: self.llm(run).provider.name().into(),
            model: (&self.llm(run).model).into(),
            started_at: Some((self.clock)()),
            context: Some((&prepared.blocks).into()),
            ..LlmCallRecord::default()
        };
        let input_tokens = estimated_input(run, prepared.body.text());
        let pricing = self.llm(run).pricing.as_ref().map(Cow::Borrowed);
        let basis = CallPart::Basis { input_tokens, pricing };
        Ok(run.records.open_call(&record, &mut prepared.body, &basis)?)
    }

    /// Notes what a call that was answered or failed has used, in case that the process dies before an event counts it.
    fn note_use(
        &self,
        run: &Run,
        prepared: &PreparedRequest,
        exchange: &LlmExchange,
        call: &mut UnansweredCall,
    ) {
        let answer = match &exchange.result {
            Ok(reply) if reply.from.is_some() => None,
            Ok(reply) => {
                let input_tokens = estimated_input(run, prepared.body.text());
                let mut usage = reply.usage.clone().unwrap_or_else(|| Usage {
                    model: self.llm(run).model.clone(),
                    ..estimate_usage(reply, input_tokens)
                });
                complete_usage(self.llm(run), &mut usage, input_tokens);
                Some(usage)
            }
            Err(LlmError::Cancelled) => return,
            Err(_) => None,
        };
        let lost = call.answer.lost().cloned();
        let used = lost.chain(answer).collect();
        call.add(&CallPart::Used(Cow::Owned(used)));
    }

    /// Records what a call that was interrupted has used.
    fn record_interrupted_call(
        &self,
        run: &mut Run,
        answer: &UnansweredState,
        invocation: WrittenRecord,
    ) {
        let WrittenRecord { name, sha256 } = invocation;
        let mut details = ErrorDetails::for_interrupted_call(name, sha256, answer.usages());
        details.discarded_usage.splice(0..0, self.unrecorded_usage.take());
        details.throttled_ms = duration_millis(self.unrecorded_throttling.take());
        run.record(Payload::Error { error_message: answer.describe(), error_details: details });
    }

    /// Makes the call when the rate and the budgets allow it, unless its answer is stored.
    fn exchange(
        &mut self,
        run: &mut Run,
        prepared: &mut PreparedRequest,
    ) -> Result<(LlmExchange, UnansweredCall), EngineError> {
        let readers = RunReaders::new(run);
        let request = readers.request(self.agent, run, prepared);
        if let Some(reply) = self.provider.stored_reply(&request) {
            self.check_started_runs(run)?;
            let call = self.open_call(run, prepared)?;
            let exchange = LlmExchange {
                duration: Duration::ZERO,
                attempts: Vec::new(),
                result: Ok(reply),
                refusal: None,
            };
            return Ok((exchange, call));
        }
        self.begin_rated_call(run, prepared)?;
        let mut call = self.open_call(run, prepared)?;
        let reserved = self.reserve_budget(run, prepared.body.text(), &call);
        if reserved.is_err() {
            self.end_rated_call(run, false);
        }
        let exchange = self.call_provider(run, prepared, &mut call, reserved?);
        self.end_rated_call(run, exchange.result.is_ok());
        Ok((exchange, call))
    }

    /// Makes a call for which `bound` is reserved; `None` without budgets. An attempt that fails is settled if it used anything,
    /// and the next one is reserved as another call would be.
    fn call_provider(
        &mut self,
        run: &mut Run,
        prepared: &PreparedRequest,
        call: &mut UnansweredCall,
        bound: Option<CallUpperBound>,
    ) -> LlmExchange {
        let readers = RunReaders::new(run);
        let request = readers.request(self.agent, run, prepared);
        let is_live = self.is_live;
        let mut redactors = AnswerRedactors::new(run.secrets());
        let timer = Instant::now();
        run.notify(RunNotice::LlmCallStarted);
        let llm = self.llm(run);
        let input_tokens = estimated_input(run, prepared.body.text());
        let budget = &mut self.budget;
        let mut refusal = None;
        let cancel = &self.cancel;
        let result = self.provider.complete(&request, cancel, &mut |progress| {
            if let Some(rate) = budget.rate_mut().as_mut().filter(|_| progress.is_of_answer()) {
                // A rate that cannot be kept is reported at the end of the call.
                let _ = rate.note_answer();
            }
            match progress {
                CallProgress::AttemptFailed { attempt, has_answer, next } => {
                    if let Some(rate) =
                        budget.rate_mut().as_mut().filter(|_| attempt.is_throttled())
                    {
                        // A rate that cannot be kept is reported at the end of the call.
                        let _ = rate.note_throttled(cancel);
                    }
                    run.notify(RunNotice::AttemptFailed(attempt, next));
                    let mut attempt = attempt.clone();
                    let usage = attempt.usage.iter_mut();
                    usage.for_each(|usage| complete_usage(llm, usage, input_tokens));
                    call.add_failure(attempt, has_answer);
                    redactors = AnswerRedactors::new(run.secrets());
                    let failed = call.answer.attempts().last();
                    if bound.is_some()
                        && let Some(usage) = failed.and_then(|failed| failed.usage.as_ref())
                    {
                        let used = usage_amount(llm.pricing.as_ref(), usage);
                        refusal = settle_attempt(budget, run, used, cancel).err();
                    }
                }
                CallProgress::SendingAgain { is_refused } => {
                    if refusal.is_none()
                        && !budget.has_reservation()
                        && let Some(bound) = bound
                    {
                        refusal = reserve_attempt(budget, run, bound, call, cancel).err();
                    }
                    *is_refused = refusal.is_some();
                    if refusal.is_none() {
                        call.add(&CallPart::Sent {});
                    }
                }
                CallProgress::Text(piece) => {
                    let piece = redact_piece(&mut redactors.content, piece);
                    if is_live {
                        run.notify(RunNotice::AnswerPiece(&piece));
                    }
                    call.add(&CallPart::Text(piece));
                }
                CallProgress::Reasoning(piece) => {
                    let piece = redact_piece(&mut redactors.reasoning, piece);
                    if is_live {
                        run.notify(RunNotice::ReasoningPiece(&piece));
                    }
                    call.add(&CallPart::Reasoning(piece));
                }
                CallProgress::Arguments(piece) => {
                    call.add(&CallPart::Arguments(redact_piece(&mut redactors.arguments, piece)));
                }
                CallProgress::Usage(usage) => call.add(&CallPart::Usage(Cow::Borrowed(usage))),
            }
        });
        run.notify(RunNotice::LlmCallEnded);
        let result = result.map(|mut reply| {
            let priced = reply.usage.as_mut().filter(|_| reply.from.is_none());
            priced.into_iter().for_each(|usage| complete_usage(llm, usage, input_tokens));
            reply
        });
        let attempts = call.answer.attempts().to_vec();
        LlmExchange { duration: timer.elapsed(), attempts, result, refusal }
    }

    fn record_llm_call(
        &self,
        run: &mut Run,
        prepared: &mut PreparedRequest,
        exchange: &LlmExchange,
        call: &UnansweredCall,
    ) -> Result<WrittenRecord, EngineError> {
        let reply = exchange.result.as_ref().ok();
        let error = exchange.result.as_ref().err();
        let (status, failed) = match error {
            Some(LlmError::Failed { status, response, .. }) => (*status, response.as_ref()),
            _ => (reply.and_then(|reply| reply.status), None),
        };
        let failed = failed.map(ResponseBody::new).unwrap_or_default();
        let is_interrupted = matches!(error, Some(LlmError::Cancelled));
        let interrupted = call.answer.usages();
        let usage = match reply {
            Some(reply) => reply.usage.as_ref(),
            None if is_interrupted => interrupted.last(),
            None => exchange.attempts.last().and_then(|attempt| attempt.usage.as_ref()),
        };
        let run_id = run.id.clone();
        let record = LlmCallRecord {
            run_id: run_id.as_str().into(),
            iteration: prepared.iteration,
            provider: self.llm(run).provider.name().into(),
            model: (&self.llm(run).model).into(),
            started_at: call.started_at(),
            duration_ms: duration_millis(exchange.duration),
            status,
            attempts: (&exchange.attempts).into(),
            context: Some((&prepared.blocks).into()),
            usage: usage.map(Cow::Borrowed),
            error: error.map(|error| Cow::Owned(error.to_string())),
            reasoning: reply.and_then(|reply| reply.reasoning.as_deref()).map(Cow::Borrowed),
            arrived: call.answer.arrived().filter(|_| is_interrupted).map(Cow::Borrowed),
            response: Cow::Borrowed(reply.map_or(&failed, |reply| &reply.response)),
            wire: reply.and_then(|reply| reply.wire.as_deref()).map(Cow::Borrowed),
        };
        let sent = reply.and_then(|reply| reply.sent_body.as_ref()).map(|sent| sent.as_str());
        Ok(run.records.write_invocation(call, &record, &mut prepared.body, sent)?)
    }
}

/// The tokens of a request, by what the endpoint has counted before.
fn estimated_input(run: &Run, body: &str) -> u64 {
    let state = run.state();
    state.ratio.request_tokens(body.len(), state.conversation.image_tokens(body))
}

/// Sets the cost of an answer. The agent's prices take precedence over the figure of the endpoint, and that figure, a bill,
/// over a list of prices. A script is free.
///
/// An endpoint that counts no tokens of a request, as Ollama of one in its cache, has not counted it: they are `input_tokens`.
/// The author of a script has.
fn complete_usage(llm: &LlmConfig, usage: &mut Usage, input_tokens: u64) {
    let is_script = matches!(llm.provider, ProviderKind::Script(_));
    if usage.input_tokens == 0 && !is_script {
        usage.input_tokens = input_tokens;
    }
    match &llm.pricing {
        Some(pricing) if pricing.is_from_agent() || usage.cost_usd.is_none() => {
            usage.cost_usd = pricing.call_cost(usage).or(usage.cost_usd);
        }
        None if is_script => usage.cost_usd = Some(0.0),
        Some(_) | None => {}
    }
}

/// What a provider may read of the run when it needs it.
struct RunReaders {
    run_id: RunId,
    run_dir: PathBuf,
    /// The body of the last answered request.
    previous_body: Box<dyn Fn() -> Option<String>>,
    /// What was sent in the last answered call.
    previous_exchange: Box<dyn Fn() -> Option<WireExchange>>,
    /// The command that goes back to before the newest image, if a tool gave it.
    undo_command: Option<String>,
}

impl RunReaders {
    fn new(run: &Run) -> Self {
        let run_dir = run.dir.clone();
        let body_dir = run_dir.clone();
        let body_record = run.state().last_invocation.clone();
        let exchange_dir = run_dir.clone();
        let exchange_record = body_record.clone();
        Self {
            run_id: run.id.clone(),
            run_dir,
            previous_body: Box::new(move || {
                record::read_request(&body_dir, body_record.as_deref()?).ok()
            }),
            previous_exchange: Box::new(move || {
                let name = exchange_record.as_deref()?;
                Some(record::read_wire_exchange(&exchange_dir, name).ok()??.wire)
            }),
            undo_command: run.state().image_iteration.map(|iteration| {
                let fork = ContinueCommand::from_state(run.state()).to_reader("fork");
                format!("{fork} --at {}", iteration.saturating_sub(1))
            }),
        }
    }

    fn request<'a>(
        &'a self,
        agent: &Agent,
        run: &Run,
        prepared: &'a PreparedRequest,
    ) -> LlmRequest<'a> {
        let state = run.state();
        let mut images = ImageReader::new(&self.run_dir, image_file::read_data_url);
        images.undo_command = self.undo_command.as_deref();
        LlmRequest {
            body: prepared.body.text(),
            task: &prepared.task,
            last_user_message: &prepared.last_user_message,
            last_message: prepared.body.last_message(),
            model_changes: state.model_changes,
            has_fallback: state.model_changes < agent.llm.fallback.len(),
            script_turn: state.script_turn,
            is_live: true,
            previous_body: Some(&*self.previous_body),
            previous_exchange: Some(&*self.previous_exchange),
            has_native: state.conversation.has_native(),
            forces_call: prepared.forces_call,
            run_id: self.run_id.as_str(),
            constant_messages: prepared.constant_messages,
            images: state.conversation.has_images().then_some(images),
        }
    }
}

/// Whether opaque parts contain a secret. Redacted, they would not be what the endpoint sent, so they are left out.
fn contains_secret(run: &Run, native: &NativeParts) -> bool {
    matches!(run.secrets().redact(&native.parts.to_string()), Cow::Owned(_))
}

/// Redact the texts of an answer as they arrive; a secret may be split over two pieces.
struct AnswerRedactors {
    content: StreamRedactor,
    reasoning: StreamRedactor,
    arguments: StreamRedactor,
}

impl AnswerRedactors {
    fn new(secrets: &Secrets) -> Self {
        let [content, reasoning, arguments] = [(); 3].map(|()| secrets.stream_redactor());
        Self { content, reasoning, arguments }
    }
}

fn redact_piece<'a>(redactor: &mut StreamRedactor, piece: &'a str) -> Cow<'a, str> {
    match redactor.push(piece.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(piece),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}
