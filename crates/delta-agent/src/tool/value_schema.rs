//! JSON Schemas in a tool: of all its arguments, or of one parameter.

use super::yaml_edit::{self, TextEdit};
use super::{InjectAs, ParameterType, Tool, ToolParameter};
use crate::json_schema::{JsonSchema, SchemaError};
use delta_base::durable::read_regular_text as read_text;
use delta_yaml::yaml::{self, YamlDocument, YamlNode};
use serde_json::{Value as Json, json};
use std::path::Path;

/// How many `$ref` and lists of schemas lead to the type of a parameter, and how many schemas of a list are looked at.
const MAX_REFERENCES: u8 = 3;
const MAX_CHOICES: usize = 16;

/// A JSON Schema, and its compiled form.
#[derive(Debug)]
pub struct ValueSchema {
    /// The schema.
    pub json: Json,
    /// The compiled schema.
    pub validator: JsonSchema,
}

impl PartialEq for ValueSchema {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl ValueSchema {
    /// Compiles a schema that `node` contains, or whose file it names; `label` names it in messages.
    pub fn compile(doc: &YamlDocument, node: &YamlNode, label: &str, json: Json) -> Option<Self> {
        match JsonSchema::compile(&json) {
            Ok(validator) => Some(Self { json, validator }),
            Err(errors) => {
                for SchemaError { pointer, message, help } in errors {
                    let message = match pointer.as_str() {
                        "" => format!("{label}: {message}"),
                        pointer => format!("{label}, {pointer}: {message}"),
                    };
                    doc.report(node_at(node, &pointer), message, help);
                }
                None
            }
        }
    }

    /// The schema of a built-in tool, which was compiled before if it is the author's.
    pub fn of_builtin(json: Json) -> Self {
        let validator = JsonSchema::compile(&json).expect("a schema that compiles");
        Self { json, validator }
    }

    /// Reads `schema` of a tool. A file is in the directory of the file that names it, or below.
    pub(super) fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let json = match node.scalar() {
            None => doc.to_json(node)?,
            Some(file) => match read_schema_file(doc, file) {
                Ok(json) => json,
                Err(error) => {
                    doc.report(node, format!("could not read the schema `{file}`: {error}"), None);
                    return None;
                }
            },
        };
        Self::of_object(doc, node, "`schema`", json)
    }

    /// Compiles the schema of all arguments of a tool.
    pub fn of_object(doc: &YamlDocument, node: &YamlNode, label: &str, json: Json) -> Option<Self> {
        if json.get("type") != Some(&json!("object")) {
            let help = "a tool's arguments are an object: write `type: object`";
            doc.report(node, format!("{label} must be of type object"), help);
            return None;
        }
        Self::compile(doc, node, label, json)
    }
}

fn read_schema_file(doc: &YamlDocument, file: &str) -> Result<Json, String> {
    let dir = Path::new(&doc.name).parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new(".")).canonicalize().map_err(|error| error.to_string())?;
    let path = dir.join(file).canonicalize().map_err(|error| error.to_string())?;
    if !path.starts_with(&dir) {
        return Err(format!("it is outside of {}; copy it there", dir.display()));
    }
    let text = read_text(&path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// The node that `pointer` refers to inside `node`, or its key in a mapping; `node` itself if it is
/// the path of a file.
fn node_at<'n>(node: &'n YamlNode, pointer: &str) -> &'n YamlNode {
    let mut target = node;
    let mut value = node;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if let Some((key, inside)) = value.entry(&step) {
            target = key;
            value = inside;
        } else if let Some(item) =
            step.parse().ok().and_then(|index: usize| value.items().get(index))
        {
            target = item;
            value = item;
        }
    }
    target
}

/// The type of the values that a schema allows, also if it names it elsewhere (`$ref`), or allows null too, as Pydantic writes it.
fn type_name<'s>(root: &'s Json, schema: &'s Json, references: u8) -> Option<&'s str> {
    let is_value = |name: &&str| *name != "null";
    if let Some(kind) = schema.get("type") {
        let names = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
        return names.iter().filter_map(Json::as_str).find(is_value);
    }
    let references = references.checked_sub(1)?;
    if let Some(pointer) = schema.get("$ref").and_then(|it| it.as_str()?.strip_prefix('#')) {
        return type_name(root, root.pointer(pointer)?, references);
    }
    let choices = ["anyOf", "oneOf", "allOf"].iter().find_map(|name| schema.get(*name)?.as_array());
    choices?
        .iter()
        .take(MAX_CHOICES)
        .filter_map(|choice| type_name(root, choice, references))
        .find(is_value)
}

/// The properties of a schema as parameters, for placeholders, the rules of approvals and messages.
pub fn schema_parameters(schema: &Json) -> Vec<ToolParameter> {
    let properties = schema.get("properties").and_then(Json::as_object);
    let required = schema.get("required").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let parameters = properties.into_iter().flatten().map(|(name, property)| {
        let kind = type_name(schema, property, MAX_REFERENCES);
        let allowed = property.get("enum").and_then(Json::as_array);
        ToolParameter {
            name: name.clone(),
            kind: kind.and_then(ParameterType::from_name).unwrap_or(ParameterType::String),
            description: None,
            required: required.iter().any(|entry| entry == name),
            default: None,
            allowed_values: allowed.cloned().unwrap_or_default(),
            schema: None,
            inject_as: InjectAs::Stdin,
            position: None,
            in_template: false,
        }
    });
    parameters.collect()
}

/// The edits that replace the names of schema files by their contents, so that a copy of the file needs no other.
pub fn inline_schemas(items: &[YamlNode], tools: &[Tool]) -> Vec<TextEdit> {
    let mut edits: Vec<TextEdit> =
        items.iter().zip(tools).filter_map(|(item, tool)| schema_edit(item, tool)).collect();
    edits.sort_by_key(|(range, _)| range.start);
    edits.dedup();
    edits
}

fn schema_edit(item: &YamlNode, tool: &Tool) -> Option<TextEdit> {
    let node = item.get("schema").filter(|node| node.scalar().is_some())?;
    Some((node.span.clone(), tool.schema.as_ref()?.json.to_string()))
}

/// The definition of a tool as YAML on one line, which needs no schema file.
pub fn to_flow_definition(item: &YamlNode, tool: &Tool) -> String {
    let text = yaml::to_flow_yaml(item);
    if tool.schema.is_none() {
        return text;
    }
    match YamlDocument::parse(tool.file.as_str(), text.as_str()) {
        Ok(doc) => {
            let edits = schema_edit(&doc.root, tool).into_iter().collect();
            yaml_edit::apply_edits(&text, edits)
        }
        Err(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_3_1_the_type_of_a_parameter_may_be_elsewhere_or_allow_null() {
        let schema = json!({
            "properties": {
                "a": {"$ref": "#/$defs/Q"}, "b": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
                "c": {"type": ["null", "number"]}, "d": {"anyOf": [{"$ref": "#/$defs/Q"}, {"type": "null"}]},
                "e": {"$ref": "#/properties/e"}, "f": {},
            },
            "$defs": {"Q": {"type": "object"}},
        });
        let kinds: Vec<&str> = schema_parameters(&schema).iter().map(|it| it.kind.name()).collect();
        assert_eq!(kinds, ["object", "integer", "number", "object", "string", "string"]);
    }
}
