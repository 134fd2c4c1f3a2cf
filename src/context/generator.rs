//! Generators: commands that write a file for the context; and tokenizers, which count.

use super::{ContextError, FILE_CLOCK, Generator, MARK, Surroundings};
use crate::process::{self, Command, End, Finished};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// No text has so many tokens; sums of fewer do not overflow.
const MOST_TOKENS: u64 = 1 << 40;

/// Runs a generator. `None` as the error means that the stop was asked for.
pub(super) fn generate(
    generator: &Generator,
    output: &Path,
    around: &Surroundings<'_>,
) -> Result<(), Option<String>> {
    let cancel = around.cancel;
    let before = identity(output);
    // A rewrite within the same tick of the file system's clock could not be told from no rewrite at all.
    let age = fs::metadata(output)
        .and_then(|metadata| metadata.modified())
        .map(|modified| modified.elapsed());
    if let Ok(Ok(age)) = age
        && age < FILE_CLOCK
        && cancel.wait(FILE_CLOCK - age)
    {
        return Err(None);
    }
    let (program, finished) = run(generator, b"", around);
    let said = failure(generator, "generator", &program, &finished)?;
    match before {
        Some(before) if identity(output) == Some(before) => Err(Some(format!(
            "the generator `{program}` left {} as it was, so that is not its answer{said}",
            output.display()
        ))),
        _ => Ok(()),
    }
}

/// Counts the tokens of a text with the tokenizer of context.yaml.
pub(super) fn count_tokens(
    tokenizer: &Generator,
    text: &str,
    around: &Surroundings<'_>,
) -> Result<u64, ContextError> {
    let (program, finished) = run(tokenizer, text.as_bytes(), around);
    failure(tokenizer, "tokenizer", &program, &finished)
        .map_err(|failure| failure.map_or(ContextError::Cancelled, ContextError::Budget))?;
    let printed = String::from_utf8_lossy(&finished.stdout.head);
    let tokens = printed.trim().parse().ok().filter(|tokens| *tokens < MOST_TOKENS);
    tokens.ok_or_else(|| {
        let shown = crate::text::one_line(&crate::text::printable(printed.trim()), 100);
        ContextError::Budget(format!(
            "the tokenizer `{program}` printed `{shown}`, which is no number of tokens"
        ))
    })
}

fn run(generator: &Generator, stdin: &[u8], around: &Surroundings<'_>) -> (String, Finished) {
    let argv: Vec<String> = generator.command.iter().map(|word| around.vars.fill(word)).collect();
    let launch = (around.launch)(generator);
    let run_dir = around.vars.run_dir.to_string_lossy();
    let command = Command {
        argv: &argv,
        launch: &launch,
        stdin,
        timeout: Duration::from_millis(generator.timeout_ms),
        spool: None,
        keep: 4096,
        keep_all: false,
        marks: &[("RUN_DIR", &run_dir), MARK],
    };
    let finished = process::run(&command, around.cancel);
    (argv.into_iter().next().unwrap_or_default(), finished)
}

/// What a command that did well said on stderr, for later; or how it failed, `None` when it was interrupted.
fn failure(
    generator: &Generator,
    what: &str,
    program: &str,
    finished: &Finished,
) -> Result<String, Option<String>> {
    let stderr = String::from_utf8_lossy(&finished.stderr.head).trim().to_owned();
    let said = if stderr.is_empty() { String::new() } else { format!(":\n{stderr}") };
    Err(Some(match &finished.end {
        End::Exited(0) => return Ok(said),
        End::Cancelled => return Err(None),
        End::Exited(code) => format!("the {what} `{program}` left with exit code {code}{said}"),
        End::Killed(signal) => {
            let signal = process::signal_name(*signal);
            format!("the {what} `{program}` was killed by {signal}{said}")
        }
        End::TimedOut => {
            let millis = generator.timeout_ms;
            format!("the {what} `{program}` was not done after {millis} ms{said}")
        }
        End::NotStarted { reason, .. } => format!("the {what} could not be started: {reason}"),
    }))
}

/// What changes when a file is written.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64, i64, i64)> {
    let of =
        |m: Metadata| (m.ino(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    fs::metadata(path).ok().map(of)
}
