//! `delta sweep compare`: the scores of agents, models or parameters, and which differences the sweep shows.

use crate::commands::status::terminal_width;
use crate::formats::plan_file::SweepPlan;
use crate::formats::selection::RunSelection;
use crate::grading::sweep_scores::SweepScores;
use crate::running::run_choice::ONLY_HELP;
use crate::running::sweep_record::read_sweep_record;
use crate::scores::pair_table::{InputsView, PairedRow, compare_values};
use crate::scores::score_table::{
    ScoreRow, ScoredRun, changed_agent_labels, has_several_values, score_rows,
};
use crate::scores::score_text::{pairs_text, rows_text};
use crate::scores::setting_race::RaceStops;
use crate::scores::setting_table::mark_dominated;
use crate::scores::verdict::{JudgedPair, KeyValue, judge, worst_verdict};
use crate::scores::verdict_text::{VerdictContext, VerdictFormat, verdict_json, verdicts_in};
use clap::Args;
use delta_base::json::to_json;
use delta_base::shell_quote::{shell_quote, shell_quote_path};
use delta_base::{suggest, time};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_list::format_age;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_statistics::sequential::Verdict;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

/// Compare agents, models or parameters of a sweep
///
/// Prints scores with 95 % intervals, costs, tokens and times, and the difference of each pair on the inputs that both have.
/// Without graders, the score is 1 for a run that COMPLETED. A failure of the infrastructure is missing, never a 0.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct CompareArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Key to compare: model, agent, repeat or param.NAME; input and group only print rows [default: the first of model, agent
    /// and parameters that has several values]
    ///
    /// Each value has a row; without --by, each combination of model, agent and parameters has one.
    #[arg(long, value_name = "KEY")]
    by: Option<String>,
    /// Use the scores of this grader [default: the first one]
    #[arg(long, value_name = "NAME")]
    grader: Option<String>,
    /// How to see the inputs
    #[arg(long, value_enum, value_name = "VIEW", default_value_t = InputsView::Sampled)]
    inputs: InputsView,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
    /// Judge whether the score has dropped: PASS, a drop of D is excluded; FAIL, a drop is shown; or INCONCLUSIVE
    #[arg(long, value_name = "D", value_parser = parse_max_drop)]
    max_drop: Option<f64>,
    /// With `--max-drop`: the base, such as model=old [default: the first value of the compared key]
    #[arg(long, value_name = "KEY=VALUE", value_parser = KeyValue::parse, requires = "max_drop", conflicts_with = "by")]
    against: Option<KeyValue>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: VerdictFormat,
}

/// Parses the drop of `--max-drop`.
pub fn parse_max_drop(text: &str) -> Result<f64, String> {
    let drop: Option<f64> = text.parse().ok();
    drop.filter(|drop| *drop > 0.0 && *drop <= 1.0)
        .ok_or_else(|| "expected a number above 0 and at most 1, such as 0.1".to_owned())
}

const EXAMPLES: &str = "\
Examples:
  delta sweep compare DIR --by model
  delta sweep compare DIR --inputs fixed   # three tasks, many repeats
  delta sweep compare DIR --by param.style --only 'model=local' --grader tests
  delta sweep compare DIR --max-drop 0.05 --against model=old   # for CI
  delta sweep compare DIR --format json | jq '.comparisons[] | select(.shown)'

Exit codes: 0 printed, 1 a file could not be read, 2 usage error, 126 there is no plan, or no run has KEY

With --max-drop: 0 PASS, 1 FAIL, 3 INCONCLUSIVE, 126 every error";

/// What of a sweep is in its table.
#[derive(Default)]
pub struct TableView<'a> {
    /// The key whose values are compared; without one, a row has all that differs between the runs.
    pub by: Option<&'a str>,
    pub grader: Option<&'a str>,
    pub only: Option<&'a RunSelection>,
    pub inputs: InputsView,
    pub format: VerdictFormat,
    /// The drop that a verdict excludes; without it there is none.
    max_drop: Option<f64>,
    /// The base of verdicts.
    against: Option<&'a KeyValue>,
}

impl<'a> TableView<'a> {
    /// The table by all that differs between the selected runs, as text.
    pub fn new(grader: Option<&'a str>, only: Option<&'a RunSelection>) -> Self {
        Self { grader, only, ..Self::default() }
    }
}

/// Prints the comparison; returns the exit code.
pub fn compare_command(args: &CompareArgs) -> Result<ExitCode, CommandFailure> {
    if args.max_drop.is_none()
        && matches!(args.format, VerdictFormat::Junit | VerdictFormat::Markdown)
    {
        let message = "`--format junit` and `--format markdown` print a verdict";
        return Err(CommandFailure::usage(message, "add `--max-drop D`"));
    }
    let only = args.only.as_ref();
    let view = TableView {
        by: args.by.as_deref(),
        grader: args.grader.as_deref(),
        only,
        inputs: args.inputs,
        format: args.format,
        max_drop: args.max_drop,
        against: args.against.as_ref(),
    };
    let scores = SweepScores::read_current(&SweepDir::new(&args.dir), only);
    let verdict = scores.and_then(|scores| print_table(&scores, &args.dir, &view));
    if args.max_drop.is_none() {
        return verdict.map(|_| ExitCode::SUCCESS);
    }
    verdict.map_err(fail_unlike_a_verdict).map(|verdict| verdict_code(verdict.unwrap_or_default()))
}

/// The exit code of a command that judges.
pub fn verdict_code(verdict: Verdict) -> ExitCode {
    ExitCode::from(match verdict {
        Verdict::Pass => 0,
        Verdict::Fail => 1,
        Verdict::Inconclusive => 3,
    })
}

/// The failure with an exit code that no verdict has: 1 would be a FAIL.
pub fn fail_unlike_a_verdict(failure: CommandFailure) -> CommandFailure {
    match failure.exit_code() {
        1 => CommandFailure::config(failure.message(), failure.hint().map(str::to_owned)),
        _ => failure,
    }
}

/// Prints the rows of the sweep at `dir` and their differences; returns the worst verdict, if one was asked for.
///
/// # Errors
/// A file cannot be read, or the sweep has no such grader, key or value, or none to judge.
pub fn print_table(
    scores: &SweepScores,
    dir: &Path,
    view: &TableView<'_>,
) -> Result<Option<Verdict>, CommandFailure> {
    let grader = scores.grader(view.grader)?;
    let grader_name = grader.map(|grader| grader.name.as_str());
    let runs = scores.scored_runs(grader, view.only)?;
    let differing = differing_keys(&runs);
    let (keys, compared_key) = match view.against.map(|base| base.key.as_str()).or(view.by) {
        Some(key) => {
            check_compared_key(key, &runs)?;
            (vec![key.to_owned()], Some(key))
        }
        None if differing.is_empty() => (vec!["agent".to_owned()], None),
        None => (differing.clone(), differing.first().map(String::as_str)),
    };
    let seed = scores.seed();
    let mut rows = score_rows(&runs, &keys, seed);
    mark_dominated(&mut rows, &runs, &keys, view.max_drop);
    if let Some(stops) = read_sweep_record::<RaceStops>(&SweepDir::new(dir).race())? {
        stops.mark(&mut rows);
    }
    let compared = compared_key.map(|key| compare_values(&runs, key, seed, view.inputs));
    let compared = compared.unwrap_or_else(|| Ok(Vec::new()));
    let pairs: &[PairedRow] = compared.as_deref().unwrap_or_default();
    let judged = match view.max_drop {
        Some(max_drop) => judge_values(&runs, compared_key, view.against, max_drop)?,
        None => Vec::new(),
    };
    let verdict = view.max_drop.map(|_| worst_verdict(&judged));
    let quoted_dir = shell_quote_path(dir);
    let max_drop = view.max_drop.unwrap_or_default();
    let retry = format!("delta sweep run {quoted_dir}`, then `delta sweep grade {quoted_dir}");
    let context = VerdictContext { grader: grader_name, max_drop, retry: &retry, gate: None };
    if matches!(view.format, VerdictFormat::Junit | VerdictFormat::Markdown) {
        print_judged(&verdicts_in(view.format, &judged, context), verdict)?;
        return Ok(verdict);
    }
    if view.format == VerdictFormat::Json {
        let comparisons: Vec<Json> = pairs.iter().map(PairedRow::to_json).collect();
        let mut table = json!({
            "by": compared_key,
            "grader": grader_name,
            "rows": rows,
            "comparisons": comparisons,
        });
        if view.max_drop.is_some() {
            table["verdicts"] = judged.iter().map(|pair| verdict_json(pair, context)).collect();
        }
        print_judged(&(to_json(&table) + "\n"), verdict)?;
        return Ok(verdict);
    }
    let width = terminal_width();
    let ages = agent_ages(&SweepDir::new(dir), &scores.plan);
    let mut text = rows_text(&rows, grader_name, &ages, width);
    if !pairs.is_empty() {
        text.push('\n');
        text.push_str(&pairs_text(pairs, &ages, width));
    }
    if !judged.is_empty() {
        text.push('\n');
        text.push_str(&verdicts_in(VerdictFormat::Text, &judged, context));
    }
    print_judged(&text, verdict)?;
    if let Err(reason) = &compared {
        stdio::print_error_line(&format!("no comparisons: {reason}"));
    }
    if view.by.is_none() && differing.len() > 1 {
        let others: Vec<String> =
            differing.iter().skip(1).map(|key| format!("--by {}", shell_quote(key))).collect();
        stdio::print_error_line(&format!("other comparisons: {}", others.join(", ")));
    }
    scores.print_other_graders(view.grader);
    if let Some(hint) = next_step(&rows, &quoted_dir) {
        stdio::print_error_line(&hint);
    }
    Ok(verdict)
}

/// Prints the table. With a verdict, a failed write is a failure of this command: its usual exit code would be a verdict.
pub fn print_judged(text: &str, verdict: Option<Verdict>) -> Result<(), CommandFailure> {
    if verdict.is_none() {
        stdio::print_text(text);
        return Ok(());
    }
    stdio::print_result(text).map_err(|error| {
        CommandFailure::config(format!("could not write the verdict to stdout: {error}"), None)
    })
}

/// The verdicts for the values of `key`.
fn judge_values(
    runs: &[ScoredRun<'_>],
    key: Option<&str>,
    against: Option<&KeyValue>,
    max_drop: f64,
) -> Result<Vec<JudgedPair>, CommandFailure> {
    let judged = key.filter(|key| *key != "repeat" && has_several_values(runs, key));
    let Some(key) = judged else {
        let message = "`--max-drop` needs two values of a model, an agent or a parameter";
        let hint = "`delta sweep compare DIR --by KEY` prints which values the sweep has";
        return Err(CommandFailure::config(message, hint.to_owned()));
    };
    let values: Vec<String> = runs.iter().filter_map(|scored| scored.field(key)).collect();
    let base = match against {
        Some(against) if !values.contains(&against.value) => {
            let names: BTreeSet<&str> = values.iter().map(String::as_str).collect();
            let hint = suggest::did_you_mean(&against.value, names);
            let message = format!("no run has {key} `{}`", against.value);
            return Err(CommandFailure::config(message, hint));
        }
        Some(against) => against.value.as_str(),
        None => values.first().map_or("", String::as_str),
    };
    let base = KeyValue { key: key.to_owned(), value: base.to_owned() };
    judge(runs, &base, max_drop).map_err(|reason| CommandFailure::config(reason.to_string(), None))
}

/// How old each form of an agent that changed is: the age of its first plan, or `here` for the form of the newest plan.
fn agent_ages(dir: &SweepDir, plan: &SweepPlan) -> BTreeMap<String, String> {
    let now = time::current_time().as_millis();
    let mut ages = BTreeMap::new();
    for (label, plan) in changed_agent_labels(plan) {
        let Some(index) = plan else {
            ages.insert(label, "here".to_owned());
            continue;
        };
        let modified = dir.plan_file(index + 1).metadata().and_then(|plan| plan.modified());
        let since_epoch = modified.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let planned_at = since_epoch.and_then(|time| i64::try_from(time.as_millis()).ok());
        if let Some(planned_at) = planned_at {
            ages.insert(label, format_age(u64::try_from(now - planned_at).unwrap_or(0)));
        }
    }
    ages
}

/// What would make incomplete rows complete.
fn next_step(rows: &[ScoreRow], dir: &str) -> Option<String> {
    let missing = |why: &str| {
        let racing = rows.iter().filter(|row| row.stopped.is_none());
        racing.filter_map(|row| row.missing.get(why)).sum::<u64>()
    };
    match (missing("not run"), missing("not graded")) {
        (0, 0) => None,
        (0, count) => Some(format!("{count} runs are not graded: `delta sweep grade {dir}`")),
        (count, _) => Some(format!("{count} runs were not run: `delta sweep run {dir}`")),
    }
}

/// The keys that a run of the sweep has a value of, and by which it can be compared.
fn comparable_keys(runs: &[ScoredRun<'_>]) -> Vec<String> {
    let params: BTreeSet<&String> =
        runs.iter().flat_map(|scored| scored.run.params.keys()).collect();
    let keys = ["model", "agent"].map(str::to_owned).into_iter();
    let keys = keys.chain(params.into_iter().map(|name| format!("param.{name}")));
    let keys = keys.chain(["repeat", "input", "group"].map(str::to_owned));
    keys.filter(|key| has_value(runs, key)).collect()
}

fn has_value(runs: &[ScoredRun<'_>], key: &str) -> bool {
    runs.iter().any(|scored| scored.field(key).is_some())
}

/// The models, agents and parameters of which the sweep has several.
fn differing_keys(runs: &[ScoredRun<'_>]) -> Vec<String> {
    let mut keys = comparable_keys(runs);
    keys.retain(|key| !matches!(key.as_str(), "repeat" | "input" | "group"));
    keys.retain(|key| has_several_values(runs, key));
    keys
}

fn check_compared_key(key: &str, runs: &[ScoredRun<'_>]) -> Result<(), CommandFailure> {
    if runs.is_empty() || has_value(runs, key) {
        return Ok(());
    }
    let keys = comparable_keys(runs);
    let param = format!("param.{key}");
    let hint = if keys.contains(&param) {
        format!("did you mean `{param}`?")
    } else {
        suggest::did_you_mean(key, keys.iter().map(String::as_str))
    };
    Err(CommandFailure::config(format!("no run has `{key}`"), hint))
}
