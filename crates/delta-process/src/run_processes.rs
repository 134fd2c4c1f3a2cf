//! The processes that the calls of a run leave running: to which call they belong, and how they end.
//!
//! This process is a subreaper: whatever loses its parent becomes its child, so everything that a call started, and that
//! is alive, descends from it. When the command of a call has been reaped and no child is left, one system call proves
//! that nothing of the call is alive. Only otherwise is /proc read. Where this process cannot become a subreaper, every call
//! is followed by a search for its mark.

use super::call_limits::{CallGroup, CallLimiter, CallLimits, ChildLimits};
use super::helper_process::relay::Relay;
use super::helper_process::{forget_helper, has_helpers, has_other_children, is_helper};
use super::process_table::{
    EndedProcesses, ProcessStat, all_processes, describe_command, end_processes, read_mark,
    shows_own_processes,
};
use super::run_mark::{CallMark, MarkLevel, RunMark, held_call_number, own_limit};
use super::{DRAIN_LIMIT, ProcessEnd, TERMINATION_GRACE, end_from_status};
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait, waitpid};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The limit of each list in [`LeftProcesses`].
pub const MAX_LISTED_PROCESSES: usize = 100;
/// How often a call whose processes are kept is looked at, if what is found changes each time.
const MAX_LOOKS: usize = 20;
/// The time without the end of an unknown child after which no process hides by always being a new one: each would have
/// lived long enough to be found.
const QUIET_TIME: Duration = Duration::from_millis(20);

/// What becomes of the processes that a call leaves running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Background {
    /// They end with the call.
    #[default]
    End,
    /// They end when this process exits.
    Run,
    /// They outlive the run.
    Keep,
    /// They end with the call, and the call outlives the process that works on the run.
    Survive,
}

impl Background {
    /// Whether the processes live on when this process has exited.
    fn outlives_run(self) -> bool {
        matches!(self, Self::Keep | Self::Survive)
    }
}

/// The command lines of processes that a call left running, at most [`MAX_LISTED_PROCESSES`] each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftProcesses {
    /// They were ended.
    pub ended: Vec<String>,
    /// They outlive the run, or could not be ended.
    pub running: Vec<String>,
    /// The names of the files for what they print from now on, of the streams that they hold.
    pub output_files: Vec<String>,
    /// Why there are no such files, and writing ends them.
    pub lost_output: Option<String>,
    /// Whether standard output was still open, so that there may have been more to come.
    pub held_stdout: bool,
}

/// Makes this process the parent of its orphaned descendants, from now on. Call this once, before the first
/// [`RunProcesses::new`].
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if shows_own_processes() {
        // Without it, processes that leave the group of their call are found by their marks only.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

#[cfg(target_os = "linux")]
fn has_adopted_orphans() -> bool {
    rustix::process::child_subreaper().is_ok_and(|value| value.is_some())
}

#[cfg(not(target_os = "linux"))]
fn has_adopted_orphans() -> bool {
    false
}

/// The processes of a run that descend from this process. Clones share them.
#[derive(Debug, Clone)]
pub struct RunProcesses(Arc<SharedProcesses>);

#[derive(Debug)]
struct SharedProcesses {
    mark: RunMark,
    /// The level of the marks of this process; `None` if it cannot set any.
    level: Option<MarkLevel>,
    /// The level of the marks of the calls of a run with a limit for runs below.
    call_level: OnceLock<MarkLevel>,
    /// The hard limit of this process, in which a mark would be.
    own_limit: Option<u64>,
    /// Whether orphans become children of this process.
    adopts_orphans: bool,
    call_count: AtomicU32,
    /// The calls that are running, and what is not theirs.
    known: Mutex<KnownProcesses>,
    /// The readers of what ends with the run.
    relays: Mutex<Vec<Relay>>,
    /// When a process that is not known was reaped last.
    unknown_reaped_at: Mutex<Option<Instant>>,
    /// Whether this process had descendants before the run, or gets orphans of other programs, as the first process of a container does.
    has_foreign: bool,
    /// Without it, nothing limits a call.
    limiter: OnceLock<CallLimiter>,
}

#[derive(Debug, Default)]
struct KnownProcesses {
    processes: Vec<KnownProcess>,
    /// The marks of earlier calls that may have left something running, whose later processes are theirs too.
    calls: Vec<(CallMark, Background)>,
    /// The calls that are running.
    active: Vec<ActiveCall>,
}

/// A call whose command has started, until what it left running is settled.
#[derive(Debug)]
struct ActiveCall {
    leader: Pid,
    mark: Option<CallMark>,
    /// How the command ended, if the search of another call has reaped it.
    end: Option<ProcessEnd>,
}

impl KnownProcesses {
    /// Whether every process is one of the current call.
    fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.calls.is_empty() && self.active.len() < 2
    }

    /// Keeps the end of the command `pid`; returns false if no call has such a command.
    fn note_end(&mut self, pid: Pid, status: WaitStatus) -> bool {
        let Some(call) = self.active.iter_mut().find(|call| call.leader == pid) else {
            return false;
        };
        call.end = end_from_status(status);
        true
    }

    fn owner_of_active(&self, leader: Pid) -> ProcessOwner {
        if self.active.len() < 2 { ProcessOwner::Call } else { ProcessOwner::Active(leader) }
    }

    /// To whom a process with this mark belongs, if it is the mark of a call.
    fn owner_of_mark(&self, mark: CallMark) -> Option<ProcessOwner> {
        if let Some(active) = self.active.iter().find(|call| call.mark == Some(mark)) {
            return Some(self.owner_of_active(active.leader));
        }
        let (_, background) = self.calls.iter().find(|(call, _)| *call == mark)?;
        Some(ProcessOwner::Earlier(*background))
    }

    /// Whether `child` is a known process, and not another one with its number.
    fn includes(&self, child: Pid) -> bool {
        let identity = ProcessStat::read(child).map(|process| process.identity());
        self.processes.iter().any(|known| Some((known.pid, known.start_time)) == identity)
    }
}

#[derive(Debug, Clone, Copy)]
struct KnownProcess {
    pid: Pid,
    start_time: u64,
    mark: Option<CallMark>,
    owner: ProcessOwner,
}

/// To whom a descendant of this process belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessOwner {
    /// The current call. If several are running, the last of them to end: nothing shows whose it is.
    Call,
    /// The one with this command of several calls that are running.
    Active(Pid),
    /// An earlier call with this setting.
    Earlier(Background),
    /// Not this run: it existed before.
    Foreign,
    /// It has just ended, so nothing shows to whom it belonged.
    Ended,
}

impl ProcessOwner {
    fn ends_with_run(self) -> bool {
        matches!(
            self,
            Self::Call | Self::Active(_) | Self::Earlier(Background::End | Background::Run)
        )
    }
}

impl RunProcesses {
    /// For the run `run_id` in `run_dir`, before its first child is started.
    pub fn new(run_id: &str, run_dir: &Path) -> Self {
        let (own_limit, level) = own_limit();
        let adopts_orphans = has_adopted_orphans();
        let mut shared = SharedProcesses {
            mark: RunMark::new(run_id, run_dir),
            level,
            call_level: OnceLock::new(),
            own_limit,
            adopts_orphans,
            call_count: AtomicU32::new(0),
            known: Mutex::default(),
            relays: Mutex::default(),
            unknown_reaped_at: Mutex::default(),
            has_foreign: rustix::process::getpid() == Pid::INIT,
            limiter: OnceLock::new(),
        };
        // A shell may have started something before it became this program.
        if adopts_orphans && shared.has_children() {
            let foreign = shared.descendants(all_processes());
            shared.has_foreign |= !foreign.is_empty();
            shared.remember(foreign.into_iter().map(|(process, _)| process), ProcessOwner::Foreign);
        }
        Self(Arc::new(shared))
    }

    /// Gives the next call the mark of the call `name` that this process holds, a [`HeldCallMark`](super::HeldCallMark).
    #[must_use]
    pub fn with_held_call(self, name: &str) -> Self {
        self.0.call_count.store(held_call_number(name), Ordering::Relaxed);
        self
    }

    /// Lets the calls start at most `levels` levels of runs. Call this once.
    pub fn limit_run_levels(&self, levels: u32) {
        let _ = self.0.call_level.set(MarkLevel::of_calls(levels));
    }

    /// Limits the calls that ask for it from now on. Call this once; returns what cannot be enforced, for the user.
    pub fn limit_calls(&self, limits: CallLimits) -> Vec<String> {
        let (limiter, warnings) = CallLimiter::new(limits);
        let _ = self.0.limiter.set(limiter);
        warnings
    }

    /// The processes of a call that is about to start.
    ///
    /// # Errors
    /// The call would not have its limits.
    pub(super) fn start_call(
        &self,
        background: Background,
        is_limited: bool,
    ) -> io::Result<CallProcesses> {
        let shared = &self.0;
        let call = shared.call_count.fetch_add(1, Ordering::Relaxed);
        let is_kept = background.outlives_run();
        let mark = shared.level().map(|level| shared.mark.for_call(level, call, is_kept));
        let limiter = shared.limiter.get().filter(|_| is_limited);
        let groups = limiter.map_or_else(|| Ok(Vec::new()), CallLimiter::create_groups)?;
        Ok(CallProcesses { run: self.clone(), background, mark, is_limited, groups, leader: None })
    }

    /// Ends everything that this process has started for the run, except what outlives it.
    pub fn end_all(&self, cancel: &CancelToken) {
        if self.0.may_have_processes() {
            end_processes(
                TERMINATION_GRACE,
                cancel,
                |candidates| self.0.find_alive(candidates, ProcessOwner::ends_with_run),
                || self.0.has_hidden_children(),
            );
        }
        // Their files are complete when the run is left.
        let deadline = Instant::now() + DRAIN_LIMIT;
        self.0.relays().drain(..).for_each(|relay| relay.wait(deadline));
    }

    /// The command lines of the processes that outlive the run and are alive.
    pub fn describe_kept(&self, secrets: &Secrets) -> Vec<String> {
        if !self.0.may_have_processes() {
            return Vec::new();
        }
        let processes = self.0.find_alive(
            all_processes(),
            |owner| matches!(owner, ProcessOwner::Earlier(background) if background.outlives_run()),
        );
        describe_processes(&processes, secrets)
    }
}

impl SharedProcesses {
    fn known(&self) -> MutexGuard<'_, KnownProcesses> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn level(&self) -> Option<MarkLevel> {
        self.call_level.get().copied().or(self.level)
    }

    fn relays(&self) -> MutexGuard<'_, Vec<Relay>> {
        self.relays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unknown_reaped_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unknown_reaped_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, processes: impl Iterator<Item = ProcessStat>, owner: ProcessOwner) {
        let known = processes.map(|ProcessStat { pid, start_time, .. }| {
            let mark = read_mark(pid).ok().flatten();
            KnownProcess { pid, start_time, mark, owner }
        });
        self.known().processes.extend(known);
    }

    /// Whether this process has children, after the dead ones have been reaped.
    fn has_children(&self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    forget_helper(pid);
                    let mut known = self.known();
                    if !known.note_end(pid, status)
                        && !known.processes.iter().any(|process| process.pid == pid)
                    {
                        *self.unknown_reaped_at() = Some(Instant::now());
                    }
                }
                Err(Errno::INTR) => {}
                // Without this, the children are not listed in vain.
                Ok(None) => return !has_helpers() || has_other_children(|_| false),
                Err(_) => return false,
            }
        }
    }

    /// Whether a process of the run may be alive; without this, none is sought in vain.
    fn may_have_processes(&self) -> bool {
        !self.adopts_orphans || self.has_children()
    }

    /// Whether an unknown process may be of the current call. While the process that holds an MCP server, or
    /// what an earlier call left running, is alive, this spares a look at every process of the machine.
    fn may_have_unknown_processes(&self) -> bool {
        if !self.adopts_orphans {
            return true;
        }
        if !self.has_children() {
            return false;
        }
        let known = self.known();
        known.processes.is_empty() || has_other_children(|child| known.includes(child))
    }

    /// Whether the current call may have children although none was found: they hide by always being new ones. If other
    /// processes live on, what was reaped a moment ago shows that.
    fn has_hidden_children(&self) -> bool {
        let has_children = self.adopts_orphans && self.has_children();
        let is_changing = self.unknown_reaped_at().is_some_and(|at| at.elapsed() < QUIET_TIME);
        let is_alone = !self.has_foreign && self.known().is_empty();
        has_children && (is_alone || is_changing)
    }

    /// The processes among `candidates` that have the mark of a call: what is left to go by where orphans are adopted by
    /// another process, because an emulator of another processor does not know how to change that.
    fn marked(&self, candidates: Vec<ProcessStat>) -> Vec<(ProcessStat, ProcessOwner)> {
        let known = self.known();
        candidates
            .into_iter()
            .filter_map(|process| {
                let mark = read_mark(process.pid).ok().flatten()?;
                Some((process, known.owner_of_mark(mark)?))
            })
            .collect()
    }

    /// The descendants of this process among `candidates`, parents before children.
    fn descendants(&self, candidates: Vec<ProcessStat>) -> Vec<(ProcessStat, ProcessOwner)> {
        let mut children: HashMap<i32, Vec<ProcessStat>> = HashMap::new();
        for process in candidates {
            children.entry(process.parent).or_default().push(process);
        }
        let known = self.known();
        let own_pid = rustix::process::getpid().as_raw_pid();
        let mut descendants = Vec::new();
        let mut queue = vec![(own_pid, None)];
        while let Some((parent, owner_of_parent)) = queue.pop() {
            for process in children.remove(&parent).unwrap_or_default() {
                if is_helper(process.pid) {
                    continue;
                }
                let owner = owner_of_parent.unwrap_or_else(|| self.owner_of(&known, process));
                let inherited = Some(owner).filter(|owner| *owner != ProcessOwner::Ended);
                queue.push((process.pid.as_raw_pid(), inherited));
                descendants.push((process, owner));
            }
        }
        descendants
    }

    /// To whom a child of this process belongs; its descendants belong to the same.
    fn owner_of(&self, known: &KnownProcesses, process: ProcessStat) -> ProcessOwner {
        let same = known
            .processes
            .iter()
            .find(|known| (known.pid, known.start_time) == process.identity());
        if let Some(same) = same {
            return same.owner;
        }
        if known.is_empty() && !self.has_foreign {
            return ProcessOwner::Call;
        }
        if known.active.iter().any(|call| call.leader == process.pid) {
            return known.owner_of_active(process.pid);
        }
        // An orphan has the mark of the process that started it.
        let Ok(mark) = read_mark(process.pid) else { return ProcessOwner::Ended };
        if let Some(owner) = mark.and_then(|mark| known.owner_of_mark(mark)) {
            return owner;
        }
        let same_mark =
            known.processes.iter().find(|known| known.mark.is_some() && known.mark == mark);
        if let Some(known) = same_mark {
            return known.owner;
        }
        let is_marked = mark.is_some_and(|mark| mark.is_below(self.own_limit));
        if self.has_foreign && self.level().is_some() && !is_marked {
            return ProcessOwner::Foreign;
        }
        ProcessOwner::Call
    }

    /// The processes of the run among `candidates` that are alive and whose owner fulfils `predicate`; reaps the dead ones.
    fn find_alive(
        &self,
        candidates: Vec<ProcessStat>,
        predicate: impl Fn(ProcessOwner) -> bool,
    ) -> Vec<ProcessStat> {
        let processes = if !self.adopts_orphans {
            self.marked(candidates)
        } else if self.has_children() {
            self.descendants(candidates)
        } else {
            Vec::new()
        };
        processes
            .into_iter()
            .filter(|(process, owner)| !process.is_ending && predicate(*owner))
            .map(|(process, _)| process)
            .collect()
    }
}

/// The processes of one call.
#[derive(Debug)]
pub(super) struct CallProcesses {
    run: RunProcesses,
    background: Background,
    mark: Option<CallMark>,
    is_limited: bool,
    groups: Vec<CallGroup>,
    /// The command, once it has started.
    leader: Option<Pid>,
}

impl Drop for CallProcesses {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            self.run.0.known().active.retain(|call| call.leader != leader);
        }
        if let Some(limiter) = self.run.0.limiter.get() {
            limiter.remove_groups(std::mem::take(&mut self.groups));
        }
    }
}

impl CallProcesses {
    /// What the call's command does to itself so that its limits hold.
    pub(super) fn child_limits(&self) -> io::Result<ChildLimits> {
        match self.run.0.limiter.get().filter(|_| self.is_limited) {
            Some(limiter) => limiter.child_limits(&self.groups),
            None => Ok(ChildLimits::default()),
        }
    }

    /// The resource limit for the call's command.
    pub(super) fn mark(&self) -> Option<CallMark> {
        self.mark
    }

    /// The call is running from now on, with the command `leader`.
    pub(super) fn begin(&mut self, leader: Pid) {
        self.leader = Some(leader);
        self.run.0.known().active.push(ActiveCall { leader, mark: self.mark, end: None });
    }

    /// Makes what becomes of `pid`, the command of this call, and of what it starts, independent of other calls.
    pub(super) fn remember_service(&self, pid: Pid) {
        let owner = ProcessOwner::Earlier(self.background);
        self.run.0.remember(ProcessStat::read(pid).into_iter(), owner);
        if let Some(mark) = self.mark {
            self.run.0.known().calls.push((mark, self.background));
        }
    }

    /// The run is left when the relay has ended, if that follows the end of the run's processes.
    pub(super) fn keep_relay(&self, relay: Relay) {
        if self.background == Background::Run {
            self.run.0.relays().push(relay);
        }
    }

    /// Reaps every dead child; returns how the command `leader` ended, if it was among them.
    pub(super) fn reap(&self, leader: Pid) -> Option<ProcessEnd> {
        let mut end = None;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == leader => end = end_from_status(status),
                Ok(Some((pid, status))) => {
                    forget_helper(pid);
                    self.run.0.known().note_end(pid, status);
                }
                Err(Errno::INTR) => {}
                // Others are alive, and a search among them may have reaped the command.
                Ok(None) => {
                    return end.or_else(|| self.noted_end(leader)).or_else(|| find_end(leader));
                }
                // The status of the command was lost (SIGCHLD is ignored), and an unknown end must not count as success.
                Err(_) => {
                    let end = end.or_else(|| self.noted_end(leader));
                    return end.or(Some(ProcessEnd::Exited(1)));
                }
            }
        }
    }

    /// How the command ended, if the search for the processes of a call has reaped it.
    fn noted_end(&self, leader: Pid) -> Option<ProcessEnd> {
        let known = self.run.0.known();
        known.active.iter().find(|call| call.leader == leader)?.end.clone()
    }

    /// Whether descent distinguishes the call's processes from all others.
    pub(super) fn is_supervised(&self) -> bool {
        self.run.0.adopts_orphans
    }

    /// The processes of the call that are alive, its command included.
    pub(super) fn find_alive(&self) -> Vec<ProcessStat> {
        self.find_alive_among(all_processes())
    }

    fn find_alive_among(&self, candidates: Vec<ProcessStat>) -> Vec<ProcessStat> {
        let is_last = self.run.0.known().active.len() < 2;
        self.run.0.find_alive(candidates, |owner| match owner {
            ProcessOwner::Call => is_last,
            ProcessOwner::Active(leader) => self.leader == Some(leader),
            ProcessOwner::Earlier(_) | ProcessOwner::Foreign | ProcessOwner::Ended => false,
        })
    }

    /// Ends the processes that the call leaves running, or remembers them, as `background` says. Call this when its command has ended.
    pub(super) fn settle(&self, secrets: &Secrets, cancel: &CancelToken) -> LeftProcesses {
        if !self.run.0.may_have_unknown_processes() {
            return LeftProcesses::default();
        }
        if matches!(self.background, Background::End | Background::Survive) {
            return self.end(secrets, cancel);
        }
        let processes = self.find_settled();
        let mut left = LeftProcesses::default();
        if self.background == Background::Keep {
            left.running = describe_processes(&processes, secrets);
        }
        self.run.0.remember(processes.into_iter(), ProcessOwner::Earlier(self.background));
        if let Some(mark) = self.mark {
            self.run.0.known().calls.push((mark, self.background));
        }
        left
    }

    /// The processes of the call that are alive, when two looks in a row have found the same: a daemon that forks and
    /// exits at the moment of one look hides its child from it.
    fn find_settled(&self) -> Vec<ProcessStat> {
        let mut processes = self.find_alive();
        for _ in 0..MAX_LOOKS {
            let found_before = processes;
            processes = self.find_alive();
            let is_same = processes
                .iter()
                .map(ProcessStat::identity)
                .eq(found_before.iter().map(ProcessStat::identity));
            if is_same && !(processes.is_empty() && self.run.0.has_hidden_children()) {
                break;
            }
        }
        processes
    }

    /// Ends what is alive of the call after it was terminated.
    pub(super) fn end_rest(&self, secrets: &Secrets, cancel: &CancelToken) {
        if self.run.0.may_have_unknown_processes() {
            self.end(secrets, cancel);
        }
    }

    fn end(&self, secrets: &Secrets, cancel: &CancelToken) -> LeftProcesses {
        // Described before they end.
        let mut commands = HashMap::new();
        let EndedProcesses { found: processes, surviving } = end_processes(
            TERMINATION_GRACE,
            cancel,
            |candidates| {
                let processes = self.find_alive_among(candidates);
                for process in &processes {
                    commands
                        .entry(process.identity())
                        .or_insert_with(|| describe_command(process.pid, secrets));
                }
                processes
            },
            || self.run.0.has_hidden_children(),
        );
        let mut left = LeftProcesses::default();
        for process in processes {
            let survives = surviving.iter().any(|other| other.identity() == process.identity());
            let list = if survives { &mut left.running } else { &mut left.ended };
            let command = commands.remove(&process.identity());
            list.extend(command.filter(|_| list.len() < MAX_LISTED_PROCESSES));
        }
        // What cannot be ended does not belong to the next call.
        self.run.0.remember(surviving.into_iter(), ProcessOwner::Earlier(Background::Keep));
        left
    }
}

/// How the command `leader` ended, if it has. The status of one that was reaped elsewhere is lost.
fn find_end(leader: Pid) -> Option<ProcessEnd> {
    match waitpid(Some(leader), WaitOptions::NOHANG) {
        Ok(Some((_, status))) => end_from_status(status),
        Err(Errno::CHILD) => Some(ProcessEnd::Exited(1)),
        Ok(None) | Err(_) => None,
    }
}

fn describe_processes(processes: &[ProcessStat], secrets: &Secrets) -> Vec<String> {
    let listed = processes.iter().take(MAX_LISTED_PROCESSES);
    listed.map(|process| describe_command(process.pid, secrets)).collect()
}
