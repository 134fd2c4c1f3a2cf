//! Lists of commands and compound commands.

use super::forbidden::{COMMENT, FUNCTION, FUNCTION_BODY, MATCHED, VARIABLE};
use super::lexer::{End, Lexer, Result, refuse, unclosed};
use super::simple::Command;
use super::word::{Place, Word};
use super::{Form, Unit};

/// Reserved words that end or part a compound command.
const CLOSING: [&str; 8] = ["then", "else", "elif", "fi", "do", "done", "esac", "}"];
/// Reserved words that begin a compound command.
const OPENING: [&str; 6] = ["if", "while", "until", "for", "case", "{"];

impl Lexer<'_> {
    /// Reads a list of commands up to and including what ends it, which is returned.
    pub(super) fn commands(&mut self, end: End) -> Result<&'static str> {
        let mut command = Command::default();
        loop {
            self.blanks()?;
            match self.units.get(self.at) {
                None => {
                    self.finish(&mut command)?;
                    return self.at_end(end);
                }
                Some(Unit::Char('\n')) => {
                    self.at += 1;
                    self.finish(&mut command)?;
                    self.heredoc_bodies()?;
                }
                Some(Unit::Char('#')) => self.comment()?,
                Some(Unit::Char(')')) => {
                    self.finish(&mut command)?;
                    return self.closing_parenthesis(end);
                }
                Some(Unit::Char(';'))
                    if end == End::CaseItem && matches!(self.peek(1), Some(';' | '&')) =>
                {
                    self.at += 2;
                    self.skip_if("&");
                    self.finish(&mut command)?;
                    return Ok(";;");
                }
                Some(Unit::Char('&')) if self.next_is("&>") => {
                    self.at += 1;
                    self.state.saw_odd("&>");
                    self.redirection(&mut command)?;
                }
                Some(Unit::Char(operator @ (';' | '&' | '|'))) => {
                    self.note_pipe(*operator, &mut command);
                    self.at += 1;
                    self.finish(&mut command)?;
                }
                Some(Unit::Char('<' | '>')) => self.redirection(&mut command)?,
                Some(Unit::Char('(')) => self.parenthesis(&mut command)?,
                Some(_) => {
                    if let Some(closed) = self.command_word(&mut command, end)? {
                        return Ok(closed);
                    }
                }
            }
        }
    }

    /// Notes in the outline where the output of `command` goes.
    fn note_pipe(&mut self, operator: char, command: &mut Command) {
        let alternative =
            self.next_is("||") || self.at > 0 && self.units[self.at - 1] == Unit::Char('|');
        if operator != '|' || alternative {
            return;
        }
        if self.next_is("|&") {
            self.state.saw_odd("|&");
        }
        if command.has_begun() {
            self.state.draft(&mut command.number).piped = true;
        }
    }

    fn at_end(&self, end: End) -> Result<&'static str> {
        match end {
            End::Input => self.no_pending("the template").map(|()| ""),
            End::Paren => Err(unclosed("`(`")),
            End::CaseItem => Err(unclosed("`case`")),
            End::Words(words) => {
                let last = words.last().copied().unwrap_or_default();
                Err(refuse(
                    last,
                    format!("a `{last}` is missing"),
                    "close what `if`, `while`, `for` or `{` has begun",
                ))
            }
        }
    }

    fn closing_parenthesis(&mut self, end: End) -> Result<&'static str> {
        match end {
            End::Paren => {
                self.at += 1;
                self.no_pending("the parentheses").map(|()| ")")
            }
            _ => Err(refuse(")", "a `)` without its `(`", "quote it if it is text")),
        }
    }

    pub(super) fn comment(&mut self) -> Result<()> {
        let start = self.at;
        while let Some(unit) = self.units.get(self.at) {
            match unit {
                Unit::Char('\n') => break,
                Unit::Char(_) => self.at += 1,
                Unit::Hole(_) => self.take_hole(Form::Bare, Some(COMMENT))?,
            }
        }
        self.opens_nothing(start, self.at)
    }

    /// Reads one word of a command. Returns it when it ends the list.
    fn command_word(&mut self, command: &mut Command, end: End) -> Result<Option<&'static str>> {
        let place = self.place(command);
        let word = self.word(place)?;
        if command.takes_reserved() {
            if let Some(closing) = CLOSING.into_iter().find(|closing| word.is(closing)) {
                let ends = match end {
                    End::Words(words) => words.contains(&closing),
                    End::CaseItem => closing == "esac",
                    End::Input | End::Paren => false,
                };
                if !ends {
                    let message = format!("a `{closing}` without what it belongs to");
                    return Err(refuse(closing, message, "quote it if it is text"));
                }
                self.finish(command)?;
                return Ok(Some(closing));
            }
            if command.is_ended() && !self.is_descriptor(&word) {
                let message = "a word stands directly behind a compound command";
                return Err(refuse(&word.text, message, "write `;` or a line break between them"));
            }
            if word.is("!") {
                return Ok(None);
            }
            if let Some(opening) = OPENING.into_iter().find(|opening| word.is(opening)) {
                self.nested(|lexer| lexer.compound(opening))?;
                *command = Command::ended();
                return Ok(None);
            }
        }
        if word.hole && self.peek(0) == Some('(') {
            return Err(FUNCTION.refuse("(", "a placeholder"));
        }
        self.reserved_after_time(command, &word)?;
        self.take_word(command, word).map(|()| None)
    }

    /// `time` is a reserved word to bash, and a command to other shells, which then see arguments here.
    fn reserved_after_time(&self, command: &Command, word: &Word) -> Result<()> {
        let reserved =
            OPENING.iter().chain(&CLOSING).chain(&["!"]).any(|reserved| word.is(reserved));
        match command.is_prefixed() && reserved {
            true => Err(refuse(
                &word.text,
                "shells read a reserved word behind `time` differently",
                "use `sh -c`",
            )),
            false => Ok(()),
        }
    }

    /// Reads a compound command, whose first word has been taken.
    fn compound(&mut self, opening: &str) -> Result<()> {
        match opening {
            "if" => self.conditional(),
            "while" | "until" => self.looping(|lexer| {
                lexer.commands(End::Words(&["do"]))?;
                lexer.commands(End::Words(&["done"])).map(|_| ())
            }),
            "for" => self.for_loop(),
            "case" => self.case(),
            _ => self.commands(End::Words(&["}"])).map(|_| ()),
        }
    }

    fn conditional(&mut self) -> Result<()> {
        loop {
            self.commands(End::Words(&["then"]))?;
            match self.commands(End::Words(&["elif", "else", "fi"]))? {
                "elif" => {}
                "else" => return self.commands(End::Words(&["fi"])).map(|_| ()),
                _ => return Ok(()),
            }
        }
    }

    fn for_loop(&mut self) -> Result<()> {
        self.blanks()?;
        let variable = self.word(Place { whole: Some(VARIABLE), ..Place::default() })?;
        if variable.is_empty() || variable.dynamic {
            return Err(refuse(
                "for",
                "`for` without the name of a variable",
                "write `for name in WORDS; do ...; done`",
            ));
        }
        self.for_head()?;
        self.blank_lines()?;
        let mut word = self.word(Place::default())?;
        if word.is("in") {
            let mut hole = false;
            loop {
                self.blanks()?;
                if self.peek(0) == Some('#') {
                    break;
                }
                let next = self.word(Place::default())?;
                if next.is_empty() {
                    break;
                }
                hole |= next.hole;
            }
            if hole {
                self.assigned(&variable.text)?;
            }
            self.for_head()?;
            self.blank_lines()?;
            word = self.word(Place::default())?;
        } else {
            self.assigned(&variable.text)?;
        }
        if !word.is("do") {
            return Err(refuse(
                "for",
                "`for` without its `do`",
                "write `for name in WORDS; do ...; done`",
            ));
        }
        self.looping(|lexer| lexer.commands(End::Words(&["done"]))).map(|_| ())
    }

    /// Skips the `;` before a `do`.
    fn for_head(&mut self) -> Result<()> {
        self.blanks()?;
        self.skip_if(";");
        Ok(())
    }

    /// Reads `WORD in PATTERN) commands ;; ... esac`; `case` has been taken.
    fn case(&mut self) -> Result<()> {
        self.case_word()?;
        self.blank_lines()?;
        if !self.word(Place::default())?.is("in") {
            return Err(refuse(
                "case",
                "`case` without its `in`",
                "write `case WORD in PATTERN) ...;; esac`",
            ));
        }
        loop {
            self.blank_lines()?;
            let opened = self.skip_if("(");
            if self.case_word()?.is("esac") && !opened {
                return Ok(());
            }
            self.patterns()?;
            if self.nested(|lexer| lexer.commands(End::CaseItem))? == "esac" {
                return Ok(());
            }
        }
    }

    /// Reads a word of a `case`, which must be there.
    fn case_word(&mut self) -> Result<Word> {
        self.blanks()?;
        let comment = self.peek(0) == Some('#');
        let word = self.word(Place { expansion: Some(MATCHED), ..Place::default() })?;
        match comment || word.is_empty() {
            true => Err(refuse(
                "case",
                "a word is missing in this `case`",
                "write `case WORD in PATTERN) ...;; esac`",
            )),
            false => Ok(word),
        }
    }

    /// Reads the rest of a case item's patterns, up to and including the `)`.
    fn patterns(&mut self) -> Result<()> {
        loop {
            self.blanks()?;
            if self.skip_if(")") {
                return Ok(());
            }
            if !self.skip_if("|") {
                return Err(unclosed("`case`"));
            }
            self.case_word()?;
        }
    }

    fn parenthesis(&mut self, command: &mut Command) -> Result<()> {
        if !command.has_begun() && self.next_is("((") {
            let help = "use `$((...))` for its value, `[ ... ]` for a condition, or a blank between nested `( (`";
            return Err(refuse(
                "((",
                "`((` is arithmetic to bash and two subshells to other shells",
                help,
            ));
        }
        self.at += 1;
        if !command.has_begun() {
            self.substitution()?;
            *command = Command::ended();
            return Ok(());
        }
        self.blanks()?;
        if command.may_be_function() && !command.has_hole() && self.skip_if(")") {
            if let Some(number) = command.number.take() {
                self.state.outline.commands[number].words.clear();
            }
            self.state.outline.functions.push(command.name().to_owned());
            self.function()?;
            *command = Command::ended();
            return Ok(());
        }
        Err(refuse("(", "a `(` in the middle of a command", "quote it if it is text"))
    }

    /// Reads the body of a function.
    fn function(&mut self) -> Result<()> {
        self.blank_lines()?;
        if self.next_is("((") {
            return Err(refuse(
                "((",
                "`((` is arithmetic to bash and two subshells to other shells",
                "use `{ ...; }`",
            ));
        }
        let subshell = self.skip_if("(");
        if !subshell && !self.word(Place::default())?.is("{") {
            return Err(refuse(
                "()",
                "the body of a function has no braces",
                "write `name() { ...; }`",
            ));
        }
        let end = if subshell { End::Paren } else { End::Words(&["}"]) };
        self.isolated(|lexer| {
            lexer.state.moved = Some(FUNCTION_BODY);
            lexer.nested(|lexer| lexer.commands(end).map(|_| ()))
        })
    }

    /// Reads the commands of a `(...)` or `$(...)` whose parenthesis has been taken.
    pub(super) fn substitution(&mut self) -> Result<()> {
        let outer =
            (std::mem::take(&mut self.heredocs), std::mem::take(&mut self.braces), self.in_heredoc);
        self.in_heredoc = false;
        let start = self.at;
        self.isolated(|lexer| lexer.nested(|lexer| lexer.commands(End::Paren)))?;
        (self.heredocs, self.braces, self.in_heredoc) = outer;
        self.same_line(start)
    }
}
