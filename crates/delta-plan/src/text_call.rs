//! Finds a call that an LLM has written as text: models do that whose server does not parse their calls.
//!
//! delta never runs such a call: the text may as well be a quotation.

use delta_llm::llm::{call_marker_positions, find_earlier_call_marker};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value as Json;

/// The words between the mark of a call and the name of its tool, in the forms of all families of models.
const SYNTAX_WORDS: [&str; 32] = [
    "tool_call",
    "tool_calls",
    "TOOL_CALLS",
    "tool_calls_section_begin",
    "tool_call_begin",
    "tool▁calls▁begin",
    "tool▁call▁begin",
    "tool▁sep",
    "minimax:tool_call",
    "DSML",
    "python_tag",
    "python_start",
    "function",
    "function_call",
    "function_calls",
    "invoke",
    "tool_name",
    "type",
    "name",
    "start",
    "assistant",
    "channel",
    "commentary",
    "to",
    "TOOLCALL",
    "START_ACTION",
    "action_start",
    "plugin",
    "tools_prefix",
    "start_function_call",
    "steptml:invoke",
    "functools",
];
/// The members of JSON in which models write the name of a tool, and its arguments.
const NAME_MEMBERS: [&str; 4] = ["name", "tool_name", "tool", "function"];
const ARGUMENT_MEMBERS: [&str; 4] = ["arguments", "parameters", "input", "args"];
/// What ends a JSON whose end the model left out.
const JSON_ENDS: [&str; 3] = ["}", "]", "}]"];
/// The most words between a mark and the name.
const MAX_SYNTAX_WORDS: usize = 16;
/// The most bytes of a name that no tool has.
const MAX_NAME_BYTES: usize = 64;

/// The name of the tool that `text` calls: of an offered one if the whole text is a call, a fenced block of it is one, or one
/// follows the mark of a family of models; of any if the mark begins a line.
pub fn find_text_call(text: &str, offered: &[&str]) -> Option<String> {
    let fenced = ["```", "~~~"].into_iter().flat_map(|fence| fenced_blocks(text, fence));
    let mut candidates = [text.trim()].into_iter().chain(fenced).chain(json_ends(text));
    let plain = candidates.find_map(|it| offered_name(&any_called_name(it)?, offered));
    plain.map(str::to_owned).or_else(|| {
        call_marker_positions(text).find_map(|at| {
            let word = marked_name(&text[at..])?;
            let name = marked_tool_name(&word);
            let before = text[..at].trim_end_matches([' ', '\t']);
            let begins_line = before.is_empty() || before.ends_with('\n');
            let may_be_name = name.is_ascii() && name.len() <= MAX_NAME_BYTES;
            let is_call = offered.contains(&name) || begins_line && may_be_name;
            is_call.then(|| name.to_owned())
        })
    })
}

/// The name of the offered tool that `text` calls, in a run with rules before 3.
pub fn find_earlier_text_call(text: &str, offered: &[&str]) -> Option<String> {
    let marked = find_earlier_call_marker(text).into_iter().filter_map(|marker| {
        let (_, call) = text.split_once(marker)?;
        Some(call.split("</").next().unwrap_or_default().trim())
    });
    let mut candidates = [text.trim()].into_iter().chain(fenced_blocks(text, "```")).chain(marked);
    candidates.find_map(|it| offered_name(&called_name(it)?, offered)).map(str::to_owned)
}

/// The offered tool that is meant by the name in a call.
fn offered_name<'a>(called: &str, offered: &[&'a str]) -> Option<&'a str> {
    let name = plain_tool_name(called);
    offered.iter().find(|known| **known == name).copied()
}

/// The name that is meant by a name as a model writes it: `functions.add` and `add(17, 25)` are `add`.
pub fn plain_tool_name(name: &str) -> &str {
    let name = name.split('(').next().unwrap_or_default().trim();
    name.rsplit(['.', ':', '/']).next().unwrap_or_default()
}

/// The fenced blocks of a text.
fn fenced_blocks<'a>(text: &'a str, fence: &'a str) -> impl Iterator<Item = &'a str> {
    // Every other part is between two fences.
    text.split(fence).skip(1).step_by(2).map(|block| {
        let (language, code) = block.split_once('\n').unwrap_or(("", block));
        if language.contains(['{', '(']) { block.trim() } else { code.trim() }
    })
}

/// The end of a text, from the first line that begins as a JSON or a list of calls does, or from the last one, if it is nothing
/// else.
fn json_ends(text: &str) -> impl Iterator<Item = &str> {
    let starts = ["\n{", "\n["];
    let first = starts.into_iter().filter_map(|start| text.find(start)).min();
    let last = starts.into_iter().filter_map(|start| text.rfind(start)).max();
    first.into_iter().chain(last).map(|at| text[at..].trim()).filter(|end| {
        serde_json::from_str::<IgnoredAny>(end).is_ok() || name_in_code(end).is_some()
    })
}

/// The name in a call that begins with a mark, as the model wrote it: the `name` of an object, or the first word that is no
/// syntax, if it is followed by arguments or the end of its mark, and not by more prose.
fn marked_name(call: &str) -> Option<String> {
    let begins_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = call;
    for _ in 0..MAX_SYNTAX_WORDS {
        rest = &rest[rest.find(|c| c == '{' || begins_word(c))?..];
        if let Some(members) = rest.strip_prefix('{') {
            if let Some(name) = any_called_name(rest) {
                return Some(name);
            }
            rest = members;
            continue;
        }
        let end = rest.find(|c| !begins_word(c) && !"-.:▁".contains(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if !SYNTAX_WORDS.contains(&word.trim_end_matches(':')) {
            let next = after.trim_start();
            let is_call = after.starts_with(['(', '{', '[', '<', '>', '"', '\'', '|'])
                || ["<", "{", "```", "json"].iter().any(|start| next.starts_with(start));
            return is_call.then(|| word.to_owned());
        }
        rest = after;
    }
    None
}

/// The name that is meant by the one after a mark: `functions.add:0`, `call:add` and `add.call` are `add`.
fn marked_tool_name(word: &str) -> &str {
    let word = match word.rsplit_once(':') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => word,
    };
    plain_tool_name(word.strip_suffix(".call").unwrap_or(word))
}

/// The name of the tool that `text` calls in any syntax without a mark.
fn any_called_name(text: &str) -> Option<String> {
    name_in_code(text)
        .map(str::to_owned)
        .or_else(|| name_in_loose_json(text))
        .or_else(|| called_name(text))
        .or_else(|| name_before_arguments(text).map(str::to_owned))
}

/// The name in JSON whose end may be missing.
fn name_in_loose_json(text: &str) -> Option<String> {
    let mut values = serde_json::Deserializer::from_str(text);
    let value = Json::deserialize(&mut values).ok().or_else(|| {
        JSON_ENDS.iter().find_map(|end| serde_json::from_str(&format!("{text}{end}")).ok())
    });
    any_name_in_json(&value?).map(str::to_owned)
}

/// The name in a call of GLM or Gemma whose opening mark the server has removed.
fn name_before_arguments(text: &str) -> Option<&str> {
    let glm = text.split_once("<arg_key>");
    let (name, _) = glm.or_else(|| text.strip_prefix("call:")?.split_once('{'))?;
    Some(name.trim())
}

/// The first name in one or several calls in the syntax of programming languages, alone, in a list or printed.
fn name_in_code(text: &str) -> Option<&str> {
    let list = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let printed = text.strip_prefix("print(").and_then(|text| text.strip_suffix(')'));
    let mut rest = list.or(printed).unwrap_or(text);
    let mut first = None;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == ';');
        if rest.is_empty() {
            return first;
        }
        let (name, arguments) = rest.split_once('(')?;
        if !is_callable_name(name) {
            return None;
        }
        first = first.or(Some(name));
        rest = &arguments[end_of_arguments(arguments)?..];
    }
}

/// The position after the parenthesis that ends the arguments.
fn end_of_arguments(text: &str) -> Option<usize> {
    let mut depth = 1;
    let mut quote = None;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if std::mem::take(&mut is_escaped) => {}
            '\\' => is_escaped = true,
            _ if quote.is_some() => quote = quote.filter(|open| *open != c),
            '"' | '\'' => quote = Some(c),
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn is_callable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c))
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
            let is_call = arguments.ends_with(')') && !arguments.contains('\n');
            (is_call && is_callable_name(name)).then(|| name.to_owned())
        }
    }
}

fn any_name_in_json(value: &Json) -> Option<&str> {
    let value = value.get("tool_calls").unwrap_or(value);
    let value = value.get(0).unwrap_or(value);
    let call = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
    let is_arguments = match ARGUMENT_MEMBERS.iter().find_map(|name| call.get(*name))? {
        Json::Object(_) | Json::String(_) | Json::Null => true,
        Json::Array(items) => items.is_empty(),
        _ => false,
    };
    let name = NAME_MEMBERS.iter().find_map(|name| call.get(*name)?.as_str());
    name.filter(|_| is_arguments)
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
        let offered = ["add", "write_file"];
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
            assert_eq!(find_text_call(text, &offered).as_deref(), Some("add"), "{text}");
            let earlier = find_earlier_text_call(text, &offered);
            assert_eq!(earlier.as_deref(), Some("add"), "{text}");
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
            "Models write `<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>` then.",
            "> The docs say:\n<tool_call> is a mark\nthat models write",
            "The mark <tool_call>sum</tool_call> is of Qwen.",
            "",
        ] {
            assert_eq!(find_text_call(text, &offered), None, "{text}");
        }
        assert_eq!(["functions.add", "add(17, 25)", "add"].map(plain_tool_name), ["add"; 3]);
    }

    #[test]
    fn c_37_7_a_call_in_the_form_of_each_family_is_found() {
        for text in [
            "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
            "<function=add>{\"a\": 1}</function>",
            "<function=add{\"a\": 1}</function>",
            "[TOOL_CALLS]add[ARGS]{\"a\": 1}",
            "[TOOL_CALLS]add{\"a\": 1}",
            "<|python_tag|>add.call(a=1)",
            "<|python_start|>[add(a=1)]",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1}\n```",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1}",
            "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"add\">\n",
            "<minimax:tool_call>\n<invoke name=\"add\">\n",
            "<function_calls>\n<invoke name=\"add\">\n",
            "<|tool_call>call:add{a:<|\"|>1<|\"|>}<tool_call|>",
            "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
            "commentary to=functions.add json{\"a\": 1}",
            "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
            "<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"add\"}",
            "<tool_call>\n{'name': 'add', 'arguments': {'a': 1}}\n</tool_call>",
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1,}}\n</tool_call>",
            "<tool_call>{\"name\": \"add\"}</tool_call>",
            "I add. <tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
            "hm</think><tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
            "Let me check.[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {}}]",
        ] {
            assert_eq!(find_text_call(text, &["sum", "add"]).as_deref(), Some("add"), "{text}");
        }
        for text in [
            "[add(a=17)]",
            "[add(a=17, b=25), sum()]",
            "add(\n  a=17,\n  b=\"it's (1\"\n)",
            "```python\nadd(\n  a=17,\n)\n```",
            "```tool_code\nprint(default_api.add(a=17))\n```",
            "add(a=17);",
            "add(a=17)\nsum()",
            "~~~json\n{\"name\": \"add\", \"arguments\": {}}\n~~~",
            "I add:\n\n{\"name\": \"add\", \"arguments\": {\"a\": [1]}}",
            "I add.\n[add(a=17)]",
            "[1] says how:\n[2] and this.\n{\"name\": \"add\", \"arguments\": {}}",
            "I add twice:\n{\"name\": \"add\", \"arguments\": {}}\n{\"name\": \"add\", \"arguments\": {}}",
            "{\"name\": \"add\", \"arguments\": {\"a\": 1}",
            "{\"name\": \"add\", \"arguments\": null}",
            "{\"name\": \"add\", \"arguments\": []}",
            "{\"tool_calls\": [{\"name\": \"add\", \"arguments\": {}}]}",
            "{\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"add\", \"arguments\": \"{}\"}}]}",
            "{\"type\": \"tool_use\", \"id\": \"1\", \"name\": \"add\", \"input\": {}}",
            "{\"tool\": \"add\", \"args\": {\"a\": 1}}",
            "Action: ```json\n[\n  {\"tool_name\": \"add\", \"parameters\": {}}\n]```",
            "<tool_calls>\n[{\"name\": \"add\", \"arguments\": {}}]\n</tool_calls>",
            "<TOOLCALL>[{\"name\": \"add\", \"arguments\": {}}]</TOOLCALL>",
            "<|START_ACTION|>[\n  {\"tool_call_id\": \"0\", \"tool_name\": \"add\", \"parameters\": {}}\n]<|END_ACTION|>",
            "functools[{\"name\": \"add\", \"arguments\": {}}]",
            "<|action_start|><|plugin|>{\"name\": \"add\", \"parameters\": {}}<|action_end|>",
            "<start_function_call>call:add{a:<escape>1<escape>}<end_function_call>",
            "<|tools_prefix|>[{\"add\": {\"a\": 1}}]<|tools_suffix|>",
            "<steptml:invoke name=\"add\"><steptml:parameter name=\"a\">1</steptml:parameter>",
            "<｜｜DSML｜｜tool_calls>\n<｜｜DSML｜｜invoke name=\"add\">",
            "call:add{a:1}",
            "add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        ] {
            assert_eq!(find_text_call(text, &["sum", "add"]).as_deref(), Some("add"), "{text}");
        }
        for text in [
            "add(a=1)\n\nThis adds (if you want).",
            "[add] is the tool (of two).",
            "add(a=1, b=2",
            "I would write:\n{\"name\": \"add\", \"arguments\": {}}\nand then wait.",
            "Recall: the call: add is (not) made.",
            "{\"name\": \"add\", \"version\": 2}",
            "[1, 2]",
            "<tool name=\"hammer\"/>",
        ] {
            assert_eq!(find_text_call(text, &["sum", "add"]), None, "{text}");
        }
        let unknown = "<tool_call>\n{\"name\": \"addd\", \"arguments\": {}}\n</tool_call>";
        assert_eq!(find_text_call(unknown, &["add"]).as_deref(), Some("addd"));
        assert_eq!(find_earlier_text_call(unknown, &["add"]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(<tool_call>|[`{}\\[\\]()a-d\" :,\n<>/▁'.|]){0,60}") {
            let _ = find_text_call(&text, &["a"]);
            let _ = find_earlier_text_call(&text, &["a"]);
        }
    }
}
