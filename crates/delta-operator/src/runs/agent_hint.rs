//! Whether a command that continues a run has to name its agent, and what the user has to know before that.

use crate::runs::own_run;
use crate::runs::run_argument::LocatedRun;
use crate::state;
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_run::run_result::ContinueCommand;
use delta_run::state::RunState;
use std::path::{Path, PathBuf};

/// The agent that a command has to name.
#[derive(Debug, Default)]
pub struct AgentHint {
    /// The value of `--agent`; `None` if the command needs none.
    pub agent: Option<PathBuf>,
    /// Why the command names the agent.
    pub warning: Option<String>,
}

impl AgentHint {
    /// The hint for the run `id` in `run_dir`. A reader creates no key.
    pub fn new(id: &RunId, run_dir: &Path, state: &RunState) -> Self {
        let home = state.start.as_ref().map_or("", |start| &start.agent_home);
        let home = Path::new(home);
        let quoted_home = shell_quote_path(home);
        if !home.is_dir() {
            let warning =
                format!("there is no agent {quoted_home}: replace AGENT with its new directory");
            return Self { agent: Some(PathBuf::from("AGENT")), warning: Some(warning) };
        }
        let keys = state::existing_seal_keys().unwrap_or_default();
        if own_run::fold_with_keys(id, run_dir, keys).is_ok_and(|folded| folded.seals.is_own()) {
            return Self::default();
        }
        let warning =
            format!("no seal of yours covers its agent: look at {quoted_home} before you load it");
        Self { agent: Some(home.to_owned()), warning: Some(warning) }
    }
}

/// The command that continues a run, with its workspace as the user named it.
pub fn named_continue_command(run: &LocatedRun, state: &RunState) -> ContinueCommand {
    let hint = AgentHint::new(&run.id, &run.dir, state);
    ContinueCommand::from_state(state).with_work_dir(&run.workspace_argument).with_agent(hint.agent)
}

/// The command that continues this process's own run.
pub fn own_continue_command(state: &RunState) -> ContinueCommand {
    ContinueCommand::from_state(state).with_agent(own_agent(state))
}

/// The agent that the commands of this process's own run have to name: without a key, the run has no seal.
pub fn own_agent(state: &RunState) -> Option<PathBuf> {
    let start = state.start.as_ref().filter(|_| state::seal_key().is_err())?;
    Some(PathBuf::from(&start.agent_home))
}
