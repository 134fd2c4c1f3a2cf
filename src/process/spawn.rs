//! Starts the process of a command without copying the engine's memory.
//!
//! On Linux the child is made as `posix_spawn` makes it: it borrows the engine's memory until it is another program, so
//! that starting it costs the same however much the engine holds. `posix_spawn` itself cannot be used, because it cannot
//! ask the kernel to kill the child when the engine dies (C-13.5).

use super::image::Image;
use rustix::io::ioctl_fionbio;
use rustix::process::Pid;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

/// Our ends of the pipes of a child; nothing that is done with them blocks.
pub(super) struct Pipes {
    /// None where the child has /dev/null.
    pub(super) stdin: Option<PipeWriter>,
    pub(super) stdout: PipeReader,
    pub(super) stderr: PipeReader,
}

/// The standard streams of a child: its ends.
struct Streams {
    stdin: Input,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

enum Input {
    Pipe(PipeReader),
    /// /dev/null.
    Nothing(BorrowedFd<'static>),
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pipe(pipe) => pipe.as_fd(),
            Self::Nothing(null) => *null,
        }
    }
}

impl Input {
    /// /dev/null, which is opened for the first child that needs it.
    fn nothing() -> io::Result<Self> {
        static NULL: OnceLock<File> = OnceLock::new();
        let null = match NULL.get() {
            Some(null) => null,
            None => {
                let null = File::open("/dev/null")?;
                NULL.get_or_init(|| null)
            }
        };
        Ok(Self::Nothing(null.as_fd()))
    }
}

/// A child that has everything it needs and only has to be started.
pub(super) struct Ready {
    image: Image,
    directory: CString,
    streams: Streams,
    pipes: Pipes,
}

impl Ready {
    /// `image` in `directory`, as the leader of a process group of its own; with /dev/null as its input, unless it
    /// `is_fed`.
    pub(super) fn new(image: Image, directory: &Path, is_fed: bool) -> io::Result<Self> {
        let (stdin, ours) = match is_fed {
            true => io::pipe().map(|(theirs, ours)| (Input::Pipe(theirs), Some(ours)))?,
            false => (Input::nothing()?, None),
        };
        let (stdout, out) = io::pipe()?;
        let (stderr, err) = io::pipe()?;
        ours.iter().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        [&stdout, &stderr].into_iter().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        let streams = Streams { stdin, stdout: out.into(), stderr: err.into() };
        let directory = CString::new(directory.as_os_str().as_encoded_bytes())?;
        Ok(Self { image, directory, streams, pipes: Pipes { stdin: ours, stdout, stderr } })
    }

    /// Starts it.
    ///
    /// # Errors
    /// Why there is no such process: the system's own error, also where entering the directory or the program itself
    /// failed.
    pub(super) fn start(self) -> io::Result<(Pid, Pipes)> {
        let pid = system::start(self.image, &self.directory, &self.streams)?;
        Ok((pid, self.pipes))
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::{Image, Streams};
    use crate::signal::HANDLED;
    use rustix::process::{Pid, WaitOptions, getpid, waitpid};
    use std::ffi::{CStr, c_int, c_void};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, AsRawFd, RawFd};
    use std::ptr;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// As much as a few system calls need; signals are handled on no stack of ours, since none is handled there.
    const STACK: usize = 16 * 1024;

    /// What the child needs, and where it says what failed.
    struct Plan<'a> {
        image: Image,
        directory: &'a CStr,
        streams: [RawFd; 3],
        engine: libc::pid_t,
        mask: libc::sigset_t,
        /// The error that kept the child from becoming another program; 0 for none.
        error: AtomicI32,
    }

    pub(super) fn start(image: Image, directory: &CStr, streams: &Streams) -> io::Result<Pid> {
        let Streams { stdin, stdout, stderr } = streams;
        let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].map(|fd| fd.as_raw_fd());
        let engine = getpid().as_raw_pid();
        let mut stack: Vec<MaybeUninit<u8>> = Vec::with_capacity(STACK);
        // The stack grows down, and calls want it aligned.
        let top = stack.as_mut_ptr().wrapping_add(STACK & !15).map_addr(|top| top & !15);
        let everything = all_signals();
        let mut mask = MaybeUninit::uninit();
        // A signal that came now would run the engine's handler in the child, on the engine's memory.
        // SAFETY: both sets are valid; the one before is written in full when the call succeeds.
        let mask = unsafe {
            check(libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const everything,
                mask.as_mut_ptr(),
            ))?;
            mask.assume_init()
        };
        let plan = Plan { image, directory, streams, engine, mask, error: AtomicI32::new(0) };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the kernel holds this thread until the child is another program or has ended, so that `plan` and
        // `stack` outlive its use of them; `become_program` makes only system calls, allocates nothing and does not
        // unwind.
        let pid = unsafe {
            libc::clone(become_program, top.cast(), flags, (&raw const plan).cast_mut().cast())
        };
        let failure = io::Error::last_os_error();
        // SAFETY: the set is the one that was valid before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const plan.mask, ptr::null_mut()) };
        let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or(failure)?;
        match plan.error.load(Ordering::Relaxed) {
            0 => Ok(pid),
            error => {
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }

    fn all_signals() -> libc::sigset_t {
        let mut all = MaybeUninit::uninit();
        // SAFETY: sigfillset writes the whole set and cannot fail on a valid pointer.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            all.assume_init()
        }
    }

    fn check(error: c_int) -> io::Result<()> {
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    /// The child. It shares the engine's memory, so it only makes system calls.
    extern "C" fn become_program(plan: *mut c_void) -> c_int {
        // SAFETY: the engine waits with `plan` until this function is over or execve has succeeded.
        let plan = unsafe { &*plan.cast::<Plan<'_>>() };
        let error = plan.execute();
        plan.error.store(error.raw_os_error().unwrap_or(libc::EINVAL), Ordering::Relaxed);
        // SAFETY: ends this process only, without running what the engine has registered for its own end.
        unsafe { libc::_exit(127) }
    }

    impl Plan<'_> {
        /// Makes the child what the command wants; gives what failed.
        fn execute(&self) -> io::Error {
            let made = |done: c_int| done != -1;
            // SAFETY: system calls with valid pointers that live in the plan.
            unsafe {
                forget_handlers();
                let ready = made(libc::setpgid(0, 0))
                    && (0..).zip(self.streams).all(|(to, from)| made(libc::dup2(from, to)))
                    && made(libc::chdir(self.directory.as_ptr()))
                    && made(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL));
                if !ready {
                    return io::Error::last_os_error();
                }
                if libc::getppid() != self.engine {
                    // The engine died before it could be watched; nobody sees this error, it only ends the child.
                    return io::Error::from_raw_os_error(libc::ESRCH);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut());
            }
            self.image.execute()
        }
    }

    /// Gives every signal that the engine handles its default again, as the kernel does a moment later, so that none of
    /// its handlers runs here; and SIGPIPE, which the Rust runtime ignores.
    ///
    /// # Safety
    /// For a child whose table of handlers is its own.
    unsafe fn forget_handlers() {
        let default = MaybeUninit::<libc::sigaction>::zeroed();
        for signal in HANDLED {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: `action` is valid for writing, and all zeroes is the default action.
            unsafe {
                let known = libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0;
                let handler = (*action.as_ptr()).sa_sigaction;
                if known && handler != libc::SIG_DFL && handler != libc::SIG_IGN {
                    libc::sigaction(signal, default.as_ptr(), ptr::null_mut());
                }
            }
        }
        // SAFETY: as above.
        unsafe { libc::sigaction(libc::SIGPIPE, default.as_ptr(), ptr::null_mut()) };
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Image, Streams};
    use rustix::process::Pid;
    use std::ffi::{CStr, OsStr};
    use std::io;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    pub(super) fn start(image: Image, directory: &CStr, streams: &Streams) -> io::Result<Pid> {
        // What is started is the image; the name is never looked at.
        let mut command = Command::new("image");
        command
            .current_dir(OsStr::from_bytes(directory.to_bytes()))
            .process_group(0)
            .stdin(streams.stdin.as_fd().try_clone_to_owned()?)
            .stdout(streams.stdout.try_clone()?)
            .stderr(streams.stderr.try_clone()?);
        // SAFETY: between fork and exec the closure makes only a system call and does not allocate.
        unsafe { command.pre_exec(move || Err(image.execute())) };
        Ok(Pid::from_child(&command.spawn()?))
    }
}
