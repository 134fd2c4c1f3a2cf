//! What a child becomes: its program, arguments and environment, ready for `execve`.

use super::Command;
use std::ffi::{CString, NulError};
use std::io;
use std::os::raw::c_char;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

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
    pub(super) fn new(path: &Path, command: &Command<'_>) -> Result<Self, NulError> {
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        let argv = Strings::new(command.argv.iter().map(|argument| argument.clone().into_bytes()))?;
        let variables = command.launch.env.iter().map(|(name, value)| {
            let mut variable = name.clone();
            variable.push("=");
            variable.push(value);
            variable.into_vec()
        });
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

/// C strings and an array of pointers to them that ends with null.
struct Strings {
    pointers: Vec<*const c_char>,
    /// What `pointers` point to.
    _owned: Vec<CString>,
}

// SAFETY: the pointers lead to memory on the heap that the struct owns and that nothing changes.
unsafe impl Send for Strings {}
// SAFETY: as above.
unsafe impl Sync for Strings {}

impl Strings {
    fn new(strings: impl Iterator<Item = Vec<u8>>) -> Result<Self, NulError> {
        let owned = strings.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers =
            owned.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self { pointers, _owned: owned })
    }
}
