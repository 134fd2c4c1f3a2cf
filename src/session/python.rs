//! Sessions of Python: what of `__main__` can be pickled outlives the command, functions and classes included.
//!
//! The text of a command is read from a file and compiled as it is. What is state, and how it is pickled, is decided in
//! python.py, which needs nothing but the standard library.

use super::store::{Left, Turn};
use crate::durable::{self, FileError};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Runs the command; given by `-c`, so that `sys.path` begins as in the interactive interpreter.
const START: &str = "exec(compile(open('run.py', encoding='utf-8').read(), '<delta-sessions>', 'exec'), {'__name__': 'delta_sessions'})";
const RUNNER: &str = include_str!("python.py");
/// The name of the file that holds the state.
const STATE: &str = "state.pickle";
/// The file with the names that could not be kept.
const LOST: &str = "not_preserved.json";

/// Writes what Python needs into the directory of the turn; gives its arguments and changes its environment.
pub(super) fn prepare(
    turn: &Turn<'_>,
    env: &mut BTreeMap<OsString, OsString>,
) -> Result<Vec<String>, FileError> {
    durable::ensure_dir(turn.next, true)?;
    durable::write_new(&turn.next.join("text"), turn.text)?;
    durable::write_new(&turn.next.join("run.py"), RUNNER.as_bytes())?;
    let mut set = |name: &str, value: OsString| env.insert(name.into(), value);
    set("__delta_from", turn.before.join(STATE).into());
    set("__delta_dir", turn.next.into());
    set("__delta_cwd", turn.work_dir.into());
    set("__delta_skip", turn.passing.join(" ").into());
    set("__delta_keys", turn.keys.join(" ").into());
    set("__delta_gone", turn.missing.to_string().into());
    // It would be run before the command, and again by each.
    env.remove(&OsString::from("PYTHONSTARTUP"));
    Ok(vec!["-c".to_owned(), START.to_owned()])
}

/// Looks whether the state was written to its end: it has its name only then.
pub(super) fn leave(turn: &Turn<'_>) -> Left {
    if turn.next.join(STATE).is_file() { Left::New } else { Left::Nothing }
}

/// Why nothing was run.
pub(super) fn refused(next: &Path) -> Option<String> {
    fs::read_to_string(next.join("refused")).ok()
}

/// The names that the command left and the next one will not find.
pub(super) fn not_preserved(next: &Path) -> Vec<String> {
    let read = fs::read(next.join(LOST)).ok();
    read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Removes what only the run of the command needed.
pub(super) fn tidy(next: &Path) {
    for name in ["text", "run.py", LOST] {
        let _ = fs::remove_file(next.join(name));
    }
}
