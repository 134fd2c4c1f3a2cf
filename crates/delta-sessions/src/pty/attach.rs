//! The commands that do not print JSON: `attach` for a person, and output that is followed.

use super::holder::poll_flags;
use super::protocol::{HolderConnection, HolderReply, HolderRequest};
use super::screen::TerminalSize;
use super::{HOLDER_TIMEOUT, MAX_TERMINAL_DIMENSION, PtyError, PtyResult, PtySessions, store};
use crate::system_error;
use delta_base::id::SessionId;
use delta_base::signal::to_timespec;
use delta_base::terminal::{self, RawMode};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Control and `]`.
const DETACH_KEY: u8 = 0x1d;
/// How long a person waits for a holder that does not respond to a detach.
const DETACH_TIMEOUT: Duration = Duration::from_secs(1);
/// How much input is read at once.
const INPUT_BUFFER_BYTES: usize = 16 * 1024;
/// Resets what may have changed about a terminal: mouse, paste, keypad, colours, cursor, alternate screen, title.
const RESTORE_TERMINAL: &[u8] = b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\x1b[r\x1b[0m\x1b[?25h\x1b[0 q\x1b[?1049l\x1b[23;0t";
/// Saves the title and switches to an empty alternate screen.
const PREPARE_TERMINAL: &[u8] = b"\x1b[22;0t\x1b[?1049h\x1b[2J\x1b[H";

/// How `attach` or following ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PtyStreamEnd {
    /// The program keeps running.
    Detached,
    /// The session ended, with this exit code as far as it is known.
    Ended(Option<i32>),
}

impl PtySessions {
    /// Connects the terminal on stdin and stdout to a session, until the person presses Control and `]`, the terminal is
    /// detached, or the program ends. Restores the terminal afterwards.
    pub(crate) fn attach(&self, id: &SessionId) -> PtyResult<PtyStreamEnd> {
        if !terminal::is_stdin_and_stdout_terminal() {
            return Err(PtyError::NoTerminal);
        }
        let mut connection = self.connect(id)?;
        let size = caller_terminal_size();
        connection.push_frame(&HolderRequest::Attach(size), &[]);
        // A refusal must come before anything changes.
        let deadline = Instant::now().checked_add(HOLDER_TIMEOUT);
        let painted = match self.receive_reply(&mut connection, deadline)? {
            Some((HolderReply::Output, painted)) => painted,
            // A holder refuses to attach for this reason only.
            Some((HolderReply::Refused(_), _)) => return Err(PtyError::OtherTerminalAttached),
            Some(_) => return Err(PtyError::HolderUnresponsive),
            None => return Err(self.holder_gone_error(id)),
        };
        self.cancel.wake_on_resize().map_err(system_error("prepare for signals"))?;
        let raw_mode =
            RawMode::enable(RESTORE_TERMINAL).map_err(system_error("prepare the terminal"))?;
        write_to_terminal(PREPARE_TERMINAL)?;
        write_to_terminal(format!("\x1b]2;{id}: press Ctrl-] to detach\x07").as_bytes())?;
        write_to_terminal(&painted)?;
        let end = self.relay_terminal(&mut connection, size);
        drop(raw_mode);
        end
    }

    fn relay_terminal(
        &self,
        connection: &mut HolderConnection,
        mut size: TerminalSize,
    ) -> PtyResult<PtyStreamEnd> {
        let stdin = io::stdin();
        let mut buffer = vec![0; INPUT_BUFFER_BYTES];
        // Set once the person has asked to detach.
        let mut detach_deadline: Option<Instant> = None;
        loop {
            connection.receive();
            while let Some((reply, output)) = connection.take_frame() {
                match reply {
                    HolderReply::Output => write_to_terminal(&output)?,
                    HolderReply::Closed { session_ended: false, .. } => {
                        return Ok(PtyStreamEnd::Detached);
                    }
                    HolderReply::Closed { exit_code, .. } => {
                        return Ok(PtyStreamEnd::Ended(exit_code));
                    }
                    HolderReply::Refused(reason) => return Err(PtyError::Refused(reason)),
                    HolderReply::Done(_) => {}
                }
            }
            if connection.is_closed() {
                return Ok(PtyStreamEnd::Ended(None));
            }
            match detach_deadline {
                Some(deadline) if Instant::now() >= deadline => return Ok(PtyStreamEnd::Detached),
                None if self.cancel.is_requested() => {
                    detach_deadline = Some(request_detach(connection));
                }
                _ => {}
            }
            let current_size = caller_terminal_size();
            if size != current_size {
                size = current_size;
                connection.push_frame(&HolderRequest::Resized(size), &[]);
            }
            connection.send();
            if self.wait_for_input(connection, detach_deadline) {
                let length = rustix::io::read(&stdin, &mut buffer[..]).unwrap_or(0);
                let detach_at = buffer[..length].iter().position(|byte| *byte == DETACH_KEY);
                let typed = &buffer[..detach_at.unwrap_or(length)];
                connection.push_frame(&HolderRequest::Write, typed);
                if detach_at.is_some() || length == 0 {
                    detach_deadline = Some(request_detach(connection));
                }
            }
        }
    }

    /// Waits for an event. Returns whether something was typed; once a detach was requested, input is not read.
    fn wait_for_input(
        &self,
        connection: &HolderConnection,
        detach_deadline: Option<Instant>,
    ) -> bool {
        let stdin = io::stdin();
        let flags = poll_flags(true, connection.unsent_bytes() > 0);
        let mut fds = vec![
            PollFd::from_borrowed_fd(connection.fd(), flags),
            PollFd::from_borrowed_fd(self.cancel.fd(), PollFlags::IN),
        ];
        if detach_deadline.is_none() {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let timeout = detach_deadline.map(|at| at.saturating_duration_since(Instant::now()));
        // After an interrupted poll the caller just looks again.
        let polled = poll(&mut fds, timeout.map(to_timespec).as_ref());
        self.cancel.drain();
        polled.is_ok() && fds.get(2).is_some_and(|fd| !fd.revents().is_empty())
    }

    /// Passes the output of a session to `write`, from its last `lines` or the first unread byte. Stops when the session ends,
    /// after `timeout`, or when `write` returns false.
    pub(crate) fn follow(
        &self,
        id: &SessionId,
        raw: bool,
        lines: Option<usize>,
        timeout: Option<Duration>,
        mut write: impl FnMut(&[u8]) -> bool,
    ) -> PtyResult<PtyStreamEnd> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut connection = match self.connect(id) {
            Ok(connection) => connection,
            Err(PtyError::Ended(_) | PtyError::Terminated(_)) => {
                let dir = store::find_pty_session_dir(&self.sessions.cwd, id)?;
                let (output, _) = store::PtyOutput::restore(&dir)?;
                let ring = output.ring(raw);
                write(&ring.bytes_from(ring.follow_position(lines)));
                return Ok(PtyStreamEnd::Ended(store::read_pty_metadata(&dir)?.exit_code));
            }
            Err(error) => return Err(error),
        };
        connection.push_frame(&HolderRequest::Follow { raw, lines }, &[]);
        loop {
            match self.receive_reply(&mut connection, deadline) {
                Ok(Some((HolderReply::Output, output))) => {
                    if !write(&output) {
                        return Ok(PtyStreamEnd::Detached);
                    }
                }
                Ok(Some((HolderReply::Closed { exit_code, .. }, _))) => {
                    return Ok(PtyStreamEnd::Ended(exit_code));
                }
                Ok(Some((HolderReply::Refused(reason), _))) => {
                    return Err(PtyError::Refused(reason));
                }
                Ok(Some((HolderReply::Done(_), _))) => {}
                Ok(None) => return Err(self.holder_gone_error(id)),
                // The timeout of the caller, not of the holder.
                Err(PtyError::HolderUnresponsive) => return Ok(PtyStreamEnd::Detached),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Asks the holder to detach this terminal. Returns when to stop waiting for it.
fn request_detach(connection: &mut HolderConnection) -> Instant {
    connection.push_frame(&HolderRequest::Detach, &[]);
    Instant::now() + DETACH_TIMEOUT
}

/// The size of the person's terminal.
fn caller_terminal_size() -> TerminalSize {
    let default = TerminalSize::DEFAULT;
    let Some((cols, rows)) = terminal::stdout_size() else { return default };
    TerminalSize {
        cols: cols.min(MAX_TERMINAL_DIMENSION).try_into().unwrap_or(default.cols),
        rows: rows.min(MAX_TERMINAL_DIMENSION).try_into().unwrap_or(default.rows),
    }
}

fn write_to_terminal(output: &[u8]) -> PtyResult<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(output).and_then(|()| stdout.flush());
    Ok(written.map_err(system_error("write to the terminal"))?)
}
