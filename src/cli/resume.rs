//! `delta continue`: takes up a run where its journal says that it stands.
//!
//! Everything here comes before the engine: finding the run, making sure that nobody else works on it, and giving the
//! message its meaning. The engine then drives it as it drives a new one.

use super::drive::{self, Options, Ready};
use super::failure::Failure;
use crate::durable::{self, Lock};
use crate::event::{EngineStart, Payload, RunStatus};
use crate::human;
use crate::id::RunId;
use crate::janitor::{self, Owner};
use crate::journal::{self, Contents, JournalError};
use crate::outcome::RunResult;
use crate::process;
use crate::run::{self, Notice, Run};
use crate::signal::Cancel;
use crate::state::RunState;
use crate::text::shell_word;
use crate::time;
use crate::workspace::{self, Workspace};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How often `--ensure` looks whether the process that works on the run has left it.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Continue a run
///
/// An INTERRUPTED run goes on where it stopped. A run that waits takes `-m` as the answer. A COMPLETED or FAILED one goes
/// on with `-m` as the next message. A run whose process has died is cleaned up first.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ContinueArgs {
    /// The run
    #[arg(long, value_name = "ID", value_parser = super::parse_run_id)]
    run_id: RunId,
    /// The workspace that holds it
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    work_dir: PathBuf,
    /// The next message, or the answer to the agent's question; `-` reads it from stdin
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// The agent directory, when it is not where it was
    #[arg(long, value_name = "DIR")]
    agent: Option<PathBuf>,
    /// Go on although the run was started on another host, whose process cannot be seen from here
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  delta continue --run-id ID -w ./work                    go on where it stopped
  delta continue --run-id ID -w ./work -m \"yes, proceed\"  answer, or say what is next
  delta continue --run-id ID -w ./work -m - < more.md     the message from a file";

/// Takes up a run and drives it.
pub fn resume(args: &ContinueArgs) -> ExitCode {
    drive::finish(perform(args), args.options.format, Some(args.run_id.to_string()))
}

fn perform(args: &ContinueArgs) -> Result<RunResult, Failure> {
    let message = args.message.as_deref().map(drive::message).transpose()?;
    let workspace = Workspace::existing(&args.work_dir)?;
    let dir = find(&args.run_id, &workspace)?;
    let lock = claim(&args.run_id, &dir)?;
    let contents = read_journal(&args.run_id, &dir)?;
    let state = RunState::of(&contents.events);
    mend(&dir, &state);
    let start = state
        .start
        .clone()
        .ok_or_else(|| Failure::damaged(format!("run {} never began", args.run_id), None))?;
    let orphaned = state.status == Some(RunStatus::Running);
    if orphaned {
        inspect(&args.run_id, &start, args.force)?;
    }
    let said = meaning(args, &state, &dir, message)?;
    let ready = load_agent(args, &start)?;
    let cancel = drive::cancel()?;
    let taken = Taken { id: args.run_id.clone(), dir, lock, contents, start, orphaned };
    take_up(taken, &workspace, &ready, &args.options, said, cancel)
}

/// For `run --ensure`: the result of a run that is there already, after waiting for whoever works on it, and after
/// continuing it when it needs no message for that. `None` when it never began.
pub fn ensure(
    id: &RunId,
    task: &str,
    workspace: &Workspace,
    ready: &Ready,
    options: &Options,
    cancel: &Cancel,
) -> Result<Option<RunResult>, Failure> {
    let Some(dir) = workspace.find_run(id)? else { return Ok(None) };
    let lock = loop {
        match Lock::take(&dir.join("lock"))? {
            Some(lock) => break lock,
            None if cancel.wait(LOCK_INTERVAL) => {
                return Err(Failure::interrupted(format!(
                    "interrupted while another process works on run {id}"
                )));
            }
            None => {}
        }
    };
    let contents = match journal::read(&dir) {
        Err(JournalError::NeverBegan(_)) => return Ok(None),
        _ => read_journal(id, &dir)?,
    };
    let state = RunState::of(&contents.events);
    mend(&dir, &state);
    let Some(start) = state.start.clone() else { return Ok(None) };
    let orphaned = state.status == Some(RunStatus::Running);
    if orphaned {
        inspect(id, &start, false)?;
    }
    let answer = state.question().and_then(|question| {
        let response = human::read_response(&dir).filter(|it| human::accepts(question, it))?;
        let (iteration, call_id) = (question.iteration, question.call_id.clone());
        Some(Payload::HumanInputReceived { iteration, call_id, response })
    });
    let needs_message = match state.status {
        Some(RunStatus::Completed | RunStatus::Failed) => true,
        Some(RunStatus::WaitingForInput) => answer.is_none() && !options.has_person(),
        Some(RunStatus::Running | RunStatus::Interrupted) | None => false,
    };
    if needs_message {
        return Ok(RunResult::of(&state));
    }
    let no_task = state.conversation.task().is_empty();
    let said =
        answer.or_else(|| no_task.then(|| Payload::UserMessage { content: task.to_owned() }));
    let taken = Taken { id: id.clone(), dir, lock, contents, start, orphaned };
    take_up(taken, workspace, ready, options, said, cancel.clone()).map(Some)
}

/// A run that nobody else works on.
struct Taken {
    id: RunId,
    dir: PathBuf,
    lock: Lock,
    contents: Contents,
    start: EngineStart,
    /// Its last process died.
    orphaned: bool,
}

fn take_up(
    taken: Taken,
    workspace: &Workspace,
    ready: &Ready,
    options: &Options,
    said: Option<Payload>,
    cancel: Cancel,
) -> Result<RunResult, Failure> {
    let Taken { id, dir, lock, contents, start, orphaned } = taken;
    workspace::ensure_parts(&dir)?;
    let observer = drive::observer(options, &dir, &RunState::of(&contents.events))?;
    let secrets = ready.secrets.clone();
    let (mut run, aside) = Run::open(id, &dir, lock, secrets, time::now, observer, &contents)?;
    if let Some(name) = aside {
        let text = format!(
            "the journal's last line was torn and never counted; it is set aside as {name}"
        );
        run.tell(Notice::Warning(&text));
    }
    let ended =
        process::end_marked(&[("RUN_DIR", &dir.to_string_lossy())], "DELTA_CALL_ID", &cancel);
    if ended > 0 {
        run.tell(Notice::Warning(&format!(
            "ended {ended} processes that an earlier call had left"
        )));
    }
    if orphaned {
        let pid = start.process.pid;
        let text = format!("[Janitor] Cleaned up orphaned run: Process {pid} no longer exists");
        run.tell(Notice::Warning(&text));
        let (run_id, final_iteration) = (run.id.to_string(), run.state().iterations);
        run.record(Payload::EngineEnd { run_id, status: RunStatus::Interrupted, final_iteration });
    }
    let next = ready.start(&run, workspace, start.epoch + 1, options);
    run.record(Payload::EngineStart(Box::new(next)));
    if let Some(said) = said {
        run.record(said);
    }
    run.commit()?;
    ready.drive(&mut run, workspace, options, cancel)
}

/// Mends the metadata. It says nothing that the journal does not, so a disk that refuses it is no reason to stop.
fn mend(dir: &Path, state: &RunState) {
    let _ = run::mend_metadata(dir, state);
}

/// The directory of a run.
///
/// # Errors
/// It is not there; the message names the workspaces below that hold it.
pub fn find(id: &RunId, workspace: &Workspace) -> Result<PathBuf, Failure> {
    if let Some(dir) = workspace.find_run(id)? {
        return Ok(dir);
    }
    let found = Workspace::holding(&workspace.root, id);
    let message = format!("there is no run {} in {}", id, workspace.root.display());
    let hint = match found.as_slice() {
        [] => "name its workspace with `-w DIR`; `delta list-runs -w DIR` shows the runs of one"
            .to_owned(),
        found => {
            let options: Vec<_> = found.iter().map(|dir| format!("-w {}", shown(dir))).collect();
            format!("it is here: {}", options.join("\n"))
        }
    };
    Err(Failure::no_run(message, hint))
}

fn shown(dir: &Path) -> String {
    shell_word(&dir.to_string_lossy())
}

/// Takes the lock; whoever holds it works on the run.
fn claim(id: &RunId, dir: &Path) -> Result<Lock, Failure> {
    let path = dir.join("lock");
    Lock::take(&path)?.ok_or_else(|| {
        let pid = durable::lock_holder(&path);
        still_active(id, &pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string()))
    })
}

fn still_active(id: &RunId, pid: &str) -> Failure {
    let message = format!(
        "Run {id} is still active (PID {pid}).\nCannot continue while original process is running."
    );
    Failure::active(message)
}

/// Reads the journal of a run; its faults in a person's words.
pub fn read_journal(id: &RunId, dir: &Path) -> Result<Contents, Failure> {
    journal::read(dir).map_err(|error| {
        let message = error.to_string();
        match error {
            JournalError::NeverBegan(_) => Failure::damaged(
                message,
                Some(format!("start it with `delta run --run-id {id}`, which takes it over")),
            ),
            JournalError::Damaged { hint, .. } => Failure::damaged(message, hint),
            JournalError::File(error) => error.into(),
            JournalError::Unreadable { .. } => Failure::config(message, None),
        }
    })
}

/// Makes sure that the process that took the run up last is gone.
fn inspect(id: &RunId, start: &EngineStart, force: bool) -> Result<(), Failure> {
    match janitor::inspect(&start.process) {
        Owner::Gone => Ok(()),
        Owner::Elsewhere if force => Ok(()),
        Owner::Alive => Err(still_active(id, &start.process.pid.to_string())),
        Owner::Elsewhere => Err(Failure::active(format!(
            "Run {} was started on host '{}'.\nCannot verify process status from host '{}'.\n\
             If you're certain the original process is dead, use --force.",
            id,
            start.process.hostname,
            janitor::hostname()
        ))),
    }
}

/// What the message means to a run in this state: an answer, the next message, or nothing.
fn meaning(
    args: &ContinueArgs,
    state: &RunState,
    dir: &Path,
    message: Option<String>,
) -> Result<Option<Payload>, Failure> {
    if let Some(question) = state.question() {
        let (iteration, call_id) = (question.iteration, question.call_id.clone());
        let answer = message.or_else(|| human::read_response(dir));
        return match answer {
            Some(answer) if !human::accepts(question, &answer) => Err(Failure::needs_message(
                format!(
                    "the question wants yes or no: {}",
                    crate::text::printable(&question.prompt)
                ),
                "answer y, yes, n or no; the run waits on",
            )),
            Some(response) => {
                Ok(Some(Payload::HumanInputReceived { iteration, call_id, response }))
            }
            // Whoever asked may have died, or failed, before the question could be shown: it is asked again.
            None if state.status != Some(RunStatus::WaitingForInput) => Ok(None),
            None if args.options.has_person() => Ok(None),
            None => Err(Failure::needs_message(
                format!("Run is WAITING_FOR_INPUT: {}", crate::text::printable(&question.prompt)),
                format!(
                    "answer with -m/--message, or write the answer to {}",
                    dir.join("interaction/response.txt").display()
                ),
            )),
        };
    }
    match (state.status, message) {
        (_, None) if state.conversation.task().is_empty() => Err(Failure::needs_message(
            format!("run {} has no task: its process died before it was recorded", args.run_id),
            "give it with -m/--message",
        )),
        (_, Some(content)) if content.is_empty() => Err(Failure::needs_message(
            "the message is empty",
            "write it after -m, or take -m away",
        )),
        (_, Some(content)) => Ok(Some(Payload::UserMessage { content })),
        (Some(status @ (RunStatus::Completed | RunStatus::Failed)), None) => {
            Err(Failure::needs_message(
                format!("Run is {status}. To continue, provide a message using -m/--message"),
                format!(
                    "delta continue --run-id {} -w {} -m \"Now do something else\"",
                    args.run_id,
                    shown(&args.work_dir)
                ),
            ))
        }
        (_, None) => Ok(None),
    }
}

fn load_agent(args: &ContinueArgs, start: &EngineStart) -> Result<Ready, Failure> {
    let home = args.agent.clone().unwrap_or_else(|| PathBuf::from(&start.agent_home));
    if !home.is_dir() && args.agent.is_none() {
        let message = format!("the agent is not in {} any more", home.display());
        return Err(Failure::config(
            message,
            Some("say where it is now with `--agent DIR`".to_owned()),
        ));
    }
    Ready::load(&home, &args.options)
}
