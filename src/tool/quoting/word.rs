//! Words of a `shell:` template.

use super::forbidden::{EVALUATING, Forbidden, SUBSCRIPT, VARIABLE};
use super::lexer::{Lexer, Result, is_metacharacter, refuse};
use super::outline::{self, Piece};
use super::{Form, Unit};
use crate::tool::placeholder;

/// Variables whose text bash evaluates when they are set, in arithmetic or as a prompt.
const EVALUATED: [&str; 7] = ["RANDOM", "SRANDOM", "SECONDS", "LINENO", "OPTIND", "HISTCMD", "PS4"];

/// What is known of the place where a word stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// No placeholder may stand in it.
    pub(super) whole: Option<Forbidden>,
    /// No placeholder may stand before a `=` in it.
    pub(super) name: Option<Forbidden>,
    /// No placeholder may begin it, or follow a `-` that begins it.
    pub(super) start: Option<Forbidden>,
    /// No placeholder with `:raw` may stand in it.
    pub(super) raw: Option<Forbidden>,
    /// No placeholder may stand in a `${...}` outside quotes in it.
    pub(super) expansion: Option<Forbidden>,
    /// It may be an assignment.
    pub(super) assignable: bool,
}

/// A word that has been read.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// What is fixed of it, without quotes.
    pub(super) text: String,
    /// What of it surely begins it: `text` up to what is known at run time only.
    pub(super) lead: String,
    /// What is left of it when everything that is known at run time only is empty.
    pub(super) remainder: String,
    /// Something in it is quoted, so that it is a word even when it is empty.
    pub(super) quoted: bool,
    /// Something in it is known at run time only.
    pub(super) dynamic: bool,
    /// A placeholder stands in it.
    pub(super) hole: bool,
    /// A placeholder with `:raw`, or an expansion around a placeholder, stands in it.
    pub(super) raw: bool,
    /// A `=` stands in it.
    named: bool,
    /// It is `name=...`.
    pub(super) assigns: bool,
    /// Its parts, for the outline.
    pub(super) pieces: Vec<Piece>,
    /// How far it is a `{a,b}` or `{1..2}`.
    brace: Brace,
}

/// What has been read of a brace expansion, which bash has and other shells have not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Brace {
    #[default]
    None,
    Open,
    Parted,
}

impl Word {
    /// Whether it is these characters without any quotes, as reserved words must be.
    pub(super) fn is(&self, text: &str) -> bool {
        !self.quoted && !self.dynamic && self.text == text
    }

    /// Its text, when nothing in it changes.
    pub(super) fn fixed(&self) -> Option<&str> {
        (!self.dynamic).then_some(self.text.as_str())
    }

    /// Whether no word stands there.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.quoted && !self.dynamic
    }
}

impl Lexer<'_> {
    /// Reads one word; empty when none begins here.
    pub(super) fn word(&mut self, place: Place) -> Result<Word> {
        let mut word = Word::default();
        while let Some(unit) = self.units.get(self.at) {
            let start = self.at;
            match *unit {
                Unit::Hole(_) => self.take_hole(Form::Bare, None)?,
                Unit::Char(c) if is_metacharacter(c) => break,
                Unit::Char('\\') if self.next_is("\\\n") => {
                    self.continuation()?;
                    continue;
                }
                Unit::Char('\\' | '\'' | '"' | '$' | '`') => self.quoting()?,
                Unit::Char('=') => {
                    self.equals(place, &mut word)?;
                    self.at += 1;
                }
                Unit::Char(c) => {
                    word.brace(c)?;
                    self.at += 1;
                }
            }
            let segment = &self.units[start..self.at];
            self.judge(place, &word, segment)?;
            let bare = matches!(segment, [Unit::Hole(number)] if !self.holes[*number].is_raw());
            word.raw |= !bare && segment.iter().any(|unit| matches!(unit, Unit::Hole(_)));
            word.add(segment);
        }
        Ok(word)
    }

    /// Looks at a word up to the first `=` outside quotes.
    fn equals(&self, place: Place, word: &mut Word) -> Result<()> {
        if word.named || !place.assignable {
            return Ok(());
        }
        if word.hole {
            return Err(VARIABLE.refuse("=", "a placeholder"));
        }
        let name = word.text.strip_suffix('+').unwrap_or(&word.text);
        if !word.quoted && is_element(name) {
            return Err(refuse(
                name,
                "an array stands here, and `sh` has none",
                "use plain variables",
            ));
        }
        word.assigns = !word.quoted && !word.dynamic && placeholder::is_name(name);
        Ok(())
    }

    /// Refuses a placeholder in the piece `segment` that comes next in `word`, where `place` does not allow it.
    fn judge(&mut self, place: Place, word: &Word, segment: &[Unit]) -> Result<()> {
        let is_value =
            |unit: &Unit| matches!(unit, Unit::Hole(number) if self.holes[*number].is_parameter());
        let Some(first) = segment.iter().position(is_value) else { return Ok(()) };
        let substituted =
            matches!(segment, [Unit::Char('`'), ..] | [Unit::Char('$'), Unit::Char('('), ..]);
        let before = format!("{}{}", word.text, fixed_text(&segment[..first]));
        let quoted = matches!(segment[0], Unit::Char('\'' | '"'));
        let raw = |unit: &Unit| matches!(unit, Unit::Hole(number) if self.holes[*number].is_raw());
        let name = before.split_once('=').map(|(name, _)| name.strip_suffix('+').unwrap_or(name));
        let declares = place.assignable || place.name.is_some();
        let reasons = [
            place.whole,
            place.name.filter(|_| name.is_none() && !word.named && !substituted),
            place.start.filter(|_| !substituted && may_be_option(&word.lead_with(segment))),
            place.raw.filter(|_| !quoted && segment.iter().any(raw)),
            place.expansion.filter(|_| matches!(segment, [Unit::Char('$'), Unit::Char('{'), ..])),
            (declares && is_subscript(&before)).then_some(SUBSCRIPT),
            (declares && name.is_some_and(|name| EVALUATED.contains(&name))).then_some(EVALUATING),
        ];
        if let Some(forbidden) = reasons.into_iter().flatten().next() {
            let Unit::Hole(number) = segment[first] else { return Ok(()) };
            let source = self.holes[number].source();
            return Err(forbidden.refuse(&source, &source));
        }
        if let Some(name) = name.filter(|_| declares && !substituted) {
            self.state.assigned.push(name.to_owned());
        }
        Ok(())
    }

    /// Notes that the variable `name` takes the value of a placeholder.
    pub(super) fn assigned(&mut self, name: &str) -> Result<()> {
        if EVALUATED.contains(&name) {
            return Err(EVALUATING.refuse(name, "a placeholder"));
        }
        self.state.assigned.push(name.to_owned());
        Ok(())
    }
}

impl Word {
    /// Looks at a character outside quotes.
    fn brace(&mut self, c: char) -> Result<()> {
        self.brace = match (self.brace, c) {
            (Brace::None, '{') => Brace::Open,
            (Brace::Open, ',') => Brace::Parted,
            (Brace::Open, '.') if self.text.ends_with('.') => Brace::Parted,
            (Brace::Parted, '}') => {
                let message = "`{a,b}` is several words to bash and one to other shells";
                return Err(refuse("{", message, "write the words out, or quote it if it is text"));
            }
            (brace, _) => brace,
        };
        Ok(())
    }

    /// [`Word::lead`] with the piece `segment` behind.
    fn lead_with(&self, segment: &[Unit]) -> String {
        if self.dynamic {
            return self.lead.clone();
        }
        format!("{}{}", self.lead, Self::certain(segment))
    }

    /// What is fixed at the beginning of the piece `segment`.
    fn certain(segment: &[Unit]) -> String {
        let single = segment[0] == Unit::Char('\'');
        let changes = |unit: &Unit| match unit {
            Unit::Hole(_) => true,
            Unit::Char(c) => matches!(c, '$' | '`') && !single,
        };
        let end = match segment[0] {
            Unit::Char('\\') => segment.len(),
            _ => segment.iter().position(changes).unwrap_or(segment.len()),
        };
        fixed_text(&segment[..end])
    }

    /// Takes the piece `segment` into the word.
    fn add(&mut self, segment: &[Unit]) {
        self.lead = self.lead_with(segment);
        self.remainder.push_str(&Self::certain(segment));
        self.quoted |= matches!(segment[0], Unit::Char('\\' | '\'' | '"'));
        self.hole |= segment.iter().any(|unit| matches!(unit, Unit::Hole(_)));
        let expands = |unit: &Unit| matches!(unit, Unit::Hole(_) | Unit::Char('$' | '`'));
        let literal = matches!(segment[0], Unit::Char('\\'))
            || matches!(segment[0], Unit::Char('\''))
                && !segment.iter().any(|unit| matches!(unit, Unit::Hole(_)));
        self.dynamic |= !literal && segment.iter().any(expands);
        self.named |= segment.contains(&Unit::Char('='));
        self.text.push_str(&fixed_text(segment));
        outline::add(&mut self.pieces, segment);
    }
}

/// The characters of a piece of a word without the quotes around them.
fn fixed_text(segment: &[Unit]) -> String {
    let quote = match segment.first() {
        Some(Unit::Char(c @ ('\'' | '"' | '\\'))) => *c,
        _ => '\0',
    };
    let mut escaped = false;
    let mut text = String::new();
    for unit in segment {
        match *unit {
            Unit::Char('\\') if quote != '\'' && !escaped => escaped = true,
            Unit::Char(c) if c == quote && !escaped => {}
            Unit::Char('\n') if escaped => escaped = false,
            Unit::Char(c) => {
                text.push(c);
                escaped = false;
            }
            Unit::Hole(_) => escaped = false,
        }
    }
    text
}

/// Whether a word that begins like this may be an option.
pub(super) fn may_be_option(lead: &str) -> bool {
    lead.is_empty() || lead.starts_with('-')
}

/// Whether the word so far is `name[` with an open bracket.
fn is_subscript(text: &str) -> bool {
    text.split_once('[')
        .is_some_and(|(name, rest)| placeholder::is_name(name) && !rest.contains(']'))
}

/// Whether the text is `name[...]`.
fn is_element(text: &str) -> bool {
    text.split_once('[')
        .is_some_and(|(name, rest)| placeholder::is_name(name) && rest.ends_with(']'))
}
