//! Every example runs on its own script, without a key and without a network, and says what it is.

use super::{DELTA, root};
use std::fs;
use std::process::Command;

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
        assert!(agent.join("README.md").is_file(), "{} has no README.md", agent.display());
        let output = Command::new(DELTA)
            .args(["run", "--agent"])
            .arg(&agent)
            .arg("-w")
            .arg(dir.path().join(&name))
            .args([
                "--model",
                "script:script.yaml",
                "--format",
                "raw",
                "-m",
                "the cat and the other cat",
            ])
            .current_dir(dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {}\n{stderr}", agent.display(), output.status);
        assert!(!output.stdout.is_empty(), "{} printed nothing\n{stderr}", agent.display());
        count += 1;
    }
    assert!(count > 0, "where are the examples?");
}
