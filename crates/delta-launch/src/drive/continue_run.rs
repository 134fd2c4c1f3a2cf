//! `delta continue`: resumes a run from the state in its journal.
//!
//! This module finds the run, claims it for this process, and decides what the message means. The engine then drives it like
//! a new run.

use crate::drive::drive_agent::lost_journal;
use crate::drive::{conversation, detach, sealer};
use crate::prepare::images::{AttachOptions, attach_images};
use crate::prepare::prepared_agent::PreparedAgent;
use crate::prepare::{observer, run_result};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::durable::{self, FileError};
use delta_base::id::RunId;
use delta_base::redact::Secrets;
use delta_base::shell_quote::shell_quote;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::time::{self, format_duration};
use delta_operator::arguments::budget::{OwnedRun, PastUse};
use delta_operator::arguments::options::{RUN_OPTIONS, RunOptions, show_only};
use delta_operator::arguments::terminal_prompt::InboxExit;
use delta_operator::arguments::{completion_candidates, message};
use delta_operator::failure::{CommandFailure, quote_workspace_of};
use delta_operator::runs::own_run::{
    CHANGED_JOURNAL, EDITED_JOURNAL, check_is_here, check_is_own, fold_journal, fold_own_journal,
    other_owner_failure, other_run_owner, sealed_result,
};
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::run_list;
use delta_operator::{cancel, command_line, state};
use delta_process::{HeldCallMark, RunMark, RunProcessFilter};
use delta_program::stdio;
use delta_run::event::image_file::NewImage;
use delta_run::event::{EngineStart, LeaseKind, Payload, RunStatus};
use delta_run::journal::JournalFold;
use delta_run::journal::seal::SealStatus;
use delta_run::limits::Limits;
use delta_run::ownership::claim::{ClaimPatience, OwnershipError, WatchedOwner};
use delta_run::ownership::owner_process::{self, OwnerStatus};
use delta_run::ownership::{Ownership, run_process};
use delta_run::record::open_call::DeadCall;
use delta_run::record::surviving_call::SurvivingCall;
use delta_run::run::{self, Run, RunNotice, RunObserver};
use delta_run::run_result::RunResult;
use delta_run::state::RunState;
use delta_run::sweep::packed;
use delta_run::workspace::{self, Workspace};
use delta_run::{record, run_tree};
use delta_snapshot::SnapshotStore;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Once;

mod active_run;
mod claimed_stage;
mod ensured_run;
mod process_change;
pub mod received_files;
mod run_agent;
mod run_message;

use claimed_stage::ClaimedStage;
use ensured_run::is_retried;
pub use ensured_run::{AskedAgent, EnsuredTask, RetriedError, ensure_run, settled_result};
pub use run_agent::load_run_agent;
use run_message::AnsweredRequest;
pub use run_message::{MissingMessage, answered_hint};

/// Continue a run
///
/// TEXT is the answer for a run that waits, and the next message of a COMPLETED or FAILED one. An INTERRUPTED run, and one
/// whose endpoint did not answer, need no TEXT. If the endpoint refused the request, correct the cause, then pass `--retry
/// llm`, or change `--model` or `--llm`.
#[derive(Debug, Args)]
#[command(mut_args = show_only(CONTINUE_ARGUMENTS), after_help = RUN_OPTIONS, after_long_help = format!("{RUN_OPTIONS}\n\n{EXAMPLES}"), override_usage = "delta continue [OPTIONS] [RUN] [TEXT]")]
pub struct ContinueArgs {
    /// Run: id, unique prefix or suffix, directory or `last` [default: last]
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(run_list::run_candidates))]
    run_or_text: Option<String>,
    /// Next message, or answer to what the run waits for; `-` reads it from stdin
    ///
    /// A single argument that can be the name of a run, such as `yes`, is RUN: write `delta continue last yes`.
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// Id of the run, as an option
    #[arg(long, value_name = "ID", conflicts_with = "text", value_parser = RunArgument::parse_name, add = ArgValueCandidates::new(run_list::run_candidates))]
    run_id: Option<RunArgument>,
    /// TEXT as an option
    #[arg(short, long, value_name = "TEXT", conflicts_with = "text")]
    message: Option<String>,
    #[command(flatten)]
    attached: AttachOptions,
    /// Print the id of the run when TEXT is durable, and work on it in the background
    #[arg(long, conflicts_with_all = ["verbose", "interactive"])]
    detach: bool,
    /// Only if this is still the number of the run's last event; for servers, whose clients repeat themselves
    #[arg(long, value_name = "SEQ", hide = true)]
    at_event: Option<u64>,
    #[command(flatten)]
    resume: ResumeOptions,
}

/// The options of every command that continues one run.
#[derive(Debug, Clone, Args)]
pub struct ResumeOptions {
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    pub work_dir: PathBuf,
    /// Agent directory, if it has moved
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: Option<PathBuf>,
    /// Answer only the question with this `request_id`, or its first 8 characters; see `delta inbox --json`
    #[arg(long, value_name = "ID", value_parser = run_message::parse_request_id)]
    request_id: Option<String>,
    /// Allow a run whose last process was on another host and cannot be checked
    #[arg(long)]
    force: bool,
    /// Retry the failed step after one of these errors: llm, io, context, length, empty_response, max_iterations
    #[arg(long, value_name = "TYPES", value_delimiter = ',', hide_possible_values = true)]
    retry: Vec<RetriedError>,
    /// Options that `delta run` has too.
    #[command(flatten)]
    pub options: RunOptions,
}

impl ResumeOptions {
    /// Continues a run in `work_dir` with the agent that its journal names.
    pub fn in_conversation(work_dir: &Path, options: &RunOptions) -> Self {
        Self {
            work_dir: work_dir.to_owned(),
            agent: None,
            request_id: None,
            force: false,
            retry: Vec::new(),
            options: options.clone(),
        }
    }
}

impl ContinueArgs {
    /// The run and the text. With an option for one of them, an argument is the other.
    fn run_and_text(&self) -> Result<(RunArgument, Option<&str>), CommandFailure> {
        let first = self.run_or_text.as_deref();
        match (&self.run_id, self.message.as_deref()) {
            (Some(run), None) => Ok((run.clone(), first)),
            (Some(run), message) if first.is_none() => Ok((run.clone(), message)),
            (Some(_), _) => Err(CommandFailure::usage(
                "the run is in `--run-id` and the message in `-m`",
                "remove the argument",
            )),
            (None, message) => {
                RunArgument::split_optional_text(first, self.text.as_deref().or(message))
            }
        }
    }
}

/// What the help shows; `run` has the other options too.
const CONTINUE_ARGUMENTS: &[&str] = &[
    "run_or_text",
    "text",
    "run_id",
    "message",
    "files",
    "detach",
    "work_dir",
    "agent",
    "request_id",
    "force",
    "retry",
];
const EXAMPLES: &str = "\
Examples:
  delta continue                            # the last run here
  delta continue \"now the tests\"            # its next message, or an answer
  delta continue RUN -w ./work \"yes, proceed\"
  delta continue RUN -w ./work - < more.md  # message from a file";

/// Resumes a run and drives it; returns the exit code.
pub fn continue_command(args: &ContinueArgs) -> ExitCode {
    let (run, text) = match args.run_and_text() {
        Ok(parts) => parts,
        Err(failure) => return failure.report(),
    };
    if text.is_none() && !args.attached.is_empty() {
        let message =
            "`-a` attaches files to a message, and the message is missing\n\n  tip: add the text";
        return command_line::print_usage_error::<ContinueArgs>("continue", message);
    }
    if args.detach {
        return detach::detach_command();
    }
    // Read before the run is locked: stdin can take long.
    let message = text.map(message::read_message).transpose();
    let images = args.attached.read(&args.resume.options);
    let may_answer = text.is_some();
    let options = &args.resume.options;
    let converses = text.is_none() && options.takes_input();
    if converses {
        options.conversation.begin_turn();
    }
    let result = continue_with_images(&run, &args.resume, images, may_answer, |id, state| {
        run_message::check_last_event(id, state, args.at_event)?;
        message
    });
    let result = result.map_err(|failure| match args.run_or_text.as_deref() {
        Some(word) if text.is_none() && failure.is_not_found() => {
            let word = shell_quote(word);
            failure.adding_hint(&format!("if it is a message: `delta continue last {word}`"))
        }
        _ => failure,
    });
    if converses {
        return conversation::converse_after(result, &run, &args.resume);
    }
    print_continued_run(result, &run, &args.resume)
}

/// Resumes a run with the answer that `choose_message` takes for its state, and drives it; returns the exit code.
pub fn continue_with(
    run: &RunArgument,
    resume: &ResumeOptions,
    choose_message: impl FnOnce(&RunId, &RunState) -> Result<Option<String>, CommandFailure>,
) -> ExitCode {
    let result = continue_with_images(run, resume, Ok(Vec::new()), true, choose_message);
    print_continued_run(result, run, resume)
}

/// Prints the result of a run that was continued; returns the exit code.
pub fn print_continued_run(
    result: Result<RunResult, CommandFailure>,
    run: &RunArgument,
    resume: &ResumeOptions,
) -> ExitCode {
    let id = run.requested_id().map(|id| id.to_string());
    run_result::print_run_result(result, &resume.options, id)
}

/// Resumes a run with the text of the user.
///
/// # Errors
/// The run could not be resumed.
pub fn continue_with_text(
    run: &RunArgument,
    resume: &ResumeOptions,
    text: String,
) -> Result<RunResult, CommandFailure> {
    continue_with_images(run, resume, Ok(Vec::new()), true, |_, _| Ok(Some(text)))
}

/// Resumes a run in `work_dir` with the answer of the user at the terminal of an inbox to `request_id`; returns the exit code.
pub fn continue_in_inbox(
    run: &RunArgument,
    work_dir: PathBuf,
    request_id: Option<String>,
    exit: &InboxExit,
    message: String,
) -> ExitCode {
    let inbox = Some(exit.clone());
    let options = RunOptions {
        interactive: true,
        no_interactive: false,
        inbox,
        ..RunOptions::new(None, None)
    };
    let resume =
        ResumeOptions { request_id, ..ResumeOptions::in_conversation(&work_dir, &options) };
    continue_with(run, &resume, |_, _| Ok(Some(message)))
}

/// Resumes a run as [`continue_with`] does; the message has these images, and is an answer only if `may_answer` is set.
fn continue_with_images(
    run: &RunArgument,
    resume: &ResumeOptions,
    images: Result<Vec<NewImage>, CommandFailure>,
    may_answer: bool,
    choose_message: impl FnOnce(&RunId, &RunState) -> Result<Option<String>, CommandFailure>,
) -> Result<RunResult, CommandFailure> {
    let images = images?;
    let Some((copy, claimed)) = claim_packed_copy(run, resume) else {
        return find_and_continue(run, resume, &images, may_answer, choose_message);
    };
    // A refused message leaves the run packed.
    let message = choose_packed_message(resume, &copy, &claimed, may_answer, choose_message)
        .map_err(|failure| failure.with_run_id(&copy.id))?;
    drop(claimed);
    packed::remove_extracted_runs();
    find_and_continue(run, resume, &images, may_answer, |_, _| Ok(message))
}

/// Claims a temporary copy of a packed run of a sweep, to look at its state. `None` if the run is not packed, or cannot be
/// claimed: the claim of the run itself then has the reason.
fn claim_packed_copy(
    run: &RunArgument,
    resume: &ResumeOptions,
) -> Option<(LocatedRun, ClaimedRun)> {
    let copy = run.copy_packed(&resume.work_dir).ok()??;
    let claimed = ClaimedRun::claim(&copy, resume.force).ok()?;
    let is_accepted =
        resume.agent.is_some() || check_is_own(&copy.id, &claimed.dir, &claimed.folded).is_ok();
    is_accepted.then_some((copy, claimed))
}

/// The message with which a packed run can be continued.
fn choose_packed_message(
    resume: &ResumeOptions,
    copy: &LocatedRun,
    claimed: &ClaimedRun,
    may_answer: bool,
    choose_message: impl FnOnce(&RunId, &RunState) -> Result<Option<String>, CommandFailure>,
) -> Result<Option<String>, CommandFailure> {
    let answered = AnsweredRequest::new(resume.request_id.as_deref(), may_answer, copy)?;
    answered.check(&copy.id, claimed.state())?;
    let message = choose_message(&copy.id, claimed.state())?;
    claimed.interpret(message.clone(), resume, &copy.workspace_argument)?;
    Ok(message)
}

fn find_and_continue(
    run: &RunArgument,
    resume: &ResumeOptions,
    images: &[NewImage],
    may_answer: bool,
    choose_message: impl FnOnce(&RunId, &RunState) -> Result<Option<String>, CommandFailure>,
) -> Result<RunResult, CommandFailure> {
    let run = run.find(&resume.work_dir)?;
    continue_located_run(resume, &run, images, may_answer, choose_message)
        .map_err(|failure| failure.with_run_id(&run.id))
}

fn continue_located_run(
    resume: &ResumeOptions,
    run: &LocatedRun,
    images: &[NewImage],
    may_answer: bool,
    choose_message: impl FnOnce(&RunId, &RunState) -> Result<Option<String>, CommandFailure>,
) -> Result<RunResult, CommandFailure> {
    let workspace = &run.workspace;
    let options = &resume.options;
    run_message::wait_for_leaving_process(run, options)?;
    let answered = AnsweredRequest::new(resume.request_id.as_deref(), may_answer, run)?;
    let mut claimed = ClaimedRun::claim(run, resume.force)?;
    if resume.agent.is_none() {
        check_is_own(&run.id, &claimed.dir, &claimed.folded)?;
    }
    answered.check(&run.id, claimed.state())?;
    let message = choose_message(&run.id, claimed.state())?;
    let mut payload = claimed.interpret(message, resume, &run.workspace_argument)?;
    attach_images(&mut payload, images)?;
    claimed.enter_stage(workspace, &options.env_files)?;
    let agent = load_run_agent(resume.agent.as_deref(), &claimed.start, options)?;
    let agent = PreparedAgent::new(agent, Some(&workspace.root), options)?;
    let agent = agent.named_by(Some(&run.workspace_argument));
    let cancel = cancel::install_cancel()?;
    store_images(&claimed.dir, images)?;
    claimed.resume(workspace, &agent, options, payload, cancel)
}

fn store_images(run_dir: &Path, images: &[NewImage]) -> Result<(), FileError> {
    images.iter().try_for_each(|image| image.store(run_dir))
}

/// A run that this process owns, with the state from its journal.
pub struct ClaimedRun {
    id: RunId,
    /// The directory of the run.
    pub dir: PathBuf,
    ownership: Ownership,
    folded: JournalFold,
    /// The ENGINE_START of the last process.
    pub start: EngineStart,
    /// Whether the last process died.
    is_orphaned: bool,
    /// What shows that the journal has lost its end.
    cut: Option<String>,
    stage: ClaimedStage,
}

impl ClaimedRun {
    /// Claims the run.
    pub fn claim(run: &LocatedRun, force: bool) -> Result<Self, CommandFailure> {
        let LocatedRun { id, dir, .. } = run;
        let patience = ClaimPatience {
            is_forced: force,
            waits: true,
            notify: Some(&print_wait_note),
            ..ClaimPatience::default()
        };
        let ownership = Ownership::claim_from_dying_owner(id, dir, &patience)
            .map_err(|error| run_in_use_failure(error, id, dir))?;
        let folded = fold_own_journal(id, dir)?;
        Self::new(id, dir.clone(), ownership, folded, Some(force))
    }

    /// Claims a run to send it, also one that was sent before.
    pub fn claim_to_send(run: &LocatedRun) -> Result<Self, CommandFailure> {
        let LocatedRun { id, dir, .. } = run;
        let ownership = Ownership::claim_from_dying_owner(id, dir, &ClaimPatience::default())
            .map_err(|error| run_in_use_failure(error, id, dir))?;
        let folded = fold_own_journal(id, dir)?;
        Self::take_over(id, dir.clone(), ownership, folded, None)
    }

    /// Claims a run whose last process has exited. `force` allows that for a process on another host, which cannot be
    /// checked; it is `None` if the command has no `--force`.
    pub fn new(
        id: &RunId,
        dir: PathBuf,
        ownership: Ownership,
        folded: JournalFold,
        force: Option<bool>,
    ) -> Result<Self, CommandFailure> {
        if folded.state.sent.is_some() {
            // It only repeats the journal.
            let _ = run::repair_metadata(&dir, &folded.state, &ownership);
        }
        check_is_here(id, &dir, &folded.state)?;
        received_files::finish_restore(&dir, &folded.state)?;
        Self::take_over(id, dir, ownership, folded, force)
    }

    fn take_over(
        id: &RunId,
        dir: PathBuf,
        mut ownership: Ownership,
        folded: JournalFold,
        force: Option<bool>,
    ) -> Result<Self, CommandFailure> {
        let state = &folded.state;
        let cut = run::find_journal_cut(&dir, state);
        if cut.is_none() {
            // The metadata only repeats the journal: a write error need not stop the run.
            let _ = run::repair_metadata(&dir, state, &ownership);
        }
        let start = state
            .start
            .clone()
            .ok_or_else(|| CommandFailure::damaged(format!("run {id} never began"), None))?;
        let is_orphaned = state.status == Some(RunStatus::Running);
        let is_forced = force == Some(true);
        ownership.take_over(&start, !is_orphaned, is_forced).map_err(|error| match error {
            OwnershipError::OtherHost { .. } => {
                other_host_failure(&error, id, &dir, force.is_some())
            }
            _ => run_in_use_failure(error, id, &dir),
        })?;
        run_process::remove_stop_request(&start.process, &dir);
        let stage = ClaimedStage::default();
        Ok(Self { id: id.clone(), dir, ownership, folded, start, is_orphaned, cut, stage })
    }

    /// The state that the journal folds to.
    pub fn state(&self) -> &RunState {
        &self.folded.state
    }

    /// What the seals of the run say.
    pub fn seals(&self) -> &SealStatus {
        &self.folded.seals
    }

    /// Whether the journal names nothing but what this operator's engine recorded.
    pub fn is_own_and_unchanged(&self) -> bool {
        self.folded.seals.is_own_and_unchanged()
    }

    /// Whether another operator has sent the run, and no process has worked on it since.
    fn has_come_from_another(&self) -> bool {
        let own_key = state::own_key_text();
        let received = self.state().received.as_ref();
        received.is_some_and(|received| Some(&received.from) != own_key.as_ref())
    }

    /// Interprets a message as [`ClaimedRun::interpret_message`] does; a refusal is a failure of the command.
    fn interpret(
        &self,
        message: Option<String>,
        resume: &ResumeOptions,
        work_dir: &Path,
    ) -> Result<Option<Payload>, CommandFailure> {
        let has_message = message.is_some();
        if !has_message && is_retried(self.state(), &resume.retry) {
            return Ok(None);
        }
        self.interpret_message(message, &resume.options, work_dir).map_err(|missing| {
            // A refused answer leaves the question open, and the run waits as before.
            let is_waiting = has_message && self.state().human_request().is_some();
            let result = RunResult::from_state(self.state()).filter(|_| is_waiting);
            missing.into_failure().with_run_result(result)
        })
    }

    /// The result in the journal; a run that waits has a question and no result.
    fn stored_result(&self) -> Result<Option<RunResult>, CommandFailure> {
        if self.state().status == Some(RunStatus::WaitingForInput) {
            let result = RunResult::from_state(self.state());
            return Ok(result.map(|result| result.with_tree(&self.dir, self.state())));
        }
        sealed_result(&self.id, &self.dir, &self.folded)
    }

    /// Refuses a foreign run, and one whose journal was changed after it was sealed.
    pub fn check_is_own(&self) -> Result<(), CommandFailure> {
        check_is_own(&self.id, &self.dir, &self.folded)?;
        if self.is_own_and_unchanged() {
            return Ok(());
        }
        let Self { id, dir, .. } = self;
        let hint = format!("accept it as it is: `delta trust {id} -w {}`", quote_workspace_of(dir));
        Err(CommandFailure::config(format!("run {id}: {EDITED_JOURNAL}"), hint))
    }

    /// Refuses a run directory of another user, who can change it at any time.
    pub fn check_directory_owner(&self) -> Result<(), CommandFailure> {
        match other_run_owner(&self.dir) {
            None => Ok(()),
            Some(owner) => Err(other_owner_failure(&self.id, &self.dir, owner)),
        }
    }

    /// Opens the run and cleans up after a process that died.
    pub fn open_run(
        self,
        secrets: Secrets,
        observer: RunObserver,
        cancel: &CancelToken,
    ) -> Result<Run, CommandFailure> {
        let Self { id, dir, ownership, folded, start, is_orphaned, cut, stage } = self;
        let is_own = folded.seals.is_own();
        let edit = folded.end.edit();
        dir.parent().map_or(Ok(()), durable::hide_from_git)?;
        workspace::ensure_run_subdirs(&dir)?;
        let (mut run, torn_line_file) =
            Run::open(id, &dir, ownership, secrets, time::current_time, observer, folded)?;
        if let Some(name) = torn_line_file {
            run.notify(RunNotice::Warning(&format!(
                "the journal's last line was incomplete and is not used; it is saved as {name}"
            )));
        }
        if let Some(edit) = edit {
            let reason = if is_own { EDITED_JOURNAL } else { CHANGED_JOURNAL };
            let text = format!("{reason}: {}", edit.describe_lines());
            run.notify(RunNotice::EditedJournal(&text));
        }
        if let Some(cut) = cut {
            run.notify(RunNotice::EditedJournal(&format!("the journal has lost lines: {cut}")));
        }
        if let Some(text) = end_left_processes(&run.id, &dir, cancel) {
            run.notify(RunNotice::Warning(&text));
        }
        if is_orphaned {
            let pid = start.process.pid;
            let iteration = run.state().iterations;
            // Scripts may look for the first line.
            let fate = match owner_process::owner_status(&start.process) {
                OwnerStatus::OnOtherHost if start.lease == Some(LeaseKind::Turns) => {
                    let host = strip_terminal_controls(&start.process.hostname);
                    format!("on host '{host}' was dead or had no heartbeat")
                }
                _ => "no longer exists".to_owned(),
            };
            let text = format!(
                "[Janitor] Cleaned up orphaned run: Process {pid} {fate}\n\
                 the last process of the run died after iteration {iteration}"
            );
            run.notify(RunNotice::Warning(&text));
            run.record(run.state().engine_end(&run.id, RunStatus::Interrupted));
        }
        stage.record_ended_apply(&mut run);
        Ok(run)
    }

    /// Records the ENGINE_START of this process and `payload`, and drives the run.
    pub fn resume(
        mut self,
        workspace: &Workspace,
        agent: &PreparedAgent,
        options: &RunOptions,
        payload: Option<Payload>,
        cancel: CancelToken,
    ) -> Result<RunResult, CommandFailure> {
        self.enter_stage(workspace, &options.env_files)?;
        let stage = self.process_stage(workspace, agent, &cancel)?;
        record::unpack_records(&self.dir)?;
        if !self.folded.end.is_sealed()
            && let Err(missing) = state::seal_key()
        {
            sealer::print_unsealed_note(options, &missing.reason());
        }
        let owned = OwnedRun { id: &self.id, dir: &self.dir, ownership: &self.ownership };
        // A process of this version has recorded its limits, or had none.
        let config = &self.start.config;
        let given_limits = config.limits.or(config.rules.map(|_| Limits::default()));
        let past = PastUse { spent: self.folded.spent, is_continued: true, given_limits };
        let budget = agent.open_budget(&owned, workspace, options, past, &cancel)?;
        // Inner runs write the budget.
        let sandbox = agent.prepare_sandbox(&self.dir, workspace)?;
        let observer = observer::open_run_observer(options, &self.dir, self.state(), &cancel)?;
        let last_start = self.start.clone();
        workspace::ensure_run_subdirs(&self.dir)?;
        let epoch = self.ownership.epoch();
        let agent_copy = agent.copy_agent_files(&self.dir, epoch, Some(&last_start))?;
        let renews_approvals = !self.is_own_and_unchanged() || self.has_come_from_another();
        let mut run = self.open_run(agent.secrets.clone(), observer, &cancel)?;
        let mut start =
            agent.engine_start(&run, workspace, options, agent_copy, sandbox.as_deref());
        let mut approve = start.config.approve.take().unwrap_or_default();
        approve.inherit(last_start.config.approve.as_ref());
        // Others may have written the decisions that it has.
        approve.renew = renews_approvals;
        start.config.approve = approve.recorded();
        start.config.stage = stage;
        start.config.limits = budget.budget.given_limits();
        process_change::report_lost_hooks(&mut run, &last_start, &start, options);
        process_change::report_lost_sandbox(&mut run, &last_start, &start, options);
        if matches!(&payload, Some(Payload::ApprovalDecision(decision)) if decision.approved) {
            process_change::warn_about_moved_call(&mut run, &last_start, &start);
        }
        process_change::report_llm_change(&last_start, &start, options);
        // Looked for before this process starts calls of its own.
        let dead_calls = DeadCall::find_all(&run.dir);
        run.record(Payload::EngineStart(Box::new(start)));
        run.count_dead_calls(&dead_calls)?;
        if let Some(payload) = payload {
            run.record(payload);
        }
        if let Err(error) = run.commit() {
            return lost_journal::end_unbegun_run(&run, error, options);
        }
        dead_calls.iter().for_each(DeadCall::remove);
        if options.detached {
            detach::leave_command(&run)?;
        }
        agent.drive(&mut run, workspace, options, sandbox, budget, cancel)
    }
}

/// Restricts what a restore from the snapshots of a run with these seals changes: only snapshots of the operator give files
/// setuid, and only known signers a `.git`.
pub fn protect_from_snapshots(seals: &SealStatus, store: &mut SnapshotStore) {
    if seals.is_own_and_unchanged() {
        store.keep_special_bits();
    }
    if seals.signer.is_none() {
        stdio::print_error_line("Note: each .git stays as it is: the run has no seal of yours");
        store.leave_git();
    }
}

/// Ends the processes that calls of a run left running. Returns a warning about them. The caller owns the run.
pub fn end_left_processes(id: &RunId, dir: &Path, cancel: &CancelToken) -> Option<String> {
    let mut filter = run_process_filter(id, dir);
    let mut locks = Vec::new();
    for call in SurvivingCall::all(dir) {
        if let Ok(Some(lock)) = call.try_hold()
            && call.end().is_none()
        {
            filter.add_lost_call(HeldCallMark::new(RunMark::new(id.as_str(), dir), call.name()));
            // Until all have ended, no holder that is just starting starts the command.
            locks.push(lock);
        }
    }
    let count = filter.end_processes(cancel);
    let plural = if count == 1 { "" } else { "es" };
    (count > 0)
        .then(|| format!("ended {count} process{plural} that an earlier call had left running"))
}

/// Selects the processes that calls of a run left running, also in the runs that its calls started.
fn run_process_filter(id: &RunId, dir: &Path) -> RunProcessFilter {
    let mut filter = RunProcessFilter::new("DELTA_CALL_ID");
    let mut queue = vec![(id.clone(), dir.to_owned())];
    let mut visited = BTreeSet::new();
    while let Some((id, dir)) = queue.pop() {
        if !visited.insert(dir.clone()) {
            continue;
        }
        filter.add_run(RunMark::new(id.as_str(), &dir), "RUN_DIR", &dir.to_string_lossy());
        for child in run_tree::read_child_runs(&dir) {
            let Some(child_dir) = run_tree::locate_child_run(&dir, &child) else { continue };
            // A process that works on the child run takes care of it.
            if Ownership::probe(&child.run_id, &child_dir).is_ok() {
                queue.push((child.run_id, child_dir));
            }
        }
    }
    filter
}

/// Prints that a process on another host holds the run, and how long this process waits for its heartbeat.
fn print_wait_note(owner: &WatchedOwner) {
    static IS_PRINTED: Once = Once::new();
    IS_PRINTED.call_once(|| {
        let host = strip_terminal_controls(&owner.host);
        let limit = format_duration(u64::try_from(owner.limit.as_millis()).unwrap_or(u64::MAX));
        stdio::print_error_line(&format!(
            "Note: process {} on host '{host}' holds the run; waiting up to {limit} for its heartbeat",
            owner.pid
        ));
    });
}

/// The failure for a run whose last process was on another host, with the command that continues it anyway.
fn other_host_failure(
    error: &OwnershipError,
    id: &RunId,
    dir: &Path,
    has_force: bool,
) -> CommandFailure {
    if has_force {
        let advice = "If you're certain the original process is dead, use --force.";
        return CommandFailure::run_active(format!("{error}\n{advice}"), None);
    }
    let command = format!("delta continue {id} -w {} --force", quote_workspace_of(dir));
    let hint = format!("if you are certain that the original process is dead: `{command}`");
    CommandFailure::run_active(error.to_string(), hint)
}

/// The failure for a run that another process owns, with the command that watches it.
fn run_in_use_failure(error: OwnershipError, id: &RunId, dir: &Path) -> CommandFailure {
    let is_active = error.is_owned();
    let hint = match find_original_workspace(id, dir) {
        Some(original) => format!(
            "it works on the original of this copy: watch it with `delta show {id} -w {} --follow`",
            workspace::quote_workspace(&original)
        ),
        None => {
            let workspace = quote_workspace_of(dir);
            format!(
                "watch it with `delta show {id} -w {workspace} --follow`; `delta tell {id} -w {workspace} TEXT` sends it a message"
            )
        }
    };
    CommandFailure::from(error).with_hint(is_active.then_some(hint))
}

/// The workspace that the journal names, if it is another one that has the run too: the run in `dir` is a copy.
fn find_original_workspace(id: &RunId, dir: &Path) -> Option<PathBuf> {
    let recorded =
        PathBuf::from(fold_journal(id, dir).ok()?.start?.work_dir).canonicalize().ok()?;
    let here = workspace::workspace_of_run(dir)?.canonicalize().ok()?;
    let original = Workspace { root: recorded.clone() };
    (recorded != here && original.find_run(id).ok()?.is_some()).then_some(recorded)
}
