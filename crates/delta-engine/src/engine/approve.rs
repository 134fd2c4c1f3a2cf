//! Approvals in the loop: a call that needs one is asked about, and starts only as it was approved.
//!
//! The question is durable before it is asked, and the decision before the tool starts. What was decided is applied by
//! the step that runs the call, so that a process that continues the run does the same.

use super::approved_files::{
    CodeFiles, ShadowingProgram, changed_names, hashed_file, started_files,
};
use super::execute::{ApprovedCall, DecidedCall};
use super::{Engine, EngineError};
use delta_agent::allowed_calls::CallIdentity;
use delta_agent::approval_prompt::{ApprovalAnswer, ApprovalPrompt};
use delta_agent::ask_human;
use delta_agent::file_preview::preview_file_change;
use delta_agent::run_sandbox::followed_paths;
use delta_agent::tool::Tool;
use delta_plan::approval_plan::{ApprovalPlan, plan_approval};
use delta_plan::checked_call::CheckedCall;
use delta_run::event::Payload;
use delta_run::event::approval::{ApprovalRequest, ApprovalSource, CallApproval, RequestNaming};
use delta_run::run::{Run, RunNotice};
use delta_run::run_result::call_diff_command;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

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
            ApprovalPlan::Approved { by: ApprovalSource::Rule, .. }
                if let Some(program) = self.shadowing_program(run, &checked) =>
            {
                run.notify(RunNotice::Warning(&format!(
                    "PATH leads to {} of the workspace in place of {}",
                    program.path.display(),
                    program.hides.display()
                )));
                return Ok(Some(Box::new(self.approval_request(run, checked, None)?.0)));
            }
            ApprovalPlan::Approved { by, at, rule } => {
                let approval = run.state().asked_approval(&checked.call().id);
                // Who says yes to everything does not look.
                let approval = approval.filter(|_| by != ApprovalSource::Flag);
                if let Some(mut then) = approval.map(|approval| approval.request.clone()) {
                    // Hashes with another operator's key cannot be compared with the values here.
                    let has_other_key =
                        run.state().operator_approval().is_some_and(|one| one.renew);
                    then.environment = then.environment.filter(|_| !has_other_key);
                    let now = self.approval_request(run, checked.clone(), then.rule)?;
                    let changed = changes_since(&then, &now.0, &now.1, &vars.cwd);
                    if !changed.is_empty() {
                        return Ok(Some(Box::new(ApprovalRequest { changed, ..now.0 })));
                    }
                }
                let at = at.unwrap_or_else(|| (self.clock)());
                Some(CallApproval { by, at, rule })
            }
            ApprovalPlan::Ask { rule } => {
                let (request, _) = self.approval_request(run, checked.clone(), rule)?;
                let Some(approval) = self.granted_approval(run, &request, &checked) else {
                    return Ok(Some(Box::new(request)));
                };
                Some(approval)
            }
            ApprovalPlan::Deny(reason) => {
                batch.push(DecidedCall::Refuse(checked.into_call(), reason));
                return Ok(None);
            }
        };
        batch.push(DecidedCall::Start(Box::new(ApprovedCall::new(checked, approval))));
        Ok(None)
    }

    /// The program of the workspace that a call would start in place of the one in `commands`; `None` if a person has approved
    /// every call of the tool.
    fn shadowing_program(&self, run: &Run, checked: &CheckedCall<'_>) -> Option<ShadowingProgram> {
        let tool = checked.tool();
        if run.state().tool_approved_since(&tool.name).is_some() {
            return None;
        }
        let words = tool.approval_policy().command_words(&tool.parameters, checked.arguments());
        ShadowingProgram::find(&words, &self.launch_call(checked.call(), tool))
    }

    /// The question about a call as it would start now, and the files of the workspace that it may reach. For a tool of an MCP
    /// server, which starts nothing, only the call itself is approved.
    fn approval_request(
        &self,
        run: &Run,
        checked: CheckedCall<'_>,
        rule: Option<u32>,
    ) -> Result<(ApprovalRequest, CodeFiles), EngineError> {
        let tool = checked.tool();
        let command_sha256 = tool.command_sha256(checked.invocation(), self.environment.vars());
        let tool_args = checked.arguments().json().clone();
        let words = tool.approval_policy().command_words(&tool.parameters, checked.arguments());
        let (call, _, invocation) = checked.into_parts();
        let mut request = ApprovalRequest {
            iteration: call.iteration,
            tool_name: call.tool.clone(),
            tool_args,
            command_sha256,
            files: None,
            environment: None,
            workspace: None,
            changed: Vec::new(),
            argv: invocation.argv,
            call_id: call.id.clone(),
            rule,
            stage: None,
            named_by: Some(RequestNaming::Chain),
        };
        if tool.mcp.is_some() {
            return Ok((request, CodeFiles::default()));
        }
        let launch = self.launch_call(&call, tool);
        // Without what the tool sets: its PATH may lead to programs of the workspace.
        let env = self.environment.launch(call.iteration, &[], []).env;
        let home = env.get("HOME").map(Path::new);
        let followed = followed_paths(&launch.cwd, &env, home);
        let code = CodeFiles::list(&launch.cwd, followed, &self.cancel)?;
        let mut files = started_files(&request.argv, &launch);
        let shadowing = ShadowingProgram::find(&words, &launch);
        files.extend(shadowing.map(|ShadowingProgram { path, .. }| {
            // A file that cannot be read can be started.
            hashed_file(&path)
                .unwrap_or_else(|| (path.to_string_lossy().into_owned(), String::new()))
        }));
        // The question shows the change of this file. What is remembered of a call does not depend on it.
        let preview = tool.preview.as_ref().filter(|_| tool.remember.is_none());
        let path = preview.and_then(|preview| request.tool_args.get(&preview.path)?.as_str());
        files.extend(path.and_then(|path| hashed_file(&launch.cwd.join(path))));
        request.files = Some(files);
        request.workspace = code.fingerprint().cloned();
        request.environment = run.seal_key().map(|key| {
            let of_person =
                launch.env.iter().filter(|(name, _)| self.environment.is_approved_variable(name));
            let hashed = of_person.map(|(name, value)| {
                let hash = key.hash_variable(name.as_encoded_bytes(), value.as_encoded_bytes());
                (name.to_string_lossy().into_owned(), hash)
            });
            hashed.collect()
        });
        Ok((request, code))
    }

    /// What the operator can allow in later runs of the directory, too.
    fn lasting_identity(&self, run: &Run, request: &ApprovalRequest) -> Option<CallIdentity> {
        let mut answers = run.state().sensitive.answers.iter();
        if answers.any(|answer| request.argv.iter().any(|word| word.contains(answer.as_str()))) {
            return None;
        }
        let vars = self.environment.vars();
        let identity = CallIdentity::new(self.agent, vars, self.environment.sandbox()?, request)?;
        self.grants.store_for(&identity).is_some().then_some(identity)
    }

    /// The approval that the operator gave in config.yaml, or in an earlier run.
    fn granted_approval(
        &self,
        run: &Run,
        request: &ApprovalRequest,
        checked: &CheckedCall<'_>,
    ) -> Option<CallApproval> {
        let sandbox = self.environment.sandbox()?;
        let arguments = checked.arguments();
        let tool = checked.tool();
        let launch = self.launch_call(checked.call(), tool);
        let rule = self.grants.listed_entry(sandbox, request, tool, arguments, &|words| {
            ShadowingProgram::find(words, &launch).is_none()
        });
        if rule.is_some() {
            return Some(CallApproval { by: ApprovalSource::Config, at: (self.clock)(), rule });
        }
        let identity = self.lasting_identity(run, request)?;
        let calls = self.grants.store_for(&identity)?;
        let at = calls.allowed_at(&identity, request.files.as_ref()?)?;
        Some(CallApproval { by: ApprovalSource::Remembered, at, rule: None })
    }

    /// Allows the call in later runs. If that cannot be written, the call starts once.
    fn remember_approval(&self, run: &mut Run, request: &ApprovalRequest, open: Vec<String>) {
        let Some(identity) = self.lasting_identity(run, request) else { return };
        let Some(calls) = self.grants.store_for(&identity) else { return };
        if let Err(error) = calls.allow(identity, request, open, (self.clock)()) {
            run.notify(RunNotice::Warning(&format!("the approval is for this call only: {error}")));
        }
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
        let tool = self.agent.tool(&request.tool_name);
        let open = tool.map(Tool::open_parameters).unwrap_or_default();
        let preview = tool.and_then(|tool| tool.preview.as_ref());
        let preview = preview.map(|preview| {
            preview_file_change(preview, &request.tool_args, &self.environment.vars().cwd)
        });
        let diff_command = call_diff_command(run.state().start.as_ref());
        let changes = request.stage.as_ref().map(|stage| stage.described_changes(&diff_command));
        let preview = changes.or(preview);
        let hidden = run.state().sensitive.answers.clone();
        let agent_home = self.agent.home.to_string_lossy();
        let prompt = ApprovalPrompt {
            request,
            preview: preview.as_deref(),
            hidden: &hidden,
            agent_home: &agent_home,
            remember: self.lasting_identity(run, request).is_some().then_some(&open[..]),
        };
        match self.human.as_mut().map(|human| human.approve(&prompt)) {
            Some(Ok(Some(answer))) => {
                if answer.for_project {
                    self.remember_approval(run, request, open);
                }
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

/// The most names of changes in a question.
const MAX_CHANGED_NAMES: usize = 20;

/// The names of what a person has approved, in a question of this version, that is not as it was; `code` has the files of the
/// workspace as they are.
fn changes_since(
    then: &ApprovalRequest,
    now: &ApprovalRequest,
    code: &CodeFiles,
    workspace: &Path,
) -> Vec<String> {
    let differing = |then: &Option<BTreeMap<_, _>>, now: &Option<BTreeMap<_, _>>| {
        let maps = then.as_ref().zip(now.as_ref());
        maps.map(|(then, now)| changed_names(then, now, workspace)).unwrap_or_default()
    };
    let variables = differing(&then.environment, &now.environment);
    let mut names: BTreeSet<String> = variables.iter().map(|name| format!("${name}")).collect();
    names.extend(differing(&then.files, &now.files));
    let in_workspace = then.workspace.as_ref().map(|then| code.names_changed_since(then));
    names.extend(in_workspace.unwrap_or_default());
    let more = names.len().saturating_sub(MAX_CHANGED_NAMES);
    let first_names = names.into_iter().take(MAX_CHANGED_NAMES);
    first_names.chain((more > 0).then(|| format!("{more} more"))).collect()
}

fn record_decision(run: &mut Run, request: &ApprovalRequest, answer: ApprovalAnswer) {
    run.record(Payload::ApprovalDecision(Box::new(answer.decision_on(request))));
}
