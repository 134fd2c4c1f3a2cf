//! Whether a run is what its files say: every line, every request, every call is made again from the journal and the
//! kept configuration, and compared with what was recorded.
//!
//! Reads only the run's directory, asks nothing and starts nothing; so it works on a copy, on another machine, with the
//! agent and the workspace gone. What cannot be checked is said, and is no difference.

use crate::composition::{common, excerpt};
use serde::Serialize;
use std::path::Path;

mod again;
mod calls;
mod evidence;
mod lines;
mod requests;
mod turns;
mod walk;

pub use again::{Again, Recorded, again, prompt_of};
pub use requests::part;
pub use turns::{Outcome, Turn, compare, parted, turns, without_place};

/// What a look at a run has found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// What was looked at.
    pub checked: Counts,
    /// What is not as it was recorded, in the run's order.
    pub differences: Vec<Difference>,
    /// What could not be checked, and why.
    pub not_checked: Vec<String>,
    /// Whether a line with its check value was seen: from then on everything has one.
    #[serde(skip)]
    sealed: bool,
}

/// How much was looked at.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Counts {
    /// Lines of the journal.
    pub lines: usize,
    /// Requests that were made again.
    pub requests: usize,
    /// Calls.
    pub calls: usize,
    /// Files beside the journal.
    pub files: usize,
}

/// Something that is not as it was recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The iteration that it belongs to, if any.
    pub iteration: Option<u32>,
    /// What it is about, such as `journal.jsonl, line 7`, or `the request`.
    pub what: String,
    /// The message of a request, counted from 1.
    pub message: Option<usize>,
    /// The block of a request.
    pub source: Option<String>,
    /// The first byte that differs, counted from 0, where that is known.
    pub byte: Option<usize>,
    /// What is recorded there.
    pub recorded: String,
    /// What should be there.
    pub expected: String,
}

impl Difference {
    /// Of two texts: where they part, and what stands there; `None` when they are the same.
    pub fn of(
        iteration: Option<u32>,
        what: String,
        recorded: &str,
        expected: &str,
    ) -> Option<Self> {
        if recorded == expected {
            return None;
        }
        let at = common(recorded, expected);
        Some(Self {
            iteration,
            what,
            message: None,
            source: None,
            byte: Some(at),
            recorded: excerpt(recorded, at),
            expected: excerpt(expected, at),
        })
    }

    /// Of something that has no bytes of its own.
    pub fn plain(
        iteration: Option<u32>,
        what: impl Into<String>,
        recorded: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            iteration,
            what: what.into(),
            message: None,
            source: None,
            byte: None,
            recorded: recorded.into(),
            expected: expected.into(),
        }
    }

    /// Of bytes whose check value is not the one that was written for them.
    fn of_crc(iteration: Option<u32>, what: impl Into<String>, found: &str, written: &str) -> Self {
        let bytes = |crc: &str| format!("bytes whose crc is {crc}");
        Self::plain(iteration, what, bytes(found), bytes(written))
    }

    /// Where it is, in words.
    pub fn place(&self) -> String {
        let mut place = self.iteration.map_or(String::new(), |it| format!("iteration {it}, "));
        place.push_str(&self.what);
        if let Some(message) = self.message {
            place.push_str(&format!(", message {message}"));
        }
        if let Some(source) = &self.source {
            place.push_str(&format!(", source `{source}`"));
        }
        if let Some(byte) = self.byte {
            place.push_str(&format!(", byte {byte}"));
        }
        place
    }
}

impl Report {
    fn differ(&mut self, difference: impl Into<Option<Difference>>) {
        let new = difference.into().filter(|new| !self.differences.contains(new));
        self.differences.extend(new);
    }

    fn skip(&mut self, why: String) {
        if !self.not_checked.contains(&why) {
            self.not_checked.push(why);
        }
    }

    /// Whether everything that could be checked is as it was recorded.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Looks at the run in `run_dir`, whose journal holds `journal`.
pub fn verify(run_dir: &Path, journal: &[u8]) -> Report {
    let mut report = Report::default();
    let events = lines::check(journal, &mut report);
    walk::check(run_dir, &events, &mut report);
    report
}
