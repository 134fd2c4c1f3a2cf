//! The files of `workers/` in the directory of a sweep: which processes work on the sweep, and on what.

use crate::event::ProcessInfo;
use crate::ownership::owner_process::{self, OwnerStatus};
use crate::sweep::sweep_dir::SweepDir;
use delta_base::durable::{self, FileError};
use delta_base::time::{self, Timestamp};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A process is taken for dead when its file is older than this.
const SILENT_AFTER_MS: i64 = 70_000;
/// The interval at which a process rewrites its file.
pub const BEAT_INTERVAL: Duration = Duration::from_secs(10);
/// The same when it works on other runs than the file says.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// What a process says about itself, every 10 s.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerState {
    /// Its host.
    pub host: String,
    /// The boot of its kernel.
    pub boot: String,
    /// Its process id.
    pub pid: u32,
    /// When it was started, in milliseconds since the Unix epoch.
    pub started_ms: i64,
    /// The PID namespace in which it has its id.
    pub pid_namespace: String,
    /// How many runs it works on at a time, at most.
    pub jobs: usize,
    /// How often it has written its file.
    pub beat: u64,
    /// The time of its clock.
    pub at: String,
    /// The ids of the runs that it works on.
    pub running: Vec<String>,
    /// The time that its runs were throttled.
    pub throttled_ms: u64,
    /// USD that its runs have cost.
    pub spent_usd: f64,
    /// Whether the reader has seen that it has ended.
    #[serde(skip)]
    pub has_ended: bool,
}

impl WorkerState {
    /// Whether the process has been silent for too long at `now`. Clocks of hosts differ: this is only shown, and
    /// decides nothing.
    pub fn is_silent(&self, now: Timestamp) -> bool {
        self.silent_ms(now) > SILENT_AFTER_MS
    }

    fn silent_ms(&self, now: Timestamp) -> i64 {
        let at = Timestamp::parse(&self.at).map_or(0, Timestamp::as_millis);
        now.as_millis() - at
    }
}

/// The beginning of the names of files of one host: its name, and the beginning of the id of its boot.
pub fn host_file_name(host: &str, boot: &str) -> String {
    let host: String = host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' })
        .take(64)
        .collect();
    let boot: String = boot.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{host}-{boot}")
}

/// The beginning of the names of files in `dir` for the processes of this kernel and mount.
pub fn host_file_stem(dir: &Path) -> Result<String, FileError> {
    let device = durable::device_number(dir)?;
    let process = owner_process::current_process();
    let boot = durable::boot_id().unwrap_or_default();
    Ok(format!("{}-{device:x}", host_file_name(&process.hostname, &boot)))
}

/// The file of this process in `workers/`.
pub struct BeatFile {
    path: PathBuf,
    /// What the process says about itself.
    pub state: WorkerState,
    /// `None` until it says what the process works on.
    written_at: Option<Instant>,
    is_outdated: bool,
}

impl BeatFile {
    /// Creates the file of this process.
    pub fn create(dir: &SweepDir, jobs: usize) -> Result<Self, FileError> {
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
    pub fn beat(&mut self, has_changed: bool) -> Result<Duration, FileError> {
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

    fn write(&mut self) -> Result<(), FileError> {
        self.state.beat += 1;
        self.state.at = time::current_time().to_string();
        self.written_at = Some(Instant::now());
        self.is_outdated = false;
        let mut text = delta_base::json::to_json(&self.state);
        text.push('\n');
        durable::replace_private_unsynced(&self.path, text.as_bytes())
    }
}

impl Drop for BeatFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What the processes that work on the sweep have written.
pub fn read_workers(dir: &SweepDir) -> Result<Vec<WorkerState>, FileError> {
    let path = dir.workers();
    let entries = durable::read_dir_if_exists(&path)?;
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
