//! `delta stop`: makes the processes that work on runs leave them, as SIGINT does, and waits until they have.

use crate::drive::continue_run;
use clap::Args;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::strip_terminal_controls;
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::own_run;
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::runs::run_arguments::RunArguments;
use delta_program::number_argument::parse_time_in;
use delta_program::stdio;
use delta_run::event::{EngineStart, RunStatus};
use delta_run::ownership::Ownership;
use delta_run::ownership::claim::OwnershipError;
use delta_run::ownership::owner_process::{self, OwnerStatus};
use delta_run::ownership::run_process::{self, ProcessWait, RunProcess};
use delta_run::record::surviving_call::{self, SurvivingCall, UnreachableHolder};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The exit code if a process did not exit in time, as of timeout(1).
const EXIT_TIMEOUT: u8 = 124;
/// The time between two looks at a run whose process is just starting or ending.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stop the processes that work on runs
///
/// Interrupts each process as Ctrl-C does, waits until it exits, and prints the run with its status. Ends commands that a dead
/// process left running. A second `delta stop` only waits.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct StopArgs {
    #[command(flatten)]
    runs: RunArguments,
    /// Wait at most this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time_in(0..=u64::MAX))]
    timeout: u64,
    /// Do not end commands of tools with `survive: true`; `delta continue` reads their results
    #[arg(long)]
    keep_tools: bool,
    /// Signal the process again, which ends it at once
    #[arg(long)]
    force: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta stop -w ./work
  delta stop RUN1 RUN2 -w ./work --timeout 1m
  delta stop -r ~/agents      # all runs that a process works on

Exit codes: 0 no process works on the runs, 1 a run cannot be stopped from here, or its process had died and left no command running, 2 usage error, 124 a process did not exit in time, 130 interrupted";

/// Stops runs; returns the exit code.
pub fn stop_command(args: &StopArgs) -> ExitCode {
    match stop_runs(args) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn stop_runs(args: &StopArgs) -> Result<ExitCode, CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let timeout = Duration::from_millis(args.timeout);
    let deadline = Instant::now().checked_add(timeout);
    // A time that no clock reaches is as good as a day.
    let deadline = deadline.unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400));
    let mut stopping = Vec::new();
    for name in args.runs.select(|run| run.active || run.calls_at_work > 0)? {
        let run = name.find(&args.runs.work_dir)?;
        let mut run = StoppingRun { run, process: None, tools: Vec::new() };
        if args.keep_tools {
            surviving_call::request_keep(&run.run.dir)?;
        }
        run.interrupt(args.force, deadline, &cancel)?;
        if run.process.is_none() {
            // Now, so that all commands have the same time to end.
            run.tools = ToolAtWork::find_all(&run.run.dir, !args.keep_tools);
        }
        stopping.push(run);
    }
    let mut code = ExitCode::SUCCESS;
    let mut has_timed_out = false;
    for run in &mut stopping {
        match run.wait(deadline, &cancel) {
            ProcessWait::Ended => {
                let end = if args.keep_tools {
                    surviving_call::forget_keep(&run.run.dir);
                    ToolsEnd::Kept
                } else {
                    run.end_tools(deadline, &cancel)?
                };
                if !run.report_end(end, &cancel)? || end == ToolsEnd::Unreachable {
                    code = ExitCode::FAILURE;
                }
                has_timed_out |= end == ToolsEnd::TimedOut;
            }
            ProcessWait::TimedOut => {
                has_timed_out = true;
                stdio::print_error_line(&run.describe_timeout(args.force));
            }
            ProcessWait::Cancelled => return Err(CommandFailure::interrupted("interrupted")),
        }
    }
    Ok(if has_timed_out { ExitCode::from(EXIT_TIMEOUT) } else { code })
}

/// A run whose process was interrupted, if it had one.
struct StoppingRun {
    run: LocatedRun,
    process: Option<RunProcess>,
    /// The tools that were at work without a process of the run.
    tools: Vec<ToolAtWork>,
}

/// A tool that outlives the process of its run.
struct ToolAtWork {
    call: SurvivingCall,
    /// Its name, and the process that holds its command, if that is visible.
    text: String,
    /// An error if it should end and cannot be reached from here.
    stopped: Result<(), UnreachableHolder>,
}

impl ToolAtWork {
    /// The tools of the run in `run_dir` that are at work, which are asked to end if `stops`.
    fn find_all(run_dir: &Path, stops: bool) -> Vec<Self> {
        let calls = SurvivingCall::all_at_work(run_dir).into_iter();
        let tools = calls.map(|call| {
            let name = call.command().map_or_else(|_| "a tool".to_owned(), |command| command.tool);
            let process = call.holder().map(|pid| format!(" (process {pid})")).unwrap_or_default();
            let text = strip_terminal_controls(&format!("{name}{process}"));
            let stopped = if stops { call.stop() } else { Ok(()) };
            Self { call, text, stopped }
        });
        tools.collect()
    }
}

/// What became of the tools that were at work without a process of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolsEnd {
    /// They have ended.
    Ended,
    /// They stay at work.
    Kept,
    /// One has not ended in time.
    TimedOut,
    /// One cannot be ended from here.
    Unreachable,
}

impl StoppingRun {
    /// Interrupts the process that works on the run. A process that has only claimed the run is given time to begin.
    fn interrupt(
        &mut self,
        is_forced: bool,
        deadline: Instant,
        cancel: &CancelToken,
    ) -> Result<(), CommandFailure> {
        loop {
            let state = own_run::fold_journal(&self.run.id, &self.run.dir)?;
            own_run::check_is_here(&self.run.id, &self.run.dir, &state)?;
            let is_running = state.status == Some(RunStatus::Running);
            if let Some(start) = state.start.filter(|_| is_running) {
                self.open_process(&start)?;
            }
            if let Some(process) = &self.process {
                let sent = process.interrupt(is_forced);
                return sent.map_err(|error| self.signal_failure(process, &error));
            }
            // Without a process in its journal, only the lock shows whether one works on the run.
            match Ownership::probe(&self.run.id, &self.run.dir) {
                Err(OwnershipError::Active { .. }) => {}
                probed => return Ok(probed?),
            }
            if Instant::now() >= deadline || cancel.wait(POLL_INTERVAL) {
                return Ok(());
            }
        }
    }

    fn open_process(&mut self, start: &EngineStart) -> Result<(), CommandFailure> {
        let LocatedRun { id, dir, .. } = &self.run;
        if owner_process::owner_status(&start.process) == OwnerStatus::OnOtherHost
            && !Ownership::has_died(id, dir, start)
        {
            let host = strip_terminal_controls(&start.process.hostname);
            let message = format!("the process of run {id} is on host '{host}'");
            let hint = format!("stop it there: `delta stop {id} -w DIR`");
            return Err(CommandFailure::run_active(message, hint));
        }
        self.process = RunProcess::open(&start.process, dir).map_err(|error| {
            CommandFailure::config(
                format!("could not open process {}: {error}", start.process.pid),
                None,
            )
        })?;
        Ok(())
    }

    fn signal_failure(&self, process: &RunProcess, error: &std::io::Error) -> CommandFailure {
        let message =
            format!("could not interrupt process {} of run {}: {error}", process.pid, self.run.id);
        CommandFailure::config(message, None)
    }

    /// Waits until the process has ended and its lock is free.
    fn wait(&self, deadline: Instant, cancel: &CancelToken) -> ProcessWait {
        if let Some(process) = &self.process {
            let wait = process.wait(deadline, cancel);
            if wait != ProcessWait::Ended {
                return wait;
            }
        }
        // The lock of a dead process can be held a moment longer, by a child that it was about to start.
        loop {
            let probed = Ownership::probe(&self.run.id, &self.run.dir);
            if !matches!(probed, Err(OwnershipError::Active { .. })) {
                return ProcessWait::Ended;
            }
            if Instant::now() >= deadline {
                return ProcessWait::TimedOut;
            }
            if cancel.wait(POLL_INTERVAL) {
                return ProcessWait::Cancelled;
            }
        }
    }

    /// Prints the run and its status. Returns whether what worked on it has stopped as requested; if its process died, ends
    /// what it has left running.
    fn report_end(&self, end: ToolsEnd, cancel: &CancelToken) -> Result<bool, CommandFailure> {
        let LocatedRun { id, dir, .. } = &self.run;
        let state = own_run::fold_journal(id, dir)?;
        if let Some(start) = &state.start {
            run_process::remove_stop_request(&start.process, dir);
        }
        let status =
            state.status.map_or_else(|| "not started".to_owned(), |status| status.to_string());
        if state.status != Some(RunStatus::Running) {
            stdio::print_text(&format!("{id}  {status}\n"));
            self.print_tools_note(end);
            return Ok(true);
        }
        // What an engine that is alive has started is not left over, whatever became of its lock file.
        if let Some(start) = &state.start
            && owner_process::owner_status(&start.process) == OwnerStatus::Alive
        {
            let pid = start.process.pid;
            stdio::print_text(&format!("{id}  {status}\n"));
            stdio::print_error_line(&format!(
                "error: run {id} is RUNNING: process {pid} is alive, but the lock file of the run does not name it: the \
                 file was removed or replaced\n\
                 help: if that process works on the run, `kill -INT {pid}` stops it"
            ));
            return Ok(false);
        }
        // A process that has claimed the run in the meantime takes care of it.
        if let Ok(_ownership) = Ownership::claim(id, dir)
            && let Some(text) = continue_run::end_left_processes(id, dir, cancel)
        {
            stdio::print_error_line(&format!("Note: {text}"));
        }
        let command = format!("delta continue {id} -w {}", self.run.quoted_workspace());
        let tools = self.tools.iter().map(|tool| tool.text.as_str()).collect::<Vec<_>>().join(", ");
        let tools = match end {
            ToolsEnd::Ended if !tools.is_empty() => format!("ended {tools}"),
            ToolsEnd::Kept if !tools.is_empty() => format!("left at work: {tools}"),
            _ => {
                stdio::print_text(&format!("{id}  {status}\n"));
                stdio::print_error_line(&format!(
                    "error: run {id} is RUNNING: its process died without leaving it\n\
                     help: continue it with `{command}`"
                ));
                return Ok(false);
            }
        };
        stdio::print_text(&format!("{id}  {status} (died); {tools}\n"));
        stdio::print_error_line(&format!("Continue it with: {command}"));
        Ok(true)
    }

    /// Names the tools that were ended although no process of the run had died.
    fn print_tools_note(&self, end: ToolsEnd) {
        if end == ToolsEnd::Ended {
            for tool in &self.tools {
                let text =
                    format!("Note: ended {}, which was at work without an engine", tool.text);
                stdio::print_error_line(&text);
            }
        }
    }

    /// Ends the commands that outlive the process of the run.
    fn end_tools(
        &mut self,
        deadline: Instant,
        cancel: &CancelToken,
    ) -> Result<ToolsEnd, CommandFailure> {
        if self.tools.is_empty() {
            self.tools = ToolAtWork::find_all(&self.run.dir, true);
        }
        for tool in &self.tools {
            if let Err(unreachable) = tool.stopped {
                let LocatedRun { id, .. } = &self.run;
                stdio::print_error_line(&format!(
                    "error: could not end {} of run {id}: {unreachable}\n\
                     help: run `delta stop {id} -w DIR` there",
                    tool.text
                ));
                return Ok(ToolsEnd::Unreachable);
            }
        }
        for tool in &self.tools {
            while tool.call.is_at_work() {
                if Instant::now() >= deadline {
                    stdio::print_error_line(&format!(
                        "error: {} of run {} has not ended in time\nhelp: wait longer with --timeout",
                        tool.text, self.run.id
                    ));
                    return Ok(ToolsEnd::TimedOut);
                }
                if cancel.wait(POLL_INTERVAL) {
                    return Err(CommandFailure::interrupted("interrupted"));
                }
            }
        }
        Ok(ToolsEnd::Ended)
    }

    fn describe_timeout(&self, is_forced: bool) -> String {
        let id = &self.run.id;
        let process = self.process.as_ref();
        let process = process
            .map_or_else(|| "a process".to_owned(), |process| format!("process {}", process.pid));
        let hint = match &self.process {
            Some(process) if is_forced => format!(
                "wait longer with --timeout; `kill -CONT {pid}` wakes a process that was stopped, and `kill -KILL {pid}` ends \
                 it; `delta continue` cleans up",
                pid = process.pid
            ),
            None if is_forced => "wait longer with --timeout".to_owned(),
            _ => "wait longer with --timeout, or end the process at once with --force; `delta continue` cleans up".to_owned(),
        };
        format!("error: {process} has not left run {id} in time\nhelp: {hint}")
    }
}
