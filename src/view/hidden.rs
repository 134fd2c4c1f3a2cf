//! Sensitive answers of people, taken out of the page wherever they turn up.

use serde_json::Value as Json;

/// A shorter answer would tear holes into plain words; where it is given as an answer it is hidden at any length.
const SHORTEST: usize = 4;
/// What stands in the place of an answer.
pub const HIDDEN: &str = "[hidden]";

/// Hides `answers` in every text of `value`, also in a text that holds JSON, or JSON in JSON.
pub fn hide(value: &mut Json, answers: &[String]) {
    let mut forms: Vec<String> = Vec::new();
    let long = answers.iter().map(|answer| answer.trim());
    for answer in long.filter(|answer| answer.chars().count() >= SHORTEST) {
        let once = escaped(answer);
        forms.extend([escaped(&once), once, answer.to_owned()]);
    }
    // Of two that begin alike the longer one goes first.
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms.dedup();
    walk(value, &forms);
}

fn walk(value: &mut Json, forms: &[String]) {
    match value {
        Json::String(text) => {
            for form in forms {
                if text.contains(form.as_str()) {
                    *text = text.replace(form.as_str(), HIDDEN);
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| walk(item, forms)),
        Json::Object(fields) => fields.values_mut().for_each(|field| walk(field, forms)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn escaped(text: &str) -> String {
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
        hide(&mut value, &[answer.to_owned(), "ab".to_owned()]);
        assert_eq!(value["plain"], "it is [hidden]!");
        assert!(!value.to_string().contains("word"), "{value}");
    }
}
