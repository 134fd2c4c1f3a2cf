//! Runs tests: each one is one or more processes of the program `delta` in a temporary directory.
//!
//! Nothing of a test outlives it, except the directory of a failed test, for inspection.

use super::expectation::TestOutcome;
use super::{AgentTest, TestFailure, TestLlm, test_cassette};
use delta_agent::git_places::remove_git_places;
use delta_base::durable;
use delta_base::hex::sha256_hex;
use delta_base::shell_quote::shell_quote;
use delta_base::signal::CancelToken;
use delta_llm::llm::cassette::{Cassette, CassetteHeader};
use delta_process::{
    self as process, LaunchContext, OutputCapture, ProcessCommand, ProcessEnd, RunMark,
    RunProcessFilter,
};
use delta_run::event::{Event, Payload};
use delta_run::journal;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

/// The run id of every test.
pub const TEST_RUN_ID: &str = "test";
/// The shortest timeout while recording, because a real LLM is slow.
const MIN_RECORDING_TIMEOUT: Duration = Duration::from_secs(600);
/// How many bytes of stderr a result keeps.
const MAX_STDERR_BYTES: usize = 256 * 1024;
/// The directory of the test, in the environment of its setup script and of what that leaves running.
const TEST_DIR_VARIABLE: &str = "DELTA_TEST_DIR";
/// The exit code of a run that waits for the user.
const WAITING_EXIT_CODE: i64 = 101;

/// The setup that all tests of a run of `delta test` share.
#[derive(Debug)]
pub struct TestSetup {
    /// The program `delta`.
    pub program: PathBuf,
    /// The agent directory, absolute.
    pub agent_home: PathBuf,
    /// The current directory of the program.
    pub cwd: PathBuf,
    /// The environment of the program, to which each test adds its `env`.
    pub env: BTreeMap<OsString, OsString>,
    /// The same for the setup scripts of tests: no key, even while answers are recorded.
    pub keyless_env: BTreeMap<OsString, OsString>,
    /// The files of variables that the program reads besides.
    pub env_files: Vec<PathBuf>,
    /// More options of every run.
    pub run_options: Vec<String>,
    /// The parent of the directories of the tests.
    pub base_dir: PathBuf,
    /// Whether the directories of passed tests are kept too.
    pub keep_all: bool,
    /// The first line of the cassettes to record; `None` if nothing is recorded.
    pub recording: Option<CassetteHeader>,
}

/// The result of a test.
#[derive(Debug)]
pub struct TestResult {
    /// The name of the test.
    pub name: String,
    /// The test file.
    pub file: PathBuf,
    /// The duration of the whole test.
    pub duration: Duration,
    /// Every mismatch, sorted by line; empty if the test passed.
    pub failures: Vec<TestFailure>,
    /// Observations that do not fail the test.
    pub notes: Vec<String>,
    /// The directory of the test, if it was kept.
    pub kept_dir: Option<PathBuf>,
    /// What all processes printed to stderr.
    pub stderr: String,
}

impl TestResult {
    /// Whether every expectation was met.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs `tests`, at most `jobs` at a time. Calls `report` with each result in the order of the tests, as soon as that test
/// and those before it have finished; tests that `cancel` stopped have no result.
///
/// # Errors
/// The system could not create a pipe.
pub fn run_tests(
    tests: &[AgentTest],
    setup: &TestSetup,
    jobs: usize,
    cancel: &CancelToken,
    report: &mut dyn FnMut(TestResult),
) -> io::Result<()> {
    let jobs = jobs.clamp(1, tests.len().max(1));
    // Each worker has its own token, because a wake-up through a shared pipe would reach only one of the workers.
    let worker_tokens = (0..jobs).map(|_| CancelToken::manual()).collect::<io::Result<Vec<_>>>()?;
    let queue = TestQueue {
        tests,
        setup,
        cancel,
        next_index: AtomicUsize::new(0),
        busy_workers: AtomicUsize::new(jobs),
        results: Mutex::new(BTreeMap::new()),
    };
    std::thread::scope(|scope| {
        for token in &worker_tokens {
            scope.spawn(|| queue.work(token));
        }
        let mut reported = 0;
        loop {
            // Read before the results, so that no result of the last worker is missed.
            let is_finished = queue.busy_workers.load(Ordering::SeqCst) == 0;
            while let Some(result) = queue.take_result(reported) {
                report(result);
                reported += 1;
            }
            if is_finished {
                break;
            }
            if cancel.is_requested() {
                worker_tokens.iter().for_each(CancelToken::request);
            }
            cancel.wait_for_wake(None);
        }
    });
    Ok(())
}

/// The tests that workers take, and their results.
struct TestQueue<'a> {
    tests: &'a [AgentTest],
    setup: &'a TestSetup,
    /// Woken after each test.
    cancel: &'a CancelToken,
    next_index: AtomicUsize,
    busy_workers: AtomicUsize,
    /// The results that are not reported yet, by the index of the test.
    results: Mutex<BTreeMap<usize, TestResult>>,
}

impl TestQueue<'_> {
    /// Runs tests until none is left or `token` is requested.
    fn work(&self, token: &CancelToken) {
        while !token.is_requested() {
            let index = self.next_index.fetch_add(1, Ordering::SeqCst);
            let Some(test) = self.tests.get(index) else { break };
            if let Some(result) = run_test(test, self.setup, token) {
                self.lock_results().insert(index, result);
            }
            self.cancel.wake();
        }
        self.busy_workers.fetch_sub(1, Ordering::SeqCst);
        self.cancel.wake();
    }

    fn take_result(&self, index: usize) -> Option<TestResult> {
        self.lock_results().remove(&index)
    }

    fn lock_results(&self) -> MutexGuard<'_, BTreeMap<usize, TestResult>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one test; `None` if it was cancelled.
fn run_test(test: &AgentTest, setup: &TestSetup, cancel: &CancelToken) -> Option<TestResult> {
    let start = Instant::now();
    let timeout = match setup.recording {
        Some(_) => test.timeout.max(MIN_RECORDING_TIMEOUT),
        None => test.timeout,
    };
    let dir = setup.base_dir.join(test_dir_name(&test.name));
    let mut run = TestRun {
        test,
        setup,
        workspace: dir.join("work"),
        dir,
        deadline: start + timeout,
        failures: Vec::new(),
        notes: Vec::new(),
        stderr: String::new(),
    };
    let is_cancelled = match run.prepare_workspace() {
        Ok(()) => run.execute(cancel),
        Err(error) => {
            run.fail("the workspace", format!("could not be created: {error}"));
            false
        }
    };
    run.end_setup_processes(cancel);
    let is_kept = setup.keep_all || !run.failures.is_empty() && !is_cancelled;
    if !is_kept {
        // What cannot be removed does no harm in a directory for temporary files.
        let _ = fs::remove_dir_all(&run.dir);
    }
    (!is_cancelled).then(|| TestResult {
        name: test.name.clone(),
        file: test.file.clone(),
        duration: start.elapsed(),
        failures: run.failures,
        notes: run.notes,
        kept_dir: is_kept.then_some(run.dir),
        stderr: run.stderr,
    })
}

/// Whether a variable is one by which the operator decides where the key goes.
fn is_operator_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let prefixes = ["DELTA_", "OPENAI_", "XDG_", "SSL_CERT_"];
    name == "HOME"
        || name.ends_with("_PROXY")
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// The name of the directory of a test: the name of the test, or its hash if it is not a plain file name.
fn test_dir_name(name: &str) -> String {
    let has_plain_bytes =
        name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    let is_plain = has_plain_bytes && name.len() <= 100 && !name.starts_with('.');
    if is_plain { name.to_owned() } else { sha256_hex(name)[..16].to_owned() }
}

/// A test while it runs.
struct TestRun<'a> {
    test: &'a AgentTest,
    setup: &'a TestSetup,
    /// The directory of the test.
    dir: PathBuf,
    /// The workspace, which is in `dir`.
    workspace: PathBuf,
    deadline: Instant,
    failures: Vec<TestFailure>,
    notes: Vec<String>,
    stderr: String,
}

/// The outcome of a process of a test.
struct TestProcessOutput {
    exit_code: i64,
    stdout: Vec<u8>,
}

impl TestRun<'_> {
    fn fail(&mut self, subject: &str, message: impl Into<String>) {
        self.failures.push(TestFailure::new(subject, message));
    }

    /// Creates the workspace and the script.
    fn prepare_workspace(&self) -> Result<(), durable::FileError> {
        durable::ensure_private_dir(&self.workspace)?;
        if let Some(source) = &self.test.source_dir {
            copy_directory(source, &self.workspace)?;
        }
        for (path, text) in &self.test.files {
            self.write_workspace_file(path, text)?;
        }
        if let TestLlm::Turns(_, text) = &self.test.llm {
            durable::create_private_unsynced(&self.script_path(), text.as_bytes())?;
        }
        Ok(())
    }

    fn script_path(&self) -> PathBuf {
        self.dir.join("script.yaml")
    }

    /// Writes a file of the workspace, which replaces a copied one. Copied symlinks cannot lead it out of the workspace.
    fn write_workspace_file(&self, path: &str, text: &str) -> Result<(), durable::FileError> {
        let file = self.workspace.join(path);
        let parent = file.parent().unwrap_or(&self.workspace);
        durable::ensure_shared_dir(parent)?;
        let file_error =
            |source| durable::FileError { action: "write", path: file.clone(), source };
        let real_parent = parent.canonicalize().map_err(file_error)?;
        if !real_parent.starts_with(&self.workspace) {
            return Err(file_error(io::Error::other("a symlink leads out of the workspace")));
        }
        if file.symlink_metadata().is_ok() {
            durable::remove_file_synced(&file)?;
        }
        durable::create_shared_unsynced(&file, text.as_bytes(), false)
    }

    /// Runs the agent and checks the outcome. Returns whether it was cancelled.
    fn execute(&mut self, cancel: &CancelToken) -> bool {
        if self.setup.recording.is_none()
            && let TestLlm::Cassette { path, tape: None, .. } = &self.test.llm
        {
            let message = format!(
                "{} does not exist; {}, or write `llm: {{turns: ...}}` in the test",
                path.display(),
                self.recording_hint()
            );
            self.fail("the cassette", message);
            return false;
        }
        if self.setup.recording.is_some()
            && let Some((name, _)) =
                self.test.env.iter().find(|(name, _)| is_operator_variable(name))
        {
            let message = format!(
                "it sets {name}, which only you may set while answers are recorded: it decides where your key goes"
            );
            self.fail("`env`", message);
            return false;
        }
        let outcome = self.run_setup(cancel).and_then(|is_finished| {
            if is_finished { self.run_processes(cancel) } else { Ok(None) }
        });
        match outcome {
            Ok(Some(output)) => self.check_outcome(&output),
            Ok(None) => return true,
            Err(failure) => self.failures.push(failure),
        }
        false
    }

    /// Runs the setup script of the test in the workspace, if there is one. Returns whether it finished; `false` if it was
    /// cancelled.
    fn run_setup(&mut self, cancel: &CancelToken) -> Result<bool, TestFailure> {
        let Some(script) = &self.test.setup_script else { return Ok(true) };
        let argv = ["sh", "-e", "-c", script].map(str::to_owned);
        let mut env = self.with_test_env(&self.setup.keyless_env);
        env.insert("AGENT_HOME".into(), self.setup.agent_home.clone().into());
        env.insert(TEST_DIR_VARIABLE.into(), self.dir.clone().into());
        let launch = LaunchContext::new(&self.workspace, env);
        let command = ProcessCommand {
            capture_whole: true,
            ..ProcessCommand::new(&argv, &launch, self.time_left(), MAX_STDERR_BYTES)
        };
        let Some(output) = self.run_command("`setup`", &command, cancel)? else {
            return Ok(false);
        };
        if output.exit_code != 0 {
            return Err(TestFailure::new("`setup`", format!("exited with {}", output.exit_code)));
        }
        // `expect.stderr` is about the run.
        self.stderr.clear();
        Ok(true)
    }

    /// Ends what the setup script has left running, such as a server: the next test finds its port free.
    fn end_setup_processes(&self, cancel: &CancelToken) {
        if self.test.setup_script.is_none() {
            return;
        }
        let mut processes = RunProcessFilter::new(TEST_DIR_VARIABLE);
        let mark = RunMark::new(TEST_RUN_ID, &self.dir);
        processes.add_run(mark, TEST_DIR_VARIABLE, &self.dir.to_string_lossy());
        processes.end_processes(cancel);
    }

    /// Compares the run, whose last process had this output, with the expectations.
    fn check_outcome(&mut self, output: &TestProcessOutput) {
        let run_dir = self.workspace.join(".delta").join(TEST_RUN_ID);
        let events =
            journal::read_run_journal(&run_dir).map(|journal| journal.events).unwrap_or_default();
        let result = serde_json::from_slice::<Json>(&output.stdout).unwrap_or(Json::Null);
        let outcome = TestOutcome {
            exit_code: output.exit_code,
            result: &result,
            events: &events,
            stderr: &self.stderr,
            workspace: &self.workspace,
        };
        self.failures.splice(0..0, self.test.expectation.check(&outcome));
        self.failures.sort_by_key(|failure| failure.line.unwrap_or(usize::MAX));
        if events.is_empty() {
            // No run was created: the failure about the status has the error, which is all of stderr.
            self.stderr.clear();
        }
        self.check_llm_answers(&run_dir, &events, &result);
    }

    /// Checks how the run used its script or its cassette, or records the cassette.
    fn check_llm_answers(&mut self, run_dir: &Path, events: &[Event], result: &Json) {
        let test = self.test;
        let setup = self.setup;
        match (&test.llm, &setup.recording) {
            (TestLlm::Turns(script, _), _) => {
                let used: BTreeSet<usize> = events.iter().filter_map(script_turn).collect();
                let unused =
                    script.unconditional_turns().filter(|turn| !used.contains(turn)).count();
                if unused > 0 {
                    let turns = if unused == 1 { "turn" } else { "turns" };
                    self.fail(
                        "the script",
                        format!("has {unused} {turns} that the run did not use"),
                    );
                }
            }
            (TestLlm::Cassette { path, .. }, Some(header)) => {
                let placeholders = self.path_placeholders();
                match test_cassette::record_cassette(path, header, run_dir, events, &placeholders) {
                    Ok(count) => self.notes.push(recording_note(path, count, result)),
                    Err(reason) => self.fail("the cassette", reason),
                }
            }
            (TestLlm::Cassette { strict, tape: Some(tape), .. }, None) => {
                self.check_requests(tape, *strict, run_dir, events);
            }
            (TestLlm::Script(_) | TestLlm::Cassette { tape: None, .. }, _) => {}
        }
    }

    /// Compares the requests of the run with those in the cassette; if `strict`, a difference fails the test.
    fn check_requests(&mut self, tape: &Cassette, strict: bool, run_dir: &Path, events: &[Event]) {
        let placeholders = self.path_placeholders();
        let comparison = test_cassette::compare_with_cassette(tape, run_dir, events, &placeholders);
        let mut mismatches: Vec<String> = Vec::new();
        if strict {
            mismatches.extend(comparison.differences());
        } else {
            let notes = comparison.differences().into_iter();
            self.notes.extend(notes.map(|difference| format!("the cassette {difference}")));
        }
        mismatches.extend(comparison.missing_answer());
        for mismatch in mismatches {
            let message = format!("{mismatch}; {}", self.recording_hint());
            self.fail("the cassette", message);
        }
    }

    fn path_placeholders(&self) -> [(&Path, &'static str); 2] {
        [(self.workspace.as_path(), "${CWD}"), (self.setup.agent_home.as_path(), "${AGENT_HOME}")]
    }

    fn recording_hint(&self) -> String {
        let home = shell_quote(&self.setup.agent_home.to_string_lossy());
        let name = shell_quote(&self.test.name);
        format!("record it with `delta test --record {home} {name}`")
    }

    /// Runs the first process and one for each of the user's answers. Returns the output of the last one; `None` if it was
    /// cancelled.
    fn run_processes(
        &mut self,
        cancel: &CancelToken,
    ) -> Result<Option<TestProcessOutput>, TestFailure> {
        let test = self.test;
        let home = self.setup.agent_home.to_string_lossy().into_owned();
        let run_args = ["run".to_owned(), "--agent".to_owned(), home];
        let Some(mut output) = self.run_process(&run_args, &test.task, cancel)? else {
            return Ok(None);
        };
        for (question_count, answer) in test.answers.iter().enumerate() {
            if output.exit_code != WAITING_EXIT_CODE {
                let count = test.answers.len();
                let answers = if count == 1 { "answer" } else { "answers" };
                self.fail(
                    "the test",
                    format!("has {count} {answers}, but the run asked for {question_count}"),
                );
                break;
            }
            match self.run_process(&["continue".to_owned()], answer, cancel)? {
                Some(next_output) => output = next_output,
                None => return Ok(None),
            }
        }
        Ok(Some(output))
    }

    /// The arguments of a process: `command`, and the options that all processes of the test have.
    fn command_line(&self, command: &[String]) -> Vec<String> {
        let to_text = |path: &Path| path.to_string_lossy().into_owned();
        let mut argv = vec![to_text(&self.setup.program)];
        argv.extend_from_slice(command);
        let workspace = to_text(&self.workspace);
        let options = ["-w", &workspace, "--run-id", TEST_RUN_ID, "-m", "-", "--format", "json"];
        argv.extend(options.map(str::to_owned));
        let model = match &self.test.llm {
            TestLlm::Turns(..) => Some(format!("script:{}", to_text(&self.script_path()))),
            TestLlm::Script(path) => Some(format!("script:{}", to_text(&absolute_path(path)))),
            TestLlm::Cassette { .. } if self.setup.recording.is_some() => None,
            TestLlm::Cassette { path, .. } => {
                Some(format!("recorded:{}", to_text(&absolute_path(path))))
            }
        };
        argv.extend(model.map(|model| format!("--model={model}")));
        let env_files = self.setup.env_files.iter();
        argv.extend(env_files.map(|path| format!("--env-file={}", to_text(&absolute_path(path)))));
        argv.extend(self.setup.run_options.iter().cloned());
        argv.extend(self.test.max_iterations.map(|count| format!("--max-iterations={count}")));
        argv
    }

    /// Runs one process of the run with `message` on its standard input; `None` if it was cancelled.
    fn run_process(
        &mut self,
        command: &[String],
        message: &str,
        cancel: &CancelToken,
    ) -> Result<Option<TestProcessOutput>, TestFailure> {
        let argv = self.command_line(command);
        let launch = LaunchContext::new(&self.setup.cwd, self.with_test_env(&self.setup.env));
        let command = ProcessCommand {
            stdin: message.as_bytes(),
            capture_whole: true,
            ends_its_children: true,
            ..ProcessCommand::new(&argv, &launch, self.time_left(), MAX_STDERR_BYTES)
        };
        self.run_command("the run", &command, cancel)
    }

    /// The time until the deadline of the test.
    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn with_test_env(&self, env: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
        let mut env = env.clone();
        // A test has a workspace of its own, also in a hook of git.
        remove_git_places(&mut env);
        let test_env = self.test.env.iter();
        env.extend(test_env.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        env
    }

    /// Runs a command and keeps its stderr; `None` if it was cancelled. Failures are about `subject`.
    fn run_command(
        &mut self,
        subject: &str,
        command: &ProcessCommand<'_>,
        cancel: &CancelToken,
    ) -> Result<Option<TestProcessOutput>, TestFailure> {
        let finished = process::run_process(command, cancel);
        self.stderr.push_str(&stream_text(&finished.stderr));
        let message = match finished.end {
            ProcessEnd::Exited(code) => {
                let stdout = finished.stdout.whole.unwrap_or_default();
                return Ok(Some(TestProcessOutput { exit_code: i64::from(code), stdout }));
            }
            ProcessEnd::Cancelled | ProcessEnd::OutOfTime | ProcessEnd::ForMessage => {
                return Ok(None);
            }
            ProcessEnd::TimedOut => "exceeded the timeout `timeout_ms` of the test".to_owned(),
            ProcessEnd::Killed(signal) => format!("was killed by {}", process::signal_name(signal)),
            ProcessEnd::NotStarted { reason, .. } => format!("could not be started: {reason}"),
        };
        Err(TestFailure::new(subject, message))
    }
}

/// The path for a process in any current directory.
fn absolute_path(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The turn of a script that an event used.
fn script_turn(event: &Event) -> Option<usize> {
    match &event.payload {
        Payload::Thought(thought) => thought.script_turn,
        Payload::Error { error_details, .. } => error_details.script_turn,
        _ => None,
    }
}

fn recording_note(path: &Path, count: usize, result: &Json) -> String {
    let cost = result.pointer("/metrics/usage/total_cost_usd").and_then(Json::as_f64);
    let cost = cost.map_or_else(String::new, |usd| format!(", which cost ${usd:.4}"));
    let answers = if count == 1 { "answer" } else { "answers" };
    format!("recorded {count} {answers} in {}{cost}", path.display())
}

/// The text of a stream; a mark replaces the middle of a long one.
fn stream_text(capture: &OutputCapture) -> String {
    let to_text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &capture.whole {
        Some(bytes) => to_text(bytes),
        None => format!("{}\n…\n{}", to_text(&capture.head), to_text(&capture.tail)),
    }
}

/// Copies the contents of the directory `source` to `target`, symlinks as symlinks.
fn copy_directory(source: &Path, target: &Path) -> Result<(), durable::FileError> {
    for entry in fs::read_dir(source).map_err(|error| file_copy_error(source, error))? {
        let path = entry.map_err(|error| file_copy_error(source, error))?.path();
        copy_entry(&path, &target.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn copy_entry(source: &Path, target: &Path) -> Result<(), durable::FileError> {
    let metadata = source.symlink_metadata().map_err(|error| file_copy_error(source, error))?;
    let file_type = metadata.file_type();
    if file_type.is_dir() {
        durable::ensure_shared_dir(target)?;
        copy_directory(source, target)?;
    } else if file_type.is_symlink() {
        let link = fs::read_link(source).map_err(|error| file_copy_error(source, error))?;
        std::os::unix::fs::symlink(link, target).map_err(|error| file_copy_error(target, error))?;
    } else if file_type.is_file() {
        fs::copy(source, target).map_err(|error| file_copy_error(source, error))?;
    } else {
        let error = io::Error::other("not a file, a directory or a symlink");
        return Err(file_copy_error(source, error));
    }
    Ok(())
}

fn file_copy_error(path: &Path, source: io::Error) -> durable::FileError {
    durable::FileError { action: "copy", path: path.to_owned(), source }
}
