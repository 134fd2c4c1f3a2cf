//! Patterns of the paths that the user excludes from snapshots.

use glob::{MatchOptions, Pattern};

/// `*` matches within one name; `**` matches any number of names.
const MATCH_OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Glob patterns of excluded paths. A pattern without a slash matches names at any depth, one with a slash the whole
/// path. An excluded directory excludes everything in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExcludePatterns(Vec<Pattern>);

impl ExcludePatterns {
    /// Parses patterns; a leading `./` and a trailing slash have no effect.
    ///
    /// # Errors
    /// The first invalid pattern, and the reason.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        patterns.into_iter().map(parse_pattern).collect::<Result<_, _>>().map(Self)
    }

    /// The patterns as text, for [`ExcludePatterns::parse`].
    pub fn to_strings(&self) -> Vec<String> {
        self.0.iter().map(|pattern| pattern.as_str().to_owned()).collect()
    }

    /// Whether `path`, which ends with `name`, is excluded.
    pub(super) fn matches(&self, path: &[u8], name: &[u8]) -> bool {
        self.0.iter().any(|pattern| {
            let subject = if pattern.as_str().contains('/') { path } else { name };
            pattern.matches_with(&String::from_utf8_lossy(subject), MATCH_OPTIONS)
        })
    }
}

fn parse_pattern(text: &str) -> Result<Pattern, String> {
    let pattern = text.strip_suffix('/').unwrap_or(text);
    Pattern::new(pattern.strip_prefix("./").unwrap_or(pattern)).map_err(|error| {
        format!("`{text}` is not a pattern: {} at character {}", error.msg, error.pos)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_1_patterns_match_names_or_paths() {
        let matches = |pattern: &str, path: &str| {
            let name = path.rsplit('/').next().unwrap();
            ExcludePatterns::parse([pattern]).unwrap().matches(path.as_bytes(), name.as_bytes())
        };
        assert!(matches("target", "target") && matches("target/", "a/b/target"));
        assert!(!matches("target", "a/targets"));
        assert!(matches("*.log", "a/.x.log") && !matches("*.log", "a.log/x"));
        assert!(matches("a/*.o", "a/x.o") && !matches("a/*.o", "a/b/x.o"));
        assert!(matches("a/**/*.o", "a/b/c/x.o") && matches("./a/x", "a/x"));
        let error = ExcludePatterns::parse(["ok", "a[b"]).unwrap_err();
        assert_eq!(error, "`a[b` is not a pattern: invalid range pattern at character 1");
    }
}
