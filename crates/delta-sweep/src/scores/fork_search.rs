//! Where a run was lost: which of its forks are asked for next, and the end of the search, from the scores of the forks that
//! there are.
//!
//! Pure: see [`StepSearch::replay`].

use crate::scores::score_table::RunScore;
use delta_base::id::RunId;
use delta_statistics::step::{Draw, PointScores, SearchedPoints, StepSearch};
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

/// Searches a run of so many iterations, at least one: the points are the forks of each iteration, from 0 to the one before the
/// last. `known` has the forks that have ended, with their scores; a fork without a score is in no rate, and another one takes
/// its place.
pub fn search_forks(
    iterations: u32,
    known: &BTreeMap<ForkKey, Option<RunScore>>,
) -> SearchedPoints<ForkKey> {
    let search = StepSearch {
        least_drop: LEAST_DROP,
        most_runs: MOST_FORKS,
        may_follow_last: true,
        batch: 1,
    };
    let points = vec![PointScores::default(); iterations as usize];
    let mut repeats = vec![0; points.len()];
    search.replay(points, |point| {
        repeats[point] += 1;
        let iteration = u32::try_from(point).unwrap_or(u32::MAX);
        let key = ForkKey { iteration, repeat: repeats[point] };
        Some(known.get(&key).map_or(Draw::Open(key), |score| draw_of(*score)))
    })
}

/// A run that has ended, as a search takes it.
pub fn draw_of<K>(score: Option<RunScore>) -> Draw<K> {
    score.map_or(Draw::Missing, |RunScore { score, pass }| Draw::Scored { score, pass })
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_statistics::step::{NoStep, SearchStatus};
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
    ) -> (Vec<ForkKey>, SearchedPoints<ForkKey>) {
        let mut known = BTreeMap::new();
        let mut paid = Vec::new();
        loop {
            let search = search_forks(iterations, &known);
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
            prop_assert!(end.runs() <= MOST_FORKS);
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
