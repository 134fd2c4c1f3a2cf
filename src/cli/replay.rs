//! `delta replay`: a run once more, from its records: only looked at, or with its tools, or with its LLM.

use super::failure::Failure;
use super::{completions, resume, stdout};
use crate::id::RunId;
use crate::journal;
use crate::replay::{self, Report};
use crate::workspace::Workspace;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code of a replay that is not as the run was.
const DIVERGED: u8 = 3;

/// Make a run again from its records, and say where it is not the same
///
/// `verify` asks and starts nothing: every line, request, call and result is made again from the journal and the kept
/// agent, and compared.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReplayArgs {
    /// The run
    #[arg(value_name = "RUN", value_parser = super::parse_run_id, add = ArgValueCandidates::new(completions::runs))]
    run_id: RunId,
    /// The workspace that holds it
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// What is done again
    #[arg(long, value_enum, default_value_t = Mode::Verify)]
    mode: Mode,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Nothing: the run's files are compared with each other
    Verify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// An account for people
    Text,
    /// One JSON object
    Json,
}

const EXAMPLES: &str = "\
Examples:
  delta replay RUN -w ./work                    is the run what its files say?

Exit codes: 0 the same, 3 not the same";

/// Replays a run; gives the exit code.
pub fn replay(args: &ReplayArgs) -> ExitCode {
    let done = match args.mode {
        Mode::Verify => verify(args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DIVERGED),
        Err(failure) => failure.complain(),
    }
}

fn verify(args: &ReplayArgs) -> Result<bool, Failure> {
    let workspace = Workspace::existing(&args.work_dir)?;
    let dir = resume::find(&args.run_id, &workspace)?;
    let bytes = journal::bytes(&dir).map_err(|error| resume::unreadable(&args.run_id, error))?;
    let report = replay::verify(&dir, &bytes);
    let id = args.run_id.as_str();
    stdout::write(&match args.format {
        Format::Text => text(id, &report),
        Format::Json => {
            let mut account = json!({"run_id": id, "mode": "verify", "equal": report.is_equal()});
            if let (Some(account), serde_json::Value::Object(more)) =
                (account.as_object_mut(), json!(report))
            {
                account.extend(more);
            }
            format!("{account}\n")
        }
    });
    Ok(report.is_equal())
}

/// The report for a person.
fn text(id: &str, report: &Report) -> String {
    let counted = report.checked;
    let (lines, requests) = (count(counted.lines, "line"), count(counted.requests, "request"));
    let (calls, files) = (count(counted.calls, "call"), count(counted.files, "file"));
    let mut text = match report.differences.len() {
        0 => format!("run {id} is as it was recorded: {lines}, {requests}, {calls}, {files}\n"),
        1 => format!("run {id} is not as it was recorded: 1 difference\n"),
        many => format!("run {id} is not as it was recorded: {many} differences\n"),
    };
    for (index, difference) in report.differences.iter().enumerate() {
        let place = difference.place();
        if index == 0 {
            let (recorded, expected) = (&difference.recorded, &difference.expected);
            text.push_str(&format!(
                "first: {place}\n  recorded: {recorded}\n  expected: {expected}\n"
            ));
        } else {
            text.push_str(&format!("then: {place}\n"));
        }
    }
    for skipped in &report.not_checked {
        text.push_str(&format!("not checked: {skipped}\n"));
    }
    crate::text::printable(&text)
}

fn count(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
