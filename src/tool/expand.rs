//! Prints a file with every `exec:` and `shell:` tool in `command:` form (the specification's ToolExpander, made
//! visible). The text is edited, not printed anew: comments, order and everything else stay as they were.

use super::placeholder::{escape_plain, escape_template};
use super::{Inject, Kind, Parameter, Piece, Syntax, Tool, Word};
use crate::diag::{Diagnostic, Report};
use crate::yaml::{Document, Node, Value, quoted};
use std::ops::Range;

/// The text of `doc` with its tools expanded.
///
/// # Errors
/// Everything that is wrong with the tools; nothing is printed for a file that does not load.
pub fn expand(doc: &Document) -> Result<String, Report> {
    let mut report = Report::default();
    let tools = super::read_file(doc, &mut report);
    if !report.is_empty() {
        return Err(report);
    }
    let mut edits = Vec::new();
    let items = doc.root.get("tools").map(Node::items).unwrap_or_default();
    for (item, tool) in items.iter().zip(&tools) {
        if !item.alias && tool.syntax != Syntax::Command {
            Expansion { text: &doc.text, tool, edits: &mut edits }.run(item);
        }
    }
    let text = apply(&doc.text, edits);
    check(doc, &text, tools.len())?;
    Ok(text)
}

/// Makes sure that what is printed loads: anchors can tie a template to places that an edit does not see.
fn check(doc: &Document, text: &str, count: usize) -> Result<(), Report> {
    let mut report = Report::default();
    match Document::parse(doc.name.clone(), text) {
        Ok(expanded) => {
            let tools = super::read_file(&expanded, &mut report);
            if report.is_empty() && tools.len() == count {
                return Ok(());
            }
        }
        Err(diagnostic) => report.push(diagnostic),
    }
    report.diagnostics.insert(
        0,
        Diagnostic::of_file(
            doc.name.clone(),
            "the expanded file would not load",
            Some("write out the anchors and aliases inside its tools".to_owned()),
        ),
    );
    Err(report)
}

/// A replacement of a part of the text.
type Edit = (Range<usize>, String);

fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut out = String::with_capacity(text.len() * 2);
    let mut at = 0;
    for (range, replacement) in edits {
        out.push_str(&text[at..range.start]);
        out.push_str(&replacement);
        at = range.end;
    }
    out.push_str(&text[at..]);
    out
}

struct Expansion<'a> {
    text: &'a str,
    tool: &'a Tool,
    edits: &'a mut Vec<Edit>,
}

impl Expansion<'_> {
    fn run(&mut self, item: &Node) {
        let Some((key, value)) = item.entry(self.tool.syntax.key()) else { return };
        let end = self.end_of(value);
        self.edits.push((key.span.start..end, format!("command: [{}]", self.command())));
        let meta = format!(
            "{{syntax: {}, original_template: {}}}",
            self.tool.syntax.key(),
            quoted(&self.tool.template)
        );
        let listed = item.entry("parameters").filter(|(_, node)| !node.is_null());
        let had_meta = item.get("__meta").is_some();
        if self.is_flow(item) {
            let mut more = String::new();
            if listed.is_none() && !self.tool.parameters.is_empty() {
                let items: Vec<_> = self
                    .tool
                    .parameters
                    .iter()
                    .map(|p| format!("{{{}}}", self.inline(p)))
                    .collect();
                more.push_str(&format!(", parameters: [{}]", items.join(", ")));
            }
            if !had_meta {
                more.push_str(&format!(", __meta: {meta}"));
            }
            self.edits.push((end..end, more));
        } else {
            let indent = " ".repeat(key.column - 1);
            let mut more = String::new();
            if listed.is_none() && !self.tool.parameters.is_empty() {
                if item.entry("parameters").is_none() {
                    more.push_str(&format!("\n{indent}parameters:"));
                }
                let items: String = self
                    .tool
                    .parameters
                    .iter()
                    .map(|p| self.block(p, &format!("{indent}  ")))
                    .collect();
                match item.entry("parameters") {
                    None => more.push_str(&items),
                    Some((key, _)) => self.insert_after_line(key.span.end, items),
                }
            }
            if !had_meta {
                more.push_str(&format!("\n{indent}__meta: {meta}"));
            }
            self.insert_after_line(end, more);
        }
        if let Some((_, node)) = listed {
            self.parameters(node);
        }
    }

    /// Completes the entries of an existing `parameters:` list, and adds those that only the template names.
    fn parameters(&mut self, node: &Node) {
        let named = |item: &Node| item.get("name").and_then(Node::scalar).map(str::to_owned);
        if node.alias {
            // What the alias names may serve several tools, whose positions differ.
            let items: Vec<_> =
                self.tool.parameters.iter().map(|p| format!("{{{}}}", self.inline(p))).collect();
            self.edits.push((node.span.clone(), format!("[{}]", items.join(", "))));
            return;
        }
        let names: Vec<_> = node.items().iter().filter_map(named).collect();
        for item in node.items() {
            let Some((_, name)) = item.entry("name") else { continue };
            let Some(parameter) =
                self.tool.parameters.iter().find(|p| Some(p.name.as_str()) == name.scalar())
            else {
                continue;
            };
            let missing: Vec<_> = self
                .fields(parameter)
                .into_iter()
                .filter(|(key, _)| item.get(key).is_none())
                .collect();
            let end = self.end_of(name);
            if self.is_flow(item) {
                let more: String =
                    missing.iter().map(|(key, value)| format!(", {key}: {value}")).collect();
                self.edits.push((end..end, more));
            } else {
                let indent = " ".repeat(name_column(item) - 1);
                let more: String = missing
                    .iter()
                    .map(|(key, value)| format!("\n{indent}{key}: {value}"))
                    .collect();
                self.insert_after_line(end, more);
            }
        }
        let unlisted: Vec<_> =
            self.tool.parameters.iter().filter(|p| !names.contains(&p.name)).collect();
        if unlisted.is_empty() {
            return;
        }
        if self.is_flow(node) {
            let items: Vec<_> =
                unlisted.iter().map(|p| format!("{{{}}}", self.inline(p))).collect();
            let close = self.text[..node.span.end].rfind(']').unwrap_or(node.span.end);
            let comma = if names.is_empty() { "" } else { ", " };
            self.edits.push((close..close, format!("{comma}{}", items.join(", "))));
        } else if let Some(last) = node.items().last() {
            let line = self.text[..last.span.start].rfind('\n').map_or(0, |at| at + 1);
            let dash = self.text[line..last.span.start].find('-').unwrap_or(0);
            let indent = " ".repeat(dash);
            let more: String = unlisted.iter().map(|p| self.block(p, &indent)).collect();
            let end = self.end_of(last);
            self.insert_after_line(end, more);
        }
    }

    /// Inserts at the end of the line in which the byte before `at` stands, so that a comment there stays where it is.
    fn insert_after_line(&mut self, at: usize, more: String) {
        let end = self.text[at..].find(['\n', '\r']).map_or(self.text.len(), |offset| at + offset);
        self.edits.push((end..end, more));
    }

    fn is_flow(&self, node: &Node) -> bool {
        !node.alias && self.text[node.span.start..].starts_with(['{', '['])
    }

    /// Where the text of a node really ends: the parser ends a block where the next token begins.
    fn end_of(&self, node: &Node) -> usize {
        let block = !node.alias && !self.is_flow(node);
        let last = match &node.value {
            Value::Mapping(entries) if block => entries.last().map(|(_, value)| value),
            Value::Sequence(items) if block => items.last(),
            _ => None,
        };
        match last {
            Some(last) => self.end_of(last),
            None => node.span.start + self.text[node.span.clone()].trim_end().len(),
        }
    }

    fn command(&self) -> String {
        let appended = self.appended_from();
        let (fixed, values) = self.tool.words.split_at(appended);
        let mut words: Vec<String> = fixed.iter().map(|word| self.element(word)).collect();
        if self.templated() {
            words.extend(values.iter().map(|word| self.element(word)));
        }
        words.join(", ")
    }

    /// The index of the first word from which on every word is one parameter.
    fn appended_from(&self) -> usize {
        let trailing =
            self.tool.words.iter().rev().take_while(|word| word.only_parameter().is_some()).count();
        self.tool.words.len() - trailing
    }

    /// Whether some parameter cannot simply be appended: it stands inside a word, before another word, twice, or is a
    /// list, which would be appended as several words.
    fn templated(&self) -> bool {
        let (fixed, values) = self.tool.words.split_at(self.appended_from());
        let mut seen = Vec::new();
        let repeated = values.iter().filter_map(Word::only_parameter).any(|index| {
            let again = seen.contains(&index);
            seen.push(index);
            again
        });
        let in_template = |p: &Parameter| p.inject == Inject::Argument;
        let lists = self.tool.parameters.iter().any(|p| in_template(p) && p.kind == Kind::Array);
        repeated || lists || fixed.iter().any(Word::has_parameter)
    }

    fn element(&self, word: &Word) -> String {
        let templated = word.has_parameter();
        let mut out = String::new();
        for (index, piece) in word.pieces.iter().enumerate() {
            let hole_follows = matches!(
                word.pieces.get(index + 1),
                Some(Piece::Variable(_) | Piece::Parameter(_))
            );
            match piece {
                Piece::Text(text) if templated => {
                    out.push_str(&escape_template(text, hole_follows))
                }
                Piece::Text(text) => out.push_str(&escape_plain(text, hole_follows)),
                Piece::Variable(variable) => out.push_str(&format!("${{{}}}", variable.name())),
                Piece::Parameter(index) => {
                    out.push_str(&format!("${{{}}}", self.tool.parameters[*index].name))
                }
            }
        }
        if templated { format!("{{template: {}}}", quoted(&out)) } else { quoted(&out) }
    }

    /// What the expanded form has to say of a parameter beside its name.
    fn fields(&self, parameter: &Parameter) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("type", parameter.kind.name().to_owned()),
            ("inject_as", parameter.inject.name().to_owned()),
        ];
        if let Some(position) = parameter.position {
            fields.push(("position", position.to_string()));
        }
        // A positional parameter of a script keeps its place when it is absent; an appended one would be left out.
        let may_lack = !parameter.required && parameter.default.is_none();
        if self.tool.syntax == Syntax::Shell && parameter.inject == Inject::Argument && may_lack {
            fields.push(("default", quoted("")));
        }
        fields
    }

    fn inline(&self, parameter: &Parameter) -> String {
        let fields = self.fields(parameter);
        let more: String = fields.iter().map(|(key, value)| format!(", {key}: {value}")).collect();
        format!("name: {}{more}", name_text(&parameter.name))
    }

    fn block(&self, parameter: &Parameter, indent: &str) -> String {
        let fields = self.fields(parameter);
        let more: String =
            fields.iter().map(|(key, value)| format!("\n{indent}  {key}: {value}")).collect();
        format!("\n{indent}- name: {}{more}", name_text(&parameter.name))
    }
}

/// A parameter's name as YAML text; some names are other values to some readers.
fn name_text(name: &str) -> String {
    const VALUES: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if VALUES.contains(&name.to_lowercase().as_str()) { quoted(name) } else { name.to_owned() }
}

/// The column of a mapping's keys.
fn name_column(item: &Node) -> usize {
    item.entries().first().map_or(item.column, |(key, _)| key.column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let doc = Document::parse("agent.yaml", text).unwrap();
        match expand(&doc) {
            Ok(found) => assert_eq!(found, expected),
            Err(report) => panic!("{report}"),
        }
    }

    #[test]
    fn c_2_9_placeholders_that_come_last_give_the_plain_shape() {
        check(
            "name: a # the agent\ntools:\n  # first\n  - name: run_script\n    exec: \"bash -c ${script}\" # why\n",
            "name: a # the agent\ntools:\n  # first\n  - name: run_script\n    command: [\"bash\", \"-c\"] # why\n    \
             parameters:\n      - name: script\n        type: string\n        inject_as: argument\n        \
             position: 0\n    __meta: {syntax: exec, original_template: \"bash -c ${script}\"}\n",
        );
    }

    #[test]
    fn c_2_9_shell_becomes_sh_with_positional_parameters() {
        check(
            "tools:\n  - shell: |\n      grep ${p} ${f} |\n      wc -l\n    name: count # x\n    parameters:\n    - name: f # file\n      default: \"a\"\n",
            "tools:\n  - command: [\"sh\", \"-c\", \"grep \\\"$1\\\" \\\"$2\\\" |\\nwc -l\\n\", \"--\"]\n    \
             __meta: {syntax: shell, original_template: \"grep ${p} ${f} |\\nwc -l\\n\"}\n    name: count # x\n    \
             parameters:\n    - name: f # file\n      type: string\n      inject_as: argument\n      position: 1\n      \
             default: \"a\"\n    - name: p\n      type: string\n      inject_as: argument\n      position: 0\n",
        );
    }

    #[test]
    fn c_2_9_words_around_placeholders_become_templates() {
        check(
            "tools: [{name: a, exec: 'p --f=${x} ${CWD}/y ${x}', description: d}]\n",
            "tools: [{name: a, command: [\"p\", {template: \"--f=${x}\"}, \"${CWD}/y\", {template: \"${x}\"}], \
             parameters: [{name: x, type: string, inject_as: argument, position: 0}], \
             __meta: {syntax: exec, original_template: \"p --f=${x} ${CWD}/y ${x}\"}, description: d}]\n",
        );
    }
}
