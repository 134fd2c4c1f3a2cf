//! A person at a terminal: a program on a real pseudo-terminal, what it shows, and what is typed.

use crate::running::Running;
use crate::sandbox::{Delta, Ran};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A test that waits longer for a text has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running program whose stdin and stderr are a terminal; its stdout is a pipe, so that the result stays apart.
pub struct Terminal {
    child: Running,
    keyboard: File,
    screen: Arc<(Mutex<Screen>, Condvar)>,
    reader: JoinHandle<()>,
    result: JoinHandle<Vec<u8>>,
}

#[derive(Default)]
struct Screen {
    /// Bytes, for what is read at once may end within a character.
    shown: Vec<u8>,
    /// How much of it a test has waited for already.
    seen: usize,
    ended: bool,
}

impl Delta {
    /// Starts it at a terminal of 100 columns.
    pub fn at_terminal(self) -> Terminal {
        self.at_terminal_with(false)
    }

    /// The same, with its stdout at the terminal too.
    pub fn wholly_at_terminal(self) -> Terminal {
        self.at_terminal_with(true)
    }

    fn at_terminal_with(mut self, wholly: bool) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a pseudo-terminal");
        grantpt(&master).expect("grantpt");
        unlockpt(&master).expect("unlockpt");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let open = || {
            // No other test's child may hold it open, or its end would never be seen.
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            File::from(rustix::fs::open(&name, flags, Mode::empty()).expect("the terminal"))
        };
        resize(&master, 100, 40);
        let command = self.command();
        command.env("TERM", "xterm-256color");
        let stdout = if wholly { open().into() } else { Stdio::piped() };
        command.stdin(open()).stderr(open()).stdout(stdout);
        // SAFETY: both are plain system calls, async-signal-safe, on the child's own descriptors.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let mut child = Running::start(command);
        // The command holds the terminal open, and its end would never be seen.
        drop(self);
        let stdout = child.stdout.take();
        let result = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.map(|mut stdout| stdout.read_to_end(&mut bytes));
            bytes
        });
        let keyboard = File::from(master);
        let screen = Arc::new((Mutex::new(Screen::default()), Condvar::new()));
        let reader = std::thread::spawn({
            let (source, screen) = (keyboard.try_clone().expect("a clone"), Arc::clone(&screen));
            move || read(source, &screen)
        });
        Terminal { child, keyboard, screen, reader, result }
    }
}

fn resize(master: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("a size");
}

fn read(mut source: File, screen: &(Mutex<Screen>, Condvar)) {
    let mut buffer = [0; 4096];
    let mut failed = false;
    loop {
        match source.read(&mut buffer) {
            Ok(count @ 1..) => {
                failed = false;
                screen.0.lock().expect("the screen").shown.extend(&buffer[..count]);
                screen.1.notify_all();
            }
            // Reading fails when the last one who has the terminal open has gone. But the kernel looks for output first,
            // and then whether anybody has gone: what was written between the two is there still, and is found when it
            // looks again.
            _ if failed => break,
            _ => failed = true,
        }
    }
    screen.0.lock().expect("the screen").ended = true;
    screen.1.notify_all();
}

impl Terminal {
    /// Waits until `text` is shown, behind what was waited for before.
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
            let (next, wait) = changed.wait_timeout(screen, PATIENCE).expect("the screen");
            assert!(!wait.timed_out(), "{text:?} is not shown; shown:\n{shown}");
            screen = next;
        }
    }

    /// Types `text` as it is; `\n` is Enter, `\x04` the end of input, `\x03` an interruption.
    pub fn type_in(&mut self, text: &str) -> &mut Self {
        self.keyboard.write_all(text.as_bytes()).expect("the terminal takes it");
        self
    }

    /// Waits until what is typed is not shown.
    pub fn expect_hidden(&mut self) -> &mut Self {
        let echoes = |keyboard| {
            tcgetattr(keyboard).expect("its modes").local_modes.contains(LocalModes::ECHO)
        };
        let since = Instant::now();
        while echoes(&self.keyboard) {
            assert!(since.elapsed() < PATIENCE, "what is typed is still shown");
            std::thread::yield_now();
        }
        self
    }

    /// Gives the terminal another size.
    pub fn resize(&mut self, columns: u16, rows: u16) -> &mut Self {
        resize(&self.keyboard, columns, rows);
        self
    }

    /// Whether what is typed is shown and comes in lines, as at a shell's prompt.
    pub fn is_as_at_a_prompt(&self) -> bool {
        let modes = tcgetattr(&self.keyboard).expect("its modes").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// Waits until the program has ended, and leaves the terminal open to be looked at.
    pub fn wait(&mut self) -> &mut Self {
        self.child.wait().expect("the program ends");
        self
    }

    /// Sends the program a signal.
    pub fn signal(&mut self, signal: Signal) -> &mut Self {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        self
    }

    /// Waits for the program's end; what the terminal showed is its stderr, with plain newlines.
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
