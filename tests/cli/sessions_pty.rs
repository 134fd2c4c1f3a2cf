//! `delta-sessions-pty` (C-14.5).

mod attach;
mod input;
mod lifecycle;
mod output;
mod programs;
mod together;

use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use test_support::sandbox::{Delta, Ran, Sandbox};

/// The program under test.
pub const PTY: &str = env!("CARGO_BIN_EXE_delta-sessions-pty");

/// The directory `work/` of a sandbox, with its sessions. They end with it.
struct Place {
    sandbox: Sandbox,
    /// What ends the sessions of a test that is killed and cannot do it itself.
    guard: Child,
}

impl Place {
    fn new() -> Self {
        let sandbox = Sandbox::new(PTY);
        std::fs::create_dir(sandbox.path("work")).unwrap();
        // A session whose directory is removed ends. The input of this ends with the test, however that ends.
        let mut guard = Command::new("sh");
        guard.args(["-c", "cat; rm -rf \"$0\""]).arg(sandbox.path("work/.sessions-pty"));
        // Signals to the test's process group are not for it.
        let guard = guard.stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        Self { sandbox, guard }
    }

    /// A command of the program.
    fn command(&self, args: &[&str]) -> Delta {
        self.sandbox.delta(args.iter().copied()).cwd(self.sandbox.path("work"))
    }

    /// What a command prints that works.
    #[track_caller]
    fn says(&self, args: &[&str]) -> Value {
        let ran = self.command(args).output().expect_code(0);
        assert_eq!((ran.stderr.as_str(), ran.stdout.lines().count()), ("", 1), "{args:?}");
        ran.json()
    }

    /// Why a command does not work.
    #[track_caller]
    fn refuses(&self, args: &[&str]) -> String {
        let ran = self.command(args).output().expect_code(1);
        let answer = ran.json();
        assert_eq!((ran.stderr.as_str(), answer.as_object().unwrap().len()), ("", 1), "{args:?}");
        answer["error"].as_str().unwrap().to_owned()
    }

    /// What a usage error says on stderr.
    #[track_caller]
    fn misused(&self, args: &[&str]) -> String {
        let Ran { stdout, stderr, .. } = self.command(args).output().expect_code(2);
        assert_eq!(stdout, "");
        stderr
    }

    /// Starts a program; gives the id of its session.
    #[track_caller]
    fn start(&self, command: &[&str]) -> String {
        let started = self.says(&[&["start"], command].concat());
        started["session_id"].as_str().unwrap().to_owned()
    }

    /// Starts a bash whose prompt is a dollar, and waits for it.
    #[track_caller]
    fn start_bash(&self) -> String {
        let id = self.start(&["env", "PS1=$ ", "bash", "--norc", "--noprofile"]);
        assert_eq!(self.wait(&id, "$ "), "$ ");
        id
    }

    /// Types a text, with escapes.
    #[track_caller]
    fn write(&self, id: &str, text: &str) {
        let answer = self.says(&["write", id, text]);
        assert_eq!(answer["session_id"], id);
    }

    #[track_caller]
    fn keys(&self, id: &str, keys: &[&str]) {
        self.says(&[&["write-key", id], keys].concat());
    }

    /// Reads until `text` has come; gives what came.
    #[track_caller]
    fn wait(&self, id: &str, text: &str) -> String {
        let answer = self.says(&["read", id, "--wait", text, "--timeout", "30000"]);
        assert_eq!(answer.get("timed_out"), None, "{text:?} did not come: {answer}");
        answer["output"].as_str().unwrap().to_owned()
    }

    /// What stands on the screen, once `text` does.
    #[track_caller]
    fn screen(&self, id: &str, text: &str) -> Value {
        let answer = self.says(&["read", id, "--screen", "--wait", text, "--timeout", "30000"]);
        assert_eq!(answer.get("timed_out"), None, "{text:?} is not on the screen: {answer}");
        answer
    }

    /// The rows of the screen, once `text` stands there.
    #[track_caller]
    fn rows(&self, id: &str, text: &str) -> Vec<String> {
        let screen = self.screen(id, text);
        screen["screen"].as_str().unwrap().lines().map(str::to_owned).collect()
    }

    /// Waits until a session has ended by itself.
    #[track_caller]
    fn until_ended(&self, id: &str) -> Value {
        test_support::wait::until("the end of the program", || {
            let status = self.says(&["status", id]);
            (status["status"] != "active").then_some(status)
        })
    }

    /// The number of the process of a session's program.
    fn pid(&self, id: &str) -> i32 {
        self.says(&["status", id])["pid"].as_i64().unwrap().try_into().unwrap()
    }

    /// The process that holds a session.
    fn holder(&self, id: &str) -> i32 {
        let lock = self.sandbox.read(&format!("work/.sessions-pty/{id}/lock"));
        lock.trim().parse().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.command(&["cleanup", "--all"]).output();
        let _ = self.guard.wait();
    }
}

#[test]
fn c_14_5_it_says_that_it_is_experimental() {
    let place = Place::new();
    let help = place.command(&["--help"]).output().expect_code(0).stdout;
    assert!(help.contains("Experimental."), "{help}");
    assert_eq!(place.says(&["list"]), json!([]));
    assert_eq!(place.says(&["cleanup"]), json!({"removed": []}));
    assert_eq!(place.sandbox.files("work"), Vec::<String>::new());
}
