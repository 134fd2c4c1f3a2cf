//! The lines of a call: its tool and arguments, and what came of it.

use super::live_area::LiveStatus;
use super::{CALL, DIM, ProgressPrinter, Verbosity, WARN};
use delta_agent::tool::value_text;
use delta_base::redact::redact_answers;
use delta_base::terminal_text::{
    escape_terminal_controls, format_argument_value, truncate_to_line,
};
use delta_base::text::text_width::{
    clip_to_width, display_width, expand_tabs, last_overwrite, wrap_words,
};
use delta_process::truncated_output::is_truncation_note;
use delta_run::event::image_file::text_with_images;
use delta_run::event::{ActionRequest, ActionResult};
use delta_run::state::{ASK_HUMAN_TOOL, FINISH_TOOL, PendingCall, RunState};
use serde_json::Value as Json;
use std::borrow::Cow;

/// The number of lines printed of the beginning and of the end of a result, where a test log has its failures.
const RESULT_HEAD_LINES: usize = 2;
const RESULT_TAIL_LINES: usize = 4;
/// The longest line that is a sentence rather than output.
const MAX_SENTENCE_BYTES: usize = 500;
/// The maximum number of characters of an argument's value.
const MAX_VALUE_WIDTH: usize = 60;

/// A call whose line is printed only with its observation.
pub(super) struct UnprintedCall {
    tool: String,
    arguments: Json,
}

impl From<&PendingCall> for UnprintedCall {
    fn from(call: &PendingCall) -> Self {
        Self { tool: call.tool.clone(), arguments: call.arguments.to_value() }
    }
}

impl ProgressPrinter {
    pub(super) fn show_call(&mut self, request: &ActionRequest) {
        self.unprinted_calls.remove(&request.call_id);
        if self.result_follows && request.argv.is_none() && request.tool_name == FINISH_TOOL {
            // Only a call that is rejected has a line of its own.
            let call = UnprintedCall {
                tool: request.tool_name.clone(),
                arguments: request.tool_args.clone(),
            };
            self.unprinted_calls.insert(request.call_id.clone(), call);
            return;
        }
        // A question prints its prompt in full.
        let asks = request.argv.is_none() && request.tool_name == ASK_HUMAN_TOOL;
        self.print_call("→", &request.tool_name, &request.tool_args, asks);
        self.last_call.clone_from(&request.call_id);
        // A recorded call may have ended.
        if request.argv.is_some() && !self.to_stdout {
            self.start_live(LiveStatus::Activity("running"));
        }
    }

    fn print_call(&mut self, arrow: &str, tool: &str, args: &Json, asks: bool) {
        let args = match args {
            Json::Object(args) => {
                let args = args.iter().filter(|(name, value)| {
                    !(asks && name.as_str() == "prompt" && value.is_string())
                });
                let pairs = args.map(|(name, value)| {
                    // As an approval shows them: what a call did is what was approved.
                    let text = redact_answers(&self.sensitive.answers, value_text(value));
                    let text = escape_terminal_controls(&text);
                    let value = match value {
                        Json::String(_) => format_argument_value(&text, MAX_VALUE_WIDTH),
                        _ => truncate_to_line(&text, MAX_VALUE_WIDTH),
                    };
                    let name = truncate_to_line(&self.sanitize(name), MAX_VALUE_WIDTH);
                    format!(" {name}={value}")
                });
                pairs.collect::<String>()
            }
            other => format!(" {}", self.sanitize(&value_text(other))),
        };
        let tool = truncate_to_line(&self.sanitize(tool), 64);
        // The arrow and the space after it take two columns.
        let room = self.line_width().saturating_sub(display_width(&tool) + 2);
        self.print_line(&format!(
            "{CALL}{arrow} {tool}{CALL:#}{}",
            clip_to_width(args.lines().next().unwrap_or_default(), room)
        ));
    }

    pub(super) fn show_observation(&mut self, result: &ActionResult, state: &RunState) {
        // The arguments of `finish` are the result; the result of another tool is shown here, unless it follows.
        if let Some(value) = &result.result
            && (result.tool_name == FINISH_TOOL || !self.to_stdout)
        {
            self.unprinted_result.get_or_insert_with(|| value.text());
            return;
        }
        if let Some(UnprintedCall { tool, arguments }) =
            self.unprinted_calls.remove(&result.call_id)
        {
            self.print_call("→", &tool, &arguments, false);
            self.last_call.clone_from(&result.call_id);
        }
        let is_one_of_several = self.last_call != result.call_id;
        if is_one_of_several && let Some(call) = state.call(&result.call_id) {
            // Calls that run at the same time have their results after the lines of all of them.
            self.print_call("←", &call.tool, &call.arguments.to_value(), false);
            self.last_call.clone_from(&result.call_id);
        }
        let hidden = self.sensitive.call_ids.remove(&result.call_id);
        let text = if hidden {
            Cow::Borrowed("[hidden]")
        } else {
            text_with_images(&result.observation_content, &result.images)
        };
        let failed = result.exit_code != Some(0);
        self.print_result_lines(&text, failed, result);
        if is_one_of_several && !self.to_stdout && state.has_started_calls() {
            self.start_live(LiveStatus::Activity("running"));
        }
    }

    /// Prints the first and the last lines of a result, or all with `-v`, and what delta has noted about bytes that it left
    /// out. A sentence of delta's own continues on the next line.
    fn print_result_lines(&mut self, text: &str, failed: bool, result: &ActionResult) {
        let style = if failed { WARN } else { DIM };
        let last_texts: Vec<&str> = text.split('\n').map(last_overwrite).collect();
        let text = self.sanitize(&last_texts.join("\n"));
        let lines: Vec<&str> = text.lines().collect();
        // The bar and the spaces around it take four columns.
        let room = self.line_width().saturating_sub(4);
        // The last line of a failed call says how it ended.
        let tail = RESULT_TAIL_LINES + usize::from(failed);
        let left_out = match lines.len().saturating_sub(RESULT_HEAD_LINES + tail) {
            // The line itself says more than "1 more line".
            0 | 1 => 0,
            _ if self.verbosity == Verbosity::Verbose => 0,
            count => count,
        };
        let folded = RESULT_HEAD_LINES..RESULT_HEAD_LINES + left_out;
        for (index, line) in lines.iter().enumerate() {
            if left_out > 0 && index == RESULT_HEAD_LINES {
                // They are lines of what the LLM got.
                let all = if result.truncated { "them" } else { "all" };
                let note = format!("… {left_out} more lines, -v shows {all}");
                self.print_line(&format!("{style}  │ {note}{style:#}"));
            }
            let is_note = result.truncated && is_truncation_note(line);
            if folded.contains(&index) && !is_note {
                continue;
            }
            let line = expand_tabs(line.trim_end());
            let gap = if line.is_empty() { "" } else { " " };
            // delta wrote what a call without an exit code ends with, which is a sentence.
            let wraps = result.exit_code.is_none() || is_note;
            let is_sentence = wraps && line.len() <= MAX_SENTENCE_BYTES;
            let rows = if is_sentence { wrap_words(&line, room) } else { vec![&*line] };
            for row in rows {
                self.print_line(&format!("{style}  │{gap}{}{style:#}", clip_to_width(row, room)));
            }
        }
    }
}
