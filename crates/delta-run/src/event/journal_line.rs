//! Events as lines of the journal, written and read.

use super::{ActionResult, Event, Payload};
use crate::chain::{self, EDITED_FIELD, JournalEdit};
use delta_base::json::ExactJson;
use delta_base::time::Timestamp;
use delta_base::{checksum, json};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt::Write;

/// An upper bound of the bytes that a line has in addition to its payload.
const ENVELOPE_BYTES: usize = 128;

impl Event {
    /// The event as a line of the journal, with its chain value and the newline. Without a chain value it has a checksum,
    /// as in journals of earlier versions.
    pub fn to_line(&self) -> String {
        let mut line = self.to_open_line();
        match self.chain {
            Some(value) => value.end_line(&mut line),
            None => {
                line.push_str("}\n");
                line = checksum::append_checksum(line);
            }
        }
        line
    }

    /// The line up to its chain value.
    pub(crate) fn to_open_line(&self) -> String {
        // serde writes the tag first. `seq` and `timestamp` follow it, so that every line starts in the same way.
        let payload = json::to_json(&self.payload);
        let split = payload.find(',').expect("every payload has a field after its type");
        let mut line = String::with_capacity(payload.len() + ENVELOPE_BYTES);
        line.push_str(&payload[..split]);
        let _ = write!(line, ",\"seq\":{},\"timestamp\":\"{}\"", self.seq, self.timestamp);
        if let Some(edited) = &self.edited {
            line.push_str(EDITED_FIELD);
            line.push_str(&json::to_json(edited));
        }
        line.push_str(payload[split..].strip_suffix('}').expect("every payload is an object"));
        line
    }

    /// Parses a line of the journal. Does not check its chain value or its checksum.
    pub fn from_line(line: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Envelope {
            seq: u64,
            timestamp: Timestamp,
            edited: Option<Box<JournalEdit>>,
        }
        let mut edited = JournalEdit::from_line(line).map(Box::new);
        let (kind, seq, timestamp) = match parse_envelope(line) {
            Some(envelope) => envelope,
            None => {
                let envelope: Envelope = serde_json::from_str(line)?;
                edited = envelope.edited;
                ("", envelope.seq, envelope.timestamp)
            }
        };
        // Most events are one of these three. To find an enum's variant by its tag, serde would first copy all fields.
        let payload = match kind {
            "THOUGHT" => Payload::Thought(serde_json::from_str(line)?),
            "ACTION_REQUEST" => Payload::ActionRequest(serde_json::from_str(line)?),
            "ACTION_RESULT" => Payload::ActionResult(Box::new(parse_action_result(line)?)),
            _ => serde_json::from_str(line)?,
        };
        let (_, chain) = chain::split_line(line.as_bytes());
        Ok(Self { seq, timestamp, payload, edited, chain })
    }
}

fn parse_action_result(line: &str) -> serde_json::Result<ActionResult> {
    #[derive(Deserialize)]
    struct RunResultField<'a> {
        #[serde(borrow)]
        result: &'a RawValue,
    }
    let mut event: ActionResult = serde_json::from_str(line)?;
    // One event of a run has it.
    if let Some(result) = &mut event.result {
        let field: RunResultField<'_> = serde_json::from_str(line)?;
        *result = ExactJson::new((**result).clone(), field.result.get());
    }
    Ok(event)
}

/// The type, number and time of a line that starts as [`Event::to_line`] writes it.
pub(crate) fn parse_envelope(line: &str) -> Option<(&str, u64, Timestamp)> {
    let (kind, rest) = line.strip_prefix("{\"type\":\"")?.split_once('"')?;
    let (seq, rest) = rest.strip_prefix(",\"seq\":")?.split_once(',')?;
    let (timestamp, _) = rest.strip_prefix("\"timestamp\":\"")?.split_once('"')?;
    Some((kind, seq.parse().ok()?, Timestamp::parse(timestamp)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::ChainValue;
    use crate::event::ActionRequest;

    #[test]
    fn c_6_1_a_line_has_the_fields_at_the_top_level() {
        let payload = Payload::ActionRequest(Box::new(ActionRequest {
            iteration: 1,
            call_id: "c,1".to_owned(),
            tool_name: "list_files".to_owned(),
            tool_args: serde_json::json!({"directory": "."}),
            coerced: Vec::new(),
            argv: Some(vec!["ls".to_owned(), ".".to_owned()]),
            execution: None,
            approval: None,
            sandbox: None,
        }));
        let mut event = Event::new(4, Timestamp::from_millis(1_760_366_122_123), payload);
        let line = event.to_line();
        assert_eq!(
            line,
            "{\"type\":\"ACTION_REQUEST\",\"seq\":4,\"timestamp\":\"2025-10-13T14:35:22.123Z\",\"iteration\":1,\
             \"call_id\":\"c,1\",\"tool_name\":\"list_files\",\"tool_args\":{\"directory\":\".\"},\
             \"argv\":[\"ls\",\".\"],\"crc\":\"da03783d\"}\n"
        );
        assert_eq!(Event::from_line(&line).unwrap(), event);
        let head = ChainValue::after(None, b"x");
        event.chain = Some(head);
        event.edited = Some(Box::new(JournalEdit { lines: vec![2], head }));
        let line = event.to_line();
        // printf x | sha256sum | cut -c -32
        let value = "2d711642b726b04401627ca9fbac32f5";
        let edited = format!("\"edited\":{{\"lines\":[2],\"head\":\"{value}\"}},\"iteration\":1,");
        assert!(line.contains(&edited), "{line}");
        assert!(line.ends_with(&format!("\".\"],\"chain\":\"{value}\"}}\n")), "{line}");
        assert_eq!(Event::from_line(&line).unwrap(), event);
    }
}
