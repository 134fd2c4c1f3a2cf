//! `delta view`: renders runs as an HTML page.

use crate::live_view::{self, AddressOutput};
use clap::Args;
use delta_base::id::RunId;
use delta_base::{durable, time};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::page::{check_page_file, open_in_browser};
use delta_operator::runs::page_server;
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::runs::run_arguments::RunArguments;
use delta_program::stdio;
use delta_report::sweep_facts::SweepRunFacts;
use delta_report::view::{self, PageEnd, PageOptions};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Render runs as an HTML page
///
/// Writes one HTML file that loads nothing, and prints its path.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ViewArgs {
    #[command(flatten)]
    runs: RunArguments,
    /// File to write; `-` for stdout [default: RUN.html in the current directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Omit the requests, for a smaller page
    #[arg(long)]
    no_requests: bool,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Until the run ends, serve its page on a loopback port, whose address is on stderr; then write the file
    #[arg(short, long)]
    follow: bool,
    /// Start the server of one run in the background, and print its address
    #[arg(long, hide = true, requires = "follow")]
    start_page_server: bool,
    /// Print the address to stdout, and write no file
    #[arg(long, hide = true, requires = "follow")]
    page_server: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta view RUN -w ./work --open             # write RUN.html, and open it
  delta view --follow --open                  # watch the last run until it ends
  delta view ONE OTHER -w ./work -o both.html";

/// What their sweeps know of the runs; a sweep that cannot be read is reported.
fn read_facts_of_runs(runs: &[LocatedRun]) -> HashMap<RunId, SweepRunFacts> {
    let mut facts = HashMap::new();
    for run in runs {
        match SweepRunFacts::read(&run.sweep_workspace(), &run.id) {
            Ok(Some(of_run)) => drop(facts.insert(run.id.clone(), of_run)),
            Ok(None) => {}
            Err(error) => stdio::print_error_line(&format!("warning: {error}")),
        }
    }
    facts
}

/// Writes the page.
pub fn view_command(args: &ViewArgs) -> Result<(), CommandFailure> {
    let names = args.runs.select(|_| true)?.into_iter();
    let runs: Vec<LocatedRun> = names
        .map(|run| run.find_readable(&args.runs.work_dir))
        .collect::<Result<_, CommandFailure>>()?;
    if runs.is_empty() {
        let hint = "`delta run` starts one, and `delta list-runs -r DIR` lists the ones below DIR";
        return Err(CommandFailure::not_found("there are no runs in these directories", hint));
    }
    let run_dirs = runs.iter().map(|run| run.dir.clone()).collect();
    let options = PageOptions {
        run_dirs,
        with_requests: !args.no_requests,
        sweep_facts: read_facts_of_runs(&runs),
    };
    if args.start_page_server {
        return page_server::start_page_server(&runs[0].dir);
    }
    if args.page_server {
        let server =
            live_view::serve_active_runs(&runs, &options, args.open, AddressOutput::Stdout)?;
        server.inspect(|server| server.finish(PageEnd { saved: None }));
        return Ok(());
    }
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    let file = match &args.output {
        Some(file) => file.clone(),
        None => PathBuf::from(format!("{}.html", runs[0].id)),
    };
    if !to_stdout {
        check_page_file(&file, args.output.is_some(), view::PAGE_MARK)?;
    }
    let server = if args.follow {
        live_view::serve_active_runs(&runs, &options, args.open, AddressOutput::Stderr)?
    } else {
        None
    };
    let page = view::render_page(&options, time::current_time());
    if to_stdout {
        // The page is written unchanged, even to a terminal.
        let printed = stdio::print_result(&page);
        server.inspect(|server| server.finish(PageEnd { saved: None }));
        return printed.map_err(|error| {
            CommandFailure::config(format!("could not write the page to stdout: {error}"), None)
        });
    }
    durable::replace_private_unsynced(&file, page.as_bytes())?;
    stdio::print_text(&format!("{}\n", file.display()));
    let path = file.canonicalize().unwrap_or(file).to_string_lossy().into_owned();
    match server {
        Some(server) => server.finish(PageEnd { saved: Some(path) }),
        None if args.open => open_in_browser(&path)?,
        None => {}
    }
    Ok(())
}
