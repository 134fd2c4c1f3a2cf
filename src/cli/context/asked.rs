//! The requests of a run, as its journal and its records have them.

use crate::cli::failure::Failure;
use crate::composition::Composition;
use crate::event::{Event, Payload};
use crate::llm::Usage;
use crate::record::{self, Block};
use crate::state::RunState;
use crate::tokens::Ratio;
use std::path::Path;

/// A request that was sent.
#[derive(Debug)]
pub struct Asked {
    /// The answer that was asked for.
    pub iteration: u32,
    /// Its record, relative to the run directory.
    record: String,
    /// What was known of the endpoint's counting when it was built.
    pub ratio: Ratio,
    /// The same when it was answered.
    pub ratio_after: Ratio,
    /// What the endpoint reported.
    pub usage: Option<Usage>,
}

/// A request as it was recorded.
#[derive(Debug)]
pub struct Recorded {
    name: String,
    text: String,
    blocks: Vec<Block>,
}

impl Asked {
    /// The requests of a run, in order; also those that were not answered.
    pub fn all(events: &[Event]) -> Vec<Self> {
        let mut state = RunState::default();
        let mut all: Vec<Self> = Vec::new();
        for event in events {
            let ratio = state.ratio;
            state.apply(event);
            let (iteration, record, usage) = match &event.payload {
                Payload::Thought(it) => (it.iteration, it.invocation.as_ref(), it.usage.clone()),
                Payload::Error { error_details, .. } => {
                    (state.iterations + 1, error_details.invocation.as_ref(), None)
                }
                _ => continue,
            };
            let Some(record) = record.cloned() else { continue };
            all.retain(|asked| asked.iteration != iteration);
            all.push(Self { iteration, record, ratio, ratio_after: state.ratio, usage });
        }
        all
    }

    /// That of an iteration, or the last.
    ///
    /// # Errors
    /// There is none.
    pub fn of(all: &[Self], iteration: Option<u32>) -> Result<&Self, Failure> {
        let found = match iteration {
            None => all.last(),
            Some(iteration) => all.iter().find(|asked| asked.iteration == iteration),
        };
        found.ok_or_else(|| match (iteration, all.last()) {
            (Some(iteration), Some(last)) => Failure::no_run(
                format!("there is no iteration {iteration}"),
                format!("the run has {} iterations", last.iteration),
            ),
            _ => Failure::no_run(
                "the run has not asked the LLM yet",
                "`delta context preview --agent DIR -m TASK` shows what a first request would be",
            ),
        })
    }

    /// Its text, byte for byte as it was sent.
    pub fn text(&self, run_dir: &Path) -> Result<String, Failure> {
        let text = record::request(run_dir, &self.record);
        text.map_err(|error| Failure::damaged(error.to_string(), None))
    }

    /// Reads what was recorded of it.
    pub fn read(&self, run_dir: &Path) -> Result<Recorded, Failure> {
        let damaged = |error: record::RequestError| Failure::damaged(error.to_string(), None);
        let text = self.text(run_dir)?;
        let blocks = record::blocks(run_dir, &self.record).map_err(damaged)?;
        let name = self.record.clone();
        let blocks = blocks.ok_or_else(|| {
            let message = format!("the record {name} does not say where its messages come from");
            let hint =
                "an older delta has written it; `delta show RUN --request N` prints the request";
            Failure::no_run(message, hint)
        })?;
        Ok(Recorded { name, text, blocks })
    }
}

impl Recorded {
    /// What it is made of.
    pub fn composition(&self, ratio: Ratio) -> Result<Composition<'_>, Failure> {
        Composition::of(&self.text, &self.blocks, ratio).map_err(|error| {
            let message = format!("the record {} holds no request: {error}", self.name);
            Failure::damaged(message, None)
        })
    }
}
