//! The templates of agents, compiled into the program.

use crate::arguments::editor_schema::SchemaName as Schema;
use clap::ValueEnum;

/// The template of a new agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentTemplate {
    /// One tool, a starting point
    Minimal,
    /// One tool of each form
    HelloWorld,
    /// Read, write, list and search files
    FileOps,
    /// Test an HTTP API with curl
    ApiTester,
    /// Work on a repository: search, read, edit, run commands
    Coding,
}

/// The path and the text of a file in `templates/`.
type TemplateSource = (&'static str, &'static str);

/// A file of a new agent.
pub struct TemplateFile {
    /// Relative to the agent directory.
    pub path: String,
    /// The content.
    pub text: String,
}

impl TemplateFile {
    /// Whether the file is written with mode 755.
    pub fn is_executable(&self) -> bool {
        self.path.starts_with("tools/")
    }
}

/// The files of a template in `templates/`.
macro_rules! sources {
    ($dir:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../templates/", $dir, "/", $path)))),*]
    };
}

/// The files of every template that has none of its own in their place.
const COMMON_FILES: &[TemplateSource] = &[
    ("context.yaml", include_str!("../../templates/common/context.yaml")),
    (".gitignore", include_str!("../../templates/common/gitignore")),
    ("tools/inside", include_str!("../../templates/common/inside")),
];

/// Stands for the agent's name in the templates.
const AGENT_NAME_PLACEHOLDER: &str = "my-agent";

impl AgentTemplate {
    fn sources(self) -> &'static [TemplateSource] {
        match self {
            Self::Minimal => {
                sources!(
                    "minimal": "agent.yaml", "system_prompt.md", "script.yaml", "README.md",
                    "tests/looks.yaml",
                )
            }
            Self::HelloWorld => sources!(
                "hello-world": "agent.yaml", "system_prompt.md", "script.yaml", "README.md",
                "tools/greet.sh", "tests/greets.yaml",
            ),
            Self::FileOps => sources!(
                "file-ops": "agent.yaml", "system_prompt.md", "script.yaml", "README.md",
                "tools/save", "tools/search", "tests/stays-inside.yaml",
            ),
            Self::ApiTester => sources!(
                "api-tester": "agent.yaml", "system_prompt.md", "script.yaml", "README.md",
                "tools/request", "tools/check-status", "tests/only-http.yaml",
            ),
            Self::Coding => sources!(
                "coding": "agent.yaml", "system_prompt.md", "context.yaml", "script.yaml", "README.md",
                "tools/list", "tools/search", "tools/read", "tools/edit", "tools/write", "tools/run",
                "tools/environment", "lib/files.sh", "lib/git.sh", "lib/tree.sh", "lib/tree.awk", "lib/list.awk",
                "lib/search.awk", "lib/read.awk", "lib/edit.awk", "tests/exact-edits.yaml",
                "tests/fixes-a-test.yaml", "tests/stays-inside.yaml",
            ),
        }
    }

    /// The message of the example command.
    pub fn example_task(self) -> &'static str {
        match self {
            Self::Minimal => "What is here?",
            Self::HelloWorld => "Ada",
            Self::FileOps => "Water the plants",
            Self::ApiTester => "http://127.0.0.1:8000/",
            Self::Coding => "Fix the failing test",
        }
    }

    /// The name on the command line, which is the directory in `templates/`.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The files of the agent `name`.
    pub fn render(self, name: &str) -> impl Iterator<Item = TemplateFile> {
        let sources = self.sources();
        let common = COMMON_FILES
            .iter()
            .filter(|(path, _)| sources.iter().all(|(source, _)| source != path));
        let files = sources.iter().chain(common).map(move |(path, text)| TemplateFile {
            path: (*path).to_owned(),
            text: render_file(path, text, name),
        });
        // The operator's configuration is not a file of an agent.
        let schemas = Schema::value_variants().iter().filter(|schema| **schema != Schema::Config);
        files.chain(
            schemas.map(|schema| TemplateFile { path: schema.path(), text: schema.render() }),
        )
    }
}

/// The content of a file for the agent `name`. The first line of a YAML file names the schema for editors.
fn render_file(path: &str, text: &str, name: &str) -> String {
    let text = text.replace(AGENT_NAME_PLACEHOLDER, name);
    match Schema::for_file(path) {
        Some(schema) => {
            let up = "../".repeat(path.matches('/').count());
            format!("# yaml-language-server: $schema={up}{}\n{text}", schema.path())
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_agent::context::{SYSTEM_PROMPT_FILE, default_manifest};
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The files below `dir`, relative to `root`.
    fn files_below(root: &Path, dir: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => found.extend(files_below(root, &path)),
                false => {
                    found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        found
    }

    #[test]
    fn c_11_4_every_file_of_a_template_is_written() {
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut dirs = BTreeSet::from(["common".to_owned()]);
        for template in AgentTemplate::value_variants() {
            let dir = templates.join(template.name());
            let listed = template.sources().iter().map(|(path, _)| (*path).to_owned()).collect();
            assert_eq!(files_below(&dir, &dir), listed);
            dirs.insert(template.name());
        }
        let there = fs::read_dir(&templates).unwrap();
        let there = there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(dirs, there);
    }

    #[test]
    fn c_11_4_the_context_is_the_default_one() {
        let (name, text) = COMMON_FILES[0];
        let plain = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let lines: Vec<&str> = text.lines().filter(plain).collect();
        let default = default_manifest(SYSTEM_PROMPT_FILE);
        assert_eq!((name, lines), ("context.yaml", default.lines().collect()));
    }
}
