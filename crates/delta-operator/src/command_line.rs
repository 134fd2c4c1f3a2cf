//! What the arguments of several commands need: ids, counts with their nouns, usage errors.

use clap::error::ErrorKind;
use clap::{Args, Command};
use delta_base::id::RunId;
use delta_base::shell_quote::{shell_quote, shell_quote_path};
use delta_program::stdio;
use std::path::Path;
use std::process::ExitCode;

/// Prints a usage error of `delta NAME`, whose arguments are `T`, in the format of clap; returns the exit code.
pub fn print_usage_error<T: Args>(name: &'static str, message: &str) -> ExitCode {
    let mut delta = Command::new("delta").subcommand(T::augment_args(Command::new(name)));
    delta.build();
    let error = match delta.find_subcommand_mut(name) {
        Some(command) => command.error(ErrorKind::ValueValidation, message),
        None => delta.error(ErrorKind::ValueValidation, message),
    };
    stdio::print_clap_message(&error);
    ExitCode::from(2)
}

/// A command of delta on a file or a directory, with the options that have a value, as a person can type it.
pub fn command_text(
    command: &str,
    path: &Path,
    dir: Option<&Path>,
    options: &[(&str, Option<&str>)],
) -> String {
    let mut text = format!("delta {command} {}", shell_quote_path(path));
    if let Some(dir) = dir {
        text.push_str(&format!(" -d {}", shell_quote_path(dir)));
    }
    for (name, value) in options {
        if let Some(value) = value {
            text.push_str(&format!(" --{name} {}", shell_quote(value)));
        }
    }
    text
}

/// A count with its noun: `1 call`, `2 calls`.
pub fn pluralize(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Parses the run id of an option.
pub fn parse_run_id(text: &str) -> Result<RunId, String> {
    RunId::parse(text).map_err(|error| error.to_string())
}
