//! The program `delta-sessions`: shells and interpreters whose state outlives a command.

use crate::cli::{
    self, parse_command_line, print_report, read_stdin, report_json, session_candidates,
};
use crate::store::SessionStatus;
use crate::{SessionError, SessionResult, Sessions, system_error};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use delta_base::id::SessionId;
use delta_base::signal::CancelToken;
use delta_program::completions::{self, CliProgram, CompletionsArgs};
use delta_program::man::{self, ManArgs};
use delta_program::number_argument::{parse_millis_in, parse_time_in};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

/// Keep the state of bash, Python or another command between calls
///
/// Sessions are stored in .sessions/ of the current directory. Every session command prints one JSON value.
#[derive(Debug, Parser)]
#[command(name = "delta-sessions", version, propagate_version = false, after_help = EXAMPLES)]
struct SessionsCli {
    #[command(subcommand)]
    command: SessionsCliCommand,
}

/// The timeout of `exec` without an option.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

const EXAMPLES: &str = "\
Examples:
  id=$(delta-sessions start | jq -r .session_id)
  delta-sessions exec \"$id\" 'cd /tmp && export GREETING=hello'
  delta-sessions exec \"$id\" 'echo \"$GREETING from $PWD\"' | jq -r .stdout
  delta-sessions end \"$id\"

Exit codes: 0 success (`exit_code` is from the command in the session), 1 failure (see `error`),
2 usage error, 70 bug";

#[derive(Debug, Subcommand)]
enum SessionsCliCommand {
    #[command(flatten)]
    Session(SessionCommand),
    #[command(after_help = delta_program::installation!("delta-sessions"))]
    Completions(CompletionsArgs),
    #[command(after_help = delta_program::pages!("delta-sessions", "exec"))]
    Man(ManArgs),
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
    Start(SessionStartArgs),
    Exec(SessionExecArgs),
    End(SessionEndArgs),
    /// List the sessions of the current directory
    List,
    Cleanup(SessionCleanupArgs),
}

const PROGRAM: CliProgram = CliProgram {
    name: "delta-sessions",
    completion_variable: "DELTA_SESSIONS_COMPLETE",
    command: SessionsCli::command,
    exit_codes: None,
};

/// Start a session
///
/// bash keeps its whole state, python3 everything that can be pickled. Any other command reads each text from stdin.
#[derive(Debug, Args)]
struct SessionStartArgs {
    /// Command to keep: `bash`, `python3`, or another one with its arguments
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
/// Waits while another command runs in the session.
#[derive(Debug, Args)]
struct SessionExecArgs {
    /// Session id printed by `start`
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active_session_candidates))]
    id: String,
    /// Text of the command [default: read from stdin]
    #[arg(value_name = "COMMAND", allow_hyphen_values = true)]
    text: Option<OsString>,
    /// Timeout, such as 90s or 10m, after which the session keeps its previous state [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = parse_time_in(0..=u64::MAX))]
    timeout: Option<u64>,
    /// The same in milliseconds
    #[arg(long, value_name = "MS", hide = true, conflicts_with = "timeout", value_parser = parse_millis_in(0..=u64::MAX))]
    timeout_ms: Option<u64>,
}

/// End a session
///
/// Removes the state; `cleanup` removes the rest.
#[derive(Debug, Args)]
struct SessionEndArgs {
    /// Session id printed by `start`
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active_session_candidates))]
    id: String,
}

/// Remove ended and damaged sessions
#[derive(Debug, Args)]
struct SessionCleanupArgs {
    /// Also remove active sessions in which no command runs
    #[arg(long)]
    all: bool,
}

/// Runs the program with the arguments of the process. Returns its exit code.
pub fn main() -> ExitCode {
    match parse_command_line::<SessionsCli>(PROGRAM).map(|cli| cli.command) {
        Ok(SessionsCliCommand::Session(command)) => {
            print_report(run_session_command(command).map(Some))
        }
        Ok(SessionsCliCommand::Completions(args)) => {
            completions::print_completions(&args, &PROGRAM, cli::environment_variable)
        }
        Ok(SessionsCliCommand::Man(args)) => man::print_manual_page(&args, &PROGRAM, |_| false),
        Err(exit_code) => exit_code,
    }
}

fn run_session_command(command: SessionCommand) -> SessionResult<String> {
    let sessions = sessions_in_current_dir()?;
    let cancel = CancelToken::from_signals().map_err(system_error("prepare for signals"))?;
    match command {
        SessionCommand::Start(args) => report_json(&sessions.start(&args.command)?),
        SessionCommand::Exec(args) => {
            let id = SessionId::parse(&args.id)?;
            let text = match args.text {
                Some(text) => text.into_vec(),
                None => read_stdin()?.ok_or(SessionError::MissingCommand)?,
            };
            let timeout = args.timeout.or(args.timeout_ms).unwrap_or(DEFAULT_TIMEOUT_MS);
            let timeout = Duration::from_millis(timeout);
            report_json(&sessions.exec(&id, &text, timeout, &cancel)?)
        }
        SessionCommand::End(args) => {
            report_json(&sessions.end(&SessionId::parse(&args.id)?, &cancel)?)
        }
        SessionCommand::List => report_json(&sessions.list()?),
        SessionCommand::Cleanup(args) => report_json(&sessions.cleanup(args.all)?),
    }
}

fn sessions_in_current_dir() -> SessionResult<Sessions> {
    let cwd = std::env::current_dir().map_err(system_error("find the current directory"))?;
    Ok(Sessions { cwd, environment: std::env::vars_os().collect() })
}

fn active_session_candidates() -> Vec<CompletionCandidate> {
    let entries = sessions_in_current_dir().and_then(|sessions| sessions.list());
    session_candidates(entries.unwrap_or_default(), &SessionStatus::Active)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_11_1_every_option_of_sessions_has_help() {
        for command in SessionsCli::command().get_subcommands() {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
        }
        SessionsCli::command().debug_assert();
    }
}
