//! `delta approve`, `delta deny` and `delta answer`: continue a run that waits, with what it waits for.

use super::completion_candidates;
use super::continue_run::{self, ResumeOptions};
use super::failure::CommandFailure;
use super::message_input;
use super::run_argument::RunArgument;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use delta_base::id::RunId;
use delta_run::state::{HumanRequest, RunState};
use std::process::ExitCode;

/// Approve the call that a run waits for, and continue the run
///
/// The same as `delta continue RUN -m yes`, but only for a run that waits for an approval. Only this call is approved: a
/// further one that needs an approval makes the run wait again.
#[derive(Debug, Args)]
#[command(after_long_help = APPROVE_EXAMPLES)]
pub struct ApproveArgs {
    /// Run: its id, a unique beginning or end of it, the path of its directory, or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(completion_candidates::run_candidates))]
    run: RunArgument,
    #[command(flatten)]
    resume: ResumeOptions,
}

const APPROVE_EXAMPLES: &str = "\
Examples:
  delta approve                                # the run of this workspace that was updated last
  delta approve RUN -w ./work
  delta approve RUN -i                         # decide about further calls at this terminal";

/// Deny the call that a run waits for, and continue the run
///
/// The same as `delta continue RUN -m \"no: REASON\"`, but only for a run that waits for an approval. The LLM gets the
/// reason, and the run continues without the call.
#[derive(Debug, Args)]
#[command(after_long_help = DENY_EXAMPLES)]
pub struct DenyArgs {
    /// Run: its id, a unique beginning or end of it, the path of its directory, or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(completion_candidates::run_candidates))]
    run: RunArgument,
    /// Reason for the LLM; `-` reads it from stdin
    #[arg(short, long, value_name = "REASON")]
    message: Option<String>,
    #[command(flatten)]
    resume: ResumeOptions,
}

const DENY_EXAMPLES: &str = "\
Examples:
  delta deny RUN -w ./work
  delta deny RUN -w ./work -m \"work on a branch, not on main\"";

/// Answer what a run waits for, and continue the run
///
/// The same as `delta continue RUN -m TEXT`, but only for a run that waits.
#[derive(Debug, Args)]
#[command(after_long_help = ANSWER_EXAMPLES)]
pub struct AnswerArgs {
    /// Run: its id, a unique beginning or end of it, the path of its directory, or `last`
    #[arg(value_name = "RUN", value_parser = RunArgument::parse, add = ArgValueCandidates::new(completion_candidates::run_candidates))]
    run: RunArgument,
    /// Answer to the question, or `yes`, `no` or `no: REASON` for an approval; `-` reads it from stdin
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
    #[command(flatten)]
    resume: ResumeOptions,
}

const ANSWER_EXAMPLES: &str = "\
Examples:
  delta answer last \"the blue one\"
  delta answer RUN -w ./work yes
  delta answer RUN - < answer.txt";

/// Approves a call; returns the exit code.
pub fn approve_command(args: &ApproveArgs) -> ExitCode {
    continue_run::continue_with(&args.run, &args.resume, |id, state| {
        require_approval(id, state)?;
        Ok(Some("yes".to_owned()))
    })
}

/// Denies a call; returns the exit code.
pub fn deny_command(args: &DenyArgs) -> ExitCode {
    let reason = args.message.as_deref().map(message_input::read_message).transpose();
    continue_run::continue_with(&args.run, &args.resume, |id, state| {
        require_approval(id, state)?;
        Ok(Some(reason?.map_or_else(|| "no".to_owned(), |reason| format!("no: {reason}"))))
    })
}

/// Answers a question or an approval; returns the exit code.
pub fn answer_command(args: &AnswerArgs) -> ExitCode {
    let text = message_input::read_message(&args.text);
    continue_run::continue_with(&args.run, &args.resume, |id, state| {
        if state.human_request().is_none() {
            let message = format!("run {id} does not wait for an answer");
            let hint = "`delta continue` with `-m` sends the next message";
            return Err(CommandFailure::nothing_found(message, hint));
        }
        text.map(Some)
    })
}

/// Refuses a run that waits for nothing or for the answer to a question: `yes` would be a message to the LLM.
fn require_approval(id: &RunId, state: &RunState) -> Result<(), CommandFailure> {
    let hint = match state.human_request() {
        Some(HumanRequest::Approval(_)) => return Ok(()),
        Some(HumanRequest::Question(_)) => "it waits for the answer to a question: `delta answer`",
        None => "`delta show` shows where it is; `delta inbox` lists what waits",
    };
    let message = format!("run {id} does not wait for an approval");
    Err(CommandFailure::nothing_found(message, hint))
}
