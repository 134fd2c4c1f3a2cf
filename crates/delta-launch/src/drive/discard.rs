//! `delta discard`: discards the changes of staged runs.

use crate::drive::continue_run::ClaimedRun;
use crate::drive::rollback::open_rollback_observer;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::shell_quote::shell_quote_path;
use delta_operator::arguments::completion_candidates;
use delta_operator::cancel;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point::{self, MIN_ID_DIGITS};
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::run_list;
use delta_operator::runs::stage::{self, ApplyEnding, StagedChanges};
use delta_program::stdio;
use delta_run::event::Payload;
use delta_run::record;
use delta_run::state::stage::StageDir;
use std::path::PathBuf;
use std::process::ExitCode;

/// Discard the changes of staged runs
///
/// The workspace does not change; a run that continues begins with it again. The journal and the snapshots of the run stay,
/// so you can undo a discard.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, mut_arg("env_file", |arg| arg.hide_long_help(true)))]
pub struct DiscardArgs {
    /// Runs: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", required = true, value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    runs: Vec<RunArgument>,
    /// Workspace of the runs
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Discard the changes of a run whose last process was on another host and cannot be checked
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    env_files: EnvFileOptions,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta discard RUN -w ./work
  delta apply best -w ./work && delta discard second third -w ./work";

/// Discards staged changes; returns the exit code.
pub fn discard_command(args: &DiscardArgs) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for name in &args.runs {
        match name.find(&args.work_dir).and_then(|run| discard_run(args, &run)) {
            Ok(line) if !args.quiet => stdio::print_error_line(&line),
            Ok(_) => {}
            // It does not keep the other runs from being discarded.
            Err(failure) => code = failure.report(),
        }
    }
    code
}

fn discard_run(args: &DiscardArgs, run: &LocatedRun) -> Result<String, CommandFailure> {
    let LocatedRun { id, workspace, .. } = run;
    let cancel = cancel::install_cancel()?;
    let mut claimed = ClaimedRun::claim_for("discard", run, args.force)?;
    stage::require_stage(&claimed.state().stage, id)?;
    claimed.end_apply(ApplyEnding::Tidy, workspace, &args.env_files, &cancel)?;
    let dir = claimed.dir.clone();
    let secrets =
        restore_point::workspace_secrets(&dir, claimed.state(), &workspace.root, &args.env_files)?;
    let mut store = restore_point::open_run_store(&dir, claimed.state())?;
    let stage = stage::require_stage(&claimed.state().stage, id)?;
    let changes = StagedChanges::read(&mut store, stage, &dir, workspace, &secrets, &cancel)?;
    let layers = StageDir::new(&dir);
    let has_changes = !stage.is_cleared && layers.has_changes();
    let saved =
        stage::staged_tree(&mut store, stage, changes.trees.current, &dir, &secrets, &cancel)?;
    record::unpack_records(&dir)?;
    let observer = open_rollback_observer(&dir, claimed.state())?;
    let mut opened = claimed.open_run(secrets, observer, &cancel)?;
    if !has_changes {
        opened.commit()?;
        return Ok(format!("run {id} has no staged changes"));
    }
    // From then on only the store has what is discarded.
    store.sync()?;
    let iteration = opened.state().iterations;
    let base = changes.trees.current;
    opened.record(Payload::Discard { iteration, base, saved: saved.tree, seal: None });
    opened.commit_act()?;
    layers.clear()?;
    let saved = saved.tree.to_string();
    let work_dir = shell_quote_path(&run.workspace_argument);
    Ok(format!(
        "Discarded the staged changes of run {id}; undo it with: delta rollback {id} -w {work_dir} --to {}",
        &saved[..MIN_ID_DIGITS]
    ))
}
