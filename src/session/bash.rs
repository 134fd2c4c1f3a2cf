//! Sessions of bash: the whole state of the shell outlives the command, however that ends.
//!
//! The text of a command is never part of a script: bash reads it from a file and evaluates it. What of the shell is state
//! is decided in bash_end.sh, which writes it as commands that bring it back.

use super::WORK_DIR;
use super::store::{Left, Turn};
use crate::durable::{self, FileError};
use memchr::{memchr, memchr2, memmem};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Takes up what is to be run, and sees to it that the state is written at the end.
const BEGIN: &str = include_str!("bash.sh");
/// Writes the state.
const END: &str = include_str!("bash_end.sh");
/// Sets a trap.
const TRAP: &str = include_str!("bash_trap.sh");
/// What bash is given as its script. It is one line, and in a file called `bash`, so that errors begin as those of bash do
/// and count the lines of the command; and functions, which remember the file in which they stand, name no other. With
/// `set -x` what is traced is the command, not how it is begun.
const SCRIPT: &str = concat!(
    r#"if [[ -n ${__delta_trace-} ]]; then "#,
    r#"{ builtin eval "$__delta_begin" >/dev/null; builtin eval -- "${__delta_text-}" 2>&3 3>&-; } 3>&2 2>/dev/null; "#,
    r#"else builtin eval "$__delta_begin" >/dev/null 2>&1; builtin eval -- "${__delta_text-}"; fi"#,
    "\n",
);
/// The file of it.
const SCRIPT_FILE: &str = "bash";
/// The file of a text that is too long for a variable.
const TEXT: &str = "text";
/// Names of variables, for the shell itself; there while it looks for those behind others.
const LIST: &str = "list";
/// What the shell writes at its end; blank between two commands.
const PARTS: &str = "parts";
/// The most that is handed over in a variable, which costs less than a file; the kernel takes 128 KiB.
const LONGEST_VARIABLE: usize = 64 * 1024;
/// Takes away what bash sets where the environment does not: it may have been taken away in the session.
const NEW_SHELL: &[u8] =
    b"builtin unset -v __delta_state PATH TERM IFS HOME SHELL HOSTNAME HOSTTYPE MACHTYPE OSTYPE PS4 OPTERR SHLVL\n";
/// What a state begins with that sets `xtrace`.
const TRACE: &[u8] = b"#xtrace\n";
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

/// Hands over to bash what it needs; gives its arguments and changes its environment.
pub(super) fn prepare(
    turn: &Turn<'_>,
    env: &mut BTreeMap<OsString, OsString>,
) -> Result<Vec<String>, FileError> {
    // What is in it was left by a command that was killed, whose shell may yet write to it.
    durable::ensure_blank(&turn.session.join(PARTS))?;
    let script = turn.session.join(SCRIPT_FILE);
    if fs::read(&script).ok().as_deref() != Some(SCRIPT.as_bytes()) {
        durable::exchange(&script, SCRIPT.as_bytes())?;
    }
    let mut begin = beginning();
    let mut set = |name: &str, value: &[u8]| {
        env.insert(name.into(), OsString::from_vec(value.to_vec()));
    };
    if turn.text.len() <= LONGEST_VARIABLE {
        set("__delta_text", turn.text);
    } else {
        let file = turn.session.join(TEXT);
        durable::exchange(&file, turn.text)?;
        set("__delta_long", file.as_os_str().as_bytes());
    }
    if let Some(state) = turn.state {
        match state.len() <= LONGEST_VARIABLE {
            true => push_quickly(&mut begin, state),
            false => set("__delta_from", turn.before.join(STATE).as_os_str().as_bytes()),
        }
        // The state has its own; without any, bash looks for them in the files of users.
        set("HOME", b"/");
        set("SHELL", b"/bin/sh");
        if state.starts_with(TRACE) {
            set("__delta_trace", b"1");
        }
    } else {
        set("__delta_new", b"");
    }
    set("__delta_begin", &begin);
    set("__delta_dir", turn.session.as_os_str().as_bytes());
    set("__delta_cwd", turn.work_dir.as_os_str().as_bytes());
    set("__delta_skip", turn.passing.join(" ").as_bytes());
    set("__delta_mark", mark(turn).as_bytes());
    set("__delta_gone", turn.missing.to_string().as_bytes());
    if let Some(old) = env.remove(OsStr::new("OLDPWD")) {
        env.insert("__delta_oldpwd".into(), old);
    }
    // It would be read before the script.
    env.remove(OsStr::new("BASH_ENV"));
    Ok(["--noprofile", "--norc", SCRIPT_FILE].map(str::to_owned).into())
}

/// Puts together what the shell wrote at its end, as commands that bring it back. What is a secret of the environment is
/// not in it.
///
/// Functions stand behind variables and aliases, because a function may be named like a builtin and an alias must not be
/// expanded in it; options stand last, because they change how all else is read.
///
/// # Errors
/// What was written could not be kept.
pub(super) fn leave(turn: &Turn<'_>) -> Result<Left, FileError> {
    let Ok(written) = fs::read(turn.session.join(PARTS)) else { return Ok(Left::Nothing) };
    let mark = mark(turn);
    let Some(end) = memmem::rfind(&written, format!("{mark} all\n").as_bytes()) else {
        return Ok(Left::Nothing);
    };
    let parts: Vec<&[u8]> = split_at_lines(&written[..end], mark.as_bytes());
    let [options, place, variables, shell, functions, attributes] = parts[..] else {
        return Ok(Left::Nothing);
    };
    let options = String::from_utf8_lossy(options);
    let Some(options) = Options::read(&options) else { return Ok(Left::Nothing) };
    let mut state = Vec::with_capacity(end);
    if options.traces() {
        state.extend_from_slice(TRACE);
    }
    state.extend_from_slice(NEW_SHELL);
    if push_variables(&mut state, variables) {
        let _ = fs::remove_file(turn.session.join(LIST));
    }
    state.extend_from_slice(shell);
    state.extend_from_slice(b"builtin shopt -s extglob\n");
    state.extend_from_slice(functions);
    for line in attributes.split_inclusive(|byte| *byte == b'\n') {
        state.extend_from_slice(b"builtin ");
        state.extend_from_slice(line);
    }
    options.push(&mut state);
    let mut filter = turn.secrets.stream();
    let mut hidden = filter.push(&state).into_owned();
    hidden.extend(filter.finish());
    let work_dir = place.strip_suffix(b"\n").unwrap_or(place);
    if turn.state == Some(hidden.as_slice()) && turn.work_dir.as_os_str().as_bytes() == work_dir {
        return Ok(Left::Same);
    }
    durable::ensure_dir(turn.next, true)?;
    durable::write_new(&turn.next.join(WORK_DIR), place)?;
    durable::write_new(&turn.next.join(STATE), &hidden)?;
    Ok(Left::New)
}

/// What bash has to read: lines that are not comments.
fn without_comments(script: &str) -> String {
    script
        .lines()
        .map(str::trim_start)
        .filter(|line| !(line.is_empty() || line.starts_with('#')))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// What bash evaluates before the text, but for the state.
fn beginning() -> Vec<u8> {
    let quoted = |script| format!("'{}'", without_comments(script).replace('\'', r"'\''"));
    without_comments(BEGIN).replace("@END@", &quoted(END)).replace("@TRAP@", &quoted(TRAP)).into()
}

/// The line that ends each part of what the shell writes.
fn mark(turn: &Turn<'_>) -> String {
    format!("# end of a part of {}", turn.next.display())
}

/// What lies between the lines that are `mark`.
fn split_at_lines<'a>(text: &'a [u8], mark: &[u8]) -> Vec<&'a [u8]> {
    let (mut parts, mut begin) = (Vec::new(), 0);
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

/// Adds the variables that belong to the state, as `declare -p` printed them: not those that bash sets itself. Where it
/// printed several levels, each lies behind the one before, and the last one counts; says whether it did.
fn push_variables(state: &mut Vec<u8>, printed: &[u8]) -> bool {
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
    behind
}

/// Adds a state so that bash evaluates it sooner: an assignment takes half of what the builtin `declare` takes for the same,
/// and a list without its indices half of that. All else, and what stands behind the variables, is added as it is.
fn push_quickly(script: &mut Vec<u8>, state: &[u8]) {
    let mut rest = state;
    while !rest.is_empty() {
        let (statement, behind) = rest.split_at(statement_length(rest));
        if !(statement.starts_with(b"declare -") || statement == NEW_SHELL || statement == TRACE) {
            break;
        }
        push_quick_statement(script, statement);
        rest = behind;
    }
    script.extend_from_slice(rest);
}

fn push_quick_statement(script: &mut Vec<u8>, statement: &[u8]) {
    let plain = statement.strip_prefix(b"declare -- ").filter(|rest| rest.contains(&b'='));
    let list = || {
        let rest = statement.strip_prefix(b"declare -a ")?;
        let (name, elements) = rest.split_at(memmem::find(rest, b"=(")? + 2);
        Some((name, elements.strip_suffix(b")\n")?))
    };
    match (plain, list()) {
        (Some(assignment), _) => script.extend_from_slice(assignment),
        (None, Some((name, elements))) => {
            script.extend_from_slice(name);
            match without_indices(elements) {
                Some(values) => script.extend_from_slice(&values),
                None => script.extend_from_slice(elements),
            }
            script.extend_from_slice(b")\n");
        }
        (None, None) => script.extend_from_slice(statement),
    }
}

/// The values of a list that is printed as `[0]="a" [1]=$'b'`, each behind a blank; none where an index is left out.
fn without_indices(mut elements: &[u8]) -> Option<Vec<u8>> {
    let mut values = Vec::with_capacity(elements.len());
    for index in 0.. {
        if elements.is_empty() {
            break;
        }
        let value = elements.strip_prefix(format!("[{index}]=").as_bytes())?;
        let length = match value {
            [b'"', inside @ ..] => 1 + escaped_length(inside, b'"'),
            [b'$', b'\'', inside @ ..] => 2 + escaped_length(inside, b'\''),
            _ => return None,
        };
        values.push(b' ');
        values.extend_from_slice(&value[..length]);
        elements = value[length..].strip_prefix(b" ").unwrap_or(&value[length..]);
    }
    Some(values)
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
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at + 1..];
        at += match text[at] {
            b'\n' => return at + 1,
            b'\\' => 2,
            // In `$'...'` a backslash escapes, in `'...'` it does not.
            b'\'' if !text[..at].ends_with(b"$") => {
                memchr(b'\'', rest).map_or(text.len(), |end| end + 2)
            }
            quote @ (b'\'' | b'"') => escaped_length(rest, quote) + 1,
            _ => 1,
        };
    }
    text.len()
}

/// Up to and with the next `quote` that no backslash stands before.
fn escaped_length(text: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while let Some(found) = memchr2(b'\\', quote, &text[at..]) {
        at += found + 1;
        if text[at - 1] == quote {
            return at;
        }
        at = text.len().min(at + 1);
    }
    text.len()
}

/// The options that are on, those of `set` and those of `shopt`: in a new shell, and in the one that ends; and what `$?` is
/// to be.
struct Options<'a> {
    new: [Vec<&'a str>; 2],
    last: [Vec<&'a str>; 2],
    status: &'a str,
}

impl<'a> Options<'a> {
    fn read(printed: &'a str) -> Option<Self> {
        let mut words = printed.trim_end().split(' ');
        let mut names = || {
            let names = words.next()?.split(':').filter(|name| {
                // These would end the next command, or follow from BASH_COMPAT.
                let bad = ["noexec", "onecmd", "privileged", "login_shell", "restricted_shell"];
                !(name.is_empty() || bad.contains(name) || name.starts_with("compat"))
            });
            Some(names.collect())
        };
        let (new, last) = ([names()?, names()?], [names()?, names()?]);
        Some(Self { new, last, status: words.next()? })
    }

    fn traces(&self) -> bool {
        self.last[0].contains(&"xtrace")
    }

    /// Adds them, and what `$?` is to be.
    fn push(&self, state: &mut Vec<u8>) {
        let off =
            |kind: usize| self.new[kind].iter().filter(move |name| !self.last[kind].contains(name));
        let mut add = |command: &str, names: &mut dyn Iterator<Item = &&str>, before: &str| {
            let names: String = names.map(|name| format!(" {before}{name}")).collect();
            if !names.is_empty() {
                state.extend_from_slice(format!("{command}{names}\n").as_bytes());
            }
        };
        add("builtin shopt -u", &mut off(1), "");
        add("builtin shopt -s", &mut self.last[1].iter(), "");
        // `extglob` is on while functions are read.
        if !self.last[1].contains(&"extglob") {
            add("builtin shopt -u", &mut ["extglob"].iter(), "");
        }
        add("builtin set", &mut off(0), "+o ");
        add("builtin set", &mut self.last[0].iter(), "-o ");
        // Where the last command has failed, `set -e` would end the next one before it begins.
        let end = if self.last[0].contains(&"errexit") { "0" } else { self.status };
        state.extend_from_slice(format!("__delta_end {end}\n").as_bytes());
    }
}

/// Removes what only the run of the command needed.
pub(super) fn tidy(turn: &Turn<'_>) {
    if turn.text.len() > LONGEST_VARIABLE {
        let _ = fs::remove_file(turn.session.join(TEXT));
    }
    let parts = turn.session.join(PARTS);
    if durable::blank(&parts).is_err() {
        let _ = fs::remove_file(&parts);
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

    #[test]
    fn c_14_2_a_state_that_is_evaluated_sooner_says_the_same() {
        let state = [
            "builtin unset -v __delta_state PATH TERM IFS HOME SHELL HOSTNAME HOSTTYPE MACHTYPE OSTYPE PS4 OPTERR SHLVL\n",
            "declare -- a=\"x=(\\\" y\nz\"\n",
            "declare -- none\n",
            "declare -a all=([0]=\"a [1]=\\\"\" [1]=$'b\\' c' [2]=\"\")\n",
            "declare -a gaps=([0]=\"a\" [2]=\"c\")\n",
            "declare -a empty=()\n",
            "declare -ar fixed=([0]=\"a\")\n",
            "declare -x b=\"1\"\n",
            "umask 0022\n",
            "declare -- c=\"behind\"\n",
        ];
        let quick = [
            state[0],
            "a=\"x=(\\\" y\nz\"\n",
            state[2],
            "all=( \"a [1]=\\\"\" $'b\\' c' \"\")\n",
            "gaps=([0]=\"a\" [2]=\"c\")\n",
            "empty=()\n",
            state[6],
            state[7],
            state[8],
            state[9],
        ];
        let mut script = Vec::new();
        push_quickly(&mut script, state.concat().as_bytes());
        assert_eq!(String::from_utf8_lossy(&script), quick.concat());
    }

    #[test]
    fn c_14_2_parts_end_at_lines_that_are_the_mark() {
        let text = b"a\n# m\nb # m\n# m x\n# m\n# m\nc";
        let parts: [&[u8]; 4] = [b"a\n", b"b # m\n# m x\n", b"", b"c"];
        assert_eq!(split_at_lines(text, b"# m"), parts);
    }
}
