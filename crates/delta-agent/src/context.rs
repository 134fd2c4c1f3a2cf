//! context.yaml, and the messages built from files, generators and the conversation (the
//! ContextBuilder of the specification).
//!
//! What the LLM sees is a function of the journal, the configuration and the files that
//! context.yaml names.

use crate::skill::Skill;
use agents_md::AgentsMdSource;
use context_mapping::{GENERATOR_MAPPING, SKIP, SOURCE_KINDS, STAGE_MAPPING};
use delta_base::engine_variables::{
    EngineVariable, EngineVars, StringPart, find_unknown_variable, find_unknown_variables,
    parse_plain_string, unknown_variable_help,
};
use delta_run::conversation::render_task_template;
use delta_words::Message;
use delta_yaml::yaml::{
    MappingFields, YamlDocument, YamlNode, YamlValue, is_plain_command, quote_yaml,
};
use generator_cache::GeneratorCache;
use source_condition::SourceCondition;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

pub mod agents_md;
mod context_builder;
mod context_mapping;
mod context_program;
mod context_rebuild;
pub mod generator_cache;
mod source_condition;
mod source_text;
mod token_budget;

pub use context_builder::{ContextInputs, RequestContext};
pub use context_mapping::CONTEXT_MAPPING;
pub use context_rebuild::{RecordedBlock, SystemPromptCopy};
pub use token_budget::TokenCounter;

/// The content that the error about a missing context.yaml suggests, for an agent with this `system_prompt`.
pub fn default_manifest(system_prompt: &str) -> String {
    let home = if Path::new(system_prompt).is_absolute() { "" } else { "${AGENT_HOME}/" };
    let prompt = system_prompt.replace('\'', "''");
    format!(
        "\
sources:
  - type: file
    id: system_prompt
    path: '{home}{prompt}'
  - type: file
    id: workspace_guide
    path: '${{CWD}}/DELTA.md'
    on_missing: skip
  - type: journal
    id: conversation_history
"
    )
}

/// The type of the source that is the conversation.
pub const JOURNAL_TYPE: &str = "journal";
/// The type of the block with the catalogue of skills.
const SKILLS_TYPE: &str = "skills";
/// The default name of the system prompt.
pub const SYSTEM_PROMPT_FILE: &str = "system_prompt.md";

/// The environment variable that marks the processes of a generator, so that those left over after
/// a timeout can be found.
pub const GENERATOR_MARK: (&str, &str) = ("DELTA_GENERATOR", "1");

/// The maximum delay of the clock that stamps files.
const FILE_CLOCK_RESOLUTION: Duration = Duration::from_millis(20);

/// The contents of context.yaml.
#[derive(Debug, Clone, Default)]
pub struct ContextManifest {
    sources: Vec<ContextSource>,
    /// The limit for all messages together.
    total_max_tokens: Option<u64>,
    tokenizer: Option<ContextProgram>,
    /// What the LLM sees in place of the first message.
    task_template: Option<String>,
}

#[derive(Debug, Clone)]
struct ContextSource {
    id: Option<String>,
    heading: BlockHeading,
    kind: SourceKind,
    max_tokens: Option<u64>,
    condition: Option<SourceCondition>,
}

#[derive(Debug, Clone)]
enum SourceKind {
    File {
        path: String,
        skip_missing: bool,
    },
    /// The file that the last stage writes.
    Computed {
        stages: Vec<PipelineStage>,
        is_pipeline: bool,
        skip_missing: bool,
        cache: Option<GeneratorCache>,
    },
    AgentsMd(AgentsMdSource),
    /// Not in context.yaml: the agent has skills.
    Skills(Vec<Skill>),
    Journal {
        max_iterations: Option<usize>,
    },
}

/// The first line of a block.
#[derive(Debug, Clone)]
enum BlockHeading {
    /// The name of the source.
    Name,
    None,
    Text(String),
}

impl BlockHeading {
    fn read(doc: &YamlDocument, fields: MappingFields<'_>) -> Self {
        let node = fields.node.get("heading").filter(|node| !node.is_null());
        let Some(node) = node else { return Self::Name };
        match node.scalar() {
            Some("true") => Self::Name,
            Some("false") => Self::None,
            Some(text) => Self::Text(text.to_owned()),
            None => {
                let help = "write `heading: false`, or a text in quotes";
                doc.report(node, "`heading` must be a boolean or a text", help);
                Self::Name
            }
        }
    }
}

/// A command of a pipeline and the file it writes.
#[derive(Debug, Clone)]
struct PipelineStage {
    /// Used in messages.
    id: Option<String>,
    generator: ContextProgram,
    output: String,
}

/// A command that writes a file for the context or counts tokens.
#[derive(Debug, Clone)]
pub struct ContextProgram {
    /// The program and its arguments; engine variables are not yet replaced.
    pub command: Vec<String>,
    /// The timeout in milliseconds.
    pub timeout_ms: u64,
    /// The key variables that it receives nevertheless.
    pub pass_env: Vec<String>,
}

/// Why the context could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The run was interrupted while a command ran.
    #[error("interrupted")]
    Cancelled,
    /// A source could not be read or generated.
    #[error("context source `{source_id}`: {reason}")]
    Source {
        /// The id of the source, or the name of its file.
        source_id: String,
        /// What went wrong.
        reason: String,
    },
    /// The required messages do not fit, or their tokens could not be counted.
    #[error("context: {0}")]
    Budget(String),
}

impl ContextManifest {
    /// Whether building the messages may start programs.
    pub fn starts_programs(&self) -> bool {
        let mut kinds = self.sources.iter().map(|source| &source.kind);
        self.tokenizer.is_some() || kinds.any(|kind| matches!(kind, SourceKind::Computed { .. }))
    }

    /// The key variables that programs get nevertheless.
    pub fn passed_keys(&self) -> impl Iterator<Item = &String> {
        let stages = self.sources.iter().flat_map(ContextSource::stages);
        let programs = stages.map(|stage| &stage.generator).chain(&self.tokenizer);
        programs.flat_map(|program| &program.pass_env)
    }

    /// The paths, as context.yaml has them, of which the content or the existence shows in the messages, and that are neither
    /// the agent's nor the run's nor usual files of the workspace.
    pub fn outer_paths(&self) -> impl Iterator<Item = &str> {
        let paths = self.sources.iter().flat_map(|source| {
            let file = match &source.kind {
                SourceKind::File { path, .. } => Some(path),
                _ => None,
            };
            let condition = match &source.condition {
                Some(SourceCondition::FileExists(path)) => Some(path),
                _ => None,
            };
            let outputs = source.stages().iter().map(|stage| &stage.output);
            file.into_iter().chain(outputs).chain(condition)
        });
        paths.map(String::as_str).filter(|path| is_outer_path(path))
    }

    /// Shows the catalogue of `skills` before the conversation; nothing if there are none.
    pub(crate) fn set_skills(&mut self, skills: &[Skill]) {
        self.sources.retain(|source| !matches!(source.kind, SourceKind::Skills(_)));
        if skills.is_empty() {
            return;
        }
        let mut kinds = self.sources.iter().map(|source| &source.kind);
        let journal_index = kinds.position(|kind| matches!(kind, SourceKind::Journal { .. }));
        let kind = SourceKind::Skills(skills.to_vec());
        let heading = BlockHeading::Name;
        let source = ContextSource { id: None, heading, kind, max_tokens: None, condition: None };
        self.sources.insert(journal_index.unwrap_or(self.sources.len()), source);
    }

    /// Whether a command counts the tokens.
    pub fn has_tokenizer(&self) -> bool {
        self.tokenizer.is_some()
    }

    /// A warning for each pattern in `invalidate_on` that matches no file, because changes there
    /// would go unnoticed. `has_workspace` says whether the workspace exists.
    pub fn unmatched_patterns(&self, vars: &EngineVars, has_workspace: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        for source in &self.sources {
            let SourceKind::Computed { cache: Some(cache), .. } = &source.kind else { continue };
            let name = source.name(vars);
            let unmatched = cache.unmatched(vars, has_workspace);
            warnings.extend(unmatched.into_iter().map(|pattern| {
                format!("Warning: context source `{name}`: `{pattern}` in `invalidate_on` matches no file")
            }));
        }
        warnings
    }

    /// Reads context.yaml of an agent with this `system_prompt`; problems are added to the report of `doc`.
    pub fn read(doc: &YamlDocument, system_prompt: &str) -> Option<Self> {
        let default_help = || {
            let content = default_manifest(system_prompt);
            format!("write this content:\n{}", content.trim_end())
        };
        doc.expect_mapping_or(&doc.root, "context.yaml", || {
            if doc.root.items().is_empty() {
                default_help()
            } else {
                "write a line `sources:` before the list".to_owned()
            }
        })?;
        let fields = doc.fields(&doc.root, &CONTEXT_MAPPING)?;
        let node = fields.require("sources", "[{type: journal}]")?;
        let items = doc.expect_list(node, "`sources`")?;
        if items.is_empty() {
            doc.report(node, "`sources` is empty, so the LLM would see nothing", default_help());
        }
        let tokenizer =
            fields.non_null("tokenizer").and_then(|node| ContextProgram::read(doc, node));
        let total_max_tokens = fields.integer("total_max_tokens");
        let sources = items.iter().filter_map(|item| ContextSource::read(doc, item)).collect();
        let task_template = read_task_template(doc, items);
        Some(Self { sources, total_max_tokens, tokenizer, task_template })
    }

    /// What the LLM sees in place of the first message, if it is not the message itself.
    pub fn task_template(&self) -> Option<&str> {
        self.task_template.as_deref()
    }
}

impl ContextSource {
    fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        doc.expect_mapping_or(node, "a source", || match node.scalar() {
            Some("journal") => "write `{type: journal}`".to_owned(),
            Some(path) => format!("write `{{type: file, path: {}}}`", quote_yaml(path)),
            None => "write `{type: file, path: FILE}`".to_owned(),
        })?;
        let (name, mapping) = doc.tagged_mapping(node, "a source", "type", &SOURCE_KINDS)?;
        let fields = doc.fields(node, mapping)?;
        let condition = match name {
            _ if fields.node.get("condition").is_none_or(YamlNode::is_null) => None,
            _ => Some(SourceCondition::read(doc, fields.non_null("condition")?)),
        };
        let kind = match name {
            "file" => SourceKind::File {
                path: read_path_field(doc, fields, "path", "'${CWD}/DELTA.md'")?,
                skip_missing: skips_missing(fields),
            },
            "computed_file" => {
                let output = read_path_field(doc, fields, "output_path", "'${RUN_DIR}/summary.md'");
                let generator = fields.require("generator", "{command: [PROGRAM]}");
                let generator = generator.and_then(|node| ContextProgram::read(doc, node));
                let cache = read_source_cache(doc, fields);
                let stage = PipelineStage { id: None, generator: generator?, output: output? };
                let skip_missing = skips_missing(fields);
                let stages = vec![stage];
                SourceKind::Computed { stages, is_pipeline: false, skip_missing, cache: cache? }
            }
            "pipeline" => {
                let example = "[{generator: [PROGRAM], output: '${RUN_DIR}/result.md'}]";
                let node = fields.require("stages", example)?;
                let items = doc.expect_list(node, "`stages`")?;
                let stages =
                    items.iter().filter_map(|item| PipelineStage::read(doc, item)).collect();
                if items.is_empty() {
                    let help = format!("write `stages: {example}`");
                    doc.report(node, "`stages` is empty", help);
                }
                let cache = read_source_cache(doc, fields)?;
                let skip_missing = skips_missing(fields);
                SourceKind::Computed { stages, is_pipeline: true, skip_missing, cache }
            }
            agents_md::AGENTS_MD_TYPE => SourceKind::AgentsMd(AgentsMdSource::read(doc, fields)?),
            _ => {
                let limit = fields.integer("max_iterations");
                let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
                SourceKind::Journal { max_iterations: limit }
            }
        };
        Some(Self {
            id: fields.text("id").map(str::to_owned),
            heading: BlockHeading::read(doc, fields),
            kind,
            max_tokens: fields.integer("max_tokens"),
            condition: match condition {
                None => None,
                Some(condition) => Some(condition?),
            },
        })
    }

    /// The commands that write its file.
    fn stages(&self) -> &[PipelineStage] {
        match &self.kind {
            SourceKind::Computed { stages, .. } => stages,
            _ => &[],
        }
    }

    /// Whether the text comes from the agent alone, so that every run of the agent has it.
    fn is_constant(&self) -> bool {
        let is_of_agent = |path: &str| {
            let pieces = parse_plain_string(path);
            pieces.iter().all(|piece| match piece {
                StringPart::Text(_) | StringPart::Variable(EngineVariable::AgentHome) => true,
                StringPart::Variable(EngineVariable::Cwd | EngineVariable::RunDir) => false,
            })
        };
        let is_of_agent = match &self.kind {
            SourceKind::File { path, .. } => is_of_agent(path),
            SourceKind::Skills(skills) => skills.iter().all(|skill| is_of_agent(&skill.root)),
            SourceKind::Computed { .. } | SourceKind::AgentsMd(_) | SourceKind::Journal { .. } => {
                false
            }
        };
        is_of_agent && self.condition.is_none()
    }

    /// The message of the source with this content.
    fn block_message(&self, name: &str, content: &str) -> String {
        let content = match &self.heading {
            BlockHeading::Name => format!("# Context Block: {name}\n\n{content}"),
            BlockHeading::None => content.to_owned(),
            BlockHeading::Text(heading) => format!("{heading}\n\n{content}"),
        };
        Message::System { content: content.into() }.to_json()
    }

    /// The `type` in context.yaml.
    fn type_name(&self) -> &'static str {
        match &self.kind {
            SourceKind::File { .. } => "file",
            SourceKind::Computed { is_pipeline: false, .. } => "computed_file",
            SourceKind::Computed { is_pipeline: true, .. } => "pipeline",
            SourceKind::AgentsMd(_) => agents_md::AGENTS_MD_TYPE,
            SourceKind::Skills(_) => SKILLS_TYPE,
            SourceKind::Journal { .. } => JOURNAL_TYPE,
        }
    }

    /// The file that the source reads, or that its last command writes.
    fn path(&self, vars: &EngineVars) -> Option<PathBuf> {
        match &self.kind {
            SourceKind::Journal { .. } | SourceKind::AgentsMd(_) | SourceKind::Skills(_) => None,
            SourceKind::File { path, .. } => Some(resolve_context_path(path, vars)),
            SourceKind::Computed { stages, .. } => {
                Some(resolve_context_path(stages.last().map_or("", |stage| &stage.output), vars))
            }
        }
    }

    fn name(&self, vars: &EngineVars) -> String {
        self.name_for_path(self.path(vars).as_deref())
    }

    /// The name in messages and headings: the id, or the name of the file at `path`.
    fn name_for_path(&self, path: Option<&Path>) -> String {
        match (&self.id, path) {
            (Some(id), _) => id.clone(),
            (None, None) => match self.kind {
                SourceKind::AgentsMd(_) => agents_md::AGENTS_MD_FILE.to_owned(),
                _ => self.type_name().to_owned(),
            },
            (None, Some(path)) => {
                path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
            }
        }
    }
}

/// The template of the source that has one.
fn read_task_template(doc: &YamlDocument, items: &[YamlNode]) -> Option<String> {
    let mut nodes =
        items.iter().filter_map(|item| item.get("template").filter(|node| !node.is_null()));
    let node = nodes.next()?;
    // The first message is the same for every source.
    for other in nodes {
        let message = format!("line {} has a `template` already", node.line);
        doc.report(other, message, "keep one of them");
    }
    let template = node.scalar()?;
    if let Err(problem) = render_task_template(template, "") {
        let help = "`${message}` is the first message, and the only variable";
        doc.report(node, problem, help);
    }
    Some(template.to_owned())
}

/// Reads a required path; engine variables are not yet replaced.
fn read_path_field(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    key: &str,
    example: &str,
) -> Option<String> {
    let node = fields.require(key, example)?;
    let text = fields.text(key)?;
    check_path_variables(doc, node, text);
    Some(text.to_owned())
}

/// Reports an unknown variable: a misspelled one would name a file that does not exist or, worse,
/// another one.
fn check_path_variables(doc: &YamlDocument, node: &YamlNode, text: &str) {
    if let Some(name) = find_unknown_variable(text) {
        report_unknown_variable(doc, node, name);
    }
}

fn report_unknown_variable(doc: &YamlDocument, node: &YamlNode, name: &str) {
    let help = unknown_variable_help(name, "paths and commands of context.yaml");
    doc.report(node, format!("`${{{name}}}` is not an engine variable"), help);
}

fn skips_missing(fields: MappingFields<'_>) -> bool {
    fields.text("on_missing") == Some(SKIP)
}

/// Returns `None` for an invalid cache and `Some(None)` when there is none.
fn read_source_cache(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
) -> Option<Option<GeneratorCache>> {
    match fields.non_null("cache") {
        None => Some(None),
        Some(node) => GeneratorCache::read(doc, node).map(Some),
    }
}

impl PipelineStage {
    fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let fields = doc.fields(node, &STAGE_MAPPING)?;
        let output = read_path_field(doc, fields, "output", "'${RUN_DIR}/result.md'");
        let command_node = fields.require("generator", "[PROGRAM, ARG]")?;
        let generator = ContextProgram::from_fields(doc, fields, command_node, "generator")?;
        Some(Self { id: fields.text("id").map(str::to_owned), generator, output: output? })
    }
}

impl ContextProgram {
    fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        doc.expect_mapping_or(node, "a generator", || match node.scalar() {
            Some(line) if is_plain_command(line) => {
                let words: Vec<&str> = line.split_whitespace().collect();
                format!("write `{{command: [{}]}}`", words.join(", "))
            }
            _ => "write `{command: [PROGRAM, ARG]}`".to_owned(),
        })?;
        let fields = doc.fields(node, &GENERATOR_MAPPING)?;
        let command_node = fields.require("command", "[PROGRAM, ARG]")?;
        Self::from_fields(doc, fields, command_node, "command")
    }

    fn from_fields(
        doc: &YamlDocument,
        fields: MappingFields<'_>,
        node: &YamlNode,
        key: &str,
    ) -> Option<Self> {
        let command = fields.texts(key);
        if command.first().is_none_or(String::is_empty) {
            // Anything but a list of texts was already reported.
            let is_list = matches!(node.value, YamlValue::Sequence(_));
            if is_list && node.items().first().is_none_or(|first| first.scalar() == Some("")) {
                let help = "write `[PROGRAM, ARG, ...]`";
                doc.report(node, format!("`{key}` names no program"), help);
            }
            return None;
        }
        for (at, name) in find_unknown_variables(&command) {
            report_unknown_variable(doc, &node.items()[at], name);
        }
        let timeout_ms = fields.integer("timeout_ms")?;
        Some(Self { command, timeout_ms, pass_env: fields.texts("pass_env") })
    }
}

/// A path in context.yaml with its variables replaced, relative to the agent directory.
fn resolve_context_path(path: &str, vars: &EngineVars) -> PathBuf {
    let path = vars.agent_home.join(vars.expand_text(path));
    let prompt = path.parent() == Some(&vars.agent_home) && path.ends_with(SYSTEM_PROMPT_FILE);
    if prompt { with_txt_fallback(path) } else { path }
}

/// Whether a path may lead out of the directory that it begins in (the agent's, the workspace, the run's), or to a private
/// file of it.
fn is_outer_path(path: &str) -> bool {
    let parts = parse_plain_string(path);
    let begins_inside = match parts.as_slice() {
        [StringPart::Text(text), ..] => !text.starts_with('/'),
        // `${CWD}x` is another directory than the workspace.
        [StringPart::Variable(_), StringPart::Text(text), ..] => text.starts_with('/'),
        _ => true,
    };
    let leaves = Path::new(path).components().any(|part| match part {
        Component::ParentDir => true,
        Component::Normal(name) => agents_md::is_private(name.as_encoded_bytes()),
        _ => false,
    });
    !begins_inside || leaves
}

/// `path`, or system_prompt.txt if `path` is system_prompt.md and does not exist.
pub fn with_txt_fallback(path: PathBuf) -> PathBuf {
    if !path.ends_with(SYSTEM_PROMPT_FILE) || path.exists() {
        return path;
    }
    let text_form = path.with_extension("txt");
    if text_form.exists() { text_form } else { path }
}
