//! `command:` tools in their short forms, where these mean exactly the same (the reverse of `expand`). The text is
//! edited; what cannot be proven to be the same stays as it is.

use super::edit::{Edit, apply, end_of, gap, is_flow};
use super::{Inject, Kind, Parameter, Piece, Syntax, Tool, Word, expand, placeholder};
use crate::diag::Report;
use crate::yaml::{Document, Node, quoted};

/// A file with its tools in their short forms.
#[derive(Debug)]
pub struct Migrated {
    /// Its text.
    pub text: String,
    /// The tools that stay in `command:` form, and why.
    pub left: Vec<(String, &'static str)>,
}

/// Writes the `command:` tools of `doc` as `exec:` or `shell:`.
///
/// # Errors
/// Everything that is wrong with the tools.
pub fn migrate(doc: &Document) -> Result<Migrated, Report> {
    let mut report = Report::default();
    let Some(node) = doc.root.get("tools").filter(|node| !node.is_null()) else {
        return Ok(Migrated { text: doc.text.clone(), left: Vec::new() });
    };
    let tools = super::read_list(doc, node);
    doc.finish(&mut report);
    if !report.is_empty() {
        return Err(report);
    }
    let (mut text, mut left) = (doc.text.clone(), Vec::new());
    // From the last to the first, so that the places of those before stay what they are.
    for (index, (item, tool)) in node.items().iter().zip(&tools).enumerate().rev() {
        if tool.syntax != Syntax::Command || item.alias {
            continue;
        }
        let edited =
            rewrite(&doc.text, item, tool).map(|edits| splice(&text, &doc.text, edits)).and_then(
                |edited| proven(doc, &edited, index, &tools).then_some(edited).ok_or(DIFFERENT),
            );
        match edited {
            Ok(edited) => text = edited,
            Err(reason) => left.push((tool.name.clone(), reason)),
        }
    }
    left.reverse();
    Ok(Migrated { text, left })
}

const DIFFERENT: &str = "no `exec:` or `shell:` gives exactly the same command line";

/// Applies edits of `original` to `text`, which is the same up to the end of the last edit.
fn splice(text: &str, original: &str, edits: Vec<Edit>) -> String {
    let end = edits.iter().map(|(range, _)| range.end).max().unwrap_or(0);
    let rest = &text[text.len() - common_end(text, original, end)..];
    format!("{}{rest}", apply(&original[..end], edits))
}

/// How many bytes of `text` belong to what stands behind `end` in `original`: everything before is the same in both.
fn common_end(text: &str, original: &str, end: usize) -> usize {
    debug_assert_eq!(text.get(..end), original.get(..end));
    text.len() - end
}

/// Whether the tools of `text` are those that they were, the one at `index` in another form.
fn proven(doc: &Document, text: &str, index: usize, before: &[Tool]) -> bool {
    let Ok(edited) = Document::parse(doc.name.clone(), text) else { return false };
    let mut report = Report::default();
    let after = super::read_file(&edited, &mut report);
    let others = |tools: &[Tool]| {
        let others = tools.iter().enumerate().filter(|(at, _)| *at != index);
        others.map(|(_, tool)| tool.name.clone()).collect::<Vec<_>>()
    };
    report.is_empty()
        && after.len() == before.len()
        && others(&after) == others(before)
        && is_same(&before[index], &after[index])
}

/// Whether both give the same command line and input for all values, and the LLM is offered the same.
fn is_same(a: &Tool, b: &Tool) -> bool {
    let offered = |tool: &Tool| {
        let of = |p: &Parameter| {
            let meaning = (p.name.clone(), p.kind, p.description.clone(), p.required);
            (meaning, p.default.clone(), p.values.clone(), p.inject == Inject::Stdin)
        };
        tool.parameters.iter().map(of).collect::<Vec<_>>()
    };
    let settings = |tool: &Tool| {
        let limits = (tool.timeout_ms, tool.max_output_bytes, tool.idempotent);
        (
            tool.name.clone(),
            tool.description.clone(),
            limits,
            tool.env.clone(),
            tool.pass_env.clone(),
        )
    };
    settings(a) == settings(b)
        && offered(a) == offered(b)
        && words(a).is_some_and(|words_of_a| words(b) == Some(words_of_a))
        && expand::does_the_same(a, b)
}

/// All words of a tool's command line, appended ones included; none where a list or an option makes several of one.
fn words(tool: &Tool) -> Option<Vec<Word>> {
    let mut words = tool.words.clone();
    words.extend(
        appended(tool)?
            .into_iter()
            .map(|(index, _)| Word { pieces: vec![Piece::Parameter(index)], droppable: true }),
    );
    for word in &mut words {
        // Only a parameter that may be absent can be left out.
        let may_lack = |index: usize| {
            !tool.parameters[index].required && tool.parameters[index].default.is_none()
        };
        word.droppable &= word.only_parameter().is_some_and(may_lack);
        word.pieces.retain(|piece| *piece != Piece::Text(String::new()));
    }
    Some(words)
}

/// The parameters that are appended, in their order.
fn appended(tool: &Tool) -> Option<Vec<(usize, &Parameter)>> {
    let mut found: Vec<_> = tool
        .parameters
        .iter()
        .enumerate()
        .filter(|(_, p)| !p.in_template && p.inject != Inject::Stdin)
        .collect();
    found.sort_by_key(|(_, p)| p.position.unwrap_or(u64::MAX));
    let plain =
        |(_, p): &(usize, &Parameter)| p.inject == Inject::Argument && p.kind != Kind::Array;
    found.iter().all(plain).then_some(found)
}

/// The edits that write one tool in its short form.
fn rewrite(text: &str, item: &Node, tool: &Tool) -> Result<Vec<Edit>, &'static str> {
    let (key, value) = item.entry("command").ok_or(DIFFERENT)?;
    if value.alias
        || text[item.span.clone()].contains("&") && text[value.span.clone()].starts_with('&')
    {
        return Err("its `command:` is an anchor or an alias");
    }
    if tool.parameters.iter().any(|p| matches!(p.inject, Inject::Option(_))) {
        return Err(
            "a parameter is an option with a value, which only `command:` leaves out together",
        );
    }
    if tool.parameters.iter().any(|p| p.kind == Kind::Array && p.inject == Inject::Argument) {
        return Err("a parameter is a list, whose entries only `command:` gives as several words");
    }
    let end = end_of_list(text, value);
    if text[key.span.end..end]
        .lines()
        .any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
    {
        return Err("a comment stands inside its `command:`");
    }
    let (syntax, template) = template(tool)?;
    let flow = is_flow(text, item);
    let gap = gap(&text[key.span.end..value.span.start.max(key.span.end)], key.column);
    let written = if flow || !is_plain(&template) { quoted(&template) } else { template };
    let mut short =
        format!("{}{}{written}", syntax.key(), if gap.contains('#') { ": " } else { &gap });
    let input = tool.parameters.iter().find(|p| p.inject == Inject::Stdin);
    if let Some(input) = input.filter(|_| item.get("stdin").is_none()) {
        let lead = if flow { ", ".to_owned() } else { format!("\n{}", " ".repeat(key.column - 1)) };
        short.push_str(&format!("{lead}stdin: {}", quoted(&input.name)));
    }
    let mut edits = vec![(key.span.start..end, short)];
    edits.extend(without_meta(text, item, flow));
    Ok(edits)
}

/// Where a list ends: behind its bracket, or behind its last entry.
fn end_of_list(text: &str, node: &Node) -> usize {
    let last = node.items().last().map_or(node.span.start, |last| end_of(text, last));
    match is_flow(text, node) {
        true => text[last..].find(']').map_or(node.span.end, |bracket| last + bracket + 1),
        false => last,
    }
}

/// Takes away what `tool expand` has noted of the form that the tool is brought back to.
fn without_meta(text: &str, item: &Node, flow: bool) -> Option<Edit> {
    let (key, value) = item.entry("__meta").filter(|_| !flow)?;
    let start = text[..key.span.start].rfind('\n')?;
    let end = end_of(text, value);
    // Its line has to be its own: it is not the first of a list entry, and no comment follows.
    let own = text[start..key.span.start].trim().is_empty()
        && text[end..].lines().next().unwrap_or_default().trim().is_empty();
    own.then(|| (start..end, String::new()))
}

/// The short form of a tool.
fn template(tool: &Tool) -> Result<(Syntax, String), &'static str> {
    let appended = appended(tool).ok_or(DIFFERENT)?;
    let text = |word: &Word| match word.pieces.as_slice() {
        [Piece::Text(text)] => Some(text.clone()),
        _ => None,
    };
    let fixed: Vec<_> = tool.words.iter().map(text).collect();
    if let [Some(sh), Some(c), Some(script), Some(zero)] = fixed.as_slice()
        && (sh.as_str(), c.as_str(), zero.as_str()) == ("sh", "-c", "--")
    {
        let names: Vec<&str> = appended.iter().map(|(_, p)| p.name.as_str()).collect();
        return Ok((Syntax::Shell, shell(script, &names)));
    }
    let mut words: Vec<String> = tool.words.iter().map(|word| exec_word(tool, word)).collect();
    words.extend(appended.iter().map(|(_, p)| format!("${{{}}}", p.name)));
    Ok((Syntax::Exec, words.join(" ")))
}

/// A script with placeholders in the place of its positional parameters.
fn shell(script: &str, names: &[&str]) -> String {
    let mut out = String::with_capacity(script.len());
    let mut rest = script;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        // A variable of the shell's own.
        if placeholder::read(&rest[at..]).is_some() {
            out.push('\\');
        }
        out.push_str("${");
        rest = &rest[at + 2..];
    }
    out.push_str(rest);
    for (index, name) in names.iter().enumerate() {
        let (number, hole) = (index + 1, format!("${{{name}}}"));
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

/// A word of `exec:`.
fn exec_word(tool: &Tool, word: &Word) -> String {
    if word.pieces.iter().all(|piece| *piece == Piece::Text(String::new())) {
        return "''".to_owned();
    }
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => exec_text(text),
        Piece::Variable(variable) => format!("${{{}}}", variable.name()),
        Piece::Parameter(index) => format!("${{{}}}", tool.parameters[*index].name),
    };
    word.pieces.iter().map(piece).collect()
}

fn exec_text(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:=,@%+^".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.contains('\'') && !text.contains("${") {
        return format!("'{text}'");
    }
    let escaped = |c: char| match c {
        '\n' => "'\n'".to_owned(),
        c if plain(c) => c.to_string(),
        c => format!("\\{c}"),
    };
    text.chars().map(escaped).collect()
}

/// Whether a text can stand in a block mapping without quotes.
fn is_plain(text: &str) -> bool {
    let fine =
        |c: char| c.is_ascii_alphanumeric() || " _-./:=,$(){}+|<>&;@%^'\"*\\[]?!".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.')
        && text.chars().all(fine)
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tool: &str, expected: &str) {
        let doc = Document::parse("agent.yaml", format!("tools:\n  - {tool}\n")).unwrap();
        let migrated = migrate(&doc).unwrap();
        let found = match migrated.left.as_slice() {
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
            "left: a parameter is an option with a value, which only `command:` leaves out together",
        );
        check(
            "name: t\n    command: [p]\n    parameters: [{name: a, type: array}]",
            "left: a parameter is a list, whose entries only `command:` gives as several words",
        );
        check(
            "name: t\n    command:\n      - p  # mine\n      - a",
            "left: a comment stands inside its `command:`",
        );
        // An absent value is left out, and an empty one in a script.
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
