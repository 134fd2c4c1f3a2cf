//! Sessions of Python: everything in `__main__` that can be pickled outlives the command, including functions and classes.
//!
//! The text of a command is read from a file and compiled unchanged. python.py decides what is state and how it is
//! pickled; it needs only the standard library.

use crate::Environment;
use crate::store::{SessionStateChange, SessionTurn};
use delta_base::durable::{self, FileError};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Runs [`RUNNER_SCRIPT`]. Passed with `-c`, so that `sys.path` starts as in the interactive interpreter.
const START_CODE: &str = "exec(compile(open('run.py', encoding='utf-8').read(), '<delta-sessions>', 'exec'), {'__name__': 'delta_sessions'})";
const RUNNER_SCRIPT: &str = include_str!("python.py");
const STATE_FILE: &str = "state.pickle";
/// The names that could not be pickled.
const NOT_PRESERVED_FILE: &str = "not_preserved.json";

/// Writes the files that Python needs and sets its environment. Returns its arguments.
pub(crate) fn prepare_python(
    turn: &SessionTurn<'_>,
    env: &mut Environment,
) -> Result<Vec<String>, FileError> {
    durable::ensure_private_dir(turn.next_state_dir)?;
    durable::create_private_unsynced(&turn.next_state_dir.join("text"), turn.text)?;
    durable::create_private_unsynced(
        &turn.next_state_dir.join("run.py"),
        RUNNER_SCRIPT.as_bytes(),
    )?;
    let variables: [(&str, OsString); 6] = [
        ("__delta_from", turn.state_dir.join(STATE_FILE).into()),
        ("__delta_dir", turn.next_state_dir.into()),
        ("__delta_cwd", turn.work_dir.into()),
        ("__delta_skip", turn.caller_variables.join(" ").into()),
        ("__delta_keys", turn.key_variables.join(" ").into()),
        ("__delta_gone", turn.recreated_dirs.to_string().into()),
    ];
    env.extend(variables.map(|(name, value)| (name.into(), value)));
    // Python would run this file before every command.
    env.remove(OsStr::new("PYTHONSTARTUP"));
    Ok(vec!["-c".to_owned(), START_CODE.to_owned()])
}

/// Whether Python saved the state: its file gets its name when it is complete.
pub(crate) fn python_state_change(turn: &SessionTurn<'_>) -> SessionStateChange {
    if durable::is_file_no_follow(&turn.next_state_dir.join(STATE_FILE)) {
        SessionStateChange::Saved
    } else {
        SessionStateChange::Lost
    }
}

/// Why python.py did not run the command, if it did not.
pub(crate) fn python_refusal(next_state_dir: &Path) -> Option<String> {
    String::from_utf8(durable::read_no_follow(&next_state_dir.join("refused")).ok()?).ok()
}

/// The names that the next command will not find.
pub(crate) fn names_not_preserved(next_state_dir: &Path) -> Vec<String> {
    let bytes = durable::read_no_follow(&next_state_dir.join(NOT_PRESERVED_FILE)).ok();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Removes the files that were needed only while the command ran.
pub(crate) fn clean_up_python(next_state_dir: &Path) {
    for name in ["text", "run.py", NOT_PRESERVED_FILE] {
        let _ = durable::remove_file_no_follow(&next_state_dir.join(name));
    }
}
