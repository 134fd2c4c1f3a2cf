//! Hooks in the loop: started, recorded, and what they said put into effect.
//!
//! Everything recorded is durable before a hook starts: it may read the journal. What it said is recorded before
//! anything follows from it. A crash between the two runs a hook twice, never what it guards.

use super::{Engine, EngineError, millis};
use crate::environment::HOOK_NAME;
use crate::event::Payload;
use crate::hook::answer::{self, Failure, Verdict};
use crate::hook::{Configured, Hook, OnFailure};
use crate::process::{self, Command, End, Finished, NotFound, Spool};
use crate::record::{self, HookExecution, Stream};
use crate::run::{Notice, Run};
use crate::signal::Cancel;
use crate::state::{Call, RunState, Step};
use crate::time::Timestamp;
use crate::tool::Tool;
use crate::tool::argv::{Invocation, canonical};
use crate::tool::observation::Observation;
use crate::vars::Variable;
use serde::Serialize;
use serde_json::Value as Json;
use std::time::Duration;

/// So much of a hook's standard error is shown.
pub const SHOWN: usize = 8 * 1024;

/// The observation in the place of one that has not passed a hook that it must pass.
pub const WITHHELD: &str = "[withheld: the hook post_tool_execution did not do its part; the tool has run, and its record is kept]";

/// Why a call is denied whose gate would see something else than what runs. The agent can make this happen: a key may be
/// of a file that it has written.
const UNSHOWN: &str = "cannot be shown the call: it holds the value of a key variable";

/// What one run of a hook is given beside what all get.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Entries of the JSON object, each with a comma before it.
    payload: String,
    env: Vec<(&'static str, String)>,
}

impl Input {
    /// With an entry of the JSON object on standard input.
    pub(super) fn with(self, key: &str, value: &impl Serialize) -> Self {
        let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.with_json(key, &json)
    }

    /// With an entry that is JSON already.
    pub(super) fn with_json(mut self, key: &str, json: &str) -> Self {
        self.payload.push_str(&format!(",\"{key}\":{json}"));
        self
    }

    /// With an environment variable.
    pub(super) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// What on_error gets.
    pub(super) fn of_error(kind: &str, message: &str) -> Self {
        let error = serde_json::json!({"type": kind, "message": message});
        Self::default().with("error", &error).env("ERROR_MESSAGE", message)
    }

    /// What both tool hooks get.
    fn of_tool(call: &Call) -> Self {
        let arguments = canonical(&call.arguments).unwrap_or_else(|_| "{}".to_owned());
        Self::default()
            .with("call_id", &call.id)
            .with("tool", &call.tool)
            .with_json("arguments", &arguments)
            .env("TOOL_NAME", call.tool.clone())
            .env("TOOL_ARGS", arguments)
    }
}

/// A hook that has run.
pub(super) struct Fired<'a> {
    hook: Hook,
    pub(super) configured: &'a Configured,
    pub(super) finished: Finished,
    iteration: u32,
    stem: String,
    argv: Vec<String>,
    stdin: String,
    started_at: Timestamp,
}

impl Fired<'_> {
    fn record(&self) -> String {
        format!("io/hooks/{}.json", self.stem)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.finished.end == End::Cancelled
    }

    pub(super) fn error(&self, failure: &Failure) -> EngineError {
        let (hook, record) = (self.hook, self.record());
        let message = format!("the hook {} {}", hook.name(), failure.reason);
        EngineError::Hook { hook, message, record }
    }
}

/// What came of a hook, for its record.
#[derive(Default)]
pub(super) struct Effect<'a> {
    pub(super) changed: Option<&'static str>,
    pub(super) decision: Option<&'static str>,
    pub(super) failure: Option<&'a Failure>,
}

impl<'a> Engine<'a> {
    /// Runs a hook; none when there is none for that moment, and then nothing is made for it.
    pub(super) fn fire(
        &self,
        run: &mut Run,
        hook: Hook,
        iteration: u32,
        input: impl FnOnce() -> Input,
        cancel: &Cancel,
    ) -> Result<Option<Fired<'a>>, EngineError> {
        let Some(configured) = self.agent.hooks.get(hook) else { return Ok(None) };
        if cancel.requested() {
            return Err(EngineError::Cancelled);
        }
        run.commit()?;
        let vars = self.environment.vars();
        let argv: Vec<String> = configured.command.iter().map(|word| vars.fill(word)).collect();
        let Input { payload, env } = input();
        let (name, run_id) = (hook.name(), Json::from(run.id.as_str()));
        let stdin = format!(
            "{{\"hook\":\"{name}\",\"run_id\":{run_id},\"iteration\":{iteration}{payload}}}\n"
        );
        let stdin = run.secrets().hide(&stdin).into_owned();
        let started_at = (self.clock)();
        let stem = run.records.fresh_stem("hooks", &format!("{name}_{}", started_at.compact()));
        let launch =
            self.environment.launch_hook(iteration, &configured.pass_env, (name, &stem), &env);
        let (directory, run_dir) = (run.records.dir("hooks"), run.dir.to_string_lossy());
        let command = Command {
            argv: &argv,
            launch: &launch,
            stdin: stdin.as_bytes(),
            timeout: Duration::from_millis(configured.timeout_ms),
            spool: Some(Spool { dir: &directory, stem: &stem }),
            keep: SHOWN,
            keep_all: true,
            marks: &[("RUN_DIR", &run_dir), (HOOK_NAME, name), ("DELTA_CALL_ID", &stem)],
        };
        let finished = process::run(&command, cancel);
        Ok(Some(Fired { hook, configured, finished, iteration, stem, argv, stdin, started_at }))
    }

    /// Says which hooks cannot be started as things are, before they are needed.
    pub(super) fn warn_of_lame_hooks(&self, run: &mut Run) {
        for hook in Hook::ALL {
            let Some(configured) = self.agent.hooks.get(hook) else { continue };
            // What lies in the run directory is made by the run itself.
            let made_later = format!("${{{}}}", Variable::RunDir.name());
            let program = configured.command.first().filter(|word| !word.contains(&made_later));
            let Some(program) = program.map(|word| self.environment.vars().fill(word)) else {
                continue;
            };
            let launch = self.environment.launch_hook(0, &[], (hook.name(), ""), &[]);
            let Err(NotFound { reason, .. }) = process::find_program(&program, &launch) else {
                continue;
            };
            let shut = match (hook, configured.on_failure) {
                (Hook::PreToolExecution, OnFailure::Fail) => "; every call will be denied",
                (_, OnFailure::Fail) => "; the run will fail",
                (_, OnFailure::Ignore) => "",
            };
            let text = format!("the hook {} cannot be started: {reason}{shut}", hook.name());
            run.tell(Notice::Warning(&text));
        }
    }

    /// Records a hook that has run, and what came of it.
    pub(super) fn put_down(
        &self,
        run: &mut Run,
        fired: &Fired<'_>,
        effect: &Effect<'_>,
    ) -> Result<(), EngineError> {
        let (run_id, finished) = (run.id.to_string(), &fired.finished);
        let exit_code = match finished.end {
            End::Exited(code) | End::NotStarted { code, .. } => Some(code),
            End::Killed(_) | End::TimedOut | End::Cancelled => None,
        };
        let stdin = run.records.hook_input(&fired.stem, &fired.stdin)?;
        let record = run.records.hook(
            &fired.stem,
            &HookExecution {
                run_id: &run_id,
                iteration: fired.iteration,
                hook: fired.hook.name(),
                command: &fired.argv,
                cwd: &self.environment.vars().cwd,
                stdin,
                started_at: fired.started_at,
                duration_ms: millis(finished.duration),
                exit_code,
                ended: record::ended(&finished.end),
                stdout: Stream::of(&finished.stdout),
                stderr: Stream::of(&finished.stderr),
                changed: effect.changed,
                decision: effect.decision,
                failure: effect.failure.map(|failure| failure.reason.as_str()),
            },
        )?;
        run.record(Payload::HookExecution {
            iteration: fired.iteration,
            hook: fired.hook.name().to_owned(),
            exit_code,
            record,
            changed: effect.changed.is_some(),
        });
        Ok(())
    }

    /// What the failure of a hook that is no gate means: a warning, or the end of the run.
    pub(super) fn weigh(
        &self,
        run: &mut Run,
        fired: &Fired<'_>,
        failure: Option<&Failure>,
    ) -> Result<(), EngineError> {
        let Some(failure) = failure else { return Ok(()) };
        if fired.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let error = fired.error(failure);
        match fired.configured.on_failure {
            OnFailure::Fail => Err(error),
            OnFailure::Ignore => {
                run.tell(Notice::Warning(&error.to_string()));
                Ok(())
            }
        }
    }

    /// Says that a gate is open although its hook failed.
    pub(super) fn warn_of_open_gate(&self, run: &mut Run, fired: &Fired<'_>, failure: &Failure) {
        let text = format!("let through by `on_failure: ignore`: {}", fired.error(failure));
        run.tell(Notice::Warning(&text));
    }

    /// Runs a hook that answers nothing.
    pub(super) fn notify(
        &self,
        run: &mut Run,
        hook: Hook,
        iteration: u32,
        input: impl FnOnce() -> Input,
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        let Some(fired) = self.fire(run, hook, iteration, input, cancel)? else { return Ok(()) };
        let failure = answer::ending(&fired.finished, fired.configured);
        self.put_down(run, &fired, &Effect { failure: failure.as_ref(), ..Effect::default() })?;
        self.weigh(run, &fired, failure.as_ref())
    }

    /// Runs on_iteration_start, unless it has done its part for this iteration in an earlier process.
    pub(super) fn iteration_starts(
        &self,
        run: &mut Run,
        iteration: u32,
    ) -> Result<(), EngineError> {
        if run.state().iteration_started >= iteration {
            return Ok(());
        }
        self.notify(run, Hook::OnIterationStart, iteration, Input::default, &self.cancel)
    }

    /// Runs on_iteration_end likewise, when there was an iteration and all its results are in.
    pub(super) fn iteration_ends(&self, run: &mut Run) -> Result<(), EngineError> {
        let iteration = run.state().iterations;
        if run.state().iteration_ended >= iteration {
            return Ok(());
        }
        self.notify(run, Hook::OnIterationEnd, iteration, Input::default, &self.cancel)
    }

    /// Asks pre_tool_execution for its consent. Gives what is to be run in the end, or why the call is not.
    pub(super) fn ask_gate(
        &self,
        run: &mut Run,
        call: &Call,
        tool: &Tool,
        invocation: Invocation,
    ) -> Result<Result<(Call, Invocation), String>, EngineError> {
        let hook = Hook::PreToolExecution;
        if self.agent.hooks.get(hook).is_none() {
            return Ok(Ok((call.clone(), invocation)));
        }
        let input = Input::of_tool(call).with("argv", &invocation.argv);
        if run.secrets().is_in(&input.payload) {
            let text = format!("call denied: the hook {} {UNSHOWN}", hook.name());
            run.tell(Notice::Warning(&text));
            return Ok(Err(denied(run.state(), &format!("the hook {UNSHOWN}"))));
        }
        let Some(fired) = self.fire(run, hook, call.iteration, || input, &self.cancel)? else {
            return Ok(Ok((call.clone(), invocation)));
        };
        let (verdict, failure) = answer::verdict(&fired.finished, fired.configured);
        let (changed, decided) = match verdict {
            Verdict::Proceed => (None, Ok((call.clone(), invocation))),
            Verdict::Deny(reason) => (None, Err(denied(run.state(), &reason))),
            Verdict::Replace(arguments) => match tool.check(&arguments) {
                Ok(checked) => {
                    let invocation = tool.invocation(&checked, self.environment.vars());
                    (Some("arguments"), Ok((Call { arguments, ..call.clone() }, invocation)))
                }
                Err(why) => (
                    None,
                    Err(denied(
                        run.state(),
                        &format!("the hook gave arguments that do not fit.\n{why}"),
                    )),
                ),
            },
        };
        let decision = Some(if decided.is_ok() { "allow" } else { "deny" });
        self.put_down(run, &fired, &Effect { changed, decision, failure: failure.as_ref() })?;
        // A signal that came meanwhile stops the call too.
        if fired.is_cancelled() || self.cancel.requested() {
            return Err(EngineError::Cancelled);
        }
        match &failure {
            Some(failure) if decided.is_ok() => self.warn_of_open_gate(run, &fired, failure),
            // To leave with an exit code is a way to say no, and the observation shows it.
            Some(failure) if !matches!(fired.finished.end, End::Exited(1..)) => {
                let text = format!("call denied: {}", fired.error(failure));
                run.tell(Notice::Warning(&text));
            }
            _ => {}
        }
        Ok(decided)
    }

    /// Shows an observation to post_tool_execution. Gives what the LLM is to see of it, and how the run goes on: the
    /// call has its result either way.
    pub(super) fn filter(
        &self,
        run: &mut Run,
        call: &Call,
        seen: Observation,
    ) -> (Observation, Result<(), EngineError>) {
        let input = || {
            let code = seen.exit_code.map_or_else(String::new, |code| code.to_string());
            Input::of_tool(call)
                .with("result", &seen.text)
                .with("exit_code", &seen.exit_code)
                .env("TOOL_RESULT", seen.text.clone())
                .env("TOOL_EXIT_CODE", code)
        };
        let hook = Hook::PostToolExecution;
        let must_pass =
            self.agent.hooks.get(hook).is_some_and(|hook| hook.on_failure == OnFailure::Fail);
        let unfiltered = |seen: Observation| match must_pass {
            true => Observation { text: WITHHELD.to_owned(), ..seen },
            false => seen,
        };
        let fired = match self.fire(run, hook, call.iteration, input, &self.cancel) {
            Ok(None) => return (seen, Ok(())),
            Ok(Some(fired)) => fired,
            // The loop finds the request to stop as well, when the result is recorded.
            Err(EngineError::Cancelled) => return (unfiltered(seen), Ok(())),
            Err(error) => return (unfiltered(seen), Err(error)),
        };
        let answer = answer::observation(&fired.finished, fired.configured);
        let changed = matches!(answer, Ok(Some(_))).then_some("observation");
        let failure = answer.as_ref().err();
        let recorded = self.put_down(run, &fired, &Effect { changed, decision: None, failure });
        let weighed = recorded.and_then(|()| self.weigh(run, &fired, failure));
        let seen = match answer {
            Ok(Some(text)) => Observation { text, ..seen },
            Ok(None) => seen,
            Err(_) => unfiltered(seen),
        };
        (seen, weighed)
    }
}

/// The observation of a call that was denied in a run that stands at `state`.
pub fn denied(state: &RunState, reason: &str) -> String {
    let not_run = match matches!(state.next_step(), Step::Settle { .. }) {
        true => "the tool was not run again; whether it took effect before is unknown",
        false => "the tool was not run",
    };
    format!("Denied by the hook pre_tool_execution; {not_run}.\n{reason}")
}
