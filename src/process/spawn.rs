//! Starts the process of a command without copying the engine's memory.
//!
//! On Linux the child borrows the engine's memory until it is another program, so that starting it costs the same however
//! much the engine holds. `posix_spawn`, which does that too, cannot be used: it cannot ask the kernel to kill the child
//! when the engine dies (C-13.5), and it holds the engine until the program has begun. Here the child is there, and waits,
//! while the engine still waits for the disk.

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

/// A child that stands ready: the process is there where the system can do that, and becomes the program when it is let
/// go. Dropped before, it is killed.
pub(super) struct Ready {
    child: system::Child,
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
        let child = system::Child::new(image, directory, streams)?;
        Ok(Self { child, pipes: Pipes { stdin: ours, stdout, stderr } })
    }

    /// Lets it go.
    ///
    /// # Errors
    /// Why there is no such process. What fails in the child itself, [`Started::failure`] tells when it has ended.
    pub(super) fn start(self) -> io::Result<(Started, Pipes)> {
        let Self { child, pipes } = self;
        Ok((Started::of(child)?, pipes))
    }
}

/// A child that was let go.
pub(super) struct Started {
    /// Its number, which is also that of its process group.
    pub(super) pid: Pid,
    child: system::Child,
}

impl Started {
    fn of(mut child: system::Child) -> io::Result<Self> {
        Ok(Self { pid: child.start()?, child })
    }

    /// A descriptor that becomes readable when it ends; none where the system has no such thing.
    pub(super) fn end(&mut self) -> Option<OwnedFd> {
        self.child.end()
    }

    /// For when it has ended and was waited for. Gives why it never became the program: the system's own error, also where
    /// entering the directory failed.
    pub(super) fn failure(&mut self) -> Option<io::Error> {
        self.child.ended()
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::super::{LINGER, ended};
    use super::{Image, Streams};
    use crate::signal::{HANDLED, timespec};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::{Errno, retry_on_intr};
    use rustix::process::{
        Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal, setpgid,
    };
    use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
    use rustix::thread::futex;
    use std::cell::UnsafeCell;
    use std::ffi::{CString, c_int, c_void};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
    use std::ptr;
    use std::rc::Rc;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

    /// As much as a few system calls need; signals are handled on no stack of ours, since none is handled there.
    const STACK: usize = 16 * 1024;

    /// What the child is to do: wait, or become the program.
    const WAIT: u32 = 0;
    const GO: u32 = 1;

    /// A child that borrows the engine's memory until it is another program.
    pub(super) struct Child {
        plan: Rc<Plan>,
        pid: Option<Pid>,
        /// Becomes readable when it ends; none before Linux 5.2 for a child that was made to wait.
        end: Option<OwnedFd>,
        /// What the child has of its own once it is there.
        streams: Option<Streams>,
        has_ended: bool,
    }

    /// What both know. The child reads it, and writes `error`.
    struct Plan {
        image: Image,
        directory: CString,
        streams: [RawFd; 3],
        engine: Pid,
        mask: libc::sigset_t,
        word: AtomicU32,
        /// The error that kept the child from becoming another program; 0 for none.
        error: AtomicI32,
        stack: Box<UnsafeCell<[MaybeUninit<u8>; STACK]>>,
    }

    impl Child {
        pub(super) fn new(image: Image, directory: CString, streams: Streams) -> io::Result<Self> {
            let Streams { stdin, stdout, stderr } = &streams;
            let numbers = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].map(|fd| fd.as_raw_fd());
            let plan = Rc::new(Plan {
                image,
                directory,
                streams: numbers,
                engine: getpid(),
                mask: blocked()?,
                word: AtomicU32::new(WAIT),
                error: AtomicI32::new(0),
                stack: Box::new(UnsafeCell::new([MaybeUninit::uninit(); STACK])),
            });
            let streams = Some(streams);
            let mut child = Self { plan, pid: None, end: None, streams, has_ended: false };
            if can_wait() {
                // Without a descriptor to spare there is another way to see its end.
                child.make(libc::CLONE_PIDFD).or_else(|_| child.make(0))?;
            }
            Ok(child)
        }

        /// Makes the process.
        fn make(&mut self, flags: c_int) -> io::Result<Pid> {
            let everything = all_signals();
            // A signal that came now would run the engine's handler in the child, on the engine's memory.
            // SAFETY: the set is valid.
            check(unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const everything, ptr::null_mut())
            })?;
            let plan = Rc::as_ptr(&self.plan);
            // The stack grows down, and calls want it aligned.
            let top =
                self.plan.stack.get().cast::<u8>().wrapping_add(STACK).map_addr(|top| top & !15);
            let flags = flags | libc::CLONE_VM | libc::SIGCHLD;
            let (arg, mut end) = (plan.cast_mut().cast(), -1);
            // SAFETY: the plan, and the stack in it, live until the child was waited for, or for ever; `become_program`
            // makes only system calls, allocates nothing and does not unwind. The kernel writes to `end` when it is asked
            // for a descriptor.
            let pid = unsafe { libc::clone(become_program, top.cast(), flags, arg, &raw mut end) };
            let failure = io::Error::last_os_error();
            // SAFETY: the set is the one that was valid before.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.plan.mask, ptr::null_mut())
            };
            if pid < 0 {
                return Err(failure);
            }
            self.pid = Pid::from_raw(pid);
            // SAFETY: the kernel made it for this process, and nobody else knows of it.
            self.end = (end >= 0).then(|| unsafe { OwnedFd::from_raw_fd(end) });
            self.streams = None;
            // The child does it too, but whoever signals its group next must find it, however late the child comes to it.
            let _ = setpgid(self.pid, self.pid);
            self.pid.ok_or(failure)
        }

        pub(super) fn start(&mut self) -> io::Result<Pid> {
            self.plan.word.store(GO, Ordering::Release);
            match self.pid {
                Some(pid) => {
                    let _ = futex::wake(&self.plan.word, futex::Flags::PRIVATE, 1);
                    Ok(pid)
                }
                // The kernel holds this thread until the child is another program or has ended.
                None => self.make(libc::CLONE_VFORK),
            }
        }

        pub(super) fn end(&mut self) -> Option<OwnedFd> {
            let open = || pidfd_open(self.pid?, PidfdFlags::empty()).ok();
            self.end.take().or_else(open)
        }

        pub(super) fn ended(&mut self) -> Option<io::Error> {
            self.has_ended = true;
            match self.plan.error.load(Ordering::Relaxed) {
                0 => None,
                error => Some(io::Error::from_raw_os_error(error)),
            }
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            let Some(pid) = self.pid.filter(|_| !self.has_ended) else { return };
            if self.plan.word.load(Ordering::Relaxed) == WAIT {
                // Killed, not told to leave: it may be entering a directory on a dead disk.
                // By its number only where there is no other way: whoever ignores SIGCHLD has children that nobody waits for,
                // and their numbers are soon those of others.
                if let Some(end) = self.end() {
                    let _ = pidfd_send_signal(&end, Signal::KILL);
                    let mut end = [PollFd::new(&end, PollFlags::IN)];
                    let _ = retry_on_intr(|| poll(&mut end, Some(&timespec(LINGER))));
                } else {
                    let _ = kill_process(pid, Signal::KILL);
                }
                if ended(pid).is_some() {
                    return;
                }
            }
            // It is in a system call that may still read the plan: that stays.
            std::mem::forget(Rc::clone(&self.plan));
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

    /// The signals that are blocked in this thread.
    fn blocked() -> io::Result<libc::sigset_t> {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: the set is written in full when the call succeeds.
        unsafe {
            check(libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), mask.as_mut_ptr()))?;
            Ok(mask.assume_init())
        }
    }

    /// Whether a child can share the memory of an engine that goes on meanwhile. valgrind ends a program that tries; it,
    /// and emulators that cannot either, do not know this system call.
    fn can_wait() -> bool {
        static CAN_WAIT: OnceLock<bool> = OnceLock::new();
        *CAN_WAIT.get_or_init(|| {
            // SAFETY: nothing is registered: the arguments are not valid.
            let known = unsafe { libc::syscall(libc::SYS_rseq, ptr::null::<c_void>(), 0, -1, 0) };
            known == -1 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
        })
    }

    /// The child. It shares the engine's memory, so it only makes system calls; and it shares the C library's `errno`, so
    /// that those before it is let go are rustix's, which do not use it. From then to the `execve` the engine does nothing
    /// in which the number of an error matters.
    extern "C" fn become_program(plan: *mut c_void) -> c_int {
        // SAFETY: the plan lives for as long as this process may read it.
        let plan = unsafe { &*plan.cast::<Plan>() };
        let error = match plan.prepare() {
            Ok(()) => plan.execute(),
            Err(errno) => errno.raw_os_error(),
        };
        plan.error.store(error, Ordering::Relaxed);
        // SAFETY: ends this process only, without running what the engine has registered for its own end.
        unsafe { libc::_exit(127) }
    }

    impl Plan {
        /// Makes the child what the command wants, and waits until it may go on.
        fn prepare(&self) -> Result<(), Errno> {
            use rustix::process::{chdir, getppid, set_parent_process_death_signal};
            // SAFETY: this process has a table of handlers of its own, and copies of the engine's descriptors.
            let [stdin, stdout, stderr] = unsafe {
                forget_handlers();
                self.streams.map(|number| BorrowedFd::borrow_raw(number))
            };
            setpgid(None, None)?;
            // Takes back a stop from the terminal that was meant for the engine's group and came before.
            kill_process(getpid(), Signal::CONT)?;
            dup2_stdin(stdin)?;
            dup2_stdout(stdout)?;
            dup2_stderr(stderr)?;
            chdir(self.directory.as_c_str())?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(self.engine) {
                // The engine died before it could be watched; nobody sees this error, it only ends the child.
                return Err(Errno::SRCH);
            }
            while self.word.load(Ordering::Acquire) == WAIT {
                let _ = futex::wait(&self.word, futex::Flags::PRIVATE, WAIT, None);
            }
            Ok(())
        }

        /// Becomes the program; gives the number of the error for which it does not.
        fn execute(&self) -> i32 {
            // SAFETY: the set is the engine's own.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut())
            };
            self.image.execute().raw_os_error().unwrap_or(libc::EINVAL)
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
    use std::ffi::{CString, OsStr};
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// A child that is made when it is let go.
    pub(super) struct Child(Option<(Image, CString, Streams)>);

    impl Child {
        pub(super) fn new(image: Image, directory: CString, streams: Streams) -> io::Result<Self> {
            Ok(Self(Some((image, directory, streams))))
        }

        pub(super) fn start(&mut self) -> io::Result<Pid> {
            let Some((image, directory, streams)) = self.0.take() else {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            };
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

        pub(super) fn end(&mut self) -> Option<OwnedFd> {
            None
        }

        /// Whatever failed was told by `start`.
        pub(super) fn ended(&mut self) -> Option<io::Error> {
            None
        }
    }
}
