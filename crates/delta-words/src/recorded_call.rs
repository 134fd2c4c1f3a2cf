//! A call of an earlier run.

use crate::Reply;

/// A recorded call of an LLM.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// The SHA-256 of the request, in hexadecimal digits.
    pub request_sha256: String,
    /// The reply, or the error message of the call.
    pub result: Result<Reply, String>,
}
