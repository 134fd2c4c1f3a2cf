//! `delta send --copy --redact FILE`: the values in the file, and the copy of a run without them.

use delta_base::durable;
use delta_base::redact::Secrets;
use delta_base::terminal_text::strip_terminal_controls;
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::state;
use delta_run::event::{Payload, SentRun};
use delta_run::fork::bundle::{Manifest, SentFile};
use delta_run::fork::redacted_copy::{RedactedCopy, RedactionError};
use delta_run::journal::seal::Sealer;
use delta_snapshot::{ExcludePatterns, SnapshotStore};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How many names a note lists.
const MAX_LISTED: usize = 5;

/// The values in a file, one a line.
#[derive(Debug)]
pub struct RedactedValues {
    path: PathBuf,
    /// Each value with the number of its line.
    lines: Vec<(usize, String)>,
    secrets: Secrets,
}

impl RedactedValues {
    /// Reads the file. Blank lines do not count.
    pub fn read(path: &Path) -> Result<Self, CommandFailure> {
        let text = durable::read_large_text(path).map_err(durable::FileError::at("read", path))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let lines: Vec<(usize, String)> =
            lines.map(|(index, line)| (index + 1, line.to_owned())).collect();
        let minimum = Secrets::MIN_LENGTH;
        let name = path.display();
        if let Some((line, _)) = lines.iter().find(|(_, value)| value.len() < minimum) {
            let message =
                format!("the value on line {line} of {name} is shorter than {minimum} bytes");
            let hint =
                "a short value would also match inside ordinary words: write more of its text";
            return Err(CommandFailure::usage(message, hint));
        }
        if lines.is_empty() {
            let message = format!("{name} has no values");
            return Err(CommandFailure::usage(message, "write one value a line"));
        }
        let secrets = Secrets::new(lines.iter().map(|(_, value)| value.clone()));
        Ok(Self { path: path.to_owned(), lines, secrets })
    }

    /// Copies a run without the values into a directory next to it, and redacts what closes the copy.
    pub fn redact_run(
        &self,
        run: &LocatedRun,
        store: &SnapshotStore,
        files: &[SentFile],
        lines: &[u8],
        sent: &mut SentRun,
    ) -> Result<RedactedCopy, CommandFailure> {
        let failed = |error| self.explain(run, error);
        let name = format!(".redacted-{}", run.id);
        let mut copy = RedactedCopy::create(run.dir.with_file_name(name), self.secrets.clone())?;
        let mut copies = SnapshotStore::open(&copy.dir, ExcludePatterns::default())?;
        let trees: Vec<_> = [sent.tree, sent.agent].into_iter().flatten().collect();
        let named = if sent.tree.is_some() { lines } else { &[] };
        copy.copy_snapshots(store, &mut copies, &trees, named).map_err(failed)?;
        let sealer = Sealer::new(state::seal_keys(), run.id.clone());
        copy.copy_files(files, lines, sealer).map_err(failed)?;
        sent.left.extend(copy.has_git.then(|| ".git".to_owned()));
        sent.left.push("redacted values".to_owned());
        let payload = copy.redact_payload(&Payload::Sent(Box::new(sent.clone())));
        let payload = payload.map_err(|reason| failed(RedactionError::Line(0, reason)))?;
        if let Payload::Sent(redacted) = payload {
            *sent = SentRun { redacted: Some(copy.found.places()), ..*redacted };
        }
        Ok(copy)
    }

    /// Searches what is sent once more.
    pub fn check(
        &self,
        run: &LocatedRun,
        copy: &RedactedCopy,
        files: &[SentFile],
        manifest: &Manifest,
    ) -> Result<(), CommandFailure> {
        copy.check(files, &manifest.to_json()).map_err(|error| self.explain(run, error))
    }

    fn explain(&self, run: &LocatedRun, error: RedactionError) -> CommandFailure {
        match error {
            RedactionError::File(error) => error.into(),
            RedactionError::Snapshot(error) => error.into(),
            error => {
                let message = format!("run {} cannot be copied: {error}", run.id);
                let hint = format!("leave that value out of {}", self.path.display());
                CommandFailure::conflict(message, hint)
            }
        }
    }

    /// What was redacted, and what was not.
    pub fn describe(&self, copy: &RedactedCopy) -> Vec<String> {
        let secrets = self.secrets.values().iter().enumerate();
        let known: BTreeSet<&String> = secrets
            .filter(|(index, _)| copy.found.contains(*index))
            .map(|(_, value)| value)
            .collect();
        let missing = self.lines.iter().filter(|(_, value)| !known.contains(value));
        let missing: Vec<String> = missing.map(|(line, _)| line.to_string()).collect();
        let places = usize::try_from(copy.found.places()).unwrap_or(usize::MAX);
        let mut notes = vec![format!("Redacted values in {}", pluralize(places, "place"))];
        if !missing.is_empty() {
            let path = self.path.display();
            notes.push(format!("Note: not in the run: line {} of {path}", missing.join(", ")));
        }
        if !copy.compressed.is_empty() {
            let mut names: Vec<&str> =
                copy.compressed.iter().map(String::as_str).take(MAX_LISTED).collect();
            names.extend((copy.compressed.len() > MAX_LISTED).then_some("..."));
            let names = strip_terminal_controls(&names.join(", "));
            notes.push(format!("Note: compressed, and not searched: {names}"));
        }
        notes
    }
}
