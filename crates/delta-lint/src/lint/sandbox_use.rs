//! The rules for shell tools without a sandbox, and for entries of `hide` that hide nothing.

use super::context_sources::possible_workspaces;
use super::{Linter, ToolSubject};
use delta_agent::tool::ToolSyntax;
use delta_base::engine_variables::{EngineVars, find_unknown_variable};
use delta_sandbox::{MissingHidden, parse_host_rule};
use delta_yaml::yaml::{YamlDocument, YamlNode};
use std::path::PathBuf;

/// Whether the agent says for all of its tools whether they have a sandbox.
pub(super) fn has_default_sandbox(main: &YamlDocument) -> bool {
    let defaults = main.root.get("defaults").and_then(|defaults| defaults.get("sandbox"));
    main.root.get("sandbox").or(defaults).is_some_and(|node: &YamlNode| !node.is_null())
}

/// Reports the first tool with a shell that has no sandbox: what is missing is one line for all of them.
pub(super) fn check_sandbox_use(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let has_sandbox = subject.tool.sandbox.is_some();
    if !linter.expects_sandbox || has_sandbox || subject.tool.syntax != ToolSyntax::Shell {
        return;
    }
    let message = format!("`{}` can change and read whatever you can", subject.tool.name);
    let help = "write `sandbox: workspace` at the top of agent.yaml, or `sandbox: off` if the tools need all rights";
    let count = linter.findings.len();
    linter.warn("no-sandbox", subject.diagnostic_at_key("shell", message, help));
    // The other tools can still lack one if this tool allows it.
    linter.expects_sandbox = linter.findings.len() == count;
}

/// Reports the entries of `hide` that do not exist, in the sandboxes of agent.yaml.
pub(super) fn check_hidden_entries(main: &YamlDocument, linter: &mut Linter<'_>) {
    let root = &main.root;
    check_sandbox_entries(main, root.get("sandbox"), linter);
    check_sandbox_entries(main, root.get("defaults").and_then(|node| node.get("sandbox")), linter);
    for (_, node) in root.get("sandboxes").map(YamlNode::entries).unwrap_or_default() {
        check_sandbox_entries(main, Some(node), linter);
    }
    let servers = root.get("mcp").map(YamlNode::entries).unwrap_or_default();
    let tools = root.get("tools").map(YamlNode::items).unwrap_or_default();
    for node in tools.iter().chain(servers.iter().map(|(_, server)| server)) {
        linter.with_allowances(main, node, |linter| {
            check_sandbox_entries(main, node.get("sandbox"), linter);
        });
    }
}

fn check_sandbox_entries(main: &YamlDocument, sandbox: Option<&YamlNode>, linter: &mut Linter<'_>) {
    let hide = sandbox.and_then(|sandbox| sandbox.get("hide"));
    for node in hide.map(YamlNode::items).unwrap_or_default() {
        check_hidden_entry(main, node, linter);
    }
    let net = sandbox.and_then(|sandbox| sandbox.get("net"));
    for node in net.map(YamlNode::items).unwrap_or_default() {
        check_loopback_port(main, node, linter);
    }
}

/// Reports this machine without a port: it means port 443, and local servers have others.
fn check_loopback_port(main: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    let Some(text) = node.scalar().filter(|text| !text.ends_with(":443")) else { return };
    if parse_host_rule(text).is_ok_and(|rule| rule.is_loopback_without_port()) {
        let message = format!("`{text}` is port 443 of this machine");
        let help = "list the port of the server, such as `localhost:11434`";
        linter.warn("loopback-port", main.diagnostic_at(node, message, help));
    }
}

fn check_hidden_entry(main: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    let Some(text) = node.scalar() else { return };
    // The loader reports unknown variables, and the files of a run do not exist yet.
    if find_unknown_variable(text).is_some() || text.starts_with("${RUN_DIR}") {
        return;
    }
    let home = linter.launch.env.get("HOME").map(PathBuf::from);
    let mut entries: Vec<Option<MissingHidden>> = Vec::new();
    for cwd in possible_workspaces(linter.home) {
        let vars = EngineVars { agent_home: linter.home.to_owned(), cwd, run_dir: PathBuf::new() };
        entries.push(MissingHidden::find(text, &vars, home.as_deref()));
    }
    if entries.iter().any(Option::is_none) {
        return;
    }
    let is_in_workspace = !text.starts_with(['/', '~']) && !text.starts_with("${AGENT_HOME}");
    // Which workspace a run has is unknown here; only a misspelled name is worth a warning.
    if is_in_workspace {
        entries.retain(|entry| entry.as_ref().is_some_and(|entry| entry.similar.is_some()));
    }
    let Some(entry) = entries.into_iter().flatten().next() else { return };
    let message = format!("`{text}` does not exist, so there is nothing to hide");
    linter.warn("missing-hidden", main.diagnostic_at(node, message, entry.help()));
}
