//! A mark that the processes of a run cannot take off: a number in a resource limit.
//!
//! A process can clear its environment, leave its session and lose its parents. But a hard resource limit is inherited
//! through all of that, every process can read it in /proc/PID/limits, and only a privileged process can raise it. So every
//! child of a run gets a hard limit RLIMIT_RTTIME whose value names the run and the call. That limit only concerns
//! real-time scheduling, in microseconds of one burst; values of thousands of years never take effect.
//!
//! A run inside a run has to lower the limit that it inherits. So the high bits say how many levels of runs may be below: a
//! process can make them fewer, and never more, whatever it does. The rest follows from the run's id and directory, so
//! nothing has to be recorded. A process that lowers its limit further loses the mark, and may start no run.

use delta_base::hex;
use std::path::Path;

/// The low bits of a number: a counter for the call, and one bit for [`CallMark::is_kept`].
const CALL_BITS: u32 = 18;
/// The bits of a number below its [`MarkLevel`].
const LEVEL_SHIFT: u32 = 53;
/// The most levels of runs below a run.
pub const MAX_RUN_LEVELS: u32 = 254;
/// The highest bit of the counter for the call, which no run reaches that has fewer than 65,536 calls: the call has a holder,
/// and the rest is not a counter.
const HELD_CALL_BIT: u32 = 1 << (CALL_BITS - 2);

/// What the marks of all processes of a run have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunMark {
    hash: u64,
}

/// What the marks of the processes of a call have in common whose holder outlives the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldCallMark {
    run: RunMark,
    number: u32,
}

impl HeldCallMark {
    /// The mark of the call whose directory in the run directory has this name.
    pub fn new(run: RunMark, name: &str) -> Self {
        Self { run, number: held_call_number(name) }
    }

    /// Whether a process of the call, at whatever level, has this mark.
    pub(super) fn includes(self, mark: CallMark) -> bool {
        let call = mark.0 & low_bits(CALL_BITS);
        self.run.includes(mark) && call == (u64::from(self.number) << 1 | 1)
    }
}

/// The number of a call in the marks of what its holder starts.
pub(super) fn held_call_number(name: &str) -> u32 {
    let digest = hex::sha256_hex(name);
    let hash = u32::from_str_radix(&digest[..8], 16).unwrap_or_default();
    HELD_CALL_BIT | hash & (HELD_CALL_BIT - 1)
}

/// The high bits of a mark: how many levels of runs may be below, and one bit that is missing where a process is marked
/// again that has a mark of the run, as the holder of a call has. So the number is lower there too. The highest number is
/// below the sign, which the kernel's limits have in places, and the lowest one is 285 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MarkLevel(u32);

impl MarkLevel {
    const LOWEST: Self = Self(2);
    const HIGHEST: Self = Self(2 * MAX_RUN_LEVELS + 3);

    /// The level of the calls of a run with so many levels of runs below.
    pub(super) fn of_calls(run_levels: u32) -> Self {
        Self(2 * run_levels.min(MAX_RUN_LEVELS) + 3)
    }

    /// The level of what a process with this level marks for the same run; `None` if it was marked so itself.
    fn marked_again(self) -> Option<Self> {
        (self.0 & 1 == 1).then_some(Self(self.0 & !1))
    }

    /// The level of a hard limit; `None` for one that is above all marks.
    fn of_limit(limit: u64) -> Option<Self> {
        let level = u32::try_from(limit >> LEVEL_SHIFT).ok()?;
        (level <= Self::HIGHEST.0).then_some(Self(level))
    }

    /// How many levels of runs may be below a process with this level.
    fn run_levels(self) -> u32 {
        (self.0 / 2).saturating_sub(1)
    }

    fn is_mark(self) -> bool {
        (Self::LOWEST.0..=Self::HIGHEST.0).contains(&self.0)
    }
}

/// The mark of the processes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallMark(u64);

impl RunMark {
    /// The mark of the run `run_id`, whose directory is `run_dir`, an absolute path.
    pub fn new(run_id: &str, run_dir: &Path) -> Self {
        let digest = hex::sha256_hex(format!("{run_id}\0{}", run_dir.display()));
        Self { hash: u64::from_str_radix(&digest[..16], 16).unwrap_or_default() }
    }

    /// The mark of a call.
    pub(super) fn for_call(self, level: MarkLevel, call: u32, is_kept: bool) -> CallMark {
        let call = (u64::from(call) << 1) & low_bits(CALL_BITS) | u64::from(is_kept);
        CallMark(u64::from(level.0) << LEVEL_SHIFT | self.run_bits() | call)
    }

    /// Whether a call of the run, at whatever level, has this mark.
    pub(super) fn includes(self, mark: CallMark) -> bool {
        let run_bits = low_bits(LEVEL_SHIFT) & !low_bits(CALL_BITS);
        MarkLevel::of_limit(mark.0).is_some_and(MarkLevel::is_mark)
            && mark.0 & run_bits == self.run_bits()
    }

    fn run_bits(self) -> u64 {
        (self.hash & low_bits(LEVEL_SHIFT - CALL_BITS)) << CALL_BITS
    }
}

fn low_bits(count: u32) -> u64 {
    (1 << count) - 1
}

impl CallMark {
    /// Whether the processes of the call outlive the run.
    pub(super) fn is_kept(self) -> bool {
        self.0 & 1 == 1
    }

    /// The mark in the text of /proc/PID/limits; `None` for a process that has no such limit.
    pub(super) fn from_limits(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
        let hard = line.split_whitespace().nth(1)?;
        hard.parse().ok().map(Self)
    }

    /// Whether a process with this mark can descend from a process with `limit`, `None` if it is unlimited.
    pub(super) fn is_below(self, limit: Option<u64>) -> bool {
        limit.is_none_or(|limit| self.0 < limit)
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::{CallMark, MarkLevel, RunMark};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// How many levels of runs this process may start, as its mark says: none if it has lowered its limit below all marks.
    /// `None` for a process without a mark.
    pub fn marked_run_levels() -> Option<u32> {
        getrlimit(Resource::Rttime).maximum.and_then(MarkLevel::of_limit).map(MarkLevel::run_levels)
    }

    /// The hard limit of this process, and the highest level of the marks that it can set for the run of its own mark;
    /// `None` for no such level.
    pub(in super::super) fn own_limit() -> (Option<u64>, Option<MarkLevel>) {
        let hard_limit = getrlimit(Resource::Rttime).maximum;
        let level = match hard_limit.and_then(MarkLevel::of_limit) {
            None => Some(MarkLevel::HIGHEST),
            Some(level) => level.marked_again().filter(|level| level.is_mark()),
        };
        (hard_limit, level)
    }

    impl RunMark {
        /// Whether this process belongs to a call of the run.
        pub fn is_of_this_process(self) -> bool {
            let limit = getrlimit(Resource::Rttime).maximum;
            limit.is_some_and(|limit| self.includes(CallMark(limit)))
        }
    }

    impl CallMark {
        /// Marks this process. For use between fork and exec: a system call without allocation. Where the kernel refuses
        /// it, the process is not marked.
        pub(in super::super) fn apply(self) {
            let limit = Some(self.0);
            let _ = setrlimit(Resource::Rttime, Rlimit { current: limit, maximum: limit });
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    /// Other systems have no marks.
    pub fn marked_run_levels() -> Option<u32> {
        None
    }

    impl super::RunMark {
        /// Other systems have no marks.
        pub fn is_of_this_process(self) -> bool {
            false
        }
    }

    /// Other systems have no such limit.
    pub(in super::super) fn own_limit() -> (Option<u64>, Option<super::MarkLevel>) {
        (None, None)
    }
}

pub use system::marked_run_levels;
pub(super) use system::own_limit;

#[cfg(test)]
mod tests {
    use super::*;

    fn levels() -> impl Iterator<Item = MarkLevel> {
        (MarkLevel::LOWEST.0..=MarkLevel::HIGHEST.0).map(MarkLevel)
    }

    #[test]
    fn c_22_1_a_mark_names_its_run_at_every_level() {
        let run = RunMark::new("r", Path::new("/w/.delta/r"));
        let others = [
            RunMark::new("r", Path::new("/v/.delta/r")),
            RunMark::new("s", Path::new("/w/.delta/r")),
        ];
        for level in levels() {
            for (call, is_kept) in [(0, false), (1, true), (u32::MAX, false)] {
                let mark = run.for_call(level, call, is_kept);
                assert!(run.includes(mark) && mark.is_kept() == is_kept);
                assert!(others.iter().all(|other| !other.includes(mark)));
            }
            assert_ne!(run.for_call(level, 1, false), run.for_call(level, 2, false));
        }
        assert!([0, 1, u64::MAX].iter().all(|limit| !run.includes(CallMark(*limit))));
    }

    #[test]
    fn c_27_3_the_mark_of_a_held_call_names_it_at_every_level() {
        let run = RunMark::new("r", Path::new("/w/.delta/r"));
        let held_call = HeldCallMark::new(run, "call_1_1");
        let others = [
            HeldCallMark::new(run, "call_1_2"),
            HeldCallMark::new(RunMark::new("s", Path::new("/w")), "call_1_1"),
        ];
        for level in levels() {
            let mark = run.for_call(level, held_call_number("call_1_1"), true);
            assert!(run.includes(mark) && held_call.includes(mark));
            assert!(others.iter().all(|other| !other.includes(mark)));
        }
        assert!(!held_call.includes(run.for_call(MarkLevel::HIGHEST, 1, true)));
    }

    #[test]
    fn c_22_1_every_mark_of_a_level_is_below_all_of_the_level_above() {
        let runs = ["a", "b", "c"].map(|id| RunMark::new(id, Path::new("/w")));
        for level in levels().skip(1) {
            for (run, above) in runs.iter().flat_map(|run| runs.iter().map(move |up| (run, up))) {
                let above = above.for_call(level, 0, false);
                let below = run.for_call(MarkLevel(level.0 - 1), u32::MAX, true);
                assert!(below.is_below(Some(above.0)));
            }
        }
    }

    #[test]
    fn c_22_2_a_mark_says_how_many_levels_of_runs_are_allowed() {
        let run = RunMark::new("r", Path::new("/w"));
        let allowed = |mark: CallMark| MarkLevel::of_limit(mark.0).map(MarkLevel::run_levels);
        for run_levels in 0..=MAX_RUN_LEVELS {
            let level = MarkLevel::of_calls(run_levels);
            let held_call = level.marked_again().unwrap();
            assert_eq!(allowed(run.for_call(level, u32::MAX, true)), Some(run_levels));
            assert_eq!(allowed(run.for_call(held_call, 0, false)), Some(run_levels));
            assert_eq!(held_call.marked_again(), None);
        }
        assert_eq!(allowed(CallMark(5)), Some(0));
        assert_eq!(allowed(CallMark(1 << 62)), None);
    }

    #[test]
    fn c_22_1_the_mark_is_the_hard_limit() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max realtime priority     0                    0                    \n\
                    Max realtime timeout      5                    4611686018427387905  us        \n";
        assert_eq!(CallMark::from_limits(text), Some(CallMark(4_611_686_018_427_387_905)));
        let none = "Max realtime timeout      unlimited            unlimited            us\n";
        assert_eq!((CallMark::from_limits(none), CallMark::from_limits("")), (None, None));
    }
}
