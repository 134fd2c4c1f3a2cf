//! Carries tests out: each is one or more processes of the program itself, in a temporary directory of its own.
//!
//! Nothing of a test outlives it but what is kept for looking at: the workspace of one that failed.

use super::expectation::Outcome;
use super::{Failure, StandIn, Test, tape};
use crate::durable;
use crate::event::{Event, Payload};
use crate::journal;
use crate::llm::cassette::Head;
use crate::process::{self, Capture, Command, End, Launch};
use crate::signal::Cancel;
use crate::text::{Secrets, shell_word};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The id of the run of each test.
pub const RUN_ID: &str = "test";
/// An LLM takes its time: so long may the recording of a test take at least.
const RECORDING: Duration = Duration::from_secs(600);
/// So much of stderr is kept.
const KEEP: usize = 256 * 1024;
/// The exit code of a run that waits for a person.
const WAITING: i64 = 101;

/// What all tests have in common.
#[derive(Debug)]
pub struct Setting {
    /// The program.
    pub program: PathBuf,
    /// The agent directory, absolute.
    pub home: PathBuf,
    /// Where the program is started.
    pub cwd: PathBuf,
    /// The environment of the program.
    pub env: BTreeMap<OsString, OsString>,
    /// A directory for the tests' own ones.
    pub base: PathBuf,
    /// Whether the directories of tests that passed stay, too.
    pub keep: bool,
    /// Whose answers are recorded, when they are.
    pub record: Option<Head>,
}

/// What came of a test.
#[derive(Debug)]
pub struct TestResult {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// How long it took.
    pub duration: Duration,
    /// Everything that is not as expected; nothing when it passed.
    pub failures: Vec<Failure>,
    /// What is good to know, whether it passed or not.
    pub notes: Vec<String>,
    /// Its directory, where that is kept.
    pub kept: Option<PathBuf>,
    /// What its processes printed to stderr.
    pub stderr: String,
}

/// Carries out `tests`, at most `jobs` at a time. Each result is told in the order of the tests, as soon as it and those
/// before it are there; those that are not told were stopped by `cancel`.
///
/// # Errors
/// The system has no pipes.
pub fn run_all(
    tests: &[Test],
    setting: &Setting,
    jobs: usize,
    cancel: &Cancel,
    tell: &mut dyn FnMut(TestResult),
) -> io::Result<()> {
    let jobs = jobs.clamp(1, tests.len().max(1));
    // One for each: who polls a pipe takes the wake-ups of all who poll it.
    let stops = (0..jobs).map(|_| Cancel::manual()).collect::<io::Result<Vec<_>>>()?;
    let (next, busy) = (AtomicUsize::new(0), AtomicUsize::new(jobs));
    let done = Mutex::new(BTreeMap::new());
    let work = |stop: &Cancel| {
        while let Some((index, test)) = take(tests, &next).filter(|_| !stop.requested()) {
            if let Some(result) = carry_out(test, setting, stop) {
                done.lock().unwrap_or_else(PoisonError::into_inner).insert(index, result);
            }
            cancel.wake();
        }
        busy.fetch_sub(1, Ordering::SeqCst);
        cancel.wake();
    };
    std::thread::scope(|scope| {
        for stop in &stops {
            scope.spawn(|| work(stop));
        }
        let mut told = 0;
        loop {
            let is_last = busy.load(Ordering::SeqCst) == 0;
            let take = |index| done.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
            while let Some(result) = take(told) {
                tell(result);
                told += 1;
            }
            if is_last {
                break;
            }
            if cancel.requested() {
                stops.iter().for_each(Cancel::request);
            }
            cancel.wait_wake(None);
        }
    });
    Ok(())
}

fn take<'a>(tests: &'a [Test], next: &AtomicUsize) -> Option<(usize, &'a Test)> {
    let index = next.fetch_add(1, Ordering::SeqCst);
    Some((index, tests.get(index)?))
}

/// A test that is being carried out.
struct Trial<'a> {
    test: &'a Test,
    setting: &'a Setting,
    /// Its own directory.
    dir: PathBuf,
    /// The workspace in it.
    work: PathBuf,
    /// When its time is up.
    deadline: Instant,
    failures: Vec<Failure>,
    notes: Vec<String>,
    stderr: String,
}

/// How the last process of a test left.
struct Left {
    exit_code: i64,
    stdout: Vec<u8>,
}

/// Carries out one test; nothing when it was stopped.
fn carry_out(test: &Test, setting: &Setting, cancel: &Cancel) -> Option<TestResult> {
    let start = Instant::now();
    let limit = match setting.record {
        Some(_) => test.timeout.max(RECORDING),
        None => test.timeout,
    };
    let dir = setting.base.join(directory_name(&test.name));
    let mut trial = Trial {
        test,
        setting,
        work: dir.join("work"),
        dir,
        deadline: start + limit,
        failures: Vec::new(),
        notes: Vec::new(),
        stderr: String::new(),
    };
    let stopped = match trial.prepare() {
        Ok(()) => trial.perform(cancel),
        Err(error) => {
            trial.failures.push(Failure::of("the workspace", format!("cannot be made: {error}")));
            false
        }
    };
    let keeps = setting.keep || !trial.failures.is_empty() && !stopped;
    if !keeps {
        // What cannot be taken away does no harm in a directory for temporary files.
        let _ = std::fs::remove_dir_all(&trial.dir);
    }
    (!stopped).then(|| TestResult {
        name: test.name.clone(),
        file: test.file.clone(),
        duration: start.elapsed(),
        failures: trial.failures,
        notes: trial.notes,
        kept: keeps.then(|| trial.dir.clone()),
        stderr: trial.stderr,
    })
}

/// A test's name as that of a directory: two that differ stay different.
fn directory_name(name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let plain = name.bytes().all(is_plain) && name.len() <= 100 && !name.starts_with('.');
    if plain { name.to_owned() } else { crate::text::sha256(name)[..16].to_owned() }
}

impl Trial<'_> {
    /// Makes the workspace and what stands in for the LLM.
    fn prepare(&self) -> Result<(), durable::FileError> {
        durable::ensure_dir(&self.work, true)?;
        if let Some(from) = &self.test.from {
            copy(from, &self.work)?;
        }
        for (path, text) in &self.test.files {
            self.write(path, text)?;
        }
        if let StandIn::Turns(_, text) = &self.test.llm {
            durable::write_new(&self.script(), text.as_bytes())?;
        }
        Ok(())
    }

    fn script(&self) -> PathBuf {
        self.dir.join("script.yaml")
    }

    /// Writes a file of the workspace, in the place of one that was copied. A link that was copied leads nowhere else.
    fn write(&self, path: &str, text: &str) -> Result<(), durable::FileError> {
        let file = self.work.join(path);
        let parent = file.parent().unwrap_or(&self.work);
        durable::ensure_dir(parent, false)?;
        let failed = |source| durable::FileError { action: "write", path: file.clone(), source };
        let inside = parent.canonicalize().map_err(failed)?;
        if !inside.starts_with(&self.work) {
            return Err(failed(io::Error::other("a link leads out of the workspace")));
        }
        if file.symlink_metadata().is_ok() {
            durable::remove(&file)?;
        }
        durable::write_new_shared(&file, text.as_bytes(), false)
    }

    /// Runs the agent, and judges what came of it; true when that was stopped.
    fn perform(&mut self, cancel: &Cancel) -> bool {
        if self.setting.record.is_none()
            && let StandIn::Cassette { path, tape: None, .. } = &self.test.llm
        {
            let message = format!(
                "{} is not there; {}, or write `llm: {{turns: ...}}` into the test",
                path.display(),
                self.again()
            );
            self.failures.push(Failure::of("the cassette", message));
            return false;
        }
        let left = match self.processes(cancel) {
            Ok(Some(left)) => left,
            Ok(None) => return true,
            Err(failure) => {
                self.failures.push(failure);
                return false;
            }
        };
        let run_dir = self.work.join(".delta").join(RUN_ID);
        let events = journal::read(&run_dir).map(|found| found.events).unwrap_or_default();
        let result = serde_json::from_slice::<Json>(&left.stdout).unwrap_or(Json::Null);
        let outcome = Outcome {
            exit_code: left.exit_code,
            result: &result,
            events: &events,
            stderr: &self.stderr,
            workspace: &self.work,
        };
        self.failures.splice(0..0, self.test.expect.failures(&outcome));
        self.failures.sort_by_key(|failure| failure.line.unwrap_or(usize::MAX));
        if events.is_empty() {
            // Its error is the status, and was all of stderr.
            self.stderr.clear();
        }
        self.check_stand_in(&run_dir, &events, &result);
        false
    }

    /// What the run left of the answers that were there for it.
    fn check_stand_in(&mut self, run_dir: &Path, events: &[Event], result: &Json) {
        let places =
            [(self.work.as_path(), "${CWD}"), (self.setting.home.as_path(), "${AGENT_HOME}")];
        match (&self.test.llm, &self.setting.record) {
            (StandIn::Turns(script, _), _) => {
                let used: BTreeSet<usize> = events.iter().filter_map(turn_of).collect();
                let left = script.unconditional().filter(|turn| !used.contains(turn)).count();
                if left > 0 {
                    let turns = if left == 1 { "turn that was" } else { "turns that were" };
                    let message = format!("has {left} {turns} not used: the run ended before");
                    self.failures.push(Failure::of("the script", message));
                }
            }
            (StandIn::Script(_), _) => {}
            (StandIn::Cassette { path, .. }, Some(head)) => {
                match tape::record(path, head, run_dir, events, &places) {
                    Ok(count) => self.notes.push(recorded(path, count, result)),
                    Err(why) => self.failures.push(Failure::of("the cassette", why)),
                }
            }
            (StandIn::Cassette { strict, tape: Some(tape), .. }, None) => {
                let found = tape::compare(tape, run_dir, events, &places);
                let (wrong, noted) = match strict {
                    true => (found.differences(), Vec::new()),
                    false => (Vec::new(), found.differences()),
                };
                for what in wrong.into_iter().chain(found.lack()) {
                    let message = format!("{what}; {}", self.again());
                    self.failures.push(Failure::of("the cassette", message));
                }
                let noted = noted.into_iter().map(|what| format!("the cassette {what}"));
                self.notes.extend(noted);
            }
            (StandIn::Cassette { tape: None, .. }, None) => {}
        }
    }

    /// How the cassette of the test is recorded.
    fn again(&self) -> String {
        let (home, name) = (self.setting.home.to_string_lossy(), &self.test.name);
        let (home, name) = (shell_word(&home), shell_word(name));
        format!("record it with `delta test --record {home} {name}`")
    }

    /// All processes of the run: the first, and one for each answer of a person; nothing when they were stopped.
    fn processes(&mut self, cancel: &Cancel) -> Result<Option<Left>, Failure> {
        let home = self.setting.home.to_string_lossy().into_owned();
        let first = ["run".to_owned(), "--agent".to_owned(), home];
        let test = self.test;
        let Some(mut left) = self.process(&first, &test.task, cancel)? else { return Ok(None) };
        for (given, answer) in test.answers.iter().enumerate() {
            if left.exit_code != WAITING {
                let missing = test.answers.len() - given;
                let message = format!("are {}, of which {given} were asked for", missing + given);
                self.failures.push(Failure::of("the answers", message));
                break;
            }
            match self.process(&["continue".to_owned()], answer, cancel)? {
                Some(next) => left = next,
                None => return Ok(None),
            }
        }
        Ok(Some(left))
    }

    /// The command line of a process of the test: `command` with what all of them have in common.
    fn command_line(&self, command: &[String]) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut argv = vec![text(&self.setting.program)];
        argv.extend_from_slice(command);
        let work = text(&self.work);
        let fixed = ["-w", &work, "--run-id", RUN_ID, "-m", "-", "--format", "json"];
        argv.extend(fixed.map(str::to_owned));
        let stand_in = match &self.test.llm {
            StandIn::Turns(..) => Some(format!("script:{}", text(&self.script()))),
            StandIn::Script(path) => Some(format!("script:{}", text(&absolute(path)))),
            StandIn::Cassette { .. } if self.setting.record.is_some() => None,
            StandIn::Cassette { path, .. } => Some(format!("recorded:{}", text(&absolute(path)))),
        };
        argv.extend(stand_in.map(|model| format!("--model={model}")));
        argv.extend(self.test.max_iterations.map(|count| format!("--max-iterations={count}")));
        argv
    }

    /// One process of the program, which is given `message` on its standard input; nothing when it was stopped.
    fn process(
        &mut self,
        command: &[String],
        message: &str,
        cancel: &Cancel,
    ) -> Result<Option<Left>, Failure> {
        let argv = self.command_line(command);
        let mut env = self.setting.env.clone();
        let own = self.test.env.iter();
        env.extend(own.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        let launch =
            Launch { cwd: self.setting.cwd.clone(), env: env.into(), secrets: Secrets::default() };
        let timeout = self.deadline.saturating_duration_since(Instant::now());
        let command = Command {
            argv: &argv,
            launch: &launch,
            stdin: message.as_bytes(),
            timeout,
            spool: None,
            keep: KEEP,
            keep_all: true,
            marks: &[],
        };
        let finished = process::run(&command, cancel);
        self.stderr.push_str(&shown(&finished.stderr));
        match finished.end {
            End::Exited(code) => {
                let stdout = finished.stdout.whole.unwrap_or_default();
                Ok(Some(Left { exit_code: i64::from(code), stdout }))
            }
            End::Cancelled => Ok(None),
            End::TimedOut => {
                Err(Failure::of("time", "is up; `timeout_ms` in the test says how much there is"))
            }
            End::Killed(signal) => {
                let signal = process::signal_name(signal);
                Err(Failure::of("the run", format!("was killed by {signal}")))
            }
            End::NotStarted { reason, .. } => {
                Err(Failure::of("the run", format!("could not be started: {reason}")))
            }
        }
    }
}

/// A path that a process finds wherever it is started.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The turn of a script, or the answer of a cassette, that an event used.
fn turn_of(event: &Event) -> Option<usize> {
    match &event.payload {
        Payload::Thought(thought) => thought.script_turn,
        Payload::Error { error_details, .. } => error_details.script_turn,
        _ => None,
    }
}

fn recorded(path: &Path, count: usize, result: &Json) -> String {
    let cost = result.pointer("/metrics/usage/total_cost_usd").and_then(Json::as_f64);
    let cost = cost.map_or_else(String::new, |usd| format!(", which cost ${usd:.4}"));
    let answers = if count == 1 { "answer" } else { "answers" };
    format!("recorded {count} {answers} in {}{cost}", path.display())
}

/// The text of a stream, with a mark where the middle was not kept.
fn shown(capture: &Capture) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &capture.whole {
        Some(whole) => text(whole),
        None => format!("{}\n…\n{}", text(&capture.head), text(&capture.tail)),
    }
}

/// Copies what is in the directory `from` into `to`, links as links.
fn copy(from: &Path, to: &Path) -> Result<(), durable::FileError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| durable::FileError { action: "copy", path, source }
    };
    for entry in std::fs::read_dir(from).map_err(failed(from))? {
        let path = entry.map_err(failed(from))?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        let kind = path.symlink_metadata().map_err(failed(&path))?.file_type();
        if kind.is_dir() {
            durable::ensure_dir(&target, false)?;
            copy(&path, &target)?;
        } else if kind.is_symlink() {
            let leads = std::fs::read_link(&path).map_err(failed(&path))?;
            std::os::unix::fs::symlink(leads, &target).map_err(failed(&target))?;
        } else if kind.is_file() {
            std::fs::copy(&path, &target).map_err(failed(&path))?;
        } else {
            return Err(failed(&path)(io::Error::other("it is no file, directory or link")));
        }
    }
    Ok(())
}
