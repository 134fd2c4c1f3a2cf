//! Redacts the answers to sensitive questions: the journal contains them, its readers hide them.

use super::{SecretPattern, StreamRedactor, redact_text};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::sync::Arc;

/// The replacement for a sensitive answer.
pub const HIDDEN: &str = "[hidden]";

/// Shorter answers, and lines of answers, would also match inside ordinary words.
const MIN_CHARS: usize = 4;

/// Sensitive answers, in every form in which a text can hold them.
#[derive(Clone, Default)]
pub struct HiddenAnswers {
    patterns: Arc<[SecretPattern]>,
}

/// Redacts `answers` in `text`, as [`HiddenAnswers::redact`] does.
pub fn redact_answers(answers: &[String], text: String) -> String {
    if answers.is_empty() {
        return text;
    }
    HiddenAnswers::new(answers).redact_string(text)
}

/// Whether [`redact_answers`] replaces a sensitive answer.
pub fn is_redactable_answer(answer: &str) -> bool {
    answer.trim().chars().count() >= MIN_CHARS
}

// The answers must not appear in debug output either.
impl std::fmt::Debug for HiddenAnswers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HiddenAnswers").finish_non_exhaustive()
    }
}

impl HiddenAnswers {
    /// The answers of four or more characters.
    pub fn new<'a>(answers: impl IntoIterator<Item = &'a String>) -> Self {
        let mut parts = Vec::new();
        for answer in answers {
            // A diff, a list with numbers and a folded output have the lines of an answer one by one.
            let lines = std::iter::once(answer.as_str()).chain(answer.lines());
            parts.extend(lines.map(str::trim).filter(|part| is_redactable_answer(part)));
        }
        // Longest first: what has another part in it is replaced before that one.
        parts.sort_by_key(|part| (std::cmp::Reverse(part.len()), *part));
        parts.dedup();
        let patterns = parts.iter().enumerate();
        let patterns = patterns.flat_map(|(index, part)| SecretPattern::spelled(part, index));
        Self { patterns: patterns.collect() }
    }

    /// Whether there is nothing to redact.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether `text` contains an answer.
    pub fn occur_in(&self, text: &str) -> bool {
        matches!(self.redact(text), Cow::Owned(_))
    }

    /// Replaces every answer in `text` by [`HIDDEN`], and every line of an answer of several lines: plain, escaped once or
    /// twice in JSON, and percent-encoded.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        redact_text(&self.patterns, text, HIDDEN)
    }

    /// As [`HiddenAnswers::redact`], without a copy when `text` contains no answer.
    pub fn redact_string(&self, text: String) -> String {
        match self.redact(&text) {
            Cow::Owned(redacted) => redacted,
            Cow::Borrowed(_) => text,
        }
    }

    /// Redacts every string in `value`, also the names of members.
    pub fn redact_json(&self, value: &mut Json) {
        match value {
            Json::String(text) => *text = self.redact_string(std::mem::take(text)),
            Json::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Json::Object(fields) => {
                if fields.keys().any(|name| self.occur_in(name)) {
                    let named = std::mem::take(fields).into_iter();
                    *fields =
                        named.map(|(name, field)| (self.redact_string(name), field)).collect();
                }
                fields.values_mut().for_each(|field| self.redact_json(field));
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    /// Redacts a text that may be a JSON object: then it is one afterwards too. An answer that ends in a quote would
    /// otherwise take the end of a string with it.
    pub fn redact_json_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(before) = serde_json::from_str::<Json>(text).ok().filter(Json::is_object) else {
            return self.redact(text);
        };
        let mut redacted = before.clone();
        self.redact_json(&mut redacted);
        if redacted == before { Cow::Borrowed(text) } else { Cow::Owned(redacted.to_string()) }
    }

    /// A filter that redacts a stream of bytes.
    pub fn stream_redactor(&self) -> StreamRedactor {
        StreamRedactor::new(Arc::clone(&self.patterns), HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_25_4_sensitive_answers_are_redacted_in_a_stream() {
        let answers = ["  hunter2 ".to_owned(), "abc".to_owned()];
        for size in 1..9 {
            let mut stream = HiddenAnswers::new(&answers).stream_redactor();
            let mut out = Vec::new();
            for piece in b"abc hunt hunter2!".chunks(size) {
                out.extend_from_slice(&stream.push(piece));
            }
            assert_eq!(out, b"abc hunt [hidden]!", "pieces of {size}");
        }
    }

    #[test]
    fn c_18_4_an_answer_is_hidden_in_every_form() {
        let answer = "pass\"word\n";
        let message = json!({"role": "tool", "content": answer}).to_string();
        let nested = json!({"arguments": message}).to_string();
        let mut value = json!({"plain": format!("it is pass\"word!"), "list": [message, nested]});
        value["pass\"word"] = 1.into();
        HiddenAnswers::new(&[answer.to_owned(), "ab".to_owned()]).redact_json(&mut value);
        assert_eq!((&value["plain"], &value["[hidden]"]), (&json!("it is [hidden]!"), &json!(1)));
        assert!(!value.to_string().contains("word"), "{value}");
    }

    #[test]
    fn c_19_8_an_answer_with_a_quote_leaves_json_whole() {
        let answers = HiddenAnswers::new(&["ends\"".to_owned()]);
        for (text, redacted) in [
            (r#"{"c":"it ends"}"#, r#"{"c":"it ends"}"#),
            (r#"{ "c": "it ends\"" }"#, r#"{"c":"it [hidden]"}"#),
            (r#"it "ends""#, r#"it "[hidden]"#),
        ] {
            assert_eq!(answers.redact_json_text(text), redacted);
        }
    }

    #[test]
    fn c_18_4_the_lines_of_an_answer_are_hidden_one_by_one() {
        let answers = HiddenAnswers::new(&["BEGIN KEY\r\nAbC+/1\nx\n".to_owned()]);
        let text = "got BEGIN KEY\r\nAbC+/1\nx\n@@\n+BEGIN KEY\n+AbC+/1\n+x\n{\"k\": \"AbC+\\/1\"}";
        let redacted = "got [hidden]\n@@\n+[hidden]\n+[hidden]\n+x\n{\"k\": \"[hidden]\"}";
        assert_eq!(answers.redact(text), redacted);
    }
}
