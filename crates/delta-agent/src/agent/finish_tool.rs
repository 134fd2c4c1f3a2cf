//! The built-in tool `finish`: whether it is offered, and the arguments it takes.

use super::AgentLoader;
use crate::tool::{self, Tool, ValueSchema};
use delta_base::durable::read_regular_text as read_text;
use delta_base::text::without_byte_order_mark;
use delta_run::state::FINISH_TOOL;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use serde_json::{Value as Json, json};

/// The name of the copy of a schema that has a file of its own.
const SCHEMA_COPY: &str = "finish.json";

pub(super) static FINISH_MAPPING: MappingSchema = MappingSchema::new(
    "`finish`",
    "The result of a run.",
    &[
        KeySchema::optional(
            "schema",
            ValueShape::Any,
            "A JSON Schema of type object, or the path of a JSON file that holds one.",
        ),
        KeySchema::with_default(
            "required",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "Whether only a call ends the run; after an answer without one, the LLM is reminded and asked again.",
        ),
    ],
);

/// The key `finish` of agent.yaml.
#[derive(Default)]
pub(super) struct FinishSettings {
    pub(super) tool: FinishTool,
    /// Whether an answer without calls does not end the run.
    pub(super) is_required: bool,
}

/// The built-in tool `finish`.
#[derive(Debug, Default)]
pub enum FinishTool {
    /// It is not offered.
    Disabled,
    /// It takes `result`: a string or an object.
    #[default]
    AnyResult,
    /// Its arguments are the result, and must match a schema.
    Schema(ValueSchema),
}

impl FinishTool {
    /// The tool's entry in the `tools` of a request.
    pub(super) fn definition(&self) -> Json {
        let description = "End the run with its result, once the task is done.";
        tool::definition::function_definition(FINISH_TOOL, description, self.described_schema())
    }

    /// The entry in requests of earlier versions, which a replay builds again.
    pub(super) fn earlier_definition(&self) -> Json {
        let result = json!({
            "type": ["string", "object"],
            "description": "The result of the task: a text, or an object when it has parts"
        });
        let description = "End the run with its result. Call it once, when the task is done.";
        tool::definition::function_definition(FINISH_TOOL, description, self.schema(result))
    }

    /// The schema of its arguments, as the LLM sees it.
    pub fn described_schema(&self) -> Json {
        // An object is taken too, but small models answer a choice of types with the schema itself.
        self.schema(json!({"type": "string"}))
    }

    /// The schema of its arguments, with `result` for a result that has no schema.
    fn schema(&self, result: Json) -> Json {
        match self {
            Self::Schema(schema) => schema.json.clone(),
            Self::Disabled | Self::AnyResult => json!({
                "type": "object",
                "properties": {"result": result},
                "required": ["result"],
                "additionalProperties": false
            }),
        }
    }
}

impl AgentLoader<'_> {
    pub(super) fn read_finish(
        &mut self,
        doc: &YamlDocument,
        node: &YamlNode,
        tools: &[Tool],
    ) -> Option<FinishSettings> {
        if node.scalar().is_some() {
            let is_offered = doc.expect_boolean(node, "`finish`")?;
            let tool = if is_offered { FinishTool::AnyResult } else { FinishTool::Disabled };
            return Some(FinishSettings { tool, is_required: false });
        }
        let fields = doc.fields(node, &FINISH_MAPPING)?;
        let is_required = fields.boolean("required");
        if let Some(at) = fields.get("required").filter(|_| is_required)
            && tools.iter().any(|tool| tool.name == FINISH_TOOL)
        {
            let message =
                "the agent has its own tool `finish`, so the one of delta cannot be required";
            doc.report(at, message, "rename the tool, or omit `required`");
        }
        let tool = match fields.get("schema") {
            Some(at) => self.read_finish_schema(doc, at)?,
            None => FinishTool::AnyResult,
        };
        Some(FinishSettings { tool, is_required })
    }

    /// Reads the schema of the arguments, or the file that holds it.
    fn read_finish_schema(&mut self, doc: &YamlDocument, at: &YamlNode) -> Option<FinishTool> {
        let schema = match at.scalar() {
            None => doc.to_json(at)?,
            Some(file) => {
                let path = self.home.join(if self.is_copy { SCHEMA_COPY } else { file });
                let schema = read_text(&path).map_err(|error| error.to_string()).and_then(|text| {
                    let json = without_byte_order_mark(&text);
                    let schema = serde_json::from_str(json).map_err(|error| error.to_string());
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
        ValueSchema::of_object(doc, at, "the schema of `finish`", schema).map(FinishTool::Schema)
    }
}
