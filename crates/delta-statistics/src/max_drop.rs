//! Whether a change may have let scores drop by more than a limit.
//!
//! Student's t of the differences of the inputs, as if two more pairs of runs had been seen in which the change won, and two in
//! which it lost: differences that are rare show a t interval no spread, and would pass changes that break something.
//! The claim is about the inputs at hand.

use crate::estimate::{mean, variance_of_mean};
use crate::student_t::student_quantile;

/// The chance of a FAIL without a drop, over all verdicts of a comparison.
pub const FAIL_LEVEL: f64 = 0.01;
/// The chance of a PASS with a drop of the limit.
pub const PASS_LEVEL: f64 = 0.05;
/// With fewer pairs of runs nothing passes.
pub const FEWEST_PAIRS: usize = 20;
/// The imagined pairs in which the change wins, and as many in which it loses.
const GUARD_PAIRS: f64 = 2.0;

/// What a comparison shows of a drop, the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropVerdict {
    /// A drop of the limit is excluded.
    Pass,
    /// Neither is shown.
    Inconclusive,
    /// A drop is shown.
    Fail,
}

/// The difference of two sets of runs of the same inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropEstimate {
    /// The mean of the differences of each input, the change minus the base.
    pub difference: f64,
    /// The difference is above it, but for [`PASS_LEVEL`].
    pub low: f64,
    /// The difference is below it, but for the level of a FAIL.
    pub high: f64,
    /// How many pairs of runs there are: of each input as many as the side with fewer runs has.
    pub pairs: usize,
}

impl DropEstimate {
    /// Estimates the difference from the scores of the base and of the change on each input, or on each group of inputs, each
    /// with at least one score of both. `verdicts` is how many verdicts a table has, at least 1: they share [`FAIL_LEVEL`].
    ///
    /// None with fewer than two inputs, which show no spread.
    pub fn new(inputs: &[(Vec<f64>, Vec<f64>)], verdicts: usize) -> Option<Self> {
        let differences: Option<Vec<f64>> =
            inputs.iter().map(|(base, change)| Some(mean(change)? - mean(base)?)).collect();
        let differences = differences.filter(|differences| differences.len() > 1)?;
        let pairs = inputs.iter().map(|(base, change)| base.len().min(change.len())).sum();
        let share = pairs as f64 / (pairs as f64 + 2.0 * GUARD_PAIRS);
        let guard = 2.0 * GUARD_PAIRS / (pairs as f64 + 2.0 * GUARD_PAIRS).powi(2);
        let error = (variance_of_mean(&differences) * share * share + guard).sqrt();
        let difference = mean(&differences)?;
        let quantile = |level: f64| student_quantile(1.0 - level, differences.len() - 1);
        Some(Self {
            difference,
            low: difference * share - quantile(PASS_LEVEL) * error,
            high: difference * share + quantile(FAIL_LEVEL / verdicts as f64) * error,
            pairs,
        })
    }

    /// The verdict for a limit from 0 to 1.
    pub fn verdict(&self, max_drop: f64) -> DropVerdict {
        if self.low > -max_drop && self.pairs >= FEWEST_PAIRS {
            DropVerdict::Pass
        } else if self.high < 0.0 {
            DropVerdict::Fail
        } else {
            DropVerdict::Inconclusive
        }
    }
}

/// The largest share of inputs like these that the change may have broken although none of `inputs` shows it, at 95 %.
pub fn unseen_share(inputs: usize) -> f64 {
    1.0 - 0.05_f64.powf(1.0 / inputs as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Scores = Vec<(Vec<f64>, Vec<f64>)>;

    fn equal_scores(inputs: usize) -> Scores {
        vec![(vec![1.0], vec![1.0]); inputs]
    }

    /// From quantiles by bisection of the incomplete beta function of mpmath 1.3, with 30 digits.
    #[test]
    fn estimates_are_those_of_another_program() {
        let each_fourth_fails =
            |index: usize| (vec![1.0], vec![f64::from(u8::from(!index.is_multiple_of(4)))]);
        let unequal = vec![
            (vec![1.0, 0.0, 1.0], vec![0.5, 0.25, 0.75]),
            (vec![0.25, 0.5], vec![0.875]),
            (vec![0.0; 8], vec![0.125; 8]),
            (vec![1.0; 10], vec![0.75; 10]),
        ];
        for (inputs, low, high, pairs) in [
            (equal_scores(20), -0.144_094_400_960_114_13, 0.211_623_599_218_663_55, 20),
            (equal_scores(60), -0.052_221_657_253_246_72, 0.074_725_901_162_729_9, 60),
            (
                (0..40).map(each_fourth_fails).collect(),
                -0.358_210_563_252_710_8,
                -0.038_751_678_722_366_98,
                40,
            ),
            (unequal, -0.339_062_452_217_981_8, 0.783_307_353_095_664_2, 22),
        ] {
            let found = DropEstimate::new(&inputs, 1).unwrap();
            assert!((found.low - low).abs() < 1e-12, "{found:?}");
            assert!((found.high - high).abs() < 1e-12, "{found:?}");
            assert_eq!(found.pairs, pairs);
        }
    }

    #[test]
    fn c_34_7_little_evidence_passes_nothing() {
        let verdict = |inputs: Scores, max_drop| {
            DropEstimate::new(&inputs, 1).map(|found| found.verdict(max_drop))
        };
        assert_eq!(verdict(equal_scores(1), 0.1), None, "one input shows no spread");
        // Without the imagined pairs, no difference in 20 inputs would pass, which a change that breaks 1 in 10 often shows.
        assert_eq!(verdict(equal_scores(20), 0.1), Some(DropVerdict::Inconclusive));
        assert_eq!(verdict(equal_scores(60), 0.1), Some(DropVerdict::Pass));
        assert_eq!(verdict(equal_scores(19), 1.0), Some(DropVerdict::Inconclusive));
        assert_eq!(verdict(equal_scores(20), 1.0), Some(DropVerdict::Pass));
        let lost = vec![(vec![1.0], vec![0.0]); 19];
        assert_eq!(verdict(lost, 0.1), Some(DropVerdict::Fail), "a drop is shown with fewer");
        assert!((unseen_share(100) - 0.029_513).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn more_verdicts_and_lower_limits_never_make_a_verdict_surer(
            inputs in prop::collection::vec(
                (prop::collection::vec(0.0..=1.0, 1..4), prop::collection::vec(0.0..=1.0, 1..4)),
                2..60,
            ),
            verdicts in 1..9_usize,
            max_drop in 0.01..0.5,
        ) {
            let one = DropEstimate::new(&inputs, 1).unwrap();
            let many = DropEstimate::new(&inputs, verdicts).unwrap();
            prop_assert!(many.high >= one.high && many.low == one.low);
            prop_assert!(one.low <= one.difference.max(0.0) && one.difference.min(0.0) <= one.high);
            if one.verdict(max_drop) == DropVerdict::Pass {
                prop_assert_eq!(one.verdict(max_drop + 0.1), DropVerdict::Pass);
            }
            // Base and change have the same part in it.
            let swapped: Vec<_> = inputs.iter().map(|(base, change)| (change.clone(), base.clone())).collect();
            let reverse = DropEstimate::new(&swapped, 1).unwrap();
            prop_assert!((reverse.difference + one.difference).abs() < 1e-12);
        }
    }
}
