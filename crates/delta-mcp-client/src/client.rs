//! A client: one connection to one server, in whichever era it speaks.

use crate::http_transport::{HttpTransport, standard_headers};
use crate::param_header::{has_valid_marks, parameter_headers};
use crate::stdio_transport::StdioTransport;
use delta_base::signal::CancelToken;
use delta_mcp::failure::McpFailure;
use delta_mcp::json_rpc::{METHOD_NOT_FOUND, RpcError, RpcId, RpcMessage};
use delta_mcp::protocol_era::{
    LEGACY_VERSIONS, META_SERVER, MODERN_VERSION, ProtocolEra, TASKS_EXTENSION,
    implementation_info, is_modern_refusal, with_modern_meta,
};
use delta_mcp::server_spec::ServerSpec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// How long a server may be silent at the first question before it counts as one of the legacy era.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most pages of a list of tools.
const MAX_PAGES: usize = 1000;
/// The most times that a call is repeated because the server wants to see its state again.
const MAX_STATE_ROUNDS: usize = 16;
/// The notification that the list of tools is another one.
pub(crate) const LIST_CHANGED_METHOD: &str = "notifications/tools/list_changed";

/// Something that a server sends on its own.
#[derive(Debug)]
pub enum ServerNotice<'a> {
    /// A notification.
    Notification {
        /// The method.
        method: &'a str,
        /// The parameters.
        params: &'a Json,
    },
    /// A request, which was refused: this client can do nothing for a server.
    Request {
        /// The method.
        method: &'a str,
        /// The parameters.
        params: &'a Json,
    },
}

/// What a request waits for besides its answer.
pub struct RequestWait<'a> {
    /// When the answer is too late.
    pub deadline: Instant,
    /// The cancellation of this process.
    pub cancel: &'a CancelToken,
    /// A descriptor that becomes readable when the caller has gone.
    pub abandon_fd: Option<BorrowedFd<'a>>,
    /// Gets what the server sends meanwhile.
    pub on_notice: &'a mut dyn FnMut(ServerNotice<'_>),
}

impl RequestWait<'_> {
    /// Whether the caller has gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        let Some(fd) = self.abandon_fd else { return false };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        let now = delta_base::signal::to_timespec(Duration::ZERO);
        poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Whether the caller waits no longer.
    pub(crate) fn has_gone(&self) -> bool {
        self.cancel.is_requested() || self.is_abandoned()
    }

    fn with_deadline<'b>(&'b mut self, deadline: Instant) -> RequestWait<'b> {
        RequestWait {
            deadline: deadline.min(self.deadline),
            cancel: self.cancel,
            abandon_fd: self.abandon_fd,
            on_notice: &mut *self.on_notice,
        }
    }
}

/// The answer to a request of the server: this client declares nothing that a server could ask for.
pub(crate) fn answer_server_request(id: RpcId, method: &str) -> RpcMessage {
    let outcome = match method {
        "ping" => Ok(json!({})),
        "roots/list" => Ok(json!({"roots": []})),
        _ => Err(RpcError::new(METHOD_NOT_FOUND, format!("delta does not offer `{method}`"))),
    };
    RpcMessage::response(id, outcome)
}

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerIdentity {
    /// The era that it speaks.
    pub era: ProtocolEra,
    /// The version of the protocol.
    pub protocol: String,
    /// Its name and version.
    pub server: Json,
    /// What it says about its tools; `Null` without any.
    pub instructions: Json,
}

/// The answer to a call.
pub(crate) enum CallAnswer {
    /// The result of the tool.
    Result(Json),
    /// The call became a task of the server.
    Task(Json),
}

enum Transport {
    Stdio(StdioTransport),
    Http(Box<HttpTransport>),
}

/// A connection to a server.
pub struct McpClient {
    transport: Transport,
    identity: ServerIdentity,
    /// The id of the last request, of all clients of the connection.
    last_id: Arc<AtomicI64>,
    /// The capabilities in modern requests.
    capabilities: Json,
}

impl McpClient {
    /// A client without a connection: starts the server, if it is a child. The kernel kills it when the calling thread ends.
    ///
    /// # Errors
    /// The server could not be started.
    pub fn start(spec: &ServerSpec) -> Result<Self, McpFailure> {
        let transport = match &spec.url {
            Some(url) => Transport::Http(Box::new(HttpTransport::new(spec, url)?)),
            None => Transport::Stdio(StdioTransport::start(spec)?),
        };
        let identity = ServerIdentity {
            era: ProtocolEra::Legacy,
            protocol: String::new(),
            server: json!({}),
            instructions: Json::Null,
        };
        Ok(Self { transport, identity, last_id: Arc::default(), capabilities: json!({}) })
    }

    /// Connects to the server that `start` starts, and finds out or takes from `known` which era it speaks.
    ///
    /// # Errors
    /// The server could not be started, does not answer, or speaks no version that this client speaks.
    pub fn connect(
        spec: &ServerSpec,
        known: Option<ProtocolEra>,
        start: &dyn Fn(&ServerSpec) -> Result<Self, McpFailure>,
        context: &mut RequestWait<'_>,
    ) -> Result<Self, McpFailure> {
        let mut client = start(spec)?;
        let deadline = Instant::now() + spec.start_timeout();
        let mut context = context.with_deadline(deadline);
        match known {
            Some(ProtocolEra::Legacy) => client.open_legacy(&mut context)?,
            Some(ProtocolEra::Modern) => client.set_modern(&Json::Null),
            None => {
                if client.probe(spec, &mut context)? {
                    return Ok(client);
                }
                if let Err(failure) = client.open_legacy(&mut context) {
                    if client.stdio().is_none() || context.has_gone() {
                        client.close(context.cancel);
                        return Err(failure);
                    }
                    // At a first message other than `initialize`, legacy servers end, answer nothing more, or refuse all others.
                    client.close(context.cancel);
                    client = start(spec)?;
                    context.deadline = Instant::now() + spec.start_timeout();
                    client.open_legacy(&mut context)?;
                }
            }
        }
        Ok(client)
    }

    /// Another client of the same connection, for a call at the same time.
    pub(crate) fn share(&self) -> Self {
        let transport = match &self.transport {
            Transport::Stdio(stdio) => Transport::Stdio(stdio.clone()),
            Transport::Http(http) => Transport::Http(Box::new(http.share())),
        };
        Self {
            transport,
            identity: self.identity.clone(),
            last_id: Arc::clone(&self.last_id),
            capabilities: json!({}),
        }
    }

    /// The process of the server, if it is a child.
    pub(crate) fn stdio(&self) -> Option<&StdioTransport> {
        match &self.transport {
            Transport::Stdio(stdio) => Some(stdio),
            Transport::Http(_) => None,
        }
    }

    /// Who the server is.
    pub fn identity(&self) -> &ServerIdentity {
        &self.identity
    }

    /// Whether the server, if it is a child, has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.stdio().is_some_and(StdioTransport::has_ended)
    }

    /// Whether the server no longer knows the session over HTTP.
    pub(crate) fn has_lost_session(&self) -> bool {
        matches!(&self.transport, Transport::Http(http) if http.has_lost_session)
    }

    /// Whether the server has announced another list of tools since the last call of this.
    pub(crate) fn take_list_change(&mut self) -> bool {
        match &mut self.transport {
            Transport::Stdio(stdio) => stdio.take_list_change(),
            Transport::Http(http) => http.take_list_change(),
        }
    }

    /// Ends the server, if it is a child, and a session over HTTP, for all clients of the connection.
    pub fn close(self, cancel: &CancelToken) {
        match self.transport {
            Transport::Stdio(stdio) => stdio.end(cancel),
            Transport::Http(http) => http.end_session(),
        }
    }

    /// Asks whether the server speaks the modern era. Whatever else answers, it may speak the legacy one.
    fn probe(
        &mut self,
        spec: &ServerSpec,
        context: &mut RequestWait<'_>,
    ) -> Result<bool, McpFailure> {
        self.set_modern(&Json::Null);
        // What is left of the start is for `initialize`.
        let limit = PROBE_TIMEOUT.min(spec.start_timeout() / 2);
        let mut discover = |client: &mut Self| {
            let mut context = context.with_deadline(Instant::now() + limit);
            client.exchange("server/discover", Json::Null, &[], &mut context)
        };
        let mut outcome = discover(self);
        if let Ok(Err(error)) = &outcome
            && is_modern_refusal(error)
            && supported_versions(error).any(|version| version == MODERN_VERSION)
        {
            // It refused a version that it speaks, so it may accept it now.
            outcome = discover(self);
        }
        match outcome {
            Ok(Ok(answer)) => {
                let supported = answer.get("supportedVersions").and_then(Json::as_array);
                let is_modern = supported
                    .is_some_and(|versions| versions.iter().any(|one| one == MODERN_VERSION));
                self.set_modern(&answer);
                Ok(is_modern)
            }
            Ok(Err(error)) if is_modern_refusal(&error) => {
                let may_be_legacy = {
                    let versions: Vec<&str> = supported_versions(&error).collect();
                    versions.is_empty() || versions.iter().any(|one| LEGACY_VERSIONS.contains(one))
                };
                if may_be_legacy { Ok(false) } else { Err(error.into()) }
            }
            Err(failure @ (McpFailure::Cancelled | McpFailure::Unauthorized(_))) => Err(failure),
            Ok(Err(_)) | Err(_) => Ok(false),
        }
    }

    fn set_modern(&mut self, answer: &Json) {
        let server = answer
            .get("_meta")
            .and_then(|meta| meta.get(META_SERVER))
            .or_else(|| answer.get("serverInfo"));
        self.identity = ServerIdentity {
            era: ProtocolEra::Modern,
            protocol: MODERN_VERSION.to_owned(),
            server: server.cloned().unwrap_or_else(|| json!({})),
            instructions: answer.get("instructions").cloned().unwrap_or_default(),
        };
        if let Transport::Http(http) = &mut self.transport {
            http.version = Some(MODERN_VERSION.to_owned());
        }
    }

    fn open_legacy(&mut self, context: &mut RequestWait<'_>) -> Result<(), McpFailure> {
        self.identity.era = ProtocolEra::Legacy;
        if let Transport::Http(http) = &mut self.transport {
            http.version = None;
        }
        let mut initialize = |client: &mut Self, version: &str| {
            let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": implementation_info()});
            client.exchange("initialize", params, &[], context)
        };
        let mut outcome = initialize(self, LEGACY_VERSIONS[0])?;
        // A server should answer with a version that it speaks; some refuse one that they do not speak.
        let other = outcome.as_ref().err().and_then(|error| {
            let mut known = LEGACY_VERSIONS.into_iter();
            known.find(|version| supported_versions(error).any(|one| one == *version))
        });
        if let Some(version) = other {
            outcome = initialize(self, version)?;
        }
        let answer = outcome?;
        let protocol = answer.get("protocolVersion").and_then(Json::as_str).unwrap_or_default();
        if !LEGACY_VERSIONS.contains(&protocol) {
            return Err(McpFailure::invalid_answer(format!(
                "the server speaks version `{protocol}` of the protocol, which delta does not know"
            )));
        }
        self.identity.protocol = protocol.to_owned();
        self.identity.server = answer.get("serverInfo").cloned().unwrap_or_else(|| json!({}));
        self.identity.instructions = answer.get("instructions").cloned().unwrap_or_default();
        let opened = RpcMessage::notification("notifications/initialized", Json::Null);
        match &mut self.transport {
            Transport::Stdio(stdio) => stdio.notify(&opened),
            Transport::Http(http) => {
                http.version = Some(protocol.to_owned());
                http.notify(&opened, context.cancel);
            }
        }
        Ok(())
    }

    /// The definitions of all tools, in the server's order. Over HTTP, a tool with an invalid `x-mcp-header` is left out.
    pub fn list_tools(&mut self, context: &mut RequestWait<'_>) -> Result<Vec<Json>, McpFailure> {
        let mut tools: Vec<Json> = Vec::new();
        let mut cursors: Vec<Json> = Vec::new();
        for _ in 0..MAX_PAGES {
            let params = cursors.last().map_or(Json::Null, |cursor| json!({"cursor": cursor}));
            let page = self.exchange("tools/list", params, &[], context)??;
            let listed = page.get("tools").and_then(Json::as_array).ok_or_else(|| {
                McpFailure::invalid_answer("expected a list `tools` in the answer to `tools/list`")
            })?;
            // A server that ignores the cursor lists the same tools again.
            let repeats = !listed.is_empty() && listed.iter().all(|tool| tools.contains(tool));
            if !repeats {
                tools.extend(listed.iter().cloned());
            }
            match page.get("nextCursor") {
                Some(cursor)
                    if !repeats && !is_last_cursor(cursor) && !cursors.contains(cursor) =>
                {
                    cursors.push(cursor.clone());
                }
                _ => {
                    if matches!(self.transport, Transport::Http(_)) {
                        tools.retain(|tool| tool.get("inputSchema").is_none_or(has_valid_marks));
                    }
                    return Ok(tools);
                }
            }
        }
        Err(McpFailure::invalid_answer(format!(
            "the list of tools has more than {MAX_PAGES} pages"
        )))
    }

    /// Calls a tool once. `definition` is what the server lists for it; `inputs` are answers to what the server asks for.
    pub(crate) fn call_tool(
        &mut self,
        name: &str,
        definition: Option<&Json>,
        arguments: &Json,
        inputs: Option<&Map<String, Json>>,
        context: &mut RequestWait<'_>,
    ) -> Result<CallAnswer, McpFailure> {
        let schema = definition.and_then(|definition| definition.get("inputSchema"));
        let headers = match (&self.transport, schema) {
            (Transport::Http(_), Some(schema)) => parameter_headers(schema, arguments),
            _ => Vec::new(),
        };
        self.capabilities = json!({"extensions": {TASKS_EXTENSION: {}}});
        if inputs.is_some() {
            self.capabilities["elicitation"] = json!({"form": {}});
        }
        let mut server_request = Json::Null;
        let mut params = json!({"name": name, "arguments": arguments});
        for _ in 0..MAX_STATE_ROUNDS {
            let id = self.next_id();
            // The token asks for progress.
            params["_meta"] = json!({"progressToken": id});
            let outcome = {
                let on_notice = &mut *context.on_notice;
                let observe: &mut dyn FnMut(ServerNotice<'_>) = &mut |notice| {
                    if let ServerNotice::Request {
                        method: method @ ("elicitation/create" | "sampling/createMessage"),
                        params,
                    } = &notice
                    {
                        server_request = json!({"method": method, "params": params});
                    }
                    on_notice(notice);
                };
                let mut context = RequestWait {
                    deadline: context.deadline,
                    cancel: context.cancel,
                    abandon_fd: context.abandon_fd,
                    on_notice: observe,
                };
                self.exchange_as(id, "tools/call", params.clone(), &headers, &mut context)?
            };
            let has_failed = outcome.as_ref().map_or(true, delta_mcp::tool_result::is_tool_error);
            if has_failed && !server_request.is_null() {
                return Err(McpFailure::NeedsInput(server_request));
            }
            let result = outcome?;
            if !result.is_object() {
                return Err(McpFailure::invalid_answer("expected an object as `result`"));
            }
            match result.get("resultType").and_then(Json::as_str) {
                None | Some("complete") => return Ok(CallAnswer::Result(result)),
                Some("task") if self.identity.era == ProtocolEra::Modern => {
                    return Ok(CallAnswer::Task(result));
                }
                Some("input_required") => params = repeat_with_input(params, &result, inputs)?,
                Some(other) => {
                    return Err(McpFailure::invalid_answer(format!(
                        "the result has the unknown type `{other}`"
                    )));
                }
            }
        }
        Err(McpFailure::invalid_answer(format!(
            "the server asked {MAX_STATE_ROUNDS} times to repeat the call"
        )))
    }

    /// How the task `id` is.
    pub(crate) fn get_task(
        &mut self,
        id: &str,
        context: &mut RequestWait<'_>,
    ) -> Result<Json, McpFailure> {
        self.exchange_for_task("tasks/get", json!({"taskId": id}), context)
    }

    /// Sends answers that the task `id` waits for.
    pub(crate) fn answer_task(
        &mut self,
        id: &str,
        answers: &Map<String, Json>,
        context: &mut RequestWait<'_>,
    ) -> Result<Json, McpFailure> {
        let params = json!({"taskId": id, "inputResponses": answers});
        self.exchange_for_task("tasks/update", params, context)
    }

    pub(crate) fn cancel_task(
        &mut self,
        id: &str,
        context: &mut RequestWait<'_>,
    ) -> Result<Json, McpFailure> {
        self.exchange_for_task("tasks/cancel", json!({"taskId": id}), context)
    }

    fn exchange_for_task(
        &mut self,
        method: &str,
        params: Json,
        context: &mut RequestWait<'_>,
    ) -> Result<Json, McpFailure> {
        self.capabilities =
            json!({"extensions": {TASKS_EXTENSION: {}}, "elicitation": {"form": {}}});
        Ok(self.exchange(method, params, &[], context)??)
    }

    fn next_id(&self) -> i64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn exchange(
        &mut self,
        method: &str,
        params: Json,
        headers: &[(String, String)],
        context: &mut RequestWait<'_>,
    ) -> Result<Result<Json, RpcError>, McpFailure> {
        let id = self.next_id();
        self.exchange_as(id, method, params, headers, context)
    }

    /// Sends a request with the id `id`. A caller that has gone already sends nothing.
    fn exchange_as(
        &mut self,
        id: i64,
        method: &str,
        params: Json,
        headers: &[(String, String)],
        context: &mut RequestWait<'_>,
    ) -> Result<Result<Json, RpcError>, McpFailure> {
        if context.has_gone() {
            return Err(McpFailure::Cancelled);
        }
        let is_modern = self.identity.era == ProtocolEra::Modern;
        let mut all_headers = Vec::new();
        if is_modern {
            all_headers = standard_headers(method, &params);
            all_headers.extend_from_slice(headers);
        }
        let params = if is_modern { with_modern_meta(params, &self.capabilities) } else { params };
        let request = RpcMessage::request(id, method, params);
        match &mut self.transport {
            Transport::Stdio(stdio) => stdio.exchange(id, &request, context),
            Transport::Http(http) => http.exchange(id, &request, &all_headers, context),
        }
    }
}

/// The versions that a server names when it refuses another.
fn supported_versions(error: &RpcError) -> impl Iterator<Item = &str> {
    let supported = error.data.as_ref().and_then(|data| data.get("supported"));
    let supported = supported.and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    supported.iter().filter_map(Json::as_str)
}

/// Whether no page follows this cursor: servers also write that as an empty text or `false`.
fn is_last_cursor(cursor: &Json) -> bool {
    matches!(cursor, Json::Null | Json::Bool(false)) || cursor == ""
}

/// The parameters of the call that answers `input_required`.
fn repeat_with_input(
    mut params: Json,
    result: &Json,
    inputs: Option<&Map<String, Json>>,
) -> Result<Json, McpFailure> {
    let requests = result.get("inputRequests").and_then(Json::as_object);
    let mut responses = Map::new();
    for key in requests.into_iter().flatten().map(|(key, _)| key) {
        match inputs.and_then(|inputs| inputs.get(key)) {
            Some(response) => responses.insert(key.clone(), response.clone()),
            None => return Err(McpFailure::NeedsInput(result["inputRequests"].clone())),
        };
    }
    let members = params.as_object_mut();
    if let Some(members) = members {
        members.remove("inputResponses");
        members.remove("requestState");
        if !responses.is_empty() {
            members.insert("inputResponses".into(), Json::Object(responses));
        }
        if let Some(state) = result.get("requestState").filter(|state| !state.is_null()) {
            members.insert("requestState".into(), state.clone());
        }
    }
    Ok(params)
}
