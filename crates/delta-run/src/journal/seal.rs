//! Seals: what shows that a run was made, or accepted, by the operator who continues it.
//!
//! A run directory can come with a cloned repository, or be written by a tool. A seal is an Ed25519 signature with a key that is
//! outside of every workspace, so that others check it with the public half. It covers the run id, the agent directory, the
//! chain value ([`crate::chain`]) that the event follows, and the event's own line up to the seal. The events have one with
//! which a process starts or ends, with which a call is approved, and of what is done to a run between two processes.
//!
//! Earlier versions sealed with an HMAC-SHA256, which only the operator can check. In their lines without chain values, the
//! seal of ENGINE_START covers the run id and the agent directory only, and the other ones every byte before them. So settings
//! of the LLM in such an ENGINE_START count only if a later seal covers them.
//!
//! The seal of ENGINE_START shows that an engine wrote that line after that chain value, whatever became of the lines before:
//! a journal that was edited by hand stays its operator's. So does the seal of FORK. All other seals hold only if the chain
//! does.
//!
//! A run whose last ENGINE_START or RUN_TRUSTED has no valid seal of the operator is *foreign*: it is data, which can be read.

use crate::chain::{ChainLink, ChainValue, split_line};
use crate::event::{Event, Payload, RunFork};
use crate::journal::seal_key::{SealKey, SealedBytes};
use crate::journal::signature::{PublicKey, Signature, SignedBy};
use delta_base::id::RunId;
use sha2::{Digest, Sha256};

/// The start of the seal in a line of the journal. The seal is the last field before the chain value.
pub(crate) const SEAL_FIELD: &[u8] = b",\"seal\":\"";

/// Who may have sealed an event, the most trusted last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signer {
    /// Who has a key that a command line names.
    Given,
    /// A process in a sandbox of this run.
    Sandbox(RunId),
    /// Who has the key that the operator accepts under this name.
    Accepted(String),
    /// The operator.
    Own,
}

/// The keys whose seals say something.
#[derive(Debug, Clone, Default)]
pub struct SealKeys {
    own: Option<SealKey>,
    others: Vec<(Signer, OtherKey)>,
}

#[derive(Debug, Clone)]
enum OtherKey {
    Public(PublicKey),
    Derived(SealKey),
}

impl SealKeys {
    /// The keys of an operator, if there are any.
    pub fn new(seal_key: Option<SealKey>) -> Self {
        Self { own: seal_key, others: Vec::new() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.own.is_none() && self.others.is_empty()
    }

    /// The operator's keys.
    pub fn own_key(&self) -> Option<&SealKey> {
        self.own.as_ref()
    }

    /// Adds the public key of another signer.
    pub fn add(&mut self, signer: Signer, key: PublicKey) {
        self.others.push((signer, OtherKey::Public(key)));
    }

    /// The keys for a run that a tool in a sandbox of the run `run_id` has started. `derived` are the keys that the operator
    /// can derive, `recorded` the ones that sealed events of that run name.
    pub fn for_inner_runs(
        &self,
        run_id: &RunId,
        derived: impl IntoIterator<Item = SealKey>,
        recorded: impl IntoIterator<Item = PublicKey>,
    ) -> Self {
        let outer = self.others.iter().filter(|(signer, _)| !matches!(signer, Signer::Sandbox(_)));
        let derived = derived.into_iter().map(OtherKey::Derived);
        let inner = derived.chain(recorded.into_iter().map(OtherKey::Public));
        let inner = inner.map(|key| (Signer::Sandbox(run_id.clone()), key));
        Self { own: self.own.clone(), others: outer.cloned().chain(inner).collect() }
    }

    /// The secret keys that can have given the sandboxes of a run their keys.
    pub fn secret_keys(&self) -> impl Iterator<Item = &SealKey> {
        let derived = self.others.iter().filter_map(|(_, key)| match key {
            OtherKey::Derived(key) => Some(key),
            OtherKey::Public(_) => None,
        });
        self.own.iter().chain(derived)
    }

    /// Who has signed `message`, other than with the key of a sandbox.
    pub fn find_signer(
        &self,
        message: &[u8],
        signature: &Signature,
    ) -> Option<(Signer, PublicKey)> {
        let own_keys = self.own.iter().flat_map(SealKey::public_keys);
        let others = self.others.iter().filter_map(|(signer, key)| match (signer, key) {
            (Signer::Sandbox(_), _) | (_, OtherKey::Derived(_)) => None,
            (signer, OtherKey::Public(key)) => Some((signer.clone(), *key)),
        });
        let mut keys = own_keys.map(|key| (Signer::Own, key)).chain(others);
        keys.find(|(_, key)| key.verifies(message, signature))
    }

    /// Whose valid seal of `covered` it is.
    fn check(&self, covered: &SealedBytes, seal: &str) -> SealCheck {
        let signed = SignedBy::parse(seal);
        let is_valid = |key: &OtherKey| match (key, &signed) {
            (OtherKey::Derived(key), _) => key.is_valid(covered, seal),
            (OtherKey::Public(key), Some(signed)) => {
                *key == signed.key && covered.is_signed(signed)
            }
            (OtherKey::Public(_), None) => false,
        };
        let key = signed.map(|signed| signed.key);
        if self.own.as_ref().is_some_and(|key| key.is_valid(covered, seal)) {
            return SealCheck::Valid { signer: Signer::Own, key };
        }
        match (self.others.iter().find(|(_, key)| is_valid(key)), signed) {
            (Some((signer, _)), _) => SealCheck::Valid { signer: signer.clone(), key },
            (None, Some(signed)) if covered.is_signed(&signed) => {
                SealCheck::Unexpected { signer: None, key }
            }
            (None, _) => SealCheck::Invalid,
        }
    }
}

/// What the seals of a journal say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SealStatus {
    /// Who made or trusted the run; `None` if the key is not known.
    pub signer: Option<Signer>,
    /// Whether the journal was changed after it was sealed last.
    pub is_edited: bool,
    /// Whether the result of the run is sealed: it is what the engine recorded.
    pub is_result_sealed: bool,
}

impl SealStatus {
    /// Whether the run was made or trusted by this operator, so that the agent directory that it names may be loaded.
    pub fn is_own(&self) -> bool {
        self.signer == Some(Signer::Own)
    }

    /// The note about a result of the run `id` that is taken because its key is accepted.
    pub fn accepted_note(&self, id: &RunId) -> Option<String> {
        match &self.signer {
            Some(Signer::Accepted(name)) => {
                Some(format!("Note: run {id} is of {name}, whose key you accept"))
            }
            _ => None,
        }
    }

    /// Whether the journal has nothing but what this operator's engine recorded, or the operator trusts.
    pub fn is_own_and_unchanged(&self) -> bool {
        self.is_own() && !self.is_edited
    }
}

/// What the seal of an event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealCheck {
    /// Events of its type have none.
    NotSealed,
    /// The engine of the signer wrote the event, and the journal before it.
    Valid {
        /// Whose key it is.
        signer: Signer,
        /// The key; `None` for a seal of an earlier version.
        key: Option<PublicKey>,
    },
    /// The seal is valid, and its signer must not seal events of the process.
    Unexpected {
        /// Whose key it is; `None` if nothing says that.
        signer: Option<Signer>,
        /// The key; `None` for a seal of an earlier version.
        key: Option<PublicKey>,
    },
    /// There is none, or something was changed.
    Invalid,
}

impl SealCheck {
    fn signer(&self) -> Option<&Signer> {
        match self {
            Self::Valid { signer, .. } => Some(signer),
            Self::NotSealed | Self::Unexpected { .. } | Self::Invalid => None,
        }
    }
}

/// Seals events that are appended to a journal, or checks events that are read from it.
#[derive(Debug, Clone)]
pub struct Sealer {
    keys: SealKeys,
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
    pub fn new(keys: SealKeys, run_id: RunId) -> Self {
        Self {
            keys,
            line_run_id: run_id.clone(),
            run_id,
            agent_home: String::new(),
            unchained: Sha256::new(),
            has_unsealed_settings: false,
            status: SealStatus::default(),
            edited_line: None,
        }
    }

    /// The operator's keys; without any, nothing is sealed.
    pub(crate) fn key(&self) -> Option<&SealKey> {
        self.keys.own_key()
    }

    /// What the seals of the lines so far say.
    pub fn status(&self) -> SealStatus {
        let is_this_run = self.line_run_id == self.run_id && !self.has_unsealed_settings;
        let signer = self.status.signer.clone().filter(|_| is_this_run);
        SealStatus { signer, ..self.status }
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
        match &event.payload {
            Payload::EngineStart(start) => {
                self.line_run_id.clone_from(&start.run_id);
                self.agent_home.clone_from(&start.agent_home);
                let check = self.check_start(line, start.seal.as_deref(), link);
                // What can name a command or another model: the next seal of an earlier version covers it.
                let config = &start.config;
                let has_settings =
                    !config.llm_settings().is_empty() || config.model_option().is_some();
                self.has_unsealed_settings = !link.is_chained && has_settings;
                self.status.signer = check.signer().cloned();
                self.status.is_result_sealed = false;
                check
            }
            Payload::Fork(fork) => self.check_fork(line, fork, link),
            Payload::RunTrusted { run_id, .. } => {
                self.line_run_id.clone_from(run_id);
                let check = self.check_covering(line, link);
                let signer = check.signer().cloned();
                self.has_unsealed_settings &= signer.is_none();
                let is_result_sealed = signer.is_some();
                self.status = SealStatus { signer, is_edited: false, is_result_sealed };
                check
            }
            Payload::EngineEnd { .. } => {
                let check = self.check_in_process(line, link);
                let is_sealed = check.signer().is_some();
                self.has_unsealed_settings &= !is_sealed;
                self.status.is_edited = !is_sealed;
                self.status.is_result_sealed = is_sealed;
                check
            }
            // A decision lets a call start, and limits let calls be made. The others take place between two processes, or after
            // the end of one, and change no result.
            Payload::ApprovalDecision(_)
            | Payload::LimitsChanged(_)
            | Payload::Rollback { .. }
            | Payload::Apply(_)
            | Payload::ApplyEnd { .. }
            | Payload::Discard { .. }
            | Payload::Sent(_) => {
                if !link.is_chained || self.status.signer.is_none() {
                    return SealCheck::NotSealed;
                }
                let check = self.check_in_process(line, link);
                let is_sealed = check.signer().is_some();
                if !is_sealed {
                    self.status.is_edited = true;
                    self.status.is_result_sealed = false;
                }
                check
            }
            Payload::Snapshot(_) | Payload::Turn { .. } => SealCheck::NotSealed,
            _ => {
                if self.status.is_result_sealed {
                    // Nothing else follows the end of a process.
                    self.status.is_edited = true;
                    self.status.is_result_sealed = false;
                }
                SealCheck::NotSealed
            }
        }
    }

    /// Checks the seal of an event that belongs to a process: only the operator's keys seal events of the operator's processes.
    fn check_in_process(&self, line: &[u8], link: &ChainLink) -> SealCheck {
        match self.check_covering(line, link) {
            SealCheck::Valid { signer, key }
                if signer != Signer::Own && self.status.signer == Some(Signer::Own) =>
            {
                SealCheck::Unexpected { signer: Some(signer), key }
            }
            check => check,
        }
    }

    /// Checks a FORK. A fork is as trustworthy as the run whose ENGINE_START it has, and as who made it. That is not the run
    /// that was forked if that one is a fork too, and had copied what this one copies.
    fn check_fork(&mut self, line: &[u8], fork: &RunFork, link: &ChainLink) -> SealCheck {
        let before = self.status.signer.take();
        self.line_run_id.clone_from(&fork.run_id);
        // Earlier versions sealed no fork.
        let is_older = !link.is_chained && link.holds;
        let was_known = before.is_some();
        let covering = self.check_covering(line, link);
        let signer = if is_older {
            before
        } else {
            // The less trusted of the two.
            self.check_chained(line, link)
                .signer()
                .cloned()
                .zip(before)
                .map(|(one, other)| one.min(other))
        };
        let is_sealed = covering.signer().is_some();
        let is_edited = was_known && !is_older && !is_sealed;
        self.status = SealStatus { signer, is_edited, is_result_sealed: false };
        if !is_sealed && (is_older || !was_known) { SealCheck::NotSealed } else { covering }
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
            | Payload::Discard { .. }
            | Payload::Sent(_) => {}
            _ => return,
        }
        let Some(key) = self.keys.own_key() else { return };
        let seal = key.seal(&self.chained_bytes(previous.as_ref(), line.as_bytes()));
        event.payload.set_seal(Some(seal));
        *line = event.to_open_line();
    }

    /// Checks the seal of ENGINE_START for the chain value that the line follows as it is recorded.
    fn check_start(&self, line: &[u8], seal: Option<&str>, link: &ChainLink) -> SealCheck {
        if link.is_chained {
            return self.check_chained(line, link);
        }
        let [run_id, agent_home] = self.start_parts();
        match seal.filter(|_| link.holds) {
            Some(seal) => self
                .keys
                .check(&SealedBytes::of_earlier_line(b"delta run", &[run_id, agent_home]), seal),
            None => SealCheck::Invalid,
        }
    }

    /// Checks whether the seal of a line covers the journal up to it.
    fn check_covering(&self, line: &[u8], link: &ChainLink) -> SealCheck {
        if !link.holds {
            return SealCheck::Invalid;
        }
        if link.is_chained {
            return self.check_chained(line, link);
        }
        let Some(position) = memchr::memmem::rfind(line, SEAL_FIELD) else {
            return SealCheck::Invalid;
        };
        let seal = line[position + SEAL_FIELD.len()..].split(|byte| *byte == b'"').next();
        let seal = seal.and_then(|seal| std::str::from_utf8(seal).ok()).unwrap_or_default();
        let digest = self.unchained.clone().chain_update(&line[..position]).finalize();
        let [run_id, agent_home] = self.start_parts();
        self.keys.check(
            &SealedBytes::of_earlier_line(b"delta journal", &[run_id, agent_home, &digest]),
            seal,
        )
    }

    fn check_chained(&self, line: &[u8], link: &ChainLink) -> SealCheck {
        // Nothing is between the seal and the chain value: a parser could take it for a field of the event.
        let (line, _) = split_line(line);
        let seal_length = line.iter().rev().skip(1).position(|byte| *byte == b'"').unwrap_or(0);
        let sealed = line.strip_suffix(b"\"").and_then(|open| {
            let (covered, seal) = open.split_at_checked(open.len().checked_sub(seal_length)?)?;
            Some((covered.strip_suffix(SEAL_FIELD)?, std::str::from_utf8(seal).ok()?))
        });
        sealed.map_or(SealCheck::Invalid, |(covered, seal)| {
            self.keys.check(&self.chained_bytes(link.previous.as_ref(), covered), seal)
        })
    }

    fn start_parts(&self) -> [&[u8]; 2] {
        [self.line_run_id.as_str().as_bytes(), self.agent_home.as_bytes()]
    }

    /// What the seal of a line with a chain value covers.
    fn chained_bytes(&self, previous: Option<&ChainValue>, covered: &[u8]) -> SealedBytes {
        let [run_id, agent_home] = self.start_parts();
        let previous = previous.map_or(&[][..], |value| value.as_str().as_bytes());
        SealedBytes::of_line(&[run_id, agent_home, previous, covered])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::ChainCheck;
    use crate::event::RunStatus;
    use delta_base::hex::encode_hex;
    use delta_base::time::Timestamp;

    fn run_id() -> RunId {
        RunId::parse("r").unwrap()
    }

    fn key(text: &str) -> SealKeys {
        SealKeys::new(SealKey::from_derived(&encode_hex(text.repeat(16).as_bytes())))
    }

    /// A journal of a message and the end of a process.
    fn sealed_lines() -> Vec<(String, Event)> {
        let message = Payload::user_message("say \",\"seal\":\"x\" twice", Vec::new());
        seal_lines([("own", message), ("own", end())])
    }

    fn end() -> Payload {
        Payload::EngineEnd {
            run_id: "r".to_owned(),
            status: RunStatus::Completed,
            final_iteration: 1,
            agent_name: None,
            usage: None,
            waits_for: None,
            seal: None,
        }
    }

    /// A journal whose events are sealed with these keys.
    fn seal_lines(
        payloads: impl IntoIterator<Item = (&'static str, Payload)>,
    ) -> Vec<(String, Event)> {
        let mut head = None;
        let seal = |(index, (name, payload))| {
            let mut event = Event::new(index as u64 + 1, Timestamp::from_millis(0), payload);
            let mut line = event.to_open_line();
            Sealer::new(key(name), run_id()).seal_event(&mut event, &mut line, head);
            head = Some(ChainValue::after(head, line.as_bytes()));
            event.chain = head;
            (event.to_line(), event)
        };
        payloads.into_iter().enumerate().map(seal).collect()
    }

    /// Who trusted a run, and who sealed its end; whose the run is, and whether the result is one that somebody known sealed.
    #[test]
    fn c_36_4_an_accepted_key_speaks_for_no_process_of_the_operator() {
        let alice = key("alice").own_key().unwrap().public_key();
        let mut keys = key("own");
        keys.add(Signer::Accepted("alice".to_owned()), alice);
        let accepted = Some(Signer::Accepted("alice".to_owned()));
        let cases = [
            ("own", "own", Some(Signer::Own), true),
            ("own", "alice", Some(Signer::Own), false),
            ("own", "eve", Some(Signer::Own), false),
            ("alice", "own", accepted.clone(), true),
            ("alice", "alice", accepted.clone(), true),
            ("alice", "eve", accepted, false),
            ("eve", "eve", None, false),
        ];
        for (first, last, signer, is_result_sealed) in cases {
            let agent_home = "/agent".to_owned();
            let trusted =
                Payload::RunTrusted { run_id: run_id(), agent_home, received: None, seal: None };
            let lines = seal_lines([(first, trusted), (last, end())]);
            let status = check(&mut Sealer::new(keys.clone(), run_id()), &lines);
            let is_edited = !is_result_sealed;
            assert_eq!(
                status,
                SealStatus { signer, is_edited, is_result_sealed },
                "{first} {last}"
            );
        }
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
}
