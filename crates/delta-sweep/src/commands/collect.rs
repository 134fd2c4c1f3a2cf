//! `delta sweep collect`: the results of a sweep, as a table and as files for other programs.

use crate::commands::compare::{TableView, print_table};
use crate::formats::csv::to_csv;
use crate::formats::grade::GradeLine;
use crate::formats::result_line::ResultLine;
use crate::formats::selection::RunSelection;
use crate::grading::sweep_scores::SweepScores;
use crate::running::run_choice::ONLY_HELP;
use clap::Args;
use delta_base::durable::DraftFile;
use delta_base::id::RunId;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Collect the results of a sweep
///
/// Without `-o`, prints the table of `delta sweep compare`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct CollectArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Use the scores of this grader [default: the first one]
    #[arg(long, value_name = "NAME")]
    grader: Option<String>,
    /// Write the result lines with their grades into FILE.jsonl, one JSON object a line, or FILE.csv; `-` prints JSON lines
    #[arg(short, long, value_name = "FILE", value_parser = parse_output)]
    output: Option<PathBuf>,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep collect terse-or-not
  delta sweep collect terse-or-not -o results.csv
  delta sweep collect DIR -o - | jq -r 'select(.status == \"FAILED\") | .id'

Exit codes: 0 all runs are finished, 1 a file could not be written, 2 usage error, 3 not yet, 126 the plan has an error";

fn parse_output(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().and_then(|extension| extension.to_str());
    if text == "-" || matches!(extension, Some("jsonl" | "csv")) {
        return Ok(path);
    }
    Err("expected a name that ends with .jsonl or .csv, or `-`".to_owned())
}

/// Prints or writes the results; returns the exit code.
pub fn collect_command(args: &CollectArgs) -> Result<ExitCode, CommandFailure> {
    let dir = SweepDir::new(&args.dir);
    let only = args.only.as_ref();
    let scores = SweepScores::read_current(&dir, only)?;
    match &args.output {
        Some(path) => write_results(&scores, path)?,
        None => {
            let view = TableView::new(args.grader.as_deref(), only);
            print_table(&scores, &args.dir, &view)?;
        }
    }
    let is_settled = scores.plan.runs.iter().all(|run| scores.results.is_settled(&run.id));
    Ok(ExitCode::from(if is_settled { 0 } else { 3 }))
}

fn write_results(scores: &SweepScores, path: &Path) -> Result<(), CommandFailure> {
    let graders = scores.graders();
    let mut lines = Vec::new();
    let mut grades: HashMap<&RunId, Vec<Option<&GradeLine>>> = HashMap::new();
    for run in &scores.plan.runs {
        let Some(line) = scores.results.lines.get(&run.id) else { continue };
        let run_grades = graders.iter().map(|grader| scores.grade(run, line, grader));
        grades.insert(&run.id, run_grades.collect::<Result<_, _>>()?);
        lines.push(line);
    }
    let lines = lines.into_iter();
    let grades_of = |line: &ResultLine| grades.get(&line.id).cloned().unwrap_or_default();
    let is_csv = path.extension().is_some_and(|extension| extension == "csv");
    let text = if is_csv {
        let names: Vec<&str> = graders.iter().map(|grader| grader.name.as_str()).collect();
        to_csv(lines, &names, grades_of)
    } else {
        lines.map(|line| line.to_graded_line(&grades_of(line))).collect()
    };
    if path == Path::new("-") {
        stdio::print_json(&text);
        return Ok(());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let mut draft = DraftFile::create(&path.with_file_name(name))?;
    draft.write(text.as_bytes())?;
    Ok(draft.rename_unsynced(path)?)
}
