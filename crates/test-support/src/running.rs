//! Processes that do not outlive their test.

use std::ops::{Deref, DerefMut};
use std::process::Child;

/// A child that a test which fails does not leave behind: it is killed when this is dropped.
pub struct Running(pub Child);

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Who has ended already needs neither.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
