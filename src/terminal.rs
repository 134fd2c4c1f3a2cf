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
