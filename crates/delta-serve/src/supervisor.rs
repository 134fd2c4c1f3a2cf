//! The runs of a server: `delta mcp serve` and `delta acp` start a process for each run, and read how the run is from its
//! directory.
//!
//! A server keeps nothing that the run directory does not say: the next server finds every run as this one left it.

use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_base::time::{self, Timestamp};
use delta_base::{durable, random};
use delta_operator::arguments::served_output::{self, ServedOutput, ServedPiece};
use delta_operator::failure::{CONFLICT_ERROR, RUN_ACTIVE_ERROR};
use delta_operator::runs::own_run;
use delta_operator::{environment, lease_options};
use delta_process::{WorkerCommand, WorkerErrors, WorkerFile, WorkerProcess, own_program};
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::interaction_request::InteractionRequest;
use delta_run::journal::{JournalError, JournalFold};
use delta_run::ownership::run_process::RunProcess;
use delta_run::run_result::ContinueCommand;
use delta_run::state::{HumanRequest, RunState};
use delta_run::workspace::{self, Workspace};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time that runs get to be left in order when the server ends: a tool may take 5 s to end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of the checks for that, besides SIGCHLD.
const LEAVE_INTERVAL: Duration = Duration::from_millis(200);
/// The time that a process gets to record what it delivers before it is interrupted.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The file in a run directory that says that a client stopped the run: it is not continued before a client asks for it.
const STOPPED_FILE: &str = "stopped-by-client";
/// The directory of a run directory with a file for each call of a client that continued the run.
const CALLS_DIR: &str = "client-calls";

/// A run of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServedRun {
    /// The workspace: absolute, symlinks resolved.
    pub work_dir: PathBuf,
    /// The id of the run.
    pub id: RunId,
}

impl ServedRun {
    /// A run with a new id.
    pub fn with_new_id(work_dir: &Path) -> Self {
        let id = RunId::new(time::current_time(), random::random_bytes());
        Self { work_dir: work_dir.to_owned(), id }
    }

    /// The run directory, whether it exists or not.
    pub fn dir(&self) -> PathBuf {
        Workspace { root: self.work_dir.clone() }.run_dir(&self.id)
    }

    /// The size of its journal.
    pub fn journal_bytes(&self) -> u64 {
        self.dir().join("journal.jsonl").metadata().map_or(0, |journal| journal.len())
    }
}

/// What a run waits for.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// The question, as interaction/request.json has it.
    pub request: InteractionRequest,
    /// The call that asks.
    pub call_id: String,
    /// Whether the call has run, and its changes are to be approved.
    pub is_staged: bool,
    /// The number of the run's last event, which changes with the answer.
    pub seq: u64,
    /// The command with which a person answers at a terminal.
    pub command: String,
}

/// How a run is.
#[derive(Debug)]
pub enum RunStanding {
    /// It does not exist, or never began.
    Absent,
    /// A process works on it.
    Working,
    /// Nothing works on it, and it is not done.
    Left {
        /// A client stopped it; otherwise its process was interrupted or died.
        is_stopped: bool,
    },
    /// It waits for an answer or an approval.
    Waiting(Box<OpenRequest>),
    /// It is COMPLETED or FAILED, or could not be started: a RunResult.
    Ended(Json),
    /// It is not a run of this server; the reason.
    Refused(String),
}

/// The state of a run for clients that ask for its times.
#[derive(Debug, Clone, Copy)]
pub struct RunTimes {
    /// The time of the first event.
    pub created_at: Timestamp,
    /// The time of the last event.
    pub updated_at: Timestamp,
}

/// A process that works on a run.
struct RunWorker {
    process: WorkerProcess,
    /// What it has printed, without the pieces that were taken.
    output: Vec<u8>,
    /// Whether it delivers something, which its client has to know if it did not.
    has_message: bool,
    started: Instant,
    /// The size of the journal when it started.
    journal_bytes: u64,
    /// Who wants it to stop, until it is interrupted.
    stop: Option<WorkerStop>,
}

/// Who wants a process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerStop {
    /// A client: the run is not continued before a client asks for that.
    Client,
    /// The server, which ends: the next one continues the run.
    Server,
}

impl RunWorker {
    /// What it has printed as its result, unless it only found that another process continues the run too: then the run says
    /// how it is.
    fn read_report(&mut self) -> Option<Json> {
        self.output.extend(self.process.read_output().unwrap_or_default());
        served_output::take_pieces(&mut self.output);
        let report: Json = serde_json::from_slice(&self.output).ok()?;
        let kind = report["error"]["type"].as_str().unwrap_or_default();
        let is_late = !self.has_message && [CONFLICT_ERROR, RUN_ACTIVE_ERROR].contains(&kind);
        (!is_late).then_some(report)
    }

    /// Interrupts a process that is to stop. Not before it has recorded something: a process that is just starting would end
    /// without a trace of the message that it delivers.
    fn interrupt_if_delivered(&mut self, run: &ServedRun) -> io::Result<()> {
        let Some(stop) = self.stop else { return Ok(()) };
        let has_delivered = !self.has_message || run.journal_bytes() != self.journal_bytes;
        if !has_delivered && self.started.elapsed() < DELIVERY_TIMEOUT {
            return Ok(());
        }
        self.stop = None;
        let marked = if stop == WorkerStop::Client { mark_as_stopped(run) } else { Ok(()) };
        self.process.interrupt();
        marked
    }
}

/// Remembers that a client wants the run to stay stopped.
fn mark_as_stopped(run: &ServedRun) -> io::Result<()> {
    let dir = run.dir();
    if !dir.is_dir() {
        return Ok(());
    }
    durable::create_private_once(&dir.join(STOPPED_FILE), b"").map_err(io::Error::other)
}

/// What a process gets to work on.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerInput<'a> {
    /// The text of a message or an answer.
    pub message: Option<&'a str>,
    /// The images of the message.
    pub images: &'a [Vec<u8>],
}

impl<'a> From<Option<&'a str>> for WorkerInput<'a> {
    fn from(message: Option<&'a str>) -> Self {
        Self { message, images: &[] }
    }
}

/// Starts the processes of runs, and reads the runs.
pub struct RunSupervisor {
    output: ServedOutput,
    /// The agent directory: absolute, symlinks resolved.
    agent_home: PathBuf,
    /// Whether runs keep working when the server ends.
    outlives_server: bool,
    program: PathBuf,
    workers: BTreeMap<ServedRun, RunWorker>,
    /// The results that processes printed, until the next process of the run starts.
    reports: BTreeMap<ServedRun, Json>,
}

/// A run as its journal has it.
struct FoldedRun {
    folded: JournalFold,
    /// Its process died without an ENGINE_END.
    is_died: bool,
}

impl RunSupervisor {
    /// A supervisor without workers.
    pub fn new(agent_home: PathBuf, output: ServedOutput, outlives_server: bool) -> Self {
        let workers = BTreeMap::new();
        let reports = BTreeMap::new();
        Self { output, agent_home, outlives_server, program: own_program(), workers, reports }
    }

    /// How many processes of this server work on runs.
    pub fn worker_count(&mut self) -> usize {
        self.reap_workers();
        self.workers.len()
    }

    /// Starts the run with `task`. A run that exists is found again and keeps its task.
    pub fn start_run<'a>(
        &mut self,
        run: &ServedRun,
        task: impl Into<WorkerInput<'a>>,
    ) -> io::Result<()> {
        let agent = self.agent_home.to_string_lossy().into_owned();
        let words = ["run", "--ensure", "--agent", &agent];
        self.start_worker(run, &words, task.into())
    }

    /// Continues the run, with a message, an answer or nothing, unless it has changed since the event `seq`.
    pub fn continue_run<'a>(
        &mut self,
        run: &ServedRun,
        message: impl Into<WorkerInput<'a>>,
        seq: u64,
    ) -> io::Result<()> {
        // A file that stays says less than the run that works again.
        let _ = durable::remove_file_no_follow(&run.dir().join(STOPPED_FILE));
        let seq = seq.to_string();
        self.start_worker(run, &["continue", "--at-event", &seq], message.into())
    }

    fn start_worker(
        &mut self,
        run: &ServedRun,
        words: &[&str],
        input: WorkerInput<'_>,
    ) -> io::Result<()> {
        self.reports.remove(run);
        let journal_bytes = run.journal_bytes();
        let work_dir = run.work_dir.to_string_lossy();
        let mut arguments: Vec<&str> = words.to_vec();
        arguments.extend(["--run-id", run.id.as_str(), "-w", &work_dir]);
        let runs_dir = workspace::runs_dir_option().map(Path::to_string_lossy);
        arguments.extend(runs_dir.iter().flat_map(|dir| ["--runs-dir", dir]));
        arguments.extend(lease_options::forwarded_arguments().iter().map(String::as_str));
        arguments.extend(["--format", "json", "--no-interactive", "-q", "--served"]);
        arguments.push(match self.output {
            ServedOutput::Result => "result",
            ServedOutput::Pieces => "pieces",
        });
        let WorkerInput { message, images } = input;
        match message {
            // An empty text on stdin is an error.
            Some(message) if message.trim().is_empty() => arguments.extend(["-m", message]),
            Some(_) => arguments.extend(["-m", "-"]),
            None => {}
        }
        let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let files = images.iter().map(|image| WorkerFile::new(image));
        let files = files.collect::<io::Result<Vec<WorkerFile>>>()?;
        arguments.extend(files.iter().flat_map(|file| ["-a".to_owned(), file.path()]));
        let process = WorkerProcess::start(&WorkerCommand {
            program: &self.program,
            arguments: &arguments,
            env: environment::variables(),
            input: message.unwrap_or_default().as_bytes(),
            files: &files,
            outlives_server: self.outlives_server,
            errors: WorkerErrors::Inherited,
        })?;
        let has_message = message.is_some();
        let worker = RunWorker {
            process,
            output: Vec::new(),
            has_message,
            started: Instant::now(),
            journal_bytes,
            stop: None,
        };
        self.workers.insert(run.clone(), worker);
        Ok(())
    }

    /// Interrupts the process that works on the run, of this server or not, and remembers that a client wants that.
    pub fn stop_run(&mut self, run: &ServedRun) -> io::Result<()> {
        if let Some(worker) = self.workers.get_mut(run) {
            worker.stop = Some(WorkerStop::Client);
            return worker.interrupt_if_delivered(run);
        }
        mark_as_stopped(run)?;
        let dir = run.dir();
        let Ok(state) = own_run::fold_journal(&run.id, &dir) else { return Ok(()) };
        let start = state.start.filter(|_| state.status == Some(RunStatus::Running));
        let Some(start) = start else { return Ok(()) };
        match RunProcess::open(&start.process, &dir)? {
            Some(process) => process.interrupt(false),
            None => Ok(()),
        }
    }

    /// Ends the server: interrupts its runs and waits until they are left, unless they outlive it. Says on stderr what becomes
    /// of each.
    pub fn leave(&mut self, cancel: &CancelToken) {
        self.reap_workers();
        let runs: Vec<ServedRun> = self.workers.keys().cloned().collect();
        if self.outlives_server {
            for run in &runs {
                stdio::print_error_line(&format!("Run {} keeps working.", run.id));
            }
            return;
        }
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        for worker in self.workers.values_mut() {
            worker.stop.get_or_insert(WorkerStop::Server);
        }
        while self.worker_count() > 0 && Instant::now() < deadline {
            cancel.wait_for_wake(Some(LEAVE_INTERVAL));
        }
        for run in &runs {
            let Ok(state) = own_run::fold_journal(&run.id, &run.dir()) else { continue };
            if state.status == Some(RunStatus::Interrupted) {
                let next = ContinueCommand::from_state(&state);
                stdio::print_error_line(&format!(
                    "Interrupted run {}. Continue with: {next}",
                    run.id
                ));
            }
        }
    }

    /// What the process of the run has generated since the last time, of answers and output.
    pub fn take_pieces(&mut self, run: &ServedRun) -> Vec<ServedPiece> {
        let Some(worker) = self.workers.get_mut(run) else { return Vec::new() };
        // What cannot be read now comes with the journal.
        worker.output.extend(worker.process.read_output().unwrap_or_default());
        served_output::take_pieces(&mut worker.output)
    }

    fn reap_workers(&mut self) {
        let reports = &mut self.reports;
        self.workers.retain(|run, worker| match worker.process.has_ended() {
            Ok(false) => {
                // Without the file that it could not create, the next client continues the run.
                let _ = worker.interrupt_if_delivered(run);
                true
            }
            Ok(true) => {
                reports.extend(worker.read_report().map(|report| (run.clone(), report)));
                false
            }
            Err(_) => false,
        });
    }

    /// How the run is now.
    pub fn look_at(&mut self, run: &ServedRun) -> RunStanding {
        self.reap_workers();
        if self.workers.contains_key(run) {
            return RunStanding::Working;
        }
        let refused_start = || self.reports.get(run).filter(|report| report["status"] == "FAILED");
        let FoldedRun { folded, is_died } = match self.fold_with_process(run) {
            Ok(Some(folded)) => folded,
            Ok(None) => {
                return refused_start()
                    .map_or(RunStanding::Absent, |report| RunStanding::Ended(report.clone()));
            }
            Err(reason) => return RunStanding::Refused(reason),
        };
        let state = &folded.state;
        if state.status == Some(RunStatus::Running) {
            if !is_died {
                return RunStanding::Working;
            }
        } else if state.status == Some(RunStatus::Failed)
            || state.status == Some(RunStatus::Completed)
        {
            let stored = own_run::sealed_result(&run.id, &run.dir(), &folded);
            let stored = stored.map(|result| serde_json::to_value(result).unwrap_or_default());
            // The process can have refused to continue the run, which the journal does not show.
            return match (refused_start(), stored) {
                (Some(report), _) => RunStanding::Ended(report.clone()),
                (None, Ok(stored)) => RunStanding::Ended(stored),
                (None, Err(failure)) => RunStanding::Refused(failure.to_text()),
            };
        }
        if let Some(report) = refused_start() {
            return RunStanding::Ended(report.clone());
        }
        match open_request(state).filter(|_| !is_died) {
            Some(request) => RunStanding::Waiting(Box::new(request)),
            None => RunStanding::Left { is_stopped: run.dir().join(STOPPED_FILE).exists() },
        }
    }

    /// The run and whether its process died. What a process recorded after its journal was read, and before it ended, counts.
    fn fold_with_process(&self, run: &ServedRun) -> Result<Option<FoldedRun>, String> {
        let Some(mut folded) = self.fold_run(run)? else { return Ok(None) };
        loop {
            let is_running = folded.state.status == Some(RunStatus::Running);
            if !is_running || !own_run::process_is_gone(&folded.state) {
                return Ok(Some(FoldedRun { folded, is_died: false }));
            }
            let seq = folded.state.seq;
            let Some(later) = self.fold_run(run)? else { return Ok(None) };
            if later.state.seq == seq {
                return Ok(Some(FoldedRun { folded: later, is_died: true }));
            }
            folded = later;
        }
    }

    /// The run, if it began; the reason if it is not a run that this operator made with this agent.
    fn fold_run(&self, run: &ServedRun) -> Result<Option<JournalFold>, String> {
        let workspace = Workspace { root: run.work_dir.clone() };
        let dir = workspace.find_run(&run.id).map_err(|error| error.to_string())?;
        let Some(dir) = dir else { return Ok(None) };
        let folded = match own_run::fold_with_seals(&run.id, &dir) {
            Err(JournalError::NoEvents(_)) => return Ok(None),
            folded => folded.map_err(|error| error.to_string())?,
        };
        own_run::check_is_own(&run.id, &dir, &folded).map_err(|failure| failure.to_text())?;
        let home = folded.state.start.as_ref().map_or("", |start| &start.agent_home);
        if Path::new(home).canonicalize().is_ok_and(|home| home == self.agent_home) {
            return Ok(Some(folded));
        }
        Err(format!("run {} is a run of another agent", run.id))
    }

    /// The number of the run's last event.
    pub fn last_event(&self, run: &ServedRun) -> u64 {
        self.fold_run(run).ok().flatten().map_or(0, |folded| folded.state.seq)
    }

    /// When the run was created and changed last.
    pub fn times(&self, run: &ServedRun) -> RunTimes {
        let now = time::current_time();
        let folded = self.fold_run(run).ok().flatten();
        let state = folded.as_ref().map(|folded| &folded.state);
        RunTimes {
            created_at: state.and_then(|state| state.created_at).unwrap_or(now),
            updated_at: state.and_then(|state| state.worked_until).unwrap_or(now),
        }
    }
}

/// Records that the client's call `key` continues the run after the event `seq`. Recorded before the call takes effect, so
/// that a call that a client repeats after a crash is delivered once.
pub fn record_client_call(run: &ServedRun, key: &str, seq: u64) -> io::Result<()> {
    let path = run.dir().join(CALLS_DIR).join(key);
    durable::create_private_once(&path, seq.to_string().as_bytes()).map_err(io::Error::other)
}

/// The event after which the client's call `key` continued the run; `None` if the call is new.
pub fn recorded_client_call(run: &ServedRun, key: &str) -> io::Result<Option<u64>> {
    let path = run.dir().join(CALLS_DIR).join(key);
    let text = match durable::read_small_no_follow(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let recorded = String::from_utf8_lossy(&text).trim().parse();
    recorded.map(Some).map_err(|_| io::Error::other(format!("{} has no number", path.display())))
}

fn open_request(state: &RunState) -> Option<OpenRequest> {
    let request = state.human_request()?;
    let next = ContinueCommand::from_state(state);
    let (call_id, is_staged) = match request {
        HumanRequest::Question(question) => (&question.call_id, false),
        HumanRequest::Approval(request) => (&request.call_id, request.stage.is_some()),
    };
    Some(OpenRequest {
        call_id: call_id.clone(),
        is_staged,
        seq: state.seq,
        command: next.asking_again().to_string(),
        request: InteractionRequest::new(state)?,
    })
}
