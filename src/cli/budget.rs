//! What a run may take: the options that say it, and the ledgers on which the run draws.

use super::drive::variable;
use super::failure::Failure;
use crate::agent::Agent;
use crate::id::RunId;
use crate::ledger::{self, Budget, Ledger};
use crate::limits::{ANSWER, Amount, Head, Limits, Usd};
use crate::llm::config::PRICING_HELP;
use crate::llm::{COMMAND_MARK, ProviderKind};
use crate::signal::Cancel;
use crate::time;
use clap::Args;
use std::path::Path;
use std::time::Duration;

/// What a run may take.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitOptions {
    /// What all LLM calls of the run, and of the runs below it, may cost; needs `llm.pricing`
    #[arg(long, value_name = "USD", value_parser = dollars)]
    max_cost: Option<Usd>,
    /// Tokens of all LLM calls of the run and of the runs below it, requests and answers together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 53))]
    max_tokens: Option<u64>,
    /// How long this process may work on the run: 90s, 10m, 2h, or milliseconds
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    max_duration: Option<u64>,
}

impl LimitOptions {
    /// What the operator says.
    pub fn limits(&self) -> Limits {
        let (max_cost, max_tokens) = (self.max_cost, self.max_tokens);
        Limits { max_cost, max_tokens, max_duration_ms: self.max_duration }
    }
}

fn dollars(text: &str) -> Result<Usd, String> {
    let dollars = text.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
    dollars.map(Usd::new).ok_or_else(|| "write it in US dollars, such as 1.50".to_owned())
}

/// A time as people write it, in milliseconds.
fn milliseconds(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let whole = unit.zip(digits.parse::<u64>().ok());
    let whole = whole.and_then(|(unit, number)| number.checked_mul(unit));
    let whole = whole.filter(|millis| (1..1 << 40).contains(millis));
    whole.ok_or_else(|| "write a whole number with its unit, such as 90s, 10m or 2h".to_owned())
}

/// The ledgers of the runs around this one, the nearest first.
///
/// # Errors
/// The environment names one that is of no use: nobody knows what may be taken.
pub fn above() -> Result<Vec<Ledger>, Failure> {
    let Some(path) = variable(ledger::VARIABLE) else { return Ok(Vec::new()) };
    let path = Path::new(&path);
    let chain = path.is_absolute().then(|| Ledger::chain(path));
    let why = match chain {
        Some(Ok(chain)) => return Ok(chain),
        Some(Err(error)) => error.to_string(),
        None => format!("{} is not an absolute path", path.display()),
    };
    let hint = format!(
        "{} names the budget of the run whose tool this is; take it out of the environment for a run of its own",
        ledger::VARIABLE
    );
    Err(Failure::config(why, hint))
}

/// Whether all that limits a run can hold.
///
/// # Errors
/// A cost is limited that is not known beforehand.
pub fn check(agent: &Agent, limits: Limits, above: &[Ledger]) -> Result<(), Failure> {
    let around = above.iter().find(|ledger| ledger.head.limits.max_cost.is_some());
    let by = match (limits.max_cost, around) {
        _ if agent.llm.is_priced() => return Ok(()),
        (Some(_), _) => "`--max-cost`".to_owned(),
        (None, Some(ledger)) => {
            format!("the limit of run {}, which is above this one,", ledger.head.run_id)
        }
        (None, None) => return Ok(()),
    };
    let message =
        format!("{by} needs to know what a call of {} costs before it is made", agent.llm.model);
    Err(Failure::config(message, PRICING_HELP.to_owned()))
}

/// What a run may take, and what a person should know of it.
pub struct Made {
    /// The budgets.
    pub budget: Budget,
    /// Lines for stderr.
    pub notes: Vec<String>,
}

/// Takes up the budget of the run in `dir`; its time begins now. What is `given` now wins over what was for an earlier
/// process, and that over the agent's own limits.
///
/// # Errors
/// They cannot hold, or the ledger is of no use.
pub fn take_up(
    id: &RunId,
    dir: &Path,
    given: Limits,
    agent: &Agent,
    above: Vec<Ledger>,
    spent: Amount,
    cancel: &Cancel,
) -> Result<Made, Failure> {
    let earlier = Ledger::in_run(dir)?.map(|account| account.head.given).unwrap_or_default();
    let given = given.or(earlier);
    let limits = given.or(agent.limits);
    check(agent, limits, &above)?;
    let own = match limits.are_none() {
        true => None,
        false => {
            let head = Head {
                run_id: id.to_string(),
                limits,
                given,
                deadline_unix: limits.max_duration_ms.map(from_now),
                above: above.first().map(|it| it.path().to_string_lossy().into_owned()),
            };
            Some(Ledger::take_up(dir, head, spent, cancel)?)
        }
    };
    let patient = variable(COMMAND_MARK.0).is_none();
    let budget = Budget::new(id.as_str(), own, above, patient);
    if let Some(deadline) = budget.deadline() {
        let left = deadline.saturating_sub(time::now().millis());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        cancel.expire_after(left).map_err(|error| {
            Failure::config(format!("the time cannot be watched: {error}"), None)
        })?;
    }
    let notes = assumption(agent, &budget).into_iter().collect();
    Ok(Made { budget, notes })
}

fn from_now(millis: u64) -> i64 {
    time::now().millis().saturating_add(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// What is assumed of answers whose length nothing limits.
fn assumption(agent: &Agent, budget: &Budget) -> Option<String> {
    let body = &agent.llm.body;
    let bounded = body.contains_key("max_tokens") || body.contains_key("max_completion_tokens");
    let script = matches!(agent.llm.provider, ProviderKind::Script(_));
    let matters = budget.counts_calls() && !bounded && !script;
    matters.then(|| {
        format!(
            "Note: without `llm.max_tokens` the limits take an answer to be at most {ANSWER} tokens long; a longer one may go beyond them"
        )
    })
}
