//! The rules for context.yaml: what the LLM would not see or would see twice, and what makes every request expensive.

use super::tool_definition::check_timeout;
use super::{LintLevel, Linter, program_location};
use delta_agent::context::agents_md::AGENTS_MD_TYPE;
use delta_agent::context::generator_cache::{leading_variable, matches_a_file};
use delta_agent::context::with_txt_fallback;
use delta_base::engine_variables::{
    EngineVariable, EngineVars, StringPart, find_unknown_variable, parse_plain_string,
};
use delta_base::suggest;
use delta_yaml::yaml::{YamlDocument, YamlNode};
use std::path::{Path, PathBuf};
use std::{fs, iter};

const UNFILLED_HELP: &str = "delta replaces only `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}`";
/// Paths that all runs of a workspace share.
const SHARED_PATHS: [&str; 2] = ["${CWD}/.delta/", ".delta/context_artifacts"];

/// The shortest prefix that any endpoint keeps, and the bytes of a token.
const MIN_SHARED_TOKENS: u64 = 512;
const BYTES_PER_TOKEN: u64 = 4;

/// Checks context.yaml; `prompt` is the path of the system prompt, relative to the agent directory.
pub(super) fn check_context(doc: &YamlDocument, prompt: &str, linter: &mut Linter<'_>) {
    let Some((key, sources)) = doc.root.entry("sources") else { return };
    let sources = sources.items();
    if sources.is_empty() {
        return;
    }
    let journal = sources.iter().position(|source| source_type(source) == "journal");
    if journal.is_none() {
        let message = "no source has the type `journal`: the LLM never sees the task or the results of its tools";
        let help = "add `- type: journal` as the last source";
        linter.warn("no-journal", doc.diagnostic_at(key, message, help.to_owned()));
    }
    if !sources.iter().any(|source| is_system_prompt(source, linter.home, prompt)) {
        let message = format!("no source names `{prompt}`: the LLM never sees the system prompt");
        let help =
            format!("add `- {{type: file, path: '${{AGENT_HOME}}/{prompt}'}}` as the first source");
        linter.warn("no-system-prompt", doc.diagnostic_at(key, message, help));
    }
    if let Some(tokenizer) = doc.root.get("tokenizer") {
        check_command(doc, tokenizer, linter);
    }
    for (index, source) in sources.iter().enumerate() {
        linter.with_allowances(doc, source, |linter| {
            check_duplicate(doc, source, &sources[..index], linter);
            if journal.is_some_and(|journal| index < journal) {
                check_volatile(doc, source, linter);
                check_shared_prefix(doc, &sources[index..], linter);
            }
            check_source_file(doc, source, linter);
            check_generator(doc, source, linter);
            check_cache_patterns(doc, source, linter);
        });
    }
}

/// Reports a source that takes instructions from the repository, while `tool` starts without an approval.
pub(super) fn check_agents_md(doc: &YamlDocument, tool: &str, linter: &mut Linter<'_>) {
    for source in doc.root.get("sources").map(YamlNode::items).unwrap_or_default() {
        if source_type(source) != AGENTS_MD_TYPE {
            continue;
        }
        linter.with_allowances(doc, source, |linter| {
            let message = format!(
                "the authors of the repository instruct the LLM, and the tool `{tool}` starts without an approval"
            );
            let help = "write `approve:` in the tools that such instructions must not start, or `x-lint-allow: [agents-md-untrusted]` in this source if the others can do no harm";
            let node = source.get("type").unwrap_or(source);
            linter.warn("agents-md-untrusted", doc.diagnostic_at(node, message, help.to_owned()));
        });
    }
}

fn source_type(source: &YamlNode) -> &str {
    source.get("type").and_then(YamlNode::scalar).unwrap_or_default()
}

/// The path of the file that a source includes.
fn source_path(source: &YamlNode) -> Option<&YamlNode> {
    match source_type(source) {
        "computed_file" => source.get("output_path"),
        "pipeline" => pipeline_stages(source).last()?.get("output"),
        _ => source.get("path"),
    }
}

/// The `names` of an `agents_md` source.
fn file_names(source: &YamlNode) -> Vec<Option<&str>> {
    let names = source.get("names").map(YamlNode::items).unwrap_or_default();
    names.iter().map(YamlNode::scalar).collect()
}

fn pipeline_stages(source: &YamlNode) -> &[YamlNode] {
    source.get("stages").map(YamlNode::items).unwrap_or_default()
}

fn is_system_prompt(source: &YamlNode, home: &Path, prompt: &str) -> bool {
    let path = source_path(source).and_then(|node| resolve_static_path(node, home));
    let prompt_stem = home.join(prompt).with_extension("");
    path.is_some_and(|path| path.with_extension("") == prompt_stem)
}

/// The path in the agent directory or on the machine; `None` if only a run knows it.
fn resolve_static_path(node: &YamlNode, home: &Path) -> Option<PathBuf> {
    let mut path = String::new();
    for piece in parse_plain_string(node.scalar()?) {
        match piece {
            StringPart::Text(text) => path.push_str(&text),
            StringPart::Variable(EngineVariable::AgentHome) => {
                path.push_str(&home.to_string_lossy())
            }
            StringPart::Variable(_) => return None,
        }
    }
    Some(home.join(path))
}

fn check_duplicate(
    doc: &YamlDocument,
    source: &YamlNode,
    earlier: &[YamlNode],
    linter: &mut Linter<'_>,
) {
    let is_journal = source_type(source) == "journal";
    let is_agents_md = source_type(source) == AGENTS_MD_TYPE;
    let path = source_path(source).and_then(YamlNode::scalar);
    let is_duplicate = earlier.iter().any(|other| {
        if is_journal || is_agents_md {
            source_type(other) == source_type(source) && file_names(other) == file_names(source)
        } else {
            path.is_some() && path == source_path(other).and_then(YamlNode::scalar)
        }
    });
    if is_duplicate {
        let content = match source_type(source) {
            "journal" => "the conversation",
            AGENTS_MD_TYPE => "this text",
            _ => "this file",
        };
        let message = format!("the LLM sees {content} twice: an earlier source includes it too");
        let node = source_path(source).or_else(|| source.get("type")).unwrap_or(source);
        let help = "remove one of the sources";
        linter.warn("duplicate-source", doc.diagnostic_at(node, message, help));
    }
}

/// Reports the sources before `journal` that change during a run: the endpoint binds what the model thinks to everything
/// before it, and accepts it back only while that is the same.
pub(super) fn check_thinking_prefix(doc: &YamlDocument, linter: &mut Linter<'_>) {
    let sources = doc.root.get("sources").map(YamlNode::items).unwrap_or_default();
    let Some(journal) = sources.iter().position(|source| source_type(source) == "journal") else {
        return;
    };
    for source in sources[..journal].iter().filter(|source| is_volatile(source)) {
        let id =
            source.get("id").and_then(YamlNode::scalar).or_else(|| source_path(source)?.scalar());
        let name = id.unwrap_or_else(|| source_type(source));
        let message = format!(
            "what the model thought is lost whenever `{name}` changes: `anthropic` accepts it back only after the same text"
        );
        let help = "move the source after `journal`; if its text seldom changes in a run, write `x-lint-allow: [thinking-prefix]`";
        let node = source.get("type").unwrap_or(source);
        linter.with_allowances(doc, source, |linter| {
            linter.warn("thinking-prefix", doc.diagnostic_at(node, message, help.to_owned()));
        });
    }
}

/// Whether the text of the source changes during a run.
fn is_volatile(source: &YamlNode) -> bool {
    let is_computed = matches!(source_type(source), "computed_file" | "pipeline");
    let is_in_run_dir = source_path(source)
        .and_then(YamlNode::scalar)
        .is_some_and(|path| path.contains("${RUN_DIR}"));
    // The output of a source with a cache is the same until its inputs change.
    source.get("cache").is_none() && (is_computed || is_in_run_dir)
}

/// Reports a source before `journal` that changes during a run: a provider's prompt cache ends at the first difference
/// from the previous request.
fn check_volatile(doc: &YamlDocument, source: &YamlNode, linter: &mut Linter<'_>) {
    if !is_volatile(source) {
        return;
    }
    let is_computed = matches!(source_type(source), "computed_file" | "pipeline");
    let cause = match source_type(source) {
        "computed_file" => "a generator runs before every request",
        "pipeline" => "a pipeline runs before every request",
        _ => "a file in the run directory changes during the run",
    };
    let message = format!(
        "{cause}, and the whole conversation comes after it: the provider cannot cache the conversation"
    );
    let cache = if is_computed { ", or give it a `cache`" } else { "" };
    let help = format!(
        "move the source after `journal`{cache}; if its text seldom changes in a run, write `x-lint-allow: [volatile-source]`"
    );
    let node = source.get("type").unwrap_or(source);
    linter.warn("volatile-source", doc.diagnostic_at(node, message, help));
}

/// Reports the first of `sources` if its text can differ between two runs and long texts that do not come after it: an endpoint
/// that caches prefixes then keeps those for one run only.
fn check_shared_prefix(doc: &YamlDocument, sources: &[YamlNode], linter: &mut Linter<'_>) {
    let Some((source, later)) = sources.split_first() else { return };
    if constant_file(source, linter.home).is_some() {
        return;
    }
    let later = later.iter().take_while(|source| source_type(source) != "journal");
    let files = later.filter_map(|source| constant_file(source, linter.home));
    let bytes: u64 = files.filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
    let tokens = bytes / BYTES_PER_TOKEN;
    if tokens < MIN_SHARED_TOKENS {
        return;
    }
    let message = format!(
        "this text can differ between two runs, so they do not share the {tokens} tokens of the agent's files after it in the endpoint's cache"
    );
    let help = "move the source after the files of the agent";
    let node = source.get("type").unwrap_or(source);
    linter.warn("shared-prefix", doc.diagnostic_at(node, message, help.to_owned()));
}

/// The file of a source whose text comes from the agent alone.
fn constant_file(source: &YamlNode, home: &Path) -> Option<PathBuf> {
    let is_constant =
        source_type(source) == "file" && source.get("condition").is_none_or(YamlNode::is_null);
    let path = source_path(source).filter(|_| is_constant)?;
    resolve_static_path(path, home).map(with_txt_fallback)
}

fn check_source_file(doc: &YamlDocument, source: &YamlNode, linter: &mut Linter<'_>) {
    let Some(node) = source_path(source) else { return };
    check_shared_path(doc, node, linter);
    let text = node.scalar().unwrap_or_default();
    // The loader reports unknown variables.
    if source_type(source) != "file" || find_unknown_variable(text).is_some() {
        return;
    }
    if text.starts_with("~/") || text.starts_with('$') && !text.starts_with("${") {
        let message = format!("no shell expands `{text}` here");
        let diagnostic = doc.diagnostic_at(node, message, UNFILLED_HELP.to_owned());
        linter.warn("not-filled", diagnostic);
        return;
    }
    let is_optional = source.get("on_missing").and_then(YamlNode::scalar) == Some("skip");
    match resolve_static_path(node, linter.home) {
        Some(path) if with_txt_fallback(path.clone()).exists() => {}
        Some(path) if is_optional => {
            let message =
                format!("{} does not exist, so this source is always skipped", path.display());
            let help = "create it, or remove the source";
            let diagnostic = doc.diagnostic_at(node, message, help);
            linter.report("missing-file", LintLevel::Info, diagnostic);
        }
        Some(path) => {
            let message = format!("{} does not exist: every run will fail", path.display());
            let help = match similar_file_name(&path) {
                Some(name) => format!(
                    "did you mean `{name}`? otherwise create it, or write `on_missing: skip`"
                ),
                None => "create it, or write `on_missing: skip`".to_owned(),
            };
            linter.warn("missing-file", doc.diagnostic_at(node, message, help));
        }
        None if !is_optional && text.contains("${CWD}") => {
            let message = "a run fails if this file is missing in its workspace";
            let help = "write `on_missing: skip` if a workspace may not contain it";
            let diagnostic = doc.diagnostic_at(node, message, help);
            linter.report("workspace-file", LintLevel::Info, diagnostic);
        }
        None => {}
    }
}

/// The name in the directory of a missing file that is most similar to its name.
fn similar_file_name(path: &Path) -> Option<String> {
    let entries = fs::read_dir(path.parent()?).ok()?.filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let name = path.file_name()?.to_str()?;
    let nearest = suggest::nearest_names(name, names.iter().map(String::as_str));
    nearest.first().map(|name| (*name).to_owned())
}

/// Reports patterns of `invalidate_on` that match no file: a change of the files that they were meant for would go
/// unnoticed. The workspace of a run may be a workspace of the agent, the agent directory or the current directory.
fn check_cache_patterns(doc: &YamlDocument, source: &YamlNode, linter: &mut Linter<'_>) {
    let list = source.get("cache").and_then(|cache| cache.get("invalidate_on"));
    for node in list.map(YamlNode::items).unwrap_or_default() {
        let Some(pattern) = node.scalar() else { continue };
        // The loader reports unknown variables, and the files of a run do not exist yet.
        if find_unknown_variable(pattern).is_some()
            || leading_variable(pattern) == Some(EngineVariable::RunDir)
        {
            continue;
        }
        if possible_workspaces(linter.home).any(|workspace| {
            let agent_home = linter.home.to_owned();
            matches_a_file(
                pattern,
                &EngineVars { agent_home, cwd: workspace, run_dir: PathBuf::new() },
            )
        }) {
            continue;
        }
        let message = format!(
            "`{pattern}` matches no file in the current directory or the agent's directories, so a change there would go unnoticed"
        );
        let help = "name a directory or files of the workspace, such as `src` or `src/**/*.py`; if the agent creates the files itself, write `x-lint-allow: [unmatched-pattern]`";
        linter.warn("unmatched-pattern", doc.diagnostic_at(node, message, help.to_owned()));
    }
}

pub(super) fn possible_workspaces(home: &Path) -> impl Iterator<Item = PathBuf> {
    let agent_workspaces = fs::read_dir(home.join("workspaces")).into_iter().flatten().flatten();
    iter::once(PathBuf::from("."))
        .chain(iter::once(home.to_owned()))
        .chain(agent_workspaces.map(|entry| entry.path()))
}

/// Reports a path in `.delta` outside the run.
fn check_shared_path(doc: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    if node.scalar().is_some_and(|text| SHARED_PATHS.iter().any(|path| text.contains(path))) {
        let message =
            "runs in the same workspace share this file, and one can read what another one wrote";
        let help = "write `${RUN_DIR}/NAME`";
        linter.warn("shared-artifacts", doc.diagnostic_at(node, message, help));
    }
}

fn check_generator(doc: &YamlDocument, source: &YamlNode, linter: &mut Linter<'_>) {
    if let Some(generator) = source.get("generator") {
        check_command(doc, generator, linter);
    }
    let stages = pipeline_stages(source);
    for (index, stage) in stages.iter().enumerate() {
        check_command_words(doc, stage.get("generator"), linter);
        // `check_source_file` checks the output of the last stage.
        if let Some(output) = stage.get("output").filter(|_| index + 1 < stages.len()) {
            check_shared_path(doc, output, linter);
        }
        if let Some(node) = stage.get("timeout_ms") {
            check_timeout(doc, node, linter);
        }
    }
}

/// Checks `command:` and `timeout_ms:` of a provider, a generator, a tokenizer or a hook.
pub(super) fn check_command(doc: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    check_command_words(doc, node.get("command"), linter);
    if let Some(node) = node.get("timeout_ms") {
        check_timeout(doc, node, linter);
    }
}

fn check_command_words(doc: &YamlDocument, command: Option<&YamlNode>, linter: &mut Linter<'_>) {
    let words = command.map(YamlNode::items).unwrap_or_default();
    if let Some(program) = words.first() {
        program_location::check_program_node(doc, program, linter);
    }
    for word in words {
        check_shared_path(doc, word, linter);
    }
}
