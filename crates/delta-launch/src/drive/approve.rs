//! `delta approve`, `delta deny` and `delta answer`: continue a run that waits, with what it waits for.

use crate::drive::continue_run::{self, ResumeOptions, answered_hint};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use delta_base::id::RunId;
use delta_operator::arguments::message;
use delta_operator::arguments::options::{CONTINUE_OPTIONS, show_only};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::RunArgument;
use delta_operator::runs::{agent_hint, run_list};
use delta_run::state::{HumanRequest, RunState};
use std::process::ExitCode;

/// Approve the call that a run waits for, and continue the run
///
/// As `delta continue RUN -m yes`, for this call only. `--request-id` makes sure that no other call is approved.
#[derive(Debug, Args)]
#[command(mut_args = show_only(&["run", "work_dir", "request_id"]), after_help = CONTINUE_OPTIONS, after_long_help = format!("{CONTINUE_OPTIONS}\n\n{APPROVE_EXAMPLES}"))]
pub struct ApproveArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    #[command(flatten)]
    resume: ResumeOptions,
}

const APPROVE_EXAMPLES: &str = "\
Examples:
  delta approve                             # the last run here
  delta approve RUN --request-id 1f0c5a2e   # this call and no other
  delta approve RUN --no-interactive        # the next question waits again";

/// Deny the call that a run waits for, and continue the run
///
/// As `delta continue RUN -m "no: REASON"`: the LLM gets the reason.
#[derive(Debug, Args)]
#[command(mut_args = show_only(&["run", "reason", "message", "work_dir", "request_id"]), after_help = CONTINUE_OPTIONS, after_long_help = format!("{CONTINUE_OPTIONS}\n\n{DENY_EXAMPLES}"))]
pub struct DenyArgs {
    /// Run: id, unique prefix or suffix, directory or `last` [default: last]
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(run_list::run_candidates))]
    run: Option<String>,
    /// Reason for the LLM; `-` reads it from stdin
    #[arg(value_name = "REASON")]
    reason: Option<String>,
    /// Reason, as an option
    #[arg(short, long, value_name = "REASON", conflicts_with = "reason")]
    message: Option<String>,
    #[command(flatten)]
    resume: ResumeOptions,
}

const DENY_EXAMPLES: &str = "\
Examples:
  delta deny RUN -w ./work
  delta deny \"work on a branch, not on main\"   # the last run here";

/// Answer what a run waits for, and continue the run
///
/// The same as `delta continue RUN -m TEXT`, but only for a run that waits.
#[derive(Debug, Args)]
#[command(mut_args = show_only(&["run_or_text", "text", "message", "work_dir", "request_id"]), after_help = CONTINUE_OPTIONS, after_long_help = format!("{CONTINUE_OPTIONS}\n\n{ANSWER_EXAMPLES}"), override_usage = "delta answer [OPTIONS] [RUN] <TEXT>")]
pub struct AnswerArgs {
    /// Run: id, unique prefix or suffix, directory or `last` [default: last]
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(run_list::run_candidates))]
    run_or_text: Option<String>,
    /// Answer to the question, or `yes`, `no` or `no: REASON` for an approval; `-` reads it from stdin
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<String>,
    /// Answer, as an option
    #[arg(short, long, value_name = "TEXT", conflicts_with = "text", allow_hyphen_values = true)]
    message: Option<String>,
    #[command(flatten)]
    resume: ResumeOptions,
}

const ANSWER_EXAMPLES: &str = "\
Examples:
  delta answer \"the blue one\"         # the last run here
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
    let reason = args.reason.as_deref().or(args.message.as_deref());
    let (run, reason) = match RunArgument::split_optional_text(args.run.as_deref(), reason) {
        Ok(parts) => parts,
        Err(failure) => return failure.report(),
    };
    let reason = reason.map(message::read_message).transpose();
    continue_run::continue_with(&run, &args.resume, |id, state| {
        require_approval(id, state)?;
        Ok(Some(reason?.map_or_else(|| "no".to_owned(), |reason| format!("no: {reason}"))))
    })
}

/// Answers a question or an approval; returns the exit code.
pub fn answer_command(args: &AnswerArgs) -> ExitCode {
    let first = args.run_or_text.as_deref();
    let text = args.text.as_deref();
    let work_dir = &args.resume.work_dir;
    let parts = match &args.message {
        Some(text) => RunArgument::split_optional_text(first, Some(text))
            .map(|(run, text)| (run, text.unwrap_or_default().to_owned())),
        None => RunArgument::split_text(first, text, work_dir, "answer", "answer"),
    };
    let (run, text) = match parts {
        Ok(parts) => parts,
        Err(failure) => return failure.report(),
    };
    let text = message::read_message(&text);
    continue_run::continue_with(&run, &args.resume, |id, state| {
        if state.human_request().is_none() {
            let message = format!("run {id} does not wait for an answer");
            let hint = if state.has_unused_answer() {
                answered_hint(state)
            } else {
                let next = agent_hint::own_continue_command(state).with_message("TEXT");
                format!("to send the next message: {next}")
            };
            return Err(CommandFailure::nothing_found(message, hint));
        }
        text.map(Some)
    })
}

/// Refuses a run that waits for nothing or for the answer to a question: `yes` would be a message to the LLM.
fn require_approval(id: &RunId, state: &RunState) -> Result<(), CommandFailure> {
    let next = agent_hint::own_continue_command(state);
    let hint = match state.human_request() {
        Some(HumanRequest::Approval(_)) => return Ok(()),
        Some(HumanRequest::Question(_)) => {
            format!("it waits for an answer: {} TEXT", next.to_reply("continue"))
        }
        None if state.has_unused_answer() => answered_hint(state),
        None => format!(
            "`{}` shows its status; `delta inbox` lists the runs that wait",
            next.to_reader("show")
        ),
    };
    Err(CommandFailure::nothing_found(format!("run {id} does not wait for an approval"), hint))
}
