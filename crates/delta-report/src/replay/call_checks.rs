//! Checks the tool calls of a run: their command lines, their records and their observations.

use super::verifier::{RecordedConfig, RunVerifier};
use delta_agent::hook::answer::{self, GateVerdict, HookAnswer};
use delta_agent::hook::{HookFailurePolicy, HookPoint};
use delta_agent::tool::ToolOutput;
use delta_agent::tool::invocation::ToolInvocation;
use delta_agent::tool::observation::{Observation, render_observation};
use delta_base::json::ExactJson;
use delta_plan::approval_plan::{ApprovalPlan, call_after_gate, plan_approval};
use delta_plan::call_plan::{CallPlan, FINISHED_OBSERVATION, plan_call};
use delta_plan::checked_call::CheckedCall;
use delta_plan::hook_observation::{denied_observation, withheld_observation};
use delta_run::event::approval::{ApprovalDecision, ApprovalRequest, ApprovalSource, CallApproval};
use delta_run::event::{ActionRequest, ActionResult};
use delta_run::record::ToolExecutionRecord;
use delta_run::state::{HumanRequest, PendingCall};
use delta_run::workspace;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::rc::Rc;

/// What a call should lead to.
#[derive(Debug)]
pub(super) enum ExpectedOutcome {
    /// A command is executed.
    Executed { execution: Option<String>, argv: Vec<String>, stdin: String },
    /// Nothing is started; the LLM gets this observation.
    Observation(String),
    /// The run ends with this result.
    Finish(ExactJson),
    /// The user is asked.
    AskHuman,
    /// A command was executed, but the engine died before it had the result.
    Interrupted,
    /// It cannot be computed.
    Unknown,
}

/// The members of an approval that are compared.
fn approval_summary(approval: Option<&CallApproval>) -> Json {
    approval.map_or(
        Json::Null,
        |approval| json!({"by": approval.by, "at": approval.at, "rule": approval.rule}),
    )
}

impl ExpectedOutcome {
    /// The engine died before the call had a result.
    pub(super) fn interrupt(&mut self) {
        if matches!(self, Self::Executed { .. }) {
            *self = Self::Interrupted;
        }
    }
}

impl RunVerifier<'_> {
    pub(super) fn check_action_request(&mut self, request: &ActionRequest) {
        self.report.checked.calls += 1;
        let iteration = Some(request.iteration);
        let Some(call) = self.state.call(&request.call_id).cloned() else {
            let subject = format!("call {}", request.call_id);
            let expected = "a call of the last answer";
            self.report.add_mismatch(iteration, subject, &request.tool_name, expected);
            return;
        };
        let (expected, tool_args, approval) = self.expected_outcome(request, &call);
        let argv = match &expected {
            ExpectedOutcome::Executed { argv, .. } => Some(argv.clone()),
            ExpectedOutcome::Interrupted | ExpectedOutcome::Unknown => request.argv.clone(),
            ExpectedOutcome::Observation(_)
            | ExpectedOutcome::Finish(_)
            | ExpectedOutcome::AskHuman => None,
        };
        let sandbox = self.state.sandbox().filter(|_| argv.is_some());
        let sandbox = sandbox.map(|sandbox| sandbox.profile_of_tool(&call.tool));
        let members = [
            ("iteration", json!(request.iteration), json!(call.iteration)),
            ("tool_name", json!(request.tool_name), json!(call.tool)),
            ("tool_args", request.tool_args.clone(), tool_args),
            ("argv", json!(request.argv), json!(argv)),
            ("approval", approval_summary(request.approval.as_ref()), approval),
            ("sandbox", json!(request.sandbox), json!(sandbox)),
        ];
        for (member, recorded, expected) in members {
            let subject = format!("the {member} of call {} ({})", call.id, call.tool);
            self.report.compare_json(iteration, subject, recorded, expected);
        }
        self.expected_outcomes.insert(call.id, expected);
    }

    /// The outcome of a call, the arguments it is executed with, and its approval.
    fn expected_outcome(
        &mut self,
        request: &ActionRequest,
        call: &PendingCall,
    ) -> (ExpectedOutcome, Json, Json) {
        let recorded_approval = approval_summary(request.approval.as_ref());
        let Some(config) = self.config.as_ref().map(Rc::clone) else {
            let is_coerced = !request.coerced.is_empty();
            let tool_args =
                if is_coerced { request.tool_args.clone() } else { call.arguments.to_value() };
            return (ExpectedOutcome::Unknown, tool_args, recorded_approval);
        };
        let checked = match self.gated_call(&config, call) {
            Ok(checked) => checked,
            Err((ExpectedOutcome::Unknown, _)) => {
                // The recorded arguments may be the hook's.
                let tool_args = request.tool_args.clone();
                return (ExpectedOutcome::Unknown, tool_args, recorded_approval);
            }
            Err((outcome, tool_args)) => return (outcome, tool_args, Json::Null),
        };
        let tool = checked.tool();
        let plan = plan_approval(&self.state, &checked, &config.vars);
        let tool_args = checked.arguments().json().clone();
        let is_confined =
            self.state.sandbox().is_some_and(|sandbox| sandbox.tools.contains_key(&call.tool));
        let approval = self.state.asked_approval(&call.id);
        let has_asked_files = approval.is_some_and(|approval| approval.request.files.is_some());
        if request.argv.is_none() && (tool.is_staged || is_confined || has_asked_files) {
            // The machine did not enforce its sandbox any more, could not stage it, or had another file than the one that was
            // asked about; the observation has the reason.
            return (ExpectedOutcome::Unknown, tool_args, recorded_approval);
        }
        let approval = match plan {
            ApprovalPlan::NotRequired => Json::Null,
            ApprovalPlan::Approved { by, at, rule } => {
                // The time of an approval without a decision is in no other event.
                let at = at.or(request.approval.as_ref().map(|approval| approval.at));
                json!({"by": by, "at": at, "rule": rule})
            }
            ApprovalPlan::Deny(text) => {
                return (ExpectedOutcome::Observation(text), tool_args, Json::Null);
            }
            // What the operator allows is not in the journal; it needs a sandbox.
            ApprovalPlan::Ask { .. }
                if is_confined
                    && request.approval.as_ref().is_some_and(|approval| {
                        matches!(approval.by, ApprovalSource::Remembered | ApprovalSource::Config)
                    }) =>
            {
                recorded_approval.clone()
            }
            ApprovalPlan::Ask { .. } => json!("an approval"),
        };
        let (_, _, ToolInvocation { argv, stdin }) = checked.into_parts();
        let execution = request.execution.clone();
        (ExpectedOutcome::Executed { execution, argv, stdin }, tool_args, approval)
    }

    /// The call as pre_tool_execution left it; the outcome and the arguments of a call that does not get so far.
    fn gated_call<'c>(
        &mut self,
        config: &'c RecordedConfig,
        call: &PendingCall,
    ) -> Result<CheckedCall<'c>, (ExpectedOutcome, Json)> {
        let sent = || call.arguments.to_value();
        let checked = match plan_call(&config.agent, &self.state, call, &config.vars) {
            CallPlan::Start(checked) => *checked,
            CallPlan::Finish(arguments, result) => {
                return Err((ExpectedOutcome::Finish(result), arguments.json));
            }
            CallPlan::Ask(arguments, _) => return Err((ExpectedOutcome::AskHuman, arguments.json)),
            CallPlan::Refuse(text) => return Err((ExpectedOutcome::Observation(text), sent())),
        };
        if let Some(passed) = call_after_gate(&self.state, &checked, &config.vars) {
            return Ok(passed);
        }
        if config.agent.hooks.get(HookPoint::PreToolExecution).is_none() {
            return Ok(checked);
        }
        let Some(verdict) = self.hook_verdict(call) else {
            let id = &call.id;
            self.report.add_not_checked(format!("call {id}: the verdict of its hook is missing"));
            return Err((ExpectedOutcome::Unknown, sent()));
        };
        let gated = match verdict {
            GateVerdict::Proceed => Ok(checked),
            GateVerdict::Deny(reason) => Err(reason),
            // The plan of the call has refused it already.
            GateVerdict::End(_) => return Err((ExpectedOutcome::Unknown, sent())),
            GateVerdict::Replace(arguments) => checked.with_gate_arguments(arguments, &config.vars),
        };
        gated.map_err(|reason| {
            let observation = denied_observation(&self.state, &call.id, &reason);
            (ExpectedOutcome::Observation(observation), sent())
        })
    }

    /// Checks what a person was asked to approve: the person must have seen what the agent would have started.
    pub(super) fn check_approval_request(&mut self, request: &ApprovalRequest) {
        if request.stage.is_some() {
            // The result depends on a decision about files, which a replay without tools does not have.
            self.expected_outcomes.insert(request.call_id.clone(), ExpectedOutcome::Unknown);
            return;
        }
        let iteration = Some(request.iteration);
        let Some(call) = self.state.call(&request.call_id).cloned() else {
            let subject = format!("the approval of call {}", request.call_id);
            let expected = "a call of the last answer";
            self.report.add_mismatch(iteration, subject, &request.tool_name, expected);
            return;
        };
        let Some(config) = self.config.as_ref().map(Rc::clone) else { return };
        let Ok(checked) = self.gated_call(&config, &call) else { return };
        let invocation = checked.invocation();
        let sha256 = checked.tool().command_sha256(invocation, &config.vars);
        let plan = plan_approval(&self.state, &checked, &config.vars);
        let asks = |rule: Option<u32>| json!({"asks": true, "rule": rule});
        let plan = match plan {
            ApprovalPlan::Ask { rule } => asks(rule),
            // What has changed since the approval is not in the journal.
            ApprovalPlan::Approved {
                by: ApprovalSource::Operator | ApprovalSource::Terminal,
                ..
            } if !request.changed.is_empty() => asks(request.rule),
            // Where PATH led is not in the journal; what it led to is.
            ApprovalPlan::Approved { by: ApprovalSource::Rule, .. }
                if names_program_in(request, &config.vars.cwd) =>
            {
                asks(None)
            }
            _ => json!({"asks": false}),
        };
        let members = [
            ("tool_name", json!(request.tool_name), json!(call.tool)),
            ("tool_args", request.tool_args.clone(), checked.arguments().json().clone()),
            ("argv", json!(request.argv), json!(invocation.argv)),
            ("command_sha256", json!(request.command_sha256), json!(sha256)),
            ("rule", asks(request.rule), plan),
        ];
        for (member, recorded, expected) in members {
            let subject =
                format!("the {member} in the approval request of call {} ({})", call.id, call.tool);
            self.report.compare_json(iteration, subject, recorded, expected);
        }
    }

    /// Checks that a decision belongs to a question that was open.
    pub(super) fn check_approval_decision(&mut self, decision: &ApprovalDecision) {
        let is_open = matches!(
            self.state.human_request(),
            Some(HumanRequest::Approval(request)) if request.call_id == decision.call_id
        );
        if !is_open {
            let subject = format!("the decision on call {}", decision.call_id);
            let expected = "an APPROVAL_REQUEST before it";
            let iteration = Some(decision.iteration);
            self.report.add_mismatch(iteration, subject, "an APPROVAL_DECISION", expected);
        }
    }

    /// The verdict of pre_tool_execution; `None` when its record is missing.
    fn hook_verdict(&mut self, call: &PendingCall) -> Option<GateVerdict> {
        let hook = HookPoint::PreToolExecution;
        let record = self.last_gate_record(&call.id)?;
        let result = self.hook_result(&record, call.iteration)?;
        let config = self.config.as_ref()?.agent.hooks.get(hook)?;
        Some(answer::parse_gate_verdict(&result, config).0)
    }

    pub(super) fn check_action_result(&mut self, result: &ActionResult) {
        let iteration = Some(result.iteration);
        let subject = format!("the result of call {} ({})", result.call_id, result.tool_name);
        let Some(expected) = self.expected_outcomes.remove(&result.call_id) else {
            if self.config.is_some() {
                let expected = "an ACTION_REQUEST before it";
                self.report.add_mismatch(iteration, subject, "an ACTION_RESULT", expected);
            }
            return;
        };
        match expected {
            ExpectedOutcome::Executed { execution, argv, stdin } => {
                self.check_execution(result, execution.as_deref(), &argv, &stdin);
            }
            ExpectedOutcome::Observation(text) => self.check_observation(result, &text, None),
            ExpectedOutcome::Finish(output) => {
                self.check_observation(result, FINISHED_OBSERVATION, Some(&output));
                if let Some(record) = &result.execution {
                    let _ = self.io_files.check_record_text(record, iteration, self.report);
                }
            }
            ExpectedOutcome::AskHuman => self.check_observation(result, "the user's answer", None),
            ExpectedOutcome::Interrupted => {
                self.report.add_not_checked(format!("{subject}: the engine died before it ended"));
            }
            ExpectedOutcome::Unknown if self.config.is_none() => {}
            ExpectedOutcome::Unknown => self.report.add_not_checked(subject),
        }
    }

    fn check_observation(&mut self, result: &ActionResult, text: &str, output: Option<&Json>) {
        let iteration = Some(result.iteration);
        let call = format!("call {} ({})", result.call_id, result.tool_name);
        let subject = format!("the observation of {call}");
        self.report.compare(iteration, subject, &result.observation_content, text);
        let subject = format!("the run result from {call}");
        self.report.compare_json(iteration, subject, &result.result, output);
    }

    /// Compares the result of an executed command with its record.
    fn check_execution(
        &mut self,
        result: &ActionResult,
        execution: Option<&str>,
        argv: &[String],
        stdin: &str,
    ) {
        let iteration = Some(result.iteration);
        let call = format!("call {} ({})", result.call_id, result.tool_name);
        let subject = format!("the record of {call}");
        self.report.compare_json(iteration, subject, &result.execution, execution);
        let Some(name) = execution else { return };
        let record: Option<ToolExecutionRecord<'_>> =
            self.io_files.check_record(name, iteration, self.report);
        let Some(record) = record else { return };
        let members = [
            ("tool", json!(record.tool), json!(result.tool_name)),
            ("call_id", json!(record.call_id), json!(result.call_id)),
            ("argv", json!(record.argv), json!(argv)),
            ("stdin", json!(record.stdin), json!(stdin)),
        ];
        for (member, recorded, expected) in members {
            self.report.compare_json(iteration, format!("{name}, {member}"), recorded, expected);
        }
        let Some(config) = &self.config else { return };
        let Some(tool) = config.agent.tool(&result.tool_name) else { return };
        let keep = tool.max_output_bytes;
        let timeout_ms = tool.timeout_ms;
        let finished = self.io_files.read_finished(name, &record.outcome, keep, self.report);
        let Some(finished) = finished else { return };
        let run_dir = workspace::displayed_run_dir(&config.vars.run_dir, &config.vars.cwd);
        let output_dir = format!("{run_dir}/io/tool_executions");
        let file = name.rsplit('/').next().unwrap_or(name);
        let output = tool.output;
        let tool = tool.clone();
        let hint = record.sandbox.as_ref().and_then(|sandbox| sandbox.hint.as_deref());
        let reads_utf16 = self.state.has_rules(2);
        let observation =
            render_observation(&finished, output, timeout_ms, &output_dir, file, hint, reads_utf16);
        let Some(observation) = self.filtered_observation(result, observation) else { return };
        let run_result = tool.run_result(&finished.end, &observation);
        self.check_observation(result, &observation.text, run_result.as_deref());
        // The files that a call of an MCP server has stored may be packed; the journal has the checksums of the images.
        if output != ToolOutput::TextAndImages {
            let subject = format!("the image of {call}");
            self.report.compare_json(iteration, subject, &result.images, observation.images());
        }
        let left = |commands: &[String], running: &[String]| json!({"ended_background": commands, "left_running": running});
        self.report.compare_json(
            iteration,
            format!("what {call} left running"),
            left(&result.ended_background, &result.left_running),
            left(&record.outcome.ended_background, &record.outcome.left_running),
        );
        let outcome = |exit_code, duration_ms, truncated| json!({"exit_code": exit_code, "duration_ms": duration_ms, "truncated": truncated});
        self.report.compare_json(
            iteration,
            format!("the result of {call}"),
            outcome(result.exit_code, result.duration_ms, result.truncated),
            outcome(observation.exit_code, record.outcome.duration_ms, observation.truncated),
        );
    }

    /// The observation after post_tool_execution; `None` when the hook's record is missing.
    fn filtered_observation(
        &mut self,
        result: &ActionResult,
        observation: Observation,
    ) -> Option<Observation> {
        let hook = HookPoint::PostToolExecution;
        let Some(config) = self.config.as_ref()?.agent.hooks.get(hook).cloned() else {
            return Some(observation);
        };
        let after_failure = match config.on_failure {
            HookFailurePolicy::Fail => withheld_observation(observation.clone()),
            HookFailurePolicy::Ignore => observation.clone(),
        };
        let Some(record) = self.last_hook_record(hook) else { return Some(after_failure) };
        let hook_result = self.hook_result(&record, result.iteration)?;
        Some(match answer::parse_observation_replacement(&hook_result, &config) {
            Ok(HookAnswer { replacement: Some(text), .. }) => {
                Observation { text, images: Vec::new(), ..observation }
            }
            Ok(_) => observation,
            Err(_) => after_failure,
        })
    }
}

/// Whether what a call would have started is in `workspace`, by the files that the person was asked about.
fn names_program_in(request: &ApprovalRequest, workspace: &Path) -> bool {
    request.files.iter().flatten().any(|(path, _)| Path::new(path).starts_with(workspace))
}
