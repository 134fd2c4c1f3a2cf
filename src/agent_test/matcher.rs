//! What a text or a value of a run is expected to be, and how it differs. Pure.

use crate::text::{not_a_pattern, printable};
use crate::tool::value_text;
use crate::yaml::shape::{Key, Shape};
use crate::yaml::{Document, Mapping, Node};
use regex::Regex;
use serde_json::Value as Json;
use similar::TextDiff;

/// A text, or what it has to have.
pub const MATCH: Shape = Shape::Either(&[Shape::Text, Shape::Mapping(&MATCHER)]);

static MATCHER: Mapping = Mapping {
    what: "an expectation",
    about: "What a text or a value has to be; all of it must hold.",
    keys: &[EQUALS, INCLUDES, CONTAINS, MATCHES],
    one_of: &[],
    open: false,
};

/// The same for a file, which may have to be missing.
pub const FILE_MATCH: Shape = Shape::Either(&[Shape::Text, Shape::Mapping(&FILE_MATCHER)]);

static FILE_MATCHER: Mapping = Mapping {
    what: "an expectation of a file",
    about: "What a file has to be; all of it must hold.",
    keys: &[
        EQUALS,
        INCLUDES,
        CONTAINS,
        MATCHES,
        Key::optional("exists", Shape::Boolean, "Whether there is such a file or directory."),
    ],
    one_of: &[],
    open: false,
};

const EQUALS: Key =
    Key::optional("equals", Shape::Any, "Exactly this text, or as JSON exactly this value.");
const INCLUDES: Key = Key::optional(
    "includes",
    Shape::Any,
    "As JSON this value, in which objects may have more keys than are written here.",
);
const CONTAINS: Key = Key::optional(
    "contains",
    Shape::Either(&[Shape::Text, Shape::List(&Shape::Text)]),
    "This text, or each of these, stands in it.",
);
const MATCHES: Key = Key::optional(
    "matches",
    Shape::Text,
    "A regular expression that matches somewhere in it; `(?s)\\A...\\z` for all of it.",
);

/// What a text or a value is expected to be.
#[derive(Debug, Default)]
pub struct Matcher {
    equals: Option<Json>,
    includes: Option<Json>,
    contains: Vec<String>,
    matches: Option<Regex>,
    /// Of a file: whether it is there.
    exists: Option<bool>,
}

impl Matcher {
    /// Reads what is expected of the thing that `what` names.
    pub fn read(doc: &Document, node: &Node, what: &str) -> Option<Self> {
        Self::read_as(doc, node, what, &MATCHER)
    }

    /// Reads what is expected of a file.
    pub fn read_of_file(doc: &Document, node: &Node, what: &str) -> Option<Self> {
        Self::read_as(doc, node, what, &FILE_MATCHER)
    }

    fn read_as(doc: &Document, node: &Node, what: &str, mapping: &'static Mapping) -> Option<Self> {
        if let Some(text) = node.scalar().filter(|_| !node.is_null()) {
            return Some(Self { equals: Some(Json::from(text)), ..Self::default() });
        }
        if !node.items().is_empty() {
            let message = format!("{what} must be a text or a mapping, not a list");
            doc.fault(node, message, Some("write `{equals: [...]}`".to_owned()));
            return None;
        }
        if node.entries().is_empty() {
            let help = format!("write a text, or `{{contains: TEXT}}`, for {what}");
            doc.fault(node, format!("{what} expects nothing"), Some(help));
            return None;
        }
        let fields = doc.fields_of(what, node, mapping)?;
        let json = |key: &str| doc.json(fields.get(key)?);
        let contains = match fields.given("contains") {
            Some(node) if node.scalar().is_some() => vec![node.scalar()?.to_owned()],
            Some(node) => doc.texts(node, "`contains`")?,
            None => Vec::new(),
        };
        let matches = fields.given("matches").and_then(|node| {
            let read = Regex::new(node.scalar()?);
            if let Err(error) = &read {
                doc.fault(node, not_a_pattern(error), None);
            }
            read.ok()
        });
        let of_file = mapping.key("exists").is_some();
        let exists = fields.node.get("exists").filter(|_| of_file).and_then(Node::scalar);
        let exists = exists.map(|text| text == "true");
        let found =
            Self { equals: json("equals"), includes: json("includes"), contains, matches, exists };
        if found.exists == Some(false) && found.wants_content() {
            doc.fault(
                node,
                format!("{what} is not there and still expected to hold something"),
                None,
            );
        }
        Some(found)
    }

    fn wants_content(&self) -> bool {
        let Self { equals, includes, contains, matches, exists: _ } = self;
        equals.is_some() || includes.is_some() || !contains.is_empty() || matches.is_some()
    }

    /// How `value` differs from what is expected; nothing when it does not.
    pub fn differences(&self, value: &Json) -> Vec<String> {
        let text = value_text(value);
        let mut found = Vec::new();
        if let Some(expected) = &self.equals {
            found.extend(unequal(expected, value, &text));
        }
        if let Some(expected) = &self.includes {
            found.extend(match as_value(expected, value) {
                Some(value) => missing(expected, &value, ""),
                None => Some(format!("is not JSON{}", shown(&text))),
            });
        }
        for part in self.contains.iter().filter(|part| !text.contains(part.as_str())) {
            found.push(format!("does not contain {}{}", quoted(part), shown(&text)));
        }
        if let Some(pattern) = self.matches.as_ref().filter(|pattern| !pattern.is_match(&text)) {
            found.push(format!("does not match {}{}", quoted(pattern.as_str()), shown(&text)));
        }
        found
    }

    /// How a file differs: `Some` with its content, `None` for one that is not there. `is_dir` says that it is a
    /// directory.
    pub fn differences_of_file(&self, content: Option<&[u8]>, is_dir: bool) -> Vec<String> {
        match (content, self.exists) {
            (None, Some(false)) if !is_dir => Vec::new(),
            (_, Some(false)) => vec!["is there, and should not be".to_owned()],
            (None, Some(true)) if is_dir && !self.wants_content() => Vec::new(),
            (None, _) if is_dir => vec!["is a directory".to_owned()],
            (None, _) => vec!["is not there".to_owned()],
            (Some(bytes), _) => {
                self.differences(&Json::from(String::from_utf8_lossy(bytes).into_owned()))
            }
        }
    }
}

/// The value that is compared with `expected`: what a text says as JSON when a text is not what is expected.
fn as_value(expected: &Json, value: &Json) -> Option<Json> {
    match value {
        Json::String(text) if !expected.is_string() => serde_json::from_str(text).ok(),
        other => Some(other.clone()),
    }
}

fn unequal(expected: &Json, value: &Json, text: &str) -> Option<String> {
    match expected {
        Json::String(expected) if expected == text => None,
        Json::String(expected) => Some(text_difference(expected, text)),
        expected => match as_value(expected, value) {
            Some(value) if value == *expected => None,
            Some(value) => Some(value_difference(expected, &value)),
            None => Some(format!("is not JSON{}", shown(text))),
        },
    }
}

/// What of `expected` is not in `value`, of which objects may have more keys.
pub fn missing(expected: &Json, value: &Json, place: &str) -> Option<String> {
    match (expected, value) {
        (Json::Object(wanted), Json::Object(found)) => {
            wanted.iter().find_map(|(key, wanted)| match found.get(key) {
                Some(found) => missing(wanted, found, &format!("{place}.{key}")),
                None => Some(format!("has no {place}.{key}")),
            })
        }
        (Json::Array(wanted), Json::Array(found)) if wanted.len() == found.len() => {
            let pairs = wanted.iter().zip(found).enumerate();
            pairs.into_iter().find_map(|(index, (wanted, found))| {
                missing(wanted, found, &format!("{place}[{index}]"))
            })
        }
        (wanted, found) if wanted == found => None,
        (wanted, found) => {
            let at = if place.is_empty() { String::new() } else { format!("at {place} ") };
            Some(format!("{at}{}", value_difference(wanted, found)))
        }
    }
}

/// How two values differ, in one line where both are short.
fn value_difference(expected: &Json, found: &Json) -> String {
    if let (Json::String(expected), Json::String(found)) = (expected, found) {
        return text_difference(expected, found);
    }
    let (one, other) = (expected.to_string(), found.to_string());
    if is_short(&one) && is_short(&other) {
        return format!("is {other}, not {one}");
    }
    let pretty = |value: &Json| serde_json::to_string_pretty(value).unwrap_or_default();
    text_difference(&pretty(expected), &pretty(found))
}

/// Whether a text fits into the sentence about it.
fn is_short(text: &str) -> bool {
    text.chars().count() <= 100 && !text.trim_end().contains('\n')
}

fn text_difference(expected: &str, found: &str) -> String {
    if is_short(expected) && is_short(found) {
        return format!("is {}, not {}", quoted(found), quoted(expected));
    }
    let diff = TextDiff::from_lines(expected, found);
    let diff = diff.unified_diff().context_radius(2).missing_newline_hint(true).to_string();
    // Where a part begins, and not on which line.
    let lines = diff.lines().enumerate().filter_map(|(index, line)| match line {
        line if !line.starts_with("@@ ") => Some(line),
        _ => (index > 0).then_some("…"),
    });
    let lines: Vec<&str> = lines.collect();
    format!("differs (`-` is expected, `+` is there):{}", block(&lines.join("\n")))
}

/// The text that was found, behind what is wrong with it.
fn shown(text: &str) -> String {
    match is_short(text) {
        true => format!("; it is {}", quoted(text)),
        false => format!("; it is:{}", block(text)),
    }
}

/// So much of a text is shown.
const MOST_LINES: usize = 40;

/// Lines of their own, each with a mark before it.
pub fn block(text: &str) -> String {
    let text = printable(text);
    let mut out = String::new();
    for line in text.lines().take(MOST_LINES) {
        out.push_str("\n| ");
        out.extend(line.chars().take(400));
    }
    match text.lines().count().saturating_sub(MOST_LINES) {
        0 => {}
        more => out.push_str(&format!("\n| … {more} more lines")),
    }
    out
}

/// A text on one line.
fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Report;
    use serde_json::json;

    fn matcher(yaml: &str) -> Matcher {
        let doc = Document::parse("t.yaml", yaml).unwrap();
        let found = Matcher::read_of_file(&doc, &doc.root, "`result`");
        let mut report = Report::default();
        doc.finish(&mut report);
        assert!(report.is_empty(), "{report}");
        found.unwrap()
    }

    #[test]
    fn c_17_3_each_kind_of_expectation_says_how_a_value_differs() {
        let cases = [
            ("hello", json!("hello"), None),
            ("5", json!(5), None),
            ("hello", json!("hell"), Some(r#"is "hell", not "hello""#)),
            ("{equals: {a: [1]}}", json!({"a": [1]}), None),
            ("{equals: {a: [1]}}", json!("{\"a\": [1]}"), None),
            ("{equals: {a: 1}}", json!({"a": 1, "b": 2}), Some(r#"is {"a":1,"b":2}, not {"a":1}"#)),
            (
                "|\n  a\n  b\n",
                json!("a\nc\n"),
                Some("differs (`-` is expected, `+` is there):\n|  a\n| -b\n| +c"),
            ),
            ("{includes: {a: {b: 1}}}", json!({"a": {"b": 1, "c": 2}}), None),
            ("{includes: {a: {b: 1}}}", json!({"a": {"b": 2}}), Some("at .a.b is 2, not 1")),
            ("{includes: {a: 1}}", json!({}), Some("has no .a")),
            ("{includes: {a: 1}}", json!("x"), Some(r#"is not JSON; it is "x""#)),
            ("{contains: [a, b]}", json!("xay"), Some(r#"does not contain "b"; it is "xay""#)),
            ("{matches: '^\\d+$'}", json!("x1"), Some(r#"does not match "^\\d+$"; it is "x1""#)),
            ("{matches: '^\\d+$', contains: '1'}", json!("21"), None),
        ];
        for (yaml, value, expected) in cases {
            let found = matcher(yaml).differences(&value);
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(found, expected, "{yaml} {value}");
        }
    }

    #[test]
    fn c_17_3_a_file_may_have_to_be_missing() {
        let there = Some(&b"x"[..]);
        assert_eq!(matcher("{exists: false}").differences_of_file(None, false), [""; 0]);
        assert_eq!(matcher("{exists: true}").differences_of_file(None, true), [""; 0]);
        let wrong = [
            matcher("{exists: false}").differences_of_file(there, false),
            matcher("{exists: false}").differences_of_file(None, true),
            matcher("{exists: true}").differences_of_file(None, false),
            matcher("x").differences_of_file(None, true),
            matcher("{contains: y}").differences_of_file(there, false),
        ];
        assert_eq!(
            wrong.concat(),
            [
                "is there, and should not be",
                "is there, and should not be",
                "is not there",
                "is a directory",
                "does not contain \"y\"; it is \"x\"",
            ]
        );
    }
}
