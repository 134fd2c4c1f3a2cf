//! What a child becomes: its program, arguments and environment, ready for `execve`.

use super::Env;
use super::env::Variables;
use super::strings::{HoldsNul, Strings};
use std::ffi::CString;
use std::io;
use std::path::Path;

/// What `execve` takes, made beforehand because the child must not allocate memory.
///
/// We call it ourselves because what the standard library calls (`execvp`) has the C library run a file that is no
/// program with /bin/sh.
pub(super) struct Image {
    path: CString,
    argv: Strings,
    env: Variables,
}

impl Image {
    /// Fails when something holds a NUL byte.
    pub(super) fn new(path: &Path, argv: &[String], env: &Env) -> Result<Self, HoldsNul> {
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        let argv = Strings::new(argv.iter().map(|argument| [argument.as_bytes(), b"", b""]))?;
        Ok(Self { path, argv, env: env.variables()? })
    }

    /// Replaces this process; gives why not.
    pub(super) fn execute(&self) -> io::Error {
        // SAFETY: the path is a C string, and both arrays end with null and point to C strings; `self` owns them all.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// Has every descriptor but the standard ones closed by the next `execve`. For use between fork and exec.
pub(super) fn inherit_nothing() {
    #[cfg(target_os = "linux")]
    {
        let (first, last) = (3u32, u32::MAX);
        // SAFETY: the call takes three numbers and changes flags of descriptors only.
        let marked =
            unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
        if marked == 0 {
            return;
        }
    }
    // A kernel before 5.11, or another system: those that a shell or a server hands on have small numbers.
    for descriptor in 3..1024 {
        // SAFETY: as above; a descriptor that is not open makes it fail, which is fine.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Gives each signal its default action: those that our caller ignores (a background job of a script ignores SIGINT) are
/// not ignored at a terminal. For use between fork and exec.
pub(super) fn reset_signals() {
    for signal in 1..32 {
        // SAFETY: the default action is a valid one, and a signal that has no other makes it fail, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
