//! Files that grow at their end.

#[cfg(feature = "failpoints")]
use super::failpoints;
use super::file_watch::FileWatch;
use super::{
    FileError, FileResult, NO_FOLLOW_NONBLOCK, PRIVATE_MODE, beneath, check_failpoint,
    explain_file_error, file_error, metadata_no_follow, open_existing_private,
    open_or_create_private, sync_readable_dir, writeback,
};
use rustix::fs::OFlags;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const APPEND_FLAGS: OFlags = OFlags::WRONLY.union(OFlags::APPEND);
const CREATE_FLAGS: OFlags =
    APPEND_FLAGS.union(OFlags::CREATE).union(OFlags::EXCL).union(NO_FOLLOW_NONBLOCK);

/// A private file that only grows, and in which every acknowledged byte is durable.
///
/// The first error is final: what the kernel holds is unknown after it, so a failed sync is never retried. The file is
/// truncated to its synced length, and every later call returns the same error.
#[derive(Debug)]
pub struct AppendFile {
    file: File,
    path: PathBuf,
    synced_length: u64,
    /// The bytes that were written after the last sync.
    unsynced_length: u64,
    /// The action and the cause of the first error.
    failure: Option<(&'static str, String)>,
    /// `None` if changes by others are not looked for.
    watch: Option<Box<FileWatch>>,
}

impl AppendFile {
    /// Creates the file. Fails when the path exists. The caller syncs the directory.
    pub fn create(path: &Path) -> FileResult<Self> {
        let file = check_failpoint()
            .and_then(|()| beneath::open(path, CREATE_FLAGS, PRIVATE_MODE))
            .map_err(file_error("create", path))?;
        Ok(Self::new(file, path, 0))
    }

    /// Opens an existing file and truncates it to `length`.
    pub fn open(path: &Path, length: u64) -> FileResult<Self> {
        let file = open_existing_private(path, APPEND_FLAGS).map_err(file_error("open", path))?;
        if file.metadata().map_err(file_error("read", path))?.len() != length {
            file.set_len(length)
                .and_then(|()| file.sync_all())
                .map_err(file_error("truncate", path))?;
        }
        Ok(Self::new(file, path, length))
    }

    fn new(file: File, path: &Path, synced_length: u64) -> Self {
        let path = path.to_owned();
        Self { file, path, synced_length, unsynced_length: 0, failure: None, watch: None }
    }

    /// From now on, a change of the file by another process is an error of the next append.
    pub fn watch_changes(&mut self) -> FileResult<()> {
        let watch =
            FileWatch::start(&self.file, &self.path).map_err(file_error("read", &self.path))?;
        self.watch = Some(Box::new(watch));
        Ok(())
    }

    /// Appends `bytes` and syncs them, together with everything appended before.
    pub fn append_synced(&mut self, bytes: &[u8]) -> FileResult<()> {
        self.append_unsynced(bytes)?;
        self.sync()
    }

    /// Appends `bytes` and starts their writeback without waiting for it; [`AppendFile::sync`] waits for the rest. They
    /// survive a killed process, but not a power failure.
    pub fn append_unsynced(&mut self, bytes: &[u8]) -> FileResult<()> {
        self.check_usable()?;
        let result = self
            .write(bytes)
            .and_then(|()| writeback::start_file_writeback(&self.file, self.synced_length));
        self.unsynced_length += bytes.len() as u64;
        result.map_err(|error| self.fail("write", error))
    }

    /// Makes all appended bytes durable.
    pub fn sync(&mut self) -> FileResult<()> {
        self.check_usable()?;
        check_failpoint()
            .and_then(|()| self.file.sync_data())
            .map_err(|error| self.fail("sync", error))?;
        self.synced_length += std::mem::take(&mut self.unsynced_length);
        Ok(())
    }

    /// The path with which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What became of the file; `None` if it is at its path, with all that was appended.
    pub fn find_loss(&self) -> Option<LostFile> {
        match metadata_no_follow(&self.path) {
            Ok(there) => {
                let open = self.file.metadata().ok()?;
                let is_open = (there.dev(), there.ino()) == (open.dev(), open.ino());
                let is_whole = open.len() >= self.synced_length;
                return (!is_open || !is_whole).then_some(LostFile::Replaced);
            }
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {}
            Err(error) => return Some(LostFile::Unreachable(error)),
        }
        let metadata = self.file.metadata().ok()?;
        Some(match metadata.nlink() {
            0 => LostFile::Removed,
            _ => LostFile::Moved(find_current_path(&self.file, &metadata)),
        })
    }

    fn check_usable(&self) -> FileResult<()> {
        let Some((action, cause)) = &self.failure else { return Ok(()) };
        let source = io::Error::other(cause.clone());
        Err(FileError { action, path: self.path.clone(), source })
    }

    fn fail(&mut self, action: &'static str, error: io::Error) -> FileError {
        let error = explain_file_error(error);
        self.failure = Some((action, error.to_string()));
        // Best effort: bytes that cannot be truncated are a torn tail, which is set aside when the run is resumed.
        if self.file.metadata().is_ok_and(|metadata| metadata.len() > self.synced_length) {
            let _ = self.file.set_len(self.synced_length);
        }
        file_error(action, &self.path)(error)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "failpoints")]
        failpoints::tear_write_if_planned(&mut self.file, bytes)?;
        check_failpoint()?;
        let Some(watch) = &mut self.watch else { return self.file.write_all(bytes) };
        watch.check(&self.path)?;
        self.file.write_all(bytes)?;
        watch.append(bytes, &self.file)
    }
}

/// What became of an open file whose path no longer leads to it, or to less of it.
#[derive(Debug)]
pub enum LostFile {
    /// It has no name any more.
    Removed,
    /// Another file has its path, or it was cut.
    Replaced,
    /// It has another path; `None` if the system does not say which.
    Moved(Option<PathBuf>),
    /// Its path cannot be followed.
    Unreachable(io::Error),
}

/// The path at which the system has an open file now.
fn find_current_path(file: &File, metadata: &Metadata) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let there = metadata_no_follow(&path).ok()?;
    (there.dev() == metadata.dev() && there.ino() == metadata.ino()).then_some(path)
}

/// Appends a line to a private file in one write, so that lines of several processes do not mix; creates the file when
/// missing. Not synced.
pub fn append_line_unsynced(path: &Path, line: &str) -> FileResult<()> {
    append_line(path, line).map(drop)
}

/// The same, and waits until the line is on the disk, with the name of the file.
pub fn append_line_synced(path: &Path, line: &str) -> FileResult<()> {
    append_line(path, line)?.sync_data().map_err(file_error("sync", path))?;
    // Always: the process that created the file may have died before it did this.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_readable_dir(parent.unwrap_or(Path::new(".")))
}

fn append_line(path: &Path, line: &str) -> FileResult<File> {
    check_failpoint()
        .and_then(|()| open_or_create_private(path, APPEND_FLAGS))
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()).map(|()| file))
        .map_err(file_error("write", path))
}

/// A private log file. Never synced.
#[derive(Debug)]
pub struct LogFile(File);

impl LogFile {
    /// Opens the file, and creates it when missing.
    pub fn open(path: &Path) -> FileResult<Self> {
        open_or_create_private(path, APPEND_FLAGS).map(Self).map_err(file_error("open", path))
    }

    /// The descriptor, for a stream that ends in the file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Appends whole lines in one write. Errors are ignored: a full log must not stop a run.
    pub fn write(&mut self, lines: &str) {
        let _ = self.0.write_all(lines.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn appended_bytes_are_in_the_file_and_count_once_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut file = AppendFile::create(&path).unwrap();
        file.append_unsynced(b"one").unwrap();
        file.append_unsynced(b"two").unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), file.synced_length), (&b"onetwo"[..], 0));
        file.append_synced(b"three").unwrap();
        assert_eq!(
            (fs::read(&path).unwrap().as_slice(), file.synced_length),
            (&b"onetwothree"[..], 11)
        );
        // The first error is final, even when a later write would succeed.
        file.append_unsynced(b"four").unwrap();
        file.file = File::open(&path).unwrap();
        assert_eq!(file.append_unsynced(b"five").unwrap_err().action, "write");
        file.file = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(file.sync().unwrap_err().action, "write");
        assert_eq!(file.synced_length, 11);
    }
}
