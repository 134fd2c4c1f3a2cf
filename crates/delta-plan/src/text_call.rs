//! Finds a call that an LLM has written as text: models do that whose server does not parse their calls.
//!
//! delta never runs such a call: the text may as well be a quotation.

use delta_llm::llm::find_call_marker;
use serde::Deserialize;
use serde_json::Value as Json;

/// The name of the offered tool that `text` calls, if the whole text is a call, a fenced block of it is one, or one follows
/// the mark of a family of models.
pub fn find_text_call<'a>(text: &str, offered: &[&'a str]) -> Option<&'a str> {
    candidates(text).find_map(|candidate| {
        let called = called_name(candidate)?;
        let name = plain_tool_name(&called);
        offered.iter().find(|known| **known == name).copied()
    })
}

/// The name that is meant by a name as a model writes it: `functions.add` and `add(17, 25)` are `add`.
pub fn plain_tool_name(name: &str) -> &str {
    let name = name.split('(').next().unwrap_or_default().trim();
    name.rsplit(['.', ':', '/']).next().unwrap_or_default()
}

/// The texts that may be calls.
fn candidates(text: &str) -> impl Iterator<Item = &str> {
    // Every other part is between two fences.
    let fenced = text.split("```").skip(1).step_by(2).map(|block| {
        let (language, code) = block.split_once('\n').unwrap_or(("", block));
        if language.contains(['{', '(']) { block } else { code }
    });
    let marked = find_call_marker(text).into_iter().filter_map(|marker| {
        let (_, call) = text.split_once(marker)?;
        Some(call.split("</").next().unwrap_or_default())
    });
    [text].into_iter().chain(fenced).chain(marked).map(str::trim)
}

/// The name of the tool that `text` calls, whether there is such a tool or not.
fn called_name(text: &str) -> Option<String> {
    match text.chars().next()? {
        '{' | '[' => {
            let mut values = serde_json::Deserializer::from_str(text);
            name_in_json(&Json::deserialize(&mut values).ok()?).map(str::to_owned)
        }
        _ => {
            let (name, arguments) = text.split_once('(')?;
            let is_name =
                !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
            let is_call = arguments.ends_with(')') && !arguments.contains('\n');
            (is_call && is_name).then(|| name.to_owned())
        }
    }
}

fn name_in_json(value: &Json) -> Option<&str> {
    let value = value.get(0).unwrap_or(value);
    let call = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
    let arguments = call.get("arguments").or_else(|| call.get("parameters"))?;
    let is_call = matches!(arguments, Json::Object(_) | Json::String(_));
    call.get("name")?.as_str().filter(|_| is_call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn c_37_7_a_call_of_an_offered_tool_is_found_and_other_text_is_not() {
        let found = |text: &str| find_text_call(text, &["add", "write_file"]);
        for text in [
            r#"{"name": "add", "parameters": {"a": 17, "b": 25}}"#,
            r#"[{"name": "add", "arguments": "{}"}]"#,
            r#"{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}"#,
            "I call it:\n```json\n{\"name\": \"add\", \"arguments\": {}}\n```\n",
            "```\nadd(17, 25)\n```",
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
            "add(a=17, b=25)",
            "functions.add(a=17, b=25)",
            "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {}}]",
        ] {
            assert_eq!(found(text), Some("add"), "{text}");
        }
        for text in [
            "42",
            r#"{"name": "sum", "arguments": {}}"#,
            r#"{"name": "add"}"#,
            r#"{"name": "add", "arguments": 3}"#,
            "sum(1, 2)",
            "You can add(17, 25) with it.",
            "The call add(a=1) is right.",
            "```python\nprint(1)\n```",
            "",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(["functions.add", "add(17, 25)", "add"].map(plain_tool_name), ["add"; 3]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[`{}\\[\\]()a-d\" :,\n<>/]{0,60}") {
            let _ = find_text_call(&text, &["a"]);
        }
    }
}
