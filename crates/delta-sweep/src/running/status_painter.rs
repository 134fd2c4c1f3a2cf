//! The status of a sweep at a terminal, which replaces the one before.

use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::SweepResults;
use crate::formats::summary::SweepSummary;
use crate::running::host_grants::read_host_grants;
use delta_base::shell_quote::shell_quote_path;
use delta_base::{terminal, time};
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::sweep::packed::RunPacks;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::sweep::sweep_worker::{WorkerState, has_worker_ended, read_workers};
use delta_run::workspace::Workspace;

/// Shows the status on stderr while this process works on a sweep; nothing if stderr is not a terminal.
pub struct StatusPainter {
    dir: SweepDir,
    is_shown: bool,
    painted: String,
}

impl StatusPainter {
    /// A painter that has painted nothing.
    pub fn new(dir: &SweepDir, quiet: bool) -> Self {
        let is_shown = !quiet && terminal::is_stderr_terminal();
        Self { dir: dir.clone(), is_shown, painted: String::new() }
    }

    /// Paints the status, if it is another one. `own_worker` is what this process works on, also before it is in its file.
    pub fn paint(
        &mut self,
        plan: &SweepPlan,
        results: &SweepResults,
        own_worker: &WorkerState,
    ) -> Result<(), CommandFailure> {
        if !self.is_shown {
            return Ok(());
        }
        let summary = summarize(&self.dir, plan, results, Some(own_worker))?;
        let width = terminal::stderr_size().columns;
        let text = summary.to_text(width.max(40), &shell_quote_path(&self.dir.root));
        if text != self.painted {
            stdio::print_error_styled(&stdio::replacing_text(&self.painted, &text, width));
            self.painted = text;
        }
        Ok(())
    }

    /// Removes what is painted.
    pub fn clear(&mut self) {
        if !self.painted.is_empty() {
            let width = terminal::stderr_size().columns;
            stdio::print_error_styled(&stdio::replacing_text(&self.painted, "", width));
            self.painted.clear();
        }
    }
}

/// Sums up a sweep; `own_worker` is newer than the file of this process.
pub fn summarize(
    dir: &SweepDir,
    plan: &SweepPlan,
    results: &SweepResults,
    own_worker: Option<&WorkerState>,
) -> Result<SweepSummary, CommandFailure> {
    let mut workers = read_workers(dir)?;
    workers.iter_mut().for_each(|worker| worker.has_ended = has_worker_ended(worker));
    if let Some(worker) = own_worker {
        workers.retain(|other| (other.pid, &other.boot) != (worker.pid, &worker.boot));
        workers.push(worker.clone());
    }
    let mut summary = SweepSummary::new(plan, results, &workers, time::current_time());
    let packs = RunPacks::new(dir);
    for group in &mut summary.failures {
        let workspace = Workspace { root: dir.workspace(&group.example) };
        let has_directory = !matches!(workspace.find_run(&group.example), Ok(None));
        group.has_records = has_directory || packs.has_run(&group.example)?;
    }
    Ok(summary.with_grants(read_host_grants(dir)?))
}
