//! The commands of hooks.

use super::command_view::interpreter::Interpreter;
use super::command_view::wrapper_program::{strip_wrappers, wrapped_commands};
use super::command_view::{LintWord, WordPart};
use super::program_table::{HARMLESS_PROGRAMS, SHELL_BUILTINS, find_known_program};
use super::{Linter, context_sources};
use delta_base::engine_variables::EngineVariable;
use delta_shell::ShellOutline;
use delta_yaml::yaml::{YamlDocument, YamlNode};
use std::path::Path;

/// The longest extension of a script.
const MAX_EXTENSION_LENGTH: usize = 4;

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
    let nodes = hook.get("command").map(YamlNode::items).unwrap_or_default();
    let texts: Vec<&str> = nodes.iter().map(|node| node.scalar().unwrap_or_default()).collect();
    let words: Vec<LintWord> = texts.iter().map(|text| LintWord::from_plain_string(text)).collect();
    for word in workspace_code(&words) {
        let text = word.display_text();
        // `program_location` reports a relative path of the program itself.
        if texts[0] == text && !matches!(word.parts[0], WordPart::Variable(_)) {
            continue;
        }
        let message = format!(
            "`{text}` is in the workspace, where the agent's tools can change what this hook does"
        );
        let path = text.strip_prefix("${CWD}/").unwrap_or(&text);
        let path = path.trim_start_matches("../").trim_start_matches("./");
        let help = format!("keep it in the agent directory: `${{AGENT_HOME}}/{path}`");
        let diagnostic = match texts.iter().position(|argument| *argument == text) {
            Some(index) => doc.diagnostic_at(&nodes[index], message, help),
            // It is in the script of `-c`.
            None => {
                let script = texts.iter().position(|argument| argument.contains(&text));
                doc.diagnostic_at_fragment(&nodes[script.unwrap_or(0)], &text, message, help)
            }
        };
        linter.warn("relative-program", diagnostic);
    }
}

/// The words of a command, and of the scripts in it, that name a program or a script in the workspace.
fn workspace_code(words: &[LintWord]) -> Vec<LintWord> {
    let programs = wrapped_commands(words).filter_map(<[LintWord]>::first);
    let mut code: Vec<LintWord> =
        programs.filter(|program| is_path_in_workspace(program)).cloned().collect();
    let [program, arguments @ ..] = strip_wrappers(words) else { return code };
    let name = program.program_name();
    match Interpreter::from_program_name(name) {
        Some(interpreter) => {
            let files = interpreter.program_files(arguments).into_iter();
            code.extend(files.filter(|file| is_file_in_workspace(file)).cloned());
            if matches!(interpreter, Interpreter::Shell | Interpreter::ShellOption) {
                let scripts = interpreter.program_words(arguments);
                code.extend(scripts.into_iter().flat_map(workspace_code_of_script));
            }
        }
        // Such a program may start what its arguments name, as `npx` and `uv run` do.
        None if program.fixed_text() == Some(name) && !takes_no_code(name) => {
            code.extend(arguments.iter().filter(|word| looks_like_script(word)).cloned());
        }
        None => {}
    }
    code
}

/// As [`workspace_code`], for a script of a shell; nothing if not every shell reads it in one way.
fn workspace_code_of_script(script: &LintWord) -> Vec<LintWord> {
    let outline = ShellOutline::from_template(&script.display_text()).unwrap_or_default();
    let mut code = Vec::new();
    for command in &outline.commands {
        let words: Vec<LintWord> =
            command.words.iter().map(|word| LintWord::from_plain_script(word)).collect();
        // After it, relative paths are somewhere else.
        if let [cd, target, ..] = words.as_slice()
            && cd.fixed_text() == Some("cd")
            && target.display_text() != "${CWD}"
            && !is_file_in_workspace(target)
        {
            break;
        }
        code.extend(workspace_code(&words));
    }
    code
}

/// Whether a word with a directory is a path in the workspace, where commands of hooks run.
fn is_path_in_workspace(word: &LintWord) -> bool {
    is_file_in_workspace(word)
        && (word.fixed_prefix().is_empty() || word.fixed_prefix().contains('/'))
}

/// Whether a word that names a file names one in the workspace.
fn is_file_in_workspace(word: &LintWord) -> bool {
    match word.parts.as_slice() {
        [WordPart::Variable(EngineVariable::Cwd), WordPart::Text(rest), ..] => {
            rest.starts_with('/')
        }
        [WordPart::Text(text), ..] => !text.starts_with(['/', '~', '-']) && !text.contains("://"),
        _ => false,
    }
}

/// Whether the program never runs what its arguments name.
fn takes_no_code(name: &str) -> bool {
    find_known_program(name).is_some()
        || HARMLESS_PROGRAMS.contains(&name)
        || SHELL_BUILTINS.contains(&name)
}

/// Whether an argument of an unknown program is probably the path of a script in the workspace, and no name such as `OWNER/NAME`.
fn looks_like_script(word: &LintWord) -> bool {
    let Some(text) = word.fixed_text().filter(|_| is_path_in_workspace(word)) else { return false };
    let extension = Path::new(text).extension().and_then(|extension| extension.to_str());
    let has_extension = extension.is_some_and(|extension| {
        extension.len() <= MAX_EXTENSION_LENGTH
            && extension.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    let is_path = text.starts_with("./") || text.starts_with("../") || has_extension;
    is_path && !text.contains(|c: char| c.is_whitespace() || ":=@*".contains(c))
}
