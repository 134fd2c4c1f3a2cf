//! A file to which several processes of one kernel append lines.

use super::{FileResult, beneath, check_failpoint, file_error};
use rustix::fs::{FlockOperation, OFlags};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file to which several processes of one kernel append lines, one at a time by its lock.
///
/// Not synced: for what can be found again elsewhere. A line that a process did not finish stays alone: the next one begins
/// on a new line.
#[derive(Debug)]
pub struct SharedLineFile {
    file: File,
    path: PathBuf,
}

impl SharedLineFile {
    /// Opens the file, and creates it private when missing.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> FileResult<Self> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
        let file = check_failpoint()
            .and_then(|()| beneath::open(path, flags, 0o600))
            .map_err(file_error("open", path))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends a line, which ends with a newline.
    ///
    /// # Errors
    /// It could not be written as a whole.
    pub fn append(&mut self, line: &str) -> FileResult<()> {
        let error = file_error("append to", &self.path);
        let file = &mut self.file;
        rustix::fs::flock(&*file, FlockOperation::LockExclusive)
            .map_err(std::io::Error::from)
            .and_then(|()| check_failpoint())
            .and_then(|()| {
                let length = file.metadata()?.len();
                let mut last = [b'\n'];
                if length > 0 {
                    file.read_exact_at(&mut last, length - 1)?;
                }
                match last {
                    [b'\n'] => file.write_all(line.as_bytes()),
                    _ => file.write_all(format!("\n{line}").as_bytes()),
                }
            })
            .and_then(|()| Ok(rustix::fs::flock(&*file, FlockOperation::Unlock)?))
            .map_err(error)
    }
}

/// The device of a path: one for each mount, also of the same file system through two.
///
/// # Errors
/// The path cannot be read.
pub fn device_number(path: &Path) -> FileResult<u64> {
    let metadata = std::fs::metadata(path).map_err(file_error("read", path))?;
    Ok(metadata.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_stays_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        std::fs::write(&path, "torn").unwrap();
        let mut lines = SharedLineFile::open(&path).unwrap();
        lines.append("one\n").unwrap();
        SharedLineFile::open(&path).unwrap().append("two\n").unwrap();
        lines.append("three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "torn\none\ntwo\nthree\n");
    }
}
