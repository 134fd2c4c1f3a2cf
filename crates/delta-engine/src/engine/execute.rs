//! Executing calls: one, or several of `parallel` tools at the same time.
//!
//! All calls of a batch have passed their gates and approvals before the first one starts. Their requests become durable
//! together; then all of them start. Results are recorded in call order, each as soon as all before it are: so an engine
//! that dies leaves a call known only if every call before it is known, as if they had run one after another.

use super::call_results::{CommandOutcome, ResultRecorder};
use super::staged_call::CallLayer;
use super::surviving::{HeldCall, HeldOutcome};
use super::{Engine, EngineError};
use delta_agent::tool::invocation::{CheckedArguments, ToolInvocation};
use delta_agent::tool::{Tool, ToolOutput};
use delta_base::durable::NewPrivateFile;
use delta_base::time::Timestamp;
use delta_mcp::holder_config::{CALL_ID_VARIABLE, HOLDER_REQUIRED, HOLDER_VARIABLE};
use delta_plan::call_plan::RecordedArguments;
use delta_plan::checked_call::CheckedCall;
use delta_process::{
    self as process, Background, INLINE_BYTES, LaunchContext, ProcessCommand, ProcessNotice,
    SpoolFiles,
};
use delta_run::event::approval::CallApproval;
use delta_run::event::{ActionRequest, Payload};
use delta_run::run::{Run, RunNotice};
use delta_run::state::PendingCall;
use serde_json::Value as Json;
use std::path::PathBuf;
use std::time::Duration;

/// A call that may start.
pub(super) struct ApprovedCall<'a> {
    pub(super) call: PendingCall,
    pub(super) tool: &'a Tool,
    pub(super) invocation: ToolInvocation,
    /// `None` if an earlier process has checked them and has started the command.
    pub(super) arguments: Option<CheckedArguments>,
    pub(super) approval: Option<CallApproval>,
}

impl<'a> ApprovedCall<'a> {
    /// A call whose command this process starts.
    pub(super) fn new(checked: CheckedCall<'a>, approval: Option<CallApproval>) -> Self {
        let tool = checked.tool();
        let (call, arguments, invocation) = checked.into_parts();
        Self { call, tool, invocation, arguments: Some(arguments), approval }
    }

    /// Whether an earlier process has started its command.
    pub(super) fn is_resumed(&self) -> bool {
        self.arguments.is_none()
    }

    /// The names of the arguments that were taken as another JSON type.
    pub(super) fn coerced(&self) -> Vec<String> {
        self.arguments.as_ref().map(|arguments| arguments.coerced().to_vec()).unwrap_or_default()
    }

    /// The arguments as events contain them.
    pub(super) fn tool_args(&self) -> Json {
        match &self.arguments {
            Some(arguments) => arguments.json().clone(),
            None => self.call.arguments.to_value(),
        }
    }
}

/// A call about which nothing is left to decide.
pub(super) enum DecidedCall<'a> {
    /// It starts a command.
    Start(Box<ApprovedCall<'a>>),
    /// It starts nothing; the LLM gets this observation.
    Refuse(PendingCall, String),
}

impl DecidedCall<'_> {
    /// Starts nothing for the call.
    pub(super) fn refuse(&mut self, reason: &str) {
        if let Self::Start(approved) = self {
            *self = Self::Refuse(approved.call.clone(), reason.to_owned());
        }
    }
}

/// A call whose command is about to start.
pub(super) struct StartingCall<'a> {
    pub(super) approved: ApprovedCall<'a>,
    pub(super) started_at: Timestamp,
    /// The common part of the names of its files.
    pub(super) stem: String,
    /// The io/ record.
    pub(super) execution: String,
    pub(super) launch: LaunchContext,
    /// The program, if it is not the one that the command line names.
    pub(super) program: Option<PathBuf>,
    /// Its workspace, if what it changes is staged.
    pub(super) layer: Option<CallLayer>,
    /// What holds its command, if it outlives the engine.
    pub(super) surviving: Option<HeldCall>,
}

impl<'a> Engine<'a> {
    /// Runs calls at the same time. Their requests are durable before the first of them starts, and their results are
    /// recorded in their order.
    pub(super) fn execute_calls(
        &self,
        run: &mut Run,
        calls: Vec<DecidedCall<'a>>,
    ) -> Result<(), EngineError> {
        let mut recorder = ResultRecorder::new(self, calls.len());
        let mut starting = Vec::with_capacity(calls.len());
        for call in calls {
            let approved = match self.with_current_sandbox(call) {
                DecidedCall::Start(approved) => *approved,
                DecidedCall::Refuse(call, reason) => {
                    recorder.add_refused(call, reason);
                    continue;
                }
            };
            match self.open_call_layer(run, approved.tool)? {
                Ok(layer) => {
                    // If the disk has no room for a record, nothing is requested or started.
                    let (call, record) = self.prepare_call(run, approved, layer)?;
                    recorder.add_started(starting.len(), record);
                    starting.push(call);
                }
                Err(reason) => recorder.add_refused(approved.call, reason),
            }
        }
        recorder.record_requests(run, &starting);
        if !starting.is_empty() {
            run.start_writeback();
            self.run_commands(run, &starting, &mut recorder)?;
        }
        recorder.finish(run, &starting)
    }

    /// Refuses a call whose sandbox cannot be enforced any more.
    fn with_current_sandbox(&self, call: DecidedCall<'a>) -> DecidedCall<'a> {
        match call {
            DecidedCall::Start(approved) => match self.refreshed_sandbox(approved.tool) {
                Ok(_) => DecidedCall::Start(approved),
                Err(reason) => DecidedCall::Refuse(approved.call, reason),
            },
            refused @ DecidedCall::Refuse(..) => refused,
        }
    }

    fn prepare_call(
        &self,
        run: &mut Run,
        approved: ApprovedCall<'a>,
        layer: Option<CallLayer>,
    ) -> Result<(StartingCall<'a>, NewPrivateFile), EngineError> {
        let tool = approved.tool;
        let started_at = (self.clock)();
        let stem = format!("{}_{}", started_at.to_compact(), tool.name);
        let stem = run.records.reserve_stem("tool_executions", &stem);
        let execution = format!("io/tool_executions/{stem}.json");
        let record = run.records.create_record_file(&execution)?;
        let launch = self.launch_call(&approved.call, tool);
        let launch = match &layer {
            Some(layer) => launch.with_sandbox(Some(layer.entry())),
            None => launch,
        };
        // This version, whatever `delta` in PATH is.
        let program = tool.runs_delta.then(process::own_program);
        let is_held = approved.is_resumed() || (tool.survives && self.lets_survive);
        let surviving =
            is_held.then(|| HeldCall::prepare(run, &approved, started_at)).transpose()?;
        let call = StartingCall {
            approved,
            started_at,
            stem,
            execution,
            launch,
            program,
            layer,
            surviving,
        };
        Ok((call, record))
    }

    pub(super) fn launch_call(&self, call: &PendingCall, tool: &Tool) -> LaunchContext {
        let vars = self.environment.vars();
        let env = tool.env.iter().map(|(name, value)| (name.as_str(), vars.expand_text(value)));
        let env = env.chain([("DELTA_CALL_ID", call.id.clone())]);
        let env = env.chain(tool.mcp.as_ref().map(|_| (CALL_ID_VARIABLE, call.id.clone())));
        let sandbox = self.environment.sandbox().and_then(|run| run.of_tool(&tool.name));
        // The server is in the sandbox, and the command that talks to it is delta's own.
        let server_sandbox = sandbox.filter(|_| tool.mcp.is_some());
        let env = env.chain(server_sandbox.map(|_| (HOLDER_VARIABLE, HOLDER_REQUIRED.to_owned())));
        self.environment
            .launch_in(sandbox.filter(|_| tool.mcp.is_none()), call.iteration, &tool.pass_env, env)
            .with_background(tool.background)
            .with_call_limits()
    }

    /// Runs the commands of recorded calls. Nothing starts before their requests are durable.
    fn run_commands(
        &self,
        run: &mut Run,
        starting: &[StartingCall<'a>],
        recorder: &mut ResultRecorder<'_, 'a>,
    ) -> Result<(), EngineError> {
        let max_bytes = self.max_stream_bytes(run);
        let directory = run.records.dir("tool_executions");
        let run_dir = run.dir.to_string_lossy().into_owned();
        // Another run may have a call with the same id.
        let marks: Vec<_> = starting
            .iter()
            .map(|call| [("RUN_DIR", &*run_dir), ("DELTA_CALL_ID", &*call.approved.call.id)])
            .collect();
        let commands: Vec<_> = starting
            .iter()
            .zip(&marks)
            .map(|(call, marks)| {
                let ApprovedCall { tool, invocation, .. } = &call.approved;
                let inline_bytes = if tool.output == ToolOutput::File { 0 } else { INLINE_BYTES };
                let continues_output =
                    matches!(tool.background, Background::Run | Background::Keep);
                let spool = SpoolFiles {
                    dir: &directory,
                    stem: &call.stem,
                    inline_bytes,
                    max_bytes,
                    continues_output,
                };
                let timeout = Duration::from_millis(tool.timeout_ms);
                let held_call = call.surviving.as_ref();
                let argv = held_call.map_or(&invocation.argv[..], HeldCall::argv);
                let timeout = held_call.map_or(timeout, |_| HeldCall::patience(timeout));
                ProcessCommand {
                    program: held_call
                        .map_or(call.program.as_deref(), |held_call| Some(held_call.program())),
                    stdin: held_call.map_or(invocation.stdin.as_bytes(), |_| &[]),
                    spool: Some(spool),
                    capture_whole: matches!(
                        tool.output,
                        ToolOutput::Image | ToolOutput::TextAndImages | ToolOutput::Json
                    ),
                    marks,
                    ..ProcessCommand::new(argv, &call.launch, timeout, tool.max_output_bytes)
                }
            })
            .collect();
        let prepared = commands.iter().map(process::prepare_process).collect();
        run.commit_act()?;
        self.remove_held_calls(run);
        for call in starting {
            self.ensure_call_holder(run, &call.approved);
            self.start_holder(run, call, max_bytes);
        }
        self.begin_work(run);
        process::run_together(prepared, &self.cancel, &mut |index, notice| match notice {
            ProcessNotice::Output(piece) => {
                let ApprovedCall { call, tool, .. } = &starting[index].approved;
                if self.is_live && (tool.output.is_text() || piece.is_stderr) {
                    run.notify(RunNotice::OutputPiece { call_id: &call.id, piece: &piece });
                }
            }
            ProcessNotice::Ended(result) => {
                match &starting[index].surviving {
                    Some(held_call) => {
                        let ApprovedCall { call, tool, .. } = &starting[index].approved;
                        let outcome = held_call.outcome(result);
                        if matches!(outcome, HeldOutcome::Stalled(_)) {
                            self.end_held_call(run, &call.id, held_call.surviving_call());
                        }
                        recorder.add_held_result(index, outcome, tool.idempotent);
                    }
                    None => recorder.add_result(index, CommandOutcome::Ended(result)),
                }
                recorder.record_early(run, starting);
            }
        });
        self.end_work();
        Ok(())
    }

    /// Starts the process that holds the connection to the MCP server of a call, unless it is running.
    fn ensure_call_holder(&self, run: &mut Run, approved: &ApprovedCall<'_>) {
        let Some(mcp) = &approved.tool.mcp else { return };
        let launch = self.environment.launch(approved.call.iteration, &[], []).with_call_limits();
        let sandbox = self.environment.sandbox();
        let server_sandbox = sandbox.and_then(|run| run.of_tool(&approved.tool.name));
        // Without a holder, the command reports that, or starts a server without a sandbox for itself.
        let ensured = self.ensure_mcp_holder(&mcp.server, &run.dir, launch, server_sandbox);
        if let Err(reason) = ensured {
            run.notify(RunNotice::Warning(&format!(
                "the process that holds the MCP server {} could not be started: {reason}",
                mcp.server
            )));
        }
    }
}

/// Records the ACTION_REQUEST of a call that starts nothing, unless it exists: such a call may be
/// repeated.
pub(super) fn record_unstarted_request(
    run: &mut Run,
    call: &PendingCall,
    arguments: RecordedArguments,
) {
    if !run.state().is_requested(&call.id) {
        let RecordedArguments { json, coerced } = arguments;
        let request = ActionRequest { coerced, ..unstarted_request(call, json) };
        run.record(Payload::ActionRequest(Box::new(request)));
    }
}

pub(super) fn unstarted_request(call: &PendingCall, tool_args: Json) -> ActionRequest {
    ActionRequest {
        iteration: call.iteration,
        call_id: call.id.clone(),
        tool_name: call.tool.clone(),
        tool_args,
        coerced: Vec::new(),
        argv: None,
        execution: None,
        approval: None,
        sandbox: None,
    }
}
