//! SIGINT, SIGTERM and SIGHUP set a [`CancelToken`] that every wait observes; a second signal ends the process at once.
#![expect(unsafe_code, reason = "signal handlers and dispositions have no safe interface")]

use crate::terminal::{self, keyboard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::raw::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The exit code of an interrupted run.
const INTERRUPTED_EXIT_CODE: c_int = 130;

/// The signals that request cancellation.
const STOP_SIGNALS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// All signals for which delta may install a handler. The Rust runtime has its own handlers, for stack overflows.
pub const HANDLED_SIGNALS: [c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD, libc::SIGWINCH];

/// The signals that this process ignores, SIGPIPE by the Rust runtime: the write or read returns an error instead. Its
/// children get the default actions, except for signals that its caller ignored: see [`was_ignored_by_caller`].
pub const IGNORED_SIGNALS: [c_int; 4] =
    [libc::SIGPIPE, libc::SIGTTIN, libc::SIGTTOU, libc::SIGXFSZ];

/// A bit for each signal that was ignored when [`ignore_io_signals`] was called.
static IGNORED_BY_CALLER: AtomicU64 = AtomicU64::new(0);

/// The most process groups that a second signal kills.
pub const MAX_CHILD_GROUPS: usize = 64;

/// Signals within this time after the first count as the same request: `timeout` signals both the process and its
/// group, and when a terminal closes, the kernel and the shell each send one.
const BURST_MILLIS: u64 = 100;

/// The time between two looks at a clock that is paused.
const PAUSE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Reports whether the user or the system has requested cancellation. Clones share the state.
#[derive(Debug, Clone)]
pub struct CancelToken {
    state: Arc<CancelState>,
    /// See [`CancelToken::for_cleanup`].
    ignores_first_request: bool,
}

/// Why the present work is to end, but not the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PassingRequest {
    /// This process may not own its run any more.
    LostRun = 1,
    /// The operator has sent the run a message that is not to wait.
    Message = 2,
}

/// See [`CancelToken::delay_exit`].
#[derive(Debug)]
pub struct ExitDelay(Arc<CancelState>);

impl Drop for ExitDelay {
    fn drop(&mut self) {
        let is_last = self.0.exit_delays.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.0.must_exit.load(Ordering::SeqCst) {
            self.0.exit();
        }
    }
}

/// Stops the clock of a time limit: see [`CancelToken::pause_clock`].
#[derive(Debug)]
pub struct ClockPause {
    state: Arc<CancelState>,
    began: Instant,
}

impl ClockPause {
    /// How long the pause has lasted.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for ClockPause {
    fn drop(&mut self) {
        self.state.paused_nanos.fetch_add(nanos(self.elapsed()), Ordering::SeqCst);
        self.state.is_clock_paused.store(false, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct CancelState {
    created_at: Instant,
    /// When cancellation was requested, in milliseconds after `created_at`; 0 for not yet.
    requested_at: AtomicU64,
    /// When the time limit expired, likewise. Both are equal when the expiry was the request.
    expired_at: AtomicU64,
    /// A bit for each [`PassingRequest`] that is not withdrawn.
    passing: AtomicU8,
    /// Whether a time limit was set.
    has_deadline: AtomicBool,
    /// Whether the clock of [`CancelToken::expire_after_work`] is paused.
    is_clock_paused: AtomicBool,
    /// How long its earlier pauses lasted, in nanoseconds.
    paused_nanos: AtomicU64,
    /// After how much time without pauses the limit of [`CancelToken::expire_after_work`] expires, in nanoseconds.
    work_limit_nanos: AtomicU64,
    /// The thread that waits for that.
    work_clock: Mutex<Option<Thread>>,
    /// How often [`CancelToken::begin_again`] was called: a time limit from before it does not expire.
    generation: AtomicU32,
    /// The process groups that a second signal kills; 0 for none.
    child_groups: [AtomicI32; MAX_CHILD_GROUPS],
    /// How many [`ExitDelay`]s there are.
    exit_delays: AtomicU32,
    /// Whether a second signal arrived.
    must_exit: AtomicBool,
    /// What a second signal prints.
    last_words: OnceLock<String>,
    wake_read: OwnedFd,
    wake_write: OwnedFd,
}

/// Ignores the signals that a read or write can cause, so that it returns an error instead: SIGTTIN and SIGTTOU at a
/// terminal whose foreground is another program, SIGXFSZ at the limit on the size of files.
pub fn ignore_io_signals() {
    for signal in [libc::SIGTTIN, libc::SIGTTOU, libc::SIGXFSZ] {
        if is_signal_ignored(signal) {
            IGNORED_BY_CALLER.fetch_or(1 << signal, Ordering::Relaxed);
        }
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Whether the caller of this process ignored one of [`IGNORED_SIGNALS`]. Unknown, and so false, for SIGPIPE, which the
/// Rust runtime ignores before any code of this program runs.
pub fn was_ignored_by_caller(signal: c_int) -> bool {
    IGNORED_BY_CALLER.load(Ordering::Relaxed) & (1 << signal) != 0
}

/// Restores the terminal before SIGQUIT ends this process.
pub(crate) fn restore_terminal_on_quit() -> io::Result<()> {
    if is_signal_ignored(libc::SIGQUIT) {
        return Ok(());
    }
    // SAFETY: the handler reads atomics, makes system calls, and sets the default action, which are all async-signal-safe.
    unsafe {
        signal_hook::low_level::register(libc::SIGQUIT, || {
            keyboard::restore_terminal();
            let _ = signal_hook::low_level::emulate_default_handler(libc::SIGQUIT);
        })
    }
    .map(drop)
}

impl CancelToken {
    /// A token that only [`CancelToken::request`] and [`CancelToken::expire_after`] set, not a signal.
    pub fn manual() -> io::Result<Self> {
        let (wake_read, wake_write) = io::pipe()?;
        ioctl_fionbio(&wake_read, true)?;
        ioctl_fionbio(&wake_write, true)?;
        let state = CancelState {
            created_at: Instant::now(),
            requested_at: AtomicU64::new(0),
            expired_at: AtomicU64::new(0),
            passing: AtomicU8::new(0),
            has_deadline: AtomicBool::new(false),
            is_clock_paused: AtomicBool::new(false),
            paused_nanos: AtomicU64::new(0),
            work_limit_nanos: AtomicU64::new(0),
            work_clock: Mutex::new(None),
            generation: AtomicU32::new(0),
            child_groups: [const { AtomicI32::new(0) }; MAX_CHILD_GROUPS],
            exit_delays: AtomicU32::new(0),
            must_exit: AtomicBool::new(false),
            last_words: OnceLock::new(),
            wake_read: wake_read.into(),
            wake_write: wake_write.into(),
        };
        Ok(Self { state: Arc::new(state), ignores_first_request: false })
    }

    /// A token for the work that is left after a request: the request does not cancel it, but a second signal still
    /// ends the process.
    pub fn for_cleanup(&self) -> Self {
        Self { state: Arc::clone(&self.state), ignores_first_request: true }
    }

    /// A token that SIGINT, SIGTERM and SIGHUP set. Call this once per process.
    ///
    /// A signal that was ignored when the process started (`nohup`, a background job of a script) stays ignored.
    pub fn from_signals() -> io::Result<Self> {
        let cancel = Self::manual()?;
        for signal in STOP_SIGNALS {
            if is_signal_ignored(signal) {
                continue;
            }
            let state = Arc::clone(&cancel.state);
            // SAFETY: the handler only touches atomics (a `OnceLock` is read as one) and calls clock_gettime, kill, write and _exit, which are all
            // async-signal-safe.
            unsafe { signal_hook::low_level::register(signal, move || state.on_signal()) }?;
        }
        if cfg!(not(target_os = "linux")) {
            // Without pidfds, SIGCHLD is the only notice that a child has ended.
            cancel.wake_on_child()?;
        }
        Ok(cancel)
    }

    /// Makes SIGCHLD (a child ended) wake a poll of [`CancelToken::fd`].
    pub fn wake_on_child(&self) -> io::Result<()> {
        self.wake_on(libc::SIGCHLD)
    }

    /// Renews the prompt of this process when it was stopped and continues, and wakes a poll of [`CancelToken::fd`].
    pub(crate) fn renew_prompt_on_continue(&self) -> io::Result<()> {
        let state = Arc::clone(&self.state);
        // SAFETY: the handler reads and writes atomics (a `OnceLock` is read as one) and makes system calls, which are all
        // async-signal-safe.
        unsafe {
            signal_hook::low_level::register(libc::SIGCONT, move || {
                terminal::renew_prompt();
                // Another thread than the one that polls may run this.
                state.wake();
            })
        }
        .map(drop)
    }

    /// Makes SIGWINCH (the terminal was resized) wake a poll of [`CancelToken::fd`].
    pub fn wake_on_resize(&self) -> io::Result<()> {
        self.wake_on(libc::SIGWINCH)
    }

    fn wake_on(&self, signal: c_int) -> io::Result<()> {
        let pipe = self.state.wake_write.try_clone()?;
        signal_hook::low_level::pipe::register(signal, pipe).map(drop)
    }

    /// Requests cancellation, as a signal does.
    pub fn request(&self) {
        self.state.request(self.state.elapsed_millis());
        self.state.wake();
    }

    /// Forgets all requests and time limits: the next work of this process begins. Only while nothing is at work.
    pub fn begin_again(&self) {
        let state = &self.state;
        state.generation.fetch_add(1, Ordering::SeqCst);
        if let Some(clock) = state.lock_work_clock().take() {
            clock.unpark();
        }
        for time in [&state.requested_at, &state.expired_at, &state.paused_nanos] {
            time.store(0, Ordering::SeqCst);
        }
        state.passing.store(0, Ordering::SeqCst);
        state.has_deadline.store(false, Ordering::SeqCst);
        self.drain();
    }

    /// Requests cancellation of the present work until [`CancelToken::withdraw`]. A signal and a time limit are other
    /// requests, and stay.
    pub fn request_for_now(&self, reason: PassingRequest) {
        self.state.passing.fetch_or(reason as u8, Ordering::SeqCst);
        self.state.wake();
    }

    /// Ends the request of [`CancelToken::request_for_now`] for this reason.
    pub fn withdraw(&self, reason: PassingRequest) {
        self.state.passing.fetch_and(!(reason as u8), Ordering::SeqCst);
    }

    /// Whether this is the only reason for which cancellation is requested.
    pub fn is_requested_only_for(&self, reason: PassingRequest) -> bool {
        self.is_requested()
            && self.state.requested_at.load(Ordering::SeqCst) == 0
            && self.state.passing.load(Ordering::SeqCst) == reason as u8
    }

    /// Requests cancellation after `duration`. [`CancelToken::is_expired`] is then true, unless it was requested before.
    ///
    /// # Errors
    /// The thread that waits could not be started.
    pub fn expire_after(&self, duration: Duration) -> io::Result<()> {
        let start = Instant::now();
        self.start_deadline(duration, move |_| {
            let rest = duration.saturating_sub(start.elapsed());
            (!rest.is_zero()).then_some(rest)
        })
        .map(drop)
    }

    /// As [`CancelToken::expire_after`], without the time of [`CancelToken::pause_clock`]. Called again before it expires, it
    /// replaces the limit.
    ///
    /// # Errors
    /// The thread that waits could not be started.
    pub fn expire_after_work(&self, duration: Duration) -> io::Result<()> {
        let state = &self.state;
        let limit = nanos(state.worked_time() + duration);
        state.work_limit_nanos.store(limit, Ordering::SeqCst);
        let mut work_clock = state.lock_work_clock();
        if let Some(clock) = &*work_clock {
            // The thread wakes up too late to keep the run from another call.
            if duration.is_zero() {
                state.expire();
            }
            clock.unpark();
            return Ok(());
        }
        let clock = self.start_deadline(duration, |state| {
            // Read before the time of earlier pauses, which a pause adds to before it ends.
            let is_paused = state.is_clock_paused.load(Ordering::SeqCst);
            let limit = Duration::from_nanos(state.work_limit_nanos.load(Ordering::SeqCst));
            let rest = limit.saturating_sub(state.worked_time());
            if is_paused { Some(PAUSE_POLL_INTERVAL) } else { (!rest.is_zero()).then_some(rest) }
        })?;
        *work_clock = clock;
        Ok(())
    }

    /// Starts a thread that requests cancellation when `rest` returns `None`, which otherwise is when to call it again; `None` if
    /// `duration` is 0.
    fn start_deadline(
        &self,
        duration: Duration,
        rest: impl Fn(&CancelState) -> Option<Duration> + Send + 'static,
    ) -> io::Result<Option<Thread>> {
        let state = Arc::clone(&self.state);
        state.has_deadline.store(true, Ordering::SeqCst);
        if duration.is_zero() {
            state.expire();
            return Ok(None);
        }
        let generation = state.generation.load(Ordering::SeqCst);
        let thread = std::thread::Builder::new().name("deadline".to_owned()).spawn(move || {
            while let Some(rest) = rest(&state) {
                std::thread::park_timeout(rest);
                if state.generation.load(Ordering::SeqCst) != generation {
                    return;
                }
            }
            state.expire();
        })?;
        Ok(Some(thread.thread().clone()))
    }

    /// Stops the clock of [`CancelToken::expire_after_work`] until the guard is dropped. There is one pause at a time.
    pub fn pause_clock(&self) -> ClockPause {
        self.state.is_clock_paused.store(true, Ordering::SeqCst);
        ClockPause { state: Arc::clone(&self.state), began: Instant::now() }
    }

    /// Whether a time limit was set, so that no wait is endless.
    pub fn has_deadline(&self) -> bool {
        self.state.has_deadline.load(Ordering::SeqCst)
    }

    /// Whether cancellation was requested because the time limit expired.
    pub fn is_expired(&self) -> bool {
        let at = self.state.expired_at.load(Ordering::SeqCst);
        at > 0 && at == self.state.requested_at.load(Ordering::SeqCst)
    }

    /// Whether cancellation was requested; always false for a token from [`CancelToken::for_cleanup`].
    pub fn is_requested(&self) -> bool {
        !self.ignores_first_request
            && (self.state.requested_at.load(Ordering::SeqCst) > 0
                || self.state.passing.load(Ordering::SeqCst) > 0)
    }

    /// Delays the end of this process by a second signal until the guard is dropped: the group of a child that is being
    /// started can be killed only after [`CancelToken::add_child_group`].
    pub fn delay_exit(&self) -> ExitDelay {
        self.state.exit_delays.fetch_add(1, Ordering::SeqCst);
        ExitDelay(Arc::clone(&self.state))
    }

    /// Adds a process group that a second signal kills, unless there are [`MAX_CHILD_GROUPS`].
    pub fn add_child_group(&self, group: i32) {
        self.replace_child_group(0, group);
    }

    /// Removes a process group that a second signal kills, before its number can be reused.
    pub fn remove_child_group(&self, group: i32) {
        self.replace_child_group(group, 0);
    }

    /// Kills the process groups that a second signal kills.
    pub fn kill_child_groups(&self) {
        self.state.kill_child_groups();
    }

    fn replace_child_group(&self, before: i32, after: i32) {
        for slot in &self.state.child_groups {
            let replaced = slot.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
            if replaced.is_ok() {
                return;
            }
        }
    }

    /// Sets the text that a second signal prints to stderr before it ends the process. Only the first text counts.
    pub fn set_last_words(&self, text: String) {
        let _ = self.state.last_words.set(text);
    }

    /// A descriptor to poll: readable after a signal or a wake-up until [`CancelToken::drain`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.state.wake_read.as_fd()
    }

    /// Wakes a poll of [`CancelToken::fd`] in another thread, without a request.
    pub fn wake(&self) {
        self.state.wake();
    }

    /// Makes [`CancelToken::fd`] unreadable again.
    pub fn drain(&self) {
        let mut buffer = [0; 64];
        // A full buffer may leave more in the pipe.
        while matches!(rustix::io::read(&self.state.wake_read, &mut buffer), Ok(n) if n == buffer.len())
        {
        }
    }

    /// Waits for `duration`; returns true as soon as cancellation is requested.
    pub fn wait(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        while !self.is_requested() {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return false;
            }
            self.wait_for_wake(Some(rest));
        }
        true
    }

    /// Waits for a signal or a wake-up, at most `limit`, and drains it.
    pub fn wait_for_wake(&self, limit: Option<Duration>) {
        let mut fds = [PollFd::new(&self.state.wake_read, PollFlags::IN)];
        let limit = limit.map(to_timespec);
        // After an interrupted poll, the caller checks its condition and waits again.
        let _ = poll(&mut fds, limit.as_ref());
        self.drain();
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts `duration` to the type that `poll` takes.
pub fn to_timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(duration.subsec_nanos()) }
}

impl CancelState {
    /// Milliseconds since the token was created, at least 1.
    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.created_at.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Requests cancellation; returns the time of an earlier request.
    fn request(&self, now: u64) -> Option<u64> {
        self.requested_at.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst).err()
    }

    /// The time since the token was created, without the pauses that have ended.
    fn worked_time(&self) -> Duration {
        let paused = Duration::from_nanos(self.paused_nanos.load(Ordering::SeqCst));
        self.created_at.elapsed().saturating_sub(paused)
    }

    fn lock_work_clock(&self) -> MutexGuard<'_, Option<Thread>> {
        self.work_clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expire(&self) {
        let now = self.elapsed_millis();
        // Stored first, so that a reader that sees the request also sees its reason; only once, because the times must agree.
        if self.expired_at.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.request(now);
            self.wake();
        }
    }

    fn kill_child_groups(&self) {
        for group in &self.child_groups {
            if let Some(group) = Pid::from_raw(group.load(Ordering::SeqCst)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }

    fn on_signal(&self) {
        let now = self.elapsed_millis();
        if self.request(now).is_some_and(|first| now.saturating_sub(first) >= BURST_MILLIS) {
            // Stored first, so that a delay which ends at the same time sees it, or is not seen here.
            self.must_exit.store(true, Ordering::SeqCst);
            if self.exit_delays.load(Ordering::SeqCst) == 0 {
                self.exit();
            }
        }
        self.wake();
    }

    /// Ends this process as a second signal does.
    fn exit(&self) {
        self.kill_child_groups();
        keyboard::restore_terminal();
        // Reading a value that is set takes no lock.
        if let Some(text) = self.last_words.get() {
            let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
        }
        signal_hook::low_level::exit(INTERRUPTED_EXIT_CODE);
    }

    fn wake(&self) {
        // A write to a full pipe fails, but the pipe is readable already.
        let _ = rustix::io::write(&self.wake_write, &[0]);
    }
}

/// Whether this process ignores `signal`.
pub fn is_signal_ignored(signal: c_int) -> bool {
    // SAFETY: a null new action only reads the current one into `current`, which is valid for writing.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut current) == 0
            && current.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_from_another_thread_ends_the_wait() {
        let cancel = CancelToken::manual().unwrap();
        let other = cancel.clone();
        let thread = std::thread::spawn(move || other.request());
        assert!(cancel.wait(Duration::from_secs(60)));
        thread.join().unwrap();
    }

    #[test]
    fn an_expired_time_limit_is_a_request_with_its_reason() {
        let cancel = CancelToken::manual().unwrap();
        cancel.expire_after(Duration::from_millis(5)).unwrap();
        assert!(!cancel.is_expired());
        assert!(cancel.wait(Duration::from_secs(60)));
        assert!(cancel.is_expired());
        let token = CancelToken::manual().unwrap();
        token.request();
        assert!(token.wait(Duration::from_millis(5)));
        token.expire_after(Duration::ZERO).unwrap();
        assert!(token.is_requested());
    }

    #[test]
    fn a_pause_does_not_count_against_a_limit_of_work() {
        let cancel = CancelToken::manual().unwrap();
        let pause = cancel.pause_clock();
        cancel.expire_after_work(Duration::from_millis(20)).unwrap();
        assert!(!cancel.wait(Duration::from_millis(150)));
        assert!(pause.elapsed() >= Duration::from_millis(150));
        drop(pause);
        assert!(cancel.wait(Duration::from_secs(60)));
        assert!(cancel.is_expired());
        let fixed = CancelToken::manual().unwrap();
        let _pause = fixed.pause_clock();
        fixed.expire_after(Duration::from_millis(5)).unwrap();
        assert!(fixed.wait(Duration::from_secs(60)), "a pause does not delay a fixed limit");
    }

    #[test]
    fn a_limit_of_work_can_be_replaced() {
        let cancel = CancelToken::manual().unwrap();
        cancel.expire_after_work(Duration::from_millis(30)).unwrap();
        cancel.expire_after_work(Duration::from_secs(3600)).unwrap();
        assert!(!cancel.wait(Duration::from_millis(100)));
        cancel.expire_after_work(Duration::from_millis(10)).unwrap();
        assert!(cancel.wait(Duration::from_secs(60)) && cancel.is_expired());
    }

    #[test]
    fn c_33_16_the_next_work_has_no_request_and_no_limit_of_the_one_before() {
        let cancel = CancelToken::manual().unwrap();
        cancel.expire_after_work(Duration::from_millis(30)).unwrap();
        cancel.request();
        cancel.begin_again();
        assert!(!cancel.is_requested() && !cancel.has_deadline());
        assert!(!cancel.wait(Duration::from_millis(60)), "the limit was for the work before");
        cancel.expire_after_work(Duration::from_millis(5)).unwrap();
        assert!(cancel.wait(Duration::from_secs(60)) && cancel.is_expired());
    }

    #[test]
    fn only_the_request_of_a_reason_is_withdrawn() {
        let cancel = CancelToken::manual().unwrap();
        cancel.request_for_now(PassingRequest::Message);
        assert!(cancel.is_requested() && cancel.is_requested_only_for(PassingRequest::Message));
        cancel.request_for_now(PassingRequest::LostRun);
        assert!(!cancel.is_requested_only_for(PassingRequest::Message));
        cancel.withdraw(PassingRequest::Message);
        assert!(cancel.is_requested_only_for(PassingRequest::LostRun));
        cancel.withdraw(PassingRequest::LostRun);
        assert!(!cancel.is_requested());
    }

    #[test]
    fn a_signal_and_a_time_limit_outlast_a_request_for_now() {
        let cancel = CancelToken::manual().unwrap();
        cancel.request_for_now(PassingRequest::Message);
        cancel.request();
        assert!(!cancel.is_requested_only_for(PassingRequest::Message));
        cancel.withdraw(PassingRequest::Message);
        assert!(cancel.is_requested() && !cancel.is_expired());
        let cancel = CancelToken::manual().unwrap();
        cancel.request_for_now(PassingRequest::Message);
        cancel.expire_after(Duration::ZERO).unwrap();
        cancel.withdraw(PassingRequest::Message);
        assert!(cancel.is_requested() && cancel.is_expired());
    }

    #[test]
    fn the_first_signal_after_a_request_for_now_does_not_end_the_process() {
        let cancel = CancelToken::manual().unwrap();
        let _delay = cancel.delay_exit();
        cancel.request_for_now(PassingRequest::Message);
        let waited = Instant::now();
        while waited.elapsed() < Duration::from_millis(BURST_MILLIS + 20) {
            cancel.wait_for_wake(Some(Duration::from_millis(BURST_MILLIS)));
        }
        cancel.state.on_signal();
        assert!(!cancel.state.must_exit.load(Ordering::SeqCst), "it is the first signal");
        cancel.withdraw(PassingRequest::Message);
        assert!(cancel.is_requested());
    }

    #[test]
    fn a_wake_up_is_not_a_request() {
        let cancel = CancelToken::manual().unwrap();
        cancel.wake();
        assert!(!cancel.wait(Duration::from_millis(1)));
    }

    /// The thread that waits expired it a moment later, and the run made one more call.
    #[test]
    fn c_33_11_a_limit_that_has_passed_expires_at_once() {
        for _ in 0..10 {
            let cancel = CancelToken::manual().unwrap();
            cancel.expire_after_work(Duration::from_secs(3600)).unwrap();
            let begin = Instant::now();
            // The thread expires it too, at a later time.
            while begin.elapsed() < Duration::from_millis(3) {
                cancel.expire_after_work(Duration::ZERO).unwrap();
                assert!(cancel.is_expired());
            }
        }
    }
}
