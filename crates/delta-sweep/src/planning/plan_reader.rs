//! Reads the plans in the directory of a sweep.

use crate::formats::plan_file::SweepPlan;
use delta_base::durable::{self, FileError};
use delta_base::shell_quote::shell_quote_path;
use delta_operator::failure::CommandFailure;
use delta_run::sweep::sweep_dir::{SweepDir, read_plan_files};
use std::io;
use std::path::{Path, PathBuf};

/// The plans of a sweep; an empty plan if there is none, or no such directory.
///
/// # Errors
/// A plan cannot be read, was changed, or one of their numbers is missing.
pub fn read_plans(dir: &SweepDir) -> Result<SweepPlan, CommandFailure> {
    read_plans_by(dir, SweepPlan::add_plan)
}

/// Reads the plans as [`read_existing_plans`] does, and keeps only the run `id`.
///
/// # Errors
/// The errors of [`read_existing_plans`]; also an id that no plan has.
pub fn read_plan_of_run(dir: &SweepDir, id: &str) -> Result<SweepPlan, CommandFailure> {
    let plan =
        existing_plan(dir, read_plans_by(dir, |plan, text| plan.add_run_of_plan(text, id))?)?;
    if plan.runs.is_empty() {
        return Err(CommandFailure::config(
            format!("the sweep has no run `{id}`"),
            "`delta sweep list DIR` prints the ids; a share is K/M, such as 0/10",
        ));
    }
    Ok(plan)
}

fn read_plans_by(
    dir: &SweepDir,
    add: impl Fn(&mut SweepPlan, &str) -> Result<(), String>,
) -> Result<SweepPlan, CommandFailure> {
    let mut plan = SweepPlan::default();
    read_plan_files(dir, |text| add(&mut plan, text))?;
    Ok(plan)
}

/// The plans of a sweep that has some.
///
/// # Errors
/// As [`read_plans`], or nothing is planned in the directory.
pub fn read_existing_plans(dir: &SweepDir) -> Result<SweepPlan, CommandFailure> {
    existing_plan(dir, read_plans(dir)?)
}

fn existing_plan(dir: &SweepDir, plan: SweepPlan) -> Result<SweepPlan, CommandFailure> {
    if plan.headers.is_empty() {
        let path = shell_quote_path(&dir.root);
        let message = format!("{} has no plan", dir.root.display());
        let hint = match sweeps_inside(&dir.root).as_slice() {
            [] => format!("`delta sweep plan sweep.yaml -d {path}` makes one"),
            [sweep] => {
                format!("the sweep is in `{sweep}`: name it, as in `delta sweep run {sweep}`")
            }
            sweeps => format!(
                "sweeps are in `{}`: name one, as in `delta sweep run {}`",
                sweeps.join("`, `"),
                sweeps[0]
            ),
        };
        return Err(CommandFailure::config(message, hint));
    }
    Ok(plan)
}

/// The directories inside that have a plan, as a command here can name them.
fn sweeps_inside(root: &Path) -> Vec<String> {
    let names = durable::read_dir_no_follow(root).unwrap_or_default();
    let paths = names.into_iter().map(|entry| root.join(entry.name));
    let mut sweeps: Vec<PathBuf> =
        paths.filter(|path| SweepDir::new(path).plan_file(1).is_file()).collect();
    sweeps.sort_unstable();
    let current = std::env::current_dir().unwrap_or_default();
    let shortest = sweeps.iter().map(|path| path.strip_prefix(&current).unwrap_or(path));
    shortest.map(|path| shell_quote_path(path.strip_prefix(".").unwrap_or(path))).collect()
}

pub fn unreadable_file(path: std::path::PathBuf, source: io::Error) -> CommandFailure {
    FileError { action: "read", path, source }.into()
}
