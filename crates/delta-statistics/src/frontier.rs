//! Which of several settings are dominated: another one costs less, and its scores are not worse by more than is allowed.
//!
//! Both must be shown, so the p value of a domination is the larger one of both tests: R. L. Berger, "Multiparameter hypothesis
//! testing and acceptance sampling" (1982). All ordered pairs of the settings are one family (Holm), so at most 5 % of tables
//! mark a setting that is not dominated.

use crate::comparison::holm;
use crate::estimate::{CONFIDENCE, mean, variance_of_mean};
use crate::sequential::{Pair, drop_p_value};
use crate::student_t::upper_tail;

/// Two settings on the same inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingPair {
    /// The scores; the base is the setting that may be dominated, the change the one that may dominate it.
    pub scores: Vec<Pair>,
    /// The mean cost of the change minus the mean cost of the base, for each input or group with costs of both.
    pub cost_differences: Vec<f64>,
}

/// For each setting the index of the one that dominates it, the clearest if there are several.
///
/// `pair` has what is known of a setting, the first index, and of the one that may dominate it. A drop of `max_drop` is the
/// smallest one that is not allowed.
pub fn dominating_settings(
    settings: usize,
    max_drop: f64,
    pair: impl Fn(usize, usize) -> SettingPair,
) -> Vec<Option<usize>> {
    let ordered_pairs: Vec<(usize, usize)> = (0..settings)
        .flat_map(|base| (0..settings).map(move |change| (base, change)))
        .filter(|(base, change)| base != change)
        .collect();
    let p_values = ordered_pairs.iter().map(|(base, change)| {
        let pair = pair(*base, *change);
        less_cost_p_value(&pair.cost_differences).max(drop_p_value(&pair.scores, max_drop))
    });
    let adjusted = holm(&p_values.collect::<Vec<_>>());
    let mut dominating: Vec<Option<(f64, usize)>> = vec![None; settings];
    for ((base, change), p) in ordered_pairs.into_iter().zip(adjusted) {
        let is_clearest = dominating[base].is_none_or(|(clearest, _)| p < clearest);
        if p < 1.0 - CONFIDENCE && is_clearest {
            dominating[base] = Some((p, change));
        }
    }
    dominating.into_iter().map(|it| it.map(|(_, change)| change)).collect()
}

/// How likely costs that are lower by as much are if they are not lower; 1 with fewer than two differences.
fn less_cost_p_value(differences: &[f64]) -> f64 {
    let largest = differences.iter().map(|difference| difference.abs()).fold(0.0, f64::max);
    if differences.len() < 2 || largest == 0.0 {
        return 1.0;
    }
    // Costs that rarely differ, or always by the same, show no spread: one imagined difference each way does.
    let guarded = [differences, &[largest, -largest]].concat();
    let middle = mean(&guarded).unwrap_or_default();
    let error = variance_of_mean(&guarded).sqrt();
    upper_tail(-middle / error, differences.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resampling::SplitMix64;

    fn share(numbers: &mut SplitMix64) -> f64 {
        (numbers.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// How costs of runs differ.
    #[derive(Clone, Copy, Debug)]
    enum Costs {
        /// Each run by another factor from 1/4 to 4.
        Varied,
        /// One run of ten costs twice as much.
        Rare,
        /// Not at all.
        Equal,
    }

    /// A setting with a pass rate and a factor of its costs.
    type Setting = (f64, f64);

    /// The score and the cost of a run of each setting on each input.
    fn draw(
        settings: &[Setting],
        inputs: usize,
        costs: Costs,
        numbers: &mut SplitMix64,
    ) -> Vec<Vec<(f64, f64)>> {
        let tasks = (0..inputs).map(|_| (share(numbers), 2_f64.powf(2.0 * share(numbers))));
        let tasks: Vec<(f64, f64)> = tasks.collect();
        let of_setting = |&(rate, factor): &Setting| {
            let runs = tasks.iter().map(|(luck, size)| {
                // Half of a score is the luck of its input, so two runs of an input are alike.
                let luck = if share(numbers) < 0.5 { *luck } else { share(numbers) };
                let spread = match costs {
                    Costs::Varied => 4_f64.powf(2.0 * share(numbers) - 1.0),
                    Costs::Rare => 1.0 + f64::from(u8::from(share(numbers) < 0.1)),
                    Costs::Equal => 1.0,
                };
                (f64::from(u8::from(luck < rate)), factor * size * spread)
            });
            runs.collect()
        };
        settings.iter().map(of_setting).collect()
    }

    fn dominating(runs: &[Vec<(f64, f64)>]) -> Vec<Option<usize>> {
        dominating_settings(runs.len(), 0.1, |base, change| {
            let both = runs[base].iter().zip(&runs[change]);
            let scores = both.clone().enumerate().map(|(cluster, (base, change))| Pair {
                cluster,
                base: Some(base.0),
                change: Some(change.0),
            });
            let scores = scores.collect();
            let cost_differences = both.map(|(base, change)| change.1 - base.1).collect();
            SettingPair { scores, cost_differences }
        })
    }

    /// How many of a hundred tables mark the setting with this index, or any.
    fn marked(settings: &[Setting], inputs: usize, costs: Costs, index: Option<usize>) -> f64 {
        const TABLES: u32 = 400;
        let mut numbers = SplitMix64(30);
        let tables = (0..TABLES).map(|_| dominating(&draw(settings, inputs, costs, &mut numbers)));
        let is_marked = |table: &Vec<Option<usize>>| match index {
            Some(index) => table[index].is_some(),
            None => table.iter().any(Option::is_some),
        };
        tables.filter(is_marked).count() as f64 * 100.0 / f64::from(TABLES)
    }

    #[test]
    fn c_34_30_equal_settings_are_marked_in_at_most_5_of_100_tables() {
        for costs in [Costs::Varied, Costs::Rare, Costs::Equal] {
            for (settings, inputs) in [(2, 30), (2, 200), (6, 100)] {
                let count = marked(&vec![(0.95, 1.0); settings], inputs, costs, None);
                assert!(count <= 5.0, "{settings} on {inputs}, {costs:?}: {count}");
            }
        }
    }

    #[test]
    fn c_34_30_a_dominated_setting_is_marked_and_nothing_else_by_one_interval() {
        let settings = [(0.9, 1.0), (0.9, 0.6), (0.8, 0.3), (0.9, 1.0)];
        for costs in [Costs::Varied, Costs::Equal] {
            let first = marked(&settings, 300, costs, Some(0));
            assert!(first >= 95.0, "{costs:?}: {first}");
            // Half of its cost alone, with a drop of `max_drop`, dominates nothing.
            let second = marked(&settings, 300, costs, Some(1));
            assert!(second <= 5.0, "{costs:?}: {second}");
            let cheapest = marked(&settings, 300, costs, Some(2));
            assert_eq!(cheapest, 0.0, "{costs:?}");
        }
        let runs = draw(&settings, 400, Costs::Varied, &mut SplitMix64(1));
        assert_eq!(dominating(&runs), [Some(1), None, None, Some(1)]);
    }

    #[test]
    fn c_34_30_what_is_missing_speaks_against_a_domination() {
        let pair = |missing: usize, inputs: usize| {
            let scores = (0..inputs).map(|cluster| Pair {
                cluster,
                base: Some(1.0),
                change: (cluster >= missing).then_some(1.0),
            });
            SettingPair { scores: scores.collect(), cost_differences: vec![-1.0; inputs] }
        };
        let first = |missing: usize, inputs: usize| {
            let both = |base, _| if base == 0 { pair(missing, inputs) } else { pair(0, 0) };
            dominating_settings(2, 0.1, both)[0]
        };
        assert_eq!(first(0, 100), Some(1));
        assert_eq!(first(1, 100), Some(1), "its worst score changes nothing");
        assert_eq!(first(10, 100), None);
        assert_eq!(first(0, 19), None, "fewer than 20 pairs show no score");
    }
}
