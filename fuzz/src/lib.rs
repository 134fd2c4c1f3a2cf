//! What the targets share that fuzz a file of an agent: the agent around that file, and what holds of whatever loads.

use delta_agent::agent::Agent;
use delta_agent::agent::tool_imports::ImportPath;
use delta_yaml::diagnostic::Diagnostic;
use delta_lint::lint;
use delta_llm::llm::ModelSelection;
use delta_process::LaunchContext;
use delta_base::redact::Secrets;
use delta_yaml::yaml::{YamlDocument, MappingSchema};
use jsonschema::Validator;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of an agent that is fine.
const FILES: [(&str, &str); 6] = [
    (
        "agent.yaml",
        "name: fuzzed\nllm: {provider: script, model: script.yaml}\ntools: [{name: say, exec: 'echo ${x}'}]\n",
    ),
    (
        "context.yaml",
        "sources:\n  - {type: file, id: system_prompt, path: system_prompt.md}\n  - {type: journal}\n",
    ),
    ("hooks.yaml", "on_run_end: {command: ['true']}\n"),
    ("system_prompt.md", "You are fuzzed.\n"),
    ("script.yaml", "turns: [{say: done}]\n"),
    ("more.yaml", "tools: [{name: more, shell: 'wc -l <${file}'}]\n"),
];

/// An agent directory of this process, in memory where there is a file system for that. Nothing runs at the end of a
/// fuzzing process, so a few small files stay behind.
pub struct Fuzzed {
    home: PathBuf,
    file: PathBuf,
    launch: LaunchContext,
    schema: Validator,
}

impl Fuzzed {
    /// The directory in which `file` is going to be fuzzed, whose top is read by `table`.
    pub fn new(file: &str, table: &'static MappingSchema) -> Self {
        let home = directory();
        // Beside a hooks.yaml the hooks in agent.yaml do not count, and nobody reads them.
        let beside = |(name, _): &(&str, &str)| (*name, file) != ("hooks.yaml", "agent.yaml");
        for (name, text) in FILES.into_iter().filter(beside) {
            fs::write(home.join(name), text).expect("a file of the agent cannot be written");
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let schema = delta_lint::schema::file_schema(file, table);
        Self {
            file: home.join(file),
            launch: LaunchContext {
                cwd: home.clone(),
                env: BTreeMap::from([("PATH".into(), path)]).into(),
                secrets: Secrets::default(), containment: None, sandbox: None },
            schema: jsonschema::validator_for(&schema).expect("the schema is none"),
            home,
        }
    }

    /// Loads and lints the agent with this text in its file. What is wrong with the file has a place in it, and what
    /// loads is valid under the schema, so that an editor never objects to it.
    pub fn check(&self, text: &str) {
        fs::write(&self.file, text).expect("the file cannot be written");
        let allowed = ImportPath::default();
        let loaded = Agent::load(&self.home, &ModelSelection::without_llm(), &allowed);
        if let Err(report) = &loaded {
            assert!(!report.is_empty(), "refused without a reason");
            report.diagnostics.iter().for_each(|it| self.has_a_place(it, text));
            let _ = report.to_string();
        }
        for finding in lint::lint_agent(&self.home, &allowed, &self.launch) {
            assert!(lint::LINT_RULES.contains(&finding.rule));
            self.has_a_place(&finding.diagnostic, text);
            let _ = finding.render();
        }
        if loaded.is_ok() {
            let doc = YamlDocument::parse("it", text).expect("it loads, and is no YAML");
            let json = doc.to_json(&doc.root);
            if let Some(error) = json.as_ref().and_then(|it| self.schema.validate(it).err()) {
                panic!("it loads, and an editor objects: {error} at {}", error.instance_path());
            }
        }
    }

    fn has_a_place(&self, found: &Diagnostic, text: &str) {
        if Path::new(&found.file) == self.file {
            is_inside(found, text);
        }
    }
}

/// Panics when what is wrong with a text has no place in it.
pub fn is_inside(found: &Diagnostic, text: &str) {
    let line = found.line.checked_sub(1).map(|line| text.split('\n').nth(line));
    let Some(Some(line)) = line else { panic!("line {} of a text: {found}", found.line) };
    let columns = line.chars().count() + 1;
    assert!((1..=columns).contains(&found.column), "column {} of {columns}: {found}", found.column);
}

/// An empty directory of this process.
pub fn directory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let home = parent.join(format!("delta-fuzz-{}", std::process::id()));
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).expect("the directory cannot be made");
    home
}
