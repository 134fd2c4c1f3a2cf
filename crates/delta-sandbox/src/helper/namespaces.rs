//! The namespaces of a sandbox, made by the helper in itself.
#![cfg(target_os = "linux")]

use crate::helper::canary::Canary;
use crate::helper::mounts::build_mounts;
use crate::helper::user_namespace::{
    enter_user_namespace, open_file, open_namespace, refused, separate_mounts,
};
use crate::kernel::mount_tree::MountTree;
use crate::kernel::unix_sockets::bound_sockets;
use crate::machine::kernel_release;
use crate::network::{HostPolicy, HostSockets, bring_up_loopback};
use crate::plan::{HelperReply, HelperResult, NamespacePlan};
use crate::profile::NetAccess;
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{UnshareFlags, move_into_link_name_space};
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

/// Finds out whether this process can make namespaces and mounts in them.
pub(crate) fn probe_namespaces() -> HelperResult<()> {
    check_kernel()?;
    enter_user_namespace(UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWNET)?;
    prepare_mounts()
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
