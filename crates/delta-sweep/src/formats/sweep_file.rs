//! sweep.yaml: what a sweep tries, on what, how often, and what it may cost.

use crate::formats::grader::{GraderEntry, read_graders};
use crate::formats::input::{InputSet, SweepInput, check_workspace_path};
use crate::formats::placeholder::{check_text_placeholders, used_parameters};
use crate::formats::plan::PlannedModel;
use crate::formats::recorded_input::IterationChoice;
use crate::formats::retry_policy::RetryPolicy;
use delta_agent::tool::value_text;
use delta_base::api_key_names::is_key_name;
use delta_lint::sweep_schema::{
    AGENT_MAPPING, BUDGET_MAPPING, FOUND_INPUTS_MAPPING, GATE_MAPPING, INPUT_MAPPING,
    MODEL_MAPPING, RATE_MAPPING, RETRY_MAPPING, RUN_MAPPING, SWEEP_MAPPING,
};
use delta_run::budget::call_rate::RATE_VARIABLE;
use delta_run::budget::ledger::BUDGET_VARIABLE;
use delta_run::limits::bounds::{DEPTH_VARIABLE, MAX_DEPTH_VARIABLE};
use delta_run::sweep::answer_scope::ANSWERS_VARIABLE;
use delta_run::sweep::sweep_dir::{SweepBudget, SweepRate};
use delta_run::workspace::RUNS_DIR_VARIABLE;
use delta_words::TierChoice;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::{MappingFields, YamlDocument, YamlNode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The limits of a run, as a plan line has them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunLimits {
    /// `--max-iterations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u64>,
    /// `--max-duration`, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    /// `--max-cost`, in USD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<f64>,
    /// `--max-tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// `--snapshots`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub snapshots: bool,
}

/// An agent of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEntry {
    /// Its name in the sweep.
    pub id: String,
    /// The agent directory, as the author wrote it.
    pub path: String,
}

/// A model of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelEntry {
    /// Its name in the sweep.
    pub id: String,
    /// The model, whose file is not known yet.
    pub model: PlannedModel,
}

/// Where the inputs are.
#[derive(Debug, Clone)]
pub enum InputSource {
    /// A file with one input a line.
    File(String),
    /// In sweep.yaml.
    Inline(InputSet),
    /// A directory for each.
    Directories(String),
    /// Recorded runs, after iterations of each.
    Runs {
        /// The directories of the runs, or of their workspaces.
        pattern: String,
        /// The iterations.
        at: IterationChoice,
    },
}

/// A parameter with the values that are tried.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepParameter {
    /// Its name.
    pub name: String,
    /// Its values, at least one.
    pub values: Vec<Json>,
}

/// sweep.yaml, read and checked as far as that is possible without other files.
#[derive(Debug, Clone)]
pub struct SweepFile {
    /// The name of the sweep.
    pub name: String,
    /// The agents, at least one.
    pub agents: Vec<AgentEntry>,
    /// The models, at least one.
    pub models: Vec<ModelEntry>,
    /// Where the inputs are.
    pub inputs: InputSource,
    /// The task, with placeholders.
    pub task: String,
    /// Variables, with placeholders.
    pub env: BTreeMap<String, String>,
    /// Files of the workspace, with placeholders in their texts.
    pub files: BTreeMap<String, String>,
    /// Keys of `llm`, with placeholders.
    pub llm: Map<String, Json>,
    /// The parameters.
    pub params: Vec<SweepParameter>,
    /// How often each combination runs.
    pub repeats: u32,
    /// What is left out: values of `agent`, `model`, `input` and parameters.
    pub exclude: Vec<BTreeMap<String, String>>,
    /// The limits of each run.
    pub run: RunLimits,
    /// The limits of the whole sweep.
    pub budget: SweepBudget,
    /// What is tried again.
    pub retry: RetryPolicy,
    /// How much the runs ask of an endpoint.
    pub rate: SweepRate,
    /// The service tier of the runs.
    pub tier: TierChoice,
    /// Whether the runs share answers.
    pub answers: bool,
    /// The graders, as the author wrote them.
    pub grade: Vec<GraderEntry>,
    /// How a change is judged.
    pub gate: GateSettings,
}

/// How a change is judged.
#[derive(Debug, Clone, PartialEq)]
pub struct GateSettings {
    /// The drop that PASS excludes.
    pub max_drop: f64,
    /// How often each combination runs at most.
    pub repeats: u32,
    /// The base, as the author wrote it.
    pub against: Option<String>,
    /// The file of the inputs that are left out.
    pub ignore: Option<String>,
    /// The oldest run of the base that is used again, in milliseconds before the first one of the change.
    pub max_age_ms: u64,
}

impl Default for GateSettings {
    fn default() -> Self {
        const TWO_WEEKS_MS: u64 = 14 * 86_400_000;
        Self { max_drop: 0.1, repeats: 4, against: None, ignore: None, max_age_ms: TWO_WEEKS_MS }
    }
}

/// The variables that the runs of a sweep must have in common, or that delta sets for its children, each with what to do instead.
const OWN_VARIABLES: [(&str, &str); 11] = [
    (
        RUNS_DIR_VARIABLE,
        "the records of each run are in its workspace, where the sweep finds them; remove it",
    ),
    (BUDGET_VARIABLE, "write `budget: {max_cost: 2}`"),
    (RATE_VARIABLE, "write `rate: {concurrent: 8}`"),
    (ANSWERS_VARIABLE, "write `answers: true`"),
    ("DELTA_STATE_DIR", "set it for `delta sweep run`, which checks the seals of the runs too"),
    ("DELTA_SEAL_KEY_FILE", "set it for `delta sweep run`, which checks the seals of the runs too"),
    (DEPTH_VARIABLE, "delta counts the levels of runs; remove it"),
    (MAX_DEPTH_VARIABLE, "write `limits: {depth: N}` into agent.yaml"),
    ("DELTA_INNER_SEAL", "delta sets it in sandboxes; remove it"),
    ("DELTA_MCP_HOLDER", "delta sets it for `delta mcp call`; remove it"),
    ("DELTA_MCP_CALL_ID", "delta sets it for `delta mcp call`; remove it"),
];

/// The name of the models of a sweep that names none.
pub const OWN_MODEL_ID: &str = "own";

impl SweepFile {
    /// Reads sweep.yaml; `name` is its name in diagnostics.
    ///
    /// # Errors
    /// All mistakes of the file, with their positions.
    pub fn parse(name: &str, text: String) -> Result<Self, DiagnosticReport> {
        let mut report = DiagnosticReport::default();
        let doc = YamlDocument::parse(name, text)
            .map_err(|diagnostic| DiagnosticReport { diagnostics: vec![diagnostic] })?;
        if doc.root.is_null() {
            let help = "write `name`, `agents` and `inputs`".to_owned();
            report.push(Diagnostic::for_file(name, "the file is empty", Some(help)));
            return Err(report);
        }
        let file = Self::read(&doc);
        doc.drain_diagnostics(&mut report);
        file.filter(|_| report.is_empty()).ok_or(report)
    }

    /// The directory of the sweep: `chosen`, or else the one that the file names.
    pub fn sweep_dir<'a>(&'a self, chosen: Option<&'a Path>) -> &'a Path {
        chosen.unwrap_or(Path::new(&self.name))
    }

    fn read(doc: &YamlDocument) -> Option<Self> {
        let fields = doc.fields(&doc.root, &SWEEP_MAPPING)?;
        let name = fields.require("name", "my-sweep").and_then(|node| read_name(doc, node));
        let params = read_params(doc, fields);
        let agents = read_agents(doc, fields);
        let models = read_models(doc, fields);
        let inputs =
            fields.require("inputs", "inputs.jsonl").and_then(|node| read_inputs(doc, node));
        let names = params.iter().map(|param| param.name.as_str());
        let check = |node: &YamlNode| check_text(doc, node, names.clone());
        fields.non_null("task").into_iter().for_each(check);
        for key in ["env", "files", "llm"] {
            fields
                .non_null(key)
                .into_iter()
                .flat_map(YamlNode::entries)
                .for_each(|(_, value)| check(value));
        }
        for entry in fields.list("models") {
            ["llm", "env"].iter().filter_map(|key| entry.get(key)).for_each(check);
        }
        if matches!(inputs, Some(InputSource::Runs { .. })) {
            report_recorded_keys(doc, fields);
        }
        report_unused_params(doc, fields, &params);
        let file = Self {
            name: name?,
            task: fields.text("task")?.to_owned(),
            env: read_env(doc, fields.non_null("env")),
            files: read_file_texts(doc, fields.non_null("files")),
            llm: read_json_map(doc, fields.non_null("llm"), "`llm`"),
            repeats: u32::try_from(fields.integer("repeats")?).ok()?,
            exclude: read_exclusions(doc, fields, &params),
            run: read_run_limits(doc, fields)?,
            budget: read_budget(doc, fields)?,
            retry: read_retry(doc, fields)?,
            rate: read_rate(doc, fields)?,
            tier: fields.text("tier").and_then(TierChoice::parse).unwrap_or_default(),
            answers: fields.boolean("answers"),
            grade: read_graders(doc, fields.list("grade"), names.clone()),
            gate: read_gate(doc, fields)?,
            agents,
            models,
            inputs: inputs?,
            params,
        };
        Some(file)
    }
}

fn read_name(doc: &YamlDocument, node: &YamlNode) -> Option<String> {
    let name = doc.expect_text(node, "`name`")?;
    let is_file_name =
        !name.trim().is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
    if !is_file_name {
        doc.report(
            node,
            "`name` must be usable as the name of a directory",
            "write letters, digits, `-` and `_`",
        );
    }
    is_file_name.then(|| name.to_owned())
}

fn read_agents(doc: &YamlDocument, fields: MappingFields<'_>) -> Vec<AgentEntry> {
    let Some(node) = fields.require("agents", "[agents/base]") else { return Vec::new() };
    let mut ids = HashSet::new();
    let mut agents = Vec::new();
    for item in expect_entries(doc, node, "agents").unwrap_or_default() {
        let (id, path) = match item.scalar() {
            Some(path) => (None, path),
            None => {
                let Some(entry) = doc.fields(item, &AGENT_MAPPING) else { continue };
                let path = entry.require("path", "agents/base").and_then(YamlNode::scalar);
                (entry.text("id"), path.unwrap_or_default())
            }
        };
        let name = Path::new(path).file_name().and_then(|name| name.to_str());
        let Some(id) = id.or(name).filter(|id| !id.is_empty()) else {
            doc.report(item, "an agent needs a name", "write `{id: base, path: DIR}`");
            continue;
        };
        if !ids.insert(id) {
            doc.report(
                item,
                format!("the agent `{id}` occurs twice"),
                format!("give it a name of its own: `{{id: NAME, path: {path}}}`"),
            );
        }
        agents.push(AgentEntry { id: id.to_owned(), path: path.to_owned() });
    }
    if node.is_empty_list() {
        doc.report(node, "`agents` is empty", "write `agents: [agents/base]`");
    }
    agents
}

/// The items of a list; reports any other node, with the list to write instead of a string.
fn expect_entries<'a>(doc: &YamlDocument, node: &'a YamlNode, key: &str) -> Option<&'a [YamlNode]> {
    let Some(text) = node.scalar() else { return doc.expect_list(node, &format!("`{key}`")) };
    let help = format!("write `{key}: [{text}]`");
    doc.report(node, format!("`{key}` must be a list, not a string"), help);
    None
}

fn read_models(doc: &YamlDocument, fields: MappingFields<'_>) -> Vec<ModelEntry> {
    let node = fields.non_null("models");
    let items = node.and_then(|node| expect_entries(doc, node, "models")).unwrap_or_default();
    if items.is_empty() {
        return vec![ModelEntry { id: OWN_MODEL_ID.to_owned(), model: PlannedModel::default() }];
    }
    let mut ids = HashSet::new();
    let mut models = Vec::new();
    for item in items {
        let entry = match item.scalar() {
            Some(model) => ModelEntry {
                id: model.to_owned(),
                model: PlannedModel { model: Some(model.to_owned()), ..PlannedModel::default() },
            },
            None => {
                let Some(entry) = doc.fields(item, &MODEL_MAPPING) else { continue };
                let Some(model) =
                    entry.require("model", "openai:gpt-4o").and_then(YamlNode::scalar)
                else {
                    continue;
                };
                let planned = PlannedModel {
                    model: Some(model.to_owned()),
                    file: None,
                    llm: read_json_map(doc, entry.non_null("llm"), "`llm`"),
                    env: read_env(doc, entry.non_null("env")),
                };
                ModelEntry { id: entry.text("id").unwrap_or(model).to_owned(), model: planned }
            }
        };
        if !ids.insert(entry.id.clone()) {
            let help = "give each a name of its own: `{id: NAME, model: MODEL}`";
            doc.report(item, format!("the model `{}` occurs twice", entry.id), help);
        }
        models.push(entry);
    }
    models
}

fn read_inputs(doc: &YamlDocument, node: &YamlNode) -> Option<InputSource> {
    if let Some(path) = node.scalar() {
        return Some(InputSource::File(path.to_owned()));
    }
    if !node.entries().is_empty() {
        let fields = doc.fields(node, &FOUND_INPUTS_MAPPING)?;
        let at = fields.non_null("at");
        let help = "write `{dirs: PATTERN}` or `{runs: PATTERN, at: each}`";
        return match (fields.text("dirs"), fields.text("runs"), at) {
            (Some(pattern), None, None) => Some(InputSource::Directories(pattern.to_owned())),
            (None, Some(pattern), at) => {
                let at = at.map_or(Some(IterationChoice::Last), |at| read_iterations(doc, at))?;
                Some(InputSource::Runs { pattern: pattern.to_owned(), at })
            }
            (Some(_), None, Some(at)) => {
                doc.report(at, "`at` is for recorded runs", help);
                None
            }
            _ => {
                doc.report(node, "`inputs` must have one of `dirs` and `runs`", help);
                None
            }
        };
    }
    let items = doc.expect_list(node, "`inputs`")?;
    if node.is_empty_list() {
        doc.report(node, "`inputs` is empty", "write `inputs: [{id: one, task: ...}]`");
    }
    let mut ids = HashSet::new();
    let mut inputs = Vec::new();
    for item in items {
        if let Some(text) = item.scalar() {
            let help = format!("write `{{id: {text}, task: ...}}`");
            doc.report(item, "an entry of `inputs` must be a mapping, not a string", help);
            continue;
        }
        let Some(entry) = doc.fields(item, &INPUT_MAPPING) else { continue };
        let Some(_) = entry.require("id", "one") else { continue };
        let Some(Json::Object(mut members)) = doc.to_json(item) else { continue };
        // In YAML, any scalar is a text.
        for key in ["id", "from", "group"] {
            let is_read = matches!(members.get(key), Some(Json::Number(_))) && key != "from";
            let text = entry.text(key).filter(|_| !is_read);
            members.extend(text.map(|text| (key.to_owned(), Json::from(text))));
        }
        if entry.non_null("files").is_some() {
            let files = read_file_texts(doc, entry.non_null("files"));
            members.insert("files".to_owned(), serde_json::json!(files));
        }
        match SweepInput::from_members(members) {
            Ok(input) => {
                if !ids.insert(input.id.clone()) {
                    doc.report(
                        item,
                        format!("the input `{}` occurs twice", input.id),
                        "give each input an id of its own",
                    );
                }
                inputs.push(input);
            }
            Err((message, help)) => doc.report(item, message, help),
        }
    }
    Some(InputSource::Inline(InputSet::from_inputs(&inputs)))
}

fn read_iterations(doc: &YamlDocument, node: &YamlNode) -> Option<IterationChoice> {
    match node.scalar() {
        Some("each") => return Some(IterationChoice::Each),
        Some("last") => return Some(IterationChoice::Last),
        _ => {}
    }
    let items = if node.scalar().is_some() { std::slice::from_ref(node) } else { node.items() };
    let numbers: Option<Vec<u32>> = items.iter().map(|item| item.scalar()?.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| {
        let mut known = HashSet::new();
        !numbers.is_empty() && numbers.iter().all(|number| known.insert(*number))
    });
    if numbers.is_none() {
        let help = "write `at: each`, `at: last`, `at: 3` or `at: [0, 3]`";
        doc.report(node, "`at` must be iterations, each once", help);
    }
    numbers.map(IterationChoice::Numbers)
}

/// Reports keys that would change what recorded runs start with.
fn report_recorded_keys(doc: &YamlDocument, fields: MappingFields<'_>) {
    for key in ["task", "files"] {
        if let Some(node) = fields.non_null(key) {
            let message = format!("recorded runs have their own `{key}`");
            doc.report(node, message, format!("remove `{key}`"));
        }
    }
}

/// Reports placeholders of an unknown form or parameter in all texts of a value.
fn check_text<'a>(
    doc: &YamlDocument,
    node: &YamlNode,
    params: impl Iterator<Item = &'a str> + Clone,
) {
    if let Some(text) = node.scalar() {
        for error in check_text_placeholders(text, params) {
            doc.report_in(node, &error.placeholder, error.message, Some(error.help));
        }
        return;
    }
    let children = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
    children.for_each(|child| check_text(doc, child, params.clone()));
}

fn read_params(doc: &YamlDocument, fields: MappingFields<'_>) -> Vec<SweepParameter> {
    let Some(node) = fields.non_null("params") else { return Vec::new() };
    let mut params = Vec::new();
    for (key, values) in doc.expect_mapping(node, "`params`").unwrap_or_default() {
        let name = key.scalar().unwrap_or_default();
        let items = doc.expect_list(values, &format!("`{name}`")).unwrap_or_default();
        let json: Vec<Json> = items.iter().filter_map(|item| doc.to_json(item)).collect();
        if json.is_empty() {
            doc.report(
                values,
                format!("`{name}` has no values"),
                format!("write `{name}: [one, two]`"),
            );
        }
        let alike = json.iter().enumerate().find_map(|(index, value)| {
            let text = value_text(value);
            Some((json[..index].iter().find(|other| value_text(other) == text)?, value))
        });
        match alike {
            Some((first, second)) if first == second => doc.report(
                values,
                format!("the value {second} of `{name}` occurs twice, and makes each run twice"),
                "remove one; `repeats: 2` runs everything twice",
            ),
            Some((first, second)) => doc.report(
                values,
                format!("the values {first} and {second} of `{name}` look alike in tables and for `--only`"),
                "keep one of them",
            ),
            None => {}
        }
        params.push(SweepParameter { name: name.to_owned(), values: json });
    }
    params
}

/// The keys of sweep.yaml whose texts may have placeholders.
const TEXT_KEYS: [&str; 6] = ["task", "env", "files", "llm", "models", "grade"];

/// Reports parameters that nothing uses: their values would make runs that are the same.
fn report_unused_params(doc: &YamlDocument, fields: MappingFields<'_>, params: &[SweepParameter]) {
    let mut used = HashSet::new();
    for node in TEXT_KEYS.iter().filter_map(|key| fields.non_null(key)) {
        add_used_params(node, &mut used);
    }
    let entries = fields.non_null("params").map(YamlNode::entries).unwrap_or_default();
    for (param, (key, _)) in params.iter().zip(entries) {
        let SweepParameter { name, values } = param;
        if used.contains(name.as_str()) {
            continue;
        }
        let example = if values.iter().all(Json::is_number) {
            format!("llm: {{{name}: \"${{param.{name}}}\"}}")
        } else {
            format!("task: \"${{input.task}} ${{param.{name}}}\"")
        };
        doc.report(
            key,
            format!("nothing uses the parameter `{name}`, so its values change no run"),
            format!(
                "write `${{param.{name}}}` into `task`, `env`, `files` or `llm`, for example `{example}`"
            ),
        );
    }
}

fn add_used_params<'a>(node: &'a YamlNode, used: &mut HashSet<&'a str>) {
    used.extend(node.scalar().into_iter().flat_map(used_parameters));
    let children = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
    children.for_each(|child| add_used_params(child, used));
}

fn read_exclusions(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    params: &[SweepParameter],
) -> Vec<BTreeMap<String, String>> {
    let mut exclusions = Vec::new();
    let known: Vec<&str> = ["agent", "model", "input"]
        .into_iter()
        .chain(params.iter().map(|param| param.name.as_str()))
        .collect();
    for item in fields.list("exclude") {
        let mut exclusion = BTreeMap::new();
        for (key, value) in doc.expect_mapping(item, "an entry of `exclude`").unwrap_or_default() {
            let name = key.scalar().unwrap_or_default();
            if !known.contains(&name) {
                let help = delta_base::suggest::did_you_mean(name, known.iter().copied());
                doc.report(key, format!("unknown key `{name}` in an entry of `exclude`"), help);
            }
            let text = value_text(&doc.to_json(value).unwrap_or_default());
            exclusion.insert(name.to_owned(), text);
        }
        if exclusion.is_empty() {
            doc.report(
                item,
                "an entry of `exclude` is empty",
                "write `{agent: NAME, model: NAME}`",
            );
        }
        exclusions.push(exclusion);
    }
    exclusions
}

fn read_text_map(node: Option<&YamlNode>) -> BTreeMap<String, String> {
    let entries = node.map(YamlNode::entries).unwrap_or_default().iter();
    entries
        .filter_map(|(key, value)| Some((key.scalar()?.to_owned(), value.scalar()?.to_owned())))
        .collect()
}

fn read_env(doc: &YamlDocument, node: Option<&YamlNode>) -> BTreeMap<String, String> {
    let entries = node.and_then(|node| doc.expect_mapping(node, "`env`"));
    for (key, value) in entries.unwrap_or_default() {
        let name = key.scalar().unwrap_or_default();
        if name.is_empty() || name.contains(['=', '\0']) {
            let help = "write `{NAME: value}`";
            doc.report(key, format!("`{name}` is not the name of a variable"), help);
        } else if is_key_name(name) {
            let help = format!(
                "set {name} in the environment of `delta sweep run`; `llm: {{api_key_env: NAME}}` names another variable for one model"
            );
            doc.report(key, "a key would be written into the plan", help);
        } else if let Some((_, help)) = OWN_VARIABLES.iter().find(|(known, _)| *known == name) {
            let message = format!("`{name}` is not for single runs: the sweep or delta sets it");
            doc.report(key, message, *help);
        }
        doc.expect_text(value, &format!("`{name}`"));
    }
    read_text_map(node)
}

fn read_file_texts(doc: &YamlDocument, node: Option<&YamlNode>) -> BTreeMap<String, String> {
    let entries = node.and_then(|node| doc.expect_mapping(node, "`files`"));
    for (key, value) in entries.unwrap_or_default() {
        if let Err((message, help)) = check_workspace_path(key.scalar().unwrap_or_default()) {
            doc.report(key, message, help);
        }
        doc.expect_text(value, "a file");
    }
    read_text_map(node)
}

fn read_json_map(doc: &YamlDocument, node: Option<&YamlNode>, label: &str) -> Map<String, Json> {
    let Some(node) = node else { return Map::new() };
    if doc.expect_mapping(node, label).is_none() {
        return Map::new();
    }
    match doc.to_json(node) {
        Some(Json::Object(members)) => members,
        _ => Map::new(),
    }
}

fn read_run_limits(doc: &YamlDocument, fields: MappingFields<'_>) -> Option<RunLimits> {
    let Some(node) = fields.non_null("run") else { return Some(RunLimits::default()) };
    let fields = doc.fields(node, &RUN_MAPPING)?;
    Some(RunLimits {
        max_iterations: fields.integer("max_iterations"),
        max_duration_ms: fields
            .non_null("max_duration")
            .and_then(|node| read_time(doc, node, "max_duration")),
        max_cost: read_number(doc, fields, "max_cost"),
        max_tokens: fields.integer("max_tokens"),
        snapshots: fields.boolean("snapshots"),
    })
}

fn read_budget(doc: &YamlDocument, fields: MappingFields<'_>) -> Option<SweepBudget> {
    let Some(node) = fields.non_null("budget") else { return Some(SweepBudget::default()) };
    let fields = doc.fields(node, &BUDGET_MAPPING)?;
    Some(SweepBudget {
        max_cost: read_number(doc, fields, "max_cost"),
        max_tokens: fields.integer("max_tokens"),
    })
}

fn read_retry(doc: &YamlDocument, fields: MappingFields<'_>) -> Option<RetryPolicy> {
    let Some(node) = fields.non_null("retry") else { return Some(RetryPolicy::default()) };
    let fields = doc.fields(node, &RETRY_MAPPING)?;
    let on = match fields.non_null("on") {
        Some(_) => fields.texts("on"),
        None => RetryPolicy::default().on,
    };
    Some(RetryPolicy { attempts: u32::try_from(fields.integer("attempts")?).ok()?, on })
}

fn read_rate(doc: &YamlDocument, fields: MappingFields<'_>) -> Option<SweepRate> {
    let Some(node) = fields.non_null("rate") else {
        return Some(SweepRate { concurrent: 8, warm: false });
    };
    let fields = doc.fields(node, &RATE_MAPPING)?;
    let concurrent = u32::try_from(fields.integer("concurrent")?).ok()?;
    Some(SweepRate { concurrent, warm: fields.text("warm") == Some("auto") })
}

fn read_gate(doc: &YamlDocument, fields: MappingFields<'_>) -> Option<GateSettings> {
    let defaults = GateSettings::default();
    let repeats = match fields.non_null("repeats") {
        Some(_) => u32::try_from(fields.integer("repeats")?).ok()?,
        None => defaults.repeats,
    };
    let Some(node) = fields.non_null("gate") else {
        return Some(GateSettings { repeats, ..defaults });
    };
    let fields = doc.fields(node, &GATE_MAPPING)?;
    let max_drop = read_number(doc, fields, "max_drop").unwrap_or(defaults.max_drop);
    if max_drop == 0.0 {
        let help = "write `max_drop: 0.1`, a difference of scores above 0";
        doc.report(fields.non_null("max_drop")?, "`max_drop` excludes nothing", help);
    }
    let max_age = fields.non_null("max_age").and_then(|node| read_time(doc, node, "max_age"));
    Some(GateSettings {
        max_drop,
        repeats,
        against: fields.text("against").map(str::to_owned),
        ignore: fields.text("ignore").map(str::to_owned),
        max_age_ms: max_age.unwrap_or(defaults.max_age_ms),
    })
}

/// A time with its unit, in milliseconds; reports any other text.
pub(crate) fn read_time(doc: &YamlDocument, node: &YamlNode, key: &str) -> Option<u64> {
    let text = node.scalar()?;
    let is_number = text.parse::<f64>().is_ok();
    let time = delta_base::quantity::parse_time_ms(text).filter(|time| *time > 0 && !is_number);
    if time.is_none() {
        let help = "write `90s`, `30m`, `2h` or `1h30m`";
        doc.report(node, format!("`{key}` must be a time with its unit"), help);
    }
    time
}

fn read_number(doc: &YamlDocument, fields: MappingFields<'_>, key: &str) -> Option<f64> {
    fields.non_null(key).and_then(|node| doc.to_json(node)?.as_f64())
}
