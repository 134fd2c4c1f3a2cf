//! Starts the writeback of a file without waiting for it.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "sync_file_range has no safe interface")
)]

use std::fs::File;
use std::io;

/// Makes the kernel start writing the dirty pages of `file` from `offset` to its end. Does nothing where the kernel or
/// the file system cannot do that: the next sync starts the writing.
///
/// # Errors
/// An error of the disk, which the next sync might not report again.
#[cfg(target_os = "linux")]
pub(super) fn start_file_writeback(file: &File, offset: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    const TO_END: i64 = 0;
    let offset = i64::try_from(offset).unwrap_or_default();
    // SAFETY: the call takes an open descriptor and numbers.
    let status = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, TO_END, libc::SYNC_FILE_RANGE_WRITE)
    };
    if status == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EIO | libc::ENOSPC | libc::EDQUOT | libc::EROFS) => Err(error),
        // Not supported by this kernel, or for this file.
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn start_file_writeback(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}
