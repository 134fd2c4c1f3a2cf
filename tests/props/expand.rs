//! C-2.9: what `delta tool expand` prints loads, gives the same command line and input for the same values, and is the
//! file as it was everywhere else.

use crate::shells::vars;
use crate::tape::Tape;
use delta_agent::tool::{
    ParameterType, Tool, ToolSyntax, expand::expand_tools, migrate::migrate_tools, read_tool_file,
};
use delta_words::CallArguments;
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::{YamlDocument, quote_yaml};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use serde_json::{Map, Value, json};

const NAMES: [&str; 6] = ["file", "y", "null", "_p3", "True", "pattern"];

/// A parameter of a template and what `parameters:` says of it.
struct Described {
    name: &'static str,
    /// Lines `key: value` beside the name.
    lines: Vec<String>,
    listed: bool,
}

struct File<'a> {
    tape: Tape<'a>,
    text: String,
    /// Pieces of the text that must still be there, in this order.
    kept: Vec<String>,
    line_end: &'static str,
}

impl File<'_> {
    /// A comment that is nowhere else, sometimes.
    fn comment(&mut self) -> String {
        if self.tape.below(3) > 0 {
            return String::new();
        }
        let comment = format!("# ü{} it's: \"[{{", self.kept.len());
        self.kept.push(comment.clone());
        format!(" {comment}")
    }

    fn line(&mut self, indent: usize, text: &str) {
        let comment = self.comment();
        self.text.push_str(&format!("{}{text}{comment}{}", " ".repeat(indent), self.line_end));
        if self.tape.below(12) == 0 {
            let comment = self.comment();
            self.text.push_str(&format!("{comment}{}", self.line_end));
        }
    }

    /// A template with some of the parameters, and its syntax.
    fn template(&mut self, parameters: &[Described]) -> (ToolSyntax, String) {
        let syntax = self.tape.of(&[
            ToolSyntax::Exec,
            ToolSyntax::Shell,
            ToolSyntax::Exec,
            ToolSyntax::Command,
        ]);
        let mut text =
            self.tape.of(&["prog", "a/b -x", "p 'c d'", "${AGENT_HOME}/run ${CWD}"]).to_owned();
        for parameter in parameters {
            let hole = format!("${{{}}}", parameter.name);
            text.push_str(&match (self.tape.below(7), syntax) {
                (0..=2, _) => format!(" {hole}"),
                (3, _) => format!(" --f={hole}"),
                (4, _) => format!(" \"{hole}:{hole}\""),
                (5, ToolSyntax::Shell) => format!(" | sort {hole}"),
                (6, ToolSyntax::Shell) => format!("\ncat '{hole}' # x\n"),
                _ => format!(" {hole} 'é \\\\{hole}' z"),
            });
        }
        text.push_str(self.tape.of(&["", "", " end", " '\\\\${AGENT_HOME}' ${RUN_DIR}"]));
        if syntax == ToolSyntax::Shell {
            text.push_str(self.tape.of(&["", "\n", "\n\n", "; echo \\${HOME} \"$@\""]));
        }
        (syntax, text)
    }

    /// A parameter's description, sometimes none.
    fn described(&mut self, name: &'static str) -> Described {
        let kind = self.tape.of(&["string", "string", "integer", "number", "boolean", "array"]);
        let listed = kind != "string" || self.tape.below(3) > 0;
        let mut lines = Vec::new();
        if kind != "string" || self.tape.below(2) == 0 {
            lines.push(format!("type: {kind}"));
        }
        if self.tape.below(2) == 0 {
            lines.push("description: 'what: it''s'".to_owned());
        }
        match (self.tape.below(4), kind) {
            (0, _) => lines.push("required: false".to_owned()),
            (1, "string") => lines.push("default: ./d x".to_owned()),
            (1, "array") => lines.push("default: [a, 'b c']".to_owned()),
            (1, "boolean") => lines.push("default: true".to_owned()),
            (1, _) => lines.push("default: 7".to_owned()),
            (2, "string") => lines.push("enum: [a, 'b c', '7']".to_owned()),
            (2, _) => lines.push("default: \"\"".to_owned()),
            _ => {}
        }
        if self.tape.below(4) == 0 {
            lines.push("inject_as: argument".to_owned());
        }
        Described { name, lines, listed }
    }

    /// A scalar in one of YAML's styles, for a key that stands at column `indent`.
    fn scalar(&mut self, text: &str, indent: usize, flow: bool) -> String {
        let plain = !text
            .contains(['\n', '#', '"', '\'', ':', '{', '}', '[', ']', ',', '\\', '&', '*', '|']);
        let literal =
            !flow && !text.starts_with(' ') && !text.contains("\n ") && self.line_end == "\n";
        match self.tape.below(5) {
            0 if plain => text.to_owned(),
            1 if !text.contains('\n') => format!("'{}'", text.replace('\'', "''")),
            2 if literal => {
                let pad = " ".repeat(indent + 2);
                let body = text.trim_end_matches('\n');
                let keep = match text.len() - body.len() {
                    0 => "|-",
                    1 => "|",
                    _ => "|+",
                };
                let body: String =
                    text.lines()
                        .map(|line| {
                            if line.is_empty() { "\n".to_owned() } else { format!("{pad}{line}\n") }
                        })
                        .collect();
                format!("{keep}\n{}", body.strip_suffix('\n').unwrap_or(&body))
            }
            3 if literal && !text.contains('\n') && !text.contains("  ") => {
                let pad = " ".repeat(indent + 2);
                format!(">-\n{pad}{}", text.replacen(' ', &format!("\n{pad}"), 1))
            }
            _ => quote_yaml(text),
        }
    }

    fn tool(&mut self, number: usize) {
        let flow = self.tape.below(4) == 0;
        let count = self.tape.below(4);
        let first = self.tape.below(NAMES.len());
        let parameters: Vec<Described> =
            (0..count).map(|at| self.described(NAMES[(first + at) % NAMES.len()])).collect();
        let (syntax, template) = self.template(&parameters);
        let mut keys: Vec<(String, String)> = vec![("name".into(), format!("t{number}"))];
        match syntax {
            ToolSyntax::Command => {
                let words: Vec<String> = template
                    .split_whitespace()
                    .map(|word| format!("{{template: {}}}", quote_yaml(word)))
                    .collect();
                keys.push(("command".into(), format!("[{}]", words.join(", "))));
            }
            syntax => keys.push((syntax.key().into(), self.scalar(&template, 4, flow))),
        }
        if self.tape.below(3) == 0 && syntax != ToolSyntax::Command {
            keys.push(("stdin".into(), "content".into()));
        }
        for extra in [
            "timeout_ms: 5000",
            "description: \"d, é\"",
            "x-note: [1, {a: b}]",
            "env: {A: \"1\"}",
            "idempotent: true",
            "background: keep",
        ] {
            if self.tape.below(4) == 0 {
                let (key, value) = extra.split_once(": ").unwrap();
                keys.push((key.into(), value.into()));
            }
        }
        for at in 0..keys.len() {
            let other = self.tape.below(keys.len());
            keys.swap(at, other);
        }
        let listed: Vec<&Described> =
            parameters.iter().filter(|parameter| parameter.listed).collect();
        let place = self.tape.below(keys.len() + 1);
        if flow {
            self.flow_tool(&keys, &listed, place)
        } else {
            self.block_tool(&keys, &listed, place)
        }
    }

    fn flow_entry(parameter: &Described) -> String {
        let more: String = parameter.lines.iter().map(|line| format!(", {line}")).collect();
        format!("{{name: {}{more}}}", quote_yaml(parameter.name))
    }

    fn flow_list(listed: &[&Described]) -> String {
        let items: Vec<String> = listed.iter().map(|it| Self::flow_entry(it)).collect();
        format!("[{}]", items.join(", "))
    }

    fn flow_tool(&mut self, keys: &[(String, String)], listed: &[&Described], place: usize) {
        let mut entries: Vec<String> =
            keys.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        if !listed.is_empty() {
            entries.insert(place, format!("parameters: {}", Self::flow_list(listed)));
        }
        let separator = self.tape.of(&[", ", ",\n      ", " , "]);
        let end = self.tape.of(&["}", " }", ",}", "\n    }"]);
        self.line(2, &format!("- {{{}{end}", entries.join(separator)));
    }

    fn block_tool(&mut self, keys: &[(String, String)], listed: &[&Described], place: usize) {
        let mut first = true;
        for at in 0..=keys.len() {
            if at == place && !listed.is_empty() {
                self.parameters(listed, std::mem::take(&mut first));
            }
            let Some((key, value)) = keys.get(at) else { continue };
            let dash = if std::mem::take(&mut first) { "  - " } else { "    " };
            let text = format!("{dash}{key}: {value}");
            // A comment behind the text of a block scalar would be part of it.
            match value.contains('\n') {
                true => self.text.push_str(&format!("{text}{}", self.line_end)),
                false => self.line(0, &text),
            }
        }
    }

    fn parameters(&mut self, listed: &[&Described], first: bool) {
        let dash = if first { "  - " } else { "    " };
        if self.tape.below(4) == 0 {
            return self.line(0, &format!("{dash}parameters: {}", Self::flow_list(listed)));
        }
        self.line(0, &format!("{dash}parameters:"));
        let indent = self.tape.of(&[4, 6, 8]);
        for parameter in listed {
            if self.tape.below(3) == 0 {
                let entry = Self::flow_entry(parameter);
                self.line(indent, &format!("- {entry}"));
                continue;
            }
            let name = format!("name: {}", quote_yaml(parameter.name));
            let mut lines = parameter.lines.clone();
            lines.insert(self.tape.below(lines.len() + 1), name);
            for (at, line) in lines.iter().enumerate() {
                let dash = if at == 0 { "- " } else { "  " };
                self.line(indent, &format!("{dash}{line}"));
            }
        }
    }
}

/// A random file, and what of it must be kept.
fn file(tape: &[u8]) -> (String, Vec<String>) {
    let mut tape = Tape::new(tape);
    let line_end = tape.of(&["\n", "\n", "\n", "\r\n"]);
    let mut file = File { tape, text: String::new(), kept: Vec::new(), line_end };
    file.line(0, "name: agent");
    file.line(0, "tools:");
    for number in 0..=file.tape.below(3) {
        file.tool(number);
    }
    if file.tape.below(2) == 0 {
        file.kept.push("hooks: {a: 'b'}".to_owned());
        file.line(0, "hooks: {a: 'b'}");
    }
    if file.tape.below(4) == 0 {
        file.text.truncate(file.text.trim_end_matches(['\r', '\n']).len());
    }
    (file.text, file.kept)
}

fn tools(text: &str) -> Result<(YamlDocument, Vec<Tool>), String> {
    let doc =
        YamlDocument::parse("agent.yaml", text).map_err(|diagnostic| diagnostic.to_string())?;
    let mut report = DiagnosticReport::default();
    let tools = read_tool_file(&doc, &mut report);
    if report.is_empty() { Ok((doc, tools)) } else { Err(report.to_string()) }
}

/// Arguments for `tool`, some optional ones left out.
fn arguments(tool: &Tool, tape: &mut Tape<'_>) -> Value {
    let mut given = Map::new();
    for parameter in &tool.parameters {
        if !parameter.required && tape.below(2) == 0 {
            continue;
        }
        let value = match (parameter.kind, parameter.allowed_values.is_empty()) {
            (_, false) => {
                parameter.allowed_values[tape.below(parameter.allowed_values.len())].clone()
            }
            (ParameterType::String, _) => {
                tape.of(&["", "a b", "$(x)'\"\\", "${file}", "-n\n"]).into()
            }
            (ParameterType::Integer, _) => json!(-3),
            (ParameterType::Number, _) => json!(1.5),
            (ParameterType::Boolean, _) => json!(false),
            (ParameterType::Array, _) => json!(["a b", ""][..tape.below(3)]),
            (ParameterType::Object, _) => json!({"a b": [tape.below(3)]}),
        };
        given.insert(parameter.name.clone(), value);
    }
    Value::Object(given)
}

fn check(tape: &[u8], choices: &[u8]) -> Result<(), TestCaseError> {
    let (text, kept) = file(tape);
    let (doc, before) =
        tools(&text).map_err(|why| TestCaseError::fail(format!("{why}\n{text}")))?;
    let expanded =
        expand_tools(&doc).map_err(|why| TestCaseError::fail(format!("{why}\n{text}")))?;
    let (again, after) = tools(&expanded)
        .map_err(|why| TestCaseError::fail(format!("{why}\n{text}\n---\n{expanded}")))?;
    prop_assert_eq!(before.len(), after.len());
    let mut choices = Tape::new(choices);
    for (a, b) in before.iter().zip(&after) {
        prop_assert_eq!(b.syntax, ToolSyntax::Command);
        prop_assert_eq!(
            (&a.name, &a.description, a.timeout_ms, &a.env, a.idempotent, a.background),
            (&b.name, &b.description, b.timeout_ms, &b.env, b.idempotent, b.background)
        );
        for _ in 0..4 {
            let arguments = arguments(a, &mut choices).to_string();
            let invoked = |tool: &Tool| {
                tool.check_arguments(&CallArguments::new(arguments.as_str()))
                    .map(|checked| tool.invocation(&checked, &vars()))
            };
            let (before, after) = (invoked(a), invoked(b));
            prop_assert!(before.is_ok(), "{:?}\n{}\n{}", before, arguments, text);
            prop_assert_eq!(before, after, "{}\n{}\n---\n{}", arguments, text, expanded);
        }
    }
    let mut rest = expanded.as_str();
    for part in &kept {
        let Some(at) = rest.find(part.as_str()) else {
            return Err(TestCaseError::fail(format!(
                "{part:?} is gone or elsewhere\n{text}\n---\n{expanded}"
            )));
        };
        rest = &rest[at + part.len()..];
    }
    prop_assert_eq!(
        expand_tools(&again).map_err(|why| TestCaseError::fail(why.to_string()))?,
        expanded
    );
    Ok(())
}

/// The way back: of the file itself, and of what it expands to.
fn check_migrated(tape: &[u8], choices: &[u8]) -> Result<(), TestCaseError> {
    let fail = |why: &dyn std::fmt::Display| TestCaseError::fail(why.to_string());
    let (text, _) = file(tape);
    let (doc, _) = tools(&text).map_err(|why| fail(&why))?;
    let expanded = expand_tools(&doc).map_err(|why| fail(&why))?;
    let mut choices = Tape::new(choices);
    for text in [text, expanded] {
        let (doc, before) = tools(&text).map_err(|why| fail(&why))?;
        let migrated = migrate_tools(&doc).map_err(|why| fail(&why))?;
        let (again, after) = tools(&migrated.text)
            .map_err(|why| TestCaseError::fail(format!("{why}\n{text}\n---\n{}", migrated.text)))?;
        prop_assert_eq!(before.len(), after.len());
        for (a, b) in before.iter().zip(&after) {
            prop_assert_eq!((&a.name, &a.description), (&b.name, &b.description));
            let left = migrated.unchanged.iter().any(|(name, _)| *name == a.name);
            prop_assert_eq!(a.syntax == b.syntax, a.syntax != ToolSyntax::Command || left);
            for _ in 0..4 {
                let arguments = arguments(a, &mut choices).to_string();
                let invoked = |tool: &Tool| {
                    tool.check_arguments(&CallArguments::new(arguments.as_str()))
                        .map(|checked| tool.invocation(&checked, &vars()))
                };
                prop_assert_eq!(
                    invoked(a),
                    invoked(b),
                    "{}\n{}\n---\n{}",
                    arguments,
                    text,
                    migrated.text
                );
            }
        }
        let twice = migrate_tools(&again).map_err(|why| fail(&why))?;
        prop_assert_eq!(twice.text, migrated.text);
    }
    Ok(())
}

#[test]
fn c_2_9_an_expanded_file_does_the_same() {
    run(check);
}

#[test]
fn c_11_9_a_migrated_file_does_the_same() {
    run(check_migrated);
}

fn run(check: fn(&[u8], &[u8]) -> Result<(), TestCaseError>) {
    let cases = crate::cases(250, 2000);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..crate::base()
    };
    let strategy =
        (prop::collection::vec(any::<u8>(), 0..150), prop::collection::vec(any::<u8>(), 0..60));
    match TestRunner::new(config).run(&strategy, |(tape, choices)| check(&tape, &choices)) {
        Ok(()) => {}
        Err(TestError::Fail(why, _)) => panic!("{why}"),
        Err(why) => panic!("{why}"),
    }
}
