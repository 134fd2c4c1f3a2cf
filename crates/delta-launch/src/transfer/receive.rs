//! `delta receive`: a run that was sent arrives in a workspace.
//!
//! A file in the state directory, which is created once, decides whether the run arrives. Before that, everything is in a
//! hidden directory; after that, every process that finds the run finishes what is left to do.

use crate::drive::continue_run::received_files::{self, PENDING_FILE};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::agent::Agent;
use delta_agent::agent::agent_rights::AgentRights;
use delta_base::durable::{self, FileError, FileLock};
use delta_base::id::SnapshotId;
use delta_base::shell_quote::shell_quote_path;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::time;
use delta_llm::llm::ModelSelection;
use delta_operator::arguments::completion_candidates;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::{CommandFailure, refuse_inside_run};
use delta_operator::runs::agent_store::AgentStore;
use delta_operator::runs::own_run;
use delta_operator::runs::restore_point::{self, MIN_ID_DIGITS};
use delta_operator::runs::transfers::{self, Arrival, TransferOutcome};
use delta_operator::{cancel, state, trust};
use delta_program::stdio;
use delta_run::event::{JournalHead, Payload, ReceivedRun};
use delta_run::fork::bundle::{
    BundleError, BundleSink, Manifest, Member, read_bundle, read_packed_bundle,
};
use delta_run::journal::seal::{SealKeys, SealStatus, Sealer, Signer};
use delta_run::journal::signature::PublicKey;
use delta_run::journal::{self, JournalFold};
use delta_run::ownership::Ownership;
use delta_run::ownership::run_process;
use delta_run::run_files::{JOURNAL_FILE, METADATA_FILE, OWNER_LOCK_FILE};
use delta_run::state::RunState;
use delta_run::state::run_metadata::RunMetadata;
use delta_run::workspace::{self, Workspace, run_removal};
use delta_snapshot::{MergeRules, StagedTrees};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a process may need to die.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Receive a run that `delta send` has written
///
/// The workspace is a new or empty directory, or one in which nothing differs from what the run found or left there. A copy can
/// be read and forked. The agent that came with the run is used if you accept the sender's key, or after `delta trust RUN`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReceiveArgs {
    /// File that `delta send` has written [default: stdin]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Replace files of the workspace that differ; a snapshot of the run keeps them
    #[arg(long)]
    overwrite: bool,
    /// Answer a `delta send` at the other end of the pipes
    #[arg(long, hide = true, conflicts_with = "file")]
    replies: bool,
    /// Refuse the transfer NONCE from now on, unless it has arrived
    #[arg(long, hide = true, value_name = "NONCE", conflicts_with_all = ["file", "replies"])]
    cancel: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  delta receive run.tgz -w ./work
  ssh host delta send RUN -w ./work -o - | delta receive -w ./work

Exit codes: 0 the run is here, 1 it was not received, 126 it is for another key";

/// Receives a run.
pub fn receive_command(args: &ReceiveArgs) -> Result<(), CommandFailure> {
    refuse_inside_run("receive runs")?;
    if let Some(nonce) = &args.cancel {
        return refuse_transfer(nonce, &args.work_dir);
    }
    let mut incoming = Incoming { args, arriving: None };
    let received = match &args.file {
        None if args.replies => read_bundle(io::stdin().lock(), &mut incoming),
        None => read_packed_bundle(io::stdin().lock(), &mut incoming),
        Some(path) => match File::open(path) {
            Ok(file) => read_packed_bundle(BufReader::new(file), &mut incoming),
            Err(error) => return Err(FileError::at("read", path)(error).into()),
        },
    };
    match received {
        Ok(lines) => incoming.finish(lines),
        Err(Stop::Failed(failure)) => Err(*failure),
        Err(Stop::Arrived(head)) => {
            incoming.reply(&json!({"received": head}));
            Ok(())
        }
    }
}

/// Refuses a transfer; prints what counts.
fn refuse_transfer(nonce: &str, work_dir: &Path) -> Result<(), CommandFailure> {
    let outcome = transfers::decide_outcome(nonce, TransferOutcome::Refused)?;
    let is_refused = outcome == TransferOutcome::Refused;
    if let Some(workspace) = Workspace::open_existing(work_dir).ok().filter(|_| is_refused) {
        // Nothing needs what has arrived of it.
        let hidden = workspace.control_dir().join(hidden_name(nonce));
        let _ = durable::remove_dir_all_no_follow(&hidden);
    }
    stdio::print_text(&format!("{}\n", json!({"refused": is_refused})));
    Ok(())
}

/// Why an archive is not read to its end.
enum Stop {
    Failed(Box<CommandFailure>),
    /// The run is here already.
    Arrived(JournalHead),
}

impl<E: Into<CommandFailure>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(Box::new(error.into()))
    }
}

struct Incoming<'a> {
    args: &'a ReceiveArgs,
    arriving: Option<ArrivingRun>,
}

/// A run on its way, in a hidden directory of its workspace.
struct ArrivingRun {
    manifest: Manifest,
    workspace: Workspace,
    dir: PathBuf,
    /// Kept while the directory is used, also under its later name.
    _lock: FileLock,
    /// The run that it left here.
    original: Option<RunState>,
    files: Option<PlannedFiles>,
}

/// What the workspace gets.
struct PlannedFiles {
    target: SnapshotId,
    /// What it has now, if that changes.
    saved: Option<SnapshotId>,
}

impl BundleSink for Incoming<'_> {
    type Error = Stop;

    fn begin(&mut self, manifest: Manifest) -> Result<Vec<Member>, Stop> {
        check_recipient(&manifest)?;
        let workspace = Workspace::open(&self.args.work_dir).map_err(CommandFailure::from)?;
        let control = workspace.create_control().map_err(CommandFailure::from)?;
        let dir = control.join(hidden_name(&manifest.nonce));
        if let Some(outcome) = transfers::find_outcome(&manifest.nonce)? {
            return Err(self.end_earlier(&manifest, outcome));
        }
        let original = find_original(&manifest, &workspace)?;
        durable::ensure_private_dir(&dir)?;
        let Some(lock) = self.lock_arriving(&dir)? else {
            let message = format!("another process receives run {}", manifest.run_id);
            return Err(CommandFailure::run_active(message, "wait for it").into());
        };
        let mut expected = manifest.members.clone();
        if self.args.replies {
            expected.retain(|member| !member.is_complete_in(&dir));
        }
        let needed: Vec<&str> = expected.iter().map(|member| &*member.path).collect();
        let key = state::own_key_text();
        self.reply(&json!({"need": needed, "key": key}));
        self.arriving =
            Some(ArrivingRun { manifest, workspace, dir, _lock: lock, original, files: None });
        Ok(expected)
    }

    fn store(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), Stop> {
        let Some(arriving) = &self.arriving else { return Ok(()) };
        if !member.is_complete_in(&arriving.dir) {
            member.store(&arriving.dir, content)?;
        }
        Ok(())
    }

    fn ready(&mut self) -> Result<(), Stop> {
        let Some(arriving) = &mut self.arriving else { return Ok(()) };
        let lines = arriving.read_lines()?;
        arriving.check_journal(&lines)?;
        arriving.plan_files(self.args.overwrite)?;
        let head = arriving.manifest.head;
        self.reply(&json!({"ready": head}));
        Ok(())
    }
}

/// Refuses a run that is sent to another key.
fn check_recipient(manifest: &Manifest) -> Result<(), CommandFailure> {
    let Some(to) = &manifest.to else { return Ok(()) };
    let own_key = state::own_key_text();
    if own_key.as_ref() == Some(to) {
        return Ok(());
    }
    let message = format!("run {} was sent to the key {to}, which is not yours", manifest.run_id);
    Err(CommandFailure::config(message, "`delta config` prints your key"))
}

/// The closed run of this id from which the run that arrives was sent, if it comes back.
fn find_original(
    manifest: &Manifest,
    workspace: &Workspace,
) -> Result<Option<RunState>, CommandFailure> {
    let id = &manifest.run_id;
    let Some(dir) = workspace.find_run(id)? else { return Ok(None) };
    let state = own_run::fold_journal(id, &dir)?;
    let is_closed = state.sent.as_ref().is_some_and(|sent| !sent.copy);
    let bytes = journal::read_journal_bytes(&dir)
        .map_err(|error| own_run::unreadable_journal_failure(id, error))?;
    let start = manifest.members.iter().find(|member| member.path.ends_with(JOURNAL_FILE));
    let is_longer = start.is_some_and(|member| member.bytes > bytes.len() as u64);
    if manifest.moves && is_closed && is_longer {
        return Ok(Some(state));
    }
    let message = format!("run {id} already exists in {}", workspace.root.display());
    Err(CommandFailure::already_exists(message, "name another workspace with `-w DIR`"))
}

impl Incoming<'_> {
    /// Locks the directory in which a run arrives. The sender of a transfer has one connection: a process that has the lock
    /// reads from an earlier one, and may notice only after hours that its other end is gone.
    fn lock_arriving(&self, dir: &Path) -> Result<Option<FileLock>, FileError> {
        let path = dir.join(OWNER_LOCK_FILE);
        match FileLock::try_acquire(&path)? {
            None if self.args.replies => {
                run_process::end_lock_holder(&path, END_PATIENCE);
                FileLock::try_acquire(&path)
            }
            lock => Ok(lock),
        }
    }

    /// Answers the sender, if it listens.
    fn reply(&self, reply: &serde_json::Value) {
        if self.args.replies {
            stdio::print_text(&format!("{reply}\n"));
            let _ = io::stdout().flush();
        }
    }

    /// Finishes what an earlier process has left, if the run was received; the reason why it is not received again.
    fn end_earlier(&self, manifest: &Manifest, outcome: TransferOutcome) -> Stop {
        let TransferOutcome::Received(arrival) = &outcome else {
            return not_received(manifest, &outcome).into();
        };
        let [hidden, run_dir] = [hidden_dir(manifest, arrival), arrival.run_dir.clone()];
        let used_dir = if durable::is_dir_no_follow(&hidden) { hidden } else { run_dir };
        let lock = match FileLock::try_acquire(&used_dir.join(OWNER_LOCK_FILE)) {
            // It was removed since then.
            Err(_) if !used_dir.exists() => None,
            Err(error) => return error.into(),
            Ok(lock) => lock,
        };
        match lock.map_or(Ok((manifest.head, false)), |_lock| end_arrival(manifest, arrival)) {
            Err(failure) => failure.into(),
            Ok((head, has_ended)) if has_ended || self.args.replies => {
                let dir = arrival.run_dir.display();
                stdio::print_error_line(&format!("Run {} is in {dir}", manifest.run_id));
                Stop::Arrived(head)
            }
            Ok(_) => not_received(manifest, &outcome).into(),
        }
    }

    /// Takes the lines that close the run where it was, and opens it here.
    fn finish(&self, sent: Vec<u8>) -> Result<(), CommandFailure> {
        let Some(arriving) = &self.arriving else { return Ok(()) };
        let manifest = &arriving.manifest;
        let mut lines = arriving.read_lines()?;
        lines.extend_from_slice(&sent);
        let folded = arriving.check_sent(&lines)?;
        let accepted = is_accepted(&folded.seals);
        let agent = arriving.keep_agent(&folded.state)?;
        if manifest.moves {
            let agent_home = agent.as_ref().map_or_else(
                || {
                    folded
                        .state
                        .start
                        .as_ref()
                        .map_or_else(String::new, |start| start.agent_home.clone())
                },
                |dir| dir.to_string_lossy().into_owned(),
            );
            let received = ReceivedRun {
                nonce: manifest.nonce.clone(),
                from: manifest.from.clone(),
                tree: arriving.files.as_ref().map(|files| files.target),
                saved: arriving.files.as_ref().and_then(|files| files.saved),
                work_dir: arriving.workspace.root.to_string_lossy().into_owned(),
                workspace_id: arriving.workspace.name(),
            };
            let received = Some(Box::new(received));
            let run_id = manifest.run_id.clone();
            let payload = Payload::RunTrusted { run_id, agent_home, received, seal: None };
            // Without an accepted key the run has arrived, and stays foreign.
            let sealer = accepted.then(|| Sealer::new(state::seal_keys(), manifest.run_id.clone()));
            journal::append_to_lines(&mut lines, [(time::current_time(), payload)], sealer);
        }
        let (head, _) = arriving.arrive(&lines, &folded.seals)?;
        self.reply(&json!({"received": head}));
        arriving.report(agent.as_deref(), accepted);
        if self.args.overwrite && manifest.moves {
            arriving.print_undo();
        }
        Ok(())
    }
}

fn is_accepted(seals: &SealStatus) -> bool {
    matches!(seals.signer, Some(Signer::Own | Signer::Accepted(_)))
}

impl ArrivingRun {
    fn damaged(&self, reason: &str) -> CommandFailure {
        BundleError::Damaged(format!("run {}: {reason}", self.manifest.run_id)).into()
    }

    /// The journal up to where it was sent. An earlier process may have added to the file.
    fn read_lines(&self) -> Result<Vec<u8>, CommandFailure> {
        let path = self.dir.join(JOURNAL_FILE);
        let mut lines = durable::read_no_follow(&path).map_err(FileError::at("read", &path))?;
        let members = &self.manifest.members;
        let journal = members.iter().find(|member| member.path.ends_with(JOURNAL_FILE));
        let declared = journal.map_or(0, |member| usize::try_from(member.bytes).unwrap_or(0));
        lines.truncate(declared);
        Ok(lines)
    }

    /// Writes the journal, and folds it with the keys that count for it.
    fn fold(&self, lines: &[u8]) -> Result<JournalFold, CommandFailure> {
        durable::replace_private_synced(&self.dir.join(JOURNAL_FILE), lines)?;
        let mut keys: SealKeys = state::seal_keys();
        if let Ok(key) = PublicKey::parse(&self.manifest.from) {
            keys.add(Signer::Given, key);
        }
        let id = &self.manifest.run_id;
        own_run::fold_with_keys(id, &self.dir, keys)
            .map_err(|error| own_run::unreadable_journal_failure(id, error))
    }

    /// Checks what was sent before the run was closed.
    fn check_journal(&self, lines: &[u8]) -> Result<(), CommandFailure> {
        let folded = self.fold(lines)?;
        let head = lines.split_inclusive(|byte| *byte == b'\n').next_back();
        let head = head.and_then(journal::head_of_line);
        let id = folded.state.start.as_ref().map(|start| &start.run_id);
        if head != Some(self.manifest.head) || id != Some(&self.manifest.run_id) {
            return Err(self.damaged("its journal is another one"));
        }
        if let Some(original) = &self.original {
            let dir = self.workspace.run_dir(&self.manifest.run_id);
            let begins = journal::read_journal_bytes(&dir).is_ok_and(|old| lines.starts_with(&old));
            if !begins || original.sent.is_none() {
                let message = format!("run {} is another one here", self.manifest.run_id);
                let hint = "name another workspace with `-w DIR`";
                return Err(CommandFailure::already_exists(message, hint));
            }
            adopt_missing(&dir, &self.dir)?;
        }
        Ok(())
    }

    /// Decides what the workspace gets, without changing it.
    fn plan_files(&mut self, overwrites: bool) -> Result<(), CommandFailure> {
        let Some(tree) = self.manifest.tree else { return Ok(()) };
        let id = &self.manifest.run_id;
        let mut state = own_run::fold_journal(id, &self.dir)?;
        // What the journal of another operator names is not read.
        if let Some(start) = &mut state.start {
            start.agent_home = self.dir.join("agent").to_string_lossy().into_owned();
        }
        // A copy is never rolled back: what it replaced would be lost.
        let overwrites = overwrites && self.manifest.moves;
        let root = &self.workspace.root;
        let environment = EnvFileOptions::default();
        let secrets = restore_point::workspace_secrets(&self.dir, &state, root, &environment)?;
        let mut store = restore_point::open_run_store(&self.dir, &state)?;
        let current = store.take(root, &secrets, None)?.tree;
        let left = self.original.as_ref().and_then(|original| original.sent.as_ref()?.tree);
        let base = match left.filter(|left| store.contains(*left)).or(self.manifest.base) {
            Some(base) => base,
            None => store.empty_tree()?,
        };
        let trees = StagedTrees { base, staged: tree, current };
        let rules = MergeRules { selects: &|_| true, overwrites, is_interrupted: false };
        let merge = store.merge_staged(trees, &rules)?;
        if !merge.conflicts.is_empty() && !overwrites {
            let paths = restore_point::list_some_paths(&merge.conflicts);
            let dir = shell_quote_path(root);
            let message = format!("files in {dir} differ from the files of run {id}: {paths}");
            let hint = if self.manifest.moves {
                "name a new directory with `-w DIR`, or replace them with `--overwrite`"
            } else {
                "name a new directory with `-w DIR`: what a copy replaces cannot be restored"
            };
            return Err(CommandFailure::conflict(message, hint));
        }
        let changes = store.plan_restore(current, merge.tree, None)?.diff.changes;
        store.sync()?;
        let saved = (!changes.is_empty()).then_some(current);
        self.files = Some(PlannedFiles { target: merge.tree, saved });
        Ok(())
    }

    /// Checks the lines that close the run where it was.
    fn check_sent(&self, lines: &[u8]) -> Result<JournalFold, CommandFailure> {
        let folded = self.fold(lines)?;
        let is_this_transfer =
            folded.state.sent.as_ref().is_some_and(|sent| self.manifest.is_of(sent));
        if !is_this_transfer {
            return Err(self.damaged("it was not closed for this transfer"));
        }
        if folded.seals.signer.is_none() || folded.seals.is_edited {
            return Err(self.damaged("its seals are not valid"));
        }
        Ok(folded)
    }

    /// Keeps the agent that came with the run.
    fn keep_agent(&self, state: &RunState) -> Result<Option<PathBuf>, CommandFailure> {
        let Some(tree) = self.manifest.agent else { return Ok(None) };
        let mut store = restore_point::open_run_store(&self.dir, state)?;
        let cancel = cancel::install_cancel()?;
        AgentStore::open_own()?.keep_snapshot(tree, &mut store, &cancel).map(Some)
    }

    /// Makes the run one of the workspace.
    fn arrive(
        &self,
        lines: &[u8],
        seals: &SealStatus,
    ) -> Result<(JournalHead, bool), CommandFailure> {
        durable::replace_private_synced(&self.dir.join(JOURNAL_FILE), lines)?;
        let state = own_run::fold_journal(&self.manifest.run_id, &self.dir)?;
        if let Some(metadata) = RunMetadata::from_state(&state) {
            let path = self.dir.join(METADATA_FILE);
            durable::replace_private_synced(&path, metadata.to_text().as_bytes())?;
        }
        durable::replace_private_synced(&self.dir.join(PENDING_FILE), b"")?;
        durable::sync_file_system(&self.dir)?;
        let arrival = Arrival {
            run_dir: self.workspace.run_dir(&self.manifest.run_id),
            tree: self.files.as_ref().map(|files| files.target),
            special_bits: seals.is_own_and_unchanged(),
            git: is_accepted(seals),
        };
        let outcome = TransferOutcome::Received(arrival.clone());
        let decided = transfers::decide_outcome(&self.manifest.nonce, outcome.clone())?;
        if decided != outcome {
            let _ = durable::remove_dir_all_no_follow(&self.dir);
            return Err(not_received(&self.manifest, &decided));
        }
        end_arrival(&self.manifest, &arrival)
    }

    /// Prints where the run is, what it may do, and how it continues.
    fn report(&self, agent: Option<&Path>, is_accepted: bool) {
        let Manifest { run_id: id, left, moves, from, .. } = &self.manifest;
        let workspace = workspace::quote_workspace(&self.workspace.root);
        let root = shell_quote_path(&self.workspace.root);
        let mut notes = vec![format!("Received run {id} in {root}")];
        notes.extend(agent.map(describe_rights));
        if !left.is_empty() {
            notes.push(format!("not received: {}", strip_terminal_controls(&left.join(", "))));
        }
        let next = match (moves, is_accepted) {
            (false, _) => format!("It is a copy: `delta fork {id} -w {workspace}` continues it"),
            (true, true) => format!("Continue it with: delta continue {id} -w {workspace}"),
            (true, false) => format!(
                "It is foreign: you do not accept the key {from}; look at it with `delta show {id} -w {workspace}`, then \
                 `delta trust {id} -w {workspace}`"
            ),
        };
        notes.push(next);
        notes.iter().for_each(|note| stdio::print_error_line(note));
    }

    /// Prints how the workspace gets the files again that were replaced.
    fn print_undo(&self) {
        let Some(saved) = self.files.as_ref().and_then(|files| files.saved) else { return };
        let id = &self.manifest.run_id;
        let workspace = workspace::quote_workspace(&self.workspace.root);
        let saved = saved.to_string();
        let digits = &saved[..MIN_ID_DIGITS];
        stdio::print_error_line(&format!(
            "Restore the replaced files with: delta rollback {id} -w {workspace} --to {digits}"
        ));
    }
}

/// Why a transfer is not received that was decided before.
fn not_received(manifest: &Manifest, outcome: &TransferOutcome) -> CommandFailure {
    let id = &manifest.run_id;
    match outcome {
        TransferOutcome::Refused => {
            let message = format!("the transfer of run {id} was cancelled");
            CommandFailure::conflict(message, "send the run again")
        }
        TransferOutcome::Received(arrival) => {
            let dir = arrival.run_dir.display();
            let message = format!("run {id} was received already, in {dir}");
            CommandFailure::already_exists(message, "a file is received once")
        }
    }
}

/// The directory in which a run arrives. No run id begins with a dot.
fn hidden_name(nonce: &str) -> String {
    format!(".receiving-{nonce}")
}

fn hidden_dir(manifest: &Manifest, arrival: &Arrival) -> PathBuf {
    arrival.run_dir.with_file_name(hidden_name(&manifest.nonce))
}

/// Gives a run that was received its name, and its workspace its files, as far as that is not done; this process has locked it.
/// Returns the end of its journal, and whether anything was left to do.
fn end_arrival(
    manifest: &Manifest,
    arrival: &Arrival,
) -> Result<(JournalHead, bool), CommandFailure> {
    let Arrival { run_dir, .. } = arrival;
    let id = &manifest.run_id;
    let hidden = hidden_dir(manifest, arrival);
    let is_hidden = durable::is_dir_no_follow(&hidden);
    if is_hidden {
        let control = run_dir.parent().unwrap_or(run_dir);
        let root = workspace::workspace_of_control(control).unwrap_or_default();
        if durable::is_dir_no_follow(run_dir) {
            let ownership = Ownership::claim(id, run_dir)?;
            run_removal::remove_run(&Workspace { root }, run_dir, ownership)?;
        }
        durable::rename_dir_synced(&hidden, run_dir)?;
    }
    let is_pending = durable::is_file_no_follow(&run_dir.join(PENDING_FILE));
    if is_pending {
        received_files::finish_restore(run_dir, &own_run::fold_journal(id, run_dir)?)?;
    }
    let head = journal::read_journal_head(run_dir).unwrap_or(manifest.head);
    Ok((head, is_hidden || is_pending))
}

/// Takes from the directory of a run that comes back what did not go with it, such as earlier snapshots.
fn adopt_missing(from: &Path, to: &Path) -> Result<(), CommandFailure> {
    let mut queue: Vec<PathBuf> =
        ["agent", "files", "io", "snapshots"].map(PathBuf::from).into_iter().collect();
    while let Some(name) = queue.pop() {
        for entry in durable::read_dir_no_follow(&from.join(&name)).unwrap_or_default() {
            let name = name.join(&entry.name);
            let target = to.join(&name);
            if entry.is_dir() {
                durable::ensure_private_dir(&target)?;
                queue.push(name);
            } else if entry.is_file() && !durable::is_file_no_follow(&target) {
                durable::copy_private_unsynced(&from.join(&name), &target)?;
            }
        }
    }
    Ok(())
}

/// What the agent in a directory may do.
fn describe_rights(dir: &Path) -> String {
    let hash = dir.file_name().unwrap_or_default().to_string_lossy();
    let tree = &hash[..hash.len().min(12)];
    let loaded = Agent::load(dir, &ModelSelection::without_llm(), &trust::read_import_path());
    let Ok(agent) = loaded else { return format!("agent {tree}: it does not load here") };
    let rights = AgentRights::of_agent(&agent).lines();
    let rights: String = rights.iter().map(|line| format!("\n  {line}")).collect();
    format!("agent {} {tree}{rights}", strip_terminal_controls(&agent.name))
}
