//! Snapshots of a workspace: what every file in it was, each content kept once, in the directory of the run.
//!
//! Knows directories and nothing of engines. A snapshot is the id of a tree; it counts when a journal names it, so
//! whatever a kill leaves here is harmless. Only what has changed is read and written. Nothing is synced unless it is asked
//! for: a power failure may take the last of it, and what cannot be given back exactly is not given back at all.

use crate::durable::{self, FileError};
use crate::signal::Cancel;
use crate::text::Secrets;
use index::Index;
use objects::Objects;
use rustix::fs::Mode;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use walk::{Directories, Walk};

mod exclude;
mod index;
mod objects;
mod restore;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

pub use exclude::{Exclude, SNAPSHOTS};
pub use objects::Id;
pub use restore::Plan;
pub use tree::{Change, Entry, Kind};

/// The name under which runs lie, at any depth: it is no part of a workspace.
const CONTROL: &[u8] = b".delta";

/// Where the snapshots of a run lie, in its directory.
pub const DIRECTORY: &str = "snapshots";

/// Why there is no snapshot, or no way back to one.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The system said no.
    #[error(transparent)]
    File(#[from] FileError),
    /// The stop was asked for.
    #[error("interrupted")]
    Cancelled,
    /// What is needed is missing or damaged; nothing was changed.
    #[error("the snapshot is not whole:\n{}", .0.join("\n"))]
    Damaged(Vec<String>),
    /// What is kept in no snapshot stands in the way; nothing was changed.
    #[error("what no snapshot holds is in the way of what was there:\n{}", .0.join("\n"))]
    InTheWay(Vec<String>),
}

/// A path that is in no snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Relative to the workspace.
    pub path: Vec<u8>,
    /// Why.
    pub why: String,
}

/// A workspace at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What all of it is.
    pub tree: Id,
    /// How many files it has.
    pub files: u64,
    /// How long they are together.
    pub bytes: u64,
    /// How many bytes had to be written for it.
    pub written: u64,
    /// What is not in it and not excluded either.
    pub left_out: Vec<LeftOut>,
    /// The paths among those that no snapshot of this process has told of yet.
    pub news: Vec<LeftOut>,
}

/// What differs between two snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// In the order of a walk.
    pub changes: Vec<Change>,
    /// What is left out of one of them, so that it is not known.
    pub left_out: Vec<Vec<u8>>,
    /// Those of them that only the second one has: nobody can bring them back.
    pub gone: Vec<Vec<u8>>,
}

/// The snapshots of a run.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    objects: Objects,
    index: Index,
    exclude: Exclude,
    /// The directories at the last look.
    directories: Directories,
    told: HashSet<Vec<u8>>,
    /// What earlier processes have found to hold a secret.
    withheld: HashSet<Vec<u8>>,
}

impl Store {
    /// That of the run in `run_dir`, made when it is missing. What it is to keep leaves `exclude` out.
    pub fn open(run_dir: &Path, exclude: Exclude) -> Result<Self, FileError> {
        let dir = run_dir.join(DIRECTORY);
        let mut objects = Objects::open(dir.join("objects"))?;
        let index = Index::load(&dir.join("index"), &mut objects);
        Ok(Self {
            dir,
            objects,
            index,
            exclude,
            directories: Directories::new(),
            told: HashSet::new(),
            withheld: HashSet::new(),
        })
    }

    /// What is left out on demand.
    pub fn exclude(&self) -> &Exclude {
        &self.exclude
    }

    /// Leaves out, as long as it is there, what `tree` leaves out for holding a secret: the process that has kept that
    /// knew a secret which this one need not know. Of a tree that is missing or damaged nothing is known.
    pub fn withhold(&mut self, tree: Id) {
        tree::secrets(&self.objects, tree, &[], &mut self.withheld);
    }

    /// Keeps the workspace as it is. What did not change since the last time is not read again.
    ///
    /// # Errors
    /// Something could not be written, or the stop was asked for. What could not be read is left out instead.
    pub fn take(
        &mut self,
        workspace: &Path,
        secrets: &Secrets,
        cancel: Option<&Cancel>,
    ) -> Result<Snapshot, SnapshotError> {
        let root = open_root(workspace)?;
        let now = index::now(&self.dir.join("clock"))?;
        let before = self.objects.written;
        self.index.next_look();
        let mut walk = Walk {
            objects: &mut self.objects,
            index: &mut self.index,
            before: std::mem::take(&mut self.directories),
            seen: Directories::new(),
            exclude: &self.exclude,
            secrets,
            withheld: self.withheld.clone(),
            still_withheld: HashSet::new(),
            go_on: &|| go_on(cancel),
            workspace,
            now,
            files: 0,
            bytes: 0,
            left_out: Vec::new(),
        };
        let tree = walk.directory(&root, &[])?;
        let Walk { seen, files, bytes, left_out, still_withheld, .. } = walk;
        self.directories = seen;
        self.withheld = still_withheld;
        let news =
            left_out.iter().filter(|it| self.told.insert(it.path.clone())).cloned().collect();
        let written = self.objects.written - before;
        Ok(Snapshot { tree, files, bytes, written, left_out, news })
    }

    /// Where runs lie below the workspace, as the last look has found them: the directories that hold a `.delta`,
    /// relative to it.
    pub fn places_below(&self) -> Vec<PathBuf> {
        let has_runs = |entries: &[Entry]| entries.iter().any(|it| it.name == CONTROL);
        let found = self.directories.iter().filter(|(_, (entries, _))| has_runs(entries));
        let mut places: Vec<_> =
            found.map(|(path, _)| PathBuf::from(OsStr::from_bytes(path))).collect();
        places.sort_unstable();
        places
    }

    /// Notes for the next process what has been read, so that it need not read it again.
    pub fn save(&self) -> Result<(), FileError> {
        self.index.save(&self.dir.join("index"))
    }

    /// Makes everything durable that is kept here: what is about to go from the workspace may then be here alone.
    pub fn sync(&self) -> Result<(), FileError> {
        durable::sync_around(&self.dir)
    }

    /// What differs between two trees.
    pub fn compare(&self, before: Id, after: Id) -> Result<Difference, SnapshotError> {
        tree::compare(&self.objects, before, after)
    }

    /// A content: of a file, or where a symlink leads.
    pub fn content(&self, id: Id) -> Result<Vec<u8>, SnapshotError> {
        self.objects.read(id).map_err(|why| SnapshotError::Damaged(vec![why]))
    }

    /// The tree of a directory in which there is nothing.
    pub fn empty(&mut self) -> Result<Id, FileError> {
        self.objects.put(&[])
    }

    /// Takes over from the store of another run all that `tree` needs.
    pub fn adopt(&mut self, from: &Self, tree: Id) -> Result<(), SnapshotError> {
        tree::adopt(&mut self.objects, &from.objects, tree)
    }
}

fn go_on(cancel: Option<&Cancel>) -> Result<(), SnapshotError> {
    match cancel.is_some_and(Cancel::requested) {
        true => Err(SnapshotError::Cancelled),
        false => Ok(()),
    }
}

/// The workspace itself may be named by a symlink; below it none is followed.
fn open_root(workspace: &Path) -> Result<OwnedFd, FileError> {
    let flags = walk::DIRECTORY.difference(rustix::fs::OFlags::NOFOLLOW);
    rustix::fs::open(workspace, flags, Mode::empty()).map_err(|error| FileError {
        action: "read",
        path: workspace.to_owned(),
        source: error.into(),
    })
}
