//! The page of active runs: served on a loopback port until they end.

use delta_base::time;
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::page;
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::runs::run_watch::RunWatch;
use delta_program::stdio;
use delta_report::view::{LivePage, PageOptions, PageServer};
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
    let mut watches: Vec<RunWatch> = runs.iter().map(RunWatch::new).collect();
    if !watches.iter_mut().any(is_active) {
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
        failure.with_hint(format!("open {address} yourself")).report();
    }
    while watches.iter_mut().any(is_active) {
        if cancel.wait(CHECK_INTERVAL) {
            return Err(CommandFailure::interrupted("interrupted before the run ended"));
        }
    }
    Ok(Some(server))
}

/// Whether a process works on the run; not if that cannot be read.
fn is_active(watch: &mut RunWatch) -> bool {
    watch.look().is_ok_and(|look| look.is_active)
}
