//! The environment variables of a child, most of which it has in common with others.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// A complete environment. To copy it costs what is its own.
#[derive(Debug, Clone, Default)]
pub struct Env {
    shared: Arc<BTreeMap<OsString, OsString>>,
    /// Over the shared ones.
    own: BTreeMap<OsString, OsString>,
}

impl Env {
    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let name = OsStr::new(name);
        self.own.get(name).or_else(|| self.shared.get(name)).map(OsString::as_os_str)
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.own.insert(name.into(), value.into());
    }

    /// All names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let shared = self.shared.iter().filter(|(name, _)| !self.own.contains_key(*name));
        let mut all: Vec<_> = shared.chain(&self.own).collect();
        all.sort();
        all.into_iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl From<BTreeMap<OsString, OsString>> for Env {
    fn from(variables: BTreeMap<OsString, OsString>) -> Self {
        Self { shared: Arc::new(variables), own: BTreeMap::new() }
    }
}

impl FromIterator<(OsString, OsString)> for Env {
    fn from_iter<T: IntoIterator<Item = (OsString, OsString)>>(variables: T) -> Self {
        variables.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_its_own_stands_over_what_is_shared() {
        let shared: Env = [("A", "1"), ("B", "2")]
            .map(|(name, value)| (name.into(), value.into()))
            .into_iter()
            .collect();
        let mut own = shared.clone();
        own.set("B", "3");
        own.set("C", "4");
        own.set("AB", "5");
        let expected = [("A", "1"), ("AB", "5"), ("B", "3"), ("C", "4")];
        let expected = expected.map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        assert!(own.iter().eq(expected));
        assert_eq!(own.get("B"), Some(OsStr::new("3")));
        assert_eq!((shared.get("B"), shared.get("C")), (Some(OsStr::new("2")), None));
    }
}
