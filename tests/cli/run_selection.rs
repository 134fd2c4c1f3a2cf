//! `list-runs` over many workspaces: what it finds, selects, adds up and shows at a terminal (C-25.5, C-25.7).

use super::DELTA;
use super::runs::{STATES, TOOLS, code_of};
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, SystemTime};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};

/// Runs `id` in the workspace `work` with the scripted `turn`.
fn run_turn(sandbox: &Sandbox, work: &str, id: &str, turn: &str, code: i32) {
    sandbox.write("agent/script.yaml", format!("turns:\n{turn}"));
    let args = ["run", "--agent", "agent", "-w", work, "--run-id", id, "-m", "a task", "-q"];
    sandbox.delta(args).output().expect_code(code);
}

/// Workspaces at several depths: `a` with a completed run, `a/deep/b` with a failed one, `c` with one that waits.
fn several_workspaces() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "");
    run_turn(&sandbox, "all/a", "one", "- say: done\n", 0);
    run_turn(&sandbox, "all/a/deep/b", "two", "- error: broken\n", 1);
    run_turn(&sandbox, "all/c", "three", "- call: [{tool: ask_human, args: {prompt: Go?}}]\n", 101);
    sandbox
}

fn list(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["list-runs"].iter().chain(more).copied()).output()
}

fn ids(sandbox: &Sandbox, more: &[&str]) -> Vec<String> {
    let listed = list(sandbox, &[more, &["--format", "json"]].concat()).expect_code(0).json();
    let id = |run: &Value| run["run_id"].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(id).collect()
}

#[test]
fn c_25_7_runs_of_all_workspaces_below() {
    let sandbox = several_workspaces();
    assert_eq!(ids(&sandbox, &["-r", "all"]), ["three", "two", "one"]);
    assert_eq!(ids(&sandbox, &["-r"]), ["three", "two", "one"]);
    assert_eq!(ids(&sandbox, &["-r", "all/a", "all/a/deep"]), ["two", "one"]);
    assert_eq!(ids(&sandbox, &["-r", "agent"]), Vec::<String>::new());
    let listed = list(&sandbox, &["-r", "--format", "json"]).json();
    let workspace = |at: usize| listed[at]["workspace"].as_str().unwrap().to_owned();
    assert_eq!(workspace(1), sandbox.path("all/a/deep/b").to_string_lossy());
    let text = list(&sandbox, &["-r", "all"]).expect_code(0).stdout;
    let ends: Vec<&str> = text.lines().map(|line| line.rsplit_once("  ").unwrap().1).collect();
    assert_eq!(ends, ["all/c", "all/a/deep/b", "all/a"]);
    let first = list(&sandbox, &["-r", "--first"]).normal(&sandbox);
    first.expect(0, "DIR/all/c/.delta/three\n", "");
    let shown = sandbox.delta(["show", sandbox.path("all/c/.delta/three").to_str().unwrap()]);
    shown.output().expect_code(0);
    let missing = "error: could not open the workspace nowhere: there is no such directory\n";
    list(&sandbox, &["-r", "nowhere"]).expect(126, "", missing);
    list(&sandbox, &["-r", "all", "-w", "all/a"]).expect_code(2);
}

#[test]
fn c_25_7_what_cannot_be_read_is_one_note_and_no_error() {
    let sandbox = several_workspaces();
    sandbox.write("all/later/.delta/VERSION", "99\n");
    sandbox.write("all/odd/.delta/sub/x", "");
    let ran = list(&sandbox, &["-r", "--status", "completed"]).normal(&sandbox).expect_code(0);
    assert!(ran.stdout.starts_with("one  COMPLETED"), "{}", ran.stdout);
    let note = "Note: the runs in DIR/all/later/.delta have layout 99; this version of delta supports layout 1\n";
    assert_eq!(ran.stderr, note);
    sandbox.unverified("a later version wrote one of its workspaces");
}

#[test]
fn c_25_7_a_directory_that_cannot_be_read_is_in_the_note() {
    let sandbox = several_workspaces();
    // Nor can root read it: its path is too long.
    let name = "n".repeat(255);
    let mut dir = open(sandbox.path("all"), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..17 {
        mkdirat(&dir, &name, Mode::RWXU).unwrap();
        dir = openat(&dir, &name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let ran = list(&sandbox, &["-r", "all"]).expect_code(0);
    assert_eq!(ran.stdout.lines().count(), 3, "{}", ran.stdout);
    let is_named = ran.stderr.starts_with("Note: ") && ran.stderr.contains(": File name too long");
    assert!(is_named, "{}", ran.stderr);
    sandbox.unverified("a path in it is too long");
}

#[test]
fn c_25_7_filters_select_and_name_what_is_valid() {
    let sandbox = several_workspaces();
    let r = |more: &[&str]| ids(&sandbox, &[&["-r"], more].concat());
    assert_eq!(r(&["--status", "FAILED,waiting_for_input"]), ["three", "two"]);
    assert_eq!(r(&["--status", "FAILED", "--status", "COMPLETED"]), ["two", "one"]);
    assert_eq!((r(&["-n", "2"]), r(&["-n", "9"]).len()), (vec!["three".into(), "two".into()], 3));
    assert_eq!(r(&["--agent", "test-agent"]).len(), 3);
    assert_eq!(r(&["--agent", "test"]), Vec::<String>::new());
    assert_eq!((r(&["--since", "1h"]).len(), r(&["--since", "0s"]).len()), (3, 0));
    assert_eq!(r(&["--since", "2001-01-01T00:00:00+02:00"]).len(), 3);
    assert_eq!(r(&["--since", "2999-01-01T00:00:00Z"]).len(), 0);
    for (option, value, expected) in [
        (
            "--status",
            "DONE",
            "[possible values: RUNNING, WAITING_FOR_INPUT, COMPLETED, FAILED, INTERRUPTED, DAMAGED]",
        ),
        ("--since", "2", "such as 90s, 12h or 2d, a moment such as 2026-11-21T12:30:00Z, or a day"),
        (
            "--since",
            "yesterday",
            "such as 90s, 12h or 2d, a moment such as 2026-11-21T12:30:00Z, or a day",
        ),
        ("-n", "0", "expected a whole number of at least 1"),
    ] {
        let refused = list(&sandbox, &["-r", option, value]).expect_code(2);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
}

#[test]
fn c_25_5_no_run_has_cost_nothing_without_a_sign() {
    let sandbox = Sandbox::new(DELTA);
    let listed = list(&sandbox, &["--cost"]).expect_code(0);
    assert!(!listed.stdout.contains('-'), "{}", listed.stdout);
    let listed = list(&sandbox, &["-r", "--cost"]).expect_code(0);
    assert!(!listed.stdout.contains("-0"), "{}", listed.stdout);
}

#[test]
fn c_25_5_costs_and_their_totals() {
    let server = ScriptedServer::start(vec![
        Answer::text("a").usage(1200, 30),
        Answer::text("b").usage(800, 70),
        Answer::text("c").usage(10, 20),
    ]);
    let sandbox = Sandbox::new(DELTA);
    let priced =
        format!("model: m\n  base_url: {}\n  pricing: {{input: 10, output: 100}}", server.url());
    sandbox.agent(&priced, "");
    let run = |work: &str, id: &str| {
        let args = ["run", "--agent", "agent", "-w", work, "--run-id", id, "-m", "a task", "-q"];
        sandbox.delta(args).output().expect_code(0);
    };
    run("a", "one");
    run("b", "two");
    let text = list(&sandbox, &["-r", "--cost"]).expect_code(0).stdout;
    assert!(text.contains("  800 in  0 cached  70 out  0.0150 USD  b\n"), "{text}");
    assert!(
        text.ends_with("\nTotal of 2 runs: 2000 tokens in (0 cached), 100 out, 0.0300 USD\n"),
        "{text}"
    );
    sandbox.agent(&format!("model: m\n  base_url: {}", server.url()), "");
    run("b", "three");
    let text = list(&sandbox, &["-r", "--cost"]).expect_code(0).stdout;
    assert!(text.contains("  10 in  0 cached  20 out  unknown USD  b\n"), "{text}");
    let total = "Total of 3 runs: 2010 tokens in (0 cached), 120 out, 0.0300 USD; the cost of 1 run is unknown\n";
    assert!(text.ends_with(total), "{text}");
    let listed = list(&sandbox, &["-r", "--format", "json"]).json();
    let fields = |at: usize| {
        (
            listed[at]["input_tokens"].clone(),
            listed[at]["output_tokens"].clone(),
            listed[at]["cost_usd"].clone(),
        )
    };
    assert_eq!(fields(0), (json!(10), json!(20), json!(null)));
    assert_eq!(fields(2), (json!(1200), json!(30), json!(0.015)));
}

/// The lines that a terminal with so many columns shows, without colours.
fn at_terminal(sandbox: &Sandbox, columns: u16, more: &[&str]) -> (Vec<String>, String) {
    let command = sandbox.delta(["list-runs"].iter().chain(more).copied());
    let shown = command.wholly_at_terminal_of(columns, 40).end().expect_code(0).stderr;
    let mut plain = String::new();
    let mut chars = shown.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            chars.by_ref().find(|c| *c == 'm');
        } else {
            plain.push(c);
        }
    }
    (plain.lines().map(str::to_owned).collect(), shown)
}

#[test]
fn c_25_7_a_terminal_gets_columns_with_a_header_and_one_line_a_run() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    let task = "漢字漢字 the task, which is far longer than the line that a terminal of eighty columns has";
    let deep = "a-workspace-with-a-long-name/and-another-one-below-it";
    let args = ["run", "--agent", "agent", "-w", deep, "--run-id", "FAILED-1", "-m", task, "-q"];
    sandbox.delta(args).output().expect_code(0);
    run_turn(&sandbox, "work", "r", "- error: broken\n", 1);
    let (lines, shown) = at_terminal(&sandbox, 80, &["-r"]);
    assert_eq!(
        lines[0].trim_end(),
        "RUN       STATUS     AGE  TOKENS  USD  WORKSPACE             TASK         ERROR"
    );
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[1].starts_with("r         FAILED      "), "{lines:#?}");
    assert!(lines[2].starts_with("FAILED-1  COMPLETED   "), "{lines:#?}");
    assert!(lines[2].contains("…") && lines[2].ends_with('…'), "{lines:#?}");
    assert!(shown.contains("\x1b[31mFAILED\x1b[0m"), "{shown:?}");
    assert!(!shown.contains("\x1b[31mFAILED\x1b[0m-1"), "only the status is red: {shown:?}");
    for columns in [20, 40, 60, 80, 100, 200] {
        for more in [&["-r"][..], &["-r", "--cost"], &["-w", deep]] {
            let (lines, _) = at_terminal(&sandbox, columns, more);
            for line in lines.iter().filter(|line| !line.starts_with("Total of")) {
                let wide = line.chars().filter(|c| *c > '\u{3000}').count();
                assert!(line.chars().count() + wide <= usize::from(columns), "{columns}: {line}");
            }
        }
    }
    let command = sandbox.delta(["list-runs", "-r"]).env("NO_COLOR", "1");
    let plain = command.wholly_at_terminal().end().stderr;
    assert!(plain.contains("FAILED") && !plain.contains('\x1b'), "{plain:?}");
    // A pipe gets all of the text, and no header.
    let piped = list(&sandbox, &["-r"]).stdout;
    assert!(piped.starts_with("r         FAILED     \"a task\""), "{piped}");
    assert!(piped.contains(deep), "{piped}");
    let none = sandbox.delta(["list-runs", "-r", "--status", "RUNNING"]).wholly_at_terminal().end();
    assert_eq!(none.stderr, "Note: none of 2 runs matches\n");
}

/// The ends of a journal are enough only if nothing was written after its engine left.
#[test]
fn c_5_4_a_list_shows_what_the_journal_says() {
    let sandbox = several_workspaces();
    sandbox.unverified("its metadata and journals are changed");
    let metadata = "all/a/.delta/one/metadata.json";
    let lie = sandbox.read(metadata).replace("COMPLETED", "INTERRUPTED").replace("a task", "lie");
    sandbox.write(metadata, lie);
    let journal = "all/a/.delta/one/journal.jsonl";
    let set_older = |path: &str, seconds: u64| {
        let file = fs::File::options().write(true).open(sandbox.path(path)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    };
    let listed = |sandbox: &Sandbox| {
        let run = list(sandbox, &["-w", "all/a", "--format", "json"]).json()[0].clone();
        (run["status"].clone(), run["task_summary"].clone())
    };
    for seconds in [9, 0] {
        set_older(journal, seconds);
        assert_eq!(listed(&sandbox), (json!("COMPLETED"), json!("a task")), "{seconds}");
    }
    // Damage in the middle is found in a journal that is younger than the metadata.
    let damaged = sandbox.read(journal).replacen("\"seq\":2", "\"seq\":7", 1);
    sandbox.write(journal, damaged);
    assert_eq!(listed(&sandbox).0, json!("DAMAGED"));
}

#[test]
fn c_25_7_every_state_is_listed_alike_from_the_ends_and_from_the_whole_journal() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "");
    for (state, turn) in STATES {
        run_turn(&sandbox, "work", state, turn, code_of(state));
    }
    let set_times = |age: u64| {
        for (state, _) in STATES {
            let path = sandbox.path(&format!("work/.delta/{state}/metadata.json"));
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(age)).unwrap();
        }
    };
    let listed = || list(&sandbox, &["-w", "work", "--format", "json"]).json();
    set_times(0);
    let from_all_lines = listed();
    set_times(32_503_680_000);
    assert_eq!(listed(), from_all_lines);
    assert_eq!(from_all_lines.as_array().unwrap().len(), STATES.len());
}
