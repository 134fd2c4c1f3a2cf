//! What many runs will cost, from the tokens of a few: directly, in another service tier, in batches, without a cache.
//!
//! Expected values. An endpoint reads an entry of its cache if the prefix is long enough, an answer to it began, and the last
//! use is not too long ago.

use crate::{Pricing, ServicePrices, TokenPrices, Usage, WireForm};

/// The shortest prefix that an endpoint keeps, where no list of prices says it.
const DEFAULT_MIN_PREFIX: u64 = 1024;

/// How long a batch takes, in seconds: a request waits so long for the answer of the one before.
const BATCH_ROUND_S: f64 = 600.0;

/// The part of a round before the first answer of a batch and after the last one.
const BATCH_MARGIN_S: f64 = 120.0;

/// The time until an answer begins, in seconds.
const FIRST_ANSWER_S: f64 = 2.0;

/// The share of readable entries that batches find: at worst and at best.
pub const BATCH_HITS: (f64, f64) = (0.3, 0.98);

/// The tokens of a request and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnTokens {
    /// Of the request.
    pub input: u64,
    /// Of the answer, with its reasoning.
    pub output: u64,
    /// Of the answer's reasoning.
    pub reasoning: u64,
}

/// The tokens of one conversation: of requests, each of which continues the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLoad {
    /// The requests, in order.
    pub turns: Vec<TurnTokens>,
    /// The tokens with which every run begins, and which other runs can read from the cache.
    pub shared_tokens: u64,
    /// The seconds from one request to the next.
    pub pause_s: f64,
}

/// How the cache of an endpoint works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheRules {
    /// The tokens of the shortest prefix that is kept.
    pub min_tokens: u64,
    /// How long an entry is kept after its last use, in seconds.
    pub lifetime_s: f64,
    /// Whether requests mark what is kept, and pay for it; otherwise everything is kept for nothing.
    pub is_marked: bool,
    /// A longer lifetime in seconds that requests can ask for, and the price of a written token as a multiple of an input token.
    pub long_entries: Option<(f64, f64)>,
}

impl CacheRules {
    /// The rules of an endpoint of this form, for a model with these prices.
    pub fn of_endpoint(form: WireForm, pricing: &Pricing) -> Self {
        let is_anthropic = form == WireForm::Anthropic;
        let charges_writes = pricing.charges_cache_writes();
        let (lifetime_s, long_entries) = match (is_anthropic, charges_writes) {
            (true, _) => (300.0, Some((3600.0, 2.0))),
            (false, true) => (1800.0, Some((43_200.0, 2.5))),
            (false, false) => (300.0, None),
        };
        let min_tokens = pricing.min_cached_prefix.unwrap_or(DEFAULT_MIN_PREFIX);
        Self { min_tokens, lifetime_s, is_marked: is_anthropic || charges_writes, long_entries }
    }
}

/// The shares, from 0 to 1, of readable entries that requests find.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheHits {
    /// Of the entries of the run's own last request.
    pub own: f64,
    /// Of the entries of the prefix that runs share.
    pub shared: f64,
}

/// How many runs, and how many of them at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunCount {
    /// All of them.
    pub runs: u64,
    /// How many begin before the first of them has an answer: they find nothing of each other.
    pub at_once: u64,
}

/// What a tier costs, in USD.
#[derive(Debug, Clone, Copy)]
pub struct TierPrices<'a> {
    /// The prices of the tier.
    pub prices: &'a ServicePrices,
    /// How the cache works.
    pub rules: CacheRules,
}

impl TokenLoad {
    /// The cost of so many such runs in USD that ask directly, or in another tier with these prices. `hits` are the shares of
    /// entries that are found while they are kept.
    pub fn direct_cost(&self, tier: TierPrices<'_>, count: RunCount, hits: CacheHits) -> f64 {
        let TierPrices { prices, rules } = tier;
        let is_kept = self.pause_s <= rules.lifetime_s;
        let at_once = count.at_once.clamp(1, count.runs.max(1));
        let is_shared_kept = self.pause_s <= rules.lifetime_s * at_once as f64;
        let own_hits = if is_kept { hits.own } else { 0.0 };
        let shared = if is_shared_kept { hits.shared } else { 0.0 };
        let run_cost = |first_shared: f64| {
            let turns = self.turns.iter().enumerate();
            let costs = turns.map(|(index, turn)| {
                let shared = if index == 0 { first_shared } else { shared };
                self.turn_cost(
                    index,
                    *turn,
                    prices.for_input(turn.input),
                    rules,
                    CacheHits { own: own_hits, shared },
                )
            });
            costs.sum::<f64>()
        };
        let cold = at_once.min(count.runs);
        cold as f64 * run_cost(0.0) + (count.runs - cold) as f64 * run_cost(shared)
    }

    /// The cost of so many such runs in USD if no request reads or writes a cache.
    pub fn uncached_cost(&self, prices: &ServicePrices, runs: u64) -> f64 {
        let costs = self.turns.iter().map(|turn| prices.cost(&turn.usage()));
        costs.sum::<f64>() * runs as f64
    }

    /// The cost of so many such runs in USD whose requests go into batches, of which a share `hit` of the readable entries is
    /// found: with what is cheaper, marks at every place or none. `direct` are the prices of the one request that writes the shared
    /// prefix before the first batch.
    pub fn batch_cost(
        &self,
        tier: TierPrices<'_>,
        direct: &ServicePrices,
        runs: u64,
        hit: f64,
    ) -> f64 {
        let TierPrices { prices, rules } = tier;
        let long = rules.long_entries.filter(|_| rules.lifetime_s < BATCH_ROUND_S + BATCH_MARGIN_S);
        let (lifetime_s, write_factor) = long.unwrap_or((rules.lifetime_s, 0.0));
        let with_long_writes = |prices: &TokenPrices| match long {
            Some(_) => TokenPrices { cache_write: prices.input * write_factor, ..*prices },
            None => *prices,
        };
        let own_hits = if BATCH_ROUND_S <= lifetime_s { hit } else { 0.0 };
        let hits = CacheHits { own: own_hits, shared: hit };
        let turn_cost = |(index, turn): (usize, &TurnTokens), hits| {
            let prices = with_long_writes(prices.for_input(turn.input));
            self.turn_cost(index, *turn, &prices, rules, hits)
        };
        let costs = self.turns.iter().enumerate().map(|turn| turn_cost(turn, hits));
        let first_cost = |hits| self.turns.first().map_or(0.0, |turn| turn_cost((0, turn), hits));
        let first_writes = if !rules.is_marked {
            // Requests that begin before the first answer does find nothing.
            let cold = runs as f64 * FIRST_ANSWER_S / (BATCH_ROUND_S - BATCH_MARGIN_S);
            let missed = CacheHits { shared: 0.0, ..hits };
            cold.ceil() * (first_cost(missed) - first_cost(hits))
        } else if self.shared_tokens >= rules.min_tokens {
            self.shared_tokens as f64 * with_long_writes(direct.base()).cache_write / 1e6
        } else {
            0.0
        };
        let cached = costs.sum::<f64>() * runs as f64 + first_writes;
        cached.min(self.uncached_cost(prices, runs))
    }

    /// The expected cost of a request, which finds its run's last request, or else the shared prefix.
    fn turn_cost(
        &self,
        index: usize,
        turn: TurnTokens,
        prices: &TokenPrices,
        rules: CacheRules,
        hits: CacheHits,
    ) -> f64 {
        let readable =
            |tokens: u64| if tokens >= rules.min_tokens { tokens.min(turn.input) } else { 0 };
        let last = index.checked_sub(1).map_or(0, |last| readable(self.turns[last].input));
        let shared = readable(self.shared_tokens);
        let own_hits = if last > 0 { hits.own } else { 0.0 };
        let read = own_hits * last as f64 + (1.0 - own_hits) * hits.shared * shared as f64;
        let rest = turn.input as f64 - read;
        let is_written = rules.is_marked && turn.input >= rules.min_tokens;
        let rest_price = if is_written { prices.cache_write } else { prices.input };
        let answer = Usage { input_tokens: 0, ..turn.usage() };
        prices.cost(&answer) + (read * prices.cached_input + rest * rest_price) / 1e6
    }
}

impl TurnTokens {
    fn usage(self) -> Usage {
        Usage {
            input_tokens: self.input,
            output_tokens: self.output,
            reasoning_tokens: Some(self.reasoning),
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prices of input, output, reads and writes; marked; fewest tokens; lifetime; long entries; factors of batches and of flex.
    type Vendor = ([f64; 4], bool, u64, f64, Option<(f64, f64)>, f64, f64);

    const VENDORS: [Vendor; 6] = [
        ([4.0, 20.0, 0.2, 5.0], true, 512, 300.0, Some((3600.0, 2.0)), 0.5, 0.0),
        ([1.0, 5.0, 0.1, 1.25], true, 4096, 300.0, Some((3600.0, 2.0)), 0.5, 0.0),
        ([4.0, 20.0, 0.4, 5.0], true, 1024, 1800.0, Some((43_200.0, 2.5)), 0.5, 0.5),
        ([2.5, 10.0, 1.25, 2.5], false, 1024, 300.0, None, 0.5, 0.0),
        ([0.75, 3.75, 0.075, 0.75], false, 4096, 300.0, None, 0.5, 0.5),
        ([2.0, 6.0, 0.5, 2.0], false, 1, 300.0, None, 0.8, 0.0),
    ];

    /// A vendor; runs, turns, shared tokens, the run's own, new tokens a turn, tokens of an answer, runs at a time; the share of
    /// hits in batches; the cost without a cache, directly, directly after one first run, in flex, in batches.
    type Load = (usize, [u64; 7], f64, [f64; 5]);

    /// Loads at random, with what a simulation of each single request costs: the mean of 20,000 runs where hits are random.
    const LOADS: [Load; 12] = [
        (
            0,
            [834, 8, 20000, 1950, 2221, 79, 32],
            0.3,
            [803.8025, 123.3208, 120.3448, 0.0000, 401.9013],
        ),
        (2, [1275, 2, 200, 46, 937, 855, 8], 0.3, [50.8929, 52.4012, 52.4012, 26.2006, 25.4465]),
        (1, [717, 10, 5000, 1220, 63, 1240, 8], 0.3, [91.0841, 50.6365, 50.5962, 0.0000, 45.5420]),
        (3, [216, 3, 600, 1943, 143, 752, 32], 0.0, [9.2243, 7.8125, 7.8125, 0.0000, 4.6121]),
        (
            2,
            [664, 10, 20000, 1136, 427, 659, 8],
            0.65,
            [699.9224, 164.6998, 164.0558, 82.0279, 139.0814],
        ),
        (
            3,
            [1081, 10, 600, 616, 1975, 846, 4],
            0.0,
            [364.4997, 253.6377, 253.6377, 0.0000, 182.2498],
        ),
        (
            2,
            [767, 8, 20000, 580, 1946, 611, 8],
            0.65,
            [747.2666, 193.0539, 192.4099, 96.2049, 165.5799],
        ),
        (
            4,
            [846, 30, 600, 1081, 631, 1104, 4],
            0.3,
            [311.2318, 143.1004, 143.1004, 71.5502, 155.6159],
        ),
        (3, [1088, 3, 200, 1142, 196, 870, 32], 0.0, [40.9469, 37.0301, 37.0301, 0.0000, 20.4734]),
        (5, [101, 10, 600, 850, 1190, 859, 1], 0.98, [18.9516, 10.3943, 10.3943, 0.0000, 14.4495]),
        (
            4,
            [766, 3, 20000, 1815, 2361, 789, 32],
            0.65,
            [48.4665, 14.7779, 14.3594, 7.1797, 14.1054],
        ),
        (0, [716, 8, 1750, 534, 1751, 60, 8], 0.65, [199.6208, 60.5383, 60.4795, 0.0000, 89.2363]),
    ];

    fn vendor_prices(vendor: Vendor, factor: f64) -> ServicePrices {
        let [input, output, cached_input, cache_write] = vendor.0.map(|price| price * factor);
        let prices = TokenPrices { input, cached_input, cache_write, output, reasoning: output };
        ServicePrices::new(prices, Vec::new())
    }

    #[test]
    fn c_35_19_a_forecast_is_what_a_simulation_of_the_requests_costs() {
        for load in LOADS {
            let (index, [runs, turns, shared_tokens, own, grow, output, jobs], hit, expected) =
                load;
            let vendor = VENDORS[index];
            let (_, is_marked, min_tokens, lifetime_s, long_entries, batch, flex) = vendor;
            let turns = (0..turns).map(|turn| TurnTokens {
                input: shared_tokens + own + turn * grow,
                output,
                reasoning: 0,
            });
            let tokens = TokenLoad { turns: turns.collect(), shared_tokens, pause_s: 11.0 };
            let rules = CacheRules { min_tokens, lifetime_s, is_marked, long_entries };
            let hits = CacheHits { own: 1.0, shared: 1.0 };
            let cost = |factor: f64, at_once| {
                let prices = &vendor_prices(vendor, factor);
                tokens.direct_cost(TierPrices { prices, rules }, RunCount { runs, at_once }, hits)
            };
            let direct = &vendor_prices(vendor, 1.0);
            let prices = &vendor_prices(vendor, batch);
            let batch = tokens.batch_cost(TierPrices { prices, rules }, direct, runs, hit);
            let uncached = tokens.uncached_cost(direct, runs);
            let costs = [uncached, cost(1.0, jobs), cost(1.0, 1), cost(flex, 1), batch];
            for (cost, expected) in costs.into_iter().zip(expected) {
                assert!((cost - expected).abs() <= 0.01 * expected, "{load:?}: {costs:?}");
            }
        }
    }

    #[test]
    fn c_35_19_tools_that_outlast_an_entry_make_each_request_a_write() {
        let prices = &vendor_prices(VENDORS[0], 1.0);
        let rules =
            CacheRules { min_tokens: 512, lifetime_s: 300.0, is_marked: true, long_entries: None };
        let cost = |pause_s, at_once| {
            let turn = TurnTokens { input: 10_000, output: 0, reasoning: 0 };
            let load = TokenLoad { turns: vec![turn; 3], shared_tokens: 2000, pause_s };
            let count = RunCount { runs: 100, at_once };
            load.direct_cost(
                TierPrices { prices, rules },
                count,
                CacheHits { own: 1.0, shared: 1.0 },
            )
        };
        let (write, read) = (5.0 / 1e6, 0.2 / 1e6);
        assert!((cost(301.0, 1) - 300.0 * 10_000.0 * write).abs() < 1e-9);
        // With ten runs at a time, some run uses the shared entry every half a minute.
        let shared = 10.0 * 10_000.0 * write + 290.0 * (2000.0 * read + 8000.0 * write);
        assert!((cost(301.0, 10) - shared).abs() < 1e-9);
    }
}
