//! Which runs a command works on: `--only`, and the share `K/M` of a task.

use crate::formats::plan::PlannedRun;
use delta_agent::tool::value_text;
use delta_base::suggest;
use std::fmt;

/// The keys of `--only` besides the names of parameters.
const KEYS: [&str; 6] = ["agent", "model", "input", "group", "repeat", "id"];

/// The most values that are listed where no run is selected.
const MAX_LISTED_VALUES: usize = 10;

/// `--only 'model=local input=a*'`: every condition holds; a condition holds if one of its patterns matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSelection(Vec<Condition>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    key: String,
    patterns: Vec<String>,
}

impl RunSelection {
    /// Parses conditions `KEY=PATTERN,...`, separated by spaces. In a pattern `*` matches any text.
    ///
    /// # Errors
    /// A word is not a condition, its key is unknown, or one of its patterns looks like a condition.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = "expected KEY=PATTERN, such as `model=local input=a*,b*`";
        let mut conditions = Vec::new();
        for word in text.split_whitespace() {
            let (key, patterns) = word
                .split_once('=')
                .filter(|(key, patterns)| !key.is_empty() && !patterns.is_empty())
                .ok_or_else(|| format!("{expected}; found `{word}`"))?;
            if !KEYS.contains(&key) && key.strip_prefix("param.").is_none_or(str::is_empty) {
                let help = suggest::did_you_mean(key, KEYS);
                return Err(format!("unknown key `{key}`; {help}, or `param.NAME`"));
            }
            let patterns: Vec<String> = patterns.split(',').map(str::to_owned).collect();
            if let Some(condition) = patterns.iter().skip(1).find(|it| looks_like_condition(it)) {
                return Err(format!(
                    "`{condition}` after a comma is a pattern of `{key}`; separate conditions by a space"
                ));
            }
            conditions.push(Condition { key: key.to_owned(), patterns });
        }
        if conditions.is_empty() {
            return Err(expected.to_owned());
        }
        Ok(Self(conditions))
    }

    /// The values among which conditions that no run meets could choose, or all conditions if each alone is met:
    /// `models: good, bad`.
    pub fn describe_choices(&self, runs: &[PlannedRun]) -> String {
        let unmet = self.0.iter().filter(|condition| !runs.iter().any(|run| condition.holds(run)));
        let mut conditions: Vec<&Condition> = unmet.collect();
        if conditions.is_empty() {
            conditions.extend(&self.0);
        }
        let texts = conditions.iter().map(|condition| condition.describe_values(runs));
        texts.collect::<Vec<_>>().join("; ")
    }

    /// Whether the run is selected.
    pub fn selects(&self, run: &PlannedRun) -> bool {
        self.0.iter().all(|condition| condition.holds(run))
    }
}

impl Condition {
    fn holds(&self, run: &PlannedRun) -> bool {
        run_field(run, &self.key).is_some_and(|value| {
            self.patterns.iter().any(|pattern| matches_pattern(pattern, &value))
        })
    }

    /// `models: good, bad`; the first ones of many.
    fn describe_values(&self, runs: &[PlannedRun]) -> String {
        let mut values: Vec<String> = Vec::new();
        for value in runs.iter().filter_map(|run| run_field(run, &self.key)) {
            if !values.contains(&value) {
                values.push(value);
            }
            if values.len() > MAX_LISTED_VALUES {
                values.truncate(MAX_LISTED_VALUES);
                values.push("...".to_owned());
                break;
            }
        }
        let plural = if self.key.starts_with("param.") { "" } else { "s" };
        match values.as_slice() {
            [] => format!("no run has {}", self.key),
            values => format!("{}{plural}: {}", self.key, values.join(", ")),
        }
    }
}

impl fmt::Display for RunSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Condition { key, patterns }) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{key}={}", patterns.join(","))?;
        }
        Ok(())
    }
}

/// Whether a pattern begins as a condition does, with a name and `=`.
fn looks_like_condition(pattern: &str) -> bool {
    let name = pattern.split_once('=').map_or("", |(name, _)| name);
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// The value of a key of `--only` for a run; `None` if the run has no such group or parameter.
pub fn run_field(run: &PlannedRun, key: &str) -> Option<String> {
    match key {
        "agent" => Some(run.agent.to_string()),
        "model" => Some(run.model.to_string()),
        "input" => Some(run.input.to_string()),
        "group" => run.group.as_ref().map(ToString::to_string),
        "repeat" => Some(run.repeat.to_string()),
        "id" => Some(run.id.to_string()),
        key => run.params.get(key.strip_prefix("param.")?).map(value_text),
    }
}

/// Whether a pattern matches the whole text; `*` matches any text, the empty one included.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let Some(end) = pieces.pop() else { return true };
    for piece in pieces {
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    text.ends_with(end)
}

/// The share of a task: the runs whose number is K modulo M.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskShare {
    /// The number of the task, from 0.
    pub index: u64,
    /// The number of tasks.
    pub count: u64,
}

impl TaskShare {
    /// Everything.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// Parses `K/M`, where K is from 0 to M-1; `None` if the text has no such form.
    ///
    /// # Errors
    /// K is not below M.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        let (index, count) = text.split_once('/')?;
        let index = index.parse().ok()?;
        let count = count.parse().ok()?;
        if index < count {
            return Some(Ok(Self { index, count }));
        }
        let parts = u64::max(count, 1);
        let last = parts - 1;
        Some(Err(format!("expected a share from 0/{parts} to {last}/{parts}, found `{text}`")))
    }

    /// Whether the run with the number `n` is in the share.
    pub fn contains(self, n: u64) -> bool {
        n % self.count == self.index
    }
}

impl fmt::Display for TaskShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_asterisk_matches_any_text() {
        for (pattern, text, expected) in [
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-", false),
            ("abc", "abcd", false),
            ("**x", "x", true),
        ] {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_condition_needs_a_known_key() {
        assert!(RunSelection::parse("model=local  input=a*,b param.style=short").is_ok());
        assert!(RunSelection::parse("modle=local").unwrap_err().contains("model"));
        for text in ["", "model", "model=", "=x", "param.=x"] {
            assert!(RunSelection::parse(text).is_err(), "{text}");
        }
        assert!(RunSelection::parse("param.filter=a=b,*c=d").is_ok());
        for text in ["param.temp=0.9,input=docs", "model=a,b,nonsense=1", "model=a,param.x=1"] {
            let error = RunSelection::parse(text).unwrap_err();
            assert!(error.ends_with("separate conditions by a space"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_run_is_in_exactly_one_share(n in any::<u64>(), count in 1..50_u64) {
            let shares = (0..count).filter(|index| TaskShare { index: *index, count }.contains(n)).count();
            prop_assert_eq!(shares, 1);
        }
    }
}
