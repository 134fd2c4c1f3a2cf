//! `delta-sessions` (C-14.1 to C-14.4).
//!
//! `DELTA_PYTHON=/usr/bin/python3.9` tests another Python than the `python3` in PATH.

mod corpus;
mod lifecycle;
mod python;
mod shell;
mod together;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use test_support::sandbox::{Delta, Ran, Sandbox};

/// The program under test.
pub const SESSIONS: &str = env!("CARGO_BIN_EXE_delta-sessions");

/// A Python in an environment without packages. The one in PATH may be a script that searches for it, and its packages may
/// take longer to load than everything else.
static PYTHON: LazyLock<String> = LazyLock::new(|| {
    let named = std::env::var("DELTA_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let text = "import sys; print(sys._base_executable)";
    let found = Command::new(&named).args(["-c", text]).output();
    let found = found.unwrap_or_else(|error| panic!("{named}: {error}"));
    assert!(found.status.success(), "{named}: {found:?}");
    let program = String::from_utf8(found.stdout).unwrap().trim_end().to_owned();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program.replace('/', "_"));
    let (config, link) = (dir.join("pyvenv.cfg"), dir.join("bin/python3"));
    // Each test is a process; several may create the environment at once.
    if !config.exists() {
        fs::create_dir_all(dir.join("bin")).unwrap();
        let own = dir.join(std::process::id().to_string());
        let home = Path::new(&program).parent().unwrap().display();
        fs::write(&own, format!("home = {home}\ninclude-system-site-packages = false\n")).unwrap();
        fs::rename(own, config).unwrap();
    }
    let made = std::os::unix::fs::symlink(program, &link);
    assert!(made.is_ok() || link.exists(), "{made:?}");
    link.display().to_string()
});

/// A session in its own sandbox.
struct Session {
    sandbox: Sandbox,
    id: String,
}

impl Session {
    fn start(command: &[&str]) -> Self {
        Self::start_with(command, |delta| delta)
    }

    /// Starts a session in a changed environment.
    fn start_with(command: &[&str], change: impl Fn(Delta) -> Delta) -> Self {
        let sandbox = Sandbox::new(SESSIONS);
        fs::create_dir(sandbox.path("work")).unwrap();
        let start = sandbox.delta(["start"].iter().chain(command).copied());
        let answer = change(start).cwd(sandbox.path("work")).output().expect_code(0).json();
        let id = answer["session_id"].as_str().unwrap().to_owned();
        Self { sandbox, id }
    }

    /// A session command in the directory of the session.
    fn command(&self, args: &[&str]) -> Delta {
        self.sandbox.delta(args.iter().copied()).cwd(self.sandbox.path("work"))
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output()
    }

    /// Runs a text with more options. Returns the report without its time.
    #[track_caller]
    fn exec_with(&self, text: &str, more: &[&str]) -> Value {
        let ran = self.run(&[&["exec", &self.id, text], more].concat()).expect_code(0);
        assert_eq!(ran.stderr, "");
        let mut answer = ran.json();
        assert!(answer["execution_time_ms"].is_u64(), "{answer}");
        answer.as_object_mut().unwrap().remove("execution_time_ms");
        answer
    }

    #[track_caller]
    fn exec(&self, text: &str) -> Value {
        self.exec_with(text, &[])
    }

    /// Runs a text that prints only on stdout. Returns its output.
    #[track_caller]
    fn stdout_of(&self, text: &str) -> String {
        let answer = self.exec(text);
        let stdout = answer["stdout"].as_str().unwrap().to_owned();
        assert_eq!(answer, json!({"stdout": stdout, "stderr": "", "exit_code": 0}), "{text}");
        stdout
    }

    /// A path in the directory of the session.
    fn dir(&self) -> String {
        format!("work/.sessions/{}", self.id)
    }

    fn metadata(&self) -> Value {
        serde_json::from_str(&self.sandbox.read(&format!("{}/metadata.json", self.dir()))).unwrap()
    }

    /// The names of the state directories.
    fn states(&self) -> Vec<String> {
        let entries = fs::read_dir(self.sandbox.path(&self.dir())).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("state.")).collect()
    }
}
