//! An event as a line of the journal, and back.

use super::{Event, Payload};
use crate::time::Timestamp;
use crate::{crc, json};
use serde::Deserialize;
use std::fmt::Write;

/// More bytes than what stands in a line beside its payload.
const BESIDE: usize = 128;

impl Event {
    /// The event as a line of the journal, with its check value and the newline.
    pub fn to_line(&self) -> String {
        // serde puts the tag first; seq and timestamp follow it, so that every line begins alike.
        let payload = json::text(&self.payload);
        let split = payload.find(',').expect("every payload has a field beside its type");
        let mut line = String::with_capacity(payload.len() + BESIDE);
        line.push_str(&payload[..split]);
        let _ = write!(line, ",\"seq\":{},\"timestamp\":\"{}\"", self.seq, self.timestamp);
        line.push_str(&payload[split..]);
        line.push('\n');
        crc::sealed(line)
    }

    /// Reads a line of the journal.
    pub fn of_line(line: &str) -> serde_json::Result<Self> {
        let (kind, seq, timestamp) = match begins(line) {
            Some(known) => known,
            None => {
                #[derive(Deserialize)]
                struct Envelope {
                    seq: u64,
                    timestamp: Timestamp,
                }
                let Envelope { seq, timestamp } = serde_json::from_str(line)?;
                ("", seq, timestamp)
            }
        };
        // A run is made of these three. To read an enum by its tag, serde would keep a copy of all fields beside it.
        let payload = match kind {
            "THOUGHT" => Payload::Thought(serde_json::from_str(line)?),
            "ACTION_REQUEST" => Payload::ActionRequest(serde_json::from_str(line)?),
            "ACTION_RESULT" => Payload::ActionResult(serde_json::from_str(line)?),
            _ => serde_json::from_str(line)?,
        };
        Ok(Self { seq, timestamp, payload })
    }
}

/// The type, number and time of a line that begins as [`Event::to_line`] writes it.
fn begins(line: &str) -> Option<(&str, u64, Timestamp)> {
    let (kind, rest) = line.strip_prefix("{\"type\":\"")?.split_once('"')?;
    let (seq, rest) = rest.strip_prefix(",\"seq\":")?.split_once(',')?;
    let (timestamp, _) = rest.strip_prefix("\"timestamp\":\"")?.split_once('"')?;
    Some((kind, seq.parse().ok()?, Timestamp::parse(timestamp)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ActionRequest;

    #[test]
    fn c_6_1_a_line_has_the_fields_at_the_top_level() {
        let payload = Payload::ActionRequest(Box::new(ActionRequest {
            iteration: 1,
            call_id: "c,1".to_owned(),
            tool_name: "list_files".to_owned(),
            tool_args: serde_json::json!({"directory": "."}),
            argv: Some(vec!["ls".to_owned(), ".".to_owned()]),
            execution: None,
        }));
        let event = Event { seq: 4, timestamp: Timestamp::from_millis(1_760_366_122_123), payload };
        let line = event.to_line();
        assert_eq!(
            line,
            "{\"type\":\"ACTION_REQUEST\",\"seq\":4,\"timestamp\":\"2025-10-13T14:35:22.123Z\",\"iteration\":1,\
             \"call_id\":\"c,1\",\"tool_name\":\"list_files\",\"tool_args\":{\"directory\":\".\"},\
             \"argv\":[\"ls\",\".\"],\"crc\":\"da03783d\"}\n"
        );
        assert_eq!(Event::of_line(&line).unwrap(), event);
    }
}
