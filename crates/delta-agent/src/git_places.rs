//! The variables by which a hook of git, or its caller, leads git to a repository. They reach only what works there.

use crate::child_environment::EnvMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The variables that name a repository, its index, its objects or its files.
pub const GIT_PLACES: [&str; 11] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
];

/// Removes all of [`GIT_PLACES`].
pub fn remove_git_places(env: &mut EnvMap) {
    GIT_PLACES.iter().for_each(|name| drop(env.remove(OsStr::new(name))));
}

/// Removes [`GIT_PLACES`] unless they are about the repository whose files `workspace` has. `caller` is the directory for
/// which they were set.
pub(crate) fn remove_foreign_git_places(env: &mut EnvMap, workspace: &Path, caller: &Path) {
    let is_set = GIT_PLACES.iter().any(|name| env.contains_key(OsStr::new(name)));
    if is_set && !is_in_work_tree(env, workspace, caller) {
        remove_git_places(env);
    }
}

/// Whether `workspace` is in the work tree of the variables, and not in another repository inside of that.
fn is_in_work_tree(env: &EnvMap, workspace: &Path, caller: &Path) -> bool {
    let Ok(workspace) = workspace.canonicalize() else { return false };
    let Some(tree) = named_work_tree(env, caller).and_then(|tree| tree.canonicalize().ok()) else {
        return false;
    };
    workspace.starts_with(&tree)
        && workspace.ancestors().take_while(|dir| *dir != tree).all(|dir| !is_tree(dir))
}

/// The work tree that git takes in `caller`.
fn named_work_tree(env: &EnvMap, caller: &Path) -> Option<PathBuf> {
    if let Some(tree) = env.get(OsStr::new("GIT_WORK_TREE")) {
        return Some(caller.join(tree));
    }
    if env.contains_key(OsStr::new("GIT_DIR")) {
        return Some(caller.to_owned());
    }
    caller.ancestors().find(|dir| is_tree(dir)).map(Path::to_owned)
}

fn is_tree(dir: &Path) -> bool {
    dir.join(".git").symlink_metadata().is_ok()
}
