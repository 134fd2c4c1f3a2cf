//! `imports:`: which files may be read, in which order, and which tool wins.
//!
//! An import brings everything its file defines and imports. The last definition of a tool wins and
//! takes the position of the first. Each file is read once.

use crate::mcp_server::{AgentMcpServer, MCP_KEY, MCP_SHAPE};
use crate::tool::{self, Tool};
use delta_base::durable::read_regular_text as read_text;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{self, MappingFields, MappingSchema, YamlDocument, YamlNode};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{fs, io};

/// The keys of an imported file.
pub static IMPORTED_FILE_MAPPING: MappingSchema = MappingSchema::new(
    "an imported file",
    "Tools and MCP servers for agents that import them.",
    &[
        KeySchema::optional(
            "tools",
            ValueShape::List(&ValueShape::Mapping(&tool::TOOL_MAPPING)),
            "The tools.",
        ),
        KeySchema::optional(MCP_KEY, MCP_SHAPE, "The MCP servers whose tools the LLM may call."),
        KeySchema::optional(
            "imports",
            ValueShape::List(&ValueShape::Text),
            "Files whose `tools:` and `mcp:` are added, relative to this file.",
        ),
    ],
);

/// The maximum depth of nested imports: more than any sane library, less than the stack allows.
const MAX_IMPORT_DEPTH: usize = 64;

/// The environment variable that holds the [`ImportPath`].
pub const IMPORT_PATH_VARIABLE: &str = "DELTA_IMPORT_PATH";

/// The directories outside the agent directory that the operator allows imports from.
#[derive(Debug, Default)]
pub struct ImportPath {
    /// Absolute, symlinks resolved.
    roots: Vec<PathBuf>,
    /// Why the other entries are ignored.
    ignored: Vec<String>,
    /// The agent is installed.
    is_closed: bool,
}

/// What to do with files outside of an agent that is installed: they could change without an update.
pub(super) const CLOSED_HELP: &str =
    "an installed agent has all its files in its directory: copy them into it";

impl ImportPath {
    /// Allows nothing outside of the agent directory, whatever the operator has set: for agents that are installed.
    pub fn closed() -> Self {
        Self { is_closed: true, ..Self::default() }
    }

    /// Whether it is for an agent that is installed.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Parses the value of `DELTA_IMPORT_PATH`: directories separated by `:`.
    pub fn parse(text: &str) -> Self {
        let mut path = Self::default();
        for entry in text.split(':').filter(|entry| !entry.is_empty()) {
            // The meaning of a relative entry would depend on the current directory.
            let root = match Path::new(entry) {
                relative if relative.is_relative() => Err("it must be absolute".to_owned()),
                entry => entry.canonicalize().map_err(|error| error.to_string()),
            };
            match root {
                Ok(root) if root.is_dir() => path.roots.push(root),
                Ok(_) => path.ignored.push(describe_ignored_entry(entry, "it is not a directory")),
                Err(reason) => path.ignored.push(describe_ignored_entry(entry, &reason)),
            }
        }
        path
    }

    /// Whether the operator allows what is at `path`, which is canonical.
    pub(super) fn allows(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }
}

fn describe_ignored_entry(entry: &str, reason: &str) -> String {
    format!("`{entry}` in {IMPORT_PATH_VARIABLE} is ignored: {reason}")
}

/// A tool, and its definition as YAML on one line.
#[derive(Debug)]
pub(super) struct ImportedTool {
    pub(super) tool: Tool,
    yaml: String,
}

/// Reads everything that agent.yaml imports.
pub(super) struct ToolImporter<'a> {
    home: &'a Path,
    import_path: &'a ImportPath,
    /// Files that were read.
    loaded: HashMap<PathBuf, Vec<Rc<ImportedTool>>>,
    /// Files being read, the main file first.
    loading: Vec<PathBuf>,
    /// The servers of all files that were read; a later definition of a server replaces an earlier one.
    servers: Vec<AgentMcpServer>,
    report: DiagnosticReport,
}

impl<'a> ToolImporter<'a> {
    pub(super) fn new(home: &'a Path, main: &Path, import_path: &'a ImportPath) -> Self {
        let main = main.canonicalize().unwrap_or_else(|_| main.to_owned());
        Self {
            home,
            import_path,
            loaded: HashMap::new(),
            loading: vec![main],
            servers: Vec::new(),
            report: DiagnosticReport::default(),
        }
    }

    /// The tools of `doc`, a file in `dir`: the imported ones, then its own.
    pub(super) fn collect_tools(
        &mut self,
        doc: &YamlDocument,
        dir: &Path,
        fields: MappingFields<'_>,
    ) -> Vec<Rc<ImportedTool>> {
        let mut list = ImportedToolList::default();
        for node in fields.list("imports") {
            let Some(name) = doc.expect_text(node, "an entry of `imports`") else { continue };
            match self.resolve_import(dir, name) {
                Ok(path) => list.extend(self.import_file(doc, node, path)),
                Err(error) => doc.report(node, error.message, error.help),
            }
        }
        self.collect_servers(doc, fields);
        if let Some(node) = fields.non_null("tools") {
            let tools = tool::read_tool_list(doc, node);
            // The lengths differ only after an error, and then nothing of it is used.
            list.extend(tools.into_iter().zip(node.items()).map(|(tool, item)| {
                let yaml = tool::value_schema::to_flow_definition(item, &tool);
                Rc::new(ImportedTool { tool, yaml })
            }));
        }
        list.tools
    }

    /// Adds the MCP servers of `doc`.
    pub(super) fn collect_servers(&mut self, doc: &YamlDocument, fields: MappingFields<'_>) {
        for server in AgentMcpServer::read_all(doc, fields) {
            match self.servers.iter_mut().find(|other| other.name == server.name) {
                Some(other) => *other = server,
                None => self.servers.push(server),
            }
        }
    }

    /// The MCP servers of all files so far.
    pub(super) fn servers(&self) -> &[AgentMcpServer] {
        &self.servers
    }

    /// Moves the MCP servers of all files out.
    pub(super) fn take_servers(&mut self) -> Vec<AgentMcpServer> {
        std::mem::take(&mut self.servers)
    }

    /// Moves the problems of the imported files to `report`, and returns warnings for the operator.
    pub(super) fn finish(mut self, report: &mut DiagnosticReport) -> Vec<String> {
        report.diagnostics.append(&mut self.report.diagnostics);
        if self.loaded.is_empty() {
            return Vec::new();
        }
        self.import_path.ignored.iter().map(|text| format!("Warning: {text}")).collect()
    }

    /// Reads the file at `path`, which `node` of `doc` imports.
    fn import_file(
        &mut self,
        doc: &YamlDocument,
        node: &YamlNode,
        path: PathBuf,
    ) -> Vec<Rc<ImportedTool>> {
        if let Some(at) = self.loading.iter().position(|open| *open == path) {
            let cycle =
                self.loading[at..].iter().chain([&path]).map(|path| self.display_path(path));
            let cycle = cycle.collect::<Vec<_>>().join(" -> ");
            doc.report(node, format!("circular import: {cycle}"), "remove one of these imports");
            return Vec::new();
        }
        if let Some(tools) = self.loaded.get(&path) {
            return tools.clone();
        }
        if self.loading.len() > MAX_IMPORT_DEPTH {
            let message = format!("imports are nested more than {MAX_IMPORT_DEPTH} deep");
            doc.report(node, message, "list the files in one `imports:`");
            return Vec::new();
        }
        self.loading.push(path.clone());
        let tools = self.load_file(&path).unwrap_or_default();
        self.loading.pop();
        self.loaded.insert(path, tools.clone());
        tools
    }

    fn load_file(&mut self, path: &Path) -> Option<Vec<Rc<ImportedTool>>> {
        let name = path.display().to_string();
        let parsed = match read_text(path) {
            Ok(text) => YamlDocument::parse(name, text),
            Err(error) => {
                let message = format!("could not read the imported file: {error}");
                Err(Diagnostic::for_file(name, message, None))
            }
        };
        let doc = parsed.map_err(|diagnostic| self.report.push(diagnostic)).ok()?;
        let fields = doc.fields(&doc.root, &IMPORTED_FILE_MAPPING);
        let tools = fields.map(|fields| {
            let is_absent = |key| fields.get(key).is_none() && fields.misspelled_key(key).is_none();
            if is_absent("tools") && is_absent("imports") && is_absent(MCP_KEY) {
                let help = "write `tools:` and a list of tools";
                doc.report(&doc.root, "an imported file has no `tools`", help);
            }
            self.collect_tools(&doc, path.parent().unwrap_or(self.home), fields)
        });
        doc.drain_diagnostics(&mut self.report);
        tools
    }

    /// The file that `name` refers to in a file in `dir`.
    fn resolve_import(&self, dir: &Path, name: &str) -> Result<PathBuf, ImportError> {
        if is_remote_import(name) {
            let help = "copy the file into the agent directory, and import it from there";
            return Err(ImportError::new("not supported: remote imports", help));
        }
        let joined = dir.join(name);
        let path = joined.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let help = "the path is relative to the importing file";
                ImportError::new(format!("{} does not exist", joined.display()), help)
            }
            _ => {
                ImportError::without_help(format!("could not import {}: {error}", joined.display()))
            }
        })?;
        self.check_allowed(&path)?;
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => Ok(path),
            Ok(_) => Err(ImportError::without_help(format!("{} is not a file", path.display()))),
            Err(error) => Err(ImportError::without_help(format!(
                "could not import {}: {error}",
                path.display()
            ))),
        }
    }

    fn check_allowed(&self, path: &Path) -> Result<(), ImportError> {
        if path.starts_with(self.home)
            || self.import_path.roots.iter().any(|it| path.starts_with(it))
        {
            return Ok(());
        }
        let dir = path.parent().unwrap_or(path).display();
        let mut help = if self.import_path.is_closed() {
            CLOSED_HELP.to_owned()
        } else {
            format!(
                "if you trust its files: export {IMPORT_PATH_VARIABLE}={dir} (separate several directories with `:`)"
            )
        };
        for reason in &self.import_path.ignored {
            help.push('\n');
            help.push_str(reason);
        }
        Err(ImportError::new(format!("{} is outside the agent directory", path.display()), help))
    }

    /// The path for messages, relative to the agent directory if it is inside.
    fn display_path(&self, path: &Path) -> String {
        path.strip_prefix(self.home).unwrap_or(path).display().to_string()
    }
}

/// Why a file cannot be imported.
struct ImportError {
    message: String,
    help: Option<String>,
}

impl ImportError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()) }
    }

    fn without_help(message: String) -> Self {
        Self { message, help: None }
    }
}

/// Whether `name` begins with a scheme, such as `https:` or `npm:`.
fn is_remote_import(name: &str) -> bool {
    let scheme = name.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-'))
}

/// A list of tools in which a later one replaces an earlier one of the same name.
#[derive(Default)]
struct ImportedToolList {
    tools: Vec<Rc<ImportedTool>>,
    index_by_name: HashMap<String, usize>,
}

impl ImportedToolList {
    fn extend(&mut self, more: impl IntoIterator<Item = Rc<ImportedTool>>) {
        for import in more {
            match self.index_by_name.get(&import.tool.name) {
                Some(&index) => self.tools[index] = import,
                None => {
                    self.index_by_name.insert(import.tool.name.clone(), self.tools.len());
                    self.tools.push(import);
                }
            }
        }
    }
}

/// The text of agent.yaml with the complete lists of tools and MCP servers instead of its imports.
pub(super) fn flatten_imports(
    doc: &YamlDocument,
    tools: &[Rc<ImportedTool>],
    servers: &[AgentMcpServer],
) -> String {
    let mut text = String::new();
    for (key, value) in doc.root.entries() {
        if !matches!(key.scalar(), Some("imports" | "tools" | MCP_KEY)) {
            text.push_str(&yaml::to_flow_entry(key, value));
            text.push('\n');
        }
    }
    text.push_str(if tools.is_empty() { "tools: []\n" } else { "tools:\n" });
    for tool in tools {
        text.push_str(&format!("  - {}\n", tool.yaml));
    }
    if !servers.is_empty() {
        text.push_str("mcp:\n");
    }
    for server in servers {
        text.push_str(&format!("  {}\n", server.yaml()));
    }
    text
}
