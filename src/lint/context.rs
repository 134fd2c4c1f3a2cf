//! context.yaml: what the LLM would not see, would see twice, or would make every request dear.

use super::definition::timeout;
use super::{Level, Sink, programs};
use crate::process::Launch;
use crate::vars::{self, Piece, Variable};
use crate::yaml::{Document, Node};
use std::path::{Path, PathBuf};

const NOT_FILLED: &str = "only `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are filled in";

pub(super) fn check(doc: &Document, home: &Path, prompt: &str, launch: &Launch, sink: &mut Sink) {
    let Some((key, sources)) = doc.root.entry("sources") else { return };
    let items = sources.items();
    if items.is_empty() {
        return;
    }
    let journal = items.iter().position(|item| kind(item) == "journal");
    if journal.is_none() {
        let message = "no source is of type `journal`: the LLM never sees the task or what its tools answered";
        let help = "add `- type: journal` as the last source";
        sink.add("no-journal", Level::Warning, doc.at(key, message, help.to_owned()));
    }
    if !items.iter().any(|item| is_prompt(item, home, prompt)) {
        let message =
            format!("no source names `{prompt}`: the system prompt does not reach the LLM");
        let help =
            format!("add `- {{type: file, path: '${{AGENT_HOME}}/{prompt}'}}` as the first source");
        sink.add("no-system-prompt", Level::Warning, doc.at(key, message, help));
    }
    if let Some(tokenizer) = doc.root.get("tokenizer") {
        command(doc, tokenizer, home, launch, sink);
    }
    for (at, item) in items.iter().enumerate() {
        sink.within(doc, item, |sink| {
            repeated(doc, item, &items[..at], sink);
            volatile(doc, item, journal.is_some_and(|journal| at < journal), sink);
            file(doc, item, home, sink);
            generator(doc, item, home, launch, sink);
        });
    }
}

fn kind(item: &Node) -> &str {
    item.get("type").and_then(Node::scalar).unwrap_or_default()
}

/// The file that a source shows.
fn path_node(item: &Node) -> Option<&Node> {
    match kind(item) {
        "computed_file" => item.get("output_path"),
        "pipeline" => stages(item).last()?.get("output"),
        _ => item.get("path"),
    }
}

/// The stages of a pipeline.
fn stages(item: &Node) -> &[Node] {
    item.get("stages").map(Node::items).unwrap_or_default()
}

fn is_prompt(item: &Node, home: &Path, prompt: &str) -> bool {
    let path = path_node(item).and_then(|node| place(node, home));
    let stem = |path: &Path| path.with_extension("");
    path.is_some_and(|(path, _)| stem(&path) == stem(&home.join(prompt)))
}

/// Where a path leads, when it is known before a run, and whether it lies in the agent directory.
fn place(node: &Node, home: &Path) -> Option<(PathBuf, bool)> {
    let mut text = String::new();
    for piece in vars::pieces(node.scalar()?) {
        match piece {
            Piece::Text(piece) => text.push_str(&piece),
            Piece::Variable(Variable::AgentHome) => text.push_str(&home.to_string_lossy()),
            Piece::Variable(_) => return None,
        }
    }
    let path = home.join(text);
    let inside = path.starts_with(home);
    Some((path, inside))
}

fn repeated(doc: &Document, item: &Node, before: &[Node], sink: &mut Sink) {
    let shown = |item: &Node| path_node(item).and_then(Node::scalar).map(str::to_owned);
    let twice = before.iter().any(|other| match kind(item) {
        "journal" => kind(other) == "journal",
        _ => shown(item).is_some() && shown(item) == shown(other),
    });
    if twice {
        let what = if kind(item) == "journal" { "the conversation" } else { "this file" };
        let message = format!("the LLM sees {what} twice: a source above shows it already");
        let at = path_node(item).or_else(|| item.get("type")).unwrap_or(item);
        sink.add(
            "duplicate-source",
            Level::Warning,
            doc.at(at, message, "take one of them out".to_owned()),
        );
    }
}

/// What changes between two requests of a run ends the part of the request that a provider has in its cache.
fn volatile(doc: &Document, item: &Node, before_journal: bool, sink: &mut Sink) {
    let in_run =
        path_node(item).and_then(Node::scalar).is_some_and(|path| path.contains("${RUN_DIR}"));
    let computed = matches!(kind(item), "computed_file" | "pipeline");
    // With a cache its text is the same until what it is made of changes.
    let cached = item.get("cache").is_some();
    if !before_journal || cached || !(computed || in_run) {
        return;
    }
    let what = match kind(item) {
        "computed_file" => "a generator runs before every request",
        "pipeline" => "a pipeline runs before every request",
        _ => "a file in the run directory changes during the run",
    };
    let message = format!(
        "{what}, and all of the conversation stands behind it: the provider's prompt cache holds nothing"
    );
    let cache = if computed { ", or give it a `cache`" } else { "" };
    let help = format!(
        "put the source behind `journal`{cache}; if its text seldom changes in a run, write `x-lint-allow: [volatile-source]`"
    );
    let at = item.get("type").unwrap_or(item);
    sink.add("volatile-source", Level::Warning, doc.at(at, message, help));
}

fn file(doc: &Document, item: &Node, home: &Path, sink: &mut Sink) {
    let Some(node) = path_node(item) else { return };
    let text = node.scalar().unwrap_or_default();
    shared(doc, node, sink);
    // Of a name that is not the engine's, the loader has said what is wrong.
    if kind(item) != "file" || vars::unknown(text).is_some() {
        return;
    }
    if text.starts_with("~/") || text.starts_with('$') && !text.starts_with("${") {
        let message = format!("`{text}` stays as it is: no shell expands it");
        sink.add("not-filled", Level::Warning, doc.at(node, message, NOT_FILLED.to_owned()));
        return;
    }
    let skips = item.get("on_missing").and_then(Node::scalar) == Some("skip");
    match place(node, home) {
        Some((path, _)) if crate::context::or_text_form(path.clone()).exists() => {}
        Some((path, _)) if skips => {
            let message =
                format!("{} is not there, so this source is always left out", path.display());
            sink.add(
                "missing-file",
                Level::Info,
                doc.at(node, message, "create it, or take the source out".to_owned()),
            );
        }
        Some((path, _)) => {
            let message = format!("{} is not there, and every run will fail", path.display());
            let help = "create it, or write `on_missing: skip`".to_owned();
            sink.add("missing-file", Level::Warning, doc.at(node, message, help));
        }
        None if !skips && text.contains("${CWD}") => {
            let message = "a run fails in a workspace that does not have this file";
            let help = "write `on_missing: skip` if a workspace may lack it".to_owned();
            sink.add("workspace-file", Level::Info, doc.at(node, message, help));
        }
        None => {}
    }
}

/// A path in `.delta` beside the runs.
fn shared(doc: &Document, node: &Node, sink: &mut Sink) {
    let beside = ["${CWD}/.delta/", ".delta/context_artifacts"];
    if node.scalar().is_some_and(|text| beside.iter().any(|dir| text.contains(dir))) {
        let message = "runs that work at the same time share this file, and one may read what the other wrote";
        let help = "write `${RUN_DIR}/NAME`".to_owned();
        sink.add("shared-artifacts", Level::Warning, doc.at(node, message, help));
    }
}

fn generator(doc: &Document, item: &Node, home: &Path, launch: &Launch, sink: &mut Sink) {
    if let Some(generator) = item.get("generator") {
        command(doc, generator, home, launch, sink);
    }
    let stages = stages(item);
    for (at, stage) in stages.iter().enumerate() {
        words(doc, stage.get("generator"), home, launch, sink);
        // That of the last one is the file that the source shows.
        if let Some(output) = stage.get("output").filter(|_| at + 1 < stages.len()) {
            shared(doc, output, sink);
        }
        if let Some(node) = stage.get("timeout_ms") {
            timeout(doc, node, sink);
        }
    }
}

/// Looks at `command:` and `timeout_ms:` of a generator, a tokenizer or a hook.
pub(super) fn command(doc: &Document, node: &Node, home: &Path, launch: &Launch, sink: &mut Sink) {
    words(doc, node.get("command"), home, launch, sink);
    if let Some(node) = node.get("timeout_ms") {
        timeout(doc, node, sink);
    }
}

fn words(doc: &Document, list: Option<&Node>, home: &Path, launch: &Launch, sink: &mut Sink) {
    let items = list.map(Node::items).unwrap_or_default();
    if let Some(program) = items.first() {
        programs::check_plain(doc, program, home, launch, sink);
    }
    items.iter().for_each(|item| shared(doc, item, sink));
}
