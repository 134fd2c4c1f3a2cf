//! The id of what a run asks a person: what `--request-id` names, and what an answer is for.

use crate::chain::ChainValue;
use crate::event::Event;
use crate::event::approval::{ApprovalRequest, RequestNaming};
use crate::state::HumanRequest;
use delta_base::id::{RunId, text_uuid};
use delta_base::time::Timestamp;

/// The event that asks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestEvent {
    seq: u64,
    chain: Option<ChainValue>,
}

impl RequestEvent {
    pub(crate) fn new(event: &Event) -> Self {
        Self { seq: event.seq, chain: event.chain }
    }

    /// The id of `request`, which this event asks, in the run `run_id`, which was created or forked at `created_at`.
    ///
    /// The chain covers the whole journal up to the event, and so the beginning of the run. The question itself is hashed
    /// too, because a chain value proves nothing about a line that was edited and kept its value.
    pub(crate) fn request_id(
        self,
        run_id: &RunId,
        created_at: Option<Timestamp>,
        request: HumanRequest<'_>,
    ) -> String {
        let (named_by, question) = match request {
            HumanRequest::Question(human) => (human.named_by, human.prompt.clone()),
            HumanRequest::Approval(request) => (request.named_by, approval_text(request)),
        };
        // Runs of earlier versions can be answered with the ids that these have printed.
        let Some((RequestNaming::Chain, chain)) = named_by.zip(self.chain) else {
            return text_uuid(&format!("{run_id} {}", self.seq));
        };
        let created_at = created_at.map(|at| at.to_string());
        text_uuid(&format!("{run_id} {} {created_at:?} {chain} {question:?}", self.seq))
    }
}

/// All that a person who approves agrees to.
fn approval_text(request: &ApprovalRequest) -> String {
    let stage = request
        .stage
        .as_ref()
        .map(|stage| (stage.base, stage.tree, &stage.changes_sha256, &stage.changes, &stage.diff));
    format!("{:?}", (&request.tool_name, &request.argv, &request.command_sha256, stage))
}
