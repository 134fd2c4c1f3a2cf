//! The settings of runs that can be checked before any of them starts, each set once: a sweep has many runs and few settings.

use crate::formats::plan::{RunChoice, RunDefinition};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, HashSet};

/// How the names of the variables begin that delta reads.
const DELTA_PREFIX: &str = "DELTA_";
/// How the names of the variables end that hold the address of an endpoint.
const ADDRESS_SUFFIX: &str = "_BASE_URL";

/// What an agent and a model have in one or more runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// The agent's name in the sweep.
    pub agent: String,
    /// The model's name in the sweep.
    pub model: String,
    /// Keys of `llm`.
    pub llm: Map<String, Json>,
    /// The variables that delta itself reads.
    pub env: BTreeMap<String, String>,
    /// The input of the first run that has them.
    pub input: String,
    /// The parameters of that run.
    pub params: Map<String, Json>,
}

impl RunSettings {
    /// A run that has them: ``input `a`, temp 5``.
    pub fn describe_run(&self) -> String {
        let params = self.params.iter().map(|(name, value)| format!(", {name} {value}"));
        format!("input `{}`{}", self.input, params.collect::<String>())
    }
}

/// The distinct settings of the runs of a plan.
#[derive(Debug, Default)]
pub struct DistinctSettings {
    known: HashSet<String>,
    /// The sets, in the order of the plan.
    pub list: Vec<RunSettings>,
}

impl DistinctSettings {
    /// Adds the settings of a run, if no run before has the same.
    pub fn add(&mut self, choice: RunChoice<'_>, input: &str, definition: &RunDefinition) {
        let variables = definition.env.iter();
        let env: BTreeMap<&String, &String> = variables
            .filter(|(name, _)| name.starts_with(DELTA_PREFIX) || name.ends_with(ADDRESS_SUFFIX))
            .collect();
        let key = json!([choice.agent, choice.model, definition.llm, env]).to_string();
        if self.known.insert(key) {
            self.list.push(RunSettings {
                agent: choice.agent.to_owned(),
                model: choice.model.to_owned(),
                llm: definition.llm.clone(),
                env: env.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
                input: input.to_owned(),
                params: choice.params.clone(),
            });
        }
    }
}
