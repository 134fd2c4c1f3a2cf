//! What the results of a sweep say: a row for each agent, model or parameter.
//!
//! Every row says how many of its planned runs it rests on. A run that has no score, because it was not run, because the
//! infrastructure failed, or because its grader did, is missing, never a 0; the row then also has what it would be if all
//! missing runs had a 0, and if all had a 1.

use crate::formats::grade::GradeLine;
use crate::formats::plan::PlannedRun;
use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::ResultLine;
use crate::formats::retry_policy::is_infrastructure_error;
use crate::formats::selection::run_field;
use crate::scores::setting_race::StoppedValue;
use delta_run::event::RunStatus;
use delta_statistics::estimate::{Estimate, amount, quantile, rate};
use delta_statistics::pass::{Passed, pass_all, pass_at};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The numbers of runs for which pass@k and pass^k are computed, as far as inputs have so many.
const PASS_COUNTS: [u64; 4] = [2, 3, 5, 10];

/// A run with everything that is known of it.
#[derive(Debug, Clone)]
pub struct ScoredRun<'a> {
    /// The run of the plan.
    pub run: &'a PlannedRun,
    /// The agent's name in the sweep, from [`agent_label`].
    pub agent: String,
    /// Its result, if it has one.
    pub line: Option<&'a ResultLine>,
    /// The answer of the grader.
    pub grade: Option<&'a GradeLine>,
    /// Its score, or why it has none.
    pub score: Result<RunScore, String>,
}

/// The score of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunScore {
    /// From 0 to 1.
    pub score: f64,
    /// Whether it passed.
    pub pass: bool,
}

impl<'a> ScoredRun<'a> {
    /// Scores a run. `grade` is what the grader said; `None` if the sweep has no grader: then COMPLETED is 1, and a failure
    /// that is the agent's own is 0.
    pub fn new(
        plan: &SweepPlan,
        run: &'a PlannedRun,
        line: Option<&'a ResultLine>,
        grade: Option<Option<&'a GradeLine>>,
    ) -> Self {
        let score = score_result(line, grade).map_err(str::to_owned);
        Self { run, agent: agent_label(plan, run), line, grade: grade.flatten(), score }
    }

    /// The value of a key of the run, as for `--only`.
    pub fn field(&self, key: &str) -> Option<String> {
        match key {
            "agent" => Some(self.agent.clone()),
            key => run_field(self.run, key),
        }
    }
}

/// The agent's name in the sweep; with its tree where the sweep has several agents of that name, because it changed.
pub fn agent_label(plan: &SweepPlan, run: &PlannedRun) -> String {
    let Some(own_tree) = plan.header_of(run).and_then(|header| header.agents.get(&*run.agent))
    else {
        return run.agent.to_string();
    };
    tree_label(plan, &run.agent, own_tree)
}

fn tree_label(plan: &SweepPlan, agent: &str, own_tree: &str) -> String {
    let mut trees = plan.headers.iter().filter_map(|header| header.agents.get(agent));
    if trees.all(|other| other == own_tree) {
        return agent.to_owned();
    }
    format!("{agent}@{}", own_tree.get(..8).unwrap_or(own_tree))
}

/// The labels of agents that changed, each with the index of the first plan that has it; none for an agent as the newest plan
/// has it.
pub fn changed_agent_labels(plan: &SweepPlan) -> BTreeMap<String, Option<usize>> {
    let mut labels = BTreeMap::new();
    let newest = plan.settings();
    for (index, header) in plan.headers.iter().enumerate() {
        for (agent, tree) in &header.agents {
            let label = tree_label(plan, agent, tree);
            let is_newest = newest.is_some_and(|newest| newest.agents.get(agent) == Some(tree));
            if label != *agent {
                labels.entry(label).or_insert((!is_newest).then_some(index));
            }
        }
    }
    labels
}

/// Whether the runs have several values of a key.
pub fn has_several_values(runs: &[ScoredRun<'_>], key: &str) -> bool {
    let values: BTreeSet<String> = runs.iter().filter_map(|scored| scored.field(key)).collect();
    values.len() > 1
}

/// The score of a result, or why it has none.
fn score_result<'a>(
    line: Option<&'a ResultLine>,
    grade: Option<Option<&GradeLine>>,
) -> Result<RunScore, &'a str> {
    let line = line.ok_or("not run")?;
    let error = line.error.as_ref().map(|error| error.kind.as_str());
    if !line.settled {
        return Err(match line.status {
            RunStatus::WaitingForInput => "waiting",
            _ => error.unwrap_or("unfinished"),
        });
    }
    if let Some(error) = error.filter(|error| is_infrastructure_error(error)) {
        return Err(error);
    }
    match grade {
        None => {
            let pass = line.status == RunStatus::Completed;
            Ok(RunScore { score: f64::from(u8::from(pass)), pass })
        }
        Some(None) => Err("not graded"),
        Some(Some(grade)) => {
            let score = grade.score.ok_or("ungraded")?;
            Ok(RunScore { score, pass: grade.pass.unwrap_or(score >= 1.0) })
        }
    }
}

/// The runs that share the values of some keys.
#[derive(Debug, Clone, Serialize)]
pub struct ScoreRow {
    /// The keys with their values, in the order in which they were asked for.
    pub key: Vec<(String, String)>,
    /// How many runs are planned.
    pub planned: u64,
    /// How many of them have a score.
    pub graded: u64,
    /// How many have none, by reason.
    pub missing: BTreeMap<String, u64>,
    /// The mean score of the inputs, each of which counts as much as the others.
    pub score: Option<NumberWithInterval>,
    /// The same if every missing run had a 0, and a 1; absent if none is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<[f64; 2]>,
    /// The chance that one of k runs passes, and that all do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass: Vec<PassChance>,
    /// USD of a run; absent if no cost is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<AmountSummary>,
    /// Tokens of a run, of requests and answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<AmountSummary>,
    /// The row that costs less, and of which the score is not worse by `max_drop`; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dominated: Option<Domination>,
    /// When a race has stopped the runs of this row; absent if none did, or if all were run nevertheless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedValue>,
    /// Seconds of a run, without the time for which the endpoint was throttled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<AmountSummary>,
}

/// By what one setting costs less than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostMeasure {
    /// USD of finished runs.
    #[serde(rename = "cost_usd")]
    Usd,
    /// Tokens, where the cost of a run is not known.
    Tokens,
}

/// The setting that dominates another one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Domination {
    /// Its keys with their values.
    pub by: Vec<(String, String)>,
    /// What it has less of.
    pub less: CostMeasure,
    /// The drop of the score that is excluded.
    pub max_drop: f64,
}

impl CostMeasure {
    /// The amount of a finished run.
    pub fn of(self, scored: &ScoredRun<'_>) -> Option<f64> {
        self.of_line(scored.line.filter(|line| line.settled)?)
    }

    fn of_line(self, line: &ResultLine) -> Option<f64> {
        match self {
            Self::Usd => line.full_cost_usd(),
            Self::Tokens => Some((line.usage.input_tokens + line.usage.output_tokens) as f64),
        }
    }
}

/// A number and both ends of its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NumberWithInterval {
    /// The number.
    pub value: f64,
    /// The interval; null if there are too few inputs for one.
    pub interval: Option<[f64; 2]>,
}

impl From<Estimate> for NumberWithInterval {
    fn from(estimate: Estimate) -> Self {
        let interval = estimate.interval.map(|interval| [interval.low, interval.high]);
        Self { value: estimate.value, interval }
    }
}

/// pass@k and pass^k.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PassChance {
    /// The number of runs.
    pub k: u64,
    /// How many inputs have so many runs with a score.
    pub inputs: u64,
    /// The chance that at least one of them passes.
    pub any: f64,
    /// The chance that each of them passes.
    pub all: f64,
}

/// An amount that each run has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AmountSummary {
    /// Of how many runs it is known.
    pub runs: u64,
    /// Over all these runs.
    pub sum: f64,
    /// The mean of the inputs.
    pub mean: NumberWithInterval,
    /// The median.
    pub p50: f64,
    /// Nine of ten runs have at most this.
    pub p90: f64,
}

/// The rows of a sweep, one for each combination of the values of `keys`, in the order of the plan.
pub fn score_rows(runs: &[ScoredRun<'_>], keys: &[String], seed: u64) -> Vec<ScoreRow> {
    let mut groups: Vec<(Vec<String>, Vec<&ScoredRun<'_>>)> = Vec::new();
    let mut places: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for scored in runs {
        let values: Vec<String> =
            keys.iter().map(|key| scored.field(key).unwrap_or_default()).collect();
        let index = *places.entry(values.clone()).or_insert_with(|| {
            groups.push((values, Vec::new()));
            groups.len() - 1
        });
        groups[index].1.push(scored);
    }
    groups
        .into_iter()
        .map(|(values, runs)| {
            let key = keys.iter().cloned().zip(values).collect();
            score_row(key, &runs, seed)
        })
        .collect()
}

fn score_row(key: Vec<(String, String)>, runs: &[&ScoredRun<'_>], seed: u64) -> ScoreRow {
    let mut missing: BTreeMap<String, u64> = BTreeMap::new();
    for why in runs.iter().filter_map(|scored| scored.score.as_ref().err()) {
        *missing.entry(why.clone()).or_default() += 1;
    }
    let scores = by_cluster(runs, |scored| scored.score.as_ref().ok().map(|score| score.score));
    let with = |value: f64| {
        let filled = by_cluster(runs, |scored| {
            Some(scored.score.as_ref().map_or(value, |score| score.score))
        });
        rate(&filled).map_or(value, |estimate| estimate.value)
    };
    let planned = runs.len() as u64;
    let lost: u64 = missing.values().sum();
    ScoreRow {
        key,
        planned,
        graded: planned - lost,
        bounds: (lost > 0).then(|| [with(0.0), with(1.0)]),
        missing,
        score: rate(&scores).map(Into::into),
        dominated: None,
        stopped: None,
        pass: pass_chances(runs),
        cost_usd: summarize_amounts(runs, seed, |line| CostMeasure::Usd.of_line(line)),
        tokens: summarize_amounts(runs, seed, |line| CostMeasure::Tokens.of_line(line)),
        seconds: summarize_amounts(runs, seed, |line| {
            line.unthrottled_ms().map(|time| time as f64 / 1000.0)
        }),
    }
}

/// The values of the runs that have one, by group or else by input: what is independent of each other.
fn by_cluster(
    runs: &[&ScoredRun<'_>],
    value: impl Fn(&ScoredRun<'_>) -> Option<f64>,
) -> Vec<Vec<f64>> {
    let mut clusters: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for scored in runs {
        if let Some(value) = value(scored) {
            clusters.entry(cluster(scored.run)).or_default().push(value);
        }
    }
    clusters.into_values().collect()
}

pub(crate) fn cluster(run: &PlannedRun) -> &str {
    run.group.as_deref().unwrap_or(&run.input)
}

fn pass_chances(runs: &[&ScoredRun<'_>]) -> Vec<PassChance> {
    let mut inputs: BTreeMap<&str, Passed> = BTreeMap::new();
    for scored in runs {
        let Ok(score) = &scored.score else { continue };
        let input = inputs.entry(&scored.run.input).or_insert(Passed { runs: 0, passed: 0 });
        input.runs += 1;
        input.passed += u64::from(score.pass);
    }
    let inputs: Vec<Passed> = inputs.into_values().collect();
    PASS_COUNTS
        .into_iter()
        .filter_map(|k| {
            let with_k = inputs.iter().filter(|input| input.runs >= k).count() as u64;
            let any = pass_at(&inputs, k)?;
            Some(PassChance { k, inputs: with_k, any, all: pass_all(&inputs, k)? })
        })
        .collect()
}

fn summarize_amounts(
    runs: &[&ScoredRun<'_>],
    seed: u64,
    value: impl Fn(&ResultLine) -> Option<f64>,
) -> Option<AmountSummary> {
    let of_run = |scored: &ScoredRun<'_>| scored.line.filter(|line| line.settled).and_then(&value);
    let amounts: Vec<f64> = runs.iter().filter_map(|scored| of_run(scored)).collect();
    Some(AmountSummary {
        runs: amounts.len() as u64,
        sum: amounts.iter().sum(),
        mean: amount(&by_cluster(runs, of_run), seed)?.into(),
        p50: quantile(&amounts, 0.5)?,
        p90: quantile(&amounts, 0.9)?,
    })
}

#[cfg(test)]
pub(crate) mod tests;
