//! `delta discard`: discards the changes of staged runs.

use crate::drive::continue_run::ClaimedRun;
use crate::drive::rollback::open_rollback_observer;
use clap::Args;
use clap::builder::Resettable;
use delta_operator::cancel;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point::{self, MIN_ID_DIGITS};
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::runs::run_arguments::RunArguments;
use delta_operator::runs::stage::{self, ApplyEnding, StagedChanges};
use delta_program::stdio;
use delta_run::event::Payload;
use delta_run::record;
use delta_run::state::stage::StageDir;
use delta_run::workspace;
use std::process::ExitCode;

/// Discard the changes of staged runs
///
/// The workspace does not change. The journal and the snapshots stay, so you can undo a discard.
#[derive(Debug, Args)]
#[command(
    after_long_help = EXAMPLES,
    mut_arg("env_file", |arg| arg.hide_long_help(true)),
    mut_arg("runs", |arg| arg.default_value(Resettable::Reset).required_unless_present("recursive")),
)]
pub struct DiscardArgs {
    #[command(flatten)]
    runs: RunArguments,
    /// Allow a run whose last process was on another host and cannot be checked
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
  delta apply best -w ./work && delta discard second third -w ./work
  delta discard -r ./tries   # of all runs that no process works on";

/// Discards staged changes; returns the exit code.
pub fn discard_command(args: &DiscardArgs) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let names = match args.runs.select(|run| run.staged && !run.active && run.calls_at_work == 0) {
        Ok(names) => names,
        Err(failure) => return failure.report(),
    };
    for name in &names {
        match name.find(&args.runs.work_dir).and_then(|run| discard_run(args, &run)) {
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
    stage::check_no_tool_at_work(id, &claimed.dir, &workspace.root)?;
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
    let work_dir = workspace::quote_workspace(&run.workspace_argument);
    Ok(format!(
        "Discarded the staged changes of run {id}; undo it with: delta rollback {id} -w {work_dir} --to {}",
        &saved[..MIN_ID_DIGITS]
    ))
}
