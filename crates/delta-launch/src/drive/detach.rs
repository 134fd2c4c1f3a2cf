//! `--detach`: leaves a run to a process in the background, which has a session of its own.
//!
//! The command starts itself again and waits until the run is durable. Until then the process reports its failures as the command
//! would; afterwards, what it prints as errors is in engine.log, and the result in the journal.

use delta_base::durable::LogFile;
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, environment};
use delta_process::{STARTED_PREFIX, StartEnd, StartingProcess, own_program};
use delta_program::stdio;
use delta_run::run::Run;
use std::ffi::OsString;
use std::process::ExitCode;

/// The option of the command.
const DETACH: &str = "--detach";
/// What replaces it for the process in the background.
const DETACHED: &str = "--detached";

/// Starts the command of this process in the background; returns the exit code when the run is durable or has failed.
pub fn detach_command() -> ExitCode {
    match start_again() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn start_again() -> Result<ExitCode, CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let mut arguments: Vec<OsString> = Vec::new();
    for argument in std::env::args_os().skip(1) {
        if argument == DETACH && !arguments.iter().any(|before| before == "--") {
            arguments.push(DETACHED.into());
        } else {
            arguments.push(argument);
        }
    }
    let process = StartingProcess::start(&own_program(), &arguments, environment::variables());
    let started = process.and_then(|process| process.wait(&cancel)).map_err(|error| {
        CommandFailure::config(format!("could not start the process of the run: {error}"), None)
    })?;
    match started {
        StartEnd::Started(id) => {
            stdio::print_text(&format!("{id}\n"));
            Ok(ExitCode::SUCCESS)
        }
        StartEnd::Exited(code, printed) => {
            stdio::print_text(&printed);
            let code = code.and_then(|code| u8::try_from(code).ok());
            Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
        }
        StartEnd::Cancelled => Err(CommandFailure::interrupted("interrupted")),
    }
}

/// Reports to the command that the run is durable, and closes what connects this process with it.
pub fn leave_command(run: &Run) -> Result<(), CommandFailure> {
    let log = LogFile::open(&run.dir.join("engine.log"))?;
    stdio::leave_caller(&format!("{STARTED_PREFIX}{}\n", run.id), &log).map_err(|error| {
        CommandFailure::config(format!("could not leave the terminal: {error}"), None)
    })
}
