//! Thinking: one answer of the LLM, from the context to the THOUGHT.

use super::hooks::{Effect, Input};
use super::{Engine, EngineError, millis};
use crate::agent::Agent;
use crate::context::{self, Generator, Surroundings};
use crate::event::{Payload, Thought};
use crate::hook::Hook;
use crate::hook::answer::{self, Failure, Replacement};
use crate::llm::{self, Attempt, LlmError, Reply, Request, Response};
use crate::record::{Block, Body, Invocation};
use crate::run::{Notice, Run};
use crate::text::Secrets;
use crate::time::Timestamp;
use crate::tokens;
use crate::transcript::Messages;
use serde::Serialize;
use serde_json::{Map, Value as Json};
use std::time::{Duration, Instant};

/// A question that is ready to be sent, and what a script wants to know of it.
pub(super) struct Question {
    iteration: u32,
    pub(super) body: Body,
    /// Where its messages come from.
    blocks: Vec<Block>,
    /// How many of the oldest iterations are left out for want of room.
    left_out: usize,
    task: String,
    message: String,
}

/// An answer, and what is kept of the question.
struct Answered {
    reply: Reply,
    /// The record of the call.
    invocation: String,
    estimated_tokens: u64,
    left_out: usize,
}

/// How asking it went.
pub(super) struct Asked {
    started_at: Timestamp,
    duration: Duration,
    pub(super) attempts: Vec<Attempt>,
    pub(super) answer: Result<Reply, LlmError>,
}

impl Engine<'_> {
    /// Asks the LLM for its next answer, and makes it a fact.
    pub(super) fn think(&mut self, run: &mut Run, iteration: u32) -> Result<(), EngineError> {
        self.iteration_starts(run, iteration)?;
        let mut asked = self.ask_llm(run, iteration)?;
        if matches!(no_answer(&asked.reply), Some((EMPTY, _))) {
            run.tell(Notice::Warning("the LLM answered with nothing; asking once more"));
            asked = self.ask_llm(run, iteration)?;
        }
        let Answered { reply, invocation, estimated_tokens, left_out } = asked;
        if let Some((kind, message)) = no_answer(&reply) {
            return Err(EngineError::Answer { kind, message, invocation });
        }
        run.record(Payload::Thought(Box::new(Thought {
            iteration,
            content: reply.content.unwrap_or_default(),
            tool_calls: reply.tool_calls,
            reasoning: reply.reasoning.filter(|_| self.agent.llm.echo_reasoning),
            finish_reason: reply.finish_reason,
            usage: reply.usage,
            estimated_tokens: Some(estimated_tokens),
            left_out,
            invocation: Some(invocation),
            script_turn: reply.script_turn,
        })));
        Ok(())
    }

    /// Asks the LLM, and records the call in io/.
    fn ask_llm(&mut self, run: &mut Run, iteration: u32) -> Result<Answered, EngineError> {
        if self.agent.context.starts_programs() {
            run.commit()?;
        }
        let question = self.question(run, iteration)?;
        run.commit()?;
        self.tell_of_cuts(run, &question.blocks);
        let mut question = self.pass_gate(run, question)?;
        run.commit()?;
        self.reserve(run, question.body.text())?;
        let asked = self.send(run, &question);
        let settled = self.charge(run, &question, &asked);
        if matches!(asked.answer, Err(LlmError::Cancelled)) {
            return Err(EngineError::Cancelled);
        }
        let invocation = self.record_invocation(run, &mut question, &asked)?;
        settled?;
        let estimated_tokens = tokens::estimate(question.body.text().len());
        self.last = question.body;
        match asked.answer {
            Err(error) => Err(EngineError::Llm { error, invocation }),
            Ok(reply) => {
                let reply = self.filter_reply(run, iteration, reply)?;
                if let Some(reasoning) = &reply.reasoning {
                    let reasoning = run.secrets().hide(reasoning).into_owned();
                    run.tell(Notice::Reasoning(&reasoning));
                }
                Ok(Answered { reply, invocation, estimated_tokens, left_out: question.left_out })
            }
        }
    }

    /// Builds the request out of the conversation and what context.yaml names.
    fn question(&mut self, run: &Run, iteration: u32) -> Result<Question, EngineError> {
        let environment = &self.environment;
        let launch = |generator: &Generator| {
            let mark = (context::MARK.0, context::MARK.1.to_owned());
            environment.launch(iteration, &generator.pass_env, [mark])
        };
        let mut around = Surroundings {
            iteration,
            ratio: run.state().ratio,
            vars: environment.vars(),
            cancel: &self.cancel,
            launch: &launch,
            clock: self.clock,
            counter: &mut self.counter,
            generates: true,
        };
        let state = run.state();
        let context = self.agent.context.build(state, &mut around)?;
        let (last, messages) = (std::mem::take(&mut self.last), context.messages());
        Ok(Question {
            iteration,
            body: next(last, &self.frame, &messages, run.secrets()),
            blocks: context.blocks,
            left_out: context.left_out,
            task: state.conversation.task().to_owned(),
            message: state.conversation.last_user_message().to_owned(),
        })
    }

    /// Warns of what is left out of the request, once for each cut.
    fn tell_of_cuts(&mut self, run: &mut Run, blocks: &[Block]) {
        let cuts = blocks.iter().filter_map(|block| Some((&block.source, block.cut.as_ref()?)));
        let cuts: Vec<String> = cuts
            .map(|(source, cut)| {
                format!("context source `{source}`: {cut} left out, for want of room")
            })
            .collect();
        for cut in cuts.iter().filter(|cut| !self.told.contains(cut)) {
            run.tell(Notice::Warning(cut));
        }
        self.told = cuts;
    }

    /// The question as pre_llm_request lets it through.
    fn pass_gate(&self, run: &mut Run, question: Question) -> Result<Question, EngineError> {
        let input = || Input::default().with_json("request", question.body.text());
        let (hook, iteration) = (Hook::PreLlmRequest, question.iteration);
        let Some(fired) = self.fire(run, hook, iteration, input, &self.cancel)? else {
            return Ok(question);
        };
        let answer = answer::replacement(&fired.finished, fired.configured);
        let changed = match &answer {
            Ok(Some(Replacement::Request(_))) => Some("request"),
            Ok(Some(Replacement::Messages(_))) => Some("messages"),
            Ok(None) | Err(_) => None,
        };
        let failure = answer.as_ref().err();
        self.put_down(run, &fired, &Effect { changed, decision: None, failure })?;
        if fired.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        match answer {
            Ok(None) => Ok(question),
            Ok(Some(replacement)) => {
                let (before, secrets) = (question.body, run.secrets());
                let body = replaced(before, &self.frame, replacement, secrets);
                Ok(Question { body, ..question })
            }
            Err(failure) if failure.is_ignored(fired.configured.on_failure) => {
                self.warn_of_open_gate(run, &fired, &failure);
                Ok(question)
            }
            Err(failure) => Err(fired.error(&failure)),
        }
    }

    /// The reply as post_llm_response lets it through. What it cost, and where in a script it stands, stays.
    fn filter_reply(
        &self,
        run: &mut Run,
        iteration: u32,
        reply: Reply,
    ) -> Result<Reply, EngineError> {
        let input = || Input::default().with("response", &reply.response);
        let hook = Hook::PostLlmResponse;
        let Some(fired) = self.fire(run, hook, iteration, input, &self.cancel)? else {
            return Ok(reply);
        };
        let answer = answer::response(&fired.finished, fired.configured).and_then(|given| {
            let Some(response) = given else { return Ok(None) };
            let read = llm::reply_of_response(&response, &self.agent.llm.model);
            read.map(Some).map_err(|why| {
                Failure::misunderstood(format!("gave a response that is none: {why}"))
            })
        });
        let changed = matches!(answer, Ok(Some(_))).then_some("response");
        let failure = answer.as_ref().err();
        self.put_down(run, &fired, &Effect { changed, decision: None, failure })?;
        self.weigh(run, &fired, failure)?;
        Ok(match answer {
            Ok(Some(changed)) => Reply {
                usage: reply.usage,
                script_turn: reply.script_turn,
                status: reply.status,
                sent: reply.sent,
                ..changed
            },
            Ok(None) | Err(_) => reply,
        })
    }

    fn send(&mut self, run: &mut Run, question: &Question) -> Asked {
        let request = Request {
            body: question.body.text(),
            task: &question.task,
            message: &question.message,
            last: question.body.last_message(),
            script_place: run.state().script_place,
        };
        let (started_at, timer) = ((self.clock)(), Instant::now());
        let mut attempts = Vec::new();
        run.tell(Notice::Asking);
        let answer = self.provider.complete(&request, &self.cancel, &mut |attempt| {
            run.tell(Notice::Attempt(attempt));
            attempts.push(attempt.clone());
        });
        run.tell(Notice::Answered);
        let answer = answer.map(|reply| self.priced(reply));
        Asked { started_at, duration: timer.elapsed(), attempts, answer }
    }

    /// The reply with what it cost, by the agent's prices before the endpoint's own figure.
    fn priced(&self, mut reply: Reply) -> Reply {
        if let (Some(usage), Some(pricing)) = (&mut reply.usage, &self.agent.llm.pricing) {
            usage.cost_usd = Some(pricing.cost(usage));
        }
        reply
    }

    fn record_invocation(
        &self,
        run: &mut Run,
        question: &mut Question,
        asked: &Asked,
    ) -> Result<String, EngineError> {
        let (reply, error) = (asked.answer.as_ref().ok(), asked.answer.as_ref().err());
        let (status, failed) = match error {
            Some(LlmError::Failed { status, response, .. }) => (*status, response.as_ref()),
            _ => (reply.and_then(|reply| reply.status), None),
        };
        let failed = failed.map(Response::of).unwrap_or_default();
        let run_id = run.id.to_string();
        let error = error.map(ToString::to_string);
        let record = Invocation {
            run_id: &run_id,
            iteration: question.iteration,
            provider: self.agent.llm.provider.name(),
            model: &self.agent.llm.model,
            started_at: asked.started_at,
            duration_ms: millis(asked.duration),
            status,
            attempts: &asked.attempts,
            context: &question.blocks,
            usage: reply.and_then(|reply| reply.usage.as_ref()),
            error: error.as_deref(),
            reasoning: reply.and_then(|reply| reply.reasoning.as_deref()),
            response: reply.map_or(&failed, |reply| &reply.response),
        };
        let sent = reply.and_then(|reply| reply.sent.as_ref()).map(|sent| sent.as_str());
        Ok(run.records.invocation(&record, &mut question.body, sent)?)
    }
}

/// The request in which `agent` sends these messages, as a run sends it when no hook changes it.
pub fn request(agent: &Agent, messages: &[Messages<'_>], secrets: &Secrets) -> Body {
    next(Body::default(), &frame(agent), messages, secrets)
}

/// The request that a hook put in the place of `before`, which has this `frame`.
pub fn replaced(
    before: Body,
    frame: &(String, String),
    by: Replacement,
    secrets: &Secrets,
) -> Body {
    let (frame, messages) = match by {
        Replacement::Messages(messages) => (frame.clone(), messages),
        Replacement::Request(request) => {
            let (head, messages, tail) = around_messages(request);
            ((head, tail), messages)
        }
    };
    let messages: Vec<String> = messages.iter().map(Json::to_string).collect();
    let messages: Vec<_> = messages.iter().map(|message| message.as_str().into()).collect();
    let kept = before.kept();
    let mut body = next(before, &frame, &messages, secrets);
    body.keep_at_most(kept);
    body
}

/// The request body behind `last`, of its messages, and what stands before and behind them.
fn next(
    mut last: Body,
    (head, tail): &(String, String),
    messages: &[Messages<'_>],
    secrets: &Secrets,
) -> Body {
    let (head, tail) = (secrets.hide(head), secrets.hide(tail));
    // What stands in the last request was looked through then.
    if last.try_update(&head, messages, &tail, |some| secrets.is_in(some.text())) {
        return last;
    }
    let each = messages.iter().flat_map(|some| some.iter());
    let hidden: Vec<_> = each.map(|message| secrets.hide(message)).collect();
    let hidden: Vec<_> = hidden.iter().map(|message| Messages::from(&**message)).collect();
    last.update(&head, &hidden, &tail);
    last
}

/// A request cut at its messages.
fn around_messages(request: Map<String, Json>) -> (String, Vec<Json>, String) {
    let (mut head, mut tail) = (String::from("{"), String::from("]"));
    let mut messages = Vec::new();
    for (key, value) in request {
        let part = if messages.is_empty() { &mut head } else { &mut tail };
        if part.len() > 1 || part.starts_with(']') {
            part.push(',');
        }
        part.push_str(&format!("{}:", Json::from(key.as_str())));
        match value {
            Json::Array(items) if key == "messages" => {
                part.push('[');
                messages = items;
            }
            value => part.push_str(&value.to_string()),
        }
    }
    tail.push('}');
    (head, messages, tail)
}

/// The request body around its messages: everything that stays the same for a whole run, in a fixed order. What is long
/// of it, the tools, stands before them, as a provider reads it: a request's hash is taken up behind what stays the same.
pub fn frame(agent: &Agent) -> (String, String) {
    let llm = &agent.llm;
    let mut head = format!("{{\"model\":{},", json_text(&llm.model));
    let mut add = |key: &str, value: &Json| {
        for piece in [&json_text(key), ":", &json_text(value), ","] {
            head.push_str(piece);
        }
    };
    let tools = agent.definitions();
    if !tools.is_empty() {
        add("tools", &Json::from(tools));
    }
    for (key, value) in &llm.body {
        add(key, value);
    }
    head.push_str("\"messages\":[");
    let tail = match llm.stream && llm.provider.streams() {
        true => "],\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
        false => "]}",
    };
    (head, tail.to_owned())
}

fn json_text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The error's type when the LLM said nothing at all; then it is worth asking again.
const EMPTY: &str = "empty_response";

/// Why a reply is no answer, if it is none: the error's type and its words. A text that was withheld or cut off is
/// none: it would make an unfinished task look like success.
fn no_answer(reply: &Reply) -> Option<(&'static str, String)> {
    if !reply.tool_calls.is_empty() {
        return None;
    }
    let text = reply.content.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let refused = |words: &str| ("refusal", format!("the model refused: {words}"));
    Some(match (&reply.refusal, reply.finish_reason.as_deref(), text) {
        (Some(refusal), ..) => refused(refusal),
        (None, Some("refusal"), Some(text)) => refused(text),
        (None, Some("refusal"), None) => ("refusal", "the model refused to answer".to_owned()),
        (None, Some("content_filter"), text) => {
            let what = if text.is_some() { "cut off" } else { "withheld" };
            ("content_filter", format!("the endpoint's content filter {what} the answer"))
        }
        (None, Some("length"), Some(_)) => (
            "length",
            "the answer was cut off at the token limit (finish_reason `length`); raise `llm.max_tokens`".to_owned(),
        ),
        (None, Some("length"), None) => (
            "length",
            "the token limit was reached before any answer (finish_reason `length`); raise `llm.max_tokens`".to_owned(),
        ),
        (None, _, None) => (EMPTY, "the LLM answered twice with neither text nor tool calls".to_owned()),
        (None, _, Some(_)) => return None,
    })
}
