//! Writing to stdout and stderr without ever failing for it: a reader that has gone away (`| head`) is no error.

use crate::terminal;
use crate::text::printable;
use std::borrow::Cow;
use std::io::{self, Write};

/// Writes `text` to stdout, to a terminal without what could steer it; false when nobody reads any more.
pub fn write(text: &str) -> bool {
    let text = match terminal::shows_result() {
        true => Cow::Owned(printable(text)),
        false => Cow::Borrowed(text),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}

/// Writes the result to stdout, all there is to say there.
///
/// # Errors
/// It could not be written, and not because nobody reads it: a script that goes on would take nothing for the result.
pub fn write_result(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Writes a line to stderr, without what could steer a terminal: what is refused may be what the agent wrote.
pub fn complain(line: &str) {
    let line = printable(line);
    // In one write, so that the lines of processes that share a terminal do not mix.
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}
