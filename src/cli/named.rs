//! A run as a person names it: by its id, in the workspace of `-w`, or by the path of its directory.

use super::failure::Failure;
use super::resume;
use crate::event::Event;
use crate::id::RunId;
use crate::text::path_word;
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};

/// What stands on the command line for a run.
#[derive(Debug, Clone)]
pub enum Named {
    /// Its id.
    Id(RunId),
    /// The path of its directory.
    Dir(PathBuf),
}

/// A run that is there.
#[derive(Debug)]
pub struct Found {
    /// Its id.
    pub id: RunId,
    /// Its directory, absolute.
    pub dir: PathBuf,
    /// The workspace that holds it.
    pub workspace: Workspace,
    /// The workspace as the person calls it.
    pub called: PathBuf,
}

impl Found {
    /// Its workspace as a word of a command line.
    pub fn place(&self) -> String {
        path_word(&self.workspace.root)
    }
}

impl Named {
    /// Takes an id, or a path: a word with a slash.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.contains('/') {
            true => Ok(Self::Dir(PathBuf::from(text))),
            false => Self::parse_id(text),
        }
    }

    /// Takes an id and no path.
    pub fn parse_id(text: &str) -> Result<Self, String> {
        super::parse_run_id(text).map(Self::Id)
    }

    /// The id that the person wrote, if it is one.
    pub fn id(&self) -> Option<&RunId> {
        match self {
            Self::Id(id) => Some(id),
            Self::Dir(_) => None,
        }
    }

    /// Finds the run, an id in the workspace `work_dir`.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(&self, work_dir: &Path) -> Result<Found, Failure> {
        let (id, root) = match self {
            Self::Id(id) => (id.clone(), work_dir.to_owned()),
            Self::Dir(dir) => parts(dir)?,
        };
        let workspace = Workspace::existing(&root)?;
        let dir = resume::find(&id, &workspace)?;
        Ok(Found { id, dir, workspace, called: root })
    }

    /// Finds it and reads its journal.
    ///
    /// # Errors
    /// It is not there, or its journal cannot be read.
    pub fn read(&self, work_dir: &Path) -> Result<(Found, Vec<Event>), Failure> {
        let found = self.find(work_dir)?;
        let events = resume::read_journal(&found.id, &found.dir)?.events;
        Ok((found, events))
    }
}

/// The id and the workspace in the path of a run directory.
fn parts(dir: &Path) -> Result<(RunId, PathBuf), Failure> {
    let not_one = || {
        let message = format!("{} is not the directory of a run", dir.display());
        Failure::no_run(message, "a run lies in WORKSPACE/.delta/RUN; name it so, or by its id")
    };
    // One is named from inside its workspace too, where the path of the workspace is no part of the name.
    let dir = dir.canonicalize().map_err(|_| not_one())?;
    let id = dir.file_name().and_then(|name| RunId::parse(name.to_str()?).ok());
    let control = dir.parent().filter(|control| control.ends_with(".delta"));
    let root = control.and_then(Path::parent).map(Path::to_owned);
    id.zip(root).ok_or_else(not_one)
}
