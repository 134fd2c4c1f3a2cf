//! `mcp-hidden-text`, `mcp-shadow`, `mcp-unpinned`, `mcp-many`, `mcp-schema`: what MCP servers bring, and `relative-program`
//! for their commands. No server is started.

use super::refused_requests::refused_combination;
use super::{LintLevel, Linter};
use delta_agent::agent::Agent;
use delta_agent::mcp_server::{AgentMcpServer, MCP_KEY};
use delta_agent::tool::Tool;
use delta_base::text::hidden_text::has_hidden_text;
use delta_yaml::diagnostic::Diagnostic;
use delta_yaml::yaml::YamlDocument;
use serde_json::Value as Json;

/// More tools than these make an LLM choose badly.
const MAX_TOOLS: usize = 40;
/// More bytes of definitions than these are paid with every request.
const MAX_DEFINITION_BYTES: usize = 16 * 1024;
/// The usual length of a token.
const BYTES_PER_TOKEN: usize = 4;
/// Some endpoints refuse deeper schemas.
const MAX_SCHEMA_DEPTH: usize = 32;

/// Checks the servers of `agent` that `doc` defines.
pub(super) fn check_mcp_servers(doc: &YamlDocument, agent: &Agent, linter: &mut Linter<'_>) {
    let Some((key, section)) = doc.root.entry(MCP_KEY) else { return };
    for (name, node) in section.entries() {
        let name_text = name.scalar().unwrap_or_default();
        let Some(server) = agent.mcp_servers.iter().find(|server| server.name == name_text) else {
            continue;
        };
        linter.with_allowances(doc, node, |linter| {
            check_server(agent, server, linter, &|message, help| {
                doc.diagnostic_at(name, message, help)
            });
        });
    }
    let tools: Vec<&Tool> = agent.tools.iter().filter(|tool| tool.mcp.is_some()).collect();
    let bytes: usize = tools.iter().map(|tool| tool.definition(None).to_string().len()).sum();
    if tools.len() > MAX_TOOLS || bytes > MAX_DEFINITION_BYTES {
        let message = format!(
            "each request pays about {} tokens for the definitions of {} tools of MCP servers",
            bytes / BYTES_PER_TOKEN,
            tools.len()
        );
        let help = "name the tools that the agent needs in `tools:` of the servers";
        linter.warn("mcp-many", doc.diagnostic_at(key, message, help));
    }
}

fn check_server(
    agent: &Agent,
    server: &AgentMcpServer,
    linter: &mut Linter<'_>,
    at: &dyn Fn(String, String) -> Diagnostic,
) {
    if let Some(package) = unpinned_package(&server.command) {
        let message =
            format!("`{package}` has no exact version, so another program may start tomorrow");
        let help =
            format!("write the version, such as `{package}@1.2.3`, or for an image its digest");
        linter.warn("mcp-unpinned", at(message, help));
    }
    if let Some(path) = relative_path(&server.command) {
        let message = format!(
            "`{path}` is resolved in the workspace of a run, and in the current directory by `delta mcp`"
        );
        let help = format!("write `${{AGENT_HOME}}/{path}` for a file that comes with the agent");
        linter.warn("relative-program", at(message, help));
    }
    for (index, tool) in agent.tools.iter().enumerate() {
        if tool.mcp.as_ref().is_none_or(|mcp| mcp.server != server.name) {
            continue;
        }
        let name = &tool.name;
        let definition = tool.definition(None);
        if has_hidden_text(&definition) {
            let message =
                format!("the definition of `{name}` has characters that only the LLM sees");
            let help = "look at the escapes in mcp.lock.json, and leave the tool out".to_owned();
            linter.report("mcp-hidden-text", LintLevel::Error, at(message, help));
        }
        if json_depth(&definition) > MAX_SCHEMA_DEPTH {
            let message =
                format!("the schema of `{name}` is nested more than {MAX_SCHEMA_DEPTH} deep");
            let help = "endpoints may refuse it: leave the tool out".to_owned();
            linter.warn("mcp-schema", at(message, help));
        }
        let schema = &definition["function"]["parameters"];
        if let Some(word) = refused_combination(&agent.llm, schema) {
            let message = format!(
                "the schema of `{name}` has `{word}` at its top, which the endpoint refuses"
            );
            let help = "no request succeeds with it: leave the tool out".to_owned();
            linter.warn("mcp-schema", at(message, help));
        }
        // Of two tools of servers the later one is reported.
        let mut others = agent.tools.iter().enumerate().filter(|(other_index, other)| {
            *other_index < index || (other.mcp.is_none() && other.name != *name)
        });
        let similar = others.find(|(_, other)| looks_like(&other.name, name));
        if let Some((_, other)) = similar {
            let message = format!("`{name}` looks like `{}`", other.name);
            let help = "give it another name with `rename:`".to_owned();
            linter.warn("mcp-shadow", at(message, help));
        }
    }
}

/// The first path of a command that is not absolute.
fn relative_path(command: &[String]) -> Option<&str> {
    let program =
        command.first().filter(|word| word.contains('/') && !word.starts_with(['/', '$']));
    let mut words = command.iter();
    program
        .or_else(|| words.find(|word| word.starts_with("./") || word.starts_with("../")))
        .map(String::as_str)
}

/// The package that a command fetches without an exact version.
fn unpinned_package(command: &[String]) -> Option<&str> {
    let program = command.first()?.rsplit('/').next()?;
    let mut words = command[1..].iter().map(String::as_str);
    let package = match program {
        "npx" | "bunx" | "uvx" => words.find(|word| !word.starts_with('-'))?,
        "docker" | "podman" => {
            // An option has no slash in its name, and the value of one rarely has.
            words.skip_while(|word| *word != "run").find(|word| {
                !word.starts_with('-') && (word.contains('/') || word.contains("@sha256:"))
            })?
        }
        _ => return None,
    };
    let version = match package.rfind('@').filter(|at| *at > 0) {
        Some(at) => &package[at + 1..],
        None => package.split_once("==").map_or("", |(_, version)| version),
    };
    let is_exact = version.starts_with("sha256:")
        || version.starts_with(|c: char| c.is_ascii_digit()) && version.contains('.');
    (!is_exact).then_some(package)
}

/// Whether two names differ only in what a reader overlooks.
fn looks_like(a: &str, b: &str) -> bool {
    let skeleton = |name: &str| {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        letters
            .map(|c| c.to_ascii_lowercase())
            .collect::<String>()
            .replace('0', "o")
            .replace(['1', 'i'], "l")
    };
    skeleton(a) == skeleton(b)
}

fn json_depth(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(json_depth).max().unwrap_or(0),
        Json::Object(members) => 1 + members.values().map(json_depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_an_exact_version_is_found() {
        let unpinned = |command: &str| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            unpinned_package(&words).map(str::to_owned)
        };
        for command in [
            "npx -y @scope/server@1.2.3",
            "uvx server==1.0",
            "uvx server@1.0.1",
            "node server.js",
            "npx",
            "docker run -i ghcr.io/x/y@sha256:00",
        ] {
            assert_eq!(unpinned(command), None, "{command}");
        }
        for (command, package) in [
            ("npx -y @scope/server", "@scope/server"),
            ("/usr/bin/npx server@latest", "server@latest"),
            ("npx server@1", "server@1"),
            ("uvx server", "server"),
            ("docker run -i ghcr.io/x/y:latest", "ghcr.io/x/y:latest"),
        ] {
            assert_eq!(unpinned(command).as_deref(), Some(package), "{command}");
        }
    }

    #[test]
    fn names_that_look_alike_are_found() {
        assert!(looks_like("read_file", "read-File") && looks_like("files__l1st", "files_list"));
        assert!(!looks_like("read_file", "read_files"));
    }
}
