//! Injected faults: the process aborts just before its Nth durable operation, or that operation fails.
//!
//! Only builds of tests have them, by a dev-dependency of the program, so that one build serves all tests. Without its
//! variables a failpoint does nothing.
//!
//! `DELTA_FAILPOINT=MODE:N`. MODE is `abort`, `torn` (half of a write, then abort), `stop` (SIGSTOP), or the error to return:
//! `enospc`, `eio`, `erofs`, `emfile`, and what file systems without hard links return, `eperm` and `eopnotsupp`. `DELTA_FAILPOINT_COUNT=FILE` receives one byte for each operation.
#![expect(
    clippy::disallowed_methods,
    reason = "read here so that no other build knows these variables"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static OPERATION_COUNT: AtomicU64 = AtomicU64::new(0);
static FAULT_PLAN: OnceLock<Option<(String, u64)>> = OnceLock::new();

fn fault_plan() -> Option<&'static (String, u64)> {
    FAULT_PLAN.get_or_init(read_fault_plan).as_ref()
}

fn read_fault_plan() -> Option<(String, u64)> {
    let text = std::env::var("DELTA_FAILPOINT").ok()?;
    let (mode, number) = text.split_once(':')?;
    Some((mode.to_owned(), number.parse().ok()?))
}

/// Counts an operation that is about to start, and injects the planned fault.
pub(super) fn count_operation() -> io::Result<()> {
    if let Ok(path) = std::env::var("DELTA_FAILPOINT_COUNT") {
        OpenOptions::new().append(true).create(true).open(path)?.write_all(b"x")?;
    }
    let number = OPERATION_COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    let Some((mode, _)) = fault_plan().filter(|(_, planned)| *planned == number) else {
        return Ok(());
    };
    match mode.as_str() {
        "enospc" => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        "eio" => Err(io::Error::from_raw_os_error(libc::EIO)),
        "eperm" => Err(io::Error::from_raw_os_error(libc::EPERM)),
        "eopnotsupp" => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        "erofs" => Err(io::Error::from_raw_os_error(libc::EROFS)),
        "emfile" => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        "abort" => std::process::abort(),
        "stop" => {
            // The process continues when the test sends SIGCONT.
            let this = rustix::process::getpid();
            Ok(rustix::process::kill_process(this, rustix::process::Signal::STOP)?)
        }
        _ => Ok(()),
    }
}

/// Writes half of `bytes` and aborts when the plan is to tear the next operation.
pub(super) fn tear_write_if_planned(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let next = OPERATION_COUNT.load(Ordering::SeqCst) + 1;
    if fault_plan().is_some_and(|(mode, number)| mode == "torn" && *number == next) {
        file.write_all(&bytes[..bytes.len() / 2])?;
        std::process::abort();
    }
    Ok(())
}
