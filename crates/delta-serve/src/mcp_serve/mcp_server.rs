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
use serde_json::{Value as Json, json};
use std::mem;

/// How long clients may keep the list of tools, which never changes while the server runs.
const LIST_TTL_MS: u64 = 3_600_000;

/// The key of the one form that a result asks for.
const FORM_KEY: &str = "answer";

/// The result of a call, if it can be given at once; or why a tool refuses it.
type CallReply = Result<Option<Json>, String>;

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
            ("initialize", ProtocolEra::Legacy) => Ok(self.initialize(&request.params)),
            ("ping", ProtocolEra::Legacy) => Ok(json!({})),
            ("server/discover", ProtocolEra::Modern) => Ok(self.discover()),
            ("tools/list", _) => Ok(self.list_tools(era)),
            ("tools/call", _) => match self.call_tool(request).transpose() {
                Some(reply) => reply,
                None => return,
            },
            ("tasks/get", ProtocolEra::Modern) => self.get_task(&request),
            ("tasks/update", ProtocolEra::Modern) => self.update_task(&request),
            ("tasks/cancel", ProtocolEra::Modern) => self.cancel_task(&request),
            _ => Err(RpcError::new(METHOD_NOT_FOUND, format!("unknown method `{method}`"))),
        };
        self.send_reply(id, reply.map(|result| complete(result, era)));
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

    fn call_tool(&mut self, request: ClientRequest) -> Result<Option<Json>, RpcError> {
        let invalid = |message: &str| RpcError::new(INVALID_PARAMS, message);
        let tool = request.params["name"].as_str();
        let tool = tool.ok_or_else(|| invalid("expected the name of a tool as `name`"))?;
        let call = self.settings.read_call(tool, &request.params["arguments"]);
        let call = match call.ok_or_else(|| invalid(&format!("unknown tool `{tool}`")))? {
            Ok(call) => call,
            Err(reason) => return Ok(Some(tool_error(reason))),
        };
        let reply = match request.params["requestState"].as_str() {
            Some(state) => {
                let (id, seq) = read_request_state(state)
                    .ok_or_else(|| invalid("expected the `requestState` of an earlier result"))?;
                self.resume_call(request, id, seq)
            }
            None => self.answer_call(request, call),
        };
        Ok(reply.unwrap_or_else(|reason| Some(tool_error(reason))))
    }

    fn answer_call(&mut self, request: ClientRequest, call: ToolRequest) -> CallReply {
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
                let seq = self.supervisor.last_event(&run);
                self.continue_if_left(&run)?;
                self.calls.push(WaitingCall::new(request, run, seq, wait, false));
                Ok(None)
            }
            ToolRequest::Stop { run_id } => {
                let run = self.served_run(run_id);
                if matches!(self.supervisor.look_at(&run), RunStanding::Working) {
                    self.supervisor
                        .stop_run(&run)
                        .map_err(|error| format!("could not stop run {}: {error}", run.id))?;
                }
                let seq = self.supervisor.last_event(&run);
                let wait = self.settings.wait;
                self.calls.push(WaitingCall::new(request, run, seq, wait, false));
                Ok(None)
            }
        }
    }

    /// Starts a run, or finds the one that this very call has started before.
    fn start(&mut self, request: ClientRequest, message: &str) -> CallReply {
        let key = request.call_key().and_then(|key| RunId::parse(&format!("mcp-{key}")).ok());
        let run = match key {
            Some(id) => self.served_run(id),
            None => ServedRun::with_new_id(&self.settings.work_dir),
        };
        // Before the start: the run may have recorded answers when the call begins to wait.
        let seq = self.supervisor.last_event(&run);
        match self.supervisor.look_at(&run) {
            RunStanding::Absent => {
                self.start_worker(|supervisor| supervisor.start_run(&run, Some(message)))?;
            }
            _ => self.continue_if_left(&run)?,
        }
        self.wait_for(request, run, seq)
    }

    /// Waits for a run that was started or continued after its event `seq`.
    fn wait_for(&mut self, request: ClientRequest, run: ServedRun, seq: u64) -> CallReply {
        self.calls.push(WaitingCall::new(request, run, seq, self.settings.wait, true));
        Ok(None)
    }

    /// Gives a run its next message. A call that is repeated after a crash is delivered once.
    fn deliver(&mut self, request: ClientRequest, run: ServedRun, message: &str) -> CallReply {
        let seq = self.supervisor.last_event(&run);
        if recorded_event(&request, &run, seq)? != seq {
            return self.wait_for(request, run, seq);
        }
        let wait = self.settings.tool_name("wait");
        let id = &run.id;
        match self.supervisor.look_at(&run) {
            RunStanding::Ended(_) if seq > 0 => {}
            RunStanding::Left { .. } => {}
            RunStanding::Working => return Err(format!("run {id} is still working: call {wait}")),
            RunStanding::Waiting(open) => return Ok(Some(self.waiting_error(&run, &open))),
            RunStanding::Refused(reason) => return Err(reason),
            RunStanding::Absent | RunStanding::Ended(_) => return Err(unknown_run(id)),
        }
        self.start_recorded(&request, &run, message, seq)?;
        self.wait_for(request, run, seq)
    }

    /// Delivers the answer to a question. An approval is for a person, and not for the LLM that calls.
    fn deliver_answer(
        &mut self,
        request: ClientRequest,
        run: ServedRun,
        answer: &str,
    ) -> CallReply {
        let seq = self.supervisor.last_event(&run);
        if recorded_event(&request, &run, seq)? != seq {
            return self.wait_for(request, run, seq);
        }
        let open = match self.supervisor.look_at(&run) {
            RunStanding::Waiting(open) => open,
            RunStanding::Absent => return Err(unknown_run(&run.id)),
            RunStanding::Refused(reason) => return Err(reason),
            _ => {
                let wait = self.settings.tool_name("wait");
                return Err(format!("run {} does not wait for an answer: call {wait}", run.id));
            }
        };
        if question_form::is_approval(&open) || open.request.sensitive {
            return Ok(Some(self.waiting_error(&run, &open)));
        }
        if !question_form::accepts_answer(&open, answer) {
            return Err("expected `yes` or `no` as `answer`; the run still waits".to_owned());
        }
        self.start_recorded(&request, &run, answer, seq)?;
        self.wait_for(request, run, seq)
    }

    /// What the run waits for, for a call that does not answer that.
    fn waiting_error(&self, run: &ServedRun, open: &OpenRequest) -> Json {
        let mut result = self.settings.waiting_result(run, open);
        result["isError"] = true.into();
        result
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

    /// The second call of a client that was asked to ask its user about the event `seq` of a run.
    fn resume_call(&mut self, request: ClientRequest, id: RunId, seq: u64) -> CallReply {
        let run = self.served_run(id);
        let response = request.params["inputResponses"].get(FORM_KEY).cloned();
        match (self.supervisor.look_at(&run), response) {
            (RunStanding::Waiting(open), Some(response)) if open.seq == seq => {
                if let Some(result) = self.deliver_form(&run, &open, &response)? {
                    return Ok(Some(result));
                }
            }
            // It was delivered before, or was forgotten: the run says what comes next.
            _ => self.continue_if_left(&run)?,
        }
        self.wait_for(request, run, seq)
    }

    /// Delivers what the user did with a form; the result of a call if that was nothing.
    pub fn deliver_form(&mut self, run: &ServedRun, open: &OpenRequest, form: &Json) -> CallReply {
        let message = match question_form::read_form_answer(open, form)? {
            FormAnswer::Declined => return Ok(Some(self.settings.waiting_result(run, open))),
            FormAnswer::Message(message) => message,
        };
        self.start_worker(|supervisor| {
            supervisor.continue_run(run, Some(message.as_str()), open.seq)
        })?;
        Ok(None)
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
    fn reply_to(&mut self, call: &mut WaitingCall) -> Option<Json> {
        let standing = self.supervisor.look_at(&call.run);
        self.outgoing.extend(call.take_progress());
        let run = &call.run;
        Some(match standing {
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
        })
    }

    /// Lets the client ask its user, if it can.
    fn ask_client(&mut self, call: &mut WaitingCall, open: &OpenRequest) -> Option<Json> {
        let run = &call.run;
        if !call.request.abilities.elicits || !question_form::may_ask_client(open) {
            return Some(self.settings.waiting_result(run, open));
        }
        let params = question_form::form_params(run, open);
        if call.request.era == ProtocolEra::Modern {
            let form = json!({"method": "elicitation/create", "params": params});
            return Some(json!({
                "resultType": "input_required",
                "inputRequests": {FORM_KEY: form},
                "requestState": format!("{}:{}", run.id, open.seq),
            }));
        }
        // A question that was answered elsewhere is open no more: the next one is asked.
        if call.asked.as_ref().is_none_or(|(_, seq)| *seq != open.seq) {
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
        let result = match self.supervisor.look_at(&call.run) {
            RunStanding::Waiting(open) if Some(open.seq) == seq => match outcome {
                Ok(form) => self
                    .deliver_form(&call.run, &open, &form)
                    .unwrap_or_else(|reason| Some(tool_error(reason))),
                Err(_) => Some(self.settings.waiting_result(&call.run, &open)),
            },
            // It was answered elsewhere.
            _ => None,
        };
        call.restart_wait();
        self.reply_or_wait(call, result);
    }

    /// Ends a call with its result; without one, the call waits on.
    fn reply_or_wait(&mut self, call: WaitingCall, result: Option<Json>) {
        match result {
            Some(result) => {
                let result = complete(result, call.request.era);
                self.send_reply(call.request.id, Ok(result));
            }
            None => self.calls.push(call),
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
            let result = self.reply_to(&mut call);
            self.reply_or_wait(call, result);
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

/// The run and the event that a result with a form names.
fn read_request_state(state: &str) -> Option<(RunId, u64)> {
    let (id, seq) = state.rsplit_once(':')?;
    Some((RunId::parse(id).ok()?, seq.parse().ok()?))
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
