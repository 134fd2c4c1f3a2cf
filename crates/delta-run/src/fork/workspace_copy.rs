//! Copies the files of a workspace as they are now, for a fork without a snapshot.

use delta_base::durable::{self, FileError};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The directory of the runs, at any depth. It is not a part of a workspace.
const CONTROL_DIR: &str = ".delta";

/// Copies the files of a workspace into an empty one, with permissions and times. Leaves out `.delta` and the new
/// workspace itself. Returns the paths, relative to the workspace, of what is not a file, directory or symlink and was
/// therefore not copied.
///
/// # Errors
/// A file could not be read or written. A file that has disappeared is not an error.
pub fn copy_workspace(from: &Path, to: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut copier = WorkspaceCopier { from, to, skipped_paths: Vec::new() };
    copier.copy_dir(Path::new(""))?;
    Ok(copier.skipped_paths)
}

struct WorkspaceCopier<'a> {
    from: &'a Path,
    to: &'a Path,
    skipped_paths: Vec<PathBuf>,
}

impl WorkspaceCopier<'_> {
    fn copy_dir(&mut self, path: &Path) -> Result<(), FileError> {
        let source = self.from.join(path);
        let Some(entries) = unless_missing(fs::read_dir(&source), "read", &source)? else {
            return Ok(());
        };
        for entry in entries.flatten().filter(|entry| entry.file_name() != CONTROL_DIR) {
            self.copy_entry(&path.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn copy_entry(&mut self, path: &Path) -> Result<(), FileError> {
        let source = self.from.join(path);
        let copy = self.to.join(path);
        let metadata = unless_missing(fs::symlink_metadata(&source), "read", &source)?;
        let Some(metadata) = metadata.filter(|_| source != self.to) else { return Ok(()) };
        let kind = metadata.file_type();
        if kind.is_dir() {
            fs::create_dir(&copy).map_err(FileError::at("create the directory", &copy))?;
            self.copy_dir(path)?;
            // After its contents, which change its time and may not be writable afterwards.
            let dir = File::open(&copy).map_err(FileError::at("write", &copy))?;
            copy_file_metadata(&dir, &copy, &metadata)
        } else if kind.is_symlink() {
            let Some(target) = unless_missing(fs::read_link(&source), "read", &source)? else {
                return Ok(());
            };
            symlink(target, &copy).map_err(FileError::at("create", &copy))
        } else if kind.is_file() {
            copy_workspace_file(&source, &copy, &metadata)
        } else {
            self.skipped_paths.push(path.to_owned());
            Ok(())
        }
    }
}

fn copy_workspace_file(source: &Path, copy: &Path, metadata: &Metadata) -> Result<(), FileError> {
    // Should something else have taken its place, it is not followed and not waited for.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
    let Some(mut from) = unless_missing(options.open(source), "read", source)? else {
        return Ok(());
    };
    let mut to = File::create_new(copy).map_err(FileError::at("create", copy))?;
    durable::copy_with_holes(&mut from, &mut to).map_err(FileError::at("write", copy))?;
    copy_file_metadata(&to, copy, metadata)
}

/// Gives a copy the permissions and times of its source.
fn copy_file_metadata(file: &File, path: &Path, metadata: &Metadata) -> Result<(), FileError> {
    let mut times = fs::FileTimes::new();
    if let (Ok(accessed), Ok(modified)) = (metadata.accessed(), metadata.modified()) {
        times = times.set_accessed(accessed).set_modified(modified);
    }
    file.set_times(times)
        .and_then(|()| file.metadata())
        .and_then(|copied| file.set_permissions(allowed_permissions(metadata, &copied)))
        .map_err(FileError::at("write", path))
}

/// The permissions of a file for its copy; without setuid and setgid unless owner and group came out the same.
fn allowed_permissions(original: &Metadata, copied: &Metadata) -> fs::Permissions {
    let owner = |metadata: &Metadata| [metadata.uid(), metadata.gid()];
    let is_same_owner = owner(original) == owner(copied);
    let allowed_bits = if is_same_owner { 0o7777 } else { 0o1777 };
    fs::Permissions::from_mode(original.mode() & allowed_bits)
}

/// The value of a result, or `None` if the file does not exist.
fn unless_missing<T>(
    result: io::Result<T>,
    action: &'static str,
    path: &Path,
) -> Result<Option<T>, FileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::at(action, path)(error)),
    }
}
