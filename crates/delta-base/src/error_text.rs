//! What errors say to users: the line that helps, and the errors of libraries in their words.

/// What a user can do about an error, which is printed after `help: `: a text, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HelpLine(pub Option<String>);

impl From<&str> for HelpLine {
    fn from(text: &str) -> Self {
        Self(Some(text.to_owned()))
    }
}

impl From<String> for HelpLine {
    fn from(text: String) -> Self {
        Self(Some(text))
    }
}

impl From<Option<String>> for HelpLine {
    fn from(text: Option<String>) -> Self {
        Self(text)
    }
}

/// The reason of a JSON error in the words of a user: without the terms of Rust, and without a position.
pub fn describe_json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    if text.starts_with("EOF while parsing") {
        return "incomplete JSON".to_owned();
    }
    [
        ("expected value", "not JSON"),
        ("expected ident", "not JSON"),
        ("unknown field ", "unknown key "),
        ("missing field ", "there is no "),
        ("unknown variant ", "unknown value "),
        (", expected one of ", "; known here: "),
        (", expected ", "; expected here: "),
    ]
    .iter()
    .fold(text.to_owned(), |text, (from, to)| text.replacen(from, to, 1))
}

/// The reason of a regular expression error: the last line, after a drawing of the pattern.
pub fn describe_regex_error(error: &regex::Error) -> String {
    let error = error.to_string();
    let reason = error.lines().last().unwrap_or_default();
    format!("not a regular expression: {}", reason.strip_prefix("error: ").unwrap_or(reason))
}
