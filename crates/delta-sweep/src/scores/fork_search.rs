//! Where a run was lost: which of its forks are asked for next, and the end of the search, from the scores of the forks that
//! there are.
//!
//! Pure, and a replay: each call starts without a fork and takes the known ones in the order in which the search asks for
//! them. So a search that was killed asks for the same forks when it is started again.

use crate::scores::score_table::RunScore;
use delta_base::id::RunId;
use delta_statistics::step::{NoStep, PointScores, Step, StepAnswer, StepSearch};
use std::collections::BTreeMap;

/// The smallest drop of the score that counts.
const LEAST_DROP: f64 = 0.25;
/// The search ends with so many scores.
pub const MOST_FORKS: usize = 120;

/// A fork of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForkKey {
    /// The last iteration that it shares with the run; 0 is the task alone.
    pub iteration: u32,
    /// The number of the fork of this iteration, from 1.
    pub repeat: u32,
}

impl ForkKey {
    /// The id of the fork: `RUN.atITERATION.REPEAT`. None if the id of the run leaves no room.
    pub fn id(self, run: &RunId) -> Option<RunId> {
        RunId::parse(&format!("{run}.at{}.{}", self.iteration, self.repeat)).ok()
    }

    /// The fork with this id, if it is one of the run.
    pub fn parse(id: &RunId, run: &RunId) -> Option<Self> {
        let rest = id.as_str().strip_prefix(run.as_str())?.strip_prefix(".at")?;
        let (iteration, repeat) = rest.split_once('.')?;
        let key = Self { iteration: iteration.parse().ok()?, repeat: repeat.parse().ok()? };
        (key.id(run)? == *id).then_some(key)
    }
}

/// The forks of one iteration that have a score.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CurvePoint {
    /// How many, and the sum of their scores.
    pub scores: PointScores,
    /// How many of them passed.
    pub passed: usize,
}

/// What the search knows.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkSearch {
    /// The forks of each iteration, from 0 to the one before the last.
    pub points: Vec<CurvePoint>,
    /// What comes next.
    pub status: SearchStatus,
}

/// Whether the search asks for forks, or has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum SearchStatus {
    /// These forks say most; at least one.
    Asks(Vec<ForkKey>),
    /// The run was lost in the iteration after this point.
    Named(Step),
    /// No iteration is named.
    NotNamed(NoStep),
}

impl ForkSearch {
    /// Searches a run of so many iterations, at least one. `known` has the forks that have ended, with their scores; a fork
    /// without a score is in no rate, and another one takes its place.
    pub fn replay(iterations: u32, known: &BTreeMap<ForkKey, Option<RunScore>>) -> Self {
        let search =
            StepSearch { least_drop: LEAST_DROP, most_runs: MOST_FORKS, may_follow_last: true };
        let mut points = vec![CurvePoint::default(); iterations as usize];
        let mut repeats = vec![0_u32; points.len()];
        loop {
            let scores: Vec<PointScores> = points.iter().map(|point| point.scores).collect();
            let (point, runs) = match search.answer(&scores) {
                StepAnswer::Next { point, runs } => (point, runs),
                StepAnswer::Named(step) => {
                    return Self { points, status: SearchStatus::Named(step) };
                }
                StepAnswer::NotNamed(reason) => {
                    return Self { points, status: SearchStatus::NotNamed(reason) };
                }
            };
            let mut keys = Vec::new();
            for _ in 0..runs {
                repeats[point] += 1;
                let iteration = u32::try_from(point).unwrap_or(u32::MAX);
                let key = ForkKey { iteration, repeat: repeats[point] };
                match known.get(&key) {
                    Some(score) => points[point].add(*score),
                    None => keys.push(key),
                }
            }
            if !keys.is_empty() {
                return Self { points, status: SearchStatus::Asks(keys) };
            }
        }
    }

    /// How many forks have a score.
    pub fn forks(&self) -> usize {
        self.points.iter().map(|point| point.scores.runs).sum()
    }
}

impl CurvePoint {
    fn add(&mut self, score: Option<RunScore>) {
        if let Some(score) = score {
            self.scores.runs += 1;
            self.scores.sum += score.score;
            self.passed += usize::from(score.pass);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Forks pass before iteration `lost` and fail from then on; each `unscored`-th one has no score.
    fn score(key: ForkKey, lost: u32, unscored: u32) -> Option<RunScore> {
        let pass = key.iteration < lost;
        let score = RunScore { score: f64::from(u8::from(pass)), pass };
        (!(key.iteration + key.repeat).is_multiple_of(unscored)).then_some(score)
    }

    /// Gives the search what it asks for, `at_once` forks at a time; returns the forks in their order, and the end.
    fn finish(
        iterations: u32,
        lost: u32,
        unscored: u32,
        at_once: usize,
    ) -> (Vec<ForkKey>, ForkSearch) {
        let mut known = BTreeMap::new();
        let mut paid = Vec::new();
        loop {
            let search = ForkSearch::replay(iterations, &known);
            let SearchStatus::Asks(keys) = &search.status else { return (paid, search) };
            for key in keys.iter().take(at_once) {
                paid.push(*key);
                assert_eq!(known.insert(*key, score(*key, lost, unscored)), None, "paid twice");
            }
        }
    }

    proptest! {
        /// A search that is killed after each fork pays for the same forks and has the same end.
        #[test]
        fn a_search_that_is_interrupted_is_the_same(
            iterations in 1..40_u32,
            lost in 1..40_u32,
            unscored in 2..50_u32,
            at_once in 1..4_usize,
        ) {
            let (mut paid, end) = finish(iterations, lost, unscored, usize::MAX);
            let (mut paid_singly, same_end) = finish(iterations, lost, unscored, at_once);
            paid.sort();
            paid_singly.sort();
            prop_assert_eq!(paid, paid_singly);
            prop_assert_eq!(&end, &same_end);
            prop_assert!(end.forks() <= MOST_FORKS);
            match end.status {
                SearchStatus::Named(step) => {
                    prop_assert_eq!(step.after_point + 1, lost as usize);
                }
                status => {
                    prop_assert!(lost >= iterations);
                    prop_assert_eq!(status, SearchStatus::NotNamed(NoStep::AfterLast));
                }
            }
        }
    }

    #[test]
    fn a_fork_is_known_by_its_id() {
        let run = RunId::parse("web.3f9a2c1b7d4e5a60").unwrap();
        let key = ForkKey { iteration: 7, repeat: 12 };
        let id = key.id(&run).unwrap();
        assert_eq!(id.as_str(), "web.3f9a2c1b7d4e5a60.at7.12");
        assert_eq!(ForkKey::parse(&id, &run), Some(key));
        for other in ["web.3f9a2c1b7d4e5a60", "web.3f9a2c1b7d4e5a60.at07.1", "other.at7.1"] {
            assert_eq!(ForkKey::parse(&RunId::parse(other).unwrap(), &run), None, "{other}");
        }
    }
}
