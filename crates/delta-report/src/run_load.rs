//! What a run and the runs below it have asked and answered, measured for a forecast of the cost of more runs.

use delta_base::time::Timestamp;
use delta_run::event::{EngineStart, Payload};
use delta_run::journal::{self, JournalError};
use delta_run::record;
use delta_run::run_tree;
use delta_words::{Pricing, TokenLoad, TurnTokens, WireForm};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::path::Path;

/// The time between two requests of a run that has made one.
const DEFAULT_PAUSE_S: f64 = 10.0;

/// The requests of one run.
#[derive(Debug, Clone)]
pub struct MeasuredRun {
    /// The model that was asked.
    pub model: String,
    /// The form of its endpoint; none for a script or a command.
    pub form: Option<WireForm>,
    /// The prices that the run knew.
    pub pricing: Option<Pricing>,
    /// The tokens of its requests. What they share with other runs is what is constant in the agent alone, as far as it is recorded.
    pub load: TokenLoad,
    /// The tokens that requests after the first one could read from the cache.
    pub readable_tokens: u64,
    /// The tokens that they have read.
    pub read_tokens: u64,
    /// Whether the first request has read something.
    pub has_read_first: bool,
    /// Answers whose tokens the endpoint did not report.
    pub unmeasured: usize,
    first_request: Option<MeasuredRequest>,
}

/// The sizes of the first request.
#[derive(Debug, Clone)]
struct MeasuredRequest {
    tools: String,
    messages: Vec<String>,
    /// How many messages are constant, if the form of the endpoint marks them.
    constant: Option<usize>,
}

#[derive(Deserialize)]
struct MeasuredParts<'a> {
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

impl MeasuredRequest {
    /// Reads the record of a call; `None` without one.
    fn read(run_dir: &Path, name: &str) -> Option<Self> {
        let text = record::read_request(run_dir, name).ok()?;
        let parts: MeasuredParts<'_> = serde_json::from_str(&text).ok()?;
        let sent = record::read_wire_exchange(run_dir, name).ok()?.map(|sent| sent.wire.options);
        let marked = sent.filter(|options| options.cache.is_some() || options.marks_constant);
        Some(Self {
            tools: parts.tools.map_or_else(String::new, |tools| tools.get().to_owned()),
            messages: parts.messages.iter().map(|message| message.get().to_owned()).collect(),
            constant: marked.map(|options| options.constant_messages),
        })
    }

    /// The share of the request, from 0 to 1, with which `other` begins too.
    fn shared_share(&self, other: Option<&Self>) -> f64 {
        let equal = other.map(|other| {
            let pairs = self.messages.iter().zip(&other.messages);
            let count = pairs.take_while(|(one, other)| one == other).count();
            if self.tools == other.tools { count } else { 0 }
        });
        let Some(count) = [equal, self.constant].into_iter().flatten().min() else { return 0.0 };
        let bytes = |count: usize| {
            self.tools.len() + self.messages.iter().take(count).map(String::len).sum::<usize>()
        };
        let shared = if count == 0 { 0 } else { bytes(count) };
        shared as f64 / bytes(self.messages.len()).max(1) as f64
    }
}

impl MeasuredRun {
    /// Measures the run in `run_dir` and the runs below it, itself first.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub fn read_tree(run_dir: &Path) -> Result<Vec<Self>, JournalError> {
        let mut waiting = vec![run_dir.to_owned()];
        let mut visited = BTreeSet::new();
        let mut measured = Vec::new();
        while let Some(dir) = waiting.pop() {
            if visited.insert(dir.clone()) {
                measured.extend(Self::read(&dir)?);
                waiting.extend(run_tree::locate_child_runs(&dir).into_iter().map(|(_, dir)| dir));
            }
        }
        Ok(measured)
    }

    fn read(run_dir: &Path) -> Result<Option<Self>, JournalError> {
        let mut start: Option<Box<EngineStart>> = None;
        let mut thoughts = Vec::new();
        for event in journal::read_run_journal(run_dir)?.events {
            match event.payload {
                Payload::EngineStart(first) if start.is_none() => start = Some(first),
                Payload::Thought(thought) => thoughts.push((event.timestamp, thought)),
                _ => {}
            }
        }
        let Some(start) = start.filter(|_| !thoughts.is_empty()) else { return Ok(None) };
        let first_request = thoughts[0].1.invocation.as_deref();
        let first_request = first_request.and_then(|name| MeasuredRequest::read(run_dir, name));
        let times: Vec<Timestamp> = thoughts.iter().map(|(time, _)| *time).collect();
        let usages: Vec<_> =
            thoughts.iter().filter_map(|(_, thought)| thought.usage.as_ref()).collect();
        let turns: Vec<TurnTokens> = usages
            .iter()
            .map(|usage| TurnTokens {
                input: usage.input_tokens,
                output: usage.output_tokens,
                reasoning: usage.reasoning_tokens.unwrap_or(0).min(usage.output_tokens),
            })
            .collect();
        let later = usages.iter().zip(usages.iter().skip(1));
        let readable = later.map(|(last, usage)| {
            let readable = last.input_tokens.min(usage.input_tokens);
            (readable, usage.cached_input_tokens.min(readable))
        });
        let (readable_tokens, read_tokens) =
            readable.fold((0, 0), |sum, tokens| (sum.0 + tokens.0, sum.1 + tokens.1));
        let llm = start.config.llm.clone().unwrap_or_default();
        let mut measured = Self {
            model: llm.model.unwrap_or_default(),
            form: start.config.request_form(),
            pricing: llm.pricing,
            readable_tokens,
            read_tokens,
            has_read_first: usages.first().is_some_and(|usage| usage.cached_input_tokens > 0),
            unmeasured: thoughts.len() - usages.len(),
            load: TokenLoad { turns, shared_tokens: 0, pause_s: median_pause_s(&times) },
            first_request,
        };
        measured.share_with(None);
        Ok(Some(measured))
    }

    /// Counts as shared what the first request of `other`, a run of the same agent, begins with too.
    pub fn share_with(&mut self, other: Option<&Self>) {
        let Some(first) = &self.first_request else { return };
        let share = first.shared_share(other.and_then(|other| other.first_request.as_ref()));
        let input = self.load.turns.first().map_or(0, |turn| turn.input);
        self.load.shared_tokens = (input as f64 * share) as u64;
    }
}

/// The median of the seconds between neighbours.
fn median_pause_s(times: &[Timestamp]) -> f64 {
    let pairs = times.iter().zip(times.iter().skip(1));
    let mut pauses: Vec<i64> =
        pairs.map(|(before, after)| after.as_millis() - before.as_millis()).collect();
    pauses.sort_unstable();
    pauses.get(pauses.len() / 2).map_or(DEFAULT_PAUSE_S, |pause_ms| *pause_ms as f64 / 1000.0)
}
