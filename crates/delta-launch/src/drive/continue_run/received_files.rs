//! The files of a run that was received: the command that receives it restores them, or the next process of the run.

use delta_base::durable;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point;
use delta_operator::runs::transfers::{self, Arrival, TransferOutcome};
use delta_run::state::RunState;
use delta_run::workspace;
use delta_snapshot::SnapshotStore;
use std::path::Path;

/// An empty file in the directory of a run whose files are not all restored.
pub const PENDING_FILE: &str = "receiving";

/// Restores the files of a run that was received, if the command that received it has not ended. This process owns the run.
///
/// # Errors
/// A file cannot be restored; the next process tries again.
pub fn finish_restore(run_dir: &Path, state: &RunState) -> Result<(), CommandFailure> {
    let pending = run_dir.join(PENDING_FILE);
    if !durable::is_file_no_follow(&pending) {
        return Ok(());
    }
    // What a run directory says could come with a cloned repository: only the operator's own record counts.
    let nonce = state.received.as_ref().map(|received| &received.nonce);
    let nonce = nonce.or(state.sent.as_ref().map(|sent| &sent.nonce));
    let outcome = nonce.map(|nonce| transfers::find_outcome(nonce)).transpose()?.flatten();
    let Some(TransferOutcome::Received(arrival)) = outcome else { return Ok(()) };
    let is_this_run = run_dir.canonicalize().is_ok_and(|dir| dir == arrival.run_dir);
    let root = workspace::workspace_of_run(run_dir);
    if let Some((tree, root)) = arrival.tree.zip(root).filter(|_| is_this_run) {
        let mut store = restore_point::open_run_store(run_dir, state)?;
        protect_as(&arrival, &mut store);
        let environment = EnvFileOptions::default();
        let secrets = restore_point::workspace_secrets(run_dir, state, &root, &environment)?;
        store.restore(tree, &root, &secrets, None)?;
        durable::sync_file_system(&root)?;
        store.save_index()?;
    }
    Ok(durable::remove_file_synced(&pending)?)
}

/// Restricts what a restore changes to what it may of this sender.
fn protect_as(arrival: &Arrival, store: &mut SnapshotStore) {
    if arrival.special_bits {
        store.keep_special_bits();
    }
    if !arrival.git {
        store.leave_git();
    }
}
