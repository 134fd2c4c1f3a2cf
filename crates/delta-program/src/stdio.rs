//! Output on stdout and stderr. A reader that has gone away (`| head`) is not an error. Any other failed write to stdout is
//! remembered, and [`finish_output`] makes the program report it and fail: a script must not take missing output for the
//! result.

use anstream::adapter::strip_str;
use delta_base::durable::LogFile;
use delta_base::terminal;
use delta_base::terminal_text::{escape_json_controls, strip_terminal_controls};
use delta_base::text::text_width::display_width;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// The first failed write to stdout that is not reported yet.
static UNREPORTED_FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// The exit code of a program that is about to end with `code`: 1 with an error on stderr if output is missing.
pub fn finish_output(code: ExitCode) -> ExitCode {
    finish_output_or(code, ExitCode::FAILURE)
}

/// As [`finish_output`], with the exit code `failed` in place of 1.
pub fn finish_output_or(code: ExitCode, failed: ExitCode) -> ExitCode {
    let failure = UNREPORTED_FAILURE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(error) = failure else { return code };
    print_error_line(&format!("error: could not write to stdout: {error}"));
    failed
}

/// Remembers a failed write to stdout for [`finish_output`].
pub fn remember_write_failure(error: io::Error) {
    if error.kind() != io::ErrorKind::BrokenPipe {
        let mut failure = UNREPORTED_FAILURE.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
    }
}

/// Prints `line` on stdout, and then closes what connects this process with its caller: there is no input, stdout leads nowhere,
/// and errors are appended to `log`.
///
/// # Errors
/// A stream could not be replaced.
pub fn leave_caller(line: &str, log: &LogFile) -> io::Result<()> {
    print_text(line);
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(log.fd())?)
}

/// Prints text on stdout, on a terminal without control characters. Returns false when it could not be written.
pub fn print_text(text: &str) -> bool {
    print_or_remember(&clean_for_terminal(text, strip_terminal_controls))
}

/// Prints text with styles on stdout; without them where there is no terminal or the user wants none. The text must have
/// no other control characters. Returns false when it could not be written.
pub fn print_styled(text: &str) -> bool {
    let choice = anstream::AutoStream::choice(&io::stdout());
    if choice == anstream::ColorChoice::Never {
        return print_or_remember(&anstream::adapter::strip_str(text).to_string());
    }
    print_or_remember(text)
}

/// Prints text on stdout as [`print_text`] does; at a terminal with colours, as `paint` shows each line.
pub fn print_painted(text: &str, mut paint: impl FnMut(&str) -> String) -> bool {
    if anstream::AutoStream::choice(&io::stdout()) == anstream::ColorChoice::Never {
        return print_text(text);
    }
    let text = clean_for_terminal(text, strip_terminal_controls);
    let painted: String = text
        .split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => paint(line) + "\n",
            None => paint(line),
        })
        .collect();
    print_or_remember(&painted)
}

/// Prints lines of JSON on stdout, on a terminal with escapes for control characters. Returns false when it could
/// not be written.
pub fn print_json(text: &str) -> bool {
    print_or_remember(&clean_for_terminal(text, escape_json_controls))
}

/// Prints the result on stdout, on a terminal without control characters.
///
/// # Errors
/// Writing failed for another reason than a closed pipe: a script must not take missing output for the result.
pub fn print_result(text: &str) -> io::Result<()> {
    ignore_closed_pipe(print_unchanged(&clean_for_terminal(text, strip_terminal_controls)))
}

/// Prints a result that is lines of JSON, on a terminal with escapes for control characters.
///
/// # Errors
/// As [`print_result`].
pub fn print_json_result(text: &str) -> io::Result<()> {
    ignore_closed_pipe(print_unchanged(&clean_for_terminal(text, escape_json_controls)))
}

fn clean_for_terminal(text: &str, clean: fn(&str) -> String) -> Cow<'_, str> {
    if terminal::is_stdout_terminal() { Cow::Owned(clean(text)) } else { Cow::Borrowed(text) }
}

fn print_unchanged(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn print_or_remember(text: &str) -> bool {
    let printed = print_unchanged(text);
    let is_printed = printed.is_ok();
    let _ = printed.map_err(remember_write_failure);
    is_printed
}

/// The caller reports the failure, also of the output before.
fn ignore_closed_pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            UNREPORTED_FAILURE.lock().unwrap_or_else(PoisonError::into_inner).take();
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Prints an error of clap, the help or the version, without control characters of the arguments that an error quotes.
pub fn print_clap_message(message: &clap::Error) {
    let mut arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let is_safe = arguments.all(|argument| strip_terminal_controls(&argument) == argument);
    if message.use_stderr() && !is_safe {
        // The styles of clap are sequences like those in an argument.
        return print_error_line(message.render().to_string().trim_end());
    }
    let printed = message.print();
    if !message.use_stderr() {
        let _ = printed.and_then(|()| io::stdout().flush()).map_err(remember_write_failure);
    }
}

/// Prints a line on stderr without control characters: it may quote what an agent wrote.
pub fn print_error_line(line: &str) {
    let line = strip_terminal_controls(line);
    // One write, so that lines of processes that share a terminal do not mix.
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Prints a text with control sequences of this program on stderr, which is a terminal.
pub fn print_error_styled(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints a text, which may have styles, in place of `old`, the last one at the terminal on stdout. Returns false when it could
/// not be written.
pub fn print_replacing(old: &str, new: &str, width: usize) -> bool {
    let has_styles = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    let new = if has_styles { new.to_owned() } else { strip_str(new).to_string() };
    print_or_remember(&replacing_text(old, &new, width))
}

/// Whether stdout is a pipe whose reader has gone away.
pub fn is_stdout_abandoned() -> bool {
    let mut stdout = [PollFd::from_borrowed_fd(rustix::stdio::stdout(), PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut stdout, Some(&now)).is_ok() && stdout[0].revents().contains(PollFlags::ERR)
}

/// What a terminal of `width` columns replaces the lines of `old` with the ones of `new` for.
pub fn replacing_text(old: &str, new: &str, width: usize) -> String {
    let rows = count_rows(old, width.max(1));
    if rows == 0 {
        return new.to_owned();
    }
    // Back to the first line; each line then clears the rest of the old one.
    let body = new.replace('\n', "\x1b[K\n");
    format!("\x1b[{rows}A\r{body}\x1b[J")
}

/// How many rows of the terminal a text takes: a command that is wider than the terminal takes several.
fn count_rows(text: &str, width: usize) -> usize {
    let text = strip_str(text).to_string();
    text.lines().map(|line| display_width(line).div_ceil(width).max(1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_replaces_all_rows_of_the_one_before() {
        assert_eq!(replacing_text("", "a\n", 10), "a\n");
        let long = format!("a\n{}\n\n", "b".repeat(21));
        assert_eq!(replacing_text(&long, "c\n", 10), "\x1b[5A\rc\x1b[K\n\x1b[J");
        assert_eq!(replacing_text("a\n", "", 10), "\x1b[1A\r\x1b[J");
    }
}
