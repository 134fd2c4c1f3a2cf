//! An endpoint that leaves the tools out of the prompt looks like a model that cannot use them. The tokens that it counts show
//! the difference.

use delta_words::Reply;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most bytes of tools that are one token. JSON has 3 to 5 bytes a token; a chat template that writes tools as types of
/// TypeScript needs a third of the JSON, so 8 occur.
const MAX_BYTES_PER_TOOL_TOKEN: u64 = 12;
/// The bytes of messages that are usually at most one token. A lower count is none of the whole prompt: some servers leave
/// out what they read from their cache.
const MAX_BYTES_PER_MESSAGE_TOKEN: u64 = 5;

#[derive(Deserialize)]
struct RequestParts<'a> {
    #[serde(borrow)]
    messages: &'a RawValue,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

/// A warning if an endpoint has counted fewer tokens for a first request than the tools in it take alone, but enough for
/// its messages. `request` is in the form of Chat Completions. An answer with a call shows that the tools arrived.
pub fn dropped_tools_warning(request: &str, reply: &Reply) -> Option<String> {
    let counted = reply.usage.as_ref().filter(|_| reply.tool_calls.is_empty())?.input_tokens;
    let RequestParts { messages, tools } = serde_json::from_str(request).ok()?;
    let size = tools?.get().len();
    let least = |size: usize, bytes_per_token: u64| size as u64 / bytes_per_token;
    let is_dropped = counted < least(size, MAX_BYTES_PER_TOOL_TOKEN)
        && counted >= least(messages.get().len(), MAX_BYTES_PER_MESSAGE_TOKEN);
    is_dropped.then(|| {
        format!(
            "the endpoint seems to leave the tools out: it counted {counted} tokens, and the tools alone have {size} bytes; \
             llama.cpp needs `--jinja` and a chat template with tools, Ollama and LM Studio a model that supports them; \
             see `delta models`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_words::{ToolCall, Usage};

    fn warns(messages: usize, tools: usize, counted: u64) -> bool {
        let (messages, tools) = ("m".repeat(messages), "t".repeat(tools));
        let request = format!(r#"{{"model":"m","tools":["{tools}"],"messages":["{messages}"]}}"#);
        let usage = Usage { input_tokens: counted, ..Usage::default() };
        let reply = Reply { usage: Some(usage), ..Reply::default() };
        dropped_tools_warning(&request, &reply).is_some()
    }

    #[test]
    fn c_37_11_a_count_that_has_room_for_the_messages_alone_is_named() {
        assert!(warns(200, 2400, 50), "a prompt of the messages");
        assert!(!warns(200, 2400, 250), "the shortest form of tools");
        assert!(!warns(4000, 2400, 1000), "messages that hide the tools");
        assert!(!warns(2000, 2400, 10), "the rest of the prompt is in a cache");
        assert!(!warns(200, 2400, 0), "no count");
        assert!(!warns(200, 100, 50), "tools that are too short to tell");
    }

    #[test]
    fn c_37_11_a_call_shows_that_the_tools_arrived() {
        let request = format!(r#"{{"tools":["{}"],"messages":[]}}"#, "t".repeat(2400));
        let usage = Some(Usage { input_tokens: 20, ..Usage::default() });
        let silent = Reply { usage, ..Reply::default() };
        assert!(dropped_tools_warning(&request, &silent).is_some());
        let calling =
            Reply { tool_calls: vec![ToolCall::new("1", "echo", "{}")], ..silent.clone() };
        assert_eq!(dropped_tools_warning(&request, &calling), None);
        assert_eq!(dropped_tools_warning(r#"{"messages":[]}"#, &silent), None);
        assert_eq!(dropped_tools_warning(&request, &Reply { usage: None, ..silent }), None);
    }
}
