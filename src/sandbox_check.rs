//! `delta sandbox check`: what would be enforced for each tool of an agent on this machine.

use super::completion_candidates;
use super::failure::CommandFailure;
use super::sandbox_options::SandboxOptions;
use super::{sandbox_command, sandbox_preparation};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::run_sandbox::{NO_SANDBOX, RunSandbox};
use delta_base::text_width;
use delta_program::stdio;
use delta_run::event::{ProfileRecord, SandboxRecord};
use delta_sandbox::{SandboxMachine, probe};
use serde_json::Value as Json;
use std::path::PathBuf;
use std::process::ExitCode;

/// The width of the output.
const COLUMNS: usize = 80;

/// Print what is enforced for each tool on this machine, by what, and what is not
///
/// Prepares each sandbox as a run does, and starts no tool. Tools with the same sandbox are listed together. The exit code is
/// 126 if a run would not start.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta sandbox check
  delta sandbox check --agent ./my-agent -w ~/src/project --sandbox reader")]
pub struct SandboxCheckArgs {
    /// Agent directory
    #[arg(long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: PathBuf,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    #[command(flatten)]
    sandbox: SandboxOptions,
}

/// Checks the sandboxes of an agent; returns the exit code.
pub fn check_sandbox_command(args: &SandboxCheckArgs) -> ExitCode {
    match check_sandboxes(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn check_sandboxes(args: &SandboxCheckArgs) -> Result<(), CommandFailure> {
    let agent = sandbox_command::load_agent_without_llm(&args.agent)?;
    let vars = sandbox_command::workspace_vars(&agent.home, &args.work_dir)?;
    let setup = sandbox_preparation::sandbox_setup(vars, args.sandbox.policy()?)?;
    stdio::print_text(&describe_machine(&probe(&setup.program)));
    let prepared =
        RunSandbox::prepare(&agent, setup).map_err(sandbox_preparation::report_failure)?;
    let mut text = String::new();
    if let Some(run) = &prepared {
        let record = run.record();
        for (name, profile) in &record.profiles {
            push_wrapped(&mut text, "\n", &profile_users(record, name).join(", "));
            text.push_str(&describe_record(profile));
            for (guarantee, reason) in run.missing_of(name) {
                push_wrapped(&mut text, "  does not hold: ", &format!("{guarantee}: {reason}"));
            }
        }
    }
    let boxed = prepared.as_ref().map(|run| &run.record().tools);
    let free: Vec<&str> = agent
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .filter(|tool| !boxed.is_some_and(|boxed| boxed.contains_key(*tool)))
        .collect();
    if !free.is_empty() {
        push_wrapped(&mut text, "\n", &free.join(", "));
        text.push_str(&format!("  by: {NO_SANDBOX}\n"));
    }
    stdio::print_text(&text);
    Ok(())
}

fn describe_machine(machine: &SandboxMachine) -> String {
    let landlock = machine.landlock.map_or("none".to_owned(), |version| version.to_string());
    let mut text = format!("kernel {}, landlock {landlock}", machine.kernel);
    match &machine.namespaces {
        Ok(()) => text.push_str(", namespaces\n"),
        Err(refusal) => {
            text.push_str(", no namespaces\n");
            push_wrapped(&mut text, "  ", &refusal.reason);
            push_wrapped(&mut text, "  help: ", &refusal.remedy);
        }
    }
    text
}

/// What has the profile: tools by name, and the others.
fn profile_users(record: &SandboxRecord, profile: &str) -> Vec<String> {
    let tools = record.tools.iter().filter(|(_, name)| *name == profile);
    let mut users: Vec<String> = tools.map(|(tool, _)| tool.clone()).collect();
    if record.generators.as_deref() == Some(profile) {
        users.push("the generators".to_owned());
    }
    let hooks = record.hooks.iter().filter(|(_, name)| *name == profile);
    users.extend(hooks.map(|(hook, _)| format!("the hook {hook}")));
    users
}

fn describe_record(profile: &ProfileRecord) -> String {
    let mut text = format!("  by: {}\n", profile.by);
    for (key, value) in &profile.keys {
        push_wrapped(&mut text, &format!("  {key}: "), &plain_value(value));
    }
    push_wrapped(&mut text, "  holds: ", &profile.holds.join(", "));
    if !profile.watched.is_empty() {
        let watched = profile.watched.join(", ");
        text.push_str(&format!("  watched: {watched} (the run ends at a change)\n"));
    }
    text
}

/// A value of the record without the signs of JSON.
fn plain_value(value: &Json) -> String {
    let parts: Vec<String> = match value {
        Json::String(text) => vec![text.clone()],
        Json::Array(items) => items.iter().map(plain_value).collect(),
        Json::Object(entries) => {
            entries.iter().map(|(key, value)| format!("{key} {}", plain_value(value))).collect()
        }
        other => vec![other.to_string()],
    };
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Appends a line, broken at spaces.
fn push_wrapped(text: &mut String, start: &str, rest: &str) {
    let line = format!("{start}{rest}");
    let line = line.strip_prefix('\n').inspect(|_| text.push('\n')).unwrap_or(&line);
    for (index, piece) in text_width::wrap_words(line, COLUMNS - 4).into_iter().enumerate() {
        let indent = if index == 0 { "" } else { "    " };
        text.push_str(&format!("{indent}{piece}\n"));
    }
}
