//! The built-in tool `finish`: whether it is offered, and what it takes.

use super::Loader;
use crate::durable::read_regular_text as read_text;
use crate::state::FINISH;
use crate::tool;
use crate::yaml::shape::{Key, Shape};
use crate::yaml::{Document, Mapping, Node};
use serde_json::{Value as Json, json};

/// What the schema of `finish` is kept as in a run directory, when it is a file of its own.
const KEPT_SCHEMA: &str = "finish.json";

pub(super) static SCHEMA: Mapping = Mapping {
    what: "`finish`",
    about: "What the result of a run must be.",
    keys: &[Key::required(
        "schema",
        Shape::Any,
        "A JSON Schema of type object, or the path of a JSON file that holds one.",
    )],
    one_of: &[],
    open: false,
};

/// The built-in tool `finish`.
#[derive(Debug)]
pub enum Finish {
    /// Not offered.
    Off,
    /// It takes `result`, a text or an object.
    Result,
    /// Its arguments are the result, and must be valid.
    Schema {
        /// The JSON Schema of the arguments.
        schema: Json,
        /// The same, compiled.
        validator: Box<jsonschema::Validator>,
    },
}

impl Finish {
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
            Self::Off | Self::Result => any,
        };
        tool::schema::definition(
            FINISH,
            "End the run with its result. Call it once, when the task is done.",
            parameters,
        )
    }
}

impl Loader<'_> {
    pub(super) fn finish(&mut self, doc: &Document, node: &Node) -> Option<Finish> {
        if node.scalar().is_some() {
            return Some(if doc.boolean(node, "`finish`")? { Finish::Result } else { Finish::Off });
        }
        let fields = doc.fields(node, &SCHEMA)?;
        let at = fields.require("schema", "{type: object, properties: {...}}")?;
        let schema = match at.scalar() {
            None => doc.json(at)?,
            Some(file) => {
                let path = self.home.join(if self.kept { KEPT_SCHEMA } else { file });
                let read = read_text(&path).map_err(|error| error.to_string());
                if let Ok(text) = &read {
                    self.sources.push((KEPT_SCHEMA, text.clone()));
                }
                let parsed = read.and_then(|text| {
                    serde_json::from_str(&text).map_err(|error| error.to_string())
                });
                match parsed {
                    Ok(schema) => schema,
                    Err(error) => {
                        doc.fault(
                            at,
                            format!("the schema {} cannot be read: {error}", path.display()),
                            None,
                        );
                        return None;
                    }
                }
            }
        };
        if schema.get("type") != Some(&json!("object")) {
            let help = "a tool's arguments are an object: write `type: object`";
            doc.fault(at, "the schema of `finish` must be of type object", Some(help.to_owned()));
            return None;
        }
        match jsonschema::validator_for(&schema) {
            Ok(validator) => Some(Finish::Schema { schema, validator: Box::new(validator) }),
            Err(error) => {
                doc.fault(at, format!("not a JSON Schema: {error}"), None);
                None
            }
        }
    }
}
