//! `generateContent` of a strict endpoint: the API of the newest models, which check the signatures of a running turn.
//!
//! The name of the model selects what differs between models: one with `plain` signs nothing, one with `ids` gives its calls
//! ids.

use super::answer::{Message, cut};
use super::form::ServedForm;
use super::image_check::{check_document, check_image};
use super::{Answer, RecordedRequest};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

type Checked = Result<(), String>;

/// The documented signature of calls that the model did not make.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// The endpoint, and what it has issued.
#[derive(Default)]
pub(super) struct GeminiForm {
    /// The part that each signature belongs to, without the signature.
    signatures: HashMap<String, Value>,
    ids: HashSet<String>,
}

impl ServedForm for GeminiForm {
    fn serves(&self, request: &RecordedRequest) -> bool {
        let path = request.path();
        path.ends_with(":generateContent") || path.ends_with(":streamGenerateContent")
    }

    fn check(&mut self, request: &RecordedRequest) -> Checked {
        let is_sse = request.target.contains("alt=sse");
        if is_sse != self.is_streamed(request) {
            return Err(format!("alt=sse belongs to a stream, and only there: {}", request.target));
        }
        self.check_body(&request.body, is_signing(request))
    }

    fn is_streamed(&self, request: &RecordedRequest) -> bool {
        request.path().ends_with(":streamGenerateContent")
    }

    fn body(&mut self, message: &Message, request: &RecordedRequest) -> Value {
        let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": self.parts(message, request)}});
        if let Some(reason) = finish_reason(message) {
            candidate["finishReason"] = reason.into();
        }
        let mut response = envelope(request);
        response["candidates"] = json!([candidate]);
        if let Some(usage) = usage(message) {
            response["usageMetadata"] = usage;
        }
        response
    }

    /// A text comes in pieces, a call whole, and the counts after the reason.
    fn events(&mut self, message: &Message, request: &RecordedRequest) -> Vec<String> {
        let mut chunks = Vec::new();
        for part in self.parts(message, request) {
            let text = part["text"].as_str().filter(|text| !text.is_empty());
            let pieces = match text {
                Some(text) => cut(Some(text))
                    .map(|piece| {
                        let mut part = part.clone();
                        part["text"] = piece.into();
                        part
                    })
                    .collect(),
                None => vec![part.clone()],
            };
            chunks.extend(pieces.into_iter().map(
                |part| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}),
            ));
        }
        if let Some(reason) = finish_reason(message) {
            let content = json!({"role": "model", "parts": [{"text": ""}]});
            chunks.push(
                json!({"candidates": [{"index": 0, "content": content, "finishReason": reason}]}),
            );
        }
        chunks.extend(usage(message).map(|usage| json!({"usageMetadata": usage})));
        let merge = |mut chunk: Value| {
            if let (Value::Object(chunk), Value::Object(envelope)) = (&mut chunk, envelope(request))
            {
                chunk.extend(envelope);
            }
            format!("data: {chunk}\r\n\r\n")
        };
        chunks.into_iter().map(merge).collect()
    }

    fn refusal(&self, violation: &str) -> Answer {
        let error = json!({"code": 400, "message": violation, "status": "INVALID_ARGUMENT"});
        Answer::raw(400, json!([{"error": error}]).to_string())
    }
}

fn model(request: &RecordedRequest) -> &str {
    let name = request.path().rsplit('/').next().unwrap_or_default();
    name.split(':').next().unwrap_or_default()
}

fn is_signing(request: &RecordedRequest) -> bool {
    !model(request).contains("plain")
}

fn envelope(request: &RecordedRequest) -> Value {
    json!({"modelVersion": model(request), "responseId": "scripted"})
}

fn finish_reason(message: &Message) -> Option<String> {
    let reason = message.finish_reason.as_deref()?;
    Some(match reason {
        "stop" | "tool_calls" => "STOP".to_owned(),
        "length" => "MAX_TOKENS".to_owned(),
        "content_filter" => "SAFETY".to_owned(),
        other => other.to_owned(),
    })
}

fn usage(message: &Message) -> Option<Value> {
    let usage = message.usage.as_ref()?;
    let detail = |place: &str| usage.pointer(place).and_then(Value::as_u64);
    let reasoning = detail("/completion_tokens_details/reasoning_tokens");
    let output = usage["completion_tokens"].as_u64()?;
    let mut counts = json!({
        "promptTokenCount": usage["prompt_tokens"],
        "candidatesTokenCount": output - reasoning.unwrap_or(0),
        "totalTokenCount": usage["total_tokens"],
    });
    if let Some(reasoning) = reasoning {
        counts["thoughtsTokenCount"] = json!(reasoning);
    }
    if let Some(cached) = detail("/prompt_tokens_details/cached_tokens") {
        counts["cachedContentTokenCount"] = json!(cached);
    }
    Some(counts)
}

/// Checks the body of a request to a model that signs. It has issued `parts`.
pub fn check_gemini_request(body: &Value, parts: &[Value]) -> Checked {
    let mut form = GeminiForm::default();
    for part in parts {
        let mut part = part.clone();
        form.ids.extend(part["functionCall"]["id"].as_str().map(str::to_owned));
        let signature = part.as_object_mut().and_then(|part| part.shift_remove("thoughtSignature"));
        if let Some(Value::String(signature)) = signature {
            form.signatures.insert(signature, part);
        }
    }
    form.check_body(body, true)
}

impl GeminiForm {
    fn check_body(&self, body: &Value, is_signing: bool) -> Checked {
        let members = body.as_object().ok_or("the body must be an object")?;
        let known = [
            "contents",
            "systemInstruction",
            "tools",
            "toolConfig",
            "generationConfig",
            "safetySettings",
        ];
        check_keys(members, &known, "the body")?;
        if let Some(config) = members.get("generationConfig") {
            let known = ["temperature", "topP", "maxOutputTokens", "thinkingConfig"];
            check_keys(config.as_object().ok_or("generationConfig")?, &known, "generationConfig")?;
        }
        if let Some(system) = members.get("systemInstruction") {
            let system = system.as_object().ok_or("systemInstruction must be an object")?;
            check_keys(system, &["parts"], "systemInstruction")?;
            check_texts(&system["parts"]).map_err(|error| format!("systemInstruction: {error}"))?;
        }
        if let Some(tools) = members.get("tools") {
            check_tools(tools)?;
        }
        self.check_contents(&body["contents"], is_signing)
    }

    /// The parts of an answer; remembers what it signs and names.
    fn parts(&mut self, message: &Message, request: &RecordedRequest) -> Vec<Value> {
        let mut parts = Vec::new();
        if let Some(reasoning) = &message.reasoning {
            parts.push(json!({"text": reasoning, "thought": true}));
        }
        if let Some(text) = &message.content {
            parts.push(json!({"text": text}));
        }
        let signed = if message.calls.is_empty() {
            parts.push(json!({"text": ""}));
            parts.len() - 1
        } else {
            parts.len()
        };
        for (id, name, arguments) in &message.calls {
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            let arguments = if arguments.is_object() { arguments } else { json!({}) };
            let mut call = json!({"name": name, "args": arguments});
            if model(request).contains("ids") {
                call["id"] = json!(id);
                self.ids.insert(id.clone());
            }
            parts.push(json!({"functionCall": call}));
        }
        if is_signing(request) {
            let signature = format!("c2lnbmF0dXJl{:04}", self.signatures.len());
            self.signatures.insert(signature.clone(), parts[signed].clone());
            parts[signed]["thoughtSignature"] = signature.into();
        } else if message.calls.is_empty() {
            parts.pop();
        }
        parts
    }

    fn check_contents(&self, contents: &Value, is_signing: bool) -> Checked {
        let contents = contents.as_array().filter(|contents| !contents.is_empty());
        let contents = contents.ok_or("contents is not specified")?;
        let is_turn_start = |content: &Value| {
            content["role"] == "user" && content["parts"][0].get("functionResponse").is_none()
        };
        let turn = contents.iter().rposition(is_turn_start).unwrap_or(0);
        let mut calls: Vec<&Value> = Vec::new();
        for (at, content) in contents.iter().enumerate() {
            let role = ["user", "model"][at % 2];
            let checked = if content["role"] != role {
                Err(format!("the role must be {role}, the roles alternate"))
            } else if role == "user" {
                check_user(&content["parts"], &calls)
            } else {
                self.check_model(&content["parts"], is_signing, at > turn)
            };
            checked.map_err(|error| format!("contents[{at}]: {error}"))?;
            let parts = content["parts"].as_array().into_iter().flatten();
            calls = parts.filter_map(|part| part.get("functionCall")).collect();
        }
        if contents.len() % 2 == 0 {
            return Err("the last content must be of the user".to_owned());
        }
        Ok(())
    }

    fn check_model(&self, parts: &Value, is_signing: bool, is_running: bool) -> Checked {
        let parts = non_empty(parts)?;
        let first_call = parts.iter().position(|part| part.get("functionCall").is_some());
        for (at, part) in parts.iter().enumerate() {
            let known = ["text", "thought", "functionCall", "thoughtSignature"];
            check_keys(part.as_object().ok_or("not an object")?, &known, "a part")?;
            let signature = part["thoughtSignature"].as_str();
            if part.get("functionCall").is_none() {
                check_text(part, signature.is_some())?;
            }
            if let Some(call) = part.get("functionCall") {
                check_keys(
                    call.as_object().ok_or("functionCall")?,
                    &["name", "args", "id"],
                    "functionCall",
                )?;
                check_name(&call["name"])?;
                if !call["args"].is_object() {
                    return Err("args must be an object".to_owned());
                }
                if call["id"].as_str().is_some_and(|id| !self.ids.contains(id)) {
                    return Err(format!("Unknown name \"id\": {call}"));
                }
            }
            let needs_signature = is_signing && is_running && Some(at) == first_call;
            match signature {
                None if needs_signature => {
                    return Err(format!("the functionCall {part} is missing a thought_signature"));
                }
                None => {}
                Some(FOREIGN_SIGNATURE) if is_running && Some(at) == first_call => {}
                Some(signature) => self.check_signature(signature, part)?,
            }
        }
        Ok(())
    }

    fn check_signature(&self, signature: &str, part: &Value) -> Checked {
        let mut unsigned = part.clone();
        unsigned.as_object_mut().map(|part| part.shift_remove("thoughtSignature"));
        if self.signatures.get(signature) == Some(&unsigned) {
            return Ok(());
        }
        Err(format!("Corrupted thought signature: {part}"))
    }
}

/// Checks a content of the user, which answers `calls`.
fn check_user(parts: &Value, calls: &[&Value]) -> Checked {
    let parts = non_empty(parts)?;
    let count = parts.iter().filter(|part| part.get("functionResponse").is_some()).count();
    if count != calls.len() {
        return Err(format!("{count} function responses for {} function calls", calls.len()));
    }
    for (part, call) in parts.iter().zip(calls) {
        let response = &part["functionResponse"];
        let members = response.as_object().ok_or("the function responses come first")?;
        check_keys(members, &["name", "id", "response", "parts"], "functionResponse")?;
        if response["name"] != call["name"] || response.get("id") != call.get("id") {
            return Err(format!("{response} does not answer {call}"));
        }
        if !response["response"]["output"].is_string() {
            return Err(format!("{response} has no output"));
        }
        let images = response["parts"].as_array().into_iter().flatten();
        images.map(|part| &part["inlineData"]).try_for_each(check_inline_data)?;
    }
    for part in &parts[count..] {
        check_keys(part.as_object().ok_or("not an object")?, &["text", "inlineData"], "a part")?;
        match part.get("inlineData") {
            Some(data) => check_inline_data(data)?,
            None => check_text(part, false)?,
        }
    }
    Ok(())
}

fn check_inline_data(data: &Value) -> Checked {
    let members = data.as_object().ok_or("inlineData must be an object")?;
    check_keys(members, &["mimeType", "data"], "inlineData")?;
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    match text("mimeType") {
        "application/pdf" => check_document(text("data")),
        media_type => check_image(media_type, text("data")),
    }
}

fn non_empty(parts: &Value) -> Result<&Vec<Value>, String> {
    let parts = parts.as_array().filter(|parts| !parts.is_empty());
    parts.ok_or_else(|| "parts must not be empty".to_owned())
}

fn check_keys(object: &Map<String, Value>, known: &[&str], place: &str) -> Checked {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!("Invalid JSON payload received. Unknown name {key:?} in {place}")),
    }
}

fn check_text(part: &Value, may_be_empty: bool) -> Checked {
    match part["text"].as_str() {
        Some(text) if may_be_empty || !text.is_empty() => Ok(()),
        _ => Err(format!("a part needs a text: {part}")),
    }
}

fn check_texts(parts: &Value) -> Checked {
    non_empty(parts)?.iter().try_for_each(|part| check_text(part, false))
}

fn check_name(name: &Value) -> Checked {
    let name = name.as_str().unwrap_or_default();
    let has_start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    if has_start && name.len() <= 128 && name.chars().all(is_valid) {
        return Ok(());
    }
    Err(format!("Invalid function name {name:?}"))
}

fn check_tools(tools: &Value) -> Checked {
    let tools = non_empty(tools)?;
    let mut names = HashSet::new();
    for tool in tools {
        check_keys(tool.as_object().ok_or("a tool")?, &["functionDeclarations"], "a tool")?;
        for declaration in non_empty(&tool["functionDeclarations"])? {
            // Endpoints accept both names of a field, and Google's SDK sends this one by the other.
            let schema = ["parametersJsonSchema", "parameters_json_schema"];
            let known = ["name", "description", schema[0], schema[1]];
            check_keys(declaration.as_object().ok_or("a declaration")?, &known, "a declaration")?;
            check_name(&declaration["name"])?;
            if !names.insert(&declaration["name"]) {
                return Err(format!("Duplicate function declaration: {}", declaration["name"]));
            }
            if !schema.iter().any(|name| declaration[name]["type"] == "object") {
                return Err(format!("the parameters must be an object: {declaration}"));
            }
        }
    }
    Ok(())
}
