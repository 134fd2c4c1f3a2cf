use proptest::prelude::*;

use super::*;

fn close(left: f64, right: f64, places: i32) {
    assert!((left - right).abs() < 0.5 * 10_f64.powi(-places), "{left} is not {right}");
}

fn pairs_of(first_only: usize, second_only: usize, both: usize) -> Vec<(Vec<f64>, Vec<f64>)> {
    let mut pairs = vec![(vec![1.0], vec![0.0]); first_only];
    pairs.extend(vec![(vec![0.0], vec![1.0]); second_only]);
    pairs.extend(vec![(vec![1.0], vec![1.0]); both]);
    pairs
}

#[test]
fn mcnemar_is_the_exact_binomial_test() {
    for (first_only, second_only, expected) in [
        (10, 0, 0.001_953),
        (5, 15, 0.041_389),
        (6, 6, 1.0),
        (1, 0, 1.0),
        (0, 0, 1.0),
        (2, 9, 0.065_430),
    ] {
        close(mcnemar(first_only, second_only), expected, 6);
    }
    close(mcnemar(5_000, 5_200), 0.048_788, 6);
}

#[test]
fn one_run_of_each_is_compared_by_mcnemar() {
    let comparison = compare(&pairs_of(10, 0, 30), 1).unwrap();
    assert_eq!((comparison.pairs, comparison.test), (40, PairedTest::McNemar));
    close(comparison.difference, 0.25, 12);
    close(comparison.p_value.unwrap(), 0.001_953, 6);
    assert!(!comparison.interval.unwrap().contains(0.0));
    assert!(!comparison.resampled.unwrap().contains(0.0));
    assert!(shows_difference(&comparison, comparison.p_value.unwrap()));
}

#[test]
fn repeats_and_scores_between_are_compared_by_t() {
    // Differences 0.5, 0.0, 0.5, 1.0: mean 0.5, standard error 0.204, t = 2.449 with 3 degrees.
    let pairs = vec![
        (vec![1.0, 0.0], vec![0.0, 0.0]),
        (vec![1.0, 1.0], vec![1.0, 1.0]),
        (vec![0.5, 0.5], vec![0.0, 0.0]),
        (vec![1.0], vec![0.0]),
    ];
    let comparison = compare(&pairs, 1).unwrap();
    assert_eq!(comparison.test, PairedTest::T);
    close(comparison.difference, 0.5, 12);
    close(comparison.p_value.unwrap(), 0.091_7, 3);
    let interval = comparison.interval.unwrap();
    close(interval.low, -0.149_614, 6);
    close(interval.high, 1.149_614, 6);
    close(comparison.detectable.unwrap(), 0.849_344, 6);
    assert_eq!(comparison.resampled, None);
    assert!(!shows_difference(&comparison, comparison.p_value.unwrap()));
}

#[test]
fn only_inputs_that_both_have_are_compared() {
    let pairs = vec![(vec![1.0], vec![]), (vec![], vec![0.0]), (vec![1.0], vec![0.0])];
    let comparison = compare(&pairs, 1).unwrap();
    assert_eq!((comparison.pairs, comparison.difference), (1, 1.0));
    assert_eq!(
        (comparison.interval, comparison.p_value, comparison.detectable),
        (None, None, None)
    );
    assert_eq!(compare(&pairs[..2], 1), None);
}

#[test]
fn equal_scores_show_nothing() {
    let comparison = compare(&vec![(vec![0.3, 0.1], vec![0.1, 0.3]); 25], 1).unwrap();
    assert_eq!(comparison.p_value, Some(1.0));
    assert!(!shows_difference(&comparison, 1.0));
}

#[test]
fn a_difference_must_survive_the_adjustment() {
    let comparison = compare(&pairs_of(8, 1, 20), 1).unwrap();
    let p_value = comparison.p_value.unwrap();
    assert!(shows_difference(&comparison, p_value));
    assert!(!shows_difference(&comparison, holm(&[p_value, 0.01, 0.5])[0]));
}

#[test]
fn holm_adjusts_as_in_the_paper() {
    let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
    for (value, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
        close(*value, expected, 9);
    }
    assert_eq!(holm(&[]), Vec::<f64>::new());
    assert_eq!(holm(&[0.7]), vec![0.7]);
    assert_eq!(holm(&[0.7, 0.9]), vec![1.0, 1.0]);
}

proptest! {
    #[test]
    fn a_comparison_the_other_way_is_its_mirror(
        pairs in proptest::collection::vec(
            (proptest::collection::vec(0.0..=1.0, 0..4), proptest::collection::vec(0.0..=1.0, 0..4)),
            0..12,
        ),
    ) {
        let mirrored: Vec<_> =
            pairs.iter().map(|(first, second)| (second.clone(), first.clone())).collect();
        match (compare(&pairs, 5), compare(&mirrored, 5)) {
            (Some(one), Some(other)) => {
                prop_assert!((one.difference + other.difference).abs() < 1e-12);
                match (one.p_value, other.p_value) {
                    (Some(one), Some(other)) => prop_assert!((one - other).abs() < 1e-9),
                    (one, other) => prop_assert_eq!(one, other),
                }
            }
            (one, other) => prop_assert_eq!(one, other),
        }
    }

    #[test]
    fn holm_never_lowers_and_keeps_the_order(
        p_values in proptest::collection::vec(0.0..=1.0, 0..10),
    ) {
        let adjusted = holm(&p_values);
        for (left, &p) in p_values.iter().enumerate() {
            prop_assert!(adjusted[left] >= p && adjusted[left] <= 1.0);
            for (right, &q) in p_values.iter().enumerate() {
                prop_assert!(p > q || adjusted[left] <= adjusted[right]);
            }
        }
    }
}

#[test]
fn equal_differences_show_no_spread_and_so_no_interval() {
    // Two inputs with the same difference: Student's t would be certain of it.
    let pairs = |count: usize| vec![(vec![0.5, 0.0], vec![1.0, 0.5]); count];
    let few = compare(&pairs(2), 0).unwrap();
    assert_eq!((few.difference, few.interval, few.test), (-0.5, None, PairedTest::Sign));
    assert_eq!(few.p_value, Some(0.5));
    assert!(!shows_difference(&few, 0.5));
    let many = compare(&pairs(10), 0).unwrap();
    assert!(shows_difference(&many, many.p_value.unwrap()));
}
