//! Sessions of bash: the whole state of the shell outlives the command, however the command ends.
//!
//! The text of a command is never part of a script: bash reads it from a variable or a file and evaluates it. bash_end.sh
//! decides what is state, and prints it as commands that restore it.

mod declarations;

use self::declarations::{declared_name, split_statements};
use crate::store::{SessionStateChange, SessionTurn};
use crate::{Environment, WORK_DIR_FILE};
use delta_base::durable::{self, FileError};
use memchr::memmem;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Restores the state, and ensures that it is saved at the end.
const BEGIN_SCRIPT: &str = include_str!("bash.sh");
/// Prints the state.
const END_SCRIPT: &str = include_str!("bash_end.sh");
/// The function `trap`.
const TRAP_SCRIPT: &str = include_str!("bash_trap.sh");
/// The script that bash runs. It is one line, in a file called `bash`: error messages then begin as in bash and count the
/// lines of the command, and functions, which remember their file, do not name another one. `set -x` traces the command
/// and not the commands around it.
const MAIN_SCRIPT: &str = concat!(
    r#"if [[ -n ${__delta_trace-} ]]; then "#,
    r#"{ builtin eval "$__delta_begin" >/dev/null; builtin eval -- "${__delta_text-}" 2>&3 3>&-; } 3>&2 2>/dev/null; "#,
    r#"else builtin eval "$__delta_begin" >/dev/null 2>&1; builtin eval -- "${__delta_text-}"; fi"#,
    "\n",
);
const SCRIPT_FILE: &str = "bash";
/// A text that is too long for a variable.
const TEXT_FILE: &str = "text";
/// Names of variables. It exists while the shell looks for variables that local ones hide.
const NAME_LIST_FILE: &str = "list";
/// What the shell prints at its end; blank between two commands.
const PARTS_FILE: &str = "parts";
/// The most that is passed in a variable, which is faster than a file. The kernel's limit is 128 KiB.
const MAX_VARIABLE_BYTES: usize = 64 * 1024;
/// Unsets what bash sets when the environment does not: the session may have unset it.
const UNSET_DEFAULTS: &[u8] =
    b"builtin unset -v __delta_state PATH TERM IFS HOME SHELL HOSTNAME HOSTTYPE MACHTYPE OSTYPE PS4 OPTERR SHLVL\n";
/// The first line of a state that sets `xtrace`.
const XTRACE_MARK: &[u8] = b"#xtrace\n";
/// Variables that bash sets itself and that are not part of a state.
#[rustfmt::skip]
const BASH_OWN_VARIABLES: [&str; 34] = [
    "_", "BASH", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS",
    "BASH_COMMAND", "BASH_EXECUTION_STRING", "BASH_LINENO", "BASH_MONOSECONDS", "BASH_SOURCE", "BASH_SUBSHELL",
    "BASH_TRAPSIG", "BASH_VERSINFO", "BASH_VERSION", "COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS",
    "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO", "PIPESTATUS", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SRANDOM",
    "UID",
];

pub(crate) const STATE_FILE: &str = "state.sh";

/// Writes the files that bash needs and sets its environment. Returns its arguments. `initial_environment` is the
/// environment in which the session was started, each variable ended by NUL.
pub(crate) fn prepare_bash(
    turn: &SessionTurn<'_>,
    initial_environment: &[u8],
    env: &mut Environment,
) -> Result<Vec<String>, FileError> {
    // A command that was killed left its output here, and its shell may still write to the file.
    durable::ensure_blank_file(&turn.session_dir.join(PARTS_FILE))?;
    let script = turn.session_dir.join(SCRIPT_FILE);
    if durable::read_no_follow(&script).ok().as_deref() != Some(MAIN_SCRIPT.as_bytes()) {
        durable::replace_private_unsynced(&script, MAIN_SCRIPT.as_bytes())?;
    }
    if has_long_text(turn) {
        durable::replace_private_unsynced(&turn.session_dir.join(TEXT_FILE), turn.text)?;
    } else {
        env.insert("__delta_text".into(), OsString::from_vec(turn.text.to_vec()));
    }
    if sets_xtrace(turn) {
        env.insert("__delta_trace".into(), "1".into());
    }
    for (name, is_full) in [("__delta_plain", false), ("__delta_full", true)] {
        env.insert(name.into(), OsString::from_vec(end_script(turn, is_full)));
    }
    let mut begin = begin_script(turn);
    if let Some(state) = turn.saved_state {
        // The state sets both. Without them in the environment, bash would look them up in the user database.
        env.insert("HOME".into(), "/".into());
        env.insert("SHELL".into(), "/bin/sh".into());
        insert_foreign_variables(initial_environment, env);
        if !has_long_state(turn) {
            begin.extend_from_slice(state);
        }
    }
    env.insert("__delta_begin".into(), OsString::from_vec(begin));
    if let Some(value) = env.remove(OsStr::new("OLDPWD")) {
        env.insert("__delta_oldpwd".into(), value);
    }
    // bash would read the first before the script; under the others a function cannot be called `trap`.
    for name in ["BASH_ENV", "POSIXLY_CORRECT", "SHELLOPTS"] {
        env.remove(OsStr::new(name));
    }
    Ok(["--noprofile", "--norc", SCRIPT_FILE].map(str::to_owned).into())
}

fn has_long_text(turn: &SessionTurn<'_>) -> bool {
    turn.text.len() > MAX_VARIABLE_BYTES
}

fn has_long_state(turn: &SessionTurn<'_>) -> bool {
    turn.saved_state.is_some_and(|state| state.len() > MAX_VARIABLE_BYTES)
}

fn sets_xtrace(turn: &SessionTurn<'_>) -> bool {
    turn.saved_state.is_some_and(|state| state.starts_with(XTRACE_MARK))
}

fn begin_script(turn: &SessionTurn<'_>) -> Vec<u8> {
    fill_script(
        BEGIN_SCRIPT,
        &[
            ("trace", sets_xtrace(turn)),
            ("long", has_long_text(turn)),
            ("gone", turn.recreated_dirs > 0),
            ("new", turn.saved_state.is_none()),
            ("from", has_long_state(turn)),
        ],
        &[
            ("TRAP", single_quote(&fill_script(TRAP_SCRIPT, &[], &[]))),
            ("LONG", quote_path(&turn.session_dir.join(TEXT_FILE))),
            ("CWD", quote_path(turn.work_dir)),
            ("GONE", turn.recreated_dirs.to_string().into()),
            ("FROM", quote_path(&turn.state_dir.join(STATE_FILE))),
        ],
    )
}

/// The script that prints the state: a short one, or the `full` one for shells with rare features.
fn end_script(turn: &SessionTurn<'_>, is_full: bool) -> Vec<u8> {
    fill_script(
        END_SCRIPT,
        &[("full", is_full)],
        &[
            ("MARK", single_quote(part_end_mark(turn).as_bytes())),
            ("PARTS", quote_path(&turn.session_dir.join(PARTS_FILE))),
            ("LIST", quote_path(&turn.session_dir.join(NAME_LIST_FILE))),
            ("SKIP", turn.caller_variables.join(" ").into()),
        ],
    )
}

/// Adds the variables whose names are not names in a shell: no state contains them, but children inherit them.
fn insert_foreign_variables(initial_environment: &[u8], env: &mut Environment) {
    for variable in initial_environment.split(|byte| *byte == 0) {
        if let Some((name, value)) = memchr::memchr(b'=', variable).map(|at| variable.split_at(at))
            && !is_bash_name(name)
        {
            env.insert(OsStr::from_bytes(name).into(), OsStr::from_bytes(&value[1..]).into());
        }
    }
}

/// Saves what the shell printed at its end, as commands that restore it. It does not contain the keys of the environment.
///
/// Functions come after variables and aliases: a function may be named like a builtin, and aliases must not be expanded in
/// functions. Options come last, because they change how everything else is read.
pub(crate) fn save_bash_state(turn: &SessionTurn<'_>) -> Result<SessionStateChange, FileError> {
    let Ok(printed) = durable::read_no_follow(&turn.session_dir.join(PARTS_FILE)) else {
        return Ok(SessionStateChange::Lost);
    };
    let Some(BashState { script, work_dir }) = restoring_script(turn, &printed) else {
        return Ok(SessionStateChange::Lost);
    };
    let mut redactor = turn.secrets.stream_redactor();
    let mut redacted = redactor.push(&script).into_owned();
    redacted.extend(redactor.finish());
    let is_same_dir =
        turn.work_dir.as_os_str().as_bytes() == work_dir.strip_suffix(b"\n").unwrap_or(work_dir);
    if is_same_dir && turn.saved_state == Some(redacted.as_slice()) {
        return Ok(SessionStateChange::Unchanged);
    }
    durable::ensure_private_dir(turn.next_state_dir)?;
    durable::create_private_unsynced(&turn.next_state_dir.join(WORK_DIR_FILE), work_dir)?;
    durable::create_private_unsynced(&turn.next_state_dir.join(STATE_FILE), &redacted)?;
    Ok(SessionStateChange::Saved)
}

/// The state that a shell left.
struct BashState<'a> {
    /// The commands that restore it.
    script: Vec<u8>,
    /// The working directory, and a newline.
    work_dir: &'a [u8],
}

/// Builds the script that restores what the shell printed; returns nothing when the shell did not print all of its state.
fn restoring_script<'a>(turn: &SessionTurn<'_>, printed: &'a [u8]) -> Option<BashState<'a>> {
    let mark = part_end_mark(turn);
    let end = memmem::rfind(printed, format!("{mark} all\n").as_bytes())?;
    let parts: Vec<&[u8]> = split_at_mark_lines(&printed[..end], mark.as_bytes());
    let [options, work_dir, variables, shell, functions, attributes] = parts[..] else {
        return None;
    };
    let options = String::from_utf8_lossy(options);
    let options = ShellOptions::parse(&options)?;
    // A shell whose `pwd` was disabled does not print its directory.
    if !work_dir.starts_with(b"/") {
        return None;
    }
    let mut script = Vec::with_capacity(end);
    if options.has_xtrace() {
        script.extend_from_slice(XTRACE_MARK);
    }
    script.extend_from_slice(UNSET_DEFAULTS);
    if push_variables(&mut script, variables) {
        let _ = durable::remove_file_no_follow(&turn.session_dir.join(NAME_LIST_FILE));
    }
    script.extend_from_slice(shell);
    script.extend_from_slice(b"builtin shopt -s extglob\n");
    script.extend_from_slice(functions);
    for line in attributes.split_inclusive(|byte| *byte == b'\n') {
        script.extend_from_slice(b"builtin ");
        script.extend_from_slice(line);
    }
    options.push_commands(&mut script);
    Some(BashState { script, work_dir })
}

/// Fills a template: drops comments and the lines between `#if NAME` and `#end` whose condition is false, and replaces
/// `@NAME@` by the value of the name.
fn fill_script(template: &str, conditions: &[(&str, bool)], values: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut script = Vec::with_capacity(2 * template.len());
    let mut is_included = true;
    for line in template.lines().map(str::trim_start) {
        if let Some(name) = line.strip_prefix("#if ") {
            is_included = conditions.contains(&(name, true));
        } else if line == "#end" {
            is_included = true;
        } else if is_included && !(line.is_empty() || line.starts_with('#')) {
            push_filled_line(&mut script, line, values);
            script.push(b'\n');
        }
    }
    script
}

fn push_filled_line(script: &mut Vec<u8>, mut line: &str, values: &[(&str, Vec<u8>)]) {
    while let Some((before, after)) = line.split_once('@') {
        script.extend_from_slice(before.as_bytes());
        let placeholder = after.split_once('@').and_then(|(name, rest)| {
            Some((values.iter().find(|(known, _)| *known == name)?, rest))
        });
        line = match placeholder {
            Some(((_, value), rest)) => {
                script.extend_from_slice(value);
                rest
            }
            None => {
                script.push(b'@');
                after
            }
        };
    }
    script.extend_from_slice(line.as_bytes());
}

fn quote_path(path: &Path) -> Vec<u8> {
    single_quote(path.as_os_str().as_bytes())
}

/// Quotes any bytes as one word of a script.
fn single_quote(bytes: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for (index, part) in bytes.split(|byte| *byte == b'\'').enumerate() {
        if index > 0 {
            word.extend_from_slice(br"'\''");
        }
        word.extend_from_slice(part);
    }
    word.push(b'\'');
    word
}

/// The line that ends each part of what the shell prints.
fn part_end_mark(turn: &SessionTurn<'_>) -> String {
    format!("# end of a part of {}", turn.next_state_dir.display())
}

/// The parts between the lines that are equal to `mark`.
fn split_at_mark_lines<'a>(text: &'a [u8], mark: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for at in memmem::find_iter(text, mark) {
        let end = at + mark.len();
        let is_line =
            (at == begin || text[..at].ends_with(b"\n")) && text[end..].starts_with(b"\n");
        if is_line {
            parts.push(&text[begin..at]);
            begin = end + 1;
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// Adds the variables that `declare -p` printed, except the variables that bash sets itself. It may have printed several
/// levels of scope, innermost first: the last declaration of a name counts. Returns whether there were several.
fn push_variables(script: &mut Vec<u8>, printed: &[u8]) -> bool {
    let mut is_outer_level = false;
    for statement in split_statements(printed) {
        is_outer_level |= statement == b"# level\n";
        let Some(name) = declared_name(statement) else { continue };
        if name.starts_with("__delta_") || BASH_OWN_VARIABLES.contains(&name) {
            continue;
        }
        if is_outer_level {
            script.extend_from_slice(format!("builtin unset -v {name}\n").as_bytes());
        }
        push_declaration(script, statement);
    }
    is_outer_level
}

/// Whether a shell can have a variable or an exported function of this name.
fn is_bash_name(name: &[u8]) -> bool {
    name.starts_with(b"BASH_FUNC_")
        || name.first().is_some_and(|first| !first.is_ascii_digit())
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Adds a declaration so that the value is assigned before its attributes act on assignments: otherwise an integer would
/// be evaluated again, and a value from before `declare -u` would become upper case.
fn push_declaration(script: &mut Vec<u8>, statement: &[u8]) {
    let parts = statement.strip_prefix(b"declare -").and_then(|rest| {
        let (attributes, rest) = rest.split_at(memchr::memchr(b' ', rest)?);
        let name = &rest[1..=memchr::memchr(b'=', &rest[1..])?];
        Some((attributes, name, rest))
    });
    match parts {
        Some((attributes, name, value))
            if attributes.iter().any(|attribute| b"iluc".contains(attribute))
                && !attributes.contains(&b'n') =>
        {
            let kind = attributes.iter().find(|attribute| b"aA".contains(attribute));
            script.extend([b"declare -", &[*kind.unwrap_or(&b'-')][..], value].concat());
            script.extend([b"declare -", attributes, b" ", name, b"\n"].concat());
        }
        _ => script.extend_from_slice(statement),
    }
}

/// The names of the options that are on.
struct OptionNames<'a> {
    set: Vec<&'a str>,
    shopt: Vec<&'a str>,
}

/// The options of a new shell and of the shell that ends, and the exit status that the next command finds in `$?`.
struct ShellOptions<'a> {
    initial: OptionNames<'a>,
    current: OptionNames<'a>,
    exit_status: &'a str,
}

impl<'a> ShellOptions<'a> {
    /// Parses the first part of what the shell printed.
    fn parse(printed: &'a str) -> Option<Self> {
        let mut words = printed.trim_end().split(' ');
        let mut names = || {
            let names = words.next()?.split(':').filter(|name| {
                // The named ones would end the next command; `compat...` follows from BASH_COMPAT.
                let fatal = ["noexec", "onecmd", "privileged", "login_shell", "restricted_shell"];
                !(name.is_empty() || fatal.contains(name) || name.starts_with("compat"))
            });
            Some(names.collect())
        };
        Some(Self {
            initial: OptionNames { set: names()?, shopt: names()? },
            current: OptionNames { set: names()?, shopt: names()? },
            exit_status: words.next()?,
        })
    }

    fn has_xtrace(&self) -> bool {
        self.current.set.contains(&"xtrace")
    }

    /// Adds the commands that set the options and `$?`.
    fn push_commands(&self, script: &mut Vec<u8>) {
        let Self { initial, current, exit_status } = self;
        let turned_off = initial.shopt.iter().filter(|name| !current.shopt.contains(name));
        push_options(script, "builtin shopt -u", "", turned_off);
        push_options(script, "builtin shopt -s", "", current.shopt.iter());
        // It is on while functions are read.
        if !current.shopt.contains(&"extglob") {
            script.extend_from_slice(b"builtin shopt -u extglob\n");
        }
        let turned_off = initial.set.iter().filter(|name| !current.set.contains(name));
        push_options(script, "builtin set", "+o ", turned_off);
        push_options(script, "builtin set", "-o ", current.set.iter());
        // After a failed command, `set -e` would end the next one before it begins.
        let status = if current.set.contains(&"errexit") { "0" } else { exit_status };
        script.extend_from_slice(format!("__delta_end {status}\n").as_bytes());
    }
}

/// Adds a command with each of the names as an argument after `prefix`; nothing without names.
fn push_options<'a>(
    script: &mut Vec<u8>,
    command: &str,
    prefix: &str,
    names: impl Iterator<Item = &'a &'a str>,
) {
    let arguments: String = names.map(|name| format!(" {prefix}{name}")).collect();
    if !arguments.is_empty() {
        script.extend_from_slice(format!("{command}{arguments}\n").as_bytes());
    }
}

/// Removes the files that were needed only while the command ran.
pub(crate) fn clean_up_bash(turn: &SessionTurn<'_>) {
    if has_long_text(turn) {
        let _ = durable::remove_file_no_follow(&turn.session_dir.join(TEXT_FILE));
    }
    let parts = turn.session_dir.join(PARTS_FILE);
    if durable::overwrite_with_blanks(&parts).is_err() {
        let _ = durable::remove_file_no_follow(&parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_2_a_template_is_filled() {
        let template = "# why\n  a @X@ \"$@\" @Y@\n#if b\n  b\n#end\n\n#if c\nc @X@@X@\n#end\nd";
        let value = [("X", single_quote(b"it's"))];
        let script = fill_script(template, &[("b", false), ("c", true)], &value);
        let expected = r#"a 'it'\''s' "$@" @Y@
c 'it'\''s''it'\''s'
d
"#;
        assert_eq!(String::from_utf8_lossy(&script), expected);
    }

    #[test]
    fn c_14_2_parts_end_at_mark_lines() {
        let text = b"a\n# m\nb # m\n# m x\n# m\n# m\nc";
        let parts: [&[u8]; 4] = [b"a\n", b"b # m\n# m x\n", b"", b"c"];
        assert_eq!(split_at_mark_lines(text, b"# m"), parts);
    }
}
