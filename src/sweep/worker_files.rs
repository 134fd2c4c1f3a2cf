//! What a process leaves in the directory of a sweep: result lines, and the file that shows that it is alive.

use super::plan_reader::unreadable_file;
use crate::failure::CommandFailure;
use delta_base::durable::{self, SharedLineFile};
use delta_base::id::RunId;
use delta_base::time;
use delta_run::event::ProcessInfo;
use delta_run::ownership::owner_process::{self, OwnerStatus};
use delta_sweep::layout::SweepDir;
use delta_sweep::worker_state::{WorkerState, host_file_name};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which a process rewrites its file.
pub const BEAT_INTERVAL: Duration = Duration::from_secs(10);
/// The same when it works on other runs than the file says.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// The beginning of the names of files in `dir` for the processes of this kernel and mount.
pub fn host_file_stem(dir: &Path) -> Result<String, CommandFailure> {
    let device = durable::device_number(dir)?;
    let process = owner_process::current_process();
    let boot = durable::boot_id().unwrap_or_default();
    Ok(format!("{}-{device:x}", host_file_name(&process.hostname, &boot)))
}

/// Appends lines to the file of this kernel and mount, in `results/` or `grades/`.
pub struct LineWriter(SharedLineFile);

impl LineWriter {
    /// Opens the file in the directory, and creates both when missing.
    pub fn open(dir: &Path) -> Result<Self, CommandFailure> {
        durable::ensure_shared_dir(dir)?;
        let name = host_file_stem(dir)? + ".jsonl";
        Ok(Self(SharedLineFile::open(&dir.join(name))?))
    }

    /// Appends a line with its newline. What it is about is durable already.
    pub fn append(&mut self, line: &str) -> Result<(), CommandFailure> {
        Ok(self.0.append(line)?)
    }
}

/// The file of this process in `workers/`.
pub struct BeatFile {
    path: PathBuf,
    pub state: WorkerState,
    /// `None` until it says what the process works on.
    written_at: Option<Instant>,
    is_outdated: bool,
}

impl BeatFile {
    /// Creates the file of this process.
    pub fn create(dir: &SweepDir, jobs: usize) -> Result<Self, CommandFailure> {
        durable::ensure_shared_dir(&dir.workers())?;
        let process = owner_process::current_process();
        let boot = durable::boot_id().unwrap_or_default();
        let name = format!("{}-{}", host_file_name(&process.hostname, &boot), process.pid);
        let state = WorkerState {
            host: process.hostname,
            boot,
            pid: process.pid,
            started_ms: process.start_time_unix,
            pid_namespace: owner_process::pid_namespace(),
            jobs,
            ..WorkerState::default()
        };
        let path = dir.workers().join(name);
        let mut file = Self { path, state, written_at: None, is_outdated: false };
        file.write()?;
        file.written_at = None;
        Ok(file)
    }

    /// Rewrites the file if it is time to; returns after how long it is again. `has_changed` says that the process works on
    /// other runs than before.
    pub fn beat(&mut self, has_changed: bool) -> Result<Duration, CommandFailure> {
        self.is_outdated |= has_changed;
        let interval = if self.is_outdated { CHANGE_INTERVAL } else { BEAT_INTERVAL };
        match self.written_at.map(|at| interval.saturating_sub(at.elapsed())) {
            Some(rest) if !rest.is_zero() => Ok(rest),
            _ => self.write().map(|()| BEAT_INTERVAL),
        }
    }

    /// Removes the file; a later beat would make it again.
    pub fn remove(&self) {
        // One that stays is seen to be dead.
        let _ = durable::remove_file_no_follow(&self.path);
    }

    fn write(&mut self) -> Result<(), CommandFailure> {
        self.state.beat += 1;
        self.state.at = time::current_time().to_string();
        self.written_at = Some(Instant::now());
        self.is_outdated = false;
        let mut text = delta_base::json::to_json(&self.state);
        text.push('\n');
        Ok(durable::replace_private_unsynced(&self.path, text.as_bytes())?)
    }
}

impl Drop for BeatFile {
    fn drop(&mut self) {
        self.remove();
    }
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
        file.write()?;
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

/// What the processes that work on the sweep have written.
pub fn read_workers(dir: &SweepDir) -> Result<Vec<WorkerState>, CommandFailure> {
    let path = dir.workers();
    let entries = match durable::read_dir_no_follow(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| unreadable_file(path.clone(), source))?,
    };
    // A file that is gone meanwhile, or not complete, is the one of a process that ends or begins.
    let texts = entries
        .iter()
        .filter_map(|entry| durable::read_small_no_follow(&path.join(&entry.name)).ok());
    Ok(texts.filter_map(|text| serde_json::from_slice(&text).ok()).collect())
}

/// Whether this host can see that the process has ended.
pub fn has_worker_ended(worker: &WorkerState) -> bool {
    let is_visible = durable::boot_id().is_some_and(|boot| boot == worker.boot)
        && worker.pid_namespace == owner_process::pid_namespace();
    let process = ProcessInfo {
        pid: worker.pid,
        hostname: worker.host.clone(),
        start_time_unix: worker.started_ms,
        process_name: String::new(),
    };
    is_visible && owner_process::owner_status(&process) == OwnerStatus::Dead
}
