//! The history of a run for readers: iterations, each with its calls and with the events that precede it.
//!
//! Pure. The engine decides with [`crate::state`] instead. No event is left out: one that belongs to no call is in
//! [`Iteration::interleaved_events`] or [`RunHistory::trailing_events`].

use crate::conversation::Conversation;
use crate::event::approval::{ApprovalDecision, ApprovalRequest};
use crate::event::image_file::ImageFile;
use crate::event::{ActionRequest, ActionResult, Event, HumanQuestion, Payload, Thought};
use delta_base::time::Timestamp;
use delta_words::ToolCall;

/// The events of a run, grouped by iteration.
#[derive(Debug, Default)]
pub struct RunHistory<'a> {
    /// The answers of the LLM, each with the events that belong to it.
    pub iterations: Vec<Iteration<'a>>,
    /// The events after the last complete iteration, or before the first one.
    pub trailing_events: Vec<EventRef<&'a Payload>>,
}

/// A part of an event, with the number and time of the event.
#[derive(Debug, Clone, Copy)]
pub struct EventRef<T> {
    /// The number of the event.
    pub seq: u64,
    /// The time when the event was recorded.
    pub timestamp: Timestamp,
    /// The part of the event.
    pub value: T,
}

/// A message of the user.
#[derive(Debug, Clone, Copy)]
pub struct UserTurn<'a> {
    /// Its text.
    pub content: &'a str,
    /// Its images.
    pub images: &'a [ImageFile],
}

/// One answer of the LLM, with its calls.
#[derive(Debug)]
pub struct Iteration<'a> {
    /// The events since the previous iteration was complete: user messages, errors, hooks, starts and ends of processes.
    pub events_before: Vec<EventRef<&'a Payload>>,
    /// The answer.
    pub thought: EventRef<&'a Thought>,
    /// Its calls, in the order of the answer.
    pub calls: Vec<CallHistory<'a>>,
    /// The events between the answer and its last result that belong to no call: hooks, starts and ends of processes.
    pub interleaved_events: Vec<EventRef<&'a Payload>>,
}

/// A call of an answer, with the events that were recorded for it.
#[derive(Debug)]
pub struct CallHistory<'a> {
    /// The id of the call in the run.
    pub id: String,
    /// The call as the LLM sent it.
    pub tool_call: &'a ToolCall,
    /// Its ACTION_REQUEST.
    pub request: Option<EventRef<&'a ActionRequest>>,
    /// The question that the call asks.
    pub question: Option<EventRef<&'a HumanQuestion>>,
    /// The answer to the question.
    pub answer: Option<EventRef<&'a str>>,
    /// The approval that was asked for.
    pub approval_request: Option<EventRef<&'a ApprovalRequest>>,
    /// The decision on it.
    pub approval_decision: Option<EventRef<&'a ApprovalDecision>>,
    /// Its ACTION_RESULT.
    pub result: Option<EventRef<&'a ActionResult>>,
}

impl<T: Copy> EventRef<T> {
    fn with<U>(self, value: U) -> EventRef<U> {
        EventRef { seq: self.seq, timestamp: self.timestamp, value }
    }
}

impl Iteration<'_> {
    /// Whether every call has its result.
    pub fn is_complete(&self) -> bool {
        self.calls.iter().all(|call| call.result.is_some())
    }
}

impl<'a> RunHistory<'a> {
    /// Groups `events`, which must be one journal from its start.
    pub fn from_events(events: &'a [Event]) -> Self {
        let mut history = Self::default();
        let mut conversation = Conversation::default();
        for event in events {
            let event =
                EventRef { seq: event.seq, timestamp: event.timestamp, value: &event.payload };
            history.apply(&mut conversation, event);
        }
        history
    }

    fn apply(&mut self, conversation: &mut Conversation, event: EventRef<&'a Payload>) {
        match event.value {
            Payload::Thought(thought) => {
                let calls = thought.tool_calls.iter().zip(conversation.push_thought(thought));
                self.iterations.push(Iteration {
                    events_before: std::mem::take(&mut self.trailing_events),
                    thought: event.with(thought),
                    calls: calls.map(|(tool_call, id)| CallHistory::new(id, tool_call)).collect(),
                    interleaved_events: Vec::new(),
                });
            }
            Payload::ActionRequest(request) => {
                if let Some(call) = self.call_mut(&request.call_id) {
                    call.request = Some(event.with(request));
                }
            }
            Payload::ActionResult(result) => {
                if let Some(call) = self.call_mut(&result.call_id) {
                    call.result = Some(event.with(result));
                }
            }
            Payload::HumanInputRequest(question) => {
                if let Some(call) = self.call_mut(&question.call_id) {
                    call.question = Some(event.with(question));
                }
            }
            Payload::HumanInputReceived { call_id, response, .. } => {
                if let Some(call) = self.call_mut(call_id) {
                    call.answer = Some(event.with(response));
                }
            }
            Payload::ApprovalRequest(request) => {
                if let Some(call) = self.call_mut(&request.call_id) {
                    call.approval_request = Some(event.with(request));
                }
            }
            Payload::ApprovalDecision(decision) => {
                if let Some(call) = self.call_mut(&decision.call_id) {
                    call.approval_decision = Some(event.with(decision));
                }
            }
            _ => match self.iterations.last_mut().filter(|last| !last.is_complete()) {
                Some(iteration) => iteration.interleaved_events.push(event),
                None => self.trailing_events.push(event),
            },
        }
    }

    /// A call of the last answer.
    fn call_mut(&mut self, id: &str) -> Option<&mut CallHistory<'a>> {
        self.iterations.last_mut()?.calls.iter_mut().find(|call| call.id == id)
    }

    /// The user messages, oldest first.
    pub fn user_messages(&self) -> impl Iterator<Item = EventRef<UserTurn<'a>>> {
        self.iterations
            .iter()
            .flat_map(|iteration| {
                iteration.events_before.iter().chain(&iteration.interleaved_events)
            })
            .chain(&self.trailing_events)
            .filter_map(|event| match event.value {
                Payload::UserMessage { content, images, .. } => {
                    Some(event.with(UserTurn { content, images }))
                }
                _ => None,
            })
    }
}

impl<'a> CallHistory<'a> {
    fn new(id: String, tool_call: &'a ToolCall) -> Self {
        Self {
            id,
            tool_call,
            request: None,
            question: None,
            answer: None,
            approval_request: None,
            approval_decision: None,
            result: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunStatus;

    fn event(seq: u64, payload: Payload) -> Event {
        Event::new(seq, Timestamp::from_millis(i64::try_from(seq).unwrap()), payload)
    }

    fn thought(iteration: u32, ids: &[&str]) -> Payload {
        let calls: Vec<Json> = ids
            .iter()
            .map(|id| {
                json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}})
            })
            .collect();
        of(json!({"type": "THOUGHT", "iteration": iteration, "content": "", "tool_calls": calls}))
    }

    fn result(id: &str) -> Payload {
        of(json!({"type": "ACTION_RESULT", "iteration": 1, "call_id": id, "tool_name": "t",
            "observation_content": "", "duration_ms": 0}))
    }

    fn of(value: Json) -> Payload {
        serde_json::from_value(value).unwrap()
    }

    use serde_json::{Value as Json, json};

    #[test]
    fn each_event_stands_once_where_it_belongs() {
        let said = |text: &str| Payload::user_message(text, Vec::new());
        let left = Payload::EngineEnd {
            run_id: "r".to_owned(),
            status: RunStatus::Interrupted,
            final_iteration: 1,
            agent_name: None,
            usage: None,
            waits_for: None,
            seal: None,
        };
        let events = [
            event(1, said("task")),
            event(2, thought(1, &["a", "a"])),
            event(3, result("a")),
            event(4, left),
            event(5, result("call_1_2")),
            event(6, said("more")),
            event(7, thought(2, &[])),
            event(8, said("last")),
        ];
        let history = RunHistory::from_events(&events);
        let told: Vec<_> =
            history.user_messages().map(|said| (said.seq, said.value.content)).collect();
        assert_eq!(told, [(1, "task"), (6, "more"), (8, "last")]);
        let [first, second] = &history.iterations[..] else { panic!("two iterations") };
        let calls: Vec<_> = first
            .calls
            .iter()
            .map(|call| (&*call.id, call.result.map(|found| found.seq)))
            .collect();
        assert_eq!(calls, [("a", Some(3)), ("call_1_2", Some(5))]);
        let seqs =
            |events: &[EventRef<&Payload>]| events.iter().map(|one| one.seq).collect::<Vec<_>>();
        assert_eq!(
            (seqs(&first.events_before), seqs(&first.interleaved_events)),
            (vec![1], vec![4])
        );
        assert_eq!(
            (seqs(&second.events_before), seqs(&history.trailing_events)),
            (vec![6], vec![8])
        );
    }
}
