//! `delta tool lint`: prints the findings of the linter.

use crate::tool::find_agent_dir;
use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use delta_base::terminal;
use delta_lint::lint::{LintFinding, LintLevel, find_agents_below, lint_agent};
use delta_operator::failure::CommandFailure;
use delta_operator::{environment, trust};
use delta_process::LaunchContext;
use delta_program::stdio;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Report errors and likely mistakes in the files of an agent
///
/// Also checks imports, tests and the agents in agents/; starts nothing. `x-lint-allow: [RULE]` in a tool, a source, a hook or
/// at the top of a file silences a rule there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta tool lint my-agent
  delta tool lint my-agent --format json | jq -r '.[].rule' | sort | uniq -c

Exit codes: 0 no findings at --level or above, 1 findings, 2 usage error, 126 DIR is not an agent directory")]
pub struct LintArgs {
    /// Agent directory
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Lowest level to report
    #[arg(long, value_enum, default_value_t = LintThreshold::Warning)]
    level: LintThreshold,
    /// Output format
    #[arg(long, value_enum, default_value_t = LintFormat::Text)]
    format: LintFormat,
}

const BOLD: Style = Style::new().bold();
const HELP: Style = AnsiColor::Cyan.on_default().bold();

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LintThreshold {
    Error,
    Warning,
    Info,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LintFormat {
    Text,
    Json,
}

/// Prints the findings; returns the exit code.
pub fn lint_command(args: &LintArgs) -> Result<ExitCode, CommandFailure> {
    let dir = find_agent_dir(&args.dir, "delta tool lint")?;
    let level = match args.level {
        LintThreshold::Error => LintLevel::Error,
        LintThreshold::Warning => LintLevel::Warning,
        LintThreshold::Info => LintLevel::Info,
    };
    let allowed = trust::read_import_path();
    let mut findings = Vec::new();
    for home in find_agents_below(&dir) {
        let launch = LaunchContext::new(&home, environment::variables().clone());
        findings.extend(lint_agent(&home, &allowed, &launch));
    }
    findings.retain(|finding| finding.level >= level);
    match args.format {
        LintFormat::Text if findings.is_empty() => {
            if terminal::is_stdout_terminal() {
                stdio::print_error_line("no findings");
            }
            true
        }
        LintFormat::Text => stdio::print_painted(&render_findings_text(&findings), paint_finding),
        LintFormat::Json => stdio::print_text(&render_findings_json(&findings)),
    };
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line of a finding with colours: the level, the marks below the source, and the word `help`.
fn paint_finding(line: &str) -> String {
    let levels = [LintLevel::Error, LintLevel::Warning, LintLevel::Info];
    for level in levels {
        let Some(rest) = line.strip_prefix(level.name()).filter(|rest| rest.starts_with('['))
        else {
            continue;
        };
        if let Some((rule, message)) = rest.split_once("]: ") {
            let style = level_style(level);
            let head = format!("{style}{}{rule}]{style:#}", level.name());
            return format!("{head}{BOLD}: {message}{BOLD:#}");
        }
    }
    let (gutter, marks) = line.split_at(line.find('^').unwrap_or(line.len()));
    let is_below_source = gutter.trim() == "|" && marks.bytes().all(|byte| byte == b'^');
    if is_below_source && !marks.is_empty() {
        return format!("{gutter}{HELP}{marks}{HELP:#}");
    }
    match line.strip_prefix("  = help:") {
        Some(rest) => format!("  = {HELP}help{HELP:#}:{rest}"),
        None => line.to_owned(),
    }
}

fn level_style(level: LintLevel) -> Style {
    match level {
        LintLevel::Error => AnsiColor::Red.on_default().bold(),
        LintLevel::Warning => AnsiColor::Yellow.on_default().bold(),
        LintLevel::Info => AnsiColor::Blue.on_default().bold(),
    }
}

fn render_findings_text(findings: &[LintFinding]) -> String {
    let mut out = String::new();
    for finding in findings {
        out.push_str(&finding.render());
        out.push_str("\n\n");
    }
    let count = |level: LintLevel| findings.iter().filter(|finding| finding.level == level).count();
    let counts: Vec<String> = [LintLevel::Error, LintLevel::Warning, LintLevel::Info]
        .into_iter()
        .filter(|level| count(*level) > 0)
        .map(|level| format!("{} {}", count(level), level.name_for_count(count(level))))
        .collect();
    if !counts.is_empty() {
        out.push_str(&format!("{}\n", counts.join(", ")));
    }
    out
}

fn render_findings_json(findings: &[LintFinding]) -> String {
    let entries: Vec<_> = findings
        .iter()
        .map(|finding| {
            let diagnostic = &finding.diagnostic;
            json!({
                "rule": finding.rule,
                "level": finding.level.name(),
                "file": diagnostic.file,
                "line": diagnostic.line,
                "column": diagnostic.column,
                "message": diagnostic.message,
                "help": diagnostic.help,
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&entries).unwrap_or_else(|_| "[]".to_owned());
    format!("{text}\n")
}
