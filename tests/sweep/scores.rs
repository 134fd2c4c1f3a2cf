//! `grade`, `compare` and `view`: scores, what they rest on, and the page.

use super::{DELTA, sweep};
use serde_json::Value;
use std::fs;
use test_support::sandbox::Sandbox;

/// A sweep of two scripted models on six inputs: the good one writes the right word into `answer` for each, the poor one for
/// two of them.
fn graded_sweep(grade: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let tool = "  - {name: answer, shell: \"printf %s ${word} > answer\"}";
    sandbox.agent("provider: script\n  model: good.yaml", tool);
    for (model, word) in [("good", "${task}"), ("poor", "wrong")] {
        let turn = |kind: &str, word: &str| {
            format!("  - when: {kind}\n    call: [{{tool: answer, args: {{word: \"{word}\"}}}}]\n")
        };
        let turns = [turn("easy", "${task}"), turn("hard", word)].concat();
        sandbox.write(&format!("{model}.yaml"), format!("turns:\n{turns}  - say: done\n"));
    }
    sandbox.write_program(
        "grade.sh",
        "#!/bin/sh\nread -r run\nword=$(cat answer)\n[ \"$word\" = \"$1\" ]\n",
    );
    let lines = (0..6).map(|index| {
        let word = if index < 2 { format!("easy{index}") } else { format!("hard{index}") };
        format!("{{\"id\": \"i{index}\", \"task\": \"{word}\", \"word\": \"{word}\"}}\n")
    });
    sandbox.write("inputs.jsonl", lines.collect::<String>());
    let models =
        "models: [{id: good, model: 'script:good.yaml'}, {id: poor, model: 'script:poor.yaml'}]";
    let text = format!("name: s\nagents: [agent]\n{models}\ninputs: inputs.jsonl\n{grade}");
    sandbox.write("sweep.yaml", text);
    sandbox
}

const BY_COMMAND: &str = "grade: [{name: word, command: [./grade.sh, '${input.word}']}]\n";

fn run_and_grade(sandbox: &Sandbox) {
    sweep(sandbox, &["plan"]).expect_code(0);
    sweep(sandbox, &["run", "s"]).expect_code(0);
    sweep(sandbox, &["grade", "s"]).expect_code(0);
}

fn comparison(sandbox: &Sandbox) -> Value {
    sweep(sandbox, &["compare", "s", "--format", "json"]).expect_code(0).json()
}

/// The score and the number of graded runs of a model.
fn score(table: &Value, model: &str) -> (f64, u64) {
    let rows = table["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["key"][0][1] == model).unwrap();
    (row["score"]["value"].as_f64().unwrap(), row["graded"].as_u64().unwrap())
}

#[test]
fn c_26_3_a_command_grades_each_run_once_and_a_changed_one_again() {
    let sandbox = graded_sweep(BY_COMMAND);
    run_and_grade(&sandbox);
    let table = comparison(&sandbox);
    assert_eq!(score(&table, "good"), (1.0, 6), "{table}");
    assert_eq!(score(&table, "poor"), (2.0 / 6.0, 6), "{table}");
    assert_eq!(table["comparisons"][0]["pairs"], 6);
    let again = sweep(&sandbox, &["grade", "s"]).expect_code(0);
    assert_eq!(again.stdout, "nothing to grade: every finished run has its grades\n");
    // The plan has a copy: the file itself no longer counts, until it is planned again.
    sandbox.write_program("grade.sh", "#!/bin/sh\necho '{\"score\": 0.5, \"why\": \"half\"}'\n");
    assert_eq!(sweep(&sandbox, &["grade", "s"]).stdout, again.stdout);
    sweep(&sandbox, &["plan"]).expect_code(0);
    let before = comparison(&sandbox);
    assert_eq!(before["rows"][0]["missing"]["not graded"], 6, "{before}");
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    assert_eq!(score(&comparison(&sandbox), "poor"), (0.5, 6));
}

#[test]
fn c_26_3_a_grader_that_fails_leaves_runs_ungraded_and_says_why() {
    let sandbox = graded_sweep(BY_COMMAND);
    sandbox.write_program("grade.sh", "#!/bin/sh\necho no compiler >&2\nexit 2\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(1);
    assert!(graded.stdout.contains("12 ungraded:"), "{}", graded.stdout);
    assert!(graded.stdout.contains("exited with 2: no compiler"), "{}", graded.stdout);
    let table = comparison(&sandbox);
    assert_eq!(table["rows"][0]["score"], Value::Null, "never a 0: {table}");
    assert_eq!(table["rows"][0]["missing"]["ungraded"], 6, "{table}");
    assert_eq!(table["comparisons"][0]["shown"], false);
    // What is ungraded stays so until it is asked for again.
    sweep(&sandbox, &["grade", "s"]).expect_code(1);
    sweep(&sandbox, &["grade", "s", "--retry-ungraded"]).expect_code(1);
}

#[test]
fn an_expectation_grades_by_what_the_run_did() {
    let grade = "grade: [{name: word, expect: {files: {answer: '${input.word}'}, called: [{tool: answer}]}}]\n";
    let sandbox = graded_sweep(grade);
    run_and_grade(&sandbox);
    let table = comparison(&sandbox);
    assert_eq!((score(&table, "good"), score(&table, "poor")), ((1.0, 6), (2.0 / 6.0, 6)));
    let text = sweep(&sandbox, &["compare", "s"]).expect_code(0).stdout;
    assert!(text.starts_with("model  word"), "{text}");
    assert!(text.contains("good - poor  +0.67 ["), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn an_agent_judges_in_a_run_of_its_own_that_is_found_again() {
    let grade = "grade: [{name: judge, agent: judge}]\n";
    let sandbox = graded_sweep(grade);
    sandbox.write("judge/agent.yaml", "name: judge\nllm: {provider: script, model: script.yaml}\nfinish: {schema: {type: object, properties: {score: {type: number}}, required: [score]}}\n");
    sandbox.write("judge/system_prompt.md", "Judge.\n");
    sandbox.write("judge/context.yaml", sandbox.read("agent/context.yaml"));
    sandbox.write("judge/script.yaml", "turns:\n  - call: [{tool: finish, args: {score: 0.25}}]\n");
    run_and_grade(&sandbox);
    assert_eq!(score(&comparison(&sandbox), "good"), (0.25, 6));
    let grades = sandbox.files("s/grades").into_iter().filter(|name| name.ends_with(".jsonl"));
    assert_eq!(grades.count(), 1);
    fs::remove_dir_all(sandbox.path("s/grades")).unwrap();
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    assert_eq!(score(&comparison(&sandbox), "poor"), (0.25, 6));
    let runs = sweep(&sandbox, &["collect", "s"]).expect_code(0).stdout;
    assert!(runs.contains("6 of 6"), "{runs}");
}

#[test]
fn mistakes_in_graders_are_found_when_the_sweep_is_planned() {
    for (grade, expected) in [
        ("grade: [{name: word}]\n", "command"),
        ("grade: [{name: word, command: [./missing.sh]}]\n", "could not open"),
        ("grade: [{name: word, command: [./inputs.jsonl]}]\n", "not executable"),
        ("grade: [{name: word, expect: {file: x}}]\n", "unknown key `file`"),
        ("grade: [{name: a/b, command: [true]}]\n", "letters, digits"),
        ("grade: [{name: a, command: [true]}, {name: a, command: [true]}]\n", "two graders"),
        ("grade: [{name: a, command: [true, '${param.x}']}]\n", "unknown parameter `x`"),
    ] {
        let sandbox = graded_sweep(grade);
        let planned = sweep(&sandbox, &["plan"]).expect_code(126);
        assert!(planned.stderr.contains(expected), "{grade}: {}", planned.stderr);
        assert!(!sandbox.path("s").exists(), "{grade}");
    }
}

#[test]
fn c_18_3_the_page_of_a_sweep_has_its_data_and_nothing_of_it_is_markup() {
    let sandbox = graded_sweep(BY_COMMAND);
    let inputs =
        sandbox.read("inputs.jsonl").replace("\"id\": \"i0\"", "\"id\": \"</script><b>i0\"");
    sandbox.write("inputs.jsonl", inputs);
    run_and_grade(&sandbox);
    let printed = sweep(&sandbox, &["view", "s", "--pages", "failed"]).expect_code(0).stdout;
    assert_eq!(printed, "s.html\n");
    let page = sandbox.read("s.html");
    assert_eq!(page.matches("</script>").count(), 2, "the data and the script");
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["runs"].as_array().unwrap().len(), 12);
    assert_eq!(data["tables"][0]["by"], "model");
    assert_eq!(sandbox.files("s.runs").len(), 4, "the poor model failed four");
    sandbox.write("mine.html", "mine");
    sweep(&sandbox, &["view", "s", "-o", "mine.html"]).expect_code(0);
    sandbox.write("s.html", "mine");
    sweep(&sandbox, &["view", "s"]).expect_code(1);
    assert_eq!(sandbox.read("s.html"), "mine");
}
