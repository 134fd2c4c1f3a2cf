//! Acting: the next call of an answer, from its arguments to what it leads to.

use super::call_results::{CallOutcome, UnknownOutcome, record_observation, record_refusal};
use super::execute::{DecidedCall, record_unstarted_request};
use super::hooks::GateOutcome;
use super::{Engine, EngineError};
use delta_agent::ask_human;
use delta_agent::tool::Tool;
use delta_agent::tool::observation::Observation;
use delta_base::durable;
use delta_base::json::ExactJson;
use delta_mcp::holder_config::{HOLDER_DIR, task_record_path};
use delta_plan::approval_plan::call_after_gate;
use delta_plan::call_plan::{
    CallPlan, FINISHED_OBSERVATION, RecordedArguments, plan_call, plan_companions,
};
use delta_plan::checked_call::CheckedCall;
use delta_plan::hook_observation::ENDED_BY_HOOK_OBSERVATION;
use delta_run::event::approval::ApprovalRequest;
use delta_run::event::{HumanQuestion, Payload};
use delta_run::record;
use delta_run::record::surviving_call::SurvivingCall;
use delta_run::run::{Run, RunNotice};
use delta_run::state::PendingCall;
use delta_run::state::stage::StageDir;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How many bytes of a dead call's output the LLM sees.
const DEAD_CALL_TAIL_BYTES: u64 = 4096;

/// The start of the observation of a call whose engine died.
const INTERRUPTED_CALL_PREFIX: &str = "[the engine stopped during this call";

impl<'a> Engine<'a> {
    pub(super) fn act(&mut self, run: &mut Run, call: &PendingCall) -> Result<(), EngineError> {
        match plan_call(self.agent, run.state(), call, self.environment.vars()) {
            CallPlan::Start(checked) => {
                self.check_disk_limit(run)?;
                self.run_calls(run, *checked)
            }
            CallPlan::Finish(arguments, result) => {
                record_unstarted_request(run, call, arguments);
                self.finish_run(run, call, result)
            }
            CallPlan::Ask(arguments, question) => {
                self.record_question(run, call, arguments, question)
            }
            CallPlan::Refuse(reason) => {
                record_unstarted_request(run, call, (&call.arguments).into());
                record_refusal(run, call, reason);
                Ok(())
            }
        }
    }

    /// Runs a call, and the calls that run at the same time. Nothing starts before every one of them
    /// has passed pre_tool_execution and is approved; the first that has to be asked about ends the batch.
    fn run_calls(&mut self, run: &mut Run, checked: CheckedCall<'a>) -> Result<(), EngineError> {
        let vars = self.environment.vars();
        let companions =
            plan_companions(self.agent, run.state(), checked.call(), self.max_parallel, vars);
        let companions: Vec<_> = companions.map(|(call, plan)| (call.clone(), plan)).collect();
        let mut batch = Vec::with_capacity(1 + companions.len());
        let mut request = self.decide_call(run, checked, &mut batch)?;
        for (call, plan) in companions {
            if request.is_some() || run.state().is_ended_by_hook() {
                break;
            }
            match plan {
                CallPlan::Start(checked) => {
                    request = self.decide_call(run, *checked, &mut batch)?;
                }
                CallPlan::Refuse(reason) => batch.push(DecidedCall::Refuse(call, reason)),
                // Calls of delta's own tools.
                CallPlan::Finish(..) | CallPlan::Ask(..) => break,
            }
        }
        if run.state().is_ended_by_hook() {
            for call in &mut batch {
                call.refuse(ENDED_BY_HOOK_OBSERVATION);
            }
        }
        self.execute_calls(run, batch)?;
        if let Some(request) = request {
            run.record(Payload::ApprovalRequest(request));
        }
        Ok(())
    }

    /// Decides about a call and adds it to the batch, or returns the question whether it is approved.
    fn decide_call(
        &self,
        run: &mut Run,
        checked: CheckedCall<'a>,
        batch: &mut Vec<DecidedCall<'a>>,
    ) -> Result<Option<Box<ApprovalRequest>>, EngineError> {
        let passed = call_after_gate(run.state(), &checked, self.environment.vars());
        if let Some(passed) = passed {
            return self.decide_approval(run, passed, batch);
        }
        match self.ask_tool_gate(run, &checked)? {
            GateOutcome::Proceed => self.decide_approval(run, checked, batch),
            GateOutcome::Replace(replaced) => self.decide_approval(run, *replaced, batch),
            GateOutcome::Deny(reason) => {
                batch.push(DecidedCall::Refuse(checked.into_call(), reason));
                Ok(None)
            }
        }
    }

    /// Settles a call whose engine died. It does not run again unless its tool is idempotent, or it became a task of an
    /// MCP server, for whose result its command then asks.
    pub(super) fn settle_dead_call(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        execution: Option<&str>,
    ) -> Result<(), EngineError> {
        let tool = self.agent.tool(&call.tool);
        let lost = SurvivingCall::find(&run.dir, &call.id);
        if let Some(held_call) = &lost {
            if self.resume_held_call(run, call, held_call)? {
                return Ok(());
            }
            // From here on no holder that is just starting starts its command.
            let _lock = held_call.try_hold();
            held_call.give_up();
        }
        if tool.is_some_and(|tool| tool.idempotent || has_task_record(run, tool, call))
            && let CallPlan::Start(checked) =
                plan_call(self.agent, run.state(), call, self.environment.vars())
        {
            return self.run_calls(run, *checked);
        }
        let layers = StageDir::for_call(&run.dir);
        // They exist before the command starts, and until its changes are in a durable question.
        let was_staged = tool.is_some_and(|tool| tool.is_staged) && layers.has_layers();
        if was_staged {
            layers.clear()?;
        }
        let unknown = UnknownOutcome {
            tool,
            arguments: None,
            execution,
            surviving: lost,
            reason: INTERRUPTED_CALL_PREFIX,
            has_discarded: was_staged,
        };
        self.record_unknown_outcome(run, call, unknown)
    }

    /// Records that the outcome of a call is unknown, with what its command had printed.
    pub(super) fn record_unknown_outcome(
        &self,
        run: &mut Run,
        call: &PendingCall,
        unknown: UnknownOutcome<'_>,
    ) -> Result<(), EngineError> {
        let UnknownOutcome { tool, arguments, execution, surviving, reason, has_discarded } =
            unknown;
        let (discarded, elsewhere) = if has_discarded {
            ("; what it changed in the workspace was thrown away", " outside of it")
        } else {
            ("", "")
        };
        let mut text = format!(
            "{reason}{discarded}; whether it took effect{elsewhere} is unknown, and it was not run again]"
        );
        for (stream, heading) in
            [("stdout", "printed until then"), ("stderr", "printed to stderr until then")]
        {
            if stream == "stdout" && tool.is_some_and(|tool| !tool.output.is_text()) {
                continue;
            }
            let path = execution.and_then(|name| {
                Some(run.dir.join(name.strip_suffix("json")?).with_extension(stream))
            });
            let path = surviving.as_ref().map(|call| call.output_path(stream)).or(path);
            let tail = path.and_then(|path| read_tail(&path, DEAD_CALL_TAIL_BYTES).ok());
            if let Some(tail) = tail.filter(|tail| !tail.is_empty() && !tail.contains(&0)) {
                text.push_str(&format!("\n[{heading}]\n{}", String::from_utf8_lossy(&tail)));
            }
        }
        let observation = Observation { text, ..Observation::default() };
        let (observation, hook_result) =
            self.filter_observation(run, call, arguments, observation, execution);
        let outcome = CallOutcome {
            execution: execution.map(str::to_owned),
            record_sha256: execution.and_then(|name| record::hash_written_record(&run.dir, name)),
            runs: self.heads_of_started_runs(run, call),
            ..CallOutcome::default()
        };
        record_observation(run, call, observation, outcome);
        if let Some(surviving) = surviving {
            self.note_held_result(surviving);
        }
        hook_result
    }

    fn finish_run(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        result: ExactJson,
    ) -> Result<(), EngineError> {
        let record = run.records.write_finish((self.clock)(), &call.id, &result)?;
        let text = FINISHED_OBSERVATION.to_owned();
        let observation = Observation { text, exit_code: Some(0), ..Observation::default() };
        let outcome = CallOutcome {
            execution: Some(record.name),
            record_sha256: Some(record.sha256),
            result: Some(result),
            ..CallOutcome::default()
        };
        record_observation(run, call, observation, outcome);
        Ok(())
    }

    /// Records a question; the next step waits for the answer. Nothing that the run has started may still run then: it
    /// could answer in the user's place.
    fn record_question(
        &self,
        run: &mut Run,
        call: &PendingCall,
        arguments: RecordedArguments,
        question: HumanQuestion,
    ) -> Result<(), EngineError> {
        self.end_started_processes(&self.cancel);
        ask_human::remove_old_interaction(&run.dir)?;
        record_unstarted_request(run, call, arguments);
        run.record(Payload::HumanInputRequest(question));
        Ok(())
    }

    /// Waits for the answer at the terminal; returns false if another process has to deliver it.
    pub(super) fn wait_for_answer(
        &mut self,
        run: &mut Run,
        question: &HumanQuestion,
    ) -> Result<bool, EngineError> {
        run.commit()?;
        self.end_started_processes(&self.cancel);
        run.notify(RunNotice::WaitingForAnswer(question));
        let response = match self.human.as_mut().map(|human| human.ask(question)) {
            Some(Ok(Some(response))) => response,
            Some(Ok(None)) | None => {
                ask_human::remove_old_interaction(&run.dir)?;
                let now = (self.clock)();
                ask_human::write_interaction_request(&run.dir, run.state(), None, now)?;
                return Ok(false);
            }
            Some(Err(_)) if self.cancel.is_requested() => return Err(EngineError::Cancelled),
            Some(Err(error)) => return Err(EngineError::Human(error)),
        };
        let call_id = question.call_id.clone();
        let iteration = question.iteration;
        run.record(Payload::HumanInputReceived { iteration, call_id, response });
        Ok(true)
    }

    pub(super) fn record_answer(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
        response: String,
    ) -> Result<(), EngineError> {
        let observation =
            Observation { text: response, exit_code: Some(0), ..Observation::default() };
        record_observation(run, call, observation, CallOutcome::default());
        run.commit()?;
        ask_human::clear_interaction(&run.dir);
        Ok(())
    }
}

/// Whether the call became a task of an MCP server.
fn has_task_record(run: &Run, tool: &Tool, call: &PendingCall) -> bool {
    tool.mcp.is_some()
        && durable::is_file_no_follow(&task_record_path(&run.dir.join(HOLDER_DIR), &call.id))
}

/// Reads the end of a file, which may be large.
fn read_tail(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut file = durable::open_no_follow(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut tail = Vec::new();
    file.take(limit).read_to_end(&mut tail)?;
    Ok(tail)
}
