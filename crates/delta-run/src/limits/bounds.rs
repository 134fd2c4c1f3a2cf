//! The bounds of a run: how many calls of an answer are run, how deep runs are nested, and what one call may use.

use delta_base::quantity::parse_bytes;
use delta_base::signal::MAX_CHILD_GROUPS;
use delta_process::CallLimits;
use delta_yaml::yaml::YamlDocument;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, MappingFields, ValueShape};

/// The variable that contains the depth of the run that started a process.
pub const DEPTH_VARIABLE: &str = "DELTA_DEPTH";
/// The variable that contains the depth that no run below the run that started a process exceeds.
pub const MAX_DEPTH_VARIABLE: &str = "DELTA_MAX_DEPTH";

/// The largest limit of levels.
pub const MAX_DEPTH: u32 = delta_process::MAX_RUN_LEVELS;
/// The largest limit of processes, as many as Linux has ids.
pub const MAX_PROCESSES: u64 = (1 << 22) - 1;

const DEFAULT_CALLS_PER_ANSWER: u32 = 128;
const DEFAULT_DEPTH: u32 = 8;
const DEFAULT_PARALLEL: u32 = 4;
const DEFAULT_REPEATS: u32 = 3;
/// The most calls that may run at the same time.
pub const MAX_PARALLEL: u32 = MAX_CHILD_GROUPS as u32;
/// Fewer bytes are not enough for the records of a few calls.
const MIN_DISK_BYTES: u64 = 1 << 20;
/// Fewer bytes are not enough to start a program.
const MIN_MEMORY_BYTES: u64 = 16 << 20;

pub(crate) const CALLS_PER_ANSWER_KEY: KeySchema = KeySchema::with_default(
    "calls_per_answer",
    ValueShape::Integer(1..1 << 32),
    DefaultValue::Integer(DEFAULT_CALLS_PER_ANSWER as u64),
    "The calls of one LLM answer that are run; each further call gets an observation. `--max-calls-per-answer` overrides it.",
);
pub(crate) const PARALLEL_KEY: KeySchema = KeySchema::with_default(
    "parallel",
    ValueShape::Integer(1..MAX_PARALLEL as u64 + 1),
    DefaultValue::Integer(DEFAULT_PARALLEL as u64),
    "The calls of tools with `parallel: true` that run at the same time. `--max-parallel` overrides it.",
);
pub(crate) const REPEATS_KEY: KeySchema = KeySchema::with_default(
    "repeats",
    ValueShape::Integer(0..1 << 32),
    DefaultValue::Integer(DEFAULT_REPEATS as u64),
    "How often the same call may have the same result in a row: then the LLM gets a note, and one more fails the run. 0 means no limit; a script has none unless the key is set.",
);
pub(crate) const DEPTH_KEY: KeySchema = KeySchema::with_default(
    "depth",
    ValueShape::Integer(0..MAX_DEPTH as u64 + 1),
    DefaultValue::Integer(DEFAULT_DEPTH as u64),
    "The levels of runs below this one that its tools and hooks may start. `--max-depth` overrides it.",
);
pub(crate) const PROCESSES_KEY: KeySchema = KeySchema::optional(
    "processes",
    ValueShape::Integer(1..MAX_PROCESSES + 1),
    "The processes and threads of one tool call, where the kernel can count them. `--max-processes` overrides it.",
);
pub(crate) const MEMORY_KEY: KeySchema = KeySchema::optional(
    "memory",
    ValueShape::Pattern("[0-9]+[KMGT]"),
    "The memory of one tool call, such as 512M or 2G. `--max-memory` overrides it.",
);

pub(crate) const DISK_KEY: KeySchema = KeySchema::optional(
    "disk",
    ValueShape::Pattern("[0-9]+[KMGT]"),
    "What the calls of a run may leave in its directory, such as 500M or 2G. `--max-disk` overrides it.",
);

/// The bounds of a run. `None` is the default: unlimited for `processes`, `memory` and `disk`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunBounds {
    /// The most calls of an answer that are run.
    pub calls_per_answer: Option<u32>,
    /// The most calls that run at the same time.
    pub parallel: Option<u32>,
    /// How often the same call may have the same result in a row; 0 means no limit.
    pub repeats: Option<u32>,
    /// The levels of runs that may be below the run.
    pub depth: Option<u32>,
    /// The most processes and threads of a tool call.
    pub processes: Option<u64>,
    /// The most bytes of memory of a tool call.
    pub memory: Option<u64>,
    /// The most bytes that the calls of the run may leave in its directory.
    pub disk: Option<u64>,
}

impl RunBounds {
    /// Reads the bounds among the entries of the section `limits`.
    pub fn read(doc: &YamlDocument, fields: MappingFields<'_>) -> Self {
        let small = |name: &str| {
            fields.non_null(name)?;
            u32::try_from(fields.integer(name)?).ok()
        };
        let memory = fields.non_null(MEMORY_KEY.name).and_then(|node| {
            let parsed = parse_memory(node.scalar()?);
            parsed.map_err(|message| doc.report(node, format!("`memory`: {message}"), None)).ok()
        });
        let disk = fields.non_null(DISK_KEY.name).and_then(|node| {
            let parsed = parse_disk(node.scalar()?);
            parsed.map_err(|message| doc.report(node, format!("`disk`: {message}"), None)).ok()
        });
        Self {
            calls_per_answer: small(CALLS_PER_ANSWER_KEY.name),
            parallel: small(PARALLEL_KEY.name),
            repeats: small(REPEATS_KEY.name),
            depth: small(DEPTH_KEY.name),
            processes: fields.integer(PROCESSES_KEY.name),
            memory,
            disk,
        }
    }

    /// These bounds, with each missing one taken from `others`.
    pub fn or(self, others: Self) -> Self {
        Self {
            calls_per_answer: self.calls_per_answer.or(others.calls_per_answer),
            parallel: self.parallel.or(others.parallel),
            repeats: self.repeats.or(others.repeats),
            depth: self.depth.or(others.depth),
            processes: self.processes.or(others.processes),
            memory: self.memory.or(others.memory),
            disk: self.disk.or(others.disk),
        }
    }

    /// The limits of each tool call.
    pub fn call_limits(&self) -> CallLimits {
        CallLimits { processes: self.processes, memory: self.memory }
    }

    /// The most calls of an answer that are run.
    pub fn max_calls_per_answer(&self) -> u32 {
        self.calls_per_answer.unwrap_or(DEFAULT_CALLS_PER_ANSWER)
    }

    /// How often the same call may have the same result in a row; `None` without a limit, as for a script.
    pub fn max_repeats(&self, is_script: bool) -> Option<u32> {
        let default = if is_script { 0 } else { DEFAULT_REPEATS };
        Some(self.repeats.unwrap_or(default)).filter(|limit| *limit > 0)
    }

    /// The most calls that run at the same time.
    pub fn max_parallel(&self) -> usize {
        self.parallel.unwrap_or(DEFAULT_PARALLEL) as usize
    }
}

/// Parses an amount of memory such as `512M`, with binary units, into bytes.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text) {
        Some(bytes) if bytes >= MIN_MEMORY_BYTES => Ok(bytes),
        Some(_) => Err("expected at least 16M".to_owned()),
        None => Err("expected an amount with a unit, such as 512M or 2G".to_owned()),
    }
}

/// Parses an amount of disk space such as `500M`, with binary units, into bytes.
pub fn parse_disk(text: &str) -> Result<u64, String> {
    match parse_bytes(text) {
        Some(bytes) if bytes >= MIN_DISK_BYTES => Ok(bytes),
        Some(_) => Err("expected at least 1M".to_owned()),
        None => Err("expected an amount with a unit, such as 500M or 2G".to_owned()),
    }
}

/// How deep a run is nested: a run that a tool, hook or generator starts is one level deeper than theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nesting {
    /// The runs around the run.
    pub depth: u32,
    /// The depth that no run below exceeds.
    pub max_depth: u32,
}

impl Nesting {
    /// The nesting of a run, from the values of [`DEPTH_VARIABLE`] and [`MAX_DEPTH_VARIABLE`]. A tool can remove or change
    /// them, but not `marked_levels`, the levels of runs that this process may start, which the kernel knows: `None` for no
    /// limit. `bound` is [`RunBounds::depth`].
    ///
    /// # Errors
    /// The run is too deep.
    pub fn new(
        depth: Option<&str>,
        max_depth: Option<&str>,
        marked_levels: Option<u32>,
        bound: Option<u32>,
    ) -> Result<Self, Self> {
        let outer_depth = depth.and_then(|text| text.parse::<u32>().ok());
        let outer_depth = outer_depth.or(marked_levels.map(|_| 0));
        let depth = outer_depth.map_or(0, |outer| outer.saturating_add(1));
        let inherited = max_depth.and_then(|text| text.parse().ok());
        let inherited = inherited.or((depth > 0).then_some(DEFAULT_DEPTH));
        let marked = marked_levels.map(|levels| outer_depth.unwrap_or(0).saturating_add(levels));
        let requested = bound.map(|bound| depth.saturating_add(bound));
        let limits = [inherited, marked, requested];
        let max_depth = limits.into_iter().flatten().min().unwrap_or(DEFAULT_DEPTH);
        let nesting = Self { depth, max_depth };
        if depth > max_depth { Err(nesting) } else { Ok(nesting) }
    }

    /// How many levels of runs may be below the run.
    pub fn levels_below(self) -> u32 {
        self.max_depth.saturating_sub(self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_22_2_an_amount_of_memory_has_a_unit() {
        assert_eq!(parse_memory("512M"), Ok(512 << 20));
        assert_eq!(parse_memory("16384K"), Ok(16 << 20));
        assert_eq!(parse_memory("2T"), Ok(2 << 40));
        for text in ["", "M", "512", "1.5G", "-1G", "2g", "2GB", "99999999T"] {
            assert!(parse_memory(text).is_err_and(|error| error.contains("unit")), "{text}");
        }
        assert_eq!(parse_memory("15M"), Err("expected at least 16M".to_owned()));
    }

    #[test]
    fn c_22_2_the_smallest_depth_of_all_runs_around_counts() {
        let nesting = |variables: (&str, &str), marked_levels, bound| {
            let (depth, max_depth) = variables;
            Nesting::new(Some(depth), Some(max_depth), marked_levels, bound)
        };
        let deep = |depth, max_depth| Nesting { depth, max_depth };
        assert_eq!(Nesting::new(None, None, None, None), Ok(deep(0, 8)));
        assert_eq!(Nesting::new(None, None, None, Some(20)), Ok(deep(0, 20)));
        assert_eq!(nesting(("0", "8"), Some(8), None), Ok(deep(1, 8)));
        assert_eq!(nesting(("2", "20"), Some(18), Some(1)), Ok(deep(3, 4)));
        assert_eq!(nesting(("7", "8"), Some(1), Some(5)), Ok(deep(8, 8)));
        assert_eq!(nesting(("8", "8"), Some(0), Some(5)), Err(deep(9, 8)));
        // The variables were removed or changed.
        assert_eq!(Nesting::new(None, None, Some(3), Some(20)), Ok(deep(1, 3)));
        assert_eq!(Nesting::new(None, None, Some(100), Some(20)), Ok(deep(1, 8)));
        assert_eq!(Nesting::new(None, None, Some(0), Some(20)), Err(deep(1, 0)));
        assert_eq!(nesting(("x", "60000"), Some(1), None), Ok(deep(1, 1)));
        assert_eq!(nesting(("0", "60000"), Some(2), None), Ok(deep(1, 2)));
        assert_eq!(nesting(("4", "60000"), Some(0), None), Err(deep(5, 4)));
    }
}
