//! `program-text`: values with which a program starts other programs: the value of an option that is a command, a variable
//! of a makefile, the program of `env` and other wrapper programs.

use super::command_view::wrapper_program::{strip_wrappers, wrapped_commands};
use super::command_view::{ArgumentValue, CommandView, LintWord};
use super::option_injection::is_option_value;
use super::program_table::find_known_program;
use super::program_text::RULE;
use super::tool_definition::is_mistaken_parameter;
use super::{Linter, ToolSubject};

const ENUM_HELP: &str = "write it in the template, or list the allowed values with `enum:`";

/// The options of some programs whose value is a command, or can contain one.
struct CommandOptions {
    programs: &'static [&'static str],
    /// The letters of the short options.
    letters: &'static str,
    long_options: &'static [&'static str],
}

static COMMAND_OPTIONS: [CommandOptions; 14] = [
    CommandOptions { programs: &["env"], letters: "S", long_options: &["--split-string"] },
    CommandOptions {
        programs: &["git"],
        letters: "c",
        long_options: &[
            "--config",
            "--config-env",
            "--exec",
            "--exec-path",
            "--extcmd",
            "--open-files-in-pager",
            "--receive-pack",
            "--upload-pack",
        ],
    },
    CommandOptions { programs: &["make", "gmake"], letters: "", long_options: &["--eval"] },
    CommandOptions { programs: &["man"], letters: "P", long_options: &["--pager"] },
    CommandOptions { programs: &["npm", "npx"], letters: "c", long_options: &["--call"] },
    CommandOptions { programs: &["rg"], letters: "", long_options: &["--pre", "--hostname-bin"] },
    CommandOptions { programs: &["rsync"], letters: "e", long_options: &["--rsh", "--rsync-path"] },
    CommandOptions { programs: &["scp", "sftp"], letters: "oSD", long_options: &[] },
    CommandOptions { programs: &["sort"], letters: "", long_options: &["--compress-program"] },
    CommandOptions { programs: &["split"], letters: "", long_options: &["--filter"] },
    CommandOptions { programs: &["ssh"], letters: "o", long_options: &[] },
    CommandOptions {
        programs: &["tar", "gtar", "bsdtar"],
        letters: "IF",
        long_options: &[
            "--checkpoint-action",
            "--info-script",
            "--new-volume-script",
            "--rmt-command",
            "--rsh-command",
            "--to-command",
            "--use-compress-program",
        ],
    },
    CommandOptions {
        programs: &["ex", "gvim", "nvim", "rvim", "vi", "view", "vim", "vimdiff"],
        letters: "cS",
        long_options: &["--cmd", "--remote-expr", "--remote-send"],
    },
    CommandOptions { programs: &["wget"], letters: "", long_options: &["--use-askpass"] },
];

/// The actions of `find` that a command follows.
const FIND_ACTIONS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

pub(super) fn is_make(name: &str) -> bool {
    matches!(name, "make" | "gmake")
}

pub(super) fn check_started_programs(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    for command in subject.commands_with_values() {
        for words in wrapped_commands(&command.words) {
            check_options(subject, words, linter);
        }
        check_make_variables(subject, strip_wrappers(&command.words), linter);
        check_program_values(subject, command, linter);
    }
}

fn check_options(subject: &ToolSubject<'_>, words: &[LintWord], linter: &mut Linter<'_>) {
    let Some(name) = words.first().map(LintWord::program_name) else { return };
    let Some(options) = COMMAND_OPTIONS.iter().find(|it| it.programs.contains(&name)) else {
        return;
    };
    let short_end = if name == "git" { git_subcommand_index(words) } else { words.len() };
    for (index, word) in words.iter().enumerate().skip(1) {
        if word.fixed_prefix() == "--" {
            return;
        }
        let option = find_long_option(word, options)
            .or_else(|| find_short_option(word, name, options).filter(|_| index < short_end))
            .or_else(|| find_bundled_option(words, index, name));
        let Some(OptionWord { option, value_index }) = option else { continue };
        let value = words.get(index + value_index).and_then(unconstrained_value);
        if let Some(value) = value {
            let source = &value.source;
            let message = format!(
                "{source} is in the value of `{option}`, with which `{name}` runs commands"
            );
            return linter.warn(RULE, subject.diagnostic_at(source, message, ENUM_HELP));
        }
    }
}

/// An option whose value is a command.
struct OptionWord {
    option: String,
    /// Which word contains the value: 0 for the option itself, 1 for the next word.
    value_index: usize,
}

fn unconstrained_value(word: &LintWord) -> Option<&ArgumentValue> {
    word.values().find(|value| !value.is_constrained)
}

/// The index of the subcommand of git, after which `-c` is another option; only `clone` has the same.
pub(super) fn git_subcommand_index(words: &[LintWord]) -> usize {
    let known = find_known_program("git");
    let index = (1..words.len()).find(|index| {
        !words[*index].fixed_prefix().starts_with('-')
            && !is_option_value(&words[index - 1], *index, known)
    });
    let index = index.unwrap_or(words.len());
    let is_clone = words.get(index).is_some_and(|word| word.fixed_text() == Some("clone"));
    if is_clone { words.len() } else { index }
}

/// A long option, which GNU programs accept without its end too.
fn find_long_option(word: &LintWord, options: &CommandOptions) -> Option<OptionWord> {
    let prefix = word.fixed_prefix();
    let (name, has_value) = match prefix.split_once('=') {
        Some((name, _)) => (name, true),
        None => (word.fixed_text()?, false),
    };
    let mut long_options = options.long_options.iter();
    let is_known =
        long_options.any(|long| *long == name || name.len() > 3 && long.starts_with(name));
    (is_known && name.starts_with("--"))
        .then(|| OptionWord { option: name.to_owned(), value_index: usize::from(!has_value) })
}

/// A short option, perhaps after others in the same word; `+` is one of vim and its relatives.
fn find_short_option(word: &LintWord, name: &str, options: &CommandOptions) -> Option<OptionWord> {
    let prefix = word.fixed_prefix();
    if prefix.starts_with('+') && options.programs.contains(&"vim") {
        return Some(OptionWord { option: "+".to_owned(), value_index: 0 });
    }
    let letters = prefix.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    let other_letters = find_known_program(name).map_or("", |known| known.value_options);
    let mut with_value =
        letters.chars().filter(|c| options.letters.contains(*c) || other_letters.contains(*c));
    let letter = with_value.next().filter(|c| options.letters.contains(*c))?;
    let is_last = letters.ends_with(letter) && word.fixed_text().is_some();
    Some(OptionWord { option: format!("-{letter}"), value_index: usize::from(is_last) })
}

/// `I` or `F` among the first letters of `tar`, which need no `-` and whose values follow in the same order.
fn find_bundled_option(words: &[LintWord], index: usize, name: &str) -> Option<OptionWord> {
    let letters = words[index].fixed_text().filter(|_| index == 1 && name.ends_with("tar"))?;
    let value_letters = find_known_program("tar").map_or("", |known| known.value_options);
    let with_values = letters.chars().filter(|c| value_letters.contains(*c));
    let (position, letter) = with_values.enumerate().find(|(_, c)| matches!(c, 'I' | 'F'))?;
    (!letters.starts_with('-'))
        .then(|| OptionWord { option: letter.to_string(), value_index: position + 1 })
}

/// Reports an operand of `make` that may be `NAME=value`: such variables choose the shell, and recipes contain them. A
/// `--` before it changes nothing.
fn check_make_variables(subject: &ToolSubject<'_>, words: &[LintWord], linter: &mut Linter<'_>) {
    let Some(name) = words.first().map(LintWord::program_name).filter(|name| is_make(name)) else {
        return;
    };
    let known = find_known_program("make");
    for (index, word) in words.iter().enumerate().skip(1) {
        let prefix = word.fixed_prefix();
        let may_assign = word.leading_value().is_some() || prefix.contains('=');
        let is_operand = words[index - 1].fixed_text() == Some("--")
            || !is_option_value(&words[index - 1], index, known);
        if prefix.starts_with('-') || !may_assign || !is_operand {
            continue;
        }
        let Some(value) = unconstrained_value(word) else { continue };
        let source = &value.source;
        if is_mistaken_parameter(subject, source.trim_start_matches("${").trim_end_matches('}')) {
            continue;
        }
        let message = if prefix.contains('=') {
            format!(
                "{source} is in a variable of `{name}`, whose value becomes part of commands for a shell"
            )
        } else {
            format!(
                "{source} can be `SHELL=PROGRAM` or another variable of `{name}`, also after `--`"
            )
        };
        return linter.warn(
            RULE,
            subject.diagnostic_at(source, message, "list the allowed values with `enum:`"),
        );
    }
}

/// Reports a value that is the program of a command.
fn check_program_values(subject: &ToolSubject<'_>, command: &CommandView, linter: &mut Linter<'_>) {
    let words = strip_wrappers(&command.words);
    let is_find = words.first().is_some_and(|word| word.program_name() == "find");
    let after_action = words.windows(2).filter(|pair| {
        is_find && pair[0].fixed_text().is_some_and(|text| FIND_ACTIONS.contains(&text))
    });
    let programs = words.first().into_iter().chain(after_action.map(|pair| &pair[1]));
    for program in programs {
        let Some(value) = program.leading_value().filter(|value| !value.is_constrained) else {
            continue;
        };
        let source = &value.source;
        if !is_mistaken_parameter(subject, source.trim_start_matches("${").trim_end_matches('}')) {
            let (message, help) = match &value.bare_variable {
                None => (
                    format!("{source} names the program of the command, so it can be any program"),
                    ENUM_HELP.to_owned(),
                ),
                Some(variable) => (
                    format!(
                        "{source} is a whole command: the shell splits `{variable}` into words"
                    ),
                    format!("write the program in the template: `PROGRAM -- {source}`"),
                ),
            };
            return linter.warn(RULE, subject.diagnostic_at(source, message, help));
        }
    }
}
