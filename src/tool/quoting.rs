//! `shell:` templates become scripts in which every value stays one literal string.
//!
//! [`script`] finds out in which quoting context each placeholder stands, by reading the template as `sh` does, and
//! writes the positional parameter in the form that is literal there. The value itself never becomes part of the
//! script. Where no form is literal, or where shells disagree about what the text means, the template is refused: what
//! cannot be shown to be safe is not run. A template without placeholders is the author's alone and is not read at all.
//!
//! Source of the grammar: POSIX.1-2017, Shell Command Language, sections 2.2, 2.3, 2.6, 2.7 and 2.10.

use super::placeholder::{self, Hole};
use std::collections::HashMap;

mod command;
mod expansion;
mod forbidden;
mod heredoc;
mod lexer;
mod outline;
mod simple;
mod word;

pub use outline::{Outline, Seen, Simple, outline};

/// Why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The part of the template that is meant.
    pub fragment: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead; empty when the message says it.
    pub help: String,
}

impl Refusal {
    /// A refusal of `fragment`.
    pub fn new(fragment: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { fragment: fragment.to_owned(), message: message.into(), help: help.into() }
    }
}

/// A script and the parameters that its positional parameters stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// What `sh -c` gets.
    pub text: String,
    /// The parameter of `$1`, `$2`, ...: each name once, where it first appeared.
    pub parameters: Vec<String>,
}

/// How a placeholder must be written where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// No quotes around it: `"$1"`.
    Bare,
    /// Double quotes, or a here-document, around it: `${1}`.
    Double,
    /// Single quotes around it: `'"$1"'`.
    Single,
}

/// A character of the template, or a placeholder in one piece, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Char(char),
    Hole(usize),
}

impl Unit {
    fn char(&self) -> Option<char> {
        match self {
            Self::Char(c) => Some(*c),
            Self::Hole(_) => None,
        }
    }
}

/// Turns a `shell:` template into a script.
pub fn script(template: &str) -> Result<Script, Refusal> {
    let (units, holes) = units(template);
    let forms = match holes.is_empty() {
        true => Vec::new(),
        false => lexer::forms(&units, &holes)?,
    };
    let mut parameters: Vec<String> = Vec::new();
    let mut places = HashMap::new();
    for hole in &holes {
        if let Hole::Parameter { name, .. } = hole {
            places.entry(name.as_str()).or_insert_with(|| {
                parameters.push(name.clone());
                parameters.len()
            });
        }
    }
    let mut text = String::with_capacity(template.len());
    for (at, unit) in units.iter().enumerate() {
        // `$10` is the tenth to some shells.
        let digit_follows = matches!(units.get(at + 1), Some(Unit::Char('0'..='9')));
        match unit {
            Unit::Char(c) => text.push(*c),
            Unit::Hole(number) => {
                text.push_str(&written(&holes[*number], forms[*number], &places, digit_follows))
            }
        }
    }
    Ok(Script { text, parameters })
}

fn written(hole: &Hole, form: Form, places: &HashMap<&str, usize>, digit_follows: bool) -> String {
    let name = match hole {
        Hole::Parameter { name, .. } => places[name.as_str()].to_string(),
        Hole::Engine { variable, .. } => variable.name().to_owned(),
    };
    // `$1` is enough for one digit, and the form that the specification shows.
    let short = name.len() == 1 && !(hole.is_raw() && digit_follows);
    let plain = if short { format!("${name}") } else { format!("${{{name}}}") };
    match (form, hole.is_raw()) {
        (Form::Bare, false) => format!("\"{plain}\""),
        (Form::Bare, true) => plain,
        (Form::Double, _) => format!("${{{name}}}"),
        (Form::Single, false) => format!("'\"{plain}\"'"),
        (Form::Single, true) => format!("'{plain}'"),
    }
}

/// Cuts the template into units, and resolves the backslashes before placeholders.
fn units(template: &str) -> (Vec<Unit>, Vec<Hole>) {
    let (mut units, mut holes) = (Vec::new(), Vec::new());
    let mut backslashes = 0;
    let mut at = 0;
    while let Some(c) = template[at..].chars().next() {
        if let Some((hole, length)) = placeholder::read(&template[at..]) {
            if backslashes % 2 == 1 {
                units.pop();
                units.extend(template[at..at + length].chars().map(Unit::Char));
            } else {
                units.push(Unit::Hole(holes.len()));
                holes.push(hole);
            }
            backslashes = 0;
            at += length;
            continue;
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        units.push(Unit::Char(c));
        at += c.len_utf8();
    }
    (units, holes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, expected: &str) {
        let found = match script(template) {
            Ok(script) => script.text,
            Err(refusal) => format!("refused: {}", refusal.message),
        };
        assert_eq!(found, expected, "{template}");
    }

    fn check_refused(template: &str, part: &str) {
        match script(template) {
            Ok(script) => panic!("{template} was taken: {}", script.text),
            Err(refusal) => {
                assert!(refusal.message.contains(part), "{template}: {}", refusal.message)
            }
        }
    }

    #[test]
    fn c_2_6_each_context_has_its_form() {
        check("grep ${p} ${f} | wc -l", r#"grep "$1" "$2" | wc -l"#);
        check(r#"echo "a ${x} b""#, r#"echo "a ${1} b""#);
        check("echo 'a ${x} b'", r#"echo 'a '"$1"' b'"#);
        check("echo $(cat ${f})", r#"echo $(cat "$1")"#);
        check(r#"echo "$(cat "${f}" ${g})""#, r#"echo "$(cat "${1}" "$2")""#);
        check("echo `cat ${f}`", r#"echo `cat "$1"`"#);
        check(r#"echo "`cat ${f}`""#, r#"echo "`cat "$1"`""#);
        check("echo \"`echo \\`cat ${f}\\``\"", "echo \"`echo \\`cat \"$1\"\\``\"");
        check("echo ${v:-${x}}", r#"echo ${v:-"$1"}"#);
        check(r#"echo "${v:-${x}}" "${v:-"${x}"}""#, r#"echo "${v:-${1}}" "${v:-"${1}"}""#);
        check(r##"echo "${v#${x}}" ${v%%${x}*}"##, r##"echo "${v#"$1"}" ${v%%"$1"*}"##);
        check("cat <<E\n${x} \"${x}\"\nE\n", "cat <<E\n${1} \"${1}\"\nE\n");
        check(
            "cat <<-E; echo ${y}\n\t${x}\n\tE\necho ${x}",
            "cat <<-E; echo \"$1\"\n\t${2}\n\tE\necho \"$2\"",
        );
        check("docker run ${options:raw} ${image}", r#"docker run $1 "$2""#);
        check("a=${x} b=\"${x}\" cmd >${f} 2>&1", r#"a="$1" b="${1}" cmd >"$2" 2>&1"#);
        check("cd ${AGENT_HOME} && ls '${CWD}'", r#"cd "${AGENT_HOME}" && ls ''"${CWD}"''"#);
        check(
            "case ${x} in ${y}) echo a;; (b|c) echo ${z} ;; esac",
            r#"case "$1" in "$2") echo a;; (b|c) echo "$3" ;; esac"#,
        );
        check(
            "echo $(case ${x} in a) echo b;; esac) ${y}",
            r#"echo $(case "$1" in a) echo b;; esac) "$2""#,
        );
        check("f() { echo \"$1\"; }; f ${x}", r#"f() { echo "$1"; }; f "$1""#);
        check("for i in ${x} b; do echo $i; done", r#"for i in "$1" b; do echo $i; done"#);
        check("env ${n}=v cmd", r#"env "$1"=v cmd"#);
        check("export v=${x}; read -r -p ${y} v", r#"export v="$1"; read -r -p "$2" v"#);
        check("echo a # it's\necho ${x}", "echo a # it's\necho \"$1\"");
        check("echo a#'${x}'", "echo a#''\"$1\"''");
        check("echo $((1 + 2)) ${x}", "echo $((1 + 2)) \"$1\"");
    }

    #[test]
    fn c_2_6_parameters_above_nine_have_braces() {
        let template: String = (1..=11).map(|n| format!("${{p{n}}} ")).collect();
        let made = script(&template).unwrap();
        assert!(made.text.ends_with(r#""$9" "${10}" "${11}" "#), "{}", made.text);
        assert_eq!(made.parameters.len(), 11);
    }

    #[test]
    fn c_2_6_the_shells_own_dollars_are_left_alone() {
        for own in
            ["echo $HOME $? ${v:-x} ${#v} $$ $1", r#"echo "$v" '$v'"#, "echo $'x' $((1)) `x`"]
        {
            check(own, own);
        }
        check(r"echo \${HOME} ${x}", r#"echo ${HOME} "$1""#);
        check(r"echo \\${x}", r#"echo \\"$1""#);
        check(r#"echo "\${HOME} ${x}" '\${y}'"#, r#"echo "${HOME} ${1}" '${y}'"#);
    }

    #[test]
    fn c_2_6_where_no_form_is_literal_the_template_is_refused() {
        check_refused("cat <<'E'\n${x}\nE\n", "here-document with a quoted delimiter");
        check_refused("cat <<\\E\n${x}\nE\n", "here-document with a quoted delimiter");
        check_refused("echo $((${x} + 1))", "arithmetic");
        check_refused("echo \"$((${x} + 1))\"", "arithmetic");
        check_refused("((${x} + 1))", "arithmetic");
        check_refused("echo $[${x}]", "arithmetic");
        check_refused("let ${x}", "`let` is not sh");
        check_refused("echo a # ${x}\n", "comment");
        check_refused("${x}=5", "variable name");
        check_refused("a${x}=5 cmd", "variable name");
        check_refused("for ${x} in a; do b; done", "variable name");
        check_refused("echo ${${x}}", "variable name");
        check_refused("echo ${#${x}}", "variable name");
        check_refused("export ${x}=1", "variable name");
        check_refused("unset ${x}", "variable name");
        check_refused("read ${x}", "variable name");
        check_refused("printf -v ${x} a", "variable name");
        check_refused("${x}() { a; }", "function name");
        check_refused("function ${x} { a; }", "`function` is not sh");
        check_refused("a[${x}]=1", "subscript");
        check_refused("cat <<${x}\na\n", "delimiter");
        check_refused("[[ ${x} -eq 1 ]]", "[[");
        check_refused("echo ${v:${x}}", "not POSIX");
        check_refused("echo ${v/${x}/b}", "not POSIX");
        check_refused("echo ${v:=${x}}", "splits");
        check_refused("a=(${x})", "array");
    }

    #[test]
    fn c_2_6_where_bash_evaluates_a_value_the_template_is_refused() {
        for template in [
            "for ((i=0;i<${x};i++)); do a; done",
            "for ((;;)) do a; done; echo ${x}",
            "let n=${x}",
            "let \"n=${x}\"",
            "declare -i n=${x}",
            "declare -i n; n=${x}",
            "typeset n=${x}",
            "local -i n=${x}",
            "readonly -a v=${x}",
            "[[ a && ${x} -eq 1 ]]",
            "[[ -n $v ]] && echo ${x}",
            "[ ${a} ${b} ]",
            "test ! ${a} ${b}",
            "[ ${a} \"$v\" ]",
            "[ ${x:raw} ]",
            "[ -v \"${x}\" ]",
            "[ \"-v\" ${x} ]",
            "printf ${fmt} ${x}",
            "printf \"${fmt}\" a",
            "printf \"-v${x}\" a",
            "printf \"-v\" ${x} a",
            "command printf ${fmt} a",
            "'printf' ${fmt} a",
            "\\printf ${fmt} a",
            "printf ${x:raw}",
            "read \"${x}\"",
            "read -r ${x}",
            "read -dp ${x}",
            "command read -r ${x}",
            "unset \"${x}\"",
            "export \"${x}\"",
            "export ${x:raw}",
            "wait ${x}",
            "compgen -W ${x}",
            "RANDOM=${x}",
            "OPTIND=${x} cmd",
            "time OPTIND=${x}",
            "export OPTIND=${x}",
            "for RANDOM in ${x}; do a; done",
            "PS4=${x}; set -x",
            "n=${x}; echo $((n + 1))",
            "n=a${x}; echo \"$(( $n ))\"",
            "for n in ${x}; do echo $((n)); done",
            "n=${x}; echo ${v:n}",
            "f() { echo $(($1)); }; f ${x}",
            "a[n]=1; echo ${x}",
            "a[\"${x}\"]=1",
            "printf \"$v${x}\" a",
            "printf $v ${x} a",
            "printf -vn ${x} a",
            "printf \"-v$n\" ${x} a",
            "printf $v\"${x}\" a",
            "\"pri\\\nntf\" ${x} a",
            "$v printf ${x} a",
            "read$v ${x}",
            "$v\"read\" ${x}",
            "read${y} ${x}",
            "command $v printf ${x} a",
            "{printf,a} ${x}",
            "cp ${x}{,.bak}",
            "echo {1..3}${x}",
            ": \"${n:=${x}}\"; echo $((n))",
            "echo ${x} | { read -r n; echo $((n)); }",
            "for n do echo $((n)); done; echo ${x}",
            "echo a >&${x}",
            "echo a >& ${x}",
            "echo a 2>&${x}",
            "v=${x}; echo a >&$v",
            "eval ${x}",
            "eval 'echo ${x}'",
            "trap 'rm ${x}' EXIT",
        ] {
            assert!(script(template).is_err(), "{template} was taken");
        }
        check("find . -exec a {} ${x} \\;", "find . -exec a {} \"$1\" \\;");
        check("printf \"$v\" ${x}", r#"printf "$v" "$1""#);
        check("$HOME/read \"$d/read\" ${x}", r#"$HOME/read "$d/read" "$1""#);
        check("$v ${x} a", r#"$v "$1" a"#);
        check("printf '%s' ${x}", r#"printf '%s' "$1""#);
        check("printf -- ${f} ${x}", r#"printf -- "$1" "$2""#);
        check("printf -v v '%s' ${x}", r#"printf -v v '%s' "$1""#);
        check("[ ${a} = ${b} ]", r#"[ "$1" = "$2" ]"#);
        check("export \"v=${x}\"", r#"export "v=${1}""#);
        check("read -rp ${x} v", r#"read -rp "$1" v"#);
        check("i=1; i=$((i+1)); echo ${x}", r#"i=1; i=$((i+1)); echo "$1""#);
        check("getopts ab v ${x}", r#"getopts ab v "$1""#);
    }

    #[test]
    fn c_2_6_where_the_positional_parameters_are_others_the_template_is_refused() {
        for template in [
            "f() { echo ${x}; }; f",
            "f() ( echo ${x} ); f",
            "f() { cat <<E; }; f\n${x}\nE\n",
            "set -- a; echo ${x}",
            "set a; echo ${x}",
            "shift; echo ${x}",
            "shift && echo ${x}",
            "command shift; echo ${x}",
            "for i in a b; do echo ${x}; shift; done",
            "while a ${x}; do set -- b; done",
        ] {
            assert!(script(template).is_err(), "{template} was taken");
        }
        check("set -- ${x} b; echo $#", r#"set -- "$1" b; echo $#"#);
        check("set -euo pipefail; echo ${x}", r#"set -euo pipefail; echo "$1""#);
        check("(set -- a); echo ${x}", r#"(set -- a); echo "$1""#);
        check("f() { shift; }; echo ${x}", r#"f() { shift; }; echo "$1""#);
        check("f() { ls ${CWD}; }; f ${x}", r#"f() { ls "${CWD}"; }; f "$1""#);
        check("for i in ${x}; do shift; done", r#"for i in "$1"; do shift; done"#);
    }

    #[test]
    fn c_2_6_compound_commands_are_read_as_sh_reads_them() {
        // Each hides a `case` whose `)` must not end the `$(`: what follows would be unquoted.
        for (template, expected) in [
            (
                "\"$(for x do case a in b) e ${y};; esac; done)\"",
                "\"$(for x do case a in b) e \"$1\";; esac; done)\"",
            ),
            (
                "\"$(if (a) then case b in c) ${y};; esac fi)\"",
                "\"$(if (a) then case b in c) \"$1\";; esac fi)\"",
            ),
            (
                "\"$({ a; } 2>&1 | case b in (c) ${y} ;; esac)\"",
                "\"$({ a; } 2>&1 | case b in (c) \"$1\" ;; esac)\"",
            ),
            (
                "\"$(while :; do case b in c|d) ${y}; esac; done)\"",
                "\"$(while :; do case b in c|d) \"$1\"; esac; done)\"",
            ),
            ("\"$(ca\\\nse b in c) ${y};; esac)\"", "\"$(ca\\\nse b in c) \"$1\";; esac)\""),
        ] {
            check(template, expected);
        }
        for template in [
            "\"$(time case a in b) ${y};; esac)\"",
            "\"$(time for x do case a in b) ${y};; esac; done)\"",
            "alias q='echo \"'\nq ${y}",
            "echo \"$\\\n(echo ${y})\"",
            "cat <\\\n<E\n${y}\nE\n",
            "a\\\n# ' ${y} '",
            "cat <<E\nE\\\n\n${y}\nE\n",
            "cat <<E\n\\\nE\n${y}\nE\n",
            "echo ${y}; }",
            "if a; then b; echo ${y}",
            "(a) echo ${y}",
            "echo a (b) ${y}",
            "f() echo ${y}",
            "echo \"${v/'/x}\" ${y}",
            "echo ${#v:-x} ${y}",
            "{v}>f printf -v ${y} a",
            "case #\na in b) ${y};; esac",
            "for i in a # \"\ndo c ${y} # \"",
            "echo ${u:-${v:-'${y}'}}",
            "echo \"${u:-'${y}'}\"",
            "echo \"${u:-${v:-\"${y}\"}}\"",
            "cat <<E\n${v#${y}}\nE\n",
            "cat <<E\n${v:-\"${y}\"}\nE\n",
            "echo \"${u:-`echo \\\"${y}\\\"`}\"",
            "echo \"`echo '$('`${v}${y}\"",
            "echo \"$(echo '$(' ${y})\"",
            "echo \"`echo \"${u:-\\\\'}\" ${y}`\"",
            "case ${u:-${y}} in a) b;; esac",
            "echo \"`echo \"${u:-$(echo \"it's\")}\" ${y}`\"",
            "echo \"`echo 'a' \\`echo ${y}\\``\"",
            "echo \"`echo \\\"${u:-\\\"${y}\\\"}\\\"`\"",
            "a=(b c); echo ${y}",
        ] {
            assert!(script(template).is_err(), "{template} was taken");
        }
    }

    #[test]
    fn c_2_6_raw_before_a_digit_has_braces() {
        check("echo ${x:raw}0 ${x:raw}a '${x:raw}1'", r#"echo ${1}0 $1a ''${1}'1'"#);
    }

    #[test]
    fn c_2_6_what_shells_read_differently_is_refused() {
        check_refused(r"echo $'a\'b' ${x}", "$'");
        check_refused("echo $\"${x}\"", "$\"");
        check_refused("echo $${x}", "`$` directly before");
        check_refused(r"echo `echo \\${x}`", "backslash");
        check_refused("echo 'a ${x}", "not closed");
        check_refused("echo \"a ${x}", "not closed");
        check_refused("echo $(a ${x}", "not closed");
        check_refused("echo `a ${x}", "not closed");
        check_refused("echo ${v:-a ${x}", "not closed");
        check_refused("cat <<E\n${x}\n", "here-document");
        check_refused("cat <<E $(echo\n${x})\nE\n", "here-document");
        check_refused("echo ${x} )", "`)`");
        check_refused("cat <<E\n$(echo\nE\n)${x}\nE\n", "not closed");
    }
}
