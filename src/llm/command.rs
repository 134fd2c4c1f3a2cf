//! The `command` provider: the LLM is a command too. It gets the request body on its standard input and prints the
//! response body.

use super::{COMMAND_MARK, LlmError, Provider, Reply, Request, Tell, reply_of_response};
use crate::process::{self, Command, End, Launch};
use crate::signal::Cancel;
use crate::text;
use std::time::Duration;

pub(super) struct CommandProvider {
    argv: Vec<String>,
    launch: Launch,
    model: String,
    timeout: Duration,
}

impl CommandProvider {
    pub(super) fn new(argv: Vec<String>, launch: Launch, model: String, timeout_ms: u64) -> Self {
        Self { argv, launch, model, timeout: Duration::from_millis(timeout_ms) }
    }
}

impl Provider for CommandProvider {
    fn complete(
        &mut self,
        request: &Request<'_>,
        cancel: &Cancel,
        _: Tell<'_>,
    ) -> Result<Reply, LlmError> {
        let run_dir = self.launch.env.get("RUN_DIR").map(|dir| dir.to_string_lossy());
        let run_dir = run_dir.unwrap_or_default();
        let command = Command {
            argv: &self.argv,
            launch: &self.launch,
            stdin: request.body.as_bytes(),
            timeout: self.timeout,
            spool: None,
            keep: 4096,
            keep_all: true,
            marks: &[("RUN_DIR", &run_dir), COMMAND_MARK],
        };
        let finished = process::run(&command, cancel);
        let program = &self.argv[0];
        let stderr = String::from_utf8_lossy(&finished.stderr.head).trim().to_owned();
        let failed = |what: String| match stderr.is_empty() {
            true => LlmError::failed(what),
            false => LlmError::failed(format!("{what}: {stderr}")),
        };
        match &finished.end {
            End::Exited(0) => {}
            End::Cancelled => return Err(LlmError::Cancelled),
            End::Exited(code) => {
                return Err(failed(format!(
                    "the LLM command `{program}` left with exit code {code}"
                )));
            }
            End::Killed(signal) => {
                return Err(failed(format!(
                    "the LLM command `{program}` was killed by {}",
                    process::signal_name(*signal)
                )));
            }
            End::TimedOut => {
                let millis = self.timeout.as_millis();
                return Err(failed(format!(
                    "the LLM command `{program}` gave no answer within {millis} ms"
                )));
            }
            End::NotStarted { reason, .. } => {
                return Err(LlmError::failed(format!(
                    "the LLM command could not be started: {reason}"
                )));
            }
        }
        let printed = String::from_utf8_lossy(finished.stdout.whole.as_deref().unwrap_or_default())
            .into_owned();
        let response = serde_json::from_str(&text::mend_surrogates(&printed)).map_err(|error| {
            let shown = text::one_line(&printed, 200);
            LlmError::failed(format!(
                "the LLM command `{program}` did not print JSON ({error}): {shown}"
            ))
        })?;
        reply_of_response(&response, &self.model).map_err(|why| {
            LlmError::failed(format!("the LLM command `{program}` printed no answer: {why}"))
        })
    }
}
