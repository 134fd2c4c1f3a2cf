//! The chain of a journal: every line has a hash over its bytes and the hash of the line before it, so no line can be
//! changed, removed, inserted or moved without a change of every value after it.
//!
//! The chain proves nothing about a journal of which every line was replaced: for that there are seals
//! ([`crate::journal::seal`]), the results of calls, which name the heads of the runs that the calls started, and heads that are kept elsewhere.

use delta_base::hex::encode_hex;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;

/// The hexadecimal digits of a chain value.
const VALUE_DIGITS: usize = 32;
/// The start of the member with the chain value, the last one of a line.
const CHAIN_FIELD: &[u8] = b",\"chain\":\"";
const LINE_END: &[u8] = b"\"}";
/// The start of the member that restarts the chain, the first one after the time.
pub(crate) const EDITED_FIELD: &str = ",\"edited\":";
/// The most lines that an edit names.
const MAX_EDITED_LINES: usize = 16;

/// The chain value of a line: the first 32 hexadecimal digits of a SHA-256, over the value of the line before and the line
/// up to the value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChainValue([u8; VALUE_DIGITS]);

impl ChainValue {
    /// The value of a line that follows the one with the value `previous`; `covered` are its bytes up to the value.
    pub fn after(previous: Option<Self>, covered: &[u8]) -> Self {
        let mut hash = Sha256::new();
        if let Some(previous) = previous {
            hash.update(previous.0);
        }
        hash.update(covered);
        let digits = encode_hex(&hash.finalize()[..VALUE_DIGITS / 2]);
        let mut value = [b'0'; VALUE_DIGITS];
        value.copy_from_slice(digits.as_bytes());
        Self(value)
    }

    /// Parses 32 lower-case hexadecimal digits.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let value: [u8; VALUE_DIGITS] = digits.try_into().ok()?;
        value.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(value))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Ends a line that has everything but its chain value.
    pub(crate) fn end_line(&self, line: &mut String) {
        line.push_str(",\"chain\":\"");
        line.push_str(self.as_str());
        line.push_str("\"}\n");
    }
}

impl fmt::Display for ChainValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ChainValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ChainValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ChainValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(text.as_bytes()).ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is not a chain value: expected 32 hexadecimal digits"
            ))
        })
    }
}

/// A line of a journal, with or without its newline, divided into what its chain value covers and the value. A line without
/// a value, of an earlier version, counts with all of its bytes.
pub fn split_line(line: &[u8]) -> (&[u8], Option<ChainValue>) {
    let divided =
        line.strip_suffix(b"\n").unwrap_or(line).strip_suffix(LINE_END).and_then(|open| {
            let (rest, digits) = open.split_at_checked(open.len().checked_sub(VALUE_DIGITS)?)?;
            Some((rest.strip_suffix(CHAIN_FIELD)?, ChainValue::parse(digits)?))
        });
    divided.map_or((line, None), |(covered, value)| (covered, Some(value)))
}

/// A journal was changed, and a process continued it as it was. The line with this member restarts the chain: its chain
/// value follows `head`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEdit {
    /// The numbers of the lines before it whose chain value or seal does not hold, at most 16.
    pub lines: Vec<u64>,
    /// The chain value that the line before it would have as the journal was found.
    pub head: ChainValue,
}

impl JournalEdit {
    /// The edit in a line that starts as the journal's lines do.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct EditedLine {
            edited: JournalEdit,
        }
        let (_, time) = line.split_once(",\"timestamp\":\"")?;
        let (_, rest) = time.split_once('"')?;
        rest.starts_with(EDITED_FIELD)
            .then(|| serde_json::from_str(line).ok())?
            .map(|EditedLine { edited }| edited)
    }

    /// The lines, for a message: `line 3` or `lines 3, 5`.
    pub fn describe_lines(&self) -> String {
        let numbers: Vec<String> = self.lines.iter().map(u64::to_string).collect();
        format!("line{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
    }
}

/// How a line is linked to the lines before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainLink {
    /// The value that it follows.
    pub previous: Option<ChainValue>,
    /// Whether it has a chain value.
    pub is_chained: bool,
    /// Whether it follows the line before it.
    pub follows: bool,
    /// Whether the chain holds up to it, from its beginning or its last restart on.
    pub holds: bool,
}

/// Checks a chain line by line. Knows how to continue it.
#[derive(Debug, Clone, Default)]
pub struct ChainCheck {
    lines: u64,
    /// The value in the last line.
    recorded: Option<ChainValue>,
    /// The value that the lines result in as they are.
    computed: Option<ChainValue>,
    has_values: bool,
    /// The lines since the last restart that do not follow the line before.
    faults: Vec<u64>,
}

impl ChainCheck {
    /// Checks the next line, whose event has `edited`.
    pub fn check_line(&mut self, line: &[u8], edited: Option<&JournalEdit>) -> ChainLink {
        self.lines += 1;
        let (covered, value) = split_line(line);
        let computed = ChainValue::after(self.computed, covered);
        let is_restart = edited.is_some_and(|edit| Some(edit.head) == self.computed);
        let previous = if is_restart { self.computed } else { self.recorded };
        let is_valid = match value {
            None => !self.has_values,
            Some(value) if previous == self.computed => value == computed,
            Some(value) => value == ChainValue::after(previous, covered),
        };
        let follows = is_valid && (edited.is_none() || is_restart);
        if !follows {
            self.faults.push(self.lines);
        } else if is_restart {
            self.faults.clear();
        }
        self.has_values |= value.is_some();
        self.computed = Some(computed);
        match value {
            Some(value) => self.recorded = Some(value),
            None if !self.has_values => self.recorded = Some(computed),
            // A line that was inserted: the one after it follows the one before it.
            None => {}
        }
        ChainLink { previous, is_chained: value.is_some(), follows, holds: self.faults.is_empty() }
    }

    /// The number of lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether every line follows the one before it.
    pub fn holds(&self) -> bool {
        self.faults.is_empty()
    }

    /// The value that the next line follows, and what this line says about edits. `unsealed` is a line that does not agree
    /// with its seal.
    pub(crate) fn next(&self, unsealed: Option<u64>) -> (Option<ChainValue>, Option<JournalEdit>) {
        // A seal does not hold either if a line before it was changed.
        let mut lines = if self.holds() { Vec::from_iter(unsealed) } else { self.faults.clone() };
        lines.truncate(MAX_EDITED_LINES);
        let head = self.computed.filter(|_| !lines.is_empty());
        (self.computed, head.map(|head| JournalEdit { lines, head }))
    }
}
