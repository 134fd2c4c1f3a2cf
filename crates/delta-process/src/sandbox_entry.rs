//! How a child enters a sandbox between `clone` and `execve`: it joins namespaces that exist, and gives up rights.
//!
//! The child shares the engine's memory, so everything is made before, and each step is one system call without allocation.
//! It has the filter of system calls from the thread that starts it (`filter_thread`).

use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::{fmt, io};

/// What a child does to enter a sandbox. Clones share it.
#[derive(Debug, Clone)]
pub struct SandboxEntry(Arc<EntrySteps>);

/// The parts of a [`SandboxEntry`]. The child takes the steps in this order, in its working directory after the first.
#[derive(Debug, Default)]
pub struct EntrySteps {
    /// Namespaces to join, the user namespace first.
    pub namespaces: Vec<OwnedFd>,
    /// Resource limits by their number (`RLIMIT_CORE`), soft and hard.
    pub limits: Vec<(u32, u64)>,
    /// A Landlock ruleset.
    pub ruleset: Option<OwnedFd>,
    /// A seccomp filter; empty for none. It holds for the other steps too.
    pub filter: Vec<FilterInstruction>,
}

/// An instruction of a seccomp filter: `struct sock_filter` of the kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterInstruction {
    /// The operation.
    pub code: u16,
    /// How many instructions to skip when a comparison is true.
    pub jump_true: u8,
    /// How many instructions to skip when a comparison is false.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

/// A step that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryStep {
    Namespaces = 1,
    Keyring,
    Limits,
    Capabilities,
    Privileges,
    Landlock,
    Seccomp,
}

impl EntryStep {
    const ALL: [Self; 7] = [
        Self::Namespaces,
        Self::Keyring,
        Self::Limits,
        Self::Capabilities,
        Self::Privileges,
        Self::Landlock,
        Self::Seccomp,
    ];

    /// The step with this number; `None` for a number of no step.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u8 == number)
    }

    /// The name of the system call, or of what it changes.
    fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "setns",
            Self::Keyring => "keyctl",
            Self::Capabilities => "securebits",
            Self::Limits => "setrlimit",
            Self::Privileges => "no_new_privs",
            Self::Landlock => "landlock_restrict_self",
            Self::Seccomp => "seccomp",
        }
    }
}

/// A step and its error.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepError {
    pub(super) step: EntryStep,
    pub(super) errno: Errno,
}

/// A child did not become its program.
#[derive(Debug)]
pub(super) struct SpawnError {
    /// The system's error.
    pub(super) error: io::Error,
    /// The step of the sandbox that failed; `None` for any other.
    pub(super) step: Option<EntryStep>,
}

impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        Self { error, step: None }
    }
}

/// The text for a step that failed.
impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.error.to_string();
        let error = error.split(" (os error").next().unwrap_or_default();
        let step = self.step.map_or("execve", EntryStep::name);
        write!(f, "the sandbox could not be entered ({step}: {error}); nothing was started")
    }
}

impl SandboxEntry {
    /// An entry of these steps.
    pub fn new(steps: EntrySteps) -> Self {
        Self(Arc::new(steps))
    }

    /// What a child does.
    pub fn steps(&self) -> &EntrySteps {
        &self.0
    }

    /// Whether both are clones of one entry.
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The numbers of its descriptors.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.0.namespaces.iter().chain(&self.0.ruleset).map(AsRawFd::as_raw_fd)
    }

    /// Lets the next `execve` keep its descriptors. For use between fork and exec.
    pub(super) fn keep_descriptors(&self) {
        for descriptor in self.descriptors() {
            // SAFETY: the call only changes a flag of a descriptor that is open.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) };
        }
    }
}

/// A copy of a descriptor that the parent has left open for this process. Children do not inherit the copy.
///
/// # Errors
/// No descriptor has this number.
#[cfg(target_os = "linux")]
pub fn copy_inherited_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// There are no sandboxes on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn copy_inherited_descriptor(_number: RawFd) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
pub(super) use system::join_new_keyring;

#[cfg(target_os = "linux")]
mod system {
    use super::{EntryStep, SandboxEntry, StepError};
    use rustix::io::Errno;
    use rustix::process::geteuid;
    use rustix::thread::{
        CapabilitiesSecureBits, capabilities_secure_bits, clear_ambient_capability_set,
        move_into_link_name_space, set_capabilities_secure_bits, set_no_new_privs,
    };
    use std::ffi::{c_int, c_long};
    use std::os::fd::{AsFd, AsRawFd};
    use std::ptr;

    const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;

    impl SandboxEntry {
        /// The steps that change what the child sees. Its working directory is the root directory afterwards.
        pub(in super::super) fn join(&self) -> Result<(), StepError> {
            let steps = &self.0;
            for namespace in &steps.namespaces {
                move_into_link_name_space(namespace.as_fd(), None)
                    .map_err(|errno| StepError { step: EntryStep::Namespaces, errno })?;
            }
            Ok(())
        }

        /// Lets the program have no capabilities, also as root.
        fn drop_capabilities() -> Result<(), Errno> {
            let bits = CapabilitiesSecureBits::NO_ROOT
                | CapabilitiesSecureBits::NO_ROOT_LOCKED
                | CapabilitiesSecureBits::NO_SETUID_FIXUP
                | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
                | CapabilitiesSecureBits::KEEP_CAPS_LOCKED;
            match set_capabilities_secure_bits(bits) {
                // Without namespaces, an ordinary user has none to lose but the ones that its caller passed on.
                Err(Errno::PERM) if !geteuid().is_root() => {}
                // A sandbox around this one has taken them, and the right to say that again.
                Err(Errno::PERM)
                    if capabilities_secure_bits().is_ok_and(|current| current.contains(bits)) => {}
                other => other?,
            }
            clear_ambient_capability_set()
        }

        /// The steps that only take rights away, right before `execve`.
        pub(in super::super) fn restrict(&self) -> Result<(), StepError> {
            let steps = &self.0;
            join_new_keyring().map_err(|errno| StepError { step: EntryStep::Keyring, errno })?;
            for (resource, limit) in &steps.limits {
                set_limit(*resource, *limit)
                    .map_err(|errno| StepError { step: EntryStep::Limits, errno })?;
            }
            Self::drop_capabilities()
                .map_err(|errno| StepError { step: EntryStep::Capabilities, errno })?;
            set_no_new_privs(true)
                .map_err(|errno| StepError { step: EntryStep::Privileges, errno })?;
            if let Some(ruleset) = &steps.ruleset {
                // SAFETY: the descriptor is open, and there are no flags.
                let result = unsafe {
                    libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0)
                };
                to_result(result)
                    .map_err(|errno| StepError { step: EntryStep::Landlock, errno })?;
            }
            Ok(())
        }
    }

    /// Gives this thread, and the children that it starts, a session keyring of its own in place of the one of the user.
    pub(in super::super) fn join_new_keyring() -> Result<(), Errno> {
        // SAFETY: a null name is an anonymous keyring.
        let keyring = unsafe {
            libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, ptr::null::<u8>(), 0, 0, 0)
        };
        match to_result(keyring) {
            // Without keyrings, or where a container or the filter of this thread forbids them, there is nothing to lose.
            Err(Errno::NOSYS | Errno::PERM | Errno::DQUOT) => Ok(()),
            other => other,
        }
    }

    /// Lowers a limit; a hard limit below it stays.
    fn set_limit(resource: u32, limit: u64) -> Result<(), Errno> {
        let mut current = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `current` is valid for both calls, and the null pointers ask for nothing.
        unsafe {
            to_result(libc::syscall(
                libc::SYS_prlimit64,
                0,
                resource,
                ptr::null::<libc::rlimit64>(),
                &raw mut current,
            ))?;
            current.rlim_max = limit.min(current.rlim_max);
            current.rlim_cur = current.rlim_max;
            to_result(libc::syscall(
                libc::SYS_prlimit64,
                0,
                resource,
                &raw const current,
                ptr::null_mut::<libc::rlimit64>(),
            ))
        }
    }

    /// The C library has put the error into `errno`, which is the engine's, but the engine does not read it here.
    fn to_result(result: c_long) -> Result<(), Errno> {
        if result >= 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_22_4_every_step_has_its_number_and_its_text() {
        for step in EntryStep::ALL {
            assert_eq!(EntryStep::from_number(step as u8), Some(step));
        }
        assert_eq!(EntryStep::from_number(0), None);
        let error = SpawnError {
            error: io::Error::from_raw_os_error(libc::EPERM),
            step: Some(EntryStep::Namespaces),
        };
        assert_eq!(
            error.to_string(),
            "the sandbox could not be entered (setns: Operation not permitted); nothing was started"
        );
    }
}
