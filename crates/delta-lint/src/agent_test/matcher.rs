//! The comparison of a text or a value of a run with what a test expects.

use delta_agent::tool::value_text;
use delta_base::error_text::describe_regex_error;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::text::text_diff::LineDiff;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use regex::Regex;
use serde_json::Value as Json;

/// The shape of an expected text or value.
pub const MATCH_SHAPE: ValueShape =
    ValueShape::OneOf(&[ValueShape::Text, ValueShape::Mapping(&MATCHER_MAPPING)]);

static MATCHER_MAPPING: MappingSchema = MappingSchema::new(
    "an expectation",
    "The expectations of a text or a value; all must hold.",
    &[EQUALS_KEY, INCLUDES_KEY, CONTAINS_KEY, MATCHES_KEY],
);

/// The shape of an expected file, which may have to be missing.
pub const FILE_MATCH_SHAPE: ValueShape =
    ValueShape::OneOf(&[ValueShape::Text, ValueShape::Mapping(&FILE_MATCHER_MAPPING)]);

static FILE_MATCHER_MAPPING: MappingSchema = MappingSchema::new(
    "an expectation of a file",
    "The expectations of a file; all must hold.",
    &[
        EQUALS_KEY,
        INCLUDES_KEY,
        CONTAINS_KEY,
        MATCHES_KEY,
        KeySchema::optional("exists", ValueShape::Boolean, "Whether the file or directory exists."),
    ],
);

const EQUALS_KEY: KeySchema = KeySchema::optional(
    "equals",
    ValueShape::Any,
    "Exactly this text; as JSON exactly this value.",
);
const INCLUDES_KEY: KeySchema = KeySchema::optional(
    "includes",
    ValueShape::Any,
    "As JSON this value, in which objects may have more keys.",
);
const CONTAINS_KEY: KeySchema = KeySchema::optional(
    "contains",
    ValueShape::OneOf(&[ValueShape::Text, ValueShape::List(&ValueShape::Text)]),
    "Contains this text, or each of a list of texts.",
);
const MATCHES_KEY: KeySchema = KeySchema::optional(
    "matches",
    ValueShape::Text,
    "A regular expression that matches anywhere in it; `(?s)\\A...\\z` for all of it.",
);

/// The expectations of a text, a value or a file.
#[derive(Debug, Default)]
pub struct Matcher {
    equals: Option<Json>,
    includes: Option<Json>,
    contains: Vec<String>,
    matches: Option<Regex>,
    /// Of a file only.
    exists: Option<bool>,
}

impl Matcher {
    /// Reads the expectations of the text or value that `label` names; reports errors to `doc`.
    pub fn read(doc: &YamlDocument, node: &YamlNode, label: &str) -> Option<Self> {
        Self::read_with(doc, node, label, &MATCHER_MAPPING)
    }

    /// Reads the expectations of a file, which may include `exists`.
    pub fn read_for_file(doc: &YamlDocument, node: &YamlNode, label: &str) -> Option<Self> {
        let mut matcher = Self::read_with(doc, node, label, &FILE_MATCHER_MAPPING)?;
        matcher.exists =
            node.get("exists").and_then(YamlNode::scalar).map(|exists| exists == "true");
        if matcher.exists == Some(false) && matcher.expects_content() {
            let message = format!("{label} has `exists: false`, but also expects content");
            doc.report(node, message, None);
        }
        Some(matcher)
    }

    fn read_with(
        doc: &YamlDocument,
        node: &YamlNode,
        label: &str,
        mapping: &'static MappingSchema,
    ) -> Option<Self> {
        if node.is_null() {
            // The mapping around it has reported it.
            return None;
        }
        if let Some(text) = node.scalar() {
            return Some(Self { equals: Some(Json::from(text)), ..Self::default() });
        }
        if !node.items().is_empty() {
            let message = format!("{label} must be a text or a mapping, not a list");
            doc.report(node, message, "write `{equals: [...]}`");
            return None;
        }
        if node.entries().is_empty() {
            let help = format!("write a text, or `{{contains: TEXT}}`, for {label}");
            doc.report(node, format!("{label} is empty"), help);
            return None;
        }
        let fields = doc.fields_labelled(label, node, mapping)?;
        let contains = match fields.non_null("contains") {
            Some(node) if node.scalar().is_some() => vec![node.scalar()?.to_owned()],
            Some(node) => doc.expect_texts(node, "`contains`")?,
            None => Vec::new(),
        };
        Some(Self {
            equals: fields.get("equals").and_then(|node| doc.to_json(node)),
            includes: fields.get("includes").and_then(|node| doc.to_json(node)),
            contains,
            matches: fields.non_null("matches").and_then(|node| read_regex(doc, node)),
            exists: None,
        })
    }

    fn expects_content(&self) -> bool {
        let Self { equals, includes, contains, matches, exists: _ } = self;
        equals.is_some() || includes.is_some() || !contains.is_empty() || matches.is_some()
    }

    /// The predicates of sentences that say how `value` differs from the expectations.
    pub fn differences(&self, value: &Json) -> Vec<String> {
        let text = value_text(value);
        let mut differences = Vec::new();
        if let Some(expected) = &self.equals {
            differences.extend(equality_difference(expected, value, &text));
        }
        if let Some(expected) = &self.includes {
            differences.extend(match to_comparable(expected, value) {
                Some(value) => inclusion_difference(expected, &value, ""),
                None => Some(format!("is not JSON{}", actual_text(&text))),
            });
        }
        for part in self.contains.iter().filter(|part| !text.contains(part.as_str())) {
            differences.push(format!(
                "does not contain {}{}",
                quote_text(part),
                actual_text(&text)
            ));
        }
        if let Some(pattern) = self.matches.as_ref().filter(|pattern| !pattern.is_match(&text)) {
            let pattern = quote_text(pattern.as_str());
            differences.push(format!("does not match {pattern}{}", actual_text(&text)));
        }
        differences
    }

    /// The same for a file with this content; `None` if it does not exist or is a directory.
    pub fn file_differences(&self, content: Option<&[u8]>, is_dir: bool) -> Vec<String> {
        let exists = content.is_some() || is_dir;
        if self.exists == Some(false) {
            return if exists { vec!["exists, but should not".to_owned()] } else { Vec::new() };
        }
        if let Some(bytes) = content {
            return self.differences(&Json::from(String::from_utf8_lossy(bytes).into_owned()));
        }
        if !is_dir {
            return vec!["does not exist".to_owned()];
        }
        if self.exists == Some(true) && !self.expects_content() {
            return Vec::new();
        }
        vec!["is a directory".to_owned()]
    }
}

fn read_regex(doc: &YamlDocument, node: &YamlNode) -> Option<Regex> {
    match Regex::new(node.scalar()?) {
        Ok(regex) => Some(regex),
        Err(error) => {
            doc.report(node, describe_regex_error(&error), None);
            None
        }
    }
}

/// The value to compare with `expected`: a text is parsed as JSON unless a text is expected.
fn to_comparable(expected: &Json, value: &Json) -> Option<Json> {
    match value {
        Json::String(text) if !expected.is_string() => serde_json::from_str(text).ok(),
        other => Some(other.clone()),
    }
}

fn equality_difference(expected: &Json, value: &Json, text: &str) -> Option<String> {
    match expected {
        Json::String(expected) if expected == text => None,
        Json::String(expected) => Some(text_difference(expected, text)),
        expected => match to_comparable(expected, value) {
            Some(value) if value == *expected => None,
            Some(value) => Some(value_difference(expected, &value)),
            None => Some(format!("is not JSON{}", actual_text(text))),
        },
    }
}

/// The first difference between `expected` and `actual`, whose objects may have more keys. `path` is the location of both
/// in the whole value, such as `.a[0]`.
pub fn inclusion_difference(expected: &Json, actual: &Json, path: &str) -> Option<String> {
    match (expected, actual) {
        (Json::Object(expected), Json::Object(actual)) => {
            expected.iter().find_map(|(key, expected)| match actual.get(key) {
                Some(actual) => inclusion_difference(expected, actual, &format!("{path}.{key}")),
                None => Some(format!("has no {path}.{key}")),
            })
        }
        (Json::Array(expected), Json::Array(actual)) if expected.len() == actual.len() => {
            expected.iter().zip(actual).enumerate().find_map(|(index, (expected, actual))| {
                inclusion_difference(expected, actual, &format!("{path}[{index}]"))
            })
        }
        (expected, actual) if expected == actual => None,
        (expected, actual) => {
            let location = if path.is_empty() { String::new() } else { format!("at {path} ") };
            Some(format!("{location}{}", value_difference(expected, actual)))
        }
    }
}

/// How two values differ, on one line if both are short.
fn value_difference(expected: &Json, actual: &Json) -> String {
    if let (Json::String(expected), Json::String(actual)) = (expected, actual) {
        return text_difference(expected, actual);
    }
    let expected_line = expected.to_string();
    let actual_line = actual.to_string();
    if fits_on_a_line(&expected_line) && fits_on_a_line(&actual_line) {
        return format!("is {actual_line}, not {expected_line}");
    }
    let render = |value: &Json| serde_json::to_string_pretty(value).unwrap_or_default();
    text_difference(&render(expected), &render(actual))
}

/// Whether a text is short enough for the sentence about it.
fn fits_on_a_line(text: &str) -> bool {
    text.chars().count() <= 100 && !text.trim_end().contains('\n')
}

fn text_difference(expected: &str, actual: &str) -> String {
    if fits_on_a_line(expected) && fits_on_a_line(actual) {
        return format!("is {}, not {}", quote_text(actual), quote_text(expected));
    }
    let LineDiff { hunks, .. } = LineDiff::new(expected, actual, 2);
    // A hunk has no line numbers: they mean little in a text that is not a file.
    let lines = hunks.lines().enumerate().filter_map(|(index, line)| match line {
        line if !line.starts_with("@@ ") => Some(line),
        _ => (index > 0).then_some("…"),
    });
    let lines: Vec<&str> = lines.collect();
    format!("differs (`-` expected, `+` actual):{}", quote_block(&lines.join("\n")))
}

/// The end of a message, which quotes the actual text.
fn actual_text(text: &str) -> String {
    if fits_on_a_line(text) {
        format!("; it is {}", quote_text(text))
    } else {
        format!("; it is:{}", quote_block(text))
    }
}

/// The most lines of a text that a message quotes.
const MAX_BLOCK_LINES: usize = 40;
/// The most characters of a line that a message quotes.
const MAX_LINE_CHARS: usize = 400;

/// Quotes a text below a message: each line begins with a mark, and long texts are cut.
pub fn quote_block(text: &str) -> String {
    let text = strip_terminal_controls(text);
    let mut out = String::new();
    for line in text.lines().take(MAX_BLOCK_LINES) {
        out.push_str("\n| ");
        out.extend(line.chars().take(MAX_LINE_CHARS));
    }
    let omitted = text.lines().count().saturating_sub(MAX_BLOCK_LINES);
    if omitted > 0 {
        out.push_str(&format!("\n| … {omitted} more lines"));
    }
    out
}

/// Quotes a text on one line.
fn quote_text(text: &str) -> String {
    Json::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_yaml::diagnostic::DiagnosticReport;
    use serde_json::json;

    fn matcher(yaml: &str) -> Matcher {
        let doc = YamlDocument::parse("t.yaml", yaml).unwrap();
        let matcher = Matcher::read_for_file(&doc, &doc.root, "`result`");
        let mut report = DiagnosticReport::default();
        doc.drain_diagnostics(&mut report);
        assert!(report.is_empty(), "{report}");
        matcher.unwrap()
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
                Some("differs (`-` expected, `+` actual):\n|  a\n| -b\n| +c"),
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
            let differences = matcher(yaml).differences(&value);
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(differences, expected, "{yaml} {value}");
        }
    }

    #[test]
    fn c_17_3_a_file_may_have_to_be_missing() {
        let content = Some(&b"x"[..]);
        assert_eq!(matcher("{exists: false}").file_differences(None, false), [""; 0]);
        assert_eq!(matcher("{exists: true}").file_differences(None, true), [""; 0]);
        let differences = [
            matcher("{exists: false}").file_differences(content, false),
            matcher("{exists: false}").file_differences(None, true),
            matcher("{exists: true}").file_differences(None, false),
            matcher("x").file_differences(None, true),
            matcher("{contains: y}").file_differences(content, false),
        ];
        assert_eq!(
            differences.concat(),
            [
                "exists, but should not",
                "exists, but should not",
                "does not exist",
                "is a directory",
                "does not contain \"y\"; it is \"x\"",
            ]
        );
    }
}
