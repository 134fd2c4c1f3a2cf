//! The way through a journal, line by line, in memory that does not grow with it.

use super::{End, JournalError};
use crate::text;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// How much is read at a time: what stays in the cache of a processor.
const PIECE: usize = 256 * 1024;
/// How much of the beginning says whether the file was rewritten.
const HEAD: usize = 4096;

/// Takes a line and the number of its event, or says what is wrong with it.
pub type Take<'t> = &'t mut dyn FnMut(&[u8], u64) -> Result<(), String>;

/// Gives `take` each line, its newline included, with the number of the event that it must be. Gives where the events end,
/// and why that is not the end of the journal.
///
/// # Errors
/// It cannot be read.
pub fn each(
    source: &mut dyn Read,
    path: &Path,
    take: Take<'_>,
) -> Result<(End, Option<JournalError>), JournalError> {
    let unreadable = |source| JournalError::Unreadable { path: path.to_owned(), source };
    let never_began = || JournalError::NeverBegan(path.to_owned());
    let mut lines = Lines::new(source);
    lines.fill().map_err(unreadable)?;
    let head = lines.buffer[..lines.end.min(HEAD)].to_vec();
    let mut end = End::default();
    let fault = loop {
        let line = lines.next().map_err(unreadable)?;
        if line.is_empty() {
            break (end.count == 0).then(never_began);
        }
        let Err(reason) = take(line, end.count + 1) else {
            (end.count, end.length) = (end.count + 1, end.length + line.len() as u64);
            continue;
        };
        let line = line.to_vec();
        let last = lines.are_over().map_err(unreadable)?;
        if last && end.count > 0 {
            end.torn = line;
            break None;
        }
        let hint = rewritten_hint(&head, path);
        break Some(match last && hint.is_none() {
            true => never_began(),
            false => {
                let (path, line) = (path.to_owned(), end.count as usize + 1);
                JournalError::Damaged { path, line, reason, hint }
            }
        });
    };
    Ok((end, fault))
}

/// The lines of a file, read in pieces.
struct Lines<'r> {
    source: &'r mut dyn Read,
    buffer: Vec<u8>,
    /// Where in the buffer lies what was read and not given.
    start: usize,
    end: usize,
}

impl<'r> Lines<'r> {
    fn new(source: &'r mut dyn Read) -> Self {
        Self { source, buffer: vec![0; PIECE], start: 0, end: 0 }
    }

    /// The next line with its newline, which the last one may not have; empty at the end.
    fn next(&mut self) -> io::Result<&[u8]> {
        let mut looked = 0;
        let length = loop {
            let found = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', &found[looked..]) {
                break looked + at + 1;
            }
            looked = found.len();
            if !self.fill()? {
                break looked;
            }
        };
        let line = self.start..self.start + length;
        self.start = line.end;
        Ok(&self.buffer[line])
    }

    fn are_over(&mut self) -> io::Result<bool> {
        Ok(self.start == self.end && !self.fill()?)
    }

    /// Reads on; false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    self.end += count;
                    return Ok(count > 0);
                }
            }
        }
    }
}

/// What to do about a file of which an editor or a formatter has made another one, if that is what it looks like.
fn rewritten_hint(head: &[u8], path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let filter = match text {
        text if text.starts_with('[') => ".[]",
        text if text.starts_with("{\n") || text.starts_with("{\r\n") => ".",
        _ => return None,
    };
    let (file, fixed) =
        (path.display().to_string(), path.with_extension("fixed").display().to_string());
    let (file, fixed) = (text::shell_word(&file), text::shell_word(&fixed));
    Some(format!(
        "an editor or a formatter has rewritten it; the way back: jq -c '{filter}' {file} > {fixed} && mv {fixed} {file}"
    ))
}
