//! The limits of a run: their options, and the ledgers that the run charges.

use crate::failure::CommandFailure;
use crate::{environment, prices};
use clap::Args;
use delta_agent::agent::Agent;
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_llm::llm::{COMMAND_MARK, LlmConfig, ProviderKind};
use delta_program::number_argument::{parse_number_in, parse_time_in, parse_tokens_in};
use delta_run::budget::budget_account::LedgerHead;
use delta_run::budget::call_rate::{CallRate, RATE_VARIABLE};
use delta_run::budget::ledger::{self, Budget, Ledger};
use delta_run::limits::bounds::{self, DEPTH_VARIABLE, MAX_DEPTH_VARIABLE, Nesting, RunBounds};
use delta_run::limits::{BudgetAmount, DEFAULT_ANSWER_TOKENS, Limits, Usd};
use delta_run::ownership::Ownership;
use delta_words::PRICING_HELP;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest limit of tokens, which every reader of JSON can represent.
const MAX_TOKENS: u64 = (1 << 53) - 1;

/// The largest time limit, some 34 years.
const MAX_DURATION_MS: u64 = (1 << 40) - 1;

/// The options that limit a run together with its child runs.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct TreeLimitOptions {
    /// Limit the cost of the LLM calls of the run and its child runs
    #[arg(long, value_name = "USD", value_parser = parse_usd, allow_hyphen_values = true)]
    max_cost: Option<Usd>,
    /// Limit the tokens of the LLM calls of the run and its child runs: 50000, 200k, 1.5M
    #[arg(long, value_name = "N", value_parser = parse_tokens_in(1..=MAX_TOKENS), allow_hyphen_values = true, hide_short_help = true)]
    max_tokens: Option<u64>,
    /// Limit how long this process works on the run: 90s, 10m, 2h, 3d, 1h30m
    #[arg(long, value_name = "TIME", value_parser = parse_time_in(1..=MAX_DURATION_MS), allow_hyphen_values = true)]
    max_duration: Option<u64>,
}

impl TreeLimitOptions {
    /// The limits that the ledger counts against, shared with sub-agents.
    pub fn limits(&self) -> Limits {
        Limits {
            max_cost: self.max_cost,
            max_tokens: self.max_tokens,
            max_duration_ms: self.max_duration,
        }
    }
}

/// The options that limit a run.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitOptions {
    #[command(flatten)]
    tree: TreeLimitOptions,
    /// Run at most N calls of each LLM answer [default: `limits` in agent.yaml, else 128]
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = parse_number_in(1..=u32::MAX))]
    max_calls_per_answer: Option<u32>,
    /// Run at most N calls of `parallel` tools at once [default: `limits` in agent.yaml, else 4]
    #[arg(long, value_name = "N", value_parser = parse_number_in(1..=bounds::MAX_PARALLEL), hide_short_help = true)]
    max_parallel: Option<u32>,
    /// Allow at most N levels of runs below this one [default: `limits` in agent.yaml, else 8]
    #[arg(long, value_name = "N", value_parser = parse_number_in(0..=bounds::MAX_DEPTH), hide_short_help = true)]
    max_depth: Option<u32>,
    /// Limit the processes and threads of each tool call, where the kernel can count them
    #[arg(long, value_name = "N", value_parser = parse_number_in(1..=bounds::MAX_PROCESSES), hide_short_help = true)]
    max_processes: Option<u64>,
    /// Limit the memory of each tool call, such as 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = bounds::parse_memory, hide_short_help = true)]
    max_memory: Option<u64>,
    /// Limit the disk space that tool calls may use in the run directory, such as 2G
    #[arg(long, value_name = "SIZE", value_parser = bounds::parse_disk, hide_short_help = true)]
    max_disk: Option<u64>,
}

impl LimitOptions {
    /// The limits that the ledger counts against, shared with sub-agents.
    pub fn limits(&self) -> Limits {
        self.tree.limits()
    }

    /// The limits of this run alone.
    pub fn bounds(&self) -> RunBounds {
        RunBounds {
            calls_per_answer: self.max_calls_per_answer,
            parallel: self.max_parallel,
            repeats: None,
            depth: self.max_depth,
            processes: self.max_processes,
            memory: self.max_memory,
            disk: self.max_disk,
        }
    }

    /// Sets the maximum number of calls of an answer.
    pub fn set_calls_per_answer(&mut self, calls: u32) {
        self.max_calls_per_answer = Some(calls);
    }

    /// Whether no limit is given.
    pub fn are_none(&self) -> bool {
        self.limits().are_none() && self.bounds() == RunBounds::default()
    }
}

fn parse_usd(text: &str) -> Result<Usd, String> {
    let dollars = text.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
    dollars.map(Usd::new).ok_or_else(|| "expected an amount in US dollars, such as 1.50".to_owned())
}

/// The ledgers of the runs that started this process, innermost first.
///
/// # Errors
/// The environment names a ledger that cannot be read, so that the remaining budget is unknown.
pub fn enclosing_ledgers() -> Result<Vec<Ledger>, CommandFailure> {
    let Some(path) = environment::variable(ledger::BUDGET_VARIABLE) else {
        return Ok(Vec::new());
    };
    let path = Path::new(&path);
    let chain = path.is_absolute().then(|| Ledger::open_chain(path));
    let problem = match chain {
        Some(Ok(chain)) => return Ok(chain),
        Some(Err(error)) => error.to_string(),
        None => format!("{} is not an absolute path", path.display()),
    };
    let hint = format!(
        "{} names the budget of the run that started this command; unset it to start an independent run",
        ledger::BUDGET_VARIABLE
    );
    Err(CommandFailure::config(problem, hint))
}

/// The nesting of a run that this process works on.
///
/// # Errors
/// The run would be deeper than a run around it allows.
pub fn nesting(bounds: &RunBounds) -> Result<Nesting, CommandFailure> {
    let nesting = Nesting::new(
        environment::variable(DEPTH_VARIABLE).as_deref(),
        environment::variable(MAX_DEPTH_VARIABLE).as_deref(),
        delta_process::marked_run_levels(),
        bounds.depth,
    );
    nesting.map_err(|Nesting { depth, max_depth }| {
        let levels = if depth == 1 { "level" } else { "levels" };
        let message = format!(
            "this run would be {depth} {levels} below the outermost one, and the limit is {max_depth}"
        );
        let hint = "`--max-depth` of the outermost run, or `limits: {depth: N}` in its agent.yaml, sets the limit";
        CommandFailure::config(message, hint)
    })
}

/// Checks that the limits of a run can be enforced. `missing_prices` say, for each model, why the operator's price file has
/// no price.
///
/// # Errors
/// The cost is limited and the price of the LLM is unknown.
pub fn check_limits(
    agent: &Agent,
    limits: Limits,
    enclosing: &[Ledger],
    missing_prices: &[Option<String>],
) -> Result<(), CommandFailure> {
    let mut models = agent.llm.models().enumerate();
    let Some((number, llm)) = models.find(|(_, llm)| !llm.has_known_cost()) else {
        return Ok(());
    };
    let limited_parent = enclosing.iter().find(|ledger| ledger.head.limits.max_cost.is_some());
    let limit = match (limits.max_cost, limited_parent) {
        (Some(cost), _) if agent.limits.max_cost == Some(cost) => "`max_cost`".to_owned(),
        (Some(_), _) => "`--max-cost`".to_owned(),
        (None, Some(ledger)) if ledger.head.grants.is_some() => {
            "`max_cost` in the budget of the sweep".to_owned()
        }
        (None, Some(ledger)) => format!("the cost limit of the parent run {}", ledger.head.run_id),
        (None, None) => return Ok(()),
    };
    let missing_price = missing_prices.get(number).and_then(Option::as_deref);
    Err(missing_price_failure(agent, llm, &limit, "`--max-tokens 500k`", missing_price))
}

/// The price of `llm` of an agent is unknown, and `limit` requires it. `token_limit` is what limits without a price.
pub fn missing_price_failure(
    agent: &Agent,
    llm: &LlmConfig,
    limit: &str,
    token_limit: &str,
    missing_price: Option<&str>,
) -> CommandFailure {
    let mut message = format!("{limit} requires the price of {}", llm.model);
    if let Some(reason) = missing_price {
        message.push_str(&format!(", which is not in {reason}"));
    }
    // The agent of an operator's model may have no `llm` to write a price into.
    let hint = match &agent.model_choice {
        None => PRICING_HELP.to_owned(),
        Some(_) => {
            let model = &llm.model;
            format!(
                "limit the tokens: {token_limit}; or write the price into the agent: `llm: {{model: {model}, pricing: {{input: 2.5, output: 10}}}}` in agent.yaml, in USD per million tokens; or name a price file in DELTA_PRICES; `delta models prices --fetch URL` fetches a list"
            )
        }
    };
    CommandFailure::config(message, hint)
}

/// A run that this process owns.
#[derive(Clone, Copy)]
pub struct OwnedRun<'a> {
    /// The id of the run.
    pub id: &'a RunId,
    /// Its directory.
    pub dir: &'a Path,
    /// The lock or the lease of this process.
    pub ownership: &'a Ownership,
}

/// What limits a run from outside.
pub struct OuterLimits {
    /// Of the sweep and of the runs around it, innermost first.
    ledgers: Vec<Ledger>,
    /// The directory of the rate of calls.
    rate_dir: Option<PathBuf>,
}

impl OuterLimits {
    /// What the runs around the run and a sweep limit, and the rate that the environment names.
    pub fn new(enclosing: Vec<Ledger>, sweep: Option<Ledger>, sweep_rate: Option<PathBuf>) -> Self {
        let ledgers = sweep.into_iter().chain(enclosing);
        let named = environment::variable(RATE_VARIABLE).map(PathBuf::from);
        let rate_dir = named.or(sweep_rate);
        Self { ledgers: ledgers.collect(), rate_dir }
    }

    /// Nothing, for answers that are recorded.
    pub fn none() -> Self {
        Self { ledgers: Vec::new(), rate_dir: None }
    }
}

/// What earlier processes of a run used, and what limits options gave to them.
#[derive(Debug, Clone, Copy, Default)]
pub struct PastUse {
    /// The cost of the answers so far.
    pub spent: BudgetAmount,
    /// Whether there were any.
    pub is_continued: bool,
    /// The limits, as the journal has them.
    pub given_limits: Option<Limits>,
}

/// A budget, with notes on it for the user.
pub struct OpenedBudget {
    /// The limits with their ledger.
    pub budget: Budget,
    /// What the user is to read about it, a line each.
    pub notes: Vec<String>,
}

/// Opens the budget of a run and starts its clock. Each limit comes from this command line, else from the command line of
/// an earlier process, else from the agent.
///
/// # Errors
/// A limit cannot be enforced, or the ledger cannot be used.
pub fn open_budget(
    run: &OwnedRun<'_>,
    limits: Limits,
    agent: &Agent,
    outer: OuterLimits,
    past: PastUse,
    cancel: &CancelToken,
) -> Result<OpenedBudget, CommandFailure> {
    let OwnedRun { id, dir, ownership } = *run;
    let OuterLimits { ledgers: enclosing, rate_dir } = outer;
    // The ledger can be lost. Only journals of earlier versions lack these limits.
    let earlier = match past.given_limits {
        Some(limits) => Some(limits),
        None => Ledger::read_account(dir)?.map(|ledger| ledger.head.given),
    };
    let operator_limits = limits.or(earlier.unwrap_or_default());
    let limits = operator_limits.or(agent.limits);
    check_limits(agent, limits, &enclosing, &[])?;
    let relies_on_price = limits.max_cost.is_some()
        || enclosing.iter().any(|ledger| ledger.head.limits.max_cost.is_some());
    let ledger = if limits.are_none() {
        None
    } else {
        let parent = enclosing.first().map(|ledger| ledger.path().to_string_lossy().into_owned());
        let head = LedgerHead {
            run_id: id.clone(),
            limits,
            given: operator_limits,
            deadline_unix: limits.max_duration_ms.map(unix_ms_after),
            above: parent,
            grants: None,
        };
        Some(Ledger::open_for_owner(dir, ownership, head, past.spent, cancel)?)
    };
    let is_patient = environment::variable(COMMAND_MARK.0).is_none();
    // A call inside of a call would wait for the slot of the outer one.
    let rate = rate_dir.filter(|_| is_patient).map(|dir| CallRate::new(&dir));
    let budget = Budget::new(id.as_str(), ledger, enclosing, is_patient).with_rate(rate);
    if past.is_continued {
        budget.settle_dead_calls(cancel)?;
    }
    start_clocks(&budget, cancel).map_err(|error| {
        let message = format!("could not set the timer of `--max-duration`: {error}");
        CommandFailure::config(message, None)
    })?;
    let models = agent.llm.models().filter(|_| relies_on_price);
    let old_prices = models.filter_map(prices::old_price_note);
    let notes = answer_length_note(agent, &budget).into_iter().chain(old_prices).collect();
    Ok(OpenedBudget { budget, notes })
}

/// Starts the clocks of the time limits. A wait for the rate of calls delays the run's own one alone.
fn start_clocks(budget: &Budget, cancel: &CancelToken) -> io::Result<()> {
    if let Some(deadline) = budget.own_deadline() {
        cancel.expire_after_work(time_until(deadline))?;
    }
    if let Some(deadline) = budget.outer_deadline() {
        cancel.expire_after(time_until(deadline))?;
    }
    Ok(())
}

fn time_until(unix_ms: i64) -> Duration {
    let rest = unix_ms.saturating_sub(time::current_time().as_millis());
    Duration::from_millis(u64::try_from(rest).unwrap_or(0))
}

fn unix_ms_after(millis: u64) -> i64 {
    time::current_time().as_millis().saturating_add(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// Says which length the limits assume for answers that have no `max_tokens`.
fn answer_length_note(agent: &Agent, budget: &Budget) -> Option<String> {
    let is_bounded = agent.llm.models().all(|llm| {
        let names = ["max_tokens", "max_completion_tokens"];
        names.iter().any(|name| llm.body.contains_key(*name))
            || llm.default_answer_tokens().is_some()
    });
    let is_script = matches!(agent.llm.provider, ProviderKind::Script(_));
    if is_bounded || is_script || !budget.limits_calls() {
        return None;
    }
    Some(format!(
        "Note: without `llm.max_tokens` or `max_output` in `llm.pricing`, the limits assume answers of at most {DEFAULT_ANSWER_TOKENS} tokens; a longer answer may exceed them"
    ))
}
