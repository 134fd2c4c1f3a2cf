//! `mcp:` in agent.yaml: servers of the Model Context Protocol, and the tools that an agent takes from them.
//!
//! A tool is built from mcp.lock.json alone. No server is started to load an agent.

use crate::tool::approval::{APPROVE_SHAPE, ApprovalPolicy};
use crate::tool::{
    self, CommandWord, EndsRun, McpTool, Tool, ToolOutput, ToolSyntax, ValueSchema,
    schema_parameters,
};
use delta_base::engine_variables::EngineVars;
use delta_base::suggest;
use delta_mcp::lock_file::{LockFile, LockedServer, LockedTool};
use delta_process::Background;
use delta_sandbox::{SANDBOX_SHAPE, SandboxSetting};
use delta_yaml::diagnostic::Diagnostic;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{self, MappingFields, MappingSchema, YamlDocument, YamlNode, YamlValue};
use portable_schema::{compile_portable, portable_schema};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

mod portable_schema;

/// The key in agent.yaml.
pub const MCP_KEY: &str = "mcp";
/// The longest name of a server.
const MAX_NAME_BYTES: usize = 24;

/// The shape of `mcp:`.
pub const MCP_SHAPE: ValueShape = ValueShape::MapOf(&ValueShape::Mapping(&MCP_SERVER_MAPPING));

/// The keys of a server.
pub static MCP_SERVER_MAPPING: MappingSchema = MappingSchema::new(
    "an MCP server",
    "A server of the Model Context Protocol whose tools the LLM may call, as mcp.lock.json has them.",
    &[
        KeySchema::optional(
            "command",
            ValueShape::List(&ValueShape::Text),
            "The program of the server and its arguments; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are replaced.",
        ),
        KeySchema::optional("url", ValueShape::Text, "The URL of the server."),
        KeySchema::optional(
            "tools",
            ValueShape::List(&ValueShape::Text),
            "The server's names of the tools that the LLM may call; all that are locked without it.",
        )
        .with_help(tool_names_help),
        KeySchema::optional(
            "rename",
            ValueShape::TextMap,
            "The names for the LLM, by the server's names; otherwise SERVER__TOOL.",
        ),
        KeySchema::optional(
            "env",
            ValueShape::TextMap,
            "Environment variables of the program; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are replaced.",
        ),
        KeySchema::optional(
            "pass_env",
            ValueShape::List(&ValueShape::Text),
            "The names of variables that the program receives besides HOME, LANG, LC_*, LOGNAME, PATH, SHELL, TERM, TMPDIR and USER.",
        ),
        KeySchema::optional(
            "idempotent",
            ValueShape::List(&ValueShape::Text),
            "The server's names of the tools whose call may simply run again if the engine did not survive it.",
        )
        .with_help(tool_names_help),
        KeySchema::optional(
            "parallel",
            ValueShape::List(&ValueShape::Text),
            "The server's names of the tools whose calls have no effect on other calls and may run at the same time.",
        )
        .with_help(tool_names_help),
        KeySchema::optional(
            "token_env",
            ValueShape::Text,
            "The variable with the bearer token for `url`, which no other child receives.",
        ),
        KeySchema::optional(
            "oauth",
            ValueShape::OneOf(&[ValueShape::Boolean, ValueShape::Mapping(&OAUTH_MAPPING)]),
            "How `url` gets tokens: `true` takes tokens from `delta mcp login`, a mapping also says for which client and scopes.",
        ),
        KeySchema::optional(
            "headers",
            ValueShape::TextMap,
            "The headers of every request to `url`.",
        ),
        KeySchema::optional(
            "approve",
            APPROVE_SHAPE,
            "Which calls of its tools a person has to approve, as in a tool.",
        ),
        KeySchema::optional(
            "sandbox",
            SANDBOX_SHAPE,
            "What its process may do: a profile, `off`, or a map over the sandbox of the agent.",
        ),
        KeySchema::with_default(
            "start_timeout_ms",
            ValueShape::Milliseconds(1..u32::MAX as u64 + 1),
            DefaultValue::Integer(30_000),
            "The longest time from its start to its first answer.",
        ),
        KeySchema::with_default(
            "timeout_ms",
            ValueShape::Milliseconds(1..u32::MAX as u64 + 1),
            DefaultValue::Integer(120_000),
            "The timeout of a call.",
        ),
        KeySchema::with_default(
            "max_output_bytes",
            ValueShape::Integer(1..(16 << 20) + 1),
            DefaultValue::Integer(32_768),
            "The number of bytes of a result that the LLM sees; the run directory keeps all of it.",
        ),
        KeySchema::with_default(
            "output",
            ValueShape::Choice(&["image", "text"]),
            DefaultValue::Text("image"),
            "What the LLM gets of an image in a result: the image, or the name of its file alone.",
        ),
        KeySchema::with_default(
            "structured",
            ValueShape::Boolean,
            DefaultValue::Boolean(true),
            "Whether the LLM also sees the structured content of a result that has a text.",
        ),
        KeySchema::misplaced("args", "write the arguments after the program: `command: [PROGRAM, ARG]`"),
        KeySchema::misplaced("type", TRANSPORT),
        KeySchema::misplaced("transport", TRANSPORT),
        KeySchema::misplaced("timeout", "write `timeout_ms: 30s`, or `start_timeout_ms` for its start"),
        KeySchema::misplaced("name", "the key before the server is its name"),
    ],
).with_exactly_one_of(&["command", "url"]);

const TRANSPORT: &str = "leave it out: a server has `command` or `url`";

/// A word in place of the names of tools.
fn tool_names_help(node: &YamlNode) -> Option<String> {
    Some(match node.scalar()? {
        "all" | "*" => "leave it out for all tools, or list the names of some".to_owned(),
        "true" | "false" => "list the names of the tools, as in `[read_file]`".to_owned(),
        name => format!("list the names of the tools, as in `[{name}]`"),
    })
}

/// A server in agent.yaml, and what is locked of it.
#[derive(Debug, Clone)]
pub struct AgentMcpServer {
    /// The name: `[a-z0-9-]{1,24}`.
    pub name: String,
    /// The program and its arguments, as they are written; empty for a server with a URL.
    pub command: Vec<String>,
    /// The URL.
    pub url: Option<String>,
    /// The environment variables as they are written.
    pub env: Vec<(String, String)>,
    /// The names of the variables that the program receives besides the usual ones.
    pub pass_env: Vec<String>,
    /// The variable with the bearer token.
    pub token_env: Option<String>,
    /// How it gets tokens from a login.
    pub oauth: Option<AgentOAuth>,
    /// The headers of every request.
    pub headers: Vec<(String, String)>,
    /// The longest time from its start to its first answer, in milliseconds.
    pub start_timeout_ms: u64,
    /// The timeout of a call in milliseconds.
    pub timeout_ms: u64,
    /// What is locked of it; `None` if it is not locked.
    pub locked: Option<LockedServer>,
    /// The file that defines it, and the line.
    pub file: String,
    /// The first line of its definition.
    pub line: usize,
    selected: Option<Vec<String>>,
    rename: BTreeMap<String, String>,
    idempotent: Vec<String>,
    parallel: Vec<String>,
    approve: Option<ApprovalPolicy>,
    sandbox: Option<SandboxSetting>,
    max_output_bytes: usize,
    output: ToolOutput,
    has_structured: bool,
    /// Its definition as YAML on one line.
    yaml: String,
}

/// The keys of `oauth`.
static OAUTH_MAPPING: MappingSchema = MappingSchema {
    label: "`oauth`",
    description: "The client and the scopes of the tokens for an MCP server.",
    keys: &[
        KeySchema::optional(
            "client_id_env",
            ValueShape::Text,
            "The variable with the id of a client that is registered; otherwise a login registers one.",
        ),
        KeySchema::optional(
            "client_secret_env",
            ValueShape::Text,
            "The variable with the secret of the client, which no child receives.",
        ),
        KeySchema::optional(
            "scopes",
            ValueShape::List(&ValueShape::Text),
            "The scopes to ask for, instead of the scopes that the server names.",
        ),
        KeySchema::with_default(
            "grant",
            ValueShape::Choice(&["authorization_code", CLIENT_CREDENTIALS]),
            DefaultValue::Text("authorization_code"),
            "`authorization_code`: a person logs in with `delta mcp login`. `client_credentials`: the client itself has access, as in CI.",
        ),
    ],
    exactly_one_of: &[],
    allows_other_keys: false,
};

/// The grant without a person.
const CLIENT_CREDENTIALS: &str = "client_credentials";

/// `oauth:` of a server.
#[derive(Debug, Clone, Default)]
pub struct AgentOAuth {
    /// The variable with the id of the client; without it, a login registers one.
    pub client_id_env: Option<String>,
    /// The variable with the secret of the client.
    pub client_secret_env: Option<String>,
    /// The scopes, instead of the scopes that the server names.
    pub scopes: Vec<String>,
    /// Whether the client itself has access, so that no person logs in.
    pub has_own_access: bool,
}

impl AgentOAuth {
    fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        if node.scalar().is_some() {
            return doc.expect_boolean(node, "`oauth`")?.then(Self::default);
        }
        let fields = doc.fields(node, &OAUTH_MAPPING)?;
        let oauth = Self {
            client_id_env: fields.text("client_id_env").map(str::to_owned),
            client_secret_env: fields.text("client_secret_env").map(str::to_owned),
            scopes: fields.texts("scopes"),
            has_own_access: fields.text("grant") == Some(CLIENT_CREDENTIALS),
        };
        let needs_client = oauth.has_own_access || oauth.client_secret_env.is_some();
        if oauth.client_id_env.is_none() && needs_client {
            let help = "name the variable with the id of the client: `client_id_env: NAME`";
            doc.report(node, "`oauth` has no client", help);
        }
        Some(oauth)
    }
}

impl AgentMcpServer {
    /// The variables with secrets for the server, which no other child receives.
    pub fn key_variables(&self) -> impl Iterator<Item = &str> {
        let secret = self.oauth.as_ref().and_then(|oauth| oauth.client_secret_env.as_deref());
        self.token_env.as_deref().into_iter().chain(secret)
    }

    /// Reads the servers in `mcp:` of a file.
    pub(crate) fn read_all(doc: &YamlDocument, fields: MappingFields<'_>) -> Vec<Self> {
        let Some(node) = fields.non_null(MCP_KEY) else { return Vec::new() };
        let entries = doc.expect_mapping(node, "`mcp`").unwrap_or_default();
        entries.iter().filter_map(|(key, value)| Self::read(doc, key, value)).collect()
    }

    fn read(doc: &YamlDocument, key: &YamlNode, node: &YamlNode) -> Option<Self> {
        let name = doc.expect_text(key, "the name of a server")?;
        if !is_server_name(name) {
            let help = format!("use 1 to {MAX_NAME_BYTES} lower-case letters, digits or `-`");
            doc.report(key, format!("`{name}` is not the name of a server"), help);
            return None;
        }
        let fields = doc.fields(node, &MCP_SERVER_MAPPING)?;
        let command = fields.texts("command");
        let url = fields.text("url").map(str::to_owned);
        if url.is_none() && command.first().is_none_or(String::is_empty) {
            let command = fields.non_null("command");
            // Anything but a list is already reported.
            if command.is_none_or(|command| matches!(command.value, YamlValue::Sequence(_))) {
                let help = "write `command: [PROGRAM, ARG, ...]` or `url: https://...`";
                let at = command.unwrap_or(node);
                doc.report(at, format!("the server `{name}` has no program"), help);
            }
            return None;
        }
        if let Some(at) = fields.non_null("url").filter(|_| !command.is_empty()) {
            let message = format!("the server `{name}` has `command` and `url`");
            doc.report(at, message, "keep one of them");
        }
        let (misplaced, needs) = match url {
            Some(_) => (&["env", "pass_env", "sandbox"][..], "command"),
            None => (&["token_env", "oauth", "headers"][..], "url"),
        };
        for key in misplaced {
            if let Some(at) = fields.non_null(key) {
                let help = format!("remove it, or use a server with `{needs}`");
                doc.report(at, format!("`{key}` belongs to a server with `{needs}`"), help);
            }
        }
        let oauth = fields.non_null("oauth").and_then(|node| AgentOAuth::read(doc, node));
        if let Some(at) = fields.non_null("token_env").filter(|_| oauth.is_some()) {
            doc.report(at, "`token_env` and `oauth` exclude each other", None);
        }
        let approve = fields.non_null("approve").and_then(|node| {
            // The parameters are in the lock file, which is read later.
            ApprovalPolicy::read(doc, node, &mut |_| Ok(()))
        });
        Some(Self {
            name: name.to_owned(),
            command,
            url,
            env: text_map(doc, fields, "env"),
            pass_env: fields.texts("pass_env"),
            token_env: fields.text("token_env").map(str::to_owned),
            oauth,
            headers: text_map(doc, fields, "headers"),
            start_timeout_ms: fields.integer("start_timeout_ms")?,
            timeout_ms: fields.integer("timeout_ms")?,
            locked: None,
            file: doc.name.clone(),
            line: key.line,
            selected: fields.non_null("tools").map(|_| fields.texts("tools")),
            rename: text_map(doc, fields, "rename").into_iter().collect(),
            idempotent: fields.texts("idempotent"),
            parallel: fields.texts("parallel"),
            approve,
            sandbox: fields.non_null("sandbox").and_then(|node| SandboxSetting::read(doc, node)),
            max_output_bytes: usize::try_from(fields.integer("max_output_bytes")?).ok()?,
            output: match fields.text("output") {
                Some("text") => ToolOutput::Text,
                _ => ToolOutput::TextAndImages,
            },
            has_structured: fields.boolean("structured"),
            yaml: yaml::to_flow_entry(key, node),
        })
    }

    /// Its definition as YAML on one line, with its name.
    pub(crate) fn yaml(&self) -> &str {
        &self.yaml
    }

    /// The program and its arguments with the engine variables replaced.
    pub fn expanded_command(&self, vars: &EngineVars) -> Vec<String> {
        self.command.iter().map(|word| vars.expand_text(word)).collect()
    }

    /// Takes its part of the lock file.
    ///
    /// # Errors
    /// It is not locked, or as another server.
    pub(crate) fn set_lock(&mut self, lock: &LockFile, agent: &Path) -> Result<(), Diagnostic> {
        let name = &self.name;
        let locked = lock.servers.get(name);
        let is_same = locked.is_some_and(|locked| {
            locked.url == self.url && locked.command.as_deref().unwrap_or_default() == self.command
        });
        let lacks_issuer = self.oauth.is_some() && locked.is_some_and(|it| it.issuer.is_none());
        if !is_same || lacks_issuer {
            let problem = match locked {
                None => format!("the MCP server `{name}` is not locked"),
                Some(_) if is_same => {
                    format!("the MCP server `{name}` is locked without the issuer of its tokens")
                }
                Some(_) => {
                    format!("the MCP server `{name}` is locked with another `command` or `url`")
                }
            };
            let agent = delta_base::shell_quote::shell_quote_path(agent);
            let help = format!(
                "run `delta mcp lock --agent {agent} {name}`, look at what it offers, and add `--write`"
            );
            return Err(self.diagnostic(problem, Some(help)));
        }
        self.locked = locked.cloned();
        Ok(())
    }

    /// The locked tool that the server or the LLM calls `name`.
    pub fn find_tool(&self, name: &str) -> Option<&LockedTool> {
        let locked = self.locked.as_ref()?;
        locked
            .tool(name)
            .or_else(|| locked.tools.iter().find(|tool| self.llm_name(&tool.name) == name))
    }

    /// The server's names of the tools whose calls may run at the same time.
    pub fn parallel_tools(&self) -> &[String] {
        &self.parallel
    }

    /// The tools that the LLM may call, each with its name for it. Empty without a lock.
    pub fn offered_tools(&self) -> impl Iterator<Item = (String, &LockedTool)> {
        let locked = self.locked.iter().flat_map(|locked| &locked.tools);
        locked
            .filter(|tool| self.is_selected(&tool.name))
            .map(|tool| (self.llm_name(&tool.name), tool))
    }

    /// What is wrong with the arguments of a tool, by its schema.
    pub fn argument_errors(tool: &LockedTool, arguments: &Json) -> Vec<String> {
        match compile_portable(&tool.input_schema()) {
            Ok(schema) => {
                schema.find_violations(arguments).iter().map(ToString::to_string).collect()
            }
            // An agent with such a schema does not load; the server may understand it.
            Err(_) => Vec::new(),
        }
    }

    /// Whether the LLM may call the tool that the server calls `tool`.
    pub fn is_selected(&self, tool: &str) -> bool {
        self.selected.as_ref().is_none_or(|names| names.iter().any(|name| name == tool))
    }

    /// The LLM's name for the tool that the server calls `tool`.
    fn llm_name(&self, tool: &str) -> String {
        self.rename.get(tool).cloned().unwrap_or_else(|| format!("{}__{tool}", self.name))
    }

    /// The tools that the LLM may call.
    pub(crate) fn build_tools(&self) -> Result<Vec<Tool>, Vec<Diagnostic>> {
        let Some(locked) = &self.locked else { return Ok(Vec::new()) };
        let mut problems = Vec::new();
        let renamed = self.rename.keys().map(|name| ("rename", name));
        let selected = self.selected.iter().flatten().map(|name| ("tools", name));
        let idempotent = self.idempotent.iter().map(|name| ("idempotent", name));
        let parallel = self.parallel.iter().map(|name| ("parallel", name));
        for (key, name) in selected.chain(renamed).chain(idempotent).chain(parallel) {
            if locked.tool(name).is_none() {
                let names = locked.tools.iter().map(|tool| tool.name.as_str());
                problems.push(self.diagnostic(
                    format!(
                        "`{key}` of the MCP server `{}` names `{name}`, which is not locked",
                        self.name
                    ),
                    Some(suggest::did_you_mean(name, names)),
                ));
            }
        }
        let server_sha256 = locked.sha256();
        let mut tools = Vec::new();
        for (index, tool) in locked.tools.iter().enumerate() {
            if !self.is_selected(&tool.name) {
                continue;
            }
            // `rename:` goes by the server's name, so it cannot tell them apart.
            if locked.tools[..index].iter().any(|earlier| earlier.name == tool.name) {
                problems.push(self.diagnostic(
                    format!(
                        "the MCP server `{}` offers two tools named `{}`",
                        self.name, tool.name
                    ),
                    Some("leave both out: name the other tools in `tools:`".to_owned()),
                ));
                continue;
            }
            match self.build_tool(&server_sha256, tool) {
                Ok(tool) => tools.push(tool),
                Err(problem) => problems.push(problem),
            }
        }
        problems.extend(self.check_rules(&tools));
        if problems.is_empty() { Ok(tools) } else { Err(problems) }
    }

    /// The parameters in its `approve` that none of its tools has: a rule with one would never apply.
    fn check_rules(&self, tools: &[Tool]) -> Vec<Diagnostic> {
        let parameters = tools.iter().flat_map(|tool| &tool.parameters);
        let names: BTreeSet<&str> = parameters.map(|parameter| parameter.name.as_str()).collect();
        let matched = self.approve.iter().flat_map(ApprovalPolicy::matched_parameters);
        let unknown = matched.filter(|name| !names.contains(name));
        unknown.map(|name| self.unknown_parameter(name, &names)).collect()
    }

    fn unknown_parameter(&self, name: &str, names: &BTreeSet<&str>) -> Diagnostic {
        let message = format!(
            "unknown parameter `{name}` in `approve` of the MCP server `{}`: none of its tools has it",
            self.name
        );
        self.diagnostic(message, Some(suggest::did_you_mean(name, names.iter().copied())))
    }

    /// Why the agent in `home` could not be loaded with this lock, as far as the server's tools are the reason.
    pub fn lock_problems(&self, lock: &LockFile, home: &Path) -> Vec<Diagnostic> {
        let mut server = self.clone();
        match server.set_lock(lock, home) {
            Ok(()) => server.build_tools().err().unwrap_or_default(),
            Err(problem) => vec![problem],
        }
    }

    /// The tool of a definition; `server_sha256` is of the whole server that is locked.
    fn build_tool(&self, server_sha256: &str, definition: &LockedTool) -> Result<Tool, Diagnostic> {
        let server_name = definition.name.as_str();
        let name = self.llm_name(server_name);
        if !tool::is_tool_name(&name) {
            let help = format!(
                "a tool's name has 1 to 64 letters, digits, `_` or `-`: write `rename: {{{server_name}: NAME}}`, or leave it out with `tools:`"
            );
            return Err(self.diagnostic(format!("`{name}` is not a tool name"), Some(help)));
        }
        let schema = definition.input_schema();
        let validator = compile_portable(&schema).map_err(|errors| {
            let error = errors.into_iter().next();
            let (pointer, message) =
                error.map(|error| (error.pointer, error.message)).unwrap_or_default();
            let at = if pointer.is_empty() { String::new() } else { format!(", {pointer}") };
            self.diagnostic(
                format!(
                    "the schema of `{server_name}` of the MCP server `{}`{at}: {message}",
                    self.name
                ),
                Some("leave the tool out: name the others in `tools:`".to_owned()),
            )
        })?;
        let portable = portable_schema(&schema);
        let mut words = vec!["delta", "mcp", "call", &self.name, server_name];
        if !self.has_structured {
            words.push("--no-structured");
        }
        Ok(Tool {
            name,
            description: Some(definition.description().to_owned()),
            syntax: ToolSyntax::Command,
            template: words.join(" "),
            words: words.into_iter().map(CommandWord::literal).collect(),
            parameters: schema_parameters(&portable),
            timeout_ms: self.timeout_ms,
            max_output_bytes: self.max_output_bytes,
            env: Vec::new(),
            pass_env: Vec::new(),
            idempotent: self.idempotent.iter().any(|name| name == server_name),
            survives: false,
            parallel: self.parallel.iter().any(|name| name == server_name),
            background: Background::End,
            output: self.output,
            ends_run: EndsRun::Never,
            approve: self.approve.clone(),
            strict_arguments: false,
            preview: None,
            remember: None,
            is_staged: false,
            runs_delta: true,
            sandbox: self.sandbox.clone(),
            profile: None,
            schema: Some(Arc::new(ValueSchema { json: portable, validator })),
            mcp: Some(Arc::new(McpTool {
                server: self.name.clone(),
                server_sha256: server_sha256.to_owned(),
                settings: self.yaml.clone(),
            })),
            file: self.file.clone(),
            line: self.line,
        })
    }

    fn diagnostic(&self, message: String, help: Option<String>) -> Diagnostic {
        Diagnostic::for_file(format!("{}:{}", self.file, self.line), message, help)
    }
}

/// Whether `name` is a valid name of a server.
fn is_server_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

fn text_map(doc: &YamlDocument, fields: MappingFields<'_>, key: &str) -> Vec<(String, String)> {
    let Some(node) = fields.non_null(key) else { return Vec::new() };
    let entries = doc.expect_mapping(node, &format!("`{key}`")).unwrap_or_default();
    let entries = entries.iter().filter_map(|(name, value)| {
        let name = doc.expect_text(name, "a name")?;
        Some((name.to_owned(), doc.expect_text(value, &format!("`{name}`"))?.to_owned()))
    });
    entries.collect()
}
