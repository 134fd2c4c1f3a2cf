//! The plan: which runs a sweep.yaml means, and the id of each.
//!
//! Pure: the same file with the same agents and inputs is the same plan, on every machine.

use crate::formats::canonical_json::{content_hash, to_canonical_json};
use crate::formats::grader::PlannedGrader;
use crate::formats::input::{InputSet, SweepInput};
use crate::formats::placeholder::{
    PlaceholderError, PlaceholderValues, substitute, substitute_json,
};
use crate::formats::recorded_input::RecordedInput;
use crate::formats::retry_policy::RetryPolicy;
use crate::formats::run_settings::DistinctSettings;
use crate::formats::sweep_file::{RunLimits, SweepFile};
use delta_agent::tool::value_text;
use delta_base::id::RunId;
use delta_run::sweep::sweep_dir::{HASH_DIGITS, PLAN_VERSION, SweepBudget, SweepRate};
use delta_words::TierChoice;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most characters of the input in a run's id.
const MAX_INPUT_CHARS: usize = 40;

/// The first line of a plan: everything that its runs have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanHeader {
    /// [`PLAN_VERSION`].
    pub sweep: u32,
    /// The name of the sweep.
    pub name: String,
    /// The number of run lines that follow.
    pub runs: u64,
    /// The agents, each with the tree of its copy.
    pub agents: BTreeMap<String, String>,
    /// The version of delta that planned.
    pub delta: String,
    /// The models.
    pub models: BTreeMap<String, PlannedModel>,
    /// The hash of the input lines.
    pub inputs: String,
    /// The task, with placeholders.
    pub task: String,
    /// Variables, with placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Files of the workspace, with placeholders in their texts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Keys of `llm`, with placeholders.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub llm: Map<String, Json>,
    /// The limits of the whole sweep.
    #[serde(default)]
    pub budget: SweepBudget,
    /// What is tried again.
    pub retry: RetryPolicy,
    /// How much the runs ask of an endpoint.
    pub rate: SweepRate,
    /// The service tier of the runs.
    #[serde(default, skip_serializing_if = "TierChoice::is_direct")]
    pub tier: TierChoice,
    /// Whether the runs share answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answers: bool,
    /// The graders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grade: Vec<PlannedGrader>,
}

/// A model in a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedModel {
    /// The model as for `--model`; absent for the agents' own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The hash of the copy of the file that `model` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Keys of `llm`, which replace the keys of the sweep.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub llm: Map<String, Json>,
    /// Variables, which replace the ones of the sweep.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl PlannedModel {
    /// The file that the model names: a script or a cassette.
    pub fn file_name(&self) -> Option<&str> {
        let (provider, name) = self.model.as_deref()?.split_once(':')?;
        matches!(provider, "script" | "recorded").then_some(name)
    }

    /// The value of `--model`, with the path of a file as `copy` has it, or in the agent directory.
    pub fn option(&self, copy: impl Fn(&str) -> PathBuf, agent: &Path) -> Option<String> {
        let Some(name) = self.file_name() else { return self.model.clone() };
        let (provider, _) = self.model.as_deref()?.split_once(':')?;
        let path = self.file.as_deref().map_or_else(|| agent.join(name), copy);
        Some(format!("{provider}:{}", path.display()))
    }

    /// The model as it counts for an id: the content of a file, not its name.
    fn identity(&self) -> Json {
        let provider = self.model.as_deref().and_then(|model| model.split_once(':'));
        match (&self.file, provider) {
            (Some(hash), Some((provider, _))) => format!("{provider}:{hash}").into(),
            _ => self.model.clone().into(),
        }
    }
}

/// A run of a plan, as its line has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedRun {
    /// Its number in the sweep, from 0, over all plans.
    pub n: u64,
    /// Its id: `INPUT.HASH`.
    pub id: RunId,
    /// The agent's name in the sweep.
    pub agent: Arc<str>,
    /// The model's name in the sweep.
    pub model: Arc<str>,
    /// The id of the input.
    pub input: Arc<str>,
    /// The group of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
    /// State that is not restored for an input that is a recorded run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// The parameters.
    pub params: Arc<Map<String, Json>>,
    /// The limits of the run.
    pub limits: Arc<RunLimits>,
    /// The index of its plan.
    #[serde(skip)]
    pub plan: usize,
}

/// What a run is: everything that its id depends on, and so everything that it is started with.
#[derive(Debug, Clone, PartialEq)]
pub struct RunDefinition {
    /// The tree of the agent.
    pub agent_tree: String,
    /// The model, absent for the agent's own.
    pub model: PlannedModel,
    /// The task.
    pub task: String,
    /// Files of the workspace, with their texts.
    pub files: BTreeMap<String, String>,
    /// The copy of the directory with which the workspace begins.
    pub tree: Option<String>,
    /// The recorded run with whose first iterations it begins.
    pub recorded: Option<RecordedInput>,
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Keys of `llm`.
    pub llm: Map<String, Json>,
}

/// The values that choose a run of a plan.
#[derive(Debug, Clone, Copy)]
pub struct RunChoice<'a> {
    /// The agent.
    pub agent: &'a str,
    /// The model.
    pub model: &'a str,
    /// The parameters.
    pub params: &'a Map<String, Json>,
    /// The number of the repeat.
    pub repeat: u32,
}

impl RunChoice<'_> {
    /// The value of a key of `exclude`.
    fn excluded_field(&self, key: &str, input: &SweepInput) -> Option<String> {
        match key {
            "agent" => Some(self.agent.to_owned()),
            "model" => Some(self.model.to_owned()),
            "input" => Some(input.id.clone()),
            key => self.params.get(key).map(value_text),
        }
    }
}

impl PlanHeader {
    /// The header of the plan that a file means. `agents` has the trees of its agents, `model_files` the hashes of the files
    /// that its models name, `inputs` is the hash of the input lines, and `grade` the graders with what was copied of them.
    pub fn new(
        file: &SweepFile,
        agents: BTreeMap<String, String>,
        model_files: &BTreeMap<String, String>,
        inputs: String,
        grade: Vec<PlannedGrader>,
    ) -> Self {
        Self {
            sweep: PLAN_VERSION,
            name: file.name.clone(),
            runs: 0,
            agents,
            delta: env!("CARGO_PKG_VERSION").to_owned(),
            models: file
                .models
                .iter()
                .map(|entry| {
                    let file = model_files.get(&entry.id).cloned();
                    (entry.id.clone(), PlannedModel { file, ..entry.model.clone() })
                })
                .collect(),
            inputs,
            task: file.task.clone(),
            env: file.env.clone(),
            files: file.files.clone(),
            llm: file.llm.clone(),
            budget: file.budget.clone(),
            retry: file.retry.clone(),
            rate: file.rate.clone(),
            tier: file.tier,
            answers: file.answers,
            grade,
        }
    }

    /// Whether both say the same, apart from the number of runs and the version of delta.
    pub fn has_same_settings(&self, other: &Self) -> bool {
        let plain = |header: &Self| Self { runs: 0, delta: String::new(), ..header.clone() };
        plain(self) == plain(other)
    }

    /// What the run of `choice` on `input` is.
    ///
    /// # Errors
    /// A placeholder has no value, or the plan has no such agent or model.
    pub fn define_run(
        &self,
        choice: RunChoice<'_>,
        input: &SweepInput,
    ) -> Result<RunDefinition, PlaceholderError> {
        let values = PlaceholderValues {
            input: &input.members,
            params: choice.params,
            repeat: choice.repeat,
        };
        let model = self.models.get(choice.model).cloned().unwrap_or_default();
        let fill = |texts: &BTreeMap<String, String>| {
            texts
                .iter()
                .map(|(key, text)| Ok((key.clone(), substitute(text, values)?)))
                .collect::<Result<BTreeMap<_, _>, PlaceholderError>>()
        };
        let mut env = fill(&self.env)?;
        env.extend(fill(&model.env)?);
        let mut files = fill(&self.files)?;
        files.extend(input.files.clone());
        let mut llm = Map::new();
        for (key, value) in self.llm.iter().chain(&model.llm) {
            llm.insert(key.clone(), substitute_json(value, values)?);
        }
        Ok(RunDefinition {
            agent_tree: self.agents.get(choice.agent).cloned().unwrap_or_default(),
            task: substitute(&self.task, values)?,
            tree: input.tree.clone(),
            recorded: input.recorded.clone(),
            model,
            files,
            env,
            llm,
        })
    }
}

impl RunDefinition {
    /// The hash of the run: the first digits of the SHA-256 over its canonical JSON.
    pub fn hash(&self, params: &Map<String, Json>, limits: &RunLimits, repeat: u32) -> String {
        let mut identity = json!({
            "agent": self.agent_tree,
            "model": self.model.identity(),
            "repeat": repeat,
            "task": self.task,
        });
        let mut add = |key: &str, value: Json| {
            let is_empty = match &value {
                Json::Object(members) => members.is_empty(),
                value => value.is_null(),
            };
            if !is_empty {
                identity[key] = value;
            }
        };
        add("env", json!(self.env));
        add("files", json!(self.files));
        let recorded = self.recorded.as_ref();
        let snapshot = recorded.and_then(|recorded| recorded.tree).map(|tree| tree.to_string());
        add("from", json!(snapshot.as_ref().or(self.tree.as_ref())));
        add("journal", json!(recorded.map(|recorded| &recorded.chain)));
        add("llm", Json::Object(self.llm.clone()));
        add("max_iterations", json!(limits.max_iterations));
        add("params", Json::Object(params.clone()));
        let mut hash = content_hash(to_canonical_json(&identity).as_bytes());
        hash.truncate(HASH_DIGITS);
        hash
    }
}

/// The id of the run with this hash on this input.
///
/// # Errors
/// The hash is not one of [`RunDefinition::hash`].
pub fn run_id(input: &str, hash: &str) -> Result<RunId, String> {
    RunId::parse(&format!("{}.{hash}", id_prefix(input))).map_err(|error| error.to_string())
}

/// The id of an input as the beginning of a run's id: other characters become `-`.
fn id_prefix(input: &str) -> String {
    let prefix =
        input.replace(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-'), "-");
    let prefix = prefix.trim_start_matches(['.', '_', '-']);
    let prefix: String = prefix.chars().take(MAX_INPUT_CHARS).collect();
    if prefix.is_empty() { "input".to_owned() } else { prefix }
}

/// Why a plan cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

/// A run that is not planned yet, in few bytes.
#[derive(Debug, Clone, Copy)]
struct PlanEntry {
    hash: u64,
    agent: u32,
    model: u32,
    input: u32,
    params: u32,
    repeat: u32,
}

/// The runs that a sweep.yaml means and that are not planned yet.
#[derive(Debug)]
pub struct NewRuns<'a> {
    file: &'a SweepFile,
    inputs: &'a InputSet,
    grid: Vec<Arc<Map<String, Json>>>,
    runs: Vec<PlanEntry>,
    limits: Arc<RunLimits>,
    /// How many runs of the file are planned already.
    pub known: u64,
    /// The settings of all runs of the file, planned already or not.
    pub settings: DistinctSettings,
    /// Which entries of `exclude` leave out a run.
    used_exclusions: Vec<bool>,
}

impl<'a> NewRuns<'a> {
    /// Finds the runs of `file` with `header` on `inputs`, except for known ids. The order is the order of the plan:
    /// the first repeat of everything comes first, so that an unfinished sweep has something of each input.
    ///
    /// # Errors
    /// A placeholder has no value, two runs are the same, or the sweep is empty.
    pub fn find(
        file: &'a SweepFile,
        header: &PlanHeader,
        inputs: &'a InputSet,
        is_known: &dyn Fn(&RunId) -> bool,
    ) -> Result<Self, PlanError> {
        let limits = Arc::new(file.run.clone());
        let grid = parameter_grid(file);
        let used_exclusions = vec![false; file.exclude.len()];
        let runs = Vec::new();
        let settings = DistinctSettings::default();
        let mut new =
            Self { file, inputs, grid, runs, limits, known: 0, settings, used_exclusions };
        let mut runs_by_hash = HashMap::new();
        for repeat in 1..=file.repeats {
            for index in 0..inputs.len() {
                let input = inputs.get(index).map_err(changed_input)?;
                let index = u32::try_from(index).map_err(|_| too_many())?;
                new.add_runs_of(&input, index, repeat, header, is_known, &mut runs_by_hash)?;
            }
        }
        new.check_exclusions()?;
        if runs_by_hash.is_empty() {
            let help = "look at `exclude`".to_owned();
            return Err(PlanError { message: "the sweep has no runs".to_owned(), help });
        }
        Ok(new)
    }

    fn add_runs_of(
        &mut self,
        input: &SweepInput,
        index: u32,
        repeat: u32,
        header: &PlanHeader,
        is_known: &dyn Fn(&RunId) -> bool,
        runs_by_hash: &mut HashMap<(u64, u64), PlanEntry>,
    ) -> Result<(), PlanError> {
        let mut prefix = DefaultHasher::new();
        id_prefix(&input.id).hash(&mut prefix);
        let prefix = prefix.finish();
        for (agent_index, agent) in self.file.agents.iter().enumerate() {
            for (model_index, model) in self.file.models.iter().enumerate() {
                for params_index in 0..self.grid.len() {
                    let params = self.grid[params_index].clone();
                    let choice =
                        RunChoice { agent: &agent.id, model: &model.id, params: &params, repeat };
                    if self.is_excluded(choice, input) {
                        continue;
                    }
                    let definition = define_checked_run(header, choice, input)?;
                    self.settings.add(choice, &input.id, &definition);
                    let hash = definition.hash(&params, &self.limits, repeat);
                    let id = run_id(&input.id, &hash).map_err(changed_input)?;
                    let run = PlanEntry {
                        hash: u64::from_str_radix(&hash, 16).unwrap_or_default(),
                        agent: u32::try_from(agent_index).map_err(|_| too_many())?,
                        model: u32::try_from(model_index).map_err(|_| too_many())?,
                        params: u32::try_from(params_index).map_err(|_| too_many())?,
                        input: index,
                        repeat,
                    };
                    match runs_by_hash.entry((run.hash, prefix)) {
                        Entry::Occupied(other) => {
                            return Err(self.same_runs(*other.get(), run, &id));
                        }
                        Entry::Vacant(entry) => entry.insert(run),
                    };
                    if is_known(&id) {
                        self.known += 1;
                    } else {
                        self.runs.push(run);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether an entry of `exclude` leaves out the run. All entries are looked at, so that each is known to be of use.
    fn is_excluded(&mut self, choice: RunChoice<'_>, input: &SweepInput) -> bool {
        let mut is_excluded = false;
        for (exclusion, is_used) in self.file.exclude.iter().zip(&mut self.used_exclusions) {
            let excludes = exclusion
                .iter()
                .all(|(key, value)| choice.excluded_field(key, input).as_ref() == Some(value));
            *is_used |= excludes;
            is_excluded |= excludes;
        }
        is_excluded
    }

    /// An entry that leaves out nothing has a value that the sweep does not have.
    fn check_exclusions(&self) -> Result<(), PlanError> {
        let Some(unused) = self.used_exclusions.iter().position(|is_used| !is_used) else {
            return Ok(());
        };
        let values = self.file.exclude[unused].iter().map(|(key, value)| format!("{key}: {value}"));
        let values = values.collect::<Vec<_>>().join(", ");
        Err(PlanError {
            message: format!("`exclude`: no run has `{{{values}}}`"),
            help: "write ids of agents, models and inputs, and values of parameters, as they are in the sweep".to_owned(),
        })
    }

    fn same_runs(&self, first: PlanEntry, second: PlanEntry, id: &RunId) -> PlanError {
        let describe = |run: PlanEntry| {
            let input =
                self.inputs.get(run.input as usize).map(|input| input.id).unwrap_or_default();
            let agent = self.file.agents.get(run.agent as usize).map_or("", |agent| &agent.id);
            let model = self.file.models.get(run.model as usize).map_or("", |model| &model.id);
            format!("input `{input}`, agent `{agent}`, model `{model}`, repeat {}", run.repeat)
        };
        PlanError {
            message: format!(
                "two runs are the same, {id}: {}; and {}",
                describe(first),
                describe(second)
            ),
            help: if first.input == second.input {
                "leave one out, or let them differ in a parameter of `params`".to_owned()
            } else {
                format!(
                    "leave one out, or let the inputs differ: in their tasks or files, or in the letters a-z and A-Z, digits, `.`, `_` and `-` among the first {MAX_INPUT_CHARS} characters of their ids, for each other character becomes `-`"
                )
            },
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs as they are planned, with numbers from `first`, of the plan with the index `plan`.
    pub fn iter(
        &self,
        first: u64,
        plan: usize,
    ) -> impl Iterator<Item = Result<PlannedRun, PlanError>> {
        let agents: Vec<Arc<str>> =
            self.file.agents.iter().map(|agent| agent.id.as_str().into()).collect();
        let models: Vec<Arc<str>> =
            self.file.models.iter().map(|model| model.id.as_str().into()).collect();
        self.runs.iter().zip(first..).map(move |(run, n)| {
            let input = self.inputs.get(run.input as usize).map_err(changed_input)?;
            Ok(PlannedRun {
                n,
                id: run_id(&input.id, &format!("{:016x}", run.hash)).map_err(changed_input)?,
                agent: agents[run.agent as usize].clone(),
                model: models[run.model as usize].clone(),
                input: input.id.into(),
                group: input.group.map(Into::into),
                outside: input.recorded.map(|recorded| recorded.outside).unwrap_or_default(),
                repeat: run.repeat,
                params: self.grid[run.params as usize].clone(),
                limits: self.limits.clone(),
                plan,
            })
        })
    }
}

/// What a run is, if it can begin.
fn define_checked_run(
    header: &PlanHeader,
    choice: RunChoice<'_>,
    input: &SweepInput,
) -> Result<RunDefinition, PlanError> {
    let definition = header.define_run(choice, input).map_err(|error| PlanError {
        message: format!("input `{}`: {}", input.id, error.message),
        help: error.help,
    })?;
    if definition.task.trim().is_empty() {
        let help = "write what the agent has to do, into `task` of the input or of sweep.yaml";
        let message = format!("input `{}`: its task is empty", input.id);
        return Err(PlanError { message, help: help.to_owned() });
    }
    Ok(definition)
}

/// Every combination of the values of the parameters; the last parameter varies first.
fn parameter_grid(file: &SweepFile) -> Vec<Arc<Map<String, Json>>> {
    let mut grid = vec![Map::new()];
    for param in &file.params {
        let extended = grid.iter().flat_map(|params| {
            param.values.iter().map(|value| {
                let mut params = params.clone();
                params.insert(param.name.clone(), value.clone());
                params
            })
        });
        grid = extended.collect();
    }
    grid.into_iter().map(Arc::new).collect()
}

fn changed_input(message: String) -> PlanError {
    PlanError { message, help: "the inputs changed while they were read; plan again".to_owned() }
}

fn too_many() -> PlanError {
    PlanError {
        message: "the sweep has more than 4 billion inputs".to_owned(),
        help: "make several sweeps".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sweep_file::InputSource;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn plan(text: &str, trees: &[(&str, &str)]) -> Vec<PlannedRun> {
        let file = SweepFile::parse("sweep.yaml", text.to_owned()).unwrap();
        let InputSource::Inline(inputs) = &file.inputs else {
            panic!("the inputs are in the file")
        };
        let trees = trees.iter().map(|(id, tree)| ((*id).to_owned(), (*tree).to_owned())).collect();
        let header = PlanHeader::new(&file, trees, &BTreeMap::new(), String::new(), Vec::new());
        let new = NewRuns::find(&file, &header, inputs, &|_| false).unwrap();
        new.iter(0, 0).map(Result::unwrap).collect()
    }

    fn ids(runs: &[PlannedRun]) -> BTreeSet<String> {
        runs.iter().map(|run| run.id.to_string()).collect()
    }

    /// The same in an earlier version: results are found by these ids.
    #[test]
    fn c_26_2_an_id_is_a_hash_of_what_the_run_is() {
        let text = "name: s\nagents: [a]\ninputs: [{id: 'ä/1', task: hi}]\n";
        let runs = plan(text, &[("a", "tree")]);
        let identity = r#"{"agent":"tree","model":null,"repeat":1,"task":"hi"}"#;
        assert_eq!(runs[0].id.as_str(), format!("1.{}", &content_hash(identity.as_bytes())[..16]));
        assert_eq!(id_prefix("-._"), "input");
        assert_eq!(id_prefix(&"x".repeat(50)), "x".repeat(40));
    }

    #[test]
    fn c_26_2_what_does_not_change_a_run_does_not_change_its_id() {
        let text = "name: s\nagents: [a]\ninputs: [{id: i, task: hi, answer: 4}]\n";
        let first = ids(&plan(text, &[("a", "tree")]));
        for more in [
            "run: {max_duration: 1h, max_cost: 3}\nbudget: {max_cost: 9}\n",
            "retry: {attempts: 9}\nrate: {concurrent: 99}\ntier: flex\ngrade: [{name: x, command: [true]}]\n",
        ] {
            assert_eq!(ids(&plan(&format!("{text}{more}"), &[("a", "tree")])), first, "{more}");
        }
        for more in [
            "run: {max_iterations: 9}\n",
            "env: {A: b}\n",
            "llm: {seed: 1}\n",
            "files: {f: x}\n",
            "params: {p: [1]}\nenv: {P: \"${param.p}\"}\n",
        ] {
            assert!(
                ids(&plan(&format!("{text}{more}"), &[("a", "tree")])).is_disjoint(&first),
                "{more}"
            );
        }
        assert!(ids(&plan(text, &[("a", "other")])).is_disjoint(&first));
    }

    proptest! {
        #[test]
        fn c_34_16_an_id_depends_on_what_a_recorded_run_has_recorded_alone(
            chains in prop::array::uniform2("[ab]{2}"),
            trees in prop::array::uniform2(prop::option::of("[ab]")),
            others in prop::array::uniform2(("[a-z]{4}", "[a-z]{3}", 0..9_u32, "net:[a-z]")),
        ) {
            let id = |index: usize| {
                let (copy, run, at, outside) = &others[index];
                let tree = trees[index].as_ref().map(|digit| digit.repeat(64));
                let recorded = json!({
                    "copy": copy, "run": run, "at": at, "chain": chains[index],
                    "tree": tree, "outside": [outside],
                });
                let input = json!({"id": "i", "group": run, "task": "t", "recorded_run": recorded});
                let text = format!("name: s\nagents: [a]\ninputs: [{input}]\n");
                let planned = plan(&text, &[("a", "tree")]);
                assert_eq!(planned[0].outside, std::slice::from_ref(outside));
                planned[0].id.clone()
            };
            let is_same_content = chains[0] == chains[1] && trees[0] == trees[1];
            prop_assert_eq!(id(0) == id(1), is_same_content);
        }

        #[test]
        fn c_26_2_a_plan_is_a_function_of_its_inputs(
            agents in prop::collection::btree_set("[a-d]", 1..4),
            models in prop::collection::btree_set("[m-p]", 1..3),
            inputs in prop::collection::btree_map("[a-z0-9]{1,3}", "[!-~][ -~]{0,8}", 1..6),
            values in prop::collection::btree_set(0..9_u8, 1..3),
            repeats in 1..3_u32,
            seed in any::<u64>(),
        ) {
            let list = |items: Vec<String>| items.join(", ");
            let text = |is_reversed: bool, repeats: u32| {
                let order = |mut items: Vec<String>| {
                    if is_reversed { items.reverse(); }
                    list(items)
                };
                let agents = order(agents.iter().map(ToString::to_string).collect());
                let models = order(models.iter().map(|model| format!("openai:{model}")).collect());
                let task = |text: &str| serde_json::to_string(text).unwrap();
                let inputs = order(inputs.iter().map(|(id, text)| format!("{{\"id\": \"{id}\", \"task\": {}}}", task(text))).collect());
                let values = order(values.iter().map(ToString::to_string).collect());
                format!("name: s\nagents: [{agents}]\nmodels: [{models}]\ninputs: [{inputs}]\nparams: {{p: [{values}]}}\nenv: {{P: \"${{param.p}}\"}}\nrepeats: {repeats}\n")
            };
            let trees: Vec<(&str, String)> = agents.iter().map(|id| (id.as_str(), format!("{id}{seed}"))).collect();
            let trees: Vec<(&str, &str)> = trees.iter().map(|(id, tree)| (*id, tree.as_str())).collect();
            let runs = plan(&text(false, repeats), &trees);
            prop_assert_eq!(&runs, &plan(&text(false, repeats), &trees));
            let expected = agents.len() * models.len() * inputs.len() * values.len() * repeats as usize;
            prop_assert_eq!(ids(&runs).len(), expected);
            // The order in the file is the order of the plan, and changes no run.
            prop_assert_eq!(ids(&runs), ids(&plan(&text(true, repeats), &trees)));
            // More repeats keep the runs that there are.
            prop_assert!(ids(&plan(&text(false, repeats + 1), &trees)).is_superset(&ids(&runs)));
        }
    }
}
