//! The commands of hooks.

use super::code::Interpreter;
use super::{Level, Sink, context};
use crate::process::Launch;
use crate::yaml::{Document, Node};
use std::path::Path;

pub(super) fn check(doc: &Document, root: &Node, home: &Path, launch: &Launch, sink: &mut Sink) {
    for (_, hook) in root.entries() {
        let several = hook.items();
        for hook in several.iter().chain(several.is_empty().then_some(hook)) {
            sink.within(doc, hook, |sink| {
                context::command(doc, hook, home, launch, sink);
                writable(doc, hook, home, sink);
            });
        }
    }
}

/// Looks for code that lies in the workspace: what the tools can write, no gate should run.
fn writable(doc: &Document, hook: &Node, home: &Path, sink: &mut Sink) {
    let words = hook.get("command").map(Node::items).unwrap_or_default();
    let named = |node: &Node| Path::new(node.scalar()?).file_name()?.to_str().map(str::to_owned);
    let interpreted =
        words.first().and_then(named).is_some_and(|it| Interpreter::named(&it).is_some());
    for (at, word) in words.iter().enumerate().take(if interpreted { 2 } else { 1 }) {
        let Some(text) = word.scalar() else { continue };
        let inside = text.strip_prefix("${CWD}/");
        // Of a program with a relative path the other check speaks.
        let relative =
            (at == 1 && Path::new(text).is_relative() && home.join(text).is_file()).then_some(text);
        if let Some(name) = inside.or(relative) {
            let message = format!(
                "`{text}` lies in the workspace, where the agent's tools can write what this hook does"
            );
            let help = format!(
                "keep it in the agent directory: `${{AGENT_HOME}}/{}`",
                name.trim_start_matches("./")
            );
            sink.add("relative-program", Level::Warning, doc.at(word, message, help));
        }
    }
}
