#![expect(clippy::disallowed_methods, reason = "tests of the one place that starts children")]

use super::*;
use std::fs;
use std::os::unix::process::CommandExt;
use tempfile::TempDir;

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

/// A directory to work in and a launch for it; the directory goes with it.
struct Bench {
    dir: TempDir,
    launch: Launch,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let env = [("PATH".into(), "/usr/bin:/bin".into())].into_iter().collect();
        let launch = Launch { cwd: dir.path().into(), env, secrets: Secrets::default() };
        Self { dir, launch }
    }

    fn marked(name: &str, value: &str) -> Self {
        let mut bench = Self::new();
        bench.launch.env.set(name, value);
        bench
    }

    fn command<'a>(&'a self, argv: &'a [String]) -> Command<'a> {
        let launch = &self.launch;
        Command {
            argv,
            launch,
            stdin: b"",
            timeout: MINUTE,
            spool: None,
            keep: 1000,
            keep_all: false,
            marks: &[],
        }
    }

    fn sh(&self, script: &str) -> Finished {
        go(&self.command(&shell(script)))
    }

    /// Has a child write the file: were it open for writing here, a fork of another test could keep it so.
    fn script(&self, name: &str, mode: &str, text: &str) {
        let argv = shell(&format!("cat > {name}; chmod {mode} {name}"));
        let finished = go(&Command { stdin: text.as_bytes(), ..self.command(&argv) });
        assert_eq!(finished.end, End::Exited(0));
    }

    fn refusal(&self, argv: &[&str]) -> (i32, String) {
        match go(&self.command(&words(argv))).end {
            End::NotStarted { code, reason } => (code, reason),
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

fn go(command: &Command<'_>) -> Finished {
    run(command, &Cancel::manual().unwrap())
}

fn text(capture: &Capture) -> &str {
    std::str::from_utf8(capture.whole.as_deref().unwrap()).unwrap()
}

fn kill(pids: &[i32]) {
    for pid in pids {
        rustix::process::kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
    }
}

#[test]
fn output_streams_and_exit_code_are_told_apart() {
    let finished = Bench::new().sh("echo out; echo err >&2; exit 7");
    assert_eq!(finished.end, End::Exited(7));
    assert_eq!((text(&finished.stdout), text(&finished.stderr)), ("out\n", "err\n"));
    assert_eq!((finished.stdout.bytes, &finished.stdout.head[..]), (4, &b"out\n"[..]));
    assert!(finished.duration < MINUTE / 2);
}

#[test]
fn a_signal_that_is_not_ours_is_told() {
    assert_eq!(Bench::new().sh("kill -KILL $$").end, End::Killed(libc::SIGKILL));
    // The engine ignores SIGPIPE; a child must not.
    assert_eq!(Bench::new().sh("kill -PIPE $$").end, End::Killed(libc::SIGPIPE));
    assert_eq!(
        (signal_name(libc::SIGKILL), signal_name(99)),
        ("SIGKILL".into(), "signal 99".into())
    );
}

#[test]
fn the_child_gets_its_arguments_environment_and_directory_to_the_letter() {
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
    let expected = format!("|a\nb |ä|{}\nPATH=/usr/bin:/bin\0DELTA_T_A=a b=c\0", cwd.display());
    assert_eq!(text(&finished.stdout), expected);
    let argv = words(&["sh", "-c", "tr '\\0' ' ' < /proc/$$/cmdline | cut -c 1-5"]);
    assert_eq!(text(&go(&bench.command(&argv)).stdout), "sh -c\n");
}

#[test]
fn large_input_is_fed_while_output_is_read() {
    let bench = Bench::new();
    let input: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).take(5_000_000).collect();
    let argv = words(&["cat"]);
    let finished = go(&Command { stdin: &input, keep_all: true, ..bench.command(&argv) });
    assert_eq!(finished.end, End::Exited(0));
    assert!(finished.stdout.whole.unwrap() == input);
    assert_eq!(finished.stdout.bytes, 5_000_000);
}

#[test]
fn a_tool_need_not_read_its_input() {
    let bench = Bench::new();
    let (argv, input) = (words(&["true"]), vec![b'x'; 64_000_000]);
    assert_eq!(go(&Command { stdin: &input, ..bench.command(&argv) }).end, End::Exited(0));
    let argv = shell("exec <&-; echo still here");
    assert_eq!(
        text(&go(&Command { stdin: &input, ..bench.command(&argv) }).stdout),
        "still here\n"
    );
}

#[test]
fn a_tool_may_write_before_it_reads() {
    let bench = Bench::new();
    let (argv, input) = (shell("head -c 2000000 /dev/zero; wc -c >&2"), vec![b'x'; 2_000_000]);
    let finished = go(&Command { stdin: &input, ..bench.command(&argv) });
    assert_eq!((finished.end, finished.stdout.bytes), (End::Exited(0), 2_000_000));
    assert_eq!(text(&finished.stderr).trim(), "2000000");
}

#[test]
fn without_input_the_end_of_file_is_there() {
    assert_eq!(text(&Bench::new().sh("cat; readlink /proc/$$/fd/0").stdout), "/dev/null\n");
}

#[test]
fn a_timeout_ends_the_tree_with_strays_and_keeps_the_output() {
    let mark = ("DELTA_T_TREE", "tree");
    let bench = Bench::marked(mark.0, mark.1);
    let argv = shell("echo before; sleep 60 & setsid sleep 60 & wait");
    let timeout = Duration::from_secs(1);
    let finished = go(&Command { timeout, marks: &[mark], ..bench.command(&argv) });
    assert_eq!((finished.end, text(&finished.stdout)), (End::TimedOut, "before\n"));
    assert!(finished.duration < GRACE, "{:?}", finished.duration);
    assert_eq!(find_marked(&[mark]), Vec::<i32>::new());
}

#[test]
fn who_ignores_sigterm_is_killed() {
    let mark = ("DELTA_T_DEAF", "deaf");
    let bench = Bench::marked(mark.0, mark.1);
    let deaf_group = "trap '' TERM; setsid sleep 60 & echo deaf; while :; do sleep 60; done";
    let deaf_stray = "setsid sh -c \"trap '' TERM; echo deaf; exec sleep 60\" & wait";
    for script in [deaf_group, deaf_stray] {
        let argv = shell(script);
        let command = Command { timeout: 2 * SHORT, marks: &[mark], ..bench.command(&argv) };
        let cancel = Cancel::manual().unwrap();
        let finished = prepare(&command).run_with(&cancel, SHORT);
        assert_eq!((finished.end, text(&finished.stdout)), (End::TimedOut, "deaf\n"));
        assert!(finished.duration >= 3 * SHORT, "{:?}", finished.duration);
        assert!(finished.duration < MINUTE / 2, "{:?}", finished.duration);
        assert_eq!(find_marked(&[mark]), Vec::<i32>::new());
    }
}

#[test]
fn a_tool_may_clean_up_after_sigterm() {
    let bench = Bench::new();
    let argv = shell("trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    let finished = go(&Command { timeout: Duration::from_secs(1), ..bench.command(&argv) });
    assert_eq!((finished.end, text(&finished.stdout)), (End::TimedOut, "ready\ncleaned\n"));
}

#[test]
fn a_stopped_tool_ends_in_time() {
    let bench = Bench::new();
    let argv = shell("kill -STOP $$");
    let finished = go(&Command { timeout: SHORT, ..bench.command(&argv) });
    assert_eq!(finished.end, End::TimedOut);
    assert!(finished.duration < GRACE, "{:?}", finished.duration);
}

#[test]
fn a_request_from_another_thread_ends_the_child() {
    let bench = Bench::new();
    let cancel = Cancel::manual().unwrap();
    assert_eq!(bench.sh("mkfifo ready").end, End::Exited(0));
    let (other, fifo) = (cancel.clone(), bench.dir.path().join("ready"));
    let thread = std::thread::spawn(move || {
        fs::read(fifo).unwrap();
        other.request();
    });
    let argv = shell("echo started; : > ready; exec sleep 60");
    let finished = run(&bench.command(&argv), &cancel);
    thread.join().unwrap();
    assert_eq!((finished.end, text(&finished.stdout)), (End::Cancelled, "started\n"));
    assert!(finished.duration < MINUTE / 2);
    assert_eq!(run(&bench.command(&shell("touch x")), &cancel).end, End::Cancelled);
    assert!(!bench.dir.path().join("x").exists());
}

#[test]
fn what_runs_in_the_background_neither_holds_the_engine_nor_is_killed() {
    let mark = ("DELTA_T_BACK", "back");
    let bench = Bench::marked(mark.0, mark.1);
    let argv = shell("sleep 60 & echo done");
    let finished = go(&Command { marks: &[mark], ..bench.command(&argv) });
    assert_eq!((finished.end, text(&finished.stdout)), (End::Exited(0), "done\n"));
    assert!(
        finished.duration >= LINGER && finished.duration < 10 * LINGER,
        "{:?}",
        finished.duration
    );
    let left = find_marked(&[mark]);
    assert_eq!(left.len(), 1);
    kill(&left);
}

#[test]
fn the_end_is_seen_without_a_descriptor_for_it() {
    let bench = Bench::new();
    let cancel = Cancel::manual().unwrap();
    let argv = shell("exec >&- 2>&-; sleep 0.2; exit 3");
    let command = bench.command(&argv);
    let mut running = prepare(&command).start(GRACE).unwrap_or_else(|end| panic!("{end:?}"));
    running.exit_fd = None;
    let start = Instant::now();
    assert_eq!(running.finish(&cancel).0, End::Exited(3));
    assert!(start.elapsed() < MINUTE / 2);
}

#[test]
fn a_large_stream_lies_in_its_file() {
    let bench = Bench::new();
    let argv =
        shell("printf start; head -c 300000 /dev/zero | tr '\\0' x; printf end; echo small >&2");
    let spool = Some(Spool { dir: bench.dir.path(), stem: "call-1" });
    let finished = go(&Command { spool, keep: 20, ..bench.command(&argv) });
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
    let spool = Some(Spool { dir: bench.dir.path(), stem: "x" });
    let finished = go(&Command { spool, timeout: MINUTE / 3, ..bench.command(&argv) });
    assert_eq!((finished.end, text(&finished.stdout)), (End::Exited(0), "early\nlate\n"));
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 0);
}

#[test]
fn a_stream_without_a_spool_is_counted_and_shown() {
    let capture = Bench::new().sh("head -c 50000000 /dev/zero").stdout;
    assert_eq!((capture.bytes, capture.whole, capture.file), (50_000_000, None, None));
    assert_eq!((capture.head.len(), capture.tail.len()), (500, 500));
}

#[test]
fn secrets_are_hidden_where_reads_cut_them_and_in_the_file() {
    let mut bench = Bench::new();
    bench.launch.secrets = Secrets::new(["s3cr3t-value".to_owned()]);
    let argv = shell(
        "printf 's3cr3t-'; sleep 0.2; printf 'value|'; yes s3cr3t-value | head -n 20000; printf s3cr",
    );
    let spool = Some(Spool { dir: bench.dir.path(), stem: "x" });
    let capture = go(&Command { spool, ..bench.command(&argv) }).stdout;
    let expected = format!("[redacted]|{}s3cr", "[redacted]\n".repeat(20_000));
    assert_eq!(capture.bytes, expected.len() as u64);
    assert!(capture.head.starts_with(b"[redacted]|[redacted]\n"));
    assert!(fs::read_to_string(capture.file.unwrap()).unwrap() == expected);
}

#[test]
fn programs_are_looked_up_as_a_shell_would() {
    let mut bench = Bench::new();
    bench.script("tool", "755", "#!/bin/sh\necho cwd \"$@\"\n");
    assert_eq!(
        bench.sh("mkdir dir blocked; mkdir dir/tool; echo > blocked/tool").end,
        End::Exited(0)
    );
    assert_eq!(text(&go(&bench.command(&words(&["./tool", "1"]))).stdout), "cwd 1\n");
    // A directory and a file without permission are passed over; the empty entry is the working directory.
    bench.launch.env.set("PATH", "dir:blocked:");
    assert_eq!(text(&go(&bench.command(&words(&["tool", "2"]))).stdout), "cwd 2\n");
    bench.launch.env.set("PATH", "dir:blocked");
    let (code, reason) = bench.refusal(&["tool"]);
    assert_eq!(code, 126);
    assert!(reason.ends_with("blocked/tool` is not executable (no x permission)"), "{reason}");
}

#[test]
fn a_group_is_there_before_its_child_has_run() {
    let (bench, cancel) = (Bench::new(), Cancel::manual().unwrap());
    for _ in 0..50 {
        let argv = shell("exit 0");
        let command = bench.command(&argv);
        let running = prepare(&command).start(GRACE).unwrap_or_else(|end| panic!("{end:?}"));
        assert_eq!(rustix::process::getpgid(Some(running.child.pid)), Ok(running.child.pid));
        assert_eq!(running.finish(&cancel).0, End::Exited(0));
    }
}

#[test]
fn what_is_prepared_and_not_run_is_gone_and_did_nothing() {
    let bench = Bench::new();
    let argv = shell("touch done");
    drop(prepare(&bench.command(&argv)));
    assert_eq!(waitpid(None, WaitOptions::NOHANG).unwrap_err(), Errno::CHILD);
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 0);
}

#[test]
fn what_does_not_start_says_why() {
    let mut bench = Bench::new();
    bench.script("plain", "644", "#!/bin/sh\n");
    bench.script("orphan", "755", "#! /no/such -x\n");
    bench.script("dos", "755", "#!/bin/sh\r\necho\r\n");
    bench.script("headless", "755", "echo\n");
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
    let too_long = "the argument list is too long for the system: give the large value by stdin";
    check(&["echo", &long], 126, too_long);
    assert!(bench.refusal(&["echo", "a\0b"]).1.contains("NUL byte"));
    bench.launch.env = Env::default();
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
fn a_child_has_the_signals_of_a_new_program() {
    // The engine handles some and ignores SIGPIPE; its mask is passed on, and is empty here.
    let _handled = Cancel::install().unwrap();
    let bench = Bench::new();
    let finished = bench.sh("exec sed -n 's/^Sig[BIC][lg][knt]://p' /proc/self/status");
    let sets =
        text(&finished.stdout).lines().map(|set| u64::from_str_radix(set.trim(), 16).unwrap());
    // Above 31 are those that the C library has for itself.
    assert_eq!(sets.map(|set| set & 0x7fff_ffff).collect::<Vec<_>>(), [0, 0, 0]);
}

#[test]
fn a_group_of_zombies_does_not_live() {
    let mut child = std::process::Command::new("true").process_group(0).spawn().unwrap();
    let group = Pid::from_child(&child);
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(group), options).unwrap();
    assert!(rustix::process::test_kill_process_group(group).is_ok() && !lives(group));
    child.wait().unwrap();
    assert!(lives(rustix::process::getpgrp()));
}

/// Runs one test again in a process of its own; none when this is that process.
fn alone(test: &str, mark: (&str, &str)) -> Option<Finished> {
    if std::env::var_os(mark.0).is_some() {
        return None;
    }
    let mut bench = Bench::marked(mark.0, mark.1);
    // Its directories lie in ours, which is removed even if it cannot do so itself.
    bench.launch.env.set("TMPDIR", bench.dir.path());
    let tests = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let name = format!("process::tests::{test}");
    Some(go(&bench.command(&[tests, "--exact".into(), name, "--nocapture".into()])))
}

/// Counts descriptors and children, so it needs a process of its own.
#[test]
fn no_descriptor_and_no_zombie_is_left() {
    if let Some(finished) = alone("no_descriptor_and_no_zombie_is_left", ("DELTA_T_LEAK", "1")) {
        assert_eq!(
            finished.end,
            End::Exited(0),
            "{}{}",
            text(&finished.stdout),
            text(&finished.stderr)
        );
        assert!(text(&finished.stdout).contains("1 passed"));
        return;
    }
    let bench = Bench::new();
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    // Of the first child /dev/null stays open for the others.
    bench.sh("exit");
    let before = count();
    let spool = Some(Spool { dir: bench.dir.path(), stem: "x" });
    for (script, timeout) in [("cat", MINUTE), ("exit 1", MINUTE), ("sleep 60 & sleep 60", SHORT)] {
        go(&Command { stdin: b"\xff", spool, timeout, ..bench.command(&shell(script)) });
        let _ = fs::remove_file(bench.dir.path().join("x.stdout"));
    }
    bench.refusal(&["./no"]);
    bench.refusal(&["sh", &"x".repeat(200_000)]);
    assert_eq!(count(), before);
    let children = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
    assert_eq!(children.unwrap_err(), Errno::CHILD);
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 0);
}

/// The tool kills the engine that runs it, which is this test once more.
#[test]
fn no_tool_outlives_an_engine_that_was_killed() {
    let mark = ("DELTA_T_KILLED", "1");
    if let Some(finished) = alone("no_tool_outlives_an_engine_that_was_killed", mark) {
        assert_eq!(finished.end, End::Killed(libc::SIGKILL));
        let (cancel, deadline) = (Cancel::manual().unwrap(), Instant::now() + MINUTE / 3);
        while !find_marked(&[mark]).is_empty() {
            assert!(Instant::now() < deadline);
            cancel.wait(TICK);
        }
        return;
    }
    Bench::marked(mark.0, mark.1).sh("kill -KILL $PPID; exec sleep 60");
}
