//! Records commands on a volatile disk, and judges what every power loss leaves of it.

use crate::file_tree::FileTree;
use crate::power_loss::{DiskLog, LogEntry, LossKind, PowerLoss, RandomNumbers};
use crate::volatile_disk::{SYNC_TRACE, VolatileDisk, WITNESS_DIR};
use rustix::mount::{MountFlags, UnmountFlags};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use test_support::effort::cases;
use test_support::needs;
use test_support::running::end_with_test;
use test_support::sandbox::{Delta, Ran, Sandbox};

/// Set in the process that may mount: it has namespaces of its own for mounts, so that none outlives it, and for processes,
/// because all disks have the same run.
const INSIDE_VARIABLE: &str = "DELTA_POWER_INSIDE";
/// `all` judges every state; a number is how many each test judges at most.
const STATES_VARIABLE: &str = "DELTA_POWER_STATES";

/// What tools, the LLM and the shell have seen of delta, whatever happened to the disk.
pub const WITNESSES: [&str; 5] = ["ledger", "requests", "stdout", "exits", "answers"];

/// How the recorded commands own their runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// As on a disk of this computer.
    Flock,
    /// As on a disk that several hosts share.
    Turns,
}

/// One command after another on a volatile disk.
pub struct Recorder<'a> {
    pub sandbox: &'a Sandbox,
    lease: Lease,
}

impl Recorder<'_> {
    /// Runs delta until it ends, by itself or not; what it prints is witnessed, and so is its exit code.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.finish(args, self.delta(args).command())
    }

    /// The same with a tracer, for commands that call `syncfs`.
    pub fn run_traced(&self, args: &[&str]) -> Ran {
        let mut plain = self.delta(args);
        let plain = plain.command();
        let mut traced = Command::new("strace");
        let trace = self.witness(SYNC_TRACE);
        traced.args(["-f", "--seccomp-bpf", "-qq", "-e", "trace=syncfs", "-e", "signal=none"]);
        traced.arg("-o").arg(trace).arg(plain.get_program()).args(plain.get_args());
        traced.current_dir(self.sandbox.path("")).env_clear();
        traced.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        end_with_test(&mut traced);
        self.finish(args, &mut traced)
    }

    fn delta(&self, args: &[&str]) -> Delta {
        let lease = match self.lease {
            Lease::Flock => "flock",
            Lease::Turns => "turns",
        };
        self.sandbox.delta(args.iter().copied()).env("DELTA_LEASE", lease)
    }

    fn finish(&self, args: &[&str], command: &mut Command) -> Ran {
        let stdout = OpenOptions::new().append(true).open(self.witness("stdout")).unwrap();
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let output = child.wait_with_output().expect("the program ends");
        let ran = Ran::of(output.status, &[], &output.stderr);
        self.witness_line("exits", &format!("{} {}", args.join(" "), ran.code));
        ran
    }

    /// Notes what happens outside of the computer.
    pub fn witness_line(&self, name: &str, line: &str) {
        let mut file = OpenOptions::new().append(true).open(self.witness(name)).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Answers the question of run `r` as a person does with an editor, which syncs the file.
    pub fn answer_in_file(&self, text: &str) {
        let dir = self.sandbox.path("work/.delta/r/interaction");
        let mut file = File::create(dir.join("response.txt")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
        File::open(dir).unwrap().sync_all().unwrap();
    }

    fn witness(&self, name: &str) -> std::path::PathBuf {
        self.sandbox.path(WITNESS_DIR).join(name)
    }
}

/// Records a command, which has to succeed.
pub fn succeed<const N: usize>(args: &[&'static str; N]) -> impl Fn(&Recorder) + use<N> {
    let args = *args;
    move |recorder| drop(recorder.run_traced(&args).expect_code(0))
}

/// Whether this process has namespaces of its own; if not, runs the test `name` in one that has, or reports that it cannot.
fn is_inside(name: &str) -> bool {
    if std::env::var_os(INSIDE_VARIABLE).is_some() {
        return true;
    }
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let mut probe = Command::new(unshare.get_program());
    probe.args(unshare.get_args()).arg("true");
    let probed = probe.output().expect("`setpriv` starts");
    if !probed.status.success() {
        needs::skip(format!("needs namespaces: {}", String::from_utf8_lossy(&probed.stderr)));
        return false;
    }
    unshare.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    unshare.env(INSIDE_VARIABLE, "1");
    let output = unshare.output().unwrap();
    println!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "the test in its namespaces failed");
    needs::repeat_skips(&output.stderr);
    false
}

/// Records `record` in the sandbox that `make` makes, and passes what each power loss leaves to `judge`, which panics if
/// it finds a fault. The test that calls this does nothing else.
pub fn judge_power_losses(
    lease: Lease,
    make: impl Fn() -> Option<Sandbox>,
    record: impl Fn(&Recorder),
    judge: impl Fn(&Sandbox),
) {
    // The test harness names each thread after its test.
    let thread = std::thread::current();
    let name = thread.name().unwrap();
    // The tools of the agents need it.
    if !needs::programs(&["jq", "strace"]) || !is_inside(name) {
        return;
    }
    let Some(sandbox) = make() else { return };
    for witness in WITNESSES.iter().chain(&[SYNC_TRACE]) {
        sandbox.write(&format!("{WITNESS_DIR}/{witness}"), "");
    }
    let disk = match VolatileDisk::mount_over(&sandbox.path("")) {
        Ok(disk) => disk,
        Err(error) => return needs::skip(format!("needs to mount FUSE: {error}")),
    };
    let began = Instant::now();
    record(&Recorder { sandbox: &sandbox, lease });
    let log = disk.unmount();
    let syncs = log.entries.iter().filter(|entry| matches!(entry, LogEntry::Sync(_))).count();
    let recorded = began.elapsed();
    let (losses, count) = choose_losses(&log);
    let faults = judge_all(&sandbox, &log, &losses, judge);
    println!(
        "{name}: {} operations, {syncs} syncs, {} of {count} disks judged, {faults} faulty; {recorded:.1?}, {:.1?}",
        log.entries.len(),
        losses.len(),
        began.elapsed()
    );
    assert_eq!(faults, 0, "states that a power loss can leave are faulty");
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The power losses to judge: those that leave different disks, and of many a selection, half of it without anything that
/// was not synced.
///
/// Also returns how many there are.
fn choose_losses(log: &DiskLog) -> (Vec<PowerLoss>, usize) {
    let seed = number_from_environment("DELTA_SEED").unwrap_or(1);
    let is_whole = std::env::var(STATES_VARIABLE).is_ok_and(|value| value == "all");
    let mut kinds = vec![
        LossKind::EverythingUnsynced,
        LossKind::Nothing,
        LossKind::Contents,
        LossKind::ContentsZeroed,
        LossKind::Names,
        LossKind::LastWriteTorn,
        LossKind::LastWriteHeadless,
    ];
    kinds.extend((0..if is_whole { 6 } else { 2 }).map(|round| LossKind::Random(seed + round)));
    let cuts = if is_whole { (0..=log.entries.len()).collect() } else { log.notable_cuts() };
    let mut seen = HashSet::new();
    let mut losses = Vec::new();
    for kind in kinds {
        for cut in &cuts {
            let loss = log.power_loss(*cut, kind);
            if seen.insert(log.disk_after(&loss).fingerprint()) {
                losses.push(loss);
            }
        }
    }
    let limit = number_from_environment(STATES_VARIABLE)
        .map_or(cases(12, 45), |limit| usize::try_from(limit).unwrap());
    let count = losses.len();
    if !is_whole {
        let is_strict = |loss: &PowerLoss| loss.kind == LossKind::EverythingUnsynced;
        let (mut strict, mut others): (Vec<_>, Vec<_>) = losses.into_iter().partition(is_strict);
        let mut numbers = RandomNumbers(seed);
        select(&mut others, limit.saturating_sub(strict.len().min(limit / 2)), &mut numbers);
        select(&mut strict, limit - others.len(), &mut numbers);
        losses = strict.into_iter().chain(others).collect();
    }
    losses.sort_by_key(|loss| loss.cut);
    (losses, count)
}

fn select(losses: &mut Vec<PowerLoss>, limit: usize, numbers: &mut RandomNumbers) {
    while losses.len() > limit {
        losses.swap_remove(numbers.below(losses.len()));
    }
}

/// Judges the disks that these power losses leave, one after the other, because delta ends processes of a run that are left.
/// Returns how many are faulty.
fn judge_all(
    sandbox: &Sandbox,
    log: &DiskLog,
    losses: &[PowerLoss],
    judge: impl Fn(&Sandbox),
) -> usize {
    let mut faults = 0;
    for loss in losses {
        let tree = log.disk_after(loss);
        if let Err(reason) = with_disk(&sandbox.path(""), &tree, || judge(sandbox)) {
            faults += 1;
            report_fault(log, loss, &tree, &reason);
        }
    }
    faults
}

/// Calls `judge` with the disk mounted over `root`, a file system in memory. An error is what it panicked with.
fn with_disk(root: &Path, tree: &FileTree, judge: impl Fn()) -> Result<(), String> {
    rustix::mount::mount("tmpfs", root, "tmpfs", MountFlags::empty(), None).unwrap();
    tree.store(root);
    let result = std::panic::catch_unwind(AssertUnwindSafe(judge));
    rustix::mount::unmount(root, UnmountFlags::DETACH).unwrap();
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default()
    })
}

fn report_fault(log: &DiskLog, loss: &PowerLoss, tree: &FileTree, reason: &str) {
    let name = format!("delta-power-{}-{}-{:?}", std::process::id(), loss.cut, loss.kind);
    let dir = std::env::temp_dir().join(name.replace(['(', ')'], "-"));
    fs::create_dir(&dir).unwrap();
    tree.store(&dir);
    let mut text = File::create(dir.join(WITNESS_DIR).join("fault")).unwrap();
    let described = format!("{}{reason}\n", log.describe(loss));
    text.write_all(described.as_bytes()).unwrap();
    let seed = number_from_environment("DELTA_SEED").unwrap_or(1);
    println!("FAULT (DELTA_SEED={seed}), the disk is in {}:\n{described}", dir.display());
}
