//! A request in the form of Messages.

use super::super::{
    CacheBlock, CodecSettings, EncodedRequest, NeutralBody, NeutralCall, NeutralContent,
    NeutralMessage, NeutralPart, NeutralRequest, NeutralTool, PatchedObject, turn_start,
};
use delta_base::hex::sha256_hex;
use delta_base::json::to_json;
use delta_words::{
    ANTHROPIC_MAX_TOKENS, CacheLifetime, CacheMarkers, EncodeOptions, NativeParts, WireForm,
};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;

/// The digits of an id that replaces one that the form does not accept.
const HASHED_ID_DIGITS: usize = 20;

/// What a file counts for the length of a prefix.
const FILE_TOKENS: u64 = 1_600;

/// A message of the user in which nothing is left to send.
const NO_MESSAGE: &str = "[no message]";

/// Translates one request.
pub struct RequestEncoder<'a> {
    /// The model and the version.
    pub settings: &'a CodecSettings,
    /// Whether the body names the model, or the address does.
    pub names_model: bool,
    /// What was decided apart from the body.
    pub options: &'a EncodeOptions,
}

impl RequestEncoder<'_> {
    /// The wire body of a neutral request.
    pub fn encode(&self, body: &NeutralBody<'_>) -> Result<EncodedRequest, String> {
        let request = NeutralRequest::read(body)?;
        let messages = &request.messages;
        let leading = messages
            .iter()
            .take_while(|message| matches!(message, NeutralMessage::System(_)))
            .count();
        // A request needs a message: without a conversation it is the last block.
        let leading = leading.min(messages.len().saturating_sub(1));
        let tools: Vec<_> = request.tools.iter().map(WireTool::new).collect();
        let tools = if tools.is_empty() { String::new() } else { to_json(&tools) };
        let system: Vec<_> = messages[..leading].iter().flat_map(system_blocks).collect();
        let mut prefix = BlockPrefix::new(&tools, self.options.cache.as_ref());
        let system = prefix.add_blocks("system", &system);
        if let Some(last) = prefix.blocks.last_mut() {
            last.ends_system = true;
        }
        let constant = &messages[..leading.min(self.options.constant_messages)];
        let constant = constant.iter().flat_map(system_blocks).count();
        if let Some(last) = constant.checked_sub(1) {
            prefix.blocks[last].ends_constant = true;
        }
        let bound = system.iter().map(|block| block.plain.as_str()).collect::<Vec<_>>().join(",");
        let mut conversation =
            MessagesConversation::new(self, prefix, &format!("{tools}\n{bound}"));
        // Anthropic's documents: thinking has to go back with the calls of a turn until the turn ends; the thinking of earlier
        // turns may be left out.
        let turn = if self.options.omits_reasoning { turn_start(messages) } else { 0 };
        for (message, index) in messages.iter().zip(0..).skip(leading) {
            conversation.add(message, index >= turn);
        }
        conversation.end_user_message();
        let mut members = WireMembers::new(body.text.len());
        self.add_settings(&request, &mut members);
        if !tools.is_empty() {
            members.add("tools", &tools);
        }
        if !system.is_empty() {
            members.add("system", &format!("[{}]", join_marked(&system)));
        }
        members.add("messages", &format!("[{}]", conversation.messages.join(",")));
        if request.stream {
            members.add("stream", "true");
        }
        let body = Arc::new(members.into_body());
        Ok(EncodedRequest {
            body,
            is_changed: true,
            basis: Some(conversation.basis),
            cache_blocks: conversation.prefix.blocks,
        })
    }

    /// Everything before the tools: the model or the version, the length of the answer, and the keys of agent.yaml.
    fn add_settings(&self, request: &NeutralRequest<'_>, members: &mut WireMembers) {
        match &self.settings.api_version {
            _ if self.names_model => members.add("model", &to_json(&self.settings.model)),
            Some(version) => members.add("anthropic_version", &to_json(version)),
            None => {}
        }
        let most = self.options.max_tokens.unwrap_or(u64::MAX);
        let max_tokens = request.max_tokens.unwrap_or(ANTHROPIC_MAX_TOKENS).min(most);
        members.add("max_tokens", &max_tokens.to_string());
        for (name, value) in &request.others {
            members.add(name, value.get());
        }
    }
}

/// The members of a JSON object, as text.
struct WireMembers(String);

impl WireMembers {
    fn new(capacity: usize) -> Self {
        let mut text = String::with_capacity(capacity);
        text.push('{');
        Self(text)
    }

    fn add(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&to_json(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    fn into_body(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A block as text, without and with its marker.
struct BlockText {
    plain: String,
    marked: Option<String>,
}

fn join_marked(blocks: &[BlockText]) -> String {
    let texts = blocks.iter().map(|block| block.marked.as_ref().unwrap_or(&block.plain).as_str());
    texts.collect::<Vec<_>>().join(",")
}

/// The blocks of a request so far, as the endpoint's cache sees them.
struct BlockPrefix<'a> {
    hasher: Sha256,
    tokens: u64,
    blocks: Vec<CacheBlock>,
    markers: Option<&'a CacheMarkers>,
}

impl<'a> BlockPrefix<'a> {
    fn new(tools: &str, markers: Option<&'a CacheMarkers>) -> Self {
        let hasher = Sha256::new_with_prefix(tools);
        Self { hasher, tokens: estimate_block_tokens(tools.len()), blocks: Vec::new(), markers }
    }

    fn add_blocks(&mut self, role: &str, blocks: &[Block<'_>]) -> Vec<BlockText> {
        blocks.iter().map(|block| self.add_block(role, block)).collect()
    }

    fn add_block(&mut self, role: &str, block: &Block<'_>) -> BlockText {
        let plain = to_json(block);
        for piece in ["\n", role, "\n", &plain] {
            self.hasher.update(piece);
        }
        self.tokens += block.tokens(plain.len());
        let index = self.blocks.len();
        self.blocks.push(CacheBlock {
            prefix: self.hasher.clone().finalize().into(),
            tokens: self.tokens,
            is_markable: block.is_markable(),
            ends_system: false,
            ends_constant: false,
        });
        let markers = self.markers.filter(|markers| markers.blocks.contains(&index));
        let marked = markers.filter(|_| block.is_markable()).map(|markers| {
            let marker = match markers.lifetime {
                CacheLifetime::Short => r#"{"type":"ephemeral"}"#,
                CacheLifetime::Long => r#"{"type":"ephemeral","ttl":"1h"}"#,
            };
            format!("{},\"cache_control\":{marker}}}", &plain[..plain.len() - 1])
        });
        BlockText { plain, marked }
    }
}

/// As for the rest of a request: four bytes are a token.
fn estimate_block_tokens(bytes: usize) -> u64 {
    bytes as u64 / 4
}

/// The messages of a request, and what the parts of the next answer are bound to.
struct MessagesConversation<'a> {
    encoder: &'a RequestEncoder<'a>,
    prefix: BlockPrefix<'a>,
    messages: Vec<String>,
    /// A hash over tools, system prompt and messages.
    basis: String,
    /// The user message that has not ended. Results come first in it.
    results: Vec<Block<'a>>,
    others: Vec<Block<'a>>,
}

impl<'a> MessagesConversation<'a> {
    fn new(encoder: &'a RequestEncoder<'a>, prefix: BlockPrefix<'a>, bound: &str) -> Self {
        Self {
            encoder,
            prefix,
            messages: Vec::new(),
            basis: sha256_hex(bound),
            results: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Adds a message; an answer as it came only if `keeps_native`.
    fn add(&mut self, message: &'a NeutralMessage, keeps_native: bool) {
        match message {
            NeutralMessage::System(content) | NeutralMessage::User(content) => {
                self.others.extend(content_blocks(content));
            }
            NeutralMessage::Tool { call_id, content } => {
                self.results.push(Block::ToolResult {
                    tool_use_id: wire_id(call_id),
                    content: ResultContent::new(content),
                });
            }
            NeutralMessage::Assistant { text, calls, native } => {
                let plain = answer_blocks(text, calls);
                if plain.is_empty() {
                    return;
                }
                self.end_user_message();
                let native = native.as_ref().filter(|_| keeps_native);
                let parts = native.and_then(|native| self.usable_parts(native));
                let parts = parts.filter(|parts| say_the_same(parts, text, calls));
                let mut blocks = parts.map_or(plain, |parts| native_blocks(parts, calls));
                let has_thinking = parts.is_some_and(|parts| parts.iter().any(is_thinking));
                if self.encoder.options.adds_thinking && !calls.is_empty() && !has_thinking {
                    blocks.insert(0, Block::Thinking { thinking: "", signature: "" });
                }
                self.push_message("assistant", &blocks);
            }
        }
    }

    /// Ends the user message, which has to be there before every answer and at the end.
    fn end_user_message(&mut self) {
        let mut blocks = std::mem::take(&mut self.results);
        blocks.append(&mut self.others);
        if blocks.is_empty() {
            blocks.push(Block::Text { text: NO_MESSAGE });
        }
        self.push_message("user", &blocks);
    }

    fn push_message(&mut self, role: &str, content: &[Block<'_>]) {
        let blocks = self.prefix.add_blocks(role, content);
        let plain = blocks.iter().map(|block| block.plain.as_str()).collect::<Vec<_>>().join(",");
        self.basis = sha256_hex(format!("{}\n{role}\n{plain}", self.basis));
        let content = join_marked(&blocks);
        self.messages.push(format!("{{\"role\":\"{role}\",\"content\":[{content}]}}"));
    }

    /// The parts of an earlier answer, if they may go back as they came.
    fn usable_parts<'p>(&self, native: &'p NativeParts) -> Option<&'p [Value]> {
        let RequestEncoder { settings, options, .. } = self.encoder;
        let is_bound = native.basis.as_ref() == Some(&self.basis);
        let is_usable = native.is_from(WireForm::Anthropic, &settings.model)
            && !options.drops_native
            && (is_bound || !options.drops_unbound_native);
        native.parts.as_array().filter(|_| is_usable).map(Vec::as_slice)
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: &'a RawValue,
}

impl<'a> WireTool<'a> {
    fn new(tool: &'a NeutralTool<'_>) -> Self {
        Self {
            name: &tool.name,
            description: tool.description.as_deref(),
            input_schema: tool.parameters.unwrap_or_else(|| raw_json(r#"{"type":"object"}"#)),
        }
    }
}

fn raw_json(text: &'static str) -> &'static RawValue {
    serde_json::from_str(text).expect("valid JSON")
}

/// A block of a message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    Image {
        source: FileSource<'a>,
    },
    Document {
        source: FileSource<'a>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<ResultContent<'a>>,
    },
    #[serde(untagged)]
    Native(PatchedObject<'a>),
}

impl Block<'_> {
    /// Whether the form allows a marker on the block.
    fn is_markable(&self) -> bool {
        matches!(self, Self::Text { .. } | Self::ToolResult { .. })
    }

    /// The tokens of a block whose text has this many bytes. A file counts by what it shows, not by its bytes.
    fn tokens(&self, bytes: usize) -> u64 {
        match self {
            Self::Image { .. } | Self::Document { .. } => FILE_TOKENS,
            _ => estimate_block_tokens(bytes),
        }
    }
}

/// The content of a result: a text where there is nothing else.
#[derive(Serialize)]
#[serde(untagged)]
enum ResultContent<'a> {
    Text(String),
    Blocks(Vec<Block<'a>>),
}

impl<'a> ResultContent<'a> {
    fn new(content: &'a NeutralContent) -> Option<Self> {
        let is_text = content.0.iter().all(|part| matches!(part, NeutralPart::Text(_)));
        if is_text {
            let text = content.text();
            return (!text.is_empty()).then_some(Self::Text(text));
        }
        Some(Self::Blocks(content_blocks(content).collect()))
    }
}

/// The bytes of a file, or where they are.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FileSource<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

/// The blocks of a content. The endpoint rejects a blank text, so it is left out.
fn content_blocks(content: &NeutralContent) -> impl Iterator<Item = Block<'_>> {
    content.0.iter().filter_map(|part| match part {
        NeutralPart::Text(text) => text_block(text),
        NeutralPart::Image(url) => Some(file_block(url)),
    })
}

fn text_block(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text })
}

fn system_blocks(message: &NeutralMessage) -> Vec<Block<'_>> {
    match message {
        NeutralMessage::System(content) => content_blocks(content).collect(),
        _ => Vec::new(),
    }
}

/// The block of an image or a PDF, from its URL.
fn file_block(url: &str) -> Block<'_> {
    let encoded = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    let source = match encoded {
        Some((media_type, data)) => FileSource::Base64 { media_type, data },
        None => FileSource::Url { url },
    };
    match source {
        FileSource::Base64 { media_type: "application/pdf", .. } => Block::Document { source },
        _ => Block::Image { source },
    }
}

/// The blocks of an answer, made from its text and its calls.
fn answer_blocks<'a>(text: &'a str, calls: &'a [NeutralCall]) -> Vec<Block<'a>> {
    let calls = calls.iter().map(|call| Block::ToolUse {
        id: wire_id(&call.id),
        name: &call.name,
        input: call.arguments_object(),
    });
    text_block(text).into_iter().chain(calls).collect()
}

/// The blocks of an answer as they came. A text that is blank is left out here too: no endpoint accepts it back.
fn native_blocks<'a>(parts: &'a [Value], calls: &'a [NeutralCall]) -> Vec<Block<'a>> {
    let mut calls = calls.iter();
    let blocks =
        parts.iter().filter(|part| part_text(part).is_none_or(|text| !text.trim().is_empty()));
    blocks
        .map(|part| {
            let call = if is_call(part) { calls.next() } else { None };
            // The numbers of an input are written as the model wrote them.
            let value = call.map(NeutralCall::arguments_object);
            Block::Native(PatchedObject { object: part, name: "input", value })
        })
        .collect()
}

fn is_call(part: &Value) -> bool {
    part["type"] == "tool_use"
}

fn is_thinking(part: &Value) -> bool {
    matches!(part["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

/// The text of a part; `None` for a part of another type.
fn part_text(part: &Value) -> Option<&str> {
    part["text"].as_str().filter(|_| part["type"] == "text")
}

/// Whether the parts have this text and these calls: a hook may have changed them, or delta an id or a name.
fn say_the_same(parts: &[Value], text: &str, calls: &[NeutralCall]) -> bool {
    let texts: String = parts.iter().filter_map(part_text).collect();
    let mut called = parts.iter().filter(|part| is_call(part));
    let are_calls_equal =
        calls.iter().all(|call| called.next().is_some_and(|part| is_part_of_call(part, call)));
    texts == text && are_calls_equal && called.next().is_none()
}

fn is_part_of_call(part: &Value, call: &NeutralCall) -> bool {
    let arguments: Value = serde_json::from_str(call.arguments_object().get()).unwrap_or_default();
    // The input of a call that was cut off is still a text; an empty object is sent in its place.
    let input =
        if part["input"].is_object() { &part["input"] } else { &Value::Object(Default::default()) };
    is_wire_id(&call.id)
        && part["id"] == *call.id
        && part["name"] == *call.name
        && *input == arguments
}

/// An id as the form accepts it: the same one in a call and in its result.
fn wire_id(id: &str) -> Cow<'_, str> {
    if is_wire_id(id) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(format!("d_{}", &sha256_hex(id)[..HASHED_ID_DIGITS]))
}

fn is_wire_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
