//! `delta sweep plan`: checks a sweep.yaml, copies what it refers to, and writes the plan.

use crate::formats::plan::{NewRuns, PlanError, PlanHeader};
use crate::formats::plan_file::{SweepPlan, header_line, plan_line};
use crate::formats::sweep_file::InputSource;
use crate::grading::sweep_scores::lacks_grades;
use crate::planning::plan_checks;
use crate::planning::plan_reader::read_plans;
use crate::planning::plan_sources::PlanSources;
use crate::running::host_grants::write_newest_total;
use crate::running::result_reader::{ResultReader, read_sweep};
use clap::Args;
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Plan the runs of a sweep.yaml
///
/// Copies agents and inputs into the directory of the sweep, and writes plan.jsonl there. More inputs, models or repeats become
/// plan-2.jsonl, with what is new.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct PlanArgs {
    /// The file that describes the sweep
    #[arg(value_name = "FILE", default_value = "sweep.yaml", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Directory of the sweep [default: `name` in FILE, in the current directory]
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// Check everything and print what would be planned; write nothing
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep plan sweep.yaml --dry-run
  delta sweep plan sweep.yaml -d /scratch/terse-or-not

Exit codes: 0 planned, 1 a file could not be written, 2 usage error, 126 a file has a mistake, 130 interrupted";

/// A sweep that has been planned, or would be.
pub struct PlannedSweep {
    pub dir: SweepDir,
    /// What is new, for the user.
    pub report: String,
    /// How many runs are new.
    new: u64,
    /// All runs that the file means, planned before or not.
    pub ids: HashSet<RunId>,
}

/// What of a file is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanChange {
    /// New runs and new settings, which count for the whole sweep.
    All,
    /// New runs: without any, other settings stay as they are.
    Runs,
}

/// Plans a sweep; returns the exit code.
pub fn plan_command(args: &PlanArgs) -> Result<ExitCode, CommandFailure> {
    let planned = plan_file(&args.file, args.dir.as_deref(), args.dry_run)?;
    let mut text = planned.report;
    let next = if args.dry_run { None } else { next_command(&planned.dir, planned.new)? };
    if let Some(command) = next {
        let dir = shell_quote_path(&planned.dir.root);
        text.push_str(&format!("next: delta sweep {command} {dir}\n"));
    }
    stdio::print_text(&text);
    Ok(ExitCode::SUCCESS)
}

/// Plans what is new in a sweep.yaml, in `dir` or else in the directory that the file names; a dry run writes nothing.
///
/// # Errors
/// A file has a mistake or could not be written.
pub fn plan_file(
    file: &Path,
    dir: Option<&Path>,
    is_dry: bool,
) -> Result<PlannedSweep, CommandFailure> {
    let mut sources = PlanSources::read(file, dir)?;
    let dir = SweepDir::new(sources.file.sweep_dir(dir));
    plan_sources(&mut sources, &dir, PlanChange::All, is_dry)
}

/// Plans what is new in a sweep.yaml that was read, in `dir`; a dry run writes nothing.
///
/// # Errors
/// A run would be refused, or a file could not be written.
pub fn plan_sources(
    sources: &mut PlanSources,
    dir: &SweepDir,
    change: PlanChange,
    is_dry: bool,
) -> Result<PlannedSweep, CommandFailure> {
    loop {
        let plan = read_plans(dir)?;
        let known: HashSet<&RunId> = plan.runs.iter().map(|run| &run.id).collect();
        let ids = RefCell::new(HashSet::new());
        let new = NewRuns::find(&sources.file, &sources.header, &sources.inputs, &|id| {
            ids.borrow_mut().insert(id.clone());
            known.contains(id)
        })
        .map_err(plan_failure)?;
        plan_checks::check_run_settings(sources, &new.settings.list)?;
        let report = PlanReport::new(dir, &plan, &new, sources);
        let planned = PlannedSweep {
            dir: dir.clone(),
            report: report.to_text(is_dry),
            new: report.new,
            ids: ids.into_inner(),
        };
        if is_dry {
            return Ok(planned);
        }
        if report.is_unchanged() || change == PlanChange::Runs && report.new == 0 {
            // The process that wrote the plan may have died before it wrote this.
            write_newest_total(dir, &plan.headers)?;
            return Ok(planned);
        }
        let header = PlanHeader { runs: new.len() as u64, ..sources.header.clone() };
        let number = plan.headers.len() + 1;
        let first = plan.runs.len() as u64;
        let mut text = header_line(&header);
        for run in new.iter(first, number - 1) {
            text.push_str(&plan_line(&run.map_err(plan_failure)?));
        }
        sources.write_copies(dir)?;
        if write_plan(&dir.plan_file(number), text.as_bytes())? {
            write_newest_total(dir, &[&plan.headers[..], &[header]].concat())?;
            return Ok(planned);
        }
        // Another command has planned meanwhile: what is new is found again.
    }
}

/// The command for what is left of a sweep with so many new runs, if anything is.
fn next_command(dir: &SweepDir, new: u64) -> Result<Option<&'static str>, CommandFailure> {
    if new > 0 {
        return Ok(Some("run"));
    }
    let (plan, ResultReader { results, .. }) = read_sweep(dir)?;
    if !plan.runs.iter().all(|run| results.is_settled(&run.id)) {
        return Ok(Some("run"));
    }
    Ok(lacks_grades(dir, &plan, &results)?.then_some("grade"))
}

pub fn plan_failure(error: PlanError) -> CommandFailure {
    CommandFailure::config(error.message, error.help)
}

/// Writes a plan; false if one with this number exists meanwhile. After a crash the plan is complete or missing.
fn write_plan(path: &Path, bytes: &[u8]) -> Result<bool, CommandFailure> {
    match durable::create_read_only_once(path, bytes) {
        Err(error) if error.source.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

/// What a command has planned, or would plan.
struct PlanReport {
    dir: PathBuf,
    new: u64,
    known: u64,
    /// Runs of earlier plans that the file does not mean any more.
    others: u64,
    is_first: bool,
    has_new_settings: bool,
    /// The agents whose directory changed since the last plan.
    changed_agents: Vec<String>,
    /// What is not restored for inputs that are recorded runs; `None` without such inputs.
    outside: Option<BTreeSet<String>>,
}

impl PlanReport {
    fn new(dir: &SweepDir, plan: &SweepPlan, new: &NewRuns<'_>, sources: &PlanSources) -> Self {
        let header = &sources.header;
        let recorded = matches!(sources.file.inputs, InputSource::Runs { .. });
        let outside = recorded.then(|| {
            let inputs = sources.inputs.iter().flatten().filter_map(|input| input.recorded);
            inputs.flat_map(|recorded| recorded.outside).collect()
        });
        let last = plan.settings();
        let changed = header.agents.iter().filter(|(id, tree)| {
            last.and_then(|last| last.agents.get(*id)).is_some_and(|known| known != *tree)
        });
        Self {
            dir: dir.root.clone(),
            new: new.len() as u64,
            known: new.known,
            others: plan.runs.len() as u64 - new.known,
            is_first: last.is_none(),
            has_new_settings: last.is_some_and(|last| !last.has_same_settings(header)),
            changed_agents: changed.map(|(id, _)| id.clone()).collect(),
            outside,
        }
    }

    fn is_unchanged(&self) -> bool {
        self.new == 0 && !self.has_new_settings
    }

    fn to_text(&self, is_dry: bool) -> String {
        let runs = |count: u64| pluralize(usize::try_from(count).unwrap_or(usize::MAX), "run");
        let dir = shell_quote_path(&self.dir);
        let mut text = match (self.new, self.is_first) {
            (0, _) if !self.has_new_settings => {
                format!("{dir} is planned: {}, nothing new\n", runs(self.known))
            }
            (0, _) => format!(
                "{} new settings in {dir}; {}, nothing new\n",
                if is_dry { "would plan" } else { "planned" },
                runs(self.known)
            ),
            (new, true) => format!(
                "{} {} in {dir}\n",
                if is_dry { "would plan" } else { "planned" },
                runs(new)
            ),
            (new, false) => format!(
                "{} {new} more {} in {dir}; {} planned before\n",
                if is_dry { "would plan" } else { "planned" },
                if new == 1 { "run" } else { "runs" },
                runs(self.known + self.others)
            ),
        };
        for agent in &self.changed_agents {
            text.push_str(&format!("agent {agent} has changed, so its runs are new\n"));
        }
        if let Some(names) = &self.outside {
            let names: String = names.iter().map(|name| format!("{name}, ")).collect();
            text.push_str(&format!("not restored for the recorded runs: {names}time\n"));
        }
        if self.others > 0 {
            text.push_str(&format!(
                "{} of earlier plans are not in the file any more; they do not start if their input, task or model is another one now\n",
                runs(self.others)
            ));
        }
        text
    }
}
