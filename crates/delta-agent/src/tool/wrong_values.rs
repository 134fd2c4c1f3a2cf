//! What to write in place of values that authors write by mistake in a tool.

use delta_base::quantity::parse_bytes;
use delta_yaml::yaml::{YamlNode, is_plain_command, quote_yaml, to_flow_entry, to_flow_yaml};

/// The longest proposal: a longer one is as hard to read as the file.
const MAX_PROPOSAL_CHARS: usize = 90;

/// The words of a list, joined by blanks; `None` if one of them needs quotes.
fn joined_words(node: &YamlNode) -> Option<String> {
    let words: Option<Vec<&str>> = node.items().iter().map(YamlNode::scalar).collect();
    let words = words.filter(|words| !words.is_empty())?;
    let is_plain = words.iter().all(|word| {
        let rest = word.replace("${", "").replace('}', "");
        is_plain_command(&rest) && !rest.contains(' ')
    });
    is_plain.then(|| words.join(" "))
}

/// A line as a value that can be in braces too.
fn quoted_line(line: &str) -> String {
    if line.contains('{') { quote_yaml(line) } else { line.to_owned() }
}

/// A name in place of a tool.
pub(super) fn tool_help(node: &YamlNode) -> String {
    let name = node.scalar().filter(|name| super::is_tool_name(name)).unwrap_or("list_files");
    format!("write `{{name: {name}, exec: PROGRAM}}`")
}

/// A list in place of the line of `exec`.
pub(super) fn one_line_help(node: &YamlNode) -> Option<String> {
    node.items().first()?;
    Some(match joined_words(node) {
        Some(line) => format!("write `exec: {}`", quoted_line(&line)),
        None => "write one line, such as `exec: PROGRAM ${param}`; a list belongs under `command:`, where a parameter is `{template: '${param}'}`".to_owned(),
    })
}

/// A list in place of the script of `shell`.
pub(super) fn script_help(node: &YamlNode) -> Option<String> {
    node.items().first()?;
    Some(match joined_words(node) {
        Some(line) => format!("write `shell: {}`", quoted_line(&line)),
        None => "write one text, or the lines of the script after `shell: |`".to_owned(),
    })
}

/// A line in place of the list of `command`.
pub(super) fn command_help(node: &YamlNode) -> Option<String> {
    let line = node.scalar()?;
    if is_plain_command(line) {
        let words: Vec<&str> = line.split_whitespace().collect();
        return Some(format!("write `command: [{}]`, or `exec: {line}`", words.join(", ")));
    }
    let key = if line.contains(['|', '>', '<', '&', ';', '\n']) { "shell" } else { "exec" };
    Some(format!("write `{key}:` in place of `command:`, or a list: `command: [PROGRAM, ARG]`"))
}

/// A JSON Schema, or parameters by their names, in place of the list of `parameters`.
pub(super) fn parameters_help(node: &YamlNode) -> Option<String> {
    let (first, value) = node.entries().first()?;
    if node.get("properties").is_some() {
        return Some("a JSON Schema belongs under `schema:`; here, write each property as an entry of a list that begins with its name: `- name: NAME`".to_owned());
    }
    let name = first.scalar().unwrap_or("file");
    let mut keys = vec![format!("name: {name}")];
    match value.scalar() {
        Some(_) => keys.push(format!("description: {}", to_flow_yaml(value))),
        None => keys.extend(value.entries().iter().map(|(key, value)| to_flow_entry(key, value))),
    }
    let entry = format!("[{{{}}}]", keys.join(", "));
    Some(if node.entries().len() == 1 && entry.chars().count() <= MAX_PROPOSAL_CHARS {
        format!("write `parameters: {entry}`")
    } else {
        format!(
            "write each parameter as an entry of a list that begins with its name: `- name: {name}`"
        )
    })
}

/// An amount with a unit in place of a number of bytes.
pub(super) fn byte_count_help(node: &YamlNode) -> Option<String> {
    let text = node.scalar()?;
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bytes = parse_bytes(&text.to_ascii_uppercase())?;
    Some(format!("write `{bytes}`, the number of bytes"))
}

/// Variables with values in place of the names of variables.
pub(super) fn names_help(node: &YamlNode) -> Option<String> {
    node.entries().first()?;
    let names: Vec<&str> = node.entries().iter().filter_map(|(key, _)| key.scalar()).collect();
    Some(format!("write the names, `pass_env: [{}]`; `env` sets variables", names.join(", ")))
}

/// Whether processes may stay, in place of how long.
pub(super) fn background_help(node: &YamlNode) -> Option<String> {
    match node.scalar()? {
        "true" | "yes" | "on" => Some(
            "write `run`, for processes that end with the run, or `keep`, for ones that stay"
                .to_owned(),
        ),
        "false" | "no" | "off" | "kill" | "none" => Some("write `end`".to_owned()),
        _ => None,
    }
}

/// The type of a file in place of what the output is.
pub(super) fn output_help(node: &YamlNode) -> Option<String> {
    let word = match node.scalar()?.to_ascii_lowercase().as_str() {
        "png" | "jpeg" | "jpg" | "gif" | "webp" => "image",
        "binary" | "bytes" | "data" => "file",
        "string" | "plain" | "txt" => "text",
        _ => return None,
    };
    Some(format!("write `{word}`"))
}

/// The type of a value in another language.
pub(super) fn type_help(node: &YamlNode) -> Option<String> {
    let word = match node.scalar()?.to_ascii_lowercase().as_str() {
        "str" | "text" | "path" | "file" => "string",
        "int" => "integer",
        "float" | "double" => "number",
        "bool" => "boolean",
        "list" => "array",
        "dict" | "map" | "mapping" => "object",
        _ => return None,
    };
    Some(format!("write `{word}`"))
}
