//! Placeholders: `${name}` and `${name:raw}` for parameters, and `${AGENT_HOME}`, `${CWD}`, `${RUN_DIR}`.
//!
//! Everywhere, an odd number of backslashes directly before `${name}` makes it plain text.

use delta_base::engine_variables::{EngineVariable, is_identifier};

/// A placeholder in a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placeholder {
    /// A parameter, whose value each call provides.
    Parameter {
        /// The name of the parameter.
        name: String,
        /// Whether the shell may split the value into fields and expand globs in it.
        raw: bool,
    },
    /// An engine variable, whose value is the same for all calls of a run.
    Variable {
        /// The variable.
        variable: EngineVariable,
        /// Whether the shell may split the value into fields and expand globs in it.
        raw: bool,
    },
}

impl Placeholder {
    /// The placeholder as a template contains it, such as `${name:raw}`.
    pub fn to_source(&self) -> String {
        let modifier = if self.is_raw() { ":raw" } else { "" };
        match self {
            Self::Parameter { name, .. } => format!("${{{name}{modifier}}}"),
            Self::Variable { variable, .. } => format!("${{{}{modifier}}}", variable.name()),
        }
    }

    /// Whether the value comes from a call.
    pub fn is_parameter(&self) -> bool {
        matches!(self, Self::Parameter { .. })
    }

    /// Whether the placeholder has the modifier `:raw`.
    pub fn is_raw(&self) -> bool {
        match self {
            Self::Parameter { raw, .. } | Self::Variable { raw, .. } => *raw,
        }
    }
}

/// Parses the placeholder at the beginning of `text`. Returns it with its length in bytes, or `None` if `text` does not
/// begin with a placeholder.
pub fn parse_placeholder(text: &str) -> Option<(Placeholder, usize)> {
    let inner = text.strip_prefix("${")?;
    let close = inner.find('}')?;
    let (name, raw) = match inner[..close].strip_suffix(":raw") {
        Some(name) => (name, true),
        None => (&inner[..close], false),
    };
    if !is_identifier(name) {
        return None;
    }
    let placeholder = match EngineVariable::from_name(name) {
        Some(variable) => Placeholder::Variable { variable, raw },
        None => Placeholder::Parameter { name: name.to_owned(), raw },
    };
    Some((placeholder, close + "${}".len()))
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// A text that is used unchanged.
    Text(String),
    /// A placeholder, which a value replaces.
    Placeholder(Placeholder),
}

/// Splits the template of one argument into texts and placeholders.
///
/// Backslashes directly before `${` are halved; an odd one makes `${` plain text.
///
/// # Errors
/// The first `${...}` that is not a placeholder.
pub fn parse_argument_template(template: &str) -> Result<Vec<TemplatePart>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
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
        let Some((placeholder, length)) = parse_placeholder(rest) else {
            let end = rest.find('}').map_or(rest.len(), |close| close + 1);
            return Err(rest[..end].to_owned());
        };
        if !text.is_empty() {
            parts.push(TemplatePart::Text(std::mem::take(&mut text)));
        }
        parts.push(TemplatePart::Placeholder(placeholder));
        rest = &rest[length..];
    }
    text.push_str(rest);
    if !text.is_empty() {
        parts.push(TemplatePart::Text(text));
    }
    Ok(parts)
}

/// Escapes `text` so that [`parse_argument_template`] returns it as plain text. `placeholder_follows` says whether the
/// caller appends a placeholder to the result.
pub fn escape_argument_template(text: &str, placeholder_follows: bool) -> String {
    escape_special(text, placeholder_follows, |rest| rest.starts_with("${"))
}

/// Escapes `text` so that [`parse_plain_string`](delta_base::engine_variables::parse_plain_string) returns it as plain text.
/// `variable_follows` says whether the caller appends an engine variable to the result.
pub fn escape_plain_string(text: &str, variable_follows: bool) -> String {
    escape_special(text, variable_follows, |rest| {
        matches!(parse_placeholder(rest), Some((Placeholder::Variable { raw: false, .. }, _)))
    })
}

/// Doubles the backslashes before each position where `is_special` accepts the rest of `text`, and adds one.
fn escape_special(text: &str, special_follows: bool, is_special: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut backslashes = 0;
    for (at, c) in text.char_indices() {
        if is_special(&text[at..]) {
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
    use delta_base::engine_variables::EngineVars;
    use proptest::prelude::*;

    #[test]
    fn c_2_2_only_identifiers_are_placeholders() {
        let parse = |text: &str| {
            parse_placeholder(text).map(|(placeholder, length)| (placeholder.to_source(), length))
        };
        assert_eq!(parse("${a_1}x"), Some(("${a_1}".to_owned(), 6)));
        assert_eq!(parse("${a:raw}"), Some(("${a:raw}".to_owned(), 8)));
        assert_eq!(parse("${CWD}"), Some(("${CWD}".to_owned(), 6)));
        for text in ["${1a}", "${a-b}", "${a:-b}", "${}", "${a", "$a", "${a:raw:raw}"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    fn text_parts(text: &str) -> Vec<TemplatePart> {
        if text.is_empty() { Vec::new() } else { vec![TemplatePart::Text(text.to_owned())] }
    }

    proptest! {
        #[test]
        fn c_2_9_escaped_text_is_parsed_as_plain_text(
            pieces in prop::collection::vec("(\\\\|\\$|\\{|\\}|CWD|a|\\$\\{CWD\\}|\\$\\{a\\})", 0..8),
        ) {
            let text = pieces.concat();
            let escaped = escape_argument_template(&text, false);
            prop_assert_eq!(parse_argument_template(&escaped).unwrap(), text_parts(&text));

            let followed = format!("{}${{x}}", escape_argument_template(&text, true));
            let mut expected = text_parts(&text);
            expected.push(TemplatePart::Placeholder(parse_placeholder("${x}").unwrap().0));
            prop_assert_eq!(parse_argument_template(&followed).unwrap(), expected);

            let vars =
                EngineVars { agent_home: "/a".into(), cwd: "/w".into(), run_dir: "/r".into() };
            prop_assert_eq!(vars.expand_text(&escape_plain_string(&text, false)), text.clone());
            let followed = format!("{}${{CWD}}", escape_plain_string(&text, true));
            prop_assert_eq!(vars.expand_text(&followed), format!("{text}/w"));
        }
    }
}
