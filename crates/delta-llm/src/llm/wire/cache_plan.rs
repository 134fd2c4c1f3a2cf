//! Where a request marks the end of a prefix that the endpoint shall keep in its cache.
//!
//! A marker makes the endpoint write the prefix before it, for a surcharge, unless a cache has it already: then the prefix
//! is read for a fraction of its price. So a marker pays where a later request has the same prefix. This module decides by
//! what the last requests have shown to be stable and by what the endpoint reported, and never owes more than one write:
//! [`CacheHistory::plan`].
//!
//! Pure: the caller passes the time and sends the request.

use delta_words::{CacheLifetime, CacheMarkers, Usage};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The share of the price of a token that reading it from a cache saves.
const READ_SAVING: f64 = 0.9;
/// What writing a token costs in addition to its price, for an entry of five minutes and of an hour.
const SHORT_WRITE_SURCHARGE: f64 = 0.25;
const LONG_WRITE_SURCHARGE: f64 = 1.0;
/// A marker finds an entry at most this many blocks before it.
const LOOK_BACK_BLOCKS: usize = 20;
/// Endpoints do not keep shorter prefixes, if nothing is known of the model.
pub(super) const MIN_PREFIX_TOKENS: u64 = 1024;

/// A block of a request, with the prefix that it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheBlock {
    /// The SHA-256 of everything up to the end of the block.
    pub prefix: [u8; 32],
    /// The estimated tokens up to the end of the block.
    pub tokens: u64,
    /// Whether the form allows a marker on the block.
    pub is_markable: bool,
    /// Whether the block is the last one before the conversation.
    pub ends_system: bool,
    /// Whether the block is the last one of the constant prefix, with which every run of the agent begins.
    pub ends_constant: bool,
}

/// Whether requests mark prefixes for the endpoint's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// Never.
    Off,
    /// Where it pays, with entries of this lifetime.
    Auto(CacheLifetime),
    /// Only what other runs read too: the run makes a single request.
    Constant(CacheLifetime),
}

impl CachePolicy {
    /// How long the endpoint keeps an entry after its last use; `None` without entries.
    pub fn lifetime(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::Auto(lifetime) | Self::Constant(lifetime) => Some(lifetime.duration()),
        }
    }

    /// The policy of a run that makes a single request.
    #[must_use]
    pub const fn for_single_request(self) -> Self {
        match self {
            Self::Auto(lifetime) => Self::Constant(lifetime),
            Self::Off | Self::Constant(_) => self,
        }
    }
}

impl Default for CachePolicy {
    fn default() -> Self {
        Self::Auto(CacheLifetime::default())
    }
}

/// What writing a token costs in addition to its price.
const fn write_surcharge(lifetime: CacheLifetime) -> f64 {
    match lifetime {
        CacheLifetime::Short => SHORT_WRITE_SURCHARGE,
        CacheLifetime::Long => LONG_WRITE_SURCHARGE,
    }
}

/// What this process knows of the endpoint's cache.
#[derive(Debug, Clone, Default)]
pub struct CacheHistory {
    lifetime: CacheLifetime,
    /// The least tokens that the endpoint keeps, if that is known of the model.
    min_prefix: Option<u64>,
    /// Whether no request of the run follows.
    is_single_request: bool,
    /// The prefixes of the last request, in order.
    last_prefixes: Vec<[u8; 32]>,
    /// The prefixes that were marked, with the time of their last use.
    entries: HashMap<[u8; 32], Instant>,
    /// What reading saved minus what writing cost, in prices of a token of the request.
    balance: f64,
}

impl CacheHistory {
    /// The history of a process that has sent nothing.
    pub fn new(lifetime: CacheLifetime) -> Self {
        Self { lifetime, ..Self::default() }
    }

    /// The history of a process whose run makes a single request.
    pub fn for_single_request(lifetime: CacheLifetime) -> Self {
        Self { lifetime, is_single_request: true, ..Self::default() }
    }

    /// Takes note of the least tokens of a prefix that the endpoint keeps.
    pub fn expect_prefixes_of(&mut self, min_tokens: u64) {
        self.min_prefix = Some(min_tokens);
    }

    /// Whether no request is known.
    pub fn is_empty(&self) -> bool {
        self.last_prefixes.is_empty()
    }

    /// Assumes that `blocks` were sent by an earlier process: its prefixes count as stable, its entries as gone.
    pub fn assume_sent(&mut self, blocks: &[CacheBlock]) {
        self.last_prefixes = blocks.iter().map(|block| block.prefix).collect();
    }

    /// The blocks that get a marker, at most four:
    ///
    /// - the end of the constant prefix, where another run finds it;
    /// - of the first request, the end of the system prompt and the last block;
    /// - of a request that extends the last one, also the last block of that one;
    /// - of another one, the last block of what it has in common with the last one.
    ///
    /// A write is left out if the run would then have paid more for its markers than one write of this request.
    pub fn plan(&self, blocks: &[CacheBlock], now: Instant) -> CacheMarkers {
        CacheMarkers { blocks: self.plan_blocks(blocks, now), lifetime: self.lifetime }
    }

    fn plan_blocks(&self, blocks: &[CacheBlock], now: Instant) -> Vec<usize> {
        let mut markers = self.wanted_markers(blocks);
        let Some(&last) = markers.last() else { return Vec::new() };
        let hit = markers.iter().filter_map(|&marker| self.find_entry(blocks, marker, now)).max();
        let hit_tokens = hit.map_or(0, |index| blocks[index].tokens) as f64;
        let written_tokens = blocks[last].tokens as f64 - hit_tokens;
        let surcharge = write_surcharge(self.lifetime);
        let balance = self.balance + READ_SAVING * hit_tokens - surcharge * written_tokens;
        let request_tokens = blocks.last().map_or(0, |block| block.tokens) as f64;
        if written_tokens > 0.0 && balance < -surcharge * request_tokens {
            markers = hit.into_iter().collect();
        }
        markers
    }

    fn wanted_markers(&self, blocks: &[CacheBlock]) -> Vec<usize> {
        let pairs = self.last_prefixes.iter().zip(blocks);
        let common = pairs.take_while(|(prefix, block)| **prefix == block.prefix).count();
        let last_markable =
            |count: usize| blocks[..count].iter().rposition(|block| block.is_markable);
        // An endpoint ignores the marker of a prefix that is too short for it, and charges nothing. A prefix that the last
        // request did not have, because tools have changed, is not written again.
        let constant = blocks.iter().position(|block| block.ends_constant && block.is_markable);
        let constant = constant.filter(|index| self.is_empty() || *index < common);
        let mut markers: Vec<usize> = constant.into_iter().collect();
        if self.is_single_request {
            return markers;
        }
        if common == self.last_prefixes.len() {
            markers.extend(blocks.iter().position(|block| block.ends_system && block.is_markable));
            markers.extend(last_markable(common));
            markers.extend(last_markable(blocks.len()));
        } else {
            let stable = last_markable(common);
            let least = self.min_prefix.unwrap_or(MIN_PREFIX_TOKENS);
            markers.extend(stable.filter(|&index| blocks[index].tokens >= least));
        }
        markers.sort_unstable();
        markers.dedup();
        markers
    }

    /// The block that ends the longest prefix that the endpoint finds for a marker.
    fn find_entry(&self, blocks: &[CacheBlock], marker: usize, now: Instant) -> Option<usize> {
        let first = marker.saturating_sub(LOOK_BACK_BLOCKS - 1);
        (first..=marker).rev().find(|&index| self.has_entry(&blocks[index], now))
    }

    fn has_entry(&self, block: &CacheBlock, now: Instant) -> bool {
        let used_at = self.entries.get(&block.prefix);
        let lifetime = self.lifetime.duration();
        used_at.is_some_and(|&used_at| now.saturating_duration_since(used_at) < lifetime)
    }

    /// Takes note of a request that was answered: its blocks, its markers, and what the endpoint reported.
    pub fn record_answer(
        &mut self,
        blocks: &[CacheBlock],
        markers: &[usize],
        usage: Option<&Usage>,
        now: Instant,
    ) {
        let hits: Vec<usize> =
            markers.iter().filter_map(|&marker| self.find_entry(blocks, marker, now)).collect();
        for &index in markers.iter().chain(&hits) {
            self.entries.insert(blocks[index].prefix, now);
        }
        self.last_prefixes = blocks.iter().map(|block| block.prefix).collect();
        if let Some(usage) = usage {
            let read = usage.cached_input_tokens as f64;
            let written = usage.cache_write_tokens.unwrap_or(0) as f64;
            self.balance += READ_SAVING * read - write_surcharge(self.lifetime) * written;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    /// A request as the tokens of its blocks, each with the text that identifies it; the first is the system prompt.
    type Request = Vec<(u64, u32)>;

    fn blocks(request: &Request) -> Vec<CacheBlock> {
        let mut hasher = Sha256::new();
        let mut tokens = 0;
        let blocks = request.iter().enumerate().map(|(index, (count, text))| {
            hasher.update(count.to_le_bytes());
            hasher.update(text.to_le_bytes());
            tokens += count;
            CacheBlock {
                prefix: hasher.clone().finalize().into(),
                tokens,
                is_markable: true,
                ends_system: index == 1,
                ends_constant: index == 0,
            }
        });
        blocks.collect()
    }

    /// The cache of an endpoint, by its documented rules.
    #[derive(Default)]
    struct EndpointCache(HashMap<[u8; 32], Instant>);

    impl EndpointCache {
        /// Serves a request, and returns the tokens that were read and written.
        fn serve(&mut self, blocks: &[CacheBlock], markers: &[usize], now: Instant) -> (u64, u64) {
            assert!(markers.len() <= 4, "{markers:?}");
            let mut read = 0;
            for &marker in markers {
                for block in blocks[..=marker].iter().rev().take(LOOK_BACK_BLOCKS) {
                    let entry = self.0.get_mut(&block.prefix);
                    if let Some(used_at) = entry
                        && now - *used_at < Duration::from_secs(300)
                    {
                        *used_at = now;
                        read = read.max(block.tokens);
                        break;
                    }
                }
            }
            let mut end = 0;
            for &marker in markers {
                if blocks[marker].tokens >= MIN_PREFIX_TOKENS {
                    self.0.insert(blocks[marker].prefix, now);
                    end = end.max(blocks[marker].tokens);
                }
            }
            (read, end.saturating_sub(read))
        }
    }

    /// The cost of the requests with markers and without, and the dearest single write.
    fn price(requests: &[Request], gaps: &[Duration]) -> (f64, f64, f64) {
        price_with(requests, gaps, true)
    }

    /// The same; without `is_shared`, no block ends a constant prefix.
    fn price_with(requests: &[Request], gaps: &[Duration], is_shared: bool) -> (f64, f64, f64) {
        let mut history = CacheHistory::new(CacheLifetime::Short);
        let mut cache = EndpointCache::default();
        let (mut marked, mut plain, mut write) = (0.0, 0.0, 0.0_f64);
        let mut now = Instant::now();
        for (request, gap) in requests.iter().zip(gaps) {
            now += *gap;
            let mut blocks = blocks(request);
            blocks[0].ends_constant = is_shared;
            let total = blocks.last().unwrap().tokens;
            let markers = history.plan(&blocks, now).blocks;
            let (read, written) = cache.serve(&blocks, &markers, now);
            let usage = Usage {
                input_tokens: total,
                cached_input_tokens: read,
                cache_write_tokens: Some(written),
                ..Usage::default()
            };
            history.record_answer(&blocks, &markers, Some(&usage), now);
            marked +=
                (total as f64) + SHORT_WRITE_SURCHARGE * written as f64 - READ_SAVING * read as f64;
            plain += total as f64;
            write = write.max(SHORT_WRITE_SURCHARGE * total as f64);
        }
        (marked, plain, write)
    }

    fn soon(count: usize) -> Vec<Duration> {
        vec![Duration::from_secs(10); count]
    }

    /// A run of `count` iterations; `context` adds to the conversation before and after it.
    fn run(count: u32, context: impl Fn(u32, &mut Request)) -> Vec<Request> {
        let conversation = |iteration: u32| {
            let answers =
                (0..iteration).flat_map(|number| [(80, 2 * number), (400, 2 * number + 1)]);
            let mut request: Request =
                [(3000, 1_000_000), (200, 1_000_001)].into_iter().chain(answers).collect();
            context(iteration, &mut request);
            request
        };
        (0..count).map(conversation).collect()
    }

    #[test]
    fn c_23_1_a_stable_context_of_fifty_iterations_costs_a_fifth() {
        let requests = run(50, |_, _| {});
        let (marked, plain, _) = price(&requests, &soon(50));
        assert!(marked < 0.2 * plain, "{marked} of {plain}");
    }

    #[test]
    fn c_23_1_a_block_that_changes_at_the_end_is_not_written() {
        let requests = run(50, |iteration, request| request.push((500, 2_000_000 + iteration)));
        let (marked, plain, _) = price(&requests, &soon(50));
        assert!(marked < 0.25 * plain, "{marked} of {plain}");
    }

    #[test]
    fn c_23_1_a_block_that_changes_before_the_conversation_costs_no_more_than_one_write() {
        let requests =
            run(50, |iteration, request| request.insert(0, (500, 2_000_000 + iteration)));
        let (marked, plain, write) = price(&requests, &soon(50));
        assert!(marked <= plain + write, "{marked} of {plain}");
    }

    #[test]
    fn c_23_1_a_window_keeps_reading_the_system_prompt() {
        let requests = run(50, |iteration, request| {
            let dropped = (iteration as usize).saturating_sub(5) * 2;
            request.drain(2..2 + dropped);
        });
        let (marked, plain, _) = price(&requests, &soon(50));
        assert!(marked < 0.6 * plain, "{marked} of {plain}");
    }

    #[test]
    fn c_23_1_many_results_in_one_answer_still_hit() {
        let requests: Vec<Request> = (0..20)
            .map(|iteration| {
                let results = (0..iteration * 30).map(|number| (100, number));
                [(3000, 1_000_000)].into_iter().chain(results).collect()
            })
            .collect();
        let (marked, plain, _) = price(&requests, &soon(20));
        assert!(marked < 0.3 * plain, "{marked} of {plain}");
    }

    #[test]
    fn c_23_1_tools_that_outlast_the_cache_cost_no_more_than_one_write() {
        let requests = run(50, |_, _| {});
        let (marked, plain, write) = price(&requests, &vec![Duration::from_secs(400); 50]);
        assert!(marked <= plain + write, "{marked} of {plain}");
    }

    #[test]
    fn c_23_1_the_first_request_after_a_continue_trusts_what_was_recorded() {
        let mut history = CacheHistory::new(CacheLifetime::Short);
        let requests = run(3, |iteration, request| request.push((900, 3_000_000 + iteration)));
        history.assume_sent(&blocks(&requests[1]));
        let request = blocks(&requests[2]);
        assert_eq!(history.plan(&request, Instant::now()).blocks, [0, 3]);
    }

    #[test]
    fn c_35_16_a_constant_prefix_that_has_changed_is_not_written_again() {
        let mut history = CacheHistory::new(CacheLifetime::Short);
        history.assume_sent(&blocks(&vec![(2000, 1), (100, 2)]));
        let changed = blocks(&vec![(2000, 3), (100, 2)]);
        assert_eq!(history.plan(&changed, Instant::now()).blocks, [0; 0]);
    }

    #[test]
    fn c_35_15_the_least_prefix_of_the_model_counts_where_it_is_known() {
        let before = vec![(600, 1), (700, 2)];
        let mut after = blocks(&vec![(600, 1), (700, 3)]);
        after[0].ends_constant = false;
        for (least, expected) in [(None, &[][..]), (Some(512), &[0]), (Some(4096), &[])] {
            let mut history = CacheHistory::new(CacheLifetime::Short);
            least.into_iter().for_each(|tokens| history.expect_prefixes_of(tokens));
            history.assume_sent(&blocks(&before));
            assert_eq!(history.plan(&after, Instant::now()).blocks, expected, "{least:?}");
        }
    }

    proptest! {
        #[test]
        fn c_23_1_markers_never_cost_more_than_one_write(
            requests in prop::collection::vec(
                prop::collection::vec((1u64..4000, 0u32..3), 1..40), 1..30),
            gaps in prop::collection::vec(1u64..600, 30),
        ) {
            let gaps: Vec<_> = gaps.into_iter().map(Duration::from_secs).collect();
            let (marked, plain, write) = price(&requests, &gaps);
            prop_assert!(marked <= plain + write + 1e-6, "{} of {}, a write is {}", marked, plain, write);
        }

        /// A conversation that grows. With other requests, what the marker saves can pay for other writes.
        #[test]
        fn c_35_16_the_shared_marker_costs_at_most_one_write_of_its_prefix(
            constant in 1u64..4000,
            turns in prop::collection::vec(
                prop::collection::vec((1u64..4000, 0u32..3), 0..10), 1..30),
            gaps in prop::collection::vec(1u64..600, 30),
        ) {
            let gaps: Vec<_> = gaps.into_iter().map(Duration::from_secs).collect();
            let requests = turns.iter().scan(vec![(constant, 9)], |request, turn| {
                request.extend(turn);
                Some(request.clone())
            });
            let requests: Vec<Request> = requests.collect();
            let (shared, ..) = price_with(&requests, &gaps, true);
            let (own, ..) = price_with(&requests, &gaps, false);
            let write = SHORT_WRITE_SURCHARGE * constant as f64;
            prop_assert!(shared <= own + write + 1e-6, "{} of {}, a write is {}", shared, own, write);
        }
    }
}
