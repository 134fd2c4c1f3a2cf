//! The terminal: detection, size, raw mode, and prompts to the user.

use crate::signal::{self, CancelToken, to_timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcgetwinsize, tcsetattr,
};
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

pub mod input_line;
mod key_decoder;
pub mod keyboard;
pub mod line_editor;

/// Where prompts read, since the first one.
static PROMPT_KEYBOARD: OnceLock<KeyboardSource> = OnceLock::new();
/// The modes of a prompt without echo, since the first one.
static HIDDEN_MODES: OnceLock<Termios> = OnceLock::new();
/// The terminal and its modes before the first change by a prompt, and how many changes there are.
static LINE_MODES: OnceLock<(KeyboardSource, Termios)> = OnceLock::new();
static CHANGES: AtomicU32 = AtomicU32::new(0);
/// Whether a prompt hides what is typed.
static IS_INPUT_HIDDEN: AtomicBool = AtomicBool::new(false);
/// Whether this process was continued in the foreground since the last prompt was written.
static WAS_CONTINUED: AtomicBool = AtomicBool::new(false);

/// How long a process whose terminal was closed waits for its SIGHUP.
const HANG_UP_SIGNAL_WAIT: Duration = Duration::from_secs(1);
/// The longest pause within what is pasted.
const PASTE_PAUSE: Duration = Duration::from_millis(50);
/// The most bytes of a line, without its end, that Linux takes from a terminal (N_TTY_BUF_SIZE in drivers/tty/n_tty.c). It drops
/// the others.
const MAX_TYPED_LINE_BYTES: usize = 4095;
/// The most bytes of a text that is pasted.
const MAX_PASTED_BYTES: usize = 1 << 20;
/// Ctrl-D, and what the kernel has kept of it.
const END_OF_INPUT: [u8; 2] = [4, 0];

/// Whether the user can answer a prompt on stdin: stdin and stderr are terminals.
pub fn can_prompt() -> bool {
    io::stdin().is_terminal() && is_stderr_terminal()
}

/// Whether the user can answer a prompt at all: on stdin, or on the controlling terminal when stdin is a file or a pipe.
/// For prompts that the user has requested.
pub fn can_prompt_person() -> bool {
    is_stderr_terminal() && (io::stdin().is_terminal() || controlling_terminal().is_some())
}

/// Whether the process may read from the terminal on stdin, as a job in the background of a shell may not.
pub fn is_in_foreground() -> bool {
    tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Renews what a shell has changed while this process was stopped: it echoes, and its own prompt is the last one.
/// Async-signal-safe.
pub(crate) fn renew_prompt() {
    let Some(keyboard) = PROMPT_KEYBOARD.get() else { return };
    if tcgetpgrp(keyboard.fd()) != Ok(getpgrp()) {
        return;
    }
    if IS_INPUT_HIDDEN.load(Ordering::SeqCst)
        && let Some(modes) = HIDDEN_MODES.get()
    {
        let _ = tcsetattr(keyboard.fd(), OptionalActions::Now, modes);
    }
    WAS_CONTINUED.store(true, Ordering::SeqCst);
}

/// The process's terminal, even when stdin is redirected.
fn controlling_terminal() -> Option<&'static File> {
    static TERMINAL: OnceLock<Option<File>> = OnceLock::new();
    TERMINAL.get_or_init(|| File::open("/dev/tty").ok()).as_ref()
}

/// Where the user's input comes from.
#[derive(Clone, Copy)]
enum KeyboardSource {
    Stdin,
    Terminal(&'static File),
}

impl KeyboardSource {
    /// Prefers stdin when it is a terminal.
    fn find() -> Self {
        if io::stdin().is_terminal() {
            return Self::Stdin;
        }
        controlling_terminal().map_or(Self::Stdin, Self::Terminal)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            // stdin stays open as long as the process lives.
            Self::Stdin => rustix::stdio::stdin(),
            Self::Terminal(file) => file.as_fd(),
        }
    }

    /// Reads a line with its line end; empty at the end of input.
    fn read_line(self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        match self {
            Self::Stdin => {
                io::stdin().lock().read_until(b'\n', &mut line)?;
            }
            // Byte by byte, so that input typed ahead is left for the next prompt.
            Self::Terminal(mut file) => {
                let mut byte = [0];
                while !line.ends_with(b"\n") && file.read(&mut byte)? > 0 {
                    line.extend(byte);
                }
            }
        }
        Ok(line)
    }
}

/// Whether stderr is a terminal.
pub fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether stdin is a terminal.
pub fn is_stdin_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Whether stdout is a terminal.
pub fn is_stdout_terminal() -> bool {
    io::stdout().is_terminal()
}

/// The columns of the terminal on stderr; `None` without a terminal, or when it reports 0.
pub fn stderr_width() -> Option<usize> {
    let size = tcgetwinsize(io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The size of the terminal on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StderrSize {
    /// The number of columns.
    pub columns: usize,
    /// The number of lines.
    pub lines: usize,
}

/// The size of the terminal on stderr; the usual size where it reports none.
pub fn stderr_size() -> StderrSize {
    let (columns, lines) =
        tcgetwinsize(io::stderr()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    let or_usual = |count: u16, usual| if count == 0 { usual } else { usize::from(count) };
    StderrSize { columns: or_usual(columns, 80), lines: or_usual(lines, 24) }
}

/// Writes `prompt` to stderr and reads a line from the user, without its line end.
///
/// # Errors
/// The input ended (silence is never an answer), it is not UTF-8, or cancellation was requested while waiting.
pub fn prompt_line(prompt: &str, cancel: &CancelToken) -> io::Result<String> {
    decode_typed(prompt_bytes(prompt, cancel, KeyboardSource::read_line)?)
}

fn decode_typed(bytes: Vec<u8>) -> io::Result<String> {
    let text = String::from_utf8(bytes);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the text is not UTF-8"))
}

fn prompt_bytes(
    prompt: &str,
    cancel: &CancelToken,
    read: impl FnOnce(KeyboardSource) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    let _shell_modes = keyboard::ShellModes::enter();
    PROMPT_KEYBOARD.get_or_init(|| {
        // Without the handler, a prompt is not renewed.
        let _ = cancel.renew_prompt_on_continue();
        KeyboardSource::find()
    });
    WAS_CONTINUED.store(false, Ordering::SeqCst);
    let answer = write_prompt(prompt).and_then(|()| read_typed(prompt, cancel, read));
    let Err(error) = answer else { return answer };
    // The next message starts on a new line. Where the terminal is gone, there is none.
    let _ = write_prompt("\n");
    let is_closed = error.raw_os_error() == Some(Errno::IO.raw_os_error())
        || error.kind() == io::ErrorKind::UnexpectedEof && is_hung_up(KeyboardSource::find());
    Err(if is_closed { hang_up_error(cancel) } else { error })
}

fn is_hung_up(keyboard: KeyboardSource) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(keyboard.fd(), PollFlags::IN)];
    let is_polled = poll(&mut fds, Some(&to_timespec(Duration::ZERO))).is_ok();
    is_polled && fds[0].revents().contains(PollFlags::HUP)
}

/// The error of a terminal that was closed. The kernel reports it to a read before the SIGHUP arrives.
fn hang_up_error(cancel: &CancelToken) -> io::Error {
    if cancel.wait(HANG_UP_SIGNAL_WAIT) {
        return io::Error::new(io::ErrorKind::Interrupted, "interrupted");
    }
    io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal was closed")
}

fn read_typed(
    prompt: &str,
    cancel: &CancelToken,
    read: impl FnOnce(KeyboardSource) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    let keyboard = KeyboardSource::find();
    wait_for_input(prompt, keyboard, cancel)?;
    let answer = read(keyboard)?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "end of input"));
    }
    Ok(without_line_ends(answer))
}

fn without_line_ends(mut text: Vec<u8>) -> Vec<u8> {
    let last = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    text.truncate(last.map_or(0, |last| last + 1));
    text
}

/// Like [`prompt_line`], with the other lines of what was pasted at once: no later prompt gets them.
///
/// # Errors
/// As [`prompt_line`]; `InvalidData` if the terminal may have cut the text, it is longer than 1 MiB, or not UTF-8.
pub fn prompt_text(prompt: &str, cancel: &CancelToken) -> io::Result<String> {
    let text = prompt_bytes(prompt, cancel, |keyboard| match PasteReader::enable(keyboard) {
        Some(paste) => paste.read(cancel),
        None => keyboard.read_line(),
    })?;
    let invalid = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    let first_line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first_line.len() >= MAX_TYPED_LINE_BYTES {
        return invalid(format!("the terminal cuts a line at {MAX_TYPED_LINE_BYTES} bytes"));
    }
    if text.len() > MAX_PASTED_BYTES {
        return invalid("the text is longer than 1 MiB".to_owned());
    }
    decode_typed(text)
}

/// The terminal without lines, which has a line: what follows that without a longer pause is read with it, also if it does not
/// end with a newline. As long as the line is not read, the kernel drops nothing.
struct PasteReader {
    keyboard: KeyboardSource,
    line_modes: Termios,
}

impl PasteReader {
    fn enable(keyboard: KeyboardSource) -> Option<Self> {
        let line_modes = tcgetattr(keyboard.fd()).ok()?;
        let mut modes = line_modes.clone();
        modes.local_modes.remove(LocalModes::ICANON);
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        set_prompt_modes(keyboard, OptionalActions::Now, &line_modes, &modes).ok()?;
        Some(Self { keyboard, line_modes })
    }

    fn read(&self, cancel: &CancelToken) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut bytes = [0; MAX_TYPED_LINE_BYTES];
        loop {
            if cancel.is_requested() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
            }
            let mut fds = [
                PollFd::from_borrowed_fd(self.keyboard.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN),
            ];
            match poll(&mut fds, Some(&to_timespec(PASTE_PAUSE))) {
                Err(Errno::INTR) => continue,
                Ok(1..) if fds[0].revents().is_empty() => {
                    cancel.drain();
                    continue;
                }
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
            match rustix::io::read(self.keyboard.fd(), &mut bytes) {
                // What is too long is read to its end, and not kept.
                Ok(count @ 1..) if text.len() <= MAX_PASTED_BYTES => {
                    text.extend(&bytes[..count]);
                }
                Ok(1..) | Err(Errno::INTR) => {}
                Ok(0) | Err(_) => break,
            }
        }
        if let Some(length) = text.iter().position(|byte| END_OF_INPUT.contains(byte)) {
            text.truncate(length);
        }
        Ok(text)
    }
}

impl Drop for PasteReader {
    fn drop(&mut self) {
        restore_prompt_modes(self.keyboard, &self.line_modes);
    }
}

/// Like [`prompt_text`], without echoing the input.
pub fn prompt_hidden_text(prompt: &str, cancel: &CancelToken) -> io::Result<String> {
    let _shell_modes = keyboard::ShellModes::enter();
    let hidden = HiddenInput::enable()?;
    let answer = prompt_text(prompt, cancel);
    drop(hidden);
    if answer.is_ok() {
        // The user's Enter was not echoed either.
        write_prompt("\n")?;
    }
    answer
}

/// Discards what the user has typed and no prompt has read, so that it does not answer the next one.
pub fn discard_input() {
    // Without a terminal there is nothing to discard.
    let _ = tcflush(KeyboardSource::find().fd(), QueueSelector::IFlush);
}

fn wait_for_input(prompt: &str, keyboard: KeyboardSource, cancel: &CancelToken) -> io::Result<()> {
    loop {
        if cancel.is_requested() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let mut fds = [
            PollFd::from_borrowed_fd(keyboard.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN),
        ];
        // After an interrupted poll, the loop checks the token again.
        let _ = poll(&mut fds, None);
        if WAS_CONTINUED.swap(false, Ordering::SeqCst) {
            write_prompt(prompt)?;
        }
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        cancel.drain();
    }
}

fn write_prompt(text: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}

/// Whether both stdin and stdout are terminals.
pub fn is_stdin_and_stdout_terminal() -> bool {
    io::stdin().is_terminal() && is_stdout_terminal()
}

/// The columns and rows of the terminal on stdout; `None` without a terminal, or when it reports 0.
pub fn stdout_size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Puts the terminal in raw mode (every key arrives at once and unchanged) until it is dropped.
#[derive(Debug)]
pub struct RawMode {
    saved_modes: Termios,
    restore_sequence: &'static [u8],
}

impl RawMode {
    /// Enables raw mode; `restore_sequence` is written to the terminal when it ends.
    pub fn enable(restore_sequence: &'static [u8]) -> io::Result<Self> {
        let saved_modes = tcgetattr(io::stdin())?;
        let mut raw = saved_modes.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { saved_modes, restore_sequence })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(self.restore_sequence).and_then(|()| stdout.flush());
        // Input meant for the session must not reach the shell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.saved_modes);
    }
}

/// Sets `modes`; the modes of before, which were `earlier`, return however the process ends, except by SIGKILL.
fn set_prompt_modes(
    keyboard: KeyboardSource,
    actions: OptionalActions,
    earlier: &Termios,
    modes: &Termios,
) -> io::Result<()> {
    LINE_MODES.get_or_init(|| {
        // Without the handler, SIGQUIT leaves the terminal as it is.
        let _ = signal::restore_terminal_on_quit();
        (keyboard, earlier.clone())
    });
    CHANGES.fetch_add(1, Ordering::SeqCst);
    tcsetattr(keyboard.fd(), actions, modes).inspect_err(|_| {
        CHANGES.fetch_sub(1, Ordering::SeqCst);
    })?;
    Ok(())
}

fn restore_prompt_modes(keyboard: KeyboardSource, earlier: &Termios) {
    let _ = tcsetattr(keyboard.fd(), OptionalActions::Now, earlier);
    CHANGES.fetch_sub(1, Ordering::SeqCst);
}

/// Restores the modes of lines if a prompt has changed them. Async-signal-safe.
fn restore_prompt() {
    let changed = LINE_MODES.get().filter(|_| CHANGES.load(Ordering::SeqCst) > 0);
    if let Some((keyboard, modes)) = changed
        && tcgetpgrp(keyboard.fd()) == Ok(getpgrp())
    {
        let _ = tcsetattr(keyboard.fd(), OptionalActions::Now, modes);
    }
}

/// Turns off the echo of the terminal until it is dropped.
struct HiddenInput {
    keyboard: KeyboardSource,
    saved_modes: Termios,
}

impl HiddenInput {
    fn enable() -> io::Result<Self> {
        let keyboard = KeyboardSource::find();
        let saved_modes = tcgetattr(keyboard.fd())?;
        let mut silent = saved_modes.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        set_prompt_modes(keyboard, OptionalActions::Flush, &saved_modes, &silent)?;
        let _ = HIDDEN_MODES.set(silent);
        IS_INPUT_HIDDEN.store(true, Ordering::SeqCst);
        Ok(Self { keyboard, saved_modes })
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        IS_INPUT_HIDDEN.store(false, Ordering::SeqCst);
        restore_prompt_modes(self.keyboard, &self.saved_modes);
    }
}
