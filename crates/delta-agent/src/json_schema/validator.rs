//! Validates values against compiled schemas.

use super::canonical_json::canonical_json;
use super::decimal::Decimal;
use super::{
    ItemRules, JsonSchema, JsonType, NumberLimit, PropertyRules, SchemaKeyword, SchemaViolation,
    SizeLimit, SizedType, SubschemaId, escape_pointer_token,
};
use delta_base::{suggest, terminal_text};
use regex::Regex;
use serde_json::{Map, Value as Json};
use std::collections::{BTreeSet, HashMap};

/// The maximum number of subschemas that are applied within each other. The stack of a test thread
/// has room for more.
const MAX_DEPTH: usize = 1000;

/// The maximum number of reported violations, more than an LLM needs.
pub(super) const MAX_VIOLATIONS: usize = 50;

/// The maximum number of alternatives of `anyOf` and `oneOf` that a message explains.
const MAX_ALTERNATIVES: usize = 4;

/// The maximum number of characters of a text in a message.
const MAX_TEXT_CHARS: usize = 80;

/// Implements [`JsonSchema::is_valid`].
pub(super) fn is_valid_value(schema: &JsonSchema, value: &Json) -> bool {
    let mut validator = SchemaValidator::new(schema);
    let is_valid = validator.is_valid(0, value);
    is_valid && !validator.is_too_deep
}

/// Implements [`JsonSchema::find_violations_up_to`].
pub(super) fn find_violations(
    schema: &JsonSchema,
    value: &Json,
    limit: usize,
) -> Vec<SchemaViolation> {
    let mut validator = SchemaValidator::new(schema);
    let mut violations = ViolationList::with_limit(limit);
    validator.apply_subschema(0, Part::new(value), &mut violations);
    if validator.is_too_deep {
        let message = "is nested too deeply to be checked".to_owned();
        return vec![SchemaViolation { pointer: String::new(), message, refuses_type: false }];
    }
    violations.entries
}

/// The path from the root of the value to a part of it.
enum ValuePath<'a> {
    Root,
    Property { object: &'a ValuePath<'a>, name: &'a str },
    Item { array: &'a ValuePath<'a>, index: usize },
}

impl ValuePath<'_> {
    fn to_pointer(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Property { object, name } => {
                format!("{}/{}", object.to_pointer(), escape_pointer_token(name))
            }
            Self::Item { array, index } => format!("{}/{index}", array.to_pointer()),
        }
    }
}

/// A part of the value.
#[derive(Clone, Copy)]
struct Part<'a> {
    value: &'a Json,
    path: &'a ValuePath<'a>,
}

impl<'a> Part<'a> {
    fn new(value: &'a Json) -> Self {
        Self { value, path: &ValuePath::Root }
    }
}

/// Collects violations.
struct ViolationList {
    entries: Vec<SchemaViolation>,
    is_valid: bool,
    /// The maximum number of violations; with zero, only `is_valid` matters.
    limit: usize,
}

impl ViolationList {
    fn with_limit(limit: usize) -> Self {
        Self { entries: Vec::new(), is_valid: true, limit }
    }

    /// Whether another violation would change nothing.
    fn is_full(&self) -> bool {
        !self.is_valid && self.entries.len() >= self.limit
    }

    fn push(&mut self, path: &ValuePath, message: impl FnOnce() -> String) {
        self.push_violation(path, false, message);
    }

    fn push_violation(
        &mut self,
        path: &ValuePath,
        refuses_type: bool,
        message: impl FnOnce() -> String,
    ) {
        self.is_valid = false;
        if self.entries.len() < self.limit {
            let pointer = path.to_pointer();
            self.entries.push(SchemaViolation { pointer, message: message(), refuses_type });
        }
    }
}

struct SchemaValidator<'s> {
    schema: &'s JsonSchema,
    /// Whether a part of the value, by its address, is valid under a subschema. Without this cache,
    /// recursive alternatives would take time exponential in the depth of a value.
    verdicts: HashMap<(SubschemaId, *const Json), bool>,
    depth: usize,
    is_too_deep: bool,
}

impl<'s> SchemaValidator<'s> {
    fn new(schema: &'s JsonSchema) -> Self {
        Self { schema, verdicts: HashMap::new(), depth: 0, is_too_deep: false }
    }

    fn is_valid(&mut self, id: SubschemaId, value: &Json) -> bool {
        let key = (id, std::ptr::from_ref(value));
        if let Some(verdict) = self.verdicts.get(&key) {
            return *verdict;
        }
        let mut violations = ViolationList::with_limit(0);
        self.apply_subschema(id, Part::new(value), &mut violations);
        self.verdicts.insert(key, violations.is_valid);
        violations.is_valid
    }

    fn apply_subschema(&mut self, id: SubschemaId, part: Part<'_>, out: &mut ViolationList) {
        if self.depth >= MAX_DEPTH {
            self.is_too_deep = true;
        }
        if self.is_too_deep {
            return;
        }
        self.depth += 1;
        for keyword in &self.schema.subschemas[id] {
            if out.is_full() {
                break;
            }
            self.apply_keyword(keyword, part, out);
        }
        self.depth -= 1;
    }

    fn apply_keyword(&mut self, keyword: &SchemaKeyword, part: Part<'_>, out: &mut ViolationList) {
        let Part { value, path } = part;
        match keyword {
            SchemaKeyword::False => out.push(path, || "is not allowed".to_owned()),
            // Every recursion passes a reference, so it is enough to cache the verdicts here.
            SchemaKeyword::Ref(target) => {
                if !self.is_valid(*target, value) {
                    out.is_valid = false;
                    if out.limit > 0 {
                        self.apply_subschema(*target, part, out);
                    }
                }
            }
            SchemaKeyword::Type(types) => check_type(types, part, out),
            SchemaKeyword::Enum { values_json, canonical_values } => {
                check_enum(values_json, canonical_values, part, out);
            }
            SchemaKeyword::Number(limit, bound, bound_text) => {
                check_number_limit(*limit, *bound, bound_text, part, out);
            }
            SchemaKeyword::Size(sized_type, limit, bound) => {
                check_size_limit(*sized_type, *limit, *bound, part, out);
            }
            SchemaKeyword::Pattern(regex, pattern) => {
                check_pattern(regex, pattern, part, out);
            }
            SchemaKeyword::UniqueItems => check_unique_items(part, out),
            SchemaKeyword::Required(names) => check_required(names, part, out),
            SchemaKeyword::Properties(properties) => self.check_properties(properties, part, out),
            SchemaKeyword::PropertyNames(schema) => self.check_property_names(*schema, part, out),
            SchemaKeyword::Items(items) => self.check_items(items, part, out),
            SchemaKeyword::Contains { item_schema, min_count, max_count } => {
                self.check_contains(*item_schema, *min_count, *max_count, part, out);
            }
            SchemaKeyword::AllOf(schemas) => {
                schemas.iter().for_each(|id| self.apply_subschema(*id, part, out))
            }
            SchemaKeyword::AnyOf(alternatives) => {
                if !alternatives.iter().any(|id| self.is_valid(*id, value)) {
                    self.report_no_match("anyOf", alternatives, part, out);
                }
            }
            SchemaKeyword::OneOf(alternatives) => self.check_one_of(alternatives, part, out),
            SchemaKeyword::Not(schema) => {
                if self.is_valid(*schema, value) {
                    out.push(path, || "must not match the schema of `not`".to_owned());
                }
            }
            SchemaKeyword::If { condition, then_schema, else_schema } => {
                let branch =
                    if self.is_valid(*condition, value) { then_schema } else { else_schema };
                if let Some(branch) = branch {
                    self.apply_subschema(*branch, part, out);
                }
            }
        }
    }

    fn check_one_of(
        &mut self,
        alternatives: &[SubschemaId],
        part: Part<'_>,
        out: &mut ViolationList,
    ) {
        let matches: Vec<String> = (1..)
            .zip(alternatives)
            .filter(|(_, id)| self.is_valid(**id, part.value))
            .map(|(number, _): (usize, _)| number.to_string())
            .collect();
        match matches.len() {
            0 => self.report_no_match("oneOf", alternatives, part, out),
            1 => {}
            _ => out.push(part.path, || {
                let matches = matches.join(" and ");
                format!("must match exactly one schema of `oneOf`, not schemas {matches}")
            }),
        }
    }

    /// Reports that `value` matches none of the alternatives, with one reason for each.
    fn report_no_match(
        &mut self,
        keyword: &str,
        alternatives: &[SubschemaId],
        part: Part<'_>,
        out: &mut ViolationList,
    ) {
        let Part { value, path } = part;
        let mut reasons = Vec::new();
        let refuses_type = alternatives.iter().all(|id| {
            self.schema.subschemas[*id].iter().any(|keyword| {
                matches!(keyword, SchemaKeyword::Type(types) if !types.iter().any(|it| it.matches(value)))
            })
        });
        // Nested alternatives have a list for one violation, and get no reasons.
        let max_reasons = if out.limit > 1 { MAX_ALTERNATIVES } else { 0 };
        for id in alternatives.iter().take(max_reasons) {
            let mut violations = ViolationList::with_limit(1);
            self.apply_subschema(*id, part, &mut violations);
            reasons.extend(violations.entries.first().map(ToString::to_string));
        }
        out.push_violation(path, refuses_type, || {
            let ellipsis = if alternatives.len() > MAX_ALTERNATIVES { "; ..." } else { "" };
            let value = describe_value(value);
            let message = format!("must match one of the schemas of `{keyword}`, not {value}");
            if reasons.is_empty() {
                return message;
            }
            format!("{message} ({}{ellipsis})", reasons.join("; or "))
        });
    }

    fn check_properties(&mut self, rules: &PropertyRules, part: Part<'_>, out: &mut ViolationList) {
        let Part { value, path } = part;
        let Json::Object(object) = value else { return };
        for (name, schema) in &rules.property_schemas {
            if let Some(value) = object.get(name) {
                let path = &ValuePath::Property { object: path, name };
                self.apply_subschema(*schema, Part { value, path }, out);
            }
        }
        if rules.pattern_schemas.is_empty() && rules.additional_schema.is_none() {
            return;
        }
        let known_names: BTreeSet<&str> =
            rules.property_schemas.iter().map(|(name, _)| name.as_str()).collect();
        for (name, value) in object {
            let property = Part { value, path: &ValuePath::Property { object: path, name } };
            let mut is_additional = !known_names.contains(name.as_str());
            for (regex, schema) in &rules.pattern_schemas {
                if regex.is_match(name) {
                    is_additional = false;
                    self.apply_subschema(*schema, property, out);
                }
            }
            match rules.additional_schema.filter(|_| is_additional) {
                Some(_) if rules.is_closed => {
                    out.push(path, || describe_unexpected_property(name, &known_names))
                }
                Some(schema) => self.apply_subschema(schema, property, out),
                None => {}
            }
        }
    }

    fn check_property_names(
        &mut self,
        schema: SubschemaId,
        part: Part<'_>,
        out: &mut ViolationList,
    ) {
        for name in part.value.as_object().into_iter().flat_map(Map::keys) {
            // The address of the temporary value may be reused, so each name needs its own cache.
            let mut validator =
                SchemaValidator { depth: self.depth, ..SchemaValidator::new(self.schema) };
            let mut violations = ViolationList::with_limit(1);
            let value = Json::from(name.as_str());
            validator.apply_subschema(schema, Part::new(&value), &mut violations);
            self.is_too_deep |= validator.is_too_deep;
            if let Some(violation) = violations.entries.first() {
                let name = terminal_text::truncate_to_line(name, MAX_TEXT_CHARS);
                out.push(part.path, || {
                    format!("the name of the property `{name}` {}", violation.message)
                });
            }
        }
    }

    fn check_items(&mut self, rules: &ItemRules, part: Part<'_>, out: &mut ViolationList) {
        for (index, item) in part.value.as_array().into_iter().flatten().enumerate() {
            if let Some(schema) = rules.prefix_schemas.get(index).copied().or(rules.rest_schema) {
                let path = &ValuePath::Item { array: part.path, index };
                self.apply_subschema(schema, Part { value: item, path }, out);
            }
        }
    }

    fn check_contains(
        &mut self,
        schema: SubschemaId,
        min_count: usize,
        max_count: Option<usize>,
        part: Part<'_>,
        out: &mut ViolationList,
    ) {
        let Json::Array(items) = part.value else { return };
        let count = items.iter().filter(|item| self.is_valid(schema, item)).count();
        if count < min_count {
            out.push(part.path, || {
                let items = describe_matching_items(min_count);
                format!("must have at least {items}, not {count}")
            });
        }
        if let Some(max_count) = max_count.filter(|max_count| count > *max_count) {
            out.push(part.path, || {
                let items = describe_matching_items(max_count);
                format!("must have at most {items}, not {count}")
            });
        }
    }
}

fn check_type(types: &[JsonType], part: Part<'_>, out: &mut ViolationList) {
    if !types.iter().any(|json_type| json_type.matches(part.value)) {
        out.push_violation(part.path, true, || {
            let nouns: Vec<&str> = types.iter().map(|json_type| json_type.noun()).collect();
            format!("must be {}, not {}", nouns.join(" or "), describe_value(part.value))
        });
    }
}

fn check_enum(
    values_json: &str,
    canonical_values: &BTreeSet<String>,
    part: Part<'_>,
    out: &mut ViolationList,
) {
    if canonical_values.contains(&canonical_json(part.value)) {
        return;
    }
    out.push(part.path, || {
        let expected = terminal_text::truncate_to_line(values_json, MAX_TEXT_CHARS * 4);
        let one_of = if canonical_values.len() == 1 { "" } else { "one of " };
        format!("must be {one_of}{expected}, not {}", describe_value(part.value))
    });
}

fn check_pattern(regex: &Regex, pattern: &str, part: Part<'_>, out: &mut ViolationList) {
    if part.value.as_str().is_some_and(|text| !regex.is_match(text)) {
        out.push(part.path, || {
            format!("must match the pattern `{pattern}`, not {}", describe_value(part.value))
        });
    }
}

fn check_number_limit(
    limit: NumberLimit,
    bound: Decimal,
    bound_text: &str,
    part: Part<'_>,
    out: &mut ViolationList,
) {
    let Json::Number(number) = part.value else { return };
    let decimal = Decimal::from_number(number);
    let (is_within, expected) = match limit {
        NumberLimit::Minimum => (decimal >= bound, "at least"),
        NumberLimit::ExclusiveMinimum => (decimal > bound, "greater than"),
        NumberLimit::Maximum => (decimal <= bound, "at most"),
        NumberLimit::ExclusiveMaximum => (decimal < bound, "less than"),
        NumberLimit::MultipleOf => (decimal.is_multiple_of(bound), "a multiple of"),
    };
    if !is_within {
        let keyword = limit.keyword();
        out.push(part.path, || {
            format!("must be {expected} {bound_text} (`{keyword}`), not {number}")
        });
    }
}

fn check_size_limit(
    sized_type: SizedType,
    limit: SizeLimit,
    bound: usize,
    part: Part<'_>,
    out: &mut ViolationList,
) {
    let (size, singular, plural) = match (sized_type, part.value) {
        (SizedType::String, Json::String(text)) => {
            (text.chars().count(), "character", "characters")
        }
        (SizedType::Array, Json::Array(items)) => (items.len(), "item", "items"),
        (SizedType::Object, Json::Object(object)) => (object.len(), "property", "properties"),
        _ => return,
    };
    let (is_within, expected) = match limit {
        SizeLimit::Minimum => (size >= bound, "at least"),
        SizeLimit::Maximum => (size <= bound, "at most"),
    };
    if !is_within {
        let noun = if bound == 1 { singular } else { plural };
        out.push(part.path, || format!("must have {expected} {bound} {noun}, not {size}"));
    }
}

fn check_unique_items(part: Part<'_>, out: &mut ViolationList) {
    let mut indexes = HashMap::new();
    for (index, item) in part.value.as_array().into_iter().flatten().enumerate() {
        if let Some(earlier_index) = indexes.insert(canonical_json(item), index) {
            out.push(part.path, || {
                format!("must have unique items; items {earlier_index} and {index} are equal")
            });
            return;
        }
    }
}

fn check_required(names: &[String], part: Part<'_>, out: &mut ViolationList) {
    let Json::Object(object) = part.value else { return };
    for name in names.iter().filter(|name| !object.contains_key(*name)) {
        out.push(part.path, || format!("the property `{name}` is required"));
    }
}

fn describe_unexpected_property(name: &str, known_names: &BTreeSet<&str>) -> String {
    let message = format!(
        "the property `{}` is not allowed",
        terminal_text::truncate_to_line(name, MAX_TEXT_CHARS)
    );
    if known_names.is_empty() {
        return message;
    }
    format!("{message}; {}", suggest::did_you_mean(name, known_names.iter().copied()))
}

fn describe_matching_items(count: usize) -> String {
    let items = if count == 1 { "item that matches" } else { "items that match" };
    format!("{count} {items} the schema of `contains`")
}

fn describe_value(value: &Json) -> String {
    match value {
        Json::Array(_) => JsonType::Array.noun().to_owned(),
        Json::Object(_) => JsonType::Object.noun().to_owned(),
        value => terminal_text::truncate_to_line(&value.to_string(), MAX_TEXT_CHARS),
    }
}
