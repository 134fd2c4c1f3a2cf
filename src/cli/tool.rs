//! `delta tool ...`

use super::failure::Failure;
pub use super::lint::LintArgs;
pub use super::migrate::MigrateArgs;
use super::stdout;
use crate::diag::{Diagnostic, Report};
use crate::tool::expand::expand as expand_document;
use crate::yaml::Document;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The main file of an agent, and its older name.
const MAIN_FILES: [&str; 2] = ["agent.yaml", "config.yaml"];

/// Look at the tools of an agent
#[derive(Debug, Subcommand)]
#[command(about = "Look at the tools of an agent")]
pub enum ToolCommand {
    Expand(ExpandArgs),
    Lint(LintArgs),
    Migrate(MigrateArgs),
}

/// Print FILE with every `exec:` and `shell:` tool in `command:` form
///
/// Shows exactly how delta reads each tool. Everything else of the file, comments included, is printed as it is; what is
/// printed loads, and runs the same commands.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  delta tool expand my-agent/agent.yaml | less")]
pub struct ExpandArgs {
    /// agent.yaml, its directory, or any file with a `tools:` list
    file: PathBuf,
}

/// Prints the expanded file.
pub fn expand(args: &ExpandArgs) -> ExitCode {
    match expanded(&args.file) {
        Ok(text) => {
            stdout::write(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => failure.complain(),
    }
}

/// The agent directory `path`, which may be named by the main file in it.
///
/// # Errors
/// There is no agent; the hint says how `command` is called.
pub fn agent_directory(path: &Path, command: &str) -> Result<PathBuf, Failure> {
    let names_main =
        path.file_name().is_some_and(|name| MAIN_FILES.iter().any(|main| name == *main));
    let dir = match path.parent().filter(|_| names_main && !path.is_dir()) {
        Some(parent) if parent == Path::new("") => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    if MAIN_FILES.iter().any(|name| dir.join(name).exists()) {
        return Ok(dir.to_owned());
    }
    let message = format!("{} holds no agent.yaml", dir.display());
    Err(Failure::config(message, format!("name an agent directory: `{command} DIR`")))
}

/// The main file of an agent directory.
fn in_directory(path: &Path) -> PathBuf {
    let there = MAIN_FILES.iter().map(|name| path.join(name)).find(|file| file.exists());
    there.unwrap_or_else(|| path.join(MAIN_FILES[0]))
}

fn expanded(file: &Path) -> Result<String, Failure> {
    let file = if file.is_dir() { in_directory(file) } else { file.to_owned() };
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let mut report = Report::default();
        report.push(Diagnostic::of_file(
            shown.clone(),
            format!("the file cannot be read: {error}"),
            None,
        ));
        Failure::from(report)
    })?;
    let doc = Document::parse(shown, text)
        .map_err(|diagnostic| Failure::from(Report { diagnostics: vec![diagnostic] }))?;
    Ok(expand_document(&doc)?)
}
