//! What the events of a run mean, and what comes next. Pure: knows no files, no time, no processes.
//!
//! [`RunState`] is the fold of the journal, kept up to date event by event. The loop asks [`RunState::next_step`], does
//! one thing, records the result, asks again; so a new run, a continued one and one whose engine was killed differ in
//! the length of the journal and in nothing else.

use crate::conversation::Conversation;
use crate::event::{
    EngineStart, ErrorDetails, Event, Fork, Glance, News, Origin, Payload, Question, RunStatus,
    Thought,
};
use crate::llm::{ToolCall, Usage};
use crate::time::Timestamp;
use crate::timeline::Timeline;
use crate::tokens::Ratio;
use serde_json::Value as Json;

/// The name of the built-in tool that ends a run.
pub const FINISH: &str = "finish";
/// The name of the built-in tool that asks a person.
pub const ASK_HUMAN: &str = "ask_human";
/// The hook that runs when an iteration begins.
pub const ON_ITERATION_START: &str = "on_iteration_start";
/// The hook that runs when the last result of an iteration is there.
pub const ON_ITERATION_END: &str = "on_iteration_end";

/// A call of the last answer: the LLM's name and arguments, the run's id.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Unique in the run.
    pub id: String,
    /// Of which LLM answer.
    pub iteration: u32,
    /// The tool, as the LLM named it.
    pub tool: String,
    /// Its arguments as the LLM wrote them.
    pub arguments: String,
}

/// How far a call has come.
#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Queued,
    /// Requested; with whether something was started, and its io/ file.
    Begun {
        starts: bool,
        execution: Option<String>,
    },
    /// A person was asked.
    Asked(Question),
    /// A person answered, and the call has no result yet.
    Replied(String),
    Answered,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Ask the LLM.
    Think {
        /// The number of the answer.
        iteration: u32,
    },
    /// Carry out a call.
    Act(Call),
    /// Settle a call that had a command line and whose engine died.
    Settle {
        /// The call.
        call: Call,
        /// The io/ file in which its output may lie.
        execution: Option<String>,
    },
    /// Wait for the answer to a question.
    Wait(Question),
    /// Give a call the answer that a person has given.
    Reply {
        /// The call.
        call: Call,
        /// The answer.
        response: String,
    },
    /// Leave.
    End(Ending),
}

/// Why the process leaves the run.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The run has its result.
    Completed,
    /// It ended without one.
    Failed,
    /// A person is asked.
    Waiting,
    /// It was stopped.
    Interrupted,
    /// This process has asked for as many answers as it may.
    OutOfIterations {
        /// How many those were.
        allowed: u32,
    },
}

impl Ending {
    /// The status that it leaves behind.
    pub fn status(&self) -> RunStatus {
        match self {
            Self::Completed => RunStatus::Completed,
            Self::Failed | Self::OutOfIterations { .. } => RunStatus::Failed,
            Self::Waiting => RunStatus::WaitingForInput,
            Self::Interrupted => RunStatus::Interrupted,
        }
    }
}

/// The fold of a run's events.
#[derive(Debug, Clone, Default)]
pub struct RunState {
    /// What was said.
    pub conversation: Conversation,
    /// The last event's number.
    pub seq: u64,
    /// The first event's time; of a fork, when it was made.
    pub created_at: Option<Timestamp>,
    /// The last event's time.
    pub updated_at: Option<Timestamp>,
    /// The time of the last event of a process that worked on it: what a rollback adds is no work.
    pub worked_until: Option<Timestamp>,
    /// The process that took it up last.
    pub start: Option<EngineStart>,
    /// When that was.
    pub started_at: Option<Timestamp>,
    /// The status, `None` before the first event.
    pub status: Option<RunStatus>,
    /// The number of LLM answers.
    pub iterations: u32,
    /// The number of them before the present process.
    iterations_before: u32,
    /// The calls of the last answer.
    calls: Vec<(Call, Phase)>,
    /// The result, once there is one that no later message reopened.
    pub result: Option<Json>,
    /// The last error of the present process.
    pub error: Option<(String, ErrorDetails)>,
    /// What run it was made of.
    pub origin: Option<Origin>,
    /// What the LLM calls of this very run cost, per model, in the order of their first use.
    pub usage: Vec<Usage>,
    /// Whether some answer came without its usage, so that the sum is not the whole.
    pub unmetered: bool,
    /// What the endpoint counts for what is estimated.
    pub ratio: Ratio,
    /// How many of the oldest iterations the last request left out, for want of room.
    pub left_out: usize,
    /// Whether the last answer was cut off at the token limit.
    pub cut_off: bool,
    /// The answers of people that stay hidden on the screen.
    pub sensitive: Vec<String>,
    /// How many turns of a script are used up.
    pub script_place: usize,
    /// What the workspace was.
    pub timeline: Timeline,
    /// The last iteration whose on_iteration_start hook has done its part.
    pub iteration_started: u32,
    /// The last iteration whose on_iteration_end hook has done its part.
    pub iteration_ended: u32,
}

/// What the LLM is told of a rollback.
fn rolled_back(to: Option<u32>) -> String {
    let state = match to {
        Some(0) => "its state at the beginning, before your first answer".to_owned(),
        Some(to) => {
            format!("its state at the end of iteration {to}, after the calls of your answer {to}")
        }
        None => "an earlier state".to_owned(),
    };
    format!(
        "[The working directory was put back to {state}. What was changed in it since then is undone.]"
    )
}

impl RunState {
    /// The fold of `events`.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        events.into_iter().for_each(|event| state.apply(event));
        state
    }

    /// The calls of the last answer that have begun and have no result yet.
    pub fn begun(&self) -> impl Iterator<Item = &Call> {
        let begun = |phase: &Phase| !matches!(phase, Phase::Queued | Phase::Answered);
        self.calls.iter().filter(move |(_, phase)| begun(phase)).map(|(call, _)| call)
    }

    /// The call of the last answer with this id.
    pub fn call(&self, call_id: &str) -> Option<&Call> {
        self.calls.iter().find(|(call, _)| call.id == call_id).map(|(call, _)| call)
    }

    /// Takes one more event in.
    pub fn apply(&mut self, event: &Event) {
        self.pass(event.seq, event.timestamp);
        if matches!(event.payload, Payload::EngineStart(_) | Payload::Fork(_)) {
            self.worked_until = Some(event.timestamp);
        }
        self.timeline.apply(&event.payload);
        match &event.payload {
            Payload::EngineStart(start) => {
                self.status = Some(RunStatus::Running);
                self.start = Some((**start).clone());
                self.started_at = Some(event.timestamp);
                self.iterations_before = self.iterations;
                self.error = None;
            }
            Payload::UserMessage { content } => {
                self.conversation.user(content);
                self.result = None;
            }
            Payload::Thought(thought) => self.thought(thought),
            Payload::ActionRequest(request) => {
                let (starts, execution) = (request.argv.is_some(), request.execution.clone());
                self.set_phase(&request.call_id, Phase::Begun { starts, execution });
            }
            Payload::ActionResult(result) => {
                self.conversation.result(&result.call_id, &result.observation_content);
                self.set_phase(&result.call_id, Phase::Answered);
                if result.result.is_some() {
                    self.result.clone_from(&result.result);
                }
            }
            Payload::HumanInputRequest(question) => {
                self.set_phase(&question.call_id, Phase::Asked(question.clone()));
            }
            Payload::HumanInputReceived { call_id, response, .. } => {
                if self.question().is_some_and(|question| question.sensitive) {
                    self.sensitive.push(response.clone());
                }
                self.set_phase(call_id, Phase::Replied(response.clone()));
            }
            Payload::Error { error_message, error_details } => {
                self.use_turn(error_details.script_turn);
                self.error = Some((error_message.clone(), error_details.clone()));
            }
            Payload::HookExecution { iteration, hook, exit_code, .. } => {
                self.hook(hook, *iteration, *exit_code == Some(0));
            }
            Payload::Fork(fork) => self.fork(fork, event.timestamp),
            Payload::Snapshot(_) => {}
            Payload::Rollback { to, .. } => {
                self.conversation.note(&rolled_back(*to));
                self.close_iteration();
            }
            Payload::EngineEnd { status, .. } => {
                self.status = Some(*status);
                if matches!(status, RunStatus::Completed | RunStatus::Failed) {
                    self.close_iteration();
                }
            }
        }
    }

    /// Takes one more event in, of which this is all that is known here.
    pub fn apply_glance(&mut self, glance: &Glance<'_>) {
        self.pass(glance.seq, glance.timestamp);
        match glance.news {
            News::Begun { starts, execution } => {
                let execution = execution.map(str::to_owned);
                self.set_phase(glance.call_id, Phase::Begun { starts, execution });
            }
            News::Answered { observation } => {
                self.conversation.result_in_json(glance.call_id, observation);
                self.set_phase(glance.call_id, Phase::Answered);
            }
        }
    }

    /// The number and the time of one more event.
    fn pass(&mut self, seq: u64, at: Timestamp) {
        self.seq = seq;
        self.created_at.get_or_insert(at);
        self.updated_at = Some(at);
        if self.status == Some(RunStatus::Running) {
            self.worked_until = Some(at);
        }
    }

    /// Whether every call of the last answer has its result.
    pub fn is_between_iterations(&self) -> bool {
        self.calls.iter().all(|(_, phase)| *phase == Phase::Answered)
    }

    /// Whatever the workspace becomes from now on is not what the last iteration has left.
    fn close_iteration(&mut self) {
        if self.is_between_iterations() {
            self.timeline.close(self.iterations);
        }
    }

    /// What the events before say is what the run knows; who and where it is, and what it has used, begin here.
    fn fork(&mut self, fork: &Fork, at: Timestamp) {
        let status =
            if self.result.is_some() { RunStatus::Completed } else { RunStatus::Interrupted };
        self.status = Some(status);
        (self.created_at, self.started_at) = (Some(at), Some(at));
        if let Some(start) = &mut self.start {
            start.run_id.clone_from(&fork.run_id);
            start.work_dir.clone_from(&fork.work_dir);
            start.workspace_id.clone_from(&fork.workspace_id);
        }
        (self.usage, self.unmetered, self.error) = (Vec::new(), false, None);
        self.origin = Some(fork.from.clone());
    }

    /// What hooks did lies in the events around; only whether these two ran is known from nowhere else.
    fn hook(&mut self, hook: &str, iteration: u32, well: bool) {
        match hook {
            ON_ITERATION_START if well => self.iteration_started = iteration,
            ON_ITERATION_END if well => self.iteration_ended = iteration,
            _ => {}
        }
    }

    fn thought(&mut self, thought: &Thought) {
        self.iterations = thought.iteration;
        self.cut_off = thought.finish_reason.as_deref() == Some("length");
        let ids = self.conversation.thought(thought);
        let call = |(call, id): (&ToolCall, String)| {
            let (tool, arguments) = (call.function.name.clone(), call.function.arguments.clone());
            (Call { id, iteration: thought.iteration, tool, arguments }, Phase::Queued)
        };
        self.calls = thought.tool_calls.iter().zip(ids).map(call).collect();
        self.result = self.calls.is_empty().then(|| Json::from(thought.content.as_str()));
        self.use_turn(thought.script_turn);
        self.left_out = thought.left_out;
        match &thought.usage {
            Some(usage) => {
                if let Some(estimated) = thought.estimated_tokens.filter(|_| usage.input_tokens > 0)
                {
                    self.ratio = Ratio::of(usage.input_tokens, estimated);
                }
                self.add_usage(usage);
            }
            None => self.unmetered = true,
        }
    }

    fn use_turn(&mut self, turn: Option<usize>) {
        self.script_place = turn.map_or(self.script_place, |turn| turn + 1);
    }

    fn add_usage(&mut self, usage: &Usage) {
        let Some(known) = self.usage.iter_mut().find(|known| known.model == usage.model) else {
            self.usage.push(usage.clone());
            return;
        };
        known.input_tokens += usage.input_tokens;
        known.cached_input_tokens += usage.cached_input_tokens;
        known.output_tokens += usage.output_tokens;
        // One call of unknown cost makes the sum unknown.
        known.cost_usd = known.cost_usd.zip(usage.cost_usd).map(|(one, other)| one + other);
    }

    fn set_phase(&mut self, call_id: &str, phase: Phase) {
        if let Some((_, present)) = self.calls.iter_mut().find(|(call, _)| call.id == call_id) {
            *present = phase;
        }
    }

    /// What comes next.
    pub fn next_step(&self) -> Step {
        // `finish` ends the run, so the calls beside it go first; an agent's own tool of that name keeps its place.
        let ends = |call: &Call| call.tool == FINISH && self.has_builtin(FINISH);
        let (last, first): (Vec<_>, Vec<_>) = self.calls.iter().partition(|(call, _)| ends(call));
        for (call, phase) in first.into_iter().chain(last) {
            let call = call.clone();
            match phase {
                Phase::Answered => {}
                Phase::Begun { starts: true, execution } => {
                    return Step::Settle { call, execution: execution.clone() };
                }
                // What starts nothing may simply be done again.
                Phase::Queued | Phase::Begun { starts: false, .. } => return Step::Act(call),
                Phase::Asked(question) => return Step::Wait(question.clone()),
                Phase::Replied(response) => {
                    return Step::Reply { call, response: response.clone() };
                }
            }
        }
        if self.result.is_some() {
            return Step::End(Ending::Completed);
        }
        let allowed = self.start.as_ref().map_or(0, |start| start.max_iterations);
        if self.iterations - self.iterations_before >= allowed {
            return Step::End(Ending::OutOfIterations { allowed });
        }
        Step::Think { iteration: self.iterations + 1 }
    }

    /// Whether the engine offers the tool `name` itself, for the present process.
    pub fn has_builtin(&self, name: &str) -> bool {
        let builtins =
            self.start.as_ref().and_then(|start| start.config.get("builtins")?.as_array());
        builtins.is_some_and(|builtins| builtins.iter().any(|builtin| builtin == name))
    }

    /// The question that the run waits for.
    pub fn question(&self) -> Option<&Question> {
        self.calls.iter().find_map(|(_, phase)| match phase {
            Phase::Asked(question) => Some(question),
            _ => None,
        })
    }

    /// Whether the call has its ACTION_REQUEST already.
    pub fn is_begun(&self, call_id: &str) -> bool {
        self.calls
            .iter()
            .any(|(call, phase)| call.id == call_id && matches!(phase, Phase::Begun { .. }))
    }
}
