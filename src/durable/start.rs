//! Has the kernel begin to write a file, without the wait for it.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "sync_file_range has no safe interface")
)]

use std::fs::File;
use std::io;

/// Has the kernel begin to write what a file holds from `offset` on and the disk does not. Where it cannot, the next sync
/// begins it.
///
/// # Errors
/// The disk's own, which a sync might not tell again.
#[cfg(target_os = "linux")]
pub(super) fn writing(file: &File, offset: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (offset, to_the_end) = (i64::try_from(offset).unwrap_or_default(), 0);
    let only_begin = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: the call takes a descriptor, which is open, and numbers.
    let begun = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, to_the_end, only_begin) };
    if begun == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EIO | libc::ENOSPC | libc::EDQUOT | libc::EROFS) => Err(error),
        // There is no such call here, or not for this kind of file.
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn writing(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}
