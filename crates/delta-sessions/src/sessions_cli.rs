//! The commands for shells and interpreters whose state outlives a command.

use crate::cli::{read_stdin, report_json, session_candidates, sessions_in_current_dir};
use crate::store::SessionStatus;
use crate::{SessionError, SessionResult, system_error};
use clap::{Args, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use delta_base::id::SessionId;
use delta_base::signal::CancelToken;
use delta_program::number_argument::{parse_millis_in, parse_time_in};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// The timeout of `exec` without an option.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    Start(SessionStartArgs),
    Exec(SessionExecArgs),
    End(SessionEndArgs),
    /// List the sessions of the current directory
    List,
    Cleanup(SessionCleanupArgs),
}

/// Start a session
///
/// bash keeps its whole state, python3 everything that can be pickled. Any other command reads each text from stdin.
#[derive(Debug, Args)]
pub(crate) struct SessionStartArgs {
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
pub(crate) struct SessionExecArgs {
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
pub(crate) struct SessionEndArgs {
    /// Session id printed by `start`
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active_session_candidates))]
    id: String,
}

/// Remove ended and damaged sessions
#[derive(Debug, Args)]
pub(crate) struct SessionCleanupArgs {
    /// Also remove active sessions in which no command runs
    #[arg(long)]
    all: bool,
}

pub(crate) fn run_session_command(command: SessionCommand) -> SessionResult<String> {
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

fn active_session_candidates() -> Vec<CompletionCandidate> {
    let entries = sessions_in_current_dir().and_then(|sessions| sessions.list());
    session_candidates(entries.unwrap_or_default(), &SessionStatus::Active)
}
