//! Sandboxes inside each other, and engines that are killed at every moment.

use crate::place::{DELTA, Place, SandboxCase, in_every_case};
use delta_sandbox::{HostRule, NetAccess, SandboxGrade, SandboxScratch, probe};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use test_support::needs;

/// The level of a sandbox inside others.
const LEVEL_VARIABLE: &str = "DELTA_TEST_LEVEL";
/// A directory that the outermost sandbox has read-only.
const OUTSIDE_VARIABLE: &str = "DELTA_TEST_OUTSIDE";
const MAX_LEVEL: u32 = 4;

#[test]
fn c_22_4_sandboxes_nest_and_never_widen() {
    in_every_case("ends::c_22_4_sandboxes_nest_and_never_widen", |case| {
        // The namespaces of a sandbox of root have no capability to map root.
        if case.grade == SandboxGrade::Namespaces && !case.is_root() {
            nest(case);
        }
    });
}

fn nest(case: &SandboxCase) {
    let place = &case.place;
    let level = std::env::var(LEVEL_VARIABLE).map_or(1, |level| level.parse().unwrap());
    if let Some(outside) = std::env::var_os(OUTSIDE_VARIABLE).map(PathBuf::from) {
        let mut wider = place.profile();
        wider.write.push(outside.clone());
        let sandbox = case.prepare(&wider);
        place.fail(&sandbox, &format!("echo x > {}", outside.join("outside").display()));
    }
    let sandbox = case.prepare(&place.profile());
    place.fail(&sandbox, "echo x > ../outside");
    inherit_home(case);
    if level < MAX_LEVEL {
        let program = std::env::current_exe().unwrap();
        let inner = format!(
            "export {LEVEL_VARIABLE}={} {OUTSIDE_VARIABLE}={}; \
             {} ends::c_22_4_sandboxes_nest_and_never_widen --exact --nocapture 2>&1",
            level + 1,
            place.root.display(),
            program.display()
        );
        let output = place.succeed(&sandbox, &inner);
        assert!(output.contains("1 passed") && !output.contains("skipped"), "{output}");
    }
    assert_eq!(fs::read_to_string(place.root.join("outside")).unwrap(), "as it was");
}

/// A sandbox for the home directory that the sandbox around this process has copied.
fn inherit_home(case: &SandboxCase) {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return };
    if std::env::var_os(OUTSIDE_VARIABLE).is_none() {
        return;
    }
    let mut place = Place::new();
    place.home = home;
    let inner = SandboxCase::new(place);
    let sandbox = inner.prepare(&case.place.profile());
    inner.place.succeed(&sandbox, "echo x >> ~/.bashrc");
}

/// The part of a process: `engine` prepares sandboxes until it is killed, `reaper` kills it.
const PART_VARIABLE: &str = "DELTA_TEST_PART";
const KILLED_NAME: &str = "ends::c_22_4_an_engine_that_is_killed_leaves_no_process_and_no_file";
const MAX_PREPARING: Duration = Duration::from_millis(12);
const STEP: Duration = Duration::from_micros(400);
const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn c_22_4_an_engine_that_is_killed_leaves_no_process_and_no_file() {
    match std::env::var(PART_VARIABLE).as_deref() {
        Ok("engine") => prepare_for_ever(),
        Ok(_) => kill_engines(),
        Err(_) => {
            // A process of its own, because it adopts everything.
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([KILLED_NAME, "--exact", "--nocapture"]).env(PART_VARIABLE, "reaper");
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            needs::repeat_skips(&output.stderr);
        }
    }
}

fn prepare_for_ever() {
    let root = PathBuf::from(std::env::var_os(OUTSIDE_VARIABLE).unwrap());
    let place = Place::in_directory(&root);
    let mut profile = place.profile();
    let rule = HostRule { host: "localhost".to_owned(), port: 1 };
    profile.net = NetAccess::Hosts(vec![rule]);
    let case = SandboxCase::new(place);
    loop {
        println!("preparing");
        let sandbox = case.prepare(&profile);
        case.place.run(&sandbox, "echo x >> ~/.bashrc");
    }
}

fn kill_engines() {
    if let Err(refusal) = probe(Path::new(DELTA)).namespaces {
        needs::skip(format!("needs namespaces: {}", refusal.reason));
        return;
    }
    set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let mut preparing = Duration::ZERO;
    while preparing < MAX_PREPARING {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = Command::new(std::env::current_exe().unwrap());
        engine.args([KILLED_NAME, "--exact", "--nocapture"]).stdout(Stdio::piped());
        engine.env(PART_VARIABLE, "engine").env(OUTSIDE_VARIABLE, dir.path());
        let mut engine = engine.stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(engine.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("preparing")));
        let started = Instant::now();
        while started.elapsed() < preparing {}
        engine.kill().unwrap();
        engine.wait().unwrap();
        let deadline = Instant::now() + DEADLINE;
        // What an engine leaves comes to this process; without anything, there is no child.
        while wait(WaitOptions::NOHANG).is_ok() {
            assert!(Instant::now() < deadline, "a process is left after {preparing:?}");
        }
        let root = dir.path().canonicalize().unwrap();
        drop(SandboxScratch::create(&root, "key").unwrap());
        let names: Vec<_> =
            fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "after {preparing:?}: {names:?}");
        dir.close().unwrap();
        preparing += STEP;
    }
}

const HELPER_NAME: &str = "ends::c_22_4_a_helper_that_is_killed_is_an_error_and_leaves_nothing";

/// The process that prepares, killed at every moment.
#[test]
fn c_22_4_a_helper_that_is_killed_is_an_error_and_leaves_nothing() {
    if std::env::var_os(PART_VARIABLE).is_none() {
        // A process of its own, because it counts its children and mounts.
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([HELPER_NAME, "--exact", "--nocapture"]).env(PART_VARIABLE, "engine");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        needs::repeat_skips(&output.stderr);
        return;
    }
    if let Err(refusal) = probe(Path::new(DELTA)).namespaces {
        needs::skip(format!("needs namespaces: {}", refusal.reason));
        return;
    }
    let case = SandboxCase::new(Place::new());
    let mut killed = 0;
    let mut preparing = Duration::ZERO;
    while preparing < MAX_PREPARING {
        let (stopped, stop) = mpsc::channel::<()>();
        let killer = std::thread::spawn(move || {
            // The helper is the only child; it dies together with its thread otherwise.
            let mut helper = None;
            while helper.is_none() && stop.try_recv() == Err(mpsc::TryRecvError::Empty) {
                helper = children().first().copied();
            }
            let began = Instant::now();
            while began.elapsed() < preparing {}
            helper.map(|pid| kill_process(pid, Signal::KILL))
        });
        let prepared = case.try_prepare(&case.place.profile());
        drop(stopped);
        killer.join().unwrap();
        match prepared {
            Ok(sandbox) => drop(case.place.succeed(&sandbox, "echo x > in")),
            Err(error) => {
                killed += 1;
                assert!(error.to_string().contains("could not be prepared: "), "{error}");
            }
        }
        assert_eq!(children(), [], "after {preparing:?}");
        preparing += STEP;
    }
    assert!(killed > 0, "every helper was faster than its killer");
    // Other tests mount in their places at the same time.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(case.place.root.to_str().unwrap()), "{mounts}");
    let root = case.place.root.clone();
    drop(SandboxScratch::create(&root, "key").unwrap());
    assert!(!root.join("delta-sandbox-key").exists(), "also what an overlay leaves is removed");
}

/// The children of all threads of this process.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let texts =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<String> = texts
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    numbers.iter().filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}
