//! What a plan is made of: sweep.yaml, and the agents, inputs and files of models that it names.

use crate::formats::canonical_json::content_hash;
use crate::formats::grader::{GraderKind, PlannedGrader};
use crate::formats::input::{InputSet, SweepInput};
use crate::formats::plan::PlanHeader;
use crate::formats::sweep_file::{AgentEntry, InputSource, ModelEntry, SweepFile};
use crate::grading::run_grader;
use crate::planning::plan_checks;
use crate::planning::plan_reader::unreadable_file;
use crate::planning::recorded_runs;
use crate::planning::source_copies::{self, SourceCopies};
use delta_agent::agent::Agent;
use delta_base::durable;
use delta_base::shell_quote::shell_quote_path;
use delta_lint::lint::find_misspelled_llm_keys;
use delta_llm::llm::ModelChoice;
use delta_operator::arguments::agent_choice;
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, config, trust};
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_yaml::yaml::YamlDocument;
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The contents of files, by their hashes.
type FilesByHash = BTreeMap<String, Vec<u8>>;

/// Everything that a plan is made of.
pub struct PlanSources {
    pub file: SweepFile,
    pub header: PlanHeader,
    pub inputs: InputSet,
    pub source_dirs: SourceDirs,
    copies: SourceCopies,
    /// The contents of the files that models name, by their hashes.
    model_files: FilesByHash,
    /// The trees of the directories of inputs.
    input_trees: BTreeSet<String>,
    /// The programs of graders, by their hashes.
    programs: FilesByHash,
}

/// Where a plan is made from.
pub struct SourceDirs {
    /// The directory of sweep.yaml.
    pub base: PathBuf,
    pub agents: Vec<SourceAgent>,
}

impl SourceDirs {
    /// The names of the agents with their directories.
    pub fn agent_homes(&self) -> Vec<(String, PathBuf)> {
        self.agents.iter().map(|agent| (agent.id.clone(), agent.home.clone())).collect()
    }
}

/// An agent of the file.
#[derive(Clone)]
pub struct SourceAgent {
    pub id: String,
    pub home: PathBuf,
    /// A directory with what is copied of it.
    pub copy: PathBuf,
}

/// The agents of a plan, which their copies are made of.
#[derive(Clone)]
pub struct PlanAgents {
    /// The tree of each, by its name in the sweep.
    pub trees: BTreeMap<String, String>,
    agents: Vec<SourceAgent>,
}

impl PlanAgents {
    /// Takes in the agents in these directories, by their names.
    fn take(
        homes: impl IntoIterator<Item = (String, PathBuf)>,
        copies: &mut SourceCopies,
    ) -> Result<Self, CommandFailure> {
        let mut trees = BTreeMap::new();
        let mut agents = Vec::new();
        for (id, home) in homes {
            let (tree, copy) = copies.add_agent(&home)?;
            trees.insert(id.clone(), tree);
            agents.push(SourceAgent { id, home, copy });
        }
        Ok(Self { trees, agents })
    }

    /// A directory with what is copied of each agent, by its name.
    pub fn copies(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.agents.iter().map(|agent| (agent.id.as_str(), agent.copy.as_path()))
    }
}

impl PlanSources {
    /// Reads and checks everything that the file at `path` names, for the sweep in `dir`, or else in the directory that the file
    /// names.
    pub fn read(path: &Path, dir: Option<&Path>) -> Result<Self, CommandFailure> {
        let name = path.display().to_string();
        let text = read_sweep_text(path)?;
        let file = SweepFile::parse(&name, text.clone())?;
        check_llm_keys(&name, text)?;
        let base = path.parent().unwrap_or(Path::new(""));
        let mut copies = SourceCopies::create(file.sweep_dir(dir), cancel::install_cancel()?)?;
        let (inputs, input_trees) = load_inputs(&file, base, &mut copies)?;
        check_graded_inputs(&file, &inputs)?;
        let mut model_files = BTreeMap::new();
        let mut model_hashes = BTreeMap::new();
        for model in &file.models {
            if let Some(path) = model_file(model, base) {
                let (bytes, hash) = source_copies::read_with_hash(&path)?;
                model_files.insert(hash.clone(), bytes);
                model_hashes.insert(model.id.clone(), hash);
            }
        }
        let homes =
            file.agents.iter().map(|entry| Ok((entry.id.clone(), find_agent(entry, base)?)));
        let homes = homes.collect::<Result<Vec<_>, CommandFailure>>()?;
        let PlanAgents { trees, agents } = PlanAgents::take(homes, &mut copies)?;
        let hash = content_hash(inputs.text().as_bytes());
        let (graders, programs) = copy_graders(&file, base, &mut copies)?;
        let header = PlanHeader::new(&file, trees, &model_hashes, hash, graders);
        let base = base.to_owned();
        let source_dirs = SourceDirs { base, agents };
        Ok(Self { file, header, inputs, source_dirs, copies, model_files, input_trees, programs })
    }

    /// The agents of the next plan.
    pub fn agents(&self) -> PlanAgents {
        PlanAgents { trees: self.header.agents.clone(), agents: self.source_dirs.agents.clone() }
    }

    /// Takes in the agents in these directories, by their names, for [`PlanSources::use_agents`].
    pub fn take_agents(
        &mut self,
        homes: &BTreeMap<String, PathBuf>,
    ) -> Result<PlanAgents, CommandFailure> {
        PlanAgents::take(homes.clone(), &mut self.copies)
    }

    /// Makes a copy of an agent that was taken in.
    pub fn copy_agent(&mut self, tree: &str, dir: &Path) -> Result<(), CommandFailure> {
        self.copies.copy_tree(tree, dir)
    }

    /// Puts these agents into the next plan.
    pub fn use_agents(&mut self, agents: &PlanAgents) {
        self.header.agents.clone_from(&agents.trees);
        self.source_dirs.agents.clone_from(&agents.agents);
    }

    /// Makes the copies that the plan refers to. Durable before the plan is.
    pub fn write_copies(&mut self, dir: &SweepDir) -> Result<(), CommandFailure> {
        if let Some(parent) = dir.root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            durable::ensure_shared_dir(parent)?;
        }
        // Tasks and results are in files that each process writes with the usual mode.
        durable::ensure_private_dir(&dir.root)?;
        durable::ensure_shared_dir(&dir.agents())?;
        durable::ensure_shared_dir(&dir.inputs())?;
        let judges = self.header.grade.iter().filter_map(|grader| grader.judge_tree());
        for tree in self.header.agents.values().map(String::as_str).chain(judges) {
            self.copies.copy_tree(tree, &dir.agent(tree))?;
        }
        for tree in &self.input_trees {
            self.copies.copy_tree(tree, &dir.input_copy(tree))?;
        }
        self.copies.copy_runs(dir)?;
        for (hash, bytes) in &self.model_files {
            source_copies::write_copy(&dir.input_copy(hash), bytes)?;
        }
        for (hash, bytes) in &self.programs {
            source_copies::write_program(&dir.input_copy(hash), bytes)?;
        }
        source_copies::write_copy(
            &dir.input_lines(&self.header.inputs),
            self.inputs.text().as_bytes(),
        )?;
        Ok(durable::sync_file_system(&dir.root)?)
    }
}

fn read_sweep_text(path: &Path) -> Result<String, CommandFailure> {
    durable::read_regular_text(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            let hint = "a sweep.yaml has `name`, `agents` and `inputs`; `delta schema sweep` prints all keys";
            CommandFailure::config(format!("{} does not exist", path.display()), hint.to_owned())
        }
        _ if path.is_dir() => {
            let hint = format!("name the file in it: {}", path.join("sweep.yaml").display());
            CommandFailure::config(format!("{} is a directory", path.display()), hint)
        }
        _ => unreadable_file(path.to_owned(), source),
    })
}

/// Refuses keys of `llm` that are close to a known one: a misspelled key would change every run.
fn check_llm_keys(name: &str, text: String) -> Result<(), CommandFailure> {
    let doc = YamlDocument::parse(name, text)?;
    let report = find_misspelled_llm_keys(&doc);
    if report.is_empty() { Ok(()) } else { Err(report.into()) }
}

fn find_agent(entry: &AgentEntry, base: &Path) -> Result<PathBuf, CommandFailure> {
    let path = base.join(&entry.path);
    let home = if path.exists() {
        path
    } else {
        let hint = "an agent is a directory, relative to the file; `delta init NAME` makes one";
        agent_choice::find_existing_agent(Path::new(&entry.path))
            .map_err(|failure| failure.with_hint(hint))?
    };
    if !home.is_dir() {
        let message = format!(
            "agent `{}`: there is no directory {}",
            entry.id,
            base.join(&entry.path).display()
        );
        return Err(CommandFailure::config(message, "paths are relative to the file"));
    }
    let dotenv = home.join(".env");
    if dotenv.exists() {
        stdio::print_error_line(&format!(
            "Note: {} is not copied: pass it to `delta sweep run` with `--env-file`",
            dotenv.display()
        ));
    }
    Ok(home)
}

/// The file that a model names, relative to sweep.yaml. One that is not there may be in the agent directory.
pub fn model_file(model: &ModelEntry, base: &Path) -> Option<PathBuf> {
    let path = base.join(model.model.file_name()?);
    path.is_file().then_some(path)
}

/// The values of `--llm`.
pub fn llm_options(llm: &Map<String, Json>) -> Vec<String> {
    llm.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// The inputs of the file, and the trees of the directories that are taken in for them.
fn load_inputs(
    file: &SweepFile,
    base: &Path,
    copies: &mut SourceCopies,
) -> Result<(InputSet, BTreeSet<String>), CommandFailure> {
    let inputs = match &file.inputs {
        InputSource::Inline(inputs) => inputs.clone(),
        InputSource::File(name) => {
            let path = base.join(name);
            let text = durable::read_large_text(&path).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => {
                    let message = format!("`inputs`: {} does not exist", path.display());
                    CommandFailure::config(message, "paths are relative to the file")
                }
                _ => unreadable_file(path.clone(), source),
            })?;
            InputSet::parse(&path.display().to_string(), text)?
        }
        InputSource::Directories(pattern) => find_input_dirs(pattern, base, copies)?,
        InputSource::Runs { pattern, at } => {
            return recorded_runs::take_recorded_runs(pattern, at, base, copies);
        }
    };
    copy_input_dirs(inputs, base, copies)
}

/// The paths that the pattern under `key` matches, sorted by name.
pub fn find_paths(
    key: &str,
    pattern: &str,
    base: &Path,
) -> Result<impl Iterator<Item = PathBuf>, CommandFailure> {
    let full = if base.as_os_str().is_empty() {
        pattern.to_owned()
    } else {
        format!("{}/{pattern}", glob::Pattern::escape(&base.display().to_string()))
    };
    let paths = glob::glob(&full).map_err(|error| {
        CommandFailure::config(
            format!("`{key}`: `{pattern}` is not a pattern: {}", error.msg),
            None,
        )
    })?;
    Ok(paths.flatten())
}

/// An input for each directory that the pattern matches, sorted by name.
fn find_input_dirs(
    pattern: &str,
    base: &Path,
    copies: &SourceCopies,
) -> Result<InputSet, CommandFailure> {
    let mut inputs: BTreeMap<String, SweepInput> = BTreeMap::new();
    let paths = find_paths("dirs", pattern, base)?;
    for path in paths.filter(|path| path.is_dir() && !copies.is_sweep_dir(path)) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            let message = format!("the name of {} is not UTF-8", path.display());
            return Err(CommandFailure::config(message, None));
        };
        let from = path.strip_prefix(base).unwrap_or(&path).display().to_string();
        let members = [("id", name.to_owned()), ("from", from)];
        let members =
            members.into_iter().map(|(key, text)| (key.to_owned(), Json::from(text))).collect();
        let input = SweepInput::from_members(members)
            .map_err(|(message, help)| CommandFailure::config(message, help))?;
        if inputs.insert(name.to_owned(), input).is_some() {
            let message = format!("`dirs`: two directories have the name `{name}`");
            return Err(CommandFailure::config(
                message,
                "list the inputs, each with an id of its own",
            ));
        }
    }
    if inputs.is_empty() {
        return Err(CommandFailure::config(
            format!("`dirs`: no directory matches `{}`", base.join(pattern).display()),
            "write a pattern relative to the file, such as `cases/*`",
        ));
    }
    Ok(InputSet::from_inputs(inputs.values()))
}

/// Checks that graders have values for their placeholders on all inputs: a run costs before it is graded.
fn check_graded_inputs(file: &SweepFile, inputs: &InputSet) -> Result<(), CommandFailure> {
    for input in inputs.iter() {
        let input = input.map_err(changed_inputs_failure)?;
        for grader in &file.grade {
            grader.check_input(&input.members).map_err(|error| {
                let SweepInput { id, .. } = &input;
                let message = format!("grader `{}`, input `{id}`: {error}", grader.name);
                CommandFailure::config(message, error.help)
            })?;
        }
    }
    Ok(())
}

/// Takes in the directories under `from`; returns the lines with their trees.
fn copy_input_dirs(
    inputs: InputSet,
    base: &Path,
    copies: &mut SourceCopies,
) -> Result<(InputSet, BTreeSet<String>), CommandFailure> {
    let mut trees: BTreeMap<String, String> = BTreeMap::new();
    for input in inputs.iter() {
        let input = input.map_err(changed_inputs_failure)?;
        let Some(from) = input.from.filter(|from| !trees.contains_key(from)) else { continue };
        let path = base.join(&from);
        if !path.is_dir() {
            let message =
                format!("input `{}`: `from`: there is no directory {}", input.id, path.display());
            return Err(CommandFailure::config(message, "paths are relative to the file"));
        }
        let tree = copies.add_input(&path)?;
        trees.insert(from, tree);
    }
    if trees.is_empty() {
        return Ok((inputs, BTreeSet::new()));
    }
    let with_trees = inputs.iter().map(|input| {
        let mut input = input?;
        input.tree = input.from.as_ref().and_then(|from| trees.get(from)).cloned();
        Ok(input)
    });
    let with_trees =
        with_trees.collect::<Result<Vec<_>, String>>().map_err(changed_inputs_failure)?;
    Ok((InputSet::from_inputs(&with_trees), trees.into_values().collect()))
}

/// Takes in what the graders of the file name; returns them as the plan has them, with the programs that it copies.
fn copy_graders(
    file: &SweepFile,
    base: &Path,
    copies: &mut SourceCopies,
) -> Result<(Vec<PlannedGrader>, FilesByHash), CommandFailure> {
    let mut planned = Vec::new();
    let mut programs = FilesByHash::new();
    for entry in &file.grade {
        let mut kind = entry.kind.clone();
        match &mut kind {
            GraderKind::Expect(expect) => {
                run_grader::read_expectation(&entry.name, expect)?;
            }
            GraderKind::Command { file, argument_files, .. } => {
                for argument in entry.absolute_arguments() {
                    // What is not a readable file is known by its name.
                    if let Ok((_, hash)) = source_copies::read_with_hash(Path::new(argument)) {
                        argument_files.insert(argument.to_owned(), hash);
                    }
                }
                if let Some(path) = entry.program_path() {
                    let path = base.join(path);
                    check_grader_program(&entry.name, &path)?;
                    let (bytes, hash) = source_copies::read_with_hash(&path)?;
                    programs.insert(hash.clone(), bytes);
                    *file = Some(hash);
                }
            }
            GraderKind::Agent { agent, model } => {
                let judge = AgentEntry { id: entry.name.clone(), path: agent.clone() };
                let (tree, copy) = copies.add_agent(&find_agent(&judge, base)?)?;
                let choice = model.as_deref().map(ModelChoice::parse).transpose();
                let choice = choice.map_err(|message| {
                    CommandFailure::config(format!("grader `{}`: {message}", entry.name), None)
                })?;
                let models = config::model_selection(choice)?;
                plan_checks::refuse_unnamed_judge_model(&entry.name, &copy, &models)?;
                let judge = Agent::load(&copy, &models, &trust::read_import_path())?;
                plan_checks::check_judge_price(judge, &file.budget)?;
                *agent = tree;
            }
        }
        planned.push(PlannedGrader { name: entry.name.clone(), kind });
    }
    Ok((planned, programs))
}

fn check_grader_program(name: &str, path: &Path) -> Result<(), CommandFailure> {
    let mode = path.metadata().map(|metadata| metadata.permissions().mode());
    match mode {
        Ok(mode) if mode & 0o111 != 0 => Ok(()),
        Ok(_) => Err(CommandFailure::config(
            format!("grader `{name}`: {} is not executable", path.display()),
            format!("`chmod +x {}`", shell_quote_path(path)),
        )),
        Err(source) => Err(CommandFailure::config(
            format!("grader `{name}`: could not open {}: {source}", path.display()),
            "paths are relative to the file",
        )),
    }
}

fn changed_inputs_failure(message: String) -> CommandFailure {
    CommandFailure::config(message, None)
}
