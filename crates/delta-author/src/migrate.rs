//! `delta tool migrate`: migrates an agent directory from an older format.

use crate::tool::find_agent_dir;
use clap::Args;
use delta_base::durable;
use delta_base::text::text_diff::LineDiff;
use delta_lint::migration::{FileChange, plan_migration};
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Migrate an agent directory from an older format
///
/// Prints the changes as a unified diff; `--write` applies them. config.yaml becomes agent.yaml, `lifecycle_hooks` hooks.yaml,
/// old names of hooks the present ones, `command:` `exec:` or `shell:` with the same command lines, and a missing context.yaml
/// is written. For each part that is not migrated, a line on stderr says why.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta tool migrate my-agent
  delta tool migrate my-agent --write

Exit codes: 0 migrated or nothing to migrate, 1 changes to make and no --write, 2 usage error, 126 DIR is not an agent directory or does not load")]
pub struct MigrateArgs {
    /// Agent directory
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Write the changed files
    #[arg(long)]
    write: bool,
}

/// Prints or applies the migration.
pub fn migrate_command(args: &MigrateArgs) -> Result<ExitCode, CommandFailure> {
    let dir = find_agent_dir(&args.dir, "delta tool migrate")?;
    let plan = plan_migration(&dir)?;
    let diff: String = plan.changes.iter().map(render_migration_diff).collect();
    stdio::print_text(&diff);
    for line in &plan.unchanged {
        stdio::print_error_line(&format!("note: {line}"));
    }
    if plan.changes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.write {
        stdio::print_error_line("Nothing was written; add `--write` to apply the changes.");
        return Ok(ExitCode::FAILURE);
    }
    for change in &plan.changes {
        write_migrated_file(&dir, change)?;
    }
    let names: Vec<_> = plan.changes.iter().map(|change| change.new_name).collect();
    stdio::print_error_line(&format!("written: {}", names.join(", ")));
    Ok(ExitCode::SUCCESS)
}

fn render_migration_diff(change: &FileChange) -> String {
    let old = change.old_name.unwrap_or("/dev/null");
    let hunks = LineDiff::new(&change.before, &change.after, 3).hunks;
    format!("--- {old}\n+++ {}\n{hunks}", change.new_name)
}

/// Writes one file; replaces only the file that it migrates.
fn write_migrated_file(dir: &Path, change: &FileChange) -> Result<(), CommandFailure> {
    let new = dir.join(change.new_name);
    if change.old_name == Some(change.new_name) {
        return Ok(durable::replace_shared_synced(&new, change.after.as_bytes())?);
    }
    // After an interrupted migration the file exists already; any other existing file is an error.
    if std::fs::read(&new).ok().as_deref() != Some(change.after.as_bytes()) {
        durable::create_shared_synced(&new, change.after.as_bytes())?;
    }
    if let Some(old) = change.old_name {
        durable::remove_file_synced(&dir.join(old))?;
    }
    Ok(())
}
