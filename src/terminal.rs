//! The terminal: whether there is one, and asking a person.

use crate::signal::Cancel;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, BufRead, IsTerminal, Write};

/// Whether a person can be asked: stdin and stderr are a terminal.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && is_watched()
}

/// Whether a person watches stderr.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Whether the result goes to a terminal.
pub fn shows_result() -> bool {
    io::stdout().is_terminal()
}

/// The columns of the terminal that stderr is.
pub fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Shows `prompt` on stderr and reads a line from stdin, without its line end.
///
/// # Errors
/// End of input is an error, for silence is never an answer; so is the stop, as soon as it is asked for.
pub fn ask(prompt: &str, cancel: &Cancel) -> io::Result<String> {
    show(prompt)?;
    let answer = read_line(cancel);
    if answer.is_err() {
        // What is said next does not belong behind the prompt.
        show("\n")?;
    }
    answer
}

fn read_line(cancel: &Cancel) -> io::Result<String> {
    wait_for_line(cancel)?;
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "end of input"));
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// As [`ask`], without showing what is typed.
pub fn ask_hidden(prompt: &str, cancel: &Cancel) -> io::Result<String> {
    let hidden = Hidden::begin()?;
    let answer = ask(prompt, cancel);
    drop(hidden);
    if answer.is_ok() {
        // The person's Enter was not shown either.
        show("\n")?;
    }
    answer
}

fn wait_for_line(cancel: &Cancel) -> io::Result<()> {
    let stdin = io::stdin();
    loop {
        if cancel.requested() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let mut fds = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN),
        ];
        // An interrupted poll only means to look again.
        let _ = poll(&mut fds, None);
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        cancel.drain();
    }
}

fn show(text: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}

/// Whether a person's terminal is both stdin and stdout.
pub fn is_at_person() -> bool {
    io::stdin().is_terminal() && shows_result()
}

/// The columns and rows of the terminal that stdout is.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// A terminal that hands on every key as it is pressed and changes nothing, until this is dropped.
#[derive(Debug)]
pub struct Raw {
    before: Termios,
    restored: &'static [u8],
}

impl Raw {
    /// Begins it; `restored` is what is written to the terminal at the end.
    pub fn begin(restored: &'static [u8]) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before, restored })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(self.restored).and_then(|()| stdout.flush());
        // What was typed too late for the session is not for the shell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// A terminal that does not show what is typed, until it is dropped.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
