//! The `recorded` provider: replays the results of recorded calls, in order, in place of an LLM.
//!
//! It knows no runs: its caller lists the calls. As for a script, the journal determines the next one. The caller gets
//! each request with the hash of the recorded one, and decides what a difference means.

use super::{CallObserver, LlmError, LlmRequest, Provider};
use delta_base::hex::sha256_hex;
use delta_base::signal::CancelToken;
use delta_words::{RecordedCall, Reply};

/// A request, and the recorded call that is replayed for it.
#[derive(Debug)]
pub struct RequestComparison<'a> {
    /// The index of the call in the recording.
    pub index: usize,
    /// The exact request body.
    pub request: &'a str,
    /// The SHA-256 of the body.
    pub sha256: &'a str,
    /// The recorded call; `None` if the recording has no more.
    pub recorded: Option<&'a RecordedCall>,
}

impl RequestComparison<'_> {
    /// Whether the request is, byte for byte, the recorded one.
    pub fn is_same(&self) -> bool {
        self.recorded.is_some_and(|call| call.request_sha256 == self.sha256)
    }
}

/// Accepts a request for the recorded reply, or returns the error message with which the call fails instead.
pub type RequestCheck<'a> = Box<dyn FnMut(&RequestComparison<'_>) -> Result<(), String> + 'a>;

/// Replays a list of [`RecordedCall`]s.
pub struct RecordedProvider<'a> {
    calls: Vec<RecordedCall>,
    check_request: RequestCheck<'a>,
}

impl<'a> RecordedProvider<'a> {
    /// A provider of these calls, which asks `check_request` before each one.
    pub fn new(calls: Vec<RecordedCall>, check_request: RequestCheck<'a>) -> Self {
        Self { calls, check_request }
    }
}

impl Provider for RecordedProvider<'_> {
    fn complete(
        &mut self,
        request: &LlmRequest<'_>,
        cancel: &CancelToken,
        _: CallObserver<'_>,
    ) -> Result<Reply, LlmError> {
        if cancel.is_requested() {
            return Err(LlmError::Cancelled);
        }
        let index = request.script_turn;
        let recorded = self.calls.get(index);
        let fail = |message: String| LlmError::Failed {
            message,
            status: None,
            hint: None,
            response: None,
            unavailable: None,
            script_turn: recorded.map(|_| index),
        };
        let sha256 = &sha256_hex(request.body.as_str());
        let comparison = RequestComparison { index, request: request.body, sha256, recorded };
        (self.check_request)(&comparison).map_err(fail)?;
        let Some(recorded) = recorded else {
            let count = self.calls.len();
            return Err(fail(format!("the recording has no more responses ({count} used)")));
        };
        let reply = recorded.result.clone().map_err(fail)?;
        Ok(Reply { script_turn: Some(index), sent_body: None, ..reply })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::Arc;

    fn recorded_call(text: &str) -> RecordedCall {
        let reply = Reply { content: Some(text.to_owned()), ..Reply::default() };
        RecordedCall { request_sha256: sha256_hex(text), result: Ok(reply) }
    }

    fn ask(
        provider: &mut RecordedProvider<'_>,
        body: &str,
        script_turn: usize,
    ) -> Result<Reply, String> {
        let body = &Arc::new(body.to_owned());
        let request = LlmRequest { script_turn, ..LlmRequest::new(body) };
        let result = provider.complete(&request, &CancelToken::manual().unwrap(), &mut |_| {});
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn the_journal_determines_the_next_call() {
        let comparisons = RefCell::new(Vec::new());
        let failed = RecordedCall { result: Err("too busy".to_owned()), ..recorded_call("b") };
        let check = |comparison: &RequestComparison<'_>| {
            comparisons.borrow_mut().push((comparison.index, comparison.is_same()));
            Ok(())
        };
        let mut provider = RecordedProvider::new(vec![recorded_call("a"), failed], Box::new(check));
        let reply = ask(&mut provider, "a", 0).unwrap();
        assert_eq!((reply.content.as_deref(), reply.script_turn), (Some("a"), Some(0)));
        assert_eq!(ask(&mut provider, "other", 1), Err("too busy".to_owned()));
        let used_up = "the recording has no more responses (2 used)".to_owned();
        assert_eq!(ask(&mut provider, "c", 2), Err(used_up));
        drop(provider);
        assert_eq!(comparisons.into_inner(), [(0, true), (1, false), (2, false)]);
    }

    #[test]
    fn the_caller_may_refuse_another_request() {
        let check = |comparison: &RequestComparison<'_>| {
            if comparison.is_same() {
                Ok(())
            } else {
                Err(format!("request {} differs", comparison.index + 1))
            }
        };
        let mut provider = RecordedProvider::new(vec![recorded_call("a")], Box::new(check));
        assert_eq!(ask(&mut provider, "b", 0), Err("request 1 differs".to_owned()));
        assert!(ask(&mut provider, "a", 0).is_ok());
    }
}
