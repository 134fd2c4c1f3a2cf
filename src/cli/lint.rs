//! `delta tool lint`

use super::tool::agent_directory;
use super::{drive, stdout};
use crate::lint::{Finding, Level, lint as findings};
use crate::process::Launch;
use crate::text::Secrets;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Report what of an agent does not load, and what loads but is probably wrong
///
/// Looks at agent.yaml, what it imports, context.yaml, hooks.yaml and the tests, and starts nothing. The rules and how to
/// silence one are in docs/reference/lint.md.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta tool lint my-agent
  delta tool lint my-agent --format json | jq -r '.[].rule' | sort | uniq -c

Exit codes: 0 nothing found at --level or above, 1 something was, 2 usage, 126 DIR is no agent directory")]
pub struct LintArgs {
    /// The agent directory
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Show what is at least this bad
    #[arg(long, value_enum, default_value_t = Threshold::Warning)]
    level: Threshold,
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Threshold {
    Error,
    Warning,
    Info,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Prints what is found.
pub fn lint(args: &LintArgs) -> ExitCode {
    let dir = match agent_directory(&args.dir, "delta tool lint") {
        Ok(dir) => dir,
        Err(failure) => return failure.complain(),
    };
    let launch = Launch {
        cwd: dir.clone(),
        env: std::env::vars_os().collect(),
        secrets: Secrets::default(),
    };
    let level = match args.level {
        Threshold::Error => Level::Error,
        Threshold::Warning => Level::Warning,
        Threshold::Info => Level::Info,
    };
    let allowed = drive::import_path();
    let mut found = findings(&dir, &allowed, &launch);
    found.retain(|finding| finding.level >= level);
    let text = match args.format {
        Format::Text => text(&found),
        Format::Json => json(&found),
    };
    stdout::write(&text);
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn text(found: &[Finding]) -> String {
    let mut out = String::new();
    for finding in found {
        out.push_str(&finding.text());
        out.push_str("\n\n");
    }
    let count = |level: Level| found.iter().filter(|finding| finding.level == level).count();
    let counts: Vec<String> = [Level::Error, Level::Warning, Level::Info]
        .into_iter()
        .filter(|level| count(*level) > 0)
        .map(|level| format!("{} {}", count(level), level.counted(count(level))))
        .collect();
    if !counts.is_empty() {
        out.push_str(&format!("{}\n", counts.join(", ")));
    }
    out
}

fn json(found: &[Finding]) -> String {
    let entries: Vec<_> = found
        .iter()
        .map(|finding| {
            let place = &finding.diagnostic;
            json!({
                "rule": finding.rule,
                "level": finding.level.name(),
                "file": place.file,
                "line": place.line,
                "column": place.column,
                "message": place.message,
                "help": place.help,
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&entries).unwrap_or_else(|_| "[]".to_owned());
    format!("{text}\n")
}
