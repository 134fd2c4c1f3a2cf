//! Two agents or models on the same inputs.

mod fixed_inputs;

use crate::estimate::{
    CONFIDENCE, Interval, mean, resampled_interval, t_interval, t_quantile, variance_of_mean,
};
use crate::student_t;
pub use fixed_inputs::compare_fixed;

/// From so many pairs on, an interval from resamples is worth printing.
const FEWEST_RESAMPLED: usize = 20;

/// The share of sweeps that show a difference of [`Comparison::detectable`].
const POWER: f64 = 0.8;

/// What two sets of runs of the same inputs say about each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// How many inputs both have.
    pub pairs: usize,
    /// The mean of the differences of each input, first minus second.
    pub difference: f64,
    /// Student's t around it; none with fewer than two pairs, or if all differences are the same, which shows no spread.
    pub interval: Option<Interval>,
    /// The interval from seeded resamples of the pairs, from 20 pairs on.
    pub resampled: Option<Interval>,
    /// How likely a difference at least as large is if there is none: McNemar's exact test where each input has one run of
    /// each and all scores are 0 or 1; the t test of the pairs; the sign test if all differences are the same. None with
    /// fewer than two pairs.
    pub p_value: Option<f64>,
    /// Which of the tests.
    pub test: PairedTest,
    /// The difference that as many inputs would show in four of five sweeps: the sum of Student's quantiles at 97.5 % and 80 %,
    /// which is 2.8 for many pairs, in standard errors. Above 1 there are too few pairs. None with fewer than two pairs, or
    /// without a spread.
    pub detectable: Option<f64>,
}

/// A test of paired values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairedTest {
    /// McNemar's exact test.
    McNemar,
    /// Student's t test.
    T,
    /// The exact sign test.
    Sign,
    /// The exact conditional test of fixed inputs.
    Conditional,
}

impl PairedTest {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            PairedTest::McNemar => "McNemar",
            PairedTest::T => "t",
            PairedTest::Sign => "sign",
            PairedTest::Conditional => "exact",
        }
    }
}

/// Compares the scores of inputs that both have; none if there is no such input.
///
/// Each pair has the scores of one input, the first's and the second's; a pair in which one has no score is left out.
pub fn compare(pairs: &[(Vec<f64>, Vec<f64>)], seed: u64) -> Option<Comparison> {
    let complete: Vec<&(Vec<f64>, Vec<f64>)> =
        pairs.iter().filter(|(first, second)| !first.is_empty() && !second.is_empty()).collect();
    let differences: Vec<f64> =
        complete.iter().filter_map(|(first, second)| Some(mean(first)? - mean(second)?)).collect();
    let difference = mean(&differences)?;
    let several = differences.len() >= 2;
    let discordant = single_outcomes(&complete);
    let has_spread = several && variance_of_mean(&differences) > 0.0;
    let (test, p_value) = match discordant {
        Some((first_only, second_only)) => (PairedTest::McNemar, mcnemar(first_only, second_only)),
        None if has_spread => (PairedTest::T, t_test(&differences)),
        None => (PairedTest::Sign, sign_test(&differences)),
    };
    Some(Comparison {
        pairs: differences.len(),
        difference,
        interval: has_spread.then(|| t_interval(&differences)),
        resampled: (differences.len() >= FEWEST_RESAMPLED)
            .then(|| resampled_interval(&differences, seed)),
        p_value: several.then_some(p_value),
        test,
        detectable: has_spread.then(|| detectable(&differences)),
    })
}

/// H. S. Bloom, "Minimum detectable effects" (1995).
fn detectable(differences: &[f64]) -> f64 {
    let degrees = differences.len() - 1;
    let quantiles = t_quantile(degrees) + student_t::student_quantile(POWER, degrees);
    quantiles * variance_of_mean(differences).sqrt()
}

/// Whether a comparison shows a difference: its interval, if it has one, does not contain 0, and its p, adjusted for all
/// comparisons of the table, is below 5 %.
pub fn shows_difference(comparison: &Comparison, adjusted: f64) -> bool {
    comparison.difference != 0.0
        && comparison.interval.is_none_or(|interval| !interval.contains(0.0))
        && adjusted < 1.0 - CONFIDENCE
}

/// The p values of several comparisons, adjusted so that the chance of one false difference among all stays what it is for
/// one.
///
/// S. Holm, "A simple sequentially rejective multiple test procedure" (1979).
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&left, &right| p_values[left].total_cmp(&p_values[right]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, &index) in order.iter().enumerate() {
        let factor = (p_values.len() - rank) as f64;
        largest = largest.max((p_values[index] * factor).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

/// How many inputs only the first and only the second passed, if each input has one run of each, graded 0 or 1.
fn single_outcomes(pairs: &[&(Vec<f64>, Vec<f64>)]) -> Option<(u64, u64)> {
    let mut only = (0, 0);
    for (first, second) in pairs {
        match (first.as_slice(), second.as_slice()) {
            ([1.0], [0.0]) => only.0 += 1,
            ([0.0], [1.0]) => only.1 += 1,
            ([0.0], [0.0]) | ([1.0], [1.0]) => {}
            _ => return None,
        }
    }
    Some(only)
}

/// The exact two-sided test: min(1, 2·Σ_{j ≤ min(b, c)} C(b + c, j)/2^(b + c)).
fn mcnemar(first_only: u64, second_only: u64) -> f64 {
    let all = first_only + second_only;
    let fewer = first_only.min(second_only);
    // As a logarithm, because 2^-1075 is 0.
    let mut ln_share = -(all as f64) * 2_f64.ln();
    let mut tail = 0.0;
    for j in 0..=fewer {
        tail += ln_share.exp();
        ln_share += ((all - j) as f64 / (j + 1) as f64).ln();
    }
    (2.0 * tail).min(1.0)
}

/// The two-sided t test of the mean of at least two values against 0.
fn t_test(differences: &[f64]) -> f64 {
    let middle = mean(differences).unwrap_or_default();
    let error = variance_of_mean(differences).sqrt();
    student_t::two_sided_tail(middle / error, differences.len() - 1)
}

/// The two-sided sign test of equal differences: the chance that all have one sign if each sign is as likely as the other.
fn sign_test(differences: &[f64]) -> f64 {
    if mean(differences).is_none_or(|middle| middle == 0.0) {
        return 1.0;
    }
    0.5_f64.powi(i32::try_from(differences.len()).unwrap_or(i32::MAX) - 1)
}

#[cfg(test)]
mod tests;
