//! The workspace of a run as an archive, and back.

use crate::run_files::OWNER_LOCK_FILE;
use crate::workspace::CONTROL_DIR;
use delta_base::durable;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Archive, Builder, Entry, EntryType, Header};

/// An empty file among the records of a run whose workspace had files that were not archived.
const REMOVED_WORKSPACE_FILE: &str = ".delta/workspace-removed";
/// The longest archive of a run. It is kept in memory.
pub const MAX_ARCHIVE_BYTES: usize = 1 << 30;
/// The longest name in a header; GNU's entries have longer ones.
const MAX_NAME_BYTES: usize = 100;
/// What ends an archive.
const ARCHIVE_END: [u8; 1024] = [0; 1024];

/// Archives the workspace `root` with the records of its runs, or only these.
///
/// # Errors
/// A file cannot be read, is something else than a file, directory or link, or all are too long.
pub fn archive_workspace(root: &Path, keeps_workspace: bool) -> io::Result<Vec<u8>> {
    let archive = Builder::new(Vec::new());
    let mut archiver = WorkspaceArchiver { root, archive, linked: HashMap::new() };
    if keeps_workspace {
        archiver.add_directory(Path::new(""))?;
    } else {
        archiver.add_records()?;
    }
    archiver.archive.into_inner()
}

struct WorkspaceArchiver<'a> {
    root: &'a Path,
    archive: Builder<Vec<u8>>,
    /// The first names of files that have several.
    linked: HashMap<(u64, u64), PathBuf>,
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
        let header = new_header(EntryType::Regular, 0o600);
        self.append(header, Path::new(REMOVED_WORKSPACE_FILE), Path::new(""), &[])
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
        let mode = metadata.mode() & 0o7777;
        let nothing = Path::new("");
        if metadata.is_dir() {
            self.append(new_header(EntryType::Directory, mode), path, nothing, &[])?;
            return self.add_directory(path);
        }
        if metadata.is_symlink() {
            // Its time is not restored.
            let header = new_header(EntryType::Symlink, mode);
            return self.append(header, path, &fs::read_link(&full)?, &[]);
        }
        if !metadata.is_file() {
            let reason = format!("{} is neither a file nor a directory", full.display());
            return Err(io::Error::other(reason));
        }
        let mut header = new_header(EntryType::Regular, mode);
        header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
        let inode = (metadata.dev(), metadata.ino());
        if let Some(first) = self.linked.get(&inode).cloned() {
            header.set_entry_type(EntryType::Link);
            return self.append(header, path, &first, &[]);
        }
        if metadata.nlink() > 1 {
            self.linked.insert(inode, path.to_owned());
        }
        self.append(header, path, nothing, &durable::read_no_follow(&full)?)
    }

    /// Appends an entry with these names, byte by byte: `append_data` and `append_link` of the crate change the target
    /// `a//b`, and refuse a long name that does not begin with UTF-8.
    fn append(
        &mut self,
        mut header: Header,
        path: &Path,
        link: &Path,
        content: &[u8],
    ) -> io::Result<()> {
        let [path, link] = [path, link].map(|name| name.as_os_str().as_bytes());
        append_long_name(&mut self.archive, EntryType::GNULongLink, link)?;
        header.set_link_name_literal(&link[..link.len().min(MAX_NAME_BYTES)])?;
        header.set_size(content.len() as u64);
        append_named(&mut self.archive, header, path, content)?;
        if self.archive.get_ref().len() > MAX_ARCHIVE_BYTES {
            return Err(io::Error::other(format!("it has more than {MAX_ARCHIVE_BYTES} bytes")));
        }
        Ok(())
    }
}

/// Appends an entry with a name of any length and bytes. `header` has the length of the content.
pub(crate) fn append_named(
    archive: &mut Builder<impl io::Write>,
    header: Header,
    name: &[u8],
    content: impl Read,
) -> io::Result<()> {
    append_long_name(archive, EntryType::GNULongName, name)?;
    append_block(archive, header, &name[..name.len().min(MAX_NAME_BYTES)], content)
}

/// Appends a name that does not fit the header of the next entry.
fn append_long_name(
    archive: &mut Builder<impl io::Write>,
    kind: EntryType,
    name: &[u8],
) -> io::Result<()> {
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let name = [name, b"\0"].concat();
    let mut header = new_header(kind, 0o644);
    header.set_size(name.len() as u64);
    append_block(archive, header, b"././@LongLink", &name[..])
}

fn append_block(
    archive: &mut Builder<impl io::Write>,
    mut header: Header,
    name: &[u8],
    content: impl Read,
) -> io::Result<()> {
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    archive.append(&header, content)
}

pub(crate) fn new_header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    // It does not say whose the file was.
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Writes the files of an archive into `root`, a new directory that no other process uses.
///
/// # Errors
/// The archive is damaged, or a file cannot be written.
pub fn extract_archive(archive: &[u8], root: &Path) -> io::Result<()> {
    // The crate takes any end between two entries for the end of the archive.
    if !archive.ends_with(&ARCHIVE_END) {
        return Err(tar_error(io::Error::other("it is cut off")));
    }
    let mut directories = Vec::new();
    let mut symlinks = Vec::new();
    for entry in Archive::new(archive).entries()? {
        let mut entry = entry.map_err(tar_error)?;
        let path = join(root, &entry.path_bytes())?;
        let link = entry.link_name_bytes().unwrap_or_default().into_owned();
        match entry.header().entry_type() {
            EntryType::Directory => {
                durable::ensure_private_dir(&path).map_err(|error| error.source)?;
                directories.push((path, entry.header().mode().map_err(tar_error)? & 0o7777));
            }
            EntryType::Regular => write_file(&path, &mut entry)?,
            EntryType::Link => durable::hard_link_unsynced(&join(root, &link)?, &path)?,
            EntryType::Symlink => symlinks.push((path, link)),
            _ => return Err(tar_error(io::Error::other("it has an entry of another kind"))),
        }
    }
    // Last, and the deepest first, so that nothing is written through one of them.
    symlinks.sort_by_key(|(path, _): &(PathBuf, _)| std::cmp::Reverse(path.components().count()));
    for (path, target) in symlinks {
        std::os::unix::fs::symlink(OsStr::from_bytes(&target), path)?;
    }
    for (path, mode) in directories.into_iter().rev() {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn tar_error(reason: io::Error) -> io::Error {
    io::Error::new(reason.kind(), format!("the archive of a run is damaged: {reason}"))
}

fn join(root: &Path, path: &[u8]) -> io::Result<PathBuf> {
    durable::join_beneath(root, OsStr::from_bytes(path))
}

fn write_file(path: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
    durable::create_private_from_unsynced(path, entry).map_err(|error| error.source)?;
    let modified = Duration::from_secs(entry.header().mtime().map_err(tar_error)?);
    let modified = SystemTime::UNIX_EPOCH.checked_add(modified);
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_modified(modified.ok_or_else(|| tar_error(io::Error::other("a time is too large")))?)?;
    // Others may have made the archive, and it does not say whose the file was: no set-user-id and no set-group-id.
    let mode = entry.header().mode().map_err(tar_error)? & 0o1777;
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A name of a file, which is any bytes but these two.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        let byte = (1..=255_u8).prop_filter("a separator", |byte| *byte != b'/');
        prop::collection::vec(byte, 1..250)
            .prop_filter("not a name of a file", |name| name != b"." && name != b"..")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_workspace_is_extracted_as_it_was(
            files in prop::collection::btree_map(
                name(),
                prop::collection::vec(1..=255_u8, 0..1500),
                1..5,
            ),
            directory in name(),
            target in prop::collection::vec(1..=255_u8, 1..250),
            damaged_at in any::<prop::sample::Index>(),
        ) {
            let place = tempfile::tempdir().unwrap();
            let [root, copy, other] = ["root", "copy", "other"].map(|name| place.path().join(name));
            let path = |name: &[u8]| root.join("top").join(OsStr::from_bytes(name));
            prop_assume!(!files.contains_key(&directory));
            fs::create_dir_all(path(&directory)).unwrap();
            for (name, content) in &files {
                fs::write(path(name), content).unwrap();
            }
            let first = path(files.keys().next().unwrap());
            fs::hard_link(first, path(&directory).join("hard")).unwrap();
            let link = path(&directory).join("soft");
            std::os::unix::fs::symlink(OsStr::from_bytes(&target), link).unwrap();
            let mut archive = archive_workspace(&root, true).unwrap();
            fs::create_dir(&copy).unwrap();
            extract_archive(&archive, &copy).unwrap();
            prop_assert!(archive_workspace(&copy, true).unwrap() == archive);
            // No damage makes reading panic.
            fs::create_dir(&other).unwrap();
            let at = damaged_at.index(archive.len());
            prop_assert!(extract_archive(&archive[..at / 512 * 512], &other).is_err());
            archive[at] ^= 0x55;
            let _ = extract_archive(&archive, &other);
        }
    }

    #[test]
    fn a_time_that_no_clock_has_is_damage() {
        let place = tempfile::tempdir().unwrap();
        let mut header = new_header(EntryType::Regular, 0o644);
        header.set_mtime(u64::MAX);
        let mut archive = Builder::new(Vec::new());
        header.set_size(0);
        archive.append_data(&mut header, "file", io::empty()).unwrap();
        let error = extract_archive(&archive.into_inner().unwrap(), place.path()).unwrap_err();
        assert_eq!(error.to_string(), "the archive of a run is damaged: a time is too large");
    }
}
