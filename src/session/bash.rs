//! Sessions of bash: the whole state of the shell outlives the command, however that ends.
//!
//! The text of a command is never part of a script: bash reads it from a file and evaluates it. What of the shell is state
//! is decided in bash.sh, which writes it as commands that bring it back.

use super::WORK_DIR;
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
    r#"if [[ ${__delta_state[0]-} == *$'\n#xtrace\n'* ]]; then "#,
    r#"{ builtin eval "${__delta_state[0]}" >/dev/null; builtin eval "${__delta_text[0]-}" 2>&3 3>&-; } 3>&2 2>/dev/null; "#,
    r#"else builtin eval "${__delta_state[0]-}" >/dev/null 2>&1; builtin eval "${__delta_text[0]-}"; fi"#,
    "\n",
);
/// What bash sets itself.
#[rustfmt::skip]
const FOREIGN: [&str; 34] = [
    "_", "BASH", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS",
    "BASH_COMMAND", "BASH_EXECUTION_STRING", "BASH_LINENO", "BASH_MONOSECONDS", "BASH_SOURCE", "BASH_SUBSHELL",
    "BASH_TRAPSIG", "BASH_VERSINFO", "BASH_VERSION", "COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS",
    "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO", "PIPESTATUS", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SRANDOM",
    "UID",
];

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
    set("__delta_mark", mark(turn).into());
    set("__delta_gone", turn.missing.to_string().into());
    if let Some(old) = env.remove(&OsString::from("OLDPWD")) {
        env.insert("__delta_oldpwd".into(), old);
    }
    // It would be read before the script.
    env.remove(&OsString::from("BASH_ENV"));
    Ok(["--noprofile", "--norc", "bash"].map(str::to_owned).into())
}

/// Puts together what the shell wrote at its end, as commands that bring it back; false when it was not written to its
/// end. What is a secret of the environment is not in it.
///
/// Functions stand behind variables and aliases, because a function may be named like a builtin and an alias must not be
/// expanded in it; options stand last, because they change how all else is read.
pub(super) fn is_whole(turn: &Turn<'_>) -> Result<bool, FileError> {
    let Ok(written) = fs::read(turn.next.join("parts")) else { return Ok(false) };
    let mark = mark(turn);
    let parts: Vec<&[u8]> = split_at_lines(&written, mark.as_bytes());
    let [options, place, variables, shell, functions, attributes, status, rest] = parts[..] else {
        return Ok(false);
    };
    if !rest.is_empty() {
        return Ok(false);
    }
    durable::write_new(&turn.next.join(WORK_DIR), place)?;
    let mut state =
        b"builtin unset -v __delta_from __delta_dir __delta_cwd __delta_gone __delta_skip __delta_mark PATH TERM IFS\n".to_vec();
    push_variables(&mut state, variables);
    state.extend_from_slice(shell);
    state.extend_from_slice(b"builtin shopt -s extglob\n");
    state.extend_from_slice(functions);
    for line in attributes.split_inclusive(|byte| *byte == b'\n') {
        state.extend_from_slice(b"builtin ");
        state.extend_from_slice(line);
    }
    push_options(
        &mut state,
        &String::from_utf8_lossy(options),
        String::from_utf8_lossy(status).trim(),
    );
    let mut filter = turn.secrets.stream();
    let mut hidden = filter.push(&state).into_owned();
    hidden.extend(filter.finish());
    durable::exchange(&turn.next.join(STATE), &hidden)?;
    Ok(true)
}

/// The line that ends each part of what the shell writes.
fn mark(turn: &Turn<'_>) -> String {
    format!("# end of a part of {}", turn.next.display())
}

/// What lies between the lines that are `mark`.
fn split_at_lines<'a>(text: &'a [u8], mark: &[u8]) -> Vec<&'a [u8]> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.strip_suffix(b"\n") == Some(mark) {
            parts.push(&text[begin..at]);
            begin = at + line.len();
        }
        at += line.len();
    }
    parts.push(&text[begin..]);
    parts
}

/// Adds the variables that belong to the state, as `declare -p` printed them: not those that bash sets itself. Where it
/// printed several levels, each lies behind the one before, and the last one counts.
fn push_variables(state: &mut Vec<u8>, printed: &[u8]) {
    let mut behind = false;
    for statement in statements(printed) {
        behind |= statement == b"# level\n";
        let Some(name) = name_of(statement) else { continue };
        if name.starts_with("__delta_") || FOREIGN.contains(&name) {
            continue;
        }
        if behind {
            state.extend_from_slice(format!("builtin unset -v {name}\n").as_bytes());
        }
        state.extend_from_slice(statement);
    }
}

/// The name of the variable that a statement declares.
fn name_of(statement: &[u8]) -> Option<&str> {
    let mut words = statement.splitn(3, |byte| *byte == b' ');
    let (_, _, rest) =
        (words.next().filter(|word| *word == b"declare")?, words.next()?, words.next()?);
    let end = rest.iter().position(|byte| matches!(byte, b'=' | b'\n')).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).ok()
}

/// The statements, each with the newline that ends it: one that is not quoted.
fn statements(mut text: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !text.is_empty() {
        let (statement, rest) = text.split_at(statement_length(text));
        found.push(statement);
        text = rest;
    }
    found
}

fn statement_length(text: &[u8]) -> usize {
    let (mut quote, mut at) = (None, 0);
    while at < text.len() {
        match (quote, text[at]) {
            (None, b'\n') => return at + 1,
            // In `$'...'` a backslash escapes, in `'...'` it does not.
            (None, b'\'') if at > 0 && text[at - 1] == b'$' => quote = Some(b'$'),
            (None, open @ (b'\'' | b'"')) => quote = Some(open),
            (None | Some(b'"' | b'$'), b'\\') => at += 1,
            (Some(b'$'), b'\'') => quote = None,
            (Some(open), close) if open == close && open != b'$' => quote = None,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// Adds the options, and what `$?` is to be.
fn push_options(state: &mut Vec<u8>, printed: &str, status: &str) {
    let (mut commands, mut marks, mut end) =
        ([String::new(), String::new(), String::new()], "", status);
    for line in printed.lines() {
        let mut words = line.split(' ');
        let (Some(command), Some(sign), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        match (command, sign, name) {
            // These would end the next command, or follow from BASH_COMPAT.
            (_, _, "noexec" | "onecmd" | "privileged" | "login_shell" | "restricted_shell") => {}
            ("shopt", _, name) if name.starts_with("compat") => {}
            ("shopt", sign, name) => {
                let place = usize::from(sign == "-s");
                commands[place].push_str(&format!(" {name}"));
            }
            (_, sign, name) => {
                // Where the last command has failed, `set -e` would end the next one before it begins.
                if (sign, name) == ("-o", "errexit") {
                    end = "0";
                }
                if (sign, name) == ("-o", "xtrace") {
                    marks = "#xtrace\n";
                }
                commands[2].push_str(&format!(" {sign} {name}"));
            }
        }
    }
    let [off, on, set] = commands;
    let last = format!(
        "{marks}builtin shopt -u{off}\nbuiltin shopt -s{on}\nbuiltin set{set}\n__delta_end {end}\n"
    );
    state.extend_from_slice(last.as_bytes());
}

/// Removes what only the run of the command needed.
pub(super) fn tidy(next: &Path) {
    for name in ["text", "begin", "bash", "list", "parts"] {
        let _ = fs::remove_file(next.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_2_statements_end_at_newlines_that_are_not_quoted() {
        let all = [
            "declare -- a=\"x \\\"\\\\\"\n",
            "declare -x b=$'new\\nline \\' \"'\n",
            "declare -- old=\"raw\nnewline \\$x 'y\"\n",
            "declare -A m=([\"k k\"]=\"v\" [$'a\\'b']=\"\" ['c\\']=\"d\" )\n",
            "declare -i empty\n",
        ];
        let text = all.concat();
        let found = statements(text.as_bytes());
        assert_eq!(found, all.map(str::as_bytes));
        let names: Vec<_> = found.into_iter().filter_map(name_of).collect();
        assert_eq!(names, ["a", "b", "old", "m", "empty"]);
    }
}
