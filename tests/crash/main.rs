//! Killed anywhere, continued everywhere: the journal cut, and the engine killed or failed at each of its durable
//! operations. Effects are counted by a tool that appends to a ledger; a call counts once, however often the engine dies.
//!
//! `DELTA_LONG_TESTS=1` cuts at every byte instead of around every line end.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, start real processes, and print figures"
)]

use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use test_support::effort::{cases, in_parallel};
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::Gate;
use test_support::wait::{processes_with, until};

mod add;
mod approvals;
mod failpoints;
mod fallback;
mod gates;
mod mcp;
mod messages;
mod packs;
mod staged;
mod surviving;
mod transfer;
mod turns;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// `note` has an effect; `fail` has one and fails.
const TOOLS: &str = "  - name: note\n    shell: echo ${text} >> ledger; echo noted ${text}\n  \
                     - name: fail\n    shell: echo ${text} >> ledger; exit 3\n";

/// Several calls in an answer, a failing tool, an unknown one, a question in the middle of an answer, a second answer
/// after a further user message.
const TURNS: &str = "\
- say: first
  call: [{tool: note, args: {text: a}}, {tool: fail, args: {text: b}}, {tool: nothing, args: {}}]
- call: [{tool: note, args: {text: c}}, {tool: ask_human, args: {prompt: Really?}}, {tool: note, args: {text: d}}]
- call: [{tool: note, args: {text: e}}]
- say: done once
- call: [{tool: note, args: {text: f}}]
- say: done twice
";

/// The same effects, three calls at the same time.
const PARALLEL_TURNS: &str = "\
- say: first
  call: [{tool: note, args: {text: a}}, {tool: fail, args: {text: b}}, {tool: note, args: {text: c}}]
- call: [{tool: ask_human, args: {prompt: Really?}}, {tool: note, args: {text: d}}, {tool: note, args: {text: e}}]
- say: done once
- call: [{tool: note, args: {text: f}}]
- say: done twice
";

/// What the ledger holds at the end.
const NOTES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn sandbox() -> Sandbox {
    Sandbox::scripted(DELTA, TOOLS, TURNS)
}

/// The same agent with hooks: a gate before each tool, and a witness of every iteration.
fn hooked() -> Sandbox {
    let sandbox = sandbox();
    let moments = ["pre_tool_execution", "post_tool_execution", "on_iteration_start"];
    let moments = moments.iter().chain(&["on_iteration_end", "on_run_end"]);
    let hooks: String = moments.map(|name| format!("{name}: {{command: ['true']}}\n")).collect();
    sandbox.write("agent/hooks.yaml", hooks);
    sandbox
}

/// Checks what must hold of a finished run with hooks: each tool passed its gate directly before its request, and each
/// iteration began and ended once.
fn check_hooks(sandbox: &Sandbox) {
    let events = sandbox.journal();
    for pair in events.windows(2).filter(|pair| pair[1]["argv"].is_array()) {
        assert_eq!(pair[0]["hook"], "pre_tool_execution", "a tool went round its gate");
    }
    let times = |hook: &str| -> Vec<&Value> {
        let is_it = |event: &&Value| event["hook"] == hook && event["exit_code"] == 0;
        events.iter().filter(is_it).map(|event| &event["iteration"]).collect()
    };
    for hook in ["on_iteration_start", "on_iteration_end"] {
        assert_eq!(times(hook), [1, 2, 3, 4, 5, 6], "{hook}");
    }
}

/// An agent whose tools are parallel.
fn parallel() -> Sandbox {
    let tools = TOOLS.replace("    shell:", "    parallel: true\n    shell:");
    Sandbox::scripted(DELTA, &tools, PARALLEL_TURNS)
}

/// The same with a gate before each tool and a filter after it.
fn parallel_hooked() -> Sandbox {
    let sandbox = parallel();
    let moments = ["pre_tool_execution", "post_tool_execution"];
    let hooks: String =
        moments.iter().map(|name| format!("{name}: {{command: ['true']}}\n")).collect();
    sandbox.write("agent/hooks.yaml", hooks);
    sandbox
}

/// Checks what must hold of a finished run of parallel tools: three calls were requested together, and the results of an
/// answer are in the order of its calls.
fn check_parallel(sandbox: &Sandbox) {
    let mut gates = 0;
    let mut calls: Vec<Value> = Vec::new();
    for event in sandbox.journal() {
        match event["type"].as_str().unwrap() {
            "THOUGHT" => {
                let ids = event["tool_calls"].as_array().unwrap().iter();
                calls = ids.map(|call| call["id"].clone()).rev().collect();
                gates = 0;
            }
            "HOOK_EXECUTION" => gates += usize::from(event["hook"] == "pre_tool_execution"),
            "ACTION_REQUEST" if sandbox.path("agent/hooks.yaml").exists() => {
                let starts = usize::from(event["argv"].is_array());
                assert!(gates >= starts, "a tool went round its gate");
                gates -= starts;
            }
            "ACTION_RESULT" => assert_eq!(calls.pop().as_ref(), Some(&event["call_id"])),
            _ => {}
        }
    }
}

/// Continues run `r` with what it needs until it has its last result. Gives how often that took a process.
fn drive_to_the_end(sandbox: &Sandbox) -> usize {
    for processes in 1..=12 {
        let ran = resume(sandbox, &[]);
        if ran.code == 0 && ran.stdout == "done twice\n" {
            return processes;
        }
        let wants = format!("{}{}", ran.stdout, ran.stderr);
        let said = if wants.contains("WAITING_FOR_INPUT") {
            resume(sandbox, &["-m", "yes"])
        } else if wants.contains("Run is COMPLETED") || ran.stdout == "done once\n" {
            resume(sandbox, &["-m", "again"])
        } else if wants.contains("never began") {
            sandbox.run("go", &["--format", "raw"])
        } else if wants.contains("has no task") {
            resume(sandbox, &["-m", "go"])
        } else {
            panic!("a continued run may not end like this: {ran:?}");
        };
        if said.code == 0 && said.stdout == "done twice\n" {
            return processes;
        }
    }
    panic!("the run does not come to an end:\n{}", sandbox.read("work/.delta/r/journal.jsonl"));
}

fn resume(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

/// Checks what must hold of every finished run: numbered events, each call with one request and one result, in order.
fn check_journal(sandbox: &Sandbox) {
    let events = sandbox.journal();
    let repeatable = ["again", "s__job", "last"];
    let mut open: HashMap<String, usize> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], index + 1);
        let id = event["call_id"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap() {
            // A call that may be repeated, that asks for its task, or that waits for its command, is requested anew.
            "ACTION_REQUEST" if repeatable.contains(&event["tool_name"].as_str().unwrap()) => {
                open.insert(id, 1);
            }
            "ACTION_REQUEST" => assert_eq!(open.insert(id, 1), None, "requested twice: {event}"),
            "ACTION_RESULT" => {
                assert_eq!(open.insert(id, 2), Some(1), "no request, or a second result: {event}")
            }
            "THOUGHT" => {
                assert!(open.values().all(|phase| *phase == 2), "asked with open calls: {event}")
            }
            _ => {}
        }
    }
    assert!(open.values().all(|phase| *phase == 2), "calls without a result: {open:?}");
}

/// Each note stands at most once in the ledger; one that is missing belongs to a call whose outcome is unknown. Gives how
/// many are missing.
fn check_ledger(sandbox: &Sandbox, notes: &[&str]) -> usize {
    let ledger = fs::read_to_string(sandbox.path("work/ledger")).unwrap_or_default();
    let unknown = sandbox
        .observations()
        .iter()
        .filter(|seen| {
            seen.contains("outcome") || seen.contains("unknown, and it was not run again")
        })
        .count();
    let mut missing = 0;
    for note in notes {
        let times = ledger.lines().filter(|line| line == note).count();
        assert!(times <= 1, "{note} took effect {times} times: {ledger:?}");
        missing += 1 - times;
    }
    assert!(missing <= unknown, "{missing} effects are missing, {unknown} outcomes are unknown");
    missing
}

/// How many numbers of a loop are tried without `DELTA_FULL_TESTS`.
const POINTS_IN_THE_GATE: usize = 8;

/// Of the points, all with `DELTA_FULL_TESTS`, else the first and others at equal distances. `DELTA_CRASH_POINTS=N` selects `N`
/// of them.
fn points<T>(all: impl ExactSizeIterator<Item = T>) -> Vec<T> {
    let count = match std::env::var("DELTA_CRASH_POINTS") {
        Ok(count) => count.parse().expect("DELTA_CRASH_POINTS is a number of points"),
        Err(_) => cases(POINTS_IN_THE_GATE, usize::MAX),
    };
    let distance = all.len().div_ceil(count).max(1);
    all.step_by(distance).collect()
}

/// Runs `test` for [`points`] of the numbers on all processors.
fn each(numbers: Vec<usize>, test: impl Fn(usize) + Sync) {
    let numbers = points(numbers.into_iter());
    let failed = in_parallel(&numbers, |number| {
        let run = std::panic::AssertUnwindSafe(|| test(*number));
        std::panic::catch_unwind(run).err().map(|_| *number)
    });
    let failed: Vec<usize> = failed.into_iter().flatten().collect();
    assert!(failed.is_empty(), "failed at {failed:?}");
}

#[test]
fn c_13_3_a_journal_cut_anywhere_goes_on_to_the_same_end() {
    let near = |journal: &[u8], cut: usize| {
        let around = &journal[cut.saturating_sub(2)..(cut + 2).min(journal.len())];
        cut.is_multiple_of(97) || around.contains(&b'\n')
    };
    cut_anywhere(sandbox, near, |_| ());
}

#[test]
fn c_9_6_a_journal_with_hooks_cut_anywhere_goes_on_to_the_same_end() {
    let line_end = |journal: &[u8], cut: usize| journal[cut - 1] == b'\n';
    cut_anywhere(hooked, line_end, check_hooks);
}

#[test]
fn c_28_9_a_journal_of_parallel_calls_cut_anywhere_goes_on_to_the_same_end() {
    let line_end = |journal: &[u8], cut: usize| journal[cut - 1] == b'\n';
    cut_anywhere(parallel, line_end, check_parallel);
    cut_anywhere(parallel_hooked, line_end, check_parallel);
}

/// The operator's key for seals.
const KEY: &str = "home/.local/state/delta/seal.key";

/// Cuts the journal of a whole run where `wanted` says, and goes on from there.
fn cut_anywhere(make: fn() -> Sandbox, wanted: fn(&[u8], usize) -> bool, check: fn(&Sandbox)) {
    let whole = make();
    whole.run("go", &[]).expect_code(101);
    drive_to_the_end(&whole);
    let journal = fs::read(whole.path("work/.delta/r/journal.jsonl")).unwrap();
    let key = whole.read(KEY);
    let long = std::env::var_os("DELTA_LONG_TESTS").is_some();
    let cuts: Vec<usize> =
        (1..journal.len()).filter(|cut| long || wanted(&journal, *cut)).collect();
    each(cuts, |cut| {
        let sandbox = make();
        // The same operator continues it.
        sandbox.write(KEY, &key);
        sandbox.write("work/.delta/r/journal.jsonl", &journal[..cut]);
        let lines = journal[..cut]
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"));
        let events: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        // What the journal says to have begun is not begun again: its effects are those of the first life.
        let begun = events.iter().filter(|event| event["argv"].is_array());
        let ledger: String = begun
            .map(|event| format!("{}\n", event["tool_args"]["text"].as_str().unwrap()))
            .collect();
        sandbox.write("work/ledger", &ledger);
        drive_to_the_end(&sandbox);
        check_journal(&sandbox);
        check_ledger(&sandbox, &NOTES);
        let notes = sandbox.read("work/ledger").lines().count();
        assert_eq!(notes, 6, "every effect once");
        check(&sandbox);
    });
}

#[test]
fn c_13_4_a_tool_that_kills_the_engine_is_not_run_again() {
    let tools = "  - name: kill\n    shell: echo killed >> ledger; echo so far; sleep 0.3; kill -9 $PPID; exec sleep 60\n  \
                 - name: again\n    shell: echo again >> ledger; test -e once && exit 0; touch once; kill -9 $PPID; exec sleep 60\n    idempotent: true\n";
    let turns = "- call: [{tool: kill}, {tool: again}]\n- say: 'seen ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    assert_eq!(sandbox.run("go", &[]).code, -1);
    assert_eq!(resume(&sandbox, &[]).code, -1, "the second call kills it again");
    resume(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/ledger"), "killed\nagain\nagain\n");
    let seen = sandbox.observations();
    assert!(
        seen[0].contains("whether it took effect is unknown") && seen[0].contains("so far"),
        "{seen:?}"
    );
    check_journal(&sandbox);
}

/// A small deterministic source of chance.
struct Chance(u64);

impl Chance {
    /// Below `limit`, by splitmix64.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

/// The seed of this test run, by which `DELTA_SEED` repeats it.
fn random_seed() -> u64 {
    let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let given = std::env::var("DELTA_SEED").ok();
    let seed = given.map_or_else(|| clock().as_secs(), |seed| seed.parse().expect("a number"));
    println!("DELTA_SEED={seed}");
    seed
}

/// Kills a process after `micros`, unless it has ended before that. Gives what it did.
fn kill_after(command: Delta, micros: u64) -> Ran {
    let mut child = command.spawn();
    Gate::new().wait(Some(Duration::from_micros(micros)));
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

/// Several short tools, two to an answer.
fn busy() -> Sandbox {
    let tools = "  - name: note\n    shell: head -c 300000 /dev/zero | cksum; echo ${text} >> ledger; echo noted ${text}\n";
    let answer = |pair: &[&str]| {
        format!(
            "- call: [{{tool: note, args: {{text: {}}}}}, {{tool: note, args: {{text: {}}}}}]\n",
            pair[0], pair[1]
        )
    };
    let turns: String =
        NOTES.chunks(2).map(answer).chain(["- say: all done\n".to_owned()]).collect();
    Sandbox::scripted(DELTA, tools, &turns)
}

fn no_tool_is_left(sandbox: &Sandbox) {
    let mark = format!("RUN_DIR={}", sandbox.path("work/.delta/r").display());
    until("the end of the tools", || processes_with(&[&mark]).is_empty().then_some(()));
}

/// A run killed at random instants until it has its result. Gives how many processes died, and how many outcomes stayed
/// unknown.
fn killed_at_random(mut chance: Chance, whole: u64) -> (usize, usize) {
    let sandbox = busy();
    let ensure = chance.below(2) == 0;
    let mut died = 0;
    for process in 0.. {
        let begun = sandbox.path("work/.delta/r/journal.jsonl");
        let begun = fs::read(begun).is_ok_and(|journal| journal.contains(&b'\n'));
        let command = match (ensure, begun) {
            (true, _) => sandbox.run_command("go", &["--ensure", "--format", "raw"]),
            (false, false) => sandbox.run_command("go", &["--format", "raw"]),
            (false, true) => {
                sandbox.delta(["continue", "--run-id", "r", "-w", "work", "--format", "raw"])
            }
        };
        // The later ones live longer, so that the run comes to its end.
        let ran = kill_after(command, chance.below(whole * (process + 4) / 4));
        if ran.code == -1 {
            died += 1;
            no_tool_is_left(&sandbox);
            continue;
        }
        let done = ran.code == 1 && ran.stderr.contains("Run is COMPLETED");
        assert!(done || ran.stdout == "all done\n", "{ran:?}");
        break;
    }
    check_journal(&sandbox);
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
    assert_eq!(sandbox.observations().len(), NOTES.len());
    (died, check_ledger(&sandbox, &NOTES))
}

#[test]
fn c_13_3_killed_at_random_instants() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let long = std::env::var_os("DELTA_LONG_TESTS").is_some();
    let rounds = number("DELTA_ROUNDS").unwrap_or(if long { 300 } else { 20 });
    let seed = random_seed();
    let began = std::time::Instant::now();
    busy().run("go", &[]).expect_code(0);
    let whole = u64::try_from(began.elapsed().as_micros()).unwrap();
    let (died, unknown) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each((0..usize::try_from(rounds).unwrap()).collect(), |round| {
        let mut chance = Chance(seed ^ ((round as u64) << 32));
        chance.below(2);
        let (dead, lost) = killed_at_random(chance, whole);
        died.fetch_add(dead, Ordering::SeqCst);
        unknown.fetch_add(lost, Ordering::SeqCst);
    });
    let (died, unknown) = (died.into_inner(), unknown.into_inner());
    println!(
        "{rounds} rounds, {died} processes killed, {unknown} effects of unknown outcome, seed {seed}"
    );
}
