//! Runs one command: feeds its input, captures its output in bounded memory, ends it on time with all it started.
//!
//! Everything happens on the calling thread, in one `poll` loop. Two traps for the caller:
//!
//! - Call [`run`] on the main thread. On Linux the kernel kills the child when the *thread* that started it ends
//!   (`PR_SET_PDEATHSIG`), so that no tool outlives an engine that was killed.
//! - SIGPIPE must be ignored, as the Rust runtime sets it up: a tool that ends before it has read its input would
//!   otherwise end the engine.
#![expect(
    unsafe_code,
    reason = "what a child does before it is another program has no safe interface"
)]

mod capture;
mod detached;
mod env;
mod image;
mod program;
mod spawn;
mod strings;
mod table;
#[cfg(test)]
mod tests;

pub use self::capture::{Capture, INLINE, INLINE_ALL, MAX_SPOOL};
pub use self::detached::{AtTerminal, start_detached};
pub use self::env::Env;
pub use self::program::{Lack, NotFound};
pub use self::table::{Marks, end_marked, find_marked};

use self::capture::Recorder;
use self::image::Image;
use self::spawn::{Pipes, Ready, Started};
use self::table::lives;
use crate::signal::{Cancel, timespec};
use crate::text::Secrets;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, waitpid};
use std::io::{PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So long after SIGTERM comes SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// So long is waited for what is in the pipes after the tool is gone, and for the death of what was killed.
const LINGER: Duration = Duration::from_secs(1);
/// How often is looked at what no descriptor tells: a process group, strays, a child without a pidfd.
const TICK: Duration = Duration::from_millis(50);
/// How much is read at once; as much as a pipe usually holds.
const BUFFER: usize = 64 * 1024;

/// What all children of a run have in common.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The working directory of the child.
    pub cwd: PathBuf,
    /// The complete environment of the child; nothing of the engine's own is added.
    pub env: Env,
    /// What is hidden in everything that the child prints.
    pub secrets: Secrets,
}

/// The file that a command whose program is `name` would start.
///
/// # Errors
/// Why it would not start, in the words of an observation.
pub fn find_program(name: &str, launch: &Launch) -> Result<PathBuf, NotFound> {
    let path = program::find(name, launch).map_err(|end| match end {
        End::NotStarted { code, reason } if code != program::NOT_FOUND => {
            NotFound { lack: Lack::Permission, reason }
        }
        End::NotStarted { reason, .. } => NotFound { lack: Lack::File, reason },
        _ => NotFound { lack: Lack::File, reason: format!("program `{name}` was not found") },
    })?;
    match program::look_inside(name, &path, launch) {
        Some((lack, reason)) => Err(NotFound { lack, reason }),
        None => Ok(path),
    }
}

/// A process to run.
#[derive(Debug)]
pub struct Command<'a> {
    /// The program and its arguments. A program with a slash is relative to `launch.cwd`, any other is looked up in
    /// the PATH of `launch.env`. The child sees `argv[0]` as it stands here.
    pub argv: &'a [String],
    /// Where and in which environment it runs.
    pub launch: &'a Launch,
    /// The exact bytes of its standard input, of any size; the end of file follows.
    pub stdin: &'a [u8],
    /// How long it may run before it is ended.
    pub timeout: Duration,
    /// Where a stream lies that is large or not text; without it such a stream lies in no file.
    pub spool: Option<Spool<'a>>,
    /// At most this many bytes of each stream are kept for showing: `keep / 2` from its start, `keep / 2` from its
    /// end.
    pub keep: usize,
    /// Raises the limit below which [`Capture::whole`] holds a stream from [`INLINE`] to [`INLINE_ALL`]: for a caller
    /// that reads the child's answer from its output.
    pub keep_all: bool,
    /// Names and values of variables in `launch.env` that together no other child on the machine has. When the child is
    /// ended before its time, processes with all of them that left the child's process group are ended too (on Linux).
    pub marks: Marks<'a>,
}

impl Command<'_> {
    fn name(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }
}

/// Where large streams lie: in `{dir}/{stem}.stdout` and `{dir}/{stem}.stderr`, which must not exist yet.
#[derive(Debug, Clone, Copy)]
pub struct Spool<'a> {
    /// An existing directory.
    pub dir: &'a Path,
    /// The common part of the two names.
    pub stem: &'a str,
}

/// How a process went.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// How long [`run`] took, the waiting for the last output included.
    pub duration: Duration,
    /// What it printed to standard output.
    pub stdout: Capture,
    /// What it printed to standard error.
    pub stderr: Capture,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal, which was not ours.
    Killed(i32),
    /// By us, because its time was up.
    TimedOut,
    /// By us, because the stop was asked for; also when that was before it could start.
    Cancelled,
    /// It never ran.
    NotStarted {
        /// What a shell would have exited with: 127 when the program was not found, 126 when it cannot be executed.
        code: i32,
        /// Why, as a part of a sentence, such as "program `foo` was not found in PATH".
        reason: String,
    },
}

/// A command of which everything is known and made that can be before it starts: whether it can, and why not.
pub struct Prepared<'a> {
    command: &'a Command<'a>,
    ready: Result<(PathBuf, Ready), End>,
}

/// Prepares `command`, so that it starts at once when it may.
pub fn prepare<'a>(command: &'a Command<'a>) -> Prepared<'a> {
    Prepared { command, ready: ready(command) }
}

impl Prepared<'_> {
    /// Runs the command to its end; all failures are in what it gives.
    ///
    /// When its time is up or `cancel` asks for the stop, the process group gets SIGTERM and, as far as it still lives 5
    /// seconds later, SIGKILL. When the tool ends by itself, what it left running in the background is left alone; output
    /// of that is taken for at most 1 second more. A process that not even SIGKILL ends (the kernel waits for a dead
    /// disk) is given up after another second.
    pub fn run(self, cancel: &Cancel) -> Finished {
        self.run_with(cancel, GRACE)
    }

    fn run_with(self, cancel: &Cancel, grace: Duration) -> Finished {
        let start = Instant::now();
        let running = if cancel.requested() { Err(End::Cancelled) } else { self.start(grace) };
        let (end, stdout, stderr) = match running {
            Ok(running) => running.finish(cancel),
            Err(end) => (end, Capture::empty(), Capture::empty()),
        };
        Finished { end, duration: start.elapsed(), stdout, stderr }
    }
}

/// [`prepare`]s `command` and runs it.
pub fn run(command: &Command<'_>, cancel: &Cancel) -> Finished {
    prepare(command).run(cancel)
}

/// Why nothing starts in `directory`, by `end`: also that it cannot be entered, which is not looked at before.
fn at(directory: &Path, end: End) -> End {
    program::check_directory(directory).err().unwrap_or(end)
}

/// Why the program of `command`, which is the file `path`, did not start.
fn not_started(error: &std::io::Error, command: &Command<'_>, path: &Path) -> End {
    at(&command.launch.cwd, program::explain(error, command.name(), path))
}

fn ready(command: &Command<'_>) -> Result<(PathBuf, Ready), End> {
    let (name, launch) = (command.name(), command.launch);
    let path = program::find(name, launch).map_err(|end| at(&launch.cwd, end))?;
    let image = Image::new(&path, command.argv, &launch.env).map_err(|_| program::holds_nul())?;
    match Ready::new(image, &launch.cwd, !command.stdin.is_empty()) {
        Ok(ready) => Ok((path, ready)),
        Err(error) => Err(program::explain(&error, name, &path)),
    }
}

/// What a signal is called: `SIGKILL`, or `signal 99` when it has no name.
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// A child that was started.
struct Running<'a> {
    command: &'a Command<'a>,
    /// The file that it is to become.
    path: PathBuf,
    child: Started,
    /// Its process group; none after it was seen empty, because the number may then become another's.
    group: Option<Pid>,
    /// Becomes readable when the child ends; none where the system has no such thing, and after the end.
    exit_fd: Option<OwnedFd>,
    stdin: Option<PipeWriter>,
    /// What is still to be written to `stdin`.
    input: &'a [u8],
    stdout: Stream,
    stderr: Stream,
    marks: Marks<'a>,
    grace: Duration,
    stage: Stage,
    /// When the stage is over at the latest; none is never.
    deadline: Option<Instant>,
    /// How the child itself ended, once it has.
    exit: Option<End>,
}

/// How far it is with a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It may work.
    Work,
    /// It and all it started were sent SIGTERM.
    Terminate,
    /// What then still lived is sent SIGKILL until nothing does.
    Kill,
    /// There is nothing to wait for but what is in the pipes.
    Drain,
}

impl<'a> Prepared<'a> {
    fn start(self, grace: Duration) -> Result<Running<'a>, End> {
        let (command, (path, ready)) = (self.command, self.ready?);
        let (mut child, Pipes { stdin, stdout, stderr }) =
            ready.start().map_err(|error| not_started(&error, command, &path))?;
        Ok(Running {
            command,
            path,
            group: Some(child.pid),
            exit_fd: child.end(),
            child,
            stdin,
            input: command.stdin,
            stdout: Stream::new(stdout, command, "stdout"),
            stderr: Stream::new(stderr, command, "stderr"),
            marks: command.marks,
            grace,
            stage: Stage::Work,
            deadline: Instant::now().checked_add(command.timeout),
            exit: None,
        })
    }
}

impl Running<'_> {
    fn finish(mut self, cancel: &Cancel) -> (End, Capture, Capture) {
        // A group is named by the process that leads it.
        cancel.set_group(self.child.pid.as_raw_pid());
        let cut_short = self.supervise(cancel);
        cancel.set_group(0);
        let failure = self.exit.as_ref().and_then(|_| self.child.failure());
        if let Some(error) = failure {
            let end = not_started(&error, self.command, &self.path);
            return (end, Capture::empty(), Capture::empty());
        }
        // A child that not even SIGKILL ended was killed by us, so that `cut_short` is there.
        let end = cut_short.or(self.exit).unwrap_or(End::TimedOut);
        (end, self.stdout.recorder.finish(), self.stderr.recorder.finish())
    }

    /// Goes through the stages; gives why we ended the child if we did.
    fn supervise(&mut self, cancel: &Cancel) -> Option<End> {
        // Not filled before it is read into: most children print less.
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut cut_short = None;
        while !self.is_over() {
            self.wait(cancel);
            self.feed();
            self.stdout.read(&mut buffer);
            self.stderr.read(&mut buffer);
            self.reap();
            if let Some(reason) = self.advance(cancel.requested()) {
                cut_short = Some(reason);
            }
        }
        cut_short
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Drain
            && (self.is_late() || self.stdout.pipe.is_none() && self.stderr.pipe.is_none())
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Waits until a pipe is ready, the child ended, the cancel woke us, or something is due.
    fn wait(&self, cancel: &Cancel) {
        let mut fds = vec![PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)];
        fds.extend(self.exit_fd.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(self.stdin.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        let outputs = [&self.stdout.pipe, &self.stderr.pipe];
        fds.extend(outputs.into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let limit =
            self.next_due().map(|at| timespec(at.saturating_duration_since(Instant::now())));
        // Everything is tried after it, without blocking, so neither its answer nor its failure matters.
        let _ = poll(&mut fds, limit.as_ref());
        if !fds[0].revents().is_empty() {
            cancel.drain();
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let blind = self.exit.is_none() && self.exit_fd.is_none();
        let tick = (blind || matches!(self.stage, Stage::Terminate | Stage::Kill))
            .then(|| Instant::now() + TICK);
        let flushes = [self.stdout.recorder.flush_at(), self.stderr.recorder.flush_at()];
        [self.deadline, tick].into_iter().chain(flushes).flatten().min()
    }

    /// Writes as much of the input as the pipe takes.
    fn feed(&mut self) {
        let Some(pipe) = &self.stdin else { return };
        match rustix::io::write(pipe, self.input) {
            Ok(written) => self.input = &self.input[written..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Nobody reads any more, which is the tool's right.
            Err(_) => self.input = &[],
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    /// Looks whether the child has ended.
    fn reap(&mut self) {
        if self.exit.is_some() {
            return;
        }
        self.exit = ended(self.child.pid);
        if self.exit.is_some() {
            self.exit_fd = None;
            self.stdin = None;
        }
    }

    /// Goes to the next stage when it is time; gives why the child is ended when it begins to be.
    fn advance(&mut self, cancelled: bool) -> Option<End> {
        let stage = self.stage;
        match stage {
            Stage::Work if self.exit.is_some() => self.enter(Stage::Drain, LINGER),
            Stage::Work if cancelled => return Some(self.terminate(End::Cancelled)),
            Stage::Work if self.is_late() => return Some(self.terminate(End::TimedOut)),
            Stage::Terminate | Stage::Kill if self.all_gone() => self.enter(Stage::Drain, LINGER),
            Stage::Terminate if self.is_late() => {
                self.signal(Signal::KILL);
                self.enter(Stage::Kill, LINGER);
            }
            Stage::Kill if self.is_late() => self.enter(Stage::Drain, Duration::ZERO),
            // What was being forked meanwhile got away the last time.
            Stage::Kill => self.signal(Signal::KILL),
            Stage::Work | Stage::Terminate | Stage::Drain => {}
        }
        None
    }

    fn enter(&mut self, stage: Stage, limit: Duration) {
        self.stage = stage;
        self.deadline = Instant::now().checked_add(limit);
    }

    fn terminate(&mut self, reason: End) -> End {
        self.signal(Signal::TERM);
        // A stopped process hears of it only when it goes on.
        self.signal(Signal::CONT);
        self.enter(Stage::Terminate, self.grace);
        reason
    }

    /// Sends `signal` to the group and the strays. Who is gone meanwhile needs none.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
        for stray in self.strays() {
            let _ = rustix::process::kill_process(stray, signal);
        }
    }

    fn all_gone(&mut self) -> bool {
        if self.exit.is_some() && self.group.is_some_and(|group| !lives(group)) {
            self.group = None;
        }
        self.group.is_none() && self.strays().is_empty()
    }

    /// The marked processes outside the group.
    fn strays(&self) -> Vec<Pid> {
        let is_outside = |pid: &Pid| {
            rustix::process::getpgid(Some(*pid)).is_ok_and(|group| Some(group) != self.group)
        };
        let marked = if self.marks.is_empty() { Vec::new() } else { find_marked(self.marks) };
        marked.into_iter().filter_map(Pid::from_raw).filter(is_outside).collect()
    }
}

/// One of the two output streams of a child.
struct Stream {
    /// None after the end of file.
    pipe: Option<PipeReader>,
    recorder: Recorder,
}

impl Stream {
    fn new(pipe: PipeReader, command: &Command<'_>, name: &str) -> Self {
        let file = command.spool.map(|spool| spool.dir.join(format!("{}.{name}", spool.stem)));
        let recorder = Recorder::new(&command.launch.secrets, command.keep, command.keep_all, file);
        Self { pipe: Some(pipe), recorder }
    }

    /// Reads once, if there is something to read, and behind a little at once again: mostly it was all there is. Writes
    /// what is due into the file.
    fn read(&mut self, buffer: &mut [MaybeUninit<u8>]) {
        for _ in 0..2 {
            let Some(pipe) = &self.pipe else { break };
            match rustix::io::read(pipe, &mut *buffer) {
                Ok((piece @ [_, ..], rest)) => {
                    self.recorder.push(piece);
                    if rest.is_empty() {
                        break;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
        self.recorder.flush(Instant::now());
    }
}

/// How a child ended, once it has.
fn ended(child: Pid) -> Option<End> {
    match waitpid(Some(child), WaitOptions::NOHANG) {
        Ok(found) => found.and_then(|(_, status)| end_of(status)),
        Err(Errno::INTR) => None,
        // Its status was lost to another (SIGCHLD ignored), and an unknown end is no success.
        Err(_) => Some(End::Exited(1)),
    }
}

fn end_of(status: WaitStatus) -> Option<End> {
    status.exit_status().map(End::Exited).or_else(|| status.terminating_signal().map(End::Killed))
}
