//! `delta rm`: removes runs that nothing works on and nothing refers to.

use crate::drive::continue_run;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::{terminal, time};
use delta_operator::arguments::completion_candidates;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::RunArgument;
use delta_operator::runs::run_list::{
    self, ListColumns, RunListEntry, RunListStatus, find_below, read_runs_of, render_plain_lines,
};
use delta_operator::{cancel, command_line};
use delta_program::number_argument::parse_time_in;
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::journal;
use delta_run::ownership::Ownership;
use delta_run::ownership::claim::{ClaimPatience, OwnershipError};
use delta_run::state::HumanRequest;
use delta_run::workspace::{self, Workspace, run_removal};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

mod run_links;

use run_links::find_links;

/// The most runs that the question names.
const MAX_SHOWN_RUNS: usize = 20;

/// Remove runs
///
/// Removes the named runs, or all that --older-than and --status select, except runs that a process works on. At a terminal,
/// delta asks first; without one, selected runs and runs with staged changes, which are lost, need --yes.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RemoveArgs {
    /// Runs: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", conflicts_with_all = ["older_than", "status", "recursive"], value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    runs: Vec<RunArgument>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Select in all workspaces in these directories, at any depth [default without DIR: the current directory]
    #[arg(short, long, value_name = "DIR", num_args = 0.., conflicts_with = "work_dir", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    recursive: Option<Vec<PathBuf>>,
    /// Select runs that were last updated longer ago than this, such as 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = parse_time_in(0..=u64::MAX))]
    older_than: Option<u64>,
    /// Select runs with one of these statuses, separated by commas: see `delta list-runs --help`
    #[arg(
        long,
        value_enum,
        hide_possible_values = true,
        ignore_case = true,
        value_delimiter = ','
    )]
    status: Vec<RunListStatus>,
    /// Also remove runs that other runs refer to, that were sent, or whose last process was on another host
    #[arg(long)]
    force: bool,
    /// List the runs that would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove without asking
    #[arg(short, long)]
    yes: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta rm RUN -w ./work
  delta rm --older-than 30d --status COMPLETED,FAILED -w ./work
  delta rm -r ~/agents --older-than 30d --dry-run

Exit codes: 0 the runs are removed, 1 a run was not removed, 2 usage error";

/// Removes runs; returns the exit code.
pub fn remove_command(args: &RemoveArgs) -> ExitCode {
    if args.runs.is_empty() && args.older_than.is_none() && args.status.is_empty() {
        return command_line::print_usage_error::<RemoveArgs>(
            "rm",
            "expected the runs to remove: name them, `delta rm RUN...`, or select them with --older-than or --status",
        );
    }
    match remove_selected(args) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// The runs that a command removes, and the ones that stay although they were selected.
#[derive(Default)]
struct RemovalPlan {
    removable: Vec<RunListEntry>,
    refusals: Vec<RunRefusal>,
}

/// A run that is not removed.
struct RunRefusal {
    run_id: String,
    reason: String,
    hint: Option<String>,
}

impl RemoveArgs {
    fn selects_by_filter(&self) -> bool {
        self.runs.is_empty()
    }

    /// A named run that stays is a failure, a selected one is not.
    fn exit_code(
        &self,
        error_codes: &[ExitCode],
        refusals: &[RunRefusal],
        removed_count: usize,
    ) -> ExitCode {
        match error_codes {
            [] if self.selects_by_filter() || refusals.is_empty() => ExitCode::SUCCESS,
            // Where an error is all that happened, its own code says more.
            [code] if refusals.is_empty() && removed_count == 0 => *code,
            _ => ExitCode::FAILURE,
        }
    }

    /// Reports a run that stays: for a named run an error, for a selected one a note.
    fn print_refusal(&self, refusal: &RunRefusal) {
        let RunRefusal { run_id, reason, hint } = refusal;
        if !self.selects_by_filter() {
            stdio::print_error_line(&format!("error: run {run_id} is not removed: {reason}"));
            if let Some(hint) = hint {
                stdio::print_error_line(&format!("help: {hint}"));
            }
        } else if !self.quiet {
            stdio::print_error_line(&format!("Note: run {run_id} is not removed: {reason}"));
        }
    }
}

fn remove_selected(args: &RemoveArgs) -> Result<ExitCode, CommandFailure> {
    let (workspaces, selected) = select_runs(args)?;
    let RemovalPlan { mut removable, mut refusals } = plan_removal(args, selected);
    let mut error_codes = Vec::new();
    if args.dry_run {
        removable.retain(|run| match check_removable(args, run) {
            Ok(None) => true,
            Ok(Some(refusal)) => {
                refusals.push(refusal);
                false
            }
            Err(failure) => {
                error_codes.push(failure.report());
                false
            }
        });
    }
    refusals.iter().for_each(|refusal| args.print_refusal(refusal));
    if args.dry_run {
        let current = args.recursive.as_ref().and_then(|_| PathBuf::from(".").canonicalize().ok());
        let columns = ListColumns { workspaces_from: current.as_deref(), ..ListColumns::default() };
        stdio::print_text(&render_plain_lines(&removable, columns));
        return Ok(args.exit_code(&error_codes, &refusals, removable.len()));
    }
    if !removable.is_empty() && !confirm_removal(args, &removable)? {
        stdio::print_error_line("Nothing was removed");
        return Ok(ExitCode::FAILURE);
    }
    let mut removed_count = 0;
    for run in &removable {
        match remove_run_if_unchanged(args, run) {
            Ok(None) => removed_count += 1,
            Ok(Some(refusal)) => {
                args.print_refusal(&refusal);
                refusals.push(refusal);
            }
            // It does not keep the other runs from being removed.
            Err(failure) => error_codes.push(failure.report()),
        }
    }
    for workspace in &workspaces {
        if let Err(error) = run_removal::delete_removed_runs(workspace) {
            error_codes.push(CommandFailure::from(error).report());
        }
    }
    if !args.quiet {
        let count = command_line::pluralize(removed_count, "run");
        stdio::print_error_line(&format!("Removed {count}"));
    }
    Ok(args.exit_code(&error_codes, &refusals, removed_count))
}

/// The named runs, or the ones that the filters select, and the workspaces that were searched.
fn select_runs(args: &RemoveArgs) -> Result<(Vec<Workspace>, Vec<RunListEntry>), CommandFailure> {
    if !args.selects_by_filter() {
        let mut dirs = BTreeSet::new();
        let mut runs = Vec::new();
        for name in &args.runs {
            let run = name.find(&args.work_dir)?;
            if dirs.insert(run.dir.clone()) {
                runs.push(RunListEntry::read(&run.workspace, &run.dir));
            }
        }
        return Ok((workspaces_of(&runs), runs));
    }
    let workspaces = match &args.recursive {
        Some(dirs) => find_below(dirs)?,
        None => vec![Workspace::open_existing(&args.work_dir)?],
    };
    let now = time::current_time().as_millis();
    let oldest_age = args.older_than.map(|millis| i64::try_from(millis).unwrap_or(i64::MAX));
    let mut runs = read_runs_of(&workspaces);
    runs.retain(|run| {
        (args.status.is_empty() || args.status.contains(&run.status))
            && oldest_age.is_none_or(|age| now - run.last_updated.as_millis() > age)
    });
    run_list::sort_newest_first(&mut runs);
    Ok((workspaces, runs))
}

/// The workspaces of runs, each once.
fn workspaces_of(runs: &[RunListEntry]) -> Vec<Workspace> {
    let roots: BTreeSet<&PathBuf> = runs.iter().map(|run| &run.workspace).collect();
    roots.into_iter().map(|root| Workspace { root: root.clone() }).collect()
}

fn plan_removal(args: &RemoveArgs, selected: Vec<RunListEntry>) -> RemovalPlan {
    let links = if args.force { Vec::new() } else { find_links(&selected) };
    let mut plan = RemovalPlan::default();
    let mut removed_dirs: BTreeSet<PathBuf> = selected.iter().map(RunListEntry::dir).collect();
    // A run that stays may refer to another selected one, which then stays too.
    let mut has_changed = true;
    while std::mem::take(&mut has_changed) {
        for link in &links {
            if !removed_dirs.contains(&link.from_dir) && removed_dirs.remove(&link.to_dir) {
                has_changed = true;
                plan.refusals.push(RunRefusal {
                    run_id: link.to_id.clone(),
                    reason: link.describe(),
                    hint: Some("remove that run too, or add --force".to_owned()),
                });
            }
        }
    }
    plan.removable = selected.into_iter().filter(|run| removed_dirs.contains(&run.dir())).collect();
    plan
}

/// Asks at a terminal. Returns whether the runs are to be removed.
fn confirm_removal(args: &RemoveArgs, runs: &[RunListEntry]) -> Result<bool, CommandFailure> {
    if args.yes {
        return Ok(true);
    }
    let count = command_line::pluralize(runs.len(), "run");
    let staged_count = runs.iter().filter(|run| run.staged || asks_to_apply(run)).count();
    let lost = match staged_count {
        0 => String::new(),
        count => format!(", and the staged changes of {}", command_line::pluralize(count, "run")),
    };
    if !terminal::can_prompt() {
        if staged_count > 0 || args.selects_by_filter() {
            let message =
                format!("{count}{lost} would be removed, and there is no terminal to ask at");
            let hint = "add --yes to remove them, or --dry-run to list them";
            return Err(CommandFailure::usage(message, hint));
        }
        return Ok(true);
    }
    let current = args.recursive.as_ref().and_then(|_| PathBuf::from(".").canonicalize().ok());
    let columns = ListColumns { workspaces_from: current.as_deref(), ..ListColumns::default() };
    let first_runs = &runs[..runs.len().min(MAX_SHOWN_RUNS)];
    let mut list = run_list::render_terminal_list(first_runs, columns, terminal::stderr_width());
    if runs.len() > first_runs.len() {
        list.push_str(&format!("and {} more\n", runs.len() - first_runs.len()));
    }
    stdio::print_error_line(list.trim_end());
    let cancel = cancel::install_cancel()?;
    let answer = terminal::prompt_line(&format!("Remove {count}{lost}? [y/N] "), &cancel).map_err(
        |error| {
            let hint = "add --yes to remove without a question";
            CommandFailure::unanswered("nothing was removed", &error, hint)
        },
    )?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Whether the run asks whether the changes of a call are applied: with the run, they would be lost.
fn asks_to_apply(run: &RunListEntry) -> bool {
    if matches!(run.status, RunListStatus::Completed | RunListStatus::Damaged) {
        return false;
    }
    let state = journal::fold_run_journal(&run.dir());
    state.is_ok_and(|state| match state.human_request() {
        Some(HumanRequest::Approval(request)) => request.stage.is_some(),
        _ => false,
    })
}

/// Removes a run unless a process works on it or has changed it since it was selected. Returns why it was not removed.
fn remove_run_if_unchanged(
    args: &RemoveArgs,
    run: &RunListEntry,
) -> Result<Option<RunRefusal>, CommandFailure> {
    let dir = run.dir();
    let workspace = Workspace { root: run.workspace.clone() };
    let id = match removable_id(run) {
        Ok(id) => id,
        Err(refusal) => return Ok(Some(refusal)),
    };
    let (ownership, status) = match claim_for_removal(args, run, &id)? {
        RemovalClaim::Claimed(ownership, status) => (ownership, status),
        RemovalClaim::Refused(refusal) => return Ok(Some(refusal)),
    };
    if status == RunListStatus::Running {
        // Nothing but the run leads to them.
        let cancel = cancel::install_cancel()?;
        if let Some(text) = continue_run::end_left_processes(&id, &dir, &cancel)
            && !args.quiet
        {
            stdio::print_error_line(&format!("Note: run {id}: {text}"));
        }
    }
    run_removal::remove_run(&workspace, &dir, ownership)?;
    Ok(None)
}

/// Checks for `--dry-run` whether a run could be removed. Returns why not.
fn check_removable(
    args: &RemoveArgs,
    run: &RunListEntry,
) -> Result<Option<RunRefusal>, CommandFailure> {
    let id = match removable_id(run) {
        Ok(id) => id,
        Err(refusal) => return Ok(Some(refusal)),
    };
    // Without a lock file, no process works on the run, and a claim would create one.
    if !Ownership::has_owner_files(&run.dir()) {
        return Ok(None);
    }
    Ok(match claim_for_removal(args, run, &id)? {
        RemovalClaim::Claimed(..) => None,
        RemovalClaim::Refused(refusal) => Some(refusal),
    })
}

/// The id of a run whose directory is one of delta's: neither a symlink nor a directory with another kind of name.
fn removable_id(run: &RunListEntry) -> Result<RunId, RunRefusal> {
    let refuse = |reason: &str, hint: Option<String>| RunRefusal {
        run_id: run.run_id.clone(),
        reason: reason.to_owned(),
        hint,
    };
    let dir = run.dir();
    if dir.is_symlink() {
        let hint = format!("`rm {}` removes the symlink only", shell_quote_path(&dir));
        return Err(refuse("its directory is a symlink, and delta does not follow it", Some(hint)));
    }
    RunId::parse(&run.run_id).map_err(|_| refuse("its name is not a run id", None))
}

/// The right to remove a run, with its present status, or why it stays.
enum RemovalClaim {
    Claimed(Ownership, RunListStatus),
    Refused(RunRefusal),
}

fn claim_for_removal(
    args: &RemoveArgs,
    run: &RunListEntry,
    id: &RunId,
) -> Result<RemovalClaim, CommandFailure> {
    let dir = run.dir();
    let workspace = Workspace { root: run.workspace.clone() };
    let refuse = |reason: String, hint: Option<String>| {
        Ok(RemovalClaim::Refused(RunRefusal { run_id: run.run_id.clone(), reason, hint }))
    };
    let refuse_active = |pid: Option<u32>| {
        let pid = pid.map_or_else(String::new, |pid| format!(" (PID {pid})"));
        let work_dir = workspace::quote_workspace(&run.workspace);
        let hint = format!("stop it with `delta stop {id} -w {work_dir}`");
        refuse(format!("a process works on it{pid}"), Some(hint))
    };
    let patience = ClaimPatience { is_forced: args.force, ..ClaimPatience::default() };
    let mut ownership = match Ownership::claim_from_dying_owner(id, &dir, &patience) {
        Ok(ownership) => ownership,
        Err(OwnershipError::Active { pid, .. }) => return refuse_active(pid),
        Err(OwnershipError::Elsewhere { host, pid, .. }) => {
            let host = strip_terminal_controls(&host);
            let reason = format!("process {pid} on host '{host}' works on it, or has died");
            return refuse(reason, Some("if that process is dead, add --force".to_owned()));
        }
        Err(error) => return Err(error.into()),
    };
    let current = RunListEntry::read(&workspace, &dir);
    if args.selects_by_filter() && current.last_updated != run.last_updated {
        return refuse("it has changed since it was selected".to_owned(), None);
    }
    if let Some(destination) = current.moved_to.as_ref().filter(|_| !args.force) {
        let reason = format!("it was sent to {}", strip_terminal_controls(destination));
        let hint = "if it has arrived there, or is a copy, add --force".to_owned();
        return refuse(reason, Some(hint));
    }
    if current.calls_at_work > 0 {
        let work_dir = workspace::quote_workspace(&run.workspace);
        let hint = format!("end it with `delta stop {id} -w {work_dir}`");
        return refuse("a tool of it is at work".to_owned(), Some(hint));
    }
    if current.status == RunListStatus::Running
        && let Ok(state) = journal::fold_run_journal(&dir)
        && let Some(start) = &state.start
    {
        let has_left = state.status != Some(RunStatus::Running);
        match ownership.take_over(start, has_left, args.force) {
            Ok(()) => {}
            Err(OwnershipError::Active { pid, .. }) => return refuse_active(pid),
            Err(error) => {
                let hint = "if that process is dead, add --force".to_owned();
                return refuse(error.to_string().replace('\n', " "), Some(hint));
            }
        }
    }
    Ok(RemovalClaim::Claimed(ownership, current.status))
}
