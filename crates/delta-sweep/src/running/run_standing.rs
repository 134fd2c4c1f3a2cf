//! What became of a run, by its directory: a result line that is missing is made again from it.

use crate::formats::plan::PlannedRun;
use crate::formats::result_line::{AnswerSources, ResultError, ResultLine, ResultUsage};
use crate::formats::retry_policy::{Remaining, RetryPolicy};
use delta_base::id::RunId;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::own_run;
use delta_program::stdio;
use delta_report::run_cost::TreeCost;
use delta_run::event::{RunStatus, round_usd};
use delta_run::journal::{self, JournalError, JournalFold};
use delta_run::ownership::Ownership;
use delta_run::ownership::owner_process::{self, OwnerStatus};
use delta_run::run;
use delta_run::run_result::RunResult;
use delta_run::run_tree::RunTreeTotal;
use delta_run::state::{HumanRequest, RunState};
use delta_run::sweep::packed::{extract_to_read, remove_extracted_runs};
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::Workspace;
use delta_words::WireForm;
use std::path::Path;

/// How a run of a sweep is.
#[derive(Debug)]
pub enum RunWorkState {
    /// It never began.
    Absent,
    /// A process works on it.
    Working,
    /// Its process died.
    Died,
    /// Its process has left it.
    Left(Box<LeftRun>),
    /// Its records cannot be used; the reason.
    Refused(String),
}

/// A run that its process has left.
#[derive(Debug)]
pub struct LeftRun {
    pub line: ResultLine,
    pub remaining: Remaining,
    /// How a person replies to what it waits for.
    pub reply: Option<ReplyKind>,
}

/// The command with which a person replies to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    Answer,
    Approve,
}

impl ReplyKind {
    /// The name of the command.
    pub fn command(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Approve => "approve",
        }
    }
}

/// Looks at the directory of a run. A result that is not sealed is refused, unless a child of this process has just made it.
pub fn look_at_run(
    dir: &SweepDir,
    run: &PlannedRun,
    policy: &RetryPolicy,
    is_own_child: bool,
) -> RunWorkState {
    let workspace = Workspace { root: dir.workspace(&run.id) };
    let run_dir = match workspace.find_run(&run.id) {
        Ok(Some(run_dir)) => run_dir,
        Ok(None) => return look_at_packed_run(dir, run, policy),
        Err(error) => return RunWorkState::Refused(error.to_string()),
    };
    loop {
        let folded = match own_run::fold_with_seals(&run.id, &run_dir) {
            Ok(folded) => folded,
            // The directory exists before the first event does.
            Err(JournalError::NoEvents(_)) => return RunWorkState::Working,
            Err(error) => return RunWorkState::Refused(error.to_string()),
        };
        if folded.state.status != Some(RunStatus::Running) {
            return left_run(run, &run_dir, &folded, policy, is_own_child);
        }
        if !is_dead(&run.id, &run_dir, &folded.state) {
            return RunWorkState::Working;
        }
        // What the process recorded after its journal was read, and before it ended, counts.
        match journal::fold_run_journal(&run_dir) {
            Ok(later) if later.seq == folded.state.seq => return RunWorkState::Died,
            _ => {}
        }
    }
}

/// Looks at a run without a directory: it never began, or it is packed.
fn look_at_packed_run(dir: &SweepDir, run: &PlannedRun, policy: &RetryPolicy) -> RunWorkState {
    let root = match extract_to_read(dir, &run.id) {
        Ok(Some(root)) => root,
        Ok(None) => return RunWorkState::Absent,
        Err(error) => {
            return RunWorkState::Refused(CommandFailure::from(error).message().to_owned());
        }
    };
    let run_dir = Workspace { root }.run_dir(&run.id);
    let state = match own_run::fold_with_seals(&run.id, &run_dir) {
        Ok(folded) => left_run(run, &run_dir, &folded, policy, false),
        Err(error) => RunWorkState::Refused(error.to_string()),
    };
    remove_extracted_runs();
    state
}

fn is_dead(id: &RunId, run_dir: &Path, state: &RunState) -> bool {
    let Some(start) = &state.start else { return false };
    match owner_process::owner_status(&start.process) {
        OwnerStatus::Dead => true,
        OwnerStatus::Alive => false,
        OwnerStatus::OnOtherHost => Ownership::has_died(id, run_dir, start),
    }
}

fn left_run(
    run: &PlannedRun,
    run_dir: &Path,
    folded: &JournalFold,
    policy: &RetryPolicy,
    is_own_child: bool,
) -> RunWorkState {
    let state = &folded.state;
    let has_ended = matches!(state.status, Some(RunStatus::Completed | RunStatus::Failed));
    if has_ended && !is_own_child && !folded.seals.is_result_sealed {
        let reason = "its journal was changed after delta sealed it, or never sealed";
        return RunWorkState::Refused(format!("{reason}; `delta trust` accepts it as it is"));
    }
    if has_ended
        && !is_own_child
        && let Some(cut) = run::find_journal_cut(run_dir, state)
    {
        return RunWorkState::Refused(format!("{cut}; `delta trust` accepts it as it is"));
    }
    let Some(result) = RunResult::from_state(state) else { return RunWorkState::Absent };
    if let Some(note) = folded.seals.accepted_note(&run.id).filter(|_| has_ended) {
        stdio::print_error_line(&note);
    }
    let mut line = ResultLine::for_run(run, result.status);
    // The runs below it are a part of what the run costs.
    let tree = RunTreeTotal::collect(run_dir, state);
    let usage = tree.map_or_else(|| state.usage_summary(), |tree| tree.usage);
    line.error = result.error.map(|error| ResultError::new(error.kind, &error.message));
    line.epoch = state.start.as_ref().map_or(0, |start| start.epoch);
    line.host =
        state.start.as_ref().map(|start| start.process.hostname.clone()).unwrap_or_default();
    line.iterations = result.metrics.iterations;
    line.duration_ms = result.metrics.total_duration_ms;
    line.throttled_ms = result.metrics.throttled_ms;
    line.usage = ResultUsage {
        input_tokens: usage.input_tokens,
        cached_input_tokens: usage.cached_input_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        output_tokens: usage.output_tokens,
    };
    line.cost_usd = usage.cost_usd;
    let cost = TreeCost::read(run_dir, run_dir);
    line.saved_usd = usage.cost_usd.and_then(|_| cost.saved_usd());
    line.cache_breaks = cost.cache_breaks();
    let stored = state.stored_answers;
    line.answers = (stored > 0).then(|| AnswerSources {
        asked: line.iterations.saturating_sub(stored),
        stored,
        saved_usd: state.saved_usd.map(round_usd),
    });
    line.answered_by = answering_models(state);
    line.ended_at = result.metrics.end_time.to_string();
    result.result.iter().for_each(|value| line.set_result(value));
    let kind = line.error.as_ref().map(|error| error.kind.clone());
    if result.status == RunStatus::Failed
        && kind.as_deref().is_some_and(|kind| policy.retries(kind))
    {
        line.attempts = count_attempts(run_dir, policy).max(1);
        // A turn of a script that is an error is an answer, and is not asked for again.
        if kind.as_deref().is_some_and(|kind| !state.failed_with(kind)) {
            line.attempts = line.attempts.max(policy.attempts);
        }
    }
    let remaining = policy.remaining(result.status, kind.as_deref(), line.attempts);
    line.settled = remaining == Remaining::Nothing;
    let reply = state.human_request().map(|request| match request {
        HumanRequest::Question(_) => ReplyKind::Answer,
        HumanRequest::Approval(_) => ReplyKind::Approve,
    });
    RunWorkState::Left(Box::new(LeftRun { line, remaining, reply }))
}

/// The models that an endpoint says have answered, if they are not the one that was asked.
fn answering_models(state: &RunState) -> Vec<String> {
    let llm = state.start.as_ref().and_then(|start| start.config.llm.as_ref());
    let Some(llm) = llm.filter(|llm| llm.provider.as_deref().is_some_and(is_endpoint)) else {
        return Vec::new();
    };
    let models = state.usage.iter().map(|usage| usage.model.clone());
    models.filter(|model| llm.model.as_ref() != Some(model)).collect()
}

fn is_endpoint(provider: &str) -> bool {
    WireForm::parse(provider).is_some()
}

/// How often the run FAILED with an error that is tried again.
fn count_attempts(run_dir: &Path, policy: &RetryPolicy) -> u32 {
    let Ok(contents) = journal::read_run_journal(run_dir) else { return 0 };
    let mut state = RunState::default();
    let mut attempts = 0;
    for event in &contents.events {
        let before = state.status;
        state.apply(event);
        let has_failed = state.status == Some(RunStatus::Failed) && before != state.status;
        let kind = state.error.as_ref().map(|(_, details)| details.kind.as_str());
        attempts += u32::from(has_failed && kind.is_some_and(|kind| policy.retries(kind)));
    }
    attempts
}
