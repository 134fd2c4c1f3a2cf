//! The runs that a gate compares: the ones of the change, and the ones of the base that are recent enough.

use crate::formats::result_line::ResultLine;
use crate::formats::selection::run_field;
use crate::formats::sweep_file::OWN_MODEL_ID;
use crate::scores::score_table::ScoredRun;
use crate::scores::verdict::{ComparedSides, KeyValue};
use delta_base::id::RunId;
use delta_base::time::Timestamp;
use std::collections::{BTreeMap, HashSet};

/// Which runs of a sweep are the base, and which are the change.
#[derive(Debug, Default)]
pub struct GateSides {
    /// The runs of the base, perhaps with more repeats than the change.
    pub base: HashSet<RunId>,
    /// The runs of the change.
    pub here: HashSet<RunId>,
    /// The base among runs of one file that are both; none if they are the runs of other agents.
    pub value: Option<KeyValue>,
    /// How many repeats each setting has on each input.
    pub repeats: u32,
    /// How much older than the first run of the change a run of the base may be, in milliseconds.
    pub max_age_ms: u64,
}

/// The runs that a gate compares.
#[derive(Debug, Default)]
pub struct GateRuns<'a> {
    /// The runs of the change, and of the base at most as many of each input.
    pub runs: Vec<ScoredRun<'a>>,
    /// How many runs of the base are too old.
    pub old: usize,
    /// How many runs of the base another model has answered.
    pub other_model: usize,
    /// How many repeats more some input needs of the base.
    pub lacking: u32,
}

/// What base and change have in common: agent, model, parameters, input.
type SettingOnInput = (String, String, String, String);

impl GateSides {
    /// Whether a run is one of the base.
    pub fn is_base(&self, scored: &ScoredRun<'_>) -> bool {
        self.value(scored).is_some_and(|value| value == self.base())
    }

    /// The runs that are compared, of all runs of the sweep; `now_ms` is the time if the change has no run yet.
    pub fn select<'a>(&self, runs: Vec<ScoredRun<'a>>, now_ms: i64) -> GateRuns<'a> {
        let mut here = Vec::new();
        let mut base = Vec::new();
        for scored in runs {
            match self.value(&scored) {
                Some(value) if value == self.base() => base.push(scored),
                Some(_) => here.push(scored),
                None => {}
            }
        }
        // From the lines, so that the verdict is the same whenever it is computed.
        let first_here = here.iter().filter_map(|scored| ended_ms(settled(scored)?)).min();
        let oldest = first_here.unwrap_or(now_ms).saturating_sub_unsigned(self.max_age_ms);
        // An agent that names its model itself may name another one in the base.
        let comparable = here.iter().filter(|scored| &*scored.run.model != OWN_MODEL_ID);
        let answering = last_answering_models(comparable.chain(&base));
        let mut selected = GateRuns::default();
        let mut usable: BTreeMap<SettingOnInput, Vec<ScoredRun<'a>>> = BTreeMap::new();
        for scored in base {
            let of_input = usable.entry(setting_on_input(&scored)).or_default();
            let line = settled(&scored);
            if line.and_then(ended_ms).is_some_and(|end_ms| end_ms < oldest) {
                selected.old += 1;
            } else if line.is_some_and(|line| {
                answering.get(&line.model).is_some_and(|models| *models != line.answered_by)
            }) {
                selected.other_model += 1;
            } else {
                of_input.push(scored);
            }
        }
        for mut of_input in usable.into_values() {
            of_input.sort_by_key(|scored| scored.run.repeat);
            of_input.truncate(self.repeats as usize);
            let count = u32::try_from(of_input.len()).unwrap_or(self.repeats);
            selected.lacking = selected.lacking.max(self.repeats - count);
            selected.runs.append(&mut of_input);
        }
        selected.runs.append(&mut here);
        selected
    }
}

impl ComparedSides for GateSides {
    fn key(&self) -> &str {
        self.value.as_ref().map_or("", |value| &value.key)
    }

    fn base(&self) -> &str {
        self.value.as_ref().map_or("base", |value| &value.value)
    }

    fn value(&self, scored: &ScoredRun<'_>) -> Option<String> {
        let id = &scored.run.id;
        let value = match &self.value {
            Some(value) => run_field(scored.run, &value.key)?,
            None if self.base.contains(id) => "base".to_owned(),
            None => "here".to_owned(),
        };
        let planned = if value == self.base() { &self.base } else { &self.here };
        planned.contains(id).then_some(value)
    }

    /// The name in the file: both sides have it.
    fn agent(&self, scored: &ScoredRun<'_>) -> String {
        scored.run.agent.to_string()
    }
}

impl GateRuns<'_> {
    /// Lines about the runs of the base that are not used again.
    pub fn notes(&self) -> Vec<String> {
        let reasons =
            [(self.old, "older than `max_age`"), (self.other_model, "answered by another model")];
        let notes = reasons.into_iter().filter(|(count, _)| *count > 0);
        notes
            .map(|(count, why)| {
                let (runs, are) = if count == 1 { ("run", "is") } else { ("runs", "are") };
                format!("note: {count} {runs} of the base {are} {why}, and not used again")
            })
            .collect()
    }
}

fn settled<'a>(scored: &ScoredRun<'a>) -> Option<&'a ResultLine> {
    scored.line.filter(|line| line.settled)
}

fn ended_ms(line: &ResultLine) -> Option<i64> {
    Some(Timestamp::parse(&line.ended_at)?.as_millis())
}

/// The models that answered the last run with each model of the sweep.
fn last_answering_models<'a, 'b: 'a>(
    runs: impl Iterator<Item = &'a ScoredRun<'b>>,
) -> BTreeMap<String, Vec<String>> {
    let mut last: BTreeMap<String, (i64, Vec<String>)> = BTreeMap::new();
    for line in runs.filter_map(settled).filter(|line| !line.failed_outside_of_agent()) {
        let Some(end_ms) = ended_ms(line) else { continue };
        let known = last.get(&line.model).map(|(end_ms, _)| *end_ms);
        if known.is_none_or(|known| known < end_ms) {
            last.insert(line.model.clone(), (end_ms, line.answered_by.clone()));
        }
    }
    last.into_iter().map(|(model, (_, answered_by))| (model, answered_by)).collect()
}

fn setting_on_input(scored: &ScoredRun<'_>) -> SettingOnInput {
    let run = scored.run;
    let params = delta_base::json::to_json(&*run.params);
    (run.agent.to_string(), run.model.to_string(), params, run.input.to_string())
}

#[cfg(test)]
mod tests;
