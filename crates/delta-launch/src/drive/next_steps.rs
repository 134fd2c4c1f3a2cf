//! What a command prints on stderr about a run that it leaves: how to answer it, to continue it, or to take its changes.

use delta_base::terminal;
use delta_operator::arguments::options::RunOptions;
use delta_operator::runs::agent_hint;
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::run_result::{ContinueCommand, RunResult, describe_waiting, open_request_hint};
use delta_run::state::stage::StageDir;
use delta_run::state::{HumanRequest, RunState};
use delta_run::workspace;
use std::path::Path;

fn print_continue_command(command: &ContinueCommand) {
    stdio::print_error_line(&format!("Continue with: {command}"));
}

/// Prints where the changes of a staged run are, and how to continue a run that has no result yet.
pub fn print_next_steps(
    options: &RunOptions,
    run_dir: &Path,
    state: &RunState,
    result: &RunResult,
) {
    if let Some(start) = &state.start
        && state.stage.is_some()
        && StageDir::new(run_dir).has_changes()
    {
        let id = &start.run_id;
        let workspace = workspace::quote_workspace(Path::new(&start.work_dir));
        options.print_notes(&[
            "The changes are staged. See them, apply them or discard them with:".to_owned(),
            format!("  delta diff {id} -w {workspace}"),
            format!("  delta apply {id} -w {workspace}"),
            format!("  delta discard {id} -w {workspace}"),
        ]);
    }
    let next = agent_hint::own_continue_command(state);
    if result.status != RunStatus::Completed
        && let Some(line) = describe_waiting(result.waiting_messages, state, &next)
    {
        options.print_notes(&[line]);
    }
    match (state.status, state.human_request()) {
        // The server asks.
        (Some(RunStatus::WaitingForInput), _) if options.served.is_some() => {}
        (Some(RunStatus::WaitingForInput), Some(HumanRequest::Approval(_))) => {
            let named = next.clone().naming_request(state);
            stdio::print_error_line("The agent is waiting for your approval:");
            stdio::print_error_line(&format!("  {}", named.to_reply("approve")));
            stdio::print_error_line(&format!("  {} -m REASON", named.to_reply("deny")));
            if terminal::can_prompt_person() {
                let command = next.asking_again();
                stdio::print_error_line(&format!("  {command}   # decide here, call by call"));
            }
        }
        (Some(RunStatus::WaitingForInput), _) => {
            print_answer_commands(&next.naming_request(state), run_dir, state);
        }
        (Some(RunStatus::Completed), _) if result.prints_alone => {
            stdio::print_error_line("");
        }
        (Some(RunStatus::Interrupted), _) if !options.quiet => {
            match open_request_hint(state, &next) {
                Some(hint) => stdio::print_error_line(&hint),
                None => print_continue_command(&next),
            }
        }
        (Some(RunStatus::Failed), _) if !options.quiet => {
            let agent = agent_hint::own_agent(state);
            print_continue_command(&ContinueCommand::for_failed_run(state).with_agent(agent));
        }
        _ => {}
    }
}

/// The command with which the person at the terminal continues a COMPLETED run; the run was updated last in its workspace.
pub fn follow_up_command(options: &RunOptions, state: &RunState) -> Option<String> {
    let is_last =
        options.takes_input() && options.inbox.is_none() && !options.conversation.is_open();
    let start = state.start.as_ref().filter(|_| is_last)?;
    if state.status != Some(RunStatus::Completed) {
        return None;
    }
    let next = agent_hint::own_continue_command(state);
    let is_here = std::env::current_dir().is_ok_and(|dir| dir == Path::new(&start.work_dir));
    let plain = format!(
        "delta continue --run-id {} -w {}",
        start.run_id,
        workspace::quote_workspace(Path::new(&start.work_dir))
    );
    let next = next.to_string();
    Some(if is_here && next == plain { "delta continue".to_owned() } else { next })
}

/// Prints how to answer the question of a run that waits.
fn print_answer_commands(next: &ContinueCommand, run_dir: &Path, state: &RunState) {
    if state.has_left_processes {
        stdio::print_error_line("The agent is waiting for your answer. Give it with:");
        stdio::print_error_line(&format!("  {next} -m ANSWER"));
        return;
    }
    let response = run_dir.join("interaction/response.txt");
    stdio::print_error_line("The agent is waiting for your answer. Give it in one of two ways:");
    stdio::print_error_line(&format!("  {next} -m ANSWER"));
    stdio::print_error_line(&format!("  write it to {}", response.display()));
    stdio::print_error_line(&format!("    and then: {next}"));
}
