//! What the error for wrong arguments adds: what can be typed.

use clap::Command;
use clap::error::{ContextKind, ContextValue};
use delta_base::shell_quote::shell_quote;
use std::ffi::OsString;

/// Shows the usage as the help does. Clap's own names the given options in it as if they were required.
pub fn with_usage_of_command(named: &Command, mut error: clap::Error) -> clap::Error {
    if error.get(ContextKind::Usage).is_none() {
        return error;
    }
    let usage = named.clone().render_usage();
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    error
}

/// The command that the arguments name, with its arguments.
pub fn named_command(mut root: Command, arguments: &[OsString]) -> Command {
    root.build();
    let mut command = &root;
    let mut is_after_option = false;
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        // An option with its value may come first.
        let is_option = word.starts_with('-');
        match command.find_subcommand(word) {
            Some(named) => command = named,
            None if is_option || is_after_option => {}
            None => break,
        }
        is_after_option = is_option;
    }
    command.clone()
}

/// Adds the possible values of a missing argument.
pub fn with_values_tip(named: &Command, error: clap::Error) -> clap::Error {
    let required = named.get_arguments().filter(|argument| argument.is_required_set());
    let values: Vec<_> = required.flat_map(clap::Arg::get_possible_values).collect();
    let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
    if names.is_empty() {
        return error;
    }
    with_tip(error, format!("the possible values are {}", names.join(", ")))
}

/// Lists the commands of a group, for an unknown one.
pub fn with_commands_tip(named: &Command, error: clap::Error) -> clap::Error {
    let commands = named.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = commands.map(Command::get_name).filter(|name| *name != "help").collect();
    with_tip(error, format!("the commands are {}", names.join(", ")))
}

/// The names of the options that the help of a command lists.
pub fn visible_options(command: &Command) -> impl Iterator<Item = &str> {
    command.get_arguments().filter(|option| !option.is_hide_set()).filter_map(clap::Arg::get_long)
}

/// Replaces clap's tip for an argument with a dash, `-- -x`, where that is neither a value of the option before it nor a text.
pub fn with_dash_tip(
    named: &Command,
    mut error: clap::Error,
    argument: &str,
    arguments: &[OsString],
) -> clap::Error {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let pair = words.windows(2).find(|pair| pair[1].starts_with(argument));
    if let Some([option, value]) = pair
        && takes_value(named, option)
    {
        return with_tip(error, format!("write `{option}={}`", shell_quote(value)));
    }
    if !["run", "continue", "answer", "deny"].contains(&named.get_name()) {
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Whether `word` is an option of the command that needs a value.
fn takes_value(command: &Command, word: &str) -> bool {
    let mut options = command.get_arguments().filter(|option| option.get_action().takes_values());
    options.any(|option| {
        let is_long = option.get_long().is_some_and(|name| word.strip_prefix("--") == Some(name));
        is_long || option.get_short().is_some_and(|letter| word == format!("-{letter}"))
    })
}

/// The option of the named command that prints JSON, if the unknown argument is the one that other commands have for it.
pub fn json_tip(named: &Command, argument: &str) -> Option<&'static str> {
    let (other, tip) = match argument {
        "--json" => ("format", "use `--format json`"),
        "--format" => ("json", "use `--json`"),
        _ => return None,
    };
    let mut names = named.get_arguments().filter_map(clap::Arg::get_long);
    names.any(|name| name == other).then_some(tip)
}

/// Adds `tip`, in place of what clap proposes.
pub fn with_tip(mut error: clap::Error, tip: String) -> clap::Error {
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}
