//! The numbers of a sweep: a row for each agent, model and set of parameters, with intervals and with what they rest on.
//!
//! A failure of the infrastructure is not a result: it is missing from its row, and the row shows it.

use crate::plan::PlannedRun;
use crate::plan_file::SweepPlan;
use crate::result_line::{ResultLine, SweepResults};
use crate::retry_policy::is_infrastructure_error;
use delta_base::text_width::display_width;
use delta_base::time::format_duration;
use delta_run::event::RunStatus;
use delta_statistics::estimate::{Estimate, amount, quantile, rate};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// A row: what one agent with one model and one set of parameters did.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// The agent, the model and the parameters, in the columns of [`SweepTable::columns`].
    pub labels: Vec<String>,
    /// The number of planned runs.
    pub runs: u64,
    /// How many of them have a score.
    pub scored: u64,
    /// Why the others have none: the type of an error or the status, with the number of runs.
    pub missing: BTreeMap<String, u64>,
    /// The mean score; absent where no run has one.
    pub score: Option<Estimate>,
    /// The mean score if all missing ones were 0, and if they were 1.
    pub bounds: (f64, f64),
    /// USD a run, where it is known of every scored run.
    pub cost: Option<Estimate>,
    /// Tokens a run.
    pub tokens: Option<Estimate>,
    /// Milliseconds of a run: the median, and what nine of ten runs do not exceed.
    pub duration_ms: Option<(f64, f64)>,
}

/// The rows of a sweep.
#[derive(Debug, Clone)]
pub struct SweepTable {
    /// The names of the labels.
    pub columns: Vec<String>,
    /// The rows, in the order of the plan.
    pub rows: Vec<TableRow>,
}

/// The score of a run by its status: 1 if it COMPLETED, 0 if it FAILED with a result of its own; otherwise the reason why it
/// has none.
///
/// # Errors
/// The reason.
pub fn completion_score(line: Option<&ResultLine>) -> Result<f64, String> {
    let Some(line) = line else { return Err("not started".to_owned()) };
    match (line.status, &line.error) {
        (RunStatus::Completed, _) => Ok(1.0),
        (RunStatus::Failed, Some(error)) if is_infrastructure_error(&error.kind) => {
            Err(error.kind.clone())
        }
        (RunStatus::Failed, _) => Ok(0.0),
        (status, _) => Err(status.to_string()),
    }
}

/// What is added up for a row.
#[derive(Default)]
struct RowScores {
    labels: Vec<String>,
    runs: u64,
    missing: BTreeMap<String, u64>,
    scores: BTreeMap<String, Vec<f64>>,
    costs: BTreeMap<String, Vec<f64>>,
    has_unknown_cost: bool,
    tokens: BTreeMap<String, Vec<f64>>,
    durations: Vec<f64>,
}

impl SweepTable {
    /// The rows of a plan, with the score that `score` gives a run. Inputs of one group count as one cluster.
    pub fn new(
        plan: &SweepPlan,
        results: &SweepResults,
        score: impl Fn(&PlannedRun, Option<&ResultLine>) -> Result<f64, String>,
    ) -> Self {
        let columns = find_columns(plan);
        let seed = plan.settings().map_or(0, |settings| {
            u64::from_str_radix(settings.inputs.get(..16).unwrap_or("0"), 16).unwrap_or(0)
        });
        let mut indexes: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        let mut rows: Vec<RowScores> = Vec::new();
        for run in &plan.runs {
            let labels: Vec<String> =
                columns.iter().map(|column| label(plan, run, column)).collect();
            let index = *indexes.entry(labels).or_insert_with_key(|labels| {
                rows.push(RowScores { labels: labels.clone(), ..RowScores::default() });
                rows.len() - 1
            });
            let line = results.lines.get(&run.id);
            rows[index].add(run, line, score(run, line));
        }
        let columns = columns.into_iter().map(|column| match column {
            Column::Agent => "agent".to_owned(),
            Column::Model => "model".to_owned(),
            Column::Param(name) => name,
        });
        Self {
            columns: columns.collect(),
            rows: rows.into_iter().map(|row| row.finish(seed)).collect(),
        }
    }

    /// The table as text.
    pub fn to_text(&self, score_name: &str) -> String {
        let mut cells: Vec<Vec<String>> = Vec::new();
        let mut header = self.columns.clone();
        header.extend([score_name, "of", "USD", "tokens", "time (p50, p90)"].map(str::to_owned));
        cells.push(header);
        for row in &self.rows {
            let mut line = row.labels.clone();
            line.extend([
                row.score.map_or_else(|| "-".to_owned(), |score| describe_estimate(score, 2)),
                row.describe_coverage(),
                row.cost.map_or_else(String::new, |cost| format!("{:.4}", cost.value)),
                row.tokens
                    .filter(|tokens| tokens.value > 0.0)
                    .map_or_else(String::new, |tokens| format!("{:.0}", tokens.value)),
                row.duration_ms.map_or_else(String::new, |(median, high)| {
                    format!("{}, {}", format_duration(median as u64), format_duration(high as u64))
                }),
            ]);
            cells.push(line);
        }
        let mut text = align(&cells);
        for row in self.rows.iter().filter(|row| row.scored < row.runs) {
            let (low, high) = row.bounds;
            text.push_str(&format!(
                "incomplete: {}: {low:.2} if what is missing were 0, {high:.2} if it were 1\n",
                row.labels.join(" ")
            ));
        }
        text
    }
}

impl RowScores {
    fn add(&mut self, run: &PlannedRun, line: Option<&ResultLine>, score: Result<f64, String>) {
        self.runs += 1;
        let score = match score {
            Ok(score) => score,
            Err(reason) => {
                *self.missing.entry(reason).or_default() += 1;
                return;
            }
        };
        let cluster = run.group.as_deref().unwrap_or(&run.input).to_owned();
        self.scores.entry(cluster.clone()).or_default().push(score);
        let Some(line) = line else { return };
        match line.cost_usd {
            Some(cost) => self.costs.entry(cluster.clone()).or_default().push(cost),
            None => self.has_unknown_cost = true,
        }
        let tokens = line.usage.input_tokens + line.usage.output_tokens;
        self.tokens.entry(cluster).or_default().push(tokens as f64);
        self.durations.push(line.duration_ms as f64);
    }

    fn finish(self, seed: u64) -> TableRow {
        let clusters = |map: BTreeMap<String, Vec<f64>>| map.into_values().collect::<Vec<_>>();
        let all: Vec<f64> = self.scores.values().flatten().copied().collect();
        let sum: f64 = all.iter().sum();
        let missing: u64 = self.missing.values().sum();
        let runs = self.runs.max(1) as f64;
        let quantiles = quantile(&self.durations, 0.5).zip(quantile(&self.durations, 0.9));
        TableRow {
            labels: self.labels,
            runs: self.runs,
            scored: all.len() as u64,
            missing: self.missing,
            score: rate(&clusters(self.scores)),
            bounds: (sum / runs, (sum + missing as f64) / runs),
            cost: if self.has_unknown_cost { None } else { amount(&clusters(self.costs), seed) },
            tokens: amount(&clusters(self.tokens), seed),
            duration_ms: quantiles,
        }
    }
}

impl TableRow {
    /// On how many runs the row rests, and what the others lack: `47 of 50, 3 llm`.
    pub fn describe_coverage(&self) -> String {
        let mut text = format!("{} of {}", self.scored, self.runs);
        for (reason, count) in &self.missing {
            text.push_str(&format!(", {count} {reason}"));
        }
        text
    }
}

/// An estimate with its interval: `0.62 [0.51, 0.72]`.
pub fn describe_estimate(estimate: Estimate, digits: usize) -> String {
    match estimate.interval {
        Some(interval) => format!(
            "{:.digits$} [{:.digits$}, {:.digits$}]",
            estimate.value, interval.low, interval.high
        ),
        None => format!("{:.digits$}", estimate.value),
    }
}

/// What distinguishes rows.
enum Column {
    Agent,
    Model,
    Param(String),
}

/// The agent, the model if there are several, and the parameters.
fn find_columns(plan: &SweepPlan) -> Vec<Column> {
    let mut models = BTreeSet::new();
    let mut params = BTreeSet::new();
    for run in &plan.runs {
        if !models.contains(run.model.as_ref()) {
            models.insert(run.model.to_string());
        }
        for name in run.params.keys() {
            if !params.contains(name) {
                params.insert(name.clone());
            }
        }
    }
    let mut columns = vec![Column::Agent];
    if models.len() > 1 {
        columns.push(Column::Model);
    }
    columns.extend(params.into_iter().map(Column::Param));
    columns
}

fn label(plan: &SweepPlan, run: &PlannedRun, column: &Column) -> String {
    match column {
        Column::Agent => agent_label(plan, run),
        Column::Model => run.model.to_string(),
        Column::Param(name) => match run.params.get(name) {
            None => "-".to_owned(),
            Some(Json::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        },
    }
}

/// The agent's name in the sweep; with its tree where the sweep has several agents of that name, because it changed.
pub fn agent_label(plan: &SweepPlan, run: &PlannedRun) -> String {
    let tree = |header: &crate::plan::PlanHeader| header.agents.get(run.agent.as_ref()).cloned();
    let Some(own_tree) = plan.header_of(run).and_then(tree) else {
        return run.agent.to_string();
    };
    let is_one = plan.headers.iter().filter_map(tree).all(|other| other == own_tree);
    if is_one {
        run.agent.to_string()
    } else {
        format!("{}@{}", run.agent, own_tree.get(..8).unwrap_or(&own_tree))
    }
}

/// Lines whose cells are below each other.
fn align(cells: &[Vec<String>]) -> String {
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for (column, cell) in cells.iter().flat_map(|line| line.iter().enumerate()) {
        widths[column] = widths[column].max(display_width(cell));
    }
    // A column without any value but its name is left out.
    let is_empty = |column: usize| {
        cells.iter().skip(1).all(|line| line.get(column).is_none_or(String::is_empty))
    };
    let mut text = String::new();
    for line in cells {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate().filter(|(column, _)| !is_empty(*column)) {
            row.push_str(cell);
            row.push_str(&" ".repeat(widths[column] - display_width(cell) + 2));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}
