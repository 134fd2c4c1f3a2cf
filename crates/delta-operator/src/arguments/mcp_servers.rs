//! From an MCP server in agent.yaml to what a connection needs: variables, token and proxy in place.

use crate::failure::CommandFailure;
use crate::state;
use delta_agent::agent::env_layers::{EnvLayers, EnvMap};
use delta_agent::mcp_server::AgentMcpServer;
use delta_base::api_key_names::KEY_SOURCE_VARIABLES;
use delta_base::engine_variables::EngineVars;
use delta_base::shell_quote::shell_quote_path;
use delta_base::time::current_time;
use delta_http::PROXY_VARIABLES;
use delta_llm::llm::endpoint::{EnvOrigin, find_proxy};
use delta_mcp::holder_config::HolderConfig;
use delta_mcp::oauth::OAuthSettings;
use delta_mcp::oauth::saved_login::{SavedLogin, TokenStep, read_login};
use delta_mcp::oauth::token_endpoint::OAuthClient;
use delta_mcp::server_spec::{ServerSpec, is_base_variable};
use std::collections::BTreeMap;
use std::ffi::OsStr;

/// The servers of an agent, for the processes that hold them.
///
/// # Errors
/// The variable of a token is not set, or a login is missing.
pub fn holder_configs(
    servers: &[AgentMcpServer],
    vars: &EngineVars,
    layers: &EnvLayers,
    inherited: &EnvMap,
) -> Result<Vec<HolderConfig>, CommandFailure> {
    let locked = servers.iter().filter_map(|server| Some((server, server.locked.as_ref()?)));
    let configs = locked.map(|(server, locked)| {
        let spec = server_spec(server, vars, layers, inherited)?;
        check_login(&spec)?;
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
    let oauth = match (&server.url, &server.oauth) {
        (Some(url), Some(oauth)) => {
            let variable = |name: &Option<String>| {
                let name = name.as_ref()?;
                Some(text_variable(inherited, name).ok_or_else(|| {
                    let server = &server.name;
                    let hint =
                        format!("`oauth` of the MCP server `{server}` names it: export {name}=...");
                    CommandFailure::config(format!("`{name}` is not set"), hint)
                }))
            };
            let id = variable(&oauth.client_id_env).transpose()?;
            let secret = variable(&oauth.client_secret_env).transpose()?;
            let agent = shell_quote_path(&vars.agent_home);
            let command = format!("delta mcp login {} --agent {agent}", server.name);
            let client = id.map(|id| OAuthClient { id, secret });
            let settings = oauth_settings(url, client, command, layers).map_err(|reason| {
                CommandFailure::config(format!("there is no place for a login: {reason}"), None)
            })?;
            Some(OAuthSettings {
                scopes: oauth.scopes.clone(),
                has_own_access: oauth.has_own_access,
                issuer: server.locked.as_ref().and_then(|locked| locked.issuer.clone()),
                ..settings
            })
        }
        _ => None,
    };
    Ok(ServerSpec {
        name: server.name.clone(),
        command: server.expanded_command(vars),
        url: server.url.clone(),
        env,
        headers: server.headers.iter().cloned().collect(),
        token,
        oauth,
        proxy,
        cwd: vars.cwd.clone(),
        start_timeout_ms: server.start_timeout_ms,
        timeout_ms: server.timeout_ms,
        sandbox: None,
    })
}

/// How the server at `url` gets tokens from the login that `login_command` makes.
///
/// # Errors
/// The operator has no place for a login; contains the reason.
pub fn oauth_settings(
    url: &str,
    client: Option<OAuthClient>,
    login_command: String,
    layers: &EnvLayers,
) -> Result<OAuthSettings, String> {
    let names = PROXY_VARIABLES.into_iter().flat_map(|name| [name.to_owned(), name.to_lowercase()]);
    let proxy_variables = names.filter_map(|name| {
        let mut settings = layers.settings(&name).into_iter();
        let value = settings.find(|setting| setting.origin == EnvOrigin::Process)?.value;
        Some((name, value))
    });
    Ok(OAuthSettings {
        login_file: state::mcp_login_file(url, client.as_ref().map(|client| client.id.as_str()))?,
        client,
        scopes: Vec::new(),
        has_own_access: false,
        issuer: None,
        login_command,
        proxy_variables: proxy_variables.collect(),
    })
}

/// The login for a server of a run that takes its tokens from one.
fn read_login_of(spec: &ServerSpec) -> Result<Option<SavedLogin>, CommandFailure> {
    let Some((settings, url)) = spec.oauth.as_ref().zip(spec.url.as_ref()) else { return Ok(None) };
    read_login(settings, url).map_err(|failure| CommandFailure::config(failure.to_string(), None))
}

/// Refuses a server whose calls would all fail because the login is missing: a run waits for no browser.
fn check_login(spec: &ServerSpec) -> Result<(), CommandFailure> {
    let Some(settings) = spec.oauth.as_ref().filter(|settings| !settings.has_own_access) else {
        return Ok(());
    };
    let reason = match read_login_of(spec)? {
        None => "there is none yet".to_owned(),
        Some(login) => match login.issuer_conflict(settings) {
            Some(reason) => reason,
            None if login.next_step(None, current_time().as_millis()) == TokenStep::Obtain => {
                "the last one has expired".to_owned()
            }
            None => return Ok(()),
        },
    };
    let message = format!("the MCP server `{}` needs a login: {reason}", spec.name);
    Err(CommandFailure::config(message, format!("run `{}`", settings.login_command)))
}

/// The tokens for a server that no output may have.
pub fn login_secrets(spec: &ServerSpec) -> Vec<String> {
    let login = read_login_of(spec).ok().flatten();
    login.iter().flat_map(SavedLogin::secrets).map(str::to_owned).collect()
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
