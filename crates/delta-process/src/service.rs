//! A process that serves its caller through its standard streams for longer than one call, and may outlive the caller.

use super::run_processes::CallProcesses;
use super::sandbox_entry::SandboxEntry;
use super::spawn::{ChildPipes, PreparedChild};
use super::{
    Background, ChildLimits, ExecImage, LaunchContext, ProcessEnd, exit_fd, program_lookup,
};
use delta_base::signal::{CancelToken, to_timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use std::io::{PipeReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a service may take to end after its input has ended.
const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// How long it may take after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(3);
/// How long to wait for the end of a killed process.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// The interval where no descriptor reports the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running service. It leads its own session, and the kernel kills it when this thread ends, unless it survives.
#[derive(Debug)]
pub struct ServiceProcess {
    pid: Pid,
    exit_fd: Option<OwnedFd>,
    /// Its standard input, which does not block; `None` once it is closed.
    pub stdin: Option<PipeWriter>,
    /// Its standard output, which does not block.
    pub stdout: PipeReader,
    /// Its standard error, which does not block.
    pub stderr: PipeReader,
    /// Keeps the limits of the service; a service of a run also ends with the run.
    call: Option<CallProcesses>,
    was_reaped: bool,
    /// Whether it lives on when this is dropped.
    survives: bool,
}

impl ServiceProcess {
    /// Starts `argv`, or the file `program` under that command line. A service of a run ends when the run is left. It
    /// inherits the descriptors of the sandbox `handed_over`, which it may put its own children into.
    ///
    /// # Errors
    /// The reason why it could not be started, as a fragment.
    pub fn start(
        argv: &[String],
        program: Option<&Path>,
        context: &LaunchContext,
        handed_over: Option<&SandboxEntry>,
    ) -> Result<Self, String> {
        Self::start_as(Background::Run, argv, program, context, handed_over)
            .map_err(describe_failure)
    }

    /// Starts a service that lives on when this process has ended, and that nothing ends but itself and
    /// [`ServiceProcess::end`].
    ///
    /// # Errors
    /// The reason why it could not be started, as a fragment.
    pub fn start_surviving(
        argv: &[String],
        program: &Path,
        context: &LaunchContext,
    ) -> Result<Self, String> {
        Self::start_as(Background::Survive, argv, Some(program), context, None)
            .map_err(describe_failure)
    }

    fn start_as(
        background: Background,
        argv: &[String],
        program: Option<&Path>,
        context: &LaunchContext,
        handed_over: Option<&SandboxEntry>,
    ) -> Result<Self, ProcessEnd> {
        let name = argv.first().map_or("", String::as_str);
        program_lookup::check_working_directory(&context.cwd)?;
        let path = match program {
            Some(program) => program.to_owned(),
            None => program_lookup::locate_program(name, context)?,
        };
        let unlimited = |error| program_lookup::unlimited_end(&error);
        let call = context.containment.as_ref().map(|containment| {
            containment.processes.start_call(background, containment.is_limited)
        });
        let call = call.transpose().map_err(unlimited)?;
        let limits = call.as_ref().map(CallProcesses::child_limits).transpose();
        let limits: Option<ChildLimits> = limits.map_err(unlimited)?;
        let mark = call.as_ref().and_then(CallProcesses::mark);
        let image =
            ExecImage::new(&path, argv, context).ok_or_else(program_lookup::nul_byte_end)?;
        let explain = |error: &std::io::Error| {
            program_lookup::explain_spawn_error(error, argv, &path, context)
        };
        let limits = limits.unwrap_or_default();
        let sandbox = context.sandbox.clone();
        let child = PreparedChild::new(image, &context.cwd, true, mark, limits, sandbox);
        let mut child = child.map_err(|error| explain(&error))?;
        child.hand_over(handed_over);
        let survives = background == Background::Survive;
        if survives {
            child.outlive_parent();
        }
        let (pid, ChildPipes { stdin, stdout, stderr }) =
            child.spawn().map_err(|error| match error.step {
                Some(_) => {
                    let code = program_lookup::NOT_EXECUTABLE_EXIT_CODE;
                    ProcessEnd::NotStarted { code, reason: error.to_string() }
                }
                None => explain(&error.error),
            })?;
        if let Some(call) = &call {
            call.remember_service(pid);
        }
        let exit_fd = exit_fd(pid);
        Ok(Self { pid, exit_fd, stdin, stdout, stderr, call, was_reaped: false, survives })
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        if let Some(fd) = &self.exit_fd {
            let mut fds = [PollFd::new(fd, PollFlags::IN)];
            let ready = poll(&mut fds, Some(&to_timespec(Duration::ZERO)));
            return ready.is_ok_and(|count| count > 0);
        }
        self.was_reaped |= !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None));
        self.was_reaped
    }

    /// Ends it: its input ends, and if it is still alive 2 s later it gets SIGTERM, and 3 s after that SIGKILL. A
    /// cancellation shortens each wait.
    pub fn end(&mut self, cancel: &CancelToken) {
        self.end_after(CLOSE_GRACE, cancel);
    }

    /// Like [`ServiceProcess::end`], with another time until SIGTERM.
    pub fn end_after(&mut self, close_grace: Duration, cancel: &CancelToken) {
        self.stdin = None;
        if !self.wait_for_end(close_grace, cancel) {
            self.signal_group(Signal::TERM);
            self.wait_for_end(TERM_GRACE, cancel);
        }
        // Also for what its leader has left in the group.
        self.signal_group(Signal::KILL);
        let deadline = Instant::now() + KILL_GRACE;
        while !self.has_ended() && Instant::now() < deadline {
            self.wait_once(POLL_INTERVAL);
        }
        if !self.was_reaped {
            // With containment, another call may have reaped it.
            let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
            self.was_reaped = true;
        }
    }

    /// Signals the group, whose number belongs to it until it has been reaped.
    fn signal_group(&mut self, signal: Signal) {
        let may_be_reaped = self.call.is_some() || self.was_reaped;
        if !may_be_reaped || !self.has_ended() {
            let _ = rustix::process::kill_process_group(self.pid, signal);
        }
    }

    fn wait_for_end(&mut self, limit: Duration, cancel: &CancelToken) -> bool {
        let deadline = Instant::now() + limit;
        while !self.has_ended() {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() || cancel.is_requested() {
                return self.has_ended();
            }
            self.wait_once(rest.min(POLL_INTERVAL));
        }
        true
    }

    fn wait_once(&self, limit: Duration) {
        let mut fds = Vec::new();
        fds.extend(self.exit_fd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let _ = poll(&mut fds, Some(&to_timespec(limit)));
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        if !self.was_reaped && !self.survives {
            self.signal_group(Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
        }
    }
}

fn describe_failure(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::NotStarted { reason, .. } => reason,
        other => format!("{other:?}"),
    }
}

/// The file of this program, which can be started although it was replaced.
pub fn own_program() -> PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}
