//! What a child becomes: its program, arguments and environment, ready for `execve`.

use super::Env;
use std::ffi::{CString, NulError};
use std::io;
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How many bytes an environment has, roughly.
const ROOM: usize = 4096;

/// A string holds a NUL byte, which none can that a program is given.
#[derive(Debug)]
pub(super) struct HoldsNul;

impl From<NulError> for HoldsNul {
    fn from(_: NulError) -> Self {
        Self
    }
}

/// What `execve` takes, made beforehand because the child must not allocate memory.
///
/// We call it ourselves because what the standard library calls (`execvp`) has the C library run a file that is no
/// program with /bin/sh.
pub(super) struct Image {
    path: CString,
    argv: Strings,
    env: Strings,
}

impl Image {
    /// Fails when something holds a NUL byte.
    pub(super) fn new(path: &Path, argv: &[String], env: &Env) -> Result<Self, HoldsNul> {
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        let argv = Strings::new(argv.iter().map(|argument| [argument.as_bytes(), b"", b""]))?;
        let variables = env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()]);
        Ok(Self { path, argv, env: Strings::new(variables)? })
    }

    /// Replaces this process; gives why not.
    pub(super) fn execute(&self) -> io::Error {
        // SAFETY: the path is a C string, and both arrays end with null and point to C strings; `self` owns them all.
        unsafe {
            libc::execve(
                self.path.as_ptr(),
                self.argv.pointers.as_ptr(),
                self.env.pointers.as_ptr(),
            )
        };
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

/// C strings, one behind the other, and an array of pointers to them that ends with null.
struct Strings {
    pointers: Vec<*const c_char>,
    /// What `pointers` point into.
    _owned: Vec<u8>,
}

// SAFETY: the pointers lead to memory on the heap that the struct owns and that nothing changes.
unsafe impl Send for Strings {}
// SAFETY: as above.
unsafe impl Sync for Strings {}

impl Strings {
    /// Each string is given in three pieces.
    fn new<'a>(strings: impl Iterator<Item = [&'a [u8]; 3]>) -> Result<Self, HoldsNul> {
        let (mut owned, mut starts) = (Vec::with_capacity(ROOM), Vec::new());
        for pieces in strings {
            starts.push(owned.len());
            pieces.iter().for_each(|piece| owned.extend_from_slice(piece));
            owned.push(0);
        }
        if memchr::memchr_iter(0, &owned).count() != starts.len() {
            return Err(HoldsNul);
        }
        let base: *const c_char = owned.as_ptr().cast();
        let pointers = starts.iter().map(|start| base.wrapping_add(*start));
        let pointers = pointers.chain([std::ptr::null()]).collect();
        Ok(Self { pointers, _owned: owned })
    }
}
