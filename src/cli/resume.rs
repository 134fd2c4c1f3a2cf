//! `delta continue`: takes up a run where its journal says that it stands.
//!
//! Everything here comes before the engine: finding the run, making sure that nobody else works on it, and giving the
//! message its meaning. The engine then drives it as it drives a new one.

use super::completions;
use super::drive::{self, Options, Ready};
use super::failure::Failure;
use super::named::{Found, Named};
use crate::agent::Agent;
use crate::event::{EngineStart, Payload, Question, RunStatus};
use crate::human;
use crate::id::RunId;
use crate::journal::{self, Contents, Folded, JournalError};
use crate::outcome::{GoOn, RunResult};
use crate::ownership::{Ownership, OwnershipError};
use crate::process;
use crate::run::{self, Notice, Observer, Run};
use crate::signal::Cancel;
use crate::state::RunState;
use crate::text::{Secrets, one_line, printable, shell_word};
use crate::time;
use crate::workspace::{self, Workspace};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Continue a run
///
/// An INTERRUPTED run goes on where it stopped. A run that waits takes `-m` as the answer. A COMPLETED or FAILED one goes
/// on with `-m` as the next message. A run whose process has died is cleaned up first.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ContinueArgs {
    /// The run: its id, or the path of its directory
    #[arg(value_name = "RUN", required_unless_present = "run_id", value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    run: Option<Named>,
    /// The run, as an option
    #[arg(long, value_name = "ID", conflicts_with = "run", value_parser = Named::parse_id, add = ArgValueCandidates::new(completions::runs))]
    run_id: Option<Named>,
    /// The workspace that holds it
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// The next message, or the answer to the agent's question; `-` reads it from stdin
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// The agent directory, when it is not where it was
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completions::Agents))]
    agent: Option<PathBuf>,
    /// Go on although the run was started on another host, whose process cannot be seen from here
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    options: Options,
}

impl ContinueArgs {
    fn run(&self) -> &Named {
        self.run.as_ref().or(self.run_id.as_ref()).expect("the parser wants one of them")
    }
}

const EXAMPLES: &str = "\
Examples:
  delta continue RUN -w ./work                    go on where it stopped
  delta continue RUN -w ./work -m \"yes, proceed\"  answer, or say what is next
  delta continue RUN -w ./work -m - < more.md     the message from a file";

/// Takes up a run and drives it.
pub fn resume(args: &ContinueArgs) -> ExitCode {
    drive::finish(perform(args), args.options.format, args.run().id().map(ToString::to_string))
}

fn perform(args: &ContinueArgs) -> Result<RunResult, Failure> {
    let message = args.message.as_deref().map(drive::message).transpose()?;
    let found = args.run().find(&args.work_dir)?;
    go_on(args, message, &found).map_err(|failure| failure.of_run(&found.id))
}

fn go_on(
    args: &ContinueArgs,
    message: Option<String>,
    found: &Found,
) -> Result<RunResult, Failure> {
    let workspace = &found.workspace;
    let held = Held::claim(&found.id, workspace, args.force)?;
    let said =
        held.meaning(message, &args.options, &found.called).map_err(Missing::into_failure)?;
    let agent = load_agent(args.agent.as_deref(), &held.start, &args.options)?;
    let ready = Ready::new(agent, Some(&workspace.root), &args.options)?;
    held.take_up(workspace, &ready, &args.options, said, drive::cancel()?)
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
    let Some(ownership) = Ownership::await_claim(id, &dir, cancel)? else {
        let message = format!("interrupted while another process works on run {id}");
        return Err(Failure::interrupted(message));
    };
    let folded = match journal::fold(&dir) {
        Err(JournalError::NeverBegan(_)) => return Ok(None),
        folded => folded.map_err(|error| unreadable(id, error))?,
    };
    let held = Held::new(id, dir, ownership, folded, false)?;
    let own = held.state().conversation.task();
    if !own.is_empty() && own != ready.secrets.hide(task) {
        let own = one_line(&printable(own), 60);
        options.note(&[format!("Note: run {id} is there with another task, which stays: {own}")]);
    }
    let task = own.is_empty().then(|| task.to_owned());
    match held.meaning(task, options, &workspace.root) {
        Ok(said) => held.take_up(workspace, ready, options, said, cancel.clone()).map(Some),
        Err(_) => Ok(RunResult::of(held.state())),
    }
}

/// A run that is ours, as its journal says that it stands.
pub struct Held {
    id: RunId,
    /// Where it lies.
    pub dir: PathBuf,
    ownership: Ownership,
    folded: Folded,
    /// Of its last process.
    pub start: EngineStart,
    /// Its last process died.
    orphaned: bool,
}

/// What a run that does not go on by itself waits for.
pub struct Missing {
    message: String,
    /// What to do.
    hint: String,
}

impl Missing {
    /// Why the command cannot do its work.
    pub fn into_failure(self) -> Failure {
        Failure::needs_message(self.message, self.hint)
    }
}

impl Held {
    /// The run `id` in `workspace`, which becomes ours.
    pub fn claim(id: &RunId, workspace: &Workspace, force: bool) -> Result<Self, Failure> {
        let dir = find(id, workspace)?;
        let ownership = Ownership::inherit(id, &dir).map_err(|error| taken(error, id, &dir))?;
        let folded = fold_journal(id, &dir)?;
        Self::new(id, dir, ownership, folded, force)
    }

    /// Makes the run ours: its last process has left it, or is dead.
    pub fn new(
        id: &RunId,
        dir: PathBuf,
        mut ownership: Ownership,
        folded: Folded,
        force: bool,
    ) -> Result<Self, Failure> {
        let state = &folded.state;
        // It says nothing that the journal does not, so a disk that refuses it is no reason to stop.
        let _ = run::mend_metadata(&dir, state);
        let start = state
            .start
            .clone()
            .ok_or_else(|| Failure::damaged(format!("run {id} never began"), None))?;
        let orphaned = state.status == Some(RunStatus::Running);
        ownership.succeed(&start, !orphaned, force).map_err(|error| taken(error, id, &dir))?;
        Ok(Self { id: id.clone(), dir, ownership, folded, start, orphaned })
    }

    /// What its events mean.
    pub fn state(&self) -> &RunState {
        &self.folded.state
    }

    /// What a message, or none, means to the run: an answer, the next message, or nothing. `work_dir` is how
    /// the person calls its workspace.
    pub fn meaning(
        &self,
        message: Option<String>,
        options: &Options,
        work_dir: &Path,
    ) -> Result<Option<Payload>, Missing> {
        if let Some(question) = self.state().question() {
            return self.answer(question, message, options.has_person());
        }
        match (self.state().status, message) {
            (_, None) if self.state().conversation.task().is_empty() => Err(Missing {
                message: format!(
                    "run {} has no task: its process died before it was recorded",
                    self.id
                ),
                hint: "give it with -m/--message".to_owned(),
            }),
            (_, Some(content)) if content.is_empty() => Err(Missing {
                message: "the message is empty".to_owned(),
                hint: "write it after -m, or take -m away".to_owned(),
            }),
            (_, Some(content)) => Ok(Some(Payload::UserMessage { content })),
            (Some(status @ (RunStatus::Completed | RunStatus::Failed)), None) => Err(Missing {
                message: format!(
                    "Run is {status}. To continue, provide a message using -m/--message"
                ),
                hint: {
                    let again = status == RunStatus::Failed;
                    let words = if again { "Try again" } else { "Now do something else" };
                    let next = GoOn::of(self.state()).at(work_dir).asking(options.model.as_ref());
                    next.saying(words).to_string()
                },
            }),
            (_, None) => Ok(None),
        }
    }

    fn answer(
        &self,
        question: &Question,
        message: Option<String>,
        asked: bool,
    ) -> Result<Option<Payload>, Missing> {
        let prompt = printable(&question.prompt);
        let (iteration, call_id) = (question.iteration, question.call_id.clone());
        match message.or_else(|| human::read_response(&self.dir)) {
            Some(answer) if !human::accepts(question, &answer) => Err(Missing {
                message: format!("the question wants yes or no: {prompt}"),
                hint: "answer y, yes, n or no; the run waits on".to_owned(),
            }),
            Some(response) => {
                Ok(Some(Payload::HumanInputReceived { iteration, call_id, response }))
            }
            // Whoever asked may have died, or failed, before the question could be shown: it is asked again.
            None if asked || self.state().status != Some(RunStatus::WaitingForInput) => Ok(None),
            None => Err(Missing {
                message: format!("Run is WAITING_FOR_INPUT: {prompt}"),
                hint: format!(
                    "answer with -m/--message, or write the answer to {}",
                    self.dir.join("interaction/response.txt").display()
                ),
            }),
        }
    }

    /// Opens the run, and sets right what its last process has left when it died.
    pub fn open(
        self,
        secrets: Secrets,
        observer: Observer,
        cancel: &Cancel,
    ) -> Result<Run, Failure> {
        let Self { id, dir, ownership, folded, start, orphaned } = self;
        workspace::ensure_parts(&dir)?;
        let opened = Run::open(id, &dir, ownership, secrets, time::now, observer, folded)?;
        let (mut run, aside) = opened;
        if let Some(name) = aside {
            run.tell(Notice::Warning(&format!(
                "the journal's last line was torn and never counted; it is set aside as {name}"
            )));
        }
        let marks = [("RUN_DIR", &*dir.to_string_lossy())];
        let ended = process::end_marked(&marks, "DELTA_CALL_ID", cancel);
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
            let status = RunStatus::Interrupted;
            run.record(Payload::EngineEnd { run_id, status, final_iteration });
        }
        Ok(run)
    }

    /// Begins this process's part of the run, and drives it.
    pub fn take_up(
        self,
        workspace: &Workspace,
        ready: &Ready,
        options: &Options,
        said: Option<Payload>,
        cancel: Cancel,
    ) -> Result<RunResult, Failure> {
        let spent = self.folded.spent;
        let budget = ready.budget((&self.id, &self.dir), options, spent, &cancel)?;
        let observer = drive::observer(options, &self.dir, self.state())?;
        let start = self.start.clone();
        workspace::ensure_parts(&self.dir)?;
        let kept = ready.keep(&self.dir, self.ownership.epoch(), Some(&start))?;
        let mut run = self.open(ready.secrets.clone(), observer, &cancel)?;
        let next = ready.start(&run, workspace, options, kept);
        warn_of_lost_hooks(&mut run, &start, &next);
        options.note(&another_llm(&start, &next));
        run.record(Payload::EngineStart(Box::new(next)));
        if let Some(said) = said {
            run.record(said);
        }
        run.commit()?;
        ready.drive(&mut run, workspace, options, (budget, cancel))
    }
}

/// That this process asks another LLM than the last one did.
fn another_llm(before: &EngineStart, now: &EngineStart) -> Vec<String> {
    let text = |start: &EngineStart, key: &str| -> Option<String> {
        start.config.get("llm")?.get(key)?.as_str().map(printable)
    };
    let of = |start| Some((text(start, "provider")?, text(start, "model")?));
    let Some(((kind, model), (new_kind, new_model))) = of(before).zip(of(now)) else {
        return Vec::new();
    };
    match (kind == new_kind, model == new_model) {
        (true, true) => Vec::new(),
        (_, false) => {
            vec![format!("Note: the last process asked {model}; this one asks {new_model}")]
        }
        (false, true) => vec![format!(
            "Note: the last process asked {kind}:{model}; this one asks {new_kind}:{model}"
        )],
    }
}

/// A hook may be a gate, and nobody sees one that is not there.
fn warn_of_lost_hooks(run: &mut Run, before: &EngineStart, now: &EngineStart) {
    let names = |start: &EngineStart| -> Vec<String> {
        let hooks = start.config["hooks"].as_array().into_iter().flatten();
        hooks.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let kept = names(now);
    for lost in names(before).iter().filter(|name| !kept.contains(name)) {
        let home = &now.agent_home;
        run.tell(Notice::Warning(&format!(
            "the run had the hook {lost} until now, and the agent in {home} has none"
        )));
    }
}

/// Why the run in `dir` cannot be had, and how to watch whoever has it.
fn taken(error: OwnershipError, id: &RunId, dir: &Path) -> Failure {
    let workspace = dir.ancestors().nth(2).unwrap_or(dir).to_string_lossy().into_owned();
    let watch = format!("delta show {id} -w {} --follow", shell_word(&workspace));
    let is_active = matches!(error, OwnershipError::Active { .. });
    Failure::from(error).with_hint(is_active.then(|| format!("watch it with `{watch}`")))
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
        [] => format!(
            "name its workspace with `-w DIR`, or the run by its path, DIR/.delta/{id}; `delta list-runs -w DIR` shows the runs of one"
        ),
        found => {
            let options: Vec<_> = found
                .iter()
                .map(|dir| format!("-w {}", shell_word(&dir.to_string_lossy())))
                .collect();
            format!("it is here: {}", options.join("\n"))
        }
    };
    Err(Failure::no_run(message, hint))
}

/// Reads the journal of a run; its faults in a person's words.
pub fn read_journal(id: &RunId, dir: &Path) -> Result<Contents, Failure> {
    journal::read(dir).map_err(|error| unreadable(id, error))
}

/// Folds the journal of a run; its faults in a person's words.
pub fn fold_journal(id: &RunId, dir: &Path) -> Result<Folded, Failure> {
    journal::fold(dir).map_err(|error| unreadable(id, error))
}

/// Why the journal of a run cannot be read.
pub fn unreadable(id: &RunId, error: JournalError) -> Failure {
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
}

/// Loads the agent of a run: that in `given`, or where it was.
pub fn load_agent(
    given: Option<&Path>,
    start: &EngineStart,
    options: &Options,
) -> Result<Agent, Failure> {
    let home = given.unwrap_or_else(|| Path::new(&start.agent_home));
    if !home.is_dir() && given.is_none() {
        let message = format!("the agent is not in {} any more", home.display());
        return Err(Failure::config(
            message,
            Some("say where it is now with `--agent DIR`".to_owned()),
        ));
    }
    drive::load(home, options)
}
