//! Directories, and the names in them.

use super::beneath::{self, Entry};
use super::{
    FileResult, check_failpoint, file_error, metadata_no_follow, open_private, read_small_no_follow,
};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// Creates a private directory and syncs its parent. Fails when the path exists.
pub fn create_private_dir_synced(path: &Path) -> FileResult<()> {
    check_failpoint()
        .and_then(|()| Entry::find(path)?.create_dir(0o700))
        .map_err(file_error("create the directory", path))?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Creates a private directory and its missing ancestors; does nothing when it exists. Not synced.
pub fn ensure_private_dir(path: &Path) -> FileResult<()> {
    ensure_dir(path, 0o700)
}

/// Creates a private directory; does nothing when it exists, and fails when its parent does not. Not synced.
pub fn ensure_private_child_dir(path: &Path) -> FileResult<()> {
    let created = check_failpoint().and_then(|()| Entry::find(path)?.create_dir(0o700));
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map_err(file_error("create the directory", path)),
    }
}

/// Creates a directory with the usual mode and its missing ancestors; does nothing when it exists. Not synced.
pub fn ensure_shared_dir(path: &Path) -> FileResult<()> {
    ensure_dir(path, 0o777)
}

fn ensure_dir(path: &Path, mode: u32) -> FileResult<()> {
    check_failpoint()
        .and_then(|()| beneath::ensure_dir_beneath(path, mode))
        .map_err(file_error("create the directory", path))
}

/// As [`ensure_private_dir`], and what it creates is durable. It syncs the parent in any case: another process that creates
/// the directory may not have done so yet.
pub fn ensure_private_dir_synced(path: &Path) -> FileResult<()> {
    let mut parents = parents_of_missing_dirs(path);
    ensure_private_dir(path)?;
    if parents.is_empty() {
        parents.extend(path.parent());
    }
    parents.into_iter().try_for_each(sync_dir)
}

/// Creates a directory with the usual mode and its missing ancestors; does nothing when it exists. What it creates is
/// durable.
pub fn ensure_shared_dir_synced(path: &Path) -> FileResult<()> {
    let parents = parents_of_missing_dirs(path);
    ensure_shared_dir(path)?;
    parents.into_iter().try_for_each(sync_readable_dir)
}

/// The directories in which `path` and its missing ancestors will be, the first one last.
pub(super) fn parents_of_missing_dirs(path: &Path) -> Vec<&Path> {
    let missing = path.ancestors().take_while(|dir| {
        metadata_no_follow(dir).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    });
    let parents = missing.filter_map(Path::parent);
    parents.map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir }).collect()
}

/// Makes git ignore one of delta's directories by a `.gitignore` with `*` in it: `git add`, `git clean` and
/// `git stash -u` skip it. A `.gitignore` that is not empty belongs to the user and stays.
pub fn hide_from_git(dir: &Path) -> FileResult<()> {
    let path = dir.join(".gitignore");
    let metadata = metadata_no_follow(&path);
    let has_content = metadata.is_ok_and(|metadata| !metadata.is_file() || metadata.len() > 0);
    if has_content && !is_zeroed(&path) {
        return Ok(());
    }
    // Two processes that write at the same time write the same bytes to the same offset.
    check_failpoint()
        .and_then(|()| open_private(&path, false))
        .and_then(|mut file| file.write_all(b"*\n"))
        .map_err(file_error("write", &path))
}

/// Whether a small file has only zeros: a power failure can leave the length of a file without its content.
fn is_zeroed(path: &Path) -> bool {
    read_small_no_follow(path).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// Makes the names in a directory durable.
pub fn sync_dir(path: &Path) -> FileResult<()> {
    check_failpoint()
        .and_then(|()| beneath::open_dir(path))
        .and_then(|dir| dir.sync_all())
        .map_err(file_error("sync the directory", path))
}

/// Makes the names in a directory durable, if this user may read it: otherwise nothing can.
pub fn sync_readable_dir(path: &Path) -> FileResult<()> {
    match sync_dir(path) {
        Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Makes everything durable that was written to the file system of `path`: one sync for any number of files.
pub fn sync_file_system(path: &Path) -> FileResult<()> {
    check_failpoint()
        .and_then(|()| beneath::open_dir(path))
        .and_then(|dir| sync_system_of(&dir))
        .map_err(file_error("sync the file system of", path))
}

#[cfg(target_os = "linux")]
fn sync_system_of(dir: &impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(dir)?)
}

/// Other systems sync all file systems at once.
#[cfg(not(target_os = "linux"))]
fn sync_system_of(_: &impl AsFd) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

/// As [`sync_readable_dir`]; the crash tests do not count it.
pub(super) fn sync_dir_uncounted(path: &Path) -> io::Result<()> {
    match beneath::open_dir(path).and_then(|dir| dir.sync_all()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}
