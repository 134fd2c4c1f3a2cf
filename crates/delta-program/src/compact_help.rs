//! The help of every command, without the lines that say little.

use clap::{Arg, Command};
use std::ffi::OsString;

/// Whether the arguments ask for help. Other command lines do not pay for what only help shows.
pub fn asks_for_help(arguments: &[OsString]) -> bool {
    arguments.iter().any(|word| word == "--help" || word == "-h" || word == "help")
}

/// Makes the help of all commands shorter if the arguments ask for help: the default of each option moves to the end of its
/// text, where clap gives it a paragraph of its own, and `--help` is not in its own output.
pub fn compact_if_asked(mut command: Command, arguments: &[OsString]) -> Command {
    if !asks_for_help(arguments) {
        return command;
    }
    command.build();
    compact_command(command)
}

fn compact_command(command: Command) -> Command {
    // A list of commands stays a list: with a hidden option, clap would put blank lines between them.
    let is_leaf = !command.has_subcommands();
    command.mut_args(|arg| compact_argument(arg, is_leaf)).mut_subcommands(compact_command)
}

fn compact_argument(arg: Arg, is_leaf: bool) -> Arg {
    if arg.get_id() == "help" {
        return arg.hide_long_help(is_leaf);
    }
    let has_default = arg.get_action().takes_values() && !arg.get_default_values().is_empty();
    let is_shown = has_default && !arg.is_hide_default_value_set() && arg.get_long_help().is_none();
    let Some(help) = arg.get_help().filter(|_| is_shown) else { return arg };
    let values: Vec<_> = arg.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    let help = format!("{help} [default: {}]", values.join(" "));
    arg.help(help).hide_default_value(true)
}
