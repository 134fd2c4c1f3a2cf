//! The `command` provider: a command that reads the request body from standard input and prints the response body.

use super::wire::chat::add_function_call;
use super::{COMMAND_MARK, CallObserver, LlmError, LlmRequest, Provider};
use delta_base::json::to_json;
use delta_base::signal::CancelToken;
use delta_base::{json_repair, terminal_text};
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use delta_words::{Reply, parse_reply};
use serde_json::Value;
use std::borrow::Cow;
use std::time::Duration;

const STDERR_EXCERPT_BYTES: usize = 4096;

pub(super) struct CommandProvider {
    argv: Vec<String>,
    launch: LaunchContext,
    model: String,
    timeout: Duration,
}

impl CommandProvider {
    pub(super) fn new(
        argv: Vec<String>,
        launch: LaunchContext,
        model: String,
        timeout_ms: u64,
    ) -> Self {
        Self { argv, launch, model, timeout: Duration::from_millis(timeout_ms) }
    }

    /// Why a process that ended like this has no response.
    fn check_end(&self, end: &ProcessEnd, stderr: &str) -> Result<(), LlmError> {
        let program = &self.argv[0];
        let message = match end {
            ProcessEnd::Exited(0) => return Ok(()),
            ProcessEnd::Cancelled | ProcessEnd::OutOfTime | ProcessEnd::ForMessage => {
                return Err(LlmError::Cancelled);
            }
            ProcessEnd::NotStarted { reason, .. } => {
                let message = format!("the LLM command could not be started: {reason}");
                return Err(LlmError::from_message(message));
            }
            ProcessEnd::Exited(code) => {
                format!("the LLM command `{program}` exited with code {code}")
            }
            ProcessEnd::Killed(signal) => {
                let signal = process::signal_name(*signal);
                format!("the LLM command `{program}` was killed by {signal}")
            }
            ProcessEnd::TimedOut => {
                let millis = self.timeout.as_millis();
                format!("the LLM command `{program}` did not respond within {millis} ms")
            }
        };
        Err(LlmError::from_message(match stderr.trim() {
            "" => message,
            stderr => format!("{message}: {stderr}"),
        }))
    }

    fn parse_output(&self, output: &[u8]) -> Result<Reply, LlmError> {
        let program = &self.argv[0];
        let text = String::from_utf8_lossy(output);
        let excerpt = terminal_text::truncate_to_line(&text, 200);
        let mut response: Value = serde_json::from_str(&json_repair::replace_lone_surrogates(
            &text,
        ))
        .map_err(|error| {
            LlmError::from_message(format!(
                "the LLM command `{program}` did not print JSON ({error}): {excerpt}"
            ))
        })?;
        let message = response.pointer_mut("/choices/0/message").and_then(Value::as_object_mut);
        message.into_iter().for_each(add_function_call);
        parse_reply(&response, &self.model).map_err(|reason| {
            LlmError::from_message(format!(
                "the LLM command `{program}` did not print a response: {reason}: {excerpt}"
            ))
        })
    }
}

/// The request without what only the endpoint understands that gave it.
fn without_native(body: &str) -> Result<String, String> {
    let mut request: Value =
        serde_json::from_str(body).map_err(|error| format!("the request: {error}"))?;
    let messages = request.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten().filter_map(Value::as_object_mut) {
        message.shift_remove("native");
    }
    Ok(to_json(&request))
}

impl Provider for CommandProvider {
    fn complete(
        &mut self,
        request: &LlmRequest<'_>,
        cancel: &CancelToken,
        _: CallObserver<'_>,
    ) -> Result<Reply, LlmError> {
        let run_dir = self.launch.env.get("RUN_DIR").map(|dir| dir.to_string_lossy());
        let run_dir = run_dir.unwrap_or_default();
        let body = if request.has_native {
            Cow::Owned(without_native(request.body).map_err(LlmError::from_message)?)
        } else {
            Cow::Borrowed(request.body.as_str())
        };
        let command = ProcessCommand {
            stdin: body.as_bytes(),
            capture_whole: true,
            marks: &[("RUN_DIR", &run_dir), COMMAND_MARK],
            ..ProcessCommand::new(&self.argv, &self.launch, self.timeout, STDERR_EXCERPT_BYTES)
        };
        let process = process::run_process(&command, cancel);
        let stderr = String::from_utf8_lossy(&process.stderr.head);
        self.check_end(&process.end, &stderr)?;
        self.parse_output(process.stdout.whole.as_deref().unwrap_or_default())
    }
}
