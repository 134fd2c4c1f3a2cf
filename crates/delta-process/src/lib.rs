//! Runs one command: writes its input, captures its output in bounded memory, kills it and its children at the timeout,
//! and ends what it leaves running.
//!
//! Everything runs on the calling thread, in one `poll` loop. Two requirements on the caller:
//!
//! - Call [`run_process`] on the main thread. On Linux, the kernel kills the child when the *thread* that started it
//!   ends (`PR_SET_PDEATHSIG`), so that no tool outlives a killed engine.
//! - SIGPIPE must be ignored, as the Rust runtime does: a tool that ends before it has read its input would otherwise
//!   kill the engine.
#![expect(unsafe_code, reason = "the code of a child before `execve` has no safe interface")]

pub mod truncated_output;
mod call_limits;
mod capture;
mod detached;
mod env_vars;
mod exec_image;
mod exit_status;
mod foreground;
mod helper_process;
mod program_lookup;
mod run_mark;
mod run_processes;
mod service;
mod sandbox_entry;
mod spawn;
mod process_table;
mod worker_process;
#[cfg(test)]
mod tests;

pub use self::call_limits::CallLimits;
pub use self::capture::{INLINE_BYTES, INLINE_WHOLE_BYTES, MAX_SPOOL_BYTES, OutputCapture};
pub use self::detached::{TerminalProcess, start_detached};
pub use self::env_vars::EnvVars;
pub use self::foreground::run_in_foreground;
#[cfg(target_os = "linux")]
pub use self::helper_process::HelperProcess;
pub use self::process_table::{
    ProcessMarks, RunProcessFilter, find_marked_processes, shows_own_processes,
};
pub use self::program_lookup::{ProgramDefect, ProgramError};
pub use self::run_mark::{RunMark, marked_depth};
pub use self::run_processes::{
    Background, LeftProcesses, MAX_LISTED_PROCESSES, RunProcesses, adopt_orphans,
};
pub use self::sandbox_entry::{
    EntrySteps, FilterInstruction, SandboxEntry, copy_inherited_descriptor,
};
pub use self::service::{ServiceProcess, own_program};
pub use self::worker_process::{WorkerCommand, WorkerProcess};

use self::call_limits::ChildLimits;
use self::capture::OutputRecorder;
use self::exec_image::ExecImage;
use self::exit_status::{end_from_status, poll_process_end};
use self::process_table::{ProcessStat, is_group_alive};
use self::run_processes::CallProcesses;
use self::spawn::{ChildPipes, PreparedChild};
use delta_base::redact::Secrets;
use delta_base::signal::{CancelToken, to_timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::io::{PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(5);
/// The time to wait for output in the pipes after the command has ended, and for killed processes to die.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// The interval for what has no descriptor to poll: the process group, stray processes, a child without a pidfd.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The interval at which orphans that have ended are reaped while a command runs.
const REAP_INTERVAL: Duration = Duration::from_secs(1);
/// The usual capacity of a pipe.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// The settings that all children of a run share.
#[derive(Debug, Clone)]
pub struct LaunchContext {
    /// The working directory of the child.
    pub cwd: PathBuf,
    /// The complete environment of the child; nothing is inherited.
    pub env: EnvVars,
    /// The secrets to redact in the child's output.
    pub secrets: Secrets,
    /// What becomes of the processes that the child leaves running; `None` to leave them alone.
    pub containment: Option<Containment>,
    /// The sandbox that the child enters; `None` for none.
    pub sandbox: Option<SandboxEntry>,
}

impl LaunchContext {
    /// The same for a child whose processes become `background`.
    #[must_use]
    pub fn with_background(mut self, background: Background) -> Self {
        if let Some(containment) = &mut self.containment {
            containment.background = background;
        }
        self
    }

    /// The same for a child in `sandbox`, or in none.
    #[must_use]
    pub fn with_sandbox(mut self, sandbox: Option<SandboxEntry>) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// The same for a child with the limits of calls.
    #[must_use]
    pub fn with_call_limits(mut self) -> Self {
        if let Some(containment) = &mut self.containment {
            containment.is_limited = true;
        }
        self
    }
}

/// How the processes that a child leaves running are found, and what becomes of them.
#[derive(Debug, Clone)]
pub struct Containment {
    /// The processes of the run that starts the child.
    pub processes: RunProcesses,
    /// What becomes of them.
    pub background: Background,
    /// Whether the limits of [`RunProcesses::limit_calls`] hold for the child.
    pub is_limited: bool,
}

/// Finds the file that a command with the program `name` would start.
///
/// # Errors
/// The program would not start; the reason has the wording of an observation.
pub fn find_program(name: &str, context: &LaunchContext) -> Result<PathBuf, ProgramError> {
    let path = program_lookup::locate_program(name, context).map_err(|end| match end {
        ProcessEnd::NotStarted { code, reason } if code != program_lookup::NOT_FOUND_EXIT_CODE => {
            ProgramError { defect: ProgramDefect::NotExecutable, reason }
        }
        ProcessEnd::NotStarted { reason, .. } => {
            ProgramError { defect: ProgramDefect::NotFound, reason }
        }
        _ => ProgramError {
            defect: ProgramDefect::NotFound,
            reason: format!("program `{name}` was not found"),
        },
    })?;
    match program_lookup::inspect_program_file(name, &path, context) {
        Some(error) => Err(error),
        None => Ok(path),
    }
}

/// A command to run.
#[derive(Debug)]
pub struct ProcessCommand<'a> {
    /// The program and its arguments. A program with a slash is relative to `context.cwd`; any other is looked up in
    /// the PATH of `context.env`. The child sees `argv[0]` unchanged.
    pub argv: &'a [String],
    /// The file to start in place of the one that `argv` names.
    pub program: Option<&'a Path>,
    /// The working directory, environment and secrets.
    pub context: &'a LaunchContext,
    /// The bytes of its standard input, of any length.
    pub stdin: &'a [u8],
    /// The time after which it is killed.
    pub timeout: Duration,
    /// The files for streams that are large or not UTF-8; `None` to drop what does not fit in memory.
    pub spool: Option<SpoolFiles<'a>>,
    /// The size of a stream's excerpt: half of it from the start of the stream, half from the end.
    pub excerpt_bytes: usize,
    /// Raises the limit of [`OutputCapture::whole`] from [`INLINE_BYTES`] to [`INLINE_WHOLE_BYTES`]: for a caller that
    /// reads an answer from the output.
    pub capture_whole: bool,
    /// Variables in `context.env` that no other child on the machine has in this combination. When the child is killed,
    /// processes that have them all but left the child's process group are killed too (on Linux).
    pub marks: ProcessMarks<'a>,
}

impl ProcessCommand<'_> {
    fn program_name(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }
}

/// The files for large streams: `{dir}/{stem}.stdout` and `{dir}/{stem}.stderr`, which must not exist.
#[derive(Debug, Clone, Copy)]
pub struct SpoolFiles<'a> {
    /// An existing directory.
    pub dir: &'a Path,
    /// The common part of the two names.
    pub stem: &'a str,
    /// The length up to which a UTF-8 stream has no file; at most [`INLINE_BYTES`].
    pub inline_bytes: usize,
    /// The most bytes of each file; at most [`MAX_SPOOL_BYTES`].
    pub max_bytes: u64,
}

/// The result of a process.
#[derive(Debug)]
pub struct ProcessResult {
    /// How the process ended.
    pub end: ProcessEnd,
    /// The duration of [`run_process`], including the wait for the last output.
    pub duration: Duration,
    /// The captured standard output.
    pub stdout: OutputCapture,
    /// The captured standard error.
    pub stderr: OutputCapture,
    /// The processes that it left running; none if it was killed together with them.
    pub left: LeftProcesses,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal, which [`run_process`] did not send.
    Killed(i32),
    /// It was killed at its timeout.
    TimedOut,
    /// It was killed because of a cancellation request, or never started because of one.
    Cancelled,
    /// Like `Cancelled`, because the time limit of the run expired.
    OutOfTime,
    /// It did not start.
    NotStarted {
        /// The exit code of a shell: 127 when the program was not found, 126 when it cannot be executed.
        code: i32,
        /// The reason as a fragment, such as "program `foo` was not found in PATH".
        reason: String,
    },
}

/// A command that is ready to start, or the reason why it cannot start.
pub struct PreparedProcess<'a> {
    command: &'a ProcessCommand<'a>,
    call: Option<CallProcesses>,
    child: Result<(PathBuf, PreparedChild), ProcessEnd>,
}

/// A piece of the output of a running process, redacted.
#[derive(Debug)]
pub struct OutputPiece<'a> {
    /// Whether the process printed it to its standard error.
    pub is_stderr: bool,
    /// The bytes, which may begin or end inside a character.
    pub bytes: &'a [u8],
}

/// Gets the output of a process as it is printed.
pub type OutputObserver<'a> = &'a mut dyn FnMut(OutputPiece<'_>);

/// Does everything for `command` that can be done before its start.
pub fn prepare_process<'a>(command: &'a ProcessCommand<'a>) -> PreparedProcess<'a> {
    let containment = command.context.containment.as_ref();
    let call = containment.map(|containment| {
        containment.processes.start_call(containment.background, containment.is_limited)
    });
    match call.transpose() {
        Ok(call) => {
            let child = prepare_child(command, call.as_ref());
            PreparedProcess { command, call, child }
        }
        Err(error) => PreparedProcess {
            command,
            call: None,
            child: Err(program_lookup::unlimited_end(&error)),
        },
    }
}

impl PreparedProcess<'_> {
    /// Runs the command to its end. Every failure is in the result.
    ///
    /// At the timeout, or when `cancel` is requested, all its processes receive SIGTERM and, if they are still alive after
    /// 5 seconds, SIGKILL. When the command ends by itself, the output of its background processes is read for 1 more
    /// second at most; then [`LaunchContext::containment`] says what becomes of them. A process that survives SIGKILL (the
    /// kernel waits for a dead disk) is abandoned after another second.
    pub fn run(self, cancel: &CancelToken) -> ProcessResult {
        self.run_with(cancel, TERMINATION_GRACE, None)
    }

    /// As [`PreparedProcess::run`]; `observer` gets the output as it is printed.
    pub fn run_observed(
        self,
        cancel: &CancelToken,
        observer: Option<OutputObserver<'_>>,
    ) -> ProcessResult {
        self.run_with(cancel, TERMINATION_GRACE, observer)
    }

    fn run_with(
        self,
        cancel: &CancelToken,
        grace: Duration,
        observer: Option<OutputObserver<'_>>,
    ) -> ProcessResult {
        let start = Instant::now();
        let running =
            if cancel.is_requested() { Err(ProcessEnd::Cancelled) } else { self.start(grace) };
        let mut result = match running {
            Ok(running) => running.finish(cancel, observer),
            Err(end) => ProcessResult {
                end,
                duration: Duration::ZERO,
                stdout: OutputCapture::empty(),
                stderr: OutputCapture::empty(),
                left: LeftProcesses::default(),
            },
        };
        if result.end == ProcessEnd::Cancelled && cancel.is_expired() {
            result.end = ProcessEnd::OutOfTime;
        }
        ProcessResult { duration: start.elapsed(), ..result }
    }
}

/// Prepares `command` and runs it; see [`PreparedProcess::run`].
pub fn run_process(command: &ProcessCommand<'_>, cancel: &CancelToken) -> ProcessResult {
    prepare_process(command).run(cancel)
}

fn prepare_child(
    command: &ProcessCommand<'_>,
    call: Option<&CallProcesses>,
) -> Result<(PathBuf, PreparedChild), ProcessEnd> {
    let name = command.program_name();
    let context = command.context;
    let path = match command.program {
        Some(program) => program.to_owned(),
        None => program_lookup::locate_program(name, context)
            .map_err(|end| program_lookup::directory_error_or(&context.cwd, end))?,
    };
    let image = ExecImage::new(&path, command.argv, &context.env)
        .ok_or_else(program_lookup::nul_byte_end)?;
    let mark = call.and_then(CallProcesses::mark);
    let limits = call.map_or_else(|| Ok(ChildLimits::default()), CallProcesses::child_limits);
    let limits = limits.map_err(|error| program_lookup::unlimited_end(&error))?;
    let sandbox = context.sandbox.clone();
    match PreparedChild::new(image, &context.cwd, !command.stdin.is_empty(), mark, limits, sandbox)
    {
        Ok(child) => Ok((path, child)),
        Err(error) => Err(program_lookup::explain_spawn_error(&error, name, &path)),
    }
}

/// The name of a signal: `SIGKILL`, or `signal 99` when it has none.
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

struct RunningProcess<'a> {
    pid: Pid,
    /// The process group; `None` once it was empty, because its number may be reused.
    group: Option<Pid>,
    /// Readable when the child has ended; `None` after the end, and where there are no pidfds.
    exit_fd: Option<OwnedFd>,
    stdin: Option<PipeWriter>,
    /// The rest to be written to `stdin`.
    input: &'a [u8],
    stdout: OutputStream,
    stderr: OutputStream,
    marks: ProcessMarks<'a>,
    call: Option<CallProcesses>,
    secrets: &'a Secrets,
    grace: Duration,
    stage: ProcessStage,
    /// The end of the stage; `None` for never.
    deadline: Option<Instant>,
    /// How the child itself ended.
    exit: Option<ProcessEnd>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProcessStage {
    /// The child runs.
    Work,
    /// The child and its descendants have received SIGTERM.
    Terminate,
    /// The survivors receive SIGKILL until none is left.
    Kill,
    /// Only the output in the pipes is left to read.
    Drain,
}

impl<'a> PreparedProcess<'a> {
    fn start(self, grace: Duration) -> Result<RunningProcess<'a>, ProcessEnd> {
        let command = self.command;
        let (path, child) = self.child?;
        let (pid, ChildPipes { stdin, stdout, stderr }) = child.spawn().map_err(|error| {
            if error.step.is_some() {
                let code = program_lookup::NOT_EXECUTABLE_EXIT_CODE;
                return ProcessEnd::NotStarted { code, reason: error.to_string() };
            }
            let name = command.program_name();
            let end = program_lookup::explain_spawn_error(&error.error, name, &path);
            program_lookup::directory_error_or(&command.context.cwd, end)
        })?;
        Ok(RunningProcess {
            pid,
            group: Some(pid),
            exit_fd: exit_fd(pid),
            stdin,
            input: command.stdin,
            stdout: OutputStream::new(stdout, command, "stdout"),
            stderr: OutputStream::new(stderr, command, "stderr"),
            marks: command.marks,
            call: self.call,
            secrets: &command.context.secrets,
            grace,
            stage: ProcessStage::Work,
            deadline: Instant::now().checked_add(command.timeout),
            exit: None,
        })
    }
}

impl RunningProcess<'_> {
    fn finish(
        mut self,
        cancel: &CancelToken,
        mut observer: Option<OutputObserver<'_>>,
    ) -> ProcessResult {
        // A process group has the id of its leader.
        cancel.set_child_group(self.pid.as_raw_pid());
        let early_end = self.supervise(cancel, &mut observer);
        cancel.set_child_group(0);
        let left = match &self.call {
            Some(call) if early_end.is_none() => {
                let left = call.settle(self.secrets, cancel);
                if !left.ended.is_empty() {
                    self.read_rest();
                }
                left
            }
            Some(call) => {
                // What was always a new process has escaped the signals.
                call.end_rest(self.secrets, cancel);
                LeftProcesses::default()
            }
            None => LeftProcesses::default(),
        };
        // A child that survived SIGKILL has no exit, but then `early_end` is set.
        let end = early_end.or(self.exit).unwrap_or(ProcessEnd::TimedOut);
        ProcessResult {
            end,
            duration: Duration::ZERO,
            stdout: self.stdout.recorder.finish(),
            stderr: self.stderr.recorder.finish(),
            left,
        }
    }

    /// Reads what background processes printed when they were ended.
    fn read_rest(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); READ_BUFFER_BYTES];
        self.stdout.read(&mut buffer, &mut None);
        self.stderr.read(&mut buffer, &mut None);
    }

    /// Runs through the stages; returns the reason if the child was terminated.
    fn supervise(
        &mut self,
        cancel: &CancelToken,
        observer: &mut Option<OutputObserver<'_>>,
    ) -> Option<ProcessEnd> {
        // Uninitialised, because most children print less.
        let mut buffer = [MaybeUninit::uninit(); READ_BUFFER_BYTES];
        let mut early_end = None;
        while !self.is_finished() {
            self.wait(cancel);
            self.write_stdin();
            self.stdout.read(&mut buffer, observer);
            self.stderr.read(&mut buffer, observer);
            self.reap();
            if let Some(reason) = self.advance(cancel.is_requested()) {
                early_end = Some(reason);
            }
        }
        early_end
    }

    fn is_finished(&self) -> bool {
        self.stage == ProcessStage::Drain
            && (self.is_past_deadline() || self.stdout.pipe.is_none() && self.stderr.pipe.is_none())
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Waits until a pipe is ready, the child has ended, `cancel` wakes the poll, or a deadline passes.
    fn wait(&self, cancel: &CancelToken) {
        let mut fds = vec![PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)];
        fds.extend(self.exit_fd.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(self.stdin.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        let outputs = [&self.stdout.pipe, &self.stderr.pipe];
        fds.extend(outputs.into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let limit =
            self.next_wake().map(|at| to_timespec(at.saturating_duration_since(Instant::now())));
        // The caller then tries everything without blocking, so the result of the poll does not matter.
        let _ = poll(&mut fds, limit.as_ref());
        if !fds[0].revents().is_empty() {
            cancel.drain();
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let lacks_exit_fd = self.exit.is_none() && self.exit_fd.is_none();
        let tick = (lacks_exit_fd
            || matches!(self.stage, ProcessStage::Terminate | ProcessStage::Kill))
        .then(|| Instant::now() + POLL_INTERVAL);
        let reaping = (self.stage == ProcessStage::Work && self.is_supervised())
            .then(|| Instant::now() + REAP_INTERVAL);
        let flushes = [self.stdout.recorder.flush_at(), self.stderr.recorder.flush_at()];
        [self.deadline, tick, reaping].into_iter().chain(flushes).flatten().min()
    }

    /// Writes as much of the input as the pipe accepts.
    fn write_stdin(&mut self) {
        let Some(pipe) = &self.stdin else { return };
        match rustix::io::write(pipe, self.input) {
            Ok(written) => self.input = &self.input[written..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The command does not have to read its input.
            Err(_) => self.input = &[],
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    fn reap(&mut self) {
        if self.exit.is_some() {
            return;
        }
        self.exit = match &self.call {
            Some(call) if call.is_supervised() => call.reap(self.pid),
            _ => poll_process_end(self.pid),
        };
        if self.exit.is_some() {
            self.exit_fd = None;
            self.stdin = None;
        }
    }

    /// Enters the next stage when it is due; returns the reason when that terminates the child.
    fn advance(&mut self, cancelled: bool) -> Option<ProcessEnd> {
        let stage = self.stage;
        match stage {
            ProcessStage::Work if self.exit.is_some() => {
                self.enter(ProcessStage::Drain, DRAIN_LIMIT)
            }
            ProcessStage::Work if cancelled => return Some(self.terminate(ProcessEnd::Cancelled)),
            ProcessStage::Work if self.is_past_deadline() => {
                return Some(self.terminate(ProcessEnd::TimedOut));
            }
            ProcessStage::Terminate | ProcessStage::Kill if self.is_group_gone() => {
                self.enter(ProcessStage::Drain, DRAIN_LIMIT)
            }
            ProcessStage::Terminate if self.is_past_deadline() => {
                self.signal(Signal::KILL);
                self.enter(ProcessStage::Kill, DRAIN_LIMIT);
            }
            ProcessStage::Kill if self.is_past_deadline() => {
                self.enter(ProcessStage::Drain, Duration::ZERO)
            }
            // A process that was forked during the last round has escaped it.
            ProcessStage::Kill => self.signal(Signal::KILL),
            ProcessStage::Work | ProcessStage::Terminate | ProcessStage::Drain => {}
        }
        None
    }

    fn enter(&mut self, stage: ProcessStage, limit: Duration) {
        self.stage = stage;
        self.deadline = Instant::now().checked_add(limit);
    }

    fn terminate(&mut self, reason: ProcessEnd) -> ProcessEnd {
        self.signal(Signal::TERM);
        // A stopped process handles SIGTERM only after SIGCONT.
        self.signal(Signal::CONT);
        self.enter(ProcessStage::Terminate, self.grace);
        reason
    }

    /// Sends `signal` to the group and the stray processes; errors mean that they have ended.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
        for stray in self.stray_processes() {
            let _ = rustix::process::kill_process(stray, signal);
        }
    }

    fn is_group_gone(&mut self) -> bool {
        if self.exit.is_some() && self.group.is_some_and(|group| !is_group_alive(group)) {
            self.group = None;
        }
        self.group.is_none() && self.stray_processes().is_empty()
    }

    /// Whether the child's processes can be found by descent, wherever they are.
    fn is_supervised(&self) -> bool {
        self.call.as_ref().is_some_and(CallProcesses::is_supervised)
    }

    /// The child's processes outside the group; without supervision only processes with its marks.
    fn stray_processes(&self) -> Vec<Pid> {
        let processes: Vec<ProcessStat> = match &self.call {
            Some(call) if call.is_supervised() => call.find_alive(),
            _ if self.marks.is_empty() => return Vec::new(),
            _ => {
                let pids = find_marked_processes(self.marks).into_iter().filter_map(Pid::from_raw);
                pids.filter_map(ProcessStat::read).collect()
            }
        };
        processes
            .into_iter()
            .filter(|process| self.group.is_none() || process.group() != self.group)
            .map(|process| process.pid)
            .collect()
    }
}

struct OutputStream {
    /// `None` after the end of file.
    pipe: Option<PipeReader>,
    recorder: OutputRecorder,
    is_stderr: bool,
}

impl OutputStream {
    fn new(pipe: PipeReader, command: &ProcessCommand<'_>, name: &str) -> Self {
        let file = command.spool.map(|spool| spool.dir.join(format!("{}.{name}", spool.stem)));
        let inline_bytes =
            command.spool.map_or(INLINE_BYTES, |spool| spool.inline_bytes.min(INLINE_BYTES));
        let recorder = OutputRecorder::new(
            &command.context.secrets,
            command.excerpt_bytes,
            command.capture_whole,
            file,
        )
        .with_inline_bytes(inline_bytes)
        .with_max_bytes(command.spool.map_or(MAX_SPOOL_BYTES, |spool| spool.max_bytes));
        Self { pipe: Some(pipe), recorder, is_stderr: name == "stderr" }
    }

    /// Reads what is available, and after a short read tries once more, because that is usually the end of file. Flushes
    /// the spool file when it is due.
    fn read(&mut self, buffer: &mut [MaybeUninit<u8>], observer: &mut Option<OutputObserver<'_>>) {
        for _ in 0..2 {
            let Some(pipe) = &self.pipe else { break };
            match rustix::io::read(pipe, &mut *buffer) {
                Ok((piece @ [_, ..], rest)) => {
                    let bytes = self.recorder.push(piece);
                    if let Some(observe) = observer
                        && !bytes.is_empty()
                    {
                        observe(OutputPiece { is_stderr: self.is_stderr, bytes: &bytes });
                    }
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

#[cfg(target_os = "linux")]
fn exit_fd(child: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn exit_fd(_: Pid) -> Option<OwnedFd> {
    None
}
