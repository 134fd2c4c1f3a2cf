//! `grade` when it is killed, started twice, or its graders are; `compare` with runs that are missing.

use super::{DELTA, sweep};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::Child;
use test_support::sandbox::Sandbox;
use test_support::wait::{is_alive, until};

/// Six runs that COMPLETED, and a grader of the text `grader` that is not started yet.
fn completed_sweep(grader: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: script.yaml", "");
    sandbox.write("agent/script.yaml", "turns:\n  - say: done\n");
    sandbox.write_program("grade.sh", &format!("#!/bin/sh\n{grader}\n"));
    super::write_sweep(
        &sandbox,
        6,
        1,
        &format!(
            "grade: [{{name: g, command: [./grade.sh, '${{input.id}}', '{}']}}]\n",
            sandbox.path("").display()
        ),
    );
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    sandbox
}

/// A grader that writes the input into `started`, and ends when the file `go` exists.
const WAITING: &str = "echo \"$1\" >> \"$2/started\"; until [ -e \"$2/go\" ]; do sleep 0.02; done";

fn started(sandbox: &Sandbox) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for input in fs::read_to_string(sandbox.path("started")).unwrap_or_default().lines() {
        *counts.entry(input.to_owned()).or_default() += 1;
    }
    counts
}

fn grade_lines(sandbox: &Sandbox) -> Vec<Value> {
    let files = sandbox.files("s/grades").into_iter().filter(|file| file.ends_with(".jsonl"));
    let texts = files.map(|file| sandbox.read(&format!("s/grades/{file}")));
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.map(|line| serde_json::from_str(&line).unwrap()).collect()
}

fn grade(sandbox: &Sandbox, more: &[&str]) -> Child {
    sandbox.delta(["sweep", "grade", "s"].iter().chain(more).copied()).spawn()
}

#[test]
fn a_sweep_that_is_not_graded_names_the_next_command() {
    let sandbox = completed_sweep("true");
    let next = "next: delta sweep grade s\n";
    let ends = |args: &[&str]| sweep(&sandbox, args).expect_code(0).stdout.ends_with(next);
    assert!(ends(&["run", "s"]) && ends(&["task", "s", "0/1"]));
    assert!(!ends(&["run", "s", "--quiet"]));
    sweep(&sandbox, &["grade", "s", "--only", "input=i0"]).expect_code(0);
    assert!(ends(&["run", "s"]));
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    assert!(!ends(&["run", "s"]));
}

#[test]
fn c_26_3_two_commands_that_grade_at_once_grade_each_run_once() {
    let sandbox = completed_sweep(WAITING);
    let first = grade(&sandbox, &[]);
    until("a grader", || (!started(&sandbox).is_empty()).then_some(()));
    let mut second = grade(&sandbox, &[]);
    let mut note = [0; 8];
    second.stderr.as_mut().unwrap().read_exact(&mut note).unwrap();
    assert_eq!(&note, b"waiting ");
    sandbox.write("go", "");
    let first = first.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&first.stdout), "graded 6 runs: g 6 passed\n");
    let second = second.wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(0));
    assert!(second.stdout.starts_with(b"nothing to grade"), "{second:?}");
    assert!(started(&sandbox).values().all(|count| *count == 1), "{:?}", started(&sandbox));
    assert_eq!(grade_lines(&sandbox).len(), 6);
}

#[test]
fn c_26_3_a_killed_command_is_started_again_and_leaves_no_grader() {
    let sandbox = completed_sweep(WAITING);
    let mut first = grade(&sandbox, &["--jobs", "2"]);
    until("two graders", || (started(&sandbox).len() == 2).then_some(()));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(grade_lines(&sandbox).is_empty(), "what was not graded is not a 0");
    let rows = sweep(&sandbox, &["compare", "s", "--by", "agent", "--format", "json"]).json();
    assert_eq!(rows["rows"][0]["missing"]["not graded"], 6, "{rows}");
    // Started twice at once: one of them grades.
    let commands = [grade(&sandbox, &["--jobs", "2"]), grade(&sandbox, &["--jobs", "2"])];
    sandbox.write("go", "");
    for command in commands {
        let output = command.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let ids: Vec<Value> = grade_lines(&sandbox).iter().map(|line| line["id"].clone()).collect();
    assert_eq!(ids.len(), 6, "{ids:?}");
    let twice = started(&sandbox).values().filter(|count| **count == 2).count();
    assert_eq!(twice, 2, "only what was under way is started again: {:?}", started(&sandbox));
}

#[test]
fn c_26_3_a_grader_that_is_killed_leaves_its_run_ungraded() {
    let sandbox = completed_sweep("[ \"$1\" = i0 ] && kill -9 $$; exit 0");
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(1);
    assert!(graded.stdout.starts_with("graded 5 runs: g 5 passed; 1 ungraded:\n"), "{graded:?}");
    assert!(graded.stdout.contains("the grader was killed"), "{graded:?}");
    let table = sweep(&sandbox, &["compare", "s", "--by", "agent"]).expect_code(0).stdout;
    assert!(table.contains("1.00 [0.39, 1.00]  5 of 6"), "{table}");
    let note = "\n  missing: 1 ungraded; 0.83 if all score 0, 1.00 if all score 1\n";
    assert!(table.contains(note), "{table}");
}

/// An agent could grade itself with what it writes, and a log may have lines in braces.
#[test]
fn c_26_3_json_in_the_log_of_a_grader_is_not_its_grade() {
    let grader = r#"case $1 in
i0) printf '{\n  "score": 1,\n  "answer": "from the agent"\n}\n'; exit 1;;
i1) printf '{got: 1}\n2 tests failed\n'; exit 1;;
i2) printf '{\n  "x": 1\n}\n';;
i3) printf '  {braces}\nall pass\n';;
i4) printf '[\n  {"score": 0.5}\n]\n'; exit 1;;
i5) printf '{"score": 0.5}\n'; exit 1;;
esac"#;
    let sandbox = completed_sweep(grader);
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(1).stdout;
    assert!(graded.contains("the grader exited with 1, and its grade is a pass"), "{graded}");
    let expected = [None, Some(0.0), Some(1.0), Some(1.0), None, Some(0.5)];
    assert_eq!(scores(&sandbox), expected);
}

/// The score of each run, in the order of their inputs.
fn scores(sandbox: &Sandbox) -> Vec<Option<f64>> {
    let lines = grade_lines(sandbox);
    let scores: BTreeMap<&str, Option<f64>> = lines
        .iter()
        .map(|line| (&line["id"].as_str().unwrap()[..2], line["score"].as_f64()))
        .collect();
    scores.into_values().collect()
}

/// Each of these was a score of 1, for the exit code.
#[test]
fn c_26_3_json_that_a_grader_prints_is_its_grade_or_none() {
    let grader = r#"case $1 in
i0) printf '{\n  "score": 0.25,\n  "details": [\n    {\n      "a": 1\n    }\n  ]\n}\n\n';;
i1) printf '{"score": 0}\ncleaning up\n';;
i2) printf '\357\273\277{"score": 0.5}\n';;
i3) printf '{"level": "info"}\n\t {"score": 0.75}\n';;
i4) printf '{\n  "score": 0,\n';;
i5) printf 'the tests pass\n';;
esac"#;
    let sandbox = completed_sweep(grader);
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(1).stdout;
    assert!(graded.contains("; 2 ungraded:\n"), "{graded}");
    let reason = "; print `{\"score\": 0.5}`, with a score from 0 to 1, after all other output\n";
    assert_eq!(graded.matches(reason).count(), 2, "{graded}");
    let expected = [Some(0.25), None, Some(0.5), Some(0.75), None, Some(1.0)];
    assert_eq!(scores(&sandbox), expected);
}

/// It said that every run has its grades.
#[test]
fn c_26_2_runs_whose_lines_are_lost_are_graded() {
    let sandbox = completed_sweep("exit 0");
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    fs::remove_dir_all(sandbox.path("s/results")).unwrap();
    fs::remove_dir_all(sandbox.path("s/grades")).unwrap();
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout;
    assert_eq!(graded, "graded 6 runs: g 6 passed\n");
}

#[test]
fn what_a_grader_left_ungraded_stays_reported_until_it_is_graded() {
    let sandbox = completed_sweep("[ \"$1\" = i0 ] && ! [ -e \"$2/go\" ] && exit 2; exit 0");
    let id = super::planned(&sandbox).into_iter().find(|id| id.starts_with("i0.")).unwrap();
    let reason = format!("  {id} by g: the grader exited with 2: it printed nothing\n");
    let next = |more: &str| format!("next: delta sweep grade s{more} --retry-ungraded\n");
    let first = sweep(&sandbox, &["grade", "s"]).expect_code(1).stdout;
    let graded = "graded 5 runs: g 5 passed; 1 ungraded:\n";
    assert_eq!(first, format!("{graded}{reason}{}", next("")));
    let second = sweep(&sandbox, &["grade", "s"]).expect_code(1).stdout;
    assert_eq!(second, format!("nothing new to grade; 1 ungraded:\n{reason}{}", next("")));
    let chosen = ["grade", "s", "--grader", "g", "--only", "input=i0 repeat=1"];
    let third = sweep(&sandbox, &chosen).expect_code(1).stdout;
    assert!(third.ends_with(&next(" --grader g --only 'input=i0 repeat=1'")), "{third}");
    sweep(&sandbox, &["grade", "s", "--only", "input=i1"]).expect_code(0);
    sandbox.write("go", "");
    let last = sweep(&sandbox, &["grade", "s", "--retry-ungraded"]).expect_code(0).stdout;
    assert_eq!(last, "graded 1 run: g 1 passed\n");
    let nothing = "nothing to grade: every finished run has its grades\n";
    assert_eq!(sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout, nothing);
}

/// A grader starts what is in a workspace, which an LLM has written.
#[test]
fn c_15_3_a_grader_gets_no_key_of_the_sweep() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("model: a\n  api_key_env: AGENT_SECRET", "");
    sandbox.write("good.yaml", "turns:\n  - say: done\n");
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("other/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    sandbox.write("other/agent.yaml", "name: other\nllm: {model: a, api_key_env: OTHER_SECRET}\n");
    sandbox.write_program("grade.sh", "#!/bin/sh\nenv > \"$1\"\n");
    let more = format!(
        "models: ['script:good.yaml', {{id: set, model: 'script:good.yaml', llm: {{api_key_env: '${{param.who}}_SECRET'}}}}]\n\
         params: {{who: [ONE, TWO]}}\n\
         grade: [{{name: g, command: [./grade.sh, '{}']}}]\n",
        sandbox.path("variables").display()
    );
    super::write_sweep(&sandbox, 1, 1, &more);
    let text = sandbox.read("sweep.yaml");
    sandbox.write("sweep.yaml", text.replace("[agent]", "[agent, other]"));
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--only", "agent=agent"]).expect_code(0);
    let secrets = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "FOO_API_KEY", "LISTED_SECRET"];
    let secrets = secrets.into_iter().chain(["DELTA_API_KEY", "DELTA_API_KEY_FILE"]);
    let secrets = secrets.chain(["AGENT_SECRET", "OTHER_SECRET", "ONE_SECRET", "TWO_SECRET"]);
    let mut grade = sandbox.delta(["sweep", "grade", "s"]).env("DELTA_KEY_NAMES", "LISTED_SECRET");
    for name in secrets.chain(["PLAIN"]) {
        grade = grade.env(name, format!("value-of-{name}"));
    }
    grade.output().expect_code(0);
    let variables = sandbox.read("variables");
    let passed = variables.lines().filter(|line| line.contains("value-of-"));
    assert_eq!(passed.collect::<Vec<_>>(), ["PLAIN=value-of-PLAIN"], "{variables}");
    assert!(!variables.contains("SECRET"), "{variables}");
}

#[test]
fn an_edited_grader_is_noted_and_planned_again_it_grades() {
    let sandbox = completed_sweep("exit 0");
    let plan = || sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(plan().ends_with("nothing new\nnext: delta sweep grade s\n"), "{}", plan());
    let grade = || sweep(&sandbox, &["grade", "s"]).expect_code(0);
    assert_eq!(grade().stderr, "");
    assert!(plan().ends_with("nothing new\n"), "{}", plan());
    sandbox.write_program("grade.sh", "#!/bin/sh\nexit 1\n");
    let edited = grade();
    assert!(edited.stdout.starts_with("nothing to grade"), "{edited:?}");
    let note = "Note: ./grade.sh differs from the copy that grader `g` was planned with; run `delta sweep plan` to use the new file\n";
    assert_eq!(edited.stderr, note);
    assert!(plan().ends_with("nothing new\nnext: delta sweep grade s\n"), "{}", plan());
    let again = grade();
    assert_eq!((&*again.stdout, &*again.stderr), ("graded 6 runs: g 0 passed\n", ""));
}

#[test]
fn graders_of_one_run_follow_each_other() {
    let sandbox = completed_sweep("true");
    let lock = "mkdir lock && sleep 0.01 && rmdir lock";
    sandbox.write_program("one.sh", &format!("#!/bin/sh\n{lock}\n"));
    sandbox.write_program("two.sh", &format!("#!/bin/sh\n: two\n{lock}\n"));
    let grade = "grade: [{name: one, command: [./one.sh]}, {name: two, command: [./two.sh]}]\n";
    super::write_sweep(&sandbox, 6, 1, grade);
    sweep(&sandbox, &["plan"]).expect_code(0);
    let graded = sweep(&sandbox, &["grade", "s", "--jobs", "6"]).expect_code(0);
    assert_eq!(graded.stdout, "graded 6 runs: one 6 passed, two 6 passed\n");
    let note = "other graders: two (--grader two)\n";
    for command in [&["compare", "s", "--by", "agent"][..], &["collect", "s"], &["view", "s"]] {
        assert_eq!(sweep(&sandbox, command).expect_code(0).stderr, note, "{command:?}");
        let named = [command, &["--grader", "one"]].concat();
        assert_eq!(sweep(&sandbox, &named).expect_code(0).stderr, "", "{command:?}");
    }
}

/// Two models on six inputs, of which the endpoint failed on four for the second one.
#[test]
fn c_26_3_a_comparison_with_missing_runs_has_both_ends() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: good.yaml", "");
    sandbox.write("good.yaml", "turns:\n  - say: done\n");
    let failing = "turns:\n  - when: t[2345]\n    error: 503 no capacity\n  - say: done\n";
    sandbox.write("flaky.yaml", failing);
    let models =
        "models: [{id: good, model: 'script:good.yaml'}, {id: flaky, model: 'script:flaky.yaml'}]";
    super::write_sweep(&sandbox, 6, 1, &format!("{models}\n"));
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let table = sweep(&sandbox, &["compare", "s"]).expect_code(0).stdout;
    let expected = "\
good   1.00 [0.48, 1.00]  6 of 6
flaky  1.00 [0.01, 1.00]  2 of 6
  missing: 4 llm; 0.33 if all score 0, 1.00 if all score 1

good - flaky  +0.00  2 of 6 pairs  p = 1.0000 (McNemar)
  incomplete: +0.00 to +0.67 with any scores of missing runs
  no difference shown
";
    let found: Vec<String> = table.lines().skip(1).map(|line| without_times(line) + "\n").collect();
    assert_eq!(found.concat(), expected, "{table}");
    let json = sweep(&sandbox, &["compare", "s", "--format", "json"]).expect_code(0).json();
    let pair = &json["comparisons"][0];
    assert_eq!(
        (&pair["pairs"], &pair["planned"], &pair["shown"]),
        (&2.into(), &6.into(), &false.into())
    );
}

/// A line of a table without the columns of times, which no test can know.
fn without_times(line: &str) -> String {
    let columns: Vec<&str> = line.split("  ").collect();
    let times = columns.iter().rposition(|column| column.contains("ms, "));
    let kept = &columns[..times.unwrap_or(columns.len())];
    kept.join("  ").trim_end().to_owned()
}

#[test]
fn inputs_are_not_compared_with_each_other() {
    let sandbox = completed_sweep("exit 0");
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    let ran = sweep(&sandbox, &["compare", "s", "--by", "input"]).expect_code(0);
    assert_eq!(ran.stdout.lines().count(), 7, "{}", ran.stdout);
    assert!(
        ran.stderr.contains("no comparisons: runs are paired by their inputs"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_comparison_by_what_no_run_has_names_what_runs_have() {
    let sandbox = completed_sweep("exit 0");
    let compare = |arguments: &[&str]| {
        let ran = sweep(&sandbox, &[&["compare", "s"], arguments].concat()).expect_code(126);
        ran.stderr.lines().find(|line| line.starts_with("help: ")).unwrap().to_owned()
    };
    let one_row = sweep(&sandbox, &["compare", "s"]).expect_code(0).stdout;
    assert!(one_row.starts_with("agent  g") && one_row.lines().count() == 3, "{one_row}");
    let known = "help: known here: `model`, `agent`, `repeat`, `input`";
    assert_eq!(compare(&["--by", "group"]), known);
    super::write_sweep(
        &sandbox,
        6,
        1,
        "params: {temp: [0.1, 0.9]}\nllm: {temperature: '${param.temp}'}\n",
    );
    sweep(&sandbox, &["plan", "-d", "t"]).expect_code(0);
    let ran = sweep(&sandbox, &["compare", "t", "--by", "temp"]).expect_code(126);
    assert!(ran.stderr.ends_with("help: did you mean `param.temp`?\n"), "{}", ran.stderr);
}

#[test]
fn one_input_shows_nothing_however_often_it_is_repeated() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: good.yaml", "");
    sandbox.write("good.yaml", "turns:\n  - say: done\n");
    sandbox.write(
        "bad.yaml",
        "turns:\n  - call: [{tool: none, args: {}}]\n  - call: [{tool: none, args: {}}]\n",
    );
    let models =
        "models: [{id: good, model: 'script:good.yaml'}, {id: bad, model: 'script:bad.yaml'}]";
    super::write_sweep(&sandbox, 1, 20, &format!("{models}\nrun: {{max_iterations: 1}}\n"));
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let table = sweep(&sandbox, &["compare", "s"]).expect_code(0).stdout;
    assert!(table.contains("+1.00  1 pair\n"), "{table}");
    assert!(table.contains("no difference shown"), "{table}");
}

/// The grades of `a_corrected_answer...`, by grader: how many runs each of them passes.
fn passed(sandbox: &Sandbox, grader: &str) -> u64 {
    let text = sweep(sandbox, &["collect", "s", "-o", "-"]).stdout;
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["grades"][grader]["pass"] == true).count() as u64
}

#[test]
fn a_corrected_answer_of_an_input_grades_its_runs_again_and_runs_nothing() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: script.yaml", "");
    sandbox.write("agent/script.yaml", "turns:\n  - say: done\n");
    sandbox.write_program("grade.sh", "#!/bin/sh\ngrep -q '\"answer\":\"done\"'\n");
    sandbox.write(
        "sweep.yaml",
        "name: s\nagents: [agent]\ninputs: inputs.jsonl\ngrade:\n  - {name: expect, expect: {result: '${input.answer}'}}\n  - {name: command, command: [./grade.sh]}\n",
    );
    let write_inputs = |second: &str| {
        let first = "{\"id\": \"a\", \"task\": \"t\", \"answer\": \"done\"}";
        sandbox.write("inputs.jsonl", format!("{first}\n{second}\n"));
        sweep(&sandbox, &["plan"]).expect_code(0).stdout
    };
    write_inputs("{\"id\": \"b\", \"task\": \"t\", \"answer\": \"wrong\"}");
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout;
    assert_eq!(graded, "graded 2 runs: expect 1 passed, command 1 passed\n");
    let planned = write_inputs("{\"id\": \"b\", \"task\": \"t\", \"answer\": \"done\"}");
    assert!(planned.ends_with("nothing new\nnext: delta sweep grade s\n"), "{planned}");
    // The old grade does not count any more.
    assert_eq!((passed(&sandbox, "expect"), passed(&sandbox, "command")), (1, 1));
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout;
    assert_eq!(graded, "graded 1 run: expect 1 passed, command 1 passed\n");
    assert_eq!((passed(&sandbox, "expect"), passed(&sandbox, "command")), (2, 2));
    let nothing = "nothing to grade: every finished run has its grades\n";
    assert_eq!(sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout, nothing);
    // Another task is another run; the one before is left out, and keeps its input and its grade.
    write_inputs("{\"id\": \"b\", \"task\": \"another\", \"answer\": \"wrong\"}");
    assert_eq!(sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout, nothing);
    assert_eq!(passed(&sandbox, "expect"), 1);
    write_inputs("{\"id\": \"b\", \"task\": \"t\", \"answer\": \"done\"}");
    assert_eq!(sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout, nothing);
    assert_eq!(passed(&sandbox, "expect"), 2);
}

#[test]
fn grades_of_an_earlier_version_count_until_the_input_changes() {
    let sandbox = completed_sweep("exit 0");
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    let file = sandbox.files("s/grades").into_iter().find(|file| file.ends_with(".jsonl")).unwrap();
    let path = format!("s/grades/{file}");
    let lines = grade_lines(&sandbox).into_iter().map(|mut line| {
        let members = line.as_object_mut().unwrap();
        members.remove("source").unwrap();
        members.remove("crc").unwrap();
        delta_base::checksum::append_checksum(format!("{line}\n"))
    });
    let text: String = lines.collect();
    sandbox.write(&path, text);
    let nothing = "nothing to grade: every finished run has its grades\n";
    assert_eq!(sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout, nothing);
    let inputs = sandbox.read("inputs.jsonl").replacen("\"t0\"}", "\"t0\", \"answer\": 1}", 1);
    sandbox.write("inputs.jsonl", inputs);
    sweep(&sandbox, &["plan"]).expect_code(0);
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout;
    assert_eq!(graded, "graded 1 run: g 1 passed\n");
}

#[test]
fn a_file_that_an_argument_names_is_a_part_of_its_grader() {
    let sandbox = completed_sweep("exit 0");
    let script = sandbox.path("gg.sh").display().to_string();
    sandbox.write("gg.sh", "exit 0\n");
    let command = format!("grade: [{{name: g, command: [sh, '{script}']}}]\n");
    super::write_sweep(&sandbox, 6, 1, &command);
    sweep(&sandbox, &["plan"]).expect_code(0);
    assert_eq!(
        sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout,
        "graded 6 runs: g 6 passed\n"
    );
    sandbox.write("gg.sh", "exit 1\n");
    let nothing = "nothing to grade: every finished run has its grades\n";
    assert_eq!(sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout, nothing);
    // Its grades would be another grader's.
    let refused = sweep(&sandbox, &["grade", "s", "--regrade"]).expect_code(126).stderr;
    assert!(refused.contains("gg.sh has changed since it was planned"), "{refused}");
    sweep(&sandbox, &["plan"]).expect_code(0);
    assert_eq!(
        sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout,
        "graded 6 runs: g 0 passed\n"
    );
}

#[test]
fn a_regrade_counts_over_the_grades_before() {
    let sandbox = completed_sweep("[ -e \"$2/go\" ] || exit 1; exit 0");
    assert_eq!(
        sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout,
        "graded 6 runs: g 0 passed\n"
    );
    sandbox.write("go", "");
    let one = ["grade", "s", "--regrade", "--only", "input=i0"];
    assert_eq!(sweep(&sandbox, &one).expect_code(0).stdout, "graded 1 run: g 1 passed\n");
    assert_eq!(passed(&sandbox, "g"), 1);
    let all = sweep(&sandbox, &["grade", "s", "--regrade"]).expect_code(0).stdout;
    assert_eq!(all, "graded 6 runs: g 6 passed\n");
    assert_eq!(passed(&sandbox, "g"), 6);
}

/// A server that a grader started kept its port, and the next run was graded against it.
#[test]
fn what_a_grader_leaves_running_is_ended() {
    let left = "setsid sleep 300 > /dev/null 2>&1 & echo $! >> \"$2/left\"
env -i setsid sleep 300 > /dev/null 2>&1 & echo $! >> \"$2/left\"";
    for (end, code) in [("echo '{\"score\": 1}'", 0), ("exec sleep 300", 1)] {
        let sandbox = completed_sweep(&format!("{left}\n{end}"));
        let text = sandbox.read("sweep.yaml").replace("}]\n", ", timeout: 1s}]\n");
        sandbox.write("sweep.yaml", text);
        sweep(&sandbox, &["plan"]).expect_code(0);
        sweep(&sandbox, &["grade", "s", "--jobs", "3"]).expect_code(code);
        let left = sandbox.read("left");
        assert_eq!(left.lines().count(), 12);
        for pid in left.lines() {
            assert!(!is_alive(pid.parse().unwrap()), "{pid} of {end}");
        }
    }
}
