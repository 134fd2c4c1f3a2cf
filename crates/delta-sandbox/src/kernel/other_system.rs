//! What a system other than Linux has in place of the modules that ask the kernel for a sandbox: nothing but the reason.
#![cfg(not(target_os = "linux"))]

use std::io;

/// The error of everything here.
pub(crate) fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "sandboxes and staged runs need Linux")
}

pub(crate) mod landlock {
    use super::unsupported;
    use std::io;
    use std::os::fd::{BorrowedFd, OwnedFd};

    pub(crate) const SCOPE_VERSION: u32 = 6;
    pub(crate) const TRUNCATE_VERSION: u32 = 3;

    pub(crate) mod access {
        pub(crate) const READ_DIR: u64 = 0;
        pub(crate) const FILE: u64 = 0;
        pub(crate) const READ: u64 = 0;

        pub(crate) fn all(_: u32) -> u64 {
            0
        }
    }

    /// 0: there is none.
    pub(crate) fn landlock_version() -> u32 {
        0
    }

    pub(crate) fn create_ruleset(_: u32, _: u64) -> io::Result<OwnedFd> {
        Err(unsupported())
    }

    pub(crate) fn allow_beneath(_: &OwnedFd, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
        Err(unsupported())
    }
}

pub(crate) mod mount_tree {
    use super::unsupported;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    pub(crate) fn open_place(_: &Path) -> io::Result<OwnedFd> {
        Err(unsupported())
    }

    pub(crate) fn copy_one_mount(_: &Path) -> io::Result<OwnedFd> {
        Err(unsupported())
    }
}

pub(crate) mod seccomp {
    use delta_process::FilterInstruction;

    pub(crate) fn outside_filter(_: bool) -> Option<Vec<FilterInstruction>> {
        None
    }

    pub(crate) fn unix_sockets_only() -> Option<Vec<FilterInstruction>> {
        None
    }

    pub(crate) fn without_keyrings(filter: Vec<FilterInstruction>) -> Vec<FilterInstruction> {
        filter
    }
}
