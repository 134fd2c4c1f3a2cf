//! The process that owns a run, as it is recorded, and whether it is alive.

use crate::event::ProcessInfo;
use delta_base::time;
use std::fs;

/// The flag of an exiting process (include/linux/sched.h).
const PF_EXITING: u64 = 0x4;

/// How far two statements of the start of one process may be apart: the time of boot is adjusted with the clock, and
/// emulators have their own idea of it.
const START_TOLERANCE_S: u64 = 2;

/// This process and its start in ticks since the boot, for a token.
pub(crate) fn process_clock() -> (u32, u64) {
    let pid = std::process::id();
    (pid, process_start_ticks(pid).unwrap_or(0))
}

/// This process, as ENGINE_START and ledgers record it.
pub fn current_process() -> ProcessInfo {
    let pid = std::process::id();
    ProcessInfo {
        pid,
        hostname: hostname(),
        start_time_unix: process_start_time(pid)
            .unwrap_or_else(|| time::current_time().as_millis()),
        process_name: process_name(pid).unwrap_or_else(|| "delta".to_owned()),
    }
}

/// Whether a recorded process is alive, as far as this host can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerStatus {
    /// The process has ended.
    Dead,
    /// The process is alive on this host.
    Alive,
    /// The process was on another host.
    OnOtherHost,
}

/// Checks whether a recorded process is alive, without the lock: for commands that only show a run, and for file systems
/// whose locks do not work across hosts.
pub fn owner_status(process: &ProcessInfo) -> OwnerStatus {
    if process.hostname != hostname() {
        return OwnerStatus::OnOtherHost;
    }
    let is_delta = process_name(process.pid)
        .is_some_and(|name| name.contains("delta") || name == process.process_name);
    match process_start_time(process.pid) {
        Some(start_time)
            if is_delta
                && start_time.abs_diff(process.start_time_unix) <= START_TOLERANCE_S * 1_000 =>
        {
            OwnerStatus::Alive
        }
        _ => OwnerStatus::Dead,
    }
}

/// The name of this host.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The PID namespace of this process: within it and a boot, a process id means one process at a time.
pub fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

fn process_name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// The start time of a process that is alive, in milliseconds since the Unix epoch. It distinguishes processes with the
/// same id. Computed from the time of boot and field 22 of `/proc/PID/stat`, ticks since boot (proc(5)). A zombie is dead,
/// and so is an exiting process (`PF_EXITING` in field 9): the kernel has released its lock but not yet its id.
pub(crate) fn process_start_time(pid: u32) -> Option<i64> {
    let ticks = i64::try_from(process_start_ticks(pid)?).ok()?;
    let per_second =
        i64::try_from(rustix::param::clock_ticks_per_second()).ok().filter(|ticks| *ticks > 0)?;
    Some(time::current_time().as_millis() - uptime_ms()? + ticks * 1000 / per_second)
}

/// Whether the process is alive that found, of itself, that it started at `start_ticks`.
///
/// Where another processor is emulated, as by qemu in a container, a process reads a start of its own, some ticks after the
/// one that every other process reads. Ids are not used again within [`START_TOLERANCE_S`]; where one is, its process is
/// taken for the owner until it ends.
pub(crate) fn is_alive_since(pid: u32, start_ticks: u64) -> bool {
    let tolerance = START_TOLERANCE_S * rustix::param::clock_ticks_per_second();
    process_start_ticks(pid).is_some_and(|ticks| ticks.abs_diff(start_ticks) <= tolerance)
}

/// When a process that is alive started, in ticks since the boot.
fn process_start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain spaces, so fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let flags: u64 = fields.get(6)?.parse().ok()?;
    if matches!(fields.first(), Some(&"Z" | &"X")) || flags & PF_EXITING != 0 {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Milliseconds since boot. `/proc/stat` has the time of boot too, but the kernel takes longer to print it than everything
/// else that is read here.
pub(crate) fn uptime_ms() -> Option<i64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
    Some(seconds.parse::<i64>().ok()? * 1000 + hundredths.parse::<i64>().ok()? * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_26_1_a_process_that_an_emulator_tells_another_start_is_alive() {
        let (pid, ticks) = process_clock();
        let second = rustix::param::clock_ticks_per_second();
        assert!(is_alive_since(pid, ticks) && is_alive_since(pid, ticks + 3));
        assert!(!is_alive_since(pid, ticks + 60 * second));
        assert!(!is_alive_since(u32::MAX, ticks));
    }

    #[test]
    fn c_13_2_a_process_is_alive_with_its_start_time_and_name_only() {
        let me = current_process();
        assert_eq!(
            owner_status(&me),
            OwnerStatus::Alive,
            "the test binary is named after the crate"
        );
        assert_eq!(
            owner_status(&ProcessInfo {
                start_time_unix: me.start_time_unix - 60_000,
                ..me.clone()
            }),
            OwnerStatus::Dead
        );
        assert_eq!(
            owner_status(&ProcessInfo { hostname: "elsewhere.invalid".to_owned(), ..me.clone() }),
            OwnerStatus::OnOtherHost
        );
        assert_eq!(owner_status(&ProcessInfo { pid: 0x7fff_fff0, ..me }), OwnerStatus::Dead);
    }
}
