//! Processes outside a run: a program on a pseudo-terminal, and the detached process that holds that terminal and
//! outlives the command that started it.
#![expect(clippy::disallowed_methods, reason = "with spawn.rs the only place that starts children")]

use super::exec_image::{ExecImage, close_descriptors_on_exec, reset_signal_actions};
use super::exit_status::poll_process_end;
use super::process_table::session_processes;
use super::{LaunchContext, ProcessEnd, program_lookup};
use delta_base::signal::CancelToken;
use pty_process::Size;
use pty_process::blocking::{self, Pty};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal};
use rustix::termios::{InputModes, LocalModes, OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A signal that the caller ignores (a background job of a script ignores SIGINT) must not be ignored on a terminal.
const STANDARD_SIGNALS: std::ops::Range<i32> = 1..32;

/// Starts `program` in a new session, without a terminal; it inherits no descriptor. Returns its standard output.
///
/// This process does not reap it, and so should end first.
pub fn start_detached(
    program: &Path,
    arguments: &[String],
    env: &BTreeMap<OsString, OsString>,
    cwd: &Path,
) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(env).current_dir(cwd);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    in_new_session(&mut command);
    command.spawn()?;
    Ok(reader)
}

/// Makes the child the leader of a new session, without the descriptors and signal actions of this process.
fn in_new_session(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes only system calls and does not allocate.
    unsafe {
        command.pre_exec(|| {
            close_descriptors_on_exec();
            reset_signal_actions(STANDARD_SIGNALS);
            rustix::process::setsid()?;
            Ok(())
        })
    };
}

/// Begins the line with which a [`StartingProcess`] reports its start.
pub const STARTED_PREFIX: &str = "started ";

/// A process in a session of its own that reports its start by a line on its standard output.
#[derive(Debug)]
pub struct StartingProcess {
    child: Child,
    stdout: ChildStdout,
}

/// How a [`StartingProcess`] has started.
#[derive(Debug, PartialEq, Eq)]
pub enum StartEnd {
    /// It works, and has printed this after [`STARTED_PREFIX`].
    Started(String),
    /// It has exited with this code instead, after it had printed the text.
    Exited(Option<i32>, String),
    /// The wait was cancelled, and the process killed.
    Cancelled,
}

impl StartingProcess {
    /// Starts `program` in a new session. It has the standard input of this process, unless that is a terminal, and its standard
    /// error.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        env: &BTreeMap<OsString, OsString>,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(env).stdout(Stdio::piped());
        if io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        in_new_session(&mut command);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
        Ok(Self { child, stdout })
    }

    /// Waits for the line.
    ///
    /// # Errors
    /// Its output could not be read.
    pub fn wait(mut self, cancel: &CancelToken) -> io::Result<StartEnd> {
        let mut text = Vec::new();
        loop {
            if let Some(line) = text.strip_prefix(STARTED_PREFIX.as_bytes())
                && let Some(line) = line.strip_suffix(b"\n")
            {
                return Ok(StartEnd::Started(String::from_utf8_lossy(line).into_owned()));
            }
            let mut fds = [
                PollFd::new(&self.stdout, PollFlags::IN),
                PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN),
            ];
            let _ = poll(&mut fds, None);
            if cancel.is_requested() {
                self.child.kill()?;
                self.child.wait()?;
                return Ok(StartEnd::Cancelled);
            }
            cancel.drain();
            if fds[0].revents().is_empty() {
                continue;
            }
            let mut piece = [0; 4096];
            let length = self.stdout.read(&mut piece)?;
            if length == 0 {
                let code = self.child.wait()?.code();
                return Ok(StartEnd::Exited(code, String::from_utf8_lossy(&text).into_owned()));
            }
            text.extend_from_slice(&piece[..length]);
        }
    }
}

/// A program on a pseudo-terminal whose controlling side this process holds. Dropping it hangs up the terminal.
pub struct TerminalProcess {
    child: Child,
    terminal: Pty,
    exit: Option<ProcessEnd>,
}

impl TerminalProcess {
    /// Starts a program on a new terminal of the given size: its standard streams and controlling terminal.
    ///
    /// # Errors
    /// A [`ProcessEnd::NotStarted`] with the reason.
    pub fn spawn(
        argv: &[String],
        context: &LaunchContext,
        columns: u16,
        rows: u16,
    ) -> Result<Self, ProcessEnd> {
        let name = argv.first().map_or("", String::as_str);
        if context.sandbox.is_some() {
            // It gets the sandbox of the process that starts it, and would miss its own.
            let reason = "a program on a terminal cannot enter a sandbox of its own".to_owned();
            return Err(ProcessEnd::NotStarted {
                code: program_lookup::NOT_EXECUTABLE_EXIT_CODE,
                reason,
            });
        }
        program_lookup::check_working_directory(&context.cwd)?;
        let path = program_lookup::locate_program(name, context)?;
        let image =
            ExecImage::new(&path, argv, context).ok_or_else(program_lookup::nul_byte_end)?;
        let to_end = |error: pty_process::Error| {
            let error = match error {
                pty_process::Error::Io(error) => error,
                other => io::Error::other(other),
            };
            program_lookup::explain_spawn_error(&error, argv, &path, context)
        };
        let (terminal, program_side) = blocking::open().map_err(to_end)?;
        terminal.resize(Size::new(rows, columns)).map_err(to_end)?;
        configure_terminal(&terminal)
            .map_err(|error| program_lookup::explain_spawn_error(&error, argv, &path, context))?;
        let command = blocking::Command::new(&path).current_dir(&context.cwd);
        // SAFETY: between fork and exec the closure makes only system calls and does not allocate.
        let command = unsafe {
            command.pre_exec(move || {
                close_descriptors_on_exec();
                reset_signal_actions(STANDARD_SIGNALS);
                Err(image.exec())
            })
        };
        let child = command.spawn(program_side).map_err(to_end)?;
        Ok(Self { child, terminal, exit: None })
    }

    /// The controlling side of the terminal; reads and writes do not block.
    pub fn terminal(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }

    /// The id of the program's process, which leads its session.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the program ended; `None` while it runs. Call this after SIGCHLD.
    pub fn poll_end(&mut self) -> Option<&ProcessEnd> {
        if self.exit.is_none() {
            self.exit = poll_process_end(Pid::from_child(&self.child));
        }
        self.exit.as_ref()
    }

    /// Resizes the terminal; the kernel sends SIGWINCH to the program.
    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        self.terminal.resize(Size::new(rows, columns)).map_err(io::Error::other)
    }

    /// Whether the terminal passes on its input in whole lines (canonical mode).
    pub fn reads_lines(&self) -> bool {
        tcgetattr(&self.terminal).is_ok_and(|modes| modes.local_modes.contains(LocalModes::ICANON))
    }

    /// Sends a signal to the program's process group and the foreground group; errors mean that they have ended.
    pub fn signal(&self, signal: Signal) {
        let leader = Pid::from_child(&self.child);
        let foreground = tcgetpgrp(&self.terminal).ok().filter(|group| *group != leader);
        for group in
            [Some(leader).filter(|_| self.exit.is_none()), foreground].into_iter().flatten()
        {
            let _ = rustix::process::kill_process_group(group, signal);
            // A stopped process handles the signal only after SIGCONT.
            let _ = rustix::process::kill_process_group(group, Signal::CONT);
        }
    }

    /// Kills all processes of the program's session.
    pub fn kill_session(&self) {
        self.signal(Signal::KILL);
        if self.exit.is_none() {
            for pid in session_processes(Pid::from_child(&self.child)) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Makes reads and writes non-blocking, and lets the line editor erase whole UTF-8 characters.
fn configure_terminal(terminal: &Pty) -> io::Result<()> {
    ioctl_fionbio(terminal, true)?;
    let mut modes = tcgetattr(terminal)?;
    modes.input_modes.insert(InputModes::IUTF8);
    Ok(tcsetattr(terminal, OptionalActions::Now, &modes)?)
}
