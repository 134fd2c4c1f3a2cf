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
    /// The vendor that the name tells is the provider, except for an agent with an address of its own.
    means_vendor: bool,
}

/// What other programs write before the names of models, the address that serves them in the form of Chat Completions, and
/// the option that it needs besides.
const OTHER_VENDORS: [(&[&str], &str, &str); 22] = [
    (&["ollama", "ollama_chat"], "http://localhost:11434/v1", ""),
    (&["llamacpp", "llama.cpp", "llama-cpp", "llamafile"], "http://localhost:8080/v1", ""),
    (&["vllm", "hosted_vllm"], "http://localhost:8000/v1", ""),
    (&["lmstudio", "lm_studio"], "http://localhost:1234/v1", ""),
    (&["openrouter"], "https://openrouter.ai/api/v1", ""),
    (&["deepseek"], "https://api.deepseek.com", ""),
    (&["groq"], "https://api.groq.com/openai/v1", ""),
    (&["mistral", "mistralai"], "https://api.mistral.ai/v1", ""),
    (&["xai", "x-ai", "grok"], "https://api.x.ai/v1", ""),
    (&["together", "together_ai", "togetherai"], "https://api.together.xyz/v1", ""),
    (&["fireworks", "fireworks_ai", "fireworks-ai"], "https://api.fireworks.ai/inference/v1", ""),
    (&["cerebras"], "https://api.cerebras.ai/v1", ""),
    (&["deepinfra"], "https://api.deepinfra.com/v1/openai", ""),
    (&["moonshot", "moonshotai"], "https://api.moonshot.ai/v1", ""),
    (&["perplexity"], "https://api.perplexity.ai", ""),
    (&["dashscope", "alibaba"], "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", ""),
    (&["zai", "zhipuai"], "https://api.z.ai/api/paas/v4", ""),
    (&["hf", "huggingface"], "https://router.huggingface.co/v1", ""),
    (&["github", "github-models"], "https://models.github.ai/inference", ""),
    (&["nvidia", "nvidia_nim"], "https://integrate.api.nvidia.com/v1", ""),
    (
        &["azure", "azure_openai"],
        "https://RESOURCE.openai.azure.com/openai/v1",
        " --llm auth=api-key",
    ),
    (BEDROCK_NAMES, "https://bedrock-runtime.REGION.amazonaws.com/openai/v1", ""),
];

const BEDROCK_NAMES: &[&str] = &["bedrock", "bedrock_converse", "amazon-bedrock", "aws_bedrock"];

/// What other programs write before the models of Vertex AI, which has an address for each model.
const VERTEX_NAMES: [&str; 5] =
    ["vertex", "vertex_ai", "google-vertex", "google_vertexai", "gcp_vertex_ai"];

/// The names of vendors before a slash, and beginnings of the names of their models.
const VENDOR_MODELS: [(WireForm, &[&str], &[&str]); 4] = [
    (WireForm::Anthropic, &["anthropic", "claude"], &["claude-"]),
    (WireForm::Gemini, &["gemini", "google", "google-gla", "google_genai", "models"], &["gemini-"]),
    (
        WireForm::OpenAi,
        &["openai", "openai-chat"],
        &["gpt-", "chatgpt-", "codex-", "o1", "o3", "o4-"],
    ),
    (WireForm::Responses, &["openai-responses"], &[]),
];

/// Short names of other programs, each for the latest model of a kind, and the name of such a model.
const SHORT_NAMES: [(&str, &str); 8] = [
    ("opus", "anthropic:claude-opus-5-5"),
    ("opusplan", "anthropic:claude-opus-5-5"),
    ("sonnet", "anthropic:claude-sonnet-5-5"),
    ("haiku", "anthropic:claude-haiku-5-5"),
    ("fable", "anthropic:claude-fable-5-1"),
    ("flash", "gemini:gemini-3.8-flash"),
    ("4o", "openai:gpt-4o"),
    ("4o-mini", "openai:gpt-4o-mini"),
];

/// The provider of a model by its name, and the name without a vendor in front; `None` if the name tells none.
pub fn vendor_model(name: &str) -> Option<(WireForm, &str)> {
    let (vendor, model) =
        name.split_once('/').map_or((None, name), |(vendor, model)| (Some(vendor), model));
    let of_name = VENDOR_MODELS.iter().find(|(_, vendors, beginnings)| match vendor {
        Some(vendor) => vendors.contains(&vendor),
        None => beginnings.iter().any(|beginning| model.starts_with(beginning)),
    });
    of_name.filter(|_| !model.is_empty()).map(|(form, ..)| (*form, model))
}

/// How to ask for a model that the vendor of `form` does not serve under this name at its own address; `None` if it may.
pub fn misplaced_model_help(name: &str, form: WireForm) -> Option<String> {
    if let Some((vendor, model)) = vendor_model(name) {
        // The Responses API is OpenAI's too.
        let is_openai = |form| matches!(form, WireForm::OpenAi | WireForm::Responses);
        let is_served = vendor == form || is_openai(vendor) && is_openai(form);
        if is_served && model == name {
            return None;
        }
        let provider = if is_served { form.name() } else { vendor.name() };
        let key = vendor.key_variables()[0];
        return Some(format!(
            "`{name}` is a model of {provider}:\n\
             \x20 export {key}=...\n\
             \x20 --model {provider}:{model}\n\
             \x20 llm: {{provider: {provider}, model: {model}}}   # in agent.yaml\n"
        ));
    }
    let short = name.strip_suffix("[1m]").unwrap_or(name);
    if let Some((_, model)) = SHORT_NAMES.iter().find(|(known, _)| *known == short) {
        return Some(format!(
            "`{name}` is a short name of other programs; write the name of a model:\n\x20 --model {model}\n"
        ));
    }
    other_vendor_help(name).map(|help| format!("for `{name}` set {help}\n"))
}

/// How to ask for a model whose name begins with the vendor that serves it, and a slash or a colon, or is an id of Bedrock.
fn other_vendor_help(name: &str) -> Option<String> {
    let is_bedrock_id = name.split('.').any(|part| matches!(part, "anthropic" | "amazon"));
    let (vendor, model) = match name.split_once(['/', ':']) {
        Some((vendor, model)) if !vendor.contains('.') || !is_bedrock_id => (vendor, model),
        _ if is_bedrock_id => (BEDROCK_NAMES[0], name),
        _ => return None,
    };
    if VERTEX_NAMES.contains(&vendor) {
        let (variable, key, publisher, provider) = match vendor_model(model) {
            Some((WireForm::Anthropic, _)) => {
                ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "anthropic", "anthropic")
            }
            _ => ("GOOGLE_GEMINI_BASE_URL", "GOOGLE_API_KEY", "google", "gemini"),
        };
        return Some(format!(
            "{variable}='https://REGION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/REGION/publishers/{publisher}/models/{{model}}:{{method}}' {key}=\"$(gcloud auth print-access-token)\", and `--model {provider}:{model} --llm auth=bearer`"
        ));
    }
    let (_, address, option) =
        OTHER_VENDORS.iter().find(|(names, ..)| names.contains(&vendor) && !model.is_empty())?;
    let key = if address.starts_with("https") { " DELTA_API_KEY=..." } else { "" };
    Some(format!("DELTA_BASE_URL={address}{key}, and `--model openai:{model}{option}`"))
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
        if let Some(help) = other_vendor_help(text) {
            let vendor = text.split(['/', ':']).next().unwrap_or_default();
            return Err(format!("`{vendor}` is not a provider: set {help}"));
        }
        let of_vendor = VENDOR_MODELS.iter().find(|(_, vendors, _)| vendors.contains(&prefix));
        let help = if let Some((form, ..)) = of_vendor {
            format!("did you mean `{}:{model}`?", form.name())
        } else if is_misspelled_provider(prefix) {
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

    /// The endpoint and the name of the model; `None` for a script, a command or a cassette. `has_chat_address` says that an
    /// address for Chat Completions is set, which may have the models of many vendors.
    pub fn endpoint(&self, has_chat_address: bool) -> Option<(WireForm, &str)> {
        match self.provider.as_deref() {
            Some(name) => Some((WireForm::parse(name)?, &self.model)),
            None => vendor_model(&self.model)
                .filter(|_| !has_chat_address)
                .or(Some((WireForm::OpenAi, &self.model))),
        }
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
        let provider = provider.map(str::to_owned);
        Ok(Self { provider, model: model.to_owned(), means_vendor: false })
    }

    /// The choice where no address for Chat Completions is set, but `is_set_up` says that one of the vendor is, or a key.
    #[must_use]
    pub fn by_vendor(self, is_set_up: impl Fn(WireForm) -> bool) -> Self {
        let means_vendor = vendor_model(&self.model).is_some_and(|(form, _)| is_set_up(form));
        Self { means_vendor, ..self }
    }

    /// The choice for an agent with this section.
    pub(super) fn for_section(&self, fields: MappingFields<'_>) -> Self {
        let is_open = self.provider.is_none()
            && fields.non_null("base_url").is_none()
            && matches!(fields.text("provider"), None | Some("openai"));
        match vendor_model(&self.model).filter(|_| self.means_vendor && is_open) {
            Some((form, model)) => Self::of_form(form, model),
            None => self.clone(),
        }
    }

    /// The model of an endpoint of Chat Completions, even if its name has the prefix of a provider.
    pub fn openai(model: &str) -> Self {
        Self::of_form(WireForm::OpenAi, model)
    }

    /// The model of an endpoint that speaks `form`.
    pub fn of_form(form: WireForm, model: &str) -> Self {
        let provider = Some(form.name().to_owned());
        Self { provider, model: model.to_owned(), means_vendor: false }
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
            report.push(Diagnostic::for_file(option, message, help));
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
}

impl ModelSelection {
    /// `--model` alone.
    pub fn from_option(option: Option<ModelChoice>) -> Self {
        Self { option, ..Self::default() }
    }

    /// For commands that do not call the LLM: an agent without `llm` is as complete as any other.
    pub fn without_llm() -> Self {
        let default = Some(ModelChoice::openai("the operator's model"));
        Self { default, ..Self::default() }
    }

    /// The model in place of the one in agent.yaml, or for an agent that names none.
    pub fn for_agent(&self, names_model: bool) -> Option<&ModelChoice> {
        self.option.as_ref().or_else(|| self.default.as_ref().filter(|_| !names_model))
    }
}

impl fmt::Display for ModelChoice {
    /// As the value of `--model`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, model, .. } = self;
        provider.iter().try_for_each(|provider| write!(f, "{provider}:"))?;
        f.write_str(model)
    }
}

/// Whether the prefix of a model is similar to the name of a provider.
fn is_misspelled_provider(prefix: &str) -> bool {
    prefix.chars().all(|c| c.is_ascii_alphabetic())
        && !suggest::nearest_names(prefix, PROVIDER_NAMES).is_empty()
}
