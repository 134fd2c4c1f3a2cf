//! Migrates an agent directory from an older format: computes the new files, and writes nothing.

use delta_agent::context::{SYSTEM_PROMPT_FILE, default_manifest};
use delta_agent::tool;
use delta_agent::tool::yaml_edit::{apply_edits, is_flow_node, node_end};
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::{YamlDocument, YamlNode};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// The key of the main file that hooks.yaml replaces.
const HOOKS_KEY: &str = "lifecycle_hooks";

/// The old names of hooks, each with the present one.
const HOOK_RENAMES: [(&str, &str); 4] = [
    ("pre_llm_req", "pre_llm_request"),
    ("post_llm_resp", "post_llm_response"),
    ("pre_tool_exec", "pre_tool_execution"),
    ("post_tool_exec", "post_tool_execution"),
];

/// A change of one file.
#[derive(Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The present name of the file; `None` for a new file.
    pub old_name: Option<&'static str>,
    /// The name after the migration.
    pub new_name: &'static str,
    /// The present text; empty for a new file.
    pub before: String,
    /// The text after the migration.
    pub after: String,
}

/// The changes of a migration.
#[derive(Debug)]
pub struct MigrationPlan {
    /// In an order that is safe for writing: a text is written to its new file before it is removed from the old one.
    pub changes: Vec<FileChange>,
    /// Messages about the parts that are not migrated, with the reasons.
    pub unchanged: Vec<String>,
}

/// Plans the migration of the agent in `home`.
///
/// # Errors
/// There is no main file or more than one, or a tool does not load.
pub fn plan_migration(home: &Path) -> Result<MigrationPlan, DiagnosticReport> {
    let (name, text) = read_main_file(home)?;
    let (mut plan, after) = migrate_main_file(home, name, &text)?;
    if !home.join("context.yaml").exists() {
        let doc = parse_main_file(name, &after)?;
        let prompt = doc.root.get("system_prompt").and_then(YamlNode::scalar);
        let context = default_manifest(prompt.unwrap_or(SYSTEM_PROMPT_FILE));
        plan.add_file("context.yaml", context);
    }
    if name != "agent.yaml" || after != text {
        plan.changes.push(FileChange {
            old_name: Some(name),
            new_name: "agent.yaml",
            before: text,
            after,
        });
    }
    Ok(plan)
}

/// Migrates the text of the main file. Returns the changes of other files, and the new text.
fn migrate_main_file(
    home: &Path,
    name: &'static str,
    text: &str,
) -> Result<(MigrationPlan, String), DiagnosticReport> {
    let path = home.join(name).display().to_string();
    let mut plan = MigrationPlan { changes: Vec::new(), unchanged: Vec::new() };
    let doc = parse_main_file(&path, text)?;
    let migrated = tool::migrate::migrate_tools(&doc)?;
    for (tool, reason) in migrated.unchanged {
        plan.unchanged.push(format!("the tool `{tool}` keeps `command:`: {reason}"));
    }
    let doc = parse_main_file(&path, &migrated.text)?;
    let after = match doc.root.entry(HOOKS_KEY) {
        Some((key, value)) => {
            for (name, hook) in value.entries() {
                plan.unchanged.extend(workspace_hook_note(name, hook));
            }
            plan.move_hooks(home, &doc, key, value)
        }
        None => migrated.text,
    };
    Ok((plan, after))
}

/// The message about a hook whose program is resolved in the workspace.
fn workspace_hook_note(name: &YamlNode, hook: &YamlNode) -> Option<String> {
    let name = name.scalar()?;
    let program = hook.get("command")?.items().first()?.scalar()?;
    if !program.contains('/') || program.starts_with(['/', '$']) {
        return None;
    }
    let path = program.trim_start_matches("./");
    Some(format!(
        "the hook `{name}` starts `{program}`, which is resolved in the workspace; for a program in the agent directory, write `${{AGENT_HOME}}/{path}`"
    ))
}

fn error_report(file: String, message: &str, help: &str) -> DiagnosticReport {
    DiagnosticReport { diagnostics: vec![Diagnostic::for_file(file, message, help)] }
}

/// The name and the text of the main file.
fn read_main_file(home: &Path) -> Result<(&'static str, String), DiagnosticReport> {
    let name = match (home.join("agent.yaml").exists(), home.join("config.yaml").exists()) {
        // An interrupted migration wrote agent.yaml and did not remove config.yaml.
        (true, true) if is_migrated_copy(home) => "config.yaml",
        (true, true) => {
            return Err(error_report(
                home.display().to_string(),
                "both agent.yaml and config.yaml exist",
                "delta reads agent.yaml; remove config.yaml, or move its contents into agent.yaml",
            ));
        }
        (true, false) => "agent.yaml",
        (false, true) => "config.yaml",
        (false, false) => {
            return Err(error_report(
                home.display().to_string(),
                "neither agent.yaml nor config.yaml exists",
                "name an agent directory: `delta tool migrate DIR`",
            ));
        }
    };
    let path = home.join(name);
    let text = fs::read_to_string(&path).map_err(|error| {
        let message = format!("could not read the file: {error}");
        error_report(path.display().to_string(), &message, "make it a readable UTF-8 text")
    })?;
    Ok((name, text))
}

fn parse_main_file(path: &str, text: &str) -> Result<YamlDocument, DiagnosticReport> {
    YamlDocument::parse(path, text)
        .map_err(|diagnostic| DiagnosticReport { diagnostics: vec![diagnostic] })
}

/// Whether agent.yaml is the migrated config.yaml.
fn is_migrated_copy(home: &Path) -> bool {
    let Ok(old) = fs::read_to_string(home.join("config.yaml")) else { return false };
    let Ok(new) = fs::read_to_string(home.join("agent.yaml")) else { return false };
    migrate_main_file(home, "config.yaml", &old).is_ok_and(|(_, after)| after == new)
}

impl MigrationPlan {
    fn add_file(&mut self, name: &'static str, text: String) {
        self.changes.push(FileChange {
            old_name: None,
            new_name: name,
            before: String::new(),
            after: text,
        });
    }

    /// Moves `lifecycle_hooks:` of `doc` to hooks.yaml. Returns the new text of the main file.
    fn move_hooks(
        &mut self,
        home: &Path,
        doc: &YamlDocument,
        key: &YamlNode,
        value: &YamlNode,
    ) -> String {
        let path = home.join("hooks.yaml");
        let cut = cut_out_entry(doc, key, value)
            .filter(|(rest, hooks)| preserves_content(doc, rest, hooks));
        let obstacle = match (cut, fs::read_to_string(&path)) {
            (None, _) => "it cannot be cut out of the file as it is written",
            // An interrupted migration has written it.
            (Some((rest, hooks)), Ok(existing)) if existing == hooks => return rest,
            (Some(_), Ok(_)) => "hooks.yaml already exists and has other contents",
            (Some(_), Err(_)) if path.exists() => "hooks.yaml already exists and cannot be read",
            (Some((rest, hooks)), Err(_)) => {
                self.add_file("hooks.yaml", hooks);
                return rest;
            }
        };
        self.unchanged.push(format!("`{HOOKS_KEY}` is not migrated: {obstacle}"));
        doc.text.clone()
    }
}

/// The text without an entry of the root, and that entry with the comment lines directly above it.
fn cut_out_entry(doc: &YamlDocument, key: &YamlNode, value: &YamlNode) -> Option<(String, String)> {
    let text = &doc.text;
    if is_flow_node(text, &doc.root) || key.column != 1 {
        return None;
    }
    let start = comment_start(text, key.span.start);
    let end = node_end(text, value).max(key.span.end);
    let end = text[end..].find('\n').map_or(text.len(), |newline| end + newline + 1);
    let renames = value.entries().iter().filter_map(|(name, _)| {
        let (_, new_name) = HOOK_RENAMES.iter().find(|(old, _)| name.scalar() == Some(old))?;
        let range = name.span.start - start..name.span.end - start;
        value.get(new_name).is_none().then(|| (range, (*new_name).to_owned()))
    });
    let mut entry = apply_edits(&text[start..end], renames.collect());
    if !entry.ends_with('\n') {
        entry.push('\n');
    }
    Some((format!("{}{}", &text[..start], &text[end..]), entry))
}

/// The start of the comment lines directly above the line that starts at `line_start`, except in the first line of the
/// file, where a comment is about the whole file.
fn comment_start(text: &str, line_start: usize) -> usize {
    let mut start = line_start;
    while let Some(before) = text[..start].strip_suffix('\n') {
        let previous = before.rfind('\n').map_or(0, |newline| newline + 1);
        if !before[previous..].starts_with('#') || previous == 0 {
            break;
        }
        start = previous;
    }
    start
}

/// Whether the two new texts together have the content of `doc`, except for the old names of hooks.
fn preserves_content(doc: &YamlDocument, rest: &str, hooks: &str) -> bool {
    let Some(Json::Object(mut expected_rest)) = doc.to_json(&doc.root) else { return false };
    let Some(Json::Object(old_hooks)) = expected_rest.shift_remove(HOOKS_KEY) else { return false };
    let expected_hooks: serde_json::Map<String, Json> =
        old_hooks.into_iter().map(|(name, hook)| (present_hook_name(doc, name), hook)).collect();
    parse_json(rest) == Some(Json::Object(expected_rest))
        && parse_json(hooks) == Some(serde_json::json!({ HOOKS_KEY: expected_hooks }))
}

/// The present name of a hook, unless the file has a hook of that name too.
fn present_hook_name(doc: &YamlDocument, name: String) -> String {
    match HOOK_RENAMES.iter().find(|(old_name, _)| *old_name == name) {
        Some((_, new_name)) if !has_hook(doc, new_name) => (*new_name).to_owned(),
        _ => name,
    }
}

fn has_hook(doc: &YamlDocument, hook: &str) -> bool {
    doc.root.get(HOOKS_KEY).is_some_and(|hooks| hooks.get(hook).is_some())
}

fn parse_json(text: &str) -> Option<Json> {
    let doc = YamlDocument::parse("", text).ok()?;
    doc.to_json(&doc.root)
}
