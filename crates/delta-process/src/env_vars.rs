//! The environment of a child, most of which it shares with others.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// A complete environment. Clones share the variables it was created with.
#[derive(Debug, Clone, Default)]
pub struct EnvVars {
    shared: Arc<BTreeMap<OsString, OsString>>,
    /// Replace shared variables of the same name.
    overrides: BTreeMap<OsString, OsString>,
}

impl EnvVars {
    /// The value of a variable; `None` when it is not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let name = OsStr::new(name);
        self.overrides.get(name).or_else(|| self.shared.get(name)).map(OsString::as_os_str)
    }

    /// Sets a variable in this clone only.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.overrides.insert(name.into(), value.into());
    }

    /// All variables, each once.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let shared = self.shared.iter().filter(|(name, _)| !self.overrides.contains_key(*name));
        shared.chain(&self.overrides).map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl From<BTreeMap<OsString, OsString>> for EnvVars {
    fn from(variables: BTreeMap<OsString, OsString>) -> Self {
        Self { shared: Arc::new(variables), overrides: BTreeMap::new() }
    }
}

impl FromIterator<(OsString, OsString)> for EnvVars {
    fn from_iter<T: IntoIterator<Item = (OsString, OsString)>>(variables: T) -> Self {
        variables.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(env: &EnvVars) -> Vec<String> {
        let mut lines: Vec<_> = env
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn overrides_replace_shared_variables() {
        let shared: EnvVars = [("A", "1"), ("B", "2")]
            .map(|(name, value)| (name.into(), value.into()))
            .into_iter()
            .collect();
        let mut clone = shared.clone();
        clone.set("B", "3");
        clone.set("C", "4");
        clone.set("AB", "5");
        assert_eq!(variables(&clone), ["A=1", "AB=5", "B=3", "C=4"]);
        assert_eq!(variables(&shared), ["A=1", "B=2"]);
        assert_eq!(clone.get("B"), Some(OsStr::new("3")));
        assert_eq!((shared.get("B"), shared.get("C")), (Some(OsStr::new("2")), None));
        assert_eq!(variables(&EnvVars::default()), [""; 0]);
    }
}
