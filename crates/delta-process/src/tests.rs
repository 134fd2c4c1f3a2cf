#![expect(clippy::disallowed_methods, reason = "tests of the one place that starts children")]

use super::process_table::is_group_alive;
use super::*;
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, waitpid};
use std::fs;
use std::os::unix::process::CommandExt;
use std::time::Instant;
use tempfile::TempDir;

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

/// A working directory and its launch context; dropping it removes the directory.
struct Bench {
    dir: TempDir,
    launch: LaunchContext,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let env = EnvVars::from_iter([("PATH".into(), "/usr/bin:/bin".into())]);
        let launch = LaunchContext::new(dir.path(), env);
        Self { dir, launch }
    }

    fn marked(name: &str, value: &str) -> Self {
        let mut bench = Self::new();
        bench.launch.env.set(name, value);
        bench
    }

    fn command<'a>(&'a self, argv: &'a [String]) -> ProcessCommand<'a> {
        ProcessCommand::new(argv, &self.launch, MINUTE, 1000)
    }

    fn sh(&self, script: &str) -> ProcessResult {
        go(&self.command(&shell(script)))
    }

    /// Lets a child write the file: open for writing here, a fork of another test could keep it open.
    fn script(&self, name: &str, mode: &str, text: &str) {
        let argv = shell(&format!("cat > {name}; chmod {mode} {name}"));
        let finished = go(&ProcessCommand { stdin: text.as_bytes(), ..self.command(&argv) });
        assert_eq!(finished.end, ProcessEnd::Exited(0));
    }

    fn refusal(&self, argv: &[&str]) -> (i32, String) {
        match go(&self.command(&words(argv))).end {
            ProcessEnd::NotStarted { code, reason } => (code, reason),
            end => panic!("{argv:?} started: {end:?}"),
        }
    }
}

fn words(argv: &[&str]) -> Vec<String> {
    argv.iter().map(|word| (*word).to_owned()).collect()
}

fn shell(script: &str) -> Vec<String> {
    words(&["sh", "-c", script])
}

fn go(command: &ProcessCommand<'_>) -> ProcessResult {
    run_process(command, &CancelToken::manual().unwrap())
}

fn text(capture: &OutputCapture) -> &str {
    std::str::from_utf8(capture.whole.as_deref().unwrap()).unwrap()
}

fn kill(pids: &[i32]) {
    for pid in pids {
        rustix::process::kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
    }
}

#[test]
fn output_streams_and_exit_code_are_distinguished() {
    let finished = Bench::new().sh("echo out; echo err >&2; exit 7");
    assert_eq!(finished.end, ProcessEnd::Exited(7));
    assert_eq!((text(&finished.stdout), text(&finished.stderr)), ("out\n", "err\n"));
    assert_eq!((finished.stdout.bytes, &finished.stdout.head[..]), (4, &b"out\n"[..]));
    assert!(finished.duration < MINUTE / 2);
}

#[test]
fn a_foreign_signal_is_reported() {
    assert_eq!(Bench::new().sh("kill -KILL $$").end, ProcessEnd::Killed(libc::SIGKILL));
    // The engine ignores SIGPIPE; a child must not.
    assert_eq!(Bench::new().sh("kill -PIPE $$").end, ProcessEnd::Killed(libc::SIGPIPE));
    assert_eq!(
        (signal_name(libc::SIGKILL), signal_name(99)),
        ("SIGKILL".into(), "signal 99".into())
    );
}

#[test]
fn the_child_gets_its_exact_arguments_environment_and_directory() {
    let bench = Bench::marked("DELTA_T_A", "a b=c");
    let argv = words(&[
        "sh",
        "-c",
        "printf '%s|' \"$0\" \"$@\"; pwd -P; cat /proc/$$/environ",
        "",
        "a\nb ",
        "ä",
    ]);
    let finished = go(&bench.command(&argv));
    let cwd = fs::canonicalize(bench.dir.path()).unwrap();
    let dir = bench.dir.path().display();
    let expected =
        format!("|a\nb |ä|{}\nPATH=/usr/bin:/bin\0DELTA_T_A=a b=c\0PWD={dir}\0", cwd.display());
    assert_eq!(text(&finished.stdout), expected);
    let argv = words(&["sh", "-c", "tr '\\0' ' ' < /proc/$$/cmdline | cut -c 1-5"]);
    assert_eq!(text(&go(&bench.command(&argv)).stdout), "sh -c\n");
}

#[test]
fn large_input_is_written_while_output_is_read() {
    let bench = Bench::new();
    let input: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).take(5_000_000).collect();
    let argv = words(&["cat"]);
    let finished =
        go(&ProcessCommand { stdin: &input, capture_whole: true, ..bench.command(&argv) });
    assert_eq!(finished.end, ProcessEnd::Exited(0));
    assert!(finished.stdout.whole.unwrap() == input);
    assert_eq!(finished.stdout.bytes, 5_000_000);
}

#[test]
fn a_tool_need_not_read_its_input() {
    let bench = Bench::new();
    let (argv, input) = (words(&["true"]), vec![b'x'; 64_000_000]);
    assert_eq!(
        go(&ProcessCommand { stdin: &input, ..bench.command(&argv) }).end,
        ProcessEnd::Exited(0)
    );
    let argv = shell("exec <&-; echo still here");
    assert_eq!(
        text(&go(&ProcessCommand { stdin: &input, ..bench.command(&argv) }).stdout),
        "still here\n"
    );
}

#[test]
fn a_tool_may_write_before_it_reads() {
    let bench = Bench::new();
    let (argv, input) = (shell("head -c 2000000 /dev/zero; wc -c >&2"), vec![b'x'; 2_000_000]);
    let finished = go(&ProcessCommand { stdin: &input, ..bench.command(&argv) });
    assert_eq!((finished.end, finished.stdout.bytes), (ProcessEnd::Exited(0), 2_000_000));
    assert_eq!(text(&finished.stderr).trim(), "2000000");
}

#[test]
fn without_input_stdin_is_at_its_end() {
    assert_eq!(text(&Bench::new().sh("cat; readlink /proc/$$/fd/0").stdout), "/dev/null\n");
}

#[test]
fn a_timeout_kills_the_tree_with_strays_and_keeps_the_output() {
    let mark = ("DELTA_T_TREE", "tree");
    let bench = Bench::marked(mark.0, mark.1);
    let argv = shell("echo before; sleep 60 & setsid sleep 60 & wait");
    let timeout = Duration::from_secs(1);
    let finished = go(&ProcessCommand { timeout, marks: &[mark], ..bench.command(&argv) });
    assert_eq!((finished.end, text(&finished.stdout)), (ProcessEnd::TimedOut, "before\n"));
    assert!(finished.duration < TERMINATION_GRACE, "{:?}", finished.duration);
    assert_eq!(find_marked_processes(&[mark]), Vec::<i32>::new());
}

#[test]
fn a_tool_that_ignores_sigterm_is_killed() {
    let mark = ("DELTA_T_DEAF", "deaf");
    let bench = Bench::marked(mark.0, mark.1);
    let deaf_group = "trap '' TERM; setsid sleep 60 & echo deaf; while :; do sleep 60; done";
    let deaf_stray = "setsid sh -c \"trap '' TERM; echo deaf; exec sleep 60\" & wait";
    for script in [deaf_group, deaf_stray] {
        let argv = shell(script);
        let command = ProcessCommand { timeout: 2 * SHORT, marks: &[mark], ..bench.command(&argv) };
        let cancel = CancelToken::manual().unwrap();
        let finished = prepare_process(&command).run_with(&cancel, SHORT);
        assert_eq!((finished.end, text(&finished.stdout)), (ProcessEnd::TimedOut, "deaf\n"));
        assert!(finished.duration >= 3 * SHORT, "{:?}", finished.duration);
        assert!(finished.duration < MINUTE / 2, "{:?}", finished.duration);
        assert_eq!(find_marked_processes(&[mark]), Vec::<i32>::new());
    }
}

#[test]
fn a_tool_may_clean_up_after_sigterm() {
    let bench = Bench::new();
    let argv = shell("trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    let finished = go(&ProcessCommand { timeout: Duration::from_secs(1), ..bench.command(&argv) });
    assert_eq!((finished.end, text(&finished.stdout)), (ProcessEnd::TimedOut, "ready\ncleaned\n"));
}

#[test]
fn a_stopped_tool_ends_in_time() {
    let bench = Bench::new();
    let argv = shell("kill -STOP $$");
    let finished = go(&ProcessCommand { timeout: SHORT, ..bench.command(&argv) });
    assert_eq!(finished.end, ProcessEnd::TimedOut);
    assert!(finished.duration < TERMINATION_GRACE, "{:?}", finished.duration);
}

#[test]
fn a_request_from_another_thread_ends_the_child() {
    let bench = Bench::new();
    let cancel = CancelToken::manual().unwrap();
    assert_eq!(bench.sh("mkfifo ready").end, ProcessEnd::Exited(0));
    let (other, fifo) = (cancel.clone(), bench.dir.path().join("ready"));
    let thread = std::thread::spawn(move || {
        fs::read(fifo).unwrap();
        other.request();
    });
    let argv = shell("echo started; : > ready; exec sleep 60");
    let finished = run_process(&bench.command(&argv), &cancel);
    thread.join().unwrap();
    assert_eq!((finished.end, text(&finished.stdout)), (ProcessEnd::Cancelled, "started\n"));
    assert!(finished.duration < MINUTE / 2);
    assert_eq!(run_process(&bench.command(&shell("touch x")), &cancel).end, ProcessEnd::Cancelled);
    assert!(!bench.dir.path().join("x").exists());
}

#[test]
fn a_background_process_neither_blocks_the_engine_nor_is_killed() {
    let mark = ("DELTA_T_BACK", "back");
    let bench = Bench::marked(mark.0, mark.1);
    let argv = shell("sleep 60 & echo done");
    let finished = go(&ProcessCommand { marks: &[mark], ..bench.command(&argv) });
    assert_eq!((finished.end, text(&finished.stdout)), (ProcessEnd::Exited(0), "done\n"));
    assert!(
        finished.duration >= DRAIN_LIMIT && finished.duration < 10 * DRAIN_LIMIT,
        "{:?}",
        finished.duration
    );
    let left = find_marked_processes(&[mark]);
    assert_eq!(left.len(), 1);
    kill(&left);
}

#[test]
fn the_end_is_detected_without_a_pidfd() {
    let bench = Bench::new();
    let cancel = CancelToken::manual().unwrap();
    let argv = shell("exec >&- 2>&-; sleep 0.2; exit 3");
    let command = bench.command(&argv);
    let mut running =
        prepare_process(&command).start(TERMINATION_GRACE).unwrap_or_else(|end| panic!("{end:?}"));
    running.exit_fd = None;
    let start = Instant::now();
    assert_eq!(finish(running, &cancel).end, ProcessEnd::Exited(3));
    assert!(start.elapsed() < MINUTE / 2);
}

#[test]
fn a_large_stream_is_in_its_file() {
    let bench = Bench::new();
    let argv =
        shell("printf start; head -c 300000 /dev/zero | tr '\\0' x; printf end; echo small >&2");
    let spool = Some(SpoolFiles {
        dir: bench.dir.path(),
        stem: "call-1",
        inline_bytes: INLINE_BYTES,
        max_bytes: MAX_SPOOL_BYTES,
        continues_output: false,
    });
    let finished = go(&ProcessCommand { spool, excerpt_bytes: 20, ..bench.command(&argv) });
    let capture = finished.stdout;
    assert_eq!(
        (capture.bytes, capture.whole, capture.discarded, capture.error),
        (300_008, None, 0, None)
    );
    assert_eq!((&capture.head[..], &capture.tail[..]), (&b"startxxxxx"[..], &b"xxxxxxxend"[..]));
    let path = bench.dir.path().join("call-1.stdout");
    assert_eq!(capture.file.as_ref(), Some(&path));
    assert_eq!(fs::read_to_string(path).unwrap(), format!("start{}end", "x".repeat(300_000)));
    assert_eq!((text(&finished.stderr), &finished.stderr.file), ("small\n", &None));
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 1);
}

#[test]
fn output_is_on_disk_while_the_tool_runs() {
    let bench = Bench::new();
    let argv = shell("echo early; until [ -s x.stdout ]; do sleep 0.02; done; echo late");
    let spool = Some(SpoolFiles {
        dir: bench.dir.path(),
        stem: "x",
        inline_bytes: INLINE_BYTES,
        max_bytes: MAX_SPOOL_BYTES,
        continues_output: false,
    });
    let finished = go(&ProcessCommand { spool, timeout: MINUTE / 3, ..bench.command(&argv) });
    assert_eq!((finished.end, text(&finished.stdout)), (ProcessEnd::Exited(0), "early\nlate\n"));
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 0);
}

#[test]
fn a_stream_without_a_spool_file_is_counted_and_excerpted() {
    let capture = Bench::new().sh("head -c 50000000 /dev/zero").stdout;
    assert_eq!((capture.bytes, capture.whole, capture.file), (50_000_000, None, None));
    assert_eq!((capture.head.len(), capture.tail.len()), (500, 500));
}

#[test]
fn secrets_split_by_reads_are_redacted_also_in_the_file() {
    let mut bench = Bench::new();
    bench.launch.secrets = Secrets::new(["s3cr3t-value".to_owned()]);
    let argv = shell(
        "printf 's3cr3t-'; sleep 0.2; printf 'value|'; yes s3cr3t-value | head -n 20000; printf s3cr",
    );
    let spool = Some(SpoolFiles {
        dir: bench.dir.path(),
        stem: "x",
        inline_bytes: INLINE_BYTES,
        max_bytes: MAX_SPOOL_BYTES,
        continues_output: false,
    });
    let capture = go(&ProcessCommand { spool, ..bench.command(&argv) }).stdout;
    let expected = format!("[redacted]|{}s3cr", "[redacted]\n".repeat(20_000));
    assert_eq!(capture.bytes, expected.len() as u64);
    assert!(capture.head.starts_with(b"[redacted]|[redacted]\n"));
    assert!(fs::read_to_string(capture.file.unwrap()).unwrap() == expected);
}

#[test]
fn programs_are_looked_up_as_in_a_shell() {
    let mut bench = Bench::new();
    bench.script("tool", "755", "#!/bin/sh\necho cwd \"$@\"\n");
    assert_eq!(
        bench.sh("mkdir dir blocked; mkdir dir/tool; echo > blocked/tool").end,
        ProcessEnd::Exited(0)
    );
    assert_eq!(text(&go(&bench.command(&words(&["./tool", "1"]))).stdout), "cwd 1\n");
    // A directory and a file without permission are skipped; the empty entry is the working directory.
    bench.launch.env.set("PATH", "dir:blocked:");
    assert_eq!(text(&go(&bench.command(&words(&["tool", "2"]))).stdout), "cwd 2\n");
    bench.launch.env.set("PATH", "dir:blocked");
    let (code, reason) = bench.refusal(&["tool"]);
    assert_eq!(code, 126);
    assert!(reason.ends_with("blocked/tool` is not executable (no x permission)"), "{reason}");
}

#[test]
fn the_process_group_exists_before_the_child_runs() {
    let (bench, cancel) = (Bench::new(), CancelToken::manual().unwrap());
    for _ in 0..50 {
        let argv = shell("exit 0");
        let command = bench.command(&argv);
        let running = prepare_process(&command)
            .start(TERMINATION_GRACE)
            .unwrap_or_else(|end| panic!("{end:?}"));
        assert_eq!(rustix::process::getpgid(Some(running.pid)), Ok(running.pid));
        assert_eq!(finish(running, &cancel).end, ProcessEnd::Exited(0));
    }
}

#[test]
fn a_prepared_command_that_is_dropped_leaves_nothing() {
    // Among other tests it would take their children.
    let mark = ("DELTA_T_DROPPED", "1");
    if let Some(finished) = alone("a_prepared_command_that_is_dropped_leaves_nothing", mark) {
        assert_eq!(finished.end, ProcessEnd::Exited(0), "{}", text(&finished.stdout));
        return;
    }
    let bench = Bench::new();
    let argv = shell("touch done");
    drop(prepare_process(&bench.command(&argv)));
    assert_eq!(waitpid(None, WaitOptions::NOHANG).unwrap_err(), Errno::CHILD);
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 0);
}

#[test]
#[cfg(target_os = "linux")]
fn c_22_4_a_sandbox_that_cannot_be_entered_starts_nothing() {
    let null = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
    let wrong = FilterInstruction { code: u16::MAX, jump_true: 0, jump_false: 0, operand: 0 };
    for (steps, name) in [
        (EntrySteps { namespaces: vec![null()], ..EntrySteps::default() }, "setns"),
        (EntrySteps { limits: vec![(999, 1)], ..EntrySteps::default() }, "setrlimit"),
        (EntrySteps { ruleset: Some(null()), ..EntrySteps::default() }, "landlock_restrict_self"),
        (EntrySteps { filter: vec![wrong], ..EntrySteps::default() }, "seccomp"),
    ] {
        let mut bench = Bench::new();
        bench.launch.sandbox = Some(SandboxEntry::new(steps));
        let (code, reason) = bench.refusal(&["touch", "started"]);
        let begin = format!("the sandbox could not be entered ({name}: ");
        assert!(code == 126 && reason.starts_with(&begin), "{reason}");
        assert!(reason.ends_with("); nothing was started"), "{reason}");
        assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 0);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn c_22_4_a_filter_holds_for_the_tool_and_not_for_its_engine() {
    let give = |operand| FilterInstruction { code: 6, jump_true: 0, jump_false: 0, operand };
    let status = |text: &str| {
        let names = ["Seccomp:", "Seccomp_filters:", "NoNewPrivs:", "SigBlk:"];
        let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.map(|line| line.split_whitespace().nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let own = || status(&fs::read_to_string("/proc/thread-self/status").unwrap());
    let before = own();
    let filters = before[3].parse::<u32>().unwrap() + 1;
    // Allows everything; the second one logs it, where a kernel has a log.
    for filter in [vec![give(0x7fff_0000)], vec![give(0x7ffc_0000)], vec![give(0x7fff_0000)]] {
        let mut bench = Bench::new();
        bench.launch.sandbox =
            Some(SandboxEntry::new(EntrySteps { filter, ..EntrySteps::default() }));
        let argv = ["cat", "/proc/self/status"].map(str::to_owned);
        for _ in 0..2 {
            let finished = go(&bench.command(&argv));
            let [blocked, privileges, mode, count] = &status(text(&finished.stdout))[..] else {
                panic!("{}", text(&finished.stdout))
            };
            assert_eq!([privileges, mode, count], ["1", "2", &filters.to_string()]);
            assert_eq!(blocked, &before[0], "signals reach the tool");
        }
        assert_eq!(own(), before, "this thread stays as it was");
    }
}

#[test]
fn a_failed_start_has_a_reason() {
    let mut bench = Bench::new();
    bench.script("plain", "644", "#!/bin/sh\n");
    bench.script("orphan", "755", "#! /no/such -x\n");
    bench.script("dos", "755", "#!/bin/sh\r\necho\r\n");
    bench.script("headless", "755", "echo\n");
    bench.script("marked", "755", "\u{feff}#!/bin/sh\n");
    let long = "x".repeat(200_000);
    let check = |argv: &[&str], code, reason: &str| {
        assert_eq!(bench.refusal(argv), (code, reason.to_owned()))
    };
    check(&["no-such-tool"], 127, "program `no-such-tool` was not found in PATH");
    check(&[""], 127, "program `` was not found in PATH");
    check(&[], 127, "program `` was not found in PATH");
    check(&["./no"], 127, "program `./no` does not exist");
    check(&["./plain"], 126, "`./plain` is not executable (no x permission)");
    check(&["/tmp"], 126, "`/tmp` is a directory, not a program");
    check(&["/dev/null"], 126, "`/dev/null` is not a regular file");
    check(&["./orphan"], 126, "the interpreter `/no/such` of `./orphan` was not found");
    let dos =
        "the `#!` line of `./dos` ends with a carriage return: save the file with Unix line ends";
    check(&["./dos"], 126, dos);
    let headless =
        "`./headless` is neither a program for this system nor a script with a `#!` line";
    check(&["./headless"], 126, headless);
    bench.script("deep", "755", &format!("#!/{}sh\necho\n", "./".repeat(130)));
    let deep = "the interpreter in the `#!` line of `./deep` goes beyond the 256 bytes that the system reads: write \
        `#!/usr/bin/env PROGRAM`, or a shorter path";
    check(&["./deep"], 126, deep);
    let bytes = long.len();
    let too_long = format!(
        "argument 1 has {bytes} bytes, and the system takes 131071: make it shorter, or let the tool read it from stdin"
    );
    check(&["echo", &long], 126, &too_long);
    check(
        &["./marked"],
        126,
        "a byte order mark precedes the `#!` of `./marked`: save the file without it",
    );
    assert!(bench.refusal(&["echo", "a\0b"]).1.contains("NUL byte"));
    bench.launch.env.set("CERTS", "x".repeat(131_072 - "CERTS=".len()));
    let reason = "the variable `CERTS` has 131072 bytes with its name, and the system takes 131071: give the value in a file";
    assert_eq!(bench.refusal(&["sh"]), (126, reason.to_owned()));
    bench.launch.env = EnvVars::default();
    assert_eq!(
        bench.refusal(&["sh"]),
        (127, "program `sh` was not found in PATH, which is not set".into())
    );
    bench.launch.cwd.push("gone");
    let reason = format!("the working directory `{}` does not exist", bench.launch.cwd.display());
    assert_eq!(bench.refusal(&["/bin/sh"]), (126, reason));
}

#[test]
#[cfg(target_os = "linux")]
fn a_child_has_default_signal_actions() {
    // The engine handles some signals and ignores others; its mask is inherited, and is empty here.
    let _handled = CancelToken::from_signals().unwrap();
    delta_base::signal::ignore_io_signals();
    let bench = Bench::new();
    let finished = bench.sh("exec sed -n 's/^Sig[BIC][lg][knt]://p' /proc/self/status");
    let sets =
        text(&finished.stdout).lines().map(|set| u64::from_str_radix(set.trim(), 16).unwrap());
    // The C library reserves signals above 31.
    assert_eq!(sets.map(|set| set & 0x7fff_ffff).collect::<Vec<_>>(), [0, 0, 0]);
}

#[test]
fn a_group_of_zombies_is_not_alive() {
    let mut child = std::process::Command::new("true").process_group(0).spawn().unwrap();
    let group = Pid::from_child(&child);
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(group), options).unwrap();
    assert!(rustix::process::test_kill_process_group(group).is_ok() && !is_group_alive(group));
    child.wait().unwrap();
    let mut cat = std::process::Command::new("cat");
    let mut living = cat.process_group(0).stdin(std::process::Stdio::piped()).spawn().unwrap();
    assert!(is_group_alive(Pid::from_child(&living)));
    drop(living.stdin.take());
    living.wait().unwrap();
}

/// Runs one test again in its own process; `None` when this is that process.
fn alone(test: &str, mark: (&str, &str)) -> Option<ProcessResult> {
    if std::env::var_os(mark.0).is_some() {
        return None;
    }
    let mut bench = Bench::marked(mark.0, mark.1);
    // Its directories are in ours, which is removed even if it cannot do so itself.
    bench.launch.env.set("TMPDIR", bench.dir.path());
    let tests = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let name = format!("tests::{test}");
    Some(go(&bench.command(&[tests, "--exact".into(), name, "--nocapture".into()])))
}

/// Counts descriptors and children, so it needs its own process.
#[test]
fn no_descriptor_and_no_zombie_leaks() {
    if let Some(finished) = alone("no_descriptor_and_no_zombie_leaks", ("DELTA_T_LEAK", "1")) {
        assert_eq!(
            finished.end,
            ProcessEnd::Exited(0),
            "{}{}",
            text(&finished.stdout),
            text(&finished.stderr)
        );
        assert!(text(&finished.stdout).contains("1 passed"));
        return;
    }
    let bench = Bench::new();
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    let spool = Some(SpoolFiles {
        dir: bench.dir.path(),
        stem: "x",
        inline_bytes: INLINE_BYTES,
        max_bytes: MAX_SPOOL_BYTES,
        continues_output: false,
    });
    for (script, timeout) in [("cat", MINUTE), ("exit 1", MINUTE), ("sleep 60 & sleep 60", SHORT)] {
        go(&ProcessCommand { stdin: b"\xff", spool, timeout, ..bench.command(&shell(script)) });
        let _ = fs::remove_file(bench.dir.path().join("x.stdout"));
    }
    bench.refusal(&["./no"]);
    bench.refusal(&["sh", &"x".repeat(200_000)]);
    assert_eq!(count(), before);
    let children = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
    assert_eq!(children.unwrap_err(), Errno::CHILD);
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 0);
}

/// The tool kills the engine that runs it, which is this test again.
#[test]
fn no_tool_outlives_a_killed_engine() {
    let mark = ("DELTA_T_KILLED", "1");
    if let Some(finished) = alone("no_tool_outlives_a_killed_engine", mark) {
        assert_eq!(finished.end, ProcessEnd::Killed(libc::SIGKILL));
        let (cancel, deadline) = (CancelToken::manual().unwrap(), Instant::now() + MINUTE / 3);
        while !find_marked_processes(&[mark]).is_empty() {
            assert!(Instant::now() < deadline);
            cancel.wait(POLL_INTERVAL);
        }
        return;
    }
    Bench::marked(mark.0, mark.1).sh("kill -KILL $PPID; exec sleep 60");
}

/// Runs a started command to its end.
fn finish(running: running_process::RunningProcess<'_>, cancel: &CancelToken) -> ProcessResult {
    let mut result = None;
    running_process::supervise(vec![(0, running)], cancel, &mut |_, notice| {
        if let ProcessNotice::Ended(process) = notice {
            result = Some(*process);
        }
    });
    result.unwrap()
}

#[test]
fn c_28_9_commands_that_wait_for_each_other_run_together() {
    let bench = Bench::new();
    let pipes = ["a", "b"].map(|name| bench.dir.path().join(name));
    for pipe in &pipes {
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RWXU).unwrap();
    }
    let scripts = [
        "echo one >a; read line <b; echo $line",
        "read line <a; echo two >b; echo $line; exit 3",
        "kill -9 $$",
    ];
    let words = scripts.map(shell);
    let mut commands: Vec<ProcessCommand<'_>> =
        words.iter().map(|argv| bench.command(argv)).collect();
    let missing = [String::from("./missing")];
    commands.push(bench.command(&missing));
    let mut ends: Vec<Option<(ProcessEnd, String)>> = vec![None; commands.len()];
    let cancel = CancelToken::manual().unwrap();
    let prepared = commands.iter().map(prepare_process).collect();
    run_together(prepared, &cancel, &mut |index, notice| {
        if let ProcessNotice::Ended(result) = notice {
            assert_eq!(ends[index], None);
            ends[index] = Some((result.end, text(&result.stdout).to_owned()));
        }
    });
    let mut ends = ends.into_iter().flatten();
    let mut next = || ends.next().unwrap();
    assert_eq!(next(), (ProcessEnd::Exited(0), "two\n".to_owned()));
    assert_eq!(next(), (ProcessEnd::Exited(3), "one\n".to_owned()));
    assert_eq!(next(), (ProcessEnd::Killed(9), String::new()));
    assert!(matches!(next().0, ProcessEnd::NotStarted { code: 127, .. }));
}
