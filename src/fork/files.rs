//! The files of a workspace that has no snapshot: copied as they are now.

use crate::durable::FileError;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The name under which runs lie, at any depth: it is no part of a workspace.
const CONTROL: &str = ".delta";

/// Copies the files of a workspace into one that has none, with their rights and times; `.delta` and the new workspace
/// itself are left out. Gives the paths, relative to the workspace, of what is no file, directory or symlink, and is not
/// copied.
///
/// # Errors
/// Something could not be read or written. What is gone by the time that it is looked at is no error.
pub fn copy_workspace(from: &Path, to: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut copying = Copying { from, to, left: Vec::new() };
    copying.directory(Path::new(""))?;
    Ok(copying.left)
}

struct Copying<'a> {
    from: &'a Path,
    to: &'a Path,
    left: Vec<PathBuf>,
}

impl Copying<'_> {
    fn directory(&mut self, path: &Path) -> Result<(), FileError> {
        let source = self.from.join(path);
        let Some(entries) = there(fs::read_dir(&source), "read", &source)? else { return Ok(()) };
        for entry in entries.flatten().filter(|entry| entry.file_name() != CONTROL) {
            self.entry(&path.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path) -> Result<(), FileError> {
        let (source, copy) = (self.from.join(path), self.to.join(path));
        let found = there(fs::symlink_metadata(&source), "read", &source)?;
        let Some(metadata) = found.filter(|_| source != self.to) else { return Ok(()) };
        let kind = metadata.file_type();
        if kind.is_dir() {
            fs::create_dir(&copy).map_err(failed("create the directory", &copy))?;
            self.directory(path)?;
            // Last: what may not be written into is filled by then, and filling changes the time.
            stamp(File::open(&copy), &copy, &metadata)
        } else if kind.is_symlink() {
            let Some(target) = there(fs::read_link(&source), "read", &source)? else {
                return Ok(());
            };
            symlink(target, &copy).map_err(failed("create", &copy))
        } else if kind.is_file() {
            copy_file(&source, &copy, &metadata)
        } else {
            self.left.push(path.to_owned());
            Ok(())
        }
    }
}

fn copy_file(source: &Path, copy: &Path, metadata: &Metadata) -> Result<(), FileError> {
    // What took its place meanwhile is neither followed nor waited for.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
    let Some(mut from) = there(options.open(source), "read", source)? else { return Ok(()) };
    let mut to = File::create_new(copy).map_err(failed("create", copy))?;
    io::copy(&mut from, &mut to).map_err(failed("write", copy))?;
    stamp(Ok(to), copy, metadata)
}

/// Gives a copy the rights and the times of what it is a copy of.
fn stamp(file: io::Result<File>, path: &Path, metadata: &Metadata) -> Result<(), FileError> {
    let set = |file: File| {
        let mut times = fs::FileTimes::new();
        if let (Ok(accessed), Ok(modified)) = (metadata.accessed(), metadata.modified()) {
            times = times.set_accessed(accessed).set_modified(modified);
        }
        file.set_times(times)?;
        file.set_permissions(fs::Permissions::from_mode(metadata.mode() & 0o7777))
    };
    file.and_then(set).map_err(failed("write", path))
}

/// What is there; nothing when it is gone.
fn there<T>(
    result: io::Result<T>,
    action: &'static str,
    path: &Path,
) -> Result<Option<T>, FileError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(action, path)(error)),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError { action, path, source }
}
