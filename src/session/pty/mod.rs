//! Sessions of programs that need a terminal: a pseudo-terminal with a program on it, and a holder, a process that keeps
//! it open between commands. Experimental.
//!
//! Here is the side of the commands: each finds the session's directory, says to the holder what it wants, and gives what
//! the holder answers. What a session leaves when its program has ended is in files, which the commands read themselves.

mod answer;
mod attach;
mod client;
mod escape;
mod holder;
mod keys;
mod protocol;
mod ring;
mod screen;
mod store;

pub use self::answer::{
    Cleaned, Detached, Listed, Read, Resized, Started, Terminated, Told, Typed,
};
pub use self::attach::Left;
pub use self::escape::{NoEscape, unescape};
pub use self::holder::Held;
pub use self::protocol::{Form, Look};
pub use self::screen::Size;
pub use self::store::{Metadata, Status};

use self::holder::Holder;
use self::protocol::{Link, Reply, Request, TYPED};
use super::{SessionError, Sessions};
use crate::durable::{self, FileError};
use crate::id::SessionId;
use crate::process;
use crate::signal::{Cancel, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest number of columns or rows.
pub const LARGEST: u16 = 1000;
/// What the terminal is.
const TERM: &str = "xterm-256color";
/// A holder that does not answer for so long is stopped or stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// What never became a session is removed after this.
const STALE: Duration = Duration::from_secs(60);
/// How often is looked whether a file is free.
const TICK: Duration = Duration::from_millis(5);
/// By this a holder says that the session is there.
const READY: &[u8] = b"ok\n";

/// Why a command of a session could not be done.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says itself what it is")]
pub enum PtyError {
    #[error(
        "`{0}` is not a session id: write what `delta-sessions-pty start` gave as `session_id`, such as `sess_a1b2c3d4`"
    )]
    BadId(String),
    #[error("there is no session `{id}` in {}: sessions are found in the directory in which they were started (`delta-sessions-pty list`)", cwd.display())]
    Missing { id: SessionId, cwd: PathBuf },
    #[error(
        "the program of the session `{0}` has ended: `read` shows what it left, `start` starts another"
    )]
    Ended(SessionId),
    #[error("the session `{0}` was ended: start another with `delta-sessions-pty start`")]
    Terminated(SessionId),
    #[error(
        "the holder of the session `{0}` is gone, and the program with its terminal: `delta-sessions-pty cleanup` removes what is left, `start` starts another"
    )]
    Dead(SessionId),
    #[error("the session in {} is damaged: {reason}; `delta-sessions-pty cleanup` removes it", dir.display())]
    Damaged { dir: PathBuf, reason: String },
    #[error("{} is not a directory: sessions are not led elsewhere by what stands there", .0.display())]
    NotADirectory(PathBuf),
    #[error("{} belongs to another user: remove it, or start sessions in another directory", .0.display())]
    NotOurs(PathBuf),
    #[error("{} cannot be read: {source}", dir.display())]
    Unreadable { dir: PathBuf, source: io::Error },
    #[error("{0}")]
    NotStarted(String),
    #[error(
        "the holder of the session does not answer: `delta-sessions-pty list` shows how it is with it"
    )]
    Silent,
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Escape(#[from] NoEscape),
    #[error("`{text}` is no regular expression: {reason}")]
    Pattern { text: String, reason: String },
    #[error("at most {TYPED} bytes are written at once: write the text in parts")]
    TooLong,
    #[error("there is no text: give it as the argument behind the id, or on stdin")]
    NoText,
    #[error("stdin and stdout must be a terminal: `read --screen` and `write` do without one")]
    NoTerminal,
    #[error("a signal ended the command")]
    Interrupted,
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("could not {action}: {source}")]
    System { action: &'static str, source: io::Error },
}

type Result<T> = std::result::Result<T, PtyError>;

/// The sessions of a directory, for a caller with an environment.
#[derive(Debug)]
pub struct PtySessions {
    /// The directory that holds `.sessions-pty`, and the environment of the caller.
    pub sessions: Sessions,
    /// What becomes holders.
    pub program: PathBuf,
    /// What ends the waiting.
    pub cancel: Cancel,
}

impl PtySessions {
    /// Starts a session of a program, in this directory and in this environment, the LLM's key apart. A single word with
    /// blanks is taken for several. When it returns, the program runs.
    pub fn start(&self, command: &[String], size: Size) -> Result<Started> {
        let words: Vec<String> = match command {
            [line] => line.split_whitespace().map(str::to_owned).collect(),
            words => words.to_vec(),
        };
        if words.is_empty() {
            return Err(SessionError::NoText.into());
        }
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| PtyError::System { action: "make an id", source: error.into() })?;
        let id = SessionId::mint(random);
        let dir = store::root(&self.sessions.cwd)?.join(format!(".{id}"));
        durable::ensure_dir(&dir, true)?;
        let made = self.start_holder(&id, &dir, &words, size);
        if made.is_err() {
            let _ = fs::remove_dir_all(&dir);
        }
        made.map(|()| Started {
            session_id: id.to_string(),
            command: words.join(" "),
            work_dir: self.sessions.cwd.display().to_string(),
            status: Status::Active,
        })
    }

    fn start_holder(&self, id: &SessionId, dir: &Path, words: &[String], size: Size) -> Result<()> {
        let sizes = [("--cols", size.cols), ("--rows", size.rows)];
        let sizes =
            sizes.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]);
        let mut arguments = vec!["holder".to_owned(), id.to_string()];
        arguments.extend(sizes);
        arguments.push("--".to_owned());
        arguments.extend(words.iter().cloned());
        let env = self.environment(id);
        let start = process::start_detached(&self.program, &arguments, &env, dir);
        let mut said =
            start.map_err(|source| PtyError::System { action: "start the holder", source })?;
        let mut answer = Vec::new();
        loop {
            let mut fds = [
                PollFd::new(&said, PollFlags::IN),
                PollFd::from_borrowed_fd(self.cancel.fd(), PollFlags::IN),
            ];
            // An interrupted poll only means to look again.
            let _ = poll(&mut fds, None);
            if !fds[0].revents().is_empty() {
                break;
            }
            self.cancel.drain();
            if self.cancel.requested() {
                // Where its answer reaches nobody, the holder leaves nothing behind.
                return Err(PtyError::Interrupted);
            }
        }
        said.read_to_end(&mut answer)
            .map_err(|source| PtyError::System { action: "hear of the holder", source })?;
        match answer == READY {
            true => Ok(()),
            false if answer.is_empty() => Err(PtyError::Silent),
            false => Err(PtyError::NotStarted(String::from_utf8_lossy(&answer).into_owned())),
        }
    }

    /// The environment of the program: the caller's, without what belongs to a call, to a terminal, or to nobody else.
    fn environment(&self, id: &SessionId) -> BTreeMap<OsString, OsString> {
        let mut environment = self.sessions.lasting();
        environment.retain(|name, _| name != "COLUMNS" && name != "LINES");
        environment.insert("TERM".into(), TERM.into());
        environment.insert("DELTA_SESSION_ID".into(), id.as_str().into());
        environment
    }

    /// Types bytes.
    pub fn write(&self, id: &SessionId, bytes: &[u8]) -> Result<Box<RawValue>> {
        if bytes.len() > TYPED {
            return Err(PtyError::TooLong);
        }
        self.ask(id, &Request::Write, bytes, Duration::ZERO)
    }

    /// Types keys by their names.
    pub fn write_keys(&self, id: &SessionId, names: Vec<String>) -> Result<Box<RawValue>> {
        for name in &names {
            keys::bytes(name, false).map_err(|error| PtyError::Refused(error.to_string()))?;
        }
        self.ask(id, &Request::Keys(names), &[], Duration::ZERO)
    }

    /// Reads what was printed, or what stands on the screen; of a session that has ended, what it left.
    pub fn read(&self, id: &SessionId, look: Look) -> Result<Box<RawValue>> {
        answer::Pattern::of(&look)?;
        let limit = Duration::from_millis(look.timeout_ms);
        match self.ask(id, &Request::Read(look.clone()), &[], limit) {
            Err(PtyError::Ended(_) | PtyError::Terminated(_)) => self.read_left(id, &look),
            answered => answered,
        }
    }

    fn read_left(&self, id: &SessionId, look: &Look) -> Result<Box<RawValue>> {
        let dir = store::dir(&self.sessions.cwd, id)?;
        let until = Instant::now() + PATIENCE;
        // Two who read at once are not to read the same.
        let _lock = loop {
            match store::free(&dir) {
                Some(lock) => break lock,
                None if Instant::now() >= until => return Err(PtyError::Silent),
                None if self.cancel.wait(TICK) => return Err(PtyError::Interrupted),
                None => {}
            }
        };
        let found = store::read(&dir)?;
        let (mut output, shown) = store::Output::restore(&dir)?;
        let pattern = answer::Pattern::of(look)?;
        let missed = pattern.is_some_and(|pattern| match look.form {
            Form::Screen => !pattern.is_in(std::slice::from_ref(&shown.screen)),
            Form::Text | Form::Raw => !pattern.is_in(&output.unread()),
        });
        let state = (found.status, found.exit_code);
        let answer = output.read(look, || shown.clone(), state, missed);
        output.save_places(&dir, shown)?;
        raw(&answer)
    }

    /// Gives the terminal another size.
    pub fn resize(
        &self,
        id: &SessionId,
        cols: Option<u16>,
        rows: Option<u16>,
    ) -> Result<Box<RawValue>> {
        self.ask(id, &Request::Resize { cols, rows }, &[], Duration::ZERO)
    }

    /// Detaches the terminal that is attached.
    pub fn detach(&self, id: &SessionId) -> Result<Box<RawValue>> {
        self.ask(id, &Request::Detach, &[], Duration::ZERO)
    }

    /// How it is with a session.
    pub fn status(&self, id: &SessionId) -> Result<Box<RawValue>> {
        match self.ask(id, &Request::Status, &[], Duration::ZERO) {
            Err(PtyError::Ended(_) | PtyError::Terminated(_) | PtyError::Dead(_)) => {
                let dir = store::dir(&self.sessions.cwd, id)?;
                let metadata = store::look(&dir)?;
                let left = store::Output::restore(&dir);
                let unread_bytes = left.map_or(0, |(output, _)| output.text.unread());
                raw(&Told { metadata, attached: false, unread_bytes })
            }
            answered => answered,
        }
    }

    /// Ends a session with its program and what that has started at its terminal. To end it again changes nothing.
    pub fn end(&self, id: &SessionId) -> Result<Box<RawValue>> {
        match self.ask(id, &Request::End, &[], PATIENCE) {
            Err(PtyError::Ended(_) | PtyError::Terminated(_) | PtyError::Dead(_)) => {
                let dir = store::dir(&self.sessions.cwd, id)?;
                let mut metadata = store::look(&dir)?;
                if metadata.status != Status::Terminated {
                    metadata.status = Status::Terminated;
                    store::save(&dir, &metadata)?;
                }
                raw(&Terminated::of(id))
            }
            answered => answered,
        }
    }

    /// All sessions, the oldest first, the damaged ones behind them.
    pub fn list(&self) -> Result<Vec<Listed>> {
        list(&self.sessions.cwd)
    }

    /// Removes the sessions whose program does not run; with `all` it ends the others first.
    pub fn cleanup(&self, all: bool) -> Result<Cleaned> {
        let (dirs, begun) = store::all(&self.sessions.cwd)?;
        let mut removed = Vec::new();
        for dir in dirs {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let active = store::look(&dir).is_ok_and(|found| found.status == Status::Active);
            if active && all {
                self.end(&parse(&name)?)?;
            }
            // Held by a holder, it is not to be cleaned up.
            let Some(_lock) = store::free(&dir) else { continue };
            remove(&dir)?;
            removed.push(name);
        }
        for dir in begun {
            let age = fs::metadata(&dir).and_then(|found| found.modified());
            let is_old = age.is_ok_and(|since| since.elapsed().is_ok_and(|age| age > STALE));
            if is_old && store::free(&dir).is_some() {
                remove(&dir)?;
            }
        }
        Ok(Cleaned { removed })
    }

    /// Asks the holder of a session; `limit` is how long it may need at most.
    fn ask(
        &self,
        id: &SessionId,
        request: &Request,
        body: &[u8],
        limit: Duration,
    ) -> Result<Box<RawValue>> {
        let mut link = self.connect(id)?;
        link.push(request, body);
        match self.next(&mut link, Instant::now().checked_add(limit + PATIENCE))? {
            Some((Reply::Done(answer), _)) => Ok(answer),
            Some((Reply::Refused(reason), _)) => Err(PtyError::Refused(reason)),
            Some(_) => Err(PtyError::Silent),
            None => Err(self.why_gone(id)),
        }
    }

    /// Connects to the holder of a session. In its directory, where the path of the socket is short.
    fn connect(&self, id: &SessionId) -> Result<Link> {
        let dir = store::dir(&self.sessions.cwd, id)?;
        let metadata = store::read(&dir)?;
        if metadata.status != Status::Active {
            return Err(self.why_gone(id));
        }
        let path = Path::new(store::DIRECTORY).join(id.as_str()).join(store::SOCKET);
        let stream = UnixStream::connect(path).map_err(|_| self.why_gone(id))?;
        Link::of_command(stream)
            .map_err(|source| PtyError::System { action: "connect to the session", source })
    }

    /// Why there is no holder to be asked.
    fn why_gone(&self, id: &SessionId) -> PtyError {
        match store::dir(&self.sessions.cwd, id).and_then(|dir| store::look(&dir)) {
            Ok(found) => match found.status {
                Status::Ended => PtyError::Ended(id.clone()),
                Status::Terminated => PtyError::Terminated(id.clone()),
                Status::Dead => PtyError::Dead(id.clone()),
                Status::Active => PtyError::Silent,
            },
            Err(error) => error,
        }
    }

    /// The next frame of the holder; none when it has gone.
    fn next(&self, link: &mut Link, until: Option<Instant>) -> Result<Option<(Reply, Vec<u8>)>> {
        loop {
            link.send();
            link.receive();
            if let Some(frame) = link.take() {
                return Ok(Some(frame));
            }
            if link.is_closed() {
                return Ok(None);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(PtyError::Silent);
            }
            if self.cancel.requested() {
                return Err(PtyError::Interrupted);
            }
            let write = if link.waiting() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            let mut fds = [
                PollFd::from_borrowed_fd(link.fd(), PollFlags::IN | write),
                PollFd::from_borrowed_fd(self.cancel.fd(), PollFlags::IN),
            ];
            let _ = poll(&mut fds, left.map(timespec).as_ref());
            self.cancel.drain();
        }
    }
}

fn list(cwd: &Path) -> Result<Vec<Listed>> {
    let (dirs, _) = store::all(cwd)?;
    let mut listed: Vec<Listed> =
        dirs.iter().map(|dir| Listed::of(dir, store::look(dir))).collect();
    listed.sort_by_key(Listed::order);
    Ok(listed)
}

/// The ids of the active sessions below `cwd` and their commands, the oldest first; none where they cannot be read.
pub fn active(cwd: &Path) -> Vec<(String, String)> {
    let command = |session| match session {
        Listed::Sound { session_id, command, status: Status::Active, .. } => {
            Some((session_id, command))
        }
        _ => None,
    };
    list(cwd).unwrap_or_default().into_iter().filter_map(command).collect()
}

/// The id of a session.
pub fn parse(text: &str) -> Result<SessionId> {
    SessionId::parse(text).map_err(|_| PtyError::BadId(crate::text::printable(text)))
}

/// Is the holder of a session: starts its program, calls `ready` with what the command that waits for it is to hear, and
/// stays until the program has ended. It begins in the session's directory.
pub fn hold(held: &Held<'_>, cancel: &Cancel, mut ready: impl FnMut(&[u8]) -> bool) {
    match Holder::start(held, cancel) {
        Ok(holder) if ready(READY) => holder.serve(),
        Ok(holder) => holder.abandon(),
        Err(error) => drop(ready(error.to_string().as_bytes())),
    }
}

fn remove(dir: &Path) -> Result<()> {
    let removed = fs::remove_dir_all(dir);
    removed.map_err(|source| PtyError::System { action: "remove a session", source })
}

fn raw(answer: &impl serde::Serialize) -> Result<Box<RawValue>> {
    to_raw_value(answer).map_err(|error| PtyError::System {
        action: "write the answer",
        source: io::Error::other(error),
    })
}
