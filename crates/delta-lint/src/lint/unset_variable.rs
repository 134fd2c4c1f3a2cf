//! `unset-variable`: `$name` in a script where the author meant the parameter `name`, or a variable that nothing sets.

use super::{Linter, ToolSubject};
use delta_agent::tool::RUN_VARIABLES;
use delta_shell::{OutlinePart, ShellOutline};

/// Commands after which any variable may be set.
const SETTING_COMMANDS: [&str; 4] = [".", "source", "eval", "set"];
/// Commands that set the variables that their arguments name.
const ASSIGNING_COMMANDS: [&str; 6] = ["read", "local", "export", "readonly", "getopts", "mapfile"];

/// Reports each variable of a script that nothing sets.
pub(super) fn check_variables(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let Some(outline) = &subject.outline else { return };
    let values = outline.commands.iter().flat_map(|command| command.words.iter().flatten());
    let assigned = outline.assignments.iter().flat_map(|assignment| &assignment.value);
    let mut reported = Vec::new();
    for part in values.chain(assigned) {
        let OutlinePart::Variable { name, .. } = part else { continue };
        if reported.contains(&name) || !is_expanded(&subject.tool.template, name) {
            continue;
        }
        if is_set(subject, outline, linter, name) {
            continue;
        }
        reported.push(name);
        let message = if has_parameter(subject, name) {
            format!("`${name}` is a variable of the shell that nothing sets, not the parameter")
        } else if is_probably_environment(name) {
            // Other machines have other environments.
            continue;
        } else {
            format!("nothing sets the shell variable `${name}`")
        };
        let help = format!("write `${{{name}}}` for a parameter");
        linter.warn("unset-variable", subject.diagnostic_at(&format!("${name}"), message, help));
    }
}

fn has_parameter(subject: &ToolSubject<'_>, name: &str) -> bool {
    subject.tool.parameters.iter().any(|parameter| parameter.name == name)
}

/// Whether `template` has `$name`, without braces.
fn is_expanded(template: &str, name: &str) -> bool {
    has_identifier(template, name, |before, _| before.ends_with('$'))
}

/// Whether `text` has the identifier `name` where `matches` accepts the texts before and after it.
fn has_identifier(text: &str, name: &str, matches: impl Fn(&str, &str) -> bool) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(start, _)| {
        let before = &text[..start];
        let after = &text[start + name.len()..];
        !before.ends_with(is_part) && !after.starts_with(is_part) && matches(before, after)
    })
}

/// Whether the script, the definition or the engine sets the variable.
fn is_set(
    subject: &ToolSubject<'_>,
    outline: &ShellOutline,
    linter: &Linter<'_>,
    name: &str,
) -> bool {
    let tool = subject.tool;
    let in_script = has_identifier(&tool.template, name, |before, after| {
        let is_assigned =
            after.starts_with('=') || after.starts_with(":=") || after.starts_with("+=");
        let is_loop = before.trim_end().ends_with("for") && before.ends_with(char::is_whitespace);
        is_assigned || is_loop
    });
    let by_command = outline.commands.iter().any(|command| {
        let mut words = command.words.iter().map(|parts| match parts.as_slice() {
            [OutlinePart::Text(text)] => text.as_str(),
            _ => "",
        });
        let program = words.next().unwrap_or_default();
        SETTING_COMMANDS.contains(&program)
            || ASSIGNING_COMMANDS.contains(&program) && words.any(|word| word == name)
    });
    // `$((count))` and the positional parameters have no name of their own.
    let is_special = !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    in_script
        || by_command
        || is_special
        || RUN_VARIABLES.contains(&name)
        || tool.env.iter().any(|(variable, _)| variable == name)
        || tool.pass_env.iter().any(|variable| variable == name)
        || linter.launch.env.get(name).is_some()
}

/// Whether the name is one that an environment has.
fn is_probably_environment(name: &str) -> bool {
    !name.contains(|c: char| c.is_ascii_lowercase()) || name.ends_with("_proxy")
}
