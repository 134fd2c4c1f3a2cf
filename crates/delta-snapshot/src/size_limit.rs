//! How large a directory may be for snapshots of it, so that they are not taken of a home directory or a disk.

use super::workspace_walk::{list_names, open_stored_subdirectory};
use super::{CONTROL_DIR_NAME, ExcludePatterns, FileError, open_workspace, tree::join_tree_path};
use rustix::fs::{AtFlags, FileType};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The size up to which snapshots of a directory are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceLimit {
    /// The greatest number of files and directories.
    pub max_files: u64,
    /// The greatest total length of the files.
    pub max_bytes: u64,
}

impl WorkspaceLimit {
    /// What `workspace` has too much of, such as "20000 files", without `exclude`. Stops there, so the cost is bounded by the
    /// limit; reads no file.
    ///
    /// # Errors
    /// The workspace itself could not be read.
    pub fn find_excess(
        &self,
        workspace: &Path,
        exclude: &ExcludePatterns,
    ) -> Result<Option<String>, FileError> {
        let root = open_workspace(workspace)?;
        let mut count = WorkspaceCount { limit: self, exclude, files: 0, bytes: 0 };
        count.add_directory(&root, &[]);
        Ok(if count.files > self.max_files {
            Some(format!("{} files", self.max_files))
        } else if count.bytes > self.max_bytes {
            Some(format!("{} bytes", self.max_bytes))
        } else {
            None
        })
    }
}

struct WorkspaceCount<'a> {
    limit: &'a WorkspaceLimit,
    exclude: &'a ExcludePatterns,
    files: u64,
    bytes: u64,
}

impl WorkspaceCount<'_> {
    fn is_over(&self) -> bool {
        self.files > self.limit.max_files || self.bytes > self.limit.max_bytes
    }

    /// Adds what is in a directory. A snapshot omits what cannot be read, so it does not count.
    fn add_directory(&mut self, dir: &OwnedFd, path: &[u8]) {
        for name in list_names(dir).unwrap_or_default() {
            let entry_path = join_tree_path(path, &name);
            if self.is_over() {
                return;
            }
            if name == CONTROL_DIR_NAME || self.exclude.matches(&entry_path, &name) {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.files += 1;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => self.bytes += u64::try_from(stat.st_size).unwrap_or(0),
                FileType::Directory => {
                    if let Ok(dir) = open_stored_subdirectory(dir, &name) {
                        self.add_directory(&dir, &entry_path);
                    }
                }
                _ => {}
            }
        }
    }
}
