//! Reads a `shell:` template as `sh` does and finds the quoting context of every placeholder.
//!
//! This file knows commands, words, `case`, redirections and here-documents; `expansion` knows quotes and what a `$` or
//! a backquote begins.

use super::{Form, Refusal, Unit};
use crate::tool::placeholder::{self, Hole};

/// Deeper nesting of quotes and substitutions is refused; the reader is recursive.
const MAX_DEPTH: usize = 100;

pub(super) type Result<T> = std::result::Result<T, Refusal>;

/// The form of each of `holes`, which stand in `units`.
pub(super) fn forms(units: &[Unit], holes: &[Hole]) -> Result<Vec<Form>> {
    let mut found = vec![None; holes.len()];
    let mut lexer = Lexer {
        units,
        at: 0,
        holes,
        forms: &mut found,
        heredocs: Vec::new(),
        forbidden: None,
        depth: 0,
    };
    lexer.commands(End::Input)?;
    let missed = |(form, hole): (Option<Form>, &Hole)| {
        let source = hole.source();
        form.ok_or_else(|| refuse(&source, format!("the shell would not see {source}"), ""))
    };
    found.into_iter().zip(holes).map(missed).collect()
}

pub(super) fn refuse(fragment: &str, message: impl Into<String>, help: &str) -> Refusal {
    Refusal::new(fragment, message, help)
}

pub(super) fn unclosed(what: &str) -> Refusal {
    refuse(
        what.trim_matches('`'),
        format!("{what} is not closed"),
        "the shell would read on to the end; close it",
    )
}

/// What ends a list of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The end of the text.
    Input,
    /// A `)`.
    Paren,
    /// `;;` or `esac`.
    CaseItem,
}

/// A reason for which no placeholder may stand somewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forbidden {
    place: &'static str,
    help: &'static str,
}

impl Forbidden {
    pub(super) const fn new(place: &'static str, help: &'static str) -> Self {
        Self { place, help }
    }

    pub(super) fn refuse(self, fragment: &str, subject: &str) -> Refusal {
        refuse(fragment, format!("{subject} stands {}", self.place), self.help)
    }
}

pub(super) const ARITHMETIC: Forbidden = Forbidden::new(
    "in arithmetic, where the shell evaluates the value as an expression",
    "use a program that takes numbers as arguments, such as `expr`, or compute in the tool itself",
);
pub(super) const VARIABLE: Forbidden = Forbidden::new(
    "in the place of a variable name",
    "name the variable in the template; only its value can come from a parameter",
);
const FUNCTION: Forbidden =
    Forbidden::new("in the place of a function name", "name the function in the template");
const SUBSCRIPT: Forbidden = Forbidden::new(
    "in an array subscript, which bash evaluates",
    "use plain variables; `sh` has no arrays",
);
const ARRAY: Forbidden =
    Forbidden::new("in an array, which `sh` does not have", "use `set -- ...` and then \"$@\"");
const CONDITION: Forbidden = Forbidden::new(
    "inside `[[ ]]`, which is not sh and where bash evaluates some operands",
    "use `[ ... ]`, with `=` for texts and `-eq` for numbers",
);
const COMMENT: Forbidden = Forbidden::new(
    "in a comment, where the shell never sees it",
    "take it out of the comment, or write `\\${name}` for the text itself",
);
const QUOTED_HEREDOC: Forbidden = Forbidden::new(
    "in a here-document with a quoted delimiter, where the shell expands nothing",
    "write the delimiter without quotes, or give the value by `stdin:`",
);
const DELIMITER: Forbidden =
    Forbidden::new("in the delimiter of a here-document", "write a fixed delimiter, such as `EOF`");

/// What is known of the place where a word stands.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// No placeholder may stand before a `=` in it.
    name: Option<Forbidden>,
    /// It may be an assignment.
    assignable: bool,
}

/// A word that has been read.
#[derive(Debug, Default)]
struct Word {
    /// Its characters outside quotes and expansions.
    literal: String,
    /// Whether there was anything else in it.
    mixed: bool,
    /// Whether a placeholder stood in it.
    hole: bool,
}

impl Word {
    fn is(&self, text: &str) -> bool {
        !self.mixed && self.literal == text
    }
}

/// Where in a simple command the reader is.
#[derive(Debug, Default)]
struct Command {
    /// Number of words so far, assignments and redirection targets apart.
    words: usize,
    /// Its first word, when it is plain.
    name: String,
    /// The word before this one, when it is plain.
    previous: String,
    /// An assignment or redirection came before: reserved words are not recognised any more.
    begun: bool,
    /// The next word is the target of a redirection.
    target: bool,
    /// The next word is a name that `for`, `select` or `function` introduces.
    introduces: Option<Forbidden>,
}

#[derive(Debug)]
pub(super) struct Heredoc {
    delimiter: String,
    quoted: bool,
    strip: bool,
}

pub(super) struct Lexer<'a> {
    pub(super) units: &'a [Unit],
    pub(super) at: usize,
    holes: &'a [Hole],
    forms: &'a mut Vec<Option<Form>>,
    /// Here-documents whose bodies begin after the next newline.
    pub(super) heredocs: Vec<Heredoc>,
    /// Set while no placeholder may stand at all.
    forbidden: Option<Forbidden>,
    depth: usize,
}

impl Lexer<'_> {
    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        match self.units.get(self.at + ahead) {
            Some(Unit::Char(c)) => Some(*c),
            _ => None,
        }
    }

    fn next_is(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    pub(super) fn skip_if(&mut self, text: &str) -> bool {
        let there = self.next_is(text);
        if there {
            self.at += text.len();
        }
        there
    }

    /// The placeholder that stands `ahead` units from here.
    pub(super) fn hole_ahead(&self, ahead: usize) -> Option<&Hole> {
        match self.units.get(self.at + ahead) {
            Some(Unit::Hole(number)) => Some(&self.holes[*number]),
            _ => None,
        }
    }

    /// Takes the placeholder that stands here, if one does.
    pub(super) fn take_hole(&mut self, form: Form, forbidden: Option<Forbidden>) -> Result<()> {
        let Some(Unit::Hole(number)) = self.units.get(self.at) else { return Ok(()) };
        if let Some(forbidden) = self.forbidden.or(forbidden) {
            let source = self.holes[*number].source();
            return Err(forbidden.refuse(&source, &source));
        }
        self.forms[*number] = Some(form);
        self.at += 1;
        Ok(())
    }

    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(refuse(
                "",
                "the template is nested too deeply",
                "put the script into a file of its own",
            ));
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Runs `read` with every placeholder forbidden.
    pub(super) fn forbidding<T>(
        &mut self,
        forbidden: Forbidden,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let reason = self.forbidden.or(Some(forbidden));
        let saved = std::mem::replace(&mut self.forbidden, reason);
        let result = read(self);
        self.forbidden = saved;
        result
    }

    /// Runs `read` over `units`, a text inside this one.
    pub(super) fn within<T>(
        &mut self,
        units: &[Unit],
        read: impl FnOnce(&mut Lexer<'_>) -> Result<T>,
    ) -> Result<T> {
        read(&mut Lexer {
            units,
            at: 0,
            holes: self.holes,
            forms: &mut *self.forms,
            heredocs: Vec::new(),
            forbidden: self.forbidden,
            depth: self.depth,
        })
    }

    /// Reads a list of commands up to and including its end. True when a case item ended with `esac`.
    pub(super) fn commands(&mut self, end: End) -> Result<bool> {
        let mut command = Command::default();
        loop {
            self.blanks();
            match self.units.get(self.at) {
                None if end == End::Input => {
                    return self.no_pending("the template").map(|()| false);
                }
                None => return Err(unclosed(if end == End::Paren { "`(`" } else { "`case`" })),
                Some(Unit::Char('\n')) => {
                    self.at += 1;
                    self.heredoc_bodies()?;
                    command = Command::default();
                }
                Some(Unit::Char('#')) => self.comment()?,
                Some(Unit::Char(')')) if end == End::Paren => {
                    self.at += 1;
                    return self.no_pending("the parentheses").map(|()| false);
                }
                Some(Unit::Char(')')) => {
                    return Err(refuse(")", "a `)` without its `(`", "quote it if it is text"));
                }
                Some(Unit::Char(';'))
                    if end == End::CaseItem && matches!(self.peek(1), Some(';' | '&')) =>
                {
                    self.at += 2;
                    self.skip_if("&");
                    return Ok(false);
                }
                Some(Unit::Char(';' | '&' | '|')) => {
                    let redirects = self.next_is("&>");
                    self.at += 1;
                    command = Command::default();
                    if redirects {
                        self.redirection(&mut command)?;
                    }
                }
                Some(Unit::Char('<' | '>')) => self.redirection(&mut command)?,
                Some(Unit::Char('(')) => self.parenthesis(&mut command)?,
                Some(_) => {
                    let esac = self.command_word(&mut command)?;
                    if esac && end == End::CaseItem {
                        return Ok(true);
                    }
                }
            }
        }
    }

    fn no_pending(&self, what: &str) -> Result<()> {
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

    /// Skips blanks and line continuations.
    fn blanks(&mut self) {
        while matches!(self.peek(0), Some(' ' | '\t')) || self.next_is("\\\n") {
            self.at += if self.peek(0) == Some('\\') { 2 } else { 1 };
        }
    }

    /// Skips blanks, newlines and comments, as between the parts of a `case`.
    fn blank_lines(&mut self) -> Result<()> {
        loop {
            self.blanks();
            match self.peek(0) {
                Some('\n') => {
                    self.at += 1;
                    self.heredoc_bodies()?;
                }
                Some('#') => self.comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn comment(&mut self) -> Result<()> {
        while let Some(unit) = self.units.get(self.at) {
            match unit {
                Unit::Char('\n') => break,
                Unit::Char(_) => self.at += 1,
                Unit::Hole(_) => self.take_hole(Form::Bare, Some(COMMENT))?,
            }
        }
        Ok(())
    }

    /// Reads one word of a command. True when it is an `esac` in the place of a command.
    fn command_word(&mut self, command: &mut Command) -> Result<bool> {
        let place = self.place(command);
        let reserved = command.words == 0 && !command.begun && !command.target;
        let word = match command.name == "[[" {
            true => self.forbidding(CONDITION, |lexer| lexer.word(place))?,
            false => self.word(place)?,
        };
        if command.target {
            command.target = false;
            command.begun = true;
        } else if self.is_io_number(&word) {
            command.begun = true;
        } else if reserved && word.is("esac") {
            return Ok(true);
        } else if reserved && word.is("case") {
            self.case()?;
            command.words = 1;
        } else if reserved && is_opening(&word) {
            *command = Command::default();
        } else if place.assignable && is_assignment(&word) {
            command.begun = true;
            if self.skip_if("(") {
                self.forbidding(ARRAY, |lexer| lexer.nested(|lexer| lexer.commands(End::Paren)))?;
            }
        } else {
            self.plain_word(command, &word, reserved)?;
        }
        command.previous = if word.mixed { String::new() } else { word.literal };
        Ok(false)
    }

    fn plain_word(&mut self, command: &mut Command, word: &Word, reserved: bool) -> Result<()> {
        command.introduces = match word.literal.as_str() {
            "for" | "select" if reserved && !word.mixed => Some(VARIABLE),
            "function" if reserved && !word.mixed => Some(FUNCTION),
            _ => None,
        };
        if command.words == 0 && !word.mixed {
            command.name = word.literal.clone();
        }
        command.words += 1;
        match word.hole && self.peek(0) == Some('(') {
            true => Err(FUNCTION.refuse("(", "a placeholder")),
            false => Ok(()),
        }
    }

    fn place(&self, command: &Command) -> Place {
        if command.target {
            return Place::default();
        }
        if command.introduces.is_some() {
            return Place { name: command.introduces, assignable: false };
        }
        let previous = command.previous.as_str();
        let name = match command.name.as_str() {
            "let" => Some(ARITHMETIC),
            "export" | "readonly" | "local" | "declare" | "typeset" | "unset" | "mapfile"
            | "readarray" => Some(VARIABLE),
            "read" if !matches!(previous, "-p" | "-t" | "-n" | "-N" | "-d" | "-u" | "-i") => {
                Some(VARIABLE)
            }
            "getopts" if command.words >= 2 => Some(VARIABLE),
            "printf" | "test" | "[" if matches!(previous, "-v" | "-R") => Some(VARIABLE),
            _ => None,
        };
        Place { name, assignable: command.words == 0 }
    }

    /// Whether the word is the number before a redirection, as in `2>file`.
    fn is_io_number(&self, word: &Word) -> bool {
        let redirected = matches!(self.peek(0), Some('<' | '>'));
        redirected
            && !word.mixed
            && !word.literal.is_empty()
            && word.literal.bytes().all(|b| b.is_ascii_digit())
    }

    fn parenthesis(&mut self, command: &mut Command) -> Result<()> {
        if command.words == 0 && self.next_is("((") {
            let help = "use `$((...))` for its value, `[ ... ]` for a condition, or a blank between nested `( (`";
            return Err(refuse(
                "((",
                "`((` is arithmetic to bash and two subshells to other shells",
                help,
            ));
        }
        self.at += 1;
        if command.words == 1 && self.skip_if(")") {
            // The body of a function is a command of its own.
            *command = Command::default();
            return Ok(());
        }
        self.substitution()?;
        command.words += 1;
        Ok(())
    }

    /// Reads the commands of a `(...)` or `$(...)` whose parenthesis has been taken.
    pub(super) fn substitution(&mut self) -> Result<()> {
        let outer = std::mem::take(&mut self.heredocs);
        let start = self.at;
        self.nested(|lexer| lexer.commands(End::Paren))?;
        self.heredocs = outer;
        self.same_line(start)
    }

    /// Refuses a line break since `start` while the body of a here-document is still to come: shells disagree about
    /// where it begins.
    pub(super) fn same_line(&self, start: usize) -> Result<()> {
        match self.heredocs.first() {
            Some(heredoc) if self.units[start..self.at].contains(&Unit::Char('\n')) => Err(refuse(
                &format!("<<{}", heredoc.delimiter),
                format!(
                    "a line break stands between the here-document `{}` and its body",
                    heredoc.delimiter
                ),
                "finish the command on the line of the `<<`",
            )),
            _ => Ok(()),
        }
    }

    fn redirection(&mut self, command: &mut Command) -> Result<()> {
        if self.next_is("<<") && !self.next_is("<<<") {
            self.at += 2;
            let strip = self.skip_if("-");
            command.begun = true;
            return self.heredoc(strip);
        }
        command.target = true;
        while matches!(self.peek(0), Some('<' | '>')) {
            self.at += 1;
        }
        if self.skip_if("(") {
            // Process substitution: its commands are a list like any other.
            command.target = false;
            command.words += 1;
            return self.substitution();
        }
        if matches!(self.peek(0), Some('&' | '|')) {
            self.at += 1;
        }
        Ok(())
    }

    /// Reads the delimiter of a here-document; its body follows after the next newline.
    fn heredoc(&mut self, strip: bool) -> Result<()> {
        self.blanks();
        let (mut delimiter, mut quoted, start) = (String::new(), false, self.at);
        loop {
            self.take_hole(Form::Bare, Some(DELIMITER))?;
            match self.peek(0) {
                Some(quote @ ('\'' | '"')) => {
                    quoted = true;
                    self.at += 1;
                    while self.peek(0) != Some(quote) {
                        self.take_hole(Form::Bare, Some(DELIMITER))?;
                        let c = self.peek(0).filter(|c| !matches!(c, '\n' | '\\' | '$' | '`'));
                        delimiter.push(c.ok_or_else(|| odd_delimiter(&delimiter))?);
                        self.at += 1;
                    }
                    self.at += 1;
                }
                Some('\\') => {
                    quoted = true;
                    let c = self.peek(1).filter(|c| *c != '\n');
                    delimiter.push(c.ok_or_else(|| odd_delimiter(&delimiter))?);
                    self.at += 2;
                }
                Some('$' | '`') => return Err(odd_delimiter(&delimiter)),
                Some(c) if !is_metacharacter(c) => {
                    delimiter.push(c);
                    self.at += 1;
                }
                _ if self.at == start => return Err(odd_delimiter(&delimiter)),
                _ => break,
            }
        }
        self.heredocs.push(Heredoc { delimiter, quoted, strip });
        Ok(())
    }

    /// Reads the bodies of the pending here-documents; a newline has just been taken.
    fn heredoc_bodies(&mut self) -> Result<()> {
        for heredoc in std::mem::take(&mut self.heredocs) {
            let (start, end) = self.heredoc_range(&heredoc)?;
            let body = &self.units[start..end];
            self.within(body, |body| match heredoc.quoted {
                true => body.quoted_body(),
                false => body.heredoc_body(),
            })?;
        }
        Ok(())
    }

    /// Where the body stands that begins here; goes on behind its delimiter.
    fn heredoc_range(&mut self, heredoc: &Heredoc) -> Result<(usize, usize)> {
        let start = self.at;
        let mut continued = false;
        while self.at < self.units.len() {
            let line_start = self.at;
            let rest = &self.units[line_start..];
            let length =
                rest.iter().position(|unit| *unit == Unit::Char('\n')).unwrap_or(rest.len());
            let line = &rest[..length];
            self.at = (line_start + length + 1).min(self.units.len());
            let tabs =
                line.iter().take_while(|unit| heredoc.strip && **unit == Unit::Char('\t')).count();
            if line[tabs..].iter().copied().eq(heredoc.delimiter.chars().map(Unit::Char)) {
                if continued {
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
                return Ok((start, line_start));
            }
            let backslashes =
                line.iter().rev().take_while(|unit| **unit == Unit::Char('\\')).count();
            continued = !heredoc.quoted && backslashes % 2 == 1;
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
        Ok(())
    }

    /// Reads `WORD in PATTERN) commands ;; ... esac`; `case` has been taken.
    fn case(&mut self) -> Result<()> {
        self.blanks();
        self.word(Place::default())?;
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
            self.blanks();
            let first = self.word(Place::default())?;
            if !opened && first.is("esac") {
                return Ok(());
            }
            self.patterns()?;
            if self.nested(|lexer| lexer.commands(End::CaseItem))? {
                return Ok(());
            }
        }
    }

    /// Reads the rest of a case item's patterns, up to and including the `)`.
    fn patterns(&mut self) -> Result<()> {
        loop {
            self.blanks();
            if self.skip_if(")") {
                return Ok(());
            }
            let before = self.at;
            self.skip_if("|");
            self.blanks();
            self.word(Place::default())?;
            if self.at == before {
                return Err(unclosed("`case`"));
            }
        }
    }

    /// Reads one word; empty when none begins here.
    fn word(&mut self, place: Place) -> Result<Word> {
        let mut word = Word::default();
        let mut named = false;
        while let Some(unit) = self.units.get(self.at) {
            match *unit {
                Unit::Hole(_) => {
                    let subscript = place.assignable && !named && is_subscript(&word.literal);
                    let forbidden =
                        if subscript { Some(SUBSCRIPT) } else { place.name.filter(|_| !named) };
                    self.take_hole(Form::Bare, forbidden)?;
                    (word.hole, word.mixed) = (true, true);
                }
                Unit::Char(c) if is_metacharacter(c) => break,
                Unit::Char('\\' | '\'' | '"' | '$' | '`') => {
                    self.quoting()?;
                    word.mixed = true;
                }
                Unit::Char(c) => {
                    if c == '=' && !named && word.hole && place.assignable {
                        return Err(VARIABLE.refuse("=", "a placeholder"));
                    }
                    named |= c == '=';
                    word.literal.push(c);
                    self.at += 1;
                }
            }
        }
        Ok(word)
    }
}

fn odd_delimiter(delimiter: &str) -> Refusal {
    let message = "the delimiter of this here-document is read differently by different shells";
    refuse(&format!("<<{delimiter}"), message, "write a plain word, such as `EOF`")
}

/// Whether `c` ends a word.
fn is_metacharacter(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

/// Whether the word is a reserved one after which a command begins.
fn is_opening(word: &Word) -> bool {
    const OPENING: [&str; 9] = ["if", "then", "else", "elif", "do", "while", "until", "!", "{"];
    OPENING.iter().any(|opening| word.is(opening))
}

/// Whether the word is `name=...`, `name+=...` or `name[...]=...`.
fn is_assignment(word: &Word) -> bool {
    let Some((name, _)) = word.literal.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    placeholder::is_name(name.split('[').next().unwrap_or_default())
}

/// Whether the word so far is `name[` with an open bracket.
fn is_subscript(literal: &str) -> bool {
    literal
        .split_once('[')
        .is_some_and(|(name, rest)| placeholder::is_name(name) && !rest.contains(']'))
}
