//! The built-in tool `finish`: whether it is offered, and the arguments it takes.

use super::AgentLoader;
use crate::json_schema::JsonSchema;
use crate::tool::{self, ValueSchema};
use delta_base::durable::read_regular_text as read_text;
use delta_run::state::FINISH_TOOL;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use serde_json::{Value as Json, json};

/// The name of the copy of a schema that has a file of its own.
const SCHEMA_COPY: &str = "finish.json";

pub(super) static FINISH_MAPPING: MappingSchema = MappingSchema {
    label: "`finish`",
    description: "The result of a run.",
    keys: &[KeySchema::required(
        "schema",
        ValueShape::Any,
        "A JSON Schema of type object, or the path of a JSON file that holds one.",
    )],
    exactly_one_of: &[],
    allows_other_keys: false,
};

/// The built-in tool `finish`.
#[derive(Debug)]
pub enum FinishTool {
    /// It is not offered.
    Disabled,
    /// It takes `result`: a string or an object.
    AnyResult,
    /// Its arguments are the result, and must match a schema.
    Schema {
        /// The JSON Schema of the arguments.
        schema: Json,
        /// The compiled schema.
        validator: JsonSchema,
    },
}

impl FinishTool {
    pub(super) fn definition(&self) -> Json {
        let any = json!({
            "type": "object",
            "properties": {"result": {
                "type": ["string", "object"],
                "description": "The result of the task: a text, or an object when it has parts"
            }},
            "required": ["result"],
            "additionalProperties": false
        });
        let parameters = match self {
            Self::Schema { schema, .. } => schema.clone(),
            Self::Disabled | Self::AnyResult => any,
        };
        tool::definition::function_definition(
            FINISH_TOOL,
            "End the run with its result. Call it once, when the task is done.",
            parameters,
        )
    }
}

impl AgentLoader<'_> {
    pub(super) fn read_finish(
        &mut self,
        doc: &YamlDocument,
        node: &YamlNode,
    ) -> Option<FinishTool> {
        if node.scalar().is_some() {
            return Some(if doc.expect_boolean(node, "`finish`")? {
                FinishTool::AnyResult
            } else {
                FinishTool::Disabled
            });
        }
        let fields = doc.fields(node, &FINISH_MAPPING)?;
        let at = fields.require("schema", "{type: object, properties: {...}}")?;
        let schema = match at.scalar() {
            None => doc.to_json(at)?,
            Some(file) => {
                let path = self.home.join(if self.is_copy { SCHEMA_COPY } else { file });
                let schema = read_text(&path).map_err(|error| error.to_string()).and_then(|text| {
                    let schema = serde_json::from_str(&text).map_err(|error| error.to_string());
                    self.source_files.push((SCHEMA_COPY, text));
                    schema
                });
                schema
                    .map_err(|error| {
                        let file = path.display();
                        doc.report(at, format!("could not read the schema {file}: {error}"), None);
                    })
                    .ok()?
            }
        };
        let ValueSchema { json: schema, validator } =
            ValueSchema::of_object(doc, at, "the schema of `finish`", schema)?;
        Some(FinishTool::Schema { schema, validator })
    }
}
