//! A sweep as a job array of Slurm: the number of tasks, and the script that each of them runs.

use delta_base::shell_quote::{shell_quote, shell_quote_path};
use std::path::{Path, PathBuf};

/// The most tasks of an array: a controller notices thousands of short jobs, and a task can do any number of runs.
pub const MAX_TASKS: u64 = 1000;
/// The runs of a task while no run has ended.
pub const DEFAULT_RUNS_PER_TASK: u64 = 10;
/// How long a task should work: much longer than Slurm needs to start it, and short enough to fit into a gap.
const TASK_MS: u64 = 30 * 60 * 1000;
/// How often a task queues itself again. Slurm may forget the count, so this only bounds it.
const MAX_RESTARTS: u32 = 50;

/// How many runs a task gets so that it works for half an hour, judged by the runs that have ended.
pub fn estimate_runs_per_task(mut durations_ms: Vec<u64>) -> u64 {
    if durations_ms.is_empty() {
        return DEFAULT_RUNS_PER_TASK;
    }
    let middle = durations_ms.len() / 2;
    let (_, median, _) = durations_ms.select_nth_unstable(middle);
    TASK_MS.checked_div(*median).unwrap_or(TASK_MS).max(1)
}

/// The number of tasks for `left` runs: tasks become larger where Slurm does not take as many.
/// `max_array_size` is `MaxArraySize` of slurm.conf, if it is known.
pub fn count_tasks(left: u64, runs_per_task: u64, max_array_size: Option<u64>) -> u64 {
    let limit = max_array_size.map_or(MAX_TASKS, |size| MAX_TASKS.min(size.saturating_sub(1)));
    left.div_ceil(runs_per_task.max(1)).min(limit).max(1)
}

/// `MaxArraySize` in the output of `scontrol show config`.
pub fn parse_max_array_size(config: &str) -> Option<u64> {
    config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "MaxArraySize").then(|| value.trim().parse().ok())?
    })
}

/// The script of a job array.
#[derive(Debug)]
pub struct SlurmScript<'a> {
    /// The name of the sweep.
    pub name: &'a str,
    /// The program delta, an absolute path.
    pub program: &'a Path,
    /// The directory of the sweep, an absolute path.
    pub dir: &'a Path,
    /// The directory of the logs, an absolute path.
    pub logs: &'a Path,
    /// The number of tasks.
    pub tasks: u64,
}

impl SlurmScript<'_> {
    /// The text of the script.
    ///
    /// # Errors
    /// A path cannot be written into a line of the script.
    pub fn to_text(&self) -> Result<String, SlurmPathError> {
        let logs = quote_log_path(self.logs)?;
        let name = shell_quote(&format!("delta-{}", self.name));
        let last = self.tasks - 1;
        let tasks = self.tasks;
        let program = shell_quote_path(self.program);
        let dir = shell_quote_path(self.dir);
        Ok(format!(
            r#"#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last} --requeue --signal=B:TERM@120 --open-mode=append
#SBATCH --output={logs}
# Written by `delta sweep submit`. SLURM_JOB_ID of the last task is the id of the whole array, so it names no task.
id=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
end=$(squeue -h -j "$id" -o %e 2>/dev/null) && [ -n "$end" ] && end=$(date -u -d "$end" +%FT%TZ 2>/dev/null) || end=
# A script that did not forward the signal would end alone, and leave its engine running.
trap 'again=yes; kill -TERM $! 2>/dev/null' TERM INT
{program} sweep task {dir} "$SLURM_ARRAY_TASK_ID/{tasks}" --jobs "${{SLURM_CPUS_PER_TASK:-1}}" ${{end:+--until "$end"}} &
again=yes
while [ -n "$again" ]; do again=; wait $!; code=$?; done
# 130: it was stopped, and runs remain.
if [ $code = 130 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {MAX_RESTARTS} ]; then scontrol requeue "$id"; fi
exit $code
"#
        ))
    }
}

/// A directory whose name sbatch cannot read in a line of a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "sbatch cannot write logs to {dir:?}: a script can name no path with a line end, a quote, a backslash or bytes that are not UTF-8"
)]
pub struct SlurmPathError {
    /// The directory.
    pub dir: PathBuf,
}

/// `DIR/%A_%a.log` as sbatch reads it in a script: `%` begins a placeholder, and a space ends a word outside of quotes.
fn quote_log_path(dir: &Path) -> Result<String, SlurmPathError> {
    let text = dir.to_str().filter(|text| !text.contains(['\n', '\r', '"', '\\']));
    let text = text.ok_or_else(|| SlurmPathError { dir: dir.to_owned() })?;
    let path = format!("{}/%A_%a.log", text.replace('%', "%%"));
    if path.chars().all(|c| c.is_alphanumeric() || "/%._-+,@=:".contains(c)) {
        return Ok(path);
    }
    Ok(format!("\"{path}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn script(dir: &str) -> Result<String, SlurmPathError> {
        let logs = Path::new(dir).join("slurm");
        let script = SlurmScript {
            name: "my sweep",
            program: Path::new("/opt/delta 1/delta"),
            dir: Path::new(dir),
            logs: &logs,
            tasks: 200,
        };
        script.to_text()
    }

    #[test]
    fn a_task_works_for_half_an_hour() {
        assert_eq!(estimate_runs_per_task(Vec::new()), DEFAULT_RUNS_PER_TASK);
        assert_eq!(estimate_runs_per_task(vec![60_000]), 30);
        assert_eq!(estimate_runs_per_task(vec![1, 60_000, 9_000_000]), 30);
        assert_eq!(estimate_runs_per_task(vec![9_000_000]), 1);
        assert_eq!(estimate_runs_per_task(vec![0]), TASK_MS);
    }

    #[test]
    fn tasks_are_as_many_as_slurm_takes() {
        for (left, per_task, max_array_size, tasks) in [
            (1, 10, None, 1),
            (10, 10, None, 1),
            (11, 10, None, 2),
            (1000, 1, Some(1001), 1000),
            (1001, 1, Some(1001), 1000),
            (1_000_000, 10, Some(4_000_001), 1000),
            (1000, 1, Some(101), 100),
            (1000, 1, Some(1), 1),
            (1000, 1, Some(0), 1),
            (5, 0, None, 5),
        ] {
            assert_eq!(count_tasks(left, per_task, max_array_size), tasks, "{left} {per_task}");
        }
    }

    #[test]
    fn the_size_of_arrays_is_in_the_configuration() {
        let config = "MailProg                = /bin/mail\nMaxArraySize            = 1001\nMaxBatchRequeue         = 5\n";
        assert_eq!(parse_max_array_size(config), Some(1001));
        assert_eq!(parse_max_array_size("MaxArraySizes = 3\nMaxArraySize = many\n"), None);
        assert_eq!(parse_max_array_size(""), None);
    }

    #[test]
    fn the_script_quotes_its_paths() {
        let text = script("/data/it's 100%").unwrap();
        assert!(text.contains("#SBATCH --output=\"/data/it's 100%%/slurm/%A_%a.log\"\n"), "{text}");
        assert!(text.contains("\n'/opt/delta 1/delta' sweep task \"/data/it's 100%\" "), "{text}");
        assert!(text.contains("#SBATCH --job-name='delta-my sweep'\n"), "{text}");
        let text = script("/data/bugs").unwrap();
        assert!(text.contains("#SBATCH --output=/data/bugs/slurm/%A_%a.log\n"), "{text}");
        for dir in ["/a\nb", "/a\"b", "/a\\b"] {
            assert!(script(dir).is_err(), "{dir}");
        }
    }

    proptest! {
        #[test]
        fn an_array_never_exceeds_its_limits(left in 1..u64::MAX / 2, per_task in any::<u64>(), size in any::<u64>()) {
            let tasks = count_tasks(left, per_task, Some(size));
            prop_assert!((1..=MAX_TASKS).contains(&tasks));
            prop_assert!(tasks == 1 || tasks < size);
            prop_assert!(tasks <= left);
        }
    }
}
