//! A run that a command looks at again and again while a process works on it.

use crate::failure::CommandFailure;
use crate::runs::own_run;
use crate::runs::run_argument::LocatedRun;
use delta_base::id::RunId;
use delta_run::event::{Event, RunStatus};
use delta_run::journal;
use delta_run::state::RunState;
use std::path::PathBuf;

/// Reads the journal of a run again only when it has changed.
pub struct RunWatch {
    id: RunId,
    /// The run directory.
    pub dir: PathBuf,
    /// The file that was read, and its length.
    journal: (PathBuf, u64),
    state: RunState,
}

/// What one look at a run shows.
pub struct RunLook {
    /// All events, if there are new ones since the last look.
    pub events: Option<Vec<Event>>,
    /// Whether a process works on the run.
    pub is_active: bool,
}

impl RunWatch {
    /// A watch of a run that has not looked yet.
    pub fn new(run: &LocatedRun) -> Self {
        let journal = (PathBuf::new(), 0);
        Self { id: run.id.clone(), dir: run.dir.clone(), journal, state: RunState::default() }
    }

    /// Looks at the run.
    ///
    /// # Errors
    /// The journal cannot be read, or is damaged.
    pub fn look(&mut self) -> Result<RunLook, CommandFailure> {
        // Checked before the journal is read, so that the last events of a process that ends now count.
        let is_gone = own_run::process_is_gone(&self.state);
        let path = journal::journal_path(&self.dir);
        let bytes = path.metadata().map_or(0, |journal| journal.len());
        let journal = (path, bytes);
        if bytes > 0 && journal == self.journal {
            let is_running = self.state.status == Some(RunStatus::Running);
            return Ok(RunLook { events: None, is_active: is_running && !is_gone });
        }
        let events = own_run::read_journal(&self.id, &self.dir)?.events;
        self.journal = journal;
        self.state = RunState::from_events(&events);
        let is_active = self.state.status == Some(RunStatus::Running);
        Ok(RunLook { events: Some(events), is_active })
    }
}
