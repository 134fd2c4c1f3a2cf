//! Sessions: a working directory, an environment and a state that outlive a command, without a process that does.
//!
//! Each command is a process of its own, which takes up the state that the last one left and leaves its own, so that there
//! is nothing to poll, to reconnect to or to lose. A session knows no runs: it is a command, like everything else.

mod answer;
mod bash;
mod exec;
mod kind;
pub mod pty;
mod python;
mod store;

pub use self::answer::{Cleaned, Ended, Executed, Listed, Started};
pub use self::store::{Metadata, Status};

use self::kind::Kind;
use crate::durable::{self, FileError};
use crate::environment::key_names;
use crate::id::{BadSessionId, SessionId};
use crate::process::{self, Launch};
use crate::signal::Cancel;
use crate::text::Secrets;
use crate::time;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What an engine tells each call of its own: it belongs to the call, not to the session.
const OF_CALLS: [&str; 6] = [
    "DELTA_RUN_ID",
    "DELTA_CALL_ID",
    "DELTA_KEY_NAMES",
    "ITERATION_COUNT",
    "RUN_DIR",
    "JOURNAL_PATH",
];
/// The variables by which a command and all it starts are found: the session, and the number of the command.
const MARKS: [&str; 2] = ["DELTA_SESSION_ID", "DELTA_SESSION_EXEC"];
/// The environment in which a session was started, each variable ended by NUL.
const ENVIRON: &str = "environ";
/// The file of a state that holds the working directory, and a newline.
const WORK_DIR: &str = "work_dir.txt";

/// Why a command of a session could not be done.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says itself what it is")]
pub enum SessionError {
    #[error(transparent)]
    BadId(#[from] BadSessionId),
    #[error("there is no session `{id}` in {}: sessions are found in the directory in which they were started (`delta-sessions list`)", cwd.display())]
    Missing { id: SessionId, cwd: PathBuf },
    #[error("the session `{0}` was ended: start another with `delta-sessions start`")]
    Terminated(SessionId),
    #[error("the session in {} is damaged: {reason}; `delta-sessions cleanup` removes it", dir.display())]
    Damaged { dir: PathBuf, reason: String },
    #[error("{} is not a directory: sessions are not led elsewhere by what stands there", .0.display())]
    NotADirectory(PathBuf),
    #[error("{} cannot be read: {source}", dir.display())]
    Unreadable { dir: PathBuf, source: io::Error },
    #[error("{0}")]
    NotStarted(String),
    #[error("`{0}` takes no arguments in a session: write the command alone")]
    Arguments(String),
    #[error("the working directory of the session, {}, {reason}: make it accessible again, or start another session", dir.display())]
    Directory { dir: PathBuf, reason: String },
    #[error("the command holds a NUL byte, which no source text may")]
    Nul,
    #[error("there is no command: give it as the argument behind the id, or on stdin")]
    NoText,
    #[error("a signal ended the command; the state before it stands")]
    Interrupted,
    #[error(transparent)]
    File(#[from] FileError),
    #[error("could not {action}: {source}")]
    System { action: &'static str, source: io::Error },
}

type Result<T> = std::result::Result<T, SessionError>;

/// The sessions of a directory, for a caller with an environment.
#[derive(Debug)]
pub struct Sessions {
    /// The directory that holds `.sessions`.
    pub cwd: PathBuf,
    /// The environment of the caller.
    pub environment: BTreeMap<OsString, OsString>,
}

impl Sessions {
    /// Starts a session of a command, in this directory and in this environment, the LLM's key apart. A single word with
    /// blanks is taken for several.
    pub fn start(&self, command: &[String]) -> Result<Started> {
        let words: Vec<String> = match command {
            [line] => line.split_whitespace().map(str::to_owned).collect(),
            words => words.to_vec(),
        };
        let (name, arguments) = words.split_first().ok_or(SessionError::NoText)?;
        if Kind::of(name) != Kind::Other && !arguments.is_empty() {
            return Err(SessionError::Arguments(name.clone()));
        }
        let environment = self.lasting();
        let launch = Launch {
            cwd: self.cwd.clone(),
            env: environment.clone().into(),
            secrets: Secrets::default(),
        };
        let program = process::find_program(name, &launch)
            .map_err(|reason| SessionError::NotStarted(reason.reason))?;
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| SessionError::System { action: "make an id", source: error.into() })?;
        let metadata = Metadata {
            session_id: SessionId::mint(random).to_string(),
            command: words.join(" "),
            created_at: time::now(),
            last_executed_at: None,
            status: Status::Active,
            work_dir: self.cwd.display().to_string(),
            execution_count: 0,
            program: program.to_str().map(str::to_owned).ok_or_else(|| {
                SessionError::NotStarted(format!("the path {} is not UTF-8", program.display()))
            })?,
            arguments: arguments.to_vec(),
            state: 0,
        };
        store::create(&store::root(&self.cwd)?, &metadata, |state| {
            let session = state.parent().unwrap_or(state);
            durable::write_new(&session.join(ENVIRON), &joined(&environment))?;
            Ok(durable::write_new(&state.join(WORK_DIR), &line(self.cwd.as_os_str()))?)
        })?;
        Ok(Started::of(&metadata))
    }

    /// Ends a session, after the command that runs in it; its state is removed. To end it again changes nothing.
    pub fn end(&self, id: &SessionId, cancel: &Cancel) -> Result<Ended> {
        let mut held = store::hold(&self.cwd, id, cancel)?;
        held.metadata.status = Status::Terminated;
        held.save()?;
        held.empty();
        Ok(Ended::of(id))
    }

    /// All sessions, the oldest first, the damaged ones behind them.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let dirs = store::all(&self.cwd)?;
        let mut listed: Vec<Listed> =
            dirs.iter().map(|dir| Listed::of(dir, store::read(dir))).collect();
        listed.sort_by_key(Listed::order);
        Ok(listed)
    }

    /// Removes the sessions that were ended and those that are damaged, with `all` also the active ones in which no
    /// command runs.
    pub fn cleanup(&self, all: bool) -> Result<Cleaned> {
        let mut removed = Vec::new();
        for dir in store::all(&self.cwd)? {
            let stays =
                || store::read(&dir).is_ok_and(|found| found.status == Status::Active) && !all;
            if stays() {
                continue;
            }
            // Held by a command that runs, it is not to be cleaned up.
            let Some(_lock) = store::free(&dir) else { continue };
            // Only now nobody is changing what it says.
            if stays() {
                continue;
            }
            fs::remove_dir_all(&dir)
                .map_err(|source| SessionError::System { action: "remove a session", source })?;
            removed.push(dir.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok(Cleaned { removed })
    }

    /// The environment as a session keeps it.
    fn lasting(&self) -> BTreeMap<OsString, OsString> {
        let mut environment = self.environment.clone();
        for name in self.keys().iter().map(String::as_str).chain(OF_CALLS).chain(MARKS) {
            environment.remove(OsStr::new(name));
        }
        environment
    }

    /// The names of the variables that come from the caller each time.
    fn passing(&self) -> Vec<String> {
        // A session that no engine uses may have variables of these names.
        let told = OF_CALLS.iter().filter(|name| self.environment.contains_key(OsStr::new(name)));
        let others = MARKS.iter().chain(told).map(|name| (*name).to_owned());
        self.keys().into_iter().chain(others).collect()
    }

    /// The keys of the environment, which stand in no file and no answer.
    fn secrets(&self) -> Secrets {
        let value =
            |name: String| self.environment.get(OsStr::new(&name))?.to_str().map(str::to_owned);
        Secrets::new(self.keys().into_iter().filter_map(value))
    }

    /// The names of the variables that hold a key. They are put into a script of bash and must be such names.
    fn keys(&self) -> Vec<String> {
        let mut names = key_names(&self.environment, None);
        names.retain(|name| {
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            starts && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        names
    }
}

fn joined(environment: &BTreeMap<OsString, OsString>) -> Vec<u8> {
    let variable = |(name, value): (&OsString, &OsString)| {
        [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat()
    };
    environment.iter().flat_map(variable).collect()
}

fn line(text: &OsStr) -> Vec<u8> {
    [text.as_bytes(), b"\n"].concat()
}
