//! Mounts that are not in the tree of files yet, and how they get there.
#![cfg(target_os = "linux")]

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The argument of `mount_setattr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A detached mount, with what is mounted below it.
#[derive(Debug)]
pub(crate) struct MountTree(OwnedFd);

/// Opens a path for its place in the tree, if no part of it is a symlink.
pub(crate) fn open_place(path: &Path) -> io::Result<OwnedFd> {
    open_path(path, OFlags::empty())
}

/// As [`open_place`], but opens a symlink that the path names: a mount on a symlink keeps it from being replaced.
pub(crate) fn open_entry(path: &Path) -> io::Result<OwnedFd> {
    open_path(path, OFlags::NOFOLLOW)
}

fn open_path(path: &Path, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(|errno| match errno
    {
        Errno::LOOP => io::Error::other("it is a symlink now, or a part of it is"),
        other => other.into(),
    })
}

/// A copy of the mount of the directory `path`, without what is mounted in it.
pub(crate) fn copy_one_mount(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(open_tree(CWD, path, flags)?)
}

impl MountTree {
    /// A copy of what is at `target`, with all mounts below it.
    pub(crate) fn copy(target: BorrowedFd<'_>) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        Ok(Self(open_tree(target, "", flags)?))
    }

    /// A copy of what is at `path`.
    pub(crate) fn copy_path(path: &Path) -> io::Result<Self> {
        Self::copy(open_place(path)?.as_fd())
    }

    /// A new file system with string options and flags.
    pub(crate) fn create(kind: &str, options: &[(&str, &str)], flags: &[&str]) -> io::Result<Self> {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (name, value) in options {
            fsconfig_set_string(&context, *name, *value)?;
        }
        for name in flags {
            fsconfig_set_flag(&context, *name)?;
        }
        fsconfig_create(&context)?;
        Ok(Self(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?))
    }

    /// Makes every mount of the tree read-only.
    pub(crate) fn set_read_only(&self) -> io::Result<()> {
        set_attributes(self.0.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY)
    }

    /// Puts the tree at `target`.
    pub(crate) fn attach(self, target: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.0, "", target, "", flags)?;
        Ok(self.0)
    }
}

impl AsFd for MountTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Adds attributes to a mount and all below it. Flags are only added: one that an outer namespace has locked cannot be
/// cleared, and the call would fail.
pub(crate) fn set_attributes(mount: BorrowedFd<'_>, attributes: MountAttrFlags) -> io::Result<()> {
    set_mount_attributes(mount, attributes, OpenTreeFlags::AT_RECURSIVE.bits())
}

/// Adds attributes to a mount, but not to those below it.
pub(crate) fn set_attributes_of_one(
    mount: BorrowedFd<'_>,
    attributes: MountAttrFlags,
) -> io::Result<()> {
    set_mount_attributes(mount, attributes, 0)
}

fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    attributes: MountAttrFlags,
    flags: u32,
) -> io::Result<()> {
    let argument = MountAttributes {
        set: u64::from(attributes.bits()),
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    // rustix has no function for this.
    let flags = AtFlags::EMPTY_PATH.bits() | flags;
    // SAFETY: the path is an empty C string, and the kernel reads as many bytes of the argument as it has.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const argument,
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
