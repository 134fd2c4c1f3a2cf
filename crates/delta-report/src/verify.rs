//! Verifies that a run is what delta recorded: the chain of its journal, the seals over it, the records that it names, the
//! copies of the configuration, and the runs that its calls have started.
//!
//! Reads only run directories. [`crate::replay`] checks more: that everything follows from everything else.

use crate::journal_chain::{self, ChainFindings};
use delta_base::durable;
use delta_base::id::RunId;
use delta_run::chain::{ChainCheck, ChainValue};
use delta_run::event::{Event, JournalHead, Payload, RunStatus};
use delta_run::journal::seal::{SealCheck, SealKeys, Sealer, Signer};
use delta_run::journal::seal_key::SealKey;
use delta_run::journal::signature::PublicKey;
use delta_run::journal::{self, JournalError, LineStretch};
use delta_run::run_files::{JOURNAL_FILE, METADATA_FILE};
use delta_run::run_tree::{self, ChildRunEntry};
use delta_run::state::RunState;
use delta_run::state::run_metadata::RunMetadata;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

mod verified_records;

/// Runs start each other at most so deeply that no verification follows them further.
const MAX_DEPTH: usize = 32;

/// The head of a run's journal, as it is kept outside of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnchoredHead {
    /// The id of the run.
    pub run_id: RunId,
    /// The chain value of the first line: another run may have had the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<ChainValue>,
    /// The absolute path of the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<String>,
    /// The number of the last event.
    pub seq: u64,
    /// The chain value of its line.
    pub chain: ChainValue,
}

/// What a verification knows besides the run.
#[derive(Debug)]
pub struct VerifyInputs {
    /// The keys whose seals are accepted; otherwise why the seals are not checked.
    pub keys: Result<SealKeys, String>,
    /// The heads that are kept elsewhere, if they are compared.
    pub anchors: Option<Vec<AnchoredHead>>,
}

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// Everything agrees.
    Holds,
    /// Something does not agree, and the operator has accepted it with `delta trust`.
    Accepted,
    /// Something does not agree.
    Broken,
    /// Nothing says what it should be.
    NotChecked,
}

/// One check of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunCheck {
    /// What was checked: of a run `chain`, `seal`, `records`, `configuration`, `children`, `anchor`.
    pub check: &'static str,
    /// The result.
    pub state: CheckState,
    /// How much was checked, or why nothing was.
    pub detail: String,
    /// What does not agree, each with its line or file.
    pub findings: Vec<String>,
}

impl RunCheck {
    pub(crate) fn new(check: &'static str, detail: String, findings: Vec<String>) -> Self {
        let state = if findings.is_empty() { CheckState::Holds } else { CheckState::Broken };
        Self { check, state, detail, findings }
    }

    pub(crate) fn not_checked(check: &'static str, reason: impl Into<String>) -> Self {
        let detail = reason.into();
        Self { check, state: CheckState::NotChecked, detail, findings: Vec::new() }
    }

    pub(crate) fn is_intact(&self) -> bool {
        self.state != CheckState::Broken
    }
}

/// The verification of a run and of the runs that it has started.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    /// The id of the run.
    pub run_id: RunId,
    /// Whether nothing was found that does not agree, here and in the runs below.
    pub holds: bool,
    /// The last line of the journal and its chain value.
    pub head: Option<JournalHead>,
    /// The checks.
    pub checks: Vec<RunCheck>,
    /// The valid seals, in the order of the journal.
    pub seals: Vec<VerifiedSeal>,
    /// The runs that its calls have started.
    pub children: Vec<VerifyReport>,
}

/// A valid seal.
#[derive(Debug, Clone, Serialize)]
pub struct VerifiedSeal {
    /// The number of its line.
    pub line: usize,
    /// Whose it is.
    #[serde(flatten)]
    pub owner: KeyOwner,
}

/// Whose key has sealed or signed something.
#[derive(Debug, Clone, Serialize)]
pub struct KeyOwner {
    /// `own`, `accepted`, `given`, `sandbox` or `unknown`.
    pub by: &'static str,
    /// The name of an accepted key; for `sandbox`, the run around the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key; absent for a seal of an earlier version, which only the operator can check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl KeyOwner {
    pub(crate) fn new(signer: Option<&Signer>, key: Option<&PublicKey>) -> Self {
        let (by, name) = match signer {
            Some(Signer::Own) => ("own", None),
            Some(Signer::Accepted(name)) => ("accepted", Some(name.clone())),
            Some(Signer::Given) => ("given", None),
            Some(Signer::Sandbox(run)) => ("sandbox", Some(run.to_string())),
            None => ("unknown", None),
        };
        Self { by, name, key: key.map(ToString::to_string) }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.by != "unknown"
    }

    /// Whose key it is, in words.
    pub(crate) fn describe(&self) -> String {
        match (self.by, &self.name, &self.key) {
            ("own", ..) => "your key".to_owned(),
            ("sandbox", Some(run), _) => format!("the key that run {run} gave its sandbox"),
            (_, Some(name), _) => name.clone(),
            (_, None, key) => key.clone().unwrap_or_default(),
        }
    }
}

/// Verifies the run `id` in `run_dir`.
///
/// # Errors
/// The journal cannot be read.
pub fn verify_integrity(
    id: &RunId,
    run_dir: &Path,
    inputs: &VerifyInputs,
) -> Result<VerifyReport, JournalError> {
    let mut keys = inputs.keys.clone();
    for dir in run_tree::find_enclosing_runs(run_dir).iter().skip(1).rev() {
        if let Some(id) = run_tree::recorded_run_id(dir)
            && let Ok(bytes) = journal::read_journal_bytes(dir)
        {
            let seals = VerifiedJournal::new(dir, &bytes).examine_seals(&id, &keys);
            keys = keys.map(|keys| keys_below(&keys, &id, dir, seals.inner_keys));
        }
    }
    verify_below(id, run_dir, inputs, &keys, false, &mut Vec::new())
}

/// The keys of the runs that tools of the run `id` in `run_dir` start, whose sealed events record `recorded`.
fn keys_below(keys: &SealKeys, id: &RunId, run_dir: &Path, recorded: Vec<PublicKey>) -> SealKeys {
    // A process in a sandbox seals with the key that it was given, and derives from that.
    let run_dir = run_dir.canonicalize().unwrap_or_else(|_| run_dir.to_owned());
    let derived = keys.secret_keys();
    let derived =
        derived.filter_map(|key| SealKey::from_derived(&key.derive_for_inner_runs(id, &run_dir)));
    keys.for_inner_runs(id, derived, recorded)
}

/// What the seals of a journal say.
#[derive(Default)]
struct SealFindings {
    /// What does not agree, by the number of its line.
    findings: BTreeMap<usize, String>,
    /// The last line that is sealed together with all before it.
    sealed_line: usize,
    /// The last line up to which the operator has accepted the run.
    accepted_line: usize,
    /// The valid seals.
    seals: Vec<VerifiedSeal>,
    /// The keys that the sandboxes of its processes gave the runs in them, as sealed events name them.
    inner_keys: Vec<PublicKey>,
}

/// A journal that is verified.
struct VerifiedJournal<'a> {
    run_dir: &'a Path,
    bytes: &'a [u8],
    /// Its complete lines.
    lines: Vec<LineStretch<'a>>,
    /// The events that can be read, each with the number of its line.
    events: Vec<(usize, Event)>,
    /// What these events result in.
    state: RunState,
    findings: ChainFindings,
    /// The last line up to which the operator has accepted the run as it is.
    accepted_line: usize,
}

fn verify_below(
    id: &RunId,
    run_dir: &Path,
    inputs: &VerifyInputs,
    keys: &Result<SealKeys, String>,
    is_vouched: bool,
    enclosing: &mut Vec<PathBuf>,
) -> Result<VerifyReport, JournalError> {
    let bytes = match journal::read_journal_bytes(run_dir) {
        // The file was removed after the run began.
        Err(JournalError::NoEvents(_)) if journal::has_trace(run_dir) => Vec::new(),
        bytes => bytes?,
    };
    let mut journal = VerifiedJournal::new(run_dir, &bytes);
    let mut seals = journal.examine_seals(id, keys);
    let seal = journal.check_seals(&mut seals, keys, is_vouched);
    enclosing.push(run_dir.to_owned());
    let recorded = seals.inner_keys;
    let inner_keys = keys.clone().map(|keys| keys_below(&keys, id, run_dir, recorded));
    let (children_check, children) = journal.check_children(inputs, &inner_keys, enclosing);
    enclosing.pop();
    let mut checks = vec![journal.check_chain(id), seal, journal.check_records()];
    checks.extend([journal.check_configuration(), children_check]);
    checks.extend(inputs.anchors.as_deref().map(|anchors| journal.check_anchors(id, anchors)));
    let is_intact = checks.iter().all(RunCheck::is_intact);
    let holds = is_intact && children.iter().all(|child| child.holds);
    let head = journal.findings.head;
    Ok(VerifyReport { run_id: id.clone(), holds, head, checks, seals: seals.seals, children })
}

impl<'a> VerifiedJournal<'a> {
    fn new(run_dir: &'a Path, bytes: &'a [u8]) -> Self {
        let lines = journal::line_stretches(bytes).filter(|line| line.text.ends_with(b"\n"));
        let lines: Vec<LineStretch<'_>> = lines.collect();
        let events = lines.iter().filter_map(|line| {
            let event = Event::from_line(std::str::from_utf8(line.text).ok()?).ok()?;
            Some((line.number, event))
        });
        let events: Vec<(usize, Event)> = events.collect();
        let mut state = RunState::default();
        events.iter().for_each(|(_, event)| state.apply(event));
        let findings = journal_chain::examine_chain(bytes);
        Self { run_dir, bytes, lines, events, state, findings, accepted_line: 0 }
    }

    fn check_chain(&self, id: &RunId) -> RunCheck {
        let ChainFindings { lines, older, head, faults, edits, torn_bytes, .. } = &self.findings;
        let mut findings = Vec::new();
        for fault in faults {
            let line = fault.line as u64;
            let edit = edits.iter().find(|(at, edit)| *at > line && edit.lines.contains(&line));
            let note =
                edit.map_or_else(String::new, |(at, _)| format!(", before line {at} was written"));
            findings.push(format!("line {line} {}{note}", fault.description));
        }
        let unacceptable =
            [self.find_other_metadata(), self.find_other_run(id), self.find_other_copy()];
        let unacceptable: Vec<String> = unacceptable.into_iter().flatten().collect();
        findings.extend(unacceptable.iter().cloned());
        let mut detail = format!("{lines} lines");
        if *older > 0 {
            detail.push_str(&format!(
                ", {older} of them of an earlier version, with check values only"
            ));
        }
        if let Some(head) = head {
            detail.push_str(&format!("; head {} {}", head.seq, head.chain));
        }
        if *torn_bytes > 0 {
            detail.push_str(&format!("; torn end: {torn_bytes} bytes are ignored"));
        }
        let is_accepted = faults.iter().all(|fault| fault.line <= self.accepted_line);
        let mut check = RunCheck::new("chain", detail, findings);
        if check.state == CheckState::Broken && is_accepted && unacceptable.is_empty() {
            check.state = CheckState::Accepted;
        }
        check
    }

    /// Whether metadata.json is ahead of the journal, or has something else than the journal gives.
    fn find_other_metadata(&self) -> Option<String> {
        let metadata = match RunMetadata::read(self.run_dir)? {
            Err(reason) => {
                return Some(format!(
                    "{METADATA_FILE} does not show whether the end is cut: {reason}"
                ));
            }
            Ok(metadata) => metadata,
        };
        if self.events.is_empty() {
            let RunMetadata { status, updated_at, .. } = metadata;
            return Some(format!(
                "no event can be read, and {METADATA_FILE} has {status} at {updated_at}"
            ));
        }
        let cut = metadata.find_cut(&self.state);
        // A process may have added events since the journal was read.
        cut.or_else(|| self.find_changed_fields(&metadata)).filter(|_| {
            journal::read_journal_bytes(self.run_dir).is_ok_and(|bytes| bytes == self.bytes)
        })
    }

    /// The fields of metadata.json in which it differs from the journal.
    fn find_changed_fields(&self, metadata: &RunMetadata) -> Option<String> {
        let mut expected = RunMetadata::from_state(&self.state)?;
        // By turns, a process that was replaced could write last.
        if *metadata == expected || metadata.epoch < expected.epoch {
            return None;
        }
        // A process wrote it after an earlier event, and is at work, or has died or lost its power.
        let mut state = RunState::default();
        for (_, event) in &self.events {
            state.apply(event);
            if state.updated_at == Some(metadata.updated_at) {
                expected = RunMetadata::from_state(&state).unwrap_or(expected);
                if *metadata == expected {
                    return None;
                }
            }
        }
        let [recorded, expected] =
            [metadata, &expected].map(|it| serde_json::to_value(it).unwrap_or_default());
        let names: BTreeSet<&String> = [&recorded, &expected]
            .into_iter()
            .flat_map(|it| it.as_object().into_iter().flat_map(|fields| fields.keys()))
            .collect();
        let names = names.into_iter().filter(|name| recorded.get(name) != expected.get(name));
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        Some(format!("{METADATA_FILE} differs from the journal in {}", names.join(", ")))
    }

    /// Whether the last event that names the run names another one: a directory that was renamed, or exchanged.
    fn find_other_run(&self, id: &RunId) -> Option<String> {
        let recorded = self.events.iter().rev().find_map(|(_, event)| match &event.payload {
            Payload::EngineStart(start) => Some(&start.run_id),
            Payload::Fork(fork) => Some(&fork.run_id),
            Payload::RunTrusted { run_id, .. } => Some(run_id),
            _ => None,
        })?;
        (recorded != id).then(|| format!("the journal is of run {recorded}"))
    }

    /// Whether journal.jsonl, which other programs read, has anything else than the journal of the last turn. A process that
    /// was replaced may have written more, until another one exits in order.
    fn find_other_copy(&self) -> Option<String> {
        if self.state.status == Some(RunStatus::Running) {
            return None;
        }
        let path = self.run_dir.join(JOURNAL_FILE);
        let copy = match durable::read_no_follow(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                return Some(format!("could not read {JOURNAL_FILE}: {error}"));
            }
            Ok(copy) => copy,
        };
        let complete = copy.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let is_start = self.bytes.starts_with(&copy[..complete]);
        (!is_start).then(|| format!("{} is not the journal of the last turn", JOURNAL_FILE))
    }

    /// Judges the seals. A run that another one vouches for needs none.
    fn check_seals(
        &mut self,
        seals: &mut SealFindings,
        keys: &Result<SealKeys, String>,
        is_vouched: bool,
    ) -> RunCheck {
        if let Err(reason) = keys {
            return RunCheck::not_checked("seal", reason);
        }
        let has_seals = self.events.iter().any(|(_, event)| event.payload.seal().is_some());
        if is_vouched && !has_seals {
            return RunCheck::not_checked(
                "seal",
                "the run has none; the run around it vouches for it",
            );
        }
        self.accepted_line = seals.accepted_line;
        seals.findings.retain(|line, _| *line > self.accepted_line);
        // Who owns the run takes turns after the end of a process too.
        let last = self
            .events
            .iter()
            .rev()
            .find(|(_, event)| !matches!(event.payload, Payload::Turn { .. }));
        let last = last.map_or(self.findings.lines, |(line, _)| *line);
        let mut signers: Vec<String> = Vec::new();
        for signer in seals.seals.iter().map(|seal| seal.owner.describe()) {
            if !signers.contains(&signer) {
                signers.push(signer);
            }
        }
        let signers = signers.join(" and ");
        let detail = match (seals.sealed_line, last) {
            (0, _) if has_seals && signers.is_empty() => "no seal is valid".to_owned(),
            (0, _) if has_seals => {
                format!("no line after the start of a process has a seal; the start by {signers}")
            }
            (0, _) => "no line is sealed".to_owned(),
            (line, last) if line < last => {
                format!("lines 1 to {line}, by {signers}; those after it have no seal")
            }
            (line, _) => format!("lines 1 to {line}, by {signers}"),
        };
        RunCheck::new("seal", detail, std::mem::take(&mut seals.findings).into_values().collect())
    }

    /// Checks the seals with the keys; without any, nothing is found.
    fn examine_seals(&self, id: &RunId, keys: &Result<SealKeys, String>) -> SealFindings {
        let mut seals = SealFindings::default();
        let Ok(keys) = keys else { return seals };
        let mut sealer = Sealer::new(keys.clone(), id.clone());
        let mut chain = ChainCheck::default();
        let mut events = self.events.iter().peekable();
        for LineStretch { number, text: line, .. } in self.lines.iter().copied() {
            let event = events.next_if(|(at, _)| *at == number).map(|(_, event)| event);
            let link = chain.check_line(line, event.and_then(|event| event.edited.as_deref()));
            let Some(event) = event else { continue };
            let was_edited = sealer.edited_line();
            let finding = match sealer.check_line(line, event, &link) {
                SealCheck::Valid { signer, key } => {
                    let owner = KeyOwner::new(Some(&signer), key.as_ref());
                    seals.seals.push(VerifiedSeal { line: number, owner });
                    match &event.payload {
                        Payload::EngineStart(start) => {
                            let recorded = start.config.inner_key.as_deref();
                            seals
                                .inner_keys
                                .extend(recorded.and_then(|key| PublicKey::parse(key).ok()));
                        }
                        Payload::RunTrusted { .. } => {
                            seals.sealed_line = number;
                            seals.accepted_line = number;
                        }
                        _ => seals.sealed_line = number,
                    }
                    continue;
                }
                SealCheck::Unexpected { signer, key } => {
                    let owner = KeyOwner::new(signer.as_ref(), key.as_ref());
                    let by = owner.describe();
                    let finding = match signer {
                        Some(_) => format!("has a seal of {by} in a process of yours"),
                        None => {
                            format!("has a seal of {by}, which is not yours, accepted or given")
                        }
                    };
                    seals.seals.push(VerifiedSeal { line: number, owner });
                    finding
                }
                SealCheck::Invalid if keys.own_key().is_some() => {
                    "has no valid seal of this operator".to_owned()
                }
                SealCheck::Invalid => "has no valid seal".to_owned(),
                SealCheck::NotSealed if sealer.edited_line().is_some() && was_edited.is_none() => {
                    "was added after the end of a process".to_owned()
                }
                SealCheck::NotSealed => continue,
            };
            seals.findings.insert(number, format!("line {number} {finding}"));
        }
        seals
    }

    /// Verifies the runs that calls have started, and whether their journals have the heads that the results name.
    fn check_children(
        &self,
        inputs: &VerifyInputs,
        keys: &Result<SealKeys, String>,
        enclosing: &mut Vec<PathBuf>,
    ) -> (RunCheck, Vec<VerifyReport>) {
        let mut heads: BTreeMap<RunId, Vec<(usize, JournalHead)>> = BTreeMap::new();
        for (line, event) in &self.events {
            let Payload::ActionResult(result) = &event.payload else { continue };
            for run in &result.runs {
                let head = JournalHead { seq: run.seq, chain: run.chain };
                heads.entry(run.run_id.clone()).or_default().push((*line, head));
            }
        }
        let located = self.locate_children(heads.keys());
        let mut children = Vec::new();
        let missing = heads.keys().filter(|id| !located.contains_key(*id)).count();
        let mut findings: Vec<String> = heads
            .iter()
            .flat_map(|(id, heads)| match located.get(id) {
                Some(dirs) => find_missing_heads(id, heads, dirs),
                None => self.find_hidden_child(id, heads[0].0).into_iter().collect(),
            })
            .collect();
        for (id, dir) in located.iter().flat_map(|(id, dirs)| dirs.iter().map(move |dir| (id, dir)))
        {
            if enclosing.contains(dir) || enclosing.len() >= MAX_DEPTH {
                continue;
            }
            let child_inputs = VerifyInputs { keys: inputs.keys.clone(), anchors: None };
            let is_vouched = heads.contains_key(id);
            match verify_below(id, dir, &child_inputs, keys, is_vouched, enclosing) {
                Ok(report) => children.push(report),
                Err(error) => findings.push(format!("run {id}: {error}")),
            }
        }
        let vouched = located.keys().filter(|id| heads.contains_key(*id)).count();
        let mut detail = format!("{vouched} with the heads that results name");
        let others = located.len() - vouched;
        if others > 0 {
            detail.push_str(&format!(", {others} that no result names"));
        }
        if missing > 0 {
            detail.push_str(&format!(", {missing} not found, so not checked"));
        }
        if heads.is_empty() && located.is_empty() {
            return (RunCheck::new("children", "none".to_owned(), findings), children);
        }
        if located.is_empty() && findings.is_empty() {
            return (RunCheck::not_checked("children", format!("{missing} not found")), children);
        }
        (RunCheck::new("children", detail, findings), children)
    }

    /// The directories of the child runs, also of runs that only results name. Calls may have started runs of one id in
    /// several workspaces.
    fn locate_children<'b>(
        &self,
        named: impl Iterator<Item = &'b RunId>,
    ) -> BTreeMap<RunId, Vec<PathBuf>> {
        let mut located: BTreeMap<RunId, Vec<PathBuf>> = BTreeMap::new();
        for (child, dir) in run_tree::locate_child_runs(self.run_dir) {
            let dirs = located.entry(child.run_id).or_default();
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        for id in named {
            if located.contains_key(id) {
                continue;
            }
            // The list of children is not synced: a power failure may have removed it.
            let run_dir = self.run_dir.with_file_name(id.as_str()).to_string_lossy().into_owned();
            let entry = ChildRunEntry { run_id: id.clone(), run_dir, call_id: None };
            if let Some(dir) = run_tree::locate_child_run(self.run_dir, &entry) {
                located.insert(entry.run_id, vec![dir]);
            }
        }
        located
    }

    /// Whether a run that a result names is next to this one, and names another parent.
    fn find_hidden_child(&self, id: &RunId, line: usize) -> Option<String> {
        let sibling = self.run_dir.with_file_name(id.as_str());
        durable::is_file_no_follow(&journal::journal_path(&sibling)).then(|| {
            format!(
                "run {id} does not name this run as its parent, as the result in line {line} says"
            )
        })
    }

    /// Compares the journal with the heads of the run that are kept elsewhere.
    fn check_anchors(&self, id: &RunId, anchors: &[AnchoredHead]) -> RunCheck {
        let first = self.lines.first().and_then(|line| journal::head_of_line(line.text));
        let start = first.map(|head| head.chain);
        let of_run = anchors.iter().filter(|anchor| anchor.run_id == *id);
        let heads: Vec<JournalHead> = of_run
            .clone()
            .filter(|anchor| anchor.start.is_none() || anchor.start == start)
            .map(|anchor| JournalHead { seq: anchor.seq, chain: anchor.chain })
            .collect();
        let problems = heads.iter().filter_map(|head| find_missing_head(self.bytes, *head));
        let mut findings: Vec<String> =
            problems.map(|problem| format!("the journal {problem}")).collect();
        if heads.is_empty() {
            findings.push(match of_run.count() {
                0 => "there is no head of this run".to_owned(),
                count => format!("the {count} heads of run {id} are of another journal"),
            });
        }
        // The newest run that was in this directory: an older one may have been copied over it.
        let run_dir = self.run_dir.canonicalize().unwrap_or_else(|_| self.run_dir.to_owned());
        let newest = anchors
            .iter()
            .rev()
            .find(|anchor| anchor.run_dir.as_deref().is_some_and(|dir| Path::new(dir) == run_dir));
        if let Some(newest) = newest.filter(|newest| newest.start != start && !heads.is_empty()) {
            findings.push(format!(
                "the newest head of this directory is of another journal: line {} with {}",
                newest.seq, newest.chain
            ));
        }
        let last = heads.iter().map(|head| head.seq).max();
        let up_to = last.map_or_else(String::new, |last| format!(", up to line {last}"));
        RunCheck::new("anchor", format!("{} heads{up_to}", heads.len()), findings)
    }
}

/// The heads, each of the result in a line, that none of the journals of the runs `id` has.
fn find_missing_heads(id: &RunId, heads: &[(usize, JournalHead)], dirs: &[PathBuf]) -> Vec<String> {
    let journals: Vec<Vec<u8>> =
        dirs.iter().map(|dir| journal::read_journal_bytes(dir).unwrap_or_default()).collect();
    let mut findings = Vec::new();
    for (line, head) in heads {
        let problems: Vec<String> =
            journals.iter().map_while(|bytes| find_missing_head(bytes, *head)).collect();
        if let Some(problem) = problems.first().filter(|_| problems.len() == dirs.len()) {
            findings.push(format!(
                "the journal of run {id} {problem}, as the result in line {line} says"
            ));
        }
    }
    findings
}

/// What a journal has in place of a line with this chain value; `None` if it has the line.
fn find_missing_head(journal: &[u8], head: JournalHead) -> Option<String> {
    let index = usize::try_from(head.seq).ok()?.checked_sub(1)?;
    let line = journal.split_inclusive(|byte| *byte == b'\n').nth(index);
    let Some(line) = line.filter(|line| line.ends_with(b"\n")) else {
        return Some(format!("was cut before line {}", head.seq));
    };
    let is_same = journal::head_of_line(line) == Some(head);
    (!is_same).then(|| format!("does not have the line {} with {}", head.seq, head.chain))
}

impl VerifyReport {
    /// The report as text.
    pub fn render_text(&self) -> String {
        let mut lines = Vec::new();
        self.push_lines("", &mut lines);
        lines.push(String::new());
        lines.join("\n")
    }

    fn push_lines(&self, indent: &str, lines: &mut Vec<String>) {
        let verdict = if self.holds { "is intact" } else { "is not intact" };
        lines.push(format!("{indent}run {} {verdict}", self.run_id));
        push_check_lines(&self.checks, indent, lines);
        for child in &self.children {
            child.push_lines(&format!("{indent}  "), lines);
        }
    }
}

/// Adds a line for each check, and one for each of its findings.
pub(crate) fn push_check_lines(checks: &[RunCheck], indent: &str, lines: &mut Vec<String>) {
    for check in checks {
        let state = match check.state {
            CheckState::Holds => "",
            CheckState::Accepted => "accepted with `delta trust`: ",
            CheckState::Broken => "broken: ",
            CheckState::NotChecked => "not checked: ",
        };
        let name = format!("{}:", check.check);
        lines.push(format!("{indent}  {name:15}{state}{}", check.detail));
        lines.extend(check.findings.iter().map(|finding| format!("{indent}    {finding}")));
    }
}
