//! An endpoint that keeps prompts in a cache, by the rules of its vendor.

use crate::server::{Answer, RecordedRequest, ScriptedServer};
use serde_json::{Value, json};
use std::collections::HashMap;

/// A marker finds an entry at most this many blocks before it.
const LOOK_BACK_BLOCKS: usize = 20;

/// The cache of an endpoint by Anthropic's documents: an entry at each marker whose prefix is long enough, for some time
/// after its last use.
pub struct PromptCache {
    min_tokens: usize,
    lifetime_s: u64,
    /// The time between two requests.
    pause_s: u64,
    /// Whether the end of every block is kept without a marker, and for nothing.
    is_automatic: bool,
    now_s: u64,
    /// The prefixes, with the time of their last use.
    entries: HashMap<String, u64>,
}

impl PromptCache {
    /// A cache of prefixes of at least `min_tokens` tokens, with `pause_s` seconds between two requests.
    pub fn new(min_tokens: usize, pause_s: u64) -> Self {
        let entries = HashMap::new();
        Self { min_tokens, lifetime_s: 300, pause_s, is_automatic: false, now_s: 0, entries }
    }

    /// The same without markers, as of OpenAI: the end of every block is kept and costs nothing.
    #[must_use]
    pub fn automatic(self) -> Self {
        Self { is_automatic: true, ..self }
    }

    /// An endpoint with this cache, which answers as `answer` says.
    pub fn serve(
        mut self,
        mut answer: impl FnMut(&RecordedRequest) -> Answer + Send + 'static,
    ) -> ScriptedServer {
        ScriptedServer::start(move |request: &RecordedRequest| {
            let usage = self.use_for(&request.body);
            answer(request).usage_of(&usage)
        })
    }

    /// The tokens of a request, read and written, as the endpoint reports them.
    fn use_for(&mut self, body: &Value) -> Value {
        self.now_s += self.pause_s;
        let blocks = cache_blocks(body);
        let prefixes: Vec<String> = (1..=blocks.len())
            .map(|count| blocks[..count].iter().map(|(text, _)| text.as_str()).collect())
            .collect();
        let tokens = |prefix: &str| prefix.len() / 4;
        let is_automatic = self.is_automatic;
        let marked = || (0..blocks.len()).filter(|index| is_automatic || blocks[*index].1);
        let (now, lifetime) = (self.now_s, self.lifetime_s);
        let is_kept =
            |prefix: &str| self.entries.get(prefix).is_some_and(|used_at| now - used_at < lifetime);
        let found = marked().filter_map(|marker| {
            let first = (marker + 1).saturating_sub(LOOK_BACK_BLOCKS);
            (first..=marker).rev().find(|index| is_kept(&prefixes[*index]))
        });
        let found: Vec<usize> = found.collect();
        let read = found.iter().max().map_or(0, |index| tokens(&prefixes[*index]));
        let mut end = 0;
        for index in marked().chain(found.iter().copied()) {
            let prefix = &prefixes[index];
            if tokens(prefix) >= self.min_tokens {
                self.entries.insert(prefix.clone(), now);
                end = end.max(tokens(prefix));
            }
        }
        let total = prefixes.last().map_or(0, |prefix| tokens(prefix));
        let written = if is_automatic { 0 } else { end.saturating_sub(read) };
        json!({
            "prompt_tokens": total, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        })
    }
}

/// The blocks of a request in the order of its prefix, each with whether it is marked.
pub fn cache_blocks(body: &Value) -> Vec<(String, bool)> {
    let list = |value: &Value| match value {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        value => value.as_array().cloned().unwrap_or_default(),
    };
    let messages = list(&body["messages"]).into_iter();
    let messages = messages.flat_map(|message| list(&message["content"]));
    let blocks = list(&body["tools"]).into_iter().chain(list(&body["system"])).chain(messages);
    blocks
        .map(|mut block| {
            let marker = block.as_object_mut().and_then(|it| it.shift_remove("cache_control"));
            (block.to_string(), marker.is_some())
        })
        .collect()
}
