//! A thread that looks into the mailbox while a request or a call is at work, and ends that for a message that is not to
//! wait.

use delta_base::signal::{CancelToken, PassingRequest};
use delta_run::mailbox::Mailbox;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// What the process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing that a message could end.
    Idle,
    /// The work with this number.
    AtWork(u64),
    /// The watch is over.
    Over,
}

#[derive(Debug)]
struct WatchState {
    mailbox: Mailbox,
    cancel: CancelToken,
    phase: Mutex<Phase>,
    changed: Condvar,
}

/// Watches the mailbox of a run until it is dropped.
#[derive(Debug)]
pub(super) struct MessageWatch {
    state: Arc<WatchState>,
}

impl MessageWatch {
    /// Starts to watch `mailbox`. A message that is not to wait requests [`PassingRequest::Message`] of `cancel`.
    pub(super) fn start(mailbox: Mailbox, cancel: CancelToken) -> io::Result<Self> {
        let phase = Mutex::new(Phase::Idle);
        let state = Arc::new(WatchState { mailbox, cancel, phase, changed: Condvar::new() });
        let watched = Arc::clone(&state);
        Builder::new().name("messages".to_owned()).spawn(move || watched.watch())?;
        Ok(Self { state })
    }

    /// Work starts that a message can end.
    pub(super) fn begin_work(&self, number: u64) {
        self.state.set(Phase::AtWork(number));
    }

    /// It has ended: from now on no message requests anything.
    pub(super) fn end_work(&self) {
        self.state.set(Phase::Idle);
    }
}

impl Drop for MessageWatch {
    fn drop(&mut self) {
        self.state.set(Phase::Over);
    }
}

impl WatchState {
    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        *self.lock() = phase;
        self.changed.notify_one();
    }

    fn watch(&self) {
        let mut phase = self.lock();
        loop {
            let work = *phase;
            phase = match work {
                Phase::Over => return,
                Phase::Idle => self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner),
                Phase::AtWork(_) => {
                    let waited = self.changed.wait_timeout(phase, LOOK_INTERVAL);
                    let (phase, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                    if !waited.timed_out() || *phase != work {
                        phase
                    } else {
                        drop(phase);
                        // A server may take its time for an answer, and the work must be able to end meanwhile.
                        let is_told = self.mailbox.has_urgent_message();
                        let mut phase = self.lock();
                        if is_told && *phase == work {
                            self.cancel.request_for_now(PassingRequest::Message);
                            *phase = Phase::Idle;
                        }
                        phase
                    }
                }
            };
        }
    }
}
