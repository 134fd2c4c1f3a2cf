//! Takes in recorded runs as inputs: finds them, refuses what no run can begin with, and copies each once.

use crate::formats::input::{InputSet, SweepInput};
use crate::formats::plan::{RunChoice, RunDefinition};
use crate::formats::recorded_input::{
    IterationChoice, IterationEnd, OutsideState, RecordedInput, input_of_run,
};
use crate::planning::input_reader::InputReader;
use crate::planning::plan_reader::{read_plan_of_run, unreadable_file};
use crate::planning::plan_sources::find_paths;
use crate::planning::source_copies::SourceCopies;
use delta_base::durable;
use delta_base::id::{RunId, SnapshotId};
use delta_base::shell_quote::shell_quote_path;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::{own_run, restore_point};
use delta_run::chain::{ChainValue, split_line};
use delta_run::event::{Event, RunStatus};
use delta_run::fork::{self, ForkPoint};
use delta_run::journal;
use delta_run::journal::seal::SealStatus;
use delta_run::run_files::JOURNAL_FILE;
use delta_run::state::RunState;
use delta_run::sweep::packed::{self, pack_run_copy};
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::{
    CONTROL_DIR, Workspace, check_layout, ensure_run_subdirs, workspace_of_control,
};
use delta_snapshot::{ExcludePatterns, SNAPSHOT_DIR_NAME, SnapshotStore};
use serde_json::{Value as Json, json};
use std::collections::{BTreeSet, HashSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The inputs that recorded runs are, and the trees that their workspaces begin with instead of a snapshot.
pub fn take_recorded_runs(
    pattern: &str,
    choice: &IterationChoice,
    base: &Path,
    copies: &mut SourceCopies,
) -> Result<(InputSet, BTreeSet<String>), CommandFailure> {
    let mut runs = Vec::new();
    let mut ids = HashSet::new();
    for path in find_paths("runs", pattern, base)?.filter(|path| path.is_dir()) {
        let run = locate_run(&path)?;
        if !ids.insert(run.id.clone()) {
            let message = format!("`runs`: two runs have the id {}", run.id);
            return Err(CommandFailure::config(
                message,
                format!("leave out {}", shell_quote_path(&run.dir)),
            ));
        }
        runs.push(run);
    }
    if runs.is_empty() {
        let message = format!("`runs`: no directory matches `{}`", base.join(pattern).display());
        return Err(CommandFailure::config(message, PATTERN_HELP.to_owned()));
    }
    let mut inputs = Vec::new();
    let mut trees = BTreeSet::new();
    for run in &runs {
        RecordedRun::read(run)?.take(choice, copies, &mut inputs, &mut trees)?;
    }
    Ok((InputSet::from_inputs(&inputs), trees))
}

const PATTERN_HELP: &str = "name directories of runs, or workspaces with one run each, relative to the file, such as `work/.delta/*` or `SWEEP/runs/*/*`; `delta unpack` unpacks runs of a sweep";

/// The run that `path` names. Where its records are is for this run alone: the sweep keeps its own place for records.
fn locate_run(path: &Path) -> Result<LocatedRun, CommandFailure> {
    let dir = resolve_run_dir(path)?;
    let dir = dir.canonicalize().map_err(|source| unreadable_file(dir, source))?;
    let control = dir.parent().filter(|parent| parent.ends_with(CONTROL_DIR));
    let parents = control.and_then(|control| Some((control, workspace_of_control(control)?)));
    let Some((control, root)) = parents else {
        return RunArgument::Dir(dir).find_readable(Path::new("."));
    };
    check_layout(control)?;
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Ok(id) = RunId::parse(name) else {
        let message = format!("`runs`: {} is not a run", dir.display());
        return Err(CommandFailure::config(message, PATTERN_HELP.to_owned()));
    };
    let workspace = Workspace { root: root.clone() };
    Ok(LocatedRun { id, dir, workspace, workspace_argument: root, unpacked_from: None })
}

/// The directory of the run that `path` is, or that is in the workspace `path`: of several the one that it is named after, as
/// in a sweep.
fn resolve_run_dir(path: &Path) -> Result<PathBuf, CommandFailure> {
    if path.parent().is_some_and(|parent| parent.ends_with(CONTROL_DIR))
        || path.join(JOURNAL_FILE).is_file()
    {
        return Ok(path.to_owned());
    }
    let runs = Workspace::open_existing(path)?.run_dirs()?;
    let named = runs.iter().find(|run| run.file_name() == path.file_name());
    match (named, runs.as_slice()) {
        (Some(run), _) | (None, [run]) => Ok(run.clone()),
        (None, []) => {
            let message = format!("`runs`: {} is neither a run nor a workspace", path.display());
            Err(CommandFailure::config(message, PATTERN_HELP.to_owned()))
        }
        (None, many) => {
            let message = format!("`runs`: {} has {} runs", path.display(), many.len());
            let help = format!("name them: `{}/.delta/*`", path.display());
            Err(CommandFailure::config(message, help))
        }
    }
}

/// A recorded run that a plan can take in.
struct RecordedRun<'a> {
    run: &'a LocatedRun,
    events: Vec<Event>,
    /// The ends of its complete iterations.
    points: Vec<ForkPoint>,
    state: RunState,
    snapshots: Option<SnapshotStore>,
    /// What it was in its sweep.
    planned: Option<(SweepDir, SweepInput, RunDefinition)>,
}

impl<'a> RecordedRun<'a> {
    fn read(run: &'a LocatedRun) -> Result<Self, CommandFailure> {
        let LocatedRun { id, dir, .. } = run;
        let damaged = |failure: CommandFailure| {
            let message = format!("run {id} cannot be an input: {}", failure.message());
            CommandFailure::config(message, failure.hint().map(str::to_owned))
        };
        let folded = own_run::fold_own_journal(id, dir).map_err(damaged)?;
        refuse_foreign_run(id, &folded.seals)?;
        let state = folded.state;
        if state.status == Some(RunStatus::Running) && !own_run::process_is_gone(&state) {
            let help =
                format!("wait for it, or stop it: delta stop {id} -w {}", run.quoted_workspace());
            return Err(CommandFailure::config(format!("run {id} is active"), help));
        }
        if folded.seals.is_edited {
            let message = format!("run {id} cannot be an input: {}", own_run::CHANGED_JOURNAL);
            return Err(CommandFailure::config(message, "restore its journal, or leave it out"));
        }
        let events = own_run::read_journal(id, dir).map_err(damaged)?.events;
        let points = ForkPoint::all(&events)
            .map_err(|error| damaged(CommandFailure::config(error.to_string(), None)))?;
        let has_store = durable::is_dir_no_follow(&dir.join(SNAPSHOT_DIR_NAME));
        let snapshots = has_store.then(|| restore_point::open_run_store(dir, &state));
        let snapshots = snapshots.transpose().map_err(damaged)?;
        let planned = find_planned_input(run)?;
        Ok(Self { run, events, points, state, snapshots, planned })
    }

    fn unusable(&self, reason: &dyn Display) -> CommandFailure {
        CommandFailure::config(format!("run {} cannot be an input: {reason}", self.run.id), None)
    }

    /// The snapshot of its files at the end of an iteration.
    fn tree_at(&self, iteration: u32) -> Option<SnapshotId> {
        self.snapshots.as_ref().and_then(|_| self.state.snapshot_at_end_of(iteration))
    }

    /// What its sweep gave it, if no iteration of another run did.
    fn given_files(&self) -> Option<(&SweepDir, &RunDefinition)> {
        let (dir, _, definition) = self.planned.as_ref()?;
        (definition.recorded.is_none() && self.state.origin.is_none()).then_some((dir, definition))
    }

    /// Adds the inputs that the run is, and copies it up to the last of their iterations.
    fn take(
        &self,
        choice: &IterationChoice,
        copies: &mut SourceCopies,
        inputs: &mut Vec<SweepInput>,
        trees: &mut BTreeSet<String>,
    ) -> Result<(), CommandFailure> {
        let chosen = choice
            .choose(&self.run.id, &self.iteration_ends())
            .map_err(|(message, help)| CommandFailure::config(message, help))?;
        let last = chosen.iter().max().and_then(|at| self.points.get(*at as usize));
        let Some(last) = last.copied() else { return Ok(()) };
        let mut copy = self.copy_records(last, copies)?;
        let chain = chain_values(&copy.lines);
        let name = chain.last().map(ToString::to_string).unwrap_or_default();
        let mut outside = OutsideState::default();
        let mut read = 0;
        for point in &self.points[..=last.iteration as usize] {
            self.events[read..point.event_count].iter().for_each(|event| outside.add(event));
            read = point.event_count;
            if !chosen.contains(&point.iteration) {
                continue;
            }
            let tree = self.tree_at(point.iteration);
            let left_out = tree.map(|tree| copy.check_tree(self, tree)).transpose()?;
            let recorded = RecordedInput {
                copy: name.clone(),
                run: self.run.id.clone(),
                at: point.iteration,
                chain: chain[point.event_count - 1].to_string(),
                tree,
                outside: outside.names(&left_out.unwrap_or_default()),
            };
            inputs.push(self.input(recorded, copies, trees)?);
        }
        let packed = pack_run_copy(&copy.root).map_err(|error| self.unusable(&error))?;
        copies.add_run(&name, &packed, &copy.root)
    }

    fn iteration_ends(&self) -> Vec<IterationEnd> {
        let mut state = RunState::default();
        let mut read = 0;
        let ends = self.points.iter().map(|point| {
            self.events[read..point.event_count].iter().for_each(|event| state.apply(event));
            read = point.event_count;
            let is_given = point.iteration == 0 && self.given_files().is_some();
            IterationEnd {
                has_result: state.result.is_some(),
                has_files: is_given || self.tree_at(point.iteration).is_some(),
            }
        });
        ends.collect()
    }

    /// Copies the records of the run up to `last`, as a fork does.
    fn copy_records(
        &self,
        last: ForkPoint,
        copies: &SourceCopies,
    ) -> Result<RecordsCopy, CommandFailure> {
        let LocatedRun { id, dir, .. } = self.run;
        let root = copies.new_dir();
        let run_dir = copied_run_dir(&root);
        durable::ensure_private_dir(&run_dir)?;
        ensure_run_subdirs(&run_dir)?;
        let events = &self.events[..last.event_count];
        let lines = journal::read_journal_lines(dir, last.event_count)
            .map_err(|error| own_run::unreadable_journal_failure(id, error))?;
        durable::create_private_unsynced(&run_dir.join(JOURNAL_FILE), &lines)?;
        fork::copy_records(dir, &run_dir, events)?;
        let mut store = SnapshotStore::open(&run_dir, ExcludePatterns::default())?;
        if let Some(snapshots) = &self.snapshots {
            restore_point::copy_snapshots(snapshots, &mut store, events)?;
        }
        // The copy lacks later events, which can name another owner of the run.
        let recorded = self.state.start.as_ref().map_or(id, |start| &start.run_id);
        refuse_foreign_run(id, &own_run::fold_own_journal(recorded, &run_dir)?.seals)?;
        Ok(RecordsCopy { root, lines, store })
    }

    fn input(
        &self,
        recorded: RecordedInput,
        copies: &mut SourceCopies,
        trees: &mut BTreeSet<String>,
    ) -> Result<SweepInput, CommandFailure> {
        let planned = self.planned.as_ref().map(|(_, input, _)| input);
        let mut members = planned.map(|input| input.members.clone()).unwrap_or_default();
        for key in ["from", "files", "tree"] {
            members.shift_remove(key);
        }
        let group = planned.map(|input| input.group.as_ref().unwrap_or(&input.id).as_str());
        let mut set = |key: &str, text: &str| members.insert(key.to_owned(), Json::from(text));
        set("id", &format!("{}@{}", recorded.run, recorded.at));
        set("group", group.unwrap_or(input_of_run(&recorded.run)));
        set("task", self.state.conversation.task());
        let mut tree = None;
        if let Some((dir, definition)) = self.given_files().filter(|_| recorded.tree.is_none()) {
            if !definition.files.is_empty() {
                members.insert("files".to_owned(), json!(definition.files));
            }
            if let Some(first_tree) = &definition.tree {
                let copied = copies.add_input(&dir.input_copy(first_tree))?;
                trees.insert(copied.clone());
                tree = Some(copied);
            }
        }
        let input = SweepInput::from_members(members)
            .map_err(|(message, help)| CommandFailure::config(message, help))?;
        Ok(SweepInput { tree, recorded: Some(recorded), ..input })
    }
}

/// The records of a run up to an iteration.
struct RecordsCopy {
    /// A directory that has nothing else.
    root: PathBuf,
    /// The lines of its journal.
    lines: Vec<u8>,
    store: SnapshotStore,
}

impl RecordsCopy {
    /// Checks that the copy has the whole snapshot `tree`; returns the paths that the snapshot leaves out.
    fn check_tree(
        &mut self,
        run: &RecordedRun<'_>,
        tree: SnapshotId,
    ) -> Result<Vec<Vec<u8>>, CommandFailure> {
        let copied =
            run.snapshots.iter().try_for_each(|from| self.store.copy_tree_from(from, tree));
        let planned = copied.and_then(|()| {
            let empty = self.store.empty_tree()?;
            self.store.plan_restore(empty, tree, None)
        });
        let planned = planned.map_err(|error| {
            let message = format!("run {} cannot be an input: {error}", run.run.id);
            CommandFailure::config(message, "restore its snapshots, or leave it out")
        })?;
        Ok(planned.diff.omitted)
    }
}

/// Refuses a run without a seal of this operator: no fork of it could be continued.
fn refuse_foreign_run(id: &RunId, seals: &SealStatus) -> Result<(), CommandFailure> {
    if seals.is_own() {
        return Ok(());
    }
    let message = format!("run {id} is foreign: what it has recorded has no seal of yours");
    Err(CommandFailure::config(message, "name runs that you have recorded"))
}

/// The directory of the run in the copy of a recorded run.
pub fn copied_run_dir(root: &Path) -> PathBuf {
    root.join(CONTROL_DIR).join("run")
}

/// The chain value of each line. Lines of earlier versions have none, and are chained as a newer line after them would have it.
fn chain_values(lines: &[u8]) -> Vec<ChainValue> {
    let mut values: Vec<ChainValue> = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let (covered, value) = split_line(line);
        values.push(value.unwrap_or_else(|| ChainValue::after(values.last().copied(), covered)));
    }
    values
}

/// The sweep that has the run, its input and its definition there; `None` outside of a sweep.
fn find_planned_input(
    run: &LocatedRun,
) -> Result<Option<(SweepDir, SweepInput, RunDefinition)>, CommandFailure> {
    let sweep = packed::sweep_of_workspace(&run.sweep_workspace());
    let Some((dir, _)) = sweep.filter(|(_, id)| *id == run.id) else { return Ok(None) };
    let plan = read_plan_of_run(&dir, run.id.as_str())?;
    let Some((planned, header)) =
        plan.runs.first().and_then(|planned| Some((planned, plan.header_of(planned)?)))
    else {
        return Ok(None);
    };
    let input = InputReader::new(&dir).input_of(&plan, planned)?;
    let choice = RunChoice {
        agent: &planned.agent,
        model: &planned.model,
        params: &planned.params,
        repeat: planned.repeat,
    };
    let definition = header.define_run(choice, &input);
    Ok(definition.ok().map(|definition| (dir, input, definition)))
}
