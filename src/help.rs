//! `delta` without arguments at a terminal: what to do first.

use delta_base::terminal;
use delta_operator::{api_key, config};
use delta_program::stdio;
use std::process::ExitCode;

/// Prints what to do first if nothing but the program was named, at a terminal. Like every command line without a command it
/// is a usage error.
pub fn answer_empty_command_line(argument_count: usize) -> Option<ExitCode> {
    let is_person = terminal::is_stdout_terminal() && terminal::is_stderr_terminal();
    if argument_count > 1 || !is_person {
        return None;
    }
    stdio::print_error_line(&first_steps(has_model_and_key()));
    Some(ExitCode::from(2))
}

fn has_model_and_key() -> bool {
    let models = config::model_selection(None);
    models.is_ok_and(|models| models.default.is_some()) && api_key::is_configured().unwrap_or(false)
}

fn first_steps(is_set_up: bool) -> String {
    let set_up = if is_set_up {
        ""
    } else {
        "                         after: export DELTA_MODEL=gpt-4o DELTA_API_KEY=...\n"
    };
    format!(
        "delta runs AI agents the Unix way. Start with one of these:

  delta demo             run an example agent, without an API key
  delta init my-agent    create an agent of your own
  delta run \"TASK\"       let the built-in coding agent work in this directory
{set_up}
`delta doctor` checks this machine, `delta --help` lists all commands."
    )
}
