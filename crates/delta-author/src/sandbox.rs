//! `delta sandbox ...`: looks at sandboxes without a run.

mod check;
mod exec;

pub use check::SandboxCheckArgs;
use clap::Subcommand;
use delta_agent::agent::Agent;
use delta_base::engine_variables::EngineVars;
use delta_llm::llm::ModelChoice;
use delta_operator::arguments::agent_choice;
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
pub use exec::SandboxExecArgs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check the sandboxes of an agent, or run a command in one
#[derive(Debug, Subcommand)]
#[command(about = "Check the sandboxes of an agent, or run a command in one", defer = true)]
pub enum SandboxCommand {
    /// Print what is enforced for each tool on this machine, by what, and what is not
    Check(SandboxCheckArgs),
    /// Run a command in a sandbox, for example a shell to look around
    Exec(SandboxExecArgs),
}

/// Runs a command about sandboxes; returns the exit code.
pub fn sandbox_command(command: &SandboxCommand) -> Result<ExitCode, CommandFailure> {
    match command {
        SandboxCommand::Check(args) => {
            check::check_sandbox_command(args).map(|()| ExitCode::SUCCESS)
        }
        SandboxCommand::Exec(args) => exec::exec_command(args),
    }
}

/// The agent in a directory, whose LLM is not asked.
pub fn load_agent_without_llm(home: &Path) -> Result<Agent, CommandFailure> {
    let options = RunOptions::new(None, Some(ModelChoice::openai("none")));
    agent_choice::load_agent(home, &options)
}

/// The values of variables in the sandboxes of an agent in a workspace.
pub fn workspace_vars(agent_home: &Path, work_dir: &Path) -> Result<EngineVars, CommandFailure> {
    let cwd = work_dir.canonicalize().map_err(|error| {
        let message = format!("could not open {}: {error}", work_dir.display());
        CommandFailure::config(message, "name a workspace with `-w DIR`")
    })?;
    Ok(EngineVars { agent_home: agent_home.to_owned(), cwd, run_dir: PathBuf::new() })
}
