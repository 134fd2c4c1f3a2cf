//! The body of a request to the LLM: what is constant in a run, around its messages.

use delta_agent::agent::Agent;
use delta_agent::hook::answer::RequestReplacement;
use delta_base::redact::Secrets;
use delta_run::conversation::message_buffer::MessageSlice;
use delta_run::event::SandboxRecord;
use delta_run::record::RequestBody;
use delta_run::state::RunState;
use serde::Serialize;
use serde_json::{Map, Value as Json};

/// The request body before and after its messages.
#[derive(Debug, Clone)]
pub struct RequestFrame {
    head: String,
    tail: String,
}

/// The request body for these messages, as a run of `agent` sends it unless a hook changes it.
pub fn build_request_body(
    agent: &Agent,
    sandbox: Option<&SandboxRecord>,
    messages: &[MessageSlice<'_>],
    secrets: &Secrets,
) -> RequestBody {
    next_request_body(RequestBody::default(), &request_frame(agent, sandbox), messages, secrets)
}

/// The request body with which a hook replaces `before`; `frame` belongs to `before`.
pub fn replace_request(
    before: RequestBody,
    frame: &RequestFrame,
    replacement: RequestReplacement,
    secrets: &Secrets,
) -> RequestBody {
    let (frame, messages) = match replacement {
        RequestReplacement::Messages(messages) => (frame.clone(), messages),
        RequestReplacement::Request(request) => split_at_messages(request),
    };
    let messages: Vec<String> = messages.iter().map(Json::to_string).collect();
    let messages: Vec<_> = messages.iter().map(|message| message.as_str().into()).collect();
    let shared = before.shared_messages();
    let mut body = next_request_body(before, &frame, &messages, secrets);
    body.limit_shared_messages(shared);
    body
}

/// The request body after `last`: the messages between the two parts of the frame.
pub fn next_request_body(
    mut last: RequestBody,
    frame: &RequestFrame,
    messages: &[MessageSlice<'_>],
    secrets: &Secrets,
) -> RequestBody {
    let head = secrets.redact(&frame.head);
    let tail = secrets.redact(&frame.tail);
    // The messages of the last request were searched for secrets before.
    if last.update_unless(&head, messages, &tail, |slice| secrets.occur_in(slice.text())) {
        return last;
    }
    let messages = messages.iter().flat_map(|slice| slice.iter());
    let redacted: Vec<_> = messages.map(|message| secrets.redact(message)).collect();
    let redacted: Vec<_> = redacted.iter().map(|message| MessageSlice::from(&**message)).collect();
    last.update(&head, &redacted, &tail);
    last
}

/// Splits a request at its messages.
fn split_at_messages(request: Map<String, Json>) -> (RequestFrame, Vec<Json>) {
    let mut head = String::from("{");
    let mut tail = String::from("]");
    let mut messages = Vec::new();
    for (key, value) in request {
        let part = if messages.is_empty() { &mut head } else { &mut tail };
        if part.len() > 1 || part.starts_with(']') {
            part.push(',');
        }
        part.push_str(&format!("{}:", Json::from(key.as_str())));
        match value {
            Json::Array(items) if key == "messages" => {
                part.push('[');
                messages = items;
            }
            value => part.push_str(&value.to_string()),
        }
    }
    tail.push('}');
    (RequestFrame { head, tail }, messages)
}

/// Everything in a request that is constant in a run, in a fixed order. The tools, its longest
/// part, precede the messages, so that a provider's prompt cache covers them.
pub fn request_frame(agent: &Agent, sandbox: Option<&SandboxRecord>) -> RequestFrame {
    let llm = &agent.llm;
    let mut head = format!("{{\"model\":{},", to_json_text(&llm.model));
    let mut add = |key: &str, value: &Json| {
        for piece in [&to_json_text(key), ":", &to_json_text(value), ","] {
            head.push_str(piece);
        }
    };
    let tools = agent.tool_definitions(sandbox);
    if !tools.is_empty() {
        add("tools", &Json::from(tools));
    }
    for (key, value) in &llm.body {
        add(key, value);
    }
    head.push_str("\"messages\":[");
    let tail = if llm.stream && llm.provider.can_stream() {
        "],\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
    } else {
        "]}"
    };
    RequestFrame { head, tail: tail.to_owned() }
}

fn to_json_text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The message after an answer without calls, if the agent requires a call of `finish`.
pub const FINISH_REMINDER: &str = "[Your answer has no call, and this run ends only with a call of `finish`. \
    If the task is done, call `finish` with its result; if it is not, continue.]";

/// Whether an answer does not end the run although it has no calls: the agent requires a call of `finish`.
pub fn needs_reminder(agent: &Agent, state: &RunState, has_calls: bool) -> bool {
    agent.requires_finish && !has_calls && !state.is_ended_by_hook()
}
