//! What `plan` checks so that no run of the plan is refused later: agents with their models and settings, variables, prices.

use crate::formats::plan::PlannedModel;
use crate::formats::run_settings::RunSettings;
use crate::formats::sweep_file::ModelEntry;
use crate::planning::plan_sources::{PlanSources, SourceAgent, llm_options, model_file};
use delta_agent::agent::Agent;
use delta_base::api_key_names::is_key_name;
use delta_llm::llm::endpoint::{EnvOrigin, EnvSetting};
use delta_llm::llm::{Endpoint, LlmSetting, ModelChoice, ModelSelection};
use delta_operator::arguments::budget;
use delta_operator::failure::CommandFailure;
use delta_operator::{config, endpoints, environment, lease_options, prices, trust};
use delta_run::sweep::sweep_dir::SweepBudget;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// What limits tokens in a sweep.yaml.
const TOKEN_LIMIT: &str = "`max_tokens: 500k`";

/// Checks that the runs with these settings can begin: the settings of all runs, each set once.
///
/// # Errors
/// The first settings with which a run would be refused.
pub fn check_run_settings(
    sources: &PlanSources,
    settings: &[RunSettings],
) -> Result<(), CommandFailure> {
    let mut loaded = HashSet::new();
    for set in settings {
        for (name, value) in &set.env {
            let checked = lease_options::check_lease_variable(name, value);
            checked
                .map_err(|error| refused_settings(set, format!("`env`: {}", error.message())))?;
        }
        let agents = &sources.source_dirs.agents;
        let agent = agents.iter().find(|agent| agent.id == set.agent);
        let model = sources.file.models.iter().find(|model| model.id == set.model);
        let Some((source, model)) = agent.zip(model) else { continue };
        let models = select_model(sources, source, model, set)?;
        if !loaded.contains(&(&set.agent, &set.model)) {
            refuse_unnamed_agent_model(source, &models)?;
        }
        let agent = Agent::load(&source.home, &models, &trust::read_import_path());
        let agent = agent.map_err(|report| refused_settings(set, report.to_string()))?;
        if loaded.insert((&set.agent, &set.model)) {
            check_key_variables(sources, model, &agent)?;
            load_copy(source, &models)?;
        }
        check_price(sources, agent, set)?;
    }
    Ok(())
}

/// The model of runs with these settings.
fn select_model(
    sources: &PlanSources,
    agent: &SourceAgent,
    entry: &ModelEntry,
    set: &RunSettings,
) -> Result<ModelSelection, CommandFailure> {
    let path = model_file(entry, &sources.source_dirs.base);
    let file = path.as_ref().map(|path| path.display().to_string());
    let planned = PlannedModel { file, ..entry.model.clone() };
    let option = planned.option(|_| path.clone().unwrap_or_default(), &agent.home);
    let option = option.map(|text| ModelChoice::parse(&text)).transpose();
    let option = option.map_err(|message| {
        CommandFailure::config(format!("model `{}`: {message}", entry.id), None)
    })?;
    let options = llm_options(&set.llm);
    let settings = options.iter().map(|text| LlmSetting::parse(text));
    let settings = settings
        .collect::<Result<Vec<_>, _>>()
        .map_err(|message| refused_settings(set, format!("`llm`: {message}")))?;
    Ok(ModelSelection { settings, ..config::model_selection(option)? })
}

/// A failure that names a run if its parameters decide.
fn refused_settings(set: &RunSettings, reason: String) -> CommandFailure {
    if set.params.is_empty() {
        return CommandFailure::config(reason, None);
    }
    let run = set.describe_run();
    CommandFailure::config(format!("a run cannot begin, {run}:\n{reason}"), None)
}

/// Refuses an agent without a model if sweep.yaml names none for it.
fn refuse_unnamed_agent_model(
    agent: &SourceAgent,
    models: &ModelSelection,
) -> Result<(), CommandFailure> {
    let model = example_model(models);
    let help = format!("a sweep names its models: write `models: [\"{model}\"]`");
    refuse_operator_model(&format!("agent `{}`", agent.id), &agent.home, models, help)
}

/// Refuses an agent that judges if neither it nor sweep.yaml names its model.
///
/// # Errors
/// Only the operator's settings name one.
pub fn refuse_unnamed_judge_model(
    grader: &str,
    home: &Path,
    models: &ModelSelection,
) -> Result<(), CommandFailure> {
    let help = format!("write `model: \"{}\"` for it", example_model(models));
    refuse_operator_model(&format!("grader `{grader}`"), home, models, help)
}

/// A model as sweep.yaml names it: the operator's own choice, if there is one.
fn example_model(models: &ModelSelection) -> String {
    models.default.as_ref().map_or_else(|| "openai:gpt-4o".to_owned(), ToString::to_string)
}

/// Refuses an agent whose model neither it nor the sweep names: each process would take the one that its operator has set, and
/// one row of a table would be of several models.
fn refuse_operator_model(
    label: &str,
    home: &Path,
    models: &ModelSelection,
    help: String,
) -> Result<(), CommandFailure> {
    if models.option.is_some() {
        return Ok(());
    }
    let import_path = trust::read_import_path();
    let without = ModelSelection { default: None, ..models.clone() };
    let with_any =
        ModelSelection { settings: models.settings.clone(), ..ModelSelection::without_llm() };
    if Agent::load(home, &without, &import_path).is_ok()
        || Agent::load(home, &with_any, &import_path).is_err()
    {
        return Ok(());
    }
    let message = format!("{label} has no `llm`, and sweep.yaml does not name its model");
    Err(CommandFailure::config(message, help))
}

fn load_copy(agent: &SourceAgent, models: &ModelSelection) -> Result<(), CommandFailure> {
    let loaded = Agent::load(&agent.copy, models, &trust::read_import_path());
    loaded.map(|_| ()).map_err(|report| {
        let message = format!(
            "agent `{}` does not load from a copy of its directory alone:\n{report}",
            agent.id
        );
        let help = "move what it imports into its directory, or into one of DELTA_IMPORT_PATH";
        CommandFailure::config(message, help.to_owned())
    })
}

/// Refuses a variable that holds a key of any provider or of this agent: all who can read the plan would have it.
fn check_key_variables(
    sources: &PlanSources,
    model: &ModelEntry,
    agent: &Agent,
) -> Result<(), CommandFailure> {
    let keys: HashSet<String> = environment::key_names_of(Some(agent)).into_iter().collect();
    let mut names = sources.file.env.keys().chain(model.model.env.keys());
    match names.find(|name| is_key_name(name) || keys.contains(*name)) {
        Some(name) => Err(CommandFailure::config(
            format!("`env`: {name}: a key would be written into the plan"),
            format!(
                "set {name} in the environment of `delta sweep run`, or in a file for `--env-file`"
            ),
        )),
        None => Ok(()),
    }
}

/// Checks that limits of the cost of runs with these settings can be enforced.
fn check_price(
    sources: &PlanSources,
    agent: Agent,
    set: &RunSettings,
) -> Result<(), CommandFailure> {
    let limit = if sources.file.run.max_cost.is_some() {
        "`max_cost` in `run`"
    } else if sources.file.budget.max_cost.is_some() {
        "`max_cost` in `budget`"
    } else if agent.limits.max_cost.is_some() {
        "`max_cost` of the agent"
    } else {
        return Ok(());
    };
    require_price(agent, limit, &set.env)
}

/// Checks that the budget of a sweep can be enforced for an agent that judges.
///
/// # Errors
/// The price of its LLM is unknown.
pub fn check_judge_price(judge: Agent, budget: &SweepBudget) -> Result<(), CommandFailure> {
    if budget.max_cost.is_none() {
        return Ok(());
    }
    require_price(judge, "`max_cost` in `budget`", &BTreeMap::new())
}

/// Checks that the price of an agent's LLM is known where its runs have these variables.
fn require_price(
    mut agent: Agent,
    limit: &str,
    env: &BTreeMap<String, String>,
) -> Result<(), CommandFailure> {
    if env.contains_key(prices::PRICES_VARIABLE) {
        return Ok(());
    }
    let parent = prices::RunPrices::default();
    let mut missing = Vec::new();
    agent.llm.try_for_each_model(|_, llm| {
        let reason = if llm.has_known_cost() {
            None
        } else {
            let address = Endpoint::resolve_address(llm, &|name| run_variables(name, env))?;
            prices::apply_prices(llm, &address, &parent)?
        };
        missing.push(reason);
        Ok::<_, CommandFailure>(())
    })?;
    let mut models = agent.llm.models().zip(&missing);
    let Some((llm, reason)) = models.find(|(llm, _)| !llm.has_known_cost()) else {
        return Ok(());
    };
    Err(budget::missing_price_failure(&agent, llm, limit, TOKEN_LIMIT, reason.as_deref()))
}

/// The values that a variable has for a run, the first one for it.
fn run_variables(name: &str, env: &BTreeMap<String, String>) -> Vec<EnvSetting> {
    let value = env.get(name).filter(|value| !value.is_empty()).cloned();
    let setting =
        value.map(|value| EnvSetting { name: name.to_owned(), value, origin: EnvOrigin::Process });
    setting.into_iter().chain(endpoints::operator_settings(name, None)).collect()
}
