//! SKILL.md: its front matter, checked against the specification of Agent Skills, and its text.

use super::MAX_DESCRIPTION_CHARS;
use delta_base::text::without_byte_order_mark;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use std::path::Path;

const MAX_NAME_CHARS: usize = 64;
const MAX_COMPATIBILITY_CHARS: usize = 500;
const FENCE: &str = "---";

static SKILL_MAPPING: MappingSchema = MappingSchema::new(
    "the front matter of a skill",
    "What a skill is for.",
    &[
        KeySchema::required(
            "name",
            ValueShape::Text,
            "Its name, which is also the name of its directory.",
        ),
        KeySchema::required("description", ValueShape::Text, "What it does, and when to use it."),
        KeySchema::optional("license", ValueShape::Text, "Its license."),
        KeySchema::optional("compatibility", ValueShape::Text, "What it needs."),
        KeySchema::optional("metadata", ValueShape::TextMap, "Anything else."),
        KeySchema::optional(
            "allowed-tools",
            ValueShape::Any,
            "The tools that it may use, in other programs; delta does not use it.",
        ),
    ],
);

/// The front matter of a skill, as far as it can be used.
pub(super) struct SkillFile {
    /// Not empty.
    pub(super) description: Option<String>,
    /// The name of the file.
    pub(super) file: String,
}

/// The keys that tell the LLM what a skill is for.
const TEXT_KEYS: [&str; 2] = ["name", "description"];

impl SkillFile {
    /// Reads the text of `file` in `dir`, the directory of the skill, which is called `dir_name`. Every problem is added to `report`;
    /// `None` if there is no front matter.
    pub(super) fn parse(
        dir: &Path,
        file: &str,
        text: &str,
        dir_name: &str,
        report: &mut DiagnosticReport,
    ) -> Option<Self> {
        let path = dir.join(file).display().to_string();
        let Some((front_matter, body)) = split_front_matter(text) else {
            let (message, help) = if begins_front_matter(text) {
                (
                    "the front matter of the skill is not closed",
                    "write a line `---` after its last key",
                )
            } else {
                (
                    "the skill has no front matter",
                    "begin the file with a line `---`, `name:` and `description:`, and another line `---`",
                )
            };
            report.push(Diagnostic::for_file(path, message, help));
            return None;
        };
        let parsed = YamlDocument::parse(path.as_str(), front_matter).or_else(|diagnostic| {
            // Other programs read these values to the end of their lines.
            YamlDocument::parse(path.as_str(), quote_plain_values(front_matter))
                .map_err(|_| diagnostic)
        });
        let doc = match parsed {
            Ok(doc) => doc,
            Err(diagnostic) => {
                report.push(diagnostic);
                // A mistake in another value does not hide what the skill is for.
                let texts = only_texts(&quote_plain_values(front_matter));
                YamlDocument::parse(path.as_str(), texts).ok()?
            }
        };
        if let Some(fields) = doc.fields(&doc.root, &SKILL_MAPPING) {
            // Without quotes, YAML reads it as no value.
            let example = if dir_name == "null" { "\"null\"" } else { dir_name };
            if let Some(node) = fields.require("name", example) {
                check_name(&doc, node, dir_name, example);
            }
            if let Some(node) = fields.require("description", "What it does, and when to use it") {
                check_field_length(&doc, node, "description", MAX_DESCRIPTION_CHARS);
            }
            if let Some(node) = fields.non_null("compatibility") {
                check_field_length(&doc, node, "compatibility", MAX_COMPATIBILITY_CHARS);
            }
            for key in ["license", "metadata"] {
                fields.non_null(key);
            }
        }
        if body.trim().is_empty() {
            let help = "write the instructions after the front matter";
            doc.report(&doc.root, "the skill has no instructions", help);
        }
        let description = doc.root.get("description").and_then(YamlNode::scalar).map(str::trim);
        let description = description.filter(|text| !text.is_empty()).map(str::to_owned);
        doc.drain_diagnostics(report);
        Some(Self { description, file: file.to_owned() })
    }
}

/// The front matter with quotes around the plain values of its top-level keys, on the same lines. The indented lines after a
/// value belong to it.
fn quote_plain_values(front_matter: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    // The line in which the last plain value ends.
    let mut open: Option<usize> = None;
    for line in front_matter.lines() {
        let is_indented = line.starts_with([' ', '\t']) || line.is_empty();
        let value = line.split_once(':').filter(|(key, value)| {
            let is_key = key.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
            !is_indented && is_key && value.starts_with([' ', '\t'])
        });
        let value = value.map(|(key, value)| (key, value.trim()));
        match (value, open) {
            (Some((key, value)), _) if is_plain_value(key, value) => {
                close(&mut lines, open);
                open = Some(lines.len());
                lines.push(format!("{key}: '{}", value.replace('\'', "''")));
            }
            (None, Some(end)) if is_indented => {
                if !line.trim().is_empty() {
                    open = Some(lines.len().max(end));
                }
                lines.push(line.replace('\'', "''"));
            }
            _ => {
                close(&mut lines, open.take());
                lines.push(line.to_owned());
            }
        }
    }
    close(&mut lines, open);
    lines.join("\n")
}

/// The front matter with its name and description alone, on the same lines.
fn only_texts(front_matter: &str) -> String {
    let mut is_text = false;
    let lines = front_matter.lines().map(|line| {
        if !line.starts_with([' ', '\t']) && !line.is_empty() {
            let key = line.split(':').next().unwrap_or_default();
            is_text = TEXT_KEYS.contains(&key);
        }
        if is_text { line } else { "" }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a value has no quotes around it, and is neither a block nor a list.
fn is_plain_value(key: &str, value: &str) -> bool {
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
    let is_quoted = quote.is_some_and(|quote| value.len() > 1 && value.ends_with(quote));
    let is_text = TEXT_KEYS.contains(&key);
    let is_list = value.starts_with(['[', '{']) && !is_text;
    // A name needs no quotes, and what follows it may be a comment.
    let mut words = value.split_whitespace();
    let is_name = key == "name"
        && words.next().is_some_and(is_skill_name)
        && words.next().is_some_and(|word| word.starts_with('#'));
    let is_other = value.is_empty() || value.starts_with(['|', '>', '#']);
    !is_other && !is_quoted && !is_list && !is_name
}

fn close(lines: &mut [String], end: Option<usize>) {
    if let Some(line) = end.and_then(|end| lines.get_mut(end)) {
        line.push('\'');
    }
}

/// Checks the name in the front matter; `example` is the one of the directory as YAML.
fn check_name(doc: &YamlDocument, node: &YamlNode, dir_name: &str, example: &str) {
    let Some(name) = node.scalar() else { return };
    if !is_skill_name(name) {
        let help = "use 1 to 64 lower-case letters, digits and single hyphens between them";
        doc.report(node, format!("`{name}` is not the name of a skill"), help);
    } else if name != dir_name {
        let message = format!("the skill `{name}` is in the directory `{dir_name}`");
        doc.report(node, message, format!("write `name: {example}`, or rename the directory"));
    }
}

fn check_field_length(doc: &YamlDocument, node: &YamlNode, key: &str, limit: usize) {
    let Some(text) = node.scalar() else { return };
    let count = text.chars().count();
    if text.trim().is_empty() {
        doc.report(node, format!("`{key}` is empty"), None);
    } else if count > limit {
        let message = format!("`{key}` has {count} characters, more than {limit}");
        doc.report(node, message, "move details into the instructions");
    }
}

/// Whether `name` is the name of a skill: lower-case letters, digits, and single hyphens between them.
pub(super) fn is_skill_name(name: &str) -> bool {
    let is_short = name.chars().count() <= MAX_NAME_CHARS;
    is_short
        && name.split('-').all(|word| {
            !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() && !c.is_uppercase())
        })
}

/// Whether the first line of a skill is the one before the front matter.
fn begins_front_matter(text: &str) -> bool {
    let text = without_byte_order_mark(text);
    text.trim_start().lines().next().is_some_and(|line| line.trim_end() == FENCE)
}

/// The front matter with its first fence, so that its lines have the numbers of the file, and the text after it.
pub(super) fn split_front_matter(text: &str) -> Option<(&str, &str)> {
    let text = without_byte_order_mark(text);
    let mut end = 0;
    let mut is_open = false;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_end() == FENCE;
        // `...` also ends a YAML document.
        if is_open && (is_fence || line.trim_end() == "...") {
            return Some((&text[..end], &text[end + line.len()..]));
        }
        if !is_open && !is_fence && !line.trim().is_empty() {
            return None;
        }
        is_open |= is_fence;
        end += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{is_skill_name, quote_plain_values, split_front_matter};
    use proptest::prelude::*;

    #[test]
    fn c_24_2_a_skill_has_a_name_of_words_and_hyphens() {
        for name in ["a", "pdf-reader", "2-go", "ünïcode", &"a".repeat(64)] {
            assert!(is_skill_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a--b", "A", "a_b", "a b", "../a", "a/b", ".", &"a".repeat(65)]
        {
            assert!(!is_skill_name(name), "{name}");
        }
    }

    #[test]
    fn c_24_2_plain_values_are_quoted_to_the_end_of_their_lines() {
        for (front_matter, expected) in [
            (
                "---\nname: a  # mine\ndescription: b: c's\n",
                "---\nname: a  # mine\ndescription: 'b: c''s'",
            ),
            ("---\nname: A b\n", "---\nname: 'A b'"),
            (
                "---\ndescription: b: c\n  d: e\n\n  f\nx: |\n  y: 'z'\n",
                "---\ndescription: 'b: c\n  d: e\n\n  f'\nx: |\n  y: 'z'",
            ),
            (
                "---\ndescription: [OLD] b: c\ntags: [a]\nm:\n  k: v\n",
                "---\ndescription: '[OLD] b: c'\ntags: [a]\nm:\n  k: v",
            ),
            (
                "---\ndescription: \"b\" c: d\nname: \"e\"\n",
                "---\ndescription: '\"b\" c: d'\nname: \"e\"",
            ),
        ] {
            assert_eq!(quote_plain_values(front_matter), expected);
        }
    }

    #[test]
    fn c_24_2_front_matter_is_between_two_lines() {
        let split = split_front_matter("---\nname: a\n---\n\nbody\n---\nmore");
        assert_eq!(split, Some(("---\nname: a\n", "\nbody\n---\nmore")));
        assert_eq!(split_front_matter("\n---\na: 1\n...\nb"), Some(("\n---\na: 1\n", "b")));
        assert_eq!(split_front_matter("\u{feff}---\r\na: 1\r\n---"), Some(("---\r\na: 1\r\n", "")));
        for text in
            ["", "---", "---\n", "---\nname: a\n", "# Title\n---\na: 1\n---\n", "----\n---\n"]
        {
            assert_eq!(split_front_matter(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn c_24_2_nothing_of_the_text_is_lost(text in "(---\n|a: b\n|\u{feff}|--|x){0,8}") {
            if let Some((front_matter, body)) = split_front_matter(&text) {
                let stripped = text.strip_prefix('\u{feff}').unwrap_or(&text);
                let rest = stripped.strip_prefix(front_matter).unwrap();
                prop_assert_eq!(rest.strip_prefix("---").unwrap().trim_start_matches('\n'), body.trim_start_matches('\n'));
            }
        }
    }
}
