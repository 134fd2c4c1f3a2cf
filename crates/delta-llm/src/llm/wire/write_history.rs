//! Whether an endpoint that caches by itself would write a prefix that nothing reads again.
//!
//! Such an endpoint writes every request to its cache, and some charge for it. Where the beginning of the requests changes
//! each time, no later request reads what was written; the next one is then sent without caching.

use super::cache_plan::{CacheBlock, MIN_PREFIX_TOKENS};
use delta_words::Usage;

/// What this process knows of an endpoint that caches by itself.
#[derive(Debug, Clone, Default)]
pub struct WriteHistory {
    /// The prefixes of the last request, in order.
    last_prefixes: Vec<[u8; 32]>,
    /// Whether the endpoint charges for writes: it has reported one, or its prices say it.
    charges_writes: bool,
}

impl WriteHistory {
    /// Takes note of prices by which the endpoint charges for writes.
    pub fn expect_charges(&mut self) {
        self.charges_writes = true;
    }

    /// Whether a request with these blocks marks the end of the constant prefix: the endpoint keeps it where requests mark it
    /// exactly, and knows the mark if it charges for writes.
    pub fn marks_constant(&self, blocks: &[CacheBlock]) -> bool {
        let mut ends = blocks.iter().filter(|block| block.ends_constant);
        self.charges_writes && ends.any(|block| block.tokens >= MIN_PREFIX_TOKENS)
    }

    /// Whether a write of this request is not worth its surcharge: the endpoint charges for writes, and the last request had
    /// another beginning.
    pub fn is_write_wasted(&self, blocks: &[CacheBlock]) -> bool {
        let pairs = self.last_prefixes.iter().zip(blocks);
        let common = pairs.take_while(|(prefix, block)| **prefix == block.prefix).count();
        let common_tokens = common.checked_sub(1).map_or(0, |last| blocks[last].tokens);
        let is_extension = common == self.last_prefixes.len();
        self.charges_writes && !is_extension && common_tokens < MIN_PREFIX_TOKENS
    }

    /// Takes note of a request that was answered, and of what the endpoint reported.
    pub fn record_answer(&mut self, blocks: &[CacheBlock], usage: Option<&Usage>) {
        self.last_prefixes = blocks.iter().map(|block| block.prefix).collect();
        let written = usage.and_then(|usage| usage.cache_write_tokens);
        self.charges_writes |= written.is_some_and(|tokens| tokens > 0);
    }
}
