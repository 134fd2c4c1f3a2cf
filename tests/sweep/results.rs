//! Result lines, `status`, `collect` and `gc`.

use super::{DELTA, acting_sandbox, effects, planned, result_lines, status, sweep, write_sweep};
use serde_json::{Value, json};
use std::fs;
use test_support::needs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

#[test]
fn c_26_2_lines_that_were_torn_or_lost_are_found_again() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 6, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let file = format!("s/results/{}", sandbox.files("s/results")[0]);
    let whole = sandbox.read(&file);
    let lines: Vec<&str> = whole.lines().collect();
    // One line is lost, one was changed, and the last one is torn.
    let changed = lines[1].replacen("COMPLETED", "FAILED", 1);
    let torn = &lines[5][..lines[5].len() / 2];
    sandbox.write(&file, format!("{changed}\n{}\n{}\n{}\n{torn}", lines[2], lines[3], lines[4]));
    let found = status(&sandbox);
    assert_eq!((found["settled"].as_u64(), found["damaged_lines"].as_u64()), (Some(3), Some(1)));
    // `collect` looks into the directories of runs without a line, and writes nothing.
    let collected = sweep(&sandbox, &["collect", "s", "-o", "-"]).expect_code(0).stdout;
    assert_eq!(collected.lines().count(), 6);
    assert!(collected.lines().all(|line| line.contains("COMPLETED")), "{collected}");
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    assert_eq!(effects(&sandbox).len(), 6);
    assert!(effects(&sandbox).values().all(|count| *count == 1));
    assert_eq!(status(&sandbox)["settled"], 6);
    assert_eq!(result_lines(&sandbox).iter().filter(|line| line["settled"] == true).count(), 7);
}

#[test]
fn collect_writes_csv_that_other_programs_read() {
    let sandbox = acting_sandbox();
    sandbox.write("agent/script.yaml", "turns:\n  - say: \"a, \\\"b\\\"\\nc\"\n");
    write_sweep(&sandbox, 2, 2, "params: {style: [x]}\nenv: {STYLE: '${param.style}'}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(3);
    assert_eq!(sandbox.read("r.csv").lines().count(), 1);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(0);
    let text = sandbox.read("r.csv");
    assert!(text.starts_with("n,id,agent,model,input,group,repeat,param.style,status,"), "{text}");
    assert_eq!(text.matches("\"a, \"\"b\"\"\nc\"").count(), 4, "{text}");
    sweep(&sandbox, &["collect", "s", "-o", "r.txt"]).expect_code(2);
    let table = sweep(&sandbox, &["collect", "s"]).expect_code(0).stdout;
    assert!(table.starts_with("agent  completed"), "{table}");
    assert!(table.contains("4 of 4"), "{table}");
}

#[test]
fn c_28_3_a_result_keeps_every_digit_in_its_line_and_in_csv() {
    let exact = r#"{"id":12345678901234567890123,"price":0.10}"#;
    let sandbox = acting_sandbox();
    let tool = format!(
        "  - name: act\n    shell: printf %s '{exact}'\n    output: json\n    ends_run: true\n"
    );
    sandbox.agent("provider: script\n  model: script.yaml", &tool);
    write_sweep(&sandbox, 1, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let lines = sweep(&sandbox, &["collect", "s", "-o", "-"]).expect_code(0).stdout;
    assert!(lines.contains(&format!("\"result\":{exact}")), "{lines}");
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(0);
    let csv = sandbox.read("r.csv");
    assert!(csv.contains(&exact.replace('"', "\"\"")), "{csv}");
}

#[test]
fn the_status_fits_into_a_terminal_and_is_repainted_in_place() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 3, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let mut watching = sandbox
        .delta(["sweep", "status", "s", "--watch", "--interval", "100ms"])
        .env("TERM", "xterm")
        .wholly_at_terminal_of(80, 24);
    watching.expect("not started 3");
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let (code, screen) = watching.end_with_screen();
    assert_eq!(code, 0, "{screen:?}");
    assert_eq!(screen.len(), 2, "{screen:?}");
    assert!(screen[0].starts_with("3 of 3 finished  [####################]"), "{screen:?}");
    assert_eq!(screen[1].trim_end(), "COMPLETED 3");
}

#[test]
fn a_pool_shows_the_status_at_a_terminal_and_nothing_elsewhere() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 3, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let run = || sandbox.delta(["sweep", "run", "s", "--jobs", "1"]).env("TERM", "xterm");
    let mut shown = run().wholly_at_terminal_of(80, 24);
    shown.expect("0 of 3 finished  [....................]  running 1");
    let (code, screen) = shown.end_with_screen();
    assert_eq!(code, 0, "{screen:?}");
    assert_eq!(screen.len(), 2, "{screen:?}");
    assert!(screen[0].starts_with("3 of 3 finished  [####################]"), "{screen:?}");
    assert_eq!(screen[1].trim_end(), "COMPLETED 3");
    assert_eq!(run().output().expect_code(0).stderr, "");
}

#[test]
fn a_selection_of_no_run_names_what_there_is() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let only = ["--only", "agent=agnet repeat=1"];
    let ran = sweep(&sandbox, &["run", "s", only[0], only[1]]).expect_code(126);
    assert!(ran.stderr.contains("help: `--only` can select agents: agent\n"), "{}", ran.stderr);
    let both = sweep(&sandbox, &["list", "s", "--only", "input=i0 repeat=2"]).expect_code(126);
    assert!(both.stderr.ends_with("can select repeats: 1\n"), "{}", both.stderr);
}

/// The commands below failures are wider than the terminal: they take several rows, all of which are replaced.
#[test]
fn a_status_with_lines_wider_than_the_terminal_is_repainted_in_place() {
    let sandbox = acting_sandbox();
    sandbox.write("agent/script.yaml", "turns:\n  - error: out of order\n");
    let line = |name: &str| format!("{{\"id\": \"{}\", \"task\": \"x\"}}\n", name.repeat(40));
    sandbox.write("inputs.jsonl", line("a") + &line("b"));
    sandbox.write("sweep.yaml", "name: s\nagents: [agent]\ninputs: inputs.jsonl\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "-q", "--only", "input=a*"]).expect_code(0);
    let mut watching = sandbox
        .delta(["sweep", "status", "s", "--watch", "--interval", "100ms"])
        .env("TERM", "xterm")
        .wholly_at_terminal_of(80, 24);
    watching.expect("not started 1");
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    let (code, screen) = watching.end_with_screen();
    assert_eq!(code, 0, "{screen:?}");
    let heads = screen.iter().filter(|line| line.contains(" finished  [")).count();
    assert!(heads == 1 && screen[0].starts_with("2 of 2 finished"), "{screen:#?}");
    assert_eq!(screen.iter().filter(|line| line.contains("delta show")).count(), 1, "{screen:#?}");
}

#[test]
fn gc_removes_only_what_no_plan_names() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let before = sandbox.files("s");
    assert_eq!(sweep(&sandbox, &["gc", "s", "--yes"]).expect_code(0).stdout, "");
    sandbox.write("s/runs/ab/other.ab00000000000000/file", "x");
    sandbox.write("s/agents/0123/agent.yaml", "x");
    sandbox.write("s/runs/ab/.young.tmp/file", "x");
    let listed = sweep(&sandbox, &["gc", "s"]).expect_code(0).stdout;
    assert_eq!(listed, "s/agents/0123\ns/runs/ab/other.ab00000000000000\n");
    assert!(sandbox.path("s/agents/0123").exists());
    sweep(&sandbox, &["gc", "s", "--yes"]).expect_code(0);
    fs::remove_dir_all(sandbox.path("s/runs/ab/.young.tmp")).unwrap();
    assert_eq!(sandbox.files("s"), before);
    assert_eq!(planned(&sandbox).len(), 2);
}

/// Inputs whose names are long, begin with another one, or have characters that files and tables treat in a special way.
#[test]
fn any_names_of_inputs_are_kept_apart() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = acting_sandbox();
    let long = "x".repeat(60);
    let names = ["a", "ab", "a,b", "a \"b\"", "a\nb", "ä", &long, &format!("{long}y"), "-._"];
    let lines = names.iter().enumerate().map(|(index, name)| {
        serde_json::json!({"id": name, "task": format!("t{index}"), "group": "g, 1"}).to_string()
            + "\n"
    });
    sandbox.write("inputs.jsonl", lines.collect::<String>());
    let params = "params: {style: ['a,b', \"c\\nd\", 'e\"f']}\nenv: {STYLE: '${param.style}'}\n";
    sandbox
        .write("sweep.yaml", format!("name: s\nagents: [agent]\ninputs: inputs.jsonl\n{params}"));
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ids = planned(&sandbox);
    assert_eq!(ids.len(), names.len() * 3);
    for id in &ids {
        let (input, hash) = id.rsplit_once('.').unwrap();
        assert!(input.len() <= 40 && hash.len() == 16, "{id}");
    }
    let only = |condition: &str| {
        sweep(&sandbox, &["list", "s", "--only", condition]).expect_code(0).stdout.lines().count()
    };
    assert_eq!((only("input=a"), only("input=ab"), only("input=a*")), (3, 3, 15));
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(0);
    let script = "import csv, json\n\
        rows = list(csv.DictReader(open('r.csv', newline='')))\n\
        print(json.dumps(sorted({(row['input'], row['group'], row['param.style']) for row in rows})))\n";
    let mut python = std::process::Command::new("python3");
    let read = python.args(["-c", script]).current_dir(sandbox.path("")).output().unwrap();
    let found: Vec<(String, String, String)> = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(found.len(), names.len() * 3);
    for name in names {
        assert_eq!(found.iter().filter(|(input, ..)| input == name).count(), 3, "{name:?}");
    }
    assert!(found.iter().all(|(_, group, _)| group == "g, 1"), "{found:?}");
    let table = sweep(&sandbox, &["collect", "s"]).expect_code(0).stdout;
    let rows = table.lines().take_while(|line| !line.is_empty());
    assert_eq!(rows.count(), 4, "a row is a line: {table}");
}

#[test]
fn inputs_whose_ids_would_be_the_same_are_named() {
    let sandbox = acting_sandbox();
    let long = "x".repeat(40);
    let text = format!(
        "name: s\nagents: [agent]\ninputs: [{{id: {long}1, task: t}}, {{id: {long}2, task: t}}]\n"
    );
    sandbox.write("sweep.yaml", text);
    let ran = sweep(&sandbox, &["plan"]).expect_code(126);
    assert!(ran.stderr.contains("among the first 40 characters of their ids"), "{}", ran.stderr);
}

#[test]
fn the_scores_of_graders_are_in_the_files_for_other_programs() {
    let sandbox = acting_sandbox();
    sandbox.write_program(
        "g.sh",
        "#!/bin/sh\ncase $1 in i0) exit 1;; i1) exit 3;; esac\necho '{\"score\": 0.5, \"why\": \"half\"}'\n",
    );
    let grade = "grade: [{name: g, command: [./g.sh, '${input.id}']}]\n";
    write_sweep(&sandbox, 3, 1, grade);
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    sweep(&sandbox, &["grade", "s"]).expect_code(1);
    let lines = sweep(&sandbox, &["collect", "s", "-o", "-"]).expect_code(0).stdout;
    let grades: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["grades"]["g"].clone())
        .collect();
    assert_eq!(grades[0], serde_json::json!({"score": 0.0, "pass": false, "why": null}));
    assert!(grades[1]["ungraded"].as_str().unwrap().contains("exited with 3"), "{lines}");
    assert_eq!(grades[2], serde_json::json!({"score": 0.5, "pass": false, "why": "half"}));
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(0);
    let table = sandbox.read("r.csv");
    let ends: Vec<&str> = table
        .lines()
        .map(|line| {
            let commas: Vec<usize> = line.match_indices(',').map(|(at, _)| at).collect();
            &line[commas[commas.len() - 2] + 1..]
        })
        .collect();
    assert_eq!(ends, ["score.g,pass.g", "0,false", ",", "0.5,false"], "{table}");
}

#[test]
fn gc_removes_copies_of_inputs_that_no_plan_names() {
    let sandbox = acting_sandbox();
    sandbox.write("cases/one/file", "1");
    sandbox.write("model.yaml", "turns:\n  - say: done\n");
    sandbox.write_program("g.sh", "#!/bin/sh\nexit 0\n");
    let text = "name: s\nagents: [agent]\nmodels: ['script:model.yaml']\ninputs: {dirs: 'cases/*'}\ntask: go\ngrade: [{name: g, command: [./g.sh]}]\n";
    sandbox.write("sweep.yaml", text);
    sweep(&sandbox, &["plan"]).expect_code(0);
    sandbox.write("cases/two/file", "2");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let copies = fs::read_dir(sandbox.path("s/inputs")).unwrap().count();
    assert_eq!(copies, 6, "two sets of lines, two directories, a model and a grader");
    assert_eq!(sweep(&sandbox, &["gc", "s", "--yes"]).expect_code(0).stdout, "");
    for name in ["s/inputs/0123.jsonl", "s/inputs/4567/file", "s/inputs/89ab"] {
        sandbox.write(name, "x");
    }
    let listed = sweep(&sandbox, &["gc", "s", "--yes"]).expect_code(0).stdout;
    assert_eq!(listed, "s/inputs/0123.jsonl\ns/inputs/4567\ns/inputs/89ab\n");
    assert_eq!(fs::read_dir(sandbox.path("s/inputs")).unwrap().count(), copies);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    // Without the lines of a plan, what it names cannot be known.
    let lines = sandbox.files("s/inputs").into_iter().find(|name| name.ends_with(".jsonl"));
    fs::remove_file(sandbox.path(&format!("s/inputs/{}", lines.unwrap()))).unwrap();
    let refused = sweep(&sandbox, &["gc", "s", "--yes"]).expect_code(1);
    assert!(refused.stderr.contains("could not read"), "{}", refused.stderr);
}

#[test]
fn a_result_line_names_the_model_that_answered_in_place_of_another() {
    let server = ScriptedServer::start(|request: &RecordedRequest| {
        let model = if request.body.to_string().contains("t0") { "test-model" } else { "m-2026" };
        let choice = json!({"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}});
        let body = json!({"object": "chat.completion", "model": model, "choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}});
        Answer::raw(200, body.to_string())
    });
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: test-model\n  stream: false\n  base_url: {}", server.url());
    sandbox.agent(&llm, "");
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    for line in result_lines(&sandbox) {
        let others = if line["input"] == "i0" { Value::Null } else { json!(["m-2026"]) };
        assert_eq!(line["answered_by"], others, "{line}");
    }
    // The CSV had no column for it, nor for what was cut.
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(0);
    let csv = sandbox.read("r.csv");
    assert!(csv.contains(",answered_by,outside,result,result_cut,"), "{csv}");
    for cells in [",,,done,false,", ",\"[\"\"m-2026\"\"]\",,done,false,"] {
        assert_eq!(csv.matches(cells).count(), 1, "{cells}: {csv}");
    }
}

/// The column `cost_usd` of a sweep of the sandbox's agent.
fn collected_costs(sandbox: &Sandbox) -> Vec<String> {
    write_sweep(sandbox, 2, 1, "");
    sweep(sandbox, &["plan"]).expect_code(0);
    sweep(sandbox, &["run", "s", "-q"]).expect_code(0);
    sweep(sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(0);
    let text = sandbox.read("r.csv");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let column = rows[0].iter().position(|name| *name == "cost_usd").unwrap();
    rows[1..].iter().map(|row| row[column].to_owned()).collect()
}

/// DuckDB takes a column of empty cells as text, which has no sum.
#[test]
fn c_35_4_a_column_of_costs_is_numeric() {
    let sandbox = acting_sandbox();
    let turn = "{say: done, usage: {input_tokens: 10, output_tokens: 5}}";
    sandbox.write("agent/script.yaml", format!("turns:\n  - {turn}\n"));
    assert_eq!(collected_costs(&sandbox), ["0", "0"]);
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("done"));
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: unpriced\n  base_url: {}", server.url()), "");
    assert_eq!(collected_costs(&sandbox), ["NaN", "NaN"]);
    // The endpoint itself says what one of them costs.
    let server = ScriptedServer::start(|request: &RecordedRequest| {
        let message = json!({"role": "assistant", "content": "done"});
        let mut usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
        if request.body.to_string().contains("t0") {
            usage["cost"] = json!(0.5);
        }
        let choice = json!({"index": 0, "finish_reason": "stop", "message": message});
        Answer::raw(200, json!({"choices": [choice], "usage": usage}).to_string())
    });
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: unpriced\n  stream: false\n  base_url: {}", server.url()), "");
    assert_eq!(collected_costs(&sandbox), ["0.5", ""]);
}

/// Another operator has made the runs; the result lines are lost.
#[test]
fn c_36_4_a_sweep_takes_the_result_of_an_accepted_key_with_a_note() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 1, 1, "");
    fs::create_dir(sandbox.path("alice")).unwrap();
    let by_alice = |args: &[&str]| {
        sandbox.delta(args.iter().copied()).env("HOME", sandbox.path("alice")).output()
    };
    by_alice(&["sweep", "run", "sweep.yaml"]).expect_code(0);
    fs::remove_dir_all(sandbox.path("s/results")).unwrap();
    let note = "is of alice, whose key you accept";
    let refused = sweep(&sandbox, &["run", "s"]);
    assert!(refused.code != 0 && !refused.stderr.contains(note), "{refused:?}");
    let settings = by_alice(&["config", "--format", "json"]).expect_code(0).json();
    let mut settings = settings.as_array().unwrap().iter();
    let key = settings.find(|setting| setting["key"] == "seal_public_key").unwrap();
    let trust = ["trust", "--name", "alice", "--key", key["value"].as_str().unwrap()];
    sandbox.delta(trust).output().expect_code(0);
    let ran = sweep(&sandbox, &["run", "s"]).expect_code(0);
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(result_lines(&sandbox)[0]["status"], "COMPLETED");
    assert_eq!(effects(&sandbox).into_values().collect::<Vec<_>>(), [1]);
}
