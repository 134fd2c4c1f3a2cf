//! Tools: the canonical form that `exec:`, `shell:` and `command:` all become, read from YAML and checked.
//!
//! A [`Tool`] is values only: `argv` turns a call's arguments into a command line, `schema` tells the LLM of it,
//! `expand` prints it. Running it is `process`'s business.

use crate::diag::Report;
use crate::vars::{self, Variable};
use crate::yaml::{Document, Fields, Node};
use serde_json::Value as Json;
use std::collections::HashMap;

pub mod argv;
pub mod edit;
pub mod expand;
pub mod observation;
pub mod migrate;
mod parameter;
pub mod placeholder;
pub mod quoting;
pub mod schema;
mod table;
pub mod words;

pub use parameter::{Inject, Kind, Parameter};
use placeholder::{Hole, Part};
use quoting::Refusal;
pub use table::TOOL;

/// Environment variables that the engine sets for every child; a tool's `env:` may not.
pub const RUN_VARIABLES: [&str; 9] = [
    "RUN_DIR",
    "JOURNAL_PATH",
    "ITERATION_COUNT",
    "DELTA_RUN_ID",
    "DELTA_AGENT_HOME",
    "AGENT_HOME",
    "DELTA_CWD",
    "CWD",
    "DELTA_CALL_ID",
];

/// A command that the LLM can call.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its name, `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// What the LLM is told of it.
    pub description: Option<String>,
    /// How it was written.
    pub syntax: Syntax,
    /// The `exec:` or `shell:` template; the joined `command:`.
    pub template: String,
    /// The words of its command line, before the parameters that are appended.
    pub words: Vec<Word>,
    /// Its parameters, in the file's order.
    pub parameters: Vec<Parameter>,
    /// Milliseconds before it is ended.
    pub timeout_ms: u64,
    /// Bytes of each stream that the LLM sees.
    pub max_output_bytes: usize,
    /// Additional environment; engine variables are still to be filled in.
    pub env: Vec<(String, String)>,
    /// Key variables that it is given all the same.
    pub pass_env: Vec<String>,
    /// Whether it may simply be run again when the engine died during a call.
    pub idempotent: bool,
    /// The file that defines it, as messages call it.
    pub file: String,
    /// The line in that file at which it begins.
    pub line: usize,
}

/// Which of the three forms a tool was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// `exec:`
    Exec,
    /// `shell:`
    Shell,
    /// `command:`
    Command,
}

impl Syntax {
    /// The key that introduces it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Shell => "shell",
            Self::Command => "command",
        }
    }
}

/// One word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its parts, side by side.
    pub pieces: Vec<Piece>,
    /// Whether it is left out when it is one parameter that has no value.
    pub droppable: bool,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Text(String),
    /// The value of an engine variable.
    Variable(Variable),
    /// The value of the parameter with this index.
    Parameter(usize),
}

impl Word {
    fn text(text: impl Into<String>) -> Self {
        Self { pieces: vec![Piece::Text(text.into())], droppable: false }
    }

    /// The parameter that it consists of.
    pub fn only_parameter(&self) -> Option<usize> {
        match self.pieces.as_slice() {
            [Piece::Parameter(index)] => Some(*index),
            _ => None,
        }
    }

    fn has_parameter(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Parameter(_)))
    }
}

/// Reads a list of tools; two of one name are an error.
pub fn read_list(doc: &Document, node: &Node) -> Vec<Tool> {
    let items = doc.list(node, "`tools`").unwrap_or_default();
    let mut lines: HashMap<&str, usize> = HashMap::new();
    for (item, at) in items.iter().filter_map(|item| Some((item, item.get("name")?))) {
        let Some(name) = at.scalar().filter(|name| is_tool_name(name)) else { continue };
        if let Some(line) = lines.insert(name, item.line) {
            let help = format!("rename one of them; the other one begins in line {line}");
            doc.fault(at, format!("two tools are named `{name}`"), Some(help));
        }
    }
    items.iter().filter_map(|item| Tool::read(doc, item)).collect()
}

/// The tools of a file that has a `tools:` list, with everything that is wrong with them.
pub fn read_file(doc: &Document, report: &mut Report) -> Vec<Tool> {
    let tools = match doc.root.get("tools") {
        Some(node) if !node.is_null() => read_list(doc, node),
        Some(_) => Vec::new(),
        None if doc.root.get("imports").is_some() => Vec::new(),
        None => {
            doc.fault(&doc.root, "the file has no `tools:` list", None);
            Vec::new()
        }
    };
    doc.finish(report);
    tools
}

impl Tool {
    /// Reads one tool; what is wrong with it goes into the document's report.
    pub fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &TOOL)?;
        let name = read_name(doc, fields);
        let description = fields.text("description");
        let syntax = read_syntax(doc, fields);
        let stdin =
            fields.given("stdin").and_then(|node| Some((read_parameter_name(doc, node)?, node)));
        let (timeout_ms, max_output_bytes) =
            (fields.integer("timeout_ms"), fields.integer("max_output_bytes"));
        let env = fields.given("env").map(|node| read_env(doc, node)).unwrap_or_default();
        let pass_env = fields.texts("pass_env");
        let idempotent = fields.boolean("idempotent");

        let (syntax, template) = syntax?;
        let mut layout = Layout::of(doc, syntax, template)?;
        layout.add_stdin(doc, stdin, syntax);
        let parameters = parameter::merge(doc, fields, syntax, &layout);
        let tool = Self {
            name: name?.to_owned(),
            description: description.map(str::to_owned),
            syntax,
            template: layout.template.clone(),
            words: layout.words_for(&parameters),
            parameters,
            timeout_ms: timeout_ms?,
            max_output_bytes: usize::try_from(max_output_bytes?).unwrap_or(usize::MAX),
            env,
            pass_env,
            idempotent,
            file: doc.name.clone(),
            line: node.line,
        };
        Some(tool)
    }
}

fn read_name<'a>(doc: &Document, fields: Fields<'a>) -> Option<&'a str> {
    let node = fields.require("name", "list_files")?;
    let name = doc.text(node, "`name`")?;
    if !is_tool_name(name) {
        doc.fault(
            node,
            format!("`{name}` is not a tool name"),
            Some("1 to 64 letters, digits, `_` or `-`".to_owned()),
        );
        return None;
    }
    Some(name)
}

/// Whether `name` can be a tool's name.
pub fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn read_parameter_name(doc: &Document, node: &Node) -> Option<String> {
    let name = doc.text(node, "a parameter's name")?;
    if Variable::named(name).is_some() {
        let help = "choose another name; the engine fills this one in by itself";
        doc.fault(
            node,
            format!("`{name}` is the engine's variable, not a parameter"),
            Some(help.to_owned()),
        );
        return None;
    }
    if !placeholder::is_name(name) {
        let help = "letters, digits and `_`, not beginning with a digit";
        doc.fault(node, format!("`{name}` is not a parameter name"), Some(help.to_owned()));
        return None;
    }
    Some(name.to_owned())
}

fn read_syntax<'a>(doc: &Document, fields: Fields<'a>) -> Option<(Syntax, &'a Node)> {
    let given: Vec<_> = [Syntax::Exec, Syntax::Shell, Syntax::Command]
        .into_iter()
        .filter_map(|syntax| Some((syntax, fields.node.entry(syntax.key())?)))
        .collect();
    match given.as_slice() {
        [(syntax, (_, node))] => Some((*syntax, node)),
        [] => {
            let help =
                "write `exec: \"PROGRAM ARG ${param}\"`, or `shell:` for pipes and redirections";
            let at = fields.node.entries().first().map_or(fields.node, |(key, _)| key);
            doc.fault(
                at,
                "a tool needs one of `exec:`, `shell:` and `command:`",
                Some(help.to_owned()),
            );
            None
        }
        [_, (_, (key, _)), ..] => {
            doc.fault(
                key,
                "exec:, shell:, and command: are mutually exclusive",
                Some("keep one".to_owned()),
            );
            None
        }
    }
}

fn read_env(doc: &Document, node: &Node) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for (key, value) in doc.mapping(node, "`env`").unwrap_or_default() {
        let name = key.scalar().unwrap_or_default();
        if name.is_empty() || name.contains(['=', '\0']) {
            doc.fault(key, "an environment variable needs a name without `=`", None);
        } else if RUN_VARIABLES.contains(&name) {
            doc.fault(
                key,
                format!("`{name}` is set by the engine"),
                Some("choose another name".to_owned()),
            );
        } else if let Some(value) = doc.text(value, &format!("`{name}`")) {
            env.push((name.to_owned(), value.to_owned()));
        }
    }
    env
}

/// A template taken apart: words whose parameters are still names.
struct Layout {
    template: String,
    words: Vec<(Vec<Part>, bool)>,
    /// Names in the order of their first appearance.
    names: Vec<String>,
    stdin: Option<String>,
}

impl Layout {
    fn of(doc: &Document, syntax: Syntax, node: &Node) -> Option<Self> {
        match syntax {
            Syntax::Command => Self::of_command(doc, node),
            Syntax::Exec => {
                let template = doc.text(node, "`exec`")?;
                let words = refused(doc, node, words::split(template))?;
                let words = words.into_iter().map(|parts| {
                    let droppable = matches!(parts.as_slice(), [Part::Hole(_)]);
                    (parts, droppable)
                });
                Some(Self::new(template, words.collect()))
            }
            Syntax::Shell => {
                let template = doc.text(node, "`shell`")?;
                if template.trim().is_empty() {
                    doc.fault(node, "the script of shell: is empty", None);
                    return None;
                }
                let script = refused(doc, node, quoting::script(template))?;
                let fixed = ["sh", "-c", &script.text, "--"]
                    .map(|text| (vec![Part::Text(text.to_owned())], false));
                let values = script.parameters.into_iter().map(|name| {
                    // The positional parameters keep their places: an absent value is an empty one.
                    (vec![Part::Hole(Hole::Parameter { name, raw: false })], false)
                });
                Some(Self::new(template, fixed.into_iter().chain(values).collect()))
            }
        }
    }

    fn of_command(doc: &Document, node: &Node) -> Option<Self> {
        let items = doc.list(node, "`command`")?;
        let words: Vec<_> =
            items.iter().map(|item| read_element(doc, item)).collect::<Option<_>>()?;
        let is_empty = |(parts, _): &(Vec<Part>, bool)| matches!(parts.as_slice(), [] | [Part::Text(_)] if part_text(parts).is_empty());
        if words.first().is_none_or(is_empty) {
            doc.fault(
                node,
                "`command` names no program",
                Some("write `[PROGRAM, ARG, ...]`".to_owned()),
            );
            return None;
        }
        if words[0].0.iter().any(|part| matches!(part, Part::Hole(Hole::Parameter { .. }))) {
            let help = "name the program; which one runs is the author's choice, not the LLM's";
            doc.fault(
                &items[0],
                "the program may not come from a parameter",
                Some(help.to_owned()),
            );
            return None;
        }
        let shown: Vec<_> = items
            .iter()
            .filter_map(|item| item.scalar().or_else(|| item.get("template")?.scalar()))
            .collect();
        Some(Self::new(&shown.join(" "), words))
    }

    fn new(template: &str, words: Vec<(Vec<Part>, bool)>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for part in words.iter().flat_map(|(parts, _)| parts) {
            if let Part::Hole(Hole::Parameter { name, .. }) = part
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        Self { template: template.to_owned(), words, names, stdin: None }
    }

    fn add_stdin(&mut self, doc: &Document, stdin: Option<(String, &Node)>, syntax: Syntax) {
        let Some((name, node)) = stdin else { return };
        if self.names.contains(&name) {
            let message = format!("`{name}` goes to stdin and also stands in `{}`", syntax.key());
            doc.fault(node, message, Some("use it in one of the two places".to_owned()));
        }
        self.stdin = Some(name);
    }

    /// The words, with the names of parameters as indices.
    fn words_for(&self, parameters: &[Parameter]) -> Vec<Word> {
        let indices: HashMap<&str, usize> = parameters
            .iter()
            .enumerate()
            .map(|(index, parameter)| (parameter.name.as_str(), index))
            .collect();
        let piece = |part: &Part| match part {
            Part::Text(text) => Piece::Text(text.clone()),
            Part::Hole(Hole::Engine { variable, .. }) => Piece::Variable(*variable),
            Part::Hole(Hole::Parameter { name, .. }) => Piece::Parameter(indices[name.as_str()]),
        };
        let word = |(parts, droppable): &(Vec<Part>, bool)| match parts.is_empty() {
            true => Word::text(""),
            false => Word { pieces: parts.iter().map(piece).collect(), droppable: *droppable },
        };
        self.words.iter().map(word).collect()
    }
}

fn part_text(parts: &[Part]) -> &str {
    match parts {
        [Part::Text(text)] => text,
        _ => "",
    }
}

fn refused<T>(doc: &Document, node: &Node, result: Result<T, Refusal>) -> Option<T> {
    result
        .map_err(|refusal| {
            let help = (!refusal.help.is_empty()).then_some(refusal.help);
            doc.fault_in(node, &refusal.fragment, refusal.message, help);
        })
        .ok()
}

/// An element of `command:`: a plain string, or `{template: "..."}`.
fn read_element(doc: &Document, item: &Node) -> Option<(Vec<Part>, bool)> {
    if let Some(text) = item.scalar() {
        let part = |piece| match piece {
            vars::Piece::Text(text) => Part::Text(text),
            vars::Piece::Variable(variable) => Part::Hole(Hole::Engine { variable, raw: false }),
        };
        return Some((vars::pieces(text).into_iter().map(part).collect(), false));
    }
    if item.is_null() || !item.items().is_empty() {
        doc.fault(
            item,
            format!("an element of `command` must be a text, not {}", item.kind()),
            None,
        );
        return None;
    }
    let fields = doc.fields(item, &table::ELEMENT)?;
    let node = fields.require("template", "\"--file=${path}\"")?;
    let template = doc.text(node, "`template`")?;
    match placeholder::parts(template) {
        Err(form) => {
            let help =
                format!("write `\\{form}` for the text itself; a placeholder is `${{name}}`");
            doc.fault_in(node, &form, format!("`{form}` is not a placeholder"), Some(help));
            None
        }
        Ok(parts) if parts.iter().any(|part| matches!(part, Part::Hole(hole) if hole.is_raw())) => {
            doc.fault(
                node,
                ":raw modifier is only allowed in shell: mode",
                Some("drop `:raw`".to_owned()),
            );
            None
        }
        Ok(parts) => {
            let droppable = matches!(parts.as_slice(), [Part::Hole(_)]);
            Some((parts, droppable))
        }
    }
}

/// A JSON value as the text that a process gets: strings as they are, everything else as JSON.
pub fn value_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}
