//! Starts the process of a command as `vfork` does: the child shares the engine's memory, and the engine waits until the
//! child has called `execve`.
//!
//! `std::process::Command` cannot do this: for a child that is to be killed with its parent (C-13.5) it calls `fork`,
//! which copies the engine's page tables. At 8 MB that adds 0.38 ms to a tool of 0.5 ms, a third of an iteration, and it
//! grows with the engine: see `cargo bench --bench spawn` and `--bench overhead`.

use super::call_limits::ChildLimits;
use super::exec_image::ExecImage;
use super::run_mark::CallMark;
use super::sandbox_entry::{SandboxEntry, SpawnError};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The engine's ends of the child's pipes, which do not block.
pub(super) struct ChildPipes {
    /// `None` when the child reads /dev/null.
    pub(super) stdin: Option<PipeWriter>,
    pub(super) stdout: PipeReader,
    pub(super) stderr: PipeReader,
}

/// Everything for a child but the process.
pub(super) struct PreparedChild {
    plan: ChildPlan,
    pipes: ChildPipes,
}

/// The state that the child needs before `execve`.
struct ChildPlan {
    image: ExecImage,
    directory: CString,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// The resource limit that marks the child.
    mark: Option<CallMark>,
    limits: ChildLimits,
    /// `None` for a child without a sandbox, which takes no step of one.
    sandbox: Option<SandboxEntry>,
    /// A sandbox that the child does not enter, and that gets its descriptors.
    handed_over: Option<SandboxEntry>,
    /// What it gets when this process ends; `None` if it lives on then.
    death_signal: Option<Signal>,
}

impl PreparedChild {
    /// A child that runs `image` in `directory` and leads its own session, without a terminal. Its stdin is a pipe if it
    /// `has_input`, otherwise /dev/null; it inherits no other descriptor.
    pub(super) fn new(
        image: ExecImage,
        directory: &Path,
        has_input: bool,
        mark: Option<CallMark>,
        limits: ChildLimits,
        sandbox: Option<SandboxEntry>,
    ) -> io::Result<Self> {
        let directory = CString::new(directory.as_os_str().as_encoded_bytes())?;
        let (stdin, stdin_writer) = if has_input {
            let (reader, writer) = io::pipe()?;
            ioctl_fionbio(&writer, true)?;
            (reader.into(), Some(writer))
        } else {
            (File::open("/dev/null")?.into(), None)
        };
        let (stdout_reader, stdout) = io::pipe()?;
        let (stderr_reader, stderr) = io::pipe()?;
        ioctl_fionbio(&stdout_reader, true)?;
        ioctl_fionbio(&stderr_reader, true)?;
        Ok(Self {
            plan: ChildPlan {
                image,
                directory,
                stdin,
                stdout: stdout.into(),
                stderr: stderr.into(),
                mark,
                limits,
                sandbox,
                handed_over: None,
                death_signal: Some(Signal::KILL),
            },
            pipes: ChildPipes { stdin: stdin_writer, stdout: stdout_reader, stderr: stderr_reader },
        })
    }

    /// Leaves the descriptors of `sandbox` open in the program.
    pub(super) fn hand_over(&mut self, sandbox: Option<&SandboxEntry>) {
        self.plan.handed_over = sandbox.cloned();
    }

    /// Lets the child live on when this process has ended.
    pub(super) fn outlive_parent(&mut self) {
        self.plan.death_signal = None;
    }

    /// Lets the child end what it has started when this process ends: it gets SIGTERM then.
    pub(super) fn end_its_children(&mut self) {
        self.plan.death_signal = Some(Signal::TERM);
    }

    /// Starts the process. Its id is also the id of its session and its process group.
    ///
    /// # Errors
    /// The system's error, also when the child could not enter its sandbox or the directory, or `execve` failed.
    pub(super) fn spawn(self) -> Result<(Pid, ChildPipes), SpawnError> {
        Ok((system::spawn(self.plan)?, self.pipes))
    }
}

/// Starts a helper in the root directory, with these standard streams.
pub(super) fn spawn_helper(
    image: ExecImage,
    [stdin, stdout, stderr]: [OwnedFd; 3],
    outlives_parent: bool,
) -> io::Result<Pid> {
    let plan = ChildPlan {
        image,
        directory: c"/".to_owned(),
        stdin,
        stdout,
        stderr,
        mark: None,
        limits: ChildLimits::default(),
        sandbox: None,
        handed_over: None,
        death_signal: (!outlives_parent).then_some(Signal::KILL),
    };
    system::spawn(plan).map_err(|error| error.error)
}

/// Starts a child in `directory` with the standard streams of this process.
pub(super) fn spawn_with_own_streams(
    image: ExecImage,
    directory: &Path,
    sandbox: Option<SandboxEntry>,
) -> Result<Pid, SpawnError> {
    let plan = ChildPlan {
        image,
        directory: CString::new(directory.as_os_str().as_encoded_bytes())
            .map_err(io::Error::from)?,
        stdin: io::stdin().as_fd().try_clone_to_owned()?,
        stdout: io::stdout().as_fd().try_clone_to_owned()?,
        stderr: io::stderr().as_fd().try_clone_to_owned()?,
        mark: None,
        limits: ChildLimits::default(),
        sandbox,
        handed_over: None,
        death_signal: Some(Signal::KILL),
    };
    system::spawn(plan)
}

#[cfg(target_os = "linux")]
mod system {
    use super::super::exec_image::{
        close_descriptors_on_exec, end_with_parent, reset_signal_actions,
    };
    use super::super::filter_thread::run_under_filter;
    use super::super::sandbox_entry::{EntryStep, SpawnError, StepError};
    use super::ChildPlan;
    use delta_base::signal::{
        HANDLED_SIGNALS, IGNORED_SIGNALS, is_signal_ignored, was_ignored_by_caller,
    };
    use rustix::io::{Errno, retry_on_intr};
    use rustix::process::{Pid, Signal, WaitOptions, chdir, getpid, kill_process, setsid, waitpid};
    use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
    use std::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
    use std::{io, ptr};

    /// The size of the child's stack, enough for a few system calls.
    const STACK_BYTES: usize = 16 * 1024;

    /// The state that the engine and the child share. The child writes only `error` and `step`.
    struct SharedState {
        plan: ChildPlan,
        engine: Pid,
        /// The signal mask of the engine, which the program inherits.
        mask: libc::sigset_t,
        /// The error before or in `execve`; 0 for none.
        error: AtomicI32,
        /// The step of the sandbox with this error; 0 for any other.
        step: AtomicU8,
    }

    /// Why a child cannot become its program.
    struct ChildError {
        errno: Errno,
        step: u8,
    }

    impl From<Errno> for ChildError {
        fn from(errno: Errno) -> Self {
            Self { errno, step: 0 }
        }
    }

    impl From<StepError> for ChildError {
        fn from(error: StepError) -> Self {
            Self { errno: error.errno, step: error.step as u8 }
        }
    }

    pub(super) fn spawn(plan: ChildPlan) -> Result<Pid, SpawnError> {
        // A signal would run the engine's handler in the child, on the engine's memory.
        let mask = set_signal_mask(None);
        let sandbox = plan.sandbox.clone();
        let filter = sandbox.as_ref().map_or(&[][..], |sandbox| &sandbox.steps().filter);
        let result = if filter.is_empty() {
            start_child(plan, mask)
        } else {
            run_under_filter(filter, move || start_child(plan, mask))
                .map_err(|error| SpawnError { error, step: Some(EntryStep::Seccomp) })
                .flatten()
        };
        set_signal_mask(Some(&mask));
        result
    }

    /// Starts the child, which has the signal mask `mask` when it is its program. All signals are blocked here.
    fn start_child(plan: ChildPlan, mask: libc::sigset_t) -> Result<Pid, SpawnError> {
        // The stack grows down, and must be aligned to 16 bytes.
        let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
        let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
        let shared = SharedState {
            plan,
            engine: getpid(),
            mask,
            error: AtomicI32::new(0),
            step: AtomicU8::new(0),
        };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let arg = ptr::from_ref(&shared).cast_mut().cast();
        // SAFETY: the kernel suspends this thread until the child has ended or called `execve`, so the stack and `shared`
        // outlive its use of them; `run_child` allocates nothing and does not unwind.
        let pid = unsafe { libc::clone(run_child, top.cast(), flags, arg) };
        let failure = io::Error::last_os_error();
        let pid = Pid::from_raw(pid.max(0)).ok_or(failure)?;
        match shared.error.load(Ordering::Relaxed) {
            0 => Ok(pid),
            error => {
                let _ = retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
                let error = io::Error::from_raw_os_error(error);
                let step = EntryStep::from_number(shared.step.load(Ordering::Relaxed));
                Err(SpawnError { error, step })
            }
        }
    }

    /// The child; it exits with the returned code.
    extern "C" fn run_child(shared: *mut c_void) -> c_int {
        // SAFETY: `spawn` passed this pointer to `clone`, and its target outlives the child's use of it.
        let shared = unsafe { &*shared.cast::<SharedState>() };
        let error = match shared.prepare() {
            Ok(()) => shared.plan.image.exec().raw_os_error().unwrap_or(libc::EINVAL),
            Err(error) => {
                shared.step.store(error.step, Ordering::Relaxed);
                error.errno.raw_os_error()
            }
        };
        shared.error.store(error, Ordering::Relaxed);
        127
    }

    impl SharedState {
        /// The child's steps between `clone` and `execve`: system calls without allocation.
        fn prepare(&self) -> Result<(), ChildError> {
            // Without a controlling terminal, /dev/tty cannot be opened.
            setsid()?;
            // Discards a stop signal that the terminal sent to the engine's group.
            kill_process(getpid(), Signal::CONT)?;
            dup2_stdin(&self.plan.stdin)?;
            dup2_stdout(&self.plan.stdout)?;
            dup2_stderr(&self.plan.stderr)?;
            // The caller of the engine may have left descriptors open.
            close_descriptors_on_exec();
            if let Some(sandbox) = &self.plan.handed_over {
                sandbox.keep_descriptors();
            }
            if let Some(mark) = self.plan.mark {
                mark.apply();
            }
            self.plan.limits.apply()?;
            if let Some(sandbox) = &self.plan.sandbox {
                // Before the next steps: it loses the directory, and the signal of a parent's death.
                sandbox.join()?;
            }
            chdir(self.plan.directory.as_c_str())?;
            if let Some(signal) = self.plan.death_signal {
                end_with_parent(self.engine, signal)?;
            }
            // `execve` resets handlers, but the engine's must not run in the child before. What the caller of the engine
            // ignores stays ignored.
            reset_signal_actions(
                HANDLED_SIGNALS.into_iter().filter(|signal| !is_signal_ignored(*signal)),
            );
            reset_signal_actions(
                IGNORED_SIGNALS.into_iter().filter(|signal| !was_ignored_by_caller(*signal)),
            );
            if let Some(sandbox) = &self.plan.sandbox {
                sandbox.restrict()?;
            }
            set_signal_mask(Some(&self.mask));
            Ok(())
        }
    }

    /// Blocks the signals in `mask` in this thread, or all signals; returns the previous mask.
    fn set_signal_mask(mask: Option<&libc::sigset_t>) -> libc::sigset_t {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises `all`; pthread_sigmask, which cannot fail with these arguments, `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            let mask = mask.map_or(all.as_ptr(), ptr::from_ref);
            libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr());
            before.assume_init()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::super::exec_image::close_descriptors_on_exec;
    use super::super::sandbox_entry::SpawnError;
    use super::ChildPlan;
    use rustix::process::Pid;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    pub(super) fn spawn(plan: ChildPlan) -> Result<Pid, SpawnError> {
        let ChildPlan { image, directory, stdin, stdout, stderr, .. } = plan;
        // `pre_exec` calls `execve` itself; this name is never looked up.
        let mut command = Command::new("image");
        command
            .current_dir(OsStr::from_bytes(directory.to_bytes()))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr);
        // SAFETY: between fork and exec the closure makes only system calls and does not allocate.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                close_descriptors_on_exec();
                Err(image.exec())
            })
        };
        Ok(Pid::from_child(&command.spawn()?))
    }
}
