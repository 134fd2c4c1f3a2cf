//! One command of a session, from taking its lock to the answer.

use super::answer::Executed;
use super::kind::Kind;
use super::store::{self, Held, Left, Status, Turn, state_dir};
use super::{ENVIRON, MARKS, Result, SessionError, Sessions, WORK_DIR, bash, python};
use crate::durable;
use crate::id::SessionId;
use crate::process::{self, Command, End, Finished, Launch, Spool};
use crate::signal::Cancel;
use crate::time;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// At most so much of each stream is shown: both, as JSON, are to fit into what a tool shows to the LLM.
const SHOWN: usize = 12 * 1024;

impl Sessions {
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
        let (work_dir, missing) = enter(read_line(&before.join(WORK_DIR))?, kind)?;
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

/// Where a command begins, and how many directories at its end were made again for that.
fn enter(work_dir: PathBuf, kind: Kind) -> Result<(PathBuf, usize)> {
    if rustix::fs::access(&work_dir, rustix::fs::Access::EXEC_OK).is_ok() {
        return Ok((work_dir, 0));
    }
    let work_dir = without_parents(work_dir);
    let missing = if kind == Kind::Other { 0 } else { restore(&work_dir)? };
    Ok((work_dir, missing))
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

fn split(bytes: &[u8]) -> BTreeMap<OsString, OsString> {
    let variable = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    };
    bytes.split(|byte| *byte == 0).filter_map(variable).collect()
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
