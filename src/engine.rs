//! The engine: think, act, observe.
//!
//! One loop for every run: it asks the state what comes next, does one thing, records the result, and asks again. It
//! never prints, never exits and reads no environment variable; before every act it commits what the act follows from.

use crate::agent::Agent;
use crate::context::{ContextError, Counter};
use crate::durable::FileError;
use crate::environment::Environment;
use crate::event::{ErrorDetails, Payload};
use crate::hook::Hook;
use crate::human::Person;
use crate::ledger::{Budget, LedgerError};
use crate::llm::{LlmError, Provider};
use crate::record::Body;
use crate::run::{Notice, Run};
use crate::signal::Cancel;
use crate::snapshot::{SnapshotError, Store};
use crate::state::{Ending, Step};
use crate::time::Clock;
use hooks::Input;
use serde_json::json;
use std::time::Duration;

mod calls;
mod hooks;
mod limits;
pub mod plan;
mod thinking;

pub use calls::{CUT_SHORT, FINISHED};
pub use hooks::{SHOWN, WITHHELD, denied};
pub use thinking::{frame, replaced, request};

/// What drives a run.
pub struct Engine<'a> {
    agent: &'a Agent,
    environment: Environment,
    provider: Box<dyn Provider>,
    cancel: Cancel,
    person: Option<Box<dyn Person>>,
    clock: Clock,
    budget: Budget,
    /// The last request, with the tokens that were reported for it.
    measured: Option<(String, u64)>,
    /// The request body before its messages, and behind them.
    frame: (String, String),
    /// The last request, out of which the next one is made.
    last: Body,
    /// The tokens that a tokenizer has counted.
    counter: Counter,
    /// What was left out of the last request, in words.
    told: Vec<String>,
    /// Where it is kept what the workspace was, if it is.
    snapshots: Option<Store>,
}

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
enum EngineError {
    #[error("interrupted")]
    Cancelled,
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// No call may be made.
    #[error(transparent)]
    Limit(LedgerError),
    /// With the record of the call.
    #[error("{error}")]
    Llm { error: LlmError, invocation: String },
    /// The LLM's answer is none; with the record of the call.
    #[error("{message}")]
    Answer { kind: &'static str, message: String, invocation: String },
    #[error("nobody answered: {0}")]
    Person(std::io::Error),
    /// A hook failed that may not; with its record.
    #[error("{message}")]
    Hook { hook: Hook, message: String, record: String },
}

impl EngineError {
    fn is_cancelled(&self) -> bool {
        matches!(
            self,
            Self::Cancelled
                | Self::Context(ContextError::Cancelled)
                | Self::Snapshot(SnapshotError::Cancelled)
        )
    }

    fn details(&self) -> ErrorDetails {
        let kind = match self {
            Self::Cancelled => "interrupted",
            Self::File(_) | Self::Snapshot(_) => "io",
            Self::Context(_) => "context",
            Self::Limit(_) => "limit",
            Self::Llm { .. } => "llm",
            Self::Answer { kind, .. } => kind,
            Self::Person(_) => "interaction",
            Self::Hook { .. } => "hook",
        };
        let mut details = ErrorDetails { kind: kind.to_owned(), ..ErrorDetails::default() };
        if let Self::Llm { invocation, .. } | Self::Answer { invocation, .. } = self {
            details.invocation = Some(invocation.clone());
        }
        if let Self::Limit(error) = self {
            details.hint = limits::hint(error);
        }
        if let Self::Hook { record, .. } = self {
            details.hint = Some(format!(
                "{record} in the run directory holds what it was given and what it printed"
            ));
        }
        if let Self::Llm { error: LlmError::Failed { status, hint, script_turn, .. }, .. } = self {
            (details.status, details.script_turn) = (*status, *script_turn);
            details.hint.clone_from(hint);
        }
        details
    }
}

impl<'a> Engine<'a> {
    /// An engine for runs of `agent`.
    pub fn new(
        agent: &'a Agent,
        environment: Environment,
        provider: Box<dyn Provider>,
        cancel: Cancel,
        person: Option<Box<dyn Person>>,
        clock: Clock,
        budget: Budget,
    ) -> Self {
        let (frame, measured) = (thinking::frame(agent), None);
        let (counter, told) = (Counter::default(), Vec::new());
        Self {
            agent,
            environment,
            provider,
            cancel,
            person,
            clock,
            budget,
            measured,
            frame,
            last: Body::default(),
            counter,
            told,
            snapshots: None,
        }
    }

    /// The same, keeping what the workspace was at each iteration.
    pub fn keeping(mut self, snapshots: Option<Store>) -> Self {
        self.snapshots = snapshots;
        self
    }

    /// Drives `run` until this process has to leave it, and records how.
    ///
    /// # Errors
    /// The journal could not be written: nothing was started that it does not hold, and nothing more can be recorded.
    pub fn drive(&mut self, run: &mut Run) -> Result<Ending, FileError> {
        self.warn_of_lame_hooks(run);
        let mut cause = None;
        let ending = match self.steps(run) {
            Ok(ending) => ending,
            Err(error) if error.is_cancelled() => Ending::Interrupted,
            Err(error) => {
                self.fail(run, &error);
                if let EngineError::File(error)
                | EngineError::Snapshot(SnapshotError::File(error)) = error
                {
                    cause = Some(error);
                }
                Ending::Failed
            }
        };
        let ending = self.in_time(run, ending);
        if let Ending::OutOfIterations { allowed } = ending {
            let count = if allowed == 1 { "iteration" } else { "iterations" };
            let error_message = format!("the task is not finished after {allowed} {count}");
            let hint = "continue with `-m`, and give more with `--max-iterations`; or raise `max_iterations` in agent.yaml"
                .to_owned();
            let kind = "max_iterations".to_owned();
            let error_details = ErrorDetails { kind, hint: Some(hint), ..ErrorDetails::default() };
            self.report(run, error_message, error_details, true);
        }
        let ending = self.close(run, ending);
        // What the next process has to read again costs it time, and nothing else.
        let _ = self.snapshots.as_ref().map(Store::save);
        let (run_id, final_iteration) = (run.id.to_string(), run.state().iterations);
        run.record(Payload::EngineEnd { run_id, status: ending.status(), final_iteration });
        match run.commit() {
            Ok(()) => Ok(ending),
            // When the journal is lost, its first error says why; that it is still lost says nothing.
            Err(error) => Err(cause.unwrap_or(error)),
        }
    }

    /// Makes a fact of an error that ends the run.
    fn fail(&self, run: &mut Run, error: &EngineError) {
        // A hook that failed is not asked to tell of its own failure.
        let own = matches!(error, EngineError::Hook { hook: Hook::OnError, .. });
        self.report(run, error.to_string(), error.details(), !own);
    }

    /// Records an error, and has on_error tell of it. That hook's own failure changes nothing any more.
    fn report(&self, run: &mut Run, message: String, details: ErrorDetails, tell: bool) {
        let input = Input::of_error(&details.kind, &message);
        run.record(Payload::Error { error_message: message, error_details: details });
        let (iteration, cancel) = (run.state().iterations, self.cancel.for_the_end());
        if tell && let Err(error) = self.notify(run, Hook::OnError, iteration, || input, &cancel) {
            warn(run, &error);
        }
    }

    /// Runs on_run_end, once for every way to leave a run; a stop that was asked for does not end it. Where it may not
    /// fail and does, a run that would be COMPLETED is FAILED; every other end stays what it is.
    fn close(&self, run: &mut Run, ending: Ending) -> Ending {
        let (iteration, cancel) = (run.state().iterations, self.cancel.for_the_end());
        let mut input = Input::default().with("status", &ending.status());
        match (&ending, &run.state().result, &run.state().error) {
            (Ending::Completed, Some(result), _) => input = input.with("result", result),
            (Ending::Failed | Ending::OutOfIterations { .. }, _, Some((message, details))) => {
                let error = json!({"type": details.kind, "message": message});
                input = input.with("error", &error);
            }
            _ => {}
        }
        match self.notify(run, Hook::OnRunEnd, iteration, || input, &cancel) {
            Ok(()) => ending,
            Err(error @ EngineError::Hook { .. }) if ending == Ending::Completed => {
                self.fail(run, &error);
                Ending::Failed
            }
            Err(error) => {
                warn(run, &error);
                ending
            }
        }
    }

    fn steps(&mut self, run: &mut Run) -> Result<Ending, EngineError> {
        loop {
            if self.cancel.requested() {
                return Ok(Ending::Interrupted);
            }
            let step = run.state().next_step();
            if matches!(step, Step::Think { .. } | Step::End(_)) {
                // The disk has it while the next request is made.
                run.send();
                self.iteration_ends(run)?;
                self.keep_workspace(run)?;
            }
            match step {
                Step::Think { iteration } => self.think(run, iteration)?,
                Step::Act(call) => self.act(run, &call)?,
                Step::Settle { call, execution } => {
                    self.settle(run, &call, execution.as_deref())?
                }
                Step::Wait(question) => {
                    if !self.wait(run, &question)? {
                        return Ok(Ending::Waiting);
                    }
                }
                Step::Reply { call, response } => self.reply(run, &call, response)?,
                Step::End(ending) => return Ok(ending),
            }
        }
    }
}

impl Engine<'_> {
    /// Keeps what the workspace is between two iterations.
    fn keep_workspace(&mut self, run: &mut Run) -> Result<(), EngineError> {
        if let Some(store) = &mut self.snapshots {
            run.keep(store, &self.environment.vars().cwd, Some(&self.cancel))?;
        }
        Ok(())
    }
}

/// Tells of an error that changes nothing any more. That the journal is lost, the last commit says.
fn warn(run: &mut Run, error: &EngineError) {
    if run.commit().is_ok() {
        run.tell(Notice::Warning(&error.to_string()));
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
