//! The processes of the machine, as /proc shows them.

use rustix::process::Pid;

/// Variables, as name and value, by whose presence in the environment of a process it is found.
pub type Mark<'a> = &'a [(&'a str, &'a str)];

/// The processes whose environment holds every `NAME=VALUE` of `mark`, except ourselves. Always empty where there is no
/// /proc.
pub fn find_marked(mark: Mark<'_>) -> Vec<i32> {
    let entries: Vec<String> = mark.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let ourselves = rustix::process::getpid();
    let is_marked = |pid: &Pid| {
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            let holds = |entry: &String| {
                environ.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
            };
            entries.iter().all(holds)
        })
    };
    processes().filter(|pid| *pid != ourselves).filter(is_marked).map(Pid::as_raw_pid).collect()
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
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The fields state, parent, group follow the name, which stands in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if fields.nth(1)? == group.to_string() { state.bytes().next() } else { None }
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
