//! The server of the page of an active run, which is a process of its own.

use crate::environment;
use crate::failure::CommandFailure;
use delta_base::signal::CancelToken;
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use delta_program::stdio;
use delta_run::record;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time limit for a server in the background to print its address, which takes a few milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts a process that serves the page of the run in `run_dir` until the run ends, and opens the page in a browser.
/// Returns its address.
///
/// The process does not descend from this one, so that nothing of it counts as a part of the run.
pub fn start_in_background(run_dir: &Path, cancel: &CancelToken) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let words = ["view", "--follow", "--start-page-server"].map(str::to_owned);
    let mut argv = vec![program.to_string_lossy().into_owned()];
    argv.extend(words);
    argv.push(run_dir.to_string_lossy().into_owned());
    let context = LaunchContext::new(working_directory(), environment::variables_without_keys(&[]));
    let command = ProcessCommand::new(&argv, &context, START_TIMEOUT, 4096);
    let finished = process::run_process(&command, cancel);
    let printed = String::from_utf8_lossy(&finished.stdout.head).trim().to_owned();
    match finished.end {
        ProcessEnd::Exited(0) if !printed.is_empty() => Ok(printed),
        ProcessEnd::Exited(_) => {
            Err(String::from_utf8_lossy(&finished.stderr.head).trim().to_owned())
        }
        end => Err(record::describe_process_end(&end).unwrap_or_else(|| "it failed".to_owned())),
    }
}

/// Starts the server of [`start_in_background`], prints the address of the page, and leaves the server.
pub fn start_page_server(run_dir: &Path) -> Result<(), CommandFailure> {
    let to_failure = |error: std::io::Error| {
        CommandFailure::config(format!("could not start the server of the page: {error}"), None)
    };
    let program = std::env::current_exe().map_err(to_failure)?;
    let run_dir = run_dir.to_string_lossy().into_owned();
    let words = ["view", "--follow", "--open", "--page-server"].map(str::to_owned);
    let arguments: Vec<String> = words.into_iter().chain([run_dir]).collect();
    let env = environment::variables_without_keys(&[]);
    let stdout = process::start_detached(&program, &arguments, &env, &working_directory())
        .map_err(to_failure)?;
    let mut address = String::new();
    BufReader::new(stdout).read_line(&mut address).map_err(to_failure)?;
    stdio::print_text(&address);
    Ok(())
}

fn working_directory() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"))
}
