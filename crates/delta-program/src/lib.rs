//! Code that every program of delta shares: standard streams, numbers in arguments, wrong arguments, completions, manual
//! pages and panics.

pub mod compact_help;
mod completion_install;
pub mod completions;
pub mod default_format;
pub mod environment_block;
pub mod man;
pub mod number_argument;
pub mod stdin_input;
pub mod stdio;
pub mod usage_error;
pub mod user_directory;

use delta_base::terminal::keyboard;
use rustix::process::{Resource, getrlimit};
use std::process::{self, ExitCode};

/// The exit code of a program that panicked.
pub const BUG_EXIT_CODE: i32 = 70;

/// Reports a panic in any thread on stderr and exits with [`BUG_EXIT_CODE`].
///
/// Rust's default code, 101, would be taken for the exit code of a run that waits for an answer.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        keyboard::restore_terminal();
        stdio::print_error_line(&format!("delta: this is a bug in delta: {panic}"));
        stdio::print_error_line("The journal is safe. Report what you did to reproduce this.");
        #[expect(clippy::exit, reason = "a panic in any thread ends the program")]
        process::exit(BUG_EXIT_CODE);
    }));
}

/// The stack that the programs need, in bytes.
const MIN_STACK_BYTES: u64 = 1 << 20;

/// Refuses to start with a stack that is too small: its overflow would end the process without a word.
pub fn refuse_small_stack() -> Option<ExitCode> {
    let bytes = getrlimit(Resource::Stack).current.filter(|bytes| *bytes < MIN_STACK_BYTES)?;
    let kib = bytes >> 10;
    stdio::print_error_line(&format!(
        "error: the stack is limited to {kib} KiB, and delta needs {} KiB\nhelp: ulimit -s 8192",
        MIN_STACK_BYTES >> 10
    ));
    Some(ExitCode::from(126))
}

/// Makes the memory and environment of this process, which hold the LLM's key, unreadable to other processes of the user.
pub fn hide_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}
