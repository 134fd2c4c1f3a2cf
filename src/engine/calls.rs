//! Acting: one call of an answer, from its arguments to its observation.

use super::hooks::Input;
use super::plan::{Plan, plan, recorded_arguments};
use super::{Engine, EngineError, millis};
use crate::durable;
use crate::event::{ActionRequest, ActionResult, Payload, Question};
use crate::hook::Hook;
use crate::human;
use crate::process::{self, Command, End, Finished, Spool};
use crate::record::{self, Execution, Stream};
use crate::run::{Notice, Run};
use crate::state::Call;
use crate::tool::observation::{Observation, observe};
use crate::tool::{Tool, argv::Invocation as ToolInvocation};
use serde_json::Value as Json;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much of what a dead engine's tool had printed the LLM is shown.
const SHOWN_OF_A_DEAD_CALL: u64 = 4096;

/// What the LLM sees of the call that ended the run.
pub const FINISHED: &str = "[the run is finished]";
/// How the observation of a call begins whose engine died.
pub const CUT_SHORT: &str = "[the engine stopped during this call";

impl Engine<'_> {
    pub(super) fn act(&mut self, run: &mut Run, call: &Call) -> Result<(), EngineError> {
        match plan(self.agent, run.state(), call, self.environment.vars()) {
            Plan::Start(invocation) => self.attempt(run, call, invocation),
            Plan::Finish(result) => self.finish(run, call, result),
            Plan::Ask(question) => self.ask(run, call, question),
            Plan::Refuse(why) => {
                self.refuse(run, call, why);
                Ok(())
            }
        }
    }

    /// Carries out a call whose arguments fit, unless pre_tool_execution denies it.
    fn attempt(
        &mut self,
        run: &mut Run,
        call: &Call,
        invocation: ToolInvocation,
    ) -> Result<(), EngineError> {
        let Some(tool) = self.agent.tool(&call.tool) else { return Ok(()) };
        match self.ask_gate(run, call, tool, invocation)? {
            Ok((call, invocation)) => self.execute(run, &call, tool, &invocation),
            Err(why) => {
                self.refuse(run, call, why);
                Ok(())
            }
        }
    }

    /// Runs a tool: its request is durable before it starts, its result is recorded when it has ended.
    fn execute(
        &mut self,
        run: &mut Run,
        call: &Call,
        tool: &Tool,
        invocation: &ToolInvocation,
    ) -> Result<(), EngineError> {
        let started_at = (self.clock)();
        let stem = run
            .records
            .fresh_stem("tool_executions", &format!("{}_{}", started_at.compact(), tool.name));
        let execution = format!("io/tool_executions/{stem}.json");
        // Where there is no room for its record, nothing is asked for and nothing starts.
        let record = run.records.create(&execution)?;
        request(run, call, Some(invocation.argv.clone()), Some(execution.clone()));
        run.send();
        let (cwd, finished) = self.run_tool(run, call, tool, invocation, &stem)?;
        let place = format!(".delta/{}/io/tool_executions", run.id);
        let seen = observe(&finished, tool.timeout_ms, &place, &format!("{stem}.json"));
        let run_id = run.id.to_string();
        run.records.execution(
            record,
            &Execution {
                run_id: &run_id,
                iteration: call.iteration,
                tool: &tool.name,
                call_id: &call.id,
                argv: &invocation.argv,
                cwd: &cwd,
                stdin: &invocation.stdin,
                started_at,
                duration_ms: millis(finished.duration),
                exit_code: seen.exit_code,
                ended: record::ended(&finished.end),
                stdout: Stream::of(&finished.stdout),
                stderr: Stream::of(&finished.stderr),
            },
        )?;
        let (seen, next) = self.filter(run, call, seen);
        observed(run, call, seen, millis(finished.duration), Some(execution));
        next?;
        match &finished.end {
            End::NotStarted { reason, .. } => self.tool_not_started(run, call, reason),
            _ => Ok(()),
        }
    }

    /// Tells on_error of a tool that could not be started.
    fn tool_not_started(
        &self,
        run: &mut Run,
        call: &Call,
        reason: &str,
    ) -> Result<(), EngineError> {
        let message = format!("the tool {} could not be started: {reason}", call.tool);
        let input = Input::of_error("tool_not_started", &message)
            .with("call_id", &call.id)
            .with("tool", &call.tool);
        self.notify(run, Hook::OnError, call.iteration, || input, &self.cancel)
    }

    /// Runs the tool of a call whose request was recorded: nothing of it starts before that is durable.
    fn run_tool(
        &self,
        run: &mut Run,
        call: &Call,
        tool: &Tool,
        invocation: &ToolInvocation,
        stem: &str,
    ) -> Result<(PathBuf, Finished), EngineError> {
        let vars = self.environment.vars();
        let env = tool.env.iter().map(|(name, value)| (name.as_str(), vars.fill(value)));
        let env = env.chain([("DELTA_CALL_ID", call.id.clone())]);
        let launch = self.environment.launch(call.iteration, &tool.pass_env, env);
        let (directory, run_dir) = (run.records.dir("tool_executions"), run.dir.clone());
        let run_dir = run_dir.to_string_lossy();
        let command = Command {
            argv: &invocation.argv,
            launch: &launch,
            stdin: invocation.stdin.as_bytes(),
            timeout: Duration::from_millis(tool.timeout_ms),
            spool: Some(Spool { dir: &directory, stem }),
            keep: tool.max_output_bytes,
            keep_all: false,
            // Another run may have a call of the same id.
            marks: &[("RUN_DIR", &run_dir), ("DELTA_CALL_ID", &call.id)],
        };
        let prepared = process::prepare(&command);
        run.commit()?;
        let finished = prepared.run(&self.cancel);
        Ok((launch.cwd, finished))
    }

    /// Settles a call whose engine died: it is not run again, unless its tool says that this does no harm.
    pub(super) fn settle(
        &mut self,
        run: &mut Run,
        call: &Call,
        execution: Option<&str>,
    ) -> Result<(), EngineError> {
        if self.agent.tool(&call.tool).is_some_and(|tool| tool.idempotent)
            && let Plan::Start(invocation) =
                plan(self.agent, run.state(), call, self.environment.vars())
        {
            return self.attempt(run, call, invocation);
        }
        let mut text =
            format!("{CUT_SHORT}; whether it took effect is unknown, and it was not run again]");
        for (stream, heading) in
            [("stdout", "printed until then"), ("stderr", "printed to stderr until then")]
        {
            let path = execution.and_then(|name| {
                Some(run.dir.join(name.strip_suffix("json")?).with_extension(stream))
            });
            let tail = path.and_then(|path| tail_of(&path, SHOWN_OF_A_DEAD_CALL).ok());
            if let Some(tail) = tail.filter(|tail| !tail.is_empty()) {
                text.push_str(&format!("\n[{heading}]\n{}", String::from_utf8_lossy(&tail)));
            }
        }
        let seen = Observation { text, exit_code: None, truncated: false };
        let (seen, next) = self.filter(run, call, seen);
        observed(run, call, seen, 0, execution.map(str::to_owned));
        next
    }

    /// Answers a call without starting anything.
    fn refuse(&self, run: &mut Run, call: &Call, why: String) {
        request(run, call, None, None);
        let seen = Observation { text: why, exit_code: None, truncated: false };
        observed(run, call, seen, 0, None);
    }

    fn finish(&mut self, run: &mut Run, call: &Call, result: Json) -> Result<(), EngineError> {
        request(run, call, None, None);
        let execution = Some(run.records.finish((self.clock)(), &call.id, &result)?);
        run.record(Payload::ActionResult(Box::new(ActionResult {
            iteration: call.iteration,
            call_id: call.id.clone(),
            tool_name: call.tool.clone(),
            observation_content: FINISHED.to_owned(),
            exit_code: Some(0),
            duration_ms: 0,
            execution,
            truncated: false,
            result: Some(result),
        })));
        Ok(())
    }

    /// Puts a question into the journal; waiting for the answer is the next step.
    fn ask(&self, run: &mut Run, call: &Call, question: Question) -> Result<(), EngineError> {
        human::forget_old(&run.dir)?;
        request(run, call, None, None);
        run.record(Payload::HumanInputRequest(question));
        Ok(())
    }

    /// Waits for the answer to a question at the terminal; false when it has to come with another process.
    pub(super) fn wait(&mut self, run: &mut Run, question: &Question) -> Result<bool, EngineError> {
        run.commit()?;
        run.tell(Notice::Waiting(question));
        let Some(person) = &mut self.person else {
            human::write_request(&run.dir, question, (self.clock)())?;
            return Ok(false);
        };
        let response = match person.ask(question) {
            Ok(response) => response,
            Err(_) if self.cancel.requested() => return Err(EngineError::Cancelled),
            Err(error) => return Err(EngineError::Person(error)),
        };
        let (iteration, call_id) = (question.iteration, question.call_id.clone());
        run.record(Payload::HumanInputReceived { iteration, call_id, response });
        Ok(true)
    }

    pub(super) fn reply(
        &mut self,
        run: &mut Run,
        call: &Call,
        response: String,
    ) -> Result<(), EngineError> {
        let seen = Observation { text: response, exit_code: Some(0), truncated: false };
        observed(run, call, seen, 0, None);
        run.commit()?;
        human::clear(&run.dir);
        Ok(())
    }
}

/// Records the ACTION_REQUEST of a call, unless it has one: one that starts nothing may be done again.
fn request(run: &mut Run, call: &Call, argv: Option<Vec<String>>, execution: Option<String>) {
    if argv.is_none() && run.state().is_begun(&call.id) {
        return;
    }
    run.record(Payload::ActionRequest(Box::new(ActionRequest {
        iteration: call.iteration,
        call_id: call.id.clone(),
        tool_name: call.tool.clone(),
        tool_args: recorded_arguments(&call.arguments),
        argv,
        execution,
    })));
}

fn observed(
    run: &mut Run,
    call: &Call,
    seen: Observation,
    duration_ms: u64,
    execution: Option<String>,
) {
    run.record(Payload::ActionResult(Box::new(ActionResult {
        iteration: call.iteration,
        call_id: call.id.clone(),
        tool_name: call.tool.clone(),
        observation_content: seen.text,
        exit_code: seen.exit_code,
        duration_ms,
        execution,
        truncated: seen.truncated,
        result: None,
    })));
}

/// The last bytes of a file, which may be large.
fn tail_of(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut file = durable::open_regular(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut tail = Vec::new();
    file.take(limit).read_to_end(&mut tail)?;
    Ok(tail)
}
