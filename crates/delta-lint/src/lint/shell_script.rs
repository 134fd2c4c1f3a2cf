//! The rules for `shell:` scripts and for text that only a shell would expand: `not-posix-sh`, `hidden-failure`,
//! `could-be-exec`, `not-expanded`, `lost-backslash`, `shell-arguments`.

use super::command_view::wrapper_program::strip_wrappers;
use super::command_view::{CommandView, LintWord};
use super::program_table::SHELL_BUILTINS;
use super::proposed_line::propose_exec_key;
use super::tool_definition::is_mistaken_parameter;
use super::{LintLevel, Linter, ToolSubject};
use delta_agent::tool::{InjectAs, ToolSyntax};
use delta_shell::{ShellOutline, TemplatePart, split_exec_template};

/// Syntax that is not POSIX, and what to write instead.
const NON_POSIX_SYNTAX: [(&str, &str); 6] = [
    ("<<<", "write `printf '%s\\n' TEXT | COMMAND`"),
    ("<(", "write the output to a file first, or use `|`"),
    (">(", "use `|`"),
    ("&>", "write `>FILE 2>&1`; dash starts the command in the background here"),
    ("|&", "write `2>&1 |`"),
    ("${", "use `:-`, `:+`, `:?`, `#`, `##`, `%` or `%%`, or a program such as `cut` or `sed`"),
];

/// Commands of bash, each with what to write instead: all uses of a command, or only those with the given argument.
const BASH_COMMANDS: [(&str, &str, &str); 18] = [
    ("source", "", "write `.`"),
    ("pushd", "", "write `(cd DIR && ...)`"),
    ("popd", "", "write `(cd DIR && ...)`"),
    ("shopt", "", "remove it"),
    ("mapfile", "", "read the lines with `while IFS= read -r line; do ...; done`"),
    ("declare", "", "write `name=value`"),
    ("typeset", "", "write `name=value`"),
    ("echo", "-e", "use `printf`"),
    ("read", "-p", "a tool has no terminal for a prompt; remove `-p`"),
    ("read", "-a", "read into plain variables"),
    ("read", "-n", "use `head -c`"),
    ("read", "-t", "use `timeout`"),
    ("printf", "-v", "write `name=$(printf ...)`"),
    ("set", "pipefail", "write `a > file && b < file`, or `command: [bash, -c, SCRIPT, --]`"),
    ("trap", "ERR", "use `set -e` and `trap ... EXIT`"),
    ("wait", "-n", "wait for `$!`"),
    ("test", "==", "write `=`"),
    ("[", "==", "write `=`"),
];

/// Variables of bash that other shells do not set.
const BASH_VARIABLES: [&str; 3] = ["$RANDOM", "$BASH_SOURCE", "$EPOCHSECONDS"];

/// Commands that rarely fail, or whose exit code is an answer.
const RARELY_FAILING_COMMANDS: [&str; 22] = [
    "find", "grep", "egrep", "fgrep", "rg", "diff", "cmp", "echo", "printf", "true", "yes", "seq",
    "date", "pwd", "env", "ps", "uname", "test", "[", "id", "hostname", "tr",
];

/// Programs whose arguments are more often file names than patterns.
const FILE_PROGRAMS: [&str; 12] =
    ["ls", "cat", "rm", "cp", "mv", "wc", "head", "tail", "chmod", "du", "touch", "sort"];

/// The built-ins that also exist as programs.
const BUILTIN_PROGRAMS: [&str; 6] = ["echo", "printf", "test", "true", "false", "pwd"];

/// Whether only bash has a command of this name.
pub(super) fn is_bash_command(name: &str) -> bool {
    BASH_COMMANDS.iter().any(|(command, argument, _)| *command == name && argument.is_empty())
}

pub(super) fn check_script(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    match subject.tool.syntax {
        ToolSyntax::Shell => {
            if let Some(outline) = &subject.outline {
                check_posix_syntax(subject, outline, linter);
                check_bash_commands(subject, outline, linter);
                check_bash_variables(subject, linter);
            }
            check_hidden_failure(subject, linter);
            check_could_be_exec(subject, linter);
        }
        ToolSyntax::Exec => {
            check_unexpanded_patterns(subject, linter);
            check_lost_backslashes(subject, linter);
        }
        ToolSyntax::Command => check_script_arguments(subject, linter),
    }
}

fn check_posix_syntax(subject: &ToolSubject<'_>, outline: &ShellOutline, linter: &mut Linter<'_>) {
    for construct in &outline.bash_constructs {
        let help = NON_POSIX_SYNTAX
            .iter()
            .find(|(syntax, _)| syntax == construct)
            .map_or("", |(_, help)| help);
        let syntax =
            if *construct == "${" { "this `${...}`".to_owned() } else { format!("`{construct}`") };
        let message = format!("{syntax} works in bash, but not in every `sh`");
        linter.warn("not-posix-sh", subject.diagnostic_at(construct, message, help));
    }
}

fn check_bash_commands(subject: &ToolSubject<'_>, outline: &ShellOutline, linter: &mut Linter<'_>) {
    for command in &subject.commands {
        let Some(name) = command.words.first().and_then(LintWord::fixed_text) else { continue };
        if outline.functions.iter().any(|function| function == name) {
            continue;
        }
        let bash_command = BASH_COMMANDS.iter().find(|(bash_name, argument, _)| {
            *bash_name == name
                && (argument.is_empty()
                    || command.words.iter().any(|word| word.fixed_text() == Some(*argument)))
        });
        let Some((_, argument, help)) = bash_command else { continue };
        let (fragment, subject_text) = if argument.is_empty() {
            (name, format!("`{name}`"))
        } else {
            (*argument, format!("`{argument}` of `{name}`"))
        };
        let message = format!("{subject_text} works in bash, but not in every `sh`");
        linter.warn("not-posix-sh", subject.diagnostic_at(fragment, message, *help));
    }
}

fn check_bash_variables(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    for variable in BASH_VARIABLES {
        if subject.tool.template.contains(variable) {
            let message = format!("bash sets `{variable}`, but it is empty in other shells");
            let help = "use a program, such as `shuf` or `date +%s`";
            linter.warn("not-posix-sh", subject.diagnostic_at(variable, message, help));
        }
    }
}

/// Reports the first pipeline whose first command may fail unseen: a pipe has the exit code of its last command.
fn check_hidden_failure(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    if subject.tool.template.contains("pipefail") {
        return;
    }
    for pipeline in subject.commands.chunk_by(|command, _| command.is_piped) {
        let [first, _, ..] = pipeline else { continue };
        let words = strip_wrappers(&first.words);
        let Some(name) = words.first().map(LintWord::program_name) else { continue };
        if first.redirects_stderr || name.is_empty() || rarely_fails(name, words) {
            continue;
        }
        let message = format!(
            "if `{name}` fails, the tool still succeeds: a pipe has the exit code of its last command"
        );
        let mut help =
            "write `out=$(COMMAND) || exit` and then `printf '%s\\n' \"$out\" | ...`".to_owned();
        if let Some(values) = positional_values(subject) {
            help.push_str(", or use `command: [bash, -o, pipefail, -c, SCRIPT, --]`");
            help.push_str(&values);
        }
        let diagnostic = subject.diagnostic_at(&words[0].display_text(), message, help);
        // The same change fixes the whole script.
        return linter.warn("hidden-failure", diagnostic);
    }
}

/// How a script in `command:` gets the values of the tool's parameters; `None` if a missing one would shift the others, or one
/// is a mistake.
fn positional_values(subject: &ToolSubject<'_>) -> Option<String> {
    let parameters = subject.tool.parameters.iter();
    let arguments = parameters.filter(|parameter| parameter.inject_as != InjectAs::Stdin);
    if arguments.clone().any(|parameter| {
        let may_be_missing = !parameter.required && parameter.default.is_none();
        may_be_missing || is_mistaken_parameter(subject, &parameter.name)
    }) {
        return None;
    }
    let mut uses: Vec<String> = (1..)
        .zip(arguments)
        .map(|(number, parameter)| format!("`\"${number}\"` for `${{{}}}`", parameter.name))
        .collect();
    let last = uses.pop();
    Some(match (uses.is_empty(), last) {
        (_, None) => String::new(),
        (true, Some(last)) => format!(" with {last} in SCRIPT, and list it in `parameters:`"),
        (false, Some(last)) => format!(
            " with {} and {last} in SCRIPT, and list them in this order in `parameters:`",
            uses.join(", ")
        ),
    })
}

fn rarely_fails(name: &str, words: &[LintWord]) -> bool {
    let lists_current_dir = matches!(name, "ls" | "cat")
        && words[1..].iter().all(|word| word.fixed_prefix().starts_with('-'));
    lists_current_dir || RARELY_FAILING_COMMANDS.contains(&name)
}

/// Reports a script that is one plain command.
fn check_could_be_exec(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let [command] = subject.commands.as_slice() else { return };
    let template = subject.tool.template.trim();
    let Ok(words) = split_exec_template(template) else { return };
    if words.len() != command.words.len() || needs_shell(subject, command, &words.concat()) {
        return;
    }
    let Some(line) = propose_exec_key(subject, &command.words) else { return };
    let message = "nothing in this script needs a shell";
    let help = format!(
        "write `exec:` with the same text, which needs one process less and no quoting: `{line}`"
    );
    let diagnostic = subject.diagnostic_at(template, message, help);
    linter.report("could-be-exec", LintLevel::Info, diagnostic);
}

/// Whether a shell gives the only command of a script, whose words consist of `parts`, a meaning that `exec:` does not.
fn needs_shell(subject: &ToolSubject<'_>, command: &CommandView, parts: &[TemplatePart]) -> bool {
    let has_special = parts.iter().any(|part| match part {
        TemplatePart::Text(text) => text.contains(|c: char| "*?[]{}~#=!()".contains(c)),
        TemplatePart::Placeholder(_) => false,
    });
    let name = command.words[0].fixed_text().unwrap_or_default();
    let is_builtin = SHELL_BUILTINS.contains(&name) && !BUILTIN_PROGRAMS.contains(&name);
    let has_functions =
        subject.outline.as_ref().is_some_and(|outline| !outline.functions.is_empty());
    let has_mistake = subject
        .tool
        .parameters
        .iter()
        .any(|parameter| is_mistaken_parameter(subject, &parameter.name));
    has_special || is_builtin || has_functions || has_mistake || name.is_empty()
}

/// Reports `*` and `~` in `exec:`.
fn check_unexpanded_patterns(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let Some(command) = subject.commands.first() else { return };
    let words = strip_wrappers(&command.words);
    let takes_files =
        words.first().is_some_and(|word| FILE_PROGRAMS.contains(&word.program_name()));
    for (index, word) in words.iter().enumerate() {
        let Some(text) = word.fixed_text() else { continue };
        let is_pattern = index > 0 && takes_files && text.contains('*');
        let is_home = text == "~" || text.starts_with("~/");
        if is_pattern || is_home {
            let message =
                format!("no shell expands `{text}` in exec:, so the program gets it unchanged");
            let help = if is_home {
                "write the whole path, or use `shell:` and `$HOME`"
            } else {
                "use `shell:`"
            };
            return linter.warn("not-expanded", subject.diagnostic_at(text, message, help));
        }
    }
}

/// Reports the first backslash that the splitting into words removes although it was meant for the program, as in `%P\n`.
fn check_lost_backslashes(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let Some(word) = find_lost_backslash(&subject.tool.template) else { return };
    let passed_word: String = word.chars().filter(|c| *c != '\\').collect();
    let message =
        format!("outside of quotes a backslash is removed, so the program gets `{passed_word}`");
    let help = format!("write `'{word}'`");
    linter.warn("lost-backslash", subject.diagnostic_at(word, message, help));
}

/// The first word of a template that has no quotes, and a backslash before a letter or a digit.
fn find_lost_backslash(template: &str) -> Option<&str> {
    let mut quote = None;
    let mut start = 0;
    let mut is_quoted = false;
    let mut is_lost = false;
    let mut chars = template.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some('"'), '\\') => drop(chars.next()),
            (Some(_), _) => {}
            (None, '\'' | '"') => {
                quote = Some(c);
                is_quoted = true;
            }
            (None, '\\') => {
                let next = chars.next().map(|(_, next)| next);
                is_lost |= next.is_some_and(|next| next.is_ascii_alphanumeric());
            }
            (None, _) if c.is_whitespace() => {
                if is_lost && !is_quoted {
                    return Some(&template[start..at]);
                }
                start = at + c.len_utf8();
                is_quoted = false;
                is_lost = false;
            }
            (None, _) => {}
        }
    }
    (is_lost && !is_quoted).then(|| &template[start..])
}

/// Checks the arguments of a script that `command:` passes to a shell.
fn check_script_arguments(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let words = strip_wrappers(&subject.commands[0].words);
    if !["sh", "bash", "dash", "zsh", "ksh"].contains(&words[0].program_name()) {
        return;
    }
    let script_option = words.iter().position(|word| {
        word.fixed_text().is_some_and(|text| text.starts_with('-') && text.ends_with('c'))
    });
    let Some(option) = script_option else { return };
    let [script, arguments @ ..] = &words[option + 1..] else { return };
    let Some(script) = script.fixed_text() else { return };
    let Some(zeroth) = arguments.first() else { return };
    let fragment = script.lines().next().unwrap_or_default();
    if let Some(value) = zeroth.first_value() {
        let message =
            format!("the first value, `{}`, is `$0` of the script, not `$1`", value.source);
        let help = "write `\"--\"` after the script, as its `$0`";
        return linter.warn("shell-arguments", subject.diagnostic_at(fragment, message, help));
    }
    if ["$@", "$*", "shift", "${@", "for "].iter().any(|all| script.contains(all)) {
        return;
    }
    for (index, word) in arguments.iter().enumerate().skip(1) {
        let Some(value) = word.first_value() else { continue };
        let is_used = [format!("${index}"), format!("${{{index}")]
            .iter()
            .any(|form| script.contains(form.as_str()));
        if !is_used {
            let message =
                format!("the script does not use `${index}`, which is `{}`", value.source);
            let help =
                format!("write `\"${index}\"` where the script needs it, or remove the parameter");
            return linter.warn("shell-arguments", subject.diagnostic_at(fragment, message, help));
        }
    }
}
