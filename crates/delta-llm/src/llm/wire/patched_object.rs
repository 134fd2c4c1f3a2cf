//! A part of an answer that goes back as it came, but for one member.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A part of an answer as it came, but for one member.
pub struct PatchedObject<'a> {
    /// The part.
    pub object: &'a Value,
    /// The name of the member.
    pub name: &'static str,
    /// What the member is; `None` if it stays as it is.
    pub value: Option<&'a RawValue>,
}

impl Serialize for PatchedObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.object.as_object().into_iter().flatten() {
            match self.value {
                Some(patched) if name == self.name => map.serialize_entry(name, patched)?,
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}
