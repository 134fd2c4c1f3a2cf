use super::*;
use crate::formats::plan::PlannedRun;
use crate::formats::result_line::ResultLine;
use crate::scores::score_table::tests::{completed, run, scored};
use crate::scores::verdict_text::{VerdictContext, VerdictFormat, verdict_json, verdicts_in};
use delta_statistics::sequential::Remedy;

/// So many inputs with repeats, of two models.
fn planned(inputs: usize, repeats: u32) -> Vec<PlannedRun> {
    let models = ["new", "old"];
    let inputs = (0..inputs).flat_map(|input| (1..=repeats).map(move |repeat| (input, repeat)));
    let runs = inputs
        .flat_map(|(input, repeat)| models.map(|model| run(model, &format!("i{input}"), repeat)));
    runs.collect()
}

fn old_model() -> KeyValue {
    KeyValue { key: "model".to_owned(), value: "old".to_owned() }
}

fn all_pass(runs: &[PlannedRun]) -> Vec<ScoredRun<'_>> {
    runs.iter().map(|run| scored(run, 1.0)).collect()
}

fn judge_one(runs: &[ScoredRun<'_>], max_drop: f64) -> JudgedPair {
    let mut judged = judge(runs, &old_model(), max_drop).unwrap();
    assert_eq!(judged.len(), 1);
    judged.remove(0)
}

#[test]
fn c_34_5_neither_the_order_of_the_runs_nor_that_of_their_ends_changes_a_verdict() {
    let runs = planned(60, 2);
    let mut all = all_pass(&runs);
    for scored in all.iter_mut().filter(|scored| &*scored.run.model == "new") {
        let breaks = scored.run.input.ends_with(['3', '5', '7']);
        scored.score.as_mut().unwrap().score = if breaks { 0.0 } else { 1.0 };
    }
    let expected = judge_one(&all, 0.15);
    assert!(expected.decision.used < 120, "it is decided early: {expected:?}");
    all.reverse();
    assert_eq!(judge_one(&all, 0.15).decision, expected.decision);
    all.sort_by_key(|scored| scored.run.input.ends_with(['3', '5', '7']));
    assert_eq!(judge_one(&all, 0.15).decision, expected.decision);
}

#[test]
fn c_34_5_inputs_come_by_their_hashes_and_each_once_before_any_comes_again() {
    let runs = planned(30, 2);
    let mut all = all_pass(&runs);
    all.reverse();
    let comparison = comparisons(&all, &old_model()).remove(0);
    let inputs: Vec<&str> = comparison.pairs.iter().map(|pair| &*pair.base.run.input).collect();
    let mut by_hash: Vec<&str> = inputs[..30].to_vec();
    by_hash.sort_by_key(|input| content_hash(input.as_bytes()));
    assert_eq!(by_hash, inputs[..30]);
    assert_eq!(by_hash, inputs[30..]);
    assert!(comparison.pairs.iter().all(|pair| pair.base.run.repeat == pair.change.run.repeat));
}

#[test]
fn c_34_5_a_look_waits_for_its_pairs_whatever_else_has_ended() {
    let runs = planned(60, 1);
    let all = all_pass(&runs);
    let first = comparisons(&all, &old_model())[0].pairs[0].change.run.id.clone();
    let open = open_runs(&all, &old_model(), 0.15, &|scored| scored.run.id == first);
    assert_eq!(open, HashSet::from([first]));
}

/// The runs of each model fail on the inputs whose names end so.
fn fail_on(all: &mut [ScoredRun<'_>], new: &[char], old: &[char]) {
    for scored in all {
        let failing = if &*scored.run.model == "new" { new } else { old };
        let passes = !scored.run.input.ends_with(failing);
        scored.score.as_mut().unwrap().score = f64::from(u8::from(passes));
    }
}

#[test]
fn c_34_12_an_open_verdict_names_pairs_with_their_cost_or_inputs() {
    let context = VerdictContext { grader: None, max_drop: 0.1, retry: "retry", gate: None };
    let runs = planned(30, 1);
    let lines = runs.iter().map(|run| ResultLine { cost_usd: Some(0.25), ..completed(run) });
    let lines: Vec<ResultLine> = lines.collect();
    let with_lines = all_pass(&runs).into_iter().zip(&lines);
    let mut all: Vec<ScoredRun<'_>> =
        with_lines.map(|(scored, line)| ScoredRun { line: Some(line), ..scored }).collect();
    fail_on(&mut all, &['3'], &['5']);
    let judged = judge_one(&all, 0.1);
    let more = verdict_json(&judged, context)["more"]["pairs"].as_u64().unwrap();
    let text = verdicts_in(VerdictFormat::Text, &[judged], context);
    let usd = more as f64 / 2.0;
    let repeats = (more + 30).div_ceil(30);
    let help = format!(
        "\nhelp: {more} more pairs (about ${usd:.2}) decide in 4 of 5 cases: repeats: {repeats}\n"
    );
    assert!(text.contains(&help), "{text}");
    // Half of the inputs become worse and half better, each time.
    let runs = planned(10, 4);
    let mut all = all_pass(&runs);
    fail_on(&mut all, &['0', '2', '4', '6', '8'], &['1', '3', '5', '7', '9']);
    let text = verdicts_in(VerdictFormat::Text, &[judge_one(&all, 0.1)], context);
    assert!(text.contains("\nhelp: more repeats do not decide, only more inputs can\n"), "{text}");
}

#[test]
fn c_34_13_repeats_of_a_later_plan_are_tested_at_half_the_level() {
    let mut runs = planned(30, 2);
    for run in runs.iter_mut().filter(|run| run.repeat == 2) {
        run.plan = 1;
    }
    let judged = judge_one(&all_pass(&runs), 0.09);
    assert_eq!(judged.decision.verdict, Verdict::Pass);
    assert_eq!((judged.decision.planned, judged.has_default_levels), (60, false));
    let context =
        VerdictContext { grader: None, max_drop: 0.09, retry: "delta sweep run s", gate: None };
    let text = verdicts_in(VerdictFormat::Text, &[judged], context);
    assert!(text.contains("\nlevels: FAIL 0.5 %, PASS 2.5 %\n"), "{text}");
    // More inputs are another question, at the whole level.
    for run in &mut runs {
        run.plan = usize::from(&*run.input == "i7");
    }
    assert!(judge_one(&all_pass(&runs), 0.09).has_default_levels);
}

#[test]
fn c_34_6_a_missing_score_is_no_score() {
    let runs = planned(50, 1);
    let mut all = all_pass(&runs);
    let lose = |all: &mut Vec<ScoredRun<'_>>, count: usize| {
        let new = all.iter_mut().filter(|scored| &*scored.run.model == "new");
        new.take(count).for_each(|scored| scored.score = Err("llm".to_owned()));
    };
    lose(&mut all, 1);
    let judged = judge_one(&all, 0.2);
    assert_eq!(judged.decision.verdict, Verdict::Pass);
    let context = VerdictContext {
        grader: Some("right"),
        max_drop: 0.2,
        retry: "delta sweep run s",
        gate: None,
    };
    lose(&mut all, 12);
    let judged = judge_one(&all, 0.2);
    assert_eq!(judged.decision.verdict, Verdict::Inconclusive);
    assert_eq!(judged.decision.figures.unwrap().change, 1.0, "never a 0");
    let text = verdicts_in(VerdictFormat::Text, std::slice::from_ref(&judged), context);
    let note = "note: 12 pairs are missing (llm 12); their worst scores would change PASS\n";
    assert!(text.contains(note), "{text}");
    assert!(text.contains("help: the missing pairs can decide: `delta sweep run s`"), "{text}");
    let json = verdict_json(&judged, context);
    assert_eq!(json["pairs"]["missing"], 12);
    assert_eq!(json["more"]["pairs"], 12);
}

#[test]
fn c_34_7_without_a_score_of_the_base_there_is_no_verdict() {
    let runs = planned(30, 1);
    let mut all = all_pass(&runs);
    for scored in all.iter_mut().filter(|scored| &*scored.run.model == "old") {
        scored.score = Err("llm".to_owned());
    }
    let expected = NoVerdict::NoBaseScore("30 llm".to_owned());
    assert_eq!(judge(&all, &old_model(), 0.1).unwrap_err(), expected);
    let alone: Vec<ScoredRun<'_>> =
        all.into_iter().filter(|scored| &*scored.run.model == "new").collect();
    assert!(matches!(
        judge(&alone, &KeyValue { value: "new".to_owned(), ..old_model() }, 0.1),
        Err(NoVerdict::NoPairs { .. })
    ));
}

#[test]
fn each_setting_has_a_verdict_of_its_own_at_its_share_of_the_level() {
    let mut runs = planned(30, 1);
    let others: Vec<PlannedRun> =
        runs.iter().map(|run| PlannedRun { agent: "b".into(), ..run.clone() }).collect();
    runs.extend(others);
    let mut all = all_pass(&runs);
    for scored in &mut all {
        let is_worse = scored.agent == "b" && &*scored.run.model == "new";
        scored.score.as_mut().unwrap().score = f64::from(u8::from(!is_worse));
    }
    let judged = judge(&all, &old_model(), 0.2).unwrap();
    let verdicts: Vec<_> =
        judged.iter().map(|pair| (pair.setting[0].1.as_str(), pair.decision.verdict)).collect();
    assert_eq!(verdicts, [("a", Verdict::Pass), ("b", Verdict::Fail)]);
    assert_eq!(judged[0].setting.len(), 1, "the keys that differ: {:?}", judged[0].setting);
    assert!((judged[0].decision.rule.fail_level - 0.005).abs() < 1e-12);
    assert_eq!(worst_verdict(&judged), Verdict::Fail);
}

#[test]
fn groups_count_once_and_flaky_inputs_are_named() {
    let names: Vec<String> = (0..40).map(|index| format!("g{}/i{index}", index % 4)).collect();
    let runs: Vec<PlannedRun> = names
        .iter()
        .flat_map(|name| {
            [run("old", name, 1), run("old", name, 2), run("new", name, 1), run("new", name, 2)]
        })
        .collect();
    let mut all = all_pass(&runs);
    for scored in &mut all {
        let is_flaky = scored.run.repeat == 2 && scored.run.input.ends_with('9');
        scored.score.as_mut().unwrap().pass = !is_flaky;
    }
    let judged = judge_one(&all, 0.05);
    assert_eq!(judged.decision.figures.unwrap().clusters, 4);
    assert_eq!((judged.inputs, judged.decision.planned), (40, 80));
    assert_eq!(judged.flaky.len(), 4);
    assert_eq!(judged.flaky[0], FlakyInput { id: "g1/i29".to_owned(), passed: 1, of: 2 });
    assert!(matches!(judged.decision.remedy, Some(Remedy::Pairs(pairs)) if pairs > 80));
}
