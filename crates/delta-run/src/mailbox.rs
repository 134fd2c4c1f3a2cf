//! The mailbox of a run: a directory into which others rename messages while a process works on the run, or none does.
//!
//! The file system decides every race. A rename into a directory that was removed fails, and a directory with a message
//! cannot be removed: so a run that ends has received every message, or its sender knows that it has not. A message is
//! removed when the event that has it counts, and its id in the journal keeps it from being received again.

use crate::event::{MessageSource, MessageTime};
use crate::journal::seal::SEAL_FIELD;
use crate::journal::seal_key::{SealKey, SealedBytes};
use crate::limits::Limits;
use crate::ownership::owner_process;
use crate::state::RunState;
use delta_base::durable::{self, DirEntry, DraftFile, FileError};
use delta_base::id::RunId;
use delta_base::time;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// The directory of the messages, in the run directory.
const MAILBOX_DIR: &str = "messages";
/// The name of a message that is being written, in the run directory: one in the mailbox would keep the run from ending.
const DRAFT_PREFIX: &str = "message-";
const DRAFT_SUFFIX: &str = ".draft";
/// The most bytes of the text of a message.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// The most messages that wait.
pub const MAX_WAITING: usize = 100;
/// The most bytes of a file with a message. JSON writes some characters with six bytes.
const MAX_FILE_BYTES: u64 = 8 * MAX_MESSAGE_BYTES as u64;
/// The digits of the number that begins the name of a message.
const NUMBER_DIGITS: usize = 6;

/// A message to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MailboxMessage {
    /// Who sends it, and when the run is to receive it.
    #[serde(flatten)]
    pub source: MessageSource,
    /// The run.
    pub run_id: RunId,
    /// The text; absent if the message changes limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The limits that the run has from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The most LLM answers that the process may request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// Why the limits change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl MailboxMessage {
    /// A message of the sender with the text.
    pub fn new(source: MessageSource, run_id: RunId, content: Option<String>) -> Self {
        Self { source, run_id, content, limits: None, max_iterations: None, reason: None }
    }
}

/// What sends messages by `delta tell`.
pub const COMMAND: &str = "command";
/// What sends messages by the line of input of a terminal.
pub const TERMINAL: &str = "terminal";

/// The source of a message that this process sends now.
pub fn new_message_source(id: String, by: &str, when: MessageTime) -> MessageSource {
    MessageSource {
        id,
        by: by.to_owned(),
        uid: rustix::process::geteuid().as_raw(),
        host: owner_process::current_process().hostname,
        sent_at: time::current_time(),
        when,
    }
}

/// What seals the messages to one run, and checks them.
#[derive(Debug, Clone)]
pub struct MessageSeal {
    key: SealKey,
    run_id: Option<RunId>,
    /// When the run began, in milliseconds: another run with the same id has other seals.
    created_at: [u8; 8],
}

impl MessageSeal {
    /// The seal of messages to the run with this state.
    pub fn new(key: SealKey, state: &RunState) -> Self {
        let run_id = state.start.as_ref().map(|start| start.run_id.clone());
        let created_at = state.created_at.map_or(0, |at| at.as_millis()).to_be_bytes();
        Self { key, run_id, created_at }
    }

    fn sealed_bytes(&self, covered: &[u8]) -> SealedBytes {
        SealedBytes::of_message(&[&self.created_at, covered])
    }

    /// The content of the file with `message`: a line of JSON whose last field is the seal of all before it.
    fn to_line(&self, message: &MailboxMessage) -> Vec<u8> {
        let mut line = serde_json::to_vec(message).unwrap_or_default();
        line.pop();
        let seal = self.key.seal(&self.sealed_bytes(&line));
        line.extend_from_slice(SEAL_FIELD);
        line.extend_from_slice(seal.as_bytes());
        line.extend_from_slice(b"\"}\n");
        line
    }

    /// The message in the content of a file; `None` unless it is one to the run and its seal is valid.
    fn parse_line(&self, line: &[u8]) -> Option<MailboxMessage> {
        let position = memchr::memmem::rfind(line, SEAL_FIELD)?;
        let (covered, rest) = line.split_at(position);
        let seal = rest.strip_prefix(SEAL_FIELD)?.strip_suffix(b"\"}\n")?;
        if !self.key.is_valid(&self.sealed_bytes(covered), std::str::from_utf8(seal).ok()?) {
            return None;
        }
        let message: MailboxMessage = serde_json::from_slice(&[covered, b"}"].concat()).ok()?;
        Some(message).filter(|message| Some(&message.run_id) == self.run_id.as_ref())
    }
}

/// A file in the mailbox.
#[derive(Debug)]
pub struct WaitingFile {
    path: PathBuf,
    is_dir: bool,
    /// `None` if it is not a message of the run's operator.
    pub message: Option<MailboxMessage>,
}

impl WaitingFile {
    /// Its name.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Removes it, if it still exists.
    ///
    /// # Errors
    /// It could not be removed.
    pub fn remove(&self) -> Result<(), FileError> {
        let removed = if self.is_dir {
            let removed = durable::remove_dir_all_no_follow(&self.path);
            removed.map_err(FileError::at("remove", &self.path))
        } else {
            durable::remove_file_unsynced(&self.path)
        };
        removed.or_else(|error| match error.source.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    }
}

/// Which messages a run takes where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All but those for the end: it is about to ask its LLM.
    Next,
    /// All.
    All,
    /// All, if one of them is not to wait: it is about to act.
    AllIfUrgent,
    /// Only limits: it may not ask its LLM about a text.
    Limits,
}

/// What becomes of a file in the mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFate {
    /// The run receives the message, and the file is removed.
    Receive,
    /// The run has received the message, and the file is removed.
    Known,
    /// It is not a message, and is removed.
    Foreign,
    /// The message waits.
    Keep,
}

/// Decides what becomes of each of `files`; `has_received` says which messages the journal has.
pub fn decide_fates(
    files: &[WaitingFile],
    selection: Selection,
    has_received: impl Fn(&str) -> bool,
) -> Vec<FileFate> {
    let mut sources = files.iter().filter_map(|file| Some(&file.message.as_ref()?.source));
    let has_urgent =
        sources.any(|source| source.when == MessageTime::Now && !has_received(&source.id));
    let mut received: HashSet<&str> = HashSet::new();
    let fates = files.iter().map(|file| {
        let Some(message) = &file.message else { return FileFate::Foreign };
        let id = &*message.source.id;
        let is_selected = match selection {
            Selection::AllIfUrgent => has_urgent,
            Selection::Next => message.source.when != MessageTime::End,
            Selection::All => true,
            Selection::Limits => message.content.is_none(),
        };
        if has_received(id) || received.contains(id) {
            FileFate::Known
        } else if is_selected {
            received.insert(id);
            FileFate::Receive
        } else {
            FileFate::Keep
        }
    });
    fates.collect()
}

/// The mailbox of a run.
#[derive(Debug, Clone)]
pub struct Mailbox {
    run_dir: PathBuf,
    dir: PathBuf,
    /// `None` if the run has no key: then nothing is a message.
    seal: Option<MessageSeal>,
}

/// What became of a message that was sent.
#[derive(Debug)]
pub enum Sent {
    /// It waits, and a power failure does not undo that.
    Durable,
    /// There is no mailbox: the run has ended or is about to, or no process has started to work on it.
    Closed,
    /// It may be received, and a power failure may undo it.
    Uncertain(FileError),
}

impl Mailbox {
    /// The mailbox of the run in `run_dir`, whether it exists or not.
    pub fn new(run_dir: &Path, seal: Option<MessageSeal>) -> Self {
        Self { run_dir: run_dir.to_owned(), dir: run_dir.join(MAILBOX_DIR), seal }
    }

    /// Whether a message can be sealed.
    pub fn has_key(&self) -> bool {
        self.seal.is_some()
    }

    /// Removes the drafts of senders that have died. Only for the owner of the run.
    ///
    /// # Errors
    /// The run directory cannot be read.
    pub fn remove_drafts(&self) -> Result<(), FileError> {
        for entry in list_if_exists(&self.run_dir)?.unwrap_or_default() {
            let is_draft = entry
                .name
                .to_str()
                .is_some_and(|name| name.starts_with(DRAFT_PREFIX) && name.ends_with(DRAFT_SUFFIX));
            if is_draft {
                // A sender that is alive writes it again.
                let _ = durable::remove_file_no_follow(&self.run_dir.join(&entry.name));
            }
        }
        Ok(())
    }

    /// Creates the mailbox. Only for the owner of the run, which has just taken a turn: a process that was replaced
    /// creates nothing that anything reads. A run directory that was moved away is not made again.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(&self) -> Result<(), FileError> {
        durable::ensure_private_child_dir(&self.dir)
    }

    /// The files in the mailbox, in the order in which they are received; `None` if it does not exist.
    ///
    /// # Errors
    /// The mailbox or a file in it cannot be read.
    pub fn read_waiting(&self) -> Result<Option<Vec<WaitingFile>>, FileError> {
        let Some(mut entries) = list_if_exists(&self.dir)? else { return Ok(None) };
        entries
            .sort_by_cached_key(|entry| (number_of(entry).unwrap_or(u64::MAX), entry.name.clone()));
        let mut files = Vec::with_capacity(entries.len());
        for entry in entries {
            let path = self.dir.join(&entry.name);
            let content = durable::read_no_follow_at_most(&path, MAX_FILE_BYTES);
            let message = match content {
                Ok(line) => self.seal.as_ref().and_then(|seal| seal.parse_line(&line)),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                // Not the file of a sender.
                Err(error) if is_of_others(&error) => None,
                Err(error) => return Err(FileError::at("read", &path)(error)),
            };
            files.push(WaitingFile { path, is_dir: entry.is_dir(), message });
        }
        Ok(Some(files))
    }

    /// Whether a message waits that is not to wait.
    pub fn has_urgent_message(&self) -> bool {
        let files = self.read_waiting().ok().flatten().unwrap_or_default();
        let mut messages = files.iter().filter_map(|file| file.message.as_ref());
        messages.any(|message| message.source.when == MessageTime::Now)
    }

    /// Removes the mailbox, so that nothing can be sent any more; returns false if it is not empty.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn close(&self) -> Result<bool, FileError> {
        let removed = durable::check_failpoint()
            .and_then(|()| durable::remove_empty_dir_no_follow(&self.dir));
        match removed {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(FileError::at("remove the directory", &self.dir)(error))
            }
            _ => Ok(true),
        }
    }

    /// The message `id`, if it waits.
    ///
    /// # Errors
    /// The mailbox cannot be read.
    pub fn find(&self, id: &str) -> Result<Option<MailboxMessage>, FileError> {
        let files = self.read_waiting()?.unwrap_or_default().into_iter();
        Ok(files.filter_map(|file| file.message).find(|message| message.source.id == id))
    }

    /// Sends a message, after the ones that wait. Nothing is left of one that was not sent.
    ///
    /// # Errors
    /// It was not sent.
    pub fn send(&self, message: &MailboxMessage) -> Result<Sent, FileError> {
        let Some(seal) = &self.seal else {
            let missing = io::Error::new(ErrorKind::PermissionDenied, "there is no key to seal it");
            return Err(FileError::at("write", &self.dir)(missing));
        };
        let Some(entries) = list_if_exists(&self.dir)? else { return Ok(Sent::Closed) };
        let number = entries.iter().filter_map(number_of).max().unwrap_or(0) + 1;
        let id = &message.source.id;
        let path = self.dir.join(format!("{number:0NUMBER_DIGITS$}-{id}.json"));
        let draft = self.run_dir.join(format!("{DRAFT_PREFIX}{id}{DRAFT_SUFFIX}"));
        let mut draft = DraftFile::create(&draft)?;
        draft.write(&seal.to_line(message))?;
        draft.sync()?;
        match draft.rename_unsynced(&path) {
            // A server's reply may have been lost.
            Err(_) if durable::is_file_no_follow(&path) => {}
            // Also if the next owner has removed the draft.
            Err(error) if error.source.kind() == ErrorKind::NotFound => return Ok(Sent::Closed),
            renamed => renamed?,
        }
        Ok(self.sync())
    }

    /// Makes durable what was sent.
    pub fn sync(&self) -> Sent {
        // The owner does not sync the directory that it creates.
        match durable::sync_dir(&self.dir).and_then(|()| durable::sync_dir(&self.run_dir)) {
            Ok(()) => Sent::Durable,
            // What waited was received.
            Err(error) if error.source.kind() == ErrorKind::NotFound => Sent::Closed,
            Err(error) => Sent::Uncertain(error),
        }
    }
}

/// The entries of a directory; `None` if it does not exist.
fn list_if_exists(dir: &Path) -> Result<Option<Vec<DirEntry>>, FileError> {
    match durable::read_dir_no_follow(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        entries => entries.map(Some).map_err(FileError::at("read the directory", dir)),
    }
}

/// The number at the beginning of a name; `None` if it is not the name of a message.
fn number_of(entry: &DirEntry) -> Option<u64> {
    let (number, rest) = entry.name.to_str()?.split_at_checked(NUMBER_DIGITS)?;
    let is_name = rest.starts_with('-') && rest.ends_with(".json");
    number.parse().ok().filter(|_| is_name)
}

/// Whether reading failed because the file is not what senders write.
fn is_of_others(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidData
            | ErrorKind::FileTooLarge
            | ErrorKind::IsADirectory
            | ErrorKind::PermissionDenied
    )
}

/// How many messages wait for the run in `run_dir`.
pub fn count_waiting(run_dir: &Path) -> usize {
    let entries = list_if_exists(&run_dir.join(MAILBOX_DIR)).ok().flatten().unwrap_or_default();
    entries.iter().filter(|entry| number_of(entry).is_some()).count()
}
