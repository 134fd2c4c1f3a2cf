//! Workspaces, which are the numbered ones of an agent (`W001`) or any directory, and the run directories in them.

use crate::journal::{self, JournalError};
use crate::ownership::Ownership;
use crate::ownership::claim::OwnershipError;
use crate::run_tree;
use delta_base::durable::{self, FileError};
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_base::{hex, terminal_text};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::{fs, io};

pub mod run_removal;
pub mod workspace_search;

/// The version of the layout of `.delta/`, as in its VERSION file.
const LAYOUT_VERSION: &str = "1\n";
/// The directory of a workspace that contains its runs.
pub const CONTROL_DIR: &str = ".delta";
/// What every `.delta` has.
const CONTROL_FILES: [&str; 2] = [VERSION_FILE, ".gitignore"];
const VERSION_FILE: &str = "VERSION";
/// The file with the name of the agent's last used workspace.
const LAST_USED_FILE: &str = "LAST_USED";

/// The variable with the directory for the runs of all workspaces.
pub const RUNS_DIR_VARIABLE: &str = "DELTA_RUNS_DIR";
/// The file next to a `.delta` outside of its workspace that contains the path of the workspace.
const WORKSPACE_FILE: &str = "workspace";

/// The directory for the runs of all workspaces, if they are not in the workspaces, and whether an option names it.
static RUNS_DIR: RwLock<Option<&'static (PathBuf, bool)>> = RwLock::new(None);

/// Puts the runs of all workspaces below `dir`, an absolute path. `is_option` says that a command needs an option to find
/// them. A process calls this twice at most: for its settings, and for a run that is named by its path.
pub fn set_runs_dir(dir: PathBuf, is_option: bool) {
    let setting = Box::leak(Box::new((dir, is_option)));
    *RUNS_DIR.write().unwrap_or_else(PoisonError::into_inner) = Some(setting);
}

fn runs_dir_setting() -> Option<&'static (PathBuf, bool)> {
    *RUNS_DIR.read().unwrap_or_else(PoisonError::into_inner)
}

/// The directory that a command has to name with `--runs-dir` to find the runs of this process.
pub fn runs_dir_option() -> Option<&'static Path> {
    runs_dir_setting().filter(|(_, is_option)| *is_option).map(|(dir, _)| dir.as_path())
}

/// The words of a printed command after `-w`: the workspace at `root`, quoted, and `--runs-dir` where the command needs it to
/// find the runs.
pub fn quote_workspace(root: &Path) -> String {
    let root = shell_quote_path(root);
    match runs_dir_option() {
        Some(dir) => format!("{root} --runs-dir {}", shell_quote_path(dir)),
        None => root,
    }
}

/// The directory for the runs of all workspaces, if they are not in the workspaces.
pub fn runs_dir() -> Option<&'static Path> {
    runs_dir_setting().map(|(dir, _)| dir.as_path())
}

/// The name of a workspace in the directory for all runs: no two workspaces have the same, and a reader recognizes it.
fn name_in_runs_dir(root: &Path) -> String {
    let hash = Sha256::digest(root.as_os_str().as_encoded_bytes());
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(40).collect();
    format!("{name}-{}", hex::encode_hex(&hash[..8]))
}

/// The workspace of the runs in the directory `control`: what the file next to it names, else the directory that contains it.
pub fn workspace_of_control(control: &Path) -> Option<PathBuf> {
    let parent = control.parent()?;
    Some(recorded_workspace(parent).unwrap_or_else(|| parent.to_owned()))
}

/// The workspace of the run in `run_dir`.
pub fn workspace_of_run(run_dir: &Path) -> Option<PathBuf> {
    workspace_of_control(run_dir.parent()?)
}

/// The workspace whose runs are in `dir`, an entry of the directory for all runs.
fn recorded_workspace(dir: &Path) -> Option<PathBuf> {
    let root = durable::read_small_no_follow(&dir.join(WORKSPACE_FILE)).ok()?;
    let root = PathBuf::from(String::from_utf8(root).ok()?.trim_end_matches('\n'));
    (dir.file_name()? == &*name_in_runs_dir(&root)).then_some(root)
}

/// The directory for all runs that `path` is, or is an entry of, with the workspaces that have runs in `path`.
fn runs_dir_at(path: &Path) -> Option<(&Path, Vec<PathBuf>)> {
    if let Some(root) = recorded_workspace(path) {
        return Some((path.parent()?, vec![root]));
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let roots: Vec<PathBuf> =
        entries.filter_map(|entry| recorded_workspace(&entry.path())).collect();
    (!roots.is_empty()).then_some((path, roots))
}

/// Why the entry `path` of a directory for all runs cannot be a workspace; `None` if it is not such an entry.
fn explain_runs_entry(path: &Path) -> Option<String> {
    let root = recorded_workspace(path)?;
    let [root, dir] = [&root, path.parent()?].map(shell_quote_path);
    Some(format!("it has the runs of another directory: write `-w {root} --runs-dir {dir}`"))
}

/// The workspaces at and below `path` that have runs in the directory for all runs; empty if there is none.
pub fn workspaces_in_runs_dir(path: &Path) -> Vec<PathBuf> {
    let Some(dir) = runs_dir() else { return Vec::new() };
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut roots: Vec<PathBuf> = entries
        .filter_map(|entry| recorded_workspace(&entry.path()))
        .filter(|root| root.starts_with(&path))
        .collect();
    roots.sort();
    roots
}

/// The directory of a run, as observations name it: relative to the workspace if it is inside.
pub fn displayed_run_dir(run_dir: &Path, workspace: &Path) -> String {
    run_dir.strip_prefix(workspace).unwrap_or(run_dir).display().to_string()
}

/// A directory in which an agent works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Its absolute path without symlinks.
    pub root: PathBuf,
}

/// How deep below a directory workspaces are searched.
const SEARCH_DEPTH: usize = 4;
/// The most directories that are searched, so that a search from the root of a disk ends soon.
const SEARCH_LIMIT: usize = 10_000;

/// Why a workspace or a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The path is not a directory that can be a workspace.
    #[error("could not open the workspace {}: {reason}", path.display())]
    Unusable {
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: String,
        /// Whether the system refused to create it.
        is_denied: bool,
    },
    /// The path is, or is in, a directory for runs.
    #[error("could not open the workspace {}: {} is reserved for runs", path.display(), control.display())]
    Reserved {
        /// The path.
        path: PathBuf,
        /// The directory with all runs.
        control: PathBuf,
    },
    /// A run directory, or the directory of all runs, is a symlink.
    #[error("{} is a symlink; delta does not follow symlinks to its run directories", .0.display())]
    Symlink(PathBuf),
    /// The runs were written by a version of delta with another layout.
    #[error("the runs in {} have layout {version}; this version of delta supports layout {}", control.display(), LAYOUT_VERSION.trim())]
    UnknownLayout {
        /// The directory of the runs.
        control: PathBuf,
        /// The content of its VERSION file.
        version: String,
    },
    /// The workspace already has a run with this id.
    #[error("run {id} already exists in {}", workspace.display())]
    RunExists {
        /// The id of the run.
        id: RunId,
        /// The workspace.
        workspace: PathBuf,
    },
    /// The workspace has a run with this id whose journal has lost its events.
    #[error("run {id} already exists, and {reason}")]
    LostRun {
        /// The id of the run.
        id: RunId,
        /// What shows that.
        reason: String,
        /// The directory of the run.
        run_dir: PathBuf,
    },
}

impl Workspace {
    /// Opens the workspace `path`. Creates the directory if it does not exist.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        Self::check_new(path)?;
        Self::open_any(path)
    }

    fn open_any(path: &Path) -> Result<Self, WorkspaceError> {
        ensure_workspace_dir(path)?;
        let root = path.canonicalize().map_err(|error| unusable(path, error.to_string()))?;
        if root.to_str().is_none() {
            return Err(unusable(path, "its path is not UTF-8"));
        }
        match explain_runs_entry(&root) {
            Some(reason) => Err(unusable(path, reason)),
            None => Ok(Self { root }),
        }
    }

    /// Checks that a directory for runs is not `.delta`, directly in one, or in the directory of a run, whose removal would
    /// remove them. The calls of a run, and of the runs that these start, may use its directory.
    ///
    /// # Errors
    /// The path is not possible for a workspace.
    fn check_new(path: &Path) -> Result<(), WorkspaceError> {
        let resolved = resolve_existing(path);
        let ancestors: Vec<&Path> = resolved.ancestors().collect();
        let control = ancestors.iter().enumerate().find(|(depth, dir)| {
            dir.ends_with(CONTROL_DIR) && (*depth < 2 || is_in_other_run(ancestors[depth - 1]))
        });
        match control {
            None => Ok(()),
            Some((_, control)) => Err(WorkspaceError::Reserved {
                path: path.to_owned(),
                control: control.to_path_buf(),
            }),
        }
    }

    /// Opens the workspace `path`, which must exist.
    pub fn open_existing(path: &Path) -> Result<Self, WorkspaceError> {
        if !path.exists() {
            let reason = explain_dead_link(path);
            return Err(unusable(path, reason.as_deref().unwrap_or("there is no such directory")));
        }
        Self::open_any(path)
    }

    /// The workspace that was at `root`, if it is not there any more and the directory for all runs has runs of it.
    pub fn find_lost(root: &Path) -> Option<Self> {
        let is_there = root.canonicalize().is_ok_and(|path| path == root && path.is_dir());
        let entry = runs_dir()?.join(name_in_runs_dir(root));
        (!is_there && recorded_workspace(&entry)? == root).then(|| Self { root: root.to_owned() })
    }

    /// Finds workspaces that have the run `id`: `path` and directories below it.
    pub fn find_holding_run(path: &Path, id: &RunId) -> Vec<PathBuf> {
        Self::search_below(path, |dir| {
            let workspace = Self { root: dir.to_owned() };
            durable::is_dir_no_follow(&workspace.run_dir(id))
        })
    }

    /// Finds workspaces that have a run: `path` and directories below it.
    pub fn find_with_any_run(path: &Path) -> Vec<PathBuf> {
        Self::search_below(path, |dir| {
            let workspace = Self { root: dir.to_owned() };
            workspace.run_dirs().is_ok_and(|runs| !runs.is_empty())
        })
    }

    fn search_below(path: &Path, is_match: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        if runs_dir().is_some() {
            let roots = workspaces_in_runs_dir(path).into_iter();
            return roots.filter(|root| is_match(root)).collect();
        }
        let mut matches = Vec::new();
        let mut queue = std::collections::VecDeque::from([(path.to_owned(), 0)]);
        let mut remaining = SEARCH_LIMIT;
        while let Some((dir, depth)) = queue.pop_front()
            && remaining > 0
        {
            remaining -= 1;
            if is_match(&dir) {
                matches.push(dir.clone());
            }
            if depth < SEARCH_DEPTH {
                let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
                let dirs = entries.filter(|entry| {
                    entry.file_type().is_ok_and(|kind| kind.is_dir())
                        && !entry.file_name().to_string_lossy().starts_with('.')
                });
                queue.extend(dirs.map(|entry| (entry.path(), depth + 1)));
            }
        }
        matches.sort();
        matches
    }

    /// Creates the agent's next numbered workspace. Two processes never get the same one. Does not mark it as last used.
    pub fn create_next(agent_home: &Path) -> Result<Self, WorkspaceError> {
        let parent = agent_home.join("workspaces");
        Self::check_new(&parent)?;
        ensure_workspace_dir(&parent)?;
        let mut number = Self::highest_number(agent_home);
        loop {
            number += 1;
            let path = parent.join(format!("W{number:03}"));
            match durable::create_private_dir_synced(&path) {
                Ok(()) => return Self::open(&path),
                Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Creates a directory next to the workspace: `NAME-fork`, else `NAME-fork-2` and so on. Two processes never get the
    /// same one.
    pub fn create_sibling(&self) -> Result<Self, WorkspaceError> {
        let Some(parent) = self.root.parent() else {
            return Err(unusable(&self.root, "it has no directory next to it"));
        };
        Self::check_new(parent)?;
        let mut name = format!("{}-fork", self.name());
        let mut number = 1;
        loop {
            let path = parent.join(&name);
            match durable::create_private_dir_synced(&path) {
                Ok(()) => return Self::open(&path),
                Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
            number += 1;
            name = format!("{}-fork-{number}", self.name());
        }
    }

    /// The path of the agent's next numbered workspace, which is not created.
    pub fn next_path(agent_home: &Path) -> PathBuf {
        agent_home.join("workspaces").join(format!("W{:03}", Self::highest_number(agent_home) + 1))
    }

    /// The highest number of the agent's workspaces, 0 if it has none.
    fn highest_number(agent_home: &Path) -> u64 {
        let names = Self::list_names(agent_home);
        names.iter().filter_map(|name| name[1..].parse::<u64>().ok()).max().unwrap_or(0)
    }

    /// The names of the agent's workspaces, the last used one first.
    pub fn list_names(agent_home: &Path) -> Vec<String> {
        let entries = fs::read_dir(agent_home.join("workspaces")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| {
                name.len() >= 4
                    && name.starts_with('W')
                    && name[1..].bytes().all(|byte| byte.is_ascii_digit())
            })
            .collect();
        let last_used = Self::last_used_name(agent_home);
        names.sort_by_key(|name| (*name != last_used, name.len(), name.clone()));
        names
    }

    /// The name of the agent's last used workspace, empty if it is unknown.
    pub fn last_used_name(agent_home: &Path) -> String {
        let path = agent_home.join("workspaces").join(LAST_USED_FILE);
        let name = durable::read_small_no_follow(&path).unwrap_or_default();
        String::from_utf8(name).unwrap_or_default().trim().to_owned()
    }

    /// Marks it as the agent's last used workspace. Only the prompt for a workspace uses this, so an error is ignored.
    pub fn mark_last_used(&self, agent_home: &Path) {
        let _ = durable::replace_private_synced(
            &agent_home.join("workspaces").join(LAST_USED_FILE),
            format!("{}\n", self.name()).as_bytes(),
        );
    }

    /// Removes the directory of a run that may not begin, and what was created for it: `.delta` if it has no other run, and
    /// with `is_new` the workspace. An error leaves directories.
    pub fn remove_unbegun_run(&self, run_dir: &Path, is_new: bool) {
        let control = self.control_dir();
        let _ = durable::remove_dir_all_no_follow(run_dir);
        let entries = fs::read_dir(&control).into_iter().flatten().flatten();
        let names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
        if !names.iter().all(|name| CONTROL_FILES.iter().any(|file| name == file)) {
            return;
        }
        // A run that begins at the same time can do without them.
        for name in CONTROL_FILES {
            let _ = durable::remove_file_no_follow(&control.join(name));
        }
        let removed = durable::remove_empty_dir_no_follow(&control);
        if is_new && removed.is_ok() {
            let _ = durable::remove_empty_dir_no_follow(&self.root);
        }
    }

    /// The name of the workspace: the last component of its path.
    pub fn name(&self) -> String {
        self.root
            .file_name()
            .map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// The path of the run `id`, whether it exists or not.
    pub fn run_dir(&self, id: &RunId) -> PathBuf {
        self.control_dir().join(id.as_str())
    }

    /// The directory with all runs, whether it exists or not.
    pub fn control_dir(&self) -> PathBuf {
        match runs_dir() {
            Some(dir) => {
                // Each workspace has one name, whatever leads to it, also one that a symlink has replaced.
                let root = match Self::find_lost(&self.root) {
                    Some(lost) => lost.root,
                    None => self.root.canonicalize().unwrap_or_else(|_| self.root.clone()),
                };
                let name = name_in_runs_dir(&root);
                dir.join(name).join(CONTROL_DIR)
            }
            None => self.root.join(CONTROL_DIR),
        }
    }

    /// Creates the directory of the runs outside of the workspace, and the file that names the workspace.
    fn create_outside_control(&self, control: &Path) -> Result<(), WorkspaceError> {
        let Some(dir) = control.parent().filter(|_| runs_dir().is_some()) else { return Ok(()) };
        // A file that a power failure has emptied is written again.
        if recorded_workspace(dir).is_none() {
            durable::ensure_private_dir_synced(dir)?;
            let root = format!("{}\n", self.root.display());
            durable::replace_private_synced(&dir.join(WORKSPACE_FILE), root.as_bytes())?;
        }
        Ok(())
    }

    /// Finds the directory of the run `id`; `None` if it does not exist.
    pub fn find_run(&self, id: &RunId) -> Result<Option<PathBuf>, WorkspaceError> {
        let control = self.control_dir();
        let dir = self.run_dir(id);
        for path in [&control, &dir] {
            match durable::metadata_no_follow(path) {
                Ok(metadata) if metadata.is_symlink() => {
                    return Err(WorkspaceError::Symlink(path.clone()));
                }
                Ok(metadata) if metadata.is_dir() => {}
                Err(source) if !is_missing(&source) => {
                    return Err(FileError { action: "read", path: path.clone(), source }.into());
                }
                _ => return Ok(None),
            }
        }
        check_layout(&control)?;
        Ok(Some(dir))
    }

    /// The directories of all runs. A symlink with the name of a run is included.
    pub fn run_dirs(&self) -> Result<Vec<PathBuf>, WorkspaceError> {
        let control = self.control_dir();
        if control.is_symlink() {
            return Err(WorkspaceError::Symlink(control));
        }
        check_layout(&control)?;
        let entries = durable::read_dir_if_exists(&control)?;
        let runs = entries.iter().filter(|entry| {
            entry.name.to_str().is_some_and(|name| RunId::parse(name).is_ok())
                && (entry.is_dir() || entry.is_symlink())
        });
        Ok(runs.map(|entry| control.join(&entry.name)).collect())
    }

    /// Creates the directory of the runs, if it does not exist.
    ///
    /// # Errors
    /// It cannot be created, is something else, or was written by a version of delta with another layout.
    pub fn create_control(&self) -> Result<PathBuf, WorkspaceError> {
        let control = self.control_dir();
        match durable::metadata_no_follow(&control) {
            Ok(metadata) if metadata.is_symlink() => return Err(WorkspaceError::Symlink(control)),
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(unusable(&self.root, "its .delta is not a directory")),
            Err(_) => durable::ensure_private_dir(&control)?,
        }
        self.create_outside_control(&control)?;
        let version = control.join(VERSION_FILE);
        if durable::metadata_no_follow(&version).is_err() {
            // The first run here, or the first one after a process that died at this point.
            control.parent().map_or(Ok(()), durable::sync_readable_dir)?;
        }
        if let Err(error) = durable::create_private_unsynced(&version, LAYOUT_VERSION.as_bytes())
            && error.source.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error.into());
        }
        check_layout(&control)?;
        durable::hide_from_git(&control)?;
        Ok(control)
    }

    /// Creates the directory of a new run and claims the run. A directory whose run never began is reused.
    ///
    /// # Errors
    /// The id is in use, perhaps since this instant. Nothing was changed in that run.
    pub fn create_run(&self, id: &RunId) -> Result<(PathBuf, Ownership), WorkspaceError> {
        self.create_control()?;
        let dir = self.run_dir(id);
        let run_exists = || {
            if dir.is_symlink() {
                WorkspaceError::Symlink(dir.clone())
            } else {
                WorkspaceError::RunExists { id: id.clone(), workspace: self.root.clone() }
            }
        };
        let is_new = match durable::create_private_dir_synced(&dir) {
            Ok(()) => true,
            Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error.into()),
        };
        if !is_new && (self.find_run(id)?.is_none() || has_begun(id, &dir)?) {
            return Err(run_exists());
        }
        // Of two processes that want the same id at once, the one that claims the directory gets it.
        let ownership = Ownership::claim(id, &dir).map_err(|error| match error {
            OwnershipError::File(error) => error.into(),
            OwnershipError::Active { .. }
            | OwnershipError::Elsewhere { .. }
            | OwnershipError::OldView { .. }
            | OwnershipError::OtherHost { .. } => run_exists(),
        })?;
        if has_begun(id, &dir)? {
            return Err(run_exists());
        }
        if !is_new {
            // An engine that died before the run began may have left this directory.
            let _ = durable::remove_dir_all_no_follow(&dir.join("agent"));
        }
        ensure_run_subdirs(&dir)?;
        Ok((dir, ownership))
    }
}

/// The absolute path without symlinks, as far as it exists: other paths are compared with it.
pub fn resolve_existing(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), ..) => path,
        (Err(_), Some(parent), Some(name)) => resolve_existing(parent).join(name),
        _ => path,
    }
}

/// Whether a directory in `.delta` belongs to a run, and this process does not belong to a call of that run or of one below it.
fn is_in_other_run(run_dir: &Path) -> bool {
    durable::is_file_no_follow(&journal::journal_path(run_dir))
        && !run_tree::has_this_process_below(run_dir)
}

fn unusable(path: &Path, reason: impl Into<String>) -> WorkspaceError {
    WorkspaceError::Unusable { path: path.to_owned(), reason: reason.into(), is_denied: false }
}

/// Rejects runs of a later layout, which an older version could damage. A missing VERSION, as after a crash at the start
/// or where only a journal was copied, counts as this layout.
///
/// # Errors
/// The VERSION file of `control`, the directory of the runs of a workspace, has another layout.
pub fn check_layout(control: &Path) -> Result<(), WorkspaceError> {
    let unknown = |version| WorkspaceError::UnknownLayout { control: control.to_owned(), version };
    let version = match durable::read_small_no_follow(&control.join(VERSION_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(unknown(format!("unknown (VERSION cannot be read: {error})")));
        }
        version => version.unwrap_or_default(),
    };
    let version = String::from_utf8_lossy(&version);
    // A power failure can leave zeros of the file's length.
    let version = version.trim_matches('\0').trim();
    if version.is_empty() || version == LAYOUT_VERSION.trim() {
        return Ok(());
    }
    Err(unknown(terminal_text::truncate_to_line(
        &terminal_text::strip_terminal_controls(version),
        40,
    )))
}

/// Whether an error means that the path does not exist, and not that it cannot be reached.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Creates the directories inside a run directory that do not exist, for a new run and for one of which only the journal
/// was copied.
pub fn ensure_run_subdirs(run_dir: &Path) -> Result<(), FileError> {
    let parts = ["io/invocations", "io/tool_executions", "io/hooks", "agent"];
    parts.iter().try_for_each(|part| durable::ensure_private_dir(&run_dir.join(part)))
}

/// Whether a run directory contains a journal with an event, damaged or not.
///
/// # Errors
/// The journal cannot be read, or has lost its events.
fn has_begun(id: &RunId, dir: &Path) -> Result<bool, WorkspaceError> {
    match journal::summarize_run_journal(dir) {
        Err(JournalError::NoEvents(_)) => Ok(false),
        Err(error @ JournalError::LostEvents { .. }) => Err(WorkspaceError::LostRun {
            id: id.clone(),
            reason: error.to_string(),
            run_dir: dir.to_owned(),
        }),
        Err(JournalError::Unreadable { path, source }) => {
            Err(FileError { action: "read", path, source }.into())
        }
        Err(JournalError::File(error)) => Err(error.into()),
        Err(JournalError::Damaged { .. }) | Ok(_) => Ok(true),
    }
}

/// Which symlink in `path` leads nowhere, and why; `None` if there is none.
fn explain_dead_link(path: &Path) -> Option<String> {
    let ancestors: Vec<&Path> = path.ancestors().collect();
    let links = ancestors.into_iter().rev().filter(|part| part.is_symlink());
    links.filter_map(|link| Some((link, link.metadata().err()?))).find_map(|(link, error)| {
        let name = if link == path { "it".to_owned() } else { link.display().to_string() };
        if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            return Some(format!("{name} is a symlink in a loop of symlinks"));
        }
        let target = fs::read_link(link).ok().filter(|_| is_missing(&error))?;
        Some(format!("{name} is a symlink to {}, which does not exist", target.display()))
    })
}

/// Creates the directory `path` unless it exists.
fn ensure_workspace_dir(path: &Path) -> Result<(), WorkspaceError> {
    durable::ensure_shared_dir_synced(path).map_err(|error| {
        if let Some(reason) = explain_dead_link(path) {
            unusable(path, reason)
        } else if path.exists() && !path.is_dir() {
            unusable(path, "it is not a directory")
        } else {
            use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
            let is_denied = matches!(error.source.kind(), PermissionDenied | ReadOnlyFilesystem);
            let reason = error.source.to_string();
            WorkspaceError::Unusable { path: path.to_owned(), reason, is_denied }
        }
    })
}
