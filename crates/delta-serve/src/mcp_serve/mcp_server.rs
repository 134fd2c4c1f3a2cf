//! The MCP server: its methods, its calls, and the runs that the calls wait for.

use super::ServeSettings;
use super::client_request::{ClientAbilities, ClientRequest};
use super::run_reply::tool_error;
use super::served_tool::ToolRequest;
use super::waiting_call::WaitingCall;
use crate::peers::PeerServer;
use crate::question_form::{self, FormAnswer};
use crate::supervisor::{self, OpenRequest, RunStanding, RunSupervisor, ServedRun};
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_mcp::json_rpc::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, RpcId, RpcMessage};
use delta_mcp::protocol_era::{
    LEGACY_VERSIONS, META_SERVER, MODERN_VERSION, ProtocolEra, TASKS_EXTENSION, implementation_info,
};
use delta_operator::command_line;
use delta_run::event::InputType;
use serde_json::{Value as Json, json};
use std::mem;

/// How long clients may keep the list of tools, which never changes while the server runs.
const LIST_TTL_MS: u64 = 3_600_000;

/// The key of the one form that a result asks for.
const FORM_KEY: &str = "answer";

/// The answer to a request, if it can be given at once.
pub type McpReply = Option<Result<Json, RpcError>>;

/// A server of one client.
pub struct McpServer {
    pub settings: ServeSettings,
    pub supervisor: RunSupervisor,
    /// What the client declared with `initialize`.
    legacy: ClientAbilities,
    calls: Vec<WaitingCall>,
    /// The number of the next request to the client.
    next_request: i64,
    outgoing: Vec<RpcMessage>,
}

impl McpServer {
    pub fn new(settings: ServeSettings, supervisor: RunSupervisor) -> Self {
        let legacy = ClientAbilities::default();
        Self {
            settings,
            supervisor,
            legacy,
            calls: Vec::new(),
            next_request: 1,
            outgoing: Vec::new(),
        }
    }

    /// Leaves the runs when the client has gone.
    pub fn leave(&mut self, cancel: &CancelToken) {
        self.supervisor.leave(cancel);
    }

    /// A run of this server's workspace.
    pub fn served_run(&self, id: RunId) -> ServedRun {
        ServedRun { work_dir: self.settings.work_dir.clone(), id }
    }

    fn handle_request(&mut self, id: RpcId, method: &str, params: Json) {
        let request = match ClientRequest::read(id.clone(), method, params, self.legacy) {
            Ok(request) => request,
            Err(error) => return self.send_reply(id, Err(error)),
        };
        let era = request.era;
        let reply = match (method, era) {
            ("initialize", ProtocolEra::Legacy) => Some(Ok(self.initialize(&request.params))),
            ("ping", ProtocolEra::Legacy) => Some(Ok(json!({}))),
            ("server/discover", ProtocolEra::Modern) => Some(Ok(self.discover())),
            ("tools/list", _) => Some(Ok(self.list_tools(era))),
            ("tools/call", _) => self.call_tool(request),
            ("tasks/get", ProtocolEra::Modern) => Some(self.get_task(&request)),
            ("tasks/update", ProtocolEra::Modern) => Some(self.update_task(&request)),
            ("tasks/cancel", ProtocolEra::Modern) => Some(self.cancel_task(&request)),
            _ => {
                let message = format!("unknown method `{method}`");
                Some(Err(RpcError::new(METHOD_NOT_FOUND, message)))
            }
        };
        if let Some(reply) = reply {
            self.send_reply(id, reply.map(|result| complete(result, era)));
        }
    }

    fn send_reply(&mut self, id: RpcId, outcome: Result<Json, RpcError>) {
        self.outgoing.push(RpcMessage::response(id, outcome));
    }

    fn initialize(&mut self, params: &Json) -> Json {
        self.legacy = ClientAbilities::from_capabilities(&params["capabilities"]);
        let requested = params["protocolVersion"].as_str().unwrap_or_default();
        let known = LEGACY_VERSIONS.into_iter().find(|version| *version == requested);
        json!({
            "protocolVersion": known.unwrap_or(LEGACY_VERSIONS[0]),
            "capabilities": {"tools": {}},
            "serverInfo": implementation_info(),
            "instructions": self.settings.instructions(),
        })
    }

    fn discover(&self) -> Json {
        json!({
            "supportedVersions": [MODERN_VERSION],
            "capabilities": {"tools": {}, "extensions": {TASKS_EXTENSION: {}}},
            "instructions": self.settings.instructions(),
            "ttlMs": LIST_TTL_MS,
            "cacheScope": "private",
            "_meta": {META_SERVER: implementation_info()},
        })
    }

    fn list_tools(&self, era: ProtocolEra) -> Json {
        let tools = self.settings.tool_list();
        match era {
            ProtocolEra::Legacy => json!({"tools": tools}),
            ProtocolEra::Modern => {
                json!({"tools": tools, "ttlMs": LIST_TTL_MS, "cacheScope": "private"})
            }
        }
    }

    fn call_tool(&mut self, request: ClientRequest) -> McpReply {
        let Some(tool) = request.params["name"].as_str() else {
            return Some(Err(RpcError::new(
                INVALID_PARAMS,
                "expected the name of a tool as `name`",
            )));
        };
        let Some(call) = self.settings.read_call(tool, &request.params["arguments"]) else {
            return Some(Err(RpcError::new(INVALID_PARAMS, format!("unknown tool `{tool}`"))));
        };
        let call = match call {
            Ok(call) => call,
            Err(reason) => return Some(Ok(tool_error(reason))),
        };
        if let Some(state) = request.params["requestState"].as_str() {
            let state = state.to_owned();
            return self.resume_call(request, &state);
        }
        match call {
            ToolRequest::Start { message } => self.start(request, &message),
            ToolRequest::Continue { message, run_id } => {
                let run = self.served_run(run_id);
                self.deliver(request, run, &message)
            }
            ToolRequest::Answer { run_id, answer } => {
                let run = self.served_run(run_id);
                self.deliver_answer(request, run, &answer)
            }
            ToolRequest::Wait { run_id, wait } => {
                let run = self.served_run(run_id);
                if let Err(reason) = self.continue_if_left(&run) {
                    return Some(Ok(tool_error(reason)));
                }
                self.calls.push(WaitingCall::new(request, run, wait, false));
                None
            }
            ToolRequest::Stop { run_id } => {
                let run = self.served_run(run_id);
                if matches!(self.supervisor.look_at(&run), RunStanding::Working)
                    && let Err(error) = self.supervisor.stop_run(&run)
                {
                    let text = format!("could not stop run {}: {error}", run.id);
                    return Some(Ok(tool_error(text)));
                }
                let wait = self.settings.wait;
                self.calls.push(WaitingCall::new(request, run, wait, false));
                None
            }
        }
    }

    /// Starts a run, or finds the one that this very call has started before.
    fn start(&mut self, request: ClientRequest, message: &str) -> McpReply {
        let key = request.call_key().and_then(|key| RunId::parse(&format!("mcp-{key}")).ok());
        let run = match key {
            Some(id) => self.served_run(id),
            None => ServedRun::with_new_id(&self.settings.work_dir),
        };
        let started = match self.supervisor.look_at(&run) {
            RunStanding::Absent => {
                self.start_worker(|supervisor| supervisor.start_run(&run, message))
            }
            _ => self.continue_if_left(&run),
        };
        self.wait_for(request, run, started)
    }

    /// Waits for a run that was started or continued, unless that failed.
    fn wait_for(
        &mut self,
        request: ClientRequest,
        run: ServedRun,
        started: Result<(), String>,
    ) -> McpReply {
        if let Err(reason) = started {
            return Some(Ok(tool_error(reason)));
        }
        let wait = self.settings.wait;
        self.calls.push(WaitingCall::new(request, run, wait, true));
        None
    }

    /// Gives a run its next message. A call that is repeated after a crash is delivered once.
    fn deliver(&mut self, request: ClientRequest, run: ServedRun, message: &str) -> McpReply {
        let seq = self.supervisor.last_event(&run);
        match recorded_event(&request, &run, seq) {
            Ok(recorded) if recorded != seq => return self.wait_for(request, run, Ok(())),
            Ok(_) => {}
            Err(reason) => return Some(Ok(tool_error(reason))),
        }
        let wait = self.settings.tool_name("wait");
        let answer = self.settings.tool_name("answer");
        let id = &run.id;
        let refusal = match self.supervisor.look_at(&run) {
            RunStanding::Ended(_) if seq > 0 => None,
            RunStanding::Left { .. } => None,
            RunStanding::Working => Some(format!("run {id} is still working: call {wait}")),
            RunStanding::Waiting(_) => Some(format!("run {id} waits for an answer: call {answer}")),
            RunStanding::Refused(reason) => Some(reason),
            RunStanding::Absent | RunStanding::Ended(_) => Some(unknown_run(id)),
        };
        let delivered = match refusal {
            Some(reason) => Err(reason),
            None => self.start_recorded(&request, &run, message, seq),
        };
        self.wait_for(request, run, delivered)
    }

    /// Delivers the answer to a question. An approval is for a person, and not for the LLM that calls.
    fn deliver_answer(&mut self, request: ClientRequest, run: ServedRun, answer: &str) -> McpReply {
        let seq = self.supervisor.last_event(&run);
        match recorded_event(&request, &run, seq) {
            Ok(recorded) if recorded != seq => return self.wait_for(request, run, Ok(())),
            Ok(_) => {}
            Err(reason) => return Some(Ok(tool_error(reason))),
        }
        let is_yes_or_no =
            matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "n" | "no");
        let open = match self.supervisor.look_at(&run) {
            RunStanding::Waiting(open) => open,
            RunStanding::Absent => return Some(Ok(tool_error(unknown_run(&run.id)))),
            RunStanding::Refused(reason) => return Some(Ok(tool_error(reason))),
            _ => {
                let wait = self.settings.tool_name("wait");
                let text = format!("run {} does not wait for an answer: call {wait}", run.id);
                return Some(Ok(tool_error(text)));
            }
        };
        if question_form::is_approval(&open) || open.request.sensitive {
            let mut result = self.settings.waiting_result(&run, &open);
            result["isError"] = true.into();
            return Some(Ok(result));
        }
        if open.request.input_type == InputType::Confirmation && !is_yes_or_no {
            return Some(Ok(tool_error("expected `yes` or `no` as `answer`; the run still waits")));
        }
        let delivered = self.start_recorded(&request, &run, answer, seq);
        self.wait_for(request, run, delivered)
    }

    /// Records the call of the client, and continues the run with its message.
    fn start_recorded(
        &mut self,
        request: &ClientRequest,
        run: &ServedRun,
        message: &str,
        seq: u64,
    ) -> Result<(), String> {
        if let Some(key) = request.call_key() {
            supervisor::record_client_call(run, &key, seq)
                .map_err(|error| format!("could not record the call: {error}"))?;
        }
        self.start_worker(|supervisor| supervisor.continue_run(run, Some(message), seq))
    }

    /// The second call of a client that was asked to ask its user.
    fn resume_call(&mut self, request: ClientRequest, state: &str) -> McpReply {
        let parsed = state
            .rsplit_once(':')
            .and_then(|(id, seq)| Some((RunId::parse(id).ok()?, seq.parse::<u64>().ok()?)));
        let Some((id, seq)) = parsed else {
            let message = "expected the `requestState` of an earlier result";
            return Some(Err(RpcError::new(INVALID_PARAMS, message)));
        };
        let run = self.served_run(id);
        let response = request.params["inputResponses"].get(FORM_KEY).cloned();
        let delivered = match (self.supervisor.look_at(&run), response) {
            (RunStanding::Waiting(open), Some(response)) if open.seq == seq => {
                match self.deliver_form(&run, &open, &response) {
                    Ok(true) => Ok(()),
                    Ok(false) => return Some(Ok(self.settings.waiting_result(&run, &open))),
                    Err(reason) => Err(reason),
                }
            }
            (RunStanding::Absent, _) => Err(unknown_run(&run.id)),
            // It was delivered before, or was forgotten: the run says what comes next.
            _ => self.continue_if_left(&run),
        };
        self.wait_for(request, run, delivered)
    }

    /// Delivers what the user did with a form; false if that was nothing.
    pub fn deliver_form(
        &mut self,
        run: &ServedRun,
        open: &OpenRequest,
        response: &Json,
    ) -> Result<bool, String> {
        match question_form::read_form_answer(open, response)? {
            FormAnswer::Declined => Ok(false),
            FormAnswer::Message(message) => {
                self.start_worker(|supervisor| {
                    supervisor.continue_run(run, message.as_str(), open.seq)
                })?;
                Ok(true)
            }
        }
    }

    /// Continues a run whose process was interrupted or died, unless a client stopped it.
    pub fn continue_if_left(&mut self, run: &ServedRun) -> Result<(), String> {
        loop {
            let seq = self.supervisor.last_event(run);
            return match self.supervisor.look_at(run) {
                // Its last process, or one of another server, has recorded more meanwhile.
                RunStanding::Left { .. } if self.supervisor.last_event(run) != seq => continue,
                RunStanding::Left { is_stopped: false } => {
                    self.start_worker(|supervisor| supervisor.continue_run(run, None, seq))
                }
                RunStanding::Absent => Err(unknown_run(&run.id)),
                RunStanding::Refused(reason) => Err(reason),
                _ => Ok(()),
            };
        }
    }

    fn start_worker(
        &mut self,
        start: impl FnOnce(&mut RunSupervisor) -> std::io::Result<()>,
    ) -> Result<(), String> {
        let count = self.supervisor.worker_count();
        if count >= self.settings.max_runs {
            let wait = self.settings.tool_name("wait");
            let runs = command_line::pluralize(count, "run");
            return Err(format!(
                "this server works on {runs}, the most that it may: call {wait} for one of them, then repeat this call"
            ));
        }
        start(&mut self.supervisor).map_err(|error| format!("could not start delta: {error}"))
    }

    /// The reply to a call whose run is as it is, or `None` as long as it should wait.
    fn reply_to(&mut self, call: &mut WaitingCall) -> McpReply {
        let standing = self.supervisor.look_at(&call.run);
        self.outgoing.extend(call.take_progress());
        let run = &call.run;
        Some(Ok(match standing {
            RunStanding::Working if call.is_due_as_task() && run.dir().is_dir() => {
                self.task_result(run)
            }
            RunStanding::Working if call.is_overdue() => self.settings.working_result(run),
            RunStanding::Working => return None,
            RunStanding::Absent => tool_error(format!("run {} ended before it began", run.id)),
            RunStanding::Left { is_stopped } => self.settings.left_result(run, is_stopped),
            RunStanding::Ended(report) => self.settings.ended_result(&report),
            RunStanding::Refused(reason) => tool_error(reason),
            RunStanding::Waiting(open) => return self.ask_client(call, &open),
        }))
    }

    /// Lets the client ask its user, if it can.
    fn ask_client(&mut self, call: &mut WaitingCall, open: &OpenRequest) -> McpReply {
        let run = &call.run;
        if !call.request.abilities.elicits || !question_form::may_ask_client(open) {
            return Some(Ok(self.settings.waiting_result(run, open)));
        }
        let params = question_form::form_params(run, open);
        if call.request.era == ProtocolEra::Modern {
            let form = json!({"method": "elicitation/create", "params": params});
            return Some(Ok(json!({
                "resultType": "input_required",
                "inputRequests": {FORM_KEY: form},
                "requestState": format!("{}:{}", run.id, open.seq),
            })));
        }
        if call.asked.is_none() {
            let number = self.next_request;
            self.next_request += 1;
            call.asked = Some((RpcId::Number(number), open.seq));
            self.outgoing.push(RpcMessage::request(number, "elicitation/create", params));
        }
        None
    }

    /// Handles the answer of the client to a question.
    fn handle_response(&mut self, id: &RpcId, outcome: Result<Json, RpcError>) {
        let index = self
            .calls
            .iter()
            .position(|call| call.asked.as_ref().is_some_and(|(request, _)| request == id));
        let Some(index) = index else { return };
        let mut call = self.calls.swap_remove(index);
        let seq = call.asked.take().map(|(_, seq)| seq);
        let delivered = match self.supervisor.look_at(&call.run) {
            RunStanding::Waiting(open) if Some(open.seq) == seq => {
                let delivered = match &outcome {
                    Ok(response) => self.deliver_form(&call.run, &open, response),
                    Err(_) => Ok(false),
                };
                match delivered {
                    Ok(false) => Err(self.settings.waiting_result(&call.run, &open)),
                    Ok(true) => Ok(()),
                    Err(reason) => Err(tool_error(reason)),
                }
            }
            // It was answered elsewhere.
            _ => Ok(()),
        };
        match delivered {
            Ok(()) => {
                call.restart_wait();
                self.calls.push(call);
            }
            Err(result) => self.send_reply(call.request.id, Ok(complete(result, call.request.era))),
        }
    }

    /// A client that cancels the call that drives a run wants the run to stop.
    fn cancel_call(&mut self, params: &Json) {
        let requested = &params["requestId"];
        let index = self.calls.iter().position(|call| call.request.id.to_json() == *requested);
        let Some(index) = index else { return };
        let call = self.calls.swap_remove(index);
        if call.drives_run {
            // What cannot be stopped works on, and is found again.
            let _ = self.supervisor.stop_run(&call.run);
        }
    }
}

impl PeerServer for McpServer {
    fn receive(&mut self, message: RpcMessage) {
        match message {
            RpcMessage::Request { id, method, params } => self.handle_request(id, &method, params),
            RpcMessage::Notification { method, params } => {
                if method == "notifications/cancelled" {
                    self.cancel_call(&params);
                }
            }
            RpcMessage::Response { id: Some(id), outcome } => self.handle_response(&id, outcome),
            RpcMessage::Response { id: None, .. } => {}
        }
    }

    fn look_at_runs(&mut self) {
        // Reaps processes whose end no call waits for.
        self.supervisor.worker_count();
        for mut call in mem::take(&mut self.calls) {
            match self.reply_to(&mut call) {
                None => self.calls.push(call),
                Some(reply) => {
                    let era = call.request.era;
                    self.send_reply(call.request.id, reply.map(|result| complete(result, era)));
                }
            }
        }
    }

    fn has_waiting_client(&self) -> bool {
        !self.calls.is_empty()
    }

    fn take_messages(&mut self) -> Vec<RpcMessage> {
        mem::take(&mut self.outgoing)
    }
}

/// The event after which the client's call continued the run, if it did that before; else `seq`.
fn recorded_event(request: &ClientRequest, run: &ServedRun, seq: u64) -> Result<u64, String> {
    let Some(key) = request.call_key() else { return Ok(seq) };
    let recorded = supervisor::recorded_client_call(run, &key);
    recorded
        .map(|recorded| recorded.unwrap_or(seq))
        .map_err(|error| format!("could not read the record of the call: {error}"))
}

fn unknown_run(id: &RunId) -> String {
    format!("there is no run {id} of this agent in the workspace of the server")
}

/// The result with what every modern result says.
fn complete(mut result: Json, era: ProtocolEra) -> Json {
    if era == ProtocolEra::Modern && result.get("resultType").is_none() {
        result["resultType"] = "complete".into();
    }
    result
}
