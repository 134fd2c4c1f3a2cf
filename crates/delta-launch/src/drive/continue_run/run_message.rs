//! What a message means for a run: the answer to a question, the decision on a call, or the next message of the user.

use super::{ClaimedRun, run_in_use_failure, run_process_filter};
use delta_agent::approval_prompt::ApprovalAnswer;
use delta_agent::ask_human;
use delta_base::id::RunId;
use delta_base::redact::redact_answers;
use delta_base::terminal_text::strip_terminal_controls;
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::agent_hint;
use delta_operator::runs::own_run::fold_journal;
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::{cancel, state};
use delta_run::event::approval::{ApprovalRequest, ApprovalSource};
use delta_run::event::{HumanQuestion, Payload, RunStatus};
use delta_run::interaction_request::approval_question;
use delta_run::mailbox::{Mailbox, MessageSeal};
use delta_run::ownership::Ownership;
use delta_run::run_result::{ContinueCommand, SHORT_REQUEST_ID};
use delta_run::state::{HumanRequest, RunState};
use std::path::Path;
use std::time::Duration;

/// The time between two looks at a run that its process is leaving.
const LEAVE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The run cannot continue without a message, or not with this one.
pub struct MissingMessage {
    pub(super) message: String,
    hint: String,
}

impl MissingMessage {
    /// The failure of a command that has no message to continue with.
    pub fn into_failure(self) -> CommandFailure {
        CommandFailure::message_required(self.message, self.hint)
    }
}

/// Waits for a process that has recorded the end of its work on the run, and is about to exit. For a server only, which sees
/// the end in the journal; a person gets an error that names the other process.
pub(super) fn wait_for_leaving_process(
    run: &LocatedRun,
    options: &RunOptions,
) -> Result<(), CommandFailure> {
    if options.served.is_none() {
        return Ok(());
    }
    let LocatedRun { id, dir, .. } = run;
    let cancel = cancel::install_cancel()?;
    while let Err(error) = Ownership::probe(id, dir) {
        if !error.is_owned() {
            return Err(run_in_use_failure(error, id, dir));
        }
        if cancel.wait(LEAVE_POLL_INTERVAL) {
            break;
        }
    }
    Ok(())
}

/// Refuses a run that has changed since a server decided to continue it.
pub(super) fn check_last_event(
    id: &RunId,
    state: &RunState,
    expected: Option<u64>,
) -> Result<(), CommandFailure> {
    match expected {
        Some(expected) if state.seq != expected => {
            let message = format!(
                "run {id} has changed: expected event {expected} as the last one, found {}",
                state.seq
            );
            Err(CommandFailure::conflict(message, show_hint(state)))
        }
        _ => Ok(()),
    }
}

/// Parses the `request_id` of a question, or the beginning of one.
pub(super) fn parse_request_id(text: &str) -> Result<String, String> {
    let is_id = (SHORT_REQUEST_ID..=36).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if is_id {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!(
        "expected the `request_id` of a question, or at least its first {SHORT_REQUEST_ID} characters; `delta inbox` prints them"
    ))
}

/// What of a run a command may answer.
pub(super) enum AnsweredRequest<'a> {
    /// Anything: the command has no answer.
    Any,
    /// What the operator has named by its id, or the beginning of it.
    Named(&'a str),
    /// What was open when the command began: another process may answer that first, and the run may ask something that the
    /// operator has not seen.
    OpenAtStart(Option<String>),
}

impl<'a> AnsweredRequest<'a> {
    /// The request that a command may answer: the `named` one, or with `may_answer` the one that is open now.
    pub(super) fn new(
        named: Option<&'a str>,
        may_answer: bool,
        run: &LocatedRun,
    ) -> Result<Self, CommandFailure> {
        Ok(match named {
            Some(named) => Self::Named(named),
            None if may_answer => Self::OpenAtStart(fold_journal(&run.id, &run.dir)?.request_id()),
            None => Self::Any,
        })
    }

    /// Refuses a run that waits for something else.
    pub(super) fn check(&self, id: &RunId, state: &RunState) -> Result<(), CommandFailure> {
        let open = state.request_id();
        let message = match self {
            Self::Any => return Ok(()),
            Self::Named(named) if open.as_ref().is_some_and(|open| open.starts_with(named)) => {
                return Ok(());
            }
            Self::OpenAtStart(expected) if *expected == open => return Ok(()),
            Self::Named(named) => format!("run {id} does not wait for the answer to {named}"),
            Self::OpenAtStart(_) => {
                format!("run {id} was continued by another process, and was not answered")
            }
        };
        let hint = match state.human_request() {
            _ if state.has_unused_answer() => answered_hint(state),
            None => show_hint(state),
            Some(request) => {
                let next = agent_hint::own_continue_command(state).naming_request(state);
                let answer = match request {
                    HumanRequest::Question(_) => format!("{next} -m ANSWER"),
                    HumanRequest::Approval(_) => {
                        let [approve, deny] = ["approve", "deny"].map(|name| next.to_reply(name));
                        format!("{approve}, or {deny} -m REASON")
                    }
                };
                let show = next.to_reader("show");
                format!("`{show}` shows what it waits for now; to answer that: {answer}")
            }
        };
        Err(CommandFailure::nothing_found(message, hint))
    }
}

/// What to do with a run whose answer is recorded and has had no effect yet.
pub fn answered_hint(state: &RunState) -> String {
    format!(
        "the answer is recorded already; to continue: {}",
        agent_hint::own_continue_command(state)
    )
}

fn show_hint(state: &RunState) -> String {
    format!("`{}` shows its status", ContinueCommand::from_state(state).to_reader("show"))
}

impl ClaimedRun {
    /// The event to record for the message: an answer, a user message, or none. `work_dir` is the workspace as the user named
    /// it.
    pub fn interpret_message(
        &self,
        message: Option<String>,
        options: &RunOptions,
        work_dir: &Path,
    ) -> Result<Option<Payload>, MissingMessage> {
        match self.state().human_request() {
            Some(HumanRequest::Question(question)) => {
                return self.interpret_answer(question, message, options.asks_human());
            }
            Some(HumanRequest::Approval(request)) => {
                return self.interpret_decision(request, message, options);
            }
            None => {}
        }
        match (self.state().status, message) {
            (_, None) if self.state().conversation.task().is_empty() => Err(MissingMessage {
                message: format!(
                    "run {} has no task: its process died before it was recorded",
                    self.id
                ),
                hint: "pass the task with -m/--message".to_owned(),
            }),
            (_, Some(content)) if content.trim().is_empty() => Err(MissingMessage {
                message: "the message is empty".to_owned(),
                hint: "write a message after -m, or omit -m".to_owned(),
            }),
            (_, Some(content)) => Ok(Some(Payload::user_message(content, Vec::new()))),
            (_, None) if self.state().failed_at_endpoint() => Ok(None),
            (Some(RunStatus::Failed), None) if self.has_waiting_message() => Ok(None),
            // Another model, or other settings of it, may be answered.
            (_, None) if self.state().was_refused() && options.changes_llm() => Ok(None),
            (Some(status @ (RunStatus::Completed | RunStatus::Failed)), None) => {
                let next = match status {
                    RunStatus::Failed => ContinueCommand::for_failed_run(self.state()),
                    _ => ContinueCommand::from_state(self.state())
                        .with_message("Now do something else"),
                };
                let model = options.model.as_ref().map(ToString::to_string);
                let agent = agent_hint::own_agent(self.state());
                let next = next.with_work_dir(work_dir).with_model(model).with_agent(agent);
                Err(MissingMessage {
                    message: format!(
                        "Run is {status}. To continue, provide a message using -m/--message"
                    ),
                    hint: next.to_string(),
                })
            }
            (_, None) => Ok(None),
        }
    }

    /// Whether the mailbox has a message that the run has not received.
    fn has_waiting_message(&self) -> bool {
        let Ok(key) = state::seal_key() else { return false };
        let mailbox = Mailbox::new(&self.dir, Some(MessageSeal::new(key, self.state())));
        let files = mailbox.read_waiting().ok().flatten().unwrap_or_default();
        let mut messages = files.iter().filter_map(|file| file.message.as_ref());
        messages.any(|message| !self.state().has_received(&message.source.id))
    }

    fn interpret_answer(
        &self,
        question: &HumanQuestion,
        message: Option<String>,
        asks_human: bool,
    ) -> Result<Option<Payload>, MissingMessage> {
        let hidden = &self.state().sensitive.answers;
        let prompt = redact_answers(hidden, strip_terminal_controls(&question.prompt));
        let response = match message {
            Some(message) => Some(message),
            None => match self.read_written_answer() {
                Err(_) if asks_human => None,
                response => response?,
            },
        };
        match response {
            Some(answer) if !ask_human::is_valid_answer(question.input_type, &answer) => {
                Err(MissingMessage {
                    message: format!("expected `yes` or `no`: {prompt}"),
                    hint: "answer y, yes, n or no; the run is still waiting".to_owned(),
                })
            }
            Some(response) => Ok(Some(Payload::HumanInputReceived {
                iteration: question.iteration,
                call_id: question.call_id.clone(),
                response,
            })),
            // The last process may have ended before it showed the question: the engine asks again.
            None if asks_human || self.state().status != Some(RunStatus::WaitingForInput) => {
                Ok(None)
            }
            None => Err(MissingMessage {
                message: format!("Run is WAITING_FOR_INPUT: {prompt}"),
                hint: if self.state().has_left_processes {
                    "answer with -m/--message".to_owned()
                } else {
                    format!(
                        "answer with -m/--message, or write the answer to {}",
                        self.dir.join("interaction/response.txt").display()
                    )
                },
            }),
        }
    }

    /// The decision in the message. Nothing but a message counts: what a tool can write must not approve its own call.
    fn interpret_decision(
        &self,
        request: &ApprovalRequest,
        message: Option<String>,
        options: &RunOptions,
    ) -> Result<Option<Payload>, MissingMessage> {
        let hidden = &self.state().sensitive.answers;
        let question = approval_question(request);
        let question = redact_answers(hidden, strip_terminal_controls(&question));
        let hint = "answer with `-m yes`, `-m no` or `-m \"no: REASON\"`; the run is still waiting";
        let Some(message) = message else {
            let decides = options.asks_human() || options.approvals.approve_all;
            // The last process may have ended before it showed the question: the engine asks again.
            if decides || self.state().status != Some(RunStatus::WaitingForInput) {
                return Ok(None);
            }
            let message = format!("Run is WAITING_FOR_INPUT: {question}");
            return Err(MissingMessage { message, hint: hint.to_owned() });
        };
        let Some(answer) = ApprovalAnswer::parse(&message, ApprovalSource::Operator) else {
            let message = format!("expected `yes`, `no` or `no: REASON` for: {question}");
            return Err(MissingMessage { message, hint: hint.to_owned() });
        };
        Ok(Some(Payload::ApprovalDecision(Box::new(answer.decision_on(request)))))
    }

    /// The answer in interaction/response.txt. A tool could have written it if it was older than the question, or if
    /// anything of the run was alive after the question.
    pub(super) fn read_written_answer(&self) -> Result<Option<String>, MissingMessage> {
        let refuse = |reason: &str| MissingMessage {
            message: format!(
                "interaction/response.txt is not the answer of a person, because {reason}"
            ),
            hint: "answer with -m/--message; the run is still waiting".to_owned(),
        };
        let response = ask_human::read_interaction_response(&self.dir).map_err(refuse)?;
        if response.is_some() {
            if !delta_process::shows_own_processes() {
                return Err(refuse("/proc does not show whether processes of the run are alive"));
            }
            let alive = run_process_filter(&self.id, &self.dir).find_all();
            if !alive.is_empty() {
                let pids: Vec<String> = alive.iter().map(ToString::to_string).collect();
                let reason = format!("processes of the run are still running: {}", pids.join(", "));
                return Err(refuse(&reason));
            }
            if self.state().has_left_processes {
                return Err(refuse(
                    "a call of the run left processes running, which could have written it",
                ));
            }
        }
        Ok(response)
    }
}
