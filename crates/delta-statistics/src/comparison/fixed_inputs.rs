//! Two agents or models on inputs that are all there are, and not a sample of others: only repeats vary.

use super::{Comparison, PairedTest};
use crate::estimate::mean;

/// Runs that passed, and all runs, of the first and of the second on one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InputOutcomes {
    passed: [usize; 2],
    runs: [usize; 2],
}

/// Compares the scores of fixed inputs that both have; none if there is no such input, or a score other than 0 and 1.
///
/// The exact conditional test of several 2 by 2 tables, as A. Agresti describes it in "Categorical Data Analysis" (1990): given
/// how many runs of an input passed, every division of them between first and second is equally likely if there is no
/// difference. A result is at least as extreme if it is at most as likely.
pub fn compare_fixed(pairs: &[(Vec<f64>, Vec<f64>)]) -> Option<Comparison> {
    let complete = pairs.iter().filter(|(first, second)| !first.is_empty() && !second.is_empty());
    let outcomes: Vec<InputOutcomes> =
        complete.map(|(first, second)| input_outcomes(first, second)).collect::<Option<_>>()?;
    let rate =
        |input: &InputOutcomes, side: usize| input.passed[side] as f64 / input.runs[side] as f64;
    let differences: Vec<f64> =
        outcomes.iter().map(|input| rate(input, 0) - rate(input, 1)).collect();
    Some(Comparison {
        pairs: differences.len(),
        difference: mean(&differences)?,
        interval: None,
        resampled: None,
        p_value: Some(conditional_test(&outcomes)),
        test: PairedTest::Conditional,
        detectable: None,
    })
}

fn input_outcomes(first: &[f64], second: &[f64]) -> Option<InputOutcomes> {
    let passed = |scores: &[f64]| scores.iter().filter(|score| **score == 1.0).count();
    let are_outcomes = first.iter().chain(second).all(|score| *score == 0.0 || *score == 1.0);
    are_outcomes.then(|| InputOutcomes {
        passed: [passed(first), passed(second)],
        runs: [first.len(), second.len()],
    })
}

/// How likely a result at most as likely as this one is without a difference.
fn conditional_test(outcomes: &[InputOutcomes]) -> f64 {
    // By how many more than the least possible the first passed, over all inputs so far.
    let mut shares = vec![1.0];
    let mut observed = 0;
    for input in outcomes {
        let divisions = divisions(input);
        let mut next = vec![0.0; shares.len() + divisions.len() - 1];
        for (before, share) in shares.iter().enumerate() {
            for (more, division) in divisions.iter().enumerate() {
                next[before + more] += share * division;
            }
        }
        shares = next;
        observed += input.passed[0] - least_passed(input);
    }
    // Results that are equally likely differ in the last digits.
    let limit = shares[observed] * (1.0 + 1e-9);
    shares.iter().filter(|share| **share <= limit).sum::<f64>().min(1.0)
}

/// The fewest runs of the first that passed, given how many passed together.
fn least_passed(input: &InputOutcomes) -> usize {
    (input.passed[0] + input.passed[1]).saturating_sub(input.runs[1])
}

/// How likely each number of passed runs of the first is, from the least on: the hypergeometric distribution.
fn divisions(input: &InputOutcomes) -> Vec<f64> {
    let passed = input.passed[0] + input.passed[1];
    let least = least_passed(input);
    let most = passed.min(input.runs[0]);
    let ln_choices = |n: usize, k: usize| -> f64 {
        (1..=k).map(|j| (((n - k + j) as f64) / j as f64).ln()).sum()
    };
    let ln_all = ln_choices(input.runs[0] + input.runs[1], passed);
    (least..=most)
        .map(|first| {
            let ways = ln_choices(input.runs[0], first) + ln_choices(input.runs[1], passed - first);
            (ways - ln_all).exp()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Passed runs and all runs of the first, and of the second.
    type Table = [usize; 4];

    fn pair([first, first_runs, second, second_runs]: Table) -> (Vec<f64>, Vec<f64>) {
        let scores = |passed, runs| [vec![1.0; passed], vec![0.0; runs - passed]].concat();
        (scores(first, first_runs), scores(second, second_runs))
    }

    fn p_value(tables: &[Table]) -> f64 {
        let pairs: Vec<_> = tables.iter().copied().map(pair).collect();
        compare_fixed(&pairs).unwrap().p_value.unwrap()
    }

    #[test]
    fn the_test_is_exact() {
        // Agresti's penicillin in rabbits, and rational arithmetic for the others.
        let rabbits = [[0, 6, 0, 5], [3, 6, 0, 6], [6, 6, 2, 6], [5, 6, 6, 6], [2, 2, 5, 5]];
        for (tables, expected) in [
            (&rabbits[..], 0.039_944_903_6),
            (&[[3, 4, 1, 4]], 0.485_714_285_7),
            (&[[2, 2, 0, 2]; 3], 0.009_259_259_3),
            (&[[1, 1, 0, 1]; 10], 0.001_953_125),
            (&[[0, 5, 0, 5]], 1.0),
        ] {
            let p = p_value(tables);
            assert!((p - expected).abs() < 1e-9, "{p} is not {expected}");
        }
    }

    #[test]
    fn three_fixed_inputs_show_what_three_sampled_ones_cannot() {
        let p = p_value(&[[7, 15, 0, 15], [8, 15, 0, 15], [7, 15, 0, 15]]);
        assert!((p - 2.197_012_2e-8).abs() < 1e-14, "{p}");
        let comparison = compare_fixed(&[pair([15, 15, 0, 15]), pair([0, 15, 0, 15])]).unwrap();
        assert_eq!((comparison.pairs, comparison.difference), (2, 0.5));
        assert!(super::super::shows_difference(&comparison, comparison.p_value.unwrap()));
    }

    #[test]
    fn other_scores_and_no_inputs_are_not_compared() {
        assert_eq!(compare_fixed(&[(vec![0.5], vec![1.0])]), None);
        assert_eq!(compare_fixed(&[(vec![], vec![1.0])]), None);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_which_is_first(
            tables in prop::collection::vec((0_usize..6, 0_usize..4, 0_usize..6, 0_usize..4), 1..4)
        ) {
            let tables: Vec<Table> = tables
                .into_iter()
                .map(|(first, more, second, less)| [first, first + more + 1, second, second + less + 1])
                .collect();
            let swapped: Vec<Table> = tables.iter().map(|[a, b, c, d]| [*c, *d, *a, *b]).collect();
            let p = p_value(&tables);
            prop_assert!(p > 0.0 && p <= 1.0);
            prop_assert!((p - p_value(&swapped)).abs() < 1e-9);
        }
    }
}
