//! `delta sweep bisect`: the commit or hunk with which the score dropped, from few runs of the agents between two revisions.

use super::gate::{git, repository};
use super::{result_lines, sweep};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::until;

fn commit(sandbox: &Sandbox, subject: &str) {
    git(sandbox, &["commit", "-q", "-a", "-m", subject]);
}

/// Replaces a text in a file of the agent.
fn replace(sandbox: &Sandbox, file: &str, from: &str, to: &str) {
    let path = format!("agent/{file}");
    sandbox.write(&path, sandbox.read(&path).replace(from, to));
}

/// A repository with the tag `v1` and so many commits after it, of which `bad` breaks the agent.
fn history(commits: usize, bad: usize) -> Sandbox {
    let sandbox = repository(20, "gate: {max_drop: 0.5}\nrepeats: 1");
    git(&sandbox, &["tag", "v1"]);
    for number in 1..=commits {
        sandbox.write("agent/system_prompt.md", format!("The prompt {number}.\n"));
        if number == bad {
            replace(&sandbox, "script.yaml", "did it", "wrong");
        }
        commit(&sandbox, &format!("change {number}"));
    }
    sandbox
}

fn bisect(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sweep(sandbox, &[&["bisect", "--good", "v1"], more].concat())
}

/// The curve and the end, which a second process prints again.
fn search_lines(ran: &Ran) -> String {
    let lines: Vec<&str> = ran.stdout.lines().skip(2).collect();
    lines.join("\n")
}

#[test]
fn c_34_20_the_commit_is_named_unless_the_ends_pass() {
    let sandbox = history(5, 4);
    // A commit that leaves the agent as it was is no point.
    sandbox.write("inputs.jsonl", sandbox.read("inputs.jsonl"));
    sandbox.write("sweep.yaml", sandbox.read("sweep.yaml") + "\n");
    commit(&sandbox, "another line");
    let dry = bisect(&sandbox, &["--dry-run"]).expect_code(0).stdout;
    assert_eq!(dry, "5 commits; at most 100 new runs, 0 done before\n");
    assert!(!sandbox.path("s").exists(), "nothing is planned");
    let found = bisect(&sandbox, &[]).expect_code(0);
    let lines: Vec<&str> = found.stdout.lines().collect();
    assert!(lines[0].starts_with("gate  right may drop by 0.50   base "), "{}", found.stdout);
    assert!(lines[1].starts_with("FAIL  right 1.00 -> 0.00, -1.00 ["), "{}", found.stdout);
    assert!(lines[2].contains(" of 20 runs passed   first"), "{}", found.stdout);
    let marked: Vec<&&str> = lines.iter().filter(|line| line.starts_with("> ")).collect();
    assert!(marked.len() == 1 && marked[0].ends_with("   change 4"), "{}", found.stdout);
    let end = lines.last().unwrap();
    assert!(end.starts_with("lost in commit ") && end.contains(" \"change 4\": 1.00 -> 0.00, "));
    let paid = result_lines(&sandbox).len();
    assert!(end.ends_with(&format!("; {paid} runs")) && paid < 80, "{end}, {paid}");
    // C-34.9: everything is done already.
    let again = bisect(&sandbox, &["--format", "json"]).expect_code(0).json();
    assert_eq!((&again["end"], &again["unit"]), (&"named".into(), &"commit".into()));
    assert_eq!(again["lost"]["changes"][0]["title"], "change 4");
    assert_eq!(again["ends"][0]["runs"], serde_json::json!({"new": 0, "reused": 40}));
    let early = bisect(&sandbox, &["--bad", "HEAD~3"]).expect_code(0).stdout;
    assert!(early.contains("\nPASS  right 1.00 -> 1.00"), "{early}");
    assert!(early.ends_with("\nnothing to find: the ends PASS\n"), "{early}");
    assert!(result_lines(&sandbox).len() <= paid + 20);
    let open = bisect(&sandbox, &["--bad", "HEAD~3", "--max-drop", "0.01"]).expect_code(3).stdout;
    assert!(open.contains("\nINCONCLUSIVE  right 1.00 -> 1.00"), "{open}");
    assert!(
        open.ends_with("\nno commit is named: a drop between the ends is not shown\n"),
        "{open}"
    );
    let same = sweep(&sandbox, &["bisect", "--good", "HEAD"]).expect_code(0).stdout;
    assert_eq!(same, "nothing to find: the agents are the same; 0 runs\n");
    for (good, bad, message) in [
        ("nowhere", "HEAD", "there is no base `nowhere`"),
        ("v1", "nowhere", "there is no revision `nowhere`"),
        ("HEAD", "v1", "`v1` does not descend from `HEAD`"),
    ] {
        let refused = sweep(&sandbox, &["bisect", "--good", good, "--bad", bad]);
        assert!(refused.expect_code(126).stderr.contains(message), "{good} {bad}");
    }
    sweep(&sandbox, &["bisect"]).expect_code(2);
}

#[test]
fn c_34_21_a_commit_that_does_not_load_widens_the_answer_and_one_tree_is_one_point() {
    let sandbox = history(1, 9);
    let key = "provider: script";
    replace(&sandbox, "agent.yaml", key, "provider: skript");
    commit(&sandbox, "break the file");
    replace(&sandbox, "agent.yaml", "provider: skript", key);
    replace(&sandbox, "script.yaml", "did it", "wrong");
    commit(&sandbox, "mend the file");
    replace(&sandbox, "system_prompt.md", "prompt", "text");
    commit(&sandbox, "another prompt");
    replace(&sandbox, "system_prompt.md", "text", "prompt");
    commit(&sandbox, "as before");
    // What is not committed is the last point.
    replace(&sandbox, "system_prompt.md", "prompt", "draft");
    let found = bisect(&sandbox, &[]).expect_code(0);
    assert!(found.stderr.starts_with("4 commits; at most "), "{}", found.stderr);
    assert!(!found.stdout.contains("another prompt"), "{}", found.stdout);
    let lines: Vec<&str> = found.stdout.lines().rev().take(3).collect();
    assert!(lines[2].starts_with("lost in one of 2 commits: 1.00 -> 0.00, "), "{}", found.stdout);
    let reason = " \"break the file\": `provider` must be ";
    assert!(lines[1].contains(reason), "{}", found.stdout);
    assert!(lines[0].ends_with(" \"mend the file\""), "{}", found.stdout);
    assert!(found.stdout.contains("   changes that are not committed\n"), "{}", found.stdout);
}

#[test]
fn c_34_14_a_search_stops_at_the_budget() {
    let sandbox = history(3, 2);
    let llm = "provider: script\n  model: script.yaml\n  max_tokens: 10";
    sandbox.agent(llm, "");
    let turn = "{say: did it, usage: {input_tokens: 100, output_tokens: 10}}";
    sandbox.write("agent/script.yaml", format!("turns:\n  - {turn}\n"));
    commit(&sandbox, "spend");
    git(&sandbox, &["tag", "-f", "v1"]);
    sandbox.write("agent/system_prompt.md", "Another prompt.\n");
    commit(&sandbox, "first");
    replace(&sandbox, "script.yaml", "did it", "wrong");
    commit(&sandbox, "second");
    sandbox.write("agent/system_prompt.md", "The last prompt.\n");
    commit(&sandbox, "third");
    let text = sandbox.read("sweep.yaml");
    sandbox.write("sweep.yaml", format!("{text}budget: {{max_tokens: 5000}}\n"));
    let stopped = bisect(&sandbox, &["-j", "1"]).expect_code(3);
    let end = "\nstopped: the budget of the sweep is used up; ";
    assert!(stopped.stdout.contains(end), "{}", stopped.stdout);
    let before = result_lines(&sandbox).len();
    assert!((40..=46).contains(&before), "{before}");
    sandbox.write("sweep.yaml", text);
    let found = bisect(&sandbox, &[]).expect_code(0);
    assert!(found.stdout.contains("\nlost in commit "), "{}", found.stdout);
    assert!(found.stdout.contains(" \"second\": "), "{}", found.stdout);
}

/// Which runs of a commit count must not depend on the process: the inputs that still pass would change the curve.
#[test]
fn c_34_2_a_search_that_was_killed_is_the_same() {
    let sandbox = history(3, 9);
    let turns = "turns:\n  - {when: 't[37]$', say: did it}\n  - say: wrong\n";
    sandbox.write("agent/script.yaml", turns);
    commit(&sandbox, "second");
    sandbox.write("agent/system_prompt.md", "The last prompt.\n");
    commit(&sandbox, "third");
    let mut child = sandbox.delta(["sweep", "bisect", "--good", "v1", "-q"]).spawn();
    until("another run has ended", || {
        let has_results = sandbox.path("s/results").is_dir();
        let is_searching = has_results && result_lines(&sandbox).len() > 40;
        (is_searching || child.try_wait().unwrap().is_some()).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let found = bisect(&sandbox, &[]).expect_code(0);
    assert!(found.stdout.contains("\nlost in commit "), "{}", found.stdout);
    assert!(found.stdout.contains(" \"second\": "), "{}", found.stdout);
    let lines = result_lines(&sandbox);
    let settled = lines.iter().filter(|line| line["settled"] == true);
    let ids: Vec<String> = settled.map(|line| line["id"].to_string()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "paid twice");
    assert_eq!(search_lines(&bisect(&sandbox, &[]).expect_code(0)), search_lines(&found));
    assert_eq!(result_lines(&sandbox).len(), lines.len(), "nothing new is asked for");
    fs::remove_dir_all(sandbox.path("s")).unwrap();
    assert_eq!(search_lines(&bisect(&sandbox, &[]).expect_code(0)), search_lines(&found));
}

/// What git prints in the sandbox.
fn git_output(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let output = Command::new("git").args(arguments).current_dir(sandbox.path("")).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn c_34_21_the_hunk_is_named_and_a_prefix_that_does_not_load_widens_the_answer() {
    let sandbox = history(0, 1);
    sandbox.write("agent/notes.md", "one\ntwo\nthree\n");
    sandbox.write_program("agent/unused.sh", "#!/bin/sh\n");
    git(&sandbox, &["add", "agent"]);
    commit(&sandbox, "more files");
    git(&sandbox, &["tag", "-f", "v1"]);
    // The agent does not load until the file with the cause is there.
    replace(&sandbox, "agent.yaml", "model: script.yaml", "model: other.yaml");
    sandbox.write("agent/other.yaml", "turns:\n  - say: wrong\n");
    sandbox.write("agent/notes.md", "One\ntwo\nThree");
    sandbox.write("agent/icon", [0_u8, 159, 146, 150, 0, 10]);
    fs::remove_file(sandbox.path("agent/unused.sh")).unwrap();
    let state = || {
        let objects = git_output(&sandbox, &["count-objects", "-v"]);
        git_output(&sandbox, &["status", "--porcelain", "--", "agent"]) + &objects
    };
    let before = state();
    let found = bisect(&sandbox, &["--hunks"]).expect_code(0);
    assert!(found.stderr.starts_with("6 hunks; at most "), "{}", found.stderr);
    let (_, end) = found.stdout.split_once("\nlost in one of 5 hunks: 1.00 -> 0.00, ").unwrap();
    let lines: Vec<&str> = end.lines().skip(1).collect();
    let changes =
        ["agent.yaml:", "icon: ", "notes.md:1 ", "notes.md:3 ", "other.yaml:1 \"+turns:\""];
    assert_eq!(lines.len(), changes.len(), "{end}");
    for (line, change) in lines.iter().zip(changes) {
        assert!(line.starts_with(&format!("  {change}")), "{line}");
        // Each prefix was made, and does not load.
        assert!(!line.contains("git apply"), "{line}");
    }
    assert_eq!(state(), before, "the repository stays as it was");
}
