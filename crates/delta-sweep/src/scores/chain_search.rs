//! Where between two revisions the score drops: which runs of a chain of agents are next, and the end of the search.
//!
//! Pure: see [`StepSearch::replay`].

use crate::formats::canonical_json::content_hash;
use crate::formats::plan::PlannedRun;
use crate::scores::fork_search::draw_of;
use crate::scores::score_table::ScoredRun;
use crate::scores::verdict::JudgedPair;
use delta_base::id::RunId;
use delta_statistics::sequential::Verdict;
use delta_statistics::step::{Draw, PointScores, SearchedPoints, StepSearch};
use std::collections::{BTreeMap, HashSet};

/// So many runs of a point are asked for at once.
const BATCH: usize = 4;
/// A point without any score after so many runs gets none.
const MOST_UNSCORED: usize = 8;

/// What a search asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainKey {
    /// The runs of the point with this index, as planned ones.
    Plan(usize),
    /// A planned run.
    Run(RunId),
}

/// What a search of a chain knows.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchedChain {
    /// The points and what comes next.
    pub search: SearchedPoints<ChainKey>,
    /// The runs that count.
    pub counted: Vec<RunId>,
}

/// The most runs of a search: as many as a bisection pays that makes all `runs_of_point` at both ends and at each point that it
/// tries.
pub fn most_runs(points: usize, runs_of_point: usize) -> usize {
    let steps = usize::BITS - points.saturating_sub(2).leading_zeros();
    runs_of_point * (steps as usize + 2)
}

/// The verdict of both ends that is searched: a FAIL, the one with the largest drop of several.
pub fn searched_verdict(judged: &[JudgedPair]) -> Option<&JudgedPair> {
    let failed = judged.iter().filter(|pair| pair.decision.verdict == Verdict::Fail);
    let difference =
        |pair: &JudgedPair| pair.decision.figures.map_or(0.0, |figures| figures.difference);
    failed.min_by(|left, right| difference(left).total_cmp(&difference(right)))
}

/// Searches a chain of points, each with the ids of its runs, planned or not; at least two.
///
/// `ends` has the verdict of the first and the last point, whose runs count first, and which choose agent, model and parameters.
/// `runs` has the planned runs of all points; `is_open` is about the ones that may still get a score.
pub fn search_chain(
    points: &[&HashSet<RunId>],
    ends: &JudgedPair,
    runs: &[ScoredRun<'_>],
    max_drop: f64,
    is_open: &dyn Fn(&ScoredRun<'_>) -> bool,
) -> SearchedChain {
    let by_id: BTreeMap<&RunId, &ScoredRun<'_>> =
        runs.iter().map(|scored| (&scored.run.id, scored)).collect();
    let mut counted: Vec<RunId> = Vec::new();
    let mut scores = vec![PointScores::default(); points.len()];
    let of_ends: HashSet<&RunId> = ends.runs.iter().collect();
    for scored in ends.runs.iter().filter_map(|id| by_id.get(id)) {
        // More repeats of the first point, in place of old runs, are not among the planned ones of the last.
        let point =
            if points[points.len() - 1].contains(&scored.run.id) { points.len() - 1 } else { 0 };
        if let Ok(score) = &scored.score {
            scores[point].add(score.score, score.pass);
            counted.push(scored.run.id.clone());
        }
    }
    let setting = |run: &PlannedRun| (run.agent.clone(), run.model.clone(), run.params.clone());
    let searched = of_ends.iter().find_map(|id| by_id.get(*id)).map(|scored| setting(scored.run));
    let mut queues: Vec<Vec<&ScoredRun<'_>>> = points
        .iter()
        .map(|ids| {
            let planned = ids.iter().filter_map(|id| by_id.get(id).copied());
            let of_setting = planned.filter(|scored| {
                searched.as_ref() == Some(&setting(scored.run)) && !of_ends.contains(&scored.run.id)
            });
            let mut queue: Vec<&ScoredRun<'_>> = of_setting.collect();
            // Another order of the inputs at each point: beginning with the same ones everywhere, the search would see a few inputs only.
            queue.sort_by_cached_key(|scored| {
                let run = scored.run;
                (run.repeat, content_hash(run.id.as_str().as_bytes()))
            });
            queue.reverse();
            queue
        })
        .collect();
    let of_last = points[points.len() - 1].iter().filter_map(|id| by_id.get(id));
    let runs_of_point =
        of_last.filter(|scored| searched.as_ref() == Some(&setting(scored.run))).count();
    let search = StepSearch {
        least_drop: max_drop,
        most_runs: most_runs(points.len(), runs_of_point),
        may_follow_last: false,
        batch: BATCH,
    };
    let mut unscored = vec![0; points.len()];
    let mut scored_runs: Vec<usize> = scores.iter().map(|point| point.runs).collect();
    let search = search.replay(scores, |point| {
        if !points[point].iter().any(|id| by_id.contains_key(id)) {
            return Some(Draw::Open(ChainKey::Plan(point)));
        }
        if scored_runs[point] == 0 && unscored[point] == MOST_UNSCORED {
            return None;
        }
        let scored = queues[point].pop()?;
        if is_open(scored) {
            return Some(Draw::Open(ChainKey::Run(scored.run.id.clone())));
        }
        let score = scored.score.as_ref().ok().copied();
        if score.is_some() {
            scored_runs[point] += 1;
            counted.push(scored.run.id.clone());
        } else {
            unscored[point] += 1;
        }
        Some(draw_of(score))
    });
    SearchedChain { search, counted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores::score_table::tests::{run, scored};
    use crate::scores::verdict::{KeyValue, judge};
    use delta_statistics::step::SearchStatus;

    /// The runs of a point, a model of the helpers, on so many inputs.
    fn runs_of(point: &str, inputs: usize) -> Vec<PlannedRun> {
        let runs = (0..inputs)
            .map(|input| PlannedRun { model: "m".into(), ..run(point, &format!("i{input}"), 1) });
        runs.collect()
    }

    #[test]
    fn points_are_planned_when_they_are_asked_for_and_begin_with_other_inputs() {
        let inputs = 20;
        let points = ["p0", "p1", "p2", "p3", "p4"].map(|point| runs_of(point, inputs));
        let ids = points
            .each_ref()
            .map(|runs| runs.iter().map(|run| run.id.clone()).collect::<HashSet<RunId>>());
        let ids: Vec<&HashSet<RunId>> = ids.iter().collect();
        // The verdict of the ends needs a key by which they differ.
        let ends = ["p0", "p4"]
            .map(|point| (0..inputs).map(move |input| run(point, &format!("i{input}"), 1)));
        let ends: Vec<PlannedRun> = ends.into_iter().flatten().collect();
        let score = |run: &PlannedRun| f64::from(u8::from(!run.id.as_str().contains("-p4")));
        let scored_ends: Vec<ScoredRun<'_>> =
            ends.iter().map(|run| scored(run, score(run))).collect();
        let base = KeyValue { key: "model".to_owned(), value: "p0".to_owned() };
        let mut judged = judge(&scored_ends, &base, 0.5).unwrap();
        judged[0].runs = ends.iter().map(|run| run.id.clone()).collect();
        let failed = searched_verdict(&judged).expect("a FAIL");
        let with_lines = |planned: &[&Vec<PlannedRun>], is_open: bool| {
            let runs: Vec<ScoredRun<'_>> =
                planned.iter().copied().flatten().map(|run| scored(run, score(run))).collect();
            let is_open = |scored: &ScoredRun<'_>| {
                is_open
                    && !scored.run.id.as_str().contains("-p0")
                    && !scored.run.id.as_str().contains("-p4")
            };
            search_chain(&ids, failed, &runs, 0.5, &is_open)
        };
        let first = with_lines(&[&points[0], &points[4]], true);
        assert_eq!(first.search.runs(), 40);
        let SearchStatus::Asks(keys) = first.search.status else { panic!("{first:?}") };
        let ChainKey::Plan(point) = keys[0] else { panic!("{keys:?}") };
        assert!((1..4).contains(&point), "{point}");
        let next = with_lines(&[&points[0], &points[4], &points[point]], true);
        let SearchStatus::Asks(keys) = next.search.status else { panic!("{next:?}") };
        let inputs: Vec<&RunId> = keys
            .iter()
            .map(|key| match key {
                ChainKey::Run(id) => id,
                ChainKey::Plan(point) => panic!("{point} is planned"),
            })
            .collect();
        assert_eq!(inputs.len(), BATCH);
        let in_order = ["i0-", "i1-", "i2-", "i3-"]
            .map(|input| inputs.iter().any(|id| id.as_str().starts_with(input)));
        assert_ne!(in_order, [true; 4], "{inputs:?}");
        // Only the last point is worse.
        let all: Vec<&Vec<PlannedRun>> = points.iter().collect();
        let end = with_lines(&all, false);
        assert!(
            matches!(end.search.status, SearchStatus::Named(step) if step.after_point == 3),
            "{end:?}"
        );
        assert_eq!(end.counted.len(), end.search.runs());
    }

    #[test]
    fn a_search_costs_at_most_what_a_bisection_with_all_runs_does() {
        let costs = [(2, 2), (3, 3), (4, 4), (5, 4), (6, 5), (65, 8)];
        for (points, times) in costs {
            assert_eq!(most_runs(points, 100), times * 100, "{points} points");
        }
    }
}
