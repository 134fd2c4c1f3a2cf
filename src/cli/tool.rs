//! `delta tool ...`

use super::failure::Failure;
pub use super::lint::LintArgs;
pub use super::migrate::MigrateArgs;
use super::stdout;
use crate::diag::{Diagnostic, Report};
use crate::tool::expand::expand as expand_document;
use crate::yaml::Document;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// agent.yaml, or any file with a `tools:` list
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

fn expanded(file: &std::path::Path) -> Result<String, Failure> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
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
