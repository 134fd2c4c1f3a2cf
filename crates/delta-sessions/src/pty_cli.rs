//! The commands of `pty`: programs that need a terminal, kept running between commands.

use crate::cli::{read_stdin, report_json, session_candidates, sessions_in_current_dir};
use crate::pty::{
    self, HolderOptions, MAX_TERMINAL_DIMENSION, OutputForm, PtyError, PtyResult, PtySessions,
    PtyStatus, PtyStreamEnd, ReadQuery, TerminalSize, parse_pty_session_id, unescape,
};
use crate::{Sessions, system_error};
use clap::{ArgGroup, Args, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use delta_base::id::SessionId;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::strip_terminal_controls;
use delta_program::number_argument::{parse_millis_in, parse_number_in, parse_time_in};
use delta_program::stdio;
use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroU16;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// Keep programs that need a terminal, such as vim or top, running between calls
///
/// Experimental. Sessions are stored in .sessions-pty/ of the current directory. Every command prints one JSON value, except
/// `attach` and `read --follow`. `delta-sessions-pty`, if installed, is the same command.
#[derive(Debug, Args)]
#[command(after_help = PTY_EXAMPLES)]
pub(crate) struct PtyArgs {
    #[command(subcommand)]
    command: PtyCommand,
}

pub(crate) const PTY_EXAMPLES: &str = "\
Examples:
  id=$(delta-sessions pty start vim notes.txt | jq -r .session_id)
  delta-sessions pty write \"$id\" 'ihello\\e:w\\r'
  delta-sessions pty read \"$id\" --screen | jq -r .screen
  delta-sessions pty write-key \"$id\" Up C-d Enter
  delta-sessions pty end \"$id\"

Exit codes: 0 success, 1 failure (see `error`), 2 usage error, 70 bug";

#[derive(Debug, Subcommand)]
enum PtyCommand {
    Start(PtyStartArgs),
    Write(PtyWriteArgs),
    WriteKey(PtyWriteKeyArgs),
    Read(PtyReadArgs),
    Resize(PtyResizeArgs),
    /// Attach this terminal to a session
    ///
    /// Everything you type goes to the program. Ctrl-] detaches; the program keeps running. While a terminal is attached,
    /// the session has its size.
    Attach(PtySessionArgs),
    /// Detach the attached terminal
    Detach(PtySessionArgs),
    /// Show the status of a session
    Status(PtySessionArgs),
    /// List the sessions of the current directory
    List,
    /// End a session
    ///
    /// Sends SIGHUP to the program, then SIGTERM and SIGKILL as long as it runs. `cleanup` removes what it left.
    End(PtySessionArgs),
    Cleanup(PtyCleanupArgs),
}

/// Start a program in a terminal of its own
#[derive(Debug, Args)]
struct PtyStartArgs {
    /// Columns of the terminal
    #[arg(long, value_name = "N", default_value_t = TerminalSize::DEFAULT.cols, value_parser = parse_dimension)]
    cols: NonZeroU16,
    /// Rows of the terminal
    #[arg(long, value_name = "N", default_value_t = TerminalSize::DEFAULT.rows, value_parser = parse_dimension)]
    rows: NonZeroU16,
    /// Program and its arguments: everything from the first argument on
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        default_value = "bash"
    )]
    command: Vec<String>,
}

/// Type text
///
/// In TEXT, \n \r \t \e \xHH and \\ stand for one byte. The Enter key is \r. Text from stdin is typed unchanged.
#[derive(Debug, Args)]
struct PtyWriteArgs {
    #[command(flatten)]
    session: PtySessionArgs,
    /// Text to type [default: read from stdin]
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<OsString>,
    /// Type TEXT unchanged, without escapes
    #[arg(long)]
    raw: bool,
}

/// Press keys
///
/// A key is a character or a name (Enter, Tab, Esc, Space, Backspace, Delete, Insert, Up, Down, Left, Right, Home, End,
/// PageUp, PageDown, F1 to F12), after any of C- (Control), M- (Alt) and S- (Shift): C-c, M-x, S-Tab.
#[derive(Debug, Args)]
struct PtyWriteKeyArgs {
    #[command(flatten)]
    session: PtySessionArgs,
    /// Keys to press, in order
    #[arg(value_name = "KEY", required = true, allow_hyphen_values = true)]
    keys: Vec<String>,
}

/// Read new output or the screen
///
/// Waits until output comes, and then until none has come for 100 ms.
#[derive(Debug, Args)]
struct PtyReadArgs {
    #[command(flatten)]
    session: PtySessionArgs,
    /// Timeout, such as 500ms, 30s or 10m [default: 1s, with --wait 10s, with --follow none]
    #[arg(long, value_name = "TIME", value_parser = parse_time_in(0..=u64::MAX))]
    timeout: Option<u64>,
    /// The same in milliseconds
    #[arg(long, value_name = "MS", hide = true, conflicts_with = "timeout", value_parser = parse_millis_in(0..=u64::MAX))]
    timeout_ms: Option<u64>,
    /// Wait until this text appears in unread output, or with --screen on the screen
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    wait: Option<String>,
    /// Treat the text of --wait as a regular expression, in which ^ and $ match at lines
    #[arg(long, requires = "wait")]
    regex: bool,
    /// Read the screen as a person would see it; output stays unread
    #[arg(long, conflicts_with_all = ["follow", "lines", "raw"])]
    screen: bool,
    /// Read the last N lines of all output, read or not; output stays unread
    #[arg(long, value_name = "N", value_parser = parse_number_in(0..=usize::MAX))]
    lines: Option<usize>,
    /// Keep control sequences
    #[arg(long)]
    raw: bool,
    /// Print output as it comes, not as JSON, until the program ends; output stays unread
    #[arg(long, conflicts_with_all = ["wait", "regex"])]
    follow: bool,
}

/// Resize the terminal
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("size").args(["cols", "rows"]).required(true).multiple(true))]
struct PtyResizeArgs {
    #[command(flatten)]
    session: PtySessionArgs,
    /// Columns of the terminal
    #[arg(long, value_name = "N", value_parser = parse_dimension)]
    cols: Option<NonZeroU16>,
    /// Rows of the terminal
    #[arg(long, value_name = "N", value_parser = parse_dimension)]
    rows: Option<NonZeroU16>,
}

#[derive(Debug, Args)]
struct PtySessionArgs {
    /// Session id printed by `start`
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active_pty_candidates))]
    id: String,
}

impl PtySessionArgs {
    fn parse_id(&self) -> PtyResult<SessionId> {
        parse_pty_session_id(&self.id)
    }
}

/// Remove sessions whose program has ended, and dead and damaged ones
#[derive(Debug, Args)]
struct PtyCleanupArgs {
    /// End active sessions and remove them too
    #[arg(long)]
    all: bool,
}

/// Run as the holder of a session, in its directory; started by `start`
#[derive(Debug, Args)]
pub(crate) struct PtyHolderArgs {
    /// Session id
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active_pty_candidates))]
    id: String,
    /// Columns of the terminal
    #[arg(long, value_parser = parse_dimension)]
    cols: NonZeroU16,
    /// Rows of the terminal
    #[arg(long, value_parser = parse_dimension)]
    rows: NonZeroU16,
    /// Program and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

fn parse_dimension(text: &str) -> Result<NonZeroU16, String> {
    let number = text.parse().ok().filter(|it: &NonZeroU16| it.get() <= MAX_TERMINAL_DIMENSION);
    number.ok_or_else(|| format!("expected a number from 1 to {MAX_TERMINAL_DIMENSION}"))
}

/// Runs a command. Returns the JSON to print, if any.
pub(crate) fn run_pty_command(args: PtyArgs) -> PtyResult<Option<String>> {
    let sessions = sessions_in_current_dir()?;
    let cancel = CancelToken::from_signals().map_err(system_error("prepare for signals"))?;
    let holder_program = std::env::current_exe().map_err(system_error("find this program"))?;
    let sessions = PtySessions { sessions, holder_program, cancel };
    let report = match args.command {
        PtyCommand::Start(args) => {
            let size = TerminalSize { cols: args.cols, rows: args.rows };
            report_json(&sessions.start(&args.command, size)?)?
        }
        PtyCommand::List => report_json(&pty::list_pty_sessions(&sessions.sessions.cwd)?)?,
        PtyCommand::Cleanup(args) => report_json(&sessions.cleanup(args.all)?)?,
        PtyCommand::Attach(args) => return attach_terminal(&sessions, &args.parse_id()?),
        PtyCommand::Read(args) if args.follow => return follow_output(&sessions, &args),
        PtyCommand::Write(args) => {
            sessions.write(&args.session.parse_id()?, &input_bytes(args.text, args.raw)?)?
        }
        PtyCommand::WriteKey(args) => sessions.write_keys(&args.session.parse_id()?, args.keys)?,
        PtyCommand::Read(args) => sessions.read(&args.session.parse_id()?, read_query(args))?,
        PtyCommand::Resize(args) => {
            let [cols, rows] = [args.cols, args.rows].map(|number| number.map(NonZeroU16::get));
            sessions.resize(&args.session.parse_id()?, cols, rows)?
        }
        PtyCommand::Detach(args) => sessions.detach(&args.parse_id()?)?,
        PtyCommand::Status(args) => sessions.status(&args.parse_id()?)?,
        PtyCommand::End(args) => sessions.end(&args.parse_id()?)?,
    };
    Ok(Some(report))
}

fn active_pty_candidates() -> Vec<CompletionCandidate> {
    let entries =
        sessions_in_current_dir().ok().and_then(|it| pty::list_pty_sessions(&it.cwd).ok());
    session_candidates(entries.unwrap_or_default(), &PtyStatus::Active)
}

fn read_query(args: PtyReadArgs) -> ReadQuery {
    let form = if args.screen {
        OutputForm::Screen
    } else if args.raw {
        OutputForm::Raw
    } else {
        OutputForm::Text
    };
    let default_timeout = if args.wait.is_some() { 10_000 } else { 1000 };
    let timeout_ms = args.timeout.or(args.timeout_ms).unwrap_or(default_timeout);
    ReadQuery { form, lines: args.lines, wait: args.wait, regex: args.regex, timeout_ms }
}

/// The bytes that `write` types.
fn input_bytes(text: Option<OsString>, raw: bool) -> PtyResult<Vec<u8>> {
    match text {
        Some(text) if raw => Ok(text.into_vec()),
        Some(text) => Ok(unescape(&text.into_vec())?),
        None => read_stdin()?.ok_or(PtyError::MissingText),
    }
}

fn attach_terminal(sessions: &PtySessions, id: &SessionId) -> PtyResult<Option<String>> {
    let message = match sessions.attach(id)? {
        PtyStreamEnd::Detached => format!("detached from {id}; the program keeps running"),
        PtyStreamEnd::Ended(None) => format!("session {id} has ended"),
        PtyStreamEnd::Ended(Some(code)) => format!("session {id} has ended with exit code {code}"),
    };
    stdio::print_error_line(&message);
    Ok(None)
}

fn follow_output(sessions: &PtySessions, args: &PtyReadArgs) -> PtyResult<Option<String>> {
    let timeout = args.timeout.or(args.timeout_ms).map(Duration::from_millis);
    let mut incomplete = Vec::new();
    sessions.follow(&args.session.parse_id()?, args.raw, args.lines, timeout, |output| {
        if args.raw {
            print_output(output)
        } else {
            print_output(printable_output(&mut incomplete, output).as_bytes())
        }
    })?;
    Ok(None)
}

/// Writes to stdout. Returns false when nothing reads it.
fn print_output(bytes: &[u8]) -> bool {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).is_ok()
}

/// Output without control characters, which a session's output must not bring to this terminal. An incomplete character at
/// the end is kept in `incomplete` for the next output.
fn printable_output(incomplete: &mut Vec<u8>, output: &[u8]) -> String {
    incomplete.extend(output);
    let length = match std::str::from_utf8(incomplete) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => incomplete.len(),
    };
    let text = String::from_utf8_lossy(&incomplete[..length]).into_owned();
    incomplete.drain(..length);
    strip_terminal_controls(&text)
}

/// Runs as a holder. `start` reads from its stdout whether the session exists.
pub(crate) fn run_pty_holder_command(args: &PtyHolderArgs) -> PtyResult<Option<String>> {
    let Sessions { cwd, environment } = sessions_in_current_dir()?;
    let cancel = CancelToken::from_signals().map_err(system_error("prepare for signals"))?;
    cancel.wake_on_child().map_err(system_error("prepare for signals"))?;
    let options = HolderOptions {
        id: &parse_pty_session_id(&args.id)?,
        argv: &args.command,
        size: TerminalSize { cols: args.cols, rows: args.rows },
        // The session's directory is in the directory of all sessions.
        work_dir: cwd.ancestors().nth(2).unwrap_or(&cwd),
        environment,
    };
    pty::run_pty_holder(&options, &cancel, |answer| {
        let is_written = print_output(answer);
        // `start` reads to the end of stdout: it must not wait for the end of the session.
        is_written & rustix::stdio::dup2_stdout(rustix::stdio::stdin()).is_ok()
    });
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    #[test]
    fn c_15_5_followed_output_has_no_control_characters() {
        let mut incomplete = Vec::new();
        let text = "\u{1b}]0;title\u{7}grün\n".as_bytes();
        let printed: String = text
            .chunks(1)
            .map(|byte| printable_output(&mut incomplete, byte))
            .collect::<Vec<_>>()
            .concat();
        // A whole sequence is removed; of a split one only the control characters.
        assert_eq!(printed, "]0;titlegrün\n");
        assert_eq!(printable_output(&mut incomplete, text), "grün\n");
        assert_eq!(incomplete, b"");
    }

    #[test]
    fn c_14_5_arguments_of_the_program_are_its_own() {
        let cases: [(&[&str], u16, &[&str]); 4] = [
            (&["start"], 80, &["bash"]),
            (&["start", "ls", "--cols", "3", "-l"], 80, &["ls", "--cols", "3", "-l"]),
            (&["start", "--cols", "100", "vim", "-u", "NONE"], 100, &["vim", "-u", "NONE"]),
            (&["start", "--", "less", "--", "-f"], 80, &["less", "--", "-f"]),
        ];
        for (words, cols, command) in cases {
            let argv = ["pty"].iter().chain(words);
            let matches = PtyArgs::augment_args(clap::Command::new("pty")).get_matches_from(argv);
            let Ok(PtyArgs { command: PtyCommand::Start(args) }) =
                PtyArgs::from_arg_matches(&matches)
            else {
                panic!("{words:?}")
            };
            assert_eq!(
                (args.cols.get(), args.command.as_slice()),
                (cols, &command.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..]),
                "{words:?}"
            );
        }
    }
}
