//! Sessions of bash: the whole state of the shell outlives the command, however that ends.
//!
//! The text of a command is never part of a script: bash reads it from a file and evaluates it. What of the shell is state
//! is decided in bash_end.sh, which writes it as commands that bring it back.

mod quick;
mod statement;

use self::statement::{name_of, statements};
use super::WORK_DIR;
use super::store::{Left, Turn};
use crate::durable::{self, FileError};
use memchr::memmem;
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

/// Hands over to bash what it needs; gives its arguments and changes its environment. `given` is the environment in which
/// the session was started, each variable ended by NUL.
pub(super) fn prepare(
    turn: &Turn<'_>,
    given: &[u8],
    env: &mut BTreeMap<OsString, OsString>,
) -> Result<Vec<String>, FileError> {
    // What is in it was left by a command that was killed, whose shell may yet write to it.
    durable::ensure_blank(&turn.session.join(PARTS))?;
    let script = turn.session.join(SCRIPT_FILE);
    if fs::read(&script).ok().as_deref() != Some(SCRIPT.as_bytes()) {
        durable::exchange(&script, SCRIPT.as_bytes())?;
    }
    let mut set = |name: &str, value: Vec<u8>| {
        env.insert(name.into(), OsString::from_vec(value));
    };
    let is_long = turn.text.len() > LONGEST_VARIABLE;
    let text = turn.session.join(TEXT);
    match is_long {
        true => durable::exchange(&text, turn.text)?,
        false => set("__delta_text", turn.text.to_vec()),
    }
    let traces = turn.state.is_some_and(|state| state.starts_with(TRACE));
    if traces {
        set("__delta_trace", b"1".to_vec());
    }
    let end = [
        ("MARK", quoted(mark(turn).as_bytes())),
        ("PARTS", quoted(turn.session.join(PARTS).as_os_str().as_bytes())),
        ("LIST", quoted(turn.session.join(LIST).as_os_str().as_bytes())),
        ("SKIP", turn.passing.join(" ").into()),
    ];
    let (quick, slow) = match turn.state {
        Some(state) if state.len() <= LONGEST_VARIABLE => (Some(state), false),
        state => (None, state.is_some()),
    };
    let mut begin = fill(
        BEGIN,
        &[
            ("trace", traces),
            ("long", is_long),
            ("gone", turn.missing > 0),
            ("new", turn.state.is_none()),
            ("from", slow),
        ],
        &[
            ("TRAP", quoted(&fill(TRAP, &[], &[]))),
            ("LONG", quoted(text.as_os_str().as_bytes())),
            ("CWD", quoted(turn.work_dir.as_os_str().as_bytes())),
            ("GONE", turn.missing.to_string().into()),
            ("FROM", quoted(turn.before.join(STATE).as_os_str().as_bytes())),
        ],
    );
    for (name, is_full) in [("__delta_plain", false), ("__delta_full", true)] {
        set(name, fill(END, &[("full", is_full)], &end));
    }
    if turn.state.is_some() {
        // The state has its own; without any, bash looks for them in the files of users.
        set("HOME", b"/".to_vec());
        set("SHELL", b"/bin/sh".to_vec());
        // What is no name in a shell, no shell says, but its children have it.
        let variables = given
            .split(|byte| *byte == 0)
            .filter_map(|variable| Some(variable.split_at(memchr::memchr(b'=', variable)?)));
        for (name, value) in variables.filter(|(name, _)| !is_name(name)) {
            env.insert(OsStr::from_bytes(name).into(), OsStr::from_bytes(&value[1..]).into());
        }
    }
    if let Some(state) = quick {
        quick::push_quickly(&mut begin, state, given, env);
    }
    env.insert("__delta_begin".into(), OsString::from_vec(begin));
    if let Some(old) = env.remove(OsStr::new("OLDPWD")) {
        env.insert("__delta_oldpwd".into(), old);
    }
    // The first would be read before the script; with the others a function may not have the name of `trap`.
    for name in ["BASH_ENV", "POSIXLY_CORRECT", "SHELLOPTS"] {
        env.remove(OsStr::new(name));
    }
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
    // A shell whose `pwd` was disabled does not say where it is.
    if !place.starts_with(b"/") {
        return Ok(Left::Nothing);
    }
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

/// A script as bash is to read it: without comments, without the lines between `#if NAME` and `#end` that are not needed,
/// and with the values in the place of their names, each of which stands between two `@`.
fn fill(template: &str, needed: &[(&str, bool)], values: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut script = Vec::with_capacity(2 * template.len());
    let mut is_needed = true;
    for line in template.lines().map(str::trim_start) {
        if let Some(name) = line.strip_prefix("#if ") {
            is_needed = needed.contains(&(name, true));
        } else if line == "#end" {
            is_needed = true;
        } else if is_needed && !(line.is_empty() || line.starts_with('#')) {
            push_filled(&mut script, line, values);
            script.push(b'\n');
        }
    }
    script
}

fn push_filled(script: &mut Vec<u8>, mut line: &str, values: &[(&str, Vec<u8>)]) {
    while let Some((before, behind)) = line.split_once('@') {
        script.extend_from_slice(before.as_bytes());
        let value = behind.split_once('@').and_then(|(name, rest)| {
            Some((values.iter().find(|(known, _)| *known == name)?, rest))
        });
        line = match value {
            Some(((_, value), rest)) => {
                script.extend_from_slice(value);
                rest
            }
            None => {
                script.push(b'@');
                behind
            }
        };
    }
    script.extend_from_slice(line.as_bytes());
}

/// Any bytes as one word of a script.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for (index, piece) in bytes.split(|byte| *byte == b'\'').enumerate() {
        if index > 0 {
            word.extend_from_slice(br"'\''");
        }
        word.extend_from_slice(piece);
    }
    word.push(b'\'');
    word
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
        push_variable(state, statement);
    }
    behind
}

/// Whether a variable of a shell can have this name, or a function that it exports.
fn is_name(name: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let starts = name.first().is_some_and(|first| !first.is_ascii_digit());
    name.starts_with(b"BASH_FUNC_") || starts && name.iter().all(is_letter)
}

/// Adds a variable so that its value is assigned before what the shell does with each value that is assigned to it: an integer
/// would be computed once more, and a word that became upper case later would become it now.
fn push_variable(state: &mut Vec<u8>, statement: &[u8]) {
    let parts = statement.strip_prefix(b"declare -").and_then(|rest| {
        let (attributes, rest) = rest.split_at(memchr::memchr(b' ', rest)?);
        let name = &rest[1..=memchr::memchr(b'=', &rest[1..])?];
        Some((attributes, name, rest))
    });
    let acts = |attribute: &u8| b"iluc".contains(attribute);
    match parts {
        Some((attributes, name, value))
            if attributes.iter().any(acts) && !attributes.contains(&b'n') =>
        {
            let kind = attributes.iter().find(|attribute| b"aA".contains(attribute));
            state.extend([b"declare -", &[*kind.unwrap_or(&b'-')][..], value].concat());
            state.extend([b"declare -", attributes, b" ", name, b"\n"].concat());
        }
        _ => state.extend_from_slice(statement),
    }
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
    fn c_14_2_a_script_has_the_lines_that_are_needed_and_the_values_as_words() {
        let template = "# why\n  a @X@ \"$@\" @Y@\n#if b\n  b\n#end\n\n#if c\nc @X@@X@\n#end\nd";
        let value = [("X", quoted(b"it's"))];
        let script = fill(template, &[("b", false), ("c", true)], &value);
        let expected = r#"a 'it'\''s' "$@" @Y@
c 'it'\''s''it'\''s'
d
"#;
        assert_eq!(String::from_utf8_lossy(&script), expected);
    }

    #[test]
    fn c_14_2_parts_end_at_lines_that_are_the_mark() {
        let text = b"a\n# m\nb # m\n# m x\n# m\n# m\nc";
        let parts: [&[u8]; 4] = [b"a\n", b"b # m\n# m x\n", b"", b"c"];
        assert_eq!(split_at_lines(text, b"# m"), parts);
    }
}
