//! The body of a request to the LLM: the calls that it demands, and what is around its messages.

use delta_agent::agent::Agent;
use delta_agent::hook::answer::RequestReplacement;
use delta_base::redact::Secrets;
use delta_llm::llm::wire::{ToolChoice, force_call, set_tool_choice};
use delta_run::conversation::message_buffer::MessageSlice;
use delta_run::event::SandboxRecord;
use delta_run::record::RequestBody;
use delta_run::state::{FINISH_TOOL, RunState};
use delta_words::WireForm;
use serde::Serialize;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;

/// A request body before and after its messages.
#[derive(Debug, Clone)]
pub struct RequestFrame {
    head: String,
    tail: String,
}

/// Which calls a request demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallDemand {
    /// What agent.yaml sets for the first request of a run.
    First,
    /// What agent.yaml sets for the other requests.
    Later,
    /// A call of the tool.
    Tool(String),
    /// A call of any tool.
    Any,
}

impl CallDemand {
    /// What the next request of a run of `agent` at `state` demands. Where a word to the LLM was not enough, it forces the call:
    /// after a reminder of `finish`, and in the last iteration, but never in the first request.
    pub fn next(agent: &Agent, state: &RunState) -> Self {
        if state.iterations == 0 {
            return Self::First;
        }
        let can_force = state.has_rules(2)
            && agent.builtins().contains(&FINISH_TOOL)
            && !agent.llm.after_changes(state.model_changes).leaves_calls_free();
        match state.finish_reminders {
            _ if !can_force => Self::Later,
            0 if state.is_last_of_several() => Self::Tool(FINISH_TOOL.to_owned()),
            0 => Self::Later,
            // A call of another tool that the LLM wrote as text is the call that it wants to make.
            1 => Self::Tool(offered_text_call(agent, state).unwrap_or(FINISH_TOOL).to_owned()),
            // Some servers take the name of a tool without a word and ignore it; they know `required`.
            _ => Self::Any,
        }
    }

    /// Whether delta itself demands a call.
    pub fn is_forced(&self) -> bool {
        matches!(self, Self::Tool(_) | Self::Any)
    }
}

/// The offered tool that the last answer called as text.
fn offered_text_call<'a>(agent: &Agent, state: &'a RunState) -> Option<&'a str> {
    let name = state.text_call.as_deref()?;
    (agent.tool(name).is_some() || agent.builtins().contains(&name)).then_some(name)
}

/// What a request of an agent depends on besides its messages.
#[derive(Debug, Clone)]
pub struct RequestBasis<'a> {
    /// The sandboxes of the tools, as ENGINE_START records them.
    pub sandbox: Option<&'a SandboxRecord>,
    /// Whether the rules of this version for requests apply.
    pub has_current_rules: bool,
    /// The calls that it demands.
    pub demand: CallDemand,
    /// How often the run has changed to the next model of `llm.fallback`.
    pub model_changes: usize,
}

impl<'a> RequestBasis<'a> {
    /// For the next request of a run of `agent` at `state`.
    pub fn next(agent: &Agent, state: &'a RunState) -> Self {
        Self {
            sandbox: state.sandbox(),
            has_current_rules: state.has_rules(2),
            demand: CallDemand::next(agent, state),
            model_changes: state.model_changes,
        }
    }
}

/// The request body for these messages, as a run of `agent` sends it unless a hook changes it.
pub fn build_request_body(
    agent: &Agent,
    basis: &RequestBasis<'_>,
    messages: &[MessageSlice<'_>],
    secrets: &Secrets,
) -> RequestBody {
    next_request_body(RequestBody::default(), &request_frame(agent, basis), messages, secrets)
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

/// Everything in a request but its messages, in a fixed order: the same for all requests of a run that have the same basis.
/// The tools, its longest part, precede the messages, so that a provider's prompt cache covers them.
pub fn request_frame(agent: &Agent, basis: &RequestBasis<'_>) -> RequestFrame {
    let llm = agent.llm.after_changes(basis.model_changes);
    let mut head = format!("{{\"model\":{},", to_json_text(&llm.model));
    let mut add = |key: &str, value: &Json| {
        for piece in [&to_json_text(key), ":", &to_json_text(value), ","] {
            head.push_str(piece);
        }
    };
    let tools = agent.tool_definitions(basis.sandbox, basis.has_current_rules);
    if !tools.is_empty() {
        add("tools", &Json::from(tools));
    }
    let mut body = Cow::Borrowed(&llm.body);
    if basis.has_current_rules {
        let form = llm.provider.request_form().unwrap_or(WireForm::OpenAi);
        let ToolChoice { first, then } = &llm.tool_choice;
        match &basis.demand {
            CallDemand::First => set_tool_choice(form, body.to_mut(), first.as_ref()),
            CallDemand::Later => set_tool_choice(form, body.to_mut(), then.as_ref()),
            CallDemand::Tool(name) => force_call(form, body.to_mut(), Some(name)),
            CallDemand::Any => force_call(form, body.to_mut(), None),
        }
    }
    for (key, value) in &*body {
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
