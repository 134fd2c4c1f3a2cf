//! What a command that works on one run of a sweep shares with the sweep: `delta answer`, `approve`, `continue` and others.
//!
//! A process of the sweep gives its runs the budget and the rate by variables. A run that a person continues has none of
//! them, and takes both from the directory of the sweep. The directories above the workspace say which sweep that is, and
//! nothing in the workspace does, where an agent writes. A planted sweep can only add a limit: no budget that the
//! environment names is left out for it.

use delta_base::durable;
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_operator::environment;
use delta_operator::failure::CommandFailure;
use delta_run::budget::call_rate::RATE_VARIABLE;
use delta_run::budget::ledger::{BUDGET_VARIABLE, Ledger};
use delta_run::sweep::packed::sweep_of_workspace;
use delta_run::sweep::shared_limits::{SharedLimits, own_host_ledger, own_host_rate};
use delta_run::sweep::sweep_dir::{SweepDir, read_planned_settings};
use delta_run::sweep::sweep_worker::{BEAT_INTERVAL, BeatFile};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;

/// What a run shares with a sweep whose processes have not started it.
pub struct SweepShare {
    limits: SharedLimits,
    /// `None` if the sweep has no budget.
    ledger: Option<Ledger>,
    /// Shows that a process of this host may spend what the host has of the budget.
    _worker: BeatThread,
}

impl SweepShare {
    /// Opens what the run `id` shares, whose workspace has these paths. `None` if it is not of a sweep, or a process of the
    /// sweep has given it its limits: then they are among the `enclosing` ledgers.
    ///
    /// # Errors
    /// The limits of the sweep are unknown, or cannot be kept.
    pub fn open<'a>(
        id: &RunId,
        workspaces: impl IntoIterator<Item = &'a PathBuf>,
        enclosing: &[Ledger],
        cancel: &CancelToken,
    ) -> Result<Option<Self>, CommandFailure> {
        let known = workspaces.into_iter().find_map(|path| sweep_of_workspace(path));
        let Some((dir, planned_id)) = known else { return Ok(None) };
        if planned_id != *id || has_limits_of(&dir, enclosing)? {
            return Ok(None);
        }
        let Some(settings) = read_planned_settings(&dir, id)? else { return Ok(None) };
        check_directories(&dir)?;
        let limits = SharedLimits::open_beside(
            environment::variable(BUDGET_VARIABLE),
            &dir,
            &settings.budget,
            &settings.rate,
            cancel,
        )?;
        let ledger = limits.ledger_path().map(Ledger::open).transpose()?;
        let worker = BeatThread::start(&dir, id)?;
        Ok(Some(Self { limits, ledger, _worker: worker }))
    }

    /// The ledger of this host; `None` if the sweep has no budget.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// The directory of the rate, unless the environment names one.
    pub fn rate_dir(&self) -> Option<&Path> {
        let is_named = environment::variable(RATE_VARIABLE).is_some();
        (!is_named).then(|| self.limits.rate_dir())
    }

    /// Gives back what this host has not used of the budget. Its processes that still work ask again.
    pub fn give_back(self) -> Result<(), CommandFailure> {
        Ok(self.limits.give_back()?)
    }
}

/// Whether a process of the sweep has started this one, or the run around it. Looks at no plan: a sweep may start a million
/// runs.
fn has_limits_of(dir: &SweepDir, enclosing: &[Ledger]) -> Result<bool, CommandFailure> {
    let ledger = own_host_ledger(dir)?;
    if enclosing.iter().any(|outer| is_same_file(outer.path(), &ledger)) {
        return Ok(true);
    }
    let rate = own_host_rate(dir)?;
    let named = environment::variable(RATE_VARIABLE);
    let is_at_its_rate = named.is_some_and(|named| is_same_dir(Path::new(&named), &rate));
    // The sweep opens a ledger before it starts a run, if it has a budget.
    Ok(is_at_its_rate && durable::metadata_no_follow(&ledger).is_err())
}

/// Whether two paths name one file. A ledger is replaced now and then, its directory is not.
fn is_same_file(first: &Path, second: &Path) -> bool {
    let parents = first.parent().zip(second.parent());
    first.file_name() == second.file_name()
        && parents.is_some_and(|(first, second)| is_same_dir(first, second))
}

fn is_same_dir(first: &Path, second: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|it| (it.dev(), it.ino()));
    identity(first).is_some_and(|first| identity(second) == Some(first))
}

/// Refuses a sweep whose directories lead elsewhere: a command that continues a run writes in them.
fn check_directories(dir: &SweepDir) -> Result<(), CommandFailure> {
    for path in [dir.budget(), dir.rate(), own_host_rate(dir)?, dir.workers()] {
        let is_symlink = durable::metadata_no_follow(&path).is_ok_and(|it| it.is_symlink());
        if is_symlink {
            let message = format!("{} is a symlink, which delta does not make", path.display());
            let hint = format!(
                "the run is one of the sweep in {}, whose budget and rate apply to it",
                dir.root.display()
            );
            return Err(CommandFailure::config(message, hint));
        }
    }
    Ok(())
}

/// Rewrites the file of this process in time, until it is dropped: for a process that waits for something else.
pub struct BeatThread {
    /// Ends the thread when it is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BeatThread {
    /// Creates the file of a process that works on one run.
    pub fn start(dir: &SweepDir, run: &RunId) -> Result<Self, CommandFailure> {
        let mut file = BeatFile::create(dir, 1)?;
        file.state.running = vec![run.to_string()];
        file.beat(true)?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("beat".to_owned()).spawn(move || {
            while stopped.recv_timeout(BEAT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // A disk that is full for a while costs a sign of life, and no run.
                let _ = file.beat(true);
            }
        });
        let thread = thread.map_err(|error| {
            CommandFailure::config(format!("could not start a thread: {error}"), None)
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for BeatThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The file is removed when this returns.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
