//! The git directory of a workspace, wherever it is.
//!
//! A tool can write a file `.git` that points anywhere, so a directory outside of the workspace counts only if it points back.

use super::git_links::{GitLink, trimmed_path};
use super::resolution::sorted;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts of a git directory that can be written, and the parts that stay read-only.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GitDirectory {
    /// The directories, without symlinks: one, or the directory of a linked worktree and the one that it shares.
    pub roots: Vec<PathBuf>,
    /// The configuration and the hooks in them, in their submodules and in their worktrees, and what says where these are, also
    /// in work trees.
    /// All of it may be missing. What they name is run.
    pub keep: Vec<PathBuf>,
    /// The part of `keep` that must not appear.
    watched: Vec<PathBuf>,
}

/// The work tree that contains `workspace`.
fn find_work_tree(workspace: &Path) -> Option<&Path> {
    workspace.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok())
}

/// The git directory outside of `workspace` that its work tree names although it does not lead back, as with
/// `git init --separate-git-dir`.
pub fn find_one_way_git_directory(workspace: &Path) -> Option<PathBuf> {
    let tree = find_work_tree(workspace).filter(|_| find_git_directory(workspace).is_none())?;
    let directory = GitLink::read(tree, tree, PathBuf::new())?.directory;
    (!directory.starts_with(workspace)).then_some(directory)
}

/// Finds the git directory of the work tree that contains `workspace`.
pub fn find_git_directory(workspace: &Path) -> Option<GitDirectory> {
    let tree = find_work_tree(workspace)?;
    let entry = tree.join(".git");
    let metadata = entry.symlink_metadata().ok()?;
    if metadata.is_dir() {
        return Some(GitDirectory::new(vec![entry]));
    }
    if !metadata.is_file() {
        return None;
    }
    let link = GitLink::read(tree, tree, PathBuf::new())?;
    let common = link.common_directory();
    let linked = link.directory;
    if let Ok(back) = fs::read(linked.join("gitdir")) {
        // A linked worktree.
        let points_back =
            linked.join(trimmed_path(&back)).canonicalize().ok() == entry.canonicalize().ok();
        let is_inside = linked.parent().is_some_and(|dir| dir == common.join("worktrees"));
        return (points_back && is_inside).then(|| GitDirectory::new(vec![common, linked]));
    }
    // A submodule.
    let points_back = configured_tree(&linked)?.canonicalize().ok() == tree.canonicalize().ok();
    points_back.then(|| GitDirectory::new(vec![linked]))
}

/// The work tree that the configuration in a git directory names.
fn configured_tree(directory: &Path) -> Option<PathBuf> {
    let config = fs::read(directory.join("config")).ok()?;
    let lines = config.split(|byte| *byte == b'\n');
    let mut settings = lines.filter_map(|line| line.trim_ascii().strip_prefix(b"worktree"));
    let tree = settings.find_map(|setting| setting.trim_ascii().strip_prefix(b"="))?;
    Some(directory.join(trimmed_path(tree)))
}

/// The file `.git` in the work tree of a submodule or a linked worktree, which leads git to its directory.
fn leading_file(directory: &Path) -> Option<PathBuf> {
    match fs::read(directory.join("gitdir")) {
        Ok(file) => Some(directory.join(trimmed_path(&file))),
        Err(_) => Some(configured_tree(directory)?.join(".git")),
    }
}

/// Whether git takes `directory` for a git directory: a bare repository, or one whose configuration names a work tree. git
/// looks for one in each directory above, if the entry `.git` there is none.
pub fn is_git_directory(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).symlink_metadata().is_ok();
    // What a linked worktree shares is where `commondir` says.
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

impl GitDirectory {
    pub(super) fn new(roots: Vec<PathBuf>) -> Self {
        let mut directories = roots.clone();
        for root in &roots {
            add_modules(&root.join("modules"), MAX_MODULE_DEPTH, &mut directories);
            directories.extend(subdirectories(&root.join("worktrees")));
        }
        let keep = directories.iter().flat_map(|directory| KEPT.map(|name| directory.join(name)));
        let leading = directories.iter().filter_map(|directory| leading_file(directory));
        let keep = keep.chain(leading);
        let watched = roots.iter().flat_map(|root| KEPT.map(|name| root.join(name))).collect();
        Self { keep: keep.collect(), watched, roots }
    }

    /// Both.
    #[must_use]
    pub(super) fn with(mut self, other: Self) -> Self {
        self.roots.extend(other.roots);
        self.keep.extend(other.keep);
        self.watched.extend(other.watched);
        self
    }

    /// The same if git follows these paths too, and symlinks in its directories of hooks.
    #[must_use]
    pub fn following(mut self, paths: &[PathBuf]) -> Self {
        self.keep.extend_from_slice(paths);
        let entries = self.keep.iter().filter_map(|path| fs::read_dir(path).ok()).flatten();
        let entries = entries.flatten().map(|entry| entry.path());
        let links: Vec<PathBuf> = entries.filter(|path| path.is_symlink()).collect();
        self.keep.extend(links);
        self.watched.extend_from_slice(paths);
        self
    }

    /// `workspace`, and the work trees whose git directories git follows, unless git takes one for a git directory itself.
    pub fn work_trees(&self, workspace: &Path) -> Vec<PathBuf> {
        let entries = self.keep.iter().flat_map(|path| path.ancestors());
        let entries = entries.filter(|path| path.ends_with(".git")).filter_map(Path::parent);
        let trees = entries.chain([workspace]).filter(|tree| !is_git_directory(tree));
        sorted(trees.map(Path::to_owned).collect())
    }

    /// What git would follow if it appeared, which no mount can prevent; of a symlink, what it names.
    pub fn missing(&self) -> impl Iterator<Item = PathBuf> {
        let ends = self.watched.iter().map(|path| {
            let target = path.read_link().ok().zip(path.parent());
            target.map_or_else(|| path.clone(), |(target, directory)| directory.join(target))
        });
        ends.filter(|path| path.symlink_metadata().is_err())
    }
}

/// What git runs, or what says where it is.
const KEPT: [&str; 9] = [
    "config",
    "config.worktree",
    "hooks",
    "commondir",
    "gitdir",
    "info/attributes",
    INTERRUPTED[0],
    INTERRUPTED[1],
    INTERRUPTED[2],
];
/// The lists of what an interrupted command has still to do, which can name programs.
const INTERRUPTED: [&str; 3] = ["rebase-apply", "rebase-merge", "sequencer"];
/// How deep the directories of submodules are searched, whose names may have slashes.
pub(super) const MAX_MODULE_DEPTH: usize = 6;

/// Whether a path is the list of an interrupted rebase, cherry-pick or revert: git makes it at each conflict, and to remove it
/// ends the command half done.
pub fn is_interrupted_list(path: &Path) -> bool {
    INTERRUPTED.iter().any(|name| path.ends_with(name))
}

/// Adds the git directories of submodules below `directory`.
pub(super) fn add_modules(directory: &Path, depth: usize, found_directories: &mut Vec<PathBuf>) {
    if depth == 0 {
        return;
    }
    for module in subdirectories(directory) {
        if module.join("HEAD").symlink_metadata().is_ok() {
            add_modules(&module.join("modules"), depth - 1, found_directories);
            found_directories.push(module);
        } else {
            add_modules(&module, depth - 1, found_directories);
        }
    }
}

/// The directories in a directory, and not symlinks to some.
fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn c_22_4_a_linked_worktree_writes_the_repository_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let linked = root.join("repo/.git/worktrees/one");
        write(linked.join("HEAD"), "ref: refs/heads/one\n");
        write(linked.join("commondir"), "../..\n");
        write(linked.join("gitdir"), &format!("{}/tree/.git\n", root.display()));
        write(root.join("tree/.git"), &format!("gitdir: {}\n", linked.display()));
        let git = find_git_directory(&root.join("tree")).unwrap();
        assert_eq!(git.roots, [root.join("repo/.git"), linked.clone()]);
        assert!(git.keep.contains(&root.join("repo/.git/hooks")));
        // A file that a tool wrote elsewhere points to a directory that does not know it.
        write(root.join("other/.git"), &format!("gitdir: {}\n", linked.display()));
        assert_eq!(find_git_directory(&root.join("other")), None);
        write(root.join("third/.git"), "gitdir: /etc\n");
        assert_eq!(find_git_directory(&root.join("third")), None);
    }

    #[test]
    fn c_22_4_a_submodule_writes_its_directory_in_the_outer_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let module = root.join("outer/.git/modules/sub");
        write(module.join("HEAD"), "ref: refs/heads/main\n");
        write(module.join("config"), "[core]\n\tworktree = ../../../sub\n");
        write(root.join("outer/sub/.git"), "gitdir: ../.git/modules/sub\n");
        let git = find_git_directory(&root.join("outer/sub")).unwrap();
        assert_eq!(git.roots, [module]);
        assert_eq!(git.missing().count(), 8, "all but the configuration: {git:?}");
        let inner = root.join("outer/src");
        fs::create_dir_all(&inner).unwrap();
        let outer = find_git_directory(&inner).unwrap();
        assert_eq!(outer.roots, [root.join("outer/.git")]);
        for name in ["config", "hooks", "modules/sub/config", "modules/sub/hooks"] {
            assert!(outer.keep.contains(&root.join("outer/.git").join(name)), "{name}");
        }
        write(root.join("outer/.git/modules/a/b/HEAD"), "ref: refs/heads/main\n");
        write(root.join("outer/.git/modules/a/b/modules/c/HEAD"), "ref: refs/heads/main\n");
        let outer = find_git_directory(&inner).unwrap();
        assert!(outer.keep.contains(&root.join("outer/.git/modules/a/b/modules/c/config")));
    }
}
