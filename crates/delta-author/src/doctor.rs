//! `delta doctor`: what of delta works on this machine, for this user, and what to change.

mod machine_checks;
mod operator_checks;

use anstyle::{AnsiColor, Style};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_operator::arguments::completion_candidates;
use delta_operator::command_line;
use delta_program::default_format::TextOrJson;
use delta_program::stdio;
pub use operator_checks::EndpointAccess;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Check what works on this machine, and print what to change
///
/// Looks at the sandbox of the kernel, file systems, programs, settings, endpoints and the terminal. Changes nothing, prints no
/// key and starts no command that prints one. Asks endpoints without a key for their models, and sends nothing else.
///
/// Exit codes: 0, also with warnings; 1 if something is broken that delta needs.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

const EXAMPLES: &str = "\
Examples:
  delta doctor -w /mnt/shared/project    # does it need leases?
  delta doctor --format json | jq -r '.checks[] | select(.status != \"ok\").help'";

/// The outcome of a check, the best one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CheckStatus {
    Ok,
    /// Something is missing that some agents need.
    Warn,
    /// Something is broken that delta needs.
    Fail,
}

impl CheckStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => AnsiColor::Green.on_default(),
            Self::Warn => AnsiColor::Yellow.on_default().bold(),
            Self::Fail => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// One checked thing.
#[derive(Debug)]
struct DoctorCheck {
    /// What was checked, one word.
    name: &'static str,
    status: CheckStatus,
    /// What is the case, as a fragment; may have several lines.
    finding: String,
    /// What to change; empty if nothing is wrong.
    help: String,
}

impl DoctorCheck {
    fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, status: CheckStatus::Ok, finding: finding.into(), help: String::new() }
    }

    fn warn(name: &'static str, finding: impl Into<String>, help: impl Into<String>) -> Self {
        Self { status: CheckStatus::Warn, help: help.into(), ..Self::ok(name, finding) }
    }

    fn fail(name: &'static str, finding: impl Into<String>, help: impl Into<String>) -> Self {
        Self { status: CheckStatus::Fail, help: help.into(), ..Self::ok(name, finding) }
    }
}

/// Checks the machine; returns the exit code. `access` asks an endpoint without a key.
pub fn doctor_command(args: &DoctorArgs, access: EndpointAccess) -> ExitCode {
    let mut checks = machine_checks::check_machine(&args.work_dir);
    checks.extend(operator_checks::check_operator(access));
    checks.push(machine_checks::check_terminal());
    let worst = checks.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Ok);
    match args.format {
        TextOrJson::Text => {
            stdio::print_painted(&render_checks(&checks), paint_check);
        }
        TextOrJson::Json => {
            stdio::print_json(&format!("{:#}\n", checks_json(&checks, worst)));
        }
    }
    if worst == CheckStatus::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn checks_json(checks: &[DoctorCheck], worst: CheckStatus) -> Json {
    let checks: Vec<Json> = checks
        .iter()
        .map(|check| {
            json!({
                "name": check.name,
                "status": check.status.name(),
                "finding": check.finding,
                "help": Some(&check.help).filter(|help| !help.is_empty()),
            })
        })
        .collect();
    json!({"status": worst.name(), "version": env!("CARGO_PKG_VERSION"), "checks": checks})
}

/// The columns of the status and the name.
const STATUS_COLUMNS: usize = 6;
const NAME_COLUMNS: usize = 11;

/// Three columns: the status, the name and the finding, with the remedy below; a summary if something is wrong.
fn render_checks(checks: &[DoctorCheck]) -> String {
    let mut text = String::new();
    for DoctorCheck { name, status, finding, help } in checks {
        let help = help.lines().enumerate().map(|(index, line)| {
            if index == 0 { format!("help: {line}") } else { format!("      {line}") }
        });
        let lines = finding.lines().map(str::to_owned).chain(help);
        for (index, line) in lines.enumerate() {
            let (status, name) = if index == 0 { (status.name(), *name) } else { ("", "") };
            let line = format!("{status:<STATUS_COLUMNS$}{name:<NAME_COLUMNS$}{line}");
            text.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let counts: Vec<String> = [(CheckStatus::Fail, "problem"), (CheckStatus::Warn, "warning")]
        .into_iter()
        .filter(|(status, _)| count(*status) > 0)
        .map(|(status, noun)| command_line::pluralize(count(status), noun))
        .collect();
    if !counts.is_empty() {
        text.push_str(&format!("\n{}\n", counts.join(", ")));
    }
    text
}

/// A line with its status in colour.
fn paint_check(line: &str) -> String {
    for status in [CheckStatus::Ok, CheckStatus::Warn, CheckStatus::Fail] {
        if let Some(rest) = line.strip_prefix(status.name()).filter(|rest| rest.starts_with(' ')) {
            let style = status.style();
            return format!("{style}{}{style:#}{rest}", status.name());
        }
    }
    line.to_owned()
}
