//! Words of a `shell:` template.

use super::forbidden_place::{EVALUATED_VARIABLE, ForbiddenPlace, SUBSCRIPT, VARIABLE_NAME};
use super::outline::{self, PartDraft};
use super::shell_parser::{ParseResult, ShellParser, is_metacharacter};
use super::{QuotingContext, TemplateError, TemplateUnit};
use crate::placeholder::Placeholder;
use delta_base::engine_variables::is_identifier;

/// The variables whose values bash evaluates: as arithmetic when they are set or, for `PS4`, as a prompt.
const EVALUATED_NAMES: [&str; 7] =
    ["RANDOM", "SRANDOM", "SECONDS", "LINENO", "OPTIND", "HISTCMD", "PS4"];

/// The rules for a word, which follow from its position in a command. Each reason rejects the placeholders of
/// parameters in a part of the word.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WordRules {
    /// Rejects placeholders anywhere in the word.
    pub(super) any: Option<ForbiddenPlace>,
    /// Rejects placeholders before the first `=`.
    pub(super) before_equals: Option<ForbiddenPlace>,
    /// Rejects placeholders at the beginning, and in a word that begins with `-`.
    pub(super) start: Option<ForbiddenPlace>,
    /// Rejects placeholders with `:raw` outside quotes.
    pub(super) raw: Option<ForbiddenPlace>,
    /// Rejects placeholders in a `${...}` outside quotes.
    pub(super) expansion: Option<ForbiddenPlace>,
    /// Whether the word may be an assignment.
    pub(super) may_assign: bool,
}

/// A word that has been read. It consists of segments: a quoted text, an expansion, or a character.
#[derive(Debug, Default)]
pub(super) struct ShellWord {
    /// The word without its quotes and placeholders. Expansions are included as they are written.
    pub(super) text: String,
    /// The fixed text at the beginning of the word.
    pub(super) fixed_prefix: String,
    /// The fixed texts at the beginnings of all segments: the word, if all else is empty at run time.
    pub(super) fixed_text: String,
    /// Whether a segment is quoted, so that the word exists even if it is empty.
    pub(super) is_quoted: bool,
    /// Whether a part of the word is known only at run time.
    pub(super) is_dynamic: bool,
    pub(super) has_placeholder: bool,
    /// Whether a placeholder has the modifier `:raw`, or is in quotes or in an expansion.
    has_embedded_placeholder: bool,
    has_equals: bool,
    /// Whether the word begins with `name=`.
    pub(super) is_assignment: bool,
    /// The parts for the outline.
    pub(super) parts: Vec<PartDraft>,
    brace_state: BraceState,
}

/// How much of a brace expansion, such as `{a,b}` or `{1..2}`, has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum BraceState {
    #[default]
    None,
    Open,
    /// After the `,` or `..`.
    Separated,
}

impl ShellWord {
    /// Whether the word is `text` without any quotes, as a reserved word must be.
    pub(super) fn is_unquoted(&self, text: &str) -> bool {
        !self.is_quoted && !self.is_dynamic && self.text == text
    }

    /// The text of the word, if all of it is fixed.
    pub(super) fn as_fixed(&self) -> Option<&str> {
        (!self.is_dynamic).then_some(self.text.as_str())
    }

    /// Whether there is no word: `""` is a word.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.is_quoted && !self.is_dynamic
    }

    /// Whether the word contains placeholders, all of them outside quotes and without `:raw`. The script puts each of
    /// them in quotes, so that the word exists even if they are empty.
    pub(super) fn has_only_plain_placeholders(&self) -> bool {
        self.has_placeholder && !self.has_embedded_placeholder
    }

    /// Rejects a complete brace expansion, given the next character outside quotes.
    fn check_brace(&mut self, c: char) -> ParseResult<()> {
        self.brace_state = match (self.brace_state, c) {
            (BraceState::None, '{') => BraceState::Open,
            (BraceState::Open, ',') => BraceState::Separated,
            (BraceState::Open, '.') if self.text.ends_with('.') => BraceState::Separated,
            (BraceState::Separated, '}') => {
                let message = "`{a,b}` is several words in bash and one in other shells";
                let help = "write the words out, or quote it if it is text";
                return Err(TemplateError::new("{", message, help));
            }
            (state, _) => state,
        };
        Ok(())
    }

    /// The fixed prefix of the word with `segment` appended.
    fn prefix_with(&self, segment: &[TemplateUnit]) -> String {
        if self.is_dynamic {
            return self.fixed_prefix.clone();
        }
        format!("{}{}", self.fixed_prefix, fixed_start(segment))
    }

    fn push_segment(&mut self, segment: &[TemplateUnit]) {
        let has_placeholder = segment.iter().any(TemplateUnit::is_placeholder);
        let is_literal = match segment[0] {
            TemplateUnit::Char('\\') => true,
            TemplateUnit::Char('\'') => !has_placeholder,
            _ => false,
        };
        let has_expansion =
            segment.iter().any(|unit| matches!(unit, TemplateUnit::Char('$' | '`')));
        self.fixed_prefix = self.prefix_with(segment);
        self.fixed_text.push_str(&fixed_start(segment));
        self.is_quoted |= matches!(segment[0], TemplateUnit::Char('\\' | '\'' | '"'));
        self.has_placeholder |= has_placeholder;
        self.is_dynamic |= !is_literal && (has_placeholder || has_expansion);
        self.has_equals |= segment.contains(&TemplateUnit::Char('='));
        self.text.push_str(&unquoted_text(segment));
        outline::append_parts(&mut self.parts, segment);
    }
}

impl ShellParser<'_> {
    /// Reads a word. It is empty if no word begins at the position.
    pub(super) fn read_word(&mut self, rules: WordRules) -> ParseResult<ShellWord> {
        let mut word = ShellWord::default();
        while let Some(unit) = self.units.get(self.position) {
            let start = self.position;
            match *unit {
                TemplateUnit::Placeholder(_) => {
                    self.take_placeholder(QuotingContext::Unquoted, None)?
                }
                TemplateUnit::Char(c) if is_metacharacter(c) => break,
                TemplateUnit::Char('\\') if self.next_is("\\\n") => {
                    self.skip_continuations()?;
                    continue;
                }
                TemplateUnit::Char('\\' | '\'' | '"' | '$' | '`') => self.read_quoting()?,
                TemplateUnit::Char('=') => {
                    check_equals(rules, &mut word)?;
                    self.position += 1;
                }
                TemplateUnit::Char(c) => {
                    word.check_brace(c)?;
                    self.position += 1;
                }
            }
            let segment = &self.units[start..self.position];
            self.check_placeholders(rules, &word, segment)?;
            let is_plain_placeholder = segment.len() == 1 && !self.has_raw_placeholder(segment);
            word.has_embedded_placeholder |=
                !is_plain_placeholder && segment.iter().any(TemplateUnit::is_placeholder);
            word.push_segment(segment);
        }
        Ok(word)
    }

    fn placeholder_of(&self, unit: TemplateUnit) -> Option<&Placeholder> {
        match unit {
            TemplateUnit::Placeholder(index) => Some(&self.placeholders[index]),
            TemplateUnit::Char(_) => None,
        }
    }

    fn has_raw_placeholder(&self, segment: &[TemplateUnit]) -> bool {
        segment.iter().any(|unit| self.placeholder_of(*unit).is_some_and(Placeholder::is_raw))
    }

    /// Rejects the placeholder of a parameter in `segment`, the next segment of `word`, where `rules` forbid it. Records
    /// the variable if the word is an assignment.
    fn check_placeholders(
        &mut self,
        rules: WordRules,
        word: &ShellWord,
        segment: &[TemplateUnit],
    ) -> ParseResult<()> {
        let parameter = segment.iter().enumerate().find_map(|(at, unit)| {
            let placeholder = self.placeholder_of(*unit)?;
            placeholder.is_parameter().then_some((at, placeholder))
        });
        let Some((first, placeholder)) = parameter else { return Ok(()) };
        let is_substitution = matches!(
            segment,
            [TemplateUnit::Char('`'), ..] | [TemplateUnit::Char('$'), TemplateUnit::Char('('), ..]
        );
        let is_expansion =
            matches!(segment, [TemplateUnit::Char('$'), TemplateUnit::Char('{'), ..]);
        let is_quoted = matches!(segment[0], TemplateUnit::Char('\'' | '"'));
        let text_before = format!("{}{}", word.text, unquoted_text(&segment[..first]));
        let assigned_name =
            text_before.split_once('=').map(|(name, _)| name.strip_suffix('+').unwrap_or(name));
        let declares = rules.may_assign || rules.before_equals.is_some();
        let is_evaluated = assigned_name.is_some_and(|name| EVALUATED_NAMES.contains(&name));
        let reasons = [
            rules.any,
            rules
                .before_equals
                .filter(|_| assigned_name.is_none() && !word.has_equals && !is_substitution),
            rules.start.filter(|_| !is_substitution && may_be_option(&word.prefix_with(segment))),
            rules.raw.filter(|_| !is_quoted && self.has_raw_placeholder(segment)),
            rules.expansion.filter(|_| is_expansion),
            (declares && is_open_subscript(&text_before)).then_some(SUBSCRIPT),
            (declares && is_evaluated).then_some(EVALUATED_VARIABLE),
        ];
        if let Some(forbidden) = reasons.into_iter().flatten().next() {
            let source = placeholder.to_source();
            return Err(forbidden.to_error(&source, &source));
        }
        if let Some(name) = assigned_name.filter(|_| declares && !is_substitution) {
            self.state.assigned_variables.push(name.to_owned());
        }
        Ok(())
    }

    /// Records that a placeholder is assigned to the variable `name`.
    pub(super) fn record_assignment(&mut self, name: &str) -> ParseResult<()> {
        if EVALUATED_NAMES.contains(&name) {
            return Err(EVALUATED_VARIABLE.to_error(name, "a placeholder"));
        }
        self.state.assigned_variables.push(name.to_owned());
        Ok(())
    }
}

/// Checks at a `=` outside quotes whether `word`, which is the text before it, is the name of a variable.
fn check_equals(rules: WordRules, word: &mut ShellWord) -> ParseResult<()> {
    if word.has_equals || !rules.may_assign {
        return Ok(());
    }
    if word.has_placeholder {
        return Err(VARIABLE_NAME.to_error("=", "a placeholder"));
    }
    let name = word.text.strip_suffix('+').unwrap_or(&word.text);
    if !word.is_quoted && is_array_element(name) {
        let message = "this is an array, and `sh` has none";
        return Err(TemplateError::new(name, message, "use plain variables"));
    }
    word.is_assignment = !word.is_quoted && !word.is_dynamic && is_identifier(name);
    Ok(())
}

/// The fixed text at the beginning of a segment.
fn fixed_start(segment: &[TemplateUnit]) -> String {
    let end = match segment[0] {
        TemplateUnit::Char('\\') => None,
        TemplateUnit::Char('\'') => segment.iter().position(TemplateUnit::is_placeholder),
        _ => segment.iter().position(|unit| {
            matches!(unit, TemplateUnit::Placeholder(_) | TemplateUnit::Char('$' | '`'))
        }),
    };
    unquoted_text(&segment[..end.unwrap_or(segment.len())])
}

/// The characters of a segment without its quotes.
fn unquoted_text(segment: &[TemplateUnit]) -> String {
    let quote = match segment.first() {
        Some(TemplateUnit::Char(c @ ('\'' | '"' | '\\'))) => *c,
        _ => '\0',
    };
    let mut is_escaped = false;
    let mut text = String::new();
    for unit in segment {
        match *unit {
            TemplateUnit::Char('\\') if quote != '\'' && !is_escaped => is_escaped = true,
            TemplateUnit::Char(c) if c == quote && !is_escaped => {}
            TemplateUnit::Char('\n') if is_escaped => is_escaped = false,
            TemplateUnit::Char(c) => {
                text.push(c);
                is_escaped = false;
            }
            TemplateUnit::Placeholder(_) => is_escaped = false,
        }
    }
    text
}

/// Whether a word with this fixed prefix may be an option.
pub(super) fn may_be_option(fixed_prefix: &str) -> bool {
    fixed_prefix.is_empty() || fixed_prefix.starts_with('-')
}

/// Whether `text` is `name[` with any text except a `]` after it.
fn is_open_subscript(text: &str) -> bool {
    text.split_once('[').is_some_and(|(name, rest)| is_identifier(name) && !rest.contains(']'))
}

/// Whether `text` is `name[...]`.
fn is_array_element(text: &str) -> bool {
    text.split_once('[').is_some_and(|(name, rest)| is_identifier(name) && rest.ends_with(']'))
}
