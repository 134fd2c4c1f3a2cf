//! The journal: append-only, one writer, every event durable before the act that follows it.
//!
//! What is recorded waits in memory until [`Journal::commit`], which makes all of it durable in one write and one sync:
//! an act needs its events on disk, not each of them alone.

use crate::durable::{AppendFile, FileError};
use crate::event::{Event, Payload};
use crate::time::Clock;
use std::path::Path;

/// The name of the file in the run directory.
pub const FILE_NAME: &str = "journal.jsonl";

/// The journal of one run, open for writing.
#[derive(Debug)]
pub struct Journal {
    file: AppendFile,
    clock: Clock,
    next_seq: u64,
    /// Recorded and not yet durable.
    pending: Vec<Event>,
    lines: String,
}

impl Journal {
    /// Makes the journal of a new run.
    pub fn create(run_dir: &Path, clock: Clock) -> Result<Self, FileError> {
        let file = AppendFile::create(&run_dir.join(FILE_NAME))?;
        Ok(Self { file, clock, next_seq: 1, pending: Vec::new(), lines: String::new() })
    }

    /// Makes an event of a payload. It counts from now on, and is durable after the next commit.
    pub fn record(&mut self, payload: Payload) -> &Event {
        let event = Event { seq: self.next_seq, timestamp: (self.clock)(), payload };
        self.next_seq += 1;
        self.lines.push_str(&event.to_line());
        self.pending.push(event);
        &self.pending[self.pending.len() - 1]
    }

    /// Makes everything recorded durable, and gives the events that have become so.
    ///
    /// # Errors
    /// The write or the sync failed: none of them was acknowledged, and the run must not go on.
    pub fn commit(&mut self) -> Result<Vec<Event>, FileError> {
        if self.pending.is_empty() {
            return Ok(Vec::new());
        }
        self.file.append(self.lines.as_bytes())?;
        self.lines.clear();
        Ok(std::mem::take(&mut self.pending))
    }
}
