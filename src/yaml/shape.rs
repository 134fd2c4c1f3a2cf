//! Tables of what a mapping may hold: the one source for what is read, what is refused, and what an editor is told.

use super::{Document, Node};
use crate::text;
use std::ops::Range;

/// What may stand in one kind of mapping.
#[derive(Debug)]
pub struct Mapping {
    /// What messages call it, with its article.
    pub what: &'static str,
    /// What it is for, in a sentence.
    pub about: &'static str,
    /// Its keys. Those that begin with `x-` are always the author's own.
    pub keys: &'static [Key],
    /// Keys of which exactly one stands in it; empty when there is no such choice.
    pub one_of: &'static [&'static str],
    /// Whether other keys are fine too: they are somebody else's, and kept.
    pub open: bool,
}

/// A key, and what stands behind it.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it says, in a sentence or two.
    pub about: &'static str,
    /// What its value may be.
    pub shape: Shape,
    /// Whether it must be there.
    pub required: bool,
    /// What holds when it is not.
    pub default: Option<Default>,
}

/// What holds when a key is not there.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// A text.
    Text(&'static str),
    /// A whole number.
    Integer(u64),
    /// `true` or `false`.
    Boolean(bool),
}

/// What a value may be.
#[derive(Debug)]
pub enum Shape {
    /// Any scalar, as it is written.
    Text,
    /// The same, of this form (a regular expression for the whole).
    Pattern(&'static str),
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer(Range<u64>),
    /// A number from the first to the second.
    Number(f64, f64),
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A list.
    List(&'static Shape),
    /// A mapping.
    Mapping(&'static Mapping),
    /// A mapping whose keys are known by the value of the key `by`.
    Kinds {
        /// The key that tells.
        by: &'static str,
        /// Its values, and what the mapping is then.
        kinds: &'static [(&'static str, &'static Mapping)],
    },
    /// A mapping of names to texts.
    Names,
    /// A mapping of names to values of this shape.
    Each(&'static Shape),
    /// One of these.
    Either(&'static [Shape]),
    /// Anything.
    Any,
    /// Nothing: a key that is known so that there is a better word for it than "unknown".
    Refused,
    /// Nothing: a key that is known so that a message can say where it belongs.
    Elsewhere,
}

impl Key {
    /// A key that must be there.
    pub const fn required(name: &'static str, shape: Shape, about: &'static str) -> Self {
        Self { name, about, shape, required: true, default: None }
    }

    /// A key that may be there.
    pub const fn optional(name: &'static str, shape: Shape, about: &'static str) -> Self {
        Self { name, about, shape, required: false, default: None }
    }

    /// A key that counts as `default` when it is not there.
    pub const fn with_default(
        name: &'static str,
        shape: Shape,
        default: Default,
        about: &'static str,
    ) -> Self {
        Self { name, about, shape, required: false, default: Some(default) }
    }

    /// A key that people write here and that belongs elsewhere; `about` says where, as the help of a message.
    pub const fn elsewhere(name: &'static str, about: &'static str) -> Self {
        Self { name, about, shape: Shape::Elsewhere, required: false, default: None }
    }

    /// A key whose reader has a better word for it than "unknown".
    pub const fn refused(name: &'static str, about: &'static str) -> Self {
        Self { name, about, shape: Shape::Refused, required: false, default: None }
    }
}

impl Mapping {
    /// The key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The names of the keys that a person may write.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        let offered = |key: &&'static Key| !matches!(key.shape, Shape::Refused | Shape::Elsewhere);
        self.keys.iter().filter(offered).map(|key| key.name)
    }
}

impl Document {
    /// The entries of `node`, whose keys must be those of `mapping`, or begin with `x-`. Everything that can be said of
    /// their values by the table alone is said here; what is deeper is its reader's.
    pub fn fields<'a>(&'a self, node: &'a Node, mapping: &'static Mapping) -> Option<Fields<'a>> {
        self.fields_of(mapping.what, node, mapping)
    }

    /// The same of something that is called otherwise.
    pub fn fields_of<'a>(
        &'a self,
        what: &'a str,
        node: &'a Node,
        mapping: &'static Mapping,
    ) -> Option<Fields<'a>> {
        for (key, value) in self.mapping(node, what)? {
            let name = key.scalar().unwrap_or_default();
            match mapping.key(name) {
                Some(Key { shape: Shape::Elsewhere, about, .. }) => {
                    let message = format!("unknown key `{name}` in {what}");
                    self.fault(key, message, Some((*about).to_owned()));
                }
                Some(known) if !value.is_null() => {
                    self.check_shape(value, &known.shape, &format!("`{name}`"));
                }
                Some(_) => {}
                None if mapping.open || name.starts_with("x-") || name == "<<" => {}
                None => {
                    let help = text::did_you_mean(name, mapping.names());
                    let message = format!("unknown key `{name}` in {what}");
                    self.fault(key, message, Some(help));
                }
            }
        }
        Some(Fields { doc: self, what, node, mapping })
    }

    /// Of which of `kinds` a mapping is; the key `by` must say it.
    pub fn kind(
        &self,
        node: &Node,
        what: &str,
        by: &str,
        kinds: &[(&'static str, &'static Mapping)],
    ) -> Option<(&'static str, &'static Mapping)> {
        self.mapping(node, what)?;
        let names = kinds.iter().map(|(name, _)| *name);
        let example = names.clone().next().unwrap_or_default();
        let at = self.require(node, by, what, example)?;
        let given = self.text(at, &format!("`{by}`"))?;
        let found = kinds.iter().find(|(name, _)| *name == given);
        if found.is_none() {
            let help = Some(text::did_you_mean(given, names));
            self.fault(at, format!("`{given}` is not a `{by}` of {what}"), help);
        }
        found.copied()
    }

    fn check_shape(&self, node: &Node, shape: &Shape, what: &str) {
        match shape {
            Shape::Text | Shape::Pattern(_) => {
                self.text(node, what);
            }
            Shape::Boolean => {
                self.boolean(node, what);
            }
            Shape::Integer(range) => {
                self.integer(node, what, range.clone());
            }
            Shape::Number(from, to) => self.check_number(node, *from, *to, what),
            Shape::Choice(choices) => self.check_choice(node, choices, what),
            Shape::List(Shape::Text) if node.scalar().is_some() => {
                let help = format!("write `[{}]`", super::flow(node));
                self.fault(node, format!("{what} must be a list, not {}", node.kind()), Some(help));
            }
            Shape::List(entries) => {
                for item in self.list(node, what).unwrap_or_default() {
                    self.check_shape(item, entries, &format!("an entry of {what}"));
                }
            }
            Shape::Mapping(_)
            | Shape::Kinds { .. }
            | Shape::Names
            | Shape::Each(_)
            | Shape::Either(_)
            | Shape::Any
            | Shape::Refused
            | Shape::Elsewhere => {}
        }
    }

    fn check_number(&self, node: &Node, from: f64, to: f64, what: &str) {
        let number = match &node.value {
            super::Value::Scalar { text, plain: true } => super::plain_number(text),
            _ => None,
        };
        let number = number.and_then(|number| number.as_f64());
        if number.is_none_or(|number| !(from..=to).contains(&number)) {
            let range = match to == f64::MAX {
                true => format!("that is not less than {from}"),
                false => format!("from {from} to {to}"),
            };
            self.fault(node, format!("{what} must be a number {range}"), None);
        }
    }

    fn check_choice(&self, node: &Node, choices: &[&str], what: &str) {
        if node.scalar().is_some_and(|given| choices.contains(&given)) {
            return;
        }
        let names: Vec<_> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        let (last, others) =
            names.split_last().map_or(("", &[][..]), |(last, others)| (last, others));
        let given = node.scalar().unwrap_or_default();
        let near = text::nearest(given, choices.iter().copied());
        let help = (!near.is_empty()).then(|| text::did_you_mean(given, choices.iter().copied()));
        self.fault(node, format!("{what} must be {} or {last}", others.join(", ")), help);
    }
}

/// The entries of a mapping that has been checked against its table. What the table forbids reads as if it were not
/// there: the document's report says it, and a report that is not empty is never acted on.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// The mapping.
    pub node: &'a Node,
    doc: &'a Document,
    what: &'a str,
    mapping: &'static Mapping,
}

impl<'a> Fields<'a> {
    /// The value under `key`, also when it is null.
    pub fn get(&self, key: &str) -> Option<&'a Node> {
        debug_assert!(self.mapping.open || self.mapping.key(key).is_some(), "{key} has no table");
        self.node.get(key)
    }

    /// The value under `key` unless it is null.
    pub fn given(&self, key: &str) -> Option<&'a Node> {
        self.get(key).filter(|value| !value.is_null())
    }

    /// The value under `key`, which must be there.
    pub fn require(&self, key: &str, example: &str) -> Option<&'a Node> {
        debug_assert!(self.mapping.key(key).is_some_and(|key| key.required), "{key} is optional");
        let Some(slip) = self.slip(key) else {
            return self.doc.require(self.node, key, self.what, example);
        };
        // Where other keys are no mistake, nobody else says it.
        if self.mapping.open {
            let help = format!("did you mean it by `{}`?", slip.scalar().unwrap_or_default());
            self.doc.fault(slip, format!("{} has no `{key}`", self.what), Some(help));
        }
        None
    }

    /// The key that was probably meant to be `key`, which is not there.
    pub fn slip(&self, key: &str) -> Option<&'a Node> {
        let is_slip = |name: &str| {
            let known = self.mapping.key(name).is_some() || name.starts_with("x-");
            !known && text::nearest(name, self.mapping.names()).first() == Some(&key)
        };
        let mut keys = self.node.entries().iter().map(|(key, _)| key);
        let found = keys.find(|name| name.scalar().is_some_and(is_slip));
        found.filter(|_| self.node.get(key).is_none())
    }

    fn default(&self, key: &str) -> Option<Default> {
        self.mapping.key(key)?.default
    }

    /// A text: any scalar, as it is written.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        let default = || match self.default(key)? {
            Default::Text(text) => Some(text),
            Default::Integer(_) | Default::Boolean(_) => None,
        };
        self.given(key).and_then(Node::scalar).or_else(default)
    }

    /// `true` or `false`; false when neither the file nor the table says it.
    pub fn boolean(&self, key: &str) -> bool {
        match self.given(key).and_then(Node::scalar) {
            Some(given) => given == "true",
            None => matches!(self.default(key), Some(Default::Boolean(true))),
        }
    }

    /// A whole number.
    pub fn integer(&self, key: &str) -> Option<u64> {
        let default = || match self.default(key)? {
            Default::Integer(number) => Some(number),
            Default::Text(_) | Default::Boolean(_) => None,
        };
        let given = self.given(key).and_then(Node::scalar).and_then(super::plain_number);
        given.and_then(|number| number.as_u64()).or_else(default)
    }

    /// The texts of a list; empty when the key is not there.
    pub fn texts(&self, key: &str) -> Vec<String> {
        self.list(key).iter().filter_map(Node::scalar).map(str::to_owned).collect()
    }

    /// The entries of a list; empty when the key is not there.
    pub fn list(&self, key: &str) -> &'a [Node] {
        self.given(key).map(Node::items).unwrap_or_default()
    }
}
