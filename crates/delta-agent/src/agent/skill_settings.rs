//! `skills:` in agent.yaml: the directories of skills, the tool that loads one, and what a run keeps of them.

use super::tool_imports::CLOSED_HELP;
use super::{Agent, AgentLoader};
use crate::skill::{self, SKILL_TOOL, Skill};
use crate::tool::{self, Tool};
use delta_base::durable::read_regular_text as read_text;
use delta_base::engine_variables::{EngineVars, find_unknown_variable, unknown_variable_help};
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::{MappingFields, YamlDocument, YamlNode};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// The name of the copy of the skills that an LLM was offered: names, descriptions and places.
const SKILLS_COPY: &str = "skills.json";
const HOME_VARIABLE: &str = "${AGENT_HOME}";
const WORKSPACE_VARIABLE: &str = "${CWD}";
/// A skill is read whole, up to this size.
const MAX_SHOWN_BYTES: u32 = 65_536;

/// The skills of the agent directory, and where others are.
#[derive(Debug, Default)]
pub(super) struct SkillSettings {
    pub(super) skills: Vec<Skill>,
    /// The directories in the workspace, as agent.yaml has them.
    pub(super) project_roots: Vec<String>,
}

impl AgentLoader<'_> {
    /// Reads `skills:` and every skill in the agent directory; `tools` are the agent's own.
    pub(super) fn read_skills(
        &mut self,
        doc: &YamlDocument,
        fields: MappingFields<'_>,
        tools: &[Tool],
    ) -> SkillSettings {
        let Some(node) = fields.non_null("skills") else { return SkillSettings::default() };
        if tools.iter().any(|tool| tool.name == SKILL_TOOL) {
            let help = format!("rename the tool `{SKILL_TOOL}`; `skills` adds one of that name");
            doc.report(node, format!("two tools are named `{SKILL_TOOL}`"), help);
        }
        if self.is_copy {
            return SkillSettings { skills: self.read_copied_skills(), project_roots: Vec::new() };
        }
        let mut settings = SkillSettings::default();
        for (item, root) in node.items().iter().zip(fields.texts("skills")) {
            if let Some(name) = find_unknown_variable(&root) {
                let help = unknown_variable_help(name, "`skills`");
                doc.report(item, format!("`${{{name}}}` is not an engine variable"), help);
            } else if is_workspace_root(&root) {
                settings.project_roots.push(root);
            } else {
                settings.skills.append(&mut self.read_skill_root(doc, item, &root));
            }
        }
        let mut names = BTreeSet::new();
        for skill in &settings.skills {
            if !names.insert(&skill.name) {
                let message = format!("two skills are named `{}`", skill.name);
                doc.report(node, message, "rename one of them, and its directory");
            }
        }
        settings
    }

    fn read_skill_root(&mut self, doc: &YamlDocument, item: &YamlNode, root: &str) -> Vec<Skill> {
        let relative = root.strip_prefix(HOME_VARIABLE).map(|rest| rest.trim_start_matches('/'));
        let relative = relative.unwrap_or(root);
        let dir = self.home.join(relative);
        let problem = match dir.canonicalize() {
            _ if root.contains("${RUN_DIR}") || root.contains(WORKSPACE_VARIABLE) => {
                "skills are in the agent directory, or below `${CWD}`".to_owned()
            }
            Err(error) => format!("could not open {}: {error}", dir.display()),
            Ok(path) if !path.is_dir() => format!("{} is not a directory", dir.display()),
            Ok(path) if self.is_outside(&path) => {
                format!("{} is outside of the agent directory", path.display())
            }
            Ok(_) => {
                let root = if Path::new(relative).is_absolute() {
                    relative.to_owned()
                } else {
                    format!("{HOME_VARIABLE}/{relative}").trim_end_matches('/').to_owned()
                };
                let mut report = DiagnosticReport::default();
                let skills = skill::read_author_skills(&dir, &root, &mut report);
                self.report.diagnostics.append(&mut report.diagnostics);
                match skills {
                    Ok(skills) => match self.find_outer(&dir, &skills) {
                        None => return skills,
                        Some(path) => {
                            format!("{} is outside of the agent directory", path.display())
                        }
                    },
                    Err(error) => format!("could not read {}: {error}", dir.display()),
                }
            }
        };
        let help = if self.import_path.is_closed() {
            CLOSED_HELP
        } else {
            "name a directory of skills in the agent directory, such as `skills`, or one that DELTA_IMPORT_PATH allows"
        };
        doc.report(item, problem, help);
        Vec::new()
    }

    /// Whether what is at `path`, which is canonical, is neither the author's nor allowed by the operator.
    fn is_outside(&self, path: &Path) -> bool {
        !path.starts_with(self.home) && !self.import_path.allows(path)
    }

    /// Where one of the skills in `dir` is, if a symlink leads out to it.
    fn find_outer(&self, dir: &Path, skills: &[Skill]) -> Option<PathBuf> {
        let mut paths = skills.iter().flat_map(|skill| dir.join(&skill.name).canonicalize());
        paths.find(|path| self.is_outside(path))
    }

    /// The skills that the run was made with, and whose files may have changed since.
    fn read_copied_skills(&mut self) -> Vec<Skill> {
        let path = self.home.join(SKILLS_COPY);
        let Ok(text) = read_text(&path) else { return Vec::new() };
        match serde_json::from_str(&text) {
            Ok(skills) => skills,
            Err(error) => {
                let message = format!("could not parse the skills: {error}");
                let diagnostic = Diagnostic::for_file(path.display().to_string(), message, None);
                self.report.push(diagnostic);
                Vec::new()
            }
        }
    }
}

/// Whether a directory is below the workspace, whatever the workspace is.
fn is_workspace_root(root: &str) -> bool {
    match root.strip_prefix(WORKSPACE_VARIABLE) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('/').is_some_and(|rest| {
            Path::new(rest).components().all(|part| matches!(part, Component::Normal(_)))
        }),
        None => false,
    }
}

impl Agent {
    /// The skills in the workspace `cwd` that agent.yaml asks for, and warnings about them. They are offered only after
    /// [`Agent::add_skills`].
    pub fn read_project_skills(&self, cwd: &Path) -> (Vec<Skill>, Vec<String>) {
        let mut skills = Vec::new();
        let mut warnings = Vec::new();
        for root in &self.project_skill_roots {
            let dir = expand_root(root, &self.home, cwd);
            let (mut more, mut problems) = skill::read_project_skills(&dir, root, cwd);
            skills.append(&mut more);
            warnings.append(&mut problems);
        }
        (skills, warnings)
    }

    /// Offers `skills` to the LLM, after the agent's. Returns a warning for each whose name is taken.
    pub fn add_skills(&mut self, skills: Vec<Skill>) -> Vec<String> {
        let mut warnings = Vec::new();
        for skill in skills {
            match self.skills.iter().find(|other| other.name == skill.name) {
                None => self.skills.push(skill),
                Some(other) => warnings.push(format!(
                    "Warning: the skill `{}` in {} is not offered: {} has one of that name",
                    skill.name, skill.root, other.root
                )),
            }
        }
        self.offer_skills();
        warnings
    }

    /// The directories of the skills that are offered, in order. `cwd` is the workspace.
    pub fn skill_roots(&self, cwd: &Path) -> Vec<PathBuf> {
        unique_roots(&self.skills).map(|root| expand_root(root, &self.home, cwd)).collect()
    }

    /// The agent, whose skills are in its context, its tools and the files that a run keeps.
    pub(super) fn with_offered_skills(mut self) -> Self {
        self.offer_skills();
        self
    }

    fn offer_skills(&mut self) {
        self.context.set_skills(&self.skills);
        self.tools.retain(|tool| !(tool.runs_delta && tool.name == SKILL_TOOL));
        self.source_files.retain(|(name, _)| *name != SKILLS_COPY);
        if self.skills.is_empty() {
            return;
        }
        let file = self.home.join(super::MAIN_FILE).display().to_string();
        // A tool like any other: recorded, limited, approved, replayed and tested in the same way.
        let text = json!({"tools": [skill_tool_definition(&self.skills)]}).to_string();
        if let Ok(doc) = YamlDocument::parse(file, text) {
            let tools = tool::read_tool_file(&doc, &mut DiagnosticReport::default());
            self.tools.extend(tools.into_iter().map(|tool| Tool { runs_delta: true, ..tool }));
        }
        self.source_files.push((SKILLS_COPY, format!("{}\n", json!(self.skills))));
    }
}

fn expand_root(root: &str, home: &Path, cwd: &Path) -> PathBuf {
    let agent_home = home.to_owned();
    let vars = EngineVars { agent_home, cwd: cwd.to_owned(), run_dir: PathBuf::new() };
    PathBuf::from(vars.expand_text(root))
}

fn unique_roots(skills: &[Skill]) -> impl Iterator<Item = &String> {
    let roots = skills.iter().map(|skill| &skill.root).enumerate();
    roots
        .filter(|(index, root)| !skills[..*index].iter().any(|other| &other.root == *root))
        .map(|(_, root)| root)
}

/// The tool that loads a skill, as agent.yaml would have it.
fn skill_tool_definition(skills: &[Skill]) -> Json {
    let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
    let mut command = vec![json!("delta"), json!("skill"), json!("show")];
    for root in unique_roots(skills) {
        command.extend([json!("--in"), json!(root)]);
    }
    command.extend([json!("--"), json!({"template": "${name}"})]);
    json!({
        "name": SKILL_TOOL,
        "description": "Load a skill: its instructions, and the list of its files",
        "command": command,
        "idempotent": true,
        "timeout_ms": 30_000,
        "max_output_bytes": MAX_SHOWN_BYTES,
        "parameters": [{"name": "name", "description": "The name of the skill", "enum": names}],
    })
}
