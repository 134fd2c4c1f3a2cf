//! The command `man` of each program: its manual pages, made of the same texts as the help.

use super::completions::{self, Program};
use super::stdout;
use clap::error::ErrorKind;
use clap::{Args, Command};
use clap_complete::engine::ArgValueCandidates;
use clap_mangen::Man;
use std::io;
use std::process::ExitCode;

/// Print a manual page
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command whose page is wanted
    #[arg(add = ArgValueCandidates::new(completions::commands))]
    command: Vec<String>,
}

/// How the pages of a program are read, for the end of its help.
macro_rules! pages {
    ($program:literal, $command:literal) => {
        concat!(
            "Examples:\n  ",
            $program,
            " man | man -l -\n  ",
            $program,
            " man ",
            $command,
            " | man -l -\n  ",
            $program,
            " man ",
            $command,
            " > ~/.local/share/man/man1/",
            $program,
            "-",
            $command,
            ".1"
        )
    };
}
pub(super) use pages;

/// Prints a page; gives the exit code.
pub fn man(args: &ManArgs, program: &Program) -> ExitCode {
    let mut root = (program.command)();
    root.build();
    let mut command = &root;
    for name in &args.command {
        match command.find_subcommand(name) {
            Some(found) => command = found,
            None => {
                let message = format!("there is no command `{}`", args.command.join(" "));
                return usage_error(root, &message);
            }
        }
    }
    let mut page = Vec::new();
    if let Err(error) = render(program, command, &mut page) {
        stdout::complain(&format!("Error: the page could not be made: {error}"));
        return ExitCode::FAILURE;
    }
    stdout::write(&String::from_utf8_lossy(&page));
    ExitCode::SUCCESS
}

fn usage_error(mut root: Command, message: &str) -> ExitCode {
    let man = root.find_subcommand_mut("man").map(std::mem::take).unwrap_or_default();
    let _ = man.clone().error(ErrorKind::ValueValidation, message).print();
    ExitCode::from(2)
}

fn render(program: &Program, command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let man = Man::new(command.clone());
    // Without a date: the page is that of a version.
    let title = escaped(&name.to_uppercase());
    let version = env!("CARGO_PKG_VERSION");
    page.extend_from_slice(
        format!(".TH \"{title}\" 1 \"\" \"delta {version}\" \"User Commands\"\n").as_bytes(),
    );
    man.render_name_section(page)?;
    // That of the library names options without their values.
    let usage = command.clone().render_usage().to_string();
    let usage = escaped(usage.trim_start_matches("Usage: "));
    page.extend_from_slice(format!(".SH SYNOPSIS\n.nf\n{usage}\n.fi\n").as_bytes());
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(page)?;
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    if let Some(text) = after {
        text.to_string().split("\n\n").for_each(|part| section(part, page));
    }
    if ["delta-run", "delta-continue"].contains(&name.as_str()) {
        section(super::EXAMPLES.rsplit("\n\n").next().unwrap_or_default(), page);
    }
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let below = shown.filter_map(Command::get_display_name).filter(|name| !name.ends_with("-help"));
    let root = (name != program.name).then_some(program.name);
    let also: String =
        root.into_iter().chain(below).map(|name| format!(".BR {} (1)\n", escaped(name))).collect();
    page.extend_from_slice(format!(".SH \"SEE ALSO\"\n{also}").as_bytes());
    Ok(())
}

/// A paragraph behind the options, `Heading: text` or a heading with indented lines under it, which stay lines.
fn section(paragraph: &str, page: &mut Vec<u8>) {
    let (heading, text) = paragraph.split_once(':').unwrap_or(("Notes", paragraph));
    let heading = escaped(&heading.to_uppercase());
    let text = match text.strip_prefix('\n') {
        Some(lines) => format!(".nf\n{}\n.fi\n", escaped(lines)),
        None => format!("{}\n", escaped(text.trim())),
    };
    page.extend_from_slice(format!(".SH \"{heading}\"\n{text}").as_bytes());
}

/// The text as roff shows it letter by letter.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line,
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
