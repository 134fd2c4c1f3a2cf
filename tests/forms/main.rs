//! Runs of the built program over each wire form, against the strict endpoint of that form in test-support: what is sent,
//! what becomes of answers, what goes back unchanged. One file for each form; what all forms need is here.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests may, and start real processes"
)]

mod anthropic;
mod anthropic_cache;
mod anthropic_conversations;
mod argument_places;
mod broken_off;
mod builtin_tools;
mod chat;
mod documents;
mod everything_around;
mod exact_numbers;
mod fallback;
mod forced_calls;
mod gemini;
mod images;
mod in_process;
mod keys;
mod object_parameters;
mod omitted_reasoning;
mod refusals;
mod responses;
mod responses_cache;
mod sent_again;
mod service_tiers;
mod shared_prefix;
mod tool_images;

use serde_json::Value;
use test_support::sandbox::Sandbox;
use test_support::server::{RecordedRequest, ScriptedServer};

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// A tool that prints its argument.
const ECHO: &str = "  - name: echo\n    exec: echo ${text}\n";

/// An agent of the provider `form`; `llm` are more lines of its section, indented by two.
fn agent_of(form: &str, server: &ScriptedServer, llm: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let url = server.root_url();
    sandbox.agent(&format!("provider: {form}\n  model: test-model\n  base_url: {url}{llm}"), ECHO);
    sandbox
}

/// The bodies of all requests, without the markers for a cache.
fn bodies(server: &ScriptedServer) -> Vec<Value> {
    let requests = server.requests().into_iter();
    requests.map(|RecordedRequest { body, .. }| without_markers(body)).collect()
}

fn without_markers(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_markers).collect(),
        Value::Object(members) => {
            let members = members.into_iter().filter(|(name, _)| name != "cache_control");
            members.map(|(name, value)| (name, without_markers(value))).collect()
        }
        value => value,
    }
}

/// The records of the LLM calls of run `r`, in order.
fn records(sandbox: &Sandbox) -> Vec<Value> {
    let dir = "work/.delta/r/io/invocations";
    let read =
        |name: &String| serde_json::from_str(&sandbox.read(&format!("{dir}/{name}"))).unwrap();
    sandbox.files(dir).iter().map(read).collect()
}
