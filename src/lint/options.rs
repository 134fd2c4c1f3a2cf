//! Values that a program may take for an option, and `:raw`, which lets the shell split them.

use super::definition::is_mistaken;
use super::table::{self, End};
use super::view::{Command, Dash, Value, Word};
use super::{Level, Sink, Subject};

pub(super) fn check(subject: &Subject<'_>, sink: &mut Sink) {
    for command in &subject.commands {
        check_command(subject, command, sink);
    }
    raw(subject, sink);
}

fn raw(subject: &Subject<'_>, sink: &mut Sink) {
    let Some(at) = subject.tool.template.find(":raw}") else { return };
    let start = subject.tool.template[..at].rfind("${").unwrap_or(at);
    let source = &subject.tool.template[start..at + 5];
    let named = |value: &&Value| value.source == source;
    let words = subject.commands.iter().flat_map(|command| &command.words);
    // `\${x:raw}` is plain text, and so is what no word of a command holds.
    if words.flat_map(|word| word.values()).find(named).is_none() {
        return;
    }
    let plain = source.replace(":raw", "");
    let message = format!(
        "the shell splits what {source} holds into words and expands `*` in it, so that it can add options and files"
    );
    let help = format!(
        "write `{plain}` if it is one value; for several, list what is allowed with `enum:`, or give each option a parameter of its own"
    );
    sink.add("raw", Level::Warning, subject.at(source, message, help));
}

/// Looks at the words of a command up to the `--`.
fn check_command(subject: &Subject<'_>, command: &Command, sink: &mut Sink) {
    let words = unwrapped(&command.words);
    let Some(first) = words.first() else { return };
    let name = first.program();
    if name.is_empty() || table::HARMLESS.contains(&name) || is_interpreter(name) {
        return;
    }
    let known = table::known(name);
    for at in 1..words.len() {
        let word = &words[at];
        if matches!(word.fixed(), Some("--" | "--end-of-options")) {
            return;
        }
        let Some(value) = word.leading_value() else { continue };
        // What follows the host is a command for the other side.
        if name == "ssh" && has_operand(&words[..at]) {
            return;
        }
        // `program-text` is about the whole word.
        if name == "sed" && word.embedded().is_some() {
            continue;
        }
        let name_of = value.source.trim_start_matches("${").trim_end_matches('}');
        if value.dash == Dash::Never
            || is_mistaken(subject, name_of)
            || value.source.contains(":raw")
            || is_option_value(&words[at - 1], at, known)
        {
            continue;
        }
        let level = match (known, value.dash) {
            (Some(_), Dash::Anything) => Level::Warning,
            _ => Level::Info,
        };
        let (message, help) = explain(words, at, value, known.map(|known| known.end));
        let diagnostic = match value.source.starts_with('$') {
            true => subject.at(&fragment(subject, &words[at - 1], value), message, help),
            false => subject.at_key("command", message, help),
        };
        // One is enough: the fix, a `--`, is the same for all that follow.
        return sink.add("option-injection", level, diagnostic);
    }
}

/// What of the template shows the value best: with the word before it where it stands in several places.
fn fragment(subject: &Subject<'_>, before: &Word, value: &Value) -> String {
    let longer = format!("{} {}", before.shown(), value.source);
    let template = &subject.tool.template;
    let several = template.matches(&value.source).count() > 1 && template.contains(&longer);
    if several { longer } else { value.source.clone() }
}

fn explain(words: &[Word], at: usize, value: &Value, end: Option<End>) -> (String, String) {
    let name = words[0].program();
    let source = &value.source;
    let shown = |words: &[Word]| words.iter().map(Word::shown).collect::<Vec<_>>().join(" ");
    let message = match value.dash {
        Dash::Number => format!("a negative {source} is an option to `{name}`"),
        _ => format!("a value that begins with `-` is an option to `{name}` here"),
    };
    let appended = !source.starts_with('$');
    let help = match end {
        Some(End::Path) => format!(
            "write `./{source}`: `{name}` has no end of options, and takes what begins with `-` for a part of its expression"
        ),
        Some(End::Git) => format!(
            "write `--` before a path and `--end-of-options` before a revision: `{} -- {source}`",
            shown(&words[..at])
        ),
        Some(End::Dashes) if name == "sed" && !has_operand(&words[..at]) => {
            format!("write `-e {source}`")
        }
        Some(End::Dashes) if words[at..].iter().any(|word| word.fixed() == Some("--")) => {
            match name {
                "grep" | "egrep" | "fgrep" | "rg" => format!("write `-e {source}`"),
                _ => format!("write the `--` before {source}"),
            }
        }
        Some(End::Dashes) if appended => {
            "add `\"--\"` as the last element of `command:`".to_owned()
        }
        Some(End::Dashes) => {
            format!("write `{} -- {}`", shown(&words[..at]), shown(&words[at..at + 1]))
        }
        None => format!(
            "if `{name}` knows `--` as the end of options, write it before {source}; else give the value by `stdin:`, or behind a fixed text such as `--name={source}`"
        ),
    };
    (message, help)
}

/// Whether an operand stands among the words of a program that lint knows, or an option that stands for one.
fn has_operand(words: &[Word]) -> bool {
    let known = words.first().and_then(|word| table::known(word.program()));
    (1..words.len()).any(|at| {
        let option = words[at].lead().starts_with('-');
        let script = words[at].fixed().is_some_and(|text| text.ends_with(['e', 'f']));
        if option { script } else { !is_option_value(&words[at - 1], at, known) }
    })
}

/// Whether the word after `option` is its value, or the option cannot be told from one that takes a value.
fn is_option_value(option: &Word, at: usize, known: Option<table::Program>) -> bool {
    let lead = option.lead();
    let bundle = at == 2 && known.is_some_and(|known| known.name == "tar");
    if bundle && !option.lead().starts_with('-') {
        // `tar czf ARCHIVE`: its letters need no `-`.
        return option.fixed().is_some_and(|text| text.ends_with('f'));
    }
    if at < 2 || !lead.starts_with('-') || lead == "-" {
        return false;
    }
    let Some(known) = known else { return !lead.contains('=') };
    if lead.starts_with("--") {
        let many = table::MANY_OPTIONS.contains(&known.name) && !lead.contains('=');
        return many || table::LONG_VALUES.contains(&lead);
    }
    if known.end == End::Path {
        return true;
    }
    option
        .fixed()
        .and_then(|text| text.chars().last())
        .is_none_or(|last| known.values.contains(last))
}

/// Whether the program takes a program text, and what that may be is not known here. Of `sed` and `ssh` it is.
fn is_interpreter(name: &str) -> bool {
    super::code::Interpreter::named(name).is_some() && table::known(name).is_none()
}

/// The words of the command that `env`, `timeout` and the like run.
pub(super) fn unwrapped(words: &[Word]) -> &[Word] {
    let Some(name) = words.first().map(Word::program) else { return words };
    if !table::WRAPPERS.contains(&name) {
        return words;
    }
    let values = table::wrapper_values(name);
    let mut at = 1;
    let mut durations = usize::from(name == "timeout");
    while let Some(word) = words.get(at) {
        let lead = word.lead();
        if lead == "--" {
            at += 1;
            break;
        }
        if lead.starts_with('-') {
            let takes = word
                .fixed()
                .is_some_and(|text| text.len() == 2 && text.ends_with(|c| values.contains(c)));
            at += 1 + usize::from(takes);
        } else if lead.contains('=') && matches!(name, "env" | "sudo") {
            at += 1;
        } else if durations > 0 {
            durations -= 1;
            at += 1;
        } else {
            break;
        }
    }
    match words.get(at) {
        Some(_) => unwrapped(&words[at..]),
        None => words,
    }
}
