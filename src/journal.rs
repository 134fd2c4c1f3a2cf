//! The journal: append-only, one writer, every event durable before the act that follows it.
//!
//! Opening repairs at most a torn last line, and sets what it takes off aside. Damage anywhere else is refused: the
//! journal never guesses.
//!
//! What is recorded waits in memory until [`Journal::commit`], which makes all of it durable in one write and one sync:
//! an act needs its events on disk, not each of them alone.

use crate::durable::{self, AppendFile, FileError};
use crate::event::{Event, Payload};
use crate::text;
use crate::time::Clock;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file in the run directory.
pub const FILE_NAME: &str = "journal.jsonl";

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system said no.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file cannot be read.
    #[error("could not read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds no whole event.
    #[error("the run never began: {} holds no whole event", .0.display())]
    NeverBegan(PathBuf),
    /// A line before the end is not an event.
    #[error("{} is damaged in line {line}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
        /// How to mend it, when that is known.
        hint: Option<String>,
    },
}

/// What a journal holds.
#[derive(Debug)]
pub struct Contents {
    /// Its events, in order.
    pub events: Vec<Event>,
    /// How many bytes they take.
    length: usize,
    /// What stands behind them and was never acknowledged; empty when nothing does.
    torn: Vec<u8>,
}

/// Reads the journal of a run, and changes nothing.
///
/// # Errors
/// It cannot be read, holds no event, or is damaged before its end.
pub fn read(run_dir: &Path) -> Result<Contents, JournalError> {
    parse(bytes(run_dir)?, run_dir.join(FILE_NAME))
}

/// What can still be read of a journal: its events up to where it is damaged, and the damage. For those who only look.
///
/// # Errors
/// Nothing can be read of it.
pub fn salvage(run_dir: &Path) -> Result<(Vec<Event>, Option<JournalError>), JournalError> {
    match events_of(&bytes(run_dir)?, &run_dir.join(FILE_NAME)) {
        (events, _, Some(fault)) if events.is_empty() => Err(fault),
        (events, _, fault) => Ok((events, fault)),
    }
}

/// The bytes of the journal of a run, whatever they are.
///
/// # Errors
/// It is not there, or cannot be read.
pub fn bytes(run_dir: &Path) -> Result<Vec<u8>, JournalError> {
    let path = run_dir.join(FILE_NAME);
    if path.is_symlink() {
        let source =
            io::Error::other("it is a symlink, and delta does not follow those to its files");
        return Err(JournalError::Unreadable { path, source });
    }
    fs::read(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => JournalError::NeverBegan(path),
        _ => JournalError::Unreadable { path, source },
    })
}

/// The first `count` events of the journal of a run, byte for byte as their lines are.
///
/// # Errors
/// It cannot be read, or holds fewer lines.
pub fn lines(run_dir: &Path, count: usize) -> Result<Vec<u8>, JournalError> {
    let path = run_dir.join(FILE_NAME);
    let unreadable = |source| JournalError::Unreadable { path: path.clone(), source };
    let mut bytes = fs::read(&path).map_err(unreadable)?;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').take(count).collect();
    if lines.len() < count || lines.last().is_some_and(|line| !line.ends_with(b"\n")) {
        return Err(unreadable(io::Error::other("it has become shorter")));
    }
    let length = lines.iter().map(|line| line.len()).sum();
    bytes.truncate(length);
    Ok(bytes)
}

/// Makes the journal of a run that begins with the `lines` of another one, and goes on with an event of its own. After a
/// crash all of it is there, or the run never began.
pub fn begin_with(
    run_dir: &Path,
    mut lines: Vec<u8>,
    payload: Payload,
    clock: Clock,
) -> Result<(), FileError> {
    let path = run_dir.join(FILE_NAME);
    if let Ok(torn) = fs::read(&path) {
        set_aside(run_dir, &torn, clock)?;
    }
    let before = lines.iter().filter(|byte| **byte == b'\n').count();
    let event = Event { seq: before as u64 + 1, timestamp: clock(), payload };
    lines.extend_from_slice(event.to_line().as_bytes());
    durable::replace(&path, &lines)
}

fn parse(mut bytes: Vec<u8>, path: PathBuf) -> Result<Contents, JournalError> {
    let (events, length, fault) = events_of(&bytes, &path);
    if let Some(fault) = fault {
        return Err(fault);
    }
    let torn = bytes.split_off(length);
    Ok(Contents { events, length, torn })
}

/// The whole events at the beginning of a journal, how many bytes they take, and why they are not all.
fn events_of(bytes: &[u8], path: &Path) -> (Vec<Event>, usize, Option<JournalError>) {
    let (mut events, mut length) = (Vec::new(), 0);
    let never_began = || JournalError::NeverBegan(path.to_owned());
    while length < bytes.len() {
        let rest = &bytes[length..];
        let line = &rest[..memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1)];
        let (index, last) = (events.len(), line.len() == rest.len());
        match parse_line(line, index as u64 + 1) {
            Ok(event) => events.push(event),
            Err(_) if last && !events.is_empty() => break,
            Err(_) if last && !looks_rewritten(bytes) => {
                return (events, length, Some(never_began()));
            }
            Err(reason) => {
                let (path, hint) = (path.to_owned(), rewritten_hint(bytes, path));
                let fault = JournalError::Damaged { path, line: index + 1, reason, hint };
                return (events, length, Some(fault));
            }
        }
        length += line.len();
    }
    let fault = events.is_empty().then(never_began);
    (events, length, fault)
}

/// The event of a line, its newline included, that must be number `seq`.
pub(crate) fn parse_line(line: &[u8], seq: u64) -> Result<Event, String> {
    let Some(line) = line.strip_suffix(b"\n") else { return Err("the line has no end".to_owned()) };
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    let event = Event::of_line(line).map_err(|error| format!("it is not an event ({error})"))?;
    match event.seq == seq {
        true => Ok(event),
        false => Err(format!("its `seq` is {}, and {seq} was to follow", event.seq)),
    }
}

/// Whether an editor or a formatter has made another file of it.
fn looks_rewritten(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    text.starts_with('[') || text.starts_with("{\n") || text.starts_with("{\r\n")
}

fn rewritten_hint(bytes: &[u8], path: &Path) -> Option<String> {
    if !looks_rewritten(bytes) {
        return None;
    }
    let array =
        String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).trim_start().starts_with('[');
    let filter = if array { ".[]" } else { "." };
    let (file, fixed) =
        (path.display().to_string(), path.with_extension("fixed").display().to_string());
    let (file, fixed) = (text::shell_word(&file), text::shell_word(&fixed));
    Some(format!(
        "an editor or a formatter has rewritten it; the way back: jq -c '{filter}' {file} > {fixed} && mv {fixed} {file}"
    ))
}

/// Keeps what was torn off a journal; gives the name of its file, when there was anything.
fn set_aside(run_dir: &Path, torn: &[u8], clock: Clock) -> Result<Option<String>, FileError> {
    if torn.is_empty() {
        return Ok(None);
    }
    let name = format!("journal.torn-{}", clock().compact());
    durable::replace(&run_dir.join(&name), torn)?;
    Ok(Some(name))
}

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
    /// Makes the journal of a new run. What an engine that died at the very beginning left of one is set aside.
    pub fn create(run_dir: &Path, clock: Clock) -> Result<Self, FileError> {
        let path = run_dir.join(FILE_NAME);
        let file = match fs::read(&path) {
            Ok(torn) => {
                set_aside(run_dir, &torn, clock)?;
                AppendFile::open(&path, 0)?
            }
            Err(_) => AppendFile::create(&path)?,
        };
        Ok(Self { file, clock, next_seq: 1, pending: Vec::new(), lines: String::new() })
    }

    /// Opens the journal of a run for going on behind `contents`. What was torn is set aside as `journal.torn-TIME` in
    /// the run directory, whose name is given then.
    pub fn open(
        run_dir: &Path,
        contents: &Contents,
        clock: Clock,
    ) -> Result<(Self, Option<String>), FileError> {
        let aside = set_aside(run_dir, &contents.torn, clock)?;
        let file = AppendFile::open(&run_dir.join(FILE_NAME), contents.length as u64)?;
        let next_seq = contents.events.len() as u64 + 1;
        Ok((Self { file, clock, next_seq, pending: Vec::new(), lines: String::new() }, aside))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time;
    use proptest::prelude::*;

    fn journal(count: usize) -> String {
        let event = |seq: usize| Event {
            seq: seq as u64,
            timestamp: time::Timestamp::from_millis(0),
            payload: Payload::UserMessage { content: format!("message {seq} ä\n") },
        };
        (1..=count).map(|seq| event(seq).to_line()).collect()
    }

    fn outcome(bytes: &[u8]) -> Result<(usize, usize), String> {
        let found = parse(bytes.to_vec(), "journal.jsonl".into());
        found
            .map(|contents| (contents.events.len(), contents.torn.len()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn c_13_3_a_journal_cut_at_any_byte_holds_its_whole_events() {
        let text = journal(4);
        for cut in 0..=text.len() {
            let whole = text.as_bytes()[..cut].iter().filter(|byte| **byte == b'\n').count();
            let end = text.as_bytes()[..cut]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let expected = match whole {
                0 => Err("the run never began: journal.jsonl holds no whole event".to_owned()),
                _ => Ok((whole, cut - end)),
            };
            assert_eq!(outcome(&text.as_bytes()[..cut]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn c_13_3_only_the_last_line_may_be_torn() {
        let text = journal(3);
        let torn = |tail: &[u8]| outcome(&[text.as_bytes(), tail].concat());
        assert_eq!(torn(&[0; 512]), Ok((3, 512)));
        assert_eq!(torn(b"garbage\n"), Ok((3, 8)));
        let middle = text.replacen("\"seq\":2", "\"seq\":5", 1);
        assert_eq!(
            outcome(middle.as_bytes()),
            Err("journal.jsonl is damaged in line 2: its `seq` is 5, and 2 was to follow"
                .to_owned())
        );
        let middle = text.replacen("message 2", "\u{0}", 1);
        assert!(
            outcome(middle.as_bytes())
                .unwrap_err()
                .starts_with("journal.jsonl is damaged in line 2: it is not an")
        );
    }

    #[test]
    fn c_13_3_a_rewritten_journal_is_refused_with_the_way_back() {
        let array = format!("[{}]\n", journal(2).trim_end().replace('\n', ","));
        let pretty = "{\n  \"type\": \"USER_MESSAGE\"\n}\n";
        for (text, filter) in [(array.as_str(), "jq -c '.[]'"), (pretty, "jq -c '.'")] {
            let Err(JournalError::Damaged { hint: Some(hint), .. }) =
                parse(text.into(), "j".into())
            else {
                panic!("{text} was taken");
            };
            assert!(hint.contains(filter), "{hint}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = outcome(&bytes);
        }
    }
}
