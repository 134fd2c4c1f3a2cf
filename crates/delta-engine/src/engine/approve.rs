//! Approvals in the loop: a call that needs one is asked about, and starts only as it was approved.
//!
//! The question is durable before it is asked, and the decision before the tool starts. What was decided is applied by
//! the step that runs the call, so that a process that continues the run does the same.

use super::approved_files::started_files;
use super::execute::{ApprovedCall, DecidedCall};
use super::{Engine, EngineError};
use delta_agent::approval_prompt::{ApprovalAnswer, ApprovalPrompt};
use delta_agent::ask_human;
use delta_agent::file_preview::preview_file_change;
use delta_plan::approval_plan::{ApprovalPlan, plan_approval, refuse_changed_file};
use delta_plan::checked_call::CheckedCall;
use delta_run::event::Payload;
use delta_run::event::approval::{ApprovalRequest, ApprovalSource, CallApproval, RequestNaming};
use delta_run::run::{Run, RunNotice};
use delta_run::run_result::call_diff_command;
use std::collections::BTreeMap;
use std::io;

impl<'a> Engine<'a> {
    /// Adds a call that has passed its gate to the batch, if it is approved or needs no approval; returns the question
    /// otherwise.
    pub(super) fn decide_approval(
        &self,
        run: &mut Run,
        checked: CheckedCall<'a>,
        batch: &mut Vec<DecidedCall<'a>>,
    ) -> Result<Option<Box<ApprovalRequest>>, EngineError> {
        let is_decided = run.state().asked_approval(&checked.call().id).is_some();
        if is_decided {
            // The decision is durable, so its files are no longer needed.
            run.commit()?;
            ask_human::clear_interaction(&run.dir);
        }
        let vars = self.environment.vars();
        let approval = match plan_approval(run.state(), &checked, vars) {
            ApprovalPlan::NotRequired => None,
            ApprovalPlan::Approved { by, at, rule } => {
                let approval = run.state().asked_approval(&checked.call().id);
                let has_files = approval.is_some_and(|approval| approval.request.files.is_some());
                let files = if has_files { self.started_files(&checked) } else { None };
                let refusal =
                    files.and_then(|now| refuse_changed_file(run.state(), checked.call(), &now));
                if let Some(reason) = refusal {
                    batch.push(DecidedCall::Refuse(checked.into_call(), reason));
                    return Ok(None);
                }
                let at = at.unwrap_or_else(|| (self.clock)());
                Some(CallApproval { by, at, rule })
            }
            ApprovalPlan::Ask { rule } => {
                let command_sha256 = checked.tool().command_sha256(checked.invocation(), vars);
                let files = self.started_files(&checked);
                let tool_args = checked.arguments().json().clone();
                let (call, _, invocation) = checked.into_parts();
                return Ok(Some(Box::new(ApprovalRequest {
                    iteration: call.iteration,
                    tool_name: call.tool,
                    tool_args,
                    command_sha256,
                    files,
                    argv: invocation.argv,
                    call_id: call.id,
                    rule,
                    stage: None,
                    named_by: Some(RequestNaming::Chain),
                })));
            }
            ApprovalPlan::Deny(reason) => {
                batch.push(DecidedCall::Refuse(checked.into_call(), reason));
                return Ok(None);
            }
        };
        batch.push(DecidedCall::Start(Box::new(ApprovedCall::new(checked, approval))));
        Ok(None)
    }

    /// What an approval of the call is bound to; `None` for a tool of an MCP server, which starts nothing.
    fn started_files(&self, checked: &CheckedCall<'_>) -> Option<BTreeMap<String, String>> {
        let tool = checked.tool();
        let launch = self.launch_call(checked.call(), tool);
        tool.mcp.is_none().then(|| started_files(&checked.invocation().argv, &launch))
    }

    /// Waits for a decision at the terminal; returns false if another process has to deliver it.
    pub(super) fn wait_for_approval(
        &mut self,
        run: &mut Run,
        request: &ApprovalRequest,
    ) -> Result<bool, EngineError> {
        run.commit()?;
        let is_approved_tool = run.state().tool_approved_since(&request.tool_name).is_some();
        let approves_all = run.state().operator_approval().is_some_and(|operator| operator.all);
        let flag = approves_all.then_some(ApprovalSource::Flag);
        // Who approved every later call of the tool has approved what it changes.
        let is_approved = request.stage.is_some() && is_approved_tool;
        if let Some(source) = flag.or(is_approved.then_some(ApprovalSource::Terminal)) {
            record_decision(run, request, ApprovalAnswer::new(true, source, None));
            return Ok(true);
        }
        run.notify(RunNotice::WaitingForApproval(request));
        let preview = self.agent.tool(&request.tool_name).and_then(|tool| tool.preview.as_ref());
        let preview = preview.map(|preview| {
            preview_file_change(preview, &request.tool_args, &self.environment.vars().cwd)
        });
        let diff_command = call_diff_command(run.state().start.as_ref());
        let changes = request.stage.as_ref().map(|stage| stage.described_changes(&diff_command));
        let preview = changes.or(preview);
        let hidden = run.state().sensitive_answers.clone();
        let agent_home = self.agent.home.to_string_lossy();
        let prompt = ApprovalPrompt {
            request,
            preview: preview.as_deref(),
            hidden: &hidden,
            agent_home: &agent_home,
        };
        match self.human.as_mut().map(|human| human.approve(&prompt)) {
            Some(Ok(Some(answer))) => {
                record_decision(run, request, answer);
                return Ok(true);
            }
            Some(Err(_)) if self.cancel.is_requested() => return Err(EngineError::Cancelled),
            Some(Err(error)) if error.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(EngineError::Human(error));
            }
            // Without an answer the run waits, as without a terminal.
            Some(Err(_) | Ok(None)) | None => {}
        }
        ask_human::remove_old_interaction(&run.dir)?;
        let preview = preview.map(|preview| run.secrets().redact(&preview).into_owned());
        let now = (self.clock)();
        ask_human::write_interaction_request(&run.dir, run.state(), preview.as_deref(), now)?;
        Ok(false)
    }
}

fn record_decision(run: &mut Run, request: &ApprovalRequest, answer: ApprovalAnswer) {
    run.record(Payload::ApprovalDecision(Box::new(answer.decision_on(request))));
}
