//! An agent directory, loaded and checked as a whole before anything is made.

use crate::context::{DEFAULT_MANIFEST, Manifest, SYSTEM_PROMPT};
use crate::diag::{Diagnostic, Report};
use crate::durable::read_regular_text as read_text;
use crate::hook::{self, Hooks};
use crate::limits::{LIMITS, Limits};
use crate::llm::config::ModelChoice;
use crate::llm::{self, LlmConfig};
use crate::snapshot::{Exclude, SNAPSHOTS};
use crate::state::{ASK_HUMAN, FINISH};
use crate::tool::{self, Tool};
use crate::yaml::shape::{Default, Key, Shape};
use crate::yaml::{Document, Fields, Mapping};
use imports::{ImportPath, Imports};
use serde_json::{Value as Json, json};
use std::io;
use std::path::{Path, PathBuf};

mod dotenv;
mod finish;
pub mod imports;
pub mod layers;
mod legacy;

pub use finish::Finish;

/// What the main file is called, and what it is kept as in a run directory.
const MAIN_FILE: &str = "agent.yaml";

/// agent.yaml.
pub static AGENT: Mapping = Mapping {
    what: "agent.yaml",
    about: "An agent: what it is, which LLM it asks, and what it may do.",
    keys: &[
        Key::required("name", Shape::Text, "Its name."),
        Key::optional("version", Shape::Text, "Its version; for people."),
        Key::optional("description", Shape::Text, "What it is for; for people."),
        Key::required("llm", Shape::Mapping(&llm::config::LLM), "The LLM."),
        Key::with_default(
            "system_prompt",
            Shape::Text,
            Default::Text(SYSTEM_PROMPT),
            "The file that says what the agent is, relative to the agent directory.",
        ),
        Key::optional(
            "imports",
            Shape::List(&Shape::Text),
            "Files with `tools:` of their own, relative to this one.",
        ),
        Key::optional("tools", Shape::List(&Shape::Mapping(&tool::TOOL)), "What it may do."),
        Key::with_default(
            "max_iterations",
            Shape::Integer(1..1 << 31),
            Default::Integer(30),
            "How many LLM answers a process may ask for.",
        ),
        Key::optional("limits", Shape::Mapping(&LIMITS), "What a run of it may take."),
        Key::with_default(
            "finish",
            Shape::Either(&[Shape::Boolean, Shape::Mapping(&finish::SCHEMA)]),
            Default::Boolean(true),
            "Whether the LLM is offered the tool `finish`, and what it takes.",
        ),
        Key::with_default(
            "snapshots",
            Shape::Either(&[Shape::Boolean, Shape::Mapping(&SNAPSHOTS)]),
            Default::Boolean(false),
            "Whether a run keeps what its workspace was at each iteration, and what of it.",
        ),
        Key::optional(hook::SECTION, Shape::Mapping(&hook::HOOKS), "Deprecated: write hooks.yaml."),
        Key::elsewhere("hooks", "hooks belong in hooks.yaml, beside this file"),
        Key::elsewhere("sources", "sources belong in context.yaml, beside this file"),
        Key::elsewhere("model", "it belongs under `llm:`"),
        Key::elsewhere("provider", "it belongs under `llm:`"),
        Key::elsewhere("base_url", "it belongs under `llm:`"),
        Key::elsewhere("temperature", "it belongs under `llm:`"),
    ],
    one_of: &[],
    open: false,
};

/// A loaded agent.
#[derive(Debug)]
pub struct Agent {
    /// Its directory, absolute.
    pub home: PathBuf,
    /// Its name.
    pub name: String,
    /// How the LLM is reached.
    pub llm: LlmConfig,
    /// The file of its system prompt, as agent.yaml names it.
    pub system_prompt: String,
    /// Its own tools, in the file's order; imported ones before those that the main file adds.
    pub tools: Vec<Tool>,
    /// LLM answers that a process may ask for, unless the operator says otherwise.
    pub max_iterations: u32,
    /// What a run may take, unless the operator says otherwise.
    pub limits: Limits,
    /// What the tool `finish` takes.
    pub finish: Finish,
    /// What a run keeps of its workspace at each iteration; `None` when nothing.
    pub snapshots: Option<Exclude>,
    /// What the LLM sees.
    pub context: Manifest,
    /// What runs at which moment.
    pub hooks: Hooks,
    /// The files that it was loaded from: their names, and their texts.
    pub sources: Vec<(&'static str, String)>,
    /// What a person should know of it, though it works.
    pub warnings: Vec<String>,
}

impl Agent {
    /// Loads the agent in `home`. The operator says what else may be imported from, and with `--model` which LLM is
    /// asked.
    ///
    /// # Errors
    /// Everything that is wrong in any of its files. Nothing was made or changed.
    pub fn load(
        home: &Path,
        choice: Option<&ModelChoice>,
        allowed: &ImportPath,
    ) -> Result<Self, Report> {
        Self::load_from(home, choice, allowed, false)
    }

    /// Loads what a run has kept of its agent in `dir`, for a look at the requests that were made with it: nothing is
    /// read from anywhere else, so whoever it would ask is not ready to answer.
    ///
    /// # Errors
    /// As for [`Agent::load`].
    pub fn load_kept(dir: &Path, model: &ModelChoice) -> Result<Self, Report> {
        Self::load_from(dir, Some(model), &ImportPath::default(), true)
    }

    fn load_from(
        home: &Path,
        choice: Option<&ModelChoice>,
        allowed: &ImportPath,
        kept: bool,
    ) -> Result<Self, Report> {
        let mut report = Report::default();
        let Some(home) = find_home(home, &mut report) else { return Err(report) };
        let mut loader = Loader {
            home: &home,
            allowed,
            report: &mut report,
            sources: Vec::new(),
            warnings: Vec::new(),
            has_hooks_file: hook::has_file(&home),
            kept,
        };
        let main = loader.main_file(choice);
        let context = loader.context();
        let hooks = loader.hooks();
        let (sources, warnings) = (loader.sources, loader.warnings);
        match (main, context) {
            (Some(main), Some(context)) if report.is_empty() => Ok(Self {
                name: main.name,
                llm: main.llm,
                system_prompt: main.system_prompt,
                tools: main.tools,
                max_iterations: main.max_iterations,
                limits: main.limits,
                finish: main.finish,
                snapshots: main.snapshots,
                home,
                context,
                hooks: hooks.unwrap_or(main.hooks),
                sources,
                warnings,
            }),
            _ => Err(report),
        }
    }

    /// The agent's own tool of that name.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The names of the tools that the engine offers itself.
    pub fn builtins(&self) -> Vec<&'static str> {
        let finish = (!matches!(self.finish, Finish::Off)).then_some(FINISH);
        let builtins = finish.into_iter().chain([ASK_HUMAN]);
        builtins.filter(|name| self.tool(name).is_none()).collect()
    }

    /// The `tools` of a request: the agent's own in the file's order, then the engine's.
    pub fn definitions(&self) -> Vec<Json> {
        let builtins = self.builtins().into_iter().map(|name| match name {
            FINISH => self.finish.definition(),
            _ => crate::human::definition(),
        });
        self.tools.iter().map(Tool::definition).chain(builtins).collect()
    }

    /// What ENGINE_START says of the configuration.
    pub fn summary(&self) -> Json {
        let tools: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        let mut llm = json!({"provider": self.llm.provider.name(), "model": self.llm.model});
        if let llm::ProviderKind::Recorded(cassette) = &self.llm.provider {
            llm["recorded"] = json!(cassette.head.provider);
        }
        json!({"llm": llm, "tools": tools, "builtins": self.builtins(), "hooks": self.hooks.names()})
    }
}

fn find_home(home: &Path, report: &mut Report) -> Option<PathBuf> {
    let shown = home.display().to_string();
    let found = home.canonicalize().map_err(|error| error.to_string()).and_then(|path| {
        let utf8 = path.to_str().is_some();
        if utf8 { Ok(path) } else { Err("its path is not UTF-8".to_owned()) }
    });
    match found {
        Ok(path) if path.is_dir() => Some(path),
        Ok(_) => {
            let help = "name the directory that holds agent.yaml".to_owned();
            report.push(Diagnostic::of_file(shown, "this is not a directory", Some(help)));
            None
        }
        Err(error) => {
            let help = "name an agent directory with `--agent DIR`".to_owned();
            report.push(Diagnostic::of_file(
                shown,
                format!("no agent directory: {error}"),
                Some(help),
            ));
            None
        }
    }
}

/// What agent.yaml says.
struct Main {
    name: String,
    llm: LlmConfig,
    system_prompt: String,
    tools: Vec<Tool>,
    max_iterations: u32,
    limits: Limits,
    finish: Finish,
    snapshots: Option<Exclude>,
    /// Those under `lifecycle_hooks`.
    hooks: Hooks,
}

struct Loader<'a> {
    home: &'a Path,
    allowed: &'a ImportPath,
    report: &'a mut Report,
    sources: Vec<(&'static str, String)>,
    warnings: Vec<String>,
    /// Looked at once: were it there at one look and gone at the next, an agent would run without its hooks.
    has_hooks_file: bool,
    /// Whether it is the copy in a run directory, where each file has the name that it is kept as.
    kept: bool,
}

impl Loader<'_> {
    fn main_file(&mut self, choice: Option<&ModelChoice>) -> Option<Main> {
        let Some(name) = legacy::main_file(self.home, &mut self.warnings) else {
            let help = "an agent is a directory with agent.yaml, system_prompt.md and context.yaml; name one with `--agent DIR`";
            self.report.push(Diagnostic::of_file(
                self.home.display().to_string(),
                "agent.yaml not found",
                Some(help.to_owned()),
            ));
            return None;
        };
        let path = self.home.join(name);
        let text = self.read(&path)?;
        let doc = self.parse(MAIN_FILE, &path, text)?;
        let mut imports = Imports::new(self.home, &path, self.allowed);
        let main = self.read_main(&doc, name, choice, &mut imports);
        doc.finish(self.report);
        self.warnings.append(&mut imports.finish(self.report));
        main
    }

    fn read_main(
        &mut self,
        doc: &Document,
        file: &str,
        choice: Option<&ModelChoice>,
        imports: &mut Imports<'_>,
    ) -> Option<Main> {
        let fields = doc.fields_of(file, &doc.root, &AGENT)?;
        let name_node = fields.require("name", "my-agent");
        let name = name_node.and_then(|node| llm::config::filled(doc, node, "name", "my-agent"));
        for key in ["version", "description"] {
            fields.text(key);
        }
        let llm_node = fields.require("llm", "{model: gpt-4o}");
        let llm = llm_node.and_then(|node| LlmConfig::read(doc, node, self.home, choice));
        self.system_prompt(doc, fields);
        let tools = self.tools(doc, fields, imports);
        let hooks = self.section_of_hooks(doc, fields);
        let limits = match fields.given("limits") {
            None => Some(Limits::default()),
            Some(node) => Limits::read(doc, node, llm.as_ref()),
        };
        let finish = match fields.get("finish") {
            None => Some(Finish::Result),
            Some(node) => self.finish(doc, node),
        };
        Some(Main {
            name: name?,
            llm: llm?,
            system_prompt: fields.text("system_prompt").unwrap_or(SYSTEM_PROMPT).to_owned(),
            tools,
            max_iterations: u32::try_from(fields.integer("max_iterations")?).ok()?,
            limits: limits?,
            finish: finish?,
            snapshots: fields.given("snapshots").and_then(|node| Exclude::read(doc, node)),
            hooks,
        })
    }

    /// The tools, imported ones included; with imports, what is kept of the file has the whole list in their place.
    fn tools(
        &mut self,
        doc: &Document,
        fields: Fields<'_>,
        imports: &mut Imports<'_>,
    ) -> Vec<Tool> {
        if fields.given("imports").is_none() {
            return fields
                .given("tools")
                .map(|node| tool::read_list(doc, node))
                .unwrap_or_default();
        }
        let found = imports.tools_of(doc, self.home, fields);
        if let Some((_, kept)) = self.sources.iter_mut().find(|(name, _)| *name == MAIN_FILE) {
            *kept = imports::resolved(doc, &found);
        }
        found.iter().map(|found| found.tool.clone()).collect()
    }

    /// Checks the system prompt: it reaches the LLM because context.yaml names it, but an agent without one is broken.
    fn system_prompt(&mut self, doc: &Document, fields: Fields<'_>) {
        let given = fields.given("system_prompt");
        let own = fields.text("system_prompt").filter(|_| !self.kept);
        let name = own.unwrap_or(SYSTEM_PROMPT);
        let path = crate::context::or_text_form(self.home.join(name));
        let problem = match read_text(&path) {
            Ok(text) if text.trim().is_empty() => "the system prompt is empty".to_owned(),
            Ok(text) => {
                self.sources.push((SYSTEM_PROMPT, text));
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "the system prompt is missing".to_owned()
            }
            Err(error) => format!("the system prompt cannot be read: {error}"),
        };
        let help = "write into it what the agent is and how it is to work".to_owned();
        match given {
            Some(node) => doc.fault(node, format!("{problem} ({})", path.display()), Some(help)),
            None => self.report.push(Diagnostic::of_file(
                path.display().to_string(),
                problem,
                Some(help),
            )),
        }
    }

    fn context(&mut self) -> Option<Manifest> {
        let path = self.home.join("context.yaml");
        if !path.exists() {
            // A directory without agent.yaml is probably no agent at all, and one message says so.
            legacy::main_file(self.home, &mut Vec::new())?;
            let older = self.warnings.iter().any(|warning| warning.starts_with(legacy::DEPRECATED));
            let migrate = match older {
                true => {
                    "`delta tool migrate` brings the whole directory into the present form; or "
                }
                false => "",
            };
            let help = format!(
                "it says what the LLM sees; {migrate}create it with this content:\n\n{}",
                DEFAULT_MANIFEST.trim_end()
            );
            let message = format!("context.yaml not found in {}", self.home.display());
            self.report.push(Diagnostic::of_file(path.display().to_string(), message, Some(help)));
            return None;
        }
        let text = self.read(&path)?;
        let doc = self.parse("context.yaml", &path, text)?;
        let manifest = Manifest::read(&doc);
        doc.finish(self.report);
        manifest
    }

    /// The hooks of hooks.yaml; none when there is no such file.
    fn hooks(&mut self) -> Option<Hooks> {
        if !self.has_hooks_file {
            return None;
        }
        let path = self.home.join(hook::FILE_NAME);
        let text = self.read(&path)?;
        let doc = self.parse(hook::FILE_NAME, &path, text)?;
        let hooks = Hooks::read_file(&doc, &mut self.warnings);
        doc.finish(self.report);
        Some(hooks)
    }

    /// The hooks that stand in agent.yaml, where they were before there was a hooks.yaml.
    fn section_of_hooks(&mut self, doc: &Document, fields: Fields<'_>) -> Hooks {
        let Some(node) = fields.get(hook::SECTION) else { return Hooks::default() };
        let (section, file) = (hook::SECTION, hook::FILE_NAME);
        if self.has_hooks_file {
            self.warnings.push(format!(
                "Warning: `{section}` in {} does not count, because there is a {file}; take it out",
                doc.name
            ));
            return Hooks::default();
        }
        self.warnings.push(format!(
            "{} `{section}` in {}: move what stands under it to {file}",
            legacy::DEPRECATED,
            doc.name
        ));
        Hooks::read(doc, node, &format!("`{section}`"), &mut self.warnings)
    }

    fn read(&mut self, path: &Path) -> Option<String> {
        match read_text(path) {
            Ok(text) => Some(text),
            Err(error) => {
                let message = format!("the file cannot be read: {error}");
                self.report.push(Diagnostic::of_file(path.display().to_string(), message, None));
                None
            }
        }
    }

    fn parse(&mut self, name: &'static str, path: &Path, text: String) -> Option<Document> {
        self.sources.push((name, text.clone()));
        match Document::parse(path.display().to_string(), text) {
            Ok(doc) => Some(doc),
            Err(diagnostic) => {
                self.report.push(diagnostic);
                None
            }
        }
    }
}
