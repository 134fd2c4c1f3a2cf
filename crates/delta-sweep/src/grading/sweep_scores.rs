//! The runs of a sweep with their scores.

use crate::formats::canonical_json::content_hash;
use crate::formats::grade::{GradeLine, SweepGrades};
use crate::formats::grader::PlannedGrader;
use crate::formats::plan::PlannedRun;
use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::{ResultLine, SweepResults};
use crate::formats::retry_policy::is_infrastructure_error;
use crate::formats::selection::RunSelection;
use crate::grading::graded_inputs::GradedInputs;
use crate::planning::plan_reader::unreadable_file;
use crate::running::continued_runs::{look_up_missing_lines, refresh_results};
use crate::running::result_reader::{ResultReader, read_sweep};
use crate::running::run_choice::choose_runs;
use crate::scores::score_table::ScoredRun;
use delta_base::shell_quote::{shell_quote, shell_quote_path};
use delta_base::{durable, suggest};
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use std::cell::RefCell;
use std::io;

/// The plans, results and grades of a sweep.
pub struct SweepScores {
    pub plan: SweepPlan,
    pub results: SweepResults,
    pub grades: SweepGrades,
    pub inputs: RefCell<GradedInputs>,
}

impl SweepScores {
    /// Reads everything.
    pub fn read(dir: &SweepDir) -> Result<Self, CommandFailure> {
        let (plan, ResultReader { results, .. }) = read_sweep(dir)?;
        let inputs = RefCell::new(GradedInputs::new(dir));
        Ok(Self { plan, results, grades: read_grades(dir)?, inputs })
    }

    /// Reads the results and grades of forks of `run`, which are the runs of `plan`. `dir` is the sweep with its forks.
    pub fn read_forks(
        dir: &SweepDir,
        plan: SweepPlan,
        run: &PlannedRun,
    ) -> Result<Self, CommandFailure> {
        let ResultReader { results, .. } = ResultReader::open(dir)?;
        let inputs = RefCell::new(GradedInputs::for_forks(dir, run));
        Ok(Self { plan, results, grades: read_grades(dir)?, inputs })
    }

    /// Reads the selected runs as they are now: runs that were continued by hand and runs whose worker died before it wrote
    /// their lines have the results that their directories have. Writes nothing.
    ///
    /// # Errors
    /// A file cannot be read, or no run is selected.
    pub fn read_current(
        dir: &SweepDir,
        only: Option<&RunSelection>,
    ) -> Result<Self, CommandFailure> {
        let mut scores = Self::read(dir)?;
        scores.leave_out_former(dir);
        choose_runs(&scores.plan.runs, only)?;
        scores.plan.runs.retain(|run| only.is_none_or(|only| only.selects(run)));
        let Self { plan, results, .. } = &mut scores;
        refresh_results(dir, plan, plan.runs.iter(), results);
        look_up_missing_lines(dir, plan, results);
        Ok(scores)
    }

    /// Leaves out the runs whose input or task is another one in the newest plan, with a note.
    pub fn leave_out_former(&mut self, dir: &SweepDir) {
        let SweepPlan { runs, former, .. } = &mut self.plan;
        let count = runs.len();
        runs.retain(|run| !former.contains(&run.id));
        let (runs, are) = match count - runs.len() {
            0 => return,
            1 => ("1 run".to_owned(), "is"),
            count => (format!("{count} runs"), "are"),
        };
        stdio::print_error_line(&format!(
            "note: {runs} of earlier plans {are} left out, for the newest plan has another input, task or setting: `delta sweep list {}` prints all",
            shell_quote_path(&dir.root)
        ));
    }

    /// The graders of the newest plan.
    pub fn graders(&self) -> &[PlannedGrader] {
        self.plan.settings().map_or(&[], |settings| settings.grade.as_slice())
    }

    /// The grader with this name, or the first one; `None` if the sweep has none.
    pub fn grader(&self, name: Option<&str>) -> Result<Option<&PlannedGrader>, CommandFailure> {
        let graders = self.graders();
        let Some(name) = name else { return Ok(graders.first()) };
        match graders.iter().find(|grader| grader.name == name) {
            Some(grader) => Ok(Some(grader)),
            None => {
                let names = graders.iter().map(|grader| grader.name.as_str());
                let hint = if graders.is_empty() {
                    "the sweep has no `grade`".to_owned()
                } else {
                    suggest::did_you_mean(name, names)
                };
                Err(CommandFailure::config(format!("there is no grader `{name}`"), hint))
            }
        }
    }

    /// Prints which graders have scores that are not shown, if the user has named none.
    pub fn print_other_graders(&self, name: Option<&str>) {
        let others: Vec<String> = self
            .graders()
            .iter()
            .skip(1)
            .map(|grader| format!("{} (--grader {})", grader.name, shell_quote(&grader.name)))
            .collect();
        if name.is_none() && !others.is_empty() {
            stdio::print_error_line(&format!("other graders: {}", others.join(", ")));
        }
    }

    /// The selected runs, in the order of the plan, with the scores of a grader.
    ///
    /// # Errors
    /// None is selected.
    pub fn scored_runs(
        &self,
        grader: Option<&PlannedGrader>,
        only: Option<&RunSelection>,
    ) -> Result<Vec<ScoredRun<'_>>, CommandFailure> {
        let scored = choose_runs(&self.plan.runs, only)?.into_iter().map(|run| {
            let line = self.results.lines.get(&run.id);
            let grade = match (grader, line) {
                (None, _) => None,
                (Some(_), None) => Some(None),
                (Some(grader), Some(line)) => Some(self.grade(run, line, grader)?),
            };
            Ok(ScoredRun::new(&self.plan, run, line, grade))
        });
        scored.collect()
    }

    /// The grade of a result by a grader.
    pub fn grade(
        &self,
        run: &PlannedRun,
        line: &ResultLine,
        grader: &PlannedGrader,
    ) -> Result<Option<&GradeLine>, CommandFailure> {
        let target = self.inputs.borrow_mut().grade_target(&self.plan, run, line, grader)?;
        Ok(target.find(&self.grades))
    }

    /// The seed of resamples: the same for the same plan.
    pub fn seed(&self) -> u64 {
        let ids: String = self.plan.runs.iter().flat_map(|run| [run.id.as_str(), "\n"]).collect();
        u64::from_str_radix(&content_hash(ids.as_bytes())[..16], 16).unwrap_or_default()
    }
}

/// Whether a settled result lacks the grade of a grader of the newest plan.
pub fn lacks_grades(
    dir: &SweepDir,
    plan: &SweepPlan,
    results: &SweepResults,
) -> Result<bool, CommandFailure> {
    let graders = plan.settings().map_or(&[][..], |settings| settings.grade.as_slice());
    if graders.is_empty() {
        return Ok(false);
    }
    let grades = read_grades(dir)?;
    let mut inputs = GradedInputs::new(dir);
    for run in &plan.runs {
        let line = results.lines.get(&run.id);
        let Some(line) = line.filter(|line| can_be_graded(line)) else { continue };
        for grader in graders {
            if inputs.grade_target(plan, run, line, grader)?.find(&grades).is_none() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a result is settled, and says something about the agent.
pub fn can_be_graded(line: &ResultLine) -> bool {
    let says_nothing =
        line.error.as_ref().is_some_and(|error| is_infrastructure_error(&error.kind));
    line.settled && !says_nothing
}

fn read_grades(dir: &SweepDir) -> Result<SweepGrades, CommandFailure> {
    let mut grades = SweepGrades::default();
    let path = dir.grades();
    let entries = match durable::read_dir_no_follow(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(grades),
        entries => entries.map_err(|source| unreadable_file(path.clone(), source))?,
    };
    for entry in entries {
        if entry.name.to_string_lossy().ends_with(".jsonl") {
            let file = path.join(&entry.name);
            let bytes = durable::read_no_follow(&file)
                .map_err(|source| unreadable_file(file.clone(), source))?;
            grades.add_file(&bytes);
        }
    }
    Ok(grades)
}
