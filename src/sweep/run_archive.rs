//! The workspace of a run as an archive, and back.

use delta_base::durable;
use delta_run::run_files::OWNER_LOCK_FILE;
use delta_run::workspace::CONTROL_DIR;
use delta_sweep::tar_archive::{TarEntry, TarKind, append_entry, end_archive, read_tar_entries};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// An empty file among the records of a run whose workspace had files that were not archived.
const REMOVED_WORKSPACE_FILE: &str = ".delta/workspace-removed";
/// The longest archive of a run. It is kept in memory.
pub const MAX_ARCHIVE_BYTES: usize = 1 << 30;

/// Archives the workspace `root` with the records of its runs, or only these.
///
/// # Errors
/// A file cannot be read, is something else than a file, directory or link, or all are too long.
pub fn archive_workspace(root: &Path, keeps_workspace: bool) -> io::Result<Vec<u8>> {
    let mut archiver = WorkspaceArchiver { root, archive: Vec::new(), linked: HashMap::new() };
    if keeps_workspace {
        archiver.add_directory(Path::new(""))?;
    } else {
        archiver.add_records()?;
    }
    let mut archive = archiver.archive;
    end_archive(&mut archive);
    Ok(archive)
}

struct WorkspaceArchiver<'a> {
    root: &'a Path,
    archive: Vec<u8>,
    /// The first names of files that have several.
    linked: HashMap<(u64, u64), Vec<u8>>,
}

/// Whether the files of a workspace were not archived with the records of its runs, so that nothing can be said about them.
pub fn is_workspace_removed(root: &Path) -> bool {
    root.join(REMOVED_WORKSPACE_FILE).exists()
}

impl WorkspaceArchiver<'_> {
    fn add_records(&mut self) -> io::Result<()> {
        self.add(Path::new(CONTROL_DIR))?;
        let entries = durable::read_dir_no_follow(self.root)?;
        if entries.iter().all(|entry| entry.name == CONTROL_DIR) || is_workspace_removed(self.root)
        {
            return Ok(());
        }
        append_entry(
            &mut self.archive,
            &TarEntry {
                path: REMOVED_WORKSPACE_FILE.as_bytes().to_vec(),
                kind: TarKind::File(&[]),
                mode: 0o600,
                modified: 0,
            },
        );
        Ok(())
    }

    fn add_directory(&mut self, path: &Path) -> io::Result<()> {
        let entries = durable::read_dir_no_follow(&self.root.join(path))?;
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        names.iter().try_for_each(|name| self.add(&path.join(name)))
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        let full = self.root.join(path);
        let metadata = durable::metadata_no_follow(&full)?;
        // The next process that claims the run creates it.
        let is_lock = path.file_name() == Some(OsStr::new(OWNER_LOCK_FILE));
        if is_lock && path.starts_with(CONTROL_DIR) && path.components().count() == 3 {
            return Ok(());
        }
        if metadata.is_dir() {
            self.append(path, &metadata, TarKind::Directory, 0)?;
            return self.add_directory(path);
        }
        let modified = u64::try_from(metadata.mtime()).unwrap_or(0);
        if metadata.is_symlink() {
            let target = fs::read_link(&full)?.into_os_string().into_vec();
            // Its time is not restored.
            return self.append(path, &metadata, TarKind::Symlink(target), 0);
        }
        if !metadata.is_file() {
            let reason = format!("{} is neither a file nor a directory", full.display());
            return Err(io::Error::other(reason));
        }
        let inode = (metadata.dev(), metadata.ino());
        if let Some(first) = self.linked.get(&inode).cloned() {
            return self.append(path, &metadata, TarKind::HardLink(first), modified);
        }
        if metadata.nlink() > 1 {
            self.linked.insert(inode, path.as_os_str().as_bytes().to_vec());
        }
        let content = durable::read_no_follow(&full)?;
        self.append(path, &metadata, TarKind::File(&content), modified)
    }

    fn append(
        &mut self,
        path: &Path,
        metadata: &Metadata,
        kind: TarKind<'_>,
        modified: u64,
    ) -> io::Result<()> {
        let path = path.as_os_str().as_bytes().to_vec();
        let entry = TarEntry { path, kind, mode: metadata.mode() & 0o7777, modified };
        append_entry(&mut self.archive, &entry);
        if self.archive.len() > MAX_ARCHIVE_BYTES {
            return Err(io::Error::other(format!("it has more than {MAX_ARCHIVE_BYTES} bytes")));
        }
        Ok(())
    }
}

/// Writes the files of an archive into `root`, a new directory that no other process uses.
///
/// # Errors
/// The archive is damaged, or a file cannot be written.
pub fn extract_archive(archive: &[u8], root: &Path) -> io::Result<()> {
    let entries = read_tar_entries(archive)?;
    let mut directories = Vec::new();
    let mut symlinks = Vec::new();
    for entry in &entries {
        let path = join(root, &entry.path)?;
        match &entry.kind {
            TarKind::Directory => {
                durable::ensure_private_dir(&path).map_err(|error| error.source)?;
                directories.push((path, entry.mode));
            }
            TarKind::File(content) => write_file(&path, content, entry)?,
            TarKind::HardLink(first) => durable::hard_link_unsynced(&join(root, first)?, &path)?,
            TarKind::Symlink(target) => symlinks.push((path, target)),
        }
    }
    // Last, and the deepest first, so that nothing is written through one of them.
    symlinks.sort_by_key(|(path, _): &(PathBuf, _)| std::cmp::Reverse(path.components().count()));
    for (path, target) in symlinks {
        std::os::unix::fs::symlink(OsStr::from_bytes(target), path)?;
    }
    for (path, mode) in directories.into_iter().rev() {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn join(root: &Path, path: &[u8]) -> io::Result<PathBuf> {
    durable::join_beneath(root, OsStr::from_bytes(path))
}

fn write_file(path: &Path, content: &[u8], entry: &TarEntry<'_>) -> io::Result<()> {
    let mut bytes = content;
    durable::create_private_from_unsynced(path, &mut bytes).map_err(|error| error.source)?;
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(entry.modified))?;
    // Others may have made the archive, and it does not say whose the file was: no set-user-id and no set-group-id.
    file.set_permissions(Permissions::from_mode(entry.mode & 0o1777))
}
