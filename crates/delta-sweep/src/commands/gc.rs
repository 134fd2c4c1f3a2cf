//! `delta sweep gc`: removes what no plan of a sweep names, and what was left unfinished.

use crate::formats::grader::PlannedGrader;
use crate::formats::plan_file::SweepPlan;
use crate::planning::input_reader::{changed_lines_failure, read_planned_inputs};
use crate::planning::plan_reader::{read_existing_plans, unreadable_file};
use crate::running::host_grants;
use clap::Args;
use delta_base::durable::{self, DirEntry};
use delta_base::id::RunId;
use delta_base::time;
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::ownership::Ownership;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::Workspace;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// How old an unfinished file must be.
const UNFINISHED_AGE_MS: i64 = 24 * 3_600_000;

/// Remove runs and copies that no plan of a sweep names
///
/// Without `--yes`, lists them, and unfinished files that are older than a day. A run that a process works on stays.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta sweep gc terse-or-not
  delta sweep gc terse-or-not --yes")]
pub struct GcArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Remove what is listed
    #[arg(long)]
    yes: bool,
    /// Instead, give back to the budget what a dead HOST has not used
    #[arg(long, value_name = "HOST", conflicts_with = "yes")]
    reclaim: Option<String>,
}

/// Lists or removes; returns the exit code.
pub fn gc_command(args: &GcArgs) -> Result<ExitCode, CommandFailure> {
    let dir = SweepDir::new(&args.dir);
    let plan = read_existing_plans(&dir)?;
    if let (Some(host), Some(settings)) = (&args.reclaim, plan.settings()) {
        for grant in host_grants::reclaim(&dir, host)? {
            let text = grant.unused_text(&settings.budget);
            let text = text.unwrap_or_else(|| "nothing".to_owned());
            stdio::print_text(&format!("{text} of {} can be granted again\n", grant.holder));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let garbage = find_garbage(&dir, &plan)?;
    let mut removed = 0;
    for path in &garbage {
        let is_removed = !args.yes || remove(path)?;
        removed += usize::from(is_removed);
        if is_removed {
            stdio::print_text(&format!("{}\n", path.display()));
        } else {
            stdio::print_error_line(&format!("{} stays: a process works on it", path.display()));
        }
    }
    let count = pluralize(removed, "path");
    let report = match (args.yes, removed) {
        (_, 0) => "nothing to remove".to_owned(),
        (true, _) => format!("removed {count}"),
        (false, _) => format!("{count} would be removed: pass --yes"),
    };
    stdio::print_error_line(&report);
    Ok(ExitCode::SUCCESS)
}

fn find_garbage(dir: &SweepDir, plan: &SweepPlan) -> Result<Vec<PathBuf>, CommandFailure> {
    let mut garbage = Vec::new();
    let planned: HashSet<&str> = plan.runs.iter().map(|run| run.id.as_str()).collect();
    for shard in list(&dir.runs())? {
        let shard = dir.runs().join(&shard.name);
        garbage.extend(find_unnamed(&shard, |name| planned.contains(name))?);
    }
    if let Some(answers) = dir.answers() {
        for shard in list(&answers)? {
            garbage.extend(find_unnamed(&answers.join(&shard.name), |_| true)?);
        }
    }
    let mut trees: HashSet<&str> = HashSet::new();
    for header in &plan.headers {
        trees.extend(header.agents.values().map(String::as_str));
        trees.extend(header.grade.iter().filter_map(PlannedGrader::judge_tree));
    }
    garbage.extend(find_unnamed(&dir.agents(), |name| trees.contains(name))?);
    let inputs = named_input_copies(dir, plan)?;
    garbage.extend(find_unnamed(&dir.inputs(), |name| inputs.contains(name))?);
    garbage.sort();
    Ok(garbage)
}

/// The names of the copies in `inputs/` that a plan needs: input lines, the directories that these name, files of models, and
/// programs of graders.
fn named_input_copies(dir: &SweepDir, plan: &SweepPlan) -> Result<HashSet<String>, CommandFailure> {
    let mut names = HashSet::new();
    for header in &plan.headers {
        let models = header.models.values().filter_map(|model| model.file.clone());
        names.extend(models);
        let programs = header.grade.iter().filter_map(PlannedGrader::program_hash);
        names.extend(programs.map(str::to_owned));
        if !names.insert(format!("{}.jsonl", header.inputs)) {
            continue;
        }
        for input in read_planned_inputs(dir, &header.inputs)?.iter() {
            let path = dir.input_lines(&header.inputs);
            let input = input.map_err(|reason| changed_lines_failure(&path, &reason))?;
            names.extend(input.tree);
            names.extend(input.recorded.map(|recorded| format!("{}.zip", recorded.copy)));
        }
    }
    Ok(names)
}

/// The entries of a directory whose name is not known; unfinished ones only if they are old.
fn find_unnamed(
    dir: &Path,
    is_known: impl Fn(&str) -> bool,
) -> Result<Vec<PathBuf>, CommandFailure> {
    let entries = list(dir)?.into_iter().filter(|entry| {
        let name = entry.name.to_string_lossy();
        if name.starts_with('.') { is_old(&dir.join(&entry.name)) } else { !is_known(&name) }
    });
    Ok(entries.map(|entry| dir.join(entry.name)).collect())
}

fn list(dir: &Path) -> Result<Vec<DirEntry>, CommandFailure> {
    match durable::read_dir_no_follow(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(|source| unreadable_file(dir.to_owned(), source)),
    }
}

fn is_old(path: &Path) -> bool {
    let modified = durable::metadata_no_follow(path).and_then(|metadata| metadata.modified());
    let age =
        modified.ok().and_then(|modified| modified.duration_since(SystemTime::UNIX_EPOCH).ok());
    let modified_ms = age.and_then(|age| i64::try_from(age.as_millis()).ok()).unwrap_or(i64::MAX);
    time::current_time().as_millis().saturating_sub(modified_ms) > UNFINISHED_AGE_MS
}

/// Removes a path, unless a process works on the run in it.
fn remove(path: &Path) -> Result<bool, CommandFailure> {
    let id = path.file_name().and_then(|name| RunId::parse(name.to_str()?).ok());
    let workspace = Workspace { root: path.to_owned() };
    let run_dir = id.as_ref().and_then(|id| workspace.find_run(id).ok().flatten());
    let _ownership = match (id, run_dir) {
        (Some(id), Some(run_dir)) => match Ownership::claim(&id, &run_dir) {
            Ok(ownership) => Some(ownership),
            Err(_) => return Ok(false),
        },
        _ => None,
    };
    let removed = if durable::is_dir_no_follow(path) {
        durable::remove_dir_all_no_follow(path)
    } else {
        durable::remove_file_no_follow(path)
    };
    removed.map_err(|source| durable::FileError {
        action: "remove",
        path: path.to_owned(),
        source,
    })?;
    Ok(true)
}
