//! Locks on files.

use super::{
    FileResult, file_error, metadata_no_follow, open_no_follow, open_private, read_small_no_follow,
};
use rustix::fs::{Dev, major, minor};
use std::fs::{self, File, TryLockError};
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

/// A process that has a lock, as /proc/locks lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedLockHolder {
    /// Its id in the PID namespace of /proc.
    pub pid: u32,
    /// Whether the list has the device of the file as stat(2) has it. On btrfs it does not, so the file may be another one
    /// with the same inode number.
    pub is_on_device: bool,
}

/// The processes that have the lock at `path`, from /proc/locks (proc_locks(5)): unlike the text of the file, that cannot be
/// forged. Processes that /proc does not show are left out.
pub fn list_lock_holders(path: &Path) -> Vec<ListedLockHolder> {
    let Ok(metadata) = metadata_no_follow(path) else { return Vec::new() };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().filter_map(|line| parse_lock(line, metadata.dev(), metadata.ino())).collect()
}

/// The holder in a line such as `3: FLOCK  ADVISORY  WRITE 24577 fe:00:13049966 0 EOF`, if its lock is on the inode.
fn parse_lock(line: &str, device: u64, inode: u64) -> Option<ListedLockHolder> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // A line of a process that waits has `->` in the second place.
    let &[_, "FLOCK", _, "WRITE", pid, file, ..] = &fields[..] else { return None };
    let mut numbers = file.split(':');
    let is_major = u32::from_str_radix(numbers.next()?, 16) == Ok(major(device as Dev));
    let is_minor = u32::from_str_radix(numbers.next()?, 16) == Ok(minor(device as Dev));
    let is_inode = numbers.next()?.parse() == Ok(inode);
    let is_on_device = is_major && is_minor;
    is_inode.then_some(ListedLockHolder { pid: pid.parse().ok()?, is_on_device })
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
        let listed = list_lock_holders(&path);
        if cfg!(target_os = "linux") {
            assert!(listed.iter().any(|holder| holder.pid == std::process::id()), "{listed:?}");
        }
        drop(held);
        assert!(!is_locked(&path) && list_lock_holders(&path).is_empty());
        assert!(FileLock::try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn c_27_3_a_line_of_proc_locks_names_the_holder_of_an_inode() {
        let device = rustix::fs::makedev(0xfe, 0);
        let parse = |line| parse_lock(line, device, 42).map(|one| (one.pid, one.is_on_device));
        assert_eq!(parse("3: FLOCK  ADVISORY  WRITE 577 fe:00:42 0 EOF"), Some((577, true)));
        assert_eq!(parse("3: FLOCK  ADVISORY  WRITE 577 00:2f:42 0 EOF"), Some((577, false)));
        for other in [
            "3: FLOCK  ADVISORY  WRITE 577 fe:00:421 0 EOF",
            "3: FLOCK  ADVISORY  READ 577 fe:00:42 0 EOF",
            "3: POSIX  ADVISORY  WRITE 577 fe:00:42 0 EOF",
            "3: -> FLOCK  ADVISORY  WRITE 577 fe:00:42 0 EOF",
            "3: OFDLCK ADVISORY  WRITE -1 fe:00:42 0 EOF",
            "",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
