//! Sessions: a working directory, an environment and a state that outlive a command, without a process that does.
//!
//! Each command is a process of its own, which restores the state that the last command left and saves its own. There is
//! nothing to poll, to reconnect to or to lose. Sessions know nothing of runs: to an agent they are ordinary tools.

mod bash;
pub mod cli;
mod exec;
mod pty;
mod pty_cli;
mod python;
mod report;
mod session_kind;
mod sessions_cli;
mod store;

use self::report::{SessionCleanupReport, SessionEndReport, SessionEntry, SessionStartReport};
use self::session_kind::SessionKind;
use self::store::{SessionMetadata, SessionStatus};
use delta_base::api_key_names::api_key_variables;
use delta_base::durable::{self, FileError};
use delta_base::id::{SessionId, SessionIdError};
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::{random, time};
use delta_process::{self as process, LaunchContext};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The environment of a process.
type Environment = BTreeMap<OsString, OsString>;

/// The variables by which an engine describes a call. They belong to the call, not to the session.
const CALL_VARIABLES: [&str; 6] = [
    "DELTA_RUN_ID",
    "DELTA_CALL_ID",
    "DELTA_KEY_NAMES",
    "ITERATION_COUNT",
    "RUN_DIR",
    "JOURNAL_PATH",
];
/// The variables that mark a command and all processes it starts: the session, and the number of the command.
const MARK_VARIABLES: [&str; 2] = ["DELTA_SESSION_ID", "DELTA_SESSION_EXEC"];
/// The file with the environment in which a session was started, each variable ended by NUL.
const ENVIRONMENT_FILE: &str = "environ";
/// The file of a state that holds the working directory, and a newline.
const WORK_DIR_FILE: &str = "work_dir.txt";

/// Why a session command failed.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    BadId(#[from] SessionIdError),
    #[error("there is no session `{id}` in {}: sessions are found only in the directory where they were started (`delta-sessions list`)", cwd.display())]
    NotFound { id: SessionId, cwd: PathBuf },
    #[error("session `{0}` has ended: start a new one with `delta-sessions start`")]
    Terminated(SessionId),
    #[error("the session in {} is damaged: {reason}; `delta-sessions cleanup` removes it", dir.display())]
    Damaged { dir: PathBuf, reason: String },
    #[error("{} is not a directory (symlinks are not followed)", .0.display())]
    NotADirectory(PathBuf),
    #[error("could not read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{0}")]
    NotStarted(String),
    #[error("`{0}` takes no arguments in a session: start it with `delta-sessions start {0}`")]
    UnexpectedArguments(String),
    #[error("could not enter {}, the working directory of the session: {source}; make it accessible or start another session", dir.display())]
    WorkDirInaccessible { dir: PathBuf, source: io::Error },
    #[error("the command contains a NUL byte, which source text cannot hold")]
    NulByte,
    #[error("missing command: pass the program to start, with its arguments")]
    MissingProgram,
    #[error("missing command: pass it after the session id or on stdin")]
    MissingCommand,
    #[error("interrupted by a signal; the session keeps its previous state")]
    Interrupted,
    #[error(transparent)]
    File(#[from] FileError),
    #[error("could not {action}: {source}")]
    System { action: &'static str, source: io::Error },
}

type SessionResult<T> = Result<T, SessionError>;

/// Converts an I/O error; `action` completes "could not ...".
fn system_error(action: &'static str) -> impl Fn(io::Error) -> SessionError {
    move |source| SessionError::System { action, source }
}

/// The sessions of a directory, for a caller with an environment.
#[derive(Debug)]
struct Sessions {
    /// The directory that contains `.sessions`.
    cwd: PathBuf,
    /// The caller's environment.
    environment: Environment,
}

impl Sessions {
    /// Starts a session in this directory, with this environment except for the LLM's key.
    fn start(&self, command: &[String]) -> SessionResult<SessionStartReport<SessionStatus>> {
        let words = split_program(command)?;
        let (name, arguments) = words.split_first().ok_or(SessionError::MissingProgram)?;
        if SessionKind::from_program(name) != SessionKind::Other && !arguments.is_empty() {
            return Err(SessionError::UnexpectedArguments(name.clone()));
        }
        let environment = self.session_environment();
        let launch = LaunchContext::new(&self.cwd, environment.clone());
        let program = process::find_program(name, &launch)
            .map_err(|error| SessionError::NotStarted(error.reason))?;
        let metadata = SessionMetadata {
            session_id: SessionId::new(random::random_bytes()).to_string(),
            command: words.join(" "),
            created_at: time::current_time(),
            last_executed_at: None,
            status: SessionStatus::Active,
            work_dir: self.cwd.display().to_string(),
            execution_count: 0,
            program: program.to_str().map(str::to_owned).ok_or_else(|| {
                SessionError::NotStarted(format!("the path {} is not UTF-8", program.display()))
            })?,
            arguments: arguments.to_vec(),
            state: 0,
        };
        store::create_session(&store::ensure_sessions_dir(&self.cwd)?, &metadata, |state_dir| {
            let session_dir = state_dir.parent().unwrap_or(state_dir);
            let environment = serialize_environment(&environment);
            durable::create_private_unsynced(&session_dir.join(ENVIRONMENT_FILE), &environment)?;
            let work_dir = [self.cwd.as_os_str().as_bytes(), b"\n"].concat();
            Ok(durable::create_private_unsynced(&state_dir.join(WORK_DIR_FILE), &work_dir)?)
        })?;
        Ok(SessionStartReport {
            session_id: metadata.session_id,
            command: metadata.command,
            work_dir: metadata.work_dir,
            status: metadata.status,
        })
    }

    /// Ends a session and removes its states, once no command runs in it. Ending it again changes nothing.
    fn end(
        &self,
        id: &SessionId,
        cancel: &CancelToken,
    ) -> SessionResult<SessionEndReport<SessionStatus>> {
        let mut session = store::lock_session(&self.cwd, id, cancel)?;
        session.metadata.status = SessionStatus::Terminated;
        session.save_metadata()?;
        session.remove_states();
        Ok(SessionEndReport { status: SessionStatus::Terminated, session_id: id.to_string() })
    }

    /// Lists all sessions, oldest first, damaged ones last.
    fn list(&self) -> SessionResult<Vec<SessionEntry<SessionStatus>>> {
        let dirs = store::list_session_dirs(&self.cwd)?;
        let entries = dirs.iter().map(|dir| match store::read_session_metadata(dir) {
            Ok(metadata) => SessionEntry::Intact {
                session_id: metadata.session_id,
                command: metadata.command,
                status: metadata.status,
                created_at: metadata.created_at,
                exit_code: None,
            },
            Err(error) => SessionEntry::damaged(dir, &error),
        });
        Ok(report::sort_entries(entries))
    }

    /// Removes ended and damaged sessions; with `all` also active ones in which no command runs.
    fn cleanup(&self, all: bool) -> SessionResult<SessionCleanupReport> {
        let mut removed = Vec::new();
        for dir in store::list_session_dirs(&self.cwd)? {
            let is_kept = || {
                let metadata = store::read_session_metadata(&dir);
                !all && metadata.is_ok_and(|metadata| metadata.status == SessionStatus::Active)
            };
            if is_kept() {
                continue;
            }
            // A session in which a command runs is not removed.
            let Some(_lock) = store::try_lock_session(&dir) else { continue };
            // The status is certain only under the lock.
            if is_kept() {
                continue;
            }
            durable::remove_dir_all_no_follow(&dir).map_err(system_error("remove a session"))?;
            removed.push(dir.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok(SessionCleanupReport { removed })
    }

    /// The caller's variables that belong to a session.
    fn session_environment(&self) -> Environment {
        let mut environment = self.environment.clone();
        let keys = self.key_variables();
        for name in keys.iter().map(String::as_str).chain(CALL_VARIABLES).chain(MARK_VARIABLES) {
            environment.remove(OsStr::new(name));
        }
        environment
    }

    /// The names of the variables that each command takes from its caller.
    fn caller_variables(&self) -> Vec<String> {
        // Outside of a run, variables of these names may belong to the session.
        let mut calls = CALL_VARIABLES.to_vec();
        calls.retain(|name| self.environment.contains_key(OsStr::new(name)));
        let names = MARK_VARIABLES.into_iter().chain(calls).map(str::to_owned);
        self.key_variables().into_iter().chain(names).collect()
    }

    /// The keys of the environment, which must be in no file and no report.
    fn secrets(&self) -> Secrets {
        let keys = self.key_variables();
        let values =
            keys.iter().filter_map(|name| self.environment.get(OsStr::new(name))?.to_str());
        Secrets::new(values.map(str::to_owned))
    }

    /// The names of the variables that hold a key, as far as they are names in a script of bash.
    fn key_variables(&self) -> Vec<String> {
        let mut names = api_key_variables(&self.environment, &[]);
        names.retain(|name| {
            !name.starts_with(|c: char| c.is_ascii_digit())
                && !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        names
    }
}

/// The program and its arguments; a single word is split at blanks.
fn split_program(command: &[String]) -> SessionResult<Vec<String>> {
    let words: Vec<String> = match command {
        [line] => line.split_whitespace().map(str::to_owned).collect(),
        words => words.to_vec(),
    };
    if words.is_empty() { Err(SessionError::MissingProgram) } else { Ok(words) }
}

/// `NAME=VALUE` of each variable, ended by NUL.
fn serialize_environment(environment: &Environment) -> Vec<u8> {
    let variables = environment
        .iter()
        .flat_map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes(), b"\0"]);
    variables.collect::<Vec<_>>().concat()
}
