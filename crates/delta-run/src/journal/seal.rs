//! Seals: what shows that a run was made, or accepted, by the operator who continues it.
//!
//! A run directory can come with a cloned repository, or be written by a tool. A seal is an HMAC-SHA256 with a key that is
//! outside of every workspace. It covers the run id, the agent directory, the chain value ([`crate::chain`]) that the event
//! follows, and the event's own line up to the seal. The events have one with which a process starts or ends, with which a
//! call is approved, and of what is done to a run between two processes.
//!
//! In the lines of earlier versions, which have no chain values, the seal of ENGINE_START covers the run id and the agent
//! directory only, and the other ones every byte before them. So settings of the LLM in such an ENGINE_START count only if
//! a later seal covers them.
//!
//! The seal of ENGINE_START shows that an engine wrote that line after that chain value, whatever became of the lines before:
//! a journal that was edited by hand stays its operator's. So does the seal of FORK. All other seals hold only if the chain
//! does.
//!
//! A run whose last ENGINE_START or RUN_TRUSTED has no valid seal is *foreign*: it is data, which can be read.

use crate::chain::{ChainLink, ChainValue, split_line};
use crate::event::{Event, Payload, RunFork};
use delta_base::durable::{self, FileError};
use delta_base::hex::{decode_hex, encode_hex};
use delta_base::id::RunId;
use delta_base::random;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The length of a new key.
const KEY_BYTES: usize = 32;
/// The shortest key that is accepted.
const MIN_KEY_BYTES: usize = 16;

/// The start of the seal in a line of the journal. The seal is the last field before the chain value.
pub(crate) const SEAL_FIELD: &[u8] = b",\"seal\":\"";

/// The operator's key for seals.
#[derive(Clone)]
pub struct SealKey(Hmac<Sha256>);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

/// Why the operator's key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    /// The key could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key could not be read.
    #[error("could not read the key {}: {source}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl SealKeyError {
    /// Whether another attempt may succeed: the disk is full or broken, or too many files are open.
    pub fn is_temporary(&self) -> bool {
        use rustix::io::Errno;
        let (Self::File(FileError { source, .. }) | Self::Unusable { source, .. }) = self;
        let code = source.raw_os_error();
        [Errno::MFILE, Errno::NFILE, Errno::NOSPC, Errno::DQUOT, Errno::IO]
            .iter()
            .any(|errno| Some(errno.raw_os_error()) == code)
    }
}

impl SealKey {
    /// Reads the key in the file `path`. Creates it if it is missing; of several processes that do this at once, all get
    /// the same key.
    ///
    /// # Errors
    /// The file cannot be read or written, belongs to another user, or is too short.
    pub fn load_or_create(path: &Path) -> Result<Self, SealKeyError> {
        match durable::read_regular(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key: [u8; KEY_BYTES] = random::random_bytes();
                let text = format!("{}\n", encode_hex(&key));
                durable::create_private_once(path, text.as_bytes())?;
            }
            _ => {}
        }
        let unusable = |source| SealKeyError::Unusable { path: path.to_owned(), source };
        let bytes = durable::read_regular(path).map_err(unusable)?;
        let metadata = path.metadata().map_err(unusable)?;
        if !durable::is_own_or_roots(&metadata) {
            let reason = format!("it belongs to user {}", metadata.uid());
            return Err(unusable(io::Error::other(reason)));
        }
        let bytes = bytes.trim_ascii();
        if bytes.len() < MIN_KEY_BYTES {
            let reason = format!("it has fewer than {MIN_KEY_BYTES} bytes");
            return Err(unusable(io::Error::other(reason)));
        }
        Ok(Self::from_bytes(bytes))
    }

    /// The key for the runs that tools in a sandbox of the run `run_id` in `run_dir` start, as hexadecimal digits. It is the
    /// same for every process of the run, seals nothing else, and does not lead back to this key.
    pub fn derive_for_inner_runs(&self, run_id: &RunId, run_dir: &Path) -> String {
        let run_dir = run_dir.as_os_str().as_encoded_bytes();
        self.seal(&[b"delta inner runs", run_id.as_str().as_bytes(), run_dir])
    }

    /// The key that [`SealKey::derive_for_inner_runs`] gave; `None` if it is too short for one.
    pub fn from_derived(text: &str) -> Option<Self> {
        decode_hex(text)
            .filter(|bytes| bytes.len() >= MIN_KEY_BYTES)
            .map(|bytes| Self::from_bytes(&bytes))
    }

    /// A hash of the variable `name` with this value, in 16 hexadecimal digits. Without the key, no guess of the value can be checked.
    pub fn hash_variable(&self, name: &[u8], value: &[u8]) -> String {
        let mut hash = self.seal(&[b"delta environment", name, value]);
        hash.truncate(16);
        hash
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self(Hmac::new_from_slice(bytes).expect("HMAC takes a key of any length"))
    }

    /// The authentication code of `parts`, each of which is preceded by its length.
    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }

    pub(crate) fn seal(&self, parts: &[&[u8]]) -> String {
        encode_hex(&self.mac(parts).finalize().into_bytes())
    }

    /// Whether `seal` is the seal of `parts`, in a time that does not depend on where they differ.
    pub(crate) fn is_valid(&self, parts: &[&[u8]], seal: &str) -> bool {
        let is_written_so = !seal.bytes().any(|digit| digit.is_ascii_uppercase());
        is_written_so
            && decode_hex(seal).is_some_and(|bytes| self.mac(parts).verify_slice(&bytes).is_ok())
    }
}

/// What the seals of a journal say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SealStatus {
    /// Whether the run was made or trusted by this operator, so that the agent directory that it names may be loaded.
    pub is_own: bool,
    /// Whether the journal was changed after it was sealed last.
    pub is_edited: bool,
    /// Whether the result of the run is sealed: it is what the engine recorded.
    pub is_result_sealed: bool,
}

/// What the seal of an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealCheck {
    /// Events of its type have none.
    NotSealed,
    /// The operator's engine wrote the event, and the journal before it.
    Valid,
    /// It is another operator's, or something was changed.
    Invalid,
}

/// Seals events that are appended to a journal, or checks events that are read from it.
#[derive(Debug, Clone)]
pub struct Sealer {
    key: SealKey,
    /// The run whose journal it is.
    run_id: RunId,
    /// The run of the last event that names it: a fork begins with lines of another run.
    line_run_id: RunId,
    /// The agent directory of the last ENGINE_START.
    agent_home: String,
    /// The lines without chain values at the beginning of the journal.
    unchained: Sha256,
    /// Whether the last ENGINE_START has settings that no seal covers.
    has_unsealed_settings: bool,
    status: SealStatus,
    /// The line that shows that the journal was changed after it was sealed.
    edited_line: Option<u64>,
}

impl Sealer {
    /// A sealer for the journal of the run `run_id`, from its first line on.
    pub fn new(key: SealKey, run_id: RunId) -> Self {
        Self {
            key,
            line_run_id: run_id.clone(),
            run_id,
            agent_home: String::new(),
            unchained: Sha256::new(),
            has_unsealed_settings: false,
            status: SealStatus::default(),
            edited_line: None,
        }
    }

    /// The key.
    pub(crate) fn key(&self) -> &SealKey {
        &self.key
    }

    /// What the seals of the lines so far say.
    pub fn status(&self) -> SealStatus {
        let is_this_run = self.line_run_id == self.run_id && !self.has_unsealed_settings;
        SealStatus { is_own: self.status.is_own && is_this_run, ..self.status }
    }

    /// The line that does not agree with the seals, if the journal was changed after it was sealed.
    pub fn edited_line(&self) -> Option<u64> {
        self.edited_line.filter(|_| self.status.is_edited)
    }

    /// Checks the next line of the journal, its event, and how the chain links it.
    pub fn check_line(&mut self, line: &[u8], event: &Event, link: &ChainLink) -> SealCheck {
        let was_edited = self.status.is_edited;
        let check = self.check_event(line, event, link);
        if self.status.is_edited && !was_edited {
            self.edited_line = Some(event.seq);
        }
        if !link.is_chained {
            self.unchained.update(line);
        }
        check
    }

    fn check_event(&mut self, line: &[u8], event: &Event, link: &ChainLink) -> SealCheck {
        let is_valid = match &event.payload {
            Payload::EngineStart(start) => {
                self.line_run_id.clone_from(&start.run_id);
                self.agent_home.clone_from(&start.agent_home);
                let is_own = self.is_start_sealed(line, start.seal.as_deref(), link);
                // What can name a command or another model: the next seal of an earlier version covers it.
                let config = &start.config;
                let has_settings =
                    !config.llm_settings().is_empty() || config.model_option().is_some();
                self.has_unsealed_settings = !link.is_chained && has_settings;
                self.status = SealStatus { is_own, is_result_sealed: false, ..self.status };
                is_own
            }
            Payload::Fork(fork) => return self.check_fork(line, fork, link),
            Payload::RunTrusted { run_id, .. } => {
                self.line_run_id.clone_from(run_id);
                let is_own = self.is_line_sealed(line, link);
                self.has_unsealed_settings &= !is_own;
                self.status = SealStatus { is_own, is_edited: false, is_result_sealed: is_own };
                is_own
            }
            Payload::EngineEnd { .. } => {
                let is_sealed = self.is_line_sealed(line, link);
                self.has_unsealed_settings &= !is_sealed;
                self.status.is_edited = !is_sealed;
                self.status.is_result_sealed = is_sealed;
                is_sealed
            }
            // A decision lets a call start, and limits let calls be made. The others take place between two processes, or after
            // the end of one, and change no result.
            Payload::ApprovalDecision(_)
            | Payload::LimitsChanged(_)
            | Payload::Rollback { .. }
            | Payload::Apply(_)
            | Payload::ApplyEnd { .. }
            | Payload::Discard { .. } => {
                if !link.is_chained || !self.status.is_own {
                    return SealCheck::NotSealed;
                }
                let is_sealed = self.is_line_sealed(line, link);
                if !is_sealed {
                    self.status.is_edited = true;
                    self.status.is_result_sealed = false;
                }
                is_sealed
            }
            Payload::Snapshot(_) | Payload::Turn { .. } => return SealCheck::NotSealed,
            _ => {
                if self.status.is_result_sealed {
                    // Nothing else follows the end of a process.
                    self.status =
                        SealStatus { is_edited: true, is_result_sealed: false, ..self.status };
                }
                return SealCheck::NotSealed;
            }
        };
        if is_valid { SealCheck::Valid } else { SealCheck::Invalid }
    }

    /// Checks a FORK. A fork by this operator is as trustworthy as the run whose ENGINE_START it has. That is not the run that
    /// was forked if that one is a fork too, and had copied what this one copies.
    fn check_fork(&mut self, line: &[u8], fork: &RunFork, link: &ChainLink) -> SealCheck {
        let was_own = self.status.is_own;
        self.line_run_id.clone_from(&fork.run_id);
        // Earlier versions sealed no fork.
        let is_older = !link.is_chained && link.holds;
        let is_sealed = self.is_line_sealed(line, link);
        self.status = SealStatus {
            is_own: was_own && (is_older || self.is_chained_line_sealed(line, link)),
            is_edited: was_own && !is_older && !is_sealed,
            is_result_sealed: false,
        };
        match (is_older || !was_own, is_sealed) {
            (_, true) => SealCheck::Valid,
            (true, false) => SealCheck::NotSealed,
            (false, false) => SealCheck::Invalid,
        }
    }

    /// Sets the seal of an event that follows a line with the chain value `previous`, if events of its type are sealed.
    /// `line` is the event's line up to its chain value.
    pub(crate) fn seal_event(
        &mut self,
        event: &mut Event,
        line: &mut String,
        previous: Option<ChainValue>,
    ) {
        match &event.payload {
            Payload::EngineStart(start) => {
                self.line_run_id.clone_from(&start.run_id);
                self.agent_home.clone_from(&start.agent_home);
            }
            Payload::Fork(fork) => self.line_run_id.clone_from(&fork.run_id),
            Payload::RunTrusted { run_id, .. } => self.line_run_id.clone_from(run_id),
            Payload::EngineEnd { .. }
            | Payload::ApprovalDecision(_)
            | Payload::LimitsChanged(_)
            | Payload::Rollback { .. }
            | Payload::Apply(_)
            | Payload::ApplyEnd { .. }
            | Payload::Discard { .. } => {}
            _ => return,
        }
        let seal = self.key.seal(&self.chain_parts(previous.as_ref(), line.as_bytes()));
        event.payload.set_seal(Some(seal));
        *line = event.to_open_line();
    }

    /// Whether the seal of ENGINE_START is valid for the chain value that the line follows as it is recorded.
    fn is_start_sealed(&self, line: &[u8], seal: Option<&str>, link: &ChainLink) -> bool {
        if link.is_chained {
            return self.is_chained_line_sealed(line, link);
        }
        link.holds && seal.is_some_and(|seal| self.key.is_valid(&self.start_parts(), seal))
    }

    /// Whether the seal of a line covers the journal up to it.
    fn is_line_sealed(&self, line: &[u8], link: &ChainLink) -> bool {
        if !link.holds || link.is_chained {
            return link.holds && self.is_chained_line_sealed(line, link);
        }
        let Some(position) = memchr::memmem::rfind(line, SEAL_FIELD) else { return false };
        let seal = line[position + SEAL_FIELD.len()..].split(|byte| *byte == b'"').next();
        let seal = seal.and_then(|seal| std::str::from_utf8(seal).ok()).unwrap_or_default();
        let digest = self.unchained.clone().chain_update(&line[..position]).finalize();
        let [_, run_id, agent_home] = self.start_parts();
        self.key.is_valid(&[b"delta journal", run_id, agent_home, &digest], seal)
    }

    fn is_chained_line_sealed(&self, line: &[u8], link: &ChainLink) -> bool {
        // Nothing is between the seal and the chain value: a parser could take it for a field of the event.
        let (line, _) = split_line(line);
        let seal_length = line.iter().rev().skip(1).position(|byte| *byte == b'"').unwrap_or(0);
        let sealed = line.strip_suffix(b"\"").and_then(|open| {
            let (covered, seal) = open.split_at_checked(open.len().checked_sub(seal_length)?)?;
            Some((covered.strip_suffix(SEAL_FIELD)?, std::str::from_utf8(seal).ok()?))
        });
        sealed.is_some_and(|(covered, seal)| {
            self.key.is_valid(&self.chain_parts(link.previous.as_ref(), covered), seal)
        })
    }

    fn start_parts(&self) -> [&[u8]; 3] {
        [b"delta run", self.line_run_id.as_str().as_bytes(), self.agent_home.as_bytes()]
    }

    /// What the seal of a line with a chain value covers.
    fn chain_parts<'a>(
        &'a self,
        previous: Option<&'a ChainValue>,
        covered: &'a [u8],
    ) -> [&'a [u8]; 5] {
        let [_, run_id, agent_home] = self.start_parts();
        let previous = previous.map_or(&[][..], |value| value.as_str().as_bytes());
        [b"delta chain", run_id, agent_home, previous, covered]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::ChainCheck;
    use crate::event::RunStatus;
    use delta_base::time::Timestamp;

    fn run_id() -> RunId {
        RunId::parse("r").unwrap()
    }

    fn key(text: &str) -> SealKey {
        SealKey::from_bytes(text.as_bytes())
    }

    /// A journal of a message and the end of a process.
    fn sealed_lines() -> Vec<(String, Event)> {
        let mut sealer = Sealer::new(key("own"), run_id());
        let mut head = None;
        let payloads = [
            Payload::user_message("say \",\"seal\":\"x\" twice", Vec::new()),
            Payload::EngineEnd {
                run_id: "r".to_owned(),
                status: RunStatus::Completed,
                final_iteration: 1,
                agent_name: None,
                usage: None,
                waits_for: None,
                seal: None,
            },
        ];
        let seal = |(index, payload)| {
            let mut event = Event::new(index as u64 + 1, Timestamp::from_millis(0), payload);
            let mut line = event.to_open_line();
            sealer.seal_event(&mut event, &mut line, head);
            head = Some(ChainValue::after(head, line.as_bytes()));
            event.chain = head;
            (event.to_line(), event)
        };
        payloads.into_iter().enumerate().map(seal).collect()
    }

    fn check(sealer: &mut Sealer, lines: &[(String, Event)]) -> SealStatus {
        let mut chain = ChainCheck::default();
        for (line, event) in lines {
            let link = chain.check_line(line.as_bytes(), None);
            sealer.check_line(line.as_bytes(), event, &link);
        }
        sealer.status()
    }

    #[test]
    fn c_20_4_a_result_is_sealed_with_its_whole_journal() {
        let lines = sealed_lines();
        let mut own = Sealer::new(key("own"), run_id());
        assert!(check(&mut own, &lines).is_result_sealed);
        let mut other = Sealer::new(key("other"), run_id());
        assert!(!check(&mut other, &lines).is_result_sealed);
        let mut renamed = Sealer::new(key("own"), RunId::parse("r2").unwrap());
        assert!(!check(&mut renamed, &lines).is_result_sealed);
        for index in 0..lines.len() {
            let mut edited = lines.clone();
            edited[index].0 = edited[index].0.replacen("e", "E", 1);
            let mut own = Sealer::new(key("own"), run_id());
            assert!(check(&mut own, &edited).is_edited, "line {index}");
        }
        let mut own = Sealer::new(key("own"), run_id());
        check(&mut own, &lines);
        assert!(check(&mut own, &lines[..1]).is_edited, "something follows the end");
    }

    #[test]
    fn c_27_2_a_new_chain_over_a_changed_line_has_no_valid_seal() {
        let mut lines = sealed_lines();
        let changed = lines[0].0.replacen("twice", "never", 1);
        let (covered, _) = split_line(changed.as_bytes());
        let head = ChainValue::after(None, covered);
        lines[0].0 = format!("{},\"chain\":\"{head}\"}}\n", String::from_utf8_lossy(covered));
        let (covered, _) = split_line(lines[1].0.as_bytes());
        let covered = String::from_utf8_lossy(covered).into_owned();
        let next = ChainValue::after(Some(head), covered.as_bytes());
        lines[1].0 = format!("{covered},\"chain\":\"{next}\"}}\n");
        let mut own = Sealer::new(key("own"), run_id());
        assert!(check(&mut own, &lines).is_edited);
        assert_eq!(own.edited_line(), Some(2));
    }

    #[test]
    fn c_20_4_all_processes_get_the_same_new_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        let seals: Vec<String> = std::thread::scope(|scope| {
            let load = || SealKey::load_or_create(&path).unwrap().seal(&[b"x"]);
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seals.iter().all(|seal| *seal == seals[0]), "{seals:?}");
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "short\n").unwrap();
        assert!(SealKey::load_or_create(&path).is_err());
    }
}
