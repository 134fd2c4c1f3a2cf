//! Compiles schemas and reports their errors.

use super::canonical_json::canonical_json;
use super::decimal::Decimal;
use super::{
    ItemRules, JsonSchema, JsonType, NumberLimit, PropertyRules, SchemaError, SchemaKeyword,
    SizeLimit, SizedType, SubschemaId, escape_pointer_token, pattern, reference,
};
use delta_base::suggest;
use serde_json::{Map, Value as Json};
use std::collections::{BTreeSet, HashMap};

/// Annotations: the keywords that do not constrain values.
const ANNOTATIONS: [&str; 9] = [
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
];

/// The constraints and definitions that both drafts have, as suggestions for a misspelled keyword.
pub(super) const KEYWORDS: [&str; 33] = [
    "$ref",
    "$defs",
    "definitions",
    "type",
    "enum",
    "const",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "items",
    "contains",
    "minProperties",
    "maxProperties",
    "required",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaDraft {
    Draft7,
    Draft202012,
}

/// Implements [`JsonSchema::compile`].
pub(super) fn compile_schema(schema: &Json) -> Result<JsonSchema, Vec<SchemaError>> {
    let mut compiler = SchemaCompiler {
        draft: SchemaDraft::Draft202012,
        subschemas: Vec::new(),
        ids: HashMap::new(),
        references: Vec::new(),
        errors: Vec::new(),
    };
    if let Some(draft) = schema.get("$schema") {
        compiler.read_draft(draft);
    }
    compiler.compile_subschema(schema, "");
    compiler.finish()
}

struct SchemaCompiler {
    draft: SchemaDraft,
    /// `None` for a subschema that is referenced but not yet compiled.
    subschemas: Vec<Option<Vec<SchemaKeyword>>>,
    /// The ids of the subschemas by their JSON Pointers.
    ids: HashMap<String, SubschemaId>,
    references: Vec<SchemaReference>,
    errors: Vec<SchemaError>,
}

/// A `$ref`; its target may come later in the schema.
struct SchemaReference {
    pointer: String,
    text: String,
    target: SubschemaId,
}

impl SchemaCompiler {
    fn add_error(&mut self, pointer: &str, message: impl Into<String>, help: Option<String>) {
        self.errors.push(SchemaError {
            pointer: pointer.to_owned(),
            message: message.into(),
            help,
        });
    }

    fn read_draft(&mut self, draft: &Json) {
        self.draft = match draft.as_str().map(|uri| uri.trim_end_matches('#')) {
            Some("https://json-schema.org/draft/2020-12/schema") => SchemaDraft::Draft202012,
            Some(
                "http://json-schema.org/draft-07/schema"
                | "https://json-schema.org/draft-07/schema",
            ) => SchemaDraft::Draft7,
            _ => {
                let help = "known here: `https://json-schema.org/draft/2020-12/schema`, `http://json-schema.org/draft-07/schema#`";
                self.add_error("/$schema", "the draft is not supported", Some(help.to_owned()));
                return;
            }
        }
    }

    fn finish(mut self) -> Result<JsonSchema, Vec<SchemaError>> {
        for SchemaReference { pointer, text, target } in std::mem::take(&mut self.references) {
            if self.subschemas[target].is_none() {
                self.add_error(
                    &pointer,
                    format!("`{text}` is not a schema in this document"),
                    None,
                );
            }
        }
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let schema = JsonSchema { subschemas: self.subschemas.into_iter().flatten().collect() };
        let Some(id) = reference::find_reference_loop(&schema) else { return Ok(schema) };
        let entry = self.ids.into_iter().find(|(_, other)| *other == id);
        Err(vec![SchemaError {
            pointer: entry.map(|(pointer, _)| pointer).unwrap_or_default(),
            message: "the references from this schema lead back to it, for the same value"
                .to_owned(),
            help: None,
        }])
    }

    fn subschema_id(&mut self, pointer: &str) -> SubschemaId {
        if let Some(id) = self.ids.get(pointer) {
            return *id;
        }
        let id = self.subschemas.len();
        self.subschemas.push(None);
        self.ids.insert(pointer.to_owned(), id);
        id
    }

    fn compile_subschema(&mut self, schema: &Json, pointer: &str) -> SubschemaId {
        let id = self.subschema_id(pointer);
        let keywords = match schema {
            Json::Bool(true) => Vec::new(),
            Json::Bool(false) => vec![SchemaKeyword::False],
            Json::Object(object) => self.compile_keywords(object, pointer),
            _ => {
                self.add_error(pointer, "a schema must be an object or a boolean", None);
                Vec::new()
            }
        };
        self.subschemas[id] = Some(keywords);
        id
    }

    fn compile_keywords(
        &mut self,
        object: &Map<String, Json>,
        pointer: &str,
    ) -> Vec<SchemaKeyword> {
        // Draft 7 ignores the keywords next to `$ref`, except for definitions.
        let is_reference = self.draft == SchemaDraft::Draft7 && object.contains_key("$ref");
        let mut keywords = Vec::new();
        for (name, value) in object {
            let is_skipped = match name.as_str() {
                "$schema" | "$id" => pointer.is_empty(),
                "$ref" | "$defs" | "definitions" => false,
                _ => is_reference,
            };
            if !is_skipped {
                let pointer = child_pointer(pointer, name);
                keywords.extend(self.compile_keyword(name, value, &pointer));
            }
        }
        if !is_reference {
            keywords.extend(self.compile_properties(object, pointer));
            keywords.extend(self.compile_items(object, pointer));
            keywords.extend(self.compile_contains(object, pointer));
            keywords.extend(self.compile_condition(object, pointer));
        }
        keywords
    }

    /// Compiles a keyword on which no other depends. Returns `None` for annotations, definitions and
    /// errors, and for the keywords that [`Self::compile_keywords`] compiles together with others.
    fn compile_keyword(
        &mut self,
        name: &str,
        value: &Json,
        pointer: &str,
    ) -> Option<SchemaKeyword> {
        if let Some(limit) = NumberLimit::from_keyword(name) {
            return self.compile_number_limit(limit, value, pointer);
        }
        if let Some((sized_type, limit)) = parse_size_keyword(name) {
            return self.compile_size_limit(sized_type, limit, value, pointer);
        }
        match name {
            "$ref" => self.compile_reference(value, pointer),
            "$defs" | "definitions" => {
                self.compile_schema_map(value, pointer);
                None
            }
            "type" => self.read_types(value, pointer).map(SchemaKeyword::Type),
            "enum" => self.read_array(value, pointer).map(compile_enum),
            "const" => Some(compile_enum(std::slice::from_ref(value))),
            "pattern" => self.compile_pattern(value, pointer),
            "uniqueItems" => self.compile_unique_items(value, pointer),
            "required" => self.read_strings(value, pointer).map(SchemaKeyword::Required),
            "propertyNames" => {
                Some(SchemaKeyword::PropertyNames(self.compile_subschema(value, pointer)))
            }
            "allOf" => self.compile_schema_array(value, pointer).map(SchemaKeyword::AllOf),
            "anyOf" => self.compile_schema_array(value, pointer).map(SchemaKeyword::AnyOf),
            "oneOf" => self.compile_schema_array(value, pointer).map(SchemaKeyword::OneOf),
            "not" => Some(SchemaKeyword::Not(self.compile_subschema(value, pointer))),
            "properties"
            | "patternProperties"
            | "additionalProperties"
            | "items"
            | "contains"
            | "if"
            | "then"
            | "else" => None,
            "prefixItems" | "minContains" | "maxContains"
                if self.draft == SchemaDraft::Draft202012 =>
            {
                None
            }
            "additionalItems" if self.draft == SchemaDraft::Draft7 => None,
            _ if ANNOTATIONS.contains(&name) => None,
            _ => {
                self.add_error(
                    pointer,
                    format!("the keyword `{name}` is not supported"),
                    suggest_keyword(name),
                );
                None
            }
        }
    }

    fn compile_reference(&mut self, value: &Json, pointer: &str) -> Option<SchemaKeyword> {
        let text = value.as_str().unwrap_or_default();
        let Some(target_pointer) = reference::parse_reference(text) else {
            let message = "a reference must point into this document";
            self.add_error(pointer, message, Some("such as `#/$defs/name`".to_owned()));
            return None;
        };
        let target = self.subschema_id(&target_pointer);
        self.references.push(SchemaReference {
            pointer: pointer.to_owned(),
            text: text.to_owned(),
            target,
        });
        Some(SchemaKeyword::Ref(target))
    }

    fn read_types(&mut self, value: &Json, pointer: &str) -> Option<Vec<JsonType>> {
        let names = match value {
            Json::Array(names) => names.as_slice(),
            name => std::slice::from_ref(name),
        };
        let types = names
            .iter()
            .map(|name| JsonType::ALL.into_iter().find(|json_type| name == json_type.name()));
        let types = types.collect::<Option<Vec<JsonType>>>();
        if types.is_none() {
            let known = JsonType::ALL.map(|json_type| format!("`{}`", json_type.name())).join(", ");
            self.add_error(pointer, format!("a type must be one of {known}"), None);
        }
        types
    }

    fn compile_number_limit(
        &mut self,
        limit: NumberLimit,
        value: &Json,
        pointer: &str,
    ) -> Option<SchemaKeyword> {
        let Json::Number(number) = value else {
            self.add_error(pointer, "must be a number", None);
            return None;
        };
        let decimal = Decimal::from_number(number);
        if limit == NumberLimit::MultipleOf && !decimal.is_positive() {
            self.add_error(pointer, "must be greater than zero", None);
            return None;
        }
        Some(SchemaKeyword::Number(limit, decimal, number.to_string()))
    }

    fn compile_size_limit(
        &mut self,
        sized_type: SizedType,
        limit: SizeLimit,
        value: &Json,
        pointer: &str,
    ) -> Option<SchemaKeyword> {
        self.read_count(value, pointer).map(|count| SchemaKeyword::Size(sized_type, limit, count))
    }

    fn read_count(&mut self, value: &Json, pointer: &str) -> Option<usize> {
        let number = value.as_number().map(Decimal::from_number);
        let count = number.and_then(Decimal::to_count);
        if count.is_none() {
            self.add_error(pointer, "must be a non-negative integer", None);
        }
        count
    }

    fn compile_pattern(&mut self, value: &Json, pointer: &str) -> Option<SchemaKeyword> {
        let Json::String(text) = value else {
            self.add_error(pointer, "must be a string", None);
            return None;
        };
        self.read_regex(text, pointer).map(|regex| SchemaKeyword::Pattern(regex, text.clone()))
    }

    fn read_regex(&mut self, pattern: &str, pointer: &str) -> Option<regex::Regex> {
        match pattern::compile_ecma_regex(pattern) {
            Ok(regex) => Some(regex),
            Err(error) => {
                self.add_error(pointer, format!("the pattern is not supported: {error}"), None);
                None
            }
        }
    }

    fn compile_unique_items(&mut self, value: &Json, pointer: &str) -> Option<SchemaKeyword> {
        if !value.is_boolean() {
            self.add_error(pointer, "must be a boolean", None);
        }
        (*value == true).then_some(SchemaKeyword::UniqueItems)
    }

    fn read_array<'v>(&mut self, value: &'v Json, pointer: &str) -> Option<&'v [Json]> {
        let array = value.as_array();
        if array.is_none() {
            self.add_error(pointer, "must be an array", None);
        }
        array.map(Vec::as_slice)
    }

    fn read_strings(&mut self, value: &Json, pointer: &str) -> Option<Vec<String>> {
        let strings =
            self.read_array(value, pointer)?.iter().map(|item| item.as_str().map(str::to_owned));
        let strings = strings.collect::<Option<Vec<String>>>();
        if strings.is_none() {
            self.add_error(pointer, "must be an array of strings", None);
        }
        strings
    }

    fn compile_schema_array(&mut self, value: &Json, pointer: &str) -> Option<Vec<SubschemaId>> {
        let Some(schemas) = value.as_array().filter(|schemas| !schemas.is_empty()) else {
            self.add_error(pointer, "must be a non-empty array of schemas", None);
            return None;
        };
        let mut ids = Vec::with_capacity(schemas.len());
        for (index, schema) in schemas.iter().enumerate() {
            ids.push(self.compile_subschema(schema, &format!("{pointer}/{index}")));
        }
        Some(ids)
    }

    fn compile_schema_map(&mut self, value: &Json, pointer: &str) -> Vec<(String, SubschemaId)> {
        let Json::Object(object) = value else {
            self.add_error(pointer, "must be an object whose values are schemas", None);
            return Vec::new();
        };
        let mut entries = Vec::with_capacity(object.len());
        for (name, schema) in object {
            let id = self.compile_subschema(schema, &child_pointer(pointer, name));
            entries.push((name.clone(), id));
        }
        entries
    }

    fn compile_properties(
        &mut self,
        object: &Map<String, Json>,
        pointer: &str,
    ) -> Option<SchemaKeyword> {
        let properties = object.get("properties");
        let patterns = object.get("patternProperties");
        let additional = object.get("additionalProperties");
        properties.or(patterns).or(additional)?;
        let mut rules = PropertyRules::default();
        if let Some(properties) = properties {
            rules.property_schemas =
                self.compile_schema_map(properties, &format!("{pointer}/properties"));
        }
        if let Some(patterns) = patterns {
            let pointer = format!("{pointer}/patternProperties");
            for (pattern, schema) in self.compile_schema_map(patterns, &pointer) {
                let regex = self.read_regex(&pattern, &child_pointer(&pointer, &pattern));
                rules.pattern_schemas.extend(regex.map(|regex| (regex, schema)));
            }
        }
        if let Some(additional) = additional {
            let schema =
                self.compile_subschema(additional, &format!("{pointer}/additionalProperties"));
            rules.additional_schema = Some(schema);
            rules.is_closed = *additional == false;
        }
        Some(SchemaKeyword::Properties(rules))
    }

    fn compile_items(
        &mut self,
        object: &Map<String, Json>,
        pointer: &str,
    ) -> Option<SchemaKeyword> {
        let items_pointer = format!("{pointer}/items");
        let items = object.get("items");
        let mut prefix_schemas = Vec::new();
        let mut rest_schema = None;
        match (self.draft, items) {
            (SchemaDraft::Draft7, Some(Json::Array(schemas))) if schemas.is_empty() => {}
            (SchemaDraft::Draft7, Some(Json::Array(_))) => {
                prefix_schemas =
                    self.compile_schema_array(items?, &items_pointer).unwrap_or_default();
            }
            (SchemaDraft::Draft202012, Some(Json::Array(_))) => {
                let help = "write `prefixItems`, or declare draft 7 in `$schema`";
                self.add_error(
                    &items_pointer,
                    "must be one schema, not an array",
                    Some(help.to_owned()),
                );
            }
            (_, Some(schema)) => rest_schema = Some(self.compile_subschema(schema, &items_pointer)),
            (_, None) => {}
        }
        match self.draft {
            SchemaDraft::Draft7 => {
                if let Some(schema) = object.get("additionalItems") {
                    let additional =
                        self.compile_subschema(schema, &format!("{pointer}/additionalItems"));
                    rest_schema = rest_schema.or(items.map(|_| additional));
                }
            }
            SchemaDraft::Draft202012 => {
                if let Some(schemas) = object.get("prefixItems") {
                    let schemas =
                        self.compile_schema_array(schemas, &format!("{pointer}/prefixItems"));
                    prefix_schemas = schemas.unwrap_or_default();
                }
            }
        }
        (!prefix_schemas.is_empty() || rest_schema.is_some())
            .then_some(SchemaKeyword::Items(ItemRules { prefix_schemas, rest_schema }))
    }

    fn compile_contains(
        &mut self,
        object: &Map<String, Json>,
        pointer: &str,
    ) -> Option<SchemaKeyword> {
        let mut read_limit = |name: &str| {
            let value = object.get(name).filter(|_| self.draft == SchemaDraft::Draft202012)?;
            self.read_count(value, &format!("{pointer}/{name}"))
        };
        let min_count = read_limit("minContains").unwrap_or(1);
        let max_count = read_limit("maxContains");
        let item_schema =
            self.compile_subschema(object.get("contains")?, &format!("{pointer}/contains"));
        Some(SchemaKeyword::Contains { item_schema, min_count, max_count })
    }

    fn compile_condition(
        &mut self,
        object: &Map<String, Json>,
        pointer: &str,
    ) -> Option<SchemaKeyword> {
        let mut compile_branch = |name: &str| {
            let schema = object.get(name)?;
            Some(self.compile_subschema(schema, &format!("{pointer}/{name}")))
        };
        let condition = compile_branch("if");
        let then_schema = compile_branch("then");
        let else_schema = compile_branch("else");
        Some(SchemaKeyword::If { condition: condition?, then_schema, else_schema })
    }
}

/// The JSON Pointer of the member `name` of the object at `pointer`.
fn child_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", escape_pointer_token(name))
}

fn parse_size_keyword(keyword: &str) -> Option<(SizedType, SizeLimit)> {
    match keyword {
        "minLength" => Some((SizedType::String, SizeLimit::Minimum)),
        "maxLength" => Some((SizedType::String, SizeLimit::Maximum)),
        "minItems" => Some((SizedType::Array, SizeLimit::Minimum)),
        "maxItems" => Some((SizedType::Array, SizeLimit::Maximum)),
        "minProperties" => Some((SizedType::Object, SizeLimit::Minimum)),
        "maxProperties" => Some((SizedType::Object, SizeLimit::Maximum)),
        _ => None,
    }
}

fn compile_enum(values: &[Json]) -> SchemaKeyword {
    let texts: Vec<String> = values.iter().map(Json::to_string).collect();
    let canonical_values: BTreeSet<String> = values.iter().map(canonical_json).collect();
    SchemaKeyword::Enum { values_json: texts.join(", "), canonical_values }
}

/// Suggests what to write instead of an unsupported keyword.
fn suggest_keyword(keyword: &str) -> Option<String> {
    let help = match keyword {
        "additionalItems" => "in draft 2020-12, use `items` for the items after `prefixItems`",
        "prefixItems" => "in draft 7, write an array of schemas under `items`",
        "minContains" | "maxContains" => "only draft 2020-12 has this keyword",
        "dependencies" | "dependentSchemas" | "dependentRequired" => "use `if` and `then`",
        "nullable" => "add `null` to the types under `type`",
        "$schema" | "$id" => "only the root of the document may have it",
        "unevaluatedItems" | "unevaluatedProperties" => return None,
        _ => match suggest::nearest_names(keyword, KEYWORDS).first() {
            Some(name) => return Some(format!("did you mean `{name}`?")),
            None => return None,
        },
    };
    Some(help.to_owned())
}
