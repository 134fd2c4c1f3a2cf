//! Processes that do not outlive their test.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Has the command's process asked to end when the thread that starts it has ended, also by a signal that nobody sees
/// coming: a run then ends its tools too.
pub fn end_with_test(command: &mut Command) {
    // SAFETY: a plain system call, async-signal-safe.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

/// A child that a test which fails does not leave behind: it is killed when this is dropped.
pub struct Running(Child);

impl Running {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Self {
        end_with_test(command);
        Self(command.spawn().expect("the program starts"))
    }
}

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
