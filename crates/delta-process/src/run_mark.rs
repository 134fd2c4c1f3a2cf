//! A mark that the processes of a run cannot take off: a number in a resource limit.
//!
//! A process can clear its environment, leave its session and lose its parents. But a hard resource limit is inherited
//! through all of that, every process can read it in /proc/PID/limits, and only a privileged process can raise it. So every
//! child of a run gets a hard limit RLIMIT_RTTIME whose value names the run and the call. That limit only concerns
//! real-time scheduling, in microseconds of one burst; values of thousands of years never take effect.
//!
//! A run inside a run has to lower the limit that it inherits: each level of nesting has a range of its own, and nothing
//! has to be recorded, because the number follows from the run's id and directory. A process that lowers its limit
//! further loses the mark.

use delta_base::hex;
use std::path::Path;

/// The low bits of a number: a counter for the call, and one bit for [`CallMark::is_kept`].
const CALL_BITS: u32 = 18;
/// Deeper runs are not marked: too few bits would be left to tell runs apart.
const MAX_LEVEL: u32 = 12;
/// The highest bit of the counter for the call, which no run reaches that has fewer than 65,536 calls: the call has a holder,
/// and the rest is not a counter.
const HELD_CALL_BIT: u32 = 1 << (CALL_BITS - 2);
/// The highest bit of a number at level 0. The kernel's limits are signed in places.
const TOP_BIT: u32 = 62;

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

/// The mark of the processes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallMark(u64);

impl RunMark {
    /// The mark of the run `run_id`, whose directory is `run_dir`, an absolute path.
    pub fn new(run_id: &str, run_dir: &Path) -> Self {
        let digest = hex::sha256_hex(format!("{run_id}\0{}", run_dir.display()));
        Self { hash: u64::from_str_radix(&digest[..16], 16).unwrap_or_default() }
    }

    /// The mark of a call; `None` when the nesting is too deep.
    pub(super) fn for_call(self, level: u32, call: u32, is_kept: bool) -> Option<CallMark> {
        let top = (level <= MAX_LEVEL).then(|| TOP_BIT - level)?;
        let run = (self.hash & low_bits(top - CALL_BITS)) << CALL_BITS;
        let call = (u64::from(call) << 1) & low_bits(CALL_BITS) | u64::from(is_kept);
        Some(CallMark(1 << top | run | call))
    }

    /// Whether a call of the run, at whatever level, has this mark.
    pub(super) fn includes(self, mark: CallMark) -> bool {
        let levels = TOP_BIT - MAX_LEVEL..=TOP_BIT;
        let Some(top) = mark.0.checked_ilog2().filter(|top| levels.contains(top)) else {
            return false;
        };
        let bits = low_bits(top - CALL_BITS);
        (mark.0 >> CALL_BITS) & bits == self.hash & bits
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
    use super::{CallMark, MAX_LEVEL, TOP_BIT};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// How many runs are around this process, as its mark says, and at most one more than the marks can count.
    pub fn marked_depth() -> u32 {
        let top = getrlimit(Resource::Rttime).maximum.and_then(u64::checked_ilog2);
        let level = top.and_then(|top| (TOP_BIT + 1).checked_sub(top)).unwrap_or(0);
        // A lower limit is not a mark.
        if level <= MAX_LEVEL + 1 { level } else { 0 }
    }

    /// The hard limit of this process, and the level of the marks that it can set; `None` for no such level.
    pub(in super::super) fn own_limit() -> (Option<u64>, Option<u32>) {
        let hard_limit = getrlimit(Resource::Rttime).maximum;
        let level = match hard_limit.map(|limit| limit.checked_ilog2()) {
            None => Some(0),
            // The marks of a level are below the lowest one of the level above.
            Some(Some(top)) if top > TOP_BIT => Some(0),
            Some(Some(top)) => Some(TOP_BIT - top + 1),
            Some(None) => None,
        };
        (hard_limit, level.filter(|level| *level <= MAX_LEVEL))
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
    pub fn marked_depth() -> u32 {
        0
    }

    /// Other systems have no such limit.
    pub(in super::super) fn own_limit() -> (Option<u64>, Option<u32>) {
        (None, None)
    }
}

pub use system::marked_depth;
pub(super) use system::own_limit;

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(run: RunMark, level: u32, call: u32, is_kept: bool) -> CallMark {
        run.for_call(level, call, is_kept).unwrap()
    }

    #[test]
    fn c_22_1_a_mark_names_its_run_at_every_level() {
        let run = RunMark::new("r", Path::new("/w/.delta/r"));
        let others = [
            RunMark::new("r", Path::new("/v/.delta/r")),
            RunMark::new("s", Path::new("/w/.delta/r")),
        ];
        for level in 0..=MAX_LEVEL {
            for (call, is_kept) in [(0, false), (1, true), (u32::MAX, false)] {
                let mark = mark(run, level, call, is_kept);
                assert!(run.includes(mark) && mark.is_kept() == is_kept);
                assert!(others.iter().all(|other| !other.includes(mark)));
            }
            assert_ne!(mark(run, level, 1, false), mark(run, level, 2, false));
        }
        assert_eq!(run.for_call(MAX_LEVEL + 1, 0, false), None);
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
        for level in 0..=MAX_LEVEL {
            let mark = mark(run, level, held_call_number("call_1_1"), true);
            assert!(run.includes(mark) && held_call.includes(mark));
            assert!(others.iter().all(|other| !other.includes(mark)));
        }
        assert!(!held_call.includes(mark(run, 0, 1, true)));
    }

    #[test]
    fn c_22_1_every_mark_of_a_level_is_below_all_of_the_level_above() {
        let runs = ["a", "b", "c"].map(|id| RunMark::new(id, Path::new("/w")));
        for level in 1..=MAX_LEVEL {
            for (run, above) in runs.iter().flat_map(|run| runs.iter().map(move |up| (run, up))) {
                let above = mark(*above, level - 1, 0, false);
                assert!(mark(*run, level, u32::MAX, true).is_below(Some(above.0)));
            }
        }
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
