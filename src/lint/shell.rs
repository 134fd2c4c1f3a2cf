//! Scripts of `shell:`: what only bash knows, failures that nobody sees, scripts that need no shell; and what `exec:`
//! leaves to a shell that is not there.

use super::definition::is_mistaken;
use super::view::{Command, Word};
use super::{Level, Sink, Subject, table};
use crate::tool::placeholder::Part;
use crate::tool::{Syntax, words};

/// What is not POSIX, and what to write instead.
const ODD: [(&str, &str); 6] = [
    ("<<<", "write `printf '%s\\n' TEXT | COMMAND`"),
    ("<(", "write the output into a file first, or use `|`"),
    (">(", "use `|`"),
    ("&>", "write `>FILE 2>&1`; dash starts the command in the background here"),
    ("|&", "write `2>&1 |`"),
    ("${", "use `:-`, `:+`, `:?`, `#`, `##`, `%` or `%%`, or a program such as `cut` or `sed`"),
];

/// Commands that only bash has, or that take these words only there.
const BASH: [(&str, &str, &str); 18] = [
    ("source", "", "write `.`"),
    ("pushd", "", "write `(cd DIR && ...)`"),
    ("popd", "", "write `(cd DIR && ...)`"),
    ("shopt", "", "leave it away"),
    ("mapfile", "", "read lines with `while IFS= read -r line; do ...; done`"),
    ("declare", "", "write `name=value`"),
    ("typeset", "", "write `name=value`"),
    ("echo", "-e", "use `printf`"),
    ("read", "-p", "a tool has no terminal to ask at; leave `-p` away"),
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

/// Commands whose exit code is an answer, or that hardly fail.
const CALM: [&str; 22] = [
    "find", "grep", "egrep", "fgrep", "rg", "diff", "cmp", "echo", "printf", "true", "yes", "seq",
    "date", "pwd", "env", "ps", "uname", "test", "[", "id", "hostname", "tr",
];

/// Whether only bash knows the command of that name.
pub(super) fn is_of_bash(name: &str) -> bool {
    BASH.iter().any(|(bash, word, _)| *bash == name && word.is_empty())
}

/// Programs whose arguments are names of files more often than patterns.
const TAKE_FILES: [&str; 12] =
    ["ls", "cat", "rm", "cp", "mv", "wc", "head", "tail", "chmod", "du", "touch", "sort"];

pub(super) fn check(subject: &Subject<'_>, sink: &mut Sink) {
    match subject.tool.syntax {
        Syntax::Shell => {
            odd(subject, sink);
            hidden_failure(subject, sink);
            could_be_exec(subject, sink);
        }
        Syntax::Exec => not_expanded(subject, sink),
        Syntax::Command => shell_arguments(subject, sink),
    }
}

fn odd(subject: &Subject<'_>, sink: &mut Sink) {
    let Some(outline) = &subject.outline else { return };
    for construct in &outline.odd {
        let help = ODD.iter().find(|(odd, _)| odd == construct).map_or("", |(_, help)| help);
        let shown = if *construct == "${" { "this `${...}`" } else { &format!("`{construct}`") };
        let message =
            format!("{shown} is bash's, and other shells that `sh` may be do not know it");
        sink.add("not-posix-sh", Level::Warning, subject.at(construct, message, help));
    }
    for command in &subject.commands {
        let Some(name) = command.words.first().and_then(Word::fixed) else { continue };
        if outline.functions.iter().any(|function| function == name) {
            continue;
        }
        let fits = |(bash, word, _): &&(&str, &str, &str)| {
            *bash == name
                && (word.is_empty() || command.words.iter().any(|w| w.fixed() == Some(word)))
        };
        if let Some((_, word, help)) = BASH.iter().find(fits) {
            let shown =
                if word.is_empty() { format!("`{name}`") } else { format!("`{word}` of `{name}`") };
            let message =
                format!("{shown} is bash's, and other shells that `sh` may be do not know it");
            let fragment = if word.is_empty() { name } else { word };
            sink.add("not-posix-sh", Level::Warning, subject.at(fragment, message, *help));
        }
    }
    for variable in ["$RANDOM", "$BASH_SOURCE", "$EPOCHSECONDS"] {
        if subject.tool.template.contains(variable) {
            let message =
                format!("`{variable}` is bash's, and empty in other shells that `sh` may be");
            let help = "use a program, such as `shuf` or `date +%s`";
            sink.add("not-posix-sh", Level::Warning, subject.at(variable, message, help));
        }
    }
}

/// A pipe gives the exit code of its last command.
fn hidden_failure(subject: &Subject<'_>, sink: &mut Sink) {
    if subject.tool.template.contains("pipefail") {
        return;
    }
    let mut pipeline: Vec<&Command> = Vec::new();
    for command in &subject.commands {
        pipeline.push(command);
        if command.piped {
            continue;
        }
        let first = std::mem::take(&mut pipeline)[0];
        let words = super::options::unwrapped(&first.words);
        let Some(name) = words.first().map(Word::program) else { continue };
        let plain_list = matches!(name, "ls" | "cat")
            && words[1..].iter().all(|word| word.lead().starts_with('-'));
        if !first.piped || first.quiet || name.is_empty() || plain_list || CALM.contains(&name) {
            continue;
        }
        let message = format!(
            "when `{name}` fails, the tool still succeeds: a pipe gives the exit code of its last command"
        );
        let help = "write `out=$(COMMAND) || exit` and then `printf '%s\\n' \"$out\" | ...`, or use `command: [bash, -o, pipefail, -c, SCRIPT, --]`";
        // The fix is one for the whole script.
        return sink.add(
            "hidden-failure",
            Level::Warning,
            subject.at(&words[0].shown(), message, help),
        );
    }
}

/// A script that is one plain command.
fn could_be_exec(subject: &Subject<'_>, sink: &mut Sink) {
    let [command] = subject.commands.as_slice() else { return };
    let template = subject.tool.template.trim();
    let special = |c: char| "*?[]{}~#=!()".contains(c);
    let plain = words::split(template).ok().filter(|words| words.len() == command.words.len());
    let Some(plain) = plain else { return };
    let texts = plain.iter().flatten().filter_map(|part| match part {
        Part::Text(text) => Some(text),
        Part::Hole(_) => None,
    });
    let name = command.words[0].fixed().unwrap_or_default();
    let builtin = table::BUILTINS.contains(&name)
        && !["echo", "printf", "test", "true", "false", "pwd"].contains(&name);
    let functions = subject.outline.as_ref().is_some_and(|outline| !outline.functions.is_empty());
    let mistaken = subject.tool.parameters.iter().any(|p| is_mistaken(subject, &p.name));
    if mistaken
        || texts.clone().any(|text| text.contains(special))
        || builtin
        || functions
        || name.is_empty()
    {
        return;
    }
    let message = "nothing in this script needs a shell";
    let help = format!(
        "write `exec:` with the same text: one process less, and no quoting to think of: `exec: {template}`"
    );
    sink.add("could-be-exec", Level::Info, subject.at(template, message, help));
}

/// `*` and `~` in `exec:`.
fn not_expanded(subject: &Subject<'_>, sink: &mut Sink) {
    let Some(command) = subject.commands.first() else { return };
    let words = super::options::unwrapped(&command.words);
    let takes_files = words.first().is_some_and(|word| TAKE_FILES.contains(&word.program()));
    for (at, word) in words.iter().enumerate() {
        let Some(text) = word.fixed() else { continue };
        let glob = at > 0 && takes_files && text.contains('*');
        let home = text == "~" || text.starts_with("~/");
        if glob || home {
            let message = format!(
                "no shell expands `{text}` in exec:, so the program gets these very characters"
            );
            let help = if home {
                "write the whole path, or use `shell:` and `$HOME`"
            } else {
                "use `shell:`"
            };
            return sink.add("not-expanded", Level::Warning, subject.at(text, message, help));
        }
    }
}

/// The arguments of a script that `command:` gives to a shell itself.
fn shell_arguments(subject: &Subject<'_>, sink: &mut Sink) {
    let words = super::options::unwrapped(&subject.commands[0].words);
    let shell = ["sh", "bash", "dash", "zsh", "ksh"].contains(&words[0].program());
    let is_c =
        |word: &Word| word.fixed().is_some_and(|text| text.starts_with('-') && text.ends_with('c'));
    let Some(at) = words.iter().position(is_c).filter(|_| shell) else { return };
    let Some((script, arguments)) = words.get(at + 1..).and_then(<[Word]>::split_first) else {
        return;
    };
    let Some(script) = script.fixed() else { return };
    let Some(zero) = arguments.first() else { return };
    let fragment = script.lines().next().unwrap_or_default();
    if let Some(value) = zero.value() {
        let message =
            format!("the first value, `{}`, is `$0` to the script, and not `$1`", value.source);
        let help = "put `\"--\"` behind the script, in the place of `$0`";
        return sink.add("shell-arguments", Level::Warning, subject.at(fragment, message, help));
    }
    if ["$@", "$*", "shift", "${@", "for "].iter().any(|all| script.contains(all)) {
        return;
    }
    for (index, word) in arguments.iter().enumerate().skip(1) {
        let Some(value) = word.value() else { continue };
        let used = [format!("${index}"), format!("${{{index}")]
            .iter()
            .any(|form| script.contains(form.as_str()));
        if !used {
            let message =
                format!("the script does not use `${index}`, which holds `{}`", value.source);
            let help =
                format!("write `\"${index}\"` where the value belongs, or take the parameter out");
            return sink.add(
                "shell-arguments",
                Level::Warning,
                subject.at(fragment, message, help),
            );
        }
    }
}
