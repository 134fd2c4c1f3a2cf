//! Plays a user at a terminal: runs a program on a real pseudo-terminal, types, and reads what it shows.

use crate::running::Running;
use crate::sandbox::{Delta, Ran};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A test that waits longer for a text has failed.
const EXPECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A running program whose stdin and stderr are a terminal; its stdout is a pipe, so that the result is separate.
pub struct Terminal {
    child: Running,
    keyboard: File,
    screen: Arc<(Mutex<Screen>, Condvar)>,
    reader: JoinHandle<()>,
    /// The reader stops when this is closed.
    reading: PipeWriter,
    result: JoinHandle<Vec<u8>>,
}

struct Screen {
    /// Bytes, because one read may end inside a character.
    shown: Vec<u8>,
    /// The number of bytes that the test has already waited for.
    seen: usize,
    /// What a terminal of this size shows after these bytes.
    emulator: vt100::Parser,
    ended: bool,
}

/// The usual size of the terminal.
const COLUMNS: u16 = 100;
const LINES: u16 = 40;

impl Delta {
    /// Starts the program on a terminal of 100 columns.
    pub fn at_terminal(self) -> Terminal {
        self.at_terminal_with(false, None, (COLUMNS, LINES))
    }

    /// The same with another size, in columns and lines.
    pub fn at_terminal_of(self, columns: u16, lines: u16) -> Terminal {
        self.at_terminal_with(false, None, (columns, lines))
    }

    /// As [`Delta::wholly_at_terminal`], with another size.
    pub fn wholly_at_terminal_of(self, columns: u16, lines: u16) -> Terminal {
        self.at_terminal_with(true, None, (columns, lines))
    }

    /// The same with a file as stdin: the terminal is its stderr and its controlling terminal.
    pub fn at_terminal_reading(self, file: &Path) -> Terminal {
        self.at_terminal_with(false, Some(file), (COLUMNS, LINES))
    }

    /// The same with the terminal as stdout too.
    pub fn wholly_at_terminal(self) -> Terminal {
        self.at_terminal_with(true, None, (COLUMNS, LINES))
    }

    fn at_terminal_with(
        mut self,
        wholly: bool,
        stdin: Option<&Path>,
        (columns, lines): (u16, u16),
    ) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a pseudo-terminal");
        grantpt(&master).expect("grantpt");
        unlockpt(&master).expect("unlockpt");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let open = || {
            // A child of another test must not hold the terminal open: its end would never be detected.
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            File::from(rustix::fs::open(&name, flags, Mode::empty()).expect("the terminal"))
        };
        resize(&master, columns, lines);
        let command = self.command();
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        let stdout = if wholly { open().into() } else { Stdio::piped() };
        let stdin = stdin.map_or_else(&open, |path| File::open(path).expect("its stdin"));
        command.stdin(stdin).stderr(open()).stdout(stdout);
        // SAFETY: both are async-signal-safe system calls on the child's own descriptors.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stderr())?;
                Ok(())
            });
        }
        let mut child = Running::start(command);
        // The command holds the terminal open, so that its end would never be detected.
        drop(self);
        let stdout = child.stdout.take();
        let result = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.map(|mut stdout| stdout.read_to_end(&mut bytes));
            bytes
        });
        let keyboard = File::from(master);
        let emulator = vt100::Parser::new(not_zero(lines), not_zero(columns), 0);
        let screen = Screen { shown: Vec::new(), seen: 0, emulator, ended: false };
        let screen = Arc::new((Mutex::new(screen), Condvar::new()));
        let (stop, reading) = std::io::pipe().expect("a pipe");
        let reader = std::thread::spawn({
            let (source, screen) = (keyboard.try_clone().expect("a clone"), Arc::clone(&screen));
            move || read(source, &stop, &screen)
        });
        Terminal { child, keyboard, screen, reader, reading, result }
    }
}

fn resize(master: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("a size");
}

fn read(mut source: File, stop: &PipeReader, screen: &(Mutex<Screen>, Condvar)) {
    let mut buffer = [0; 4096];
    let mut failed = false;
    loop {
        let mut fds = [PollFd::new(&source, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        let _ = poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            break;
        }
        match source.read(&mut buffer) {
            Ok(count @ 1..) => {
                failed = false;
                let mut locked = screen.0.lock().expect("the screen");
                locked.shown.extend(&buffer[..count]);
                locked.emulator.process(&buffer[..count]);
                drop(locked);
                screen.1.notify_all();
            }
            // Reading fails once no process has the terminal open. The kernel checks for output first, and then for open
            // descriptors. A second read finds the output that was written between the two checks.
            _ if failed => break,
            _ => failed = true,
        }
    }
    screen.0.lock().expect("the screen").ended = true;
    screen.1.notify_all();
}

impl Terminal {
    /// Waits until `text` is shown, after the text that the test waited for last.
    #[track_caller]
    pub fn expect(&mut self, text: &str) -> &mut Self {
        let shared = Arc::clone(&self.screen);
        let (screen, changed) = &*shared;
        let mut screen = screen.lock().expect("the screen");
        loop {
            let new = &screen.shown[screen.seen..];
            if let Some(at) = new.windows(text.len()).position(|part| part == text.as_bytes()) {
                screen.seen += at + text.len();
                return self;
            }
            let shown = String::from_utf8_lossy(new).into_owned();
            assert!(!screen.ended, "the program ended without showing {text:?}; shown:\n{shown}");
            let (next, wait) = changed.wait_timeout(screen, EXPECT_TIMEOUT).expect("the screen");
            assert!(!wait.timed_out(), "{text:?} is not shown; shown:\n{shown}");
            screen = next;
        }
    }

    /// Waits until the lines on the screen, without the blank ones at its end, are as `matches` wants them.
    #[track_caller]
    pub fn expect_screen(&mut self, matches: impl Fn(&[String]) -> bool) -> &mut Self {
        let shared = Arc::clone(&self.screen);
        let (screen, changed) = &*shared;
        let mut screen = screen.lock().expect("the screen");
        loop {
            let lines = screen_lines(&screen.emulator);
            if matches(&lines) {
                return self;
            }
            let lines = lines.join("\n");
            assert!(!screen.ended, "the program ended with another screen:\n{lines}");
            let (next, wait) = changed.wait_timeout(screen, EXPECT_TIMEOUT).expect("the screen");
            assert!(!wait.timed_out(), "the screen is another:\n{lines}");
            screen = next;
        }
    }

    /// Closes the terminal, as a terminal window does, and waits for the program's end; its exit code.
    pub fn hang_up(self) -> i32 {
        let Self { mut child, keyboard, reader, reading, .. } = self;
        drop(reading);
        reader.join().expect("its screen");
        drop(keyboard);
        child.wait().expect("the program ends").code().unwrap_or(-1)
    }

    /// The lines on the screen after the program's end, without the blank ones at its end; its exit code is the first value.
    pub fn end_with_screen(mut self) -> (i32, Vec<String>) {
        let status = self.child.wait().expect("the program ends");
        self.reader.join().expect("its screen");
        let screen = self.screen.0.lock().expect("the screen");
        (status.code().unwrap_or(-1), screen_lines(&screen.emulator))
    }

    /// Types `text` as it is; `\n` is Enter, `\x04` the end of input, `\x03` an interruption.
    pub fn type_in(&mut self, text: &str) -> &mut Self {
        self.keyboard.write_all(text.as_bytes()).expect("the terminal takes it");
        self
    }

    /// Waits until the terminal no longer echoes what is typed.
    pub fn expect_hidden(&mut self) -> &mut Self {
        let echoes = |keyboard| {
            tcgetattr(keyboard).expect("its modes").local_modes.contains(LocalModes::ECHO)
        };
        let since = Instant::now();
        while echoes(&self.keyboard) {
            assert!(since.elapsed() < EXPECT_TIMEOUT, "the terminal still echoes what is typed");
            std::thread::yield_now();
        }
        self
    }

    /// Resizes the terminal.
    pub fn resize(&mut self, columns: u16, rows: u16) -> &mut Self {
        let mut screen = self.screen.0.lock().expect("the screen");
        screen.emulator.screen_mut().set_size(not_zero(rows), not_zero(columns));
        resize(&self.keyboard, columns, rows);
        drop(screen);
        self
    }

    /// Whether the terminal echoes, edits lines and sends signals, as at a shell's prompt.
    pub fn is_as_at_a_prompt(&self) -> bool {
        let modes = tcgetattr(&self.keyboard).expect("its modes").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// Waits until the program has ended, and leaves the terminal open for further checks.
    pub fn wait(&mut self) -> &mut Self {
        self.child.wait().expect("the program ends");
        self
    }

    /// Sends a signal to the program.
    pub fn signal(&mut self, signal: Signal) -> &mut Self {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        self
    }

    /// Waits for the program's end. The stderr of the result is what the terminal showed, with plain newlines.
    pub fn end(mut self) -> Ran {
        let status = self.child.wait().expect("the program ends");
        let stdout = self.result.join().expect("its stdout");
        self.reader.join().expect("its screen");
        let screen = self.screen.0.lock().expect("the screen");
        let mut ran = Ran::of(status, &stdout, &screen.shown);
        ran.stderr = ran.stderr.replace("\r\n", "\n");
        ran
    }
}

fn screen_lines(emulator: &vt100::Parser) -> Vec<String> {
    let (_, columns) = emulator.screen().size();
    let rows = emulator.screen().rows(0, columns.get()).map(|row| row.trim_end().to_owned());
    let mut lines: Vec<String> = rows.collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

fn not_zero(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a terminal has columns and lines")
}
