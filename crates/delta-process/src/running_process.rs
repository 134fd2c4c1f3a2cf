//! Commands that run: their streams, deadlines and signals, and what is left when they have ended.
//!
//! One `poll` waits for all commands that run at the same time, so that a call is never supervised in another way because
//! others run next to it.

use super::capture::{INLINE_BYTES, MAX_SPOOL_BYTES, OutputCapture, OutputRecorder};
use super::exit_status::poll_process_end;
use super::helper_process::relay::{LaterStream, Relay};
use super::process_table::{ProcessMarks, ProcessStat, find_marked_processes, is_group_alive};
use super::run_processes::{CallProcesses, LeftProcesses};
use super::spawn::ChildPipes;
use super::{
    DRAIN_LIMIT, OutputObserver, OutputPiece, POLL_INTERVAL, PreparedProcess, ProcessCommand,
    ProcessEnd, ProcessResult, READ_BUFFER_BYTES, TERMINATION_GRACE, exit_fd, program_lookup,
};
use delta_base::redact::Secrets;
use delta_base::signal::{CancelToken, PassingRequest, to_timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::io::{PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The interval at which orphans that have ended are reaped while a command runs.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// What happens to one of several commands that run at the same time.
#[derive(Debug)]
pub enum ProcessNotice<'a> {
    /// It has printed something.
    Output(OutputPiece<'a>),
    /// It has ended, together with what `background` ends.
    Ended(Box<ProcessResult>),
}

/// Starts all commands and runs them to their ends. `observe` gets the index of the command with each notice; its time
/// is missing from the others, whose pipes and deadlines wait meanwhile.
///
/// At the timeout of a command, or when `cancel` is requested, all its processes receive SIGTERM and, if they are still
/// alive after 5 seconds, SIGKILL. When the command ends by itself, the output of its background processes is read for
/// 1 more second at most; then [`LaunchContext::containment`](super::LaunchContext::containment) says what becomes of
/// them. A process that survives SIGKILL (the kernel waits for a dead disk) is abandoned after another second.
pub fn run_together(
    commands: Vec<PreparedProcess<'_>>,
    cancel: &CancelToken,
    observe: &mut dyn FnMut(usize, ProcessNotice<'_>),
) {
    run_with_grace(commands, cancel, TERMINATION_GRACE, observe);
}

/// As [`run_together`], with another time between SIGTERM and SIGKILL.
pub(super) fn run_with_grace(
    commands: Vec<PreparedProcess<'_>>,
    cancel: &CancelToken,
    grace: Duration,
    observe: &mut dyn FnMut(usize, ProcessNotice<'_>),
) {
    let mut running = Vec::with_capacity(commands.len());
    let mut unstarted = Vec::new();
    for (index, command) in commands.into_iter().enumerate() {
        let delay = cancel.delay_exit();
        let started =
            if cancel.is_requested() { Err(ProcessEnd::Cancelled) } else { command.start(grace) };
        // A process group has the id of its leader.
        started.iter().for_each(|process| cancel.add_child_group(process.pid.as_raw_pid()));
        drop(delay);
        match started {
            Ok(process) => running.push((index, process)),
            Err(end) => unstarted.push((index, with_cause(end, cancel))),
        }
    }
    for (index, end) in unstarted {
        observe(index, ProcessNotice::Ended(Box::new(ProcessResult::without_process(end))));
    }
    supervise(running, cancel, observe);
}

/// Runs started commands to their ends. A second signal kills their process groups, which `cancel` has.
pub(super) fn supervise(
    mut running: Vec<(usize, RunningProcess<'_>)>,
    cancel: &CancelToken,
    observe: &mut dyn FnMut(usize, ProcessNotice<'_>),
) {
    // Uninitialised, because most children print less.
    let mut buffer = [MaybeUninit::uninit(); READ_BUFFER_BYTES];
    while !running.is_empty() {
        wait_for_any(&running, cancel);
        let mut at = 0;
        while let Some((index, process)) = running.get_mut(at) {
            let index = *index;
            process.step(cancel, &mut buffer, &mut |piece| {
                observe(index, ProcessNotice::Output(piece));
            });
            if !process.is_finished() {
                at += 1;
                continue;
            }
            let (_, process) = running.remove(at);
            cancel.remove_child_group(process.pid.as_raw_pid());
            observe(index, ProcessNotice::Ended(Box::new(process.finish(cancel))));
        }
    }
}

/// Waits until one of the commands has something to do, `cancel` wakes the poll, or a deadline passes.
fn wait_for_any(running: &[(usize, RunningProcess<'_>)], cancel: &CancelToken) {
    let mut fds = vec![PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)];
    fds.extend(running.iter().flat_map(|(_, process)| process.poll_fds()));
    let wake = running.iter().filter_map(|(_, process)| process.next_wake()).min();
    let limit = wake.map(|at| to_timespec(at.saturating_duration_since(Instant::now())));
    // The caller then tries everything without blocking, so the result of the poll does not matter.
    let _ = poll(&mut fds, limit.as_ref());
    if !fds[0].revents().is_empty() {
        cancel.drain();
    }
}

/// `end`, or what else than a request to stop caused it: the time limit of the run, or a message to it.
fn with_cause(end: ProcessEnd, cancel: &CancelToken) -> ProcessEnd {
    match end {
        ProcessEnd::Cancelled if cancel.is_expired() => ProcessEnd::OutOfTime,
        ProcessEnd::Cancelled if cancel.is_requested_only_for(PassingRequest::Message) => {
            ProcessEnd::ForMessage
        }
        end => end,
    }
}

/// A command that has started, and everything that is left to do for it.
pub(super) struct RunningProcess<'a> {
    pub(super) pid: Pid,
    /// The process group; `None` once it was empty, because its number may be reused.
    group: Option<Pid>,
    /// Readable when the child has ended; `None` after the end, and where there are no pidfds.
    pub(super) exit_fd: Option<OwnedFd>,
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
    /// Why the child was terminated, if it was.
    early_end: Option<ProcessEnd>,
    started: Instant,
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
    /// Starts the command.
    pub(super) fn start(self, grace: Duration) -> Result<RunningProcess<'a>, ProcessEnd> {
        let command = self.command;
        let started = Instant::now();
        let mut call = self.call;
        let (path, child) = self.child?;
        let (pid, ChildPipes { stdin, stdout, stderr }) = child.spawn().map_err(|error| {
            if error.step.is_some() {
                let code = program_lookup::NOT_EXECUTABLE_EXIT_CODE;
                return ProcessEnd::NotStarted { code, reason: error.to_string() };
            }
            let context = command.context;
            let end =
                program_lookup::explain_spawn_error(&error.error, command.argv, &path, context);
            program_lookup::directory_error_or(&context.cwd, end)
        })?;
        if let Some(call) = &mut call {
            call.begin(pid);
        }
        Ok(RunningProcess {
            pid,
            group: Some(pid),
            exit_fd: exit_fd(pid),
            stdin,
            input: command.stdin,
            stdout: OutputStream::new(stdout, command, "stdout"),
            stderr: OutputStream::new(stderr, command, "stderr"),
            marks: command.marks,
            call,
            secrets: &command.context.secrets,
            grace,
            stage: ProcessStage::Work,
            deadline: started.checked_add(command.timeout),
            exit: None,
            early_end: None,
            started,
        })
    }
}

impl RunningProcess<'_> {
    /// Does what is due without waiting. The caller has waited for one of [`RunningProcess::poll_fds`].
    fn step(
        &mut self,
        cancel: &CancelToken,
        buffer: &mut [MaybeUninit<u8>],
        observe: OutputObserver<'_>,
    ) {
        self.write_stdin();
        self.stdout.read(buffer, observe);
        self.stderr.read(buffer, observe);
        self.reap();
        if let Some(reason) = self.advance(cancel.is_requested()) {
            self.early_end = Some(reason);
        }
    }

    /// Settles what the command has left running, once it is finished.
    fn finish(mut self, cancel: &CancelToken) -> ProcessResult {
        // Before what was left running is ended, which closes it.
        let held_stdout = self.stdout.pipe.is_some();
        let mut left = match &self.call {
            Some(call) if self.early_end.is_none() => {
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
        left.held_stdout = held_stdout;
        // A child that survived SIGKILL has no exit, but then `early_end` is set.
        let goes_on = self.early_end.is_none();
        let end = self.early_end.or(self.exit).unwrap_or(ProcessEnd::TimedOut);
        let (stdout, later_stdout) = self.stdout.finish(goes_on);
        let (stderr, later_stderr) = self.stderr.finish(goes_on);
        let later: Vec<_> = [later_stdout, later_stderr].into_iter().flatten().collect();
        if !later.is_empty() {
            let names = later.iter().filter_map(|stream| stream.path.file_name());
            left.output_files = names.map(|name| name.to_string_lossy().into_owned()).collect();
            match Relay::start(later, self.secrets) {
                Ok(relay) => {
                    if let Some(call) = &self.call {
                        call.keep_relay(relay);
                    }
                }
                Err(error) => left.lost_output = Some(error.to_string()),
            }
        }
        ProcessResult {
            end: with_cause(end, cancel),
            duration: self.started.elapsed(),
            stdout,
            stderr,
            left,
        }
    }

    /// Reads what background processes printed when they were ended.
    fn read_rest(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); READ_BUFFER_BYTES];
        self.stdout.read(&mut buffer, &mut |_| ());
        self.stderr.read(&mut buffer, &mut |_| ());
    }

    fn is_finished(&self) -> bool {
        self.stage == ProcessStage::Drain
            && (self.is_past_deadline() || self.stdout.pipe.is_none() && self.stderr.pipe.is_none())
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// What is ready when the process has something to do.
    fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let exit = self.exit_fd.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
        let input = self.stdin.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT));
        let outputs = [&self.stdout.pipe, &self.stderr.pipe].into_iter().flatten();
        exit.chain(input).chain(outputs.map(|pipe| PollFd::new(pipe, PollFlags::IN)))
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
    /// The file of what comes after the end of the command, and the most bytes of both files.
    later: Option<(PathBuf, u64)>,
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
        let later = command
            .spool
            .filter(|spool| spool.continues_output)
            .map(|spool| (spool.dir.join(format!("{}.later.{name}", spool.stem)), spool.max_bytes));
        Self { pipe: Some(pipe), recorder, is_stderr: name == "stderr", later }
    }

    /// What was captured, and the rest if the stream has one and it `goes_on`.
    fn finish(self, goes_on: bool) -> (OutputCapture, Option<LaterStream>) {
        let Self { pipe, recorder, is_stderr, later } = self;
        match (pipe, later) {
            (Some(pipe), Some((path, max_bytes))) if goes_on => {
                let (capture, held_back) = recorder.interrupt();
                let max_bytes = max_bytes.saturating_sub(capture.bytes);
                (capture, Some(LaterStream { pipe, is_stderr, path, max_bytes, held_back }))
            }
            _ => (recorder.finish(), None),
        }
    }

    /// Reads what is available, and after a short read tries once more, because that is usually the end of file. Flushes
    /// the spool file when it is due.
    fn read(&mut self, buffer: &mut [MaybeUninit<u8>], observe: OutputObserver<'_>) {
        for _ in 0..2 {
            let Some(pipe) = &self.pipe else { break };
            match rustix::io::read(pipe, &mut *buffer) {
                Ok((piece @ [_, ..], rest)) => {
                    let bytes = self.recorder.push(piece);
                    if !bytes.is_empty() {
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
