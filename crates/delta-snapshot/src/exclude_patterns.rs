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
pub struct ExcludePatterns(Vec<ExcludePattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ExcludePattern {
    glob: Pattern,
    /// Whether it matches the whole path, and not a name at any depth.
    is_path: bool,
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct PatternProblem {
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub help: &'static str,
}

impl ExcludePatterns {
    /// Parses patterns that a user wrote: a leading `/` or `./` is the workspace, and a trailing slash has no effect. One that
    /// matches no path is a problem.
    ///
    /// # Errors
    /// The first text that is not a pattern, and the reason.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, PatternProblem> {
        texts.into_iter().map(parse_pattern).collect::<Result<_, _>>().map(Self)
    }

    /// Parses patterns that a run has recorded: one that matched nothing then still does.
    ///
    /// # Errors
    /// The first invalid pattern, and the reason.
    pub fn parse_recorded(texts: &[String]) -> Result<Self, String> {
        let patterns = texts.iter().map(|text| ExcludePattern::new(text));
        patterns.collect::<Result<_, _>>().map(Self)
    }

    /// The patterns as text, for [`ExcludePatterns::parse_recorded`].
    pub fn to_strings(&self) -> Vec<String> {
        self.0.iter().map(ExcludePattern::to_text).collect()
    }

    /// Whether `path`, which ends with `name`, is excluded.
    pub(super) fn matches(&self, path: &[u8], name: &[u8]) -> bool {
        self.0.iter().any(|pattern| {
            let subject = if pattern.is_path { path } else { name };
            pattern.glob.matches_with(&String::from_utf8_lossy(subject), MATCH_OPTIONS)
        })
    }
}

impl ExcludePattern {
    /// The pattern of a text in which a leading `./` is the workspace.
    fn new(text: &str) -> Result<Self, String> {
        let glob = Pattern::new(text.strip_prefix("./").unwrap_or(text)).map_err(|error| {
            format!("`{text}` is not a pattern: {} at character {}", error.msg, error.pos)
        })?;
        Ok(Self { glob, is_path: text.contains('/') })
    }

    /// The text from which [`ExcludePattern::new`] makes the same pattern.
    fn to_text(&self) -> String {
        let glob = self.glob.as_str();
        if self.is_path && !glob.contains('/') { format!("./{glob}") } else { glob.to_owned() }
    }
}

fn parse_pattern(text: &str) -> Result<ExcludePattern, PatternProblem> {
    if let Some((reason, help)) = find_problem(text) {
        return Err(PatternProblem {
            reason: format!("`{text}` is not a pattern: {reason}"),
            help,
        });
    }
    let path = text.strip_suffix('/').unwrap_or(text);
    let pattern = match path.strip_prefix('/') {
        Some(rest) => ExcludePattern::new(&format!("./{rest}")),
        None => ExcludePattern::new(path),
    };
    let help =
        "`*` matches any part of a name, `**` any directories, `[ab]` one of these characters";
    pattern.map_err(|reason| PatternProblem { reason, help })
}

/// What makes a text match no path, and what to write instead.
fn find_problem(text: &str) -> Option<(&'static str, &'static str)> {
    if text.starts_with('!') {
        return Some((
            "it cannot include again",
            "exclude less, for example `data/*.bin` for `data`",
        ));
    }
    let without_braces = text.replace("[{]", "");
    let braces = without_braces.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    if braces.is_some_and(|(inner, _)| inner.contains(',')) {
        return Some(("it has no alternatives", "write one pattern for each; for a brace, `[{]`"));
    }
    if text.replace(r"[\]", "").contains('\\') {
        return Some((
            r"`\` does not escape",
            r"write `[*]` for an asterisk, `[\]` for a backslash, and `/` between directories",
        ));
    }
    if text.starts_with("~/") {
        return Some(("it is relative to the workspace", "write the path from the workspace on"));
    }
    let path = text.strip_suffix('/').unwrap_or(text);
    let path = path.strip_prefix("./").or_else(|| path.strip_prefix('/')).unwrap_or(path);
    match path.split('/').find(|name| matches!(*name, "" | "." | "..")) {
        Some("..") => Some(("it leaves the workspace", "write the path from the workspace on")),
        Some(_) => {
            Some(("it has an empty name or `.`", "name what is left out; `*` is everything"))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_1_patterns_match_names_or_paths() {
        let matches = |pattern: &str, path: &str| {
            let name = path.rsplit('/').next().unwrap();
            let patterns = ExcludePatterns::parse([pattern]).unwrap();
            let recorded = ExcludePatterns::parse_recorded(&patterns.to_strings()).unwrap();
            assert_eq!(patterns, recorded);
            patterns.matches(path.as_bytes(), name.as_bytes())
        };
        assert!(matches("target", "target") && matches("target/", "a/b/target"));
        assert!(!matches("target", "a/targets"));
        assert!(matches("*.log", "a/.x.log") && !matches("*.log", "a.log/x"));
        assert!(matches("a/*.o", "a/x.o") && !matches("a/*.o", "a/b/x.o"));
        assert!(matches("a/**/*.o", "a/b/c/x.o") && matches("./a/x", "a/x"));
        for anchored in ["/target", "/target/", "./target"] {
            assert!(matches(anchored, "target") && !matches(anchored, "a/target"), "{anchored}");
        }
        assert!(matches("/a/*.o", "a/x.o") && matches("/**/x", "a/b/x"));
        assert!(matches("{{name}}", "a/{{name}}") && matches("[{]a,b}", "{a,b}"));
        assert!(matches(r"a[\]b", r"a\b") && matches("[*]", "*"));
    }

    #[test]
    fn c_1_3_a_pattern_that_matches_no_path_is_an_error() {
        let patterns = [
            "",
            ".",
            "./",
            "/",
            "//",
            "a//b",
            "a/./b",
            "..",
            "../x",
            "/../x",
            "a/../b",
            "!x",
            "{a,b}",
            "src/*.{o,a}",
            r"\!x",
            "~/x",
            "a[b",
        ];
        for pattern in patterns {
            let problem = ExcludePatterns::parse(["ok", pattern]).unwrap_err();
            let expected = format!("`{pattern}` is not a pattern: ");
            assert!(problem.reason.starts_with(&expected), "{problem:?}");
            assert!(!problem.help.is_empty(), "{problem:?}");
        }
    }

    #[test]
    fn c_16_1_what_a_run_has_recorded_has_the_same_meaning() {
        let recorded = ["/x", "!x", "../x", "", ".", "{a,b}"].map(str::to_owned);
        let patterns = ExcludePatterns::parse_recorded(&recorded).unwrap();
        assert!(!patterns.matches(b"x", b"x") && !patterns.matches(b"a", b"a"));
        assert_eq!(patterns.to_strings(), recorded);
    }
}
