//! How far a sweep is: what `delta sweep status` prints.

use crate::formats::host_grant::{BudgetUse, HostGrant, UsdDigits, held_texts};
use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::{ResultLine, SweepResults};
use delta_base::id::RunId;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::text::text_width::{clip_to_width, display_width};
use delta_base::time::{Timestamp, format_duration};
use delta_run::event::{RunStatus, round_usd};
use delta_run::sweep::sweep_dir::{SweepBudget, SweepDir};
use delta_run::sweep::sweep_worker::WorkerState;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The most kinds of failures in the text.
const MAX_SHOWN_FAILURES: usize = 5;
/// The most characters of a message by which failures are grouped.
const MAX_MESSAGE_CHARS: usize = 100;
/// The cells of the bar.
const BAR_CELLS: u64 = 20;

/// How far a sweep is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SweepSummary {
    /// The name of the sweep.
    pub name: String,
    /// The number of planned runs.
    pub runs: u64,
    /// How many of them are settled.
    pub settled: u64,
    /// How many have COMPLETED.
    pub completed: u64,
    /// How many have FAILED, also if they are to be tried again.
    pub failed: u64,
    /// How many are INTERRUPTED, and no process works on them.
    pub interrupted: u64,
    /// How many wait for a person.
    pub waiting: u64,
    /// How many have no result line, and no process works or worked on them.
    pub not_started: u64,
    /// How many processes work on.
    pub running: u64,
    /// On how many hosts.
    pub hosts: u64,
    /// How many were worked on by processes that give no sign of life.
    pub silent: u64,
    /// The mean time of a settled run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<u64>,
    /// The time until all is settled that does not wait for a person, if the rest is like what is settled; absent where
    /// nothing is worked on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// USD of all runs with a line, with the runs below them; absent where no cost is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// USD of the budget that calls have used, or may have used, the ones of judges too; absent without a limit of cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_usd: Option<f64>,
    /// The same in tokens; absent without a limit of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_tokens: Option<u64>,
    /// What hosts have of the budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<HostGrant>,
    /// The limit of the sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<f64>,
    /// The limit of the sweep in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The time that runs worked.
    pub duration_ms: u64,
    /// The part of it for which endpoints refused requests because there were too many.
    pub throttled_ms: u64,
    /// Result lines that were torn or changed, and do not count.
    pub damaged_lines: u64,
    /// The failures by kind, the most frequent first.
    pub failures: Vec<FailureGroup>,
}

/// Runs that FAILED in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureGroup {
    /// The type of the error.
    #[serde(rename = "type")]
    pub kind: String,
    /// The first line of its message.
    pub message: String,
    /// How many runs.
    pub runs: u64,
    /// One of them.
    pub example: RunId,
    /// Whether it has records, as far as is known.
    #[serde(skip)]
    pub has_records: bool,
}

impl SweepSummary {
    /// Sums up a plan, the lines of its runs, and its processes.
    pub fn new(
        plan: &SweepPlan,
        results: &SweepResults,
        workers: &[WorkerState],
        now: Timestamp,
    ) -> Self {
        let (live, silent): (Vec<_>, Vec<_>) =
            workers.iter().partition(|worker| !worker.has_ended && !worker.is_silent(now));
        let ids = |workers: &[&WorkerState]| -> HashSet<String> {
            workers.iter().flat_map(|worker| worker.running.iter().cloned()).collect()
        };
        let running_ids = ids(&live);
        let silent_ids = ids(&silent);
        let hosts: BTreeSet<&str> = live.iter().map(|worker| worker.host.as_str()).collect();
        let mut summary = Self::empty(plan, results.damaged);
        let mut groups: BTreeMap<(String, String), FailureGroup> = BTreeMap::new();
        let mut settled_ms = 0;
        let mut timed_runs = 0;
        for run in &plan.runs {
            let line = results.lines.get(&run.id);
            let is_settled = line.is_some_and(|line| line.settled);
            let is_running = !is_settled && running_ids.contains(run.id.as_str());
            let is_silent = !is_settled && !is_running && silent_ids.contains(run.id.as_str());
            summary.running += u64::from(is_running);
            summary.silent += u64::from(is_silent);
            let Some(line) = line else {
                summary.not_started += u64::from(!is_running && !is_silent);
                continue;
            };
            summary.add_line(line, is_running || is_silent);
            if line.settled && line.answers.is_none() {
                settled_ms += line.duration_ms;
                timed_runs += 1;
            }
            if line.status == RunStatus::Failed {
                add_failure(&mut groups, line);
            }
        }
        summary.hosts = hosts.len() as u64;
        summary.failures = groups.into_values().collect();
        summary.failures.sort_by(|a, b| b.runs.cmp(&a.runs).then_with(|| a.kind.cmp(&b.kind)));
        summary.run_ms = settled_ms.checked_div(timed_runs);
        let jobs: u64 = live.iter().map(|worker| worker.jobs as u64).sum();
        // A run that waits for a person is not worked on.
        let left = summary.runs - summary.settled - summary.waiting;
        let is_working = summary.running > 0 && left > 0 && jobs > 0;
        if let (Some(run_ms), true) = (summary.run_ms, is_working) {
            summary.eta_ms = Some(run_ms * left / jobs.min(left));
        }
        summary
    }

    /// Adds what the hosts have of the budget, and have used of it.
    #[must_use]
    pub fn with_grants(mut self, grants: Vec<HostGrant>) -> Self {
        let used = BudgetUse::sum(&grants);
        self.used_usd = self.max_cost.map(|_| used.usd);
        self.used_tokens = self.max_tokens.map(|_| used.tokens);
        self.grants = grants;
        self
    }

    fn empty(plan: &SweepPlan, damaged_lines: u64) -> Self {
        let settings = plan.settings();
        Self {
            name: settings.map(|settings| settings.name.clone()).unwrap_or_default(),
            runs: plan.runs.len() as u64,
            max_cost: settings.and_then(|settings| settings.budget.max_cost),
            max_tokens: settings.and_then(|settings| settings.budget.max_tokens),
            damaged_lines,
            ..Self::default()
        }
    }

    /// Adds a line. A run that a process works on, or worked on when it was last seen, is counted as such alone.
    fn add_line(&mut self, line: &ResultLine, has_process: bool) {
        self.settled += u64::from(line.settled);
        if line.answers.is_none() {
            self.duration_ms += line.duration_ms;
            self.throttled_ms += line.throttled_ms;
        }
        if let Some(cost) = line.cost_usd {
            self.cost_usd = Some(round_usd(self.cost_usd.unwrap_or_default() + cost));
        }
        match line.status {
            _ if has_process => {}
            RunStatus::Completed => self.completed += 1,
            RunStatus::Failed => self.failed += 1,
            RunStatus::WaitingForInput => self.waiting += 1,
            RunStatus::Interrupted | RunStatus::Running => self.interrupted += 1,
        }
    }

    /// The summary for a terminal of `width` columns. `dir` is the path of the sweep, quoted for a shell.
    pub fn to_text(&self, width: usize, dir: &str) -> String {
        let mut text = String::new();
        let mut add = |pieces: Vec<String>| {
            for line in flow(pieces, width) {
                text.push_str(&line);
                text.push('\n');
            }
        };
        add(self.progress_pieces());
        add(self.status_pieces());
        add(self.cost_pieces());
        for group in self.failures.iter().take(MAX_SHOWN_FAILURES) {
            let message = strip_terminal_controls(&group.message);
            let line = format!("{:>4}  {}: {message}", group.runs, group.kind);
            let id = &group.example;
            let workspace = SweepDir::new(dir).workspace(id);
            text.push_str(&clip_to_width(&line, width));
            text.push_str(&if group.has_records {
                format!("\n      delta show {id} -w {}\n", workspace.display())
            } else {
                format!("\n      {id}\n")
            });
        }
        if self.failures.len() > MAX_SHOWN_FAILURES {
            text.push_str(&format!(
                "      ... and {} more kinds\n",
                self.failures.len() - MAX_SHOWN_FAILURES
            ));
        }
        text
    }

    fn progress_pieces(&self) -> Vec<String> {
        let cells = usize::try_from(self.settled * BAR_CELLS / self.runs.max(1)).unwrap_or(0);
        let rest = usize::try_from(BAR_CELLS).unwrap_or(0).saturating_sub(cells);
        let mut pieces = vec![
            format!("{} of {} finished", self.settled, self.runs),
            format!("[{}{}]", "#".repeat(cells), ".".repeat(rest)),
        ];
        match (self.running, self.hosts) {
            (0, _) => {}
            (running, 1) => pieces.push(format!("running {running}")),
            (running, hosts) => pieces.push(format!("running {running} on {hosts} hosts")),
        }
        match (self.eta_ms, self.run_ms) {
            (Some(eta), Some(run)) => {
                pieces.push(format!(
                    "ETA {} ({} a run)",
                    format_duration(eta),
                    format_duration(run)
                ));
            }
            (None, Some(run)) => pieces.push(format!("{} a run", format_duration(run))),
            _ => {}
        }
        pieces
    }

    fn status_pieces(&self) -> Vec<String> {
        let counts = [
            ("COMPLETED", self.completed),
            ("FAILED", self.failed),
            ("INTERRUPTED", self.interrupted),
            ("waiting for a person", self.waiting),
            ("no sign of life", self.silent),
            ("not started", self.not_started),
            ("damaged lines", self.damaged_lines),
        ];
        counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect()
    }

    fn cost_pieces(&self) -> Vec<String> {
        let budget = SweepBudget { max_cost: self.max_cost, max_tokens: self.max_tokens };
        let used = BudgetUse {
            usd: self.used_usd.unwrap_or_default(),
            tokens: self.used_tokens.unwrap_or_default(),
        };
        let mut pieces = used.texts(&budget);
        let cost = self.cost_usd.filter(|cost| self.max_cost.is_none() && *cost > 0.0);
        pieces.extend(cost.map(|cost| UsdDigits::for_amounts(&[cost]).text(cost)));
        pieces.extend(held_texts(&budget, &self.grants, true));
        let percent = (self.throttled_ms * 100).checked_div(self.duration_ms).unwrap_or(0);
        if percent > 0 {
            pieces.push(format!("throttled {percent} % of the time"));
        }
        pieces
    }
}

fn add_failure(groups: &mut BTreeMap<(String, String), FailureGroup>, line: &ResultLine) {
    let Some(error) = &line.error else { return };
    let message: String =
        error.message.lines().next().unwrap_or_default().chars().take(MAX_MESSAGE_CHARS).collect();
    let group =
        groups.entry((error.kind.clone(), message.clone())).or_insert_with(|| FailureGroup {
            kind: error.kind.clone(),
            message,
            runs: 0,
            example: line.id.clone(),
            has_records: true,
        });
    group.runs += 1;
}

/// Lines of pieces with two spaces between them, none wider than `width` unless a piece is.
fn flow(pieces: Vec<String>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if display_width(line) + 2 + display_width(&piece) <= width => {
                line.push_str("  ");
                line.push_str(&piece);
            }
            _ => lines.push(piece),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_no_wider_than_the_terminal() {
        let pieces = ["a".repeat(30), "b".repeat(30), "c".repeat(30), "d".repeat(90)];
        let lines = flow(pieces.to_vec(), 80);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [62, 30, 90]);
    }
}
