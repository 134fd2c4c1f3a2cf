//! Why a command failed: its message, its hint, its error type and its exit code.

use crate::environment;
use delta_agent::child_environment::INNER_SEAL_VARIABLE;
use delta_agent::context::ContextError;
use delta_base::durable::{FileError, OtherOwner};
use delta_base::error_text::HelpLine;
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_base::time;
use delta_llm::llm::{EndpointError, LlmError};
use delta_program::stdio;
use delta_run::budget::ledger::LedgerError;
use delta_run::event::{IO_ERROR, RunStatus};
use delta_run::fork::bundle::BundleError;
use delta_run::journal::seal_key::SealKeyError;
use delta_run::ownership::ActError;
use delta_run::ownership::claim::OwnershipError;
use delta_run::run_result::{RunErrorInfo, RunResult};
use delta_run::sweep::sweep_dir::PlanFileError;
use delta_run::workspace::{self, CONTROL_DIR, WorkspaceError};
use delta_snapshot::SnapshotError;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use std::path::Path;
use std::process::ExitCode;

/// The exit code of a process that ends its work on a run with this status.
pub fn status_exit_code(status: RunStatus) -> u8 {
    match status {
        RunStatus::Completed => 0,
        RunStatus::Failed | RunStatus::Running => 1,
        RunStatus::WaitingForInput => 101,
        RunStatus::Interrupted => 130,
    }
}

/// The name of a failure: what a command would change was also changed by others.
pub const CONFLICT_ERROR: &str = "conflict";
/// The name of a failure: another process works on the run.
pub const RUN_ACTIVE_ERROR: &str = "run_active";

/// Why a command failed outside of a run.
#[derive(Debug)]
pub struct CommandFailure {
    kind: FailureKind,
    message: String,
    hint: Option<String>,
    /// The run that was created before the command failed.
    run_id: Option<String>,
    /// The result of a run that the command left unchanged, printed in place of the failure.
    run_result: Option<Box<RunResult>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// Options that exclude each other.
    Usage,
    /// A mistake in a file or an option, or a missing permission.
    Config,
    AlreadyExists,
    NotFound,
    /// A name fits several runs.
    Ambiguous,
    NothingFound,
    /// What a command would change was also changed by others.
    Conflict,
    /// Another process works on the run.
    RunActive,
    /// Another process has taken over the run.
    Replaced,
    /// The run was sent to another place.
    Moved,
    MessageRequired,
    /// A run does not take a message.
    MessageRefused,
    Damaged,
    /// The context of a request could not be built.
    Context,
    Io,
    /// An export did not reach its destination.
    NotDelivered,
    /// A cluster did not take a job.
    NotSubmitted,
    /// The user did not answer a question of the command.
    Unanswered,
    /// What only the user can decide, without a terminal.
    NotConfirmed,
    Interrupted,
}

impl FailureKind {
    fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Config => "config",
            Self::AlreadyExists => "run_exists",
            Self::NotFound => "run_not_found",
            Self::Ambiguous => "run_ambiguous",
            Self::NothingFound => "nothing_found",
            Self::Conflict => CONFLICT_ERROR,
            Self::RunActive => RUN_ACTIVE_ERROR,
            Self::Replaced => "run_replaced",
            Self::Moved => "run_moved",
            Self::MessageRequired => "message_missing",
            Self::MessageRefused => "message_refused",
            Self::Damaged => "damaged",
            Self::Context => "context",
            Self::Io => IO_ERROR,
            Self::NotDelivered => "export",
            Self::NotSubmitted => "submit",
            Self::Unanswered => "interaction",
            Self::NotConfirmed => "not_confirmed",
            Self::Interrupted => "interrupted",
        }
    }

    fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::NotConfirmed => 3,
            Self::Config => 126,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}

impl CommandFailure {
    fn new(kind: FailureKind, message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        let hint = hint.into().0;
        Self { kind, message: message.into(), hint, run_id: None, run_result: None }
    }

    /// Options of the command line exclude each other.
    pub fn usage(message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        Self::new(FailureKind::Usage, message, hint)
    }

    /// A file or an option is wrong, or a permission is missing.
    pub fn config(message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        Self::new(FailureKind::Config, message, hint)
    }

    /// The failure as one of a call of the LLM.
    pub fn into_llm_error(self) -> LlmError {
        LlmError::Failed {
            message: self.message,
            status: None,
            hint: self.hint,
            response: None,
            unavailable: None,
            script_turn: None,
        }
    }

    /// What failed.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The exit code of a command that fails so.
    pub fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// Whether the run needs a message to continue.
    pub fn is_message_required(&self) -> bool {
        self.kind == FailureKind::MessageRequired
    }

    /// Whether the run, or a part of it that was named, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind == FailureKind::NotFound
    }

    /// Whether another process has taken over the run of this one.
    pub fn is_replaced(&self) -> bool {
        self.kind == FailureKind::Replaced
    }

    /// What the command would create exists already.
    pub fn already_exists(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::AlreadyExists, message, Some(hint.into()))
    }

    /// The run, or a part of it that was named, does not exist.
    pub fn not_found(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::NotFound, message, Some(hint.into()))
    }

    /// A name fits several runs.
    pub fn ambiguous(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::Ambiguous, message, Some(hint.into()))
    }

    /// What the command would change was also changed by others.
    pub fn conflict(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::Conflict, message, Some(hint.into()))
    }

    /// There is nothing to process.
    pub fn nothing_found(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::NothingFound, message, Some(hint.into()))
    }

    /// The run cannot continue without a message.
    pub fn message_required(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(FailureKind::MessageRequired, message, Some(hint.into()))
    }

    /// A run does not take the message.
    pub fn message_refused(message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        Self::new(FailureKind::MessageRefused, message, hint)
    }

    /// Another process works, or may work, on what the command would change.
    pub fn run_active(message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        Self::new(FailureKind::RunActive, message, hint)
    }

    /// The run was sent to another place, or is a copy.
    pub fn moved(message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        Self::new(FailureKind::Moved, message, hint)
    }

    /// The run's files are damaged.
    pub fn damaged(message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        Self::new(FailureKind::Damaged, message, hint)
    }

    /// One of delta's directories belongs to another user, who can change it at any time.
    fn other_owner(other: &OtherOwner) -> Self {
        let dir = shell_quote_path(&other.dir);
        let user = other.user;
        Self::config(
            other.to_string(),
            format!(
                "run the command as user {}; or, if no other user writes there, make the directory yours:\n\
                 `sudo chown -R {user} {dir}`; runs of other users can be read",
                other.owner
            ),
        )
    }

    /// An export did not reach its destination.
    pub fn not_delivered(message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        Self::new(FailureKind::NotDelivered, message, hint)
    }

    /// A cluster did not take a job.
    pub fn not_submitted(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NotSubmitted, message, None)
    }

    /// A signal interrupted the command outside of a run.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Interrupted, message, None)
    }

    /// The user did not answer a question that the command asked before a run began; `problem` says what is missing.
    pub fn unanswered(problem: &str, error: &std::io::Error, hint: &str) -> Self {
        if error.kind() == std::io::ErrorKind::Interrupted {
            return Self::interrupted("interrupted");
        }
        Self::new(FailureKind::Unanswered, format!("{problem}: {error}"), Some(hint.to_owned()))
    }

    /// The command would ask the user, and there is no terminal.
    pub fn not_confirmed(message: impl Into<String>, hint: impl Into<HelpLine>) -> Self {
        Self::new(FailureKind::NotConfirmed, message, hint)
    }

    /// Reports of an active run that `command` cannot change it, in place of a process that continues it.
    pub fn of_active_run_for(self, command: &str, hint: String) -> Self {
        let message = self.message.replace("\nCannot continue ", &format!("\nCannot {command} "));
        if message == self.message {
            return self;
        }
        Self { message, hint: Some(hint), ..self }
    }

    /// Replaces the hint, if there is a new one.
    pub fn with_hint(self, hint: impl Into<HelpLine>) -> Self {
        Self { hint: hint.into().0.or(self.hint), ..self }
    }

    /// Adds a line to the hint.
    pub fn adding_hint(mut self, line: &str) -> Self {
        self.hint =
            Some(self.hint.map_or_else(|| line.to_owned(), |hint| format!("{hint}\n{line}")));
        self
    }

    /// Names the run that was created before the command failed.
    pub fn with_run_id(mut self, id: &RunId) -> Self {
        self.run_id = Some(id.to_string());
        self
    }

    /// Adds the result of a run that the command left unchanged; JSON output has it in place of the failure.
    pub fn with_run_result(mut self, result: Option<RunResult>) -> Self {
        self.run_result = result.map(Box::new);
        self
    }

    /// Prints the failure to stderr; returns the exit code.
    pub fn report(&self) -> ExitCode {
        // A diagnostic report brings its own headings.
        let heading = if self.message.starts_with("error: ") { "" } else { "error: " };
        stdio::print_error_line(&format!("{heading}{}", self.message));
        if let Some(hint) = &self.hint {
            stdio::print_error_line(&format!("help: {}", hint.replace('\n', "\n      ")));
        }
        ExitCode::from(self.kind.exit_code())
    }

    /// The message and the hint as one text, for a client that is not at a terminal.
    pub fn to_text(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}\n{hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// The result that JSON output has for the failure; `run_id` is the id from the command line, or what may be one.
    pub fn into_run_result(self, run_id: Option<String>) -> RunResult {
        if let Some(result) = self.run_result {
            return *result;
        }
        let run_id = run_id.filter(|_| self.kind != FailureKind::Ambiguous);
        let status = match self.kind {
            FailureKind::Interrupted => RunStatus::Interrupted,
            _ => RunStatus::Failed,
        };
        let error = self.to_error_info();
        RunResult::without_run(self.run_id.or(run_id), status, error, time::current_time())
    }

    /// The failure as the error of a result.
    pub fn to_error_info(&self) -> RunErrorInfo {
        let kind = self.kind.name().to_owned();
        RunErrorInfo { kind, message: self.message.clone(), details: self.hint.clone() }
    }

    /// Whether an operation on a file failed for a reason that may pass, such as a full disk.
    pub fn is_io(&self) -> bool {
        self.kind == FailureKind::Io
    }
}

impl From<DiagnosticReport> for CommandFailure {
    fn from(report: DiagnosticReport) -> Self {
        Self::config(report.to_string(), None)
    }
}

impl From<Diagnostic> for CommandFailure {
    fn from(diagnostic: Diagnostic) -> Self {
        DiagnosticReport { diagnostics: vec![diagnostic] }.into()
    }
}

impl From<FileError> for CommandFailure {
    fn from(error: FileError) -> Self {
        use std::io::ErrorKind::{InvalidData, IsADirectory, PermissionDenied, ReadOnlyFilesystem};
        if let Some(other) = OtherOwner::from_error(&error.source) {
            return Self::other_owner(other);
        }
        // delta refuses a symlink, a pipe or a directory in place of a file, like a file without permission.
        let denied = matches!(
            error.source.kind(),
            PermissionDenied | ReadOnlyFilesystem | InvalidData | IsADirectory
        );
        let kind = if denied { FailureKind::Config } else { FailureKind::Io };
        let is_of_run = error.path.iter().any(|part| part == CONTROL_DIR)
            || workspace::runs_dir().is_some_and(|dir| error.path.starts_with(dir));
        Self::new(kind, error.to_string(), inner_run_hint(denied && is_of_run))
    }
}

/// What lets a tool in a sandbox create the run that it was denied, if this process may be such a tool.
fn inner_run_hint(is_denied: bool) -> Option<String> {
    let is_in_run = environment::variable("DELTA_RUN_ID").is_some();
    // A tool that may start runs gets this key, unless the run around it has none.
    let may_start_runs = environment::variable(INNER_SEAL_VARIABLE).is_some();
    (is_denied && is_in_run && !may_start_runs).then(|| {
        "a tool in a sandbox starts runs only with `runs: true` in its `sandbox`, and in the operator's profile if there is one"
            .to_owned()
    })
}

impl From<PlanFileError> for CommandFailure {
    fn from(error: PlanFileError) -> Self {
        let message = error.to_string();
        match error {
            PlanFileError::File(error) => error.into(),
            PlanFileError::Missing { .. } => Self::config(message, None),
            PlanFileError::Changed { .. } => {
                Self::config(message, "restore it: a plan never changes")
            }
        }
    }
}

impl From<SealKeyError> for CommandFailure {
    fn from(error: SealKeyError) -> Self {
        match error {
            SealKeyError::File(error) => error.into(),
            SealKeyError::NoKey { .. } => {
                let hint = "write a line of at least 16 bytes into it, or remove it: delta makes a new one";
                Self::config(error.to_string(), hint)
            }
            SealKeyError::Unusable { path, source } => {
                FileError { action: "read the key", path, source }.into()
            }
        }
    }
}

impl From<BundleError> for CommandFailure {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::File(error) => error.into(),
            error @ BundleError::Foreign(_) => {
                let hint = "name the file that `delta send RUN -o FILE` has written";
                Self::damaged(error.to_string(), hint)
            }
            error => Self::damaged(error.to_string(), "send the run again"),
        }
    }
}

impl From<SnapshotError> for CommandFailure {
    fn from(error: SnapshotError) -> Self {
        let message = error.to_string();
        match error {
            SnapshotError::File(error) => error.into(),
            SnapshotError::Cancelled => Self::interrupted(message),
            SnapshotError::Damaged(_) => Self::damaged(message, None),
            SnapshotError::Blocked(_) => {
                Self::already_exists(message, "move it out of the workspace")
            }
        }
    }
}

impl From<ActError> for CommandFailure {
    fn from(error: ActError) -> Self {
        match error {
            ActError::File(error) => error.into(),
            ActError::Replaced(error) => Self::new(FailureKind::Replaced, error.to_string(), None),
        }
    }
}

impl From<OwnershipError> for CommandFailure {
    fn from(error: OwnershipError) -> Self {
        let message = error.to_string();
        match error {
            OwnershipError::File(error) => error.into(),
            OwnershipError::Active { .. }
            | OwnershipError::Elsewhere { .. }
            | OwnershipError::OtherHost { .. } => Self::run_active(message, None),
            OwnershipError::OldView { path, .. } => {
                let hint = format!("what this host sees is {}", path.display());
                Self::run_active(message, hint)
            }
        }
    }
}

impl From<LedgerError> for CommandFailure {
    fn from(error: LedgerError) -> Self {
        let message = error.to_string();
        match error {
            LedgerError::File(error) => error.into(),
            LedgerError::Cancelled => Self::interrupted(message),
            _ => Self::damaged(message, None),
        }
    }
}

impl From<WorkspaceError> for CommandFailure {
    fn from(error: WorkspaceError) -> Self {
        let message = error.to_string();
        match error {
            WorkspaceError::File(error) => error.into(),
            WorkspaceError::Unusable { is_denied, .. } => {
                let hint = inner_run_hint(is_denied).map(|hint| {
                    format!("name a workspace that can be written with `-w DIR`;\n{hint}")
                });
                Self::config(message, hint)
            }
            WorkspaceError::Reserved { control, .. } => {
                let hint = format!("name a directory outside of {}", control.display());
                Self::config(message, hint)
            }
            WorkspaceError::Symlink(path) => {
                let is_run = !path.ends_with(CONTROL_DIR);
                let hint = format!("`rm {}` removes the symlink only", shell_quote_path(&path));
                Self::config(message, is_run.then_some(hint))
            }
            WorkspaceError::UnknownLayout { .. } => Self::config(
                message,
                "use the version of delta that created them, or another workspace",
            ),
            WorkspaceError::RunExists { .. } => {
                Self::already_exists(message, "choose another `--run-id`")
            }
            WorkspaceError::LostRun { id, run_dir, .. } => {
                Self::damaged(message, lost_events_hint(&id, &run_dir))
            }
        }
    }
}

impl From<ContextError> for CommandFailure {
    fn from(error: ContextError) -> Self {
        let message = error.to_string();
        match error {
            ContextError::Cancelled => Self::interrupted(message),
            ContextError::Source { .. } | ContextError::Budget(_) => {
                Self::new(FailureKind::Context, message, None)
            }
        }
    }
}

impl From<EndpointError> for CommandFailure {
    fn from(error: EndpointError) -> Self {
        Self::config(error.message, error.help)
    }
}

impl From<LlmError> for CommandFailure {
    fn from(error: LlmError) -> Self {
        Self::config(error.to_string(), None)
    }
}

/// Refuses what is for the operator alone to a tool or a hook of a run: an LLM must not do so with one.
pub fn refuse_inside_run(action: &str) -> Result<(), CommandFailure> {
    if environment::variable("DELTA_RUN_ID").is_none() {
        return Ok(());
    }
    let message = format!("a run cannot {action}: that is for its operator");
    Err(CommandFailure::config(message, "run the command in your own shell"))
}

/// What to do about a run whose journal has lost its events.
pub fn lost_events_hint(id: &RunId, run_dir: &Path) -> String {
    let workspace = quote_workspace_of(run_dir);
    format!(
        "restore the journal from a backup; `delta rm {id} -w {workspace}` removes the rest of the run"
    )
}

/// The words of a printed command after `-w` for the run in `dir`.
pub fn quote_workspace_of(dir: &Path) -> String {
    let root = workspace::workspace_of_run(dir);
    workspace::quote_workspace(root.as_deref().unwrap_or(dir))
}
