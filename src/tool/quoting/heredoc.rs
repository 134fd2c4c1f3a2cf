//! Here-documents: their delimiters, where their bodies stand, and what is in them.

use super::forbidden::{DELIMITER, QUOTED_HEREDOC};
use super::lexer::{Heredoc, Lexer, Result, is_metacharacter, refuse};
use super::{Form, Refusal, Unit};

impl Lexer<'_> {
    /// Reads the delimiter of a here-document; its body follows after the next newline.
    pub(super) fn heredoc(&mut self, strip: bool, command: Option<usize>) -> Result<()> {
        if self.next_is("\\\n") {
            return Err(odd_delimiter(""));
        }
        self.blanks()?;
        let (mut delimiter, mut quoted, start) = (String::new(), false, self.at);
        loop {
            self.take_hole(Form::Bare, Some(DELIMITER))?;
            match self.peek(0) {
                Some(quote @ ('\'' | '"')) => {
                    quoted = true;
                    self.at += 1;
                    while self.peek(0) != Some(quote) {
                        self.take_hole(Form::Bare, Some(DELIMITER))?;
                        let c = self
                            .peek(0)
                            .filter(|c| c.is_ascii() && !matches!(c, '\n' | '\\' | '$' | '`'));
                        delimiter.push(c.ok_or_else(|| odd_delimiter(&delimiter))?);
                        self.at += 1;
                    }
                    self.at += 1;
                }
                Some('\\') => {
                    quoted = true;
                    let c = self.peek(1).filter(|c| c.is_ascii() && *c != '\n');
                    delimiter.push(c.ok_or_else(|| odd_delimiter(&delimiter))?);
                    self.at += 2;
                }
                Some(c)
                    if c.is_ascii_alphanumeric()
                        || matches!(c, '_' | '-' | '.' | '!' | '%' | '+') =>
                {
                    delimiter.push(c);
                    self.at += 1;
                }
                Some(c) if !is_metacharacter(c) => return Err(odd_delimiter(&delimiter)),
                _ if self.at == start => return Err(odd_delimiter(&delimiter)),
                _ => break,
            }
        }
        self.heredocs.push(Heredoc { delimiter, quoted, strip, moved: self.state.moved, command });
        Ok(())
    }

    /// Reads the bodies of the pending here-documents; a newline has just been taken.
    pub(super) fn heredoc_bodies(&mut self) -> Result<()> {
        for heredoc in std::mem::take(&mut self.heredocs) {
            let (start, end) = self.heredoc_range(&heredoc)?;
            let body = &self.units[start..end];
            let holes = body.iter().filter_map(|unit| match unit {
                Unit::Hole(number) => Some(*number),
                Unit::Char(_) => None,
            });
            if let Some(command) = heredoc.command {
                self.state.outline.commands[command].input.extend(holes);
            }
            let moved = self.state.moved;
            self.state.moved = heredoc.moved.or(moved);
            self.within(body, |body| {
                body.in_heredoc = true;
                if heredoc.quoted { body.quoted_body() } else { body.heredoc_body() }
            })?;
            self.state.moved = moved;
        }
        Ok(())
    }

    /// Where the body stands that begins here; goes on behind its delimiter.
    fn heredoc_range(&mut self, heredoc: &Heredoc) -> Result<(usize, usize)> {
        let start = self.at;
        let delimiter: Vec<Unit> = heredoc.delimiter.chars().map(Unit::Char).collect();
        // The lines before this one that end in a backslash and so are one line with it to some shells.
        let mut joined: Option<Vec<Unit>> = None;
        while self.at < self.units.len() {
            let line_start = self.at;
            let rest = &self.units[line_start..];
            let length =
                rest.iter().position(|unit| *unit == Unit::Char('\n')).unwrap_or(rest.len());
            let line = &rest[..length];
            self.at = (line_start + length + 1).min(self.units.len());
            let tabs =
                line.iter().take_while(|unit| heredoc.strip && **unit == Unit::Char('\t')).count();
            let ends = line[tabs..] == delimiter;
            if ends && joined.is_none() {
                return Ok((start, line_start));
            }
            let backslashes =
                line.iter().rev().take_while(|unit| **unit == Unit::Char('\\')).count();
            let continued = !heredoc.quoted && backslashes % 2 == 1;
            if continued {
                joined.get_or_insert_default().extend(&line[..length - 1]);
                continue;
            }
            let Some(mut joined) = joined.take() else { continue };
            joined.extend(line);
            let tabs = joined
                .iter()
                .take_while(|unit| heredoc.strip && **unit == Unit::Char('\t'))
                .count();
            if ends || joined[tabs..] == delimiter {
                let message = format!(
                    "a backslash joins the delimiter `{}` to the line before",
                    heredoc.delimiter
                );
                return Err(refuse(
                    &heredoc.delimiter,
                    message,
                    "take away the backslash before the line end",
                ));
            }
        }
        let message = format!("the here-document `{}` does not end", heredoc.delimiter);
        Err(refuse(
            &format!("<<{}", heredoc.delimiter),
            message,
            "write its delimiter on a line of its own",
        ))
    }

    fn quoted_body(&mut self) -> Result<()> {
        while self.at < self.units.len() {
            self.take_hole(Form::Double, Some(QUOTED_HEREDOC))?;
            self.at += 1;
        }
        self.opens_nothing(0, self.at)
    }

    pub(super) fn no_pending(&self, what: &str) -> Result<()> {
        match self.heredocs.first() {
            None => Ok(()),
            Some(heredoc) => Err(refuse(
                &format!("<<{}", heredoc.delimiter),
                format!(
                    "the here-document `{}` has no body before the end of {what}",
                    heredoc.delimiter
                ),
                "begin its body on the next line and end it with the delimiter on a line of its own",
            )),
        }
    }
}

fn odd_delimiter(delimiter: &str) -> Refusal {
    let message = "the delimiter of this here-document is read differently by different shells";
    refuse(&format!("<<{delimiter}"), message, "write a plain word, such as `EOF`")
}
