//! Acting: one call of an answer, from its arguments to its observation.

use super::call_plan::{CallPlan, plan_call};
use super::call_sandbox::SandboxOutcome;
use super::hooks::HookInput;
use super::staged_call::CallLayer;
use super::{Engine, EngineError, duration_millis};
use delta_agent::ask_human::{self, InteractionRequest};
use delta_agent::hook::HookPoint;
use delta_agent::tool::observation::{Observation, render_observation};
use delta_agent::tool::{Tool, ToolOutput, invocation::ToolInvocation};
use delta_base::durable;
use delta_base::time::Timestamp;
use delta_process::{
    self as process, INLINE_BYTES, LaunchContext, ProcessCommand, ProcessEnd, ProcessResult,
    SpoolFiles,
};
use delta_run::approval::CallApproval;
use delta_run::event::{ActionRequest, ActionResult, CallSandbox, HumanQuestion, Payload};
use delta_run::record::{self, ProcessOutcome, RecordedStream, ToolExecutionRecord};
use delta_run::run::{Run, RunNotice};
use delta_run::stage::StageDir;
use delta_run::state::{HumanRequest, PendingCall};
use serde_json::Value as Json;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// How many bytes of a dead call's output the LLM sees.
const DEAD_CALL_TAIL_BYTES: u64 = 4096;

/// The observation of the call that finished the run.
pub const FINISHED_OBSERVATION: &str = "[the run is finished]";
/// The start of the observation of a call whose engine died.
pub const INTERRUPTED_CALL_PREFIX: &str = "[the engine stopped during this call";

impl Engine<'_> {
    pub(super) fn act(&mut self, run: &mut Run, call: &PendingCall) -> Result<(), EngineError> {
        match plan_call(self.agent, run.state(), call, self.environment.vars()) {
            CallPlan::Start(invocation) => self.run_gated_call(run, call, invocation),
            CallPlan::Finish(result) => self.finish_run(run, call, result),
            CallPlan::Ask(question) => self.record_question(run, call, question),
            CallPlan::Refuse(reason) => {
                self.refuse_call(run, call, reason);
                Ok(())
            }
        }
    }

    /// Runs a call with valid arguments, unless pre_tool_execution denies it.
    fn run_gated_call(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        invocation: ToolInvocation,
    ) -> Result<(), EngineError> {
        let Some(tool) = self.agent.tool(&call.tool) else { return Ok(()) };
        let gated = match self.passed_gate(run, call, tool) {
            Some(passed) => Ok(passed),
            None => self.ask_tool_gate(run, call, tool, invocation)?,
        };
        match gated {
            Ok((call, invocation)) => self.run_approved_call(run, &call, tool, &invocation),
            Err(reason) => {
                self.refuse_call(run, call, reason);
                Ok(())
            }
        }
    }

    /// Runs a tool: the request is durable before it starts, and the result is recorded when it has
    /// ended.
    pub(super) fn execute_tool(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        tool: &Tool,
        invocation: &ToolInvocation,
        approval: Option<CallApproval>,
    ) -> Result<(), EngineError> {
        if let Err(reason) = self.refreshed_sandbox(tool) {
            self.refuse_call(run, call, reason);
            return Ok(());
        }
        match self.open_call_layer(run, tool)? {
            Ok(layer) => self.execute_in_layer(run, call, tool, invocation, approval, layer),
            Err(reason) => {
                self.refuse_call(run, call, reason);
                Ok(())
            }
        }
    }

    fn execute_in_layer(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        tool: &Tool,
        invocation: &ToolInvocation,
        approval: Option<CallApproval>,
        layer: Option<CallLayer>,
    ) -> Result<(), EngineError> {
        let started_at = (self.clock)();
        let stem = run
            .records
            .reserve_stem("tool_executions", &format!("{}_{}", started_at.to_compact(), tool.name));
        let execution = format!("io/tool_executions/{stem}.json");
        // If the disk has no room for the record, nothing is requested or started.
        let record = run.records.create_record_file(&execution)?;
        run.record(Payload::ActionRequest(Box::new(ActionRequest {
            argv: Some(invocation.argv.clone()),
            execution: Some(execution.clone()),
            approval,
            sandbox: self.sandbox_name(tool),
            ..unstarted_request(call)
        })));
        run.start_writeback();
        let (launch, finished) =
            self.run_tool(run, call, tool, invocation, &stem, layer.as_ref())?;
        let SandboxOutcome { result: sandbox, execution: sandbox_execution } =
            self.sandbox_outcome(tool, &invocation.argv, &launch, &finished);
        let hint = sandbox_execution.as_ref().and_then(|sandbox| sandbox.hint.as_deref());
        let dir = format!(".delta/{}/io/tool_executions", run.id);
        let observation = render_observation(
            &finished,
            tool.output,
            tool.timeout_ms,
            &dir,
            &format!("{stem}.json"),
            hint,
        );
        run.records.write_execution(
            record,
            &ToolExecutionRecord {
                run_id: run.id.as_str().into(),
                iteration: call.iteration,
                tool: (&tool.name).into(),
                call_id: (&call.id).into(),
                argv: (&invocation.argv).into(),
                cwd: (&launch.cwd).into(),
                stdin: (&invocation.stdin).into(),
                outcome: process_outcome(started_at, &finished, observation.exit_code),
                sandbox: sandbox_execution,
            },
        )?;
        let (observation, hook_result) = self.filter_observation(run, call, observation);
        if let Some(image) = &observation.image {
            image.store(&run.dir)?;
        }
        let duration_ms = duration_millis(finished.duration);
        let result = action_result(call, observation, duration_ms, Some(execution), sandbox);
        self.record_call_result(run, call, tool, invocation, layer, result)?;
        hook_result?;
        match &finished.end {
            ProcessEnd::NotStarted { reason, .. } => {
                self.report_tool_not_started(run, call, reason)
            }
            _ => Ok(()),
        }
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

    /// Runs the tool of a recorded call. Nothing starts before the request is durable.
    fn run_tool(
        &self,
        run: &mut Run,
        call: &PendingCall,
        tool: &Tool,
        invocation: &ToolInvocation,
        stem: &str,
        layer: Option<&CallLayer>,
    ) -> Result<(LaunchContext, ProcessResult), EngineError> {
        let vars = self.environment.vars();
        let env = tool.env.iter().map(|(name, value)| (name.as_str(), vars.expand_text(value)));
        let env = env.chain([("DELTA_CALL_ID", call.id.clone())]);
        let sandbox = self.environment.sandbox().and_then(|run| run.of_tool(&tool.name));
        let launch = self
            .environment
            .launch_in(sandbox, call.iteration, &tool.pass_env, env)
            .with_background(tool.background)
            .with_call_limits();
        let launch = match layer {
            Some(layer) => launch.with_sandbox(Some(layer.entry())),
            None => launch,
        };
        let directory = run.records.dir("tool_executions");
        let run_dir = run.dir.to_string_lossy().into_owned();
        // This version, whatever `delta` in PATH is.
        let program = tool.runs_delta.then(process::own_program);
        let command = ProcessCommand {
            program: program.as_deref(),
            argv: &invocation.argv,
            context: &launch,
            stdin: invocation.stdin.as_bytes(),
            timeout: Duration::from_millis(tool.timeout_ms),
            spool: Some(SpoolFiles { dir: &directory, stem, inline_bytes: INLINE_BYTES }),
            excerpt_bytes: tool.max_output_bytes,
            capture_whole: tool.output == ToolOutput::Image,
            // Another run may have a call with the same id.
            marks: &[("RUN_DIR", &run_dir), ("DELTA_CALL_ID", &call.id)],
        };
        let prepared = process::prepare_process(&command);
        run.commit()?;
        if let Some(mcp) = &tool.mcp {
            let launch = self.environment.launch(call.iteration, &[], []).with_call_limits();
            // Without a holder, the command starts the server for itself, and reports why that fails.
            if let Err(reason) = self.ensure_mcp_holder(&mcp.server, &run.dir, launch) {
                run.notify(RunNotice::Warning(&format!(
                    "the process that holds the MCP server {} could not be started: {reason}",
                    mcp.server
                )));
            }
        }
        let observer: Option<process::OutputObserver<'_>> = if self.is_live {
            Some(&mut |piece| {
                if tool.output == ToolOutput::Text || piece.is_stderr {
                    run.notify(RunNotice::OutputPiece(&piece));
                }
            })
        } else {
            None
        };
        let finished = prepared.run_observed(&self.cancel, observer);
        Ok((launch, finished))
    }

    /// Settles a call whose engine died. It does not run again unless its tool is idempotent.
    pub(super) fn settle_dead_call(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        execution: Option<&str>,
    ) -> Result<(), EngineError> {
        let tool = self.agent.tool(&call.tool);
        if tool.is_some_and(|tool| tool.idempotent)
            && let CallPlan::Start(invocation) =
                plan_call(self.agent, run.state(), call, self.environment.vars())
        {
            return self.run_gated_call(run, call, invocation);
        }
        if tool.is_some_and(|tool| tool.is_staged) {
            StageDir::for_call(&run.dir).clear()?;
        }
        let mut text = format!(
            "{INTERRUPTED_CALL_PREFIX}; whether it took effect is unknown, and it was not run again]"
        );
        for (stream, heading) in
            [("stdout", "printed until then"), ("stderr", "printed to stderr until then")]
        {
            if stream == "stdout" && tool.is_some_and(|tool| tool.output == ToolOutput::Image) {
                continue;
            }
            let path = execution.and_then(|name| {
                Some(run.dir.join(name.strip_suffix("json")?).with_extension(stream))
            });
            let tail = path.and_then(|path| read_tail(&path, DEAD_CALL_TAIL_BYTES).ok());
            if let Some(tail) = tail.filter(|tail| !tail.is_empty()) {
                text.push_str(&format!("\n[{heading}]\n{}", String::from_utf8_lossy(&tail)));
            }
        }
        let observation = Observation { text, ..Observation::default() };
        let (observation, hook_result) = self.filter_observation(run, call, observation);
        record_observation(run, call, observation, 0, execution.map(str::to_owned), None);
        hook_result
    }

    /// Answers a call without starting anything.
    pub(super) fn refuse_call(&self, run: &mut Run, call: &PendingCall, reason: String) {
        record_unstarted_request(run, call);
        let observation = Observation { text: reason, ..Observation::default() };
        record_observation(run, call, observation, 0, None, None);
    }

    fn finish_run(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        result: Json,
    ) -> Result<(), EngineError> {
        record_unstarted_request(run, call);
        let execution = Some(run.records.write_finish((self.clock)(), &call.id, &result)?);
        run.record(Payload::ActionResult(Box::new(ActionResult {
            iteration: call.iteration,
            call_id: call.id.clone(),
            tool_name: call.tool.clone(),
            observation_content: FINISHED_OBSERVATION.to_owned(),
            images: Vec::new(),
            exit_code: Some(0),
            duration_ms: 0,
            execution,
            truncated: false,
            ended_background: Vec::new(),
            left_running: Vec::new(),
            sandbox: None,
            result: Some(result),
        })));
        Ok(())
    }

    /// Records a question; the next step waits for the answer. Nothing that the run has started may still run then: it
    /// could answer in the user's place.
    fn record_question(
        &self,
        run: &mut Run,
        call: &PendingCall,
        question: HumanQuestion,
    ) -> Result<(), EngineError> {
        self.end_started_processes(&self.cancel);
        ask_human::remove_old_interaction(&run.dir)?;
        record_unstarted_request(run, call);
        run.record(Payload::HumanInputRequest(question));
        Ok(())
    }

    /// Waits for the answer at the terminal; returns false if another process has to deliver it.
    pub(super) fn wait_for_answer(
        &mut self,
        run: &mut Run,
        question: &HumanQuestion,
    ) -> Result<bool, EngineError> {
        run.commit()?;
        self.end_started_processes(&self.cancel);
        run.notify(RunNotice::WaitingForAnswer(question));
        let response = match self.human.as_mut().map(|human| human.ask(question)) {
            Some(Ok(Some(response))) => response,
            Some(Ok(None)) | None => {
                ask_human::remove_old_interaction(&run.dir)?;
                let interaction = InteractionRequest::new(HumanRequest::Question(question));
                ask_human::write_interaction_request(&run.dir, &interaction, None, (self.clock)())?;
                return Ok(false);
            }
            Some(Err(_)) if self.cancel.is_requested() => return Err(EngineError::Cancelled),
            Some(Err(error)) => return Err(EngineError::Human(error)),
        };
        let call_id = question.call_id.clone();
        let iteration = question.iteration;
        run.record(Payload::HumanInputReceived { iteration, call_id, response });
        Ok(true)
    }

    pub(super) fn record_answer(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        response: String,
    ) -> Result<(), EngineError> {
        let observation =
            Observation { text: response, exit_code: Some(0), ..Observation::default() };
        record_observation(run, call, observation, 0, None, None);
        run.commit()?;
        ask_human::clear_interaction(&run.dir);
        Ok(())
    }
}

/// Records the ACTION_REQUEST of a call that starts nothing, unless it exists: such a call may be
/// repeated.
fn record_unstarted_request(run: &mut Run, call: &PendingCall) {
    if !run.state().is_requested(&call.id) {
        run.record(Payload::ActionRequest(Box::new(unstarted_request(call))));
    }
}

fn unstarted_request(call: &PendingCall) -> ActionRequest {
    ActionRequest {
        iteration: call.iteration,
        call_id: call.id.clone(),
        tool_name: call.tool.clone(),
        tool_args: call.arguments.to_value(),
        argv: None,
        execution: None,
        approval: None,
        sandbox: None,
    }
}

fn record_observation(
    run: &mut Run,
    call: &PendingCall,
    observation: Observation,
    duration_ms: u64,
    execution: Option<String>,
    sandbox: Option<Box<CallSandbox>>,
) {
    let result = action_result(call, observation, duration_ms, execution, sandbox);
    run.record(Payload::ActionResult(Box::new(result)));
}

fn action_result(
    call: &PendingCall,
    observation: Observation,
    duration_ms: u64,
    execution: Option<String>,
    sandbox: Option<Box<CallSandbox>>,
) -> ActionResult {
    ActionResult {
        iteration: call.iteration,
        call_id: call.id.clone(),
        tool_name: call.tool.clone(),
        images: observation.images().to_vec(),
        observation_content: observation.text,
        exit_code: observation.exit_code,
        duration_ms,
        execution,
        truncated: observation.truncated,
        ended_background: observation.left.ended,
        left_running: observation.left.running,
        sandbox,
        result: None,
    }
}

/// What the record of a process says about its run.
fn process_outcome(
    started_at: Timestamp,
    finished: &ProcessResult,
    exit_code: Option<i32>,
) -> ProcessOutcome {
    ProcessOutcome {
        started_at: Some(started_at),
        duration_ms: duration_millis(finished.duration),
        exit_code,
        ended: record::describe_process_end(&finished.end),
        stdout: Some(RecordedStream::from_capture(&finished.stdout)),
        stderr: Some(RecordedStream::from_capture(&finished.stderr)),
        ended_background: finished.left.ended.clone(),
        left_running: finished.left.running.clone(),
    }
}

/// Reads the end of a file, which may be large.
fn read_tail(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut file = durable::open_no_follow(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut tail = Vec::new();
    file.take(limit).read_to_end(&mut tail)?;
    Ok(tail)
}
