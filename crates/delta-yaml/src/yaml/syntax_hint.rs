//! Explains common YAML syntax errors and suggests what to write instead.
//!
//! The parser reports where it stopped and why; the intent is guessed from the lines there. An unknown error keeps the
//! parser's message.

use super::compose::{FlowContext, YamlSyntaxError};
use super::escaped_pairs::{FIRST_HALF, PAIR_LENGTH, find_escapes, find_pairs};
use super::quote_yaml;
use delta_base::text::hidden_text::find_unseen_character;

/// Explains the parser's error `info` at `line` and `column` of `text`.
pub(super) fn explain_syntax_error(
    text: &str,
    info: &str,
    line: usize,
    column: usize,
) -> YamlSyntaxError {
    let location = ErrorLocation { lines: text.lines().collect(), line, column };
    let flow_context = match info {
        "illegal placement of ':' indicator" => Some(location.flow_context()),
        info if info.contains("flow") => Some(location.flow_context()),
        info if info.contains("node content") => {
            Some(location.flow_context()).filter(|context| *context == FlowContext::AtEndOfFile)
        }
        _ => None,
    };
    let explained = location.explain_unseen_character().or_else(|| location.explain(info));
    let error = explained.unwrap_or_else(|| {
        YamlSyntaxError::new(line, column, format!("not valid YAML: {info}"), None)
    });
    YamlSyntaxError { flow_context, ..error }
}

/// Where the parser stopped.
struct ErrorLocation<'t> {
    lines: Vec<&'t str>,
    line: usize,
    column: usize,
}

impl<'t> ErrorLocation<'t> {
    fn explain(&self, info: &str) -> Option<YamlSyntaxError> {
        match info {
            info if info.contains("tab") => self.explain_tab(),
            "':' must be followed by a valid YAML whitespace" => self.explain_tab(),
            "mapping values are not allowed in this context" => self
                .explain_second_colon()
                .or_else(|| self.explain_missing_colon(self.line - 1))
                .or_else(|| self.explain_deep_indentation()),
            "while parsing a block mapping, did not find expected key" => {
                self.explain_text_after_value().or_else(|| self.explain_missing_key())
            }
            "while parsing a block collection, did not find expected '-' indicator" => {
                self.explain_missing_list_entry()
            }
            "simple key expect ':'" | "simple key expected" => {
                self.explain_missing_colon(self.line)
            }
            "block sequence entries are not allowed in this context" => {
                self.explain_list_on_key_line()
            }
            "while parsing node, found unknown anchor"
            | "while scanning a block scalar, did not find expected comment or line break" => {
                self.explain_missing_quotes()
            }
            info if info.starts_with("unexpected character") => self.explain_missing_quotes(),
            "while parsing a quoted scalar, found unknown escape character" => self.error_here(
                "unknown escape after a backslash in double quotes",
                "use single quotes, or write the backslash as `\\\\`",
            ),
            "while parsing a quoted scalar, found invalid Unicode character escape code" => {
                let (line, column) = self.find_half().unwrap_or((self.line, self.column));
                self.error_at(
                    line,
                    column,
                    "an escape after a backslash names half of a character, or none",
                    "write the character itself, or `\\U` and its eight hexadecimal digits",
                )
            }
            "invalid trailing content after double-quoted scalar" => self.error_here(
                "unexpected text after the closing quote",
                "put quotes around the whole value; inside single quotes, write `'` twice",
            ),
            "while scanning a quoted scalar, found unexpected end of stream"
            | "while scanning a quoted scalar, found unexpected document indicator"
            | "invalid indentation in quoted scalar" => self.explain_unclosed_quote(),
            _ => None,
        }
    }

    /// The line and the column of the first escape that names half of a character: the parser names the quote before it.
    fn find_half(&self) -> Option<(usize, usize)> {
        (self.line..=self.lines.len()).find_map(|line| {
            let text = self.line_text(line);
            let from = if line == self.line { self.column - 1 } else { 0 };
            let pairs = find_pairs(text, FIRST_HALF);
            let paired: Vec<usize> =
                pairs.iter().flat_map(|at| [*at, at + PAIR_LENGTH / 2]).collect();
            let at = find_escapes(text).filter(|at| !paired.contains(at)).find(|at| {
                let digits = &text[at + 2..];
                let is_half = digits.starts_with(['d', 'D'])
                    && digits[1..].starts_with(|c: char| c.is_ascii_hexdigit() && c > '7');
                is_half && text[..*at].chars().count() >= from
            })?;
            Some((line, text[..at].chars().count() + 1))
        })
    }

    /// The text of a line, from 1.
    fn line_text(&self, line: usize) -> &'t str {
        self.lines.get(line.wrapping_sub(1)).copied().unwrap_or_default()
    }

    fn error_at(
        &self,
        line: usize,
        column: usize,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<YamlSyntaxError> {
        Some(YamlSyntaxError::new(line, column, message.into(), Some(help.into())))
    }

    fn error_here(
        &self,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<YamlSyntaxError> {
        self.error_at(self.line, self.column, message, help)
    }

    fn flow_context(&self) -> FlowContext {
        let rest_of_line = self.line_text(self.line).chars().skip(self.column - 1);
        let lines_after = self.lines.iter().skip(self.line).flat_map(|line| line.chars());
        if rest_of_line.chain(lines_after).all(char::is_whitespace) {
            return FlowContext::AtEndOfFile;
        }
        FlowContext::BeforeText
    }

    /// A character that looks like a blank or like nothing, where this line or the one before it has syntax: in its
    /// indentation, or after `-` or `:`.
    fn explain_unseen_character(&self) -> Option<YamlSyntaxError> {
        [self.line, self.line.wrapping_sub(1)].into_iter().find_map(|line| {
            let (before, unseen) = split_unseen_character(self.line_text(line))?;
            if !matches!(before.trim().chars().last(), None | Some('-' | ':')) {
                return None;
            }
            let column = before.chars().count() + 1;
            self.error_at(line, column, describe_unseen(unseen), help_unseen(unseen))
        })
    }

    /// A tab in an indentation from this line on, or else the first tab in this line.
    fn explain_tab(&self) -> Option<YamlSyntaxError> {
        let offset = self
            .lines
            .iter()
            .skip(self.line - 1)
            .position(|line| indentation(line).contains('\t'))
            .unwrap_or(0);
        let line = self.line + offset;
        let column = self.line_text(line).chars().position(|c| c == '\t')? + 1;
        self.error_at(line, column, "expected spaces, found a tab", "replace the tab with spaces")
    }

    /// `key: a text: with a colon`
    fn explain_second_colon(&self) -> Option<YamlSyntaxError> {
        let source = self.line_text(self.line);
        let (key, value) = split_yaml_entry(source)?;
        let is_first = source.chars().take(self.column).filter(|c| *c == ':').count() < 2;
        if is_first || !value.contains(": ") && !value.ends_with(':') {
            return None;
        }
        let help = format!("write `{key}: {}`", quote_yaml_value(value));
        self.error_here("a string that contains `: ` needs quotes", help)
    }

    /// The last line up to `line` that is not empty or a comment, when it is not `key: value`.
    fn explain_missing_colon(&self, line: usize) -> Option<YamlSyntaxError> {
        let line = (1..=line.min(self.lines.len())).rev().find(|line| {
            !matches!(self.line_text(*line).trim().chars().next(), None | Some('#'))
        })?;
        let source = self.line_text(line);
        let column = indentation(source).chars().count() + 1;
        let text = source.trim();
        if let Some(rest) = text.strip_prefix('-').filter(|rest| !rest.starts_with(['-', ' '])) {
            let message = "`-` needs a space after it to start a list entry";
            return self.error_at(line, column, message, format!("write `- {rest}`"));
        }
        let text = text.trim_start_matches("- ");
        if text.contains(": ") || text.ends_with(':') {
            return None;
        }
        let help = match text.split_once(' ') {
            _ if self.line_text(line - 1).trim_end().ends_with(['|', '>', '-']) && line > 1 => {
                "indent the text deeper than its key".to_owned()
            }
            Some((key, value)) => format!("write `{key}: {value}`"),
            None => match text.split_once(':') {
                Some((key, value)) => format!("a blank is missing: write `{key}: {value}`"),
                None => "write `key: value`".to_owned(),
            },
        };
        self.error_at(line, column, format!("expected `key: value`, found `{text}`"), help)
    }

    fn explain_deep_indentation(&self) -> Option<YamlSyntaxError> {
        let column = indentation(self.line_text(self.line)).chars().count() + 1;
        let message = "indented deeper than the entry before it, which already has a value";
        self.error_at(self.line, column, message, "indent it like that entry")
    }

    /// `key: [a] and more`
    fn explain_text_after_value(&self) -> Option<YamlSyntaxError> {
        let source = self.line_text(self.line);
        if self.column <= indentation(source).chars().count() + 1 {
            return None;
        }
        let (key, value) = split_yaml_entry(source)?;
        let first = value.chars().next().filter(|first| "[{".contains(*first))?;
        let message = format!("a string that starts with `{first}` needs quotes");
        self.error_here(message, format!("write `{key}: {}`", quote_yaml_value(value)))
    }

    fn explain_missing_key(&self) -> Option<YamlSyntaxError> {
        if self.line_text(self.line).trim().starts_with("- ") {
            return self.error_here(
                "expected a key, found a list entry",
                "write a list as `[a, b]`, or as lines that start with `- `, indented deeper than their key",
            );
        }
        self.explain_missing_colon(self.line).or_else(|| {
            self.error_here(
                "the indentation matches no entry before it",
                "indent it like the other entries of its mapping",
            )
        })
    }

    fn explain_missing_list_entry(&self) -> Option<YamlSyntaxError> {
        if self.line_text(self.line).trim().starts_with("- ") {
            return self.error_here(
                "the indentation matches no entry of its list",
                "indent `- ` like the entries before it",
            );
        }
        self.error_here(
            "expected an entry of the list before it, or a key next to that list",
            "start an entry with `- `; indent the other keys of an entry like its first key",
        )
    }

    fn explain_list_on_key_line(&self) -> Option<YamlSyntaxError> {
        let (key, value) = split_yaml_entry(self.line_text(self.line))?;
        let message = format!("a list cannot start on the line of its key `{key}`");
        let value = quote_yaml_value(value);
        let help =
            format!("write each entry on its own line; for a string, write `{key}: {value}`");
        self.error_here(message, help)
    }

    /// A value that starts with a character of YAML's syntax.
    fn explain_missing_quotes(&self) -> Option<YamlSyntaxError> {
        let source = self.line_text(self.line);
        let first = source.chars().nth(self.column - 1)?;
        let (key, value) =
            split_yaml_entry(source).filter(|(_, value)| value.starts_with(first))?;
        let message = format!("a string that starts with `{first}` needs quotes");
        let block_hint = match first {
            '|' | '>' => format!("; start a text of several lines on the line after `{first}`"),
            _ => String::new(),
        };
        self.error_here(message, format!("write `{key}: {}`{block_hint}", quote_yaml_value(value)))
    }

    fn explain_unclosed_quote(&self) -> Option<YamlSyntaxError> {
        let column = [self.column, self.column - 1].into_iter().find(|column| {
            let character = self.line_text(self.line).chars().nth(column.wrapping_sub(1));
            matches!(character, Some('"' | '\''))
        })?;
        let help = "close it; write a text of several lines after `|`";
        self.error_at(self.line, column, "this quote is not closed", help)
    }
}

/// The first character of a line that looks like a blank or like nothing, and the text before it.
fn split_unseen_character(line: &str) -> Option<(&str, char)> {
    let unseen = find_unseen_character(line)?;
    Some((line.split(unseen).next().unwrap_or_default(), unseen))
}

fn describe_unseen(unseen: char) -> String {
    let kind = if unseen.is_whitespace() { "only looks like a space" } else { "is invisible" };
    format!("found the character U+{:04X}, which {kind}", u32::from(unseen))
}

/// What to do with a character that [`describe_unseen`] describes.
pub(super) fn help_unseen(unseen: char) -> String {
    let code = u32::from(unseen);
    if unseen.is_whitespace() {
        format!("write a space in place of U+{code:04X}")
    } else {
        format!("delete the invisible character U+{code:04X}")
    }
}

/// The blanks and tabs at the start of a line.
fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The key and the value of a line, without its comment.
fn split_yaml_entry(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.trim().trim_start_matches("- ").split_once(": ")?;
    let value = value.split_once(" #").map_or(value, |(value, _)| value).trim();
    Some((key, value)).filter(|(_, value)| !value.is_empty())
}

fn quote_yaml_value(text: &str) -> String {
    if text.contains('\'') { quote_yaml(text) } else { format!("'{text}'") }
}
