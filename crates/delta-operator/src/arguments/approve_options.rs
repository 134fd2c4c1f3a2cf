//! `--approve` and `--approve-all`: what the operator adds to the approvals of an agent.

use crate::failure::CommandFailure;
use clap::Args;
use delta_agent::agent::Agent;
use delta_agent::tool::is_tool_name;
use delta_base::suggest;
use delta_run::event::approval::{EVERY_TOOL, OperatorApproval};

/// The options for approvals.
#[derive(Debug, Clone, Default, Args)]
pub struct ApproveOptions {
    /// Ask before every call (`ask`), or before calls of one tool
    ///
    /// Repeatable. Applies when the run is continued too.
    #[arg(long, value_name = "ask|NAME=ask", value_parser = parse_approve)]
    approve: Vec<String>,
    /// Approve every call that would ask; rules that deny still deny
    #[arg(long, conflicts_with = "approve")]
    pub approve_all: bool,
}

/// The tool that `ask` or `NAME=ask` names.
fn parse_approve(text: &str) -> Result<String, String> {
    match text.rsplit_once('=') {
        None if text == "ask" => Ok(EVERY_TOOL.to_owned()),
        Some((name, "ask")) if is_tool_name(name) => Ok(name.to_owned()),
        _ => {
            Err("expected `ask`, for all tools, or `NAME=ask`; `--approve-all` approves every call"
                .to_owned())
        }
    }
}

impl ApproveOptions {
    /// Whether an option is set.
    pub fn are_set(&self) -> bool {
        self.approve_all || !self.approve.is_empty()
    }

    /// What the journal records.
    pub fn operator_approval(&self) -> OperatorApproval {
        OperatorApproval { ask: self.approve.clone(), all: self.approve_all, renew: false }
    }

    /// Checks that the agent has the tools that the options name.
    pub fn check(&self, agent: &Agent) -> Result<(), CommandFailure> {
        for name in self.approve.iter().filter(|name| *name != EVERY_TOOL) {
            if agent.tool(name).is_none() {
                let message = format!("`--approve {name}=ask`: the agent has no tool `{name}`");
                let names = agent.tools.iter().map(|tool| tool.name.as_str());
                let hint = match agent.tools.as_slice() {
                    [] => "the agent has no tools of its own".to_owned(),
                    _ => suggest::did_you_mean(name, names),
                };
                return Err(CommandFailure::config(message, hint));
            }
        }
        Ok(())
    }
}
