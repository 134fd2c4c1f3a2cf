//! The sandbox of a call: its name before the call starts, and what it refused afterwards.

use super::Engine;
use super::execute::{ApprovedCall, StartingCall};
use super::staged_call::CallLayer;
use delta_agent::run_sandbox::ActiveSandbox;
use delta_agent::tool::Tool;
use delta_process::{self as process, LaunchContext, OutputCapture, ProcessEnd, ProcessResult};
use delta_run::event::{CallSandbox, HostTrafficRecord};
use delta_run::record::ExecutionSandbox;
use delta_run::run::{Run, RunNotice};
use delta_run::run_result::ContinueCommand;
use delta_sandbox::{
    CallFacts, NetAccess, NetworkReport, join_paths, parse_host_rule, sandbox_hint,
};
use std::path::PathBuf;

/// How many hosts one line names.
const MAX_NAMED_HOSTS: usize = 8;

/// The exit code of a program that does not exist.
const NOT_FOUND: i32 = 127;

/// What is recorded of a call's sandbox.
#[derive(Debug, Default)]
pub(super) struct SandboxOutcome {
    /// In ACTION_RESULT.
    pub(super) result: Option<Box<CallSandbox>>,
    /// In the record of the execution.
    pub(super) execution: Option<ExecutionSandbox>,
}

impl Engine<'_> {
    /// The sandbox of a tool, prepared again if one of its paths was replaced.
    ///
    /// # Errors
    /// The observation for the LLM: the call must not start.
    pub(super) fn refreshed_sandbox(
        &self,
        tool: &Tool,
    ) -> Result<Option<ActiveSandbox<'_>>, String> {
        let sandbox = self.environment.sandbox().and_then(|run| run.of_tool(&tool.name));
        if let Some(sandbox) = sandbox {
            sandbox.refresh().map_err(|failure| {
                format!("The tool could not be started: {failure}; nothing was started.")
            })?;
        }
        Ok(sandbox)
    }

    /// The name of a tool's profile in ACTION_REQUEST; `None` if the run has no sandbox.
    pub(super) fn sandbox_name(&self, tool: &Tool) -> Option<String> {
        Some(self.environment.sandbox()?.record().profile_of_tool(&tool.name).to_owned())
    }

    /// Tells the operator how to allow what a sandbox has refused on the network, once for the same hosts. Not where the operator
    /// limits the sandbox: the option would change nothing.
    fn name_network_options(
        &self,
        run: &mut Run,
        sandbox: ActiveSandbox<'_>,
        facts: &CallFacts<'_>,
    ) {
        let is_limited =
            self.environment.sandbox().is_none_or(|one| !one.record().policy.is_empty());
        let is_without = facts.attempts > 0 && sandbox.profile().net == NetAccess::None;
        let refused = facts.refused.keys().map(String::as_str);
        let mut hosts: Vec<&str> = refused.filter(|host| parse_host_rule(host).is_ok()).collect();
        if is_without {
            hosts.push("HOST");
        }
        if hosts.is_empty() {
            return;
        }
        let options = hosts.iter().take(MAX_NAMED_HOSTS).map(|host| format!("--net {host}"));
        let options: Vec<String> = options.collect();
        let options = options.join(" ");
        if is_limited || !self.named_hosts.borrow_mut().insert(options.clone()) {
            return;
        }
        let next = ContinueCommand::from_state(run.state());
        let text = format!("to allow this network: `{next} {options}`, or `net` in config.yaml");
        run.notify(RunNotice::Warning(&text));
    }

    /// What the sandbox of a tool did during a call.
    pub(super) fn sandbox_outcome(
        &self,
        run: &mut Run,
        starting: &StartingCall<'_>,
        finished: &ProcessResult,
    ) -> SandboxOutcome {
        let ApprovedCall { tool, invocation, .. } = &starting.approved;
        let sandbox =
            self.environment.sandbox().and_then(|sandboxes| sandboxes.of_tool(&tool.name));
        let Some(sandbox) = sandbox else { return SandboxOutcome::default() };
        // A call with a workspace of its own has the sandbox for itself.
        let report = starting.layer.as_ref().and_then(CallLayer::take_network_report);
        let NetworkReport { attempts, loopback_refusals, refused, reached, failed } =
            report.unwrap_or_else(|| sandbox.take_network_report());
        let output = output_end(&finished.stdout) + &output_end(&finished.stderr);
        let appeared = sandbox.appeared_paths();
        let facts = CallFacts {
            has_failed: !matches!(finished.end, ProcessEnd::Exited(0)),
            output: &output,
            refused: &refused,
            failed: &failed,
            attempts,
            loopback_refusals,
            hidden_program: hidden_program(&invocation.argv, &starting.launch, &finished.end),
            appeared: &appeared,
        };
        self.name_network_options(run, sandbox, &facts);
        let workspace = &self.environment.vars().cwd;
        let hint = sandbox_hint(sandbox.profile(), workspace, &facts);
        let reached = reached.into_iter().map(|(host, traffic)| {
            let record = HostTrafficRecord {
                connections: traffic.connections,
                sent: traffic.sent,
                received: traffic.received,
            };
            (host, record)
        });
        let execution = ExecutionSandbox {
            profile: sandbox.name().to_owned(),
            hint,
            reached: reached.collect(),
        };
        let result = CallSandbox { refused, attempts };
        let has_refused = result != CallSandbox::default();
        if !appeared.is_empty() {
            let pronoun = if appeared.len() == 1 { "it" } else { "them" };
            let warning = format!(
                "a call of {} has made {}, which git follows: look at {pronoun} before you use git",
                tool.name,
                join_paths(&appeared)
            );
            run.notify(RunNotice::Warning(&warning));
        }
        SandboxOutcome { result: has_refused.then(|| Box::new(result)), execution: Some(execution) }
    }
}

/// The program that delta finds and the process did not.
fn hidden_program(argv: &[String], launch: &LaunchContext, end: &ProcessEnd) -> Option<PathBuf> {
    let ProcessEnd::NotStarted { code: NOT_FOUND, .. } = end else { return None };
    process::find_program(argv.first()?, launch).ok()
}

/// The end of what a stream had.
fn output_end(capture: &OutputCapture) -> String {
    let bytes = match &capture.whole {
        Some(bytes) => bytes,
        None if capture.tail.is_empty() => &capture.head,
        None => &capture.tail,
    };
    String::from_utf8_lossy(bytes).into_owned()
}
