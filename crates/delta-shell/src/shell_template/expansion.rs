//! Quotes, and the expansions that `$` and backquotes begin.

use super::forbidden_place::{
    ARITHMETIC, HEREDOC_PATTERN, NON_POSIX_EXPANSION, UNQUOTED_ASSIGNMENT, VARIABLE_NAME,
};
use super::shell_parser::{ListEnd, ParseResult, ShellParser, unclosed_error};
use super::{QuotingContext, TemplateError, TemplateUnit};
use delta_base::engine_variables::is_identifier;

const NUMERIC_PROGRAM_HELP: &str = "use a program that takes numbers as arguments, such as `expr`";
const DOLLAR_PARENTHESES_HELP: &str = "use `$( )`, which has no escapes of its own";

/// The quotes around an expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enclosure {
    None,
    DoubleQuotes,
    Heredoc,
}

impl ShellParser<'_> {
    /// Reads an escape, a quoted text, an expansion or a substitution outside quotes.
    pub(super) fn read_quoting(&mut self) -> ParseResult<()> {
        match self.peek(0) {
            Some('\\') => self.read_backslash(),
            Some('\'') => self.read_single_quotes(),
            Some('"') => self.read_double_quotes(),
            Some('`') => self.read_backquotes(Enclosure::None),
            _ => self.read_dollar(Enclosure::None),
        }
    }

    /// Reads the body of a here-document whose delimiter is not quoted.
    pub(super) fn read_heredoc_body(&mut self) -> ParseResult<()> {
        while let Some(unit) = self.units.get(self.position) {
            match unit {
                TemplateUnit::Char('"') => self.position += 1,
                unit => self.read_quoted_unit(*unit, Enclosure::Heredoc)?,
            }
        }
        Ok(())
    }

    /// Reads `unit`, which is next, in double quotes or in a here-document.
    fn read_quoted_unit(&mut self, unit: TemplateUnit, enclosure: Enclosure) -> ParseResult<()> {
        match unit {
            TemplateUnit::Placeholder(_) => {
                self.take_placeholder(QuotingContext::DoubleQuoted, None)
            }
            TemplateUnit::Char('\\') => self.read_backslash(),
            TemplateUnit::Char('$') => self.read_dollar(enclosure),
            TemplateUnit::Char('`') => self.read_backquotes(enclosure),
            TemplateUnit::Char('\'') if self.expansion_depth > 0 => Err(single_quote_error()),
            TemplateUnit::Char(_) => {
                self.position += 1;
                Ok(())
            }
        }
    }

    /// Reads a backslash with the character that it escapes.
    fn read_backslash(&mut self) -> ParseResult<()> {
        if let Some(placeholder) = self.peek_placeholder(1) {
            return Err(TemplateError::new(
                &placeholder.to_source(),
                "a backslash is directly before a placeholder",
                "use `$( )` instead of backquotes; it has no escapes of its own",
            ));
        }
        let start = self.position;
        self.position = (self.position + 2).min(self.units.len());
        self.check_literal_text(start + 1, self.position + 1)
    }

    /// Rejects a literal `$(` or `${` between `start` and `end` inside a command substitution. Bash searches for its end
    /// nevertheless, when certain quotes are around or before the substitution.
    pub(super) fn check_literal_text(&self, start: usize, end: usize) -> ParseResult<()> {
        if !self.in_substitution {
            return Ok(());
        }
        let text = &self.units[start..end.min(self.units.len())];
        if !text.windows(2).any(is_expansion_start) {
            return Ok(());
        }
        let message =
            "shells read a literal `$(` or `${` inside a command substitution differently";
        Err(TemplateError::new("$", message, "assign it to a variable before the command"))
    }

    fn read_single_quotes(&mut self) -> ParseResult<()> {
        let start = self.position;
        self.position += 1;
        loop {
            match self.units.get(self.position) {
                None => return Err(unclosed_error("`'`")),
                Some(TemplateUnit::Placeholder(_)) => {
                    self.take_placeholder(QuotingContext::SingleQuoted, None)?
                }
                Some(TemplateUnit::Char('\'')) => {
                    self.position += 1;
                    self.check_literal_text(start, self.position)?;
                    return self.check_same_line(start);
                }
                Some(TemplateUnit::Char(_)) => self.position += 1,
            }
        }
    }

    fn read_double_quotes(&mut self) -> ParseResult<()> {
        let start = self.position;
        self.position += 1;
        loop {
            match self.units.get(self.position) {
                None => return Err(unclosed_error("`\"`")),
                Some(TemplateUnit::Char('"')) => {
                    self.position += 1;
                    return self.check_same_line(start);
                }
                Some(unit) => self.read_quoted_unit(*unit, Enclosure::DoubleQuotes)?,
            }
        }
    }

    /// Reads a `$` with its expansion or substitution.
    fn read_dollar(&mut self, enclosure: Enclosure) -> ParseResult<()> {
        if let Some(placeholder) = self.peek_placeholder(1) {
            let source = placeholder.to_source();
            return Err(TemplateError::new(
                &format!("${source}"),
                format!("a `$` directly before {source} would become part of its expansion"),
                "write `\\$` for a dollar sign",
            ));
        }
        if self.next_is("$\\\n") {
            let message = "a backslash at the end of a line joins the `$` to the next line";
            return Err(TemplateError::new("$\\", message, "write them on one line"));
        }
        match self.peek(1) {
            Some('(') if self.peek(2) == Some('(') => self.read_arithmetic(),
            Some('(') => {
                self.position += 2;
                let outer = std::mem::replace(&mut self.in_substitution, true);
                self.read_subshell()?;
                self.in_substitution = outer;
                Ok(())
            }
            Some('{') => {
                let start = self.position;
                self.expansion_depth += 1;
                self.with_nesting(|parser| parser.read_parameter_expansion(enclosure))?;
                self.expansion_depth -= 1;
                self.check_same_line(start)
            }
            Some('[') => Err(bash_dollar_error("$[", "write `$((...))`")),
            Some('\'') if enclosure == Enclosure::None => {
                Err(bash_dollar_error("$'", "use plain quotes, and `printf`"))
            }
            Some('"') if enclosure == Enclosure::None => {
                Err(bash_dollar_error("$\"", "use plain quotes"))
            }
            Some(c) if c.is_ascii_digit() || is_special_parameter(c) => {
                self.position += 2;
                Ok(())
            }
            _ => {
                self.position += 1;
                self.skip_while(is_name_character);
                Ok(())
            }
        }
    }

    /// Reads `$(( ... ))`.
    fn read_arithmetic(&mut self) -> ParseResult<()> {
        let start = self.position;
        self.position += "$((".len();
        self.with_forbidden(ARITHMETIC, |parser| parser.with_nesting(Self::read_arithmetic_body))?;
        self.record_arithmetic_names(start)?;
        self.check_same_line(start)
    }

    /// Records the names in the arithmetic since `start`, and rejects positional parameters in it: they are values of
    /// the call, or arguments of a function, which may be values of the call.
    fn record_arithmetic_names(&mut self, start: usize) -> ParseResult<()> {
        let text: String = self.units[start..self.position]
            .iter()
            .map(|unit| unit.as_char().unwrap_or(' '))
            .collect();
        let has_positional = text.match_indices('$').any(|(at, _)| {
            let name = text[at + 1..].trim_start_matches('{');
            name.starts_with(|c: char| c.is_ascii_digit() || c == '@' || c == '*')
        });
        if has_positional {
            let message = "a positional parameter is in arithmetic, where bash evaluates its value";
            return Err(TemplateError::new("$((", message, NUMERIC_PROGRAM_HELP));
        }
        let names = text.split(|c: char| !is_name_character(c)).filter(|name| is_identifier(name));
        self.state.arithmetic_names.extend(names.map(str::to_owned));
        Ok(())
    }

    fn read_arithmetic_body(&mut self) -> ParseResult<()> {
        let mut open_parentheses = 0;
        loop {
            match self.units.get(self.position) {
                None => return Err(unclosed_error("`$((`")),
                Some(TemplateUnit::Char('\'' | '"')) => {
                    let message = "shells read quotes in arithmetic differently";
                    return Err(TemplateError::new("$((", message, "remove them"));
                }
                Some(TemplateUnit::Char(')')) if open_parentheses == 0 => {
                    if self.skip_if("))") {
                        return Ok(());
                    }
                    return Err(TemplateError::new(
                        "$((",
                        "`$((` begins arithmetic, and this does not end with `))`",
                        "write `$( (` with a blank for a subshell in a command substitution",
                    ));
                }
                Some(unit) => {
                    match unit {
                        TemplateUnit::Char('(') => open_parentheses += 1,
                        TemplateUnit::Char(')') => open_parentheses -= 1,
                        _ => {}
                    }
                    self.read_quoted_unit(*unit, Enclosure::DoubleQuotes)?;
                }
            }
        }
    }

    /// Reads `${ ... }`.
    fn read_parameter_expansion(&mut self, enclosure: Enclosure) -> ParseResult<()> {
        self.position += "${".len();
        let is_length = self.peek(0) == Some('#') && self.peek(1) != Some('}');
        self.position += usize::from(is_length);
        let name = self.read_parameter_name()?;
        let colon = usize::from(self.peek(0) == Some(':'));
        match self.peek(colon) {
            Some('}') if colon == 0 => {
                self.position += 1;
                Ok(())
            }
            _ if is_length => Err(TemplateError::new(
                "${#",
                "shells read this `${#...}` differently",
                "write `${#name}`, and nothing else in it",
            )),
            Some(operator @ ('-' | '=' | '?' | '+')) => {
                self.position += 1 + colon;
                self.read_default_word(&name, operator, enclosure)
            }
            Some('#' | '%') if colon == 0 => {
                let is_doubled = self.peek(0) == self.peek(1);
                self.position += 1 + usize::from(is_doubled);
                if self.in_heredoc {
                    self.with_forbidden(HEREDOC_PATTERN, |parser| {
                        parser.read_unquoted_expansion_word(enclosure)
                    })
                } else {
                    self.read_unquoted_expansion_word(enclosure)
                }
            }
            _ => self.read_non_posix_expansion(),
        }
    }

    /// Reads the parameter of a `${...}`. Returns its name.
    fn read_parameter_name(&mut self) -> ParseResult<String> {
        let start = self.position;
        self.take_placeholder(QuotingContext::Unquoted, Some(VARIABLE_NAME))?;
        match self.peek(0) {
            Some(c) if c.is_ascii_digit() => self.skip_while(|c| c.is_ascii_digit()),
            Some(c) if is_special_parameter(c) => self.position += 1,
            _ => self.skip_while(is_name_character),
        }
        let name =
            self.units[start..self.position].iter().filter_map(TemplateUnit::as_char).collect();
        self.take_placeholder(QuotingContext::Unquoted, Some(VARIABLE_NAME))?;
        Ok(name)
    }

    /// Reads the word after the operator `:-`, `:=`, `:?` or `:+` of the variable `name`, with the `}`.
    fn read_default_word(
        &mut self,
        name: &str,
        operator: char,
        enclosure: Enclosure,
    ) -> ParseResult<()> {
        let parameters_before = self.state.parameter_count;
        if enclosure != Enclosure::None {
            self.read_quoted_expansion_word(enclosure)?;
        } else if operator == '=' {
            self.with_forbidden(UNQUOTED_ASSIGNMENT, |parser| {
                parser.read_unquoted_expansion_word(enclosure)
            })?;
        } else {
            self.read_unquoted_expansion_word(enclosure)?;
        }
        if operator == '=' && self.state.parameter_count > parameters_before {
            self.record_assignment(name)?;
        }
        Ok(())
    }

    /// Reads the rest of an expansion that not every shell supports. Only bash knows where it ends if it contains quotes.
    fn read_non_posix_expansion(&mut self) -> ParseResult<()> {
        let start = self.position;
        self.state.add_bash_construct("${");
        loop {
            match self.units.get(self.position) {
                None => return Err(unclosed_error("`${`")),
                Some(TemplateUnit::Placeholder(_)) => {
                    self.take_placeholder(QuotingContext::Unquoted, Some(NON_POSIX_EXPANSION))?
                }
                Some(TemplateUnit::Char('}')) => {
                    self.position += 1;
                    return self.record_arithmetic_names(start);
                }
                Some(TemplateUnit::Char('\\' | '\'' | '"' | '$' | '`' | '{' | '\n' | '(')) => {
                    return Err(TemplateError::new(
                        "${",
                        "shells read this expansion, which is not POSIX, differently",
                        "use `:-`, `:+`, `:?`, `#`, `##`, `%` or `%%`, or a program such as `cut` or `sed`",
                    ));
                }
                Some(TemplateUnit::Char(_)) => self.position += 1,
            }
        }
    }

    fn skip_while(&mut self, accepts: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&accepts) {
            self.position += 1;
        }
    }

    /// Reads the word of `:-`, `:=`, `:?` or `:+` in double quotes or in a here-document, with the `}`.
    fn read_quoted_expansion_word(&mut self, enclosure: Enclosure) -> ParseResult<()> {
        loop {
            match self.units.get(self.position) {
                None => return Err(unclosed_error("`${`")),
                Some(TemplateUnit::Char('}')) => {
                    self.position += 1;
                    return Ok(());
                }
                Some(TemplateUnit::Char('"')) if self.in_heredoc || self.expansion_depth > 1 => {
                    return Err(TemplateError::new(
                        "\"",
                        "shells read a `\"` in `${...}` in a here-document, or in another quoted `${...}`, differently",
                        "remove it; the shell does not split the value there",
                    ));
                }
                Some(TemplateUnit::Char('"')) => self.read_double_quotes()?,
                Some(unit) => self.read_quoted_unit(*unit, enclosure)?,
            }
        }
    }

    /// Reads the word of an expansion outside quotes with the `}`, or the pattern of `#`, `##`, `%` or `%%`, to which
    /// quotes around the whole expansion do not apply.
    fn read_unquoted_expansion_word(&mut self, enclosure: Enclosure) -> ParseResult<()> {
        loop {
            match self.units.get(self.position) {
                None => return Err(unclosed_error("`${`")),
                Some(TemplateUnit::Placeholder(_)) => {
                    self.take_placeholder(QuotingContext::Unquoted, None)?
                }
                Some(TemplateUnit::Char('}')) => {
                    self.position += 1;
                    return Ok(());
                }
                Some(TemplateUnit::Char('\''))
                    if enclosure != Enclosure::None || self.expansion_depth > 1 =>
                {
                    return Err(single_quote_error());
                }
                Some(TemplateUnit::Char('\\' | '\'' | '"' | '$' | '`')) => self.read_quoting()?,
                Some(TemplateUnit::Char(_)) => self.position += 1,
            }
        }
    }

    /// Reads a command in backquotes: removes its escapes, then parses the result.
    fn read_backquotes(&mut self, enclosure: Enclosure) -> ParseResult<()> {
        let start = self.position;
        let command = self.unescape_backquotes(enclosure)?;
        self.check_same_line(start)?;
        if enclosure != Enclosure::None {
            self.check_quoted_backquotes(start, &command)?;
        }
        self.with_own_parameters(|parser| {
            parser.read_inner(&command, |inner| {
                inner.in_substitution = true;
                inner.with_nesting(|inner| inner.read_list(ListEnd::Input)).map(|_| ())
            })
        })
    }

    /// Skips a command in backquotes. Returns the command without the escapes that backquotes add.
    fn unescape_backquotes(&mut self, enclosure: Enclosure) -> ParseResult<Vec<TemplateUnit>> {
        self.position += 1;
        let mut command = Vec::new();
        loop {
            let Some(unit) = self.units.get(self.position) else {
                return Err(unclosed_error("`` ` ``"));
            };
            self.position += 1;
            if *unit == TemplateUnit::Char('`') {
                return Ok(command);
            }
            let escaped =
                self.units.get(self.position).filter(|_| *unit == TemplateUnit::Char('\\'));
            match escaped {
                Some(TemplateUnit::Char('"')) if enclosure == Enclosure::Heredoc => {
                    let message = "shells read `\\\"` in backquotes in a here-document differently";
                    return Err(TemplateError::new("\\\"", message, DOLLAR_PARENTHESES_HELP));
                }
                Some(TemplateUnit::Char('"')) if enclosure == Enclosure::None => {
                    command.push(*unit);
                }
                Some(next @ TemplateUnit::Char('`' | '\\' | '$' | '"')) => {
                    command.push(*next);
                    self.position += 1;
                }
                _ => command.push(*unit),
            }
        }
    }

    /// Rejects what shells read differently in backquotes since `start` in double quotes or in a here-document.
    /// `command` is their text without escapes.
    fn check_quoted_backquotes(&self, start: usize, command: &[TemplateUnit]) -> ParseResult<()> {
        let has_quote = |units: &[TemplateUnit], quotes: &[char]| {
            units.iter().filter_map(TemplateUnit::as_char).any(|c| quotes.contains(&c))
        };
        if self.expansion_depth > 0 && has_quote(&self.units[start..self.position], &['\\', '\'']) {
            let message =
                "shells read a `\\` or `'` in backquotes inside a quoted `${...}` differently";
            return Err(TemplateError::new("`", message, DOLLAR_PARENTHESES_HELP));
        }
        let has_substitution = command
            .windows(2)
            .any(|pair| is_expansion_start(pair) || pair[0] == TemplateUnit::Char('`'));
        if has_substitution && has_quote(command, &['\\', '\'', '"']) {
            let message = "shells read quotes next to a substitution in backquotes inside double quotes differently";
            return Err(TemplateError::new("`", message, DOLLAR_PARENTHESES_HELP));
        }
        let has_escaped_quote = command
            .windows(2)
            .any(|pair| matches!(pair, [TemplateUnit::Char('\\'), TemplateUnit::Char('\'' | '"')]));
        if has_escaped_quote {
            let message =
                "shells read an escaped quote in backquotes inside double quotes differently";
            return Err(TemplateError::new("`", message, DOLLAR_PARENTHESES_HELP));
        }
        Ok(())
    }
}

/// Whether two units are `$(` or `${`.
fn is_expansion_start(pair: &[TemplateUnit]) -> bool {
    matches!(pair, [TemplateUnit::Char('$'), TemplateUnit::Char('(' | '{')])
}

/// Whether `c` is the name of a special parameter, such as `$?`.
fn is_special_parameter(c: char) -> bool {
    "@*#?-$!".contains(c)
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn bash_dollar_error(syntax: &str, help: &str) -> TemplateError {
    let message = format!(
        "`{syntax}` begins arithmetic or a quote in bash and is plain text in other shells"
    );
    TemplateError::new(syntax, message, help)
}

fn single_quote_error() -> TemplateError {
    let message =
        "shells read a `'` in `${...}` inside double quotes or another `${...}` differently";
    TemplateError::new("'", message, "assign it to a variable first")
}
