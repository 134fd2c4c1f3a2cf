//! The tool calls of the last answer, and how far each of them is.
//!
//! Pure. An answer can have thousands of calls with several events each, so no event and no step searches all of them.

use crate::event::HumanQuestion;
use crate::event::approval::ApprovalRequest;
use crate::state::{FINISH_TOOL, PendingCall};
use std::collections::{BTreeSet, HashMap};

/// The progress of a call without a result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallPhase {
    Queued,
    /// Requested: whether a process was started, and its io/ record.
    Requested {
        starts: bool,
        execution: Option<String>,
    },
    AwaitingReply(HumanQuestion),
    /// A human answered, but the call has no result yet.
    Replied(String),
    AwaitingApproval(Box<ApprovalRequest>),
    /// An operator decided, but the call has not started.
    Decided,
}

/// The calls of one answer, in its order.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerCalls {
    /// The phase of a call that has its result is `None`.
    calls: Vec<(PendingCall, Option<CallPhase>)>,
    index_by_id: HashMap<String, usize>,
    /// The calls that have no result, without those in `open_finishes`.
    open: BTreeSet<usize>,
    /// The calls of a tool named `finish` that have no result.
    open_finishes: BTreeSet<usize>,
}

impl AnswerCalls {
    /// The calls of a new answer. Their ids are unique.
    pub(super) fn new(calls: Vec<PendingCall>) -> Self {
        let index_by_id = calls.iter().map(|call| call.id.clone()).zip(0..).collect();
        let (open_finishes, open) =
            (0..calls.len()).partition(|index| calls[*index].tool == FINISH_TOOL);
        let calls = calls.into_iter().map(|call| (call, Some(CallPhase::Queued))).collect();
        Self { calls, index_by_id, open, open_finishes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn get(&self, call_id: &str) -> Option<&PendingCall> {
        Some(&self.calls[*self.index_by_id.get(call_id)?].0)
    }

    /// The phase of a call without a result.
    pub(super) fn phase(&self, call_id: &str) -> Option<&CallPhase> {
        self.calls[*self.index_by_id.get(call_id)?].1.as_ref()
    }

    /// Sets the phase of a call; `None` when it has its result. An unknown call is ignored.
    pub(super) fn set_phase(&mut self, call_id: &str, phase: Option<CallPhase>) {
        let Some(index) = self.index_by_id.get(call_id).copied() else { return };
        let (call, current) = &mut self.calls[index];
        let is_finish = call.tool == FINISH_TOOL;
        let open = if is_finish { &mut self.open_finishes } else { &mut self.open };
        if phase.is_some() {
            open.insert(index);
        } else {
            open.remove(&index);
        }
        *current = phase;
    }

    /// Whether every call has its result.
    pub(super) fn are_done(&self) -> bool {
        self.open.is_empty() && self.open_finishes.is_empty()
    }

    /// The calls without a result, in the order of the answer.
    pub(super) fn open(&self) -> impl Iterator<Item = (&PendingCall, &CallPhase)> {
        let mut others = self.open.iter().copied().peekable();
        let mut finishes = self.open_finishes.iter().copied().peekable();
        std::iter::from_fn(move || match (others.peek(), finishes.peek()) {
            (Some(other), Some(finish)) if finish < other => finishes.next(),
            (Some(_), _) => others.next(),
            (None, _) => finishes.next(),
        })
        .filter_map(|index| self.open_call(index))
    }

    /// The first call without a result; calls of `finish` come last if `finish_is_last`.
    pub(super) fn first_open(&self, finish_is_last: bool) -> Option<(&PendingCall, &CallPhase)> {
        if !finish_is_last {
            return self.open().next();
        }
        let index = self.open.first().or(self.open_finishes.first())?;
        self.open_call(*index)
    }

    fn open_call(&self, index: usize) -> Option<(&PendingCall, &CallPhase)> {
        let (call, phase) = &self.calls[index];
        Some((call, phase.as_ref()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_words::CallArguments;
    use proptest::prelude::*;

    fn calls(tools: &[bool]) -> Vec<PendingCall> {
        let call = |(index, is_finish): (usize, &bool)| PendingCall {
            id: index.to_string(),
            iteration: 1,
            index,
            tool: if *is_finish { FINISH_TOOL } else { "t" }.to_owned(),
            arguments: CallArguments::new("{}"),
            is_redacted: false,
        };
        tools.iter().enumerate().map(call).collect()
    }

    proptest! {
        #[test]
        fn c_22_2_the_open_calls_are_those_that_a_search_finds(
            tools in prop::collection::vec(any::<bool>(), 0..8),
            changes in prop::collection::vec((0..9_usize, any::<bool>()), 0..20),
        ) {
            let mut answer = AnswerCalls::new(calls(&tools));
            let mut done = vec![false; tools.len()];
            for (index, is_done) in changes {
                answer.set_phase(&index.to_string(), (!is_done).then_some(CallPhase::Queued));
                done.get_mut(index).into_iter().for_each(|done| *done = is_done);
            }
            let open: Vec<usize> = (0..tools.len()).filter(|index| !done[*index]).collect();
            let found: Vec<usize> = answer.open().map(|(call, _)| call.index).collect();
            prop_assert_eq!(&found, &open);
            prop_assert_eq!(answer.are_done(), open.is_empty());
            let first = |finish_is_last| answer.first_open(finish_is_last).map(|(call, _)| call.index);
            prop_assert_eq!(first(false), open.first().copied());
            let last = open.iter().find(|index| !tools[**index]).or(open.first()).copied();
            prop_assert_eq!(first(true), last);
        }
    }
}
