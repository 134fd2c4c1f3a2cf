//! The command `delta __sandbox`: the process that makes the namespaces of a sandbox, of a staged run and of a staged call.
//!
//! The engine cannot do that itself: it hides its memory, so nothing may write the user map of a child that shares it.
//! The helper knows nothing but its plan: it has no environment, and no key. It ends when it has answered, unless it serves
//! a network.
#![cfg(target_os = "linux")]

use crate::helper::namespaces::{build_namespaces, probe_namespaces};
use crate::helper::stage_mounts::{build_stage, probe_stage};
use crate::kernel::landlock::{
    access, allow_beneath, create_ruleset, landlock_version, restrict_self,
};
use crate::kernel::mount_tree::open_place;
use crate::network::{HostPolicy, HostService, HostSockets, MachineNames};
use crate::plan::{HelperPlan, HelperReply, NamespacePlan, receive_plan, send_reply};
use crate::profile::{HostRule, NetAccess};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getpid, getppid, set_dumpable_behavior,
    set_parent_process_death_signal, waitpid,
};
use rustix::stdio::stdin;
use rustix::thread::set_no_new_privs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

pub(crate) mod canary;
pub(crate) mod home_copy;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod stage_mounts;
pub(crate) mod user_namespace;

/// Runs the helper; stdin is its socket to the engine.
pub fn run_helper() -> ExitCode {
    let result = receive_plan(stdin()).and_then(|plan| match plan {
        HelperPlan::Probe => answer(probe_namespaces().map(|()| Vec::new())),
        HelperPlan::ProbeStage => answer(probe_stage().map(|()| Vec::new())),
        HelperPlan::Stage(workspace) => answer(build_stage(&workspace)),
        HelperPlan::Build(plan) => match &plan.profile.net {
            NetAccess::Hosts(rules) => build_with_hosts(&plan, rules),
            NetAccess::None | NetAccess::All => answer(build_namespaces(&plan, None)),
        },
    });
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn answer(result: Result<Vec<OwnedFd>, HelperReply>) -> io::Result<()> {
    match result {
        Ok(descriptors) => send_reply(stdin(), &HelperReply::Done, &descriptors),
        Err(reply) => send_reply(stdin(), &reply, &[]),
    }
}

/// A child makes the namespaces; this process stays outside, and serves their network until the engine is gone.
fn build_with_hosts(plan: &NamespacePlan, rules: &[HostRule]) -> io::Result<()> {
    let policy = HostPolicy::new(rules, MachineNames::read()?);
    let (outside, inside) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let helper = getpid();
    // SAFETY: this process has one thread, so its child may allocate.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(outside);
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(helper) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        return answer(build_namespaces(plan, Some((&policy, inside.as_fd()))));
    }
    drop(inside);
    let child = Pid::from_raw(child).ok_or_else(io::Error::last_os_error)?;
    let sockets = HostSockets::receive(outside.as_fd());
    waitpid(Some(child), WaitOptions::empty())?;
    let service = HostService::new(sockets?, policy, plan.proxies.clone())?;
    restrict_service()?;
    service.serve(stdin().try_clone_to_owned()?)
}

/// Where the C library reads what it needs to look up a name.
const READABLE: [&str; 9] =
    ["/etc", "/usr", "/lib", "/lib32", "/lib64", "/run", "/var", "/nix", "/gnu"];

/// The service reads what tools and hosts send, so it has no right that it does not need.
fn restrict_service() -> io::Result<()> {
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let version = landlock_version();
    if version == 0 {
        return Ok(());
    }
    let ruleset = create_ruleset(version, access::all(version))?;
    for path in READABLE {
        if let Ok(directory) = open_place(Path::new(path)) {
            allow_beneath(&ruleset, directory.as_fd(), access::READ_FILE | access::READ_DIR)?;
        }
    }
    restrict_self(&ruleset)
}
