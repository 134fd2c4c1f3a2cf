//! What the answers of a run cost, what caches saved of it, and what was paid for again although a cache could have had it.
//!
//! Reads the journal and the io/ records. `paid_again` decides from what is read here, `cost_report` adds up many runs.

use crate::request_breakdown::{RequestBlock, RequestBreakdown, compare_breakdowns};
use delta_base::id::RunId;
use delta_base::time::Timestamp;
use delta_run::event::{Event, Payload, UsageSummary, round_usd};
use delta_run::journal::{self, JournalError};
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::{self, ContextBlock, RecordError, RecordedRequests, SentCall};
use delta_run::run_tree;
use delta_run::state::RunState;
use delta_run::workspace;
use delta_words::{CacheUse, TokenPrices, Usage, WireExchange, WireForm};
use paid_again::{
    MIN_PREFIX_TOKENS, OpeningRequest, PaidAgain, PricedRequest, RequestChange, SharedPrefix,
};
use std::path::{Path, PathBuf};

mod cost_report;
mod paid_again;

pub use cost_report::{CostReport, CountedRun};

/// The `type` of the block with the conversation.
const JOURNAL_KIND: &str = "journal";

/// The cost of one run, without the runs below it.
#[derive(Debug)]
pub struct RunCost {
    /// The id of the run.
    pub run_id: RunId,
    /// The directory with which commands find the run.
    pub work_dir: PathBuf,
    /// The name of the agent.
    pub agent: String,
    /// The tokens and the cost, as the result has them.
    pub usage: UsageSummary,
    /// What caches saved in USD; `None` if a price is unknown.
    pub saved_usd: Option<f64>,
    /// What was paid for again; `None` if the records of the run cannot be read.
    judged: Option<JudgedRun>,
}

/// What the records of a run show.
#[derive(Debug, Default)]
struct JudgedRun {
    first: Option<OpeningRequest>,
    paid_again: Vec<PaidAgain>,
    /// The USD that an entry of an hour would cost more, for all writes that no expired entry caused; `None` if a price is
    /// unknown.
    longer_entries_usd: Option<f64>,
}

/// An answer of the journal.
struct JournalAnswer {
    iteration: u32,
    record: Option<String>,
    usage: Option<Usage>,
    /// The correction of token estimates by this answer.
    ratio: TokenRatio,
    prices: Option<TokenPrices>,
    min_prefix: u64,
    answered_at: Timestamp,
}

impl RunCost {
    /// Reads the run in `run_dir`; commands find it in `work_dir`.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn read(run_dir: &Path, work_dir: &Path) -> Result<Self, JournalError> {
        let events = journal::read_run_journal(run_dir)?.events;
        let mut state = RunState::default();
        let mut answers = Vec::new();
        let mut saved = Some(0.0);
        for event in &events {
            let model_changes = state.model_changes;
            state.apply(event);
            if matches!(event.payload, Payload::Fork(_)) {
                // The answers before it were paid by the run that was forked.
                answers.clear();
                saved = Some(0.0);
            }
            let llm = state.start.as_ref();
            let llm = llm.and_then(|start| start.config.models().nth(model_changes));
            let pricing = llm.and_then(|llm| llm.pricing.as_ref());
            for usage in paid_usages(event) {
                let prices = pricing.and_then(|pricing| pricing.answer_prices(usage));
                saved = saved.zip(cache_saving(usage, prices)).map(|(sum, more)| sum + more);
            }
            if let Payload::Thought(thought) = &event.payload {
                let usage = thought.usage.clone().filter(|_| thought.from.is_none());
                let prices = usage.as_ref().zip(pricing);
                let prices = prices.and_then(|(usage, pricing)| pricing.answer_prices(usage));
                answers.push(JournalAnswer {
                    iteration: thought.iteration,
                    record: thought.invocation.clone(),
                    usage,
                    ratio: state.ratio,
                    prices: prices.copied(),
                    min_prefix: pricing
                        .and_then(|pricing| pricing.min_cached_prefix)
                        .unwrap_or(MIN_PREFIX_TOKENS),
                    answered_at: event.timestamp,
                });
            }
        }
        let start = state.start.as_ref();
        let usage = state.usage_summary();
        let run_id = start.map(|start| start.run_id.clone());
        let provider = start.and_then(|start| start.config.provider());
        let asks_endpoint = provider.is_some_and(|provider| WireForm::parse(provider).is_some());
        let judged = if asks_endpoint {
            JudgedRun::read(run_dir, &answers).ok()
        } else {
            Some(JudgedRun::default())
        };
        Ok(Self {
            run_id: run_id.ok_or_else(|| JournalError::NoEvents(run_dir.to_owned()))?,
            work_dir: work_dir.to_owned(),
            agent: start.map(|start| start.agent_name.clone()).unwrap_or_default(),
            saved_usd: saved
                .filter(|_| usage.cost_usd.is_some() || is_unused(&usage))
                .map(round_usd),
            usage,
            judged,
        })
    }

    /// What the run adds to a report of runs that count alone.
    pub fn to_counted_run(&self) -> CountedRun {
        CountedRun {
            run_id: self.run_id.clone(),
            cost_usd: self.usage.cost_usd,
            saved_usd: self.saved_usd,
            input_tokens: self.usage.input_tokens,
            cached_input_tokens: self.usage.cached_input_tokens,
            cache_write_tokens: self.usage.cache_write_tokens,
            cache_breaks: self.cache_breaks(),
            is_judged: self.judged.is_some(),
        }
    }

    fn cache_breaks(&self) -> Option<u64> {
        Some(self.judged.as_ref()?.paid_again.len() as u64)
    }
}

/// The cost of a run and of all runs below it.
#[derive(Debug, Default)]
pub struct TreeCost {
    /// The runs whose journals can be read.
    pub runs: Vec<RunCost>,
    /// Whether the records of all runs can be read.
    pub is_judged: bool,
}

impl TreeCost {
    /// Reads the run in `run_dir`, which commands find in `work_dir`, and all runs below it.
    pub fn read(run_dir: &Path, work_dir: &Path) -> Self {
        let below = run_tree::find_runs_below(run_dir);
        let dirs_below = below.dirs.into_iter().map(|dir| {
            let work_dir = workspace::workspace_of_run(&dir).unwrap_or_else(|| dir.clone());
            (dir, work_dir)
        });
        let dirs = [(run_dir.to_owned(), work_dir.to_owned())].into_iter().chain(dirs_below);
        let read: Vec<_> = dirs.map(|(dir, work_dir)| RunCost::read(&dir, &work_dir)).collect();
        let is_judged = below.not_found == 0
            && read.iter().all(|cost| cost.as_ref().is_ok_and(|cost| cost.judged.is_some()));
        Self { runs: read.into_iter().flatten().collect(), is_judged }
    }

    /// What caches saved in USD; `None` if it is not known of a run.
    pub fn saved_usd(&self) -> Option<f64> {
        self.runs.iter().map(|run| run.saved_usd).sum::<Option<f64>>().map(round_usd)
    }

    /// How many requests paid again for what the request before them had; `None` if records cannot be read.
    pub fn cache_breaks(&self) -> Option<u64> {
        self.runs.iter().map(RunCost::cache_breaks).sum::<Option<u64>>().filter(|_| self.is_judged)
    }
}

fn is_unused(usage: &UsageSummary) -> bool {
    usage.input_tokens + usage.output_tokens == 0
}

/// The answers that an event says were paid for, as far as their tokens are known.
fn paid_usages(event: &Event) -> impl Iterator<Item = &Usage> {
    let (answered, discarded) = match &event.payload {
        Payload::Thought(thought) => {
            let usage = thought.usage.as_ref().filter(|_| thought.from.is_none());
            (usage, &thought.discarded_usage[..])
        }
        Payload::Error { error_details, .. } => (None, &error_details.discarded_usage[..]),
        _ => (None, &[][..]),
    };
    answered.into_iter().chain(discarded.iter().flatten())
}

fn cache_saving(usage: &Usage, prices: Option<&TokenPrices>) -> Option<f64> {
    if usage.cached_input_tokens == 0 && usage.cache_write_tokens.unwrap_or(0) == 0 {
        return Some(0.0);
    }
    Some(prices?.cache_saving(usage))
}

/// A request, with which the next one is compared.
struct ReadRequest {
    text: String,
    context: Vec<ContextBlock>,
    answered: PricedRequest,
}

impl JudgedRun {
    fn read(run_dir: &Path, answers: &[JournalAnswer]) -> Result<Self, RecordError> {
        let reports_cache = answers.iter().flat_map(|answer| &answer.usage).any(uses_cache);
        let mut requests = RecordedRequests::new(run_dir);
        let mut judged = Self { longer_entries_usd: Some(0.0), ..Self::default() };
        let mut before: Option<ReadRequest> = None;
        for answer in answers {
            let Some((name, usage)) = answer.record.as_ref().zip(answer.usage.as_ref()) else {
                before = None;
                continue;
            };
            let text = requests.get(name)?.text().as_str().to_owned();
            let SentCall { started_at, context, wire } = record::read_sent_call(run_dir, name)?;
            let Ok(breakdown) = RequestBreakdown::parse(&text, &context, answer.ratio) else {
                before = None;
                continue;
            };
            let markers = wire.as_ref().and_then(|wire| wire.options.cache.as_ref());
            let earlier = before.as_ref().and_then(|before| {
                RequestBreakdown::parse(&before.text, &before.context, answer.ratio).ok()
            });
            let asked_at = started_at.unwrap_or(answer.answered_at);
            let answered = PricedRequest {
                iteration: answer.iteration,
                asked_at,
                answered_at: answer.answered_at,
                usage: usage.clone(),
                prices: answer.prices,
                min_prefix: answer.min_prefix,
                reports_cache,
                lifetime: markers.map(|markers| markers.lifetime).unwrap_or_default(),
                cache_use: wire.as_ref().map_or(CacheUse::Automatic, used_cache),
                change: earlier.map(|earlier| find_change(&earlier, &breakdown, answer.ratio)),
            };
            let paid_again =
                before.as_ref().and_then(|before| PaidAgain::find(&before.answered, &answered));
            let longer_usd = answered.longer_entry_usd(paid_again.as_ref());
            judged.longer_entries_usd =
                judged.longer_entries_usd.zip(longer_usd).map(|(sum, more)| sum + more);
            judged.paid_again.extend(paid_again);
            let first = judged.first.get_or_insert_with(|| OpeningRequest {
                answered: answered.clone(),
                prefixes: shared_prefixes(&breakdown, wire.as_ref(), answer.ratio),
                has_mark: wire.as_ref().is_none_or(marks_prefix),
                last_use: asked_at,
            });
            first.last_use = asked_at;
            before = Some(ReadRequest { text, context, answered });
        }
        Ok(judged)
    }
}

fn uses_cache(usage: &Usage) -> bool {
    usage.cached_input_tokens > 0 || usage.cache_write_tokens.unwrap_or(0) > 0
}

/// How a request uses the cache; `Unused` also if it marks nothing where only marks count.
fn used_cache(wire: &WireExchange) -> CacheUse {
    match &wire.options.cache {
        Some(markers) if markers.blocks.is_empty() => CacheUse::Unused,
        _ => wire.cache_use(),
    }
}

/// Whether an entry ends the part of the request that other runs share: where the endpoint keeps entries only at marks, a mark.
fn marks_prefix(wire: &WireExchange) -> bool {
    match used_cache(wire) {
        CacheUse::Automatic => true,
        CacheUse::Marked => wire.options.constant_messages > 0,
        CacheUse::Unused => false,
    }
}

/// The parts of a first request with which the ones of other runs may begin, the shortest first. Where the record has the
/// constant prefix, it is the only one; else the context before the conversation counts, as far as runs have the same.
fn shared_prefixes(
    breakdown: &RequestBreakdown<'_>,
    wire: Option<&WireExchange>,
    ratio: TokenRatio,
) -> Vec<SharedPrefix> {
    let form = wire.and_then(|wire| WireForm::parse(&wire.form));
    let constant = wire.map_or(0, |wire| wire.options.constant_messages);
    let counts = if matches!(form, Some(WireForm::Anthropic | WireForm::Responses)) {
        constant..=constant
    } else {
        let blocks = breakdown.summary.blocks.iter();
        let leading = blocks.take_while(|block| block.kind != JOURNAL_KIND);
        0..=leading.map(|block| block.messages).sum()
    };
    let host = wire.and_then(|wire| wire.base_url.as_deref()).unwrap_or_default();
    let prefixes = counts.map(|count| {
        let (hash, tokens) = breakdown.leading_part(count, ratio);
        SharedPrefix { key: format!("{host} {hash}"), tokens }
    });
    prefixes.collect()
}

/// How a request differs from the one before it in what a cache could have.
fn find_change(
    earlier: &RequestBreakdown<'_>,
    later: &RequestBreakdown<'_>,
    ratio: TokenRatio,
) -> RequestChange {
    let diff = compare_breakdowns(earlier, later, ratio, None);
    let Some(cache_break) = diff.breaks else { return RequestChange::None };
    let Some(message) = cache_break.message else {
        return if cache_break.part == "model" {
            RequestChange::Model
        } else {
            RequestChange::Tools
        };
    };
    if diff.replaced {
        return RequestChange::Replaced;
    }
    let journal = |request: &RequestBreakdown<'_>| {
        let mut blocks = request.summary.blocks.iter();
        blocks.find(|block| block.kind == JOURNAL_KIND).map_or(usize::MAX, |block| block.order)
    };
    let before = earlier.message_block(message - 1);
    let after = later.message_block(message - 1);
    match (before, after) {
        (Some(before), _) if before.order > journal(earlier) => {
            RequestChange::AfterJournal { common_tokens: diff.cacheable.tokens }
        }
        (Some(before), _) if before.order < journal(earlier) => changed_block(before, after),
        (_, Some(after)) if after.order < journal(later) => changed_block(after, Some(after)),
        (Some(_), _) => RequestChange::Conversation,
        (None, _) => RequestChange::Replaced,
    }
}

/// A changed block; its text in the later request is paid for in any case.
fn changed_block(block: &RequestBlock, after: Option<&RequestBlock>) -> RequestChange {
    let tokens = after.filter(|after| after.source == block.source).map_or(0, |after| after.tokens);
    RequestChange::Block { source: block.source.clone(), tokens }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: &str, messages: usize) -> ContextBlock {
        let text = serde_json::json!({"source": kind, "type": kind, "messages": messages, "bytes": 0, "tokens": 10});
        serde_json::from_value(text).unwrap()
    }

    fn change(before: (&str, &[ContextBlock]), after: (&str, &[ContextBlock])) -> RequestChange {
        let parse = |(text, blocks)| -> RequestBreakdown<'_> {
            RequestBreakdown::parse(text, blocks, TokenRatio::default()).unwrap()
        };
        find_change(&parse(before), &parse(after), TokenRatio::default())
    }

    #[test]
    fn c_35_20_only_what_changes_before_the_end_of_the_journal_is_a_change() {
        let blocks = |count| [block("prompt", 1), block("journal", count), block("clock", 1)];
        let (short, long) = (blocks(1), blocks(2));
        let first = (r#"{"model":"m","messages":["s","u",1]}"#, &short[..]);
        let changed = |text, blocks| change(first, (text, blocks));
        let tail = changed(r#"{"model":"m","messages":["s","u","a",2]}"#, &long);
        assert!(matches!(tail, RequestChange::AfterJournal { .. }), "{tail:?}");
        let prompt = changed(r#"{"model":"m","messages":["t","u","a",2]}"#, &long);
        assert_eq!(prompt, RequestChange::Block { source: "prompt".to_owned(), tokens: 10 });
        let summary = changed(r#"{"model":"m","messages":["s","v","a",2]}"#, &long);
        assert_eq!(summary, RequestChange::Conversation);
        let model = changed(r#"{"model":"n","messages":["s","u","a",2]}"#, &long);
        assert_eq!(model, RequestChange::Model);
        let tools = changed(r#"{"model":"m","messages":["s","u","a",2],"tools":[1]}"#, &long);
        assert_eq!(tools, RequestChange::Tools);
        let hook = changed(r#"{"model":"m","messages":["s","v"]}"#, &long);
        assert_eq!(hook, RequestChange::Replaced);
        assert_eq!(change(first, first), RequestChange::None);
    }
}
