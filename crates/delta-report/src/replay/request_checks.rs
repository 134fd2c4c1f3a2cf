//! Rebuilds the requests of a run, and checks its thoughts against the recorded answers.

use super::request_rebuild::{RebuildInput, RebuiltRequest, rebuild_request, split_blocks};
use super::verifier::RunVerifier;
use super::{ReplayDifference, ReplayReport};
use crate::request_breakdown::{self, RequestBreakdown};
use delta_agent::context::RecordedBlock;
use delta_agent::hook::HookPoint;
use delta_agent::hook::answer::{self, HookAnswer};
use delta_base::redact::{REDACTED, Secrets};
use delta_llm::llm::wire::without_stream_options;
use delta_plan::answer_verdict::judge_answer;
use delta_plan::request_body::{RequestBasis, replace_request, request_frame};
use delta_run::event::Thought;
use delta_run::limits::token_estimate::{self, TokenRatio};
use delta_run::record::{self, ContextBlock, HookExecutionRecord, RequestBody};
use delta_words::{NativeParts, Reply, parse_reply};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// The facts about a rebuilt request that its thought records.
pub(super) struct RequestFacts {
    /// The tokens, estimated from its text and its images.
    estimated_tokens: u64,
    /// The number of iterations that it leaves out.
    left_out: usize,
}

impl RunVerifier<'_> {
    pub(super) fn check_thought(&mut self, thought: &Thought) {
        let iteration = Some(thought.iteration);
        let next = self.state.iterations.saturating_add(1);
        self.report.compare_json(iteration, "the iteration number", thought.iteration, next);
        if let Some(config) = &self.config {
            let expected = judge_answer(&config.agent, &self.state, thought.into());
            self.report.compare_json(
                iteration,
                "what the answer means",
                json!({"cut_off": thought.cut_off, "text_call": thought.text_call, "reminder": thought.reminder.is_some()}),
                json!({"cut_off": expected.cut_off, "text_call": expected.text_call, "reminder": expected.reminder.is_some()}),
            );
        }
        let Some(name) = &thought.invocation else {
            let reason = format!("iteration {}: it names no record", thought.iteration);
            self.report.add_not_checked(reason);
            return;
        };
        if let Some(facts) = self.check_request(thought.iteration, name) {
            let estimated = thought.estimated_tokens.map(|_| facts.estimated_tokens);
            self.report.compare_json(
                iteration,
                "the size of the request",
                json!({"estimated_tokens": thought.estimated_tokens, "left_out": thought.left_out}),
                json!({"estimated_tokens": estimated, "left_out": facts.left_out}),
            );
        }
        self.check_reply(thought, name);
    }

    /// Rebuilds the request in the record `name` and compares it; `None` when that is not possible.
    pub(super) fn check_request(&mut self, iteration: u32, name: &str) -> Option<RequestFacts> {
        self.io_files.check_record_text(name, Some(iteration), self.report)?;
        let request = match self.requests.get(name) {
            Ok(request) => request.clone(),
            Err(error) => {
                let subject = format!("the request in {name}");
                let error = error.to_string();
                self.report.add_mismatch(Some(iteration), subject, error, "the request as sent");
                return None;
            }
        };
        self.report.checked.requests += 1;
        self.config.as_ref()?;
        let Some(blocks) = record::read_context_blocks(self.run_dir, name).ok().flatten() else {
            self.report
                .add_not_checked(format!("the request in {name}: its context blocks are missing"));
            return None;
        };
        match self.last_hook_record(HookPoint::PreLlmRequest) {
            Some(record) => self.compare_hooked_request(iteration, &record, &request, &blocks),
            None => self.compare_rebuilt(iteration, "the request", &request, &blocks),
        }
    }

    /// Compares a request that pre_llm_request may have changed; `record` is the hook's record.
    fn compare_hooked_request(
        &mut self,
        iteration: u32,
        record: &str,
        request: &RequestBody,
        blocks: &[ContextBlock],
    ) -> Option<RequestFacts> {
        #[derive(Deserialize)]
        struct PreRequestHookInput<'a> {
            #[serde(borrow)]
            request: &'a RawValue,
        }
        let hook: HookExecutionRecord<'_> =
            self.io_files.check_record(record, Some(iteration), self.report)?;
        let input = self.hook_input(record, &hook)?;
        let Ok(PreRequestHookInput { request: before }) = serde_json::from_str(&input) else {
            let expected = "the request for the hook";
            self.report.add_mismatch(Some(iteration), record, "no request", expected);
            return None;
        };
        let subject = "the request before the hook pre_llm_request";
        let before = RequestBody::from_text(before.get());
        let facts = self.compare_rebuilt(iteration, subject, &before, blocks)?;
        let result = self.hook_result(record, iteration)?;
        let agent = &self.config.as_ref()?.agent;
        let config = agent.hooks.get(HookPoint::PreLlmRequest)?;
        let after = match answer::parse_request_replacement(&result, config) {
            Ok(HookAnswer { replacement: Some(replacement), .. }) => {
                let frame = request_frame(agent, &RequestBasis::next(agent, &self.state));
                let body = RequestBody::default();
                let no_secrets = Secrets::default();
                replace_request(body, &frame, replacement, &no_secrets)
            }
            Ok(_) | Err(_) => before,
        };
        let after = after.text();
        if without_stream_options(after).as_ref() != Some(request.text()) {
            let subject = "the request after the hook pre_llm_request";
            self.report.compare(Some(iteration), subject, request.text(), after);
        }
        Some(RequestFacts { estimated_tokens: self.estimated_tokens(after), ..facts })
    }

    /// Compares a request that no hook changed with the rebuilt one.
    fn compare_rebuilt(
        &mut self,
        iteration: u32,
        subject: &str,
        request: &RequestBody,
        blocks: &[ContextBlock],
    ) -> Option<RequestFacts> {
        let Some(recorded) = split_blocks(request, blocks) else {
            let expected = "the messages of its context blocks";
            self.report.add_mismatch(Some(iteration), subject, "other messages", expected);
            return None;
        };
        let is_same = |rebuilt: &RebuiltRequest| {
            rebuilt.body.text() == request.text()
                || without_stream_options(rebuilt.body.text()).as_ref() == Some(request.text())
        };
        let rebuilt = match self.rebuild(iteration, &recorded, true) {
            Ok(rebuilt) => rebuilt,
            Err(reason) => {
                let expected = "context blocks of the agent";
                self.report.add_mismatch(Some(iteration), subject, reason, expected);
                return None;
            }
        };
        if is_same(&rebuilt) {
            return Some(self.request_facts(&rebuilt));
        }
        if self.config.as_ref()?.is_intact
            && let Ok(as_sent) = self.rebuild(iteration, &recorded, false)
            && is_same(&as_sent)
        {
            self.report.add_not_checked(format!(
                "the system prompt of iteration {iteration}: its file changed after it was copied"
            ));
            return Some(self.request_facts(&as_sent));
        }
        report_request_difference(
            self.report,
            iteration,
            subject,
            request.text(),
            blocks,
            &rebuilt,
        );
        Some(self.request_facts(&rebuilt))
    }

    /// Rebuilds a request, with the system prompt of the agent copy or as it was sent.
    fn rebuild(
        &self,
        iteration: u32,
        blocks: &[RecordedBlock<'_>],
        with_prompt: bool,
    ) -> Result<RebuiltRequest, String> {
        let config = self.config.as_ref().ok_or("the copy of the agent is missing")?;
        let recorded = RebuildInput { iteration, state: &self.state, blocks };
        rebuild_request(&config.agent, &config.vars, recorded, with_prompt)
    }

    fn request_facts(&self, rebuilt: &RebuiltRequest) -> RequestFacts {
        RequestFacts {
            estimated_tokens: self.estimated_tokens(rebuilt.body.text()),
            left_out: rebuilt.left_out,
        }
    }

    fn estimated_tokens(&self, request: &str) -> u64 {
        let image_tokens = self.state.conversation.image_tokens(request);
        token_estimate::estimate_request_tokens(request, image_tokens)
    }

    /// Compares a thought with the recorded answer, after post_llm_response.
    fn check_reply(&mut self, thought: &Thought, name: &str) {
        let iteration = Some(thought.iteration);
        let error = match record::read_recording(self.run_dir, name).map(|record| record.result) {
            Ok(Ok(reply)) => return self.compare_reply(thought, reply),
            Ok(Err(error)) => error,
            Err(record::RecordError::Unreadable { .. }) => return,
            Err(error) => error.to_string(),
        };
        self.report.add_mismatch(iteration, format!("the answer in {name}"), error, "an answer");
    }

    fn compare_reply(&mut self, thought: &Thought, reply: Reply) {
        let Some(reply) = self.filtered_reply(thought.iteration, reply) else { return };
        let changes = self.state.model_changes;
        let llm = self.config.as_ref().map(|config| config.agent.llm.after_changes(changes));
        let strips = llm.is_some_and(|llm| llm.strip_think);
        let reply = if strips { reply.with_stripped_think() } else { reply };
        // Without the agent's configuration, assume that the journal is right about `echo_reasoning`.
        let echoes = llm.map_or(thought.reasoning.is_some(), |llm| llm.echo_reasoning);
        let mut expected_calls = json!(reply.tool_calls);
        // The key in them is only in the memory of the engine that recorded them.
        for index in &thought.redacted_calls {
            let recorded =
                thought.tool_calls.get(*index).map(|call| json!(call.function.arguments));
            if let (Some(recorded), Some(expected)) = (recorded, expected_calls.get_mut(*index)) {
                expected["function"]["arguments"] = recorded;
            }
        }
        let members = [
            ("content", json!(thought.content), json!(reply.content.unwrap_or_default())),
            ("tool_calls", json!(thought.tool_calls), expected_calls),
            ("reasoning", json!(thought.reasoning), json!(reply.reasoning.filter(|_| echoes))),
            ("native", json!(thought.native), json!(reply.native.filter(is_intact))),
            ("finish_reason", json!(thought.finish_reason), json!(reply.finish_reason)),
            ("usage", json!(thought.usage), json!(reply.usage)),
        ];
        for (member, recorded, expected) in members {
            let subject = format!("the answer's {member}");
            self.report.compare_json(Some(thought.iteration), subject, recorded, expected);
        }
    }

    /// The answer after post_llm_response; `None` when the hook's record is missing.
    fn filtered_reply(&mut self, iteration: u32, reply: Reply) -> Option<Reply> {
        let hook = HookPoint::PostLlmResponse;
        let Some(record) = self.last_hook_record(hook) else { return Some(reply) };
        let result = self.hook_result(&record, iteration)?;
        let agent = &self.config.as_ref()?.agent;
        let config = agent.hooks.get(hook)?;
        let answer = answer::parse_response_replacement(&result, config).ok();
        let response = answer.and_then(|answer| answer.replacement);
        let replacement = response.and_then(|response| {
            parse_reply(&response, &agent.llm.after_changes(self.state.model_changes).model).ok()
        });
        Some(match replacement {
            Some(replacement) => reply.replaced_by(replacement),
            None => reply,
        })
    }
}

/// Whether nothing in opaque parts was redacted; otherwise the engine left them out.
fn is_intact(native: &NativeParts) -> bool {
    !native.parts.to_string().contains(REDACTED)
}

/// Adds the first difference of a recorded and a rebuilt request, with its place in the recorded one.
fn report_request_difference(
    report: &mut ReplayReport,
    iteration: u32,
    subject: &str,
    request: &str,
    blocks: &[ContextBlock],
    rebuilt: &RebuiltRequest,
) {
    let parse = |text, blocks| RequestBreakdown::parse(text, blocks, TokenRatio::default()).ok();
    let breakdowns = parse(rebuilt.body.text(), &rebuilt.blocks).zip(parse(request, blocks));
    let difference = breakdowns.and_then(|(rebuilt, recorded)| {
        request_difference(iteration, subject, &rebuilt, &recorded)
    });
    match difference {
        Some(difference) => report.add_difference(ReplayDifference {
            recorded: difference.expected,
            expected: difference.recorded,
            ..difference
        }),
        None => report.compare(Some(iteration), subject, request, rebuilt.body.text()),
    }
}

/// The first difference from one request to another, with its message and block in the other one.
pub fn request_difference(
    iteration: u32,
    subject: &str,
    one: &RequestBreakdown<'_>,
    other: &RequestBreakdown<'_>,
) -> Option<ReplayDifference> {
    let difference =
        request_breakdown::compare_breakdowns(one, other, TokenRatio::default(), None).breaks?;
    let subject = match difference.message {
        Some(_) => subject.to_owned(),
        None => format!("{subject}, {}", difference.part),
    };
    Some(ReplayDifference {
        iteration: Some(iteration),
        what: subject,
        message: difference.message,
        source: difference.source,
        byte: Some(difference.offset),
        recorded: difference.before,
        expected: difference.after,
    })
}
