//! The lines of a journal: each is whole, is an event, and is the next one.

use super::{Difference, Report};
use crate::crc::{self, Seal};
use crate::event::Event;
use crate::journal;

/// Checks every line; gives the events up to the first line that is none.
pub(super) fn check(bytes: &[u8], report: &mut Report) -> Vec<Event> {
    let (mut events, mut unsealed, mut broken) = (Vec::new(), Vec::new(), false);
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let what = format!("{}, line {number}", journal::FILE_NAME);
        if line.last() != Some(&b'\n') {
            torn(line, &what, report);
            break;
        }
        report.checked.lines += 1;
        let event = journal::parse_line(line, number as u64);
        let iteration = event.as_ref().ok().and_then(|event| event.payload.iteration());
        match (crc::look(line), &event) {
            (Seal::Broken { written, found }, _) => {
                report.differ(Difference::of_crc(iteration, what, &found, &written));
            }
            (_, Err(reason)) => {
                report.differ(Difference::plain(None, what, reason.clone(), "an event"));
            }
            // Whoever writes check values does not stop: what has none behind one that has was changed.
            (Seal::None, Ok(_)) if report.sealed => {
                let recorded = "a line without its check value";
                report.differ(Difference::plain(iteration, what, recorded, "one at its end"));
            }
            (Seal::None, Ok(_)) => unsealed.push(number),
            (Seal::Whole, Ok(_)) => report.sealed = true,
        }
        match event {
            Ok(event) if !broken => events.push(event),
            Err(_) if !broken => {
                broken = true;
                report.skip(format!("what the journal says from line {number} on"));
            }
            _ => {}
        }
    }
    if let (Some(first), Some(last)) = (unsealed.first(), unsealed.last()) {
        let count = unsealed.len();
        report.skip(format!(
            "{count} lines of the journal between {first} and {last}, which have no check value"
        ));
    }
    events
}

/// A last line without its end: a torn one never counted, but one that is whole except for its end was changed.
fn torn(line: &[u8], what: &str, report: &mut Report) {
    let mut mended = line.to_vec();
    if let Some(last) = mended.last_mut() {
        *last = b'\n';
    }
    if crc::look(&mended) == Seal::Whole {
        let (recorded, expected) =
            (format!("byte {:?} at its end", line[line.len() - 1] as char), "a newline at its end");
        report.differ(Difference::plain(None, what, recorded, expected));
    } else {
        report.skip(format!("{what}, which is torn: it never counted"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Payload;
    use crate::time::Timestamp;

    #[test]
    fn c_16_10_every_changed_byte_of_every_line_is_found_and_its_line_named() {
        let said = |seq: u64| Event {
            seq,
            timestamp: Timestamp::from_millis(0),
            payload: Payload::UserMessage { content: format!("message {seq} ä\n") },
        };
        let whole: String = (1..=3).map(|seq| said(seq).to_line()).collect();
        let mut report = Report::default();
        assert_eq!(check(whole.as_bytes(), &mut report).len(), 3);
        assert!(report.is_equal() && report.not_checked.is_empty(), "{report:?}");
        for at in 0..whole.len() {
            for other in [b'\n', b'7', b'}', 0, 0xff, whole.as_bytes()[at] ^ 1] {
                let mut changed = whole.clone().into_bytes();
                changed[at] = other;
                if changed == whole.as_bytes() {
                    continue;
                }
                let mut report = Report::default();
                check(&changed, &mut report);
                let line = whole.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
                let named = format!("journal.jsonl, line {}", line + 1);
                let found = report.differences.iter().any(|difference| difference.what == named);
                assert!(found, "byte {at} as {other}: {report:?}");
            }
        }
    }

    #[test]
    fn c_16_10_a_line_that_has_lost_its_check_value_is_found() {
        let said = |seq: u64| Event {
            seq,
            timestamp: Timestamp::from_millis(0),
            payload: Payload::UserMessage { content: "hello".to_owned() },
        };
        let (first, second) = (said(1).to_line(), said(2).to_line());
        let bare = second.replace(",\"crc\":\"", ",\"rc\":\"");
        let mut report = Report::default();
        check(format!("{first}{bare}").as_bytes(), &mut report);
        assert!(report.differences[0].what == "journal.jsonl, line 2", "{report:?}");
        // An older delta wrote none.
        let older = first.replace(",\"crc\":\"", ",\"rc\":\"");
        let mut report = Report::default();
        check(format!("{older}{second}").as_bytes(), &mut report);
        assert!(report.is_equal() && report.not_checked.len() == 1, "{report:?}");
    }
}
