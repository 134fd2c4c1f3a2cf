//! From an MCP server in agent.yaml to what a connection needs: variables, token and proxy in place.

use crate::failure::CommandFailure;
use delta_agent::agent::env_layers::{EnvLayers, EnvMap};
use delta_agent::mcp_server::AgentMcpServer;
use delta_base::api_key_names::KEY_SOURCE_VARIABLES;
use delta_base::engine_variables::EngineVars;
use delta_llm::llm::endpoint::find_proxy;
use delta_mcp::holder_config::HolderConfig;
use delta_mcp::server_spec::{ServerSpec, is_base_variable};
use std::collections::BTreeMap;
use std::ffi::OsStr;

/// The servers of an agent, for the processes that hold them.
///
/// # Errors
/// The variable of a token is not set.
pub fn holder_configs(
    servers: &[AgentMcpServer],
    vars: &EngineVars,
    layers: &EnvLayers,
    inherited: &EnvMap,
) -> Result<Vec<HolderConfig>, CommandFailure> {
    let locked = servers.iter().filter_map(|server| Some((server, server.locked.as_ref()?)));
    let configs = locked.map(|(server, locked)| {
        let spec = server_spec(server, vars, layers, inherited)?;
        let parallel = server.parallel_tools().to_vec();
        Ok(HolderConfig { spec, locked: locked.to_json(), parallel, sandbox: None })
    });
    configs.collect()
}

/// A server with all values in place. `inherited` is the environment of the engine and of the files that count.
///
/// # Errors
/// The variable of its token is not set.
pub fn server_spec(
    server: &AgentMcpServer,
    vars: &EngineVars,
    layers: &EnvLayers,
    inherited: &EnvMap,
) -> Result<ServerSpec, CommandFailure> {
    let token = match &server.token_env {
        None => None,
        Some(name) => Some(text_variable(inherited, name).ok_or_else(|| {
            let hint = format!(
                "it holds the token for the MCP server `{}`: export {name}=...",
                server.name
            );
            CommandFailure::config(format!("`{name}` is not set"), hint)
        })?),
    };
    let mut env: BTreeMap<String, String> = inherited
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
        .filter(|(name, _)| is_base_variable(name) || server.pass_env.iter().any(|it| it == name))
        .filter(|(name, _)| !KEY_SOURCE_VARIABLES.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let set = server.env.iter().map(|(name, value)| (name.clone(), vars.expand_text(value)));
    env.extend(set);
    let proxy = server.url.as_deref().and_then(|url| url_proxy(url, layers));
    Ok(ServerSpec {
        name: server.name.clone(),
        command: server.expanded_command(vars),
        url: server.url.clone(),
        env,
        headers: server.headers.iter().cloned().collect(),
        token,
        proxy,
        cwd: vars.cwd.clone(),
        start_timeout_ms: server.start_timeout_ms,
        timeout_ms: server.timeout_ms,
        sandbox: None,
    })
}

/// The value of a variable that is set and not empty.
fn text_variable(variables: &EnvMap, name: &str) -> Option<String> {
    let value = variables.get(OsStr::new(name))?.to_str()?;
    (!value.is_empty()).then(|| value.to_owned())
}

/// The proxy that the operator's environment names for a URL.
pub fn url_proxy(url: &str, layers: &EnvLayers) -> Option<String> {
    find_proxy(url, &|name| layers.settings(name))
}
