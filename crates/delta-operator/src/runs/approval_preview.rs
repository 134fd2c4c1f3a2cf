//! What a call that waits for an approval would change, or has changed.

use delta_agent::agent::Agent;
use delta_agent::file_preview::preview_file_change;
use delta_llm::llm::ModelChoice;
use delta_run::run_result::call_diff_command;
use delta_run::state::{HumanRequest, RunState};
use std::path::Path;

/// The change as a diff: of a file, for a tool with `preview`, of which the run's copy of the agent knows; or of the
/// workspace, for a tool with `stage`.
pub fn pending_preview(state: &RunState, run_dir: &Path, workspace: &Path) -> Option<String> {
    let HumanRequest::Approval(request) = state.human_request()? else { return None };
    if let Some(stage) = &request.stage {
        return Some(stage.described_changes(&call_diff_command(state.start.as_ref())));
    }
    // Its files are in the stage, and not in the workspace.
    if state.stage.is_some() {
        return None;
    }
    let copy = state.start.as_ref()?.config.kept.as_ref()?;
    let dir = copy.is_plausible().then(|| run_dir.join(&copy.dir))?;
    let agent = Agent::load_copy(&dir, &ModelChoice::openai("")).ok()?;
    let preview = agent.tool(&request.tool_name)?.preview.as_ref()?;
    Some(preview_file_change(preview, &request.tool_args, workspace))
}
