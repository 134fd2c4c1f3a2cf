//! The engine killed or failed at each of its durable operations.

use super::*;

/// The same agent with limits.
fn limited() -> Sandbox {
    Sandbox::scripted(DELTA, &format!("{TOOLS}limits: {{max_tokens: 1000000}}\n"), TURNS)
}

/// The same agent, keeping what its workspace is.
fn keeping() -> Sandbox {
    Sandbox::scripted(DELTA, &format!("{TOOLS}snapshots: true\n"), TURNS)
}

/// The same agent, whose tool prints an image.
fn picturing() -> Sandbox {
    let print = "cat ${AGENT_HOME}/dot.gif\n    output: image\n";
    let tools = TOOLS.replacen("echo noted ${text}\n", print, 1);
    let sandbox = Sandbox::scripted(DELTA, &tools, TURNS);
    sandbox.write("agent/dot.gif", b"GIF89a\x02\0\x03\0;");
    sandbox
}

/// Checks what must hold of a finished run with images: each that an event names is in its file, once.
fn check_images(sandbox: &Sandbox) {
    let results = sandbox.events("ACTION_RESULT");
    let images: Vec<&Value> = results.iter().filter_map(|result| result["images"].get(0)).collect();
    assert!(images.len() >= 4, "{results:?}");
    for image in images {
        let file = format!("work/.delta/r/{}", image["file"].as_str().unwrap());
        assert_eq!(fs::read(sandbox.path(&file)).unwrap(), b"GIF89a\x02\0\x03\0;");
    }
    assert_eq!(sandbox.files("work/.delta/r/files").len(), 1);
}

/// Checks what must hold of a finished run with snapshots: every content is the one that its name says, and the workspace
/// goes back to its beginning, and from there to its end.
fn check_snapshots(sandbox: &Sandbox) {
    use sha2::Digest;
    let objects = "work/.delta/r/snapshots/objects";
    for name in sandbox.files(objects) {
        let hash = sha2::Sha256::digest(fs::read(sandbox.path(objects).join(&name)).unwrap());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(name.replace('/', ""), hash);
    }
    let end = sandbox.read("work/ledger");
    let rollback = |to: &str| sandbox.delta(["rollback", "r", "-w", "work", "--to", to]).output();
    rollback("0").expect_code(0);
    assert!(!sandbox.path("work/ledger").exists());
    let saved = sandbox.events("ROLLBACK")[0]["saved"].as_str().unwrap().to_owned();
    rollback(&saved).expect_code(0);
    assert_eq!(sandbox.read("work/ledger"), end);
}

/// Checks what must hold of a finished run with limits: every answer in the journal is counted, and every call that was
/// reserved for and not settled is one that an engine died in.
fn check_budget(sandbox: &Sandbox) {
    let lines: Vec<Value> = sandbox
        .read("work/.delta/r/budget.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    let sum = |events: &[&Value], field: &str| -> u64 {
        events.iter().map(|event| event[field].as_u64().unwrap()).sum()
    };
    let counted = sum(&of("settle"), "tokens") + sum(&of("use"), "tokens");
    let thoughts = sandbox.events("THOUGHT");
    let asked = sum(&thoughts.iter().collect::<Vec<_>>(), "estimated_tokens");
    assert!(counted > asked, "{counted} are counted, and the requests alone had {asked}");
    assert!(of("reserve").len() <= of("settle").len() + 1, "{lines:?}");
}

/// Which process of a run has the fault.
#[derive(Clone, Copy)]
enum Victim {
    /// The first, which asks a person.
    Run,
    /// The first of an agent with hooks.
    Hooked,
    /// The first of an agent with limits.
    Limited,
    /// The first of an agent with snapshots.
    Keeping,
    /// The first of an agent whose tool prints images.
    Picturing,
    /// The first of an agent whose tools are parallel.
    Parallel,
    /// The same with hooks.
    ParallelHooked,
    /// The second, which is given the answer.
    Continue,
}

/// A run just before the victim, and the victim.
fn before(victim: Victim) -> (Sandbox, Delta) {
    let sandbox = match victim {
        Victim::Hooked => hooked(),
        Victim::Limited => limited(),
        Victim::Keeping => keeping(),
        Victim::Picturing => picturing(),
        Victim::Parallel => parallel(),
        Victim::ParallelHooked => parallel_hooked(),
        Victim::Run | Victim::Continue => sandbox(),
    };
    let command = match victim {
        Victim::Continue => {
            sandbox.run("go", &[]).expect_code(101);
            sandbox.write(RESPONSE, "yes\n");
            sandbox.delta(["continue", "--run-id", "r", "-w", "work", "--format", "jsonl"])
        }
        _ => sandbox.run_command("go", &["--format", "jsonl"]),
    };
    (sandbox, command)
}

const RESPONSE: &str = "work/.delta/r/interaction/response.txt";

/// How many durable operations a command has.
pub fn operations(sandbox: &Sandbox, command: Delta) -> usize {
    let count = sandbox.path("count");
    let ran = command.env("DELTA_FAILPOINT_COUNT", &count).output();
    assert!([0, 101].contains(&ran.code), "{ran:?}");
    let count = fs::read(count).unwrap().len();
    assert!(count >= 10, "only {count} operations");
    count
}

/// The events that a process has printed: what was shown was acknowledged.
pub fn acknowledged(ran: &Ran) -> String {
    let is_event = |line: &&str| line.starts_with("{\"type\":");
    ran.stdout.lines().filter(is_event).collect::<Vec<_>>().join("\n")
}

/// Checks that the run has every event that was acknowledged, and no file that is half written.
pub fn check_files(sandbox: &Sandbox, acknowledged: &str) {
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    assert!(
        journal.contains(acknowledged),
        "acknowledged events are lost:\n{acknowledged}\n\nthe journal:\n{journal}"
    );
    let left = sandbox.files("work/.delta/r");
    assert!(!left.iter().any(|name| name.ends_with(".tmp")), "{left:?}");
}

fn sweep(mode: &str, victim: Victim) {
    let (sandbox, command) = before(victim);
    let count = operations(&sandbox, command);
    each((1..=count).collect(), |number| {
        let (sandbox, command) = before(victim);
        let ran = command.env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
        check_fault(mode, if matches!(victim, Victim::Continue) { 0 } else { 101 }, &ran);
        if matches!(victim, Victim::Continue) {
            let journal = fs::read(sandbox.path("work/.delta/r/journal.jsonl")).unwrap();
            let whole = |line: &&[u8]| line.ends_with(b"\n");
            let mut lines = journal.split_inclusive(|byte| *byte == b'\n').filter(whole);
            let journaled =
                lines.any(|line| line.starts_with(b"{\"type\":\"HUMAN_INPUT_RECEIVED\""));
            assert!(journaled || sandbox.path(RESPONSE).exists(), "the answer is lost");
        }
        if !sandbox.path("work/.delta/r").exists() {
            sandbox.run("go", &[]).expect_code(101);
        }
        drive_after_fault(&sandbox);
        check_journal(&sandbox);
        check_ledger(&sandbox, &NOTES);
        match victim {
            Victim::Hooked => check_hooks(&sandbox),
            Victim::Limited => check_budget(&sandbox),
            Victim::Keeping => check_snapshots(&sandbox),
            Victim::Picturing => check_images(&sandbox),
            Victim::Parallel | Victim::ParallelHooked => check_parallel(&sandbox),
            Victim::Run | Victim::Continue => {}
        }
        check_files(&sandbox, &acknowledged(&ran));
    });
    let name = match victim {
        Victim::Run => "run",
        Victim::Hooked => "run with hooks",
        Victim::Limited => "run with limits",
        Victim::Keeping => "run with snapshots",
        Victim::Picturing => "run with images",
        Victim::Parallel => "run of parallel tools",
        Victim::ParallelHooked => "run of parallel tools with hooks",
        Victim::Continue => "continue",
    };
    println!("{mode} in {name}: {count} operations");
}

/// How a process with a fault may end, which would end with `well` without one.
pub fn check_fault(mode: &str, well: i32, ran: &Ran) {
    if ran.code == well {
        return;
    }
    let cause = match mode {
        "enospc" => "No space left on device",
        "eio" => "Input/output error",
        "erofs" => "Read-only file system",
        "emfile" => "Too many open files",
        _ => return assert_eq!(ran.code, -1, "{ran:?}"),
    };
    assert!([1, 126].contains(&ran.code), "{ran:?}");
    assert!(ran.stderr.contains(cause), "the cause is not named: {ran:?}");
}

/// A fault may leave the run FAILED: that takes a message to go on.
fn drive_after_fault(sandbox: &Sandbox) {
    let ran = resume(sandbox, &[]);
    if ran.stderr.contains("Run is FAILED") {
        let ran = resume(sandbox, &["-m", "try again"]);
        assert!([0, 101].contains(&ran.code), "{ran:?}");
    } else if ran.code == 1 && ran.stderr.contains("never began") {
        sandbox.run("go", &[]).expect_code(101);
    }
    drive_to_the_end(sandbox);
}

/// Every file of the run that is forked, but for its lock.
fn of_the_source(sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let names = sandbox.files("work/.delta/r").into_iter().filter(|name| name != "lock");
    names
        .map(|name| {
            let bytes = fs::read(sandbox.path("work/.delta/r").join(&name)).unwrap();
            (name, bytes)
        })
        .collect()
}

/// `delta fork` as run `f`, beside the run that it is made of.
fn fork(sandbox: &Sandbox) -> Delta {
    sandbox.delta(["fork", "r", "-w", "work", "--at", "1", "--run-id", "f", "--into", "work"])
}

fn sweep_of_fork(mode: &str) {
    let before = || {
        let sandbox = hooked();
        sandbox.run("go", &["--snapshots"]).expect_code(101);
        sandbox
    };
    let sandbox = before();
    let count = sandbox.path("count");
    fork(&sandbox).env("DELTA_FAILPOINT_COUNT", &count).output().expect_code(0);
    let whole = sandbox.read("work/.delta/f/journal.jsonl").lines().count();
    let count = fs::read(count).unwrap().len();
    assert!(count > 10, "only {count} operations");
    each((1..=count).collect(), |number| {
        let sandbox = before();
        let source = of_the_source(&sandbox);
        let ran = fork(&sandbox).env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
        assert!([-1, 0, 1, 126].contains(&ran.code), "{ran:?}");
        let journal = sandbox.path("work/.delta/f/journal.jsonl");
        match fs::read_to_string(journal) {
            Ok(journal) => assert_eq!(journal.lines().count(), whole, "{mode}:{number}"),
            Err(_) => {
                assert_ne!(ran.code, 0, "{ran:?}");
                fork(&sandbox).output().expect_code(0);
            }
        }
        assert!(of_the_source(&sandbox) == source, "{mode}:{number} changed the source");
        let went_on = ["continue", "f", "-w", "work", "--format", "raw"];
        sandbox.delta(went_on).output().expect_code(101);
        let left = sandbox.files("work/.delta/f");
        assert!(!left.iter().any(|name| name.ends_with(".tmp")), "{left:?}");
    });
    println!("{mode} in fork: {count} operations");
}

#[test]
fn c_16_7_a_fork_is_made_whole_or_never_began() {
    sweep_of_fork("abort");
    sweep_of_fork("enospc");
}

/// A run that has ended, and its files.
fn ended() -> (Sandbox, Vec<(String, Vec<u8>)>) {
    let turns = "- call: [{tool: note, args: {text: a}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("go", &[]).expect_code(0);
    let files = of_the_source(&sandbox);
    (sandbox, files)
}

/// `delta pack` or `delta unpack`.
fn change(sandbox: &Sandbox, command: &str) -> Delta {
    sandbox.delta([command, "r", "-w", "work", "-q"])
}

fn sweep_of_packing(mode: &str) {
    for command in ["pack", "unpack"] {
        let before = || {
            let (sandbox, files) = ended();
            if command == "unpack" {
                change(&sandbox, "pack").output().expect_code(0);
            }
            (sandbox, files)
        };
        let (sandbox, _) = before();
        let count = sandbox.path("count");
        change(&sandbox, command).env("DELTA_FAILPOINT_COUNT", &count).output().expect_code(0);
        let count = fs::read(count).unwrap().len();
        assert!(count > 8, "only {count} operations");
        each((1..=count).collect(), |number| {
            let (sandbox, files) = before();
            let fault = format!("{mode}:{number}");
            let ran = change(&sandbox, command).env("DELTA_FAILPOINT", &fault).output();
            assert!([-1, 0, 1, 126].contains(&ran.code), "{fault}: {ran:?}");
            // Everything can be read; doing it again completes it; the same bytes come back.
            sandbox.verify();
            change(&sandbox, command).output().expect_code(0);
            sandbox.verify();
            assert_eq!(sandbox.path("work/.delta/r/io.pack").exists(), command == "pack");
            assert_eq!(sandbox.path("work/.delta/r/io").exists(), command == "unpack");
            change(&sandbox, "unpack").output().expect_code(0);
            assert!(of_the_source(&sandbox) == files, "{fault} of {command} changed a file");
        });
        println!("{mode} in {command}: {count} operations");
    }
}

#[test]
fn c_25_8_packing_and_unpacking_may_die_anywhere() {
    sweep_of_packing("abort");
    sweep_of_packing("enospc");
}

#[test]
fn c_6_6_the_engine_may_die_before_any_durable_operation() {
    sweep("abort", Victim::Run);
}

#[test]
fn c_6_6_so_may_one_that_continues() {
    sweep("abort", Victim::Continue);
}

#[test]
fn c_9_6_the_engine_may_die_around_its_hooks() {
    sweep("abort", Victim::Hooked);
    sweep("torn", Victim::Hooked);
}

#[test]
fn c_12_8_no_call_is_lost_from_the_budget_wherever_the_engine_dies() {
    sweep("abort", Victim::Limited);
    sweep("torn", Victim::Limited);
    sweep("enospc", Victim::Limited);
}

#[test]
fn c_16_1_no_snapshot_is_half_there_wherever_the_engine_dies() {
    sweep("abort", Victim::Keeping);
    sweep("enospc", Victim::Keeping);
}

#[test]
fn c_23_6_an_image_is_there_before_the_event_that_names_it() {
    sweep("abort", Victim::Picturing);
    sweep("enospc", Victim::Picturing);
}

#[test]
fn c_28_9_the_engine_may_die_around_parallel_calls() {
    for mode in ["abort", "torn", "enospc", "eio"] {
        sweep(mode, Victim::Parallel);
    }
    sweep("abort", Victim::ParallelHooked);
}

#[test]
fn c_13_6_a_full_disk_opens_no_gate() {
    sweep("enospc", Victim::Hooked);
}

#[test]
fn c_13_3_a_write_to_the_journal_may_be_torn() {
    sweep("torn", Victim::Run);
}

#[test]
fn c_13_3_so_may_one_of_a_continued_run() {
    sweep("torn", Victim::Continue);
}

#[test]
fn c_13_6_a_full_disk_stops_the_run_and_loses_nothing() {
    sweep("enospc", Victim::Run);
}

#[test]
fn c_13_6_a_full_disk_stops_a_continued_run_and_loses_nothing() {
    sweep("enospc", Victim::Continue);
}

#[test]
fn c_13_6_an_input_output_error_stops_the_run_and_loses_nothing() {
    sweep("eio", Victim::Run);
}

#[test]
fn c_13_6_an_input_output_error_stops_a_continued_run_and_loses_nothing() {
    sweep("eio", Victim::Continue);
}

#[test]
fn c_13_6_a_disk_that_turns_read_only_stops_the_run_and_loses_nothing() {
    sweep("erofs", Victim::Run);
    sweep("erofs", Victim::Continue);
}

#[test]
fn c_13_6_a_lack_of_descriptors_stops_the_run_and_loses_nothing() {
    sweep("emfile", Victim::Run);
    sweep("emfile", Victim::Continue);
}

/// A whole answer was paid for, and a message to go on would ask for it again.
#[test]
fn c_13_6_a_recorded_answer_is_the_result_whichever_operation_fails() {
    let make = || Sandbox::scripted(DELTA, "", "- say: the answer\n");
    let sandbox = make();
    let count = operations(&sandbox, sandbox.run_command("go", &[]));
    let numbers: Vec<usize> = (1..=count).collect();
    let judged = in_parallel(&numbers, |number| {
        let sandbox = make();
        let ran = sandbox.run_command("go", &[]).env("DELTA_FAILPOINT", format!("eio:{number}"));
        check_fault("eio", 0, &ran.output());
        let journal = fs::read_to_string(sandbox.path("work/.delta/r/journal.jsonl"));
        if !journal.is_ok_and(|journal| journal.contains("\"THOUGHT\"")) {
            return false;
        }
        if sandbox.events("ENGINE_END").is_empty() {
            resume(&sandbox, &[]).expect_code(0);
        }
        assert_eq!(sandbox.events("ENGINE_END")[0]["status"], "COMPLETED", "{number}");
        assert_eq!(sandbox.events("THOUGHT").len(), 1, "asked again after {number}");
        true
    });
    let answered = judged.iter().filter(|has_answer| **has_answer).count();
    assert!((2..count).contains(&answered), "{answered} of {count} have an answer");
}

/// The metadata is written once a second. If that failed, the stream of events lacked what the journal had.
#[test]
fn c_12_1_a_stream_has_every_event_of_the_journal_whatever_fails() {
    let make = || {
        let tools = "  - {name: slow, shell: sleep 1.05; echo done}\n";
        let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: slow}]\n- say: done\n");
        let run = sandbox.run_command("go", &["--format", "jsonl"]);
        (sandbox, run)
    };
    let (sandbox, run) = make();
    let count = operations(&sandbox, run);
    each((count / 2..=count).collect(), |number| {
        let (sandbox, run) = make();
        let ran = run.env("DELTA_FAILPOINT", format!("eio:{number}")).output();
        check_fault("eio", 0, &ran);
        let shown = acknowledged(&ran);
        let journal = sandbox.read("work/.delta/r/journal.jsonl");
        assert!(journal.starts_with(&shown), "{number}: {shown}\n\nthe journal:\n{journal}");
    });
}
