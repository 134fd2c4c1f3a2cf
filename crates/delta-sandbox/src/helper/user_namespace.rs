//! How the helper enters a user namespace of its own, and takes the steps after it that a system may refuse.
#![cfg(target_os = "linux")]

use crate::plan::{HelperReply, HelperResult};
use crate::sandbox_error::plain_error;
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::{fs, io};

/// Enters a new user namespace in which this user is itself, and then other new namespaces.
pub(crate) fn enter_user_namespace(others: UnshareFlags) -> HelperResult<()> {
    let user = geteuid().as_raw();
    let group = getegid().as_raw();
    // SAFETY: the helper has one thread, so no other uses its table of descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }
        .map_err(|errno| refused("unshare", &errno.into()))?;
    let files = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ];
    for (name, text) in files {
        fs::write(format!("/proc/self/{name}"), text).map_err(|error| refused(name, &error))?;
    }
    // SAFETY: as above.
    unsafe { unshare_unsafe(others) }.map_err(|errno| refused("unshare", &errno.into()))
}

/// Lets no mount of this process leave its namespace.
pub(crate) fn separate_mounts() -> HelperResult<()> {
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|errno| refused("mount", &errno.into()))
}

/// Opens a namespace of this process by its name in /proc/self/ns.
pub(crate) fn open_namespace(name: &str) -> HelperResult<OwnedFd> {
    open_file(Path::new("/proc/self/ns").join(name))
}

pub(crate) fn open_file(path: impl AsRef<Path>) -> HelperResult<OwnedFd> {
    let path = path.as_ref();
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| HelperReply::failed(&path.display().to_string(), &errno.into()))
}

pub(crate) fn refused(step: &str, error: &io::Error) -> HelperReply {
    HelperReply::Refused { step: step.to_owned(), error: plain_error(error) }
}
