//! Tries in a sandbox what must fail in it. The answers of the system about itself are not believed.
#![cfg(target_os = "linux")]

use crate::kernel::landlock;
use crate::kernel::mount_tree::open_place;
use crate::plan::{HelperReply, HelperResult, NamespacePlan};
use crate::profile::{HomeAccess, NetAccess};
use crate::sandbox_error::plain_error;
use rustix::fs::fstat;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, test_kill_process};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// What is outside of the sandbox, to be found from inside.
pub(crate) struct Canary {
    tcp: Option<TcpListener>,
    abstract_socket: Option<(UnixListener, UnixAddr)>,
    hidden: Vec<(PathBuf, (u64, u64))>,
}

impl Canary {
    /// Prepares what the canary tries to reach, while this process is outside.
    pub(crate) fn prepare(plan: &NamespacePlan) -> Self {
        let name = format!("delta-canary-{}", std::process::id());
        let address = UnixAddr::from_abstract_name(name).ok();
        let abstract_socket =
            address.and_then(|address| Some((UnixListener::bind_addr(&address).ok()?, address)));
        let hidden = plan.profile.hide.iter().filter_map(|path| {
            let status = fstat(open_place(path).ok()?).ok()?;
            Some((path.clone(), (status.st_dev, status.st_ino)))
        });
        Self {
            tcp: TcpListener::bind(("127.0.0.1", 0)).ok(),
            abstract_socket,
            hidden: hidden.collect(),
        }
    }

    /// Tries everything in a child without capabilities.
    pub(crate) fn check(&self, plan: &NamespacePlan) -> HelperResult<()> {
        let failed = |error: io::Error| HelperReply::failed("the canary", &error);
        let (mut reader, mut writer) = io::pipe().map_err(failed)?;
        // SAFETY: the helper has one thread, so its child may allocate.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(reader);
            let violations = match give_up_rights(plan) {
                Ok(()) => self.violations(plan),
                Err(error) => vec![format!("could not give up rights: {}", plain_error(&error))],
            };
            let text = match violations.first() {
                Some(violation) => violation.as_str(),
                None => "ok",
            };
            let _ = writer.write_all(text.as_bytes());
            // SAFETY: ends this process without running the handlers of its parent.
            unsafe { libc::_exit(0) };
        }
        drop(writer);
        if child < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        let mut answer = String::new();
        reader.read_to_string(&mut answer).map_err(failed)?;
        let _ =
            rustix::process::waitpid(Pid::from_raw(child), rustix::process::WaitOptions::empty());
        match answer.as_str() {
            "ok" => Ok(()),
            "" => Err(HelperReply::Failed { reason: "the canary died".to_owned() }),
            reason => Err(HelperReply::Canary { reason: reason.to_owned() }),
        }
    }

    /// What is possible although it must not be.
    fn violations(&self, plan: &NamespacePlan) -> Vec<String> {
        let mut violations = Vec::new();
        for directory in read_only_directories(plan) {
            let path = directory.join(format!(".delta-canary-{}", std::process::id()));
            if File::create_new(&path).is_ok() {
                let _ = fs::remove_file(&path);
                violations.push(format!("a file could be created in `{}`", directory.display()));
            }
        }
        let journal = plan.run_dir.iter().map(|run_dir| run_dir.join("journal.jsonl"));
        let journal = journal.filter(|journal| {
            plan.profile.keep.iter().any(|directory| journal.starts_with(directory))
        });
        let files = plan.profile.keep.iter();
        let files = files.filter(|path| !path.is_dir() && !path.is_symlink()).cloned();
        for path in files.chain(journal) {
            if OpenOptions::new().append(true).open(&path).is_ok() {
                violations.push(format!("`{}` could be opened for writing", path.display()));
            }
            if unmount(&path, UnmountFlags::DETACH).is_ok() {
                violations.push(format!("`{}` could be unmounted", path.display()));
            }
        }
        for (path, identity) in &self.hidden {
            let target = open_place(path).and_then(|target| Ok(fstat(target)?));
            if target.is_ok_and(|status| (status.st_dev, status.st_ino) == *identity) {
                violations.push(format!("`{}` could be opened", path.display()));
            }
        }
        self.add_reachable(plan, &mut violations);
        violations
    }

    fn add_reachable(&self, plan: &NamespacePlan, violations: &mut Vec<String>) {
        let has_scopes = plan.landlock >= landlock::SCOPE_VERSION;
        let has_network = plan.profile.net == NetAccess::All;
        let address = self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
        if let Some(address) = address.filter(|_| !has_network)
            && can_connect(address)
        {
            violations.push("a server outside could be connected to".to_owned());
        }
        if let Some((_, address)) = self.abstract_socket.as_ref()
            && (has_scopes || !has_network)
            && UnixStream::connect_addr(address).is_ok()
        {
            violations.push("an abstract socket outside could be connected to".to_owned());
        }
        let engine = Pid::from_raw(plan.engine);
        if has_scopes && engine.is_some_and(|engine| test_kill_process(engine).is_ok()) {
            violations.push("a process outside could be signalled".to_owned());
        }
    }
}

fn can_connect(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, std::time::Duration::from_secs(1)).is_ok()
}

/// The directories above what can be written, and others that cannot be.
fn read_only_directories(plan: &NamespacePlan) -> Vec<PathBuf> {
    let profile = &plan.profile;
    let outer = profile.write.iter().filter_map(|root| root.parent()).map(Path::to_owned);
    let home = plan.home.iter().filter(|_| profile.home == HomeAccess::Read).cloned();
    let mut directories: Vec<PathBuf> = outer
        .chain(home)
        .chain([PathBuf::from("/"), PathBuf::from("/usr")])
        .filter(|path| !profile.write.iter().any(|root| path.starts_with(root)))
        .filter(|path| !is_replaced(plan, path))
        .chain(profile.keep.iter().filter(|path| path.is_dir() && !path.is_symlink()).cloned())
        .collect();
    directories.sort_unstable();
    directories.dedup();
    directories
}

/// Whether the sandbox has another directory of this name, which can be written.
fn is_replaced(plan: &NamespacePlan, path: &Path) -> bool {
    let home = plan.home.iter().filter(|_| plan.profile.home != HomeAccess::Read);
    home.map(PathBuf::as_path)
        .chain(["/tmp", "/var/tmp", "/dev/shm"].map(Path::new))
        .any(|replaced| path.starts_with(replaced))
}

/// What a child does to itself when it enters the sandbox.
fn give_up_rights(plan: &NamespacePlan) -> io::Result<()> {
    let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
    set_capabilities_secure_bits(bits)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    if plan.landlock >= landlock::SCOPE_VERSION {
        let ruleset: OwnedFd = landlock::create_ruleset(plan.landlock, 0)?;
        landlock::restrict_self(&ruleset)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::ProxySettings;
    use crate::profile::env_filter::EnvAccess;
    use crate::profile::{ReadAccess, SandboxLimits, SandboxProfile};

    /// A machine on which every step succeeds and nothing is enforced.
    #[test]
    fn c_22_4_the_canary_finds_what_is_not_enforced() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let names = ["workspace", "workspace/hooks", "secret"];
        let [workspace, hooks, secret] = names.map(|name| {
            fs::create_dir(root.join(name)).unwrap();
            root.join(name)
        });
        let config = workspace.join("config");
        fs::write(&config, "").unwrap();
        let plan = NamespacePlan {
            profile: SandboxProfile {
                write: vec![workspace],
                keep: vec![config.clone(), hooks.clone()],
                read: ReadAccess::All,
                hide: vec![secret.clone()],
                home: HomeAccess::Read,
                net: NetAccess::None,
                env: EnvAccess::Safe,
                sockets: Vec::new(),
                limits: SandboxLimits::default(),
                runs: false,
            },
            proxies: ProxySettings::default(),
            run_dir: None,
            home: None,
            scratch: root.join("scratch"),
            visible: Vec::new(),
            engine: rustix::process::getpid().as_raw_pid(),
            stage: None,
            landlock: landlock::SCOPE_VERSION,
        };
        let violations = Canary::prepare(&plan).violations(&plan);
        for expected in [
            format!("a file could be created in `{}`", hooks.display()),
            format!("`{}` could be opened for writing", config.display()),
            format!("`{}` could be opened", secret.display()),
            "a server outside could be connected to".to_owned(),
            "an abstract socket outside could be connected to".to_owned(),
            "a process outside could be signalled".to_owned(),
        ] {
            assert!(violations.contains(&expected), "{expected}: {violations:?}");
        }
        assert_eq!(fs::read_dir(&hooks).unwrap().count(), 0, "nothing is left");
    }
}
