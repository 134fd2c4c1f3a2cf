//! The directory of a sweep: where each of its files is.

use delta_base::id::RunId;
use std::path::{Path, PathBuf};

/// The number of digits of the hash in a run's id.
pub const HASH_DIGITS: usize = 16;
/// The name of the first plan in the directory of a sweep.
pub const PLAN_FILE: &str = "plan.jsonl";

/// The directory of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepDir {
    /// Its path.
    pub root: PathBuf,
}

impl SweepDir {
    /// The sweep in `root`, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
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

    /// The workspaces, in 256 directories.
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
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
        self.root.join("results")
    }

    /// The grades, with files as in [`SweepDir::results`].
    pub fn grades(&self) -> PathBuf {
        self.root.join("grades")
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

    /// The scripts and logs of Slurm.
    pub fn slurm(&self) -> PathBuf {
        self.root.join("slurm")
    }

    /// The packed runs.
    pub fn packs(&self) -> PathBuf {
        self.root.join("pack")
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
        assert_eq!(SweepDir::new("s").workspace(&id), Path::new("s/runs/3f/a.b.3f9a2c1b7d4e5a60"));
    }
}
