//! Tests that measure their process, which other tests share.

use crate::needs;
use std::process::Command;

/// Set in a process that runs one test only.
const ALONE_VARIABLE: &str = "DELTA_TEST_ALONE";

/// Whether this process runs the calling test only; if not, runs the test in such a process, and fails if it fails there. The
/// caller returns then.
pub fn is_alone() -> bool {
    if std::env::var_os(ALONE_VARIABLE).is_some() {
        return true;
    }
    // The test harness names each thread after its test.
    let thread = std::thread::current();
    let name = thread.name().expect("the thread of a test has a name");
    let mut command = Command::new(std::env::current_exe().expect("the path of this test"));
    command.args([name, "--exact", "--nocapture"]).env(ALONE_VARIABLE, "1");
    let output = command.output().expect("the test starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
    needs::repeat_skips(&output.stderr);
    false
}
