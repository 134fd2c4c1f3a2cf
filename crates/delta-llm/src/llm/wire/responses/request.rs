//! The body of a request.

use super::super::cache_plan::MIN_PREFIX_TOKENS;
use super::super::{
    CacheBlock, NeutralCall, NeutralContent, NeutralMessage, NeutralPart, NeutralRequest,
    NeutralTool,
};
use super::answer::AnswerItems;
use super::failure::native_mark;
use delta_base::hex::{encode_hex, sha256_hex};
use delta_base::json::to_json;
use delta_words::{EncodeOptions, NativeParts, WireForm};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The longest answer.
pub const MAX_TOKENS_KEY: &str = "max_output_tokens";

/// What the endpoint caches; agent.yaml may have it too.
pub const CACHE_OPTIONS_KEY: &str = "prompt_cache_options";

/// Marks the part that ends a prefix.
pub const BREAKPOINT_KEY: &str = "prompt_cache_breakpoint";

/// What the endpoint sends back of its reasoning, and which requests share a cache: both can be left out.
pub const INCLUDE_KEY: &str = "include";
pub const CACHE_KEY: &str = "prompt_cache_key";

/// The bytes of a prefix's hash that are the key of its runs.
const CACHE_KEY_BYTES: usize = 16;

/// As for the rest of a request: four bytes are a token.
const BYTES_PER_TOKEN: u64 = 4;

/// A translated request.
pub struct EncodedBody {
    /// The body.
    pub text: String,
    /// The prefixes that the endpoint could cache.
    pub cache_blocks: Vec<CacheBlock>,
}

/// The longest id of a call, in characters.
const MAX_CALL_ID_CHARS: usize = 64;

/// Translates a request. `accepts` tells whether the endpoint made the opaque parts of an answer.
///
/// # Errors
/// The request has a member that the form does not leave to agent.yaml or to a hook.
pub fn encode(
    request: &NeutralRequest<'_>,
    run_id: &str,
    options: &EncodeOptions,
    accepts: impl Fn(&NativeParts) -> bool,
) -> Result<EncodedBody, String> {
    let mut body = WireBody::default();
    body.push("model", &request.model);
    for (name, value) in &request.others {
        if WireForm::Responses.engine_keys().contains(&&**name) {
            return Err(format!("`{name}` is set by delta"));
        }
        let requested = (name == MAX_TOKENS_KEY).then(|| value.get().parse().ok()).flatten();
        match requested {
            Some(requested) => body.push(MAX_TOKENS_KEY, &at_most(requested, options.max_tokens)),
            None => body.members.push((name, Cow::Borrowed(value))),
        }
    }
    if let Some(requested) = request.max_tokens.filter(|_| !body.contains(MAX_TOKENS_KEY)) {
        body.push(MAX_TOKENS_KEY, &at_most(requested, options.max_tokens));
    }
    if !request.tools.is_empty() {
        let tools: Vec<FunctionTool<'_>> = request.tools.iter().map(FunctionTool::new).collect();
        body.push("tools", &tools);
    }
    let items = input_items(&request.messages, options, accepts);
    let mut items: Vec<Box<RawValue>> =
        items.iter().map(|item| to_raw_value(item).unwrap_or_default()).collect();
    let tools = body.members.iter().find(|(name, _)| *name == "tools");
    let mut cache_blocks = prefix_blocks(tools.map_or("", |(_, tools)| tools.get()), &items);
    // A merged message has blocks of the run, too.
    let constant = if options.merges_system { 0 } else { options.constant_messages };
    let constant = request.messages.iter().take(constant);
    if let Some(last) = constant.filter(|message| is_sent_block(message)).count().checked_sub(1) {
        cache_blocks[last].ends_constant = true;
        if options.marks_constant {
            items[last] = with_breakpoint(&items[last]);
        }
    }
    body.push("input", &items);
    body.push("store", &false);
    let is_omitted = |name: &str| options.omitted.iter().any(|omitted| omitted == name);
    if !is_omitted(INCLUDE_KEY) {
        body.push(INCLUDE_KEY, &["reasoning.encrypted_content"]);
    }
    if !body.contains(CACHE_KEY) && !run_id.is_empty() && !is_omitted(CACHE_KEY) {
        body.push(CACHE_KEY, &cache_key(&cache_blocks, run_id, options.cache_job));
    }
    if options.avoids_cache_write && !body.contains(CACHE_OPTIONS_KEY) {
        body.push(CACHE_OPTIONS_KEY, &json!({"mode": "explicit"}));
    }
    if request.stream {
        body.push("stream", &true);
    }
    Ok(EncodedBody { text: to_json(&body), cache_blocks })
}

/// The prefixes that the endpoint could cache: up to the end of each item.
fn prefix_blocks(tools: &str, items: &[Box<RawValue>]) -> Vec<CacheBlock> {
    let mut hasher = Sha256::new_with_prefix(tools);
    let mut tokens = tools.len() as u64 / BYTES_PER_TOKEN;
    let blocks = items.iter().map(|item| {
        hasher.update(item.get());
        hasher.update("\n");
        tokens += item.get().len() as u64 / BYTES_PER_TOKEN;
        let prefix = hasher.clone().finalize().into();
        CacheBlock { prefix, tokens, is_markable: false, ends_system: false, ends_constant: false }
    });
    blocks.collect()
}

/// What the endpoint keeps together: the runs of the agent that follow each other in a job of a sweep, or all of them, if they
/// share a prefix that it caches, else the requests of the run.
fn cache_key<'a>(blocks: &[CacheBlock], run_id: &'a str, job: Option<u32>) -> Cow<'a, str> {
    let mut blocks = blocks.iter();
    let constant = blocks.find(|block| block.ends_constant && block.tokens >= MIN_PREFIX_TOKENS);
    let Some(block) = constant else { return Cow::Borrowed(run_id) };
    let hash = encode_hex(&block.prefix[..CACHE_KEY_BYTES]);
    Cow::Owned(job.map_or_else(|| hash.clone(), |job| format!("{hash}-{job}")))
}

/// An item whose last part ends a prefix that the endpoint keeps.
fn with_breakpoint(item: &RawValue) -> Box<RawValue> {
    let mut item: Value = serde_json::from_str(item.get()).unwrap_or_default();
    if let Some(part) = item["content"].as_array_mut().and_then(|parts| parts.last_mut()) {
        part[BREAKPOINT_KEY] = json!({"mode": "explicit"});
    }
    to_raw_value(&item).unwrap_or_default()
}

/// Whether a message is a context block that becomes an item.
fn is_sent_block(message: &NeutralMessage) -> bool {
    matches!(message, NeutralMessage::System(content) if !input_parts(content).is_empty())
}

fn at_most(requested: u64, limit: Option<u64>) -> u64 {
    limit.map_or(requested, |limit| requested.min(limit))
}

/// The members of the body, in order.
#[derive(Default)]
struct WireBody<'a> {
    members: Vec<(&'a str, Cow<'a, RawValue>)>,
}

impl<'a> WireBody<'a> {
    fn push(&mut self, name: &'a str, value: &impl Serialize) {
        let value = to_raw_value(value).unwrap_or_default();
        self.members.push((name, Cow::Owned(value)));
    }

    fn contains(&self, name: &str) -> bool {
        self.members.iter().any(|(known, _)| *known == name)
    }
}

impl Serialize for WireBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.members.len()))?;
        for (name, value) in &self.members {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parameters: Option<&'a RawValue>,
    /// The default would tighten the schema.
    strict: bool,
}

impl<'a> FunctionTool<'a> {
    fn new(tool: &'a NeutralTool<'_>) -> Self {
        Self {
            kind: "function",
            name: &tool.name,
            description: tool.description.as_deref(),
            parameters: tool.parameters,
            strict: false,
        }
    }
}

/// An item of the conversation.
#[derive(Serialize)]
#[serde(untagged)]
enum InputItem<'a> {
    /// As the endpoint sent it.
    Native(&'a Value),
    Message {
        #[serde(rename = "type")]
        kind: &'static str,
        role: &'static str,
        content: Vec<InputPart<'a>>,
    },
    /// The short form of an answer's text, which needs no id.
    Answer { role: &'static str, content: &'a str },
    Call {
        #[serde(rename = "type")]
        kind: &'static str,
        call_id: Cow<'a, str>,
        name: &'a str,
        arguments: &'a str,
    },
    Output {
        #[serde(rename = "type")]
        kind: &'static str,
        call_id: Cow<'a, str>,
        output: OutputContent<'a>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum OutputContent<'a> {
    Text(String),
    Parts(Vec<InputPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum InputPart<'a> {
    #[serde(rename = "input_text")]
    Text { text: &'a str },
    #[serde(rename = "input_image")]
    Image { image_url: &'a str, detail: &'static str },
    #[serde(rename = "input_file")]
    File { filename: &'static str, file_data: &'a str },
}

fn input_items<'a>(
    messages: &'a [NeutralMessage],
    options: &EncodeOptions,
    accepts: impl Fn(&NativeParts) -> bool,
) -> Vec<InputItem<'a>> {
    let last_rejected =
        messages.iter().rposition(|message| is_rejected(message, options.rejected_native.as_ref()));
    let first_usable = match last_rejected {
        // The endpoint takes answers without their reasoning, if their items have no ids.
        _ if options.omits_reasoning => messages.len(),
        last => last.map_or(0, |last| last + 1),
    };
    let mut items = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        match message {
            NeutralMessage::System(content) => {
                let role = if options.uses_system_role { "system" } else { "developer" };
                push_message(&mut items, role, content);
            }
            NeutralMessage::User(content) => push_message(&mut items, "user", content),
            NeutralMessage::Assistant { text, calls, native } => {
                let native = native.as_ref().filter(|_| index >= first_usable);
                let parts = native.filter(|native| accepts(native)).map(native_items);
                match parts.filter(|parts| AnswerItems::read(parts).is_same(text, calls)) {
                    Some(parts) => items.extend(parts.iter().map(InputItem::Native)),
                    None => push_answer(&mut items, text, calls),
                }
            }
            NeutralMessage::Tool { call_id, content } => items.push(InputItem::Output {
                kind: "function_call_output",
                call_id: wire_call_id(call_id),
                output: output_content(content),
            }),
        }
    }
    items
}

/// Whether an answer contains the reasoning that the endpoint rejected.
fn is_rejected(message: &NeutralMessage, mark: Option<&String>) -> bool {
    let NeutralMessage::Assistant { native: Some(native), .. } = message else { return false };
    mark.is_some() && native_mark(native_items(native)).as_ref() == mark
}

fn native_items(native: &NativeParts) -> &[Value] {
    native.parts.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn push_message<'a>(
    items: &mut Vec<InputItem<'a>>,
    role: &'static str,
    content: &'a NeutralContent,
) {
    let content = input_parts(content);
    if !content.is_empty() {
        items.push(InputItem::Message { kind: "message", role, content });
    }
}

fn push_answer<'a>(items: &mut Vec<InputItem<'a>>, text: &'a str, calls: &'a [NeutralCall]) {
    if !text.is_empty() {
        items.push(InputItem::Answer { role: "assistant", content: text });
    }
    items.extend(calls.iter().map(|call| InputItem::Call {
        kind: "function_call",
        call_id: wire_call_id(&call.id),
        name: &call.name,
        arguments: &call.arguments,
    }));
}

/// The parts of a content, without empty texts.
fn input_parts(content: &NeutralContent) -> Vec<InputPart<'_>> {
    let parts = content.0.iter().filter_map(|part| match part {
        NeutralPart::Text(text) if text.is_empty() => None,
        NeutralPart::Text(text) => Some(InputPart::Text { text }),
        NeutralPart::Image(url) if url.starts_with("data:application/pdf;") => {
            // The form wants a name, and the content says all that it could.
            Some(InputPart::File { filename: "document.pdf", file_data: url })
        }
        NeutralPart::Image(url) => Some(InputPart::Image { image_url: url, detail: "auto" }),
    });
    parts.collect()
}

/// The content of a result: a text, unless there is an image.
fn output_content(content: &NeutralContent) -> OutputContent<'_> {
    if content.0.iter().any(|part| matches!(part, NeutralPart::Image(_))) {
        OutputContent::Parts(input_parts(content))
    } else {
        OutputContent::Text(content.text())
    }
}

/// The id of a call as the form accepts it; a longer one is replaced in the call and its result alike.
pub fn wire_call_id(id: &str) -> Cow<'_, str> {
    if (1..=MAX_CALL_ID_CHARS).contains(&id.chars().count()) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(format!("d_{}", &sha256_hex(id)[..20]))
}
