//! Agents that came from elsewhere: read-only directories, named by their hash, and links to them by the names that `--agent`
//! takes. agents.lock.json decides what is installed: it is written first, and the next process finishes what it says.

use crate::config;
use crate::failure::CommandFailure;
use crate::state::check_own_dir;
use delta_agent::agent::agent_tree::hash_agent_tree;
use delta_agent::agent::agents_lock::{AgentsLock, LockedAgent};
use delta_base::durable::{self, FileError, FileLock};
use delta_base::hex::encode_hex;
use delta_base::id::SnapshotId;
use delta_base::random::random_bytes;
use delta_base::signal::CancelToken;
use delta_run::event::AgentSource;
use delta_snapshot::SnapshotStore;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the trees, next to the links.
const TREES_DIR: &str = ".trees";
/// The start of the name of a tree that is not complete.
const DRAFT_PREFIX: &str = ".new-";
/// What is installed, next to the directory of the links.
const LOCK_FILE: &str = "agents.lock.json";
/// The file that the process locks that changes what is installed.
const MUTEX_FILE: &str = ".lock";
/// The permissions to write.
const WRITE_BITS: u32 = 0o222;
/// How often a lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The agents of the operator.
pub struct AgentStore {
    /// The directory in which `--agent NAME` finds `NAME`.
    links: PathBuf,
}

impl AgentStore {
    /// The store, which need not exist.
    ///
    /// # Errors
    /// There is no place for it that belongs to this user.
    pub fn open_own() -> Result<Self, CommandFailure> {
        let links = config::agents_directory().ok_or_else(|| "HOME is not set".to_owned());
        let links = links.and_then(|links| check_own_dir(&links).map(|()| links));
        match links {
            Ok(links) => Ok(Self { links }),
            Err(reason) => {
                let message = format!("there is no directory for agents: {reason}");
                Err(CommandFailure::config(message, "set XDG_DATA_HOME to a directory of yours"))
            }
        }
    }

    /// The link or the directory of an agent, which need not exist.
    pub fn link(&self, name: &str) -> PathBuf {
        self.links.join(name)
    }

    /// Where a tree is kept, if it is.
    pub fn tree_dir(&self, tree: SnapshotId) -> PathBuf {
        self.links.join(TREES_DIR).join(tree.to_string())
    }

    /// The file that says what is installed.
    fn lock_path(&self) -> PathBuf {
        self.links.with_file_name(LOCK_FILE)
    }

    /// Reads what is installed.
    ///
    /// # Errors
    /// The file is not one of delta.
    fn read_lock(&self) -> Result<AgentsLock, CommandFailure> {
        read_agents_lock(&self.lock_path()).map(Option::unwrap_or_default).map_err(|failure| {
            failure.with_hint("restore the file, or remove it and install the agents again")
        })
    }

    /// Whether the operator has a directory, a file or a link of this name, if no command has installed it.
    pub fn names_other(&self, name: &str) -> bool {
        durable::metadata_no_follow(&self.link(name)).is_ok()
    }

    /// The names of agents that no command has installed.
    pub fn list_others(&self, lock: &AgentsLock) -> Vec<String> {
        let entries = durable::read_dir_no_follow(&self.links).unwrap_or_default().into_iter();
        let names = entries.filter_map(|entry| entry.name.into_string().ok());
        let mut names: Vec<String> = names
            .filter(|name| !name.starts_with('.') && !lock.agents.contains_key(name))
            .collect();
        names.sort();
        names
    }

    /// A new directory for files that become a tree, or that are fetched.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new_draft(&self, cancel: &CancelToken) -> Result<AgentDraft, CommandFailure> {
        let _mutex = self.lock(cancel)?;
        let trees = self.links.join(TREES_DIR);
        let name = format!("{DRAFT_PREFIX}{}", encode_hex(&random_bytes::<8>()));
        let dir = trees.join(name);
        durable::ensure_private_dir_synced(&dir)?;
        let opened = durable::open_dir_no_follow(&dir).map_err(FileError::at("open", &dir))?;
        // What it is locked by is alive.
        opened.lock_shared().map_err(FileError::at("lock", &dir))?;
        remove_abandoned_drafts(&trees);
        Ok(AgentDraft { dir, _opened: opened })
    }

    /// Keeps the agent `tree` of a store of snapshots; returns its path. One that exists stays. Durable.
    ///
    /// # Errors
    /// The tree is not one of an agent, is damaged, or cannot be written.
    pub fn keep_snapshot(
        &self,
        tree: SnapshotId,
        snapshots: &mut SnapshotStore,
        cancel: &CancelToken,
    ) -> Result<PathBuf, CommandFailure> {
        let draft = self.new_draft(cancel)?;
        let empty = snapshots.empty_tree()?;
        let plan = snapshots.plan_restore(empty, tree, None)?;
        snapshots.apply_restore(&plan, &draft.dir, None)?;
        self.keep(draft, tree)
    }

    /// Gives a complete draft the name of its tree; returns its path. One that exists stays. Durable.
    ///
    /// # Errors
    /// It has another hash, or cannot be kept.
    pub fn keep(&self, draft: AgentDraft, tree: SnapshotId) -> Result<PathBuf, CommandFailure> {
        let tree_dir = self.tree_dir(tree);
        check_tree(&draft.dir, tree)?;
        change_modes(&draft.dir, |mode| mode & !WRITE_BITS)
            .map_err(FileError::at("write", &draft.dir))?;
        // Before the name exists, all of its content is on the disk.
        durable::sync_file_system(&draft.dir)?;
        match durable::rename_dir_synced(&draft.dir, &tree_dir) {
            // Another process has kept the same agent, or an earlier one.
            Err(_) if tree_dir.is_dir() => check_tree(&tree_dir, tree)?,
            renamed => renamed?,
        }
        Ok(tree_dir)
    }

    /// Installs an agent whose tree is kept, instead of the one that was `before`, or removes the one of that name.
    ///
    /// # Errors
    /// Another process has installed something under this name, or a file cannot be written.
    pub fn change(
        &self,
        name: &str,
        before: Option<&LockedAgent>,
        after: Option<LockedAgent>,
        cancel: &CancelToken,
    ) -> Result<(), CommandFailure> {
        let _mutex = self.lock(cancel)?;
        let mut lock = self.read_lock()?;
        if lock.agents.get(name) != before {
            let message = format!("another process has changed the agent `{name}`");
            return Err(CommandFailure::conflict(message, "repeat the command"));
        }
        match after {
            Some(after) => drop(lock.agents.insert(name.to_owned(), after)),
            None => drop(lock.agents.remove(name)),
        }
        durable::replace_private_synced(&self.lock_path(), lock.to_text().as_bytes())?;
        self.replace_links(&lock)
    }

    /// Finishes what an earlier process has left; returns what is installed.
    ///
    /// # Errors
    /// The file is not one of delta, or one cannot be written.
    pub fn mend_interrupted(&self, cancel: &CancelToken) -> Result<AgentsLock, CommandFailure> {
        if !self.links.exists() && !self.lock_path().exists() {
            return Ok(AgentsLock::default());
        }
        let _mutex = self.lock(cancel)?;
        let lock = self.read_lock()?;
        self.replace_links(&lock)?;
        Ok(lock)
    }

    /// Waits until no other process changes what is installed. None of them waits for something else meanwhile.
    fn lock(&self, cancel: &CancelToken) -> Result<FileLock, CommandFailure> {
        durable::ensure_private_dir_synced(&self.links)?;
        loop {
            if let Some(lock) = FileLock::try_acquire(&self.links.join(MUTEX_FILE))? {
                return Ok(lock);
            }
            if cancel.wait(LOCK_INTERVAL) {
                return Err(CommandFailure::interrupted("interrupted"));
            }
        }
    }

    /// Makes the links to trees what the file says.
    fn replace_links(&self, lock: &AgentsLock) -> Result<(), CommandFailure> {
        for (name, agent) in &lock.agents {
            let link = self.link(name);
            let target = Path::new(TREES_DIR).join(agent.tree.to_string());
            if fs::read_link(&link).ok().as_ref() != Some(&target) {
                durable::replace_symlink_synced(&target, &link)?;
            }
        }
        for name in self.list_others(lock) {
            let link = self.link(&name);
            if fs::read_link(&link).is_ok_and(|target| target.starts_with(TREES_DIR)) {
                durable::remove_file_synced(&link)?;
            }
        }
        Ok(())
    }
}

/// A directory that becomes a tree, or that is removed.
pub struct AgentDraft {
    /// Its path.
    pub dir: PathBuf,
    /// Locked as long as the process lives.
    _opened: File,
}

impl Drop for AgentDraft {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = change_modes(&self.dir, |mode| mode | 0o700);
        let _ = durable::remove_dir_all_no_follow(&self.dir);
    }
}

/// Removes what killed processes have left.
fn remove_abandoned_drafts(trees: &Path) {
    for entry in durable::read_dir_no_follow(trees).unwrap_or_default() {
        let dir = trees.join(&entry.name);
        if entry.name.to_string_lossy().starts_with(DRAFT_PREFIX)
            && let Ok(opened) = durable::open_dir_no_follow(&dir)
            && opened.try_lock().is_ok()
        {
            drop(AgentDraft { dir, _opened: opened });
        }
    }
}

/// Reads a lock file; `None` if there is none.
///
/// # Errors
/// It is not one of delta.
pub fn read_agents_lock(path: &Path) -> Result<Option<AgentsLock>, CommandFailure> {
    let json = match durable::read_large(path) {
        Ok(json) => json,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::at("read", path)(error).into()),
    };
    AgentsLock::parse(&json).map(Some).map_err(|reason| {
        let message = format!("could not read {}: {reason}", path.display());
        CommandFailure::damaged(message, "name an agents.lock.json")
    })
}

/// Where the agent in the directory `home` was installed from, if it was; `tree` is the hash that its files have now.
///
/// # Errors
/// Other files were installed there, so it has no source; contains a note for the user.
pub fn find_source(home: &Path, tree: Option<SnapshotId>) -> Result<Option<AgentSource>, String> {
    let Some(agent) = find_installed(home) else { return Ok(None) };
    if tree != Some(agent.tree) {
        let home = home.display();
        return Err(format!(
            "Note: files in {home} were changed after it was installed, so the run records no source of its agent; \
             remove the directory, then `delta add --update` installs it again"
        ));
    }
    let LockedAgent { source, reference, commit, .. } = agent;
    Ok(Some(AgentSource { source, reference, commit }))
}

/// What was installed in the directory `home`, a tree of the store.
fn find_installed(home: &Path) -> Option<LockedAgent> {
    let store = AgentStore::open_own().ok()?;
    let trees = store.links.join(TREES_DIR).canonicalize().ok()?;
    let tree = SnapshotId::parse(home.strip_prefix(trees).ok()?.to_str()?)?;
    let lock = store.read_lock().ok()?;
    lock.agents.into_values().find(|agent| agent.tree == tree)
}

fn check_tree(dir: &Path, tree: SnapshotId) -> Result<(), CommandFailure> {
    if hash_agent_tree(dir, Path::new("")) == Some(tree) {
        return Ok(());
    }
    let message = format!("{} is not the agent {tree}", dir.display());
    Err(CommandFailure::damaged(message, "remove the directory, then repeat the command"))
}

/// Changes the permissions of everything in the directory, which itself is still renamed.
fn change_modes(dir: &Path, change: fn(u32) -> u32) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if !metadata.is_symlink() {
            let mode = change(metadata.permissions().mode());
            fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
        }
        if metadata.is_dir() {
            change_modes(&entry.path(), change)?;
        }
    }
    Ok(())
}
