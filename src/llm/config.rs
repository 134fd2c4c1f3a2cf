//! The `llm:` section of agent.yaml.

use super::script::ScriptFile;
use crate::yaml::{Document, Fields, Node};
use serde_json::{Map, Value as Json};
use std::path::Path;
use std::rc::Rc;

/// The keys that are the engine's; every other one goes into the request body.
const KEYS: [&str; 12] = [
    "model",
    "provider",
    "base_url",
    "api_key_env",
    "command",
    "stream",
    "timeout_ms",
    "idle_timeout_ms",
    "max_retries",
    "pricing",
    "temperature",
    "echo_reasoning",
];

/// Keys of the request body that the engine writes itself.
const OWN_BODY_KEYS: [&str; 3] = ["messages", "tools", "stream_options"];

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
}

impl ProviderKind {
    /// Its name in agent.yaml.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Script(_) => "script",
            Self::Command(_) => "command",
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
}

impl LlmConfig {
    /// Reads the section. `choice` is the operator's `--model`; a script is read from beside the agent, or from where
    /// the operator stands when it is theirs.
    pub fn read(
        doc: &Document,
        node: &Node,
        home: &Path,
        choice: Option<&ModelChoice>,
    ) -> Option<Self> {
        let fields = doc.open_fields(node, "`llm`")?;
        check_own_keys(doc, fields);
        let model_node = doc.require(fields, "model", "`llm`", "gpt-4o");
        let model = model_node.and_then(|node| filled(doc, node, "model", "gpt-4o"));
        let provider_node = fields.given("provider");
        let provider =
            provider_node.and_then(|node| doc.text(node, "`provider`")).unwrap_or("openai");
        let (provider, model) = match choice {
            None => (provider, model),
            Some(choice) => {
                (choice.provider.as_deref().unwrap_or(provider), Some(choice.model.clone()))
            }
        };
        let command = fields.given("command").and_then(|node| doc.texts(node, "`command`"));
        let at = provider_node.or(model_node).unwrap_or(node);
        let kind = match provider {
            "openai" => Some(ProviderKind::Openai),
            "script" => model.as_deref().and_then(|file| {
                read_script(doc, model_node.unwrap_or(node), file, home, choice.is_some())
            }),
            "command" => match command.filter(|argv| !argv.is_empty()) {
                Some(argv) => Some(ProviderKind::Command(argv)),
                None => {
                    let help = "write `command: [PROGRAM, ARG, ...]`; it gets the request on stdin";
                    doc.fault(at, "provider `command` needs a `command`", Some(help.to_owned()));
                    None
                }
            },
            other => {
                let help = crate::text::did_you_mean(other, ["openai", "script", "command"]);
                doc.fault(at, format!("`{other}` is not a provider"), Some(help));
                None
            }
        };
        let stream = fields.given("stream").map(|node| doc.boolean(node, "`stream`"));
        let millis = |key: &str| {
            fields.given(key).map(|node| doc.integer(node, &format!("`{key}`"), 1..1 << 40))
        };
        let (timeout, idle) = (millis("timeout_ms"), millis("idle_timeout_ms"));
        let retries =
            fields.given("max_retries").map(|node| doc.integer(node, "`max_retries`", 0..101));
        let echo = fields.given("echo_reasoning").map(|node| doc.boolean(node, "`echo_reasoning`"));
        let text = |key: &str| {
            fields.given(key).map(|node| doc.text(node, &format!("`{key}`")).map(str::to_owned))
        };
        let (base_url, api_key_env) = (text("base_url"), text("api_key_env"));
        check_address(doc, fields, base_url.as_ref());
        let pricing = fields.given("pricing").map(|node| read_pricing(doc, node));
        let body = read_body(doc, fields);
        Some(Self {
            model: model?,
            provider: kind?,
            base_url: base_url.flatten(),
            api_key_env: api_key_env.flatten(),
            stream: stream.flatten().unwrap_or(true),
            timeout_ms: timeout.flatten().unwrap_or(600_000),
            idle_timeout_ms: idle.flatten().unwrap_or(120_000),
            max_retries: retries.flatten().map_or(5, |n| u32::try_from(n).unwrap_or(5)),
            pricing: pricing.flatten(),
            echo_reasoning: echo.flatten().unwrap_or(false),
            body,
        })
    }
}

/// The operator's `--model NAME` or `--model PROVIDER:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    provider: Option<String>,
    model: String,
}

impl ModelChoice {
    /// Reads the option. A model may have a colon of its own (`llama3:8b`): only the names of providers count before one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (provider, model) = match text.split_once(':') {
            Some((provider @ ("openai" | "script" | "command"), model)) => {
                (Some(provider.to_owned()), model)
            }
            _ => (None, text),
        };
        match model.is_empty() {
            true => Err("write --model NAME or --model PROVIDER:NAME".to_owned()),
            false => Ok(Self { provider, model: model.to_owned() }),
        }
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
        if OWN_BODY_KEYS.contains(&name) {
            doc.fault(
                key,
                format!("`{name}` is written by the engine"),
                Some("take it out".to_owned()),
            );
        }
    }
}

fn check_address(doc: &Document, fields: Fields<'_>, address: Option<&Option<String>>) {
    let (Some(node), Some(Some(address))) = (fields.given("base_url"), address) else { return };
    if !address.starts_with("http://") && !address.starts_with("https://") {
        let help = "write it with its scheme, such as `http://localhost:11434/v1`";
        doc.fault(node, format!("`{address}` is not an address"), Some(help.to_owned()));
    }
}

fn read_pricing(doc: &Document, node: &Node) -> Option<Pricing> {
    let fields = doc.fields(node, "`pricing`", &["input", "cached_input", "output"])?;
    let number = |key: &str| -> Option<f64> {
        let node = fields.given(key)?;
        let value = doc.json(node)?.as_f64().filter(|value| *value >= 0.0);
        if value.is_none() {
            doc.fault(node, format!("`{key}` must be a number of USD per million tokens"), None);
        }
        value
    };
    let require =
        |key: &str| doc.require(fields, key, "`pricing`", "2.5").and_then(|_| number(key));
    let (input, output) = (require("input"), require("output"));
    let cached_input = number("cached_input");
    Some(Pricing { input: input?, cached_input: cached_input.unwrap_or(input?), output: output? })
}

fn read_body(doc: &Document, fields: Fields<'_>) -> Map<String, Json> {
    let mut body = Map::new();
    for (key, value) in fields.node.entries() {
        let name = key.scalar().unwrap_or_default();
        if name == "temperature" {
            let number = doc.json(value).and_then(|value| value.as_f64());
            if number.is_none_or(|number| !(0.0..=2.0).contains(&number)) {
                doc.fault(value, "`temperature` must be a number from 0 to 2", None);
            }
        } else if name == "max_tokens" {
            doc.integer(value, "`max_tokens`", 1..1 << 40);
        } else if KEYS.contains(&name) || name.starts_with("x-") || OWN_BODY_KEYS.contains(&name) {
            continue;
        }
        if let Some(value) = doc.json(value) {
            body.insert(name.to_owned(), value);
        }
    }
    body
}

fn read_script(
    doc: &Document,
    at: &Node,
    file: &str,
    home: &Path,
    chosen: bool,
) -> Option<ProviderKind> {
    let path = if chosen && Path::new(file).exists() {
        Path::new(file).to_owned()
    } else {
        home.join(file)
    };
    let help = "for the `script` provider, `model` is the path of a script file".to_owned();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            doc.fault(
                at,
                format!("the script {} cannot be read: {error}", path.display()),
                Some(help),
            );
            return None;
        }
    };
    match ScriptFile::parse(&path.display().to_string(), &text) {
        Ok(script) => Some(ProviderKind::Script(Rc::new(script))),
        Err(mut report) => {
            doc.adopt(&mut report);
            None
        }
    }
}
