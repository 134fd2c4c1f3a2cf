//! Warm first: of the calls that share a prefix, one writes it to the cache of the endpoint, and the others wait until its answer
//! begins, because only then can they read it.
//!
//! The first call holds a lock in a directory that the processes of a host share: if its process dies or its call fails, the next
//! one is the first.

use super::call_rate::boot_ms;
use delta_base::durable::{self, FileError, FileLock};
use delta_base::signal::CancelToken;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time that a call waits for another one.
pub const MAX_PREFIX_WAIT: Duration = Duration::from_secs(60);

/// The time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What the requests of several runs begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPrefix {
    /// Identifies the model, the address and the text.
    pub hash: String,
    /// How long the endpoint keeps it after its last use.
    pub lifetime: Duration,
}

/// A call whose request begins with a shared prefix.
#[derive(Debug)]
pub struct PrefixCall {
    /// The file with the time when an answer began last.
    path: PathBuf,
    /// Held by the first call until its answer begins.
    _lock: Option<FileLock>,
}

/// How a wait for the first call has ended.
#[derive(Debug)]
pub enum PrefixWait {
    /// The call can be made.
    Ready(PrefixCall),
    /// The wait was cancelled.
    Cancelled,
}

impl PrefixCall {
    /// Waits in `dir` until the prefix can be read, until this call is the first one, or for `limit`. Calls `on_wait` once before
    /// it waits.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn begin(
        dir: &Path,
        prefix: &CallPrefix,
        limit: Duration,
        cancel: &CancelToken,
        on_wait: &mut dyn FnMut(),
    ) -> Result<PrefixWait, FileError> {
        let path = dir.join(format!("prefix-{}", prefix.hash));
        let lock_path = path.with_extension("lock");
        let began = Instant::now();
        let mut has_waited = false;
        loop {
            let lock = FileLock::try_acquire(&lock_path)?;
            // Read after the lock was taken or refused: meanwhile the answer may begin.
            if is_prefix_kept(&path, prefix.lifetime) || lock.is_none() && began.elapsed() >= limit
            {
                return Ok(PrefixWait::Ready(Self { path, _lock: None }));
            }
            if lock.is_some() {
                return Ok(PrefixWait::Ready(Self { path, _lock: lock }));
            }
            if !std::mem::replace(&mut has_waited, true) {
                on_wait();
            }
            if cancel.wait(POLL_INTERVAL) {
                return Ok(PrefixWait::Cancelled);
            }
        }
    }

    /// Notes that the answer begins, and lets the calls that wait for it begin.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_answer(self) -> Result<(), FileError> {
        durable::replace_private_unsynced(&self.path, boot_ms().to_string().as_bytes())
    }
}

/// Whether an answer began within the lifetime. A time in the future is one of another boot.
fn is_prefix_kept(path: &Path, lifetime: Duration) -> bool {
    let written = durable::read_small_no_follow(path).ok();
    let written = written.and_then(|bytes| String::from_utf8(bytes).ok()?.parse::<u64>().ok());
    let age_ms = written.and_then(|at| boot_ms().checked_sub(at));
    age_ms.is_some_and(|age_ms| Duration::from_millis(age_ms) < lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_35_17_the_next_call_is_the_first_if_the_first_fails_and_none_waits_longer_than_the_limit()
    {
        let dir = tempfile::tempdir().unwrap();
        let cancel = CancelToken::manual().unwrap();
        let prefix = CallPrefix { hash: "p".to_owned(), lifetime: Duration::from_secs(300) };
        let begin = |prefix: &CallPrefix, limit: u64| {
            let mut has_waited = false;
            let limit = Duration::from_millis(limit);
            let waited =
                PrefixCall::begin(dir.path(), prefix, limit, &cancel, &mut || has_waited = true);
            let PrefixWait::Ready(call) = waited.unwrap() else { panic!("nothing cancels it") };
            (call, has_waited)
        };
        let (first, has_waited) = begin(&prefix, 0);
        assert!(first._lock.is_some() && !has_waited);
        let (late, has_waited) = begin(&prefix, 1);
        assert!(late._lock.is_none() && has_waited, "it waits for the limit, and goes ahead");
        let other = CallPrefix { hash: "q".to_owned(), ..prefix.clone() };
        assert!(begin(&other, 0).0._lock.is_some(), "another prefix has a first call of its own");
        // It fails.
        drop(first);
        let (next, _) = begin(&prefix, 0);
        assert!(next._lock.is_some());
        next.note_answer().unwrap();
        let (reading, has_waited) = begin(&prefix, 0);
        assert!(reading._lock.is_none() && !has_waited);
        let gone = CallPrefix { lifetime: Duration::ZERO, ..prefix };
        assert!(begin(&gone, 0).0._lock.is_some(), "the entry has expired");
    }
}
