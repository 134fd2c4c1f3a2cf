//! `delta diff RUN` while the run asks whether the changes of a call are applied: these changes, however many they are.

use super::DiffArgs;
use super::staged::stage_json;
use super::workspace::render_changes;
use delta_base::id::RunId;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point;
use delta_program::default_format::TextOrJson;
use delta_run::event::approval::CallStage;
use delta_run::state::{HumanRequest, RunState};
use std::path::Path;

/// The staged changes about which the run asks.
pub fn pending_call(state: &RunState) -> Option<&CallStage> {
    match state.human_request()? {
        HumanRequest::Approval(request) => request.stage.as_deref(),
        HumanRequest::Question(_) => None,
    }
}

/// The changes in the form that the options ask for.
pub fn render_call(
    args: &DiffArgs,
    id: &RunId,
    dir: &Path,
    state: &RunState,
    call: &CallStage,
) -> Result<String, CommandFailure> {
    let store = restore_point::open_run_store(dir, state)?;
    let changes = store.diff(call.base, call.tree)?.changes;
    if args.format == Some(TextOrJson::Json) {
        let left_out: Vec<Vec<u8>> =
            call.left_out.iter().map(|path| path.clone().into_bytes()).collect();
        return Ok(stage_json(id, &changes, &[], &left_out));
    }
    Ok(render_changes(args, &store, &changes)?)
}
