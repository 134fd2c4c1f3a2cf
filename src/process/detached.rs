//! Processes that are no child of a run: one at a pseudo-terminal, and the process that holds that terminal, which lives
//! on when whoever started it has gone.
#![expect(clippy::disallowed_methods, reason = "with process.rs the place that starts children")]

use super::image::{Image, inherit_nothing, reset_signals};
use super::table::of_session;
use super::{End, Launch, ended, program};
use pty_process::Size;
use pty_process::blocking::{self, Pty};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal};
use rustix::termios::{InputModes, OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

/// Starts `program` in a session of its own, without a terminal and with no descriptor of ours but its standard output,
/// the pipe that is given back. Nobody waits for it: it is the caller's to end before it does.
pub fn start_detached(
    program: &Path,
    arguments: &[String],
    env: &BTreeMap<OsString, OsString>,
    cwd: &Path,
) -> io::Result<PipeReader> {
    let (ours, theirs) = io::pipe()?;
    let mut process = std::process::Command::new(program);
    process.args(arguments).env_clear().envs(env).current_dir(cwd);
    process.stdin(Stdio::null()).stdout(theirs).stderr(Stdio::null());
    // SAFETY: between fork and exec the closure makes only system calls and does not allocate.
    unsafe {
        process.pre_exec(|| {
            inherit_nothing();
            reset_signals();
            rustix::process::setsid()?;
            Ok(())
        })
    };
    process.spawn()?;
    Ok(ours)
}

/// A program at a pseudo-terminal, of which we hold the other side. When that is dropped, the kernel hangs up.
pub struct AtTerminal {
    child: Child,
    terminal: Pty,
    exit: Option<End>,
}

impl AtTerminal {
    /// Starts a program whose three streams and controlling terminal are a new terminal of this size.
    ///
    /// # Errors
    /// It never ran; an [`End::NotStarted`] with the reason.
    pub fn start(argv: &[String], launch: &Launch, columns: u16, rows: u16) -> Result<Self, End> {
        let name = argv.first().map_or("", String::as_str);
        program::check_directory(&launch.cwd)?;
        let path = program::find(name, launch)?;
        let image = Image::new(&path, argv, &launch.env).map_err(|_| program::holds_nul())?;
        let failed =
            |error: pty_process::Error| program::explain(&io::Error::other(error), name, &path);
        let (terminal, theirs) = blocking::open().map_err(failed)?;
        terminal.resize(Size::new(rows, columns)).map_err(failed)?;
        prepare(&terminal).map_err(|error| program::explain(&error, name, &path))?;
        let command = blocking::Command::new(&path).current_dir(&launch.cwd);
        // SAFETY: between fork and exec the closure makes only system calls and does not allocate.
        let command = unsafe {
            command.pre_exec(move || {
                inherit_nothing();
                reset_signals();
                Err(image.execute())
            })
        };
        let child = command.spawn(theirs).map_err(|error| match error {
            pty_process::Error::Io(error) => program::explain(&error, name, &path),
            other => failed(other),
        })?;
        Ok(Self { child, terminal, exit: None })
    }

    /// Our side of the terminal; reading and writing it never waits.
    pub fn terminal(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }

    /// The process that was started; it leads its session.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the program ended, once it has. SIGCHLD tells when to look.
    pub fn end(&mut self) -> Option<&End> {
        if self.exit.is_none() {
            self.exit = ended(Pid::from_child(&self.child));
        }
        self.exit.as_ref()
    }

    /// Gives the terminal another size, of which the program is told by SIGWINCH.
    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        self.terminal.resize(Size::new(rows, columns)).map_err(io::Error::other)
    }

    /// Sends a signal to the program's process group and to the one in the foreground. Who is gone needs none.
    pub fn signal(&self, signal: Signal) {
        let leader = Pid::from_child(&self.child);
        let foreground = tcgetpgrp(&self.terminal).ok().filter(|group| *group != leader);
        for group in
            [Some(leader).filter(|_| self.exit.is_none()), foreground].into_iter().flatten()
        {
            let _ = rustix::process::kill_process_group(group, signal);
            // A stopped process hears of it only when it goes on.
            let _ = rustix::process::kill_process_group(group, Signal::CONT);
        }
    }

    /// Kills every process of the program's session.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        if self.exit.is_none() {
            for pid in of_session(Pid::from_child(&self.child)) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Reading never waits, and erasing takes away whole characters of UTF-8.
fn prepare(terminal: &Pty) -> io::Result<()> {
    ioctl_fionbio(terminal, true)?;
    let mut modes = tcgetattr(terminal)?;
    modes.input_modes.insert(InputModes::IUTF8);
    Ok(tcsetattr(terminal, OptionalActions::Now, &modes)?)
}
