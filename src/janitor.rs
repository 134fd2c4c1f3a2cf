//! Whose run is this? (the specification's Janitor)
//!
//! The lock on a run's `lock` file decides; what is here speaks where the lock cannot: it tells a dead process from a
//! living one by its id, start time and name, and says when that cannot be told from this host.

use crate::event::ProcessInfo;
use crate::time;
use std::fs;

/// This process, as a run records who works on it.
pub fn myself() -> ProcessInfo {
    let pid = std::process::id();
    ProcessInfo {
        pid,
        hostname: hostname(),
        start_time_unix: start_time(pid).unwrap_or_else(|| time::now().millis()),
        process_name: process_name(pid).unwrap_or_else(|| "delta".to_owned()),
    }
}

/// Who works on a run, as far as can be told from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Its process is gone.
    Gone,
    /// Its process lives, on this host.
    Alive,
    /// Its process was on another host.
    Elsewhere,
}

/// Whether the process that took up a run last still works on it. The lock has been asked already, and was free; this
/// is for file systems on which locks do not reach every host.
pub fn inspect(process: &ProcessInfo) -> Owner {
    if process.hostname != hostname() {
        return Owner::Elsewhere;
    }
    let named = process_name(process.pid).is_some_and(|name| name.contains("delta"));
    match start_time(process.pid) {
        // The clock's boot time may be set right by a second while the machine runs.
        Some(started) if named && (started - process.start_time_unix).abs() <= 2_000 => {
            Owner::Alive
        }
        _ => Owner::Gone,
    }
}

/// The name of this host.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn process_name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// When a process started, in milliseconds since the Unix epoch: the kernel's ticks since boot (field 22 of
/// `/proc/PID/stat`, proc(5)) after the boot time of `/proc/stat`, so that a process that was given the same id later
/// has another one. A zombie has ended.
fn start_time(pid: u32) -> Option<i64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold blanks; the fields are counted behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: i64 =
        fields.get(19).filter(|_| !matches!(fields.first(), Some(&"Z" | &"X")))?.parse().ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: i64 =
        boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let per_second =
        i64::try_from(rustix::param::clock_ticks_per_second()).ok().filter(|ticks| *ticks > 0)?;
    Some(boot * 1000 + ticks * 1000 / per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_13_2_a_process_is_alive_with_its_start_time_and_name_only() {
        let me = myself();
        assert_eq!(inspect(&me), Owner::Alive, "the test binary is named after the crate");
        assert_eq!(
            inspect(&ProcessInfo { start_time_unix: me.start_time_unix - 60_000, ..me.clone() }),
            Owner::Gone
        );
        assert_eq!(
            inspect(&ProcessInfo { hostname: "elsewhere.invalid".to_owned(), ..me.clone() }),
            Owner::Elsewhere
        );
        assert_eq!(inspect(&ProcessInfo { pid: 0x7fff_fff0, ..me }), Owner::Gone);
    }
}
