//! SIGINT, SIGTERM and SIGHUP become a [`Cancel`] that everything which waits looks at; the second one ends the
//! process at once.
#![expect(unsafe_code, reason = "signal handlers and dispositions have no safe interface")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::raw::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The exit code of a run that was interrupted.
const INTERRUPTED: c_int = 130;

/// The signals that ask for the stop.
const STOPS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// All signals that this process may have a handler for: nothing else installs one. Those of the Rust runtime, for a
/// stack that overflows, are not counted.
pub const HANDLED: [c_int; 5] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD, libc::SIGWINCH];

/// Signals that come so soon after the first, in milliseconds, are the same request: `timeout` signals the process and
/// its group, and a terminal that closes makes the kernel and the shell send one each.
const BURST: u64 = 100;

/// Whether a person or the system asked the engine to stop. Clones share the state.
#[derive(Debug, Clone)]
pub struct Cancel {
    inner: Arc<Inner>,
    /// Whether the first signal does not count: see [`Cancel::for_the_end`].
    deaf: bool,
}

#[derive(Debug)]
struct Inner {
    /// When the stop was asked for, in milliseconds since the system started; 0 when it was not.
    requested_at: AtomicU64,
    /// When the time was over, likewise; the stop was asked for because of it when both are the same.
    expired_at: AtomicU64,
    /// The process group that a second signal kills before it ends the engine; 0 when there is none.
    group: AtomicI32,
    wake_read: OwnedFd,
    wake_write: OwnedFd,
}

impl Cancel {
    /// A cancel that no signal reaches; [`Cancel::request`] sets it.
    pub fn manual() -> io::Result<Self> {
        let (wake_read, wake_write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (requested_at, expired_at) = (AtomicU64::new(0), AtomicU64::new(0));
        let group = AtomicI32::new(0);
        let inner = Arc::new(Inner { requested_at, expired_at, group, wake_read, wake_write });
        Ok(Self { inner, deaf: false })
    }

    /// The cancel for what is still to be done when the stop was asked for: that does not end it, a second signal ends
    /// it with the process.
    pub fn for_the_end(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), deaf: true }
    }

    /// A cancel that SIGINT, SIGTERM and SIGHUP set. Call it once per process.
    ///
    /// A signal that the process was started with as ignored (`nohup`, a background job of a script) stays ignored.
    pub fn install() -> io::Result<Self> {
        let cancel = Self::manual()?;
        for signal in STOPS {
            if is_ignored(signal) {
                continue;
            }
            let inner = Arc::clone(&cancel.inner);
            // SAFETY: the action only touches atomics and calls clock_gettime, kill, write and _exit, all
            // async-signal-safe.
            unsafe { signal_hook::low_level::register(signal, move || inner.on_signal()) }?;
        }
        if cfg!(not(target_os = "linux")) {
            // Elsewhere no descriptor says that a child has ended.
            cancel.wake_on_child()?;
        }
        Ok(cancel)
    }

    /// Has SIGCHLD wake whoever polls [`Cancel::fd`]: a child has ended.
    pub fn wake_on_child(&self) -> io::Result<()> {
        self.wake_on(libc::SIGCHLD)
    }

    /// Has SIGWINCH wake whoever polls [`Cancel::fd`]: the terminal has another size.
    pub fn wake_on_resize(&self) -> io::Result<()> {
        self.wake_on(libc::SIGWINCH)
    }

    fn wake_on(&self, signal: c_int) -> io::Result<()> {
        let inner = Arc::clone(&self.inner);
        // SAFETY: the action only writes one byte to a pipe.
        unsafe { signal_hook::low_level::register(signal, move || inner.wake()) }.map(drop)
    }

    /// Asks for the stop, as a signal would.
    pub fn request(&self) {
        self.inner.ask(milliseconds());
        self.inner.wake();
    }

    /// Asks for the stop when `duration` is over; [`Cancel::expired`] then says that it was this, unless somebody else
    /// asked before.
    ///
    /// # Errors
    /// The thread that watches the time could not be started.
    pub fn expire_after(&self, duration: Duration) -> io::Result<()> {
        let (inner, start) = (Arc::clone(&self.inner), Instant::now());
        if duration.is_zero() {
            inner.expire();
            return Ok(());
        }
        let watch = move || {
            while let Some(left) = duration.checked_sub(start.elapsed()).filter(|it| !it.is_zero())
            {
                std::thread::park_timeout(left);
            }
            inner.expire();
        };
        std::thread::Builder::new().name("deadline".to_owned()).spawn(watch).map(drop)
    }

    /// Whether the stop was asked for because the time was over.
    pub fn expired(&self) -> bool {
        let at = self.inner.expired_at.load(Ordering::SeqCst);
        at > 0 && at == self.inner.requested_at.load(Ordering::SeqCst)
    }

    /// Whether the stop was asked for.
    pub fn requested(&self) -> bool {
        !self.deaf && self.inner.requested_at.load(Ordering::SeqCst) > 0
    }

    /// Names the process group that a second signal kills; 0 for none.
    pub fn set_group(&self, group: i32) {
        self.inner.group.store(group, Ordering::SeqCst);
    }

    /// Readable after a signal until [`Cancel::drain`]. For `poll` beside other descriptors.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.wake_read.as_fd()
    }

    /// Wakes whoever polls [`Cancel::fd`], from another thread; nothing is cancelled by it.
    pub fn wake(&self) {
        self.inner.wake();
    }

    /// Empties the wake-up pipe.
    pub fn drain(&self) {
        let mut buffer = [0; 64];
        // What fills the buffer may be followed by more.
        while matches!(rustix::io::read(&self.inner.wake_read, &mut buffer), Ok(n) if n == buffer.len())
        {
        }
    }

    /// Waits for `duration` or until the stop is asked for; true when it was.
    pub fn wait(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        while !self.requested() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.wait_wake(Some(left));
        }
        true
    }

    /// Waits until something wakes the pipe, at most `limit`; empties the pipe.
    pub fn wait_wake(&self, limit: Option<Duration>) {
        let mut fds = [PollFd::new(&self.inner.wake_read, PollFlags::IN)];
        let limit = limit.map(timespec);
        // An interrupted poll only means that the caller looks again.
        let _ = poll(&mut fds, limit.as_ref());
        self.drain();
    }
}

/// `duration` as `poll` takes it.
pub fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(duration.subsec_nanos()) }
}

impl Inner {
    /// Asks for the stop; gives when it was asked for before, if it was.
    fn ask(&self, now: u64) -> Option<u64> {
        self.requested_at.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst).err()
    }

    fn expire(&self) {
        let now = milliseconds();
        // Said first, so that whoever finds the request finds its reason too.
        self.expired_at.store(now, Ordering::SeqCst);
        self.ask(now);
        self.wake();
    }

    fn on_signal(&self) {
        let now = milliseconds();
        if self.ask(now).is_some_and(|first| now.saturating_sub(first) >= BURST) {
            let group = self.group.load(Ordering::SeqCst);
            if group > 0 {
                // SAFETY: kill is async-signal-safe; a group that is gone makes it fail, which is fine.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            signal_hook::low_level::exit(INTERRUPTED);
        }
        self.wake();
    }

    fn wake(&self) {
        // A full pipe wakes as well as one more byte would.
        let _ = rustix::io::write(&self.wake_write, &[0]);
    }
}

/// Milliseconds since the system started, at least 1.
fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    (seconds * 1000 + nanos / 1_000_000).max(1)
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: a null new action only reads the present one into `old`, which is valid for writing.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_from_another_thread_ends_the_wait() {
        let cancel = Cancel::manual().unwrap();
        let other = cancel.clone();
        let thread = std::thread::spawn(move || other.request());
        assert!(cancel.wait(Duration::from_secs(60)));
        thread.join().unwrap();
    }

    #[test]
    fn time_that_is_over_is_a_request_with_its_reason() {
        let cancel = Cancel::manual().unwrap();
        cancel.expire_after(Duration::from_millis(5)).unwrap();
        assert!(!cancel.expired());
        assert!(cancel.wait(Duration::from_secs(60)));
        assert!(cancel.expired());
        let asked = Cancel::manual().unwrap();
        asked.request();
        assert!(asked.wait(Duration::from_millis(5)));
        asked.expire_after(Duration::ZERO).unwrap();
        assert!(asked.requested());
    }

    #[test]
    fn a_wake_up_is_not_a_request() {
        let cancel = Cancel::manual().unwrap();
        cancel.wake();
        assert!(!cancel.wait(Duration::from_millis(1)));
    }
}
