//! The engine: think, act, observe.
//!
//! One loop for every run: it asks the state what comes next, does one thing, records the result, and asks again. It
//! never prints, never exits and reads no environment variable; before every act it commits what the act follows from.

use crate::agent::{Agent, Finish};
use crate::context::{ContextError, Generator};
use crate::durable::FileError;
use crate::environment::Environment;
use crate::event::{ActionRequest, ActionResult, ErrorDetails, Payload, Question, Thought};
use crate::human::{self, Person};
use crate::llm::{LlmError, Message, Provider, Reply, Request};
use crate::process::{self, Command, Spool};
use crate::record::{self, Body, Execution, Invocation, Stream};
use crate::run::{Notice, Run};
use crate::signal::Cancel;
use crate::state::{ASK_HUMAN, Call, Ending, FINISH, Step};
use crate::text;
use crate::time::Clock;
use crate::tool::observation::{Observation, observe};
use crate::tool::{Tool, argv::Invocation as ToolInvocation};
use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};

/// How much of what a dead engine's tool had printed the LLM is shown.
const SHOWN_OF_A_DEAD_CALL: usize = 4096;

/// What drives a run.
pub struct Engine<'a> {
    agent: &'a Agent,
    environment: Environment,
    provider: Box<dyn Provider>,
    cancel: Cancel,
    person: Option<Box<dyn Person>>,
    clock: Clock,
    /// The request body before its messages, and behind them.
    frame: (String, String),
}

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
enum EngineError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(transparent)]
    Llm(#[from] LlmError),
    #[error("{message}")]
    Answer { kind: &'static str, message: String },
    #[error("nobody answered: {0}")]
    Person(std::io::Error),
}

impl EngineError {
    fn is_cancelled(&self) -> bool {
        matches!(self, Self::Llm(LlmError::Cancelled) | Self::Context(ContextError::Cancelled))
    }

    fn details(&self) -> ErrorDetails {
        let kind = match self {
            Self::File(_) => "io",
            Self::Context(_) => "context",
            Self::Llm(_) => "llm",
            Self::Answer { kind, .. } => kind,
            Self::Person(_) => "interaction",
        };
        let mut details = ErrorDetails { kind: kind.to_owned(), ..ErrorDetails::default() };
        if let Self::Llm(LlmError::Failed { status, hint, script_turn, .. }) = self {
            (details.status, details.script_turn) = (*status, *script_turn);
            details.hint.clone_from(hint);
        }
        details
    }
}

impl<'a> Engine<'a> {
    /// An engine for runs of `agent`.
    pub fn new(
        agent: &'a Agent,
        environment: Environment,
        provider: Box<dyn Provider>,
        cancel: Cancel,
        person: Option<Box<dyn Person>>,
        clock: Clock,
    ) -> Self {
        let frame = frame(agent);
        Self { agent, environment, provider, cancel, person, clock, frame }
    }

    /// Drives `run` until this process has to leave it, and records how.
    ///
    /// # Errors
    /// The journal could not be written: nothing was started that it does not hold, and nothing more can be recorded.
    pub fn drive(&mut self, run: &mut Run) -> Result<Ending, FileError> {
        let ending = match self.steps(run) {
            Ok(ending) => ending,
            Err(error) if error.is_cancelled() => Ending::Interrupted,
            Err(error) => {
                let (error_message, error_details) = (error.to_string(), error.details());
                run.record(Payload::Error { error_message, error_details });
                Ending::Failed
            }
        };
        if let Ending::OutOfIterations { allowed } = ending {
            let error_message = format!("the task is not finished after {allowed} iterations");
            let hint = "continue with a message, or raise `max_iterations` or `--max-iterations`"
                .to_owned();
            let kind = "max_iterations".to_owned();
            let error_details = ErrorDetails { kind, hint: Some(hint), ..ErrorDetails::default() };
            run.record(Payload::Error { error_message, error_details });
        }
        let (run_id, final_iteration) = (run.id.to_string(), run.state().iterations);
        run.record(Payload::EngineEnd { run_id, status: ending.status(), final_iteration });
        run.commit()?;
        Ok(ending)
    }

    fn steps(&mut self, run: &mut Run) -> Result<Ending, EngineError> {
        loop {
            if self.cancel.requested() {
                return Ok(Ending::Interrupted);
            }
            match run.state().next_step() {
                Step::Think { iteration } => self.think(run, iteration)?,
                Step::Act(call) => self.act(run, &call)?,
                Step::Settle { call, execution } => {
                    self.settle(run, &call, execution.as_deref())?
                }
                Step::Wait(question) => {
                    if !self.wait(run, &question)? {
                        return Ok(Ending::Waiting);
                    }
                }
                Step::Reply { call, response } => self.reply(run, &call, response)?,
                Step::End(ending) => return Ok(ending),
            }
        }
    }

    fn think(&mut self, run: &mut Run, iteration: u32) -> Result<(), EngineError> {
        run.commit()?;
        for first_try in [true, false] {
            let (reply, invocation) = self.ask_llm(run, iteration)?;
            if reply.content.is_none() && reply.tool_calls.is_empty() {
                let failure = no_answer(&reply);
                if first_try && failure.0 == "empty_response" {
                    run.tell(Notice::Warning("the LLM answered with nothing; asking once more"));
                    continue;
                }
                return Err(EngineError::Answer { kind: failure.0, message: failure.1 });
            }
            if reply.tool_calls.is_empty() && reply.finish_reason.as_deref() == Some("length") {
                let message = "the answer was cut off at the token limit (finish_reason `length`); raise `llm.max_tokens`";
                return Err(EngineError::Answer { kind: "length", message: message.to_owned() });
            }
            let thought = Thought {
                iteration,
                content: reply.content.unwrap_or_default(),
                tool_calls: reply.tool_calls,
                reasoning: reply.reasoning.filter(|_| self.agent.llm.echo_reasoning),
                finish_reason: reply.finish_reason,
                usage: reply.usage,
                invocation: Some(invocation),
                script_turn: reply.script_turn,
            };
            run.record(Payload::Thought(Box::new(thought)));
            break;
        }
        Ok(())
    }

    /// Asks the LLM, and records the call in io/. Gives the answer and the record's name.
    fn ask_llm(&mut self, run: &mut Run, iteration: u32) -> Result<(Reply, String), EngineError> {
        let environment = &self.environment;
        let launch = |generator: &Generator| environment.launch(iteration, &generator.pass_env, []);
        let conversation = &run.state().conversation;
        let messages =
            self.agent.context.build(environment.vars(), conversation, &self.cancel, &launch)?;
        let body = self.body(&messages, run.secrets());
        let last = messages.last().map(Message::text).unwrap_or_default().to_owned();
        let (task, message) =
            (conversation.task().to_owned(), conversation.last_user_message().to_owned());
        drop(messages);

        let started_at = (self.clock)();
        let timer = Instant::now();
        let mut attempts = Vec::new();
        let script_place = run.state().script_place;
        let request =
            Request { body: &body.text, task: &task, message: &message, last: &last, script_place };
        run.tell(Notice::Asking);
        let answer = self.provider.complete(&request, &self.cancel, &mut |attempt| {
            run.tell(Notice::Attempt(attempt));
            attempts.push(attempt.clone());
        });
        run.tell(Notice::Answered);
        let answer = answer.map(|reply| self.priced(reply));
        if let Err(LlmError::Cancelled) = answer {
            return Err(LlmError::Cancelled.into());
        }
        let (reply, error) = (answer.as_ref().ok(), answer.as_ref().err());
        let (status, response) = match error {
            Some(LlmError::Failed { status, response, .. }) => (*status, response.as_ref()),
            _ => (reply.and_then(|reply| reply.status), reply.map(|reply| &reply.response)),
        };
        let run_id = run.id.to_string();
        let error = error.map(ToString::to_string);
        let record = Invocation {
            run_id: &run_id,
            iteration,
            provider: self.agent.llm.provider.name(),
            model: &self.agent.llm.model,
            started_at,
            duration_ms: millis(timer.elapsed()),
            status,
            attempts: &attempts,
            usage: reply.and_then(|reply| reply.usage.as_ref()),
            error: error.as_deref(),
            reasoning: reply.and_then(|reply| reply.reasoning.as_deref()),
            response: response.unwrap_or(&Json::Null),
        };
        let name = run.records.invocation(
            &record,
            &body,
            reply.and_then(|reply| reply.sent.as_deref()),
        )?;
        if let Some(reasoning) = reply.and_then(|reply| reply.reasoning.as_deref()) {
            let reasoning = run.secrets().hide(reasoning).into_owned();
            run.tell(Notice::Reasoning(&reasoning));
        }
        Ok((answer?, name))
    }

    /// The reply with what it cost, by the agent's prices before the endpoint's own figure.
    fn priced(&self, mut reply: Reply) -> Reply {
        if let (Some(usage), Some(pricing)) = (&mut reply.usage, &self.agent.llm.pricing) {
            usage.cost_usd = Some(pricing.cost(usage));
        }
        reply
    }

    fn body(&self, messages: &[Message<'_>], secrets: &text::Secrets) -> Body {
        let (head, tail) = &self.frame;
        let mut body = Body { text: head.clone(), messages: Vec::with_capacity(messages.len()) };
        for (index, message) in messages.iter().enumerate() {
            if index > 0 {
                body.text.push(',');
            }
            let start = body.text.len();
            body.text.push_str(&serde_json::to_string(message).unwrap_or_default());
            body.messages.push(start..body.text.len());
        }
        body.text.push_str(tail);
        match secrets.hide(&body.text) {
            std::borrow::Cow::Borrowed(_) => body,
            // The marks do not fit any more; such a request is recorded whole.
            std::borrow::Cow::Owned(text) => Body { text, messages: Vec::new() },
        }
    }

    fn act(&mut self, run: &mut Run, call: &Call) -> Result<(), EngineError> {
        let own = self.agent.tool(&call.tool);
        match (own, call.tool.as_str()) {
            (Some(tool), _) => match tool.check(&call.arguments) {
                Ok(arguments) => {
                    let invocation = tool.invocation(&arguments, self.environment.vars());
                    self.execute(run, call, tool, &invocation)
                }
                Err(why) => {
                    self.refuse(run, call, self.cut_off(run, why));
                    Ok(())
                }
            },
            (None, FINISH) if !matches!(self.agent.finish, Finish::Off) => self.finish(run, call),
            (None, ASK_HUMAN) => {
                self.ask(run, call);
                Ok(())
            }
            (None, unknown) => {
                self.refuse(run, call, self.unknown_tool(unknown));
                Ok(())
            }
        }
    }

    fn unknown_tool(&self, name: &str) -> String {
        let names: Vec<&str> = self
            .agent
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .chain(self.agent.builtins())
            .collect();
        let shown = text::one_line(&text::printable(name), 80);
        format!("There is no tool `{shown}`; {}.", text::did_you_mean(name, names.iter().copied()))
    }

    /// `why`, and that the answer was cut off, when it was.
    fn cut_off(&self, run: &Run, why: String) -> String {
        match run.state().cut_off {
            true => format!(
                "{why}\nThe answer was cut off at the token limit (finish_reason `length`), so the call may be incomplete."
            ),
            false => why,
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
        request(run, call, Some(invocation.argv.clone()), Some(execution.clone()));
        run.commit()?;

        let vars = self.environment.vars();
        let env = tool.env.iter().map(|(name, value)| (name.as_str(), vars.fill(value)));
        let env = env.chain([("DELTA_CALL_ID", call.id.clone())]);
        let launch = self.environment.launch(call.iteration, &tool.pass_env, env);
        let directory = run.records.executions_dir();
        let run_dir = run.dir.to_string_lossy().into_owned();
        let finished = process::run(
            &Command {
                argv: &invocation.argv,
                launch: &launch,
                stdin: invocation.stdin.as_bytes(),
                timeout: Duration::from_millis(tool.timeout_ms),
                spool: Some(Spool { dir: &directory, stem: &stem }),
                keep: tool.max_output_bytes,
                keep_all: false,
                // Ids of calls repeat from run to run: only both together mean this one.
                marks: &[("RUN_DIR", &run_dir), ("DELTA_CALL_ID", &call.id)],
            },
            &self.cancel,
        );
        let place = format!(".delta/{}/io/tool_executions", run.id);
        let seen = observe(&finished, tool.timeout_ms, &place, &format!("{stem}.json"));
        let run_id = run.id.to_string();
        run.records.execution(
            &stem,
            &Execution {
                run_id: &run_id,
                iteration: call.iteration,
                tool: &tool.name,
                call_id: &call.id,
                argv: &invocation.argv,
                cwd: &launch.cwd,
                stdin: &invocation.stdin,
                started_at,
                duration_ms: millis(finished.duration),
                exit_code: seen.exit_code,
                ended: record::ended(&finished.end),
                stdout: Stream::of(&finished.stdout),
                stderr: Stream::of(&finished.stderr),
            },
        )?;
        observed(run, call, seen, millis(finished.duration), Some(execution));
        Ok(())
    }

    /// Settles a call whose engine died: it is not run again, unless its tool says that this does no harm.
    fn settle(
        &mut self,
        run: &mut Run,
        call: &Call,
        execution: Option<&str>,
    ) -> Result<(), EngineError> {
        let repeatable = self.agent.tool(&call.tool).filter(|tool| tool.idempotent);
        if let Some(tool) = repeatable
            && let Ok(arguments) = tool.check(&call.arguments)
        {
            let invocation = tool.invocation(&arguments, self.environment.vars());
            return self.execute(run, call, tool, &invocation);
        }
        let mut text = "[the engine stopped during this call; whether it took effect is unknown, and it was not run again]".to_owned();
        for (stream, heading) in
            [("stdout", "printed until then"), ("stderr", "printed to stderr until then")]
        {
            let path = execution.and_then(|name| {
                Some(run.dir.join(name.strip_suffix("json")?).with_extension(stream))
            });
            let Some(bytes) =
                path.and_then(|path| std::fs::read(path).ok()).filter(|bytes| !bytes.is_empty())
            else {
                continue;
            };
            let from = bytes.len().saturating_sub(SHOWN_OF_A_DEAD_CALL);
            text.push_str(&format!("\n[{heading}]\n{}", String::from_utf8_lossy(&bytes[from..])));
        }
        let seen = Observation { text, exit_code: None, truncated: false };
        observed(run, call, seen, 0, execution.map(str::to_owned));
        Ok(())
    }

    /// Answers a call without starting anything.
    fn refuse(&self, run: &mut Run, call: &Call, why: String) {
        request(run, call, None, None);
        let seen = Observation { text: why, exit_code: None, truncated: false };
        observed(run, call, seen, 0, None);
    }

    fn finish(&mut self, run: &mut Run, call: &Call) -> Result<(), EngineError> {
        if run.state().result.is_some() {
            self.refuse(
                run,
                call,
                "The run has its result already, from a call before this one.".to_owned(),
            );
            return Ok(());
        }
        let result = match self.finish_result(&call.arguments) {
            Ok(result) => result,
            Err(why) => {
                self.refuse(run, call, self.cut_off(run, why));
                return Ok(());
            }
        };
        request(run, call, None, None);
        let execution = Some(run.records.finish((self.clock)(), &call.id, &result)?);
        run.record(Payload::ActionResult(Box::new(ActionResult {
            iteration: call.iteration,
            call_id: call.id.clone(),
            tool_name: call.tool.clone(),
            observation_content: "[the run is finished]".to_owned(),
            exit_code: Some(0),
            duration_ms: 0,
            execution,
            truncated: false,
            result: Some(result),
        })));
        Ok(())
    }

    fn finish_result(&self, arguments: &str) -> Result<Json, String> {
        let wrong =
            |why: String| format!("Invalid arguments for tool `finish`; the run goes on:\n{why}");
        let arguments: Json = serde_json::from_str(&text::mend_surrogates(arguments))
            .map_err(|error| wrong(format!("- they are not JSON ({error})")))?;
        if let Finish::Schema { validator, .. } = &self.agent.finish {
            let errors: Vec<String> = validator
                .iter_errors(&arguments)
                .map(|error| match error.instance_path().as_str() {
                    "" => format!("- {error}"),
                    path => format!("- {path}: {error}"),
                })
                .collect();
            return if errors.is_empty() { Ok(arguments) } else { Err(wrong(errors.join("\n"))) };
        }
        match (arguments.get("result"), arguments.as_object().map(serde_json::Map::len)) {
            (Some(result @ (Json::String(_) | Json::Object(_))), Some(1)) => Ok(result.clone()),
            (Some(Json::String(_) | Json::Object(_)), _) => {
                Err(wrong("- `result` is the only parameter".to_owned()))
            }
            _ => Err(wrong("- `result` must be there, and be a string or an object".to_owned())),
        }
    }

    /// Puts a question into the journal; waiting for the answer is the next step.
    fn ask(&self, run: &mut Run, call: &Call) {
        match human::question(call) {
            Err(why) => self.refuse(run, call, self.cut_off(run, why)),
            Ok(question) => {
                request(run, call, None, None);
                run.record(Payload::HumanInputRequest(question));
            }
        }
    }

    /// Waits for the answer to a question at the terminal; false when it has to come with another process.
    fn wait(&mut self, run: &mut Run, question: &Question) -> Result<bool, EngineError> {
        run.commit()?;
        let Some(person) = &mut self.person else {
            human::write_request(&run.dir, question, (self.clock)())?;
            return Ok(false);
        };
        let response = match person.ask(question) {
            Ok(response) => response,
            Err(_) if self.cancel.requested() => return Err(LlmError::Cancelled.into()),
            Err(error) => return Err(EngineError::Person(error)),
        };
        let (iteration, call_id) = (question.iteration, question.call_id.clone());
        run.record(Payload::HumanInputReceived { iteration, call_id, response });
        Ok(true)
    }

    fn reply(&mut self, run: &mut Run, call: &Call, response: String) -> Result<(), EngineError> {
        let seen = Observation { text: response, exit_code: Some(0), truncated: false };
        observed(run, call, seen, 0, None);
        run.commit()?;
        human::clear(&run.dir);
        Ok(())
    }
}

/// The request body around its messages: everything that stays the same for a whole run, in a fixed order.
fn frame(agent: &Agent) -> (String, String) {
    let llm = &agent.llm;
    let mut tail = String::from("]");
    let mut add = |key: &str, value: &Json| tail.push_str(&format!(",{}:{value}", Json::from(key)));
    let tools = agent.definitions();
    if !tools.is_empty() {
        add("tools", &Json::from(tools));
    }
    for (key, value) in &llm.body {
        add(key, value);
    }
    let streams = llm.stream && llm.provider.name() == "openai";
    if streams {
        add("stream", &Json::Bool(true));
        add("stream_options", &json!({"include_usage": true}));
    }
    tail.push('}');
    (format!("{{\"model\":{},\"messages\":[", Json::from(llm.model.as_str())), tail)
}

/// Why an answer with neither text nor calls is none: the error's type and its words.
fn no_answer(reply: &Reply) -> (&'static str, String) {
    match (&reply.refusal, reply.finish_reason.as_deref()) {
        (Some(refusal), _) => ("refusal", format!("the model refused: {refusal}")),
        (None, Some("refusal")) => ("refusal", "the model refused to answer".to_owned()),
        (None, Some("content_filter")) => {
            ("content_filter", "the endpoint's content filter withheld the answer".to_owned())
        }
        (None, Some("length")) => (
            "length",
            "the token limit was reached before any answer; raise `llm.max_tokens`".to_owned(),
        ),
        _ => {
            ("empty_response", "the LLM answered twice with neither text nor tool calls".to_owned())
        }
    }
}

/// Records the ACTION_REQUEST of a call, unless it has one: one that starts nothing may be done again.
fn request(run: &mut Run, call: &Call, argv: Option<Vec<String>>, execution: Option<String>) {
    if argv.is_none() && run.state().is_begun(&call.id) {
        return;
    }
    let tool_args = serde_json::from_str(&text::mend_surrogates(&call.arguments));
    run.record(Payload::ActionRequest(Box::new(ActionRequest {
        iteration: call.iteration,
        call_id: call.id.clone(),
        tool_name: call.tool.clone(),
        tool_args: tool_args.unwrap_or_else(|_| Json::from(call.arguments.as_str())),
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
