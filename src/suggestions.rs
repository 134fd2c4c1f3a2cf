//! What the error for an unknown command or argument proposes: what can be typed.

use crate::programs;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use delta_base::shell_quote::shell_quote;
use delta_base::suggest;
use delta_operator::config;
use delta_program::usage_error::{
    json_tip, named_command, visible_options, with_commands_tip, with_dash_tip, with_tip,
    with_usage_of_command, with_values_tip,
};
use std::ffi::OsString;

/// Names of commands in other programs, with what to type for delta.
const COMMAND_ALIASES: [(&str, &[&str]); 27] = [
    ("delta --version", &["version"]),
    ("delta approve", &["accept", "allow"]),
    ("delta completions", &["completion"]),
    ("delta config", &["configure", "settings"]),
    ("delta context show", &["prompt"]),
    ("delta continue", &["respond", "restart", "resume", "retry"]),
    ("delta demo", &["example", "try", "tutorial"]),
    ("delta deny", &["reject"]),
    ("delta diff", &["compare"]),
    ("delta doctor", &["diagnose"]),
    ("delta export", &["trace"]),
    ("delta fork", &["branch", "clone"]),
    ("delta inbox", &["pending", "questions", "waiting"]),
    ("delta init", &["create", "new"]),
    ("delta list-runs", &["history", "list", "ls", "ps", "runs", "top"]),
    ("delta list-runs --cost", &["cost", "usage"]),
    ("delta man", &["manual"]),
    ("delta pack", &["archive", "compress"]),
    ("delta rm", &["clean", "delete", "gc", "prune", "remove"]),
    ("delta rollback", &["reset", "restore", "revert", "undo"]),
    ("delta run", &["ask", "chat", "exec", "start"]),
    ("delta show", &["info", "inspect", "log", "logs", "status"]),
    ("delta show --follow", &["follow", "tail", "wait", "watch"]),
    ("delta stop", &["abort", "cancel", "interrupt", "kill"]),
    ("delta test", &["tests"]),
    ("delta tool lint", &["check", "validate"]),
    ("delta view", &["html", "open", "report", "web"]),
];

/// The commands of the programs that come with delta, which are not started for a tip.
const PROGRAM_COMMANDS: [(&str, &[&str]); 2] = [
    (
        "sweep",
        &[
            "plan", "run", "task", "status", "collect", "list", "gc", "pack", "submit", "grade",
            "compare", "cost", "why", "gate", "bisect", "estimate", "view",
        ],
    ),
    ("sessions", &["start", "exec", "end", "list", "cleanup", "pty"]),
];

/// Arguments of other programs, with the commands of delta before them and the tip.
const ARGUMENT_TIPS: [(&[&str], &[&str], &str); 23] = [
    (&["--all", "-a"], &["rm"], "use `--older-than 0s`"),
    (&["--run-id"], ANSWERING_COMMANDS, "the run is an argument, as in `delta approve RUN`"),
    (&["-m"], &["approve"], "`approve` takes no text: `delta deny RUN -m REASON` has one"),
    (&["--at", "--iteration"], &["rollback"], "use `--to N`"),
    (&["--to", "--iteration"], &["fork"], "use `--at N`"),
    (&["--resume", "--continue", "-c"], RUN, CONTINUE_TIP),
    (&["--last", "--latest"], &["continue"], CONTINUE_TIP),
    (
        &["--yolo", "--yes", "--auto-approve", "--dangerously-skip-permissions"],
        DRIVING_COMMANDS,
        "use `--approve-all`",
    ),
    (
        &["--dangerously-bypass-approvals-and-sandbox"],
        DRIVING_COMMANDS,
        "use `--approve-all --sandbox off`",
    ),
    (&["--full-auto"], DRIVING_COMMANDS, "use `--approve-all --sandbox workspace`"),
    (
        &["--allowedTools", "--allowed-tools", "--disallowedTools", "--permission-mode"],
        DRIVING_COMMANDS,
        "write `approve` into agent.yaml; `--approve NAME=ask` asks before calls of one tool",
    ),
    (&["--max-turns"], DRIVING_COMMANDS, "use `--max-iterations N`"),
    (&["--budget", "--max-budget-usd"], DRIVING_COMMANDS, "use `--max-cost USD`"),
    (
        &["--output-format"],
        DRIVING_COMMANDS,
        "use `--format json`, or `--format jsonl` for a stream",
    ),
    (&["--session-id"], RUN, "use `--run-id ID`"),
    (&["--cd", "-C", "--cwd"], DRIVING_COMMANDS, "use `-w DIR`"),
    (
        &["--system-prompt", "--append-system-prompt"],
        RUN,
        "write it into the agent's system_prompt.md; `delta init` creates an agent",
    ),
    (&["--mcp-config"], DRIVING_COMMANDS, "write the servers below `mcp` in agent.yaml"),
    (
        &["-p", "--print", "--prompt", "--task"],
        RUN,
        "the task is an argument: `delta run -q \"TASK\"` prints its result, and nothing else",
    ),
    (&["--agent"], &["tool"], "the agent directory is an argument, as in `delta tool lint DIR`"),
    (&["--agent"], &["test"], "the agent directory is an argument: `delta test DIR`"),
    (&["--format"], &["export"], "use `--to FORMAT`"),
    (
        &["add", "remove"],
        &["mcp"],
        "write the server below `mcp` in agent.yaml, then `delta mcp lock`",
    ),
];
const CONTINUE_TIP: &str = "use `delta continue`, which continues the last run of the workspace";
const ANSWERING_COMMANDS: &[&str] = &["approve", "deny", "answer"];
/// A command line that begins with an option names no command.
const RUN: &[&str] = &["run", ""];
/// The commands that drive a run.
const DRIVING_COMMANDS: &[&str] = &["run", "", "continue", "approve", "deny", "answer", "fork"];

/// Adds what to type to a usage error about the command, its arguments or a missing run.
pub fn with_tip_for(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    // To build all commands takes most of the time of `--version`.
    if !error.use_stderr() {
        return error;
    }
    let command = arguments.get(1).and_then(|word| word.to_str());
    let command = command.filter(|word| !word.starts_with('-')).unwrap_or_default();
    let named = named_command(crate::DeltaCli::command(), arguments);
    let error = with_usage_of_command(&named, error);
    match error.kind() {
        ErrorKind::InvalidSubcommand => with_command_tip(&named, error, command, arguments),
        ErrorKind::UnknownArgument => with_argument_tip(&named, error, command, arguments),
        ErrorKind::MissingRequiredArgument if command == "fork" => with_tip(
            error,
            "`delta fork last` forks the run of the workspace that was updated last".to_owned(),
        ),
        ErrorKind::MissingRequiredArgument if command == "rollback" => {
            with_tip(error, "`delta show RUN` lists the iterations".to_owned())
        }
        ErrorKind::MissingRequiredArgument if command == "trust" => with_tip(
            error,
            "`delta trust --list` shows what you trust; `delta trust DIR` trusts DIR/.env"
                .to_owned(),
        ),
        ErrorKind::MissingRequiredArgument => with_values_tip(&named, error),
        _ => error,
    }
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
    if command == "continue" && !argument.starts_with('-') {
        return with_tip(error, "quote the text: `delta continue RUN \"TEXT\"`".to_owned());
    }
    let lists_tools = command == "mcp" && arguments.get(2).is_some_and(|word| word == "list");
    if lists_tools && !argument.starts_with('-') {
        return with_tip(error, "write the command line of a server after `--`".to_owned());
    }
    if let Some(tip) = json_tip(named, argument) {
        return with_tip(error, tip.to_owned());
    }
    if let Some(tip) = habit_tip(command, argument) {
        return with_tip(error, tip.to_owned());
    }
    let takes_agent = ["acp", "sandbox", "skill"].contains(&command) || named.get_name() == "serve";
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

/// What delta has for an argument of another program.
fn habit_tip(command: &str, argument: &str) -> Option<&'static str> {
    ARGUMENT_TIPS
        .iter()
        .find(|(names, commands, _)| names.contains(&argument) && commands.contains(&command))
        .map(|(_, _, tip)| *tip)
}

/// The commands that have the unknown option, if the named command has none that is written almost like it.
fn other_command_tip(named: &Command, argument: &str) -> Option<String> {
    let name = argument.strip_prefix("--")?.split('=').next()?;
    if visible_options(named).any(|option| option.starts_with(name) || name.starts_with(option)) {
        return None;
    }
    let mut delta = crate::DeltaCli::command();
    delta.build();
    // No other command has the purpose of `man`.
    let commands = delta
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "man");
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

fn task_tip(task: &str) -> String {
    format!("a task is an argument of `run`: `delta run {}`", shell_quote(task))
}

/// The arguments as one text, if they are three words or more and no option.
fn words_of_task(arguments: &[OsString]) -> Option<String> {
    let words: Option<Vec<&str>> = arguments.iter().skip(1).map(|word| word.to_str()).collect();
    let words = words?;
    let is_text = words.len() > 2 && words.iter().all(|word| !word.starts_with('-'));
    is_text.then(|| words.join(" "))
}

/// What to type instead of a command that delta does not have and that needs more than another name.
fn advice_for(word: &str) -> Option<String> {
    if word.contains(char::is_whitespace) {
        return Some(task_tip(word));
    }
    match word {
        "login" | "auth" | "logout" => Some(format!(
            "delta has no accounts: set DELTA_API_KEY to the key of your endpoint, or `api_key_command` in {}",
            config_file_path()
        )),
        "update" | "upgrade" => {
            Some("update delta with what installed it, such as `cargo install` or apt".to_owned())
        }
        "agents" => Some(
            "an agent is a directory, or a name below ~/.local/share/delta/agents: `delta run --agent DIR`"
                .to_owned(),
        ),
        "eval" | "evals" | "benchmark" => Some(
            "`delta test DIR` checks an agent without a model, `delta sweep` with models".to_owned(),
        ),
        "model" => Some(format!(
            "choose a model with `delta run --model NAME`, DELTA_MODEL, or `model` in {}",
            config_file_path()
        )),
        _ => None,
    }
}

/// The commands with this name in the groups of delta and in the programs that come with it.
fn list_group_commands(word: &str) -> Vec<String> {
    let delta = crate::DeltaCli::command();
    let groups = delta.get_subcommands().filter(|group| {
        group.get_subcommands().any(|command| command.get_name() == word && !command.is_hide_set())
    });
    let groups = groups.map(Command::get_name);
    let programs = PROGRAM_COMMANDS.iter().filter(|(_, commands)| commands.contains(&word));
    let names = groups.chain(programs.map(|(name, _)| *name));
    names.map(|name| format!("delta {name} {word}")).collect()
}

/// Adds what to type to the error for an unknown command, and removes what cannot be typed.
fn with_command_tip(
    named: &Command,
    mut error: clap::Error,
    command: &str,
    arguments: &[OsString],
) -> clap::Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let unknown = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => String::new(),
    };
    if let Some(tip) = habit_tip(command, &unknown) {
        return with_tip(error, tip.to_owned());
    }
    let is_of_group = !usage.contains("delta <COMMAND>") && command != "help";
    let word = if is_of_group { String::new() } else { unknown };
    let find_typed = |word: &str| COMMAND_ALIASES.iter().find(|(_, names)| names.contains(&word));
    if let Some(advice) = advice_for(&word) {
        return with_tip(error, advice);
    }
    let alias = find_typed(&word).map(|(typed, _)| (*typed).to_owned());
    let typed: Vec<String> = alias.into_iter().chain(list_group_commands(&word)).collect();
    if let Some((last, others)) = typed.split_last() {
        let others: String = others.iter().map(|typed| format!("`{typed}`, ")).collect();
        let others = others.trim_end_matches(", ");
        let or = if others.is_empty() { "" } else { " or " };
        return with_tip(error, format!("use {others}{or}`{last}`"));
    }
    // `tool:lint` and others are hidden old spellings.
    let similar = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names,
        _ => Vec::new(),
    };
    // The last one is the most similar.
    if let Some(name) = similar.into_iter().rfind(|name| !name.contains(':')) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![name]));
        return error;
    }
    if is_of_group {
        return with_commands_tip(named, error);
    }
    let command = programs::with_programs(crate::DeltaCli::command(), programs::list_programs());
    let names = command.get_subcommands().filter(|command| !command.is_hide_set());
    let names = names.map(Command::get_name);
    if let Some(name) = suggest::nearest_names(&word, names).first().filter(|_| word.len() > 2) {
        return with_tip(error, format!("use `delta {name}`"));
    }
    let aliases = COMMAND_ALIASES.iter().flat_map(|(_, names)| *names).copied();
    let nearest = suggest::nearest_names(&word, aliases);
    // A short word is similar to everything.
    match nearest.first().filter(|_| word.len() > 3).and_then(|alias| find_typed(alias)) {
        Some((typed, _)) => with_tip(error, format!("use `{typed}`")),
        None => match words_of_task(arguments) {
            Some(task) => with_tip(error, task_tip(&task)),
            None => error,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_25_12_what_is_proposed_for_another_name_can_be_typed() {
        for (typed, alias) in COMMAND_ALIASES
            .iter()
            .flat_map(|(typed, names)| names.iter().map(move |name| (typed, name)))
        {
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
        assert!(COMMAND_ALIASES.is_sorted(), "sort the commands");
    }
}
