//! The help of every command, without the lines that say little.

use clap::builder::PossibleValue;
use clap::{Arg, Command};
use std::ffi::OsString;

/// Whether the arguments ask for help. Other command lines do not pay for what only help shows.
pub fn asks_for_help(arguments: &[OsString]) -> bool {
    arguments.iter().any(|word| word == "--help" || word == "-h" || word == "help")
}

/// Makes the help of all commands shorter if the arguments ask for help: each option is one paragraph, with its default at the
/// end; the values `text` and `json` are not explained; `--help` is not in its own output, and `help` in no list of commands.
pub fn compact_if_asked(mut command: Command, arguments: &[OsString]) -> Command {
    if !asks_for_help(arguments) {
        return command;
    }
    command.build();
    compact_command(command)
}

fn compact_command(command: Command) -> Command {
    if command.get_name() == "help" {
        return command.hide(true);
    }
    let is_leaf = !command.has_subcommands();
    command.mut_args(|arg| compact_argument(arg, is_leaf)).mut_subcommands(compact_command)
}

fn compact_argument(mut arg: Arg, is_leaf: bool) -> Arg {
    if arg.get_id() == "help" {
        // The short help of a leaf names the long one here. A list of commands stays a list: with an option that is hidden in
        // one of them alone, clap would put blank lines between them.
        return if is_leaf { arg.hide_long_help(true) } else { arg.hide(true) };
    }
    if arg.get_possible_values().iter().map(PossibleValue::get_name).eq(["text", "json"]) {
        arg = arg.value_name("text|json").hide_possible_values(true);
    }
    if let Some(text) = arg.get_long_help().map(ToString::to_string) {
        arg = arg.long_help(text.replace("\n\n", "\n"));
    }
    let has_default = arg.get_action().takes_values() && !arg.get_default_values().is_empty();
    let is_shown = has_default && !arg.is_hide_default_value_set() && arg.get_long_help().is_none();
    let Some(help) = arg.get_help().filter(|_| is_shown) else { return arg };
    let values: Vec<_> = arg.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    let help = format!("{help} [default: {}]", values.join(" "));
    arg.help(help).hide_default_value(true)
}
