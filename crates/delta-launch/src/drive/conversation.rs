//! The conversation at a terminal: asks for a text, drives the run with it, and asks for the next.

use crate::drive::continue_run::{self, ResumeOptions};
use crate::prepare::run_result;
use delta_base::terminal::keyboard::KeyModes;
use delta_operator::arguments::options::RunOptions;
use delta_operator::cancel;
use delta_operator::failure::{CommandFailure, status_exit_code};
use delta_operator::runs::own_run;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::run_input::{self, TextReply};
use delta_run::event::RunStatus;
use delta_run::run_result::RunResult;
use std::path::PathBuf;
use std::process::ExitCode;

/// What an empty line shows.
const TASK_PLACEHOLDER: &str = "a task for the agent; Enter alone leaves";
const NEXT_PLACEHOLDER: &str = "the next message; Enter alone leaves";

/// What the next text is for.
pub enum NextTurn<'a> {
    /// It is the task of a run that this creates.
    Begin(&'a dyn Fn(String) -> Result<RunResult, CommandFailure>),
    /// It is a message to a run.
    Continue(ContinuedRun),
}

/// A run that is continued with each text.
pub struct ContinuedRun {
    run: RunArgument,
    work_dir: PathBuf,
    /// How its last process ended.
    status: RunStatus,
}

impl ContinuedRun {
    fn from_result(result: &RunResult) -> Option<Self> {
        let run = RunArgument::parse_name(result.run_id.as_deref()?).ok()?;
        let work_dir = PathBuf::from(&result.metadata.workspace_path);
        Some(Self { run, work_dir, status: result.status })
    }

    fn from_journal(run: &LocatedRun) -> Result<Self, CommandFailure> {
        let status = own_run::fold_journal(&run.id, &run.dir)?.status;
        Ok(Self {
            run: RunArgument::Name(run.id.to_string()),
            work_dir: run.workspace.root.clone(),
            status: status.unwrap_or(RunStatus::Interrupted),
        })
    }

    fn send(&self, options: &RunOptions, text: String) -> Result<RunResult, CommandFailure> {
        let resume = ResumeOptions::in_conversation(&self.work_dir, options);
        continue_run::continue_with_text(&self.run, &resume, text)
    }
}

/// Asks for the next text after `continue` without a text has continued the run, or needs one; returns the exit code.
pub fn converse_after(
    result: Result<RunResult, CommandFailure>,
    run: &RunArgument,
    resume: &ResumeOptions,
) -> ExitCode {
    let options = &resume.options;
    let next = match &result {
        Ok(result) if asks_again(result, options) => ContinuedRun::from_result(result),
        Err(failure) if failure.is_message_required() => {
            // The first turn begins with a text.
            options.conversation.close();
            let located = run.find(&resume.work_dir);
            let next = located.and_then(|run| Ok((ContinuedRun::from_journal(&run)?, run.id)));
            return match next {
                Ok((next, id)) => {
                    options.print_notes(&[format!("run {id} is {}", next.status)]);
                    converse(options, NextTurn::Continue(next))
                }
                Err(failure) => failure.report(),
            };
        }
        _ => None,
    };
    let Some(next) = next else {
        options.conversation.close();
        return continue_run::print_continued_run(result, run, resume);
    };
    run_result::print_run_result(result, options, None);
    converse(options, NextTurn::Continue(next))
}

/// Whether the user is asked for the next text after a run that has ended so.
fn asks_again(result: &RunResult, options: &RunOptions) -> bool {
    result.status != RunStatus::WaitingForInput && options.conversation.is_open()
}

/// Asks for texts until the user leaves; returns the exit code of the last status.
pub fn converse(options: &RunOptions, mut next: NextTurn<'_>) -> ExitCode {
    let conversation = &options.conversation;
    let cancel = match cancel::install_cancel() {
        Ok(cancel) => cancel,
        Err(failure) => return failure.report(),
    };
    // Between a prompt and a run, too, nothing is echoed.
    let _modes = KeyModes::enter(true);
    let mut code = match &next {
        NextTurn::Begin(_) => 0,
        NextTurn::Continue(run) => status_exit_code(run.status),
    };
    loop {
        cancel.begin_again();
        let placeholder = match &next {
            NextTurn::Begin(_) => TASK_PLACEHOLDER,
            NextTurn::Continue(_) => NEXT_PLACEHOLDER,
        };
        let text = match run_input::ask_text(&conversation.line, placeholder, &cancel) {
            Ok(TextReply::Text(text)) => text,
            Ok(TextReply::Left) => break,
            Ok(TextReply::Interrupted) => {
                code = status_exit_code(RunStatus::Interrupted);
                break;
            }
            Err(error) => {
                let message = format!("could not read from the terminal: {error}");
                return CommandFailure::config(message, None).report();
            }
        };
        conversation.begin_turn();
        let result = match &next {
            NextTurn::Begin(begin) => begin(text.clone()),
            NextTurn::Continue(run) => run.send(options, text.clone()),
        };
        let is_over = match &result {
            Ok(result) => {
                code = status_exit_code(result.status);
                if let Some(run) = ContinuedRun::from_result(result) {
                    next = NextTurn::Continue(run);
                }
                !asks_again(result, options)
            }
            Err(failure) => {
                // The user sees why, and can send it again.
                conversation.line.put_back(&text);
                code = failure.exit_code();
                false
            }
        };
        if is_over {
            conversation.close();
        }
        run_result::print_run_result(result, options, None);
        if is_over {
            return ExitCode::from(code);
        }
    }
    conversation.close();
    run_result::print_unsent_text(options);
    ExitCode::from(code)
}
