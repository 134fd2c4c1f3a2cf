//! The refusal of a command that changes a run without continuing it, while a process works on the run.

use super::ClaimedRun;
use crate::operator::failure::CommandFailure;
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_run::workspace::Workspace;

impl ClaimedRun {
    /// Claims the run for `delta COMMAND`, which does not continue it.
    pub fn claim_for(
        command: &str,
        id: &RunId,
        workspace: &Workspace,
        force: bool,
    ) -> Result<Self, CommandFailure> {
        Self::claim(id, workspace, force).map_err(|failure| {
            let hint = format!(
                "stop it with `delta stop {id} -w {dir}`, or watch it with `delta show {id} -w {dir} --follow`",
                dir = shell_quote_path(&workspace.root)
            );
            failure.of_active_run_for(command, hint)
        })
    }
}
