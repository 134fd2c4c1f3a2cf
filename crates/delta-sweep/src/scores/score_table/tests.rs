use super::*;
use crate::formats::grade::{Grade, GradeKey};
use delta_base::id::RunId;
use serde_json::Map;
use std::sync::Arc;

/// A run of `input` with `model`, in the group that the input begins with if it has a `/`.
pub(crate) fn run(model: &str, input: &str, repeat: u32) -> PlannedRun {
    let group = input.split_once('/').map(|(group, _)| Arc::from(group));
    let id = format!("{}-{model}-{repeat}.00", input.replace('/', "-"));
    PlannedRun {
        n: 0,
        id: RunId::parse(&id).unwrap(),
        agent: "a".into(),
        model: model.into(),
        input: input.into(),
        group,
        outside: Vec::new(),
        repeat,
        params: Arc::new(Map::new()),
        limits: Arc::default(),
        plan: 0,
    }
}

pub(crate) fn completed(run: &PlannedRun) -> ResultLine {
    let mut line = ResultLine::for_run(run, RunStatus::Completed);
    line.settled = true;
    line
}

fn failed(run: &PlannedRun, error: &str, settled: bool) -> ResultLine {
    let mut line = ResultLine::for_run(run, RunStatus::Failed);
    line.settled = settled;
    line.error = Some(crate::formats::result_line::ResultError::new(error, "it failed"));
    line
}

fn grade(run: &PlannedRun, grade: Result<Grade, String>) -> GradeLine {
    let key = GradeKey {
        id: run.id.clone(),
        grader: "g".into(),
        hash: "h".into(),
        epoch: 1,
        source: None,
    };
    GradeLine::new(&key, grade, String::new())
}

pub(crate) fn scored<'a>(run: &'a PlannedRun, score: f64) -> ScoredRun<'a> {
    let score = Ok(RunScore { score, pass: score >= 1.0 });
    ScoredRun { run, agent: run.agent.to_string(), line: None, grade: None, score }
}

fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn c_26_3_a_failure_of_the_infrastructure_is_missing_and_never_a_0() {
    let runs: Vec<PlannedRun> = (1..=8).map(|repeat| run("m", "i", repeat)).collect();
    let lines = [
        Some(completed(&runs[0])),
        Some(failed(&runs[1], "max_iterations", true)),
        Some(failed(&runs[2], "llm", true)),
        Some(failed(&runs[3], "io", false)),
        None,
        Some(ResultLine::for_run(&runs[5], RunStatus::WaitingForInput)),
        Some(completed(&runs[6])),
        Some(completed(&runs[7])),
    ];
    let passed = grade(&runs[0], Ok(Grade::passed(true, None)));
    let not_passed = grade(&runs[1], Ok(Grade::passed(false, None)));
    let broken = grade(&runs[7], Err("no disk".to_owned()));
    let grades =
        [Some(&passed), Some(&not_passed), Some(&passed), None, None, None, None, Some(&broken)];
    let scored: Vec<ScoredRun<'_>> = runs
        .iter()
        .zip(&lines)
        .zip(grades)
        .map(|((run, line), grade)| {
            ScoredRun::new(&SweepPlan::default(), run, line.as_ref(), Some(grade))
        })
        .collect();
    let rows = score_rows(&scored, &keys(&["model"]), 0);
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row.planned, row.graded), (8, 2));
    assert_eq!(row.score.unwrap().value, 0.5);
    assert_eq!(row.bounds, Some([1.0 / 8.0, 7.0 / 8.0]));
    let missing: Vec<(&str, u64)> =
        row.missing.iter().map(|(why, count)| (why.as_str(), *count)).collect();
    let expected =
        ["io", "llm", "not graded", "not run", "ungraded", "waiting"].map(|why| (why, 1));
    assert_eq!(missing, expected);
    // Without a grader, the status is the score.
    let plan = SweepPlan::default();
    let ungraded =
        lines.iter().zip(&runs).map(|(line, run)| ScoredRun::new(&plan, run, line.as_ref(), None));
    let scores: Vec<Option<f64>> =
        ungraded.map(|scored| scored.score.ok().map(|score| score.score)).collect();
    let (one, zero) = (Some(1.0), Some(0.0));
    assert_eq!(scores, [one, zero, None, None, None, None, one, one]);
}

#[test]
fn rows_follow_the_plan_and_count_each_input_as_much_as_the_others() {
    let runs = [run("b", "x", 1), run("a", "x", 1), run("b", "y", 1), run("b", "y", 2)];
    let scored: Vec<ScoredRun<'_>> =
        runs.iter().zip([1.0, 1.0, 0.0, 0.0]).map(|(run, score)| scored(run, score)).collect();
    let rows = score_rows(&scored, &keys(&["model"]), 0);
    assert_eq!(rows[0].key, [("model".to_owned(), "b".to_owned())]);
    assert_eq!(rows[0].score.unwrap().value, 0.5, "not 1/3");
    assert!(rows[0].score.unwrap().interval.is_some() && rows[0].bounds.is_none());
    assert_eq!(rows[1].key[0].1, "a");
    assert_eq!(rows[1].score.unwrap().interval, None, "one input does not show the spread");
    let pass = rows[0].pass.iter().map(|chance| (chance.k, chance.inputs, chance.any, chance.all));
    assert_eq!(pass.collect::<Vec<_>>(), [(2, 1, 0.0, 0.0)], "only y has two runs");
    let all = score_rows(&scored, &[], 0);
    assert_eq!((all.len(), all[0].planned), (1, 4));
    assert!(score_rows(&[], &keys(&["model"]), 0).is_empty());
}

#[test]
fn groups_are_the_clusters() {
    let runs = [run("m", "g/x", 1), run("m", "g/y", 1), run("m", "h/x", 1)];
    let scored: Vec<ScoredRun<'_>> =
        runs.iter().zip([1.0, 1.0, 0.0]).map(|(run, score)| scored(run, score)).collect();
    assert_eq!(score_rows(&scored, &[], 0)[0].score.unwrap().value, 0.5);
}
