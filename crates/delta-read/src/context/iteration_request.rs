//! The requests of a run, from its journal and its records.

use delta_llm::llm::ImageReader;
use delta_llm::llm::wire::{NeutralBody, encode_again};
use delta_operator::failure::CommandFailure;
use delta_report::request_breakdown::RequestBreakdown;
use delta_run::event::{Event, Payload, image_file};
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::{self, ContextBlock};
use delta_run::state::RunState;
use delta_words::{CacheUse, Pricing, Usage};
use std::path::Path;
use std::sync::Arc;

/// A request that a run sent.
#[derive(Debug)]
pub struct IterationRequest {
    /// The iteration of its answer.
    pub iteration: u32,
    /// The path of its record, relative to the run directory.
    record: String,
    /// The correction of token estimates when the request was built.
    pub ratio: TokenRatio,
    /// The correction after the answer.
    pub ratio_after: TokenRatio,
    /// The usage that the endpoint reported.
    pub usage: Option<Usage>,
    /// The prices of the process that sent it, if it recorded them.
    pub pricing: Option<Pricing>,
}

/// The record of a request.
#[derive(Debug)]
pub struct IterationRequestRecord {
    name: String,
    text: String,
    blocks: Vec<ContextBlock>,
    /// How the request used the endpoint's cache.
    pub cache_use: CacheUse,
}

impl IterationRequest {
    /// Lists the requests of a run in order, with or without an answer.
    pub fn list(events: &[Event]) -> Vec<Self> {
        let mut state = RunState::default();
        let mut requests: Vec<Self> = Vec::new();
        for event in events {
            let ratio = state.ratio;
            let model_changes = state.model_changes;
            state.apply(event);
            let (iteration, record, usage) = match &event.payload {
                Payload::Thought(thought) => {
                    (thought.iteration, thought.invocation.as_ref(), thought.usage.clone())
                }
                Payload::Error { error_details, .. } => {
                    (state.iterations.saturating_add(1), error_details.invocation.as_ref(), None)
                }
                _ => continue,
            };
            let Some(record) = record.cloned() else { continue };
            requests.retain(|request| request.iteration != iteration);
            let start = state.start.as_ref();
            let asked_llm = start.and_then(|start| start.config.models().nth(model_changes));
            let pricing = asked_llm.and_then(|llm| llm.pricing.clone());
            let ratio_after = state.ratio;
            requests.push(Self { iteration, record, ratio, ratio_after, usage, pricing });
        }
        requests
    }

    /// Finds the request of an iteration, by default the last one.
    pub fn find(all: &[Self], iteration: Option<u32>) -> Result<&Self, CommandFailure> {
        let request = match iteration {
            None => all.last(),
            Some(iteration) => all.iter().find(|request| request.iteration == iteration),
        };
        request.ok_or_else(|| match (iteration, all.last()) {
            (Some(iteration), Some(last)) => CommandFailure::not_found(
                format!("there is no iteration {iteration}"),
                format!("the last iteration of the run is {}", last.iteration),
            ),
            _ => CommandFailure::not_found(
                "the run has not called the LLM yet",
                "`delta context preview --agent DIR -m TASK` shows the first request",
            ),
        })
    }

    /// Reads the text of the request, byte for byte.
    pub fn read_text(&self, run_dir: &Path) -> Result<String, CommandFailure> {
        let text = record::read_request(run_dir, &self.record);
        text.map_err(|error| CommandFailure::damaged(error.to_string(), None))
    }

    /// Makes the body again that was sent to the endpoint, byte for byte.
    pub fn read_wire_body(&self, run_dir: &Path) -> Result<String, CommandFailure> {
        let damaged = |message: String| CommandFailure::damaged(message, None);
        let text = self.read_text(run_dir)?;
        let sent = record::read_wire_exchange(run_dir, &self.record);
        let Some(sent) = sent.map_err(|error| damaged(error.to_string()))? else {
            return Ok(text);
        };
        let body = NeutralBody {
            text: &Arc::new(text),
            has_native: true,
            run_id: &sent.run_id,
            images: Some(ImageReader::new(run_dir, image_file::read_data_url)),
        };
        encode_again(&sent.wire, &sent.model, &body)
            .map_err(|error| damaged(format!("record {}: {error}", self.record)))
    }

    /// Reads the record of the request.
    pub fn read_record(&self, run_dir: &Path) -> Result<IterationRequestRecord, CommandFailure> {
        let text = self.read_text(run_dir)?;
        let blocks = record::read_context_blocks(run_dir, &self.record)
            .map_err(|error| CommandFailure::damaged(error.to_string(), None))?;
        let sent = record::read_wire_exchange(run_dir, &self.record).ok().flatten();
        let cache_use = sent.map_or(CacheUse::Automatic, |sent| sent.wire.cache_use());
        let name = self.record.clone();
        let blocks = blocks.ok_or_else(|| {
            let message = format!("record {name} does not list the sources of its messages");
            let hint =
                "an older version of delta wrote it; `delta show RUN --request N` prints the request";
            CommandFailure::not_found(message, hint)
        })?;
        Ok(IterationRequestRecord { name, text, blocks, cache_use })
    }
}

impl IterationRequestRecord {
    /// Splits the request into its blocks.
    pub fn breakdown(&self, ratio: TokenRatio) -> Result<RequestBreakdown<'_>, CommandFailure> {
        RequestBreakdown::parse(&self.text, &self.blocks, ratio).map_err(|error| {
            let message = format!("record {} contains no valid request: {error}", self.name);
            CommandFailure::damaged(message, None)
        })
    }
}
