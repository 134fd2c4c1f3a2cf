//! The processes of the machine, as /proc shows them.

use super::{GRACE, TICK};
use crate::signal::Cancel;
use rustix::process::{Pid, Signal};
use std::time::Instant;

/// Environment variables, with their values, that together tell a child from every other process.
pub type Marks<'a> = &'a [(&'a str, &'a str)];

/// The processes whose environment holds every one of `marks`, except ourselves. Always empty where there is no /proc.
pub fn find_marked(marks: Marks<'_>) -> Vec<i32> {
    let entries = entries(marks);
    find(|environ| entries.iter().all(|entry| environ.contains(&entry.as_bytes())))
}

/// Ends the processes of earlier calls of a run: those whose environment holds every one of `marks` and a variable
/// `name`. SIGTERM first, SIGKILL for what still lives 5 seconds later, or when `cancel` asks for the stop. Gives how
/// many there were.
pub fn end_marked(marks: Marks<'_>, name: &str, cancel: &Cancel) -> usize {
    let (entries, prefix) = (entries(marks), format!("{name}="));
    let living = || {
        find(|environ| {
            let named = environ.iter().any(|variable| variable.starts_with(prefix.as_bytes()));
            named && entries.iter().all(|entry| environ.contains(&entry.as_bytes()))
        })
    };
    let signal = |pids: &[i32], signal| {
        for pid in pids.iter().copied().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    };
    let found = living();
    signal(&found, Signal::TERM);
    signal(&found, Signal::CONT);
    let deadline = Instant::now() + GRACE;
    while !living().is_empty() {
        if Instant::now() >= deadline || cancel.wait(TICK) {
            signal(&living(), Signal::KILL);
            break;
        }
    }
    found.len()
}

fn entries(marks: Marks<'_>) -> Vec<String> {
    marks.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// The processes, except ourselves, whose environment is as wanted.
fn find(wanted: impl Fn(&[&[u8]]) -> bool) -> Vec<i32> {
    let ourselves = rustix::process::getpid();
    let fits = |pid: &Pid| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| wanted(&environ.split(|byte| *byte == 0).collect::<Vec<_>>()))
    };
    processes().filter(|pid| *pid != ourselves).filter(fits).map(Pid::as_raw_pid).collect()
}

/// Whether there is a process in `group` that is more than a zombie. Where no init reaps orphans (in many containers),
/// those of the group stay zombies for ever.
pub(super) fn lives(group: Pid) -> bool {
    if rustix::process::test_kill_process_group(group).is_err() {
        return false;
    }
    let states: Vec<u8> = processes().filter_map(|pid| state_in(pid, group)).collect();
    states.is_empty() || states.iter().any(|state| *state != b'Z')
}

/// The state letter of a process of `group`.
fn state_in(pid: Pid, group: Pid) -> Option<u8> {
    let fields = fields(pid)?;
    if *fields.get(2)? == group.to_string() { fields.first()?.bytes().next() } else { None }
}

/// The processes of the session that `leader` leads.
pub(super) fn of_session(leader: Pid) -> Vec<Pid> {
    let leader = leader.to_string();
    processes().filter(|pid| fields(*pid).is_some_and(|it| it.get(3) == Some(&leader))).collect()
}

/// The first fields of a process behind its name, which stands in parentheses and may hold anything: its state, its
/// parent, its group, its session.
fn fields(pid: Pid) -> Option<Vec<String>> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    Some(stat.rsplit_once(") ")?.1.split(' ').take(4).map(str::to_owned).collect())
}

/// All processes.
#[cfg(target_os = "linux")]
fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw)
}

#[cfg(not(target_os = "linux"))]
fn processes() -> impl Iterator<Item = Pid> {
    std::iter::empty()
}
