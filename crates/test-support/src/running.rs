//! Processes that do not outlive their test.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Makes the kernel send SIGTERM to the command's process when the thread that starts it ends, even if that thread is
/// killed. A run then ends its tools too.
pub fn end_with_test(command: &mut Command) {
    // SAFETY: one async-signal-safe system call.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

/// A child that is killed on drop, so that it does not outlive a failed test.
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
        // Both fail for a child that has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
