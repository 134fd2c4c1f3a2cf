//! The rules for `approve:`: rules that never apply, and patterns that allow more than they show.

use super::Linter;
use super::command_view::LintWord;
use super::command_view::interpreter::Interpreter;
use super::command_view::wrapper_program::is_wrapper;
use delta_shell::CommandPattern;
use delta_yaml::yaml::{YamlDocument, YamlNode};

/// Checks `defaults: {approve: ...}` in agent.yaml.
pub(super) fn check_default_approval(main: &YamlDocument, linter: &mut Linter<'_>) {
    if let Some(node) = main.root.get("defaults").and_then(|defaults| defaults.get("approve")) {
        check_approval(main, node, false, linter);
    }
}

/// Checks the value of `approve`; `for_shell` for a tool with `shell`.
pub(super) fn check_approval(
    doc: &YamlDocument,
    node: &YamlNode,
    for_shell: bool,
    linter: &mut Linter<'_>,
) {
    for command in node.get("commands").map(YamlNode::items).unwrap_or_default() {
        check_listed_command(doc, command, linter);
    }
    let mut last_rule: Option<&YamlNode> = None;
    for item in node.items() {
        if let Some(last) = last_rule {
            let message = format!(
                "this rule never applies, because the rule on line {} matches every call",
                last.line
            );
            let help = "remove it, or move it before that rule";
            linter.warn("unused-approval", doc.diagnostic_at(item, message, help));
            continue;
        }
        let matches = item.get("match").filter(|node| !node.is_null());
        if item.get("do").and_then(YamlNode::scalar) == Some("allow") {
            for (_, pattern) in matches.map(YamlNode::entries).unwrap_or_default() {
                check_allowed_pattern(doc, pattern, for_shell, linter);
            }
        }
        if matches.is_none() {
            last_rule = Some(item);
        }
    }
}

/// Programs of which most commands change something, so that none of them should start whatever its name is.
const PROGRAMS_WITH_COMMANDS: [&str; 16] = [
    "apt",
    "cargo",
    "docker",
    "gh",
    "git",
    "go",
    "helm",
    "kubectl",
    "make",
    "npm",
    "pip",
    "pnpm",
    "podman",
    "systemctl",
    "uv",
    "yarn",
];

/// Reports an entry of `commands` that allows other commands than it shows.
fn check_listed_command(doc: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    let Some(pattern) = node.scalar().and_then(|text| CommandPattern::parse(text).ok()) else {
        return;
    };
    let (message, help) = match pattern.program() {
        None => (
            "this allows every program".to_owned(),
            "name the program, and list each one by itself",
        ),
        Some(program) if pattern.has_wildcard() && runs_any_command(program) => (
            format!("`{program}` runs what its arguments say, so this allows every command"),
            "write the words of the command instead of `*` and `**`",
        ),
        Some(program)
            if pattern.has_any_subcommand() && PROGRAMS_WITH_COMMANDS.contains(&program) =>
        {
            (
                format!("this allows every command of `{program}`"),
                "name the command, such as the `status` of `git status`",
            )
        }
        Some(_) => return,
    };
    linter.warn("loose-approval", doc.diagnostic_at(node, message, help));
}

/// Whether a program runs a command or a program text in its arguments, or a file that they name.
fn runs_any_command(program: &str) -> bool {
    let words = [LintWord::from_text(program)];
    let name = words[0].program_name();
    is_wrapper(&words)
        || matches!(name, "." | "source")
        || Interpreter::from_program_name(name).is_some()
}

/// Reports a pattern that allows any value in which it occurs somewhere, or for a shell any value that it begins.
fn check_allowed_pattern(
    doc: &YamlDocument,
    node: &YamlNode,
    for_shell: bool,
    linter: &mut Linter<'_>,
) {
    let Some(text) = node.scalar() else { return };
    let (message, help) = if !is_anchored(text) {
        (
            "this allows every value in which the pattern occurs anywhere",
            "begin the pattern with `^`, and end it with `$` unless any continuation is harmless; put alternatives in parentheses",
        )
    } else if for_shell && !matches_to_end(text) {
        (
            "this allows every continuation of the value, such as `; rm -r .`",
            "end the pattern with `$`; for a command line, write `approve: {commands: [...]}`",
        )
    } else {
        return;
    };
    linter.warn("loose-approval", doc.diagnostic_at(node, message, help));
}

/// Whether an anchored pattern matches up to the end of the value.
fn matches_to_end(pattern: &str) -> bool {
    let before = pattern.strip_suffix('$').unwrap_or("\\");
    let backslashes = before.len() - before.trim_end_matches('\\').len();
    pattern.ends_with(r"\z") || backslashes.is_multiple_of(2)
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
    use super::{is_anchored, matches_to_end};

    #[test]
    fn c_21_1_a_pattern_has_an_end() {
        for ended in ["^a$", r"^a\z", r"^a\\$"] {
            assert!(matches_to_end(ended), "{ended}");
        }
        for open in ["^a", r"^a\$", "^", "", "^(a|$)"] {
            assert!(!matches_to_end(open), "{open}");
        }
    }

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
