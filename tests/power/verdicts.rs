//! What must hold of a disk after a power loss.

use crate::workloads::{ADD, APPLY, DISCARD, FORK, FORK_INTO, PACK, ROLLBACK, UNPACK};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};

/// Where every run is that a workload begins with.
const RUN_DIR: &str = "work/.delta/r";
const MAX_PROCESSES: usize = 8;

/// A run, by what tools, the LLM and the reader of stdout have seen of it.
pub struct Seen {
    /// The arguments of the notes that have had their effect.
    ledger: Vec<String>,
    /// How many answers the LLM had given before its last request.
    answers: Option<usize>,
    /// The events that were printed.
    events: Vec<String>,
    /// The command lines that have ended, each with its exit code.
    exits: Vec<String>,
    /// Whether the second question was answered.
    has_second_answer: bool,
}

impl Seen {
    pub fn read(sandbox: &Sandbox) -> Self {
        let lines = |name: &str| {
            let text = sandbox.read(&format!("witness/{name}"));
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            whole.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        let requests = lines("requests").into_iter();
        let answers = requests.filter_map(|line| line.strip_prefix("agent ")?.parse().ok()).max();
        let is_event = |line: &String| line.starts_with("{\"type\":\"");
        let events = lines("stdout").into_iter().filter(is_event).collect();
        let has_second_answer = !lines("answers").is_empty();
        Self { ledger: lines("ledger"), answers, events, exits: lines("exits"), has_second_answer }
    }

    fn is_nothing(&self) -> bool {
        self.ledger.is_empty() && self.answers.is_none() && self.events.is_empty()
    }

    /// Whether a command that begins with these words has succeeded.
    pub fn has_ended(&self, command: &str) -> bool {
        let start = format!("{command} ");
        self.exits.iter().any(|exit| exit.starts_with(&start) && exit.ends_with(" 0"))
    }
}

/// The journals of a run; one that is owned by turns has several.
fn journals(sandbox: &Sandbox, run_dir: &str) -> Vec<String> {
    let names = sandbox.files(run_dir).into_iter();
    let names = names.filter(|name| {
        let file = name.rsplit('/').next().unwrap_or_default();
        file.contains("journal") && !file.contains("torn") && !file.ends_with(".tmp")
    });
    let read = |name: String| fs::read(sandbox.path(run_dir).join(name)).unwrap();
    names.map(|name| String::from_utf8_lossy(&read(name)).into_owned()).collect()
}

/// Everything that was seen is in the journal.
fn check_seen(sandbox: &Sandbox, seen: &Seen) {
    let journals = journals(sandbox, RUN_DIR);
    let has_all = |journal: &String| {
        let parsed = journal.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let events: Vec<Value> = parsed.collect();
        let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        let requested = |note: &String| {
            let mut requests = events.iter().filter(|event| event["type"] == "ACTION_REQUEST");
            requests
                .any(|event| event["tool_args"]["text"] == **note || event["tool_name"] == **note)
        };
        let calls: usize = events
            .iter()
            .filter(|event| event["type"] == "THOUGHT")
            .take(seen.answers.unwrap_or_default())
            .map(|event| event["tool_calls"].as_array().map_or(0, Vec::len))
            .sum();
        seen.events.iter().all(|line| journal.contains(line.as_str()))
            && seen.ledger.iter().filter(|note| *note != "c" || !is_nested(sandbox)).all(requested)
            && count("THOUGHT") >= seen.answers.unwrap_or_default()
            && count("ACTION_RESULT") >= calls
    };
    if !seen.is_nothing() {
        assert!(journals.iter().any(has_all), "something that was seen is not in the journal");
    }
}

/// Every request that the LLM has seen is in the budget of the run, if it has limits.
fn check_budget(sandbox: &Sandbox, seen: &Seen) {
    let is_limited = sandbox.read("agent/agent.yaml").contains("max_tokens");
    let Some(answers) = seen.answers.filter(|_| is_limited) else { return };
    let files = sandbox.files(RUN_DIR).into_iter();
    let ledgers = files.filter(|file| file.contains("budget.") && file.ends_with(".jsonl"));
    let reserved = ledgers.map(|file| {
        let bytes = fs::read(sandbox.path(RUN_DIR).join(file)).unwrap();
        String::from_utf8_lossy(&bytes).matches("{\"type\":\"reserve\"").count()
    });
    assert!(reserved.max() > Some(answers), "a request is not in the budget");
}

/// Whether a call of the run is a run, which makes note `c`.
fn is_nested(sandbox: &Sandbox) -> bool {
    sandbox.path("inner").exists()
}

/// Runs delta, which may fail but not panic.
pub fn command<const N: usize>(sandbox: &Sandbox, args: [&str; N]) -> Ran {
    let ran = sandbox.delta(args).output();
    assert!(!ran.stderr.contains("panicked"), "{args:?}: {ran:?}");
    ran
}

/// Removes a hole in the journal, and the lines after it, as the error proposes: they are not durable either, but delta
/// cannot know that nothing has seen them.
pub fn remove_hole(sandbox: &Sandbox, seen: &Seen) {
    let has_hole = journals(sandbox, RUN_DIR).into_iter().any(|journal| {
        let rest = journal.find('\0').and_then(|hole| journal[hole..].split_once('\n'));
        rest.is_some_and(|(_, rest)| !rest.is_empty())
    });
    if !has_hole {
        return;
    }
    let shown = command(sandbox, ["show", "r", "-w", "work"]);
    if shown.code == 0 {
        // By turns, the hole can be in a journal that does not count, or behind the end of the one that does.
        return;
    }
    let remedy = shown.stderr.split_once("to continue without it and what follows: ");
    let (_, remedy) = remedy.unwrap_or_else(|| panic!("{shown:?}"));
    let status = Command::new("sh").args(["-c", remedy]).status().unwrap();
    assert!(status.success(), "{remedy}");
    check_seen(sandbox, seen);
}

/// Whether the run has an event.
pub fn has_begun(sandbox: &Sandbox) -> bool {
    let shown = command(sandbox, ["show", "r", "-w", "work"]);
    let never = ["never began", "there is no run", "no such directory", "no runs"];
    let is_missing = never.iter().any(|text| shown.stderr.contains(text));
    assert!(shown.code == 0 || is_missing, "show: {shown:?}");
    shown.code == 0
}

/// The chain of a run holds, and so do its seals; records may be missing, because they are not synced.
pub fn check_integrity(sandbox: &Sandbox, run: &str, work: &str, may_be_torn: bool) {
    let ran = command(sandbox, ["verify", run, "-w", work, "--format", "json"]);
    assert!([0, 3].contains(&ran.code), "verify: {ran:?}");
    for report in ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let reports = [vec![report.clone()], report["children"].as_array().unwrap().clone()];
        for check in
            reports.iter().flatten().flat_map(|report| report["checks"].as_array().unwrap())
        {
            let findings = check["findings"].as_array().unwrap();
            // A last line of which some sectors were lost was never acknowledged.
            let lines = check["detail"].as_str().unwrap().split(' ').next().unwrap();
            let is_torn = |finding: &Value| {
                let finding = finding.as_str().unwrap();
                finding.contains("torn") || finding == format!("line {lines} was changed")
            };
            let excused = match check["check"].as_str().unwrap() {
                "records" | "configuration" => true,
                "chain" => may_be_torn && findings.iter().all(is_torn),
                _ => false,
            };
            assert!(check["state"] != "broken" || excused, "verify: {check}");
        }
    }
}

/// Continues run `r` with what it needs until it has its result, or repeats its beginning.
pub fn drive_to_the_end(sandbox: &Sandbox) {
    for _ in 0..MAX_PROCESSES {
        let ran = command(sandbox, ["continue", "r", "-w", "work", "--format", "raw"]);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        let next = if text.contains("Run is COMPLETED") || ran.stdout == "all done\n" {
            return;
        } else if text.contains("WAITING_FOR_INPUT") {
            command(sandbox, ["continue", "r", "-w", "work", "--format", "raw", "-myes"])
        } else if text.contains("has no task") {
            command(sandbox, ["continue", "r", "-w", "work", "--format", "raw", "-mgo"])
        } else if !has_begun(sandbox) {
            sandbox.run("go", &["--format", "raw"])
        } else {
            ran
        };
        // A call may kill the engine again, if its first request was lost.
        assert!([-1, 0, 101].contains(&next.code), "the run does not continue: {next:?}");
        if next.stdout == "all done\n" {
            return;
        }
    }
    panic!("the run does not come to an end");
}

/// Every note has had its effect once, or its outcome is unknown.
fn check_effects(sandbox: &Sandbox) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for line in sandbox.read("witness/ledger").lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    let twice = counts.iter().find(|(_, count)| **count > 1);
    assert_eq!(twice, None, "a call had its effect twice");
    let unknown = |text: &String| text.contains("outcome") || text.contains("unknown");
    let unknown = sandbox.observations().iter().filter(|text| unknown(text)).count();
    let requests = sandbox.events("ACTION_REQUEST").into_iter();
    let notes =
        requests.filter_map(|request| Some(request["tool_args"]["text"].as_str()?.to_owned()));
    let mut notes: BTreeSet<String> = notes.collect();
    notes.extend(is_nested(sandbox).then(|| "c".to_owned()));
    let missing = notes.iter().filter(|note| !counts.contains_key(*note)).count();
    assert!(missing <= unknown, "{missing} effects are missing, {unknown} outcomes are unknown");
}

/// The events are numbered, and each call has one result and one request; only a call that waits for its command or asks
/// for its task again has more requests.
fn check_calls(sandbox: &Sandbox) {
    const WAITING: [&str; 3] = ["last", "leave", "s__job"];
    let mut phases: HashMap<String, &str> = HashMap::new();
    for (index, event) in sandbox.journal().iter().enumerate() {
        assert_eq!(event["seq"], index + 1);
        let id = event["call_id"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap() {
            "ACTION_REQUEST" => {
                let earlier = phases.insert(id, "open");
                let is_waiting = WAITING.contains(&event["tool_name"].as_str().unwrap());
                assert!(earlier.is_none() || earlier == Some("open") && is_waiting, "{event}");
            }
            "ACTION_RESULT" => assert_eq!(phases.insert(id, "done"), Some("open"), "{event}"),
            _ => {}
        }
    }
    assert!(phases.values().all(|phase| *phase == "done"), "calls without a result: {phases:?}");
}

/// A run that was interrupted: nothing that was seen is lost, and it comes to its end.
pub fn finish_and_check(sandbox: &Sandbox) {
    let seen = Seen::read(sandbox);
    remove_hole(sandbox, &seen);
    let begun = has_begun(sandbox);
    assert!(begun || seen.is_nothing(), "the run is lost");
    check_seen(sandbox, &seen);
    check_budget(sandbox, &seen);
    if begun {
        check_integrity(sandbox, "r", "work", true);
    }
    if begun && !seen.has_second_answer {
        command(sandbox, ["continue", "r", "-w", "work", "--format", "raw"]);
        let journals = journals(sandbox, RUN_DIR).into_iter();
        let answers = journals.map(|journal| journal.matches("HUMAN_INPUT_RECEIVED").count());
        assert!(answers.max() < Some(2), "the answer to a question counts for the next one");
    }
    drive_to_the_end(sandbox);
    check_seen(sandbox, &seen);
    check_calls(sandbox);
    check_effects(sandbox);
    check_integrity(sandbox, "r", "work", false);
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
}

/// The files of the workspace with their contents, without runs.
pub fn workspace_files(sandbox: &Sandbox, work: &str) -> Vec<(String, String)> {
    let names = sandbox.files(work).into_iter().filter(|name| !name.starts_with(".delta"));
    names.map(|name| (name.clone(), sandbox.read(&format!("{work}/{name}")))).collect()
}

fn names_of(files: &[(String, String)]) -> Vec<&str> {
    files.iter().map(|(name, _)| name.as_str()).collect()
}

/// A fork is whole, or its run never began and the same command makes it.
fn check_fork_in<const N: usize>(sandbox: &Sandbox, args: [&str; N], work: &str) {
    let seen = Seen::read(sandbox);
    let shown = command(sandbox, ["show", "f", "-w", work]);
    if shown.code != 0 {
        assert!(!seen.has_ended("fork"), "the fork is lost: {shown:?}");
        let again = command(sandbox, args);
        if again.stderr.contains("is not empty") {
            // What is in the new directory may be of a user: as after a kill, it has to be removed.
            fs::remove_dir_all(sandbox.path(work)).unwrap();
            command(sandbox, args).expect_code(0);
        } else {
            again.expect_code(0);
        }
    }
    check_integrity(sandbox, "f", work, false);
    check_integrity(sandbox, "r", "work", false);
    if work != "work" {
        let files = workspace_files(sandbox, work);
        assert_eq!(names_of(&files), ["changed", "notes", "old/file"]);
        assert_eq!(sandbox.read(&format!("{work}/notes")), "a\nb\n");
    }
    command(sandbox, ["continue", "f", "-w", work, "--format", "raw"]).expect_code(0);
    check_integrity(sandbox, "f", work, false);
}

/// A fork in the workspace of its run.
pub fn check_fork(sandbox: &Sandbox) {
    check_fork_in(sandbox, FORK, "work");
}

/// A fork in a new workspace, with its files.
pub fn check_fork_into(sandbox: &Sandbox) {
    check_fork_in(sandbox, FORK_INTO, "copy/of/work");
}

/// A rollback that has ended needs no repetition; one that was interrupted is completed by repeating it, and can be undone.
pub fn check_rollback(sandbox: &Sandbox) {
    const BEFORE: [&str; 2] = ["changed", "old/file"];
    const AFTER: [&str; 4] = ["changed", "new/deep/n", "new/link", "notes"];
    let seen = Seen::read(sandbox);
    remove_hole(sandbox, &seen);
    check_integrity(sandbox, "r", "work", true);
    if seen.has_ended("rollback") {
        assert_eq!(names_of(&workspace_files(sandbox, "work")), BEFORE, "the rollback is undone");
        assert_eq!(sandbox.read("work/changed"), "1\n", "the rollback is undone");
    }
    let journal = journals(sandbox, RUN_DIR).concat();
    let events = journal.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let rollback = events.into_iter().find(|event| event["type"] == "ROLLBACK");
    let saved = rollback.map(|event| event["saved"].clone());
    command(sandbox, ROLLBACK).expect_code(0);
    assert_eq!(names_of(&workspace_files(sandbox, "work")), BEFORE);
    assert_eq!(sandbox.read("work/changed"), "1\n");
    assert_eq!(sandbox.read("work/old/file"), "old\n");
    let saved = saved.unwrap_or_else(|| sandbox.events("ROLLBACK")[0]["saved"].clone());
    let saved = saved.as_str().unwrap();
    command(sandbox, ["rollback", "r", "-w", "work", "--to", saved]).expect_code(0);
    assert_eq!(names_of(&workspace_files(sandbox, "work")), AFTER);
    assert_eq!(sandbox.read("work/changed"), "2\n");
    // No snapshot of an iteration has it.
    assert_eq!(sandbox.read("work/notes"), "a\nb\nc\nmine\n");
    check_integrity(sandbox, "r", "work", false);
}

/// The staged changes are in the workspace.
fn check_applied(sandbox: &Sandbox) {
    let files = workspace_files(sandbox, "work");
    assert_eq!(names_of(&files), ["changed", "new/deep/n", "new/link"]);
    assert_eq!(sandbox.read("work/changed"), "2\n");
    assert_eq!(sandbox.read("work/new/link"), "n\n");
    let left = sandbox.files("work");
    assert_eq!(left.iter().find(|name| name.contains("restore")), None);
}

/// An apply that has ended needs no repetition; one that was interrupted is completed by repeating it.
pub fn check_apply(sandbox: &Sandbox) {
    let seen = Seen::read(sandbox);
    remove_hole(sandbox, &seen);
    check_integrity(sandbox, "r", "work", true);
    if seen.has_ended("apply") {
        check_applied(sandbox);
    }
    command(sandbox, APPLY).expect_code(0);
    check_applied(sandbox);
    check_integrity(sandbox, "r", "work", false);
}

/// A discard that has ended needs no repetition, and can be undone in any case.
pub fn check_discard(sandbox: &Sandbox) {
    let seen = Seen::read(sandbox);
    remove_hole(sandbox, &seen);
    check_integrity(sandbox, "r", "work", true);
    if seen.has_ended("discard") {
        command(sandbox, ["diff", "r", "-w", "work"]).expect_code(0);
    }
    command(sandbox, DISCARD).expect_code(0);
    assert_eq!(names_of(&workspace_files(sandbox, "work")), ["changed", "old/file"]);
    assert_eq!(sandbox.read("work/changed"), "1\n");
    let saved = sandbox.events("DISCARD")[0]["saved"].as_str().unwrap().to_owned();
    command(sandbox, ["rollback", "r", "-w", "work", "--to", &saved]).expect_code(0);
    command(sandbox, APPLY).expect_code(0);
    check_applied(sandbox);
    check_integrity(sandbox, "r", "work", false);
}

fn check_pack_state(sandbox: &Sandbox, args: [&str; 5]) {
    let seen = Seen::read(sandbox);
    let is_packed = || sandbox.path(RUN_DIR).join("io.pack").exists();
    if seen.has_ended(args[0]) {
        assert_eq!(is_packed(), args[0] == "pack", "`{}` is undone", args[0]);
    }
    // Every record can be read, now and after it was done again.
    let replay = ["replay", "r", "-w", "work"];
    command(sandbox, replay).expect_code(0);
    command(sandbox, args).expect_code(0);
    assert_eq!(is_packed(), args[0] == "pack");
    command(sandbox, replay).expect_code(0);
    command(sandbox, ["verify", "r", "-w", "work"]).expect_code(0);
    command(sandbox, UNPACK).expect_code(0);
    command(sandbox, ["verify", "r", "-w", "work"]).expect_code(0);
}

/// A packed run has all of its records, packed or not.
pub fn check_packed(sandbox: &Sandbox) {
    check_pack_state(sandbox, PACK);
}

/// The same of an unpacked run.
pub fn check_unpacked(sandbox: &Sandbox) {
    check_pack_state(sandbox, UNPACK);
}

/// The name of an installed agent is the old tree or the new one, all of it, and the next command finishes the update.
pub fn check_added(sandbox: &Sandbox) {
    let agent = "home/.local/share/delta/agents/agent";
    let prompt = sandbox.read(&format!("{agent}/system_prompt.md"));
    assert!(prompt == "Work more.\n" || prompt == "You are a test.\n", "{prompt}");
    command(sandbox, ["add", "--list"]).expect_code(0);
    let tree = fs::read_link(sandbox.path(agent)).unwrap();
    let lock = sandbox.read("home/.local/share/delta/agents.lock.json");
    assert!(lock.contains(tree.file_name().unwrap().to_str().unwrap()), "{lock}");
    // It also compares every file with the hash.
    command(sandbox, ADD).expect_code(0);
    assert_eq!(sandbox.read(&format!("{agent}/system_prompt.md")), "Work more.\n");
}
