//! `delta sweep run` and `delta sweep task`: work on the runs of a sweep.

use crate::commands::compare::{TableView, print_table};
use crate::commands::grade::grade_finished_runs;
use crate::commands::plan::plan_file;
use crate::commands::race::RaceCommand;
use crate::commands::status;
use crate::formats::host_grant::describe_used_budget;
use crate::formats::plan::{PlanHeader, PlannedRun};
use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::{ResultLine, SweepResults};
use crate::formats::selection::{RunSelection, TaskShare};
use crate::grading::sweep_scores::{SweepScores, lacks_grades};
use crate::planning::plan_reader::read_plan_of_run;
use crate::running::continued_runs::record_continued_runs;
use crate::running::host_grants::{open_shared_limits, read_host_grants, write_newest_total};
use crate::running::measured_runs::{measure_runs, settings_of};
use crate::running::result_reader::{ResultReader, read_sweep, reopen_failed_runs, stays_packed};
use crate::running::run_choice::{ONLY_HELP, choose_runs};
use crate::running::run_pool::{PoolOptions, PoolPass, RunPool, absolute_dir, install_pool_cancel};
use crate::scores::cost_estimate::warm_saving;
use clap::Args;
use delta_base::id::RunId;
use delta_base::quantity::parse_time_ms;
use delta_base::shell_quote::shell_quote_path;
use delta_base::signal::CancelToken;
use delta_base::time::{self, Timestamp};
use delta_operator::arguments::options::{show_only, tier_parser};
use delta_operator::command_line::{command_text, pluralize};
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_program::number_argument::{parse_number_in, parse_time_in};
use delta_program::stdio;
use delta_run::budget::ledger::amount_of_refused_call;
use delta_run::event::RunStatus;
use delta_run::sweep::packed::RunPacks;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_words::TierChoice;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The most jobs of a pool.
pub const MAX_JOBS: u32 = 10_000;
/// The most hosts of a sweep.
const MAX_HOSTS: u32 = 1_000_000;
/// The longest time of an option, some 34 years.
const MAX_TIME_MS: u64 = (1 << 40) - 1;

/// Work on the runs of a sweep on this machine
///
/// Starts the remaining runs, also on several hosts at once, then prints the status of the sweep. With FILE, a sweep.yaml, it
/// plans what is new first, and grades and compares afterwards.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub struct RunSweepArgs {
    /// Directory of the sweep, or the file that describes it
    #[arg(value_name = "DIR|FILE", default_value = ".", value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// Directory of the sweep [default: `name` in FILE, in the current directory]
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
    /// Grade between batches, and stop each value of KEY, such as model, that is worse than the leader
    #[arg(long, value_name = "KEY")]
    race: Option<String>,
    #[command(flatten)]
    pool: PoolArgs,
}

/// Work on a share of a sweep, as a task of an array
///
/// Works on its own share first, then on runs of other shares. `0/1` is everything; an id is that run alone.
#[derive(Debug, Args)]
#[command(mut_args = show_only(&["dir", "part"]), after_help = POOL_OPTIONS, after_long_help = format!("{POOL_OPTIONS}\n\n{TASK_EXAMPLES}"))]
pub struct TaskArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Share K/M, with K from 0 to M-1, or the id of a run
    #[arg(value_name = "K/M|ID")]
    part: String,
    #[command(flatten)]
    pool: PoolArgs,
}

/// The options of a pool.
#[derive(Debug, Args)]
pub struct PoolArgs {
    /// Work on N runs at a time [default: `rate.concurrent` of the sweep; 1 for one run]
    #[arg(short, long, value_name = "N", value_parser = parse_number_in(1..=MAX_JOBS))]
    jobs: Option<u32>,
    /// After a signal, give runs TIME to exit
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_time_in(1..=MAX_TIME_MS))]
    grace: u64,
    /// Start no run that would not end before TIME: `90m` from now, or a date such as 2026-01-31T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_until)]
    until: Option<Until>,
    /// With `--until`: how long a run takes [default: the median so far]
    #[arg(long, value_name = "TIME", requires = "until", value_parser = parse_time_in(1..=MAX_TIME_MS))]
    per_run: Option<u64>,
    /// Start at most N LLM calls a minute or second on all hosts together: `600/min`, `20/s`
    #[arg(long, value_name = "N/UNIT", value_parser = parse_call_rate)]
    rate: Option<CallsPerTime>,
    /// With `--rate`: how many hosts work on the sweep
    #[arg(long, value_name = "N", requires = "rate", default_value = "1", value_parser = parse_number_in(1..=MAX_HOSTS))]
    hosts: u32,
    /// Service tier of the runs [default: `tier` of the sweep]
    #[arg(long, value_name = "TIER", value_parser = tier_parser())]
    tier: Option<TierChoice>,
    /// Exit with 1 if a run FAILED
    #[arg(long)]
    strict: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    env_files: EnvFileOptions,
}

const RUN_EXAMPLES: &str = "\
Examples:
  delta sweep run sweep.yaml       # plan, run, grade and compare
  delta sweep run terse-or-not --jobs 32
  delta sweep run terse-or-not --only 'model=local input=a*'
  delta sweep run sweep.yaml --race model   # stops models that are worse

Exit codes: 0 no run remains, 1 a run FAILED, with --strict, or is ungraded, with FILE, 2 usage error, 3 the remaining runs cannot start now, 126 the plan has an error or runs do not start, 130 stopped, and runs remain";

/// The line in the help of `task`, which shares options with `run`.
const POOL_OPTIONS: &str = "Takes the options of `delta sweep run` too, except `--only`";

const TASK_EXAMPLES: &str = "\
Examples:
  delta sweep task DIR \"$SLURM_ARRAY_TASK_ID/200\" --jobs 4
  delta sweep list DIR --todo | parallel -j 8 delta sweep task DIR {}

Exit codes: as `delta sweep run`, for the whole sweep; with an id, for that run";

/// The end of a slot.
#[derive(Debug, Clone, Copy)]
enum Until {
    In(Duration),
    At(Timestamp),
}

fn parse_until(text: &str) -> Result<Until, String> {
    if let Some(millis) = parse_time_ms(text) {
        return Ok(Until::In(Duration::from_millis(millis)));
    }
    let at = Timestamp::parse(text).map(Until::At);
    at.ok_or_else(|| {
        "expected a time from now such as `90m`, or a date such as 2026-01-31T18:00:00Z".to_owned()
    })
}

impl Until {
    fn to_instant(self) -> Instant {
        let rest = match self {
            Self::In(duration) => duration,
            Self::At(at) => {
                let millis = at.as_millis() - time::current_time().as_millis();
                Duration::from_millis(u64::try_from(millis).unwrap_or(0))
            }
        };
        let now = Instant::now();
        now.checked_add(rest).unwrap_or(now)
    }
}

/// A number of LLM calls in a time.
#[derive(Debug, Clone, Copy)]
struct CallsPerTime {
    calls: u32,
    per_ms: u64,
}

fn parse_call_rate(text: &str) -> Result<CallsPerTime, String> {
    let units = [("min", 60_000), ("s", 1000), ("h", 3_600_000)];
    let parsed = text.split_once('/').and_then(|(calls, unit)| {
        let (_, per_ms) = units.into_iter().find(|(name, _)| *name == unit)?;
        let calls = calls.parse().ok().filter(|calls| *calls > 0)?;
        Some(CallsPerTime { calls, per_ms })
    });
    parsed.ok_or_else(|| {
        "expected a number of calls and a unit: `600/min`, `20/s`, `1000/h`".to_owned()
    })
}

impl PoolArgs {
    /// Files of variables for runs.
    pub fn env_files(&self) -> &[PathBuf] {
        &self.env_files.env_file
    }

    /// Whether a run that FAILED is a failure of the command.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Whether only errors are printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// How many runs are worked on at a time, if no option says it.
    pub fn jobs(&self, default_jobs: u32) -> u32 {
        self.jobs.unwrap_or(default_jobs)
    }

    /// The time between two LLM calls of this host; 0 for any.
    fn call_interval_ms(&self) -> u64 {
        self.rate.map_or(0, |rate| rate.per_ms * u64::from(self.hosts) / u64::from(rate.calls))
    }

    fn options(&self, default_jobs: u32) -> PoolOptions {
        PoolOptions {
            jobs: self.jobs(default_jobs) as usize,
            grace: Duration::from_millis(self.grace),
            until: self.until.map(Until::to_instant),
            per_run: self.per_run.map(Duration::from_millis),
            quiet: self.quiet,
            env_files: self.env_files.env_file.clone(),
            tier: self.tier,
        }
    }
}

/// The runs of a sweep that a pool works on.
struct SelectedRuns {
    dir: SweepDir,
    plan: SweepPlan,
    /// Their indexes in the plan.
    indexes: Vec<usize>,
    share: TaskShare,
    /// The command that works on what is left of them.
    command: String,
}

impl SelectedRuns {
    /// What is known of each of them.
    fn lines<'a>(
        &'a self,
        results: &'a SweepResults,
    ) -> impl Iterator<Item = Option<&'a ResultLine>> {
        self.indexes.iter().map(|index| results.lines.get(&self.plan.runs[*index].id))
    }
}

/// Works on all selected runs; returns the exit code.
pub fn run_sweep_command(args: &RunSweepArgs) -> Result<ExitCode, CommandFailure> {
    if is_sweep_file(&args.path) {
        return run_file(args);
    }
    if args.dir.is_some() {
        let hint = "write the directory alone, or name the file that describes the sweep";
        return Err(CommandFailure::usage("`--dir` requires FILE", hint.to_owned()));
    }
    if let Some(key) = &args.race {
        return args.race(key, &absolute_dir(&args.path)?);
    }
    let runs = work_on_selected(args, &args.path)?;
    if runs.needs_grades {
        let dir = shell_quote_path(&args.path);
        stdio::print_text(&format!("next: delta sweep grade {dir}\n"));
    }
    Ok(runs.code.into())
}

/// Whether a path names a sweep.yaml, and not the directory of a sweep. A file that is missing is reported as one if no directory
/// of a sweep has such a name.
pub fn is_sweep_file(path: &Path) -> bool {
    let is_yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    path.is_file() || is_yaml && !path.is_dir()
}

/// Plans a sweep.yaml, works on its selected runs, grades the finished ones, and compares; returns the exit code.
fn run_file(args: &RunSweepArgs) -> Result<ExitCode, CommandFailure> {
    let planned = plan_file(&args.path, args.dir.as_deref(), false)?;
    let PoolArgs { quiet, env_files, .. } = &args.pool;
    if !quiet {
        stdio::print_text(&planned.report);
    }
    if let Some(key) = &args.race {
        return args.race(key, &planned.dir);
    }
    let dir = planned.dir.root;
    let code = work_on_selected(args, &dir)?.code;
    // Stopped, or no run starts: what has finished is graded when the command is started again.
    if matches!(code, 126 | 130) {
        return Ok(code.into());
    }
    let only = args.only.as_ref();
    let graded = grade_finished_runs(&dir, only, &env_files.env_file, *quiet)?;
    if !quiet {
        let view = TableView::new(None, only);
        stdio::print_text("\n");
        print_table(&SweepScores::read_current(&SweepDir::new(&dir), only)?, &dir, &view)?;
    }
    Ok(if code == 0 { graded } else { code.into() })
}

impl RunSweepArgs {
    /// The command that works on what is left.
    fn command(&self) -> String {
        let only = self.only.as_ref().map(ToString::to_string);
        let options = [("only", only.as_deref()), ("race", self.race.as_deref())];
        command_text("sweep run", &self.path, self.dir.as_deref(), &options)
    }

    fn race(&self, key: &str, dir: &SweepDir) -> Result<ExitCode, CommandFailure> {
        let only = self.only.as_ref();
        RaceCommand { dir, key, only, pool: &self.pool, command: &self.command() }.work()
    }
}

/// Works on the runs of the sweep at `dir` that `--only` selects.
fn work_on_selected(args: &RunSweepArgs, path: &Path) -> Result<WorkedOn, CommandFailure> {
    let cancel = install_pool_cancel()?;
    let dir = absolute_dir(path)?;
    let (plan, results) = read_sweep(&dir)?;
    let only = args.only.as_ref();
    choose_runs(&plan.runs, only)?;
    let indexes: Vec<usize> = (0..plan.runs.len())
        .filter(|index| only.is_none_or(|only| only.selects(&plan.runs[*index])))
        .collect();
    let runs = SelectedRuns { dir, plan, indexes, share: TaskShare::ALL, command: args.command() };
    work_on_share(&runs, results, &args.pool, cancel)
}

/// Works on a share, or on one run; returns the exit code.
pub fn task_command(args: &TaskArgs) -> Result<ExitCode, CommandFailure> {
    let cancel = install_pool_cancel()?;
    let dir = absolute_dir(&args.dir)?;
    let Some(share) = TaskShare::parse(&args.part) else {
        return work_on_one_run(dir, &args.part, &args.pool, cancel);
    };
    let share = share.map_err(|message| CommandFailure::usage(message, None))?;
    let (plan, results) = read_sweep(&dir)?;
    let indexes = (0..plan.runs.len()).collect();
    let command = format!("delta sweep task {} {share}", shell_quote_path(&args.dir));
    let runs = SelectedRuns { dir, plan, indexes, share, command };
    let worked_on = work_on_share(&runs, results, &args.pool, cancel)?;
    if worked_on.needs_grades {
        let dir = shell_quote_path(&args.dir);
        stdio::print_text(&format!("next: delta sweep grade {dir}\n"));
    }
    Ok(worked_on.code.into())
}

/// What became of the runs that a command has worked on.
#[derive(Default)]
struct WorkedOn {
    /// The exit code.
    code: u8,
    /// Whether all are finished, the sweep has runs without a grade, and the user wants to know.
    needs_grades: bool,
}

/// Works on runs, and prints the status of their sweep.
fn work_on_share(
    runs: &SelectedRuns,
    results: ResultReader,
    args: &PoolArgs,
    cancel: CancelToken,
) -> Result<WorkedOn, CommandFailure> {
    let Some(settings) = runs.plan.settings() else { return Ok(WorkedOn::default()) };
    let options = args.options(settings.rate.concurrent);
    let pool = work_on(runs, settings, results, args.call_interval_ms(), options, cancel)?;
    let mut needs_grades = false;
    if !args.quiet {
        let results = &pool.results.results;
        stdio::print_text(&status::status_text(&runs.dir, &runs.plan, results)?);
        let is_settled = runs.lines(results).all(|line| line.is_some_and(|line| line.settled));
        needs_grades = is_settled && lacks_grades(&runs.dir, &runs.plan, results)?;
    }
    report_failed_runs(&pool.results.results, &runs.dir)?;
    let code = pool_exit_code(&pool, runs, args.strict);
    if code == 130 && !args.quiet {
        stdio::print_error_line(&format!("next: {}", runs.command));
    }
    Ok(WorkedOn { code, needs_grades })
}

/// How the work on a batch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchEnd {
    /// Each of its runs has ended, or cannot be worked on now.
    Done,
    /// The budget of the sweep allows no other call.
    OverBudget,
    /// A signal, or the end of a slot.
    Stopped,
    /// Runs of an agent and a model cannot begin; that was reported.
    Broken,
}

/// Works on the runs with these ids, and reports what remains of them and why. `command` continues after a signal.
pub fn work_on_batch(
    dir: &SweepDir,
    ids: &HashSet<RunId>,
    args: &PoolArgs,
    command: &str,
    cancel: CancelToken,
) -> Result<BatchEnd, CommandFailure> {
    let (plan, results) = read_sweep(dir)?;
    work_on_runs_of(plan, results, dir, ids, args, command, cancel)
}

/// As [`work_on_batch`], on runs of a plan with the results that there are, such as forks.
pub fn work_on_runs_of(
    plan: SweepPlan,
    results: ResultReader,
    dir: &SweepDir,
    ids: &HashSet<RunId>,
    args: &PoolArgs,
    command: &str,
    cancel: CancelToken,
) -> Result<BatchEnd, CommandFailure> {
    let indexes: Vec<usize> =
        (0..plan.runs.len()).filter(|index| ids.contains(&plan.runs[*index].id)).collect();
    let command = command.to_owned();
    let runs = SelectedRuns { dir: dir.clone(), plan, indexes, share: TaskShare::ALL, command };
    let Some(settings) = runs.plan.settings() else { return Ok(BatchEnd::Done) };
    let options = args.options(settings.rate.concurrent);
    let pool = work_on(&runs, settings, results, args.call_interval_ms(), options, cancel)?;
    Ok(match pool_exit_code(&pool, &runs, false) {
        126 => BatchEnd::Broken,
        130 => {
            stdio::print_error_line(&format!("next: {}", runs.command));
            BatchEnd::Stopped
        }
        _ if pool.budget_refusal.is_some() => BatchEnd::OverBudget,
        _ => BatchEnd::Done,
    })
}

/// Works on one run, and prints its status; returns the exit code. A sweep may do this for each of its runs, so nothing is
/// parsed of the other ones.
fn work_on_one_run(
    dir: SweepDir,
    id: &str,
    args: &PoolArgs,
    cancel: CancelToken,
) -> Result<ExitCode, CommandFailure> {
    let plan = read_plan_of_run(&dir, id)?;
    let needs_median = args.until.is_some() && args.per_run.is_none();
    let mut results = ResultReader::open_for(&dir, (!needs_median).then_some(id))?;
    reopen_failed_runs(&dir, &plan, &mut results.results)?;
    record_continued_runs(&dir, &plan, plan.runs.iter(), &mut results.results)?;
    let command = format!("delta sweep task {} {id}", shell_quote_path(&dir.root));
    let share = TaskShare::ALL;
    let runs = SelectedRuns { dir, plan, indexes: vec![0], share, command };
    let Some((settings, run)) = runs.plan.settings().zip(runs.plan.runs.first()) else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(line) = results.results.lines.get(&run.id).filter(|line| line.settled) {
        print_run_status(line, args.quiet);
        let has_failed = line.status == RunStatus::Failed;
        return Ok(ExitCode::from(u8::from(args.strict && has_failed)));
    }
    let pool = work_on(&runs, settings, results, args.call_interval_ms(), args.options(1), cancel)?;
    report_failed_runs(&pool.results.results, &runs.dir)?;
    if let Some(line) = pool.results.results.lines.get(&run.id) {
        print_run_status(line, args.quiet);
    }
    Ok(pool_exit_code(&pool, &runs, args.strict).into())
}

fn print_run_status(line: &ResultLine, quiet: bool) {
    if !quiet {
        stdio::print_text(&format!("{} {}\n", line.id, line.status));
    }
}

/// Works on runs with a pool, and reports what is left and why.
fn work_on<'a>(
    runs: &'a SelectedRuns,
    settings: &PlanHeader,
    mut results: ResultReader,
    call_interval_ms: u64,
    options: PoolOptions,
    cancel: CancelToken,
) -> Result<RunPool<'a>, CommandFailure> {
    let SelectedRuns { dir, plan, indexes, share, .. } = runs;
    let is_in_share = |index: &usize| share.contains(plan.runs[*index].n);
    let own_runs = indexes.iter().filter(|index| is_in_share(index));
    let own_runs = own_runs.map(|index| &plan.runs[*index]);
    record_continued_runs(dir, plan, own_runs, &mut results.results)?;
    write_newest_total(dir, &plan.headers)?;
    let is_warm = pays_to_warm(runs, settings, &results.results, options.jobs as u64)?;
    let shared = open_shared_limits(dir, settings, Some(call_interval_ms), Some(is_warm), &cancel)?;
    let retry = settings.retry.clone();
    let options = PoolOptions { tier: options.tier.or(Some(settings.tier)), ..options };
    let mut pool = RunPool::new(dir, plan, results, retry, options, shared, cancel)?;
    pool.work(indexes.iter().copied().filter(is_in_share).collect(), PoolPass::Unowned)?;
    let mut rest = pool.take_deferred();
    if *share != TaskShare::ALL {
        // Tasks that end early begin at different places.
        let others: Vec<usize> =
            indexes.iter().copied().filter(|index| !is_in_share(index)).collect();
        let start = others.len() * usize::try_from(share.index).unwrap_or(0)
            / usize::try_from(share.count).unwrap_or(1);
        let (before, after) = others.split_at(start.min(others.len()));
        pool.work(after.iter().chain(before).copied().collect(), PoolPass::Unbegun)?;
        rest.extend(pool.take_deferred());
    }
    pool.work(rest, PoolPass::All)?;
    pool.leave_sweep()?;
    report_problems(&pool, settings, dir)?;
    Ok(pool)
}

/// Whether `rate.warm` applies: by the finished runs, the remaining ones save more than a hundredth of their cost.
fn pays_to_warm(
    runs: &SelectedRuns,
    settings: &PlanHeader,
    results: &SweepResults,
    jobs: u64,
) -> Result<bool, CommandFailure> {
    /// A smaller saving is not worth a wait.
    const MIN_SAVING: f64 = 0.01;
    if !settings.rate.warm {
        return Ok(false);
    }
    let selected: Vec<&PlannedRun> =
        runs.indexes.iter().map(|index| &runs.plan.runs[*index]).collect();
    let mut measured = Vec::new();
    for (mut setting, runs_of_setting) in settings_of(&selected) {
        let remaining = runs_of_setting.iter().filter(|run| !results.is_settled(&run.id));
        setting.runs = remaining.count() as u64;
        setting.measured = measure_runs(&runs.dir, &runs_of_setting, results)?;
        measured.push(setting);
    }
    Ok(warm_saving(measured, jobs) > MIN_SAVING)
}

/// Prints what is left and why.
fn report_problems(
    pool: &RunPool<'_>,
    settings: &PlanHeader,
    dir: &SweepDir,
) -> Result<(), CommandFailure> {
    /// More of them are counted only.
    const MAX_REASONS: usize = 5;
    let unresolved: Vec<_> = pool.unresolved_runs().collect();
    if !pool.is_stopped() {
        for (run, reason) in unresolved.iter().take(MAX_REASONS) {
            stdio::print_error_line(&format!("{} remains: {reason}", run.id));
        }
        if unresolved.len() > MAX_REASONS {
            stdio::print_error_line(&format!("... and {} more", unresolved.len() - MAX_REASONS));
        }
    }
    if let Some(refusal) = &pool.budget_refusal {
        report_used_budget(settings, dir, refusal)?;
    }
    for reason in pool.broken_reasons() {
        stdio::print_error_line(&format!("error: {reason}"));
    }
    Ok(())
}

/// Prints how runs are tried again that FAILED outside of their agents.
///
/// # Errors
/// A pack cannot be read.
pub fn report_failed_runs(results: &SweepResults, dir: &SweepDir) -> Result<(), CommandFailure> {
    let packs = RunPacks::new(dir);
    let mut count = 0;
    for line in results.lines.values().filter(|line| line.failed_outside_of_agent()) {
        count += usize::from(!stays_packed(dir, &packs, &line.id)?);
    }
    if count > 0 {
        let runs = pluralize(count, "run");
        stdio::print_error_line(&format!(
            "help: {runs} FAILED because of the endpoint, a disk or a source; to try again, raise `retry.attempts` in sweep.yaml, plan the sweep again, and start it again"
        ));
    }
    Ok(())
}

/// Prints what was used of the budget of the sweep, which has refused a call.
pub fn report_used_budget(
    settings: &PlanHeader,
    dir: &SweepDir,
    refusal: &str,
) -> Result<(), CommandFailure> {
    let grants = read_host_grants(dir)?;
    let next_call = amount_of_refused_call(refusal);
    stdio::print_error_line(&describe_used_budget(&settings.budget, &grants, next_call));
    stdio::print_error_line(
        "help: raise `budget` in sweep.yaml, plan the sweep again, and start it again",
    );
    Ok(())
}

fn pool_exit_code(pool: &RunPool<'_>, runs: &SelectedRuns, is_strict: bool) -> u8 {
    let lines: Vec<Option<&ResultLine>> = runs.lines(&pool.results.results).collect();
    let is_work_left = !lines.iter().all(|line| line.is_some_and(|line| line.settled));
    let has_failed = lines.iter().flatten().any(|line| line.status == RunStatus::Failed);
    match () {
        () if pool.broken_reasons().next().is_some() => 126,
        () if is_work_left && (pool.is_stopped() || !pool.may_start()) => 130,
        () if is_work_left => 3,
        () if is_strict && has_failed => 1,
        () => 0,
    }
}
