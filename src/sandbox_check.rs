//! `delta sandbox check`: what would be enforced for each tool of an agent on this machine.

use super::completion_candidates;
use super::failure::CommandFailure;
use super::run_options::RunOptions;
use super::sandbox_options::SandboxOptions;
use super::{agent_choice, sandbox_preparation};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use delta_agent::run_sandbox::{NO_SANDBOX, RunSandbox};
use delta_llm::llm::ModelChoice;
use delta_program::stdio;
use delta_sandbox::probe;
use delta_shell::EngineVars;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check the sandboxes of an agent
#[derive(Debug, Subcommand)]
#[command(about = "Check the sandboxes of an agent", defer = true)]
pub enum SandboxCommand {
    /// Print what is enforced for each tool on this machine, by what, and what is not
    Check(SandboxCheckArgs),
}

/// Print what is enforced for each tool on this machine, by what, and what is not
///
/// Prepares each sandbox as a run does, and starts no tool. The exit code is 126 if a run would not start.
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

/// Runs a command about sandboxes; returns the exit code.
pub fn sandbox_command(command: &SandboxCommand) -> ExitCode {
    let SandboxCommand::Check(args) = command;
    match check_sandboxes(args) {
        Ok(text) => {
            stdio::print_text(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => failure.report(),
    }
}

fn check_sandboxes(args: &SandboxCheckArgs) -> Result<String, CommandFailure> {
    // No LLM is asked.
    let options = RunOptions::new(None, Some(ModelChoice::openai("none")));
    let agent = agent_choice::load_priced_agent(&args.agent, &options)?;
    let cwd = args.work_dir.canonicalize().map_err(|error| {
        let message = format!("could not open {}: {error}", args.work_dir.display());
        CommandFailure::config(message, "name a workspace with `-w DIR`".to_owned())
    })?;
    let vars = EngineVars { agent_home: agent.home.clone(), cwd, run_dir: PathBuf::new() };
    let setup = sandbox_preparation::sandbox_setup(vars, args.sandbox.policy()?)?;
    let machine = probe(&setup.program);
    let landlock = machine.landlock.map_or("none".to_owned(), |version| version.to_string());
    let mut text = format!("kernel {}, landlock {landlock}", machine.kernel);
    match &machine.namespaces {
        Ok(()) => text.push_str(", namespaces\n"),
        Err(refusal) => {
            text.push_str(&format!(", no namespaces: {}\n  {}\n", refusal.reason, refusal.remedy));
        }
    }
    let prepared =
        RunSandbox::prepare(&agent, setup).map_err(sandbox_preparation::report_failure)?;
    for tool in &agent.tools {
        let sandbox = prepared.as_ref().and_then(|run| run.of_tool(&tool.name));
        let Some(sandbox) = sandbox else {
            text.push_str(&format!("{}: {NO_SANDBOX}\n", tool.name));
            continue;
        };
        let record = prepared.as_ref().and_then(|run| run.record().profiles.get(sandbox.name()));
        let Some(record) = record else { continue };
        text.push_str(&format!("{}: by {}\n", tool.name, record.by));
        text.push_str(&format!("  {}\n", record.line));
        text.push_str(&format!("  holds: {}\n", record.holds.join(", ")));
        if !record.watched.is_empty() {
            let watched = record.watched.join(", ");
            text.push_str(&format!("  watched: {watched} (the run ends at a change)\n"));
        }
        for (guarantee, reason) in sandbox.missing() {
            text.push_str(&format!("  does not hold: {guarantee}: {reason}\n"));
        }
    }
    Ok(text)
}
