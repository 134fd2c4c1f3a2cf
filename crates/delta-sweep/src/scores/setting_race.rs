//! A race of the values of a key: which runs it needs next, and what it has stopped.
//!
//! Pure: the same result lines and grades give the same batch, so a race that was killed has the same end when it is started
//! again.

use crate::scores::score_table::{ScoreRow, ScoredRun};
use crate::scores::setting_table::SettingTable;
use delta_base::id::RunId;
use delta_statistics::sequential::race::{Race, RaceLine, RaceRun, RaceState};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// What a race has stopped, as a file of the sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaceStops {
    /// The key whose values raced.
    pub key: String,
    /// The values that were stopped.
    pub stopped: Vec<StoppedValue>,
}

/// A value that was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedValue {
    /// The value of the key.
    pub value: String,
    /// At which look, and of how many.
    pub look: [usize; 2],
    /// The value that led.
    pub leader: String,
}

/// The runs of a race, and its state.
pub struct SettingRace<'a> {
    key: &'a str,
    table: SettingTable<'a>,
    state: RaceState,
}

fn race_run(scored: Option<&ScoredRun<'_>>, is_open: &dyn Fn(&ScoredRun<'_>) -> bool) -> RaceRun {
    match scored {
        None => RaceRun::Unplanned,
        Some(scored) if is_open(scored) => RaceRun::Open,
        Some(scored) => {
            scored.score.as_ref().map_or(RaceRun::Missing, |score| RaceRun::Scored(score.score))
        }
    }
}

impl<'a> SettingRace<'a> {
    /// Races the values of `key`. A run that `is_open` counts as not ended; one that is neither open nor scored has no score.
    pub fn new(
        runs: &'a [ScoredRun<'a>],
        key: &'a str,
        is_open: &dyn Fn(&ScoredRun<'_>) -> bool,
    ) -> Self {
        let table = SettingTable::new(runs, &[key.to_owned()]);
        let lines = table.lines.iter().map(|line| RaceLine {
            cluster: line.cluster,
            runs: line.runs.iter().map(|scored| race_run(*scored, is_open)).collect(),
        });
        let lines: Vec<RaceLine> = lines.collect();
        let state = Race::new(table.settings.len(), lines.len()).state(&lines);
        Self { key, table, state }
    }

    /// The open runs that the next look needs; none if the race has ended.
    pub fn next_batch(&self, is_open: &dyn Fn(&ScoredRun<'_>) -> bool) -> HashSet<RunId> {
        let needed = self.state.needed.unwrap_or(0);
        let runs = self.table.lines[..needed].iter().flat_map(|line| self.racing_runs(&line.runs));
        runs.filter(|scored| is_open(scored)).map(|scored| scored.run.id.clone()).collect()
    }

    /// All runs of the values that are not stopped.
    pub fn all_racing_runs(&self) -> impl Iterator<Item = &'a ScoredRun<'a>> {
        self.table.lines.iter().flat_map(|line| self.racing_runs(&line.runs))
    }

    fn racing_runs(
        &self,
        runs: &[Option<&'a ScoredRun<'a>>],
    ) -> impl Iterator<Item = &'a ScoredRun<'a>> {
        let both = runs.iter().zip(&self.state.stops);
        both.filter(|(_, stop)| stop.is_none()).filter_map(|(scored, _)| *scored)
    }

    /// What is stopped.
    pub fn stops(&self) -> RaceStops {
        let name = |setting: usize| self.table.settings[setting].concat();
        let stopped = self.state.stops.iter().enumerate().filter_map(|(setting, stop)| {
            let stop = (*stop)?;
            let look = [stop.look, stop.looks];
            Some(StoppedValue { value: name(setting), look, leader: name(stop.leader) })
        });
        RaceStops { key: self.key.to_owned(), stopped: stopped.collect() }
    }
}

impl RaceStops {
    /// Marks the rows of values that were stopped, if runs of them were not started.
    pub fn mark(&self, rows: &mut [ScoreRow]) {
        for row in rows.iter_mut().filter(|row| row.missing.contains_key("not run")) {
            let value = row.key.iter().find(|(key, _)| *key == self.key).map(|(_, value)| value);
            row.stopped =
                value.and_then(|value| self.stopped.iter().find(|it| it.value == *value)).cloned();
        }
    }
}
