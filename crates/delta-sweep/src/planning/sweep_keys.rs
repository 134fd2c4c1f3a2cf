//! The variables that a sweep takes API keys from, which no grader gets.

use crate::formats::grader::GraderKind;
use crate::formats::placeholder::{PlaceholderValues, substitute};
use crate::formats::plan::{PlannedModel, PlannedRun};
use crate::formats::plan_file::SweepPlan;
use crate::planning::input_reader::InputReader;
use delta_agent::agent::Agent;
use delta_llm::llm::{ModelChoice, ModelSelection};
use delta_operator::environment::key_names_of;
use delta_operator::failure::CommandFailure;
use delta_operator::trust::read_import_path;
use delta_run::sweep::sweep_dir::SweepDir;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The key of `llm` that names a variable.
const KEY_VARIABLE: &str = "api_key_env";

/// The variables that the agents, judges and `llm` settings of all plans name.
///
/// # Errors
/// An agent does not load, so what it takes for a key is unknown; or the inputs of a plan were changed.
pub fn planned_key_names(dir: &SweepDir, plan: &SweepPlan) -> Result<Vec<String>, CommandFailure> {
    let mut names = BTreeSet::new();
    for (tree, models) in planned_agents(plan) {
        let agent = load_with_one_of(&models, dir, &dir.agent(tree))?;
        names.extend(key_names_of(Some(&agent)));
    }
    let mut inputs = InputReader::new(dir);
    for run in &plan.runs {
        let Some(text) = key_setting(plan, run) else { continue };
        if !text.contains('$') {
            if !names.contains(text) {
                names.insert(text.to_owned());
            }
            continue;
        }
        let input = inputs.input_of(plan, run)?;
        let values =
            PlaceholderValues { input: &input.members, params: &run.params, repeat: run.repeat };
        let name = substitute(text, values).map_err(|error| {
            CommandFailure::config(format!("run {}: {}", run.id, error.message), error.help)
        })?;
        names.insert(name);
    }
    Ok(names.into_iter().collect())
}

/// The trees of agents and judges, each with the models that it has in a plan.
fn planned_agents(plan: &SweepPlan) -> BTreeMap<&str, Vec<PlannedModel>> {
    let mut agents: BTreeMap<&str, Vec<PlannedModel>> = BTreeMap::new();
    for header in &plan.headers {
        for tree in header.agents.values() {
            agents.entry(tree).or_default().extend(header.models.values().cloned());
        }
        for grader in &header.grade {
            if let GraderKind::Agent { agent, model } = &grader.kind {
                let model = PlannedModel { model: model.clone(), ..PlannedModel::default() };
                agents.entry(agent).or_default().push(model);
            }
        }
    }
    agents
}

/// Loads an agent with the first model that it loads with: which variable it names does not depend on the model.
fn load_with_one_of(
    models: &[PlannedModel],
    dir: &SweepDir,
    home: &Path,
) -> Result<Agent, CommandFailure> {
    let import_path = read_import_path();
    let load = |model: &PlannedModel| {
        let option = model.option(|hash| dir.input_copy(hash), home);
        let option = option.and_then(|text| ModelChoice::parse(&text).ok());
        let models = ModelSelection { option, ..ModelSelection::without_llm() };
        Agent::load(home, &models, &import_path)
    };
    let first = load(&PlannedModel::default());
    Ok(models.iter().fold(first, |loaded, model| loaded.or_else(|_| load(model)))?)
}

/// The variable that `llm` of sweep.yaml names for a run, with its placeholders.
fn key_setting<'a>(plan: &'a SweepPlan, run: &PlannedRun) -> Option<&'a str> {
    let header = plan.header_of(run)?;
    let model = header.models.get(&*run.model);
    let of_model = model.and_then(|model| model.llm.get(KEY_VARIABLE));
    of_model.or_else(|| header.llm.get(KEY_VARIABLE))?.as_str()
}
