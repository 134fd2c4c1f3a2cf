//! Streams as endpoints and gateways spoil them, made from whole ones: cut anywhere, with other numbers and ids, with parts
//! that come twice, with ends that are missing, and with errors at every place and in every frame.
//!
//! Whatever arrives, a call has the arguments that were sent, an answer is complete only with an end that says so, and the
//! words of an error are shown.

use super::recorded_answers::codec;
use delta_llm::llm::wire::DecodeContext;
use delta_words::{Reply, WireForm};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use test_support::effort;

const FORMS: [WireForm; 4] =
    [WireForm::OpenAi, WireForm::Responses, WireForm::Anthropic, WireForm::Gemini];

/// The calls of every stream. No piece of one is a piece of the other.
const CALLS: [(&str, &str); 2] =
    [("note", r#"{"text":"one {\"","n":1}"#), ("tell", r#"{"to":["b","c"]}"#)];

/// The words of every error.
const WORDS: &str = "the engine has died";

/// A whole stream, as the data of its events.
struct WholeStream {
    events: Vec<Value>,
    /// The first event that says that the answer is complete.
    end: usize,
}

/// The pieces of a text.
fn pieces(text: &str, cut: usize) -> [&str; 2] {
    let (one, other) = text.split_at(1 + cut % (text.len() - 1));
    [one, other]
}

fn whole_stream(form: WireForm, cuts: [usize; 2]) -> WholeStream {
    let mut events = Vec::new();
    match form {
        WireForm::OpenAi => {
            let chunk = |delta: Value, reason: Value| {
                json!({"id": "c", "object": "chat.completion.chunk", "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
            };
            events.push(chunk(json!({"role": "assistant", "content": "Well. "}), Value::Null));
            for (index, (name, arguments)) in CALLS.into_iter().enumerate() {
                let call = |call: Value| chunk(json!({"tool_calls": [call]}), Value::Null);
                let id = format!("call_{name}");
                events.push(call(json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}})));
                for piece in pieces(arguments, cuts[index]) {
                    events.push(call(json!({"index": index, "function": {"arguments": piece}})));
                }
            }
            events.push(chunk(json!({}), json!("tool_calls")));
            events.push(
                json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}),
            );
        }
        WireForm::Responses => {
            events.push(json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}));
            let mut items = Vec::new();
            for (index, (name, arguments)) in CALLS.into_iter().enumerate() {
                let item = |arguments: &str, status: &str| {
                    json!({"type": "function_call", "id": format!("fc_{name}"),
                    "call_id": format!("call_{name}"), "name": name, "arguments": arguments, "status": status})
                };
                let of_item = |kind: &str| json!({"type": kind, "output_index": index, "item_id": format!("fc_{name}")});
                let added = |kind: &str, item: Value| json!({"type": kind, "output_index": index, "item": item});
                events.push(added("response.output_item.added", item("", "in_progress")));
                for piece in pieces(arguments, cuts[index]) {
                    let mut event = of_item("response.function_call_arguments.delta");
                    event["delta"] = piece.into();
                    events.push(event);
                }
                let mut event = of_item("response.function_call_arguments.done");
                event["arguments"] = arguments.into();
                events.push(event);
                events.push(added("response.output_item.done", item(arguments, "completed")));
                items.push(item(arguments, "completed"));
            }
            events.push(json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "model": "m",
                "output": items, "usage": {"input_tokens": 9, "output_tokens": 5}}}));
        }
        WireForm::Anthropic => {
            events.push(json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
                "model": "m", "content": [], "stop_reason": null, "usage": {"input_tokens": 9, "output_tokens": 1}}}));
            for (index, (name, arguments)) in CALLS.into_iter().enumerate() {
                events.push(json!({"type": "content_block_start", "index": index,
                    "content_block": {"type": "tool_use", "id": format!("toolu_{name}"), "name": name, "input": {}}}));
                for piece in pieces(arguments, cuts[index]) {
                    events.push(json!({"type": "content_block_delta", "index": index,
                        "delta": {"type": "input_json_delta", "partial_json": piece}}));
                }
                events.push(json!({"type": "content_block_stop", "index": index}));
            }
            events.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}));
            events.push(json!({"type": "message_stop"}));
        }
        WireForm::Gemini => {
            let chunk = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]});
            events.push(chunk(json!({"text": "Well. "})));
            for (name, arguments) in CALLS {
                let args: Value = serde_json::from_str(arguments).unwrap();
                events.push(chunk(json!({"functionCall": {"name": name, "args": args}})));
            }
            events.push(json!({"candidates": [{"finishReason": "STOP", "index": 0}],
                "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5}}));
        }
    }
    let end = match form {
        WireForm::OpenAi | WireForm::Anthropic => events.len() - 2,
        WireForm::Responses | WireForm::Gemini => events.len() - 1,
    };
    WholeStream { events, end }
}

/// What spoils a stream.
#[derive(Debug, Clone)]
enum Fault {
    /// An event comes twice.
    Repeat(Index),
    /// The arguments of each piece are all that have been sent so far.
    Cumulative,
    /// An empty object comes before the arguments.
    EmptyObjectFirst,
    /// The numbers of calls are gone in one event, or in all.
    DropNumbers(Option<Index>),
    /// The number of an event is another one.
    OtherNumber(Index, u64),
    /// Every event has the ids of its call.
    RepeatIds,
    /// The name of a call comes with its last piece.
    LateNames,
    /// An error of this frame comes before an event.
    Error(Index, ErrorFrame),
    /// The stream ends before an event; with `[DONE]`, or with half of the event.
    End(Index, CutEnd),
}

#[derive(Debug, Clone, Copy)]
enum ErrorFrame {
    Data,
    Named,
    NamedText,
    Line,
    Bare,
    WithoutMember,
    InList,
}

#[derive(Debug, Clone, Copy)]
enum CutEnd {
    Plain,
    Done,
    HalfEvent,
}

fn any_fault() -> impl Strategy<Value = Fault> {
    let frame = prop::sample::select(vec![
        ErrorFrame::Data,
        ErrorFrame::Named,
        ErrorFrame::NamedText,
        ErrorFrame::Line,
        ErrorFrame::Bare,
        ErrorFrame::WithoutMember,
        ErrorFrame::InList,
    ]);
    let end = prop::sample::select(vec![CutEnd::Plain, CutEnd::Done, CutEnd::HalfEvent]);
    prop_oneof![
        any::<Index>().prop_map(Fault::Repeat),
        Just(Fault::Cumulative),
        Just(Fault::EmptyObjectFirst),
        prop::option::of(any::<Index>()).prop_map(Fault::DropNumbers),
        (any::<Index>(), 0_u64..4).prop_map(|(at, number)| Fault::OtherNumber(at, number)),
        Just(Fault::RepeatIds),
        Just(Fault::LateNames),
        (any::<Index>(), frame).prop_map(|(at, frame)| Fault::Error(at, frame)),
        (any::<Index>(), end).prop_map(|(at, end)| Fault::End(at, end)),
    ]
}

/// The number of a call in an event, wherever the form has it.
fn numbers(event: &mut Value) -> Option<&mut Value> {
    let paths = ["/choices/0/delta/tool_calls/0/index", "/output_index", "/index"];
    let path = paths.into_iter().find(|path| event.pointer(path).is_some())?;
    event.pointer_mut(path)
}

/// The piece of arguments in an event.
fn piece_of(event: &mut Value) -> Option<&mut Value> {
    let paths =
        ["/choices/0/delta/tool_calls/0/function/arguments", "/delta/partial_json", "/delta"];
    let path = paths.into_iter().find(|path| event.pointer(path).is_some_and(Value::is_string))?;
    event.pointer_mut(path).filter(|piece| *piece != "")
}

/// The stream with a fault, as it is sent.
struct SpoiltStream {
    bytes: Vec<u8>,
    says_end: bool,
    has_error: bool,
}

fn spoil(stream: WholeStream, faults: &[Fault]) -> SpoiltStream {
    let WholeStream { mut events, end } = stream;
    let (mut error, mut cut, mut repeated) = (None, None, None);
    for fault in faults {
        match fault {
            Fault::Repeat(at) => repeated = Some(at.index(events.len())),
            Fault::Cumulative | Fault::EmptyObjectFirst => {
                let mut sent = String::new();
                for piece in events.iter_mut().filter_map(piece_of) {
                    let text = piece.as_str().unwrap().to_owned();
                    if text.starts_with('{') && sent.ends_with('}') || sent.is_empty() {
                        sent.clear();
                        if matches!(fault, Fault::EmptyObjectFirst) {
                            *piece = format!("{{}}{text}").into();
                        }
                    }
                    sent.push_str(&text);
                    if matches!(fault, Fault::Cumulative) {
                        *piece = sent.as_str().into();
                    }
                }
            }
            Fault::DropNumbers(at) => {
                let at = at.map(|at| at.index(events.len()));
                for (place, event) in events.iter_mut().enumerate() {
                    if at.is_none_or(|at| at == place)
                        && let Some(number) = numbers(event)
                    {
                        *number = Value::Null;
                    }
                }
            }
            Fault::OtherNumber(at, other) => {
                let at = at.index(events.len());
                if let Some(number) = numbers(&mut events[at]) {
                    *number = (*other).into();
                }
            }
            Fault::RepeatIds | Fault::LateNames => {
                let mut last = (Value::Null, Value::Null);
                for event in &mut events {
                    let Some(call) = event.pointer_mut("/choices/0/delta/tool_calls/0") else {
                        continue;
                    };
                    if !call["id"].is_null() {
                        last = (call["id"].clone(), call["function"]["name"].clone());
                    }
                    if matches!(fault, Fault::RepeatIds) {
                        call["id"] = last.0.clone();
                    } else {
                        let is_last = call["function"]["arguments"]
                            .as_str()
                            .is_some_and(|it| it.ends_with('}'));
                        call["function"]["name"] =
                            if is_last { last.1.clone() } else { Value::Null };
                    }
                }
            }
            Fault::Error(at, frame) => error = Some((at.index(events.len() + 1), *frame)),
            Fault::End(at, end) => cut = Some((at.index(events.len()), *end)),
        }
    }
    let mut text = String::new();
    let (mut says_end, mut has_error, mut is_item_done) = (false, false, false);
    for (place, event) in events.iter().enumerate() {
        let data = format!("data: {event}\n\n");
        if let Some((at, frame)) = error.filter(|(at, _)| *at == place) {
            text.push_str(&error_text(frame, at));
            has_error = true;
        }
        if let Some((_, end)) = cut.filter(|(at, _)| *at == place) {
            match end {
                CutEnd::Plain => {}
                CutEnd::Done => text.push_str("data: [DONE]\n\n"),
                CutEnd::HalfEvent => text.push_str(&data[..data.len() / 2]),
            }
            break;
        }
        says_end |= place == end && !has_error;
        is_item_done = event["type"] == "response.output_item.done" && !has_error;
        text.push_str(&data);
        if repeated == Some(place) {
            text.push_str(&data);
        }
    }
    // A last item that says that it is completed is an end too, unless half an event follows.
    says_end |= is_item_done && !cut.is_some_and(|(_, end)| matches!(end, CutEnd::HalfEvent));
    SpoiltStream { bytes: text.into_bytes(), says_end, has_error }
}

fn error_text(frame: ErrorFrame, code: usize) -> String {
    let error = json!({"message": WORDS, "code": code});
    match frame {
        ErrorFrame::Data => format!("data: {}\n\n", json!({"error": error})),
        ErrorFrame::Named => format!("event: error\ndata: {error}\n\n"),
        ErrorFrame::NamedText => format!("event: error\ndata: {WORDS}\n\n"),
        ErrorFrame::Line => format!("error: {error}\n\n"),
        ErrorFrame::Bare => format!("{}\n\n", json!({"error": error})),
        ErrorFrame::WithoutMember => {
            format!("data: {}\n\n", json!({"object": "error", "message": WORDS}))
        }
        ErrorFrame::InList => format!("data: {}\n\n", json!([{"error": error}])),
    }
}

/// The reply, or why there is none; and what the stream said against it.
fn read(form: WireForm, pieces: &[&[u8]]) -> (Result<Reply, String>, Option<String>) {
    let mut assembler = codec(form).new_assembler();
    let mut error = None;
    for piece in pieces {
        if let Err(problem) = assembler.push(piece) {
            error = Some(format!("{problem:?}"));
            break;
        }
    }
    if error.is_none() {
        error = assembler.finish().err().map(|problem| format!("{problem:?}"));
    }
    if !assembler.is_complete() {
        return (Err("broke off".to_owned()), error);
    }
    let context = DecodeContext { model: "m", basis: None };
    (assembler.into_reply(&context).map_err(|problem| format!("{problem:?}")), error)
}

fn check(
    form: WireForm,
    cuts: [usize; 2],
    faults: &[Fault],
    borders: &[Index],
) -> Result<(), TestCaseError> {
    let SpoiltStream { bytes, says_end, has_error } = spoil(whole_stream(form, cuts), faults);
    let mut places: Vec<usize> = borders.iter().map(|at| at.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    let pieces: Vec<&[u8]> = places.windows(2).map(|at| &bytes[at[0]..at[1]]).collect();
    let sent = || String::from_utf8_lossy(&bytes);
    let (reply, error) = read(form, &pieces);
    if has_error {
        prop_assert!(error.as_ref().is_some_and(|it| it.contains(WORDS)), "{:?} {}", error, sent());
    }
    let Ok(reply) = reply else { return Ok(()) };
    prop_assert!(says_end, "complete without an end: {}", sent());
    let mut expected: Vec<(&str, Value)> =
        CALLS.iter().map(|(name, text)| (*name, serde_json::from_str(text).unwrap())).collect();
    for call in &reply.tool_calls {
        let name = call.function.name.as_str();
        let arguments = call.function.arguments.as_json();
        let is_tool = CALLS.iter().any(|(tool, _)| *tool == name);
        let arguments = match serde_json::from_str::<Value>(arguments) {
            _ if arguments.trim().is_empty() => json!({}),
            Ok(value @ Value::Object(_)) => value,
            // An observation.
            _ => continue,
        };
        if !is_tool {
            continue;
        }
        let at = expected.iter().position(|sent| *sent == (name, arguments.clone()));
        prop_assert!(at.is_some(), "{} {} was not sent: {}", name, arguments, sent());
        expected.remove(at.unwrap());
    }
    // One fault alone spoils no call of an answer that is whole.
    let may_lose = faults.len() > 1
        || faults.iter().any(|fault| {
            matches!(fault, Fault::OtherNumber(..) | Fault::Repeat(_) | Fault::End(..))
        });
    prop_assert!(may_lose || expected.is_empty(), "{:?} is lost: {}", expected, sent());
    Ok(())
}

#[test]
fn c_37_1_no_spoilt_stream_makes_a_call_or_an_answer_that_was_not_sent() {
    for form in FORMS {
        let cases = effort::cases(150, 5_000);
        let config =
            ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let cuts = [any::<usize>(), any::<usize>()];
        let faults = prop::collection::vec(any_fault(), 0..3);
        let borders = prop::collection::vec(any::<Index>(), 0..6);
        proptest!(config, |(cuts in cuts, faults in faults, borders in borders)| {
            check(form, cuts, &faults, &borders)?;
        });
    }
}
