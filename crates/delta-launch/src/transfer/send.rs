//! `delta send`: hands a run over to another place, or copies it.
//!
//! First all files are written, then SENT closes the run here, then its lines are written, without which nothing is received.
//! So whatever is cut, at most one place continues the run, and the same command finishes what was interrupted.

use crate::drive::continue_run::ClaimedRun;
use crate::transfer::redaction::RedactedValues;
use crate::transfer::remote::{RemotePlace, RemoteReceiver};
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_agent::agent::agent_tree::store_agent_tree;
use delta_base::durable::{DraftFile, FileError};
use delta_base::id::{RunId, SnapshotId};
use delta_base::redact::Secrets;
use delta_base::shell_quote::shell_quote_path;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::time;
use delta_operator::arguments::completion_candidates;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::{CommandFailure, refuse_inside_run};
use delta_operator::runs::restore_point;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::{own_run, run_list};
use delta_operator::{cancel, state};
use delta_program::stdio;
use delta_run::event::{JournalHead, Payload, ReceivedRun, RunStatus, SentRun};
use delta_run::fork::bundle::{
    self, BundleWriter, Contents, LINES_NAME, MANIFEST_NAME, Manifest, SentFile, list_sent_files,
};
use delta_run::fork::redacted_copy::RedactedCopy;
use delta_run::journal::seal::Sealer;
use delta_run::journal::signature::PublicKey;
use delta_run::ownership::owner_process::hostname;
use delta_run::record::surviving_call::SurvivingCall;
use delta_run::run::{Run, RunNotice};
use delta_run::run_files::JOURNAL_FILE;
use delta_run::state::RunState;
use delta_run::state::stage::StageDir;
use delta_run::sweep::packed::sweep_of_workspace;
use delta_run::{journal, mailbox, run_tree};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The place of a run that was written to stdout.
const PIPE: &str = "a pipe";
/// The beginning of the line of a SENT.
const SENT_LINE: &[u8] = b"{\"type\":\"SENT\",";

/// Send a run to another place, where it continues
///
/// Sends the run with its workspace and its agent over ssh, or writes it into a file, and closes it here. The same command
/// again finishes a transfer that broke off. Keys and `.env` of the agent never go with a run; stderr names what else stays.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SendArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    /// Host for ssh, with the workspace there [default: in the home directory, the name of the workspace here]
    #[arg(value_name = "HOST[:DIR]", conflicts_with_all = ["output", "copy", "cancel"], required_unless_present_any = ["output", "cancel"])]
    host: Option<String>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Write the run into a new file; `-` is stdout
    #[arg(short, long, value_name = "FILE", conflicts_with = "cancel")]
    output: Option<PathBuf>,
    /// Only who has this key can receive the run
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse)]
    to: Option<PublicKey>,
    /// Send a copy; the run stays open here
    #[arg(long)]
    copy: bool,
    /// Redact the values in FILE, one a line, wherever they are in the copy
    #[arg(long, value_name = "FILE", requires = "copy")]
    redact: Option<PathBuf>,
    /// Files of the workspace to send
    ///
    /// What differs from the beginning of the run needs a workspace with the same beginning.
    #[arg(long, value_enum, default_value_t = SentFiles::All)]
    files: SentFiles,
    /// Whether to send the records of LLM calls and tools
    #[arg(long, value_enum, default_value_t = SentRecords::All)]
    records: SentRecords,
    /// Open the run here again, unless it has arrived where it was sent
    ///
    /// The host to which it was sent refuses it from then on.
    #[arg(long, conflicts_with_all = ["to", "copy"])]
    cancel: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta send RUN -w ./work host:work               # over ssh
  delta send RUN -w ./work -o run.tgz
  delta send RUN -w ./work -o run.tgz --to ed25519:Gb9E...
  delta send RUN -w ./work -o - | ssh host delta receive -w ./work
  delta send RUN -w ./work -o copy.tgz --copy      # the run stays here
  delta send RUN -w ./work -o copy.tgz --copy --redact values.txt
  delta send RUN -w ./work --cancel                # it has not arrived

Exit codes: 0 the run is sent, 1 it is not, 126 it is foreign";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SentFiles {
    /// All files
    All,
    /// The files that differ from the first snapshot
    Changed,
    /// None: the workspace there stays as it is
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SentRecords {
    /// All of io/
    All,
    /// None: the run continues, and cannot be replayed
    None,
}

/// Sends a run.
pub fn send_command(args: &SendArgs) -> Result<(), CommandFailure> {
    let run = args.run.find(&args.work_dir)?;
    send_run(args, &run).map_err(|failure| failure.with_run_id(&run.id))
}

fn send_run(args: &SendArgs, run: &LocatedRun) -> Result<(), CommandFailure> {
    refuse_inside_run("send runs")?;
    if args.cancel {
        return cancel_transfer(run);
    }
    if let Some(host) = &args.host {
        let host = RemotePlace::parse(host, &run.workspace.name())?;
        let mut outgoing = Outgoing::prepare(args, run, &host.to_string())?;
        if outgoing.send_to(&host)? {
            outgoing.report(args, run);
        } else {
            stdio::print_error_line(&format!("Run {} is at {host} already", run.id));
        }
        return Ok(());
    }
    let output = args.output.as_deref().unwrap_or(Path::new("-"));
    let is_pipe = output == Path::new("-");
    if !is_pipe && output.symlink_metadata().is_ok() {
        let message = format!("{} exists", output.display());
        return Err(CommandFailure::already_exists(message, "name a new file with `-o FILE`"));
    }
    let mut outgoing = Outgoing::prepare(args, run, &describe_file(args, run, output))?;
    let unwritable = |error| FileError::at("write", output)(error);
    if is_pipe {
        let written = outgoing.write(BundleWriter::packed(io::stdout().lock()))?;
        let flushed = written.and_then(|pipe| pipe.finish()?.flush());
        flushed.map_err(unwritable)?;
    } else {
        let absolute = std::path::absolute(output).map_err(unwritable)?;
        let draft = DraftFile::create(&absolute.with_added_extension("draft"))?;
        let written = outgoing.write(BundleWriter::packed(DraftWriter(draft)))?;
        let draft = written.and_then(|draft| draft.finish()).map_err(unwritable)?;
        draft.0.rename_synced(&absolute)?;
    }
    outgoing.report(args, run);
    Ok(())
}

/// A file under a temporary name, as an output.
struct DraftWriter(DraftFile);

impl Write for DraftWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| error.source)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A run that this process owns and sends.
struct Outgoing {
    run: Run,
    manifest: Manifest,
    files: Vec<SentFile>,
    /// What closes the run; `None` if it is closed already.
    sent: Option<SentRun>,
    /// The length of the journal before that.
    journal_bytes: usize,
    /// What is sent in place of the run, with `--redact`.
    redacted: Option<RedactedCopy>,
    /// What to report of that.
    notes: Vec<String>,
}

impl Outgoing {
    fn prepare(
        args: &SendArgs,
        run: &LocatedRun,
        destination: &str,
    ) -> Result<Self, CommandFailure> {
        let LocatedRun { id, workspace, .. } = run;
        let values = args.redact.as_deref().map(RedactedValues::read).transpose()?;
        if values.is_some() && args.files == SentFiles::Changed {
            let message = "`--redact` changes the files that `--files changed` compares with";
            return Err(CommandFailure::usage(message, "use `--files all` or `--files none`"));
        }
        let claimed = ClaimedRun::claim_to_send(run)?;
        claimed.check_is_own()?;
        let closed = claimed.state().sent.clone();
        match &closed {
            Some(sent) if sent.copy || args.copy => {
                return Err(own_run::check_is_here(id, &run.dir, claimed.state())
                    .err()
                    .unwrap_or_else(|| {
                        CommandFailure::conflict("the run is closed", "receive it first")
                    }));
            }
            Some(sent) => check_same_transfer(args, sent, destination)?,
            None => check_sendable(run, claimed.state())?,
        }
        let environment = EnvFileOptions::default();
        let dir = claimed.dir.clone();
        let root = &workspace.root;
        let secrets = restore_point::workspace_secrets(&dir, claimed.state(), root, &environment)?;
        let mut store = restore_point::open_run_store(&dir, claimed.state())?;
        let observer = Box::new(|_: RunNotice<'_>| {});
        let mut opened =
            claimed.open_run(Secrets::default(), observer, &cancel::install_cancel()?)?;
        // The end of a process that died.
        opened.commit()?;
        let (mut sent, is_new) = match closed {
            Some(sent) => (sent, false),
            None => {
                let state = opened.state();
                let base = match args.files {
                    SentFiles::Changed => Some(first_snapshot(id, state)?),
                    SentFiles::All | SentFiles::None => None,
                };
                let tree = match args.files {
                    SentFiles::None => None,
                    _ => Some(store.take(root, &secrets, None)?),
                };
                let home = state.start.as_ref().map(|start| PathBuf::from(&start.agent_home));
                let agent = home.and_then(|home| store_agent_tree(&mut store, &home, root));
                let omits = tree.as_ref().is_some_and(|tree| !tree.omitted.is_empty());
                let sent = SentRun {
                    run_id: id.clone(),
                    nonce: bundle::new_nonce(),
                    to: args.to.map(|key| key.to_string()),
                    place: destination.to_owned(),
                    tree: tree.map(|tree| tree.tree),
                    base,
                    agent,
                    left: list_left(args, run, state, omits),
                    copy: args.copy,
                    redacted: None,
                    seal: None,
                };
                store.sync()?;
                (sent, true)
            }
        };
        let mut lines = read_journal_of(id, &dir)?;
        let mut journal_bytes = if is_new { lines.len() } else { find_sent(&lines) };
        let mut head = last_head(&lines[..journal_bytes]).ok_or_else(|| {
            let message = format!("run {id} has a journal of an earlier version");
            CommandFailure::conflict(message, "continue it once with this version, then send it")
        })?;
        if is_new && !sent.copy {
            sent.nonce = bundle::nonce_of_move(head, destination);
        }
        let objects = match (sent.tree, sent.base) {
            (None, _) => match sent.agent {
                Some(agent) => store.object_ids(agent, true)?,
                None => Default::default(),
            },
            (Some(_), None) => bundle::list_objects(&dir),
            (Some(_), Some(base)) => {
                let known = store.object_ids(base, true)?;
                let directories = store.object_ids(base, false)?;
                let mut objects = bundle::list_objects(&dir);
                objects.retain(|id| !known.contains(id) || directories.contains(id));
                objects
            }
        };
        let contents = Contents {
            objects,
            records: args.records == SentRecords::All,
            journal_bytes: journal_bytes as u64,
        };
        let mut files = list_sent_files(&dir, &journal::journal_path(&dir), &contents)?;
        let mut redacted = None;
        let mut notes = Vec::new();
        if let Some(values) = &values {
            let copy = values.redact_run(run, &store, &files, &lines, &mut sent)?;
            lines.clone_from(&copy.lines);
            journal_bytes = lines.len();
            head = last_head(&lines).unwrap_or(head);
            let journal_bytes = journal_bytes as u64;
            let objects = bundle::list_objects(&copy.dir);
            let contents = Contents { objects, records: true, journal_bytes };
            files = list_sent_files(&copy.dir, &copy.dir.join(JOURNAL_FILE), &contents)?;
            notes = values.describe(&copy);
            redacted = Some(copy);
        }
        let key = state::seal_key().map_err(|missing| {
            CommandFailure::config(format!("there is no key: {}", missing.reason()), None)
        })?;
        let mut manifest = Manifest::new(sent.nonce.clone(), id.clone(), head);
        manifest.describe(&sent);
        manifest.members = files.iter().map(|file| file.member.clone()).collect();
        let manifest = manifest.signed(&key);
        if let (Some(values), Some(copy)) = (&values, &redacted) {
            values.check(run, copy, &files, &manifest)?;
        }
        let sent = is_new.then_some(sent);
        Ok(Self { run: opened, manifest, files, sent, journal_bytes, redacted, notes })
    }

    /// Sends the archive to a `delta receive` on another host, without the members that it has. Returns false if the run has
    /// arrived before.
    fn send_to(&mut self, host: &RemotePlace) -> Result<bool, CommandFailure> {
        let (mut receiver, input) = RemoteReceiver::receive(host)?;
        let moved = self.exchange(&mut receiver, BundleWriter::new(input))?;
        moved.ok_or_else(|| receiver.broken_off())
    }

    /// `None` if the connection breaks off.
    fn exchange(
        &mut self,
        receiver: &mut RemoteReceiver,
        mut archive: BundleWriter<impl Write>,
    ) -> Result<Option<bool>, CommandFailure> {
        let manifest = self.manifest.to_json();
        if archive.append(MANIFEST_NAME, &manifest).and_then(|()| archive.flush()).is_err() {
            return Ok(None);
        }
        let Some(reply) = receiver.reply("need") else { return Ok(None) };
        if reply.get("received").is_some() {
            return Ok(Some(false));
        }
        let needed: BTreeSet<&str> =
            reply["need"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let mut files = self.files.iter().filter(|file| needed.contains(&*file.member.path));
        let sent = files.try_for_each(|file| archive.append_file(file));
        if sent.and_then(|()| archive.flush()).is_err() || receiver.reply("ready").is_none() {
            return Ok(None);
        }
        let lines = self.close()?;
        // The input is closed here. Whether all of it has arrived, only the reply says.
        drop(archive.append(LINES_NAME, &lines).and_then(|()| archive.finish()));
        Ok(receiver.reply("received").map(|_| true))
    }

    /// Writes the archive, and closes the run before its last entry.
    fn write<W: Write>(
        &mut self,
        mut archive: BundleWriter<W>,
    ) -> Result<io::Result<W>, CommandFailure> {
        let written = archive.append(MANIFEST_NAME, &self.manifest.to_json());
        let written =
            written.and_then(|()| self.files.iter().try_for_each(|file| archive.append_file(file)));
        if let Err(error) = written.and_then(|()| archive.flush()) {
            return Ok(Err(error));
        }
        let lines = self.close()?;
        Ok(archive.append(LINES_NAME, &lines).and_then(|()| archive.finish()))
    }

    /// Closes the run; returns the lines that do that. Durable.
    fn close(&mut self) -> Result<Vec<u8>, CommandFailure> {
        let id = self.run.id.clone();
        let state = self.run.state();
        let mut end = state.engine_end(&id, state.status.unwrap_or(RunStatus::Interrupted));
        let mut lines = read_journal_of(&id, &self.run.dir)?;
        if let Some(copy) = &mut self.redacted {
            lines.clone_from(&copy.lines);
            end = copy.redact_payload(&end).map_err(|reason| {
                let message = format!("the end of run {id} cannot be recorded: {reason}");
                CommandFailure::conflict(message, "leave that value out of the file")
            })?;
        }
        match self.sent.take() {
            Some(sent) if sent.copy => {
                let now = time::current_time();
                let sealer = Some(Sealer::new(state::seal_keys(), id));
                let events = [(now, Payload::Sent(Box::new(sent))), (now, end)];
                journal::append_to_lines(&mut lines, events, sealer);
                return Ok(lines.split_off(self.journal_bytes));
            }
            Some(sent) => self.run.record(Payload::Sent(Box::new(sent))),
            None => {
                let lines = lines.split_off(self.journal_bytes);
                if lines.split_inclusive(|byte| *byte == b'\n').count() > 1 {
                    return Ok(lines);
                }
            }
        }
        // In one write with SENT: an earlier version would set an unknown last line aside.
        self.run.record(end);
        self.run.commit_act()?;
        Ok(read_journal_of(&id, &self.run.dir)?.split_off(self.journal_bytes))
    }

    fn report(&self, args: &SendArgs, run: &LocatedRun) {
        let id = &run.id;
        let workspace = run.quoted_workspace();
        let left = strip_terminal_controls(&self.manifest.left.join(", "));
        let mut notes = vec![format!("Not sent: {left}")];
        notes.extend_from_slice(&self.notes);
        if args.copy {
            notes.push(format!("Sent a copy of run {id}"));
        } else {
            notes.push(format!("Sent run {id}; it is closed in {workspace}"));
            if self.manifest.to.is_none() && args.host.is_none() {
                notes.push(
                    "Note: the first receiver of the file gets the run; `--to KEY` names one"
                        .to_owned(),
                );
            }
        }
        notes.iter().for_each(|note| stdio::print_error_line(note));
    }
}

/// Opens a run again that was sent over a connection and has not arrived.
fn cancel_transfer(run: &LocatedRun) -> Result<(), CommandFailure> {
    let LocatedRun { id, workspace, .. } = run;
    let claimed = ClaimedRun::claim_to_send(run)?;
    claimed.check_is_own()?;
    let sent = claimed.state().sent.clone().filter(|sent| !sent.copy);
    let Some(sent) = sent else {
        let message = format!("run {id} was not sent");
        return Err(CommandFailure::nothing_found(message, "there is nothing to cancel"));
    };
    if sent.place.starts_with('/') || sent.place == PIPE {
        let message = format!("run {id} was sent to {}, which cannot refuse it", sent.place);
        let hint =
            format!("receive the file here, or `delta fork {id} -w {}`", run.quoted_workspace());
        return Err(CommandFailure::conflict(message, hint));
    }
    let host = RemotePlace::parse(&sent.place, "")?;
    if !RemoteReceiver::refuse(&host, &sent.nonce)? {
        return Err(CommandFailure::moved(format!("run {id} has arrived at {host}"), None));
    }
    let agent_home = claimed.start.agent_home.clone();
    let key = state::own_key_text();
    let received = ReceivedRun {
        nonce: sent.nonce,
        from: key.unwrap_or_default(),
        tree: None,
        saved: None,
        work_dir: workspace.root.to_string_lossy().into_owned(),
        workspace_id: workspace.name(),
    };
    let observer = Box::new(|_: RunNotice<'_>| {});
    let mut opened = claimed.open_run(Secrets::default(), observer, &cancel::install_cancel()?)?;
    let received = Some(Box::new(received));
    opened.record(Payload::RunTrusted { run_id: id.clone(), agent_home, received, seal: None });
    opened.commit()?;
    stdio::print_error_line(&format!("Run {id} is open here again"));
    Ok(())
}

fn read_journal_of(id: &RunId, dir: &Path) -> Result<Vec<u8>, CommandFailure> {
    journal::read_journal_bytes(dir).map_err(|error| own_run::unreadable_journal_failure(id, error))
}

/// The last line and its chain value.
fn last_head(lines: &[u8]) -> Option<JournalHead> {
    let last = lines.split_inclusive(|byte| *byte == b'\n').next_back();
    last.and_then(journal::head_of_line)
}

/// The length of the lines before the last SENT.
fn find_sent(lines: &[u8]) -> usize {
    let mut end = lines.len();
    for line in lines.split_inclusive(|byte| *byte == b'\n').rev() {
        end -= line.len();
        if line.starts_with(SENT_LINE) {
            return end;
        }
    }
    lines.len()
}

/// Refuses to send a run again in another way, so that it cannot arrive twice.
fn check_same_transfer(
    args: &SendArgs,
    sent: &SentRun,
    destination: &str,
) -> Result<(), CommandFailure> {
    let is_file = sent.place.starts_with('/') || sent.place == PIPE;
    if is_file == args.host.is_some() || (!is_file && sent.place != destination) {
        let message = format!("the run was sent to {}", strip_terminal_controls(&sent.place));
        let hint = "send it there again, or receive it here first: `delta send RUN --cancel`, `delta receive FILE`";
        return Err(CommandFailure::moved(message, hint));
    }
    let to = args.to.map(|key| key.to_string());
    if to.is_none() || to == sent.to {
        return Ok(());
    }
    let message = match &sent.to {
        Some(key) => format!("the run was sent to the key {key}"),
        None => "the run was sent to no key in particular".to_owned(),
    };
    Err(CommandFailure::usage(message, "send it again without `--to`"))
}

/// Refuses a run that cannot leave.
fn check_sendable(run: &LocatedRun, state: &RunState) -> Result<(), CommandFailure> {
    let LocatedRun { id, dir, .. } = run;
    let workspace = run.quoted_workspace();
    let refused = |reason: String, hint: String| {
        Err(CommandFailure::conflict(format!("run {id} cannot be sent: {reason}"), hint))
    };
    // The layers stay here. Without changes in them, the run continues in new ones.
    let is_staged = state.stage.as_ref().is_some_and(|stage| {
        stage.pending.is_some() || !stage.is_cleared && StageDir::new(dir).has_changes()
    });
    if is_staged {
        let hint =
            format!("`delta apply {id} -w {workspace}`, or `delta discard {id} -w {workspace}`");
        return refused("it has staged changes".to_owned(), hint);
    }
    if let Some(call) = SurvivingCall::all_at_work(dir).first() {
        let tool = call.command().map_or_else(|_| "a tool".to_owned(), |command| command.tool);
        let hint = format!("wait for it, or end it with `delta stop {id} -w {workspace}`");
        return refused(format!("{} is at work", strip_terminal_controls(&tool)), hint);
    }
    let waiting = mailbox::count_waiting(dir);
    if waiting > 0 {
        let hint = format!("`delta continue {id} -w {workspace}` receives them");
        return refused(format!("{waiting} messages wait for it"), hint);
    }
    if sweep_of_workspace(&run.sweep_workspace()).is_some() {
        let hint = format!("`delta fork {id} -w {workspace}` makes a run of its own");
        return refused("it belongs to a sweep".to_owned(), hint);
    }
    for outer in run_tree::find_enclosing_runs(dir).iter().skip(1) {
        let status = journal::fold_run_journal(outer).ok().and_then(|state| state.status);
        if !matches!(status, Some(RunStatus::Completed | RunStatus::Failed) | None) {
            let outer = shell_quote_path(outer);
            let hint = format!("send that one when it has ended: `delta show {outer}`");
            return refused("the run that started it has not ended".to_owned(), hint);
        }
    }
    Ok(())
}

fn first_snapshot(id: &RunId, state: &RunState) -> Result<SnapshotId, CommandFailure> {
    state.timeline.first().map(|first| first.tree).ok_or_else(|| {
        let message = format!("run {id} has no snapshots to compare with");
        CommandFailure::conflict(message, "send all files: `--files all`")
    })
}

/// Where the run is from now on; of a copy, where the original is.
fn describe_file(args: &SendArgs, run: &LocatedRun, output: &Path) -> String {
    if args.copy {
        return format!("{}:{}", hostname(), run.workspace.root.display());
    }
    if output == Path::new("-") {
        return PIPE.to_owned();
    }
    let absolute = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    absolute.display().to_string()
}

/// What stays here.
fn list_left(args: &SendArgs, run: &LocatedRun, state: &RunState, omits: bool) -> Vec<String> {
    let agent_has = |name: &str| {
        let home = state.start.as_ref().map(|start| Path::new(&start.agent_home).join(name));
        home.is_some_and(|path| path.exists())
    };
    let excludes = state.timeline.last().is_some_and(|last| !last.exclude.is_empty());
    let kinds = [
        (true, "keys"),
        (agent_has(".env"), ".env of the agent"),
        (run.workspace.root.join(".sessions").exists(), "sessions"),
        (agent_has("mcp.lock.json"), "memory of MCP servers"),
        (state.has_left_processes, "background processes"),
        (omits || excludes, "paths that snapshots leave out"),
        (args.files == SentFiles::None, "files of the workspace"),
        (args.records == SentRecords::None, "records"),
        (!run_tree::locate_child_runs(&run.dir).is_empty(), "inner runs"),
    ];
    kinds.iter().filter(|(holds, _)| *holds).map(|(_, kind)| (*kind).to_owned()).collect()
}
