//! Tasks: the extension with which a client polls a run that takes long. The id of a task is the id of its run, so a task
//! outlives the server, the client and the machine.

use super::client_request::ClientRequest;
use super::mcp_server::McpServer;
use crate::question_form;
use crate::supervisor::{OpenRequest, RunStanding, ServedRun};
use delta_base::id::RunId;
use delta_mcp::json_rpc::{INTERNAL_ERROR, INVALID_PARAMS, RpcError};
use serde_json::{Value as Json, json};

/// How often a client should poll.
const POLL_INTERVAL_MS: u64 = 2000;

impl McpServer {
    /// The result that makes a call a task.
    pub fn task_result(&self, run: &ServedRun) -> Json {
        let mut task = self.task(run, "working");
        task["resultType"] = "task".into();
        task
    }

    fn task(&self, run: &ServedRun, status: &str) -> Json {
        let times = self.supervisor.times(run);
        json!({
            "taskId": run.id,
            "status": status,
            "createdAt": times.created_at,
            "lastUpdatedAt": times.updated_at,
            "ttlMs": null,
            "pollIntervalMs": POLL_INTERVAL_MS,
        })
    }

    /// `tasks/get`: also continues a run whose process died.
    pub fn get_task(&mut self, request: &ClientRequest) -> Result<Json, RpcError> {
        let run = self.task_run(request)?;
        // A server that works on as many runs as it may continues this one at a later poll.
        let continued = self.continue_if_left(&run);
        Ok(match self.supervisor.look_at(&run) {
            RunStanding::Absent | RunStanding::Refused(_) => return Err(unknown_task()),
            RunStanding::Working => self.task(&run, "working"),
            RunStanding::Left { is_stopped: true } => self.task(&run, "cancelled"),
            RunStanding::Left { is_stopped: false } => {
                let mut task = self.task(&run, "working");
                if let Err(reason) = continued {
                    task["statusMessage"] = reason.into();
                }
                task
            }
            RunStanding::Ended(report) => {
                let mut task = self.task(&run, "completed");
                task["result"] = self.settings.ended_result(&report);
                task["result"]["resultType"] = "complete".into();
                task
            }
            RunStanding::Waiting(open) => self.waiting_task(&run, &open, request),
        })
    }

    fn waiting_task(&self, run: &ServedRun, open: &OpenRequest, request: &ClientRequest) -> Json {
        if request.abilities.elicits && question_form::may_ask_client(open) {
            let form = json!({
                "method": "elicitation/create",
                "params": question_form::form_params(run, open),
            });
            let mut task = self.task(run, "input_required");
            task["inputRequests"] = json!({form_key(open): form});
            return task;
        }
        let mut task = self.task(run, "working");
        let waiting = self.settings.waiting_result(run, open);
        task["statusMessage"] = waiting["content"][0]["text"].clone();
        task
    }

    /// `tasks/update`: the user's answers. What was answered before is left alone.
    pub fn update_task(&mut self, request: &ClientRequest) -> Result<Json, RpcError> {
        let run = self.task_run(request)?;
        match self.supervisor.look_at(&run) {
            RunStanding::Absent | RunStanding::Refused(_) => return Err(unknown_task()),
            RunStanding::Waiting(open) => {
                if let Some(response) = request.params["inputResponses"].get(form_key(&open)) {
                    self.deliver_form(&run, &open, response)
                        .map_err(|reason| RpcError::new(INVALID_PARAMS, reason))?;
                }
            }
            _ => {}
        }
        Ok(json!({}))
    }

    /// `tasks/cancel`: stops the run, which a call with its id can continue.
    pub fn cancel_task(&mut self, request: &ClientRequest) -> Result<Json, RpcError> {
        let run = self.task_run(request)?;
        match self.supervisor.look_at(&run) {
            RunStanding::Absent | RunStanding::Refused(_) => return Err(unknown_task()),
            RunStanding::Ended(_) => {}
            _ => self.supervisor.stop_run(&run).map_err(|error| {
                RpcError::new(INTERNAL_ERROR, format!("could not stop run {}: {error}", run.id))
            })?,
        }
        Ok(json!({}))
    }

    fn task_run(&self, request: &ClientRequest) -> Result<ServedRun, RpcError> {
        request.require_tasks()?;
        let id = request.params["taskId"].as_str().and_then(|id| RunId::parse(id).ok());
        Ok(self.served_run(id.ok_or_else(unknown_task)?))
    }
}

fn unknown_task() -> RpcError {
    RpcError::new(INVALID_PARAMS, "unknown task")
}

/// The key of the form: another one for each question.
fn form_key(open: &OpenRequest) -> String {
    format!("event-{}", open.seq)
}
