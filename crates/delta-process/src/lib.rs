//! Runs one command: writes its input, captures its output in bounded memory, kills it and its children at the timeout,
//! and ends what it leaves running.
//!
//! Everything runs on the calling thread, in one `poll` loop, also several commands at the same time. Two requirements on the caller:
//!
//! - Call [`run_process`] on the main thread. On Linux, the kernel kills the child when the *thread* that started it
//!   ends (`PR_SET_PDEATHSIG`), so that no tool outlives a killed engine.
//! - SIGPIPE must be ignored, as the Rust runtime does: a tool that ends before it has read its input would otherwise
//!   kill the engine.
#![expect(unsafe_code, reason = "the code of a child before `execve` has no safe interface")]

mod call_limits;
mod capture;
mod detached;
mod env_vars;
mod exec_image;
mod exit_status;
#[cfg(target_os = "linux")]
mod filter_thread;
mod foreground;
mod helper_process;
mod process_table;
mod program_lookup;
mod replaced_process;
mod run_mark;
mod run_processes;
mod running_process;
mod sandbox_entry;
mod service;
mod spawn;
#[cfg(test)]
mod tests;
pub mod truncated_output;
mod worker_process;

pub use self::call_limits::CallLimits;
pub use self::capture::{INLINE_BYTES, INLINE_WHOLE_BYTES, MAX_SPOOL_BYTES, OutputCapture};
pub use self::detached::{
    STARTED_PREFIX, StartEnd, StartingProcess, TerminalProcess, start_detached,
};
pub use self::env_vars::EnvVars;
pub use self::foreground::run_in_foreground;
pub use self::helper_process::HelperProcess;
pub use self::helper_process::relay::{RELAY_COMMAND, run_relay};
pub use self::process_table::{
    ProcessMarks, RunProcessFilter, find_marked_processes, kill_call_processes, shows_own_processes,
};
pub use self::program_lookup::{ProgramDefect, ProgramError, is_program};
pub use self::replaced_process::become_program;
pub use self::run_mark::{HeldCallMark, MAX_RUN_LEVELS, RunMark, marked_run_levels};
pub use self::run_processes::{
    Background, LeftProcesses, MAX_LISTED_PROCESSES, RunProcesses, adopt_orphans,
};
pub use self::running_process::{ProcessNotice, run_together};
pub use self::sandbox_entry::{
    EntrySteps, FilterInstruction, SandboxEntry, copy_inherited_descriptor,
};
pub use self::service::{ServiceProcess, own_program};
pub use self::worker_process::{
    PipedProcess, WorkerCommand, WorkerErrors, WorkerFile, WorkerProcess,
};

use self::call_limits::ChildLimits;
use self::exec_image::ExecImage;
use self::exit_status::end_from_status;
use self::run_processes::CallProcesses;
use self::spawn::PreparedChild;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use rustix::fd::OwnedFd;
use rustix::process::Pid;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(5);
/// The time to wait for output in the pipes after the command has ended, and for killed processes to die.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// The usual capacity of a pipe.
const READ_BUFFER_BYTES: usize = 64 * 1024;
/// The interval for what has no descriptor to poll: the process group, stray processes, a child without a pidfd.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
    /// A child in no sandbox that has no secrets, and may leave processes.
    pub fn new(cwd: impl Into<PathBuf>, env: impl Into<EnvVars>) -> Self {
        Self {
            cwd: cwd.into(),
            env: env.into(),
            secrets: Secrets::default(),
            containment: None,
            sandbox: None,
        }
    }

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

/// The file that a shell would start for `name`, also one that only a shell interprets.
pub fn find_program_file(name: &str, context: &LaunchContext) -> Option<PathBuf> {
    program_lookup::locate_program(name, context).ok()
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
    /// Whether the program ends what it has started when it gets SIGTERM, as delta does. It gets that when this process
    /// dies, and any other program SIGKILL (on Linux).
    pub ends_its_children: bool,
}

impl<'a> ProcessCommand<'a> {
    /// A command without input and marks; the excerpts of its output are kept.
    pub fn new(
        argv: &'a [String],
        context: &'a LaunchContext,
        timeout: Duration,
        excerpt_bytes: usize,
    ) -> Self {
        Self {
            argv,
            program: None,
            context,
            stdin: &[],
            timeout,
            spool: None,
            excerpt_bytes,
            capture_whole: false,
            marks: &[],
            ends_its_children: false,
        }
    }

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
    /// Whether what the command's background processes print after it is copied to the files `{stem}.later.stdout` and
    /// `{stem}.later.stderr` there. Otherwise their pipes have no reader then, and writing ends them. A program that sets
    /// this calls [`run_relay`] when its argument is [`RELAY_COMMAND`].
    pub continues_output: bool,
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
    /// Like `Cancelled`, because the operator sent the run a message that was not to wait. The run continues.
    ForMessage,
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
    /// Runs the command to its end; see [`run_together`]. Every failure is in the result.
    pub fn run(self, cancel: &CancelToken) -> ProcessResult {
        self.run_with(cancel, TERMINATION_GRACE)
    }

    fn run_with(self, cancel: &CancelToken, grace: Duration) -> ProcessResult {
        let mut result = None;
        running_process::run_with_grace(vec![self], cancel, grace, &mut |_, notice| {
            if let ProcessNotice::Ended(process) = notice {
                result = Some(*process);
            }
        });
        result.unwrap_or_else(|| ProcessResult::without_process(ProcessEnd::Cancelled))
    }
}

impl ProcessResult {
    /// The result of a command that has not started.
    fn without_process(end: ProcessEnd) -> Self {
        Self {
            end,
            duration: Duration::ZERO,
            stdout: OutputCapture::empty(),
            stderr: OutputCapture::empty(),
            left: LeftProcesses::default(),
        }
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
    let image =
        ExecImage::new(&path, command.argv, context).ok_or_else(program_lookup::nul_byte_end)?;
    let mark = call.and_then(CallProcesses::mark);
    let limits = call.map_or_else(|| Ok(ChildLimits::default()), CallProcesses::child_limits);
    let limits = limits.map_err(|error| program_lookup::unlimited_end(&error))?;
    let sandbox = context.sandbox.clone();
    match PreparedChild::new(image, &context.cwd, !command.stdin.is_empty(), mark, limits, sandbox)
    {
        Ok(mut child) => {
            if command.ends_its_children {
                child.end_its_children();
            }
            Ok((path, child))
        }
        Err(error) => {
            Err(program_lookup::explain_spawn_error(&error, command.argv, &path, context))
        }
    }
}

/// The name of a signal: `SIGKILL`, or `signal 99` when it has none.
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

#[cfg(target_os = "linux")]
fn exit_fd(child: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn exit_fd(_: Pid) -> Option<OwnedFd> {
    None
}
