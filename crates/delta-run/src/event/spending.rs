//! What the answers of a run used, from its events.

use crate::event::{Payload, Thought};
use crate::limits::{BudgetAmount, Usd, estimate_answer_tokens};
use delta_words::Usage;

/// What the answers of a run used after one more event: as the endpoint reported it, or else estimated. Answers that a
/// fork copied, or another run paid for, do not count. `before` is the amount before the event.
pub fn add_spending(before: BudgetAmount, payload: &Payload) -> BudgetAmount {
    match payload {
        Payload::Fork(_) => BudgetAmount::default(),
        Payload::Thought(thought) if thought.from.is_some() => {
            before.saturating_add(discarded_amount(&thought.discarded_usage))
        }
        Payload::Thought(thought) => before
            .saturating_add(thought_amount(thought))
            .saturating_add(discarded_amount(&thought.discarded_usage)),
        Payload::Error { error_details, .. } => {
            before.saturating_add(discarded_amount(&error_details.discarded_usage))
        }
        _ => before,
    }
}

fn discarded_amount(usages: &[Option<Usage>]) -> BudgetAmount {
    let usages = usages.iter().flatten();
    usages.fold(BudgetAmount::default(), |sum, usage| sum.saturating_add(reported_amount(usage)))
}

/// What a usage adds to a budget.
pub(crate) fn reported_amount(usage: &Usage) -> BudgetAmount {
    BudgetAmount {
        tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        cost_usd: Usd::new(usage.cost_usd.unwrap_or_default()),
    }
}

fn thought_amount(thought: &Thought) -> BudgetAmount {
    match &thought.usage {
        Some(usage) => reported_amount(usage),
        None => {
            let tokens = thought.estimated_tokens.unwrap_or_default();
            let answer = estimate_answer_tokens(&thought.content, None, &thought.tool_calls);
            BudgetAmount { tokens: tokens.saturating_add(answer), cost_usd: Usd::default() }
        }
    }
}
