//! The boundaries of a group-sequential test.
//!
//! P. Armitage, C. K. McPherson, B. C. Rowe, "Repeated significance tests on accumulating data" (1969): the sum of the data at
//! each look is a Brownian motion, of which only the paths that have not crossed before are left; their density is
//! integrated from look to look.

use crate::normal::{normal_density, normal_tail};

/// The width of a step of the integral, in standard deviations of the sum at its look.
const STEP: f64 = 0.16;

/// Beyond so many standard deviations there is nothing to integrate.
const FARTHEST: f64 = 6.0;

/// The smallest tail: what is smaller is lost in rounding.
const SMALLEST_TAIL: f64 = 1e-12;

/// For each look the tail of the normal distribution above its boundary, so that exactly `spent` of all paths cross there first.
///
/// `times` are the shares of the data at the looks, ascending, the last one 1; `spent` is over 0 for each.
pub(super) fn one_sided_tails(times: &[f64], spent: &[f64]) -> Vec<f64> {
    let mut tails = Vec::new();
    // The sum of the data, with the chance of the paths that are near it.
    let mut paths = vec![(0.0, 1.0)];
    let mut before = 0.0_f64;
    for (&time, &spent) in times.iter().zip(spent) {
        let deviation = (time - before).sqrt();
        let scale = time.sqrt();
        let boundary = falling_root(|boundary| {
            let crossing = paths
                .iter()
                .map(|(sum, chance)| chance * normal_tail((boundary * scale - sum) / deviation));
            crossing.sum::<f64>() - spent
        });
        tails.push(normal_tail(boundary).max(SMALLEST_TAIL));
        let step = STEP * scale;
        let steps = ((boundary + FARTHEST) / STEP).ceil() as usize;
        // Two points a step, as Gauss and Legendre place them.
        let places = (0..steps).flat_map(|index| {
            let middle = boundary * scale - (index as f64 + 0.5) * step;
            [-0.5, 0.5].map(|side| middle + side * step / 3.0_f64.sqrt())
        });
        paths = places
            .map(|sum| {
                let density = paths.iter().map(|(from, chance)| {
                    chance * normal_density((sum - from) / deviation) / deviation
                });
                (sum, step / 2.0 * density.sum::<f64>())
            })
            .collect();
        before = time;
    }
    tails
}

/// Where a function that falls crosses 0, between -2 and 9.
fn falling_root(function: impl Fn(f64) -> f64) -> f64 {
    let mut low = -2.0;
    let mut high = 9.0;
    for _ in 0..30 {
        let middle = f64::midpoint(low, high);
        if function(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scipy::{assert_equal, scipy_numbers};

    /// The value above which a tail of the normal distribution is.
    fn quantile(tail: f64) -> f64 {
        falling_root(|value| normal_tail(value) - tail)
    }

    /// D. M. Reboussin, D. L. DeMets, K. Kim, K. K. G. Lan, "Computations for group sequential boundaries using the
    /// Lan-DeMets spending function method" (2000): five looks, one-sided 0.025, the spending function of O'Brien and Fleming.
    #[test]
    fn boundaries_are_those_of_the_published_table() {
        let times: Vec<f64> = (1..=5).map(|look| f64::from(look) / 5.0).collect();
        let spent_until = |time: &f64| 2.0 * normal_tail(quantile(0.0125) / time.sqrt());
        let until: Vec<f64> = times.iter().map(spent_until).collect();
        let spent: Vec<f64> = std::iter::once(until[0])
            .chain(until.windows(2).map(|pair| pair[1] - pair[0]))
            .collect();
        let found: Vec<f64> = one_sided_tails(&times, &spent).into_iter().map(quantile).collect();
        for (found, expected) in found.iter().zip([4.877, 3.357, 2.680, 2.290, 2.031]) {
            assert!((found - expected).abs() < 0.000_6, "{found} is not {expected}");
        }
    }

    /// With the quadrature of Gauss and Legendre in place of equal steps.
    #[test]
    fn boundaries_are_those_of_scipy() {
        let script = "
import numpy as np
from scipy.optimize import brentq
from scipy.special import roots_legendre
from scipy.stats import norm
nodes, weights = roots_legendre(160)
times = [look / 10 for look in range(1, 11)]
for level in [0.05, 0.01, 0.0025]:
    sums, chances, before = np.zeros(1), np.ones(1), 0.0
    for time in times:
        spent, deviation, scale = level * (time ** 2 - before ** 2), (time - before) ** 0.5, time ** 0.5
        crossing = lambda z: chances @ norm.sf((z * scale - sums) / deviation) - spent
        boundary = brentq(crossing, -2, 9, xtol=1e-13)
        print(norm.sf(boundary))
        width = (boundary + 8) * scale
        at = boundary * scale - width * (nodes + 1) / 2
        density = norm.pdf((at[:, None] - sums[None, :]) / deviation) / deviation @ chances
        sums, chances, before = at, density * weights * width / 2, time";
        let Some(expected) = scipy_numbers(script) else { return };
        let times: Vec<f64> = (1..=10).map(|look| f64::from(look) / 10.0).collect();
        let tails = |level: f64| {
            let spent = times.iter().map(|time| level * (time.powi(2) - (time - 0.1).powi(2)));
            one_sided_tails(&times, &spent.collect::<Vec<_>>())
        };
        assert_equal(&[0.05, 0.01, 0.002_5].map(tails).concat(), &expected);
    }

    #[test]
    fn one_look_has_the_whole_level() {
        assert!((one_sided_tails(&[1.0], &[0.05])[0] - 0.05).abs() < 1e-8);
    }
}
