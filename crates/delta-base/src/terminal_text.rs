//! Makes text safe and short enough for a terminal.

use crate::steps::count_step;
use crate::terminal;
use crate::text::hidden_text::{misleads_reader, push_json_escape};
use serde::de::IgnoredAny;
use std::sync::OnceLock;

/// Removes everything that could control a terminal from `text`: escape sequences and control characters, except newline
/// and tab. At a terminal, characters that hide or reorder text become visible escapes, as in Rust: `\u{202e}`. Without
/// one, overrides of the direction are removed, and a program that reads the text gets everything else.
pub fn strip_terminal_controls(text: &str) -> String {
    strip_controls(text, is_at_terminal())
}

/// Whether a person may read at least one of the streams.
fn is_at_terminal() -> bool {
    static IS_AT_TERMINAL: OnceLock<bool> = OnceLock::new();
    *IS_AT_TERMINAL.get_or_init(|| terminal::is_stdout_terminal() || terminal::is_stderr_terminal())
}

fn strip_controls(text: &str, is_at_terminal: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut last = None;
    // Whether no string ends on the rest of the line: the search for an end is made once, not at each start.
    let mut is_unterminated = false;
    while let Some(c) = chars.next() {
        count_step();
        is_unterminated &= c != '\n';
        match c {
            '\n' | '\t' => out.push(c),
            '\x1b' => skip_escape_sequence(&mut chars, &mut is_unterminated),
            '\u{9b}' => skip_csi_sequence(&mut chars),
            c if c.is_control() => {}
            c if is_at_terminal && misleads_reader(last, c, chars.peek().copied()) => {
                out.extend(c.escape_unicode());
            }
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c => out.push(c),
        }
        last = Some(c);
    }
    out
}

/// Replaces every control character in lines of JSON, and every character that hides or reorders text, by its `\u` escape,
/// so that the values stay the same.
pub fn escape_json_controls(json: &str) -> String {
    escape_controls(json, push_json_escape)
}

/// Replaces every control character but line ends and tabs, and every character that hides or reorders text, by an escape
/// as in Rust, such as `\u{1b}`: nothing is left out, for text on which a person decides.
pub fn escape_terminal_controls(text: &str) -> String {
    escape_controls(text, |out, c| out.extend(c.escape_unicode()))
}

/// The text on one line in which nothing is left out: line ends and tabs are `\n` and `\t`, and every other character that
/// controls a terminal or misleads a reader is an escape as in Rust.
pub fn escape_to_line(text: &str) -> String {
    escape_terminal_controls(text).replace('\n', "\\n").replace('\t', "\\t")
}

fn escape_controls(text: &str, push_escape: impl Fn(&mut String, char)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut last = None;
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() || misleads_reader(last, c, chars.peek().copied()) => {
                push_escape(&mut out, c);
            }
            c => out.push(c),
        }
        last = Some(c);
    }
    out
}

/// Skips the sequence after an ESC: a control sequence, a string up to its terminator, or one character; never a line end.
fn skip_escape_sequence(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    is_unterminated: &mut bool,
) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_csi_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            *is_unterminated = *is_unterminated || !skip_string_sequence(chars);
        }
        Some(' '..='/') => {
            while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
            chars.next_if(|c| *c != '\n');
        }
        Some(c) if !c.is_control() => {
            chars.next();
        }
        _ => {}
    }
}

/// Skips a string up to its terminator; nothing, and returns false, when it does not end on its line, so that text cannot be
/// hidden.
fn skip_string_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let mut ahead = chars.clone();
    while let Some(c) = ahead.next() {
        count_step();
        let ends = match c {
            '\x07' | '\u{9c}' => true,
            '\x1b' => ahead.next_if_eq(&'\\').is_some(),
            '\n' => return false,
            _ => false,
        };
        if ends {
            *chars = ahead;
            return true;
        }
    }
    false
}

/// Skips the parameters, intermediates and final character of a control sequence.
fn skip_csi_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
    chars.next_if(|c| ('@'..='~').contains(c));
}

/// The first line of `text`, truncated to `limit` characters; ends with `…` when something is left out.
pub fn truncate_to_line(text: &str, limit: usize) -> String {
    let mut lines = text.trim().lines();
    let first = lines.next().unwrap_or_default().trim_end();
    let mut out: String = first.chars().take(limit).collect();
    if out.len() < first.len() || lines.next().is_some() {
        out.push('…');
    }
    out
}

/// A string as the value in `name=value` on one line of about `limit` characters: line ends become `⏎`, and a string that
/// is not a plain word, or that could be another JSON value such as a number, gets quotes.
pub fn format_argument_value(text: &str, limit: usize) -> String {
    let line = text.replace("\r\n", "⏎").replace(['\n', '\r'], "⏎");
    let mut value: String = line.chars().take(limit).collect();
    if value.len() < line.len() {
        value.push('…');
    }
    let is_word = !value.contains(|c: char| c.is_whitespace() || matches!(c, '=' | '"' | '⏎'));
    if !is_word || value.is_empty() || serde_json::from_str::<IgnoredAny>(&value).is_ok() {
        return format!("\"{}\"", value.replace('"', "\\\""));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_15_5_terminal_controls_are_stripped() {
        let check = |input: &str, expected: &str| {
            assert_eq!(strip_controls(input, true), expected, "{input:?}")
        };
        check("plain\n\ttext ä€😀", "plain\n\ttext ä€😀");
        check("a\x1b[31mred\x1b[0m", "ared");
        check("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc");
        check("a\u{9b}2Jb\x1b(Bc\x1bcd\r\x08e\x7ff", "abcdef");
        check("\x1b[", "");
        check("\x1b", "");
        // An unterminated string hides nothing.
        check("a\x1b]0;b\nc\x07", "a0;b\nc");
        check("a\x1bPb", "ab");
        check("abc\u{202e}def", "abc\\u{202e}def");
    }

    proptest::proptest! {
        #[test]
        fn c_38_5_stripping_is_linear((start, turn) in crate::steps::hostile_text()) {
            crate::steps::assert_linear(&start, &turn, |text| {
                strip_controls(text, true);
            });
        }
    }

    #[test]
    fn c_15_5_text_that_misleads_a_reader_is_shown_as_escapes() {
        let reordering =
            ["\u{202a}", "\u{202e}", "\u{2066}", "\u{2069}", "\u{200e}", "\u{200f}", "\u{61c}"];
        let invisible = [
            "\u{200b}",
            "\u{200c}",
            "\u{200d}",
            "\u{feff}",
            "\u{ad}",
            "\u{2060}",
            "\u{e0041}",
            "\u{fe0f}",
            "\u{fe01}",
            "\u{e0100}",
        ];
        for c in reordering.into_iter().chain(invisible) {
            let text = format!("a{c}b");
            let escape = c.escape_unicode();
            assert_eq!(strip_controls(&text, true), format!("a{escape}b"));
            let json = serde_json::to_string(&text).unwrap();
            let escaped = escape_json_controls(&json);
            assert!(escaped.is_ascii(), "{escaped}");
            assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
        // Where they have a use, they stay.
        for text in
            ["👩\u{200d}💻", "❤\u{fe0f}\u{200d}🔥", "1\u{fe0f}\u{20e3}", "می\u{200c}خواهم", "ä€😀"]
        {
            assert_eq!(strip_controls(text, true), text);
        }
        // A program that reads a pipe needs them; it gets no override of the direction.
        assert_eq!(strip_controls("a\u{200b}b\u{202e}c", false), "a\u{200b}bc");
        // A second selector would carry hidden data.
        assert_eq!(strip_controls("❤\u{fe0f}\u{fe0f}", true), "❤\u{fe0f}\\u{fe0f}");
    }

    #[test]
    fn c_15_5_json_keeps_its_values_without_terminal_controls() {
        let values = "a\u{1b}]52;c;eA==\u{7}b\u{9b}\"31m\u{7f}\u{202e}\n\tä😀";
        let json = serde_json::to_string(values).unwrap() + "\n";
        let escaped = escape_json_controls(&json);
        assert!(escaped.chars().all(|c| c == '\n' || !c.is_control()), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), values);
        assert_eq!(escape_json_controls("{\"a\": [1]}\n"), "{\"a\": [1]}\n");
    }

    #[test]
    fn a_truncated_line_ends_with_an_ellipsis() {
        assert_eq!(truncate_to_line("abc", 5), "abc");
        assert_eq!(truncate_to_line("abcdef", 5), "abcde…");
        assert_eq!(truncate_to_line("a\nb", 5), "a…");
    }

    #[test]
    fn an_argument_value_that_is_not_a_word_is_quoted() {
        assert_eq!(format_argument_value("a/b.txt", 9), "a/b.txt");
        assert_eq!(format_argument_value("port = 80 new=port", 9), "\"port = 80…\"");
        assert_eq!(format_argument_value("a\r\nb\n", 9), "\"a⏎b⏎\"");
        assert_eq!(format_argument_value("\"a\"", 9), "\"\\\"a\\\"\"");
        for other_value in ["20", "-1.5", "true", "null", "[1]", "{}"] {
            assert_eq!(format_argument_value(other_value, 9), format!("\"{other_value}\""));
        }
        assert_eq!(format_argument_value("2026-11-26", 12), "2026-11-26");
        assert_eq!(
            (format_argument_value("", 9), format_argument_value("abc", 2)),
            ("\"\"".to_owned(), "ab…".to_owned())
        );
    }
}
