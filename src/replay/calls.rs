//! The calls of a run: what each came to, what was started, and what the LLM was shown of it.

use super::Difference;
use super::evidence::Ran;
use super::walk::Walk;
use crate::engine::plan::{Plan, plan, recorded_arguments};
use crate::engine::{self, FINISHED};
use crate::event::{ActionRequest, ActionResult};
use crate::hook::answer::{self, Verdict};
use crate::hook::{Hook, OnFailure};
use crate::state::Call;
use crate::tool::argv::Invocation;
use crate::tool::observation::observe;
use serde_json::{Value as Json, json};

/// What a call comes to.
#[derive(Debug)]
pub(super) enum Expected {
    /// A command was started.
    Ran { execution: Option<String>, argv: Vec<String>, stdin: String },
    /// The LLM is told this.
    Text(String),
    /// It ends the run with this result.
    Finish(Json),
    /// A person is asked.
    Ask,
    /// Its process ended before it did.
    CutShort,
    /// That cannot be told.
    Unknown,
}

impl Expected {
    /// The same when its process has ended before the call had its result.
    pub(super) fn cut_short(&mut self) {
        match self {
            Self::Ran { .. } => *self = Self::CutShort,
            Self::Finish(_) | Self::CutShort | Self::Unknown | Self::Text(_) | Self::Ask => {}
        }
    }
}

impl Walk<'_> {
    /// A call that is about to be carried out.
    pub(super) fn action_request(&mut self, request: &ActionRequest) {
        self.report.checked.calls += 1;
        let at = Some(request.iteration);
        let Some(call) = self.state.call(&request.call_id).cloned() else {
            let what = format!("the call {}", request.call_id);
            let expected = "a call of the last answer";
            self.report.differ(Difference::plain(at, what, request.tool_name.clone(), expected));
            return;
        };
        let (expected, arguments) = self.expectation(request, &call);
        let argv = match &expected {
            Expected::Ran { argv, .. } => Some(argv.clone()),
            Expected::CutShort | Expected::Unknown => request.argv.clone(),
            Expected::Text(_) | Expected::Finish(_) | Expected::Ask => None,
        };
        let members = [
            ("iteration", json!(request.iteration), json!(call.iteration)),
            ("tool_name", json!(request.tool_name), json!(call.tool)),
            ("tool_args", request.tool_args.clone(), recorded_arguments(&arguments)),
            ("argv", json!(request.argv), json!(argv)),
        ];
        for (member, said, known) in members {
            let what = format!("the call {} ({}), its {member}", call.id, call.tool);
            self.report.differ(Difference::of(at, what, &said.to_string(), &known.to_string()));
        }
        self.expected.insert(call.id, expected);
    }

    /// What a call comes to, and its arguments in the end.
    fn expectation(&mut self, request: &ActionRequest, call: &Call) -> (Expected, String) {
        let arguments = call.arguments.clone();
        let Some(config) = &self.config else { return (Expected::Unknown, arguments) };
        let execution = request.execution.clone();
        let ran = |Invocation { argv, stdin }| Expected::Ran { execution, argv, stdin };
        let invocation = match plan(&config.agent, &self.state, call, &config.vars) {
            Plan::Start(invocation) => invocation,
            Plan::Finish(result) => return (Expected::Finish(result), arguments),
            Plan::Ask(_) => return (Expected::Ask, arguments),
            Plan::Refuse(why) => return (Expected::Text(why), arguments),
        };
        if config.agent.hooks.get(Hook::PreToolExecution).is_none() {
            return (ran(invocation), arguments);
        }
        match self.verdict(call) {
            None => {
                let id = &call.id;
                self.report.skip(format!("the call {id}: what its hook said is not there"));
                // Then its arguments are taken as they are.
                (Expected::Unknown, request.tool_args.to_string())
            }
            Some(Verdict::Proceed) => (ran(invocation), arguments),
            Some(Verdict::Deny(reason)) => {
                (Expected::Text(engine::denied(&self.state, &reason)), arguments)
            }
            Some(Verdict::Replace(by)) => {
                let config = self.config.as_ref();
                let tool =
                    config.and_then(|config| Some((config.agent.tool(&call.tool)?, &config.vars)));
                let Some((tool, vars)) = tool else { return (Expected::Unknown, arguments) };
                match tool.check(&by) {
                    Ok(checked) => (ran(tool.invocation(&checked, vars)), by),
                    Err(why) => {
                        let why = format!("the hook gave arguments that do not fit.\n{why}");
                        (Expected::Text(engine::denied(&self.state, &why)), arguments)
                    }
                }
            }
        }
    }

    /// What pre_tool_execution said of a call.
    fn verdict(&mut self, call: &Call) -> Option<Verdict> {
        let record = self.fired(Hook::PreToolExecution)?;
        let ran = self.evidence.ran(&record, Some(call.iteration), self.report)?;
        let finished = self.evidence.finished(&record, &ran, engine::SHOWN, self.report)?;
        let configured = self.config.as_ref()?.agent.hooks.get(Hook::PreToolExecution)?;
        Some(answer::verdict(&finished, configured).0)
    }

    /// A call that has its result.
    pub(super) fn action_result(&mut self, result: &ActionResult) {
        let at = Some(result.iteration);
        let (id, tool) = (&result.call_id, &result.tool_name);
        let Some(expected) = self.expected.remove(id) else {
            if self.config.is_some() {
                let what = format!("the result of the call {id} ({tool})");
                self.report.differ(Difference::plain(
                    at,
                    what,
                    "it is there",
                    "its ACTION_REQUEST before it",
                ));
            }
            return;
        };
        match expected {
            Expected::Ran { execution, argv, stdin } => {
                self.ran(result, execution.as_deref(), &argv, &stdin);
            }
            Expected::Text(text) => self.differ(result, &text, None),
            Expected::Finish(output) => {
                self.differ(result, FINISHED, Some(&output));
                if let Some(record) = &result.execution {
                    let _ = self.evidence.text(record, at, self.report);
                }
            }
            Expected::Ask => self.differ(result, "what the person answered", None),
            Expected::CutShort => self.report.skip(format!(
                "the result of the call {id} ({tool}), whose process ended before it did"
            )),
            Expected::Unknown if self.config.is_none() => {}
            Expected::Unknown => {
                self.report.skip(format!("the result of the call {id} ({tool})"));
            }
        }
    }

    fn differ(&mut self, result: &ActionResult, text: &str, output: Option<&Json>) {
        let at = Some(result.iteration);
        let call = format!("{} ({})", result.call_id, result.tool_name);
        let what = format!("the observation of the call {call}");
        self.report.differ(Difference::of(at, what, &result.observation_content, text));
        let (said, known) = (json!(result.result).to_string(), json!(output).to_string());
        let what = format!("the result that the call {call} gives the run");
        self.report.differ(Difference::of(at, what, &said, &known));
    }

    /// Compares the result of a command with its record.
    fn ran(
        &mut self,
        result: &ActionResult,
        execution: Option<&str>,
        argv: &[String],
        stdin: &str,
    ) {
        let at = Some(result.iteration);
        let call = format!("{} ({})", result.call_id, result.tool_name);
        let (said, known) = (json!(result.execution).to_string(), json!(execution).to_string());
        self.report.differ(Difference::of(
            at,
            format!("the record of the call {call}"),
            &said,
            &known,
        ));
        let Some(record) = execution else { return };
        let Some(ran) = self.evidence.ran(record, at, self.report) else { return };
        self.invocation(result, record, &ran, (argv, stdin));
        let Some(config) = &self.config else { return };
        let Some(tool) = config.agent.tool(&result.tool_name) else { return };
        let (keep, timeout_ms) = (tool.max_output_bytes, tool.timeout_ms);
        let Some(finished) = self.evidence.finished(record, &ran, keep, self.report) else {
            return;
        };
        let place = format!(".delta/{}/io/tool_executions", self.run_id);
        let file = record.rsplit('/').next().unwrap_or(record);
        let seen = observe(&finished, timeout_ms, &place, file);
        let Some(text) = self.shown(result, seen.text) else { return };
        self.differ(result, &text, None);
        let of = |exit_code, duration_ms, truncated| {
            json!({"exit_code": exit_code, "duration_ms": duration_ms, "truncated": truncated})
                .to_string()
        };
        let said = of(result.exit_code, result.duration_ms, result.truncated);
        let known = of(seen.exit_code, ran.duration_ms, seen.truncated);
        self.report.differ(Difference::of(
            at,
            format!("the result of the call {call}"),
            &said,
            &known,
        ));
    }

    /// Compares what was started with what was to be.
    fn invocation(
        &mut self,
        result: &ActionResult,
        record: &str,
        ran: &Ran,
        (argv, stdin): (&[String], &str),
    ) {
        let members = [
            ("tool", json!(ran.tool), json!(result.tool_name)),
            ("call_id", json!(ran.call_id), json!(result.call_id)),
            ("argv", json!(ran.argv), json!(argv)),
            ("stdin", ran.stdin.clone(), json!(stdin)),
        ];
        for (member, said, known) in members {
            let what = format!("{record}, its {member}");
            self.report.differ(Difference::of(
                Some(result.iteration),
                what,
                &said.to_string(),
                &known.to_string(),
            ));
        }
    }

    /// What the LLM was shown of an observation; `None` when that cannot be told.
    fn shown(&mut self, result: &ActionResult, text: String) -> Option<String> {
        let hook = Hook::PostToolExecution;
        let Some(configured) = self.config.as_ref()?.agent.hooks.get(hook).cloned() else {
            return Some(text);
        };
        let unfiltered = match configured.on_failure {
            OnFailure::Fail => engine::WITHHELD.to_owned(),
            OnFailure::Ignore => text.clone(),
        };
        let Some(record) = self.fired(hook) else { return Some(unfiltered) };
        let ran = self.evidence.ran(&record, Some(result.iteration), self.report)?;
        let finished = self.evidence.finished(&record, &ran, engine::SHOWN, self.report)?;
        Some(match answer::observation(&finished, &configured) {
            Ok(Some(given)) => given,
            Ok(None) => text,
            Err(_) => unfiltered,
        })
    }
}
