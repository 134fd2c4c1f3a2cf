//! ask_human: the built-in tool with which an agent asks a person.
//!
//! Without a person at a terminal the question goes into `interaction/request.json` and the process leaves; the answer
//! comes back with the next process.

use crate::durable::{self, FileError};
use crate::event::{InputType, Question};
use crate::state::{ASK_HUMAN, Call};
use crate::time::Timestamp;
use crate::tool;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::path::Path;

/// A person at a terminal, for `-i`.
pub trait Person {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The person went away (end of input), or the terminal failed.
    fn ask(&mut self, question: &Question) -> std::io::Result<String>;
}

/// The tool as the LLM is told of it.
pub fn definition() -> Json {
    tool::schema::definition(
        ASK_HUMAN,
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

/// The question of a call.
///
/// # Errors
/// The observation that says what is wrong with the arguments.
pub fn question(call: &Call) -> Result<Question, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        prompt: String,
        input_type: Option<InputType>,
        sensitive: Option<bool>,
    }
    let arguments = crate::text::mend_surrogates(&call.arguments);
    let arguments: Arguments = serde_json::from_str(&arguments).map_err(|error| {
        let error = crate::text::of_json(&error);
        format!(
            "Invalid arguments for tool `ask_human`; nobody was asked:\n- {error}\n\
             Parameters: prompt (string, required), input_type (text, password or confirmation), sensitive (boolean)."
        )
    })?;
    let input_type = arguments.input_type.unwrap_or(InputType::Text);
    Ok(Question {
        iteration: call.iteration,
        call_id: call.id.clone(),
        prompt: arguments.prompt,
        input_type,
        sensitive: arguments.sensitive.unwrap_or(false) || input_type == InputType::Password,
    })
}

/// Whether `answer` answers `question`: a confirmation wants yes or no.
pub fn accepts(question: &Question, answer: &str) -> bool {
    let yes_or_no = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "n" | "no");
    question.input_type != InputType::Confirmation || yes_or_no
}

/// Writes `interaction/request.json` in the run directory, durably.
pub fn write_request(run_dir: &Path, question: &Question, now: Timestamp) -> Result<(), FileError> {
    #[derive(Serialize)]
    struct Request<'a> {
        request_id: String,
        timestamp: Timestamp,
        prompt: &'a str,
        input_type: InputType,
        sensitive: bool,
    }
    let request = Request {
        request_id: uuid::Uuid::new_v4().to_string(),
        timestamp: now,
        prompt: &question.prompt,
        input_type: question.input_type,
        sensitive: question.sensitive,
    };
    let dir = run_dir.join("interaction");
    durable::ensure_dir(&dir, true)?;
    let mut text = serde_json::to_string_pretty(&request).unwrap_or_default();
    text.push('\n');
    durable::replace(&dir.join("request.json"), text.as_bytes())
}

/// The answer in `interaction/response.txt`, one newline at its end dropped; `None` when there is no such file.
pub fn read_response(run_dir: &Path) -> Option<String> {
    let bytes = durable::read_regular(&run_dir.join("interaction/response.txt")).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(text.strip_suffix("\r\n").or(text.strip_suffix('\n')).unwrap_or(&text).to_owned())
}

/// Takes away what an earlier question may have left, before a new one is asked: an old answer must never answer it.
///
/// # Errors
/// It is still there.
pub fn forget_old(run_dir: &Path) -> Result<(), FileError> {
    let dir = run_dir.join("interaction");
    match std::fs::remove_dir_all(&dir) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(FileError { action: "remove", path: dir, source })
        }
        _ => Ok(()),
    }
}

/// Takes the question and its answer away, once the answer is in the journal. What cannot be taken away does no harm:
/// nothing is read from it unless the journal holds an open question, and [`forget_old`] comes before that.
pub fn clear(run_dir: &Path) {
    let _ = std::fs::remove_dir_all(run_dir.join("interaction"));
}
