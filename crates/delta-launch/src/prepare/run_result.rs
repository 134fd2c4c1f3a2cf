//! The result of a command that drives a run: one write to stdout, and the exit code.

use delta_engine::result_output::{self, OutputFormat};
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::event::RunStatus;
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
    if let Err(error) = &written {
        stdio::print_error_line(&format!("error: could not write the result to stdout: {error}"));
    }
    ExitCode::from(match result.status {
        RunStatus::Completed if written.is_ok() => 0,
        RunStatus::Completed | RunStatus::Failed | RunStatus::Running => 1,
        RunStatus::WaitingForInput => 101,
        RunStatus::Interrupted => 130,
    })
}
