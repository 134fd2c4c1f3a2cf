//! The files of `workers/`: which processes work on the sweep, and on what.

use delta_base::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A process is taken for dead when its file is older than this.
const SILENT_AFTER_MS: i64 = 70_000;

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
