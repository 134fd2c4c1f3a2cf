//! Where along a chain of points a rate drops: which point to run next, and when the place of the drop is known.
//!
//! The model is one step: every point before it has one rate, every point after it another one that is lower by at least
//! [`StepSearch::least_drop`]. Both rates are unknown, and all places and pairs of rates are equally likely at first.
//! The next run is of the point whose score says most about the place: D. V. Lindley, "On a measure of the information provided
//! by an experiment" (1956).
//! A place that the model finds likely is not yet a step, since the model has no world without one: it is named if the points
//! next to it have enough runs, and their rates differ by the least drop and more than by chance.

use crate::estimate::{Interval, wilson};
use crate::normal::normal_quantile;

/// A place is named with at least this chance, if there is one step.
const CONFIDENCE: f64 = 0.95;

/// The runs of the first point before the others have any: without a score, all points say the same.
const FIRST_RUNS: usize = 4;

/// The runs on both sides of a step that is named.
///
/// Without them, a rate that is low everywhere gets a step in every search.
const FEWEST_BESIDE: usize = 8;

/// The interval of the difference at a step that is named, where there may be none.
///
/// At 95 %, rates from 0.15 to 0.2 everywhere got a step in 10.4 of 100 simulated searches; so 8.4, and planted steps are named
/// as often. Between two ends that are known to differ there is a step, and 98 % would leave more of them without a name.
const UNSURE_CONFIDENCE: f64 = 0.98;

/// How many rates are tried for each side.
const RATES: usize = 20;

/// The scores of the runs of one point, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PointScores {
    /// How many runs have a score.
    pub runs: usize,
    /// The sum of their scores.
    pub sum: f64,
    /// How many of them passed.
    pub passed: usize,
}

/// What is known of a run that a search takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Draw<K> {
    /// It has a score.
    Scored {
        /// The score, from 0 to 1.
        score: f64,
        /// Whether it passed.
        pass: bool,
    },
    /// It has ended without a score: it is in no rate, and another run is taken instead.
    Missing,
    /// It has not ended.
    Open(K),
}

/// What a search knows of its points, and what comes next.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchedPoints<K> {
    /// The scores of each point.
    pub points: Vec<PointScores>,
    /// Whether the search has ended.
    pub status: SearchStatus<K>,
}

/// Whether a search asks for runs, or has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchStatus<K> {
    /// These runs say most; at least one.
    Asks(Vec<K>),
    /// The place is known.
    Named(Step),
    /// No place is named.
    NotNamed(NoStep),
    /// The point with this index has no other run, and would need one.
    UsedUp(usize),
}

impl<K> SearchedPoints<K> {
    /// How many runs have a score.
    pub fn runs(&self) -> usize {
        self.points.iter().map(|point| point.runs).sum()
    }
}

impl PointScores {
    /// The mean score; 0 without a run.
    pub fn rate(self) -> f64 {
        if self.runs == 0 { 0.0 } else { self.sum / self.runs as f64 }
    }

    /// Adds the score of a run.
    pub fn add(&mut self, score: f64, pass: bool) {
        self.runs += 1;
        self.sum += score;
        self.passed += usize::from(pass);
    }

    fn interval(self, quantile: f64) -> Interval {
        wilson(self.rate(), self.runs as f64, quantile)
    }
}

/// What is searched for, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSearch {
    /// The smallest drop that counts as a step, from 0 to 0.95.
    pub least_drop: f64,
    /// The search ends with this many runs.
    pub most_runs: usize,
    /// Whether the step may come after the last point, where nothing can be run.
    pub may_follow_last: bool,
    /// How many runs of a point are asked for at once, at least 1: more take less time, and a few that one would have saved.
    pub batch: usize,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepAnswer {
    /// Runs of this point say most.
    Next {
        /// The index of the point.
        point: usize,
        /// How many, at least 1.
        runs: usize,
    },
    /// The place is known.
    Named(Step),
    /// There is no single step, or it cannot be shown.
    NotNamed(NoStep),
}

/// A step between two neighbouring points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The index of the last point before it.
    pub after_point: usize,
    /// The rate of the point after it minus the rate of the point before it: at least the least drop below 0.
    pub difference: f64,
    /// Newcombe's interval of the difference: below 0; at 98 %, or 95 % if the step is before the last point.
    pub interval: Interval,
    /// How likely the step is here if there is one.
    pub confidence: f64,
}

/// Why no step is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStep {
    /// The rate drops after the last point.
    AfterLast,
    /// The first point has a rate that is smaller than the least drop.
    NoChance,
    /// The rate drops between these points, and not in one step that can be shown.
    Between {
        /// The index of a point before the drop.
        before: usize,
        /// The index of a point after it.
        after: usize,
    },
}

impl StepSearch {
    /// Searches from `points`, with the runs that `take` knows: each call gives the next run of a point, or none if it has no
    /// other.
    ///
    /// A replay: the runs are taken in the order in which the search asks for them, so a search that was killed asks for the
    /// same ones when it is started again.
    pub fn replay<K>(
        &self,
        mut points: Vec<PointScores>,
        mut take: impl FnMut(usize) -> Option<Draw<K>>,
    ) -> SearchedPoints<K> {
        loop {
            let (point, runs) = match self.answer(&points) {
                StepAnswer::Next { point, runs } => (point, runs),
                StepAnswer::Named(step) => {
                    return SearchedPoints { points, status: SearchStatus::Named(step) };
                }
                StepAnswer::NotNamed(reason) => {
                    return SearchedPoints { points, status: SearchStatus::NotNamed(reason) };
                }
            };
            let mut open = Vec::new();
            for number in 0..runs {
                match take(point) {
                    Some(Draw::Scored { score, pass }) => points[point].add(score, pass),
                    Some(Draw::Missing) => {}
                    Some(Draw::Open(run)) => open.push(run),
                    // The runs before it are counted first, and may decide.
                    None if number > 0 => break,
                    None => return SearchedPoints { points, status: SearchStatus::UsedUp(point) },
                }
            }
            if !open.is_empty() {
                return SearchedPoints { points, status: SearchStatus::Asks(open) };
            }
        }
    }

    /// What the scores of the points, in their order, ask for. The same scores always give the same answer.
    ///
    /// There is at least one point, or at least two if the step cannot follow the last one.
    pub fn answer(&self, points: &[PointScores]) -> StepAnswer {
        let all_runs: usize = points.iter().map(|point| point.runs).sum();
        let remaining = self.most_runs.saturating_sub(all_runs);
        let places = self.places(points);
        let next = |point: usize, runs: usize| {
            if remaining == 0 {
                StepAnswer::NotNamed(self.describe_failure(points, &places))
            } else {
                StepAnswer::Next { point, runs: runs.min(remaining) }
            }
        };
        if points[0].runs < FIRST_RUNS {
            return next(0, FIRST_RUNS - points[0].runs);
        }
        let likeliest = likeliest_place(&places);
        if places[likeliest].chance < CONFIDENCE {
            return next(most_informative_point(&places, points.len()), self.batch);
        }
        let mut beside = points.iter().enumerate().skip(likeliest).take(2);
        if let Some((point, scores)) = beside.find(|(_, scores)| scores.runs < FEWEST_BESIDE) {
            return next(point, FEWEST_BESIDE - scores.runs);
        }
        let before = points[likeliest];
        let Some(after) = points.get(likeliest + 1) else {
            let can_drop = before.rate() >= self.least_drop;
            return StepAnswer::NotNamed(if can_drop {
                NoStep::AfterLast
            } else {
                self.describe_failure(points, &places)
            });
        };
        let difference = after.rate() - before.rate();
        let confidence = if self.may_follow_last { UNSURE_CONFIDENCE } else { CONFIDENCE };
        let interval = difference_interval(*after, before, confidence);
        if interval.high >= 0.0 || difference > -self.least_drop {
            return StepAnswer::NotNamed(self.describe_failure(points, &places));
        }
        StepAnswer::Named(Step {
            after_point: likeliest,
            difference,
            interval,
            confidence: places[likeliest].chance,
        })
    }

    /// How likely each place is by the scores: the one at index i is between the points i and i + 1.
    fn places(&self, points: &[PointScores]) -> Vec<StepPlace> {
        let last = if self.may_follow_last { points.len() } else { points.len() - 1 };
        let mut after = points.iter().fold(PointScores::default(), |all, point| all.plus(*point));
        let mut before = PointScores::default();
        let mut places = Vec::new();
        let rates: Vec<GridRate> = (0..RATES).map(GridRate::new).collect();
        for point in &points[..last] {
            before = before.plus(*point);
            after = after.minus(*point);
            places.push(self.weigh_place(&rates, before, after));
        }
        let most = places.iter().map(|candidate| candidate.chance).fold(f64::MIN, f64::max);
        places.iter_mut().for_each(|candidate| candidate.chance = (candidate.chance - most).exp());
        let all: f64 = places.iter().map(|candidate| candidate.chance).sum();
        places.iter_mut().for_each(|candidate| candidate.chance /= all);
        places
    }

    /// A place with the scores on both sides; its chance is a logarithm, without a constant that all places share.
    fn weigh_place(
        &self,
        rates: &[GridRate],
        before: PointScores,
        after: PointScores,
    ) -> StepPlace {
        // Sums of logarithms, because hundreds of runs make products that are too small for a number.
        let mut chance = LogSum::default();
        let mut rates_before = LogSum::default();
        let mut rates_after = LogSum::default();
        let mut lower = LogSum::default();
        let mut lower_rates = LogSum::default();
        let mut next_lower = rates.iter().peekable();
        for rate in rates {
            // Differences of multiples of a twentieth are decided with more than rounding makes.
            while let Some(low) =
                next_lower.next_if(|low| rate.value - low.value >= self.least_drop - 1e-9)
            {
                let likelihood = low.log_likelihood(after);
                lower.add(likelihood);
                lower_rates.add(likelihood + low.log);
            }
            let likelihood = rate.log_likelihood(before);
            chance.add(likelihood + lower.0);
            rates_before.add(likelihood + rate.log + lower.0);
            rates_after.add(likelihood + lower_rates.0);
        }
        StepPlace {
            chance: chance.0,
            before: (rates_before.0 - chance.0).exp(),
            after: (rates_after.0 - chance.0).exp(),
        }
    }

    fn describe_failure(&self, points: &[PointScores], places: &[StepPlace]) -> NoStep {
        if points[0].rate() < self.least_drop {
            return NoStep::NoChance;
        }
        // The places that hold 95 % of the chance, and the points with runs around them.
        let tail = (1.0 - CONFIDENCE) / 2.0;
        let mut chance = 0.0;
        let mut likely = Vec::new();
        for (index, candidate) in places.iter().enumerate() {
            let chance_before = chance;
            chance += candidate.chance;
            if chance > tail && chance_before < 1.0 - tail {
                likely.push(index);
            }
        }
        let first = likely.first().copied().unwrap_or_default();
        let last = likely.last().copied().unwrap_or_default();
        let has_runs = |index: &usize| points[*index].runs > 0;
        let before = (0..=first).rfind(has_runs).unwrap_or_default();
        let after = (last + 1..points.len()).find(has_runs);
        let after = after.or_else(|| (0..points.len()).rfind(has_runs)).unwrap_or_default();
        NoStep::Between { before, after }
    }
}

impl PointScores {
    fn plus(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            sum: self.sum + other.sum,
            passed: self.passed + other.passed,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            runs: self.runs - other.runs,
            sum: self.sum - other.sum,
            passed: self.passed - other.passed,
        }
    }
}

/// One of the rates that are tried, with its logarithm and the one of its complement.
struct GridRate {
    value: f64,
    log: f64,
    log_rest: f64,
}

impl GridRate {
    fn new(index: usize) -> Self {
        let value = (index as f64 + 0.5) / RATES as f64;
        Self { value, log: value.ln(), log_rest: (1.0 - value).ln() }
    }

    /// The logarithm of the chance of the scores if this is the rate.
    fn log_likelihood(&self, scores: PointScores) -> f64 {
        scores.sum * self.log + (scores.runs as f64 - scores.sum) * self.log_rest
    }
}

/// A place of the step, with the mean rates on its sides if the step is here.
struct StepPlace {
    chance: f64,
    before: f64,
    after: f64,
}

/// The logarithm of a sum of numbers that are known by their logarithms.
struct LogSum(f64);

impl Default for LogSum {
    fn default() -> Self {
        Self(f64::NEG_INFINITY)
    }
}

impl LogSum {
    fn add(&mut self, log: f64) {
        let more = self.0.max(log);
        let less = self.0.min(log);
        // The first number, or a sum of nothing.
        self.0 = if less == f64::NEG_INFINITY { more } else { more + (less - more).exp().ln_1p() };
    }
}

fn likeliest_place(places: &[StepPlace]) -> usize {
    let chance = |index: &usize| places[*index].chance;
    (0..places.len()).max_by(|left, right| chance(left).total_cmp(&chance(right))).unwrap_or(0)
}

/// The point of which one more score says most about the place of the step: the entropy of the score, less what it still has
/// when the place is known.
fn most_informative_point(places: &[StepPlace], points: usize) -> usize {
    let mut most = f64::NEG_INFINITY;
    let mut best = 0;
    for point in 0..points {
        let mut rate = 0.0;
        let mut known = 0.0;
        for (index, candidate) in places.iter().enumerate() {
            let there = if point <= index { candidate.before } else { candidate.after };
            rate += candidate.chance * there;
            known += candidate.chance * entropy(there);
        }
        let information = entropy(rate) - known;
        // Points that say the same but for rounding: the first one, on every machine.
        if information > most + 1e-12 {
            most = information;
            best = point;
        }
    }
    best
}

/// The entropy of a score of 0 or 1 with this rate.
fn entropy(rate: f64) -> f64 {
    let part = |share: f64| if share > 0.0 { -share * share.ln() } else { 0.0 };
    part(rate) + part(1.0 - rate)
}

/// Newcombe's interval of the difference of two rates, from Wilson's intervals of both.
///
/// R. G. Newcombe, "Interval estimation for the difference between independent proportions" (1998), method 10.
fn difference_interval(first: PointScores, second: PointScores, confidence: f64) -> Interval {
    let quantile = normal_quantile(1.0 - (1.0 - confidence) / 2.0);
    let difference = first.rate() - second.rate();
    let one = first.interval(quantile);
    let other = second.interval(quantile);
    let low_margin = (first.rate() - one.low).hypot(other.high - second.rate());
    let high_margin = (one.high - first.rate()).hypot(second.rate() - other.low);
    Interval { low: difference - low_margin, high: difference + high_margin }
}

/// Wilson's intervals of the points, which all hold together at 95 % (Bonferroni). None for a point without a run.
pub fn simultaneous_intervals(points: &[PointScores]) -> Vec<Option<Interval>> {
    let count = points.iter().filter(|point| point.runs > 0).count().max(1);
    let quantile = normal_quantile(1.0 - (1.0 - CONFIDENCE) / (2 * count) as f64);
    points.iter().map(|point| (point.runs > 0).then(|| point.interval(quantile))).collect()
}

#[cfg(test)]
mod tests;
