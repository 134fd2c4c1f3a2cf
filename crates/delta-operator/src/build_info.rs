//! What was built: `delta --version --json`; and whether two programs of delta are of one build.

use crate::environment::{self, STARTER_VARIABLE};
use delta_base::durable::HAS_FAILPOINTS;
use delta_program::stdio;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;

/// The commit of a release build, if it was built from a git repository or a package of one.
const COMMIT: Option<&str> = option_env!("DELTA_BUILD_COMMIT");
/// The target triple.
const TARGET: &str = env!("DELTA_BUILD_TARGET");
/// What is compiled in: failpoints, in test builds.
const FEATURES: &[&str] = if HAS_FAILPOINTS { &["failpoints"] } else { &[] };

/// The number of digits of a commit in text.
const SHORT_COMMIT: usize = 12;

/// Version, commit and target in one line.
pub fn describe_build() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let commit = COMMIT.and_then(|commit| commit.get(..SHORT_COMMIT));
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    format!("{version}{commit}, {TARGET}")
}

/// The variable by which a program of delta that this one starts finds out that it is of another build.
pub fn starter_variable() -> (OsString, OsString) {
    (STARTER_VARIABLE.into(), describe_build().into())
}

/// Reports that a program of another build started this one, `program`: the two may not understand each other's arguments
/// and files. Returns the exit code then.
pub fn refuse_other_build(program: &str) -> Option<ExitCode> {
    let starter = environment::starter_build()?.to_string_lossy();
    let own_build = describe_build();
    if starter == own_build {
        return None;
    }
    stdio::print_error_line(&format!(
        "error: `{program}` is of another build, {own_build}, than the program of delta that started it, {starter}: install both from one release"
    ));
    Some(ExitCode::from(2))
}

/// Answers `--version --json` of `program`, in any order; `None` for every other command line.
pub fn answer_version_request(program: &str, arguments: &[OsString]) -> Option<ExitCode> {
    let [_, first, second] = arguments else { return None };
    let is_version = |argument: &OsString| argument == "--version" || argument == "-V";
    let is_request =
        is_version(first) && second == "--json" || first == "--json" && is_version(second);
    if !is_request {
        return None;
    }
    let build = json!({
        "name": program,
        "version": env!("CARGO_PKG_VERSION"),
        "commit": COMMIT,
        "target": TARGET,
        "features": FEATURES,
    });
    stdio::print_json(&format!("{build:#}\n"));
    Some(ExitCode::SUCCESS)
}
