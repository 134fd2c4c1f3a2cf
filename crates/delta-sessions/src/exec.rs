//! One command of a session, from locking the session to the report.

use crate::report::SessionExecReport;
use crate::session_kind::SessionKind;
use crate::store::{
    self, LockedSession, SESSIONS_DIR, SessionStateChange, SessionStatus, SessionTurn, state_dir,
};
use crate::{
    ENVIRONMENT_FILE, Environment, MARK_VARIABLES, SessionError, SessionResult, Sessions,
    WORK_DIR_FILE, bash, python,
};
use delta_base::id::SessionId;
use delta_base::signal::CancelToken;
use delta_base::{durable, time};
use delta_process::{
    self as process, LaunchContext, MAX_SPOOL_BYTES, OutputCapture, ProcessCommand, ProcessEnd,
    ProcessResult, SpoolFiles, truncated_output,
};
use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// How much of each stream a report shows: both, as JSON, must fit into what a tool shows to the LLM.
const MAX_SHOWN_BYTES: usize = 12 * 1024;

impl Sessions {
    /// Runs a text as the next command of a session, once the command before it has ended.
    ///
    /// Killed at any moment, it leaves the state before the command or the state after it.
    pub(crate) fn exec(
        &self,
        id: &SessionId,
        text: &[u8],
        timeout: Duration,
        cancel: &CancelToken,
    ) -> SessionResult<SessionExecReport> {
        let mut session = store::lock_session(&self.cwd, id, cancel)?;
        if session.metadata.status == SessionStatus::Terminated {
            return Err(SessionError::Terminated(id.clone()));
        }
        session.remove_stale_states();
        let session_dir = session.dir.clone();
        let kind = SessionKind::from_program(&session.metadata.program);
        if kind != SessionKind::Other && text.contains(&0) {
            return Err(SessionError::NulByte);
        }
        let current_state = state_dir(&session_dir, session.metadata.state);
        let work_dir = existing_work_dir(read_path_line(&current_state.join(WORK_DIR_FILE))?);
        let recreated_dirs =
            if kind == SessionKind::Other { 0 } else { ensure_enterable(&work_dir)? };
        let saved_state = match kind {
            SessionKind::Bash => {
                durable::read_no_follow(&current_state.join(bash::STATE_FILE)).ok()
            }
            SessionKind::Python | SessionKind::Other => None,
        };
        if saved_state.as_ref().is_some_and(Vec::is_empty) {
            let reason = format!("{} is empty", bash::STATE_FILE);
            return Err(SessionError::Damaged { dir: session_dir, reason });
        }
        let turn = SessionTurn {
            session_dir: &session_dir,
            saved_state: saved_state.as_deref(),
            state_dir: &current_state,
            next_state_dir: &state_dir(&session_dir, session.metadata.state + 1),
            text,
            work_dir: &work_dir,
            recreated_dirs,
            caller_variables: &self.caller_variables(),
            key_variables: &self.key_variables(),
            secrets: &self.secrets(),
        };
        let finished = self.run_turn(&session, kind, &turn, timeout, cancel)?;
        finish_turn(&mut session, kind, &turn, &finished, timeout)
    }

    fn run_turn(
        &self,
        session: &LockedSession,
        kind: SessionKind,
        turn: &SessionTurn<'_>,
        timeout: Duration,
        cancel: &CancelToken,
    ) -> SessionResult<ProcessResult> {
        let initial_environment = read_session_file(&session.dir.join(ENVIRONMENT_FILE))?;
        // The saved state of bash contains the environment.
        let mut env = match turn.saved_state {
            Some(_) => Environment::new(),
            None => parse_environment(&initial_environment),
        };
        for name in turn.caller_variables {
            if let Some(value) = self.environment.get(OsStr::new(name)) {
                env.insert(name.into(), value.clone());
            }
        }
        let count = (session.metadata.execution_count + 1).to_string();
        let marks = [
            (MARK_VARIABLES[0], session.metadata.session_id.as_str()),
            (MARK_VARIABLES[1], count.as_str()),
        ];
        env.extend(marks.map(|(name, value)| (name.into(), value.into())));
        let (cwd, arguments) = match kind {
            SessionKind::Bash => {
                (turn.session_dir, bash::prepare_bash(turn, &initial_environment, &mut env)?)
            }
            SessionKind::Python => (turn.next_state_dir, python::prepare_python(turn, &mut env)?),
            SessionKind::Other => (turn.work_dir, session.metadata.arguments.clone()),
        };
        let argv = [vec![session.metadata.program.clone()], arguments].concat();
        let output_dir = session.dir.join("output");
        remove_output_files(&output_dir, &count);
        let secrets = turn.secrets.clone();
        let launch = LaunchContext { secrets, ..LaunchContext::new(cwd, env) };
        let command = ProcessCommand {
            stdin: if kind == SessionKind::Other { turn.text } else { &[] },
            spool: Some(SpoolFiles {
                dir: &output_dir,
                stem: &count,
                inline_bytes: MAX_SHOWN_BYTES,
                max_bytes: MAX_SPOOL_BYTES,
                continues_output: true,
            }),
            marks: &marks,
            ..ProcessCommand::new(&argv, &launch, timeout, MAX_SHOWN_BYTES)
        };
        Ok(process::run_process(&command, cancel))
    }
}

/// Removes the output of a command with this number that was killed before it was counted.
fn remove_output_files(output_dir: &Path, count: &str) {
    for stream in ["stdout", "stderr", "later.stdout", "later.stderr"] {
        let _ = durable::remove_file_no_follow(&output_dir.join(format!("{count}.{stream}")));
    }
}

/// Commits the state that a command left and reports the command.
fn finish_turn(
    session: &mut LockedSession,
    kind: SessionKind,
    turn: &SessionTurn<'_>,
    finished: &ProcessResult,
    timeout: Duration,
) -> SessionResult<SessionExecReport> {
    let exit_code = match &finished.end {
        ProcessEnd::Exited(code) => *code,
        ProcessEnd::Killed(signal) => 128 + signal,
        ProcessEnd::TimedOut => 124,
        ProcessEnd::Cancelled | ProcessEnd::OutOfTime | ProcessEnd::ForMessage => {
            kind.clean_up(turn);
            return Err(SessionError::Interrupted);
        }
        ProcessEnd::NotStarted { reason, .. } => {
            return Err(SessionError::NotStarted(reason.clone()));
        }
    };
    let timed_out = matches!(finished.end, ProcessEnd::TimedOut);
    let is_python = kind == SessionKind::Python;
    if is_python && let Some(reason) = python::python_refusal(turn.next_state_dir) {
        return Err(SessionError::Damaged { dir: session.dir.clone(), reason });
    }
    let change = if timed_out { SessionStateChange::Lost } else { kind.save_state(turn)? };
    let not_preserved =
        if is_python { python::names_not_preserved(turn.next_state_dir) } else { Vec::new() };
    kind.clean_up(turn);
    session.metadata.execution_count += 1;
    session.metadata.last_executed_at = Some(time::current_time());
    if change == SessionStateChange::Saved {
        let work_dir = read_path_line(&turn.next_state_dir.join(WORK_DIR_FILE))?;
        session.metadata.state += 1;
        session.metadata.work_dir = work_dir.display().to_string();
    }
    session.save_metadata()?;
    match change {
        SessionStateChange::Saved => store::remove_state_dir(turn.state_dir),
        SessionStateChange::Unchanged => {}
        SessionStateChange::Lost => store::remove_state_dir(turn.next_state_dir),
    }
    let loss = if timed_out {
        format!("timed out after {} ms", timeout.as_millis())
    } else {
        kind.abnormal_exit().to_owned()
    };
    let note = (change == SessionStateChange::Lost)
        .then(|| format!("{loss}; the session keeps its previous state"));
    let output_dir = format!("{SESSIONS_DIR}/{}/output", session.metadata.session_id);
    let files = &finished.left.output_files;
    let background_output = match &finished.left.lost_output {
        None => files.iter().map(|name| format!("{output_dir}/{name}")).collect(),
        Some(reason) => vec![format!("lost: {reason}")],
    };
    Ok(SessionExecReport {
        stdout: shown_text(&finished.stdout, &output_dir),
        stderr: shown_text(&finished.stderr, &output_dir),
        exit_code,
        execution_time_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
        stdout_file: output_file(&finished.stdout, &output_dir),
        stderr_file: output_file(&finished.stderr, &output_dir),
        background_output,
        timed_out,
        not_preserved,
        note,
    })
}

/// What a report shows of a stream.
fn shown_text(capture: &OutputCapture, output_dir: &str) -> String {
    let mut text = String::new();
    truncated_output::append_truncated(&mut text, capture, output_dir, "no file");
    text
}

/// The file that holds all of a stream, when there is one.
fn output_file(capture: &OutputCapture, output_dir: &str) -> Option<String> {
    let name = capture.file.as_deref()?.file_name()?.to_string_lossy();
    Some(format!("{output_dir}/{name}"))
}

/// Ensures that a command can enter its working directory: like a shell, a session continues in a directory that was
/// removed. Returns how many directories at the end of the path were created for that; the command removes them once it is
/// inside.
fn ensure_enterable(work_dir: &Path) -> SessionResult<usize> {
    if access(work_dir, Access::EXEC_OK).is_ok() {
        return Ok(0);
    }
    let inaccessible =
        |source: io::Error| SessionError::WorkDirInaccessible { dir: work_dir.to_owned(), source };
    let missing = work_dir.ancestors().take_while(|dir| !dir.exists()).count();
    if missing > 0 {
        durable::ensure_private_dir(work_dir).map_err(|error| inaccessible(error.source))?;
    }
    access(work_dir, Access::EXEC_OK).map_err(|error| inaccessible(error.into()))?;
    Ok(missing)
}

/// The path of a working directory. In the path of a removed one, `..` is resolved as a shell does after `cd ..`.
fn existing_work_dir(dir: PathBuf) -> PathBuf {
    if dir.exists() {
        return dir;
    }
    let mut resolved = PathBuf::new();
    for component in dir.components() {
        match component {
            Component::ParentDir => drop(resolved.pop()),
            component => resolved.push(component),
        }
    }
    resolved
}

fn parse_environment(bytes: &[u8]) -> Environment {
    let variables = bytes.split(|byte| *byte == 0).filter_map(|variable| {
        let (name, value) = variable.split_at(memchr::memchr(b'=', variable)?);
        Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value[1..].to_vec())))
    });
    variables.collect()
}

fn read_session_file(path: &Path) -> SessionResult<Vec<u8>> {
    durable::read_no_follow(path)
        .map_err(|source| SessionError::Unreadable { path: path.to_owned(), source })
}

/// Reads a file that holds a path and a newline.
fn read_path_line(path: &Path) -> SessionResult<PathBuf> {
    let mut bytes = read_session_file(path)?;
    bytes.pop_if(|byte| *byte == b'\n');
    Ok(OsString::from_vec(bytes).into())
}
