use super::*;
use crate::formats::plan::PlannedRun;
use crate::scores::score_table::tests::{completed, run, scored};

/// The line of a run that ended on a day of a month, and was answered by a model.
fn line(run: &PlannedRun, day: u32, model: &str) -> ResultLine {
    let mut line = completed(run);
    line.ended_at = format!("2026-01-{day:02}T00:00:00.000Z");
    line.answered_by = vec![model.to_owned()];
    line
}

#[test]
fn c_34_10_runs_of_the_base_that_are_old_or_of_another_model_are_counted_and_replaced() {
    // An agent that names its model itself may name another one in the base: its runs are compared with each other.
    for (model, answering, other_model) in [("m", "x-2", 1), (OWN_MODEL_ID, "x-1", 0)] {
        let inputs = ["i0", "i1", "i2"];
        let base: Vec<PlannedRun> =
            inputs.iter().flat_map(|input| [run(model, input, 1), run(model, input, 2)]).collect();
        let here: Vec<PlannedRun> = inputs
            .iter()
            .map(|input| PlannedRun {
                id: RunId::parse(&format!("here-{input}.00")).unwrap(),
                ..run(model, input, 1)
            })
            .collect();
        // The second repeats of the base have not run.
        let lines =
            [line(&base[0], 1, "x-2"), line(&base[2], 20, "x-1"), line(&base[4], 19, answering)];
        let here_lines: Vec<ResultLine> = here.iter().map(|run| line(run, 21, "x-2")).collect();
        let with_line = |run, line| ScoredRun { line: Some(line), ..scored(run, 1.0) };
        let select = |repeats: u32| {
            let ids = |runs: &[PlannedRun]| runs.iter().map(|run| run.id.clone()).collect();
            let planned: Vec<PlannedRun> =
                base.iter().filter(|run| run.repeat <= repeats).cloned().collect();
            let sides = GateSides {
                base: ids(&planned),
                here: ids(&here),
                value: None,
                repeats: 1,
                max_age_ms: 14 * 86_400_000,
            };
            let firsts = base.iter().step_by(2).zip(&lines);
            let mut runs: Vec<ScoredRun<'_>> =
                firsts.map(|(run, line)| with_line(run, line)).collect();
            runs.extend(base.iter().skip(1).step_by(2).map(|run| scored(run, 1.0)));
            runs.extend(here.iter().zip(&here_lines).map(|(run, line)| with_line(run, line)));
            let selected = sides.select(runs, 0);
            assert_eq!((selected.old, selected.other_model), (1, other_model), "{model}");
            (selected.lacking, selected.runs.len(), selected.notes().len())
        };
        let notes = 1 + other_model;
        assert_eq!(select(1), (1, 6 - notes, notes), "{model}");
        assert_eq!(select(2), (0, 6, notes), "{model}");
    }
}
