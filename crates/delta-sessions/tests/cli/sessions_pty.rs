//! `delta-sessions-pty` (C-14.5).

mod attach;
mod input;
mod lifecycle;
mod output;
mod programs;
mod together;

use super::sessions::SESSIONS;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use test_support::sandbox::{Delta, Ran, Sandbox};

/// The program under test, by the name that older agents use.
static PTY: LazyLock<String> = LazyLock::new(test_support::pty_link);

/// The directory `work/` of a sandbox. Dropping it ends its sessions.
struct PtyFixture {
    sandbox: Sandbox,
    /// Ends the sessions of a test that was killed.
    guard: Child,
}

impl PtyFixture {
    fn new() -> Self {
        let sandbox = Sandbox::new(&PTY);
        std::fs::create_dir(sandbox.path("work")).unwrap();
        // A session ends when its directory is removed. The guard's stdin closes when the test ends, even if it is killed.
        let mut guard = Command::new("sh");
        guard.args(["-c", "cat; rm -rf \"$0\""]).arg(sandbox.path("work/.sessions-pty"));
        // Signals to the test's process group must not reach it.
        let guard = guard.stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        Self { sandbox, guard }
    }

    /// A session command in `work/`.
    fn command(&self, args: &[&str]) -> Delta {
        self.sandbox.delta(args.iter().copied()).cwd(self.sandbox.path("work"))
    }

    /// Runs a command that succeeds. Returns its report.
    #[track_caller]
    fn report(&self, args: &[&str]) -> Value {
        let ran = self.command(args).output().expect_code(0);
        assert_eq!((ran.stderr.as_str(), ran.stdout.lines().count()), ("", 1), "{args:?}");
        ran.json()
    }

    /// Runs a command that fails. Returns its error.
    #[track_caller]
    fn error(&self, args: &[&str]) -> String {
        let ran = self.command(args).output().expect_code(1);
        let answer = ran.json();
        assert_eq!((ran.stderr.as_str(), answer.as_object().unwrap().len()), ("", 1), "{args:?}");
        answer["error"].as_str().unwrap().to_owned()
    }

    /// Runs a command with a usage error. Returns its stderr.
    #[track_caller]
    fn usage_error(&self, args: &[&str]) -> String {
        let Ran { stdout, stderr, .. } = self.command(args).output().expect_code(2);
        assert_eq!(stdout, "");
        stderr
    }

    /// Starts a program. Returns the session id.
    #[track_caller]
    fn start(&self, command: &[&str]) -> String {
        let started = self.report(&[&["start"], command].concat());
        started["session_id"].as_str().unwrap().to_owned()
    }

    /// Starts a bash with the prompt `$ ` and waits for the prompt.
    #[track_caller]
    fn start_bash(&self) -> String {
        let id = self.start(&["env", "PS1=$ ", "bash", "--norc", "--noprofile"]);
        assert_eq!(self.wait(&id, "$ "), "$ ");
        id
    }

    /// Types text with escapes.
    #[track_caller]
    fn write(&self, id: &str, text: &str) {
        let answer = self.report(&["write", id, text]);
        assert_eq!(answer["session_id"], id);
    }

    #[track_caller]
    fn keys(&self, id: &str, keys: &[&str]) {
        self.report(&[&["write-key", id], keys].concat());
    }

    /// Reads until `text` appears. Returns the output.
    #[track_caller]
    fn wait(&self, id: &str, text: &str) -> String {
        let answer = self.report(&["read", id, "--wait", text, "--timeout", "30000ms"]);
        assert_eq!(answer.get("timed_out"), None, "{text:?} did not come: {answer}");
        answer["output"].as_str().unwrap().to_owned()
    }

    /// Waits until `text` is on the screen. Returns the report.
    #[track_caller]
    fn screen(&self, id: &str, text: &str) -> Value {
        let answer = self.report(&["read", id, "--screen", "--wait", text, "--timeout", "30000ms"]);
        assert_eq!(answer.get("timed_out"), None, "{text:?} is not on the screen: {answer}");
        answer
    }

    /// Waits until `text` is on the screen. Returns its rows.
    #[track_caller]
    fn rows(&self, id: &str, text: &str) -> Vec<String> {
        let screen = self.screen(id, text);
        screen["screen"].as_str().unwrap().lines().map(str::to_owned).collect()
    }

    /// Waits until the program has ended by itself. Returns the status.
    #[track_caller]
    fn until_ended(&self, id: &str) -> Value {
        test_support::wait::until("the end of the program", || {
            let status = self.report(&["status", id]);
            (status["status"] != "active").then_some(status)
        })
    }

    /// The process id of the program.
    fn pid(&self, id: &str) -> i32 {
        self.report(&["status", id])["pid"].as_i64().unwrap().try_into().unwrap()
    }

    /// The process id of the holder.
    fn holder(&self, id: &str) -> i32 {
        let lock = self.sandbox.read(&format!("work/.sessions-pty/{id}/lock"));
        lock.trim().parse().unwrap()
    }
}

impl Drop for PtyFixture {
    fn drop(&mut self) {
        let _ = self.command(&["cleanup", "--all"]).output();
        let _ = self.guard.wait();
    }
}

#[test]
fn c_14_5_the_help_says_experimental() {
    let fixture = PtyFixture::new();
    let help = fixture.command(&["--help"]).output().expect_code(0).stdout;
    assert!(help.contains("Experimental."), "{help}");
    assert_eq!(fixture.report(&["list"]), json!([]));
    assert_eq!(fixture.report(&["cleanup"]), json!({"removed": []}));
    assert_eq!(fixture.sandbox.files("work"), Vec::<String>::new());
}

#[test]
fn c_14_5_pty_is_a_command_of_delta_sessions() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["sh", "-c", "exit 7"]);
    fixture.until_ended(&id);
    let run = |program: &Path, args: &[&str]| {
        let mut command = Command::new(program);
        let output = command.args(args).current_dir(fixture.sandbox.path("work")).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let pty = |args: &[&str]| run(Path::new(SESSIONS), &[&["pty"], args].concat());
    assert_eq!(pty(&["list"])[0]["exit_code"], 7);
    let error = format!(
        "the program of session `{id}` has ended: `delta-sessions pty read {id}` prints its last output"
    );
    assert_eq!(pty(&["write", &id, "x"]), json!({"error": error}));
    assert_eq!(pty(&["cleanup"]), json!({"removed": [id]}));
    // A wheel has a copy in place of the link.
    let copy = fixture.sandbox.path("delta-sessions-pty");
    std::fs::copy(SESSIONS, &copy).unwrap();
    for started in [pty(&["start", "cat"]), run(&copy, &["start", "cat"])] {
        let id = started["session_id"].as_str().unwrap();
        assert_eq!(fixture.report(&["status", id])["status"], "active");
    }
}
