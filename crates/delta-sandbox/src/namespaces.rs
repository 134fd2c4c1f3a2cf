//! The namespaces of a sandbox, made by the helper in itself.
#![cfg(target_os = "linux")]

use crate::canary::Canary;
use crate::machine::kernel_release;
use crate::mount_tree::MountTree;
use crate::mounts::build_mounts;
use crate::network::{HostPolicy, HostSockets, bring_up_loopback};
use crate::plan::{HelperReply, HelperResult, NamespacePlan, plain_error};
use crate::profile::NetAccess;
use crate::unix_sockets::bound_sockets;
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Makes the namespaces of a sandbox, which this process then is in. Returns their descriptors, the user namespace first,
/// and, if it has a network namespace, two more with which the network's counters can be read. The sockets of a network
/// with a list of hosts go through `service`.
pub(crate) fn build_namespaces(
    plan: &NamespacePlan,
    service: Option<(&HostPolicy, BorrowedFd<'_>)>,
) -> HelperResult<Vec<OwnedFd>> {
    let sockets = bound_sockets();
    let canary = Canary::prepare(plan);
    let has_network = plan.profile.net == NetAccess::All;
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if !has_network {
        flags |= UnshareFlags::NEWNET;
    }
    check_kernel()?;
    enter_user_namespace(flags)?;
    if let Some((policy, socket)) = service {
        HostSockets::create(policy)
            .and_then(|sockets| sockets.send(socket))
            .map_err(|error| HelperReply::failed("the network of hosts", &error))?;
    } else if !has_network {
        bring_up_loopback().map_err(|error| HelperReply::failed("the loopback", &error))?;
    }
    prepare_mounts()?;
    let mut namespaces = vec!["user", "mnt", "ipc"];
    if !has_network {
        namespaces.push("net");
    }
    build_mounts(plan, sockets)?;
    canary.check(plan)?;
    let mut files: Vec<OwnedFd> =
        namespaces.iter().map(|name| open_namespace(name)).collect::<HelperResult<_>>()?;
    if !has_network {
        files.push(open_file("/proc/self/net/snmp")?);
        // A kernel without IPv6 has no counters of it.
        let counters = Path::new("/proc/self/net/snmp6");
        let path = if counters.exists() { counters } else { Path::new("/dev/null") };
        files.push(open_file(path)?);
    }
    Ok(files)
}

/// Opens a namespace of this process by its name in /proc/self/ns.
pub(crate) fn open_namespace(name: &str) -> HelperResult<OwnedFd> {
    open_file(Path::new("/proc/self/ns").join(name))
}

fn open_file(path: impl AsRef<Path>) -> HelperResult<OwnedFd> {
    let path = path.as_ref();
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| HelperReply::failed(&path.display().to_string(), &errno.into()))
}

/// Finds out whether this process can make namespaces and mounts in them.
pub(crate) fn probe_namespaces() -> HelperResult<()> {
    check_kernel()?;
    enter_user_namespace(UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWNET)?;
    prepare_mounts()
}

/// Lets no mount of this process leave its namespace.
pub(crate) fn separate_mounts() -> HelperResult<()> {
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|errno| refused("mount", &errno.into()))
}

/// Separates the mounts, and tries the system calls that follow: the filter of a container may allow namespaces and not
/// these.
fn prepare_mounts() -> HelperResult<()> {
    separate_mounts()?;
    let tree = MountTree::copy_path(Path::new("/dev/null"))
        .map_err(|error| refused("open_tree", &error))?;
    tree.set_read_only().map_err(|error| refused("mount_setattr", &error))?;
    open("/proc/self/ns/ipc", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|namespace| move_into_link_name_space(namespace.as_fd(), None))
        .map_err(|errno| refused("setns", &errno.into()))
}

pub(crate) fn refused(step: &str, error: &io::Error) -> HelperReply {
    HelperReply::Refused { step: step.to_owned(), error: plain_error(error) }
}

/// The first kernel in which mounts can be made read-only together with those below them.
const OLDEST_KERNEL: (u32, u32) = (5, 12);

fn check_kernel() -> HelperResult<()> {
    let release = kernel_release();
    let mut numbers = release.split(|other: char| !other.is_ascii_digit()).map(str::parse);
    let version = (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok));
    match version {
        (Some(major), Some(minor)) if (major, minor) < OLDEST_KERNEL => {
            let error = format!("kernel {release} is older than 5.12");
            Err(HelperReply::Refused { step: "mount_setattr".to_owned(), error })
        }
        _ => Ok(()),
    }
}

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
