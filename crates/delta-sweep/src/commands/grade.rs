//! `delta sweep grade`: the scores of settled runs.

use crate::formats::grade::GradeLine;
use crate::formats::grader::{GraderKind, PlannedGrader};
use crate::formats::input::SweepInput;
use crate::formats::plan::PlannedRun;
use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::ResultLine;
use crate::formats::selection::RunSelection;
use crate::grading::graded_inputs::GradeTarget;
use crate::grading::grader_program::{find_changed_argument, find_changed_program};
use crate::grading::run_grader::{GradedRun, RunGrader};
use crate::grading::sweep_scores::{SweepScores, can_be_graded};
use crate::planning::plan_reader::read_existing_plans;
use crate::planning::sweep_keys::planned_key_names;
use crate::running::continued_runs::{look_up_missing_lines, record_continued_runs};
use crate::running::delta_program::find_delta;
use crate::running::host_grants::{open_shared_limits, write_newest_total};
use crate::running::line_writer::open_line_file;
use crate::running::run_choice::{ONLY_HELP, choose_runs};
use clap::Args;
use delta_base::durable::{self, FileLock, SharedLineFile};
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_operator::command_line::{command_text, pluralize};
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, environment};
use delta_program::stdio;
use delta_run::sweep::packed::RunPacks;
use delta_run::sweep::shared_limits::SharedLimits;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::sweep::sweep_worker::host_file_stem;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often a command that waits for another one looks for its end.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

/// Grade the finished runs of a sweep
///
/// Gives each finished run a score with each grader of sweep.yaml, unless it has one. A run whose grader fails stays ungraded,
/// which is never a 0.
#[derive(Debug, Default, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct GradeArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Grade only with this grader [default: all]
    #[arg(long, value_name = "NAME")]
    grader: Option<String>,
    /// Grade at most N runs at a time [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
    /// Grade again what graders left ungraded
    #[arg(long)]
    retry_ungraded: bool,
    /// Grade again what has a score too; the new grades are used
    #[arg(long, conflicts_with = "retry_ungraded")]
    regrade: bool,
    /// Read variables for agents that judge from FILE; repeatable
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    env_file: Vec<PathBuf>,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

impl GradeArgs {
    fn selects(&self, run: &PlannedRun) -> bool {
        self.only.as_ref().is_none_or(|only| only.selects(run))
    }

    /// The command that grades again what is ungraded.
    fn retry_command(&self) -> String {
        let only = self.only.as_ref().map(ToString::to_string);
        let options = [("grader", self.grader.as_deref()), ("only", only.as_deref())];
        command_text("sweep grade", &self.dir, None, &options) + " --retry-ungraded"
    }
}

const EXAMPLES: &str = "\
Examples:
  delta sweep grade DIR --grader judge --jobs 4 --env-file keys.env
  delta sweep grade DIR --retry-ungraded
  delta sweep grade DIR --grader judge --only 'model=local' --regrade

Exit codes: 0 every finished run has a score, 1 a run is ungraded or a file could not be written, 2 usage error, 126 no plan, no grader in it, or a changed file of a grader, 130 interrupted";

/// Grades what is finished in the sweep at `dir` and has no grade, if the sweep has graders; returns the exit code of
/// [`grade_command`].
pub fn grade_finished_runs(
    dir: &Path,
    only: Option<&RunSelection>,
    env_files: &[PathBuf],
    quiet: bool,
) -> Result<ExitCode, CommandFailure> {
    let plan = read_existing_plans(&SweepDir::new(dir))?;
    if plan.settings().is_none_or(|settings| settings.grade.is_empty()) {
        return Ok(ExitCode::SUCCESS);
    }
    grade_command(&GradeArgs {
        dir: dir.to_owned(),
        only: only.cloned(),
        env_file: env_files.to_vec(),
        quiet,
        ..GradeArgs::default()
    })
}

/// Grades; returns the exit code.
pub fn grade_command(args: &GradeArgs) -> Result<ExitCode, CommandFailure> {
    let root = std::path::absolute(&args.dir).unwrap_or_else(|_| args.dir.clone());
    let dir = SweepDir::new(root);
    read_existing_plans(&dir)?;
    let cancel = cancel::install_cancel()?;
    durable::ensure_shared_dir(&dir.grades())?;
    let lock = dir.grades().join(host_file_stem(&dir.grades())? + ".lock");
    let Some(_lock) = wait_for_lock(&lock, "grade", &cancel)? else {
        return Err(CommandFailure::interrupted("interrupted before anything was graded"));
    };
    let mut scores = SweepScores::read(&dir)?;
    let SweepScores { plan, results, .. } = &mut scores;
    let selected = choose_runs(&plan.runs, args.only.as_ref())?;
    record_continued_runs(&dir, plan, selected.into_iter(), results)?;
    look_up_missing_lines(&dir, plan, results);
    let graders: Vec<&PlannedGrader> = match &args.grader {
        Some(name) => scores.grader(Some(name))?.into_iter().collect(),
        None => scores.graders().iter().collect(),
    };
    if graders.is_empty() {
        let hint =
            "add `grade` to sweep.yaml and plan again; without it, COMPLETED has the score 1";
        return Err(CommandFailure::config("the sweep has no grader", hint.to_owned()));
    }
    let counts = grade_runs(args, &dir, &scores, &graders, &cancel)?;
    if !args.quiet {
        stdio::print_text(&counts.to_text());
    }
    if counts.ungraded > 0 && !args.quiet {
        stdio::print_text(&format!("next: {}\n", args.retry_command()));
    }
    if counts.done < counts.planned {
        let left = pluralize(counts.planned - counts.done, "grade");
        return Err(CommandFailure::interrupted(format!("interrupted; {left} left")));
    }
    Ok(if counts.ungraded == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Grades forks with a grader; with `retries` also forks that it left ungraded before. `dir` is the sweep with its forks.
/// Returns false if that was cancelled.
pub fn grade_forks(
    dir: &SweepDir,
    forks: &SweepScores,
    grader: &PlannedGrader,
    env_files: &[PathBuf],
    retries: bool,
    cancel: &CancelToken,
) -> Result<bool, CommandFailure> {
    let args = GradeArgs {
        env_file: env_files.to_vec(),
        retry_ungraded: retries,
        quiet: true,
        ..GradeArgs::default()
    };
    let counts = grade_runs(&args, dir, forks, &[grader], cancel)?;
    Ok(counts.done == counts.planned)
}

/// Grades what is finished and has no grade; the lines are written.
fn grade_runs(
    args: &GradeArgs,
    dir: &SweepDir,
    scores: &SweepScores,
    graders: &[&PlannedGrader],
    cancel: &CancelToken,
) -> Result<GradeCounts, CommandFailure> {
    let GradeWork { tasks, ungraded } = find_work(args, scores, graders)?;
    graders.iter().for_each(|grader| note_changed_program(dir, grader));
    let orders = tasks.iter().flat_map(|task| &task.grades);
    orders.map(|order| order.grader).try_for_each(refuse_changed_argument)?;
    let key_names = find_key_names(dir, &scores.plan, &tasks)?;
    // Judges are runs of the sweep: within its budget, at its rate.
    let has_judge = graders.iter().any(|grader| matches!(grader.kind, GraderKind::Agent { .. }));
    let shared = match scores.plan.settings().filter(|_| has_judge && !tasks.is_empty()) {
        Some(settings) => {
            write_newest_total(dir, &scores.plan.headers)?;
            Some(open_shared_limits(dir, settings, None, None, cancel)?)
        }
        None => None,
    };
    let variables = shared.as_ref().map(SharedLimits::variables).unwrap_or_default();
    let planned = tasks.iter().map(|task| task.grades.len()).sum();
    let counts = GradeCounts { planned, ..GradeCounts::new(graders, &ungraded) };
    let setup = GraderSetup { key_names: &key_names, shared_variables: &variables };
    let counts = grade_all(args, dir, &tasks, counts, setup, cancel)?;
    if let Some(shared) = &shared {
        shared.give_back()?;
    }
    Ok(counts)
}

/// Tells that a grader is not what the author has now.
fn note_changed_program(dir: &SweepDir, grader: &PlannedGrader) {
    if let Some(path) = find_changed_program(dir, grader) {
        stdio::print_error_line(&format!(
            "Note: {} differs from the copy that grader `{}` was planned with; run `delta sweep plan` to use the new file",
            path.display(),
            grader.name
        ));
    }
}

/// Refuses to grade with a file that is not the one that the hash of the grader is of.
fn refuse_changed_argument(grader: &PlannedGrader) -> Result<(), CommandFailure> {
    let Some(path) = find_changed_argument(grader) else { return Ok(()) };
    let message =
        format!("grader `{}`: {} has changed since it was planned", grader.name, path.display());
    let help = "plan the sweep again: the grader is another one, and grades all runs";
    Err(CommandFailure::config(message, help))
}

/// The lock of the `delta sweep` command that works here; `None` if the wait for another one was cancelled. Without it, two
/// commands would let the same graders work in the same workspaces.
pub fn wait_for_lock(
    path: &Path,
    command: &str,
    cancel: &CancelToken,
) -> Result<Option<FileLock>, CommandFailure> {
    let mut is_reported = false;
    loop {
        if let Some(lock) = FileLock::try_acquire(path)? {
            return Ok(Some(lock));
        }
        if !is_reported {
            let holder = durable::read_lock_holder(path);
            let holder = holder.map_or_else(String::new, |pid| format!(" (PID {pid})"));
            stdio::print_error_line(&format!(
                "waiting for another `delta sweep {command}`{holder}"
            ));
            is_reported = true;
        }
        if cancel.wait(LOCK_INTERVAL) {
            return Ok(None);
        }
    }
}

/// A run to grade, by one grader after the other: all of them work in its workspace.
struct GradeTask<'a> {
    run: &'a PlannedRun,
    line: &'a ResultLine,
    grades: Vec<GradeOrder<'a>>,
    input: SweepInput,
}

/// A grade to make.
struct GradeOrder<'a> {
    grader: &'a PlannedGrader,
    target: GradeTarget,
    /// How often a person has asked for it again.
    regrade: u32,
}

/// What a command has to grade, and what it leaves.
struct GradeWork<'a> {
    tasks: Vec<GradeTask<'a>>,
    /// What graders left ungraded before, and is not graded again.
    ungraded: Vec<&'a GradeLine>,
}

/// What is settled, says something about the agent, and has no score yet.
fn find_work<'a>(
    args: &GradeArgs,
    scores: &'a SweepScores,
    graders: &[&'a PlannedGrader],
) -> Result<GradeWork<'a>, CommandFailure> {
    let mut inputs = scores.inputs.borrow_mut();
    let mut work = GradeWork { tasks: Vec::new(), ungraded: Vec::new() };
    for run in scores.plan.runs.iter().filter(|run| args.selects(run)) {
        let line = scores.results.lines.get(&run.id);
        let Some(line) = line.filter(|line| can_be_graded(line)) else { continue };
        let mut grades = Vec::new();
        for grader in graders {
            let target = inputs.grade_target(&scores.plan, run, line, grader)?;
            let known = target.find(&scores.grades);
            let mut regrade = known.map_or(0, |grade| grade.regrade);
            match known {
                Some(_) if args.regrade => regrade += 1,
                Some(grade) if grade.score.is_some() => continue,
                Some(grade) if !args.retry_ungraded => {
                    work.ungraded.push(grade);
                    continue;
                }
                _ => {}
            }
            grades.push(GradeOrder { grader, target, regrade });
        }
        if !grades.is_empty() {
            let input = inputs.input_of(&scores.plan, run)?;
            work.tasks.push(GradeTask { run, line, grades, input });
        }
    }
    Ok(work)
}

/// The variables that the commands among the graders do not get.
fn find_key_names(
    dir: &SweepDir,
    plan: &SweepPlan,
    tasks: &[GradeTask<'_>],
) -> Result<Vec<String>, CommandFailure> {
    let mut grades = tasks.iter().flat_map(|task| &task.grades);
    if !grades.any(|order| matches!(order.grader.kind, GraderKind::Command { .. })) {
        return Ok(Vec::new());
    }
    let names = planned_key_names(dir, plan)?;
    environment::overwrite_keys(&names);
    Ok(names)
}

/// How many runs a grader gave a score.
#[derive(Debug, Default, Clone, Copy)]
struct GraderCounts {
    graded: usize,
    passed: usize,
}

impl GraderCounts {
    /// `tests 3 passed`; with the number of its runs if that is not `runs`.
    fn to_text(self, name: &str, runs: usize) -> String {
        let name = delta_base::terminal_text::strip_terminal_controls(name);
        let Self { graded, passed } = self;
        if graded == runs {
            format!("{name} {passed} passed")
        } else {
            format!("{name} {passed} of {graded} passed")
        }
    }
}

/// What became of the runs.
#[derive(Debug, Default)]
struct GradeCounts {
    /// By the name of the grader, in the order of the plan.
    graders: Vec<(String, GraderCounts)>,
    /// The runs with a score, each once.
    graded: BTreeSet<RunId>,
    /// The grades that this command has to make, and how many it has made.
    planned: usize,
    done: usize,
    /// How often a run has no score, also by an earlier command.
    ungraded: usize,
    /// The first reasons.
    reasons: Vec<String>,
}

/// How many reasons are printed.
const MAX_REASONS: usize = 5;

impl GradeCounts {
    /// Counts for graders, with what is ungraded before they begin.
    fn new(graders: &[&PlannedGrader], ungraded: &[&GradeLine]) -> Self {
        let names = graders.iter().map(|grader| (grader.name.clone(), GraderCounts::default()));
        let mut counts = Self { graders: names.collect(), ..Self::default() };
        ungraded.iter().for_each(|line| counts.add_ungraded(line));
        counts
    }

    fn add_ungraded(&mut self, line: &GradeLine) {
        self.ungraded += 1;
        if self.reasons.len() < MAX_REASONS {
            let reason = line.ungraded.as_deref().unwrap_or_default();
            self.reasons.push(format!("{} by {}: {reason}", line.id, line.grader));
        }
    }

    fn add(&mut self, line: &GradeLine) {
        self.done += 1;
        match line.score {
            Some(_) => {
                self.graded.insert(line.id.clone());
                let mut counts = self.graders.iter_mut();
                if let Some((_, counts)) = counts.find(|(name, _)| *name == line.grader) {
                    counts.graded += 1;
                    counts.passed += usize::from(line.pass == Some(true));
                }
            }
            None => self.add_ungraded(line),
        }
    }

    fn graded_text(&self) -> String {
        let runs = self.graded.len();
        let passed = self.graders.iter().filter(|(_, counts)| counts.graded > 0);
        let passed = passed.map(|(name, counts)| counts.to_text(name, runs));
        let passed = passed.collect::<Vec<_>>().join(", ");
        let separator = if passed.is_empty() { "" } else { ": " };
        format!("graded {}{separator}{passed}", pluralize(runs, "run"))
    }

    fn to_text(&self) -> String {
        let mut text = match (self.done, self.ungraded) {
            (0, 0) => "nothing to grade: every finished run has its grades".to_owned(),
            (0, _) => "nothing new to grade".to_owned(),
            _ => self.graded_text(),
        };
        if self.ungraded > 0 {
            text.push_str(&format!("; {} ungraded:", self.ungraded));
        }
        text.push('\n');
        for reason in &self.reasons {
            let reason = delta_base::terminal_text::strip_terminal_controls(reason);
            text.push_str(&format!("  {reason}\n"));
        }
        if self.ungraded > self.reasons.len() {
            text.push_str(&format!("  and {} more\n", self.ungraded - self.reasons.len()));
        }
        text
    }
}

/// What graders are started with besides their runs.
#[derive(Clone, Copy)]
struct GraderSetup<'a> {
    key_names: &'a [String],
    shared_variables: &'a [(OsString, OsString)],
}

/// What the threads that grade share.
struct GradeQueue<'a> {
    tasks: &'a [GradeTask<'a>],
    dir: &'a SweepDir,
    program: &'a Path,
    env_files: &'a [PathBuf],
    setup: GraderSetup<'a>,
    next: AtomicUsize,
    busy: AtomicUsize,
    /// Woken after each grade.
    cancel: &'a CancelToken,
    written: Mutex<(SharedLineFile, GradeCounts, Option<CommandFailure>)>,
}

fn grade_all(
    args: &GradeArgs,
    dir: &SweepDir,
    tasks: &[GradeTask<'_>],
    counts: GradeCounts,
    setup: GraderSetup<'_>,
    cancel: &CancelToken,
) -> Result<GradeCounts, CommandFailure> {
    if tasks.is_empty() {
        return Ok(counts);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(processors, usize::from).min(tasks.len());
    let program = find_delta()?;
    let env_files: Vec<PathBuf> = args
        .env_file
        .iter()
        .map(|file| std::path::absolute(file).unwrap_or(file.clone()))
        .collect();
    durable::ensure_shared_dir(&dir.grades())?;
    let tokens = (0..jobs).map(|_| CancelToken::manual()).collect::<Result<Vec<_>, _>>();
    let tokens = tokens.map_err(|error| {
        CommandFailure::config(format!("could not start graders: {error}"), None)
    })?;
    let queue = GradeQueue {
        tasks,
        dir,
        program: &program,
        env_files: &env_files,
        setup,
        next: AtomicUsize::new(0),
        busy: AtomicUsize::new(jobs),
        cancel,
        written: Mutex::new((open_line_file(&dir.grades())?, counts, None)),
    };
    std::thread::scope(|scope| {
        for token in &tokens {
            scope.spawn(|| queue.work(token));
        }
        while queue.busy.load(Ordering::SeqCst) > 0 {
            if cancel.is_requested() {
                tokens.iter().for_each(CancelToken::request);
            }
            cancel.wait_for_wake(None);
        }
    });
    let (_, counts, failure) = queue.written.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(counts), Err)
}

impl GradeQueue<'_> {
    /// Grades until nothing is left, `token` is requested, or a grade could not be written.
    fn work(&self, token: &CancelToken) {
        let packs = RunPacks::new(self.dir);
        while !token.is_requested() {
            let index = self.next.fetch_add(1, Ordering::SeqCst);
            let Some(task) = self.tasks.get(index) else { break };
            if let Err(failure) = self.unpack(&packs, task) {
                let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
                written.2 = Some(failure);
                break;
            }
            if !task.grades.iter().all(|order| self.grade(task, order, token)) {
                break;
            }
        }
        self.busy.fetch_sub(1, Ordering::SeqCst);
        self.cancel.wake();
    }

    /// Makes the workspace of a packed run again, in which graders work and judges leave their runs.
    fn unpack(&self, packs: &RunPacks, task: &GradeTask<'_>) -> Result<(), CommandFailure> {
        let id = &task.run.id;
        if !self.dir.workspace(id).is_dir() {
            packs.unpack(id)?;
        }
        Ok(())
    }

    /// Grades a run and writes its grade; false if that was cancelled or could not be written.
    fn grade(&self, task: &GradeTask<'_>, order: &GradeOrder<'_>, token: &CancelToken) -> bool {
        let run_grader = RunGrader {
            dir: self.dir,
            grader: order.grader,
            program: self.program,
            env_files: self.env_files,
            key_names: self.setup.key_names,
            shared_variables: self.setup.shared_variables,
        };
        let graded = GradedRun {
            run: task.run,
            line: task.line,
            input: &task.input,
            target: &order.target,
            regrade: order.regrade,
        };
        let Some(grade) = run_grader.grade(graded, token) else { return false };
        let line = GradeLine::new(&order.target.key, grade, time::current_time().to_string());
        let line = GradeLine { regrade: order.regrade, ..line };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        match written.0.append(&line.to_line()) {
            Ok(()) => written.1.add(&line),
            Err(error) => written.2 = Some(error.into()),
        }
        let is_written = written.2.is_none();
        drop(written);
        self.cancel.wake();
        is_written
    }
}
