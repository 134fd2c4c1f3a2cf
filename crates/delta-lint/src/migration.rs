//! Migrates an agent directory from an older format: computes the new files, and writes nothing.

use delta_agent::context::{SYSTEM_PROMPT_FILE, default_manifest};
use delta_agent::hook::{HOOKS_FILE, HookPoint};
use delta_agent::tool;
use delta_agent::tool::yaml_edit::{apply_edits, is_flow_node, node_end};
use delta_base::durable;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport, READABLE_TEXT_HELP};
use delta_yaml::yaml::{YamlDocument, YamlNode};
use serde_json::{Map, Value as Json};
use std::fs;
use std::path::Path;

/// The key of the main file that hooks.yaml replaces.
const HOOKS_KEY: &str = "lifecycle_hooks";

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
    plan.rename_hooks(home)?;
    if !home.join("context.yaml").exists() {
        let doc = parse_file(name, &after)?;
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
    let doc = parse_file(&path, text)?;
    let migrated = tool::migrate::migrate_tools(&doc)?;
    for (tool, reason) in migrated.unchanged {
        plan.unchanged.push(format!("the tool `{tool}` keeps `command:`: {reason}"));
    }
    let doc = parse_file(&path, &migrated.text)?;
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
    let text = durable::read_regular_text(&path).map_err(|error| {
        let message = format!("could not read the file: {error}");
        error_report(path.display().to_string(), &message, READABLE_TEXT_HELP)
    })?;
    Ok((name, text))
}

fn parse_file(path: &str, text: &str) -> Result<YamlDocument, DiagnosticReport> {
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

    /// Gives the hooks of hooks.yaml their present names.
    fn rename_hooks(&mut self, home: &Path) -> Result<(), DiagnosticReport> {
        let path = home.join(HOOKS_FILE);
        // The loader reports a file that cannot be read.
        let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
        let doc = parse_file(&path.display().to_string(), &text)?;
        let hooks = doc.root.get(HOOKS_KEY).unwrap_or(&doc.root);
        for (name, _) in hooks.entries() {
            let name = name.scalar().unwrap_or_default();
            let new_name = HookPoint::from_old_name(name).map(HookPoint::name);
            if let Some(new_name) = new_name.filter(|new_name| hooks.get(new_name).is_some()) {
                self.unchanged.push(format!(
                    "the hook `{name}` keeps its old name: {HOOKS_FILE} has `{new_name}` too"
                ));
            }
        }
        let renames: Vec<_> = hook_renames(hooks)
            .into_iter()
            .map(|(name, new_name)| (name.span.clone(), new_name.to_owned()))
            .collect();
        if renames.is_empty() {
            return Ok(());
        }
        let after = apply_edits(&text, renames);
        if parse_json(&after) != renamed_hooks_file(&doc) {
            self.unchanged.push(format!(
                "the hooks of {HOOKS_FILE} keep their old names: they cannot be changed as they are written"
            ));
            return Ok(());
        }
        self.changes.push(FileChange {
            old_name: Some(HOOKS_FILE),
            new_name: HOOKS_FILE,
            before: text,
            after,
        });
        Ok(())
    }

    /// Moves `lifecycle_hooks:` of `doc` to hooks.yaml. Returns the new text of the main file.
    fn move_hooks(
        &mut self,
        home: &Path,
        doc: &YamlDocument,
        key: &YamlNode,
        value: &YamlNode,
    ) -> String {
        let path = home.join(HOOKS_FILE);
        let cut = cut_out_entry(doc, key, value)
            .filter(|(rest, hooks)| preserves_content(doc, rest, hooks));
        let obstacle = match (cut, fs::read_to_string(&path)) {
            (None, _) => "it cannot be cut out of the file as it is written",
            // An interrupted migration has written it.
            (Some((rest, hooks)), Ok(existing)) if existing == hooks => return rest,
            (Some(_), Ok(_)) => "hooks.yaml already exists and has other contents",
            (Some(_), Err(_)) if path.exists() => "hooks.yaml already exists and cannot be read",
            (Some((rest, hooks)), Err(_)) => {
                self.add_file(HOOKS_FILE, hooks);
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
    let renames = hook_renames(value).into_iter().map(|(name, new_name)| {
        (name.span.start - start..name.span.end - start, new_name.to_owned())
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

/// The content of hooks.yaml with the present names of its hooks.
fn renamed_hooks_file(doc: &YamlDocument) -> Option<Json> {
    let Some(Json::Object(mut root)) = doc.to_json(&doc.root) else { return None };
    match root.get_mut(HOOKS_KEY) {
        Some(Json::Object(hooks)) => *hooks = with_present_names(std::mem::take(hooks)),
        _ => root = with_present_names(root),
    }
    Some(Json::Object(root))
}

/// Whether the two new texts together have the content of `doc`, except for the old names of hooks.
fn preserves_content(doc: &YamlDocument, rest: &str, hooks: &str) -> bool {
    let Some(Json::Object(mut expected_rest)) = doc.to_json(&doc.root) else { return false };
    let Some(Json::Object(old_hooks)) = expected_rest.shift_remove(HOOKS_KEY) else { return false };
    let expected_hooks = with_present_names(old_hooks);
    parse_json(rest) == Some(Json::Object(expected_rest))
        && parse_json(hooks) == Some(serde_json::json!({ HOOKS_KEY: expected_hooks }))
}

/// The old names among the keys of `hooks`, each with the present name, unless the mapping has that name too.
fn hook_renames(hooks: &YamlNode) -> Vec<(&YamlNode, &'static str)> {
    let names = hooks.entries().iter().filter_map(|(name, _)| {
        let new_name = HookPoint::from_old_name(name.scalar()?)?.name();
        hooks.get(new_name).is_none().then_some((name, new_name))
    });
    names.collect()
}

/// The hooks with their present names, except one whose present name another hook has.
fn with_present_names(hooks: Map<String, Json>) -> Map<String, Json> {
    let names: Vec<String> = hooks.keys().cloned().collect();
    let renamed = hooks.into_iter().map(|(name, hook)| {
        let new_name = HookPoint::from_old_name(&name).map(HookPoint::name);
        let new_name = new_name.filter(|new_name| !names.iter().any(|name| name == new_name));
        (new_name.map_or(name, str::to_owned), hook)
    });
    renamed.collect()
}

fn parse_json(text: &str) -> Option<Json> {
    let doc = YamlDocument::parse("", text).ok()?;
    doc.to_json(&doc.root)
}
