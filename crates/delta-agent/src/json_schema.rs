//! Validates values against JSON Schemas of draft 2020-12 or draft 7, with error messages for LLMs.
//!
//! The compiler rejects keywords that are neither checked nor annotations, so that no constraint is
//! silently ignored. References must stay within the document.

mod canonical_json;
mod compiler;
mod decimal;
mod pattern;
mod reference;
mod validator;

use decimal::Decimal;
use regex::Regex;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fmt;

/// A compiled JSON Schema.
#[derive(Debug)]
pub struct JsonSchema {
    /// The subschemas of the document; the first is the schema itself.
    subschemas: Vec<Vec<SchemaKeyword>>,
}

/// An index into [`JsonSchema::subschemas`].
type SubschemaId = usize;

/// An error in a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// The JSON Pointer of the error; empty for the schema as a whole.
    pub pointer: String,
    /// The error, such as "must be a number".
    pub message: String,
    /// How to fix it.
    pub help: Option<String>,
}

/// An error in a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolation {
    /// The JSON Pointer of the error; empty for the value as a whole.
    pub pointer: String,
    /// The unfulfilled expectation, such as "must be a string, not 5".
    pub message: String,
    /// Whether no value of this JSON type is accepted there.
    pub refuses_type: bool,
}

/// A constraint on values. Keywords that depend on each other form one constraint.
#[derive(Debug)]
enum SchemaKeyword {
    /// The schema `false`.
    False,
    Ref(SubschemaId),
    Type(Vec<JsonType>),
    /// `enum` and `const`: the values as JSON, and their canonical texts.
    Enum {
        values_json: String,
        canonical_values: BTreeSet<String>,
    },
    Number(NumberLimit, Decimal, String),
    Size(SizedType, SizeLimit, usize),
    Pattern(Regex, String),
    UniqueItems,
    Required(Vec<String>),
    Properties(PropertyRules),
    PropertyNames(SubschemaId),
    Items(ItemRules),
    Contains {
        item_schema: SubschemaId,
        min_count: usize,
        max_count: Option<usize>,
    },
    AllOf(Vec<SubschemaId>),
    AnyOf(Vec<SubschemaId>),
    OneOf(Vec<SubschemaId>),
    Not(SubschemaId),
    If {
        condition: SubschemaId,
        then_schema: Option<SubschemaId>,
        else_schema: Option<SubschemaId>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonType {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberLimit {
    Minimum,
    ExclusiveMinimum,
    Maximum,
    ExclusiveMaximum,
    MultipleOf,
}

/// The types whose values have a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizedType {
    String,
    Array,
    Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizeLimit {
    Minimum,
    Maximum,
}

#[derive(Debug, Default)]
struct PropertyRules {
    /// In the order of the schema.
    property_schemas: Vec<(String, SubschemaId)>,
    pattern_schemas: Vec<(Regex, SubschemaId)>,
    additional_schema: Option<SubschemaId>,
    /// Whether `additional_schema` is the schema `false`: then the message names the property.
    is_closed: bool,
}

#[derive(Debug)]
struct ItemRules {
    prefix_schemas: Vec<SubschemaId>,
    rest_schema: Option<SubschemaId>,
}

impl JsonSchema {
    /// Compiles a schema; without `$schema`, draft 2020-12 applies.
    ///
    /// # Errors
    /// All errors and unsupported keywords in the schema. A loop of references is reported only if
    /// there are no other errors.
    pub fn compile(schema: &Json) -> Result<Self, Vec<SchemaError>> {
        compiler::compile_schema(schema)
    }

    /// Whether `value` is valid. A value that is nested too deeply to be checked is not valid.
    pub fn is_valid(&self, value: &Json) -> bool {
        validator::is_valid_value(self, value)
    }

    /// The first errors in `value`, at most 50; empty if it is valid.
    pub fn find_violations(&self, value: &Json) -> Vec<SchemaViolation> {
        self.find_violations_up_to(value, validator::MAX_VIOLATIONS)
    }

    /// The first errors in `value`, at most `limit`.
    pub(crate) fn find_violations_up_to(&self, value: &Json, limit: usize) -> Vec<SchemaViolation> {
        validator::find_violations(self, value, limit)
    }
}

impl fmt::Display for SchemaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => f.write_str(&self.message),
            pointer => write!(f, "{pointer}: {}", self.message),
        }
    }
}

impl NumberLimit {
    const ALL: [Self; 5] = [
        Self::Minimum,
        Self::ExclusiveMinimum,
        Self::Maximum,
        Self::ExclusiveMaximum,
        Self::MultipleOf,
    ];

    fn keyword(self) -> &'static str {
        match self {
            Self::Minimum => "minimum",
            Self::ExclusiveMinimum => "exclusiveMinimum",
            Self::Maximum => "maximum",
            Self::ExclusiveMaximum => "exclusiveMaximum",
            Self::MultipleOf => "multipleOf",
        }
    }

    fn from_keyword(keyword: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.keyword() == keyword)
    }
}

impl JsonType {
    const ALL: [Self; 7] = [
        Self::Null,
        Self::Boolean,
        Self::Integer,
        Self::Number,
        Self::String,
        Self::Array,
        Self::Object,
    ];

    /// The name in a schema.
    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// The name in a sentence, with its article.
    fn noun(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }

    fn matches(self, value: &Json) -> bool {
        match (self, value) {
            (Self::Integer, Json::Number(number)) => Decimal::from_number(number).is_integer(),
            (Self::Null, Json::Null)
            | (Self::Boolean, Json::Bool(_))
            | (Self::Number, Json::Number(_))
            | (Self::String, Json::String(_))
            | (Self::Array, Json::Array(_))
            | (Self::Object, Json::Object(_)) => true,
            _ => false,
        }
    }
}

/// Escapes a name as a reference token of a JSON Pointer (RFC 6901).
fn escape_pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
