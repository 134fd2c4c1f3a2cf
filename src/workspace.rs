//! Workspaces: `W001`, `W002`, ... of an agent, or any directory; and the run directories in their `.delta/`.

use crate::durable::{self, FileError};
use crate::id::RunId;
use crate::journal::{self, JournalError};
use crate::ownership::{Ownership, OwnershipError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The version of the layout of `.delta/`, in its VERSION file.
const LAYOUT_VERSION: &str = "1\n";
/// The hint for the prompt that asks for a workspace.
const LAST_USED: &str = "LAST_USED";

/// A directory in which an agent works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Absolute, symlinks resolved.
    pub root: PathBuf,
}

/// How deep below a directory its runs are looked for.
const SEARCH_DEPTH: usize = 4;
/// How many directories are looked into for that, so that a search from the root of a disk ends soon.
const SEARCH_LIMIT: usize = 10_000;

/// Why a workspace or a run directory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The system said no.
    #[error(transparent)]
    File(#[from] FileError),
    /// The workspace is not a directory that can be used.
    #[error("the workspace {} cannot be used: {reason}", path.display())]
    Unusable {
        /// The path that was given.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A symlink stands where the control plane belongs.
    #[error("{} is a symlink; delta does not follow symlinks to its run directories", .0.display())]
    Symlink(PathBuf),
    /// Its runs were written by another version of delta.
    #[error("the runs in {} have the layout {found}; this delta knows layout {}", control.display(), LAYOUT_VERSION.trim())]
    Layout {
        /// The directory of the runs.
        control: PathBuf,
        /// What its VERSION says.
        found: String,
    },
    /// The id is taken.
    #[error("run {id} exists already in {}", workspace.display())]
    Exists {
        /// The id.
        id: RunId,
        /// The workspace.
        workspace: PathBuf,
    },
}

impl Workspace {
    /// The directory `path`, made when it is missing.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        let unusable = |reason: String| WorkspaceError::Unusable { path: path.to_owned(), reason };
        ensure_usable(path)?;
        let root = path.canonicalize().map_err(|error| unusable(error.to_string()))?;
        match root.to_str() {
            Some(_) => Ok(Self { root }),
            None => Err(unusable("its path is not UTF-8".to_owned())),
        }
    }

    /// The directory `path`, which must be there.
    pub fn existing(path: &Path) -> Result<Self, WorkspaceError> {
        if !path.is_dir() {
            let reason = "there is no such directory".to_owned();
            return Err(WorkspaceError::Unusable { path: path.to_owned(), reason });
        }
        Self::open(path)
    }

    /// The workspaces below `path`, itself included, that hold the run `id`.
    pub fn holding(path: &Path, id: &RunId) -> Vec<PathBuf> {
        Self::below(path, |dir| dir.join(".delta").join(id.as_str()).is_dir())
    }

    /// The workspaces below `path`, itself included, that hold any run.
    pub fn with_runs(path: &Path) -> Vec<PathBuf> {
        Self::below(path, |dir| {
            let workspace = Self { root: dir.to_owned() };
            workspace.run_dirs().is_ok_and(|runs| !runs.is_empty())
        })
    }

    fn below(path: &Path, is_wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut queue = std::collections::VecDeque::from([(path.to_owned(), 0)]);
        let mut left = SEARCH_LIMIT;
        while let Some((dir, depth)) = queue.pop_front()
            && left > 0
        {
            left -= 1;
            if is_wanted(&dir) {
                found.push(dir.clone());
            }
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            let hidden =
                |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
            if depth < SEARCH_DEPTH {
                let below = entries.filter(|entry| is_dir(entry) && !hidden(entry));
                queue.extend(below.map(|entry| (entry.path(), depth + 1)));
            }
        }
        found.sort();
        found
    }

    /// The next free `W...` of the agent in `agent_home`; two that ask at once get two. Whether it is the last used one
    /// is for the caller to say.
    pub fn next_of(agent_home: &Path) -> Result<Self, WorkspaceError> {
        let parent = agent_home.join("workspaces");
        ensure_usable(&parent)?;
        let mut number = Self::last_of(agent_home);
        loop {
            number += 1;
            let path = parent.join(format!("W{number:03}"));
            match durable::create_dir(&path) {
                Ok(()) => return Self::open(&path),
                Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Where the next workspace of the agent would be; nothing is made.
    pub fn place_of_next(agent_home: &Path) -> PathBuf {
        agent_home.join("workspaces").join(format!("W{:03}", Self::last_of(agent_home) + 1))
    }

    /// The highest number of the agent's workspaces, 0 when it has none.
    fn last_of(agent_home: &Path) -> u64 {
        let names = Self::names_of(agent_home);
        names.iter().filter_map(|name| name[1..].parse::<u64>().ok()).max().unwrap_or(0)
    }

    /// The names of the agent's workspaces, the last used one first.
    pub fn names_of(agent_home: &Path) -> Vec<String> {
        let parent = agent_home.join("workspaces");
        let is_number = |name: &str| {
            name.len() >= 4
                && name.starts_with('W')
                && name[1..].bytes().all(|b| b.is_ascii_digit())
        };
        let entries = fs::read_dir(&parent).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_number(name))
            .collect();
        let last = Self::last_used(agent_home);
        names.sort_by_key(|name| (*name != last, name.len(), name.clone()));
        names
    }

    /// The name of the agent's last used one; empty when none is noted.
    pub fn last_used(agent_home: &Path) -> String {
        let noted = fs::read_to_string(agent_home.join("workspaces").join(LAST_USED));
        noted.unwrap_or_default().trim().to_owned()
    }

    /// Notes it as the agent's last used one; a hint, so a failure changes nothing.
    pub fn mark_last_used(&self, agent_home: &Path) {
        let _ = durable::replace(
            &agent_home.join("workspaces").join(LAST_USED),
            format!("{}\n", self.name()).as_bytes(),
        );
    }

    /// Its name: the last part of its path.
    pub fn name(&self) -> String {
        self.root
            .file_name()
            .map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Where the run `id` lies.
    pub fn run_dir(&self, id: &RunId) -> PathBuf {
        self.root.join(".delta").join(id.as_str())
    }

    /// The directory of the run `id`; `None` when there is none.
    pub fn find_run(&self, id: &RunId) -> Result<Option<PathBuf>, WorkspaceError> {
        let dir = self.run_dir(id);
        for path in [&self.root.join(".delta"), &dir] {
            match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_symlink() => {
                    return Err(WorkspaceError::Symlink(path.clone()));
                }
                Ok(metadata) if metadata.is_dir() => {}
                _ => return Ok(None),
            }
        }
        check_layout(&self.root.join(".delta"))?;
        Ok(Some(dir))
    }

    /// The directories of all its runs, and the symlinks that stand where one belongs.
    pub fn run_dirs(&self) -> Result<Vec<PathBuf>, WorkspaceError> {
        let control = self.root.join(".delta");
        if control.is_symlink() {
            return Err(WorkspaceError::Symlink(control));
        }
        check_layout(&control)?;
        let entries = match fs::read_dir(&control) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(FileError { action: "read", path: control, source }.into()),
        };
        let is_run = |entry: &fs::DirEntry| {
            let named = entry.file_name().to_str().is_some_and(|name| RunId::parse(name).is_ok());
            named && entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink())
        };
        Ok(entries.flatten().filter(is_run).map(|entry| entry.path()).collect())
    }

    /// Makes the directory of a new run, and takes it. A directory whose run never began is taken over.
    ///
    /// # Errors
    /// The id is taken, also by a process that asked for it at the same instant; nothing was changed then.
    pub fn create_run(&self, id: &RunId) -> Result<(PathBuf, Ownership), WorkspaceError> {
        let control = self.root.join(".delta");
        match fs::symlink_metadata(&control) {
            Ok(metadata) if metadata.is_symlink() => return Err(WorkspaceError::Symlink(control)),
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                let reason = "its .delta is not a directory".to_owned();
                return Err(WorkspaceError::Unusable { path: self.root.clone(), reason });
            }
            Err(_) => durable::ensure_dir(&control, true)?,
        }
        let version = control.join("VERSION");
        if let Err(error) = durable::write_new(&version, LAYOUT_VERSION.as_bytes())
            && error.source.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error.into());
        }
        check_layout(&control)?;
        let dir = self.run_dir(id);
        let exists = || match dir.is_symlink() {
            true => WorkspaceError::Symlink(dir.clone()),
            false => WorkspaceError::Exists { id: id.clone(), workspace: self.root.clone() },
        };
        let found = match durable::create_dir(&dir) {
            Ok(()) => false,
            Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => true,
            Err(error) => return Err(error.into()),
        };
        if found && (self.find_run(id)?.is_none() || began(&dir)?) {
            return Err(exists());
        }
        // Whoever asks for the same id at the same instant finds the directory, and one of us owns it.
        let ownership = Ownership::claim(id, &dir).map_err(|error| match error {
            OwnershipError::File(error) => error.into(),
            OwnershipError::Active { .. } | OwnershipError::Elsewhere { .. } => exists(),
        })?;
        if began(&dir)? {
            return Err(exists());
        }
        if found {
            // Left by an engine that died before the run began; nothing to take away is fine.
            let _ = fs::remove_dir_all(dir.join("agent"));
        }
        ensure_parts(&dir)?;
        Ok((dir, ownership))
    }
}

/// Refuses what a later version wrote: to guess at it could damage it. Where nothing says the version, as after a crash
/// at birth or when a journal alone was handed on, it is this one.
fn check_layout(control: &Path) -> Result<(), WorkspaceError> {
    let text = durable::read_whole(&control.join("VERSION")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let found = text.trim();
    if found.is_empty() || found == LAYOUT_VERSION.trim() {
        return Ok(());
    }
    let found = crate::text::one_line(&crate::text::printable(found), 40);
    Err(WorkspaceError::Layout { control: control.to_owned(), found })
}

/// Makes the directories inside a run directory that are not there, also for a run of which only the journal was handed
/// on.
pub fn ensure_parts(run_dir: &Path) -> Result<(), FileError> {
    let parts = ["io/invocations", "io/tool_executions", "io/hooks", "agent"];
    parts.iter().try_for_each(|part| durable::ensure_dir(&run_dir.join(part), true))
}

/// Whether a run directory holds the journal of a run; a damaged one counts.
fn began(dir: &Path) -> Result<bool, FileError> {
    match journal::fold(dir) {
        Err(JournalError::NeverBegan(_)) => Ok(false),
        Err(JournalError::Unreadable { path, source }) => {
            Err(FileError { action: "read", path, source })
        }
        Err(JournalError::File(error)) => Err(error),
        Err(JournalError::Damaged { .. }) | Ok(_) => Ok(true),
    }
}

/// Makes `path` unless it is there, and says so plainly when something else is.
fn ensure_usable(path: &Path) -> Result<(), WorkspaceError> {
    durable::ensure_dir(path, false).map_err(|error| {
        let reason = match path.exists() && !path.is_dir() {
            true => "it is not a directory".to_owned(),
            false => error.source.to_string(),
        };
        WorkspaceError::Unusable { path: path.to_owned(), reason }
    })
}
