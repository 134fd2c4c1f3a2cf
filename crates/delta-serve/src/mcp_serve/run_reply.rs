//! What a call of a tool returns: the result of a run, or how it is.

use super::ServeSettings;
use crate::question_form::{describe_approval, is_approval};
use crate::supervisor::{OpenRequest, ServedRun};
use delta_agent::tool::value_text;
use delta_run::event::InputType;
use serde_json::{Value as Json, json};

/// A result of a tool. Some clients show their LLM the text only, some the structured content only: what is not COMPLETED
/// has the text in both.
pub fn tool_result(text: impl Into<String>, structured: Option<Json>, is_error: bool) -> Json {
    let text = text.into();
    let mut result = json!({"content": [{"type": "text", "text": text}]});
    if let Some(mut structured) = structured {
        if structured["status"] != "COMPLETED" {
            structured["message"] = text.into();
        }
        result["structuredContent"] = structured;
    }
    if is_error {
        result["isError"] = true.into();
    }
    result
}

/// A tool failed; the text is for the LLM that called it.
pub fn tool_error(text: impl Into<String>) -> Json {
    tool_result(text, None, true)
}

impl ServeSettings {
    /// The result of a run that has ended.
    pub fn ended_result(&self, report: &Json) -> Json {
        if report["status"] == "COMPLETED" {
            return tool_result(value_text(&report["result"]), Some(report.clone()), false);
        }
        let error = &report["error"];
        let mut text = error["message"].as_str().unwrap_or("the run failed").to_owned();
        if let Some(details) = error["details"].as_str() {
            text.push_str(&format!("\n{details}"));
        }
        if let Some(id) = report["run_id"].as_str() {
            let name = &self.name;
            text = format!(
                "Run {id} FAILED: {text}\nTo continue it, call {name} with this run_id and a message."
            );
        }
        tool_result(text, Some(report.clone()), true)
    }

    /// The run needs more time than the call has.
    pub fn working_result(&self, run: &ServedRun) -> Json {
        let tool = self.tool_name("wait");
        let text = format!("Run {} is still working: call {tool} with this run_id.", run.id);
        tool_result(text, Some(run_status(run, "RUNNING")), false)
    }

    /// The run was stopped, or its process died.
    pub fn left_result(&self, run: &ServedRun, is_stopped: bool) -> Json {
        let id = &run.id;
        let name = &self.name;
        let structured = Some(run_status(run, "INTERRUPTED"));
        if is_stopped {
            let text = format!(
                "Run {id} is stopped. To continue it, call {name} with this run_id and a message."
            );
            return tool_result(text, structured, false);
        }
        let tool = self.tool_name("wait");
        let text = format!(
            "The process of run {id} was interrupted or died. Nothing is lost: {tool} with this run_id continues the run."
        );
        tool_result(text, structured, true)
    }

    /// The run waits for an answer that this client cannot ask its user for.
    pub fn waiting_result(&self, run: &ServedRun, open: &OpenRequest) -> Json {
        let id = &run.id;
        let command = &open.command;
        let text = if is_approval(open) {
            format!(
                "Run {id} waits for a person to approve a call:\n\n{}\n\nAt a terminal: {command}\nThen call {} with this run_id.",
                describe_approval(run, open),
                self.tool_name("wait")
            )
        } else if open.request.sensitive {
            format!(
                "Run {id} asks for a secret: {}\n\nThe user enters it at a terminal, so that no client sees it: {command}\nThen call {} with this run_id.",
                open.request.prompt,
                self.tool_name("wait")
            )
        } else {
            let kind = match open.request.input_type {
                InputType::Confirmation => "yes or no",
                _ => "an answer",
            };
            format!(
                "Run {id} asks a question:\n\n{}\n\nCall {} with this run_id and {kind}.",
                open.request.prompt,
                self.tool_name("answer")
            )
        };
        let mut status = run_status(run, "WAITING_FOR_INPUT");
        status["interaction"] = json!(open.request);
        tool_result(text, Some(status), false)
    }
}

/// The status of a run that has no result.
fn run_status(run: &ServedRun, status: &str) -> Json {
    json!({"run_id": run.id, "status": status})
}
