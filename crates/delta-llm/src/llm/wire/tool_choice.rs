//! Which calls a request allows or demands, in the form of each endpoint, and what endpoints make of that.
//!
//! OpenAI, vLLM (docs.vllm.ai, Tool Calling) and SGLang (sgl-project/sglang#6550) constrain the answer to the named tool.
//! llama.cpp takes the object that names a tool for `auto` without a word (ggml-org/llama.cpp#26535), but enforces the word
//! `required` with most templates (#27217); LM Studio refuses the object and names the words (lmstudio-bug-tracker#670); Ollama
//! ignores all of it (ollama/ollama#17921). Models that think refuse any demand: of DeepSeek (deepseek-ai/DeepSeek-R1#836), and
//! Anthropic's with `thinking` (run-llama/llama_index#19641). OpenRouter answers 404 where no provider takes it
//! (zed-industries/zed#36094).

use super::RejectedRequest;
use super::gemini::wire_tool_name;
use delta_words::{EncodeOptions, ForcedCall, WireForm};
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingFields, MappingSchema, YamlDocument, YamlNode};
use serde_json::{Map, Value as Json, json};

/// The member of a request, and the key of agent.yaml.
const CHOICE_KEY: &str = "tool_choice";
/// The member of Gemini's requests.
const GEMINI_CONFIG_KEY: &str = "toolConfig";
const GEMINI_CALLING_KEY: &str = "functionCallingConfig";
const GEMINI_MODE: &str = "/functionCallingConfig/mode";

/// The key `tool_choice`.
pub const TOOL_CHOICE_KEY: KeySchema = KeySchema::optional(
    CHOICE_KEY,
    TOOL_CHOICE_SHAPE,
    "Whether the LLM has to call a tool: `auto`, `required`, `none`, or what the endpoint takes; `{first: required}` is for the first request of a run.",
);

const TOOL_CHOICE_SHAPE: ValueShape =
    ValueShape::OneOf(&[ValueShape::Text, ValueShape::Mapping(&TOOL_CHOICE_MAPPING)]);

static TOOL_CHOICE_MAPPING: MappingSchema = MappingSchema {
    label: "`tool_choice`",
    description: "A value for the first request of a run and one for the others, or the endpoint's own keys.",
    keys: &[
        KeySchema::optional("first", ValueShape::Any, "The value for the first request of a run."),
        KeySchema::optional("then", ValueShape::Any, "The value for the other requests."),
    ],
    exactly_one_of: &[],
    allows_other_keys: true,
};

/// The key `tool_choice` of agent.yaml.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolChoice {
    /// The value for the first request of a run.
    pub first: Option<Json>,
    /// The value for the others.
    pub then: Option<Json>,
}

impl ToolChoice {
    /// Reads the key; a mapping that mixes `first` and `then` with others is reported.
    pub(in super::super) fn read(doc: &YamlDocument, fields: MappingFields<'_>) -> Self {
        let Some(node) = fields.non_null(CHOICE_KEY) else { return Self::default() };
        if node.scalar().is_none() && doc.expect_mapping(node, "`tool_choice`").is_none() {
            return Self::default();
        }
        let [first, then] = ["first", "then"].map(|name| node.get(name));
        if first.is_none() && then.is_none() {
            let value = doc.to_json(node);
            return Self { first: value.clone(), then: value };
        }
        for (key, _) in node.entries() {
            let name = key.scalar().unwrap_or_default();
            if !matches!(name, "first" | "then") {
                let message = format!("`{name}` cannot be next to `first` and `then`");
                let help = "put the endpoint's own keys below them: `first: {type: any}`";
                doc.report(key, message, help);
            }
        }
        let to_json = |node: &YamlNode| doc.to_json(node).filter(|value| !value.is_null());
        Self { first: first.and_then(to_json), then: then.and_then(to_json) }
    }

    /// Whether `then`, or the member of Gemini in `body`, leaves calls to the LLM or rules them out.
    pub(in super::super) fn leaves_calls_free(&self, body: &Map<String, Json>) -> bool {
        let mode = body.get(GEMINI_CONFIG_KEY).and_then(|config| config.pointer(GEMINI_MODE));
        let word = self.then.as_ref().and_then(choice_word).or(mode.and_then(Json::as_str));
        matches!(word, Some("auto" | "none" | "AUTO" | "NONE"))
    }
}

/// The word of a choice that is one: `none` and `{type: none}`.
fn choice_word(choice: &Json) -> Option<&str> {
    match choice {
        Json::Object(members) if members.len() == 1 => members.get("type")?.as_str(),
        choice => choice.as_str(),
    }
}

/// Sets the choice in the body of a request for `form`. The words of Chat Completions mean the same in every form.
pub fn set_tool_choice(form: WireForm, body: &mut Map<String, Json>, choice: Option<&Json>) {
    let Some(choice) = choice else {
        body.shift_remove(CHOICE_KEY);
        return;
    };
    match (form, choice.as_str()) {
        (WireForm::Anthropic, Some(word @ ("auto" | "none"))) => {
            body.insert(CHOICE_KEY.to_owned(), json!({"type": word}));
        }
        (WireForm::Anthropic, Some("required")) => force_call(form, body, None),
        (WireForm::Gemini, Some("required")) => force_call(form, body, None),
        (WireForm::Gemini, Some(word @ ("auto" | "none"))) => {
            set_calling_config(body, json!({"mode": word.to_uppercase()}));
        }
        _ => {
            body.insert(CHOICE_KEY.to_owned(), choice.clone());
        }
    }
}

/// Makes the body of a request for `form` demand a call: of the tool `name`, or of any.
pub fn force_call(form: WireForm, body: &mut Map<String, Json>, name: Option<&str>) {
    let choice = match (form, name) {
        (WireForm::OpenAi, Some(name)) => json!({"type": "function", "function": {"name": name}}),
        (WireForm::Responses, Some(name)) => json!({"type": "function", "name": name}),
        (WireForm::OpenAi | WireForm::Responses, None) => json!("required"),
        (WireForm::Anthropic, name) => {
            let mut choice = match name {
                Some(name) => json!({"type": "tool", "name": name}),
                None => json!({"type": "any"}),
            };
            let is_single = body.get(CHOICE_KEY).and_then(|old| old.get(SINGLE_CALL_KEY)).cloned();
            is_single.into_iter().for_each(|value| choice[SINGLE_CALL_KEY] = value);
            choice
        }
        (WireForm::Gemini, name) => {
            let mut config = json!({"mode": "ANY"});
            if let Some(name) = name {
                config["allowedFunctionNames"] = json!([wire_tool_name(name)]);
            }
            return set_calling_config(body, config);
        }
    };
    body.insert(CHOICE_KEY.to_owned(), choice);
}

/// The key of Anthropic's choice that allows one call in an answer.
const SINGLE_CALL_KEY: &str = "disable_parallel_tool_use";

/// Sets how Gemini calls functions; the rest of its configuration of tools stays.
fn set_calling_config(body: &mut Map<String, Json>, calling: Json) {
    body.shift_remove(CHOICE_KEY);
    let config = body.entry(GEMINI_CONFIG_KEY).or_insert_with(|| json!({}));
    if !config.is_object() {
        *config = json!({});
    }
    config[GEMINI_CALLING_KEY] = calling;
}

/// Parts of the messages with which endpoints refuse a demand for a call, in lower case.
const REFUSAL_PHRASES: [&str; 7] = [
    "tool_choice",
    "tool choice",
    "toolchoice",
    "functioncallingconfig",
    "function_calling_config",
    "function calling mode",
    "forced function call",
];

/// The options with which a request is sent again whose demand for a call the endpoint refused.
pub fn refused_choice_options(rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
    let RejectedRequest { status, response, sent, options } = *rejected;
    let lower_response = response.to_lowercase();
    let is_about_choice = matches!(status, 200 | 400 | 404 | 422 | 500 | 501)
        && REFUSAL_PHRASES.iter().any(|phrase| lower_response.contains(phrase));
    let names_tool = sent.contains("\"tool_choice\":{\"type\":\"function\"");
    let forced_call = match options.forced_call {
        _ if !is_about_choice => return None,
        // The endpoint takes words, and names them.
        None if names_tool && lower_response.contains("required") => ForcedCall::Any,
        None | Some(ForcedCall::Any) => ForcedCall::Omitted,
        Some(ForcedCall::Omitted) => return None,
    };
    Some(EncodeOptions { forced_call: Some(forced_call), ..options.clone() })
}

/// The request with as much of its demand for a call as the endpoint takes; `None` if it is the same.
pub(super) fn weaken_forced_call(
    form: WireForm,
    request: &str,
    rest: ForcedCall,
) -> Option<String> {
    let mut body: Map<String, Json> = serde_json::from_str(request).ok()?;
    match (rest, form) {
        (ForcedCall::Any, form) => force_call(form, &mut body, None),
        (ForcedCall::Omitted, WireForm::Gemini) => {
            let config = body.get_mut(GEMINI_CONFIG_KEY)?.as_object_mut()?;
            config.shift_remove(GEMINI_CALLING_KEY)?;
            if config.is_empty() {
                body.shift_remove(GEMINI_CONFIG_KEY);
            }
        }
        (ForcedCall::Omitted, _) => {
            body.shift_remove(CHOICE_KEY)?;
        }
    }
    let weakened = Json::from(body).to_string();
    (weakened != request).then_some(weakened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_37_8_a_demand_has_the_form_of_its_endpoint() {
        let forced = |form, body: Json, name| {
            let mut body = body.as_object().unwrap().clone();
            force_call(form, &mut body, name);
            Json::from(body)
        };
        let named = [
            (
                WireForm::OpenAi,
                json!({"tool_choice": {"type": "function", "function": {"name": "a"}}}),
            ),
            (WireForm::Responses, json!({"tool_choice": {"type": "function", "name": "a"}})),
            (WireForm::Anthropic, json!({"tool_choice": {"type": "tool", "name": "a"}})),
            (
                WireForm::Gemini,
                json!({"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a"]}}}),
            ),
        ];
        for (form, expected) in named {
            assert_eq!(forced(form, json!({}), Some("a")), expected);
            let mut words = Map::new();
            set_tool_choice(form, &mut words, Some(&json!("required")));
            assert_eq!(Json::from(words), forced(form, json!({}), None));
        }
        let single = json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
        let kept = forced(WireForm::Anthropic, single, Some("a"));
        assert_eq!(kept["tool_choice"]["disable_parallel_tool_use"], true);
        let config = json!({"toolConfig": {"retrievalConfig": {"languageCode": "de"}}});
        let kept = forced(WireForm::Gemini, config, None);
        assert_eq!(kept["toolConfig"]["retrievalConfig"]["languageCode"], "de");
    }

    #[test]
    fn c_37_8_a_refused_demand_becomes_a_word_or_is_left_out() {
        let sent = r#"{"tool_choice":{"type":"function","function":{"name":"finish"}}}"#;
        let next = |status, response: &str, forced_call| {
            let options = &EncodeOptions { forced_call, ..EncodeOptions::default() };
            let rejected = RejectedRequest { status, response, sent, options };
            refused_choice_options(&rejected).and_then(|options| options.forced_call)
        };
        let words =
            "Invalid tool_choice type: 'object'. Supported string values: none, auto, required";
        assert_eq!(next(400, words, None), Some(ForcedCall::Any));
        assert_eq!(next(400, words, Some(ForcedCall::Any)), Some(ForcedCall::Omitted));
        assert_eq!(next(400, words, Some(ForcedCall::Omitted)), None);
        for words in [
            "Thinking may not be enabled when tool_choice forces tool use.",
            "deepseek-reasoner does not support this tool_choice",
        ] {
            assert_eq!(next(400, words, None), Some(ForcedCall::Omitted), "{words}");
            assert_eq!(next(429, words, None), None, "{words}");
        }
        assert_eq!(next(400, "the prompt is too long", None), None);
        let weakened = |rest| weaken_forced_call(WireForm::OpenAi, sent, rest);
        assert_eq!(weakened(ForcedCall::Any).unwrap(), r#"{"tool_choice":"required"}"#);
        assert_eq!(weakened(ForcedCall::Omitted).unwrap(), "{}");
        let gemini = r#"{"toolConfig":{"functionCallingConfig":{"mode":"ANY"}},"contents":[]}"#;
        let weakened = weaken_forced_call(WireForm::Gemini, gemini, ForcedCall::Omitted);
        assert_eq!(weakened.unwrap(), r#"{"contents":[]}"#);
        assert_eq!(weaken_forced_call(WireForm::OpenAi, "{}", ForcedCall::Omitted), None);
    }
}
