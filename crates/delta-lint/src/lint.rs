//! Finds errors and likely mistakes in an agent directory before a run spends a token on it.
//!
//! Every rule has a stable name, a level, and an example in docs/reference/lint.md. Nothing is executed or written. The
//! author silences an intended finding where it occurs: `x-lint-allow: [RULE]`.

use crate::agent_test;
use command_view::CommandView;
use delta_agent::agent::Agent;
use delta_agent::agent::env_layers::{DotenvLocations, EnvLayers, EnvMap};
use delta_agent::agent::tool_imports::ImportPath;
use delta_agent::tool::{ApprovalPolicy, Tool, ToolSyntax};
use delta_base::{durable, suggest};
use delta_llm::llm::ModelSelection;
use delta_process::LaunchContext;
use delta_shell::ShellOutline;
use delta_words::WireForm;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::{YamlDocument, YamlNode};
pub use llm_settings::{find_misspelled_llm_keys, intended_key};
use program_location::KnownPrograms;
use std::fs;
use std::path::{Path, PathBuf};

mod approval_rules;
mod command_options;
mod command_view;
mod context_sources;
mod declared_calls;
mod env_file;
mod hook_commands;
mod llm_settings;
mod mcp_servers;
mod option_injection;
mod program_location;
mod program_table;
mod program_text;
mod proposed_line;
mod provider_keys;
mod refused_requests;
mod sandbox_use;
mod shell_script;
mod tool_definition;
mod unset_variable;

/// The key that lists the rules to ignore in a tool, a source, a hook or a whole file.
const ALLOW_KEY: &str = "x-lint-allow";
/// The rules that `x-lint-allow` cannot silence.
const MANDATORY_RULES: [&str; 2] = ["load", "outdated"];
/// The rules about a whole file, which do not apply if a part of the file does not load.
const FILE_RULES: [&str; 2] = ["no-journal", "no-system-prompt"];

/// The main file of an agent, and its older name.
pub const MAIN_FILES: [&str; 2] = ["agent.yaml", "config.yaml"];
/// Where an agent directory has the agents that its tools start.
const AGENTS_DIR: &str = "agents";

/// The severity of a finding; `Info` is the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LintLevel {
    /// Good to know.
    Info,
    /// Probably wrong.
    Warning,
    /// The agent does not load.
    Error,
}

impl LintLevel {
    /// The name that `--level` and the JSON output use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The name after a count: `1 warning`, `2 warnings`, `2 info`.
    pub fn name_for_count(self, count: usize) -> String {
        let ending = if count == 1 || self == Self::Info { "" } else { "s" };
        format!("{}{ending}", self.name())
    }
}

/// The names of the rules, in the order of docs/reference/lint.md.
pub const LINT_RULES: [&str; 54] = [
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
    "lost-backslash",
    "shell-arguments",
    "environment-placeholder",
    "unset-variable",
    "engine-variable",
    "not-filled",
    "undescribed-tool",
    "undescribed-parameter",
    "shadows-builtin",
    "no-key",
    "lost-session",
    "no-sandbox",
    "missing-hidden",
    "loopback-port",
    "timeout",
    "parallel",
    "json-output",
    "impossible-object",
    "optional-finish",
    "unused-approval",
    "loose-approval",
    "llm-key",
    "refused",
    "endpoint",
    "env-file",
    "no-journal",
    "no-system-prompt",
    "duplicate-source",
    "volatile-source",
    "shared-prefix",
    "thinking-prefix",
    "shared-artifacts",
    "missing-file",
    "workspace-file",
    "unmatched-pattern",
    "agents-md-untrusted",
    "mcp-hidden-text",
    "mcp-unpinned",
    "mcp-many",
    "mcp-shadow",
    "mcp-schema",
    "unknown-rule",
];

/// An error or a likely mistake in an agent directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintFinding {
    /// The name of the rule, one of [`LINT_RULES`].
    pub rule: &'static str,
    /// The severity.
    pub level: LintLevel,
    /// The location, the problem, and what to write instead.
    pub diagnostic: Diagnostic,
}

impl LintFinding {
    /// Renders the finding as text for a terminal, without a final newline.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let heading = format!("{}[{}]", self.level.name(), self.rule);
        let _ = self.diagnostic.write(&mut out, &heading);
        out
    }
}

/// Finds the errors and likely mistakes in the agent directory `home`, which may import files from `allowed`. Programs are
/// looked up in the environment and the directory of `launch`.
pub fn lint_agent(home: &Path, allowed: &ImportPath, launch: &LaunchContext) -> Vec<LintFinding> {
    let loaded = Agent::load(home, &ModelSelection::without_llm(), allowed);
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let unattended_tool = loaded.as_ref().ok().and_then(find_unattended_tool);
    let mut agent = None;
    let mut findings: Vec<LintFinding> = match loaded {
        Ok(loaded) => {
            let file = home.display().to_string();
            let warnings = loaded.warnings.iter();
            let warnings =
                warnings.map(|warning| Diagnostic::for_file(file.as_str(), warning.as_str(), None));
            let findings = warnings.chain(loaded.outdated.iter().cloned());
            let findings = findings.map(outdated_finding).collect();
            agent = Some(loaded);
            findings
        }
        Err(report) => report.diagnostics.into_iter().map(load_finding).collect(),
    };
    findings.extend(find_dotenv_errors(&home).map(load_finding));
    let tests = agent_test::load_tests(&home).err().unwrap_or_default();
    findings.extend(tests.diagnostics.into_iter().map(load_finding));
    let known_programs = KnownPrograms::default();
    let main = MAIN_FILES.iter().find_map(|name| load_document(&home, name));
    let mut linter = Linter {
        home: &home,
        launch,
        known_programs,
        findings,
        allowed_rules: Vec::new(),
        expects_sandbox: main.as_ref().is_some_and(|main| !sandbox_use::has_default_sandbox(main)),
    };
    if let Some(main) = &main {
        linter.lint_llm(main);
        linter.with_allowances(main, &main.root, |linter| {
            check_main_file(main, agent.as_ref(), linter);
            sandbox_use::check_hidden_entries(main, linter);
        });
        for doc in std::iter::once(main).chain(&load_imported_documents(&home, main)) {
            linter.lint_tools(doc);
            if let Some(agent) = &agent {
                mcp_servers::check_mcp_servers(doc, agent, &mut linter);
            }
        }
    }
    if let Some(doc) = load_document(&home, "context.yaml") {
        let prompt = main.as_ref().and_then(|main| main.root.get("system_prompt")?.scalar());
        let llm = main.as_ref().and_then(|main| main.root.get("llm"));
        let provider = llm.and_then(|llm| llm.get("provider")?.scalar());
        linter.with_allowances(&doc, &doc.root, |linter| {
            context_sources::check_context(&doc, prompt.unwrap_or("system_prompt.md"), linter);
            if provider == Some(WireForm::Anthropic.name()) {
                context_sources::check_thinking_prefix(&doc, linter);
            }
            if let Some(tool) = &unattended_tool {
                context_sources::check_agents_md(&doc, tool, linter);
            }
        });
    }
    linter.lint_hooks(main.as_ref());
    let mut findings = drop_echoes(linter.findings);
    findings.sort_by_cached_key(|finding| {
        let location = &finding.diagnostic;
        (finding.rule != "load", location.file.clone(), location.line, location.column)
    });
    findings.dedup();
    findings
}

/// Checks what agent.yaml says next to its tools.
fn check_main_file(main: &YamlDocument, agent: Option<&Agent>, linter: &mut Linter<'_>) {
    env_file::check_env_file(main, linter);
    approval_rules::check_default_approval(main, linter);
    declared_calls::check_finish_schema(main, linter);
    if let Some(agent) = agent {
        refused_requests::check_finish(main, agent, linter);
    }
}

/// The agent directory `home`, and those in `agents/` of each, in the order of their paths: its sub-agents.
pub fn find_agents_below(home: &Path) -> Vec<PathBuf> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let mut agents = vec![home.clone()];
    let mut queue = vec![home];
    while let Some(parent) = queue.pop() {
        let entries = fs::read_dir(parent.join(AGENTS_DIR)).into_iter().flatten().flatten();
        for entry in entries {
            let has_main_file = MAIN_FILES.iter().any(|name| entry.path().join(name).is_file());
            if let Ok(dir) = entry.path().canonicalize()
                && has_main_file
                && !agents.contains(&dir)
            {
                agents.push(dir.clone());
                queue.push(dir);
            }
        }
    }
    agents[1..].sort();
    agents
}

/// The missing programs of the tools of `agent`, as [`lint_agent`] finds them, each once.
pub fn find_missing_programs(
    agent: &Agent,
    allowed: &ImportPath,
    launch: &LaunchContext,
) -> Vec<Diagnostic> {
    let mut tools = agent.tools.iter().filter(|tool| !tool.runs_delta);
    if !tools.any(|tool| program_location::may_lack_program(tool, launch, &agent.home)) {
        return Vec::new();
    }
    let mut missing: Vec<Diagnostic> = Vec::new();
    for LintFinding { rule, diagnostic, .. } in lint_agent(&agent.home, allowed, launch) {
        // The engine reports hooks that cannot start, with what follows from that.
        let is_tool =
            !["hooks.yaml", "context.yaml"].iter().any(|name| diagnostic.file.ends_with(name));
        let is_new = !missing.iter().any(|other| other.message == diagnostic.message);
        if rule == "program-not-found" && is_tool && is_new {
            missing.push(diagnostic);
        }
    }
    missing
}

/// The name of the first tool that starts without an approval.
fn find_unattended_tool(agent: &Agent) -> Option<String> {
    let mut tools = agent.tools.iter();
    let tool = tools.find(|tool| {
        let is_ours = tool.runs_delta && tool.mcp.is_none();
        !is_ours && matches!(tool.approve, None | Some(ApprovalPolicy::Never))
    })?;
    Some(tool.name.clone())
}

/// The finding for an error of the loader.
fn load_finding(diagnostic: Diagnostic) -> LintFinding {
    LintFinding { rule: "load", level: LintLevel::Error, diagnostic }
}

/// The errors in the `.env` file of the agent directory, which a run reads but [`Agent::load`] does not.
fn find_dotenv_errors(home: &Path) -> impl Iterator<Item = Diagnostic> {
    let locations =
        DotenvLocations { workspace: None, agent_home: home, current_dir: home, named_files: &[] };
    let read = EnvLayers::read(&locations, EnvMap::new(), &|_, _| false);
    let report = read.err().unwrap_or_default();
    let path = home.join(".env").display().to_string();
    // `file` may be the path with a line number after it: such diagnostics never show the line, which may hold a secret.
    report.diagnostics.into_iter().filter(move |diagnostic| diagnostic.file.starts_with(&path))
}

/// Drops the findings that only follow from a load error.
fn drop_echoes(findings: Vec<LintFinding>) -> Vec<LintFinding> {
    let errors: Vec<Diagnostic> = findings
        .iter()
        .filter(|finding| finding.rule == "load")
        .map(|finding| finding.diagnostic.clone())
        .collect();
    findings
        .into_iter()
        .filter(|finding| {
            finding.rule == "load" || !errors.iter().any(|error| is_echo(finding, error))
        })
        .collect()
}

/// Whether the finding is on the line of a load error, or about the whole file.
fn is_echo(finding: &LintFinding, error: &Diagnostic) -> bool {
    let location = &finding.diagnostic;
    location.file == error.file
        && (location.line == error.line || FILE_RULES.contains(&finding.rule))
}

/// The finding for a warning of the loader: an outdated name or location, or a file that another one overrides.
fn outdated_finding(warning: Diagnostic) -> LintFinding {
    let text = ["[DEPRECATION WARNING] ", "Warning: "]
        .iter()
        .find_map(|prefix| warning.message.strip_prefix(prefix))
        .unwrap_or(&warning.message);
    let message = text.to_owned();
    let help =
        warning.help.or_else(|| Some("`delta tool migrate` shows what to change".to_owned()));
    let diagnostic = Diagnostic { message, help, ..warning };
    LintFinding { rule: "outdated", level: LintLevel::Warning, diagnostic }
}

/// The files that `main` imports, directly or through other imports, each once.
fn load_imported_documents(home: &Path, main: &YamlDocument) -> Vec<YamlDocument> {
    let mut documents: Vec<YamlDocument> = Vec::new();
    let mut visited = Vec::new();
    let mut queue = import_paths(main, home);
    while let Some(path) = queue.pop() {
        let Ok(path) = path.canonicalize() else { continue };
        if visited.contains(&path) {
            continue;
        }
        let directory = path.parent().unwrap_or(home).to_owned();
        if let Some(doc) = load_document(Path::new(""), &path) {
            queue.extend(import_paths(&doc, &directory));
            documents.push(doc);
        }
        visited.push(path);
    }
    documents
}

/// The paths under `imports:`, which are relative to `directory`.
fn import_paths(doc: &YamlDocument, directory: &Path) -> Vec<PathBuf> {
    let imports = doc.root.get("imports").map(YamlNode::items).unwrap_or_default();
    imports.iter().filter_map(|item| Some(directory.join(item.scalar()?))).collect()
}

/// A file of the agent, if it exists and is YAML; the loader reports why it is not.
fn load_document(home: &Path, name: impl AsRef<Path>) -> Option<YamlDocument> {
    let path = home.join(name);
    let text = durable::read_regular_text(&path).ok()?;
    YamlDocument::parse(path.display().to_string(), text).ok()
}

/// The state of a lint: its findings so far, and what every check needs.
struct Linter<'a> {
    /// The agent directory, canonical.
    home: &'a Path,
    launch: &'a LaunchContext,
    known_programs: KnownPrograms,
    findings: Vec<LintFinding>,
    /// The rules that the nodes around the current one allow to break.
    allowed_rules: Vec<String>,
    /// Whether no tool has been reported yet that has no `sandbox`, and the agent has none for all.
    expects_sandbox: bool,
}

impl Linter<'_> {
    /// Records a finding, unless its rule is allowed to be broken here.
    fn report(&mut self, rule: &'static str, level: LintLevel, diagnostic: Diagnostic) {
        if !self.allowed_rules.iter().any(|allowed| allowed == rule) {
            self.findings.push(LintFinding { rule, level, diagnostic });
        }
    }

    fn warn(&mut self, rule: &'static str, diagnostic: Diagnostic) {
        self.report(rule, LintLevel::Warning, diagnostic);
    }

    /// Runs `check` without the rules that `x-lint-allow` lists in `node`.
    fn with_allowances(
        &mut self,
        doc: &YamlDocument,
        node: &YamlNode,
        check: impl FnOnce(&mut Self),
    ) {
        let outer_count = self.allowed_rules.len();
        if let Some(list) = node.get(ALLOW_KEY) {
            for item in list.items().iter().chain(list.scalar().map(|_| list)) {
                self.allow_rule(doc, item);
            }
        }
        check(self);
        self.allowed_rules.truncate(outer_count);
    }

    fn allow_rule(&mut self, doc: &YamlDocument, item: &YamlNode) {
        let name = item.scalar().unwrap_or_default();
        if LINT_RULES.contains(&name) && !MANDATORY_RULES.contains(&name) {
            self.allowed_rules.push(name.to_owned());
            return;
        }
        let (message, help) = if MANDATORY_RULES.contains(&name) {
            (format!("the rule `{name}` cannot be silenced"), "fix what it reports".to_owned())
        } else {
            (format!("unknown rule `{name}`"), suggest::did_you_mean(name, LINT_RULES))
        };
        self.warn("unknown-rule", doc.diagnostic_at(item, message, help));
    }

    fn lint_llm(&mut self, main: &YamlDocument) {
        if let Some(llm) = main.root.get("llm") {
            self.with_allowances(main, &main.root, |linter| {
                llm_settings::check_llm(main, llm, linter);
                let others = llm.get("fallback").map(YamlNode::items).unwrap_or_default();
                for settings in [llm].into_iter().chain(others) {
                    refused_requests::check_settings(main, settings, linter);
                }
            });
        }
    }

    fn lint_tools(&mut self, doc: &YamlDocument) {
        self.with_allowances(doc, &doc.root, |linter| {
            for item in doc.root.get("tools").map(YamlNode::items).unwrap_or_default() {
                linter.with_allowances(doc, item, |linter| linter.lint_tool(doc, item));
            }
        });
    }

    fn lint_tool(&mut self, doc: &YamlDocument, item: &YamlNode) {
        let tool = Tool::read(doc, item);
        let mut report = DiagnosticReport::default();
        doc.drain_diagnostics(&mut report);
        // The loader has reported why a tool does not load.
        let Some(tool) = tool.filter(|_| report.is_empty()) else { return };
        let Some(template) = item.get(tool.syntax.key()) else { return };
        let mut subject = ToolSubject {
            doc,
            item,
            template,
            tool: &tool,
            commands: Vec::new(),
            expanded_commands: Vec::new(),
            outline: None,
        };
        match tool.syntax {
            ToolSyntax::Shell => match ShellOutline::from_template(&tool.template) {
                Ok(outline) => {
                    subject.commands = command_view::outline_commands(&outline, &tool);
                    if !outline.assignments.is_empty() {
                        subject.expanded_commands =
                            command_view::expanded_commands(&outline, &tool);
                    }
                    subject.outline = Some(outline);
                }
                Err(refusal) => {
                    let help = "correct it for `sh`, or name the shell that can parse it: `command: [bash, -c, SCRIPT, --]`";
                    let diagnostic =
                        subject.diagnostic_at(&refusal.fragment, refusal.message, help);
                    self.warn("not-posix-sh", diagnostic);
                }
            },
            ToolSyntax::Exec | ToolSyntax::Command => {
                subject.commands.push(command_view::argv_command(&tool));
            }
        }
        tool_definition::check_definition(&subject, self);
        declared_calls::check_declared_calls(&subject, self);
        sandbox_use::check_sandbox_use(&subject, self);
        program_location::check_programs(&subject, self);
        option_injection::check_option_injection(&subject, self);
        program_text::check_program_text(&subject, self);
        command_options::check_started_programs(&subject, self);
        shell_script::check_script(&subject, self);
        unset_variable::check_variables(&subject, self);
    }

    /// Checks hooks.yaml, or `lifecycle_hooks` of the main file if hooks.yaml does not exist.
    fn lint_hooks(&mut self, main: Option<&YamlDocument>) {
        if let Some(doc) = load_document(self.home, "hooks.yaml") {
            let hooks = doc.root.get("lifecycle_hooks").unwrap_or(&doc.root);
            self.with_allowances(&doc, &doc.root, |linter| {
                hook_commands::check_hooks(&doc, hooks, linter);
            });
        } else if let Some(main) = main
            && let Some(hooks) = main.root.get("lifecycle_hooks")
        {
            self.with_allowances(main, &main.root, |linter| {
                hook_commands::check_hooks(main, hooks, linter);
            });
        }
    }
}

/// A tool, its YAML, and the commands that it runs.
struct ToolSubject<'a> {
    doc: &'a YamlDocument,
    item: &'a YamlNode,
    /// The value of `exec:`, `shell:` or `command:`.
    template: &'a YamlNode,
    tool: &'a Tool,
    /// Empty for a script that cannot be parsed.
    commands: Vec<CommandView>,
    /// The same commands with the values of variables; empty for a script without assignments.
    expanded_commands: Vec<CommandView>,
    /// The parsed script of `shell:`.
    outline: Option<ShellOutline>,
}

impl ToolSubject<'_> {
    /// A diagnostic at the first `fragment` of the template.
    fn diagnostic_at(
        &self,
        fragment: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Diagnostic {
        self.doc.diagnostic_at_fragment(self.template, fragment, message, help.into())
    }

    /// A diagnostic at the value of `key`, or at the tool's name.
    fn diagnostic_at_key(
        &self,
        key: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Diagnostic {
        let node = self.item.get(key).or_else(|| self.item.get("name")).unwrap_or(self.item);
        self.doc.diagnostic_at(node, message, help.into())
    }

    /// The entries of `parameters:`.
    fn parameter_items(&self) -> &[YamlNode] {
        self.item.get("parameters").map(YamlNode::items).unwrap_or_default()
    }

    /// The commands as they run, as far as that is known: with the values that the script assigns to variables.
    fn commands_with_values(&self) -> &[CommandView] {
        if self.expanded_commands.is_empty() { &self.commands } else { &self.expanded_commands }
    }

    fn has_shell(&self) -> bool {
        self.tool.syntax == ToolSyntax::Shell
    }
}

#[cfg(test)]
mod tests {
    use super::LINT_RULES;

    #[test]
    fn every_rule_is_documented() {
        let reference = include_str!("../../../docs/reference/lint.md");
        let headings: Vec<&str> =
            reference.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        assert_eq!(headings, LINT_RULES);
    }
}
