//! Bringing a directory to a snapshot, exactly: what differs is made, changed or removed, and nothing else is touched.
//!
//! Everything is done below descriptors of directories that are no symlinks, so nothing outside is reached. What is
//! needed is seen to be whole before the first change, and a restore that was interrupted is simply done once more.

use super::objects::{GoOn, Id, Objects};
use super::tree::{self, Entry, Kind, Pair, join, pairs};
use super::walk::{DIRECTORY, mode_of};
use super::{CONTROL, Difference, SnapshotError, Store, go_on, open_root};
use crate::durable::FileError;
use crate::signal::Cancel;
use crate::text::{Secrets, printable};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A file that is made or put in the place of another.
const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// A file whose rights are changed.
const PRESENT_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What the owner needs in a directory to change what is in it.
const OWNER: u32 = 0o700;

/// A way from one snapshot to another of which all is there that it needs.
#[derive(Debug, Clone)]
pub struct Plan {
    present: Id,
    target: Id,
    /// What it changes.
    pub difference: Difference,
}

impl Store {
    /// The way from `present` to `target`.
    ///
    /// # Errors
    /// Something that it needs is missing or damaged, or what is in no snapshot is in the way.
    pub fn plan(
        &mut self,
        present: Id,
        target: Id,
        cancel: Option<&Cancel>,
    ) -> Result<Plan, SnapshotError> {
        let difference = self.compare(present, target)?;
        let (mut seen, mut damage, mut blocked) = (HashSet::new(), Vec::new(), Vec::new());
        for change in &difference.changes {
            let id = |entry: &Option<Entry>| {
                entry.as_ref().filter(|entry| entry.kind != Kind::Directory).map(|entry| entry.id)
            };
            let needed = id(&change.after).filter(|needed| id(&change.before) != Some(*needed));
            if let Some(id) = needed.filter(|id| seen.insert(*id))
                && let Err(why) = self.objects.check(id, &|| go_on(cancel))?
            {
                damage.push(format!("{}: {why}", shown(&change.path)));
            }
            // What is about to go has to be kept whole, or nobody could bring it back.
            let lost = id(&change.before).filter(|lost| id(&change.after) != Some(*lost));
            if let Some(id) = lost.filter(|id| seen.insert(*id))
                && let Err(why) = self.objects.check(id, &|| go_on(cancel))?
            {
                let path = shown(&change.path);
                damage.push(format!("{path}: {why}; delete that, and what is there is kept anew"));
            }
            let was_directory = change.before.as_ref().is_some_and(|it| it.kind == Kind::Directory);
            if was_directory && change.after.is_some() && id(&change.after).is_some() {
                let below = join(&change.path, b"");
                let held = difference.left_out.iter().filter(|path| path.starts_with(&below));
                blocked.extend(held.map(|path| shown(path)));
            }
        }
        match (damage.is_empty(), blocked.is_empty()) {
            (false, _) => Err(SnapshotError::Damaged(damage)),
            (_, false) => Err(SnapshotError::InTheWay(blocked)),
            _ => Ok(Plan { present, target, difference }),
        }
    }

    /// Goes a way, in the directory whose snapshot its beginning is.
    ///
    /// # Errors
    /// Something could not be changed, or the stop was asked for: what was done until then stays, and the same restore,
    /// planned again, does the rest.
    pub fn apply(
        &self,
        plan: &Plan,
        workspace: &Path,
        cancel: Option<&Cancel>,
    ) -> Result<(), SnapshotError> {
        self.go(plan, workspace, &|| go_on(cancel))
    }

    pub(super) fn go(
        &self,
        plan: &Plan,
        workspace: &Path,
        go_on: GoOn<'_>,
    ) -> Result<(), SnapshotError> {
        let root = open_root(workspace)?;
        let before = tree::read(&self.objects, plan.present)?;
        let after = tree::read(&self.objects, plan.target)?;
        let restore = Restore { objects: &self.objects, workspace, go_on };
        restore.directory(&root, &[], (&before, &after), None)
    }

    /// Brings `directory` to `target`, whatever it holds now; gives what that changed.
    ///
    /// # Errors
    /// As for [`Store::plan`], when nothing was changed, and [`Store::apply`].
    pub fn restore(
        &mut self,
        target: Id,
        directory: &Path,
        secrets: &Secrets,
        cancel: Option<&Cancel>,
    ) -> Result<Difference, SnapshotError> {
        let present = self.take(directory, secrets, cancel)?.tree;
        let plan = self.plan(present, target, cancel)?;
        self.apply(&plan, directory, cancel)?;
        Ok(plan.difference)
    }
}

/// A path for people.
fn shown(path: &[u8]) -> String {
    printable(&String::from_utf8_lossy(path))
}

struct Restore<'a> {
    objects: &'a Objects,
    workspace: &'a Path,
    go_on: GoOn<'a>,
}

type Done = Result<(), SnapshotError>;

impl Restore<'_> {
    /// Brings the directory `dir` from the one list of entries to the other, and then to its mode.
    fn directory(
        &self,
        dir: &OwnedFd,
        path: &[u8],
        (before, after): (&[Entry], &[Entry]),
        mode: Option<u32>,
    ) -> Done {
        let stat = rustix::fs::fstat(dir).map_err(|error| self.failed(path, error))?;
        let present = mode_of(&stat);
        let during = present | OWNER;
        if during != present {
            self.set_mode(dir, path, during)?;
        }
        let done = self.entries(dir, path, before, after);
        // Also after an error: that it could be written meanwhile is no part of any snapshot.
        match mode.unwrap_or(present) {
            wanted if wanted == during => done,
            wanted => done.and(self.set_mode(dir, path, wanted)),
        }
    }

    fn entries(&self, dir: &OwnedFd, path: &[u8], before: &[Entry], after: &[Entry]) -> Done {
        let temporary = free_name(before, after);
        for pair in pairs(before, after) {
            (self.go_on)()?;
            let name = pair.0.or(pair.1).map(|entry| entry.name.as_slice()).unwrap_or_default();
            if pair.0 != pair.1 && name != CONTROL {
                self.entry(dir, &join(path, name), pair, &temporary)?;
            }
        }
        Ok(())
    }

    fn entry(&self, dir: &OwnedFd, path: &[u8], pair: Pair<'_>, temporary: &[u8]) -> Done {
        use Kind::{Directory, File};
        match (pair.0.map(|entry| (entry, entry.kind)), pair.1.map(|entry| (entry, entry.kind))) {
            (None, None) => Ok(()),
            (Some((_, kind)), _) | (_, Some((_, kind))) if kind.is_left_out() => Ok(()),
            (Some((before, _)), None) => self.remove(dir, path, before).map(|_| ()),
            (Some((before, Directory)), Some((after, Directory))) => {
                let below = self.open(dir, path, &after.name)?;
                let (mut old, mut new) = (Vec::new(), Vec::new());
                if before.id != after.id {
                    old = tree::read(self.objects, before.id)?;
                    new = tree::read(self.objects, after.id)?;
                }
                self.directory(&below, path, (&old, &new), Some(after.mode))
            }
            (Some((before, File)), Some((after, File))) if before.id == after.id => {
                let file = rustix::fs::openat(dir, &*after.name, PRESENT_FILE, Mode::empty())
                    .map_err(|error| self.failed(path, error))?;
                self.set_mode(&file, path, after.mode)
            }
            (Some((before, kind)), Some((after, wanted)))
                if kind == Directory || wanted == Directory =>
            {
                self.remove(dir, path, before)?;
                self.create(dir, path, after, temporary)
            }
            // A rename takes the place of what is there at once.
            (_, Some((after, _))) => self.create(dir, path, after, temporary),
        }
    }

    fn create(&self, dir: &OwnedFd, path: &[u8], entry: &Entry, temporary: &[u8]) -> Done {
        let name = entry.name.as_slice();
        if entry.kind == Kind::Directory {
            rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(OWNER))
                .map_err(|error| self.failed(path, error))?;
            let below = self.open(dir, path, name)?;
            let entries = tree::read(self.objects, entry.id)?;
            return self.directory(&below, path, (&[], &entries), Some(entry.mode));
        }
        let made = match entry.kind {
            Kind::Symlink => self.symlink(dir, path, entry, temporary),
            _ => self.file(dir, path, entry, temporary),
        };
        let placed = made.and_then(|()| {
            rustix::fs::renameat(dir, temporary, dir, name)
                .map_err(|error| self.failed(path, error).into())
        });
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
        }
        placed
    }

    fn symlink(&self, dir: &OwnedFd, path: &[u8], entry: &Entry, temporary: &[u8]) -> Done {
        let target =
            self.objects.read(entry.id).map_err(|why| SnapshotError::Damaged(vec![why]))?;
        rustix::fs::symlinkat(&*target, dir, temporary)
            .map_err(|error| self.failed(path, error).into())
    }

    fn file(&self, dir: &OwnedFd, path: &[u8], entry: &Entry, temporary: &[u8]) -> Done {
        let mut content = self.objects.file(entry.id)?;
        let made = rustix::fs::openat(dir, temporary, NEW_FILE, Mode::from_raw_mode(0o600))
            .map_err(|error| self.failed(path, error))?;
        let mut file = File::from(made);
        let copied = std::io::copy(&mut content, &mut file);
        copied.map_err(|source| self.error(path, source))?;
        self.set_mode(&file, path, entry.mode)
    }

    /// Removes what is there; false when something in it is left out, so that it stays.
    fn remove(&self, dir: &OwnedFd, path: &[u8], entry: &Entry) -> Result<bool, SnapshotError> {
        let name = entry.name.as_slice();
        if entry.kind != Kind::Directory {
            return match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(true),
                Err(error) => Err(self.failed(path, error).into()),
            };
        }
        let below = self.open(dir, path, name)?;
        if entry.mode & OWNER != OWNER {
            self.set_mode(&below, path, entry.mode | OWNER)?;
        }
        let mut empty = true;
        for child in tree::read(self.objects, entry.id)? {
            (self.go_on)()?;
            let kept = child.kind.is_left_out()
                || !self.remove(&below, &join(path, &child.name), &child)?;
            empty &= !kept;
        }
        let removed = match empty {
            true => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR),
            false => Err(Errno::NOTEMPTY),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            // Something that is in no snapshot, or came after it.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                self.set_mode(&below, path, entry.mode).map(|()| false)
            }
            Err(error) => Err(self.failed(path, error).into()),
        }
    }

    fn open(&self, dir: &OwnedFd, path: &[u8], name: &[u8]) -> Result<OwnedFd, SnapshotError> {
        rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())
            .map_err(|error| self.failed(path, error).into())
    }

    fn set_mode(&self, file: impl std::os::fd::AsFd, path: &[u8], mode: u32) -> Done {
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
            .map_err(|error| self.failed(path, error).into())
    }

    fn failed(&self, path: &[u8], error: Errno) -> FileError {
        self.error(path, error.into())
    }

    fn error(&self, path: &[u8], source: std::io::Error) -> FileError {
        FileError { action: "put back", path: self.workspace.join(OsStr::from_bytes(path)), source }
    }
}

/// A name that neither list has, for what is made before it takes its place.
fn free_name(before: &[Entry], after: &[Entry]) -> Vec<u8> {
    let taken = |name: &[u8]| {
        let has = |entries: &[Entry]| entries.binary_search_by(|it| it.name.as_slice().cmp(name));
        has(before).is_ok() || has(after).is_ok()
    };
    let mut name = b".delta-restore".to_vec();
    while taken(&name) {
        name.push(b'_');
    }
    name
}
