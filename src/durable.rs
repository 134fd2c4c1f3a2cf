//! Files that survive: the only place that syncs, renames, locks, or creates exclusively.
//!
//! Everything that is the engine's own is private: directories 0700, files 0600. After an error nothing half-written is left under
//! the name that was asked for.
#![expect(clippy::disallowed_methods, reason = "the owner of syncing and renaming")]

mod append;
#[cfg(feature = "failpoints")]
mod faults;
mod start;

pub use append::{AppendFile, LogFile, append_line};

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Something that could not be done to a file.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried: `write`, `create`, ...
    pub action: &'static str,
    /// To which file or directory.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

type Result<T> = std::result::Result<T, FileError>;

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError { action, path, source: in_words(source) }
}

/// Where a test may let an operation fail, or the process die just before it. Compiled in with the feature `failpoints`
/// only; see [`faults`].
fn may_fail() -> io::Result<()> {
    #[cfg(feature = "failpoints")]
    faults::pass()?;
    Ok(())
}

/// The largest file that is read as a whole from where others may write: an endless one must not fill the memory.
const LARGEST: u64 = 64 << 20;

/// What blank files hold, and how much of it at most.
const BLANK: u8 = b'\n';
const LONGEST_BLANK: u64 = 64 * 1024;

/// Reads a file that somebody else may have made, an agent's tool for one. A pipe would keep the engine waiting for
/// whoever made it, deaf to signals, and a device may have no end: only regular files are read.
///
/// # Errors
/// It is not there, not readable, not a regular file, or larger than 64 MiB.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let (mut file, metadata) = regular(file)?;
    let length = usize::try_from(metadata.len().min(LARGEST)).unwrap_or_default();
    let mut bytes = vec![0; length + 1];
    let read = file.read(&mut bytes)?;
    bytes.truncate(read);
    // As long as it is said to be, it is over; a file of /proc is said to be empty, and some file systems give less at once.
    if read != length || length == 0 {
        file.take(LARGEST + 1 - read as u64).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > LARGEST {
        let reason = "it is larger than 64 MiB";
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(bytes)
}

/// Opens a file of a run for reading: a regular one, and no link to a file elsewhere.
///
/// # Errors
/// It is not there, not readable, or not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OWN).open(path).map_err(in_words)?;
    Ok(regular(file)?.0)
}

/// Reads such a file, of any size.
///
/// # Errors
/// Those of [`open_regular`].
pub fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads as text what somebody else may have made.
///
/// # Errors
/// Those of [`read_regular`], and that it is not UTF-8.
pub fn read_regular_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_regular(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Makes a directory that must not be there yet; it is there after a crash.
pub fn create_dir(path: &Path) -> Result<()> {
    may_fail().map_err(failed("create the directory", path))?;
    DirBuilder::new().mode(0o700).create(path).map_err(failed("create the directory", path))?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Makes a directory, and those above it, unless it is there. Directories that are not the engine's own keep the
/// usual mode.
pub fn ensure_dir(path: &Path, private: bool) -> Result<()> {
    may_fail().map_err(failed("create the directory", path))?;
    let mode = if private { 0o700 } else { 0o777 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(failed("create the directory", path))
}

/// Makes names in a directory durable.
pub fn sync_dir(path: &Path) -> Result<()> {
    may_fail()
        .and_then(|()| File::open(path))
        .and_then(|dir| dir.sync_all())
        .map_err(failed("sync the directory", path))
}

/// Makes everything durable that was written to the file system of a directory: one sync, however many files.
pub fn sync_around(path: &Path) -> Result<()> {
    may_fail()
        .and_then(|()| File::open(path))
        .and_then(|dir| Ok(rustix::fs::syncfs(dir)?))
        .map_err(failed("sync the file system of", path))
}

/// Writes a file that must not be there yet. Not synced.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    write_exclusively(private(), path, bytes)
}

/// Copies a regular file to one that must not be there yet, and is the engine's own. Not synced.
pub fn copy_new(from: &Path, to: &Path) -> Result<()> {
    let mut source = open_regular(from).map_err(failed("read", from))?;
    may_fail().map_err(failed("create", to))?;
    let mut file = private().write(true).create_new(true).open(to).map_err(failed("create", to))?;
    may_fail().and_then(|()| io::copy(&mut source, &mut file)).map(drop).map_err(|error| {
        let _ = fs::remove_file(to);
        failed("write", to)(error)
    })
}

/// As [`write_new`] for a file that becomes a person's own: its mode is the usual one.
pub fn write_new_shared(path: &Path, bytes: &[u8], executable: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.mode(if executable { 0o777 } else { 0o666 });
    write_exclusively(options, path, bytes)
}

fn write_exclusively(options: OpenOptions, path: &Path, bytes: &[u8]) -> Result<()> {
    NewFile::open(options, path.to_owned())?.write(bytes)
}

/// A file that was not there, and is empty until all of it is written. Not synced.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl NewFile {
    /// Makes it, so that what it is to hold has its place before that exists.
    pub fn create(path: PathBuf) -> Result<Self> {
        Self::open(private(), path)
    }

    fn open(mut options: OpenOptions, path: PathBuf) -> Result<Self> {
        may_fail().map_err(failed("create", &path))?;
        let file = options.write(true).create_new(true).open(&path);
        let file = file.map_err(failed("create", &path))?;
        Ok(Self { path, file, is_written: false })
    }

    /// Writes what it holds.
    pub fn write(mut self, bytes: &[u8]) -> Result<()> {
        may_fail()
            .and_then(|()| self.file.write_all(bytes))
            .map_err(failed("write", &self.path))?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_written {
            // A half-written record must not be taken for a whole one.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Replaces a file: after a crash it has the old content or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path, "", ".tmp");
    let written = write_synced(&temporary, bytes).and_then(|()| {
        may_fail().and_then(|()| fs::rename(&temporary, path)).map_err(failed("replace", path))
    });
    finish(written, &temporary, path)
}

/// Replaces a file that has to outlive its process, but not a power failure: whoever is killed leaves the old content or
/// the new one. Without the wait for the disk.
pub fn exchange(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path, "", ".tmp");
    let written = private()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(failed("write", &temporary))
        .and_then(|()| take_place(&temporary, path).map_err(failed("replace", path)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// As [`exchange`], for a file that is replaced again and again: what stood there is kept beside it, to be the next one, because
/// to make and to remove a file costs more than to write it.
pub fn alternate(path: &Path, bytes: &[u8]) -> Result<()> {
    let spare = beside(path, "", ".tmp");
    let write = |mut file: File| {
        file.write_all(bytes)?;
        let length = bytes.len() as u64;
        if file.metadata()?.len() == length { Ok(()) } else { file.set_len(length) }
    };
    let written = private()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&spare)
        .and_then(write)
        .map_err(failed("write", &spare))
        .and_then(|()| swap(&spare, path).map(drop).map_err(failed("replace", path)));
    if written.is_err() {
        let _ = fs::remove_file(&spare);
    }
    written
}

/// Sees to it that there is a blank file, which may be the one that stands there; any other gives way to another.
pub fn ensure_blank(path: &Path) -> Result<()> {
    if read_whole(path).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == BLANK)) {
        return Ok(());
    }
    let _ = fs::remove_file(path);
    private().write(true).create(true).open(path).map(drop).map_err(failed("create", path))
}

/// Makes a file blank that is there. It stays as long, because to make a file short and long again costs more than to write
/// it.
pub fn blank(path: &Path) -> Result<()> {
    let write = |mut file: File| {
        let length = file.metadata()?.len();
        if length > LONGEST_BLANK {
            return file.set_len(0);
        }
        file.write_all(&vec![BLANK; usize::try_from(length).unwrap_or_default()])
    };
    private().write(true).open(path).and_then(write).map_err(failed("write", path))
}

/// Gives `from` the name `to`, where a file may stand, which is removed.
fn take_place(from: &Path, to: &Path) -> io::Result<()> {
    if swap(from, to)? { fs::remove_file(from) } else { Ok(()) }
}

/// Gives `from` the name `to`, and what stands there the name `from`; says whether there was that. A file system may begin
/// to write as soon as one file is renamed over another, so that a power failure leaves one of them; where both only change
/// their names it does not.
fn swap(from: &Path, to: &Path) -> io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        // Nothing stands there, or the file system cannot do it.
        Err(_) => fs::rename(from, to).map(|()| false),
    }
}

/// A file that is written in pieces, and has a name only when it is whole. Not synced; after a kill nothing half-written
/// is left under the name that was asked for.
#[derive(Debug)]
pub struct Draft {
    file: File,
    path: PathBuf,
    kept: bool,
}

impl Draft {
    /// Begins one at `path`, where nothing else is kept.
    pub fn begin(path: &Path) -> Result<Self> {
        may_fail().map_err(failed("create", path))?;
        let file = private()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(failed("create", path))?;
        Ok(Self { file, path: path.to_owned(), kept: false })
    }

    /// Adds a piece.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        may_fail().and_then(|()| self.file.write_all(bytes)).map_err(failed("write", &self.path))
    }

    /// Gives the whole file its name.
    pub fn keep(mut self, path: &Path) -> Result<()> {
        may_fail().and_then(|()| fs::rename(&self.path, path)).map_err(failed("create", path))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives a finished directory its name, which no other may have.
pub fn name_dir(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(failed("create the directory", to))
}

/// Replaces a file that a person wrote: as [`replace`] does, with its rights, and where it is a link, what it leads to.
pub fn rewrite(path: &Path, bytes: &[u8]) -> Result<()> {
    let path = path.canonicalize().map_err(failed("find", path))?;
    let rights = fs::metadata(&path).map_err(failed("read", &path))?.permissions();
    let temporary = beside(&path, ".", ".delta.tmp");
    let written = write_synced(&temporary, bytes).and_then(|()| {
        may_fail()
            .and_then(|()| fs::set_permissions(&temporary, rights))
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(failed("replace", &path))
    });
    finish(written, &temporary, &path)
}

/// Makes a file for a person that must not be there yet: after a crash it is whole, or not there.
pub fn publish(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path, ".", ".delta.tmp");
    let written = write_synced(&temporary, bytes).and_then(|()| {
        may_fail()
            .and_then(|()| fs::set_permissions(&temporary, Permissions::from_mode(0o644)))
            // Unlike a renamed file, a link never takes the place of another.
            .and_then(|()| fs::hard_link(&temporary, path))
            .map_err(failed("create", path))
    });
    let _ = fs::remove_file(&temporary);
    finish(written, &temporary, path)
}

/// Takes a file away for good.
pub fn remove(path: &Path) -> Result<()> {
    may_fail().and_then(|()| fs::remove_file(path)).map_err(failed("remove", path))?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// The name under which a file is written before it takes its place.
fn beside(path: &Path, before: &str, after: &str) -> PathBuf {
    // One name for all time: what a crash leaves behind, the next replacement takes away.
    let mut name = OsString::from(before);
    name.push(path.file_name().unwrap_or_default());
    name.push(after);
    path.with_file_name(name)
}

/// Takes away what is half done, or makes what is done durable.
fn finish(written: Result<()>, temporary: &Path, path: &Path) -> Result<()> {
    if let Err(error) = written {
        let _ = fs::remove_file(temporary);
        return Err(error);
    }
    path.parent().map_or(Ok(()), sync_dir)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = private()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(failed("create", path))?;
    may_fail().and_then(|()| file.write_all(bytes)).map_err(failed("write", path))?;
    may_fail().and_then(|()| file.sync_all()).map_err(failed("sync", path))
}

/// How the engine opens what is its own: not where a symlink leads that a tool has put in its place, and without waiting
/// for whoever is at the other end of a pipe.
const OWN: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// The errors of such an open that the system's words do not explain.
fn in_words(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => {
            io::Error::other("it is a symlink, and delta does not follow those to its files")
        }
        // A pipe that nobody reads, or a socket.
        Some(libc::ENXIO) => not_regular(),
        _ => error,
    }
}

fn regular(file: File) -> io::Result<(File, Metadata)> {
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false if metadata.is_dir() => Err(rustix::io::Errno::ISDIR.into()),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file")
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(OWN);
    options
}

/// An exclusive lock, held until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "holding the file open is what holds the lock")] File);

impl Lock {
    /// Takes the lock, and writes the process's id into the file, for those who find it held; `None` when another
    /// process holds it.
    pub fn take(path: &Path) -> Result<Option<Self>> {
        let mut file = private()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed("open", path))?;
        match file.try_lock() {
            Ok(()) => {
                // Always as long, so that a reader never finds the file empty between two holders.
                let written = file.write_all(format!("{:<10}\n", std::process::id()).as_bytes());
                written.map_err(failed("write", path))?;
                Ok(Some(Self(file)))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed("lock", path)(error)),
        }
    }
}

/// The id of the process that took the lock last, when the file says it.
pub fn lock_holder(path: &Path) -> Option<u32> {
    std::str::from_utf8(&read_whole(path).ok()?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn c_5_1_what_is_made_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        create_dir(&at("d")).unwrap();
        write_new(&at("n"), b"x").unwrap();
        replace(&at("r"), b"x").unwrap();
        AppendFile::create(&at("a")).unwrap();
        assert_eq!(["d", "n", "r", "a"].map(|name| mode(&at(name))), [0o700, 0o600, 0o600, 0o600]);
    }

    #[test]
    fn exclusive_creation_is_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        write_new(&path, b"first").unwrap();
        assert!(write_new(&path, b"second").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert!(create_dir(&path).is_err());
    }

    #[test]
    fn replacing_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        fs::create_dir(dir.path().join("d")).unwrap();
        assert!(replace(&dir.path().join("d"), b"x").is_err());
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    #[test]
    fn c_13_1_a_lock_is_held_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::take(&path).unwrap();
        assert!(held.is_some());
        assert!(Lock::take(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::take(&path).unwrap().is_some());
    }
}
