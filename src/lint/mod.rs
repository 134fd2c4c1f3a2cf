//! What of an agent loads and is probably wrong all the same: the audit before the first token is spent.
//!
//! Every rule has a name that stays, a level, and an example in docs/reference/lint.md. Nothing is executed, nothing is
//! written. A finding that is wanted is silenced where it stands: `x-lint-allow: [RULE]`.

use crate::agent::Agent;
use crate::agent::imports::ImportPath;
use crate::agent::layers::{Layers, Places, Variables};
use crate::agent_test;
use crate::diag::{Diagnostic, Report};
use crate::durable;
use crate::process::Launch;
use crate::tool::{Syntax, Tool};
use crate::yaml::{Document, Node};
use std::path::{Path, PathBuf};

mod code;
mod context;
mod definition;
mod hooks;
mod llm;
mod options;
mod programs;
mod shell;
mod table;
mod view;

/// The key under which an author lists the rules that do not hold for a tool, a source or a whole file.
const ALLOW: &str = "x-lint-allow";

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Worth knowing.
    Info,
    /// Probably wrong.
    Warning,
    /// The agent does not load.
    Error,
}

impl Level {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The word for so many of it.
    pub fn counted(self, count: usize) -> String {
        let ending = if count == 1 || self == Self::Info { "" } else { "s" };
        format!("{}{ending}", self.name())
    }
}

/// The names of the rules, in the order of the reference.
pub const RULES: [&str; 30] = [
    "load",
    "outdated",
    "option-injection",
    "program-text",
    "raw",
    "program-not-found",
    "program-not-executable",
    "relative-program",
    "not-posix-sh",
    "hidden-failure",
    "could-be-exec",
    "not-expanded",
    "shell-arguments",
    "environment-placeholder",
    "engine-variable",
    "not-filled",
    "undescribed-tool",
    "undescribed-parameter",
    "shadows-builtin",
    "no-key",
    "timeout",
    "llm-key",
    "no-journal",
    "no-system-prompt",
    "duplicate-source",
    "volatile-source",
    "shared-artifacts",
    "missing-file",
    "workspace-file",
    "unknown-rule",
];

/// Something that is probably wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The name of the rule, one of [`RULES`].
    pub rule: &'static str,
    /// How much it matters.
    pub level: Level,
    /// Where it stands, why it is wrong, and what to write instead.
    pub diagnostic: Diagnostic,
}

impl Finding {
    /// It as a person reads it.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let heading = format!("{}[{}]", self.level.name(), self.rule);
        let _ = self.diagnostic.write(&mut out, &heading);
        out
    }
}

/// Everything that is wrong or doubtful in the agent directory `home`, which may import from what is `allowed`; `launch`
/// is what a tool would find around it.
pub fn lint(home: &Path, allowed: &ImportPath, launch: &Launch) -> Vec<Finding> {
    let loaded = Agent::load(home, None, allowed);
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let mut findings: Vec<Finding> = match loaded {
        Ok(agent) => agent.warnings.iter().map(|warning| outdated(&home, warning)).collect(),
        Err(report) => report.diagnostics.into_iter().map(of_load).collect(),
    };
    findings.extend(environment(&home).map(of_load));
    let tests = agent_test::load(&home).err().unwrap_or_default();
    findings.extend(tests.diagnostics.into_iter().map(of_load));
    let main = document(&home, "agent.yaml").or_else(|| document(&home, "config.yaml"));
    let mut sink = Sink { findings, allowed: Vec::new() };
    if let Some((main, node)) = main.as_ref().and_then(|main| Some((main, main.root.get("llm")?))) {
        sink.within(main, &main.root, |sink| {
            llm::check(main, node, &home, launch, sink);
        });
    }
    for doc in main.iter().chain(&imported(&home, main.as_ref())) {
        sink.within(doc, &doc.root, |sink| {
            for item in doc.root.get("tools").map(Node::items).unwrap_or_default() {
                sink.within(doc, item, |sink| tool(doc, item, &home, launch, sink));
            }
        });
    }
    if let Some(doc) = document(&home, "context.yaml") {
        let prompt = main.as_ref().and_then(|main| main.root.get("system_prompt")?.scalar());
        sink.within(&doc, &doc.root, |sink| {
            context::check(&doc, &home, prompt.unwrap_or("system_prompt.md"), launch, sink);
        });
    }
    if let Some(doc) = document(&home, "hooks.yaml") {
        let root = doc.root.get("lifecycle_hooks").unwrap_or(&doc.root);
        sink.within(&doc, &doc.root, |sink| hooks::check(&doc, root, &home, launch, sink));
    } else if let Some((main, root)) =
        main.as_ref().and_then(|main| Some((main, main.root.get("lifecycle_hooks")?)))
    {
        sink.within(main, &main.root, |sink| hooks::check(main, root, &home, launch, sink));
    }
    let mut findings = without_echoes(sink.findings);
    findings.sort_by(|a, b| {
        let place = |f: &Finding| {
            (f.rule != "load", f.diagnostic.file.clone(), f.diagnostic.line, f.diagnostic.column)
        };
        place(a).cmp(&place(b))
    });
    findings.dedup();
    findings
}

/// What keeps the agent from loading.
fn of_load(diagnostic: Diagnostic) -> Finding {
    Finding { rule: "load", level: Level::Error, diagnostic }
}

/// What is wrong with the agent's own `.env`, which is read when a run begins.
fn environment(home: &Path) -> impl Iterator<Item = Diagnostic> {
    let places = Places { workspace: None, agent: home, current: home };
    let found = Layers::read(&places, Variables::new()).err().unwrap_or_default().diagnostics;
    let own = home.join(".env").display().to_string();
    // Its mistakes show no line, and have their place behind the name.
    found.into_iter().filter(move |diagnostic| diagnostic.file.starts_with(&own))
}

/// Without what is doubtful only because something else does not load: on the same line, or of the same file as a whole.
fn without_echoes(findings: Vec<Finding>) -> Vec<Finding> {
    let of_file = ["no-journal", "no-system-prompt"];
    let wrong: Vec<(String, usize)> = findings
        .iter()
        .filter(|finding| finding.rule == "load")
        .map(|finding| (finding.diagnostic.file.clone(), finding.diagnostic.line))
        .collect();
    let is_echo = |finding: &Finding| {
        let place = &finding.diagnostic;
        wrong.iter().any(|(file, line)| {
            *file == place.file && (*line == place.line || of_file.contains(&finding.rule))
        })
    };
    findings.into_iter().filter(|it| it.rule == "load" || !is_echo(it)).collect()
}

/// What the loader warns of: names and places that are old, or that do not count.
fn outdated(home: &Path, warning: &str) -> Finding {
    let text = ["[DEPRECATION WARNING] ", "Warning: "]
        .iter()
        .find_map(|prefix| warning.strip_prefix(prefix))
        .unwrap_or(warning);
    let help = "`delta tool migrate` shows what to change".to_owned();
    let diagnostic = Diagnostic::of_file(home.display().to_string(), text, Some(help));
    Finding { rule: "outdated", level: Level::Warning, diagnostic }
}

/// The files that the main one imports, and those that these import; each once.
fn imported(home: &Path, main: Option<&Document>) -> Vec<Document> {
    let mut found: Vec<Document> = Vec::new();
    let mut seen = Vec::new();
    let named = |doc: &Document, directory: &Path| -> Vec<PathBuf> {
        let imports = doc.root.get("imports").map(Node::items).unwrap_or_default();
        imports.iter().filter_map(|item| Some(directory.join(item.scalar()?))).collect()
    };
    let mut queue = main.map(|main| named(main, home)).unwrap_or_default();
    while let Some(path) = queue.pop() {
        let Ok(path) = path.canonicalize() else { continue };
        if seen.contains(&path) {
            continue;
        }
        let directory = path.parent().unwrap_or(home).to_owned();
        if let Some(doc) = document(Path::new(""), &path) {
            queue.extend(named(&doc, &directory));
            found.push(doc);
        }
        seen.push(path);
    }
    found
}

/// One file of the agent, when it is there and is YAML; what is wrong with it otherwise, the loader has said.
fn document(home: &Path, name: impl AsRef<Path>) -> Option<Document> {
    let path = home.join(name);
    let text = durable::read_regular_text(&path).ok()?;
    Document::parse(path.display().to_string(), text).ok()
}

fn tool(doc: &Document, item: &Node, home: &Path, launch: &Launch, sink: &mut Sink) {
    let tool = Tool::read(doc, item);
    let mut report = Report::default();
    doc.finish(&mut report);
    // Of a tool that does not load, the loader has said what is wrong.
    let Some(tool) = tool.filter(|_| report.is_empty()) else { return };
    let Some(template) = item.get(tool.syntax.key()) else { return };
    let (commands, outline) = match tool.syntax {
        Syntax::Shell => match crate::tool::quoting::outline(&tool.template) {
            Ok(outline) => (view::of_outline(&outline, &tool), Some(outline)),
            Err(refusal) => {
                let help = "rewrite it, or name the shell that it is for: `command: [bash, -c, SCRIPT, --]`";
                let at =
                    doc.at_fragment(template, &refusal.fragment, refusal.message, help.to_owned());
                sink.add("not-posix-sh", Level::Warning, at);
                (Vec::new(), None)
            }
        },
        Syntax::Exec | Syntax::Command => (vec![view::of_tool(&tool)], None),
    };
    let subject = Subject { doc, item, template, tool: &tool, commands, outline, home, launch };
    definition::check(&subject, sink);
    programs::check(&subject, sink);
    options::check(&subject, sink);
    code::check(&subject, sink);
    shell::check(&subject, sink);
}

/// A tool, where it stands, and the commands that it runs.
struct Subject<'a> {
    doc: &'a Document,
    item: &'a Node,
    /// The value of `exec:`, `shell:` or `command:`.
    template: &'a Node,
    tool: &'a Tool,
    commands: Vec<view::Command>,
    /// Of `shell:` only.
    outline: Option<crate::tool::quoting::Outline>,
    home: &'a Path,
    launch: &'a Launch,
}

impl Subject<'_> {
    /// A diagnostic at the first `fragment` of the template.
    fn at(
        &self,
        fragment: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Diagnostic {
        self.doc.at_fragment(self.template, fragment, message, help.into())
    }

    /// A diagnostic at the value of `key`, or at the tool's name.
    fn at_key(&self, key: &str, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        let node = self.item.get(key).or_else(|| self.item.get("name")).unwrap_or(self.item);
        self.doc.at(node, message, help.into())
    }
}

/// Where findings go.
struct Sink {
    findings: Vec<Finding>,
    /// The rules that do not hold here.
    allowed: Vec<String>,
}

impl Sink {
    fn add(&mut self, rule: &'static str, level: Level, diagnostic: Diagnostic) {
        if !self.allowed.iter().any(|allowed| allowed == rule) {
            self.findings.push(Finding { rule, level, diagnostic });
        }
    }

    /// Runs `check` without the rules that `node` allows to break.
    fn within(&mut self, doc: &Document, node: &Node, check: impl FnOnce(&mut Self)) {
        let before = self.allowed.len();
        if let Some(list) = node.get(ALLOW) {
            for item in list.items().iter().chain(list.scalar().map(|_| list)) {
                let name = item.scalar().unwrap_or_default();
                match RULES.contains(&name) && !["load", "outdated"].contains(&name) {
                    true => self.allowed.push(name.to_owned()),
                    false => {
                        let help = crate::text::did_you_mean(name, RULES);
                        let message = format!("`{name}` is not a rule of lint");
                        self.add("unknown-rule", Level::Warning, doc.at(item, message, help));
                    }
                }
            }
        }
        check(self);
        self.allowed.truncate(before);
    }
}

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn every_rule_is_documented() {
        let reference = include_str!("../../docs/reference/lint.md");
        let headings: Vec<&str> =
            reference.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        assert_eq!(headings, RULES);
    }
}
