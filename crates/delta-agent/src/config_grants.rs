//! `allow` and `net` of config.yaml: what the built-in or an installed agent may do in a directory.

use crate::allowed_calls::ListedCalls;
use crate::tool::approval::read_command_pattern;
use delta_sandbox::{HostRule, parse_host_rule};
use delta_yaml::yaml::mapping_schema::{KeySchema, MappingFields, MappingSchema, ValueShape};
use delta_yaml::yaml::{YamlDocument, YamlNode};
use std::path::Path;

const AGENT: KeySchema = KeySchema::required(
    "agent",
    ValueShape::Text,
    "`coding`, the built-in agent, or the name of an agent in $XDG_DATA_HOME/delta/agents.",
);
const DIR: KeySchema = KeySchema::required(
    "dir",
    ValueShape::Text,
    "The absolute path of a workspace; `/**` at its end adds the workspaces in it.",
);

/// The keys of an entry of `net`.
pub static NET_MAPPING: MappingSchema = MappingSchema::new(
    "an entry of `net`",
    "Hosts for an agent in a directory.",
    &[
        AGENT,
        DIR,
        KeySchema::required(
            "hosts",
            ValueShape::List(&ValueShape::Text),
            "Hosts such as `index.crates.io`, `github.com:22` or `localhost:8080`.",
        ),
    ],
);

/// The keys of an entry of `allow`.
pub static ALLOW_MAPPING: MappingSchema = MappingSchema::new(
    "an entry of `allow`",
    "Calls of a tool of an agent in a directory.",
    &[
        AGENT,
        DIR,
        KeySchema::required("tool", ValueShape::Text, "The name of the tool."),
        KeySchema::required(
            "match",
            ValueShape::MapOf(&ValueShape::List(&ValueShape::Text)),
            "Parameters, each with the command lines that its value may be. A word is itself, `*` any word, `**` at the end any number of words, `[-x]` an option that may be left out. Other parameters may have any value.",
        ),
    ],
);

/// An agent in a directory.
#[derive(Debug, Clone)]
struct GrantScope {
    agent: String,
    /// A path, maybe with `/**`.
    dir: String,
}

impl GrantScope {
    fn read(doc: &YamlDocument, fields: MappingFields<'_>) -> Option<Self> {
        let agent = fields.require("agent", "coding");
        let node = fields.require("dir", "/home/me/src/**")?;
        let dir = fields.text("dir")?.to_owned();
        if !Path::new(&dir).is_absolute() {
            let help = "write, for example, `dir: /home/me/src/**`";
            doc.report(node, format!("expected an absolute path, found `{dir}`"), help);
        }
        Some(Self { agent: agent?.scalar()?.to_owned(), dir })
    }

    fn covers(&self, agent: &str, workspace: &Path) -> bool {
        let canonical = |dir: &str| Path::new(dir).canonicalize().ok();
        let is_in_dir = match self.dir.strip_suffix("/**") {
            Some("") => true,
            Some(dir) => canonical(dir).is_some_and(|dir| workspace.starts_with(dir)),
            None => canonical(&self.dir).is_some_and(|dir| workspace == dir),
        };
        self.agent == agent && is_in_dir
    }
}

/// What an entry grants.
#[derive(Debug, Clone)]
pub struct Grant<T> {
    scope: GrantScope,
    /// The hosts, or the calls.
    pub granted: T,
}

impl<T> Grant<T> {
    /// Whether it is for the agent in the workspace, whose path is canonical.
    pub fn covers(&self, agent: &str, workspace: &Path) -> bool {
        self.scope.covers(agent, workspace)
    }

    /// The entry in a list of settings, with `granted` as text.
    pub fn describe(&self, granted: &str) -> String {
        format!("{} in {}: {granted}", self.scope.agent, self.scope.dir)
    }
}

/// Reads an entry of `net`.
pub fn read_host_grant(doc: &YamlDocument, node: &YamlNode) -> Option<Grant<Vec<HostRule>>> {
    let fields = doc.fields(node, &NET_MAPPING)?;
    let scope = GrantScope::read(doc, fields);
    fields.require("hosts", "[index.crates.io]");
    let mut hosts = Vec::new();
    for item in fields.list("hosts") {
        let text = item.scalar().unwrap_or_default();
        match parse_host_rule(text) {
            Ok(host) => hosts.push(host),
            Err(help) => doc.report(item, format!("`{text}` is not a host"), help),
        }
    }
    Some(Grant { scope: scope?, granted: hosts })
}

/// Reads the entry of `allow` with this number, from 1.
pub fn read_call_grant(
    doc: &YamlDocument,
    node: &YamlNode,
    number: u32,
) -> Option<Grant<ListedCalls>> {
    let fields = doc.fields(node, &ALLOW_MAPPING)?;
    let scope = GrantScope::read(doc, fields);
    let tool = fields.require("tool", "run");
    let match_node = fields.require("match", "{command: [cargo test **]}")?;
    if match_node.entries().is_empty() {
        let help = "write, for example, `match: {command: [cargo test **]}`";
        doc.report(match_node, "`match` names no parameter", help);
    }
    let mut patterns = Vec::new();
    for (name, lines) in match_node.entries() {
        // A value of another kind is reported with the shape.
        if lines.items().is_empty() && lines.scalar().is_none() && lines.entries().is_empty() {
            let help = "name the command lines that start without a question";
            doc.report(lines, "the parameter has no command line", help);
        }
        let lines = lines.items().iter().filter_map(|line| read_command_pattern(doc, line));
        patterns.push((name.scalar()?.to_owned(), lines.collect()));
    }
    let tool = tool?.scalar()?.to_owned();
    Some(Grant { scope: scope?, granted: ListedCalls { number, tool, patterns } })
}
