//! The requests of a run, made again, and what became of their answers.

use super::again::{Again, Recorded, again};
use super::walk::Walk;
use super::{Difference, Report};
use crate::composition::{self, Composition};
use crate::engine;
use crate::event::Thought;
use crate::hook::Hook;
use crate::hook::answer;
use crate::llm::{self, Reply, openai};
use crate::record::{self, Block, Body};
use crate::text::Secrets;
use crate::tokens::{self, Ratio};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

impl Walk<'_> {
    /// An answer: its number, its request, and that it says what the LLM said.
    pub(super) fn thought(&mut self, thought: &Thought) {
        let iteration = thought.iteration;
        let (said, next) = (iteration.to_string(), (self.state.iterations + 1).to_string());
        let what = "the number of the answer".to_owned();
        self.report.differ(Difference::of(Some(iteration), what, &said, &next));
        let Some(name) = &thought.invocation else {
            self.report.skip(format!("iteration {iteration}, which names no record of its call"));
            return;
        };
        if let Some((sent, left_out)) = self.request(iteration, name) {
            let said =
                json!({"estimated_tokens": thought.estimated_tokens, "left_out": thought.left_out});
            let estimated = thought.estimated_tokens.map(|_| tokens::estimate(sent));
            let known = json!({"estimated_tokens": estimated, "left_out": left_out.unwrap_or(thought.left_out)});
            let what = "what the answer says of its request".to_owned();
            self.report.differ(Difference::of(
                Some(iteration),
                what,
                &said.to_string(),
                &known.to_string(),
            ));
        }
        self.answer(thought, name);
    }

    /// Makes the request again of the call that `name` records; gives its length, and how many iterations it left out,
    /// as far as that is known.
    pub(super) fn request(&mut self, iteration: u32, name: &str) -> Option<(usize, Option<usize>)> {
        self.evidence.text(name, Some(iteration), self.report)?;
        let request = match self.requests.get(name) {
            Ok(request) => request.to_owned(),
            Err(error) => {
                let what = format!("the request in {name}");
                let expected = "the request that was sent";
                self.report.differ(Difference::plain(
                    Some(iteration),
                    what,
                    error.to_string(),
                    expected,
                ));
                return None;
            }
        };
        self.report.checked.requests += 1;
        let left_out = self.compare(iteration, name, &request);
        let length = request.len();
        left_out.map(|(body, left_out)| (body.unwrap_or(length), left_out))
    }

    /// Compares a request with what it is made again. Gives its length where another text was sent in its place, and
    /// what it left out.
    fn compare(
        &mut self,
        iteration: u32,
        name: &str,
        request: &str,
    ) -> Option<(Option<usize>, Option<usize>)> {
        self.config.as_ref()?;
        let Some(blocks) = record::blocks(self.run_dir, name).ok().flatten() else {
            self.report.skip(format!(
                "the request in {name}, which does not say where its messages come from"
            ));
            return None;
        };
        let Some(record) = self.fired(Hook::PreLlmRequest) else {
            let (body, left_out) = self.against(iteration, "the request", request, &blocks)?;
            return Some(((body != request.len()).then_some(body), Some(left_out)));
        };
        let ran = self.evidence.ran(&record, Some(iteration), self.report)?;
        #[derive(Deserialize)]
        struct Input<'a> {
            #[serde(borrow)]
            request: &'a RawValue,
        }
        let input = self.input(&record, &ran)?;
        let Ok(Input { request: before }) = serde_json::from_str(&input) else {
            self.report.differ(Difference::plain(
                Some(iteration),
                record,
                "no request",
                "what the hook was given",
            ));
            return None;
        };
        let what = "the request before the hook pre_llm_request";
        let (_, left_out) = self.against(iteration, what, before.get(), &blocks)?;
        let finished = self.evidence.finished(&record, &ran, engine::SHOWN, self.report)?;
        let config = self.config.as_ref()?;
        let configured = config.agent.hooks.get(Hook::PreLlmRequest)?;
        let frame = engine::frame(&config.agent);
        let after = match answer::replacement(&finished, configured) {
            Ok(Some(by)) => {
                let body = engine::replaced(Body::default(), &frame, by, &Secrets::default());
                body.text().as_str().to_owned()
            }
            Ok(None) | Err(_) => before.get().to_owned(),
        };
        let shorter = openai::without_stream_options(&after);
        if shorter.as_deref() != Some(request) {
            let what = "the request behind the hook pre_llm_request".to_owned();
            self.report.differ(Difference::of(Some(iteration), what, request, &after));
        }
        Some(((after.len() != request.len()).then_some(after.len()), Some(left_out)))
    }

    /// Compares a request before any hook with what it is made again; gives the length of the latter, and what it left
    /// out.
    fn against(
        &mut self,
        iteration: u32,
        what: &str,
        request: &str,
        blocks: &[Block],
    ) -> Option<(usize, usize)> {
        let recorded = match Composition::of(request, blocks, Ratio::default()) {
            Ok(recorded) if !recorded.account.replaced => recorded,
            _ => {
                let expected = "the messages that its blocks count";
                self.report.differ(Difference::plain(Some(iteration), what, "others", expected));
                return None;
            }
        };
        let is_same = |made: &Again| {
            made.text == request
                || openai::without_stream_options(&made.text).as_deref() == Some(request)
        };
        let made = match self.make(iteration, &recorded, blocks, true) {
            Ok(made) => made,
            Err(why) => {
                let expected = "blocks of which it can be made again";
                self.report.differ(Difference::plain(Some(iteration), what, why, expected));
                return None;
            }
        };
        if is_same(&made) {
            return Some((made.text.len(), made.rebuilt.left_out));
        }
        if self.config.as_ref()?.intact
            && let Ok(as_sent) = self.make(iteration, &recorded, blocks, false)
            && is_same(&as_sent)
        {
            self.report.skip(format!(
                "the system prompt of iteration {iteration}: its file has changed since it was kept"
            ));
            return Some((as_sent.text.len(), as_sent.rebuilt.left_out));
        }
        differ(self.report, iteration, what, &recorded, request, &made, blocks);
        Some((made.text.len(), made.rebuilt.left_out))
    }

    /// A request once more; with the system prompt as it was kept, or as it was sent.
    fn make(
        &self,
        iteration: u32,
        composition: &Composition<'_>,
        blocks: &[Block],
        with_prompt: bool,
    ) -> Result<Again, String> {
        let config = self.config.as_ref().ok_or("nothing is kept of the agent")?;
        let recorded = Recorded { iteration, state: &self.state, composition, blocks };
        again(&config.agent, &config.vars, recorded, with_prompt)
    }

    /// Whether an answer says what its record holds, with what a hook made of it.
    fn answer(&mut self, thought: &Thought, name: &str) {
        let iteration = thought.iteration;
        let reply = match record::recording(self.run_dir, name).map(|found| found.answer) {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => {
                let what = format!("the answer in {name}");
                self.report.differ(Difference::plain(Some(iteration), what, error, "an answer"));
                return;
            }
            Err(record::RequestError::Unreadable { .. }) => return,
            Err(error) => {
                let what = format!("the answer in {name}");
                self.report.differ(Difference::plain(
                    Some(iteration),
                    what,
                    error.to_string(),
                    "an answer",
                ));
                return;
            }
        };
        let Some(reply) = self.filtered(iteration, reply) else { return };
        // Without the configuration it is not known whether reasoning was to be kept.
        let known = self.config.as_ref().map(|config| config.agent.llm.echo_reasoning);
        let echoes = known.unwrap_or(thought.reasoning.is_some());
        let members = [
            ("content", json!(thought.content), json!(reply.content.unwrap_or_default())),
            ("tool_calls", json!(thought.tool_calls), json!(reply.tool_calls)),
            ("reasoning", json!(thought.reasoning), json!(reply.reasoning.filter(|_| echoes))),
            ("finish_reason", json!(thought.finish_reason), json!(reply.finish_reason)),
            ("usage", json!(thought.usage), json!(reply.usage)),
        ];
        for (member, said, known) in members {
            let what = format!("the answer's {member}");
            let found =
                Difference::of(Some(iteration), what, &said.to_string(), &known.to_string());
            self.report.differ(found);
        }
    }

    /// The answer as post_llm_response let it through; `None` when that cannot be told.
    fn filtered(&mut self, iteration: u32, reply: Reply) -> Option<Reply> {
        let Some(record) = self.fired(Hook::PostLlmResponse) else { return Some(reply) };
        let ran = self.evidence.ran(&record, Some(iteration), self.report)?;
        let finished = self.evidence.finished(&record, &ran, engine::SHOWN, self.report)?;
        let agent = &self.config.as_ref()?.agent;
        let configured = agent.hooks.get(Hook::PostLlmResponse)?;
        let given = answer::response(&finished, configured).ok().flatten();
        let given = given.and_then(|it| llm::reply_of_response(&it, &agent.llm.model).ok());
        Some(match given {
            Some(changed) => Reply { usage: reply.usage, ..changed },
            None => reply,
        })
    }
}

/// Says where two requests part.
fn differ(
    report: &mut Report,
    iteration: u32,
    what: &str,
    recorded: &Composition<'_>,
    request: &str,
    made: &Again,
    blocks: &[Block],
) {
    let counted = blocks.iter().zip(&made.rebuilt.counts);
    let blocks: Vec<Block> =
        counted.map(|(block, count)| Block { messages: *count, ..block.clone() }).collect();
    let again = Composition::of(&made.text, &blocks, Ratio::default()).ok();
    let place = again.as_ref().and_then(|again| part(iteration, what, again, recorded));
    // The place is that in the recorded one.
    let place = place.map(|found| Difference {
        recorded: found.expected.clone(),
        expected: found.recorded.clone(),
        ..found
    });
    let whole = || Difference::of(Some(iteration), what.to_owned(), request, &made.text);
    report.differ(place.or_else(whole));
}

/// Where the request `other` parts from `one`, with the message and the block of it.
pub fn part(
    iteration: u32,
    what: &str,
    one: &Composition<'_>,
    other: &Composition<'_>,
) -> Option<Difference> {
    let found = composition::compare(one, other, Ratio::default(), None).breaks?;
    let what = match found.message {
        Some(_) => what.to_owned(),
        None => format!("{what}, its {}", found.part),
    };
    Some(Difference {
        iteration: Some(iteration),
        what,
        message: found.message,
        source: found.source,
        byte: Some(found.offset),
        recorded: found.before,
        expected: found.after,
    })
}
