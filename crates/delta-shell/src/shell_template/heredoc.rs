//! Here-documents: their delimiters and their bodies.

use super::forbidden_place::{HEREDOC_DELIMITER, QUOTED_HEREDOC};
use super::shell_parser::{ParseResult, PendingHeredoc, ShellParser, is_metacharacter};
use super::{QuotingContext, TemplateError, TemplateUnit};
use std::ops::Range;

impl ShellParser<'_> {
    /// Reads the delimiter of a here-document after its operator. The body follows after the next newline.
    pub(super) fn read_heredoc_delimiter(
        &mut self,
        strip_tabs: bool,
        command_index: Option<usize>,
    ) -> ParseResult<()> {
        if self.next_is("\\\n") {
            return Err(delimiter_error(""));
        }
        self.skip_blanks()?;
        let mut delimiter = String::new();
        let mut is_quoted = false;
        let start = self.position;
        loop {
            self.take_placeholder(QuotingContext::Unquoted, Some(HEREDOC_DELIMITER))?;
            match self.peek(0) {
                Some(quote @ ('\'' | '"')) => {
                    is_quoted = true;
                    self.read_quoted_delimiter(quote, &mut delimiter)?;
                }
                Some('\\') => {
                    is_quoted = true;
                    let c = self.peek(1).filter(|c| c.is_ascii() && *c != '\n');
                    delimiter.push(c.ok_or_else(|| delimiter_error(&delimiter))?);
                    self.position += 2;
                }
                Some(c)
                    if c.is_ascii_alphanumeric()
                        || matches!(c, '_' | '-' | '.' | '!' | '%' | '+') =>
                {
                    delimiter.push(c);
                    self.position += 1;
                }
                Some(c) if !is_metacharacter(c) => return Err(delimiter_error(&delimiter)),
                _ if self.position == start => return Err(delimiter_error(&delimiter)),
                _ => break,
            }
        }
        self.pending_heredocs.push(PendingHeredoc {
            delimiter,
            is_quoted,
            strip_tabs,
            positional_change: self.state.positional_change,
            command_index,
        });
        Ok(())
    }

    /// Reads the part of a delimiter between two `quote` characters.
    fn read_quoted_delimiter(&mut self, quote: char, delimiter: &mut String) -> ParseResult<()> {
        self.position += 1;
        while self.peek(0) != Some(quote) {
            self.take_placeholder(QuotingContext::Unquoted, Some(HEREDOC_DELIMITER))?;
            let c = self.peek(0).filter(|c| c.is_ascii() && !matches!(c, '\n' | '\\' | '$' | '`'));
            delimiter.push(c.ok_or_else(|| delimiter_error(delimiter))?);
            self.position += 1;
        }
        self.position += 1;
        Ok(())
    }

    /// Reads the bodies of the pending here-documents, after a newline.
    pub(super) fn read_heredoc_bodies(&mut self) -> ParseResult<()> {
        for heredoc in std::mem::take(&mut self.pending_heredocs) {
            let body = &self.units[self.find_heredoc_body(&heredoc)?];
            if let Some(index) = heredoc.command_index {
                let placeholders = body.iter().filter_map(|unit| match unit {
                    TemplateUnit::Placeholder(index) => Some(*index),
                    TemplateUnit::Char(_) => None,
                });
                self.state.outline.commands[index].heredoc_placeholders.extend(placeholders);
            }
            let outer_change = self.state.positional_change;
            self.state.positional_change = heredoc.positional_change.or(outer_change);
            self.read_inner(body, |parser| {
                parser.in_heredoc = true;
                if heredoc.is_quoted {
                    parser.read_quoted_heredoc_body()
                } else {
                    parser.read_heredoc_body()
                }
            })?;
            self.state.positional_change = outer_change;
        }
        Ok(())
    }

    /// Finds the end of the body that begins at the position, and skips the body with its delimiter.
    fn find_heredoc_body(&mut self, heredoc: &PendingHeredoc) -> ParseResult<Range<usize>> {
        let start = self.position;
        let delimiter: Vec<TemplateUnit> =
            heredoc.delimiter.chars().map(TemplateUnit::Char).collect();
        // The preceding lines that end with a backslash, which some shells join with the current line.
        let mut joined_lines: Option<Vec<TemplateUnit>> = None;
        while self.position < self.units.len() {
            let line_start = self.position;
            let rest = &self.units[line_start..];
            let length = rest
                .iter()
                .position(|unit| *unit == TemplateUnit::Char('\n'))
                .unwrap_or(rest.len());
            let line = &rest[..length];
            self.position = (line_start + length + 1).min(self.units.len());
            let is_delimiter = heredoc.strip_leading_tabs(line) == delimiter;
            if is_delimiter && joined_lines.is_none() {
                return Ok(start..line_start);
            }
            let backslashes =
                line.iter().rev().take_while(|unit| **unit == TemplateUnit::Char('\\')).count();
            if !heredoc.is_quoted && backslashes % 2 == 1 {
                joined_lines.get_or_insert_default().extend(&line[..length - 1]);
                continue;
            }
            let Some(mut joined) = joined_lines.take() else { continue };
            joined.extend(line);
            if is_delimiter || heredoc.strip_leading_tabs(&joined) == delimiter {
                let message = format!(
                    "a backslash joins the delimiter `{}` to the previous line",
                    heredoc.delimiter
                );
                let help = "remove the backslash at the end of the line";
                return Err(TemplateError::new(&heredoc.delimiter, message, help));
            }
        }
        Err(TemplateError::new(
            &format!("<<{}", heredoc.delimiter),
            format!("the here-document `{}` does not end", heredoc.delimiter),
            "write its delimiter on a line of its own",
        ))
    }

    fn read_quoted_heredoc_body(&mut self) -> ParseResult<()> {
        while self.position < self.units.len() {
            self.take_placeholder(QuotingContext::DoubleQuoted, Some(QUOTED_HEREDOC))?;
            self.position += 1;
        }
        self.check_literal_text(0, self.position)
    }

    /// Rejects a pending here-document at the end of `construct`.
    pub(super) fn check_no_pending_heredoc(&self, construct: &str) -> ParseResult<()> {
        let Some(heredoc) = self.pending_heredocs.first() else { return Ok(()) };
        let delimiter = &heredoc.delimiter;
        Err(TemplateError::new(
            &format!("<<{delimiter}"),
            format!("the here-document `{delimiter}` has no body before the end of {construct}"),
            "begin its body on the next line and end it with the delimiter on a line of its own",
        ))
    }
}

impl PendingHeredoc {
    /// The line without the leading tabs that `<<-` removes.
    fn strip_leading_tabs<'a>(&self, line: &'a [TemplateUnit]) -> &'a [TemplateUnit] {
        if !self.strip_tabs {
            return line;
        }
        let tabs = line.iter().take_while(|unit| **unit == TemplateUnit::Char('\t')).count();
        &line[tabs..]
    }
}

fn delimiter_error(delimiter: &str) -> TemplateError {
    TemplateError::new(
        &format!("<<{delimiter}"),
        "shells read the delimiter of this here-document differently",
        "write a plain word, such as `EOF`",
    )
}
