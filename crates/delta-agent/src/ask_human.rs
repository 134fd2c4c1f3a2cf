//! ask_human: the built-in tool with which an agent asks its operator.
//!
//! Without a terminal the question is written to `interaction/request.json` and the process exits;
//! the next process delivers the answer.

use crate::approval_prompt::{ApprovalAnswer, ApprovalPrompt};
use crate::tool;
use delta_base::durable::{self, FileError};
use delta_base::time::Timestamp;
use delta_run::event::approval::RequestNaming;
use delta_run::event::{HumanQuestion, InputType};
use delta_run::interaction_request::InteractionRequest;
use delta_run::state::{ASK_HUMAN_TOOL, PendingCall, RunState};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Answers questions while the engine runs: a human at the terminal, for `-i`, or a recording.
pub trait HumanPrompt {
    /// Waits for the answer to `question`; `None` if another process has to deliver it.
    ///
    /// # Errors
    /// The input ended, or the terminal failed.
    fn ask(&mut self, question: &HumanQuestion) -> std::io::Result<Option<String>>;

    /// Waits for the decision on a call; `None` if another process has to deliver it.
    ///
    /// # Errors
    /// The wait was interrupted, or the terminal failed.
    fn approve(&mut self, prompt: &ApprovalPrompt<'_>) -> std::io::Result<Option<ApprovalAnswer>>;
}

/// The tool's entry in the `tools` of a request.
pub fn ask_human_definition() -> Json {
    tool::definition::function_definition(
        ASK_HUMAN_TOOL,
        "Ask the person who runs this agent.",
        question_schema(),
    )
}

/// The schema of its arguments, as the LLM sees it.
pub fn question_schema() -> Json {
    json!({
        "type": "object",
        "properties": {
            "prompt": {"type": "string"},
            "input_type": {"type": "string", "enum": ["text", "password", "confirmation"]},
            "sensitive": {"type": "boolean"}
        },
        "required": ["prompt"],
        "additionalProperties": false
    })
}

/// The entry in requests of earlier versions, which a replay builds again.
pub(crate) fn earlier_definition() -> Json {
    tool::definition::function_definition(
        ASK_HUMAN_TOOL,
        "Ask the person who runs this agent. The run waits for the answer, which is the result of this call.",
        json!({
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "description": "The question or instruction to show"},
                "input_type": {
                    "type": "string",
                    "enum": ["text", "password", "confirmation"],
                    "description": "The kind of answer: free text, a secret, or yes or no",
                    "default": "text"
                },
                "sensitive": {
                    "type": "boolean",
                    "description": "Whether the answer is hidden from the screen and the logs",
                    "default": false
                }
            },
            "required": ["prompt"],
            "additionalProperties": false
        }),
    )
}

/// Reads the question in the arguments of a call. Recorded observations contain the error, so its
/// wording is a format.
///
/// # Errors
/// The observation for the LLM when the arguments are invalid.
pub fn parse_question(call: &PendingCall) -> Result<HumanQuestion, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        prompt: String,
        input_type: Option<InputType>,
        sensitive: Option<bool>,
    }
    let arguments: Arguments = call.arguments.parse().map_err(|error| {
        let error = delta_base::error_text::describe_json_error(&error);
        format!(
            "Invalid arguments for tool `ask_human`; nobody was asked:\n- {error}\n\
             Parameters: prompt (string, required), input_type (text, password or confirmation), sensitive (boolean)."
        )
    })?;
    let input_type = arguments.input_type.unwrap_or(InputType::Text);
    Ok(HumanQuestion {
        iteration: call.iteration,
        call_id: call.id.clone(),
        prompt: arguments.prompt,
        input_type,
        sensitive: arguments.sensitive.unwrap_or(false) || input_type == InputType::Password,
        named_by: Some(RequestNaming::Chain),
    })
}

/// Whether `answer` is a valid answer to a question of this type: a confirmation needs yes or no.
pub fn is_valid_answer(input_type: InputType, answer: &str) -> bool {
    let yes_or_no = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "n" | "no");
    input_type != InputType::Confirmation || yes_or_no
}

/// Writes what the run waits for to `interaction/request.json` in the run directory, durably.
pub fn write_interaction_request(
    run_dir: &Path,
    state: &RunState,
    preview: Option<&str>,
    now: Timestamp,
) -> Result<(), FileError> {
    #[derive(Serialize)]
    struct Request<'a> {
        #[serde(flatten)]
        interaction: InteractionRequest,
        timestamp: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        preview: Option<&'a str>,
    }
    let Some(interaction) = InteractionRequest::new(state) else { return Ok(()) };
    let request = Request { interaction, timestamp: now, preview };
    let dir = run_dir.join("interaction");
    durable::ensure_private_dir_synced(&dir)?;
    let mut text = serde_json::to_string_pretty(&request).unwrap_or_default();
    text.push('\n');
    durable::replace_private_synced(&dir.join("request.json"), text.as_bytes())
}

/// Reads the answer in `interaction/response.txt` without its final newline; `None` if the file
/// cannot be read.
///
/// # Errors
/// Why the answer cannot be the operator's: the file is not a regular one, is empty, too large or not UTF-8, is older than the
/// question, or belongs to another user.
pub fn read_interaction_response(run_dir: &Path) -> Result<Option<String>, &'static str> {
    let dir = run_dir.join("interaction");
    let path = dir.join("response.txt");
    let Ok((file, response)) = open_with_metadata(&path) else {
        return match durable::metadata_no_follow(&path) {
            Ok(metadata) if metadata.is_symlink() => Err("it is a symlink"),
            Ok(metadata) if !metadata.is_file() => Err("it is not a regular file"),
            _ => Ok(None),
        };
    };
    let Ok((_, request)) = open_with_metadata(&dir.join("request.json")) else {
        // The question has not been shown yet.
        return Ok(None);
    };
    if response.uid() != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user");
    }
    let modified = |file: &Metadata| (file.mtime(), file.mtime_nsec());
    // This time cannot be set.
    let changed = |file: &Metadata| (file.ctime(), file.ctime_nsec());
    if modified(&response) < modified(&request) || changed(&response) < changed(&request) {
        return Err("it is older than the question");
    }
    let mut bytes = Vec::new();
    if file.take(durable::MAX_REGULAR_BYTES + 1).read_to_end(&mut bytes).is_err() {
        return Ok(None);
    }
    if bytes.len() as u64 > durable::MAX_REGULAR_BYTES {
        return Err("it is larger than 64 MiB");
    }
    if bytes.is_empty() {
        return Err("it is empty, as when its writer has only opened it");
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    // What an editor of Windows writes around the answer.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(Some(text.strip_suffix("\r\n").or(text.strip_suffix('\n')).unwrap_or(text).to_owned()))
}

fn open_with_metadata(path: &Path) -> std::io::Result<(File, Metadata)> {
    let file = durable::open_no_follow(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Removes the files of an earlier question, before a new one is asked: an old answer must never
/// answer it. Synced, also if an earlier process has removed them: a power failure must not bring
/// them back while the new question is open.
///
/// # Errors
/// The files could not be removed.
pub fn remove_old_interaction(run_dir: &Path) -> Result<(), FileError> {
    remove_interaction_dir(run_dir)?;
    durable::sync_dir(run_dir)
}

fn remove_interaction_dir(run_dir: &Path) -> Result<(), FileError> {
    let dir = run_dir.join("interaction");
    match durable::remove_dir_all_no_follow(&dir) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(FileError { action: "remove", path: dir, source })
        }
        _ => Ok(()),
    }
}

/// Removes the question and its answer, once the answer is in the journal. A failure is harmless:
/// the files are read only while a question is open, and [`remove_old_interaction`] runs before
/// that.
pub fn clear_interaction(run_dir: &Path) {
    let _ = remove_interaction_dir(run_dir);
}
