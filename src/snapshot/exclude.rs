//! Which paths of a workspace are left out of its snapshots because somebody says so.

use crate::yaml::shape::{Key, Shape};
use crate::yaml::{Document, Mapping, Node};
use glob::{MatchOptions, Pattern};

/// The long form of `snapshots:` in agent.yaml.
pub static SNAPSHOTS: Mapping = Mapping {
    what: "`snapshots`",
    about: "What is kept of the workspace at each iteration.",
    keys: &[Key::optional(
        "exclude",
        Shape::List(&Shape::Text),
        "Patterns of what is left out and left as it is: of names, or with a slash of paths.",
    )],
    one_of: &[],
    open: false,
};

/// A `*` stays within one name; `**` goes over any number of them.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Patterns of paths that are left as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exclude(Vec<Pattern>);

impl Exclude {
    /// Reads `snapshots:` of agent.yaml; `None` when there are to be none.
    pub fn read(doc: &Document, node: &Node) -> Option<Self> {
        if node.scalar().is_some() {
            return doc.boolean(node, "`snapshots`")?.then(Self::default);
        }
        let fields = doc.fields(node, &SNAPSHOTS)?;
        let mut patterns = Vec::new();
        for item in fields.list("exclude") {
            match Self::parse(item.scalar()) {
                Ok(Self(mut read)) => patterns.append(&mut read),
                Err(why) => {
                    let help =
                        "`*` is any part of a name, `**` any directories, `[ab]` one of these";
                    doc.fault(item, why, Some(help.to_owned()));
                }
            }
        }
        Some(Self(patterns))
    }

    /// Reads patterns.
    ///
    /// # Errors
    /// The first that is none, and why.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let parse = |pattern: &str| {
            // A directory is excluded with what is in it, with or without the slash at its end.
            let plain = pattern.strip_suffix('/').unwrap_or(pattern);
            Pattern::new(plain.strip_prefix("./").unwrap_or(plain)).map_err(|error| {
                format!("`{pattern}` is not a pattern: {} at character {}", error.msg, error.pos)
            })
        };
        patterns.into_iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// The patterns, as they are written down.
    pub fn patterns(&self) -> Vec<String> {
        self.0.iter().map(|pattern| pattern.as_str().to_owned()).collect()
    }

    /// Whether the path is left out: by its name, for a pattern without a slash, or as a whole.
    pub(super) fn holds(&self, path: &[u8], name: &[u8]) -> bool {
        self.0.iter().any(|pattern| {
            let wanted = if pattern.as_str().contains('/') { path } else { name };
            pattern.matches_with(&String::from_utf8_lossy(wanted), OPTIONS)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_1_patterns_are_of_names_or_of_paths() {
        let holds = |pattern: &str, path: &str| {
            let name = path.rsplit('/').next().unwrap();
            Exclude::parse([pattern]).unwrap().holds(path.as_bytes(), name.as_bytes())
        };
        assert!(holds("target", "target") && holds("target/", "a/b/target"));
        assert!(!holds("target", "a/targets"));
        assert!(holds("*.log", "a/.x.log") && !holds("*.log", "a.log/x"));
        assert!(holds("a/*.o", "a/x.o") && !holds("a/*.o", "a/b/x.o"));
        assert!(holds("a/**/*.o", "a/b/c/x.o") && holds("./a/x", "a/x"));
        let error = Exclude::parse(["ok", "a[b"]).unwrap_err();
        assert_eq!(error, "`a[b` is not a pattern: invalid range pattern at character 1");
    }
}
