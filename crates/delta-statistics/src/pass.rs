//! How likely at least one of k runs, or each of k runs, passes.

/// Passed runs of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// How many runs were graded.
    pub runs: u64,
    /// How many of them passed; at most `runs`.
    pub passed: u64,
}

/// pass@k: the mean over the inputs of 1 − C(R − c, k)/C(R, k), the chance that one of k runs passes.
///
/// Inputs with fewer than k runs cannot say it and are left out; none if all have fewer, or k is 0.
/// M. Chen et al., "Evaluating large language models trained on code" (2021).
pub fn pass_at(inputs: &[Passed], k: u64) -> Option<f64> {
    mean_chance(inputs, k, |input| 1.0 - chance_of_all(input.runs, input.runs - input.passed, k))
}

/// pass^k: the mean over the inputs of C(c, k)/C(R, k), the chance that each of k runs passes.
///
/// As [`pass_at`]; S. Yao et al., "τ-bench" (2024).
pub fn pass_all(inputs: &[Passed], k: u64) -> Option<f64> {
    mean_chance(inputs, k, |input| chance_of_all(input.runs, input.passed, k))
}

fn mean_chance(inputs: &[Passed], k: u64, chance: impl Fn(&Passed) -> f64) -> Option<f64> {
    let chances: Vec<f64> =
        inputs.iter().filter(|input| k > 0 && input.runs >= k).map(chance).collect();
    crate::estimate::mean(&chances)
}

/// C(marked, k)/C(runs, k), as a product, because the factorials of large numbers are too large.
fn chance_of_all(runs: u64, marked: u64, k: u64) -> f64 {
    if marked < k {
        return 0.0;
    }
    (0..k).map(|drawn| (marked - drawn) as f64 / (runs - drawn) as f64).product()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All ways to draw k of the runs, of which the first `passed` passed.
    fn by_counting(runs: u64, passed: u64, k: u64) -> (f64, f64) {
        let draws = (0u64..1 << runs).filter(|draw| u64::from(draw.count_ones()) == k);
        let marked = (1u64 << passed) - 1;
        let (mut all, mut some, mut each) = (0.0, 0.0, 0.0);
        for draw in draws {
            all += 1.0;
            some += f64::from(u8::from(draw & marked != 0));
            each += f64::from(u8::from(draw & !marked == 0));
        }
        (some / all, each / all)
    }

    proptest! {
        #[test]
        fn both_are_the_share_of_the_draws(runs in 1u64..10, passed in 0u64..10, k in 1u64..10) {
            prop_assume!(passed <= runs && k <= runs);
            let input = [Passed { runs, passed }];
            let (some, each) = by_counting(runs, passed, k);
            prop_assert!((pass_at(&input, k).unwrap() - some).abs() < 1e-12);
            prop_assert!((pass_all(&input, k).unwrap() - each).abs() < 1e-12);
        }
    }

    #[test]
    fn an_input_with_too_few_runs_is_left_out() {
        let inputs = [Passed { runs: 5, passed: 5 }, Passed { runs: 2, passed: 0 }];
        assert_eq!(pass_at(&inputs, 3), Some(1.0));
        assert_eq!(pass_at(&inputs, 2), Some(0.5));
        assert_eq!(pass_at(&inputs, 6), None);
        assert_eq!(pass_all(&inputs, 0), None);
        assert_eq!(pass_all(&[], 1), None);
    }

    #[test]
    fn many_runs_stay_exact() {
        let input = [Passed { runs: 100_000, passed: 50_000 }];
        assert!((pass_all(&input, 10).unwrap() - 0.000_976_123_104).abs() < 1e-12);
        assert!(pass_at(&input, 1_000).unwrap() > 0.999_999);
    }
}
