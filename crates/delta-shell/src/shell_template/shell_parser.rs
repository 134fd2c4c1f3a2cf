//! The parser of `shell:` templates: its state, and the operations that all grammar rules need.
//!
//! The parser reads a template as `sh` does and finds the quoting context of each placeholder. The grammar is in the
//! other modules of this directory: `compound_command` reads lists and compound commands, `simple_command` simple commands and
//! redirections, `shell_word` words, `heredoc` here-documents, and `expansion` quotes and all that `$` or a backquote
//! begins. `forbidden_place` lists the places in which placeholders are rejected.

use super::forbidden_place::{AFTER_SHIFT, ForbiddenPlace, SHIFT_IN_LOOP};
use super::outline::OutlineDraft;
use super::{QuotingContext, TemplateError, TemplateUnit};
use crate::placeholder::Placeholder;

/// The deepest nesting of quotes, substitutions and compound commands. The parser is recursive, so that deeper nesting
/// could overflow the stack.
const MAX_DEPTH: usize = 100;

pub(super) type ParseResult<T> = Result<T, TemplateError>;

/// Finds the quoting context of each of `placeholders`, which `units` contains by index.
pub(super) fn find_contexts(
    units: &[TemplateUnit],
    placeholders: &[Placeholder],
) -> ParseResult<Vec<QuotingContext>> {
    let contexts = parse_units(units, placeholders)?.contexts.into_iter();
    contexts
        .zip(placeholders)
        .map(|(context, placeholder)| {
            context.ok_or_else(|| {
                let source = placeholder.to_source();
                TemplateError::new(&source, format!("the shell would not see {source}"), "")
            })
        })
        .collect()
}

/// Parses a whole template.
pub(super) fn parse_units(
    units: &[TemplateUnit],
    placeholders: &[Placeholder],
) -> ParseResult<ParserState> {
    let mut state =
        ParserState { contexts: vec![None; placeholders.len()], ..ParserState::default() };
    let mut parser = ShellParser {
        units,
        position: 0,
        placeholders,
        state: &mut state,
        pending_heredocs: Vec::new(),
        forbidden: None,
        expansion_depth: 0,
        in_heredoc: false,
        in_substitution: false,
        depth: 0,
    };
    parser.read_list(ListEnd::Input)?;
    state.check_arithmetic()?;
    Ok(state)
}

/// The error for a `construct` that begins and does not end, such as `` "`$((`" ``.
pub(super) fn unclosed_error(construct: &str) -> TemplateError {
    TemplateError::new(
        construct.trim_matches('`'),
        format!("{construct} is not closed"),
        "close it; the shell would search for its end up to the end of the script",
    )
}

/// The end of a list of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListEnd {
    /// The end of the units.
    Input,
    /// A `)`.
    Paren,
    /// `;;` or `esac`.
    CaseItem,
    /// One of these reserved words.
    Keywords(&'static [&'static str]),
}

/// The state that all parts of a template share, texts inside substitutions and here-documents included.
#[derive(Debug, Default)]
pub(super) struct ParserState {
    contexts: Vec<Option<QuotingContext>>,
    /// The number of placeholders of parameters that have been read.
    pub(super) parameter_count: usize,
    /// Set where `$1`, `$2`, ... are not the values of the call: in a function, or after a `set` or `shift`.
    pub(super) positional_change: Option<ForbiddenPlace>,
    /// In a loop, the value of `parameter_count` at the beginning of the outermost loop.
    parameters_before_loop: Option<usize>,
    /// The variables to which a placeholder is assigned.
    pub(super) assigned_variables: Vec<String>,
    /// The names in arithmetic.
    pub(super) arithmetic_names: Vec<String>,
    pub(super) outline: OutlineDraft,
}

impl ParserState {
    /// Rejects a variable in arithmetic to which a placeholder is assigned: bash evaluates its value, and executes the
    /// command substitutions in it.
    fn check_arithmetic(&self) -> ParseResult<()> {
        let variable =
            self.assigned_variables.iter().find(|name| self.arithmetic_names.contains(name));
        let Some(name) = variable else { return Ok(()) };
        let message = format!(
            "the variable `{name}` gets its value from a placeholder and is used in arithmetic, where bash evaluates it"
        );
        let help = "use a program that takes numbers as arguments, such as `expr`";
        Err(TemplateError::new(name, message, help))
    }
}

/// A here-document whose body has not been reached.
#[derive(Debug)]
pub(super) struct PendingHeredoc {
    pub(super) delimiter: String,
    /// Whether the delimiter is quoted, so that the shell expands nothing in the body.
    pub(super) is_quoted: bool,
    /// Whether the operator is `<<-`.
    pub(super) strip_tabs: bool,
    /// [`ParserState::positional_change`] at the `<<`. The body may follow after the end of the function.
    pub(super) positional_change: Option<ForbiddenPlace>,
    /// The index of the command in the outline.
    pub(super) command_index: Option<usize>,
}

/// A parser at a position in a template, or in a text inside a template.
pub(super) struct ShellParser<'a> {
    pub(super) units: &'a [TemplateUnit],
    pub(super) position: usize,
    pub(super) placeholders: &'a [Placeholder],
    pub(super) state: &'a mut ParserState,
    /// The here-documents whose bodies follow after the next newline.
    pub(super) pending_heredocs: Vec<PendingHeredoc>,
    /// Set while all placeholders are forbidden.
    pub(super) forbidden: Option<ForbiddenPlace>,
    /// The number of open `${...}` in the current command.
    pub(super) expansion_depth: usize,
    /// Whether the position is in the body of a here-document, and not in a command inside it.
    pub(super) in_heredoc: bool,
    /// Whether the position is in backquotes or in `$(...)`.
    pub(super) in_substitution: bool,
    depth: usize,
}

impl ShellParser<'_> {
    /// The character `ahead` units after the position; `None` for a placeholder and at the end.
    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        self.units.get(self.position + ahead)?.as_char()
    }

    pub(super) fn next_is(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    /// Skips `text`, which is ASCII, if it is next. Returns whether it was.
    pub(super) fn skip_if(&mut self, text: &str) -> bool {
        let is_next = self.next_is(text);
        if is_next {
            self.position += text.len();
        }
        is_next
    }

    /// The placeholder `ahead` units after the position, if there is one.
    pub(super) fn peek_placeholder(&self, ahead: usize) -> Option<&Placeholder> {
        match self.units.get(self.position + ahead) {
            Some(TemplateUnit::Placeholder(index)) => Some(&self.placeholders[*index]),
            _ => None,
        }
    }

    /// Reads the placeholder at the position, if there is one. `forbidden` is the reason why none is allowed here.
    pub(super) fn take_placeholder(
        &mut self,
        context: QuotingContext,
        forbidden: Option<ForbiddenPlace>,
    ) -> ParseResult<()> {
        let Some(TemplateUnit::Placeholder(index)) = self.units.get(self.position) else {
            return Ok(());
        };
        let placeholder = &self.placeholders[*index];
        let positional_change = self.state.positional_change.filter(|_| placeholder.is_parameter());
        if let Some(forbidden) = self.forbidden.or(forbidden).or(positional_change) {
            let source = placeholder.to_source();
            return Err(forbidden.to_error(&source, &source));
        }
        self.state.parameter_count += usize::from(placeholder.is_parameter());
        self.state.contexts[*index] = Some(context);
        self.position += 1;
        Ok(())
    }

    /// Records that `set` or `shift` changes `$1`, `$2`, ... from here on.
    pub(super) fn change_positional_parameters(&mut self) -> ParseResult<()> {
        let parameter_count = self.state.parameter_count;
        if self.state.parameters_before_loop.is_some_and(|before| parameter_count > before) {
            return Err(SHIFT_IN_LOOP.to_error("", "a placeholder"));
        }
        self.state.positional_change = Some(AFTER_SHIFT);
        Ok(())
    }

    /// Runs `read` on a loop, in which a `set` or `shift` changes `$1`, `$2`, ... also for the commands before it.
    pub(super) fn read_loop<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        let outer = self.state.parameters_before_loop;
        self.state.parameters_before_loop = outer.or(Some(self.state.parameter_count));
        let result = read(self);
        self.state.parameters_before_loop = outer;
        result
    }

    /// Runs `read` on a subshell or the body of a function, which have positional parameters of their own.
    pub(super) fn with_own_parameters<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        let outer_change = self.state.positional_change;
        let outer_loop = self.state.parameters_before_loop.take();
        let result = read(self);
        self.state.positional_change = outer_change;
        self.state.parameters_before_loop = outer_loop;
        result
    }

    /// Runs `read` one level deeper.
    pub(super) fn with_nesting<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(TemplateError::new(
                "",
                format!("the template is nested more than {MAX_DEPTH} levels deep"),
                "move the script to a file of its own",
            ));
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Runs `read` with all placeholders forbidden. The reason of an outer call takes precedence.
    pub(super) fn with_forbidden<T>(
        &mut self,
        forbidden: ForbiddenPlace,
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        let reason = self.forbidden.or(Some(forbidden));
        let outer = std::mem::replace(&mut self.forbidden, reason);
        let result = read(self);
        self.forbidden = outer;
        result
    }

    /// Runs `read` on `units`, a text inside this one.
    pub(super) fn read_inner<T>(
        &mut self,
        units: &[TemplateUnit],
        read: impl FnOnce(&mut ShellParser<'_>) -> ParseResult<T>,
    ) -> ParseResult<T> {
        read(&mut ShellParser {
            units,
            position: 0,
            placeholders: self.placeholders,
            state: &mut *self.state,
            pending_heredocs: Vec::new(),
            forbidden: self.forbidden,
            expansion_depth: 0,
            in_heredoc: false,
            in_substitution: self.in_substitution,
            depth: self.depth,
        })
    }

    /// Skips blanks and line continuations.
    pub(super) fn skip_blanks(&mut self) -> ParseResult<()> {
        loop {
            match self.peek(0) {
                Some(' ' | '\t') => self.position += 1,
                _ if self.next_is("\\\n") => self.skip_continuations()?,
                _ => return Ok(()),
            }
        }
    }

    /// Skips line continuations. Rejects a continuation that joins two characters to an operator, or begins a comment:
    /// the shell removes continuations before it recognizes either, and this parser does not.
    pub(super) fn skip_continuations(&mut self) -> ParseResult<()> {
        let is_operator = |c: char| matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')');
        let previous = self.position.checked_sub(1).and_then(|at| self.units.get(at)?.as_char());
        let follows_operator = previous.is_some_and(is_operator);
        while self.skip_if("\\\n") {}
        match self.peek(0) {
            Some(c) if c == '#' || follows_operator && is_operator(c) => {
                let message = "a backslash at the end of a line joins two characters that have a meaning together";
                let help = "put a blank before the backslash, and begin the next line with blanks or a word";
                Err(TemplateError::new("\\", message, help))
            }
            _ => Ok(()),
        }
    }

    /// Skips blanks, newlines and comments, and reads the here-documents after the newlines.
    pub(super) fn skip_blank_lines(&mut self) -> ParseResult<()> {
        loop {
            self.skip_blanks()?;
            match self.peek(0) {
                Some('\n') => {
                    self.position += 1;
                    self.read_heredoc_bodies()?;
                }
                Some('#') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    /// Rejects a line break since `start` while a here-document is pending: shells disagree where its body begins.
    pub(super) fn check_same_line(&self, start: usize) -> ParseResult<()> {
        let Some(heredoc) = self.pending_heredocs.first() else { return Ok(()) };
        if !self.units[start..self.position].contains(&TemplateUnit::Char('\n')) {
            return Ok(());
        }
        let delimiter = &heredoc.delimiter;
        Err(TemplateError::new(
            &format!("<<{delimiter}"),
            format!("a line break is between the here-document `{delimiter}` and its body"),
            "finish the command on the line of the `<<`",
        ))
    }
}

/// Whether `c` ends a word.
pub(super) fn is_metacharacter(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}
