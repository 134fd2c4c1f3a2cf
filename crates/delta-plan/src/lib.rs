//! What a run of an agent does next with a call or a request, decided without doing it.
//!
//! Pure: everything follows from the agent and the state that the journal gives. The engine acts on these decisions, and a
//! replay compares them with what the run recorded. So the wording of the observations is a format.

pub mod answer_verdict;
pub mod approval_plan;
pub mod call_plan;
pub mod checked_call;
pub mod dropped_tools;
pub mod hook_observation;
pub mod request_body;
pub mod text_call;
