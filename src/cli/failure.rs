//! What a person is told when a command cannot do its work, and with which exit code it leaves.

use super::stdout;
use crate::context::ContextError;
use crate::diag::Report;
use crate::durable::FileError;
use crate::event::RunStatus;
use crate::id::RunId;
use crate::ledger::LedgerError;
use crate::llm::{LlmError, NoEndpoint};
use crate::outcome::ErrorInfo;
use crate::ownership::OwnershipError;
use crate::snapshot::SnapshotError;
use crate::workspace::WorkspaceError;
use std::process::ExitCode;

/// Why a command failed outside of a run.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
    /// The run that was made before it failed.
    run_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What a person wrote, or the rights of a directory.
    Config,
    /// What is to be made is there already.
    Exists,
    /// There is no such run.
    NoRun,
    /// There is nothing to do it with.
    None,
    /// Somebody else works on the run.
    Active,
    /// The run cannot go on without a message.
    NeedsMessage,
    /// The run's files are not what they should be.
    Damaged,
    /// What the LLM would see cannot be put together.
    Context,
    /// The system could not do something.
    Io,
    /// What was to leave the machine or the program did not.
    NotSent,
    /// A person was asked and went away.
    Silence,
    /// A person stopped it.
    Interrupted,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Exists => "run_exists",
            Self::NoRun => "run_not_found",
            Self::None => "nothing_found",
            Self::Active => "run_active",
            Self::NeedsMessage => "message_missing",
            Self::Damaged => "damaged",
            Self::Context => "context",
            Self::Io => "io",
            Self::NotSent => "export",
            Self::Silence => "interaction",
            Self::Interrupted => "interrupted",
        }
    }

    fn exit_code(self) -> u8 {
        match self {
            Self::Config => 126,
            Self::Exists
            | Self::NoRun
            | Self::None
            | Self::Active
            | Self::NeedsMessage
            | Self::Damaged
            | Self::Context
            | Self::Io
            | Self::NotSent
            | Self::Silence => 1,
            Self::Interrupted => 130,
        }
    }
}

impl Failure {
    /// Something that a person wrote is wrong.
    pub fn config(message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self { kind: Kind::Config, message: message.into(), hint: hint.into(), run_id: None }
    }

    /// What is to be made is there already.
    pub fn exists(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::Exists, message: message.into(), hint: Some(hint.into()), run_id: None }
    }

    /// There is no such run.
    pub fn no_run(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::NoRun, message: message.into(), hint: Some(hint.into()), run_id: None }
    }

    /// Somebody else works on what is to be changed.
    pub fn active(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::Active, message: message.into(), hint: Some(hint.into()), run_id: None }
    }

    /// There is nothing to do it with.
    pub fn none(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::None, message: message.into(), hint: Some(hint.into()), run_id: None }
    }

    /// The run cannot go on without a message.
    pub fn needs_message(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: Kind::NeedsMessage,
            message: message.into(),
            hint: Some(hint.into()),
            run_id: None,
        }
    }

    /// The run's files are not what they should be.
    pub fn damaged(message: impl Into<String>, hint: Option<String>) -> Self {
        Self { kind: Kind::Damaged, message: message.into(), hint, run_id: None }
    }

    /// An export did not reach the place that it was for.
    pub fn not_sent(message: impl Into<String>, hint: Option<String>) -> Self {
        Self { kind: Kind::NotSent, message: message.into(), hint, run_id: None }
    }

    /// The stop was asked for while the command waited for something outside of a run.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self { kind: Kind::Interrupted, message: message.into(), hint: None, run_id: None }
    }

    /// A person was asked something before a run began, and there was no answer.
    pub fn unanswered(what: &str, error: &std::io::Error, hint: &str) -> Self {
        if error.kind() == std::io::ErrorKind::Interrupted {
            return Self {
                kind: Kind::Interrupted,
                message: "interrupted".to_owned(),
                hint: None,
                run_id: None,
            };
        }
        let message = format!("{what}: {error}");
        Self { kind: Kind::Silence, message, hint: Some(hint.to_owned()), run_id: None }
    }

    /// The same with a hint.
    pub fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// The status of a RunResult.
    pub fn status(&self) -> RunStatus {
        match self.kind {
            Kind::Interrupted => RunStatus::Interrupted,
            Kind::Config
            | Kind::Exists
            | Kind::NoRun
            | Kind::None
            | Kind::Active
            | Kind::NeedsMessage
            | Kind::Damaged
            | Kind::Context
            | Kind::Io
            | Kind::NotSent
            | Kind::Silence => RunStatus::Failed,
        }
    }

    /// The same of a run that was made already.
    pub fn of_run(mut self, id: &RunId) -> Self {
        self.run_id = Some(id.to_string());
        self
    }

    /// The run that was made before it failed.
    pub fn run_id(&self) -> Option<String> {
        self.run_id.clone()
    }

    /// Says it on stderr.
    pub fn complain(&self) -> ExitCode {
        // A report of diagnostics brings its own headings.
        let heading = if self.message.starts_with("error: ") { "" } else { "Error: " };
        stdout::complain(&format!("{heading}{}", self.message));
        if let Some(hint) = &self.hint {
            stdout::complain(&format!("Hint: {}", hint.replace('\n', "\n      ")));
        }
        ExitCode::from(self.kind.exit_code())
    }

    /// The error of a RunResult.
    pub fn info(&self) -> ErrorInfo {
        ErrorInfo {
            kind: self.kind.name().to_owned(),
            message: self.message.clone(),
            details: self.hint.clone(),
        }
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self::config(report.to_string(), None)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let denied = matches!(error.source.kind(), PermissionDenied | ReadOnlyFilesystem);
        let kind = if denied { Kind::Config } else { Kind::Io };
        Self { kind, message: error.to_string(), hint: None, run_id: None }
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        let message = error.to_string();
        match error {
            SnapshotError::File(error) => error.into(),
            SnapshotError::Cancelled => Self::interrupted(message),
            SnapshotError::Damaged(_) => Self::damaged(message, None),
            SnapshotError::InTheWay(_) => Self::exists(message, "move it out of the workspace"),
        }
    }
}

impl From<OwnershipError> for Failure {
    fn from(error: OwnershipError) -> Self {
        let message = error.to_string();
        match error {
            OwnershipError::File(error) => error.into(),
            OwnershipError::Active { .. } | OwnershipError::Elsewhere { .. } => {
                Self { kind: Kind::Active, message, hint: None, run_id: None }
            }
        }
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        let message = error.to_string();
        match error {
            LedgerError::File(error) => error.into(),
            LedgerError::Cancelled => Self::interrupted(message),
            _ => Self::damaged(message, None),
        }
    }
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let message = error.to_string();
        match error {
            WorkspaceError::File(error) => error.into(),
            WorkspaceError::Unusable { .. } | WorkspaceError::Symlink(_) => {
                Self::config(message, None)
            }
            WorkspaceError::Layout { .. } => Self::config(
                message,
                Some("use the version of delta that made them, or another workspace".to_owned()),
            ),
            WorkspaceError::Exists { .. } => Self {
                kind: Kind::Exists,
                message,
                hint: Some("choose another `--run-id`".to_owned()),
                run_id: None,
            },
        }
    }
}

impl From<ContextError> for Failure {
    fn from(error: ContextError) -> Self {
        let message = error.to_string();
        match error {
            ContextError::Cancelled => Self::interrupted(message),
            ContextError::Source { .. } | ContextError::Budget(_) => {
                Self { kind: Kind::Context, message, hint: None, run_id: None }
            }
        }
    }
}

impl From<NoEndpoint> for Failure {
    fn from(error: NoEndpoint) -> Self {
        Self::config(error.message, Some(error.help))
    }
}

impl From<LlmError> for Failure {
    fn from(error: LlmError) -> Self {
        Self::config(error.to_string(), None)
    }
}
