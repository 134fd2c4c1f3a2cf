//! `delta view`: runs as one page for a browser.

use super::failure::Failure;
use super::named::{Found, Named};
use super::{completions, drive, stdout};
use crate::durable;
use crate::process::{self, Command, End, Launch};
use crate::text::Secrets;
use crate::time;
use crate::view::{self, Wanted};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The programs that open a file as the desktop does it.
const OPENERS: [&str; 2] = ["xdg-open", "open"];
/// So long the shell may take to start one of them.
const OPENING: Duration = Duration::from_secs(10);

/// Make a page of runs for a browser
///
/// One HTML file that holds everything: what was said, called and printed, the exact requests, what they cost, and the
/// runs that were begun inside these. It needs no network and asks for none. Its path goes to stdout.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ViewArgs {
    /// The runs: their ids, or the paths of their directories
    #[arg(value_name = "RUN", required = true, value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    runs: Vec<Named>,
    /// The workspace that holds them
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// The file to write, `-` for stdout (RUN.html in the current directory by default)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave the requests out: the page is smaller
    #[arg(long)]
    no_requests: bool,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta view RUN -w ./work                  writes RUN.html
  delta view RUN -w ./work --open           and opens it
  delta view ONE OTHER -w ./work -o both.html
  delta view RUN -w ./work -o - | gzip > run.html.gz";

/// Makes the page; gives the exit code.
pub fn view(args: &ViewArgs) -> ExitCode {
    match perform(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.complain(),
    }
}

fn perform(args: &ViewArgs) -> Result<(), Failure> {
    let found: Result<Vec<Found>, Failure> =
        args.runs.iter().map(|run| run.find(&args.work_dir)).collect();
    let found = found?;
    let run_dirs = found.iter().map(|run| run.dir.clone()).collect();
    let wanted = Wanted { run_dirs, requests: !args.no_requests };
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    let file = match &args.output {
        Some(file) => file.clone(),
        None => PathBuf::from(format!("{}.html", found[0].id)),
    };
    if !to_stdout {
        check_place(&file, args.output.is_some())?;
    }
    let page = view::page(&wanted, time::now());
    if to_stdout {
        // It is a file, whoever reads it: what a terminal would make of it is not asked.
        return stdout::write_result(&page)
            .map_err(|error| Failure::config(format!("stdout cannot be written: {error}"), None));
    }
    durable::exchange(&file, page.as_bytes())?;
    stdout::write(&format!("{}\n", file.display()));
    if args.open { open(&file) } else { Ok(()) }
}

/// Refuses to replace what is no page, unless it was named.
fn check_place(file: &Path, is_named: bool) -> Result<(), Failure> {
    let Ok(metadata) = file.metadata() else { return Ok(()) };
    let shown = file.display();
    if !metadata.is_file() {
        let message = format!("{shown} is not a regular file");
        return Err(Failure::exists(message, "name another with `-o FILE`, or print with `-o -`"));
    }
    if is_named || begins_as_page(file).unwrap_or(false) {
        return Ok(());
    }
    let hint = format!("write `-o {shown}` to replace it, or name another file");
    Err(Failure::exists(format!("{shown} is there already, and is no page of delta"), hint))
}

fn begins_as_page(file: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(file)?.take(view::MARK.len() as u64).read_to_end(&mut start)?;
    Ok(start == view::MARK.as_bytes())
}

/// Hands the page to the desktop.
fn open(file: &Path) -> Result<(), Failure> {
    let path = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let env = std::env::vars_os().collect();
    let launch = Launch { cwd, env, secrets: Secrets::default() };
    let found = OPENERS.iter().find(|name| process::find_program(name, &launch).is_ok());
    let hint = || Some(format!("open {} yourself", path.display()));
    let Some(opener) = found else {
        let message = format!("there is no {} to open the page with", OPENERS.join(" and no "));
        return Err(Failure::config(message, hint()));
    };
    // Some of them are the browser itself and stay: it outlives this process.
    let script = "\"$1\" \"$2\" </dev/null >/dev/null 2>&1 &";
    let path_text = path.to_string_lossy();
    let argv = ["sh", "-c", script, "sh", opener, &path_text].map(str::to_owned);
    let command = Command {
        argv: &argv,
        launch: &launch,
        stdin: &[],
        timeout: OPENING,
        spool: None,
        keep: 4096,
        keep_all: false,
        marks: &[],
    };
    let finished = process::run(&command, &drive::cancel()?);
    match finished.end {
        End::Exited(0) => Ok(()),
        end => {
            let how = crate::record::ended(&end).unwrap_or_else(|| "it failed".to_owned());
            Err(Failure::config(format!("{opener} did not open the page: {how}"), hint()))
        }
    }
}
