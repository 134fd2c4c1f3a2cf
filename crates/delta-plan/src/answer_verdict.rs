//! What an answer means for the run: whether it counts, what follows it in the conversation, whether the run fails.
//!
//! A withheld answer does not count, and one that was cut off is not a result: it would make an unfinished task look successful.

use crate::text_call::{find_earlier_text_call, find_text_call};
use delta_agent::agent::Agent;
use delta_agent::hook::HookPoint;
use delta_llm::llm::{AnswerEnd, OnEmpty, OnLength, TextCalls};
use delta_run::event::Thought;
use delta_run::state::{FINISH_REMINDER, MISSING_CALL_REMINDER, RunState};
use delta_words::Reply;

/// The error type of an answer that is empty or lacks its call, which is worth another attempt.
pub const EMPTY_RESPONSE: &str = "empty_response";
/// The error type of an answer that was cut off.
const LENGTH: &str = "length";
/// The message after an answer with neither text nor calls.
const EMPTY_REMINDER: &str = "[Your answer was empty. Call a tool, or write the answer.]";
/// The error type of a call that is written as text.
const TEXT_CALL: &str = "text_call";
/// The message after an answer that was cut off, where the LLM is to continue.
const CUT_OFF_REMINDER: &str = "[Your answer was cut off at the token limit. Continue exactly where it stopped, \
    without repeating anything.]";

/// What an answer means for the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerVerdict {
    /// Whether the answer was cut off at its token limit.
    pub cut_off: bool,
    /// The tool that it calls as text.
    pub text_call: Option<String>,
    /// The message that follows it in the conversation; with one, it is not the result.
    pub reminder: Option<String>,
    /// Why the run fails, as error type and message.
    pub failure: Option<(&'static str, String)>,
    /// Whether the answer does not become a THOUGHT, because nothing of it may count.
    pub is_withheld: bool,
}

impl AnswerVerdict {
    fn withheld(kind: &'static str, message: String) -> Self {
        let failure = Some((kind, message));
        Self { failure, is_withheld: true, ..Self::default() }
    }
}

/// What decides about an answer.
#[derive(Debug, Clone, Copy)]
pub struct AnswerFacts<'a> {
    finish_reason: Option<&'a str>,
    refusal: Option<&'a str>,
    ending: Option<&'a str>,
    text: &'a str,
    has_calls: bool,
}

impl<'a> From<&'a Reply> for AnswerFacts<'a> {
    fn from(reply: &'a Reply) -> Self {
        Self {
            finish_reason: reply.finish_reason.as_deref(),
            refusal: reply.refusal.as_deref(),
            ending: reply.ending.as_deref(),
            text: reply.content.as_deref().unwrap_or_default(),
            has_calls: !reply.tool_calls.is_empty(),
        }
    }
}

impl<'a> From<&'a Thought> for AnswerFacts<'a> {
    fn from(thought: &'a Thought) -> Self {
        Self {
            finish_reason: thought.finish_reason.as_deref(),
            refusal: None,
            ending: None,
            text: &thought.content,
            has_calls: !thought.tool_calls.is_empty(),
        }
    }
}

/// What an answer means for a run of `agent` whose events before it give `state`.
pub fn judge_answer(agent: &Agent, state: &RunState, answer: AnswerFacts<'_>) -> AnswerVerdict {
    let AnswerFacts { finish_reason, refusal, ending, text, has_calls } = answer;
    let end = if state.has_rules(3) {
        AnswerEnd::parse(finish_reason)
    } else {
        AnswerEnd::parse_earlier(finish_reason)
    };
    let reason = finish_reason.unwrap_or_default();
    let text = Some(text.trim()).filter(|text| !text.is_empty());
    let withheld = AnswerVerdict::withheld;
    let refused = |words: &str| withheld("refusal", format!("the model refused: {words}"));
    let cut_off = matches!(end, AnswerEnd::TokenLimit | AnswerEnd::ContextFull);
    let needs_finish = agent.requires_finish && !has_calls && !state.is_ended_by_hook();
    let missing_finish = || needs_finish.then(|| FINISH_REMINDER.to_owned());
    match (refusal, end, text) {
        (Some(refusal), ..) => refused(refusal),
        (None, AnswerEnd::Refused, _) if !reason.eq_ignore_ascii_case("refusal") => {
            refused(&own_reason(reason))
        }
        (None, AnswerEnd::Refused, Some(text)) => refused(text),
        (None, AnswerEnd::Refused, None) => {
            withheld("refusal", "the model refused to answer".to_owned())
        }
        (None, AnswerEnd::Filtered, text) => {
            let action = if text.is_some() || has_calls { "cut off" } else { "withheld" };
            let cause = ending.map_or_else(|| own_reason(reason), str::to_owned);
            let word = cause.trim_start_matches('`').to_lowercase();
            let message = if word.starts_with("recitation") || word.starts_with("image_recitation")
            {
                format!(
                    "the endpoint {action} the answer, which repeats a text of its training data: {cause}"
                )
            } else if cause.is_empty() {
                format!("the endpoint's content filter {action} the answer")
            } else {
                format!("the endpoint's content filter {action} the answer: {cause}")
            };
            withheld("content_filter", message)
        }
        (None, AnswerEnd::BrokenOff | AnswerEnd::Incomplete, _) => {
            let message = format!("the endpoint ended the answer early (finish_reason `{reason}`)");
            withheld("llm", message)
        }
        // A call that was cut off becomes an observation.
        _ if has_calls => AnswerVerdict { cut_off, ..AnswerVerdict::default() },
        (None, AnswerEnd::TokenLimit | AnswerEnd::ContextFull, Some(_)) => {
            let message = format!(
                "the answer was cut off at the token limit (finish_reason `{reason}`); raise `llm.max_tokens`"
            );
            let on_length = agent.llm.answers.on_length;
            let reminder = match on_length {
                OnLength::Accept => missing_finish(),
                OnLength::Fail | OnLength::Continue => Some(CUT_OFF_REMINDER.to_owned()),
            };
            let failure = (on_length == OnLength::Fail).then_some((LENGTH, message));
            let reminder = reminder.filter(|_| !state.is_ended_by_hook());
            AnswerVerdict { cut_off, reminder, failure, ..AnswerVerdict::default() }
        }
        (None, AnswerEnd::TokenLimit | AnswerEnd::ContextFull, None) => {
            let message = format!(
                "the token limit was reached before any answer (finish_reason `{reason}`); raise `llm.max_tokens`"
            );
            withheld(LENGTH, message)
        }
        (None, AnswerEnd::Complete | AnswerEnd::Call | AnswerEnd::Unknown, None) => {
            match agent.llm.answers.on_empty {
                OnEmpty::Remind if !state.was_empty && !state.is_ended_by_hook() => AnswerVerdict {
                    reminder: Some(EMPTY_REMINDER.to_owned()),
                    ..AnswerVerdict::default()
                },
                OnEmpty::Remind | OnEmpty::Retry => {
                    let message = "the LLM answered twice with neither text nor tool calls";
                    withheld(EMPTY_RESPONSE, message.to_owned())
                }
                OnEmpty::Fail => {
                    let message = "the LLM answered with neither text nor tool calls";
                    withheld(EMPTY_RESPONSE, message.to_owned())
                }
            }
        }
        (None, AnswerEnd::Call, Some(text)) if asks_for_missing_call(agent, state) => {
            if agent.llm.answers.on_empty == OnEmpty::Fail {
                let message =
                    format!("the answer ended with finish_reason `{reason}`, but has no call");
                return withheld(EMPTY_RESPONSE, message);
            }
            let reminder = Some(MISSING_CALL_REMINDER.to_owned());
            let verdict = AnswerVerdict { reminder, ..AnswerVerdict::default() };
            judge_text(agent, state, text, verdict)
        }
        (None, AnswerEnd::Complete | AnswerEnd::Call | AnswerEnd::Unknown, Some(text)) => {
            let verdict = AnswerVerdict { reminder: missing_finish(), ..AnswerVerdict::default() };
            judge_text(agent, state, text, verdict)
        }
    }
}

/// The endpoint's own reason for its end in the `finish_reason` of an answer, such as `content_filter: SPII`; empty if that only
/// names the filter.
fn own_reason(finish_reason: &str) -> String {
    let cause = finish_reason.split_once(':').map_or(finish_reason, |(_, cause)| cause).trim();
    if cause.is_empty() || cause == "content_filter" { String::new() } else { format!("`{cause}`") }
}

/// Whether the LLM is to make the call that its answer announces and lacks: once in a row. A hook may have dropped the call.
fn asks_for_missing_call(agent: &Agent, state: &RunState) -> bool {
    let has_tools = !agent.tools.is_empty() || !agent.builtins().is_empty();
    has_tools
        && !state.lacked_call
        && !state.is_ended_by_hook()
        && agent.hooks.get(HookPoint::PostLlmResponse).is_none()
}

/// What a whole text means: `verdict`, unless the text is a call.
fn judge_text(
    agent: &Agent,
    state: &RunState,
    text: &str,
    verdict: AnswerVerdict,
) -> AnswerVerdict {
    let tools = agent.tools.iter().map(|tool| tool.name.as_str());
    let offered: Vec<&str> = tools.chain(agent.builtins()).collect();
    let called = if state.has_rules(3) {
        find_text_call(text, &offered)
    } else {
        find_earlier_text_call(text, &offered)
    };
    let Some(tool) = called else { return verdict };
    let policy = agent.llm.answers.text_calls;
    let has_failed = match policy {
        TextCalls::Note => false,
        TextCalls::Retry => state.text_call.is_some(),
        TextCalls::Fail => true,
    };
    let message = format!("the answer is a call of the tool `{tool}` written as text");
    let reminder = (policy != TextCalls::Note && !state.is_ended_by_hook()).then(|| {
        format!(
            "[Your answer is a call of `{tool}`, written as text, which was not run. Make the call itself, or answer without it.]"
        )
    });
    AnswerVerdict {
        text_call: Some(tool),
        reminder: reminder.or(verdict.reminder),
        failure: has_failed.then_some((TEXT_CALL, message)),
        ..AnswerVerdict::default()
    }
}

/// A warning about an answer whose `finish_reason` is unknown, or announces a call that the answer does not have.
pub fn unknown_end_warning(reply: &Reply) -> Option<String> {
    let reason = reply.finish_reason.as_deref()?;
    match AnswerEnd::parse(Some(reason)) {
        AnswerEnd::Unknown => Some(format!(
            "the finish_reason `{reason}` of the answer is unknown; delta treats the answer as complete"
        )),
        AnswerEnd::Call if reply.tool_calls.is_empty() => {
            Some(format!("the answer ended with finish_reason `{reason}`, but has no call"))
        }
        _ => None,
    }
}
