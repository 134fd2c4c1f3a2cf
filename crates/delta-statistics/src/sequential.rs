//! Whether a change made scores worse: a group-sequential test of pairs of runs, with three verdicts.
//!
//! FAIL if a drop is shown, PASS if a drop of the largest size that is allowed is excluded, otherwise INCONCLUSIVE.
//! The test looks at the pairs up to ten times, while they grow, and stops at the first look that decides.
//! K. K. G. Lan, D. L. DeMets, "Discrete sequential boundaries for clinical trials" (1983): each look uses a part of the level,
//! so the chance of a wrong verdict at any of them stays what it is for one test.

mod boundaries;
pub mod race;

use crate::estimate::{mean, variance_of_mean};
use crate::student_t::{student_quantile, upper_tail};
use boundaries::one_sided_tails;

/// How likely a FAIL without a drop may be, over all verdicts of a comparison.
pub const FAIL_LEVEL: f64 = 0.01;
/// How likely a PASS may be where the score drops by the largest drop that is allowed.
pub const PASS_LEVEL: f64 = 0.05;

/// How often the test looks at the pairs.
const LOOKS: usize = 10;

/// With fewer pairs, nothing passes.
const FEWEST_PAIRS: usize = 20;

/// So many imagined pairs differ by +1, and as many by -1.
///
/// Rare differences show no spread at first: without these pairs, a change that breaks a few of all runs passed in 39 of 100
/// simulated tests instead of 5.
const GUARD_PAIRS: f64 = 2.0;

/// The share of tests that decide with the pairs of [`Remedy::Pairs`].
const POWER: f64 = 0.8;

/// With so many pairs of each input undecided, only more inputs decide.
const MOST_REPEATS: usize = 1_000;

/// A run of the base and one of the change, of the same input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The index of the input, or of the group of inputs, that is independent of the others.
    pub cluster: usize,
    /// The score of the base, from 0 to 1; none if it is missing.
    pub base: Option<f64>,
    /// The score of the change.
    pub change: Option<f64>,
}

/// What a verdict means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// The drop of the mean score that PASS excludes, over 0.
    pub max_drop: f64,
    /// How likely a FAIL without a drop may be.
    pub fail_level: f64,
    /// How likely a PASS with a drop of `max_drop` may be.
    pub pass_level: f64,
}

impl Rule {
    /// The rule for more pairs after a test that did not decide: half of each level, so that all tests together have less than
    /// twice the level.
    fn halved(self) -> Self {
        Self { fail_level: self.fail_level / 2.0, pass_level: self.pass_level / 2.0, ..self }
    }
}

/// From the best to the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A drop of `max_drop` is excluded.
    Pass,
    /// Neither is shown.
    #[default]
    Inconclusive,
    /// A drop is shown.
    Fail,
}

/// The verdict, and what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The rule with the levels of the test that decided, or of the last one.
    pub rule: Rule,
    /// At which of the [`Decision::looks`] it was decided.
    pub look: usize,
    /// The number of looks that the test may take.
    pub looks: usize,
    /// How many pairs are planned.
    pub planned: usize,
    /// How many pairs of the look have both scores.
    pub used: usize,
    /// How many pairs of the look have not.
    pub missing: usize,
    /// The verdict without the missing runs, whatever their scores would be.
    pub observed: Verdict,
    /// What the pairs say; none if fewer than two inputs have both scores.
    pub figures: Option<Figures>,
    /// What decides an INCONCLUSIVE test; none if it is decided, or if the missing pairs leave it unknown.
    pub remedy: Option<Remedy>,
}

/// The means of a look, over inputs or groups that have both scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The mean of the base.
    pub base: f64,
    /// The mean of the change.
    pub change: f64,
    /// Change minus base.
    pub difference: f64,
    /// The end that PASS compares with `max_drop`, at its level.
    pub low: f64,
    /// The end that FAIL compares with 0, at its level.
    pub high: f64,
    /// How many inputs or groups.
    pub clusters: usize,
}

/// What would decide in four of five tests if the difference is the one that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// So many pairs in all.
    Pairs(usize),
    /// More inputs: more pairs of the same inputs do not decide.
    Inputs,
}

/// The tests of the plans of a comparison, one after the other.
pub struct SequentialTests {
    tests: Vec<SequentialTest>,
    /// The rule of the test after them.
    next: Rule,
}

impl SequentialTests {
    /// `plans` has the number of pairs that were planned first, then with each plan that added some.
    pub fn new(rule: Rule, plans: &[usize]) -> Self {
        let mut next = rule;
        let mut tests = Vec::new();
        for &planned in plans {
            tests.push(SequentialTest::new(next, planned));
            next = next.halved();
        }
        Self { tests, next }
    }

    /// Decides about all planned pairs, in the order in which they count; none without pairs.
    ///
    /// The order must not depend on the scores or on which run ended first: quick runs and easy inputs are not like the others.
    pub fn decide(&self, pairs: &[Pair]) -> Option<Decision> {
        let mut decision = self.decide_first(pairs, pairs.len()).ok()??;
        if decision.verdict == Verdict::Inconclusive {
            decision.remedy = remedy(self.next, pairs, decision.missing);
        }
        Some(decision)
    }

    /// How many pairs the next look needs if only the first `complete` ones have all of their runs; none if those decide, or if
    /// no look is left.
    pub fn next_look(&self, pairs: &[Pair], complete: usize) -> Option<usize> {
        self.decide_first(pairs, complete).err()
    }

    /// The first look that decides, or else the last one.
    ///
    /// # Errors
    /// The number of pairs of a look before it that has more than the `complete` ones.
    fn decide_first(&self, pairs: &[Pair], complete: usize) -> Result<Option<Decision>, usize> {
        let mut last = None;
        for test in &self.tests {
            for look in &test.looks {
                if look.pairs > complete {
                    return Err(look.pairs);
                }
                let decision = test.look_at(look, &pairs[..look.pairs]);
                if decision.verdict != Verdict::Inconclusive {
                    return Ok(Some(decision));
                }
                last = Some(decision);
            }
        }
        Ok(last)
    }
}

/// The test of one plan.
struct SequentialTest {
    rule: Rule,
    planned: usize,
    looks: Vec<PlannedLook>,
}

/// One look, with the part of each level that it uses, as the tail of a distribution of the mean.
struct PlannedLook {
    number: usize,
    pairs: usize,
    pass_tail: f64,
    fail_tail: f64,
}

impl SequentialTest {
    fn new(rule: Rule, planned: usize) -> Self {
        let mut sizes: Vec<(usize, usize)> = Vec::new();
        for number in 1..=LOOKS {
            let pairs = (number * planned).div_ceil(LOOKS);
            let is_enough = pairs >= FEWEST_PAIRS || number == LOOKS;
            if is_enough && sizes.last().map_or(0, |(_, before)| *before) < pairs {
                sizes.push((number, pairs));
            }
        }
        let times: Vec<f64> =
            sizes.iter().map(|(_, pairs)| *pairs as f64 / planned as f64).collect();
        let tails = |level: f64| one_sided_tails(&times, &spend(level, &times));
        let looks = sizes
            .into_iter()
            .zip(tails(rule.pass_level))
            .zip(tails(rule.fail_level))
            .map(|(((number, pairs), pass_tail), fail_tail)| PlannedLook {
                number,
                pairs,
                pass_tail,
                fail_tail,
            })
            .collect();
        Self { rule, planned, looks }
    }

    fn look_at(&self, look: &PlannedLook, pairs: &[Pair]) -> Decision {
        let used = pairs.iter().filter(|pair| pair.base.is_some() && pair.change.is_some()).count();
        let missing = pairs.len() - used;
        let figures = self.figures(look, pairs);
        let observed = figures.map_or(Verdict::Inconclusive, |it| self.verdict(&it, used));
        let verdict = if missing == 0 {
            observed
        } else {
            let worst = self.figures(look, &with_worst_scores(pairs, observed));
            let worst = worst.map_or(Verdict::Inconclusive, |it| self.verdict(&it, pairs.len()));
            if worst == observed { observed } else { Verdict::Inconclusive }
        };
        Decision {
            verdict,
            rule: self.rule,
            look: look.number,
            looks: LOOKS,
            planned: self.planned,
            used,
            missing,
            observed,
            figures,
            remedy: None,
        }
    }

    fn figures(&self, look: &PlannedLook, pairs: &[Pair]) -> Option<Figures> {
        let sample = Sample::new(pairs)?;
        let degrees = sample.differences.len() - 1;
        let error = guarded_error(variance_of_mean(&sample.differences), sample.pairs);
        let middle = guarded_mean(sample.difference(), sample.pairs);
        Some(Figures {
            base: sample.base,
            change: sample.change,
            difference: sample.difference(),
            low: middle - student_quantile(1.0 - look.pass_tail, degrees) * error,
            high: middle + student_quantile(1.0 - look.fail_tail, degrees) * error,
            clusters: sample.differences.len(),
        })
    }

    fn verdict(&self, figures: &Figures, used: usize) -> Verdict {
        if figures.low > -self.rule.max_drop && used >= FEWEST_PAIRS {
            Verdict::Pass
        } else if figures.high < 0.0 {
            Verdict::Fail
        } else {
            Verdict::Inconclusive
        }
    }
}

/// What each look may use of the level, which grows as the square of the share of pairs: early looks use little, so the last
/// one is almost a test at the whole level.
fn spend(level: f64, times: &[f64]) -> Vec<f64> {
    let mut before = 0.0;
    let spent = times.iter().map(|time| {
        let now = level * time * time;
        let part = now - before;
        before = now;
        part
    });
    spent.collect()
}

/// The pairs with the scores of missing runs that speak most against a verdict.
fn with_worst_scores(pairs: &[Pair], verdict: Verdict) -> Vec<Pair> {
    let (base, change) = if verdict == Verdict::Fail { (0.0, 1.0) } else { (1.0, 0.0) };
    let filled = pairs.iter().map(|pair| Pair {
        cluster: pair.cluster,
        base: pair.base.or(Some(base)),
        change: pair.change.or(Some(change)),
    });
    filled.collect()
}

/// Pairs by their inputs or groups.
struct Sample {
    base: f64,
    change: f64,
    /// Change minus base of each cluster that has both.
    differences: Vec<f64>,
    /// How many pairs of them have both scores, at least 1.
    pairs: usize,
    /// The variance of the differences of pairs of one cluster; none if no cluster has two.
    within: Option<f64>,
}

impl Sample {
    /// None if fewer than two clusters have both scores: one shows no spread.
    fn new(pairs: &[Pair]) -> Option<Self> {
        let clusters = pairs.iter().map(|pair| pair.cluster + 1).max()?;
        let mut sums = vec![ClusterSums::default(); clusters];
        for pair in pairs {
            sums[pair.cluster].add(pair);
        }
        let means: Vec<(f64, f64)> = sums.iter().filter_map(ClusterSums::means).collect();
        if means.len() < 2 {
            return None;
        }
        let differences: Vec<f64> = means.iter().map(|(base, change)| change - base).collect();
        let squares: f64 = sums.iter().map(ClusterSums::squares).sum();
        let degrees: f64 = sums.iter().map(|sums| (sums.pairs - 1.0).max(0.0)).sum();
        let complete: f64 = sums.iter().map(|sums| sums.pairs).sum();
        Some(Self {
            base: means.iter().map(|(base, _)| base).sum::<f64>() / means.len() as f64,
            change: means.iter().map(|(_, change)| change).sum::<f64>() / means.len() as f64,
            differences,
            pairs: (complete as usize).max(1),
            within: (degrees > 0.0).then(|| squares / degrees),
        })
    }

    fn difference(&self) -> f64 {
        mean(&self.differences).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Default)]
struct ClusterSums {
    base: f64,
    bases: f64,
    change: f64,
    changes: f64,
    /// Of pairs with both scores: their number, the sum of their differences and of the squares.
    pairs: f64,
    difference: f64,
    square: f64,
}

impl ClusterSums {
    fn add(&mut self, pair: &Pair) {
        if let Some(base) = pair.base {
            self.base += base;
            self.bases += 1.0;
        }
        if let Some(change) = pair.change {
            self.change += change;
            self.changes += 1.0;
        }
        if let (Some(base), Some(change)) = (pair.base, pair.change) {
            self.pairs += 1.0;
            self.difference += change - base;
            self.square += (change - base).powi(2);
        }
    }

    /// The means of base and change, if both have a score.
    fn means(&self) -> Option<(f64, f64)> {
        (self.bases > 0.0 && self.changes > 0.0)
            .then(|| (self.base / self.bases, self.change / self.changes))
    }

    /// The sum of the squares around the mean of the pairs.
    fn squares(&self) -> f64 {
        if self.pairs < 2.0 {
            return 0.0;
        }
        (self.square - self.difference.powi(2) / self.pairs).max(0.0)
    }
}

/// The mean with the imagined pairs, which cancel each other.
fn guarded_mean(difference: f64, pairs: usize) -> f64 {
    let pairs = pairs as f64;
    difference * pairs / (pairs + 2.0 * GUARD_PAIRS)
}

/// The standard error of the mean with the imagined pairs.
fn guarded_error(variance: f64, pairs: usize) -> f64 {
    let pairs = pairs as f64;
    let all = pairs + 2.0 * GUARD_PAIRS;
    (variance * (pairs / all).powi(2) + 2.0 * GUARD_PAIRS / (all * all)).sqrt()
}

/// How many standard errors the last look needs between a difference and what it excludes, to exclude it with [`POWER`].
fn margin(level: f64, degrees: usize) -> f64 {
    let times: Vec<f64> = (1..=LOOKS).map(|look| look as f64 / LOOKS as f64).collect();
    let tail = one_sided_tails(&times, &spend(level, &times))[LOOKS - 1];
    student_quantile(1.0 - tail, degrees) + student_quantile(POWER, degrees)
}

/// How likely scores as good are if they drop by `max_drop`, in one look at all pairs: the larger one of what there is, and with
/// the worst scores of missing runs. 1 with fewer than 20 pairs or two clusters.
pub(crate) fn drop_p_value(pairs: &[Pair], max_drop: f64) -> f64 {
    let p_value = |pairs: &[Pair]| {
        let sample = Sample::new(pairs).filter(|sample| sample.pairs >= FEWEST_PAIRS)?;
        let error = guarded_error(variance_of_mean(&sample.differences), sample.pairs);
        let distance = guarded_mean(sample.difference(), sample.pairs) + max_drop;
        Some(upper_tail(distance / error, sample.differences.len() - 1))
    };
    let worst = with_worst_scores(pairs, Verdict::Pass);
    [p_value(pairs), p_value(&worst)].map(|p| p.unwrap_or(1.0)).into_iter().fold(0.0, f64::max)
}

/// The smallest drop that so many pairs on so many inputs exclude in four of five tests without a change, where four of five
/// runs pass and two runs of an input have a correlation of 0.5.
pub fn smallest_drop(pairs: usize, inputs: usize) -> f64 {
    const VARIANCE_OF_PAIR: f64 = 2.0 * 0.8 * 0.2 * 0.5;
    let error = guarded_error(VARIANCE_OF_PAIR / pairs.max(1) as f64, pairs);
    margin(PASS_LEVEL, inputs.max(2) - 1) * error
}

/// How many pairs of the same inputs would decide with a rule.
fn remedy(rule: Rule, pairs: &[Pair], missing: usize) -> Option<Remedy> {
    let Some(sample) = Sample::new(pairs) else {
        return (missing == 0).then_some(Remedy::Inputs);
    };
    let clusters = sample.differences.len() as f64;
    let between = variance_of_mean(&sample.differences) * clusters;
    let repeats = sample.pairs as f64 / clusters;
    // The variance of a pair, and of the true differences of the inputs, which more repeats do not reduce. One pair of each
    // input shows only the sum.
    let of_pair = sample.within.unwrap_or(between * repeats);
    let of_inputs = (between - of_pair / repeats).max(0.0);
    let degrees = sample.differences.len() - 1;
    let to_pass = margin(rule.pass_level, degrees);
    let to_fail = margin(rule.fail_level, degrees);
    let decides = |count: usize| {
        let variance = (of_inputs + of_pair * clusters / count as f64) / clusters;
        let error = guarded_error(variance, count);
        let middle = guarded_mean(sample.difference(), count);
        middle - to_pass * error > -rule.max_drop || middle + to_fail * error < 0.0
    };
    let most = MOST_REPEATS * sample.differences.len();
    if !decides(most) {
        return Some(Remedy::Inputs);
    }
    // The error shrinks with the number of pairs, so what decides is everything from one number on.
    let mut too_few = FEWEST_PAIRS - 1;
    let mut enough = most;
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if decides(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Some(Remedy::Pairs(enough))
}

#[cfg(test)]
mod tests;
