//! `option-injection`: values that a program may parse as options. `raw`: values that the shell splits.

use super::command_view::interpreter::Interpreter;
use super::command_view::wrapper_program::strip_wrappers;
use super::command_view::{ArgumentValue, CommandView, LeadingDash, LintWord};
use super::program_table::{
    self, HARMLESS_PROGRAMS, KnownProgram, OptionTerminator, find_known_program,
};
use super::proposed_line::propose_line;
use super::tool_definition::is_mistaken_parameter;
use super::{LintLevel, Linter, ToolSubject, command_options};

pub(super) fn check_option_injection(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    for command in &subject.commands {
        check_command_options(subject, command, linter);
    }
    check_raw_values(subject, linter);
    check_bare_variables(subject, linter);
}

/// Reports a value that the shell splits because a variable that has it is outside of quotes.
fn check_bare_variables(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    for command in subject.commands_with_values() {
        let [program, arguments @ ..] = strip_wrappers(&command.words) else { continue };
        // `eval` joins its words anyway, and `program-text` reports it.
        if program.program_name() == "eval" {
            continue;
        }
        let values =
            arguments.iter().flat_map(|word| word.values().map(move |value| (word, value)));
        let mut checked =
            values.filter(|(_, value)| !value.is_constrained && !value.source.contains(":raw"));
        let split = checked.find_map(|(word, value)| {
            value.bare_variable.as_deref().map(|variable| (word, &value.source, variable))
        });
        let Some((word, source, variable)) = split else { continue };
        let message = format!(
            "the shell splits `{variable}`, which has {source}, into words and expands `*` in it, so it can add options and files"
        );
        let help = match word.parts.as_slice() {
            [_] => format!("write `\"{variable}\"`"),
            _ => format!("write the words in place of `{variable}`, with {source} as one of them"),
        };
        return linter.warn("raw", subject.diagnostic_at(source, message, help));
    }
}

fn check_raw_values(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let template = &subject.tool.template;
    let Some(suffix) = template.find(":raw}") else { return };
    let start = template[..suffix].rfind("${").unwrap_or(suffix);
    let source = &template[start..suffix + ":raw}".len()];
    let mut words = subject.commands.iter().flat_map(|command| &command.words);
    // `\${x:raw}` is plain text: no word has such a value.
    if !words.any(|word| word.values().any(|value| value.source == source)) {
        return;
    }
    let quoted = source.replace(":raw", "");
    let message = format!(
        "the shell splits the value of {source} into words and expands `*` in it, so it can add options and files"
    );
    let help = format!(
        "write `{quoted}` for a single value; for several, list the allowed values with `enum:`, or give each option its own parameter"
    );
    linter.warn("raw", subject.diagnostic_at(source, message, help));
}

/// Checks the words of a command up to `--`.
fn check_command_options(
    subject: &ToolSubject<'_>,
    command: &CommandView,
    linter: &mut Linter<'_>,
) {
    let words = strip_wrappers(&command.words);
    let Some(program) = words.first() else { return };
    let name = program.program_name();
    if name.is_empty()
        || HARMLESS_PROGRAMS.contains(&name)
        || takes_program_text(name)
        || command_options::is_make(name)
    {
        return;
    }
    // `git grep` has the options of `grep`.
    let is_git_grep = name == "git" && words.get(1).and_then(LintWord::fixed_text) == Some("grep");
    let known = find_known_program(if is_git_grep { "grep" } else { name });
    for (index, word) in words.iter().enumerate().skip(1) {
        if matches!(word.fixed_text(), Some("--" | "--end-of-options")) {
            return;
        }
        let Some(value) = word.leading_value() else { continue };
        // The words after the host are a command for the remote shell.
        if name == "ssh" && has_operand(&words[..index]) {
            return;
        }
        // `program-text` reports the whole word.
        if name == "sed" && word.embedded_value().is_some() {
            continue;
        }
        let parameter = value.source.trim_start_matches("${").trim_end_matches('}');
        if value.leading_dash == LeadingDash::Never
            || is_mistaken_parameter(subject, parameter)
            || value.source.contains(":raw")
            || is_option_value(&words[index - 1], index, known)
        {
            continue;
        }
        let level = match (known, value.leading_dash) {
            (Some(_), LeadingDash::Any) => LintLevel::Warning,
            _ => LintLevel::Info,
        };
        let (message, help) = explain_injection(subject, words, index, value);
        let diagnostic = if is_appended(value) {
            subject.diagnostic_at_key("command", message, help)
        } else {
            let fragment = value_fragment(subject, &words[index - 1], value);
            subject.diagnostic_at(&fragment, message, help)
        };
        // One finding is enough: the same `--` protects the words after it.
        return linter.report("option-injection", level, diagnostic);
    }
}

/// Whether the value belongs to a parameter that the command does not name.
fn is_appended(value: &ArgumentValue) -> bool {
    !value.source.starts_with('$')
}

/// The fragment of the template to point to: the placeholder, with the word before it if it occurs several times.
fn value_fragment(subject: &ToolSubject<'_>, before: &LintWord, value: &ArgumentValue) -> String {
    let template = &subject.tool.template;
    let longer = format!("{} {}", before.quote_as_in(template), value.source);
    let is_ambiguous = template.matches(&value.source).count() > 1;
    if is_ambiguous && template.contains(&longer) { longer } else { value.source.clone() }
}

/// The message and the help for the value at `index`.
fn explain_injection(
    subject: &ToolSubject<'_>,
    words: &[LintWord],
    index: usize,
    value: &ArgumentValue,
) -> (String, String) {
    let name = words[0].program_name();
    let source = &value.source;
    let message = match value.leading_dash {
        LeadingDash::Number => format!("a negative {source} is an option to `{name}`"),
        _ => format!("a value that begins with `-` is an option to `{name}` here"),
    };
    let line_with = |option: &str| {
        let option = LintWord::from_text(option);
        propose_line(subject, &[&words[..index], &[option], &words[index..=index]].concat())
    };
    let with_dashes = line_with("--");
    let with_expression = || match line_with("-e") {
        Some(line) => format!("write `{line}`"),
        None => format!("write `-e` before {source}"),
    };
    let help = match find_known_program(name).map(|known| known.terminator) {
        Some(OptionTerminator::None) => {
            let path = words[index].with_prefix("./");
            let proposed = propose_line(subject, &[&words[..index], &[path]].concat())
                .map_or_else(|| format!("`./` before {source}"), |line| format!("`{line}`"));
            format!(
                "write {proposed}: `{name}` has no mark for the end of options, and parses a word that begins with `-` as a part of its expression"
            )
        }
        Some(OptionTerminator::Git) => {
            let rule = "write `--` before a path and `--end-of-options` before a revision";
            with_dashes.map_or_else(|| rule.to_owned(), |line| format!("{rule}: `{line}`"))
        }
        Some(OptionTerminator::DoubleDash) if name == "sed" && !has_operand(&words[..index]) => {
            with_expression()
        }
        Some(OptionTerminator::DoubleDash)
            if words[index..].iter().any(|word| word.fixed_text() == Some("--")) =>
        {
            match name {
                "grep" | "egrep" | "fgrep" | "rg" if words[index].parts.len() == 1 => {
                    with_expression()
                }
                _ => format!("write the `--` before {source}"),
            }
        }
        Some(OptionTerminator::DoubleDash) if is_appended(value) => {
            "add `\"--\"` as the last element of `command:`".to_owned()
        }
        Some(OptionTerminator::DoubleDash) => match with_dashes {
            Some(line) => format!("write `{line}`"),
            None => format!("write `--` before {source}"),
        },
        None => format!(
            "if `--` ends the options of `{name}`, write it before {source}; otherwise pass the value by `stdin:`, or after fixed text such as `--name={source}`"
        ),
    };
    (message, help)
}

/// Whether the words of a known program contain an operand, or an option that replaces it, such as `-e` or `-f`.
fn has_operand(words: &[LintWord]) -> bool {
    let known = words.first().and_then(|word| find_known_program(word.program_name()));
    (1..words.len()).any(|index| {
        let word = &words[index];
        if word.fixed_prefix().starts_with('-') {
            word.fixed_text().is_some_and(|text| text.ends_with(['e', 'f']))
        } else {
            !is_option_value(&words[index - 1], index, known)
        }
    })
}

/// Whether the word at `index`, which follows `option`, may be the value of that option.
pub(super) fn is_option_value(
    option: &LintWord,
    index: usize,
    known: Option<KnownProgram>,
) -> bool {
    let prefix = option.fixed_prefix();
    let is_option = prefix.starts_with('-');
    if index == 2 && !is_option && known.is_some_and(|known| known.name == "tar") {
        // `tar czf ARCHIVE`: the letters need no `-`.
        return option.fixed_text().is_some_and(|text| text.ends_with('f'));
    }
    if index < 2 || !is_option || prefix == "-" {
        return false;
    }
    let Some(known) = known else { return !prefix.contains('=') };
    if prefix.starts_with("--") {
        let may_take_value = program_table::PROGRAMS_WITH_MANY_OPTIONS.contains(&known.name)
            && !prefix.contains('=');
        return may_take_value || program_table::LONG_VALUE_OPTIONS.contains(&prefix);
    }
    if known.terminator == OptionTerminator::None {
        return true;
    }
    option
        .fixed_text()
        .and_then(|text| text.chars().last())
        .is_none_or(|letter| known.value_options.contains(letter))
}

/// Whether the arguments of the program are program text, about which only the table of programs could say more.
fn takes_program_text(name: &str) -> bool {
    Interpreter::from_program_name(name).is_some() && find_known_program(name).is_none()
}
