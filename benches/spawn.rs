//! What starting a tool costs, against `posix_spawn` of the same program by the standard library, its output taken in both
//! cases: with little and with much memory in use, with few and with many open files, and in sandboxes. Also what opening
//! and reading a file costs in namespaces.
//!
//! `cargo bench --bench spawn` prints the figures and fails when one is beyond its bar.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

mod common;

use common::Bars;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd, SandboxEntry};
use delta_sandbox::{
    EnvAccess, Guarantee, HomeAccess, NetAccess, PrepareContext, PreparedSandbox, ProxySettings,
    ReadAccess, SandboxGrade, SandboxLimits, SandboxProfile, SandboxScratch, prepare,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PROGRAM: &str = "/bin/true";
/// How often a place is gone back to, and how often it is measured then: the machine changes its speed meanwhile.
const TURNS: usize = 10;
const ROUNDS: usize = 200;
/// How often a sandbox is prepared.
const PREPARED: usize = 50;
const MEGABYTE: usize = 1024 * 1024;

/// What a place to start from costs, in microseconds.
#[derive(Default)]
struct Cost {
    spawns: Vec<f64>,
    tools: Vec<f64>,
    sandbox: Option<SandboxEntry>,
}

/// In a process that opens and reads a file again and again: the file.
const OPENED_VARIABLE: &str = "DELTA_BENCH_OPENED";
/// How often it does, and how many such processes there are on each side.
const OPENINGS: u32 = 20_000;
const OPENERS: usize = 15;

fn main() {
    if let Some(file) = std::env::var_os(OPENED_VARIABLE) {
        return open_again_and_again(Path::new(&file));
    }
    if !common::is_asked() {
        return;
    }
    common::raise_open_files(20_000);
    let cancel = CancelToken::from_signals().unwrap();
    let open =
        |count| -> Vec<File> { (0..count).map(|_| File::open("/dev/null").unwrap()).collect() };
    let [mut small, mut large, mut many] = [(); 3].map(|()| Cost::default());
    for _ in 0..TURNS {
        let (memory, files) = (touched(10 * MEGABYTE), open(10));
        small.measure(&cancel);
        drop(memory);
        let memory = touched(1024 * MEGABYTE);
        large.measure(&cancel);
        drop((memory, files));
        let (memory, files) = (touched(10 * MEGABYTE), open(10_000));
        many.measure(&cancel);
        drop((memory, files));
    }
    let mut bars = Bars::default();
    let little = small.show("10 MB touched, 10 files open", &mut bars);
    let much = large.show("1 GB touched, 10 files open", &mut bars);
    bars.at_most("a tool with 1 GB to one with 10 MB", much / little, 1.05, "");
    let open = many.show("10 MB touched, 10,000 files open", &mut bars);
    // The kernel copies the table of open files for a child, and closes the copies when it becomes another program.
    common::show("a tool with 10,000 open files to one with 10", open / little, "");
    measure_sandboxes(&cancel, &mut bars);
    bars.hold();
}

/// Tools in both grades, and how long a sandbox takes to prepare.
fn measure_sandboxes(cancel: &CancelToken, bars: &mut Bars) {
    let dir = tempfile::tempdir().unwrap();
    let delta = Path::new(env!("CARGO_BIN_EXE_delta"));
    let joined = prepare_sandbox(delta, &dir.path().join("joined"), bars);
    // Its user namespace may have none.
    let refusing = dir.path().join("refusing-delta");
    let script = format!(
        "#!/bin/sh\nexec /usr/bin/unshare -Ur /bin/sh -c \
         'echo 0 > /proc/sys/user/max_user_namespaces && exec {} __sandbox'\n",
        delta.display()
    );
    fs::write(&refusing, script).unwrap();
    fs::set_permissions(&refusing, fs::Permissions::from_mode(0o755)).unwrap();
    let confined = prepare_sandbox(&refusing, &dir.path().join("confined"), &mut Bars::default());
    let mut costs = [joined, confined].map(|(sandbox, scratch)| {
        let cost = Cost { sandbox: Some(sandbox.entry.clone()), ..Cost::default() };
        (sandbox, scratch, cost)
    });
    for _ in 0..TURNS {
        for (_, _, cost) in &mut costs {
            cost.measure(cancel);
        }
    }
    for (sandbox, _scratch, cost) in costs {
        if sandbox.grade == SandboxGrade::Namespaces {
            measure_openings(&dir.path().join("joined/workspace"), &sandbox, cancel, bars);
        }
        println!("by {}", sandbox.grade.name());
        cost.show_below("a tool in a sandbox to posix_spawn", 1.10, bars);
    }
}

/// Opening, reading and closing a file nine directories deep, inside and outside of namespaces.
fn measure_openings(
    workspace: &Path,
    sandbox: &PreparedSandbox,
    cancel: &CancelToken,
    bars: &mut Bars,
) {
    let directory = workspace.join("a/b/c/d/e/f/g/h/i");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("file");
    fs::write(&file, "text").unwrap();
    // The sandbox may hide the directory of the build.
    let program = workspace.join("opener");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let argv = [program.display().to_string()];
    let mut inside = Vec::new();
    let mut outside = Vec::new();
    for _ in 0..OPENERS {
        for (times, entry) in [(&mut outside, None), (&mut inside, Some(sandbox.entry.clone()))] {
            let env = BTreeMap::from([(OPENED_VARIABLE.into(), file.clone().into())]);
            let launch = LaunchContext {
                cwd: workspace.to_owned(),
                env: env.into(),
                secrets: Secrets::default(),
                containment: None,
                sandbox: entry,
            };
            let printed = tool(&argv, &launch, cancel);
            times.push(printed.trim().parse::<f64>().unwrap());
        }
    }
    println!("open, read, close, nine directories deep");
    // Both differ by less than the machine does from one process to the next, which only adds time.
    let [outside, inside] =
        [("outside", outside), ("in namespaces", inside)].map(|(what, times)| {
            let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
            common::median_of(what, times, "us");
            fastest
        });
    bars.at_most("in namespaces to outside, the fastest of each", inside / outside, 1.02, "");
}

/// Prints the microseconds that one opening took.
fn open_again_and_again(file: &Path) {
    let mut buffer = [0; 16];
    let began = Instant::now();
    for _ in 0..OPENINGS {
        assert_eq!(File::open(file).unwrap().read(&mut buffer).unwrap(), 4);
    }
    println!("{}", began.elapsed().as_secs_f64() * 1e6 / f64::from(OPENINGS));
}

/// A sandbox, and the directory that its mounts are in.
fn prepare_sandbox(
    program: &Path,
    dir: &Path,
    bars: &mut Bars,
) -> (PreparedSandbox, SandboxScratch) {
    let workspace = dir.join("workspace");
    let home = dir.join("home");
    fs::create_dir_all(&workspace).unwrap();
    fs::create_dir_all(&home).unwrap();
    let profile = SandboxProfile {
        write: vec![workspace.clone()],
        keep: Vec::new(),
        read: ReadAccess::All,
        hide: Vec::new(),
        home: HomeAccess::Copy,
        net: NetAccess::None,
        env: EnvAccess::Safe,
        sockets: Vec::new(),
        limits: SandboxLimits::default(),
        runs: false,
    };
    let mut times = Vec::new();
    loop {
        let scratch = SandboxScratch::create(dir, "bench").unwrap();
        let context = PrepareContext {
            program,
            workspace: &workspace,
            run_dir: None,
            home: Some(&home),
            scratch: &scratch,
            visible: &[],
            proxies: &ProxySettings::default(),
            waived: &[Guarantee::Sockets],
            required: &[],
            absent: &[],
            stage: None,
        };
        let began = Instant::now();
        let sandbox = prepare(&profile, &context).unwrap();
        times.push(began.elapsed().as_secs_f64() * 1e3);
        if times.len() == PREPARED {
            let time = common::median_of("preparing a sandbox", times, "ms");
            bars.at_most("preparing a sandbox", time, 5.0, "ms");
            return (sandbox, scratch);
        }
    }
}

/// So much memory, each page of it in use.
fn touched(bytes: usize) -> Vec<u8> {
    black_box(vec![1; bytes])
}

impl Cost {
    fn measure(&mut self, cancel: &CancelToken) {
        let argv = [PROGRAM.to_owned()];
        let env = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let launch = LaunchContext {
            cwd: "/".into(),
            env: env.into(),
            secrets: Secrets::default(),
            containment: None,
            sandbox: self.sandbox.clone(),
        };
        for _ in 0..ROUNDS {
            self.spawns.push(timed(spawn));
            self.tools.push(timed(|| drop(tool(&argv, &launch, cancel))));
        }
    }

    /// Prints both, and gives what a tool costs.
    fn show(self, what: &str, bars: &mut Bars) -> f64 {
        println!("{what}");
        self.show_below("a tool to posix_spawn", 1.05, bars)
    }

    fn show_below(self, ratio: &str, limit: f64, bars: &mut Bars) -> f64 {
        let spawn = common::median_of("posix_spawn", self.spawns, "us");
        let tool = common::median_of("a tool", self.tools, "us");
        bars.at_most(ratio, tool / spawn, limit, "");
        tool
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e6
}

fn spawn() {
    let mut command = std::process::Command::new(PROGRAM);
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    assert!(command.output().unwrap().status.success());
}

fn tool(argv: &[String], launch: &LaunchContext, cancel: &CancelToken) -> String {
    let command = ProcessCommand::new(argv, launch, Duration::from_secs(60), 1000);
    let result = process::run_process(&command, cancel);
    assert_eq!(result.end, ProcessEnd::Exited(0));
    String::from_utf8_lossy(&result.stdout.whole.unwrap_or_default()).into_owned()
}
