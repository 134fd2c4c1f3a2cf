//! The message of a command: its argument, and what comes on stdin.

use crate::arguments::options::RunOptions;
use crate::failure::CommandFailure;
use delta_program::stdin_input::{self, MAX_STDIN_BYTES, StdinError, StdinNote};
use delta_program::stdio;
use delta_run::event::image_file::NewImage;

/// The text of a message option, read from stdin if the option is `-`.
pub fn read_message(option: &str) -> Result<String, CommandFailure> {
    if option != "-" {
        return Ok(option.to_owned());
    }
    let text = decode_stdin(stdin_input::read_all_stdin())?;
    if text.trim().is_empty() {
        let hint = "pipe the text into delta, or write it in place of `-`, such as `-m TEXT`";
        return Err(CommandFailure::usage("the message on stdin is empty", hint));
    }
    Ok(text.trim_end().to_owned())
}

/// The task of a new run: `option`, read from stdin if it is `-`, else with what is piped into stdin below an empty line.
pub fn read_task(option: &str, options: &RunOptions) -> Result<String, CommandFailure> {
    if option == "-" {
        return read_message(option);
    }
    let input = stdin_input::read_piped_stdin(&mut |note| match note {
        StdinNote::Waiting(note) => options.print_notes(&[note.to_owned()]),
        // Also with `-q`: the task lacks what the user may have meant for it.
        StdinNote::Ignored(note) if !options.silent => stdio::print_error_line(&note),
        StdinNote::Ignored(_) => {}
    });
    let text = decode_stdin(input)?;
    let text = text.trim_end();
    if text.is_empty() { Ok(option.to_owned()) } else { Ok(format!("{option}\n\n{text}")) }
}

/// The text on stdin.
fn decode_stdin(input: Result<Vec<u8>, StdinError>) -> Result<String, CommandFailure> {
    const HINT: &str = "put it in a file of the workspace, and name the file in the message";
    let bytes = input.map_err(|error| match error {
        StdinError::TooLarge => CommandFailure::config(
            format!(
                "stdin has more than {} MiB, the most that a message takes",
                MAX_STDIN_BYTES >> 20
            ),
            HINT,
        ),
        StdinError::Unreadable(error) => {
            CommandFailure::config(format!("could not read the message from stdin: {error}"), None)
        }
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let message = format!(
            "stdin is not UTF-8 text: byte {} is 0x{:02x}",
            valid + 1,
            error.as_bytes()[valid]
        );
        CommandFailure::config(message, HINT)
    })
}

/// A message of the user, with images that are not in the run directory yet.
pub struct NewMessage {
    /// The text; empty where images say enough.
    pub text: String,
    /// The attached images, in order.
    pub images: Vec<NewImage>,
}
