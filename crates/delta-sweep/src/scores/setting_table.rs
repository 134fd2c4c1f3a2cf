//! The runs of several settings, such as models, by what they have in common.

use crate::formats::canonical_json::content_hash;
use crate::formats::sweep_file::GateSettings;
use crate::scores::pair_table::PairKey;
use crate::scores::score_table::{CostMeasure, Domination, ScoreRow, ScoredRun, cluster};
use delta_statistics::frontier::{SettingPair, dominating_settings};
use delta_statistics::sequential::Pair;
use std::collections::BTreeMap;

/// The most settings of a frontier: each two are compared, both ways.
const MAX_SETTINGS: usize = 50;

/// Runs as a table: a column for each setting, a line for each run that all settings may have.
pub struct SettingTable<'a> {
    /// The values of the keys of each setting, in the order of the plan.
    pub settings: Vec<Vec<String>>,
    /// In a fixed order: each input once, by the hashes of their ids, then each again.
    pub lines: Vec<SettingLine<'a>>,
}

/// A repeat of an input, with everything but the keys of the settings.
pub struct SettingLine<'a> {
    /// The index of the input, or of its group.
    pub cluster: usize,
    /// The run of each setting, if it is planned.
    pub runs: Vec<Option<&'a ScoredRun<'a>>>,
}

impl<'a> SettingTable<'a> {
    /// The runs by the values of `keys`; a run without a value of one is left out.
    pub fn new(runs: &'a [ScoredRun<'a>], keys: &[String]) -> Self {
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut settings: Vec<Vec<String>> = Vec::new();
        let mut by_key: BTreeMap<PairKey, Vec<(usize, &ScoredRun<'_>)>> = BTreeMap::new();
        for scored in runs {
            let values: Option<Vec<String>> = keys.iter().map(|key| scored.field(key)).collect();
            let Some(values) = values else { continue };
            let setting = settings.iter().position(|it| *it == values).unwrap_or_else(|| {
                settings.push(values);
                settings.len() - 1
            });
            by_key.entry(PairKey::new(scored, &names)).or_default().push((setting, scored));
        }
        let mut clusters: BTreeMap<&str, usize> = BTreeMap::new();
        let mut lines = Vec::new();
        for (key, mut of_key) in by_key {
            of_key.sort_by_key(|(_, scored)| (scored.run.plan, scored.run.repeat));
            let Some((_, first)) = of_key.first() else { continue };
            let next = clusters.len();
            let cluster = *clusters.entry(cluster(first.run)).or_insert(next);
            let hash = content_hash(first.run.input.as_bytes());
            let mut rounds: Vec<Vec<Option<&ScoredRun<'_>>>> = Vec::new();
            for (setting, scored) in of_key {
                let free = rounds.iter().position(|runs| runs[setting].is_none());
                let round = free.unwrap_or_else(|| {
                    rounds.push(vec![None; settings.len()]);
                    rounds.len() - 1
                });
                rounds[round][setting] = Some(scored);
            }
            lines.extend(rounds.into_iter().enumerate().map(|(round, runs)| {
                ((round, hash.clone(), key.clone()), SettingLine { cluster, runs })
            }));
        }
        lines.sort_by(|(left, _), (right, _)| left.cmp(right));
        Self { settings, lines: lines.into_iter().map(|(_, line)| line).collect() }
    }

    /// What is known of two settings.
    fn pair(&self, base: usize, change: usize) -> (SettingPair, CostMeasure) {
        let both = || {
            self.lines
                .iter()
                .filter_map(move |line| Some((line.cluster, line.runs[base]?, line.runs[change]?)))
        };
        let score = |scored: &ScoredRun<'_>| scored.score.as_ref().ok().map(|score| score.score);
        let scores = both().map(|(cluster, base, change)| Pair {
            cluster,
            base: score(base),
            change: score(change),
        });
        let lacks_usd = |scored: &ScoredRun<'_>| {
            CostMeasure::Tokens.of(scored).is_some() && CostMeasure::Usd.of(scored).is_none()
        };
        let measure = if both().any(|(_, base, change)| lacks_usd(base) || lacks_usd(change)) {
            CostMeasure::Tokens
        } else {
            CostMeasure::Usd
        };
        let mut costs: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for (cluster, base, change) in both() {
            let Some((base, change)) = measure.of(base).zip(measure.of(change)) else { continue };
            let of_cluster = costs.entry(cluster).or_default();
            *of_cluster = (of_cluster.0 + change - base, of_cluster.1 + 1.0);
        }
        let cost_differences = costs.into_values().map(|(sum, count)| sum / count).collect();
        (SettingPair { scores: scores.collect(), cost_differences }, measure)
    }
}

/// Whether a key names a part of a setting: an agent, a model or a parameter.
pub fn is_setting_key(key: &str) -> bool {
    matches!(key, "model" | "agent") || key.starts_with("param.")
}

/// Marks the rows of `keys` that another row dominates. Nothing if rows are not settings, such as inputs.
pub fn mark_dominated(
    rows: &mut [ScoreRow],
    runs: &[ScoredRun<'_>],
    keys: &[String],
    max_drop: Option<f64>,
) {
    if rows.len() > MAX_SETTINGS || !keys.iter().all(|key| is_setting_key(key)) {
        return;
    }
    let table = SettingTable::new(runs, keys);
    let max_drop = max_drop.unwrap_or_else(|| GateSettings::default().max_drop);
    let settings = table.settings.len();
    let dominating =
        dominating_settings(settings, max_drop, |base, change| table.pair(base, change).0);
    let of_setting = |values: &[String]| keys.iter().cloned().zip(values.iter().cloned()).collect();
    for (base, change) in dominating.into_iter().enumerate() {
        let Some(change) = change else { continue };
        let key: Vec<(String, String)> = of_setting(&table.settings[base]);
        let Some(row) = rows.iter_mut().find(|row| row.key == key) else { continue };
        let by = of_setting(&table.settings[change]);
        row.dominated = Some(Domination { by, less: table.pair(base, change).1, max_drop });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::plan::PlannedRun;
    use crate::formats::result_line::ResultLine;
    use crate::scores::score_table::score_rows;
    use crate::scores::score_table::tests::{completed, run, scored};

    /// Runs of each model on so many inputs, with what they cost.
    fn lines(models: &[(&str, Option<f64>, u64)], inputs: usize) -> Vec<(PlannedRun, ResultLine)> {
        let of_model = |&(model, usd, tokens): &(&str, Option<f64>, u64)| {
            let runs = (0..inputs).map(move |input| {
                let run = run(model, &format!("i{input}"), 1);
                let mut line = completed(&run);
                line.cost_usd = usd;
                line.usage.input_tokens = tokens;
                (run, line)
            });
            runs.collect::<Vec<_>>()
        };
        models.iter().flat_map(of_model).collect()
    }

    /// By which row each row is dominated, and what it has less of.
    fn marks(lines: &[(PlannedRun, ResultLine)], key: &str) -> Vec<Option<(String, CostMeasure)>> {
        let runs: Vec<ScoredRun<'_>> = lines
            .iter()
            .map(|(run, line)| ScoredRun { line: Some(line), ..scored(run, 1.0) })
            .collect();
        let keys = [key.to_owned()];
        let mut rows = score_rows(&runs, &keys, 0);
        mark_dominated(&mut rows, &runs, &keys, None);
        let mark = |row: ScoreRow| row.dominated.map(|it| (it.by[0].1.clone(), it.less));
        rows.into_iter().map(mark).collect()
    }

    #[test]
    fn c_34_30_costs_decide_and_tokens_where_a_cost_is_not_known() {
        let cheap = |less| Some(("cheap".to_owned(), less));
        let known = lines(&[("good", Some(0.5), 10), ("cheap", Some(0.1), 90)], 60);
        assert_eq!(marks(&known, "model"), [cheap(CostMeasure::Usd), None]);
        let unknown = lines(&[("good", None, 200), ("cheap", Some(0.1), 90)], 60);
        assert_eq!(marks(&unknown, "model"), [cheap(CostMeasure::Tokens), None]);
        let few = lines(&[("good", Some(0.5), 10), ("cheap", Some(0.1), 90)], 19);
        assert_eq!(marks(&few, "model"), [None, None]);
        assert_eq!(marks(&known[..5], "input"), [None, None, None, None, None]);
    }

    #[test]
    fn lines_have_each_input_once_before_any_again() {
        let mut runs: Vec<PlannedRun> = (0..8)
            .flat_map(|index| {
                ["a", "b"].map(|model| run(model, &format!("i{}", index % 4), 1 + index / 4))
            })
            .collect();
        runs.retain(|run| &*run.model != "b" || &*run.input != "i2");
        let mut runs: Vec<ScoredRun<'_>> = runs.iter().map(|run| scored(run, 1.0)).collect();
        let inputs = |runs: &[ScoredRun<'_>]| {
            let table = SettingTable::new(runs, &["model".to_owned()]);
            let names = table.lines.iter().map(|line| {
                let names = line.runs.iter().flatten().map(|scored| scored.run.input.to_string());
                names.collect::<Vec<_>>()
            });
            names.collect::<Vec<_>>()
        };
        let expected = inputs(&runs);
        assert_eq!(expected.len(), 8);
        assert_eq!(expected[..4], expected[4..]);
        assert_eq!(expected.iter().filter(|names| names.len() == 1).count(), 2);
        runs.reverse();
        assert_eq!(inputs(&runs), expected);
    }
}
