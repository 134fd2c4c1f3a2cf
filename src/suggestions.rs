//! What the error for an unknown command or argument proposes: what can be typed.

use crate::programs;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use delta_base::shell_quote::shell_quote;
use delta_base::suggest;
use delta_operator::config;
use delta_program::usage_error::{
    json_tip, named_command, visible_options, with_dash_tip, with_tip, with_usage_of_command,
    with_values_tip,
};
use std::ffi::OsString;

/// Names of commands in other programs, with what to type for delta.
const COMMAND_ALIASES: [(&str, &str); 70] = [
    ("abort", "delta stop"),
    ("accept", "delta approve"),
    ("allow", "delta approve"),
    ("archive", "delta pack"),
    ("ask", "delta run"),
    ("branch", "delta fork"),
    ("cancel", "delta stop"),
    ("chat", "delta run"),
    ("check", "delta tool lint"),
    ("clean", "delta rm"),
    ("clone", "delta fork"),
    ("compare", "delta diff"),
    ("completion", "delta completions"),
    ("compress", "delta pack"),
    ("configure", "delta config"),
    ("create", "delta init"),
    ("delete", "delta rm"),
    ("diagnose", "delta doctor"),
    ("example", "delta demo"),
    ("exec", "delta run"),
    ("expand", "delta tool expand"),
    ("follow", "delta show --follow"),
    ("gc", "delta rm"),
    ("history", "delta list-runs"),
    ("html", "delta view"),
    ("info", "delta show"),
    ("inspect", "delta show"),
    ("interrupt", "delta stop"),
    ("kill", "delta stop"),
    ("lint", "delta tool lint"),
    ("list", "delta list-runs"),
    ("log", "delta show"),
    ("logs", "delta show"),
    ("ls", "delta list-runs"),
    ("manual", "delta man"),
    ("migrate", "delta tool migrate"),
    ("new", "delta init"),
    ("open", "delta view"),
    ("pending", "delta inbox"),
    ("prompt", "delta context show"),
    ("prune", "delta rm"),
    ("ps", "delta list-runs"),
    ("questions", "delta inbox"),
    ("reject", "delta deny"),
    ("remove", "delta rm"),
    ("report", "delta view"),
    ("reset", "delta rollback"),
    ("respond", "delta answer"),
    ("restart", "delta continue"),
    ("restore", "delta rollback"),
    ("resume", "delta continue"),
    ("retry", "delta continue"),
    ("revert", "delta rollback"),
    ("runs", "delta list-runs"),
    ("settings", "delta config"),
    ("start", "delta run"),
    ("status", "delta show"),
    ("tail", "delta show --follow"),
    ("tests", "delta test"),
    ("top", "delta list-runs"),
    ("trace", "delta export"),
    ("try", "delta demo"),
    ("tutorial", "delta demo"),
    ("undo", "delta rollback"),
    ("validate", "delta tool lint"),
    ("version", "delta --version"),
    ("wait", "delta show --follow"),
    ("waiting", "delta inbox"),
    ("watch", "delta show --follow"),
    ("web", "delta view"),
];

/// Arguments of other programs, with the command of delta before them and the tip; an empty command is any that runs.
const ARGUMENT_TIPS: [(&str, &str, &str); 24] = [
    ("--run-id", "approve", RUN_TIP),
    ("--run-id", "deny", RUN_TIP),
    ("--run-id", "answer", RUN_TIP),
    ("-m", "approve", "`approve` takes no text: `delta deny RUN -m REASON` has one"),
    ("--at", "rollback", "use `--to N`"),
    ("--to", "fork", "use `--at N`"),
    ("--iteration", "rollback", "use `--to N`"),
    ("--iteration", "fork", "use `--at N`"),
    ("--resume", "run", "use `delta continue`, which continues the last run of the workspace"),
    ("--continue", "run", "use `delta continue`, which continues the last run of the workspace"),
    ("-c", "run", "use `delta continue`, which continues the last run of the workspace"),
    ("--last", "continue", "use `delta continue`, which continues the last run of the workspace"),
    ("--latest", "continue", "use `delta continue`, which continues the last run of the workspace"),
    ("--yolo", "", "use `--approve-all`"),
    ("--yes", "", "use `--approve-all`"),
    ("--auto-approve", "", "use `--approve-all`"),
    ("--dangerously-skip-permissions", "", "use `--approve-all`"),
    ("-p", "run", PROMPT_TIP),
    ("--print", "run", PROMPT_TIP),
    ("--prompt", "run", PROMPT_TIP),
    ("--task", "run", PROMPT_TIP),
    ("--agent", "tool", "the agent directory is an argument, as in `delta tool lint DIR`"),
    ("--agent", "test", "the agent directory is an argument: `delta test DIR`"),
    ("--format", "export", "use `--to FORMAT`"),
];
const RUN_TIP: &str = "the run is an argument, as in `delta approve RUN`";
const ANSWER_TIP: &str = "`answer` takes the text without `-m`: `delta answer RUN TEXT`";
const PROMPT_TIP: &str =
    "the task is an argument: `delta run -q \"TASK\"` prints its result, and nothing else";

/// The commands that drive a run.
const DRIVING_COMMANDS: [&str; 6] = ["run", "continue", "approve", "deny", "answer", "fork"];

/// Adds what to type to a usage error about the command, its arguments or a missing run.
pub fn with_tip_for(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let command = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let named = named_command(crate::DeltaCli::command(), arguments);
    let error = with_usage_of_command(&named, error);
    match error.kind() {
        ErrorKind::InvalidSubcommand => with_command_tip(error),
        // `-m` itself is the text then, which can begin with a dash.
        ErrorKind::UnknownArgument if command == "answer" && has_message_option(arguments) => {
            with_tip(error, ANSWER_TIP.to_owned())
        }
        ErrorKind::UnknownArgument => with_argument_tip(&named, error, command, arguments),
        ErrorKind::MissingRequiredArgument if command == "fork" => with_tip(
            error,
            "`delta fork last` forks the run of the workspace that was updated last".to_owned(),
        ),
        ErrorKind::MissingRequiredArgument => with_values_tip(&named, error),
        _ => error,
    }
}

fn has_message_option(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == "-m" || argument == "--message")
}

fn with_argument_tip(
    named: &Command,
    error: clap::Error,
    command: &str,
    arguments: &[OsString],
) -> clap::Error {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if command == "config" && !argument.starts_with('-') {
        let tip = format!("write `model: gpt-4o` or another setting into {}", config_file_path());
        return with_tip(error, tip);
    }
    if ["continue", "deny"].contains(&command) && !argument.starts_with('-') {
        let text = shell_quote(argument);
        return with_tip(error, format!("write the text as `-m {text}`"));
    }
    let lists_tools = command == "mcp" && arguments.get(2).is_some_and(|word| word == "list");
    if lists_tools && !argument.starts_with('-') {
        return with_tip(error, "write the command line of a server after `--`".to_owned());
    }
    if let Some(tip) = json_tip(named, argument) {
        return with_tip(error, tip.to_owned());
    }
    let drives_run = DRIVING_COMMANDS.contains(&command);
    let tip = ARGUMENT_TIPS
        .iter()
        .find(|(name, of, _)| name == argument && (*of == command || of.is_empty() && drives_run));
    if let Some((_, _, tip)) = tip {
        return with_tip(error, (*tip).to_owned());
    }
    let takes_agent = ["sandbox", "skill"].contains(&command);
    if takes_agent && !argument.starts_with('-') {
        let dir = shell_quote(argument);
        return with_tip(error, format!("write `--agent {dir}`"));
    }
    if let Some(tip) = other_command_tip(named, argument) {
        return with_tip(error, tip);
    }
    let argument = argument.clone();
    with_dash_tip(named, error, &argument, arguments)
}

/// The commands that have the unknown option, if the named command has none that is written almost like it.
fn other_command_tip(named: &Command, argument: &str) -> Option<String> {
    let name = argument.strip_prefix("--")?.split('=').next()?;
    if visible_options(named).any(|option| option.starts_with(name) || name.starts_with(option)) {
        return None;
    }
    let mut delta = crate::DeltaCli::command();
    delta.build();
    let commands = delta.get_subcommands().filter(|command| !command.is_hide_set());
    let with_option =
        commands.filter(|command| visible_options(command).any(|option| option == name));
    let commands: Vec<String> =
        with_option.map(|command| format!("`delta {}`", command.get_name())).collect();
    let names = match commands.as_slice() {
        [] => return None,
        [one] => one.clone(),
        [first, second] => format!("{first} and {second}"),
        [first, second, ..] => format!("{first}, {second} and others"),
    };
    Some(format!("`--{name}` is an option of {names}"))
}

/// The operator's configuration, as it is called in a tip.
fn config_file_path() -> String {
    let path = config::file_path_text();
    if path.is_empty() { "~/.config/delta/config.yaml".to_owned() } else { path }
}

/// What to type instead of a command that delta does not have and that needs more than another name.
fn advice_for(word: &str) -> Option<String> {
    if word.contains(char::is_whitespace) {
        return Some(format!("a task is an argument of `run`: `delta run {}`", shell_quote(word)));
    }
    match word {
        "login" | "auth" | "logout" => Some(format!(
            "delta has no accounts: set DELTA_API_KEY to the key of your endpoint, or `api_key_command` in {}",
            config_file_path()
        )),
        "model" => Some(format!(
            "choose a model with `delta run --model NAME`, DELTA_MODEL, or `model` in {}",
            config_file_path()
        )),
        _ => None,
    }
}

/// Adds what to type to the error for an unknown command, and removes what cannot be typed.
fn with_command_tip(mut error: clap::Error) -> clap::Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let unknown = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => String::new(),
    };
    let word = if usage.contains("delta <COMMAND>") { unknown } else { String::new() };
    let find_alias = |word: &str| COMMAND_ALIASES.iter().find(|(alias, _)| *alias == word);
    if let Some((_, typed)) = find_alias(&word) {
        return with_tip(error, format!("use `{typed}`"));
    }
    if let Some(advice) = advice_for(&word) {
        return with_tip(error, advice);
    }
    // `tool:lint` and others are hidden old spellings.
    let similar = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names,
        _ => Vec::new(),
    };
    let similar: Vec<String> = similar.into_iter().filter(|name| !name.contains(':')).collect();
    if !similar.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(similar));
        return error;
    }
    let command = programs::with_programs(crate::DeltaCli::command(), programs::list_programs());
    let names = command.get_subcommands().filter(|command| !command.is_hide_set());
    let names = names.map(Command::get_name);
    if let Some(name) = suggest::nearest_names(&word, names).first().filter(|_| word.len() > 2) {
        return with_tip(error, format!("use `delta {name}`"));
    }
    let aliases = COMMAND_ALIASES.iter().map(|(alias, _)| *alias);
    let nearest = suggest::nearest_names(&word, aliases);
    // A short word is similar to everything.
    match nearest.first().filter(|_| word.len() > 3).and_then(|alias| find_alias(alias)) {
        Some((_, typed)) => with_tip(error, format!("use `{typed}`")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_25_12_what_is_proposed_for_another_name_can_be_typed() {
        for (alias, typed) in COMMAND_ALIASES {
            let mut command = crate::DeltaCli::command();
            assert!(command.find_subcommand(alias).is_none(), "{alias} is a command");
            for word in typed.strip_prefix("delta ").unwrap().split(' ') {
                command.build();
                if word.starts_with('-') {
                    let mut options = command.get_arguments();
                    let is_option = options.any(|option| {
                        option.get_long().is_some_and(|long| word == format!("--{long}"))
                            || option.get_short().is_some_and(|short| word == format!("-{short}"))
                    });
                    assert!(is_option, "{typed}");
                } else {
                    command = command.find_subcommand(word).unwrap().clone();
                    assert!(!command.is_hide_set(), "{typed}");
                }
            }
        }
        assert!(COMMAND_ALIASES.is_sorted(), "sort the names");
    }
}
