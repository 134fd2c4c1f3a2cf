//! An agent directory, loaded and checked as a whole before a run creates anything.

use crate::ask_human;
use crate::context::{ContextManifest, SYSTEM_PROMPT_FILE, default_manifest};
use crate::hook::{self, AgentHooks};
use crate::mcp_server::AgentMcpServer;
use crate::skill::Skill;
use crate::tool::{self, Tool};
use delta_base::durable::read_regular_text as read_text;
use delta_base::engine_variables::is_identifier;
use delta_llm::llm::{self, LlmConfig, LlmSetting, ModelChoice, ModelSelection};
use delta_run::event::{CURRENT_RULES, LlmSummary, RunConfig, SandboxRecord};
use delta_run::limits::Limits;
use delta_run::limits::bounds::RunBounds;
use delta_run::state::{ASK_HUMAN_TOOL, FINISH_TOOL};
use delta_words::Pricing;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport, READABLE_TEXT_HELP};
use delta_yaml::yaml::{MappingFields, YamlDocument, YamlNode};
use misnamed_files::misnamed_file_help;
use model_prices::{omitted_prices, without_prices_of_another_model};
use serde_json::Value as Json;
pub use snapshot_settings::SnapshotSettings;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use tool_defaults::apply_tool_defaults;
use tool_imports::{ImportPath, ToolImporter};

pub mod agent_files;
mod agent_mapping;
pub mod agent_rights;
pub mod agent_tree;
pub mod agents_lock;
mod dotenv;
pub mod env_layers;
mod finish_tool;
mod legacy_names;
mod mcp_section;
mod misnamed_files;
mod model_prices;
mod sandbox_settings;
mod skill_settings;
mod snapshot_settings;
mod tool_defaults;
pub mod tool_imports;

pub use agent_mapping::{AGENT_MAPPING, LLM_SECTION};
use finish_tool::FinishSettings;
pub use finish_tool::FinishTool;
pub use legacy_names::is_unsearchable;
pub use mcp_section::{LoadedMcpServers, load_mcp_servers};
pub use sandbox_settings::AgentSandbox;

/// The main file, and the name of its copy in a run directory.
const MAIN_FILE: &str = "agent.yaml";
/// The file that says what the LLM sees.
const CONTEXT_FILE: &str = "context.yaml";

/// The help for a main file that is empty, or no mapping.
const ROOT_HELP: &str = "begin with `name: my-agent`; `delta init` writes an agent that works";

/// An agent whose files were loaded and checked.
#[derive(Debug)]
pub struct Agent {
    /// The agent directory: absolute, symlinks resolved.
    pub home: PathBuf,
    /// The `name` in agent.yaml, not empty.
    pub name: String,
    /// The `description` in agent.yaml, not blank.
    pub description: Option<String>,
    /// The LLM and how to reach it.
    pub llm: LlmConfig,
    /// The operator's choice, if it selected the LLM.
    pub model_choice: Option<ModelChoice>,
    /// The operator's keys of `llm`, which count in place of those in agent.yaml.
    pub llm_settings: Vec<LlmSetting>,
    /// The path of the system prompt, as agent.yaml has it.
    pub system_prompt: String,
    /// The agent's own tools in file order; imported tools come before the tools in agent.yaml.
    pub tools: Vec<Tool>,
    /// The sandbox of the agent.
    pub sandbox: AgentSandbox,
    /// The skills that the LLM is offered.
    pub skills: Vec<Skill>,
    /// The directories of skills in the workspace, which are not offered until the operator allows that.
    pub project_skill_roots: Vec<String>,
    /// The MCP servers; their tools are in `tools`.
    pub mcp_servers: Vec<AgentMcpServer>,
    /// The variables that children get from a trusted `.env` outside of the agent directory.
    pub env_file: Vec<String>,
    /// The number of LLM answers one process may request, unless the operator overrides it.
    pub max_iterations: u32,
    /// The limits of a run, unless the operator overrides them.
    pub limits: Limits,
    /// The bounds of a run, unless the operator overrides them.
    pub bounds: RunBounds,
    /// Whether the LLM is offered the tool `finish`, and the arguments it takes.
    pub finish: FinishTool,
    /// Whether an answer without calls does not end the run.
    pub requires_finish: bool,
    /// Whether the LLM is offered the tool `ask_human`.
    pub ask_human: bool,
    /// The snapshots of the workspace; `None` when the agent takes none.
    pub snapshots: Option<SnapshotSettings>,
    /// The sources of the messages that the LLM sees.
    pub context: ContextManifest,
    /// The configured hooks.
    pub hooks: AgentHooks,
    /// The files it was loaded from, as pairs of the name of the copy and the text.
    pub source_files: Vec<(&'static str, String)>,
    /// Warnings for the operator that are about no place in a file.
    pub warnings: Vec<String>,
    /// Warnings about outdated names in its files; the messages are for the operator.
    pub outdated: Vec<Diagnostic>,
}

impl Agent {
    /// Loads the agent in `home`. `import_path` lists the directories outside `home` that it may
    /// import from.
    ///
    /// # Errors
    /// Every problem in every file of the agent. Nothing was created or changed.
    pub fn load(
        home: &Path,
        models: &ModelSelection,
        import_path: &ImportPath,
    ) -> Result<Self, DiagnosticReport> {
        Self::load_from(home, models, import_path, false)
    }

    /// Loads the copy of the agent that a run keeps in `dir`, to inspect the requests made with it.
    /// Reads no file outside `dir`, so the provider it describes may not be able to answer.
    ///
    /// # Errors
    /// As for [`Agent::load`].
    pub fn load_copy(dir: &Path, model: &ModelChoice) -> Result<Self, DiagnosticReport> {
        let models = ModelSelection::from_option(Some(model.clone()));
        Self::load_from(dir, &models, &ImportPath::default(), true)
    }

    fn load_from(
        home: &Path,
        models: &ModelSelection,
        import_path: &ImportPath,
        is_copy: bool,
    ) -> Result<Self, DiagnosticReport> {
        let mut report = DiagnosticReport::default();
        let Some(home) = find_agent_home(home, &mut report) else { return Err(report) };
        let mut loader = AgentLoader {
            home: &home,
            import_path,
            report: &mut report,
            source_files: Vec::new(),
            warnings: Vec::new(),
            outdated: Vec::new(),
            has_hooks_file: hook::has_hooks_file(&home),
            is_copy,
            system_prompt: SYSTEM_PROMPT_FILE.to_owned(),
        };
        let main = loader.load_main_file(models);
        let context = loader.load_context();
        let mut hooks = loader.load_hooks();
        let AgentLoader { source_files, warnings, outdated, .. } = loader;
        if let (Some(main), Some(hooks)) = (&main, &mut hooks) {
            main.sandbox.apply_to_hooks(hooks, &mut report);
        }
        match (main, context) {
            (Some(main), Some(context)) if report.is_empty() => {
                let hooks = hooks.unwrap_or(main.hooks);
                let agent = Self { context, hooks, source_files, warnings, outdated, ..main };
                Ok(agent.with_offered_skills())
            }
            _ => Err(report),
        }
    }

    /// Every warning for the operator about an agent that works nevertheless.
    pub fn all_warnings(&self) -> Vec<String> {
        let outdated = self.outdated.iter().map(|outdated| outdated.message.clone());
        self.warnings.iter().cloned().chain(outdated).collect()
    }

    /// Whether a tool, a generator or a hook has a sandbox.
    pub fn declares_sandbox(&self) -> bool {
        self.sandbox.profile.is_some()
            || self.sandbox.llm.is_some()
            || self.tools.iter().any(|tool| tool.profile.is_some())
            || self.hooks.all().any(|(_, config)| config.profile.is_some())
    }

    /// The agent's own tool called `name`.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The names of the built-in tools that this agent offers.
    pub fn builtins(&self) -> Vec<&'static str> {
        let finish = (!matches!(self.finish, FinishTool::Disabled)).then_some(FINISH_TOOL);
        let builtins = finish.into_iter().chain(self.ask_human.then_some(ASK_HUMAN_TOOL));
        builtins.filter(|name| self.tool(name).is_none()).collect()
    }

    /// The `tools` of a request: the agent's own in file order, then the built-in ones. `sandbox` is what ENGINE_START
    /// records of their sandboxes; without `has_current_rules`, the built-in ones are described as in earlier versions.
    pub fn tool_definitions(
        &self,
        sandbox: Option<&SandboxRecord>,
        has_current_rules: bool,
    ) -> Vec<Json> {
        let builtins = self.builtins().into_iter().map(|name| match (name, has_current_rules) {
            (FINISH_TOOL, true) => self.finish.definition(),
            (FINISH_TOOL, false) => self.finish.earlier_definition(),
            (_, true) => ask_human::ask_human_definition(),
            (_, false) => ask_human::earlier_definition(),
        });
        let tools = self
            .tools
            .iter()
            .map(|tool| tool.definition(sandbox.and_then(|sandbox| sandbox.tool_line(&tool.name))));
        tools.chain(builtins).collect()
    }

    /// The configuration as ENGINE_START records it.
    pub fn run_config(&self) -> RunConfig {
        RunConfig {
            llm: Some(summarize_llm(&self.llm)),
            tools: Some(self.tools.iter().map(|tool| tool.name.clone()).collect()),
            builtins: Some(self.builtins().into_iter().map(str::to_owned).collect()),
            rules: Some(CURRENT_RULES),
            mcp: self.locked_servers(),
            hooks: Some(self.hooks.names().into_iter().map(str::to_owned).collect()),
            task_template: self.context.task_template().map(str::to_owned),
            ..RunConfig::default()
        }
    }
}

/// The LLM as ENGINE_START records it.
fn summarize_llm(llm: &LlmConfig) -> LlmSummary {
    let recorded = match &llm.provider {
        llm::ProviderKind::Recorded(cassette) => Some(cassette.header.provider.clone()),
        _ => None,
    };
    LlmSummary {
        provider: Some(llm.provider.name().to_owned()),
        model: Some(llm.model.clone()),
        recorded,
        pricing: llm.pricing.clone(),
        fallback: llm.fallback.iter().map(summarize_llm).collect(),
        ..LlmSummary::default()
    }
}

impl Agent {
    /// Sets the prices that the process with the configuration `recorded` took from elsewhere than agent.yaml, for each model
    /// that it asked, unless agent.yaml has prices now.
    pub fn use_recorded_prices(&mut self, recorded: &RunConfig) {
        let mut models = recorded.models();
        let _: Result<(), Infallible> = self.llm.try_for_each_model(|_, llm| {
            if let Some(asked_model) = models.next()
                && asked_model.model.as_ref() == Some(&llm.model)
                && asked_model.provider.as_deref() == Some(llm.provider.name())
                && !llm.pricing.as_ref().is_some_and(Pricing::is_from_agent)
                && let Some(pricing) = asked_model.operator_prices()
            {
                llm.set_prices(pricing.clone());
            }
            Ok(())
        });
    }

    /// The hashes of what is locked of the MCP servers, by their names.
    fn locked_servers(&self) -> Option<BTreeMap<String, String>> {
        let servers = self.mcp_servers.iter();
        let locked = servers
            .filter_map(|server| Some((server.name.clone(), server.locked.as_ref()?.sha256())));
        let locked: BTreeMap<_, _> = locked.collect();
        (!locked.is_empty()).then_some(locked)
    }
}

/// The names of variables under `key`. A text that cannot be a name is reported.
fn read_variable_names(doc: &YamlDocument, fields: MappingFields<'_>, key: &str) -> Vec<String> {
    for node in fields.non_null(key).map(YamlNode::items).unwrap_or_default() {
        let Some(name) = node.scalar().filter(|name| !is_identifier(name)) else {
            continue;
        };
        let message = format!("`{name}` is not the name of a variable");
        doc.report(node, message, "letters, digits and `_`, not beginning with a digit");
    }
    fields.texts(key)
}

fn find_agent_home(home: &Path, report: &mut DiagnosticReport) -> Option<PathBuf> {
    let (message, help) = match home.canonicalize() {
        Ok(path) if path.to_str().is_none() => (
            "could not open the agent directory: its path is not UTF-8".to_owned(),
            "name an agent directory with `--agent DIR`".to_owned(),
        ),
        Ok(path) if path.is_dir() => return Some(path),
        Ok(_) => {
            ("expected an agent directory, found a file".to_owned(), agent_directory_help(home))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (missing_agent(home), "name an agent directory with `--agent DIR`".to_owned())
        }
        Err(error) => (
            format!("could not open the agent directory: {error}"),
            "name an agent directory with `--agent DIR`".to_owned(),
        ),
    };
    let file = home.display().to_string();
    report.push(Diagnostic::for_file(file, message, help));
    None
}

/// The message for an agent that is missing.
pub fn missing_agent(path: &Path) -> String {
    format!("there is no agent `{}`", path.display())
}

/// The help for a file in place of the agent directory: the directory of the main file.
fn agent_directory_help(file: &Path) -> String {
    let dir = file.parent().map(|dir| if dir == Path::new("") { Path::new(".") } else { dir });
    match dir {
        Some(dir) if file.ends_with(MAIN_FILE) => {
            format!("write `--agent {}`", delta_base::shell_quote::shell_quote_path(dir))
        }
        _ => "name the directory that contains agent.yaml".to_owned(),
    }
}

struct AgentLoader<'a> {
    home: &'a Path,
    import_path: &'a ImportPath,
    report: &'a mut DiagnosticReport,
    source_files: Vec<(&'static str, String)>,
    warnings: Vec<String>,
    outdated: Vec<Diagnostic>,
    /// Determined once: if hooks.yaml disappeared between two checks, the agent would run without
    /// its hooks.
    has_hooks_file: bool,
    /// Whether `home` is the copy in a run directory, where every file has the name of its copy.
    is_copy: bool,
    /// The name of the system prompt, once agent.yaml is read.
    system_prompt: String,
}

impl AgentLoader<'_> {
    fn load_main_file(&mut self, models: &ModelSelection) -> Option<Agent> {
        let Some(name) = legacy_names::find_main_file(self.home, &mut self.warnings) else {
            let help = "an agent is a directory with agent.yaml, system_prompt.md and context.yaml; name one with `--agent DIR`";
            let misnamed = misnamed_file_help(self.home, MAIN_FILE);
            self.report.push(Diagnostic::for_file(
                self.home.display().to_string(),
                missing_agent(self.home),
                misnamed.unwrap_or_else(|| help.to_owned()),
            ));
            return None;
        };
        let path = self.home.join(name);
        let text = self.read_source(&path)?;
        let mut doc = self.parse_source(MAIN_FILE, &path, text)?;
        if !models.settings.is_empty() {
            let names_model = doc.root.get("llm").is_some_and(|llm| !llm.is_null());
            let model = models.for_agent(names_model).map(ModelChoice::model);
            let omitted = omitted_prices(&models.settings, &doc, &mut self.warnings);
            let text = LlmSetting::apply_all(&models.settings, &doc, model, omitted);
            // The copy in the run directory has what counts, for every later reader of the run.
            self.replace_main_copy(text.clone());
            doc = match YamlDocument::parse("agent.yaml with --llm", text) {
                Ok(doc) => doc,
                Err(diagnostic) => {
                    self.report.push(diagnostic);
                    return None;
                }
            };
        }
        let mut imports = ToolImporter::new(self.home, &path, self.import_path);
        let main = self.read_settings(&doc, name, models, &mut imports);
        doc.drain_diagnostics(self.report);
        self.warnings.append(&mut imports.finish(self.report));
        main
    }

    fn read_settings(
        &mut self,
        doc: &YamlDocument,
        file: &str,
        models: &ModelSelection,
        imports: &mut ToolImporter<'_>,
    ) -> Option<Agent> {
        doc.expect_mapping_or(&doc.root, file, || ROOT_HELP.to_owned())?;
        let fields = doc.fields_labelled(file, &doc.root, &AGENT_MAPPING)?;
        let name_node = fields.require("name", "my-agent");
        let name = name_node
            .and_then(|node| llm::config::read_nonblank_text(doc, node, "name", "my-agent"));
        fields.text("version");
        let description = fields.text("description").map(str::trim);
        let description = description.filter(|text| !text.is_empty()).map(str::to_owned);
        let choice = models.for_agent(fields.non_null("llm").is_some());
        let llm = self.read_llm(doc, fields, choice).map(|llm| {
            let is_set = models.settings.iter().any(|setting| setting.key() == "pricing");
            if is_set {
                return llm;
            }
            without_prices_of_another_model(llm, fields, choice, &mut self.warnings)
        });
        self.load_system_prompt(doc, fields);
        let mut tools = self.read_tools(doc, fields, imports);
        let mcp_servers = self.read_mcp_servers(doc, fields, imports, &mut tools);
        apply_tool_defaults(doc, fields, &mut tools);
        let is_strict = llm.as_ref().is_some_and(|llm| llm.strict_arguments);
        tools.iter_mut().for_each(|tool| tool.strict_arguments = is_strict);
        let sandbox = AgentSandbox::read(doc, fields, &mut tools);
        let mut hooks = self.read_hooks_section(doc, fields);
        sandbox.apply_to_hooks(&mut hooks, self.report);
        let skills = self.read_skills(doc, fields, &tools);
        let limits = match fields.non_null("limits") {
            None => Some((Limits::default(), RunBounds::default())),
            Some(node) => Limits::read(doc, node),
        };
        let (limits, bounds) = limits.unzip();
        let finish = match fields.get("finish") {
            None => Some(FinishSettings::default()),
            Some(node) => self.read_finish(doc, node, &tools),
        };
        Some(Agent {
            home: self.home.to_owned(),
            name: name?,
            description,
            llm: llm?,
            model_choice: choice.cloned(),
            llm_settings: models.settings.clone(),
            system_prompt: fields.text("system_prompt").unwrap_or(SYSTEM_PROMPT_FILE).to_owned(),
            context: ContextManifest::default(),
            tools,
            sandbox,
            skills: skills.skills,
            project_skill_roots: skills.project_roots,
            mcp_servers,
            env_file: read_variable_names(doc, fields, "env_file"),
            max_iterations: u32::try_from(fields.integer("max_iterations")?).ok()?,
            limits: limits?,
            bounds: bounds?,
            requires_finish: finish.as_ref()?.is_required,
            finish: finish?.tool,
            ask_human: fields.boolean("ask_human"),
            snapshots: fields
                .non_null("snapshots")
                .and_then(|node| SnapshotSettings::read(doc, node, self.is_copy)),
            hooks,
            source_files: Vec::new(),
            warnings: Vec::new(),
            outdated: Vec::new(),
        })
    }

    /// Reads the LLM, or takes the operator's choice in its place.
    fn read_llm(
        &self,
        doc: &YamlDocument,
        fields: MappingFields<'_>,
        choice: Option<&ModelChoice>,
    ) -> Option<LlmConfig> {
        match (fields.non_null("llm"), choice) {
            (Some(node), choice) => LlmConfig::read(doc, node, self.home, choice),
            (None, Some(choice)) => LlmConfig::from_choice(doc, self.home, choice),
            (None, None) => {
                // A misspelled key is reported as unknown.
                if fields.misspelled_key("llm").is_none() {
                    let help = "write `llm: {model: gpt-4o}`, or choose a model for all agents without `llm`: export DELTA_MODEL=gpt-4o";
                    doc.report(fields.node, "agent.yaml has no `llm`", help);
                }
                None
            }
        }
    }

    /// Reads the tools, imported ones included. If there are imports, the copy of agent.yaml gets
    /// the complete list in their place.
    fn read_tools(
        &mut self,
        doc: &YamlDocument,
        fields: MappingFields<'_>,
        imports: &mut ToolImporter<'_>,
    ) -> Vec<Tool> {
        if fields.non_null("imports").is_none() {
            imports.collect_servers(doc, fields);
            let Some(node) = fields.non_null("tools") else { return Vec::new() };
            let tools = tool::read_tool_list(doc, node);
            let edits = tool::value_schema::inline_schemas(node.items(), &tools);
            if !edits.is_empty() {
                self.replace_main_copy(tool::yaml_edit::apply_edits(&doc.text, edits));
            }
            return tools;
        }
        let imported = imports.collect_tools(doc, self.home, fields);
        self.replace_main_copy(tool_imports::flatten_imports(doc, &imported, imports.servers()));
        imported.iter().map(|import| import.tool.clone()).collect()
    }

    /// Replaces the copy of agent.yaml by one that needs no other files.
    fn replace_main_copy(&mut self, text: String) {
        if let Some((_, copy)) = self.source_files.iter_mut().find(|(name, _)| *name == MAIN_FILE) {
            *copy = text;
        }
    }

    /// Checks the system prompt. It reaches the LLM because context.yaml names it, but an agent
    /// without one is broken.
    fn load_system_prompt(&mut self, doc: &YamlDocument, fields: MappingFields<'_>) {
        if let Some(name) = fields.text("system_prompt").filter(|_| !self.is_copy) {
            name.clone_into(&mut self.system_prompt);
        }
        let path = crate::context::with_txt_fallback(self.home.join(&self.system_prompt));
        let mut help = "describe in it what the agent is and how it should work";
        let problem = match read_text(&path) {
            Ok(text) if text.trim().is_empty() => "the system prompt is empty".to_owned(),
            Ok(text) => {
                self.source_files.push((SYSTEM_PROMPT_FILE, text));
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "the system prompt is missing".to_owned()
            }
            Err(error) => {
                help = READABLE_TEXT_HELP;
                format!("could not read the system prompt: {error}")
            }
        };
        match fields.non_null("system_prompt") {
            Some(node) => doc.report(node, format!("{problem} ({})", path.display()), help),
            None => {
                self.report.push(Diagnostic::for_file(path.display().to_string(), problem, help))
            }
        }
    }

    fn load_context(&mut self) -> Option<ContextManifest> {
        let path = self.home.join(CONTEXT_FILE);
        if !path.exists() {
            // A directory without agent.yaml is probably not an agent, and one message is enough.
            legacy_names::find_main_file(self.home, &mut Vec::new())?;
            let outdated = self.outdated.iter().map(|outdated| &outdated.message);
            let mut warnings = self.warnings.iter().chain(outdated);
            let prefix = legacy_names::DEPRECATION_WARNING;
            let migrate = if warnings.any(|warning| warning.starts_with(prefix)) {
                "`delta tool migrate` updates the whole directory to the current form; or "
            } else {
                ""
            };
            let help = format!(
                "it lists what the LLM sees; {migrate}create it with this content:\n\n{}",
                default_manifest(&self.system_prompt).trim_end()
            );
            let help = misnamed_file_help(self.home, CONTEXT_FILE).unwrap_or(help);
            let message = format!("context.yaml not found in {}", self.home.display());
            self.report.push(Diagnostic::for_file(path.display().to_string(), message, help));
            return None;
        }
        let text = self.read_source(&path)?;
        let doc = self.parse_source(CONTEXT_FILE, &path, text)?;
        let manifest = ContextManifest::read(&doc, &self.system_prompt);
        doc.drain_diagnostics(self.report);
        manifest
    }

    fn load_hooks(&mut self) -> Option<AgentHooks> {
        if !self.has_hooks_file {
            if let Some(help) = misnamed_file_help(self.home, hook::HOOKS_FILE) {
                let home = self.home.display().to_string();
                let message = "the hooks are in a file that is not read";
                self.report.push(Diagnostic::for_file(home, message, help));
            }
            return None;
        }
        let path = self.home.join(hook::HOOKS_FILE);
        let text = self.read_source(&path)?;
        let doc = self.parse_source(hook::HOOKS_FILE, &path, text)?;
        let hooks = AgentHooks::read_file(&doc, &mut self.outdated);
        doc.drain_diagnostics(self.report);
        Some(hooks)
    }

    /// Reads the hooks in agent.yaml, where they were configured before hooks.yaml existed.
    fn read_hooks_section(&mut self, doc: &YamlDocument, fields: MappingFields<'_>) -> AgentHooks {
        let Some((key, node)) = fields.node.entry(hook::HOOKS_SECTION) else {
            return AgentHooks::default();
        };
        let section = hook::HOOKS_SECTION;
        let file = hook::HOOKS_FILE;
        if self.has_hooks_file {
            let message = format!(
                "Warning: `{section}` in {} is ignored because {file} exists; remove it",
                doc.name
            );
            let help = format!("move what you need of it to {file}, and remove it");
            self.outdated.push(doc.diagnostic_at(key, message, help));
            return AgentHooks::default();
        }
        let message = format!(
            "{} `{section}` in {}: move its contents to {file}",
            legacy_names::DEPRECATION_WARNING,
            doc.name
        );
        self.outdated.push(doc.diagnostic_at(key, message, None));
        AgentHooks::read(doc, node, &format!("`{section}`"), &mut self.outdated)
    }

    fn read_source(&mut self, path: &Path) -> Option<String> {
        match read_text(path) {
            Ok(text) => Some(text),
            Err(error) => {
                let message = format!("could not read the file: {error}");
                let path = path.display().to_string();
                self.report.push(Diagnostic::for_file(path, message, READABLE_TEXT_HELP));
                None
            }
        }
    }

    fn parse_source(
        &mut self,
        name: &'static str,
        path: &Path,
        text: String,
    ) -> Option<YamlDocument> {
        self.source_files.push((name, text.clone()));
        match YamlDocument::parse(path.display().to_string(), text) {
            Ok(doc) => Some(doc),
            Err(diagnostic) => {
                self.report.push(diagnostic);
                None
            }
        }
    }
}
