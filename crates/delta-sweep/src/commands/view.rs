//! `delta sweep view`: a sweep as an HTML page.

use crate::formats::selection::RunSelection;
use crate::grading::sweep_scores::SweepScores;
use crate::running::run_choice::ONLY_HELP;
use crate::running::sweep_record::read_sweep_record;
use crate::scores::page_data::{PageFindings, PageHead, page_data};
use crate::scores::score_table::{ScoredRun, has_several_values};
use clap::{Args, ValueEnum};
use delta_base::{durable, time};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::page::{check_page_file, open_in_browser};
use delta_program::stdio;
use delta_report::sweep_facts::SweepRunFacts;
use delta_report::view::{self, PageOptions, SWEEP_PAGE_MARK};
use delta_run::sweep::packed::{extract_to_read, remove_extracted_runs};
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::Workspace;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Render a sweep as an HTML page
///
/// Writes one HTML file that loads nothing, and prints its path.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SweepViewArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// File to write [default: NAME.html in the current directory]
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Use the scores of this grader [default: the first one]
    #[arg(long, value_name = "NAME")]
    grader: Option<String>,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
    /// Write pages for these runs too: `none`, `failed` (or not passed) or `all`
    ///
    /// They are in a directory next to the file.
    #[arg(long, value_enum, hide_possible_values = true, default_value_t = RunPages::None)]
    pages: RunPages,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep view DIR --open
  delta sweep view DIR --pages failed -o report.html
  delta sweep view DIR --only 'model=local' --grader judge";

/// Which runs get pages of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RunPages {
    /// No run; the page has the command for each
    None,
    /// Runs that FAILED or did not pass
    Failed,
    /// Every run that has a result
    All,
}

impl RunPages {
    fn includes(self, scored: &ScoredRun<'_>) -> bool {
        let has_passed = scored.score.as_ref().is_ok_and(|score| score.pass);
        let is_chosen = self == Self::All || self == Self::Failed && !has_passed;
        is_chosen && scored.line.is_some()
    }
}

/// Writes the page; returns the exit code.
pub fn view_sweep_command(args: &SweepViewArgs) -> Result<ExitCode, CommandFailure> {
    let root = std::path::absolute(&args.dir).unwrap_or_else(|_| args.dir.clone());
    let dir = SweepDir::new(root);
    let mut scores = SweepScores::read(&dir)?;
    scores.leave_out_former(&dir);
    let grader = scores.grader(args.grader.as_deref())?;
    let runs = scores.scored_runs(grader, args.only.as_ref())?;
    let name = scores.plan.settings().map_or("sweep", |settings| settings.name.as_str());
    let file = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.html")));
    check_page_file(&file, args.output.is_some(), SWEEP_PAGE_MARK)?;
    let pages_dir = file.with_extension("runs");
    let paged = write_run_pages(args.pages, &dir, &runs, &pages_dir)?;
    let head = PageHead {
        name,
        dir: &dir.root.to_string_lossy(),
        grader: grader.map(|grader| grader.name.as_str()),
        made_at: time::current_time().to_string(),
        version: env!("CARGO_PKG_VERSION"),
        pages: &pages_dir.file_name().unwrap_or_default().to_string_lossy(),
        seed: scores.seed(),
    };
    let data = page_data(&head, &runs, &compared_keys(&runs), &paged, &read_findings(&dir, &runs)?);
    let page = view::render_sweep_page(name, &data.to_string());
    durable::replace_private_unsynced(&file, page.as_bytes())?;
    stdio::print_text(&format!("{}\n", file.display()));
    scores.print_other_graders(args.grader.as_deref());
    if args.open {
        let path = file.canonicalize().unwrap_or(file).to_string_lossy().into_owned();
        open_in_browser(&path)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_findings(dir: &SweepDir, runs: &[ScoredRun<'_>]) -> Result<PageFindings, CommandFailure> {
    let losses = runs.iter().filter(|scored| scored.score.as_ref().is_ok_and(|it| !it.pass));
    let losses =
        losses.filter_map(|scored| read_sweep_record(&dir.loss(&scored.run.id)).transpose());
    Ok(PageFindings {
        gate: read_sweep_record(&dir.gate())?.unwrap_or_default(),
        losses: losses.collect::<Result<_, _>>()?,
        stops: read_sweep_record(&dir.race())?,
    })
}

/// What the sweep has several of; the models if it has several of nothing.
fn compared_keys(runs: &[ScoredRun<'_>]) -> Vec<String> {
    let params: BTreeSet<String> = runs
        .iter()
        .flat_map(|scored| scored.run.params.keys().map(|name| format!("param.{name}")))
        .collect();
    let keys = ["model", "agent"].map(str::to_owned).into_iter().chain(params);
    let keys: Vec<String> = keys.filter(|key| has_several_values(runs, key)).collect();
    if keys.is_empty() { vec!["model".to_owned()] } else { keys }
}

/// Writes the pages of runs; returns the ids of the runs with a page.
fn write_run_pages<'a>(
    pages: RunPages,
    dir: &SweepDir,
    runs: &[ScoredRun<'a>],
    pages_dir: &Path,
) -> Result<HashSet<&'a str>, CommandFailure> {
    let mut written = HashSet::new();
    for scored in runs.iter().filter(|scored| pages.includes(scored)) {
        let id = &scored.run.id;
        let is_unpacked = dir.workspace(id).is_dir();
        let root = if is_unpacked { Ok(None) } else { extract_to_read(dir, id) };
        // One pack that cannot be read leaves the other runs their pages.
        let root = match root {
            Ok(root) => root,
            Err(failure) => {
                stdio::print_error_line(&format!("warning: run {id} has no page: {failure}"));
                continue;
            }
        };
        let workspace = Workspace { root: root.unwrap_or_else(|| dir.workspace(id)) };
        // A run whose directory was removed has no page; its line has the command.
        let Ok(Some(run_dir)) = workspace.find_run(id) else { continue };
        let facts = SweepRunFacts::read(&dir.workspace(id), id)?;
        let sweep_facts = facts.map(|facts| (id.clone(), facts)).into_iter().collect();
        let options = PageOptions { run_dirs: vec![run_dir], with_requests: false, sweep_facts };
        let page = view::render_page(&options, time::current_time());
        durable::ensure_private_dir(pages_dir)?;
        durable::replace_private_unsynced(&pages_dir.join(format!("{id}.html")), page.as_bytes())?;
        remove_extracted_runs();
        written.insert(id.as_str());
    }
    Ok(written)
}
