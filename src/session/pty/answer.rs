//! What the commands print: one JSON value each.

use super::protocol::{Form, Look};
use super::screen::Shown;
use super::store::{Metadata, Output, Status};
use super::{PtyError, Result};
use crate::id::SessionId;
use crate::time::Timestamp;
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// At most so much of the output is in one answer: as JSON, it is to fit into what a tool shows to the LLM.
const SHOWN: usize = 24 * 1024;

/// What `start` prints.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format")]
pub struct Started {
    pub session_id: String,
    pub command: String,
    pub work_dir: String,
    pub status: Status,
}

/// What `status` prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    /// What the session is.
    #[serde(flatten)]
    pub metadata: Metadata,
    /// Whether a person's terminal is attached.
    pub attached: bool,
    /// How many bytes of output were not read yet.
    pub unread_bytes: u64,
}

/// What `read` prints.
#[derive(Debug, Serialize)]
pub struct Read {
    /// What was printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// How many bytes before it were left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_bytes: u64,
    /// What stands on the screen.
    #[serde(flatten)]
    pub shown: Option<Shown>,
    /// Whether the text that was waited for did not come.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// How it is with the session.
    pub status: Status,
    /// What the program left with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What `write` and `write-key` print.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format")]
pub struct Typed {
    pub session_id: String,
    pub written_bytes: usize,
}

/// What `resize` prints.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format")]
pub struct Resized {
    pub session_id: String,
    pub cols: u16,
    pub rows: u16,
}

/// What `detach` prints.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format")]
pub struct Detached {
    pub session_id: String,
    pub detached: bool,
}

/// What `end` prints.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format")]
pub struct Terminated {
    pub status: Status,
    pub session_id: String,
}

impl Terminated {
    pub(super) fn of(id: &SessionId) -> Self {
        Self { status: Status::Terminated, session_id: id.to_string() }
    }
}

/// A line of `list`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the names are the format")]
pub enum Listed {
    Sound {
        session_id: String,
        command: String,
        status: Status,
        created_at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
    Damaged {
        session_id: String,
        status: &'static str,
        error: String,
    },
}

impl Listed {
    pub(super) fn of(dir: &Path, found: Result<Metadata>) -> Self {
        match found {
            Ok(found) => Self::Sound {
                session_id: found.session_id,
                command: found.command,
                status: found.status,
                created_at: found.created_at,
                exit_code: found.exit_code,
            },
            Err(error) => Self::Damaged {
                session_id: dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                status: "damaged",
                error: error.to_string(),
            },
        }
    }

    pub(super) fn order(&self) -> (bool, Option<Timestamp>, String) {
        match self {
            Self::Sound { created_at, session_id, .. } => {
                (false, Some(*created_at), session_id.clone())
            }
            Self::Damaged { session_id, .. } => (true, None, session_id.clone()),
        }
    }
}

/// What `cleanup` prints.
#[derive(Debug, Serialize)]
pub struct Cleaned {
    /// The ids of the sessions that are gone.
    pub removed: Vec<String>,
}

/// A text that is waited for.
#[derive(Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// That of `look`, when it waits for one.
    pub(super) fn of(look: &Look) -> Result<Option<Self>> {
        let Some(text) = &look.wait else { return Ok(None) };
        let pattern = if look.regex { text.clone() } else { regex::escape(text) };
        let built = RegexBuilder::new(&pattern).multi_line(true).build();
        built.map(|regex| Some(Self(regex))).map_err(|error| PtyError::Pattern {
            text: text.clone(),
            reason: crate::text::not_a_pattern(&error),
        })
    }

    pub(super) fn is_in(&self, texts: &[String]) -> bool {
        texts.iter().any(|text| self.0.is_match(text))
    }
}

impl Output {
    /// Where a text that is waited for is looked for, when that is not the screen.
    pub(super) fn unread(&self) -> [String; 1] {
        [String::from_utf8_lossy(&self.text.fresh()).into_owned()]
    }

    /// Reads; what is read of the output is not read again.
    pub(super) fn read(
        &mut self,
        look: &Look,
        shown: impl FnOnce() -> Shown,
        (status, exit_code): (Status, Option<i32>),
        timed_out: bool,
    ) -> Read {
        let mut answer =
            Read { output: None, omitted_bytes: 0, shown: None, timed_out, status, exit_code };
        match (look.form, look.lines) {
            (Form::Screen, _) => answer.shown = Some(shown()),
            (form, Some(lines)) => {
                let ring = if form == Form::Raw { &self.raw } else { &self.text };
                answer.output = Some(text(&ring.from(ring.lines(lines))));
            }
            (Form::Raw, None) => {
                let piece = self.raw.take(SHOWN);
                self.text.skip();
                let torn = if status == Status::Active { torn(&piece.bytes) } else { 0 };
                self.raw.give_back(torn);
                answer.output = Some(text(&piece.bytes[..piece.bytes.len() - torn]));
                answer.omitted_bytes = piece.omitted;
            }
            (Form::Text, None) => {
                let piece = self.text.take(SHOWN);
                self.raw.skip();
                answer.output = Some(text(&piece.bytes));
                answer.omitted_bytes = piece.omitted;
            }
        }
        answer
    }
}

/// The text of bytes that may begin inside of a character.
fn text(bytes: &[u8]) -> String {
    let begun = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    String::from_utf8_lossy(&bytes[begun..]).into_owned()
}

/// How many bytes at the end are the beginning of a character.
fn torn(bytes: &[u8]) -> usize {
    let needs = |byte: u8| match byte {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 0,
    };
    let last = bytes.iter().rev().take(3).zip(1..);
    let mut begun = last.skip_while(|(byte, _)| **byte & 0xc0 == 0x80);
    begun.next().filter(|(byte, count)| needs(**byte) > *count).map_or(0, |(_, count)| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_5_a_character_is_read_as_a_whole() {
        for (bytes, count) in [
            (&b"abc"[..], 0),
            (b"", 0),
            ("aé".as_bytes(), 0),
            (b"a\xc3", 1),
            (b"\xe4\xbd", 2),
            (b"a\xf0\x9f\x98", 3),
            (b"\x80\x80\x80\x80", 0),
        ] {
            assert_eq!(torn(bytes), count, "{bytes:?}");
        }
        assert_eq!(text(b"\xbd\xa0ok\xff"), "ok\u{fffd}");
    }
}
