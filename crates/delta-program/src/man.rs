//! The command `man` of every program: manual pages made from the same texts as the help.

use crate::completions::{self, CliProgram};
use crate::stdio;
use clap::error::ErrorKind;
use clap::{Args, Command, ValueHint};
use clap_complete::engine::ArgValueCandidates;
use clap_mangen::Man;
use delta_base::durable::{self, FileError};
use delta_base::shell_quote::shell_quote_path;
use delta_base::terminal;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print a manual page
///
/// Prints roff, which `man -l -` shows; at a terminal, `delta man` shows the page itself.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Command to document [default: the program itself]
    #[arg(add = ArgValueCandidates::new(completions::manual_page_candidates))]
    command: Vec<String>,
    /// Write the pages of all commands to files in DIR, such as ~/.local/share/man/man1
    #[arg(long, value_name = "DIR", conflicts_with = "command", value_hint = ValueHint::DirPath)]
    all: Option<PathBuf>,
    /// How many pages another program of delta has written there before
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    written: usize,
}

impl ManArgs {
    /// The words that name the command.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The directory for the pages of all commands, if they are to be written.
    pub fn directory(&self) -> Option<&Path> {
        self.all.as_deref()
    }
}

/// The examples at the end of the help of `man`, for a program and one of its commands.
#[macro_export]
macro_rules! pages {
    ($program:literal, $command:literal) => {
        concat!(
            "Examples:\n  ",
            $program,
            " man ",
            $command,
            "\n  ",
            $program,
            " man --all ~/.local/share/man/man1   # for man"
        )
    };
}

/// Prints the manual page of a command in roff, or writes the pages of all commands. `show` gets the roff first and returns
/// whether it showed the page; otherwise the roff is printed. Returns the exit code, 2 for an unknown command.
pub fn print_manual_page(
    args: &ManArgs,
    program: &CliProgram,
    show: impl FnOnce(&str) -> bool,
) -> ExitCode {
    if let Some(dir) = &args.all {
        return match write_all_pages(program, dir) {
            Ok(count) => {
                let count = args.written + count;
                stdio::print_error_line(&format!("Wrote {count} pages to {}", dir.display()));
                stdio::print_error_line(&format!("Note: {}", man_path_note(dir)));
                ExitCode::SUCCESS
            }
            Err(error) => {
                stdio::print_error_line(&format!("error: {error}"));
                ExitCode::FAILURE
            }
        };
    }
    let mut root = (program.command)();
    root.build();
    let Some(command) = find_command(&root, &args.command) else {
        return report_unknown_command(root, &args.command.join(" "));
    };
    match render_manual_page(program, command) {
        Ok(page) => {
            let page = String::from_utf8_lossy(&page);
            if !terminal::is_stdout_terminal() || !show(&page) {
                stdio::print_text(&page);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            stdio::print_error_line(&format!("error: could not render the manual page: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The command with these names, which can be joined as in the name of its page: `sweep plan` or `sweep-plan`.
fn find_command<'a>(root: &'a Command, names: &[String]) -> Option<&'a Command> {
    let mut command = root;
    for name in names {
        command = match command.find_subcommand(name) {
            Some(subcommand) => subcommand,
            None => find_joined_command(command, name)?,
        };
    }
    Some(command)
}

fn find_joined_command<'a>(parent: &'a Command, name: &str) -> Option<&'a Command> {
    parent.get_subcommands().find_map(|command| {
        let rest = name.strip_prefix(command.get_name())?.strip_prefix('-')?;
        command.find_subcommand(rest)
    })
}

/// Where `man` looks for the pages in `dir`.
fn man_path_note(dir: &Path) -> String {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let parent = dir.parent().filter(|_| dir.ends_with("man1"));
    match parent {
        Some(parent) => {
            let parent = shell_quote_path(parent);
            format!("if `man` does not find them: export MANPATH={parent}:\"$MANPATH\"")
        }
        None => "`man` finds pages in directories with the name man1 only".to_owned(),
    }
}

/// Writes the pages of the program and of all its commands to files in `dir`; returns their number.
///
/// # Errors
/// A page could not be rendered or written.
pub fn write_all_pages(program: &CliProgram, dir: &Path) -> Result<usize, FileError> {
    durable::ensure_shared_dir(dir)?;
    let mut root = (program.command)();
    root.build();
    let mut remaining = vec![&root];
    let mut count = 0;
    while let Some(command) = remaining.pop() {
        let subcommands = command.get_subcommands();
        remaining.extend(
            subcommands.filter(|command| !command.is_hide_set() && command.get_name() != "help"),
        );
        let name = command.get_display_name().unwrap_or(command.get_name());
        if !(program.has_page)(name) {
            continue;
        }
        let path = dir.join(format!("{name}.1"));
        let page = render_manual_page(program, command).map_err(|source| FileError {
            action: "render",
            path: path.clone(),
            source,
        })?;
        if path.exists() {
            durable::replace_shared_synced(&path, &page)?;
        } else {
            durable::create_shared_synced(&path, &page)?;
        }
        count += 1;
    }
    Ok(count)
}

fn report_unknown_command(mut root: Command, name: &str) -> ExitCode {
    let mut man = root.find_subcommand_mut("man").map(std::mem::take).unwrap_or_default();
    let _ = man.error(ErrorKind::ValueValidation, format!("there is no command `{name}`")).print();
    ExitCode::from(2)
}

fn render_manual_page(program: &CliProgram, command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let name = command.get_display_name().unwrap_or(command.get_name());
    let man = Man::new(command.clone());
    // No date: a page belongs to a version.
    let title = escape_roff(&name.to_uppercase());
    let version = env!("CARGO_PKG_VERSION");
    page.extend_from_slice(
        format!(".TH \"{title}\" 1 \"\" \"delta {version}\" \"User Commands\"\n").as_bytes(),
    );
    man.render_name_section(&mut page)?;
    // clap_mangen's synopsis omits the values of options.
    let usage = command.clone().render_usage().to_string();
    let usage = escape_roff(usage.trim_start_matches("Usage: "));
    page.extend_from_slice(format!(".SH SYNOPSIS\n.nf\n{usage}\n.fi\n").as_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(help) = command.get_after_long_help().or(command.get_after_help()) {
        help.to_string().split("\n\n").for_each(|paragraph| push_section(paragraph, &mut page));
    }
    if let Some((paragraph, pages)) = program.exit_codes
        && pages.contains(&name)
    {
        push_section(paragraph, &mut page);
    }
    page.extend_from_slice(b".SH \"SEE ALSO\"\n");
    let root = (name != program.name).then_some(program.name);
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let names = subcommands.filter_map(Command::get_display_name);
    for name in root.into_iter().chain(names.filter(|name| !name.ends_with("-help"))) {
        page.extend_from_slice(format!(".BR {} (1)\n", escape_roff(name)).as_bytes());
    }
    Ok(page)
}

/// Adds a paragraph as a section: `Heading: text`, or a heading followed by indented lines, which stay separate lines.
fn push_section(paragraph: &str, page: &mut Vec<u8>) {
    let (heading, text) = paragraph.split_once(':').unwrap_or(("Notes", paragraph));
    let heading = escape_roff(&heading.to_uppercase());
    let text = match text.strip_prefix('\n') {
        Some(lines) => format!(".nf\n{}\n.fi\n", escape_roff(lines)),
        None => format!("{}\n", escape_roff(text.trim())),
    };
    page.extend_from_slice(format!(".SH \"{heading}\"\n{text}").as_bytes());
}

/// Escapes `text` so that roff prints it literally.
fn escape_roff(text: &str) -> String {
    let lines = text.lines().map(|line| {
        // A line that begins with a dot would be a request.
        let guard = if line.starts_with('.') { "\\&" } else { "" };
        format!("{guard}{}", line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_11_7_a_line_of_text_is_no_request_of_roff() {
        let text = "text\n.so /etc/passwd\n'so a\\n-b";
        assert_eq!(escape_roff(text), "text\n\\&.so /etc/passwd\n\\(aqso a\\en\\-b");
    }
}
