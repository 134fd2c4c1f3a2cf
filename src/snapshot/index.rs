//! What is known of files that have not changed since they were read: their id, by what lstat says of them.
//!
//! A file that was changed so shortly before it was read that a further change could have the same time is not in it,
//! and is read again the next time.

use super::objects::{Id, Objects};
use crate::durable::{self, FileError};
use rustix::fs::{Stat, Timespec, Timestamps, UTIME_NOW};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The first line; a file with another one is not read.
const HEADING: &str = "delta snapshots 1\n";

/// The ticks by which the kernel stamps files are 10 ms at most.
const TICK: i128 = 20_000_000;
/// File systems without fractions of a second have ticks of one or two.
const COARSE_TICK: i128 = 2_000_000_000;
const SECOND: i128 = 1_000_000_000;

/// By what it is seen that a file has changed. The time of its last change of state is the kernel's: no program sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    modified: i128,
    changed: i128,
}

impl Mark {
    pub fn of(stat: &Stat) -> Self {
        let nanos = |seconds: i64, nanos: u64| i128::from(seconds) * SECOND + i128::from(nanos);
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: nanos(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanos(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// How long the file is.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether a change after `now` has another time for sure.
    fn is_settled(&self, now: i128) -> bool {
        let tick = if self.changed % SECOND == 0 { COARSE_TICK } else { TICK };
        self.changed < now - tick
    }
}

/// The file system's own clock, which on a network is not that of this host: the time that it gives to a change made now.
pub(super) fn now(probe: &Path) -> Result<i128, FileError> {
    let failed = |source: io::Error| FileError { action: "write", path: probe.to_owned(), source };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(probe).map_err(failed)?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    rustix::fs::futimens(&file, &times).map_err(|error| failed(error.into()))?;
    let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
    Ok(Mark::of(&stat).modified)
}

/// What is known of the files of a workspace, by their paths.
#[derive(Debug, Default)]
pub(super) struct Index {
    files: HashMap<Vec<u8>, Known>,
    /// The number of the present look at them.
    look: u64,
}

#[derive(Debug)]
struct Known {
    mark: Mark,
    id: Id,
    /// The look that has seen it last.
    look: u64,
}

impl Index {
    /// The id of the file at `path`, when it is the one that was read.
    pub fn find(&mut self, path: &[u8], mark: &Mark) -> Option<Id> {
        let known = self.files.get_mut(path).filter(|known| known.mark == *mark)?;
        known.look = self.look;
        Some(known.id)
    }

    /// Forgets what the last look has not seen, and begins the next one.
    pub fn next_look(&mut self) {
        let look = self.look;
        self.files.retain(|_, known| known.look == look);
        self.look += 1;
    }

    /// Notes what was read at `now` or later.
    pub fn note(&mut self, path: &[u8], mark: Mark, id: Id, now: i128) {
        if mark.is_settled(now) {
            let look = self.look;
            self.files.insert(path.to_owned(), Known { mark, id, look });
        }
    }

    /// How many files it knows.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Reads what an earlier process has left, and takes from it only files whose content is kept; what cannot be read
    /// costs nothing but time.
    pub fn load(file: &Path, objects: &mut Objects) -> Self {
        let bytes = durable::read_whole(file).unwrap_or_default();
        let Some(lines) = bytes.strip_prefix(HEADING.as_bytes()) else { return Self::default() };
        let mut index = Self::default();
        for line in lines.split(|byte| *byte == 0) {
            if let Some((path, mark, id)) = parse(line)
                && objects.has(id, mark.length)
            {
                index.files.insert(path, Known { mark, id, look: 0 });
            }
        }
        index
    }

    /// Leaves it for the next process.
    pub fn save(&self, file: &Path) -> Result<(), FileError> {
        let mut bytes = HEADING.as_bytes().to_owned();
        let mut head = String::new();
        for (path, Known { mark, id, .. }) in &self.files {
            let Mark { device, inode, length, modified, changed } = mark;
            head.clear();
            let _ = write!(head, "{device} {inode} {length} {modified} {changed} {id} ");
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(path);
            bytes.push(0);
        }
        durable::exchange(file, &bytes)
    }
}

fn parse(line: &[u8]) -> Option<(Vec<u8>, Mark, Id)> {
    let mut parts = line.splitn(7, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (device, inode) = (text()?.parse().ok()?, text()?.parse().ok()?);
    let length = text()?.parse().ok()?;
    let (modified, changed) = (text()?.parse().ok()?, text()?.parse().ok()?);
    let id = Id::parse(text()?)?;
    Some((parts.next()?.to_owned(), Mark { device, inode, length, modified, changed }, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_1_a_file_changed_in_the_same_tick_is_read_again() {
        let mark = |changed| Mark { device: 1, inode: 2, length: 3, modified: 0, changed };
        let (id, now) = (Id::of(b"x"), 5 * SECOND + 500);
        let known = |changed| {
            let mut index = Index::default();
            index.note(b"p", mark(changed), id, now);
            index.find(b"p", &mark(changed))
        };
        assert_eq!(known(now), None);
        assert_eq!(known(now - TICK), None);
        assert_eq!(known(now - TICK - 1), Some(id));
        // A whole second is what a file system without fractions gives.
        assert_eq!(known(4 * SECOND), None);
        assert_eq!(known(3 * SECOND), Some(id));
    }
}
