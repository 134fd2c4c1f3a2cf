//! Which hosts can reach a file system.

use super::beneath;
use rustix::fs::Access;
use std::io;
use std::path::Path;

/// The types (statfs(2)) of the file systems that one kernel has for itself: ext2 to ext4, XFS, Btrfs, tmpfs, ramfs,
/// overlayfs, ZFS, F2FS, bcachefs.
#[cfg(target_os = "linux")]
const LOCAL_TYPES: [u32; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0xca45_1a4e,
];

/// Whether only processes of this kernel can reach the file system of the directory `path`. A type that is not known
/// counts as one that other hosts can reach.
///
/// # Errors
/// The directory cannot be opened.
#[cfg(target_os = "linux")]
pub fn is_on_local_file_system(path: &Path) -> io::Result<bool> {
    let file_system = rustix::fs::fstatfs(beneath::open_dir(path)?)?;
    // The field is wider than the value, and on some processors signed.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a 32-bit number")]
    let kind = file_system.f_type as u32;
    Ok(LOCAL_TYPES.contains(&kind))
}

/// Whether only processes of this kernel can reach the file system of the directory `path`: other systems are not asked.
///
/// # Errors
/// The directory cannot be opened.
#[cfg(not(target_os = "linux"))]
pub fn is_on_local_file_system(path: &Path) -> io::Result<bool> {
    beneath::open_dir(path).map(|_| true)
}

/// The id of this boot of the kernel; `None` where it has none. What was not synced in an earlier boot may be lost.
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// What a directory has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryRoom {
    /// Whether this user may create files in it.
    pub is_writable: bool,
    /// The bytes that this user may still write on its file system.
    pub free_bytes: u64,
}

/// Finds out what the directory `path` has room for.
///
/// # Errors
/// The directory cannot be opened.
pub fn inspect_room(path: &Path) -> io::Result<DirectoryRoom> {
    let file_system = rustix::fs::fstatvfs(beneath::open_dir(path)?)?;
    let access = rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK);
    Ok(DirectoryRoom {
        is_writable: access.is_ok(),
        free_bytes: file_system.f_bavail.saturating_mul(file_system.f_frsize),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn c_26_1_the_processes_of_another_kernel_have_other_types() {
        assert!(is_on_local_file_system(Path::new("/dev/shm")).unwrap());
        // A file system of one kernel, too, but of none of the types on which runs are kept.
        assert!(!is_on_local_file_system(Path::new("/proc")).unwrap());
    }
}
