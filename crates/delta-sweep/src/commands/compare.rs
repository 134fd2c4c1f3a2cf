//! `delta sweep compare`: the scores of agents, models or parameters, and which differences the sweep shows.

use crate::formats::selection::RunSelection;
use crate::grading::sweep_scores::SweepScores;
use crate::running::run_choice::ONLY_HELP;
use crate::scores::pair_table::{InputsView, PairedRow, compare_values};
use crate::scores::score_table::{ScoreRow, ScoredRun, has_several_values, score_rows};
use crate::scores::score_text::{pairs_text, rows_text};
use clap::{Args, ValueEnum};
use delta_base::json::to_json;
use delta_base::shell_quote::shell_quote_path;
use delta_base::suggest;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare agents, models or parameters of a sweep
///
/// For each, prints the mean score, its 95 % interval and the number of runs; for each pair, the difference on the inputs that
/// both have. A run without a score is missing, never a 0.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct CompareArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// What to compare: model, agent, repeat or param.NAME; or only print rows: input, group [default: the first of model,
    /// agent and parameters that has several values]
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
    /// Output format
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    format: CompareFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep compare DIR --by model
  delta sweep compare DIR --inputs fixed   # three tasks, many repeats
  delta sweep compare DIR --by param.style --only 'model=local' --grader tests
  delta sweep compare DIR --format json | jq '.comparisons[] | select(.shown)'

Exit codes: 0 printed, 1 a file could not be read, 2 usage error, 126 there is no plan, or the sweep has nothing to compare";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompareFormat {
    /// Readable tables
    Text,
    /// One JSON object
    Json,
}

/// Prints the comparison; returns the exit code.
pub fn compare_command(args: &CompareArgs) -> Result<ExitCode, CommandFailure> {
    let dir = SweepDir::new(&args.dir);
    let scores = SweepScores::read(&dir)?;
    let grader = scores.grader(args.grader.as_deref())?;
    let runs = scores.scored_runs(grader, args.only.as_ref())?;
    let key = match &args.by {
        Some(key) => key.clone(),
        None => default_key(&runs)?,
    };
    check_compared_key(&key, &runs)?;
    let seed = scores.seed();
    let rows = score_rows(&runs, std::slice::from_ref(&key), seed);
    let compared = compare_values(&runs, &key, seed, args.inputs);
    let pairs: &[PairedRow] = compared.as_deref().unwrap_or_default();
    if args.format == CompareFormat::Json {
        let comparisons: Vec<Json> = pairs.iter().map(PairedRow::to_json).collect();
        let table = json!({
            "by": key,
            "grader": grader.map(|grader| &grader.name),
            "rows": rows,
            "comparisons": comparisons,
        });
        stdio::print_text(&(to_json(&table) + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = rows_text(&rows, grader.map(|grader| grader.name.as_str()));
    if !pairs.is_empty() {
        text.push('\n');
        text.push_str(&pairs_text(pairs));
    }
    stdio::print_text(&text);
    if let Err(reason) = &compared {
        stdio::print_error_line(&format!("no comparisons: {reason}"));
    }
    scores.print_other_graders(args.grader.as_deref());
    if let Some(hint) = next_step(&rows, &shell_quote_path(&args.dir)) {
        stdio::print_error_line(&hint);
    }
    Ok(ExitCode::SUCCESS)
}

/// What would make incomplete rows complete.
fn next_step(rows: &[ScoreRow], dir: &str) -> Option<String> {
    let missing = |why: &str| rows.iter().filter_map(|row| row.missing.get(why)).sum::<u64>();
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

/// The first of models, agents and parameters of which the sweep has several.
fn default_key(runs: &[ScoredRun<'_>]) -> Result<String, CommandFailure> {
    let keys = comparable_keys(runs);
    let mut compared =
        keys.iter().filter(|key| !matches!(key.as_str(), "repeat" | "input" | "group"));
    if let Some(key) = compared.find(|key| has_several_values(runs, key)) {
        return Ok(key.clone());
    }
    let options: Vec<String> = keys.iter().map(|key| format!("`--by {key}`")).collect();
    let hint = format!("{} prints one row for each value", options.join(" or "));
    let message = "nothing to compare: the sweep has one model, one agent and no parameter with several values";
    Err(CommandFailure::config(message, Some(hint).filter(|_| !options.is_empty())))
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
