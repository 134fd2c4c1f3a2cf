//! The commands of hooks.

use super::command_view::interpreter::Interpreter;
use super::{Linter, context_sources};
use delta_yaml::yaml::{YamlDocument, YamlNode};
use std::path::Path;

/// Checks the entries of `hooks`, each one hook or a list of hooks.
pub(super) fn check_hooks(doc: &YamlDocument, hooks: &YamlNode, linter: &mut Linter<'_>) {
    for (_, value) in hooks.entries() {
        let list = value.items();
        for hook in list.iter().chain(list.is_empty().then_some(value)) {
            linter.with_allowances(doc, hook, |linter| {
                context_sources::check_command(doc, hook, linter);
                check_writable_code(doc, hook, linter);
            });
        }
    }
}

/// Reports code in the workspace, where the tools can change what the hook does.
fn check_writable_code(doc: &YamlDocument, hook: &YamlNode, linter: &mut Linter<'_>) {
    let words = hook.get("command").map(YamlNode::items).unwrap_or_default();
    let has_interpreter = words.first().is_some_and(names_interpreter);
    let code_words = if has_interpreter { 2 } else { 1 };
    for (index, word) in words.iter().enumerate().take(code_words) {
        let Some(text) = word.scalar() else { continue };
        // `program_location` checks a relative path of the program itself.
        let is_agent_script =
            index == 1 && Path::new(text).is_relative() && linter.home.join(text).is_file();
        let in_workspace = text.strip_prefix("${CWD}/");
        if let Some(path) = in_workspace.or(is_agent_script.then_some(text)) {
            let message = format!(
                "`{text}` is in the workspace, where the agent's tools can change what this hook does"
            );
            let path = path.trim_start_matches("./");
            let help = format!("keep it in the agent directory: `${{AGENT_HOME}}/{path}`");
            linter.warn("relative-program", doc.diagnostic_at(word, message, help));
        }
    }
}

fn names_interpreter(program: &YamlNode) -> bool {
    program
        .scalar()
        .and_then(|text| Path::new(text).file_name()?.to_str())
        .is_some_and(|name| Interpreter::from_program_name(name).is_some())
}
