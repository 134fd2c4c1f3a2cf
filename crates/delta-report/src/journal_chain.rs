//! Finds the lines of a journal that do not follow the lines before them, and names what was done to them.
//!
//! Lines of earlier versions have no chain values, but check values, which are checked instead.

use delta_base::checksum::{self, LineChecksum};
use delta_run::chain::{ChainCheck, ChainValue, JournalEdit, split_line};
use delta_run::event::{Event, JournalHead, Payload};
use delta_run::journal::{self, LineStretch};

/// What is wrong with a line that is not JSON, or not of a known form.
pub const NOT_AN_EVENT: &str = "is not an event";

/// More lines that do not follow the line before them are named only.
const MAX_DESCRIBED_FAULTS: usize = 100;

/// What a disk writes as a whole, at least.
const SECTOR_BYTES: usize = 512;

/// What was found in a journal.
#[derive(Debug, Default)]
pub struct ChainFindings {
    /// How many lines end with a newline.
    pub lines: usize,
    /// How many of them an earlier version wrote, without chain values.
    pub older: usize,
    /// The last line with a chain value.
    pub head: Option<JournalHead>,
    /// What does not hold, in the order of the lines.
    pub faults: Vec<ChainFault>,
    /// The changes that processes have found when they continued the run, with the numbers of the lines that name them.
    pub edits: Vec<(u64, JournalEdit)>,
    /// The lines without a chain value and without a check value, which an older delta wrote.
    pub unchecked: Vec<usize>,
    /// The bytes of an unfinished last line.
    pub torn_bytes: usize,
}

/// A line that is not as it was written, or not where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFault {
    /// The number of the line in the file, the first one if several lines that are not events follow each other.
    pub line: usize,
    /// What was done to it: `was changed`.
    pub description: String,
    /// The check value of a line of an earlier version, computed and recorded, if they differ.
    pub check_values: Option<(String, String)>,
}

impl ChainFault {
    fn new(line: &ExaminedLine<'_>, description: impl Into<String>) -> Self {
        let mut description = description.into();
        if let more @ 1.. = line.count - 1 {
            description.push_str(&format!(" (and the {more} lines after it)"));
        }
        Self { line: line.number, description, check_values: None }
    }
}

struct ExaminedLine<'a> {
    /// The number of the line in the file.
    number: usize,
    /// How many lines without events it stands for.
    count: usize,
    text: &'a [u8],
    covered: &'a [u8],
    value: Option<ChainValue>,
    seq: Option<u64>,
    /// Whether its event has what only lines with chain values have.
    is_newer: bool,
    /// Whether it follows the line before it.
    follows: bool,
}

/// Examines the bytes of a journal.
pub fn examine_chain(bytes: &[u8]) -> ChainFindings {
    let mut findings = ChainFindings::default();
    let mut check = ChainCheck::default();
    let mut lines = Vec::new();
    let mut begin = 0;
    let mut stretches = journal::line_stretches(bytes).peekable();
    while let Some(LineStretch { number, count, text }) = stretches.next() {
        if !text.ends_with(b"\n") {
            findings.torn_bytes = text.len();
            examine_torn_line(text, number, &check, &mut findings);
            break;
        }
        let event = std::str::from_utf8(text).ok().and_then(|text| Event::from_line(text).ok());
        let is_last = stretches.peek().is_none() && !lines.is_empty();
        if event.is_none() && is_last && has_lost_sectors(text, begin) {
            findings.torn_bytes = text.len();
            break;
        }
        begin += text.len();
        let seq = event.as_ref().map(|event| event.seq);
        let is_newer = event.as_ref().is_some_and(|event| has_newer_fields(&event.payload));
        let edited = event.and_then(|event| event.edited);
        let follows = check.check_line(text, edited.as_deref()).follows;
        if let Some(edited) = edited.filter(|_| follows) {
            findings.edits.push((number as u64, *edited));
        }
        findings.head = journal::head_of_line(text).or(findings.head);
        findings.lines += count;
        let (covered, value) = split_line(text);
        let covered = find_damaged_value(text).map_or(covered, |begin| &text[..begin]);
        lines.push(ExaminedLine { number, count, text, covered, value, seq, is_newer, follows });
    }
    let faults_at_end = std::mem::take(&mut findings.faults);
    let mut older = OlderLines::default();
    for (index, line) in lines.iter().enumerate() {
        let fault = match line.value {
            None if line.follows => older.check_line(line),
            // Finding where a line was before looks at all lines.
            _ if findings.faults.len() >= MAX_DESCRIBED_FAULTS && !line.follows => {
                Some(ChainFault::new(line, "does not follow the line before it"))
            }
            _ => describe_fault(&lines, index)
                .or_else(|| describe_other_event(&lines, index))
                .map(|text| ChainFault::new(line, text)),
        };
        findings.faults.extend(fault);
    }
    findings.faults.extend(faults_at_end);
    findings.older = older.count;
    findings.unchecked = older.unchecked;
    findings
}

/// A last line without its newline is torn and does not count; if only the newline is wrong, it was changed.
fn examine_torn_line(text: &[u8], number: usize, check: &ChainCheck, findings: &mut ChainFindings) {
    let mut repaired = text.to_vec();
    if let Some(last) = repaired.last_mut() {
        *last = b'\n';
    }
    let is_chained = split_line(&repaired).1.is_some();
    let edit = std::str::from_utf8(&repaired).ok().and_then(|line| Event::from_line(line).ok());
    let edited = edit.and_then(|event| event.edited);
    let is_whole = is_chained && check.clone().check_line(&repaired, edited.as_deref()).follows
        || checksum::check_line_checksum(&repaired) == LineChecksum::Valid;
    if is_whole {
        let description = "has lost its newline".to_owned();
        findings.faults.push(ChainFault { line: number, description, check_values: None });
    }
}

/// The lines without chain values at the beginning of a journal.
#[derive(Default)]
struct OlderLines {
    /// How many an earlier version wrote.
    count: usize,
    has_checksums: bool,
    /// Whether a line has lost its chain value.
    has_newer: bool,
    /// The lines without a check value.
    unchecked: Vec<usize>,
}

impl OlderLines {
    /// What is wrong with the next line, if anything is.
    fn check_line(&mut self, line: &ExaminedLine<'_>) -> Option<ChainFault> {
        let fault = |text: &str| Some(ChainFault::new(line, text));
        if find_damaged_value(line.text).is_some() {
            return fault("was changed: its chain value is damaged");
        }
        // Once an engine writes chain values, it writes them on every line.
        self.has_newer |= line.is_newer;
        if self.has_newer {
            return fault("has lost its chain value");
        }
        self.count += line.count;
        match checksum::check_line_checksum(line.text) {
            LineChecksum::Valid => self.has_checksums = true,
            LineChecksum::Mismatch { recorded, computed } => {
                let check_values = Some((computed, recorded));
                return Some(ChainFault { check_values, ..ChainFault::new(line, "was changed") });
            }
            // The same with checksums.
            LineChecksum::Missing if self.has_checksums => {
                return fault("was changed: it has no check value");
            }
            LineChecksum::Missing if line.seq.is_none() => return fault(NOT_AN_EVENT),
            LineChecksum::Missing => self.unchecked.push(line.number),
        }
        None
    }
}

/// Whether an event has what no line of an earlier version has: hashes of records and copies, heads of other runs, and seals
/// that earlier versions did not write.
fn has_newer_fields(payload: &Payload) -> bool {
    match payload {
        Payload::EngineStart(start) => {
            start.config.kept.as_ref().is_some_and(|copy| !copy.sha256.is_empty())
        }
        Payload::ActionResult(result) if !result.runs.is_empty() => true,
        Payload::EngineEnd { .. } | Payload::RunTrusted { .. } => false,
        _ => payload.record_sha256().is_some() || payload.seal().is_some(),
    }
}

/// Whether a line that begins at the byte `begin` of its file has zeros in place of whole sectors, and of nothing else. A power
/// failure leaves that in a last line that was never acknowledged, with or without the newline after it.
fn has_lost_sectors(line: &[u8], begin: usize) -> bool {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let mut at = 0;
    for part in text.chunk_by(|left, right| (*left == 0) == (*right == 0)) {
        let end = at + part.len();
        let begins_with_a_sector = at == 0 || (begin + at).is_multiple_of(SECTOR_BYTES);
        let ends_with_a_sector = end == text.len() || (begin + end).is_multiple_of(SECTOR_BYTES);
        if part[0] == 0 && !(begins_with_a_sector && ends_with_a_sector) {
            return false;
        }
        at = end;
    }
    text.contains(&0)
}

/// Where the chain value of a line begins that ends nearly as a line with one does: it was changed there.
fn find_damaged_value(line: &[u8]) -> Option<usize> {
    const DIGITS: usize = 32;
    let [start, end] = [b",\"chain\":\"".as_slice(), b"\"}\n"];
    let begin = line.len().checked_sub(start.len() + DIGITS + end.len())?;
    let frame = start.iter().zip(&line[begin..]);
    let frame = frame.chain(end.iter().zip(&line[begin + start.len() + DIGITS..]));
    let equal = frame.filter(|(expected, actual)| expected == actual).count();
    let is_damaged = split_line(line).1.is_none() && equal + 1 >= start.len() + end.len();
    is_damaged.then_some(begin)
}

/// What was done to a line with a chain value, or after one. `None` if the line is as it was written, and another line
/// explains why it does not follow.
fn describe_fault(lines: &[ExaminedLine<'_>], index: usize) -> Option<String> {
    let line = &lines[index];
    if line.follows {
        return None;
    }
    let before = index.checked_sub(1).map(|before| &lines[before]);
    let next = lines.get(index + 1);
    let value_before = before.and_then(|before| before.value);
    match original_predecessor(lines, index) {
        Some(Some(origin)) if origin > index => {
            let origin = lines[origin].number;
            return Some(format!("was moved: it followed what is line {origin} now"));
        }
        Some(origin) => {
            let between = &lines[origin.map_or(0, |origin| origin + 1)..index];
            if between.iter().any(|line| !line.follows) {
                return None;
            }
        }
        None => {}
    }
    if let Some(next) = next
        && (!next.follows || line.value.is_none())
        && next.follows_value(value_before)
    {
        return Some("was inserted".to_owned());
    }
    if let Some(next) = next
        && next.follows_value(Some(ChainValue::after(value_before, line.covered)))
    {
        return Some("has another chain value".to_owned());
    }
    if line.value.is_none() {
        return Some("was changed: it has no chain value".to_owned());
    }
    if let Some(before) = before {
        let two_before = index.checked_sub(2).and_then(|index| lines[index].value);
        let repaired = ChainValue::after(two_before, before.covered);
        if line.follows_value(Some(repaired)) {
            return None;
        }
    }
    let expected = before.map_or(Some(1), |before| before.seq.and_then(|seq| seq.checked_add(1)));
    if let (Some(expected), Some(seq)) = (expected, line.seq)
        && seq > expected
        && next.and_then(|next| next.seq).is_none_or(|next| Some(next) == seq.checked_add(1))
    {
        let missing = seq - expected;
        return Some(match missing {
            1 => format!("follows a missing line: event {expected}"),
            _ => format!("follows {missing} missing lines: events {expected} to {}", seq - 1),
        });
    }
    Some("was changed".to_owned())
}

/// What is wrong with a line that follows the line before it, and is not the event with its number.
fn describe_other_event(lines: &[ExaminedLine<'_>], index: usize) -> Option<String> {
    let line = &lines[index];
    if !line.follows {
        return None;
    }
    let Some(seq) = line.seq else { return Some(NOT_AN_EVENT.to_owned()) };
    let before = index.checked_sub(1).map_or(Some(0), |before| lines[before].seq);
    let expected = before.and_then(|before| before.checked_add(1)).unwrap_or(seq);
    (seq != expected).then(|| format!("is event {seq}, expected {expected}"))
}

impl ExaminedLine<'_> {
    fn follows_value(&self, previous: Option<ChainValue>) -> bool {
        self.value.is_some_and(|value| value == ChainValue::after(previous, self.covered))
    }
}

/// The index of the line that a line was written after, if that is in the journal; the inner `None` is its beginning.
fn original_predecessor(lines: &[ExaminedLine<'_>], index: usize) -> Option<Option<usize>> {
    let line = &lines[index];
    let seq = line.seq?;
    if seq == 1 && line.follows_value(None) {
        return Some(None);
    }
    let origin = lines
        .iter()
        .position(|other| other.seq == seq.checked_sub(1) && line.follows_value(other.value))?;
    Some(Some(origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_base::time::Timestamp;
    use delta_run::event::Payload;
    use proptest::prelude::*;

    /// The lines of a journal of messages.
    fn journal(texts: &[String]) -> Vec<String> {
        let mut head = None;
        let lines = texts.iter().zip(1..).map(|(text, seq)| {
            let payload = Payload::user_message(text, Vec::new());
            let mut event = Event::new(seq, Timestamp::from_millis(0), payload);
            // The value covers what precedes it, whatever it is.
            event.chain = Some(ChainValue::after(None, b""));
            let line = event.to_line();
            head = Some(ChainValue::after(head, split_line(line.as_bytes()).0));
            event.chain = head;
            event.to_line()
        });
        lines.collect()
    }

    /// What was found, as `2 was changed`.
    fn faults(lines: &[String]) -> Vec<String> {
        let found = examine_chain(lines.concat().as_bytes()).faults;
        found.iter().map(|fault| format!("{} {}", fault.line, fault.description)).collect()
    }

    fn five() -> Vec<String> {
        journal(&["a", "b", "c", "d", "e"].map(str::to_owned))
    }

    #[test]
    fn c_27_1_each_kind_of_change_is_named() {
        assert_eq!(faults(&five()), [""; 0]);
        let changed = |change: &dyn Fn(&mut Vec<String>)| {
            let mut lines = five();
            change(&mut lines);
            faults(&lines)
        };
        let of_text = |lines: &mut Vec<String>| lines[1] = lines[1].replace("\"b\"", "\"x\"");
        assert_eq!(changed(&of_text), ["2 was changed"]);
        let of_value = |lines: &mut Vec<String>| {
            let value = lines[1].len() - 4;
            let digit = if &lines[1][value..=value] == "0" { "1" } else { "0" };
            lines[1].replace_range(value..=value, digit);
        };
        assert_eq!(changed(&of_value), ["2 has another chain value"]);
        let removed = |lines: &mut Vec<String>| drop(lines.drain(1..3));
        assert_eq!(changed(&removed), ["2 follows 2 missing lines: events 2 to 3"]);
        let without_first = |lines: &mut Vec<String>| drop(lines.remove(0));
        assert_eq!(changed(&without_first), ["1 follows a missing line: event 1"]);
        let inserted = |lines: &mut Vec<String>| {
            lines.insert(2, journal(&["x".to_owned(), "y".to_owned()]).remove(1));
        };
        assert_eq!(changed(&inserted), ["3 was inserted"]);
        let bare = |lines: &mut Vec<String>| lines.insert(2, "{\"seq\":3}\n".to_owned());
        assert_eq!(changed(&bare), ["3 was inserted"]);
        let swapped = |lines: &mut Vec<String>| lines.swap(1, 2);
        assert_eq!(changed(&swapped), ["2 was moved: it followed what is line 3 now"]);
        let copied = |lines: &mut Vec<String>| lines.insert(4, lines[1].clone());
        assert_eq!(changed(&copied), ["5 was inserted"]);
        let last = |lines: &mut Vec<String>| lines[4] = lines[4].replace('\n', " ");
        assert_eq!(changed(&last), ["5 has lost its newline"]);
        // As a process that dies leaves it.
        let torn = |lines: &mut Vec<String>| {
            lines[4].pop();
        };
        assert_eq!(changed(&torn), [""; 0]);
        // What no seal and no head elsewhere covers can be cut.
        assert_eq!(changed(&|lines| lines.truncate(3)), [""; 0]);
    }

    #[test]
    fn c_38_5_lines_that_are_no_events_are_one_finding_however_many() {
        for other in ["\n", " \r\n", "x\n"] {
            let mut lines = five();
            lines.insert(2, other.repeat(100_000));
            let findings = examine_chain(lines.concat().as_bytes());
            assert_eq!(findings.lines, 100_005);
            let found: Vec<_> =
                findings.faults.iter().map(|it| (it.line, &*it.description)).collect();
            assert_eq!(found, [(3, "was inserted (and the 99999 lines after it)")]);
        }
    }

    proptest! {
        #[test]
        fn c_27_1_a_changed_line_is_found_and_named(
            texts in prop::collection::vec(".{0,20}", 1..6), line in any::<prop::sample::Index>(),
            byte in any::<prop::sample::Index>(), other in any::<u8>(),
        ) {
            let lines = journal(&texts);
            let line = line.index(lines.len());
            let byte = byte.index(lines[line].len());
            let start: usize = lines[..line].iter().map(String::len).sum();
            let mut bytes = lines.concat().into_bytes();
            prop_assume!(bytes[start + byte] != other);
            bytes[start + byte] = other;
            let found = examine_chain(&bytes).faults;
            prop_assert!(found.iter().any(|fault| fault.line == line + 1), "{found:?}");
        }

        #[test]
        fn c_27_1_a_line_that_is_missing_too_many_or_elsewhere_is_found(
            count in 3..8_usize, from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
        ) {
            let whole = journal(&(0..count).map(|number| number.to_string()).collect::<Vec<_>>());
            let from = from.index(count - 1);
            let mut removed = whole.clone();
            removed.remove(from);
            let found = faults(&removed);
            prop_assert!(found.len() == 1 && found[0].starts_with(&format!("{} follows", from + 1)), "{found:?}");
            let to = to.index(count);
            let mut copied = whole.clone();
            copied.insert(to, whole[from].clone());
            let found = examine_chain(copied.concat().as_bytes()).faults;
            // The copy next to the original is as good as it.
            prop_assert!(found.iter().any(|fault| fault.line.abs_diff(to + 1) <= 1), "{found:?}");
            prop_assume!(from != to);
            let mut swapped = whole;
            swapped.swap(from, to);
            let found = examine_chain(swapped.concat().as_bytes()).faults;
            let first = from.min(to) + 1;
            prop_assert!(found.iter().any(|fault| fault.line == first), "{found:?}");
        }
    }
}
