//! The directory of what a run throws away: the /tmp of its sandboxes, and the changes to copies.

use rustix::fs::{Mode, OFlags, open};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub struct SandboxScratch {
    path: PathBuf,
}

impl SandboxScratch {
    /// Creates the directory for `key` in `temp_dir`, the TMPDIR of delta. What a dead process with the same key has left is
    /// removed, so the caller must be the only one that uses the key, as the process is that has claimed a run.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(temp_dir: &Path, key: &str) -> Result<Self, ScratchError> {
        let path = temp_dir.join(format!("delta-sandbox-{key}"));
        let created = remove_scratch_tree(&path)
            .and_then(|()| fs::DirBuilder::new().mode(0o700).create(&path))
            .and_then(|()| fs::canonicalize(&path));
        created.map(|path| Self { path }).map_err(|source| ScratchError { path, source })
    }

    /// Its absolute path, without symlinks.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The directory could not be created, or what another process left could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("could not create the directory {}: {source}", path.display())]
pub struct ScratchError {
    path: PathBuf,
    source: io::Error,
}

impl ScratchError {
    /// What to do, as a sentence without a full stop.
    pub fn help(&self) -> String {
        let owner = fs::symlink_metadata(&self.path).map(|metadata| metadata.uid());
        if owner.is_ok_and(|owner| owner != rustix::process::getuid().as_raw()) {
            return "another user has a file of this name: set TMPDIR to a directory of your own"
                .to_owned();
        }
        "set TMPDIR to a directory that you can write, on a disk with space".to_owned()
    }
}

impl Drop for SandboxScratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the run is continued.
        let _ = remove_scratch_tree(&self.path);
    }
}

/// Removes a directory with all in it, also directories without permissions, as overlays leave them.
fn remove_scratch_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_accessible(path);
            fs::remove_dir_all(path)
        }
        other => other,
    }
}

/// Gives this user all rights to a directory and those in it. By descriptor, because a process that a tool has left running
/// could replace a directory with a symlink to another.
#[cfg(target_os = "linux")]
fn make_accessible(directory: &Path) {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(target) = open(directory, flags, Mode::empty()) else { return };
    let path = PathBuf::from(format!("/proc/self/fd/{}", target.as_raw_fd()));
    let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_accessible(&entry.path());
        }
    }
}

/// Without sandboxes, no directory has lost its rights.
#[cfg(not(target_os = "linux"))]
fn make_accessible(_: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_22_4_nothing_is_left_of_a_scratch_directory_or_of_its_predecessor() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("delta-sandbox-k/home/work/work");
        fs::create_dir_all(old.join("sub")).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o0)).unwrap();
        let scratch = SandboxScratch::create(dir.path(), "k").unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        fs::create_dir_all(scratch.path().join("a/b")).unwrap();
        fs::set_permissions(scratch.path().join("a"), fs::Permissions::from_mode(0o0)).unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
