//! The page of active runs: served on a loopback port until they end.

use super::continue_run;
use super::failure::CommandFailure;
use super::process_environment;
use super::run_argument::LocatedRun;
use super::run_preparation;
use super::show;
use super::view;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use delta_program::stdio;
use delta_report::view::{LivePage, PageOptions, PageServer};
use delta_run::event::RunStatus;
use delta_run::record;
use delta_run::state::RunState;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the runs are checked for their end.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The time limit for a server in the background to print its address, which takes a few milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Who sees the address of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressOutput {
    /// The user, on stderr.
    Stderr,
    /// The command that started this process, on stdout.
    Stdout,
}

/// Serves the page until no process works on the runs; `None` if none does now. The server still has to be finished.
pub fn serve_active_runs(
    runs: &[LocatedRun],
    options: &PageOptions,
    opens_browser: bool,
    output: AddressOutput,
) -> Result<Option<PageServer>, CommandFailure> {
    let mut watches: Vec<RunWatch<'_>> = runs.iter().map(RunWatch::new).collect();
    if !watches.iter_mut().any(RunWatch::is_active) {
        return Ok(None);
    }
    let cancel = run_preparation::install_cancel()?;
    let page = LivePage::new(options.clone(), time::current_time);
    let server = PageServer::start(page).map_err(|error| {
        let message = format!("could not serve the page on a loopback port: {error}");
        CommandFailure::config(message, None)
    })?;
    let address = server.address();
    match output {
        AddressOutput::Stderr => stdio::print_error_line(&format!("page: {address}")),
        AddressOutput::Stdout => drop(stdio::print_text(&format!("{address}\n"))),
    }
    if opens_browser && let Err(failure) = view::open_in_browser(&server.entry_address()) {
        // The page is served without a browser too.
        failure.with_hint(Some(format!("open {address} yourself"))).report();
    }
    while watches.iter_mut().any(RunWatch::is_active) {
        if cancel.wait(CHECK_INTERVAL) {
            return Err(CommandFailure::interrupted("interrupted before the run ended"));
        }
    }
    Ok(Some(server))
}

/// Reads a journal again only when it has grown.
struct RunWatch<'r> {
    run: &'r LocatedRun,
    journal_bytes: u64,
    state: RunState,
}

impl<'r> RunWatch<'r> {
    fn new(run: &'r LocatedRun) -> Self {
        Self { run, journal_bytes: 0, state: RunState::default() }
    }

    /// Whether a process works on the run.
    fn is_active(&mut self) -> bool {
        let run = self.run;
        // Checked before the journal is read, so that the last events of a process that ends now count.
        let is_gone = self.journal_bytes > 0 && show::process_is_gone(&self.state);
        let bytes = run.dir.join("journal.jsonl").metadata().map_or(0, |journal| journal.len());
        if bytes == self.journal_bytes {
            return !is_gone && self.state.status == Some(RunStatus::Running);
        }
        let Ok(journal) = continue_run::read_journal(&run.id, &run.dir) else { return false };
        self.journal_bytes = bytes;
        self.state = RunState::from_events(&journal.events);
        self.state.status == Some(RunStatus::Running)
    }
}

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
    let context = LaunchContext {
        cwd: working_directory(),
        env: process_environment::variables_without_keys(&[]).into(),
        secrets: Secrets::default(),
        containment: None,
        sandbox: None,
    };
    let command = ProcessCommand {
        program: None,
        argv: &argv,
        context: &context,
        stdin: &[],
        timeout: START_TIMEOUT,
        spool: None,
        excerpt_bytes: 4096,
        capture_whole: false,
        marks: &[],
    };
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
    let env = process_environment::variables_without_keys(&[]);
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
