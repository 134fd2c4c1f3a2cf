//! What in a workspace leads git out of it: a linked worktree, a submodule and `--separate-git-dir` have a file `.git` that
//! names the git directory, a nested repository can be one of these, and a subdirectory has the repository around it.

use super::git_directory::{GitDirectory, MAX_MODULE_DEPTH, add_modules, is_git_directory};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory of runs, which does not belong to a workspace.
const CONTROL_DIR: &str = ".delta";

/// An entry `.git` that names a git directory elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitLink {
    /// The entry, relative to the workspace.
    pub entry: PathBuf,
    /// The git directory, without symlinks.
    pub directory: PathBuf,
    /// Whether the entry names it by a path that starts at the root.
    pub is_absolute: bool,
}

impl GitLink {
    /// Reads the entry `.git` of the directory `tree`, as it is named from the directory `from`; `None` if it names nothing.
    pub(super) fn read(tree: &Path, from: &Path, entry: PathBuf) -> Option<Self> {
        let path = tree.join(".git");
        let kind = path.symlink_metadata().ok()?.file_type();
        let target = if kind.is_symlink() {
            fs::read_link(&path).ok()?
        } else if kind.is_file() {
            let text = fs::read(&path).ok()?;
            trimmed_path(text.strip_prefix(b"gitdir:")?)
        } else {
            return None;
        };
        let directory = from.join(&target).canonicalize().ok()?;
        let is_git = directory.join("HEAD").symlink_metadata().is_ok();
        is_git.then(|| Self { entry, directory, is_absolute: target.is_absolute() })
    }

    /// The directory that it shares with others: its own, or the git directory of the repository that a linked worktree belongs to.
    pub fn common_directory(&self) -> PathBuf {
        let common = fs::read(self.directory.join("commondir")).ok();
        let common = common.map(|name| self.directory.join(trimmed_path(&name)));
        let common = common.and_then(|common| common.canonicalize().ok());
        common.unwrap_or_else(|| self.directory.clone())
    }
}

/// The path in a line of a file of git, whose bytes can be any.
pub(super) fn trimmed_path(line: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(line.trim_ascii()))
}

/// The links in the directory `root` and below, as they are named from `from`: `root` itself, or the directory that it is a
/// copy of. What cannot be read has none.
pub fn git_links(root: &Path, from: &Path) -> Vec<GitLink> {
    let trees = work_trees(root, usize::MAX).into_iter();
    let links = trees
        .filter_map(|tree| GitLink::read(&root.join(&tree), &from.join(&tree), tree.join(".git")));
    links.collect()
}

/// The git directories in the directory `root` and below that a work tree there has for its own, and the ones of its submodules.
pub fn inner_git_directories(root: &Path) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for tree in work_trees(root, usize::MAX) {
        let directory = root.join(tree).join(".git");
        if directory.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            add_modules(&directory.join("modules"), MAX_MODULE_DEPTH, &mut directories);
            directories.push(directory);
        }
    }
    directories
}

/// The top directory of the repository around `directory`, if `directory` is not itself one.
pub fn tree_around(directory: &Path) -> Option<&Path> {
    let tree = directory.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok())?;
    (tree != directory).then_some(tree)
}

/// What git follows in the work trees in `workspace`, besides the directory `.git` of its own: in their git directories there,
/// and the files `.git` that name these; and in bare repositories. Some of it may be missing. A bounded number of directories is
/// searched, level by level.
pub fn followed_in_work_trees(workspace: &Path) -> Vec<PathBuf> {
    let trees = work_trees(workspace, MAX_DIRECTORIES).into_iter().take(MAX_WORK_TREES);
    let followed = trees.flat_map(|tree| {
        let tree = workspace.join(tree);
        let entry = tree.join(".git");
        let mut roots = match GitLink::read(&tree, &tree, PathBuf::new()) {
            Some(link) => vec![link.common_directory(), link.directory],
            None if tree != workspace && entry.is_dir() => vec![entry.clone()],
            None => Vec::new(),
        };
        roots.extend(is_git_directory(&tree).then(|| tree.clone()));
        let roots = roots.into_iter().filter(|root| root.starts_with(workspace));
        let mut paths = GitDirectory::new(roots.collect()).keep;
        paths.extend(entry.symlink_metadata().is_ok_and(|kind| !kind.is_dir()).then_some(entry));
        paths
    });
    followed.collect()
}

/// The symlinks through which `path` leads, each in a directory without symlinks.
pub fn symlinks_in_path(path: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    add_symlinks(path, &mut links);
    links
}

/// Adds each symlink once, so the number of steps is the number of symlinks.
fn add_symlinks(path: &Path, known: &mut Vec<PathBuf>) {
    for link in path.ancestors() {
        let parts = link.read_link().ok().zip(link.file_name()).zip(link.parent());
        let Some(((target, name), parent)) = parts else { continue };
        let Ok(parent) = parent.canonicalize() else { continue };
        let link = parent.join(name);
        if !known.contains(&link) && known.len() < MAX_SYMLINKS {
            known.push(link);
            add_symlinks(&parent.join(target), known);
        }
    }
}

/// The most symlinks that a path leads through; Linux follows 40.
const MAX_SYMLINKS: usize = 64;

/// The most directories in which work trees are searched, and the most work trees whose git directories are kept: a sandbox
/// has mounts for each of them.
const MAX_DIRECTORIES: usize = 20_000;
const MAX_WORK_TREES: usize = 100;

/// The directories with an entry `.git`, and bare repositories, in the first `max_directories` in `root` and below; relative,
/// level by level.
fn work_trees(root: &Path, max_directories: usize) -> Vec<PathBuf> {
    let mut trees = Vec::new();
    let mut directories = VecDeque::from([PathBuf::new()]);
    let mut directory_count = 1;
    while let Some(directory) = directories.pop_front() {
        for entry in fs::read_dir(root.join(&directory)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_bare = name == "HEAD" && is_git_directory(&root.join(&directory));
            if (name == ".git" || is_bare) && trees.last() != Some(&directory) {
                trees.push(directory.clone());
            }
            if name != ".git"
                && name != CONTROL_DIR
                && directory_count < max_directories
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                directories.push_back(directory.join(name));
                directory_count += 1;
            }
        }
    }
    trees
}

/// The git directories outside of `workspace` that git changes in it, without symlinks and each once.
pub fn outside_git_directories(workspace: &Path) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = git_links(workspace, workspace)
        .iter()
        .flat_map(|link| [link.common_directory(), link.directory.clone()])
        .collect();
    if workspace.join(".git").symlink_metadata().is_err() {
        let tree = workspace.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
        directories.extend(tree.into_iter().flat_map(|tree| {
            match GitLink::read(tree, tree, PathBuf::new()) {
                Some(link) => vec![link.common_directory(), link.directory],
                None => vec![tree.join(".git")],
            }
        }));
    }
    directories.sort();
    directories.dedup();
    directories.retain(|directory| {
        directory.is_dir() && !directory.starts_with(workspace) && !workspace.starts_with(directory)
    });
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn c_38_1_what_leads_git_out_of_a_workspace_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let linked = root.join("repo/.git/worktrees/one");
        write(root.join("repo/.git/HEAD"), "ref: refs/heads/main\n");
        write(linked.join("HEAD"), "ref: refs/heads/one\n");
        write(linked.join("commondir"), "../..\n");
        write(root.join("tree/.git"), &format!("gitdir: {}\n", linked.display()));
        write(root.join("tree/deep/inner/.git"), "gitdir: ../../../other\n");
        write(root.join("other/HEAD"), "ref: refs/heads/main\n");
        write(root.join("tree/wrong/.git"), "gitdir: /etc\n");
        write(root.join("tree/own/.git/HEAD"), "ref: refs/heads/main\n");
        write(root.join("tree/near/.git"), "gitdir: ../own/.git\n");
        let common = root.join("repo/.git");
        assert_eq!(
            outside_git_directories(&root.join("tree")),
            [root.join("other"), common.clone(), linked.clone()]
        );
        assert_eq!(outside_git_directories(&root.join("repo")), [] as [PathBuf; 0]);
        fs::create_dir(root.join("repo/sub")).unwrap();
        assert_eq!(outside_git_directories(&root.join("repo/sub")), *std::slice::from_ref(&common));
        assert_eq!(
            outside_git_directories(&root.join("tree/deep")),
            [root.join("other"), common, linked.clone()]
        );
        let links = git_links(&root.join("tree"), &root.join("tree"));
        let top = links.iter().find(|link| link.entry == Path::new(".git")).unwrap();
        assert!(top.is_absolute && top.directory == linked);
        assert_eq!(links.len(), 3, "{links:?}");
    }
}
