//! The page of active runs: served on a loopback port until they end.

use delta_base::time;
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::runs::{own_run, page};
use delta_program::stdio;
use delta_report::view::{LivePage, PageOptions, PageServer};
use delta_run::event::RunStatus;
use delta_run::state::RunState;
use std::time::Duration;

/// How often the runs are checked for their end.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
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
    let cancel = cancel::install_cancel()?;
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
    if opens_browser && let Err(failure) = page::open_in_browser(&server.entry_address()) {
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
        let is_gone = self.journal_bytes > 0 && own_run::process_is_gone(&self.state);
        let bytes = run.dir.join("journal.jsonl").metadata().map_or(0, |journal| journal.len());
        if bytes == self.journal_bytes {
            return !is_gone && self.state.status == Some(RunStatus::Running);
        }
        let Ok(journal) = own_run::read_journal(&run.id, &run.dir) else { return false };
        self.journal_bytes = bytes;
        self.state = RunState::from_events(&journal.events);
        self.state.status == Some(RunStatus::Running)
    }
}
