//! The argument that names a run: its id in the workspace of `-w`, a unique prefix or suffix of the id, `last`, or the path
//! of the run directory, which may be a copy anywhere if the command only reads it.

use crate::command_line;
use crate::failure::CommandFailure;
use crate::runs::{own_run, run_list};
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_run::event::Event;
use delta_run::run_files::JOURNAL_FILE;
use delta_run::run_tree;
use delta_run::sweep::packed;
use delta_run::sweep::sweep_dir::{SweepDir, read_plan_files};
use delta_run::workspace::{self, CONTROL_DIR, Workspace, WorkspaceError};
use serde::Deserialize;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The name of the run of a workspace that was updated last. A run with this id is named by its path.
pub const LAST: &str = "last";

/// The most ids of a sweep that a failure lists.
const MAX_LISTED_IDS: usize = 8;

/// The name of a run, as the user wrote it.
#[derive(Debug, Clone)]
pub enum RunArgument {
    /// The run of the workspace that was updated last.
    Last,
    /// An id, or a prefix or suffix of one.
    Name(String),
    /// The path of a run directory.
    Dir(PathBuf),
}

/// A run directory that exists.
#[derive(Debug)]
pub struct LocatedRun {
    /// The id of the run.
    pub id: RunId,
    /// Absolute.
    pub dir: PathBuf,
    /// The workspace of the run; the parent directory of a copied run that is only read.
    pub workspace: Workspace,
    /// The workspace as the user named it.
    pub workspace_argument: PathBuf,
    /// The pack of a sweep from which this process has just made the directory.
    pub unpacked_from: Option<PathBuf>,
}

impl LocatedRun {
    /// Whether the run is in a workspace and can be continued.
    pub fn is_in_workspace(&self) -> bool {
        control_dir_of(&self.dir).is_some()
    }

    /// The workspace under which a sweep knows the run, also while the run is packed.
    pub fn sweep_workspace(&self) -> PathBuf {
        let named = &self.workspace_argument;
        named.canonicalize().unwrap_or_else(|_| named.clone())
    }

    /// The workspace, quoted for the shell.
    pub fn quoted_workspace(&self) -> String {
        workspace::quote_workspace(&self.workspace.root)
    }
}

impl RunArgument {
    /// Parses a path, which has a slash or is `.` or `..`, or a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('/') || text == "." || text == ".." {
            Ok(Self::Dir(PathBuf::from(text)))
        } else {
            Self::parse_name(text)
        }
    }

    /// The run and the text of `delta COMMAND [RUN] TEXT`: a single argument is the text, unless it names a run, whose text is
    /// missing then. `noun` is what the text is.
    pub fn split_text(
        first: Option<&str>,
        text: Option<&str>,
        work_dir: &Path,
        command: &str,
        noun: &str,
    ) -> Result<(Self, String), CommandFailure> {
        let Some(first) = first else {
            let hint = format!("`delta {command} TEXT` is for the run that was updated last");
            return Err(CommandFailure::usage(format!("the {noun} is missing"), hint));
        };
        if let Some(text) = text {
            return Ok((Self::parse_or_fail(first)?, text.to_owned()));
        }
        if first == LAST || is_run_in(first, work_dir) {
            let message = format!("the {noun} for the run `{first}` is missing");
            let workspace = match work_dir.to_str() {
                Some(".") => String::new(),
                _ => format!(" -w {}", workspace::quote_workspace(work_dir)),
            };
            let hint = format!("write `delta {command} {first}{workspace} TEXT`");
            return Err(CommandFailure::usage(message, hint));
        }
        Ok((Self::Last, first.to_owned()))
    }

    /// The run and the text of `delta COMMAND [RUN] [TEXT]`: a single argument is the run if it can be the name of one, so that a
    /// mistyped id is not sent to another run as a message; else it is the text.
    pub fn split_optional_text<'t>(
        first: Option<&'t str>,
        text: Option<&'t str>,
    ) -> Result<(Self, Option<&'t str>), CommandFailure> {
        match (first, text) {
            (None, text) => Ok((Self::Last, text)),
            (Some(first), Some(_)) => Ok((Self::parse_or_fail(first)?, text)),
            (Some(first), None) if first.contains(char::is_whitespace) => {
                Ok((Self::Last, Some(first)))
            }
            (Some(first), None) => {
                Ok(Self::parse(first).map_or((Self::Last, Some(first)), |run| (run, None)))
            }
        }
    }

    fn parse_or_fail(text: &str) -> Result<Self, CommandFailure> {
        Self::parse(text).map_err(|error| CommandFailure::usage(error, None))
    }

    /// Parses `last`, an id, or a prefix or suffix of one.
    pub fn parse_name(text: &str) -> Result<Self, String> {
        if text == LAST {
            return Ok(Self::Last);
        }
        // An end of an id may start with one of these characters, an id does not.
        let rest = text.trim_start_matches(['.', '_', '-']);
        if rest.is_empty() || rest.len() == text.len() {
            command_line::parse_run_id(text)?;
        } else {
            command_line::parse_run_id(rest)?;
        }
        Ok(Self::Name(text.to_owned()))
    }

    /// The id, if the argument can be one.
    pub fn requested_id(&self) -> Option<RunId> {
        match self {
            Self::Name(name) => RunId::parse(name).ok(),
            Self::Last | Self::Dir(_) => None,
        }
    }

    /// Finds the run; a name in the workspace or the sweep `work_dir`. A packed run of a sweep is unpacked.
    pub fn find(&self, work_dir: &Path) -> Result<LocatedRun, CommandFailure> {
        if let Some(complete) = self.complete_in_sweep(work_dir)? {
            return complete.find(work_dir);
        }
        self.locate(work_dir, open_to_change)
    }

    /// Finds the run in the workspace that `open` opens: as it is named, and where it is or was.
    fn locate(
        &self,
        work_dir: &Path,
        open: fn(&Path, &Path) -> Result<Workspace, CommandFailure>,
    ) -> Result<LocatedRun, CommandFailure> {
        let unpacked_from = match self.find_absent(work_dir) {
            Some((dir, id)) => packed::RunPacks::new(&dir).unpack(&id)?,
            None => None,
        };
        let in_sweep = self.sweep_workspace(work_dir);
        let work_dir = in_sweep.as_deref().unwrap_or(work_dir);
        let (id, workspace, workspace_argument) = match self {
            Self::Dir(dir) => {
                let (id, root) = split_run_dir(dir)?;
                (id, open(&root, &root)?, root)
            }
            Self::Last => {
                let workspace = open(work_dir, &workspace::resolve_existing(work_dir))?;
                (run_list::find_last_updated(&workspace)?, workspace, work_dir.to_owned())
            }
            Self::Name(name) => {
                let workspace = open(work_dir, &workspace::resolve_existing(work_dir))?;
                (find_id(name, &workspace)?, workspace, work_dir.to_owned())
            }
        };
        let dir = own_run::find_run_dir(&id, &workspace)?;
        Ok(LocatedRun { id, dir, workspace, workspace_argument, unpacked_from })
    }

    /// Finds the run for a command that only reads it; the run directory may be a copy outside of any workspace.
    pub fn find_readable(&self, work_dir: &Path) -> Result<LocatedRun, CommandFailure> {
        if let Some(complete) = self.complete_in_sweep(work_dir)? {
            return complete.find_readable(work_dir);
        }
        if let Some(copy) = self.copy_packed(work_dir)? {
            return Ok(copy);
        }
        match self {
            Self::Dir(dir) if control_dir_of(dir).is_none() => locate_copied_run(dir),
            _ => self.locate(work_dir, open_to_read),
        }
    }

    /// The whole id, if `work_dir` is a sweep and the argument a prefix or suffix of the id of one of its runs, packed or not.
    fn complete_in_sweep(&self, work_dir: &Path) -> Result<Option<Self>, CommandFailure> {
        #[derive(Deserialize)]
        struct PlannedRunId<'a> {
            #[serde(borrow)]
            id: Cow<'a, str>,
        }
        let Self::Name(name) = self else { return Ok(None) };
        if !packed::is_sweep(work_dir) || self.sweep_workspace(work_dir).is_some() {
            return Ok(None);
        }
        let mut matches: Vec<String> = Vec::new();
        let _ = read_plan_files(&SweepDir::new(work_dir), |text| {
            let lines = text.lines().skip(1).filter(|line| line.contains(name.as_str()));
            let ids = lines.filter_map(|line| serde_json::from_str::<PlannedRunId<'_>>(line).ok());
            let ids = ids.map(|line| line.id);
            let ids = ids.filter(|id| id.starts_with(name.as_str()) || id.ends_with(name.as_str()));
            matches.extend(ids.map(Cow::into_owned));
            Ok(())
        });
        match matches.as_slice() {
            // A workspace whose file has the name of a plan has runs of its own.
            [] if !work_dir.join(CONTROL_DIR).exists() => {
                let sweep = shell_quote_path(work_dir);
                let message =
                    format!("the sweep {sweep} has no run whose id begins or ends with `{name}`");
                let hint = format!("`delta sweep list {sweep}` prints the ids");
                Err(CommandFailure::not_found(message, hint))
            }
            [id] if id != name => Ok(Some(Self::Name(id.clone()))),
            many if many.len() < 2 || many.contains(name) => Ok(None),
            many => {
                let count = many.len();
                let sweep = work_dir.display();
                let message = format!("`{name}` begins or ends the ids of {count} runs in {sweep}");
                let more = if count > MAX_LISTED_IDS { "\n..." } else { "" };
                let listed = &many[..count.min(MAX_LISTED_IDS)];
                let hint = format!("write more of the id:\n{}{more}", listed.join("\n"));
                Err(CommandFailure::ambiguous(message, hint))
            }
        }
    }

    /// A temporary copy of the run, if it is a packed run of a sweep, which stays packed.
    pub fn copy_packed(&self, work_dir: &Path) -> Result<Option<LocatedRun>, CommandFailure> {
        let Some((sweep, id)) = self.find_absent(work_dir) else { return Ok(None) };
        let Some(root) = packed::extract_to_read(&sweep, &id)? else { return Ok(None) };
        let workspace = Workspace { root };
        let dir = workspace.run_dir(&id);
        let workspace_argument = sweep.workspace(&id);
        Ok(Some(LocatedRun { id, dir, workspace, workspace_argument, unpacked_from: None }))
    }

    /// The run and its sweep, if it is a run of a sweep without a directory: it may be packed.
    fn find_absent(&self, work_dir: &Path) -> Option<(SweepDir, RunId)> {
        match self {
            Self::Last => None,
            Self::Name(name) => packed::find_absent_run(Some(&RunId::parse(name).ok()?), work_dir),
            Self::Dir(dir) => {
                let workspace = dir.parent().filter(|control| control.ends_with(CONTROL_DIR))?;
                packed::find_absent_run(None, workspace.parent()?)
            }
        }
    }

    /// The workspace of the run, if `work_dir` is a sweep that has it.
    fn sweep_workspace(&self, work_dir: &Path) -> Option<PathBuf> {
        let Self::Name(name) = self else { return None };
        let id = RunId::parse(name).ok()?;
        let workspace = SweepDir::new(work_dir).workspace(&id);
        (workspace.is_dir() && packed::is_sweep(work_dir)).then_some(workspace)
    }

    /// Finds the run as [`RunArgument::find_readable`] does and reads its journal.
    pub fn find_and_read(
        &self,
        work_dir: &Path,
    ) -> Result<(LocatedRun, Vec<Event>), CommandFailure> {
        let run = self.find_readable(work_dir)?;
        let events = own_run::read_journal(&run.id, &run.dir)?.events;
        Ok((run, events))
    }
}

/// Opens the workspace `path`, which is at `root`, to read its runs: in a directory for all runs, they outlive it.
fn open_to_read(path: &Path, root: &Path) -> Result<Workspace, CommandFailure> {
    Workspace::find_lost(root).map_or_else(|| Ok(Workspace::open_existing(path)?), Ok)
}

/// Opens the workspace `path`, which is at `root`, to change it or its runs.
fn open_to_change(path: &Path, root: &Path) -> Result<Workspace, CommandFailure> {
    let opened = Workspace::open_existing(path);
    let Some(lost) = Workspace::find_lost(root) else { return Ok(opened?) };
    let failure = match opened {
        Ok(other) => {
            let message = format!(
                "the workspace {} is a symlink to {} now",
                path.display(),
                other.root.display()
            );
            CommandFailure::config(message, None)
        }
        Err(error) => error.into(),
    };
    let control = shell_quote_path(&lost.control_dir());
    Err(failure.with_hint(format!(
        "its runs are in {control}, where commands that only read find them;\n\
         for others, move it back, or create that directory"
    )))
}

/// The id `name` if there is such a run or none that could be meant, else the only id that begins or ends with `name`.
fn find_id(name: &str, workspace: &Workspace) -> Result<RunId, CommandFailure> {
    let exact = RunId::parse(name).ok();
    if let Some(id) = &exact
        && workspace.find_run(id)?.is_some()
    {
        return Ok(id.clone());
    }
    let mut matches: Vec<RunId> =
        workspace.run_dirs()?.iter().filter_map(|dir| run_id_of(dir)).collect();
    matches.retain(|id| id.as_str().starts_with(name) || id.as_str().ends_with(name));
    let root = workspace.root.display();
    match (matches.len(), exact) {
        (1, _) => Ok(matches.remove(0)),
        (0, Some(id)) => Ok(id),
        (0, None) => {
            let message = format!("no id of a run in {root} ends with `{name}`");
            let quoted_root = workspace::quote_workspace(&workspace.root);
            let hint = format!("`delta list-runs -w {quoted_root}` lists the runs there");
            Err(CommandFailure::not_found(message, hint))
        }
        (count, _) => {
            let message = format!("`{name}` is a prefix or suffix of {count} run ids in {root}");
            let candidates = run_list::render_candidates(&matches, workspace);
            Err(CommandFailure::ambiguous(message, format!("write more of the id:\n{candidates}")))
        }
    }
}

/// Whether `text` is the id of a run in the workspace.
fn is_run_in(text: &str, work_dir: &Path) -> bool {
    let Ok(id) = RunId::parse(text) else { return false };
    let workspace = Workspace::open_existing(work_dir);
    workspace.is_ok_and(|workspace| matches!(workspace.find_run(&id), Ok(Some(_))))
}

/// The id of the run in `dir`: the name of the directory.
fn run_id_of(dir: &Path) -> Option<RunId> {
    RunId::parse(dir.file_name()?.to_str()?).ok()
}

/// Splits the path of a run directory into the id and the workspace.
fn split_run_dir(dir: &Path) -> Result<(RunId, PathBuf), CommandFailure> {
    // What this link in `.delta` leads to is another run than the one that the user sees under this name.
    if dir.is_symlink() && dir.parent().is_some_and(|parent| parent.ends_with(CONTROL_DIR)) {
        return Err(WorkspaceError::Symlink(dir.to_owned()).into());
    }
    // A relative path need not contain the workspace.
    let dir_path = dir.canonicalize().map_err(|_| not_a_run_failure(dir))?;
    let id = run_id_of(&dir_path);
    let control = control_dir_of(&dir_path);
    let root = control.as_deref().and_then(workspace::workspace_of_control);
    // The path of a run in a directory for all runs names that directory too.
    let entry = control.as_deref().and_then(Path::parent);
    let outside = entry.filter(|entry| root.as_deref() != Some(entry)).and_then(Path::parent);
    if let Some(dir) = outside.filter(|dir| workspace::runs_dir() != Some(dir)) {
        workspace::set_runs_dir(dir.to_owned(), true);
    }
    id.zip(root).ok_or_else(|| not_a_run_failure(dir))
}

fn not_a_run_failure(dir: &Path) -> CommandFailure {
    let message = format!("{} is not a run directory", dir.display());
    CommandFailure::not_found(
        message,
        "name the run by its id or by its path, WORKSPACE/.delta/RUN",
    )
}

/// The `.delta` directory that contains a run directory.
fn control_dir_of(dir: &Path) -> Option<PathBuf> {
    let dir = dir.canonicalize().ok()?;
    dir.parent().filter(|control| control.ends_with(CONTROL_DIR)).map(Path::to_owned)
}

/// Locates a run outside of any workspace. Its id is the one in its journal, or else the name of its directory.
fn locate_copied_run(dir: &Path) -> Result<LocatedRun, CommandFailure> {
    let run_dir = dir.canonicalize().map_err(|_| not_a_run_failure(dir))?;
    durable::add_root(&run_dir);
    let journal = run_dir.join(JOURNAL_FILE);
    let parent = run_dir.parent().map(Path::to_owned);
    let id = run_tree::recorded_run_id(&run_dir).or_else(|| run_id_of(&run_dir));
    match (id, parent) {
        (Some(id), Some(root)) if durable::is_file_no_follow(&journal) => Ok(LocatedRun {
            id,
            dir: run_dir,
            workspace: Workspace { root: root.clone() },
            workspace_argument: root,
            unpacked_from: None,
        }),
        _ => Err(not_a_run_failure(dir)),
    }
}
