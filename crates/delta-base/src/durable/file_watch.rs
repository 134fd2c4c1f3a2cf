//! Finds out whether another process has changed a file that only delta writes.

use super::{metadata_no_follow, open_no_follow};
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What delta has left of a file.
#[derive(Debug)]
pub(super) struct FileWatch {
    content: Sha256,
    status: FileStatus,
}

/// What every change of a file or of its name changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStatus {
    identity: (u64, u64),
    links: u64,
    size: u64,
    changed_at: (i64, i64),
}

impl FileStatus {
    fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            identity: (metadata.dev(), metadata.ino()),
            links: metadata.nlink(),
            size: metadata.len(),
            changed_at: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl FileWatch {
    /// Watches `file`, which is at `path`, from its current content on.
    pub(super) fn start(file: &File, path: &Path) -> io::Result<Self> {
        let status = FileStatus::from_metadata(&file.metadata()?);
        let mut watch = Self { content: hash_content(path)?, status };
        watch.check(path)?;
        Ok(watch)
    }

    /// Fails if the content or the name is not what delta has left. Reads the file only if its status is different: a
    /// `chmod` or a backup does no damage.
    pub(super) fn check(&mut self, path: &Path) -> io::Result<()> {
        let metadata = metadata_no_follow(path)
            .map_err(|error| changed_error(format!("it cannot be opened now ({error})")))?;
        let status = FileStatus::from_metadata(&metadata);
        if status == self.status {
            return Ok(());
        }
        if status.identity != self.status.identity {
            return Err(changed_error("it is another file now".to_owned()));
        }
        if status.size != self.status.size {
            let FileStatus { size, .. } = self.status;
            return Err(changed_error(format!("it has {} bytes, expected {size}", status.size)));
        }
        if hash_content(path)?.finalize() != self.content.clone().finalize() {
            return Err(changed_error("it has the same length and another content".to_owned()));
        }
        self.status = status;
        Ok(())
    }

    /// Adds what delta has appended.
    pub(super) fn append(&mut self, bytes: &[u8], file: &File) -> io::Result<()> {
        self.content.update(bytes);
        let expected = self.status.size + bytes.len() as u64;
        self.status = FileStatus::from_metadata(&file.metadata()?);
        if self.status.size == expected {
            return Ok(());
        }
        Err(changed_error(format!("it has {} bytes, expected {expected}", self.status.size)))
    }
}

fn changed_error(reason: String) -> io::Error {
    io::Error::other(format!("another process has changed it: {reason}"))
}

fn hash_content(path: &Path) -> io::Result<Sha256> {
    let mut file = open_no_follow(path)?;
    let mut content = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(content),
            length => content.update(&buffer[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::AppendFile;
    use std::fs::{self, OpenOptions, Permissions};
    use std::io::Write;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    /// What the next append says after `change` to a watched file.
    fn after(change: impl Fn(&Path)) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut file = AppendFile::create(&path).unwrap();
        file.append_synced(b"before").unwrap();
        file.watch_changes().unwrap();
        file.append_synced(b"one").unwrap();
        change(&path);
        file.append_synced(b"two").map_err(|error| error.source.to_string())?;
        Ok(fs::read_to_string(&path).unwrap())
    }

    #[test]
    fn c_22_4_a_change_by_another_process_is_found_before_the_next_append() {
        let changed = |change: fn(&Path), expected: &str| {
            let message = after(change).unwrap_err();
            assert!(message.starts_with("another process has changed it: "), "{message}");
            assert!(message.contains(expected), "{message}");
        };
        let append = |path: &Path| {
            OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
        };
        changed(append, "it has 10 bytes, expected 9");
        changed(|path| File::create(path).map(drop).unwrap(), "it has 0 bytes, expected 9");
        changed(
            |path| {
                OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"B", 0).unwrap()
            },
            "another content",
        );
        changed(|path| fs::rename(path, path.with_extension("old")).unwrap(), "cannot be opened");
        let replace = |path: &Path| {
            fs::copy(path, path.with_extension("new")).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        };
        changed(replace, "it is another file now");
        let link = |path: &Path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            std::os::unix::fs::symlink(path.with_extension("old"), path).unwrap();
        };
        changed(link, "it is another file now");
    }

    #[test]
    fn c_22_4_what_leaves_the_content_is_no_damage() {
        let harmless = |change: fn(&Path)| assert_eq!(after(change).unwrap(), "beforeonetwo");
        harmless(|_| {});
        harmless(|path| fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap());
        harmless(|path| fs::hard_link(path, path.with_extension("backup")).unwrap());
        harmless(|path| {
            OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"b", 0).unwrap();
        });
        harmless(|path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            fs::rename(path.with_extension("old"), path).unwrap();
        });
    }

    #[test]
    fn c_22_4_what_was_appended_by_another_process_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut file = AppendFile::create(&path).unwrap();
        file.watch_changes().unwrap();
        file.append_synced(b"one").unwrap();
        fs::write(&path, "one and more").unwrap();
        file.append_unsynced(b"two").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        fs::write(&path, "o").unwrap();
        file.append_unsynced(b"two").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "o", "nothing is made up");
    }
}
