//! What a test needs of the machine. A test that does not find it is skipped: one line names the test and the reason, and
//! `.ci/run` counts these lines.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Reports that the calling test, or a part of it, does not run here. The caller returns.
///
/// The line goes to stderr past the test runner, which shows what a test prints only if the test fails.
pub fn skip(reason: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test").to_owned();
    // One write, so that the lines of several tests do not mix.
    let line = format!("skipped: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether all of these programs are in PATH; reports the missing ones.
pub fn programs(names: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let missing: Vec<&str> = names.iter().copied().filter(|name| !is_there(name)).collect();
    if !missing.is_empty() {
        skip(format!("needs {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// A file or directory below the target directory that `.ci/run` fetches; reports a missing one.
pub fn fetched(relative: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).unwrap_or(Path::new("target"));
    let path = target.join(relative);
    if !path.exists() {
        skip(format!("needs target/{relative}, which `bash .ci/run` fetches"));
        return None;
    }
    Some(path)
}
