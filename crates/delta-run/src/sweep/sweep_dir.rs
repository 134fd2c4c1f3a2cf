//! The directory of a sweep: where each of its files is, and what its plans say about every run.

use delta_base::durable::{self, FileError};
use delta_base::hex::encode_hex;
use delta_base::id::RunId;
use delta_base::random;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

/// The version of plans that this delta reads and writes.
pub const PLAN_VERSION: u32 = 1;

/// The number of digits of the hash in a run's id.
pub const HASH_DIGITS: usize = 16;
/// The name of the first plan in the directory of a sweep.
pub const PLAN_FILE: &str = "plan.jsonl";

/// The directory of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepDir {
    /// Its path.
    pub root: PathBuf,
    /// Where its runs are, with their results and grades: `root`, or the directory for forks of them.
    runs_root: PathBuf,
}

impl SweepDir {
    /// The sweep in `root`, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { runs_root: root.clone(), root }
    }

    /// The same sweep with the forks of its runs in place of the runs. Plans, agents, inputs, budget and rate are the same.
    pub fn with_forks(&self) -> Self {
        Self { root: self.root.clone(), runs_root: self.forks() }
    }

    /// The forks of runs, each with a workspace of its own.
    pub fn forks(&self) -> PathBuf {
        self.root.join("forks")
    }

    /// The plan with this number, from 1: `plan.jsonl`, `plan-2.jsonl`, ...
    pub fn plan_file(&self, number: usize) -> PathBuf {
        match number {
            0 | 1 => self.root.join(PLAN_FILE),
            number => self.root.join(format!("plan-{number}.jsonl")),
        }
    }

    /// The copies of agents, each in a directory named by its tree.
    pub fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    /// The copy of an agent.
    pub fn agent(&self, tree: &str) -> PathBuf {
        self.agents().join(tree)
    }

    /// The copies of inputs: `HASH.jsonl` with the lines of a plan, `TREE` with the directory of an input, and `HASH` with the
    /// file that a model names.
    pub fn inputs(&self) -> PathBuf {
        self.root.join("inputs")
    }

    /// The input lines of a plan.
    pub fn input_lines(&self, hash: &str) -> PathBuf {
        self.inputs().join(format!("{hash}.jsonl"))
    }

    /// The copy of the directory or of the file with this hash.
    pub fn input_copy(&self, hash: &str) -> PathBuf {
        self.inputs().join(hash)
    }

    /// The copy of a recorded run, a ZIP file: [`crate::sweep::packed::pack_run_copy`].
    pub fn run_copy(&self, name: &str) -> PathBuf {
        self.inputs().join(format!("{name}.zip"))
    }

    /// The workspaces, in 256 directories.
    pub fn runs(&self) -> PathBuf {
        self.runs_root.join("runs")
    }

    /// The directory with the workspace of a run.
    pub fn shard(&self, id: &RunId) -> PathBuf {
        self.runs().join(shard_name(id))
    }

    /// The workspace of a run.
    pub fn workspace(&self, id: &RunId) -> PathBuf {
        self.shard(id).join(id.as_str())
    }

    /// The result lines, one file for the processes of one kernel through one mount.
    pub fn results(&self) -> PathBuf {
        self.runs_root.join("results")
    }

    /// The grades, with files as in [`SweepDir::results`].
    pub fn grades(&self) -> PathBuf {
        self.runs_root.join("grades")
    }

    /// A file for each process that works on the sweep.
    pub fn workers(&self) -> PathBuf {
        self.root.join("workers")
    }

    /// The grants of the sweep's budget.
    pub fn budget(&self) -> PathBuf {
        self.root.join("budget")
    }

    /// The rates of LLM calls, a directory for each host.
    pub fn rate(&self) -> PathBuf {
        self.root.join("rate")
    }

    /// The answers that its runs share; `None` for the forks of its runs, which are independent of each other.
    pub fn answers(&self) -> Option<PathBuf> {
        (self.runs_root == self.root).then(|| self.root.join("answers"))
    }

    /// The last verdict of a gate.
    pub fn gate(&self) -> PathBuf {
        self.root.join("gate.json")
    }

    /// Where a run was lost, as far as `why` has found it.
    pub fn loss(&self, id: &RunId) -> PathBuf {
        self.forks().join(format!("{id}.json"))
    }

    /// What the last race has stopped.
    pub fn race(&self) -> PathBuf {
        self.root.join("race.json")
    }

    /// The scripts and logs of Slurm.
    pub fn slurm(&self) -> PathBuf {
        self.root.join("slurm")
    }

    /// The packed runs.
    pub fn packs(&self) -> PathBuf {
        self.runs_root.join("pack")
    }
}

/// The first two digits of the hash in a run's id.
pub fn shard_name(id: &RunId) -> &str {
    let id = id.as_str();
    let hash = id.rsplit_once('.').map_or(id, |(_, hash)| hash);
    hash.get(..2).unwrap_or("00")
}

/// The number of a plan from the name of its file.
pub fn plan_number(file: &Path) -> Option<usize> {
    let name = file.file_name()?.to_str()?;
    if name == PLAN_FILE {
        return Some(1);
    }
    let number = name.strip_prefix("plan-")?.strip_suffix(".jsonl")?;
    number
        .parse()
        .ok()
        .filter(|number: &usize| *number > 1 && number.to_string().len() == name.len() - 11)
}

/// The limits of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepBudget {
    /// USD for all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<f64>,
    /// Tokens of all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

/// How much the runs ask of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepRate {
    /// LLM calls at a time on one host.
    pub concurrent: u32,
    /// Whether calls may wait for the first one of their prefix.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
}

/// What the header of a plan says about all runs of its sweep.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SweepSettings {
    /// [`PLAN_VERSION`].
    sweep: u32,
    /// The limits of the whole sweep.
    #[serde(default)]
    pub budget: SweepBudget,
    /// How much the runs ask of an endpoint.
    pub rate: SweepRate,
}

/// Why the plans of a sweep cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The numbers of the plans have a gap.
    #[error("{} is missing, and {} is there", missing.display(), found.display())]
    Missing {
        /// The missing plan.
        missing: PathBuf,
        /// The plan that follows it.
        found: PathBuf,
    },
    /// A plan was changed.
    #[error("{} is not a plan as delta writes it: {reason}", path.display())]
    Changed {
        /// The plan.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Passes the text of each plan of a sweep to `add`, in their order; none if there is no such directory.
///
/// # Errors
/// A plan cannot be read, `add` refuses it, or one of their numbers is missing.
pub fn read_plan_files(
    dir: &SweepDir,
    mut add: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), PlanFileError> {
    // Listed, not looked for: on a shared file system a name that was missing may stay missing.
    let entries = match durable::read_dir_no_follow(&dir.root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(FileError::at("read", &dir.root))?,
    };
    let mut numbers: Vec<usize> =
        entries.iter().filter_map(|entry| plan_number(entry.name.as_ref())).collect();
    numbers.sort_unstable();
    for (index, number) in numbers.into_iter().enumerate() {
        let path = dir.plan_file(number);
        if number != index + 1 {
            let missing = dir.plan_file(index + 1);
            return Err(PlanFileError::Missing { missing, found: path });
        }
        // A plan of a million runs has some 200 MB.
        let text = durable::read_no_follow(&path)
            .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
            .map_err(FileError::at("read", &path))?;
        add(&text).map_err(|reason| PlanFileError::Changed { path, reason })?;
    }
    Ok(())
}

/// The settings in the newest plan of a sweep, if one of its plans has the run. The lines of other runs are not parsed: a sweep
/// may have a million runs.
///
/// # Errors
/// As [`read_plan_files`].
pub fn read_planned_settings(
    dir: &SweepDir,
    id: &RunId,
) -> Result<Option<SweepSettings>, PlanFileError> {
    #[derive(Deserialize)]
    struct PlannedId<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    let mut settings = None;
    let mut has_run = false;
    read_plan_files(dir, |text| {
        let header: SweepSettings = serde_json::from_str(text.lines().next().unwrap_or_default())
            .map_err(|error| format!("line 1: {error}"))?;
        check_plan_version(header.sweep)?;
        settings = Some(header);
        for line in lines_with_id(text.as_bytes(), id.as_str()) {
            let line: PlannedId<'_> =
                serde_json::from_slice(line).map_err(|error| error.to_string())?;
            has_run |= line.id == id.as_str();
        }
        Ok(())
    })?;
    Ok(settings.filter(|_| has_run))
}

/// Checks the version in the header of a plan.
///
/// # Errors
/// Another version of delta has planned; contains the reason.
pub fn check_plan_version(version: u32) -> Result<(), String> {
    if version == PLAN_VERSION {
        return Ok(());
    }
    Err(format!("the plan has version {version}, and this delta reads {PLAN_VERSION}"))
}

/// The lines that have an `id` of this value, their newlines included. As a line of a plan or of results has strings as
/// JSON, no text in it can be mistaken for one; an object in `params` can.
pub fn lines_with_id<'a>(text: &'a [u8], id: &str) -> impl Iterator<Item = &'a [u8]> {
    let needle = format!("\"id\":{}", delta_base::json::to_json(id));
    let mut rest = text;
    std::iter::from_fn(move || {
        let position = memchr::memmem::find(rest, needle.as_bytes())?;
        let start = memchr::memrchr(b'\n', &rest[..position]).map_or(0, |at| at + 1);
        let end =
            memchr::memchr(b'\n', &rest[position..]).map_or(rest.len(), |at| position + at + 1);
        let line = &rest[start..end];
        rest = &rest[end..];
        Some(line)
    })
}

/// A new name next to `path`, which `delta sweep gc` knows as unfinished.
pub fn draft_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", encode_hex(&random::random_bytes::<6>())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_plans_are_numbered_from_one() {
        let dir = SweepDir::new("s");
        for number in [1, 2, 9, 10, 123] {
            assert_eq!(plan_number(&dir.plan_file(number)), Some(number));
        }
        for name in [
            "plan-1.jsonl",
            "plan-0.jsonl",
            "plan-02.jsonl",
            "plan-.jsonl",
            "plan",
            "plan-2.jsonl~",
        ] {
            assert_eq!(plan_number(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn a_run_is_in_the_shard_of_its_hash() {
        let id = RunId::parse("a.b.3f9a2c1b7d4e5a60").unwrap();
        let dir = SweepDir::new("s");
        assert_eq!(dir.workspace(&id), Path::new("s/runs/3f/a.b.3f9a2c1b7d4e5a60"));
        let forks = dir.with_forks();
        assert_eq!(forks.workspace(&id), Path::new("s/forks/runs/3f/a.b.3f9a2c1b7d4e5a60"));
        assert_eq!((forks.agents(), forks.budget()), (dir.agents(), dir.budget()));
    }
}
