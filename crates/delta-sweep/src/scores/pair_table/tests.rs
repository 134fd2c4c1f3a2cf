use super::*;
use crate::formats::plan::PlannedRun;
use crate::scores::score_table::tests::{run, scored};

#[test]
fn only_what_both_have_is_compared() {
    let mut runs = Vec::new();
    let mut scores = Vec::new();
    for input in 0..20 {
        for (model, score) in [("good", 1.0), ("bad", f64::from(u8::from(input < 6)))] {
            runs.push(run(model, &format!("i{input}"), 1));
            scores.push(score);
        }
    }
    // An input that only one of them has, and passes, changes nothing.
    runs.push(run("bad", "easy", 1));
    scores.push(1.0);
    let scored: Vec<ScoredRun<'_>> =
        runs.iter().zip(&scores).map(|(run, score)| scored(run, *score)).collect();
    let rows = compare_values(&scored, "model", 0, InputsView::Sampled).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].first.as_str(), rows[0].second.as_str()), ("good", "bad"));
    let comparison = rows[0].comparison.as_ref().unwrap();
    assert_eq!(comparison.pairs, 20);
    assert!((comparison.difference - 0.7).abs() < 1e-12);
    assert!(rows[0].shows_difference(), "{rows:?}");
    let rows = compare_values(&scored[..4], "model", 0, InputsView::Sampled).unwrap();
    assert!(!rows[0].shows_difference(), "two inputs show nothing: {rows:?}");
    assert!(compare_values(&scored, "param.none", 0, InputsView::Sampled).unwrap().is_empty());
}

#[test]
fn several_comparisons_are_adjusted() {
    let mut runs = Vec::new();
    for model in ["a", "b", "c"] {
        runs.extend((0..10).map(|input| run(model, &format!("i{input}"), 1)));
    }
    let score =
        |run: &PlannedRun| f64::from(u8::from(&*run.model == "a" || run.input.ends_with('0')));
    let scored: Vec<ScoredRun<'_>> = runs.iter().map(|run| scored(run, score(run))).collect();
    let rows = compare_values(&scored, "model", 0, InputsView::Sampled).unwrap();
    let p = |row: &PairedRow| row.comparison.as_ref().unwrap().p_value.unwrap();
    assert_eq!(rows.len(), 3);
    assert!((rows[0].adjusted_p.unwrap() - 3.0 * p(&rows[0])).abs() < 1e-12, "{rows:?}");
    assert_eq!(rows[2].adjusted_p, Some(1.0), "b and c are the same");
}

#[test]
fn c_26_3_what_is_missing_is_shown_with_both_ends() {
    let mut runs = Vec::new();
    for input in 0..4 {
        runs.push(run("a", &format!("i{input}"), 1));
        runs.push(run("b", &format!("i{input}"), 1));
    }
    // `a` passes everything that it was graded on, `b` nothing; one run of each is missing, on different inputs.
    let scored: Vec<ScoredRun<'_>> = runs
        .iter()
        .enumerate()
        .map(|(index, run)| {
            let mut scored = scored(run, f64::from(u8::from(&*run.model == "a")));
            if matches!(index, 0 | 3) {
                scored.score = Err("llm".to_owned());
            }
            scored
        })
        .collect();
    let rows = compare_values(&scored, "model", 0, InputsView::Sampled).unwrap();
    let row = &rows[0];
    assert_eq!((row.planned, row.comparison.as_ref().unwrap().pairs), (4, 2));
    assert_eq!(row.bounds, Some([0.5, 1.0]));
    let without: Vec<ScoredRun<'_>> = scored[4..].to_vec();
    assert_eq!(compare_values(&without, "model", 0, InputsView::Sampled).unwrap()[0].bounds, None);
    // Nothing to compare is not a difference of 0.
    let nothing: Vec<ScoredRun<'_>> = scored[..2].to_vec();
    let row = &compare_values(&nothing, "model", 0, InputsView::Sampled).unwrap()[0];
    assert!(row.comparison.is_none() && row.planned == 1);
    assert_eq!((row.bounds, row.to_json()["pairs"].as_u64()), (Some([0.0, 1.0]), Some(0)));
}

#[test]
fn inputs_and_too_many_values_are_not_compared() {
    let runs: Vec<PlannedRun> = (0..51).map(|model| run(&format!("m{model}"), "i", 1)).collect();
    let scored: Vec<ScoredRun<'_>> = runs.iter().map(|run| scored(run, 1.0)).collect();
    assert_eq!(
        compare_values(&scored, "input", 0, InputsView::Sampled).unwrap_err(),
        NotComparable::Pairs
    );
    assert_eq!(
        compare_values(&scored, "model", 0, InputsView::Sampled).unwrap_err(),
        NotComparable::TooMany(51)
    );
    assert_eq!(compare_values(&scored[1..], "model", 0, InputsView::Sampled).unwrap().len(), 1225);
}

#[test]
fn c_26_3_fixed_inputs_show_what_a_sample_of_three_cannot() {
    let mut runs = Vec::new();
    for input in ["count", "list", "find"] {
        for repeat in 1..=15 {
            runs.push(run("first", input, repeat));
            runs.push(run("second", input, repeat));
        }
    }
    // The first passes 7, 8 and 7 of 15, the second nothing.
    let passes = |run: &PlannedRun| {
        let most = if run.input.ends_with("list") { 8 } else { 7 };
        &*run.model == "first" && run.repeat <= most
    };
    let scores = |run: &PlannedRun| f64::from(u8::from(passes(run)));
    let scored_runs: Vec<ScoredRun<'_>> = runs.iter().map(|run| scored(run, scores(run))).collect();
    let row = |inputs| compare_values(&scored_runs, "model", 0, inputs).unwrap().remove(0);
    let fixed = row(InputsView::Fixed);
    let comparison = fixed.comparison.as_ref().unwrap();
    assert_eq!((comparison.pairs, comparison.test.name()), (3, "exact"));
    assert!((comparison.p_value.unwrap() - 2.197_012e-8).abs() < 1e-13, "{comparison:?}");
    assert!(fixed.shows_difference());
    let halves: Vec<ScoredRun<'_>> = runs.iter().map(|run| scored(run, 0.5)).collect();
    let refused = compare_values(&halves, "model", 0, InputsView::Fixed);
    assert_eq!(refused.unwrap_err(), NotComparable::OtherScores);
}
