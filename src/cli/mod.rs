//! The command line: arguments in, one write to stdout, an exit code out. Nothing else reads the environment, prints to
//! stdout, or decides how the process ends.

use self::completions::Program;
use self::late::Late;
use crate::id::RunId;
use crate::text::shell_word;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::process::ExitCode;

mod agent_tests;
mod budget;
mod completions;
mod context;
mod diff;
mod drive;
mod export;
mod failure;
mod fork;
mod init;
mod late;
mod lint;
mod list_runs;
mod man;
mod migrate;
mod named;
mod person;
mod point;
mod replay;
mod resume;
mod rollback;
mod run;
mod schema;
pub mod sessions;
pub mod sessions_pty;
mod show;
mod stdout;
mod tool;
mod view;

/// The exit code of a bug in the engine.
const BUG: i32 = 70;

/// Runs AI agents the Unix way: an agent is a directory of plain files, every tool is an ordinary command, everything
/// that happened is one append-only file.
#[derive(Debug, Parser)]
#[command(name = "delta", version, propagate_version = false, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  delta run --agent ./my-agent -m \"Summarise the logs\"
  delta run -m \"List the files\" --format raw | head
  delta init my-agent
  delta tool lint ./my-agent

Exit codes: 0 COMPLETED, 1 FAILED, 2 usage, 70 a bug, 101 WAITING_FOR_INPUT, 126 configuration, 130 INTERRUPTED";

#[derive(Debug, Subcommand)]
enum Command {
    Run(Late<run::RunArgs>),
    Continue(Late<resume::ContinueArgs>),
    ListRuns(Late<list_runs::ListRunsArgs>),
    Show(Late<show::ShowArgs>),
    Rollback(Late<rollback::RollbackArgs>),
    Fork(Late<fork::ForkArgs>),
    Diff(Late<diff::DiffArgs>),
    Export(Late<export::ExportArgs>),
    View(Late<view::ViewArgs>),
    Replay(Late<replay::ReplayArgs>),
    #[command(subcommand)]
    Context(Late<context::ContextCommand>),
    Test(Late<agent_tests::TestArgs>),
    Schema(Late<schema::SchemaArgs>),
    Init(Late<init::InitArgs>),
    #[command(subcommand)]
    Tool(Late<tool::ToolCommand>),
    #[command(after_help = completions::installation!("delta"))]
    Completions(Late<completions::CompletionsArgs>),
    #[command(after_help = man::pages!("delta", "run"))]
    Man(Late<man::ManArgs>),
    #[command(name = "tool:expand", hide = true)]
    ToolExpand(Late<tool::ExpandArgs>),
    #[command(name = "tool:lint", hide = true)]
    ToolLint(Late<tool::LintArgs>),
    #[command(name = "tool:migrate", hide = true)]
    ToolMigrate(Late<tool::MigrateArgs>),
}

/// The program itself, for its completions and its pages.
const PROGRAM: Program =
    Program { name: "delta", variable: "DELTA_COMPLETE", command: Cli::command };

/// Runs the program with the process's arguments; gives its exit code.
pub fn main() -> ExitCode {
    install_panic_hook();
    if completions::answer(PROGRAM) {
        return ExitCode::SUCCESS;
    }
    hide_memory();
    run_with(std::env::args_os())
}

fn run_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let asked = arguments.get(1).map(OsString::as_os_str);
    let cli = match late::describing(asked, || parse(&arguments)) {
        Ok(cli) => cli,
        Err(error) => {
            let error = with_tip(error);
            // Help and version go to stdout and succeed, everything else is a usage error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Continue(args) => resume::resume(&args),
        Command::Fork(args) => fork::fork(&args),
        Command::ListRuns(args) => list_runs::list_runs(&args),
        Command::Show(args) => show::show(&args),
        Command::Rollback(args) => rollback::rollback(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Export(args) => export::export(&args),
        Command::View(args) => view::view(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Context(command) => context::context(&command),
        Command::Test(args) => agent_tests::test(&args),
        Command::Schema(args) => schema::schema(&args),
        Command::Init(args) => init::init(&args),
        Command::Completions(args) => completions::completions(&args, &PROGRAM),
        Command::Man(args) => man::man(&args, &PROGRAM),
        Command::Tool(command) => match &*command {
            tool::ToolCommand::Expand(args) => tool::expand(args),
            tool::ToolCommand::Migrate(args) => migrate::migrate(args),
            tool::ToolCommand::Lint(args) => lint::lint(args),
        },
        Command::ToolExpand(args) => tool::expand(&args),
        Command::ToolMigrate(args) => migrate::migrate(&args),
        Command::ToolLint(args) => lint::lint(&args),
    }
}

/// As clap's own `try_parse_from`, but for the description of the arguments: to take it apart again would cost as much
/// as to put it together, and the process has it once.
fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = ManuallyDrop::new(Cli::command());
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// A usage error, with what a word was probably meant to be that stands where `run` takes none.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return error,
    };
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if word.starts_with('-') || !usage.contains("delta run ") {
        return error;
    }
    let tip = match Path::new(word).is_dir() {
        true => format!("name the agent with `--agent {}`", shell_word(word)),
        false => "the task stands behind `-m`, as one word of the shell".to_owned(),
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Says that the arguments of `command` do not do, as clap says it; gives the exit code.
fn usage_error(command: &str, message: &str) -> ExitCode {
    let mut cli = Cli::command();
    cli.build();
    let found = cli
        .find_subcommand_mut(command)
        .map(|command| command.error(ErrorKind::ValueValidation, message));
    let error = found.unwrap_or_else(|| Cli::command().error(ErrorKind::ValueValidation, message));
    let _ = error.print();
    ExitCode::from(2)
}

/// A run id of the command line.
fn parse_run_id(text: &str) -> Result<RunId, String> {
    RunId::parse(text).map_err(|error| error.to_string())
}

/// How many of something an option allows: at least one.
fn parse_count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("write a whole number from 1 to {}", u32::MAX))
}

/// A panic leaves with a code of its own: Rust's 101 would look like a question to a person.
fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        stdout::complain(&format!("delta: this is a bug in delta: {panic}"));
        stdout::complain("What the journal holds is safe; please report what you did.");
        #[expect(clippy::exit, reason = "a panic in any thread ends the program")]
        std::process::exit(BUG);
    }));
}

/// Makes the process's memory and environment, in which the LLM's key is, unreadable to other processes of its user.
fn hide_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_11_1_every_option_has_help() {
        let mut command = Cli::command();
        command.build();
        let mut queue = vec![command];
        while let Some(command) = queue.pop() {
            for argument in command.get_arguments() {
                let name = format!("{} {}", command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{name} has no help");
            }
            queue.extend(command.get_subcommands().cloned());
        }
        Cli::command().debug_assert();
    }

    /// Makes this very test panic in a child of its own, with the hook in place.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a test may start a process and read its variables"
    )]
    fn c_12_4_a_panic_leaves_with_70() {
        const ROLE: &str = "DELTA_TEST_PANICS";
        if std::env::var_os(ROLE).is_some() {
            install_panic_hook();
            // Of another thread, as the worst case: only the hook can end the process.
            let _ = std::thread::spawn(|| panic!("on purpose")).join();
            return;
        }
        let test = "cli::tests::c_12_4_a_panic_leaves_with_70";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", test, "--nocapture"]).env(ROLE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(BUG), "{said}");
        assert!(
            said.contains("delta: this is a bug in delta: ") && said.contains("on purpose"),
            "{said}"
        );
        assert!(said.contains("What the journal holds is safe"), "{said}");
    }
}
