//! The two eras of the protocol: the modern one, whose requests carry everything, and the legacy one, which opens with
//! `initialize`.

use crate::json_rpc::RpcError;
use serde_json::{Map, Value as Json, json};

/// The version of the modern era.
pub const MODERN_VERSION: &str = "2026-07-28";
/// The versions of the legacy era, newest first.
pub const LEGACY_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The member of `params._meta` with the version of a modern request.
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of `params._meta` with what the client can do.
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The member of `params._meta` with the name and the version of the client.
pub const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// The member of `_meta` of a result with the name and the version of the server.
pub const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// The extension with which a call becomes a task.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A header of an HTTP request contradicts its body.
pub const HEADER_MISMATCH: i64 = -32020;
/// The client lacks a capability that the request needs.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The server does not speak the version of the request; `data.supported` lists what it speaks.
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// An era of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolEra {
    /// Without an opening: every request has its version and the client's capabilities.
    Modern,
    /// A connection opens with `initialize`.
    Legacy,
}

impl ProtocolEra {
    /// The name in mcp.lock.json.
    pub fn name(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }

    /// The era called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Modern, Self::Legacy].into_iter().find(|era| era.name() == name)
    }

    /// The era of a request, which its parameters decide.
    pub fn of_request(params: &Json) -> Self {
        match params.get("_meta").and_then(|meta| meta.get(META_VERSION)) {
            Some(_) => Self::Modern,
            None => Self::Legacy,
        }
    }
}

/// Whether a request without a version is one of the modern era that lacks it: only that era has the method or the member.
pub fn lacks_version(method: &str, params: &Json) -> bool {
    let meta = params.get("_meta");
    let has = |member: &str| meta.is_some_and(|meta| meta.get(member).is_some());
    let is_modern = method == "server/discover" || has(META_CAPABILITIES) || has(META_CLIENT);
    is_modern && !has(META_VERSION)
}

/// How delta introduces itself, as client and as server.
pub fn implementation_info() -> Json {
    json!({"name": "delta", "version": env!("CARGO_PKG_VERSION")})
}

/// Adds what every modern request has to `params`, an object or `Null`.
pub fn with_modern_meta(params: Json, capabilities: &Json) -> Json {
    let mut params = match params {
        Json::Object(params) => params,
        _ => Map::new(),
    };
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    meta[META_VERSION] = MODERN_VERSION.into();
    meta[META_CAPABILITIES] = capabilities.clone();
    meta[META_CLIENT] = implementation_info();
    Json::Object(params)
}

/// Whether the error that answered `server/discover` comes from a server of the modern era.
pub fn is_modern_refusal(error: &RpcError) -> bool {
    error.code == UNSUPPORTED_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_its_era() {
        let modern =
            with_modern_meta(json!({"name": "x", "_meta": {"progressToken": 1}}), &json!({}));
        assert_eq!(ProtocolEra::of_request(&modern), ProtocolEra::Modern);
        assert_eq!(modern["_meta"]["progressToken"], 1);
        assert_eq!(modern["name"], "x");
        for legacy in [Json::Null, json!({}), json!({"_meta": {"progressToken": 1}})] {
            assert_eq!(ProtocolEra::of_request(&legacy), ProtocolEra::Legacy);
        }
        for era in [ProtocolEra::Modern, ProtocolEra::Legacy] {
            assert_eq!(ProtocolEra::from_name(era.name()), Some(era));
        }
    }
}
