//! A question or an approval of a run as a form that a client shows to its user, and the user's answer.

use crate::supervisor::{OpenRequest, ServedRun};
use delta_agent::approval_prompt::ApprovalPrompt;
use delta_agent::ask_human;
use delta_operator::runs::approval_preview::pending_preview;
use delta_operator::runs::own_run;
use delta_run::event::InputType;
use delta_run::state::HumanRequest;
use serde_json::{Value as Json, json};

/// What the user did with a form.
#[derive(Debug, PartialEq, Eq)]
pub enum FormAnswer {
    /// The message for the run.
    Message(String),
    /// The user filled in nothing: the run keeps waiting.
    Declined,
}

/// Whether what the run waits for may go through a client: never a secret.
pub fn may_ask_client(open: &OpenRequest) -> bool {
    !open.request.sensitive
}

/// The parameters of `elicitation/create`.
pub fn form_params(run: &ServedRun, open: &OpenRequest) -> Json {
    let effect = if open.is_staged {
        "Whether the changes are applied"
    } else {
        "Whether the call may start"
    };
    let (message, properties, required) = match (is_approval(open), open.request.input_type) {
        (true, _) => (
            describe_approval(run, open),
            json!({
                "approve": {"type": "boolean", "title": "Approve", "description": effect},
                "reason": {"type": "string", "title": "Reason", "description": "Why not, for the agent"},
            }),
            "approve",
        ),
        (false, InputType::Confirmation) => (
            open.request.prompt.clone(),
            json!({"answer": {"type": "boolean", "title": "Answer"}}),
            "answer",
        ),
        (false, _) => (
            open.request.prompt.clone(),
            json!({"answer": {"type": "string", "title": "Answer"}}),
            "answer",
        ),
    };
    json!({
        "mode": "form",
        "message": message,
        "requestedSchema": {"type": "object", "properties": properties, "required": [required]},
    })
}

/// Whether the run waits for the approval of a call.
pub fn is_approval(open: &OpenRequest) -> bool {
    open.request.kind.is_some()
}

/// Whether the run takes the text as the answer to its question.
pub fn accepts_answer(open: &OpenRequest, text: &str) -> bool {
    is_approval(open) || ask_human::is_valid_answer(open.request.input_type, text)
}

/// The call to approve, with its arguments and the change that is known of it.
pub fn describe_approval(run: &ServedRun, open: &OpenRequest) -> String {
    let tool = open.request.tool.as_deref().unwrap_or_default();
    let arguments = open.request.arguments.as_ref().map(Json::to_string).unwrap_or_default();
    let preview = served_preview(run).map(|preview| format!("\n\n{}", preview.trim_end()));
    format!("{}\n\n{tool} {arguments}{}", open.request.prompt, preview.unwrap_or_default())
}

/// Reads the result of `elicitation/create`.
///
/// # Errors
/// It is not what [`form_params`] asked for.
pub fn read_form_answer(open: &OpenRequest, result: &Json) -> Result<FormAnswer, String> {
    let content = &result["content"];
    match (result["action"].as_str(), is_approval(open)) {
        (Some("accept"), _) => {}
        // Who declines to approve a call denies it.
        (Some("decline"), true) => return Ok(FormAnswer::Message("no".to_owned())),
        (Some("decline" | "cancel"), _) => return Ok(FormAnswer::Declined),
        _ => return Err("expected `accept`, `decline` or `cancel` as `action`".to_owned()),
    }
    if is_approval(open) {
        return match content["approve"].as_bool() {
            Some(true) => Ok(FormAnswer::Message("yes".to_owned())),
            Some(false) => {
                let reason = content["reason"].as_str().unwrap_or_default().trim();
                Ok(FormAnswer::Message(format!("no: {reason}")))
            }
            None => Err("expected true or false as `approve`".to_owned()),
        };
    }
    match (&content["answer"], open.request.input_type) {
        (Json::Bool(answer), InputType::Confirmation) => {
            Ok(FormAnswer::Message(if *answer { "yes" } else { "no" }.to_owned()))
        }
        (Json::String(answer), InputType::Text | InputType::Password) => {
            Ok(FormAnswer::Message(answer.clone()))
        }
        (_, InputType::Confirmation) => Err("expected true or false as `answer`".to_owned()),
        _ => Err("expected a text as `answer`".to_owned()),
    }
}

/// The same for a client, without control characters and sensitive answers.
pub fn served_preview(run: &ServedRun) -> Option<String> {
    let dir = run.dir();
    let state = own_run::fold_journal(&run.id, &dir).ok()?;
    let preview = pending_preview(&state, &dir, &run.work_dir)?;
    let HumanRequest::Approval(request) = state.human_request()? else { return None };
    let hidden = &state.sensitive.answers;
    ApprovalPrompt { request, preview: Some(&preview), hidden, agent_home: "", remember: None }
        .preview_text()
}
