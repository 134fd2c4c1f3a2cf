//! Rewrites `exec:` and `shell:` tools in `command:` form (the ToolExpander of the specification,
//! made visible). The text is edited in place: comments, order and everything else are preserved.

use super::yaml_edit::{TextEdit, apply_edits, is_flow_node, key_value_gap, node_end};
use super::{CommandPart, CommandWord, InjectAs, ParameterType, Tool, ToolParameter, ToolSyntax};
use delta_base::engine_variables::EngineVars;
use delta_base::json::ExactJson;
use delta_shell::{escape_argument_template, escape_plain_string};
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::{YamlDocument, YamlNode, quote_yaml};
use std::collections::HashSet;

/// The text of `doc` with its tools expanded.
///
/// # Errors
/// Every problem with the tools; a file that does not load is not expanded.
pub fn expand_tools(doc: &YamlDocument) -> Result<String, DiagnosticReport> {
    let mut report = DiagnosticReport::default();
    let tools = super::read_tool_file(doc, &mut report);
    if !report.is_empty() {
        return Err(report);
    }
    let mut edits = Vec::new();
    let items = doc.root.get("tools").map(YamlNode::items).unwrap_or_default();
    for (item, tool) in items.iter().zip(&tools) {
        if !item.is_alias && tool.syntax != ToolSyntax::Command {
            ToolExpansion { text: &doc.text, tool, edits: &mut edits }.run(item);
        }
    }
    let text = apply_edits(&doc.text, edits);
    check_expansion(doc, &text, &tools)?;
    Ok(text)
}

/// The tools that no file has, because MCP servers and skills bring them, in their complete form as comments of YAML.
pub fn brought_tools_comment(tools: &[Tool]) -> String {
    let brought: Vec<&Tool> = tools.iter().filter(|tool| tool.runs_delta).collect();
    if brought.is_empty() {
        return String::new();
    }
    let mut comment = "# MCP servers and skills bring:\n".to_owned();
    for tool in brought {
        let mut edits = Vec::new();
        let expansion = ToolExpansion { text: "", tool, edits: &mut edits };
        let words: Vec<String> =
            tool.words.iter().map(|word| expansion.command_element(word)).collect();
        let input = if tool.mcp.is_some() { "    # its arguments are on stdin" } else { "" };
        comment.push_str(&format!(
            "#   - name: {}\n#     command: [{}]{input}\n",
            tool.name,
            words.join(", ")
        ));
    }
    comment
}

/// Checks that the expanded tools do the same: anchors can tie a template to places that an edit
/// does not reach.
fn check_expansion(doc: &YamlDocument, text: &str, tools: &[Tool]) -> Result<(), DiagnosticReport> {
    let mut report = DiagnosticReport::default();
    match YamlDocument::parse(doc.name.clone(), text) {
        Ok(expanded) => {
            let expanded = super::read_tool_file(&expanded, &mut report);
            let is_same = expanded.len() == tools.len()
                && expanded.iter().zip(tools).all(|(a, b)| same_invocation(a, b));
            if report.is_empty() && is_same {
                return Ok(());
            }
        }
        Err(diagnostic) => report.push(diagnostic),
    }
    report.diagnostics.insert(
        0,
        Diagnostic::for_file(
            doc.name.clone(),
            "could not expand the file: the result would not load or would behave differently",
            "write its tools without anchors, aliases, tags and `? key`",
        ),
    );
    Err(report)
}

/// Whether both give the same command line and input, with all parameters and with only the
/// required ones.
pub(super) fn same_invocation(a: &Tool, b: &Tool) -> bool {
    let vars =
        EngineVars { agent_home: "/home".into(), cwd: "/cwd".into(), run_dir: "/run".into() };
    let has_same_parameters = a.parameters.len() == b.parameters.len()
        && a.parameters.iter().all(|p| {
            b.parameters.iter().any(|other| {
                (&other.name, other.kind, &other.schema) == (&p.name, p.kind, &p.schema)
            })
        });
    if a.schema != b.schema || !has_same_parameters {
        return false;
    }
    [true, false].into_iter().all(|optional| {
        // A sample need not match the schema of its parameter, so it is not checked.
        let invocation = |tool: &Tool| {
            let values = tool.parameters.iter().map(|p| {
                let sample = a.parameters.iter().find(|other| other.name == p.name);
                let sample = sample.filter(|sample| optional || sample.required);
                sample.map(sample_value).or_else(|| p.default.clone()).map(ExactJson::from)
            });
            let values: Vec<Option<ExactJson>> = values.collect();
            tool.fill_command(&values, "", &vars)
        };
        invocation(a) == invocation(b)
    })
}

/// A value that `parameter` accepts, different from the values of other parameters if possible.
fn sample_value(parameter: &ToolParameter) -> serde_json::Value {
    match (parameter.allowed_values.first(), parameter.kind) {
        (Some(value), _) => value.clone(),
        (None, ParameterType::String) => parameter.name.as_str().into(),
        (None, ParameterType::Integer | ParameterType::Number) => parameter.name.len().into(),
        (None, ParameterType::Boolean) => true.into(),
        (None, ParameterType::Array) => vec![parameter.name.as_str(), "x"].into(),
        (None, ParameterType::Object) => serde_json::json!({"name": parameter.name}),
    }
}

struct ToolExpansion<'a> {
    text: &'a str,
    tool: &'a Tool,
    edits: &'a mut Vec<TextEdit>,
}

impl ToolExpansion<'_> {
    fn run(&mut self, item: &YamlNode) {
        let Some((key, value)) = item.entry(self.tool.syntax.key()) else { return };
        let end = node_end(self.text, value);
        let gap =
            key_value_gap(&self.text[key.span.end..value.span.start.max(key.span.end)], key.column);
        self.edits
            .push((key.span.start..end, format!("command{gap}[{}]", self.command_elements())));
        let meta = format!(
            "{{syntax: {}, original_template: {}}}",
            self.tool.syntax.key(),
            quote_yaml(&self.tool.template)
        );
        let listed = item.entry("parameters");
        let has_list = listed.is_some() || listed_parameters(self.tool).next().is_none();
        let indent = " ".repeat(key.column - 1);
        let is_flow = is_flow_node(self.text, item);
        let lead = if is_flow { ", ".to_owned() } else { format!("\n{indent}") };
        let mut more = String::new();
        if !has_list && is_flow {
            more.push_str(&format!("{lead}parameters: [{}]", self.inline_list()));
        } else if !has_list {
            more.push_str(&format!("{lead}parameters:{}", self.block_list(&indent)));
        }
        if item.get("__meta").is_none() {
            more.push_str(&format!("{lead}__meta: {meta}"));
        }
        if is_flow {
            self.edits.push((end..end, more));
        } else {
            self.insert_after_line(end, more);
        }
        if let Some((_, node)) = listed {
            self.edit_parameters(node);
        }
    }

    fn inline_list(&self) -> String {
        let items: Vec<_> =
            listed_parameters(self.tool).map(|p| format!("{{{}}}", self.inline_entry(p))).collect();
        items.join(", ")
    }

    fn block_list(&self, indent: &str) -> String {
        listed_parameters(self.tool).map(|p| self.block_entry(p, &format!("{indent}  "))).collect()
    }

    /// Completes the entries of an existing `parameters:` list, and adds the parameters that only
    /// the template names.
    fn edit_parameters(&mut self, node: &YamlNode) {
        if node.is_alias {
            // Tools that share the alias may need different positions.
            let items: Vec<_> = listed_parameters(self.tool)
                .map(|p| format!("{{{}{}}}", self.inline_entry(p), described_fields(p)))
                .collect();
            self.edits.push((node.span.clone(), format!("[{}]", items.join(", "))));
            return;
        }
        for item in node.items() {
            self.complete_entry(item);
        }
        let names: Vec<_> =
            node.items().iter().filter_map(|item| item.get("name")?.scalar()).collect();
        let unlisted: Vec<_> =
            listed_parameters(self.tool).filter(|p| !names.contains(&p.name.as_str())).collect();
        if !unlisted.is_empty() {
            self.add_unlisted(node, &unlisted);
        }
    }

    /// Adds the missing keys of an entry of `parameters:`.
    fn complete_entry(&mut self, item: &YamlNode) {
        let Some((_, name)) = item.entry("name") else { return };
        let Some(parameter) =
            self.tool.parameters.iter().find(|p| Some(p.name.as_str()) == name.scalar())
        else {
            return;
        };
        let missing: Vec<_> = self
            .expanded_fields(parameter)
            .into_iter()
            .filter(|(key, _)| item.get(key).is_none())
            .collect();
        let end = node_end(self.text, name);
        if is_flow_node(self.text, item) {
            let more: String =
                missing.iter().map(|(key, value)| format!(", {key}: {value}")).collect();
            self.edits.push((end..end, more));
        } else {
            let indent = " ".repeat(key_column(item) - 1);
            let more: String =
                missing.iter().map(|(key, value)| format!("\n{indent}{key}: {value}")).collect();
            self.insert_after_line(end, more);
        }
    }

    /// Adds the parameters that only the template names.
    fn add_unlisted(&mut self, node: &YamlNode, unlisted: &[&ToolParameter]) {
        if is_flow_node(self.text, node) {
            let items: Vec<_> =
                unlisted.iter().map(|p| format!("{{{}}}", self.inline_entry(p))).collect();
            let close = self.text[..node.span.end].rfind(']').unwrap_or(node.span.end);
            let comma = if self.text[..close].trim_end().ends_with(['[', ',']) { "" } else { ", " };
            self.edits.push((close..close, format!("{comma}{}", items.join(", "))));
        } else if let Some(last) = node.items().last() {
            let line = self.text[..last.span.start].rfind('\n').map_or(0, |at| at + 1);
            let dash = self.text[line..last.span.start].find('-').unwrap_or(0);
            let indent = " ".repeat(dash);
            let more: String = unlisted.iter().map(|p| self.block_entry(p, &indent)).collect();
            let end = node_end(self.text, last);
            self.insert_after_line(end, more);
        }
    }

    /// Inserts at the end of the line that contains byte `at`, after any comment there.
    fn insert_after_line(&mut self, at: usize, more: String) {
        let end = self.text[at..].find(['\n', '\r']).map_or(self.text.len(), |offset| at + offset);
        self.edits.push((end..end, more));
    }

    fn command_elements(&self) -> String {
        let appended = self.appended_from();
        let (fixed, values) = self.tool.words.split_at(appended);
        let mut words: Vec<String> = fixed.iter().map(|word| self.command_element(word)).collect();
        if self.needs_templates() {
            words.extend(values.iter().map(|word| self.command_element(word)));
        }
        words.join(", ")
    }

    /// The index of the first word of the trailing run of single parameters.
    fn appended_from(&self) -> usize {
        let trailing =
            self.tool.words.iter().rev().take_while(|word| word.only_parameter().is_some()).count();
        self.tool.words.len() - trailing
    }

    /// Whether a parameter cannot simply be appended: it is inside a word, before another word,
    /// repeated, or a list, which would become several words.
    fn needs_templates(&self) -> bool {
        let (fixed, values) = self.tool.words.split_at(self.appended_from());
        let mut indices = HashSet::new();
        let mut values = values.iter().filter_map(CommandWord::only_parameter);
        let has_list = self
            .tool
            .parameters
            .iter()
            .any(|p| p.inject_as == InjectAs::Argument && p.kind == ParameterType::Array);
        has_list
            || self.tool.schema.is_some()
            || values.any(|index| !indices.insert(index))
            || fixed.iter().any(CommandWord::has_parameter)
    }

    fn command_element(&self, word: &CommandWord) -> String {
        let templated = word.has_parameter();
        let mut out = String::new();
        for (index, part) in word.parts.iter().enumerate() {
            let hole_follows = matches!(
                word.parts.get(index + 1),
                Some(CommandPart::Variable(_) | CommandPart::Parameter(_))
            );
            match part {
                CommandPart::Text(text) if templated => {
                    out.push_str(&escape_argument_template(text, hole_follows))
                }
                CommandPart::Text(text) => out.push_str(&escape_plain_string(text, hole_follows)),
                CommandPart::Variable(variable) => {
                    out.push_str(&format!("${{{}}}", variable.name()))
                }
                CommandPart::Parameter(index) => {
                    out.push_str(&format!("${{{}}}", self.tool.parameters[*index].name))
                }
            }
        }
        if templated { format!("{{template: {}}}", quote_yaml(&out)) } else { quote_yaml(&out) }
    }

    /// The keys that the expanded form needs besides the name.
    fn expanded_fields(&self, parameter: &ToolParameter) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        if self.tool.schema.is_none() {
            fields.push(("type", parameter.kind.name().to_owned()));
            fields.push(("inject_as", parameter.inject_as.name().to_owned()));
        }
        if let Some(position) = parameter.position.filter(|_| self.tool.schema.is_none()) {
            fields.push(("position", position.to_string()));
        }
        if needs_empty_default(self.tool, parameter) {
            fields.push(("default", quote_yaml("")));
        }
        fields
    }

    fn inline_entry(&self, parameter: &ToolParameter) -> String {
        let fields = self.expanded_fields(parameter);
        let more: String = fields.iter().map(|(key, value)| format!(", {key}: {value}")).collect();
        format!("name: {}{more}", yaml_name(&parameter.name))
    }

    fn block_entry(&self, parameter: &ToolParameter, indent: &str) -> String {
        let fields = self.expanded_fields(parameter);
        let more: String =
            fields.iter().map(|(key, value)| format!("\n{indent}  {key}: {value}")).collect();
        format!("\n{indent}- name: {}{more}", yaml_name(&parameter.name))
    }
}

/// Whether the expanded form has to say that an absent value is empty: a positional parameter of a
/// script keeps its place when absent; an appended one would be omitted.
fn needs_empty_default(tool: &Tool, parameter: &ToolParameter) -> bool {
    let may_lack = !parameter.required && parameter.default.is_none();
    tool.syntax == ToolSyntax::Shell && parameter.inject_as == InjectAs::Argument && may_lack
}

/// The parameters that the expanded form lists: with a schema, only the ones that need a default.
fn listed_parameters(tool: &Tool) -> impl Iterator<Item = &ToolParameter> {
    let parameters = tool.parameters.iter();
    parameters.filter(|p| tool.schema.is_none() || needs_empty_default(tool, p))
}

/// The keys of a `parameters:` entry that describe the values.
fn described_fields(parameter: &ToolParameter) -> String {
    let mut out = String::new();
    if let Some(description) = &parameter.description {
        out.push_str(&format!(", description: {}", quote_yaml(description)));
    }
    if !parameter.allowed_values.is_empty() {
        out.push_str(&format!(
            ", enum: {}",
            serde_json::Value::from(parameter.allowed_values.clone())
        ));
    }
    let members = parameter.schema.as_ref().and_then(|schema| schema.json.as_object());
    for (key, value) in members.into_iter().flatten().filter(|(key, _)| *key != "type") {
        out.push_str(&format!(", {key}: {value}"));
    }
    let is_listed = members.is_some_and(|members| members.contains_key("required"));
    match &parameter.default {
        Some(default) => out.push_str(&format!(", default: {default}")),
        None if is_listed => {}
        None => out.push_str(&format!(", required: {}", parameter.required)),
    }
    out
}

/// A parameter's name as YAML; some YAML readers take a few names for other values.
fn yaml_name(name: &str) -> String {
    const VALUES: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if VALUES.contains(&name.to_lowercase().as_str()) { quote_yaml(name) } else { name.to_owned() }
}

fn key_column(item: &YamlNode) -> usize {
    item.entries().first().map_or(item.column, |(key, _)| key.column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let doc = YamlDocument::parse("agent.yaml", text).unwrap();
        match expand_tools(&doc) {
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
            "tools:\r\n- exec: # a\r\n    # b\r\n    p ${x}\r\n  # c\r\n  name: t # d\r\n",
            "tools:\r\n- command: # a\r\n    # b\r\n    [\"p\"]\r\n  \
             parameters:\r\n    - name: x\r\n      type: string\r\n      inject_as: argument\r\n      position: 0\r\n  \
             __meta: {syntax: exec, original_template: \"p ${x}\"}\r\n  # c\r\n  name: t # d\r\n",
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
        let doc = YamlDocument::parse("a.yaml", "tools:\n- ? name\n  : a\n  ? exec\n  : p ${x}\n")
            .unwrap();
        let report = expand_tools(&doc).unwrap_err();
        assert_eq!(
            report.diagnostics[0].message,
            "could not expand the file: the result would not load or would behave differently"
        );
    }
}
