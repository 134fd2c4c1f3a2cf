//! Which hosts can reach a file system, and which ones are of the kernel.

use super::beneath;
use rustix::fs::Access;
use std::io;
use std::os::fd::AsFd;
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

/// The types of the file systems in which the kernel shows its state: proc, sysfs, cgroup and cgroup2, debugfs, tracefs,
/// securityfs, selinuxfs, smackfs, configfs, devpts, mqueue, pstore, efivarfs, BPF, binfmt_misc, fusectl, rpc_pipefs, nfsd,
/// nsfs, resctrl.
#[cfg(target_os = "linux")]
const KERNEL_STATE_TYPES: [u32; 20] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xf97c_ff8c,
    0x4341_5d53,
    0x6265_6570,
    0x1cd1,
    0x1980_0202,
    0x6165_676c,
    0xde5e_81e4,
    0xcafe_4a11,
    0x4249_4e4d,
    0x6573_5543,
    0x6759_6969,
    0x6e66_7364,
    0x0765_5821,
];

/// Whether what is in `dir` is not stored anywhere, but shown by the kernel: reading it can take forever, or change something.
#[cfg(target_os = "linux")]
pub fn shows_kernel_state(dir: impl AsFd) -> bool {
    type_number(dir).is_ok_and(|kind| KERNEL_STATE_TYPES.contains(&kind))
}

/// Whether what is in `dir` is not stored anywhere, but shown by the kernel: other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub fn shows_kernel_state(_dir: impl AsFd) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn type_number(dir: impl AsFd) -> io::Result<u32> {
    let file_system = rustix::fs::fstatfs(dir)?;
    // The field is wider than the value, and on some processors signed.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a 32-bit number")]
    let kind = file_system.f_type as u32;
    Ok(kind)
}

/// Whether only processes of this kernel can reach the file system of the directory `path`. A type that is not known
/// counts as one that other hosts can reach.
///
/// # Errors
/// The directory cannot be opened.
#[cfg(target_os = "linux")]
pub fn is_on_local_file_system(path: &Path) -> io::Result<bool> {
    Ok(LOCAL_TYPES.contains(&type_number(beneath::open_dir(path)?)?))
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
