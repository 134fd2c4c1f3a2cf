//! What an agent directory of an older form is in the present one: its files before and after. Nothing is written here.

use crate::context::DEFAULT_MANIFEST;
use crate::diag::{Diagnostic, Report};
use crate::tool;
use crate::tool::edit::{apply, end_of, is_flow};
use crate::yaml::{Document, Node};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// Older names of hooks, and those of today.
const HOOKS: [(&str, &str); 4] = [
    ("pre_llm_req", "pre_llm_request"),
    ("post_llm_resp", "post_llm_response"),
    ("pre_tool_exec", "pre_tool_execution"),
    ("post_tool_exec", "post_tool_execution"),
];

/// One file, before and after.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// The name that it has now; none when it is not there.
    pub old: Option<&'static str>,
    /// The name that it gets.
    pub new: &'static str,
    /// Its text now.
    pub before: String,
    /// Its text then.
    pub after: String,
}

/// What is to be done, and what is left as it is.
#[derive(Debug)]
pub struct Plan {
    /// In the order in which they are safe to be written: what is taken from a file stands in another one first.
    pub changes: Vec<Change>,
    /// What stays as it is, and why.
    pub left: Vec<String>,
}

/// Plans the migration of the agent in `home`.
///
/// # Errors
/// No agent, two main files, or tools that do not load.
pub fn plan(home: &Path) -> Result<Plan, Report> {
    let (name, text) = main_file(home)?;
    let (mut plan, after) = of_text(home, name, &text)?;
    if !home.join("context.yaml").exists() {
        let after = DEFAULT_MANIFEST.to_owned();
        plan.changes.push(Change { old: None, new: "context.yaml", before: String::new(), after });
    }
    if name != "agent.yaml" || after != text {
        plan.changes.push(Change { old: Some(name), new: "agent.yaml", before: text, after });
    }
    Ok(plan)
}

/// What becomes of the main file, and what is taken from it.
fn of_text(home: &Path, name: &'static str, text: &str) -> Result<(Plan, String), Report> {
    let shown = home.join(name).display().to_string();
    let mut plan = Plan { changes: Vec::new(), left: Vec::new() };
    let doc = parse(&shown, text)?;
    let migrated = tool::migrate::migrate(&doc)?;
    for (tool, reason) in migrated.left {
        plan.left.push(format!("the tool `{tool}` keeps `command:`: {reason}"));
    }
    let doc = parse(&shown, &migrated.text)?;
    let after = match doc.root.entry("lifecycle_hooks") {
        Some((key, value)) => {
            plan.left.extend(value.entries().iter().filter_map(of_workspace));
            plan.hooks(home, &doc, key, value)
        }
        None => migrated.text,
    };
    Ok((plan, after))
}

/// What is to be said of a hook whose program is looked for in the workspace.
fn of_workspace((name, hook): &(Node, Node)) -> Option<String> {
    let program = hook.get("command")?.items().first()?.scalar()?;
    if !program.contains('/') || program.starts_with(['/', '$']) {
        return None;
    }
    let (name, beside) = (name.scalar()?, program.trim_start_matches("./"));
    Some(format!(
        "the hook `{name}` starts `{program}`, which is looked for in the workspace; one beside agent.yaml is `${{AGENT_HOME}}/{beside}`"
    ))
}

fn refuse(file: String, message: &str, help: &str) -> Report {
    Report { diagnostics: vec![Diagnostic::of_file(file, message, Some(help.to_owned()))] }
}

fn main_file(home: &Path) -> Result<(&'static str, String), Report> {
    let shown = home.display().to_string();
    let name = match (home.join("agent.yaml").exists(), home.join("config.yaml").exists()) {
        // Left behind by a migration that was interrupted: see `plan`.
        (true, true) if is_taken_over(home) => "config.yaml",
        (true, true) => {
            let message = "agent.yaml and config.yaml are both there";
            return Err(refuse(
                shown,
                message,
                "delta reads agent.yaml; take config.yaml away, or put what it says into agent.yaml",
            ));
        }
        (true, false) => "agent.yaml",
        (false, true) => "config.yaml",
        (false, false) => {
            let help = "name an agent directory: `delta tool migrate DIR`";
            return Err(refuse(shown, "neither agent.yaml nor config.yaml is there", help));
        }
    };
    let path = home.join(name);
    let text = fs::read_to_string(&path).map_err(|error| {
        let message = format!("the file cannot be read: {error}");
        refuse(path.display().to_string(), &message, "make it a readable UTF-8 text")
    })?;
    Ok((name, text))
}

fn parse(shown: &str, text: &str) -> Result<Document, Report> {
    Document::parse(shown, text).map_err(|diagnostic| Report { diagnostics: vec![diagnostic] })
}

/// Whether agent.yaml is what config.yaml becomes.
fn is_taken_over(home: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(home.join(name)).ok();
    let (Some(old), Some(new)) = (read("config.yaml"), read("agent.yaml")) else { return false };
    of_text(home, "config.yaml", &old).is_ok_and(|(_, after)| after == new)
}

impl Plan {
    /// Moves `lifecycle_hooks:` to hooks.yaml; gives what is left of the main file.
    fn hooks(&mut self, home: &Path, doc: &Document, key: &Node, value: &Node) -> String {
        let moved = cut_out(doc, key, value).filter(|(rest, hooks)| is_moved(doc, rest, hooks));
        let Some((rest, hooks)) = moved else {
            self.left.push(
                "`lifecycle_hooks` stays: it cannot be cut out of its file as it is written"
                    .to_owned(),
            );
            return doc.text.clone();
        };
        let path = home.join("hooks.yaml");
        match fs::read_to_string(&path) {
            // It was written before, and the migration did not come to its end.
            Ok(there) if there == hooks => rest,
            Ok(_) => {
                self.left.push(
                    "`lifecycle_hooks` stays: hooks.yaml is there already, and says something else"
                        .to_owned(),
                );
                doc.text.clone()
            }
            Err(_) if path.exists() => {
                self.left.push(
                    "`lifecycle_hooks` stays: hooks.yaml is there, and cannot be read".to_owned(),
                );
                doc.text.clone()
            }
            Err(_) => {
                let before = String::new();
                self.changes.push(Change { old: None, new: "hooks.yaml", before, after: hooks });
                rest
            }
        }
    }
}

/// The text without an entry of its root, and the entry with the comment lines directly above it.
fn cut_out(doc: &Document, key: &Node, value: &Node) -> Option<(String, String)> {
    let text = &doc.text;
    if is_flow(text, &doc.root) || key.column != 1 {
        return None;
    }
    let mut start = key.span.start;
    while let Some(before) = text[..start].strip_suffix('\n') {
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        if !before[line..].starts_with('#') || line == 0 {
            break;
        }
        start = line;
    }
    let end = end_of(text, value).max(key.span.end);
    let end = text[end..].find('\n').map_or(text.len(), |at| end + at + 1);
    let old_names = value.entries().iter().filter_map(|(name, _)| {
        let (_, new) = HOOKS.iter().find(|(old, _)| name.scalar() == Some(old))?;
        let taken = value.get(new).is_some();
        (!taken).then(|| (name.span.start - start..name.span.end - start, (*new).to_owned()))
    });
    let mut hooks = apply(&text[start..end], old_names.collect());
    if !hooks.ends_with('\n') {
        hooks.push('\n');
    }
    Some((format!("{}{}", &text[..start], &text[end..]), hooks))
}

/// Whether nothing but the place and the older names has changed.
fn is_moved(doc: &Document, rest: &str, hooks: &str) -> bool {
    let json = |text: &str| Document::parse("", text).ok().and_then(|doc| doc.json(&doc.root));
    let Some(Json::Object(mut before)) = doc.json(&doc.root) else { return false };
    let Some(Json::Object(old)) = before.shift_remove("lifecycle_hooks") else { return false };
    let renamed = |name: String| {
        let found = HOOKS.iter().find(|(old, new)| *old == name && !doc_has(doc, new));
        found.map_or(name, |(_, new)| (*new).to_owned())
    };
    let expected: serde_json::Map<String, Json> =
        old.into_iter().map(|(name, hook)| (renamed(name), hook)).collect();
    json(rest) == Some(Json::Object(before))
        && json(hooks) == Some(serde_json::json!({ "lifecycle_hooks": expected }))
}

fn doc_has(doc: &Document, hook: &str) -> bool {
    doc.root.get("lifecycle_hooks").is_some_and(|hooks| hooks.get(hook).is_some())
}
