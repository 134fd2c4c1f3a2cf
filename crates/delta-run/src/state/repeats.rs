//! How often the same calls had the same results in a row.

use crate::event::{ActionResult, Thought};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The answers whose calls and results are the same, counted from the last one backwards.
#[derive(Debug, Clone, Default)]
pub(super) struct Repeats {
    /// The calls of the last answer with the results so far.
    current: DefaultHasher,
    /// The calls and results of the last answer whose calls have all ended, and how often they came in a row.
    last: Option<(u64, u32)>,
}

impl Repeats {
    /// An answer has come. One without calls ends the row.
    pub(super) fn start_answer(&mut self, thought: &Thought) {
        self.current = DefaultHasher::new();
        if thought.tool_calls.is_empty() {
            self.last = None;
        }
        for call in &thought.tool_calls {
            (&call.function.name, call.function.arguments.as_str()).hash(&mut self.current);
        }
    }

    /// A call has its result. `is_last` means that no other call of the answer is open.
    pub(super) fn add_result(&mut self, result: &ActionResult, is_last: bool) {
        if is_last {
            self.last = Some(self.with_result(result));
        }
        hash_result(result, &mut self.current);
    }

    /// How often the calls of the answer have had the same results in a row, if this is the last result.
    pub(super) fn count_with(&self, result: &ActionResult) -> u32 {
        self.with_result(result).1
    }

    /// How often the last calls have had the same results in a row.
    pub(super) fn count(&self) -> u32 {
        self.last.map_or(0, |(_, count)| count)
    }

    fn with_result(&self, result: &ActionResult) -> (u64, u32) {
        let mut hasher = self.current.clone();
        hash_result(result, &mut hasher);
        let hash = hasher.finish();
        let before = self.last.filter(|(last, _)| *last == hash).map_or(0, |(_, count)| count);
        (hash, before.saturating_add(1))
    }
}

fn hash_result(result: &ActionResult, hasher: &mut DefaultHasher) {
    result.observation_content.hash(hasher);
    result.images.iter().for_each(|image| image.file.hash(hasher));
}
