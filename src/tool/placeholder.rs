//! Placeholders: `${name}`, `${name:raw}`, and the engine's `${AGENT_HOME}`, `${CWD}`, `${RUN_DIR}`.
//!
//! One rule for backslashes wherever placeholders are read: an odd number of them directly before `${name}` makes it
//! plain text.

use crate::vars::Variable;

/// What a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hole {
    /// The value of a parameter.
    Parameter {
        /// Its name.
        name: String,
        /// Whether the shell may split it into fields and expand globs.
        raw: bool,
    },
    /// One of the engine's variables.
    Engine {
        /// Which.
        variable: Variable,
        /// As for a parameter.
        raw: bool,
    },
}

impl Hole {
    /// It as the author wrote it.
    pub fn source(&self) -> String {
        let raw = if self.is_raw() { ":raw" } else { "" };
        match self {
            Self::Parameter { name, .. } => format!("${{{name}{raw}}}"),
            Self::Engine { variable, .. } => format!("${{{}{raw}}}", variable.name()),
        }
    }

    /// Whether it stands for a value that a call gives.
    pub fn is_parameter(&self) -> bool {
        matches!(self, Self::Parameter { .. })
    }

    /// Whether it is written with `:raw`.
    pub fn is_raw(&self) -> bool {
        match self {
            Self::Parameter { raw, .. } | Self::Engine { raw, .. } => *raw,
        }
    }
}

/// Whether `name` may be a parameter's name: `[A-Za-z_][A-Za-z0-9_]*`.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads the placeholder with which `text` begins, and its length in bytes.
pub fn read(text: &str) -> Option<(Hole, usize)> {
    let inner = text.strip_prefix("${")?;
    let close = inner.find('}')?;
    let (name, raw) = match inner[..close].strip_suffix(":raw") {
        Some(name) => (name, true),
        None => (&inner[..close], false),
    };
    if !is_name(name) {
        return None;
    }
    let hole = match Variable::named(name) {
        Some(variable) => Hole::Engine { variable, raw },
        None => Hole::Parameter { name: name.to_owned(), raw },
    };
    Some((hole, close + 3))
}

/// A part of a `{template: ...}` element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// As it stands.
    Text(String),
    /// To be filled.
    Hole(Hole),
}

/// Cuts a `{template: ...}` element at its placeholders.
///
/// Backslashes directly before `${` escape it: each pair stands for one, an odd one leaves `${` as it is.
///
/// # Errors
/// The `${...}` that is not a placeholder.
pub fn parts(template: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    let mut rest = template;
    while let Some(at) = rest.find("${") {
        let before = &rest[..at];
        let backslashes = before.len() - before.trim_end_matches('\\').len();
        text.push_str(&before[..at - backslashes + backslashes / 2]);
        rest = &rest[at..];
        if backslashes % 2 == 1 {
            text.push_str("${");
            rest = &rest[2..];
            continue;
        }
        let Some((hole, length)) = read(rest) else {
            let end = rest.find('}').map_or(rest.len(), |close| close + 1);
            return Err(rest[..end].to_owned());
        };
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text)));
        }
        parts.push(Part::Hole(hole));
        rest = &rest[length..];
    }
    text.push_str(rest);
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

/// `text` written so that [`parts`] reads it back as plain text, also when a placeholder follows.
pub fn escape_template(text: &str, hole_follows: bool) -> String {
    escape(text, hole_follows, |rest| rest.starts_with("${"))
}

/// `text` written so that a plain string of `command:` gives it back, also when an engine variable follows.
pub fn escape_plain(text: &str, variable_follows: bool) -> String {
    escape(text, variable_follows, |rest| {
        matches!(read(rest), Some((Hole::Engine { raw: false, .. }, _)))
    })
}

fn escape(text: &str, special_follows: bool, special: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut backslashes = 0;
    for (at, c) in text.char_indices() {
        if special(&text[at..]) {
            out.push_str(&"\\".repeat(backslashes + 1));
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        out.push(c);
    }
    if special_follows {
        out.push_str(&"\\".repeat(backslashes));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn c_2_2_only_names_are_placeholders() {
        let name = |text: &str| read(text).map(|(hole, _)| hole.source());
        assert_eq!(name("${a_1}x"), Some("${a_1}".to_owned()));
        assert_eq!(name("${a:raw}"), Some("${a:raw}".to_owned()));
        assert_eq!(name("${CWD}"), Some("${CWD}".to_owned()));
        for other in ["${1a}", "${a-b}", "${a:-b}", "${}", "${a", "$a", "${a:raw:raw}"] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_reads_back(pieces in prop::collection::vec("(\\\\|\\$|\\{|\\}|CWD|a|\\$\\{CWD\\}|\\$\\{a\\})", 0..8)) {
            let text = pieces.concat();
            let expected = |mut parts: Vec<Part>, text: &str| {
                if !text.is_empty() { parts.insert(0, Part::Text(text.to_owned())); }
                parts
            };
            let hole = Part::Hole(read("${x}").unwrap().0);
            prop_assert_eq!(parts(&escape_template(&text, false)).unwrap(), expected(vec![], &text));
            let followed = format!("{}${{x}}", escape_template(&text, true));
            prop_assert_eq!(parts(&followed).unwrap(), expected(vec![hole], &text));
            let vars = crate::vars::Vars { agent_home: "/a".into(), cwd: "/w".into(), run_dir: "/r".into() };
            prop_assert_eq!(vars.fill(&escape_plain(&text, false)), text.clone());
            let followed = format!("{}${{CWD}}", escape_plain(&text, true));
            prop_assert_eq!(vars.fill(&followed), format!("{text}/w"));
        }
    }
}
