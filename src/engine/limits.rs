//! Limits in the loop: before a call the worst that it could take is reserved, after it what it took is counted.

use super::thinking::{Asked, Question};
use super::{Engine, EngineError};
use crate::ledger::{DURATION, LedgerError};
use crate::limits::{self, ANSWER, Amount, Usd, Worst, answer_tokens};
use crate::llm::{LlmError, Reply, Usage};
use crate::run::{Notice, Run};
use crate::state::Ending;
use serde::Deserialize;

/// What of a request says how long its answer can be.
#[derive(Deserialize)]
struct Length {
    max_completion_tokens: Option<u64>,
    max_tokens: Option<u64>,
    /// How many answers are asked for at once.
    n: Option<u64>,
}

impl Length {
    /// The most tokens of the answer to a request.
    fn of(body: &str) -> u64 {
        let Ok(length) = serde_json::from_str::<Self>(body) else { return ANSWER };
        let one = length.max_completion_tokens.or(length.max_tokens).unwrap_or(ANSWER);
        one.saturating_mul(length.n.unwrap_or(1).max(1))
    }
}

impl Engine<'_> {
    /// Reserves what a call could take, in every budget on which the run draws.
    pub(super) fn reserve(&mut self, run: &mut Run, body: &str) -> Result<(), EngineError> {
        if self.budget.is_none() {
            return Ok(());
        }
        let last = self.measured.as_ref().map(|(body, tokens)| (body.as_str(), *tokens));
        let (input, output) = (limits::most_tokens(body, last), Length::of(body));
        let cost = self.agent.llm.pricing.map_or(0.0, |pricing| pricing.most(input, output));
        let worst = Worst { input, output, cost: Usd::new(cost) };
        let mut waits = || run.tell(Notice::Warning(WAITS));
        self.budget.reserve(worst, &self.cancel, &mut waits).map_err(|error| match error {
            LedgerError::Cancelled => EngineError::Cancelled,
            error => EngineError::Limit(error),
        })
    }

    /// Counts what a call took, in the place of what was reserved for it.
    pub(super) fn charge(
        &mut self,
        run: &mut Run,
        question: &Question,
        asked: &Asked,
    ) -> Result<(), EngineError> {
        if self.budget.is_none() {
            return Ok(());
        }
        let body = question.body.text();
        let read = run.state().ratio.tokens(body.len());
        let took = self.took(read, asked);
        if let Ok(reply) = &asked.answer {
            let reported = reply.usage.as_ref().map_or(read, |usage| usage.input_tokens);
            // A copy: were it shared, the next request would have to be.
            let sent = reply.sent.as_ref().unwrap_or(body).as_str().to_owned();
            self.measured = Some((sent, reported)).filter(|_| reported > 0);
        }
        match self.budget.settle(took, &self.cancel) {
            Ok(None) => Ok(()),
            Ok(Some(note)) => {
                run.tell(Notice::Warning(&note));
                Ok(())
            }
            Err(error) => Err(EngineError::Limit(error)),
        }
    }

    /// What a call took: what the endpoint reported, or else an estimate. Of a try whose answer broke off nothing is
    /// reported, but its request was `read`: so many tokens, by an estimate.
    fn took(&self, read: u64, asked: &Asked) -> Amount {
        let began = |status: Option<u16>| status.is_some_and(|status| status < 300);
        let broken = asked.attempts.iter().filter(|attempt| began(attempt.status)).count() as u64;
        let broken = broken + u64::from(matches!(asked.answer, Err(LlmError::Cancelled)));
        let lost = self.amount(&Usage { input_tokens: read * broken, ..Usage::default() });
        match &asked.answer {
            Err(_) => lost,
            Ok(reply) => match &reply.usage {
                Some(usage) => lost.plus(self.amount(usage)),
                None => lost.plus(self.amount(&unreported(reply, read))),
            },
        }
    }

    fn amount(&self, usage: &Usage) -> Amount {
        let known = usage.cost_usd.unwrap_or_default();
        let cost = self.agent.llm.pricing.map_or(known, |pricing| pricing.cost(usage));
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        Amount { tokens, cost_usd: Usd::new(cost) }
    }

    /// The ending of a run that was stopped because its time was over: no person has stopped it, so it is FAILED.
    pub(super) fn in_time(&self, run: &mut Run, ending: Ending) -> Ending {
        if ending != Ending::Interrupted || !self.cancel.expired() {
            return ending;
        }
        self.fail(run, &EngineError::Limit(self.budget.out_of_time()));
        Ending::Failed
    }
}

/// What somebody reads while a call waits.
const WAITS: &str = "a call waits until other calls have left it enough of the budget";

/// What an answer without its usage took.
fn unreported(reply: &Reply, input_tokens: u64) -> Usage {
    let content = reply.content.as_deref().unwrap_or_default();
    let output_tokens = answer_tokens(content, reply.reasoning.as_deref(), &reply.tool_calls);
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

/// How to go on when no call may be made.
pub(super) fn hint(error: &LedgerError) -> Option<String> {
    let LedgerError::Reached { flag, of, .. } = error else { return None };
    Some(match of {
        Some(run) => format!("continue run {run} with `-m` and a higher `{flag}`"),
        None => {
            let whole = if *flag == DURATION { "this process" } else { "the whole run" };
            format!("continue with `-m` and a higher `{flag}`, which counts for {whole}")
        }
    })
}
