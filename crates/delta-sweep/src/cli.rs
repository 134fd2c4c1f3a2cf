//! The command line of `delta-sweep`, which is the part `sweep` of delta's: the commands, errors, completions and
//! manual pages of `delta sweep` come from here.

use crate::commands::{SweepCommand, sweep_command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use delta_base::signal;
use delta_operator::global_options::GlobalOptions;
use delta_operator::manual_page::show_manual_page;
use delta_operator::{build_info, config, environment};
use delta_program::compact_help::compact_if_asked;
use delta_program::completions::{self, CliProgram};
use delta_program::default_format::parse_with_default_format;
use delta_program::man::{self, ManArgs};
use delta_program::usage_error::{
    json_tip, named_command, with_commands_tip, with_dash_tip, with_tip, with_usage_of_command,
    with_values_tip,
};
use delta_program::{install_panic_hook, refuse_small_stack, stdio};
use std::ffi::OsString;
use std::process::ExitCode;

/// The command line of delta, of which this program has a part.
#[derive(Debug, Parser)]
#[command(name = "delta")]
struct SweepCli {
    #[command(flatten)]
    options: GlobalOptions,
    #[command(subcommand)]
    command: RootCommand,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum RootCommand {
    #[command(subcommand)]
    Sweep(SweepCommand),
    #[command(hide = true)]
    Man(Box<ManArgs>),
}

const PROGRAM: CliProgram = CliProgram {
    name: "delta",
    completion_variable: "DELTA_COMPLETE",
    command: SweepCli::command,
    exit_codes: None,
    has_page: |page| page.starts_with("delta-sweep"),
};

/// The commands for one run, which find a run of a sweep too.
const RUN_COMMANDS: [&str; 11] = [
    "answer", "approve", "continue", "deny", "diff", "export", "fork", "replay", "rm", "show",
    "unpack",
];

/// Runs the program with the arguments of the process. Returns its exit code.
pub fn main() -> ExitCode {
    environment::take_environment();
    install_panic_hook();
    let refusal = refuse_small_stack();
    if let Some(code) = refusal.or_else(|| build_info::refuse_other_build("delta-sweep")) {
        return code;
    }
    if completions::answer_completion_request(PROGRAM) {
        return ExitCode::SUCCESS;
    }
    signal::ignore_io_signals();
    config::apply_color();
    let code = run_sweep_program(std::env::args_os().collect());
    delta_run::sweep::packed::remove_extracted_runs();
    stdio::finish_output(code)
}

fn run_sweep_program(program_arguments: Vec<OsString>) -> ExitCode {
    let is_by_hand = environment::starter_build().is_none();
    if is_by_hand && let Some(code) = answer_own_version(&program_arguments) {
        return code;
    }
    let arguments =
        if is_by_hand { as_part_of_delta(program_arguments) } else { program_arguments };
    let cli = match parse_sweep_arguments(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let error = with_sweep_tip(error, &arguments);
            // Help goes to stdout and succeeds, everything else is a usage error.
            stdio::print_clap_message(&error);
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if let Err(failure) = cli.options.apply() {
        return failure.report();
    }
    match cli.command {
        RootCommand::Sweep(command) => sweep_command(&command),
        RootCommand::Man(args) => man::print_manual_page(&args, &PROGRAM, show_manual_page),
    }
}

fn parse_sweep_arguments(arguments: &[OsString]) -> Result<SweepCli, clap::Error> {
    let mut command = compact_if_asked(SweepCli::command(), arguments);
    let mut matches = parse_with_default_format(&mut command, arguments, config::default_format)?;
    SweepCli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The arguments of `delta-sweep` as arguments of `delta`, which hands over all of its own when it starts this program.
fn as_part_of_delta(program_arguments: Vec<OsString>) -> Vec<OsString> {
    let names = ["delta", "sweep"].map(OsString::from);
    names.into_iter().chain(program_arguments.into_iter().skip(1)).collect()
}

/// Answers `delta-sweep --version`, also with `--json`.
fn answer_own_version(arguments: &[OsString]) -> Option<ExitCode> {
    if let [_, argument] = arguments
        && (argument == "--version" || argument == "-V")
    {
        stdio::print_text(concat!("delta-sweep ", env!("CARGO_PKG_VERSION"), "\n"));
        return Some(ExitCode::SUCCESS);
    }
    build_info::answer_version_request("delta-sweep", arguments)
}

/// Adds what to type to a usage error.
fn with_sweep_tip(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let named = named_command(SweepCli::command(), arguments);
    let error = with_usage_of_command(&named, error);
    let text_of = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => match text_of(ContextKind::InvalidSubcommand) {
            Some(unknown) if RUN_COMMANDS.contains(&&*unknown) => {
                with_tip(error, format!("use `delta {unknown} ID -w SWEEP`"))
            }
            _ if error.get(ContextKind::SuggestedSubcommand).is_none() => {
                with_commands_tip(&named, error)
            }
            _ => error,
        },
        ErrorKind::MissingRequiredArgument => with_values_tip(&named, error),
        ErrorKind::UnknownArgument => match text_of(ContextKind::InvalidArg) {
            Some(argument) => match json_tip(&named, &argument) {
                Some(tip) => with_tip(error, tip.to_owned()),
                None => with_dash_tip(&named, error, &argument, arguments),
            },
            None => error,
        },
        _ => error,
    }
}
