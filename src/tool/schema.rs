//! What the LLM is told of a tool: name, description, JSON Schema of its parameters. The file's order is kept, so that a
//! provider's prompt cache holds.

use super::{Kind, Parameter, Tool};
use serde_json::{Map, Value as Json, json};

impl Tool {
    /// The tool as an entry of a request's `tools`.
    pub fn definition(&self) -> Json {
        definition(
            &self.name,
            self.description.as_deref().unwrap_or(&self.template),
            self.parameters_schema(),
        )
    }

    fn parameters_schema(&self) -> Json {
        let properties: Map<String, Json> = self
            .parameters
            .iter()
            .map(|parameter| (parameter.name.clone(), property(parameter)))
            .collect();
        let required: Vec<&str> = self
            .parameters
            .iter()
            .filter(|parameter| parameter.required)
            .map(|parameter| parameter.name.as_str())
            .collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }
}

/// A function as an entry of a request's `tools`.
pub fn definition(name: &str, description: &str, parameters: Json) -> Json {
    json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})
}

fn property(parameter: &Parameter) -> Json {
    let mut schema = Map::new();
    schema.insert("type".into(), parameter.kind.name().into());
    if parameter.kind == Kind::Array {
        schema.insert("items".into(), json!({"type": "string"}));
    }
    if let Some(description) = &parameter.description {
        schema.insert("description".into(), description.as_str().into());
    }
    if !parameter.values.is_empty() {
        schema.insert("enum".into(), parameter.values.clone().into());
    }
    // An empty text may stand in for any kind; as the default of a number it would be no valid schema.
    if let Some(default) =
        parameter.default.as_ref().filter(|default| parameter.kind.takes(default))
    {
        schema.insert("default".into(), default.clone());
    }
    Json::Object(schema)
}
