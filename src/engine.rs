//! The engine: think, act, observe.
//!
//! One loop for every run: it asks the state what comes next, does one thing, records the result, and asks again. It
//! never prints, never exits and reads no environment variable; before every act it commits what the act follows from.

use crate::agent::Agent;
use crate::context::ContextError;
use crate::durable::FileError;
use crate::environment::Environment;
use crate::event::{ErrorDetails, Payload};
use crate::human::Person;
use crate::llm::{LlmError, Provider};
use crate::run::Run;
use crate::signal::Cancel;
use crate::state::{Ending, Step};
use crate::time::Clock;
use std::time::Duration;

mod calls;
mod thinking;

/// What drives a run.
pub struct Engine<'a> {
    agent: &'a Agent,
    environment: Environment,
    provider: Box<dyn Provider>,
    cancel: Cancel,
    person: Option<Box<dyn Person>>,
    clock: Clock,
    /// The request body before its messages, and behind them.
    frame: (String, String),
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
    /// With the record of the call.
    #[error("{error}")]
    Llm { error: LlmError, invocation: String },
    /// The LLM's answer is none; with the record of the call.
    #[error("{message}")]
    Answer { kind: &'static str, message: String, invocation: String },
    #[error("nobody answered: {0}")]
    Person(std::io::Error),
}

impl EngineError {
    fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled | Self::Context(ContextError::Cancelled))
    }

    fn details(&self) -> ErrorDetails {
        let kind = match self {
            Self::Cancelled => "interrupted",
            Self::File(_) => "io",
            Self::Context(_) => "context",
            Self::Llm { .. } => "llm",
            Self::Answer { kind, .. } => kind,
            Self::Person(_) => "interaction",
        };
        let mut details = ErrorDetails { kind: kind.to_owned(), ..ErrorDetails::default() };
        if let Self::Llm { invocation, .. } | Self::Answer { invocation, .. } = self {
            details.invocation = Some(invocation.clone());
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
    ) -> Self {
        let frame = thinking::frame(agent);
        Self { agent, environment, provider, cancel, person, clock, frame }
    }

    /// Drives `run` until this process has to leave it, and records how.
    ///
    /// # Errors
    /// The journal could not be written: nothing was started that it does not hold, and nothing more can be recorded.
    pub fn drive(&mut self, run: &mut Run) -> Result<Ending, FileError> {
        let mut cause = None;
        let ending = match self.steps(run) {
            Ok(ending) => ending,
            Err(error) if error.is_cancelled() => Ending::Interrupted,
            Err(error) => {
                let (error_message, error_details) = (error.to_string(), error.details());
                run.record(Payload::Error { error_message, error_details });
                if let EngineError::File(error) = error {
                    cause = Some(error);
                }
                Ending::Failed
            }
        };
        if let Ending::OutOfIterations { allowed } = ending {
            let count = if allowed == 1 { "iteration" } else { "iterations" };
            let error_message = format!("the task is not finished after {allowed} {count}");
            let hint = "continue with `-m`, and give more with `--max-iterations`; or raise `max_iterations` in agent.yaml"
                .to_owned();
            let kind = "max_iterations".to_owned();
            let error_details = ErrorDetails { kind, hint: Some(hint), ..ErrorDetails::default() };
            run.record(Payload::Error { error_message, error_details });
        }
        let (run_id, final_iteration) = (run.id.to_string(), run.state().iterations);
        run.record(Payload::EngineEnd { run_id, status: ending.status(), final_iteration });
        match run.commit() {
            Ok(()) => Ok(ending),
            // When the journal is lost, its first error says why; that it is still lost says nothing.
            Err(error) => Err(cause.unwrap_or(error)),
        }
    }

    fn steps(&mut self, run: &mut Run) -> Result<Ending, EngineError> {
        loop {
            if self.cancel.requested() {
                return Ok(Ending::Interrupted);
            }
            match run.state().next_step() {
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
