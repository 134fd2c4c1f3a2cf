//! Hides sensitive answers everywhere on the page.

use serde_json::Value as Json;

/// Shorter answers are hidden only where they are given as the answer: elsewhere they would blank out ordinary words.
const MIN_ANSWER_CHARS: usize = 4;
/// Replaces a sensitive answer.
pub const HIDDEN_ANSWER: &str = "[hidden]";

/// Hides `answers` in every string of `value`, also where a string holds JSON, or JSON inside JSON.
pub fn hide_answers_in_json(value: &mut Json, answers: &[String]) {
    let mut forms: Vec<String> = Vec::new();
    for answer in answers.iter().map(|answer| answer.trim()) {
        if answer.chars().count() >= MIN_ANSWER_CHARS {
            let escaped = escape_json_text(answer);
            forms.extend([escape_json_text(&escaped), escaped, answer.to_owned()]);
        }
    }
    // An answer that contains another one is replaced before it.
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms.dedup();
    replace_in_texts(value, &forms);
}

fn replace_in_texts(value: &mut Json, forms: &[String]) {
    match value {
        Json::String(text) => {
            for form in forms {
                if text.contains(form.as_str()) {
                    *text = text.replace(form.as_str(), HIDDEN_ANSWER);
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| replace_in_texts(item, forms)),
        Json::Object(fields) => {
            fields.values_mut().for_each(|field| replace_in_texts(field, forms));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn escape_json_text(text: &str) -> String {
    let quoted = Json::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_18_4_an_answer_is_hidden_in_every_form() {
        let answer = "pass\"word\n";
        let message = json!({"role": "tool", "content": answer}).to_string();
        let nested = json!({"arguments": message}).to_string();
        let mut value = json!({"plain": format!("it is pass\"word!"), "list": [message, nested]});
        hide_answers_in_json(&mut value, &[answer.to_owned(), "ab".to_owned()]);
        assert_eq!(value["plain"], "it is [hidden]!");
        assert!(!value.to_string().contains("word"), "{value}");
    }
}
