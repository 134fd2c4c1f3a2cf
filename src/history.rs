//! A run as people tell it: iteration by iteration, each with what was said before it, its calls and what became of them.
//!
//! Pure, and only for readers: what an engine does next is decided by [`crate::state`]. Nothing is left out, so that an
//! account made from it is whole: what belongs to no call stands in [`Iteration::around`] or [`History::rest`].

use crate::conversation::Conversation;
use crate::event::{ActionRequest, ActionResult, Event, Payload, Question, Thought};
use crate::llm::ToolCall;
use crate::time::Timestamp;

/// The events of a run in the order in which they are told.
#[derive(Debug, Default)]
pub struct History<'a> {
    /// The LLM's answers, each with what followed from it.
    pub iterations: Vec<Iteration<'a>>,
    /// What came after the last iteration was done, or before there was one: no answer of the LLM followed it.
    pub rest: Vec<At<&'a Payload>>,
}

/// Something that an event of the journal says.
#[derive(Debug, Clone, Copy)]
pub struct At<T> {
    /// The number of the event.
    pub seq: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// What it says.
    pub what: T,
}

/// One answer of the LLM.
#[derive(Debug)]
pub struct Iteration<'a> {
    /// What was recorded since the calls of the answer before were done: starts and ends of processes, messages of
    /// people, errors, hooks.
    pub before: Vec<At<&'a Payload>>,
    /// The answer.
    pub thought: At<&'a Thought>,
    /// Its calls, in the LLM's order.
    pub calls: Vec<Call<'a>>,
    /// What was recorded between the answer and its last result, and belongs to none of its calls: hooks, and the ends
    /// and starts of processes in between.
    pub around: Vec<At<&'a Payload>>,
}

/// A call of an answer, and how far it came.
#[derive(Debug)]
pub struct Call<'a> {
    /// Its id in the run.
    pub id: String,
    /// The call as the LLM wrote it.
    pub asked: &'a ToolCall,
    /// Its ACTION_REQUEST.
    pub request: Option<At<&'a ActionRequest>>,
    /// What a person was asked by it.
    pub question: Option<At<&'a Question>>,
    /// What the person answered.
    pub answer: Option<At<&'a str>>,
    /// Its ACTION_RESULT.
    pub result: Option<At<&'a ActionResult>>,
}

impl Iteration<'_> {
    /// Whether every call has its result.
    pub fn is_done(&self) -> bool {
        self.calls.iter().all(|call| call.result.is_some())
    }
}

impl<'a> History<'a> {
    /// The history of `events`, which are those of one journal from its beginning.
    pub fn of(events: &'a [Event]) -> Self {
        let mut history = Self::default();
        let mut conversation = Conversation::default();
        for event in events {
            let (seq, at) = (event.seq, event.timestamp);
            history.take(&mut conversation, At { seq, at, what: &event.payload });
        }
        history
    }

    fn take(&mut self, conversation: &mut Conversation, event: At<&'a Payload>) {
        let At { seq, at, what } = event;
        match what {
            Payload::Thought(thought) => {
                let calls = thought.tool_calls.iter().zip(conversation.thought(thought));
                let before = std::mem::take(&mut self.rest);
                let thought = At { seq, at, what: &**thought };
                let calls = calls.map(|(asked, id)| Call::new(id, asked)).collect();
                self.iterations.push(Iteration { before, thought, calls, around: Vec::new() });
            }
            Payload::ActionRequest(request) => {
                if let Some(call) = self.call(&request.call_id) {
                    call.request = Some(At { seq, at, what: request });
                }
            }
            Payload::ActionResult(result) => {
                if let Some(call) = self.call(&result.call_id) {
                    call.result = Some(At { seq, at, what: result });
                }
            }
            Payload::HumanInputRequest(question) => {
                if let Some(call) = self.call(&question.call_id) {
                    call.question = Some(At { seq, at, what: question });
                }
            }
            Payload::HumanInputReceived { call_id, response, .. } => {
                if let Some(call) = self.call(call_id) {
                    call.answer = Some(At { seq, at, what: response });
                }
            }
            _ => match self.iterations.last_mut().filter(|last| !last.is_done()) {
                Some(open) => open.around.push(event),
                None => self.rest.push(event),
            },
        }
    }

    /// A call of the last answer.
    fn call(&mut self, id: &str) -> Option<&mut Call<'a>> {
        self.iterations.last_mut()?.calls.iter_mut().find(|call| call.id == id)
    }

    /// What people said to the agent, in order.
    pub fn messages(&self) -> impl Iterator<Item = At<&'a str>> {
        let between = self.iterations.iter().flat_map(|one| one.before.iter().chain(&one.around));
        between.chain(&self.rest).filter_map(|event| match event.what {
            Payload::UserMessage { content } => {
                Some(At { seq: event.seq, at: event.at, what: content.as_str() })
            }
            _ => None,
        })
    }
}

impl<'a> Call<'a> {
    fn new(id: String, asked: &'a ToolCall) -> Self {
        Self { id, asked, request: None, question: None, answer: None, result: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunStatus;

    fn event(seq: u64, payload: Payload) -> Event {
        Event { seq, timestamp: Timestamp::from_millis(i64::try_from(seq).unwrap()), payload }
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
        let said = |text: &str| Payload::UserMessage { content: text.to_owned() };
        let left = Payload::EngineEnd {
            run_id: "r".to_owned(),
            status: RunStatus::Interrupted,
            final_iteration: 1,
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
        let history = History::of(&events);
        let told: Vec<_> = history.messages().map(|said| (said.seq, said.what)).collect();
        assert_eq!(told, [(1, "task"), (6, "more"), (8, "last")]);
        let [first, second] = &history.iterations[..] else { panic!("two iterations") };
        let calls: Vec<_> = first
            .calls
            .iter()
            .map(|call| (&*call.id, call.result.map(|found| found.seq)))
            .collect();
        assert_eq!(calls, [("a", Some(3)), ("call_1_2", Some(5))]);
        let seqs = |events: &[At<&Payload>]| events.iter().map(|one| one.seq).collect::<Vec<_>>();
        assert_eq!((seqs(&first.before), seqs(&first.around)), (vec![1], vec![4]));
        assert_eq!((seqs(&second.before), seqs(&history.rest)), (vec![6], vec![8]));
    }
}
