//! Prints a file with every `exec:` and `shell:` tool in `command:` form (the specification's ToolExpander, made
//! visible). The text is edited, not printed anew: comments, order and everything else stay as they were.

use super::edit::{Edit, apply, end_of, gap, is_flow};
use super::placeholder::{escape_plain, escape_template};
use super::{Inject, Kind, Parameter, Piece, Syntax, Tool, Word};
use crate::diag::{Diagnostic, Report};
use crate::vars::Vars;
use crate::yaml::{Document, Node, quoted};

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
    check(doc, &text, &tools)?;
    Ok(text)
}

/// Makes sure that what is printed does the same: anchors can tie a template to places that an edit does not see.
fn check(doc: &Document, text: &str, tools: &[Tool]) -> Result<(), Report> {
    let mut report = Report::default();
    match Document::parse(doc.name.clone(), text) {
        Ok(expanded) => {
            let found = super::read_file(&expanded, &mut report);
            let same = found.len() == tools.len()
                && found.iter().zip(tools).all(|(a, b)| does_the_same(a, b));
            if report.is_empty() && same {
                return Ok(());
            }
        }
        Err(diagnostic) => report.push(diagnostic),
    }
    report.diagnostics.insert(
        0,
        Diagnostic::of_file(
            doc.name.clone(),
            "the file cannot be expanded: the result would not load, or not do the same",
            Some(
                "write its tools plainly: no anchors, aliases, tags or `? key` inside them"
                    .to_owned(),
            ),
        ),
    );
    Err(report)
}

/// Whether both give the same command line and input, with every value and without the optional ones.
pub(super) fn does_the_same(a: &Tool, b: &Tool) -> bool {
    let vars = Vars { agent_home: "/home".into(), cwd: "/cwd".into(), run_dir: "/run".into() };
    [true, false].into_iter().all(|optional| {
        let given = |p: &&Parameter| optional || p.required;
        let arguments: serde_json::Map<_, _> =
            a.parameters.iter().filter(given).map(|p| (p.name.clone(), sample(p))).collect();
        let arguments = serde_json::Value::Object(arguments).to_string();
        let invocation =
            |tool: &Tool| tool.check(&arguments).map(|checked| tool.invocation(&checked, &vars));
        matches!((invocation(a), invocation(b)), (Ok(a), Ok(b)) if a == b)
    })
}

/// A value that `parameter` takes, and no other does if possible.
fn sample(parameter: &Parameter) -> serde_json::Value {
    match (parameter.values.first(), parameter.kind) {
        (Some(value), _) => value.clone(),
        (None, Kind::String) => parameter.name.as_str().into(),
        (None, Kind::Integer | Kind::Number) => parameter.name.len().into(),
        (None, Kind::Boolean) => true.into(),
        (None, Kind::Array) => vec![parameter.name.as_str(), "x"].into(),
    }
}

struct Expansion<'a> {
    text: &'a str,
    tool: &'a Tool,
    edits: &'a mut Vec<Edit>,
}

impl Expansion<'_> {
    fn run(&mut self, item: &Node) {
        let Some((key, value)) = item.entry(self.tool.syntax.key()) else { return };
        let end = end_of(self.text, value);
        let gap = gap(&self.text[key.span.end..value.span.start.max(key.span.end)], key.column);
        self.edits.push((key.span.start..end, format!("command{gap}[{}]", self.command())));
        let meta = format!(
            "{{syntax: {}, original_template: {}}}",
            self.tool.syntax.key(),
            quoted(&self.tool.template)
        );
        let listed = item.entry("parameters").filter(|(_, node)| !node.is_null());
        let had_meta = item.get("__meta").is_some();
        let named = listed.is_some() || self.tool.parameters.is_empty() || self.fill_null(item);
        let indent = " ".repeat(key.column - 1);
        let mut more = String::new();
        match (is_flow(self.text, item), named) {
            (true, false) => more.push_str(&format!(", parameters: [{}]", self.inlined())),
            (false, false) => {
                more.push_str(&format!("\n{indent}parameters:{}", self.blocks(&indent)))
            }
            (_, true) => {}
        }
        if !had_meta {
            let lead =
                if is_flow(self.text, item) { ", ".to_owned() } else { format!("\n{indent}") };
            more.push_str(&format!("{lead}__meta: {meta}"));
        }
        match is_flow(self.text, item) {
            true => self.edits.push((end..end, more)),
            false => self.insert_after_line(end, more),
        }
        if let Some((_, node)) = listed {
            self.parameters(node);
        }
    }

    /// Gives a `parameters:` that is null its list. False when there is none.
    fn fill_null(&mut self, item: &Node) -> bool {
        let Some((key, node)) = item.entry("parameters") else { return false };
        if node.span.is_empty() && !is_flow(self.text, item) {
            let blocks = self.blocks(&" ".repeat(key.column - 1));
            self.insert_after_line(key.span.end, blocks);
        } else {
            let colon = self.text[key.span.end..]
                .find(':')
                .map_or(key.span.end, |at| key.span.end + at + 1);
            self.edits.push((colon..node.span.end.max(colon), format!(" [{}]", self.inlined())));
        }
        true
    }

    fn inlined(&self) -> String {
        let items: Vec<_> =
            self.tool.parameters.iter().map(|p| format!("{{{}}}", self.inline(p))).collect();
        items.join(", ")
    }

    fn blocks(&self, indent: &str) -> String {
        self.tool.parameters.iter().map(|p| self.block(p, &format!("{indent}  "))).collect()
    }

    /// Completes the entries of an existing `parameters:` list, and adds those that only the template names.
    fn parameters(&mut self, node: &Node) {
        let named = |item: &Node| item.get("name").and_then(Node::scalar).map(str::to_owned);
        if node.alias {
            // What the alias names may serve several tools, whose positions differ.
            let items: Vec<_> = self
                .tool
                .parameters
                .iter()
                .map(|p| format!("{{{}{}}}", self.inline(p), meaning(p)))
                .collect();
            self.edits.push((node.span.clone(), format!("[{}]", items.join(", "))));
            return;
        }
        for item in node.items() {
            self.complete(item);
        }
        let names: Vec<_> = node.items().iter().filter_map(named).collect();
        let unlisted: Vec<_> =
            self.tool.parameters.iter().filter(|p| !names.contains(&p.name)).collect();
        if !unlisted.is_empty() {
            self.add_unlisted(node, &unlisted);
        }
    }

    /// Adds what an entry of `parameters:` does not say.
    fn complete(&mut self, item: &Node) {
        let Some((_, name)) = item.entry("name") else { return };
        let Some(parameter) =
            self.tool.parameters.iter().find(|p| Some(p.name.as_str()) == name.scalar())
        else {
            return;
        };
        let missing: Vec<_> =
            self.fields(parameter).into_iter().filter(|(key, _)| item.get(key).is_none()).collect();
        let end = end_of(self.text, name);
        if is_flow(self.text, item) {
            let more: String =
                missing.iter().map(|(key, value)| format!(", {key}: {value}")).collect();
            self.edits.push((end..end, more));
        } else {
            let indent = " ".repeat(name_column(item) - 1);
            let more: String =
                missing.iter().map(|(key, value)| format!("\n{indent}{key}: {value}")).collect();
            self.insert_after_line(end, more);
        }
    }

    /// Adds the parameters that only the template names.
    fn add_unlisted(&mut self, node: &Node, unlisted: &[&Parameter]) {
        if is_flow(self.text, node) {
            let items: Vec<_> =
                unlisted.iter().map(|p| format!("{{{}}}", self.inline(p))).collect();
            let close = self.text[..node.span.end].rfind(']').unwrap_or(node.span.end);
            let comma = if self.text[..close].trim_end().ends_with(['[', ',']) { "" } else { ", " };
            self.edits.push((close..close, format!("{comma}{}", items.join(", "))));
        } else if let Some(last) = node.items().last() {
            let line = self.text[..last.span.start].rfind('\n').map_or(0, |at| at + 1);
            let dash = self.text[line..last.span.start].find('-').unwrap_or(0);
            let indent = " ".repeat(dash);
            let more: String = unlisted.iter().map(|p| self.block(p, &indent)).collect();
            let end = end_of(self.text, last);
            self.insert_after_line(end, more);
        }
    }

    /// Inserts at the end of the line in which the byte before `at` stands, so that a comment there stays where it is.
    fn insert_after_line(&mut self, at: usize, more: String) {
        let end = self.text[at..].find(['\n', '\r']).map_or(self.text.len(), |offset| at + offset);
        self.edits.push((end..end, more));
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

/// What a `parameters:` entry says of the values themselves.
fn meaning(parameter: &Parameter) -> String {
    let mut out = String::new();
    if let Some(description) = &parameter.description {
        out.push_str(&format!(", description: {}", quoted(description)));
    }
    if !parameter.values.is_empty() {
        out.push_str(&format!(", enum: {}", serde_json::Value::from(parameter.values.clone())));
    }
    match &parameter.default {
        Some(default) => out.push_str(&format!(", default: {default}")),
        None => out.push_str(&format!(", required: {}", parameter.required)),
    }
    out
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

    #[test]
    fn c_2_9_comments_stay_wherever_they_stand() {
        check(
            "tools:\r\n- exec: # a\r\n    # b\r\n    p ${x}\r\n  # c\r\n  name: t # d\r\n  parameters: # e\r\n",
            "tools:\r\n- command: # a\r\n    # b\r\n    [\"p\"]\r\n  \
             __meta: {syntax: exec, original_template: \"p ${x}\"}\r\n  # c\r\n  name: t # d\r\n  \
             parameters: # e\r\n    - name: x\r\n      type: string\r\n      inject_as: argument\r\n      position: 0\r\n",
        );
        check(
            "tools:\n- name: t\n  shell: !!str | # a\n\n    p ${x}\n  parameters: [{name: x,}, ]\n",
            "tools:\n- name: t\n  command: # a\n\n    [\"sh\", \"-c\", \"\\np \\\"$1\\\"\\n\", \"--\"]\n  \
             __meta: {syntax: shell, original_template: \"\\np ${x}\\n\"}\n  \
             parameters: [{name: x, type: string, inject_as: argument, position: 0,}, ]\n",
        );
    }

    #[test]
    fn c_2_9_an_alias_of_parameters_is_written_out_with_all_it_says() {
        check(
            "tools:\n- name: a\n  exec: p ${x}\n  parameters: &p\n  - {name: x, description: d, enum: [u, v], required: false}\n\
             - name: b\n  exec: q ${y} ${x}\n  parameters: *p\n",
            "tools:\n- name: a\n  command: [\"p\"]\n  __meta: {syntax: exec, original_template: \"p ${x}\"}\n  parameters: &p\n  \
             - {name: x, type: string, inject_as: argument, position: 0, description: d, enum: [u, v], required: false}\n\
             - name: b\n  command: [\"q\"]\n  __meta: {syntax: exec, original_template: \"q ${y} ${x}\"}\n  parameters: \
             [{name: x, type: string, inject_as: argument, position: 1, description: \"d\", enum: [\"u\",\"v\"], required: false}, \
             {name: \"y\", type: string, inject_as: argument, position: 0, required: true}]\n",
        );
    }

    #[test]
    fn c_2_9_what_cannot_be_edited_is_refused() {
        let doc =
            Document::parse("a.yaml", "tools:\n- ? name\n  : a\n  ? exec\n  : p ${x}\n").unwrap();
        let report = expand(&doc).unwrap_err();
        assert_eq!(
            report.diagnostics[0].message,
            "the file cannot be expanded: the result would not load, or not do the same"
        );
    }
}
