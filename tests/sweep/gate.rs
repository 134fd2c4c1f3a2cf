//! `delta sweep gate`: base against working tree, in batches, until the scores decide.

use super::one_command::page_data;
use super::{DELTA, result_lines, sweep};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};
use test_support::wait::until;

/// Runs git in the sandbox, with no configuration but its own.
pub(super) fn git(sandbox: &Sandbox, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(arguments);
    command.current_dir(sandbox.path("")).env("HOME", sandbox.path("home"));
    let output = command.env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
}

/// A repository with a sweep of so many inputs; its agent passes a run whose answer has `did`.
pub(super) fn repository(inputs: usize, gate: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: script.yaml", "");
    sandbox.write("agent/script.yaml", "turns:\n  - say: did it\n");
    let lines =
        (0..inputs).map(|index| format!("{{\"id\": \"i{index}\", \"task\": \"t{index}\"}}\n"));
    sandbox.write("inputs.jsonl", lines.collect::<String>());
    let grade = "grade: [{name: right, expect: {result: {contains: did}}}]";
    let text = format!("name: s\nagents: [agent]\ninputs: inputs.jsonl\n{grade}\n{gate}\n");
    sandbox.write("sweep.yaml", text);
    git(&sandbox, &["init", "-q", "-b", "main"]);
    git(&sandbox, &["add", "agent", "sweep.yaml", "inputs.jsonl"]);
    git(&sandbox, &["commit", "-q", "-m", "first"]);
    sandbox
}

fn gate(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sweep(sandbox, &[&["gate"], more].concat())
}

#[test]
fn c_34_1_outside_of_a_repository_the_error_says_what_needs_one() {
    let sandbox = repository(1, "");
    fs::remove_dir_all(sandbox.path(".git")).unwrap();
    let commands: [&[&str]; 3] =
        [&["gate"], &["gate", "--against", "v1"], &["bisect", "--good", "v1"]];
    for command in commands {
        let ran = sweep(&sandbox, command).expect_code(126);
        let help =
            "\nhelp: the agents must be in a git repository; `delta sweep gate --against DIR`";
        assert!(ran.stderr.contains(help), "{command:?}: {}", ran.stderr);
    }
}

/// The second line of the verdict, without what a second process does not do again.
fn verdict(ran: &Ran) -> String {
    let line = ran.stdout.lines().nth(1).unwrap_or_default();
    let (start, rest) = line.split_once(" pairs, ").expect(&ran.stdout);
    let (_, end) = rest.split_once(" new runs").expect(line);
    format!("{start}{end}")
}

#[test]
fn c_34_8_equal_agents_pass_without_a_run() {
    let sandbox = repository(2, "gate: {against: HEAD}");
    let same = gate(&sandbox, &[]).expect_code(0);
    assert_eq!(same.stdout, "PASS  agent, model and inputs are the same; 0 runs\n");
    let json = gate(&sandbox, &["--format", "json"]).expect_code(0).json();
    assert_eq!((&json["verdict"], &json["grader"]), (&"PASS".into(), &"right".into()));
    assert!(!sandbox.path("s").exists(), "nothing is planned");
    sandbox.write("agent/system_prompt.md", "Another one.\n");
    let other = gate(&sandbox, &["--dry-run"]).expect_code(0).stdout;
    assert!(other.starts_with("at most 16 new runs"), "{other}");
}

/// `.git` is there alone, and so is the directory of the sweep: neither makes another agent.
#[test]
fn c_34_8_an_agent_at_the_top_of_its_repository_is_the_one_of_its_commit() {
    let sandbox = repository(24, "gate: {against: HEAD, max_drop: 0.5}");
    for file in ["sweep.yaml", "inputs.jsonl", ".git"] {
        fs::rename(sandbox.path(file), sandbox.path(&format!("agent/{file}"))).unwrap();
    }
    let text = sandbox.read("agent/sweep.yaml");
    sandbox.write("agent/sweep.yaml", text.replace("[agent]", "[{id: base, path: .}]"));
    sandbox.write("agent/.gitignore", "s/\n");
    let in_agent = |arguments: &[&str]| git(&sandbox, &[&["-C", "agent"], arguments].concat());
    in_agent(&["add", "-A"]);
    in_agent(&["commit", "-q", "-m", "moved"]);
    let gate = || {
        let command = sandbox.delta(["sweep", "gate"]).cwd(sandbox.path("agent"));
        command.output().expect_code(0).stdout
    };
    assert_eq!(gate(), "PASS  agent, model and inputs are the same; 0 runs\n");
    sandbox.write("agent/system_prompt.md", "Another one.\n");
    let passed = gate();
    assert!(passed.contains("; 20 of 96 pairs, 40 new runs"), "{passed}");
    let again = gate();
    assert!(again.contains("; 20 of 96 pairs, 0 new runs\n"), "{again}");
    in_agent(&["commit", "-q", "-a", "-m", "changed"]);
    assert_eq!(gate(), "PASS  agent, model and inputs are the same; 0 runs\n");
}

/// A repository with a change whose runs pass.
fn changed_repository() -> Sandbox {
    let sandbox = repository(24, "gate: {max_drop: 0.5, against: HEAD}");
    sandbox.write("agent/system_prompt.md", "Another one.\n");
    sandbox
}

#[test]
fn c_34_4_a_gate_stops_at_the_look_that_decides() {
    let sandbox = changed_repository();
    let dry = gate(&sandbox, &["--dry-run"]).expect_code(0).stdout;
    assert!(dry.starts_with("at most 192 new runs, 0 done before; usually decides"), "{dry}");
    assert!(!sandbox.path("s").exists(), "nothing is planned");
    let passed = gate(&sandbox, &[]).expect_code(0);
    let head = "gate  right may drop by 0.50   base ";
    assert!(passed.stdout.starts_with(head), "{}", passed.stdout);
    assert!(
        passed.stdout.contains(" with changes   24 inputs, 4 repeats\nPASS  right 1.00 -> 1.00")
    );
    assert!(passed.stdout.contains("; 20 of 96 pairs, 40 new runs"), "{}", passed.stdout);
    assert_eq!(result_lines(&sandbox).len(), 40);
    // What has decided decides again, in any format, without a run.
    let again = gate(&sandbox, &["--format", "json"]).expect_code(0).json();
    assert_eq!(again["runs"], serde_json::json!({"new": 0, "reused": 40}));
    assert_eq!((&again["verdict"], &again["look"]), (&"PASS".into(), &serde_json::json!([2, 10])));
}

#[test]
fn c_34_9_a_gate_pays_no_run_twice() {
    let sandbox = changed_repository();
    gate(&sandbox, &["-q"]).expect_code(0);
    // Another change is judged against the runs of the base that there are.
    sandbox.write("agent/script.yaml", "turns:\n  - say: wrong\n");
    let failed = gate(&sandbox, &[]).expect_code(1).stdout;
    assert!(failed.contains("\nFAIL  right 1.00 -> 0.00, -1.00 ["), "{failed}");
    assert!(failed.contains("; 20 of 96 pairs, 20 new runs"), "{failed}");
    let junit = gate(&sandbox, &["--format", "junit"]).expect_code(1).stdout;
    assert!(junit.contains("tests=\"1\" failures=\"1\" errors=\"0\""), "{junit}");
    assert!(junit.contains("name=\"right\"><failure message=\"FAIL\">gate  right"), "{junit}");
    let markdown = gate(&sandbox, &["--format", "markdown"]).expect_code(1).stdout;
    assert!(markdown.starts_with("### right: FAIL\n\n```text\ngate  right"), "{markdown}");
    assert_eq!(result_lines(&sandbox).len(), 60);
    // The page has the last verdict.
    sweep(&sandbox, &["view", "s"]).expect_code(0);
    let shown = page_data(&sandbox.read("s.html"))["gate"]["verdicts"][0].clone();
    assert_eq!((&shown["verdict"], &shown["max_drop"]), (&"FAIL".into(), &0.5.into()));
    assert!(shown["text"].as_str().unwrap().contains("\nFAIL  right 1.00 -> 0.00"), "{shown}");
    // The sweep of this directory has the runs of the gates.
    sweep(&sandbox, &["run", "s", "-q", "--only", "input=i0,i1"]).expect_code(0);
    let lines = result_lines(&sandbox);
    let ids: BTreeSet<String> = lines.iter().map(|line| line["id"].to_string()).collect();
    assert!(lines.len() > 60 && ids.len() == lines.len(), "{} of {}", ids.len(), lines.len());
}

#[test]
fn c_34_2_a_gate_that_was_killed_reaches_the_verdict_of_one_that_was_not() {
    let whole = changed_repository();
    let expected = verdict(&gate(&whole, &["-q"]).expect_code(0));
    let killed = changed_repository();
    let mut child = killed.delta(["sweep", "gate", "-q"]).spawn();
    until("some runs have ended", || {
        let has_results = killed.path("s/results").is_dir();
        (has_results && result_lines(&killed).len() > 4).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let before = result_lines(&killed).len();
    let continued = gate(&killed, &["-q"]).expect_code(0);
    assert_eq!(verdict(&continued), expected, "{} {}", continued.stdout, continued.stderr);
    let ids: BTreeSet<String> =
        result_lines(&killed).iter().map(|line| line["id"].to_string()).collect();
    assert!(before < 40 && ids.len() == 40, "{before}, then {}", ids.len());
}

#[test]
fn c_34_11_flaky_inputs_are_named_and_only_reasons_leave_inputs_out() {
    let gate_of =
        |ignore: &str| format!("gate: {{max_drop: 0.5, against: HEAD{ignore}}}\nrepeats: 2");
    let sandbox = repository(12, &(gate_of("") + "\ntask: '${input.task} ${repeat}'"));
    let script = "turns:\n  - when: 't[01] 2'\n    say: wrong\n  - say: did it\n";
    sandbox.write("agent/script.yaml", script);
    git(&sandbox, &["commit", "-q", "-a", "-m", "flaky"]);
    sandbox.write("agent/system_prompt.md", "Another one.\n");
    let all = gate(&sandbox, &["--max-drop", "0.6"]).expect_code(0).stdout;
    // The first look that decides has no second pair of i0.
    assert!(all.contains("\nflaky at the base: i1 (1 of 2)\n"), "{all}");
    let text = sandbox.read("sweep.yaml").replace("HEAD", "HEAD, ignore: flaky.txt");
    sandbox.write("sweep.yaml", text);
    for (ignored, message) in [
        ("i1\n", "flaky.txt:1: input `i1` is left out without a reason"),
        ("i99 gone\n", "there is no input `i99`"),
    ] {
        sandbox.write("flaky.txt", ignored);
        let refused = gate(&sandbox, &[]).expect_code(126).stderr;
        assert!(refused.contains(message), "{refused}");
    }
    sandbox.write("flaky.txt", "# seen in June\ni1 has two answers\n");
    let without = gate(&sandbox, &["--max-drop", "0.6"]).expect_code(0).stdout;
    assert!(without.contains("   11 inputs, 2 repeats\n"), "{without}");
    assert!(!without.contains("flaky"), "{without}");
    assert!(without.contains("\nignored: i1 (has two answers)\n"), "{without}");
}

#[test]
fn c_34_14_a_gate_stops_at_the_budget_and_prints_what_is_known() {
    let budget = "budget: {max_tokens: 3000}\ngate: {max_drop: 0.5, against: HEAD}";
    let sandbox = repository(24, budget);
    let usage = "usage: {input_tokens: 100, output_tokens: 10}";
    sandbox.write("agent/script.yaml", format!("turns:\n  - {{say: did it, {usage}}}\n"));
    let llm = "provider: script\n  model: script.yaml\n  max_tokens: 10";
    sandbox.agent(llm, "");
    git(&sandbox, &["commit", "-q", "-a", "-m", "spending"]);
    sandbox.write("agent/system_prompt.md", "Another one.\n");
    let open = gate(&sandbox, &[]).expect_code(3);
    assert!(open.stdout.contains("\nINCONCLUSIVE  "), "{}", open.stdout);
    assert!(open.stderr.contains("the sweep's budget of 3000 tokens"), "{}", open.stderr);
    let tokens = result_lines(&sandbox).into_iter().map(|line| {
        let usage = &line["usage"];
        usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap()
    });
    let spent: u64 = tokens.sum();
    assert!((1000..=3000).contains(&spent), "{spent}");
    let text = sandbox.read("sweep.yaml").replace("3000", "100000");
    sandbox.write("sweep.yaml", text);
    assert!(gate(&sandbox, &[]).expect_code(0).stdout.contains("; 20 of 96 pairs"));
}

#[test]
fn c_34_2_an_endpoint_that_throttles_changes_no_verdict() {
    let verdict = |refusals: usize| {
        let count = AtomicUsize::new(0);
        let server = ScriptedServer::start(move |request: &RecordedRequest| {
            let text = request.body.to_string();
            match count.fetch_add(1, Ordering::SeqCst) {
                number if number < refusals => {
                    Answer::error(429, "slow down", None).header("retry-after", "0")
                }
                _ if text.contains("Another one") && text.contains("t1") => Answer::text("wrong"),
                _ => Answer::text("did it"),
            }
        });
        let sandbox = repository(2, "gate: {max_drop: 0.5, against: HEAD}\nrepeats: 1");
        sandbox.agent(&format!("model: test-model\n  base_url: {}", server.url()), "");
        git(&sandbox, &["commit", "-q", "-a", "-m", "asking"]);
        sandbox.write("agent/system_prompt.md", "Another one.\n");
        let mut verdict = gate(&sandbox, &["--format", "json"]).expect_code(3).json();
        // The ids of commits.
        ["base", "here"].iter().for_each(|side| drop(verdict[*side].take()));
        (verdict, server.requests().len())
    };
    let (expected, requests) = verdict(0);
    assert_eq!((&expected["difference"], requests), (&(-0.5).into(), 4));
    assert_eq!(verdict(5), (expected, 9));
}

#[test]
fn c_34_10_runs_of_the_base_that_are_too_old_are_replaced_by_new_repeats() {
    let gate_of = |age: &str| format!("gate: {{against: HEAD, max_age: {age}}}\nrepeats: 1\n");
    let sandbox = repository(1, &(gate_of("14d") + "env: {REPEAT: '${repeat}'}"));
    // The second repeat of the base ends after the run of the second change.
    let wait = format!(
        "[ $REPEAT = 1 ] || until [ $(cat {}/* | wc -l) -ge 3 ]; do sleep 0.02; done",
        sandbox.path("s/results").display()
    );
    let llm = "provider: script\n  model: script.yaml";
    sandbox.agent(llm, &format!("  - {{name: act, shell: '{wait}'}}"));
    let turns = "turns:\n  - call: [{tool: act, args: {}}]\n  - say: did it\n";
    sandbox.write("agent/script.yaml", turns);
    git(&sandbox, &["commit", "-q", "-a", "-m", "waiting"]);
    let judge_change = |prompt: &str| {
        sandbox.write("agent/system_prompt.md", prompt);
        gate(&sandbox, &["--jobs", "2"]).expect_code(3).stdout
    };
    let first = judge_change("Another one.\n");
    assert!(first.contains(", 2 new runs") && !first.contains("note:"), "{first}");
    let text = sandbox.read("sweep.yaml").replace("14d", "1ms");
    sandbox.write("sweep.yaml", text);
    let second = judge_change("A third one.\n");
    let note = "note: 1 run of the base is older than `max_age`, and not used again\n";
    assert!(second.contains(", 2 new runs") && second.contains(note), "{second}");
    let repeats: Vec<_> =
        result_lines(&sandbox).iter().map(|line| line["repeat"].clone()).collect();
    assert_eq!(repeats.iter().filter(|repeat| **repeat == 2).count(), 1, "{repeats:?}");
    assert_eq!(repeats.len(), 4);
}

#[test]
fn c_34_1_every_error_of_a_gate_is_another_code_than_a_verdict() {
    let sandbox = repository(24, "");
    let none = gate(&sandbox, &[]).expect_code(126).stderr;
    assert!(none.contains("help: write `gate: {against: REVISION}`"), "{none}");
    let unknown = gate(&sandbox, &["--against", "nowhere"]).expect_code(126).stderr;
    assert!(unknown.contains("there is no base `nowhere`"), "{unknown}");
    gate(&sandbox, &["--against", "model=odd"]).expect_code(126);
    gate(&sandbox, &["--max-drop", "0"]).expect_code(2);
    // C-34.7: an endpoint that is down ends the gate after its first runs.
    sandbox.write("agent/script.yaml", "turns:\n  - error: 503 no capacity\n");
    git(&sandbox, &["commit", "-q", "-a", "-m", "down"]);
    sandbox.write("agent/system_prompt.md", "Another one.\n");
    let down = gate(&sandbox, &["--against", "HEAD"]).expect_code(126).stderr;
    assert!(
        down.contains("error: no base run has a score; 20 failed with llm: 503 no capacity\n"),
        "{down}"
    );
    assert_eq!(result_lines(&sandbox).len(), 40);
    // The base may be a directory.
    sandbox.write("agent/script.yaml", "turns:\n  - say: did it\n");
    sandbox.write("old/agent.yaml", sandbox.read("agent/agent.yaml"));
    for file in ["context.yaml", "script.yaml"] {
        sandbox.write(&format!("old/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    sandbox.write("old/system_prompt.md", "The old one.\n");
    let passed = gate(&sandbox, &["--against", "old", "--max-drop", "0.5"]).expect_code(0).stdout;
    assert!(passed.starts_with("gate  right may drop by 0.50   base old   here agent   24 inputs"));
}

/// The command of the job in the guide that the file `name` has.
fn job_command(name: &str) -> String {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/gate.md");
    let guide = fs::read_to_string(guide).unwrap();
    let job = guide.split("```").find(|block| block.contains(name)).expect(name);
    let line = job.lines().find(|line| line.contains("delta sweep gate")).expect(job);
    line.trim_start_matches([' ', '-']).trim_start_matches("run: ").to_owned()
}

#[test]
fn the_jobs_of_the_guide_judge_a_branch_of_a_clone() {
    let sandbox = repository(24, "gate: {max_drop: 0.5}");
    git(&sandbox, &["clone", "-q", "--bare", ".", "origin"]);
    git(&sandbox, &["clone", "-q", "origin", "clone"]);
    sandbox.write("clone/agent/system_prompt.md", "Another one.\n");
    git(&sandbox, &["-C", "clone", "commit", "-q", "-a", "-m", "change"]);
    let program = Path::new(DELTA).parent().unwrap().display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    for (file, written, expected) in [
        (".github/workflows/gate.yml", "summary.md", "### right: PASS\n"),
        (".gitlab-ci.yml", "clone/gate.xml", "tests=\"1\" failures=\"0\" errors=\"0\""),
    ] {
        let mut job = Command::new("sh");
        job.args(["-e", "-c", &job_command(file)]).current_dir(sandbox.path("clone")).env_clear();
        job.env("PATH", &path).env("HOME", sandbox.path("home"));
        job.env("GITHUB_STEP_SUMMARY", sandbox.path("summary.md"));
        job.env("CI_MERGE_REQUEST_DIFF_BASE_SHA", "origin/main");
        let output = job.output().unwrap();
        Ran::of(output.status, &output.stdout, &output.stderr).expect_code(0);
        let text = sandbox.read(written);
        assert!(text.contains(expected), "{file}: {text}");
        let runs = if file.contains("gitlab") { ", 0 new runs" } else { ", 40 new runs" };
        assert!(text.contains(runs), "{file}: {text}");
    }
}
