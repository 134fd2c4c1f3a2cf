//! Sessions: a working directory, an environment and a state that outlive a command, without a process that does.
//!
//! Each command is a process of its own, which takes up the state that the last one left and leaves its own, so that there
//! is nothing to poll, to reconnect to or to lose. A session knows no runs: it is a command, like everything else.

mod answer;
mod bash;
pub mod pty;
mod python;
mod store;

pub use self::answer::{Cleaned, Ended, Executed, Listed, Started};
pub use self::store::{Metadata, Status};

use self::store::{Held, Left, Turn, state_dir};
use crate::durable::{self, FileError};
use crate::environment::key_names;
use crate::id::{BadSessionId, SessionId};
use crate::process::{self, Command, End, Finished, Launch, Spool};
use crate::signal::Cancel;
use crate::text::Secrets;
use crate::time;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

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
/// At most so much of each stream is shown: both, as JSON, are to fit into what a tool shows to the LLM.
const SHOWN: usize = 12 * 1024;

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

/// How a session keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bash,
    Python,
    Other,
}

impl Kind {
    /// That of a program by its name.
    fn of(program: &str) -> Self {
        let name = program.rsplit('/').next().unwrap_or(program);
        let version = name.strip_prefix("python");
        match name {
            "bash" => Self::Bash,
            _ if version.is_some_and(|rest| {
                rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            }) =>
            {
                Self::Python
            }
            _ => Self::Other,
        }
    }
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

    /// Runs a text in a session, as its next command; waits for the one before.
    ///
    /// Killed at any moment, the session has the state before the command or the state after it.
    pub fn exec(
        &self,
        id: &SessionId,
        text: &[u8],
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<Executed> {
        let mut held = store::hold(&self.cwd, id, cancel)?;
        if held.metadata.status == Status::Terminated {
            return Err(SessionError::Terminated(id.clone()));
        }
        held.sweep();
        let dir = held.dir.clone();
        let kind = Kind::of(&held.metadata.program);
        if kind != Kind::Other && text.contains(&0) {
            return Err(SessionError::Nul);
        }
        let before = state_dir(&dir, held.metadata.state);
        let next = state_dir(&dir, held.metadata.state + 1);
        let work_dir = without_parents(read_line(&before.join(WORK_DIR))?);
        let missing = if kind == Kind::Other { 0 } else { restore(&work_dir)? };
        let (passing, keys) = (self.passing(), self.keys());
        let secrets = self.secrets();
        let state = match kind {
            Kind::Bash => fs::read(before.join(bash::STATE)).ok(),
            Kind::Python | Kind::Other => None,
        };
        let turn = Turn {
            session: &dir,
            state: state.as_deref(),
            before: &before,
            next: &next,
            text,
            work_dir: &work_dir,
            missing,
            passing: &passing,
            keys: &keys,
            secrets: &secrets,
        };
        let finished = self.run(&held, kind, &turn, timeout, cancel)?;
        settle(&mut held, kind, &turn, &finished, timeout)
    }

    fn run(
        &self,
        held: &Held,
        kind: Kind,
        turn: &Turn<'_>,
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<Finished> {
        let given = read(&held.dir.join(ENVIRON))?;
        let mut env = match kind {
            // The state has it.
            Kind::Bash if turn.state.is_some() => BTreeMap::new(),
            _ => split(&given),
        };
        for name in turn.passing {
            if let Some(value) = self.environment.get(OsStr::new(name)) {
                env.insert(name.into(), value.clone());
            }
        }
        let (id, count) =
            (&held.metadata.session_id, (held.metadata.execution_count + 1).to_string());
        let marks = [(MARKS[0], id.as_str()), (MARKS[1], count.as_str())];
        env.extend(marks.map(|(name, value)| (name.into(), value.into())));
        let arguments = match kind {
            Kind::Bash => bash::prepare(turn, &given, &mut env)?,
            Kind::Python => python::prepare(turn, &mut env)?,
            Kind::Other => held.metadata.arguments.clone(),
        };
        let cwd = match kind {
            Kind::Bash => turn.session,
            Kind::Python => turn.next,
            Kind::Other => turn.work_dir,
        };
        let launch = Launch { cwd: cwd.to_owned(), env: env.into(), secrets: turn.secrets.clone() };
        let argv: Vec<String> =
            std::iter::once(held.metadata.program.clone()).chain(arguments).collect();
        let output = held.dir.join("output");
        clear(&output, &count);
        let command = Command {
            argv: &argv,
            launch: &launch,
            stdin: if kind == Kind::Other { turn.text } else { &[] },
            timeout,
            spool: Some(Spool { dir: &output, stem: &count }),
            keep: SHOWN,
            keep_all: false,
            marks: &marks,
        };
        Ok(process::run(&command, cancel))
    }

    /// Ends a session, after the command that runs in it; its state is removed. To end it again changes nothing.
    pub fn end(&self, id: &SessionId, cancel: &Cancel) -> Result<Ended> {
        let mut held = store::hold(&self.cwd, id, cancel)?;
        held.metadata.status = Status::Terminated;
        held.save()?;
        held.sweep();
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

impl Kind {
    /// Looks what a command has left, and writes it where it is to count.
    fn leave(self, turn: &Turn<'_>) -> Result<Left> {
        match self {
            Self::Bash => Ok(bash::leave(turn)?),
            Self::Python => Ok(python::leave(turn)),
            Self::Other => Ok(Left::Same),
        }
    }

    /// Removes what only the run of the command needed.
    fn tidy(self, turn: &Turn<'_>) {
        match self {
            Self::Bash => bash::tidy(turn),
            Self::Python => python::tidy(turn.next),
            Self::Other => {}
        }
    }

    fn why_lost(self) -> &'static str {
        match self {
            Self::Python => {
                "the interpreter did not come to its end (a signal, `os._exit`, `os.exec*`, a full disk); \
                 the state before it stands"
            }
            _ => {
                "the shell did not come to its end (a signal, `exec`, a full disk); the state before it stands"
            }
        }
    }
}

/// Removes what a command of this number printed, which was killed before it counted.
fn clear(output: &Path, count: &str) {
    for stream in ["stdout", "stderr"] {
        let _ = fs::remove_file(output.join(format!("{count}.{stream}")));
    }
}

/// Makes a fact of what a command has left; gives the answer.
fn settle(
    held: &mut Held,
    kind: Kind,
    turn: &Turn<'_>,
    finished: &Finished,
    timeout: Duration,
) -> Result<Executed> {
    let (exit_code, timed_out) = match &finished.end {
        End::Exited(code) => (*code, false),
        End::Killed(signal) => (128 + signal, false),
        End::TimedOut => (124, true),
        End::Cancelled => {
            kind.tidy(turn);
            return Err(SessionError::Interrupted);
        }
        End::NotStarted { reason, .. } => return Err(SessionError::NotStarted(reason.clone())),
    };
    let is_python = kind == Kind::Python;
    if is_python && let Some(reason) = python::refused(turn.next) {
        return Err(SessionError::Damaged { dir: held.dir.clone(), reason });
    }
    let left = if timed_out { Left::Nothing } else { kind.leave(turn)? };
    let not_preserved = if is_python { python::not_preserved(turn.next) } else { Vec::new() };
    kind.tidy(turn);
    held.metadata.execution_count += 1;
    held.metadata.last_executed_at = Some(time::now());
    if left == Left::New {
        held.metadata.state += 1;
        held.metadata.work_dir = read_line(&turn.next.join(WORK_DIR))?.display().to_string();
    }
    held.save()?;
    match left {
        Left::New => store::forget(turn.before),
        Left::Same => {}
        Left::Nothing => store::forget(turn.next),
    }
    let note = match (left, timed_out) {
        (Left::New | Left::Same, _) => None,
        (Left::Nothing, true) => Some(format!(
            "it was ended after {} ms; the state before it stands",
            timeout.as_millis()
        )),
        (Left::Nothing, false) => Some(kind.why_lost().to_owned()),
    };
    let place = format!("{}/{}/output", store::DIRECTORY, held.metadata.session_id);
    Ok(Executed::of(finished, exit_code, &place).with(timed_out, note, not_preserved))
}

/// Sees to it that a working directory can be entered; gives how many directories at its end had to be made for that,
/// and are to be removed once it was entered. So a session goes on in a directory that was removed, as a shell does.
fn restore(work_dir: &Path) -> Result<usize> {
    let refuse = |source: io::Error| SessionError::Directory {
        dir: work_dir.to_owned(),
        reason: format!("cannot be entered: {source}"),
    };
    let missing = work_dir.ancestors().take_while(|dir| !dir.exists()).count();
    if missing > 0 {
        durable::ensure_dir(work_dir, true).map_err(|error| refuse(error.source))?;
    }
    rustix::fs::access(work_dir, rustix::fs::Access::EXEC_OK)
        .map_err(|error| refuse(error.into()))?;
    Ok(missing)
}

/// A directory that is not there, as a shell would call it after a `cd ..`.
fn without_parents(dir: PathBuf) -> PathBuf {
    if dir.exists() {
        return dir;
    }
    let mut plain = PathBuf::new();
    for component in dir.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            component => plain.push(component),
        }
    }
    plain
}

fn joined(environment: &BTreeMap<OsString, OsString>) -> Vec<u8> {
    let variable = |(name, value): (&OsString, &OsString)| {
        [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat()
    };
    environment.iter().flat_map(variable).collect()
}

fn split(bytes: &[u8]) -> BTreeMap<OsString, OsString> {
    let variable = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    };
    bytes.split(|byte| *byte == 0).filter_map(variable).collect()
}

fn line(text: &OsStr) -> Vec<u8> {
    [text.as_bytes(), b"\n"].concat()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| SessionError::Unreadable { dir: path.to_owned(), source })
}

/// What a file holds, without the newline at its end.
fn read_line(path: &Path) -> Result<PathBuf> {
    let mut bytes = read(path)?;
    bytes.pop_if(|byte| *byte == b'\n');
    Ok(OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_3_the_kind_follows_from_the_name() {
        let kinds = [
            ("bash", Kind::Bash),
            ("/usr/bin/bash", Kind::Bash),
            ("python", Kind::Python),
            ("/opt/bin/python3.12", Kind::Python),
            ("python3-config", Kind::Other),
            ("bashful", Kind::Other),
            ("sqlite3", Kind::Other),
        ];
        for (program, kind) in kinds {
            assert_eq!(Kind::of(program), kind, "{program}");
        }
    }
}
