//! Landlock, by its three system calls.
#![cfg(target_os = "linux")]

use rustix::fd::FromRawFd;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Access to files, by the bits of `landlock.h`.
pub(crate) mod access {
    pub(crate) const EXECUTE: u64 = 1;
    pub(crate) const WRITE_FILE: u64 = 1 << 1;
    pub(crate) const READ_FILE: u64 = 1 << 2;
    pub(crate) const READ_DIR: u64 = 1 << 3;
    /// Changes and truncations of a file that exists.
    pub(crate) const TRUNCATE: u64 = 1 << 14;
    pub(crate) const IOCTL_DEV: u64 = 1 << 15;
    /// What a rule for a file can allow.
    pub(crate) const FILE: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
    /// Reading files and directories, and running programs.
    pub(crate) const READ: u64 = EXECUTE | READ_FILE | READ_DIR;

    /// Everything that a version of Landlock knows.
    pub(crate) fn all(version: u32) -> u64 {
        let count = match version {
            0 => 0,
            1 => 13,
            2 => 14,
            3 | 4 => 15,
            _ => 16,
        };
        (1 << count) - 1
    }
}

/// Abstract Unix sockets and signals to processes outside.
const SCOPE_ALL: u64 = 3;
/// The first version with scopes.
pub(crate) const SCOPE_VERSION: u32 = 6;
/// The first version that controls truncation.
pub(crate) const TRUNCATE_VERSION: u32 = 3;
const CREATE_VERSION_FLAG: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct RulesetAttributes {
    access_fs: u64,
    access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The version of Landlock; 0 if the kernel has none, or none is enabled.
pub(crate) fn landlock_version() -> u32 {
    // SAFETY: with this flag, the kernel reads no argument.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0,
            CREATE_VERSION_FLAG,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

/// A ruleset that controls `handled` access to files, and the scopes that the version has.
pub(crate) fn create_ruleset(version: u32, handled: u64) -> io::Result<OwnedFd> {
    let scoped = if version >= SCOPE_VERSION { SCOPE_ALL } else { 0 };
    let attributes = RulesetAttributes { access_fs: handled, access_net: 0, scoped };
    // Older kernels know fewer fields.
    let size = match version {
        0..4 => size_of::<u64>(),
        4..6 => 2 * size_of::<u64>(),
        _ => size_of::<RulesetAttributes>(),
    };
    // SAFETY: the kernel reads `size` bytes of the attributes, and the descriptor that it returns is new.
    unsafe {
        let ruleset =
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0);
        match i32::try_from(ruleset) {
            Ok(ruleset) if ruleset >= 0 => Ok(OwnedFd::from_raw_fd(ruleset)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Allows `allowed` below `target`.
pub(crate) fn allow_beneath(
    ruleset: &OwnedFd,
    target: BorrowedFd<'_>,
    allowed: u64,
) -> io::Result<()> {
    let rule = PathBeneath { allowed, parent: target.as_raw_fd() };
    // SAFETY: the kernel reads the rule only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts this process. It must not be able to gain privileges.
pub(crate) fn restrict_self(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and there are no flags.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::E2BIG) => {
            Err(io::Error::other("16 Landlock domains are around this process already"))
        }
        error => Err(error),
    }
}
