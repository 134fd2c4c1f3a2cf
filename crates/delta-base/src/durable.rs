//! Files that survive a crash: the only place that syncs, renames, locks or creates exclusively.
//!
//! A function's name states its guarantee. `synced`: durable when it returns; `unsynced`: survives the process, but
//! perhaps not a power failure. `private`: mode 0600 (directories 0700), symlinks are not followed; `shared`: the usual
//! mode, for the user's own files. `create` fails when the path exists; `replace` leaves the old or the new content.
//! After an error no partial file is left under the requested name.
//!
//! Every function that takes a path opens it through `beneath`: below `.delta`, `.sessions` and added roots no symlink
//! and no `..` is followed, whatever the function.
#![expect(clippy::disallowed_methods, reason = "the owner of syncing and renaming")]

mod append_file;
mod beneath;
mod directories;
#[cfg(feature = "failpoints")]
mod failpoints;
mod file_lock;
mod file_system;
mod file_watch;
mod regular_file;
mod shared_lines;
mod sparse;
mod writeback;

pub use append_file::{AppendFile, LogFile, LostFile, append_line_synced, append_line_unsynced};
pub use beneath::{DirEntry, OtherOwner, add_root, check_root_owner, join_beneath, mode_from_bits};
pub use directories::{
    create_private_dir_synced, ensure_private_child_dir, ensure_private_dir,
    ensure_private_dir_synced, ensure_shared_dir, ensure_shared_dir_synced, hide_from_git,
    sync_dir, sync_file_system, sync_readable_dir,
};
pub use file_lock::{FileLock, ListedLockHolder, is_locked, list_lock_holders, read_lock_holder};
pub use file_system::{
    DirectoryRoom, boot_id, inspect_room, is_on_local_file_system, shows_kernel_state,
};
pub use regular_file::{
    MAX_REGULAR_BYTES, hash_file_beneath, open_no_follow, read_beneath, read_large,
    read_large_text, read_link_beneath, read_no_follow, read_no_follow_at_most, read_regular,
    read_regular_beneath, read_regular_text, read_small_no_follow, read_start_beneath,
};
pub use shared_lines::{SharedLineFile, device_number};
pub use sparse::copy_with_holes;
use sparse::{end_with_holes, write_with_holes};

use beneath::Entry;
use directories::{parents_of_missing_dirs, sync_dir_uncounted};
use regular_file::not_regular_error;
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A failed operation on a file or directory.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}: {source}", path.display())]
pub struct FileError {
    /// The operation as a verb phrase: `write`, `create the directory`, ...
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// Why the operation failed.
    pub source: io::Error,
}

impl FileError {
    /// Makes the error of `action` on `path` from the reason, as `map_err` needs it.
    pub fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }
}

type FileResult<T> = std::result::Result<T, FileError>;

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let error = FileError::at(action, path);
    move |source| error(explain_file_error(source))
}

/// Whether this build has failpoints: the builds of tests do, because a dev-dependency turns the feature on.
pub const HAS_FAILPOINTS: bool = cfg!(feature = "failpoints");

/// Lets a test fail an operation, or kill the process just before it; does nothing without the feature `failpoints`.
///
/// # Errors
/// The error that a test asked for.
pub fn check_failpoint() -> io::Result<()> {
    #[cfg(feature = "failpoints")]
    failpoints::count_operation()?;
    Ok(())
}

const BLANK_BYTE: u8 = b'\n';
const MAX_BLANK_BYTES: u64 = 64 * 1024;

/// Flags for files that delta owns: do not follow a symlink that a tool has put there, and do not wait for the other
/// end of a pipe.
const NO_FOLLOW_NONBLOCK: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);

/// The mode of a private file.
const PRIVATE_MODE: u32 = 0o600;

/// Creates a private file for writing. Fails when the path exists.
///
/// # Errors
/// The path exists or cannot be written.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    beneath::open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, PRIVATE_MODE)
}

/// Opens a private file for writing, without following a symlink, and creates it when missing.
///
/// # Errors
/// The path cannot be written.
pub fn open_or_create_no_follow(path: &Path) -> io::Result<File> {
    open_private(path, false).map_err(explain_file_error)
}

/// The metadata of a path; of the symlink itself if it is one.
///
/// # Errors
/// The path does not exist or cannot be reached.
pub fn metadata_no_follow(path: &Path) -> io::Result<Metadata> {
    beneath::metadata(path)
}

/// Whether `path` is a directory, and not a symlink to one.
pub fn is_dir_no_follow(path: &Path) -> bool {
    metadata_no_follow(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Whether `path` is a regular file, and not a symlink to one.
pub fn is_file_no_follow(path: &Path) -> bool {
    metadata_no_follow(path).is_ok_and(|metadata| metadata.is_file())
}

/// Whether a file belongs to this user or to root: no other user can exchange what is in it.
pub fn is_own_or_roots(metadata: &Metadata) -> bool {
    metadata.uid() == current_user() || metadata.uid() == 0
}

/// The user of this process, to whom the files belong that it creates.
pub fn current_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The user who owns `path` itself, unless it is the one of this process.
pub fn owner_if_other(path: &Path) -> Option<u32> {
    let owner = metadata_no_follow(path).ok()?.uid();
    (owner != current_user()).then_some(owner)
}

/// The entries of one of delta's directories, in no order.
///
/// # Errors
/// The directory cannot be read.
pub fn read_dir_no_follow(path: &Path) -> io::Result<Vec<DirEntry>> {
    beneath::read_dir(path).map_err(explain_file_error)
}

/// The same; no entries where there is no such directory.
pub fn read_dir_if_exists(path: &Path) -> FileResult<Vec<DirEntry>> {
    match read_dir_no_follow(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(FileError::at("read", path)),
    }
}

/// Opens a directory, to change its owner or mode.
///
/// # Errors
/// It is not a directory, or cannot be opened.
pub fn open_dir_no_follow(path: &Path) -> io::Result<File> {
    beneath::open_dir(path).map_err(explain_file_error)
}

/// Creates a private file with `bytes`. Fails when the path exists. Not synced.
pub fn create_private_unsynced(path: &Path, bytes: &[u8]) -> FileResult<()> {
    NewPrivateFile::create(path.to_owned())?.write_unsynced(bytes)
}

/// Creates a private file with everything that `source` yields. Fails when the path exists. The content is synced, the
/// name is not: see [`sync_dir`].
pub fn create_private_synced(to: &Path, source: &mut impl io::Read) -> FileResult<()> {
    NewPrivateFile::create(to.to_owned())?.copy_from(source, true)
}

/// Overwrites the beginning of an existing private file and syncs it. A reader finds the old bytes or the new ones, if
/// they fit into a page of memory.
///
/// # Errors
/// The file does not exist or cannot be written.
pub fn overwrite_start_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = open_existing_private(path, OFlags::WRONLY)?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Creates a file with the usual mode for the user. Fails when the path exists. Not synced.
pub fn create_shared_unsynced(path: &Path, bytes: &[u8], executable: bool) -> FileResult<()> {
    let mode = if executable { 0o777 } else { 0o666 };
    NewPrivateFile::create_with_mode(path.to_owned(), mode)?.write_unsynced(bytes)
}

/// Copies a regular file to a new private file. Fails when `to` exists. Not synced.
pub fn copy_private_unsynced(from: &Path, to: &Path) -> FileResult<()> {
    let mut source = open_no_follow(from).map_err(file_error("read", from))?;
    create_private_from_unsynced(to, &mut source)
}

/// Creates a private file with everything that `source` yields. Fails when the path exists. Not synced.
pub fn create_private_from_unsynced(to: &Path, source: &mut impl io::Read) -> FileResult<()> {
    NewPrivateFile::create(to.to_owned())?.copy_from(source, false)
}

/// A new private file, empty until its whole content is written; dropped before that, the file is removed.
#[derive(Debug)]
pub struct NewPrivateFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl NewPrivateFile {
    /// Creates the file, so that a full disk is found before its content exists. Fails when the path exists.
    pub fn create(path: PathBuf) -> FileResult<Self> {
        Self::create_with_mode(path, PRIVATE_MODE)
    }

    fn create_with_mode(path: PathBuf, mode: u32) -> FileResult<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = check_failpoint()
            .and_then(|()| beneath::open(&path, flags, mode))
            .map_err(file_error("create", &path))?;
        Ok(Self { path, file, is_written: false })
    }

    /// Writes the whole content. Not synced.
    pub fn write_unsynced(mut self, bytes: &[u8]) -> FileResult<()> {
        check_failpoint()
            .and_then(|()| self.file.write_all(bytes))
            .map_err(file_error("write", &self.path))?;
        self.is_written = true;
        Ok(())
    }

    fn copy_from(mut self, source: &mut impl io::Read, is_synced: bool) -> FileResult<()> {
        check_failpoint()
            .and_then(|()| io::copy(source, &mut self.file))
            .map_err(file_error("write", &self.path))?;
        if is_synced {
            check_failpoint()
                .and_then(|()| self.file.sync_all())
                .map_err(file_error("sync", &self.path))?;
        }
        self.is_written = true;
        Ok(())
    }
}

impl Drop for NewPrivateFile {
    fn drop(&mut self) {
        if !self.is_written {
            // A partial record must not be read as a complete one.
            let _ = remove_file_no_follow(&self.path);
        }
    }
}

/// Creates a private file with `bytes` and its missing directories, unless the file exists. Synced; a process that finds
/// the file finds all of it.
///
/// For what an operator has once, and no run: the crash tests do not count it.
pub fn create_private_once(path: &Path, bytes: &[u8]) -> FileResult<()> {
    match create_linked(path, bytes, 0o600) {
        Err(error) if error.source.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_parent_uncounted(path),
    }
}

/// Creates a file without write permission, and its missing directories. Fails when the path exists. Synced; a process that
/// finds the file finds all of it, and of two that create it one fails.
pub fn create_read_only_once(path: &Path, bytes: &[u8]) -> FileResult<()> {
    create_linked(path, bytes, 0o444)?;
    sync_parent_uncounted(path)
}

/// Writes and syncs a file under a name that no other process uses, then links it to `path`.
fn create_linked(path: &Path, bytes: &[u8], mode: u32) -> FileResult<()> {
    let suffix = format!(".{}", crate::hex::encode_hex(&crate::random::random_bytes::<8>()));
    let temporary = temporary_path(path, "", &suffix);
    let Some(parent) = path.parent() else { return Ok(()) };
    let new_names = parents_of_missing_dirs(parent);
    let linked = beneath::ensure_dir_beneath(parent, 0o700)
        .and_then(|()| new_names.into_iter().try_for_each(sync_dir_uncounted))
        .and_then(|()| create_private_file(&temporary))
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            file.sync_all()
        })
        .and_then(|()| link_new_file(&temporary, path));
    let _ = remove_file_no_follow(&temporary);
    linked.map_err(file_error("create", path))
}

fn sync_parent_uncounted(path: &Path) -> FileResult<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    sync_dir_uncounted(parent).map_err(file_error("sync the directory", parent))
}

/// Replaces a private file. Synced: after a crash it has the old content or the new.
pub fn replace_private_synced(path: &Path, bytes: &[u8]) -> FileResult<()> {
    replace_synced_through(&temporary_path(path, "", ".tmp"), path, bytes)
}

/// As [`replace_private_synced`], with a temporary name that no other process uses: `tag` is a part of it.
pub fn replace_private_tagged_synced(path: &Path, tag: &str, bytes: &[u8]) -> FileResult<()> {
    replace_synced_through(&temporary_path(path, "", &format!(".{tag}.tmp")), path, bytes)
}

fn replace_synced_through(temporary: &Path, path: &Path, bytes: &[u8]) -> FileResult<()> {
    let result = write_temporary_synced(temporary, path, bytes).and_then(|()| {
        check_failpoint()
            .and_then(|()| rename_file(temporary, path))
            .map_err(file_error("replace", path))
    });
    finish_synced(result, temporary, path)
}

/// Makes `path` another name of the file `from`, instead of what had that name. `tag` makes the temporary name one that no
/// other process uses. Not synced.
pub fn replace_with_link_unsynced(from: &Path, path: &Path, tag: &str) -> FileResult<()> {
    let temporary = temporary_path(path, "", &format!(".{tag}.tmp"));
    let _ = remove_file_no_follow(&temporary);
    check_failpoint()
        .and_then(|()| hard_link_unsynced(from, &temporary))
        .and_then(|()| rename_file(&temporary, path))
        .map_err(file_error("replace", path))?;
    // A rename onto another name of the same file does nothing.
    let _ = remove_file_no_follow(&temporary);
    Ok(())
}

/// Makes `path` a symlink to `target`, instead of the symlink or file that had that name. Synced: after a crash it is the
/// old one or the new one.
pub fn replace_symlink_synced(target: &Path, path: &Path) -> FileResult<()> {
    let temporary = temporary_path(path, ".", ".tmp");
    let _ = remove_file_no_follow(&temporary);
    let result = check_failpoint()
        .and_then(|()| std::os::unix::fs::symlink(target, &temporary))
        .and_then(|()| check_failpoint())
        .and_then(|()| rename_file(&temporary, path))
        .map_err(file_error("replace", path));
    finish_synced(result, &temporary, path)
}

/// Replaces a private file without waiting for the disk. A killed process leaves the old content or the new; a power
/// failure may leave neither.
pub fn replace_private_unsynced(path: &Path, bytes: &[u8]) -> FileResult<()> {
    let temporary = temporary_path(path, "", ".tmp");
    let result = open_private(&temporary, true)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(file_error("write", path))
        .and_then(|()| rename_over(&temporary, path).map_err(file_error("replace", path)));
    remove_on_error(result, &temporary)
}

/// Like [`replace_private_unsynced`], for a file that is replaced often: the previous file stays as `PATH.tmp` and is
/// overwritten the next time, because creating and removing a file costs more than writing it.
pub fn swap_private_unsynced(path: &Path, bytes: &[u8]) -> FileResult<()> {
    let spare = temporary_path(path, "", ".tmp");
    let result = overwrite_spare(&spare, bytes)
        .map_err(file_error("write", path))
        .and_then(|()| exchange_names(&spare, path).map(drop).map_err(file_error("replace", path)));
    remove_on_error(result, &spare)
}

fn overwrite_spare(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = open_private(path, false)?;
    file.write_all(bytes)?;
    let length = bytes.len() as u64;
    if file.metadata()?.len() == length { Ok(()) } else { file.set_len(length) }
}

/// Ensures that a private file exists and holds only newlines: a file with other content is replaced by an empty one.
pub fn ensure_blank_file(path: &Path) -> FileResult<()> {
    if read_no_follow_at_most(path, MAX_REGULAR_BYTES)
        .is_ok_and(|bytes| bytes.iter().all(|byte| *byte == BLANK_BYTE))
    {
        return Ok(());
    }
    let _ = remove_file_no_follow(path);
    open_private(path, false).map(drop).map_err(file_error("create", path))
}

/// Overwrites an existing file with newlines. Its length stays (up to 64 KiB), because truncating and extending a file
/// costs more than writing it.
pub fn overwrite_with_blanks(path: &Path) -> FileResult<()> {
    open_existing_private(path, OFlags::WRONLY)
        .and_then(blank_out)
        .map_err(file_error("write", path))
}

fn blank_out(mut file: File) -> io::Result<()> {
    let length = file.metadata()?.len();
    if length > MAX_BLANK_BYTES {
        return file.set_len(0);
    }
    file.write_all(&vec![BLANK_BYTE; usize::try_from(length).unwrap_or_default()])
}

/// Removes a file. Not synced.
///
/// # Errors
/// The path is not a file, or cannot be removed.
pub fn remove_file_no_follow(path: &Path) -> io::Result<()> {
    Entry::find(path)?.remove_file()
}

/// Removes a directory with everything in it. Not synced.
///
/// # Errors
/// An entry could not be removed.
pub fn remove_dir_all_no_follow(path: &Path) -> io::Result<()> {
    Entry::find(path)?.remove_dir_all()
}

/// Removes an empty directory. Not synced.
///
/// # Errors
/// The directory is not empty, or cannot be removed.
pub fn remove_empty_dir_no_follow(path: &Path) -> io::Result<()> {
    Entry::find(path)?.remove_empty_dir()
}

/// Gives a file a second name. Fails when `to` exists. Not synced.
///
/// # Errors
/// The file system does not support it, or a path cannot be used.
pub fn hard_link_unsynced(from: &Path, to: &Path) -> io::Result<()> {
    Entry::find(from)?.link_to(&Entry::find(to)?)
}

/// Gives a file that this process created a second name, as [`hard_link_unsynced`] does.
///
/// # Errors
/// As [`hard_link_unsynced`]; a file system without hard links is named as the reason.
pub fn link_new_file(from: &Path, to: &Path) -> io::Result<()> {
    hard_link_unsynced(from, to).map_err(|error| {
        // link(2): "the file system containing OLDPATH and NEWPATH does not support the creation of hard links".
        match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::PERM | rustix::io::Errno::OPNOTSUPP) => io::Error::new(
                io::ErrorKind::Unsupported,
                "this file system has no hard links; use a directory on one that has them",
            ),
            _ => error,
        }
    })
}

/// Gives a file a second name, which is durable when this returns. Of several processes on any hosts that want the same
/// name, one gets it. An error does not say that the name was not made: a server's reply can be lost.
///
/// # Errors
/// The name exists, or may exist now.
pub fn link_exclusive_synced(from: &Path, to: &Path) -> io::Result<()> {
    check_failpoint().and_then(|()| hard_link_unsynced(from, to))?;
    to.parent().map_or(Ok(()), |dir| sync_dir(dir).map_err(|error| error.source))
}

fn rename_file(from: &Path, to: &Path) -> io::Result<()> {
    Entry::find(from)?.rename_to(&Entry::find(to)?)
}

/// Renames `from` to `to` and removes the file that was at `to`.
fn rename_over(from: &Path, to: &Path) -> io::Result<()> {
    if exchange_names(from, to)? { remove_file_no_follow(from) } else { Ok(()) }
}

/// Renames `from` to `to`; a file at `to` becomes `from`, and the result is true.
///
/// A rename over a file makes some file systems start writing both, so that a power failure may leave one of them torn.
/// An exchange of names does not.
fn exchange_names(from: &Path, to: &Path) -> io::Result<bool> {
    let from = Entry::find(from)?;
    let to = Entry::find(to)?;
    match from.exchange_with(&to) {
        Ok(()) => Ok(true),
        // There is no file at `to`, or the file system does not support the exchange.
        Err(_) => from.rename_to(&to).map(|()| false),
    }
}

/// A private file that is written in pieces under a temporary name and renamed when complete; dropped before that, it
/// is removed. Not synced, but a killed process leaves no partial file under the final name.
#[derive(Debug)]
pub struct DraftFile(NewPrivateFile);

impl DraftFile {
    /// Creates the draft at `path`; an older draft there is truncated.
    pub fn create(path: &Path) -> FileResult<Self> {
        let file = check_failpoint()
            .and_then(|()| open_private(path, true))
            .map_err(file_error("create", path))?;
        Ok(Self(NewPrivateFile { path: path.to_owned(), file, is_written: false }))
    }

    /// Appends a piece; blocks of zeros become holes.
    pub fn write(&mut self, bytes: &[u8]) -> FileResult<()> {
        check_failpoint()
            .and_then(|()| write_with_holes(&mut self.0.file, bytes))
            .map_err(file_error("write", &self.0.path))
    }

    /// Renames the complete file to `path`, replacing a file there.
    pub fn rename_unsynced(mut self, path: &Path) -> FileResult<()> {
        end_with_holes(&mut self.0.file).map_err(file_error("write", &self.0.path))?;
        check_failpoint()
            .and_then(|()| rename_file(&self.0.path, path))
            .map_err(file_error("create", path))?;
        self.0.is_written = true;
        Ok(())
    }

    /// Makes the content durable.
    pub fn sync(&mut self) -> FileResult<()> {
        end_with_holes(&mut self.0.file).map_err(file_error("write", &self.0.path))?;
        check_failpoint()
            .and_then(|()| self.0.file.sync_all())
            .map_err(file_error("sync", &self.0.path))
    }

    /// Renames the complete file to `path`, replacing a file there. Synced: after a crash `path` is as before or has all
    /// of the content.
    pub fn rename_synced(mut self, path: &Path) -> FileResult<()> {
        self.sync()?;
        self.rename_unsynced(path)?;
        path.parent().map_or(Ok(()), sync_dir)
    }
}

/// Renames a complete directory to its final name. Fails when `to` is a directory with files. Not synced.
pub fn rename_dir_unsynced(from: &Path, to: &Path) -> FileResult<()> {
    rename_file(from, to).map_err(file_error("create the directory", to))
}

/// Renames a directory within its parent directory. Synced: after a crash it has one of the names. Fails when `to` is a
/// directory with files.
pub fn rename_dir_synced(from: &Path, to: &Path) -> FileResult<()> {
    check_failpoint()
        .and_then(|()| rename_file(from, to))
        .map_err(file_error("rename the directory", from))?;
    to.parent().map_or(Ok(()), sync_dir)
}

/// Replaces a user's file and keeps its permissions; a symlink stays, and its target is replaced. Synced: after a crash
/// the file has the old content or the new.
pub fn replace_shared_synced(path: &Path, bytes: &[u8]) -> FileResult<()> {
    let path = path.canonicalize().map_err(file_error("find", path))?;
    let permissions = fs::metadata(&path).map_err(file_error("read", &path))?.permissions();
    let temporary = temporary_path(&path, ".", ".delta.tmp");
    let result = write_temporary_synced(&temporary, &path, bytes).and_then(|()| {
        check_failpoint()
            .and_then(|()| fs::set_permissions(&temporary, permissions))
            .and_then(|()| rename_file(&temporary, &path))
            .map_err(file_error("replace", &path))
    });
    finish_synced(result, &temporary, &path)
}

/// Creates a file for the user. Fails when the path exists. Synced: after a crash the file is complete or missing.
pub fn create_shared_synced(path: &Path, bytes: &[u8]) -> FileResult<()> {
    let temporary = temporary_path(path, ".", ".delta.tmp");
    let result = write_temporary_synced(&temporary, path, bytes).and_then(|()| {
        check_failpoint()
            .and_then(|()| fs::set_permissions(&temporary, Permissions::from_mode(0o644)))
            // Unlike a rename, a link never replaces a file.
            .and_then(|()| link_new_file(&temporary, path))
            .map_err(file_error("create", path))
    });
    let _ = remove_file_no_follow(&temporary);
    finish_synced(result, &temporary, path)
}

/// Removes a file. Not synced.
pub fn remove_file_unsynced(path: &Path) -> FileResult<()> {
    check_failpoint().and_then(|()| remove_file_no_follow(path)).map_err(file_error("remove", path))
}

/// Removes a file and syncs its directory.
pub fn remove_file_synced(path: &Path) -> FileResult<()> {
    remove_file_unsynced(path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// The temporary name of a file that is being replaced.
fn temporary_path(path: &Path, prefix: &str, suffix: &str) -> PathBuf {
    // Always the same name, so that the next replacement overwrites what a crash has left.
    let mut name = OsString::from(prefix);
    name.push(path.file_name().unwrap_or_default());
    name.push(suffix);
    path.with_file_name(name)
}

fn remove_on_error(result: FileResult<()>, temporary: &Path) -> FileResult<()> {
    result.inspect_err(|_| {
        let _ = remove_file_no_follow(temporary);
    })
}

fn finish_synced(result: FileResult<()>, temporary: &Path, path: &Path) -> FileResult<()> {
    remove_on_error(result, temporary)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Writes a file that is to replace or become `path`, which errors name: its own name means nothing to users.
fn write_temporary_synced(temporary: &Path, path: &Path, bytes: &[u8]) -> FileResult<()> {
    let mut file = open_private(temporary, true).map_err(file_error("create", path))?;
    check_failpoint().and_then(|()| file.write_all(bytes)).map_err(file_error("write", path))?;
    check_failpoint().and_then(|()| file.sync_all()).map_err(file_error("sync", path))
}

/// Explains the errors that the system describes badly: of a write, and of an open with [`NO_FOLLOW_NONBLOCK`].
fn explain_file_error(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EFBIG) => io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{error}; raise the limit on the size of files: `ulimit -f`"),
        ),
        Some(libc::ELOOP) => io::Error::new(
            io::ErrorKind::InvalidData,
            "it is a symlink, and delta does not follow symlinks to its own files",
        ),
        // A pipe without a reader, or a socket.
        Some(libc::ENXIO) => not_regular_error(),
        _ => error,
    }
}

/// Opens an existing private file.
fn open_existing_private(path: &Path, flags: OFlags) -> io::Result<File> {
    beneath::open(path, flags | NO_FOLLOW_NONBLOCK, 0)
}

/// Opens a private file and creates it when missing.
fn open_or_create_private(path: &Path, flags: OFlags) -> io::Result<File> {
    beneath::open(path, flags | OFlags::CREATE | NO_FOLLOW_NONBLOCK, PRIVATE_MODE)
}

/// Opens a private file for writing and creates it when missing.
fn open_private(path: &Path, truncate: bool) -> io::Result<File> {
    let flags = if truncate { OFlags::WRONLY | OFlags::TRUNC } else { OFlags::WRONLY };
    open_or_create_private(path, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn c_5_1_created_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        create_private_dir_synced(&at("d")).unwrap();
        create_private_unsynced(&at("n"), b"x").unwrap();
        replace_private_synced(&at("r"), b"x").unwrap();
        AppendFile::create(&at("a")).unwrap();
        assert_eq!(["d", "n", "r", "a"].map(|name| mode(&at(name))), [0o700, 0o600, 0o600, 0o600]);
    }

    #[test]
    fn exclusive_creation_is_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        create_private_unsynced(&path, b"first").unwrap();
        assert!(create_private_unsynced(&path, b"second").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert!(create_private_dir_synced(&path).is_err());
    }

    #[test]
    fn replacing_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        replace_private_synced(&path, b"one").unwrap();
        replace_private_synced(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        fs::create_dir(dir.path().join("d")).unwrap();
        assert!(replace_private_synced(&dir.path().join("d"), b"x").is_err());
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}
