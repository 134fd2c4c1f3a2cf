//! `delta view`: renders runs as an HTML page.

use super::failure::CommandFailure;
use super::live_view::{self, AddressOutput};
use super::run_argument::{LocatedRun, RunArgument};
use super::{completion_candidates, process_environment, run_preparation};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::durable;
use delta_base::redact::Secrets;
use delta_base::time;
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use delta_program::stdio;
use delta_report::view::{self, PageEnd, PageOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The programs that open a file with the default application.
const OPENERS: [&str; 2] = ["xdg-open", "open"];
/// The time limit for the shell to start one of them.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Render runs as an HTML page
///
/// Writes one self-contained HTML file with the messages, calls, outputs, exact requests, costs and child runs, and prints
/// its path. The page loads nothing from the network.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ViewArgs {
    /// Runs, each named by its id, a unique beginning or end of it, the path of its directory, or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(completion_candidates::run_candidates))]
    runs: Vec<RunArgument>,
    /// Workspace of the runs
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// File to write; `-` for stdout [default: RUN.html in the current directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Omit the requests, for a smaller page
    #[arg(long)]
    no_requests: bool,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Serve the page of an active run on a loopback port, where it updates itself, until the run ends; then write the file.
    /// The address goes to stderr
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
  delta view RUN -w ./work                    # write RUN.html
  delta view RUN -w ./work --open             # and open it
  delta view --follow --open                  # watch the last run until it ends
  delta view ONE OTHER -w ./work -o both.html
  delta view RUN -w ./work -o - | gzip > run.html.gz";

/// Writes the page; returns the exit code.
pub fn view_command(args: &ViewArgs) -> ExitCode {
    match write_page(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn write_page(args: &ViewArgs) -> Result<(), CommandFailure> {
    let runs: Vec<LocatedRun> = args
        .runs
        .iter()
        .map(|run| run.find_readable(&args.work_dir))
        .collect::<Result<_, CommandFailure>>()?;
    let run_dirs = runs.iter().map(|run| run.dir.clone()).collect();
    let options = PageOptions { run_dirs, with_requests: !args.no_requests };
    if args.start_page_server {
        return live_view::start_page_server(&runs[0].dir);
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

/// Refuses to replace a file that is not a page that begins with `mark`, unless the user named it.
pub fn check_page_file(file: &Path, is_named: bool, mark: &str) -> Result<(), CommandFailure> {
    let Ok(metadata) = file.metadata() else { return Ok(()) };
    let path = file.display();
    if !metadata.is_file() {
        let hint = "name another with `-o FILE`";
        return Err(CommandFailure::already_exists(format!("{path} is not a regular file"), hint));
    }
    if is_named || is_page(file, mark).unwrap_or(false) {
        return Ok(());
    }
    let message = format!("{path} already exists and was not written by `delta view`");
    let hint = format!("replace it with `-o {path}`, or name another file");
    Err(CommandFailure::already_exists(message, hint))
}

fn is_page(file: &Path, mark: &str) -> io::Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(file)?.take(mark.len() as u64).read_to_end(&mut start)?;
    Ok(start == mark.as_bytes())
}

/// Where a program that opens a page is started.
fn opener_context() -> LaunchContext {
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let env = process_environment::variables_without_keys(&[]).into();
    LaunchContext { cwd, env, secrets: Secrets::default(), containment: None, sandbox: None }
}

/// The program that opens a page.
///
/// # Errors
/// The reason why no browser can be opened here.
pub fn find_opener() -> Result<&'static str, String> {
    let context = opener_context();
    let opener = OPENERS.iter().find(|name| process::find_program(name, &context).is_ok());
    let opener = opener.ok_or_else(|| format!("could not find {}", OPENERS.join(" or ")))?;
    let names = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"];
    let has_desktop = names.iter().any(|name| process_environment::variable(name).is_some());
    // Without one, the opener starts nothing, or a browser for a terminal, which it does not have.
    if cfg!(target_os = "linux") && !has_desktop {
        return Err(format!("none of {} is set", names.join(", ")));
    }
    Ok(opener)
}

/// Opens the page, a file or an address, with the default application.
pub fn open_in_browser(page: &str) -> Result<(), CommandFailure> {
    let hint = || Some(format!("open {page} yourself"));
    let opener = find_opener().map_err(|reason| {
        CommandFailure::config(format!("could not open a browser: {reason}"), hint())
    })?;
    let launch = opener_context();
    // An opener may be the browser itself, which outlives this process.
    let script = "\"$1\" \"$2\" </dev/null >/dev/null 2>&1 &";
    let argv = ["sh", "-c", script, "sh", opener, page].map(str::to_owned);
    let command = ProcessCommand {
        program: None,
        argv: &argv,
        context: &launch,
        stdin: &[],
        timeout: OPEN_TIMEOUT,
        spool: None,
        excerpt_bytes: 4096,
        capture_whole: false,
        marks: &[],
    };
    let finished = process::run_process(&command, &run_preparation::install_cancel()?);
    match finished.end {
        ProcessEnd::Exited(0) => Ok(()),
        end => {
            let reason = delta_run::record::describe_process_end(&end)
                .unwrap_or_else(|| "it failed".to_owned());
            Err(CommandFailure::config(format!("{opener} did not open the page: {reason}"), hint()))
        }
    }
}
