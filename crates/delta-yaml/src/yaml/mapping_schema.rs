//! Schemas of mappings: the single source for reading, diagnostics and the JSON Schemas for editors.

use super::syntax_hint::help_unseen;
use super::{
    MAX_DIAGNOSTICS, YamlDocument, YamlNode, YamlValue, parse_boolean, parse_plain_number,
    to_whole_number, value_help,
};
use delta_base::quantity::{parse_count, parse_time_ms};
use delta_base::suggest;
use delta_base::text::hidden_text::find_unseen_character;
use std::ops::Range;

/// The keys that a mapping may have.
#[derive(Debug)]
pub struct MappingSchema {
    /// Its name in messages, with an article.
    pub label: &'static str,
    /// Its purpose, in a sentence.
    pub description: &'static str,
    /// Its keys. Keys that start with `x-` are always allowed.
    pub keys: &'static [KeySchema],
    /// Keys of which exactly one is required; may be empty.
    pub exactly_one_of: &'static [&'static str],
    /// Whether unknown keys are allowed, and kept: they belong to another program.
    pub allows_other_keys: bool,
}

/// A key and its value.
#[derive(Debug)]
pub struct KeySchema {
    /// The name of the key.
    pub name: &'static str,
    /// Its meaning, in a sentence or two.
    pub description: &'static str,
    /// The shape of its value.
    pub shape: ValueShape,
    /// Whether the key is required.
    pub required: bool,
    /// The value of a missing key.
    pub default: Option<DefaultValue>,
    /// What to write in place of a value of the wrong kind; `None` for a value that may be right.
    pub wrong_value_help: Option<WrongValueHelp>,
}

/// The help for a value, if it is one that authors write by mistake.
pub type WrongValueHelp = fn(&YamlNode) -> Option<String>;

/// The value of a missing key.
#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// A string.
    Text(&'static str),
    /// A whole number.
    Integer(u64),
    /// `true` or `false`.
    Boolean(bool),
}

/// The shape of a value.
#[derive(Debug)]
pub enum ValueShape {
    /// A string: any scalar, as it is written.
    Text,
    /// A string that a regular expression matches as a whole. Only the JSON Schema states it; the reader checks it.
    Pattern(&'static str),
    /// `true` or `false`.
    Boolean,
    /// A whole number in the range.
    Integer(Range<u64>),
    /// Milliseconds in the range: a whole number, or a time with its unit, such as `90s`.
    Milliseconds(Range<u64>),
    /// A count of tokens in the range: a whole number, or one such as `2k` or `1.5M`.
    TokenCount(Range<u64>),
    /// A number between the two, inclusive.
    Number(f64, f64),
    /// One of the strings.
    Choice(&'static [&'static str]),
    /// A list of values.
    List(&'static ValueShape),
    /// A mapping.
    Mapping(&'static MappingSchema),
    /// A mapping whose schema depends on the value of the key `by`.
    Tagged {
        /// The key that selects the schema.
        by: &'static str,
        /// The values of that key, and their schemas.
        kinds: &'static [(&'static str, &'static MappingSchema)],
    },
    /// A mapping of names to strings.
    TextMap,
    /// A mapping of names to values of one shape.
    MapOf(&'static ValueShape),
    /// A value of one of the shapes.
    OneOf(&'static [ValueShape]),
    /// Any value.
    Any,
    /// A key that its reader rejects with its own message.
    Refused,
    /// A key that belongs elsewhere; the description says where.
    Misplaced,
}

impl KeySchema {
    /// A required key.
    pub const fn required(
        name: &'static str,
        shape: ValueShape,
        description: &'static str,
    ) -> Self {
        Self { required: true, ..Self::optional(name, shape, description) }
    }

    /// An optional key.
    pub const fn optional(
        name: &'static str,
        shape: ValueShape,
        description: &'static str,
    ) -> Self {
        Self { name, description, shape, required: false, default: None, wrong_value_help: None }
    }

    /// An optional key with a default value.
    pub const fn with_default(
        name: &'static str,
        shape: ValueShape,
        default: DefaultValue,
        description: &'static str,
    ) -> Self {
        Self { default: Some(default), ..Self::optional(name, shape, description) }
    }

    /// The key, with help for values that authors write by mistake.
    #[must_use]
    pub const fn with_help(self, help: WrongValueHelp) -> Self {
        Self { wrong_value_help: Some(help), ..self }
    }

    /// A key that users often write here, but that belongs elsewhere; `description` is the help of the message.
    pub const fn misplaced(name: &'static str, description: &'static str) -> Self {
        Self::optional(name, ValueShape::Misplaced, description)
    }

    /// A key that its reader rejects with its own message instead of "unknown key".
    pub const fn refused(name: &'static str, description: &'static str) -> Self {
        Self::optional(name, ValueShape::Refused, description)
    }
}

impl MappingSchema {
    /// A mapping with these keys and no others, each as required as its schema says.
    pub const fn new(
        label: &'static str,
        description: &'static str,
        keys: &'static [KeySchema],
    ) -> Self {
        Self { label, description, keys, exactly_one_of: &[], allows_other_keys: false }
    }

    /// The mapping, where exactly one of the keys `names` is required.
    #[must_use]
    pub const fn with_exactly_one_of(self, names: &'static [&'static str]) -> Self {
        Self { exactly_one_of: names, ..self }
    }

    /// The mapping, in which unknown keys are allowed and kept.
    #[must_use]
    pub const fn with_other_keys(self) -> Self {
        Self { allows_other_keys: true, ..self }
    }

    /// The schema of a key.
    pub fn key(&self, name: &str) -> Option<&'static KeySchema> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The names of the keys that a user may write.
    pub fn key_names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.keys
            .iter()
            .filter(|key| !matches!(key.shape, ValueShape::Refused | ValueShape::Misplaced))
            .map(|key| key.name)
    }
}

impl ValueShape {
    /// Whether a value is a list, a mapping or neither, as the shape is.
    fn has_kind_of(&self, node: &YamlNode) -> bool {
        match self {
            Self::List(_) => matches!(node.value, YamlValue::Sequence(_)),
            Self::Mapping(_) | Self::Tagged { .. } | Self::TextMap | Self::MapOf(_) => {
                matches!(node.value, YamlValue::Mapping(_))
            }
            Self::OneOf(shapes) => shapes.iter().any(|shape| shape.has_kind_of(node)),
            _ => node.scalar().is_some(),
        }
    }

    /// What a value of the shape may be, for messages.
    fn describe(&self) -> Vec<String> {
        match self {
            Self::Boolean => vec!["`true`".to_owned(), "`false`".to_owned()],
            Self::Integer(_) | Self::Milliseconds(_) | Self::TokenCount(_) | Self::Number(..) => {
                vec!["a number".to_owned()]
            }
            Self::Choice(choices) => choices.iter().map(|choice| format!("`{choice}`")).collect(),
            Self::OneOf(shapes) => shapes.iter().flat_map(Self::describe).collect(),
            shape => vec![expected_kind(shape).unwrap_or("a value").to_owned()],
        }
    }
}

/// The names in a row: `a`, `b` or `c`.
fn join_with_or(names: &[String]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        names => names.concat(),
    }
}

/// Whether authors write the value for a limit that does not limit.
fn means_no_limit(value: &YamlNode) -> bool {
    const WORDS: [&str; 8] = ["0", "-1", "unlimited", "infinite", "inf", ".inf", "none", "false"];
    value.scalar().is_some_and(|text| WORDS.contains(&text.to_ascii_lowercase().as_str()))
}

/// The help for a time in milliseconds.
const TIME_HELP: &str = "write milliseconds, or a time with its unit, such as `30s`";
/// The help for a count of tokens.
const COUNT_HELP: &str = "write a whole number, or one such as `2k` or `1.5M`";

/// What a value of this shape must be, for messages; `None` if it may be of several kinds.
fn expected_kind(shape: &ValueShape) -> Option<&'static str> {
    match shape {
        ValueShape::Text | ValueShape::Pattern(_) => Some("a string"),
        ValueShape::List(_) => Some("a list"),
        ValueShape::Mapping(_)
        | ValueShape::Tagged { .. }
        | ValueShape::TextMap
        | ValueShape::MapOf(_) => Some("a mapping (`key: value`)"),
        _ => None,
    }
}

/// The help for a value that is meant as no limit, of a key that has a default.
fn no_limit_help(value: &YamlNode, known: &KeySchema) -> Option<String> {
    let Some(DefaultValue::Integer(default)) = known.default else { return None };
    let name = known.name;
    let largest = match &known.shape {
        ValueShape::Integer(range) if range.start > 0 => {
            format!("the largest number, {}", range.end - 1)
        }
        ValueShape::Milliseconds(range) if range.start > 0 => {
            "a long time, such as `24h`".to_owned()
        }
        _ => return None,
    };
    means_no_limit(value).then(|| {
        format!("no value means `no limit`: write {largest}, or omit `{name}` for {default}")
    })
}

/// The help for a key that the mapping `node` cannot have: a similar one.
fn unknown_key_help(name: &str, node: &YamlNode, schema: &'static MappingSchema) -> String {
    if let Some(unseen) = find_unseen_character(name) {
        return help_unseen(unseen);
    }
    let help = suggest::did_you_mean(name, schema.key_names());
    let nearest = suggest::nearest_names(name, schema.key_names());
    let [similar] = nearest.as_slice() else { return help };
    if let Some((key, _)) = node.entry(similar) {
        return format!("remove it: `{similar}` is on line {}", key.line);
    }
    match schema.key(similar) {
        Some(KeySchema { shape: ValueShape::Milliseconds(_), .. }) => {
            format!("did you mean `{similar}`? it takes milliseconds, or a time such as `30s`")
        }
        _ => help,
    }
}

impl YamlDocument {
    /// The entries of the mapping `node`. Reports unknown keys, keys without a value, and values whose shape the schema alone
    /// can reject; the reader checks the rest.
    pub fn fields<'a>(
        &'a self,
        node: &'a YamlNode,
        schema: &'static MappingSchema,
    ) -> Option<MappingFields<'a>> {
        self.fields_labelled(schema.label, node, schema)
    }

    /// Like [`YamlDocument::fields`], with another name for the mapping in messages.
    pub fn fields_labelled<'a>(
        &'a self,
        label: &'a str,
        node: &'a YamlNode,
        schema: &'static MappingSchema,
    ) -> Option<MappingFields<'a>> {
        for (key, value) in self.expect_mapping(node, label)? {
            let name = key.scalar().unwrap_or_default();
            match schema.key(name) {
                Some(KeySchema { shape: ValueShape::Misplaced, description, .. }) => {
                    let message = format!("unknown key `{name}` in {label}");
                    self.report(key, message, (*description).to_owned());
                }
                Some(known) if !value.is_null() => self.check_value(value, known),
                // The value was forgotten or commented out; without it a rule or a limit would be off.
                Some(KeySchema { required: false, shape, .. })
                    if !matches!(shape, ValueShape::Any | ValueShape::Refused) =>
                {
                    let help = format!("write a value, or leave out `{name}`");
                    self.report(key, format!("`{name}` has no value"), help);
                }
                Some(_) => {}
                None if schema.allows_other_keys || name.starts_with("x-") || name == "<<" => {}
                None => {
                    let help = unknown_key_help(name, node, schema);
                    self.report(key, format!("unknown key `{name}` in {label}"), help);
                }
            }
        }
        Some(MappingFields { document: self, label, node, schema })
    }

    /// The entry of `kinds` that the value of the key `by` selects; reports an unknown or missing value.
    pub fn tagged_mapping(
        &self,
        node: &YamlNode,
        label: &str,
        by: &str,
        kinds: &[(&'static str, &'static MappingSchema)],
    ) -> Option<(&'static str, &'static MappingSchema)> {
        self.expect_mapping(node, label)?;
        let names = kinds.iter().map(|(name, _)| *name);
        let example = names.clone().next().unwrap_or_default();
        let tag_node = self.require_key(node, by, label, example)?;
        let tag = self.expect_text(tag_node, &format!("`{by}`"))?;
        let kind = kinds.iter().find(|(name, _)| *name == tag);
        if kind.is_none() {
            let help = Some(suggest::did_you_mean(tag, names));
            self.report(tag_node, format!("`{tag}` is not a `{by}` of {label}"), help);
        }
        kind.copied()
    }

    /// Reports a value that the schema of its key can reject.
    fn check_value(&self, value: &YamlNode, known: &KeySchema) {
        let name = known.name;
        let help = known.wrong_value_help.and_then(|help| help(value));
        if let ValueShape::Choice(choices) = &known.shape {
            self.check_choice(value, choices, &format!("`{name}`"), help);
            return;
        }
        let Some(help) = help.or_else(|| no_limit_help(value, known)) else {
            self.check_shape(value, &known.shape, &format!("`{name}`"));
            return;
        };
        let message = match (&known.shape, expected_kind(&known.shape)) {
            (ValueShape::Integer(range) | ValueShape::Milliseconds(range), _) => {
                let max = range.end - 1;
                format!("`{name}` must be a whole number from {} to {max}", range.start)
            }
            (_, Some(expected)) => format!("`{name}` must be {expected}, not {}", value.kind()),
            (_, None) => format!("`{name}` cannot have this value"),
        };
        self.report(value, message, help);
    }

    fn check_shape(&self, node: &YamlNode, shape: &ValueShape, label: &str) {
        match shape {
            ValueShape::Text | ValueShape::Pattern(_) => {
                self.expect_text(node, label);
            }
            ValueShape::Boolean => {
                self.expect_boolean(node, label);
            }
            ValueShape::Integer(range) => {
                self.expect_integer(node, label, range.clone());
            }
            ValueShape::Milliseconds(range) => {
                let value = node.scalar().and_then(parse_time_ms);
                if !value.is_some_and(|value| range.contains(&value)) {
                    self.expect_amount(node, label, range.clone(), Some(TIME_HELP));
                }
            }
            ValueShape::TokenCount(range) => {
                let value = node.scalar().and_then(parse_count);
                if !value.is_some_and(|value| range.contains(&value)) {
                    self.expect_amount(node, label, range.clone(), Some(COUNT_HELP));
                }
            }
            ValueShape::Number(min, max) => self.check_number(node, *min, *max, label),
            ValueShape::Choice(choices) => self.check_choice(node, choices, label, None),
            ValueShape::List(ValueShape::Text | ValueShape::Any) if node.scalar().is_some() => {
                let message = format!("{label} must be a list, not {}", node.kind());
                self.report(node, message, value_help::text_list_help(node, label));
            }
            ValueShape::List(item_shape) => {
                for item in self.expect_list(node, label).unwrap_or_default() {
                    self.check_shape(item, item_shape, &format!("an entry of {label}"));
                }
            }
            // Their readers check the keys, and say more of another kind of value.
            ValueShape::Mapping(_) | ValueShape::Tagged { .. } => self.check_as_fallback(|| {
                self.expect_mapping(node, label);
            }),
            ValueShape::TextMap => self.check_entries(node, &ValueShape::Text, label),
            ValueShape::MapOf(shape) => self.check_entries(node, shape, label),
            ValueShape::OneOf(shapes) => {
                self.check_as_fallback(|| self.check_alternatives(node, shapes, label));
            }
            ValueShape::Any | ValueShape::Refused | ValueShape::Misplaced => {}
        }
    }

    /// Keeps what `check` reports for the places of which the reader of the value reports nothing.
    fn check_as_fallback(&self, check: impl FnOnce()) {
        let diagnostics = self.diagnostics_of(check);
        let mut fallbacks = self.fallbacks.borrow_mut();
        let room = MAX_DIAGNOSTICS.saturating_sub(fallbacks.len());
        fallbacks.extend(diagnostics.into_iter().take(room));
    }

    fn check_entries(&self, node: &YamlNode, shape: &ValueShape, label: &str) {
        self.check_as_fallback(|| {
            for (key, value) in self.expect_mapping(node, label).unwrap_or_default() {
                let name = key.scalar().unwrap_or_default();
                self.check_shape(value, shape, &format!("`{name}`"));
            }
        });
    }

    /// Reports a value that has none of the shapes: what is wrong with it as the one of its kind, if there is one.
    fn check_alternatives(&self, node: &YamlNode, shapes: &[ValueShape], label: &str) {
        let mut of_kind = Vec::new();
        for shape in shapes {
            let nested = self.fallbacks.take();
            let mut mistakes = self.diagnostics_of(|| self.check_shape(node, shape, label));
            mistakes.append(&mut self.fallbacks.replace(nested));
            if mistakes.is_empty() {
                return;
            }
            if shape.has_kind_of(node) {
                of_kind.push(mistakes);
            }
        }
        if let [mistakes] = of_kind.as_mut_slice() {
            self.diagnostics.borrow_mut().append(mistakes);
            return;
        }
        let expected: Vec<String> = shapes.iter().flat_map(ValueShape::describe).collect();
        let message = format!("{label} must be {}, not {}", join_with_or(&expected), node.kind());
        self.report(node, message, None);
    }

    fn check_number(&self, node: &YamlNode, min: f64, max: f64, label: &str) {
        let number = node.plain_number().and_then(|number| number.as_f64());
        if number.is_none_or(|number| !(min..=max).contains(&number)) {
            let range = if max == f64::MAX {
                format!("of at least {min}")
            } else {
                format!("from {min} to {max}")
            };
            let message = format!("{label} must be a number {range}");
            self.report(node, message, value_help::number_help(node));
        }
    }

    /// Reports a value that is none of `choices`, with `help` if its key has one for the value.
    fn check_choice(&self, node: &YamlNode, choices: &[&str], label: &str, help: Option<String>) {
        let value = node.scalar().unwrap_or_default();
        if node.scalar().is_some() && choices.contains(&value) {
            return;
        }
        let names: Vec<_> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        let names = join_with_or(&names);
        let has_suggestion = !suggest::nearest_names(value, choices.iter().copied()).is_empty();
        let help = match choices {
            _ if help.is_some() => help,
            [only] => Some(format!("write `{only}`, or leave out {label}")),
            _ => has_suggestion.then(|| suggest::did_you_mean(value, choices.iter().copied())),
        };
        self.report(node, format!("{label} must be {names}"), help);
    }
}

/// The entries of a mapping that was checked against its schema. Values that the schema rejects read as missing: the
/// document has reported them, and a document with errors is never used.
#[derive(Debug, Clone, Copy)]
pub struct MappingFields<'a> {
    /// The mapping.
    pub node: &'a YamlNode,
    document: &'a YamlDocument,
    label: &'a str,
    schema: &'static MappingSchema,
}

impl<'a> MappingFields<'a> {
    /// The value of `key`, which may be null.
    pub fn get(&self, key: &str) -> Option<&'a YamlNode> {
        debug_assert!(
            self.schema.allows_other_keys || self.schema.key(key).is_some(),
            "{key} is not in the schema"
        );
        self.node.get(key)
    }

    /// The value of `key` unless it is null.
    pub fn non_null(&self, key: &str) -> Option<&'a YamlNode> {
        self.get(key).filter(|value| !value.is_null())
    }

    /// The value of a required key; reports its absence with `example` as the value to write.
    pub fn require(&self, key: &str, example: &str) -> Option<&'a YamlNode> {
        debug_assert!(self.schema.key(key).is_some_and(|key| key.required), "{key} is optional");
        let Some(misspelled) = self.misspelled_key(key) else {
            return self.document.require_key(self.node, key, self.label, example);
        };
        // Otherwise the misspelled key is reported as unknown.
        if self.schema.allows_other_keys {
            let name = misspelled.scalar().unwrap_or_default();
            let help = format!("rename `{name}` to `{key}`, if that was meant");
            self.document.report(misspelled, format!("{} has no `{key}`", self.label), help);
        }
        None
    }

    /// When `key` is missing, the unknown key that is most similar to it.
    pub fn misspelled_key(&self, key: &str) -> Option<&'a YamlNode> {
        if self.node.get(key).is_some() {
            return None;
        }
        self.node.entries().iter().map(|(name, _)| name).find(|node| {
            node.scalar().is_some_and(|name| {
                let is_known = self.schema.key(name).is_some() || name.starts_with("x-");
                !is_known
                    && suggest::nearest_names(name, self.schema.key_names()).first() == Some(&key)
            })
        })
    }

    fn default_value(&self, key: &str) -> Option<DefaultValue> {
        self.schema.key(key)?.default
    }

    /// The string value of `key`, or its default.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        match (self.non_null(key).and_then(YamlNode::scalar), self.default_value(key)) {
            (Some(text), _) => Some(text),
            (None, Some(DefaultValue::Text(text))) => Some(text),
            _ => None,
        }
    }

    /// The boolean value of `key`, or its default; false without one.
    pub fn boolean(&self, key: &str) -> bool {
        match self.non_null(key).and_then(YamlNode::scalar) {
            Some(text) => parse_boolean(text) == Some(true),
            None => matches!(self.default_value(key), Some(DefaultValue::Boolean(true))),
        }
    }

    /// The whole number value of `key`, or its default; the milliseconds of a time, the number of a count.
    pub fn integer(&self, key: &str) -> Option<u64> {
        let text = self.non_null(key).and_then(YamlNode::scalar);
        let number = text.and_then(parse_plain_number).and_then(|number| to_whole_number(&number));
        let number = number.or_else(|| match self.schema.key(key)?.shape {
            ValueShape::Milliseconds(_) => parse_time_ms(text?),
            ValueShape::TokenCount(_) => parse_count(text?),
            _ => None,
        });
        match (number, self.default_value(key)) {
            (Some(number), _) => Some(number),
            (None, Some(DefaultValue::Integer(number))) => Some(number),
            _ => None,
        }
    }

    /// The strings in the list under `key`; empty when it is missing.
    pub fn texts(&self, key: &str) -> Vec<String> {
        self.list(key).iter().filter_map(YamlNode::scalar).map(str::to_owned).collect()
    }

    /// The items of the list under `key`; empty when it is missing.
    pub fn list(&self, key: &str) -> &'a [YamlNode] {
        self.non_null(key).map(YamlNode::items).unwrap_or_default()
    }
}
