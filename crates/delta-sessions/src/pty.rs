//! Sessions of programs that need a terminal (experimental): a program on a pseudo-terminal, and a holder, a process that
//! keeps the terminal open between commands.
//!
//! This module is the side of the commands. Each finds the session's directory, sends a request to the holder, and prints
//! its reply. Once the program has ended, commands read the files that the session left.

mod attach;
mod client;
mod escape;
mod holder;
mod keys;
mod protocol;
mod report;
mod ring;
mod screen;
mod store;

pub(crate) use self::attach::PtyStreamEnd;
pub(crate) use self::escape::{EscapeError, unescape};
pub(crate) use self::holder::HolderOptions;
pub(crate) use self::protocol::{OutputForm, ReadQuery};
pub(crate) use self::screen::TerminalSize;
pub(crate) use self::store::PtyStatus;

use self::holder::{Holder, poll_flags};
use self::protocol::{HolderConnection, HolderReply, HolderRequest, MAX_INPUT_BYTES};
use self::report::{PtyStatusReport, WaitPattern};
use crate::cli::{PtyCommandName, report_json};
use crate::report::{
    SessionCleanupReport, SessionEndReport, SessionEntry, SessionStartReport, sort_entries,
};
use crate::store::{LOCK_POLL_INTERVAL, try_lock_session};
use crate::{Environment, SessionError, Sessions, system_error};
use delta_base::durable::{self, FileError};
use delta_base::id::SessionId;
use delta_base::random;
use delta_base::signal::{CancelToken, to_timespec};
use delta_process as process;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest number of columns or rows.
pub(crate) const MAX_TERMINAL_DIMENSION: u16 = 1000;
/// The value of `TERM` in a session.
const TERMINAL_TYPE: &str = "xterm-256color";
/// A holder that does not respond for this long is stopped or stuck.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(10);
/// The directory of a session whose start did not finish is removed after this time.
const UNFINISHED_MAX_AGE: Duration = Duration::from_secs(60);
/// What a holder prints once the session exists.
const READY_MESSAGE: &[u8] = b"ok\n";

/// The command that an error names.
const PTY: PtyCommandName = PtyCommandName;

/// Why a session command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PtyError {
    #[error(
        "`{0}` is not a session id: expected the `session_id` that `{PTY} start` printed, such as `sess_a1b2c3d4`"
    )]
    BadId(String),
    #[error("there is no session `{id}` in {}: sessions are found only in the directory where they were started (`{PTY} list`)", cwd.display())]
    NotFound { id: SessionId, cwd: PathBuf },
    #[error("the program of session `{0}` has ended: `{PTY} read {0}` prints its last output")]
    Ended(SessionId),
    #[error("session `{0}` has ended: start a new one with `{PTY} start`")]
    Terminated(SessionId),
    #[error(
        "the holder process of session `{0}` is gone, and the program with it: `{PTY} cleanup` removes the session"
    )]
    Dead(SessionId),
    #[error("the session in {} is damaged: {reason}; `{PTY} cleanup` removes it", dir.display())]
    Damaged { dir: PathBuf, reason: String },
    #[error("{} belongs to another user: remove it, or start sessions in another directory", .0.display())]
    WrongOwner(PathBuf),
    #[error(
        "the holder process of the session does not respond: `{PTY} list` shows the session's status"
    )]
    HolderUnresponsive,
    #[error("{0}")]
    Refused(String),
    #[error("another terminal is attached: `{PTY} detach` detaches it")]
    OtherTerminalAttached,
    #[error(transparent)]
    InvalidEscape(#[from] EscapeError),
    #[error("`{text}` is not a regular expression: {reason}")]
    InvalidRegex { text: String, reason: String },
    #[error("the text is longer than {MAX_INPUT_BYTES} bytes: write it in parts")]
    TooLong,
    #[error("missing text: pass it after the session id or on stdin")]
    MissingText,
    #[error(
        "stdin and stdout must be a terminal: without one, use `{PTY} read --screen` and `write`"
    )]
    NoTerminal,
    #[error("interrupted by a signal")]
    Interrupted,
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    File(#[from] FileError),
}

pub(crate) type PtyResult<T> = Result<T, PtyError>;

/// The sessions of a directory, for a caller with an environment.
#[derive(Debug)]
pub(crate) struct PtySessions {
    /// The directory that contains `.sessions-pty`, and the caller's environment.
    pub(crate) sessions: Sessions,
    /// The program that runs as a holder.
    pub(crate) holder_program: PathBuf,
    /// Ends every wait.
    pub(crate) cancel: CancelToken,
}

impl PtySessions {
    /// Starts a session in this directory, with this environment except for the LLM's key. Returns once the program runs.
    pub(crate) fn start(
        &self,
        command: &[String],
        size: TerminalSize,
    ) -> PtyResult<SessionStartReport<PtyStatus>> {
        let words = crate::split_program(command)?;
        let id = SessionId::new(random::random_bytes());
        let sessions_dir = store::ensure_pty_sessions_dir(&self.sessions.cwd)?;
        let unfinished = sessions_dir.join(format!(".{id}"));
        durable::ensure_private_dir(&unfinished)?;
        if let Err(error) = self.start_holder(&id, &unfinished, &words, size) {
            let _ = durable::remove_dir_all_no_follow(&unfinished);
            return Err(error);
        }
        Ok(SessionStartReport {
            session_id: id.to_string(),
            command: words.join(" "),
            work_dir: self.sessions.cwd.display().to_string(),
            status: PtyStatus::Active,
        })
    }

    fn start_holder(
        &self,
        id: &SessionId,
        dir: &Path,
        words: &[String],
        size: TerminalSize,
    ) -> PtyResult<()> {
        let TerminalSize { cols, rows } = size;
        let options = format!("holder {id} --cols {cols} --rows {rows} --");
        let arguments: Vec<String> =
            options.split(' ').map(str::to_owned).chain(words.iter().cloned()).collect();
        let env = self.program_environment(id);
        let mut stdout = process::start_detached(&self.holder_program, &arguments, &env, dir)
            .map_err(system_error("start the holder"))?;
        loop {
            let mut fds = [
                PollFd::new(&stdout, PollFlags::IN),
                PollFd::from_borrowed_fd(self.cancel.fd(), PollFlags::IN),
            ];
            // After an interrupted poll, look again.
            let _ = poll(&mut fds, None);
            if !fds[0].revents().is_empty() {
                break;
            }
            self.cancel.drain();
            if self.cancel.is_requested() {
                // A holder that cannot write its answer removes the session.
                return Err(PtyError::Interrupted);
            }
        }
        let mut answer = Vec::new();
        stdout.read_to_end(&mut answer).map_err(system_error("read the answer of the holder"))?;
        match answer.as_slice() {
            READY_MESSAGE => Ok(()),
            [] => Err(PtyError::HolderUnresponsive),
            error => {
                let reason = String::from_utf8_lossy(error).into_owned();
                Err(SessionError::NotStarted(reason).into())
            }
        }
    }

    /// The caller's environment, without the variables of a call or of a terminal.
    fn program_environment(&self, id: &SessionId) -> Environment {
        let mut environment = self.sessions.session_environment();
        environment.retain(|name, _| name != "COLUMNS" && name != "LINES");
        environment.insert("TERM".into(), TERMINAL_TYPE.into());
        environment.insert("DELTA_SESSION_ID".into(), id.as_str().into());
        environment
    }

    /// Types bytes.
    pub(crate) fn write(&self, id: &SessionId, bytes: &[u8]) -> PtyResult<String> {
        if bytes.len() > MAX_INPUT_BYTES {
            return Err(PtyError::TooLong);
        }
        self.send_request(id, &HolderRequest::Write, bytes, Duration::ZERO)
    }

    /// Types keys by name.
    pub(crate) fn write_keys(&self, id: &SessionId, names: Vec<String>) -> PtyResult<String> {
        for name in &names {
            keys::encode_key(name, false).map_err(|error| PtyError::Refused(error.to_string()))?;
        }
        self.send_request(id, &HolderRequest::Keys(names), &[], Duration::ZERO)
    }

    /// Reads output or the screen; of a session that has ended, what it left.
    pub(crate) fn read(&self, id: &SessionId, query: ReadQuery) -> PtyResult<String> {
        WaitPattern::from_query(&query)?;
        let timeout = Duration::from_millis(query.timeout_ms);
        match self.send_request(id, &HolderRequest::Read(query.clone()), &[], timeout) {
            Err(PtyError::Ended(_) | PtyError::Terminated(_)) => self.read_ended(id, &query),
            result => result,
        }
    }

    fn read_ended(&self, id: &SessionId, query: &ReadQuery) -> PtyResult<String> {
        let dir = store::find_pty_session_dir(&self.sessions.cwd, id)?;
        let deadline = Instant::now() + HOLDER_TIMEOUT;
        // Two concurrent readers must not read the same output.
        let _lock = loop {
            match try_lock_session(&dir) {
                Some(lock) => break lock,
                None if Instant::now() >= deadline => return Err(PtyError::HolderUnresponsive),
                None if self.cancel.wait(LOCK_POLL_INTERVAL) => return Err(PtyError::Interrupted),
                None => {}
            }
        };
        let metadata = store::read_pty_metadata(&dir)?;
        let (mut output, screen) = store::PtyOutput::restore(&dir)?;
        let pattern = WaitPattern::from_query(query)?;
        let is_unmatched = pattern.is_some_and(|pattern| match query.form {
            OutputForm::Screen => !pattern.matches_any(std::slice::from_ref(&screen.screen)),
            OutputForm::Text | OutputForm::Raw => !pattern.matches_any(&output.unread_texts()),
        });
        let report = output.read(query, || screen.clone(), &metadata, is_unmatched);
        output.save_positions(&dir, screen)?;
        Ok(report_json(&report)?)
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(
        &self,
        id: &SessionId,
        cols: Option<u16>,
        rows: Option<u16>,
    ) -> PtyResult<String> {
        self.send_request(id, &HolderRequest::Resize { cols, rows }, &[], Duration::ZERO)
    }

    /// Detaches the attached terminal.
    pub(crate) fn detach(&self, id: &SessionId) -> PtyResult<String> {
        self.send_request(id, &HolderRequest::Detach, &[], Duration::ZERO)
    }

    /// Reports the status of a session.
    pub(crate) fn status(&self, id: &SessionId) -> PtyResult<String> {
        match self.send_request(id, &HolderRequest::Status, &[], Duration::ZERO) {
            Err(PtyError::Ended(_) | PtyError::Terminated(_) | PtyError::Dead(_)) => {
                let dir = store::find_pty_session_dir(&self.sessions.cwd, id)?;
                let metadata = store::current_pty_metadata(&dir)?;
                let output = store::PtyOutput::restore(&dir);
                let unread_bytes = output.map_or(0, |(output, _)| output.text.unread_count());
                let report = PtyStatusReport { metadata, attached: false, unread_bytes };
                Ok(report_json(&report)?)
            }
            result => result,
        }
    }

    /// Ends a session with its program and all processes at its terminal. Ending it again changes nothing.
    pub(crate) fn end(&self, id: &SessionId) -> PtyResult<String> {
        match self.send_request(id, &HolderRequest::End, &[], HOLDER_TIMEOUT) {
            Err(PtyError::Ended(_) | PtyError::Terminated(_) | PtyError::Dead(_)) => {
                let dir = store::find_pty_session_dir(&self.sessions.cwd, id)?;
                let mut metadata = store::current_pty_metadata(&dir)?;
                if metadata.status != PtyStatus::Terminated {
                    metadata.status = PtyStatus::Terminated;
                    store::save_pty_metadata(&dir, &metadata)?;
                }
                let status = PtyStatus::Terminated;
                let report = SessionEndReport { status, session_id: id.to_string() };
                Ok(report_json(&report)?)
            }
            result => result,
        }
    }

    /// Removes the sessions whose program has ended; with `all` it ends the others first.
    pub(crate) fn cleanup(&self, all: bool) -> PtyResult<SessionCleanupReport> {
        let dirs = store::list_pty_session_dirs(&self.sessions.cwd)?;
        let mut removed = Vec::new();
        for dir in dirs.sessions {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let metadata = store::current_pty_metadata(&dir);
            match metadata {
                Ok(metadata) if all && metadata.status == PtyStatus::Active => {
                    self.end(&parse_pty_session_id(&name)?)?;
                }
                // Its holder may still run, although nothing but this command finds it.
                Err(_) => drop(parse_pty_session_id(&name).map(|id| self.end(&id))),
                Ok(_) => {}
            }
            // A session with a holder is not removed.
            let Some(_lock) = try_lock_session(&dir) else { continue };
            remove_session_dir(&dir)?;
            removed.push(name);
        }
        for dir in dirs.unfinished {
            let age = durable::metadata_no_follow(&dir)
                .ok()
                .and_then(|metadata| metadata.modified().ok()?.elapsed().ok());
            if age.is_some_and(|age| age > UNFINISHED_MAX_AGE) && try_lock_session(&dir).is_some() {
                remove_session_dir(&dir)?;
            }
        }
        Ok(SessionCleanupReport { removed })
    }

    /// Sends a request to the holder of a session, which may take `timeout` to answer it.
    fn send_request(
        &self,
        id: &SessionId,
        request: &HolderRequest,
        body: &[u8],
        timeout: Duration,
    ) -> PtyResult<String> {
        let mut connection = self.connect(id)?;
        connection.push_frame(request, body);
        let deadline = Instant::now().checked_add(timeout + HOLDER_TIMEOUT);
        match self.receive_reply(&mut connection, deadline)? {
            Some((HolderReply::Done(report), _)) => Ok(report.get().to_owned()),
            Some((HolderReply::Refused(reason), _)) => Err(PtyError::Refused(reason)),
            Some(_) => Err(PtyError::HolderUnresponsive),
            None => Err(self.holder_gone_error(id)),
        }
    }

    /// Connects to the holder of a session by a path relative to the current directory: the path of a socket must be short.
    fn connect(&self, id: &SessionId) -> PtyResult<HolderConnection> {
        let dir = store::find_pty_session_dir(&self.sessions.cwd, id)?;
        // The holder of a damaged session may answer.
        if store::read_pty_metadata(&dir).is_ok_and(|one| one.status != PtyStatus::Active) {
            return Err(self.holder_gone_error(id));
        }
        let path = Path::new(store::PTY_SESSIONS_DIR).join(id.as_str()).join(store::SOCKET_FILE);
        let stream = UnixStream::connect(path).map_err(|_| self.holder_gone_error(id))?;
        Ok(HolderConnection::for_command(stream).map_err(system_error("connect to the session"))?)
    }

    /// Why no holder answers.
    fn holder_gone_error(&self, id: &SessionId) -> PtyError {
        let dir = store::find_pty_session_dir(&self.sessions.cwd, id);
        match dir.and_then(|dir| store::current_pty_metadata(&dir)) {
            Ok(metadata) => match metadata.status {
                PtyStatus::Ended => PtyError::Ended(id.clone()),
                PtyStatus::Terminated => PtyError::Terminated(id.clone()),
                PtyStatus::Dead => PtyError::Dead(id.clone()),
                PtyStatus::Active => PtyError::HolderUnresponsive,
            },
            Err(error) => error,
        }
    }

    /// The next frame from the holder; nothing when it has closed the connection.
    fn receive_reply(
        &self,
        connection: &mut HolderConnection,
        deadline: Option<Instant>,
    ) -> PtyResult<Option<(HolderReply, Vec<u8>)>> {
        loop {
            connection.send();
            connection.receive();
            if let Some(frame) = connection.take_frame() {
                return Ok(Some(frame));
            }
            if connection.is_closed() {
                return Ok(None);
            }
            let remaining = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if remaining.is_some_and(|remaining| remaining.is_zero()) {
                return Err(PtyError::HolderUnresponsive);
            }
            if self.cancel.is_requested() {
                return Err(PtyError::Interrupted);
            }
            let flags = poll_flags(true, connection.unsent_bytes() > 0);
            let mut fds = [
                PollFd::from_borrowed_fd(connection.fd(), flags),
                PollFd::from_borrowed_fd(self.cancel.fd(), PollFlags::IN),
            ];
            let _ = poll(&mut fds, remaining.map(to_timespec).as_ref());
            self.cancel.drain();
        }
    }
}

/// Lists all sessions of a directory, oldest first, damaged ones last.
pub(crate) fn list_pty_sessions(cwd: &Path) -> PtyResult<Vec<SessionEntry<PtyStatus>>> {
    let dirs = store::list_pty_session_dirs(cwd)?;
    let entries = dirs.sessions.iter().map(|dir| match store::current_pty_metadata(dir) {
        Ok(metadata) => SessionEntry::Intact {
            session_id: metadata.session_id,
            command: metadata.command,
            status: metadata.status,
            created_at: metadata.created_at,
            exit_code: metadata.exit_code,
        },
        Err(error) => SessionEntry::damaged(dir, &error),
    });
    Ok(sort_entries(entries))
}

pub(crate) fn parse_pty_session_id(text: &str) -> PtyResult<SessionId> {
    SessionId::parse(text)
        .map_err(|_| PtyError::BadId(delta_base::terminal_text::strip_terminal_controls(text)))
}

/// Runs as the holder of a session, in the session's directory: starts the program, passes the answer for the waiting
/// `start` to `ready`, and serves until the program has ended.
pub(crate) fn run_pty_holder(
    options: &HolderOptions<'_>,
    cancel: &CancelToken,
    mut ready: impl FnMut(&[u8]) -> bool,
) {
    match Holder::start(options, cancel) {
        Ok(holder) if ready(READY_MESSAGE) => holder.serve(),
        Ok(holder) => holder.abandon(),
        Err(error) => drop(ready(error.to_string().as_bytes())),
    }
}

fn remove_session_dir(dir: &Path) -> Result<(), SessionError> {
    durable::remove_dir_all_no_follow(dir).map_err(system_error("remove a session"))
}
