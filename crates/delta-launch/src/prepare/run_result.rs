//! The result of a command that drives a run: one write to stdout, and the exit code.

use delta_engine::result_output::{self, OutputFormat};
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::{CommandFailure, status_exit_code};
use delta_operator::runs::run_input;
use delta_program::stdio;
use delta_run::run_result::RunResult;
use std::process::ExitCode;

/// Prints the result of a command, or its failure; returns the exit code.
pub fn print_run_result(
    result: Result<RunResult, CommandFailure>,
    options: &RunOptions,
    run_id: Option<String>,
) -> ExitCode {
    let format = options.format;
    let mut result = match result {
        Ok(result) => result,
        Err(failure) => {
            let code = failure.report();
            print_unsent_text(options);
            if matches!(format, OutputFormat::Json | OutputFormat::Jsonl) {
                let result = failure.into_run_result(run_id);
                stdio::print_json(&result_output::render_run_result(&result, format));
            }
            return code;
        }
    };
    result.prints_alone |= options.quiet;
    let text = result_output::render_run_result(&result, format);
    let written = match format {
        OutputFormat::Text | OutputFormat::Raw => stdio::print_result(&text),
        OutputFormat::Json | OutputFormat::Jsonl => stdio::print_json_result(&text),
    };
    if let Some(command) = &result.follow_up {
        stdio::print_error_line(&format!("\nsay more: {command}"));
    }
    print_unsent_text(options);
    let code = status_exit_code(result.status);
    match written {
        Ok(()) => ExitCode::from(code),
        Err(error) => {
            let text = format!("error: could not write the result to stdout: {error}");
            stdio::print_error_line(&text);
            ExitCode::from(code.max(1))
        }
    }
}

/// Prints what the user has typed and not sent, unless there is a next prompt for it.
pub fn print_unsent_text(options: &RunOptions) {
    if !options.conversation.is_open() {
        run_input::print_unsent(&options.conversation.line);
    }
}
