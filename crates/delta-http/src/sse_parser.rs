//! Splits a byte stream into server-sent events.

/// A parser of server-sent events. The bytes may be cut anywhere, also inside a character.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    data: Option<String>,
    /// The last byte was a CR: an LF after it belongs to the same line end.
    after_cr: bool,
    /// The first line has ended, so a byte order mark can no longer follow.
    is_past_first_line: bool,
}

impl SseParser {
    /// Parses the next bytes, and returns the data of every event that they complete.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<String> {
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

    /// The data of a last event without the empty line at its end.
    pub fn finish(&mut self) -> Option<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.data.take()
    }

    /// Processes a line; an empty one ends the event and returns its data.
    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.is_past_first_line, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.data.take();
        }
        // Comments and the fields `event`, `id` and `retry` are not needed.
        let rest = line.strip_prefix(b"data");
        if let Some(rest) = rest.filter(|rest| matches!(rest.first(), None | Some(b':'))) {
            let value = rest.strip_prefix(b":").unwrap_or(rest);
            let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
            match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(&value);
                }
                None => self.data = Some(value.into_owned()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(stream: &[u8], size: usize) -> Vec<String> {
        let mut parser = SseParser::default();
        let mut events: Vec<_> = stream.chunks(size).flat_map(|chunk| parser.push(chunk)).collect();
        events.extend(parser.finish());
        events
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
