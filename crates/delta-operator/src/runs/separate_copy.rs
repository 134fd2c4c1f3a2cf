//! Separates the copy of a workspace from the original: what is done in the copy must not change the original.
//!
//! A linked worktree and a submodule name a git directory outside of themselves, and an absolute symlink can lead back into
//! the original. Both would be followed from the copy.

use super::git::Git;
use delta_base::durable::FileError;
use delta_sandbox::{
    GitLink, find_git_directory, git_links, inner_git_directories, outside_git_directories,
    tree_around,
};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

/// What was separated, and what was not.
#[derive(Debug, Default)]
pub struct SeparatedCopy {
    /// The entries that differ from the original, relative to it: git directories in place of what names one, and symlinks.
    pub changed: Vec<PathBuf>,
    /// What was done, for the user.
    pub notes: Vec<String>,
    /// What the copy shares with the original, for the user.
    pub shared: Vec<String>,
}

/// What a git directory does not share with its copy: work trees and the places of others, and objects, which are read
/// where they are.
const NOT_COPIED: [&str; 8] =
    ["objects", "worktrees", "modules", "lfs", "commondir", "gitdir", "locked", "index.lock"];

/// What a linked worktree takes from the repository that it belongs to; all else there is of another work tree.
const SHARED: [&str; 8] =
    ["config", "packed-refs", "refs", "reftable", "info", "hooks", "shallow", "logs"];

/// Where the files of the copy are, for git: one level above its git directory, wherever the original was.
const OWN_WORK_TREE: &str = "[core]\n\tbare = false\n\tworktree = ..\n";

/// Separates `copy`, the files of `original`, which will be at `final_root`; all are absolute, without symlinks. The original may be
/// gone.
///
/// # Errors
/// The copy could not be written.
pub fn separate_copy(
    copy: &Path,
    original: &Path,
    final_root: &Path,
) -> Result<SeparatedCopy, FileError> {
    let mut separated = SeparatedCopy::default();
    for link in git_links(copy, original) {
        let is_in_copy = !link.is_absolute && link.directory.starts_with(original);
        if is_in_copy || link.directory.starts_with(copy) {
            continue;
        }
        // A tool can write a file that names any git directory, so only one that points back is read for it.
        let tree = original.join(link.entry.parent().unwrap_or(Path::new("")));
        let git = find_git_directory(&tree).filter(|git| git.roots.contains(&link.directory));
        if git.is_none() {
            continue;
        }
        let entry = copy.join(&link.entry);
        copy_git_directory(&link, &entry).map_err(|source| FileError {
            action: "create the git directory",
            path: entry,
            source,
        })?;
        separated.notes.push(format!(
            "Note: {} is a copy of the git directory {} as it is now, and reads the objects of {}",
            link.entry.display(),
            link.directory.display(),
            link.common_directory().display()
        ));
        separated.changed.push(link.entry);
    }
    for directory in inner_git_directories(copy) {
        let inner = directory.strip_prefix(copy).unwrap_or(&directory).to_owned();
        let git_place = GitPlace { copy, original, inner: &inner };
        git_place
            .separate_files(&mut separated)
            .and_then(|()| git_place.keep_objects(&mut separated))
            .map_err(|source| FileError {
                action: "separate the git directory",
                path: directory,
                source,
            })?;
    }
    if let Some(tree) = tree_around(original).filter(|_| !copy.join(".git").exists())
        && tree_around(final_root).is_none()
    {
        separated.notes.push(format!(
            "Note: git does not work in the new workspace, which is outside of the repository {}",
            tree.display()
        ));
    }
    redirect_links(copy, original, final_root, &mut separated)?;
    let shared = outside_git_directories(copy).into_iter().map(|directory| {
        let directory = directory.display();
        format!("Note: git commands in the new workspace change {directory}, which it shares")
    });
    separated.shared.extend(shared);
    Ok(separated)
}

/// Replaces the entry `.git` by a git directory with the state of the one that it names. Nothing works in the copy yet, so it
/// need not happen at once.
fn copy_git_directory(link: &GitLink, entry: &Path) -> io::Result<()> {
    let common = link.common_directory();
    fs::remove_file(entry)?;
    fs::create_dir(entry)?;
    copy_missing(&link.directory, entry, &|name| !NOT_COPIED.contains(&name))?;
    if common != link.directory {
        copy_missing(&common, entry, &|name| SHARED.contains(&name))?;
    }
    fs::create_dir_all(entry.join("objects/info"))?;
    let objects = format!("{}\n", common.join("objects").display());
    fs::write(entry.join("objects/info/alternates"), objects)?;
    let configs = ["config", "config.worktree"].map(|name| entry.join(name));
    for path in configs.iter().filter(|path| path.exists()) {
        OpenOptions::new().append(true).open(path)?.write_all(OWN_WORK_TREE.as_bytes())?;
    }
    Ok(())
}

/// A git directory that came with the files of the copy.
struct GitPlace<'a> {
    copy: &'a Path,
    original: &'a Path,
    /// Where it is in both.
    inner: &'a Path,
}

impl GitPlace<'_> {
    /// Makes the files of the copy its work tree if its configuration names files of the original, and names any others.
    fn separate_files(&self, separated: &mut SeparatedCopy) -> io::Result<()> {
        let directory = self.copy.join(self.inner);
        for name in ["config", "config.worktree"] {
            let file = directory.join(name);
            let Some(named) = configured_files(&file) else { continue };
            let files = directory.join(&named);
            let files = files.canonicalize().unwrap_or(files);
            if files.starts_with(self.copy) {
                continue;
            }
            let in_original =
                files.strip_prefix(self.original).ok().filter(|_| Self::is_own_file(&file));
            let Some(in_original) = in_original else {
                separated.shared.push(format!(
                    "Note: git commands in the new workspace change the files in {}, which {} names",
                    files.display(),
                    self.inner.display()
                ));
                continue;
            };
            // From the git directory, wherever the copy will be.
            let up = self.inner.components().map(|_| Component::ParentDir);
            let tree: PathBuf = up.chain(in_original.components()).collect();
            let tree = tree.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
            let line = format!("\n[core]\n\tworktree = \"{tree}\"\n");
            OpenOptions::new().append(true).open(&file)?.write_all(line.as_bytes())?;
            separated.notes.push(format!(
                "Note: {} named the files in {}, and names the files of the copy now",
                self.inner.display(),
                files.display()
            ));
            separated.changed.push(self.inner.join(name));
        }
        Ok(())
    }

    /// Lets it read the objects of the repositories that it names by a path from where the original is.
    fn keep_objects(&self, separated: &mut SeparatedCopy) -> io::Result<()> {
        let list = self.inner.join("objects/info/alternates");
        let Ok(text) = fs::read_to_string(self.copy.join(&list)) else { return Ok(()) };
        let objects = self.original.join(self.inner).join("objects");
        let lines = text.lines().map(|line| {
            let named = objects.join(line).canonicalize().ok();
            // What starts at the root is the same from everywhere; so is what came with the files.
            let outside = named
                .filter(|named| Path::new(line).is_relative() && !named.starts_with(self.original));
            outside.map_or_else(|| line.to_owned(), |named| named.display().to_string()) + "\n"
        });
        let new_text: String = lines.collect();
        let file = self.copy.join(&list);
        if new_text != text && Self::is_own_file(&file) {
            fs::write(file, new_text)?;
            separated.changed.push(list);
        }
        Ok(())
    }

    /// Whether a file of the copy is reached through no symlink, which could lead to a file of others.
    fn is_own_file(file: &Path) -> bool {
        file.canonicalize().is_ok_and(|real| real == file)
    }
}

/// The work tree that a configuration of git names, also in a file that it includes.
fn configured_files(file: &Path) -> Option<PathBuf> {
    let text = fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&text).to_ascii_lowercase();
    // Most configurations do not, and are not worth a process.
    if !["worktree", "include"].iter().any(|word| text.contains(word)) {
        return None;
    }
    let git = Git::new(file.parent()?, None);
    let name = file.to_str()?;
    let words = ["config", "--file", name, "--includes", "--get", "core.worktree"];
    git.line(&words).ok().map(PathBuf::from)
}

/// Copies the files and directories whose names `is_copied` accepts and that `to` lacks.
fn copy_missing(from: &Path, to: &Path, is_copied: &dyn Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let target = to.join(&name);
        if !name.to_str().is_none_or(is_copied) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir_all(&target)?;
            copy_missing(&entry.path(), &target, &|_| true)?;
        } else if kind.is_symlink() && target.symlink_metadata().is_err() {
            symlink(fs::read_link(entry.path())?, &target)?;
        } else if kind.is_file() && !target.exists() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Lets the symlinks of the copy that lead into the original lead to the same place in the copy.
fn redirect_links(
    copy: &Path,
    original: &Path,
    final_root: &Path,
    separated: &mut SeparatedCopy,
) -> Result<(), FileError> {
    let mut directories = vec![copy.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !path.ends_with(".delta") {
                directories.push(path);
            } else if kind.is_symlink()
                && let Some(inner) = place_in_copy(&path, copy, original)
            {
                let target = final_root.join(inner);
                replace_link(&path, &target).map_err(|source| FileError {
                    action: "write the symlink",
                    path: path.clone(),
                    source,
                })?;
                let name = path.strip_prefix(copy).unwrap_or(&path);
                separated.notes.push(format!(
                    "Note: the symlink {} led into {}, and leads into the copy now",
                    name.display(),
                    original.display()
                ));
                separated.changed.push(name.to_owned());
            }
        }
    }
    Ok(())
}

/// Where in the copy a symlink of it has to lead that would lead into the original, or that leads into it from there.
fn place_in_copy(link: &Path, copy: &Path, original: &Path) -> Option<PathBuf> {
    let named = fs::read_link(link).ok()?;
    let from_copy = link.canonicalize().ok();
    if from_copy.as_ref().is_some_and(|target| target.starts_with(copy)) {
        return None;
    }
    let from_original = original.join(link.strip_prefix(copy).ok()?).canonicalize().ok();
    // What does not exist yet would be made there.
    let missing = named.is_absolute().then_some(named);
    let targets = [from_copy, from_original, missing];
    let inner = targets.iter().flatten().find_map(|target| target.strip_prefix(original).ok())?;
    (!inner.starts_with(".delta")).then(|| inner.to_owned())
}

fn replace_link(link: &Path, target: &Path) -> io::Result<()> {
    fs::remove_file(link)?;
    symlink(target, link)
}
