//! The journal of a run: append-only, one writer, and every event is durable before the action that follows it.
//!
//! Opening a journal moves a torn last line to a file of its own. Damage before the end is an error: delta never guesses
//! what a damaged line was.
//!
//! Events wait in memory until [`Journal::commit`], which makes all of them durable with one write and one sync: an action
//! needs its events on disk, but they may get there together.

use crate::chain::{ChainCheck, ChainValue, JournalEdit, split_line};
use crate::event::{Event, JournalHead, Payload, parse_envelope, spending};
use crate::journal::seal::{SealStatus, Sealer};
use crate::journal::seal_key::SealKey;
use crate::lease::lease_files;
use crate::limits::BudgetAmount;
use crate::run_files::LEASE_DIR;
use crate::state::RunState;
use delta_base::durable::{self, AppendFile, FileError, LostFile};
use delta_base::error_text;
use delta_base::time::{Clock, Timestamp};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

mod line_reader;
mod lost_events;
pub mod seal;
pub mod seal_key;
mod shortened_line;
pub mod signature;

use line_reader::{JournalScan, LineLength};

/// The largest journal that is read into memory as a whole: 4 GiB. Reading it event by event has no limit.
const MAX_JOURNAL_BYTES: u64 = 4 << 30;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal could not be read.
    #[error("could not read {}: {source}", path.display())]
    Unreadable {
        /// The journal.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The journal does not exist or contains no complete event.
    #[error("the run never began: {} contains no complete event", .0.display())]
    NoEvents(PathBuf),
    /// The journal contains no complete event, although the run began.
    #[error("{} has lost its events: {reason}", path.display())]
    LostEvents {
        /// The journal.
        path: PathBuf,
        /// What shows that the run began.
        reason: String,
    },
    /// A line is not the event that was expected there, and it is not a torn last line.
    #[error("{} is damaged at line {line}: {reason}", path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
        /// How to repair the journal, if that is known.
        hint: Option<String>,
    },
}

/// The events of a journal.
#[derive(Debug)]
pub struct JournalContents {
    /// The events, oldest first.
    pub events: Vec<Event>,
}

/// The end of the events of a journal: where an engine that continues the run appends.
#[derive(Debug, Default)]
pub struct JournalEnd {
    event_count: u64,
    byte_length: u64,
    /// What follows the last event and was never acknowledged.
    torn_tail: Vec<u8>,
    /// Continues the chain.
    chain: ChainCheck,
    /// Continues the seals, with the operator's key.
    sealer: Option<Sealer>,
}

impl JournalEnd {
    /// Whether what is appended is sealed.
    pub fn is_sealed(&self) -> bool {
        self.sealer.as_ref().is_some_and(|sealer| sealer.key().is_some())
    }

    /// What others than delta have changed since the journal was written or, with the operator's key, sealed; `None` if
    /// nothing shows a change.
    pub fn edit(&self) -> Option<JournalEdit> {
        self.next_link().1
    }

    fn next_link(&self) -> (Option<ChainValue>, Option<JournalEdit>) {
        let sealer = self.sealer.as_ref().filter(|sealer| sealer.status().is_own());
        self.chain.next(sealer.and_then(Sealer::edited_line))
    }
}

/// The result of folding the events of a journal.
#[derive(Debug, Default)]
pub struct JournalFold {
    /// The state of the run.
    pub state: RunState,
    /// The cost of the run's own LLM answers. Answers that a fork copied do not count.
    pub spent: BudgetAmount,
    /// The end of the events, for [`Journal::open`].
    pub end: JournalEnd,
    /// What the seals say; without the operator's key, that the run is foreign.
    pub seals: SealStatus,
}

/// Reads all events of a run. Changes nothing.
///
/// # Errors
/// The journal cannot be read, contains no event, or is damaged before its end.
pub fn read_run_journal(run_dir: &Path) -> Result<JournalContents, JournalError> {
    let mut events = Vec::new();
    collect_events(run_dir, &mut events)?.reject_damage()?;
    Ok(JournalContents { events })
}

/// Folds the events of a run as [`RunState::from_events`] does, without keeping them.
///
/// # Errors
/// As for [`read_run_journal`].
pub fn fold_run_journal(run_dir: &Path) -> Result<RunState, JournalError> {
    let mut state = RunState::default();
    scan_journal(run_dir, |event| state.apply(&event))?.reject_damage()?;
    Ok(state)
}

/// Folds the events of a run with their long texts cut: for a list of runs, which must not need more memory for a run whose
/// journal has a line of any length.
///
/// # Errors
/// As for [`read_run_journal`]; also when a line is long without a long text.
pub fn summarize_run_journal(run_dir: &Path) -> Result<RunState, JournalError> {
    let mut state = RunState::default();
    let scan = scan_journal_lines(run_dir, LineLength::Shortened, |_, event| state.apply(&event))?;
    scan.reject_damage().map(|_| state)
}

/// Folds the events of a run as [`fold_run_journal`] does, and checks their chain and their seals on the way, so that a
/// process can continue them. `sealer` is new, and has the operator's keys.
///
/// # Errors
/// As for [`read_run_journal`].
pub fn fold_sealed_journal(
    run_dir: &Path,
    mut sealer: Option<Sealer>,
) -> Result<JournalFold, JournalError> {
    let mut state = RunState::default();
    let mut spent = BudgetAmount::default();
    let mut chain = ChainCheck::default();
    let scan = scan_journal_lines(run_dir, LineLength::Whole, |line, event| {
        let link = chain.check_line(line, event.edited.as_deref());
        if let Some(sealer) = &mut sealer {
            sealer.check_line(line, &event, &link);
        }
        spent = spending::add_spending(spent, &event.payload);
        state.apply(&event);
    })?;
    let mut seals = sealer.as_ref().map(Sealer::status).unwrap_or_default();
    seals.is_edited |= !chain.holds();
    let end = JournalEnd { chain, sealer, ..scan.reject_damage()? };
    Ok(JournalFold { state, spent, end, seals })
}

/// Reads the events of a run up to the first damage, and the damage. For commands that only show a run.
///
/// # Errors
/// No event can be read.
pub fn salvage_journal(run_dir: &Path) -> Result<(Vec<Event>, Option<JournalError>), JournalError> {
    let mut events = Vec::new();
    match collect_events(run_dir, &mut events)?.damage {
        Some(damage) if events.is_empty() => Err(damage),
        damage => Ok((events, damage)),
    }
}

/// Reads the bytes of a run's journal without interpreting them.
///
/// # Errors
/// The journal does not exist or cannot be read.
pub fn read_journal_bytes(run_dir: &Path) -> Result<Vec<u8>, JournalError> {
    let (path, counted) = find_journal(run_dir)?;
    let mut bytes = durable::read_no_follow_at_most(&path, MAX_JOURNAL_BYTES)
        .map_err(|source| unreadable_journal(path, source))?;
    if let Some(length) = counted.and_then(|length| usize::try_from(length).ok()) {
        bytes.truncate(length);
    }
    Ok(bytes)
}

/// Whether metadata.json shows that a run began, whatever is left of its journal.
pub fn has_trace(run_dir: &Path) -> bool {
    lost_events::find_trace(run_dir).is_some()
}

/// The journal of a run that counts, and how many of its bytes: `None` for all.
fn find_journal(run_dir: &Path) -> Result<(PathBuf, Option<u64>), JournalError> {
    lease_files::find_counted_journal(run_dir)
        .map_err(|source| JournalError::Unreadable { path: run_dir.join(LEASE_DIR), source })
}

/// The journal of a run that counts: of a run that is owned by turns, not the one that is named journal.jsonl.
pub fn journal_path(run_dir: &Path) -> PathBuf {
    lease_files::counted_journal_path(run_dir)
}

fn unreadable_journal(path: PathBuf, source: io::Error) -> JournalError {
    match source.kind() {
        io::ErrorKind::NotFound => JournalError::NoEvents(path),
        _ => JournalError::Unreadable { path, source },
    }
}

/// Reads the lines of the first `count` events of a run, byte for byte.
///
/// # Errors
/// The journal cannot be read or has fewer lines.
pub fn read_journal_lines(run_dir: &Path, count: usize) -> Result<Vec<u8>, JournalError> {
    let mut bytes = read_journal_bytes(run_dir)?;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').take(count).collect();
    if lines.len() < count || lines.last().is_some_and(|line| !line.ends_with(b"\n")) {
        let source = io::Error::other(format!("it has fewer than {count} lines now"));
        return Err(unreadable_journal(journal_path(run_dir), source));
    }
    let length = lines.iter().map(|line| line.len()).sum();
    bytes.truncate(length);
    Ok(bytes)
}

/// Creates the journal of a fork, `path` in the run directory, from the `lines` that it copies and one event of its own.
/// The copied lines keep their bytes, so the chain continues after them. After a crash the journal contains all of them or
/// none. Returns the number of its events.
pub fn create_forked_journal(
    run_dir: &Path,
    path: &Path,
    mut lines: Vec<u8>,
    payload: Payload,
    clock: Clock,
    sealer: Option<Sealer>,
) -> Result<u64, FileError> {
    if let Ok(torn) = durable::read_no_follow_at_most(path, MAX_JOURNAL_BYTES) {
        preserve_torn_tail(run_dir, &torn, clock)?;
    }
    let seq = append_to_lines(&mut lines, [(clock(), payload)], sealer);
    durable::replace_private_synced(path, &lines)?;
    Ok(seq)
}

/// Appends events to the lines of a journal, whose chain continues. Returns the number of the last event.
pub fn append_to_lines(
    lines: &mut Vec<u8>,
    events: impl IntoIterator<Item = (Timestamp, Payload)>,
    mut sealer: Option<Sealer>,
) -> u64 {
    let mut chain = ChainCheck::default();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        let link = chain.check_line(line, JournalEdit::from_line(&text).as_ref());
        if let Some((sealer, event)) = sealer.as_mut().zip(Event::from_line(&text).ok()) {
            sealer.check_line(line, &event, &link);
        }
    }
    let (mut head, edit) = chain.next(sealer.as_ref().and_then(Sealer::edited_line));
    let mut edited = edit.map(Box::new);
    let mut seq = chain.lines();
    for (timestamp, payload) in events {
        seq += 1;
        let mut event = Event { edited: edited.take(), ..Event::new(seq, timestamp, payload) };
        let mut line = event.to_open_line();
        if let Some(sealer) = &mut sealer {
            sealer.seal_event(&mut event, &mut line, head);
        }
        event.chain = Some(ChainValue::after(head, line.as_bytes()));
        head = event.chain;
        lines.extend_from_slice(event.to_line().as_bytes());
    }
    seq
}

/// A line of a journal, or consecutive lines none of which begins as an event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineStretch<'a> {
    /// The number of the first line, counted from 1.
    pub number: usize,
    /// How many lines it has.
    pub count: usize,
    /// The lines; only the last one of a journal can lack its newline, and is a stretch of its own.
    pub text: &'a [u8],
}

/// Divides the bytes of a journal into lines. Blank lines and other lines that are not events cost what their bytes cost,
/// however many there are.
pub fn line_stretches(bytes: &[u8]) -> impl Iterator<Item = LineStretch<'_>> {
    let mut rest = bytes;
    let mut number = 1;
    std::iter::from_fn(move || {
        let mut end = 0;
        let mut count = 0;
        for newline in memchr::memchr_iter(b'\n', rest) {
            let is_event = rest[end..].starts_with(b"{\"");
            if is_event && count > 0 {
                break;
            }
            end = newline + 1;
            count += 1;
            if is_event {
                break;
            }
        }
        if count == 0 {
            end = rest.len();
            count = 1;
        }
        let stretch = LineStretch { number, count, text: &rest[..end] };
        rest = &rest[end..];
        number += count;
        (end > 0).then_some(stretch)
    })
}

/// How much is read at first, and at most, to find the last line of a journal.
const HEAD_SPAN_BYTES: u64 = 16 * 1024;
const MAX_HEAD_SPAN_BYTES: u64 = 1 << 30;

/// The last event of a run's journal and its chain value; `None` if the journal cannot be read or has no chain.
pub fn read_journal_head(run_dir: &Path) -> Option<JournalHead> {
    let (path, counted) = find_journal(run_dir).ok()?;
    let file = durable::open_no_follow(&path).ok()?;
    let length = counted.unwrap_or(file.metadata().ok()?.len());
    let mut span = HEAD_SPAN_BYTES;
    loop {
        let start = length.saturating_sub(span);
        let mut bytes = vec![0; usize::try_from(length - start).ok()?];
        file.read_exact_at(&mut bytes, start).ok()?;
        let lines = memchr::memrchr(b'\n', &bytes).map(|end| &bytes[..end]).unwrap_or_default();
        let begin = memchr::memrchr(b'\n', lines).map(|before| before + 1);
        if let Some(begin) = begin.or((start == 0).then_some(0)) {
            return head_of_line(&lines[begin..]);
        }
        if span >= MAX_HEAD_SPAN_BYTES {
            return None;
        }
        span *= 8;
    }
}

/// The most bytes of a journal's first line.
const MAX_FIRST_LINE_BYTES: u64 = 1024 * 1024;

/// The chain value of the first line of a run's journal; `None` if it has none.
pub fn read_first_chain_value(run_dir: &Path) -> Option<ChainValue> {
    let file = durable::open_no_follow(&journal_path(run_dir)).ok()?;
    let mut line = Vec::new();
    BufReader::new(file.take(MAX_FIRST_LINE_BYTES)).read_until(b'\n', &mut line).ok()?;
    split_line(&line).1
}

/// The number of the event in a line, and its chain value.
pub fn head_of_line(line: &[u8]) -> Option<JournalHead> {
    let (_, seq, _) = parse_envelope(std::str::from_utf8(line).ok()?)?;
    Some(JournalHead { seq, chain: split_line(line).1? })
}

fn collect_events(run_dir: &Path, events: &mut Vec<Event>) -> Result<JournalScan, JournalError> {
    scan_journal(run_dir, |event| events.push(event))
}

fn scan_journal(
    run_dir: &Path,
    mut handle: impl FnMut(Event),
) -> Result<JournalScan, JournalError> {
    scan_journal_lines(run_dir, LineLength::Whole, |_, event| handle(event))
}

fn scan_journal_lines(
    run_dir: &Path,
    length: LineLength,
    mut handle: impl FnMut(&[u8], Event),
) -> Result<JournalScan, JournalError> {
    lost_events::explain_no_events(run_dir, || {
        let (path, counted) = find_journal(run_dir)?;
        scan_journal_file(&path, counted, length, &mut handle)
    })
}

/// Passes the events in the first `counted` bytes of a journal to `handle`.
fn scan_journal_file(
    path: &Path,
    counted: Option<u64>,
    length: LineLength,
    handle: &mut impl FnMut(&[u8], Event),
) -> Result<JournalScan, JournalError> {
    let file = durable::open_no_follow(path)
        .map_err(|source| unreadable_journal(path.to_owned(), source))?;
    let file = file.take(counted.unwrap_or(u64::MAX));
    line_reader::read_lines(file, path, length, |line, seq| {
        parse_journal_line(line, seq).map(|event| handle(line, event))
    })
}

/// A journal that no process has owned by turns.
pub(crate) struct JournalSummary {
    pub(crate) state: RunState,
    pub(crate) event_count: u64,
    pub(crate) byte_length: u64,
}

/// Folds the journal at `path`, as [`summarize_run_journal`] does for a run.
pub(crate) fn summarize_first_journal(path: &Path) -> Result<JournalSummary, JournalError> {
    let mut state = RunState::default();
    let scan =
        scan_journal_file(path, None, LineLength::Shortened, &mut |_: &[u8], event: Event| {
            state.apply(&event);
        })?;
    let end = scan.reject_damage()?;
    Ok(JournalSummary { state, event_count: end.event_count, byte_length: end.byte_length })
}

/// Parses a line, including its newline, whose event must have the number `seq`.
///
/// # Errors
/// The reason why the line is not that event.
pub fn parse_journal_line(line: &[u8], seq: u64) -> Result<Event, String> {
    let line = line.strip_suffix(b"\n").ok_or("it does not end with a newline")?;
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    let event = Event::from_line(line).map_err(|error| {
        format!("it is not an event ({})", error_text::describe_json_error(&error))
    })?;
    if event.seq != seq {
        return Err(format!("expected `seq` {seq}, found {}", event.seq));
    }
    Ok(event)
}

/// Writes what followed the last event to a file of its own. Returns the name of the file, if there was anything.
fn preserve_torn_tail(
    run_dir: &Path,
    torn: &[u8],
    clock: Clock,
) -> Result<Option<String>, FileError> {
    if torn.is_empty() {
        return Ok(None);
    }
    let name = format!("journal.torn-{}", clock().to_compact());
    durable::replace_private_synced(&run_dir.join(&name), torn)?;
    Ok(Some(name))
}

/// The journal of one run, opened for writing.
#[derive(Debug)]
pub struct Journal {
    file: AppendFile,
    clock: Clock,
    next_seq: u64,
    /// The events that are recorded and not yet durable.
    pending: Vec<Event>,
    /// How many of the pending events were written to the file.
    written_count: usize,
    /// The lines of the other pending events.
    lines: String,
    /// The chain value of the last line.
    head: Option<ChainValue>,
    /// What the next event says about changes by others.
    edited: Option<Box<JournalEdit>>,
    /// Seals events with the operator's key, if there is one.
    sealer: Option<Sealer>,
}

impl Journal {
    /// The key with which events are sealed, if there is one.
    pub fn seal_key(&self) -> Option<&SealKey> {
        self.sealer.as_ref().and_then(Sealer::key)
    }

    /// Creates the journal of a new run, `path` in the run directory, and preserves what an engine that died at its start left there. The file certainly
    /// survives a crash once the first metadata is written, which syncs the directory.
    pub fn create(
        run_dir: &Path,
        path: &Path,
        clock: Clock,
        sealer: Option<Sealer>,
    ) -> Result<Self, FileError> {
        let file = match durable::read_no_follow_at_most(path, MAX_JOURNAL_BYTES) {
            Ok(torn) => {
                preserve_torn_tail(run_dir, &torn, clock)?;
                AppendFile::open(path, 0)?
            }
            Err(_) => AppendFile::create(path)?,
        };
        Ok(Self::new(file, clock, 1, sealer))
    }

    fn new(file: AppendFile, clock: Clock, next_seq: u64, sealer: Option<Sealer>) -> Self {
        Self {
            file,
            clock,
            next_seq,
            pending: Vec::new(),
            written_count: 0,
            lines: String::new(),
            head: None,
            edited: None,
            sealer,
        }
    }

    /// Opens the journal of a run, `path`, to append after `end`. A torn tail is moved to `journal.torn-TIME` in the run directory;
    /// the name of that file is returned too.
    pub fn open(
        run_dir: &Path,
        path: &Path,
        end: &JournalEnd,
        clock: Clock,
    ) -> Result<(Self, Option<String>), FileError> {
        let torn_file = preserve_torn_tail(run_dir, &end.torn_tail, clock)?;
        let file = AppendFile::open(path, end.byte_length)?;
        let (head, edit) = end.next_link();
        let journal = Self::new(file, clock, end.event_count + 1, end.sealer.clone());
        Ok((Self { head, edited: edit.map(Box::new), ..journal }, torn_file))
    }

    /// The last appended event and its chain value; `None` without one.
    pub fn head(&self) -> Option<JournalHead> {
        Some(JournalHead { seq: self.next_seq - 1, chain: self.head? })
    }

    /// What became of the journal, if it is not where this process opened it, and the path that it had there.
    pub fn find_loss(&self) -> Option<(LostFile, &Path)> {
        Some((self.file.find_loss()?, self.file.path()))
    }

    /// From now on, a change of the journal by another process is an error of the next write.
    pub fn watch_changes(&mut self) -> Result<(), FileError> {
        self.file.watch_changes()
    }

    /// Appends an event, which is durable after the next commit. `redact` sees its line and may replace its payload.
    pub fn append_event(
        &mut self,
        payload: Payload,
        redact: impl FnOnce(&str, &Payload) -> Option<Payload>,
    ) -> &Event {
        let edited = self.edited.take();
        let mut event = Event { edited, ..Event::new(self.next_seq, (self.clock)(), payload) };
        self.next_seq += 1;
        let mut line = event.to_open_line();
        if let Some(payload) = redact(&line, &event.payload) {
            event.payload = payload;
            line = event.to_open_line();
        }
        if let Some(sealer) = &mut self.sealer {
            sealer.seal_event(&mut event, &mut line, self.head);
        }
        let value = ChainValue::after(self.head, line.as_bytes());
        value.end_line(&mut line);
        event.chain = Some(value);
        self.head = Some(value);
        self.lines.push_str(&line);
        self.pending.push(event);
        &self.pending[self.pending.len() - 1]
    }

    /// Writes the appended events to the file without waiting for the disk, and returns them. The next commit reports an
    /// error.
    pub fn start_writeback(&mut self) -> &[Event] {
        let first = std::mem::replace(&mut self.written_count, self.pending.len());
        if first == self.written_count || self.file.append_unsynced(self.lines.as_bytes()).is_err()
        {
            return &[];
        }
        self.lines.clear();
        &self.pending[first..]
    }

    /// Makes all appended events durable, and returns the events that were not durable before.
    ///
    /// # Errors
    /// The write or the sync failed. None of the events is acknowledged, and the run must stop.
    pub fn commit(&mut self) -> Result<Vec<Event>, FileError> {
        if self.pending.is_empty() {
            return Ok(Vec::new());
        }
        self.start_writeback();
        self.file.sync()?;
        self.written_count = 0;
        Ok(std::mem::take(&mut self.pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_base::time;
    use proptest::prelude::*;

    fn journal(count: usize) -> String {
        let event = |seq: usize| {
            let content = format!("message {seq} ä\n");
            let payload = Payload::user_message(content, Vec::new());
            Event::new(seq as u64, time::Timestamp::from_millis(0), payload)
        };
        (1..=count).map(|seq| event(seq).to_line()).collect()
    }

    fn parse(bytes: &[u8]) -> Result<(usize, JournalEnd), JournalError> {
        let mut count = 0;
        let scan = line_reader::read_lines(
            bytes,
            Path::new("journal.jsonl"),
            LineLength::Whole,
            |line, seq| parse_journal_line(line, seq).map(|_| count += 1),
        )?;
        Ok((count, scan.reject_damage()?))
    }

    fn outcome(bytes: &[u8]) -> Result<(usize, usize), String> {
        let found = parse(bytes);
        found.map(|(count, end)| (count, end.torn_tail.len())).map_err(|error| error.to_string())
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
                0 => {
                    Err("the run never began: journal.jsonl contains no complete event".to_owned())
                }
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
        for blank in [&b"\n"[..], b"\n\n", b" \r\n\n  "] {
            assert_eq!(torn(blank), Ok((3, blank.len())));
        }
        assert!(torn(b"garbage\n\n").is_err() && torn(&[b'\n'; 5000]).is_err());
        let middle = text.replacen("\"seq\":2", "\"seq\":5", 1);
        assert_eq!(
            outcome(middle.as_bytes()),
            Err("journal.jsonl is damaged at line 2: expected `seq` 2, found 5".to_owned())
        );
        let middle = text.replacen("message 2", "\u{0}", 1);
        assert!(
            outcome(middle.as_bytes())
                .unwrap_err()
                .starts_with("journal.jsonl is damaged at line 2: it is not an")
        );
    }

    #[test]
    fn c_38_5_lines_that_are_no_events_are_one_stretch() {
        let stretches = |text: &'static str| -> Vec<(usize, usize, &str)> {
            let stretches = line_stretches(text.as_bytes());
            let text = |stretch: LineStretch<'static>| std::str::from_utf8(stretch.text).unwrap();
            stretches.map(|one| (one.number, one.count, text(one))).collect()
        };
        assert_eq!(stretches(""), []);
        assert_eq!(stretches("\n\nx\n"), [(1, 3, "\n\nx\n")]);
        assert_eq!(
            stretches("{\"a\n{\"b\n\n\n{\"c\n\n{\""),
            [
                (1, 1, "{\"a\n"),
                (2, 1, "{\"b\n"),
                (3, 2, "\n\n"),
                (5, 1, "{\"c\n"),
                (6, 1, "\n"),
                (7, 1, "{\"")
            ]
        );
    }

    #[test]
    fn lines_longer_than_what_is_read_at_once_are_whole() {
        let event = |seq: u64, length: usize| {
            let (timestamp, content) = (time::Timestamp::from_millis(0), "ä".repeat(length));
            Event::new(seq, timestamp, Payload::user_message(content, Vec::new())).to_line()
        };
        let lengths = [10, 120_000, 3, 300_000, 131_000, 1_000_000, 1];
        let text: String = (1..).zip(lengths).map(|(seq, length)| event(seq, length)).collect();
        assert_eq!(outcome(text.as_bytes()), Ok((7, 0)));
        assert_eq!(outcome(&text.as_bytes()[..text.len() - 1]), Ok((6, event(7, 1).len() - 1)));
        let damaged = text.replacen("\"seq\":5", "\"seq\":6", 1);
        let expected = "journal.jsonl is damaged at line 5: expected `seq` 5, found 6";
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
