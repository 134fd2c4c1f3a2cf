//! `delta sweep pack`: settled runs in a few files.
//!
//! A pack is written, synced and named, then read back and compared with each directory, and only then is the directory
//! removed. So after a crash at any point each run is in its directory or in a pack.

use crate::formats::result_line::ResultLine;
use crate::formats::selection::RunSelection;
use crate::planning::plan_reader::read_existing_plans;
use crate::running::continued_runs::record_continued_runs;
use crate::running::result_reader::ResultReader;
use crate::running::run_choice::{ONLY_HELP, choose_runs};
use crate::running::run_pool::absolute_dir;
use clap::{Args, ValueEnum};
use delta_base::durable;
use delta_base::id::RunId;
use delta_operator::cancel;
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::journal;
use delta_run::ownership::Ownership;
use delta_run::sweep::packed::run_archive::archive_workspace;
use delta_run::sweep::packed::zip_archive::ZipWriter;
use delta_run::sweep::packed::{RunPacks, member_name};
use delta_run::sweep::sweep_dir::{SweepDir, draft_path, shard_name};
use delta_run::workspace::{self, Workspace};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The most runs of a pack.
const MAX_RUNS: usize = 1000;
/// From so many bytes on a pack is full. It is kept in memory until it is written.
const FULL_PACK_BYTES: u64 = 64 << 20;

/// Pack the finished runs of a sweep
///
/// Writes them into ZIP files in DIR/pack, reads these back, and removes the directories. Commands that read a run find packed
/// runs; `continue` unpacks its run.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct PackSweepArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Keep the workspaces of these runs, `failed`, `all` or `none`; of the others, only the records
    #[arg(long, value_enum, hide_possible_values = true, value_name = "RUNS", default_value_t = KeptWorkspaces::All)]
    keep: KeptWorkspaces,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep pack bugs                  # everything; nothing is lost
  delta sweep pack bugs --keep failed    # without workspaces that COMPLETED
  unzip -p bugs/pack/3f-0001.zip ID.tar | tar t

Exit codes: 0 packed, 1 a run could not be packed and stays, 2 usage error, 126 the plan has an error, 130 interrupted";

/// Whose workspaces stay with their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeptWorkspaces {
    /// Of runs that FAILED
    Failed,
    /// Of all runs
    All,
    /// Of no run
    None,
}

impl KeptWorkspaces {
    fn keeps(self, line: &ResultLine) -> bool {
        match self {
            Self::All => true,
            Self::Failed => line.status == RunStatus::Failed,
            Self::None => false,
        }
    }
}

/// Packs runs; returns the exit code.
pub fn pack_sweep_command(args: &PackSweepArgs) -> Result<ExitCode, CommandFailure> {
    let dir = absolute_dir(&args.dir)?;
    let plan = read_existing_plans(&dir)?;
    if workspace::runs_dir().is_some() {
        let message = "the records of the runs are in a directory for the runs of all workspaces";
        let hint = "a sweep can be packed if it was run without `--runs-dir`";
        return Err(CommandFailure::config(message, hint));
    }
    let cancel = cancel::install_cancel()?;
    let mut results = ResultReader::open(&dir)?.results;
    let selected = choose_runs(&plan.runs, args.only.as_ref())?;
    record_continued_runs(&dir, &plan, selected.iter().copied(), &mut results)?;
    let mut shards: BTreeMap<&str, Vec<&ResultLine>> = BTreeMap::new();
    for run in selected {
        let line = results.lines.get(&run.id).filter(|line| line.settled);
        line.into_iter().for_each(|line| shards.entry(shard_name(&run.id)).or_default().push(line));
    }
    let mut packer = RunPacker::new(&dir, args.keep);
    for (shard, lines) in shards {
        for line in lines {
            if cancel.is_requested() {
                packer.report();
                return Ok(ExitCode::from(130));
            }
            packer.add(shard, line)?;
        }
        packer.finish_pack(shard)?;
    }
    packer.report();
    Ok(ExitCode::from(u8::from(packer.failed > 0)))
}

/// A run whose archive is in a pack, and whose directory can be removed.
struct PackedRun {
    id: RunId,
    keeps_workspace: bool,
    /// The number of its last event.
    seq: u64,
}

/// Packs the runs of a sweep.
struct RunPacker<'a> {
    dir: &'a SweepDir,
    keep: KeptWorkspaces,
    packs: RunPacks,
    writer: ZipWriter,
    pending: Vec<PackedRun>,
    packed: usize,
    packs_written: usize,
    failed: usize,
}

impl<'a> RunPacker<'a> {
    fn new(dir: &'a SweepDir, keep: KeptWorkspaces) -> Self {
        Self {
            dir,
            keep,
            packs: RunPacks::new(dir),
            writer: ZipWriter::default(),
            pending: Vec::new(),
            packed: 0,
            packs_written: 0,
            failed: 0,
        }
    }

    fn add(&mut self, shard: &str, line: &ResultLine) -> Result<(), CommandFailure> {
        let root = self.dir.workspace(&line.id);
        let Some(run_dir) = find_run(&root, &line.id) else { return Ok(()) };
        let keeps_workspace = self.keep.keeps(line);
        let archived = last_event(&run_dir)
            .and_then(|seq| Ok((seq, archive_workspace(&root, keeps_workspace)?)));
        let (seq, archive) = match archived {
            Ok(archived) => archived,
            Err(error) => {
                self.report_failure(&line.id, &error.to_string());
                return Ok(());
            }
        };
        let run = PackedRun { id: line.id.clone(), keeps_workspace, seq };
        // An earlier command may have ended between the pack and the removal.
        if self.packs.has_archive(&line.id, &archive)? {
            return self.remove(&run);
        }
        self.writer.add(&member_name(&line.id), &archive);
        self.pending.push(run);
        if self.pending.len() >= MAX_RUNS || self.writer.written_bytes() >= FULL_PACK_BYTES {
            self.finish_pack(shard)?;
        }
        Ok(())
    }

    /// Writes the pack with the runs so far, and removes their directories.
    fn finish_pack(&mut self, shard: &str) -> Result<(), CommandFailure> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.writer).finish();
        self.write_pack(shard, &bytes)?;
        self.packs_written += 1;
        for run in std::mem::take(&mut self.pending) {
            self.remove(&run)?;
        }
        Ok(())
    }

    /// Writes a pack under the next free number.
    fn write_pack(&self, shard: &str, bytes: &[u8]) -> Result<(), CommandFailure> {
        // The directories of the runs are removed when a pack is durable, with its name.
        durable::ensure_shared_dir_synced(&self.dir.packs())?;
        let numbers =
            self.packs.pack_names(shard)?.into_iter().filter_map(|name| {
                name.strip_suffix(".zip")?.rsplit_once('-')?.1.parse::<u32>().ok()
            });
        let mut number = numbers.max().unwrap_or(0) + 1;
        loop {
            let path = self.dir.packs().join(format!("{shard}-{number:04}.zip"));
            let counted = durable::check_failpoint().map_err(|source| durable::FileError {
                action: "write",
                path: path.clone(),
                source,
            });
            match counted.and_then(|()| durable::create_read_only_once(&path, bytes)) {
                Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => number += 1,
                written => return Ok(written?),
            }
        }
    }

    /// Removes the directory of a run, if it is still what the pack has and no process works on it.
    fn remove(&mut self, run: &PackedRun) -> Result<(), CommandFailure> {
        match self.try_remove(run)? {
            Ok(()) => self.packed += 1,
            Err(reason) => self.report_failure(&run.id, &reason),
        }
        Ok(())
    }

    fn try_remove(&self, run: &PackedRun) -> Result<Result<(), String>, CommandFailure> {
        let root = self.dir.workspace(&run.id);
        let Some(run_dir) = find_run(&root, &run.id) else { return Ok(Ok(())) };
        let is_same = match archive_workspace(&root, run.keeps_workspace) {
            Ok(archive) => self.packs.has_archive(&run.id, &archive)?,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if !is_same {
            return Ok(Err("it has changed while it was packed".to_owned()));
        }
        let workspace = Workspace { root: root.clone() };
        let others = workspace.run_dirs()?.into_iter().filter(|dir| *dir != run_dir);
        for dir in others {
            let id = dir.file_name().and_then(|name| RunId::parse(name.to_str()?).ok());
            if let Some(Err(error)) = id.map(|id| Ownership::probe(&id, &dir)) {
                return Ok(Err(error.to_string()));
            }
        }
        let ownership = match Ownership::claim(&run.id, &run_dir) {
            Ok(ownership) => ownership,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if last_event(&run_dir).ok() != Some(run.seq) {
            return Ok(Err("it was continued while it was packed".to_owned()));
        }
        // A directory that is removed in part must not be taken for the run.
        let removed = draft_path(&root);
        durable::rename_dir_synced(&root, &removed)?;
        drop(ownership);
        durable::remove_dir_all_no_follow(&removed).map_err(|source| durable::FileError {
            action: "remove",
            path: removed.clone(),
            source,
        })?;
        Ok(Ok(()))
    }

    fn report_failure(&mut self, id: &RunId, reason: &str) {
        self.failed += 1;
        stdio::print_error_line(&format!("{id} stays: {reason}"));
    }

    fn report(&self) {
        let text = match self.packed {
            0 => "nothing to pack\n".to_owned(),
            packed => format!(
                "packed {} in {}\n",
                pluralize(packed, "run"),
                pluralize(self.packs_written, "new file")
            ),
        };
        stdio::print_text(&text);
    }
}

/// The directory of the run in a workspace.
fn find_run(root: &Path, id: &RunId) -> Option<PathBuf> {
    Workspace { root: root.to_owned() }.find_run(id).ok().flatten()
}

/// The number of the last event of a run.
fn last_event(run_dir: &Path) -> io::Result<u64> {
    let state = journal::summarize_run_journal(run_dir).map_err(io::Error::other)?;
    Ok(state.seq)
}
