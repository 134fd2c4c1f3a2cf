//! The four tools of a served agent, and the arguments of their calls.

use super::ServeSettings;
use delta_base::id::RunId;
use serde_json::{Map, Value as Json, json};
use std::time::Duration;

/// The longest name of the tool that runs the agent; the others add a word.
pub const MAX_NAME_CHARS: usize = 56;
/// The longest time that a call waits for its run.
pub const MAX_WAIT_MS: u64 = 3_600_000;

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum ToolRequest {
    /// Start a run.
    Start { message: String },
    /// Continue a run with a message.
    Continue { message: String, run_id: RunId },
    /// Wait for a run.
    Wait { run_id: RunId, wait: Duration },
    /// Answer the question of a run.
    Answer { run_id: RunId, answer: String },
    /// Stop a run.
    Stop { run_id: RunId },
}

impl ServeSettings {
    /// The name of one of the other tools.
    pub fn tool_name(&self, word: &str) -> String {
        format!("{}_{word}", self.name)
    }

    /// What a client tells its LLM about the server.
    pub fn instructions(&self) -> String {
        format!(
            "{} runs an agent on a task. A run can take long; its id stays valid, also after a restart of this server.",
            self.name
        )
    }

    /// The tools as `tools/list` describes them.
    pub fn tool_list(&self) -> Json {
        let name = &self.name;
        let run_id = json!({"type": "string", "description": "Id of the run"});
        let object = |properties: Json, required: &[&str]| {
            json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            })
        };
        json!([
            {
                "name": name,
                "description": format!(
                    "{}\n\nStarts a run, which may take long: if it is still working, or asks a question, the result \
                     names the tool to call next. With run_id it gives an earlier run its next message.",
                    self.description
                ),
                "inputSchema": object(json!({
                    "message": {"type": "string", "minLength": 1, "description": "The task, or the next message of an earlier run"},
                    "run_id": {"type": "string", "description": "Id of an earlier run that has ended or was stopped; omit it to start a new one"},
                }), &["message"]),
            },
            {
                "name": self.tool_name("wait"),
                "description": format!("Waits until a run of {name} ends, and returns its result or how it is. Continues it if its process has died."),
                "inputSchema": object(json!({
                    "run_id": run_id,
                    "wait_ms": {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS, "description": "The longest wait, in milliseconds"},
                }), &["run_id"]),
                "annotations": {"destructiveHint": false, "idempotentHint": true},
            },
            {
                "name": self.tool_name("answer"),
                "description": format!("Answers the question that a run of {name} asks. The run continues."),
                "inputSchema": object(json!({
                    "run_id": run_id,
                    "answer": {"type": "string", "description": "The answer; yes or no to a confirmation"},
                }), &["run_id", "answer"]),
            },
            {
                "name": self.tool_name("stop"),
                "description": format!("Stops a run of {name}. It can be continued with a message."),
                "inputSchema": object(json!({"run_id": run_id}), &["run_id"]),
            },
        ])
    }

    /// Reads a call of the tool `tool`; `None` if there is no such tool.
    ///
    /// # Errors
    /// The arguments do not match; the text is for the LLM that calls.
    pub fn read_call(&self, tool: &str, arguments: &Json) -> Option<Result<ToolRequest, String>> {
        let word = tool.strip_prefix(&self.name)?;
        let empty = Map::new();
        let arguments = match arguments {
            Json::Object(arguments) => arguments,
            Json::Null => &empty,
            _ => return Some(Err("expected an object as arguments".to_owned())),
        };
        let mut reader = ArgumentReader { arguments, allowed: Vec::new() };
        let request = match word {
            "" => reader.read_run(),
            "_wait" => reader.read_wait(self.wait),
            "_answer" => reader.read_answer(),
            "_stop" => reader.run_id().map(|run_id| ToolRequest::Stop { run_id }),
            _ => return None,
        };
        Some(request.and_then(|request| reader.finish(request)))
    }
}

/// Reads the arguments of a call by name.
struct ArgumentReader<'a> {
    arguments: &'a Map<String, Json>,
    allowed: Vec<&'static str>,
}

impl ArgumentReader<'_> {
    fn read_run(&mut self) -> Result<ToolRequest, String> {
        let message = self.text("message")?;
        if message.trim().is_empty() {
            return Err("expected a task in `message`, found an empty text".to_owned());
        }
        self.allowed.push("run_id");
        if self.arguments.get("run_id").is_none_or(Json::is_null) {
            return Ok(ToolRequest::Start { message });
        }
        Ok(ToolRequest::Continue { message, run_id: self.run_id()? })
    }

    fn read_wait(&mut self, default: Duration) -> Result<ToolRequest, String> {
        let run_id = self.run_id()?;
        self.allowed.push("wait_ms");
        let wait = match self.arguments.get("wait_ms") {
            None | Some(Json::Null) => default,
            Some(value) => {
                let millis = value.as_u64().filter(|millis| *millis <= MAX_WAIT_MS);
                Duration::from_millis(millis.ok_or_else(|| {
                    format!("expected a whole number from 0 to {MAX_WAIT_MS} as `wait_ms`")
                })?)
            }
        };
        Ok(ToolRequest::Wait { run_id, wait })
    }

    fn read_answer(&mut self) -> Result<ToolRequest, String> {
        Ok(ToolRequest::Answer { run_id: self.run_id()?, answer: self.text("answer")? })
    }

    fn run_id(&mut self) -> Result<RunId, String> {
        RunId::parse(&self.text("run_id")?).map_err(|error| error.to_string())
    }

    fn text(&mut self, name: &'static str) -> Result<String, String> {
        self.allowed.push(name);
        match self.arguments.get(name) {
            Some(Json::String(text)) => Ok(text.clone()),
            Some(_) => Err(format!("expected a text as `{name}`")),
            None => Err(format!("`{name}` is missing")),
        }
    }

    fn finish(&self, request: ToolRequest) -> Result<ToolRequest, String> {
        match self.arguments.keys().find(|name| !self.allowed.contains(&name.as_str())) {
            None => Ok(request),
            Some(unknown) => {
                Err(format!("unknown argument `{unknown}`; known: {}", self.allowed.join(", ")))
            }
        }
    }
}
