//! Restores a directory to a snapshot: differences are created, changed or removed, and nothing else is touched.
//!
//! Every operation is relative to the descriptor of a directory that is not a symlink, so it cannot leave the workspace.
//! All needed objects are checked before the first change, and an interrupted restore can be repeated.

use super::object_store::{CancelCheck, ObjectStore};
use super::tree::{
    self, EntryKind, EntryPair, FileOwner, SPECIAL_BITS, TreeEntry, join_tree_path, pair_entries,
};
use super::workspace_walk::{open_subdirectory, permission_bits};
use super::{
    CONTROL_DIR_NAME, SnapshotDiff, SnapshotError, SnapshotStore, check_cancelled, open_workspace,
};
use delta_base::durable::{self, FileError};
use delta_base::id::SnapshotId;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::strip_terminal_controls;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const NEW_FILE_FLAGS: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// For a file whose mode is changed.
const EXISTING_FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The permissions that the owner needs to change the entries of a directory.
const OWNER_BITS: u32 = 0o700;

/// A restore from one snapshot to another whose objects have been checked.
#[derive(Debug, Clone)]
pub struct RestorePlan {
    current: SnapshotId,
    target: SnapshotId,
    /// The changes that the restore makes.
    pub diff: SnapshotDiff,
}

impl SnapshotStore {
    /// Plans the restore from the snapshot `current` to `target`.
    ///
    /// # Errors
    /// An object is missing or damaged, or an omitted path would be overwritten. Nothing was changed.
    pub fn plan_restore(
        &mut self,
        current: SnapshotId,
        target: SnapshotId,
        cancel: Option<&CancelToken>,
    ) -> Result<RestorePlan, SnapshotError> {
        let mut diff = self.diff(current, target)?;
        if self.leaves_git {
            diff.changes.retain(|change| !change.path.split(|byte| *byte == b'/').any(is_git));
        }
        let damage = self.find_restore_damage(&diff, &|| check_cancelled(cancel))?;
        if !damage.is_empty() {
            return Err(SnapshotError::Damaged(damage));
        }
        let blocked = blocked_paths(&diff);
        if !blocked.is_empty() {
            return Err(SnapshotError::Blocked(blocked));
        }
        Ok(RestorePlan { current, target, diff })
    }

    fn find_restore_damage(
        &mut self,
        diff: &SnapshotDiff,
        check_cancelled: CancelCheck<'_>,
    ) -> Result<Vec<String>, SnapshotError> {
        let mut checked = HashSet::new();
        let mut damage = Vec::new();
        for change in &diff.changes {
            let before = content_id(change.before.as_ref());
            let after = content_id(change.after.as_ref());
            if before == after {
                continue;
            }
            let path = display_path(&change.path);
            if let Some(id) = after.filter(|id| checked.insert(*id))
                && let Some(reason) = self.objects.find_damage(id, check_cancelled)?
            {
                damage.push(format!("{path}: {reason}"));
            }
            // A content that the restore removes must be intact too, or the restore could not be undone.
            if let Some(id) = before.filter(|id| checked.insert(*id))
                && let Some(reason) = self.objects.find_damage(id, check_cancelled)?
            {
                damage.push(format!(
                    "{path}: {reason}; delete that file, and the current content is stored again"
                ));
            }
        }
        Ok(damage)
    }

    /// Applies a plan to the workspace, whose snapshot must be the plan's current one.
    ///
    /// # Errors
    /// A path could not be changed, or cancellation was requested. The changes so far stay; planning and applying the
    /// restore again makes the rest.
    pub fn apply_restore(
        &self,
        plan: &RestorePlan,
        workspace: &Path,
        cancel: Option<&CancelToken>,
    ) -> Result<(), SnapshotError> {
        self.apply_restore_with(plan, workspace, &|| check_cancelled(cancel))
    }

    pub(super) fn apply_restore_with(
        &self,
        plan: &RestorePlan,
        workspace: &Path,
        check_cancelled: CancelCheck<'_>,
    ) -> Result<(), SnapshotError> {
        let root = open_workspace(workspace)?;
        let before = tree::read_tree(&self.objects, plan.current)?;
        let after = tree::read_tree(&self.objects, plan.target)?;
        let restore = WorkspaceRestore {
            objects: &self.objects,
            workspace,
            check_cancelled,
            keeps_special_bits: self.keeps_special_bits,
            leaves_git: self.leaves_git,
        };
        restore.restore_directory(Place { dir: &root, path: &[] }, &before, &after, None)
    }

    /// Takes a snapshot of `directory`, restores it to `target`, and returns the changes.
    ///
    /// # Errors
    /// As for [`SnapshotStore::plan_restore`] and [`SnapshotStore::apply_restore`].
    pub fn restore(
        &mut self,
        target: SnapshotId,
        directory: &Path,
        secrets: &Secrets,
        cancel: Option<&CancelToken>,
    ) -> Result<SnapshotDiff, SnapshotError> {
        let current = self.take(directory, secrets, cancel)?.tree;
        let plan = self.plan_restore(current, target, cancel)?;
        self.apply_restore(&plan, directory, cancel)?;
        Ok(plan.diff)
    }
}

/// The content of a file or symlink.
fn content_id(entry: Option<&TreeEntry>) -> Option<SnapshotId> {
    entry.filter(|entry| entry.kind != EntryKind::Directory).map(|entry| entry.id)
}

/// The omitted paths in directories that the restore replaces by something else.
fn blocked_paths(diff: &SnapshotDiff) -> Vec<String> {
    let mut blocked = Vec::new();
    for change in &diff.changes {
        let is_directory =
            change.before.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory);
        if is_directory && content_id(change.after.as_ref()).is_some() {
            let prefix = join_tree_path(&change.path, b"");
            let paths = diff.omitted.iter().filter(|path| path.starts_with(&prefix));
            blocked.extend(paths.map(|path| display_path(path)));
        }
    }
    blocked
}

fn display_path(path: &[u8]) -> String {
    strip_terminal_controls(&String::from_utf8_lossy(path))
}

struct WorkspaceRestore<'a> {
    objects: &'a ObjectStore,
    workspace: &'a Path,
    check_cancelled: CancelCheck<'a>,
    /// See [`SnapshotStore::keep_special_bits`].
    keeps_special_bits: bool,
    /// See [`SnapshotStore::leave_git`].
    leaves_git: bool,
}

/// Whether git, or a file system without upper case, takes a name for `.git`.
fn is_git(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

type RestoreResult = Result<(), SnapshotError>;

/// An entry of a directory that is open, or the directory itself, with its path in the workspace.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: &'a OwnedFd,
    path: &'a [u8],
}

impl WorkspaceRestore<'_> {
    /// Changes the directory `at` from the entries `before` to `after`, and then to the mode of `entry`, or back to its own.
    fn restore_directory(
        &self,
        at: Place<'_>,
        before: &[TreeEntry],
        after: &[TreeEntry],
        entry: Option<&TreeEntry>,
    ) -> RestoreResult {
        let stat = rustix::fs::fstat(at.dir).map_err(self.failed_at(at.path))?;
        let current_mode = permission_bits(&stat);
        let working_mode = current_mode | OWNER_BITS;
        if working_mode != current_mode {
            self.set_mode(at.dir, at.path, working_mode)?;
        }
        let result = self.restore_entries(at, before, after);
        let final_mode = entry.map_or(current_mode, |entry| self.allowed_mode(entry, &stat));
        if final_mode == working_mode {
            return result;
        }
        // Also after an error: no snapshot has the working mode.
        result.and(self.set_mode(at.dir, at.path, final_mode))
    }

    fn restore_entries(
        &self,
        at: Place<'_>,
        before: &[TreeEntry],
        after: &[TreeEntry],
    ) -> RestoreResult {
        let temporary = unused_temporary_name(before, after);
        for pair in pair_entries(before, after) {
            (self.check_cancelled)()?;
            let is_left = pair.name() == CONTROL_DIR_NAME || self.leaves_git && is_git(pair.name());
            if pair.before != pair.after && !is_left {
                let path = join_tree_path(at.path, pair.name());
                self.restore_entry(Place { path: &path, ..at }, pair, &temporary)?;
            }
        }
        Ok(())
    }

    fn restore_entry(&self, at: Place<'_>, pair: EntryPair<'_>, temporary: &[u8]) -> RestoreResult {
        if pair.is_omitted() {
            return Ok(());
        }
        durable::check_failpoint().map_err(self.failed_at(at.path))?;
        let (before, after) = match pair {
            EntryPair { before: Some(before), after: Some(after) } => (before, after),
            EntryPair { before: Some(before), after: None } => {
                return self.remove_entry(at, before).map(drop);
            }
            EntryPair { before: None, after: Some(after) } => {
                return self.create_entry(at, after, temporary);
            }
            EntryPair { before: None, after: None } => return Ok(()),
        };
        match (before.kind, after.kind) {
            (EntryKind::Directory, EntryKind::Directory) => {
                let dir = &self.open_directory(at, &after.name)?;
                if before.id == after.id {
                    return self.restore_directory(Place { dir, ..at }, &[], &[], Some(after));
                }
                let old = tree::read_tree(self.objects, before.id)?;
                let new = tree::read_tree(self.objects, after.id)?;
                self.restore_directory(Place { dir, ..at }, &old, &new, Some(after))
            }
            (EntryKind::File, EntryKind::File) if before.id == after.id => {
                let file =
                    rustix::fs::openat(at.dir, &*after.name, EXISTING_FILE_FLAGS, Mode::empty())
                        .map_err(self.failed_at(at.path))?;
                self.set_entry_mode(&file, at.path, after)
            }
            (EntryKind::Directory, _) | (_, EntryKind::Directory) => {
                self.remove_entry(at, before)?;
                self.create_entry(at, after, temporary)
            }
            // The rename replaces the old entry at once.
            _ => self.create_entry(at, after, temporary),
        }
    }

    fn create_entry(&self, at: Place<'_>, entry: &TreeEntry, temporary: &[u8]) -> RestoreResult {
        let name = entry.name.as_slice();
        if entry.kind == EntryKind::Directory {
            rustix::fs::mkdirat(at.dir, name, durable::mode_from_bits(OWNER_BITS))
                .map_err(self.failed_at(at.path))?;
            let dir = &self.open_directory(at, name)?;
            let entries = tree::read_tree(self.objects, entry.id)?;
            return self.restore_directory(Place { dir, ..at }, &[], &entries, Some(entry));
        }
        let result = match entry.kind {
            EntryKind::Symlink => self.create_symlink(at, entry, temporary),
            _ => self.create_file(at, entry, temporary),
        }
        .and_then(|()| {
            rustix::fs::renameat(at.dir, temporary, at.dir, name).map_err(self.failed_at(at.path))
        });
        if result.is_ok() {
            return result;
        }
        let _ = rustix::fs::unlinkat(at.dir, temporary, AtFlags::empty());
        // A mount point, as of a container, cannot be replaced, only written.
        let is_mount_point = matches!(&result, Err(SnapshotError::File(error))
            if Errno::from_io_error(&error.source) == Some(Errno::BUSY));
        if is_mount_point && entry.kind == EntryKind::File {
            return self.overwrite_file(at, entry);
        }
        result
    }

    fn overwrite_file(&self, at: Place<'_>, entry: &TreeEntry) -> RestoreResult {
        let mut content = self.objects.open_object(entry.id)?;
        let flags = EXISTING_FILE_FLAGS.union(OFlags::RDWR);
        let fd = rustix::fs::openat(at.dir, &*entry.name, flags, Mode::empty())
            .map_err(self.failed_at(at.path))?;
        let mut file = File::from(fd);
        file.set_len(0).map_err(self.failed_at(at.path))?;
        durable::copy_with_holes(&mut content, &mut file).map_err(self.failed_at(at.path))?;
        self.set_entry_mode(file, at.path, entry)
    }

    fn create_symlink(&self, at: Place<'_>, entry: &TreeEntry, temporary: &[u8]) -> RestoreResult {
        let target =
            self.objects.read(entry.id).map_err(|reason| SnapshotError::Damaged(vec![reason]))?;
        rustix::fs::symlinkat(&*target, at.dir, temporary).map_err(self.failed_at(at.path))
    }

    fn create_file(&self, at: Place<'_>, entry: &TreeEntry, temporary: &[u8]) -> RestoreResult {
        let mut content = self.objects.open_object(entry.id)?;
        let fd = rustix::fs::openat(at.dir, temporary, NEW_FILE_FLAGS, Mode::from_raw_mode(0o600))
            .map_err(self.failed_at(at.path))?;
        let mut file = File::from(fd);
        durable::copy_with_holes(&mut content, &mut file).map_err(self.failed_at(at.path))?;
        keep_owner(at.dir, &entry.name, &file);
        // After the owner, whose change takes setuid and setgid away.
        self.set_entry_mode(&file, at.path, entry)
    }

    /// Removes an entry; false when it is a directory that stays because it contains an omitted path.
    fn remove_entry(&self, at: Place<'_>, entry: &TreeEntry) -> Result<bool, SnapshotError> {
        let name = entry.name.as_slice();
        if entry.kind != EntryKind::Directory {
            return match rustix::fs::unlinkat(at.dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(true),
                Err(error) => Err(self.failed_at(at.path)(error)),
            };
        }
        let dir = &self.open_directory(at, name)?;
        if entry.mode & OWNER_BITS != OWNER_BITS {
            self.set_mode(dir, at.path, entry.mode | OWNER_BITS)?;
        }
        let mut is_empty = true;
        for child in tree::read_tree(self.objects, entry.id)? {
            (self.check_cancelled)()?;
            let path = &join_tree_path(at.path, &child.name);
            is_empty &=
                !child.kind.is_omitted() && self.remove_entry(Place { dir, path }, &child)?;
        }
        if is_empty {
            match rustix::fs::unlinkat(at.dir, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(true),
                // An entry was created after the snapshot.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(error) => return Err(self.failed_at(at.path)(error)),
            }
        }
        self.set_mode(dir, at.path, entry.mode).map(|()| false)
    }

    fn open_directory(&self, at: Place<'_>, name: &[u8]) -> Result<OwnedFd, SnapshotError> {
        open_subdirectory(at.dir, name).map_err(self.failed_at(at.path))
    }

    /// Gives a file the mode of `entry`, as far as its owner allows it.
    fn set_entry_mode(&self, file: impl AsFd, path: &[u8], entry: &TreeEntry) -> RestoreResult {
        let stat = rustix::fs::fstat(&file).map_err(self.failed_at(path))?;
        self.set_mode(file, path, self.allowed_mode(entry, &stat))
    }

    /// The mode of `entry`, without setuid and setgid for a file of another owner: root that restores a user's program
    /// would make it a program with the rights of root.
    fn allowed_mode(&self, entry: &TreeEntry, stat: &Stat) -> u32 {
        let is_same_owner = entry.owner == Some(FileOwner::of(stat));
        if self.keeps_special_bits && is_same_owner {
            return entry.mode;
        }
        // A new directory inherits setgid from its parent, with the group.
        let inherited = permission_bits(stat) & SPECIAL_BITS & entry.mode;
        match entry.kind {
            EntryKind::Directory => entry.mode & !SPECIAL_BITS | inherited,
            _ => entry.mode & !SPECIAL_BITS,
        }
    }

    fn set_mode(&self, file: impl AsFd, path: &[u8], mode: u32) -> RestoreResult {
        rustix::fs::fchmod(file, durable::mode_from_bits(mode)).map_err(self.failed_at(path))
    }

    /// The error of the restore for an error of the system at `path`.
    fn failed_at<E: Into<io::Error>>(&self, path: &[u8]) -> impl Fn(E) -> SnapshotError {
        move |error| {
            let path = self.workspace.join(OsStr::from_bytes(path));
            FileError { action: "restore", path, source: error.into() }.into()
        }
    }
}

/// Gives `file` the owner and the group of the file `name` in `dir`, which it is about to replace, as far as the system
/// allows it: without that, root would take the files of a user away.
fn keep_owner(dir: &OwnedFd, name: &[u8], file: &File) {
    let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return;
    }
    // Separately: a user may keep a group of theirs, and gives no file away.
    let _ = rustix::fs::fchown(file, None, Some(Gid::from_raw(stat.st_gid)));
    let _ = rustix::fs::fchown(file, Some(Uid::from_raw(stat.st_uid)), None);
}

/// A name that neither list has, for an entry before it is renamed.
fn unused_temporary_name(before: &[TreeEntry], after: &[TreeEntry]) -> Vec<u8> {
    let mut name = b".delta-restore".to_vec();
    while before.iter().chain(after).any(|entry| entry.name == name) {
        name.push(b'_');
    }
    name
}
