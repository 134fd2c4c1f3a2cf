//! The program `delta-sessions`: shells and interpreters whose state outlives a command. One JSON value on stdout, but for what
//! shells and manuals are told.

use super::completions::{self, CompletionsArgs, Program};
use super::man::{self, ManArgs};
use super::stdout;
use crate::id::SessionId;
use crate::session::{Listed, SessionError, Sessions, Started, Status};
use crate::signal::Cancel;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

/// Keeps a shell, a Python interpreter or another command as a session: what one command leaves, the next one finds.
///
/// Sessions lie in .sessions/ of the current directory. Every command of theirs prints one JSON value.
#[derive(Debug, Parser)]
#[command(name = "delta-sessions", version, propagate_version = false, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  id=$(delta-sessions start | jq -r .session_id)
  delta-sessions exec \"$id\" 'cd /tmp && export GREETING=hello'
  delta-sessions exec \"$id\" 'echo \"$GREETING from $PWD\"' | jq -r .stdout
  delta-sessions end \"$id\"

Exit codes: 0 the session command worked (what the command in the session left with is its `exit_code`), 1 it did not
(`error` says why), 2 usage, 70 a bug";

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Session(SessionCommand),
    #[command(after_help = completions::installation!("delta-sessions"))]
    Completions(CompletionsArgs),
    #[command(after_help = man::pages!("delta-sessions", "exec"))]
    Man(ManArgs),
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
    Start(StartArgs),
    Exec(ExecArgs),
    End(EndArgs),
    List(ListArgs),
    Cleanup(CleanupArgs),
}

/// The program itself, for its completions and its pages.
const PROGRAM: Program =
    Program { name: "delta-sessions", variable: "DELTA_SESSIONS_COMPLETE", command: Cli::command };

/// Start a session
///
/// bash keeps its whole state, python3 what can be pickled; any other command gets each text on its stdin.
#[derive(Debug, Args)]
struct StartArgs {
    /// The command: `bash`, `python3`, or another one with its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        default_value = "bash"
    )]
    command: Vec<String>,
}

/// Run a command in a session
///
/// Waits until no other command runs in it.
#[derive(Debug, Args)]
struct ExecArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
    /// The text of the command; stdin without it
    #[arg(value_name = "COMMAND", allow_hyphen_values = true)]
    text: Option<OsString>,
    /// How long it may take, in milliseconds; then it is ended with all that it started, and the state before it stands
    #[arg(long, value_name = "MS", default_value_t = 120_000)]
    timeout_ms: u64,
}

/// End a session
///
/// Its state is removed; `cleanup` removes the rest.
#[derive(Debug, Args)]
struct EndArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
}

/// List the sessions of the current directory
#[derive(Debug, Args)]
struct ListArgs {}

/// Remove the sessions that were ended, and those that are damaged
#[derive(Debug, Args)]
struct CleanupArgs {
    /// The active ones too, as far as no command runs in them
    #[arg(long)]
    all: bool,
}

/// What is printed when a command of ours did not work.
#[derive(Debug, Serialize)]
struct Refusal {
    error: String,
}

/// Runs the program with the process's arguments; gives its exit code.
pub fn main() -> ExitCode {
    super::install_panic_hook();
    if completions::answer(PROGRAM) {
        return ExitCode::SUCCESS;
    }
    super::hide_memory();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let command = match cli.command {
        Command::Session(command) => command,
        Command::Completions(args) => return completions::completions(&args, &PROGRAM),
        Command::Man(args) => return man::man(&args, &PROGRAM),
    };
    let printed = perform(command).and_then(|text| {
        stdout::write_result(&format!("{text}\n"))
            .map_err(|error| SessionError::System { action: "write the answer", source: error })
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let refusal = Refusal { error: error.to_string() };
            stdout::write(&format!("{}\n", serde_json::to_string(&refusal).unwrap_or_default()));
            ExitCode::FAILURE
        }
    }
}

fn perform(command: SessionCommand) -> Result<String, SessionError> {
    let sessions = here()?;
    let cancel = Cancel::install()
        .map_err(|source| SessionError::System { action: "prepare for signals", source })?;
    let id = |text: &str| SessionId::parse(text).map_err(SessionError::from);
    match command {
        SessionCommand::Start(args) => {
            let started: Started = sessions.start(&args.command)?;
            print(&started)
        }
        SessionCommand::Exec(args) => {
            let id = id(&args.id)?;
            let text = match args.text {
                Some(text) => text.into_vec(),
                None => read_stdin()?,
            };
            print(&sessions.exec(&id, &text, Duration::from_millis(args.timeout_ms), &cancel)?)
        }
        SessionCommand::End(args) => print(&sessions.end(&id(&args.id)?, &cancel)?),
        SessionCommand::List(_) => print(&sessions.list()?),
        SessionCommand::Cleanup(args) => print(&sessions.cleanup(args.all)?),
    }
}

/// The sessions of the current directory.
fn here() -> Result<Sessions, SessionError> {
    let cwd = std::env::current_dir()
        .map_err(|source| SessionError::System { action: "find the current directory", source })?;
    Ok(Sessions { cwd, environment: std::env::vars_os().collect() })
}

/// The active sessions, for a shell that completes an id: the last one first.
fn active() -> Vec<CompletionCandidate> {
    let listed = here().and_then(|sessions| sessions.list()).unwrap_or_default();
    let candidate = |session: Listed| match session {
        Listed::Sound { session_id, command, status: Status::Active, .. } => {
            Some(CompletionCandidate::new(session_id).help(Some(command.into())))
        }
        _ => None,
    };
    let found = listed.into_iter().rev().filter_map(candidate).enumerate();
    found.map(|(place, candidate)| candidate.display_order(Some(place))).collect()
}

fn print<T: Serialize>(value: &T) -> Result<String, SessionError> {
    serde_json::to_string(value).map_err(|error| SessionError::System {
        action: "write the answer",
        source: io::Error::other(error),
    })
}

fn read_stdin() -> Result<Vec<u8>, SessionError> {
    let mut stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(SessionError::NoText);
    }
    let mut text = Vec::new();
    let read = stdin.read_to_end(&mut text);
    read.map_err(|source| SessionError::System { action: "read the command from stdin", source })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_11_1_every_option_of_sessions_has_help() {
        for command in Cli::command().get_subcommands() {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
        }
        Cli::command().debug_assert();
    }
}
