//! The command line: `delta-sessions`, and the commands of its `pty` under the name `delta-sessions-pty`.

use crate::pty_cli::{
    PTY_EXAMPLES, PtyArgs, PtyHolderArgs, run_pty_command, run_pty_holder_command,
};
use crate::report::SessionEntry;
use crate::sessions_cli::{SessionCommand, run_session_command};
use crate::{SessionResult, Sessions, system_error};
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::engine::CompletionCandidate;
use delta_process::{RELAY_COMMAND, run_relay};
use delta_program::compact_help::compact_if_asked;
use delta_program::completions::{self, CliProgram, CompletionsArgs};
use delta_program::man::{self, ManArgs};
use delta_program::stdio;
use serde::Serialize;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Formatter};
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

/// Keep the state of bash, Python or another command between calls
///
/// Sessions are stored in .sessions/ of the current directory. Every session command prints one JSON value.
#[derive(Debug, Parser)]
#[command(name = "delta-sessions", version, propagate_version = false, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

const EXAMPLES: &str = "\
Examples:
  id=$(delta-sessions start | jq -r .session_id)
  delta-sessions exec \"$id\" 'cd /tmp && export GREETING=hello'
  delta-sessions exec \"$id\" 'echo \"$GREETING from $PWD\"' | jq -r .stdout
  delta-sessions end \"$id\"

Exit codes: 0 success (`exit_code` is from the command in the session), 1 failure (see `error`), 2 usage error, 70 bug";

#[derive(Debug, Subcommand)]
enum CliCommand {
    #[command(flatten)]
    Session(SessionCommand),
    Pty(PtyArgs),
    #[command(after_help = delta_program::installation!("delta-sessions"))]
    Completions(CompletionsArgs),
    #[command(after_help = delta_program::pages!("delta-sessions", "exec"))]
    Man(ManArgs),
    #[command(hide = true)]
    Holder(PtyHolderArgs),
}

const PROGRAM: CliProgram = CliProgram {
    name: "delta-sessions",
    completion_variable: "DELTA_SESSIONS_COMPLETE",
    command: Cli::command,
    exit_codes: None,
    has_page: |_| true,
};

/// The program under the name of a link to it, which was a program of its own before `pty` existed.
const PTY_LINK: CliProgram = CliProgram {
    name: "delta-sessions-pty",
    completion_variable: "DELTA_SESSIONS_PTY_COMPLETE",
    command: pty_link_command,
    exit_codes: None,
    has_page: |_| true,
};

/// The command line of the link: `pty`, with the commands that every program has.
fn pty_link_command() -> Command {
    let completions = CompletionsArgs::augment_args(Command::new("completions"))
        .after_help(delta_program::installation!("delta-sessions-pty"));
    let man = ManArgs::augment_args(Command::new("man"))
        .after_help(delta_program::pages!("delta-sessions-pty", "start"));
    // `start` runs the file of this program as the holder, and a copy in place of the link has the name of the link.
    let holder = PtyHolderArgs::augment_args(Command::new("holder")).hide(true);
    PtyArgs::augment_args(Command::new(PTY_LINK.name))
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(PTY_EXAMPLES.replace("delta-sessions pty", PTY_LINK.name))
        .subcommands([completions, man, holder])
}

fn is_called_by_pty_link() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(PTY_LINK.name)))
}

/// `pty` as the caller has called it.
pub(crate) struct PtyCommandName;

impl Display for PtyCommandName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if is_called_by_pty_link() { PTY_LINK.name } else { "delta-sessions pty" })
    }
}

/// Runs the program with the arguments of the process. Returns its exit code.
pub fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == RELAY_COMMAND) {
        return run_relay();
    }
    delta_program::install_panic_hook();
    if let Some(code) = delta_program::refuse_small_stack() {
        return code;
    }
    let program = if is_called_by_pty_link() { PTY_LINK } else { PROGRAM };
    if completions::answer_completion_request(program) {
        return ExitCode::SUCCESS;
    }
    delta_program::hide_memory();
    match parse_command_line() {
        Ok(CliCommand::Session(command)) => print_report(run_session_command(command).map(Some)),
        Ok(CliCommand::Pty(args)) => print_report(run_pty_command(args)),
        Ok(CliCommand::Holder(args)) => print_report(run_pty_holder_command(&args)),
        Ok(CliCommand::Completions(args)) => {
            completions::print_completions(&args, &program, environment_variable)
        }
        Ok(CliCommand::Man(args)) => man::print_manual_page(&args, &program, |_| false),
        Err(error) => {
            stdio::print_clap_message(&error);
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

fn parse_command_line() -> Result<CliCommand, clap::Error> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if !is_called_by_pty_link() {
        let matches =
            compact_if_asked(Cli::command(), &arguments).try_get_matches_from(&arguments)?;
        return Ok(Cli::from_arg_matches(&matches)?.command);
    }
    let matches =
        compact_if_asked(pty_link_command(), &arguments).try_get_matches_from(arguments)?;
    match matches.subcommand_name() {
        Some("completions" | "man" | "holder") => CliCommand::from_arg_matches(&matches),
        _ => PtyArgs::from_arg_matches(&matches).map(CliCommand::Pty),
    }
}

pub(crate) fn sessions_in_current_dir() -> SessionResult<Sessions> {
    let cwd = std::env::current_dir().map_err(system_error("find the current directory"))?;
    Ok(Sessions { cwd, environment: std::env::vars_os().collect() })
}

fn environment_variable(name: &str) -> Option<OsString> {
    std::env::vars_os().find(|(variable, _)| variable == name).map(|(_, value)| value)
}

/// Prints the JSON that a command reports, or its error as JSON. Returns the exit code.
fn print_report(report: Result<Option<String>, impl Display>) -> ExitCode {
    let error = match report {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(json)) => match stdio::print_json_result(&format!("{json}\n")) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => format!("could not print the report: {error}"),
        },
        Err(error) => error.to_string(),
    };
    stdio::print_json(&format!("{}\n", json!({ "error": error })));
    ExitCode::FAILURE
}

pub(crate) fn report_json(report: &impl Serialize) -> SessionResult<String> {
    serde_json::to_string(report).map_err(|error| system_error("write the report")(error.into()))
}

/// Reads all of stdin; returns nothing when it is a terminal.
pub(crate) fn read_stdin() -> SessionResult<Option<Vec<u8>>> {
    let mut stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).map_err(system_error("read stdin"))?;
    Ok(Some(bytes))
}

/// The sessions with the status `active` as candidates for an id, newest first.
pub(crate) fn session_candidates<Status: PartialEq>(
    entries: Vec<SessionEntry<Status>>,
    active: &Status,
) -> Vec<CompletionCandidate> {
    let candidates = entries.into_iter().rev().filter_map(|entry| match entry {
        SessionEntry::Intact { session_id, command, status, .. } if status == *active => {
            Some(CompletionCandidate::new(session_id).help(Some(command.into())))
        }
        _ => None,
    });
    let numbered = candidates.enumerate();
    numbered.map(|(index, candidate)| candidate.display_order(Some(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_11_1_every_option_has_help() {
        let mut remaining = vec![Cli::command(), pty_link_command()];
        while let Some(command) = remaining.pop() {
            for argument in command.get_arguments() {
                let (command, argument_id) = (command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{command} {argument_id}");
            }
            command.clone().debug_assert();
            remaining.extend(command.get_subcommands().cloned());
        }
    }
}
