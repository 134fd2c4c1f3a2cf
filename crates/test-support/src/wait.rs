//! Waiting for what another process does, and looking at processes.

use crate::server::Gate;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Only a test that fails waits so long.
const LIMIT: Duration = Duration::from_secs(60);
/// Files and processes of others tell nobody when they change, so they have to be looked at again and again; this
/// often, so that the looking does not take the time of what is waited for.
const AGAIN: Duration = Duration::from_millis(5);

/// Looks until there is something; `what` is what the failure calls it.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    let never = Gate::new();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "waited in vain for {what}");
        never.wait(Some(AGAIN));
    }
}

/// Waits until a file is there and has a whole line; gives its text without the last newline.
#[track_caller]
pub fn until_line(path: &Path) -> String {
    until(&path.display().to_string(), || {
        let text = fs::read_to_string(path).ok()?;
        text.strip_suffix('\n').map(str::to_owned)
    })
}

/// The processes, zombies not counted, whose environment holds every one of `variables` (`NAME=VALUE`).
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

/// Whether there is a process `pid` that is more than a zombie.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
