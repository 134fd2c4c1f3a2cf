//! How a tool is described to the LLM: name, description, JSON Schema of its parameters. The order
//! of the file is kept, so that a provider's prompt cache holds.

use super::{ParameterType, Tool, ToolParameter};
use serde_json::{Map, Value as Json, json};

impl Tool {
    /// The tool as an entry of a request's `tools`; `sandbox` is the line about its sandbox.
    pub fn definition(&self, sandbox: Option<&str>) -> Json {
        let description = self.description.as_deref().unwrap_or(&self.template);
        let schema = self.parameters_schema();
        match sandbox {
            None => function_definition(&self.name, description, schema),
            Some(line) => {
                let description = format!("{}\n{line}", description.trim_end());
                function_definition(&self.name, &description, schema)
            }
        }
    }

    fn parameters_schema(&self) -> Json {
        if let Some(schema) = &self.schema {
            return schema.json.clone();
        }
        let properties: Map<String, Json> = self
            .parameters
            .iter()
            .map(|parameter| (parameter.name.clone(), parameter_schema(parameter)))
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
pub fn function_definition(name: &str, description: &str, parameters: Json) -> Json {
    json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})
}

fn parameter_schema(parameter: &ToolParameter) -> Json {
    let mut schema = match &parameter.schema {
        Some(schema) => schema.json.as_object().cloned().unwrap_or_default(),
        None => Map::from_iter([("type".to_owned(), parameter.kind.name().into())]),
    };
    if parameter.kind == ParameterType::Array && parameter.schema.is_none() {
        schema.insert("items".into(), json!({"type": "string"}));
    }
    if let Some(description) = &parameter.description {
        schema.insert("description".into(), description.as_str().into());
    }
    if !parameter.allowed_values.is_empty() {
        schema.insert("enum".into(), parameter.allowed_values.clone().into());
    }
    // The empty string may be the default of any type; in the schema of a number it would be
    // invalid.
    if let Some(default) = parameter.default.as_ref().filter(|default| parameter.accepts(default)) {
        schema.insert("default".into(), default.clone());
    }
    Json::Object(schema)
}
