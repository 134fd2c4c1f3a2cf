//! The agent with which a run continues: the one of its last process, unless the operator names another.

use delta_agent::agent::{self, Agent};
use delta_base::redact::REDACTED;
use delta_llm::llm::{LlmSetting, ModelChoice};
use delta_operator::arguments::agent_choice;
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::prices;
use delta_run::event::EngineStart;
use std::path::Path;

/// Loads the agent of a run, from `agent_dir` if it is given.
pub fn load_run_agent(
    agent_dir: Option<&Path>,
    start: &EngineStart,
    options: &RunOptions,
) -> Result<Agent, CommandFailure> {
    let home = agent_dir.unwrap_or_else(|| Path::new(&start.agent_home));
    if !home.is_dir() && agent_dir.is_none() {
        let message = agent::missing_agent(home);
        return Err(CommandFailure::config(message, agent_choice::MOVED_AGENT_HINT.to_owned()));
    }
    if agent_dir.is_some() {
        return agent_choice::load_agent(home, options);
    }
    // The model of the last process, even if the operator's default is another one now.
    let model =
        options.model.clone().or_else(|| ModelChoice::parse_recorded(start.config.model_option()?));
    // A key that this command sets comes later, and counts.
    let mut llm = LlmSetting::parse_recorded(start.config.llm_settings());
    llm.extend_from_slice(&options.llm);
    check_unrecorded_address(&llm)?;
    let options = RunOptions { model, llm, ..options.clone() };
    let mut agent = agent_choice::load_agent(home, &options)?;
    prices::use_recorded_prices(&mut agent, start)?;
    Ok(agent)
}

/// Refuses an address of `--llm` whose secret is not recorded, unless this command names another one.
fn check_unrecorded_address(settings: &[LlmSetting]) -> Result<(), CommandFailure> {
    let address = settings.iter().rfind(|setting| setting.key() == "base_url");
    let Some(address) = address.filter(|address| address.to_string().contains(REDACTED)) else {
        return Ok(());
    };
    let message =
        format!("the run was started with `--llm {address}`, whose secret is not recorded");
    let hint = "name the address again: `--llm base_url=URL`; a key belongs into the environment";
    Err(CommandFailure::config(message, hint))
}
