//! Whether a change has worse scores than its base: a verdict for each setting that both have.

use crate::formats::canonical_json::content_hash;
use crate::scores::score_table::{ScoredRun, cluster};
use delta_base::id::RunId;
use delta_statistics::sequential::{
    Decision, FAIL_LEVEL, PASS_LEVEL, Pair, Rule, SequentialTests, Verdict,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A key of runs with one of its values, such as `model=old`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key, as for `--only`.
    pub key: String,
    /// The value.
    pub value: String,
}

impl KeyValue {
    /// Parses `KEY=VALUE`.
    ///
    /// # Errors
    /// One of both is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                Ok(Self { key: key.to_owned(), value: value.to_owned() })
            }
            _ => Err("expected KEY=VALUE, such as model=old".to_owned()),
        }
    }
}

/// What is compared with what.
pub trait ComparedSides {
    /// The key whose values are compared; what the runs have in common is everything else.
    fn key(&self) -> &str;
    /// The value that is the base.
    fn base(&self) -> &str;
    /// The value of a run; none if it is not compared.
    fn value(&self, scored: &ScoredRun<'_>) -> Option<String>;
    /// The name of the agent of a run.
    fn agent(&self, scored: &ScoredRun<'_>) -> String {
        scored.agent.clone()
    }
}

impl ComparedSides for KeyValue {
    fn key(&self) -> &str {
        &self.key
    }

    fn base(&self) -> &str {
        &self.value
    }

    fn value(&self, scored: &ScoredRun<'_>) -> Option<String> {
        scored.field(&self.key)
    }
}

/// Base and change on the same inputs, and the verdict.
#[derive(Debug, Clone)]
pub struct JudgedPair {
    /// What base and change have in common, as far as the comparisons differ in it: `model=local`.
    pub setting: Vec<(String, String)>,
    /// The value of the compared key that is the base.
    pub base: String,
    /// The value that is compared with it.
    pub change: String,
    /// How many inputs both are planned on.
    pub inputs: usize,
    /// The most pairs that an input has.
    pub repeats: usize,
    /// The runs up to the look that decided, as far as they have a result.
    pub runs: Vec<RunId>,
    /// The verdict with its figures.
    pub decision: Decision,
    /// Whether it has the levels of the first plan of a single comparison.
    pub has_default_levels: bool,
    /// Why runs of the pairs have no score, with their numbers.
    pub missing: BTreeMap<String, u64>,
    /// USD of the runs of the pairs; none if no cost is known.
    pub cost_usd: Option<f64>,
    /// Inputs of which some runs of the base passed and some did not.
    pub flaky: Vec<FlakyInput>,
}

/// An input whose runs of the base disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlakyInput {
    /// The id of the input.
    pub id: String,
    /// How many runs of the base passed.
    pub passed: u64,
    /// Of so many.
    pub of: u64,
}

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoVerdict {
    /// No run of the base has a score; the reasons.
    #[error("no base run has a score; {0}")]
    NoBaseScore(String),
    /// No two runs differ in the key alone.
    #[error("no input has runs of `{key}` {base} and of another value that are otherwise the same")]
    NoPairs {
        /// The compared key.
        key: String,
        /// The base.
        base: String,
    },
}

/// The worst verdict of all.
pub fn worst_verdict(judged: &[JudgedPair]) -> Verdict {
    judged.iter().map(|pair| pair.decision.verdict).max().unwrap_or(Verdict::Inconclusive)
}

/// Compares each value with the base, in each setting that has both.
///
/// # Errors
/// There is nothing to compare, or a base has no score.
pub fn judge(
    runs: &[ScoredRun<'_>],
    sides: &dyn ComparedSides,
    max_drop: f64,
) -> Result<Vec<JudgedPair>, NoVerdict> {
    let base = sides.base();
    let comparisons = comparisons(runs, sides);
    if comparisons.is_empty() {
        return Err(NoVerdict::NoPairs { key: sides.key().to_owned(), base: base.to_owned() });
    }
    let rule = shared_rule(&comparisons, max_drop);
    let settings: Vec<&Setting> =
        comparisons.iter().map(|comparison| &comparison.setting).collect();
    let differing: BTreeSet<String> = settings
        .iter()
        .flat_map(|setting| setting.iter())
        .filter(|(name, value)| settings.iter().any(|other| other.get(*name) != Some(*value)))
        .map(|(name, _)| name.clone())
        .collect();
    let judged = comparisons.iter().map(|comparison| {
        let mut judged = comparison.judge(base, rule)?;
        judged.setting.retain(|(name, _)| differing.contains(name));
        Ok(judged)
    });
    judged.collect()
}

/// The open runs that the next looks need. Empty if all verdicts are reached, or no look is left.
pub fn open_runs(
    runs: &[ScoredRun<'_>],
    sides: &dyn ComparedSides,
    max_drop: f64,
    is_open: &dyn Fn(&ScoredRun<'_>) -> bool,
) -> HashSet<RunId> {
    let comparisons = comparisons(runs, sides);
    let rule = shared_rule(&comparisons, max_drop);
    let mut open = HashSet::new();
    for comparison in &comparisons {
        let first_open =
            comparison.pairs.iter().position(|pair| pair.runs().into_iter().any(is_open));
        let complete = first_open.unwrap_or(comparison.pairs.len());
        let tests = SequentialTests::new(rule, &comparison.plans);
        let needed = tests.next_look(&comparison.scored_pairs(), complete).unwrap_or(0);
        let runs = comparison.pairs[..needed].iter().flat_map(RunPair::runs);
        open.extend(runs.filter(|scored| is_open(scored)).map(|scored| scored.run.id.clone()));
    }
    open
}

/// The levels are shared by all verdicts.
fn shared_rule(comparisons: &[SettingComparison<'_>], max_drop: f64) -> Rule {
    let fail_level = FAIL_LEVEL / comparisons.len().max(1) as f64;
    Rule { max_drop, fail_level, pass_level: PASS_LEVEL }
}

/// The keys that base and change have in common, without the input.
type Setting = BTreeMap<String, String>;

/// The runs of an input, by their plans and repeats.
type RunsByInput<'a> = BTreeMap<&'a str, Vec<&'a ScoredRun<'a>>>;

struct SettingComparison<'a> {
    setting: Setting,
    change: String,
    base_runs: Vec<&'a ScoredRun<'a>>,
    /// In the order in which they count.
    pairs: Vec<RunPair<'a>>,
    /// How many pairs were planned first, then with each plan that added repeats.
    plans: Vec<usize>,
}

#[derive(Clone, Copy)]
struct RunPair<'a> {
    base: &'a ScoredRun<'a>,
    change: &'a ScoredRun<'a>,
    /// Which pair of its input it is.
    round: usize,
}

fn comparisons<'a>(
    runs: &'a [ScoredRun<'a>],
    sides: &dyn ComparedSides,
) -> Vec<SettingComparison<'a>> {
    let mut settings: BTreeMap<Setting, BTreeMap<String, RunsByInput<'a>>> = BTreeMap::new();
    for scored in runs {
        let Some(value) = sides.value(scored) else { continue };
        let by_value = settings.entry(setting(scored, sides)).or_default();
        by_value.entry(value).or_default().entry(&scored.run.input).or_default().push(scored);
    }
    let mut comparisons = Vec::new();
    for (setting, by_value) in settings {
        let Some(base_runs) = by_value.get(sides.base()) else { continue };
        for (change, change_runs) in by_value.iter().filter(|(value, _)| *value != sides.base()) {
            let (pairs, plans) = pair_runs(base_runs, change_runs);
            if !pairs.is_empty() {
                comparisons.push(SettingComparison {
                    setting: setting.clone(),
                    change: change.clone(),
                    base_runs: base_runs.values().flatten().copied().collect(),
                    pairs,
                    plans,
                });
            }
        }
    }
    comparisons
}

fn setting(scored: &ScoredRun<'_>, sides: &dyn ComparedSides) -> Setting {
    let params = scored.run.params.keys().map(|name| format!("param.{name}"));
    let keys = ["agent", "model"].map(str::to_owned).into_iter().chain(params);
    let values = keys.filter(|key| key != sides.key()).filter_map(|key| {
        let value = match key.as_str() {
            "agent" => sides.agent(scored),
            key => scored.field(key)?,
        };
        Some((key, value))
    });
    values.collect()
}

/// The pairs in the order in which they count, and how many there were with each plan.
///
/// Every input comes once, in the order of the hashes of the ids, then again: an order in which difficulty or speed had a
/// part would make early looks about other inputs.
/// The first plan that has pairs of all inputs begins. More inputs later are another question.
fn pair_runs<'a>(
    base: &RunsByInput<'a>,
    change: &RunsByInput<'a>,
) -> (Vec<RunPair<'a>>, Vec<usize>) {
    let in_order = |runs: &[&'a ScoredRun<'a>]| {
        let mut runs = runs.to_vec();
        runs.sort_by_key(|scored| (scored.run.plan, scored.run.repeat));
        runs
    };
    let mut pairs: Vec<RunPair<'a>> = Vec::new();
    for (input, base_runs) in base {
        let Some(change_runs) = change.get(input) else { continue };
        let both = in_order(base_runs).into_iter().zip(in_order(change_runs));
        pairs.extend(both.enumerate().map(|(round, (base, change))| RunPair {
            base,
            change,
            round,
        }));
    }
    let begin = pairs.iter().filter(|pair| pair.round == 0).map(RunPair::plan).max();
    let begin = begin.unwrap_or_default();
    let counts_from = |pair: &RunPair<'_>| pair.plan().max(begin);
    pairs.sort_by_cached_key(|pair| {
        let input = &pair.base.run.input;
        (counts_from(pair), pair.round, content_hash(input.as_bytes()), input.to_string())
    });
    let of_plan = pairs.chunk_by(|left, right| counts_from(left) == counts_from(right));
    let plans = of_plan.scan(0, |planned, pairs| {
        *planned += pairs.len();
        Some(*planned)
    });
    let plans = plans.collect();
    (pairs, plans)
}

impl RunPair<'_> {
    /// The first plan that has both runs.
    fn plan(&self) -> usize {
        self.base.run.plan.max(self.change.run.plan)
    }

    fn runs(&self) -> [&ScoredRun<'_>; 2] {
        [self.base, self.change]
    }
}

impl SettingComparison<'_> {
    /// The pairs as the test has them.
    fn scored_pairs(&self) -> Vec<Pair> {
        let mut clusters: BTreeMap<&str, usize> = BTreeMap::new();
        let mut pairs = Vec::new();
        for pair in &self.pairs {
            let next = clusters.len();
            let cluster = *clusters.entry(cluster(pair.base.run)).or_insert(next);
            let [base, change] =
                pair.runs().map(|scored| scored.score.as_ref().ok().map(|score| score.score));
            pairs.push(Pair { cluster, base, change });
        }
        pairs
    }

    fn judge(&self, base: &str, rule: Rule) -> Result<JudgedPair, NoVerdict> {
        let no_score = || NoVerdict::NoBaseScore(no_score_text(&self.base_runs));
        if self.base_runs.iter().all(|scored| scored.score.is_err()) {
            return Err(no_score());
        }
        let tests = SequentialTests::new(rule, &self.plans);
        let decision = tests.decide(&self.scored_pairs()).ok_or_else(no_score)?;
        let counted = &self.pairs[..decision.used + decision.missing];
        let costs = counted.iter().flat_map(RunPair::runs);
        let costs: Vec<f64> =
            costs.filter_map(|scored| scored.line.and_then(|line| line.cost_usd)).collect();
        Ok(JudgedPair {
            setting: self.setting.clone().into_iter().collect(),
            base: base.to_owned(),
            change: self.change.clone(),
            inputs: self
                .pairs
                .iter()
                .map(|pair| &pair.base.run.input)
                .collect::<BTreeSet<_>>()
                .len(),
            repeats: self.pairs.iter().map(|pair| pair.round + 1).max().unwrap_or(0),
            runs: counted
                .iter()
                .flat_map(RunPair::runs)
                .filter(|scored| scored.line.is_some())
                .map(|scored| scored.run.id.clone())
                .collect(),
            has_default_levels: decision.rule.pass_level == PASS_LEVEL
                && decision.rule.fail_level == FAIL_LEVEL,
            missing: missing_reasons(counted.iter().flat_map(RunPair::runs)),
            cost_usd: (!costs.is_empty()).then(|| costs.iter().sum()),
            flaky: flaky_inputs(counted),
            decision,
        })
    }
}

fn missing_reasons<'a>(runs: impl Iterator<Item = &'a ScoredRun<'a>>) -> BTreeMap<String, u64> {
    let mut reasons = BTreeMap::new();
    for why in runs.filter_map(|scored| scored.score.as_ref().err()) {
        *reasons.entry(why.clone()).or_default() += 1;
    }
    reasons
}

/// `12 failed with llm: 429, 3 not run`: why runs have no score, with the first message of each kind of error.
fn no_score_text(runs: &[&ScoredRun<'_>]) -> String {
    let mut messages: BTreeMap<&str, &str> = BTreeMap::new();
    for scored in runs {
        if let Some(error) = scored.line.and_then(|line| line.error.as_ref()) {
            messages.entry(&error.kind).or_insert(&error.message);
        }
    }
    let mut reasons = missing_reasons(runs.iter().copied());
    // Why runs that ended have none says more than how many were not reached.
    if reasons.len() > 1 {
        reasons.remove("not run");
    }
    let reasons = reasons.into_iter().map(|(why, count)| {
        match messages.get(why.as_str()).and_then(|message| message.lines().next()) {
            Some(message) => format!("{count} failed with {why}: {message}"),
            None => format!("{count} {why}"),
        }
    });
    reasons.collect::<Vec<_>>().join(", ")
}

fn flaky_inputs(pairs: &[RunPair<'_>]) -> Vec<FlakyInput> {
    let mut inputs: BTreeMap<&str, FlakyInput> = BTreeMap::new();
    for base in pairs.iter().map(|pair| pair.base) {
        let Ok(score) = &base.score else { continue };
        let id = base.run.input.to_string();
        let input = inputs.entry(&base.run.input).or_insert(FlakyInput { id, passed: 0, of: 0 });
        input.of += 1;
        input.passed += u64::from(score.pass);
    }
    inputs.into_values().filter(|input| (1..input.of).contains(&input.passed)).collect()
}

#[cfg(test)]
mod tests;
