//! The list of commands in the help of `delta`, in groups.

use clap::Command;
use delta_program::compact_help::compact_help;
use std::ffi::OsString;
use std::fmt::Write as _;

/// Each heading with its commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Work", &["run", "continue", "fork", "stop"]),
    ("Answer what waits", &["inbox", "approve", "deny", "answer"]),
    (
        "Look at runs",
        &["list-runs", "show", "view", "diff", "context", "export", "replay", "verify"],
    ),
    ("Change the workspace", &["rollback", "apply", "discard"]),
    ("Tidy up", &["pack", "unpack", "rm"]),
    ("Write agents", &["init", "demo", "test", "tool", "skill", "sandbox", "schema"]),
    ("Run many, serve others", &["sweep", "mcp", "acp"]),
    ("Set up", &["doctor", "config", "models", "trust", "completions", "man", "help"]),
];

/// Lists the commands in groups if the arguments, with the program, ask for help or are none. Other command lines do not pay for the list.
pub fn grouped_for_help(command: Command, arguments: &[OsString]) -> Command {
    let asks_for_help =
        arguments.iter().any(|word| word == "--help" || word == "-h" || word == "help");
    if asks_for_help || arguments.len() < 2 { compact_help(grouped(command)) } else { command }
}

fn grouped(command: Command) -> Command {
    let styles = command.get_styles();
    let header = *styles.get_header();
    let literal = *styles.get_literal();
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(list, "{header}{heading}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about =
                about.map_or_else(|| "Print the help of a command".to_owned(), ToString::to_string);
            let _ = writeln!(list, "  {literal}{name:<13}{literal:#}{about}");
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
        let mut visible: Vec<&str> = visible.map(Command::get_name).chain(["help"]).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, visible);
    }
}
