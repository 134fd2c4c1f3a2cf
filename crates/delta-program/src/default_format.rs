//! The format in which commands print that are given no `--format`.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, ValueEnum};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the command line of this process has got a default format.
static IS_DEFAULT: AtomicBool = AtomicBool::new(false);

/// The formats that can be the default of every command that has them.
pub const DEFAULT_FORMATS: [&str; 4] = ["text", "json", "raw", "jsonl"];

/// The output format of a command that prints a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
    /// Readable text
    Text,
    /// One JSON object
    Json,
}

/// Parses `arguments`. A command that has `--format`, and is given none, gets the one of `read_default`, if it is one of its
/// own.
///
/// # Errors
/// The arguments are wrong, or the default that the command needs is; `read_default` contains the reason.
pub fn parse_with_default_format(
    command: &mut Command,
    arguments: &[OsString],
    read_default: impl FnOnce() -> Result<Option<&'static str>, String>,
) -> Result<ArgMatches, clap::Error> {
    let matches = command.try_get_matches_from_mut(arguments)?;
    let mut named = &*command;
    let mut matched = &matches;
    let mut position = 0;
    while let Some((name, below)) = matched.subcommand() {
        let rest = arguments.iter().skip(position + 1).position(|word| word == name);
        let Some(distance) = rest else { return Ok(matches) };
        let Some(subcommand) = named.find_subcommand(name) else { return Ok(matches) };
        position += 1 + distance;
        named = subcommand;
        matched = below;
    }
    let Some(format) = named.get_arguments().find(|argument| argument.get_id() == "format") else {
        return Ok(matches);
    };
    if matched.value_source("format") == Some(ValueSource::CommandLine) {
        return Ok(matches);
    }
    let default = match read_default() {
        Ok(Some(default)) => default,
        Ok(None) => return Ok(matches),
        Err(message) => return Err(command.error(ErrorKind::InvalidValue, message)),
    };
    if !format.get_possible_values().iter().any(|value| value.get_name() == default) {
        return Ok(matches);
    }
    // clap cannot change an argument of a command that it has built. A value that is also the name of the command misleads.
    let mut arguments = arguments.to_vec();
    arguments.insert(position + 1, format!("--format={default}").into());
    match command.try_get_matches_from_mut(arguments) {
        Ok(with_default) => {
            IS_DEFAULT.store(true, Ordering::Relaxed);
            Ok(with_default)
        }
        Err(_) => Ok(matches),
    }
}

/// Whether the format of the command is the default: a command that has no use for it must not refuse it.
pub fn is_default_format() -> bool {
    IS_DEFAULT.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    /// The format of a command line, by default `json`.
    fn format_of(line: &str) -> Option<String> {
        let format = Arg::new("format").long("format").value_parser(["text", "json"]);
        let other = Arg::new("format").long("format").value_parser(["text", "csv"]);
        let option = Arg::new("dir").long("dir").global(true);
        let list = Command::new("list").arg(format.default_value("text"));
        let table = Command::new("table").arg(other.default_value("text"));
        let inner = Command::new("inner").subcommand(table).subcommand(list.clone());
        let plain = Command::new("plain");
        let mut command =
            Command::new("x").arg(option).subcommand(list).subcommand(inner).subcommand(plain);
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let matches =
            parse_with_default_format(&mut command, &arguments, || Ok(Some("json"))).unwrap();
        let mut matched = &matches;
        while let Some((_, below)) = matched.subcommand() {
            matched = below;
        }
        matched.try_get_one::<String>("format").ok().flatten().cloned()
    }

    #[test]
    fn c_12_1_a_command_without_a_format_gets_the_default_that_it_has() {
        let json = Some("json".to_owned());
        for line in ["x list", "x --dir list list", "x inner list --dir d", "x list --format json"]
        {
            let is_misled = line == "x --dir list list";
            assert_eq!(format_of(line) == json, !is_misled, "{line}");
        }
        assert_eq!(format_of("x list --format text").as_deref(), Some("text"));
        assert_eq!(format_of("x inner table").as_deref(), Some("text"));
        assert_eq!(format_of("x plain"), None);
    }
}
