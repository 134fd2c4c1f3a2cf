//! `delta sandbox check`: what would be enforced for each tool of an agent on this machine.

use crate::sandbox;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::agent::Agent;
use delta_agent::run_sandbox::{RunSandbox, SandboxSetup};
use delta_engine::progress::{describe_profile_record, push_wrapped};
use delta_operator::arguments::{completion_candidates, run_sandbox};
use delta_operator::failure::CommandFailure;
use delta_operator::sandbox_options::SandboxOptions;
use delta_program::stdio;
use delta_run::event::NO_SANDBOX;
use delta_sandbox::{MissingHidden, SandboxMachine, find_one_way_git_directory, probe};
use std::path::PathBuf;

/// Print what is enforced for each tool on this machine, by what, and what is not
///
/// Prepares each sandbox as a run does. The exit code is 126 if a run would not start.
#[derive(Debug, Args)]
#[command(mut_arg("sandbox_without", |arg| arg.hide_long_help(true)), after_long_help = "\
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

/// Checks the sandboxes of an agent.
pub fn check_sandbox_command(args: &SandboxCheckArgs) -> Result<(), CommandFailure> {
    let agent = sandbox::load_agent_without_llm(&args.agent)?;
    let vars = sandbox::workspace_vars(&agent.home, &args.work_dir)?;
    let setup = run_sandbox::sandbox_setup(vars, args.sandbox.policy()?)?;
    stdio::print_text(&describe_machine(&probe(&setup.program)));
    let missing = find_missing_hidden(&agent, &setup);
    let git = find_one_way_git_directory(&setup.vars.cwd);
    let prepared = RunSandbox::prepare(&agent, setup).map_err(run_sandbox::report_failure)?;
    let mut text = String::new();
    if let Some(run) = &prepared {
        let record = run.record();
        for (name, profile) in &record.profiles {
            push_wrapped(&mut text, "\n", &record.users_of(name).join(", "));
            text.push_str(&describe_profile_record(profile));
            for (guarantee, reason) in run.missing_of(name) {
                push_wrapped(&mut text, "  not enforced: ", &format!("{guarantee}: {reason}"));
            }
        }
    }
    let git = git.filter(|git| {
        let profiles = prepared.iter().flat_map(|run| run.record().profiles.values());
        let mut writes = profiles.filter_map(|profile| profile.keys.get("write")?.as_array());
        !writes.any(|write| write.contains(&git.to_string_lossy().into()))
    });
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
    if !missing.is_empty() || git.is_some() {
        text.push('\n');
    }
    if let Some(git) = git {
        let git = git.display();
        let problem = format!(
            "{git} does not lead back to the workspace; write: [\"${{CWD}}\", git, {git}] lets tools commit"
        );
        push_wrapped(&mut text, "not `git`: ", &problem);
    }
    for entry in missing {
        let problem = format!("`{}` does not exist; {}", entry.text, entry.help());
        push_wrapped(&mut text, "nothing to hide: ", &problem);
    }
    stdio::print_text(&text);
    Ok(())
}

/// The entries of `hide` that hide nothing, of the agent's profiles and the operator's, each once.
fn find_missing_hidden(agent: &Agent, setup: &SandboxSetup) -> Vec<MissingHidden> {
    let tools = agent.tools.iter().filter_map(|tool| tool.profile.as_ref());
    let hooks = agent.hooks.all().filter_map(|(_, config)| config.profile.as_ref());
    let others = agent.sandbox.profile.iter().chain(&agent.sandbox.llm);
    let profiles = tools.chain(hooks).chain(others).chain(&setup.policy.profiles);
    let mut missing: Vec<MissingHidden> = Vec::new();
    for text in profiles.flat_map(|profile| &profile.hide) {
        if missing.iter().all(|entry| entry.text != *text) {
            missing.extend(MissingHidden::find(text, &setup.vars, setup.home.as_deref()));
        }
    }
    missing
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
