//! Runs in the packs of a sweep: found by their ids, read and unpacked.
//!
//! A directory of a run counts over every pack, and a pack over those with lower numbers.

pub mod run_archive;
pub mod zip_archive;

use crate::sweep::sweep_dir::{SweepDir, draft_path, shard_name};
use delta_base::durable::{self, FileError};
use delta_base::hex::encode_hex;
use delta_base::id::RunId;
use delta_base::random;
use run_archive::{MAX_ARCHIVE_BYTES, archive_workspace, extract_archive};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use zip_archive::{ZipMember, ZipWriter, read_directory};

/// The end of the names of members.
const MEMBER_END: &str = ".tar";

/// The name of the member of a run.
pub fn member_name(id: &RunId) -> String {
    format!("{id}{MEMBER_END}")
}

/// The packs of a sweep, whose directories are read when they are needed.
pub struct RunPacks {
    dir: SweepDir,
    known: RefCell<HashMap<String, Rc<HashMap<String, ZipMember>>>>,
}

impl RunPacks {
    /// The packs of the sweep in `dir`.
    pub fn new(dir: &SweepDir) -> Self {
        Self { dir: dir.clone(), known: RefCell::default() }
    }

    /// The archive of a run; `None` if no pack has it.
    pub fn read(&self, id: &RunId) -> Result<Option<Vec<u8>>, FileError> {
        let Some((path, member)) = self.find(id)? else { return Ok(None) };
        if member.bytes() > MAX_ARCHIVE_BYTES as u64 {
            let source = io::Error::other(format!(
                "the archive of run {id} has more than {MAX_ARCHIVE_BYTES} bytes"
            ));
            return Err(FileError::at("read", &path)(source));
        }
        let archive = File::open(&path).and_then(|file| member.read(file));
        archive.map(Some).map_err(FileError::at("read", &path))
    }

    /// Whether a pack has the run.
    pub fn has_run(&self, id: &RunId) -> Result<bool, FileError> {
        Ok(self.find(id)?.is_some())
    }

    /// Whether the newest pack that has the run has this archive of it.
    pub fn has_archive(&self, id: &RunId, archive: &[u8]) -> Result<bool, FileError> {
        Ok(self.read(id)?.is_some_and(|packed| packed == archive))
    }

    fn find(&self, id: &RunId) -> Result<Option<(PathBuf, ZipMember)>, FileError> {
        let mut names = self.pack_names(shard_name(id))?;
        names.sort();
        for name in names.into_iter().rev() {
            let path = self.dir.packs().join(&name);
            if let Some(member) = self.members(name, &path)?.get(&member_name(id)) {
                return Ok(Some((path, member.clone())));
            }
        }
        Ok(None)
    }

    /// The names of the packs of a shard. Listed, not looked for: on a shared file system a name that was missing may stay
    /// missing.
    pub fn pack_names(&self, shard: &str) -> Result<Vec<String>, FileError> {
        let path = self.dir.packs();
        let entries = durable::read_dir_if_exists(&path)?;
        let names = entries.into_iter().filter_map(|entry| entry.name.into_string().ok());
        let start = format!("{shard}-");
        Ok(names.filter(|name| name.starts_with(&start) && name.ends_with(".zip")).collect())
    }

    fn members(
        &self,
        name: String,
        path: &Path,
    ) -> Result<Rc<HashMap<String, ZipMember>>, FileError> {
        if let Some(known) = self.known.borrow().get(&name) {
            return Ok(Rc::clone(known));
        }
        let members =
            File::open(path).and_then(read_directory).map_err(FileError::at("read", path))?;
        let members: HashMap<_, _> =
            members.into_iter().map(|member| (member.name.clone(), member)).collect();
        let members = Rc::new(members);
        self.known.borrow_mut().insert(name, Rc::clone(&members));
        Ok(members)
    }

    /// Extracts a run into `target`, a new directory; false if no pack has it.
    pub fn extract(&self, id: &RunId, target: &Path) -> Result<bool, FileError> {
        let Some(archive) = self.read(id)? else { return Ok(false) };
        durable::ensure_shared_dir(target)?;
        extract_archive(&archive, target).map_err(FileError::at("unpack into", target))?;
        Ok(true)
    }

    /// Makes the directory of a packed run again; returns the pack, or `None` if no pack has the run. The pack stays: from now
    /// on the directory counts.
    pub fn unpack(&self, id: &RunId) -> Result<Option<PathBuf>, FileError> {
        let Some((pack, _)) = self.find(id)? else { return Ok(None) };
        let path = self.dir.workspace(id);
        let draft = draft_path(&path);
        self.extract(id, &draft)?;
        durable::sync_file_system(&draft)?;
        let renamed = durable::rename_dir_synced(&draft, &path);
        if renamed.is_err() && path.is_dir() {
            // Another process has unpacked it meanwhile.
            let _ = durable::remove_dir_all_no_follow(&draft);
            return Ok(Some(pack));
        }
        renamed?;
        Ok(Some(pack))
    }
}

/// The directory `root`, which has only records of runs, as a ZIP file.
///
/// # Errors
/// As [`archive_workspace`].
pub fn pack_run_copy(root: &Path) -> io::Result<Vec<u8>> {
    let mut writer = ZipWriter::default();
    writer.add("run.tar", &archive_workspace(root, true)?);
    Ok(writer.finish())
}

/// Extracts a file of [`pack_run_copy`] into `target`, a new directory.
///
/// # Errors
/// The file cannot be read or is damaged, or the directory cannot be written.
pub fn unpack_run_copy(file: &Path, target: &Path) -> Result<(), FileError> {
    let open = || File::open(file);
    let archive = open().and_then(read_directory).and_then(|members| match members.as_slice() {
        [member] if member.bytes() <= MAX_ARCHIVE_BYTES as u64 => member.read(open()?),
        _ => Err(io::Error::other("it is not the copy of a run")),
    });
    let archive = archive.map_err(FileError::at("read", file))?;
    durable::ensure_private_dir(target)?;
    extract_archive(&archive, target).map_err(FileError::at("unpack into", target))
}

/// The sweep of which `path` is, or was, the workspace of a run.
pub fn sweep_of_workspace(path: &Path) -> Option<(SweepDir, RunId)> {
    let path = std::path::absolute(path).ok()?;
    let id = RunId::parse(path.file_name()?.to_str()?).ok()?;
    let dir = SweepDir::new(path.ancestors().nth(3)?);
    (dir.workspace(&id) == path && is_sweep(&dir.root)).then_some((dir, id))
}

/// Whether a directory has a plan.
pub fn is_sweep(root: &Path) -> bool {
    SweepDir::new(root).plan_file(1).is_file()
}

/// The workspaces of packed runs that this process has extracted to read them.
static EXTRACTED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The workspace of a packed run, in a directory that [`remove_extracted_runs`] removes; `None` if no pack has the run.
pub fn extract_to_read(dir: &SweepDir, id: &RunId) -> Result<Option<PathBuf>, FileError> {
    let name = format!("delta-packed-{}", encode_hex(&random::random_bytes::<8>()));
    let parent = std::env::temp_dir().join(name);
    let root = parent.join(id.as_str());
    let packs = RunPacks::new(dir);
    if packs.find(id)?.is_none() {
        return Ok(None);
    }
    EXTRACTED.lock().unwrap_or_else(PoisonError::into_inner).push(parent.clone());
    durable::ensure_private_dir(&parent)?;
    Ok(packs.extract(id, &root)?.then_some(root))
}

/// Removes what was extracted. Call this before the process ends.
pub fn remove_extracted_runs() {
    for dir in EXTRACTED.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // What stays is in the directory for temporary files.
        let _ = durable::remove_dir_all_no_follow(&dir);
    }
}

/// The sweep and the id of a run that is named by its id in `work_dir`, a sweep or the workspace of the run, or by the path of
/// its directory; `None` if its directory exists or it is not of a sweep.
pub fn find_absent_run(id: Option<&RunId>, path: &Path) -> Option<(SweepDir, RunId)> {
    let (dir, id) = match id {
        Some(id) if is_sweep(path) => (SweepDir::new(path), id.clone()),
        _ => sweep_of_workspace(path).filter(|(_, of_path)| id.is_none_or(|id| id == of_path))?,
    };
    (!dir.workspace(&id).is_dir()).then_some((dir, id))
}
