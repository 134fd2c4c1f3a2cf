//! What the kernel does for a stage: the mounts that the helper makes, and how a process joins their namespaces.
#![cfg(target_os = "linux")]

use crate::helper::user_namespace::{
    enter_user_namespace, open_namespace, refused, separate_mounts,
};
use crate::kernel::mount_tree::MountTree;
use crate::plan::stage_layers::{StageError, StageLayers, StagedWorkspace, check_mounts};
use crate::plan::{HelperReply, HelperResult};
use crate::profile::git_links::outside_git_directories;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, move_mount};
use rustix::process::{
    DumpableBehavior, parent_process_death_signal, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{CapabilitySet, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

const DIRECTORY_FLAGS: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where the helper mounts something to try it; any existing directory does.
const TRIAL_DIRECTORIES: [&str; 2] = ["/tmp", "/var/tmp"];

/// Moves this process into the namespaces of a stage.
pub(crate) fn join_stage(namespaces: &[OwnedFd]) -> Result<(), StageError> {
    let directory = std::env::current_dir();
    let parent = rustix::process::getppid();
    let death_signal = parent_process_death_signal().ok().flatten();
    for namespace in namespaces {
        move_into_link_name_space(namespace.as_fd(), None).map_err(|errno| {
            StageError::new(format!("could not join the namespaces of the stage: {errno}"))
        })?;
    }
    // Joining a user namespace resets both.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = set_parent_process_death_signal(death_signal);
    if death_signal.is_some() && rustix::process::getppid() != parent {
        return Err(StageError::new("the process that started delta has ended"));
    }
    // A tool of root must not unmount the stage.
    if rustix::process::geteuid().is_root() {
        let _ = rustix::thread::remove_capability_from_bounding_set(CapabilitySet::SYS_ADMIN);
    }
    if let Ok(directory) = directory {
        let _ = std::env::set_current_dir(directory);
    }
    Ok(())
}

/// Makes the namespaces of a workspace, which this process, the helper, then is in. Returns their descriptors, the user
/// namespace first.
pub(crate) fn build_stage(workspace: &StagedWorkspace) -> HelperResult<Vec<OwnedFd>> {
    let names = create_namespaces()?;
    mount_layers(workspace)?;
    names.iter().map(|name| open_namespace(name)).collect()
}

/// Finds out whether this process, the helper, can stage a workspace.
pub(crate) fn probe_stage() -> HelperResult<()> {
    create_namespaces()?;
    try_overlay()
}

/// Mounts the layers of a workspace in the namespaces of this process.
pub(crate) fn mount_layers(workspace: &StagedWorkspace) -> HelperResult<()> {
    let StagedWorkspace { layers, stage } = workspace;
    if stage.is_none() {
        check_mounts(&layers.workspace).map_err(HelperReply::Stage)?;
    }
    mount_stage(layers, stage.as_ref())?;
    protect_git_directories(&layers.workspace)
}

/// Makes the git directories read-only that git would change from the workspace, but that no layer has: a commit there
/// could be neither seen nor denied.
fn protect_git_directories(workspace: &Path) -> HelperResult<()> {
    for directory in outside_git_directories(workspace) {
        cover_read_only(&open_directory(&directory)?).map_err(|error| {
            HelperReply::failed(&format!("could not protect {}", directory.display()), &error)
        })?;
    }
    Ok(())
}

fn cover_read_only(directory: &OwnedFd) -> io::Result<()> {
    let tree = MountTree::copy(directory.as_fd())?;
    tree.set_read_only()?;
    tree.attach(directory.as_fd()).map(drop)
}

/// A process with the capability gets a mount namespace, any other a user namespace too, in which it has it. Returns the
/// names of the namespaces.
fn create_namespaces() -> HelperResult<&'static [&'static str]> {
    // SAFETY: the helper has one thread, so no other uses its table of descriptors.
    let names: &[&str] = match unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
        Ok(()) => &["mnt"],
        Err(Errno::PERM) => {
            enter_user_namespace(UnshareFlags::NEWNS)?;
            &["user", "mnt"]
        }
        Err(errno) => return Err(refused("unshare", &errno.into())),
    };
    separate_mounts()?;
    Ok(names)
}

/// Mounts an overlay of empty directories on a file system in memory.
fn try_overlay() -> HelperResult<()> {
    let Some(base) = TRIAL_DIRECTORIES.iter().find(|path| Path::new(path).is_dir()) else {
        return Ok(());
    };
    let base = Path::new(base);
    rustix::mount::mount("tmpfs", base, "tmpfs", MountFlags::empty(), None)
        .map_err(|errno| mount_error("a tmpfs", errno))?;
    let layers = StageLayers {
        workspace: base.join("w"),
        control: base.join("w/.delta"),
        upper: base.join("w/.delta/upper"),
        work: base.join("w/.delta/work"),
        is_nested: false,
    };
    for directory in [&layers.upper, &layers.work] {
        std::fs::create_dir_all(directory)
            .map_err(|error| HelperReply::failed("could not write in a tmpfs", &error))?;
    }
    mount_stage(&layers, None)
}

/// Mounts the overlay and the directory of the runs. The overlay is over `stage`, if there is one.
fn mount_stage(layers: &StageLayers, stage: Option<&OwnedFd>) -> HelperResult<()> {
    let control = open_directory(&layers.control)?;
    let upper = open_directory(&layers.upper)?;
    let work = open_directory(&layers.work)?;
    if let Some(stage) = stage {
        let target = open_directory(&layers.workspace)?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(stage, "", &target, "", flags)
            .map_err(|errno| mount_error("the stage of the run", errno))?;
    }
    let workspace = open_directory(&layers.workspace)?;
    // By descriptor: a path would have to be escaped, and could lead elsewhere by now.
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        descriptor_path(&workspace),
        descriptor_path(&upper),
        descriptor_path(&work)
    );
    let options = CString::new(options)
        .map_err(|error| HelperReply::failed("the options of an overlay", &error.into()))?;
    rustix::mount::mount(
        "overlay",
        descriptor_path(&workspace),
        "overlay",
        inherited_flags(&workspace),
        Some(options.as_c_str()),
    )
    .map_err(overlay_error)?;
    if !layers.control.starts_with(&layers.workspace) {
        return Ok(());
    }
    let name = layers.control.file_name().unwrap_or_default();
    let target = layers.workspace.join(name);
    rustix::mount::mount_bind_recursive(descriptor_path(&control), &target)
        .map_err(|errno| mount_error("the directory of the runs", errno))
}

fn overlay_error(errno: Errno) -> HelperReply {
    HelperReply::Stage(match errno {
        Errno::INVAL | Errno::OPNOTSUPP => StageError::with_remedy(
            format!(
                "the file system of the workspace cannot be the upper layer of an overlay ({errno})"
            ),
            "use a workspace on ext4, xfs, btrfs or tmpfs",
        ),
        Errno::NODEV => StageError::with_remedy(
            "the kernel has no overlay file system",
            "let root load it: `modprobe overlay`",
        ),
        errno => return mount_error("an overlay", errno),
    })
}

fn mount_error(subject: &str, errno: Errno) -> HelperReply {
    if matches!(errno, Errno::PERM | Errno::ACCESS) {
        // AppArmor lets the namespace be created, and refuses what it is for.
        return refused("mount", &errno.into());
    }
    HelperReply::failed(&format!("could not mount {subject}"), &errno.into())
}

fn open_directory(path: &Path) -> HelperResult<OwnedFd> {
    rustix::fs::open(path, DIRECTORY_FLAGS, Mode::empty()).map_err(|errno| {
        HelperReply::failed(&format!("could not open {}", path.display()), &errno.into())
    })
}

fn descriptor_path(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// The flags of the mount that contains the workspace, which the overlay must not widen.
fn inherited_flags(workspace: &OwnedFd) -> MountFlags {
    let mut flags = MountFlags::empty();
    let Ok(vfs) = rustix::fs::fstatvfs(workspace) else { return flags };
    let pairs = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    for (present, flag) in pairs {
        flags.set(flag, vfs.f_flag.contains(present));
    }
    flags
}
