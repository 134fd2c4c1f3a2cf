//! The engine: think, act, observe.
//!
//! One loop for every run: it asks the state for the next step, performs it, records the result,
//! and repeats. The engine never prints, never exits and reads no environment variable. Before
//! every act it commits the events that led to it.

use delta_agent::agent::Agent;
use delta_agent::allowed_calls::OperatorGrants;
use delta_agent::ask_human::HumanPrompt;
use delta_agent::child_environment::ChildEnvironment;
use delta_agent::context::{ContextError, TokenCounter};
use delta_agent::hook::HookPoint;
use delta_agent::run_sandbox::RunSandbox;
use delta_base::durable::FileError;
use delta_base::signal::CancelToken;
use delta_base::time::Clock;
use delta_llm::llm::{LlmError, Provider};
use delta_plan::request_body::{CallDemand, RequestFrame};
use delta_run::budget::ledger::{Budget, LedgerError};
use delta_run::event::{
    CONTEXT_LENGTH_ERROR, ErrorDetails, IO_ERROR, LLM_ERROR, Payload, SHARED_BUDGET_ERROR,
};
use delta_run::interaction_request::InteractionRequest;
use delta_run::ownership::{ActError, ReplacedError};
use delta_run::record::open_call::UnansweredCall;
use delta_run::record::{RequestBody, WrittenRecord};
use delta_run::run::{Run, RunNotice};
use delta_run::run_tree::ChildRunReader;
use delta_run::state::{RunEnding, RunStep};
use delta_snapshot::{SnapshotError, SnapshotStore};
use delta_words::Usage;
use hooks::HookInput;
use mcp_holders::McpHolders;
use message_watch::MessageWatch;
use messages::AfterLook;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;
use surviving::HeldCommands;
use think::FailingCall;

mod act;
mod approve;
mod approved_files;
mod budget;
mod call_results;
mod call_sandbox;
mod disk_limit;
mod execute;
mod hooks;
mod mcp_holders;
mod message_watch;
mod messages;
mod process_outcome;
mod staged_call;
mod surviving;
mod think;

/// Drives the runs of one agent.
pub struct Engine<'a> {
    agent: &'a Agent,
    environment: ChildEnvironment,
    provider: Box<dyn Provider>,
    cancel: CancelToken,
    human: Option<Box<dyn HumanPrompt>>,
    clock: Clock,
    budget: Budget,
    /// The last request and the tokens reported for it.
    last_measured: Option<(String, u64)>,
    /// What is around the messages of the last request, the calls that it demands, and how often the run had changed the model.
    request_frame: Option<(CallDemand, usize, RequestFrame)>,
    /// The last request body, which the next one extends.
    last_body: RequestBody,
    token_counter: TokenCounter,
    /// What was omitted from the last request, in words.
    reported_cuts: Vec<String>,
    /// The usage of answers that no event has recorded yet.
    unrecorded_usage: RefCell<Vec<Option<Usage>>>,
    /// The time that the endpoint throttled the calls since the last THOUGHT, and that they waited for the rate.
    unrecorded_throttling: Cell<Duration>,
    /// The calls that no durable event counts yet.
    open_calls: Vec<UnansweredCall>,
    /// The call that was stopped after an attempt of it had failed.
    failing_call: Option<FailingCall>,
    /// Whether the observer of the run gets answers and output as they arrive.
    is_live: bool,
    /// Where snapshots of the workspace are stored, if they are taken.
    snapshot_store: RefCell<Option<SnapshotStore>>,
    /// The most bytes that the calls of the run may leave in its directory.
    disk_limit: Option<u64>,
    /// The MCP servers, and the processes that hold connections to them.
    mcp_holders: RefCell<McpHolders>,
    /// The most calls that run at the same time.
    max_parallel: usize,
    /// What holds commands that outlive this process.
    held: RefCell<HeldCommands>,
    /// The runs that calls have started.
    child_runs: RefCell<ChildRunReader>,
    /// Whether the commands of tools with `survive` outlive this process.
    lets_survive: bool,
    /// The options that have been named for what a sandbox refused.
    named_hosts: RefCell<BTreeSet<String>>,
    /// What the operator has allowed.
    grants: OperatorGrants,
    /// Whether the run receives messages while it is driven.
    has_mailbox: bool,
    /// Notices messages while a call is at work, if the run receives any.
    message_watch: Option<MessageWatch>,
    /// Whether a message has ended what was at work, and is not received yet.
    is_told: Cell<bool>,
}

/// The error type of a run that a hook ended as FAILED.
const ENDED_BY_HOOK: &str = "ended_by_hook";

/// Why a run cannot continue.
#[derive(Debug, thiserror::Error)]
enum EngineError {
    #[error("interrupted")]
    Cancelled,
    /// A hook ended the run, which its event records.
    #[error("a hook ended the run")]
    EndedByHook,
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process owns the run: nothing is recorded any more.
    #[error(transparent)]
    Replaced(ReplacedError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A budget does not allow the call.
    #[error(transparent)]
    Limit(LedgerError),
    #[error(
        "the calls of this run have left {used} bytes in its directory, and the limit is {limit}"
    )]
    DiskLimit { used: u64, limit: u64 },
    /// With the record of the call.
    #[error("{error}")]
    Llm { error: LlmError, invocation: Box<WrittenRecord> },
    /// The endpoint throttled the call until the time limit of the run.
    #[error("{call}; {limit}")]
    Throttled { call: FailingCall, limit: LedgerError },
    /// The attempts of the call failed until the time limit of the run.
    #[error("{limit}; the last error of the LLM: {call}")]
    LimitOfFailing { call: FailingCall, limit: LedgerError },
    #[error("the LLM has made the same call with the same result {0} times in a row")]
    Loop(u32),
    /// The LLM's reply ends the run; with the record of the call, unless a THOUGHT names it.
    #[error("{message}")]
    Answer { kind: &'static str, message: String, invocation: Option<Box<WrittenRecord>> },
    #[error("the question was not answered: {0}")]
    Human(std::io::Error),
    /// A hook with `on_failure: fail` failed; with its record.
    #[error("{message}")]
    Hook { hook: HookPoint, message: String, record: String },
}

impl From<ActError> for EngineError {
    fn from(error: ActError) -> Self {
        match error {
            ActError::File(error) => Self::File(error),
            ActError::Replaced(error) => Self::Replaced(error),
        }
    }
}

impl EngineError {
    fn is_cancelled(&self) -> bool {
        matches!(
            self,
            Self::Cancelled
                | Self::Context(ContextError::Cancelled)
                | Self::Snapshot(SnapshotError::Cancelled)
        )
    }

    fn is_shared_limit(&self) -> bool {
        matches!(self, Self::Limit(limit) if limit.is_shared_limit())
    }

    fn details(&self) -> ErrorDetails {
        let kind = match self {
            Self::Cancelled | Self::Replaced(_) => "interrupted",
            Self::EndedByHook => ENDED_BY_HOOK,
            Self::File(_) | Self::Snapshot(_) => IO_ERROR,
            Self::Context(_) => "context",
            Self::Limit(_) if self.is_shared_limit() => SHARED_BUDGET_ERROR,
            Self::Limit(_) | Self::LimitOfFailing { .. } | Self::DiskLimit { .. } => "limit",
            Self::Llm { error, .. } if error.is_context_length() => CONTEXT_LENGTH_ERROR,
            Self::Llm { .. } | Self::Throttled { .. } => LLM_ERROR,
            Self::Loop(_) => "loop",
            Self::Answer { kind, .. } => kind,
            Self::Human(_) => "interaction",
            Self::Hook { .. } => "hook",
        };
        let mut details = ErrorDetails { kind: kind.to_owned(), ..ErrorDetails::default() };
        let invocation = match self {
            Self::Llm { invocation, .. } => Some(invocation),
            Self::Answer { invocation, .. } => invocation.as_ref(),
            _ => None,
        };
        if let Some(invocation) = invocation {
            details.invocation = Some(invocation.name.clone());
            details.record_sha256 = Some(invocation.sha256.clone());
        }
        if let Self::Limit(error) = self {
            details.hint = budget::limit_hint(error);
            details.limit_option = budget::limit_option(error);
        }
        if let Self::Loop(_) = self {
            let hint = "continue with `-m` and say what to do instead; `limits.repeats` in agent.yaml sets the limit";
            details.hint = Some(hint.to_owned());
        }
        if let Self::DiskLimit { used, limit } = self {
            let option = disk_limit::higher_disk_limit(*used, *limit);
            details.hint = Some(format!("continue with `-m` and `{option}`"));
            details.limit_option = Some(option);
        }
        if let Self::LimitOfFailing { call, limit } = self {
            details.status = call.status;
            details.hint = budget::limit_hint(limit);
        }
        if let Self::Throttled { call, limit } = self {
            details.status = call.status;
            details.hint = Some(budget::throttled_hint(limit));
        }
        if let Self::Hook { record, .. } = self {
            details.hint =
                Some(format!("see {record} in the run directory for its input and output"));
        }
        if let Self::Llm { error: LlmError::Failed { status, hint, script_turn, .. }, .. } = self {
            details.status = *status;
            details.script_turn = *script_turn;
            details.hint.clone_from(hint);
        }
        details
    }
}

impl<'a> Engine<'a> {
    /// An engine for runs of `agent`.
    pub fn new(
        agent: &'a Agent,
        environment: ChildEnvironment,
        provider: Box<dyn Provider>,
        cancel: CancelToken,
        human: Option<Box<dyn HumanPrompt>>,
        clock: Clock,
        budget: Budget,
    ) -> Self {
        Self {
            agent,
            environment,
            provider,
            cancel,
            human,
            clock,
            budget,
            last_measured: None,
            request_frame: None,
            last_body: RequestBody::default(),
            token_counter: TokenCounter::default(),
            reported_cuts: Vec::new(),
            unrecorded_usage: RefCell::default(),
            unrecorded_throttling: Cell::default(),
            open_calls: Vec::new(),
            failing_call: None,
            is_live: false,
            snapshot_store: RefCell::default(),
            disk_limit: None,
            mcp_holders: RefCell::default(),
            max_parallel: 1,
            held: RefCell::default(),
            child_runs: RefCell::default(),
            lets_survive: true,
            named_hosts: RefCell::default(),
            grants: OperatorGrants::default(),
            has_mailbox: false,
            message_watch: None,
            is_told: Cell::default(),
        }
    }

    /// Passes the text of answers and the output of tools to the observer as they arrive, if `is_live`.
    pub fn with_live_output(mut self, is_live: bool) -> Self {
        self.is_live = is_live;
        self
    }

    /// Runs up to `limit` calls of tools that are `parallel` at the same time.
    pub fn with_parallel_calls(mut self, limit: usize) -> Self {
        self.max_parallel = limit;
        self
    }

    /// Ends the commands of all tools with this process, unless `lets_survive`.
    pub fn with_surviving_calls(mut self, lets_survive: bool) -> Self {
        self.lets_survive = lets_survive;
        self
    }

    /// Starts the calls that the operator has allowed without a question.
    pub fn with_grants(mut self, grants: OperatorGrants) -> Self {
        self.grants = grants;
        self
    }

    /// Receives the messages in the run's mailbox.
    pub fn with_mailbox(mut self) -> Self {
        self.has_mailbox = true;
        self
    }

    /// Limits the bytes that the calls of the run may leave in its directory.
    pub fn with_disk_limit(mut self, limit: Option<u64>) -> Self {
        self.disk_limit = limit;
        self
    }

    /// Takes a snapshot of the workspace at each iteration, if there is a store.
    pub fn with_snapshots(mut self, snapshots: Option<SnapshotStore>) -> Self {
        self.snapshot_store = RefCell::new(snapshots);
        self
    }

    /// Drives `run` until this process has to leave it, and records the ending.
    ///
    /// # Errors
    /// The journal could not be written, or another process owns the run. Nothing was started that the
    /// journal does not contain, and nothing more can be recorded.
    pub fn drive(&mut self, run: &mut Run) -> Result<RunEnding, ActError> {
        run.fence_with(&self.cancel);
        if self.environment.sandbox().is_some_and(RunSandbox::watches_journal) {
            run.watch_journal()?;
        }
        self.tidy_held_calls(run);
        self.warn_of_unstartable_hooks(run);
        for warning in self.environment.limit_warnings() {
            run.notify(RunNotice::Warning(warning));
        }
        for warning in self.environment.sandbox().map(RunSandbox::warnings).unwrap_or_default() {
            run.notify(RunNotice::Warning(&warning));
        }
        let mut cause = None;
        let ending = match self.run_steps(run) {
            Ok(ending) => ending,
            Err(error) if error.is_cancelled() => RunEnding::Interrupted,
            Err(EngineError::Replaced(replaced)) => {
                self.end_started_processes(&self.cancel.for_cleanup());
                return Err(replaced.into());
            }
            Err(error) => {
                let error = self.refusal_behind(run, error);
                self.record_failure(run, &error);
                // The run has done nothing wrong, and continues when the budget allows it.
                let is_interrupted = error.is_shared_limit();
                if let EngineError::File(error)
                | EngineError::Snapshot(SnapshotError::File(error)) = error
                {
                    cause = Some(error);
                }
                if is_interrupted { RunEnding::Interrupted } else { RunEnding::Failed }
            }
        };
        let ending = self.check_deadline(run, ending);
        if let RunEnding::FailedByHook { message } = &ending {
            let details =
                ErrorDetails { kind: ENDED_BY_HOOK.to_owned(), ..ErrorDetails::default() };
            self.record_error(run, message.clone(), details, true);
        }
        if matches!(ending, RunEnding::OutOfIterations) {
            // Not the limit, which a message may have set lower.
            let done = run.state().own_iterations();
            let noun = if done == 1 { "iteration" } else { "iterations" };
            let error_message = format!("the task is not finished after {done} {noun}");
            let hint = "continue with `-m`: the count starts again with each process; `--max-iterations`, or `max_iterations` in agent.yaml, sets the limit"
                .to_owned();
            let kind = "max_iterations".to_owned();
            let error_details = ErrorDetails { kind, hint: Some(hint), ..ErrorDetails::default() };
            self.record_error(run, error_message, error_details, true);
        }
        self.leave_mailbox(run, &ending);
        let ending = self.run_end_hook(run, ending);
        self.end_background_processes(run);
        // A failure only costs the next process time.
        let _ = self.snapshot_store.get_mut().as_ref().map(SnapshotStore::save_index);
        run.record(run.state().engine_end(&run.id, ending.status()));
        match run.commit_act() {
            Ok(()) => {
                self.open_calls.clear();
                self.remove_held_calls(run);
                run.publish_journal();
                Ok(ending)
            }
            // The first error of a lost journal says why it was lost.
            Err(ActError::File(error)) => Err(cause.unwrap_or(error).into()),
            Err(replaced @ ActError::Replaced(_)) => Err(replaced),
        }
    }

    /// The reason of a failure of a hook or of the context: a run that it started may have been stopped by the budget of the
    /// sweep.
    fn refusal_behind(&self, run: &Run, error: EngineError) -> EngineError {
        if !matches!(error, EngineError::Hook { .. } | EngineError::Context(_)) {
            return error;
        }
        self.check_started_runs(run).err().unwrap_or(error)
    }

    /// Records an error that ends the run.
    fn record_failure(&self, run: &mut Run, error: &EngineError) {
        // The failure of on_error is not reported to on_error.
        let runs_hook = !matches!(error, EngineError::Hook { hook: HookPoint::OnError, .. });
        self.record_error(run, error.to_string(), error.details(), runs_hook);
    }

    /// Records an error, and runs on_error if `runs_hook` is set. A failure of that hook changes
    /// nothing.
    fn record_error(&self, run: &mut Run, message: String, details: ErrorDetails, runs_hook: bool) {
        let input = HookInput::for_error(&details.kind, &message);
        let details = ErrorDetails {
            discarded_usage: self.unrecorded_usage.take(),
            throttled_ms: duration_millis(self.unrecorded_throttling.take()),
            ..details
        };
        run.record(Payload::Error { error_message: message, error_details: details });
        if !runs_hook {
            return;
        }
        let iteration = run.state().iterations;
        let cancel = self.cancel.for_cleanup();
        if let Err(error) =
            self.run_notification_hook(run, HookPoint::OnError, iteration, || input, &cancel)
        {
            warn_after_commit(run, &error);
        }
    }

    /// Runs on_run_end, once for every way to leave a run; a stop request does not end it. If it
    /// fails with `on_failure: fail`, a run that would be COMPLETED is FAILED; every other ending
    /// stays.
    fn run_end_hook(&self, run: &mut Run, ending: RunEnding) -> RunEnding {
        let iteration = run.state().iterations;
        let cancel = self.cancel.for_cleanup();
        let mut input = HookInput::default().with_entry("status", &ending.status());
        match (&ending, &run.state().result, &run.state().error) {
            (RunEnding::Completed, Some(result), _) => input = input.with_entry("result", result),
            (
                RunEnding::Failed | RunEnding::FailedByHook { .. } | RunEnding::OutOfIterations,
                _,
                Some((message, details)),
            ) => {
                let error = json!({"type": details.kind, "message": message});
                input = input.with_entry("error", &error);
            }
            (RunEnding::Waiting, ..) => {
                if let Some(interaction) = InteractionRequest::new(run.state()) {
                    input = input.with_entry("interaction", &interaction);
                }
            }
            _ => {}
        }
        match self.run_notification_hook(run, HookPoint::OnRunEnd, iteration, || input, &cancel) {
            Ok(()) => ending,
            Err(error @ EngineError::Hook { .. }) if ending == RunEnding::Completed => {
                self.record_failure(run, &error);
                RunEnding::Failed
            }
            Err(error) => {
                warn_after_commit(run, &error);
                ending
            }
        }
    }

    /// Ends what the run's calls have left running, and names what outlives the run.
    fn end_background_processes(&self, run: &mut Run) {
        self.end_held_calls(run, &self.cancel.for_cleanup());
        self.end_started_processes(&self.cancel.for_cleanup());
        let processes = self.environment.processes();
        let commands = processes.describe_kept(self.environment.secrets());
        if !commands.is_empty() {
            run.notify(RunNotice::Warning(&format!("left running: {}", commands.join(", "))));
        }
    }

    fn run_steps(&mut self, run: &mut Run) -> Result<RunEnding, EngineError> {
        self.restore_measure(run);
        self.open_mailbox(run)?;
        // A hook has ended the run as FAILED, and a message is why this process continues it.
        if matches!(run.state().next_step(), RunStep::End(RunEnding::FailedByHook { .. })) {
            self.receive_all(run)?;
        }
        loop {
            if self.cancel.is_requested() {
                return Ok(RunEnding::Interrupted);
            }
            if self.is_told.take() {
                self.receive_all(run)?;
            }
            let step = run.state().next_step();
            if matches!(step, RunStep::Think { .. } | RunStep::End(_)) {
                // The disk writes while the next request is built.
                run.start_writeback();
                let iteration = run.state().iterations;
                let last = run.state().iteration_ended;
                self.run_iteration_hook(run, HookPoint::OnIterationEnd, iteration, last)?;
                self.take_snapshot(run)?;
            }
            let step = match self.look_before(run, step)? {
                AfterLook::Received => continue,
                AfterLook::Step(step) => step,
            };
            if let (RunStep::Think { .. }, Some(count)) = (&step, run.state().excessive_repeats()) {
                return Err(EngineError::Loop(count));
            }
            match step {
                RunStep::Think { iteration } => match self.think(run, iteration) {
                    // The next step ends the run.
                    Err(EngineError::EndedByHook) => {}
                    // The next step receives the message that ended the request.
                    Err(EngineError::Cancelled) if self.is_told.get() => self.failing_call = None,
                    result => result?,
                },
                RunStep::Act(call) => self.act(run, &call)?,
                RunStep::Settle { call, execution } => {
                    self.settle_dead_call(run, &call, execution.as_deref())?
                }
                RunStep::Wait(question) => {
                    if !self.wait_for_answer(run, &question)? {
                        return Ok(RunEnding::Waiting);
                    }
                }
                RunStep::AskApproval(request) => {
                    if !self.wait_for_approval(run, &request)? {
                        return Ok(RunEnding::Waiting);
                    }
                }
                RunStep::Reply { call, response } => self.record_answer(run, &call, response)?,
                RunStep::EndStagedCall(call) => self.end_staged_call(run, &call)?,
                RunStep::End(ending) => {
                    if matches!(ending, RunEnding::OutOfIterations) {
                        self.check_started_runs(run)?;
                    }
                    return Ok(ending);
                }
            }
        }
    }
}

impl Engine<'_> {
    fn take_snapshot(&mut self, run: &mut Run) -> Result<(), EngineError> {
        if let Some(store) = self.snapshot_store.get_mut() {
            run.take_snapshot(store, &self.environment.vars().cwd, Some(&self.cancel))?;
        }
        Ok(())
    }
}

/// Warns of an error that no longer changes anything. The last commit reports a lost journal.
fn warn_after_commit(run: &mut Run, error: &EngineError) {
    if run.commit().is_ok() {
        run.notify(RunNotice::Warning(&error.to_string()));
    }
}

fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
