//! What a sweep will cost in each tier, from the runs that were measured, and how that is printed.

use crate::formats::plan::PlannedRun;
use crate::scores::score_text::cost_text;
use delta_agent::tool::value_text;
use delta_base::text::text_width::{clip_to_width, wrap_words};
use delta_operator::command_line::pluralize;
use delta_report::run_load::MeasuredRun;
use delta_statistics::estimate::amount;
use delta_words::{
    BATCH_HITS, CacheHits, CacheRules, RunCount, ServiceTier, TierPrices, TurnTokens, WireForm,
};
use serde::Serialize;
use serde_json::{Map, Value as Json};
use std::fmt::Write as _;

/// What a forecast may differ from the bill although its tokens are right.
const FORECAST_ERROR: f64 = 0.05;

/// The tiers, with what follows their range.
const TIERS: [(&str, &str); 4] = [
    ("direct", ""),
    ("flex", ""),
    ("batch", "  delta submits no batches"),
    ("no cache", "  directly"),
];

/// Both ends, which belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AmountRange {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The runs of an agent with a model and parameters.
pub struct SettingRuns {
    /// The agent's name in the sweep.
    pub agent: String,
    /// The model's name in the sweep.
    pub model: String,
    /// The parameters.
    pub params: Map<String, Json>,
    /// How many runs the sweep has of it.
    pub runs: u64,
    /// The measured ones, each with the runs below it.
    pub measured: Vec<Vec<MeasuredRun>>,
}

/// What the runs of a setting will cost.
#[derive(Debug, Serialize)]
pub struct SettingEstimate {
    agent: String,
    model: String,
    params: Map<String, Json>,
    runs: u64,
    measured: usize,
    /// The means of the measured runs.
    requests: f64,
    shared_tokens: f64,
    cache_hits: Option<f64>,
    input_tokens: Option<AmountRange>,
    output_tokens: Option<AmountRange>,
    tiers: TierCosts,
    /// Why a cost is not known.
    unknown: Vec<String>,
}

/// USD by tier, null where the cost is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TierCosts {
    direct: Option<AmountRange>,
    flex: Option<AmountRange>,
    batch: Option<AmountRange>,
    no_cache: Option<AmountRange>,
}

/// What a sweep will cost.
#[derive(Debug, Serialize)]
pub struct SweepEstimate {
    name: String,
    runs: u64,
    done: u64,
    spent_usd: Option<f64>,
    settings: Vec<SettingEstimate>,
    tiers: TierCosts,
    /// The tier with the lowest upper end.
    cheapest: Option<&'static str>,
    assumptions: Vec<String>,
}

impl SettingRuns {
    /// The setting of a run, of which nothing is counted yet.
    pub fn of(run: &PlannedRun) -> Self {
        Self {
            agent: run.agent.to_string(),
            model: run.model.to_string(),
            params: Map::clone(&run.params),
            runs: 0,
            measured: Vec::new(),
        }
    }

    /// Whether the run is one of them.
    pub fn includes(&self, run: &PlannedRun) -> bool {
        *self.agent == *run.agent && *self.model == *run.model && self.params == *run.params
    }

    /// The share of readable tokens that were read; none if none could be.
    fn cache_hits(&self) -> Option<f64> {
        let all = || self.measured.iter().flatten();
        let readable: u64 = all().map(|run| run.readable_tokens).sum();
        let read: u64 = all().map(|run| run.read_tokens).sum();
        (readable > 0).then(|| read as f64 / readable as f64)
    }

    /// The mean of an amount of each measured run and those below it, times the runs, from the low to the high amount.
    fn range_of(&self, amounts: &[(f64, f64)], error: f64) -> Option<AmountRange> {
        let end = |amounts: Vec<f64>| {
            let clusters: Vec<Vec<f64>> = amounts.into_iter().map(|amount| vec![amount]).collect();
            amount(&clusters, 0)
        };
        let low = end(amounts.iter().map(|(one, other)| one.min(*other)).collect())?;
        let high = end(amounts.iter().map(|(one, other)| one.max(*other)).collect())?;
        let runs = self.runs as f64;
        Some(AmountRange {
            low: low.interval.map_or(low.value, |interval| interval.low) * runs * (1.0 - error),
            high: high.interval.map_or(high.value, |interval| interval.high) * runs * (1.0 + error),
        })
    }

    fn tokens(&self, count: impl Fn(&TurnTokens) -> u64) -> Option<AmountRange> {
        let sums = self.measured.iter().map(|runs| {
            let turns = runs.iter().flat_map(|run| &run.load.turns);
            turns.map(&count).sum::<u64>() as f64
        });
        self.range_of(&sums.map(|sum| (sum, sum)).collect::<Vec<_>>(), 0.0)
    }

    /// What the runs cost in a tier if each is like `run`, so many begin at a time, and later ones find a share of what they have
    /// in common; or why that is not known.
    fn direct_cost(
        &self,
        run: &MeasuredRun,
        service: ServiceTier,
        at_once: u64,
        shared: f64,
    ) -> Result<f64, String> {
        let hits = CacheHits { own: self.cache_hits().unwrap_or(1.0), shared };
        let count = RunCount { runs: self.runs, at_once };
        Ok(run.load.direct_cost(tier_prices(run, service)?, count, hits))
    }

    /// What the runs cost in a tier at best and at worst if each is like `run`; or why that is not known.
    fn cost_ends(&self, run: &MeasuredRun, tier: &str, jobs: u64) -> Result<(f64, f64), String> {
        let hits = self.cache_hits();
        let has_read_first = self.measured.iter().flatten().any(|run| run.has_read_first);
        let best_shared = hits.map_or(1.0, |hits| if hits > 0.0 { 1.0 } else { 0.0 });
        let worst_shared = hits.unwrap_or(if has_read_first { 1.0 } else { 0.0 });
        let directly = |service| -> Result<(f64, f64), String> {
            let best = self.direct_cost(run, service, 1, best_shared)?;
            Ok((best, self.direct_cost(run, service, jobs, worst_shared)?))
        };
        let direct_prices = || Ok::<_, String>(tier_prices(run, ServiceTier::Direct)?.prices);
        match tier {
            "direct" => directly(ServiceTier::Direct),
            "flex" => directly(ServiceTier::Flex),
            "batch" => {
                let direct = direct_prices()?;
                let tier = tier_prices(run, ServiceTier::Batch)?;
                let cost = |hit| run.load.batch_cost(tier, direct, self.runs, hit);
                let (worst, best) = BATCH_HITS;
                Ok((cost(best), cost(worst)))
            }
            _ => {
                let cost = run.load.uncached_cost(direct_prices()?, self.runs);
                Ok((cost, cost))
            }
        }
    }

    /// The cost in a tier; or why it is not known.
    fn tier_cost(&self, tier: &str, jobs: u64) -> Result<AmountRange, String> {
        let runs = self.runs as f64;
        let mut amounts = Vec::new();
        for tree in &self.measured {
            let mut sum = (0.0, 0.0);
            for run in tree {
                let (best, worst) = self.cost_ends(run, tier, jobs)?;
                sum = (sum.0 + best / runs, sum.1 + worst / runs);
            }
            amounts.push(sum);
        }
        let range = self.range_of(&amounts, FORECAST_ERROR);
        range.ok_or_else(|| "no run of the setting was measured".to_owned())
    }

    /// What the runs will cost if so many begin at a time.
    fn estimate(mut self, jobs: u64) -> SettingEstimate {
        self.find_shared_tokens();
        let mut unknown = Vec::new();
        let mut cost = |tier| {
            let cost = self.tier_cost(tier, jobs);
            cost.map_err(|reason| {
                if !unknown.contains(&reason) {
                    unknown.push(reason);
                }
            })
            .ok()
        };
        let tiers = TierCosts {
            direct: cost("direct"),
            flex: cost("flex"),
            batch: cost("batch"),
            no_cache: cost("no cache"),
        };
        let count = self.measured.len().max(1) as f64;
        let firsts = self.measured.iter().filter_map(|tree| tree.first());
        let requests = self.measured.iter().flatten().map(|run| run.load.turns.len());
        SettingEstimate {
            runs: self.runs,
            measured: self.measured.len(),
            requests: requests.sum::<usize>() as f64 / count,
            shared_tokens: firsts.map(|run| run.load.shared_tokens as f64).sum::<f64>() / count,
            cache_hits: self.cache_hits(),
            input_tokens: self.tokens(|turn| turn.input),
            output_tokens: self.tokens(|turn| turn.output),
            tiers,
            unknown,
            agent: self.agent,
            model: self.model,
            params: self.params,
        }
    }

    /// Measures what the first requests of the runs have in common, the first two of each.
    fn find_shared_tokens(&mut self) {
        let firsts: Vec<Option<MeasuredRun>> =
            self.measured.iter().take(2).map(|tree| tree.first().cloned()).collect();
        for (index, tree) in self.measured.iter_mut().enumerate() {
            let other = firsts.get(usize::from(index == 0)).and_then(Option::as_ref);
            if let Some(run) = tree.first_mut() {
                run.share_with(other);
            }
        }
    }
}

/// The prices of the model of a run in a tier; or why they are not known.
fn tier_prices(run: &MeasuredRun, service: ServiceTier) -> Result<TierPrices<'_>, String> {
    let MeasuredRun { model, pricing, form, .. } = run;
    if run.unmeasured > 0 {
        return Err(format!("not every answer has its tokens: {model}"));
    }
    let pricing = pricing.as_ref().ok_or_else(|| format!("no price of {model} is known"))?;
    let prices = pricing.of_tier(service);
    let prices =
        prices.ok_or_else(|| format!("{model} has no price of the tier `{}`", service.name()))?;
    let rules = CacheRules::of_endpoint(form.unwrap_or(WireForm::OpenAi), pricing);
    Ok(TierPrices { prices, rules })
}

/// What the runs save if one of each setting writes what they share before the others begin, as a share of their direct cost; 0
/// if that is not known.
pub fn warm_saving(settings: Vec<SettingRuns>, jobs: u64) -> f64 {
    let costs = settings.into_iter().filter_map(|mut setting| {
        setting.find_shared_tokens();
        let mean_cost = |at_once| {
            let runs = setting.measured.iter().flatten();
            let costs: Result<Vec<f64>, String> = runs
                .map(|run| setting.direct_cost(run, ServiceTier::Direct, at_once, 1.0))
                .collect();
            Some(costs.ok()?.iter().sum::<f64>() / setting.measured.len().max(1) as f64)
        };
        Some((mean_cost(jobs)?, mean_cost(1)?))
    });
    let (cold, warm) = costs.fold((0.0, 0.0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1));
    if cold > 0.0 { 1.0 - warm / cold } else { 0.0 }
}

impl TierCosts {
    fn list(&self) -> [Option<AmountRange>; 4] {
        [self.direct, self.flex, self.batch, self.no_cache]
    }

    /// The sum; unknown where one of both is.
    fn add(self, other: Self) -> Self {
        let sum = |one: Option<AmountRange>, other: Option<AmountRange>| {
            let (one, other) = one.zip(other)?;
            Some(AmountRange { low: one.low + other.low, high: one.high + other.high })
        };
        Self {
            direct: sum(self.direct, other.direct),
            flex: sum(self.flex, other.flex),
            batch: sum(self.batch, other.batch),
            no_cache: sum(self.no_cache, other.no_cache),
        }
    }

    /// The name and the upper end of the tier with the lowest one.
    fn cheapest(&self) -> Option<(&'static str, f64)> {
        // `no cache` is not a tier.
        let known = TIERS.into_iter().zip(self.list()).take(3);
        known
            .filter_map(|((name, _), cost)| Some((name, cost?.high)))
            .min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

impl SweepEstimate {
    /// Estimates a sweep with `done` runs that are done and have cost `spent_usd`, when `jobs` runs are worked on at a time.
    pub fn new(
        name: String,
        settings: Vec<SettingRuns>,
        done: u64,
        spent_usd: Option<f64>,
        jobs: u64,
    ) -> Self {
        let settings: Vec<SettingEstimate> =
            settings.into_iter().map(|setting| setting.estimate(jobs)).collect();
        let tiers = settings.iter().map(|setting| setting.tiers).reduce(TierCosts::add);
        let tiers = tiers.unwrap_or_default();
        let (worst, best) = BATCH_HITS;
        let assumptions = vec![
            "the other runs are like the measured ones; 95 % intervals, and 5 % for the forecast"
                .to_owned(),
            format!(
                "the endpoint's cache works as measured; the first {} find nothing of each other",
                pluralize(usize::try_from(jobs).unwrap_or(usize::MAX), "run")
            ),
            format!(
                "batches find {:.0} to {:.0} % of what is in the cache, or are sent without markers",
                worst * 100.0,
                best * 100.0
            ),
        ];
        Self {
            name,
            runs: settings.iter().map(|setting| setting.runs).sum(),
            done,
            spent_usd,
            cheapest: tiers.cheapest().map(|(tier, _)| tier),
            settings,
            tiers,
            assumptions,
        }
    }

    /// Whether some setting has no measured run.
    pub fn lacks_runs(&self) -> bool {
        self.settings.iter().any(|setting| setting.measured == 0)
    }

    /// The estimate as text, at most `width` columns wide.
    pub fn to_text(&self, width: usize) -> String {
        let spent =
            self.spent_usd.map_or_else(String::new, |usd| format!(", for ${}", cost_text(usd)));
        let mut text = format!(
            "{}: {} of {} done{spent}\n",
            self.name,
            self.done,
            pluralize(usize::try_from(self.runs).unwrap_or(usize::MAX), "run")
        );
        for setting in &self.settings {
            setting.write_text(&mut text, width);
        }
        if self.settings.len() > 1 {
            text.push_str("\nall settings\n");
            write_costs(&mut text, &self.tiers);
        }
        if let Some((tier, high)) = self.tiers.cheapest() {
            let _ = write!(text, "\ncheapest: {tier}, at most ${}\n", cost_text(high));
        }
        for assumption in &self.assumptions {
            let lines = wrap_words(assumption, width.saturating_sub(9));
            for (index, line) in lines.iter().enumerate() {
                let lead = if index == 0 { "assumes: " } else { "         " };
                let _ = writeln!(text, "{lead}{line}");
            }
        }
        text
    }
}

impl SettingEstimate {
    fn write_text(&self, text: &mut String, width: usize) {
        let params =
            self.params.iter().map(|(name, value)| format!(" {name}={}", value_text(value)));
        let head = format!(
            "agent={} model={}{}: {}",
            self.agent,
            self.model,
            params.collect::<String>(),
            pluralize(usize::try_from(self.runs).unwrap_or(usize::MAX), "run"),
        );
        let _ = write!(text, "\n{}\n", clip_to_width(&head, width));
        if self.measured > 0 {
            let hits = self.cache_hits.map_or_else(String::new, |hits| {
                format!(", {:.0} % of repeated tokens cached", hits * 100.0)
            });
            let _ = writeln!(
                text,
                "  {} measured: {:.1} requests, {:.0} shared tokens{hits}",
                self.measured, self.requests, self.shared_tokens
            );
        }
        if let (Some(input), Some(output)) = (self.input_tokens, self.output_tokens) {
            let range = |AmountRange { low, high }: AmountRange| match high - low {
                ..1.0 => format!("{low:.0}"),
                _ => format!("{low:.0} to {high:.0}"),
            };
            let _ = writeln!(text, "  tokens    {} in, {} out", range(input), range(output));
        }
        write_costs(text, &self.tiers);
        for reason in &self.unknown {
            let _ = writeln!(text, "  {}", clip_to_width(&format!("unknown: {reason}"), width - 2));
        }
    }
}

fn write_costs(text: &mut String, tiers: &TierCosts) {
    for ((name, note), cost) in TIERS.into_iter().zip(tiers.list()) {
        let _ = match cost {
            Some(AmountRange { low, high }) => {
                writeln!(text, "  {name:<9} ${} to ${}{note}", cost_text(low), cost_text(high))
            }
            None => writeln!(text, "  {name:<9} unknown"),
        };
    }
}
