//! `delta tool migrate`

use super::failure::Failure;
use super::stdout;
use super::tool::agent_directory;
use crate::durable;
use crate::migrate::{Change, plan};
use clap::Args;
use similar::TextDiff;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bring an agent directory of an older form into the present one
///
/// Prints what would change as a unified diff; with `--write` it is done as well. `command:` becomes `exec:` or
/// `shell:` where that is proven to give the same command lines, config.yaml becomes agent.yaml, `lifecycle_hooks`
/// becomes hooks.yaml, a missing context.yaml gets the default content. Everything else stays byte for byte; what is
/// not brought over is a line on stderr that says why.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta tool migrate my-agent
  delta tool migrate my-agent --write

Exit codes: 0 nothing to do, or done; 1 something to do and no --write; 2 usage; 126 no agent, or one that does not load")]
pub struct MigrateArgs {
    /// The agent directory
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Write the files
    #[arg(long)]
    write: bool,
}

/// Prints, or does, what brings the agent up to date.
pub fn migrate(args: &MigrateArgs) -> ExitCode {
    match perform(args) {
        Ok(code) => code,
        Err(failure) => failure.complain(),
    }
}

fn perform(args: &MigrateArgs) -> Result<ExitCode, Failure> {
    let dir = agent_directory(&args.dir, "delta tool migrate")?;
    let plan = plan(&dir)?;
    let shown: String = plan.changes.iter().map(diff).collect();
    stdout::write(&shown);
    for line in &plan.left {
        stdout::complain(&format!("note: {line}"));
    }
    if plan.changes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.write {
        stdout::complain("Nothing was written; `--write` does it.");
        return Ok(ExitCode::FAILURE);
    }
    for change in &plan.changes {
        write(&dir, change)?;
    }
    let names: Vec<_> = plan.changes.iter().map(|change| change.new).collect();
    stdout::complain(&format!("written: {}", names.join(", ")));
    Ok(ExitCode::SUCCESS)
}

fn diff(change: &Change) -> String {
    let diff = TextDiff::from_lines(&change.before, &change.after);
    let old = change.old.unwrap_or("/dev/null");
    let hunks = diff.unified_diff().to_string();
    format!("--- {old}\n+++ {}\n{hunks}", change.new)
}

/// Writes one file, and never over one that is not the one before.
fn write(dir: &Path, change: &Change) -> Result<(), Failure> {
    let new = dir.join(change.new);
    if change.old == Some(change.new) {
        return Ok(durable::rewrite(&new, change.after.as_bytes())?);
    }
    // It is there already where a migration was interrupted; over anything else nothing is written.
    if std::fs::read(&new).ok().as_deref() != Some(change.after.as_bytes()) {
        durable::publish(&new, change.after.as_bytes())?;
    }
    if let Some(old) = change.old {
        durable::remove(&dir.join(old))?;
    }
    Ok(())
}
