//! Rewrites `command:` tools in their short forms where these mean exactly the same (the reverse of
//! `expand`). The text is edited; a tool stays as it is unless the result is proven equivalent.

use super::yaml_edit::{TextEdit, apply_edits, is_flow_node, key_value_gap, node_end};
use super::{
    CommandPart, CommandWord, InjectAs, ParameterType, Tool, ToolParameter, ToolSyntax, expand,
};
use delta_shell::parse_placeholder;
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::{YamlDocument, YamlNode, quote_yaml};

/// A file whose tools were rewritten in their short forms.
#[derive(Debug)]
pub struct MigratedTools {
    /// The new text of the file.
    pub text: String,
    /// The tools that stay in `command:` form, each with the reason.
    pub unchanged: Vec<(String, &'static str)>,
}

/// Rewrites the `command:` tools of `doc` as `exec:` or `shell:`.
///
/// # Errors
/// Every problem with the tools.
pub fn migrate_tools(doc: &YamlDocument) -> Result<MigratedTools, DiagnosticReport> {
    let mut report = DiagnosticReport::default();
    let Some(node) = doc.root.get("tools").filter(|node| !node.is_null()) else {
        return Ok(MigratedTools { text: doc.text.clone(), unchanged: Vec::new() });
    };
    let tools = super::read_tool_list(doc, node);
    doc.drain_diagnostics(&mut report);
    if !report.is_empty() {
        return Err(report);
    }
    let mut text = doc.text.clone();
    let mut unchanged = Vec::new();
    // From last to first, so that the offsets of earlier tools stay valid.
    for (index, (item, tool)) in node.items().iter().zip(&tools).enumerate().rev() {
        if tool.syntax != ToolSyntax::Command || item.is_alias {
            continue;
        }
        let edited = shorten_tool(&doc.text, item, tool)
            .map(|edits| splice_edits(&text, &doc.text, edits))
            .and_then(|edited| {
                is_equivalent_edit(doc, &edited, index, &tools)
                    .then_some(edited)
                    .ok_or(NO_SHORT_FORM)
            });
        match edited {
            Ok(edited) => text = edited,
            Err(reason) => unchanged.push((tool.name.clone(), reason)),
        }
    }
    unchanged.reverse();
    Ok(MigratedTools { text, unchanged })
}

const NO_SHORT_FORM: &str = "no `exec:` or `shell:` gives exactly the same command line";

/// Applies edits of `original` to `text`; both are equal up to the end of the last edit.
fn splice_edits(text: &str, original: &str, edits: Vec<TextEdit>) -> String {
    let end = edits.iter().map(|(range, _)| range.end).max().unwrap_or(0);
    let rest = &text[text.len() - unedited_start(text, original, end)..];
    format!("{}{rest}", apply_edits(&original[..end], edits))
}

/// The number of bytes in `text` that correspond to `original` after `end`; both are equal before
/// it.
fn unedited_start(text: &str, original: &str, end: usize) -> usize {
    debug_assert_eq!(text.get(..end), original.get(..end));
    text.len() - end
}

/// Whether `text` has the same tools, with the one at `index` in another form.
fn is_equivalent_edit(doc: &YamlDocument, text: &str, index: usize, before: &[Tool]) -> bool {
    let Ok(edited) = YamlDocument::parse(doc.name.clone(), text) else { return false };
    let mut report = DiagnosticReport::default();
    let after = super::read_tool_file(&edited, &mut report);
    let others = |tools: &[Tool]| {
        let others = tools.iter().enumerate().filter(|(at, _)| *at != index);
        others.map(|(_, tool)| tool.name.clone()).collect::<Vec<_>>()
    };
    report.is_empty()
        && after.len() == before.len()
        && others(&after) == others(before)
        && same_tool(&before[index], &after[index])
}

/// Whether both give the same command line and input for all values, and look the same to the LLM.
fn same_tool(a: &Tool, b: &Tool) -> bool {
    a.name == b.name
        && a.description == b.description
        && a.timeout_ms == b.timeout_ms
        && a.max_output_bytes == b.max_output_bytes
        && a.idempotent == b.idempotent
        && a.survives == b.survives
        && a.parallel == b.parallel
        && a.is_staged == b.is_staged
        && a.background == b.background
        && a.output == b.output
        && a.env == b.env
        && a.pass_env == b.pass_env
        && a.parameters.len() == b.parameters.len()
        && a.parameters.iter().zip(&b.parameters).all(|(a, b)| same_values(a, b))
        && command_words(a).is_some_and(|words| command_words(b) == Some(words))
        && expand::same_invocation(a, b)
}

fn same_values(a: &ToolParameter, b: &ToolParameter) -> bool {
    a.name == b.name
        && a.kind == b.kind
        && a.description == b.description
        && a.required == b.required
        && a.default == b.default
        && a.allowed_values == b.allowed_values
        && (a.inject_as == InjectAs::Stdin) == (b.inject_as == InjectAs::Stdin)
}

/// All words of a tool's command line, including appended ones; `None` if a list or an option adds
/// several words at once.
fn command_words(tool: &Tool) -> Option<Vec<CommandWord>> {
    let mut words = tool.words.clone();
    words.extend(appended_parameters(tool)?.into_iter().map(|(index, _)| CommandWord {
        parts: vec![CommandPart::Parameter(index)],
        droppable: true,
    }));
    for word in &mut words {
        // Only a parameter that may be absent can be omitted.
        let parameter = word.only_parameter().map(|index| &tool.parameters[index]);
        word.droppable &= parameter.is_some_and(|p| !p.required && p.default.is_none());
        word.parts.retain(|part| *part != CommandPart::Text(String::new()));
    }
    Some(words)
}

/// The appended parameters in order; `None` if one is an option or a list.
fn appended_parameters(tool: &Tool) -> Option<Vec<(usize, &ToolParameter)>> {
    let mut parameters: Vec<_> = tool
        .parameters
        .iter()
        .enumerate()
        .filter(|(_, p)| !p.in_template && p.inject_as != InjectAs::Stdin)
        .collect();
    parameters.sort_by_key(|(_, p)| p.position.unwrap_or(u64::MAX));
    parameters
        .iter()
        .all(|(_, p)| p.inject_as == InjectAs::Argument && p.kind != ParameterType::Array)
        .then_some(parameters)
}

/// The edits that write one tool in its short form.
fn shorten_tool(text: &str, item: &YamlNode, tool: &Tool) -> Result<Vec<TextEdit>, &'static str> {
    let (key, value) = item.entry("command").ok_or(NO_SHORT_FORM)?;
    if value.is_alias
        || text[item.span.clone()].contains("&") && text[value.span.clone()].starts_with('&')
    {
        return Err("its `command:` is an anchor or an alias");
    }
    if tool.parameters.iter().any(|p| matches!(p.inject_as, InjectAs::Option(_))) {
        return Err("a parameter is an option with a value, which only `command:` omits together");
    }
    if tool
        .parameters
        .iter()
        .any(|p| p.kind == ParameterType::Array && p.inject_as == InjectAs::Argument)
    {
        return Err(
            "a parameter is a list, whose entries only `command:` passes as separate words",
        );
    }
    let end = list_end(text, value);
    if text[key.span.end..end]
        .lines()
        .any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
    {
        return Err("its `command:` contains a comment");
    }
    let (syntax, template) = short_template(tool)?;
    let flow = is_flow_node(text, item);
    let gap = key_value_gap(&text[key.span.end..value.span.start.max(key.span.end)], key.column);
    let written = if flow || !is_plain_yaml(&template) { quote_yaml(&template) } else { template };
    let mut short =
        format!("{}{}{written}", syntax.key(), if gap.contains('#') { ": " } else { &gap });
    let input = tool.parameters.iter().find(|p| p.inject_as == InjectAs::Stdin);
    if let Some(input) = input.filter(|_| item.get("stdin").is_none()) {
        let lead = if flow { ", ".to_owned() } else { format!("\n{}", " ".repeat(key.column - 1)) };
        short.push_str(&format!("{lead}stdin: {}", quote_yaml(&input.name)));
    }
    let mut edits = vec![(key.span.start..end, short)];
    edits.extend(remove_meta(text, item, flow));
    Ok(edits)
}

/// The end of a list: after its bracket, or after its last entry.
fn list_end(text: &str, node: &YamlNode) -> usize {
    let last = node.items().last().map_or(node.span.start, |last| node_end(text, last));
    if !is_flow_node(text, node) {
        return last;
    }
    text[last..].find(']').map_or(node.span.end, |bracket| last + bracket + 1)
}

/// Removes the note that `tool expand` left about the form now restored.
fn remove_meta(text: &str, item: &YamlNode, flow: bool) -> Option<TextEdit> {
    let (key, value) = item.entry("__meta").filter(|_| !flow)?;
    let start = text[..key.span.start].rfind('\n')?;
    let end = node_end(text, value);
    // Only if its line contains nothing else: it is not the first key of a list entry, and no
    // comment follows.
    let is_alone = text[start..key.span.start].trim().is_empty()
        && text[end..].lines().next().unwrap_or_default().trim().is_empty();
    is_alone.then(|| (start..end, String::new()))
}

fn short_template(tool: &Tool) -> Result<(ToolSyntax, String), &'static str> {
    let appended = appended_parameters(tool).ok_or(NO_SHORT_FORM)?;
    let literals = tool.words.iter().map(|word| match word.parts.as_slice() {
        [CommandPart::Text(text)] => Some(text.as_str()),
        _ => None,
    });
    let literals: Vec<_> = literals.collect();
    if let [Some("sh"), Some("-c"), Some(script), Some("--")] = literals.as_slice() {
        let names: Vec<&str> = appended.iter().map(|(_, p)| p.name.as_str()).collect();
        return Ok((ToolSyntax::Shell, shell_template(script, &names)));
    }
    let mut words: Vec<String> = tool.words.iter().map(|word| exec_word(tool, word)).collect();
    words.extend(appended.iter().map(|(_, p)| format!("${{{}}}", p.name)));
    Ok((ToolSyntax::Exec, words.join(" ")))
}

/// A script with placeholders instead of its positional parameters.
fn shell_template(script: &str, names: &[&str]) -> String {
    let mut out = String::with_capacity(script.len());
    let mut rest = script;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        // A variable of the shell.
        if parse_placeholder(&rest[at..]).is_some() {
            out.push('\\');
        }
        out.push_str("${");
        rest = &rest[at + 2..];
    }
    out.push_str(rest);
    for (index, name) in names.iter().enumerate() {
        let number = index + 1;
        let hole = format!("${{{name}}}");
        for form in
            [format!("'\"${number}\"'"), format!("\"${number}\""), format!("\"${{{number}}}\"")]
        {
            let inside = if form.contains('{') { format!("\"{hole}\"") } else { hole.clone() };
            out = out.replace(&form, if number > 9 { &hole } else { &inside });
        }
        out = out.replace(&format!("${{{number}}}"), &hole);
    }
    out
}

fn exec_word(tool: &Tool, word: &CommandWord) -> String {
    if word.parts.iter().all(|part| *part == CommandPart::Text(String::new())) {
        return "''".to_owned();
    }
    let parts = word.parts.iter().map(|part| match part {
        CommandPart::Text(text) => exec_literal(text),
        CommandPart::Variable(variable) => format!("${{{}}}", variable.name()),
        CommandPart::Parameter(index) => format!("${{{}}}", tool.parameters[*index].name),
    });
    parts.collect()
}

fn exec_literal(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:=,@%+^".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.contains('\'') && !text.contains("${") {
        return format!("'{text}'");
    }
    let escaped = text.chars().map(|c| match c {
        '\n' => "'\n'".to_owned(),
        c if plain(c) => c.to_string(),
        c => format!("\\{c}"),
    });
    escaped.collect()
}

/// Whether a text needs no quotes in a block mapping.
fn is_plain_yaml(text: &str) -> bool {
    const PUNCTUATION: &str = " _-./:=,$(){}+|<>&;@%^'\"*\\[]?!";
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || PUNCTUATION.contains(c))
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tool: &str, expected: &str) {
        let doc = YamlDocument::parse("agent.yaml", format!("tools:\n  - {tool}\n")).unwrap();
        let migrated = migrate_tools(&doc).unwrap();
        let found = match migrated.unchanged.as_slice() {
            [] => migrated.text,
            [(_, reason)] => format!("left: {reason}"),
            _ => panic!("{migrated:?}"),
        };
        let expected = if expected.starts_with("left") {
            expected.to_owned()
        } else {
            format!("tools:\n  - {expected}\n")
        };
        assert_eq!(found, expected, "{tool}");
    }

    #[test]
    fn c_11_9_a_command_becomes_what_means_the_same() {
        check("name: t\n    command: [ls, -la]", "name: t\n    exec: ls -la");
        check(
            "name: t\n    command: [grep, -n]  # why\n    parameters:\n      - name: p  # what\n      - {name: f, inject_as: argument}",
            "name: t\n    exec: grep -n ${p} ${f}  # why\n    parameters:\n      - name: p  # what\n      - {name: f, inject_as: argument}",
        );
        check(
            "name: t\n    command:\n      - tee\n      - --\n      - out file.txt\n    parameters: [{name: c, inject_as: stdin}]",
            "name: t\n    exec: tee -- 'out file.txt'\n    stdin: \"c\"\n    parameters: [{name: c, inject_as: stdin}]",
        );
        check(
            "name: t\n    command: [sh, -c, 'grep \"$1\" \"$2\" | wc -l', --]\n    parameters: [{name: p}, {name: f}]",
            "name: t\n    shell: grep ${p} ${f} | wc -l\n    parameters: [{name: p}, {name: f}]",
        );
        check(
            "{name: t, command: [p, '${CWD}/x', {template: 'a=${y}'}, '${no}']}",
            "{name: t, exec: \"p ${CWD}/x a=${y} \\\\$\\\\{no\\\\}\"}",
        );
        check(
            "name: t\n    command: [p, '', \"it's\", 'a b']",
            "name: t\n    exec: p '' it\\'s 'a b'",
        );
        check(
            "name: t\n    command: [sh, -c, 'echo ${HOME} \"$1\"', --]\n    parameters: [{name: x}]",
            "name: t\n    shell: echo \\${HOME} ${x}\n    parameters: [{name: x}]",
        );
        check(
            "name: t\n    command: [p]\n    parameters: [{name: a, position: 1}, {name: b, position: 0}]",
            "name: t\n    exec: p ${b} ${a}\n    parameters: [{name: a, position: 1}, {name: b, position: 0}]",
        );
    }

    #[test]
    fn c_11_9_what_is_not_the_same_stays() {
        check(
            "name: t\n    command: [p]\n    parameters: [{name: o, inject_as: option, option_name: -o}]",
            "left: a parameter is an option with a value, which only `command:` omits together",
        );
        check(
            "name: t\n    command: [p]\n    parameters: [{name: a, type: array}]",
            "left: a parameter is a list, whose entries only `command:` passes as separate words",
        );
        check(
            "name: t\n    command:\n      - p  # mine\n      - a",
            "left: its `command:` contains a comment",
        );
        // An absent value is omitted here, but would be an empty argument in a script.
        check(
            "name: t\n    command: [sh, -c, 'echo \"$1\"', --]\n    parameters: [{name: x, required: false}]",
            "left: no `exec:` or `shell:` gives exactly the same command line",
        );
        check(
            "name: t\n    command: [sh, -c, 'echo $1', --]\n    parameters: [{name: x}]",
            "left: no `exec:` or `shell:` gives exactly the same command line",
        );
        check(
            "name: t\n    command: [sh, -c, 'echo \"a $1\"', --]\n    parameters: [{name: x}]",
            "left: no `exec:` or `shell:` gives exactly the same command line",
        );
    }
}
