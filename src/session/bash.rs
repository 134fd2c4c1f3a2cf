//! Sessions of bash: the whole state of the shell outlives the command, however that ends.
//!
//! The text of a command is never part of a script: bash reads it from a file and evaluates it. What of the shell is state
//! is decided in bash.sh, which writes it as commands that bring it back.

use super::store::Turn;
use crate::durable::{self, FileError};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Reads what is to be run, and sees to it that the state is written at the end.
const BEGIN: &str = include_str!("bash.sh");
/// What bash is given as its script. It is one line, and in a file called `bash`, so that errors begin as those of bash do
/// and count the lines of the command; and functions, which remember the file in which they stand, name no other. With
/// `set -x` what is traced is the command, not how it is begun.
const SCRIPT: &str = concat!(
    r#"builtin source "$__delta_dir/begin"; "#,
    r#"if [[ ${__delta_state[0]-} == *$'\nbuiltin set -o xtrace\n'* ]]; then "#,
    r#"{ builtin eval "${__delta_state[0]}" >/dev/null; builtin eval "${__delta_text[0]-}" 2>&3 3>&-; } 3>&2 2>/dev/null; "#,
    r#"else builtin eval "${__delta_state[0]-}" >/dev/null 2>&1; builtin eval "${__delta_text[0]-}"; fi"#,
    "\n",
);
/// The last line of a state that was written to its end.
const WHOLE: &[u8] = b"\n# whole\n";

/// The name of the file that holds the state.
pub(super) const STATE: &str = "state.sh";

/// Writes what bash needs into the directory of the turn; gives its arguments and changes its environment.
pub(super) fn prepare(
    turn: &Turn<'_>,
    env: &mut BTreeMap<OsString, OsString>,
) -> Result<Vec<String>, FileError> {
    durable::write_new(&turn.next.join("text"), turn.text)?;
    durable::write_new(&turn.next.join("begin"), BEGIN.as_bytes())?;
    durable::write_new(&turn.next.join("bash"), SCRIPT.as_bytes())?;
    let before = turn.before.join(STATE);
    let mut set = |name: &str, value: OsString| env.insert(name.into(), value);
    if before.is_file() {
        set("__delta_from", before.into());
    }
    set("__delta_dir", turn.next.into());
    set("__delta_cwd", turn.work_dir.into());
    set("__delta_skip", turn.passing.join(" ").into());
    set("__delta_gone", turn.missing.to_string().into());
    if let Some(old) = env.remove(&OsString::from("OLDPWD")) {
        env.insert("__delta_oldpwd".into(), old);
    }
    // It would be read before the script.
    env.remove(&OsString::from("BASH_ENV"));
    Ok(["--noprofile", "--norc", "bash"].map(str::to_owned).into())
}

/// Whether the state was written to its end. What is a secret of the environment does not stay in it.
pub(super) fn is_whole(turn: &Turn<'_>) -> Result<bool, FileError> {
    let path = turn.next.join(STATE);
    let Ok(bytes) = fs::read(&path) else { return Ok(false) };
    if !bytes.ends_with(WHOLE) {
        return Ok(false);
    }
    let mut filter = turn.secrets.stream();
    let mut hidden = filter.push(&bytes).into_owned();
    hidden.extend(filter.finish());
    if hidden != bytes {
        durable::exchange(&path, &hidden)?;
    }
    Ok(true)
}

/// Removes what only the run of the command needed.
pub(super) fn tidy(next: &Path) {
    for name in ["text", "begin", "bash", "list"] {
        let _ = fs::remove_file(next.join(name));
    }
}
