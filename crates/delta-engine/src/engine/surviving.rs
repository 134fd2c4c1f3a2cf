//! Calls of tools with `survive`: a holder runs the command, and a process that ends with the engine stands for it here.
//!
//! So its limits, live output, record and result are as for every call. When the engine is gone, the holder and the command
//! are not: the next process settles the call by waiting for them, as a call that it had started itself.

use super::execute::{ApprovedCall, DecidedCall, StartingCall};
use super::mcp_holders::hand_over_config;
use super::{Engine, EngineError};
use delta_agent::tool::invocation::ToolInvocation;
use delta_base::durable;
use delta_base::json::to_json;
use delta_base::signal::CancelToken;
use delta_base::time::Timestamp;
use delta_process::{
    self as process, HeldCallMark, LaunchContext, LeftProcesses, OutputCapture, ProcessEnd,
    ProcessResult, RunMark, ServiceProcess, own_program,
};
use delta_run::record::surviving_call::{
    self, HOLDER_READY, HolderOrder, SurvivingCall, SurvivingCommand, SurvivingEnd, SurvivingState,
    UnreachableHolder,
};
use delta_run::run::{Run, RunNotice};
use delta_run::state::PendingCall;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much longer than the timeout, which the holder keeps, a call may take before the engine ends it.
const HOLDER_PATIENCE: Duration = Duration::from_secs(15);
/// How long the end of a run waits for the end of commands, which have 5 s.
const END_PATIENCE: Duration = Duration::from_secs(6);
const END_INTERVAL: Duration = Duration::from_millis(20);
/// The exit code of a command that cannot be executed.
const NOT_EXECUTABLE: i32 = 126;

/// What holds the commands of this process.
#[derive(Debug, Default)]
pub(super) struct HeldCommands {
    /// The holders, by the id of the call.
    holders: BTreeMap<String, ServiceProcess>,
    /// The calls whose results are recorded, and not yet durable.
    recorded: Vec<SurvivingCall>,
}

/// A call whose command outlives the engine.
pub(super) struct HeldCall {
    call: SurvivingCall,
    command: SurvivingCommand,
    run_dir: PathBuf,
    /// The epoch of this process.
    epoch: u32,
    program: PathBuf,
    argv: Vec<String>,
    /// Whether an earlier process has started it.
    is_resumed: bool,
}

impl HeldCall {
    /// Writes what the holder of the call needs, unless the call has one.
    pub(super) fn prepare(
        run: &Run,
        approved: &ApprovedCall<'_>,
        started_at: Timestamp,
    ) -> Result<Self, EngineError> {
        let ApprovedCall { call, invocation, approval, .. } = approved;
        let is_resumed = approved.is_resumed();
        let resumed = SurvivingCall::find(&run.dir, &call.id).filter(|_| is_resumed);
        let command = SurvivingCommand {
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            argv: invocation.argv.clone(),
            stdin: invocation.stdin.clone(),
            approval: approval.clone(),
            started_at,
        };
        let held_call = match resumed {
            Some(held_call) => held_call,
            None => SurvivingCall::create(&run.dir, &command)?,
        };
        let dir = held_call.dir().to_string_lossy().into_owned();
        let epoch = run.epoch();
        let argv = ["delta", "tool", "await", &dir, &epoch.to_string()].map(str::to_owned);
        Ok(Self {
            call: held_call,
            command,
            run_dir: run.dir.clone(),
            epoch,
            program: own_program(),
            argv: argv.to_vec(),
            is_resumed,
        })
    }

    /// The program that stands for the command.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Its command line.
    pub(super) fn argv(&self) -> &[String] {
        &self.argv
    }

    /// How long it may take for a command with this timeout.
    pub(super) fn patience(timeout: Duration) -> Duration {
        timeout.saturating_add(HOLDER_PATIENCE)
    }

    /// What became of the command when what stands for it has ended with `result`.
    pub(super) fn outcome(&self, mut result: Box<ProcessResult>) -> HeldOutcome {
        let is_interrupted = matches!(
            result.end,
            ProcessEnd::Cancelled | ProcessEnd::OutOfTime | ProcessEnd::ForMessage
        );
        let is_waiting = self.call.is_at_work();
        match self.call.end() {
            Some(end) if self.has_all_output(&result) => {
                end.add_to(&mut result, is_interrupted);
                HeldOutcome::Ended(result)
            }
            // The command may have done something, and nothing can wait for it.
            _ if matches!(result.end, ProcessEnd::NotStarted { .. }) => HeldOutcome::Abandoned,
            Some(_) => HeldOutcome::Unsettled,
            // The holder does not keep the timeout: it is stopped, or has no processor.
            None if is_waiting && result.end == ProcessEnd::TimedOut => {
                HeldOutcome::Stalled(result)
            }
            None if is_waiting => {
                if is_interrupted && !surviving_call::leaves_commands(&self.run_dir, self.epoch) {
                    // The end of the run warns of a holder that cannot be reached.
                    let _ = self.call.stop();
                }
                HeldOutcome::Unsettled
            }
            // The holder was killed, and the command with it, or there was no room for its end.
            None => HeldOutcome::Lost,
        }
    }

    /// Whether everything that the command has printed was copied.
    fn has_all_output(&self, result: &ProcessResult) -> bool {
        let is_copied = |stream: &str, copied: &OutputCapture| {
            let length = durable::metadata_no_follow(&self.call.output_path(stream));
            length.map_or(true, |metadata| metadata.len() == copied.bytes)
        };
        // It exits by itself when it has copied everything.
        matches!(result.end, ProcessEnd::Exited(_))
            || is_copied("stdout", &result.stdout) && is_copied("stderr", &result.stderr)
    }

    /// The directory of the call.
    pub(super) fn surviving_call(&self) -> &SurvivingCall {
        &self.call
    }
}

/// What became of a command that outlives the engine.
pub(super) enum HeldOutcome {
    /// It has ended.
    Ended(Box<ProcessResult>),
    /// It has not ended at its timeout, and its holder has not ended it.
    Stalled(Box<ProcessResult>),
    /// It is at work, or what it has printed was not copied: the call stays open, and the next step settles it.
    Unsettled,
    /// Nothing is known of it.
    Lost,
    /// It cannot be waited for, so nothing will be known of it.
    Abandoned,
}

/// Warns that the command of a call is at work, wherever its holder is.
fn warn_of_unreachable(run: &mut Run, held_call: &SurvivingCall, unreachable: UnreachableHolder) {
    let tool = held_call.command().map_or_else(|_| "a tool".to_owned(), |command| command.tool);
    let text = format!("{tool} is at work and could not be ended: {unreachable}");
    run.notify(RunNotice::Warning(&text));
}

impl<'a> Engine<'a> {
    /// Removes what a dead process has left of calls that need nothing more.
    pub(super) fn tidy_held_calls(&self, run: &Run) {
        if !self.agent.tools.iter().any(|tool| tool.survives) {
            return;
        }
        for held_call in SurvivingCall::all(&run.dir) {
            let is_open =
                held_call.command().is_ok_and(|command| run.state().is_requested(&command.call_id));
            if !is_open && !held_call.is_at_work() {
                held_call.remove();
            }
        }
        surviving_call::forget_keep(&run.dir);
    }

    /// Starts the holder of a call that needs one and has none.
    pub(super) fn start_holder(&self, run: &mut Run, starting: &StartingCall<'_>, max_bytes: u64) {
        let Some(held_call) = starting.surviving.as_ref().filter(|held_call| !held_call.is_resumed)
        else {
            return;
        };
        let order = HolderOrder {
            dir: held_call.call.dir().to_owned(),
            command: held_call.command.clone(),
            run_id: run.id.to_string(),
            run_dir: run.dir.clone(),
            program: starting.program.clone(),
            timeout_ms: starting.approved.tool.timeout_ms,
            max_bytes,
            excerpt_bytes: starting.approved.tool.max_output_bytes,
            secrets: self.environment.secrets().values().to_vec(),
        };
        match self.hand_over(held_call, &order, &starting.launch) {
            Ok(holder) => {
                let call_id = held_call.command.call_id.clone();
                self.held.borrow_mut().holders.insert(call_id, holder);
            }
            // It may have started the command, whose outcome is unknown then.
            Err(_) if held_call.call.output_path("stdout").exists() => {}
            Err(reason) => {
                let end = ProcessEnd::NotStarted { code: NOT_EXECUTABLE, reason };
                let end = SurvivingEnd::new(end, Duration::ZERO, LeftProcesses::default());
                // Without the file, the outcome counts as unknown.
                if let Err(error) = held_call.call.write_end(&end) {
                    run.notify(RunNotice::Warning(&error.to_string()));
                }
            }
        }
    }

    /// Starts a holder, which has its order and holds its call when this returns.
    fn hand_over(
        &self,
        held_call: &HeldCall,
        order: &HolderOrder,
        launch: &LaunchContext,
    ) -> Result<ServiceProcess, String> {
        let dir = held_call.call.dir().to_string_lossy();
        let argv = ["delta", "tool", "hold", &dir].map(str::to_owned);
        let mut holder = ServiceProcess::start_surviving(&argv, &held_call.program, launch)?;
        let line = format!("{}\n", to_json(order));
        match hand_over_config(&mut holder, line.as_bytes(), HOLDER_READY, &self.cancel) {
            Ok(()) => {
                holder.stdin = None;
                Ok(holder)
            }
            Err(error) => {
                holder.end_after(Duration::ZERO, &self.cancel);
                Err(error.to_string())
            }
        }
    }

    /// Settles a call whose engine is gone and whose command may not be: takes its result, which may have to be waited for.
    /// Returns false if nothing is known of it; no process of it is left then.
    pub(super) fn resume_held_call(
        &self,
        run: &mut Run,
        call: &PendingCall,
        held_call: &SurvivingCall,
    ) -> Result<bool, EngineError> {
        let tool = self.agent.tool(&call.tool);
        if held_call.state() != SurvivingState::Lost
            && let (Some(tool), Ok(command)) = (tool, held_call.command())
        {
            let SurvivingCommand { argv, stdin, approval, .. } = command;
            let invocation = ToolInvocation { argv, stdin };
            let call = call.clone();
            let approved = ApprovedCall { call, tool, invocation, arguments: None, approval };
            self.execute_calls(run, vec![DecidedCall::Start(Box::new(approved))])?;
            return Ok(true);
        }
        self.end_held_call(run, &call.id, held_call);
        Ok(false)
    }

    /// Ends everything of a call about which nothing more can be found out.
    pub(super) fn end_held_call(&self, run: &mut Run, call_id: &str, held_call: &SurvivingCall) {
        // The lock file may be gone, and the holder not.
        if let Some(mut holder) = self.held.borrow_mut().holders.remove(call_id) {
            holder.end_after(Duration::ZERO, &self.cancel);
        }
        if let Err(unreachable) = held_call.kill() {
            warn_of_unreachable(run, held_call, unreachable);
        }
        let run_dir = run.dir.to_string_lossy();
        let marks = [("RUN_DIR", &*run_dir), ("DELTA_CALL_ID", call_id)];
        let mark = HeldCallMark::new(RunMark::new(run.id.as_str(), &run.dir), held_call.name());
        process::kill_call_processes(&marks, mark, &self.cancel);
    }

    /// Asks all commands that are at work to end, unless they are to be kept, and waits for a moment until they have.
    pub(super) fn end_held_calls(&self, run: &mut Run, cancel: &CancelToken) {
        let has_calls = self.agent.tools.iter().any(|tool| tool.survives);
        if !has_calls || surviving_call::leaves_commands(&run.dir, run.epoch()) {
            return;
        }
        let mut calls = SurvivingCall::all_at_work(&run.dir);
        calls.retain(|held_call| match held_call.stop() {
            Ok(()) => true,
            Err(unreachable) => {
                warn_of_unreachable(run, held_call, unreachable);
                false
            }
        });
        let deadline = Instant::now() + END_PATIENCE;
        while calls.iter().any(SurvivingCall::is_at_work)
            && Instant::now() < deadline
            && !cancel.wait(END_INTERVAL)
        {}
    }

    /// What became of a call is recorded; its directory is needed until that is durable.
    pub(super) fn note_held_result(&self, held_call: SurvivingCall) {
        self.held.borrow_mut().recorded.push(held_call);
    }

    /// Removes the directories of calls whose results are durable.
    pub(super) fn remove_held_calls(&self, run: &Run) {
        let recorded = std::mem::take(&mut self.held.borrow_mut().recorded);
        if !recorded.is_empty() {
            recorded.iter().for_each(SurvivingCall::remove);
            surviving_call::remove_empty_dir(&run.dir);
        }
    }
}
