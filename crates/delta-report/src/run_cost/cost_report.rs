//! The cost of many runs: what caches saved, and the causes of what was paid for again.

use super::paid_again::{PaidAgain, PaidAgainCause, UnreadPrefix, judge_first_requests};
use super::{JudgedRun, RunCost};
use delta_base::id::RunId;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::text::text_width::clip_to_width;
use delta_run::event::round_usd;
use delta_run::workspace;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// The width of a line without a command, and of the first column of the causes.
const WIDTH: usize = 80;
const CAUSE_WIDTH: usize = 51;
/// The most runs that are named.
const MAX_NAMED_RUNS: usize = 4;

/// What a run adds to a report, with the runs below it if they count.
#[derive(Debug, Clone)]
pub struct CountedRun {
    /// The id of the run.
    pub run_id: RunId,
    /// USD, if the prices are known.
    pub cost_usd: Option<f64>,
    /// What caches saved in USD, if the prices are known.
    pub saved_usd: Option<f64>,
    /// Tokens of the requests.
    pub input_tokens: u64,
    /// The part of them that the endpoint read from its cache.
    pub cached_input_tokens: u64,
    /// The part of them that the endpoint wrote to its cache.
    pub cache_write_tokens: u64,
    /// How many requests paid again for what the request before them had, if that is known.
    pub cache_breaks: Option<u64>,
    /// Whether the records of the run were read.
    pub is_judged: bool,
}

impl CountedRun {
    /// A run whose journal cannot be read: only its name counts.
    pub fn unreadable(run_dir: &Path) -> Option<Self> {
        Some(Self {
            run_id: RunId::parse(run_dir.file_name()?.to_str()?).ok()?,
            cost_usd: None,
            saved_usd: None,
            input_tokens: 0,
            cached_input_tokens: 0,
            cache_write_tokens: 0,
            cache_breaks: None,
            is_judged: false,
        })
    }
}

/// What runs cost, and what costs more than it must.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostReport {
    runs: usize,
    /// USD of the runs whose prices are known; `None` if none are.
    cost_usd: Option<f64>,
    /// USD without caches; `None` if that is not known of a run whose cost is.
    without_caches_usd: Option<f64>,
    saved_usd: Option<f64>,
    /// The runs without a price.
    unpriced_runs: usize,
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_tokens: u64,
    cache_breaks: u64,
    /// What was paid for again, the most expensive first.
    causes: Vec<CostCause>,
    /// The runs whose records could not be read.
    not_judged: Vec<RunId>,
}

/// Why input was paid for again, of all runs of an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CostCause {
    /// The kind: `first_request`, `block`, `expired`, ...
    cause: &'static str,
    agent: String,
    /// The text of the cause.
    text: String,
    /// The block that changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// What the input cost more than reading it, in USD; null if a price is not known.
    cost_usd: Option<f64>,
    tokens: u64,
    runs: usize,
    requests: usize,
    /// What `cache: {ttl: 1h}` would save in USD for all runs of the agent; 0 if it would cost more.
    #[serde(skip_serializing_if = "Option::is_none")]
    longer_entries_save_usd: Option<f64>,
    /// The run that paid the most.
    run: RunId,
    /// What shows it.
    command: String,
}

/// Input that a run paid for again.
struct RunPayment<'a> {
    run: &'a RunCost,
    paid: PaidAgain,
}

impl CostReport {
    /// Adds up runs; `costs` are the ones of them whose journal could be read, and of the runs below them.
    pub fn new(counted: &[CountedRun], costs: &[RunCost]) -> Self {
        let sum = |count: fn(&CountedRun) -> u64| counted.iter().map(count).sum::<u64>();
        let priced = counted.iter().filter(|run| run.cost_usd.is_some());
        let costs_usd: Vec<f64> = counted.iter().filter_map(|run| run.cost_usd).collect();
        let cost_usd = (!costs_usd.is_empty()).then(|| round_usd(costs_usd.iter().sum()));
        let saved: Option<Vec<f64>> = priced.map(|run| run.saved_usd).collect();
        let saved_usd = saved.filter(|saved| !saved.is_empty());
        let saved_usd = saved_usd.map(|saved| round_usd(saved.iter().sum()));
        Self {
            runs: counted.len(),
            cost_usd,
            without_caches_usd: cost_usd
                .zip(saved_usd)
                .map(|(cost, saved)| round_usd(cost + saved)),
            saved_usd,
            unpriced_runs: counted
                .iter()
                .filter(|run| run.cost_usd.is_none() && run.input_tokens > 0)
                .count(),
            input_tokens: sum(|run| run.input_tokens),
            cached_input_tokens: sum(|run| run.cached_input_tokens),
            cache_write_tokens: sum(|run| run.cache_write_tokens),
            cache_breaks: sum(|run| run.cache_breaks.unwrap_or(0)),
            causes: find_causes(costs),
            not_judged: counted
                .iter()
                .filter(|run| !run.is_judged)
                .map(|run| run.run_id.clone())
                .collect(),
        }
    }

    /// The report as lines of at most 80 columns, except for commands.
    pub fn to_text(&self) -> String {
        let mut out = format!("{}\n", self.total_line());
        if self.unpriced_runs > 0 {
            let of_runs = count_runs(self.unpriced_runs);
            out.push_str(&format!("unknown cost: {of_runs} without a price\n"));
        }
        if self.causes.is_empty() {
            out.push_str("nothing costs more than it must, as far as the records show\n");
        } else {
            let heading = "what costs more than it must";
            out.push_str(&format!(
                "\n{heading:CAUSE_WIDTH$}{:>10}{:>12}{:>7}\n",
                "USD", "tokens", "runs"
            ));
        }
        for cause in &self.causes {
            let text = clip_to_width(&cause.text, CAUSE_WIDTH - 1);
            let usd =
                cause.cost_usd.map_or_else(|| "unknown".to_owned(), |usd| format!("{usd:.4}"));
            let figures = format!("{usd:>10}{:>12}{:>7}", cause.tokens, cause.runs);
            out.push_str(&format!("{text:CAUSE_WIDTH$}{figures}\n"));
            let agent =
                format!("  agent {}{}", strip_terminal_controls(&cause.agent), cause.advice());
            out.push_str(&format!("{}\n  {}\n", clip_to_width(&agent, WIDTH), cause.command));
        }
        if !self.not_judged.is_empty() {
            let of_runs = count_runs(self.not_judged.len());
            out.push_str(&format!(
                "\nnot judged: {of_runs} whose records are packed, removed or damaged\n"
            ));
            for run in self.not_judged.iter().take(MAX_NAMED_RUNS) {
                out.push_str(&format!("  {run}\n"));
            }
            let more = self.not_judged.len().saturating_sub(MAX_NAMED_RUNS);
            if more > 0 {
                out.push_str(&format!("  and {more} more\n"));
            }
        }
        out
    }

    /// The report as a line of JSON.
    pub fn to_json_line(&self) -> String {
        delta_base::json::to_json(self) + "\n"
    }

    /// `118.46 USD   without caches 294.80   saved 60 %   1000 runs`.
    fn total_line(&self) -> String {
        let of_runs = count_runs(self.runs);
        let Some(cost) = self.cost_usd else {
            let read = self.cached_input_tokens;
            return format!(
                "{} input tokens, {read} of them read from caches   {of_runs}",
                self.input_tokens
            );
        };
        let Some(saved) = self.saved_usd else {
            return format!("{} USD   without caches unknown   {of_runs}", format_cost(cost));
        };
        let without = cost + saved;
        let percent = if without > 0.0 { 100.0 * saved / without } else { 0.0 };
        let [cost, without] = [cost, without].map(format_cost);
        format!("{cost} USD   without caches {without}   saved {percent:.0} %   {of_runs}")
    }
}

impl CostCause {
    /// What would help, where that is known.
    fn advice(&self) -> String {
        match (self.cause, self.longer_entries_save_usd) {
            ("expired", Some(saved)) if saved > 0.0 => {
                format!("; `cache: {{ttl: 1h}}` would save {saved:.4}")
            }
            ("expired", Some(_)) => "; `cache: {ttl: 1h}` would not pay".to_owned(),
            ("unmarked", _) => "; `cache: auto` marks them".to_owned(),
            ("block", _) => "; move it after the journal in context.yaml".to_owned(),
            _ => String::new(),
        }
    }
}

/// Adds up what was paid for again, by agent and cause, the most expensive first.
fn find_causes(costs: &[RunCost]) -> Vec<CostCause> {
    let judged: Vec<(&RunCost, &JudgedRun)> =
        costs.iter().filter_map(|run| Some((run, run.judged.as_ref()?))).collect();
    let firsts: Vec<(&RunCost, _)> =
        judged.iter().filter_map(|(run, judged)| Some((*run, judged.first.as_ref()?))).collect();
    let requests: Vec<_> = firsts.iter().map(|(_, first)| *first).collect();
    let of_firsts = firsts.iter().zip(judge_first_requests(&requests));
    let of_firsts = of_firsts.filter_map(|((run, _), paid)| Some(RunPayment { run, paid: paid? }));
    let of_later = judged.iter().flat_map(|(run, judged)| {
        judged.paid_again.iter().map(|paid| RunPayment { run, paid: paid.clone() })
    });
    let mut groups: HashMap<(&str, PaidAgainCause), Vec<RunPayment<'_>>> = HashMap::new();
    for payment in of_firsts.chain(of_later) {
        let key = (payment.run.agent.as_str(), payment.paid.cause.clone());
        groups.entry(key).or_default().push(payment);
    }
    let mut longer: BTreeMap<&str, Option<f64>> = BTreeMap::new();
    for (run, judged) in &judged {
        let sum = longer.entry(&run.agent).or_insert(Some(0.0));
        *sum = sum.zip(judged.longer_entries_usd).map(|(sum, more)| sum + more);
    }
    let mut causes: Vec<CostCause> = groups
        .into_iter()
        .filter_map(|((agent, cause), payments)| {
            CostCause::new(agent, &cause, &payments, longer.get(agent).copied().flatten())
        })
        .collect();
    causes.sort_by(|one, other| {
        let usd = |cause: &CostCause| cause.cost_usd.unwrap_or(0.0);
        let by_usd = usd(other).total_cmp(&usd(one));
        let names = |cause: &CostCause| (cause.agent.clone(), cause.text.clone());
        by_usd.then(other.tokens.cmp(&one.tokens)).then_with(|| names(one).cmp(&names(other)))
    });
    causes
}

impl CostCause {
    fn new(
        agent: &str,
        cause: &PaidAgainCause,
        payments: &[RunPayment<'_>],
        longer_entries_usd: Option<f64>,
    ) -> Option<Self> {
        let most =
            payments.iter().max_by_key(|payment| (payment.paid.tokens, &payment.run.run_id))?;
        let costs: Option<Vec<f64>> = payments.iter().map(|payment| payment.paid.usd).collect();
        let mended = payments.iter().filter(|payment| payment.paid.fits_hour);
        let mended: Option<f64> = mended.map(|payment| payment.paid.usd).sum();
        let save = mended.zip(longer_entries_usd).map(|(saved, more)| (saved - more).max(0.0));
        let ids: BTreeSet<&RunId> = payments.iter().map(|payment| &payment.run.run_id).collect();
        let source = match cause {
            PaidAgainCause::Block(source) => Some(strip_terminal_controls(source)),
            _ => None,
        };
        let run = &most.run.run_id;
        let dir = workspace::quote_workspace(&most.run.work_dir);
        let later = most.paid.iteration;
        let command = match most.paid.before {
            None => format!("delta context show {run} --iteration {later} -w {dir}"),
            Some(before) => format!("delta context diff {run} {before} {later} -w {dir}"),
        };
        Some(Self {
            cause: cause_name(cause),
            agent: agent.to_owned(),
            text: cause_text(cause, most.paid.tokens),
            source,
            cost_usd: costs.map(|costs| round_usd(costs.iter().sum())),
            tokens: payments.iter().map(|payment| payment.paid.tokens).sum(),
            runs: ids.len(),
            requests: payments.len(),
            longer_entries_save_usd: save
                .filter(|_| *cause == PaidAgainCause::Expired)
                .map(round_usd),
            run: run.clone(),
            command,
        })
    }
}

fn cause_name(cause: &PaidAgainCause) -> &'static str {
    match cause {
        PaidAgainCause::FirstRequest(UnreadPrefix::NoMark) => "first_request_unmarked",
        PaidAgainCause::FirstRequest(UnreadPrefix::NotAnswered) => "first_request_at_once",
        PaidAgainCause::FirstRequest(UnreadPrefix::NotRead) => "first_request_unread",
        PaidAgainCause::Block(_) => "block",
        PaidAgainCause::Expired => "expired",
        PaidAgainCause::Model => "model",
        PaidAgainCause::Tools => "tools",
        PaidAgainCause::Conversation => "conversation",
        PaidAgainCause::Replaced => "replaced",
        PaidAgainCause::Unmarked => "unmarked",
        PaidAgainCause::Unread => "unread",
    }
}

/// The cause in words; `most` is the largest number of tokens of a request.
fn cause_text(cause: &PaidAgainCause, most: u64) -> String {
    match cause {
        PaidAgainCause::FirstRequest(reason) => {
            let reason = match reason {
                UnreadPrefix::NoMark => "no mark",
                UnreadPrefix::NotAnswered => "at once",
                UnreadPrefix::NotRead => "not read",
            };
            format!("first requests pay the same {most} tokens: {reason}")
        }
        PaidAgainCause::Block(source) => {
            format!("block `{}` changes before the journal", strip_terminal_controls(source))
        }
        PaidAgainCause::Expired => "entries expired while tools ran or a person waited".to_owned(),
        PaidAgainCause::Model => "another model was asked".to_owned(),
        PaidAgainCause::Tools => "the tools changed".to_owned(),
        PaidAgainCause::Conversation => "the conversation began with other messages".to_owned(),
        PaidAgainCause::Replaced => "a hook changed the messages".to_owned(),
        PaidAgainCause::Unmarked => "requests marked nothing for the cache".to_owned(),
        PaidAgainCause::Unread => "the endpoint read less than it had".to_owned(),
    }
}

fn count_runs(count: usize) -> String {
    format!("{count} {}", if count == 1 { "run" } else { "runs" })
}

/// USD: two digits, or four below ten.
fn format_cost(usd: f64) -> String {
    if usd.abs() >= 10.0 { format!("{usd:.2}") } else { format!("{usd:.4}") }
}
