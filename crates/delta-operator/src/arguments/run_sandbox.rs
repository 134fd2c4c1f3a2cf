//! Prepares the sandboxes of a run, and reports the ones that cannot be enforced.

use crate::arguments::agent_choice;
use crate::failure::CommandFailure;
use crate::sandbox_options::SandboxOptions;
use crate::{config, environment, state, trust};
use delta_agent::agent::Agent;
use delta_agent::run_sandbox::{
    OperatorPolicy, RunSandbox, SandboxFailure, SandboxProblem, SandboxSetup, can_change_agent,
    describe_sandboxes, followed_paths,
};
use delta_base::engine_variables::EngineVars;
use delta_base::hex::sha256_hex;
use delta_llm::llm::ModelSelection;
use delta_process::own_program;
use delta_run::event::SandboxRecord;
use delta_run::run_tree;
use delta_sandbox::MissingHidden;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Prepares the sandboxes of an agent in a run; `None` if nothing has one. They hide `key_files` too.
///
/// # Errors
/// One cannot be enforced here.
pub fn prepare_run_sandbox(
    agent: &Agent,
    vars: EngineVars,
    policy: OperatorPolicy,
    key_files: Vec<PathBuf>,
) -> Result<Option<Arc<RunSandbox>>, CommandFailure> {
    if !has_sandboxes(agent, &policy) {
        return Ok(None);
    }
    let mut setup = sandbox_setup(vars, policy)?;
    setup.key_files.extend(key_files);
    RunSandbox::prepare(agent, setup).map_err(report_failure)
}

/// The descriptions of an agent's sandboxes, for a request that is not sent; `None` if nothing has one.
///
/// # Errors
/// A profile means nothing here.
pub fn describe_run_sandbox(
    agent: &Agent,
    mut vars: EngineVars,
) -> Result<Option<SandboxRecord>, CommandFailure> {
    let policy = SandboxOptions::default().policy()?;
    if !has_sandboxes(agent, &policy) {
        return Ok(None);
    }
    // A workspace that does not exist yet has the descriptions of any other.
    if !vars.cwd.is_dir() {
        vars.cwd.clone_from(&vars.agent_home);
    }
    vars.run_dir = PathBuf::new();
    let setup = sandbox_setup(vars, policy)?;
    describe_sandboxes(agent, &setup).map(Some).map_err(report_failure)
}

/// The note about an agent that can change its own directory; `workspace` is `None` if the directory is not in it.
///
/// # Errors
/// The program `delta` cannot be found.
pub fn changeable_agent_note(
    agent: &Agent,
    workspace: Option<&Path>,
    policy: &OperatorPolicy,
) -> Result<Option<String>, CommandFailure> {
    let Some(workspace) = workspace else { return Ok(None) };
    let cwd = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let vars = EngineVars { agent_home: agent.home.clone(), cwd, run_dir: PathBuf::new() };
    let setup = sandbox_setup(vars, policy.clone())?;
    let home = agent.home.display();
    Ok(can_change_agent(agent, &setup).then(|| {
        format!(
            "Note: the agent can change its own directory {home}: it is inside of the workspace"
        )
    }))
}

/// A note for each entry of `hide` in the sandboxes of the operator whose path does not exist: lint reads the sandboxes of agents
/// alone.
pub fn hidden_entry_notes(
    agent: &Agent,
    workspace: Option<&Path>,
    policy: &OperatorPolicy,
) -> Vec<String> {
    let home = first_home(&environment::home_directories());
    let cwd = workspace.unwrap_or(&agent.home).to_owned();
    let vars = EngineVars { agent_home: agent.home.clone(), cwd, run_dir: PathBuf::new() };
    let entries = policy.profiles.iter().flat_map(|profile| &profile.hide);
    // The files of a run do not exist yet.
    let entries = entries.filter(|text| !text.starts_with("${RUN_DIR}"));
    let missing = entries.filter_map(|text| MissingHidden::find(text, &vars, home.as_deref()));
    missing
        .map(|entry| {
            let MissingHidden { text, .. } = &entry;
            format!(
                "Note: the operator's sandbox hides `{text}`, which does not exist; {}",
                entry.help()
            )
        })
        .collect()
}

/// The home directory that `~` is: nothing is below `/` alone.
fn first_home(homes: &[PathBuf]) -> Option<PathBuf> {
    homes.iter().find(|home| *home != Path::new("/")).cloned()
}

fn has_sandboxes(agent: &Agent, policy: &OperatorPolicy) -> bool {
    !policy.profiles.is_empty() || agent.declares_sandbox()
}

/// The guarantees of a new agent's sandboxes that do not hold on this machine, with commas, and the first reason; `None` if a
/// run would start, or would not for another reason.
pub fn find_missing_guarantees(home: &Path) -> Option<(String, String)> {
    let models = ModelSelection::without_llm();
    let agent = Agent::load(home, &models, &trust::read_import_path()).ok()?;
    let cwd = agent.home.clone();
    let vars = EngineVars { agent_home: agent.home.clone(), cwd, run_dir: PathBuf::new() };
    let policy = SandboxOptions::default().policy().ok()?;
    let setup = sandbox_setup(vars, policy).ok()?;
    let SandboxProblem::Missing(missing) = RunSandbox::prepare(&agent, setup).err()?.problem else {
        return None;
    };
    let names: Vec<&str> = missing.iter().map(|one| one.guarantee.name()).collect();
    Some((names.join(","), missing.first()?.reason.clone()))
}

/// What sandboxes are prepared from in this process.
pub fn sandbox_setup(
    vars: EngineVars,
    mut policy: OperatorPolicy,
) -> Result<SandboxSetup, CommandFailure> {
    if let Some(name) = agent_choice::installed_name(&vars.agent_home) {
        policy.hosts.extend(config::allowed_hosts(&name, &vars.agent_home, &vars.cwd)?);
    }
    let program = own_program();
    let homes = environment::home_directories();
    let home_of_git = environment::path_variable("HOME").and_then(|home| home.canonicalize().ok());
    let temp_dir = environment::path_variable("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    let key = format!("{}\n{}", vars.run_dir.display(), std::process::id());
    let key = if vars.run_dir.as_os_str().is_empty() {
        sha256_hex(&key)
    } else {
        sha256_hex(vars.run_dir.as_os_str().as_bytes())
    };
    Ok(SandboxSetup {
        program,
        git_follows: followed_paths(
            &vars.cwd,
            &environment::variables().clone().into(),
            home_of_git.as_deref(),
        ),
        home: first_home(&homes),
        homes,
        key_files: state::key_paths(),
        enclosing_runs: environment::parent_run()
            .map(|parent| run_tree::find_enclosing_runs(Path::new(&parent.run_dir)))
            .unwrap_or_default(),
        temp_dir,
        key: key[..16].to_owned(),
        policy,
        variables: environment::variables().clone(),
        vars,
    })
}

/// The failure for a sandbox that cannot be prepared.
pub fn report_failure(failure: SandboxFailure) -> CommandFailure {
    let mut message = failure.to_string();
    if let Some((file, line)) = &failure.subject.place {
        message.push_str(&format!("\n  --> {file}:{line}"));
    }
    let hint = match failure.problem {
        SandboxProblem::Unresolved(problems) => {
            let helps: Vec<String> = problems.into_iter().map(|problem| problem.help).collect();
            Some(helps.join("\n"))
        }
        SandboxProblem::Missing(missing) => {
            let names: Vec<&str> = missing.iter().map(|one| one.guarantee.name()).collect();
            let mut reasons: Vec<&str> = missing.iter().map(|one| one.reason.as_str()).collect();
            reasons.dedup();
            for reason in reasons {
                message.push_str(&format!("\n  = note: {reason}"));
            }
            let mut helps: Vec<String> =
                missing.iter().filter_map(|one| one.remedy.clone()).collect();
            helps.dedup();
            helps.push(format!(
                "`delta sandbox check` prints what is enforced here; `--sandbox-without {}` runs without",
                names.join(",")
            ));
            Some(helps.join("\n"))
        }
        SandboxProblem::RemoteServer => Some(
            "run the agent without a sandbox of the operator, or without this server".to_owned(),
        ),
        SandboxProblem::Survives => Some(
            "leave out `survive`, or run the agent without a sandbox of the operator if the tool may do everything"
                .to_owned(),
        ),
        SandboxProblem::Scratch(error) => Some(error.help()),
        SandboxProblem::Other(_) => Some("`delta sandbox check` prints what is enforced here".to_owned()),
    };
    CommandFailure::config(message, hint)
}
