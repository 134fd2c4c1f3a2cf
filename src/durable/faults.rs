//! Faults on demand, for tests of a build with the feature `failpoints`: the process dies just before its Nth durable
//! operation, or that operation fails.
//!
//! `DELTA_FAILPOINT=MODE:N`, MODE being `abort`, `torn` (a write is cut in half, then the process dies), or the error that
//! the operation gives: `enospc`, `eio`, `erofs`, `emfile`. `DELTA_FAILPOINT_COUNT=FILE` gets a byte for each operation.
#![expect(
    clippy::disallowed_methods,
    reason = "read here so that no other build knows these variables"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static PASSED: AtomicU64 = AtomicU64::new(0);
static PLAN: OnceLock<Option<(String, u64)>> = OnceLock::new();

fn plan() -> Option<&'static (String, u64)> {
    let read = || {
        let text = std::env::var("DELTA_FAILPOINT").ok()?;
        let (mode, number) = text.split_once(':')?;
        Some((mode.to_owned(), number.parse().ok()?))
    };
    PLAN.get_or_init(read).as_ref()
}

/// Counts an operation that is about to happen.
pub(super) fn pass() -> io::Result<()> {
    if let Ok(path) = std::env::var("DELTA_FAILPOINT_COUNT") {
        OpenOptions::new().append(true).create(true).open(path)?.write_all(b"x")?;
    }
    let number = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
    let Some((mode, _)) = plan().filter(|(_, wanted)| *wanted == number) else { return Ok(()) };
    match mode.as_str() {
        "enospc" => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        "eio" => Err(io::Error::from_raw_os_error(libc::EIO)),
        "erofs" => Err(io::Error::from_raw_os_error(libc::EROFS)),
        "emfile" => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        "abort" => std::process::abort(),
        _ => Ok(()),
    }
}

/// Writes half of `bytes` and dies, when the plan is to tear the operation that is next.
pub(super) fn may_tear(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let next = PASSED.load(Ordering::SeqCst) + 1;
    if plan().is_some_and(|(mode, number)| mode == "torn" && *number == next) {
        file.write_all(&bytes[..bytes.len() / 2])?;
        std::process::abort();
    }
    Ok(())
}
