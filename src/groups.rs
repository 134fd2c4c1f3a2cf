//! The list of commands in the help of `delta`, in groups.

use crate::programs::{self, Program};
use clap::Command;
use delta_program::compact_help::{asks_for_help, compact_if_asked};
use std::ffi::OsString;
use std::fmt::Write as _;

/// Each heading with its commands and programs, in the order of the help.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Work", &["run", "continue", "tell", "fork", "send", "receive", "stop"]),
    ("Answer what waits", &["inbox", "approve", "deny"]),
    (
        "Look at runs",
        &["list-runs", "show", "view", "diff", "context", "export", "replay", "verify"],
    ),
    ("Change the workspace", &["rollback", "apply", "discard"]),
    ("Tidy up", &["pack", "unpack", "rm"]),
    ("Write agents", &["init", "demo", "test", "tool", "skill", "sandbox", "schema"]),
    ("Run many, serve others", &["sweep", "mcp", "acp"]),
    ("Set up", &["doctor", "add", "config", "models", "trust", "completions", "man", "help"]),
];

/// Lists the commands in groups if the arguments, with the program, ask for help or are none. Other command lines do not pay for the list.
pub fn grouped_for_help(command: Command, arguments: &[OsString]) -> Command {
    if asks_for_help(arguments) || arguments.len() < 2 {
        compact_if_asked(grouped(command, &programs::list_programs()), arguments)
    } else {
        command
    }
}

/// The summary of a command or a program; `None` if there is none with this name.
fn find_about(command: &Command, programs: &[Program], name: &str) -> Option<String> {
    if name == "help" {
        return Some("Print the help of a command".to_owned());
    }
    if let Some(command) = command.find_subcommand(name) {
        return command.get_about().map(ToString::to_string);
    }
    let program = programs.iter().find(|program| program.name == name)?;
    Some(program.about.unwrap_or_default().to_owned())
}

fn grouped(command: Command, programs: &[Program]) -> Command {
    let styles = command.get_styles();
    let header = *styles.get_header();
    let literal = *styles.get_literal();
    let mut list = String::new();
    let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    let others = programs.iter().map(|program| &*program.name);
    let others: Vec<&str> = others
        .filter(|name| !grouped.contains(name) && command.find_subcommand(name).is_none())
        .collect();
    for (heading, names) in GROUPS.into_iter().chain([("Other programs", &*others)]) {
        let names: Vec<_> = names
            .iter()
            .filter_map(|name| Some((name, find_about(&command, programs, name)?)))
            .collect();
        if names.is_empty() {
            continue;
        }
        let _ = writeln!(list, "{header}{heading}:{header:#}");
        for (name, about) in names {
            let width = if about.is_empty() { 0 } else { 13 };
            let _ = writeln!(list, "  {literal}{name:<width$}{literal:#}{about}");
        }
        list.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn c_11_1_every_command_is_in_one_group() {
        let command = crate::DeltaCli::command();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut visible: Vec<&str> =
            visible.map(Command::get_name).chain(["help", "sweep"]).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, visible);
    }
}
