//! Another program in place of this one.
#![expect(
    clippy::disallowed_methods,
    reason = "nothing is started: this process becomes the program"
)]

use super::exec_image::reset_signal_actions;
use delta_base::signal::{IGNORED_SIGNALS, was_ignored_by_caller};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Replaces this process, with its standard streams and working directory, by `program` under the name `name`, with these
/// arguments and with `env` as its complete environment. Returns only if that fails.
pub fn become_program(
    program: &Path,
    name: &OsStr,
    arguments: &[OsString],
    env: &BTreeMap<OsString, OsString>,
) -> io::Error {
    // An ignored signal would stay ignored in a program that does not expect it.
    reset_signal_actions(
        IGNORED_SIGNALS.into_iter().filter(|signal| !was_ignored_by_caller(*signal)),
    );
    Command::new(program).arg0(name).args(arguments).env_clear().envs(env).exec()
}
