//! What an agent may do: the only list of it, which `delta add` and `delta receive` print, and with which an update is compared.

use super::{Agent, CONTEXT_FILE};
use crate::tool::Tool;
use crate::tool::approval::ApprovalPolicy;
use delta_base::hex::sha256_hex;
use delta_base::terminal_text::escape_to_line;
use delta_llm::llm::ProviderKind;
use delta_sandbox::{DeclaredProfile, EnvAccess, HomeAccess, NetAccess, ReadKey};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The kinds, in the order in which they are printed.
const KINDS: [&str; 5] = [TOOLS, UNSANDBOXED, NETWORK, KEYS, FILES];
const TOOLS: &str = "tools";
const UNSANDBOXED: &str = "without a sandbox";
const NETWORK: &str = "network";
const KEYS: &str = "keys";
const FILES: &str = "files";

/// What a tool may do, in place of a name, that starts without a question.
const STARTS: &str = "starts without a question";
/// The same, of one whose changes in the workspace are applied only after a question.
const STAGES: &str = "starts without a question, and asks before its changes are applied";
/// What every tool may do.
const ASKS: &str = "asks";

/// By kind and by who has them, such as a tool: what they reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRights(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl AgentRights {
    /// The rights of a loaded agent. No program is started to find them.
    pub fn of_agent(agent: &Agent) -> Self {
        let mut rights = Self::default();
        for tool in &agent.tools {
            rights.add_tool(tool, agent);
        }
        for (point, hook) in agent.hooks.all() {
            let holder = format!("hook {}", point.name());
            rights.add_profile(&holder, hook.profile.as_ref());
            rights.add_all(KEYS, &holder, &hook.pass_env);
        }
        if agent.context.starts_programs() {
            rights.add_profile(CONTEXT_FILE, agent.sandbox.profile.as_ref());
            rights.add_all(KEYS, CONTEXT_FILE, agent.context.passed_keys());
        }
        // The engine reads them itself, in no sandbox, and the LLM sees them.
        let read = agent.context.outer_paths().map(|path| format!("reads {path}"));
        rights.add_all(FILES, CONTEXT_FILE, read);
        for server in &agent.mcp_servers {
            let holder = format!("MCP server {}", server.name);
            rights.add_all(KEYS, &holder, &server.pass_env);
            rights.add_all(KEYS, &holder, server.key_variables());
            rights.add_all(NETWORK, &holder, &server.url);
        }
        for llm in agent.llm.models() {
            if matches!(llm.provider, ProviderKind::Command(_)) {
                rights.add_profile("the program of llm", agent.sandbox.llm.as_ref());
            }
            if !llm.api_key_command.is_empty() {
                rights.add_profile("api_key_command", None);
            }
            rights.add_all(NETWORK, "llm", &llm.base_url);
            rights.add_all(KEYS, "llm", &llm.api_key_env);
        }
        rights.add_all(KEYS, "children", &agent.env_file);
        rights
    }

    fn add_tool(&mut self, tool: &Tool, agent: &Agent) {
        self.add(TOOLS, &tool.name, ASKS);
        match &tool.approve {
            Some(ApprovalPolicy::Ask) => {}
            None | Some(ApprovalPolicy::Never) if tool.is_staged => {
                self.add(TOOLS, &tool.name, STAGES);
            }
            None | Some(ApprovalPolicy::Never) => self.add(TOOLS, &tool.name, STARTS),
            // Whether other rules ask more often is not known: they may be wider.
            Some(rules) => {
                let rules = &sha256_hex(format!("{rules:?}"))[..12];
                let staged = if tool.is_staged { ", staged" } else { "" };
                let right = format!("starts some calls by the rules {rules}{staged}");
                self.add(TOOLS, &tool.name, &right);
            }
        }
        let Some(mcp) = &tool.mcp else {
            self.add_all(KEYS, &tool.name, &tool.pass_env);
            return self.add_profile(&tool.name, tool.profile.as_ref());
        };
        let mut servers = agent.mcp_servers.iter();
        // A server elsewhere is in no sandbox of delta.
        if servers.any(|server| server.name == mcp.server && server.url.is_none()) {
            self.add_profile(&format!("MCP server {}", mcp.server), tool.profile.as_ref());
        }
    }

    fn add_profile(&mut self, holder: &str, profile: Option<&DeclaredProfile>) {
        let Some(profile) = profile else { return self.add(UNSANDBOXED, holder, "everything") };
        match &profile.net {
            NetAccess::None => {}
            NetAccess::Hosts(rules) => {
                self.add_all(NETWORK, holder, rules.iter().map(ToString::to_string));
            }
            NetAccess::All => self.add(NETWORK, holder, "all hosts"),
        }
        let sockets = profile.sockets.iter().map(|socket| format!("socket {socket}"));
        self.add_all(NETWORK, holder, sockets);
        match &profile.env {
            EnvAccess::Safe => {}
            EnvAccess::All => self.add(KEYS, holder, "all variables"),
            EnvAccess::Only(names) => self.add_all(KEYS, holder, names),
        }
        let mut reached: Vec<String> =
            profile.write.iter().map(|path| format!("writes {path}")).collect();
        match &profile.read {
            ReadKey::All => reached.push("reads all".to_owned()),
            ReadKey::Only(paths) => {
                reached.extend(paths.iter().map(|path| format!("reads {path}")));
            }
        }
        reached.extend((profile.home == HomeAccess::Write).then(|| "writes ~".to_owned()));
        reached.extend((profile.home != HomeAccess::Hidden).then(|| "reads ~".to_owned()));
        // Less that is hidden is more that is reached.
        if !profile.hide.is_empty() {
            let exception = format!(" but {}", profile.hide.join(", "));
            reached.iter_mut().for_each(|right| right.push_str(&exception));
        }
        reached.extend(profile.show.iter().map(|path| format!("reads {path}")));
        self.add_all(FILES, holder, reached);
        self.add_all(FILES, holder, profile.runs.then_some("starts runs"));
    }

    fn add_all(
        &mut self,
        kind: &str,
        holder: &str,
        rights: impl IntoIterator<Item = impl AsRef<str>>,
    ) {
        rights.into_iter().for_each(|right| self.add(kind, holder, right.as_ref()));
    }

    fn add(&mut self, kind: &str, holder: &str, right: &str) {
        let holders = self.0.entry(kind.to_owned()).or_default();
        holders.entry(holder.to_owned()).or_default().insert(right.to_owned());
    }

    /// What these rights have that the earlier ones did not.
    #[must_use]
    pub fn beyond(&self, earlier: &Self) -> Self {
        let mut wider = Self::default();
        for (kind, holders) in &self.0 {
            for (holder, rights) in holders {
                let find = |kind: &str| earlier.0.get(kind)?.get(holder);
                // Without a sandbox it reached all that a sandbox lets it reach; without a question it did all that questions
                // let it do.
                let had_all = match kind.as_str() {
                    NETWORK | FILES => find(UNSANDBOXED).is_some(),
                    TOOLS => find(TOOLS).is_some_and(|rights| rights.contains(STARTS)),
                    _ => false,
                };
                if !had_all {
                    let empty = BTreeSet::new();
                    wider.add_all(kind, holder, rights.difference(find(kind).unwrap_or(&empty)));
                }
            }
        }
        wider
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rights in lines: each kind, and who has which. Safe for a terminal.
    pub fn lines(&self) -> Vec<String> {
        let kinds = KINDS.into_iter().filter_map(|kind| Some((kind, self.0.get(kind)?)));
        let lines = kinds.map(|(kind, holders)| {
            // Holders with the same rights share an entry.
            let mut entries: Vec<(&BTreeSet<String>, Vec<&str>)> = Vec::new();
            for (holder, rights) in holders {
                match entries.iter_mut().find(|(others, _)| *others == rights) {
                    Some((_, names)) => names.push(holder),
                    None => entries.push((rights, vec![holder])),
                }
            }
            let texts = entries.iter().map(|(rights, names)| {
                let names = names.join(", ");
                match kind {
                    TOOLS if rights.contains(STARTS) => names,
                    TOOLS if rights.contains(STAGES) => {
                        format!("{names} (asks before changes are applied)")
                    }
                    TOOLS if rights.len() > 1 || !rights.contains(ASKS) => {
                        format!("{names} (asks about some calls)")
                    }
                    TOOLS => format!("{names} (asks)"),
                    UNSANDBOXED => names,
                    _ => {
                        let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
                        format!("{names}: {}", rights.join(", "))
                    }
                }
            });
            let texts: Vec<String> = texts.collect();
            escape_to_line(&format!("{kind}  {}", texts.join("; ")))
        });
        lines.collect()
    }
}
