//! Text that arrives in pieces, as lines for the terminal.

use super::DIM;
use anstyle::Style;
use delta_base::redact::{HiddenAnswers, StreamRedactor};
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::text::text_width::{clip_to_width, expand_tabs, wrap_words};
use std::collections::VecDeque;

/// The most bytes of a line of output that are kept until it ends.
const MAX_PARTIAL_BYTES: usize = 16 * 1024;

/// Adds the lines of `line` after a mark, which only the first line of a block has. `room` is the width of the text after
/// the mark; `None` to break no line.
pub(super) fn push_block_lines(
    rows: &mut Vec<String>,
    mark: &str,
    style: Style,
    line: &str,
    room: Option<usize>,
) {
    let pieces = room.map_or_else(|| vec![line], |room| wrap_words(line, room));
    for piece in pieces {
        let lead = if rows.is_empty() { mark } else { " " };
        rows.push(if piece.trim().is_empty() {
            String::new()
        } else {
            format!("{style}{lead}{style:#} {piece}")
        });
    }
}

/// A text after a mark, as far as it has arrived.
pub(super) struct TextBlock {
    mark: &'static str,
    style: Style,
    redactor: StreamRedactor,
    text: String,
    /// The lines of the first `laid_out` bytes of the text, which end with a newline, for this room.
    rows: Vec<String>,
    laid_out: usize,
    room: usize,
}

impl TextBlock {
    pub(super) fn new(mark: &'static str, style: Style, redactor: StreamRedactor) -> Self {
        Self { mark, style, redactor, text: String::new(), rows: Vec::new(), laid_out: 0, room: 0 }
    }

    pub(super) fn push(&mut self, piece: &str) {
        self.text.push_str(&String::from_utf8_lossy(&self.redactor.push(piece.as_bytes())));
    }

    /// Replaces the text by the complete one, which is redacted already.
    pub(super) fn set_text(&mut self, text: &str) {
        self.laid_out = 0;
        self.rows.clear();
        text.clone_into(&mut self.text);
    }

    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The lines of the block, without blank lines at its end.
    pub(super) fn layout(&mut self, room: usize) -> Vec<String> {
        if self.is_blank() {
            return Vec::new();
        }
        if self.room != room {
            self.room = room;
            self.laid_out = 0;
            self.rows.clear();
        }
        let mut lines = self.text[self.laid_out..].split_inclusive('\n').peekable();
        while let Some(line) = lines.next_if(|line| line.ends_with('\n')) {
            self.laid_out += line.len();
            let line = strip_terminal_controls(line.trim_end_matches(['\n', '\r']));
            push_block_lines(&mut self.rows, self.mark, self.style, &line, Some(room));
        }
        let mut rows = self.rows.clone();
        let rest = strip_terminal_controls(self.text[self.laid_out..].trim_end());
        if !rest.is_empty() {
            push_block_lines(&mut rows, self.mark, self.style, &rest, Some(room));
        }
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }
}

/// The last lines of the output of running tools.
pub(super) struct OutputTail {
    lines: VecDeque<String>,
    max_lines: usize,
    /// What is redacted.
    sensitive_answers: Vec<String>,
    /// The unfinished lines of stdout and stderr of each call.
    streams: Vec<(String, [PartialLine; 2])>,
}

impl OutputTail {
    pub(super) fn new(max_lines: usize, sensitive_answers: Vec<String>) -> Self {
        Self { lines: VecDeque::new(), max_lines, sensitive_answers, streams: Vec::new() }
    }

    pub(super) fn push(&mut self, call_id: &str, is_stderr: bool, bytes: &[u8]) {
        let index = self.streams.iter().position(|(id, _)| id == call_id);
        let index = index.unwrap_or_else(|| {
            let partial_line = || PartialLine {
                redactor: HiddenAnswers::new(&self.sensitive_answers).stream_redactor(),
                bytes: Vec::new(),
            };
            self.streams.push((call_id.to_owned(), [partial_line(), partial_line()]));
            self.streams.len() - 1
        });
        let Self { lines, max_lines, streams, .. } = self;
        streams[index].1[usize::from(is_stderr)].push(bytes, |line| {
            lines.push_back(line);
            if lines.len() > *max_lines {
                lines.pop_front();
            }
        });
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.streams.clear();
    }

    /// The last lines, dimmed, at most `columns` wide.
    pub(super) fn layout(&self, columns: usize) -> Vec<String> {
        let streams = self.streams.iter().flat_map(|(_, streams)| streams);
        let partial = streams.filter_map(PartialLine::line);
        let lines: Vec<String> = self.lines.iter().cloned().chain(partial).collect();
        let skipped = lines.len().saturating_sub(self.max_lines);
        let rows = lines[skipped..].iter().map(|line| {
            let gap = if line.is_empty() { "" } else { " " };
            // The bar and the spaces around it take four columns.
            format!("{DIM}  │{gap}{}{DIM:#}", clip_to_width(line, columns.saturating_sub(4)))
        });
        rows.collect()
    }
}

/// The line of a stream that has not ended yet.
struct PartialLine {
    redactor: StreamRedactor,
    bytes: Vec<u8>,
}

impl PartialLine {
    fn push(&mut self, bytes: &[u8], mut add_line: impl FnMut(String)) {
        let bytes = self.redactor.push(bytes);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_PARTIAL_BYTES.saturating_sub(self.bytes.len());
            let ends = piece.ends_with(b"\n");
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            // A progress bar writes its line again after a carriage return.
            match text.iter().rposition(|byte| *byte == b'\r').filter(|at| at + 1 < text.len()) {
                Some(at) => {
                    self.bytes.clear();
                    self.bytes.extend(text[at + 1..].iter().take(MAX_PARTIAL_BYTES));
                }
                None if self.bytes.ends_with(b"\r") && !text.is_empty() => {
                    self.bytes.clear();
                    self.bytes.extend(text.iter().take(MAX_PARTIAL_BYTES));
                }
                None => self.bytes.extend(text.iter().take(room)),
            }
            if ends {
                add_line(self.line().unwrap_or_default());
                self.bytes.clear();
            }
        }
    }

    /// The text of the line; `None` if it has none.
    fn line(&self) -> Option<String> {
        // The rest of a character that is cut off at the end is still to come.
        let complete = match str::from_utf8(&self.bytes) {
            Err(error) if error.error_len().is_none() => &self.bytes[..error.valid_up_to()],
            _ => &self.bytes,
        };
        let text = String::from_utf8_lossy(complete);
        let line = strip_terminal_controls(&text).trim_end().to_owned();
        (!line.is_empty()).then(|| expand_tabs(&line).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;

    fn tail(pieces: &[&[u8]], max_lines: usize, columns: usize) -> Vec<String> {
        let mut tail = OutputTail::new(max_lines, Vec::new());
        pieces.iter().for_each(|piece| tail.push("c", false, piece));
        tail.layout(columns).iter().map(|row| strip_str(row).to_string()).collect()
    }

    #[test]
    fn c_25_4_the_last_lines_of_output_are_shown_however_it_is_split() {
        let output = "one\ntwo ä日\r\n\nfour\x1b[31m\n10%\r50%\r100%".as_bytes();
        for size in 1..output.len() {
            let pieces: Vec<&[u8]> = output.chunks(size).collect();
            let expected = ["  │ two ä日", "  │", "  │ four", "  │ 100%"];
            assert_eq!(tail(&pieces, 4, 80), expected, "pieces of {size}");
        }
        assert_eq!(tail(&[b"a\nb\n"], 1, 80), ["  │ b"]);
        assert_eq!(tail(&["日本語".as_bytes()], 1, 9), ["  │ 日本…"]);
        assert_eq!(tail(&[b"a\tbc"], 1, 14), ["  │ a       bc"]);
        assert_eq!(tail(&[b"a\tbc"], 1, 13), ["  │ a       …"]);
        assert_eq!(tail(&[&"ä".as_bytes()[..1]], 1, 80), [""; 0]);
        let long = vec![b'x'; 3 * MAX_PARTIAL_BYTES];
        assert_eq!(tail(&[&long, b"\nnext"], 2, 8), ["  │ xxx…", "  │ next"]);
    }

    #[test]
    fn c_25_4_a_block_grows_as_if_it_was_complete_from_the_start() {
        let text = "\nFirst words, that wrap.\r\n\n  - 日本語の テキスト\x1b[2J\n- b\n\n";
        for room in [8, 20, 78] {
            let mut whole =
                TextBlock::new("•", Style::new(), HiddenAnswers::default().stream_redactor());
            whole.push(text);
            for size in 1..9 {
                let mut block =
                    TextBlock::new("•", Style::new(), HiddenAnswers::default().stream_redactor());
                let mut chars = text.chars().peekable();
                while chars.peek().is_some() {
                    let piece: String = chars.by_ref().take(size).collect();
                    block.push(&piece);
                    block.layout(room);
                }
                assert_eq!(block.layout(room), whole.layout(room), "{room} columns, by {size}");
            }
            let rows = whole.layout(room);
            assert!(rows.last().is_some_and(|row| row.contains("- b")), "{rows:?}");
        }
    }
}
