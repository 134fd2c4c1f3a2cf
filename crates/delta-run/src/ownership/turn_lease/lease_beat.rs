//! Signs of life of an owner, and its end when it cannot give any.
//!
//! One thread changes a file of the run. It may wait for a server for any time, so another one, which touches no file of
//! the run, looks at a clock: when others may take this process for dead, it ends what the calls have started.

use crate::lease::lease_files::Beat;
use crate::ownership::owner_process::uptime_ms;
use delta_base::durable;
use delta_base::signal::{CancelToken, PassingRequest};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::Duration;

/// After how many intervals without a beat this process ends its calls: well before others replace it.
const FENCED_AFTER: u32 = 4;

/// What stops when this process has been silent.
#[derive(Debug, Default)]
pub struct Fence {
    cancel: OnceLock<CancelToken>,
}

impl Fence {
    /// From now on a silent process kills the commands of `cancel` and requests to stop.
    pub fn set(&self, cancel: CancelToken) {
        let _ = self.cancel.set(cancel);
    }

    fn close(&self) {
        if let Some(cancel) = self.cancel.get() {
            cancel.request_for_now(PassingRequest::LostRun);
            cancel.kill_child_groups();
        }
    }
}

#[derive(Debug)]
struct BeatState {
    path: PathBuf,
    interval: Duration,
    /// The time since the boot, with the time that the machine was suspended, of the last beat; in milliseconds.
    beaten_at: AtomicI64,
    is_stopped: AtomicBool,
    fence: Fence,
}

/// The threads of a beat.
#[derive(Debug)]
pub(super) struct LeaseBeat {
    state: Arc<BeatState>,
    watcher: Thread,
    beater: JoinHandle<()>,
}

impl LeaseBeat {
    /// Starts to change the file `path`, which exists, every `interval`.
    pub(super) fn start(path: PathBuf, interval: Duration) -> io::Result<Self> {
        let state = Arc::new(BeatState {
            path,
            interval,
            beaten_at: AtomicI64::new(uptime_ms().unwrap_or(0)),
            is_stopped: AtomicBool::new(false),
            fence: Fence::default(),
        });
        let spawn = |name: &str, work: fn(&BeatState)| {
            let state = Arc::clone(&state);
            Builder::new().name(name.to_owned()).spawn(move || work(&state))
        };
        let watcher = spawn("fence", BeatState::watch)?.thread().clone();
        let beater = spawn("beat", BeatState::beat)?;
        Ok(Self { watcher, beater, state })
    }

    pub(super) fn fence(&self) -> &Fence {
        &self.state.fence
    }

    /// Ends the threads. With `waits` no beat overwrites afterwards what the caller writes; a server that does not answer
    /// may then keep the caller waiting.
    pub(super) fn stop(self, waits: bool) {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        self.watcher.unpark();
        self.beater.thread().unpark();
        if waits {
            let _ = self.beater.join();
        }
    }
}

impl BeatState {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    fn beat(&self) {
        let mut count = 0;
        while !self.is_stopped() {
            std::thread::park_timeout(self.interval);
            if self.is_stopped() {
                return;
            }
            count += 1;
            let line = Beat::Count(count).to_line();
            if durable::overwrite_start_synced(&self.path, line.as_bytes()).is_ok() {
                self.beaten_at.store(uptime_ms().unwrap_or(0), Ordering::SeqCst);
            }
        }
    }

    fn watch(&self) {
        let limit = self.interval * FENCED_AFTER;
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        while !self.is_stopped() {
            std::thread::park_timeout(self.interval);
            let silent_for = uptime_ms().unwrap_or(0) - self.beaten_at.load(Ordering::SeqCst);
            if !self.is_stopped() && silent_for >= limit {
                self.fence.close();
                return;
            }
        }
    }
}
