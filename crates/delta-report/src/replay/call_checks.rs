//! Checks the tool calls of a run: their command lines, their records and their observations.

use super::verifier::RunVerifier;
use delta_agent::hook::answer::{self, GateVerdict};
use delta_agent::hook::{HookFailurePolicy, HookPoint};
use delta_agent::tool::invocation::ToolInvocation;
use delta_agent::tool::observation::render_observation;
use delta_engine::engine::call_plan::{CallPlan, plan_call};
use delta_engine::engine::{self, FINISHED_OBSERVATION};
use delta_llm::llm::CallArguments;
use delta_run::event::{ActionRequest, ActionResult};
use delta_run::record::ToolExecutionRecord;
use delta_run::state::PendingCall;
use serde_json::{Value as Json, json};

/// What a call should lead to.
#[derive(Debug)]
pub(super) enum ExpectedOutcome {
    /// A command is executed.
    Executed { execution: Option<String>, argv: Vec<String>, stdin: String },
    /// Nothing is started; the LLM gets this observation.
    Observation(String),
    /// The run ends with this result.
    Finish(Json),
    /// The user is asked.
    AskHuman,
    /// A command was executed, but the engine died before it had the result.
    Interrupted,
    /// It cannot be computed.
    Unknown,
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
        let (expected, arguments) = self.expected_outcome(request, &call);
        let argv = match &expected {
            ExpectedOutcome::Executed { argv, .. } => Some(argv.clone()),
            ExpectedOutcome::Interrupted | ExpectedOutcome::Unknown => request.argv.clone(),
            ExpectedOutcome::Observation(_)
            | ExpectedOutcome::Finish(_)
            | ExpectedOutcome::AskHuman => None,
        };
        let members = [
            ("iteration", json!(request.iteration), json!(call.iteration)),
            ("tool_name", json!(request.tool_name), json!(call.tool)),
            ("tool_args", request.tool_args.clone(), arguments.to_value()),
            ("argv", json!(request.argv), json!(argv)),
        ];
        for (member, recorded, expected) in members {
            let subject = format!("the {member} of call {} ({})", call.id, call.tool);
            self.report.compare_json(iteration, subject, recorded, expected);
        }
        self.expected_outcomes.insert(call.id, expected);
    }

    /// The outcome of a call, and the arguments it is executed with.
    fn expected_outcome(
        &mut self,
        request: &ActionRequest,
        call: &PendingCall,
    ) -> (ExpectedOutcome, CallArguments) {
        let arguments = call.arguments.clone();
        let Some(config) = &self.config else { return (ExpectedOutcome::Unknown, arguments) };
        let execution = request.execution.clone();
        let executed =
            |ToolInvocation { argv, stdin }| ExpectedOutcome::Executed { execution, argv, stdin };
        let invocation = match plan_call(&config.agent, &self.state, call, &config.vars) {
            CallPlan::Start(invocation) => invocation,
            CallPlan::Finish(result) => return (ExpectedOutcome::Finish(result), arguments),
            CallPlan::Ask(_) => return (ExpectedOutcome::AskHuman, arguments),
            CallPlan::Refuse(text) => return (ExpectedOutcome::Observation(text), arguments),
        };
        if config.agent.hooks.get(HookPoint::PreToolExecution).is_none() {
            return (executed(invocation), arguments);
        }
        match self.hook_verdict(call) {
            None => {
                let id = &call.id;
                self.report
                    .add_not_checked(format!("call {id}: the verdict of its hook is missing"));
                // The recorded arguments may be the hook's.
                (ExpectedOutcome::Unknown, CallArguments::new(request.tool_args.to_string()))
            }
            Some(GateVerdict::Proceed) => (executed(invocation), arguments),
            Some(GateVerdict::Deny(reason)) => {
                let text = engine::denied_observation(&self.state, &reason);
                (ExpectedOutcome::Observation(text), arguments)
            }
            Some(GateVerdict::Replace(replacement)) => {
                let config = self.config.as_ref();
                let tool =
                    config.and_then(|config| Some((config.agent.tool(&call.tool)?, &config.vars)));
                let Some((tool, vars)) = tool else { return (ExpectedOutcome::Unknown, arguments) };
                match tool.check_arguments(&replacement) {
                    Ok(checked) => (executed(tool.invocation(&checked, vars)), replacement),
                    Err(error) => {
                        let reason = format!("the hook gave arguments that do not fit.\n{error}");
                        let text = engine::denied_observation(&self.state, &reason);
                        (ExpectedOutcome::Observation(text), arguments)
                    }
                }
            }
        }
    }

    /// The verdict of pre_tool_execution; `None` when its record is missing.
    fn hook_verdict(&mut self, call: &PendingCall) -> Option<GateVerdict> {
        let hook = HookPoint::PreToolExecution;
        let record = self.last_hook_record(hook)?;
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
        let output_dir = format!(".delta/{}/io/tool_executions", self.run_id);
        let file = name.rsplit('/').next().unwrap_or(name);
        let observation = render_observation(&finished, timeout_ms, &output_dir, file);
        let Some(text) = self.filtered_observation(result, observation.text) else { return };
        self.check_observation(result, &text, None);
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
    fn filtered_observation(&mut self, result: &ActionResult, text: String) -> Option<String> {
        let hook = HookPoint::PostToolExecution;
        let Some(config) = self.config.as_ref()?.agent.hooks.get(hook).cloned() else {
            return Some(text);
        };
        let after_failure = match config.on_failure {
            HookFailurePolicy::Fail => engine::WITHHELD_OBSERVATION.to_owned(),
            HookFailurePolicy::Ignore => text.clone(),
        };
        let Some(record) = self.last_hook_record(hook) else { return Some(after_failure) };
        let hook_result = self.hook_result(&record, result.iteration)?;
        Some(match answer::parse_observation_replacement(&hook_result, &config) {
            Ok(Some(replacement)) => replacement,
            Ok(None) => text,
            Err(_) => after_failure,
        })
    }
}
