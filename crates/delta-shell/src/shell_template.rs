//! `shell:` templates, which become scripts in which every value is one literal string.
//!
//! The parser reads a template as `sh` does and finds the quoting context of each placeholder. The script then contains
//! a positional parameter, written so that its value is literal in that context, and never the value itself. A template
//! is rejected where no such form exists, or where shells parse the text differently. A template without placeholders
//! contains only the author's text: it is used unchanged, and is not parsed.
//!
//! Source of the grammar: POSIX.1-2017, Shell Command Language, sections 2.2, 2.3, 2.6, 2.7 and 2.10.

use crate::placeholder::{Placeholder, parse_placeholder};
use std::collections::HashMap;
use std::fmt;

mod compound_command;
mod expansion;
mod forbidden_place;
mod heredoc;
mod outline;
mod shell_parser;
mod shell_word;
mod simple_command;

pub use outline::{OutlinePart, ShellAssignment, ShellOutline, SimpleCommand};

/// The reason why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// The part of the template that causes the error; empty where no single part does.
    pub fragment: String,
    /// What is wrong, without a position.
    pub message: String,
    /// What to write instead; empty when the message says it.
    pub help: String,
}

impl TemplateError {
    pub(crate) fn new(fragment: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { fragment: fragment.to_owned(), message: message.into(), help: help.into() }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TemplateError {}

/// A script for `sh -c`, and the parameters whose values are its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellScript {
    /// The script. Engine variables are environment variables in it.
    pub text: String,
    /// The names of the parameters for `$1`, `$2`, ...: each once, in the order of first use.
    pub parameters: Vec<String>,
}

impl ShellScript {
    /// Converts a `shell:` template to a script.
    ///
    /// # Errors
    /// A placeholder is in a place where its value would not be literal, or shells parse the template differently.
    pub fn from_template(template: &str) -> Result<Self, TemplateError> {
        let (units, placeholders) = split_units(template);
        let contexts = if placeholders.is_empty() {
            Vec::new()
        } else {
            shell_parser::find_contexts(&units, &placeholders)?
        };
        let mut parameters: Vec<String> = Vec::new();
        let mut numbers = HashMap::new();
        for placeholder in &placeholders {
            if let Placeholder::Parameter { name, .. } = placeholder {
                numbers.entry(name.as_str()).or_insert_with(|| {
                    parameters.push(name.clone());
                    parameters.len()
                });
            }
        }
        let mut text = String::with_capacity(template.len());
        for (at, unit) in units.iter().enumerate() {
            match unit {
                TemplateUnit::Char(c) => text.push(*c),
                TemplateUnit::Placeholder(index) => {
                    // Some shells read `$10` as the tenth parameter.
                    let digit_follows =
                        matches!(units.get(at + 1), Some(TemplateUnit::Char('0'..='9')));
                    text.push_str(&render_placeholder(
                        &placeholders[*index],
                        contexts[*index],
                        &numbers,
                        digit_follows,
                    ));
                }
            }
        }
        Ok(Self { text, parameters })
    }
}

/// The quotes around a placeholder, which decide how it is written in the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuotingContext {
    /// Written `"$1"`.
    Unquoted,
    /// In double quotes or in a here-document. Written `${1}`.
    DoubleQuoted,
    /// Written `'"$1"'`.
    SingleQuoted,
}

/// A character of the template, or a whole placeholder by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateUnit {
    Char(char),
    Placeholder(usize),
}

impl TemplateUnit {
    fn as_char(&self) -> Option<char> {
        match self {
            Self::Char(c) => Some(*c),
            Self::Placeholder(_) => None,
        }
    }

    fn is_placeholder(&self) -> bool {
        matches!(self, Self::Placeholder(_))
    }
}

fn render_placeholder(
    placeholder: &Placeholder,
    context: QuotingContext,
    numbers: &HashMap<&str, usize>,
    digit_follows: bool,
) -> String {
    let name = match placeholder {
        Placeholder::Parameter { name, .. } => numbers[name.as_str()].to_string(),
        Placeholder::Variable { variable, .. } => variable.name().to_owned(),
    };
    let is_raw = placeholder.is_raw();
    let needs_braces = name.len() > 1 || (is_raw && digit_follows);
    let expansion = if needs_braces { format!("${{{name}}}") } else { format!("${name}") };
    match (context, is_raw) {
        (QuotingContext::Unquoted, false) => format!("\"{expansion}\""),
        (QuotingContext::Unquoted, true) => expansion,
        (QuotingContext::DoubleQuoted, _) => format!("${{{name}}}"),
        (QuotingContext::SingleQuoted, false) => format!("'\"{expansion}\"'"),
        (QuotingContext::SingleQuoted, true) => format!("'{expansion}'"),
    }
}

/// Splits a template into units, and removes the backslash that escapes a placeholder.
fn split_units(template: &str) -> (Vec<TemplateUnit>, Vec<Placeholder>) {
    let mut units = Vec::new();
    let mut placeholders = Vec::new();
    let mut backslashes = 0;
    let mut at = 0;
    while let Some(c) = template[at..].chars().next() {
        if let Some((placeholder, length)) = parse_placeholder(&template[at..]) {
            if backslashes % 2 == 1 {
                units.pop();
                units.extend(template[at..at + length].chars().map(TemplateUnit::Char));
            } else {
                units.push(TemplateUnit::Placeholder(placeholders.len()));
                placeholders.push(placeholder);
            }
            backslashes = 0;
            at += length;
            continue;
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        units.push(TemplateUnit::Char(c));
        at += c.len_utf8();
    }
    (units, placeholders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, expected: &str) {
        let text = match ShellScript::from_template(template) {
            Ok(script) => script.text,
            Err(error) => format!("rejected: {error}"),
        };
        assert_eq!(text, expected, "{template}");
    }

    fn check_rejected(template: &str, part: &str) {
        match ShellScript::from_template(template) {
            Ok(script) => panic!("{template} was accepted: {}", script.text),
            Err(error) => assert!(error.message.contains(part), "{template}: {error}"),
        }
    }

    fn check_all_rejected(templates: &[&str]) {
        for template in templates {
            assert!(ShellScript::from_template(template).is_err(), "{template} was accepted");
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
    fn c_2_6_parameters_after_the_ninth_have_braces() {
        let template: String = (1..=11).map(|n| format!("${{p{n}}} ")).collect();
        let script = ShellScript::from_template(&template).unwrap();
        assert!(script.text.ends_with(r#""$9" "${10}" "${11}" "#), "{}", script.text);
        assert_eq!(script.parameters.len(), 11);
    }

    #[test]
    fn c_2_6_other_dollars_belong_to_the_shell() {
        for template in
            ["echo $HOME $? ${v:-x} ${#v} $$ $1", r#"echo "$v" '$v'"#, "echo $'x' $((1)) `x`"]
        {
            check(template, template);
        }
        check(r"echo \${HOME} ${x}", r#"echo ${HOME} "$1""#);
        check(r"echo \\${x}", r#"echo \\"$1""#);
        check(r#"echo "\${HOME} ${x}" '\${y}'"#, r#"echo "${HOME} ${1}" '${y}'"#);
    }

    #[test]
    fn c_2_6_a_template_without_a_literal_form_is_rejected() {
        check_rejected("cat <<'E'\n${x}\nE\n", "here-document with a quoted delimiter");
        check_rejected("cat <<\\E\n${x}\nE\n", "here-document with a quoted delimiter");
        check_rejected("echo $((${x} + 1))", "arithmetic");
        check_rejected("echo \"$((${x} + 1))\"", "arithmetic");
        check_rejected("((${x} + 1))", "arithmetic");
        check_rejected("echo $[${x}]", "arithmetic");
        check_rejected("let ${x}", "`let` is not sh");
        check_rejected("echo a # ${x}\n", "comment");
        check_rejected("${x}=5", "variable name");
        check_rejected("a${x}=5 cmd", "variable name");
        check_rejected("for ${x} in a; do b; done", "variable name");
        check_rejected("echo ${${x}}", "variable name");
        check_rejected("echo ${#${x}}", "variable name");
        check_rejected("export ${x}=1", "variable name");
        check_rejected("unset ${x}", "variable name");
        check_rejected("read ${x}", "variable name");
        check_rejected("printf -v ${x} a", "variable name");
        check_rejected("${x}() { a; }", "function name");
        check_rejected("function ${x} { a; }", "`function` is not sh");
        check_rejected("a[${x}]=1", "subscript");
        check_rejected("cat <<${x}\na\n", "delimiter");
        check_rejected("[[ ${x} -eq 1 ]]", "[[");
        check_rejected("echo ${v:${x}}", "not POSIX");
        check_rejected("echo ${v/${x}/b}", "not POSIX");
        check_rejected("echo ${v:=${x}}", "splits");
        check_rejected("a=(${x})", "array");
    }

    #[test]
    fn c_2_6_a_template_in_which_bash_evaluates_a_value_is_rejected() {
        check_all_rejected(&[
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
        ]);
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
    fn c_2_6_a_template_that_changes_the_positional_parameters_is_rejected() {
        check_all_rejected(&[
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
        ]);
        check("set -- ${x} b; echo $#", r#"set -- "$1" b; echo $#"#);
        check("set -euo pipefail; echo ${x}", r#"set -euo pipefail; echo "$1""#);
        check("(set -- a); echo ${x}", r#"(set -- a); echo "$1""#);
        check("f() { shift; }; echo ${x}", r#"f() { shift; }; echo "$1""#);
        check("f() { ls ${CWD}; }; f ${x}", r#"f() { ls "${CWD}"; }; f "$1""#);
        check("for i in ${x}; do shift; done", r#"for i in "$1"; do shift; done"#);
    }

    #[test]
    fn c_2_6_compound_commands_are_parsed_as_in_sh() {
        // Each contains a `case` whose `)` must not end the `$(`: the following text would be read as unquoted.
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
        check_all_rejected(&[
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
        ]);
    }

    #[test]
    fn c_2_6_raw_before_a_digit_has_braces() {
        check("echo ${x:raw}0 ${x:raw}a '${x:raw}1'", r#"echo ${1}0 $1a ''${1}'1'"#);
    }

    #[test]
    fn c_2_6_a_template_that_shells_parse_differently_is_rejected() {
        check_rejected(r"echo $'a\'b' ${x}", "$'");
        check_rejected("echo $\"${x}\"", "$\"");
        check_rejected("echo $${x}", "`$` directly before");
        check_rejected(r"echo `echo \\${x}`", "backslash");
        check_rejected("echo 'a ${x}", "not closed");
        check_rejected("echo \"a ${x}", "not closed");
        check_rejected("echo $(a ${x}", "not closed");
        check_rejected("echo `a ${x}", "not closed");
        check_rejected("echo ${v:-a ${x}", "not closed");
        check_rejected("cat <<E\n${x}\n", "here-document");
        check_rejected("cat <<E $(echo\n${x})\nE\n", "here-document");
        check_rejected("echo ${x} )", "`)`");
        check_rejected("cat <<E\n$(echo\nE\n)${x}\nE\n", "not closed");
    }
}
