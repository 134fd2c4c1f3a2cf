//! `delta verify`: whether runs are what delta recorded, and files what a statement says.

use clap::{Args, ValueEnum};
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::{durable, json};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::own_run;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::run_arguments::RunArguments;
use delta_operator::state;
use delta_program::stdio;
use delta_report::statement::verify_statement::{StatementReport, StatementRun, verify_statement};
use delta_report::verify::{self, AnchoredHead, VerifyInputs, VerifyReport};
use delta_run::journal;
use delta_run::journal::seal::{SealKeys, Signer};
use delta_run::journal::signature::PublicKey;
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod changed_files;

use changed_files::find_changed_files;

/// The exit code of a verification that found something.
const EXIT_BROKEN: u8 = 3;

/// Verify that runs are what delta recorded
///
/// Names what was changed in a run and in the runs that its calls started. With the file of a statement, checks its signature
/// and the files in DIR, and with one RUN also the run.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = "delta verify [OPTIONS] [RUN]...\n       delta verify [OPTIONS] <FILE> [RUN]")]
pub struct VerifyArgs {
    #[command(flatten)]
    runs: RunArguments,
    /// Compare the journals with the heads that `--anchor FILE` of `delta run` has appended
    #[arg(long, value_name = "FILE", help_heading = "Integrity")]
    anchor: Option<PathBuf>,
    /// Also accept seals and signatures of this key, as `delta config` prints it; repeatable
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse, help_heading = "Integrity")]
    by: Vec<PublicKey>,
    /// Of a statement: all files that differ from where REF of git and HEAD parted must be in it
    #[arg(long, value_name = "REF", help_heading = "Integrity")]
    changed_since: Option<String>,
    /// Do not check the seals
    #[arg(long, conflicts_with = "by", help_heading = "Integrity")]
    no_seal: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = VerifyFormat::Text)]
    format: VerifyFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VerifyFormat {
    /// Readable report
    Text,
    /// One JSON object per run
    Json,
}

const EXAMPLES: &str = "\
What is checked:
  chain     each line of the journal has a checksum of all lines before it
  head      the last line: the result of a call has the heads of its runs
  seal      your key, or one that you accept, signed the chain when a process
            started and exited
  anchor    a head that `--anchor` of `delta run` kept elsewhere
  record    each record and copied file has the checksum in the journal
Of a statement, which `delta export --to in-toto` prints:
  signature  your key, or one that you accept, signed it
  subjects   DIR has the files that the run has written
  changes    with `--changed-since REF`: nothing else was changed or removed
  journal    with RUN: its journal begins as the statement says
  trees      with RUN: its snapshots have what the statement says

Examples:
  delta verify RUN -w ./work
  delta verify -r ~/agents                                   # every run there
  delta verify RUN -w ./work --anchor /var/log/delta.heads   # heads elsewhere
  delta verify RUN --by ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE
  delta verify change.intoto.json -w ./checkout
  delta verify change.intoto.json --changed-since origin/main
  delta verify RUN --format json | jq '.checks[] | select(.state == \"broken\")'

Exit codes: 0 everything that was checked is intact, 3 something is not, 2 usage error, 1 or 126 not verified";

/// Verifies runs or a statement; returns the exit code.
pub fn verify_command(args: &VerifyArgs) -> Result<ExitCode, CommandFailure> {
    if let Some((file, runs)) = args.runs.split_file() {
        let report = verify_file(args, &file, runs)?;
        print_verified(args, &report, StatementReport::render_text);
        return Ok(integrity_exit_code(report.holds));
    }
    if args.changed_since.is_some() {
        let message = "`--changed-since` compares the files of a statement";
        return Err(CommandFailure::usage(message, "`delta verify FILE --changed-since REF`"));
    }
    let reports = verify_runs(args)?;
    reports.iter().for_each(|report| print_verified(args, report, VerifyReport::render_text));
    Ok(integrity_exit_code(reports.iter().all(|report| report.holds)))
}

fn integrity_exit_code(holds: bool) -> ExitCode {
    ExitCode::from(if holds { 0 } else { EXIT_BROKEN })
}

fn print_verified<R: Serialize>(args: &VerifyArgs, report: &R, render: impl Fn(&R) -> String) {
    stdio::print_text(&match args.format {
        VerifyFormat::Text => strip_terminal_controls(&render(report)),
        VerifyFormat::Json => format!("{}\n", json::to_json(report)),
    });
}

fn verify_inputs(args: &VerifyArgs) -> Result<VerifyInputs, CommandFailure> {
    let keys = if args.no_seal { Err("`--no-seal`".to_owned()) } else { find_keys(&args.by) };
    let anchors = args.anchor.as_deref().map(read_anchors).transpose()?;
    Ok(VerifyInputs { keys, anchors })
}

/// Verifies the statement in `file`, and the run that is named with it.
fn verify_file(
    args: &VerifyArgs,
    file: &Path,
    runs: &[RunArgument],
) -> Result<StatementReport, CommandFailure> {
    if args.no_seal || runs.len() > 1 {
        let message = "a statement is verified with its signature, and with at most one run";
        let hint = "`delta verify FILE [RUN]`, without `--no-seal`";
        return Err(CommandFailure::usage(message, hint));
    }
    let unreadable = |reason: &dyn Display| {
        let message = format!("could not verify {}: {reason}", file.display());
        let hint = "name a file that `delta export RUN --to in-toto -o FILE` has written, or a run";
        CommandFailure::config(message, hint)
    };
    let bytes = durable::read_regular(file).map_err(|error| unreadable(&error))?;
    let inputs = verify_inputs(args)?;
    let located = runs.first().map(|run| run.find_readable(&args.runs.work_dir)).transpose()?;
    let journal;
    let run = match &located {
        None => None,
        Some(LocatedRun { id, dir, .. }) => {
            let unreadable_journal = |error| own_run::unreadable_journal_failure(id, error);
            journal = journal::read_journal_bytes(dir).map_err(unreadable_journal)?;
            let report = verify::verify_integrity(id, dir, &inputs).map_err(unreadable_journal)?;
            let (events, _) = journal::salvage_journal(dir).map_err(unreadable_journal)?;
            Some(StatementRun { id, dir, journal: &journal, events, report })
        }
    };
    let keys = inputs.keys.unwrap_or_default();
    let checkout = &args.runs.work_dir;
    let revision = args.changed_since.as_deref();
    let changed = revision.map(|revision| find_changed_files(revision, checkout, file));
    let changed = changed.transpose()?;
    let name = file.to_string_lossy();
    verify_statement(&name, &bytes, checkout, changed.as_ref(), &keys, run)
        .map_err(|reason| unreadable(&format!("it {reason}")))
}

fn verify_runs(args: &VerifyArgs) -> Result<Vec<VerifyReport>, CommandFailure> {
    let inputs = verify_inputs(args)?;
    let runs = args.runs.select(|_| true)?;
    if runs.is_empty() {
        let hint = "`delta list-runs -r DIR` lists the runs below a directory";
        return Err(CommandFailure::nothing_found("these directories have no runs", hint));
    }
    let reports = runs.iter().map(|run| {
        let LocatedRun { id, dir, .. } = run.find_readable(&args.runs.work_dir)?;
        verify::verify_integrity(&id, &dir, &inputs)
            .map_err(|error| own_run::unreadable_journal_failure(&id, error))
    });
    reports.collect()
}

/// The keys whose seals are accepted; the reason if there is none.
fn find_keys(by: &[PublicKey]) -> Result<SealKeys, String> {
    let existing_keys = state::existing_seal_keys();
    if by.is_empty() {
        return existing_keys;
    }
    let mut keys = existing_keys.unwrap_or_default();
    by.iter().for_each(|key| keys.add(Signer::Given, *key));
    Ok(keys)
}

/// Reads the heads in a file. Other lines, of a log with other entries, are skipped.
fn read_anchors(path: &Path) -> Result<Vec<AnchoredHead>, CommandFailure> {
    let bytes = durable::read_large(path).map_err(|error| {
        CommandFailure::config(format!("could not read {}: {error}", path.display()), None)
    })?;
    let lines = bytes.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}
