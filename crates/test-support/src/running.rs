//! Processes that do not outlive their test.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Makes the kernel send SIGTERM to the command's process when the thread that starts it ends, even if that thread is
/// killed. A run then ends its tools too.
pub fn end_with_test(command: &mut Command) {
    // SAFETY: one async-signal-safe system call.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

/// Sends a signal, such as `TERM`; returns whether the process exists. The `kill` of the shell sends it, because a minimal
/// machine has no program with that name.
pub fn send_signal(name: &str, pid: impl Display) -> bool {
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()]).stderr(Stdio::null());
    kill.status().expect("sh starts").success()
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
