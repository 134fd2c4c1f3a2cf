//! A Chat Completions request as a `generateContent` request.
//!
//! Pieces are joined as text, so that the arguments of a call and the schema of a tool keep every digit and the order of
//! their members.

use super::super::{
    NeutralBody, NeutralCall, NeutralContent, NeutralMessage, NeutralPart, NeutralRequest,
    NeutralTool, PatchedObject, turn_start,
};
use super::{neutral_tool_name, wire_tool_name};
use delta_base::hex::sha256_hex;
use delta_base::json::has_inexact_number;
use delta_base::json::to_json;
use delta_words::{EncodeOptions, GEMINI_LENGTH_KEYS, IMAGE_ANSWER, NativeParts, WireForm};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

/// The signature that stands for none: the documented one for calls that the model did not make itself.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// The body of the request. `has_made` decides whether this endpoint and model made the opaque parts of an answer.
pub fn translate_body(
    body: &NeutralBody<'_>,
    options: &EncodeOptions,
    has_made: impl Fn(&NativeParts) -> bool,
) -> Result<String, String> {
    let request = NeutralRequest::read(body)?;
    let rejected = rejected_answers(&request.messages, options);
    let mut conversation =
        ContentsBuilder { omits_thoughts: options.omits_reasoning, ..ContentsBuilder::default() };
    for (message, index) in request.messages.iter().zip(0..) {
        conversation
            .push(message, |native| index >= rejected && has_made(native))
            .map_err(|error| format!("message {}: {error}", index + 1))?;
    }
    let conversation = conversation.finish();
    let mut members = Vec::new();
    if !conversation.system.is_empty() {
        let parts = conversation.system.join(",");
        members.push(format!("\"systemInstruction\":{{\"parts\":[{parts}]}}"));
    }
    if !request.tools.is_empty() {
        let tools: Vec<String> = request.tools.iter().map(declaration).collect();
        members.push(format!("\"tools\":[{{\"functionDeclarations\":[{}]}}]", tools.join(",")));
    }
    let mut generation = GenerationConfig::default();
    for (name, value) in &request.others {
        match name.as_str() {
            "generationConfig" => generation.members = parse_generation_config(value)?,
            "temperature" => generation.temperature = Some(value),
            name if WireForm::Gemini.engine_keys().contains(&name) => {
                return Err(format!("`{name}` is written by the engine; remove the key"));
            }
            name => members.push(format!("{}:{}", to_json(name), value.get())),
        }
    }
    let limit = options.max_tokens.unwrap_or(u64::MAX);
    generation.max_tokens = request.max_tokens.map(|tokens| tokens.min(limit));
    members.extend(generation.into_member());
    let contents: Vec<String> = conversation.contents.iter().map(WireContent::to_json).collect();
    members.push(format!("\"contents\":[{}]", contents.join(",")));
    Ok(format!("{{{}}}", members.join(",")))
}

/// The number of messages at the beginning whose opaque parts the endpoint has rejected, or shall not get.
fn rejected_answers(messages: &[NeutralMessage], options: &EncodeOptions) -> usize {
    if options.drops_native {
        return messages.len();
    }
    // Google's documents: the signatures of a turn have to go back with its calls; earlier ones may be left out.
    let first = if options.omits_reasoning { turn_start(messages) } else { 0 };
    let Some(mark) = &options.rejected_native else { return first };
    let marked = messages.iter().rposition(|message| match message {
        NeutralMessage::Assistant { native: Some(native), .. } => {
            let parts = native.parts.as_array().map_or(&[][..], Vec::as_slice);
            parts.iter().any(|part| signature_mark(part).as_ref() == Some(mark))
        }
        _ => false,
    });
    marked.map_or(first, |index| first.max(index + 1))
}

/// The name of the signature of a part that the model made; `None` if it has none.
pub fn signature_mark(part: &Value) -> Option<String> {
    let signature = part.get("thoughtSignature")?.as_str()?;
    let is_issued = signature != FOREIGN_SIGNATURE;
    is_issued.then(|| sha256_hex(signature)[..20].to_owned())
}

fn declaration(tool: &NeutralTool<'_>) -> String {
    let mut members = vec![format!("\"name\":{}", to_json(&wire_tool_name(&tool.name)))];
    if let Some(description) = &tool.description {
        members.push(format!("\"description\":{}", to_json(description)));
    }
    if let Some(parameters) = tool.parameters {
        members.push(format!("\"parametersJsonSchema\":{}", parameters.get()));
    }
    format!("{{{}}}", members.join(","))
}

/// The settings of the generation: the member of that name, and what agent.yaml writes at the top for every form.
#[derive(Default)]
struct GenerationConfig<'a> {
    members: Map<String, Value>,
    temperature: Option<&'a RawValue>,
    max_tokens: Option<u64>,
}

impl GenerationConfig<'_> {
    fn into_member(mut self) -> Option<String> {
        if let Some(temperature) = self.temperature {
            let temperature = serde_json::from_str(temperature.get()).unwrap_or_default();
            self.members.insert("temperature".to_owned(), temperature);
        }
        if let Some(tokens) = self.max_tokens {
            self.members.insert("maxOutputTokens".to_owned(), tokens.into());
        }
        let has_members = !self.members.is_empty();
        has_members.then(|| format!("\"generationConfig\":{}", to_json(&self.members)))
    }
}

/// Parses the member `generationConfig`.
///
/// # Errors
/// It is not an object, or bounds the answer in a way that a limit of the run would not count.
fn parse_generation_config(value: &RawValue) -> Result<Map<String, Value>, String> {
    let config: Map<String, Value> = serde_json::from_str(value.get())
        .map_err(|_| "`generationConfig` must be a mapping".to_owned())?;
    for (name, help) in GEMINI_LENGTH_KEYS {
        if config.contains_key(name) {
            return Err(format!("`generationConfig` cannot contain `{name}`: {help}"));
        }
    }
    Ok(config)
}

/// The messages as contents of alternating roles.
#[derive(Default)]
struct ContentsBuilder {
    /// The system blocks before the first message.
    system: Vec<String>,
    contents: Vec<WireContent>,
    /// The calls of the last answer.
    calls: Vec<WireCall>,
    /// Whether the text of thoughts is left out.
    omits_thoughts: bool,
}

/// The messages of one role in a row.
#[derive(Default)]
struct WireContent {
    role: &'static str,
    /// The JSON of each part.
    parts: Vec<String>,
    /// The results at the beginning of the content, each with the position of its call.
    results: Vec<(usize, String)>,
    /// The first call, if this endpoint did not make it.
    foreign_call: Option<usize>,
}

impl WireContent {
    fn begins_turn(&self) -> bool {
        self.role == "user" && self.results.is_empty()
    }

    fn to_json(&self) -> String {
        let results = self.results.iter().map(|(_, result)| result);
        let parts: Vec<&str> = results.chain(&self.parts).map(String::as_str).collect();
        format!("{{\"role\":\"{}\",\"parts\":[{}]}}", self.role, parts.join(","))
    }
}

/// A call that has to be answered.
struct WireCall {
    id: String,
    name: String,
    /// The id that the model gave it. The form takes no others everywhere: Vertex rejects the member.
    wire_id: Option<String>,
}

impl ContentsBuilder {
    fn push(
        &mut self,
        message: &NeutralMessage,
        is_usable: impl Fn(&NativeParts) -> bool,
    ) -> Result<(), String> {
        match message {
            NeutralMessage::System(content) if self.contents.is_empty() => {
                self.system.extend(content_parts(content));
            }
            NeutralMessage::System(content) | NeutralMessage::User(content) => {
                let parts = content_parts(content);
                if !parts.is_empty() {
                    self.content_of("user").parts.extend(parts);
                }
            }
            NeutralMessage::Assistant { text, calls, native } => {
                let native = native.as_ref().filter(|native| is_usable(native));
                let omits_thoughts = self.omits_thoughts;
                let signed = native.and_then(|native| {
                    SignedParts::read(&native.parts, text, calls, omits_thoughts)
                });
                match signed {
                    Some(signed) => self.push_signed(signed, calls),
                    None => self.push_answer(text, calls),
                }
            }
            NeutralMessage::Tool { call_id, content } => return self.push_result(call_id, content),
        }
        Ok(())
    }

    /// The content to which the next part of `role` belongs.
    fn content_of(&mut self, role: &'static str) -> &mut WireContent {
        if self.contents.last().is_none_or(|last| last.role != role) {
            self.contents.push(WireContent { role, ..WireContent::default() });
        }
        self.contents.last_mut().expect("it was added")
    }

    /// Adds an answer as this endpoint gave it.
    fn push_signed(&mut self, signed: SignedParts, calls: &[NeutralCall]) {
        self.calls = calls
            .iter()
            .zip(signed.ids)
            .map(|(call, wire_id)| WireCall {
                id: call.id.clone(),
                name: wire_tool_name(&call.name),
                wire_id,
            })
            .collect();
        self.content_of("model").parts.extend(signed.parts);
    }

    /// Adds an answer of which only the text and the calls are known.
    fn push_answer(&mut self, text: &str, calls: &[NeutralCall]) {
        self.calls.clear();
        if text.is_empty() && calls.is_empty() {
            return;
        }
        let mut parts = Vec::new();
        for call in calls {
            let name = wire_tool_name(&call.name);
            parts.push(format!(
                "{{\"functionCall\":{{\"name\":{},\"args\":{}}}}}",
                to_json(&name),
                call.arguments_object().get()
            ));
            self.calls.push(WireCall { id: call.id.clone(), name, wire_id: None });
        }
        let content = self.content_of("model");
        content.parts.extend((!text.is_empty()).then(|| text_part_json(text)));
        if !calls.is_empty() {
            content.foreign_call.get_or_insert(content.parts.len());
        }
        content.parts.extend(parts);
    }

    /// Adds the result of a call, in the order of the calls: the form matches them by it.
    fn push_result(&mut self, call_id: &str, content: &NeutralContent) -> Result<(), String> {
        let position = self.calls.iter().position(|call| call.id == call_id).ok_or_else(|| {
            format!("the answer before it has no call `{call_id}`, of which it is the result")
        })?;
        let call = &self.calls[position];
        let mut members = vec![format!("\"name\":{}", to_json(&call.name))];
        members.extend(call.wire_id.as_ref().map(|id| format!("\"id\":{}", to_json(id))));
        members.push(format!("\"response\":{{\"output\":{}}}", to_json(&content.text())));
        let images: Vec<String> = content.0.iter().filter_map(image_part).collect();
        if !images.is_empty() {
            members.push(format!("\"parts\":[{}]", images.join(",")));
        }
        let result = format!("{{\"functionResponse\":{{{}}}}}", members.join(","));
        let results = &mut self.content_of("user").results;
        let index = results.partition_point(|(other, _)| *other < position);
        results.insert(index, (position, result));
        Ok(())
    }

    /// Signs the calls that need it, and makes sure that there is a message.
    fn finish(mut self) -> Self {
        // A request without a message is rejected: the system blocks are then all that there is to say.
        if self.contents.is_empty() {
            let parts = std::mem::take(&mut self.system);
            self.content_of("user").parts = parts;
        }
        // Only the calls of the running turn are checked. Text after results may or may not begin a turn.
        let start = self.contents.iter().rposition(WireContent::begins_turn).unwrap_or(0);
        for content in &mut self.contents[start..] {
            if let Some(part) = content.foreign_call.and_then(|call| content.parts.get_mut(call)) {
                part.pop();
                part.push_str(&format!(",\"thoughtSignature\":\"{FOREIGN_SIGNATURE}\"}}"));
            }
        }
        self
    }
}

/// The parts of an answer as the endpoint gave them.
struct SignedParts {
    /// The JSON of each part.
    parts: Vec<String>,
    /// The id that the model gave each call.
    ids: Vec<Option<String>>,
}

impl SignedParts {
    /// Reads the parts; `None` if they do not say what the message says, because a hook has changed it.
    fn read(
        parts: &Value,
        text: &str,
        calls: &[NeutralCall],
        omits_thoughts: bool,
    ) -> Option<Self> {
        let is_thought = |part: &Value| part.get("thought") == Some(&Value::Bool(true));
        let parts = parts.as_array()?.iter();
        let parts: Vec<&Value> =
            parts.filter(|part| !omits_thoughts || !is_thought(part)).collect();
        let wire_calls: Vec<&Value> =
            parts.iter().filter_map(|part| part.get("functionCall")).collect();
        let texts = parts.iter().filter(|part| !is_thought(part));
        let answer_text: String = texts.filter_map(|part| part.get("text")?.as_str()).collect();
        let is_image = answer_text.is_empty() && text == IMAGE_ANSWER;
        let is_unchanged = (answer_text == text || is_image)
            && wire_calls.len() == calls.len()
            && wire_calls.iter().zip(calls).all(|(wire, call)| is_unchanged_call(wire, call));
        is_unchanged.then(|| Self {
            parts: signed_part_texts(&parts, calls),
            ids: wire_calls
                .iter()
                .map(|call| call.get("id").and_then(Value::as_str).map(str::to_owned))
                .collect(),
        })
    }
}

/// The JSON of each part, with the arguments of its call as the model wrote them where a number in them would change.
fn signed_part_texts(parts: &[&Value], calls: &[NeutralCall]) -> Vec<String> {
    let mut calls = calls.iter();
    let texts = parts.iter().map(|part| match part.get("functionCall") {
        Some(wire_call) => call_part_text(part, wire_call, calls.next()),
        None => to_json(part),
    });
    texts.collect()
}

fn call_part_text(part: &Value, wire_call: &Value, call: Option<&NeutralCall>) -> String {
    let arguments = call.map(NeutralCall::arguments_object);
    let inexact = arguments.filter(|arguments| has_inexact_number(arguments.get()));
    if inexact.is_none() {
        return to_json(part);
    }
    let call = PatchedObject { object: wire_call, name: "args", value: inexact };
    let call = to_raw_value(&call).ok();
    to_json(&PatchedObject { object: part, name: "functionCall", value: call.as_deref() })
}

fn is_unchanged_call(wire: &Value, call: &NeutralCall) -> bool {
    let name = wire.get("name").and_then(Value::as_str).unwrap_or_default();
    let empty = Value::Object(Map::new());
    let arguments: Option<Value> = serde_json::from_str(call.arguments_object().get()).ok();
    let wire_arguments = wire.get("args").unwrap_or(&empty);
    neutral_tool_name(name) == call.name && arguments.as_ref() == Some(wire_arguments)
}

/// The parts of a content. Empty texts are rejected, so they are left out.
fn content_parts(content: &NeutralContent) -> Vec<String> {
    let parts = content.0.iter().filter_map(|part| match part {
        NeutralPart::Text(text) => (!text.is_empty()).then(|| text_part_json(text)),
        NeutralPart::Image(_) => image_part(part),
    });
    parts.collect()
}

fn text_part_json(text: &str) -> String {
    format!("{{\"text\":{}}}", to_json(text))
}

/// The part of an image: its data, or the address at which the endpoint finds it.
fn image_part(part: &NeutralPart) -> Option<String> {
    let NeutralPart::Image(url) = part else { return None };
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    Some(match data {
        Some((kind, data)) => format!(
            "{{\"inlineData\":{{\"mimeType\":{},\"data\":{}}}}}",
            to_json(kind),
            to_json(data)
        ),
        None => format!("{{\"fileData\":{{\"fileUri\":{}}}}}", to_json(url)),
    })
}
