//! The calls of the tools of one server: its connection, the check of its definitions, the call, and the task that a call
//! may become.

use crate::client::{CallAnswer, McpClient, RequestWait, ServerNotice};
use crate::holder::{RemoteToolCall, is_readable};
use crate::server_task::{ServerTask, TaskStep, read_task_state};
use delta_base::signal::{CancelToken, to_timespec};
use delta_mcp::failure::McpFailure;
use delta_mcp::holder_config::task_record_path;
use delta_mcp::lock_file::{LockedServer, LockedTool};
use delta_mcp::server_spec::ServerSpec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use serde_json::{Map, Value as Json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How often in a row a task may be polled in vain.
const MAX_POLL_FAILURES: usize = 3;
/// How long the cancellation of a task may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Who waits for a call.
pub struct ToolCaller<'a> {
    /// The cancellation of this process.
    pub cancel: &'a CancelToken,
    /// A descriptor that becomes readable when the caller has gone.
    pub abandon_fd: Option<BorrowedFd<'a>>,
    /// A descriptor that becomes readable when the engine has gone, which then asks for a task again.
    pub engine_fd: Option<BorrowedFd<'a>>,
}

/// Starts a server for a session.
pub type StartServer<'a> = &'a (dyn Fn(&ServerSpec) -> Result<McpClient, McpFailure> + Send + Sync);

/// A server, its connection if there is one, and what is locked of it. Calls of tools that are `parallel` share the
/// connection at the same time; every other call has it for itself.
pub struct ToolSession<'a> {
    spec: ServerSpec,
    locked: Option<LockedServer>,
    start: StartServer<'a>,
    parallel: Vec<String>,
    /// The directory of the holders of the run.
    record_dir: Option<PathBuf>,
    order: RwLock<()>,
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    connection: Option<Connection>,
    /// The number of the connection.
    epoch: u64,
    /// Whether the server has ended a session since the last look.
    has_lost_session: bool,
}

struct Connection {
    /// What the clients of further calls are made from.
    template: McpClient,
    /// The clients that no call uses. Over HTTP, each has a connection that can be used again.
    free: Vec<McpClient>,
    /// What the server lists; `None` before the first call and after a change.
    listed: Option<Arc<Vec<Json>>>,
}

/// A client in the hands of a call.
struct LeasedClient {
    client: McpClient,
    epoch: u64,
}

impl<'a> ToolSession<'a> {
    /// A session without a connection, whose server `start` starts. Without `locked`, every tool is called as the server
    /// lists it.
    pub fn new(spec: ServerSpec, locked: Option<LockedServer>, start: StartServer<'a>) -> Self {
        Self {
            spec,
            locked,
            start,
            parallel: Vec::new(),
            record_dir: None,
            order: RwLock::default(),
            state: Mutex::default(),
        }
    }

    /// Records the tasks that calls become, in `dir`, the directory of the holders of the run.
    pub fn with_task_records(self, dir: &Path) -> Self {
        Self { record_dir: Some(dir.to_owned()), ..self }
    }

    /// Lets calls of the tools called `names` run at the same time.
    pub fn with_parallel_tools(self, names: Vec<String>) -> Self {
        Self { parallel: names, ..self }
    }

    /// Calls a tool once. Connects and checks the definitions first where that is still to be done. A call that became a
    /// task in an earlier process is not sent again.
    ///
    /// # Errors
    /// Why there is no result.
    pub fn call(
        &self,
        request: &RemoteToolCall,
        caller: &ToolCaller<'_>,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<Json, McpFailure> {
        let is_parallel = self.parallel.contains(&request.tool);
        let _shared =
            is_parallel.then(|| self.order.read().unwrap_or_else(PoisonError::into_inner));
        let _alone =
            (!is_parallel).then(|| self.order.write().unwrap_or_else(PoisonError::into_inner));
        let dir = self.record_dir.as_deref();
        let record =
            dir.zip(request.call_id.as_deref()).map(|(dir, call)| task_record_path(dir, call));
        if let Some(record) = &record
            && let Some(task) = ServerTask::read(record, &self.spec.name, &request.tool)?
        {
            return self.await_task(&task, request, caller, on_notice);
        }
        let mut answer = self.send_call(request, caller, on_notice);
        if let Err(McpFailure::SessionEnded) = answer {
            // The server refused the request, so a new session may send it.
            answer = self.send_call(request, caller, on_notice);
        }
        match answer? {
            CallAnswer::Result(result) => Ok(result),
            CallAnswer::Task(answer) => {
                let task = ServerTask::from_result(&self.spec.name, &request.tool, &answer)
                    .ok_or_else(|| {
                        McpFailure::invalid_answer("expected the `taskId` of the task")
                    })?;
                if let Some(record) = &record {
                    task.write(record)?;
                }
                self.await_task(&task, request, caller, on_notice)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of the connection, which is opened first if there is none. Other calls wait meanwhile.
    fn lease(&self, context: &mut RequestWait<'_>) -> Result<LeasedClient, McpFailure> {
        let mut state = self.lock();
        let SessionState { connection, epoch, .. } = &mut *state;
        if connection.as_ref().is_some_and(|connection| connection.template.has_ended()) {
            *connection = None;
        }
        let connection = match connection {
            Some(connection) => connection,
            None => {
                if context.has_gone() {
                    return Err(McpFailure::Cancelled);
                }
                let era = self.locked.as_ref().map(|locked| locked.era);
                let client = McpClient::connect(&self.spec, era, self.start, context)?;
                *epoch += 1;
                let template = client.share();
                connection.insert(Connection { template, free: vec![client], listed: None })
            }
        };
        let client = connection.free.pop().unwrap_or_else(|| connection.template.share());
        Ok(LeasedClient { client, epoch: *epoch })
    }

    fn give_back(&self, mut lease: LeasedClient) {
        let mut state = self.lock();
        if state.epoch == lease.epoch
            && let Some(connection) = &mut state.connection
        {
            if lease.client.take_list_change() {
                connection.listed = None;
            }
            connection.free.push(lease.client);
        }
    }

    /// What the server lists, which is asked for if it is not known. Other calls wait meanwhile.
    fn list(
        &self,
        lease: &mut LeasedClient,
        context: &mut RequestWait<'_>,
    ) -> Result<Arc<Vec<Json>>, McpFailure> {
        let mut state = self.lock();
        let is_current = state.epoch == lease.epoch;
        let connection = state.connection.as_mut().filter(|_| is_current);
        // A change that is announced while the server lists its tools counts for the next call.
        let has_changed = lease.client.take_list_change();
        let known_tools = connection.as_ref().and_then(|connection| connection.listed.clone());
        if let Some(listed) = known_tools.filter(|_| !has_changed) {
            return Ok(listed);
        }
        let listed = Arc::new(lease.client.list_tools(context)?);
        if let Some(connection) = connection {
            connection.listed = Some(Arc::clone(&listed));
        }
        Ok(listed)
    }

    /// Whether the server has ended a session since the last call of this.
    pub(crate) fn take_lost_session(&self) -> bool {
        std::mem::take(&mut self.lock().has_lost_session)
    }

    /// Sends a call. A session that the server has ended is forgotten.
    fn send_call(
        &self,
        request: &RemoteToolCall,
        caller: &ToolCaller<'_>,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<CallAnswer, McpFailure> {
        let deadline = Instant::now() + self.spec.start_timeout();
        let ToolCaller { cancel, abandon_fd, .. } = *caller;
        let mut context = RequestWait { deadline, cancel, abandon_fd, on_notice };
        let mut lease = self.lease(&mut context)?;
        let answer = self.send_call_with(&mut lease, request, &mut context);
        if lease.client.has_lost_session() {
            let mut state = self.lock();
            if state.epoch == lease.epoch {
                state.connection = None;
                state.has_lost_session = true;
            }
        }
        self.give_back(lease);
        answer
    }

    fn send_call_with(
        &self,
        lease: &mut LeasedClient,
        request: &RemoteToolCall,
        context: &mut RequestWait<'_>,
    ) -> Result<CallAnswer, McpFailure> {
        // The server may have taken long to start.
        context.deadline = Instant::now() + self.spec.start_timeout();
        let listed = self.list(lease, context)?;
        let definition = listed
            .iter()
            .find(|tool| tool.get("name").and_then(Json::as_str) == Some(&request.tool));
        check_locked_definition(&self.spec.name, self.locked.as_ref(), &request.tool, definition)?;
        context.deadline = Instant::now() + self.spec.timeout();
        let outcome = lease.client.call_tool(
            &request.tool,
            definition,
            &request.arguments,
            request.inputs.as_ref(),
            context,
        );
        outcome.map_err(|failure| match failure {
            McpFailure::Unreachable(_) | McpFailure::InvalidAnswer(_) => {
                with_unknown_outcome(failure)
            }
            // The engine ends a call at its timeout, and the call prints what is known of the server.
            McpFailure::Cancelled if context.is_abandoned() => {
                let summary = "the server had not answered";
                let stdio = lease.client.stdio();
                let reason = stdio
                    .map_or_else(|| summary.to_owned(), |stdio| stdio.describe_silence(summary));
                with_unknown_outcome(McpFailure::Unreachable(reason))
            }
            other => other,
        })
    }

    /// Polls a task until it has ended. A server that has died meanwhile is started again: it has to know its tasks.
    fn await_task(
        &self,
        task: &ServerTask,
        request: &RemoteToolCall,
        caller: &ToolCaller<'_>,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<Json, McpFailure> {
        let inputs = request.inputs.as_ref();
        let deadline = Instant::now() + self.spec.timeout();
        let mut answered = Map::new();
        let mut failures = 0;
        loop {
            let step = self.poll_task(task, inputs, &mut answered, caller, deadline, on_notice);
            match step {
                Ok(Some(outcome)) => {
                    if let Err(McpFailure::NeedsInput(_)) = &outcome {
                        self.cancel_task(task, caller);
                    }
                    return outcome;
                }
                Ok(None) => failures = 0,
                Err(McpFailure::Unreachable(_)) if failures < MAX_POLL_FAILURES => {
                    failures += 1;
                }
                Err(McpFailure::Cancelled) => {
                    self.cancel_task(task, caller);
                    return Err(McpFailure::Cancelled);
                }
                Err(failure) => return Err(with_unknown_outcome(failure)),
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                self.cancel_task(task, caller);
                let reason = "the task of the server did not end in time".to_owned();
                return Err(with_unknown_outcome(McpFailure::Unreachable(reason)));
            }
            self.pause(task.poll_interval().min(rest), caller);
        }
    }

    /// Asks for a task once. Gives the outcome of the call, if it has one.
    fn poll_task(
        &self,
        task: &ServerTask,
        inputs: Option<&Map<String, Json>>,
        answered: &mut Map<String, Json>,
        caller: &ToolCaller<'_>,
        deadline: Instant,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<Option<Result<Json, McpFailure>>, McpFailure> {
        let ToolCaller { cancel, abandon_fd, .. } = *caller;
        let mut context = RequestWait { deadline, cancel, abandon_fd, on_notice };
        let mut lease = self.lease(&mut context)?;
        let state = lease.client.get_task(&task.task_id, &mut context)?;
        let outcome = match read_task_state(&state, inputs, answered) {
            TaskStep::Wait => None,
            TaskStep::End(outcome) => Some(outcome),
            TaskStep::Answer(answers) => {
                lease.client.answer_task(&task.task_id, &answers, &mut context)?;
                answered.extend(answers);
                None
            }
        };
        self.give_back(lease);
        Ok(outcome)
    }

    /// Waits between two polls, and reads what the server writes meanwhile.
    fn pause(&self, length: Duration, caller: &ToolCaller<'_>) {
        let end = Instant::now() + length;
        let fds = [Some(caller.cancel.fd()), caller.abandon_fd];
        let fds: Vec<BorrowedFd<'_>> = fds.into_iter().flatten().collect();
        while !caller.cancel.is_requested() && !caller.abandon_fd.is_some_and(is_readable) {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            let stdio = self.connected_client().and_then(|client| client.stdio().cloned());
            match stdio.filter(|stdio| !stdio.has_ended()) {
                Some(stdio) => {
                    stdio.pause(Some(rest), &fds);
                }
                None => {
                    let watched = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
                    let mut watched: Vec<PollFd<'_>> = watched.collect();
                    let _ = poll(&mut watched, Some(&to_timespec(rest)));
                }
            }
        }
    }

    /// Another client of the connection, if there is one.
    fn connected_client(&self) -> Option<McpClient> {
        self.lock().connection.as_ref().map(|connection| connection.template.share())
    }

    /// Cancels a task whose caller has given up, unless an engine comes back for it: the caller of an engine that died has not
    /// given up.
    fn cancel_task(&self, task: &ServerTask, caller: &ToolCaller<'_>) {
        if caller.engine_fd.is_some_and(is_readable) {
            return;
        }
        let Some(mut client) = self.connected_client() else { return };
        let cancel = caller.cancel.for_cleanup();
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        let on_notice: &mut dyn FnMut(ServerNotice<'_>) = &mut |_| {};
        let mut context = RequestWait { deadline, cancel: &cancel, abandon_fd: None, on_notice };
        // The server may have ended it or forgotten it.
        let _ = client.cancel_task(&task.task_id, &mut context);
    }

    /// Ends the server, if it is a child, and a session over HTTP.
    pub fn close(self, cancel: &CancelToken) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = state.connection {
            connection.template.close(cancel);
        }
    }
}

/// What a caller has to know of a call that was sent and has no result.
fn with_unknown_outcome(failure: McpFailure) -> McpFailure {
    let explain =
        |reason: String| format!("{reason}\nthe call was sent, and its outcome is unknown");
    match failure {
        McpFailure::Unreachable(reason) => McpFailure::Unreachable(explain(reason)),
        McpFailure::InvalidAnswer(reason) => McpFailure::InvalidAnswer(explain(reason)),
        McpFailure::Protocol { code, message } => {
            McpFailure::Protocol { code, message: explain(message) }
        }
        other => other,
    }
}

/// A definition that differs from the locked one is not called.
fn check_locked_definition(
    server: &str,
    locked: Option<&LockedServer>,
    tool: &str,
    listed: Option<&Json>,
) -> Result<(), McpFailure> {
    let Some(locked) = locked else { return Ok(()) };
    let locked = locked.tool(tool);
    let listed = listed.and_then(LockedTool::from_listed);
    match (locked, listed) {
        (Some(locked), Some(listed)) if locked.sha256 == listed.sha256 => Ok(()),
        (Some(_), Some(_)) => Err(McpFailure::Changed(format!(
            "the server `{server}` now describes `{tool}` in another way than was locked; it was not called"
        ))),
        (Some(_), None) => Err(McpFailure::Changed(format!(
            "the server `{server}` no longer offers `{tool}`; it was not called"
        ))),
        (None, _) => Err(McpFailure::Changed(format!(
            "`{tool}` of the server `{server}` is not locked; it was not called"
        ))),
    }
}
