//! `delta run --ensure` of a run that exists: its stored result, or what is left of its work.

use super::{ClaimedRun, store_images};
use crate::drive::next_steps::print_next_steps;
use crate::prepare::images::attach_images;
use crate::prepare::prepared_agent::PreparedAgent;
use clap::ValueEnum;
use delta_agent::agent::Agent;
use delta_base::id::RunId;
use delta_base::redact::{Secrets, redact_answers};
use delta_base::signal::CancelToken;
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_base::url_secrets::url_secrets;
use delta_operator::arguments::message::NewMessage;
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::prices;
use delta_operator::runs::own_run::{
    check_is_own, ensure_hint, fold_with_seals, sealed_result, unreadable_journal_failure,
};
use delta_program::stdio;
use delta_run::event::{EngineStart, IO_ERROR, LLM_ERROR, RunStatus};
use delta_run::journal::{JournalError, JournalFold};
use delta_run::ownership::Ownership;
use delta_run::run_result::RunResult;
use delta_run::state::{RunState, run_metadata};
use delta_run::workspace::{self, Workspace};
use std::path::{Path, PathBuf};

/// An error after which the run can continue without a message: the same step can succeed later, or the LLM is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum RetriedError {
    /// The call of the LLM failed
    Llm,
    /// A file could not be written
    Io,
    /// A source of context.yaml failed
    Context,
    /// The answer was cut off at the token limit
    Length,
    /// The answer was empty
    EmptyResponse,
    /// The task was not finished after the last iteration
    MaxIterations,
}

impl RetriedError {
    /// The type in the journal.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Llm => LLM_ERROR,
            Self::Io => IO_ERROR,
            Self::Context => "context",
            Self::Length => "length",
            Self::EmptyResponse => "empty_response",
            Self::MaxIterations => "max_iterations",
        }
    }
}

/// What `--ensure` makes sure of.
pub struct EnsuredTask<'a> {
    /// The task, as the command line has it.
    pub message: &'a NewMessage,
    /// The errors after which it is tried again.
    pub retry: &'a [RetriedError],
}

/// The result of an existing run, for `run --ensure`: waits for the process that works on the run, and continues the run if
/// that needs no message. `None` if the run never began.
pub fn ensure_run(
    id: &RunId,
    task: &EnsuredTask<'_>,
    workspace: &Workspace,
    agent: &mut PreparedAgent,
    options: &RunOptions,
    cancel: &CancelToken,
) -> Result<Option<RunResult>, CommandFailure> {
    let Some(dir) = workspace.find_run(id)? else { return Ok(None) };
    if let Some(folded) = look_at_ended_run(id, &dir, task.retry) {
        print_notes(id, &folded.state, task, agent, workspace, options)?;
        return take_stored_result(id, &dir, &folded);
    }
    let Some(ownership) = Ownership::wait_and_claim(id, &dir, cancel)? else {
        let message = format!("interrupted while waiting for the process that works on run {id}");
        return Err(CommandFailure::interrupted(message));
    };
    let folded = match fold_with_seals(id, &dir) {
        Err(JournalError::NoEvents(_)) => return Ok(None),
        folded => folded.map_err(|error| unreadable_journal_failure(id, error))?,
    };
    let is_elsewhere = !folded.seals.is_own() || folded.state.sent.is_some();
    if is_elsewhere && is_ended(&dir, &folded, task.retry) {
        print_notes(id, &folded.state, task, agent, workspace, options)?;
        return take_stored_result(id, &dir, &folded);
    }
    check_is_own(id, &dir, &folded).map_err(|failure| failure.with_hint(ensure_hint(id, &dir)))?;
    let claimed = ClaimedRun::new(id, dir, ownership, folded, None)?;
    print_notes(id, claimed.state(), task, agent, workspace, options)?;
    let EnsuredTask { message: task, retry } = task;
    let message = claimed.state().conversation.task().is_empty().then(|| task.text.clone());
    let images = if message.is_some() { &*task.images } else { &[] };
    // A schedule tries again only what its caller allows.
    let is_retried = is_retried(claimed.state(), retry);
    let stays_failed = claimed.state().failed_with(LLM_ERROR) && message.is_none() && !is_retried;
    let next = match message {
        None if is_retried => Ok(None),
        message => claimed.interpret_message(message, options, &workspace.root),
    };
    match next {
        Ok(mut payload) if !stays_failed => {
            attach_images(&mut payload, images)?;
            store_images(&claimed.dir, images)?;
            claimed.resume(workspace, agent, options, payload, cancel.clone()).map(Some)
        }
        next => {
            let result = claimed.stored_result()?;
            result.iter().for_each(|result| print_stored_error(result, claimed.state()));
            if let Err(missing) = next
                && !options.quiet
                && let Some(waiting) = result.as_ref().filter(|result| is_waiting(result))
            {
                stdio::print_error_line(&missing.message);
                print_next_steps(options, &claimed.dir, claimed.state(), waiting);
            }
            Ok(result)
        }
    }
}

fn is_waiting(result: &RunResult) -> bool {
    result.status == RunStatus::WaitingForInput
}

pub(super) fn is_retried(state: &RunState, retry: &[RetriedError]) -> bool {
    retry.iter().any(|error| state.failed_with(error.kind()))
}

/// The journal of a run by turns that has ended: a claim of it would copy the journal.
fn look_at_ended_run(id: &RunId, dir: &Path, retry: &[RetriedError]) -> Option<JournalFold> {
    if Ownership::was_left_by_turns(dir) { fold_ended_run(id, dir, retry) } else { None }
}

/// The result of a run that has ended, where the agent cannot be prepared: what is stored needs no key and no sandbox.
pub fn settled_result(
    id: &RunId,
    workspace: &Path,
    retry: &[RetriedError],
    agent: &AskedAgent,
) -> Result<Option<RunResult>, CommandFailure> {
    let Some(dir) = Workspace::open(workspace)?.find_run(id)? else { return Ok(None) };
    let Some(folded) = fold_ended_run(id, &dir, retry) else { return Ok(None) };
    if let Some(start) = &folded.state.start {
        print_other_agent_note(start, id, agent);
        print_other_model_note(start, id, agent);
    }
    take_stored_result(id, &dir, &folded)
}

/// The result of a run of this operator, or of one whose key is accepted.
fn take_stored_result(
    id: &RunId,
    dir: &Path,
    folded: &JournalFold,
) -> Result<Option<RunResult>, CommandFailure> {
    let result = sealed_result(id, dir, folded)?;
    if let Some(note) = folded.seals.accepted_note(id) {
        stdio::print_error_line(&note);
    }
    result.iter().for_each(|result| print_stored_error(result, &folded.state));
    Ok(result)
}

/// The journal of a run that has ended, and that nothing is left to do about.
fn fold_ended_run(id: &RunId, dir: &Path, retry: &[RetriedError]) -> Option<JournalFold> {
    let folded = fold_with_seals(id, dir).ok()?;
    is_ended(dir, &folded, retry).then_some(folded)
}

/// Whether a run of this operator, or of one whose key is accepted, has ended, and nothing is left to do about it.
fn is_ended(dir: &Path, folded: &JournalFold, retry: &[RetriedError]) -> bool {
    let state = &folded.state;
    let has_ended = matches!(state.status, Some(RunStatus::Completed | RunStatus::Failed));
    let has_task = !state.conversation.task().is_empty();
    // Of a process whose last write failed, the next claim repairs the metadata.
    let is_whole = folded.seals.signer.is_some() && run_metadata::is_metadata_current(dir, state);
    has_ended && has_task && is_whole && !is_retried(state, retry)
}

/// Prints how the run differs from what was asked for, and takes over the prices of its last process.
fn print_notes(
    id: &RunId,
    state: &RunState,
    task: &EnsuredTask<'_>,
    agent: &mut PreparedAgent,
    workspace: &Workspace,
    options: &RunOptions,
) -> Result<(), CommandFailure> {
    let Some(start) = &state.start else { return Ok(()) };
    prices::use_recorded_prices(&mut agent.agent, start)?;
    let recorded_task = state.conversation.task();
    if !recorded_task.is_empty() && recorded_task != agent.secrets.redact(&task.message.text) {
        let summary = truncate_to_line(&strip_terminal_controls(recorded_task), 60);
        options.print_notes(&[format!(
            "Note: run {id} already has another task, which it keeps: {summary}"
        )]);
    }
    print_other_workspace_note(start, id, workspace, options);
    let asked_agent = AskedAgent::new(&agent.agent, options);
    let is_same = !print_other_agent_note(start, id, &asked_agent);
    let has_ended = matches!(state.status, Some(RunStatus::Completed | RunStatus::Failed));
    if has_ended && !is_retried(state, task.retry) {
        print_other_model_note(start, id, &asked_agent);
    }
    let has_same_settings = !print_other_settings_note(start, id, &agent.agent, options);
    if is_same && has_same_settings && has_ended {
        print_changed_agent_note(start, id, agent);
    }
    Ok(())
}

/// Prints a note if the run still exists in another workspace: this one is a copy of it, with valid seals.
fn print_other_workspace_note(
    start: &EngineStart,
    id: &RunId,
    workspace: &Workspace,
    options: &RunOptions,
) {
    let recorded = Path::new(&start.work_dir);
    if recorded == workspace.root {
        return;
    }
    let original = Workspace { root: recorded.to_owned() };
    if original.find_run(id).is_ok_and(|run_dir| run_dir.is_some()) {
        let work_dir = strip_terminal_controls(&start.work_dir);
        options.print_notes(&[format!(
            "Note: run {id} is a copy of a run in {work_dir}: a stored result is from there"
        )]);
    }
}

/// The agent of the command line.
pub struct AskedAgent {
    home: PathBuf,
    name: String,
    /// The model of `--model`.
    model: Option<AskedModel>,
}

struct AskedModel {
    /// The value of the option, as it is recorded.
    option: String,
    provider: &'static str,
    name: String,
}

impl AskedAgent {
    /// The directory and the name of `agent`, and the model that the options name.
    pub fn new(agent: &Agent, options: &RunOptions) -> Self {
        let model = options.model.as_ref().map(|model| AskedModel {
            option: model.to_recorded(),
            provider: agent.llm.provider.name(),
            name: agent.llm.model.clone(),
        });
        Self { home: agent.home.clone(), name: agent.name.clone(), model }
    }
}

/// Prints a note, whatever the verbosity, if `agent` is not the one of the run's last process; returns whether it is another.
fn print_other_agent_note(start: &EngineStart, id: &RunId, agent: &AskedAgent) -> bool {
    let home = Path::new(&start.agent_home);
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let is_same_home = home == agent.home || !home.is_dir();
    if is_same_home && start.agent_name == agent.name {
        return false;
    }
    let name = strip_terminal_controls(&start.agent_name);
    let home = strip_terminal_controls(&start.agent_home);
    stdio::print_error_line(&format!(
        "Note: run {id} is a run of another agent, {name} in {home}: a stored result is from that agent"
    ));
    true
}

/// Prints a note, whatever the verbosity, if `--model` names another model than the run's last process had.
fn print_other_model_note(start: &EngineStart, id: &RunId, agent: &AskedAgent) {
    let config = &start.config;
    let Some(model) = &agent.model else { return };
    let Some((provider, name)) = config.provider().zip(config.model()) else { return };
    // The path of a script depends on the directory in which the command runs.
    let is_same_option = config.model_option() == Some(&*model.option);
    if is_same_option || (provider, name) == (model.provider, &*model.name) {
        return;
    }
    let recorded = match config.model_option() {
        Some(option) => option.to_owned(),
        None => format!("{provider}:{name}"),
    };
    let recorded = strip_terminal_controls(&recorded);
    stdio::print_error_line(&format!(
        "Note: run {id} was made with another model, {recorded}: a stored result is from that model"
    ));
}

/// Prints a note, whatever the verbosity, if the agent's files differ from the files of the run's last process.
fn print_changed_agent_note(start: &EngineStart, id: &RunId, agent: &PreparedAgent) {
    if start.config.kept.as_ref().is_some_and(|copy| agent.has_other_files(copy)) {
        stdio::print_error_line(&format!(
            "Note: the agent has changed since run {id}: its stored result is from the agent as it was"
        ));
    }
}

/// Prints a note if the last process of the run had other values of `--llm` than `agent`; returns whether it had.
fn print_other_settings_note(
    start: &EngineStart,
    id: &RunId,
    agent: &Agent,
    options: &RunOptions,
) -> bool {
    let recorded = start.config.llm_settings();
    // As they are recorded.
    let secrets = Secrets::new(agent.llm.addresses().flat_map(url_secrets));
    let current =
        agent.llm_settings.iter().map(|setting| secrets.redact_string(setting.to_string()));
    let current: Vec<String> = current.collect();
    if recorded == current {
        return false;
    }
    let list = |settings: &[String]| match settings {
        [] => "none".to_owned(),
        settings => strip_terminal_controls(&settings.join(", ")),
    };
    options.print_notes(&[format!(
        "Note: run {id} was made with other values of `--llm`: {}, and now {}",
        list(recorded),
        list(&current)
    )]);
    true
}

/// Prints the error of a run that FAILED earlier, whatever the verbosity: the run itself printed it in another process.
fn print_stored_error(result: &RunResult, state: &RunState) {
    let Some(error) = result.error.as_ref().filter(|_| result.status == RunStatus::Failed) else {
        return;
    };
    let id = result.run_id.as_deref().unwrap_or_default();
    let message = redact_answers(&result.sensitive, error.message.clone());
    stdio::print_error_line(&format!("error: run {id} FAILED earlier: {message}"));
    if let Some(details) = &error.details {
        stdio::print_error_line(&format!("help: {details}"));
    }
    let mut kinds = RetriedError::value_variants().iter().map(|retried| retried.kind());
    let retry_choice = match kinds.find(|kind| state.failed_with(kind)) {
        Some(kind) => format!("the same command with `--retry {kind}`, or "),
        None => String::new(),
    };
    let work_dir = workspace::quote_workspace(Path::new(&result.metadata.workspace_path));
    stdio::print_error_line(&format!(
        "help: to continue it: {retry_choice}`delta continue {id} -w {work_dir} -m MESSAGE`"
    ));
}
