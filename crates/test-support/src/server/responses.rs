//! OpenAI's Responses without state: the answers of the script in this form, and what a strict endpoint refuses.

use super::answer::{Message, cut};
use super::form::ServedForm;
use super::image_check::{check_document_url, check_image_url};
use super::strict::is_name;
use super::{Answer, RecordedRequest};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

type Checked = Result<(), String>;

/// The members of a request that the form knows and a client without state may send.
const BODY_KEYS: [&str; 24] = [
    "model",
    "input",
    "tools",
    "store",
    "include",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "stream",
    "stream_options",
    "max_output_tokens",
    "temperature",
    "top_p",
    "reasoning",
    "text",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "metadata",
    "service_tier",
    "safety_identifier",
    "truncation",
    "top_logprobs",
    "user",
];

/// The form, with every item that it issued.
#[derive(Default)]
pub(super) struct ResponsesForm {
    answers: usize,
    /// By id.
    issued: HashMap<String, IssuedItem>,
}

/// An item of an answer.
struct IssuedItem {
    item: Value,
    /// The id of the reasoning right before it.
    reasoning: Option<String>,
    /// The id of the item right after it.
    follower: Option<String>,
}

impl ServedForm for ResponsesForm {
    fn serves(&self, request: &RecordedRequest) -> bool {
        request.path() == "POST /v1/responses"
    }

    fn check(&mut self, request: &RecordedRequest) -> Checked {
        self.check_body(&request.body)
    }

    fn is_streamed(&self, request: &RecordedRequest) -> bool {
        request.body["stream"] == true
    }

    fn body(&mut self, message: &Message, request: &RecordedRequest) -> Value {
        let output = self.issue(message);
        response(message, request, output)
    }

    fn events(&mut self, message: &Message, request: &RecordedRequest) -> Vec<String> {
        let output = self.issue(message);
        let opened = json!({"id": "resp_scripted", "object": "response", "status": "in_progress", "model": request.body["model"], "output": []});
        let mut events = vec![
            json!({"type": "response.created", "response": opened}),
            json!({"type": "response.in_progress", "response": opened}),
        ];
        for (index, item) in output.iter().enumerate() {
            events.extend(item_events(index, item));
        }
        let response = response(message, request, output);
        let kind = format!("response.{}", response["status"].as_str().unwrap_or_default());
        events.push(json!({"type": kind, "response": response}));
        let numbered = events.into_iter().enumerate().map(|(number, mut event)| {
            event["sequence_number"] = json!(number);
            let kind = event["type"].as_str().unwrap_or_default().to_owned();
            format!("event: {kind}\ndata: {event}\n\n")
        });
        numbered.collect()
    }

    fn refusal(&self, violation: &str) -> Answer {
        let is_foreign = violation.contains("could not be verified");
        let error = json!({
            "message": violation,
            "type": "invalid_request_error",
            "param": "input",
            "code": is_foreign.then_some("invalid_encrypted_content"),
        });
        Answer::raw(400, json!({"error": error}).to_string())
    }
}

impl ResponsesForm {
    /// The items of an answer, which the form remembers.
    fn issue(&mut self, message: &Message) -> Vec<Value> {
        self.answers += 1;
        let items = answer_items(message, self.answers);
        let id =
            |item: Option<&Value>| item.and_then(|item| item["id"].as_str().map(str::to_owned));
        for (index, item) in items.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &items[before]);
            let issued = IssuedItem {
                item: item.clone(),
                reasoning: id(before.filter(|before| before["type"] == "reasoning")),
                follower: id(items.get(index + 1)),
            };
            self.issued.insert(id(Some(item)).unwrap_or_default(), issued);
        }
        items
    }

    fn check_body(&self, body: &Value) -> Checked {
        let members = body.as_object().ok_or("the body must be an object")?;
        check_keys(members.keys(), &BODY_KEYS)?;
        if body["model"].as_str().is_none_or(str::is_empty) {
            return Err("model must be a non-empty string".to_owned());
        }
        if body["store"] != false {
            return Err("store must be false".to_owned());
        }
        if body["include"] != json!(["reasoning.encrypted_content"]) {
            return Err("include must ask for reasoning.encrypted_content".to_owned());
        }
        if body["prompt_cache_key"].as_str().is_none_or(|key| !(1..=64).contains(&key.len())) {
            return Err("prompt_cache_key must have 1 to 64 characters".to_owned());
        }
        if !body["max_output_tokens"].is_null() && body["max_output_tokens"].as_u64() < Some(16) {
            return Err("max_output_tokens must be at least 16".to_owned());
        }
        if let Some(tools) = body.get("tools") {
            check_tools(tools.as_array().filter(|tools| !tools.is_empty()))?;
        }
        let input = body["input"].as_array().filter(|input| !input.is_empty());
        self.check_input(input.ok_or("input must be a non-empty array")?)
    }

    fn check_input(&self, input: &[Value]) -> Checked {
        let mut pairs = CallPairs::default();
        for (at, item) in input.iter().enumerate() {
            let neighbours = Neighbours {
                before: at.checked_sub(1).and_then(|before| input[before]["id"].as_str()),
                after: input.get(at + 1).and_then(|item| item["id"].as_str()),
            };
            check_item(item)
                .and_then(|()| pairs.add(item))
                .and_then(|()| self.check_issued(item, &neighbours))
                .map_err(|error| format!("input[{at}]: {error}"))?;
        }
        match pairs.open.first() {
            None => Ok(()),
            Some(id) => Err(format!("No tool output found for function call {id}.")),
        }
    }

    /// Checks that an item which this endpoint issued is unchanged and where it was.
    fn check_issued(&self, item: &Value, neighbours: &Neighbours<'_>) -> Checked {
        let Some(id) = item["id"].as_str() else { return Ok(()) };
        let Some(issued) = self.issued.get(id) else {
            return Err(format!("The encrypted content for item {id} could not be verified."));
        };
        if issued.item["encrypted_content"] != item["encrypted_content"] {
            return Err(format!("The encrypted content for item {id} could not be verified."));
        }
        if issued.item != *item {
            return Err(format!("the item {id} is not the one that was sent: {item}"));
        }
        let kind = item["type"].as_str().unwrap_or_default();
        if kind == "reasoning" && issued.follower.as_deref() != neighbours.after {
            return Err(format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ));
        }
        match &issued.reasoning {
            Some(reasoning) if neighbours.before != Some(reasoning) => Err(format!(
                "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{reasoning}'."
            )),
            _ => Ok(()),
        }
    }
}

/// The ids of the items around an item.
struct Neighbours<'a> {
    before: Option<&'a str>,
    after: Option<&'a str>,
}

/// The calls of the conversation and their results.
#[derive(Default)]
struct CallPairs<'a> {
    ids: HashSet<&'a str>,
    /// The calls without a result, in order.
    open: Vec<&'a str>,
    /// Whether a call of the last answer has its result.
    is_answering: bool,
}

impl<'a> CallPairs<'a> {
    fn add(&mut self, item: &'a Value) -> Checked {
        let call_id = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or("message") {
            "function_call_output" => {
                if self.open.first() != Some(&call_id) {
                    return Err(format!("No tool call found for function call output {call_id}."));
                }
                self.open.remove(0);
                self.is_answering = !self.open.is_empty();
            }
            kind if self.is_answering => {
                return Err(format!("a {kind} between the results of an answer"));
            }
            "function_call" => {
                if !self.ids.insert(call_id) {
                    return Err(format!("the call id {call_id:?} is used twice"));
                }
                self.open.push(call_id);
            }
            "reasoning" => {}
            _ if item["role"] == "assistant" => {}
            kind if !self.open.is_empty() => {
                return Err(format!("a {kind} before the output of the call {:?}", self.open[0]));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The items of an answer; `number` makes their ids unique.
fn answer_items(message: &Message, number: usize) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(reasoning) = &message.reasoning {
        items.push(json!({
            "type": "reasoning",
            "id": format!("rs_{number}"),
            "summary": [{"type": "summary_text", "text": reasoning}],
            "encrypted_content": format!("gAAAA-{number}-{}", reasoning.len()),
        }));
    }
    if let Some(text) = &message.content {
        let content =
            json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        let mut item = json!({
            "type": "message",
            "id": format!("msg_{number}"),
            "status": "completed",
            "role": "assistant",
            "content": [content],
        });
        if message.reasoning.is_some() {
            let phase = if message.calls.is_empty() { "final_answer" } else { "commentary" };
            item["phase"] = json!(phase);
        }
        items.push(item);
    }
    for (index, (call_id, name, arguments)) in message.calls.iter().enumerate() {
        items.push(json!({
            "type": "function_call",
            "id": format!("fc_{number}_{index}"),
            "status": "completed",
            "call_id": call_id,
            "name": name,
            "arguments": arguments,
        }));
    }
    items
}

fn response(message: &Message, request: &RecordedRequest, output: Vec<Value>) -> Value {
    let reason = match message.finish_reason.as_deref() {
        Some("length") => Some("max_output_tokens"),
        Some("content_filter") => Some("content_filter"),
        _ => None,
    };
    let usage = message.usage.as_ref().map(|usage| {
        json!({
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"],
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": usage["completion_tokens_details"],
            "total_tokens": usage["total_tokens"],
        })
    });
    json!({
        "id": "resp_scripted",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": if reason.is_some() { "incomplete" } else { "completed" },
        "error": null,
        "incomplete_details": reason.map(|reason| json!({"reason": reason})),
        "model": request.body["model"],
        "output": output,
        "usage": usage,
        "store": false,
    })
}

/// The events of an item, whose texts come in pieces. What an item holds when it is added is incomplete.
fn item_events(index: usize, item: &Value) -> Vec<Value> {
    let mut added = item.clone();
    let mut pieces = Vec::new();
    let piece = |kind: &str, part: &str, text: &Value| -> Vec<Value> {
        let event = |piece| json!({"type": format!("response.{kind}.delta"), "output_index": index, "item_id": item["id"], part: 0, "delta": piece});
        cut(text.as_str()).map(event).collect()
    };
    match item["type"].as_str().unwrap_or_default() {
        "reasoning" => {
            added["summary"] = json!([]);
            added["encrypted_content"] = json!("gAAAA-partial");
            let text = &item["summary"][0]["text"];
            pieces.extend(piece("reasoning_summary_text", "summary_index", text));
        }
        "message" => {
            added["content"] = json!([]);
            added["status"] = json!("in_progress");
            let part = json!({"type": "output_text", "text": "", "annotations": []});
            pieces.push(json!({"type": "response.content_part.added", "output_index": index, "content_index": 0, "part": part}));
            pieces.extend(piece("output_text", "content_index", &item["content"][0]["text"]));
        }
        _ => {
            added["arguments"] = json!("");
            added["status"] = json!("in_progress");
            pieces.extend(piece("function_call_arguments", "content_index", &item["arguments"]));
        }
    }
    let added = json!({"type": "response.output_item.added", "output_index": index, "item": added});
    let done = json!({"type": "response.output_item.done", "output_index": index, "item": item});
    [vec![added], pieces, vec![done]].concat()
}

fn check_keys<'a>(keys: impl Iterator<Item = &'a String>, known: &[&str]) -> Checked {
    match keys.into_iter().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(format!("Unknown parameter: '{unknown}'.")),
    }
}

fn check_tools(tools: Option<&Vec<Value>>) -> Checked {
    let mut names = HashSet::new();
    for tool in tools.ok_or("tools must be a non-empty array")? {
        let members = tool.as_object().ok_or("a tool must be an object")?;
        check_keys(members.keys(), &["type", "name", "description", "parameters", "strict"])?;
        let name = tool["name"].as_str().filter(|name| is_name(name)).ok_or("a bad tool name")?;
        if tool["type"] != "function" || !names.insert(name) {
            return Err(format!(
                "the tool {name:?} must be a function, and have a name of its own"
            ));
        }
        if tool["strict"] != false || tool["parameters"]["type"] != "object" {
            return Err(format!("the tool {name:?} needs strict: false and a schema of an object"));
        }
    }
    Ok(())
}

/// Checks an item by itself.
fn check_item(item: &Value) -> Checked {
    let members = item.as_object().ok_or("an item must be an object")?;
    let known: &[&str] = match item["type"].as_str() {
        None | Some("message") => return check_message(item),
        Some("reasoning") => &["type", "id", "summary", "content", "encrypted_content", "status"],
        Some("function_call") => &["type", "id", "call_id", "name", "arguments", "status"],
        Some("function_call_output") => &["type", "call_id", "output"],
        Some(kind) => return Err(format!("an item of the unknown type {kind:?}")),
    };
    check_keys(members.keys(), known)?;
    if item["type"] == "reasoning" {
        return Ok(());
    }
    if item["call_id"].as_str().is_none_or(|id| !(1..=64).contains(&id.chars().count())) {
        return Err(format!("call_id must have 1 to 64 characters: {}", item["call_id"]));
    }
    if item["type"] == "function_call" {
        let is_object = |text| matches!(serde_json::from_str(text), Ok(Value::Object(_)));
        if !item["arguments"].as_str().is_some_and(is_object) {
            return Err(format!("the arguments must be a JSON object: {}", item["arguments"]));
        }
        return match item["name"].as_str() {
            Some(name) if is_name(name) => Ok(()),
            _ => Err(format!("a bad name: {}", item["name"])),
        };
    }
    match &item["output"] {
        Value::String(text) if !text.is_empty() => Ok(()),
        Value::Array(parts) if !parts.is_empty() => check_parts(parts, "input_"),
        other => Err(format!("the output is {other}")),
    }
}

fn check_message(item: &Value) -> Checked {
    let members = item.as_object().ok_or("not an object")?;
    check_keys(members.keys(), &["type", "id", "status", "role", "phase", "content"])?;
    let role = item["role"].as_str().unwrap_or_default();
    if !["developer", "user", "assistant"].contains(&role) {
        return Err(format!("unknown role {}", item["role"]));
    }
    match &item["content"] {
        Value::String(text) if !text.is_empty() => Ok(()),
        Value::Array(parts) if !parts.is_empty() => {
            check_parts(parts, if role == "assistant" { "output_" } else { "input_" })
        }
        other => Err(format!("the content is {other}")),
    }
}

fn check_parts(parts: &[Value], prefix: &str) -> Checked {
    for part in parts {
        let kind = part["type"].as_str().unwrap_or_default();
        if !kind.starts_with(prefix) && kind != "refusal" {
            return Err(format!("a part of the type {kind:?}"));
        }
        if kind == "input_image" {
            check_image_url(part["image_url"].as_str().unwrap_or_default())?;
        }
        if kind == "input_file" {
            part["filename"].as_str().ok_or("an `input_file` without a `filename`")?;
            check_document_url(part["file_data"].as_str().unwrap_or_default())?;
        }
        if kind.ends_with("_text") && part["text"].as_str().is_none_or(str::is_empty) {
            return Err(format!("a part without a text: {part}"));
        }
    }
    Ok(())
}
