//! What the commands print: one JSON value each. The names of the fields are the format.

use super::protocol::{OutputForm, ReadQuery};
use super::screen::ScreenContents;
use super::store::{PtyMetadata, PtyOutput, PtyStatus};
use super::{PtyError, PtyResult};
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

/// How much output a report contains: as JSON it must fit into what a tool shows to the LLM.
const MAX_SHOWN_BYTES: usize = 24 * 1024;

/// What `status` prints.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PtyStatusReport {
    #[serde(flatten)]
    pub(super) metadata: PtyMetadata,
    /// Whether a terminal is attached.
    pub(super) attached: bool,
    pub(super) unread_bytes: u64,
}

/// What `read` prints. A field with nothing to report is left out.
#[derive(Debug, Serialize)]
pub(super) struct PtyReadReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    /// How many unread bytes before `output` were skipped.
    #[serde(skip_serializing_if = "is_nothing")]
    omitted_bytes: u64,
    #[serde(flatten)]
    screen_contents: Option<ScreenContents>,
    /// Whether the text to wait for did not appear.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    timed_out: bool,
    status: PtyStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

/// The text that a read waits for.
#[derive(Debug)]
pub(super) struct WaitPattern(Regex);

impl WaitPattern {
    /// The pattern of a query; nothing when it waits for no text.
    pub(super) fn from_query(query: &ReadQuery) -> PtyResult<Option<Self>> {
        let Some(text) = &query.wait else { return Ok(None) };
        let pattern = if query.regex { text.clone() } else { regex::escape(text) };
        match RegexBuilder::new(&pattern).multi_line(true).build() {
            Ok(regex) => Ok(Some(Self(regex))),
            Err(error) => Err(PtyError::InvalidRegex {
                text: text.clone(),
                reason: delta_base::error_text::describe_regex_error(&error),
            }),
        }
    }

    pub(super) fn matches_any(&self, texts: &[String]) -> bool {
        texts.iter().any(|text| self.0.is_match(text))
    }
}

impl PtyOutput {
    /// The unread text, in which a read without `--screen` waits for a text.
    pub(super) fn unread_texts(&self) -> [String; 1] {
        [String::from_utf8_lossy(&self.text.unread_bytes()).into_owned()]
    }

    /// Reads what `query` asks for. Output that is reported is not read again.
    pub(super) fn read(
        &mut self,
        query: &ReadQuery,
        screen: impl FnOnce() -> ScreenContents,
        metadata: &PtyMetadata,
        timed_out: bool,
    ) -> PtyReadReport {
        let PtyMetadata { status, exit_code, .. } = *metadata;
        let mut report = PtyReadReport {
            output: None,
            omitted_bytes: 0,
            screen_contents: None,
            timed_out,
            status,
            exit_code,
        };
        match (query.form, query.lines) {
            (OutputForm::Screen, _) => report.screen_contents = Some(screen()),
            (form, Some(lines)) => {
                let ring = self.ring(form == OutputForm::Raw);
                let output = ring.bytes_from(ring.last_lines_position(lines));
                report.output = Some(decode_output(&output));
            }
            (OutputForm::Raw, None) => {
                let excerpt = self.raw.take_unread(MAX_SHOWN_BYTES);
                self.text.mark_read();
                let is_active = status == PtyStatus::Active;
                let incomplete = if is_active { incomplete_char_length(&excerpt.bytes) } else { 0 };
                self.raw.mark_unread(incomplete);
                let length = excerpt.bytes.len() - incomplete;
                report.output = Some(decode_output(&excerpt.bytes[..length]));
                report.omitted_bytes = excerpt.omitted;
            }
            (OutputForm::Text, None) => {
                let excerpt = self.text.take_unread(MAX_SHOWN_BYTES);
                self.raw.mark_read();
                report.output = Some(decode_output(&excerpt.bytes));
                report.omitted_bytes = excerpt.omitted;
            }
        }
        report
    }
}

/// The text of bytes that may begin inside a character.
fn decode_output(bytes: &[u8]) -> String {
    let continuation = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    String::from_utf8_lossy(&bytes[continuation..]).into_owned()
}

/// How many bytes at the end are an incomplete character.
fn incomplete_char_length(bytes: &[u8]) -> usize {
    let mut last = bytes.iter().rev().take(3).zip(1..);
    let first = last.find(|(byte, _)| **byte & 0xc0 != 0x80);
    first.filter(|(byte, count)| char_length(**byte) > *count).map_or(0, |(_, count)| count)
}

/// The length of a character in UTF-8 by its first byte; 0 for a byte that begins none.
fn char_length(first: u8) -> usize {
    match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_5_a_character_is_not_split() {
        for (bytes, count) in [
            (&b"abc"[..], 0),
            (b"", 0),
            ("aé".as_bytes(), 0),
            (b"a\xc3", 1),
            (b"\xe4\xbd", 2),
            (b"a\xf0\x9f\x98", 3),
            (b"\x80\x80\x80\x80", 0),
        ] {
            assert_eq!(incomplete_char_length(bytes), count, "{bytes:?}");
        }
        assert_eq!(decode_output(b"\xbd\xa0ok\xff"), "ok\u{fffd}");
    }
}
