//! Every example runs on its own script, without a key and without a network, and says what it is.

use super::{DELTA, root};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use test_support::needs;

#[test]
fn every_example_runs_on_its_script() {
    let dir = tempfile::tempdir().unwrap();
    let mut count = 0;
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let agent = entry.unwrap().path();
        let name = agent.file_name().unwrap().to_owned();
        if !agent.is_dir() {
            continue;
        }
        let readme = fs::read_to_string(agent.join("README.md"));
        let readme = readme.unwrap_or_else(|error| panic!("{}: {error}", agent.display()));
        assert!(
            readme.contains("\n```console\n"),
            "{}: nothing in README.md runs it",
            agent.display()
        );
        if agent.join("sample").exists() || agent.join("site").exists() {
            // It works on files of its own: its README and its tests, which other tests run, bring them.
            assert!(agent.join("tests").is_dir(), "{} has no tests", agent.display());
            count += 1;
            continue;
        }
        if agent.join("sweep.yaml").exists() {
            // A sweep of agents; its README runs it.
            count += 1;
            continue;
        }
        let missing = needs::missing_in_text(&needs::text_of_agent(&agent));
        if !missing.is_empty() {
            needs::skip_part(format!("{} needs {}", name.display(), missing.join(", ")));
            count += 1;
            continue;
        }
        let work = dir.path().join(&name);
        let begin = ["run", "--model", "script:script.yaml", "-m", "the cat and the other cat"];
        let mut output = delta(dir.path(), &begin, &agent, &work);
        if output.status.code() == Some(101) {
            // It waits for a person: this one agrees to everything.
            let goes_on = ["continue", "--model", "script:script.yaml", "-m", "yes"];
            output = delta(dir.path(), &goes_on, &agent, &work);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {}\n{stderr}", agent.display(), output.status);
        assert!(!output.stdout.is_empty(), "{} printed nothing\n{stderr}", agent.display());
        count += 1;
    }
    assert!(count > 4, "where are the examples?");
}

/// A command for the run `r` of an agent, with delta on its PATH.
fn delta(dir: &Path, command: &[&str], agent: &Path, work: &Path) -> Output {
    let own = Path::new(DELTA).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([own].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let fixed = ["--run-id", "r", "--format", "raw", "--agent"].map(OsStr::new);
    Command::new(DELTA)
        .args(command)
        .args(fixed)
        .args([agent.as_os_str(), OsStr::new("-w"), work.as_os_str()])
        .current_dir(dir)
        .env_clear()
        .env("PATH", path)
        .output()
        .unwrap()
}
