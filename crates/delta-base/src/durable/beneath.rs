//! Opens files beneath a directory descriptor: no symlink and no `..` in a name leads out of one of delta's directories.
//!
//! delta's directories can come with a cloned repository, and the tools of an agent write into them. So each path is
//! divided at the first directory that belongs to delta: the *root*. The part up to the root is the operator's choice
//! and may contain symlinks. What follows the root is resolved by the kernel beneath the root's descriptor, without a
//! symlink anywhere. A path without such a directory is the user's own file and is opened as usual.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::RwLock;

/// The names of the directories that belong to delta, wherever they are.
const ROOT_NAMES: [&str; 3] = [".delta", ".sessions", ".sessions-pty"];

/// Directories with other names that belong to delta, such as a copied run: see [`add_root`].
static ADDED_ROOTS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// For a directory that is only a step on the way.
#[cfg(target_os = "linux")]
const STEP_FLAGS: OFlags = OFlags::PATH.union(DIRECTORY_FLAGS);
#[cfg(not(target_os = "linux"))]
const STEP_FLAGS: OFlags = DIRECTORY_FLAGS;
const DIRECTORY_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The bits of a mode that let others than the owner write.
const WRITABLE_BY_OTHERS: Mode = Mode::WGRP.union(Mode::WOTH);

/// Makes every file below `dir`, an absolute path without symlinks, open beneath its descriptor for the rest of the
/// process.
pub fn add_root(dir: &Path) {
    let mut roots = ADDED_ROOTS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !roots.iter().any(|root| root == dir) {
        roots.push(dir.to_owned());
    }
}

/// The path of the file `name`, as a journal or a record names it, in the directory `dir`.
///
/// # Errors
/// The name leads out of the directory: it is absolute or contains `..`.
pub fn join_beneath(dir: &Path, name: impl AsRef<Path>) -> io::Result<PathBuf> {
    let name = name.as_ref();
    let mut components = name.components();
    let is_inside = components.all(|part| matches!(part, Component::Normal(_)));
    if is_inside && name.file_name().is_some() {
        return Ok(dir.join(name));
    }
    let reason = format!("the name `{}` leads out of the directory", name.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Checks that this user may write in one of delta's directories: it belongs to this user, or to root alone.
///
/// # Errors
/// The directory belongs to another user, is a symlink, or cannot be opened.
pub fn check_root_owner(dir: &Path) -> io::Result<()> {
    open_root(dir, Purpose::Change).map(drop)
}

/// What one of delta's directories is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To read files of any owner: a reader believes nothing in them.
    Read,
    /// To create, change or remove something.
    Change,
}

impl Purpose {
    fn from_flags(flags: OFlags) -> Self {
        let changes = OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        if flags.intersects(changes) { Self::Change } else { Self::Read }
    }
}

/// One of delta's directories that belongs to another user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} belongs to user {owner}, and this process is user {user}", dir.display())]
pub struct OtherOwner {
    /// The directory.
    pub dir: PathBuf,
    /// The owner's user id.
    pub owner: u32,
    /// The user id of this process.
    pub user: u32,
}

impl OtherOwner {
    /// The other owner that an error is about.
    pub fn from_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// The mode with these bits, which the system calls of other systems than Linux take as a smaller number.
pub fn mode_from_bits(bits: u32) -> Mode {
    Mode::from_bits_truncate(bits as RawMode)
}

/// Opens a file. `flags` need no `CLOEXEC`.
pub(super) fn open(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC;
    // openat2 refuses a mode for a file that it does not create.
    let mode = mode_from_bits(if flags.contains(OFlags::CREATE) { mode } else { 0 });
    let Some((root, rest)) = split_at_root(path) else {
        return Ok(rustix::fs::open(path, flags, mode)?.into());
    };
    if rest.as_os_str().is_empty() {
        return Ok(rustix::fs::open(root, flags | OFlags::NOFOLLOW, mode)?.into());
    }
    let root = open_root(root, Purpose::from_flags(flags))?;
    Ok(open_beneath(root.as_fd(), rest, flags, mode)?.into())
}

/// Opens the file `name` beneath `dir`, which is a directory of the user.
pub(super) fn open_in(dir: &Path, name: &Path, flags: OFlags) -> io::Result<File> {
    let dir = rustix::fs::open(dir, STEP_FLAGS.difference(OFlags::NOFOLLOW), Mode::empty())?;
    Ok(open_beneath(dir.as_fd(), name, flags | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Opens a directory to read its entries or to sync it.
pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)
}

/// A name and the directory that contains it, for operations on names.
pub(super) struct Entry<'a> {
    dir: Option<OwnedFd>,
    name: &'a Path,
}

impl<'a> Entry<'a> {
    /// Finds the directory of `path`.
    pub(super) fn find(path: &'a Path) -> io::Result<Self> {
        let Some((root, rest)) = split_at_root(path) else {
            return Ok(Self { dir: None, name: path });
        };
        let Some(name) = rest.file_name() else {
            // The root itself, which is in a directory of the user, or a name that ends in `..`.
            if rest.as_os_str().is_empty() {
                return Ok(Self { dir: None, name: path });
            }
            return Err(leads_out_error());
        };
        let root_dir = open_root(root, Purpose::Change)?;
        let dir = match rest.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            None => root_dir,
            Some(parent) => open_beneath(root_dir.as_fd(), parent, STEP_FLAGS, Mode::empty())?,
        };
        Ok(Self { dir: Some(dir), name: Path::new(name) })
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, AsFd::as_fd)
    }

    pub(super) fn rename_to(&self, to: &Entry<'_>) -> io::Result<()> {
        Ok(rustix::fs::renameat(self.dir(), self.name, to.dir(), to.name)?)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn exchange_with(&self, other: &Entry<'_>) -> io::Result<()> {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        Ok(rustix::fs::renameat_with(self.dir(), self.name, other.dir(), other.name, flags)?)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn exchange_with(&self, _: &Entry<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn link_to(&self, to: &Entry<'_>) -> io::Result<()> {
        Ok(rustix::fs::linkat(self.dir(), self.name, to.dir(), to.name, AtFlags::empty())?)
    }

    pub(super) fn remove_file(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.dir(), self.name, AtFlags::empty())?)
    }

    pub(super) fn remove_empty_dir(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.dir(), self.name, AtFlags::REMOVEDIR)?)
    }

    pub(super) fn create_dir(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(self.dir(), self.name, mode_from_bits(mode))?)
    }

    /// Removes a directory with everything in it. Symlinks in it are removed and not followed.
    pub(super) fn remove_dir_all(&self) -> io::Result<()> {
        remove_tree(self.dir(), self.name.as_os_str())
    }
}

/// Creates a directory and its missing parents; does nothing when it exists.
pub(super) fn ensure_dir_beneath(path: &Path, mode: u32) -> io::Result<()> {
    let Some((root, rest)) = split_at_root(path) else {
        return create_dir_with_parents(path, mode);
    };
    if open(path, STEP_FLAGS, 0).is_ok() {
        return Ok(());
    }
    create_dir_with_parents(root, mode)?;
    let mut dir = open_root(root, Purpose::Change)?;
    for name in rest.components().map(normal_name) {
        let name = name?;
        match rustix::fs::mkdirat(&dir, name, mode_from_bits(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        dir = open_step(dir.as_fd(), name)?;
    }
    Ok(())
}

fn create_dir_with_parents(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// The metadata of a path; of the symlink itself if it is one.
pub(super) fn metadata(path: &Path) -> io::Result<Metadata> {
    if split_at_root(path).is_none() {
        return std::fs::symlink_metadata(path);
    }
    read_metadata(path)
}

#[cfg(target_os = "linux")]
fn read_metadata(path: &Path) -> io::Result<Metadata> {
    match split_at_root(path) {
        // The root itself may be of any kind and owner: the caller finds out which.
        Some((root, rest)) if rest.as_os_str().is_empty() => std::fs::symlink_metadata(root),
        _ => open(path, OFlags::PATH | OFlags::NOFOLLOW, 0)?.metadata(),
    }
}

#[cfg(not(target_os = "linux"))]
fn read_metadata(path: &Path) -> io::Result<Metadata> {
    // Without O_PATH: the directory was opened beneath the root, and the last name is not followed.
    Entry::find(path)?;
    std::fs::symlink_metadata(path)
}

/// A name in a directory.
#[derive(Debug, Clone)]
pub struct DirEntry {
    /// The name.
    pub name: OsString,
    kind: FileType,
}

impl DirEntry {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind.is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind.is_file()
    }

    /// Whether it is a symlink.
    pub fn is_symlink(&self) -> bool {
        self.kind.is_symlink()
    }
}

/// The entries of a directory, in no order.
pub(super) fn read_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
    read_entries(open_dir(path)?.as_fd())
}

fn read_entries(dir: BorrowedFd<'_>) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => match rustix::fs::statat(dir, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => continue,
            },
            kind => kind,
        };
        entries.push(DirEntry { name, kind });
    }
    Ok(entries)
}

fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::RDONLY | DIRECTORY_FLAGS;
    let dir = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?);
        }
        Err(Errno::ACCESS) => {
            open_to_owner(parent, name)?;
            rustix::fs::openat(parent, name, flags, Mode::empty())?
        }
        Err(error) => return Err(error.into()),
    };
    // The owner needs all three to remove what is in the directory.
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&dir)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        rustix::fs::fchmod(&dir, Mode::RWXU)?;
    }
    for entry in read_entries(dir.as_fd())? {
        if entry.is_dir() {
            remove_tree(dir.as_fd(), &entry.name)?;
        } else {
            rustix::fs::unlinkat(&dir, &*entry.name, AtFlags::empty())?;
        }
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Gives the owner all permissions for a directory, and not for what a symlink leads to.
#[cfg(target_os = "linux")]
fn open_to_owner(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let dir = rustix::fs::openat(parent, name, STEP_FLAGS, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::RWXU)?)
}

#[cfg(not(target_os = "linux"))]
fn open_to_owner(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Divides a path into the first of delta's directories on it and the rest, which is empty for the directory itself.
fn split_at_root(path: &Path) -> Option<(&Path, &Path)> {
    let bytes = path.as_os_str().as_bytes();
    let mut shortest = named_root_length(bytes);
    let roots = ADDED_ROOTS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    for root in roots.iter().filter(|root| path.starts_with(root)) {
        let length = root.as_os_str().len();
        shortest = Some(shortest.map_or(length, |shortest| shortest.min(length)));
    }
    let (root, rest) = bytes.split_at(shortest?);
    let start = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
    let path_of = |bytes| Path::new(OsStr::from_bytes(bytes));
    Some((path_of(root), path_of(&rest[start..])))
}

/// The length of `path` up to the end of the first component that is one of [`ROOT_NAMES`].
fn named_root_length(path: &[u8]) -> Option<usize> {
    let mut start = 0;
    for part in path.split(|byte| *byte == b'/') {
        let end = start + part.len();
        if ROOT_NAMES.iter().any(|name| name.as_bytes() == part) {
            return Some(end);
        }
        start = end + 1;
    }
    None
}

fn open_root(root: &Path, purpose: Purpose) -> io::Result<OwnedFd> {
    let dir = rustix::fs::open(root, STEP_FLAGS, Mode::empty()).map_err(|error| {
        let is_symlink =
            std::fs::symlink_metadata(root).is_ok_and(|metadata| metadata.is_symlink());
        if is_symlink { io::Error::from(Errno::LOOP) } else { error.into() }
    })?;
    if purpose == Purpose::Change {
        check_owner_of(&dir, root)?;
    }
    Ok(dir)
}

/// What is written in a directory of another user, that user can change at any time. An added root is a copy that the
/// operator named, which is only read.
fn check_owner_of(dir: &OwnedFd, root: &Path) -> io::Result<()> {
    let is_named = root.file_name().is_some_and(|name| ROOT_NAMES.iter().any(|root| *root == name));
    if !is_named {
        return Ok(());
    }
    let stat = rustix::fs::fstat(dir)?;
    let user = rustix::process::geteuid().as_raw();
    let is_roots =
        stat.st_uid == 0 && !Mode::from_raw_mode(stat.st_mode).intersects(WRITABLE_BY_OTHERS);
    if stat.st_uid == user || is_roots {
        return Ok(());
    }
    let error = OtherOwner { dir: root.to_owned(), owner: stat.st_uid, user };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
}

#[cfg(target_os = "linux")]
fn open_beneath(
    dir: BorrowedFd<'_>,
    name: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    use std::sync::atomic::{AtomicBool, Ordering};
    /// Whether the kernel has refused openat2: before Linux 5.6, or by a seccomp filter that does not know it.
    static LACKS_OPENAT2: AtomicBool = AtomicBool::new(false);

    if !LACKS_OPENAT2.load(Ordering::Relaxed) {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(dir, name, flags, mode, resolve) {
            Ok(file) => return Ok(file),
            Err(Errno::XDEV) => return Err(leads_out_error()),
            Err(Errno::NOSYS) => LACKS_OPENAT2.store(true, Ordering::Relaxed),
            // A filter's EPERM looks like one from the file system, so the walk decides for this file alone.
            Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    open_by_steps(dir, name, flags, mode)
}

#[cfg(not(target_os = "linux"))]
use open_by_steps as open_beneath;

/// Opens a file one component after the other, none of which may be a symlink or `..`.
fn open_by_steps(
    dir: BorrowedFd<'_>,
    name: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let mut names = name.components().map(normal_name).collect::<io::Result<Vec<_>>>()?;
    let last = names.pop().ok_or_else(leads_out_error)?;
    let mut parent_dir: Option<OwnedFd> = None;
    for name in names {
        parent_dir = Some(open_step(parent_dir.as_ref().map_or(dir, AsFd::as_fd), name)?);
    }
    let parent = parent_dir.as_ref().map_or(dir, AsFd::as_fd);
    rustix::fs::openat(parent, last, flags | OFlags::NOFOLLOW, mode)
        .map_err(|error| explain_symlink(parent, last, error))
}

fn open_step(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    rustix::fs::openat(dir, name, STEP_FLAGS, Mode::empty())
        .map_err(|error| explain_symlink(dir, name, error))
}

/// openat reports a symlink where it expects a directory as "not a directory"; openat2 reports it as a symlink.
fn explain_symlink(dir: BorrowedFd<'_>, name: &OsStr, error: Errno) -> io::Error {
    let is_symlink = error == Errno::NOTDIR
        && rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
    if is_symlink { Errno::LOOP.into() } else { error.into() }
}

fn normal_name(component: Component<'_>) -> io::Result<&OsStr> {
    match component {
        Component::Normal(name) => Ok(name),
        _ => Err(leads_out_error()),
    }
}

fn leads_out_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the path leads out of delta's directory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_is_divided_at_the_first_of_deltas_directories() {
        let split = |path: &'static str| {
            split_at_root(Path::new(path)).map(|(root, rest)| (root.to_str(), rest.to_str()))
        };
        assert_eq!(split("/w/.delta/r/io/x"), Some((Some("/w/.delta"), Some("r/io/x"))));
        assert_eq!(split(".sessions/s"), Some((Some(".sessions"), Some("s"))));
        assert_eq!(split("/w/.delta"), Some((Some("/w/.delta"), Some(""))));
        assert_eq!(split("/w/.delta//r"), Some((Some("/w/.delta"), Some("r"))));
        // A run cannot move the root by a directory of its own.
        assert_eq!(split("/w/.delta/r/.delta/x"), Some((Some("/w/.delta"), Some("r/.delta/x"))));
        assert_eq!(split("/w/.deltas/r"), None);
    }

    #[test]
    fn c_20_5_both_ways_of_opening_stay_beneath_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/sub")).unwrap();
        std::fs::write(dir.path().join("root/sub/file"), "inside").unwrap();
        std::fs::write(dir.path().join("outside"), "outside").unwrap();
        symlink("../outside", dir.path().join("root/link")).unwrap();
        symlink("..", dir.path().join("root/up")).unwrap();
        symlink("sub", dir.path().join("root/near")).unwrap();
        let root = rustix::fs::open(dir.path().join("root"), STEP_FLAGS, Mode::empty()).unwrap();
        type OpenWay = fn(BorrowedFd<'_>, &Path, OFlags, Mode) -> io::Result<OwnedFd>;
        let ways: [OpenWay; 2] = [open_beneath, open_by_steps];
        for open in ways {
            let open =
                |name: &str| open(root.as_fd(), Path::new(name), OFlags::RDONLY, Mode::empty());
            let text = io::read_to_string(File::from(open("sub/file").unwrap())).unwrap();
            assert_eq!(text, "inside");
            for name in ["link", "up/outside", "near/file"] {
                assert_eq!(open(name).unwrap_err().raw_os_error(), Some(libc::ELOOP), "{name}");
            }
            let out = format!("{}/outside", dir.path().display());
            for name in ["../outside", "sub/../../outside", &out] {
                assert_eq!(open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
            }
            assert_eq!(open("none/file").unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn c_20_5_a_removed_directory_takes_no_link_target_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join(".delta");
        std::fs::create_dir_all(control.join("r/agent/1")).unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        std::fs::write(dir.path().join("outside/kept"), "").unwrap();
        symlink("../../../outside", control.join("r/agent/link")).unwrap();
        Entry::find(&control.join("r/agent")).unwrap().remove_dir_all().unwrap();
        assert!(!control.join("r/agent").exists() && dir.path().join("outside/kept").exists());
        symlink("../../outside", control.join("r/agent")).unwrap();
        assert!(Entry::find(&control.join("r/agent/kept")).is_err());
        assert!(ensure_dir_beneath(&control.join("r/agent/new"), 0o700).is_err());
        assert!(!dir.path().join("outside/new").exists());
    }

    #[test]
    fn c_20_5_a_name_in_a_journal_stays_in_the_run() {
        let dir = Path::new("/w/.delta/r");
        assert_eq!(join_beneath(dir, "io/x.json").unwrap(), dir.join("io/x.json"));
        for name in ["/etc/passwd", "../r2/x", "io/../../x", "", "."] {
            assert!(join_beneath(dir, name).is_err(), "{name}");
        }
    }
}
