//! Two agents, models or parameters on the same inputs.
//!
//! Runs are paired by what they have in common. A pair in which one has no score is left out; the row then
//! says how many pairs it rests on, and between which ends the difference would be with any scores of the missing runs.

use crate::scores::score_table::{ScoredRun, cluster};
use delta_statistics::comparison::{Comparison, compare, compare_fixed, holm, shows_difference};
use delta_statistics::estimate::Interval;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// The most values of a key that are compared with each other: 1225 comparisons.
const MAX_COMPARED_VALUES: usize = 50;

/// Two values of a key on the same inputs.
#[derive(Debug, Clone)]
pub struct PairedRow {
    /// The first value.
    pub first: String,
    /// The second.
    pub second: String,
    /// How many inputs (or groups) both are planned on.
    pub planned: usize,
    /// What their scores say; none if no input has a score of both.
    pub comparison: Option<Comparison>,
    /// The difference if every missing run of the first had a 0 and of the second a 1, and the reverse; none if none is
    /// missing.
    pub bounds: Option<[f64; 2]>,
    /// The p value, adjusted for all comparisons of the table.
    pub adjusted_p: Option<f64>,
}

impl PairedRow {
    /// Whether the comparison shows a difference.
    pub fn shows_difference(&self) -> bool {
        match (&self.comparison, self.adjusted_p) {
            (Some(comparison), Some(adjusted)) => shows_difference(comparison, adjusted),
            _ => false,
        }
    }

    /// The comparison with all of its numbers.
    pub fn to_json(&self) -> Json {
        let mut row = json!({
            "first": self.first,
            "second": self.second,
            "planned": self.planned,
            "pairs": 0,
            "shown": self.shows_difference(),
        });
        let mut set = |key: &str, value: Json| row[key] = value;
        if let Some(bounds) = self.bounds {
            set("bounds", json!(bounds));
        }
        let Some(comparison) = &self.comparison else { return row };
        let ends = |interval: Option<Interval>| json!(interval.map(|both| [both.low, both.high]));
        set("pairs", json!(comparison.pairs));
        set("difference", json!(comparison.difference));
        set("interval", ends(comparison.interval));
        set("resampled", ends(comparison.resampled));
        set("p", json!(comparison.p_value));
        set("adjusted_p", json!(self.adjusted_p));
        set("test", json!(comparison.test.name()));
        set("detectable", json!(comparison.detectable));
        row
    }
}

/// What the inputs of a comparison are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum InputsView {
    /// As a sample: the comparison applies to other inputs of the same kind too
    #[default]
    Sampled,
    /// As the complete set: the comparison applies to these inputs only, and needs scores of 0 and 1
    Fixed,
}

/// Why values of a key are not compared with each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotComparable {
    /// There are too many of them; their number.
    #[error("{0} values are too many to compare each two, at most {MAX_COMPARED_VALUES}")]
    TooMany(usize),
    /// Fixed inputs are compared by how many runs passed.
    #[error("fixed inputs need scores of 0 and 1")]
    OtherScores,
    /// Inputs are what runs are paired by.
    #[error("runs are paired by their inputs, so inputs are not compared with each other")]
    Pairs,
}

/// Compares all values of `key` with each other: only runs that are the same but for it, and have a score with both values.
///
/// # Errors
/// The values of this key are not compared.
pub fn compare_values(
    runs: &[ScoredRun<'_>],
    key: &str,
    seed: u64,
    inputs: InputsView,
) -> Result<Vec<PairedRow>, NotComparable> {
    let (values, scores) = scores_by_value(runs, key)?;
    if values.len() > MAX_COMPARED_VALUES {
        return Err(NotComparable::TooMany(values.len()));
    }
    let mut rows = Vec::new();
    for (index, first) in values.iter().enumerate() {
        for second in &values[index + 1..] {
            rows.push(compare_pair(first, second, &scores, seed, inputs)?);
        }
    }
    adjust(&mut rows);
    Ok(rows)
}

/// The values of a key in the order of the plan, and the scores of each.
fn scores_by_value(
    runs: &[ScoredRun<'_>],
    key: &str,
) -> Result<(Vec<String>, BTreeMap<String, ScoresByPair>), NotComparable> {
    if matches!(key, "input" | "group" | "id") {
        return Err(NotComparable::Pairs);
    }
    let mut values: Vec<String> = Vec::new();
    let mut scores: BTreeMap<String, ScoresByPair> = BTreeMap::new();
    for scored in runs {
        let Some(value) = scored.field(key) else { continue };
        if !scores.contains_key(&value) {
            values.push(value.clone());
        }
        let score = scored.score.as_ref().ok().map(|score| score.score);
        let of_value = scores.entry(value).or_default();
        of_value.entry(PairKey::new(scored, &[key])).or_default().push(score);
    }
    Ok((values, scores))
}

fn compare_pair(
    first: &str,
    second: &str,
    scores: &BTreeMap<String, ScoresByPair>,
    seed: u64,
    inputs: InputsView,
) -> Result<PairedRow, NotComparable> {
    let none = ScoresByPair::new();
    let of_first = scores.get(first).unwrap_or(&none);
    let of_second = scores.get(second).unwrap_or(&none);
    let pairs = |missing_first, missing_second| {
        pair_scores(of_first, of_second, missing_first, missing_second)
    };
    let if_missing = |missing_first: f64, missing_second: f64| {
        mean_difference(&pairs(Some(missing_first), Some(missing_second)))
    };
    let is_missing = of_first
        .iter()
        .filter_map(|(key, scores)| Some(scores.iter().chain(of_second.get(key)?)))
        .any(|mut scores| scores.any(Option::is_none));
    let observed = pairs(None, None);
    let (planned, comparison) = match inputs {
        InputsView::Sampled => (observed.len(), compare(&observed, seed)),
        InputsView::Fixed => {
            let each = each_input(of_first, of_second);
            let comparison = compare_fixed(&each);
            let has_pair =
                each.iter().any(|(first, second)| !first.is_empty() && !second.is_empty());
            if comparison.is_none() && has_pair {
                return Err(NotComparable::OtherScores);
            }
            (each.len(), comparison)
        }
    };
    Ok(PairedRow {
        first: first.to_owned(),
        second: second.to_owned(),
        planned,
        comparison,
        bounds: is_missing.then(|| [if_missing(0.0, 1.0), if_missing(1.0, 0.0)]),
        adjusted_p: None,
    })
}

/// What two runs must have in common to be compared. Repeats are not paired: the first of one has nothing to do with the
/// first of the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PairKey {
    cluster: String,
    rest: BTreeSet<(String, String)>,
}

impl PairKey {
    /// Everything but the compared keys.
    pub(super) fn new(scored: &ScoredRun<'_>, compared: &[&str]) -> Self {
        let mut rest = BTreeSet::new();
        let params = scored.run.params.keys().map(|name| format!("param.{name}"));
        let keys = ["agent", "model", "input"].map(str::to_owned);
        for key in keys.into_iter().chain(params).filter(|key| !compared.contains(&key.as_str())) {
            if let Some(value) = scored.field(&key) {
                rest.insert((key, value));
            }
        }
        Self { cluster: cluster(scored.run).to_owned(), rest }
    }
}

/// The scores of runs, none for a run that has no score.
type ScoresByPair = BTreeMap<PairKey, Vec<Option<f64>>>;

/// The scores of both, by cluster, of the runs that both are planned with. A missing score becomes the given one; without
/// one, only runs count of which both have a score.
fn pair_scores(
    first: &ScoresByPair,
    second: &ScoresByPair,
    missing_first: Option<f64>,
    missing_second: Option<f64>,
) -> Vec<(Vec<f64>, Vec<f64>)> {
    let fill = |scores: &[Option<f64>], missing: Option<f64>| -> Vec<f64> {
        scores.iter().filter_map(|score| score.or(missing)).collect()
    };
    let mut clusters: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (key, of_first) in first {
        let Some(of_second) = second.get(key) else { continue };
        let pair = clusters.entry(&key.cluster).or_default();
        let left = fill(of_first, missing_first);
        let right = fill(of_second, missing_second);
        if !left.is_empty() && !right.is_empty() {
            pair.0.extend(left);
            pair.1.extend(right);
        }
    }
    clusters.into_values().collect()
}

/// The known scores of both, by what two runs have in common: fixed inputs of one group are still inputs of their own.
fn each_input(first: &ScoresByPair, second: &ScoresByPair) -> Vec<(Vec<f64>, Vec<f64>)> {
    let known = |scores: &[Option<f64>]| scores.iter().flatten().copied().collect::<Vec<f64>>();
    let both =
        first.iter().filter_map(|(key, scores)| Some((known(scores), known(second.get(key)?))));
    both.collect()
}

fn mean_score(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / scores.len() as f64
}

/// The mean of the differences of at least one pair of scores.
fn mean_difference(pairs: &[(Vec<f64>, Vec<f64>)]) -> f64 {
    let sum: f64 = pairs.iter().map(|(first, second)| mean_score(first) - mean_score(second)).sum();
    sum / pairs.len() as f64
}

fn adjust(rows: &mut [PairedRow]) {
    let p_values: Vec<f64> = rows
        .iter()
        .filter_map(|row| row.comparison.as_ref().and_then(|comparison| comparison.p_value))
        .collect();
    let mut adjusted = holm(&p_values).into_iter();
    for row in rows {
        if row.comparison.as_ref().is_some_and(|comparison| comparison.p_value.is_some()) {
            row.adjusted_p = adjusted.next();
        }
    }
}

#[cfg(test)]
mod tests;
