//! A request of an MCP client: its era, and what the client can do.

use delta_mcp::json_rpc::{INVALID_PARAMS, RpcError, RpcId};
use delta_mcp::protocol_era::{
    META_CAPABILITIES, META_VERSION, MISSING_CAPABILITY, MODERN_VERSION, ProtocolEra,
    TASKS_EXTENSION, UNSUPPORTED_VERSION, lacks_version,
};
use serde_json::{Value as Json, json};

/// What a client can do.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientAbilities {
    /// It shows forms to its user.
    pub elicits: bool,
    /// It polls tasks.
    pub has_tasks: bool,
}

impl ClientAbilities {
    /// Reads the capabilities that a client declares.
    pub fn from_capabilities(capabilities: &Json) -> Self {
        let elicitation = capabilities.get("elicitation");
        // Without any mode, forms are meant.
        let elicits = elicitation
            .is_some_and(|modes| modes.get("form").is_some() || modes.get("url").is_none());
        let extensions = capabilities.get("extensions");
        let has_tasks = extensions.is_some_and(|all| all.get(TASKS_EXTENSION).is_some());
        Self { elicits, has_tasks }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub struct ClientRequest {
    pub id: RpcId,
    pub era: ProtocolEra,
    pub params: Json,
    pub abilities: ClientAbilities,
}

impl ClientRequest {
    /// Reads a request. `legacy` is what the client declared with `initialize`.
    ///
    /// # Errors
    /// The version is unknown, or the request does not say what every modern request says.
    pub fn read(
        id: RpcId,
        method: &str,
        params: Json,
        legacy: ClientAbilities,
    ) -> Result<Self, RpcError> {
        if lacks_version(method, &params) {
            let message = format!("expected `{META_VERSION}` in `_meta`");
            return Err(RpcError::new(INVALID_PARAMS, message));
        }
        let era = ProtocolEra::of_request(&params);
        let mut abilities = ClientAbilities { has_tasks: false, ..legacy };
        if era == ProtocolEra::Modern {
            let meta = &params["_meta"];
            if meta[META_VERSION] != MODERN_VERSION {
                let message = format!("expected version {MODERN_VERSION} of the protocol");
                let data = json!({"supported": [MODERN_VERSION], "requested": meta[META_VERSION]});
                let data = Some(data);
                return Err(RpcError { code: UNSUPPORTED_VERSION, message, data });
            }
            if !meta[META_CAPABILITIES].is_object() {
                let message = format!("expected an object as `{META_CAPABILITIES}` in `_meta`");
                return Err(RpcError::new(INVALID_PARAMS, message));
            }
            abilities = ClientAbilities::from_capabilities(&meta[META_CAPABILITIES]);
        }
        Ok(Self { id, era, params, abilities })
    }

    /// Refuses a client that does not poll tasks.
    pub fn require_tasks(&self) -> Result<(), RpcError> {
        if self.abilities.has_tasks {
            return Ok(());
        }
        let message = format!("expected the extension {TASKS_EXTENSION} among the capabilities");
        let data = json!({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}});
        Err(RpcError { code: MISSING_CAPABILITY, message, data: Some(data) })
    }

    /// The token with which the client asks for progress.
    pub fn progress_token(&self) -> Option<Json> {
        self.params["_meta"].get("progressToken").filter(|token| !token.is_null()).cloned()
    }

    /// What names the call in the client's own records, if it sends that: the same when it repeats the call.
    pub fn call_key(&self) -> Option<String> {
        let meta = &self.params["_meta"];
        let thread = meta["threadId"].as_str()?;
        let call = meta["callId"].as_str()?;
        let digits = delta_base::hex::sha256_hex(json!([thread, call]).to_string());
        Some(digits[..20].to_owned())
    }
}
