//! Walks a workspace and stores its entries, by the descriptors of its directories, so that no symlink leads out of it.

use super::directory_hash::SkipRule;
use super::exclude_patterns::ExcludePatterns;
use super::file_index::{FileIndex, FileStamp};
use super::object_store::{CancelCheck, ObjectStore, StoredFile};
use super::tree::{self, EntryKind, FileOwner, TreeEntry, join_tree_path};
use super::{CONTROL_DIR_NAME, OmittedPath, SnapshotError};
use delta_base::durable::{self, FileError};
use delta_base::id::SnapshotId;
use delta_base::redact::Secrets;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How often a file is read that changes meanwhile.
const MAX_READ_ATTEMPTS: u32 = 3;

/// Opens a directory, but not a symlink to one.
pub(super) const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Opens a file without waiting, in case a pipe has replaced it.
pub(super) const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) struct WorkspaceWalk<'a> {
    pub objects: &'a mut ObjectStore,
    pub index: &'a mut FileIndex,
    /// The directories in the last snapshot.
    pub previous: DirectoryCache,
    /// The directories in this snapshot.
    pub current: DirectoryCache,
    pub exclude: &'a ExcludePatterns,
    /// The paths that leave no entry.
    pub skips: SkipRule<'a>,
    pub secrets: &'a Secrets,
    /// The paths in which earlier processes have found a secret.
    pub secret_paths: HashSet<Vec<u8>>,
    /// The `secret_paths` that still exist.
    pub remaining_secret_paths: HashSet<Vec<u8>>,
    pub check_cancelled: CancelCheck<'a>,
    pub workspace: &'a Path,
    /// The file system's time before the walk.
    pub now: i128,
    pub files: u64,
    pub bytes: u64,
    pub omitted: Vec<OmittedPath>,
}

/// Directories by path.
pub(super) type DirectoryCache = HashMap<Vec<u8>, CachedDirectory>;

#[derive(Debug)]
pub(super) struct CachedDirectory {
    pub entries: Vec<TreeEntry>,
    tree: SnapshotId,
}

/// The result for one name.
enum WalkedEntry {
    Stored(TreeEntry),
    /// The name no longer exists.
    Gone,
    /// The reason why the content is not stored.
    Omitted(String),
    /// The same, for a path that contains a secret, or did.
    Secret(&'static str),
}

type WalkResult = Result<WalkedEntry, SnapshotError>;

impl WorkspaceWalk<'_> {
    /// Stores the directory `dir` at `path`; returns the id of its tree.
    pub fn walk_directory(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
    ) -> Result<SnapshotId, SnapshotError> {
        let names = list_names(dir).map_err(|error| self.walk_error(path, error))?;
        self.walk_names(dir, path, names)
    }

    fn walk_names(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
        names: Vec<Vec<u8>>,
    ) -> Result<SnapshotId, SnapshotError> {
        let mut entries = Vec::new();
        for name in &names {
            (self.check_cancelled)()?;
            let path = join_tree_path(path, name);
            if (self.skips)(&path, &names) {
                continue;
            }
            entries.extend(self.walk_entry(dir, &path, name)?);
        }
        let unchanged = self.previous.remove(path).filter(|directory| directory.entries == entries);
        let tree = match unchanged {
            Some(directory) => directory.tree,
            None => tree::write_tree(self.objects, &entries)?,
        };
        self.current.insert(path.to_owned(), CachedDirectory { entries, tree });
        Ok(tree)
    }

    fn walk_entry(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
        name: &[u8],
    ) -> Result<Option<TreeEntry>, SnapshotError> {
        if name == CONTROL_DIR_NAME {
            // Nested runs have their own records, which only grow. The workspace's own records are not part of it.
            return Ok((path != name).then(|| TreeEntry::omitted(name, EntryKind::Omitted)));
        }
        if self.exclude.matches(path, name) {
            return Ok(Some(TreeEntry::omitted(name, EntryKind::Omitted)));
        }
        let walked = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if self.is_known_secret(path, &stat) => {
                WalkedEntry::Secret("it held a key before")
            }
            Ok(stat) => match self.find_unchanged(path, name, &stat) {
                Some(entry) => WalkedEntry::Stored(entry),
                None if self.secrets.occur_in(&String::from_utf8_lossy(name)) => {
                    // Even an omitted entry has its name in the tree.
                    self.record_omitted(path, "its name holds a key".to_owned());
                    return Ok(None);
                }
                None => self.read_entry(dir, path, name, &stat)?,
            },
            Err(error) => entry_from_errno(error),
        };
        Ok(match walked {
            WalkedEntry::Stored(entry) => {
                self.files += u64::from(entry.kind == EntryKind::File);
                self.bytes += entry.length;
                Some(entry)
            }
            WalkedEntry::Gone => None,
            WalkedEntry::Omitted(reason) => {
                self.record_omitted(path, reason);
                Some(TreeEntry::omitted(name, EntryKind::Omitted))
            }
            WalkedEntry::Secret(reason) => {
                self.record_omitted(path, reason.to_owned());
                Some(TreeEntry::omitted(name, EntryKind::Secret))
            }
        })
    }

    /// Whether an earlier process has found a secret at `path`, which this process may not know.
    fn is_known_secret(&mut self, path: &[u8], stat: &Stat) -> bool {
        // A directory that has replaced the file is walked; each path in it is checked by itself.
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return false;
        }
        self.secret_paths.take(path).is_some_and(|path| self.remaining_secret_paths.insert(path))
    }

    /// The entry of a file that is unchanged since it was last read.
    fn find_unchanged(&mut self, path: &[u8], name: &[u8], stat: &Stat) -> Option<TreeEntry> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let stamp = FileStamp::from_stat(stat);
        let id = self.index.find(path, &stamp)?;
        Some(file_entry(name, stat, id, stamp.length()))
    }

    fn read_entry(&mut self, dir: &OwnedFd, path: &[u8], name: &[u8], stat: &Stat) -> WalkResult {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.read_file(dir, path, name),
            FileType::Directory => self.read_directory(dir, path, name, stat),
            FileType::Symlink => self.read_symlink(dir, name),
            FileType::Fifo => Ok(WalkedEntry::Omitted("it is a pipe".to_owned())),
            FileType::Socket => Ok(WalkedEntry::Omitted("it is a socket".to_owned())),
            _ => Ok(WalkedEntry::Omitted("it is a device".to_owned())),
        }
    }

    fn read_file(&mut self, dir: &OwnedFd, path: &[u8], name: &[u8]) -> WalkResult {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let opened = rustix::fs::openat(dir, name, FILE_FLAGS, Mode::empty())
                .and_then(|fd| rustix::fs::fstat(&fd).map(|stat| (File::from(fd), stat)));
            let (mut file, stat) = match opened {
                Ok(opened) => opened,
                Err(error) => return Ok(entry_from_errno(error)),
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Ok(WalkedEntry::Omitted("it is no longer a regular file".to_owned()));
            }
            let (id, length) =
                match self.objects.insert_file(&mut file, self.secrets, self.check_cancelled)? {
                    StoredFile::Stored(id, length) => (id, length),
                    StoredFile::Secret => return Ok(WalkedEntry::Secret("it holds a key")),
                    StoredFile::Unreadable(error) => {
                        return Ok(WalkedEntry::Omitted(error.to_string()));
                    }
                };
            let stamp = FileStamp::from_stat(&stat);
            let is_unchanged =
                rustix::fs::fstat(&file).is_ok_and(|after| FileStamp::from_stat(&after) == stamp);
            if is_unchanged {
                self.index.insert(path, stamp, id, self.now);
            }
            // A file that never rests is stored as it was read last: no state of it is better than another.
            if is_unchanged || attempts == MAX_READ_ATTEMPTS {
                return Ok(WalkedEntry::Stored(file_entry(name, &stat, id, length)));
            }
        }
    }

    fn read_directory(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
        name: &[u8],
        stat: &Stat,
    ) -> WalkResult {
        let opened = open_stored_subdirectory(dir, name)
            .and_then(|subdir| list_names(&subdir).map(|names| (subdir, names)));
        let (subdir, names) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(entry_from_errno(error)),
        };
        Ok(WalkedEntry::Stored(TreeEntry {
            name: name.to_owned(),
            kind: EntryKind::Directory,
            mode: permission_bits(stat),
            owner: FileOwner::of_special_mode(stat),
            length: 0,
            id: self.walk_names(&subdir, path, names)?,
        }))
    }

    fn read_symlink(&mut self, dir: &OwnedFd, name: &[u8]) -> WalkResult {
        let target = match rustix::fs::readlinkat(dir, name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            Err(error) => return Ok(entry_from_errno(error)),
        };
        if self.secrets.occur_in(&String::from_utf8_lossy(&target)) {
            return Ok(WalkedEntry::Secret("it holds a key"));
        }
        Ok(WalkedEntry::Stored(TreeEntry {
            name: name.to_owned(),
            kind: EntryKind::Symlink,
            mode: 0,
            owner: None,
            length: target.len() as u64,
            id: self.objects.insert(&target)?,
        }))
    }

    fn record_omitted(&mut self, path: &[u8], reason: String) {
        self.omitted.push(OmittedPath { path: path.to_owned(), reason });
    }

    fn walk_error(&self, path: &[u8], error: Errno) -> FileError {
        let path = self.workspace.join(OsStr::from_bytes(path));
        FileError { action: "read", path, source: error.into() }
    }
}

/// Opens a directory in `dir`, but not a symlink to one.
pub(super) fn open_subdirectory(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, DIRECTORY_FLAGS, Mode::empty())
}

/// Opens a directory in `dir`, but not a symlink to one; `XDEV` where the kernel shows its state, as in /proc.
pub(super) fn open_stored_subdirectory(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let subdir = open_subdirectory(dir, name)?;
    let is_mount = rustix::fs::fstat(&subdir)?.st_dev != rustix::fs::fstat(dir)?.st_dev;
    if is_mount && durable::shows_kernel_state(&subdir) { Err(Errno::XDEV) } else { Ok(subdir) }
}

/// The names in a directory, sorted.
pub(super) fn list_names(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
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

fn file_entry(name: &[u8], stat: &Stat, id: SnapshotId, length: u64) -> TreeEntry {
    TreeEntry {
        name: name.to_owned(),
        kind: EntryKind::File,
        mode: permission_bits(stat),
        owner: FileOwner::of_special_mode(stat),
        length,
        id,
    }
}

/// The permission bits, with setuid, setgid and sticky.
#[allow(clippy::unnecessary_cast, reason = "only on Linux has the field this type")]
pub(super) fn permission_bits(stat: &Stat) -> u32 {
    stat.st_mode as u32 & 0o7777
}

fn entry_from_errno(error: Errno) -> WalkedEntry {
    match error {
        Errno::NOENT => WalkedEntry::Gone,
        Errno::XDEV => WalkedEntry::Omitted("it shows the state of the kernel".to_owned()),
        error => WalkedEntry::Omitted(error.to_string()),
    }
}
