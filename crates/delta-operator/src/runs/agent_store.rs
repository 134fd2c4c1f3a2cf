//! Agents that came from elsewhere, kept_dir by what they are: read-only directories in the state directory, named by their hash.

use crate::failure::CommandFailure;
use crate::state;
use delta_agent::agent::agent_tree::hash_agent_tree;
use delta_base::durable::{self, FileError};
use delta_base::hex::encode_hex;
use delta_base::id::SnapshotId;
use delta_base::random::random_bytes;
use delta_snapshot::SnapshotStore;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directory of the trees, in the state directory.
const TREES_DIR: &str = "agents/.trees";
/// The permissions to write.
const WRITE_BITS: u32 = 0o222;

/// Keeps the agent directory `tree` of a store of snapshots; returns its path. One that exists stays. Durable.
///
/// # Errors
/// The tree is not one of an agent, is damaged, or cannot be written.
pub fn keep_agent(
    tree: SnapshotId,
    snapshots: &mut SnapshotStore,
) -> Result<PathBuf, CommandFailure> {
    let trees = state::own_state_dir()
        .map_err(|missing| CommandFailure::config(missing.reason(), "set DELTA_STATE_DIR"))?
        .join(TREES_DIR);
    let kept_dir = trees.join(tree.to_string());
    if kept_dir.is_dir() {
        return check_tree(&kept_dir, tree).map(|()| kept_dir);
    }
    let draft = trees.join(format!(".new-{}", encode_hex(&random_bytes::<8>())));
    durable::ensure_private_dir_synced(&draft)?;
    let empty = snapshots.empty_tree()?;
    let plan = snapshots.plan_restore(empty, tree, None)?;
    snapshots.apply_restore(&plan, &draft, None)?;
    check_tree(&draft, tree)?;
    make_read_only(&draft).map_err(FileError::at("write", &draft))?;
    durable::sync_file_system(&draft)?;
    match durable::rename_dir_synced(&draft, &kept_dir) {
        // Another process has kept_dir the same agent.
        Err(_) if kept_dir.is_dir() => {}
        renamed => renamed?,
    }
    check_tree(&kept_dir, tree).map(|()| kept_dir)
}

fn check_tree(dir: &Path, tree: SnapshotId) -> Result<(), CommandFailure> {
    if hash_agent_tree(dir, Path::new("")) == Some(tree) {
        return Ok(());
    }
    let message = format!("{} is not the agent {tree}", dir.display());
    Err(CommandFailure::damaged(message, "remove the directory, then repeat the command"))
}

/// Takes the permission to write from everything but the directory itself, which is still renamed.
fn make_read_only(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            make_read_only(&entry.path())?;
        }
        let mode = entry.metadata()?.permissions().mode();
        fs::set_permissions(entry.path(), Permissions::from_mode(mode & !WRITE_BITS))?;
    }
    Ok(())
}
