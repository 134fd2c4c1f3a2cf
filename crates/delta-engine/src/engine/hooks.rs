//! Hooks in the loop: how they are started and recorded, and how their answers take effect.
//!
//! All events are durable before a hook starts, because it may read the journal. Its answer is
//! recorded before it takes effect. After a crash in between, the hook runs again; what it guards
//! does not.

use super::process_outcome::process_outcome;
use super::{Engine, EngineError};
use delta_agent::child_environment::HOOK_NAME_VARIABLE;
use delta_agent::hook::answer::{self, GateVerdict, HookAnswer, HookFailure};
use delta_agent::hook::{HookConfig, HookFailurePolicy, HookPoint};
use delta_agent::tool::invocation::{CheckedArguments, canonical_arguments};
use delta_agent::tool::observation::Observation;
use delta_base::engine_variables::EngineVariable;
use delta_base::signal::CancelToken;
use delta_base::time::Timestamp;
use delta_plan::checked_call::CheckedCall;
use delta_plan::hook_observation::{
    ENDED_BY_HOOK_OBSERVATION, SHOWN_STDERR_BYTES, denied_observation, withheld_observation,
};
use delta_process::{
    self as process, INLINE_BYTES, MAX_SPOOL_BYTES, ProcessCommand, ProcessEnd, ProcessResult,
    ProgramError, SpoolFiles,
};
use delta_run::event::{HookEnd, Payload};
use delta_run::record::HookExecutionRecord;
use delta_run::run::{Run, RunNotice};
use delta_run::state::PendingCall;
use serde::Serialize;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::time::Duration;

/// Why a call is denied if its gate would see something other than what runs. The agent can cause
/// this, because a key may come from a file it has written.
const SECRET_IN_CALL: &str = "cannot be shown the call: it holds the value of a key variable";

/// The input of one hook run, besides what every hook gets.
#[derive(Debug, Default)]
pub(super) struct HookInput {
    /// Entries of the JSON object, each after a comma.
    payload: String,
    env: Vec<(&'static str, String)>,
}

impl HookInput {
    /// Adds an entry to the JSON object on standard input.
    pub(super) fn with_entry(self, key: &str, value: &impl Serialize) -> Self {
        let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.with_json_entry(key, &json)
    }

    /// Adds an entry whose value is JSON text.
    pub(super) fn with_json_entry(mut self, key: &str, json: &str) -> Self {
        self.payload.push_str(&format!(",\"{key}\":{json}"));
        self
    }

    /// Adds an environment variable.
    pub(super) fn with_env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// The input of on_error.
    pub(super) fn for_error(kind: &str, message: &str) -> Self {
        let error = serde_json::json!({"type": kind, "message": message});
        Self::default().with_entry("error", &error).with_env("ERROR_MESSAGE", message)
    }

    /// The input of both tool hooks. Only a call of an earlier process comes without `checked`: what it started was
    /// checked there.
    #[expect(
        clippy::disallowed_methods,
        reason = "the call of a dead process is not checked again"
    )]
    fn for_tool(call: &PendingCall, checked: Option<&CheckedArguments>) -> Self {
        let arguments: Cow<'_, str> = match checked {
            Some(arguments) => arguments.object_text().into(),
            None => canonical_arguments(&call.arguments).unwrap_or_else(|_| "{}".to_owned()).into(),
        };
        Self::default()
            .with_entry("call_id", &call.id)
            .with_entry("tool", &call.tool)
            .with_json_entry("arguments", &arguments)
            .with_env("TOOL_NAME", call.tool.clone())
            .with_env("TOOL_ARGS", arguments)
    }
}

/// What pre_tool_execution has decided about a call.
pub(super) enum GateOutcome<'a> {
    /// It may start as it is.
    Proceed,
    /// It may start with other arguments.
    Replace(Box<CheckedCall<'a>>),
    /// It starts nothing; the LLM gets this observation.
    Deny(String),
}

/// A hook that has run.
pub(super) struct HookRun<'a> {
    hook: HookPoint,
    pub(super) config: &'a HookConfig,
    pub(super) finished: ProcessResult,
    iteration: u32,
    stem: String,
    argv: Vec<String>,
    stdin: String,
    started_at: Timestamp,
}

impl HookRun<'_> {
    fn record_path(&self) -> String {
        format!("io/hooks/{}.json", self.stem)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        matches!(
            self.finished.end,
            ProcessEnd::Cancelled | ProcessEnd::OutOfTime | ProcessEnd::ForMessage
        )
    }

    pub(super) fn to_error(&self, failure: &HookFailure) -> EngineError {
        let message = format!("the hook {} {}", self.hook.name(), failure.reason);
        EngineError::Hook { hook: self.hook, message, record: self.record_path() }
    }
}

/// What a hook changed or decided, for its record.
#[derive(Default)]
pub(super) struct HookEffect<'a> {
    pub(super) changed: Option<&'static str>,
    pub(super) decision: Option<&'static str>,
    pub(super) failure: Option<&'a HookFailure>,
    pub(super) end: Option<HookEnd>,
}

impl<'a> Engine<'a> {
    /// Runs the hook that is configured for a point; `None` if there is none.
    pub(super) fn run_hook(
        &self,
        run: &mut Run,
        hook: HookPoint,
        iteration: u32,
        input: impl FnOnce() -> HookInput,
        cancel: &CancelToken,
    ) -> Result<Option<HookRun<'a>>, EngineError> {
        let Some(config) = self.agent.hooks.get(hook) else { return Ok(None) };
        if cancel.is_requested() {
            return Err(EngineError::Cancelled);
        }
        run.commit_act()?;
        let vars = self.environment.vars();
        let argv: Vec<String> = config.command.iter().map(|word| vars.expand_text(word)).collect();
        let HookInput { payload, env } = input();
        let name = hook.name();
        let run_id = Json::from(run.id.as_str());
        let stdin = format!(
            "{{\"hook\":\"{name}\",\"run_id\":{run_id},\"iteration\":{iteration}{payload}}}\n"
        );
        let stdin = run.secrets().redact(&stdin).into_owned();
        let started_at = (self.clock)();
        let stem =
            run.records.reserve_stem("hooks", &format!("{name}_{}", started_at.to_compact()));
        let launch = self.environment.launch_hook(iteration, &config.pass_env, name, &stem, &env);
        let directory = run.records.dir("hooks");
        let run_dir = run.dir.to_string_lossy();
        let timeout = Duration::from_millis(config.timeout_ms);
        let command = ProcessCommand {
            stdin: stdin.as_bytes(),
            spool: Some(SpoolFiles {
                dir: &directory,
                stem: &stem,
                inline_bytes: INLINE_BYTES,
                max_bytes: MAX_SPOOL_BYTES,
                continues_output: false,
            }),
            capture_whole: true,
            marks: &[("RUN_DIR", &run_dir), (HOOK_NAME_VARIABLE, name), ("DELTA_CALL_ID", &stem)],
            ..ProcessCommand::new(&argv, &launch, timeout, SHOWN_STDERR_BYTES)
        };
        let finished = process::run_process(&command, cancel);
        if !finished.left.ended.is_empty() {
            let commands = finished.left.ended.join(", ");
            let text =
                format!("the hook {name} left processes running, which were ended: {commands}");
            run.notify(RunNotice::Warning(&text));
        }
        Ok(Some(HookRun { hook, config, finished, iteration, stem, argv, stdin, started_at }))
    }

    /// Warns before the first step of hooks whose program cannot be found.
    pub(super) fn warn_of_unstartable_hooks(&self, run: &mut Run) {
        for hook in HookPoint::ALL {
            let Some(config) = self.agent.hooks.get(hook) else { continue };
            // The run itself creates the files in its directory.
            let run_dir = format!("${{{}}}", EngineVariable::RunDir.name());
            let program = config.command.first().filter(|word| !word.contains(&run_dir));
            let Some(program) = program.map(|word| self.environment.vars().expand_text(word))
            else {
                continue;
            };
            let launch = self.environment.launch_hook(0, &[], hook.name(), "", &[]);
            let Err(ProgramError { reason, .. }) = process::find_program(&program, &launch) else {
                continue;
            };
            let consequence = match (hook, config.on_failure) {
                (HookPoint::PreToolExecution, HookFailurePolicy::Fail) => {
                    "; every call will be denied"
                }
                (_, HookFailurePolicy::Fail) => "; the run will fail",
                (_, HookFailurePolicy::Ignore) => "",
            };
            let text = format!("the hook {} cannot be started: {reason}{consequence}", hook.name());
            run.notify(RunNotice::Warning(&text));
        }
    }

    /// Records a hook run and its effect.
    pub(super) fn record_hook_run(
        &self,
        run: &mut Run,
        hook_run: &HookRun<'_>,
        effect: &HookEffect<'_>,
    ) -> Result<(), EngineError> {
        let finished = &hook_run.finished;
        let exit_code = match finished.end {
            ProcessEnd::Exited(code) | ProcessEnd::NotStarted { code, .. } => Some(code),
            _ => None,
        };
        let stdin = run.records.write_hook_stdin(&hook_run.stem, &hook_run.stdin)?;
        let record = run.records.write_hook(
            &hook_run.stem,
            &HookExecutionRecord {
                run_id: run.id.as_str().into(),
                iteration: hook_run.iteration,
                hook: hook_run.hook.name().into(),
                command: (&hook_run.argv[..]).into(),
                cwd: (&self.environment.vars().cwd).into(),
                stdin: Some(stdin),
                outcome: process_outcome(hook_run.started_at, finished, exit_code),
                changed: effect.changed.map(Into::into),
                decision: effect.decision.map(Into::into),
                failure: effect.failure.map(|failure| failure.reason.as_str().into()),
                held_stdout: finished.left.held_stdout,
            },
        )?;
        run.record(Payload::HookExecution {
            iteration: hook_run.iteration,
            hook: hook_run.hook.name().to_owned(),
            exit_code,
            record: record.name,
            record_sha256: Some(record.sha256),
            changed: effect.changed.is_some(),
            end: effect.end.clone().map(Box::new),
        });
        Ok(())
    }

    /// Applies the failure of a hook that is not a gate: a warning, or the end of the run.
    pub(super) fn apply_failure_policy(
        &self,
        run: &mut Run,
        hook_run: &HookRun<'_>,
        failure: Option<&HookFailure>,
    ) -> Result<(), EngineError> {
        let Some(failure) = failure else { return Ok(()) };
        if hook_run.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let error = hook_run.to_error(failure);
        match hook_run.config.on_failure {
            HookFailurePolicy::Fail => Err(error),
            HookFailurePolicy::Ignore => {
                run.notify(RunNotice::Warning(&error.to_string()));
                Ok(())
            }
        }
    }

    /// Warns that a call or request passed a gate whose hook failed.
    pub(super) fn warn_of_open_gate(
        &self,
        run: &mut Run,
        hook_run: &HookRun<'_>,
        failure: &HookFailure,
    ) {
        let text =
            format!("passed because of `on_failure: ignore`: {}", hook_run.to_error(failure));
        run.notify(RunNotice::Warning(&text));
    }

    /// Runs a hook that gives no answer.
    pub(super) fn run_notification_hook(
        &self,
        run: &mut Run,
        hook: HookPoint,
        iteration: u32,
        input: impl FnOnce() -> HookInput,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        let Some(hook_run) = self.run_hook(run, hook, iteration, input, cancel)? else {
            return Ok(());
        };
        let failure = answer::hook_failure(&hook_run.finished, hook_run.config);
        self.record_hook_run(
            run,
            &hook_run,
            &HookEffect { failure: failure.as_ref(), ..HookEffect::default() },
        )?;
        self.apply_failure_policy(run, &hook_run, failure.as_ref())
    }

    /// Runs on_iteration_start or on_iteration_end, unless an earlier process did: `last` is the iteration that it last
    /// ran for.
    pub(super) fn run_iteration_hook(
        &self,
        run: &mut Run,
        hook: HookPoint,
        iteration: u32,
        last: u32,
    ) -> Result<(), EngineError> {
        if last >= iteration {
            return Ok(());
        }
        self.run_notification_hook(run, hook, iteration, HookInput::default, &self.cancel)
    }

    /// Asks pre_tool_execution for consent.
    pub(super) fn ask_tool_gate(
        &self,
        run: &mut Run,
        checked: &CheckedCall<'a>,
    ) -> Result<GateOutcome<'a>, EngineError> {
        let hook = HookPoint::PreToolExecution;
        if self.agent.hooks.get(hook).is_none() {
            return Ok(GateOutcome::Proceed);
        }
        let call = checked.call();
        let input = HookInput::for_tool(call, Some(checked.arguments()))
            .with_entry("argv", &checked.invocation().argv);
        if run.secrets().occur_in(&input.payload) {
            let text = format!("call denied: the hook {} {SECRET_IN_CALL}", hook.name());
            run.notify(RunNotice::Warning(&text));
            return Ok(GateOutcome::Deny(denied_observation(
                run.state(),
                &call.id,
                &format!("the hook {SECRET_IN_CALL}"),
            )));
        }
        let Some(hook_run) = self.run_hook(run, hook, call.iteration, || input, &self.cancel)?
        else {
            return Ok(GateOutcome::Proceed);
        };
        let (verdict, failure) = answer::parse_gate_verdict(&hook_run.finished, hook_run.config);
        let mut changed = None;
        let mut end = None;
        let result = match verdict {
            GateVerdict::Proceed => Ok(GateOutcome::Proceed),
            GateVerdict::Deny(reason) => Err(reason),
            GateVerdict::End(demanded) => {
                end = Some(demanded);
                Err(String::new())
            }
            GateVerdict::Replace(arguments) => {
                let replaced = checked.with_gate_arguments(arguments, self.environment.vars());
                changed = replaced.is_ok().then_some("arguments");
                replaced.map(|replaced| GateOutcome::Replace(Box::new(replaced)))
            }
        };
        let result = result.map_err(|reason| match end {
            Some(_) => ENDED_BY_HOOK_OBSERVATION.to_owned(),
            None => denied_observation(run.state(), &call.id, &reason),
        });
        let decision = Some(if result.is_ok() { "allow" } else { "deny" });
        self.record_hook_run(
            run,
            &hook_run,
            &HookEffect { changed, decision, failure: failure.as_ref(), end },
        )?;
        // A signal received meanwhile also stops the call.
        if hook_run.is_cancelled() || self.cancel.is_requested() {
            return Err(EngineError::Cancelled);
        }
        if let Some(failure) = &failure {
            self.warn_of_failed_gate(run, &hook_run, failure, result.is_ok());
        }
        Ok(result.unwrap_or_else(GateOutcome::Deny))
    }

    fn warn_of_failed_gate(
        &self,
        run: &mut Run,
        hook_run: &HookRun<'_>,
        failure: &HookFailure,
        is_allowed: bool,
    ) {
        if is_allowed {
            self.warn_of_open_gate(run, hook_run, failure);
        } else if !matches!(hook_run.finished.end, ProcessEnd::Exited(1..)) {
            // An exit code is a regular way to deny, and the observation shows it.
            let text = format!("call denied: {}", hook_run.to_error(failure));
            run.notify(RunNotice::Warning(&text));
        }
    }

    /// Passes an observation to post_tool_execution, with the name of the record that has the output in full. Returns
    /// the observation for the LLM, and whether the run continues: the call has its result either way.
    pub(super) fn filter_observation(
        &self,
        run: &mut Run,
        call: &PendingCall,
        checked: Option<&CheckedArguments>,
        observation: Observation,
        execution: Option<&str>,
    ) -> (Observation, Result<(), EngineError>) {
        let hook = HookPoint::PostToolExecution;
        let must_pass = self
            .agent
            .hooks
            .get(hook)
            .is_some_and(|hook| hook.on_failure == HookFailurePolicy::Fail);
        let unfiltered = |observation: Observation| {
            if must_pass { withheld_observation(observation) } else { observation }
        };
        let result = self.run_hook(
            run,
            hook,
            call.iteration,
            || {
                let code = observation.exit_code.map_or_else(String::new, |code| code.to_string());
                HookInput::for_tool(call, checked)
                    .with_entry("result", &observation.described_text())
                    .with_entry("exit_code", &observation.exit_code)
                    .with_entry("execution", &execution)
                    .with_env("TOOL_RESULT", observation.described_text())
                    .with_env("TOOL_EXIT_CODE", code)
            },
            &self.cancel,
        );
        let hook_run = match result {
            Ok(None) => return (observation, Ok(())),
            Ok(Some(hook_run)) => hook_run,
            // The loop detects the stop request itself, once the result is recorded.
            Err(EngineError::Cancelled) => return (unfiltered(observation), Ok(())),
            Err(error) => return (unfiltered(observation), Err(error)),
        };
        let answer = answer::parse_observation_replacement(&hook_run.finished, hook_run.config);
        let valid = answer.as_ref().ok();
        let changed = valid.and_then(|answer| answer.replacement.as_ref()).map(|_| "observation");
        let end = valid.and_then(|answer| answer.end.clone());
        let failure = answer.as_ref().err();
        let result = self
            .record_hook_run(run, &hook_run, &HookEffect { changed, decision: None, failure, end })
            .and_then(|()| self.apply_failure_policy(run, &hook_run, failure));
        let observation = match answer {
            Ok(HookAnswer { replacement: Some(text), .. }) => {
                Observation { text, images: Vec::new(), ..observation }
            }
            Ok(_) => observation,
            Err(_) => unfiltered(observation),
        };
        (observation, result)
    }
}
