//! Reads a journal line by line, in memory that does not grow with the file.

use super::shortened_line::read_shortened_line;
use super::{JournalEnd, JournalError};
use crate::chain::{ChainValue, split_line};
use delta_base::shell_quote;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// How much is read at a time: an amount that fits into the cache of a processor.
const READ_BYTES: usize = 256 * 1024;
/// How much of the start of a file shows whether another program has rewritten it.
const SNIFF_BYTES: u64 = 4096;

/// Fewer bytes of blank lines at the end are not damage.
const MAX_BLANK_BYTES: u64 = 4096;

/// The longest line that is kept in memory as a whole.
const MAX_LINE_BYTES: u64 = 1 << 30;

/// The end of the events of a journal, and the damage that follows them.
pub struct JournalScan {
    pub end: JournalEnd,
    pub damage: Option<JournalError>,
}

impl JournalScan {
    pub fn reject_damage(self) -> Result<JournalEnd, JournalError> {
        self.damage.map_or(Ok(self.end), Err)
    }
}

/// How much of a line is kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineLength {
    /// All of it.
    Whole,
    /// Strings are cut, for readers that need only short ones.
    Shortened,
}

/// Passes each line, including its newline, to `handle`, with the number that its event must have. Stops at the first line
/// that `handle` rejects with a reason: as the last line it is a torn tail, as are blank lines at the end; elsewhere it is
/// damage. A last line that follows the line before it was written whole, so it is damage too.
///
/// # Errors
/// The source cannot be read.
pub fn read_lines(
    mut source: impl Read,
    path: &Path,
    length: LineLength,
    mut handle: impl FnMut(&[u8], u64) -> Result<(), String>,
) -> Result<JournalScan, JournalError> {
    let unreadable = |source| JournalError::Unreadable { path: path.to_owned(), source };
    let no_events = || JournalError::NoEvents(path.to_owned());
    let mut head = Vec::new();
    source.by_ref().take(SNIFF_BYTES).read_to_end(&mut head).map_err(unreadable)?;
    let mut reader = BufReader::with_capacity(READ_BYTES, head.as_slice().chain(source));
    let mut end = JournalEnd::default();
    let mut line = Vec::new();
    let mut previous = Vec::new();
    let damage = loop {
        line.clear();
        let has_line = match length {
            LineLength::Whole => read_bounded_line(&mut reader, &mut line),
            LineLength::Shortened => read_shortened_line(&mut reader, &mut line),
        };
        if !has_line.map_err(unreadable)? {
            break (end.event_count == 0).then(no_events);
        }
        if let Err(reason) = handle(&line, end.event_count + 1) {
            let mut rest = Vec::new();
            reader.take(MAX_BLANK_BYTES).read_to_end(&mut rest).map_err(unreadable)?;
            // An editor may leave blank lines.
            let are_blank = line.trim_ascii().is_empty() && rest.trim_ascii().is_empty();
            let is_last = rest.is_empty() || are_blank && (rest.len() as u64) < MAX_BLANK_BYTES;
            let is_whole = follows(&line, &previous);
            if is_last && end.event_count > 0 && !is_whole {
                line.append(&mut rest);
                end.torn_tail = line;
                break None;
            }
            let hint = is_whole.then(|| NEWER_HINT.to_owned());
            let hint = hint.or_else(|| rewritten_hint(&head, path));
            if is_last && hint.is_none() {
                break Some(no_events());
            }
            let hint = hint.or_else(|| zeros_hint(&line, end.event_count, path));
            let line = end.event_count as usize + 1;
            break Some(JournalError::Damaged { path: path.to_owned(), line, reason, hint });
        }
        end.event_count += 1;
        end.byte_length += line.len() as u64;
        std::mem::swap(&mut line, &mut previous);
    };
    Ok(JournalScan { end, damage })
}

/// What to do about a line that is not damaged, and not an event of this version.
const NEWER_HINT: &str =
    "its chain value shows that delta wrote it, probably a newer version: use that version";

/// Whether the chain value of a line follows the line before it.
fn follows(line: &[u8], previous: &[u8]) -> bool {
    let (covered, value) = split_line(line);
    line.ends_with(b"\n")
        && value.is_some_and(|value| value == ChainValue::after(split_line(previous).1, covered))
}

/// Reads a line; false at the end of the source.
fn read_bounded_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let length = reader.take(MAX_LINE_BYTES).read_until(b'\n', line)?;
    if length as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
        let reason = format!("it has a line of more than {MAX_LINE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(length > 0)
}

/// How to continue without a line with zeros and what follows. A power failure leaves such lines at the end, and they were
/// never acknowledged; whether that is the cause is for the user to judge.
fn zeros_hint(line: &[u8], complete_lines: u64, path: &Path) -> Option<String> {
    if !line.contains(&0) {
        return None;
    }
    let file = shell_quote::shell_quote(&path.display().to_string());
    let fixed = shell_quote::shell_quote(&path.with_extension("fixed").display().to_string());
    Some(format!(
        "it has zeros, as a power failure leaves them in events that were never acknowledged; to continue without it and what follows: head -n {complete_lines} {file} > {fixed} && mv {fixed} {file}"
    ))
}

/// How to restore a file that an editor or a formatter has rewritten as JSON of another form.
fn rewritten_hint(head: &[u8], path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let filter = match text {
        text if text.starts_with('[') => ".[]",
        text if text.starts_with("{\n") || text.starts_with("{\r\n") => ".",
        _ => return None,
    };
    let file = shell_quote::shell_quote(&path.display().to_string());
    let fixed = shell_quote::shell_quote(&path.with_extension("fixed").display().to_string());
    Some(format!(
        "an editor or a formatter rewrote the file; to restore its lines: jq -c '{filter}' {file} > {fixed} && mv {fixed} {file}"
    ))
}
