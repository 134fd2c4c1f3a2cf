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

/// The runs of a sweep that its newest plan does not mean. One whose agent alone has changed is none of them: the agent has a
/// name for each of its trees.
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

/// The newest plan with the agents of an earlier one, as far as it still has them; `None` if it makes the same runs.
fn newest_definition(earlier: &PlanHeader, newest: &PlanHeader) -> Option<PlanHeader> {
    let mut agents = earlier.agents.clone();
    agents.retain(|id, _| newest.agents.contains_key(id));
    let same = PlanHeader {
        inputs: newest.inputs.clone(),
        task: newest.task.clone(),
        env: newest.env.clone(),
        files: newest.files.clone(),
        llm: newest.llm.clone(),
        models: newest.models.clone(),
        agents,
        ..earlier.clone()
    };
    (same != *earlier).then_some(same)
}

fn is_meant(
    header: &PlanHeader,
    run: &PlannedRun,
    inputs: &mut InputReader,
) -> Result<bool, CommandFailure> {
    if !header.agents.contains_key(&*run.agent) || !header.models.contains_key(&*run.model) {
        return Ok(false);
    }
    let input = inputs.input_in(&header.inputs, &run.input)?;
    Ok(input.is_some_and(|input| is_same_run(header, run, &input)))
}
