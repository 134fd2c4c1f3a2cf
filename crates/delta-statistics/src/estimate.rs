//! A rate or a mean, and the interval in which it is.

use crate::resampling::resampled_means;
use crate::student_t;

/// The share of intervals that contain the true value.
pub const CONFIDENCE: f64 = 0.95;

/// From so many clusters on, the mean of resamples is a normal variable to all digits that are printed, and the interval is
/// computed instead of resampled.
const MOST_RESAMPLED: usize = 1_000;

/// A value with both ends of its interval, at [`CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean of the means of the clusters, each of which counts as much as the others.
    pub value: f64,
    /// The lower and the upper end; none if there are fewer than two clusters, from which the spread cannot be estimated.
    pub interval: Option<Interval>,
}

/// Both ends, which belong to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Whether the value is in it.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The rate of scores from 0 to 1, and Wilson's interval with as many samples as the clusters are worth.
///
/// With K clusters of means `x_i`: p = Σ`x_i`/K, v = Σ(`x_i` − p)²/(K(K − 1)), and n = p(1 − p)/v, at least 1 and at most the
/// number of scores; K where v is 0.
/// Wilson's interval for n samples then uses the quantile of Student's t with K − 1 degrees of freedom in place of the normal
/// one.
/// Clusters without a score are left out; none if no cluster has one.
///
/// Sources: E. B. Wilson, "Probable inference, the law of succession, and statistical inference" (1927); the effective number
/// of samples is from Korn and Graubard (1998).
pub fn rate(clusters: &[Vec<f64>]) -> Option<Estimate> {
    let means = cluster_means(clusters);
    let value = mean(&means)?;
    if means.len() < 2 {
        return Some(Estimate { value, interval: None });
    }
    let scores: usize = clusters.iter().map(Vec::len).sum();
    let variance = variance_of_mean(&means);
    let samples = if variance > 0.0 {
        (value * (1.0 - value) / variance).clamp(1.0, scores as f64)
    } else {
        means.len() as f64
    };
    let quantile = t_quantile(means.len() - 1);
    Some(Estimate { value, interval: Some(wilson(value, samples, quantile)) })
}

/// The mean of any amounts (cost, tokens, time), with an interval from resampled clusters.
///
/// 10,000 resamples of the clusters, seeded, and the quantiles of their means; from 1,000 clusters on, Student's t instead.
/// None if no cluster has an amount.
pub fn amount(clusters: &[Vec<f64>], seed: u64) -> Option<Estimate> {
    let means = cluster_means(clusters);
    let value = mean(&means)?;
    let interval = match means.len() {
        ..2 => None,
        2..MOST_RESAMPLED => Some(resampled_interval(&means, seed)),
        _ => Some(t_interval(&means)),
    };
    Some(Estimate { value, interval })
}

/// The value below which a share of the amounts is, interpolated between neighbours; none without amounts.
pub fn quantile(amounts: &[f64], share: f64) -> Option<f64> {
    let mut sorted = amounts.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let rank = share.clamp(0.0, 1.0) * last as f64;
    let lower = rank.floor() as usize;
    let upper = (lower + 1).min(last);
    Some(sorted[lower] + (sorted[upper] - sorted[lower]) * (rank - lower as f64))
}

/// The interval of Student's t around the mean of at least two independent values.
pub(crate) fn t_interval(values: &[f64]) -> Interval {
    let middle = mean(values).unwrap_or_default();
    let half = t_quantile(values.len() - 1) * variance_of_mean(values).sqrt();
    Interval { low: middle - half, high: middle + half }
}

/// The interval from seeded resamples of at least two independent values.
pub(crate) fn resampled_interval(values: &[f64], seed: u64) -> Interval {
    let means = resampled_means(values, seed);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Interval {
        low: quantile(&means, tail).unwrap_or_default(),
        high: quantile(&means, 1.0 - tail).unwrap_or_default(),
    }
}

/// The mean of each cluster that has scores.
pub(crate) fn cluster_means(clusters: &[Vec<f64>]) -> Vec<f64> {
    clusters.iter().filter_map(|scores| mean(scores)).collect()
}

pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The square of the standard error of the mean of at least two independent values.
pub(crate) fn variance_of_mean(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let middle = mean(values).unwrap_or_default();
    // A sum of equal numbers is not always their multiple: a spread below what rounding makes is none.
    let smallest = (middle.abs() * f64::EPSILON * count).powi(2);
    let spread: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    if spread <= smallest * count { 0.0 } else { spread / (count * (count - 1.0)) }
}

/// The two-sided quantile of Student's t at [`CONFIDENCE`].
pub(crate) fn t_quantile(degrees: usize) -> f64 {
    student_t::student_quantile(1.0 - (1.0 - CONFIDENCE) / 2.0, degrees)
}

/// Wilson's interval of a rate of so many samples.
pub(crate) fn wilson(rate: f64, samples: f64, quantile: f64) -> Interval {
    let square = quantile * quantile;
    let scale = 1.0 + square / samples;
    let middle = (rate + square / (2.0 * samples)) / scale;
    let half = quantile / scale
        * (rate * (1.0 - rate) / samples + square / (4.0 * samples * samples)).max(0.0).sqrt();
    // Rounding can move an end to the wrong side of a rate of 0 or 1.
    Interval { low: (middle - half).max(0.0).min(rate), high: (middle + half).min(1.0).max(rate) }
}

#[cfg(test)]
mod tests;
