//! `delta pack` and `delta unpack`: the io/ of a run as one file, and back.

use clap::Args;
use delta_base::durable::{self, FileError};
use delta_base::shell_quote::shell_quote_path;
use delta_operator::command_line;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::runs::run_arguments::RunArguments;
use delta_operator::runs::run_list::{RunListEntry, RunListStatus};
use delta_operator::runs::{agent_hint, own_run};
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::ownership::Ownership;
use delta_run::ownership::claim::{ClaimPatience, OwnershipError};
use delta_run::record::{self, PACK_FILE, PackSummary};
use delta_run::run_result::open_request_hint;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Pack the records of runs that have ended into one file per run
///
/// Puts io/ and engine.log of each run into io.pack, without compression. Every command reads a packed run; `delta continue`
/// and `delta rollback` unpack it first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta pack RUN1 RUN2 -w ./work
  delta pack -r ~/agents        # all runs that have ended")]
pub struct PackArgs {
    #[command(flatten)]
    runs: PackedRuns,
}

/// Unpack the records of packed runs
///
/// Restores io/ and engine.log byte for byte. A run that `delta sweep pack` has packed gets its directory back; name the sweep
/// with `-w`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta unpack RUN -w ./work
  delta unpack ID -w SWEEP      # a run that `delta sweep pack` has packed")]
pub struct UnpackArgs {
    #[command(flatten)]
    runs: PackedRuns,
}

/// The runs of `pack` and `unpack`.
#[derive(Debug, Args)]
struct PackedRuns {
    #[command(flatten)]
    selected: RunArguments,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

/// Packs runs; returns the exit code.
pub fn pack_command(args: &PackArgs) -> ExitCode {
    args.runs.change_each(is_packable, |run, ownership| {
        let state = own_run::fold_journal(&run.id, &run.dir)?;
        let id = &run.id;
        match state.status {
            Some(RunStatus::Running | RunStatus::WaitingForInput) | None => {
                let status = state
                    .status
                    .map_or_else(|| "has not started".to_owned(), |status| format!("is {status}"));
                let message = format!("run {id} {status}; delta packs only runs that have ended");
                let next = agent_hint::named_continue_command(run, &state);
                let hint = open_request_hint(&state, &next)
                    .unwrap_or_else(|| format!("to continue it: {next}"));
                return Err(CommandFailure::run_active(message, hint));
            }
            Some(RunStatus::Completed | RunStatus::Failed | RunStatus::Interrupted) => {}
        }
        let summary = record::pack_records(&run.dir).map_err(|error| pack_failure(error, run))?;
        // One file less, and nothing needs it: the next process that claims the run creates it.
        ownership.remove_lock_file(&run.dir)?;
        Ok(format!("Packed {} of run {id}", describe_files(summary)))
    })
}

/// Unpacks runs; returns the exit code.
pub fn unpack_command(args: &UnpackArgs) -> ExitCode {
    args.runs.change_each(is_packed, |run, _ownership| {
        let id = &run.id;
        let records = record::unpack_records(&run.dir)?
            .map(|summary| format!("Unpacked {} of run {id}", describe_files(summary)));
        let directory = run
            .unpacked_from
            .as_ref()
            .map(|pack| format!("Unpacked run {id} from {}", pack.display()));
        let lines: Vec<String> = directory.into_iter().chain(records).collect();
        Ok(if lines.is_empty() { format!("Run {id} is not packed") } else { lines.join("\n") })
    })
}

/// Whether the run has ended and its records are files.
fn is_packable(run: &RunListEntry) -> bool {
    let has_ended = matches!(
        run.status,
        RunListStatus::Completed | RunListStatus::Failed | RunListStatus::Interrupted
    );
    has_ended && !run.active && !is_packed(run)
}

fn is_packed(run: &RunListEntry) -> bool {
    run.dir().join(PACK_FILE).exists()
}

fn active_run_failure(error: OwnershipError, run: &LocatedRun) -> CommandFailure {
    let OwnershipError::Active { pid, .. } = error else { return error.into() };
    let id = &run.id;
    let process = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
    let hint = format!("stop it with `delta stop {id} -w {}`", run.quoted_workspace());
    CommandFailure::run_active(format!("run {id} is active{process}"), hint)
}

/// The failure of packing; a damaged pack hides the files that exist outside of it.
fn pack_failure(error: FileError, run: &LocatedRun) -> CommandFailure {
    let pack = run.dir.join(PACK_FILE);
    let is_damaged = error.path == pack && error.source.kind() == ErrorKind::InvalidData;
    let hides_files = is_damaged && durable::is_dir_no_follow(&run.dir.join("io"));
    let hint = hides_files.then(|| {
        let pack = shell_quote_path(&pack);
        format!("to use the files of io/ in place of the pack: `mv {pack} {pack}.damaged`")
    });
    CommandFailure::from(error).with_hint(hint)
}

fn describe_files(summary: PackSummary) -> String {
    format!("{} ({} bytes)", command_line::pluralize(summary.files, "file"), summary.bytes)
}

impl PackedRuns {
    /// Changes each run while this process owns it, and prints what was done. Runs that fail do not keep the others from
    /// being changed.
    fn change_each(
        &self,
        applies: impl Fn(&RunListEntry) -> bool,
        change: impl Fn(&LocatedRun, Ownership) -> Result<String, CommandFailure>,
    ) -> ExitCode {
        let mut code = ExitCode::SUCCESS;
        let runs = match self.selected.select(applies) {
            Ok(runs) => runs,
            Err(failure) => return failure.report(),
        };
        for name in runs {
            let done = name.find(&self.selected.work_dir).and_then(|run| {
                let ownership =
                    Ownership::claim_from_dying_owner(&run.id, &run.dir, &ClaimPatience::default())
                        .and_then(|mut ownership| {
                            ownership.start_beat()?;
                            Ok(ownership)
                        })
                        .map_err(|error| active_run_failure(error, &run))?;
                own_run::check_is_here(
                    &run.id,
                    &run.dir,
                    &own_run::fold_journal(&run.id, &run.dir)?,
                )?;
                change(&run, ownership)
            });
            match done {
                Ok(line) if !self.quiet => stdio::print_error_line(&line),
                Ok(_) => {}
                Err(failure) => code = failure.report(),
            }
        }
        code
    }
}
