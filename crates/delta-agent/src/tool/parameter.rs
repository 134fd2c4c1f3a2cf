//! Parameters: inferred from templates, described by `parameters:`, and merged.
//!
//! The template determines how a value reaches the process; `parameters:` determines what it means.
//! The rules and the wording of the messages come from the tool specification v1.7, section 3.7.1.

use super::{TemplateLayout, ToolSyntax, ValueSchema, read_parameter_name, schema_parameters};
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{MappingFields, MappingSchema, YamlDocument, YamlNode, YamlValue};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// The name of a parameter.
pub const PARAMETER_NAME_SHAPE: ValueShape = ValueShape::Pattern("[A-Za-z_][A-Za-z0-9_]*");

/// The keys of a `parameters:` entry.
pub static PARAMETER_MAPPING: MappingSchema = MappingSchema::new(
    "a parameter",
    "The values of a parameter, and how they reach the process.",
    &[
        KeySchema::required(
            "name",
            PARAMETER_NAME_SHAPE,
            "The name of the parameter in the template.",
        ),
        KeySchema::with_default(
            "type",
            ValueShape::Choice(&["string", "integer", "number", "boolean", "array", "object"]),
            DefaultValue::Text("string"),
            "The type of its values; `array` is a list of strings, unless `items` says otherwise.",
        )
        .with_help(super::wrong_values::type_help),
        KeySchema::optional("description", ValueShape::Text, "The description for the LLM."),
        KeySchema::optional(
            "items",
            ValueShape::Any,
            "The JSON Schema of the entries of an array.",
        ),
        KeySchema::optional(
            "properties",
            ValueShape::Any,
            "The JSON Schemas of the properties of an object.",
        ),
        KeySchema::optional(
            "additionalProperties",
            ValueShape::Any,
            "Whether an object may have other properties, or their JSON Schema.",
        ),
        KeySchema::with_default(
            "required",
            ValueShape::OneOf(&[ValueShape::Boolean, ValueShape::List(&ValueShape::Text)]),
            DefaultValue::Boolean(true),
            "Whether a call without it is refused; for an object also the list of the properties that it must have.",
        ),
        KeySchema::optional(
            "default",
            ValueShape::Any,
            "The value used when it is absent, which makes the parameter optional.",
        ),
        KeySchema::optional("enum", ValueShape::List(&ValueShape::Any), "The allowed values."),
        KeySchema::optional(
            "inject_as",
            ValueShape::Choice(&["argument", "stdin", "option"]),
            "How its value reaches the process, unless a template contains it.",
        ),
        KeySchema::optional(
            "option_name",
            ValueShape::Text,
            "The option before the value, for `inject_as: option`.",
        ),
        KeySchema::optional(
            "position",
            ValueShape::Integer(0..1000),
            "Its position among the arguments appended to `command:`.",
        ),
        KeySchema::refused("raw", "Written in the template: `${name:raw}`."),
    ],
);

/// A value that the LLM passes to a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolParameter {
    /// The name: letters, digits and `_`, not beginning with a digit.
    pub name: String,
    /// The type of its values.
    pub kind: ParameterType,
    /// The description for the LLM.
    pub description: Option<String>,
    /// Whether a call without it is refused.
    pub required: bool,
    /// The value used when it is absent. The empty string is allowed for every type.
    pub default: Option<Json>,
    /// The only values it accepts; empty if all are.
    pub allowed_values: Vec<Json>,
    /// The schema of its values, of an object or an array with `items`.
    pub schema: Option<Arc<ValueSchema>>,
    /// How its value reaches the process.
    pub inject_as: InjectAs,
    /// Its position among the appended arguments.
    pub position: Option<u64>,
    /// Whether a template names it; otherwise its value is appended.
    pub in_template: bool,
}

/// The type of a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// A string.
    String,
    /// An integer.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list, of strings unless a schema says otherwise.
    Array,
    /// An object.
    Object,
}

impl ParameterType {
    const ALL: [Self; 6] =
        [Self::String, Self::Integer, Self::Number, Self::Boolean, Self::Array, Self::Object];

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// The name in YAML and in JSON Schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// Whether `value` is of this type.
    pub fn accepts(self, value: &Json) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Integer => is_integer(value),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.as_array().is_some_and(|items| items.iter().all(Json::is_string)),
            Self::Object => value.is_object(),
        }
    }
}

/// Whether `value` is an integer; `5.0` is, as in JSON Schema.
pub fn is_integer(value: &Json) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// How a value reaches the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectAs {
    /// As an argument.
    Argument,
    /// On its standard input.
    Stdin,
    /// As two arguments, the option's name and the value.
    Option(String),
}

impl InjectAs {
    /// The name in YAML.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Argument => "argument",
            Self::Stdin => "stdin",
            Self::Option(_) => "option",
        }
    }
}

impl ToolParameter {
    /// Whether `value` is of its type, and valid.
    pub fn accepts(&self, value: &Json) -> bool {
        match &self.schema {
            Some(schema) => schema.validator.is_valid(value),
            None => self.kind.accepts(value),
        }
    }

    fn inferred(name: &str, inject: InjectAs, position: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            kind: ParameterType::String,
            description: None,
            required: true,
            default: None,
            allowed_values: Vec::new(),
            schema: None,
            in_template: position.is_some() || inject == InjectAs::Stdin,
            inject_as: inject,
            position,
        }
    }
}

/// The parameters of a tool: those in `parameters:` in file order, then the remaining inferred
/// ones.
pub(super) fn merge_parameters(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    syntax: ToolSyntax,
    layout: &TemplateLayout,
) -> Vec<ToolParameter> {
    let mut inferred = infer_parameters(layout);
    let template = fields.node.get(syntax.key()).and_then(YamlNode::scalar).unwrap_or_default();
    let nodes = fields.list("parameters");
    let mut merged: Vec<ToolParameter> = Vec::new();
    for node in nodes {
        let parameter = read_parameter(doc, node, syntax, template, &inferred);
        let Some(parameter) = parameter else { continue };
        if merged.iter().any(|other| other.name == parameter.name) {
            doc.report(node, format!("two parameters are named `{}`", parameter.name), None);
            continue;
        }
        merged.push(parameter);
    }
    inferred.retain(|parameter| merged.iter().all(|other| other.name != parameter.name));
    merged.extend(inferred);
    let mut on_stdin =
        merged.iter().filter(|parameter| parameter.inject_as == InjectAs::Stdin).skip(1);
    if let Some(second) = on_stdin.next() {
        let node = nodes
            .iter()
            .find(|node| node.get("name").and_then(YamlNode::scalar) == Some(&second.name));
        let message =
            format!("only one parameter can go to stdin; `{}` is a second one", second.name);
        doc.report(node.unwrap_or(fields.node), message, None);
    }
    merged
}

fn infer_parameters(layout: &TemplateLayout) -> Vec<ToolParameter> {
    let mut inferred: Vec<ToolParameter> = Vec::new();
    for (position, name) in layout.names.iter().enumerate() {
        inferred.push(ToolParameter::inferred(name, InjectAs::Argument, Some(position as u64)));
    }
    if let Some(name) = &layout.stdin {
        inferred.retain(|parameter| parameter.name != *name);
        inferred.push(ToolParameter::inferred(name, InjectAs::Stdin, None));
    }
    inferred
}

/// The parameters of a tool with a schema: its properties, in the places in which the template has them.
/// `parameters:` can only give them defaults.
pub(super) fn place_properties(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    syntax: ToolSyntax,
    layout: &TemplateLayout,
    schema: &Json,
) -> Vec<ToolParameter> {
    let mut parameters = schema_parameters(schema);
    for inferred in infer_parameters(layout) {
        let names = parameters.iter().map(|parameter| parameter.name.as_str());
        let help = delta_base::suggest::did_you_mean(&inferred.name, names);
        match parameters.iter_mut().find(|parameter| parameter.name == inferred.name) {
            Some(parameter) => {
                parameter.inject_as = inferred.inject_as;
                parameter.position = inferred.position;
                parameter.in_template = true;
                let property = &schema["properties"][&inferred.name];
                parameter.default = property.get("default").cloned();
            }
            None => {
                let key =
                    if inferred.inject_as == InjectAs::Stdin { "stdin" } else { syntax.key() };
                let message = format!("`{}` is not a property of the schema", inferred.name);
                doc.report(fields.node.get(key).unwrap_or(fields.node), message, help);
                parameters.push(inferred);
            }
        }
    }
    for node in fields.list("parameters") {
        read_property_default(doc, node, &mut parameters);
    }
    parameters
}

/// Reads an entry of `parameters:` of a tool with a schema.
fn read_property_default(
    doc: &YamlDocument,
    node: &YamlNode,
    parameters: &mut [ToolParameter],
) -> Option<()> {
    let fields = doc.fields(node, &PARAMETER_MAPPING)?;
    let name_node = fields.require("name", "file")?;
    let name = name_node.scalar()?;
    let ours = ["name", "default"];
    for (key, _) in node.entries() {
        let is_known = key.scalar().is_some_and(|key| ours.contains(&key) || key.starts_with("x-"));
        if !is_known {
            let help = "`schema` describes the values; remove it here";
            doc.report(key, "with `schema`, a parameter has only a `default`", help);
        }
    }
    let mut placed = parameters.iter_mut().filter(|parameter| parameter.in_template);
    let Some(parameter) = placed.find(|parameter| parameter.name == name) else {
        doc.report(name_node, format!("Parameter '{name}' not found in template"), None);
        return None;
    };
    let value = fields.get("default")?;
    parameter.default = match (parameter.kind, value.scalar()) {
        (ParameterType::String, Some(text)) => Some(Json::from(text)),
        _ => doc.to_json(value),
    };
    Some(())
}

fn read_parameter(
    doc: &YamlDocument,
    node: &YamlNode,
    syntax: ToolSyntax,
    template: &str,
    inferred: &[ToolParameter],
) -> Option<ToolParameter> {
    doc.expect_mapping_or(node, "a parameter", || {
        format!("write `{{name: {}}}`", node.scalar().unwrap_or("file"))
    })?;
    let fields = doc.fields(node, &PARAMETER_MAPPING)?;
    let name_node = fields.require("name", "file")?;
    let name = read_parameter_name(doc, name_node)?;
    if let Some((key, _)) = node.entry("raw") {
        doc.report(
            key,
            format!(":raw modifier must be specified in template syntax (${{{name}:raw}})"),
            None,
        );
    }
    let names = inferred.iter().map(|parameter| parameter.name.as_str());
    let in_template = inferred.iter().find(|parameter| parameter.name == name);
    if in_template.is_none() && syntax != ToolSyntax::Command {
        let help = if contains_variable(template, &name) {
            format!("write `${{{name}}}`: `${name}` is a shell variable")
        } else if inferred.is_empty() {
            format!("the template has no placeholders; write `${{{name}}}` where the value belongs")
        } else {
            delta_base::suggest::did_you_mean(&name, names)
        };
        doc.report(name_node, format!("Parameter '{name}' not found in template"), help);
        return None;
    }
    let mut parameter = in_template
        .cloned()
        .unwrap_or_else(|| ToolParameter::inferred(&name, InjectAs::Argument, None));
    read_value_rules(doc, fields, &mut parameter);
    read_injection(doc, fields, in_template, &mut parameter);
    Some(parameter)
}

/// Whether `template` contains `$name`.
fn contains_variable(template: &str, name: &str) -> bool {
    template.split('$').skip(1).any(|text| {
        let rest = text.strip_prefix(name);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
    })
}

/// Reads the rules for values: type, description, enum, default, required.
fn read_value_rules(doc: &YamlDocument, fields: MappingFields<'_>, parameter: &mut ToolParameter) {
    let kind = fields.text("type").and_then(ParameterType::from_name);
    parameter.kind = kind.unwrap_or(ParameterType::String);
    parameter.schema = read_value_schema(doc, fields, parameter).map(Arc::new);
    parameter.description = fields.text("description").map(str::to_owned);
    if let Some(node) = fields.non_null("enum").filter(|node| node.is_empty_list()) {
        doc.report(node, "`enum` allows no value", "list the values, or leave out `enum`");
    }
    for node in fields.list("enum") {
        let value = read_typed_value(doc, node, parameter, "an entry of `enum`");
        parameter.allowed_values.extend(value);
    }
    if let Some(node) = fields.get("default") {
        let is_empty =
            matches!(&node.value, YamlValue::Scalar { text, is_plain: false } if text.is_empty());
        parameter.default = if is_empty {
            Some(Json::from(""))
        } else {
            read_typed_value(doc, node, parameter, "`default`")
        };
        if let Some(default) = &parameter.default
            && !is_empty
            && !parameter.allowed_values.is_empty()
            && !parameter.allowed_values.contains(default)
        {
            doc.report(node, "`default` is not among the values of `enum`", None);
        }
    }
    parameter.required = fields.get("default").is_none();
    if let Some(node) = fields.non_null("required").filter(|node| !is_list(node)) {
        doc.expect_boolean(node, "`required`");
        let required = fields.boolean("required");
        if required && fields.get("default").is_some() {
            let help = "remove one of them";
            doc.report(node, "a parameter with a `default` is never required", help);
        }
        parameter.required = required && fields.get("default").is_none();
    }
}

fn is_list(node: &YamlNode) -> bool {
    matches!(node.value, YamlValue::Sequence(_))
}

/// The schema of an object, or of an array with `items`.
fn read_value_schema(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    parameter: &ToolParameter,
) -> Option<ValueSchema> {
    let kind = parameter.kind;
    let mut schema = Map::from_iter([("type".to_owned(), Json::from(kind.name()))]);
    for (key, owner) in [
        ("items", ParameterType::Array),
        ("properties", ParameterType::Object),
        ("additionalProperties", ParameterType::Object),
    ] {
        let Some(node) = fields.non_null(key) else { continue };
        if kind == owner {
            schema.insert(key.to_owned(), doc.to_json(node)?);
        } else {
            let owner = owner.name();
            let help = format!("write `type: {owner}`, or remove `{key}`");
            doc.report(node, format!("`{key}` goes with `type: {owner}`"), help);
        }
    }
    if let Some(node) = fields.non_null("required").filter(|node| is_list(node)) {
        let names = doc.expect_texts(node, "`required`")?;
        if kind == ParameterType::Object {
            schema.insert("required".to_owned(), names.into());
        } else {
            let help = "write `required: true` or `required: false`";
            doc.report(node, "a list in `required` goes with `type: object`", help);
        }
    }
    if kind != ParameterType::Object && schema.len() == 1 {
        return None;
    }
    let label = format!("parameter `{}`", parameter.name);
    ValueSchema::compile(doc, fields.node, &label, Json::Object(schema))
}

/// Reads a YAML value of the parameter's type; for a string, any scalar as written.
fn read_typed_value(
    doc: &YamlDocument,
    node: &YamlNode,
    parameter: &ToolParameter,
    label: &str,
) -> Option<Json> {
    let kind = parameter.kind;
    let value = match (kind, node.scalar()) {
        (ParameterType::String, Some(text)) => Json::from(text),
        _ => doc.to_json(node)?,
    };
    if !parameter.accepts(&value) {
        let violations = parameter.schema.as_ref().map(|it| it.validator.find_violations(&value));
        let message = match violations.as_ref().and_then(|list| list.first()) {
            Some(violation) => format!("{label} does not match the schema: {violation}"),
            None => format!("{label} must be of type {}, not {}", kind.name(), node.kind()),
        };
        doc.report(node, message, None);
        return None;
    }
    Some(value)
}

/// Reads how the value reaches the process; the template takes precedence.
fn read_injection(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    inferred: Option<&ToolParameter>,
    parameter: &mut ToolParameter,
) {
    read_inject_as(doc, fields, inferred, parameter);
    match (&parameter.inject_as, fields.node.entry("option_name")) {
        (InjectAs::Option(name), _) if name.is_empty() => {
            let help = "write `option_name: \"--name\"`";
            doc.report(fields.node, "`inject_as: option` needs an `option_name`", help);
        }
        (InjectAs::Argument | InjectAs::Stdin, Some((key, _))) => {
            let help = "write `inject_as: option`, or remove it";
            doc.report(key, "`option_name` goes with `inject_as: option`", help);
        }
        _ => {}
    }
    read_position(doc, fields, inferred, parameter);
}

fn read_inject_as(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    inferred: Option<&ToolParameter>,
    parameter: &mut ToolParameter,
) {
    let Some(node) = fields.non_null("inject_as") else { return };
    let name = fields.text("inject_as").unwrap_or_default();
    let explicit = match name {
        "argument" => Some(InjectAs::Argument),
        "stdin" => Some(InjectAs::Stdin),
        "option" => {
            Some(InjectAs::Option(fields.text("option_name").unwrap_or_default().to_owned()))
        }
        _ => None,
    };
    match (explicit, inferred) {
        (Some(explicit), Some(inferred)) if explicit.name() != inferred.inject_as.name() => {
            let message = format!(
                "Cannot override inject_as for parameter '{}' (inferred: {}, explicit: {name})",
                parameter.name,
                inferred.inject_as.name()
            );
            doc.report(node, message, "use the `stdin:` key of the tool for standard input");
        }
        (Some(explicit), None) => parameter.inject_as = explicit,
        _ => {}
    }
}

fn read_position(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    inferred: Option<&ToolParameter>,
    parameter: &mut ToolParameter,
) {
    let Some(node) = fields.non_null("position") else { return };
    let explicit = fields.integer("position");
    match (explicit, inferred) {
        (Some(explicit), Some(inferred)) if inferred.position != Some(explicit) => {
            let inferred =
                inferred.position.map_or("none".to_owned(), |position| position.to_string());
            let message = format!(
                "Cannot override position for parameter '{}' (inferred: {inferred}, explicit: {explicit})",
                parameter.name
            );
            doc.report(node, message, "the template determines the position");
        }
        (Some(explicit), None) => parameter.position = Some(explicit),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
