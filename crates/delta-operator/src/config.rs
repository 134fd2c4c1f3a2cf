//! The operator's configuration: settings for every agent, in a file and in the environment, and `delta config`.
//!
//! Only the process's own environment and a file in the operator's home count here, never a `.env` file: a workspace must
//! not choose the model or the agent.

use crate::failure::CommandFailure;
use crate::sandbox_options::SANDBOX_VARIABLE;
use crate::{environment, prices, state};
use anstream::ColorChoice;
use clap::{Args, ValueEnum};
use delta_agent::agent::tool_imports::IMPORT_PATH_VARIABLE;
use delta_agent::allowed_calls::ListedCalls;
use delta_agent::config_grants::{
    ALLOW_MAPPING, Grant, NET_MAPPING, read_call_grant, read_host_grant,
};
use delta_agent::trust_store::{TRUST_VARIABLE, TRUSTED_HOSTS_VARIABLE};
use delta_base::api_key_names::{KEY_COMMAND_VARIABLE, KEY_FILE_VARIABLE};
use delta_base::durable;
use delta_base::url_secrets::mask_url;
use delta_http::host_of;
use delta_llm::llm::ModelChoice;
use delta_llm::llm::ModelSelection;
use delta_llm::llm::endpoint::{EnvOrigin, EnvSetting};
use delta_program::default_format::DEFAULT_FORMATS;
use delta_program::stdio;
use delta_program::user_directory::find_user_directory;
use delta_run::event::approval::EVERY_TOOL;
use delta_run::journal::signature::PublicKey;
use delta_run::workspace::RUNS_DIR_VARIABLE;
use delta_sandbox::HostRule;
use delta_words::WireForm;
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::mapping_schema::{KeySchema, MappingFields, MappingSchema, ValueShape};
use delta_yaml::yaml::{YamlDocument, YamlNode, YamlValue};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The variable with the model of agents without `llm`.
const MODEL_VARIABLE: &str = "DELTA_MODEL";
/// The variable with the format of commands without `--format`.
const FORMAT_VARIABLE: &str = "DELTA_FORMAT";
/// The values of `color`.
const COLOR_NAMES: [&str; 3] = ["auto", "always", "never"];

/// The operator's configuration file.
pub static CONFIG_MAPPING: MappingSchema = MappingSchema::new(
    "config.yaml",
    "The operator's settings, for every agent.",
    &[
        KeySchema::optional(
            "model",
            ValueShape::Text,
            "The model of agents without `llm`, as in `--model`: NAME or PROVIDER:NAME. DELTA_MODEL overrides it.",
        ),
        KeySchema::optional(
            "default_agent",
            ValueShape::Text,
            "The agent of `delta run` where no `--agent` names one and the current directory has no agent.yaml: the absolute path of its directory, or a name in $XDG_DATA_HOME/delta/agents.",
        ),
        KeySchema::optional(
            "approve",
            ValueShape::OneOf(&[
                ValueShape::Choice(&["ask"]),
                ValueShape::List(&ValueShape::Text),
                ValueShape::MapOf(&ValueShape::Choice(&["ask"])),
            ]),
            "Asks before every call: `ask`, of all tools of all agents, or the names of tools, as a list or each with `ask`. The rules of an agent apply too.",
        ),
        KeySchema::optional(
            "allow",
            ValueShape::List(&ValueShape::Mapping(&ALLOW_MAPPING)),
            "Calls that start without a question where they have a sandbox, for an agent in a directory.",
        ),
        KeySchema::optional(
            "color",
            ValueShape::Choice(&COLOR_NAMES),
            "Whether delta prints colors: `auto`, at a terminal only; NO_COLOR and CLICOLOR_FORCE override it.",
        )
        .with_help(color_help),
        KeySchema::optional(
            "format",
            ValueShape::Choice(&DEFAULT_FORMATS),
            "The output format of every command that has it, as in `--format`: `text`, `json`, `raw` or `jsonl`. DELTA_FORMAT overrides it.",
        ),
        KeySchema::optional(
            "api_key_command",
            ValueShape::OneOf(&[ValueShape::Text, ValueShape::Mapping(&KEY_COMMANDS_MAPPING)]),
            "A command for `sh` whose output is the API key, for `openai` and `responses`, or a map from providers to commands; used where no variable holds a key.",
        ),
        KeySchema::optional(
            "runs_dir",
            ValueShape::Text,
            "The directory for the runs of all workspaces, as in `--runs-dir`; its path is absolute, or relative to the directory of this file. DELTA_RUNS_DIR overrides it.",
        ),
        KeySchema::optional(
            "sandbox",
            ValueShape::Text,
            "What no tool of any agent exceeds, as in `--sandbox`: `workspace`, `reader`, or a file; its path is absolute, or relative to the directory of this file. DELTA_SANDBOX overrides it.",
        ),
        KeySchema::optional(
            "project_skills",
            ValueShape::List(&ValueShape::Text),
            "Absolute paths of directories. In workspaces below them, agents whose `skills` name directories of the workspace may use the skills there, as with `--project-skills`.",
        ),
        KeySchema::optional(
            "pricing",
            ValueShape::Text,
            "A file with the prices of models, in the form of LiteLLM's model_prices_and_context_window.json; its path is absolute, or relative to the directory of this file. DELTA_PRICES overrides it.",
        ),
        KeySchema::optional(
            "prices_url",
            ValueShape::Text,
            "The address of a list of prices, for `delta models prices --fetch` without one. delta asks it for nothing else.",
        ),
        KeySchema::misplaced(
            "api_key",
            "set DELTA_API_KEY, or write a command that prints the key: `api_key_command: pass show llm`",
        ),
        KeySchema::optional(
            "endpoint",
            ValueShape::Mapping(&ENDPOINTS_MAPPING),
            "The addresses of endpoints, by provider; used where neither agent.yaml nor a variable has one.",
        ),
        KeySchema::optional(
            "net",
            ValueShape::List(&ValueShape::Mapping(&NET_MAPPING)),
            "Hosts that tools in a sandbox reach too, as with `--net`, for an agent in a directory.",
        ),
        KeySchema::misplaced("base_url", "write `endpoint: {openai: URL}`"),
        KeySchema::misplaced("provider", MODEL_HELP),
        KeySchema::misplaced("llm", MODEL_HELP),
    ],
);

static KEY_COMMANDS_MAPPING: MappingSchema = MappingSchema::new(
    "`api_key_command`",
    "A command for each provider.",
    &[
        KeySchema::optional("openai", ValueShape::Text, "For `openai` and `responses`."),
        KeySchema::optional("anthropic", ValueShape::Text, "For `anthropic`."),
        KeySchema::optional("gemini", ValueShape::Text, "For `gemini`."),
        KeySchema::optional("responses", ValueShape::Text, "For `responses` alone."),
    ],
);

static ENDPOINTS_MAPPING: MappingSchema = MappingSchema::new(
    "`endpoint`",
    "An address for each provider.",
    &[
        KeySchema::optional("openai", ValueShape::Text, "For `openai` and `responses`."),
        KeySchema::optional("anthropic", ValueShape::Text, "For `anthropic`."),
        KeySchema::optional("gemini", ValueShape::Text, "For `gemini`."),
    ],
);

const MODEL_HELP: &str = "write `model: NAME` or `model: PROVIDER:NAME`";

/// A boolean in place of when colors are printed.
fn color_help(node: &YamlNode) -> Option<String> {
    match node.scalar()? {
        "true" | "yes" | "on" => Some("write `always`".to_owned()),
        "false" | "no" | "off" | "none" => Some("write `never`".to_owned()),
        _ => None,
    }
}

/// Refuses a file of the name that authors write in place of config.yaml: what the operator demands would not count.
fn check_misname(path: &Path) -> Result<(), CommandFailure> {
    let misname = path.with_extension("yml");
    if misname.symlink_metadata().is_err() {
        return Ok(());
    }
    let message = format!("delta does not read {}", misname.display());
    Err(CommandFailure::config(message, format!("rename it to {}", path.display())))
}

/// A value and where it comes from.
#[derive(Debug, Clone)]
pub struct OperatorSetting<T> {
    /// The value that config.yaml has.
    pub value: T,
    /// The name of a variable, or file and line.
    pub origin: String,
}

/// The settings in the operator's configuration file.
#[derive(Debug, Default)]
pub struct OperatorConfig {
    /// The file, which need not exist; `None` without a home directory.
    path: Option<PathBuf>,
    model: Option<OperatorSetting<ModelChoice>>,
    /// The agent of a `delta run` without `--agent`.
    pub default_agent: Option<OperatorSetting<String>>,
    /// The tools that ask before every call, [`EVERY_TOOL`] for all.
    approve: Option<OperatorSetting<Vec<String>>>,
    color: Option<OperatorSetting<String>>,
    format: Option<OperatorSetting<String>>,
    /// The commands by the name of the provider.
    api_key_commands: Option<OperatorSetting<BTreeMap<String, String>>>,
    pricing: Option<OperatorSetting<String>>,
    prices_url: Option<OperatorSetting<String>>,
    sandbox: Option<OperatorSetting<String>>,
    runs_dir: Option<OperatorSetting<String>>,
    /// The directories whose skills are offered.
    project_skills: Option<OperatorSetting<Vec<String>>>,
    /// The addresses by the name of the provider.
    endpoints: Option<OperatorSetting<BTreeMap<String, String>>>,
    net: Option<OperatorSetting<Vec<Grant<Vec<HostRule>>>>>,
    allow: Option<OperatorSetting<Vec<Grant<ListedCalls>>>>,
}

impl OperatorConfig {
    /// The path of the file, for messages.
    pub fn path_text(&self) -> String {
        self.path.as_deref().map_or_else(String::new, |path| path.display().to_string())
    }

    /// The directory of relative paths in the file.
    fn dir(&self) -> &Path {
        self.path.as_deref().and_then(Path::parent).unwrap_or(Path::new("/"))
    }

    /// The directory for the runs of all workspaces.
    fn runs_dir_path(&self) -> Option<PathBuf> {
        Some(self.dir().join(&self.runs_dir.as_ref()?.value))
    }

    /// The command that prints the key of a provider.
    pub fn api_key_command(&self, form: WireForm) -> Option<&str> {
        let commands = &self.api_key_commands.as_ref()?.value;
        // The provider `responses` has the keys of `openai`.
        let of_same_vendor = (form == WireForm::Responses).then_some(WireForm::OpenAi);
        let mut forms = [Some(form), of_same_vendor].into_iter().flatten();
        forms.find_map(|form| commands.get(form.name())).map(String::as_str)
    }

    /// Whether there is an address for the provider.
    fn has_endpoint(&self, form: WireForm) -> bool {
        let endpoints = self.endpoints.as_ref();
        endpoints.is_some_and(|setting| setting.value.contains_key(form.name()))
    }

    /// Whether there is a command for some provider.
    pub fn has_key_command(&self) -> bool {
        self.api_key_commands.is_some()
    }

    fn load() -> Result<Self, CommandFailure> {
        let Some(path) = config_file() else { return Ok(Self::default()) };
        let name = path.display().to_string();
        let text = match durable::read_regular_text(&path) {
            Ok(text) => text,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || error.kind() == io::ErrorKind::PermissionDenied
                        && is_of_other_user(&path) =>
            {
                check_misname(&path)?;
                return Ok(Self { path: Some(path), ..Self::default() });
            }
            Err(error) => {
                return Err(CommandFailure::config(
                    format!("could not read {name}: {error}"),
                    None,
                ));
            }
        };
        Ok(Self::parse(path, text)?)
    }

    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// All mistakes of the file, with their positions.
    pub fn parse(path: PathBuf, text: String) -> Result<Self, DiagnosticReport> {
        let mut report = DiagnosticReport::default();
        let config = Self::parse_valid_keys(path, text, &mut report);
        if report.is_empty() { Ok(config) } else { Err(report) }
    }

    /// Reads the keys without a mistake, and reports the mistakes of the others.
    fn parse_valid_keys(path: PathBuf, text: String, report: &mut DiagnosticReport) -> Self {
        let name = path.display().to_string();
        let mut config = Self { path: Some(path), ..Self::default() };
        let doc = match YamlDocument::parse(name, text) {
            Ok(doc) => doc,
            Err(diagnostic) => {
                report.push(diagnostic);
                return config;
            }
        };
        if !doc.root.is_null()
            && let Some(fields) = doc.fields(&doc.root, &CONFIG_MAPPING)
        {
            config.read_fields(&doc, fields);
        }
        doc.drain_diagnostics(report);
        config
    }

    fn read_fields(&mut self, doc: &YamlDocument, fields: MappingFields<'_>) {
        let path = self.path_text();
        let text = |key: &str| {
            read_setting(&path, fields, key, |node| {
                let value = fields.text(key)?.to_owned();
                if value.trim().is_empty() {
                    doc.report(node, format!("`{key}` is empty"), None);
                    return None;
                }
                Some(value)
            })
        };
        self.default_agent = text("default_agent");
        self.color = text("color");
        self.format = text("format");
        self.runs_dir = text("runs_dir");
        self.approve = read_setting(&path, fields, "approve", |node| read_asking_tools(doc, node));
        self.api_key_commands =
            read_setting(&path, fields, "api_key_command", |node| read_key_commands(doc, node));
        self.pricing = text("pricing");
        self.endpoints = read_setting(&path, fields, "endpoint", |node| read_endpoints(doc, node));
        self.net = read_setting(&path, fields, "net", |_| {
            let items = fields.list("net").iter();
            Some(items.filter_map(|item| read_host_grant(doc, item)).collect())
        });
        self.allow = read_setting(&path, fields, "allow", |_| {
            let items = fields.list("allow").iter().zip(1..);
            Some(items.filter_map(|(item, number)| read_call_grant(doc, item, number)).collect())
        });
        self.prices_url = text("prices_url");
        self.sandbox = text("sandbox");
        self.project_skills = read_setting(&path, fields, "project_skills", |node| {
            let value = fields.texts("project_skills");
            for (item, dir) in node.items().iter().zip(&value) {
                if !Path::new(dir).is_absolute() {
                    let message = format!("expected an absolute path, found `{dir}`");
                    let help = "write, for example, `project_skills: [/home/me/src]`";
                    doc.report(item, message, help);
                }
            }
            Some(value)
        });
        let model = text("model");
        self.model = read_setting(&path, fields, "model", |node| {
            let choice = ModelChoice::parse(&model?.value);
            choice.map_err(|message| doc.report(node, message, None)).ok()
        });
    }
}

/// The value of a key, unless it is missing, and its line.
fn read_setting<T>(
    path: &str,
    fields: MappingFields<'_>,
    key: &str,
    read: impl FnOnce(&YamlNode) -> Option<T>,
) -> Option<OperatorSetting<T>> {
    let node = fields.non_null(key)?;
    Some(OperatorSetting { value: read(node)?, origin: format!("{path}:{}", node.line) })
}

/// The tools that ask before every call, [`EVERY_TOOL`] for all.
fn read_asking_tools(doc: &YamlDocument, node: &YamlNode) -> Option<Vec<String>> {
    const HELP: &str = "write `approve: ask` for all tools, or `approve: {run: ask}`";
    let report = |node: &YamlNode, message: &str| doc.report(node, message, HELP);
    let names = match node.scalar() {
        Some("ask") => return Some(vec![EVERY_TOOL.to_owned()]),
        Some(other) => {
            report(node, &format!("expected `ask` or the names of tools, found `{other}`"));
            return None;
        }
        None if matches!(node.value, YamlValue::Sequence(_)) => {
            doc.expect_texts(node, "`approve`")?
        }
        // A value other than `ask` is reported with the shape.
        None => {
            node.entries().iter().filter_map(|(name, _)| name.scalar().map(str::to_owned)).collect()
        }
    };
    if names.iter().any(|tool| tool == "ask") {
        report(node, "`ask` is not the name of a tool");
    }
    Some(names)
}

/// The commands for keys by provider; a text is the one of `openai`.
fn read_key_commands(doc: &YamlDocument, node: &YamlNode) -> Option<BTreeMap<String, String>> {
    const HELP: &str = "write `api_key_command: pass show llm`, or `{anthropic: pass show anthropic, openai: ...}`";
    if let Some(command) = node.scalar() {
        if command.trim().is_empty() {
            doc.report(node, "`api_key_command` is empty", HELP);
            return None;
        }
        return Some(BTreeMap::from([(WireForm::OpenAi.name().to_owned(), command.to_owned())]));
    }
    read_by_provider(doc, node, &KEY_COMMANDS_MAPPING, HELP, |name, command| {
        command.trim().is_empty().then(|| format!("the command for `{name}` is empty"))
    })
}

/// The addresses of endpoints by provider.
fn read_endpoints(doc: &YamlDocument, node: &YamlNode) -> Option<BTreeMap<String, String>> {
    let help = "write, for example, `endpoint: {openai: \"http://localhost:8080/v1\"}`";
    read_by_provider(doc, node, &ENDPOINTS_MAPPING, help, |_, url| {
        let has_scheme = url.starts_with("http://") || url.starts_with("https://");
        let is_url = has_scheme && host_of(url).is_some();
        (!is_url).then(|| format!("expected the URL of an endpoint, found `{}`", mask_url(url)))
    })
}

/// The texts of a mapping in which `find_problem` finds none.
fn read_by_provider(
    doc: &YamlDocument,
    node: &YamlNode,
    mapping: &'static MappingSchema,
    help: &str,
    find_problem: fn(&str, &str) -> Option<String>,
) -> Option<BTreeMap<String, String>> {
    doc.expect_mapping_or(node, mapping.label, || help.to_owned())?;
    let fields = doc.fields(node, mapping)?;
    let mut texts = BTreeMap::new();
    for name in mapping.key_names() {
        let Some(value) = fields.non_null(name) else { continue };
        let text = value.scalar().unwrap_or_default();
        match find_problem(name, text) {
            Some(problem) => doc.report(value, problem, help),
            None => drop(texts.insert(name.to_owned(), text.to_owned())),
        }
    }
    Some(texts)
}

/// Whether the file is in the directory of another user, as with `sudo` and the HOME of the caller.
fn is_of_other_user(path: &Path) -> bool {
    let owner = path.ancestors().skip(1).find(|dir| dir.exists()).map(durable::owner_if_other);
    owner.flatten().is_some()
}

/// The path of the configuration file, which need not exist.
fn config_file() -> Option<PathBuf> {
    user_directory("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("delta/config.yaml"))
}

/// The path of the configuration file for messages, also where the file has mistakes; empty without a home directory.
pub fn file_path_text() -> String {
    config_file().map_or_else(String::new, |path| path.display().to_string())
}

/// The directory of the agents that `--agent NAME` finds in every directory; it need not exist.
pub fn agents_directory() -> Option<PathBuf> {
    data_directory().map(|dir| dir.join("agents"))
}

/// The directory of what delta keeps for the user; it need not exist.
pub fn data_directory() -> Option<PathBuf> {
    user_directory("XDG_DATA_HOME", ".local/share").map(|dir| dir.join("delta"))
}

/// The address from which `delta models prices --fetch` gets a list of prices, if the configuration names one.
///
/// # Errors
/// The configuration has mistakes.
pub fn prices_url() -> Result<Option<String>, CommandFailure> {
    Ok(read()?.prices_url.as_ref().map(|setting| setting.value.clone()))
}

fn user_directory(variable: &str, in_home: &str) -> Option<PathBuf> {
    find_user_directory(variable, in_home, environment::os_variable)
}

/// The configuration, read once.
///
/// # Errors
/// The file cannot be read, or has mistakes.
pub fn read() -> Result<&'static OperatorConfig, CommandFailure> {
    static CONFIG: OnceLock<OperatorConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config);
    }
    let config = OperatorConfig::load()?;
    Ok(CONFIG.get_or_init(|| config))
}

/// The price file that the configuration names, and the line that names it.
///
/// # Errors
/// The configuration has mistakes.
pub fn price_file() -> Result<Option<(PathBuf, String)>, CommandFailure> {
    let config = read()?;
    let setting = config.pricing.as_ref();
    Ok(setting.map(|setting| (config.dir().join(&setting.value), setting.origin.clone())))
}

/// The name or file of the sandbox that no tool exceeds, the line that names it, and the directory of a relative path.
///
/// # Errors
/// The configuration has a mistake: without a limit, tools may do more than the operator wants.
pub fn sandbox() -> Result<Option<(String, String, PathBuf)>, CommandFailure> {
    let config = read()?;
    let setting = config.sandbox.clone();
    Ok(setting.map(|setting| (setting.value, setting.origin, config.dir().to_owned())))
}

/// The models that the operator chose, `option` being `--model`.
///
/// # Errors
/// The configuration or DELTA_MODEL has a mistake.
pub fn model_selection(option: Option<ModelChoice>) -> Result<ModelSelection, CommandFailure> {
    let has_address = has_chat_address();
    let config = read()?;
    let is_set_up = |form: WireForm| {
        let names = [form.address_variables(), form.key_variables()].concat();
        let has_variable = names.iter().any(|name| environment::variable(name).is_some());
        let has_endpoint = config.has_endpoint(form);
        !has_address && (has_variable || has_endpoint || config.api_key_command(form).is_some())
    };
    let option = option.map(|choice| choice.by_vendor(is_set_up));
    let default = default_model()?.map(|setting| setting.value.by_vendor(is_set_up));
    Ok(ModelSelection { option, default, settings: Vec::new() })
}

fn default_model() -> Result<Option<OperatorSetting<ModelChoice>>, CommandFailure> {
    let config = read()?;
    let Some(text) = environment::variable(MODEL_VARIABLE) else {
        return Ok(config.model.clone());
    };
    match ModelChoice::parse(&text) {
        Ok(value) => Ok(Some(OperatorSetting { value, origin: MODEL_VARIABLE.to_owned() })),
        Err(message) => Err(CommandFailure::config(format!("{MODEL_VARIABLE}: {message}"), None)),
    }
}

/// The endpoint and the model of a new agent, and where the operator chose them. A script or another file is none.
///
/// # Errors
/// The configuration or DELTA_MODEL has a mistake.
pub fn model_of_new_agent() -> Result<Option<(WireForm, String, String)>, CommandFailure> {
    let Some(OperatorSetting { value, origin }) = default_model()? else { return Ok(None) };
    let endpoint = value.endpoint(has_chat_address());
    Ok(endpoint.map(|(form, model)| (form, model.to_owned(), origin)))
}

/// Whether the operator names an endpoint of Chat Completions.
fn has_chat_address() -> bool {
    let names = WireForm::OpenAi.address_variables();
    names.iter().any(|name| environment::variable(name).is_some())
        || read().is_ok_and(|config| config.has_endpoint(WireForm::OpenAi))
}

/// The format of commands without `--format`, of [`DEFAULT_FORMATS`]. A mistake in the file is for the commands that need the file.
///
/// # Errors
/// DELTA_FORMAT has another value; contains the message.
pub fn default_format() -> Result<Option<&'static str>, String> {
    let find = |text: &str| DEFAULT_FORMATS.into_iter().find(|format| *format == text);
    match environment::variable(FORMAT_VARIABLE) {
        Some(text) => find(&text).map(Some).ok_or_else(|| {
            format!("{FORMAT_VARIABLE}: expected text, json, raw or jsonl, found `{text}`")
        }),
        None => Ok(read().ok().and_then(|config| find(&config.format.as_ref()?.value))),
    }
}

/// The tools that ask before every call, [`EVERY_TOOL`] for all.
///
/// # Errors
/// The configuration has a mistake: a call that should ask must not start without.
pub fn approve() -> Result<Vec<String>, CommandFailure> {
    Ok(read()?.approve.as_ref().map_or_else(Vec::new, |setting| setting.value.clone()))
}

/// The address that the configuration has for `name`, the last variable with the address of a provider.
///
/// # Errors
/// The configuration has a mistake.
pub fn endpoint_setting(name: &str) -> Result<Option<EnvSetting>, CommandFailure> {
    let Some(setting) = &read()?.endpoints else { return Ok(None) };
    let form =
        WireForm::ALL.into_iter().find(|form| form.address_variables().last() == Some(&name));
    let value = form.and_then(|form| setting.value.get(form.name()));
    Ok(value.map(|value| EnvSetting {
        name: name.to_owned(),
        value: value.clone(),
        origin: EnvOrigin::KeySource(setting.origin.clone()),
    }))
}

/// The addresses that the configuration has.
///
/// # Errors
/// The configuration has a mistake.
pub fn endpoint_settings() -> Result<Vec<EnvSetting>, CommandFailure> {
    let names = WireForm::ALL.into_iter().filter_map(|form| form.address_variables().last());
    let mut settings: Vec<EnvSetting> = Vec::new();
    for name in names {
        if settings.iter().all(|known| known.name != *name) {
            settings.extend(endpoint_setting(name)?);
        }
    }
    Ok(settings)
}

/// The hosts that tools of the agent `name` in `home`, the built-in or an installed one, reach in a workspace.
///
/// # Errors
/// The configuration has a mistake.
pub fn allowed_hosts(
    name: &str,
    home: &Path,
    workspace: &Path,
) -> Result<Vec<HostRule>, CommandFailure> {
    Ok(granted(read()?.net.as_ref(), name, home, workspace)?.concat())
}

/// The calls that the agent `name` in `home`, the built-in or an installed one, starts without a question in a workspace.
///
/// # Errors
/// The configuration has a mistake.
pub fn listed_calls(
    name: &str,
    home: &Path,
    workspace: &Path,
) -> Result<Vec<ListedCalls>, CommandFailure> {
    granted(read()?.allow.as_ref(), name, home, workspace)
}

/// What the entries grant the agent in the workspace; nothing if that contains config.yaml or the agent, which could write them.
fn granted<T: Clone>(
    setting: Option<&OperatorSetting<Vec<Grant<T>>>>,
    name: &str,
    home: &Path,
    workspace: &Path,
) -> Result<Vec<T>, CommandFailure> {
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let paths = [read()?.path.as_deref(), Some(home)].into_iter().flatten();
    let mut paths = paths.filter_map(|path| path.canonicalize().ok());
    if paths.any(|path| path.starts_with(&workspace)) {
        return Ok(Vec::new());
    }
    let entries = setting.iter().flat_map(|setting| &setting.value);
    let covering = entries.filter(|entry| entry.covers(name, &workspace));
    Ok(covering.map(|entry| entry.granted.clone()).collect())
}

/// Whether the operator allows the skills of a workspace, whose path is canonical.
///
/// # Errors
/// The configuration has a mistake.
pub fn allows_project_skills(workspace: &Path) -> Result<bool, CommandFailure> {
    let Some(setting) = &read()?.project_skills else { return Ok(false) };
    let mut allowed = setting.value.iter().filter_map(|dir| Path::new(dir).canonicalize().ok());
    Ok(allowed.any(|dir| workspace.starts_with(dir)))
}

/// `runs_dir` of the file: the directory for the runs of all workspaces. A mistake in another key is left to the commands that
/// need that key.
///
/// # Errors
/// The value is wrong, or the file cannot be read and may have one. Without the error, every command would look for runs in the
/// wrong place and find none.
pub fn configured_runs_dir() -> Result<Option<PathBuf>, CommandFailure> {
    let failure = match read() {
        Ok(config) => return Ok(config.runs_dir_path()),
        Err(failure) => failure,
    };
    let Some(path) = config_file() else { return Err(failure) };
    let text = match durable::read_regular_text(&path) {
        Ok(text) => text,
        // Another file has the wrong name.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err(failure),
    };
    let may_have_key = text.contains("runs_dir");
    let valid = OperatorConfig::parse_valid_keys(path, text, &mut DiagnosticReport::default());
    match valid.runs_dir_path() {
        None if may_have_key => Err(failure),
        dir => Ok(dir),
    }
}

/// Applies `color`, before anything is printed. A mistake in the file is for the commands that need the file.
pub fn apply_color() {
    if let Ok(OperatorConfig { color: Some(color), .. }) = read()
        && color_variable().is_none()
    {
        match color.value.as_str() {
            "always" => ColorChoice::Always.write_global(),
            "never" => ColorChoice::Never.write_global(),
            _ => {}
        }
    }
}

/// The variable that decides about colors, if one is set, and what it decides.
fn color_variable() -> Option<(&'static str, &'static str)> {
    if environment::variable("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return Some(("CLICOLOR_FORCE", "always"));
    }
    environment::variable("NO_COLOR").map(|_| ("NO_COLOR", "never"))
}

/// Show the operator's settings and where they come from
///
/// The settings for every agent are in $XDG_CONFIG_HOME/delta/config.yaml, else ~/.config/delta/config.yaml, and in the
/// environment. `.env` files of agents and workspaces are not listed.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ConfigArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = ConfigFormat::Text)]
    format: ConfigFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta config
  delta config --format json | jq -r '.[] | select(.key == \"model\").value'
  delta schema config                      # the keys, for editors";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ConfigFormat {
    /// One line for each setting
    Text,
    /// One JSON array
    Json,
}

/// A setting as it is listed.
struct ListedSetting {
    key: &'static str,
    value: Option<String>,
    /// Empty for a default.
    origin: String,
}

impl ListedSetting {
    fn new(key: &'static str, value: Option<String>, origin: &str) -> Self {
        Self { key, value, origin: origin.to_owned() }
    }

    /// A setting in the file.
    fn of_file<T>(
        key: &'static str,
        setting: &Option<OperatorSetting<T>>,
        describe: impl Fn(&T) -> String,
    ) -> Self {
        let value = setting.as_ref().map(|setting| describe(&setting.value));
        Self::new(key, value, setting.as_ref().map_or("", |setting| &setting.origin))
    }

    /// A setting in a variable.
    fn of_variable(key: &'static str, variable: &str) -> Self {
        let value = environment::variable(variable);
        let origin = if value.is_some() { variable } else { "" };
        Self::new(key, value, origin)
    }

    /// The same in a variable, if it is set.
    fn or_variable(self, variable: &str) -> Self {
        let set = Self::of_variable(self.key, variable);
        if set.value.is_some() { set } else { self }
    }
}

/// Lists the settings; returns the exit code.
pub fn config_command(args: &ConfigArgs) -> ExitCode {
    let settings = match list_settings() {
        Ok(settings) => settings,
        Err(failure) => return failure.report(),
    };
    match args.format {
        ConfigFormat::Text => stdio::print_text(&render_settings(&settings)),
        ConfigFormat::Json => {
            let mut list: Vec<Json> = settings
                .iter()
                .map(|ListedSetting { key, value, origin }| {
                    let origin = Some(origin).filter(|origin| !origin.is_empty());
                    json!({"key": key, "value": value, "from": origin})
                })
                .collect();
            if let Some(key) = own_public_key() {
                list.push(
                    json!({"key": "seal_public_key_pem", "value": key.to_pem(), "from": null}),
                );
            }
            stdio::print_json(&format!("{:#}\n", Json::from(list)))
        }
    };
    ExitCode::SUCCESS
}

/// The public half of the key that seals this operator's runs, if there is one yet.
fn own_public_key() -> Option<PublicKey> {
    state::existing_seal_key().ok().map(|key| key.public_key())
}

fn describe_grants<T>(grants: &[Grant<T>], describe: fn(&T) -> String) -> String {
    let entries = grants.iter().map(|entry| entry.describe(&describe(&entry.granted)));
    entries.collect::<Vec<_>>().join(", ")
}

fn list_settings() -> Result<Vec<ListedSetting>, CommandFailure> {
    let config = read()?;
    let line = ListedSetting::new;
    let of_file = |key, setting| ListedSetting::of_file(key, setting, String::clone);
    let of_variable = ListedSetting::of_variable;
    let model = default_model()?;
    let model_origin = model.as_ref().map_or("", |model| model.origin.as_str());
    let color = match color_variable() {
        Some((variable, value)) => line("color", Some(value.to_owned()), variable),
        None if config.color.is_none() => line("color", Some("auto".to_owned()), ""),
        None => of_file("color", &config.color),
    };
    let is_file_there = config.path.as_deref().is_some_and(Path::exists);
    let file_origin = if is_file_there || config.path.is_none() { "" } else { "does not exist" };
    let key_names = set_key_variables();
    let has_key = !key_names.is_empty();
    let (price_file, price_origin) = prices::price_file_path()?.unzip();
    let mut base_url = of_variable("base_url", "OPENAI_BASE_URL").or_variable("DELTA_BASE_URL");
    base_url.value = base_url.value.map(|url| mask_url(&url));
    Ok(vec![
        line("config_file", config.path.as_ref().map(|_| config.path_text()), file_origin),
        line("model", model.as_ref().map(|model| model.value.to_string()), model_origin),
        of_file("default_agent", &config.default_agent),
        line("agents_dir", agents_directory().map(|dir| dir.display().to_string()), ""),
        color,
        of_file("format", &config.format).or_variable(FORMAT_VARIABLE),
        ListedSetting::of_file("approve", &config.approve, |tools| {
            match tools.join(" ").as_str() {
                EVERY_TOOL => "ask".to_owned(),
                "" => "[]".to_owned(),
                names => names.to_owned(),
            }
        }),
        line("api_key", has_key.then(|| "(set)".to_owned()), &key_names.join(", ")),
        of_variable("api_key_file", KEY_FILE_VARIABLE),
        ListedSetting::of_file("api_key_command", &config.api_key_commands, |commands| {
            match commands.get(WireForm::OpenAi.name()).filter(|_| commands.len() == 1) {
                Some(command) => command.clone(),
                None => describe_by_provider(commands, str::to_owned),
            }
        })
        .or_variable(KEY_COMMAND_VARIABLE),
        base_url,
        ListedSetting::of_file("endpoint", &config.endpoints, |urls| {
            describe_by_provider(urls, mask_url)
        }),
        ListedSetting::of_file("allow", &config.allow, |grants| {
            describe_grants(grants, |calls| calls.tool.clone())
        }),
        ListedSetting::of_file("net", &config.net, |grants| {
            describe_grants(grants, |hosts| {
                hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            })
        }),
        of_file("runs_dir", &config.runs_dir).or_variable(RUNS_DIR_VARIABLE),
        line(
            "pricing",
            price_file.map(|path| path.display().to_string()),
            &price_origin.unwrap_or_default(),
        ),
        of_file("prices_url", &config.prices_url),
        of_file("sandbox", &config.sandbox).or_variable(SANDBOX_VARIABLE),
        ListedSetting::of_file("project_skills", &config.project_skills, |dirs| dirs.join(", ")),
        line("state_dir", state::state_dir_text(), ""),
        of_variable("seal_key_file", state::SEAL_KEY_VARIABLE),
        line("seal_public_key", own_public_key().map(|key| key.to_string()), ""),
        of_variable("trust", TRUST_VARIABLE),
        of_variable("trust_endpoint", TRUSTED_HOSTS_VARIABLE),
        of_variable("import_path", IMPORT_PATH_VARIABLE),
    ])
}

/// The variables whose keys count, one for each form of endpoint.
fn set_key_variables() -> Vec<&'static str> {
    let mut key_names: Vec<&str> = Vec::new();
    for form in WireForm::ALL {
        let mut names = form.key_variables().iter();
        let counting = names.find(|name| environment::variable(name).is_some());
        key_names.extend(counting.filter(|name| !key_names.contains(name)));
    }
    key_names
}

fn describe_by_provider(texts: &BTreeMap<String, String>, show: fn(&str) -> String) -> String {
    let named = texts.iter().map(|(name, text)| format!("{name}: {}", show(text)));
    named.collect::<Vec<_>>().join(", ")
}

/// Three columns: the key, its value and where it comes from.
fn render_settings(settings: &[ListedSetting]) -> String {
    let value = |setting: &ListedSetting| setting.value.clone().unwrap_or_else(|| "-".to_owned());
    let width = settings.iter().map(|setting| value(setting).chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for setting in settings {
        let row = format!("{:<16} {:<width$}  {}", setting.key, value(setting), setting.origin);
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}
