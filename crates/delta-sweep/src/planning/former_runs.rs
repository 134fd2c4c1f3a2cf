//! Runs of earlier plans whose input, task or model is another one in the newest plan. With the ones that replaced them they
//! would be two tries of one input.

use crate::formats::grade_source::is_same_run;
use crate::formats::plan::{PlanHeader, PlannedRun};
use crate::formats::plan_file::SweepPlan;
use crate::planning::input_reader::InputReader;
use delta_base::id::RunId;
use delta_operator::failure::CommandFailure;
use delta_run::sweep::sweep_dir::SweepDir;
use std::collections::HashSet;

/// The runs of a sweep whose input or task is another one in its newest plan, or missing. One whose agent alone has changed is
/// none of them: the agent has a name for each of its trees. Neither is one of an agent or a model that the newest plan lacks.
///
/// # Errors
/// The inputs of the newest plan cannot be read.
pub fn former_runs(dir: &SweepDir, plan: &SweepPlan) -> Result<HashSet<RunId>, CommandFailure> {
    let Some(newest) = plan.settings() else { return Ok(HashSet::new()) };
    let mut inputs = InputReader::new(dir);
    let headers: Vec<Option<PlanHeader>> =
        plan.headers.iter().map(|header| newest_definition(header, newest)).collect();
    let mut former = HashSet::new();
    for run in &plan.runs {
        let Some(Some(header)) = headers.get(run.plan) else { continue };
        if !is_meant(header, run, &mut inputs)? {
            former.insert(run.id.clone());
        }
    }
    Ok(former)
}

/// The newest plan with the agents of an earlier one, and the models that it has no longer; `None` if it makes the same runs.
fn newest_definition(earlier: &PlanHeader, newest: &PlanHeader) -> Option<PlanHeader> {
    let mut models = earlier.models.clone();
    models.extend(newest.models.clone());
    let same = PlanHeader {
        inputs: newest.inputs.clone(),
        task: newest.task.clone(),
        env: newest.env.clone(),
        files: newest.files.clone(),
        llm: newest.llm.clone(),
        models,
        ..earlier.clone()
    };
    (same != *earlier).then_some(same)
}

fn is_meant(
    header: &PlanHeader,
    run: &PlannedRun,
    inputs: &mut InputReader,
) -> Result<bool, CommandFailure> {
    let input = inputs.input_in(&header.inputs, &run.input)?;
    Ok(input.is_some_and(|input| is_same_run(header, run, &input)))
}
