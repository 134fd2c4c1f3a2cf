//! Why a server did not do what it was asked.

use crate::json_rpc::{NO_CODE, RpcError};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// A failure of a request; each kind has an exit code of `delta mcp call`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpFailure {
    /// The server answered with an error.
    Protocol {
        /// The code.
        code: i64,
        /// The reason.
        message: String,
    },
    /// The server answered with something that is not an answer.
    InvalidAnswer(String),
    /// The server could not be started, did not answer, or has died.
    Unreachable(String),
    /// The server asks for input that was not given; the requests as the server wrote them.
    NeedsInput(Json),
    /// The definition is not the locked one.
    Changed(String),
    /// The server gets no token: it needs a login, or more than the last one gave.
    Unauthorized(String),
    /// The server no longer knows the session, so it has not taken the request.
    SessionEnded,
    /// The caller gave up.
    Cancelled,
}

impl McpFailure {
    /// An answer that breaks the protocol.
    pub fn invalid_answer(message: impl Into<String>) -> Self {
        Self::InvalidAnswer(message.into())
    }

    /// This process has no descriptor left.
    pub fn no_descriptor(error: &std::io::Error) -> Self {
        Self::Unreachable(format!("could not create a descriptor: {error}"))
    }

    /// The exit code of `delta mcp call`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Protocol { .. } | Self::InvalidAnswer(_) => 3,
            Self::Unreachable(_) | Self::SessionEnded => 4,
            Self::NeedsInput(_) => 5,
            Self::Changed(_) => 6,
            Self::Unauthorized(_) => 7,
            Self::Cancelled => 130,
        }
    }
}

impl From<RpcError> for McpFailure {
    fn from(error: RpcError) -> Self {
        Self::Protocol { code: error.code, message: error.words() }
    }
}

impl std::fmt::Display for McpFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Protocol { code: NO_CODE, message } => {
                write!(f, "the server answered an error: {message}")
            }
            Self::Protocol { code, message } => {
                write!(f, "the server answered error {code}: {message}")
            }
            Self::InvalidAnswer(reason) => {
                write!(f, "the answer of the server does not follow the protocol: {reason}")
            }
            Self::Unreachable(reason) | Self::Changed(reason) | Self::Unauthorized(reason) => {
                f.write_str(reason)
            }
            Self::NeedsInput(requests) => {
                write!(f, "the server asks for input, which was not given: {requests}")
            }
            Self::SessionEnded => f.write_str("the server ended the session"),
            Self::Cancelled => f.write_str("interrupted"),
        }
    }
}
