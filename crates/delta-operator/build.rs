//! What `delta --version --json` reports of the build.
#![expect(clippy::disallowed_methods, reason = "cargo passes the target in the environment")]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// The variable with the commit, for builds from sources without git; set, it takes precedence over git.
const COMMIT_VARIABLE: &str = "DELTA_BUILD_COMMIT";

/// Where this crate is in the repository of delta.
const PLACE_IN_REPOSITORY: &str = "crates/delta-operator/";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT_VARIABLE}");
    println!("cargo::rustc-env=DELTA_BUILD_TARGET={}", env::var("TARGET").unwrap_or_default());
    if let Some(commit) = find_commit() {
        println!("cargo::rustc-env={COMMIT_VARIABLE}={commit}");
    }
}

/// The commit that is built. Only release builds ask git: a new commit would compile every other build again.
fn find_commit() -> Option<String> {
    if env::var_os(COMMIT_VARIABLE).is_some() {
        return None;
    }
    // cargo writes the commit into a package.
    if let Ok(text) = fs::read_to_string(".cargo_vcs_info.json") {
        return text.split('"').skip_while(|word| *word != "sha1").nth(2).map(str::to_owned);
    }
    // A copy of the sources in another repository has the commits of that one.
    let is_own_repository = run_git(&["rev-parse", "--show-prefix"])
        .is_some_and(|prefix| prefix == PLACE_IN_REPOSITORY);
    if env::var("PROFILE").is_ok_and(|profile| profile != "release") || !is_own_repository {
        return None;
    }
    let head_files = ["logs/HEAD", "HEAD"].into_iter().filter_map(|name| {
        run_git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists())
    });
    for path in head_files {
        println!("cargo::rerun-if-changed={path}");
    }
    run_git(&["rev-parse", "HEAD"])
}

/// What git prints, without its newline; `None` if it fails.
fn run_git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
