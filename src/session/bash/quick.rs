//! A state as bash takes it up sooner: it says the same as the one that is kept.

use super::statement::{escaped_length, statement_length};
use super::{NEW_SHELL, TRACE};
use memchr::memmem;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// What bash acts upon when it is assigned, and what a new shell does not take as it is from its environment.
#[rustfmt::skip]
const SPECIAL: [&str; 28] = [
    "CHILD_MAX", "COLUMNS", "EXECIGNORE", "FIGNORE", "FUNCNEST", "GLOBIGNORE", "GLOBSORT", "HOME", "HOSTFILE", "HOSTNAME",
    "HOSTTYPE", "IFS", "IGNOREEOF", "LINES", "MACHTYPE", "OLDPWD", "OSTYPE", "PATH", "POSIXLY_CORRECT", "PS1", "PS2", "PS4",
    "PWD", "SHELL", "SHLVL", "TZ", "histchars", "ignoreeof",
];
/// The beginnings of more such names.
const SPECIAL_BEGINNINGS: [&str; 10] =
    ["BASH", "COMP_", "HIST", "LANG", "LC_", "LD_", "MAIL", "OPT", "TERM", "TEXTDOMAIN"];

/// Adds a state so that bash takes it up sooner: an assignment takes half of what the builtin `declare` takes for the same,
/// and a list without its indices half of that; least takes what lies in the environment, `env`, and that is where a variable
/// comes from that is as it was in the environment of the start, `given`. Text is read sooner before a locale is set. All
/// else, and what stands behind the variables, is added as it is.
pub(super) fn push_quickly(
    script: &mut Vec<u8>,
    state: &[u8],
    given: &[u8],
    env: &mut BTreeMap<OsString, OsString>,
) {
    let may_wait = means_the_same_in_every_locale(state) && sets_locales_plainly(state);
    let (mut rest, mut late) = (state, Vec::new());
    while !rest.is_empty() {
        let (statement, behind) = rest.split_at(statement_length(rest));
        if !(statement.starts_with(b"declare -") || statement == NEW_SHELL || statement == TRACE) {
            break;
        }
        rest = behind;
        match exported(statement) {
            Some((name, _)) if may_wait && is_locale(name) => late.push(statement),
            Some((name, value)) if !is_special(name) && holds(given, name, value) => {
                env.insert(OsStr::from_bytes(name).into(), OsStr::from_bytes(value).into());
            }
            _ => push_quick_statement(script, statement),
        }
    }
    let end = memmem::rfind(rest, b"__delta_end ").unwrap_or(rest.len());
    script.extend_from_slice(&rest[..end]);
    for statement in late {
        // There may be functions and aliases by now.
        script.extend_from_slice(b"\\builtin ");
        script.extend_from_slice(statement);
    }
    script.extend_from_slice(&rest[end..]);
}

/// Whether all bytes of a state mean what they mean in ASCII, those that are written as numbers too.
fn means_the_same_in_every_locale(state: &[u8]) -> bool {
    state.is_ascii()
        && !memmem::find_iter(state, b"\\2").chain(memmem::find_iter(state, b"\\3")).any(|_| true)
}

/// Whether all variables of the locale are exported and nothing else, so that they stay in their order when they wait; and
/// whether `declare` is read as a command behind the options.
fn sets_locales_plainly(state: &[u8]) -> bool {
    let is_plain =
        |name: &[u8]| memmem::find_iter(state, name).all(|at| state[..at].ends_with(b"declare -x"));
    is_plain(b" LANG") && is_plain(b" LC_") && memmem::find(state, b"keyword").is_none()
}

fn is_locale(name: &[u8]) -> bool {
    name == b"LANG" || name.starts_with(b"LC_")
}

fn is_special(name: &[u8]) -> bool {
    SPECIAL.iter().any(|special| special.as_bytes() == name)
        || SPECIAL_BEGINNINGS.iter().any(|begin| name.starts_with(begin.as_bytes()))
}

/// The name and the value of a variable that is exported and nothing else; none where the value is not written as it is.
fn exported(statement: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = statement.strip_prefix(b"declare -x ")?.strip_suffix(b"\"\n")?;
    let (name, value) = rest.split_at(memmem::find(rest, b"=\"")?);
    memchr::memchr(b'\\', value).is_none().then_some((name, &value[2..]))
}

/// Whether an environment, each variable ended by NUL, holds this one.
fn holds(environment: &[u8], name: &[u8], value: &[u8]) -> bool {
    let variable = [name, b"=", value, b"\0"].concat();
    memmem::find_iter(environment, &variable).any(|at| at == 0 || environment[at - 1] == b'\0')
}

fn push_quick_statement(script: &mut Vec<u8>, statement: &[u8]) {
    let compound = |kind: &[u8]| {
        let rest = statement.strip_prefix(kind)?;
        Some(rest.split_at(memmem::find(rest, b"=(")?))
    };
    if let Some(plain) = statement.strip_prefix(b"declare -- ").filter(|rest| rest.contains(&b'='))
    {
        script.extend_from_slice(plain);
    } else if let Some((name, list)) = compound(b"declare -a ") {
        script.extend_from_slice(name);
        let elements = list[2..].strip_suffix(b")\n").and_then(without_indices);
        match elements {
            Some(values) => script.extend([b"=(", values.as_slice(), b")\n"].concat()),
            None => script.extend_from_slice(list),
        }
    } else if let Some((name, map)) = compound(b"declare -A ") {
        script.extend([b"declare -A ", name, b"\n", name, map].concat());
    } else {
        script.extend_from_slice(statement);
    }
}

/// The values of a list that is printed as `[0]="a" [1]=$'b'`, each behind a blank; none where an index is left out.
fn without_indices(mut elements: &[u8]) -> Option<Vec<u8>> {
    let mut values = Vec::with_capacity(elements.len());
    for index in 0.. {
        if elements.is_empty() {
            break;
        }
        let (number, value) = leading_index(elements)?;
        if number != index {
            return None;
        }
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

/// The number in `[12]=...`, and what stands behind the equals sign.
fn leading_index(element: &[u8]) -> Option<(usize, &[u8])> {
    let digits = element.strip_prefix(b"[")?;
    let length = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let number = digits[..length].iter().try_fold(0_usize, |number, digit| {
        number.checked_mul(10)?.checked_add(usize::from(digit - b'0'))
    })?;
    Some((number, digits[length..].strip_prefix(b"]=")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_2_a_state_that_is_evaluated_sooner_says_the_same() {
        let state = [
            "builtin unset -v __delta_state PATH TERM IFS HOME SHELL HOSTNAME HOSTTYPE MACHTYPE OSTYPE PS4 OPTERR SHLVL\n",
            "declare -- a=\"x=(\\\" y\nz\"\n",
            "declare -- none\n",
            "declare -a all=([0]=\"a [1]=\\\"\" [1]=$'b\\' c' [2]=\"\")\n",
            "declare -a gaps=([0]=\"a\" [2]=\"c\")\n",
            "declare -a empty=()\n",
            "declare -A map=([\"a=(\"]=\"1\" )\n",
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
            "declare -A map\nmap=([\"a=(\"]=\"1\" )\n",
            state[7],
            state[8],
            state[9],
            state[10],
        ];
        assert_eq!(quickly(&state.concat(), b"", &[]), quick.concat());
    }

    #[test]
    fn c_14_2_what_is_as_it_was_at_the_start_comes_from_the_environment() {
        let given = b"A=1\0B=two words\0C=3\0D=$x\0PATH=/bin\0XE=5\0";
        let state = [
            "declare -x A=\"1\"\n",
            "declare -x B=\"two words\"\n",
            "declare -x C=\"changed\"\n",
            "declare -x D=\"\\$x\"\n",
            "declare -x E=\"5\"\n",
            "declare -x PATH=\"/bin\"\n",
            "declare -rx XE=\"5\"\n",
        ];
        let carried = [("A", "1"), ("B", "two words")];
        assert_eq!(quickly(&state.concat(), given, &carried), state[2..].concat());
    }

    #[test]
    fn c_14_2_a_locale_is_set_last_where_that_changes_nothing() {
        let state = "declare -x LANG=\"C.UTF-8\"\ndeclare -x LC_ALL=\"\"\ndeclare -x z=\"1\"\nf () {\n}\n__delta_end 0\n";
        let late = "declare -x z=\"1\"\nf () {\n}\n\\builtin declare -x LANG=\"C.UTF-8\"\n\\builtin declare -x LC_ALL=\"\"\n__delta_end 0\n";
        assert_eq!(quickly(state, b"LANG=C.UTF-8\0", &[]), late);
        for other in ["\u{e9}", "\\303\\251"] {
            let state = state.replace("z=\"1\"", &format!("z=$'{other}'"));
            assert_eq!(quickly(&state, b"LANG=C.UTF-8\0", &[]), state);
        }
    }

    /// What is added for a state; the environment has to be `carried`.
    fn quickly(state: &str, given: &[u8], carried: &[(&str, &str)]) -> String {
        let (mut script, mut env) = (Vec::new(), BTreeMap::new());
        push_quickly(&mut script, state.as_bytes(), given, &mut env);
        let carried = carried.iter().map(|(name, value)| (name.into(), value.into()));
        assert_eq!(env, carried.collect());
        String::from_utf8(script).unwrap()
    }
}
