//! What a test needs of the machine. A test that does not find it is skipped: one line names the test and the reason, and
//! `.ci/run` counts these lines.

use regex::Regex;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Reports that the calling test does not run here. The caller returns.
///
/// The line goes to stderr past the test runner, which shows what a test prints only if the test fails.
pub fn skip(reason: impl Display) {
    report("skipped", reason);
}

/// Reports that a part of the calling test does not run here, while the rest does: it is not counted as skipped.
pub fn skip_part(reason: impl Display) {
    report("skipped in part", reason);
}

/// Repeats what a test reported in a process that the calling test started and whose stderr it has read.
pub fn repeat_skips(stderr: &[u8]) {
    for line in String::from_utf8_lossy(stderr).lines() {
        if line.starts_with("skipped: ") || line.starts_with("skipped in part: ") {
            let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
        }
    }
}

fn report(what: &str, reason: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Several lines of a program become one.
    let reason = reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    // One write, so that the lines of several tests do not mix.
    let line = format!("{what}: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether this test run starts browsers and there is one; reports if not. They take seconds each, so only
/// a run with `DELTA_FULL_TESTS` starts them.
pub fn browser() -> bool {
    if !crate::effort::is_full() {
        skip("starts a browser, so only with DELTA_FULL_TESTS");
        return false;
    }
    programs(&["chromium"])
}

/// The same for a part of the calling test.
pub fn browser_for_part() -> bool {
    if !crate::effort::is_full() {
        skip_part("starts a browser, so only with DELTA_FULL_TESTS");
        return false;
    }
    programs_for_part(&["chromium"])
}

/// Whether all of these programs are in PATH; reports the missing ones.
pub fn programs(names: &[&str]) -> bool {
    let missing = missing_programs(names);
    if !missing.is_empty() {
        skip(format!("needs {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// The same for a part of the calling test.
pub fn programs_for_part(names: &[&str]) -> bool {
    let missing = missing_programs(names);
    if !missing.is_empty() {
        skip_part(format!("needs {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// The programs that are not in PATH.
pub fn missing_programs<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    names.iter().copied().filter(|name| !is_there(name)).collect()
}

/// Programs that a minimal machine does not have, and that the documents, the examples and the templates use.
const OPTIONAL_PROGRAMS: [&str; 10] =
    ["curl", "jq", "less", "make", "node", "python3", "rg", "sqlite3", "strace", "vim"];

/// The `OPTIONAL_PROGRAMS` that the text names and that are not in PATH.
pub fn missing_in_text(text: &str) -> Vec<&'static str> {
    let is_named = |name: &&str| {
        Regex::new(&format!(r"\b{name}\b")).expect("a name is a pattern").is_match(text)
    };
    missing_programs(&OPTIONAL_PROGRAMS).into_iter().filter(is_named).collect()
}

/// The text of the files of an agent, its README apart, which may name programs that the agent does not need.
pub fn text_of_agent(dir: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(dir).expect("the directory of an agent").flatten() {
        let path = entry.path();
        if path.is_dir() {
            text += &text_of_agent(&path);
        } else if !path.ends_with("README.md") {
            text += &String::from_utf8_lossy(&std::fs::read(path).expect("a file of an agent"));
            text.push('\n');
        }
    }
    text
}

/// A file or directory below the target directory that `.ci/run` fetches; reports a missing one.
pub fn fetched(relative: &str) -> Option<PathBuf> {
    let path = target_dir().join(relative);
    if !path.exists() {
        skip(format!("needs target/{relative}, which `bash .ci/run full` fetches"));
        return None;
    }
    Some(path)
}

/// The programs of a Python environment below the target directory that `.ci/run` fetches; reports a missing one.
pub fn python_env(relative: &str) -> Option<PathBuf> {
    let dir = target_dir().join(relative);
    // An environment that is being made, or could not be, has no such file.
    if !dir.join("complete").exists() {
        skip(format!("needs target/{relative}, which `bash .ci/run full` fetches"));
        return None;
    }
    Some(dir.join("bin"))
}

fn target_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.ancestors().nth(3).unwrap_or(Path::new("target")).to_owned()
}
