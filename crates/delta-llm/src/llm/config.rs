//! The `llm:` section of agent.yaml.

use super::answer_policy::{AnswerPolicy, ON_EMPTY_KEY, ON_LENGTH_KEY, TEXT_CALLS_KEY};
use super::cassette::Cassette;
use super::fallback::{FALLBACK_KEY, read_fallback};
use super::model_choice::ModelChoice;
use super::pricing::{PRICING_MAPPING, cache_write_factor, read_pricing, requested_tier};
use super::script::ScriptFile;
use super::wire::chat::CALL_ID_LENGTHS;
use super::wire::{CachePolicy, TOOL_CHOICE_KEY, ToolChoice};
use delta_base::url_secrets::mask_url;
use delta_base::{suggest, terminal_text};
use delta_words::{
    ANTHROPIC_MAX_TOKENS, AuthScheme, CacheLifetime, GEMINI_LENGTH_KEYS, Pricing, WireForm,
};
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{MappingFields, MappingSchema, YamlDocument, YamlNode};
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value as Json};
use std::path::Path;
use std::rc::Rc;

/// The section `llm:` of agent.yaml, as this crate reads it.
pub static LLM_MAPPING: MappingSchema = llm_mapping(&LLM_KEYS);

static LLM_KEYS: [KeySchema; LLM_KEY_COUNT] =
    llm_keys(ValueShape::OneOf(&[ValueShape::Text, ValueShape::MapOf(&ValueShape::Any)]));

/// The number of [`llm_keys`].
pub const LLM_KEY_COUNT: usize = 40;

/// The section with these keys.
pub const fn llm_mapping(keys: &'static [KeySchema]) -> MappingSchema {
    MappingSchema::new(
        "`llm`",
        "The LLM, and how to call it. Other keys are copied into the request body unchanged.",
        keys,
    )
    .with_other_keys()
}

/// The keys of the section. `sandbox` is the shape of the key of that name: the agent reads it, together with its other
/// sandboxes.
pub const fn llm_keys(sandbox: ValueShape) -> [KeySchema; LLM_KEY_COUNT] {
    [
        KeySchema::required(
            "model",
            ValueShape::Text,
            "The name of the model; for the providers `script` and `recorded`, the path of a file.",
        ),
        KeySchema::with_default(
            "provider",
            // Accepts any text here: `read_provider_name` reports an unknown one with better help.
            ValueShape::OneOf(&[ValueShape::Choice(&PROVIDER_NAMES)]),
            DefaultValue::Text("openai"),
            "The source of replies: the form of an endpoint, a script file, a command, or a cassette.",
        ),
        KeySchema::optional(
            "base_url",
            ValueShape::Pattern("https?://.*"),
            "The URL of the endpoint, such as `http://localhost:11434/v1`; it takes precedence over DELTA_BASE_URL.",
        ),
        KeySchema::optional(
            "api_key_env",
            ValueShape::Text,
            "The variable that contains the key, instead of DELTA_API_KEY and OPENAI_API_KEY.",
        ),
        KeySchema::optional(
            "api_key_command",
            ValueShape::List(&ValueShape::Text),
            "A program and its arguments that prints the key, instead of a variable; `${AGENT_HOME}` is the agent directory. It gets no key of the operator.",
        ),
        KeySchema::with_default(
            "api_key_ttl_ms",
            ValueShape::Milliseconds(1..1 << 40),
            DefaultValue::Integer(3_000_000),
            "How long the key of `api_key_command` is used, in milliseconds; then, and after status 401, the command runs again.",
        ),
        KeySchema::optional(
            "auth",
            ValueShape::Choice(&AuthScheme::NAMES),
            "The header that contains the key; `bearer` is `Authorization: Bearer`. By default the header of the provider.",
        ),
        KeySchema::optional(
            "headers",
            ValueShape::TextMap,
            "Headers of every request, such as `{anthropic-beta: NAME}`; a key does not belong here.",
        ),
        KeySchema::optional(
            "cache",
            CACHE_SHAPE,
            "What the endpoint caches: for `anthropic`, `auto` (the default) marks what the last requests have shown to be stable, `off` nothing; for `responses`, `auto` avoids writes that nothing reads.",
        ),
        KeySchema::optional(
            "api_version",
            ValueShape::Text,
            "The version of the endpoint's form: a header for `anthropic`, a part of the path for `gemini`.",
        ),
        KeySchema::optional(
            "call_ids",
            ValueShape::Integer(CALL_ID_LENGTHS),
            "The number of letters and digits that the endpoint requires of call ids: 9 for Mistral.",
        ),
        KeySchema::optional(
            "command",
            ValueShape::List(&ValueShape::Text),
            "For the provider `command`: a program, which reads the request from stdin and prints the response, and its arguments.",
        ),
        KeySchema::optional(
            "sandbox",
            sandbox,
            "For the provider `command`: what its processes may do, as in a tool. Without it, they have all rights.",
        ),
        KeySchema::with_default(
            "stream",
            ValueShape::Boolean,
            DefaultValue::Boolean(true),
            "Whether to request streamed responses.",
        ),
        KeySchema::with_default(
            "timeout_ms",
            ValueShape::Milliseconds(1..1 << 40),
            DefaultValue::Integer(600_000),
            "The timeout of a whole response, in milliseconds.",
        ),
        KeySchema::with_default(
            "idle_timeout_ms",
            ValueShape::Milliseconds(1..1 << 40),
            DefaultValue::Integer(120_000),
            "The timeout without a byte, in milliseconds.",
        ),
        KeySchema::with_default(
            "max_retries",
            ValueShape::Integer(0..101),
            DefaultValue::Integer(5),
            "The number of attempts after the first.",
        ),
        KeySchema::optional(
            "pricing",
            ValueShape::Mapping(&PRICING_MAPPING),
            "The price of tokens, in USD per million.",
        ),
        FALLBACK_KEY,
        KeySchema::optional(
            "echo_reasoning",
            ValueShape::Boolean,
            "Whether to send the reasoning of earlier replies back; if absent, to the endpoint that sent it.",
        ),
        KeySchema::optional(
            "system_messages",
            ValueShape::Choice(&["separate", "merged"]),
            "Whether the endpoint gets its system messages as they are, or as one at the beginning; if absent, delta finds out.",
        ),
        KeySchema::with_default(
            "strict_arguments",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "Whether arguments of another JSON type than the tool's are refused, even where their meaning is beyond doubt.",
        ),
        KeySchema::with_default(
            "strip_think",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "Whether a text that begins with `<think>...</think>` loses that part, which becomes the reasoning.",
        ),
        ON_LENGTH_KEY,
        ON_EMPTY_KEY,
        TEXT_CALLS_KEY,
        TOOL_CHOICE_KEY,
        KeySchema::optional(
            "temperature",
            ValueShape::Number(0.0, 2.0),
            "Copied into the request.",
        ),
        KeySchema::optional(
            "max_tokens",
            ValueShape::TokenCount(1..1 << 40),
            "Copied into the request.",
        ),
        KeySchema::misplaced("api_key", API_KEY_HELP),
        KeySchema::misplaced("apikey", API_KEY_HELP),
        KeySchema::misplaced("apiKey", API_KEY_HELP),
        KeySchema::misplaced("api-key", API_KEY_HELP),
        KeySchema::misplaced("max_cost", "it belongs under `limits:`, next to `llm:`"),
        KeySchema::misplaced("max_duration_ms", "it belongs under `limits:`, next to `llm:`"),
        KeySchema::misplaced("max_iterations", "it belongs next to `llm:`"),
        KeySchema::misplaced("limits", "it belongs next to `llm:`"),
        KeySchema::refused("messages", "Set by the engine."),
        KeySchema::refused("tools", "Set by the engine."),
        KeySchema::refused("stream_options", "Set by the engine."),
    ]
}

/// The shape of `llm.cache`.
const CACHE_SHAPE: ValueShape =
    ValueShape::OneOf(&[ValueShape::Choice(&["auto", "off"]), ValueShape::Mapping(&CACHE_MAPPING)]);

/// The mapping `llm.cache`.
static CACHE_MAPPING: MappingSchema = MappingSchema::new(
    "`cache`",
    "Caching as with `auto`.",
    &[KeySchema::required(
        "ttl",
        ValueShape::Choice(&["5m", "1h"]),
        "How long the endpoint keeps what it has cached; writing costs 1.25 times the price for `5m`, and 2 times for `1h`.",
    )],
);

/// The help for a key in place of the name of its variable. It would go into the request, and so into the records.
const API_KEY_HELP: &str = "put the key into DELTA_API_KEY, or name its variable, such as `api_key_env: MY_KEY`; in this file, every run would record it";

/// Keys of [`LLM_MAPPING`] that are copied into the request body too.
const BODY_KEYS: [&str; 3] = ["temperature", "max_tokens", TOOL_CHOICE_KEY.name];

/// The names of all providers.
pub const PROVIDER_NAMES: [&str; 7] =
    ["openai", "anthropic", "responses", "gemini", "script", "command", "recorded"];

/// The answer that is asked for where agent.yaml has no `max_tokens`, which Anthropic's form requires.
const ANTHROPIC_ANSWER_TOKENS: u64 = 32_000;

/// Headers that hold a key, which agent.yaml must not.
const KEY_HEADERS: [&str; 5] =
    ["authorization", "x-api-key", "x-goog-api-key", "api-key", "proxy-authorization"];
/// Headers that the engine sets itself.
const ENGINE_HEADERS: [&str; 6] =
    ["content-type", "content-length", "accept", "accept-encoding", "host", "anthropic-version"];

/// The version of Messages that no longer takes [`SAMPLING_KEYS`].
const NO_SAMPLING_VERSION: &str = "2026-10-21";
const SAMPLING_KEYS: [&str; 3] = ["temperature", "top_p", "top_k"];

pub(super) const CASSETTE_HELP: &str = "for the `recorded` provider, `model` is the path of a cassette; `delta test --record` records one";
pub(super) const SCRIPT_HELP: &str =
    "for the `script` provider, `model` is the path of a script file";
pub(super) const COMMAND_HELP: &str =
    "write `command: [PROGRAM, ARG, ...]`; it reads the request from stdin";

/// The LLM, and how to call it.
#[derive(Debug, Clone)]
pub struct LlmConfig {
    /// The name of the model.
    pub model: String,
    /// The provider of the replies.
    pub provider: ProviderKind,
    /// The address in agent.yaml, if it has one.
    pub base_url: Option<String>,
    /// The variable of the key in agent.yaml, if it has one.
    pub api_key_env: Option<String>,
    /// The program that prints the key, and its arguments; empty if there is none.
    pub api_key_command: Vec<String>,
    /// How long a key of `api_key_command` is used, in milliseconds.
    pub api_key_ttl_ms: u64,
    /// The header that contains the key, if agent.yaml says it.
    pub auth: Option<AuthScheme>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Whether requests mark prefixes for the endpoint's cache.
    pub cache: CachePolicy,
    /// The version of the endpoint's form, if agent.yaml says it.
    pub api_version: Option<String>,
    /// The number of letters and digits that call ids must have.
    pub call_ids: Option<u8>,
    /// Whether to request streamed responses.
    pub stream: bool,
    /// The timeout of a whole response, in milliseconds.
    pub timeout_ms: u64,
    /// The longest time without a byte, in milliseconds.
    pub idle_timeout_ms: u64,
    /// The number of attempts after the first.
    pub max_retries: u32,
    /// Whether agent.yaml sets that number.
    pub sets_max_retries: bool,
    /// The price of tokens.
    pub pricing: Option<Pricing>,
    /// The models that are asked, in order, when the one before does not answer. They have no `fallback` of their own.
    pub fallback: Vec<LlmConfig>,
    /// Whether to send the reasoning of earlier replies back, also to another endpoint than its own.
    pub echo_reasoning: bool,
    /// Whether its own endpoint does not get it back either.
    pub omits_reasoning: bool,
    /// Whether the system messages go out as one; `None` if the endpoint's refusals decide.
    pub merges_system: Option<bool>,
    /// Whether arguments of another JSON type than the tool's are refused in any case.
    pub strict_arguments: bool,
    /// Whether the reasoning at the beginning of a text is taken out of it.
    pub strip_think: bool,
    /// What happens to answers that are not what was asked for.
    pub answers: AnswerPolicy,
    /// Whether the LLM has to call a tool.
    pub tool_choice: ToolChoice,
    /// The other keys of the request body, in the order of the file.
    pub body: Map<String, Json>,
    /// Whether `max_tokens` of the body is not from agent.yaml.
    pub has_default_max_tokens: bool,
}

/// The kind of provider, with what agent.yaml defines for it.
#[derive(Debug, Clone)]
pub enum ProviderKind {
    /// An endpoint that speaks this form.
    Endpoint(WireForm),
    /// A script.
    Script(Rc<ScriptFile>),
    /// A program and its arguments.
    Command(Vec<String>),
    /// The recorded responses of an LLM.
    Recorded(Rc<Cassette>),
}

impl ProviderKind {
    /// The name of the provider in agent.yaml.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Endpoint(form) => form.name(),
            Self::Script(_) => "script",
            Self::Command(_) => "command",
            Self::Recorded(_) => "recorded",
        }
    }

    /// The form for which requests are built. A request to a cassette is built as for the recorded provider.
    pub fn request_form(&self) -> Option<WireForm> {
        match self {
            Self::Endpoint(form) => Some(*form),
            Self::Recorded(cassette) => WireForm::parse(&cassette.header.provider),
            Self::Script(_) | Self::Command(_) => None,
        }
    }

    /// Whether a request may ask for a streamed response.
    pub fn can_stream(&self) -> bool {
        self.request_form().is_some()
    }

    /// Loads a script; `Ok(None)` if it has mistakes, which are reported.
    ///
    /// # Errors
    /// The file could not be read.
    pub(super) fn load_script(doc: &YamlDocument, path: &Path) -> Result<Option<Self>, String> {
        let script = load_answers(doc, "script", path, ScriptFile::parse)?;
        Ok(script.map(|script| Self::Script(Rc::new(script))))
    }

    /// Loads a cassette; `Ok(None)` if it has mistakes, which are reported.
    ///
    /// # Errors
    /// The file could not be read.
    pub(super) fn load_cassette(doc: &YamlDocument, path: &Path) -> Result<Option<Self>, String> {
        let cassette = load_answers(doc, "cassette", path, Cassette::parse)?;
        Ok(cassette.map(|cassette| Self::Recorded(Rc::new(cassette))))
    }
}

/// Reads a file of answers, a `kind`; `Ok(None)` if it has mistakes, which are reported.
fn load_answers<T>(
    doc: &YamlDocument,
    kind: &str,
    path: &Path,
    parse: impl FnOnce(&str, &str) -> Result<T, DiagnosticReport>,
) -> Result<Option<T>, String> {
    let text = delta_base::durable::read_regular_text(path)
        .map_err(|error| format!("could not read the {kind} {}: {error}", path.display()))?;
    let answers = parse(&path.display().to_string(), &text);
    Ok(answers.map_err(|mut report| doc.append_report(&mut report)).ok())
}

impl LlmConfig {
    /// The wire form of the endpoint, if the provider is one.
    pub fn wire_form(&self) -> Option<WireForm> {
        match self.provider {
            ProviderKind::Endpoint(form) => Some(form),
            ProviderKind::Script(_) | ProviderKind::Command(_) | ProviderKind::Recorded(_) => None,
        }
    }

    /// Whether the author has left it to the LLM whether later answers are calls, or has ruled calls out: then delta forces none.
    pub fn leaves_calls_free(&self) -> bool {
        self.tool_choice.leaves_calls_free(&self.body)
    }

    /// The LLM that is asked after `changes` of the model: this one, or one of `fallback`.
    pub fn after_changes(&self, changes: usize) -> &Self {
        self.models().nth(changes).unwrap_or(self)
    }

    /// The LLM itself, and each LLM of `fallback`, in the order in which they are asked.
    pub fn models(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.fallback)
    }

    /// The addresses that agent.yaml gives to the LLM and to each LLM of `fallback`.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.models().filter_map(|llm| llm.base_url.as_deref())
    }

    /// Does the same with the LLM itself, and with each of `fallback`, which get their numbers from 0.
    ///
    /// # Errors
    /// The first error ends it.
    pub fn try_for_each_model<E>(
        &mut self,
        mut change: impl FnMut(usize, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        change(0, self)?;
        let mut numbered = self.fallback.iter_mut().enumerate();
        numbered.try_for_each(|(index, llm)| change(index + 1, llm))
    }

    /// The variables that may hold the key: the one that agent.yaml names, or else the variables of the provider.
    pub fn key_variables(&self) -> Vec<&str> {
        match (&self.api_key_env, self.wire_form()) {
            (Some(name), _) => vec![name],
            (None, form) => form.unwrap_or(WireForm::OpenAi).key_variables().to_vec(),
        }
    }

    /// The most tokens of an answer whose request names no number: what the form asks for, or what the model can generate.
    pub fn default_answer_tokens(&self) -> Option<u64> {
        let max_output = self.pricing.as_ref().and_then(|pricing| pricing.max_output);
        match self.wire_form() {
            Some(WireForm::Anthropic) => {
                Some(max_output.unwrap_or(u64::MAX).min(ANTHROPIC_ANSWER_TOKENS))
            }
            _ => max_output,
        }
    }

    /// Whether the cost of a call is known. A script is free.
    pub fn has_known_cost(&self) -> bool {
        self.pricing.is_some() || matches!(self.provider, ProviderKind::Script(_))
    }

    /// The model of an agent without the section: `choice`, with every other key at its default. `home` is the agent
    /// directory; mistakes are reported in `doc`.
    pub fn from_choice(doc: &YamlDocument, home: &Path, choice: &ModelChoice) -> Option<Self> {
        let section = YamlDocument::parse("agent.yaml", "{model: the choice replaces it}").ok()?;
        let config = Self::read(&section, &section.root, home, Some(choice));
        let mut report = DiagnosticReport::default();
        section.drain_diagnostics(&mut report);
        doc.append_report(&mut report);
        config
    }

    /// Reads the section. `choice` is the operator's `--model`, whose file may also be in the current directory; `home` is
    /// the agent directory.
    pub fn read(
        doc: &YamlDocument,
        node: &YamlNode,
        home: &Path,
        choice: Option<&ModelChoice>,
    ) -> Option<Self> {
        let fields = doc.fields(node, &LLM_MAPPING)?;
        let choice = choice.map(|choice| choice.for_section(fields));
        let choice = choice.as_ref();
        let example = match fields.text("provider") {
            Some("script") => "script.yaml",
            Some("recorded") => "cassette.jsonl",
            _ => "gpt-4o",
        };
        let model_node = fields.require("model", example);
        let agent_model =
            model_node.and_then(|node| read_nonblank_text(doc, node, "model", example));
        let provider = match choice {
            None => read_provider(doc, fields, model_node, agent_model.as_deref(), home),
            Some(choice) => choice.read_provider(doc, fields, home),
        };
        let form = provider.as_ref().and_then(ProviderKind::request_form);
        report_engine_keys(doc, fields, form);
        report_generation_keys(doc, fields, form);
        report_retired_keys(doc, fields, form);
        let model = match (&provider, choice) {
            // The request is the one that the agent sends now, so it has the agent's own model.
            (Some(ProviderKind::Recorded(_)), Some(_)) if is_model_name(fields) => {
                fields.text("model").map(str::to_owned)
            }
            (Some(ProviderKind::Recorded(cassette)), _) => Some(cassette.header.model.clone()),
            (_, Some(choice)) => Some(choice.model.clone()),
            (_, None) => agent_model,
        };
        let base_url = fields.text("base_url").map(str::to_owned);
        check_base_url(doc, fields, base_url.as_deref());
        let is_anthropic = provider.as_ref().is_some_and(|kind| kind.name() == "anthropic");
        let cache_ttl = fields.get("cache").and_then(|cache| cache.get("ttl")?.scalar());
        let write_factor = cache_write_factor(is_anthropic, cache_ttl);
        let tier = requested_tier(fields.node);
        let pricing =
            fields.non_null("pricing").and_then(|node| read_pricing(doc, node, write_factor, tier));
        let mut config = Self {
            model: model?,
            provider: provider?,
            base_url,
            api_key_env: fields.text("api_key_env").map(str::to_owned),
            api_key_command: read_key_command(doc, fields, choice),
            api_key_ttl_ms: fields.integer("api_key_ttl_ms")?,
            auth: fields.text("auth").and_then(AuthScheme::parse),
            headers: read_headers(doc, fields),
            cache: read_cache_policy(doc, fields),
            api_version: fields.text("api_version").map(str::to_owned),
            call_ids: fields.integer("call_ids").and_then(|length| u8::try_from(length).ok()),
            stream: fields.boolean("stream"),
            timeout_ms: fields.integer("timeout_ms")?,
            idle_timeout_ms: fields.integer("idle_timeout_ms")?,
            max_retries: u32::try_from(fields.integer("max_retries")?).ok()?,
            sets_max_retries: fields.non_null("max_retries").is_some(),
            pricing,
            fallback: Vec::new(),
            echo_reasoning: fields.boolean("echo_reasoning"),
            omits_reasoning: fields.non_null("echo_reasoning").is_some()
                && !fields.boolean("echo_reasoning"),
            merges_system: fields.text("system_messages").map(|how| how == "merged"),
            strict_arguments: fields.boolean("strict_arguments"),
            strip_think: fields.boolean("strip_think"),
            answers: AnswerPolicy::read(fields),
            tool_choice: ToolChoice::read(doc, fields),
            body: read_body(doc, fields),
            has_default_max_tokens: false,
        };
        config.set_request_form(form);
        config.fallback = read_fallback(doc, fields, home, &config.provider, choice.is_some());
        Some(config)
    }

    /// Sets the form for which requests are built. `anthropic` requires the length of an answer, so the body has it where
    /// limits look for it.
    pub fn set_request_form(&mut self, form: Option<WireForm>) {
        if self.has_default_max_tokens {
            self.body.shift_remove("max_tokens");
        }
        let is_missing = self.body.get("max_tokens").is_none_or(Json::is_null);
        self.has_default_max_tokens = is_missing && form == Some(WireForm::Anthropic);
        if self.has_default_max_tokens {
            let most = self.pricing.as_ref().and_then(|pricing| pricing.max_output);
            let max_tokens = ANTHROPIC_MAX_TOKENS.min(most.unwrap_or(u64::MAX));
            self.body.insert("max_tokens".to_owned(), max_tokens.into());
        }
    }
}

/// The policy of `llm.cache`; a value of another kind is reported.
fn read_cache_policy(doc: &YamlDocument, fields: MappingFields<'_>) -> CachePolicy {
    let Some(node) = fields.non_null("cache") else { return CachePolicy::default() };
    match node.scalar() {
        Some("auto") => return CachePolicy::default(),
        Some("off") => return CachePolicy::Off,
        Some(_) => {
            let help = "write `cache: auto`, `cache: off` or `cache: {ttl: 1h}`";
            doc.report(node, "`cache` must be `auto`, `off` or a mapping", help);
            return CachePolicy::default();
        }
        None => {}
    }
    let fields = doc.fields(node, &CACHE_MAPPING);
    let ttl = fields.and_then(|fields| fields.require("ttl", "1h")).and_then(YamlNode::scalar);
    CachePolicy::Auto(if ttl == Some("1h") { CacheLifetime::Long } else { CacheLifetime::Short })
}

/// The command that prints the key. The operator's choice of another provider has no use for it: the key is the agent's
/// own for its own provider.
fn read_key_command(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    choice: Option<&ModelChoice>,
) -> Vec<String> {
    let Some(node) = fields.non_null("api_key_command") else { return Vec::new() };
    let command = fields.texts("api_key_command");
    let help = "write `api_key_command: [PROGRAM, ARG, ...]`; it prints the key on one line";
    if command.first().is_none_or(String::is_empty) {
        doc.report(node, "`api_key_command` has no program", help);
    } else if let Some(variable) = fields.non_null("api_key_env") {
        let message = "`api_key_env` and `api_key_command` exclude each other";
        doc.report(variable, message, "remove one of them");
    }
    let chosen = choice.and_then(|choice| choice.provider.as_deref());
    let is_own = chosen.is_none_or(|name| Some(name) == fields.text("provider"));
    if is_own { command } else { Vec::new() }
}

/// The headers of every request; one that the engine sets or that holds a key is reported.
fn read_headers(doc: &YamlDocument, fields: MappingFields<'_>) -> Vec<(String, String)> {
    let Some(node) = fields.non_null("headers") else { return Vec::new() };
    let mut headers = Vec::new();
    for (key, value) in doc.expect_mapping(node, "`headers`").unwrap_or_default() {
        let name = key.scalar().unwrap_or_default();
        let lower = name.to_ascii_lowercase();
        let Some(value) = doc.expect_text(value, "the value of a header") else { continue };
        let help = if KEY_HEADERS.contains(&&*lower) {
            "keep the key in a variable: `api_key_env: NAME`, and `auth:` says which header contains it"
        } else if ENGINE_HEADERS.contains(&&*lower) {
            "remove the header: delta sets it"
        } else if HeaderName::try_from(name).is_err() || HeaderValue::from_str(value).is_err() {
            "write a name of letters, digits and `-`, and a value on one line"
        } else {
            headers.push((name.to_owned(), value.to_owned()));
            continue;
        };
        let excerpt = terminal_text::truncate_to_line(name, 80);
        doc.report(key, format!("`headers` cannot contain `{excerpt}`"), help);
    }
    headers
}

/// Whether `model` in agent.yaml is the name of a model, and not the path of a file.
fn is_model_name(fields: MappingFields<'_>) -> bool {
    fields
        .text("provider")
        .is_some_and(|provider| provider == "command" || WireForm::parse(provider).is_some())
}

/// The name of the provider in agent.yaml; `None` if it is unknown, which is reported.
pub(super) fn read_provider_name<'a>(
    doc: &YamlDocument,
    fields: MappingFields<'a>,
) -> Option<&'a str> {
    let node = fields.non_null("provider");
    let name = node.map_or(fields.text("provider"), YamlNode::scalar).unwrap_or_default();
    if PROVIDER_NAMES.contains(&name) {
        return Some(name);
    }
    let help = if suggest::nearest_names(name, PROVIDER_NAMES).is_empty() {
        "for any OpenAI-compatible endpoint, write `provider: openai` and its address as `base_url`"
            .to_owned()
    } else {
        suggest::did_you_mean(name, PROVIDER_NAMES)
    };
    let message = "`provider` must be `openai`, `anthropic`, `responses`, `gemini`, `script`, `command` or `recorded`";
    doc.report(node.unwrap_or(fields.node), message, help);
    None
}

/// Loads the provider that agent.yaml selects.
fn read_provider(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    model_node: Option<&YamlNode>,
    model: Option<&str>,
    home: &Path,
) -> Option<ProviderKind> {
    let provider_node = fields.non_null("provider").or(model_node).unwrap_or(fields.node);
    let report_file = |message: String, help: &str| {
        doc.report(model_node.unwrap_or(provider_node), message, help);
    };
    match read_provider_name(doc, fields)? {
        "script" => ProviderKind::load_script(doc, &home.join(model?))
            .map_err(|message| report_file(message, SCRIPT_HELP))
            .ok()?,
        "recorded" => ProviderKind::load_cassette(doc, &home.join(model?))
            .map_err(|message| report_file(message, CASSETTE_HELP))
            .ok()?,
        "command" => {
            let command = fields.texts("command");
            if command.is_empty() {
                let message = "the provider `command` requires a `command`";
                doc.report(provider_node, message, COMMAND_HELP);
                return None;
            }
            Some(ProviderKind::Command(command))
        }
        name => WireForm::parse(name).map(ProviderKind::Endpoint),
    }
}

/// Reads a text that is not blank.
pub fn read_nonblank_text(
    doc: &YamlDocument,
    node: &YamlNode,
    key: &str,
    example: &str,
) -> Option<String> {
    let text = doc.expect_text(node, &format!("`{key}`"))?;
    if text.trim().is_empty() {
        doc.report(node, format!("`{key}` is empty"), format!("write `{key}: {example}`"));
        return None;
    }
    Some(text.to_owned())
}

/// Reports the keys of the request body that the engine itself sets.
fn report_engine_keys(doc: &YamlDocument, fields: MappingFields<'_>, form: Option<WireForm>) {
    let keys = form.unwrap_or(WireForm::OpenAi).engine_keys();
    for (key, _) in fields.node.entries() {
        let name = key.scalar().unwrap_or_default();
        if keys.contains(&name) {
            doc.report(key, format!("`{name}` is set by the engine"), "remove the key");
        }
    }
}

/// Reports the keys of `generationConfig` that bound the answer where a limit does not see it.
fn report_generation_keys(doc: &YamlDocument, fields: MappingFields<'_>, form: Option<WireForm>) {
    let config = fields.node.get("generationConfig").filter(|_| form == Some(WireForm::Gemini));
    for (key, _) in config.into_iter().flat_map(YamlNode::entries) {
        let name = key.scalar().unwrap_or_default();
        if let Some((_, help)) = GEMINI_LENGTH_KEYS.iter().find(|(known, _)| *known == name) {
            let message = format!("`generationConfig` cannot contain `{name}`");
            doc.report(key, message, (*help).to_owned());
        }
    }
}

/// Reports the keys that the requested version of the form no longer has.
fn report_retired_keys(doc: &YamlDocument, fields: MappingFields<'_>, form: Option<WireForm>) {
    let Some(form @ WireForm::Anthropic) = form else { return };
    let version = fields.text("api_version").or(form.default_api_version()).unwrap_or_default();
    // Versions are dates, which sort as text.
    if version < NO_SAMPLING_VERSION {
        return;
    }
    for (key, value) in fields.node.entries() {
        let name = key.scalar().unwrap_or_default();
        if SAMPLING_KEYS.contains(&name) && !value.is_null() {
            let message = format!("`{name}` is not taken since API version {NO_SAMPLING_VERSION}");
            doc.report(key, message, "take it out, or write `api_version: \"2023-06-01\"`");
        }
    }
}

fn check_base_url(doc: &YamlDocument, fields: MappingFields<'_>, base_url: Option<&str>) {
    let Some(node) = fields.non_null("base_url") else { return };
    let Some(base_url) = base_url else { return };
    let has_host = base_url
        .parse::<http::Uri>()
        .is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    let has_scheme = base_url.starts_with("http://") || base_url.starts_with("https://");
    if !has_host || !has_scheme {
        let help = "write it with its scheme, such as `http://localhost:11434/v1`";
        let excerpt = terminal_text::truncate_to_line(&mask_url(base_url), 80);
        doc.report(node, format!("expected the URL of an LLM endpoint, found `{excerpt}`"), help);
    }
}

/// The keys that are copied into the request body.
fn read_body(doc: &YamlDocument, fields: MappingFields<'_>) -> Map<String, Json> {
    let mut body = Map::new();
    for (key, value) in fields.node.entries() {
        let name = key.scalar().unwrap_or_default();
        let is_setting = LLM_MAPPING.key(name).is_some() && !BODY_KEYS.contains(&name);
        if is_setting || name.starts_with("x-") {
            continue;
        }
        // A count such as `4k` is a number for the endpoint.
        let count = if name == "max_tokens" { fields.integer(name).map(Json::from) } else { None };
        if let Some(value) = count.or_else(|| doc.to_json(value)) {
            body.insert(name.to_owned(), value);
        }
    }
    body
}
