//! `mcp:` of an agent, with mcp.lock.json.

use super::tool_imports::{ImportPath, ToolImporter};
use super::{AGENT_MAPPING, Agent, AgentLoader, find_agent_home, legacy_names};
use crate::mcp_server::AgentMcpServer;
use crate::tool::Tool;
use delta_base::durable::read_regular_text as read_text;
use delta_mcp::lock_file::{LOCK_FILE, LockFile};
use delta_run::state::{ASK_HUMAN_TOOL, FINISH_TOOL};
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::{MappingFields, YamlDocument};
use std::io;
use std::path::Path;

impl Agent {
    /// Whether the MCP server `name` has a URL.
    pub fn has_remote_server(&self, name: &str) -> bool {
        self.mcp_servers.iter().any(|server| server.name == name && server.url.is_some())
    }
}

impl AgentLoader<'_> {
    /// Reads the MCP servers, with what is locked of them, and adds their tools.
    pub(super) fn read_mcp_servers(
        &mut self,
        doc: &YamlDocument,
        fields: MappingFields<'_>,
        imports: &mut ToolImporter<'_>,
        tools: &mut Vec<Tool>,
    ) -> Vec<AgentMcpServer> {
        let mut servers = imports.take_servers();
        if servers.is_empty() {
            return servers;
        }
        let lock = match read_lock_file(self.home) {
            Ok(Some((text, lock))) => {
                self.source_files.push((LOCK_FILE, text));
                lock
            }
            Ok(None) => LockFile::default(),
            Err(problem) => {
                self.report.push(problem);
                return servers;
            }
        };
        for server in &mut servers {
            if let Err(problem) = server.set_lock(&lock, self.home) {
                self.report.push(problem);
                continue;
            }
            match server.build_tools() {
                Ok(more) => {
                    for tool in more {
                        self.add_mcp_tool(doc, fields, tools, tool);
                    }
                }
                Err(problems) => self.report.diagnostics.extend(problems),
            }
        }
        servers
    }

    fn add_mcp_tool(
        &mut self,
        doc: &YamlDocument,
        fields: MappingFields<'_>,
        tools: &mut Vec<Tool>,
        tool: Tool,
    ) {
        let name = &tool.name;
        let is_builtin = [FINISH_TOOL, ASK_HUMAN_TOOL].contains(&name.as_str());
        if is_builtin || tools.iter().any(|other| other.name == *name) {
            let node = fields.non_null(crate::mcp_server::MCP_KEY).unwrap_or(fields.node);
            let message = if is_builtin {
                format!("`{name}` is a tool of delta itself, which an MCP server cannot replace")
            } else {
                format!("two tools are named `{name}`; one of them belongs to an MCP server")
            };
            doc.report(node, message, "choose another name with `rename:`");
            return;
        }
        tools.push(tool);
    }
}

/// The lock file of the agent in `home` and its text; `None` if there is none.
fn read_lock_file(home: &Path) -> Result<Option<(String, LockFile)>, Diagnostic> {
    let path = home.join(LOCK_FILE);
    let help = "run `delta mcp lock --agent DIR`, look at what it offers, and add `--write`";
    let problem = |message: String| Diagnostic::for_file(path.display().to_string(), message, help);
    match read_text(&path) {
        Ok(text) => {
            let lock = LockFile::parse(&text)
                .map_err(|error| problem(format!("could not use the lock file: {error}")))?;
            Ok(Some((text, lock)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(problem(format!("could not read the lock file: {error}"))),
    }
}

/// The MCP servers of an agent.
#[derive(Debug)]
pub struct LoadedMcpServers {
    /// The servers. One that is not locked has no lock.
    pub servers: Vec<AgentMcpServer>,
    /// The lock file; empty if there is none, or one that cannot be used.
    pub lock: LockFile,
    /// Why the lock file cannot be used.
    pub lock_problem: Option<Diagnostic>,
}

/// Loads the MCP servers of the agent in `home` and its lock file, without the rest of the agent.
///
/// # Errors
/// agent.yaml could not be read, or `mcp:` has mistakes.
pub fn load_mcp_servers(
    home: &Path,
    import_path: &ImportPath,
) -> Result<LoadedMcpServers, DiagnosticReport> {
    let mut report = DiagnosticReport::default();
    let Some(home) = find_agent_home(home, &mut report) else { return Err(report) };
    let name = legacy_names::find_main_file(&home, &mut Vec::new()).unwrap_or("agent.yaml");
    let path = home.join(name);
    let text = read_text(&path).map_err(|error| {
        let message = format!("could not read the file: {error}");
        let problem = Diagnostic::for_file(path.display().to_string(), message, None);
        DiagnosticReport { diagnostics: vec![problem] }
    })?;
    let doc = YamlDocument::parse(path.display().to_string(), text)
        .map_err(|problem| DiagnosticReport { diagnostics: vec![problem] })?;
    let mut imports = ToolImporter::new(&home, &path, import_path);
    if let Some(fields) = doc.fields_labelled(name, &doc.root, &AGENT_MAPPING) {
        imports.collect_tools(&doc, &home, fields);
    }
    let mut servers = imports.take_servers();
    doc.drain_diagnostics(&mut report);
    imports.finish(&mut report);
    let (lock, lock_problem) = match read_lock_file(&home) {
        Ok(lock) => (lock.map(|(_, lock)| lock).unwrap_or_default(), None),
        Err(problem) => (LockFile::default(), Some(problem)),
    };
    if !report.is_empty() {
        return Err(report);
    }
    for server in &mut servers {
        let _ = server.set_lock(&lock, &home);
    }
    Ok(LoadedMcpServers { servers, lock, lock_problem })
}
