//! The stage of a claimed run: an APPLY that was interrupted is finished first, then this process moves into the stage.

use super::ClaimedRun;
use crate::prepare::prepared_agent::PreparedAgent;
use delta_base::signal::CancelToken;
use delta_operator::cancel;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point;
use delta_operator::runs::stage::{self, ApplyEnding};
use delta_run::event::{Payload, RunStage};
use delta_run::run::{Run, RunNotice};
use delta_run::state::stage::StageDir;
use delta_run::workspace::Workspace;

/// What this process has done about the stage of a run that it claimed.
#[derive(Default)]
pub struct ClaimedStage {
    /// Whether this process is in the stage; and if so, whether the layers are new.
    entered: Option<bool>,
    /// The end of the APPLY of a process that died.
    ended_apply: Option<EndedApply>,
}

/// The APPLY of a process that died, as this process has ended it.
struct EndedApply {
    ending: ApplyEnding,
    /// The paths that had changed meanwhile.
    unapplied: Vec<Vec<u8>>,
}

impl EndedApply {
    /// Whether changes that were to be applied stay staged.
    fn has_rest(&self) -> bool {
        self.ending == ApplyEnding::Tidy || !self.unapplied.is_empty()
    }
}

impl ClaimedStage {
    /// Records the end of an APPLY that this process has ended.
    pub fn record_ended_apply(self, run: &mut Run) {
        let Some(outcome) = self.ended_apply else { return };
        let rest = outcome.has_rest();
        match outcome.ending {
            ApplyEnding::Complete => {
                run.notify(RunNotice::Warning("finished an apply that was interrupted"));
            }
            ApplyEnding::Tidy => run.notify(RunNotice::Warning(
                "an apply was interrupted: the workspace keeps what it had applied",
            )),
        }
        if !outcome.unapplied.is_empty() {
            let paths = restore_point::list_some_paths(&outcome.unapplied);
            let text = format!(
                "not applied, because it changed after the interruption, and still staged: {paths}"
            );
            run.notify(RunNotice::Warning(&text));
        }
        let iteration = run.state().iterations;
        run.record(Payload::ApplyEnd { iteration, rest, seal: None });
    }
}

impl ClaimedRun {
    /// Ends the APPLY of a process that died, if there is one. Call this outside of the stage.
    pub fn end_apply(
        &mut self,
        ending: ApplyEnding,
        workspace: &Workspace,
        env_files: &EnvFileOptions,
        cancel: &CancelToken,
    ) -> Result<(), CommandFailure> {
        let Some(stage) = &self.state().stage else { return Ok(()) };
        if stage.is_cleared {
            StageDir::new(&self.dir).clear()?;
        }
        let Some(apply) = stage.pending.clone() else { return Ok(()) };
        let secrets =
            restore_point::workspace_secrets(&self.dir, self.state(), &workspace.root, env_files)?;
        let mut store = restore_point::open_run_store(&self.dir, self.state())?;
        if self.is_own_and_unchanged() {
            store.keep_special_bits();
        }
        let unapplied = stage::end_apply(&mut store, &apply, ending, workspace, &secrets, cancel)?;
        let outcome = EndedApply { ending, unapplied };
        if let Some(stage) = &mut self.folded.state.stage {
            // As the event will, which is recorded when the run is open.
            stage.end_apply(outcome.has_rest());
            if stage.is_cleared {
                StageDir::new(&self.dir).clear()?;
            }
        }
        self.stage.ended_apply = Some(outcome);
        Ok(())
    }

    /// Moves this process into the stage of the run, if it has one: from then on, the workspace is the staged one.
    pub fn enter_stage(
        &mut self,
        workspace: &Workspace,
        env_files: &EnvFileOptions,
    ) -> Result<(), CommandFailure> {
        if self.state().stage.is_none() || self.stage.entered.is_some() {
            return Ok(());
        }
        let cancel = cancel::install_cancel()?;
        self.end_apply(ApplyEnding::Complete, workspace, env_files, &cancel)?;
        self.stage.entered = Some(stage::enter_run_stage(workspace, &self.dir)?);
        Ok(())
    }

    /// The stage that the ENGINE_START of this process records.
    pub(super) fn process_stage(
        &self,
        workspace: &Workspace,
        agent: &PreparedAgent,
        cancel: &CancelToken,
    ) -> Result<Option<RunStage>, CommandFailure> {
        let Some(stage) = &self.state().stage else { return Ok(None) };
        if self.stage.entered == Some(true) {
            return agent.new_stage(&self.dir, self.state(), workspace, cancel).map(Some);
        }
        Ok(Some(RunStage { base: stage.base }))
    }
}
