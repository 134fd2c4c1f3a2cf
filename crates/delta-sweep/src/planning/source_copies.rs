//! The copies of agents, inputs and model files that a plan refers to, each under the hash of its content.
//!
//! A copy is made under a temporary name and renamed, so that a command that finds it finds all of it, and two commands that plan at
//! the same time make the same.

use crate::formats::canonical_json::content_hash;
use crate::planning::plan_reader::unreadable_file;
use delta_base::durable::{self, FileError};
use delta_base::hex::encode_hex;
use delta_base::random;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::sweep::packed::is_sweep;
use delta_run::sweep::sweep_dir::{SweepDir, draft_path};
use delta_run::workspace::resolve_existing;
use delta_snapshot::{ExcludePatterns, SnapshotStore};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is not copied of an agent: neither its id nor a run depends on it, and a key must not be copied.
const AGENT_EXCLUDES: [&str; 4] = ["workspaces", "tests", ".git", ".env"];

/// What a plan copies, in a temporary directory until the plan is written.
pub struct SourceCopies {
    dir: PathBuf,
    sweeps: SweepFilter,
    store: SnapshotStore,
    /// The names of the copies of recorded runs.
    runs: BTreeSet<String>,
    cancel: CancelToken,
}

impl SourceCopies {
    /// An empty set for the sweep in `sweep_dir`, which need not exist.
    pub fn create(sweep_dir: &Path, cancel: CancelToken) -> Result<Self, CommandFailure> {
        let sweep_dir = resolve_existing(sweep_dir);
        let sweeps = SweepFilter { sweep_dir, noted: RefCell::default() };
        let name = format!("delta-sweep-{}", encode_hex(&random::random_bytes::<8>()));
        let dir = std::env::temp_dir().join(name);
        durable::ensure_private_dir(&dir)?;
        let store_dir = dir.join("store");
        durable::ensure_private_dir(&store_dir)?;
        let store = SnapshotStore::open(&store_dir, ExcludePatterns::default())?;
        Ok(Self { dir, sweeps, store, runs: BTreeSet::new(), cancel })
    }

    /// Takes in an agent directory; returns its tree and a directory with what is copied of it.
    pub fn add_agent(&mut self, source: &Path) -> Result<(String, PathBuf), CommandFailure> {
        let tree = take(&mut self.store, source, &AGENT_EXCLUDES, &self.sweeps, &self.cancel)?;
        let copy = self.dir.join("copies").join(&tree);
        restore(&mut self.store, &tree, &copy)?;
        Ok((tree, copy))
    }

    /// Takes in the directory of an input; returns its tree.
    pub fn add_input(&mut self, source: &Path) -> Result<String, CommandFailure> {
        take(&mut self.store, source, &[], &self.sweeps, &self.cancel)
    }

    /// Whether a path leads to the directory of a sweep.
    pub fn is_sweep_dir(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|path| self.sweeps.includes(&path))
    }

    /// A path for a directory that only the caller uses.
    pub fn new_dir(&self) -> PathBuf {
        draft_path(&self.dir.join("run"))
    }

    /// Takes in the packed records of a recorded run, and removes `root`, where they were.
    pub fn add_run(
        &mut self,
        name: &str,
        packed: &[u8],
        root: &Path,
    ) -> Result<(), CommandFailure> {
        if self.runs.insert(name.to_owned()) {
            durable::create_private_unsynced(&self.dir.join(name), packed)?;
        }
        Ok(durable::remove_dir_all_no_follow(root).map_err(FileError::at("remove", root))?)
    }

    /// Makes the copies of recorded runs in a sweep.
    pub fn copy_runs(&self, dir: &SweepDir) -> Result<(), CommandFailure> {
        self.runs.iter().try_for_each(|name| {
            let path = self.dir.join(name);
            let bytes =
                durable::read_no_follow(&path).map_err(|source| unreadable_file(path, source))?;
            write_copy(&dir.run_copy(name), &bytes)
        })
    }

    /// Makes the copy of an agent or of the directory of an input at `path`.
    pub fn copy_tree(&mut self, tree: &str, path: &Path) -> Result<(), CommandFailure> {
        restore(&mut self.store, tree, path)
    }
}

impl Drop for SourceCopies {
    fn drop(&mut self) {
        // What stays is in the directory for temporary files.
        let _ = durable::remove_dir_all_no_follow(&self.dir);
    }
}

/// Finds the directories of sweeps, which are not copied: they change with each plan and run, so everything would be planned
/// again.
struct SweepFilter {
    /// The directory of the sweep that is planned, without symlinks.
    sweep_dir: PathBuf,
    /// The others that were found, so that each is named once.
    noted: RefCell<BTreeSet<PathBuf>>,
}

impl SweepFilter {
    /// Whether a path without symlinks is the directory of a sweep. A file plan.jsonl alone may be the author's.
    fn includes(&self, path: &Path) -> bool {
        // It has no plan yet if this is the first one, or if the first one was killed.
        if path == self.sweep_dir {
            return true;
        }
        let dir = SweepDir::new(path);
        let is_other = is_sweep(path)
            && [dir.agents(), dir.inputs()].iter().all(|path| path.is_dir())
            && durable::is_dir_no_follow(path);
        if is_other && self.noted.borrow_mut().insert(path.to_owned()) {
            let path = path.display();
            stdio::print_error_line(&format!(
                "Note: {path} is not copied: it is the directory of a sweep"
            ));
        }
        is_other
    }
}

/// Takes in a directory as it would be without the names `excludes` and the directories of sweeps, whose coming and going must
/// not change the tree.
fn take(
    store: &mut SnapshotStore,
    source: &Path,
    excludes: &[&str],
    sweeps: &SweepFilter,
    cancel: &CancelToken,
) -> Result<String, CommandFailure> {
    let root = source.canonicalize().map_err(|error| unreadable_file(source.to_owned(), error))?;
    if root == sweeps.sweep_dir {
        let message =
            format!("{} is the directory of the sweep and of what it copies", source.display());
        return Err(CommandFailure::config(message, "write another directory: `-d DIR`"));
    }
    let snapshot = store.take_without(
        &root,
        &|path, _| {
            let path = root.join(OsStr::from_bytes(path));
            let is_excluded = excludes.iter().any(|name| path.file_name() == Some(name.as_ref()));
            is_excluded || sweeps.includes(&path)
        },
        &Secrets::default(),
        Some(cancel),
    )?;
    if let Some(omitted) = snapshot.omitted.first() {
        let name = String::from_utf8_lossy(&omitted.path).into_owned();
        let path = source.join(name);
        let message = format!("could not copy {}: {}", path.display(), omitted.reason);
        return Err(CommandFailure::config(message, None));
    }
    Ok(snapshot.tree.to_string())
}

fn restore(store: &mut SnapshotStore, tree: &str, path: &Path) -> Result<(), CommandFailure> {
    let Some(tree) = delta_base::id::SnapshotId::parse(tree) else { return Ok(()) };
    if path.is_dir() {
        // A power failure may have left it without its content.
        store.restore(tree, path, &Secrets::default(), None)?;
        return Ok(());
    }
    let draft = draft_path(path);
    durable::ensure_private_dir(&draft)?;
    store.restore(tree, &draft, &Secrets::default(), None)?;
    rename_draft_synced(&draft, path)
}

/// Writes a file with this content at `path`, unless there is one.
pub fn write_copy(path: &Path, bytes: &[u8]) -> Result<(), CommandFailure> {
    Ok(durable::create_private_once(path, bytes)?)
}

/// Writes a program at `path`, unless there is one.
pub fn write_program(path: &Path, bytes: &[u8]) -> Result<(), CommandFailure> {
    match durable::read_regular(path) {
        Ok(known) if known == bytes => return Ok(()),
        // A power failure may have left it without its content.
        Ok(_) => durable::remove_file_unsynced(path)?,
        Err(_) => {}
    }
    let draft = draft_path(path);
    durable::create_shared_unsynced(&draft, bytes, true)?;
    // Another command may have made the same meanwhile.
    let linked = durable::link_new_file(&draft, path);
    durable::remove_file_unsynced(&draft)?;
    match linked {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(unreadable_file(path.to_owned(), source))
        }
        _ => Ok(()),
    }
}

/// The content of a file, with its hash.
pub fn read_with_hash(path: &Path) -> Result<(Vec<u8>, String), CommandFailure> {
    let bytes =
        durable::read_regular(path).map_err(|source| unreadable_file(path.to_owned(), source))?;
    let hash = content_hash(&bytes);
    Ok((bytes, hash))
}

/// Gives a complete directory its final name, durably. One that has the name already is another copy of the same.
pub fn rename_draft_synced(draft: &Path, path: &Path) -> Result<(), CommandFailure> {
    let renamed = durable::rename_dir_synced(draft, path);
    if renamed.is_err() && path.is_dir() {
        let _ = durable::remove_dir_all_no_follow(draft);
        return Ok(());
    }
    Ok(renamed?)
}
