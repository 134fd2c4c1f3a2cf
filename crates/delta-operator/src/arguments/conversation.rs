//! The conversation of a user with a run, in one process: the line into which the user types, while the run works and after it.

use delta_base::terminal::input_line::InputLine;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// No conversation, or its end.
const CLOSED: u32 = 0;

/// What the user types. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct TerminalConversation {
    /// The line; its text is kept when a run ends.
    pub line: InputLine,
    /// The number of the text that the user has sent last, from 1 on, or [`CLOSED`].
    turn: Arc<AtomicU32>,
}

impl TerminalConversation {
    /// The user has sent a text, and is asked for the next one after it.
    pub fn begin_turn(&self) {
        self.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// The user is not asked for another text.
    pub fn close(&self) {
        self.turn.store(CLOSED, Ordering::SeqCst);
    }

    /// Whether the user is asked for the next text when the run ends.
    pub fn is_open(&self) -> bool {
        self.turn.load(Ordering::SeqCst) != CLOSED
    }

    /// Whether the user has seen an earlier turn.
    pub fn has_earlier_turn(&self) -> bool {
        self.turn.load(Ordering::SeqCst) > 1
    }
}
