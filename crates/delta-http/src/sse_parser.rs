//! Splits a byte stream into server-sent events.

/// What a stream of events contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SseEvent {
    /// The data of an event.
    Data(String),
    /// The data of an event named `error`, or the value of a line `error:`, which the standard does not know.
    Error(String),
    /// A line that is not a field: some servers put their errors bare into a stream.
    Unframed(String),
}

impl SseEvent {
    /// The text.
    pub fn text(&self) -> &str {
        match self {
            Self::Data(text) | Self::Error(text) | Self::Unframed(text) => text,
        }
    }
}

/// The fields that carry nothing.
const OTHER_FIELDS: [&[u8]; 2] = [b"id", b"retry"];

/// A parser of server-sent events. The bytes may be cut anywhere, also inside a character.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    data: Option<String>,
    /// The event that is being read is named `error`.
    is_error: bool,
    /// The last byte was a CR: an LF after it belongs to the same line end.
    after_cr: bool,
    /// The first line has ended, so a byte order mark can no longer follow.
    is_past_first_line: bool,
}

impl SseParser {
    /// Parses the next bytes, and returns every event that they complete.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        let mut rest = chunk;
        while let [first, others @ ..] = rest {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                rest = others;
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                break;
            };
            self.line.extend_from_slice(&rest[..end]);
            self.after_cr = rest[end] == b'\r';
            events.extend(self.end_line());
            rest = &rest[end + 1..];
        }
        events
    }

    /// What is left at the end: a last event without the empty line after it, or a bare line before that. The beginning of
    /// a field's name is nothing.
    pub fn finish(&mut self) -> Vec<SseEvent> {
        let is_cut = [&b"data"[..], b"event", b"error", b"id", b"retry"]
            .iter()
            .any(|field| field.starts_with(&self.line));
        let line = if is_cut { None } else { self.end_line() };
        line.into_iter().chain(self.end_event()).collect()
    }

    /// Processes a line; an empty one ends the event.
    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.is_past_first_line, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let colon = memchr::memchr(b':', line);
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let value = || String::from_utf8_lossy(value);
        match name {
            b"" => {}
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(&value());
                }
                None => self.data = Some(value().into_owned()),
            },
            b"event" => self.is_error = value() == "error",
            b"error" if colon.is_some() => return Some(SseEvent::Error(value().into_owned())),
            name if OTHER_FIELDS.contains(&name) => {}
            _ => return Some(SseEvent::Unframed(String::from_utf8_lossy(line).into_owned())),
        }
        None
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let is_error = std::mem::take(&mut self.is_error);
        match self.data.take() {
            Some(data) if is_error => Some(SseEvent::Error(data)),
            None if is_error => Some(SseEvent::Error(String::new())),
            data => data.map(SseEvent::Data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_events(stream: &[u8], size: usize) -> Vec<SseEvent> {
        let mut parser = SseParser::default();
        let mut events: Vec<_> = stream.chunks(size).flat_map(|chunk| parser.push(chunk)).collect();
        events.extend(parser.finish());
        events
    }

    /// The data of the events.
    fn events(stream: &[u8], size: usize) -> Vec<String> {
        let events = all_events(stream, size).into_iter();
        let data = events.filter(|event| matches!(event, SseEvent::Data(_)));
        data.map(|event| event.text().to_owned()).collect()
    }

    #[test]
    fn c_37_3_errors_arrive_in_any_frame() {
        let stream = b"event: error\ndata: one\n\ndata: two\n\nerror: {\"message\":\"three\"}\n\nevent: error\n\nid: 1\n{\"error\":4}\n: five\ndatax: six";
        let text = str::to_owned;
        for size in 1..=stream.len() {
            let expected = [
                SseEvent::Error(text("one")),
                SseEvent::Data(text("two")),
                SseEvent::Error(text("{\"message\":\"three\"}")),
                SseEvent::Error(text("")),
                SseEvent::Unframed(text("{\"error\":4}")),
                SseEvent::Unframed(text("datax: six")),
            ];
            assert_eq!(all_events(stream, size), expected);
        }
    }

    #[test]
    fn c_7_1_every_kind_of_line_end_is_accepted() {
        let lines = [
            "\u{feff}data: ä€😀",
            "",
            ": comment",
            "event: x",
            "data:two",
            "data",
            "data:  three",
            "",
            "",
            "datax: no",
        ];
        let lines = lines.iter().chain(&["", "retry: 3", "data: last"]);
        let expected = ["ä€😀", "two\n\n three", "last"];
        for end in ["\n", "\r\n", "\r"] {
            let stream: String = lines.clone().map(|line| format!("{line}{end}")).collect();
            for size in 1..=stream.len() {
                assert_eq!(
                    events(stream.as_bytes(), size),
                    expected,
                    "{end:?} in chunks of {size}"
                );
            }
        }
        assert_eq!(events(b"data: \xff\xfe\n\n", 1), ["\u{fffd}\u{fffd}"]);
        assert_eq!(events(b"", 1), [""; 0]);
    }
}
