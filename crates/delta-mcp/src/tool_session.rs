//! The calls of the tools of one server: its connection, the check of its definitions, the call, and the task that a call
//! may become.

use crate::client::{CallAnswer, McpClient, RequestWait, ServerNotice};
use crate::failure::McpFailure;
use crate::holder::{RemoteToolCall, is_readable};
use crate::lock_file::{LockedServer, LockedTool};
use crate::server_spec::ServerSpec;
use crate::server_task::{ServerTask, TaskStep, read_task_state, task_record_path};
use delta_base::signal::{CancelToken, to_timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use serde_json::{Map, Value as Json};
use std::path::{Path, PathBuf};
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

/// A server, its connection if there is one, and what is locked of it.
pub struct ToolSession {
    spec: ServerSpec,
    locked: Option<LockedServer>,
    client: Option<McpClient>,
    /// What the server lists; `None` before the first call and after a change.
    listed: Option<Vec<Json>>,
    /// The directory of the holders of the run.
    record_dir: Option<PathBuf>,
    /// Whether the server has ended a session since the last look.
    has_lost_session: bool,
}

impl ToolSession {
    /// A session without a connection. Without `locked`, every tool is called as the server lists it.
    pub fn new(spec: ServerSpec, locked: Option<LockedServer>) -> Self {
        Self { spec, locked, client: None, listed: None, record_dir: None, has_lost_session: false }
    }

    /// Records the tasks that calls become, in `dir`, the directory of the holders of the run.
    pub fn with_task_records(self, dir: &Path) -> Self {
        Self { record_dir: Some(dir.to_owned()), ..self }
    }

    pub(crate) fn client_mut(&mut self) -> Option<&mut McpClient> {
        self.client.as_mut()
    }

    /// Lists the tools again before the next call.
    pub(crate) fn forget_list(&mut self) {
        self.listed = None;
    }

    /// Ends the connection; the next call opens another one.
    pub(crate) fn disconnect(&mut self, cancel: &CancelToken) {
        self.listed = None;
        if let Some(client) = self.client.take() {
            client.close(cancel);
        }
    }

    /// Calls a tool once. Connects and checks the definitions first where that is still to be done. A call that became a
    /// task in an earlier process is not sent again.
    ///
    /// # Errors
    /// Why there is no result.
    pub fn call(
        &mut self,
        request: &RemoteToolCall,
        caller: &ToolCaller<'_>,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<Json, McpFailure> {
        if self.client.as_mut().is_none_or(McpClient::has_ended) {
            self.client = None;
            self.listed = None;
        }
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
            self.has_lost_session = true;
            self.disconnect(caller.cancel);
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

    fn connect(&mut self, context: &mut RequestWait<'_>) -> Result<&mut McpClient, McpFailure> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let era = self.locked.as_ref().map(|locked| locked.era);
                McpClient::connect(&self.spec, era, context)?
            }
        };
        Ok(self.client.insert(client))
    }

    /// Whether the server has ended a session since the last call of this.
    pub(crate) fn take_lost_session(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_session)
    }

    fn send_call(
        &mut self,
        request: &RemoteToolCall,
        caller: &ToolCaller<'_>,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<CallAnswer, McpFailure> {
        let mut has_changed = false;
        let answer = self.send_call_with_list(request, caller, &mut |notice| {
            has_changed |= is_list_change(&notice);
            on_notice(notice);
        });
        if has_changed {
            self.listed = None;
        }
        answer
    }

    fn send_call_with_list(
        &mut self,
        request: &RemoteToolCall,
        caller: &ToolCaller<'_>,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<CallAnswer, McpFailure> {
        let deadline = Instant::now() + self.spec.start_timeout();
        let ToolCaller { cancel, abandon_fd, .. } = *caller;
        let mut context = RequestWait { deadline, cancel, abandon_fd, on_notice };
        let kept_list = self.listed.take();
        let client = self.connect(&mut context)?;
        // A notification that arrives with the list may mean a newer one, so the list is only kept without it.
        let listed = match kept_list {
            Some(listed) => listed,
            None => client.list_tools(&mut context)?,
        };
        let definition = listed
            .iter()
            .find(|tool| tool.get("name").and_then(Json::as_str) == Some(&request.tool));
        check_locked_definition(&self.spec.name, self.locked.as_ref(), &request.tool, definition)?;
        context.deadline = Instant::now() + self.spec.timeout();
        let Some(client) = &mut self.client else { return Err(McpFailure::Cancelled) };
        let outcome = client.call_tool(
            &request.tool,
            definition,
            &request.arguments,
            request.inputs.as_ref(),
            &mut context,
        );
        self.listed = Some(listed);
        outcome.map_err(|failure| match failure {
            McpFailure::Unreachable(_) => with_unknown_outcome(failure),
            other => other,
        })
    }

    /// Polls a task until it has ended. A server that has died meanwhile is started again: it has to know its tasks.
    fn await_task(
        &mut self,
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
                    // At the deadline the connection is only busy, and takes the cancellation.
                    if Instant::now() < deadline {
                        self.disconnect(caller.cancel);
                    }
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
        &mut self,
        task: &ServerTask,
        inputs: Option<&Map<String, Json>>,
        answered: &mut Map<String, Json>,
        caller: &ToolCaller<'_>,
        deadline: Instant,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<Option<Result<Json, McpFailure>>, McpFailure> {
        let ToolCaller { cancel, abandon_fd, .. } = *caller;
        let mut context = RequestWait { deadline, cancel, abandon_fd, on_notice };
        let client = self.connect(&mut context)?;
        let state = client.get_task(&task.task_id, &mut context)?;
        match read_task_state(&state, inputs, answered) {
            TaskStep::Wait => Ok(None),
            TaskStep::End(outcome) => Ok(Some(outcome)),
            TaskStep::Answer(answers) => {
                client.answer_task(&task.task_id, &answers, &mut context)?;
                answered.extend(answers);
                Ok(None)
            }
        }
    }

    /// Waits between two polls, and reads what the server writes meanwhile.
    fn pause(&mut self, length: Duration, caller: &ToolCaller<'_>) {
        let end = Instant::now() + length;
        let fds = [Some(caller.cancel.fd()), caller.abandon_fd];
        let fds: Vec<BorrowedFd<'_>> = fds.into_iter().flatten().collect();
        while !caller.cancel.is_requested() && !caller.abandon_fd.is_some_and(is_readable) {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            let client = self.client.as_mut();
            match client.and_then(|client| (!client.has_ended()).then_some(client)) {
                Some(client) => client.wait(rest, &fds),
                None => {
                    let watched = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
                    let mut watched: Vec<PollFd<'_>> = watched.collect();
                    let _ = poll(&mut watched, Some(&to_timespec(rest)));
                }
            }
        }
    }

    /// Cancels a task whose caller has given up, unless an engine comes back for it: the caller of an engine that died has not
    /// given up.
    fn cancel_task(&mut self, task: &ServerTask, caller: &ToolCaller<'_>) {
        if caller.engine_fd.is_some_and(is_readable) {
            return;
        }
        let Some(client) = &mut self.client else { return };
        let cancel = caller.cancel.for_cleanup();
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        let on_notice: &mut dyn FnMut(ServerNotice<'_>) = &mut |_| {};
        let mut context = RequestWait { deadline, cancel: &cancel, abandon_fd: None, on_notice };
        // The server may have ended it or forgotten it.
        let _ = client.cancel_task(&task.task_id, &mut context);
    }

    /// Ends the server, if it is a child.
    pub fn close(mut self, cancel: &CancelToken) {
        self.disconnect(cancel);
    }
}

/// What a caller has to know of a call that was sent and has no result.
fn with_unknown_outcome(failure: McpFailure) -> McpFailure {
    match failure {
        McpFailure::Unreachable(reason) => McpFailure::Unreachable(format!(
            "{reason}\nthe call was sent, and its outcome is unknown"
        )),
        McpFailure::Protocol { code, message } => McpFailure::Protocol {
            code,
            message: format!("{message}\nthe call was sent, and its outcome is unknown"),
        },
        other => other,
    }
}

pub(crate) fn is_list_change(notice: &ServerNotice<'_>) -> bool {
    matches!(notice, ServerNotice::Notification { method: "notifications/tools/list_changed", .. })
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
