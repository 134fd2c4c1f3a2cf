//! The operator's choice of a model and a provider: `--model`.

use super::config::{
    CASSETTE_HELP, COMMAND_HELP, PROVIDER_NAMES, ProviderKind, SCRIPT_HELP, read_provider_name,
};
use super::llm_setting::LlmSetting;
use delta_base::suggest;
use delta_words::WireForm;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::{MappingFields, YamlDocument};
use std::fmt;
use std::path::{Path, PathBuf};

/// `--model NAME` or `--model PROVIDER:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    pub(super) provider: Option<String>,
    pub(super) model: String,
}

impl ModelChoice {
    /// The name of the model, or the path of a file.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Parses the option. The name of a model may contain a colon (`llama3:8b`), so the error for an unknown provider says
    /// how to write such a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((prefix, model)) = text.split_once(':') else {
            return Self::new(None, text);
        };
        if PROVIDER_NAMES.contains(&prefix) {
            return Self::new(Some(prefix), model);
        }
        let help = if is_misspelled_provider(prefix) {
            suggest::did_you_mean(prefix, PROVIDER_NAMES)
        } else {
            format!("the providers are {}", PROVIDER_NAMES.join(", "))
        };
        Err(format!(
            "unknown provider `{prefix}`; {help} (for a model of this name, write `openai:{text}`)"
        ))
    }

    /// Parses the option in a journal: an earlier version took a text with any other prefix for the name of a model.
    pub fn parse_recorded(text: &str) -> Option<Self> {
        let mut choice = Self::parse(text).or_else(|_| Self::new(None, text)).ok()?;
        // As the user would write it here.
        let current = std::env::current_dir().ok().filter(|_| choice.names_file());
        if let Some(path) = current.and_then(|dir| {
            Path::new(&choice.model).strip_prefix(dir).ok()?.to_str().map(str::to_owned)
        }) {
            choice.model = path;
        }
        Some(choice)
    }

    /// Whether the model is the path of a file.
    fn names_file(&self) -> bool {
        matches!(self.provider.as_deref(), Some("script" | "recorded"))
    }

    /// The option for a journal. The path of a file becomes absolute, so that the run continues from any directory.
    pub fn to_recorded(&self) -> String {
        let path = std::path::absolute(&self.model).ok();
        let path = path.filter(|path| self.names_file() && path.exists());
        match path.as_deref().and_then(Path::to_str) {
            Some(path) => Self { model: path.to_owned(), ..self.clone() }.to_string(),
            None => self.to_string(),
        }
    }

    fn new(provider: Option<&str>, model: &str) -> Result<Self, String> {
        if model.is_empty() {
            return Err("expected `NAME` or `PROVIDER:NAME`".to_owned());
        }
        Ok(Self { provider: provider.map(str::to_owned), model: model.to_owned() })
    }

    /// The model of an endpoint of Chat Completions, even if its name has the prefix of a provider.
    pub fn openai(model: &str) -> Self {
        Self::of_form(WireForm::OpenAi, model)
    }

    /// The model of an endpoint that speaks `form`.
    pub fn of_form(form: WireForm, model: &str) -> Self {
        Self { provider: Some(form.name().to_owned()), model: model.to_owned() }
    }

    /// Loads the provider. Its diagnostics name the option, not a line of the file.
    pub(super) fn read_provider(
        &self,
        doc: &YamlDocument,
        fields: MappingFields<'_>,
        home: &Path,
    ) -> Option<ProviderKind> {
        let report = |message: String, help: &str| {
            let option = format!("--model {self}");
            let mut report = DiagnosticReport::default();
            report.push(Diagnostic::for_file(option, message, Some(help.to_owned())));
            doc.append_report(&mut report);
        };
        let file_help = |help: &str| match &self.provider {
            Some(_) => help.to_owned(),
            // The user probably named a model, but the agent's provider makes it the path of a file.
            None => format!("{help}; for a model of an endpoint, write `--model openai:{self}`"),
        };
        // Read even if the option replaces it, so that a mistake in it is still reported.
        let agent_provider = read_provider_name(doc, fields);
        match self.provider.as_deref().or(agent_provider).unwrap_or_default() {
            "script" => ProviderKind::load_script(doc, &self.resolve_path(home))
                .map_err(|message| report(message, &file_help(SCRIPT_HELP)))
                .ok()?,
            "recorded" => ProviderKind::load_cassette(doc, &self.resolve_path(home))
                .map_err(|message| report(message, &file_help(CASSETTE_HELP)))
                .ok()?,
            "command" => {
                let command = fields.texts("command");
                if command.is_empty() {
                    report("the agent's `llm` has no `command`".to_owned(), COMMAND_HELP);
                    return None;
                }
                Some(ProviderKind::Command(command))
            }
            name => WireForm::parse(name).map(ProviderKind::Endpoint),
        }
    }

    /// The path that the model names: in the current directory, or else in the agent directory.
    fn resolve_path(&self, home: &Path) -> PathBuf {
        let path = Path::new(&self.model);
        if path.exists() { path.to_owned() } else { home.join(path) }
    }
}

/// The models that the operator chose, for one command and for every agent that names none.
#[derive(Debug, Clone, Default)]
pub struct ModelSelection {
    /// `--model`, which takes precedence over agent.yaml.
    pub option: Option<ModelChoice>,
    /// The model of agents without `llm`.
    pub default: Option<ModelChoice>,
    /// `--llm`: keys of `llm` in place of those in agent.yaml.
    pub settings: Vec<LlmSetting>,
    /// Whether prices may also be known from elsewhere than agent.yaml, or do not matter.
    pub has_prices: bool,
}

impl ModelSelection {
    /// `--model` alone.
    pub fn from_option(option: Option<ModelChoice>) -> Self {
        Self { option, has_prices: true, ..Self::default() }
    }

    /// For commands that do not call the LLM: an agent without `llm` is as complete as any other.
    pub fn without_llm() -> Self {
        let default = Some(ModelChoice::openai("the operator's model"));
        Self { default, has_prices: true, ..Self::default() }
    }

    /// The model in place of the one in agent.yaml, or for an agent that names none.
    pub fn for_agent(&self, names_model: bool) -> Option<&ModelChoice> {
        self.option.as_ref().or_else(|| self.default.as_ref().filter(|_| !names_model))
    }
}

impl fmt::Display for ModelChoice {
    /// As the value of `--model`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, model } = self;
        provider.iter().try_for_each(|provider| write!(f, "{provider}:"))?;
        f.write_str(model)
    }
}

/// Whether the prefix of a model is similar to the name of a provider.
fn is_misspelled_provider(prefix: &str) -> bool {
    prefix.chars().all(|c| c.is_ascii_alphabetic())
        && !suggest::nearest_names(prefix, PROVIDER_NAMES).is_empty()
}
