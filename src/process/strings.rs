//! C strings as `execve` takes them.

use std::ffi::NulError;
use std::os::raw::c_char;

/// How many bytes the arguments of most commands have.
const ROOM: usize = 1024;

/// A string holds a NUL byte, which none can that a program is given.
#[derive(Debug, Clone, Copy)]
pub(super) struct HoldsNul;

impl From<NulError> for HoldsNul {
    fn from(_: NulError) -> Self {
        Self
    }
}

/// C strings, one behind the other, and an array of pointers to them that ends with null.
#[derive(Debug)]
pub(super) struct Strings {
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
    pub(super) fn new<'a>(strings: impl Iterator<Item = [&'a [u8]; 3]>) -> Result<Self, HoldsNul> {
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

    /// The pointers without the null behind them.
    pub(super) fn pointers(&self) -> &[*const c_char] {
        &self.pointers[..self.pointers.len() - 1]
    }

    /// The whole array.
    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}
