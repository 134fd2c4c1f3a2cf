//! Waits for the effects of other processes, and finds processes.

use crate::server::Gate;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Only a test that fails waits this long.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time between two checks. Other processes do not notify a test of what they do; more frequent checks would slow them
/// down.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Calls `look` until it returns a value; `what` names that value if the wait fails.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    let never = Gate::new();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < TIMEOUT, "timed out waiting for {what}");
        never.wait(Some(POLL_INTERVAL));
    }
}

/// Waits until a file exists and ends with a newline; returns its text without that newline.
#[track_caller]
pub fn until_line(path: &Path) -> String {
    until(&path.display().to_string(), || {
        let text = fs::read_to_string(path).ok()?;
        text.strip_suffix('\n').map(str::to_owned)
    })
}

/// The processes, except zombies, whose environment contains all `variables` (`NAME=VALUE`).
pub fn processes_with(variables: &[&str]) -> Vec<i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let holds = |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has =
            |variable: &&str| environ.split(|b| *b == 0).any(|one| one == variable.as_bytes());
        !environ.is_empty() && variables.iter().all(has)
    };
    pids.filter(holds).collect()
}

/// The processes, zombies not counted, whose working directory is `dir` or inside of it, whatever else they changed.
pub fn processes_in(dir: &Path) -> Vec<i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_inside =
        |pid: &i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
    pids.filter(is_inside).collect()
}

/// Whether a process `pid` exists and is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
