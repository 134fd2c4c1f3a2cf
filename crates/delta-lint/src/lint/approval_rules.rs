//! The rules for `approve:`: rules that never apply, and patterns that allow more than they show.

use super::Linter;
use delta_yaml::yaml::{YamlDocument, YamlNode};

/// Checks `defaults: {approve: ...}` in agent.yaml.
pub(super) fn check_default_approval(main: &YamlDocument, linter: &mut Linter<'_>) {
    if let Some(node) = main.root.get("defaults").and_then(|defaults| defaults.get("approve")) {
        check_approval(main, node, linter);
    }
}

/// Checks the rules in the value of `approve`.
pub(super) fn check_approval(doc: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    let mut last_rule: Option<&YamlNode> = None;
    for item in node.items() {
        if let Some(last) = last_rule {
            let message = format!(
                "this rule never applies, because the rule on line {} matches every call",
                last.line
            );
            let help = "remove it, or move it before that rule".to_owned();
            linter.warn("unused-approval", doc.diagnostic_at(item, message, help));
            continue;
        }
        let matches = item.get("match").filter(|node| !node.is_null());
        if item.get("do").and_then(YamlNode::scalar) == Some("allow") {
            for (_, pattern) in matches.map(YamlNode::entries).unwrap_or_default() {
                check_allowed_pattern(doc, pattern, linter);
            }
        }
        if matches.is_none() {
            last_rule = Some(item);
        }
    }
}

/// Reports a pattern that allows any value in which it occurs somewhere.
fn check_allowed_pattern(doc: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    let Some(text) = node.scalar() else { return };
    if is_anchored(text) {
        return;
    }
    let message = "this allows every value in which the pattern occurs anywhere";
    let help = "begin the pattern with `^`, and end it with `$` unless any continuation is harmless; put alternatives in parentheses";
    linter.warn("loose-approval", doc.diagnostic_at(node, message, help.to_owned()));
}

/// Whether the pattern begins at the beginning of the value, with each of its alternatives.
fn is_anchored(pattern: &str) -> bool {
    let flags = pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')'));
    let pattern = match flags {
        Some((flags, rest)) if flags.chars().all(char::is_alphabetic) => rest,
        _ => pattern,
    };
    let has_start = pattern.starts_with('^') || pattern.starts_with(r"\A");
    let mut depth = 0_usize;
    let mut is_in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            '(' if !is_in_class => depth += 1,
            ')' if !is_in_class => depth = depth.saturating_sub(1),
            '|' if !is_in_class && depth == 0 => return false,
            _ => {}
        }
    }
    has_start
}

#[cfg(test)]
mod tests {
    use super::is_anchored;

    #[test]
    fn c_21_1_a_pattern_is_anchored_with_all_its_alternatives() {
        for anchored in ["^a", r"\Aa", "^(a|b)$", "^[|]", r"^a\|b", "^((a|b)|c)", "(?i)^a"] {
            assert!(is_anchored(anchored), "{anchored}");
        }
        for loose in ["a", "a$", "^a|b", "(^a|^b)", "", "^a|^b", r"\^a", "(?i)a"] {
            assert!(!is_anchored(loose), "{loose}");
        }
    }
}
