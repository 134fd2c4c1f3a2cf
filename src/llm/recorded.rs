//! The `recorded` provider: the answers of a run that was, in their order, instead of an LLM's.
//!
//! Knows no runs: whoever has a recording makes the list. Its place is a function of the journal, as for a script. Each
//! request is shown to the owner beside the hash of the one that was answered then; the owner decides what a difference
//! means, and what happens when nothing is left.

use super::{LlmError, Provider, Reply, Request, Tell};
use crate::signal::Cancel;
use crate::text::sha256;

/// A call of an LLM that was made once.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The hash of the request, in hexadecimal digits.
    pub request_sha256: String,
    /// The answer as it came, or why there was none.
    pub answer: Result<Reply, String>,
}

/// A request, as the owner of a recording is asked about it before it is answered.
#[derive(Debug)]
pub struct Question<'a> {
    /// Its place in the recording, counted from 0.
    pub index: usize,
    /// The exact request.
    pub request: &'a str,
    /// Its hash.
    pub sha256: &'a str,
    /// The call in whose place it is made; none when the recording is used up.
    pub recording: Option<&'a Recording>,
}

impl Question<'_> {
    /// Whether it is, byte for byte, the request that was answered then.
    pub fn is_same(&self) -> bool {
        self.recording.is_some_and(|recording| recording.request_sha256 == self.sha256)
    }
}

/// The owner: lets a request have the recorded answer, or says why the call fails instead.
pub type Judge<'a> = Box<dyn FnMut(&Question<'_>) -> Result<(), String> + 'a>;

/// Answers from a list of [`Recording`]s.
pub struct Recorded<'a> {
    recordings: Vec<Recording>,
    judge: Judge<'a>,
}

impl<'a> Recorded<'a> {
    /// A provider with these answers.
    pub fn new(recordings: Vec<Recording>, judge: Judge<'a>) -> Self {
        Self { recordings, judge }
    }
}

impl Provider for Recorded<'_> {
    fn complete(
        &mut self,
        request: &Request<'_>,
        cancel: &Cancel,
        _: Tell<'_>,
    ) -> Result<Reply, LlmError> {
        if cancel.requested() {
            return Err(LlmError::Cancelled);
        }
        let index = request.script_place;
        let (recording, hash) = (self.recordings.get(index), sha256(request.body));
        let question = Question { index, request: request.body, sha256: &hash, recording };
        let failed = |message: String| LlmError::Failed {
            message,
            status: None,
            hint: None,
            response: None,
            script_turn: recording.map(|_| index),
        };
        (self.judge)(&question).map_err(failed)?;
        let Some(recording) = recording else {
            let count = self.recordings.len();
            return Err(failed(format!("the recording has no more answers ({count} are used)")));
        };
        let reply = recording.answer.clone().map_err(failed)?;
        Ok(Reply { script_turn: Some(index), sent: None, ..reply })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::Arc;

    fn said(text: &str) -> Recording {
        let reply = Reply { content: Some(text.to_owned()), ..Reply::default() };
        Recording { request_sha256: sha256(text), answer: Ok(reply) }
    }

    fn ask(recorded: &mut Recorded<'_>, body: &str, place: usize) -> Result<Reply, String> {
        let body = &Arc::new(body.to_owned());
        let request = Request { body, task: "", message: "", last: "", script_place: place };
        let answer = recorded.complete(&request, &Cancel::manual().unwrap(), &mut |_| {});
        answer.map_err(|error| error.to_string())
    }

    #[test]
    fn a_recording_answers_from_the_place_that_the_journal_says() {
        let seen = RefCell::new(Vec::new());
        let failed = Recording { answer: Err("too busy".to_owned()), ..said("b") };
        let judge = |question: &Question<'_>| {
            seen.borrow_mut().push((question.index, question.is_same()));
            Ok(())
        };
        let mut recorded = Recorded::new(vec![said("a"), failed], Box::new(judge));
        let reply = ask(&mut recorded, "a", 0).unwrap();
        assert_eq!((reply.content.as_deref(), reply.script_turn), (Some("a"), Some(0)));
        assert_eq!(ask(&mut recorded, "other", 1), Err("too busy".to_owned()));
        let used_up = "the recording has no more answers (2 are used)".to_owned();
        assert_eq!(ask(&mut recorded, "c", 2), Err(used_up));
        drop(recorded);
        assert_eq!(seen.into_inner(), [(0, true), (1, false), (2, false)]);
    }

    #[test]
    fn the_owner_of_a_recording_may_refuse_another_request() {
        let judge = |question: &Question<'_>| match question.is_same() {
            true => Ok(()),
            false => Err(format!("request {} differs", question.index + 1)),
        };
        let mut recorded = Recorded::new(vec![said("a")], Box::new(judge));
        assert_eq!(ask(&mut recorded, "b", 0), Err("request 1 differs".to_owned()));
        assert!(ask(&mut recorded, "a", 0).is_ok());
    }
}
