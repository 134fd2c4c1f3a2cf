//! `delta sandbox exec`: a command in a sandbox, outside of a run.

use crate::sandbox;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::agent::Agent;
use delta_agent::child_environment::ChildEnvironment;
use delta_agent::run_sandbox::{ActiveSandbox, OperatorPolicy, RunSandbox};
use delta_agent::tool::Tool;
use delta_base::redact::Secrets;
use delta_base::suggest;
use delta_operator::arguments::{completion_candidates, run_sandbox};
use delta_operator::failure::CommandFailure;
use delta_operator::sandbox_options::SandboxOptions;
use delta_operator::{cancel, environment};
use delta_process::{ProcessEnd, run_in_foreground};
use delta_program::stdio;
use delta_sandbox::{DeclaredProfile, is_in_own_tmp};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Run a command in a sandbox, for example a shell to look around
///
/// The sandbox is the one of --tool or --agent, as far as --sandbox allows, else of --sandbox, or `workspace`. The command has
/// the environment of tools, and no terminal: Ctrl-C ends it. The exit code is the command's, 128 and the number of the signal
/// that killed it, or 126 if it was not started.
#[derive(Debug, Args)]
#[command(mut_arg("sandbox_without", |arg| arg.hide_long_help(true)), after_long_help = "\
Examples:
  delta sandbox exec -- ls -la ~
  delta sandbox exec --sandbox reader -- sh -c 'echo a > file'
  delta sandbox exec --agent ./my-agent --tool fetch -w ~/src/project -- bash -i")]
pub struct SandboxExecArgs {
    /// Agent directory [default: the current directory with --tool]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: Option<PathBuf>,
    /// Enter the sandbox of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Workspace, and the directory of the command
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    #[command(flatten)]
    sandbox: SandboxOptions,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command; returns its exit code.
pub fn exec_command(args: &SandboxExecArgs) -> Result<ExitCode, CommandFailure> {
    let code = match run_in_sandbox(args)? {
        ProcessEnd::Exited(code) | ProcessEnd::NotStarted { code, .. } => code,
        ProcessEnd::Killed(signal) => 128 + signal,
        _ => 1,
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn run_in_sandbox(args: &SandboxExecArgs) -> Result<ProcessEnd, CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let default_home = args.tool.is_some().then(|| PathBuf::from("."));
    let home = args.agent.clone().or(default_home);
    let agent = home.map(|home| sandbox::load_agent_without_llm(&home)).transpose()?;
    let tool = args.tool.as_deref().zip(agent.as_ref());
    let tool = tool.map(|(name, agent)| find_tool(agent, name)).transpose()?;
    let policy = args.sandbox.policy()?;
    let declared = declared_profile(agent.as_ref(), tool, &policy)?;
    let agent_home = agent.as_ref().map_or(Path::new(""), |agent| &agent.home);
    let vars = sandbox::workspace_vars(agent_home, &args.work_dir)?;
    let setup = run_sandbox::sandbox_setup(vars.clone(), policy)?;
    let label = tool.map_or("the command".to_owned(), |tool| format!("the tool `{}`", tool.name));
    let sandbox =
        RunSandbox::prepare_one(&label, declared, setup).map_err(run_sandbox::report_failure)?;
    for warning in sandbox.warnings() {
        stdio::print_error_line(&format!("Warning: {warning}"));
    }
    let inherited = environment::variables().clone();
    let keys = environment::key_names_of(agent.as_ref());
    let env = tool.into_iter().flat_map(|tool| &tool.env);
    let env = env.map(|(name, value)| (name.as_str(), vars.expand_text(value)));
    let passed = tool.map_or(&[][..], |tool| &tool.pass_env);
    let environment =
        ChildEnvironment::new(inherited, keys, "", None, vars.clone(), Secrets::default())
            .with_sandbox(Some(Arc::clone(&sandbox)));
    let active = sandbox.of_tool(&label);
    let launch = environment.launch_in(active, 0, passed, env);
    let end = run_in_foreground(&args.command, &launch, &cancel);
    if let ProcessEnd::NotStarted { reason, .. } = &end {
        stdio::print_error_line(&format!("error: {reason}"));
    }
    let visible = [&vars.cwd, &vars.agent_home].map(PathBuf::as_path);
    if !matches!(end, ProcessEnd::Exited(0))
        && let Some(file) = active.and_then(|active| find_lost_file(&args.command, active, visible))
    {
        stdio::print_error_line(&format!(
            "Note: /tmp is the sandbox's own, without {} of the machine; copy it into the workspace",
            file.display()
        ));
    }
    Ok(end)
}

/// The first file of a command that is in the /tmp of the machine, and so not in the sandbox. What is `visible` is in both.
fn find_lost_file<'a>(
    command: &'a [String],
    sandbox: ActiveSandbox<'_>,
    visible: [&Path; 2],
) -> Option<&'a Path> {
    if sandbox.temp_dir().is_some() {
        return None;
    }
    let home = environment::path_variable("HOME");
    let roots = visible.into_iter().chain(home.as_deref());
    let roots: Vec<&Path> = roots.filter(|root| !root.as_os_str().is_empty()).collect();
    let mut files = command.iter().map(Path::new).filter(|path| path.exists());
    files.find(|path| {
        is_in_own_tmp(sandbox.profile(), visible[0], path)
            && !roots.iter().any(|root| path.starts_with(root))
    })
}

fn find_tool<'a>(agent: &'a Agent, name: &str) -> Result<&'a Tool, CommandFailure> {
    agent.tools.iter().find(|tool| tool.name == name).ok_or_else(|| {
        let names = agent.tools.iter().map(|tool| tool.name.as_str());
        let message = format!("the agent has no tool `{name}`");
        CommandFailure::config(message, suggest::did_you_mean(name, names))
    })
}

/// The profile that the sandbox has without the operator's; `None` for the operator's alone.
fn declared_profile(
    agent: Option<&Agent>,
    tool: Option<&Tool>,
    policy: &OperatorPolicy,
) -> Result<Option<DeclaredProfile>, CommandFailure> {
    let (declared, label) = match (tool, agent) {
        (Some(tool), _) => (tool.profile.clone(), format!("the tool `{}`", tool.name)),
        (None, Some(agent)) => (agent.sandbox.profile.clone(), "the agent".to_owned()),
        (None, None) if policy.profiles.is_empty() => {
            return Ok(Some(DeclaredProfile::workspace()));
        }
        (None, None) => return Ok(None),
    };
    if declared.is_none() && policy.profiles.is_empty() {
        let message = format!("{label} has no sandbox");
        let help = "write `sandbox: workspace` in agent.yaml, or pass `--sandbox workspace`";
        return Err(CommandFailure::config(message, help));
    }
    Ok(declared)
}
