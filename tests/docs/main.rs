//! What the documents say is true: their commands run and print what is shown, their links lead somewhere, every
//! promise has a test. And what the sources promise each other holds: the order of the modules, one meaning for a name.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests may, and start real processes"
)]

mod architecture;
mod changelog;
mod command_line;
mod console;
mod contract;
mod examples;
mod imports;
mod links;
mod markdown;
mod prose;
mod stability;
mod style;
mod syntax;
mod tidy;
mod vendors;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The program under test.
const DELTA: &str = env!("CARGO_BIN_EXE_delta");
/// The other program.
static SESSIONS: LazyLock<String> = LazyLock::new(|| test_support::sibling("delta-sessions"));

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of the repository that git knows, or would take, relative to its root, sorted.
fn files() -> Vec<PathBuf> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(args).current_dir(root()).output().expect("git runs");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let mut files: Vec<PathBuf> = names.split_terminator('\0').map(PathBuf::from).collect();
    files.retain(|file| root().join(file).is_file());
    files.sort();
    files.dedup();
    files
}

/// The files among them whose name ends with one of `ends`, with their texts.
fn texts(ends: &[&str]) -> Vec<(PathBuf, String)> {
    let wanted = |file: &PathBuf| ends.iter().any(|end| file.to_string_lossy().ends_with(end));
    let read = |file: PathBuf| {
        let text = std::fs::read(root().join(&file)).unwrap();
        (file, String::from_utf8_lossy(&text).into_owned())
    };
    files().into_iter().filter(wanted).map(read).collect()
}
