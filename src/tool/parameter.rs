//! Parameters: inferred from templates, described by `parameters:`, and both merged.
//!
//! The template says how a value reaches the process; `parameters:` says what it means. Source of the rules and of the
//! messages' wording: the tool specification v1.7, section 3.7.1.

use super::{Layout, Syntax, read_parameter_name};
use crate::yaml::shape::{Default, Key, Shape};
use crate::yaml::{Document, Fields, Mapping, Node};
use serde_json::Value as Json;

/// A parameter of a `parameters:` list.
pub static PARAMETER: Mapping = Mapping {
    what: "a parameter",
    about: "What the values of a parameter may be, and how they reach the process.",
    keys: &[
        Key::required("name", super::table::NAME, "The parameter, as the template has it."),
        Key::with_default(
            "type",
            Shape::Choice(&["string", "integer", "number", "boolean", "array"]),
            Default::Text("string"),
            "What kind of value it takes; `array` is a list of texts.",
        ),
        Key::optional("description", Shape::Text, "What the LLM is told of it."),
        Key::with_default(
            "required",
            Shape::Boolean,
            Default::Boolean(true),
            "Whether a call without it is refused.",
        ),
        Key::optional(
            "default",
            Shape::Any,
            "What stands in when it is absent; it is not required then.",
        ),
        Key::optional("enum", Shape::List(&Shape::Any), "The only values that it takes."),
        Key::optional(
            "inject_as",
            Shape::Choice(&["argument", "stdin", "option"]),
            "How its value reaches the process, where no template says it.",
        ),
        Key::optional(
            "option_name",
            Shape::Text,
            "The option that goes before the value, for `inject_as: option`.",
        ),
        Key::optional(
            "position",
            Shape::Integer(0..1000),
            "Its place among the arguments that are appended to `command:`.",
        ),
        Key::refused("raw", "Written in the template: `${name:raw}`."),
    ],
    one_of: &[],
    open: false,
};

/// A value that the LLM gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// What values it takes.
    pub kind: Kind,
    /// What the LLM is told of it.
    pub description: Option<String>,
    /// Whether a call without it is refused.
    pub required: bool,
    /// What stands in when it is absent. The empty text is allowed for every kind.
    pub default: Option<Json>,
    /// The only values it takes; empty when any will do.
    pub values: Vec<Json>,
    /// How its value reaches the process.
    pub inject: Inject,
    /// Its place among the appended arguments.
    pub position: Option<u64>,
    /// Whether a template names it; otherwise its value is appended.
    pub in_template: bool,
}

/// What values a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list of texts.
    Array,
}

impl Kind {
    const ALL: [Self; 5] = [Self::String, Self::Integer, Self::Number, Self::Boolean, Self::Array];

    /// Its name in YAML and in JSON Schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
        }
    }

    /// Whether `value` is of this kind.
    pub fn takes(self, value: &Json) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Integer => is_whole(value),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.as_array().is_some_and(|items| items.iter().all(Json::is_string)),
        }
    }
}

/// Whether `value` is a whole number; `5.0` is one, as JSON Schema has it.
pub fn is_whole(value: &Json) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// How a value reaches the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inject {
    /// As an argument.
    Argument,
    /// As its standard input.
    Stdin,
    /// As `NAME value`.
    Option(String),
}

impl Inject {
    /// Its name in YAML.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Argument => "argument",
            Self::Stdin => "stdin",
            Self::Option(_) => "option",
        }
    }
}

impl Parameter {
    fn inferred(name: &str, inject: Inject, position: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::String,
            description: None,
            required: true,
            default: None,
            values: Vec::new(),
            in_template: position.is_some() || inject == Inject::Stdin,
            inject,
            position,
        }
    }
}

/// The parameters of a tool: those that `parameters:` describes in its order, then the other inferred ones.
pub(super) fn merge(
    doc: &Document,
    fields: Fields<'_>,
    syntax: Syntax,
    layout: &Layout,
) -> Vec<Parameter> {
    let mut inferred: Vec<Parameter> = Vec::new();
    for (position, name) in layout.names.iter().enumerate() {
        inferred.push(Parameter::inferred(name, Inject::Argument, Some(position as u64)));
    }
    if let Some(name) = &layout.stdin {
        inferred.retain(|parameter| parameter.name != *name);
        inferred.push(Parameter::inferred(name, Inject::Stdin, None));
    }
    let template = fields.node.get(syntax.key()).and_then(Node::scalar).unwrap_or_default();
    let nodes = fields.list("parameters");
    let mut merged: Vec<Parameter> = Vec::new();
    for node in nodes {
        let Some(parameter) = read(doc, node, (syntax, template), &inferred) else { continue };
        if merged.iter().any(|other| other.name == parameter.name) {
            doc.fault(node, format!("two parameters are named `{}`", parameter.name), None);
            continue;
        }
        merged.push(parameter);
    }
    inferred.retain(|parameter| merged.iter().all(|other| other.name != parameter.name));
    merged.extend(inferred);
    let mut on_stdin = merged.iter().filter(|parameter| parameter.inject == Inject::Stdin).skip(1);
    if let Some(second) = on_stdin.next() {
        let node =
            nodes.iter().find(|node| node.get("name").and_then(Node::scalar) == Some(&second.name));
        let message =
            format!("at most one parameter goes to stdin, and `{}` is a second one", second.name);
        doc.fault(node.unwrap_or(fields.node), message, None);
    }
    merged
}

fn read(
    doc: &Document,
    node: &Node,
    (syntax, template): (Syntax, &str),
    inferred: &[Parameter],
) -> Option<Parameter> {
    let fields = doc.fields(node, &PARAMETER)?;
    let name_node = fields.require("name", "file")?;
    let name = read_parameter_name(doc, name_node)?;
    if let Some((key, _)) = node.entry("raw") {
        doc.fault(
            key,
            format!(":raw modifier must be specified in template syntax (${{{name}:raw}})"),
            None,
        );
    }
    let found = inferred.iter().find(|parameter| parameter.name == name);
    if found.is_none() && syntax != Syntax::Command {
        let names: Vec<_> = inferred.iter().map(|parameter| parameter.name.as_str()).collect();
        let help = match names.is_empty() {
            _ if holds_variable(template, &name) => {
                format!("write `${{{name}}}`: `${name}` is a variable of the shell")
            }
            true => format!(
                "the template has no placeholders; write `${{{name}}}` where the value belongs"
            ),
            false => crate::text::did_you_mean(&name, names.iter().copied()),
        };
        doc.fault(name_node, format!("Parameter '{name}' not found in template"), Some(help));
        return None;
    }
    let mut parameter =
        found.cloned().unwrap_or_else(|| Parameter::inferred(&name, Inject::Argument, None));
    read_meaning(doc, fields, &mut parameter);
    read_injection(doc, fields, found, &mut parameter);
    Some(parameter)
}

/// Whether `$name` stands in a template.
fn holds_variable(template: &str, name: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let mut rest = template.split('$').skip(1);
    rest.any(|rest| rest.strip_prefix(name).is_some_and(|rest| !goes_on(rest)))
}

/// Reads what the values are: type, description, enum, default, required.
fn read_meaning(doc: &Document, fields: Fields<'_>, parameter: &mut Parameter) {
    let named = |name: &str| Kind::ALL.into_iter().find(|kind| kind.name() == name);
    parameter.kind = fields.text("type").and_then(named).unwrap_or(Kind::String);
    let kind = parameter.kind;
    parameter.description = fields.text("description").map(str::to_owned);
    for node in fields.list("enum") {
        parameter.values.extend(typed(doc, node, kind, "an entry of `enum`"));
    }
    if let Some(node) = fields.get("default") {
        let empty = matches!(&node.value, crate::yaml::Value::Scalar { text, plain: false } if text.is_empty());
        parameter.default = match empty {
            true => Some(Json::from("")),
            false => typed(doc, node, kind, "`default`"),
        };
        if let Some(default) = &parameter.default
            && !empty
            && !parameter.values.is_empty()
            && !parameter.values.contains(default)
        {
            doc.fault(node, "`default` is not among the values of `enum`", None);
        }
    }
    parameter.required = fields.get("default").is_none();
    if let Some(node) = fields.given("required") {
        let required = fields.boolean("required");
        if required && fields.get("default").is_some() {
            let help = "take one of them away";
            doc.fault(
                node,
                "a parameter with a `default` is never required",
                Some(help.to_owned()),
            );
        }
        parameter.required = required && fields.get("default").is_none();
    }
}

/// A value of YAML as one of `kind`; for a text, any scalar as it is written.
fn typed(doc: &Document, node: &Node, kind: Kind, what: &str) -> Option<Json> {
    let value = match (kind, node.scalar()) {
        (Kind::String, Some(text)) => Json::from(text),
        _ => doc.json(node)?,
    };
    if !kind.takes(&value) {
        doc.fault(
            node,
            format!("{what} must be of type {}, not {}", kind.name(), node.kind()),
            None,
        );
        return None;
    }
    Some(value)
}

/// Reads how the value reaches the process; the template has the last word.
fn read_injection(
    doc: &Document,
    fields: Fields<'_>,
    found: Option<&Parameter>,
    parameter: &mut Parameter,
) {
    read_inject_as(doc, fields, found, parameter);
    match (&parameter.inject, fields.node.entry("option_name")) {
        (Inject::Option(name), _) if name.is_empty() => {
            let help = "write `option_name: \"--name\"`";
            doc.fault(
                fields.node,
                "`inject_as: option` needs an `option_name`",
                Some(help.to_owned()),
            );
        }
        (Inject::Argument | Inject::Stdin, Some((key, _))) => {
            doc.fault(key, "`option_name` goes with `inject_as: option`", None);
        }
        _ => {}
    }
    read_position(doc, fields, found, parameter);
}

fn read_inject_as(
    doc: &Document,
    fields: Fields<'_>,
    found: Option<&Parameter>,
    parameter: &mut Parameter,
) {
    let Some(node) = fields.given("inject_as") else { return };
    let name = fields.text("inject_as").unwrap_or_default();
    let explicit = match name {
        "argument" => Some(Inject::Argument),
        "stdin" => Some(Inject::Stdin),
        "option" => Some(Inject::Option(fields.text("option_name").unwrap_or_default().to_owned())),
        _ => None,
    };
    match (explicit, found) {
        (Some(explicit), Some(found)) if explicit.name() != found.inject.name() => {
            let message = format!(
                "Cannot override inject_as for parameter '{}' (inferred: {}, explicit: {name})",
                parameter.name,
                found.inject.name()
            );
            doc.fault(
                node,
                message,
                Some("use the `stdin:` key of the tool for standard input".to_owned()),
            );
        }
        (Some(explicit), None) => parameter.inject = explicit,
        _ => {}
    }
}

fn read_position(
    doc: &Document,
    fields: Fields<'_>,
    found: Option<&Parameter>,
    parameter: &mut Parameter,
) {
    let Some(node) = fields.given("position") else { return };
    let explicit = fields.integer("position");
    match (explicit, found) {
        (Some(explicit), Some(found)) if found.position != Some(explicit) => {
            let inferred =
                found.position.map_or("none".to_owned(), |position| position.to_string());
            let message = format!(
                "Cannot override position for parameter '{}' (inferred: {inferred}, explicit: {explicit})",
                parameter.name
            );
            doc.fault(node, message, Some("the template says where the value stands".to_owned()));
        }
        (Some(explicit), None) => parameter.position = Some(explicit),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
