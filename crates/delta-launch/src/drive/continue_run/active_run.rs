//! The refusal of a command that changes a run without continuing it, while a process works on the run.

use super::ClaimedRun;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::LocatedRun;

impl ClaimedRun {
    /// Claims the run for `delta COMMAND`, which does not continue it.
    pub fn claim_for(command: &str, run: &LocatedRun, force: bool) -> Result<Self, CommandFailure> {
        Self::claim(run, force).map_err(|failure| {
            let id = &run.id;
            let dir = run.quoted_workspace();
            let hint = format!(
                "stop it with `delta stop {id} -w {dir}`, or watch it with `delta show {id} -w {dir} --follow`"
            );
            failure.of_active_run_for(command, hint)
        })
    }
}
