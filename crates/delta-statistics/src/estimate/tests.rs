use proptest::prelude::*;

use super::*;
use crate::normal::normal_quantile;
use crate::resampling::SplitMix64;
use crate::scipy::{assert_equal, scipy_numbers};
use crate::student_t::power_series;

fn close(left: f64, right: f64, places: i32) {
    assert!((left - right).abs() < 0.5 * 10_f64.powi(-places), "{left} is not {right}");
}

#[test]
fn wilson_is_that_of_the_tables() {
    // 8 of 10 and 0 of 10 with the normal quantile, as in A. Agresti, "Categorical Data Analysis".
    let interval = wilson(0.8, 10.0, 1.959_964);
    close(interval.low, 0.4902, 4);
    close(interval.high, 0.9433, 4);
    let interval = wilson(0.0, 10.0, 1.959_964);
    close(interval.low, 0.0, 4);
    close(interval.high, 0.2775, 4);
}

#[test]
fn one_run_of_each_input_is_almost_wilson() {
    let clusters: Vec<Vec<f64>> = (0..100).map(|i| vec![f64::from(u8::from(i < 90))]).collect();
    let estimate = rate(&clusters).unwrap();
    close(estimate.value, 0.9, 12);
    let interval = estimate.interval.unwrap();
    let plain = wilson(0.9, 100.0, 1.959_964);
    close(interval.low, plain.low, 2);
    close(interval.high, plain.high, 2);
}

#[test]
fn what_cannot_be_known_is_not_printed() {
    assert_eq!(rate(&[]), None);
    assert_eq!(rate(&[vec![], vec![]]), None);
    assert_eq!(rate(&[vec![1.0, 0.0]]), Some(Estimate { value: 0.5, interval: None }));
    assert_eq!(amount(&[], 1), None);
    assert_eq!(amount(&[vec![3.0]], 1), Some(Estimate { value: 3.0, interval: None }));
    assert_eq!(quantile(&[], 0.5), None);
}

#[test]
fn inputs_without_a_spread_are_as_many_samples() {
    let all = rate(&vec![vec![1.0; 5]; 20]).unwrap();
    let expected = wilson(1.0, 20.0, t_quantile(19));
    assert_eq!(all.interval, Some(expected));
    // Rounding put the end of this one, and of others, below 1.
    for inputs in 2..50 {
        let all = rate(&vec![vec![1.0; 3]; inputs]).unwrap();
        assert!(all.interval.unwrap().contains(1.0), "{inputs}: {all:?}");
    }
    // 0.3 three times is not 0.9 divided by three in binary.
    let same = rate(&vec![vec![0.1, 0.3, 0.5]; 3]).unwrap().interval.unwrap();
    assert_eq!(
        same,
        wilson(rate(&vec![vec![0.1, 0.3, 0.5]; 3]).unwrap().value, 3.0, t_quantile(2))
    );
}

#[test]
fn an_input_counts_once_however_often_it_ran() {
    let estimate = rate(&[vec![1.0; 9], vec![0.0]]).unwrap();
    close(estimate.value, 0.5, 12);
}

#[test]
fn quantiles_are_interpolated() {
    let amounts = [4.0, 1.0, 3.0, 2.0];
    close(quantile(&amounts, 0.5).unwrap(), 2.5, 12);
    close(quantile(&amounts, 0.0).unwrap(), 1.0, 12);
    close(quantile(&amounts, 1.0).unwrap(), 4.0, 12);
    close(quantile(&amounts, 0.9).unwrap(), 3.7, 12);
    close(quantile(&[7.0], 0.9).unwrap(), 7.0, 12);
}

#[test]
fn resampled_and_computed_intervals_agree_where_one_takes_over() {
    let values: Vec<f64> = (0..MOST_RESAMPLED - 1).map(|i| (i % 17) as f64).collect();
    let resampled = resampled_interval(&values, 3);
    let computed = t_interval(&values);
    close(resampled.low, computed.low, 1);
    close(resampled.high, computed.high, 1);
}

proptest! {
    #[test]
    fn an_interval_contains_its_value_and_is_a_rate(
        scores in proptest::collection::vec(proptest::collection::vec(0.0..=1.0, 0..5), 0..30),
    ) {
        if let Some(Estimate { value, interval: Some(interval) }) = rate(&scores) {
            prop_assert!(0.0 <= interval.low && interval.high <= 1.0);
            prop_assert!(interval.low - 1e-9 <= value && value <= interval.high + 1e-9);
        }
    }

}

#[test]
fn the_same_seed_gives_the_same_interval() {
    let amounts: Vec<Vec<f64>> = (0..30).map(|i| vec![f64::from(i).sqrt(), 1.5]).collect();
    let estimate = amount(&amounts, 8);
    assert_eq!(estimate, amount(&amounts, 8));
    assert_ne!(estimate, amount(&amounts, 9));
    // Fixed for ever: a collected table must not change with a version.
    let interval = estimate.unwrap().interval.unwrap();
    close(interval.low, 2.278_463_352_483, 12);
    close(interval.high, 2.767_703_552_712, 12);
}

/// The value below which a share of the beta distribution is, by bisection.
fn beta_quantile(a: f64, b: f64, share: f64) -> f64 {
    let part = |a: f64, b: f64, x: f64| {
        x.powf(a) * (1.0 - x).powf(b) / a * power_series(a + b, a + 1.0, x)
    };
    let whole = part(a, b, 0.5) + part(b, a, 0.5);
    let (mut low, mut high) = (0.0, 1.0);
    while high - low > 1e-12 {
        let middle = (low + high) / 2.0;
        let below = if middle <= 0.5 {
            part(a, b, middle) / whole
        } else {
            1.0 - part(b, a, 1.0 - middle) / whole
        };
        if below < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// How many of a hundred simulated sweeps of a nominal 95 % contain the true rate, where the inputs differ in difficulty.
fn coverage(
    inputs: usize,
    repeats: usize,
    truth: f64,
    of: impl Fn(&[Vec<f64>]) -> Interval,
) -> f64 {
    const SWEEPS: usize = 2_000;
    // An intraclass correlation of 0.57: most inputs are almost always passed or almost never.
    let rates: Vec<f64> = (0..1_000)
        .map(|i| beta_quantile(0.75 * truth, 0.75 * (1.0 - truth), (f64::from(i) + 0.5) / 1_000.0))
        .collect();
    let mut numbers = SplitMix64(20_261_124);
    let mut uniform = || (numbers.next() >> 11) as f64 / (1_u64 << 53) as f64;
    let contained = (0..SWEEPS)
        .filter(|_| {
            let clusters: Vec<Vec<f64>> = (0..inputs)
                .map(|_| {
                    let rate = rates[(uniform() * 1_000.0) as usize];
                    (0..repeats).map(|_| f64::from(u8::from(uniform() < rate))).collect()
                })
                .collect();
            of(&clusters).contains(truth)
        })
        .count();
    100.0 * contained as f64 / SWEEPS as f64
}

#[test]
fn intervals_hold_where_inputs_differ_in_difficulty() {
    let ours = |clusters: &[Vec<f64>]| rate(clusters).unwrap().interval.unwrap();
    for (inputs, repeats, truth, least) in [
        (20, 5, 0.5, 93.0),
        (20, 5, 0.1, 91.0),
        (20, 5, 0.95, 93.0),
        (50, 5, 0.3, 93.0),
        (50, 5, 0.97, 87.0),
        (200, 3, 0.5, 93.0),
        (100, 1, 0.9, 92.0),
    ] {
        let share = coverage(inputs, repeats, truth, ours);
        assert!(share >= least, "{share} % of intervals for {inputs}×{repeats} at {truth}");
    }
}

#[test]
fn an_interval_of_all_runs_as_samples_would_not_hold() {
    let naive = |clusters: &[Vec<f64>]| {
        let scores: Vec<f64> = clusters.concat();
        wilson(mean(&scores).unwrap(), scores.len() as f64, 1.959_964)
    };
    let share = coverage(20, 5, 0.5, naive);
    assert!(share < 80.0, "{share} %");
}

#[test]
fn quantiles_tails_and_intervals_are_those_of_scipy() {
    let script = "
from scipy.stats import binomtest, norm, t
for share in [0.5, 0.6, 0.8, 0.95, 0.975, 0.999, 0.99999]:
    print(norm.ppf(share))
    for degrees in [1, 2, 7, 30, 499]:
        print(t.ppf(share, degrees) if share < 0.999 else t.sf(share * 3, degrees))
for passed, runs in [(0, 8), (7, 8), (3, 40), (399, 400)]:
    print(*binomtest(passed, runs).proportion_ci(0.95, 'wilson'), sep='\\n')";
    let Some(expected) = scipy_numbers(script) else { return };
    let mut found = Vec::new();
    for share in [0.5, 0.6, 0.8, 0.95, 0.975, 0.999, 0.999_99] {
        found.push(normal_quantile(share));
        found.extend([1, 2, 7, 30, 499].map(|degrees| {
            if share < 0.999 {
                student_t::student_quantile(share, degrees)
            } else {
                student_t::upper_tail(share * 3.0, degrees)
            }
        }));
    }
    for (passed, runs) in [(0.0, 8.0), (7.0, 8.0), (3.0, 40.0), (399.0, 400.0)] {
        let both = wilson(passed / runs, runs, normal_quantile(0.975));
        found.extend([both.low, both.high]);
    }
    assert_equal(&found, &expected);
}
