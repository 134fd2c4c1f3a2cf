//! What names a run (C-25.1): its id, a unique prefix or suffix, its directory, `last`.

use super::DELTA;
use super::runs::{STATES, TOOLS, code_of, edit_journal};
use std::fs;
use std::time::{Duration, SystemTime};
use test_support::sandbox::{Ran, Sandbox};

/// The first answer, and one for each time that a test continues the run.
const TURNS: &str = "- say: first\n- say: second\n- say: third\n- say: fourth\n- say: fifth";

/// A workspace with runs that have these ids, the last one updated last.
fn with_runs(ids: &[&str]) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    for id in ids {
        run_as(&sandbox, id, "work");
    }
    sandbox
}

fn run_as(sandbox: &Sandbox, id: &str, work: &str) {
    let args = ["run", "--agent", "agent", "-w", work, "--run-id", id, "-m", id];
    sandbox.delta(args).output().expect_code(0);
}

/// The run that `delta show NAME` shows.
fn shown(sandbox: &Sandbox, names: &[&str]) -> String {
    let args = [&["show", "-w", "work", "--format", "json"], names].concat();
    sandbox.delta(args).output().expect_code(0).json()["run_id"].as_str().unwrap().to_owned()
}

fn refused(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let ran = sandbox.delta(args.iter().copied()).output();
    assert_ne!(ran.code, 0, "{args:?}: {}", ran.stdout);
    ran
}

/// Makes a run the one that was updated last.
fn touch(sandbox: &Sandbox, id: &str) {
    let journal = sandbox.path(&format!("work/.delta/{id}/journal.jsonl"));
    let file = fs::File::options().append(true).open(journal).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
}

#[test]
fn c_25_1_a_beginning_an_end_a_path_and_last() {
    let sandbox = with_runs(&["20260101_120000_aaa111", "20260102_120000_bbb222"]);
    let first = "20260101_120000_aaa111";
    for name in
        [first, "20260101", "aaa111", "_aaa111", "111", "./work/.delta/20260101_120000_aaa111"]
    {
        assert_eq!(shown(&sandbox, &[name]), first, "{name}");
    }
    assert_eq!(shown(&sandbox, &["last"]), "20260102_120000_bbb222");
    assert_eq!(shown(&sandbox, &[]), "20260102_120000_bbb222");
    touch(&sandbox, first);
    assert_eq!(shown(&sandbox, &[]), first);
    let inside = sandbox.delta(["show", "."]).cwd(sandbox.path("work/.delta").join(first)).output();
    assert!(inside.expect_code(0).stdout.starts_with(&format!("test-agent {first}\n")));
}

#[test]
fn c_25_1_every_command_that_takes_a_run_takes_the_names() {
    let sandbox = with_runs(&["one-aaa"]);
    sandbox.run("task", &["--snapshots"]).expect_code(0);
    touch(&sandbox, "r");
    fs::create_dir(sandbox.path("out")).unwrap();
    let commands: [&[&str]; 8] = [
        &["show"],
        &["view", "-o", "page.html"],
        &["export", "--to", "openai"],
        &["replay"],
        &["context", "show"],
        &["rollback", "--to", "0", "--dry-run"],
        &["fork", "--at", "1", "--into", "work"],
        &["continue", "-m", "more"],
    ];
    for command in commands {
        for name in [None, Some("last"), Some("r")] {
            if command[0] == "fork" && name.is_none() {
                continue;
            }
            let args = [command, &["-w", "work"], name.as_slice()].concat();
            let ran = sandbox.delta(args.clone()).output();
            assert_eq!(ran.code, 0, "{args:?}: {}{}", ran.stdout, ran.stderr);
            touch(&sandbox, "r");
        }
    }
    let forked = sandbox.delta(["fork", "--into", "work", "-w", "work"]).output().expect_code(2);
    assert!(forked.stderr.contains("tip: `delta fork last` forks the run"), "{}", forked.stderr);
    for args in [&["1", "1"][..], &["last", "1", "1"], &["r", "1", "1"]] {
        let ran = sandbox.delta([&["context", "diff", "-w", "work"], args].concat()).output();
        assert!(ran.expect_code(0).stdout.starts_with("r iteration 1"));
    }
    sandbox.delta(["diff", "last", "0", "-w", "work"]).output().expect_code(0);
    sandbox.delta(["diff", "last", "r", "-w", "work"]).output().expect_code(0);
    sandbox.delta(["diff", "aaa", "last", "-w", "work"]).output().expect_code(1);
    sandbox.delta(["diff", "0", "-w", "work"]).output().expect_code(2);
    sandbox.delta(["continue", "--run-id", "one", "-m", "x", "-w", "work"]).output().expect_code(0);
    let continued = sandbox
        .delta(["continue", "--run-id", "last", "-m", "x", "-w", "work", "--format", "json"]);
    assert_eq!(continued.output().expect_code(0).json()["run_id"], "r");
    let trusted = sandbox.delta(["trust", "one", "-w", "work"]).output().expect_code(0);
    assert!(trusted.stdout.starts_with("Trusted run one-aaa: "), "{}", trusted.stdout);
}

#[test]
fn c_25_1_context_diff_says_which_number_is_wrong() {
    let sandbox = with_runs(&["one"]);
    let ran = refused(&sandbox, &["context", "diff", "-w", "work", "1", "x"]);
    ran.expect(2, "", "error: invalid value 'x' for '<M>': expected a whole number from 1 to 4294967295\nhelp: the arguments are `delta context diff [RUN] <N> <M>`\n");
    for arguments in [&["1"][..], &[]] {
        let ran = refused(&sandbox, &[&["context", "diff", "-w", "work"], arguments].concat());
        assert!(ran.expect_code(2).stderr.contains("expected two iterations to compare"));
    }
    refused(&sandbox, &["context", "diff", "-w", "work", "o/", "0", "1"]).expect_code(2);
}

#[test]
fn c_25_1_an_ambiguous_name_lists_the_candidates() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "");
    for (state, turn) in STATES {
        sandbox.write("agent/script.yaml", format!("turns:\n{turn}"));
        let id = format!("run-{state}");
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", &id, "-m", "a task"];
        sandbox.delta(args).output().expect_code(code_of(state));
    }
    let ran = refused(&sandbox, &["show", "run", "-w", "work"]);
    assert_eq!(ran.code, 1);
    let work = sandbox.path("work");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(
        lines[0],
        format!("error: `run` is a prefix or suffix of 5 run ids in {}", work.display())
    );
    assert_eq!(lines[1], "help: write more of the id:");
    for (line, (state, _)) in lines[2..].iter().zip(STATES.iter().rev()) {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "(died)").collect();
        assert_eq!(words[..4], [&*format!("run-{state}"), state, "\"a", "task\""], "{line}");
        let (_, rest) = line.split_once("s ago").unwrap_or_else(|| panic!("{line}"));
        assert!(rest.is_empty() || rest.starts_with("  error: "), "{line}");
    }
    assert_eq!(lines.len(), 7);
    let json = refused(&sandbox, &["continue", "run", "-m", "x", "-w", "work", "--format", "json"]);
    assert_eq!(json.json()["error"]["type"], "run_ambiguous");
    assert_eq!(json.json()["run_id"], serde_json::Value::Null);
    // One run may have the name as its beginning and another as its end.
    sandbox.write("agent/script.yaml", "turns:\n- say: done\n");
    run_as(&sandbox, "ends-run", "work");
    assert!(refused(&sandbox, &["show", "run", "-w", "work"]).stderr.contains("of 6 run ids"));
}

#[test]
fn c_25_1_an_exact_id_wins_over_a_beginning() {
    let sandbox = with_runs(&["night", "nightly", "nightly-2"]);
    assert_eq!(shown(&sandbox, &["night"]), "night");
    assert_eq!(shown(&sandbox, &["nightly"]), "nightly");
    refused(&sandbox, &["show", "nigh", "-w", "work"]).expect_code(1);
    // Neither `--run-id` of a new run nor `--ensure` is a beginning.
    run_as(&sandbox, "nigh", "work");
    let ensured = sandbox.delta([
        "run", "--agent", "agent", "-w", "work", "--ensure", "--run-id", "nightly-", "-m", "x",
    ]);
    ensured.output().expect_code(0);
    assert!(sandbox.path("work/.delta/nightly-").is_dir());
}

#[test]
fn c_25_1_last_is_a_word_and_a_run_of_that_name_has_a_path() {
    let sandbox = with_runs(&["last", "newer"]);
    fs::create_dir(sandbox.path("newer")).unwrap();
    assert_eq!(shown(&sandbox, &["last"]), "newer");
    assert_eq!(shown(&sandbox, &["newer"]), "newer");
    assert_eq!(shown(&sandbox, &["work/.delta/last"]), "last");
}

#[test]
fn c_25_1_a_workspace_without_runs() {
    let sandbox = with_runs(&[]);
    fs::create_dir(sandbox.path("work")).unwrap();
    let work = sandbox.path("work");
    let none = refused(&sandbox, &["continue", "-w", "work"]);
    none.expect(
        1,
        "",
        &format!(
            "error: there is no run in {}\nhelp: `delta run` starts one; `-w DIR` names another workspace\n",
            work.display()
        ),
    );
    run_as(&sandbox, "one", "work/deep");
    let below = refused(&sandbox, &["show", "-w", "work"]);
    assert!(
        below
            .stderr
            .contains(&format!("these workspaces have runs:\n      -w {}/deep\n", work.display())),
        "{}",
        below.stderr
    );
    let named = refused(&sandbox, &["show", "_nothing", "-w", "work"]);
    assert!(named.stderr.contains("ends with `_nothing`"), "{}", named.stderr);
    for wrong in ["a b", "VERSION", "..a/", "é"] {
        refused(&sandbox, &["show", wrong, "-w", "work"]);
    }
}

#[test]
fn c_25_1_last_is_no_run_that_never_began_and_no_symlink() {
    let sandbox = with_runs(&["one"]);
    fs::create_dir(sandbox.path("work/.delta/empty")).unwrap();
    sandbox.write("work/.delta/blank/journal.jsonl", "");
    std::os::unix::fs::symlink(sandbox.path("work/.delta/one"), sandbox.path("work/.delta/two"))
        .unwrap();
    touch(&sandbox, "blank");
    assert_eq!(shown(&sandbox, &[]), "one");
    let symlink = refused(&sandbox, &["show", "tw", "-w", "work"]);
    assert!(symlink.stderr.contains("is a symlink"), "{}", symlink.stderr);
    sandbox.write("other/.delta/blank/journal.jsonl", "");
    let alone = refused(&sandbox, &["show", "-w", "other"]);
    assert!(!alone.stderr.contains("these workspaces have runs"), "{}", alone.stderr);
}

/// An older run in its place would be continued, or removed.
#[test]
fn c_25_1_last_is_also_a_run_whose_journal_was_lost() {
    let sandbox = with_runs(&["one", "two"]);
    sandbox.unverified("a journal is emptied");
    let two = sandbox.path("work/.delta/two/journal.jsonl");
    touch(&sandbox, "two");
    let check = || {
        for command in ["show", "verify", "continue"] {
            let ran = sandbox.delta([command, "-w", "work"]).output();
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(ran.code != 0 && said.contains("two"), "{command}: {ran:?}");
        }
        let first = sandbox.delta(["list-runs", "-w", "work", "--first"]).output();
        assert_eq!(first.expect_code(0).stdout, "two\n");
    };
    fs::write(&two, "").unwrap();
    check();
    fs::remove_file(&two).unwrap();
    check();
    sandbox.delta(["rm", "last", "-y", "-w", "work"]).output().expect_code(0);
    assert!(!sandbox.path("work/.delta/two").exists());
    assert!(sandbox.path("work/.delta/one/journal.jsonl").exists());
}

#[test]
fn c_25_1_damage_and_foreign_runs_are_what_they_are_by_any_name() {
    let sandbox = with_runs(&["r"]);
    sandbox.unverified("its journal is damaged");
    edit_journal(&sandbox, |journal| journal.replace("\"seal\"", "\"sea1\""));
    let foreign = refused(&sandbox, &["continue", "-m", "x", "-w", "work"]);
    assert!(foreign.stderr.contains("run r is foreign"), "{}", foreign.stderr);
    assert_eq!(shown(&sandbox, &[]), "r");
    edit_journal(&sandbox, |journal| format!("garbage\n{journal}"));
    let damaged = refused(&sandbox, &["show", "last", "-w", "work"]);
    assert!(
        damaged.stderr.contains(&*sandbox.path("work/.delta/r/journal.jsonl").to_string_lossy()),
        "{}",
        damaged.stderr
    );
}

#[test]
fn c_25_1_what_is_printed_for_going_on_has_the_full_id() {
    let sandbox =
        Sandbox::scripted(DELTA, TOOLS, "- call: [{tool: ask_human, args: {prompt: Really?}}]");
    let args = ["run", "--agent", "agent", "-w", "work", "--run-id", "a-long-id", "-m", "x"];
    sandbox.delta(args).output().expect_code(101);
    for name in ["last", "a-l"] {
        let ran = sandbox.delta(["continue", name, "-w", "work"]).output().expect_code(1);
        let shown = sandbox.delta(["show", name, "-w", "work"]).output().expect_code(0);
        assert!(ran.stderr.contains("a-long-id"), "{}", ran.stderr);
        assert!(shown.stdout.contains("delta continue --run-id a-long-id"), "{}", shown.stdout);
    }
}

#[test]
fn c_25_1_last_is_found_without_a_look_into_other_journals() {
    let sandbox = with_runs(&["one"]);
    sandbox.unverified("all journals but one are damaged");
    for number in 0..300 {
        sandbox.write(&format!("work/.delta/damaged{number}/journal.jsonl"), "garbage\n");
    }
    touch(&sandbox, "one");
    assert_eq!(shown(&sandbox, &[]), "one");
}
