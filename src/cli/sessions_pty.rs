//! The program `delta-sessions-pty`: programs that need a terminal, kept between commands. One JSON value on stdout, except
//! for a person (`attach`) and for output that is followed.

use super::completions::{self, CompletionsArgs, Program};
use super::man::{self, ManArgs};
use super::stdout;
use crate::session::Sessions;
use crate::session::pty::{
    self, Form, Held, LARGEST, Left, Look, PtyError, PtySessions, Size, unescape,
};
use crate::signal::Cancel;
use crate::text::printable;
use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::num::NonZeroU16;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Keeps a program that needs a terminal, such as vim, top or a prompt, as a session: what is typed reaches it, what it
/// shows can be read. Experimental.
///
/// For commands of a shell or Python, `delta-sessions` needs no process between them. Sessions lie in .sessions-pty/ of
/// the current directory. Every command prints one JSON value, except `attach` and `read --follow`.
#[derive(Debug, Parser)]
#[command(name = "delta-sessions-pty", version, propagate_version = false, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  id=$(delta-sessions-pty start vim notes.txt | jq -r .session_id)
  delta-sessions-pty write \"$id\" 'ihello\\e:w\\r'
  delta-sessions-pty read \"$id\" --screen | jq -r .screen
  delta-sessions-pty write-key \"$id\" Up C-d Enter
  delta-sessions-pty end \"$id\"

Exit codes: 0 the session command worked, 1 it did not (`error` says why), 2 usage, 70 a bug";

#[derive(Debug, Subcommand)]
enum Command {
    Start(StartArgs),
    Write(WriteArgs),
    WriteKey(WriteKeyArgs),
    Read(ReadArgs),
    Resize(ResizeArgs),
    Attach(AttachArgs),
    Detach(DetachArgs),
    Status(StatusArgs),
    List(ListArgs),
    End(EndArgs),
    Cleanup(CleanupArgs),
    #[command(after_help = completions::installation!("delta-sessions-pty"))]
    Completions(CompletionsArgs),
    #[command(after_help = man::pages!("delta-sessions-pty", "start"))]
    Man(ManArgs),
    #[command(hide = true)]
    Holder(HolderArgs),
}

/// The program itself, for its completions and its pages.
const PROGRAM: Program = Program {
    name: "delta-sessions-pty",
    variable: "DELTA_SESSIONS_PTY_COMPLETE",
    command: Cli::command,
};

/// Start a program at a terminal of its own
#[derive(Debug, Args)]
struct StartArgs {
    /// The columns of its terminal
    #[arg(long, value_name = "N", default_value_t = Size::USUAL.cols, value_parser = number)]
    cols: NonZeroU16,
    /// The rows of its terminal
    #[arg(long, value_name = "N", default_value_t = Size::USUAL.rows, value_parser = number)]
    rows: NonZeroU16,
    /// The program with its arguments, all that follows
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        default_value = "bash"
    )]
    command: Vec<String>,
}

/// Type a text
///
/// In TEXT, \n \r \t \e \xHH and \\ stand for one byte; the Enter key is \r. What comes by stdin is typed as it is.
#[derive(Debug, Args)]
struct WriteArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
    /// The text; stdin without it
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<OsString>,
    /// Type TEXT as it is, without escapes
    #[arg(long)]
    raw: bool,
}

/// Press keys
///
/// A key is a character or a name (Enter, Tab, Esc, Space, Backspace, Delete, Insert, Up, Down, Left, Right, Home, End,
/// PageUp, PageDown, F1 to F12), with C- (Control), M- (Alt) or S- (Shift) before it: C-c, M-x, S-Tab.
#[derive(Debug, Args)]
struct WriteKeyArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
    /// The keys, in order
    #[arg(value_name = "KEY", required = true, allow_hyphen_values = true)]
    keys: Vec<String>,
}

/// Read what was printed since the last time, or what stands on the screen
///
/// Waits until something came and has settled: until nothing came for 100 ms.
#[derive(Debug, Args)]
struct ReadArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
    /// How long to wait at most, in milliseconds [default: 1000, with --wait 10000, with --follow until the program ends]
    #[arg(long, value_name = "MS")]
    timeout: Option<u64>,
    /// Wait until this text stands in what was not read yet, or with --screen on the screen
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    wait: Option<String>,
    /// Take the text of --wait for a regular expression, in which ^ and $ match at lines
    #[arg(long, requires = "wait")]
    regex: bool,
    /// Show the screen as a person would see it; nothing counts as read by that
    #[arg(long, conflicts_with_all = ["follow", "lines", "raw"])]
    screen: bool,
    /// Show the last lines of all that is kept, read or not; nothing counts as read by that
    #[arg(long, value_name = "N")]
    lines: Option<usize>,
    /// Leave control sequences in
    #[arg(long)]
    raw: bool,
    /// Print output as it comes, not as JSON, until the program ends; nothing counts as read by that
    #[arg(long, conflicts_with_all = ["wait", "regex"])]
    follow: bool,
}

/// Give the terminal another size
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("size").args(["cols", "rows"]).required(true).multiple(true))]
struct ResizeArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
    /// Its columns
    #[arg(long, value_name = "N", value_parser = number)]
    cols: Option<NonZeroU16>,
    /// Its rows
    #[arg(long, value_name = "N", value_parser = number)]
    rows: Option<NonZeroU16>,
}

/// Sit down at a session, in this terminal
///
/// Everything typed goes to the program; Control and ] leaves the session, which goes on. While somebody is attached,
/// the session has the size of that terminal.
#[derive(Debug, Args)]
struct AttachArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
}

/// Detach the terminal that is attached
#[derive(Debug, Args)]
struct DetachArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
}

/// Say how it is with a session
#[derive(Debug, Args)]
struct StatusArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
}

/// List the sessions of the current directory
#[derive(Debug, Args)]
struct ListArgs {}

/// End a session
///
/// Its program gets SIGHUP, then SIGTERM and SIGKILL as far as it still runs. `cleanup` removes what it left.
#[derive(Debug, Args)]
struct EndArgs {
    /// The id that `start` gave
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
}

/// Remove the sessions whose program has ended, and those that are dead or damaged
#[derive(Debug, Args)]
struct CleanupArgs {
    /// The active ones too, which are ended first
    #[arg(long)]
    all: bool,
}

/// Hold a session, in its directory; started by `start`
#[derive(Debug, Args)]
struct HolderArgs {
    /// The session
    #[arg(value_name = "SESSION_ID", add = ArgValueCandidates::new(active))]
    id: String,
    /// The columns of its terminal
    #[arg(long, value_parser = number)]
    cols: NonZeroU16,
    /// The rows of its terminal
    #[arg(long, value_parser = number)]
    rows: NonZeroU16,
    /// The program with its arguments
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

fn number(text: &str) -> Result<NonZeroU16, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU16| number.get() <= LARGEST);
    number.ok_or_else(|| format!("write a number from 1 to {LARGEST}"))
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
        Command::Completions(args) => return completions::completions(&args, &PROGRAM),
        Command::Man(args) => return man::man(&args, &PROGRAM),
        command => command,
    };
    let printed = perform(command).and_then(|text| match text {
        Some(text) => {
            stdout::write_result(&format!("{text}\n")).map_err(system("write the answer"))
        }
        None => Ok(()),
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

fn system(action: &'static str) -> impl Fn(io::Error) -> PtyError {
    move |source| PtyError::System { action, source }
}

/// Does what is asked; gives the JSON that is to be printed.
fn perform(command: Command) -> Result<Option<String>, PtyError> {
    let cwd = std::env::current_dir().map_err(system("find the current directory"))?;
    let environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    let cancel = Cancel::install().map_err(system("prepare for signals"))?;
    cancel.wake_on_child().map_err(system("prepare for signals"))?;
    if let Command::Holder(args) = command {
        return hold(&args, &cwd, environment, &cancel).map(|()| None);
    }
    let program = std::env::current_exe().map_err(system("find this program"))?;
    let sessions = PtySessions { sessions: Sessions { cwd, environment }, program, cancel };
    let id = |text: &str| pty::parse(text);
    let answer = match command {
        Command::Start(args) => {
            let size = Size { cols: args.cols, rows: args.rows };
            return print(&sessions.start(&args.command, size)?);
        }
        Command::List(_) => return print(&sessions.list()?),
        Command::Cleanup(args) => return print(&sessions.cleanup(args.all)?),
        Command::Attach(args) => return attach(&sessions, &args.id),
        Command::Read(args) if args.follow => return follow(&sessions, &args),
        Command::Write(args) => sessions.write(&id(&args.id)?, &typed(args.text, args.raw)?)?,
        Command::WriteKey(args) => sessions.write_keys(&id(&args.id)?, args.keys)?,
        Command::Read(args) => sessions.read(&id(&args.id)?, look(args))?,
        Command::Resize(args) => {
            let number = |number: Option<NonZeroU16>| number.map(NonZeroU16::get);
            sessions.resize(&id(&args.id)?, number(args.cols), number(args.rows))?
        }
        Command::Detach(args) => sessions.detach(&id(&args.id)?)?,
        Command::Status(args) => sessions.status(&id(&args.id)?)?,
        Command::End(args) => sessions.end(&id(&args.id)?)?,
        Command::Completions(_) | Command::Man(_) | Command::Holder(_) => return Ok(None),
    };
    Ok(Some(answer.get().to_owned()))
}

/// The active sessions, for a shell that completes an id: the last one first.
fn active() -> Vec<CompletionCandidate> {
    let cwd = std::env::current_dir().unwrap_or_default();
    let found = pty::active(&cwd).into_iter().rev().enumerate();
    let candidate = |(place, (id, command)): (usize, (String, String))| {
        CompletionCandidate::new(id).help(Some(command.into())).display_order(Some(place))
    };
    found.map(candidate).collect()
}

fn print<T: Serialize>(value: &T) -> Result<Option<String>, PtyError> {
    let text = serde_json::to_string(value);
    text.map(Some).map_err(|error| system("write the answer")(io::Error::other(error)))
}

fn look(args: ReadArgs) -> Look {
    let form = match (args.screen, args.raw) {
        (true, _) => Form::Screen,
        (false, true) => Form::Raw,
        (false, false) => Form::Text,
    };
    let usual = if args.wait.is_some() { 10_000 } else { 1000 };
    let timeout_ms = args.timeout.unwrap_or(usual);
    Look { form, lines: args.lines, wait: args.wait, regex: args.regex, timeout_ms }
}

fn typed(text: Option<OsString>, raw: bool) -> Result<Vec<u8>, PtyError> {
    match text {
        Some(text) if raw => Ok(text.into_vec()),
        Some(text) => Ok(unescape(&text.into_vec())?),
        None => {
            let mut stdin = io::stdin();
            if stdin.is_terminal() {
                return Err(PtyError::NoText);
            }
            let mut text = Vec::new();
            stdin.read_to_end(&mut text).map_err(system("read the text from stdin"))?;
            Ok(text)
        }
    }
}

fn attach(sessions: &PtySessions, id: &str) -> Result<Option<String>, PtyError> {
    let id = pty::parse(id)?;
    let said = match sessions.attach(&id)? {
        Left::Detached => format!("detached from {id}, which goes on"),
        Left::Ended(None) => format!("the session {id} has ended"),
        Left::Ended(Some(code)) => format!("the session {id} has ended with exit code {code}"),
    };
    stdout::complain(&said);
    Ok(None)
}

fn follow(sessions: &PtySessions, args: &ReadArgs) -> Result<Option<String>, PtyError> {
    let mut rest = Vec::new();
    let write = |output: &[u8]| {
        let shown;
        let output = match args.raw {
            true => output,
            false => {
                shown = shown_of(&mut rest, output);
                shown.as_bytes()
            }
        };
        let mut stdout = io::stdout().lock();
        stdout.write_all(output).and_then(|()| stdout.flush()).is_ok()
    };
    let limit = args.timeout.map(Duration::from_millis);
    sessions.follow(&pty::parse(&args.id)?, (args.raw, args.lines), limit, write)?;
    Ok(None)
}

/// What a person may see of `output`, whoever gave it to us for a session's; the beginning of a character waits in `rest`
/// for the next output.
fn shown_of(rest: &mut Vec<u8>, output: &[u8]) -> String {
    rest.extend(output);
    let whole = match std::str::from_utf8(rest) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => rest.len(),
    };
    let text = String::from_utf8_lossy(&rest[..whole]).into_owned();
    rest.drain(..whole);
    printable(&text)
}

/// Is the holder; `start` reads from our stdout whether the session is there.
fn hold(
    args: &HolderArgs,
    dir: &Path,
    environment: BTreeMap<OsString, OsString>,
    cancel: &Cancel,
) -> Result<(), PtyError> {
    // The directory of the session is in that of all sessions.
    let work_dir = dir.ancestors().nth(2).unwrap_or(dir);
    let held = Held {
        id: &pty::parse(&args.id)?,
        argv: &args.command,
        size: Size { cols: args.cols, rows: args.rows },
        work_dir,
        environment,
    };
    pty::hold(&held, cancel, |said| {
        let heard = io::stdout().lock().write_all(said).and_then(|()| io::stdout().flush());
        // Who waits for the end of what we say is not to wait for the end of the session.
        let silent = rustix::stdio::dup2_stdout(rustix::stdio::stdin());
        heard.is_ok() && silent.is_ok()
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_11_1_every_option_of_sessions_at_a_terminal_has_help() {
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

    #[test]
    fn c_15_5_what_is_followed_steers_no_terminal() {
        let mut rest = Vec::new();
        let text = "\u{1b}]0;title\u{7}grün\n".as_bytes();
        let shown: String =
            text.chunks(1).map(|byte| shown_of(&mut rest, byte)).collect::<Vec<_>>().concat();
        // Whatever is in one piece goes as a whole; of one in pieces only what steers is taken out.
        assert_eq!(shown, "]0;titlegrün\n");
        assert_eq!(shown_of(&mut rest, text), "grün\n");
        assert_eq!(rest, b"");
    }

    #[test]
    fn c_14_5_arguments_of_the_program_are_its_own() {
        let cases: [(&[&str], u16, &[&str]); 4] = [
            (&["start"], 80, &["bash"]),
            (&["start", "ls", "--cols", "3", "-l"], 80, &["ls", "--cols", "3", "-l"]),
            (&["start", "--cols", "100", "vim", "-u", "NONE"], 100, &["vim", "-u", "NONE"]),
            (&["start", "--", "less", "--", "-f"], 80, &["less", "--", "-f"]),
        ];
        for (given, cols, command) in cases {
            let words = ["delta-sessions-pty"].iter().chain(given);
            let Ok(Cli { command: Command::Start(args) }) = Cli::try_parse_from(words) else {
                panic!("{given:?}")
            };
            assert_eq!(
                (args.cols.get(), args.command.as_slice()),
                (cols, &command.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..]),
                "{given:?}"
            );
        }
    }
}
