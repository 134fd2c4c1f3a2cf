//! A call that became a task of the server, which the caller polls. Its record survives this process: who finds it asks
//! for the task and does not call.

use delta_base::durable;
use delta_mcp::failure::McpFailure;
use delta_mcp::json_rpc::{INTERNAL_ERROR, RpcError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The pause between two polls where the server names none.
const DEFAULT_POLL_INTERVAL_MS: u64 = 1000;
/// The shortest and the longest pause that a server can ask for.
const MIN_POLL_INTERVAL_MS: u64 = 10;
const MAX_POLL_INTERVAL_MS: u64 = 60_000;
/// A task of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerTask {
    server: String,
    tool: String,
    pub(crate) task_id: String,
    poll_interval_ms: u64,
}

impl ServerTask {
    /// The task that a result of the type `task` begins.
    pub(crate) fn from_result(server: &str, tool: &str, result: &Json) -> Option<Self> {
        let task_id = result.get("taskId")?.as_str()?.to_owned();
        let interval = result.get("pollIntervalMs").and_then(Json::as_u64);
        Some(Self {
            server: server.to_owned(),
            tool: tool.to_owned(),
            task_id,
            poll_interval_ms: interval.unwrap_or(DEFAULT_POLL_INTERVAL_MS),
        })
    }

    pub(crate) fn poll_interval(&self) -> Duration {
        let interval = self.poll_interval_ms.clamp(MIN_POLL_INTERVAL_MS, MAX_POLL_INTERVAL_MS);
        Duration::from_millis(interval)
    }

    /// The task in a record of a call of `tool` of `server`; `None` without a record.
    ///
    /// # Errors
    /// The record is of another call or cannot be read, so nothing is known of the call.
    pub(crate) fn read(path: &Path, server: &str, tool: &str) -> Result<Option<Self>, McpFailure> {
        let text = match durable::read_regular_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable_record(path, &error.to_string())),
        };
        let task: Self = serde_json::from_str(&text)
            .map_err(|error| unusable_record(path, &error.to_string()))?;
        if (task.server.as_str(), task.tool.as_str()) != (server, tool) {
            return Err(unusable_record(path, "it is of another tool"));
        }
        Ok(Some(task))
    }

    /// Writes the record, which is durable afterwards.
    pub(crate) fn write(&self, path: &Path) -> Result<(), McpFailure> {
        let not_written = |reason: String| {
            McpFailure::Unreachable(format!(
                "could not write {}: {reason}\nthe call was sent, and its outcome is unknown",
                path.display()
            ))
        };
        let text = serde_json::to_string(self).map_err(|error| not_written(error.to_string()))?;
        // Calls that become tasks at the same time all find no directory.
        durable::ensure_private_dir_synced(path.parent().unwrap_or(Path::new(".")))
            .and_then(|()| durable::replace_private_synced(path, text.as_bytes()))
            .map_err(|error| not_written(error.to_string()))
    }
}

fn unusable_record(path: &Path, reason: &str) -> McpFailure {
    McpFailure::Unreachable(format!(
        "could not use {}: {reason}\nthe call was sent, and its outcome is unknown",
        path.display()
    ))
}

/// What the caller does after a poll.
#[derive(Debug, PartialEq)]
pub(crate) enum TaskStep {
    /// The task is under way.
    Wait,
    /// The outcome of the call.
    End(Result<Json, McpFailure>),
    /// The task waits for these answers.
    Answer(Map<String, Json>),
}

/// Reads an answer to `tasks/get`. `inputs` are answers to what the server asks for, of which `answered` were sent.
pub(crate) fn read_task_state(
    state: &Json,
    inputs: Option<&Map<String, Json>>,
    answered: &Map<String, Json>,
) -> TaskStep {
    let status = state.get("status").and_then(Json::as_str).unwrap_or_default();
    match status {
        "working" => TaskStep::Wait,
        "completed" => TaskStep::End(
            state
                .get("result")
                .filter(|result| result.is_object())
                .cloned()
                .ok_or_else(|| McpFailure::invalid_answer("expected the `result` of the task")),
        ),
        "failed" => {
            let error = state.get("error").filter(|error| !error.is_null());
            let error = error.map(RpcError::from_json).unwrap_or_else(|| {
                let message = state.get("statusMessage").and_then(Json::as_str);
                RpcError::new(INTERNAL_ERROR, message.unwrap_or("the task failed"))
            });
            TaskStep::End(Err(error.into()))
        }
        "cancelled" => {
            TaskStep::End(Err(McpFailure::invalid_answer("the server has cancelled the task")))
        }
        "input_required" => next_answers(state, inputs, answered),
        other => TaskStep::End(Err(McpFailure::invalid_answer(format!(
            "the task has the unknown status `{other}`"
        )))),
    }
}

fn next_answers(
    state: &Json,
    inputs: Option<&Map<String, Json>>,
    answered: &Map<String, Json>,
) -> TaskStep {
    let requests = state.get("inputRequests").and_then(Json::as_object);
    let mut answers = Map::new();
    for key in requests.into_iter().flatten().map(|(key, _)| key) {
        // The server may not have taken an answer yet.
        if answered.contains_key(key) {
            continue;
        }
        match inputs.and_then(|inputs| inputs.get(key)) {
            Some(answer) => answers.insert(key.clone(), answer.clone()),
            None => {
                let requests = state.get("inputRequests").cloned().unwrap_or_else(|| json!({}));
                return TaskStep::End(Err(McpFailure::NeedsInput(requests)));
            }
        };
    }
    if answers.is_empty() { TaskStep::Wait } else { TaskStep::Answer(answers) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_mcp::holder_config::task_record_path;

    #[test]
    fn calls_that_become_tasks_at_the_same_time_all_have_a_record() {
        for _ in 0..100 {
            let dir = tempfile::tempdir().unwrap();
            std::thread::scope(|scope| {
                for call in 0..4 {
                    let path = task_record_path(dir.path(), &format!("call-{call}"));
                    scope.spawn(move || {
                        let answer = json!({"taskId": format!("task {call}")});
                        let task = ServerTask::from_result("s", "t", &answer).unwrap();
                        task.write(&path).unwrap();
                        assert_eq!(ServerTask::read(&path, "s", "t").unwrap(), Some(task));
                    });
                }
            });
        }
    }

    #[test]
    fn the_state_of_a_task_says_what_is_next() {
        let step = |state: Json, inputs: Json, answered: Json| {
            let answered = answered.as_object().cloned().unwrap_or_default();
            read_task_state(&state, inputs.as_object(), &answered)
        };
        let plain = |state: Json| step(state, Json::Null, Json::Null);
        assert_eq!(plain(json!({"status": "working"})), TaskStep::Wait);
        let done = json!({"status": "completed", "result": {"content": []}});
        assert_eq!(plain(done), TaskStep::End(Ok(json!({"content": []}))));
        for invalid in [json!({}), json!({"status": "completed"}), json!({"status": "new"})] {
            assert!(matches!(plain(invalid), TaskStep::End(Err(McpFailure::InvalidAnswer(_)))));
        }
        let asks = json!({"status": "input_required", "inputRequests": {"a": {}, "b": {}}});
        assert!(matches!(plain(asks.clone()), TaskStep::End(Err(McpFailure::NeedsInput(_)))));
        let inputs = json!({"a": 1, "b": 2, "c": 3});
        let answers = |json: Json| TaskStep::Answer(json.as_object().cloned().unwrap_or_default());
        assert_eq!(
            step(asks.clone(), inputs.clone(), Json::Null),
            answers(json!({"a": 1, "b": 2}))
        );
        assert_eq!(step(asks.clone(), inputs.clone(), json!({"a": 1})), answers(json!({"b": 2})));
        assert_eq!(step(asks, inputs, json!({"a": 1, "b": 2})), TaskStep::Wait);
    }
}
