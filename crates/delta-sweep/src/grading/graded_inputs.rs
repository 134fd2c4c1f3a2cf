//! The inputs with which graders judge runs: as they are in the newest plan.

use crate::formats::grade::{GradeKey, GradeLine, SweepGrades};
use crate::formats::grade_source::{grade_source, is_same_run};
use crate::formats::grader::PlannedGrader;
use crate::formats::input::SweepInput;
use crate::formats::plan::PlannedRun;
use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::ResultLine;
use crate::planning::input_reader::InputReader;
use delta_operator::failure::CommandFailure;
use delta_run::sweep::sweep_dir::SweepDir;

/// The inputs of runs, as graders get them.
pub struct GradedInputs {
    reader: InputReader,
    /// The run whose forks are graded.
    forked_run: Option<PlannedRun>,
}

/// The grade that a result should have.
#[derive(Debug, Clone)]
pub struct GradeTarget {
    pub key: GradeKey,
    /// Whether the grader gets the input as it was when the run was planned.
    pub is_planned_input: bool,
}

impl GradeTarget {
    /// The grade, if there is one.
    pub fn find<'a>(&self, grades: &'a SweepGrades) -> Option<&'a GradeLine> {
        grades.get(&self.key, self.is_planned_input)
    }
}

impl GradedInputs {
    /// Reads nothing yet.
    pub fn new(dir: &SweepDir) -> Self {
        Self { reader: InputReader::new(dir), forked_run: None }
    }

    /// Reads nothing yet. The graders of forks of `run` get the same input as the graders of the run.
    pub fn for_forks(dir: &SweepDir, run: &PlannedRun) -> Self {
        Self { forked_run: Some(run.clone()), ..Self::new(dir) }
    }

    /// The input of a run as the newest plan has it that makes the same run of it. An answer that was corrected counts for
    /// runs that were planned before; an input with another task belongs to other runs.
    pub fn input_of(
        &mut self,
        plan: &SweepPlan,
        run: &PlannedRun,
    ) -> Result<SweepInput, CommandFailure> {
        let run = self.forked_run.as_ref().unwrap_or(run);
        if let Some(planned) = plan.header_of(run) {
            let headers = plan.headers.iter().rev();
            for header in headers.take_while(|header| header.inputs != planned.inputs) {
                let input = self.reader.input_in(&header.inputs, &run.input)?;
                if let Some(input) = input.filter(|input| is_same_run(planned, run, input)) {
                    return Ok(input);
                }
            }
        }
        self.reader.input_of(plan, run)
    }

    /// The grade that the grader should give the result of a run.
    pub fn grade_target(
        &mut self,
        plan: &SweepPlan,
        run: &PlannedRun,
        line: &ResultLine,
        grader: &PlannedGrader,
    ) -> Result<GradeTarget, CommandFailure> {
        let input = self.input_of(plan, run)?;
        let source = grade_source(&grader.kind, run, &input);
        let planned = self.reader.input_of(plan, run)?;
        let is_planned_input =
            planned == input || grade_source(&grader.kind, run, &planned) == source;
        let key = GradeKey {
            id: line.id.clone(),
            grader: grader.name.clone(),
            hash: grader.hash(),
            epoch: line.epoch,
            source: Some(source),
        };
        Ok(GradeTarget { key, is_planned_input })
    }
}
