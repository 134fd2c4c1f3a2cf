//! The sandbox of a profile where namespaces cannot be made: Landlock for files, seccomp for the network.

use crate::kernel::devices::{COMMON_DEVICES, DEVICE_DIRECTORY, reachable_disks};
use crate::kernel::landlock::{
    SCOPE_VERSION, TRUNCATE_VERSION, access, allow_beneath, create_ruleset,
};
use crate::kernel::mount_tree::open_place;
use crate::kernel::seccomp::{outside_filter, unix_sockets_only, without_keyrings};
use crate::kernel::unix_sockets::{bound_sockets, lookup_sockets};
use crate::plan::NamespacePlan;
use crate::plan::refusal::NamespaceRefusal;
use crate::profile::{Guarantee, HomeAccess, NetAccess, ReadAccess, SandboxProfile};
use crate::sandbox_error::{MissingGuarantee, SandboxError};
use delta_process::FilterInstruction;
use rustix::fs::Access;
use rustix::process::geteuid;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Shared memory that programs cannot do without.
const SHARED_MEMORY: &str = "/dev/shm";
/// Where a program gets a terminal of its own, and where all terminals are.
const TERMINAL_PLACES: [&str; 2] = ["/dev/ptmx", "/dev/pts"];
/// What a sandbox with a list of readable paths can read.
const SYSTEM_DIRECTORIES: [&str; 13] = [
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/opt", "/nix", "/gnu", "/dev",
    "/proc", "/sys",
];

/// What Landlock and seccomp enforce of a profile.
#[derive(Debug)]
pub(crate) struct LandlockSandbox {
    /// `None` without Landlock.
    pub(crate) ruleset: Option<OwnedFd>,
    pub(crate) filter: Vec<FilterInstruction>,
    pub(crate) missing: Vec<MissingGuarantee>,
    pub(crate) watched: &'static [Guarantee],
}

/// Makes the rules for a profile. `refusal` says why there are no namespaces, and what to do about it.
pub(crate) fn prepare_landlock(
    plan: &NamespacePlan,
    refusal: &NamespaceRefusal,
) -> Result<LandlockSandbox, SandboxError> {
    let version = plan.landlock;
    let profile = &plan.profile;
    let filter = match profile.net {
        NetAccess::None => unix_sockets_only(),
        NetAccess::Hosts(_) => outside_filter(true),
        NetAccess::All => outside_filter(false),
    };
    let filter = filter.map(without_keyrings);
    let mut missing = Vec::new();
    let mut add_with = |guarantee, reason: &str, remedy| {
        let reason = format!("{}, and {reason}", refusal.reason);
        missing.push(MissingGuarantee { guarantee, reason, remedy: Some(remedy) });
    };
    let is_written = |path: &Path| profile.write.iter().any(|root| path.starts_with(root));
    if let Some(path) = profile.hide.iter().find(|path| is_written(path)) {
        let reason = format!("Landlock cannot hide {} in a writable directory", path.display());
        let remedy = format!("work in a directory without it, or {}", refusal.remedy);
        add_with(Guarantee::Secrets, &reason, remedy);
    } else if version == 0 {
        let reason = "this kernel has no Landlock, which could hide files";
        add_with(Guarantee::Secrets, reason, refusal.remedy.clone());
    }
    let mut add = |guarantee, reason: &str| add_with(guarantee, reason, refusal.remedy.clone());
    add(Guarantee::Metadata, "Landlock does not control modes and times");
    if version < TRUNCATE_VERSION {
        add(Guarantee::Files, "this kernel has no Landlock that controls truncation (since 6.2)");
    }
    if version == 0 {
        add(Guarantee::Home, "this kernel has no Landlock");
    }
    match profile.net {
        NetAccess::None if filter.is_none() => {
            add(Guarantee::Net, "there is no filter for this processor");
        }
        NetAccess::Hosts(_) => add(Guarantee::Net, "only namespaces can limit the hosts"),
        NetAccess::None | NetAccess::All => {}
    }
    if version < SCOPE_VERSION {
        add(Guarantee::Processes, "this kernel has no Landlock that controls signals (since 6.12)");
        add(Guarantee::Sockets, "this kernel has no Landlock that controls sockets (since 6.12)");
    } else if let Some(socket) = reachable_sockets(profile).first() {
        add(Guarantee::Sockets, &format!("Landlock cannot close `{}`", socket.display()));
    }
    let ruleset = match version {
        0 => None,
        _ => Some(create_rules(plan).map_err(|error| SandboxError::Failed(error.to_string()))?),
    };
    // Landlock cannot protect a part of a writable directory.
    let is_exposed = version == 0 || profile.keep.iter().any(|path| is_written(path));
    let watched = if is_exposed { &[Guarantee::Journal][..] } else { &[] };
    Ok(LandlockSandbox { ruleset, filter: filter.unwrap_or_default(), missing, watched })
}

/// Sockets of other processes that this user could connect to.
fn reachable_sockets(profile: &SandboxProfile) -> Vec<PathBuf> {
    let lookups = lookup_sockets(&profile.net);
    let sockets = bound_sockets().into_iter().filter(|path| {
        !profile.sockets.contains(path)
            && !lookups.iter().any(|lookup| path.starts_with(lookup))
            && rustix::fs::access(path, Access::WRITE_OK).is_ok()
    });
    sockets.collect()
}

fn create_rules(plan: &NamespacePlan) -> io::Result<OwnedFd> {
    let profile = &plan.profile;
    let ruleset = create_ruleset(plan.landlock, access::all(plan.landlock))?;
    let rules = RuleSet { ruleset: &ruleset, version: plan.landlock };
    let temporary = plan.scratch.join("tmp");
    fs::create_dir_all(&temporary)?;
    let home = plan.home.as_ref().filter(|_| profile.home == HomeAccess::Write);
    for path in profile.write.iter().chain(home).chain([&temporary]) {
        rules.allow(path, access::all(plan.landlock))?;
    }
    // What the user types into another terminal could be read.
    let has_terminals = has_open_terminals();
    let terminals = TERMINAL_PLACES.into_iter().filter(|_| !has_terminals);
    let places = COMMON_DEVICES.into_iter().chain([SHARED_MEMORY]).chain(terminals);
    for path in places.map(Path::new) {
        // A machine does not need to have all of them.
        let _ = path.canonicalize().and_then(|path| rules.allow(&path, access::all(plan.landlock)));
    }
    let hidden_home = plan.home.as_ref().filter(|_| profile.home == HomeAccess::Hidden);
    let roots: Vec<PathBuf> = match &profile.read {
        ReadAccess::All => vec![PathBuf::from("/")],
        ReadAccess::Only(paths) => {
            let system = SYSTEM_DIRECTORIES.map(PathBuf::from);
            system.iter().filter_map(|path| path.canonicalize().ok()).chain(paths.clone()).collect()
        }
    };
    // A sandbox around this one has closed the others, and does not let this one list `/`.
    let devices = if is_closed_by_landlock(Path::new("/")) {
        Vec::new()
    } else if geteuid().is_root() {
        let directory = Path::new(DEVICE_DIRECTORY);
        rules.allow(directory, access::READ_DIR)?;
        vec![directory.to_owned()]
    } else {
        let terminals = TERMINAL_PLACES.into_iter().filter(|_| has_terminals).map(PathBuf::from);
        reachable_disks().into_iter().chain(terminals).collect()
    };
    // What is listed or has to be visible can be in a home directory that is hidden.
    for path in roots.iter().chain(&plan.visible) {
        let is_visible = plan.visible.contains(path);
        let home = hidden_home.filter(|home| home.starts_with(path));
        let hide = profile.hide.iter().chain(&devices).filter(|hidden| {
            let is_inside = path != *hidden && path.starts_with(hidden);
            !(is_visible && is_inside)
        });
        let hidden = hide.chain(home).filter(|hidden| !is_closed_by_landlock(hidden));
        let hidden: Vec<PathBuf> = hidden.cloned().collect();
        rules.allow_reading(path, &hidden)?;
    }
    Ok(ruleset)
}

/// Whether a sandbox around this one hides the path already. It also keeps this one from listing the directories above it.
fn is_closed_by_landlock(path: &Path) -> bool {
    let is_denied =
        fs::File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    // Landlock does not cover `access`.
    is_denied && rustix::fs::access(path, Access::READ_OK).is_ok()
}

/// Whether this user has a terminal, which a tool would reach together with its own.
fn has_open_terminals() -> bool {
    let entries = fs::read_dir("/dev/pts").into_iter().flatten().flatten();
    let mut terminals = entries.filter(|entry| entry.file_name() != "ptmx");
    terminals.any(|entry| {
        let access = [Access::READ_OK, Access::WRITE_OK];
        access.into_iter().any(|access| rustix::fs::access(entry.path(), access).is_ok())
    })
}

struct RuleSet<'a> {
    ruleset: &'a OwnedFd,
    version: u32,
}

impl RuleSet<'_> {
    fn allow(&self, path: &Path, allowed: u64) -> io::Result<()> {
        let allowed = allowed & access::all(self.version);
        let allowed = if path.is_dir() { allowed } else { allowed & access::FILE };
        allow_beneath(self.ruleset, open_place(path)?.as_fd(), allowed)
    }

    /// Allows reading below `path` except in `hidden`. A right holds for everything below a directory, so a directory that
    /// contains something hidden cannot be listed, and its entries get the right one by one.
    fn allow_reading(&self, path: &Path, hidden: &[PathBuf]) -> io::Result<()> {
        if hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return Ok(());
        }
        if !hidden.iter().any(|hidden| hidden.starts_with(path)) {
            return self.allow(path, access::READ);
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() || kind.is_file() {
                match self.allow_reading(&entry.path(), hidden) {
                    // It is gone, or this user cannot read it anyway.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                        ) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }
}
