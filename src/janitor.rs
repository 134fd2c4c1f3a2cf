//! Whose run is this? (the specification's Janitor)

use crate::event::ProcessInfo;
use crate::time;
use std::fs;

/// This process, as a run records who works on it.
pub fn myself() -> ProcessInfo {
    let process_name = fs::read_to_string("/proc/self/comm").map(|name| name.trim_end().to_owned());
    ProcessInfo {
        pid: std::process::id(),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        start_time_unix: start_time().unwrap_or_else(|| time::now().millis()),
        process_name: process_name.unwrap_or_else(|_| "delta".to_owned()),
    }
}

/// When this process started, in milliseconds since the Unix epoch: the kernel's ticks since boot (field 22 of
/// `/proc/PID/stat`, proc(5)) after the boot time of `/proc/stat`, so that a process that was given the same id later
/// has another one.
fn start_time() -> Option<i64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold blanks; the fields are counted behind it.
    let ticks: i64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: i64 =
        boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let per_second =
        i64::try_from(rustix::param::clock_ticks_per_second()).ok().filter(|ticks| *ticks > 0)?;
    Some(boot * 1000 + ticks * 1000 / per_second)
}
