//! The results of calls that run at the same time: recorded in call order, each as soon as all before it are.

use super::call_sandbox::SandboxOutcome;
use super::execute::{ApprovedCall, StartingCall, record_unstarted_request, unstarted_request};
use super::hooks::HookInput;
use super::process_outcome::process_outcome;
use super::surviving::HeldOutcome;
use super::{Engine, EngineError, duration_millis};
use delta_agent::hook::HookPoint;
use delta_agent::tool::invocation::CheckedArguments;
use delta_agent::tool::observation::{Observation, read_named_images, render_observation};
use delta_agent::tool::{Tool, ToolOutput};
use delta_base::durable::NewPrivateFile;
use delta_base::json::ExactJson;
use delta_process::{ProcessEnd, ProcessResult};
use delta_run::event::{ActionRequest, ActionResult, CallSandbox, Payload, StartedRun};
use delta_run::record::ToolExecutionRecord;
use delta_run::record::surviving_call::SurvivingCall;
use delta_run::run::Run;
use delta_run::state::PendingCall;
use delta_run::workspace;
use std::collections::VecDeque;

/// The start of the observation of a call whose holder died while the engine waited for it.
const LOST_HOLDER_PREFIX: &str = "[the process that held this call ended without its result";

/// What is known of a call whose outcome is unknown.
pub(super) struct UnknownOutcome<'a> {
    /// The tool; `None` if the agent no longer has it.
    pub(super) tool: Option<&'a Tool>,
    /// Its arguments, if this process has checked them.
    pub(super) arguments: Option<&'a CheckedArguments>,
    /// The record of the call.
    pub(super) execution: Option<&'a str>,
    /// The call, if its command could outlive the engine.
    pub(super) surviving: Option<SurvivingCall>,
    /// Why the outcome is unknown: the start of the observation.
    pub(super) reason: &'static str,
    /// Whether its changes were in the layers of a call with `stage: ask`, and are discarded; otherwise they are in the
    /// workspace. `.delta` is not staged.
    pub(super) has_discarded: bool,
}

/// A call whose result is not recorded yet.
enum UnrecordedCall {
    Refused(PendingCall, String),
    Started {
        /// The index of its command.
        index: usize,
        record: NewPrivateFile,
        /// `None` while it runs.
        outcome: Option<CommandOutcome>,
    },
}

/// How the command of a call ended.
pub(super) enum CommandOutcome {
    Ended(Box<ProcessResult>),
    /// Nothing is known of it.
    Lost,
}

/// Records the results of calls that run at the same time.
pub(super) struct ResultRecorder<'e, 'a> {
    engine: &'e Engine<'a>,
    /// In call order.
    unrecorded: VecDeque<UnrecordedCall>,
    /// The first error.
    error: Option<EngineError>,
    /// The commands that could not be started, and the reasons.
    not_started: Vec<(usize, String)>,
}

impl<'e, 'a> ResultRecorder<'e, 'a> {
    pub(super) fn new(engine: &'e Engine<'a>, calls: usize) -> Self {
        let unrecorded = VecDeque::with_capacity(calls);
        Self { engine, unrecorded, error: None, not_started: Vec::new() }
    }

    pub(super) fn add_refused(&mut self, call: PendingCall, reason: String) {
        self.unrecorded.push_back(UnrecordedCall::Refused(call, reason));
    }

    pub(super) fn add_started(&mut self, index: usize, record: NewPrivateFile) {
        self.unrecorded.push_back(UnrecordedCall::Started { index, record, outcome: None });
    }

    pub(super) fn record_requests(&self, run: &mut Run, starting: &[StartingCall<'_>]) {
        for call in &self.unrecorded {
            let index = match call {
                UnrecordedCall::Refused(call, _) => {
                    record_unstarted_request(run, call, (&call.arguments).into());
                    continue;
                }
                UnrecordedCall::Started { index, .. } => *index,
            };
            let StartingCall { approved, execution, .. } = &starting[index];
            run.record(Payload::ActionRequest(Box::new(ActionRequest {
                coerced: approved.coerced(),
                argv: Some(approved.invocation.argv.clone()),
                execution: Some(execution.clone()),
                approval: approved.approval.clone(),
                sandbox: self.engine.sandbox_name(approved.tool),
                ..unstarted_request(&approved.call, approved.tool_args())
            })));
        }
    }

    /// A command has ended.
    pub(super) fn add_result(&mut self, command: usize, result: CommandOutcome) {
        for call in &mut self.unrecorded {
            match call {
                UnrecordedCall::Started { index, outcome, .. } if *index == command => {
                    *outcome = Some(result);
                    return;
                }
                UnrecordedCall::Refused(..) | UnrecordedCall::Started { .. } => {}
            }
        }
    }

    /// What stands for a command that outlives the engine has ended. Of an unsettled call, one that may run
    /// again, and those after it, nothing is recorded.
    pub(super) fn add_held_result(
        &mut self,
        command: usize,
        outcome: HeldOutcome,
        is_idempotent: bool,
    ) {
        match outcome {
            HeldOutcome::Ended(result) | HeldOutcome::Stalled(result) => {
                self.add_result(command, CommandOutcome::Ended(result));
            }
            HeldOutcome::Lost if is_idempotent => {}
            HeldOutcome::Lost | HeldOutcome::Abandoned => {
                self.add_result(command, CommandOutcome::Lost);
            }
            HeldOutcome::Unsettled => {}
        }
    }

    /// Records what is next in order while other commands run, so that it is known if the engine dies. A hook would hold
    /// up the other commands, so with one every result waits until all have ended.
    pub(super) fn record_early(&mut self, run: &mut Run, starting: &[StartingCall<'_>]) {
        if self.engine.agent.hooks.get(HookPoint::PostToolExecution).is_some() {
            return;
        }
        let count = self.unrecorded.len();
        self.record_next(run, starting);
        let has_more = !self.unrecorded.is_empty() && self.unrecorded.len() < count;
        if has_more && let Err(error) = run.commit() {
            self.give_up(error.into());
        }
    }

    /// Records the rest when all commands have ended.
    pub(super) fn finish(
        mut self,
        run: &mut Run,
        starting: &[StartingCall<'_>],
    ) -> Result<(), EngineError> {
        self.record_next(run, starting);
        if let Some(error) = self.error {
            return Err(error);
        }
        for (index, reason) in self.not_started {
            self.engine.report_tool_not_started(run, &starting[index].approved.call, &reason)?;
        }
        Ok(())
    }

    /// Records the results up to the first call that is running.
    fn record_next(&mut self, run: &mut Run, starting: &[StartingCall<'_>]) {
        while let Some(call) = self.unrecorded.pop_front() {
            match call {
                UnrecordedCall::Refused(call, reason) => record_refusal(run, &call, reason),
                UnrecordedCall::Started { index, record, outcome: Some(outcome) } => {
                    let starting = &starting[index];
                    let recorded = match outcome {
                        CommandOutcome::Ended(result) => {
                            if let ProcessEnd::NotStarted { reason, .. } = &result.end {
                                self.not_started.push((index, reason.clone()));
                            }
                            self.engine.record_result(run, starting, record, &result)
                        }
                        CommandOutcome::Lost => self.engine.record_lost_call(run, starting),
                    };
                    match recorded {
                        Ok(()) => {}
                        // What cannot be written now stays unknown.
                        Err(
                            error @ (EngineError::File(_)
                            | EngineError::Snapshot(_)
                            | EngineError::Replaced(_)),
                        ) => {
                            self.give_up(error);
                        }
                        // The call has its result.
                        Err(error) => drop(self.error.get_or_insert(error)),
                    }
                }
                running @ UnrecordedCall::Started { .. } => {
                    self.unrecorded.push_front(running);
                    return;
                }
            }
        }
    }

    /// Records nothing more.
    fn give_up(&mut self, error: EngineError) {
        self.error.get_or_insert(error);
        self.unrecorded.clear();
    }
}

impl Engine<'_> {
    /// Records the result of a command that has ended. Only an error of a file or
    /// a snapshot means that it is not recorded.
    fn record_result(
        &self,
        run: &mut Run,
        starting: &StartingCall<'_>,
        record: NewPrivateFile,
        finished: &ProcessResult,
    ) -> Result<(), EngineError> {
        let StartingCall { approved, started_at, stem, execution, launch, .. } = starting;
        let ApprovedCall { call, tool, invocation, .. } = approved;
        let SandboxOutcome { result: sandbox, execution: sandbox_execution } =
            self.sandbox_outcome(run, starting, finished);
        let hint = sandbox_execution.as_ref().and_then(|sandbox| sandbox.hint.as_deref());
        let dir = self.displayed_records(run);
        let mut observation = render_observation(
            finished,
            tool.output,
            tool.timeout_ms,
            &dir,
            &format!("{stem}.json"),
            hint,
            run.state().has_rules(2),
        );
        if tool.output == ToolOutput::TextAndImages {
            observation.images = read_named_images(finished, &run.dir, &call.id);
        }
        let record_sha256 = run.records.write_execution(
            record,
            &ToolExecutionRecord {
                run_id: run.id.as_str().into(),
                iteration: call.iteration,
                tool: (&tool.name).into(),
                call_id: (&call.id).into(),
                argv: (&invocation.argv).into(),
                cwd: (&launch.cwd).into(),
                stdin: (&invocation.stdin).into(),
                outcome: process_outcome(*started_at, finished, observation.exit_code),
                sandbox: sandbox_execution,
            },
        )?;
        let arguments = approved.arguments.as_ref();
        let (observation, hook_result) =
            self.filter_observation(run, call, arguments, observation, Some(execution));
        observation.images.iter().try_for_each(|image| image.store(&run.dir))?;
        let outcome = CallOutcome {
            duration_ms: duration_millis(finished.duration),
            execution: Some(execution.clone()),
            record_sha256: Some(record_sha256),
            runs: self.heads_of_started_runs(run, call),
            sandbox,
            result: tool.run_result(&finished.end, &observation),
        };
        let result = action_result(call, observation, outcome);
        self.record_call_result(run, starting, result)?;
        if let Some(held_call) = &starting.surviving {
            self.note_held_result(held_call.surviving_call().clone());
        }
        hook_result
    }

    /// Records that nothing is known of a call whose command outlives the engine.
    fn record_lost_call(
        &self,
        run: &mut Run,
        starting: &StartingCall<'_>,
    ) -> Result<(), EngineError> {
        let ApprovedCall { call, tool, arguments, .. } = &starting.approved;
        if let Some(held_call) = &starting.surviving {
            self.end_held_call(run, &call.id, held_call.surviving_call());
        }
        let lost = starting.surviving.as_ref().map(|call| call.surviving_call().clone());
        let unknown = UnknownOutcome {
            tool: Some(tool),
            arguments: arguments.as_ref(),
            execution: Some(&*starting.execution),
            surviving: lost,
            reason: LOST_HOLDER_PREFIX,
            has_discarded: false,
        };
        self.record_unknown_outcome(run, call, unknown)
    }

    /// The runs that the call has started, and how far their journals are.
    pub(super) fn heads_of_started_runs(&self, run: &Run, call: &PendingCall) -> Vec<StartedRun> {
        self.child_runs.borrow_mut().take_heads(&run.dir, &call.id)
    }

    /// The directory of the records of calls, as observations name it.
    fn displayed_records(&self, run: &Run) -> String {
        let dir = workspace::displayed_run_dir(&run.dir, &self.environment.vars().cwd);
        format!("{dir}/io/tool_executions")
    }

    /// Reports a tool that could not be started to on_error.
    fn report_tool_not_started(
        &self,
        run: &mut Run,
        call: &PendingCall,
        reason: &str,
    ) -> Result<(), EngineError> {
        let message = format!("the tool {} could not be started: {reason}", call.tool);
        let input = HookInput::for_error("tool_not_started", &message)
            .with_entry("call_id", &call.id)
            .with_entry("tool", &call.tool);
        self.run_notification_hook(run, HookPoint::OnError, call.iteration, || input, &self.cancel)
    }
}

/// Answers a call that was requested and starts nothing.
pub(super) fn record_refusal(run: &mut Run, call: &PendingCall, reason: String) {
    let observation = Observation { text: reason, ..Observation::default() };
    record_observation(run, call, observation, CallOutcome::default());
}

/// What a call has besides its observation.
#[derive(Default)]
pub(super) struct CallOutcome {
    pub(super) duration_ms: u64,
    pub(super) execution: Option<String>,
    pub(super) record_sha256: Option<String>,
    pub(super) runs: Vec<StartedRun>,
    pub(super) sandbox: Option<Box<CallSandbox>>,
    /// The result of the run, if the call ends it.
    pub(super) result: Option<ExactJson>,
}

pub(super) fn record_observation(
    run: &mut Run,
    call: &PendingCall,
    observation: Observation,
    outcome: CallOutcome,
) {
    let result = action_result(call, observation, outcome);
    run.record(Payload::ActionResult(Box::new(result)));
}

fn action_result(
    call: &PendingCall,
    observation: Observation,
    outcome: CallOutcome,
) -> ActionResult {
    let CallOutcome { duration_ms, execution, record_sha256, runs, sandbox, result } = outcome;
    ActionResult {
        iteration: call.iteration,
        call_id: call.id.clone(),
        tool_name: call.tool.clone(),
        images: observation.images(),
        observation_content: observation.text,
        exit_code: observation.exit_code,
        duration_ms,
        execution,
        record_sha256,
        runs,
        repeats: 0,
        truncated: observation.truncated,
        ended_background: observation.left.ended,
        left_running: observation.left.running,
        sandbox,
        result,
    }
}
