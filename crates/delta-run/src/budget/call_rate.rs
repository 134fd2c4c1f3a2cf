//! How many LLM calls the processes of one host make at a time, and how many a minute.
//!
//! A call holds the lock of a slot, a file in a directory that the processes share: a process that dies gives its slot back.
//! The number of slots follows the endpoint: one more after ten calls that had to wait for a slot and were good, and half as
//! many after an answer that throttles, at most once a second.

use super::prefix_wait::{CallPrefix, MAX_PREFIX_WAIT, PrefixCall, PrefixWait};
use delta_base::durable::{self, FileError, FileLock};
use delta_base::signal::CancelToken;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The environment variable with the path of the directory.
pub const RATE_VARIABLE: &str = "DELTA_RATE";
/// The file with the state in it.
const STATE_FILE: &str = "state.json";
/// The lock of that file.
const STATE_LOCK_FILE: &str = "state.lock";
/// The time between two attempts to lock a slot.
const SLOT_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The same for the state, which a process has for a fraction of a millisecond.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// So many good calls make one slot more.
const GOOD_CALLS_PER_SLOT: u32 = 10;
/// The shortest time between two times that the slots are halved.
const HALVING_INTERVAL_MS: u64 = 1000;
/// The most slots.
const MAX_SLOTS: u32 = 10_000;

/// How fast the processes of a host may call, as they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateSettings {
    /// The number of slots at first.
    pub concurrent: u32,
    /// The time between the beginnings of two calls; 0 for any.
    pub interval_ms: u64,
}

/// The rate of a host now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateState {
    settings: RateSettings,
    /// The number of slots.
    pub slots: u32,
    good_calls: u32,
    /// When the slots were halved last, by the clock since the boot.
    halved_at_ms: Option<u64>,
    /// When the next call may begin.
    next_call_ms: u64,
    /// Whether calls wait for the first one of their prefix.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_warm: bool,
}

impl RateState {
    fn new(settings: RateSettings) -> Self {
        let slots = settings.concurrent.clamp(1, MAX_SLOTS);
        Self { settings, slots, good_calls: 0, halved_at_ms: None, next_call_ms: 0, is_warm: false }
    }

    /// A call that had to wait for its slot has got a good answer.
    fn note_good_call(&mut self) {
        self.good_calls += 1;
        if self.good_calls >= GOOD_CALLS_PER_SLOT {
            self.good_calls = 0;
            self.slots = (self.slots + 1).min(MAX_SLOTS);
        }
    }

    /// The endpoint has refused a call because there were too many.
    fn note_throttled(&mut self, now_ms: u64) {
        self.good_calls = 0;
        let is_due = self.halved_at_ms.is_none_or(|at| {
            // An earlier time is of another boot.
            now_ms < at || now_ms - at >= HALVING_INTERVAL_MS
        });
        if is_due {
            self.halved_at_ms = Some(now_ms);
            self.slots = (self.slots / 2).max(1);
        }
    }

    /// Reserves the time of a call; returns how long it waits for it.
    fn reserve_time(&mut self, now_ms: u64) -> Duration {
        let interval = self.settings.interval_ms;
        if interval == 0 {
            return Duration::ZERO;
        }
        // A time far in the future is the one of another boot.
        let limit = now_ms + interval * 100_000;
        let at = if self.next_call_ms > limit { now_ms } else { self.next_call_ms.max(now_ms) };
        self.next_call_ms = at + interval;
        Duration::from_millis(at - now_ms)
    }
}

/// The rate of the processes of a host.
#[derive(Debug)]
pub struct CallRate {
    dir: PathBuf,
    slot: Option<CallSlot>,
    /// The call, until its answer begins.
    prefix_call: Option<PrefixCall>,
}

/// What a call holds.
#[derive(Debug)]
struct CallSlot {
    _lock: FileLock,
    had_to_wait: bool,
    is_throttled: bool,
}

impl CallRate {
    /// The rate in `dir`, which [`CallRate::create`] has made.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), slot: None, prefix_call: None }
    }

    /// Makes the rate in `dir`. If other processes have made it with the same settings, it stays as it is; `is_warm`, whether calls
    /// wait for the first one of their prefix, replaces what they have set.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn create(
        dir: &Path,
        settings: RateSettings,
        is_warm: Option<bool>,
        cancel: &CancelToken,
    ) -> Result<Self, FileError> {
        durable::ensure_private_dir(dir)?;
        let rate = Self::new(dir);
        rate.change(cancel, |state| {
            let was_warm = state.as_ref().is_some_and(|state| state.is_warm);
            let known = state.take().filter(|state| state.settings == settings);
            let is_warm = is_warm.unwrap_or(was_warm);
            *state = Some(RateState { is_warm, ..known.unwrap_or(RateState::new(settings)) });
        })?;
        Ok(rate)
    }

    /// The time between the beginnings of two calls, as other processes have set it.
    pub fn interval_ms(&self) -> u64 {
        self.read_state().map_or(0, |state| state.settings.interval_ms)
    }

    /// Whether calls wait for the first one of their prefix.
    pub fn is_warm(&self) -> bool {
        self.read_state().is_some_and(|state| state.is_warm)
    }

    /// The state now; `None` if it cannot be read.
    pub fn read_state(&self) -> Option<RateState> {
        let bytes = durable::read_small_no_follow(&self.dir.join(STATE_FILE)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Changes the state while no other process does; returns what `change` returns, `None` if the wait was cancelled.
    fn change<T>(
        &self,
        cancel: &CancelToken,
        change: impl FnOnce(&mut Option<RateState>) -> T,
    ) -> Result<Option<T>, FileError> {
        let path = self.dir.join(STATE_LOCK_FILE);
        let _lock = loop {
            match FileLock::try_acquire(&path)? {
                Some(lock) => break lock,
                None if cancel.wait(LOCK_POLL_INTERVAL) => return Ok(None),
                None => {}
            }
        };
        let mut state = self.read_state();
        let before = state.clone();
        let done = change(&mut state);
        if let Some(state) = state.filter(|state| before.as_ref() != Some(state)) {
            let text = serde_json::to_string(&state).unwrap_or_default() + "\n";
            durable::replace_private_unsynced(&self.dir.join(STATE_FILE), text.as_bytes())?;
        }
        Ok(Some(done))
    }

    /// Waits for the first call of `prefix`, for a slot and for the time of a call. Calls `on_wait` once before it waits. False if
    /// the wait was cancelled.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn begin_call(
        &mut self,
        prefix: Option<&CallPrefix>,
        cancel: &CancelToken,
        on_wait: &mut dyn FnMut(),
    ) -> Result<bool, FileError> {
        let mut waits = false;
        let mut on_wait = || {
            if !std::mem::replace(&mut waits, true) {
                on_wait();
            }
        };
        if let Some(prefix) = prefix {
            let waited =
                PrefixCall::begin(&self.dir, prefix, MAX_PREFIX_WAIT, cancel, &mut on_wait)?;
            let PrefixWait::Ready(call) = waited else { return Ok(false) };
            self.prefix_call = Some(call);
        }
        let mut had_to_wait = false;
        let lock = loop {
            if let Some(lock) = self.try_slots()? {
                break lock;
            }
            had_to_wait = true;
            on_wait();
            if cancel.wait(SLOT_POLL_INTERVAL) {
                return Ok(false);
            }
        };
        let slot = CallSlot { _lock: lock, had_to_wait, is_throttled: false };
        let now_ms = boot_ms();
        let wait = self.change(cancel, |state| {
            state.as_mut().map_or(Duration::ZERO, |state| state.reserve_time(now_ms))
        })?;
        let Some(wait) = wait else { return Ok(false) };
        if !wait.is_zero() {
            on_wait();
            let began = Instant::now();
            while let Some(rest) = wait.checked_sub(began.elapsed()).filter(|rest| !rest.is_zero())
            {
                if cancel.wait(rest) {
                    return Ok(false);
                }
            }
        }
        self.slot = Some(slot);
        Ok(true)
    }

    fn try_slots(&self) -> Result<Option<FileLock>, FileError> {
        let slots = self.read_state().map_or(MAX_SLOTS, |state| state.slots);
        for number in 0..slots {
            if let Some(lock) = FileLock::try_acquire(&self.dir.join(format!("slot-{number}")))? {
                return Ok(Some(lock));
            }
        }
        Ok(None)
    }

    /// Notes that the endpoint has refused the call because there were too many. The call waits, and keeps its slot.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn note_throttled(&mut self, cancel: &CancelToken) -> Result<(), FileError> {
        if let Some(slot) = &mut self.slot {
            slot.is_throttled = true;
        }
        let now_ms = boot_ms();
        self.change(cancel, |state| {
            state.iter_mut().for_each(|state| state.note_throttled(now_ms));
        })
        .map(|_| ())
    }

    /// Notes that the answer of the call begins: what it shares with others can be read now.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn note_answer(&mut self) -> Result<(), FileError> {
        self.prefix_call.take().map_or(Ok(()), PrefixCall::note_answer)
    }

    /// Gives the slot of the call back.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn end_call(&mut self, is_good: bool, cancel: &CancelToken) -> Result<(), FileError> {
        if is_good {
            self.note_answer()?;
        }
        self.prefix_call = None;
        let Some(slot) = self.slot.take() else { return Ok(()) };
        if !is_good || slot.is_throttled || !slot.had_to_wait {
            return Ok(());
        }
        self.change(cancel, |state| state.iter_mut().for_each(RateState::note_good_call))
            .map(|_| ())
    }
}

/// Milliseconds since the boot of the kernel that all processes of the directory have.
pub(super) fn boot_ms() -> u64 {
    crate::ownership::owner_process::uptime_ms()
        .and_then(|time| u64::try_from(time).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(concurrent: u32) -> RateState {
        RateState::new(RateSettings { concurrent, interval_ms: 0 })
    }

    #[test]
    fn c_26_9_slots_grow_by_one_and_halve_at_most_once_a_second() {
        let mut state = state(8);
        (0..9).for_each(|_| state.note_good_call());
        assert_eq!(state.slots, 8);
        state.note_good_call();
        assert_eq!(state.slots, 9);
        for (now_ms, slots) in [(5000, 4), (5001, 4), (5999, 4), (6000, 2), (7000, 1), (8000, 1)] {
            state.note_throttled(now_ms);
            assert_eq!(state.slots, slots, "at {now_ms}");
        }
        // After a reboot the clock begins again.
        (0..10).for_each(|_| state.note_good_call());
        state.note_throttled(3);
        assert_eq!(state.slots, 1);
    }

    #[test]
    fn c_26_9_calls_begin_at_the_interval() {
        let mut state = RateState::new(RateSettings { concurrent: 8, interval_ms: 200 });
        let waits = [10_000, 10_000, 10_050, 11_000, 11_000].map(|now| state.reserve_time(now));
        assert_eq!(waits.map(|wait| wait.as_millis()), [0, 200, 350, 0, 200]);
        state.next_call_ms = u64::MAX / 2;
        assert_eq!(state.reserve_time(5), Duration::ZERO, "of another boot");
    }

    #[test]
    fn c_26_9_a_slot_is_held_by_one_call() {
        let dir = tempfile::tempdir().unwrap();
        let cancel = CancelToken::manual().unwrap();
        let settings = RateSettings { concurrent: 2, interval_ms: 0 };
        let mut rates: Vec<CallRate> = (0..3)
            .map(|_| CallRate::create(dir.path(), settings, None, &cancel).unwrap())
            .collect();
        for rate in &mut rates[..2] {
            assert!(rate.begin_call(None, &cancel, &mut || panic!("there are two slots")).unwrap());
        }
        assert!(rates[2].try_slots().unwrap().is_none());
        rates[0].note_throttled(&cancel).unwrap();
        rates[0].end_call(true, &cancel).unwrap();
        rates[1].end_call(true, &cancel).unwrap();
        // One slot is left.
        assert!(rates[2].begin_call(None, &cancel, &mut || panic!("a slot is free")).unwrap());
        assert!(rates[1].try_slots().unwrap().is_none());
        drop(rates.pop());
        assert!(rates[1].try_slots().unwrap().is_some());
    }
}
