//! A session of an editor: a run, and the prompt that the editor waits for.

use super::session_update::{event_updates, message_chunk, output_update};
use crate::supervisor::ServedRun;
use delta_base::json::ExactJson;
use delta_base::redact::redact_answers;
use delta_mcp::json_rpc::{RpcId, RpcMessage};
use delta_operator::arguments::served_output::{PieceKind, ServedPiece};
use delta_operator::runs::own_run;
use delta_run::event::{Event, Payload, RunStatus, Thought};
use delta_run::state::RunState;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// A session.
pub struct EditorSession {
    pub run: ServedRun,
    /// The prompt that is being worked on.
    pub turn: Option<PromptTurn>,
    /// The number of the last event that the editor has seen.
    seen: u64,
    journal_bytes: u64,
    /// The last text of the agent that the editor has seen.
    last_text: String,
    /// What the editor has seen of the answer that is not in the journal yet.
    partial: PartialAnswer,
    /// The calls that run, by their ids, and the end of the output of each so far.
    outputs: BTreeMap<String, CallOutput>,
    /// The run after the last event that the editor has seen.
    state: RunState,
    /// Which approvals the user of the editor has given in advance.
    pub grants: ApprovalGrants,
}

/// The approvals that a user gives in advance, until the session or the editor is closed. No file has them: who loads the
/// session again is asked again.
#[derive(Default)]
pub struct ApprovalGrants {
    pub mode: SessionMode,
    /// The tools whose calls are approved.
    pub tools: BTreeSet<String>,
}

impl ApprovalGrants {
    /// Whether a call of `tool` that asks is approved.
    pub fn covers(&self, tool: &str) -> bool {
        self.mode == SessionMode::ApproveAll || self.tools.contains(tool)
    }
}

/// A mode that the editor lets its user choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionMode {
    /// Approvals go to the user.
    #[default]
    Ask,
    /// Every call that asks is approved.
    ApproveAll,
}

impl SessionMode {
    /// All of them, each with its id, its name and its description.
    pub const ALL: [(Self, &str, &str, &str); 2] = [
        (Self::Ask, "ask", "Ask", "Ask for the approvals that the agent wants"),
        (Self::ApproveAll, "approve-all", "Approve all", "Approve every call, and ask for none"),
    ];

    /// The mode with this id.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, ..)| *known == id).map(|(mode, ..)| *mode)
    }

    /// The modes as the answer to `session/new` has them, with this one as the current one.
    pub fn to_json(self) -> Json {
        let current = Self::ALL.iter().find(|(mode, ..)| *mode == self).map(|(_, id, ..)| *id);
        let modes = Self::ALL.map(|(_, id, name, description)| {
            json!({"id": id, "name": name, "description": description})
        });
        json!({"currentModeId": current, "availableModes": modes})
    }
}

/// An answer as far as it has arrived.
#[derive(Default)]
struct PartialAnswer {
    content: String,
    reasoning: String,
}

/// The output of a call that runs.
#[derive(Default)]
struct CallOutput {
    text: String,
    /// Whether there is more than the editor has seen.
    is_new: bool,
}

/// The bytes of a call's output that an editor sees while the call runs.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// A prompt without an answer yet.
pub struct PromptTurn {
    pub request: RpcId,
    /// The request to the editor that asks its user, and the event after which it was asked.
    pub asked: Option<(RpcId, u64)>,
    pub is_cancelled: bool,
}

impl PromptTurn {
    pub fn new(request: RpcId) -> Self {
        Self { request, asked: None, is_cancelled: false }
    }
}

impl EditorSession {
    pub fn new(run: ServedRun) -> Self {
        Self {
            run,
            turn: None,
            seen: 0,
            journal_bytes: 0,
            last_text: String::new(),
            partial: PartialAnswer::default(),
            outputs: BTreeMap::new(),
            state: RunState::default(),
            grants: ApprovalGrants::default(),
        }
    }

    /// An update of the session.
    fn update(&self, mut update: Json) -> RpcMessage {
        self.redact(&mut update);
        let params = json!({"sessionId": self.run.id, "update": update});
        RpcMessage::notification("session/update", params)
    }

    /// Redacts the sensitive answers of the run in every text of `value`, which goes to the editor.
    pub fn redact(&self, value: &mut Json) {
        redact_texts(value, &self.state.sensitive.answers);
    }

    /// Everything that happened in the run since the last time: `pieces`, and the events of the journal. With `is_replay`, as
    /// an editor shows an old session.
    pub fn read_updates(&mut self, pieces: Vec<ServedPiece>, is_replay: bool) -> Vec<RpcMessage> {
        let mut events = self.read_events().into_iter().peekable();
        let mut updates = Vec::new();
        for piece in pieces {
            while let Some(event) = events.next_if(|event| event.seq <= piece.after) {
                updates.extend(self.event_updates(&event, is_replay));
            }
            // A later event has all of what it belongs to.
            if piece.after >= self.seen {
                updates.extend(self.piece_update(piece));
            }
        }
        for event in events {
            updates.extend(self.event_updates(&event, is_replay));
        }
        updates.extend(self.take_output_updates());
        updates.into_iter().map(|update| self.update(update)).collect()
    }

    /// The events that the editor has not seen.
    fn read_events(&mut self) -> Vec<Event> {
        let bytes = self.run.journal_bytes();
        if bytes == self.journal_bytes {
            return Vec::new();
        }
        let Ok(contents) = own_run::read_journal(&self.run.id, &self.run.dir()) else {
            return Vec::new();
        };
        self.journal_bytes = bytes;
        contents.events.into_iter().filter(|event| event.seq > self.seen).collect()
    }

    fn event_updates(&mut self, event: &Event, is_replay: bool) -> Vec<Json> {
        self.seen = event.seq;
        let answers = self.state.sensitive.answers.len();
        self.state.apply(event);
        if self.state.sensitive.answers.len() > answers {
            // A short one could not be found in a text.
            return Vec::new();
        }
        let mut updates: Vec<Json> = Vec::new();
        match &event.payload {
            Payload::Thought(thought) => updates.extend(self.finish_answer(thought)),
            Payload::ActionRequest(request) => {
                self.outputs.insert(request.call_id.clone(), CallOutput::default());
            }
            Payload::ActionResult(result) => {
                self.outputs.remove(&result.call_id);
            }
            // The next answer does not begin with one that was interrupted.
            Payload::EngineEnd { status, .. } => {
                self.partial = PartialAnswer::default();
                let result = self.state.result.as_ref().map(ExactJson::text);
                let result = result.filter(|_| *status == RunStatus::Completed);
                updates.extend(result.and_then(|text| self.unseen_text(&text)));
            }
            Payload::EngineStart(_) => self.partial = PartialAnswer::default(),
            _ => {}
        }
        updates.extend(event_updates(event, &self.run.dir(), is_replay));
        updates
    }

    /// What of an answer the editor has not seen: all of it, if another text came piece by piece.
    fn finish_answer(&mut self, thought: &Thought) -> Vec<Json> {
        self.last_text.clone_from(&thought.content);
        let partial = std::mem::take(&mut self.partial);
        let reasoning = thought.reasoning.as_deref().unwrap_or_default();
        let rest = [
            ("agent_thought_chunk", reasoning, partial.reasoning),
            ("agent_message_chunk", thought.content.as_str(), partial.content),
        ];
        let rest = rest.into_iter().filter_map(|(kind, text, partial)| {
            let text = text.strip_prefix(&partial).unwrap_or(text);
            (!text.trim().is_empty()).then(|| message_chunk(kind, text))
        });
        rest.collect()
    }

    fn piece_update(&mut self, piece: ServedPiece) -> Option<Json> {
        match piece.piece {
            PieceKind::Answer => {
                self.partial.content.push_str(&piece.text);
                Some(message_chunk("agent_message_chunk", &piece.text))
            }
            PieceKind::Reasoning => {
                self.partial.reasoning.push_str(&piece.text);
                Some(message_chunk("agent_thought_chunk", &piece.text))
            }
            PieceKind::BrokenOff => {
                let partial = std::mem::take(&mut self.partial);
                let text = "\n\n[this answer broke off and is ignored]\n\n";
                (!partial.content.is_empty()).then(|| message_chunk("agent_message_chunk", text))
            }
            PieceKind::Output => {
                let output = self.outputs.get_mut(piece.call_id.as_deref()?)?;
                output.text.push_str(&piece.text);
                output.is_new = true;
                let excess = output.text.len().saturating_sub(MAX_OUTPUT_BYTES);
                output.text.drain(..output.text.ceil_char_boundary(excess));
                None
            }
        }
    }

    /// The output so far of the calls that run: an update replaces what the editor shows of a call.
    fn take_output_updates(&mut self) -> Vec<Json> {
        let outputs = self.outputs.iter_mut();
        outputs
            .filter_map(|(call_id, output)| {
                let is_new = std::mem::take(&mut output.is_new);
                is_new.then(|| output_update(call_id, &output.text))
            })
            .collect()
    }

    /// Passes over what happened before, for an editor that has it already.
    pub fn skip_updates(&mut self) {
        let _ = self.read_updates(Vec::new(), true);
    }

    /// A text of the agent, unless the editor has just seen it.
    pub fn say(&mut self, text: &str) -> Option<RpcMessage> {
        self.unseen_text(text).map(|update| self.update(update))
    }

    fn unseen_text(&mut self, text: &str) -> Option<Json> {
        if text.trim().is_empty() || text == self.last_text {
            return None;
        }
        text.clone_into(&mut self.last_text);
        Some(message_chunk("agent_message_chunk", text))
    }
}

/// Redacts the secrets in every text of `value`.
fn redact_texts(value: &mut Json, secrets: &[String]) {
    match value {
        Json::String(text) => *text = redact_answers(secrets, std::mem::take(text)),
        Json::Array(items) => items.iter_mut().for_each(|item| redact_texts(item, secrets)),
        Json::Object(members) => {
            members.values_mut().for_each(|value| redact_texts(value, secrets))
        }
        _ => {}
    }
}
