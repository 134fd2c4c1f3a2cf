//! The pool: works on runs of a sweep with a number of child processes.
//!
//! It decides nothing about a run that the run's directory does not say, so any number of pools may work on one sweep, and
//! each can be killed at any time.

use crate::formats::plan::PlannedRun;
use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::ResultLine;
use crate::formats::retry_policy::{Remaining, RetryPolicy};
use crate::planning::plan_reader;
use crate::running::line_writer::open_line_file;
use crate::running::result_reader::ResultReader;
use crate::running::run_standing::{LeftRun, ReplyKind, RunWorkState, look_at_run};
use crate::running::run_starter::RunStarter;
use crate::running::status_painter::StatusPainter;
use delta_base::durable::SharedLineFile;
use delta_base::shell_quote::shell_quote_path;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::time;
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_process::{WorkerErrors, WorkerProcess};
use delta_program::stdio;
use delta_run::event::{RunStatus, SHARED_BUDGET_ERROR};
use delta_run::ownership::owner_process;
use delta_run::sweep::shared_limits::SharedLimits;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::sweep::sweep_worker::{BEAT_INTERVAL, BeatFile};
use delta_words::TierChoice;
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a pool works.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The most runs at a time.
    pub jobs: usize,
    /// How long runs may take to leave in order after a signal.
    pub grace: Duration,
    /// When the slot of the pool ends.
    pub until: Option<Instant>,
    /// How long a run is expected to take; the median of the sweep without it.
    pub per_run: Option<Duration>,
    /// Whether neither single failures nor progress are shown.
    pub quiet: bool,
    /// Files of variables for every run.
    pub env_files: Vec<PathBuf>,
    /// The service tier of the runs; the plan's without it.
    pub tier: Option<TierChoice>,
}

/// Which runs a pass over a queue works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolPass {
    /// All, except for runs that another process works on.
    Unowned,
    /// Runs that never began.
    Unbegun,
    /// All; it waits for runs that another process works on.
    All,
}

/// A run that a child works on.
struct PoolChild {
    index: usize,
    /// The least number that no other child had when it started: its run follows another one of this number.
    job: u32,
    process: WorkerProcess,
}

/// A child that has ended.
struct EndedChild {
    index: usize,
    /// What it reported, unless it printed the result of a run that did not FAIL.
    failure: Option<StartFailure>,
    /// Its last error on stderr.
    last_error: Option<String>,
}

/// Why a child could not begin or continue its run, which the run's directory cannot say.
struct StartFailure {
    text: String,
    /// Other runs of the same agent and model fail in the same way.
    is_config: bool,
}

impl StartFailure {
    fn from_output(output: &[u8]) -> Option<Self> {
        let report: Json = serde_json::from_slice(output).ok()?;
        let error = report.get("error").filter(|_| report["status"] == "FAILED")?;
        let message = error["message"].as_str().unwrap_or_default();
        let help = error["details"].as_str().map(|details| format!("\nhelp: {details}"));
        let text = format!("{message}{}", help.unwrap_or_default());
        Some(Self { text, is_config: error["type"] == "config" })
    }
}

/// Works on the runs of a sweep.
pub struct RunPool<'a> {
    dir: &'a SweepDir,
    plan: &'a SweepPlan,
    policy: RetryPolicy,
    options: PoolOptions,
    pub results: ResultReader,
    writer: SharedLineFile,
    worker: BeatFile,
    starter: RunStarter,
    shared: SharedLimits,
    painter: StatusPainter,
    /// Why the budget of the sweep does not allow a call, in the words of the last run that it stopped.
    pub budget_refusal: Option<String>,
    cancel: CancelToken,
    children: Vec<PoolChild>,
    /// Runs that another process works on, for the last pass.
    deferred: VecDeque<usize>,
    /// How often the child of a run died here.
    deaths: HashMap<usize, u32>,
    /// Why runs of an agent and a model cannot be started.
    broken: BTreeMap<(Arc<str>, Arc<str>), String>,
    /// Why runs are left that cannot be worked on now.
    unresolved: BTreeMap<usize, String>,
    /// The types of errors of which one was reported.
    reported: HashMap<String, u64>,
}

impl<'a> RunPool<'a> {
    /// A pool without children. `cancel` must wake when a child ends: see [`install_pool_cancel`].
    pub fn new(
        dir: &'a SweepDir,
        plan: &'a SweepPlan,
        results: ResultReader,
        policy: RetryPolicy,
        options: PoolOptions,
        shared: SharedLimits,
        cancel: CancelToken,
    ) -> Result<Self, CommandFailure> {
        Ok(Self {
            results,
            writer: open_line_file(&dir.results())?,
            worker: BeatFile::create(dir, options.jobs)?,
            starter: RunStarter::new(
                dir,
                &policy,
                &options.env_files,
                options.tier.unwrap_or_default(),
                shared.variables(),
                &cancel,
            )?,
            shared,
            painter: StatusPainter::new(dir, options.quiet),
            budget_refusal: None,
            children: Vec::new(),
            deferred: VecDeque::new(),
            deaths: HashMap::new(),
            broken: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            reported: HashMap::new(),
            dir,
            plan,
            policy,
            options,
            cancel,
        })
    }

    /// Works on runs until none is left for this pass, or a signal arrives.
    pub fn work(
        &mut self,
        mut queue: VecDeque<usize>,
        pass: PoolPass,
    ) -> Result<(), CommandFailure> {
        let mut has_changed = false;
        loop {
            while self.children.len() < self.options.jobs && self.may_start() {
                let Some(index) = queue.pop_front() else { break };
                self.begin(index, pass)?;
                has_changed = true;
            }
            if self.children.is_empty() {
                return Ok(());
            }
            if self.cancel.is_requested() {
                return self.leave();
            }
            self.worker.state.running = self.running_ids();
            let pause = self.worker.beat(has_changed)?;
            self.painter.paint(self.plan, &self.results.results, &self.worker.state)?;
            self.cancel.wait_for_wake(Some(pause));
            has_changed = false;
            for child in self.reap() {
                has_changed = true;
                let index = child.index;
                if self.finish(child)? {
                    queue.push_back(index);
                }
            }
        }
    }

    /// The runs that other processes worked on when this pool came to them.
    pub fn take_deferred(&mut self) -> VecDeque<usize> {
        std::mem::take(&mut self.deferred)
    }

    fn running_ids(&self) -> Vec<String> {
        self.children.iter().map(|child| self.plan.runs[child.index].id.to_string()).collect()
    }

    /// Whether another run may begin: nothing asks the pool to stop, and the run would end before its slot does.
    pub fn may_start(&self) -> bool {
        if self.cancel.is_requested() {
            return false;
        }
        let Some(until) = self.options.until else { return true };
        let expected = self.options.per_run.unwrap_or_else(|| self.median_duration());
        until.saturating_duration_since(Instant::now()) > expected
    }

    fn median_duration(&self) -> Duration {
        let lines = self.results.results.lines.values();
        let lines = lines.filter(|line| line.settled && line.answers.is_none());
        let mut durations: Vec<u64> = lines.map(|line| line.duration_ms).collect();
        durations.sort_unstable();
        Duration::from_millis(durations.get(durations.len() / 2).copied().unwrap_or(0))
    }

    fn run(&self, index: usize) -> &'a PlannedRun {
        &self.plan.runs[index]
    }

    fn begin(&mut self, index: usize, pass: PoolPass) -> Result<(), CommandFailure> {
        let run = self.run(index);
        if self.results.results.is_settled(&run.id) || self.is_broken(run) {
            return Ok(());
        }
        self.unresolved.remove(&index);
        match look_at_run(self.dir, run, &self.policy, false) {
            RunWorkState::Absent => self.start(index),
            RunWorkState::Working if pass != PoolPass::All => {
                self.deferred.push_back(index);
                Ok(())
            }
            RunWorkState::Died if pass == PoolPass::Unbegun => {
                self.deferred.push_back(index);
                Ok(())
            }
            RunWorkState::Working | RunWorkState::Died => self.start(index),
            RunWorkState::Refused(reason) => {
                self.set_unresolved(index, reason);
                Ok(())
            }
            RunWorkState::Left(left) => {
                // Another pool may have ended the run just now.
                self.results.read_new()?;
                self.record(&left.line)?;
                match left.remaining {
                    Remaining::Work if pass == PoolPass::Unbegun => self.deferred.push_back(index),
                    Remaining::Work => self.start(index)?,
                    Remaining::Nothing => {}
                    Remaining::Answer | Remaining::Unresolved => self.keep_left(index, &left),
                }
                Ok(())
            }
        }
    }

    fn is_broken(&self, run: &PlannedRun) -> bool {
        !self.broken.is_empty() && self.broken.contains_key(&(run.agent.clone(), run.model.clone()))
    }

    fn start(&mut self, index: usize) -> Result<(), CommandFailure> {
        if self.budget_refusal.is_some() {
            return Ok(());
        }
        // Each file in memory is an open one more, and there may be thousands of children.
        let is_last = self.deaths.get(&index).copied().unwrap_or(0) + 1 >= self.policy.attempts;
        let errors = if is_last { WorkerErrors::Memory } else { WorkerErrors::Lost };
        let jobs: HashSet<u32> = self.children.iter().map(|child| child.job).collect();
        let job = (0..).find(|job| !jobs.contains(job)).unwrap_or(0);
        let process = self.starter.start(self.plan, self.run(index), job, errors)?;
        self.children.push(PoolChild { index, job, process });
        Ok(())
    }

    /// The children that have ended.
    fn reap(&mut self) -> Vec<EndedChild> {
        let mut ended_children = Vec::new();
        for position in (0..self.children.len()).rev() {
            // An error means that nothing is known of such a child.
            if !matches!(self.children[position].process.has_ended(), Ok(false)) {
                let PoolChild { index, mut process, .. } = self.children.swap_remove(position);
                let output = process.read_output().unwrap_or_default();
                let errors = process.read_errors().unwrap_or_default();
                ended_children.push(EndedChild {
                    index,
                    failure: StartFailure::from_output(&output),
                    last_error: find_last_error(&errors),
                });
            }
        }
        ended_children
    }

    /// Records what became of the run of a child; returns whether it is to be tried again.
    fn finish(&mut self, child: EndedChild) -> Result<bool, CommandFailure> {
        let EndedChild { index, failure, last_error } = child;
        let run = self.run(index);
        match (look_at_run(self.dir, run, &self.policy, true), failure) {
            (RunWorkState::Left(left), _) => {
                self.worker.state.throttled_ms += left.line.throttled_ms;
                self.worker.state.spent_usd += left.line.cost_usd.unwrap_or(0.0);
                self.record(&left.line)?;
                self.report_failure(&left.line);
                let refusal = left.line.error.as_ref();
                let refusal = refusal.filter(|error| error.kind == SHARED_BUDGET_ERROR);
                match (left.remaining, left.line.status) {
                    (Remaining::Work, RunStatus::Failed) => return Ok(true),
                    (Remaining::Nothing, _) => {}
                    _ if refusal.is_some() => {
                        self.budget_refusal = refusal.map(|error| error.message.clone());
                    }
                    // INTERRUPTED by a signal to the child alone: its sender wants it stopped.
                    _ => self.keep_left(index, &left),
                }
            }
            (RunWorkState::Working, _) => self.deferred.push_back(index),
            (RunWorkState::Refused(reason), _) => self.set_unresolved(index, reason),
            (RunWorkState::Absent, Some(failure)) if failure.is_config => {
                self.broken.insert((run.agent.clone(), run.model.clone()), failure.text);
            }
            (RunWorkState::Absent | RunWorkState::Died, Some(failure)) => {
                self.set_unresolved(index, failure.text);
            }
            (state @ (RunWorkState::Absent | RunWorkState::Died), None) => {
                let deaths = self.deaths.entry(index).or_default();
                *deaths += 1;
                let deaths = *deaths;
                if deaths < self.policy.attempts {
                    return Ok(true);
                }
                let times = if deaths == 1 { "once".to_owned() } else { format!("{deaths} times") };
                let mut reason = format!("its process died {times}");
                if let Some(error) = last_error {
                    reason.push_str(&format!(": {error}"));
                }
                if matches!(state, RunWorkState::Absent) {
                    self.record_unbegun(run, deaths, &reason)?;
                }
                self.set_unresolved(index, reason);
            }
        }
        Ok(false)
    }

    /// Writes the line of a run that has no records, for `status` and `collect`.
    fn record_unbegun(
        &mut self,
        run: &PlannedRun,
        deaths: u32,
        reason: &str,
    ) -> Result<(), CommandFailure> {
        let known = self.results.results.lines.get(&run.id);
        // A line with more attempts counts: the reason may be another one now.
        let before =
            known.filter(|known| known.is_of_unbegun_run()).map_or(0, |known| known.attempts);
        let mut line = ResultLine::for_unbegun_run(run, before + deaths, reason);
        line.host = owner_process::current_process().hostname;
        line.ended_at = time::current_time().to_string();
        self.record(&line)
    }

    /// Writes the line of a run, unless another process has.
    fn record(&mut self, line: &ResultLine) -> Result<(), CommandFailure> {
        let mut line = line.clone();
        if let Some(known) = self.results.results.lines.get(&line.id)
            && !line.supersedes(known)
        {
            if !self.has_begun_again(&line, known) {
                return Ok(());
            }
            line.epoch = known.epoch + 1;
        }
        self.writer.append(&line.to_line())?;
        self.results.results.add(line);
        Ok(())
    }

    /// Whether a line is of a run that lost its directory after `known` was written, and began again: its processes are
    /// numbered from 1, and its line counts nevertheless.
    fn has_begun_again(&self, line: &ResultLine, known: &ResultLine) -> bool {
        if line.ended_at == known.ended_at || line.is_of_unbegun_run() {
            return false;
        }
        // Another pool may have written the known line after the directory was looked at.
        let run = self.plan.runs.iter().find(|run| run.id == line.id);
        let standing = run.map(|run| look_at_run(self.dir, run, &self.policy, true));
        matches!(standing, Some(RunWorkState::Left(left)) if left.line.ended_at == line.ended_at)
    }

    fn keep_left(&mut self, index: usize, left: &LeftRun) {
        let reason = match (left.remaining, &left.line.error) {
            (Remaining::Answer, _) => {
                let id = &left.line.id;
                let command = left.reply.map_or("continue", ReplyKind::command);
                let rest = if left.reply == Some(ReplyKind::Answer) { " TEXT" } else { "" };
                let sweep = shell_quote_path(&self.dir.root);
                format!("it waits for a person: `delta {command} {id} -w {sweep}{rest}`")
            }
            (_, Some(error)) => format!("{}: {}", error.kind, error.message),
            _ => left.line.status.to_string(),
        };
        self.set_unresolved(index, reason);
    }

    fn set_unresolved(&mut self, index: usize, reason: String) {
        self.unresolved.insert(index, reason);
    }

    /// Reports the first failure of each type, which a person wants to see early.
    fn report_failure(&mut self, line: &ResultLine) {
        let Some(error) = line.error.as_ref().filter(|_| line.status == RunStatus::Failed) else {
            return;
        };
        let count = self.reported.entry(error.kind.clone()).or_default();
        *count += 1;
        if *count == 1 && !self.options.quiet {
            self.painter.clear();
            let message = error.message.lines().next().unwrap_or_default();
            stdio::print_error_line(&format!("{} FAILED, {}: {message}", line.id, error.kind));
        }
    }

    /// Interrupts all children, waits until they have left their runs, and writes their lines.
    fn leave(&mut self) -> Result<(), CommandFailure> {
        self.children.iter_mut().for_each(|child| child.process.interrupt());
        let deadline = Instant::now() + self.options.grace;
        let mut is_killed = false;
        while !self.children.is_empty() {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() && !is_killed {
                is_killed = true;
                self.children.iter_mut().for_each(|child| child.process.kill());
            }
            let limit = if is_killed { BEAT_INTERVAL } else { rest };
            self.cancel.wait_for_wake(Some(limit));
            for EndedChild { index, .. } in self.reap() {
                let standing = look_at_run(self.dir, self.run(index), &self.policy, true);
                if let RunWorkState::Left(left) = standing {
                    self.record(&left.line)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the work: gives back what the runs have not used of what this host has of the sweep's budget, and removes what shows
    /// that this process works on the sweep.
    pub fn leave_sweep(&mut self) -> Result<(), CommandFailure> {
        self.painter.clear();
        self.worker.remove();
        Ok(self.shared.give_back()?)
    }

    /// Whether a signal asked the pool to stop.
    pub fn is_stopped(&self) -> bool {
        self.cancel.is_requested()
    }

    /// Why runs of agents and models could not begin.
    pub fn broken_reasons(&self) -> impl Iterator<Item = String> {
        self.broken.iter().map(|((agent, model), reason)| {
            format!("runs of agent `{agent}` with model `{model}` cannot begin: {reason}")
        })
    }

    /// Why single runs are left.
    pub fn unresolved_runs(&self) -> impl Iterator<Item = (&'a PlannedRun, &str)> {
        self.unresolved.iter().map(|(index, reason)| (&self.plan.runs[*index], reason.as_str()))
    }
}

/// The last line of stderr that is an error, or else the last line.
pub fn find_last_error(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines.clone().rfind(|line| line.starts_with("error: "));
    error.or_else(|| lines.next_back()).map(strip_terminal_controls)
}

/// The token of this process for its pools, which signals and the ends of children wake.
pub fn install_pool_cancel() -> Result<CancelToken, CommandFailure> {
    let cancel = cancel::install_cancel()?;
    cancel.wake_on_child().map_err(|error| {
        CommandFailure::config(format!("could not install signal handlers: {error}"), None)
    })?;
    Ok(cancel)
}

/// The directory of a sweep as an absolute path, which children get.
pub fn absolute_dir(path: &Path) -> Result<SweepDir, CommandFailure> {
    let path = std::path::absolute(path)
        .map_err(|source| plan_reader::unreadable_file(path.to_owned(), source))?;
    Ok(SweepDir::new(path))
}
