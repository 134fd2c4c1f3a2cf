//! Quotes, and what a `$` or a backquote begins.

use super::lexer::{ARITHMETIC, End, Forbidden, Lexer, Result, VARIABLE, refuse, unclosed};
use super::{Form, Unit};

const NOT_POSIX: Forbidden = Forbidden::new(
    "in an expansion that is not POSIX and that some shells evaluate",
    "use `:-`, `:+`, `:?`, `#`, `##`, `%` or `%%`, or a program such as `cut` or `sed`",
);
const ASSIGNING: Forbidden = Forbidden::new(
    "in `${name:=...}` outside double quotes, where the shell splits the result",
    "put double quotes around the whole expansion",
);

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
        self.at = (self.at + 2).min(self.units.len());
        Ok(())
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
        match self.peek(1) {
            Some('(') if self.peek(2) == Some('(') => self.arithmetic(),
            Some('(') => {
                self.at += 2;
                self.substitution()
            }
            Some('{') => {
                let start = self.at;
                self.nested(|lexer| lexer.expansion(around))?;
                self.same_line(start)
            }
            Some('[') => Err(refuse(
                "$[",
                "`$[` is arithmetic to bash and plain text to other shells",
                "write `$((...))`",
            )),
            Some(quote @ ('\'' | '"')) if around == Around::Nothing => {
                let message = format!(
                    "`${quote}` is a quote of its own to bash and two characters to other shells"
                );
                Err(refuse(
                    &format!("${quote}"),
                    message,
                    "use plain quotes, and `printf` for special characters",
                ))
            }
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.at += 2;
                Ok(())
            }
            _ => {
                self.at += 1;
                Ok(())
            }
        }
    }

    /// Reads `$(( ... ))`.
    fn arithmetic(&mut self) -> Result<()> {
        let start = self.at;
        self.at += 3;
        self.forbidding(ARITHMETIC, |lexer| lexer.nested(Self::arithmetic_rest))?;
        self.same_line(start)
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
        if self.peek(0) == Some('#') && self.peek(1) != Some('}') {
            self.at += 1;
        }
        self.take_hole(Form::Bare, Some(VARIABLE))?;
        match self.peek(0) {
            Some(c) if c.is_ascii_digit() => self.skip_while(|c| c.is_ascii_digit()),
            Some(c) if "@*#?-$!".contains(c) => self.at += 1,
            _ => self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_'),
        }
        self.take_hole(Form::Bare, Some(VARIABLE))?;
        let colon = usize::from(self.peek(0) == Some(':'));
        match self.peek(colon) {
            Some('}') if colon == 0 => {
                self.at += 1;
                Ok(())
            }
            Some(operator @ ('-' | '=' | '?' | '+')) => {
                self.at += 1 + colon;
                match (around, operator) {
                    (Around::Nothing, '=') => {
                        self.forbidding(ASSIGNING, |lexer| lexer.bare_word(around))
                    }
                    (Around::Nothing, _) => self.bare_word(around),
                    _ => self.quoted_word(around),
                }
            }
            Some('#' | '%') if colon == 0 => {
                let doubled = self.peek(0) == self.peek(1);
                self.at += 1 + usize::from(doubled);
                self.bare_word(around)
            }
            _ => self.forbidding(NOT_POSIX, |lexer| lexer.bare_word(Around::Nothing)),
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
                Some(Unit::Char('\'')) if around != Around::Nothing => {
                    let message = "shells read a `'` in `${...}` inside double quotes differently";
                    return Err(refuse("'", message, "use double quotes there"));
                }
                Some(Unit::Char('\\' | '\'' | '"' | '$' | '`')) => self.quoting()?,
                Some(Unit::Char(_)) => self.at += 1,
            }
        }
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
                (Some(Unit::Char('\\')), Some(next @ Unit::Char('"')))
                    if around != Around::Nothing =>
                {
                    if around == Around::Heredoc {
                        let message =
                            "shells read `\\\"` in backquotes in a here-document differently";
                        return Err(refuse("\\\"", message, "use `$( )`, which nests plainly"));
                    }
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
        self.within(&inner, |commands| commands.nested(|commands| commands.commands(End::Input)))
            .map(|_| ())
    }
}
