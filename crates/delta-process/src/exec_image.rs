//! The program, arguments and environment of a child, ready for `execve`.

use super::LaunchContext;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::ffi::{CString, OsStr, c_char, c_int};
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicPtr;

/// The arguments of `execve`, created before the fork because the child must not allocate memory.
///
/// The standard library calls `execvp` instead, with which the C library runs a file that is not a program with /bin/sh.
pub(super) struct ExecImage {
    path: CString,
    argv: CStringArray,
    env: CStringArray,
}

impl ExecImage {
    /// A program that starts in the directory and with the environment of `context`; `None` when an argument or a variable
    /// contains a NUL byte.
    pub(super) fn new(path: &Path, argv: &[String], context: &LaunchContext) -> Option<Self> {
        // Programs such as make and node take PWD for their directory, and the one of this process is another.
        let others = context.env.iter().filter(|(name, _)| *name != "PWD" && *name != "OLDPWD");
        let cwd = context.cwd.as_os_str();
        let pwd = context.cwd.is_absolute().then_some((OsStr::new("PWD"), cwd));
        Self::with_variables(path, argv, others.chain(pwd))
    }

    /// A program of delta without variables.
    pub(super) fn without_variables(path: &Path, argv: &[String]) -> Option<Self> {
        Self::with_variables(path, argv, iter::empty())
    }

    fn with_variables<'a>(
        path: &Path,
        argv: &[String],
        env: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
    ) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let argv = CStringArray::new(argv.iter().map(|argument| [argument.as_bytes(), b"", b""]))?;
        let env =
            CStringArray::new(env.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()]))?;
        Some(Self { path, argv, env })
    }

    /// Replaces this process; returns only on an error.
    pub(super) fn exec(&self) -> io::Error {
        // SAFETY: the path is a C string, and both arrays end with null and point to C strings; `self` owns them all.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// C strings, and an array of pointers to them that ends with null.
struct CStringArray {
    /// Atomic only because a closure for `pre_exec` cannot capture plain pointers; they never change.
    pointers: Vec<AtomicPtr<c_char>>,
    /// The strings that `pointers` point to.
    _bytes: Vec<u8>,
}

impl CStringArray {
    /// Each string is the concatenation of three pieces. `None` when one contains a NUL byte.
    fn new<'a>(strings: impl Iterator<Item = [&'a [u8]; 3]>) -> Option<Self> {
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        for pieces in strings {
            starts.push(bytes.len());
            for piece in pieces {
                bytes.extend_from_slice(piece);
            }
            bytes.push(0);
        }
        if memchr::memchr_iter(0, &bytes).count() != starts.len() {
            return None;
        }
        let base = bytes.as_mut_ptr();
        let mut pointers = Vec::with_capacity(starts.len() + 1);
        pointers.extend(starts.into_iter().map(|at| AtomicPtr::new(base.wrapping_add(at).cast())));
        pointers.push(AtomicPtr::default());
        Some(Self { pointers, _bytes: bytes })
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr().cast()
    }
}

/// Makes the next `execve` close every descriptor but the standard ones. For use between fork and exec.
pub(super) fn close_descriptors_on_exec() {
    // SAFETY: both calls take numbers and only change flags of descriptors; the second fails for one that is not open.
    unsafe {
        #[cfg(target_os = "linux")]
        if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0 {
            return;
        }
        // A kernel before 5.11, or another system: descriptors from a shell or a server have small numbers.
        for descriptor in 3..1024 {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Makes the kernel send `signal` to this process, which is just starting, when the thread that started it in the process
/// `parent` ends. For use between fork and exec.
#[cfg(target_os = "linux")]
pub(super) fn end_with_parent(parent: Pid, signal: Signal) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    if rustix::process::getppid() == Some(parent) {
        return Ok(());
    }
    // The parent ended before the first line. The error only ends this process, because no other can read it.
    Err(Errno::SRCH)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn end_with_parent(_parent: Pid, _signal: Signal) -> Result<(), Errno> {
    Ok(())
}

/// Restores the default action of `signals`. For use between fork and exec.
pub(super) fn reset_signal_actions(signals: impl IntoIterator<Item = c_int>) {
    for signal in signals {
        // SAFETY: the default action is always valid; the call fails for a signal whose action cannot be changed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
