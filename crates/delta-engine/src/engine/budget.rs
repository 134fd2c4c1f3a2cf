//! Budgets in the loop: the upper bound of a call is reserved before it and replaced by its actual
//! amount after it.

use super::think::{LlmExchange, PreparedRequest};
use super::{Engine, EngineError};
use delta_base::durable::FileError;
use delta_base::signal::CancelToken;
use delta_llm::llm::{LlmConfig, LlmError};
use delta_run::budget::ledger::{Budget, CallFile, LedgerError, MAX_DURATION_OPTION};
use delta_run::budget::prefix_wait::CallPrefix;
use delta_run::limits::{
    self, BudgetAmount, CallUpperBound, DEFAULT_ANSWER_TOKENS, Usd, estimate_answer_tokens,
};
use delta_run::record::open_call::{UnansweredCall, UnansweredState};
use delta_run::run::{Run, RunNotice};
use delta_run::state::RunEnding;
use delta_run::{record, run_tree};
use delta_words::{Pricing, Reply, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The members of a request that an endpoint reads before its messages.
#[derive(Deserialize)]
struct ToolsMember<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

/// What the request begins with in every run of the agent; `None` if that is nothing.
fn shared_prefix(llm: &LlmConfig, prepared: &PreparedRequest) -> Option<CallPrefix> {
    let body = &prepared.body;
    let messages = body.messages().get(..prepared.constant_messages)?;
    let (first, last) = messages.first().zip(messages.last())?;
    let ToolsMember { tools } = serde_json::from_str(body.text()).ok()?;
    let tools = tools.map_or("", RawValue::get);
    let text = &body.text()[first.start..last.end];
    let address = llm.base_url.as_deref().unwrap_or_default();
    let identity = [&llm.model, address, tools, text].join("\0");
    Some(CallPrefix { hash: record::sha256_hex(&identity), lifetime: llm.cache.lifetime()? })
}

/// The fields of a request that bound the length of its answer.
#[derive(Deserialize)]
struct AnswerLength {
    max_completion_tokens: Option<u64>,
    max_tokens: Option<u64>,
    /// The number of answers requested at once.
    n: Option<u64>,
}

impl AnswerLength {
    /// The maximum number of tokens of the answer to a request: `default` if the request names none. `max_output` is the
    /// maximum of the model, if it is known.
    fn max_answer_tokens(body: &str, default: u64, max_output: Option<u64>) -> u64 {
        let Ok(length) = serde_json::from_str::<Self>(body) else { return default };
        let one = length.max_completion_tokens.or(length.max_tokens).unwrap_or(default);
        let one = one.min(max_output.unwrap_or(u64::MAX));
        one.saturating_mul(length.n.unwrap_or(1).max(1))
    }
}

impl Engine<'_> {
    /// Waits until the rate of this host allows a call. The run does not cause the wait: it counts as throttled, and not against
    /// the time limit.
    pub(super) fn begin_rated_call(
        &mut self,
        run: &mut Run,
        prepared: &PreparedRequest,
    ) -> Result<(), EngineError> {
        let llm = self.llm(run);
        let Some(rate) = self.budget.rate_mut() else { return Ok(()) };
        let prefix = if rate.is_warm() { shared_prefix(llm, prepared) } else { None };
        let pause = self.cancel.pause_clock();
        let mut has_waited = false;
        let began = rate.begin_call(prefix.as_ref(), &self.cancel, &mut || {
            has_waited = true;
            run.notify(RunNotice::Warning("waiting for the rate of calls of this host"));
        });
        let waited = pause.elapsed();
        drop(pause);
        if has_waited {
            self.unrecorded_throttling.set(self.unrecorded_throttling.get() + waited);
            self.budget.delay_deadline(waited, &self.cancel).map_err(EngineError::Limit)?;
        }
        match began {
            Ok(true) => Ok(()),
            Ok(false) => Err(EngineError::Cancelled),
            Err(error) => {
                self.stop_rating(run, &error);
                Ok(())
            }
        }
    }

    /// Ends a call for which [`Engine::begin_rated_call`] has waited.
    pub(super) fn end_rated_call(&mut self, run: &mut Run, is_good: bool) {
        let Some(rate) = self.budget.rate_mut() else { return };
        if let Err(error) = rate.end_call(is_good, &self.cancel.for_cleanup()) {
            self.stop_rating(run, &error);
        }
    }

    /// A rate that cannot be kept costs no run.
    fn stop_rating(&mut self, run: &mut Run, error: &FileError) {
        *self.budget.rate_mut() = None;
        let text = format!("the rate of calls is not limited any more: {error}");
        run.notify(RunNotice::Warning(&text));
    }

    /// Refuses another call if the budget of a sweep has stopped a run that this process started: what this run made of its
    /// failure would be a result of the budget, and not of the agent.
    pub(super) fn check_started_runs(&self, run: &Run) -> Result<(), EngineError> {
        if !self.budget.is_shared() {
            return Ok(());
        }
        let Some(started_at) = run.state().started_at else { return Ok(()) };
        let Some(child) = run_tree::find_refused_child(&run.dir, started_at) else {
            return Ok(());
        };
        let message = format!("in run {}: {}", child.run_id, child.message);
        Err(EngineError::Limit(LedgerError::SharedLimitReached(message)))
    }

    /// Takes the tokens of the last answered request of earlier processes, as this process would have measured them: without
    /// them each byte of the conversation could be a token.
    pub(super) fn restore_measure(&mut self, run: &Run) {
        let last = run.state().last_invocation.as_deref().filter(|_| !self.budget.is_unlimited());
        let Some(last) = last else { return };
        // A tool without a sandbox can write to the record. What others wrote must not lower a reservation.
        if record::hash_written_record(&run.dir, last) != run.state().last_invocation_sha256 {
            return;
        }
        let Ok((model, usage)) = record::read_recorded_usage(&run.dir, last) else { return };
        let Ok(body) = record::read_request(&run.dir, last) else { return };
        let tokens =
            usage.map_or_else(|| estimate_body_tokens(run, &body), |usage| usage.input_tokens);
        // Another model counts other tokens.
        let is_measure = model == self.llm(run).model && tokens > 0;
        self.last_measured = is_measure.then_some((body, tokens));
    }

    /// Reserves the upper bound of a call in every budget of the run, and returns it; `None` without budgets.
    pub(super) fn reserve_budget(
        &mut self,
        run: &mut Run,
        body: &str,
        call: &UnansweredCall,
    ) -> Result<Option<CallUpperBound>, EngineError> {
        if self.budget.is_unlimited() {
            return Ok(None);
        }
        self.check_started_runs(run)?;
        let last = self.last_measured.as_ref().map(|(body, tokens)| (body.as_str(), *tokens));
        let input_tokens = limits::max_request_tokens(body, last)
            .saturating_add(run.state().conversation.image_tokens(body));
        let cost = self.llm(run).pricing.as_ref();
        let max_output = cost.and_then(|pricing| pricing.max_output);
        let default = self.llm(run).default_answer_tokens().unwrap_or(DEFAULT_ANSWER_TOKENS);
        let output_tokens = AnswerLength::max_answer_tokens(body, default, max_output);
        let cost = cost.map_or(0.0, |pricing| pricing.max_call_cost(input_tokens, output_tokens));
        let bound = CallUpperBound { input_tokens, output_tokens, cost: Usd::new(cost) };
        reserve_attempt(&mut self.budget, run, bound, call, &self.cancel)?;
        Ok(Some(bound))
    }

    /// Replaces the reservation of the last attempt of a call with its actual amount.
    pub(super) fn charge_budget(
        &mut self,
        run: &mut Run,
        prepared: &PreparedRequest,
        exchange: &LlmExchange,
        answer: &UnansweredState,
    ) -> Result<(), EngineError> {
        if self.budget.is_unlimited() {
            return Ok(());
        }
        let body = prepared.body.text();
        let read = estimate_body_tokens(run, body);
        let consumed = self.consumed_amount(run, read, exchange, answer);
        if let Ok(reply) = &exchange.result {
            let reported = reply.usage.as_ref().map_or(read, |usage| usage.input_tokens);
            // Copied: sharing it would force a copy of the next request.
            let sent = reply.sent_body.as_ref().unwrap_or(body).as_str().to_owned();
            self.last_measured = Some((sent, reported)).filter(|_| reported > 0);
        }
        settle_attempt(&mut self.budget, run, consumed, &self.cancel)
    }

    /// The amount that the last attempt of a call consumed, if it has not failed: as reported by the endpoint, or else estimated
    /// with about `read` tokens of the request. If it was interrupted, its request and what had arrived of its answer.
    fn consumed_amount(
        &self,
        run: &Run,
        read: u64,
        exchange: &LlmExchange,
        answer: &UnansweredState,
    ) -> BudgetAmount {
        let used = match &exchange.result {
            Err(LlmError::Cancelled) => answer.usages().into_iter().nth(answer.lost().count()),
            Err(_) => None,
            Ok(reply) if reply.from.is_some() => None,
            Ok(reply) => Some(reply.usage.clone().unwrap_or_else(|| estimate_usage(reply, read))),
        };
        let pricing = self.llm(run).pricing.as_ref();
        used.map(|usage| usage_amount(pricing, &usage)).unwrap_or_default()
    }

    /// The ending of a run whose deadline has passed: FAILED, because no operator interrupted it.
    /// If all that it did at its deadline was to wait for an endpoint that throttles it, that is the failure.
    pub(super) fn check_deadline(&mut self, run: &mut Run, ending: RunEnding) -> RunEnding {
        if ending != RunEnding::Interrupted || !self.cancel.is_expired() {
            return ending;
        }
        let limit = self.budget.time_limit_error();
        let error = match self.failing_call.take() {
            Some(call) if call.is_throttled => EngineError::Throttled { call, limit },
            Some(call) => EngineError::LimitOfFailing { call, limit },
            None => EngineError::Limit(limit),
        };
        self.record_failure(run, &error);
        RunEnding::Failed
    }
}

/// Reserves the upper bound of an attempt of a call in every budget of the run.
pub(super) fn reserve_attempt(
    budget: &mut Budget,
    run: &mut Run,
    bound: CallUpperBound,
    call: &UnansweredCall,
    cancel: &CancelToken,
) -> Result<(), EngineError> {
    let file = CallFile { path: call.path(), settled: call.answer.lost().count() };
    let result = budget.reserve(bound, Some(file), cancel, &mut || {
        run.notify(RunNotice::Warning("waiting for budget reserved by other calls"));
    });
    result.map_err(|error| match error {
        LedgerError::Cancelled => EngineError::Cancelled,
        error => EngineError::Limit(error),
    })
}

/// Replaces the reservation of an attempt of a call with what it used.
pub(super) fn settle_attempt(
    budget: &mut Budget,
    run: &mut Run,
    used: BudgetAmount,
    cancel: &CancelToken,
) -> Result<(), EngineError> {
    let note = budget.settle(used, cancel).map_err(EngineError::Limit)?;
    note.iter().for_each(|note| run.notify(RunNotice::Warning(note)));
    Ok(())
}

fn estimate_body_tokens(run: &Run, body: &str) -> u64 {
    let state = run.state();
    state.ratio.request_tokens(body.len(), state.conversation.image_tokens(body))
}

/// What a usage adds to the budgets.
pub(super) fn usage_amount(pricing: Option<&Pricing>, usage: &Usage) -> BudgetAmount {
    let cost = match (usage.cost_usd, pricing) {
        (Some(billed), Some(pricing)) if !pricing.is_from_agent() => billed,
        (_, Some(pricing)) => pricing.charged_cost(usage),
        (billed, None) => billed.unwrap_or_default(),
    };
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    BudgetAmount { tokens, cost_usd: Usd::new(cost) }
}

/// An estimate for an answer without reported usage.
pub(super) fn estimate_usage(reply: &Reply, input_tokens: u64) -> Usage {
    let content = reply.content.as_deref().unwrap_or_default();
    let output_tokens =
        estimate_answer_tokens(content, reply.reasoning.as_deref(), &reply.tool_calls);
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

/// What decides how long a run waits for an endpoint that throttles it.
pub(super) fn throttled_hint(limit: &LedgerError) -> String {
    match limit {
        LedgerError::LimitReached { of: Some(run), .. } => {
            format!("the time limit of run {run} sets how long to wait")
        }
        _ => format!("`{MAX_DURATION_OPTION}` sets how long to wait"),
    }
}

/// How to continue when a budget does not allow a call.
pub(super) fn limit_hint(error: &LedgerError) -> Option<String> {
    if error.is_shared_limit() {
        let hint = "raise `budget` in sweep.yaml, plan the sweep again, and start it again";
        return Some(hint.to_owned());
    }
    let LedgerError::LimitReached { flag, proposed, of, .. } = error else { return None };
    let option = match proposed {
        Some(proposed) => format!("`{flag} {proposed}`"),
        None => format!("a higher `{flag}`"),
    };
    Some(match of {
        Some(run) => format!("continue run {run} with `-m` and {option}"),
        None if *flag == MAX_DURATION_OPTION => {
            format!(
                "continue with `-m`: the time starts again with each process; `{flag}` sets the limit"
            )
        }
        None => format!("continue with `-m` and {option}; the limit applies to the whole run"),
    })
}

/// The option with which the run itself continues when its own budget does not allow a call.
pub(super) fn limit_option(error: &LedgerError) -> Option<String> {
    match error {
        LedgerError::LimitReached { flag, proposed: Some(proposed), of: None, .. } => {
            Some(format!("{flag} {proposed}"))
        }
        _ => None,
    }
}
