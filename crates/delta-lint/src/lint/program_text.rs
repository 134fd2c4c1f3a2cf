//! `program-text`: values in a text that another interpreter parses as a program.

use super::command_view::interpreter::{Interpreter, operands, words_after_option};
use super::command_view::wrapper_program::{is_wrapper, strip_wrappers, wrapped_commands};
use super::command_view::{ArgumentValue, CommandView, LintWord, WordPart};
use super::{Linter, ToolSubject};
use delta_agent::tool::InjectAs;

/// The name of the rule.
pub(super) const RULE: &str = "program-text";
/// The options of ssh that take the next word as their value.
const SSH_VALUE_OPTIONS: [char; 21] = [
    'B', 'b', 'c', 'D', 'E', 'e', 'F', 'I', 'i', 'J', 'L', 'l', 'm', 'O', 'o', 'p', 'Q', 'R', 'S',
    'W', 'w',
];
/// Programs that can run a command from any place in their arguments, in addition to wrapper programs.
const COMMAND_RUNNERS: [&str; 10] = [
    "docker", "podman", "kubectl", "find", "parallel", "bwrap", "firejail", "uv", "poetry", "entr",
];

const CHOSEN_FILE_HELP: &str =
    "write its name into the template, or list the allowed values with `enum:`";

pub(super) fn check_program_text(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let commands = subject.commands_with_values();
    for (index, command) in commands.iter().enumerate() {
        check_interpreter_arguments(subject, command, linter);
        check_interpreter_input(subject, command, commands.get(index + 1), linter);
    }
    check_sql_stdin(subject, linter);
}

/// Checks a tool that is one SQL client whose standard input comes from the LLM.
fn check_sql_stdin(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let [command] = subject.commands.as_slice() else { return };
    let words = strip_wrappers(&command.words);
    let Some(name) = words.first().map(LintWord::program_name) else { return };
    let is_client = Interpreter::from_program_name(name) == Some(Interpreter::Sql);
    if !is_client || !has_client_commands(name, &words[1..]) {
        return;
    }
    let mut parameters = subject.tool.parameters.iter();
    if let Some(parameter) = parameters.find(|parameter| parameter.inject_as == InjectAs::Stdin) {
        let (message, help) = explain_client_command(name, &parameter.name);
        linter.warn(RULE, subject.diagnostic_at_key("stdin", message, help));
    }
}

/// Checks each interpreter among the words: `xargs`, `find -exec`, `docker exec` and others run one too.
fn check_interpreter_arguments(
    subject: &ToolSubject<'_>,
    command: &CommandView,
    linter: &mut Linter<'_>,
) {
    for (index, word) in command.words.iter().enumerate() {
        // A program in the agent directory has a variable in its path.
        let is_fixed =
            !word.parts.iter().any(|part| matches!(part, WordPart::Value(_) | WordPart::Unknown));
        if index > 0 && !is_fixed {
            continue;
        }
        let name = word.program_name();
        let Some(interpreter) = Interpreter::from_program_name(name) else { continue };
        // Most programs do not run a program that their arguments name.
        if index > 0 && !runs_arguments(&command.words[..index]) {
            continue;
        }
        let runs_other = wrapped_commands(&command.words[index..]).nth(1).is_some();
        if interpreter == Interpreter::ShellOption && runs_other {
            continue;
        }
        let arguments = &command.words[index + 1..];
        if interpreter == Interpreter::Sql
            && let Some(value) = find_full_statement(name, arguments)
        {
            return report_statement(subject, name, &value.source, linter);
        }
        let texts = interpreter.program_words(arguments);
        let embedded = match interpreter {
            Interpreter::Ssh => remote_command_value(arguments),
            // The loader refuses a placeholder in its arguments, but not a variable with its value.
            Interpreter::Eval
            | Interpreter::Parallel
            | Interpreter::ShellOption
            | Interpreter::Source
            | Interpreter::Make => {
                texts.iter().flat_map(|text| text.values()).find(|value| !value.is_constrained)
            }
            _ => texts.iter().find_map(|text| text.embedded_value()),
        };
        if let Some(value) = embedded {
            return report_program_text(subject, interpreter, name, &value.source, linter);
        }
        let mark = replaced_text(&command.words[..index]);
        if interpreter == Interpreter::Shell
            && texts.into_iter().any(|text| embeds_text(text, mark))
        {
            let message = format!("each name that replaces `{mark}` becomes a part of the script");
            let help = format!("pass it as an argument: `sh -c '... \"$1\" ...' -- {mark}`");
            return linter.warn(RULE, subject.diagnostic_at(mark, message, help));
        }
    }
}

/// The text that the program of `words` replaces in the arguments that follow: `{}`, or what `xargs -I` names.
fn replaced_text(words: &[LintWord]) -> &str {
    let xargs = wrapped_commands(words)
        .find(|words| words.first().is_some_and(|word| word.program_name() == "xargs"));
    let mut options = xargs.unwrap_or_default().iter();
    let mark = options.find_map(|word| {
        word.fixed_text()?
            .strip_prefix("-I")
            .or_else(|| word.fixed_text()?.strip_prefix("--replace="))
    });
    match mark {
        Some("") => options.next().and_then(LintWord::fixed_text).unwrap_or("{}"),
        Some(mark) => mark,
        None => "{}",
    }
}

/// Whether `mark`, which another program replaces, is a part of the word.
fn embeds_text(word: &LintWord, mark: &str) -> bool {
    matches!(word.parts.as_slice(), [WordPart::Text(text)] if text.contains(mark) && text != mark)
}

/// Checks a here-document, or the text that `echo` pipes to the next command.
fn check_interpreter_input(
    subject: &ToolSubject<'_>,
    command: &CommandView,
    next: Option<&CommandView>,
    linter: &mut Linter<'_>,
) {
    let heredoc_value = command.heredoc_values.first();
    if let (Some(source), Some((interpreter, name))) = (heredoc_value, stdin_interpreter(command)) {
        return report_program_text(subject, interpreter, name, source, linter);
    }
    let Some(next) = next.filter(|_| command.is_piped) else { return };
    let Some((interpreter, name)) = stdin_interpreter(next) else { return };
    let program = command.words.first().map(LintWord::program_name);
    let is_print = matches!(program, Some("echo" | "printf"));
    let printed = if is_print { command.words.as_slice() } else { &[] };
    let embedded = printed.iter().find_map(LintWord::embedded_value);
    let printed_value =
        printed.iter().flat_map(LintWord::values).find(|value| !value.is_constrained);
    let value = match interpreter {
        Interpreter::Sql if embedded.is_none() => {
            if let Some(value) = printed_value.filter(|_| has_client_commands(name, &next.words)) {
                return report_statement(subject, name, &value.source, linter);
            }
            None
        }
        Interpreter::Sql => embedded,
        _ => printed_value,
    };
    if let Some(source) = value.map(|value| &value.source).or(heredoc_value) {
        report_program_text(subject, interpreter, name, source, linter);
    }
}

/// The interpreter that runs its standard input as a program, and its name.
fn stdin_interpreter(command: &CommandView) -> Option<(Interpreter, &str)> {
    let words = strip_wrappers(&command.words);
    let (program, arguments) = words.split_first()?;
    let name = program.program_name();
    let interpreter = Interpreter::from_program_name(name)?;
    let reads_stdin = match interpreter {
        Interpreter::Awk
        | Interpreter::Sed
        | Interpreter::Jq
        | Interpreter::Su
        | Interpreter::Watch
        | Interpreter::Eval
        | Interpreter::Parallel
        | Interpreter::ShellOption
        | Interpreter::Source
        | Interpreter::Make => false,
        Interpreter::Sql => true,
        Interpreter::Ssh => operands(arguments, &[]).count() < 2,
        _ => arguments
            .iter()
            .map(LintWord::fixed_prefix)
            .all(|prefix| prefix.starts_with('-') && prefix != "-c"),
    };
    reads_stdin.then_some((interpreter, name))
}

fn report_program_text(
    subject: &ToolSubject<'_>,
    interpreter: Interpreter,
    name: &str,
    source: &str,
    linter: &mut Linter<'_>,
) {
    let kind = interpreter.text_kind();
    if matches!(interpreter, Interpreter::Source | Interpreter::Make) {
        let message = format!("{source} names the file that `{name}` runs as {kind}");
        return linter.warn(RULE, subject.diagnostic_at(source, message, CHOSEN_FILE_HELP));
    }
    let message = format!("{source} is part of {kind}: `{name}` would parse the value as code");
    let help = interpreter.argument_help(source, name);
    linter.warn(RULE, subject.diagnostic_at(source, message, help));
}

/// The value that is a whole statement for an SQL client. Such a tool is meant to run any statement, but the client has
/// commands of its own in the same place, and some of them start programs.
fn find_full_statement<'a>(name: &str, arguments: &'a [LintWord]) -> Option<&'a ArgumentValue> {
    if !has_client_commands(name, arguments) {
        return None;
    }
    let mut statements = match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "psql" => words_after_option(arguments, &['c'], &["--command"]),
        "mysql" | "mariadb" => words_after_option(arguments, &['e'], &["--execute"]),
        _ => operands(arguments, &[]).skip(1).collect(),
    };
    statements.retain(|word| word.parts.len() == 1);
    statements.into_iter().filter_map(LintWord::first_value).find(|value| !value.is_constrained)
}

/// Whether an SQL client accepts its own commands, which `-safe` of `sqlite3` and `duckdb` rejects.
fn has_client_commands(name: &str, arguments: &[LintWord]) -> bool {
    let has_safe_mode = matches!(name, "sqlite3" | "duckdb");
    !has_safe_mode
        || !arguments.iter().any(|word| matches!(word.fixed_text(), Some("-safe" | "--safe")))
}

fn report_statement(subject: &ToolSubject<'_>, name: &str, source: &str, linter: &mut Linter<'_>) {
    let (message, help) = explain_client_command(name, source);
    linter.warn(RULE, subject.diagnostic_at(source, message, help));
}

/// The message and the help for a statement that the LLM writes for an SQL client.
fn explain_client_command(name: &str, source: &str) -> (String, String) {
    let python = "use a program that takes only SQL, such as a few lines of Python";
    let (command, help) = match name {
        "sqlite3" | "duckdb" => {
            (".shell", format!("write `{name} -safe`, which rejects such commands"))
        }
        "psql" => ("\\!", python.to_owned()),
        _ => ("system", python.to_owned()),
    };
    // The parameter of `stdin:` has only a name.
    let value = if source.starts_with('$') { source.to_owned() } else { format!("`{source}`") };
    let message = format!(
        "{value} can be a command of `{name}` instead of a statement, and `{command}` starts any program"
    );
    (message, help)
}

/// Whether the words before an argument are a program that may run it as a command.
fn runs_arguments(before: &[LintWord]) -> bool {
    let first = before.first().map(LintWord::program_name).unwrap_or_default();
    let last = before.last().map(LintWord::program_name).unwrap_or_default();
    is_wrapper(before) || COMMAND_RUNNERS.contains(&first) || last.starts_with("-exec")
}

/// The first value in the command that ssh sends to the remote shell. A value that is the whole command is intended.
fn remote_command_value(arguments: &[LintWord]) -> Option<&ArgumentValue> {
    let command: Vec<&LintWord> = operands(arguments, &SSH_VALUE_OPTIONS).skip(1).collect();
    match command.as_slice() {
        [only] => only.embedded_value(),
        words => words.iter().flat_map(|word| word.values()).find(|value| !value.is_constrained),
    }
}
