//! What to write in place of a value of the wrong kind, guessed from the value.

use super::{YamlNode, YamlValue, is_plain_text, to_flow_entry, to_flow_yaml};

/// The longest proposal: a longer one is as hard to read as the file.
const MAX_PROPOSAL_CHARS: usize = 90;

/// The key that `label` has in backquotes, with a colon, for a proposal that begins with it.
fn key_prefix(label: &str) -> String {
    let name = label.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    name.map(|name| format!("{name}: ")).unwrap_or_default()
}

/// The help for a value that must be a mapping: its entries, if it is a list of them.
pub(super) fn mapping_help(node: &YamlNode, label: &str) -> Option<String> {
    let entries: Option<Vec<String>> = match &node.value {
        YamlValue::Scalar { text, .. } => assigned_entry(text).map(|entry| vec![entry]),
        YamlValue::Sequence(items) => items.iter().map(listed_entry).collect(),
        YamlValue::Mapping(_) => None,
    };
    let entries = entries.filter(|entries| !entries.is_empty())?;
    let proposal = format!("{}{{{}}}", key_prefix(label), entries.join(", "));
    (proposal.chars().count() <= MAX_PROPOSAL_CHARS).then(|| format!("write `{proposal}`"))
}

/// The entry that `NAME=VALUE` is meant for.
fn assigned_entry(text: &str) -> Option<String> {
    let (name, value) = text.split_once('=')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    is_name.then(|| format!("{name}: {}", plain_or_quoted(value)))
}

/// The entry that an item of a list is meant for: `NAME=VALUE`, `{NAME: VALUE}`, or a mapping with the name as a value.
fn listed_entry(item: &YamlNode) -> Option<String> {
    if let Some(text) = item.scalar() {
        return assigned_entry(text);
    }
    match item.entries() {
        [(key, value)] => Some(to_flow_entry(key, value)),
        [(first, name), (_, value)]
            if first.scalar() == Some("name") && value.scalar().is_some() =>
        {
            Some(to_flow_entry(name, value))
        }
        [(first, name), others @ ..] if first.scalar() == Some("name") => {
            let others: Vec<String> =
                others.iter().map(|(key, value)| to_flow_entry(key, value)).collect();
            Some(format!("{}: {{{}}}", name.scalar()?, others.join(", ")))
        }
        _ => None,
    }
}

/// A text as a value in braces, with quotes only where it needs them.
fn plain_or_quoted(text: &str) -> String {
    let is_safe = !text.is_empty()
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./=@+".contains(c));
    if is_safe && is_plain_text(text) { text.to_owned() } else { super::quote_yaml(text) }
}

/// The help for a value that must be a list of mappings: the list with the one mapping.
pub(super) fn single_item_help(node: &YamlNode, label: &str) -> Option<String> {
    let proposal = format!("{}[{}]", key_prefix(label), to_flow_yaml(node));
    let is_item = !node.entries().is_empty() && proposal.chars().count() <= MAX_PROPOSAL_CHARS;
    is_item.then(|| format!("write `{proposal}`"))
}

/// The help for a text in place of a list of texts.
pub(super) fn text_list_help(node: &YamlNode, label: &str) -> Option<String> {
    let text = node.scalar()?;
    // A list of a boolean or a number would be read as texts, and mean nothing.
    if node.kind() != "a string" {
        return None;
    }
    let list = if label == "`command`" && is_plain_command(text) {
        text.split_whitespace().collect::<Vec<_>>().join(", ")
    } else {
        to_flow_yaml(node)
    };
    Some(format!("write `{}[{list}]`", key_prefix(label)))
}

/// Whether a text has nothing but words that a list in YAML can have without quotes.
pub fn is_plain_command(text: &str) -> bool {
    !text.trim().is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " -_./=@+".contains(c))
}

/// The help for a value that must be `true` or `false`.
pub(super) fn boolean_help(node: &YamlNode) -> Option<String> {
    let word = match node.scalar()?.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "1" => "true",
        "false" | "no" | "off" | "n" | "0" | "none" | "never" => "false",
        _ => return None,
    };
    let is_quoted = matches!(&node.value, YamlValue::Scalar { is_plain: false, .. });
    let quotes = if is_quoted { ", without quotes" } else { "" };
    Some(format!("write `{word}`{quotes}"))
}

/// The help for a value that must be a whole number: the same number as one.
pub(super) fn integer_help(node: &YamlNode) -> Option<String> {
    let text = node.scalar()?;
    if matches!(&node.value, YamlValue::Scalar { is_plain: false, .. }) {
        let number: u64 = text.trim().parse().ok()?;
        return Some(format!("write `{number}`, without quotes"));
    }
    let digits: String = text.chars().filter(|c| !matches!(c, '_' | ',')).collect();
    let number: u64 = digits.parse().ok().filter(|_| digits != text)?;
    Some(format!("write `{number}`"))
}

/// The help for a value that must be a number: the number in the text.
pub(super) fn number_help(node: &YamlNode) -> Option<String> {
    let text = node.scalar()?;
    let number = text.trim().trim_start_matches('$').trim_end_matches("USD").trim();
    let parsed: f64 = number.parse().ok()?;
    let is_other = number != text || node.plain_number().is_none();
    let quotes = if number == text { ", without quotes" } else { "" };
    (is_other && parsed.is_finite()).then(|| format!("write `{number}`{quotes}"))
}
