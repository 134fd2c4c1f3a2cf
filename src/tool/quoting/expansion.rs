//! Quotes, and what a `$` or a backquote begins.

use super::forbidden::{ARITHMETIC, ASSIGNING, HEREDOC_PATTERN, NOT_POSIX, VARIABLE};
use super::lexer::{End, Lexer, Result, refuse, unclosed};
use super::{Form, Refusal, Unit};
use crate::tool::placeholder;

/// The quoting around an expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    Nothing,
    Quotes,
    Heredoc,
}

impl Lexer<'_> {
    /// Reads what begins here, outside quotes: an escape, a quote, an expansion or a substitution.
    pub(super) fn quoting(&mut self) -> Result<()> {
        match self.peek(0) {
            Some('\\') => self.backslash(),
            Some('\'') => self.single(),
            Some('"') => self.double(),
            Some('`') => self.backquotes(Around::Nothing),
            _ => self.dollar(Around::Nothing),
        }
    }

    /// Reads the body of a here-document whose delimiter is not quoted.
    pub(super) fn heredoc_body(&mut self) -> Result<()> {
        while let Some(unit) = self.units.get(self.at) {
            match unit {
                Unit::Char('"') => self.at += 1,
                unit => self.quoted_unit(*unit, Around::Heredoc)?,
            }
        }
        Ok(())
    }

    /// Reads one unit of a text that double quotes or a here-document enclose.
    fn quoted_unit(&mut self, unit: Unit, around: Around) -> Result<()> {
        match unit {
            Unit::Hole(_) => self.take_hole(Form::Double, None),
            Unit::Char('\\') => self.backslash(),
            Unit::Char('$') => self.dollar(around),
            Unit::Char('`') => self.backquotes(around),
            Unit::Char('\'') if self.braces > 0 => Err(odd_single()),
            Unit::Char(_) => {
                self.at += 1;
                Ok(())
            }
        }
    }

    /// Skips a backslash and what it escapes.
    fn backslash(&mut self) -> Result<()> {
        if let Some(hole) = self.hole_ahead(1) {
            let help = "use `$( )` instead of backquotes; it nests plainly";
            return Err(refuse(
                &hole.source(),
                "a backslash stands directly before a placeholder",
                help,
            ));
        }
        let start = self.at;
        self.at = (self.at + 2).min(self.units.len());
        self.opens_nothing(start + 1, self.at + 1)
    }

    /// Refuses a `$(` or `${` that is plain text between `start` and `end` inside a command substitution: bash looks for
    /// its end all the same when certain quotes stand around or before the substitution.
    pub(super) fn opens_nothing(&self, start: usize, end: usize) -> Result<()> {
        let text = &self.units[start..end.min(self.units.len())];
        let opens = |pair: &[Unit]| matches!(pair, [Unit::Char('$'), Unit::Char('(' | '{')]);
        match self.substituted && text.windows(2).any(opens) {
            true => {
                let message = "shells read a `$(` or `${` that is plain text inside a command substitution differently";
                Err(refuse("$", message, "put it into a variable before the command"))
            }
            false => Ok(()),
        }
    }

    fn single(&mut self) -> Result<()> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.units.get(self.at) {
                None => return Err(unclosed("`'`")),
                Some(Unit::Hole(_)) => self.take_hole(Form::Single, None)?,
                Some(Unit::Char('\'')) => {
                    self.at += 1;
                    self.opens_nothing(start, self.at)?;
                    return self.same_line(start);
                }
                Some(Unit::Char(_)) => self.at += 1,
            }
        }
    }

    fn double(&mut self) -> Result<()> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.units.get(self.at) {
                None => return Err(unclosed("`\"`")),
                Some(Unit::Char('"')) => {
                    self.at += 1;
                    return self.same_line(start);
                }
                Some(unit) => self.quoted_unit(*unit, Around::Quotes)?,
            }
        }
    }

    /// Reads what a `$` begins.
    fn dollar(&mut self, around: Around) -> Result<()> {
        if let Some(hole) = self.hole_ahead(1) {
            let message = format!("a `$` directly before {} would join it", hole.source());
            return Err(refuse(
                &format!("${}", hole.source()),
                message,
                "write `\\$` for a dollar sign",
            ));
        }
        if self.next_is("$\\\n") {
            let message = "a backslash at the end of a line joins the `$` to the next line";
            return Err(refuse("$\\", message, "write them on one line"));
        }
        match self.peek(1) {
            Some('(') if self.peek(2) == Some('(') => self.arithmetic(),
            Some('(') => {
                self.at += 2;
                let outer = std::mem::replace(&mut self.substituted, true);
                self.substitution()?;
                self.substituted = outer;
                Ok(())
            }
            Some('{') => {
                let start = self.at;
                self.braces += 1;
                self.nested(|lexer| lexer.expansion(around))?;
                self.braces -= 1;
                self.same_line(start)
            }
            Some('[') => Err(odd_dollar("$[", "write `$((...))`")),
            Some('\'') if around == Around::Nothing => {
                Err(odd_dollar("$'", "use plain quotes, and `printf`"))
            }
            Some('"') if around == Around::Nothing => Err(odd_dollar("$\"", "use plain quotes")),
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.at += 2;
                Ok(())
            }
            _ => {
                self.at += 1;
                self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
                Ok(())
            }
        }
    }

    /// Reads `$(( ... ))`.
    fn arithmetic(&mut self) -> Result<()> {
        let start = self.at;
        self.at += 3;
        self.forbidding(ARITHMETIC, |lexer| lexer.nested(Self::arithmetic_rest))?;
        self.computes(start)?;
        self.same_line(start)
    }

    /// Notes the names in the arithmetic that began at `start`. Positional parameters are values of the call, or of a
    /// call of a function, which may be the same.
    fn computes(&mut self, start: usize) -> Result<()> {
        let text: String = self.units[start..self.at]
            .iter()
            .map(|unit| if let Unit::Char(c) = unit { *c } else { ' ' })
            .collect();
        let positional = |c: char| c.is_ascii_digit() || c == '@' || c == '*';
        if text
            .match_indices('$')
            .any(|(at, _)| text[at + 1..].trim_start_matches('{').starts_with(positional))
        {
            let message =
                "a positional parameter stands in arithmetic, where bash evaluates the value";
            return Err(refuse(
                "$((",
                message,
                "use a program that takes numbers as arguments, such as `expr`",
            ));
        }
        let names = text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|name| placeholder::is_name(name));
        self.state.computed.extend(names.map(str::to_owned));
        Ok(())
    }

    fn arithmetic_rest(&mut self) -> Result<()> {
        let mut open = 0;
        loop {
            match self.units.get(self.at) {
                None => return Err(unclosed("`$((`")),
                Some(Unit::Char('\'' | '"')) => {
                    return Err(refuse(
                        "$((",
                        "shells read quotes in arithmetic differently",
                        "take them out",
                    ));
                }
                Some(Unit::Char(')')) if open == 0 => {
                    if self.skip_if("))") {
                        return Ok(());
                    }
                    let help = "write `$( (` with a blank for a subshell in a command substitution";
                    return Err(refuse(
                        "$((",
                        "`$((` begins arithmetic, and this does not end in `))`",
                        help,
                    ));
                }
                Some(unit) => {
                    open +=
                        i32::from(*unit == Unit::Char('(')) - i32::from(*unit == Unit::Char(')'));
                    self.quoted_unit(*unit, Around::Quotes)?;
                }
            }
        }
    }

    /// Reads `${ ... }`.
    fn expansion(&mut self, around: Around) -> Result<()> {
        self.at += 2;
        let length = self.peek(0) == Some('#') && self.peek(1) != Some('}');
        self.at += usize::from(length);
        let start = self.at;
        self.take_hole(Form::Bare, Some(VARIABLE))?;
        match self.peek(0) {
            Some(c) if c.is_ascii_digit() => self.skip_while(|c| c.is_ascii_digit()),
            Some(c) if "@*#?-$!".contains(c) => self.at += 1,
            _ => self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_'),
        }
        let name: String = self.units[start..self.at].iter().filter_map(Unit::char).collect();
        self.take_hole(Form::Bare, Some(VARIABLE))?;
        let colon = usize::from(self.peek(0) == Some(':'));
        match self.peek(colon) {
            Some('}') if colon == 0 => {
                self.at += 1;
                Ok(())
            }
            _ if length => Err(refuse(
                "${#",
                "shells read this `${#...}` differently",
                "write `${#name}`, and nothing else in it",
            )),
            Some(operator @ ('-' | '=' | '?' | '+')) => {
                self.at += 1 + colon;
                let taken = self.state.taken;
                match (around, operator) {
                    (Around::Nothing, '=') => {
                        self.forbidding(ASSIGNING, |lexer| lexer.bare_word(around))?
                    }
                    (Around::Nothing, _) => self.bare_word(around)?,
                    _ => self.quoted_word(around)?,
                }
                match operator == '=' && self.state.taken > taken {
                    true => self.assigned(&name),
                    false => Ok(()),
                }
            }
            Some('#' | '%') if colon == 0 => {
                let doubled = self.peek(0) == self.peek(1);
                self.at += 1 + usize::from(doubled);
                match self.in_heredoc {
                    true => self.forbidding(HEREDOC_PATTERN, |lexer| lexer.bare_word(around)),
                    false => self.bare_word(around),
                }
            }
            _ => self.odd_expansion(),
        }
    }

    /// Reads the rest of an expansion that not every shell has. Only bash knows where one with quotes in it ends.
    fn odd_expansion(&mut self) -> Result<()> {
        let start = self.at;
        self.state.saw_odd("${");
        loop {
            match self.units.get(self.at) {
                None => return Err(unclosed("`${`")),
                Some(Unit::Hole(_)) => self.take_hole(Form::Bare, Some(NOT_POSIX))?,
                Some(Unit::Char('}')) => {
                    self.at += 1;
                    return self.computes(start);
                }
                Some(Unit::Char('\\' | '\'' | '"' | '$' | '`' | '{' | '\n' | '(')) => {
                    let help = "use `:-`, `:+`, `:?`, `#`, `##`, `%` or `%%`, or a program such as `cut` or `sed`";
                    return Err(refuse(
                        "${",
                        "shells read this expansion, which is not POSIX, differently",
                        help,
                    ));
                }
                Some(Unit::Char(_)) => self.at += 1,
            }
        }
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&wanted) {
            self.at += 1;
        }
    }

    /// Reads the word of `:-`, `:=`, `:?` or `:+` inside quotes or a here-document, up to and including the `}`.
    fn quoted_word(&mut self, around: Around) -> Result<()> {
        loop {
            match self.units.get(self.at) {
                None => return Err(unclosed("`${`")),
                Some(Unit::Char('}')) => {
                    self.at += 1;
                    return Ok(());
                }
                Some(Unit::Char('"')) if self.in_heredoc || self.braces > 1 => {
                    let message = "shells read a `\"` in `${...}` in a here-document, or in another quoted `${...}`, differently";
                    return Err(refuse("\"", message, "take it out; nothing is split there"));
                }
                Some(Unit::Char('"')) => self.double()?,
                Some(unit) => self.quoted_unit(*unit, around)?,
            }
        }
    }

    /// Reads the word of an expansion outside quotes, or the pattern of `#`, `##`, `%`, `%%` (which quotes around the
    /// whole expansion do not reach), up to and including the `}`.
    fn bare_word(&mut self, around: Around) -> Result<()> {
        loop {
            match self.units.get(self.at) {
                None => return Err(unclosed("`${`")),
                Some(Unit::Hole(_)) => self.take_hole(Form::Bare, None)?,
                Some(Unit::Char('}')) => {
                    self.at += 1;
                    return Ok(());
                }
                Some(Unit::Char('\'')) if around != Around::Nothing || self.braces > 1 => {
                    return Err(odd_single());
                }
                Some(Unit::Char('\\' | '\'' | '"' | '$' | '`')) => self.quoting()?,
                Some(Unit::Char(_)) => self.at += 1,
            }
        }
    }

    /// Refuses what shells read differently in backquotes that began at `start` inside double quotes or a
    /// here-document. `inner` is their text with its backslashes resolved.
    fn backquotes_are_plain(&self, start: usize, inner: &[Unit]) -> Result<()> {
        let quoting = |unit: &Unit| matches!(unit, Unit::Char('\\' | '\''));
        if self.braces > 0 && self.units[start..self.at].iter().any(quoting) {
            let message =
                "shells read a `\\` or `'` in backquotes inside a quoted `${...}` differently";
            return Err(refuse("`", message, "use `$( )`, which nests plainly"));
        }
        let nests = |pair: &[Unit]| match pair {
            [Unit::Char('$'), Unit::Char('(' | '{')] => true,
            [first, _] => *first == Unit::Char('`'),
            _ => false,
        };
        let quotes = |unit: &Unit| matches!(unit, Unit::Char('\\' | '\'' | '"'));
        if inner.iter().any(quotes) && inner.windows(2).any(nests) {
            let message = "shells read quotes beside a substitution in backquotes inside double quotes differently";
            return Err(refuse("`", message, "use `$( )`, which nests plainly"));
        }
        let escaped = |pair: &[Unit]| matches!(pair, [Unit::Char('\\'), Unit::Char('\'' | '"')]);
        if inner.windows(2).any(escaped) {
            let message =
                "shells read an escaped quote in backquotes inside double quotes differently";
            return Err(refuse("`", message, "use `$( )`, which nests plainly"));
        }
        Ok(())
    }

    /// Reads a backquoted command: its backslashes are resolved first, then it is read as commands.
    fn backquotes(&mut self, around: Around) -> Result<()> {
        let start = self.at;
        self.at += 1;
        let mut inner = Vec::new();
        loop {
            match (self.units.get(self.at), self.units.get(self.at + 1)) {
                (None, _) => return Err(unclosed("`` ` ``")),
                (Some(Unit::Char('`')), _) => break,
                (Some(Unit::Char('\\')), Some(next @ Unit::Char('`' | '\\' | '$'))) => {
                    inner.push(*next);
                    self.at += 2;
                }
                (Some(Unit::Char('\\')), Some(Unit::Char('"'))) if around == Around::Heredoc => {
                    let message = "shells read `\\\"` in backquotes in a here-document differently";
                    return Err(refuse("\\\"", message, "use `$( )`, which nests plainly"));
                }
                (Some(Unit::Char('\\')), Some(next @ Unit::Char('"')))
                    if around != Around::Nothing =>
                {
                    inner.push(*next);
                    self.at += 2;
                }
                (Some(unit), _) => {
                    inner.push(*unit);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        self.same_line(start)?;
        if around != Around::Nothing {
            self.backquotes_are_plain(start, &inner)?;
        }
        self.isolated(|lexer| {
            lexer.within(&inner, |commands| {
                commands.substituted = true;
                commands.nested(|commands| commands.commands(End::Input)).map(|_| ())
            })
        })
    }
}

fn odd_dollar(text: &str, help: &str) -> Refusal {
    let message =
        format!("`{text}` begins arithmetic or a quote to bash and is plain text to other shells");
    refuse(text, message, help)
}

fn odd_single() -> Refusal {
    let message =
        "shells read a `'` in `${...}` inside double quotes or another `${...}` differently";
    refuse("'", message, "put it into a variable first")
}
