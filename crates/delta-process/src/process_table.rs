//! The processes of the machine, from /proc; none where there is no /proc.

use super::POLL_INTERVAL;
use super::run_mark::{CallMark, HeldCallMark, RunMark};
use delta_base::redact::Secrets;
use delta_base::signal::{CancelToken, to_timespec};
use delta_base::terminal_text::escape_to_line;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal};
use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The flag of an exiting process (include/linux/sched.h). It has closed its files, and is not a zombie yet.
const PF_EXITING: u64 = 0x4;
/// How many characters of a command line are shown.
const MAX_COMMAND_CHARS: usize = 100;
/// How often an empty command line is read again.
const EMPTY_READS: usize = 50;
/// How many ids [`recent_processes`] looks at.
const RECENT_PROCESSES: i32 = 48;
/// How often it is called between two looks at all processes.
const RECENT_ROUNDS: usize = 50;
/// How many processes are watched with a descriptor each; the others are looked for again and again.
const MAX_WATCHED: usize = 32;

/// Environment variables, as names and values, that together identify a child among all processes.
pub type ProcessMarks<'a> = &'a [(&'a str, &'a str)];

/// A process, as /proc/PID/stat describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessStat {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    /// 0 if its leader is outside this PID namespace.
    group: i32,
    /// 0 likewise.
    session: i32,
    /// Clock ticks after boot; with the id it identifies the process.
    pub(super) start_time: u64,
    is_zombie: bool,
    /// All its threads have ended, or will have in a moment.
    pub(super) is_ending: bool,
}

impl ProcessStat {
    /// What no other process has, not even after this one has ended.
    pub(super) fn identity(&self) -> (Pid, u64) {
        (self.pid, self.start_time)
    }

    pub(super) fn read(pid: Pid) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name is in parentheses and may contain any character.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
        // The main thread is a zombie also when other threads of the process are alive.
        let has_ended = is_thread_ending(&fields)? && (number(17)? <= 1 || are_threads_ending(pid));
        Some(Self {
            pid,
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            start_time: fields.get(19)?.parse().ok()?,
            is_zombie: fields.first() == Some(&"Z"),
            is_ending: has_ended,
        })
    }

    /// Sends SIGKILL, also to the process group if that is not in the session of this process: no member can escape by
    /// forking at the same moment.
    fn kill(&self) {
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        // Not getsid(): rustix takes its 0, a session leader outside this PID namespace, for impossible.
        let own_session = Self::read(rustix::process::getpid()).map_or(0, |engine| engine.session);
        if self.session != own_session
            && let Some(group) = self.group()
        {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }

    /// The process group; `None` if its leader is outside this PID namespace, or if the process is ending: the kernel
    /// then says -1, and a signal to group -1 would go to every process.
    pub(super) fn group(&self) -> Option<Pid> {
        Some(self.group).filter(|group| *group > 1).and_then(Pid::from_raw)
    }
}

/// Whether a thread is a zombie or will be one in a moment; `fields` are the fields of its stat file after the name.
fn is_thread_ending(fields: &[&str]) -> Option<bool> {
    let flags: u64 = fields.get(6)?.parse().ok()?;
    Some(matches!(*fields.first()?, "Z" | "X") || flags & PF_EXITING != 0)
}

fn are_threads_ending(pid: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| std::fs::read(thread.path().join("stat")).ok()).all(|stat| {
        let stat = String::from_utf8_lossy(&stat);
        let fields =
            stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').collect::<Vec<_>>());
        fields.and_then(|fields| is_thread_ending(&fields)).unwrap_or(true)
    })
}

/// The processes that the machine started last. They are found so much faster than by looking at all that a process
/// cannot escape by always being a new one.
fn recent_processes() -> Vec<ProcessStat> {
    if !shows_own_processes() {
        return Vec::new();
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last: i32 = load.split_whitespace().last().and_then(|pid| pid.parse().ok()).unwrap_or(0);
    let pids = (last - RECENT_PROCESSES..=last).filter(|pid| *pid > 1).filter_map(Pid::from_raw);
    pids.filter_map(ProcessStat::read).collect()
}

/// All processes of the machine, except this one.
pub(super) fn all_processes() -> Vec<ProcessStat> {
    let own_pid = rustix::process::getpid();
    list_processes().filter(|pid| *pid != own_pid).filter_map(ProcessStat::read).collect()
}

/// A process that has no resource limits any more.
#[derive(Debug)]
pub(super) struct HasEnded;

/// The mark in the resource limits of a process, if it has one.
pub(super) fn read_mark(pid: Pid) -> Result<Option<CallMark>, HasEnded> {
    match std::fs::read_to_string(format!("/proc/{pid}/limits")) {
        Ok(limits) if !limits.is_empty() => Ok(CallMark::from_limits(&limits)),
        _ => Err(HasEnded),
    }
}

/// The command line of a process on one line of limited length, with control characters escaped and secrets redacted;
/// its name in brackets if it has no command line.
pub(super) fn describe_command(pid: Pid, secrets: &Secrets) -> String {
    let mut bytes = Vec::new();
    // A process has no command line for a moment, while it becomes another program.
    for _ in 0..EMPTY_READS {
        bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if !bytes.is_empty() {
            break;
        }
        std::thread::yield_now();
    }
    let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ");
    let text = if text.is_empty() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("[{}]", name.trim_end())
    } else {
        text
    };
    let redacted = secrets.redact(&text);
    match redacted.char_indices().nth(MAX_COMMAND_CHARS) {
        Some((end, _)) => escape_to_line(&redacted[..end]) + "…",
        None => escape_to_line(&redacted),
    }
}

/// The ids of the processes whose environment contains all `marks`, except this one.
pub fn find_marked_processes(marks: ProcessMarks<'_>) -> Vec<i32> {
    let entries = mark_entries(marks);
    all_processes()
        .into_iter()
        .map(|process| process.pid)
        .filter(|pid| !entries.is_empty() && has_entries(*pid, &entries))
        .map(Pid::as_raw_pid)
        .collect()
}

/// Kills the processes whose environment contains all `marks`, and those with the mark of `held_call`; gives up when some are
/// alive after a second.
pub fn kill_call_processes(marks: ProcessMarks<'_>, held_call: HeldCallMark, cancel: &CancelToken) {
    let entries = mark_entries(marks);
    end_processes(
        Duration::ZERO,
        cancel,
        |candidates| {
            let marked = candidates.into_iter().filter(|process| {
                let has_variables = !entries.is_empty() && has_entries(process.pid, &entries);
                !process.is_ending && (has_variables || has_held_call_mark(process.pid, held_call))
            });
            marked.collect()
        },
        || false,
    );
}

fn has_held_call_mark(pid: Pid, held_call: HeldCallMark) -> bool {
    read_mark(pid).ok().flatten().is_some_and(|mark| held_call.includes(mark))
}

/// What identifies the processes of runs among all of the machine, whichever processes of the runs have started them.
#[derive(Debug, Clone)]
pub struct RunProcessFilter {
    /// The marks in their resource limits.
    marks: Vec<RunMark>,
    /// Entries of which they have one in their environment, unless they changed it.
    entries: Vec<String>,
    /// A variable that they have with some value.
    call_variable: &'static str,
    /// Calls whose processes do not outlive the run, because their holders are dead.
    lost_calls: Vec<HeldCallMark>,
}

impl RunProcessFilter {
    /// No processes yet; `call_variable` is a variable that all of them have.
    pub fn new(call_variable: &'static str) -> Self {
        Self { marks: Vec::new(), entries: Vec::new(), call_variable, lost_calls: Vec::new() }
    }

    /// Adds the processes of a run: those with `mark`, and those without whose environment has the variable `name` with
    /// this value.
    pub fn add_run(&mut self, mark: RunMark, name: &str, value: &str) {
        self.marks.push(mark);
        self.entries.push(format!("{name}={value}"));
    }

    /// Adds the processes of a call whose holder is dead to what ends with the run.
    pub fn add_lost_call(&mut self, call: HeldCallMark) {
        self.lost_calls.push(call);
    }

    /// The ids of the processes that are alive, also of processes that outlive the run.
    pub fn find_all(&self) -> Vec<i32> {
        self.find_processes(all_processes(), true)
            .iter()
            .map(|process| process.pid.as_raw_pid())
            .collect()
    }

    /// Ends the processes, unless they outlive the run ([`Background::Keep`](super::Background::Keep)): SIGTERM, and SIGKILL
    /// if they are alive after 5 seconds or when `cancel` is requested. Returns how many there were.
    pub fn end_processes(&self, cancel: &CancelToken) -> usize {
        let processes = end_processes(
            super::TERMINATION_GRACE,
            cancel,
            |candidates| self.find_processes(candidates, false),
            || false,
        );
        processes.found.len()
    }

    fn find_processes(&self, candidates: Vec<ProcessStat>, with_kept: bool) -> Vec<ProcessStat> {
        candidates
            .into_iter()
            .filter(|process| !process.is_ending && self.includes(process.pid, with_kept))
            .collect()
    }

    fn includes(&self, pid: Pid, with_kept: bool) -> bool {
        let mark = read_mark(pid).ok().flatten();
        match mark.filter(|mark| self.marks.iter().any(|run| run.includes(*mark))) {
            Some(mark) => {
                with_kept
                    || !mark.is_kept()
                    || self.lost_calls.iter().any(|call| call.includes(mark))
            }
            None => self.has_variables(pid),
        }
    }

    fn has_variables(&self, pid: Pid) -> bool {
        let environ = read_environment(pid);
        let prefix = format!("{}=", self.call_variable);
        let mut variables = environ.split(|byte| *byte == 0);
        variables.clone().any(|variable| variable.starts_with(prefix.as_bytes()))
            && variables
                .any(|variable| self.entries.iter().any(|entry| entry.as_bytes() == variable))
    }
}

/// What [`end_processes`] has done.
#[derive(Debug, Default)]
pub(super) struct EndedProcesses {
    /// Everything that was found alive.
    pub(super) found: Vec<ProcessStat>,
    /// What SIGKILL did not end.
    pub(super) surviving: Vec<ProcessStat>,
}

/// Sends SIGTERM to the processes that `find` selects among its candidates, and SIGKILL if they are alive after
/// `grace`, or as soon as `cancel` is requested, in rounds until it finds none. Gives up when some are alive after a
/// second of SIGKILL. While `find` finds nothing but `has_hidden` is true, there are processes that hide by always being
/// new ones: they are killed at once.
pub(super) fn end_processes(
    grace: Duration,
    cancel: &CancelToken,
    mut find: impl FnMut(Vec<ProcessStat>) -> Vec<ProcessStat>,
    has_hidden: impl Fn() -> bool,
) -> EndedProcesses {
    let mut outcome = EndedProcesses::default();
    let mut signalled = HashSet::new();
    let started = Instant::now();
    let mut killing_since = None;
    let mut hidden_since = None;
    loop {
        let processes = find(all_processes());
        if processes.is_empty() && !has_hidden() {
            return outcome;
        }
        let now = Instant::now();
        if cancel.is_requested() || started.elapsed() >= grace {
            killing_since.get_or_insert(now);
        }
        let hides = processes.is_empty();
        hidden_since = if hides { hidden_since.or(Some(now)) } else { None };
        for process in &processes {
            let is_new = signalled.insert(process.identity());
            if is_new {
                outcome.found.push(*process);
            }
            if killing_since.is_some() {
                process.kill();
            } else if is_new {
                let _ = rustix::process::kill_process(process.pid, Signal::TERM);
                // A stopped process handles SIGTERM only after SIGCONT.
                let _ = rustix::process::kill_process(process.pid, Signal::CONT);
            }
        }
        let is_over = |since: Option<Instant>| {
            since.is_some_and(|since| now.duration_since(since) >= super::DRAIN_LIMIT)
        };
        if is_over(killing_since) || is_over(hidden_since) {
            outcome.surviving = processes;
            return outcome;
        }
        if killing_since.is_some() || hides {
            for _ in 0..RECENT_ROUNDS {
                if hides && !has_hidden() {
                    break;
                }
                for process in find(recent_processes()) {
                    process.kill();
                    if signalled.insert(process.identity()) {
                        outcome.found.push(process);
                    }
                }
            }
        }
        if !hides || has_hidden() {
            wait_for_exit(&processes, POLL_INTERVAL, cancel);
        }
    }
}

/// Waits until one of `processes` has ended or `cancel` wakes the poll, for at most `limit`.
pub(super) fn wait_for_exit(processes: &[ProcessStat], limit: Duration, cancel: &CancelToken) {
    let descriptors: Vec<OwnedFd> = processes
        .iter()
        .take(MAX_WATCHED)
        .filter_map(|process| super::exit_fd(process.pid))
        .collect();
    let mut fds = vec![PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)];
    fds.extend(descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    // The caller looks at everything again.
    let _ = poll(&mut fds, Some(&to_timespec(limit)));
    if !fds[0].revents().is_empty() {
        cancel.drain();
    }
}

fn mark_entries(marks: ProcessMarks<'_>) -> Vec<String> {
    marks.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// Whether the environment of a process has all of `entries`.
fn has_entries(pid: Pid, entries: &[String]) -> bool {
    let environ = read_environment(pid);
    let variables: Vec<&[u8]> = environ.split(|byte| *byte == 0).collect();
    entries.iter().all(|entry| variables.contains(&entry.as_bytes()))
}

/// The environment of a process; empty if it cannot be read.
fn read_environment(pid: Pid) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

/// Whether `group` has a process that is not a zombie. Where no init reaps orphans (in many containers), zombies of the
/// group stay forever.
pub(super) fn is_group_alive(group: Pid) -> bool {
    if rustix::process::test_kill_process_group(group).is_err() {
        return false;
    }
    // This process is in a group as well.
    let members: Vec<ProcessStat> = list_processes()
        .filter_map(ProcessStat::read)
        .filter(|process| process.group() == Some(group))
        .collect();
    members.is_empty() || members.iter().any(|process| !process.is_zombie)
}

/// The processes of the session that `leader` leads.
pub(super) fn session_processes(leader: Pid) -> Vec<Pid> {
    all_processes()
        .into_iter()
        .filter(|process| process.session == leader.as_raw_pid())
        .map(|process| process.pid)
        .collect()
}

/// Whether /proc has the processes by the ids that this process uses for signals. It does not if it is not mounted, or if
/// it belongs to another PID namespace (`unshare --pid` without `--mount-proc`), in which the same ids are other processes.
#[cfg(target_os = "linux")]
pub fn shows_own_processes() -> bool {
    static SHOWS: OnceLock<bool> = OnceLock::new();
    *SHOWS.get_or_init(|| {
        let own_pid = std::process::id().to_string();
        std::fs::read_link("/proc/self").is_ok_and(|target| target.as_os_str() == &*own_pid)
    })
}

#[cfg(not(target_os = "linux"))]
pub fn shows_own_processes() -> bool {
    false
}

#[cfg(target_os = "linux")]
fn list_processes() -> impl Iterator<Item = Pid> {
    let entries = shows_own_processes().then(|| std::fs::read_dir("/proc"));
    let entries = entries.into_iter().flatten().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw)
}

#[cfg(not(target_os = "linux"))]
fn list_processes() -> impl Iterator<Item = Pid> {
    std::iter::empty()
}
