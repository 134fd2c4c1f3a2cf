//! The journal: append-only, one writer, every event durable before the act that follows it.
//!
//! Opening repairs at most a torn last line, and sets what it takes off aside. Damage anywhere else is refused: the
//! journal never guesses.
//!
//! What is recorded waits in memory until [`Journal::commit`], which makes all of it durable in one write and one sync:
//! an act needs its events on disk, not each of them alone.

use crate::durable::{self, AppendFile, FileError};
use crate::event::{Event, Glance, Payload};
use crate::limits::{self, Amount};
use crate::state::RunState;
use crate::time::Clock;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

mod walk;

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
    /// Where they end.
    pub end: End,
}

/// Where the events of a journal end.
#[derive(Debug, Default)]
pub struct End {
    /// How many there are.
    count: u64,
    /// How many bytes they take.
    length: u64,
    /// What stands behind them and was never acknowledged; empty when nothing does.
    torn: Vec<u8>,
}

/// What a journal means, for whoever goes on with the run.
#[derive(Debug, Default)]
pub struct Folded {
    /// The fold of its events.
    pub state: RunState,
    /// What their answers took.
    pub spent: Amount,
    /// Where they end.
    pub end: End,
}

/// Reads the journal of a run, and changes nothing.
///
/// # Errors
/// It cannot be read, holds no event, or is damaged before its end.
pub fn read(run_dir: &Path) -> Result<Contents, JournalError> {
    let mut events = Vec::new();
    let end = end_of(collect(run_dir, &mut events)?)?;
    Ok(Contents { events, end })
}

/// The fold of the journal of a run, as [`RunState::of`] what [`read`] gives, in a fraction of its time and memory.
///
/// # Errors
/// Those of [`read`].
pub fn fold(run_dir: &Path) -> Result<Folded, JournalError> {
    let (mut state, mut spent) = (RunState::default(), Amount::default());
    let mut take = |line: &[u8], seq| {
        let text = text_of(line)?;
        match Glance::of_line(text).filter(|glance| glance.seq == seq) {
            Some(glance) => state.apply_glance(&glance),
            None => {
                let event = event_of(text, seq)?;
                spent = limits::spent(spent, &event.payload);
                state.apply(&event);
            }
        }
        Ok(())
    };
    let end = end_of(walk::each(&mut open(run_dir)?, &run_dir.join(FILE_NAME), &mut take)?)?;
    Ok(Folded { state, spent, end })
}

/// What can still be read of a journal: its events up to where it is damaged, and the damage. For those who only look.
///
/// # Errors
/// Nothing can be read of it.
pub fn salvage(run_dir: &Path) -> Result<(Vec<Event>, Option<JournalError>), JournalError> {
    let mut events = Vec::new();
    match collect(run_dir, &mut events)? {
        (_, Some(fault)) if events.is_empty() => Err(fault),
        (_, fault) => Ok((events, fault)),
    }
}

/// The bytes of the journal of a run, whatever they are.
///
/// # Errors
/// It is not there, or cannot be read.
pub fn bytes(run_dir: &Path) -> Result<Vec<u8>, JournalError> {
    let mut bytes = Vec::new();
    let read = open(run_dir)?.read_to_end(&mut bytes);
    read.map_err(|source| JournalError::Unreadable { path: run_dir.join(FILE_NAME), source })?;
    Ok(bytes)
}

fn open(run_dir: &Path) -> Result<File, JournalError> {
    let path = run_dir.join(FILE_NAME);
    durable::open_regular(&path).map_err(|source| match source.kind() {
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
    let mut bytes = durable::read_whole(&path).map_err(unreadable)?;
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
    if let Ok(torn) = durable::read_whole(&path) {
        set_aside(run_dir, &torn, clock)?;
    }
    let before = lines.iter().filter(|byte| **byte == b'\n').count();
    let event = Event { seq: before as u64 + 1, timestamp: clock(), payload };
    lines.extend_from_slice(event.to_line().as_bytes());
    durable::replace(&path, &lines)
}

/// The events at the beginning of the journal of a run.
fn collect(
    run_dir: &Path,
    events: &mut Vec<Event>,
) -> Result<(End, Option<JournalError>), JournalError> {
    let mut take = |line: &[u8], seq| {
        events.push(parse_line(line, seq)?);
        Ok(())
    };
    walk::each(&mut open(run_dir)?, &run_dir.join(FILE_NAME), &mut take)
}

fn end_of((end, fault): (End, Option<JournalError>)) -> Result<End, JournalError> {
    fault.map_or(Ok(end), Err)
}

/// The event of a line, its newline included, that must be number `seq`.
pub(crate) fn parse_line(line: &[u8], seq: u64) -> Result<Event, String> {
    event_of(text_of(line)?, seq)
}

fn text_of(line: &[u8]) -> Result<&str, String> {
    let line = line.strip_suffix(b"\n").ok_or("the line has no end")?;
    std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())
}

fn event_of(line: &str, seq: u64) -> Result<Event, String> {
    let event = Event::of_line(line).map_err(|error| format!("it is not an event ({error})"))?;
    match event.seq == seq {
        true => Ok(event),
        false => Err(format!("its `seq` is {}, and {seq} was to follow", event.seq)),
    }
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
    /// How many of them were sent.
    sent: usize,
    /// The lines of the others.
    lines: String,
}

impl Journal {
    /// Makes the journal of a new run. What an engine that died at the very beginning left of one is set aside. That the
    /// file is there after a crash, the first metadata of the run sees to: the directory is synced with them.
    pub fn create(run_dir: &Path, clock: Clock) -> Result<Self, FileError> {
        let path = run_dir.join(FILE_NAME);
        let file = match durable::read_whole(&path) {
            Ok(torn) => {
                set_aside(run_dir, &torn, clock)?;
                AppendFile::open(&path, 0)?
            }
            Err(_) => AppendFile::create(&path)?,
        };
        Ok(Self { file, clock, next_seq: 1, pending: Vec::new(), sent: 0, lines: String::new() })
    }

    /// Opens the journal of a run for going on behind `end`. What was torn is set aside as `journal.torn-TIME` in
    /// the run directory, whose name is given then.
    pub fn open(
        run_dir: &Path,
        end: &End,
        clock: Clock,
    ) -> Result<(Self, Option<String>), FileError> {
        let aside = set_aside(run_dir, &end.torn, clock)?;
        let file = AppendFile::open(&run_dir.join(FILE_NAME), end.length)?;
        let next_seq = end.count + 1;
        Ok((
            Self { file, clock, next_seq, pending: Vec::new(), sent: 0, lines: String::new() },
            aside,
        ))
    }

    /// Makes an event of a payload, or of what `instead` gives in its place when it has seen the line. It counts from now
    /// on, and is durable after the next commit.
    pub fn record(
        &mut self,
        payload: Payload,
        instead: impl FnOnce(&str, &Payload) -> Option<Payload>,
    ) -> &Event {
        let mut event = Event { seq: self.next_seq, timestamp: (self.clock)(), payload };
        self.next_seq += 1;
        let mut line = event.to_line();
        if let Some(payload) = instead(&line, &event.payload) {
            event.payload = payload;
            line = event.to_line();
        }
        self.lines.push_str(&line);
        self.pending.push(event);
        &self.pending[self.pending.len() - 1]
    }

    /// Sets what was recorded on its way to the disk, without the wait for it, and gives the events that stand in the file
    /// now. An error is told by the next commit.
    pub fn send(&mut self) -> &[Event] {
        let from = std::mem::replace(&mut self.sent, self.pending.len());
        if from == self.sent || self.file.send(self.lines.as_bytes()).is_err() {
            return &[];
        }
        self.lines.clear();
        &self.pending[from..]
    }

    /// Makes everything recorded durable, and gives the events that have become so.
    ///
    /// # Errors
    /// The write or the sync failed: none of them was acknowledged, and the run must not go on.
    pub fn commit(&mut self) -> Result<Vec<Event>, FileError> {
        if self.pending.is_empty() {
            return Ok(Vec::new());
        }
        self.send();
        self.file.sync()?;
        self.sent = 0;
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

    fn parse(mut bytes: &[u8]) -> Result<(usize, End), JournalError> {
        let mut count = 0;
        let mut take = |line: &[u8], seq| parse_line(line, seq).map(|_| count += 1);
        let end = end_of(walk::each(&mut bytes, Path::new("journal.jsonl"), &mut take)?)?;
        Ok((count, end))
    }

    fn outcome(bytes: &[u8]) -> Result<(usize, usize), String> {
        let found = parse(bytes);
        found.map(|(count, end)| (count, end.torn.len())).map_err(|error| error.to_string())
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
    fn lines_longer_than_what_is_read_at_once_are_whole() {
        let event = |seq: u64, length: usize| {
            let (timestamp, content) = (time::Timestamp::from_millis(0), "ä".repeat(length));
            Event { seq, timestamp, payload: Payload::UserMessage { content } }.to_line()
        };
        let lengths = [10, 120_000, 3, 300_000, 131_000, 1_000_000, 1];
        let text: String = (1..).zip(lengths).map(|(seq, length)| event(seq, length)).collect();
        assert_eq!(outcome(text.as_bytes()), Ok((7, 0)));
        assert_eq!(outcome(&text.as_bytes()[..text.len() - 1]), Ok((6, event(7, 1).len() - 1)));
        let damaged = text.replacen("\"seq\":5", "\"seq\":6", 1);
        let expected = "journal.jsonl is damaged in line 5: its `seq` is 6, and 5 was to follow";
        assert_eq!(outcome(damaged.as_bytes()), Err(expected.to_owned()));
    }

    #[test]
    fn c_13_3_a_rewritten_journal_is_refused_with_the_way_back() {
        let array = format!("[{}]\n", journal(2).trim_end().replace('\n', ","));
        let pretty = "{\n  \"type\": \"USER_MESSAGE\"\n}\n";
        for (text, filter) in [(array.as_str(), "jq -c '.[]'"), (pretty, "jq -c '.'")] {
            let Err(JournalError::Damaged { hint: Some(hint), .. }) = parse(text.as_bytes()) else {
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
