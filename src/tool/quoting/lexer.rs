//! Reads a `shell:` template as `sh` does and finds the quoting context of every placeholder.
//!
//! This file holds the reader's state; `command` knows lists and compound commands, `simple` simple commands and
//! redirections, `word` words, `heredoc` here-documents, `expansion` quotes and what a `$` or a backquote begins.
//! `forbidden` lists where no placeholder may stand.

use super::forbidden::{Forbidden, MOVED, MOVED_IN_LOOP};
use super::outline::Draft;
use super::{Form, Refusal, Unit};
use crate::tool::placeholder::Hole;

/// Deeper nesting of quotes and substitutions is refused; the reader is recursive.
const MAX_DEPTH: usize = 100;

pub(super) type Result<T> = std::result::Result<T, Refusal>;

/// The form of each of `holes`, which stand in `units`.
pub(super) fn forms(units: &[Unit], holes: &[Hole]) -> Result<Vec<Form>> {
    let missed = |(form, hole): (Option<Form>, &Hole)| {
        let source = hole.source();
        form.ok_or_else(|| refuse(&source, format!("the shell would not see {source}"), ""))
    };
    read(units, holes)?.forms.into_iter().zip(holes).map(missed).collect()
}

/// Reads a whole template.
pub(super) fn read(units: &[Unit], holes: &[Hole]) -> Result<State> {
    let mut state = State { forms: vec![None; holes.len()], ..State::default() };
    let mut lexer = Lexer {
        units,
        at: 0,
        holes,
        state: &mut state,
        heredocs: Vec::new(),
        forbidden: None,
        braces: 0,
        in_heredoc: false,
        substituted: false,
        depth: 0,
    };
    lexer.commands(End::Input)?;
    state.arithmetic_is_safe()?;
    Ok(state)
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
    /// One of these reserved words.
    Words(&'static [&'static str]),
}

/// What is known of the whole template, whichever part of it is being read.
#[derive(Debug, Default)]
pub(super) struct State {
    forms: Vec<Option<Form>>,
    /// Placeholders of parameters taken so far.
    pub(super) taken: usize,
    /// Why `$1`, `$2`, ... are not the values of the call here: a function, or a `set` or `shift` before.
    pub(super) moved: Option<Forbidden>,
    /// Inside a loop: the placeholders that had been taken before it.
    loop_from: Option<usize>,
    /// Variables that were given the value of a placeholder.
    pub(super) assigned: Vec<String>,
    /// Names that stand in arithmetic.
    pub(super) computed: Vec<String>,
    /// What was read, for those who judge it.
    pub(super) outline: Draft,
}

impl State {
    /// Bash evaluates the text of a variable that stands in arithmetic, command substitutions in it included.
    fn arithmetic_is_safe(&self) -> Result<()> {
        match self.assigned.iter().find(|name| self.computed.contains(name)) {
            None => Ok(()),
            Some(name) => Err(refuse(
                name,
                format!(
                    "the variable `{name}` gets its value from a placeholder and stands in arithmetic, where bash evaluates it"
                ),
                "use a program that takes numbers as arguments, such as `expr`",
            )),
        }
    }
}

#[derive(Debug)]
pub(super) struct Heredoc {
    pub(super) delimiter: String,
    pub(super) quoted: bool,
    pub(super) strip: bool,
    /// [`State::moved`] where its `<<` stands; the body may come after a function has ended.
    pub(super) moved: Option<Forbidden>,
    /// The number of its command in the outline.
    pub(super) command: Option<usize>,
}

pub(super) struct Lexer<'a> {
    pub(super) units: &'a [Unit],
    pub(super) at: usize,
    pub(super) holes: &'a [Hole],
    pub(super) state: &'a mut State,
    /// Here-documents whose bodies begin after the next newline.
    pub(super) heredocs: Vec<Heredoc>,
    /// Set while no placeholder may stand at all.
    pub(super) forbidden: Option<Forbidden>,
    /// How many `${...}` are open around this place, in the same command.
    pub(super) braces: usize,
    /// Whether this is a here-document, but not a command inside one.
    pub(super) in_heredoc: bool,
    /// Whether this is inside backquotes or a `$(...)`.
    pub(super) substituted: bool,
    depth: usize,
}

impl Lexer<'_> {
    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        match self.units.get(self.at + ahead) {
            Some(Unit::Char(c)) => Some(*c),
            _ => None,
        }
    }

    pub(super) fn next_is(&self, text: &str) -> bool {
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
        let hole = &self.holes[*number];
        let moved = self.state.moved.filter(|_| hole.is_parameter());
        if let Some(forbidden) = self.forbidden.or(forbidden).or(moved) {
            let source = hole.source();
            return Err(forbidden.refuse(&source, &source));
        }
        self.state.taken += usize::from(hole.is_parameter());
        self.state.forms[*number] = Some(form);
        self.at += 1;
        Ok(())
    }

    /// Notes that `set` or `shift` changes what `$1`, `$2`, ... are from here on.
    pub(super) fn move_parameters(&mut self) -> Result<()> {
        if self.state.loop_from.is_some_and(|from| self.state.taken > from) {
            return Err(MOVED_IN_LOOP.refuse("", "a placeholder"));
        }
        self.state.moved = Some(MOVED);
        Ok(())
    }

    /// Runs `read` over a loop, whose end is followed by its beginning.
    pub(super) fn looping<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = self.state.loop_from;
        self.state.loop_from = outer.or(Some(self.state.taken));
        let result = read(self);
        self.state.loop_from = outer;
        result
    }

    /// Runs `read` over what has positional parameters of its own: a subshell, or the body of a function.
    pub(super) fn isolated<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = (self.state.moved, self.state.loop_from.take());
        let result = read(self);
        (self.state.moved, self.state.loop_from) = outer;
        result
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
            state: &mut *self.state,
            heredocs: Vec::new(),
            forbidden: self.forbidden,
            braces: 0,
            in_heredoc: false,
            substituted: self.substituted,
            depth: self.depth,
        })
    }

    /// Skips blanks and line continuations.
    pub(super) fn blanks(&mut self) -> Result<()> {
        loop {
            match self.peek(0) {
                Some(' ' | '\t') => self.at += 1,
                _ if self.next_is("\\\n") => self.continuation()?,
                _ => return Ok(()),
            }
        }
    }

    /// Skips line continuations. The shell takes them away before it looks for operators and comments, so what they
    /// join must not be read as one by it and as two by this reader.
    pub(super) fn continuation(&mut self) -> Result<()> {
        let is_operator = |c: char| matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')');
        let before = self.at.checked_sub(1).and_then(|at| self.units.get(at));
        let joins = matches!(before, Some(Unit::Char(c)) if is_operator(*c));
        while self.skip_if("\\\n") {}
        match self.peek(0) {
            Some(c) if c == '#' || joins && is_operator(c) => {
                let message = "a backslash at the end of a line joins two characters that mean something together";
                Err(refuse(
                    "\\",
                    message,
                    "put a blank before the backslash, and nothing but blanks and a word behind",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Skips blanks, newlines and comments, as between the parts of a `case`.
    pub(super) fn blank_lines(&mut self) -> Result<()> {
        loop {
            self.blanks()?;
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
}

/// Whether `c` ends a word.
pub(super) fn is_metacharacter(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}
