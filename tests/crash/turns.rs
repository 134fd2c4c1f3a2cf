//! Ownership by turns: one process is stopped before each of its durable operations, which are also the ones before and after
//! each link and each start of a tool. Another one, in a PID namespace of its own, takes the run over meanwhile; then the first
//! one continues.

use super::*;
use std::process::{Child, Command};
use std::time::Instant;
use test_support::running::send_signal;

/// A process counts as silent after 0.7 seconds.
const TTL: &str = "700ms";

/// How long the second process may take while the first one is stopped.
const PATIENCE: Duration = Duration::from_secs(8);

const ACTS: &str = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: note, args: {text: b}}]\n- say: done\n";

fn by_turns(command: Delta) -> Delta {
    command.env("DELTA_LEASE", "turns").env("DELTA_LEASE_TTL", TTL)
}

fn ensure(sandbox: &Sandbox) -> Delta {
    by_turns(sandbox.run_command("task", &["--ensure", "--format", "raw"]))
}

/// The same from what looks like another host.
fn ensure_elsewhere(sandbox: &Sandbox) -> Delta {
    let mut command = ensure(sandbox);
    let mut other = Command::new("unshare");
    other.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    other.arg(DELTA).args(command.command().get_args()).current_dir(sandbox.path("")).env_clear();
    for (name, value) in command.command().get_envs() {
        other.env(name, value.unwrap_or_default());
    }
    *command.command() = other;
    command
}

/// Whether all threads of a process are stopped, or it has ended.
pub fn is_stopped(child: &mut Child) -> Option<bool> {
    if child.try_wait().unwrap().is_some() {
        return Some(false);
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    stat.rsplit_once(") ")?.1.starts_with('T').then_some(true)
}

pub fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

fn count_operations() -> usize {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, ACTS);
    let count_file = sandbox.path("operations");
    let counted = ensure(&sandbox).env("DELTA_FAILPOINT_COUNT", &count_file).output();
    counted.expect_code(0);
    let count = fs::metadata(&count_file).unwrap().len() as usize;
    println!("{count} operations");
    assert!(count > 20, "{count}");
    count
}

#[test]
fn c_26_1_a_process_that_is_stopped_before_any_operation_does_no_act_twice() {
    let count = count_operations();
    let numbers = points(1..count + 1);
    // Whether the second process took the run over, and whether it waited.
    let ended = in_parallel(&numbers, |number| {
        let sandbox = Sandbox::scripted(DELTA, TOOLS, ACTS);
        let mut first = ensure(&sandbox).env("DELTA_FAILPOINT", format!("stop:{number}")).spawn();
        let stopped = until("the process stops", || is_stopped(&mut first));
        assert!(stopped, "operation {number} is there");
        let mut second = ensure_elsewhere(&sandbox).spawn();
        // While the first one holds the lock of a run that has no turn yet, the second one waits for it.
        let deadline = Instant::now() + PATIENCE;
        let has_ended = until("the other process", || {
            let is_ended = second.try_wait().unwrap().is_some();
            (is_ended || Instant::now() > deadline).then_some(is_ended)
        });
        assert!(send_signal("CONT", first.id()));
        let first = end(first);
        let second = end(second);
        let at = format!("stopped at {number}:\n{first:?}\n{second:?}");
        // The one that waits or takes over has the result; the other one finds it, or was replaced before it could.
        assert_eq!((second.code, &*second.stdout), (0, "done\n"), "{at}");
        assert_eq!((first.code, &*first.stdout), (0, "done\n"), "{at}");
        let ledger = fs::read_to_string(sandbox.path("work/ledger")).unwrap_or_default();
        let unknown = sandbox
            .observations()
            .iter()
            .filter(|seen| seen.contains("was not run again") || seen.contains("interrupted"))
            .count();
        for note in ["a", "b"] {
            let times = ledger.lines().filter(|line| *line == note).count();
            assert!(times <= 1, "{note} was done {times} times, {at}");
        }
        assert_eq!(ledger.lines().count().max(2 - unknown.min(2)), ledger.lines().count(), "{at}");
        (sandbox.events("ENGINE_START").len() > 1, !has_ended)
    });
    let taken_over = ended.iter().filter(|(taken_over, _)| *taken_over).count();
    let waited = ended.iter().filter(|(_, waited)| *waited).count();
    println!("{taken_over} of {} were taken over, {waited} waited for", numbers.len());
    assert!(taken_over > numbers.len() / 8, "{taken_over}");
    assert!(waited < numbers.len() / 3, "{waited}");
}

#[test]
fn c_26_1_a_file_system_without_hard_links_has_locks() {
    for mode in ["eperm", "eopnotsupp"] {
        // One of the first operations is the link of the first turn.
        let leases = (1..=24).filter_map(|number| {
            let sandbox = Sandbox::scripted(DELTA, TOOLS, ACTS);
            let ran = ensure(&sandbox).env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
            let has_journal = sandbox.path("work/.delta/r/journal.jsonl").exists();
            if ran.code != 0 || !has_journal {
                sandbox.unverified("its first process failed");
                return None;
            }
            assert_eq!(sandbox.read("work/ledger"), "a\nb\n");
            let lease = sandbox.events("ENGINE_START")[0]["lease"].clone();
            let has_turns = sandbox.path("work/.delta/r/lease").exists();
            assert_eq!(has_turns, lease == "turns", "{mode}:{number}");
            Some(lease)
        });
        let locked = leases.filter(|lease| *lease == "flock").count();
        assert!(locked >= 1, "{mode} of a link is no error");
    }
}

#[test]
fn c_26_1_an_error_of_the_disk_starts_nothing_and_the_next_process_continues() {
    let count = count_operations();
    let mut codes: HashMap<i32, usize> = HashMap::new();
    for number in points(1..count + 1) {
        let sandbox = Sandbox::scripted(DELTA, TOOLS, ACTS);
        let failed = ensure(&sandbox).env("DELTA_FAILPOINT", format!("eio:{number}")).output();
        *codes.entry(failed.code).or_default() += 1;
        let ran = by_turns(
            sandbox.run_command("task", &["--ensure", "--retry", "io", "--format", "raw"]),
        )
        .output();
        let at = format!("eio:{number}:\n{failed:?}\n{ran:?}");
        assert_eq!((ran.code, &*ran.stdout), (0, "done\n"), "{at}");
        let ledger = fs::read_to_string(sandbox.path("work/ledger")).unwrap_or_default();
        for note in ["a", "b"] {
            let times = ledger.lines().filter(|line| *line == note).count();
            assert!(times <= 1, "{note} was done {times} times, {at}");
        }
        let unknown = sandbox.observations().iter().filter(|seen| seen.starts_with('[')).count();
        assert!(ledger.lines().count() + unknown >= 2, "{at}\n{:?}", sandbox.observations());
    }
    println!("exit codes: {codes:?}");
    // 0: what failed was not needed. 1: the run could not be recorded. 126: nothing could be created.
    assert!(codes.keys().all(|code| [0, 1, 126].contains(code)), "{codes:?}");
}
