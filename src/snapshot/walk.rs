//! The workspace as it is: every name below it, by its directory's descriptor, so that no symlink leads out of it.

use super::exclude::Exclude;
use super::index::{Index, Mark};
use super::objects::{GoOn, Id, Objects, Stored};
use super::tree::{self, Entry, Kind, join};
use super::{CONTROL, LeftOut, SnapshotError};
use crate::durable::FileError;
use crate::text::Secrets;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How often a file that changes while it is read is read once more.
const TRIES: u32 = 3;

/// How a directory is opened that must be one itself, and no symlink to one.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How a file is opened: what took its place meanwhile is not waited for.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// One look at a workspace.
pub(super) struct Walk<'a> {
    pub objects: &'a mut Objects,
    pub index: &'a mut Index,
    /// The directories at the last look, by their paths.
    pub before: Directories,
    /// And now.
    pub seen: Directories,
    pub exclude: &'a Exclude,
    pub secrets: &'a Secrets,
    /// What is known to hold a secret that this process need not know, unless it was gone meanwhile.
    pub withheld: HashSet<Vec<u8>>,
    /// And is there still.
    pub still_withheld: HashSet<Vec<u8>>,
    pub go_on: GoOn<'a>,
    pub workspace: &'a Path,
    /// The file system's time before the first look.
    pub now: i128,
    pub files: u64,
    pub bytes: u64,
    pub left_out: Vec<LeftOut>,
}

/// Directories with their entries and their trees.
pub(super) type Directories = HashMap<Vec<u8>, (Vec<Entry>, Id)>;

/// What became of a name.
enum Found {
    Kept(Entry),
    /// It is gone.
    Gone,
    /// Why it is not kept.
    LeftOut(String),
    /// It is not kept, since it holds a secret, or did.
    Secret(&'static str),
}

type Outcome = Result<Found, SnapshotError>;

impl Walk<'_> {
    /// Keeps everything below `dir`, which is at `path`; gives its tree.
    pub fn directory(&mut self, dir: &OwnedFd, path: &[u8]) -> Result<Id, SnapshotError> {
        let names = names(dir).map_err(|error| self.failed(path, error))?;
        self.named(dir, path, names)
    }

    fn named(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
        names: Vec<Vec<u8>>,
    ) -> Result<Id, SnapshotError> {
        let mut entries = Vec::new();
        for name in names {
            (self.go_on)()?;
            if let Some(entry) = self.entry(dir, &join(path, &name), &name)? {
                entries.push(entry);
            }
        }
        let known = self.before.remove(path).filter(|(before, _)| *before == entries);
        let id = match known {
            Some((_, id)) => id,
            None => tree::put(self.objects, &entries)?,
        };
        self.seen.insert(path.to_owned(), (entries, id));
        Ok(id)
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
        name: &[u8],
    ) -> Result<Option<Entry>, SnapshotError> {
        if name == CONTROL {
            // A run further down keeps its own account, and it only grows. That of the workspace itself is no part of it.
            return Ok((path != name).then(|| Entry::left_out(name, Kind::LeftOut)));
        }
        if self.exclude.holds(path, name) {
            return Ok(Some(Entry::left_out(name, Kind::LeftOut)));
        }
        let found = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if self.is_withheld(path, &stat) => Found::Secret("it held a key before"),
            Ok(stat) => match self.unchanged(path, name, &stat) {
                Some(entry) => Found::Kept(entry),
                None if self.secrets.is_in(&String::from_utf8_lossy(name)) => {
                    // Its name alone would bring the secret into the tree.
                    self.leave_out(path, "its name holds a key".to_owned());
                    return Ok(None);
                }
                None => self.look(dir, path, name, &stat)?,
            },
            Err(error) => of_error(error),
        };
        Ok(match found {
            Found::Kept(entry) => {
                self.files += u64::from(entry.kind == Kind::File);
                self.bytes += entry.length;
                Some(entry)
            }
            Found::Gone => None,
            Found::LeftOut(why) => {
                self.leave_out(path, why);
                Some(Entry::left_out(name, Kind::LeftOut))
            }
            Found::Secret(why) => {
                self.leave_out(path, why.to_owned());
                Some(Entry::left_out(name, Kind::Secret))
            }
        })
    }

    /// Whether an earlier process has found a secret in it, which may well be another than those of this one.
    fn is_withheld(&mut self, path: &[u8], stat: &Stat) -> bool {
        // A directory is looked through: each path below it has its own account.
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        match (!is_directory).then(|| self.withheld.take(path)).flatten() {
            Some(path) => self.still_withheld.insert(path),
            None => false,
        }
    }

    /// The entry of a file that is as it was when it was read.
    fn unchanged(&mut self, path: &[u8], name: &[u8], stat: &Stat) -> Option<Entry> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let mark = Mark::of(stat);
        let id = self.index.find(path, &mark)?;
        Some(file_entry(name, stat, id, mark.length()))
    }

    fn look(&mut self, dir: &OwnedFd, path: &[u8], name: &[u8], stat: &Stat) -> Outcome {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(dir, path, name),
            FileType::Directory => self.below(dir, path, name, stat),
            FileType::Symlink => self.symlink(dir, name),
            FileType::Fifo => Ok(Found::LeftOut("it is a pipe".to_owned())),
            FileType::Socket => Ok(Found::LeftOut("it is a socket".to_owned())),
            _ => Ok(Found::LeftOut("it is a device".to_owned())),
        }
    }

    fn file(&mut self, dir: &OwnedFd, path: &[u8], name: &[u8]) -> Outcome {
        let mut tries = 0;
        loop {
            tries += 1;
            let file = match rustix::fs::openat(dir, name, FILE, Mode::empty()) {
                Ok(file) => file,
                Err(error) => return Ok(of_error(error)),
            };
            let mut file = File::from(file);
            let stat = match rustix::fs::fstat(&file) {
                Ok(stat) => stat,
                Err(error) => return Ok(of_error(error)),
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Ok(Found::LeftOut("it is no file any more".to_owned()));
            }
            let (id, length) = match self.objects.put_file(&mut file, self.secrets, self.go_on)? {
                Stored::Kept(id, length) => (id, length),
                Stored::Secret => return Ok(Found::Secret("it holds a key")),
                Stored::Unreadable(error) => return Ok(Found::LeftOut(error.to_string())),
            };
            let mark = Mark::of(&stat);
            let is_same = rustix::fs::fstat(&file).is_ok_and(|after| Mark::of(&after) == mark);
            if is_same {
                self.index.note(path, mark, id, self.now);
            }
            // Of a file that never rests, what was read is kept: no state of it is better than another.
            if is_same || tries == TRIES {
                return Ok(Found::Kept(file_entry(name, &stat, id, length)));
            }
        }
    }

    fn below(&mut self, dir: &OwnedFd, path: &[u8], name: &[u8], stat: &Stat) -> Outcome {
        let below = match rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()) {
            Ok(below) => below,
            Err(error) => return Ok(of_error(error)),
        };
        let names = match names(&below) {
            Ok(names) => names,
            Err(error) => return Ok(of_error(error)),
        };
        let id = self.named(&below, path, names)?;
        let (name, mode) = (name.to_owned(), mode_of(stat));
        Ok(Found::Kept(Entry { name, kind: Kind::Directory, mode, length: 0, id }))
    }

    fn symlink(&mut self, dir: &OwnedFd, name: &[u8]) -> Outcome {
        let target = match rustix::fs::readlinkat(dir, name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            Err(error) => return Ok(of_error(error)),
        };
        if self.secrets.is_in(&String::from_utf8_lossy(&target)) {
            return Ok(Found::Secret("it holds a key"));
        }
        let (id, length) = (self.objects.put(&target)?, target.len() as u64);
        let name = name.to_owned();
        Ok(Found::Kept(Entry { name, kind: Kind::Symlink, mode: 0, length, id }))
    }

    fn leave_out(&mut self, path: &[u8], why: String) {
        self.left_out.push(LeftOut { path: path.to_owned(), why });
    }

    fn failed(&self, path: &[u8], error: Errno) -> FileError {
        let path = self.workspace.join(OsStr::from_bytes(path));
        FileError { action: "read", path, source: error.into() }
    }
}

/// The names in a directory, in order.
pub(super) fn names(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_owned();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn file_entry(name: &[u8], stat: &Stat, id: Id, length: u64) -> Entry {
    Entry { name: name.to_owned(), kind: Kind::File, mode: mode_of(stat), length, id }
}

/// The permission bits.
pub(super) fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

fn of_error(error: Errno) -> Found {
    match error {
        Errno::NOENT => Found::Gone,
        error => Found::LeftOut(error.to_string()),
    }
}
