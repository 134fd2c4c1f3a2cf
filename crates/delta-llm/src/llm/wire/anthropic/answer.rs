//! An answer in the form of Messages, whole or as the events of a stream.

use super::super::super::answer_error::{AnswerError, UnusableAnswer};
use super::super::super::reply_assembler::StreamError;
use super::super::answer_end::unusable_ending;
use super::super::neutral_response::NeutralUsage;
use super::super::{DecodeContext, EventAssembler, NeutralAnswer, reported_error};
use crate::llm::argument_text::ArgumentText;
use delta_http::retry::RetryDecision;
use delta_words::{
    NativeParts, Reply, SERVICE_TIER_KEY, ServiceTier, ToolCall, Usage, WireForm, are_no_arguments,
    are_token_counts, arguments_text, merge_counts, parse_token_count, reported_cost,
    sent_arguments, settled_arguments, unexpected_arguments,
};
use serde_json::{Map, Value, json};

/// Assembles the events of a stream into the message that the endpoint would have sent whole; only the input of a call
/// stays the text that arrived.
#[derive(Debug, Default)]
pub struct MessageAssembler {
    message: Map<String, Value>,
    /// The blocks in the order of their first events.
    blocks: Vec<PartialBlock>,
    text: String,
    reasoning: String,
    /// The pieces of the inputs of calls.
    arguments: String,
    reported: Option<Usage>,
    /// The only reason so far came with the first event, where it does not mean the end.
    has_early_reason: bool,
    is_stopped: bool,
}

#[derive(Debug, Default)]
struct PartialBlock {
    index: u64,
    block: Map<String, Value>,
    /// The input of a call.
    input: ArgumentText,
}

impl PartialBlock {
    fn is_of(&self, kind: BlockKind) -> bool {
        let name = self.block.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            BlockKind::Call => name.ends_with("tool_use"),
            BlockKind::Text => name == "text",
            BlockKind::Thinking => name == "thinking",
            BlockKind::Other => true,
        }
    }
}

/// What a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum BlockKind {
    Call,
    Text,
    Thinking,
    Other,
}

impl BlockKind {
    fn of_delta(kind: &str) -> Self {
        match kind {
            "input_json_delta" => Self::Call,
            "text_delta" | "citations_delta" => Self::Text,
            "thinking_delta" | "signature_delta" => Self::Thinking,
            _ => Self::Other,
        }
    }

    /// A block whose beginning did not arrive.
    fn new_block(self) -> Map<String, Value> {
        let block = match self {
            Self::Call => json!({"type": "tool_use"}),
            Self::Text => json!({"type": "text", "text": ""}),
            Self::Thinking => json!({"type": "thinking", "thinking": ""}),
            Self::Other => json!({}),
        };
        block.as_object().cloned().unwrap_or_default()
    }
}

impl MessageAssembler {
    fn start_block(&mut self, index: Option<u64>, block: Value) {
        let Value::Object(mut block) = block else { return };
        if block.get("type").is_some_and(|kind| kind == "thinking") && !self.reasoning.is_empty() {
            self.reasoning.push_str("\n\n");
        }
        self.add_live_text(&block);
        // A call starts with an empty object, and its input follows as text; or it starts with all of it.
        let input = match block.get_mut("input").map(Value::take) {
            Some(Value::Object(input)) if input.is_empty() => String::new(),
            Some(input) => arguments_text(&input).into_owned(),
            None => String::new(),
        };
        let started = self.blocks.iter().rposition(|it| {
            let is_it =
                if let Some(index) = index { it.index == index } else { !it.input.is_filled() };
            is_it && block.get("id").is_some_and(|id| it.block.get("id") == Some(id))
        });
        let at = started.unwrap_or_else(|| {
            let index = index.unwrap_or(self.blocks.len() as u64);
            self.blocks.push(PartialBlock { index, block, ..PartialBlock::default() });
            self.blocks.len() - 1
        });
        self.blocks[at].input.push(&input);
    }

    fn add_delta(&mut self, event: &mut Value) {
        let index = event["index"].as_u64();
        let Value::Object(delta) = event["delta"].take() else { return };
        self.add_live_text(&delta);
        let name = delta.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = BlockKind::of_delta(&name);
        let Some(at) = self.block_of(kind, index) else { return };
        let PartialBlock { block, input, .. } = &mut self.blocks[at];
        for (member, value) in delta.into_iter().filter(|(member, _)| member != "type") {
            match name.as_str() {
                "input_json_delta" => input.push(&unexpected_arguments(&value)),
                "citations_delta" if member == "citation" => append_item(block, "citations", value),
                // It comes once, and whole.
                "signature_delta" => drop(block.insert(member, value)),
                _ => append_piece(block, &member, value),
            }
        }
    }

    /// The block that a piece belongs to: the one with its index, unless that is of another kind or a call that is whole
    /// before one that is not.
    fn block_of(&mut self, kind: BlockKind, index: Option<u64>) -> Option<usize> {
        let find = |is_it: &dyn Fn(&PartialBlock) -> bool| self.blocks.iter().rposition(is_it);
        let last = find(&|it| it.is_of(kind));
        let indexed = find(&|it| it.is_of(kind) && Some(it.index) == index);
        let open = last.filter(|at| !self.blocks[*at].input.is_closed());
        match indexed {
            Some(at) if kind == BlockKind::Call && self.blocks[at].input.is_closed() => {
                open.or(indexed)
            }
            None if kind == BlockKind::Other => None,
            None if last.is_none() => {
                let index = index.unwrap_or(self.blocks.len() as u64);
                let block = kind.new_block();
                self.blocks.push(PartialBlock { index, block, ..PartialBlock::default() });
                Some(self.blocks.len() - 1)
            }
            None => last,
            at => at,
        }
    }

    /// Adds what an observer sees at once.
    fn add_live_text(&mut self, piece: &Map<String, Value>) {
        let text = |name: &str| piece.get(name).and_then(Value::as_str).unwrap_or_default();
        self.text.push_str(text("text"));
        self.reasoning.push_str(text("thinking"));
        self.arguments.push_str(text("partial_json"));
    }

    /// Adds members of the message; the counts of a later event are totals.
    fn merge_message(&mut self, newer: Value) {
        let Value::Object(newer) = newer else { return };
        for (name, value) in newer {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("usage", usage) => {
                    merge_counts(self.message.entry(name).or_insert(Value::Null), usage);
                }
                // A message that is whole.
                ("content", Value::Array(blocks)) if self.blocks.is_empty() => {
                    (0..)
                        .zip(blocks)
                        .for_each(|(index, block)| self.start_block(Some(index), block));
                }
                ("content", _) => {}
                (_, value) => drop(self.message.insert(name, value)),
            }
        }
        self.note_usage();
    }

    fn note_usage(&mut self) {
        let model = self.message.get("model").and_then(Value::as_str).unwrap_or_default();
        let usage = self.message.get("usage").and_then(read_message_usage);
        self.reported = usage.and_then(|usage| usage.into_usage(model));
    }

    fn stop_reason(&self) -> &str {
        self.message.get("stop_reason").and_then(Value::as_str).unwrap_or_default()
    }
}

/// Appends to a text, or replaces a value that is not one.
fn append_piece(block: &mut Map<String, Value>, name: &str, piece: Value) {
    match (block.get_mut(name), piece) {
        (Some(Value::String(text)), Value::String(piece)) => text.push_str(&piece),
        (_, piece) => drop(block.insert(name.to_owned(), piece)),
    }
}

fn append_item(block: &mut Map<String, Value>, name: &str, item: Value) {
    match block.get_mut(name) {
        Some(Value::Array(items)) => items.push(item),
        _ => drop(block.insert(name.to_owned(), Value::Array(vec![item]))),
    }
}

impl EventAssembler for MessageAssembler {
    fn add_event(&mut self, mut event: Value) -> Result<(), StreamError> {
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                self.merge_message(event["message"].take());
                self.has_early_reason = true;
            }
            "message" => self.merge_message(event),
            "content_block_start" => {
                self.start_block(event["index"].as_u64(), event["content_block"].take());
            }
            "content_block_delta" => self.add_delta(&mut event),
            "message_delta" => {
                self.has_early_reason &= event["delta"]["stop_reason"].is_null();
                self.merge_message(event["delta"].take());
                self.merge_message(json!({"usage": event["usage"].take()}));
            }
            "message_stop" => self.is_stopped = true,
            "content_block_stop" | "ping" => {}
            _ => {
                if let Some(error) = reported_error(&event) {
                    return Err(StreamError::Reported(error));
                }
            }
        }
        Ok(())
    }

    /// Some servers end with the reason, and without `message_stop`; that alone is what others send after a failure too.
    fn is_complete(&self) -> bool {
        !self.stop_reason().is_empty() && (self.is_stopped || !self.has_early_reason)
    }

    fn is_ended(&self) -> bool {
        self.is_stopped || self.is_complete()
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn reasoning(&self) -> &str {
        &self.reasoning
    }

    fn arguments(&self) -> &str {
        &self.arguments
    }

    fn usage(&self) -> Option<&Usage> {
        self.reported.as_ref()
    }

    fn into_response(mut self) -> Value {
        self.blocks.sort_by_key(|block| block.index);
        let blocks = self.blocks.into_iter().map(|PartialBlock { mut block, input, .. }| {
            if block.contains_key("input") || !input.is_empty() {
                block.insert("input".to_owned(), input.into_text().into());
            }
            Value::Object(block)
        });
        self.message.insert("content".to_owned(), blocks.collect());
        Value::Object(self.message)
    }
}

/// Reads a message, whose calls may have their input as text.
pub fn decode(mut response: Value, context: &DecodeContext<'_>) -> Result<Reply, AnswerError> {
    if response["content"].is_null()
        && let Some(error) = reported_error(&response)
    {
        return Err(AnswerError::Reported(error));
    }
    let stop_reason = response["stop_reason"].as_str().unwrap_or_default();
    let is_cut_off = translate_stop_reason(stop_reason) == Some("length");
    let Some(blocks) = response["content"].as_array_mut() else {
        let message = "the response has no list `content`";
        return Err(AnswerError::NoAnswer(message.to_owned(), response));
    };
    let calls: Vec<_> = if is_cut_off && let Some((last, earlier)) = blocks.split_last_mut() {
        let calls = earlier.iter_mut().filter_map(|block| read_tool_use(block, "{}"));
        // Nothing of its input may have arrived.
        calls.chain(read_tool_use(last, "")).collect()
    } else {
        blocks.iter_mut().filter_map(|block| read_tool_use(block, "{}")).collect()
    };
    let blocks = response["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = |kind: &str, name: &str, separator: &str| {
        let texts = blocks.iter().filter(|block| block["type"] == kind);
        let texts: Vec<_> = texts.filter_map(|block| block[name].as_str()).collect();
        Some(texts.join(separator)).filter(|text| !text.is_empty())
    };
    let stop_reason = response["stop_reason"].as_str().unwrap_or_default();
    let model = response["model"].as_str().unwrap_or(context.model);
    let usage = read_message_usage(&response["usage"]);
    let unusable = unusable_pause(stop_reason)
        .or_else(|| unusable_ending("stop_reason", stop_reason, !calls.is_empty()));
    if let Some(unusable) = unusable {
        return Err(AnswerError::Unusable(Box::new(UnusableAnswer {
            usage: usage.and_then(|usage| usage.into_usage(model)),
            response: response.clone(),
            ..unusable
        })));
    }
    let is_refused = stop_reason == "refusal";
    let answer = NeutralAnswer {
        id: response["id"].as_str().map(str::to_owned),
        model: model.to_owned(),
        content: texts("text", "text", ""),
        reasoning: texts("thinking", "thinking", "\n\n"),
        refusal: refusal_text(&response["stop_details"]).filter(|_| is_refused),
        // The model did not finish what it began.
        tool_calls: if is_refused { Vec::new() } else { calls },
        finish_reason: translate_stop_reason(stop_reason).map(str::to_owned),
        ending: None,
        usage,
        native: blocks.iter().any(is_opaque).then(|| NativeParts {
            form: WireForm::Anthropic.name().to_owned(),
            model: context.model.to_owned(),
            endpoint: None,
            basis: context.basis.map(str::to_owned),
            parts: response["content"].clone(),
        }),
    };
    Ok(answer.into_reply(response))
}

/// The call of a block, if it is one; `missing` are its arguments if it has none. Its input becomes an object again, unless
/// it was cut off.
fn read_tool_use(block: &mut Value, missing: &str) -> Option<ToolCall> {
    let is_call = block["type"] == "tool_use";
    let sent = match block.get("input") {
        _ if is_call => sent_arguments(&[block], "input"),
        Some(input) => arguments_text(input),
        None => return None,
    };
    let sent = settled_arguments(&sent);
    let arguments = if are_no_arguments(sent) { missing } else { sent }.to_owned();
    if let Ok(input @ Value::Object(_)) = serde_json::from_str(&arguments) {
        block["input"] = input;
    }
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    is_call.then(|| ToolCall::new(text("id"), text("name"), arguments))
}

/// Whether a block has to go back as it came: text and plain calls can be made from their values.
fn is_opaque(block: &Value) -> bool {
    block["type"] != "text" && block["type"] != "tool_use"
}

/// The error of an answer that the endpoint has to continue itself.
fn unusable_pause(stop_reason: &str) -> Option<UnusableAnswer> {
    (stop_reason == "pause_turn").then(|| UnusableAnswer {
        message: "the model paused in the middle of its turn (stop_reason `pause_turn`), which delta cannot continue".to_owned(),
        hint: Some("take the endpoint's own tools and servers out of `llm`".to_owned()),
        usage: None,
        retry: RetryDecision::Never,
        response: Value::Null,
    })
}

fn translate_stop_reason(stop_reason: &str) -> Option<&str> {
    Some(match stop_reason {
        "" => return None,
        "end_turn" | "stop_sequence" => "stop",
        "tool_use" => "tool_calls",
        "max_tokens" | "model_context_window_exceeded" => "length",
        other => other,
    })
}

/// Why the model refused, in the endpoint's words.
fn refusal_text(details: &Value) -> Option<String> {
    let explanation = details["explanation"].as_str();
    match (explanation, details["category"].as_str()) {
        (Some(explanation), Some(category)) => Some(format!("{explanation} ({category})")),
        (Some(text), None) | (None, Some(text)) => Some(text.to_owned()),
        (None, None) => None,
    }
}

fn read_message_usage(usage: &Value) -> Option<NeutralUsage> {
    let count = |name: &str| parse_token_count(&usage[name]);
    let totals = ["input_tokens", "output_tokens"].iter().filter_map(|name| usage.get(*name));
    let cached = count("cache_read_input_tokens").unwrap_or(0);
    let cache_write = count("cache_creation_input_tokens");
    let fresh = count("input_tokens").unwrap_or(0);
    are_token_counts(totals).then(|| NeutralUsage {
        input: fresh.saturating_add(cached).saturating_add(cache_write.unwrap_or(0)),
        cached,
        cache_write,
        output: count("output_tokens").unwrap_or(0),
        reasoning: usage["output_tokens_details"]["thinking_tokens"].as_u64(),
        cost: reported_cost(usage),
        tier: usage[SERVICE_TIER_KEY].as_str().map(ServiceTier::from_name),
    })
}
