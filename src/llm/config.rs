//! The `llm:` section of agent.yaml.

use super::cassette::Cassette;
use super::script::ScriptFile;
use crate::diag::{Diagnostic, Report};
use crate::text;
use crate::yaml::shape::{Default, Key, Shape};
use crate::yaml::{Document, Fields, Mapping, Node};
use serde_json::{Map, Value as Json};
use std::fmt;
use std::path::Path;
use std::rc::Rc;

/// The section `llm:` of agent.yaml.
pub static LLM: Mapping = Mapping {
    what: "`llm`",
    about: "How the LLM is reached, and what it is asked with. Keys beyond these go into the request body unchanged.",
    keys: &[
        Key::required(
            "model",
            Shape::Text,
            "The model's name; the path of a file for the providers `script` and `recorded`.",
        ),
        Key::with_default(
            "provider",
            // Its reader has a better word for the others.
            Shape::Either(&[Shape::Choice(&PROVIDERS)]),
            Default::Text("openai"),
            "Who answers: an OpenAI-compatible endpoint, a script file, a command, or a cassette.",
        ),
        Key::optional(
            "base_url",
            Shape::Pattern("https?://.*"),
            "The endpoint's address, such as `http://localhost:11434/v1`; it wins over DELTA_BASE_URL.",
        ),
        Key::optional(
            "api_key_env",
            Shape::Text,
            "The variable that holds the key; it wins over DELTA_API_KEY.",
        ),
        Key::optional(
            "command",
            Shape::List(&Shape::Text),
            "For the provider `command`: a program and its arguments; the request on stdin, the answer on stdout.",
        ),
        Key::with_default(
            "stream",
            Shape::Boolean,
            Default::Boolean(true),
            "Whether answers are asked for as streams.",
        ),
        Key::with_default(
            "timeout_ms",
            Shape::Integer(1..1 << 40),
            Default::Integer(600_000),
            "Milliseconds for a whole answer.",
        ),
        Key::with_default(
            "idle_timeout_ms",
            Shape::Integer(1..1 << 40),
            Default::Integer(120_000),
            "Milliseconds without a byte.",
        ),
        Key::with_default(
            "max_retries",
            Shape::Integer(0..101),
            Default::Integer(5),
            "How often a failed call is tried again.",
        ),
        Key::optional("pricing", Shape::Mapping(&PRICING), "What tokens cost, in USD per million."),
        Key::with_default(
            "echo_reasoning",
            Shape::Boolean,
            Default::Boolean(false),
            "Whether reasoning that came beside an answer is sent back.",
        ),
        Key::optional("temperature", Shape::Number(0.0, 2.0), "Goes into the request."),
        Key::optional("max_tokens", Shape::Integer(1..1 << 40), "Goes into the request."),
        Key::refused("messages", "Written by the engine."),
        Key::refused("tools", "Written by the engine."),
        Key::refused("stream_options", "Written by the engine."),
    ],
    one_of: &[],
    open: true,
};

static PRICING: Mapping = Mapping {
    what: "`pricing`",
    about: "What tokens cost, in USD per million.",
    keys: &[
        Key::required("input", USD, "Input tokens."),
        Key::optional(
            "cached_input",
            USD,
            "Input tokens from the endpoint's cache; as `input` by default.",
        ),
        Key::required("output", USD, "Output tokens."),
    ],
    one_of: &[],
    open: false,
};

const USD: Shape = Shape::Number(0.0, f64::MAX);

/// Keys of the table that go into the request body all the same.
const BODY_KEYS: [&str; 2] = ["temperature", "max_tokens"];

/// The names of the providers.
const PROVIDERS: [&str; 4] = ["openai", "script", "command", "recorded"];

const CASSETTE_HELP: &str = "for the `recorded` provider, `model` is the path of a cassette, which `delta test --record` makes";
const SCRIPT_HELP: &str = "for the `script` provider, `model` is the path of a script file";
/// What is to be done where a cost is to be limited that is not known.
pub const PRICING_HELP: &str = "write into `llm:` what tokens cost in USD per million, such as `pricing: {input: 2.5, output: 10}`; zeros for what costs nothing";
const COMMAND_HELP: &str = "write `command: [PROGRAM, ARG, ...]`; it gets the request on stdin";

/// How the LLM is reached, and what it is asked with.
#[derive(Debug, Clone)]
pub struct LlmConfig {
    /// The model's name.
    pub model: String,
    /// Who answers.
    pub provider: ProviderKind,
    /// The address, when agent.yaml names one.
    pub base_url: Option<String>,
    /// The variable that holds the key, when agent.yaml names one.
    pub api_key_env: Option<String>,
    /// Whether answers are asked for as streams.
    pub stream: bool,
    /// For a whole answer, in milliseconds.
    pub timeout_ms: u64,
    /// Without a byte, in milliseconds.
    pub idle_timeout_ms: u64,
    /// How often a failed call is tried again.
    pub max_retries: u32,
    /// What tokens cost.
    pub pricing: Option<Pricing>,
    /// Whether reasoning is sent back.
    pub echo_reasoning: bool,
    /// Everything else of the request body, in the file's order.
    pub body: Map<String, Json>,
}

/// Who answers.
#[derive(Debug, Clone)]
pub enum ProviderKind {
    /// An OpenAI-compatible endpoint.
    Openai,
    /// A script.
    Script(Rc<ScriptFile>),
    /// A command.
    Command(Vec<String>),
    /// What an LLM answered once.
    Recorded(Rc<Cassette>),
}

impl ProviderKind {
    /// Its name in agent.yaml.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Script(_) => "script",
            Self::Command(_) => "command",
            Self::Recorded(_) => "recorded",
        }
    }

    /// Whether an answer can be asked for as a stream. A request to a cassette is the one that was recorded.
    pub fn streams(&self) -> bool {
        match self {
            Self::Openai => true,
            Self::Recorded(cassette) => cassette.head.provider == "openai",
            Self::Script(_) | Self::Command(_) => false,
        }
    }
}

/// USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pricing {
    input: f64,
    cached_input: f64,
    output: f64,
}

impl Pricing {
    /// What a call cost, in USD. Cached input is priced as its own; source: the endpoints' price lists count cached
    /// tokens as a part of the input tokens.
    pub fn cost(&self, usage: &super::Usage) -> f64 {
        let fresh = usage.input_tokens.saturating_sub(usage.cached_input_tokens);
        let sum = fresh as f64 * self.input
            + usage.cached_input_tokens as f64 * self.cached_input
            + usage.output_tokens as f64 * self.output;
        sum / 1e6
    }

    /// The most that a call of so many tokens can cost, in USD.
    pub fn most(&self, input: u64, output: u64) -> f64 {
        let dearest = self.input.max(self.cached_input);
        (input as f64 * dearest + output as f64 * self.output) / 1e6
    }

    /// What input costs, in USD, of which `cached` tokens come from the endpoint's cache and `fresh` do not.
    pub fn input(&self, fresh: u64, cached: u64) -> f64 {
        (fresh as f64 * self.input + cached as f64 * self.cached_input) / 1e6
    }

    /// What so many tokens of input cost more when they do not come from the endpoint's cache, in USD.
    pub fn without_cache(&self, tokens: u64) -> f64 {
        tokens as f64 * (self.input - self.cached_input) / 1e6
    }

    /// The prices in the text of an agent.yaml that was loaded before; `None` when it has none.
    pub fn of_agent(text: &str) -> Option<Self> {
        let doc = Document::parse("agent.yaml", text).ok()?;
        read_pricing(&doc, doc.root.get("llm")?.get("pricing")?)
    }
}

impl LlmConfig {
    /// Whether it is known what a call costs. A script costs nothing.
    pub fn is_priced(&self) -> bool {
        self.pricing.is_some() || matches!(self.provider, ProviderKind::Script(_))
    }

    /// Reads the section. `choice` is the operator's `--model`; a script is read from beside the agent, or from where
    /// the operator stands when it is theirs.
    pub fn read(
        doc: &Document,
        node: &Node,
        home: &Path,
        choice: Option<&ModelChoice>,
    ) -> Option<Self> {
        let fields = doc.fields(node, &LLM)?;
        check_own_keys(doc, fields);
        let model_node = fields.require("model", "gpt-4o");
        let model = model_node.and_then(|node| filled(doc, node, "model", "gpt-4o"));
        let (kind, model) = match choice {
            None => (read_provider(doc, fields, model_node, model.as_deref(), home), model),
            Some(choice) => (choice.read(doc, fields, home), Some(choice.model.clone())),
        };
        let model = match (&kind, choice) {
            // The request is that of the agent as it is now.
            (Some(ProviderKind::Recorded(_)), Some(_)) if asks(fields) => {
                fields.text("model").map(str::to_owned)
            }
            (Some(ProviderKind::Recorded(cassette)), _) => Some(cassette.head.model.clone()),
            _ => model,
        };
        let text = |key: &str| fields.text(key).map(str::to_owned);
        let (base_url, api_key_env) = (text("base_url"), text("api_key_env"));
        check_address(doc, fields, base_url.as_deref());
        let pricing = fields.given("pricing").map(|node| read_pricing(doc, node));
        let body = read_body(doc, fields);
        Some(Self {
            model: model?,
            provider: kind?,
            base_url,
            api_key_env,
            stream: fields.boolean("stream"),
            timeout_ms: fields.integer("timeout_ms")?,
            idle_timeout_ms: fields.integer("idle_timeout_ms")?,
            max_retries: u32::try_from(fields.integer("max_retries")?).ok()?,
            pricing: pricing.flatten(),
            echo_reasoning: fields.boolean("echo_reasoning"),
            body,
        })
    }
}

/// Whether `model` is the name of one, and not a file.
fn asks(fields: Fields<'_>) -> bool {
    matches!(fields.text("provider"), Some("openai" | "command"))
}

/// The operator's `--model NAME` or `--model PROVIDER:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    provider: Option<String>,
    model: String,
}

impl ModelChoice {
    /// Reads the option. A model may have a colon of its own (`llama3:8b`): only the names of providers count before one,
    /// and what is nearly one is taken for a slip.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (provider, model) = match text.split_once(':') {
            Some((provider, model)) if PROVIDERS.contains(&provider) => {
                (Some(provider.to_owned()), model)
            }
            Some((word, _)) if is_slip(word) => {
                let help = text::did_you_mean(word, PROVIDERS);
                return Err(format!(
                    "`{word}` is not a provider; {help} (a model of that name is openai:{text})"
                ));
            }
            _ => (None, text),
        };
        match model.is_empty() {
            true => Err("write --model NAME or --model PROVIDER:NAME".to_owned()),
            false => Ok(Self { provider, model: model.to_owned() }),
        }
    }

    /// The model of an endpoint, whatever its name looks like.
    pub fn endpoint(model: &str) -> Self {
        Self { provider: Some(PROVIDERS[0].to_owned()), model: model.to_owned() }
    }

    /// Who answers. What is wrong is the operator's mistake, and no line of the file is to blame.
    fn read(&self, doc: &Document, fields: Fields<'_>, home: &Path) -> Option<ProviderKind> {
        let blame = |message: String, help: &str| {
            let option = format!("--model {self}");
            let mut report = Report::default();
            report.push(Diagnostic::of_file(option, message, Some(help.to_owned())));
            doc.adopt(&mut report);
        };
        let command = fields.texts("command");
        let own = own_provider(doc, fields);
        match self.provider.as_deref().or(own).unwrap_or_default() {
            "openai" => Some(ProviderKind::Openai),
            "script" => {
                // The operator's path counts from where they stand.
                let own = Path::new(&self.model);
                let path = if own.exists() { own.to_owned() } else { home.join(own) };
                read_script(doc, &path).map_err(|message| blame(message, SCRIPT_HELP)).ok()?
            }
            "recorded" => {
                let own = Path::new(&self.model);
                let path = if own.exists() { own.to_owned() } else { home.join(own) };
                read_cassette(doc, &path).map_err(|message| blame(message, CASSETTE_HELP)).ok()?
            }
            "command" if command.is_empty() => {
                blame("the agent's `llm` has no `command`".to_owned(), COMMAND_HELP);
                None
            }
            "command" => Some(ProviderKind::Command(command)),
            _ => None,
        }
    }
}

impl fmt::Display for ModelChoice {
    /// As the operator writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, model } = self;
        provider.iter().try_for_each(|provider| write!(f, "{provider}:"))?;
        f.write_str(model)
    }
}

/// Whether `word` is nearly the name of a provider, as the part of a `--model` before its colon.
fn is_slip(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphabetic()) && !text::nearest(word, PROVIDERS).is_empty()
}

/// The name of the agent's own provider.
fn own_provider<'a>(doc: &Document, fields: Fields<'a>) -> Option<&'a str> {
    let given = fields.given("provider");
    let name = given.map_or(fields.text("provider"), Node::scalar).unwrap_or_default();
    if PROVIDERS.contains(&name) {
        return Some(name);
    }
    let help = match text::nearest(name, PROVIDERS).is_empty() {
        true => "every endpoint that is compatible with OpenAI's is `provider: openai`, with its address as `base_url`"
            .to_owned(),
        false => text::did_you_mean(name, PROVIDERS),
    };
    let message = "`provider` must be `openai`, `script`, `command` or `recorded`";
    doc.fault(given.unwrap_or(fields.node), message, Some(help));
    None
}

/// Who answers, by the agent's own words.
fn read_provider(
    doc: &Document,
    fields: Fields<'_>,
    model_node: Option<&Node>,
    model: Option<&str>,
    home: &Path,
) -> Option<ProviderKind> {
    let at = fields.given("provider").or(model_node).unwrap_or(fields.node);
    let command = fields.texts("command");
    match own_provider(doc, fields).unwrap_or_default() {
        "openai" => Some(ProviderKind::Openai),
        "script" => {
            let blame = |message| {
                doc.fault(model_node.unwrap_or(at), message, Some(SCRIPT_HELP.to_owned()))
            };
            read_script(doc, &home.join(model?)).map_err(blame).ok()?
        }
        "recorded" => {
            let blame = |message| {
                doc.fault(model_node.unwrap_or(at), message, Some(CASSETTE_HELP.to_owned()))
            };
            read_cassette(doc, &home.join(model?)).map_err(blame).ok()?
        }
        "command" if command.is_empty() => {
            let message = "provider `command` needs a `command`";
            doc.fault(at, message, Some(COMMAND_HELP.to_owned()));
            None
        }
        "command" => Some(ProviderKind::Command(command)),
        _ => None,
    }
}

/// A text that is not blank.
pub fn filled(doc: &Document, node: &Node, key: &str, example: &str) -> Option<String> {
    let text = doc.text(node, &format!("`{key}`"))?;
    if text.trim().is_empty() {
        doc.fault(node, format!("`{key}` is empty"), Some(format!("write `{key}: {example}`")));
        return None;
    }
    Some(text.to_owned())
}

/// Refuses what the engine writes into the request body itself.
fn check_own_keys(doc: &Document, fields: Fields<'_>) {
    for (key, _) in fields.node.entries() {
        let name = key.scalar().unwrap_or_default();
        if LLM.key(name).is_some_and(|key| matches!(key.shape, Shape::Refused)) {
            doc.fault(
                key,
                format!("`{name}` is written by the engine"),
                Some("take it out".to_owned()),
            );
        }
    }
}

fn check_address(doc: &Document, fields: Fields<'_>, address: Option<&str>) {
    let (Some(node), Some(address)) = (fields.given("base_url"), address) else { return };
    let is_one = address
        .parse::<ureq::http::Uri>()
        .is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    if !is_one || !address.starts_with("http://") && !address.starts_with("https://") {
        let help = "write it with its scheme, such as `http://localhost:11434/v1`";
        let shown = text::one_line(address, 80);
        doc.fault(node, format!("`{shown}` is not an address"), Some(help.to_owned()));
    }
}

fn read_pricing(doc: &Document, node: &Node) -> Option<Pricing> {
    let fields = doc.fields(node, &PRICING)?;
    let number = |key: &str| doc.json(fields.given(key)?)?.as_f64();
    let require = |key: &str| fields.require(key, "2.5").and_then(|_| number(key));
    let (input, output) = (require("input"), require("output"));
    let cached_input = number("cached_input");
    Some(Pricing { input: input?, cached_input: cached_input.unwrap_or(input?), output: output? })
}

fn read_body(doc: &Document, fields: Fields<'_>) -> Map<String, Json> {
    let mut body = Map::new();
    for (key, value) in fields.node.entries() {
        let name = key.scalar().unwrap_or_default();
        let own = LLM.key(name).is_some() && !BODY_KEYS.contains(&name);
        if own || name.starts_with("x-") {
            continue;
        }
        if let Some(value) = doc.json(value) {
            body.insert(name.to_owned(), value);
        }
    }
    body
}

/// A script; `Ok(None)` when its own mistakes have been told.
///
/// # Errors
/// Why it cannot be read.
fn read_script(doc: &Document, path: &Path) -> Result<Option<ProviderKind>, String> {
    let text = crate::durable::read_regular_text(path)
        .map_err(|error| format!("the script {} cannot be read: {error}", path.display()))?;
    match ScriptFile::parse(&path.display().to_string(), &text) {
        Ok(script) => Ok(Some(ProviderKind::Script(Rc::new(script)))),
        Err(mut report) => {
            doc.adopt(&mut report);
            Ok(None)
        }
    }
}

/// A cassette, likewise.
fn read_cassette(doc: &Document, path: &Path) -> Result<Option<ProviderKind>, String> {
    let text = crate::durable::read_regular_text(path)
        .map_err(|error| format!("the cassette {} cannot be read: {error}", path.display()))?;
    match Cassette::parse(&path.display().to_string(), &text) {
        Ok(cassette) => Ok(Some(ProviderKind::Recorded(Rc::new(cassette)))),
        Err(mut report) => {
            doc.adopt(&mut report);
            Ok(None)
        }
    }
}
