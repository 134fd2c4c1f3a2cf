//! What people write that is no YAML, in words that say what to write instead.
//!
//! The parser says where it gave up, and on what; what was meant is read from the lines there. A mistake that is not
//! known here keeps the parser's own words.

use super::compose::{Fault, Flow};
use super::quoted;

/// What the parser said with `info` of `line` and `column` of `text`.
pub(super) fn explain(text: &str, info: &str, line: usize, column: usize) -> Fault {
    let place = Place { lines: text.lines().collect(), line, column };
    let known = match info {
        info if info.contains("tab") => place.tab(),
        "':' must be followed by a valid YAML whitespace" => place.tab(),
        "mapping values are not allowed in this context" => {
            place.second_colon().or_else(|| place.no_entry(line - 1)).or_else(|| place.too_deep())
        }
        "while parsing a block mapping, did not find expected key" => {
            place.behind_value().or_else(|| place.no_key())
        }
        "while parsing a block collection, did not find expected '-' indicator" => {
            place.no_list_entry()
        }
        "simple key expect ':'" | "simple key expected" => place.no_entry(line),
        "block sequence entries are not allowed in this context" => place.list_behind_key(),
        "while parsing node, found unknown anchor" => place.needs_quotes(),
        info if info.starts_with("unexpected character") => place.needs_quotes(),
        "while scanning a block scalar, did not find expected comment or line break" => {
            place.needs_quotes()
        }
        "while parsing a quoted scalar, found unknown escape character" => place.says(
            "a backslash in double quotes begins an escape, and this is none",
            "write the text in single quotes, or a backslash as `\\\\`",
        ),
        "invalid trailing content after double-quoted scalar" => place.says(
            "something stands behind the closing quote",
            "put quotes around the whole value; inside single quotes `'` is written twice",
        ),
        "while scanning a quoted scalar, found unexpected end of stream"
        | "while scanning a quoted scalar, found unexpected document indicator"
        | "invalid indentation in quoted scalar" => place.open_quote(),
        _ => None,
    };
    let plain = || Fault::new(line, column, format!("not valid YAML: {info}"), None);
    let fault = known.unwrap_or_else(plain);
    let flow = match info {
        "illegal placement of ':' indicator" => Some(place.flow()),
        info if info.contains("flow") => Some(place.flow()),
        info if info.contains("node content") => {
            Some(Flow::AtEnd).filter(|end| *end == place.flow())
        }
        _ => None,
    };
    Fault { flow, ..fault }
}

/// A place in a text.
struct Place<'t> {
    lines: Vec<&'t str>,
    line: usize,
    column: usize,
}

impl<'t> Place<'t> {
    /// The line of that number, counted from 1.
    fn source(&self, line: usize) -> &'t str {
        self.lines.get(line.wrapping_sub(1)).copied().unwrap_or_default()
    }

    fn fault(&self, line: usize, column: usize, message: String, help: String) -> Option<Fault> {
        Some(Fault::new(line, column, message, Some(help)))
    }

    fn says(&self, message: &str, help: &str) -> Option<Fault> {
        self.fault(self.line, self.column, message.to_owned(), help.to_owned())
    }

    /// Whether nothing stands behind it.
    fn flow(&self) -> Flow {
        let rest = self.source(self.line).chars().skip(self.column - 1);
        let mut below = self.lines.iter().skip(self.line);
        match rest.chain(below.by_ref().flat_map(|line| line.chars())).all(char::is_whitespace) {
            true => Flow::AtEnd,
            false => Flow::Inside,
        }
    }

    /// The first tab from here on that stands where a blank belongs.
    fn tab(&self) -> Option<Fault> {
        let indented = |line: &&str| indentation(line).contains('\t');
        let below = self.lines.iter().skip(self.line - 1).position(indented);
        let line = below.map_or(self.line, |below| self.line + below);
        let column = self.source(line).chars().position(|c| c == '\t')? + 1;
        let help = "write blanks for the tab".to_owned();
        self.fault(line, column, "a tab stands where YAML wants blanks".to_owned(), help)
    }

    /// `key: a text: with a colon`
    fn second_colon(&self) -> Option<Fault> {
        let (key, value) = entry(self.source(self.line))?;
        let holds = value.contains(": ") || value.ends_with(':');
        holds.then(|| {
            let help = format!("write `{key}: {}`", in_quotes(value));
            self.fault(
                self.line,
                self.column,
                "a text that holds `: ` needs quotes".to_owned(),
                help,
            )
        })?
    }

    /// The last line up to `line` that is not empty, when it is no `key: value`.
    fn no_entry(&self, line: usize) -> Option<Fault> {
        let is_said =
            |line: &usize| !matches!(self.source(*line).trim().chars().next(), None | Some('#'));
        let line = (1..=line.min(self.lines.len())).rev().find(is_said)?;
        let source = self.source(line);
        let (column, text) = (indentation(source).chars().count() + 1, source.trim());
        if let Some(rest) = text.strip_prefix('-').filter(|rest| !rest.starts_with(['-', ' '])) {
            let message = "`-` begins an entry of a list only with a blank behind it".to_owned();
            return self.fault(line, column, message, format!("write `- {rest}`"));
        }
        let text = text.trim_start_matches("- ");
        if text.contains(": ") || text.ends_with(':') {
            return None;
        }
        let help = match text.split_once(' ') {
            _ if self.source(line - 1).trim_end().ends_with(['|', '>', '-']) && line > 1 => {
                "indent the text deeper than the key that it belongs to".to_owned()
            }
            Some((key, value)) => format!("write `{key}: {value}`"),
            None => "write `key: value`".to_owned(),
        };
        self.fault(line, column, format!("`{text}` is no `key: value`"), help)
    }

    fn too_deep(&self) -> Option<Fault> {
        let column = indentation(self.source(self.line)).chars().count() + 1;
        let message = "indented deeper than the entry before it, which has its value already";
        let help = "indent it like that entry".to_owned();
        self.fault(self.line, column, message.to_owned(), help)
    }

    /// `key: [a] and more`
    fn behind_value(&self) -> Option<Fault> {
        let source = self.source(self.line);
        if self.column <= indentation(source).chars().count() + 1 {
            return None;
        }
        let (key, value) = entry(source)?;
        let first = value.chars().next().filter(|first| "[{".contains(*first))?;
        let message = format!("a text that begins with `{first}` needs quotes");
        self.fault(self.line, self.column, message, format!("write `{key}: {}`", in_quotes(value)))
    }

    fn no_key(&self) -> Option<Fault> {
        let text = self.source(self.line).trim();
        if text.starts_with("- ") {
            return self.says(
                "an entry of a list stands where a key is expected",
                "a list is either `[a, b]` or lines that begin with `- `; indent these deeper than their key",
            );
        }
        self.no_entry(self.line).or_else(|| {
            self.says(
                "indented like no entry before it",
                "indent it like the entries that it stands beside",
            )
        })
    }

    fn no_list_entry(&self) -> Option<Fault> {
        if self.source(self.line).trim().starts_with("- ") {
            return self.says(
                "indented like no entry of its list",
                "indent `- ` like the entries before it",
            );
        }
        self.says(
            "this is no entry of the list before it, and no key beside that list",
            "begin an entry with `- `; indent a further key of an entry like its first one",
        )
    }

    fn list_behind_key(&self) -> Option<Fault> {
        let (key, value) = entry(self.source(self.line))?;
        let message = format!("a list does not begin on the line of its key `{key}`");
        let help = format!(
            "write its entries on lines of their own; a text is `{key}: {}`",
            in_quotes(value)
        );
        self.fault(self.line, self.column, message, help)
    }

    /// A text that begins with a character that means something.
    fn needs_quotes(&self) -> Option<Fault> {
        let source = self.source(self.line);
        let first = source.chars().nth(self.column - 1)?;
        let (key, value) = entry(source).filter(|(_, value)| value.starts_with(first))?;
        let message = format!("a text that begins with `{first}` needs quotes");
        let lines = match first {
            '|' | '>' => format!("; a text of several lines begins on the line below `{first}`"),
            _ => String::new(),
        };
        let help = format!("write `{key}: {}`{lines}", in_quotes(value));
        self.fault(self.line, self.column, message, help)
    }

    fn open_quote(&self) -> Option<Fault> {
        let is_quote = |column: usize| {
            let found = self.source(self.line).chars().nth(column.wrapping_sub(1));
            found.is_some_and(|c| c == '"' || c == '\'')
        };
        let column = [self.column, self.column - 1].into_iter().find(|column| is_quote(*column))?;
        let help = "close it; a text of several lines stands under `|`".to_owned();
        self.fault(self.line, column, "this quote is not closed".to_owned(), help)
    }
}

/// The blanks and tabs at the beginning of a line.
fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The key and the value of a line, without its comment.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.trim().trim_start_matches("- ").split_once(": ")?;
    let value = value.split_once(" #").map_or(value, |(value, _)| value).trim();
    Some((key, value)).filter(|(_, value)| !value.is_empty())
}

fn in_quotes(text: &str) -> String {
    match text.contains('\'') {
        true => quoted(text),
        false => format!("'{text}'"),
    }
}
