//! Generators, which write a file for the context, and tokenizers, which count.

use super::{ContextError, ContextInputs, ContextProgram, FILE_CLOCK_RESOLUTION, GENERATOR_MARK};
use delta_process::{self as process, ProcessCommand, ProcessEnd, ProcessResult};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// More tokens than any text has; sums do not overflow.
const MAX_TOKEN_COUNT: u64 = 1 << 40;

/// Runs a generator. The error is `None` when the run was interrupted.
pub(super) fn run_generator(
    generator: &ContextProgram,
    output: &Path,
    inputs: &ContextInputs<'_>,
) -> Result<(), Option<String>> {
    let cancel = inputs.cancel;
    let before = file_identity(output);
    // A rewrite within one tick of the file system's clock could not be detected.
    let age = fs::metadata(output)
        .and_then(|metadata| metadata.modified())
        .map(|modified| modified.elapsed());
    if let Ok(Ok(age)) = age
        && age < FILE_CLOCK_RESOLUTION
        && cancel.wait(FILE_CLOCK_RESOLUTION - age)
    {
        return Err(None);
    }
    let (program, finished) = run_context_program(generator, b"", inputs);
    let stderr = check_program_end(generator, "generator", &program, &finished)?;
    match before {
        Some(before) if file_identity(output) == Some(before) => Err(Some(format!(
            "the generator `{program}` did not write {}{stderr}",
            output.display()
        ))),
        _ => Ok(()),
    }
}

/// Counts the tokens of `text` with the tokenizer of context.yaml.
pub(super) fn count_tokens(
    tokenizer: &ContextProgram,
    text: &str,
    inputs: &ContextInputs<'_>,
) -> Result<u64, ContextError> {
    let (program, finished) = run_context_program(tokenizer, text.as_bytes(), inputs);
    check_program_end(tokenizer, "tokenizer", &program, &finished)
        .map_err(|failure| failure.map_or(ContextError::Cancelled, ContextError::Budget))?;
    let printed = String::from_utf8_lossy(&finished.stdout.head);
    let tokens = printed.trim().parse().ok().filter(|tokens| *tokens < MAX_TOKEN_COUNT);
    tokens.ok_or_else(|| {
        let output = delta_base::terminal_text::truncate_to_line(
            &delta_base::terminal_text::strip_terminal_controls(printed.trim()),
            100,
        );
        ContextError::Budget(format!(
            "the tokenizer `{program}` printed `{output}`; expected a number of tokens"
        ))
    })
}

fn run_context_program(
    generator: &ContextProgram,
    stdin: &[u8],
    inputs: &ContextInputs<'_>,
) -> (String, ProcessResult) {
    let argv: Vec<String> =
        generator.command.iter().map(|word| inputs.vars.expand_text(word)).collect();
    let launch = (inputs.launch)(generator);
    let run_dir = inputs.vars.run_dir.to_string_lossy();
    let timeout = Duration::from_millis(generator.timeout_ms);
    let command = ProcessCommand {
        stdin,
        marks: &[("RUN_DIR", &run_dir), GENERATOR_MARK],
        ..ProcessCommand::new(&argv, &launch, timeout, 4096)
    };
    let finished = process::run_process(&command, inputs.cancel);
    (argv.into_iter().next().unwrap_or_default(), finished)
}

/// The standard error of a command that succeeded, for messages; or how it failed, `None` when it
/// was interrupted.
fn check_program_end(
    generator: &ContextProgram,
    role: &str,
    program: &str,
    finished: &ProcessResult,
) -> Result<String, Option<String>> {
    let stderr = String::from_utf8_lossy(&finished.stderr.head).trim().to_owned();
    let stderr = if stderr.is_empty() { String::new() } else { format!(":\n{stderr}") };
    Err(Some(match &finished.end {
        ProcessEnd::Exited(0) => return Ok(stderr),
        ProcessEnd::Cancelled | ProcessEnd::OutOfTime | ProcessEnd::ForMessage => return Err(None),
        ProcessEnd::Exited(code) => {
            format!("the {role} `{program}` exited with code {code}{stderr}")
        }
        ProcessEnd::Killed(signal) => {
            let signal = process::signal_name(*signal);
            format!("the {role} `{program}` was killed by {signal}{stderr}")
        }
        ProcessEnd::TimedOut => {
            let millis = generator.timeout_ms;
            format!("the {role} `{program}` timed out after {millis} ms{stderr}")
        }
        ProcessEnd::NotStarted { reason, .. } => {
            format!("the {role} could not be started: {reason}")
        }
    }))
}

/// What changes when a file is written.
fn file_identity(path: &Path) -> Option<(u64, u64, i64, i64, i64, i64)> {
    let m = fs::metadata(path).ok()?;
    Some((m.ino(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
}
