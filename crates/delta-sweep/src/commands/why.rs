//! `delta sweep why`: the iteration in which a run was lost, from forks of the run.
//!
//! A fork has the id of its run, iteration and number, so it is made, continued and graded once, however often the command is
//! killed and started again. Which forks are next is decided by [`search_forks`], from the forks that there are.

use crate::commands::grade::{grade_forks, wait_for_lock};
use crate::commands::rounds::{Round, RoundsEnd, work_in_rounds};
use crate::commands::run::{BatchEnd, PoolArgs, report_used_budget, work_on_runs_of};
use crate::commands::status::ReportFormat;
use crate::commands::status::terminal_width;
use crate::formats::grader::PlannedGrader;
use crate::formats::plan::{PlanHeader, PlannedRun};
use crate::formats::plan_file::SweepPlan;
use crate::formats::retry_policy::Remaining;
use crate::formats::sweep_file::RunLimits;
use crate::grading::run_grader::{JUDGE_TIMEOUT, run_grader_process};
use crate::grading::sweep_scores::SweepScores;
use crate::running::continued_runs::refresh_results;
use crate::running::delta_program::find_delta;
use crate::running::result_reader::ResultReader;
use crate::running::run_pool::{absolute_dir, find_last_error, install_pool_cancel};
use crate::running::sweep_record::replace_sweep_record;
use crate::scores::fork_search::{ForkKey, search_forks};
use crate::scores::loss_text::{LostRun, SearchEstimate};
use crate::scores::score_table::{RunScore, ScoredRun};
use clap::Args;
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::json::to_json;
use delta_base::shell_quote::shell_quote_path;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::own_run;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::{build_info, environment};
use delta_process::LaunchContext;
use delta_program::stdio;
use delta_run::budget::ledger::amount_of_refused_call;
use delta_run::conversation::history::{Iteration, RunHistory};
use delta_run::event::{Event, Payload};
use delta_run::journal::{self, JournalError};
use delta_run::state::RunState;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::{self, Workspace};
use delta_snapshot::SNAPSHOT_DIR_NAME;
use delta_statistics::step::{SearchStatus, SearchedPoints};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// The most characters of a call that are printed.
const MAX_CALL_CHARS: usize = 200;

/// Find the iteration in which a run was lost
///
/// Forks a run that did not pass after different iterations, continues the forks and grades them, until it is clear after which
/// iteration forks stop passing. The forks are in `forks/` of the sweep.
#[derive(Debug, Args)]
#[command(mut_arg("strict", |arg| arg.hide(true)), after_long_help = EXAMPLES)]
pub struct WhyArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Run that did not pass: id, or unique prefix or suffix
    #[arg(value_name = "ID", value_parser = RunArgument::parse)]
    id: RunArgument,
    /// Use the scores of this grader [default: the first one]
    ///
    /// Without graders, a run that COMPLETED has passed.
    #[arg(long, value_name = "NAME")]
    grader: Option<String>,
    /// Print the number of forks and their cost, and fork nothing
    #[arg(long)]
    dry_run: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
    #[command(flatten)]
    pool: PoolArgs,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep list DIR --not-passed       # the ids of runs that did not pass
  delta sweep why DIR ID --dry-run        # what it costs
  delta sweep why DIR ID

Exit codes: 0 an iteration is named, 2 usage error, 3 no iteration is named or the budget is used up, 126 the run cannot be forked or a fork has no score, 130 interrupted";

/// Searches; returns the exit code.
pub fn why_command(args: &WhyArgs) -> Result<ExitCode, CommandFailure> {
    find_loss(args).map_err(|failure| match failure.exit_code() {
        1 => CommandFailure::config(failure.message(), failure.hint().map(str::to_owned)),
        _ => failure,
    })
}

fn find_loss(args: &WhyArgs) -> Result<ExitCode, CommandFailure> {
    let cancel = install_pool_cancel()?;
    let dir = absolute_dir(&args.dir)?;
    let mut scores = SweepScores::read(&dir)?;
    let located = args.id.find_readable(&dir.root)?;
    scores.plan.runs.retain(|run| run.id == located.id);
    let SweepScores { plan, results, .. } = &mut scores;
    refresh_results(&dir, plan, plan.runs.iter(), results);
    let grader = scores.grader(args.grader.as_deref())?;
    let scored = scores.scored_runs(grader, None)?;
    let Some((scored, settings)) = scored.first().zip(scores.plan.settings()) else {
        let sweep = shell_quote_path(&args.dir);
        return Err(CommandFailure::config(
            format!("{} is not a run of the sweep {sweep}", located.id),
            format!("`delta sweep list {sweep} --not-passed` lists the runs that did not pass"),
        ));
    };
    check_not_passed(scored, args)?;
    let recorded = ForkableRun::read(&located)?;
    let estimate = SearchEstimate {
        iterations: recorded.iterations(),
        run_usd: scored.line.and_then(|line| line.cost_usd),
    };
    if args.format == ReportFormat::Text {
        stdio::print_text(&estimate.to_text());
    } else if args.dry_run {
        let json = json!({
            "run": located.id,
            "iterations": estimate.iterations,
            "estimate": estimate.to_json(),
        });
        stdio::print_json(&(to_json(&json) + "\n"));
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    durable::ensure_shared_dir(&dir.forks())?;
    let lock = dir.forks().join(format!("{}.lock", located.id));
    let Some(_lock) = wait_for_lock(&lock, "why", &cancel)? else {
        return Err(CommandFailure::interrupted("interrupted before anything was forked"));
    };
    let mut forked = ForkedRun {
        args,
        dir: dir.with_forks(),
        headers: &scores.plan.headers,
        settings,
        run: scored.run,
        iterations: recorded.iterations(),
        grader,
        cancel,
        known: KnownForks { scores: BTreeMap::new(), cost_usd: None },
        asked: Vec::new(),
    };
    match work_in_rounds(&mut forked, ForkedRun::next_round, ForkedRun::run_forks)? {
        RoundsEnd::Decided(()) => {}
        RoundsEnd::OverBudget => forked.known = forked.read_known(false)?,
        RoundsEnd::Stopped => return Ok(ExitCode::from(130)),
        RoundsEnd::Broken => {
            return Err(CommandFailure::config("nothing is named: forks cannot begin", None));
        }
    }
    let search = forked.known.search(forked.iterations);
    let lost = LostRun {
        run: &located.id,
        grader: grader.map(|grader| grader.name.as_str()),
        search: &search,
        calls: &recorded.calls,
        cost_usd: forked.known.cost_usd,
    };
    let mut record = lost.to_json();
    record["text"] = lost.to_text(MAX_CALL_CHARS).lines().last().into();
    replace_sweep_record(&dir.loss(&located.id), &record)?;
    let printed = if args.format == ReportFormat::Text {
        stdio::print_result(&lost.to_text(terminal_width()))
    } else {
        let mut json = lost.to_json();
        json["estimate"] = estimate.to_json();
        stdio::print_json_result(&(to_json(&json) + "\n"))
    };
    // The usual exit codes say that it was printed.
    printed.map_err(|error| {
        CommandFailure::config(format!("could not write the result to stdout: {error}"), None)
    })?;
    let is_named = matches!(search.status, SearchStatus::Named(_));
    Ok(ExitCode::from(if is_named { 0 } else { 3 }))
}

/// Checks that the run has a score and did not pass.
fn check_not_passed(scored: &ScoredRun<'_>, args: &WhyArgs) -> Result<(), CommandFailure> {
    let id = &scored.run.id;
    let sweep = shell_quote_path(&args.dir);
    match &scored.score {
        Ok(score) if !score.pass => Ok(()),
        Ok(_) => Err(CommandFailure::config(
            format!("run {id} passed: nothing was lost"),
            format!("`delta sweep list {sweep} --not-passed` lists the runs that did not pass"),
        )),
        Err(reason) => Err(CommandFailure::config(
            format!("run {id} has no score: {reason}"),
            format!(
                "`delta sweep run {sweep}` finishes runs, `delta sweep grade {sweep}` grades them"
            ),
        )),
    }
}

/// What the journal of the run says.
struct ForkableRun {
    /// The first call of each iteration; empty for one without calls.
    calls: Vec<String>,
}

impl ForkableRun {
    /// Reads a run that can be forked after each of its iterations but the last.
    fn read(run: &LocatedRun) -> Result<Self, CommandFailure> {
        let id = &run.id;
        let events: Vec<Event> = own_run::read_journal(id, &run.dir)?.events;
        let state = RunState::from_events(&events);
        let iterations = RunHistory::from_events(&events).iterations;
        if iterations.is_empty() {
            let message = format!("run {id} has no iteration: there is nothing to fork");
            return Err(CommandFailure::config(message, None));
        }
        let messages =
            events.iter().filter(|event| matches!(event.payload, Payload::UserMessage { .. }));
        if messages.count() > 1 {
            let message = format!(
                "run {id} got another message after its task, which its forks would not get"
            );
            let hint = "search a run that was not continued with a message";
            return Err(CommandFailure::config(message, hint));
        }
        let has_snapshots = durable::is_dir_no_follow(&run.dir.join(SNAPSHOT_DIR_NAME));
        let last = u32::try_from(iterations.len()).unwrap_or(u32::MAX);
        let missing = (1..last)
            .find(|iteration| !has_snapshots || state.timeline.at_end_of(*iteration).is_none());
        if let Some(iteration) = missing {
            return Err(CommandFailure::config(
                format!("run {id} has no snapshot of iteration {iteration}"),
                "`run: {snapshots: true}` in sweep.yaml takes them in new runs",
            ));
        }
        Ok(Self { calls: iterations.iter().map(describe_first_call).collect() })
    }

    /// How many answers the LLM has given, at least 1.
    fn iterations(&self) -> u32 {
        u32::try_from(self.calls.len()).unwrap_or(u32::MAX)
    }
}

/// The tool of the first call, and the texts among its arguments: `edit parser.c`.
fn describe_first_call(iteration: &Iteration<'_>) -> String {
    let Some(call) = iteration.calls.first() else { return String::new() };
    let function = &call.tool_call.function;
    let mut words = vec![function.name.clone()];
    if let Json::Object(arguments) = function.arguments.to_value() {
        words.extend(arguments.values().filter_map(Json::as_str).map(str::to_owned));
    }
    truncate_to_line(&strip_terminal_controls(&words.join(" ")), MAX_CALL_CHARS)
}

/// A run whose forks are made, continued and graded.
struct ForkedRun<'a> {
    args: &'a WhyArgs,
    /// The sweep with its forks.
    dir: SweepDir,
    headers: &'a [PlanHeader],
    settings: &'a PlanHeader,
    run: &'a PlannedRun,
    iterations: u32,
    grader: Option<&'a PlannedGrader>,
    cancel: CancelToken,
    known: KnownForks,
    /// What the last round has asked for.
    asked: Vec<ForkKey>,
}

/// What is known of the forks.
struct KnownForks {
    /// The score of each fork that has ended, or why it has none.
    scores: BTreeMap<ForkKey, Result<RunScore, String>>,
    cost_usd: Option<f64>,
}

impl KnownForks {
    fn search(&self, iterations: u32) -> SearchedPoints<ForkKey> {
        let scores = self.scores.iter().map(|(key, score)| (*key, score.clone().ok()));
        search_forks(iterations, &scores.collect())
    }
}

impl ForkedRun<'_> {
    /// Reads and grades the forks that there are, and asks for the ones that say most.
    fn next_round(&mut self) -> Result<Round<Vec<ForkKey>, ()>, CommandFailure> {
        self.known = self.read_known(self.asked.is_empty())?;
        let missing = self.asked.iter().find_map(|key| match self.known.scores.get(key) {
            Some(Ok(_)) => None,
            Some(Err(reason)) => Some((*key, reason.as_str())),
            None => Some((*key, "it did not end")),
        });
        if let Some((key, reason)) = missing {
            // A judge is a run of the sweep too.
            if amount_of_refused_call(reason).is_none() {
                return Err(self.unscored_fork(key, reason));
            }
            report_used_budget(self.settings, &self.dir, reason)?;
            return Ok(Round::End(()));
        }
        Ok(match self.known.search(self.iterations).status {
            SearchStatus::Asks(keys) => {
                self.asked.clone_from(&keys);
                Round::Batch(keys)
            }
            _ => Round::End(()),
        })
    }

    fn unscored_fork(&self, key: ForkKey, reason: &str) -> CommandFailure {
        let id = key.id(&self.run.id).map_or_else(String::new, |id| format!(" {id}"));
        let message = format!("fork{id} has no score: {}", strip_terminal_controls(reason));
        let help = format!("`{}` takes another fork in its place", self.command());
        CommandFailure::config(message, help)
    }

    /// The command that continues the search.
    fn command(&self) -> String {
        format!("delta sweep why {} {}", shell_quote_path(&self.args.dir), self.run.id)
    }

    fn interrupted(&self) -> CommandFailure {
        CommandFailure::interrupted("interrupted")
            .with_hint(format!("`{}` continues", self.command()))
    }

    fn fork_id(&self, key: ForkKey) -> Result<RunId, CommandFailure> {
        key.id(&self.run.id).ok_or_else(|| {
            CommandFailure::config(format!("the id of run {} is too long", self.run.id), None)
        })
    }

    /// The forks as runs of a plan. Each is another repeat, so that a seed made from `${repeat}` is another one.
    fn plan(&self, keys: &[ForkKey]) -> Result<SweepPlan, CommandFailure> {
        let limits = Arc::new(RunLimits { snapshots: false, ..RunLimits::clone(&self.run.limits) });
        let forks = (0..).zip(keys).map(|(n, key)| {
            Ok(PlannedRun {
                n,
                id: self.fork_id(*key)?,
                repeat: self.run.repeat.saturating_add(key.repeat),
                limits: limits.clone(),
                ..self.run.clone()
            })
        });
        Ok(SweepPlan::with_forks(self.headers, forks.collect::<Result<_, CommandFailure>>()?))
    }

    /// Reads the forks that have ended, and grades those without a grade; with `retries` also forks that the grader has
    /// left ungraded.
    fn read_known(&self, retries: bool) -> Result<KnownForks, CommandFailure> {
        let ResultReader { results, .. } = ResultReader::open(&self.dir)?;
        let lines = results.lines.values().filter(|line| {
            let kind = line.error.as_ref().map(|error| error.kind.as_str());
            self.settings.retry.remaining(line.status, kind, line.attempts) != Remaining::Work
        });
        let mut keys: Vec<ForkKey> =
            lines.filter_map(|line| ForkKey::parse(&line.id, &self.run.id)).collect();
        keys.sort_unstable();
        let read = || SweepScores::read_forks(&self.dir, self.plan(&keys)?, self.run);
        let mut forks = read()?;
        if let Some(grader) = self.grader {
            let env_files = self.args.pool.env_files();
            if !grade_forks(&self.dir, &forks, grader, env_files, retries, &self.cancel)? {
                return Err(self.interrupted());
            }
            forks = read()?;
        }
        let mut cost_usd = Some(0.0);
        let mut scores = BTreeMap::new();
        for (key, fork) in keys.iter().zip(forks.scored_runs(self.grader, None)?) {
            cost_usd = cost_usd.zip(fork.line.and_then(|line| line.cost_usd)).map(|(a, b)| a + b);
            let why_ungraded = fork.grade.and_then(|grade| grade.ungraded.clone());
            scores.insert(*key, fork.score.map_err(|reason| why_ungraded.unwrap_or(reason)));
        }
        Ok(KnownForks { scores, cost_usd })
    }

    /// Makes the forks that do not exist, and continues them to their ends.
    fn run_forks(&mut self, keys: Vec<ForkKey>) -> Result<BatchEnd, CommandFailure> {
        keys.iter().try_for_each(|key| self.ensure_fork(*key))?;
        let ids = keys.iter().map(|key| self.fork_id(*key)).collect::<Result<_, _>>()?;
        // With all forks, of which the status has the numbers.
        let known = self.known.scores.keys().copied();
        let plan = self.plan(&known.chain(keys).collect::<Vec<_>>())?;
        let results = ResultReader::open(&self.dir)?;
        let command = self.command();
        let pool = &self.args.pool;
        work_on_runs_of(plan, results, &self.dir, &ids, pool, &command, self.cancel.clone())
    }

    /// Makes a fork, unless it exists. A fork of the task alone is a run of its own: `run` makes it, with the files of the
    /// input.
    fn ensure_fork(&self, key: ForkKey) -> Result<(), CommandFailure> {
        if key.iteration == 0 {
            return Ok(());
        }
        let id = self.fork_id(key)?;
        let root = self.dir.workspace(&id);
        let run_dir = Workspace { root: root.clone() }.find_run(&id)?;
        let has_journal = run_dir.as_ref().is_some_and(|run_dir| {
            !matches!(journal::fold_run_journal(run_dir), Err(JournalError::NoEvents(_)))
        });
        if has_journal {
            return Ok(());
        }
        // The journal is written last: without it, the fork was not made to its end.
        let parts = [run_dir, Some(root.clone())].into_iter().flatten();
        for path in parts.filter(|path| path.is_dir()) {
            durable::remove_dir_all_no_follow(&path)
                .map_err(durable::FileError::at("remove", &path))?;
        }
        durable::ensure_shared_dir_synced(&self.dir.shard(&id))?;
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let mut argv = vec![text(find_delta()?), "fork".to_owned(), self.run.id.to_string()];
        let mut add = |name: &str, value: String| argv.extend([name.to_owned(), value]);
        add("-w", text(self.dir.root.clone()));
        add("--at", key.iteration.to_string());
        add("--into", text(root));
        add("--run-id", id.to_string());
        if let Some(runs_dir) = workspace::runs_dir_option() {
            add("--runs-dir", text(runs_dir.to_owned()));
        }
        let mut env = environment::variables().clone();
        env.extend([build_info::starter_variable()]);
        let launch = LaunchContext::new(&self.dir.root, env);
        let output = run_grader_process(&argv, &launch, b"", JUDGE_TIMEOUT, &self.cancel);
        let output = output.ok_or_else(|| self.interrupted())?;
        let output = output.map_err(|reason| CommandFailure::config(reason, None))?;
        if output.exit_code == Some(0) {
            return Ok(());
        }
        let reason = find_last_error(&output.stderr).unwrap_or_default();
        let reason = reason.strip_prefix("error: ").unwrap_or(&reason);
        let message = format!("could not fork {} after {}: {reason}", self.run.id, key.iteration);
        Err(CommandFailure::config(message, None))
    }
}
