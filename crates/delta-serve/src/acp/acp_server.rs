//! The ACP server: its methods, its sessions, and the prompts that editors wait for.

use super::editor_prompt::{EditorPrompt, read_prompt};
use super::editor_session::{ApprovalGrants, EditorSession, PromptTurn, SessionMode};
use crate::peers::PeerServer;
use crate::question_form::{self, FormAnswer, served_preview};
use crate::supervisor::{OpenRequest, RunStanding, RunSupervisor, ServedRun, WorkerInput};
use delta_agent::approval_prompt::ApprovalAnswer;
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_mcp::json_rpc::{
    INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError, RpcId, RpcMessage,
};
use delta_operator::runs::run_list;
use delta_program::stdio;
use delta_run::event::approval::ApprovalSource;
use delta_run::workspace::Workspace;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::{Path, PathBuf};

/// The version of the protocol.
const PROTOCOL_VERSION: u32 = 1;
/// The option that approves the later calls of the tool in the session, too.
const ALLOW_ALWAYS: &str = "always";

/// The answer to a request, or nothing as long as the run works.
type AcpReply = Result<Json, RpcError>;

/// A server of one editor.
pub struct AcpServer {
    agent_name: String,
    agent_home: PathBuf,
    supervisor: RunSupervisor,
    /// Whether the editor shows forms.
    elicits: bool,
    sessions: BTreeMap<RunId, EditorSession>,
    /// The number of the next request to the editor.
    next_request: i64,
    outgoing: Vec<RpcMessage>,
}

impl AcpServer {
    pub fn new(agent_name: String, agent_home: PathBuf, supervisor: RunSupervisor) -> Self {
        Self {
            agent_name,
            agent_home,
            supervisor,
            elicits: false,
            sessions: BTreeMap::new(),
            next_request: 1,
            outgoing: Vec::new(),
        }
    }

    /// Leaves the runs when the editor has gone.
    pub fn leave(&mut self, cancel: &CancelToken) {
        self.supervisor.leave(cancel);
    }

    fn handle_request(&mut self, id: RpcId, method: &str, params: &Json) {
        let outcome = match method {
            "initialize" => Ok(self.initialize(params)),
            "authenticate" => Ok(json!({})),
            "session/new" => self.new_session(params),
            "session/load" => self.load_session(params, true),
            "session/resume" => self.load_session(params, false),
            "session/list" => self.list_sessions(params),
            "session/close" => self.close_session(params),
            "session/set_mode" => self.set_mode(params),
            "session/prompt" => match self.prompt(&id, params) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            _ => Err(RpcError::new(METHOD_NOT_FOUND, format!("unknown method `{method}`"))),
        };
        self.outgoing.push(RpcMessage::response(id, outcome));
    }

    fn initialize(&mut self, params: &Json) -> Json {
        let forms = &params["clientCapabilities"]["elicitation"]["form"];
        self.elicits = forms.is_object();
        json!({
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
                "mcpCapabilities": {"http": false, "sse": false},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "agentInfo": {
                "name": "delta",
                "title": self.agent_name,
                "version": env!("CARGO_PKG_VERSION"),
            },
            "authMethods": [],
        })
    }

    fn new_session(&mut self, params: &Json) -> AcpReply {
        let workspace = open_session_workspace(params)?;
        if params["mcpServers"].as_array().is_some_and(|servers| !servers.is_empty()) {
            stdio::print_error_line(
                "Note: the MCP servers of the editor are not used; the tools are in the agent directory",
            );
        }
        let run = ServedRun::with_new_id(&workspace.root);
        let id = run.id.clone();
        self.sessions.insert(id.clone(), EditorSession::new(run));
        Ok(json!({"sessionId": id, "modes": SessionMode::default().to_json()}))
    }

    fn load_session(&mut self, params: &Json, is_shown: bool) -> AcpReply {
        let work_dir = open_session_workspace(params)?.root;
        let id = session_id(params)?;
        let run = ServedRun { work_dir, id: id.clone() };
        match self.supervisor.look_at(&run) {
            RunStanding::Absent => return Err(unknown_session(&id)),
            RunStanding::Refused(reason) => return Err(RpcError::new(INVALID_PARAMS, reason)),
            _ => {}
        }
        let mut session = EditorSession::new(run);
        // A prompt that is being worked on still wants its answer.
        session.turn = self.sessions.get_mut(&id).and_then(|open| open.turn.take());
        if is_shown {
            self.outgoing.extend(session.read_updates(Vec::new(), true));
        } else {
            session.skip_updates();
        }
        self.sessions.insert(id, session);
        Ok(json!({"modes": SessionMode::default().to_json()}))
    }

    /// Changes what of the session needs no approval; an open question stays open.
    fn set_mode(&mut self, params: &Json) -> AcpReply {
        let id = session_id(params)?;
        let session = self.sessions.get_mut(&id).ok_or_else(|| unknown_session(&id))?;
        let mode = params["modeId"].as_str().unwrap_or_default();
        session.grants.mode = SessionMode::from_id(mode).ok_or_else(|| {
            let known = SessionMode::ALL.map(|(_, id, ..)| format!("`{id}`")).join(" or ");
            RpcError::new(INVALID_PARAMS, format!("expected {known} as `modeId`, found `{mode}`"))
        })?;
        Ok(json!({}))
    }

    fn list_sessions(&self, params: &Json) -> AcpReply {
        let cwd = params["cwd"].as_str();
        let mut dirs = BTreeSet::from([existing_workspace(Path::new(cwd.unwrap_or(".")))?.root]);
        if cwd.is_none() {
            dirs.extend(self.sessions.values().map(|session| session.run.work_dir.clone()));
        }
        let workspaces: Vec<Workspace> = dirs.into_iter().map(|root| Workspace { root }).collect();
        let mut runs = run_list::read_runs_of(&workspaces);
        run_list::sort_newest_first(&mut runs);
        let own_runs = runs.iter().filter(|run| Path::new(&run.agent_home) == self.agent_home);
        let sessions: Vec<Json> = own_runs
            .map(|run| {
                json!({
                    "sessionId": run.run_id,
                    "cwd": run.workspace,
                    "title": run.task_summary,
                    "updatedAt": run.last_updated,
                })
            })
            .collect();
        Ok(json!({"sessions": sessions}))
    }

    fn close_session(&mut self, params: &Json) -> AcpReply {
        let id = session_id(params)?;
        self.cancel_turn(&id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.grants = ApprovalGrants::default();
        }
        Ok(json!({}))
    }

    /// Works on a prompt: the task of a new run, its next message, or the answer to what it asked.
    fn prompt(&mut self, request: &RpcId, params: &Json) -> Result<(), RpcError> {
        let id = session_id(params)?;
        let EditorPrompt { text, images } = read_prompt(&params["prompt"])?;
        let session = self.sessions.get_mut(&id).ok_or_else(|| unknown_session(&id))?;
        if session.turn.is_some() {
            let message = format!("session {id} works on another prompt: `session/cancel` ends it");
            return Err(RpcError::new(INVALID_REQUEST, message));
        }
        let run = session.run.clone();
        let input = WorkerInput { message: Some(&text), images: &images };
        let started = match self.supervisor.look_at(&run) {
            RunStanding::Absent => self.supervisor.start_run(&run, input),
            RunStanding::Ended(_) | RunStanding::Left { .. } => {
                match self.supervisor.last_event(&run) {
                    // It never began, for its configuration was wrong.
                    0 => self.supervisor.start_run(&run, input),
                    seq => self.supervisor.continue_run(&run, input, seq),
                }
            }
            RunStanding::Waiting(_) if !images.is_empty() => {
                let message = "the run waits for an answer, which cannot have an image";
                return Err(RpcError::new(INVALID_PARAMS, message));
            }
            // A prompt never answers a question for a secret: the user answers it at a terminal.
            RunStanding::Waiting(open) if open.request.sensitive => {
                let note = "The run waits for a secret, so this prompt was not sent to it. Send it again after the answer.\n\n";
                self.outgoing.extend(session.say(note));
                Ok(())
            }
            RunStanding::Waiting(open) if !question_form::accepts_answer(&open, &text) => {
                self.outgoing.extend(session.say("Expected `yes` or `no`.\n\n"));
                Ok(())
            }
            RunStanding::Waiting(open) => {
                let answer = message_for(&open, text);
                self.supervisor.continue_run(&run, Some(answer.as_str()), open.seq)
            }
            RunStanding::Working => {
                let message =
                    format!("another process works on run {id}: `delta stop {id}` ends it");
                return Err(RpcError::new(INVALID_REQUEST, message));
            }
            RunStanding::Refused(reason) => return Err(RpcError::new(INVALID_REQUEST, reason)),
        };
        started.map_err(|error| {
            RpcError::new(INTERNAL_ERROR, format!("could not start delta: {error}"))
        })?;
        session.turn = Some(PromptTurn::new(request.clone()));
        Ok(())
    }

    /// Ends the work on a prompt; the run can be continued with the next one.
    fn cancel_turn(&mut self, id: &RunId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(turn) = &mut session.turn else { return };
        turn.is_cancelled = true;
        // What cannot be stopped works on; the turn ends with it.
        let _ = self.supervisor.stop_run(&session.run);
    }

    /// Sends what happened in a session, and answers its prompt if its run has left.
    fn look_at_session(&mut self, session: &mut EditorSession) {
        let Some(turn) = &session.turn else { return };
        let is_cancelled = turn.is_cancelled;
        let asked_seq = turn.asked.as_ref().map(|(_, seq)| *seq);
        let pieces = self.supervisor.take_pieces(&session.run);
        // Looked at first, so that the last events of a process that ends now are sent.
        let standing = self.supervisor.look_at(&session.run);
        self.outgoing.extend(session.read_updates(pieces, false));
        let outcome = match standing {
            RunStanding::Working => return,
            _ if is_cancelled => Ok(stop_reason("cancelled")),
            // A question that was answered elsewhere is open no more: the next one is asked.
            RunStanding::Waiting(open) if asked_seq == Some(open.seq) => return,
            RunStanding::Waiting(open) => match self.ask_editor(session, &open) {
                None => return,
                Some(reply) => Ok(reply),
            },
            RunStanding::Ended(report) => self.report_end(session, &report),
            RunStanding::Absent => {
                Err(RpcError::new(INTERNAL_ERROR, "the run ended before it began"))
            }
            RunStanding::Left { .. } => {
                let message = "the process of the run was interrupted or died; the next prompt continues the run";
                Err(RpcError::new(INTERNAL_ERROR, message))
            }
            RunStanding::Refused(reason) => Err(RpcError::new(INTERNAL_ERROR, reason)),
        };
        if let Some(turn) = session.turn.take() {
            self.outgoing.push(RpcMessage::response(turn.request, outcome));
        }
    }

    /// Asks the user of the editor, or ends the turn with the question.
    fn ask_editor(&mut self, session: &mut EditorSession, open: &OpenRequest) -> Option<Json> {
        if open.request.sensitive {
            let text = format!(
                "{}\n\nThe answer is a secret: give it at a terminal, with `{}`, and load the session again.",
                open.request.prompt, open.command
            );
            self.outgoing.extend(session.say(&text));
            return Some(stop_reason("end_turn"));
        }
        if question_form::is_approval(open) {
            let tool = open.request.tool.as_deref().unwrap_or_default();
            if session.grants.covers(tool) {
                let continued = self.supervisor.continue_run(&session.run, Some("yes"), open.seq);
                if let (Err(_), Some(turn)) = (continued, &mut session.turn) {
                    turn.is_cancelled = true;
                }
                return None;
            }
            self.send_question(
                session,
                open,
                "session/request_permission",
                permission_params(&session.run, open),
            );
            return None;
        }
        if self.elicits {
            let params = question_form::form_params(&session.run, open);
            self.send_question(session, open, "elicitation/create", params);
            return None;
        }
        self.outgoing.extend(session.say(&open.request.prompt));
        Some(stop_reason("end_turn"))
    }

    fn send_question(
        &mut self,
        session: &mut EditorSession,
        open: &OpenRequest,
        method: &str,
        mut params: Json,
    ) {
        session.redact(&mut params);
        params["sessionId"] = session.run.id.as_str().into();
        let number = self.next_request;
        self.next_request += 1;
        if let Some(turn) = &mut session.turn {
            turn.asked = Some((RpcId::Number(number), open.seq));
        }
        self.outgoing.push(RpcMessage::request(number, method, params));
    }

    /// The end of a turn whose run has ended.
    fn report_end(&mut self, session: &mut EditorSession, report: &Json) -> AcpReply {
        // The event of the end is an update with the result.
        if report["status"] == "COMPLETED" {
            return Ok(stop_reason("end_turn"));
        }
        let mut error = report["error"].clone();
        session.redact(&mut error);
        let message = error["message"].as_str().unwrap_or("the run failed");
        let reason = match error["type"].as_str().unwrap_or_default() {
            "max_iterations" => "max_turn_requests",
            "length" => "max_tokens",
            "refusal" | "content_filter" => "refusal",
            _ => {
                let data = error["details"].as_str().map(|details| json!({"details": details}));
                return Err(RpcError { code: INTERNAL_ERROR, message: message.to_owned(), data });
            }
        };
        self.outgoing.extend(session.say(message));
        Ok(stop_reason(reason))
    }

    /// Handles the answer of the editor to a question.
    fn handle_response(&mut self, id: &RpcId, outcome: Result<Json, RpcError>) {
        let session = self.sessions.values_mut().find(|session| {
            let turn = session.turn.as_ref();
            turn.and_then(|turn| turn.asked.as_ref()).is_some_and(|(request, _)| request == id)
        });
        let Some(session) = session else { return };
        let Some(turn) = &mut session.turn else { return };
        let seq = turn.asked.take().map(|(_, seq)| seq);
        let RunStanding::Waiting(open) = self.supervisor.look_at(&session.run) else { return };
        if seq != Some(open.seq) {
            return;
        }
        if outcome.is_err() && !question_form::is_approval(&open) {
            // Forms are an unstable part of the protocol, which the editor can refuse: the question becomes a text.
            self.elicits = false;
            return;
        }
        let is_always =
            matches!(&outcome, Ok(result) if result["outcome"]["optionId"] == ALLOW_ALWAYS);
        // Without an answer the run keeps waiting, and the turn ends.
        let message = match outcome.ok().map(|result| read_answer(&open, &result)) {
            Some(Ok(FormAnswer::Message(message))) => message,
            _ => {
                turn.is_cancelled = true;
                return;
            }
        };
        if is_always && question_form::is_approval(&open) {
            session.grants.tools.extend(open.request.tool.clone());
        }
        if self.supervisor.continue_run(&session.run, Some(message.as_str()), open.seq).is_err() {
            turn.is_cancelled = true;
        }
    }
}

impl PeerServer for AcpServer {
    fn receive(&mut self, message: RpcMessage) {
        match message {
            RpcMessage::Request { id, method, params } => self.handle_request(id, &method, &params),
            RpcMessage::Notification { method, params } => {
                if method == "session/cancel"
                    && let Ok(id) = session_id(&params)
                {
                    self.cancel_turn(&id);
                }
            }
            RpcMessage::Response { id: Some(id), outcome } => self.handle_response(&id, outcome),
            RpcMessage::Response { id: None, .. } => {}
        }
    }

    fn look_at_runs(&mut self) {
        for (id, mut session) in mem::take(&mut self.sessions) {
            self.look_at_session(&mut session);
            self.sessions.insert(id, session);
        }
    }

    fn has_waiting_client(&self) -> bool {
        self.sessions.values().any(|session| session.turn.is_some())
    }

    fn take_messages(&mut self) -> Vec<RpcMessage> {
        mem::take(&mut self.outgoing)
    }
}

fn open_session_workspace(params: &Json) -> Result<Workspace, RpcError> {
    let cwd = params["cwd"].as_str().map(Path::new).filter(|cwd| cwd.is_absolute());
    let Some(cwd) = cwd else {
        return Err(RpcError::new(INVALID_PARAMS, "expected an absolute path as `cwd`"));
    };
    existing_workspace(cwd)
}

fn existing_workspace(dir: &Path) -> Result<Workspace, RpcError> {
    Workspace::open_existing(dir).map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))
}

fn session_id(params: &Json) -> Result<RunId, RpcError> {
    let id = params["sessionId"].as_str().unwrap_or_default();
    RunId::parse(id).map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))
}

fn unknown_session(id: &RunId) -> RpcError {
    RpcError::new(INVALID_PARAMS, format!("there is no session {id} of this agent"))
}

fn stop_reason(reason: &str) -> Json {
    json!({"stopReason": reason})
}

/// What a prompt means for a run that waits: an answer, a decision, or a denial with its reason.
fn message_for(open: &OpenRequest, text: String) -> String {
    let is_decision = ApprovalAnswer::parse(&text, ApprovalSource::Operator).is_some();
    if question_form::is_approval(open) && !is_decision { format!("no: {text}") } else { text }
}

fn permission_params(run: &ServedRun, open: &OpenRequest) -> Json {
    let mut text = open.request.prompt.clone();
    if let Some(preview) = served_preview(run) {
        text.push_str("\n\n");
        text.push_str(&fenced_diff(&preview));
    }
    json!({
        "toolCall": {
            "toolCallId": open.call_id,
            "title": open.request.tool,
            "kind": "execute",
            "status": "pending",
            "rawInput": open.request.arguments,
            "content": [{"type": "content", "content": {"type": "text", "text": text}}],
        },
        "options": [
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": ALLOW_ALWAYS, "name": "Always allow this tool", "kind": "allow_always"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ],
    })
}

/// A diff as a block of Markdown, which editors render.
fn fenced_diff(diff: &str) -> String {
    let longest = diff.split(|other| other != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}diff\n{}\n{fence}", diff.trim_end())
}

/// Reads the result of `session/request_permission` or of `elicitation/create`.
fn read_answer(open: &OpenRequest, result: &Json) -> Result<FormAnswer, String> {
    if !question_form::is_approval(open) {
        return question_form::read_form_answer(open, result);
    }
    match result["outcome"]["optionId"].as_str() {
        Some(ALLOW_ALWAYS) => Ok(FormAnswer::Message("yes".to_owned())),
        Some(option @ ("yes" | "no")) => Ok(FormAnswer::Message(option.to_owned())),
        _ => Ok(FormAnswer::Declined),
    }
}
