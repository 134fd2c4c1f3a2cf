//! Checks the lines of a journal: each one is complete, is an event, and has the next `seq`.

use super::ReplayReport;
use crate::journal_chain::{ChainFault, ChainFindings, NOT_AN_EVENT, examine_chain};
use delta_run::event::Event;
use delta_run::journal::{self, LineStretch};
use delta_run::run_files::JOURNAL_FILE;

/// Checks every line; gives the events before the first line that is not an event.
pub(super) fn check_journal_lines(bytes: &[u8], report: &mut ReplayReport) -> Vec<Event> {
    let findings = examine_chain(bytes);
    let mut faults = findings.faults.iter().peekable();
    let mut events = Vec::new();
    let mut is_broken = false;
    let mut next_seq = 1;
    for LineStretch { number, text: line, .. } in journal::line_stretches(bytes) {
        let fault = faults.next_if(|fault| fault.line == number);
        let is_torn = findings.torn_bytes > 0 && number == findings.lines + 1;
        if is_torn && fault.is_none() {
            break;
        }
        let event = journal::parse_journal_line(line, next_seq);
        let iteration = event.as_ref().ok().and_then(|event| event.payload.iteration());
        match (fault, &event) {
            (Some(fault), Err(reason)) if fault.description == NOT_AN_EVENT => {
                report.add_mismatch(None, line_subject(number), reason, "an event");
            }
            (Some(ChainFault { check_values: Some((computed, written)), .. }), _) => {
                report.add_checksum_mismatch(iteration, line_subject(number), computed, written);
            }
            (Some(fault), _) => {
                let recorded = format!("a line that {}", fault.description);
                let expected = "the line that delta wrote there";
                report.add_mismatch(iteration, line_subject(number), recorded, expected);
            }
            (None, Err(reason)) => {
                report.add_mismatch(None, line_subject(number), reason, "an event");
            }
            (None, Ok(_)) => {}
        }
        // One line that is missing or too many does not make all later ones wrong.
        next_seq = journal::head_of_line(line).map_or(next_seq, |head| head.seq).saturating_add(1);
        match event {
            Ok(event) if !is_broken => events.push(event),
            Err(_) if !is_broken => {
                is_broken = true;
                report.add_not_checked(format!("the journal from line {number} on"));
            }
            _ => {}
        }
    }
    report.checked.lines += findings.lines;
    report.has_checksums = findings.unchecked.len() < findings.lines;
    add_not_checked(&findings, report);
    events
}

fn line_subject(number: usize) -> String {
    format!("{}, line {number}", JOURNAL_FILE)
}

fn add_not_checked(findings: &ChainFindings, report: &mut ReplayReport) {
    let torn = findings.lines + 1;
    if findings.torn_bytes > 0 && findings.faults.iter().all(|fault| fault.line != torn) {
        report.add_not_checked(format!("{}: torn, so it is ignored", line_subject(torn)));
    }
    if let (Some(first), Some(last)) = (findings.unchecked.first(), findings.unchecked.last()) {
        let count = findings.unchecked.len();
        report.add_not_checked(format!(
            "{count} lines of the journal from {first} to {last}: no checksum"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_base::time::Timestamp;
    use delta_run::chain::{ChainValue, split_line};
    use delta_run::event::Payload;

    fn said(seq: u64) -> Event {
        let content = format!("message {seq} ä\n");
        let payload = Payload::user_message(content, Vec::new());
        Event::new(seq, Timestamp::from_millis(0), payload)
    }

    /// A journal of so many lines.
    fn chained(count: u64) -> String {
        let mut head = None;
        let lines = (1..=count).map(|seq| {
            let mut event = said(seq);
            // The value covers what precedes it, whatever it is.
            event.chain = Some(ChainValue::after(None, b""));
            let line = event.to_line();
            head = Some(ChainValue::after(head, split_line(line.as_bytes()).0));
            event.chain = head;
            event.to_line()
        });
        lines.collect()
    }

    #[test]
    fn c_16_10_every_changed_byte_of_every_line_is_found_and_its_line_named() {
        let older: String = (1..=3).map(|seq| said(seq).to_line()).collect();
        for whole in [older, chained(3)] {
            check_every_byte(&whole);
        }
    }

    fn check_every_byte(whole: &str) {
        let mut report = ReplayReport::default();
        assert_eq!(check_journal_lines(whole.as_bytes(), &mut report).len(), 3);
        assert!(report.is_equal() && report.not_checked.is_empty(), "{report:?}");
        for at in 0..whole.len() {
            for other in [b'\n', b'7', b'}', 0, 0xff, whole.as_bytes()[at] ^ 1] {
                let mut changed = whole.as_bytes().to_vec();
                changed[at] = other;
                if changed == whole.as_bytes() {
                    continue;
                }
                let mut report = ReplayReport::default();
                check_journal_lines(&changed, &mut report);
                let line = whole.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
                let named = format!("journal.jsonl, line {}", line + 1);
                let found = report.differences.iter().any(|difference| difference.what == named);
                assert!(found, "byte {at} as {other}: {report:?}");
            }
        }
    }

    #[test]
    fn c_16_10_a_line_that_has_lost_its_check_value_is_found() {
        let (first, second) = (said(1).to_line(), said(2).to_line());
        let bare = second.replace(",\"crc\":\"", ",\"rc\":\"");
        let mut report = ReplayReport::default();
        check_journal_lines(format!("{first}{bare}").as_bytes(), &mut report);
        assert!(report.differences[0].what == "journal.jsonl, line 2", "{report:?}");
        // An older delta wrote none.
        let older = first.replace(",\"crc\":\"", ",\"rc\":\"");
        let mut report = ReplayReport::default();
        check_journal_lines(format!("{older}{second}").as_bytes(), &mut report);
        assert!(report.is_equal() && report.not_checked.len() == 1, "{report:?}");
    }
}
