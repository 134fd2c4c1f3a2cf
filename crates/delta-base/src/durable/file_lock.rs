//! Locks on files.

use super::{
    FileResult, file_error, metadata_no_follow, open_no_follow, open_private, read_small_no_follow,
};
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// An exclusive lock on a file, released when it is dropped or the process ends.
#[derive(Debug)]
pub struct FileLock(
    #[expect(dead_code, reason = "holding the file open is what holds the lock")] File,
);

impl FileLock {
    /// Takes the lock and writes the process id into the file; `None` when another process holds it.
    pub fn try_acquire(path: &Path) -> FileResult<Option<Self>> {
        let mut file = open_private(path, false).map_err(file_error("open", path))?;
        match file.try_lock() {
            // The file was removed or replaced after it was opened: this lock excludes no other process.
            Ok(()) if !is_file_at(&file, path).map_err(file_error("open", path))? => {
                Self::try_acquire(path)
            }
            Ok(()) => {
                // Padded to one length, so that a reader never finds an empty file between two holders.
                file.write_all(format!("{:<10}\n", std::process::id()).as_bytes())
                    .map_err(file_error("write", path))?;
                Ok(Some(Self(file)))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(file_error("lock", path)(error)),
        }
    }
}

/// Whether `path` still leads to this open file.
fn is_file_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match metadata_no_follow(path) {
        Ok(named) => Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The id of the process that last took the lock at `path`; `None` when the file does not hold one.
pub fn read_lock_holder(path: &Path) -> Option<u32> {
    std::str::from_utf8(&read_small_no_follow(path).ok()?).ok()?.trim().parse().ok()
}

/// Whether a process holds the lock at `path`. A process that takes it at this moment may find it held for an instant.
pub fn is_locked(path: &Path) -> bool {
    open_no_follow(path)
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_13_1_a_lock_is_held_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = FileLock::try_acquire(&path).unwrap();
        assert!(held.is_some());
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
        assert!(is_locked(&path) && !is_locked(&dir.path().join("other")));
        drop(held);
        assert!(!is_locked(&path));
        assert!(FileLock::try_acquire(&path).unwrap().is_some());
    }
}
