//! A sandbox for a test: an agent directory, a workspace and a home, in which the built program runs with a cleared
//! environment.

use crate::needs;
use crate::running::end_with_test;
use serde_json::Value;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The smallest context.yaml that shows the conversation.
pub const CONTEXT: &str =
    "sources:\n  - type: file\n    path: '${AGENT_HOME}/system_prompt.md'\n  - type: journal\n";

/// A temporary directory with `agent/`, `work/` and `home/`, removed on drop.
///
/// Before that, `delta replay --mode verify` must find that the files of every run in it agree, so every test also tests
/// that promise. A test that changes these files on purpose calls [`Sandbox::unverified`].
pub struct Sandbox {
    dir: tempfile::TempDir,
    program: PathBuf,
    verified: Cell<bool>,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.verified.get() && !std::thread::panicking() {
            self.verify();
        }
    }
}

/// The directory for temporary files, or /tmp where that is in /dev/shm.
pub fn temp_dir_not_in_memory() -> PathBuf {
    let dir = std::env::temp_dir();
    if dir.starts_with("/dev/shm") { "/tmp".into() } else { dir }
}

/// A program that starts another one with a filter for system calls (seccomp): `refusing NUMBER ARGUMENT PROGRAM ...`.
const REFUSING: &str = "\
#!/usr/bin/env python3
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
refuse, allow = (RETURN, 0, 0, 0x50016), (RETURN, 0, 0, 0x7fff0000)
argument = [] if sys.argv[2] == 'any' else [(LOAD, 0, 0, 16), (EQUAL, 0, 1, int(sys.argv[2]))]
lines = [(LOAD, 0, 0, 0), (EQUAL, 0, len(argument) + 1, int(sys.argv[1])), *argument, refuse, allow]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, struct.pack('HP', len(lines), ctypes.addressof(code)), 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[3], sys.argv[3:])
";

impl Sandbox {
    /// A sandbox for `program`, usually `env!("CARGO_BIN_EXE_delta")`. The agent has a system prompt and a context.yaml,
    /// and no agent.yaml yet.
    pub fn new(program: &str) -> Self {
        Self::new_below(&std::env::temp_dir(), program)
    }

    /// The same for tools in a sandbox of delta, which have a /dev/shm of their own, or may write there: TMPDIR may be there.
    pub fn not_in_memory(program: &str) -> Self {
        Self::new_below(&temp_dir_not_in_memory(), program)
    }

    /// The same in a new directory below `parent`.
    pub fn new_below(parent: &Path, program: &str) -> Self {
        let sandbox = Self {
            dir: tempfile::tempdir_in(parent).expect("a temporary directory"),
            program: program.into(),
            verified: Cell::new(true),
        };
        fs::create_dir(sandbox.path("home")).expect("home/");
        sandbox.write("agent/system_prompt.md", "You are a test.\n");
        sandbox.write("agent/context.yaml", CONTEXT);
        sandbox
    }

    /// An agent whose LLM is the script with the given turns (YAML, each beginning with `- `), and with the given tools
    /// (YAML likewise).
    pub fn scripted(program: &str, tools: &str, turns: &str) -> Self {
        let sandbox = Self::new(program);
        sandbox.script(tools, turns);
        sandbox
    }

    /// Writes the agent of [`Sandbox::scripted`].
    pub fn script(&self, tools: &str, turns: &str) {
        self.agent("provider: script\n  model: script.yaml", tools);
        self.write("agent/script.yaml", format!("turns:\n{turns}\n"));
    }

    /// The same sandbox on a machine that refuses namespaces to the program; `None` if this one cannot play it.
    #[must_use]
    pub fn without_namespaces(self) -> Option<Self> {
        let refusing = "unshare --user --map-root-user /bin/sh -c \
             'echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"'";
        let sandbox = self.started_by(refusing);
        let works = sandbox.delta(["--version"]).output().code == 0;
        if !works {
            needs::skip("needs namespaces that can be refused");
        }
        works.then_some(sandbox)
    }

    /// The same sandbox, in which `launcher`, a part of a shell command, starts the program.
    #[must_use]
    pub fn started_by(mut self, launcher: &str) -> Self {
        let script = format!("#!/bin/sh\nexec {launcher} {} \"$@\"\n", self.program.display());
        // An earlier launcher has another file.
        let name = format!("bin/started-{}", self.files("bin").len());
        self.write_program(&name, &script);
        self.program = self.path(&name);
        self
    }

    /// The same sandbox, in which a system call fails with EINVAL, as one does that the kernel or an emulator does not know:
    /// `numbers` are its number on x86-64 and on aarch64, `argument` its first argument, if only that is refused.
    pub fn without_system_call(self, numbers: [u32; 2], argument: Option<u32>) -> Option<Self> {
        if !needs::programs(&["python3"]) {
            return None;
        }
        self.write_program("refusing", REFUSING);
        let number = numbers[usize::from(cfg!(target_arch = "aarch64"))];
        let argument = argument.map_or_else(|| "any".to_owned(), |argument| argument.to_string());
        let launcher = format!("{} {number} {argument}", self.path("refusing").display());
        Some(self.started_by(&launcher))
    }

    /// An agent that asks the endpoint at `url`.
    pub fn asking(program: &str, url: &str, tools: &str) -> Self {
        let sandbox = Self::new(program);
        sandbox.agent(&format!("model: test-model\n  base_url: {url}"), tools);
        sandbox
    }

    /// Writes agent.yaml with an `llm:` section (its lines after the first indented by two) and a list of tools.
    pub fn agent(&self, llm: &str, tools: &str) {
        let tools = if tools.trim().is_empty() {
            "tools: []".to_owned()
        } else {
            format!("tools:\n{tools}")
        };
        self.write("agent/agent.yaml", format!("name: test-agent\nllm:\n  {llm}\n{tools}\n"));
    }

    /// Turns off the verification of the runs on drop; `why` is for the reader of the test.
    pub fn unverified(&self, why: &str) {
        assert!(!why.is_empty(), "say why the runs cannot be verified");
        self.verified.set(false);
    }

    /// Fails unless the files of every run in the sandbox agree.
    pub fn verify(&self) {
        if self.program.file_name().is_none_or(|name| name != "delta") {
            return;
        }
        for journal in self.files("").iter().filter(|path| path.ends_with("/journal.jsonl")) {
            let mut parts = journal.rsplitn(4, '/').skip(1);
            let (Some(run), Some(".delta"), work) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            // A run whose journal contains no event never began.
            if !self.bytes(journal).contains(&b'\n') {
                continue;
            }
            let work = self.path(work.unwrap_or_default());
            let place = format!("-w{}", work.display());
            let ran = if work.join("workspace").is_file() {
                // The run is not in its workspace.
                self.delta([OsString::from("replay"), work.join(".delta").join(run).into()])
                    .output()
            } else {
                self.delta(["replay", run, &place]).output()
            };
            assert_eq!(ran.code, 0, "{journal}:\n{}{}", ran.stdout, ran.stderr);
        }
    }

    fn bytes(&self, relative: &str) -> Vec<u8> {
        fs::read(self.path(relative)).unwrap_or_default()
    }

    /// A path inside the sandbox.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("the sandbox exists").join(relative)
    }

    /// Writes a file, and creates its directories.
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Writes an executable file.
    pub fn write_program(&self, relative: &str, content: &str) {
        let source = format!("{relative}.source");
        self.write(&source, content);
        self.copy_program(self.path(&source), relative);
        fs::remove_file(self.path(&source)).expect("the source exists");
    }

    /// Copies an executable file.
    ///
    /// Another process writes it: if this one had it open for writing, a child that another test forks at the same moment
    /// would inherit it, and the file could not be executed (ETXTBSY).
    pub fn copy_program(&self, source: impl AsRef<Path>, relative: &str) {
        let mut install = Command::new("install");
        install.args(["-m", "755"]).arg(source.as_ref()).arg(self.path(relative));
        assert!(
            install.status().expect("`install` starts").success(),
            "{relative} is not installed"
        );
    }

    /// Reads a file.
    pub fn read(&self, relative: &str) -> String {
        let path = self.path(relative);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// All files below a directory, relative to it, sorted.
    pub fn files(&self, relative: &str) -> Vec<String> {
        let root = self.path(relative);
        let mut found = Vec::new();
        let mut queue = vec![root.clone()];
        while let Some(dir) = queue.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() && !path.is_symlink() {
                    queue.push(path);
                } else {
                    found.push(
                        path.strip_prefix(&root).expect("below").to_string_lossy().into_owned(),
                    );
                }
            }
        }
        found.sort();
        found
    }

    /// A command of the program, in the sandbox, with a cleared environment.
    pub fn delta<I: IntoIterator<Item = S>, S: Into<OsString>>(&self, args: I) -> Delta {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        // Cargo builds the programs of other packages for a test only on demand.
        if args.first().is_some_and(|command| command == "sweep") {
            crate::sibling("delta-sweep");
        }
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.path("")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path("home")).env("LANG", "C.UTF-8");
        // The tests as they are, with runs that are owned otherwise.
        if let Some(lease) = std::env::var_os("DELTA_TEST_LEASE") {
            command.env("DELTA_LEASE", lease);
        }
        end_with_test(&mut command);
        Delta { command, stdin: Vec::new() }
    }

    /// `delta run` of the agent in `work/` as run `r`, with a message and more arguments.
    pub fn run(&self, message: &str, more: &[&str]) -> Ran {
        self.run_command(message, more).output()
    }

    /// The command of [`Sandbox::run`], not started yet.
    pub fn run_command(&self, message: &str, more: &[&str]) -> Delta {
        let fixed = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", message];
        self.delta(fixed.iter().chain(more).copied())
    }

    /// The events of run `r` in `work/`.
    pub fn journal(&self) -> Vec<Value> {
        let text = self.read("work/.delta/r/journal.jsonl");
        text.lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }

    /// The events of run `r` of one type.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        self.journal().into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// The observations of run `r`, in order.
    pub fn observations(&self) -> Vec<String> {
        let text =
            |event: &Value| event["observation_content"].as_str().expect("a text").to_owned();
        self.events("ACTION_RESULT").iter().map(text).collect()
    }

    /// metadata.json of run `r`.
    pub fn metadata(&self) -> Value {
        serde_json::from_str(&self.read("work/.delta/r/metadata.json"))
            .expect("metadata.json is JSON")
    }
}

/// A command of the program, not started yet.
pub struct Delta {
    command: Command,
    stdin: Vec<u8>,
}

impl Delta {
    /// Adds arguments.
    #[must_use]
    pub fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.command.args(args);
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Sets the bytes of its stdin.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Sets its working directory.
    #[must_use]
    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// The command itself, for settings without a method here.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Starts it with pipes on all three streams.
    pub fn spawn(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A program that does not read its input has ended already.
        let _ = stdin.write_all(&self.stdin);
        child
    }

    /// Runs it to its end.
    pub fn output(self) -> Ran {
        let output = self.spawn().wait_with_output().expect("the program ends");
        Ran::of(output.status, &output.stdout, &output.stderr)
    }
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it printed to standard error.
    pub stderr: String,
}

impl Ran {
    /// From a status and two streams.
    pub fn of(status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Fails with everything shown unless the exit code is `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.stdout))
    }
}
