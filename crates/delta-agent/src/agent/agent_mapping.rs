//! The keys of agent.yaml, and what to write in place of what authors write by mistake.

use super::finish_tool;
use super::snapshot_settings::SNAPSHOTS_SCHEMA;
use super::tool_defaults::DEFAULTS_MAPPING;
use crate::context::SYSTEM_PROMPT_FILE;
use crate::mcp_server::{MCP_KEY, MCP_SHAPE};
use crate::{hook, tool};
use delta_base::engine_variables::is_identifier;
use delta_llm::llm::config;
use delta_run::limits::LIMITS_MAPPING;
use delta_sandbox::SANDBOX_SHAPE;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlNode};

/// The section `llm:` of agent.yaml, with the shape of its sandbox, of which the providers know nothing.
pub static LLM_SECTION: MappingSchema = config::llm_mapping(&LLM_SECTION_KEYS);

static LLM_SECTION_KEYS: [KeySchema; config::LLM_KEY_COUNT] = config::llm_keys(SANDBOX_SHAPE);

/// The keys of agent.yaml.
pub static AGENT_MAPPING: MappingSchema = MappingSchema::new(
    "agent.yaml",
    "An agent: its identity, its LLM and its tools.",
    &[
        KeySchema::required("name", ValueShape::Text, "Its name."),
        KeySchema::optional("version", ValueShape::Text, "The version, for humans only."),
        KeySchema::optional("description", ValueShape::Text, "The purpose, for humans only."),
        KeySchema::optional(
            "llm",
            ValueShape::Mapping(&LLM_SECTION),
            "The LLM; the operator's default model without it.",
        )
        .with_help(llm_help),
        KeySchema::with_default(
            "system_prompt",
            ValueShape::Text,
            DefaultValue::Text(SYSTEM_PROMPT_FILE),
            "The file with the system prompt, relative to the agent directory.",
        ),
        KeySchema::optional(
            "imports",
            ValueShape::List(&ValueShape::Text),
            "Files whose `tools:` and `mcp:` are added, relative to this file.",
        ),
        KeySchema::optional(
            "tools",
            ValueShape::List(&ValueShape::Mapping(&tool::TOOL_MAPPING)),
            "The commands that the LLM may call.",
        )
        .with_help(tools_help),
        KeySchema::optional(MCP_KEY, MCP_SHAPE, "The MCP servers whose tools the LLM may call."),
        KeySchema::optional(
            "skills",
            ValueShape::List(&ValueShape::Text),
            "Directories of Agent Skills, relative to the agent directory, or below `${CWD}` where the operator allows that.",
        ),
        KeySchema::optional(
            "defaults",
            ValueShape::Mapping(&DEFAULTS_MAPPING),
            "The settings of all tools that do not have their own.",
        ),
        KeySchema::optional(
            "sandbox",
            SANDBOX_SHAPE,
            "What tools and generators may do: `workspace`, `reader`, `off` (the default), a name in `sandboxes`, or a map of keys over `workspace`.",
        ),
        KeySchema::optional(
            "sandboxes",
            ValueShape::MapOf(&ValueShape::Mapping(&delta_sandbox::PROFILE_MAPPING)),
            "Sandboxes by name, each a map of keys over `workspace`.",
        ),
        KeySchema::optional(
            "env_file",
            ValueShape::List(&ValueShape::Text),
            "The variables that tools get from a trusted `.env` outside of the agent directory.",
        )
        .with_help(env_file_help),
        KeySchema::with_default(
            "max_iterations",
            ValueShape::Integer(1..1 << 31),
            DefaultValue::Integer(30),
            "The number of LLM answers one process may request.",
        ),
        KeySchema::optional("limits", ValueShape::Mapping(&LIMITS_MAPPING), "The limits of a run."),
        KeySchema::with_default(
            "finish",
            ValueShape::OneOf(&[
                ValueShape::Boolean,
                ValueShape::Mapping(&finish_tool::FINISH_MAPPING),
            ]),
            DefaultValue::Boolean(true),
            "Whether the LLM is offered the tool `finish`, the schema of its arguments, and whether only a call ends the run.",
        ),
        KeySchema::with_default(
            "ask_human",
            ValueShape::Boolean,
            DefaultValue::Boolean(true),
            "Whether the LLM is offered the tool `ask_human`.",
        ),
        KeySchema::with_default(
            "snapshots",
            ValueShape::OneOf(&[ValueShape::Boolean, ValueShape::Mapping(&SNAPSHOTS_SCHEMA)]),
            DefaultValue::Boolean(false),
            "Whether a run takes a snapshot of its workspace at each iteration, and what it leaves out.",
        ),
        KeySchema::optional(
            hook::HOOKS_SECTION,
            ValueShape::Mapping(&hook::HOOKS_SECTION_MAPPING),
            "Deprecated: write hooks.yaml.",
        ),
        KeySchema::misplaced("hooks", "hooks belong in hooks.yaml, next to this file"),
        KeySchema::misplaced("sources", "sources belong in context.yaml, next to this file"),
        KeySchema::misplaced("context", "sources belong in context.yaml, next to this file"),
        KeySchema::misplaced("model", IN_LLM),
        KeySchema::misplaced("provider", IN_LLM),
        KeySchema::misplaced("base_url", IN_LLM),
        KeySchema::misplaced("temperature", IN_LLM),
        KeySchema::misplaced(
            "api_key",
            "put the key into DELTA_API_KEY, or name its variable: `llm: {api_key_env: MY_KEY}`",
        ),
        KeySchema::misplaced("max_cost", IN_LIMITS),
        KeySchema::misplaced("max_duration_ms", IN_LIMITS),
        KeySchema::misplaced(
            "max_tokens",
            "it belongs under `limits:`, for a run, or under `llm:`, for one answer",
        ),
        KeySchema::misplaced("max_turns", ITERATIONS),
        KeySchema::misplaced("max_steps", ITERATIONS),
        KeySchema::misplaced("exec", IN_TOOLS),
        KeySchema::misplaced("shell", IN_TOOLS),
        KeySchema::misplaced("command", IN_TOOLS),
        KeySchema::misplaced("timeout_ms", IN_TOOLS),
        KeySchema::misplaced("env", IN_TOOLS),
        KeySchema::misplaced(
            "approve",
            "write `defaults: {approve: ask}`, for all tools, or `approve: ask` in a tool",
        ),
        KeySchema::misplaced(
            "stage",
            "write `stage: ask` in a tool; `delta run --stage` stages all changes of a run",
        ),
        KeySchema::misplaced("net", IN_SANDBOX),
        KeySchema::misplaced("network", "write `sandbox: {net: all}`, or list hosts in `net`"),
        KeySchema::misplaced("write", IN_SANDBOX),
        KeySchema::misplaced("hide", IN_SANDBOX),
        KeySchema::misplaced("mcp_servers", MCP_SERVERS),
        KeySchema::misplaced("mcpServers", MCP_SERVERS),
        KeySchema::misplaced("prompt", IN_SYSTEM_PROMPT),
        KeySchema::misplaced("instructions", IN_SYSTEM_PROMPT),
    ],
);

const IN_LLM: &str = "it belongs under `llm:`";
const IN_LIMITS: &str = "it belongs under `limits:`";
const IN_TOOLS: &str = "it belongs in an entry of `tools:`";
const IN_SANDBOX: &str = "it belongs under `sandbox:`";
const IN_SYSTEM_PROMPT: &str = "write it into system_prompt.md, next to this file";
const ITERATIONS: &str = "the key is `max_iterations`";
const MCP_SERVERS: &str = "write `mcp: {NAME: {command: [PROGRAM, ARG]}}`";

/// The name of a model in place of the mapping.
fn llm_help(node: &YamlNode) -> Option<String> {
    let model = node.scalar()?;
    Some(match model.split_once(':') {
        Some((provider, name)) if config::PROVIDER_NAMES.contains(&provider) => {
            format!("write `llm: {{provider: {provider}, model: {name}}}`")
        }
        _ => format!("write `llm: {{model: {model}}}`"),
    })
}

/// Tools by their names in place of a list.
fn tools_help(node: &YamlNode) -> Option<String> {
    let (key, _) = node.entries().first()?;
    let name = key.scalar().unwrap_or("list_files");
    Some(format!(
        "write each tool as an entry of a list that begins with its name: `- name: {name}`"
    ))
}

/// A file in place of names.
fn env_file_help(node: &YamlNode) -> Option<String> {
    let text = node.scalar().filter(|text| !is_identifier(text))?;
    Some(format!(
        "list the variables that tools get, as in `env_file: [NAME]`; `delta run --env-file {text}` reads a file"
    ))
}
