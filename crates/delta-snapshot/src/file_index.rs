//! Remembers the ids of unchanged files by their metadata, so that they are not read again.
//!
//! A file that was changed so shortly before the read that a later change could have the same time is not remembered.

use super::object_store::ObjectStore;
use delta_base::durable::{self, FileError};
use delta_base::id::SnapshotId;
use rustix::fs::{Stat, Timespec, Timestamps, UTIME_NOW};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// The beginning of the first line of the index, before the id of the boot.
const INDEX_FORMAT: &str = "delta snapshots 2";

/// The first line of the index; a file with another one is ignored. A power failure may have changed objects without
/// changing the metadata of files, so an index holds for one boot.
fn index_header() -> String {
    format!("{INDEX_FORMAT} {}\n", durable::boot_id().unwrap_or_default())
}

/// Twice the longest interval (10 ms) between the times that the kernel gives to files.
const CLOCK_TICK_NANOS: i128 = 20_000_000;
/// The interval of file systems without fractions of a second.
const COARSE_CLOCK_TICK_NANOS: i128 = 2_000_000_000;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// The metadata that shows whether a file has changed. Only the kernel sets the time `changed` (ctime).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: i128,
    inode: u64,
    length: u64,
    modified: i128,
    changed: i128,
}

impl FileStamp {
    pub fn from_stat(stat: &Stat) -> Self {
        let to_nanos = |seconds: i64, subsec_nanos: i128| {
            i128::from(seconds) * NANOS_PER_SECOND + subsec_nanos
        };
        Self {
            device: stat.st_dev.into(),
            inode: stat.st_ino,
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: to_nanos(stat.st_mtime, stat.st_mtime_nsec.into()),
            changed: to_nanos(stat.st_ctime, stat.st_ctime_nsec.into()),
        }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether any change after `now` gets another time.
    fn is_settled(&self, now: i128) -> bool {
        let tick = if self.changed % NANOS_PER_SECOND == 0 {
            COARSE_CLOCK_TICK_NANOS
        } else {
            CLOCK_TICK_NANOS
        };
        self.changed < now - tick
    }
}

/// Reads the clock of the file system: the time that a change of `probe` gets now. On a network file system, it is not
/// the clock of this host.
pub(super) fn read_file_system_clock(probe: &Path) -> Result<i128, FileError> {
    let write_error =
        |source: io::Error| FileError { action: "write", path: probe.to_owned(), source };
    let file = durable::open_or_create_no_follow(probe).map_err(write_error)?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    rustix::fs::futimens(&file, &times)
        .and_then(|()| rustix::fs::fstat(&file))
        .map(|stat| FileStamp::from_stat(&stat).modified)
        .map_err(|error| write_error(error.into()))
}

/// The known files of a workspace, by path.
#[derive(Debug, Default)]
pub(super) struct FileIndex {
    files: HashMap<Vec<u8>, IndexedFile>,
    /// The number of the current snapshot of this process.
    current_snapshot: u64,
}

#[derive(Debug)]
struct IndexedFile {
    stamp: FileStamp,
    id: SnapshotId,
    /// The number of the last snapshot that contained the file.
    last_snapshot: u64,
}

impl FileIndex {
    /// The id of the file at `path`, if it is unchanged.
    pub fn find(&mut self, path: &[u8], stamp: &FileStamp) -> Option<SnapshotId> {
        let file = self.files.get_mut(path).filter(|file| file.stamp == *stamp)?;
        file.last_snapshot = self.current_snapshot;
        Some(file.id)
    }

    /// Starts a snapshot, and forgets the files that the last one did not contain.
    pub fn start_snapshot(&mut self) {
        let last = self.current_snapshot;
        self.files.retain(|_, file| file.last_snapshot == last);
        self.current_snapshot += 1;
    }

    /// Remembers a file that was read at `now` or later.
    pub fn insert(&mut self, path: &[u8], stamp: FileStamp, id: SnapshotId, now: i128) {
        if stamp.is_settled(now) {
            let last_snapshot = self.current_snapshot;
            self.files.insert(path.to_owned(), IndexedFile { stamp, id, last_snapshot });
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Loads the index of an earlier process, without files whose content is not stored. An unreadable index is empty:
    /// that only costs time.
    pub fn load(file: &Path, objects: &mut ObjectStore) -> Self {
        let bytes = durable::read_no_follow(file).unwrap_or_default();
        let Some(lines) = bytes.strip_prefix(index_header().as_bytes()) else {
            return Self::default();
        };
        let mut index = Self::default();
        for line in lines.split(|byte| *byte == 0) {
            if let Some((path, stamp, id)) = parse_index_line(line)
                && objects.contains(id, stamp.length)
            {
                index.files.insert(path, IndexedFile { stamp, id, last_snapshot: 0 });
            }
        }
        index
    }

    pub fn save(&self, file: &Path) -> Result<(), FileError> {
        let mut bytes = index_header().into_bytes();
        let mut head = String::new();
        for (path, IndexedFile { stamp, id, .. }) in &self.files {
            let FileStamp { device, inode, length, modified, changed } = stamp;
            head.clear();
            let _ = write!(head, "{device} {inode} {length} {modified} {changed} {id} ");
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(path);
            bytes.push(0);
        }
        durable::replace_private_unsynced(file, &bytes)
    }
}

fn parse_index_line(line: &[u8]) -> Option<(Vec<u8>, FileStamp, SnapshotId)> {
    let mut fields = line.splitn(7, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let stamp = FileStamp {
        device: text()?.parse().ok()?,
        inode: text()?.parse().ok()?,
        length: text()?.parse().ok()?,
        modified: text()?.parse().ok()?,
        changed: text()?.parse().ok()?,
    };
    let id = SnapshotId::parse(text()?)?;
    Some((fields.next()?.to_owned(), stamp, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_1_a_file_changed_in_the_same_tick_is_read_again() {
        let id = SnapshotId::from_content(b"x");
        let now = 5 * NANOS_PER_SECOND + 500;
        let find = |changed| {
            let stamp = FileStamp { device: 1, inode: 2, length: 3, modified: 0, changed };
            let mut index = FileIndex::default();
            index.insert(b"p", stamp, id, now);
            index.find(b"p", &stamp)
        };
        assert_eq!(find(now), None);
        assert_eq!(find(now - CLOCK_TICK_NANOS), None);
        assert_eq!(find(now - CLOCK_TICK_NANOS - 1), Some(id));
        // A file system without fractions gives whole seconds.
        assert_eq!(find(4 * NANOS_PER_SECOND), None);
        assert_eq!(find(3 * NANOS_PER_SECOND), Some(id));
    }
}
