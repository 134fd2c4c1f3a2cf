//! What an endpoint tells about a model that it offers.

/// A model that an endpoint offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedModel {
    /// The name, as `llm.model` has it.
    pub name: String,
    /// The most tokens of a request, and where the endpoint has one number for both, of a request and its answer; if it tells.
    pub max_input: Option<u64>,
    /// The most tokens of an answer, if the endpoint tells.
    pub max_output: Option<u64>,
    /// Whether the model gets to see tools, if the endpoint tells.
    pub takes_tools: Option<bool>,
}
