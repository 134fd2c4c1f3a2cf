//! Reads the result lines of a sweep.

use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::SweepResults;
use crate::formats::retry_policy::Remaining;
use crate::planning::former_runs::former_runs;
use crate::planning::plan_reader::{read_existing_plans, unreadable_file};
use delta_base::durable;
use delta_base::id::RunId;
use delta_operator::failure::CommandFailure;
use delta_run::event::RunStatus;
use delta_run::sweep::packed::RunPacks;
use delta_run::sweep::sweep_dir::SweepDir;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::FileExt;

/// The result lines of all hosts, which can be read further while workers append to them.
#[derive(Debug)]
pub struct ResultReader {
    dir: SweepDir,
    pub results: SweepResults,
    /// How much of each file was read.
    offsets: HashMap<OsString, u64>,
    /// The one run whose lines are read; all, if there is none.
    only: Option<String>,
}

/// The plans of a sweep that has some, and its result lines, which are read at the same time.
///
/// # Errors
/// As [`read_existing_plans`] and [`ResultReader::open`].
pub fn read_sweep(dir: &SweepDir) -> Result<(SweepPlan, ResultReader), CommandFailure> {
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| ResultReader::open(dir));
        let plan = read_existing_plans(dir);
        let results = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut plan = plan?;
        let mut results = results?;
        plan.former = former_runs(dir, &plan)?;
        leave_out_unbegun(dir, &mut plan, &results.results);
        reopen_failed_runs(dir, &plan, &mut results.results)?;
        Ok((plan, results))
    })
}

/// Leaves out runs that did not begin and that the newest plan does not mean: no command starts or counts them.
fn leave_out_unbegun(dir: &SweepDir, plan: &mut SweepPlan, results: &SweepResults) {
    let mut runs = std::mem::take(&mut plan.runs);
    runs.retain(|run| {
        let id = &run.id;
        let line = results.lines.get(id);
        plan.means(run)
            || line.is_some_and(|line| !line.is_of_unbegun_run())
            || dir.workspace(id).exists()
    });
    plan.runs = runs;
}

/// Unsettles runs that the newest plan tries more often than the plan with which they were settled.
///
/// # Errors
/// A pack cannot be read.
pub fn reopen_failed_runs(
    dir: &SweepDir,
    plan: &SweepPlan,
    results: &mut SweepResults,
) -> Result<(), CommandFailure> {
    let Some(settings) = plan.settings() else { return Ok(()) };
    let packs = RunPacks::new(dir);
    let settled = results.lines.values_mut().filter(|line| line.settled);
    for line in settled.filter(|line| line.status == RunStatus::Failed) {
        let kind = line.error.as_ref().map(|error| error.kind.as_str());
        let remaining = settings.retry.remaining(line.status, kind, line.attempts);
        if remaining == Remaining::Work && !stays_packed(dir, &packs, &line.id)? {
            line.settled = false;
        }
    }
    Ok(())
}

/// Whether a run stays as it is: it has no directory in which it could be continued. A run that no pack has either can begin
/// again.
pub fn stays_packed(dir: &SweepDir, packs: &RunPacks, id: &RunId) -> Result<bool, CommandFailure> {
    Ok(!dir.workspace(id).is_dir() && packs.has_run(id)?)
}

impl ResultReader {
    /// Reads all lines that there are.
    pub fn open(dir: &SweepDir) -> Result<Self, CommandFailure> {
        Self::open_for(dir, None)
    }

    /// Reads the lines of one run, or all.
    pub fn open_for(dir: &SweepDir, only: Option<&str>) -> Result<Self, CommandFailure> {
        let mut reader = Self {
            dir: dir.clone(),
            results: SweepResults::default(),
            offsets: HashMap::new(),
            only: only.map(str::to_owned),
        };
        reader.read_new()?;
        Ok(reader)
    }

    /// Reads the lines that were added since the last time.
    pub fn read_new(&mut self) -> Result<(), CommandFailure> {
        let path = self.dir.results();
        let entries = match durable::read_dir_no_follow(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|source| unreadable_file(path.clone(), source))?,
        };
        for entry in entries {
            if !entry.name.to_string_lossy().ends_with(".jsonl") {
                continue;
            }
            let file = path.join(&entry.name);
            let offset = self.offsets.entry(entry.name).or_default();
            let bytes =
                read_from(&file, *offset).map_err(|source| unreadable_file(file, source))?;
            let length = match &self.only {
                Some(id) => self.results.add_run_of_file(&bytes, id),
                None => self.results.add_file(&bytes),
            };
            *offset += length as u64;
        }
        Ok(())
    }
}

fn read_from(path: &std::path::Path, offset: u64) -> io::Result<Vec<u8>> {
    let file = durable::open_no_follow(path)?;
    let length = file.metadata()?.len().saturating_sub(offset);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
