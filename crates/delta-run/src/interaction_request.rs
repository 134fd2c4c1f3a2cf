//! What a run waits for, in the words that request.json, results and questions have in common.

use crate::event::InputType;
use crate::event::approval::ApprovalRequest;
use crate::state::{HumanRequest, RunState};
use delta_base::shell_quote::shell_quote_visibly;
use delta_base::terminal_text::escape_terminal_controls;
use serde::Serialize;
use serde_json::Value as Json;

/// What a run waits for, as request.json and results describe it.
#[derive(Debug, Clone, Serialize)]
pub struct InteractionRequest {
    /// The id of the question or approval.
    pub request_id: String,
    /// `approval` for the approval of a call; absent for a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The text of the question.
    pub prompt: String,
    /// The kind of answer that is expected.
    pub input_type: InputType,
    /// Whether the answer must not be shown.
    pub sensitive: bool,
    /// The tool of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// The command line of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
}

impl InteractionRequest {
    /// Describes what a run waits for; `None` if it waits for nothing.
    pub fn new(state: &RunState) -> Option<Self> {
        let request_id = state.request_id()?;
        Some(match state.human_request()? {
            HumanRequest::Question(question) => Self {
                request_id,
                kind: None,
                prompt: question.prompt.clone(),
                input_type: question.input_type,
                sensitive: question.sensitive,
                tool: None,
                arguments: None,
                argv: None,
            },
            HumanRequest::Approval(request) => Self {
                request_id,
                kind: Some("approval"),
                prompt: approval_question(request),
                input_type: InputType::Confirmation,
                sensitive: false,
                tool: Some(request.tool_name.clone()),
                arguments: Some(request.tool_args.clone()),
                argv: Some(request.argv.clone()),
            },
        })
    }
}

/// The question in one text, for request.json and results: the tool and its command line.
pub fn approval_question(request: &ApprovalRequest) -> String {
    let verb = if request.stage.is_some() { "Apply the changes of" } else { "Approve" };
    let question = format!("{verb} {}: {}", request.tool_name, short_command_line(request, ""));
    match changed_line(request) {
        Some(changed) => format!("{question} ({changed})"),
        None => question,
    }
}

/// What has changed since the call was approved, if it is asked about again.
pub fn changed_line(request: &ApprovalRequest) -> Option<String> {
    let names: Vec<_> = request.changed.iter().map(|name| escape_terminal_controls(name)).collect();
    (!names.is_empty()).then(|| format!("changed since you approved it: {}", names.join(", ")))
}

/// The command line, each word quoted as a shell needs it, with control characters escaped. The directory `agent_home` is
/// replaced by its name, unless it is empty.
pub fn short_command_line(request: &ApprovalRequest, agent_home: &str) -> String {
    // `/` before the name stays outside of it.
    let parent_length = agent_home.rfind('/').map_or(0, |slash| slash + 1);
    let words = request.argv.iter().map(|word| {
        let is_of_agent = !agent_home.is_empty()
            && word.strip_prefix(agent_home).is_some_and(|rest| rest.starts_with('/'));
        shell_quote_visibly(if is_of_agent { &word[parent_length..] } else { word })
    });
    words.collect::<Vec<String>>().join(" ")
}
